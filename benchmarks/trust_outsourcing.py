"""Outsourced sums: every part beside libsodium on the same work, what the parts of a check cost, and plans against what is delivered.

    python benchmarks/trust_outsourcing.py [--part group|sums|checks|plans|large]

All figures are CPU seconds of one thread, except where they say wall. libsodium is called through rbcl, where that is installed. `large`
sets up, sums and checks 2¹⁸ terms, and says how much memory that took.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from armillary.trust.outsourcing import (
    Bases,
    Client,
    Element,
    FixedBases,
    Network,
    RemoteServer,
    Server,
    Service,
    choose,
    measured_costs,
    msm,
    times_generator,
)
from armillary.trust.outsourcing.delegation.session import one_by_one
from armillary.trust.outsourcing.group.element import linear
from armillary.trust.outsourcing.local_naive import with_libsodium
from armillary.trust.outsourcing.measuring import cpu_seconds, in_turns, once
from armillary.trust.outsourcing.two_g2t import drawn_multiplier
from armillary.trust.outsourcing.workload import SCALAR_KINDS, scalars_of


def sodium() -> Any:
    try:
        import rbcl  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        return None
    return rbcl


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64DXSM(seed))


def group() -> None:
    library = sodium()
    k = drawn_multiplier()
    scalar, one = k.astype("<u8").tobytes(), times_generator(k)
    point = bytes(one)
    ours: dict[str, Callable[[], Any]] = {
        "multiplication": lambda: one * k, "multiplication of G": lambda: times_generator(k), "addition": lambda: one + one,
        "k·A + c·G": lambda: linear(k, one, k), "encoding": lambda: bytes(one), "decoding": lambda: Element.from_bytes(point),
    }  # fmt: skip
    theirs: dict[str, Callable[[], Any]] = {}
    if library is not None:
        theirs = {
            "multiplication": lambda: library.crypto_scalarmult_ristretto255(scalar, point),
            "multiplication of G": lambda: library.crypto_scalarmult_ristretto255_base(scalar),
            "addition": lambda: library.crypto_core_ristretto255_add(point, point),
        }
    works = {f"{whose} {name}": work for whose, all_of in (("ours", ours), ("theirs", theirs)) for name, work in all_of.items()}
    took = in_turns(works, rounds=9)
    print("µs per call: ours, libsodium's (with an encoding and a decoding in each call)")
    for name in ours:
        other = took.get(f"theirs {name}")
        print(f"  {name:22} {1e6 * took[f'ours {name}']:8.1f} {'' if other is None else f'{1e6 * other:8.1f}'}")


def sums() -> None:
    print("sums, µs per term: plain, with stored copies, term by term, libsodium term by term; plain over libsodium")
    for kind in SCALAR_KINDS:
        for n in (256, 2048, 16384):
            bases, x = Bases.from_label("bench", n), scalars_of(kind, n, rng())
            fixed = FixedBases(bases)
            works = {"plain": lambda: msm(bases, x), "fixed": lambda: fixed.msm(x), "naive": lambda: one_by_one(bases, x)}  # noqa: B023
            if sodium() is not None:
                works["libsodium"] = lambda: with_libsodium(bases, x)  # noqa: B023
            took = in_turns(works)
            shown = "  ".join(f"{1e6 * seconds / n:8.2f}" for seconds in took.values())
            ratio = f"{took['libsodium'] / took['plain']:6.1f}×" if "libsodium" in took else ""
            print(f"  {kind:8} {n:6}  {shown}  {ratio}")


def checks() -> None:
    print("checks, µs: whole, inner product, what is left after the answer; µs per query of a batch of 64; with a seed")
    for n in (256, 1024, 4096, 16384, 65536):
        bases, x = Bases.from_label("bench", n), scalars_of("uniform", n, rng())
        client, public = Client.setup(bases)
        answer = Server(bases, public).answer(x)
        prepared = client.prepare(x)
        queries, answers = [x] * 64, [answer] * 64
        seeded, _ = Client.setup(bases, seeded=True)
        took = in_turns({
            "whole": lambda: client.verify(x, answer), "inner": lambda: client.inner(x), "after": lambda: prepared.verify(answer),  # noqa: B023
            "batch": lambda: client.verify_many(queries, answers), "seeded": lambda: seeded.inner(x),  # noqa: B023
        })  # fmt: skip
        took["batch"] /= 64
        print(f"  {n:6}  " + "  ".join(f"{1e6 * seconds:9.1f}" for seconds in took.values()))


def plans() -> None:
    print("plans for a server of one core on the loopback, and what was delivered: ms per query, promised and wall")
    for n in (512, 4096, 16384):
        promised = choose(n, measured_costs(n), Network(0.0, 1e9))
        bases, x = Bases.from_label("bench", n), scalars_of("uniform", n, rng())
        client, public = Client.setup(bases)
        with Service(Server(bases, public)) as service, RemoteServer(service.address) as remote:
            client.verify(x, remote.answer(x))
            took = []
            for _ in range(9):
                began = time.perf_counter()
                client.verify(x, remote.answer(x))
                took.append(time.perf_counter() - began)
            answer = remote.answer(x)
        check = cpu_seconds(lambda: client.verify(x, answer), least_calls=9)  # noqa: B023
        print(
            f"  {n:6}  check {1e3 * promised.check_s:7.3f} {1e3 * check:7.3f}   "
            f"outsourced {1e3 * promised.outsourced_s:8.2f} {1e3 * sorted(took)[4]:8.2f}"
        )


def large() -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    n = 1 << 18
    bases, labelled = once(lambda: Bases.from_label("large", n))
    x = scalars_of("uniform", n, rng())
    (client, public), setup = once(lambda: Client.setup(bases))
    answer, server = once(lambda: Server(bases, public).answer(x))
    _, loaded = once(lambda: Bases.from_bytes(bytes(public)))
    check = cpu_seconds(lambda: client.verify(x, answer))
    local = cpu_seconds(lambda: msm(bases, x), least_calls=1)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(f"2¹⁸ terms, s: hash to group {labelled:.1f}, setup {setup:.1f}, decoding {loaded:.1f}, sum {local:.2f}, server {server:.2f}")
    print(f"  check {1e3 * check:.2f} ms, {local / check:.0f} times less than the sum; {1024 * grown / n:.0f} bytes per base at the peak")


PARTS = {"group": group, "sums": sums, "checks": checks, "plans": plans, "large": large}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=PARTS, action="append")
    for part in parser.parse_args().part or PARTS:
        PARTS[part]()


if __name__ == "__main__":
    main()
