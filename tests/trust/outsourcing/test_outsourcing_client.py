"""2G2T: the exact small example, soundness where a part is missing, batches, updates, and the file of secrets."""

from __future__ import annotations

import hashlib
import os
import stat
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from armillary.errors import InputError
from armillary.trust.outsourcing import Bases, Cheated, Client, Element, Server, Spent, as_scalars, msm, times_generator
from armillary.trust.outsourcing.delegation.shifts import SEED_BYTES, SeededShifts, StoredShifts, hashed
from armillary.trust.outsourcing.forging import toy
from armillary.trust.outsourcing.group.bases import integers
from armillary.trust.outsourcing.group.scalars import ORDER
from armillary.trust.outsourcing.two_g2t import with_secrets
from armillary.trust.outsourcing.workload import SCALAR_KINDS, scalars_of


def draws(seed: int = 0) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64DXSM(seed))


def pair(terms: int, **how: Any) -> tuple[Client, Server, Bases]:
    bases = Bases.from_label("client", terms)
    client, public = Client.setup(bases, **how)
    return client, Server(bases, public), bases


def test_the_small_example_comes_out_exactly() -> None:
    """P = (2G, 3G), x = (5, 7), k = 11, r = (13, 17): T = (35G, 50G), A = 31G, B = 525G."""
    bases = Bases.from_elements([times_generator(2), times_generator(3)])
    client, public = with_secrets(bases, 11, StoredShifts(as_scalars([13, 17])))
    assert [public.element(i) for i in (0, 1)] == [times_generator(35), times_generator(50)]
    answer = Server(bases, public).answer([5, 7])
    assert answer[:32].hex() == "18733c1f1ad791067184a90770029a4d74699b9f5d098d50f88aa9d8bbf8e872"
    assert answer[32:].hex() == "9eb5aaad8e948496028d51755cd013358cd6105bf8c75b4b4ade85e3cd7bf11e"
    assert client.verify([5, 7], answer) == times_generator(31)
    with pytest.raises(Cheated):
        client.verify([5, 7], bytes(times_generator(32)) + answer[32:])
    # Who knows k may forge: the check is the relation and nothing else.
    assert client.verify([5, 7], bytes(times_generator(32)) + bytes(times_generator(525 + 11))) == times_generator(32)


@pytest.mark.parametrize("seeded", [False, True])
@pytest.mark.parametrize("kind", SCALAR_KINDS)
@pytest.mark.parametrize("terms", [0, 1, 31, 40, 300])
def test_an_honest_answer_is_accepted(terms: int, kind: str, seeded: bool) -> None:
    client, server, bases = pair(terms, seeded=seeded)
    x = scalars_of(kind, terms, draws(terms))
    answer = server.answer(x)
    assert len(answer) == 64
    assert client.verify(x, answer) == client.prepare(x).verify(answer) == client.verify(x, answer, threads=2) == msm(bases, x)
    assert client.rejections == 0
    assert client.state_bytes == (64 if seeded else 32 + 32 * terms)


@given(numbers=st.lists(st.one_of(st.sampled_from([0, 1, ORDER - 1]), st.integers(0, ORDER - 1)), min_size=3, max_size=3))
def test_the_shifted_bases_are_k_times_the_bases_and_r_times_the_generator(numbers: list[int]) -> None:
    k, r, p = (numbers[0] or 1), numbers[1], numbers[2]
    bases = Bases.from_elements([times_generator(p)])
    _, public = with_secrets(bases, k, StoredShifts(as_scalars([r])))
    assert public.element(0) == times_generator(k * p + r)


def test_secrets_are_fresh_and_hidden() -> None:
    bases = Bases.from_label("client", 3)
    made = [Client.setup(bases) for _ in range(2)]
    assert bytes(made[0][1]) != bytes(made[1][1])
    assert not (made[0][0]._multiplier == made[1][0]._multiplier).all()
    assert repr(made[0][0]) == f"Client(limit={1 << 40}, rejections=0)"
    assert "_client" not in repr(made[0][0].prepare([1, 2, 3]))
    with pytest.raises(TypeError):
        Client.setup(bases, shifts=StoredShifts.drawn(3))  # type: ignore[call-arg]


def test_shifts_that_serve_twice_give_the_multiplier_away() -> None:
    """Two setups with one r: T − T′ = (k − k′)·P for known bases, so on the toy group k − k′ is read off; setup has no way to pass r."""
    rng = draws(1)
    bases = toy.POWERS[rng.integers(1, toy.ORDER, 4)]
    r, k, other = rng.integers(0, toy.ORDER, 4), 17, 58
    one, two = (toy.shifted(bases, np.int64(each), r) for each in (k, other))
    quotient = one * toy.raised(two, toy.ORDER - 1) % toy.MODULUS
    solved = [guess for guess in range(toy.ORDER) if (toy.raised(bases, guess) == quotient).all()]
    assert solved == [(k - other) % toy.ORDER]


def test_the_toy_group_is_one() -> None:
    assert len(set(toy.POWERS.tolist())) == toy.ORDER
    assert pow(toy.GENERATOR, toy.ORDER, toy.MODULUS) == 1
    rng = draws(2)
    bases, x = toy.POWERS[rng.integers(0, toy.ORDER, 5)], rng.integers(0, toy.ORDER, 5)
    wanted = 1
    for base, exponent in zip(bases, x):
        wanted = wanted * pow(int(base), int(exponent), toy.MODULUS) % toy.MODULUS
    assert int(toy.combined(bases, x)) == wanted


@pytest.mark.parametrize("k", [1, 42])
def test_shifted_bases_are_uniform_whatever_k_is(k: int) -> None:
    rng, draws_of_r = draws(k), 50_000
    base = toy.POWERS[[5]]
    found = toy.shifted(base[None], np.full(draws_of_r, k), rng.integers(0, toy.ORDER, (draws_of_r, 1)))[:, 0]
    counts = [int((found == power).sum()) for power in toy.POWERS]
    assert sum(counts) == draws_of_r
    assert stats.chisquare(counts).pvalue > 0.001


def test_shifts_and_multipliers_are_drawn_over_the_whole_range() -> None:
    drawn = integers(StoredShifts.drawn(5000).kept)
    assert max(drawn) < ORDER
    assert len(set(drawn)) == 5000
    assert stats.chisquare(np.histogram([one / ORDER for one in drawn], bins=20, range=(0, 1))[0]).pvalue > 1e-6


@pytest.mark.parametrize("block", [(0, 5), (4090, 4103)])
def test_hashed_shifts_are_blake2b(block: tuple[int, int]) -> None:
    seed = bytes(range(SEED_BYTES))
    wanted = [hashlib.blake2b(seed + i.to_bytes(8, "little")).digest() for i in range(*block)]
    assert hashed(seed, *block).astype("<u8").tobytes() == b"".join(wanted)
    shifts = SeededShifts(seed, 5000)
    assert integers(shifts.words(*block)) == [int.from_bytes(one, "little") % ORDER for one in wanted]


def test_a_seeded_inner_product_goes_over_all_blocks() -> None:
    shifts, x = SeededShifts(os.urandom(SEED_BYTES), 9000), scalars_of("uniform", 9000, draws(3))
    wanted = sum(a * b for a, b in zip(integers(x), integers(shifts.words(0, 9000)))) % ORDER
    assert integers(shifts.inner(x).reshape(1, 4)) == integers(shifts.inner(x, threads=2).reshape(1, 4)) == [wanted]


def test_a_batch_is_checked_at_once_and_a_wrong_answer_is_named() -> None:
    client, server, bases = pair(40)
    queries = [scalars_of(SCALAR_KINDS[i % 4], 40, draws(i)) for i in range(35)]
    answers = server.answer_many(queries)
    assert client.verify_many(queries, answers) == [msm(bases, x) for x in queries]
    assert client.verify_many([], []) == []
    assert client.rejections == 0
    for wrong in (answers[3], bytes(64), b"\xff" * 64, answers[17][:63], answers[17][32:] + answers[17][:32]):
        with pytest.raises(Cheated, match="answer 17 of 35"):
            client.verify_many(queries, [*answers[:17], wrong, *answers[18:]])
    assert client.rejections == 5
    with pytest.raises(InputError, match="34 answers to 35 queries"):
        client.verify_many(queries, answers[1:])


def test_two_errors_that_cancel_in_a_plain_sum_do_not_pass_a_batch() -> None:
    client, server, _ = pair(40)
    queries = [scalars_of("uniform", 40, draws(i)) for i in range(2)]
    answers = server.answer_many(queries)
    more = times_generator(5)
    pairs = [[Element.from_bytes(one[:32]), one[32:]] for one in answers]
    forged = [bytes(pairs[0][0] + more) + pairs[0][1], bytes(pairs[1][0] - more) + pairs[1][1]]
    a, b = (Element.from_bytes(forged[0][at : at + 32]) + Element.from_bytes(forged[1][at : at + 32]) for at in (0, 32))
    both = as_scalars([sum(pair) % ORDER for pair in zip(*map(integers, queries))])
    assert client.verify(both, bytes(a) + bytes(b)) == a, "a combination without random weights believes them"
    with pytest.raises(Cheated, match="answer 0 of 2"):
        client.verify_many(queries, forged)


def test_a_replaced_base_gets_a_fresh_shift_and_old_answers_fail() -> None:
    client, server, bases = pair(40)
    x = scalars_of("uniform", 40, draws(4))
    old = server.answer(x)
    kept = client._shifts.words(0, 40)
    changed, public = client.replace(bases, server.public, 7, times_generator(99))
    assert changed.element(7) == times_generator(99)
    assert [i for i in range(40) if bytes(public.element(i)) != bytes(server.public.element(i))] == [7]
    assert (client._shifts.words(0, 40) != kept).any(axis=1).tolist() == [i == 7 for i in range(40)]
    assert client.verify(x, Server(changed, public).answer(x)) == msm(changed, x)
    with pytest.raises(Cheated):
        client.verify(x, old)
    # The same element again: the shift is fresh all the same.
    again, shifted_again = client.replace(changed, public, 7, times_generator(99))
    assert bytes(again) == bytes(changed)
    assert bytes(shifted_again) != bytes(public)
    more, longer = client.replace(again, shifted_again, 40, times_generator(3))
    y = scalars_of("uniform", 41, draws(5))
    assert client.verify(y, Server(more, longer).answer(y)) == msm(more, y)
    assert client.terms == 41
    with pytest.raises(InputError, match="found index 42"):
        client.replace(more, longer, 42, times_generator(3))
    with pytest.raises(InputError, match="found 40 bases"):
        client.replace(bases, server.public, 1, times_generator(3))


def test_a_seeded_client_replaces_no_base() -> None:
    client, server, bases = pair(5, seeded=True)
    with pytest.raises(InputError, match="its shift would serve twice"):
        client.replace(bases, server.public, 1, times_generator(3))


def test_a_client_is_spent_after_its_limit(tmp_path: Path) -> None:
    client, server, _ = pair(3, limit=3)
    good = server.answer([1, 2, 3])
    for wrong in (bytes(64), b"", good[::-1]):
        with pytest.raises(Cheated):
            client.verify([1, 2, 3], wrong)
    client.save(tmp_path / "s.bin")
    for one in (client, Client.load(tmp_path / "s.bin")):
        for check in (
            lambda one=one: one.verify([1, 2, 3], good),
            lambda one=one: one.prepare([1, 2, 3]).verify(good),
            lambda one=one: one.verify_many([[1, 2, 3]], [good]),
        ):
            with pytest.raises(Spent):
                check()


@pytest.mark.parametrize("x", [[1, 2], [1, 2, 3, 4], [1, 2, ORDER], [1, 2, -3], b"\xff" * 96])
def test_wrong_scalars_are_an_error_of_the_caller_and_no_rejection(x: Any) -> None:
    client, server, _ = pair(3)
    answer = server.answer([1, 2, 3])
    for call in (lambda: client.verify(x, answer), lambda: client.prepare(x), lambda: server.answer(x)):
        with pytest.raises(InputError):
            call()
    assert client.rejections == 0


def test_wrong_setups_are_refused() -> None:
    bases = Bases.from_label("client", 2)
    shifts = StoredShifts.drawn(2)
    for k, found, limit, said in ((0, shifts, 1, "multiplier that is 0"), (ORDER, shifts, 1, "multiplier"), (1, StoredShifts.drawn(3), 1, "3 shifts"), (1, shifts, 0, "limit of 0")):  # fmt: skip
        with pytest.raises(InputError, match=said):
            with_secrets(bases, k, found, limit=limit)
    with pytest.raises(InputError, match="3 shifted bases for 2"):
        Server(bases, Bases.from_label("client", 3))
    with pytest.raises(InputError, match="0 threads"):
        Server(bases, bases, threads=0)


@pytest.mark.parametrize("seeded", [False, True])
def test_secrets_come_back_from_their_file(tmp_path: Path, seeded: bool) -> None:
    client, server, bases = pair(20, seeded=seeded)
    with pytest.raises(Cheated):
        client.verify([1] * 20, bytes(64))
    path = tmp_path / "secret.bin"
    client.save(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [one.name for one in tmp_path.iterdir()] == ["secret.bin"]
    loaded = Client.load(path)
    x = scalars_of("uniform", 20, draws(6))
    assert loaded.verify(x, server.answer(x)) == msm(bases, x)
    assert (loaded.limit, loaded.rejections, loaded.terms) == (1 << 40, 1, 20)
    path.chmod(0o644)
    client.save(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(InputError, match="cannot be written"):
        client.save(tmp_path / "missing" / "secret.bin")


def test_every_damaged_byte_of_a_file_of_secrets_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "secret.bin"
    Client.setup(Bases.from_label("client", 3))[0].save(path)
    data = path.read_bytes()
    for at in range(len(data)):
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        with pytest.raises(InputError):
            Client.load(path)
    for wrong in (b"", data[:-1], data + b"\0", data[:20], data * 2):
        path.write_bytes(wrong)
        with pytest.raises(InputError):
            Client.load(path)


@pytest.mark.parametrize(
    ("at", "form", "value", "said"),
    [
        (8, "<H", 2, "found version 2; expected 1"),
        (10, "<H", 7, "kind 7"),
        (12, "<Q", 2, "for 2 bases"),
        (12, "<Q", 1 << 63, "for 9,223,372,036,854,775,808 bases"),
        (20, "<Q", 0, "limit out of its range"),
        (36, "<QQQQ", (0, 0, 0, 0), "found a multiplier"),
        (36, "<QQQQ", (2**64 - 1,) * 4, "found a multiplier"),
        (68, "<QQQQ", (2**64 - 1,) * 4, "shift 0: found a number that is not below q"),
    ],
)
def test_a_file_of_secrets_with_a_right_checksum_is_still_checked(tmp_path: Path, at: int, form: str, value: Any, said: str) -> None:
    path = tmp_path / "secret.bin"
    Client.setup(Bases.from_label("client", 3))[0].save(path)
    data = bytearray(path.read_bytes()[:-32])
    struct.pack_into(form, data, at, *(value if isinstance(value, tuple) else (value,)))
    path.write_bytes(bytes(data) + hashlib.blake2b(data, digest_size=32).digest())
    with pytest.raises(InputError, match=said):
        Client.load(path)
