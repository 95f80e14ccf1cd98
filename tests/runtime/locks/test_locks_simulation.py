"""Lines and threads in simulated time, against sums by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from armillary.cluster import preset
from armillary.errors import InputError
from armillary.kernels import kernel
from armillary.runtime.locks import (
    Bench,
    Clh,
    Episodes,
    Hapax,
    HapaxVw,
    Hemlock,
    Machine,
    Mcs,
    Pthread,
    Reciprocating,
    Ticket,
    Ttas,
    Twa,
    episodes,
    simulate,
)  # fmt: skip
from armillary.runtime.locks.simulation.coherence import INVALIDATIONS, TRANSFERS, access
from armillary.runtime.locks.simulation.machine import MOST_LATENCY_PS

LOCKS: list[Any] = [Hapax(), HapaxVw(), Ticket(), Twa(), Mcs(), Clh(), Hemlock(), Reciprocating(), Ttas()]


def _work(threads: int, each: int, hold_ns: int = 10) -> Episodes:
    count = threads * each
    nothing = np.zeros(count, np.int64)
    first = np.arange(0, count + 1, each, dtype=np.int64)
    return Episodes(1, first, nothing, nothing, nothing, np.full(count, 1000 * hold_ns, np.int64), touches=False)


def _rng() -> np.random.Generator:
    return np.random.Generator(np.random.PCG64DXSM(1))


@kernel
def _accesses(owner, sharers, copies, busy, sockets, prices, totals, core, writes, now, done):  # type: ignore[no-untyped-def]
    for i in range(len(core)):
        done[i] = access(owner, sharers, copies, busy, sockets, prices, totals, 1, 0, core[i], writes[i], now[i])


#: Who reads or writes when, in ns; then when it is done, the line's owner (−1: shared), its copies, transfers and invalidations so far.
#: Cores 0 and 1 share a socket, 2 and 3 the other one.
LINE = [
    (0, "r", 0, 90, 0, 0, 0, 0),  # from memory, exclusive
    (0, "r", 100, 101, 0, 0, 0, 0),
    (0, "w", 110, 111, 0, 0, 0, 0),  # exclusive to modified
    (1, "r", 120, 165, -1, 2, 1, 0),  # from the cache of core 0
    (2, "r", 121, 255, -1, 3, 1, 0),  # after that, from memory
    (0, "r", 122, 123, -1, 3, 1, 0),  # has a copy
    (1, "w", 300, 440, 1, 0, 1, 2),  # 130 for the farther of two copies, 5 for each
    (3, "w", 301, 570, 3, 0, 2, 2),  # waits until 440, then from the other socket
    (2, "w", 600, 645, 2, 0, 3, 2),
    (0, "r", 700, 830, -1, 2, 4, 2),
    (1, "w", 900, 1040, 1, 0, 4, 4),  # without a copy: memory 90, copies 130, and 5 for each of two
]


def test_the_states_of_a_line_are_those_worked_out_by_hand() -> None:
    machine = Machine((2, 2))
    owner, copies, busy = np.full(1, -1, np.int64), np.zeros(1, np.int64), np.zeros(1, np.int64)
    sharers, totals = np.zeros((1, 1), np.uint64), np.zeros(8, np.int64)
    for core, kind, now, done, owns, shared, transfers, invalidations in LINE:
        ended = np.zeros(1, np.int64)
        _accesses(owner, sharers, copies, busy, machine.socket_of, machine.prices, totals, np.array([core]), np.array([kind == "w"]),
                  np.array([1000 * now]), ended)  # fmt: skip
        assert (ended[0] / 1000, owner[0], copies[0]) == (done, owns, shared), (core, kind, now)
        assert (totals[TRANSFERS], totals[INVALIDATIONS]) == (transfers, invalidations)
        assert int(sharers[0, 0]).bit_count() == shared


def test_two_threads_and_two_tickets_each() -> None:
    # Thread 0 draws at 0 (memory, 90) and looks at the turn (memory, 180): inside. Thread 1 draws at 90 (135) and looks (from 180 to 225): not
    # yet. The release at 190 waits for the line (225), takes it from one copy (50): 275, and thread 1's second look ends at 320. Thread 0 draws
    # its second ticket (from 275 to 320), looks twice at a copy it has (321, 322) and waits. And so on.
    found = simulate(Ticket(), _work(2, 2), Machine((2,)))
    assert (found.entered_ps / 1000).tolist() == [180, 425, 320, 530]
    assert (found.gone_ps / 1000).tolist() == [190, 435, 330, 540]
    assert found.seconds == pytest.approx(590e-9, rel=1e-12)
    assert (found.transfers, found.invalidations) == (7, 4)
    assert found.handover_s == pytest.approx((320 - 190 + 425 - 330 + 530 - 435) / 3 * 1e-9)
    assert found.coherence_per_acquire == 11 / 4


def test_a_thread_that_is_alone_pays_for_hits_only() -> None:
    # Ticket: three steps of 1 ns each; the first episode fetches two lines from memory.
    found = simulate(Ticket(), _work(1, 101, hold_ns=0), Machine((2,)))
    assert found.seconds == pytest.approx((90 + 90 + 1 + 100 * 3) * 1e-9, rel=1e-12)
    assert found.transfers == found.invalidations == 0


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: type(lock).__name__)
def test_entries_come_in_the_order_of_the_doorway(lock: Any) -> None:
    found = simulate(lock, episodes(Bench(4, 100), 12, 60, _rng()), Machine((8, 8)))
    inside = np.sort(np.stack([found.entered_ps, found.gone_ps], axis=1), axis=0)
    order = np.argsort(found.entered_ps)
    assert (found.gone_ps[order][:-1] <= found.entered_ps[order][1:]).all(), "two are inside at once"
    assert len(inside) == 720
    assert (found.disorder == 0) == lock.fifo
    if isinstance(lock, Reciprocating):
        assert found.overtaken <= 2 * 11, "nobody is overtaken twice by one thread"


def test_a_small_waiting_array_costs_more_looks() -> None:
    work = episodes(Bench(4, 0), 16, 100, _rng())
    looks = [simulate(Hapax(slots=slots), work, Machine((16,))).looks for slots in (4096, 4, 1)]
    assert looks[0] < looks[1] < looks[2]
    padded, packed = (simulate(Hapax(slots=64, pad=pad), work, Machine((16,))).looks for pad in (True, False))
    assert packed > padded


def test_traffic_grows_for_tickets_and_not_for_queues() -> None:
    machine = Machine.of(preset("coherence-2x32"))
    found = {
        type(lock).__name__: [
            simulate(lock, episodes(Bench(4, 0), threads, 100, _rng()), machine).coherence_per_acquire for threads in (8, 64)
        ]
        for lock in (Ticket(), Mcs(), Hapax())
    }
    assert found["Ticket"][1] > 6 * found["Ticket"][0]
    assert found["Mcs"][1] < 1.1 * found["Mcs"][0]
    assert found["Hapax"][1] < 1.5 * found["Hapax"][0]


def test_buffered_stores_let_a_release_overlap() -> None:
    work = episodes(Bench(4, 0), 8, 50, _rng())
    plain, buffered = (simulate(Hapax(), work, Machine((8,), buffered=flag)) for flag in (False, True))
    assert buffered.handover_s < plain.handover_s
    assert buffered.disorder == 0


def test_machines_come_from_clusters() -> None:
    machine = Machine.of(preset("coherence-2x64"))
    assert machine.cores == 128
    assert machine.socket_of[[0, 63, 64, 127]].tolist() == [0, 0, 1, 1]
    assert (machine.local_ps, machine.socket_ps, machine.remote_ps, machine.memory_ps) == (1000, 45_000, 130_000, 90_000)
    with pytest.raises(InputError, match="no coherence latencies"):
        Machine.of(preset("laptop"))


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: type(lock).__name__)
def test_256_cores_are_played(lock: Any) -> None:
    found = simulate(lock, episodes(Bench(4, 0), 256, 4, _rng()), Machine((64,) * 4))
    assert found.acquires == 1024
    order = np.argsort(found.entered_ps)
    assert (found.gone_ps[order][:-1] <= found.entered_ps[order][1:]).all()


def test_times_of_the_slowest_machine_and_the_largest_work_fit() -> None:
    """Latencies of a millisecond, which is the most: no time wraps around."""
    slow = Machine((16,), *(4 * [MOST_LATENCY_PS]), invalidate_ps=MOST_LATENCY_PS)
    found = simulate(Ticket(), episodes(Bench(4, 0), 16, 20, _rng()), slow)
    assert (found.came_ps <= found.entered_ps).all()
    assert (found.entered_ps <= found.gone_ps).all()
    assert found.seconds > 320 * 1e-3


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: simulate(Ticket(), _work(3, 1), Machine((2,))), "expected at most 2, one for each core"),
        (lambda: simulate(Pthread(), _work(2, 1), Machine((2,))), "not simulated"),
        (lambda: Machine(()), "expected 1 to 256 cores"),
        (lambda: Machine((8, 0)), "at least one in each"),
        (lambda: Machine((256, 1)), "expected 1 to 256 cores"),
        (lambda: Machine((2,), socket_ps=-1), "socket latency: found -1e-12 s"),
        (lambda: Machine((2,), memory_ps=MOST_LATENCY_PS + 1), "expected 0 to 0.001"),
        (lambda: Bench(inside=-1), "inside: found -1"),
        (lambda: Bench(outside=-1), "outside: found -1"),
        (lambda: Bench(locks=0), "locks: found 0"),
        (lambda: Bench(zipf=9.0), "zipf: found 9"),
        (lambda: episodes(Bench(), 0, 5, _rng()), "found 0 threads"),
    ],
)
def test_wrong_work_is_refused(call: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        call()


@pytest.mark.slow
def test_the_largest_simulation_ends_soon() -> None:
    from time import process_time

    work = episodes(Bench(4, 0), 128, 2000, _rng())
    simulate(Ticket(), _work(2, 2), Machine((2,)))
    began = process_time()
    assert simulate(Ticket(), work, Machine.of(preset("coherence-2x64"))).acquires == 256_000
    assert process_time() - began < 20
