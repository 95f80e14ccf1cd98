"""2G2T: two sums that only a client with a secret can relate, so a server's answer of 64 bytes is checked by one multiplication.

For fixed bases P₁ … Pₙ the client draws a multiplier k and shifts r₁ … rₙ once, and publishes Tᵢ = k·Pᵢ + rᵢ·G. For scalars x the server
returns A = Σ xᵢ·Pᵢ and B = Σ xᵢ·Tᵢ, and the client accepts A iff B = k·A + ⟨x, r⟩·G. Because every Tᵢ is shifted by a random element of
its own, the shifted bases are uniformly random whatever k is, so even an unbounded server knows nothing about k. If A is off by D ≠ 0, then
B must be off by k·D, and one of the q − 1 possible k fits: a wrong answer passes with probability 1/(q − 1), about 2⁻²⁵². An answer that
is rejected rules out one k, so e wrong answers have one among them that passes with probability at most e/(q − 1). ⟨x, r⟩·G does not
depend on the answer, so it can be computed while the answer is on its way.

What it does not do: the server sees x, and only who holds k and r can check an answer (a designated verifier). The group must have prime
order, as ristretto255 has. Batches, updates of bases and the form of the file of secrets are our design.

2G2T: Constant-Size, Statistically Sound MSM Outsourcing, arXiv 2602.23464, 2026.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from armillary.arena import Claim, Exponent, Gain, InputError, Kind, Level, Technique, parameter

from .delegation import secret_files
from .delegation.server import ANSWER_BYTES, Server
from .delegation.shifts import SEED_BYTES, SeededShifts, Shifts, StoredShifts
from .forging import toy
from .group.bases import Bases, Scalars, as_scalars, read_only
from .group.element import ENCODED_BYTES, Element, base_table, linear, scalar_words, times_generator
from .group.encoding import encode_all
from .group.multiples import ROOM, WINDOWS, shift_all
from .group.points import POINT, READY, to_affine
from .group.scalars import ORDER, reduced_words
from .summing.inner import inner_product
from .summing.msm import msm

Words = npt.NDArray[np.uint64]

#: Rejections after which a client is spent; each rules out one multiplier of about 2²⁵².
LIMIT = 1 << 40
MOST_LIMIT = 1 << 62
BLOCK = 4096


class Cheated(Exception):
    """The server's answer is not the sum; it must not be used."""


class Spent(Exception):
    """This client has rejected as many answers as it was made for; set up another one."""


@dataclass(eq=False)
class Client:
    """The multiplier k and the shifts r, which nobody else may see; `rejections` counts wrong answers.

    Life of a client: `setup` draws the secrets and makes the shifted bases, which are public. Then, per query, `verify` or, with less to do
    once the answer is there, `prepare` before it and `Prepared.verify` after it. An answer that is wrong raises Cheated. After `limit` of
    these the client raises Spent, and a new one must be set up.
    """

    _multiplier: Words = field(repr=False)
    _shifts: Shifts = field(repr=False)
    limit: int = LIMIT
    rejections: int = 0

    @classmethod
    def setup(cls, bases: Bases, *, seeded: bool = False, limit: int = LIMIT) -> tuple[Client, Bases]:
        """(client, public shifted bases Tᵢ = k·Pᵢ + rᵢ·G) with fresh secrets from the operating system's generator.

        seeded: keep a seed of 32 bytes in place of 32 bytes per base; then soundness rests on BLAKE2b as well.
        """
        shifts = SeededShifts(secrets.token_bytes(SEED_BYTES), len(bases)) if seeded else StoredShifts.drawn(len(bases))
        return with_secrets(bases, drawn_multiplier(), shifts, limit=limit)

    def prepare(self, x: Any, *, threads: int = 1) -> Prepared:
        """What can be computed while the answer is on its way: ⟨x, r⟩·G."""
        return Prepared(self, times_generator(self.inner(x, threads=threads)))

    def verify(self, x: Any, answer: bytes, *, threads: int = 1) -> Element:
        """Σ xᵢ·Pᵢ as the server says, if B = k·A + ⟨x, r⟩·G; raises Cheated otherwise."""
        shift = self.inner(x, threads=threads)
        a, b = self._decoded(answer)
        return self._accepted(a, b == linear(self._multiplier, a, shift))

    def verify_many(self, queries: Sequence[Any], answers: Sequence[bytes], *, threads: int = 1) -> list[Element]:
        """The sums of several queries by one check of a random combination; if it fails, each is checked, and Cheated names the first.

        A wrong answer passes the combined check with probability 2⁻¹²⁸ more than alone.
        """
        if len(queries) != len(answers):
            raise InputError(f"found {len(answers)} answers to {len(queries)} queries; expected as many")
        self._usable()
        shifts = [self.inner(x, threads=threads) for x in queries]
        if answers and all(len(answer) == ANSWER_BYTES for answer in answers):
            found = self._combined(shifts, answers)
            if found is not None:
                return found
        sums = []
        for number, (shift, answer) in enumerate(zip(shifts, answers)):
            try:
                a, b = self._decoded(answer)
                sums.append(self._accepted(a, b == linear(self._multiplier, a, shift)))
            except Cheated:
                raise Cheated(f"answer {number} of {len(answers)} is not the sum") from None
        return sums

    def _combined(self, shifts: Sequence[Words], answers: Sequence[bytes]) -> list[Element] | None:
        """All sums, if a random combination of the answers is right."""
        try:
            a, b = (Bases.from_bytes(b"".join(one[at : at + ENCODED_BYTES] for one in answers)) for at in (0, ENCODED_BYTES))
        except InputError:
            return None
        weights: Words = np.zeros((len(answers), 4), np.uint64)
        weights[:, :2] = np.frombuffer(os.urandom(16 * len(answers)), np.uint64).reshape(-1, 2)
        shift = inner_product(read_only(weights), read_only(np.stack(shifts)))
        if msm(b, weights) != linear(self._multiplier, msm(a, weights), shift):
            return None
        return [a.element(i) for i in range(len(answers))]

    def replace(self, bases: Bases, public: Bases, index: int, element: Element) -> tuple[Bases, Bases]:
        """(bases, public) with another element at `index`, or one more at the end; only its shifted base changes, with a fresh shift.

        A seeded client would have to use a shift twice, which gives k away; it is set up again instead.
        """
        if not isinstance(self._shifts, StoredShifts):
            raise InputError("a seeded client cannot replace a base, because its shift would serve twice; set up another one")
        if len(bases) != len(self._shifts) or len(public) != len(bases):
            raise InputError(f"found {len(bases):,} bases and {len(public):,} shifted ones for a client of {len(self._shifts):,}")
        changed = bases.replaced(index, element)
        fresh = StoredShifts.drawn(1)
        one = shifted(Bases.from_elements([element]), self._multiplier, fresh)
        kept = self._shifts.kept
        self._shifts = StoredShifts(np.concatenate([kept[:index], fresh.kept, kept[index + 1 :]]))
        return changed, public.replaced(index, one.element(0))

    def inner(self, x: Any, *, threads: int = 1) -> Words:
        """⟨x, r⟩ modulo q in four words, the only part of a check that looks at every scalar; as secret as r."""
        words = as_scalars(x)
        if len(words) != len(self._shifts):
            raise InputError(f"found {len(words):,} scalars; expected {len(self._shifts):,}, one per base")
        return self._shifts.inner(words, threads)

    @property
    def terms(self) -> int:
        """The number of bases."""
        return len(self._shifts)

    @property
    def state_bytes(self) -> int:
        """Bytes that the client must keep: k, and the shifts or their seed."""
        return ENCODED_BYTES + self._shifts.state_bytes

    def save(self, path: str | Path, *, mode: int = 0o600) -> None:
        """Writes the secrets to a file that only its owner can read."""
        secret_files.write(path, self._multiplier, self._shifts, self.limit, self.rejections, mode)

    @classmethod
    def load(cls, path: str | Path) -> Client:
        """The client that was saved."""
        return cls(*secret_files.read(path))

    def _usable(self) -> None:
        if self.rejections >= self.limit:
            raise Spent(f"{self.rejections:,} answers were rejected; set up another client")

    def _decoded(self, answer: bytes) -> tuple[Element, Element]:
        self._usable()
        if len(answer) != ANSWER_BYTES:
            return self._rejected(f"the answer has {len(answer):,} bytes instead of {ANSWER_BYTES}")
        try:
            return Element.from_bytes(answer[:ENCODED_BYTES]), Element.from_bytes(answer[ENCODED_BYTES:])
        except InputError:
            return self._rejected("the answer is no canonical encoding of two elements")

    def _accepted(self, a: Element, right: bool) -> Element:
        return a if right else self._rejected("the answer is not the sum")

    def _rejected(self, why: str) -> Any:
        self.rejections += 1
        raise Cheated(why)


@dataclass(eq=False)
class Prepared:
    """A query whose answer is awaited; one multiplication, one addition and one comparison are left."""

    _client: Client = field(repr=False)
    _shift: Element = field(repr=False)

    def verify(self, answer: bytes) -> Element:
        """As Client.verify."""
        a, b = self._client._decoded(answer)
        return self._client._accepted(a, b == a * self._client._multiplier + self._shift)


def drawn_multiplier() -> Words:
    """k, uniform in 1 to q − 1 but for 2⁻²⁵⁹, from the operating system's generator."""
    while True:
        found = reduced_words(np.frombuffer(os.urandom(64), "<u8").astype(np.uint64).reshape(1, 8))[0]
        if found.any():
            return found


def with_secrets(bases: Bases, multiplier: int | Words, shifts: Shifts, *, limit: int = LIMIT) -> tuple[Client, Bases]:
    """A client with given secrets, for tests: shifts that ever served with other bases give the multiplier away."""
    if isinstance(multiplier, int) and not 0 < multiplier < ORDER:
        raise InputError("found a multiplier that is 0 or not below q; expected 1 to q − 1")
    if len(shifts) != len(bases):
        raise InputError(f"found {len(shifts):,} shifts for {len(bases):,} bases; expected one per base")
    if not 1 <= limit <= MOST_LIMIT:
        raise InputError(f"found a limit of {limit}; expected 1 to 2⁶² rejections")
    k = scalar_words(multiplier)[0]
    return Client(k, shifts, limit), shifted(bases, k, shifts)


def shifted(bases: Bases, multiplier: Words, shifts: Shifts) -> Bases:
    """Tᵢ = k·Pᵢ + rᵢ·G, each on one chain of doublings, without branches on k and r."""
    words: Any = np.empty((len(bases), 4), np.uint64)
    ready: Any = np.empty((len(bases), READY), np.uint64)
    table, k = np.empty((ROOM, POINT), np.uint64), scalar_words(multiplier)
    digits, more = np.empty((WINDOWS, 2), np.uint64), np.empty((WINDOWS, 2), np.uint64)
    for at in range(0, len(bases), BLOCK):
        stop = min(len(bases), at + BLOCK)
        points: Any = np.empty((stop - at, POINT), np.uint64)
        shift_all(bases.ready[at:stop], k, shifts.words(at, stop), base_table(), table, digits, more, points)
        encode_all(points, words[at:stop])
        to_affine(points, np.empty((stop - at, 5), np.uint64), ready[at:stop])
    return Bases(words, ready)


class Delegated:
    """A client of 2G2T and a server that computes in this process, in the form that the arena asks all techniques for."""

    def __init__(self, client: Client, server: Server) -> None:
        self.client, self.server = client, server
        self.state_bytes = client.state_bytes

    def query(self, x: Scalars) -> Scalars:
        """What the client sends: x itself."""
        return x

    def changed(self, query: Scalars, x: Scalars) -> Scalars:
        """The query as it would be for other scalars."""
        return x

    def ask(self, query: Scalars) -> bytes:
        """The server's part."""
        return self.server.answer(query)

    def check(self, query: Scalars, answer: bytes) -> Element:
        """The client's part, from the bytes of the answer to the sum."""
        return self.client.verify(query, answer)

    def prepare(self, query: Scalars) -> Callable[[bytes], Element]:
        """What is left to do once the answer is there."""
        return self.client.prepare(query).verify

    def read_scalars(self, query: Scalars) -> None:
        """The part of `check` that looks at every scalar."""
        self.client.inner(query)


_NATIVE = (
    "the published local sum is optimised native code and its machine is unknown; ours may take up to 6 µs per term, and above 400 the"
    " denominator would be slow rather than the check fast"
)


@dataclass(frozen=True)
class TwoG2T(Technique):
    """Checks one linear relation between two sums with a secret multiplier and stored secret shifts; the server sees the scalars."""

    limit: int = parameter(LIMIT, "rejections after which the client must be set up again", range=(1, MOST_LIMIT))

    seeded: ClassVar[bool] = False
    claims: ClassVar[tuple[Claim, ...]] = (
        Claim(
            "speedup", by=Level(at_least=300), on=Kind("long"), aggregate="max", honest=(80, 400), why=_NATIVE, source="abstract",
            says="checking is up to 300 times faster than the fastest sum here, for 2^10 to 2^18 terms",
        ),
        Claim(
            "speedup", by=Exponent("terms", at_least=0.3), on=Kind("growing"), source="our design",
            says="the speed-up grows with the number of terms, from 2^8 to 2^14",
        ),
        Claim("response_bytes", by=Level(at_most=64), on=Kind("sums"), source="abstract", says="an answer has 64 bytes whatever the terms"),
        Claim(
            "server_over_local", by=Level(at_most=2.1), on=Kind("uniform"), source="abstract",
            says="the server takes about twice the time of the plain sum",
        ),
        Claim(
            "after_over_multiplication", by=Level(at_most=2.0), on=Kind("uniform"), source="our design",
            says="once the answer is there, at most two multiplications' time is left",
        ),
        Claim("false_accepts", by=Level(at_most=0), on=Kind("attacks"), source="abstract", says="no forged answer is accepted"),
        Claim(
            "toy_accepts", by=Level(at_least=0.5), on=Kind("toy"), source="abstract",
            says="on a group of 101 elements, the best forger wins at least half of 1 in 101 (so the count is real)",
        ),
        Claim(
            "toy_accepts", by=Level(at_most=2.0), on=Kind("toy"), source="abstract",
            says="on a group of 101 elements, the best forger wins at most twice in 101",
        ),
        Claim(
            "verify_s", over=("local", "local-fixed", "local-naive", "recheck"), by=Gain(ratio=(1.0, None)),
            on=(Kind("growing"), Kind("easy")), source="our design",
            says="checking takes less than every way of computing the sum here, also for small, sparse and 0/1 scalars",
        ),
    )  # fmt: skip

    def begin(self, bases: Bases) -> Delegated:
        """Sets up a client, and a server for it."""
        client, public = Client.setup(bases, seeded=self.seeded, limit=self.limit)
        return Delegated(client, Server(bases, public))

    def toy_share(self, keys: int, terms: int, rng: np.random.Generator) -> float:
        """The share of keys of the toy group under which the best forger is believed."""
        return toy.forged_share(keys, terms, rng)
