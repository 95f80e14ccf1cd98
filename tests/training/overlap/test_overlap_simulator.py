"""The simulator of schedules: cases by hand, an independent simulator, limits, volumes on links, and deadlocks."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import plain_schedule
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.errors import InputError
from armillary.llm.cost.collectives import sent_share
from armillary.training.overlap import DeadlockFound, Gpu, Operator, Tile, program_for
from armillary.training.overlap import simulate as simulate_program
from armillary.training.overlap.machine.mechanisms import BARRIER_S, COPY_LAUNCH_S, EPSILON, FLAG_S, LAUNCH_S, SIGNAL_S
from armillary.training.overlap.planning.decomposed import with_copies, with_library
from armillary.training.overlap.planning.streams import Streams
from armillary.training.overlap.programs.gemm_ar import GemmAr
from armillary.training.overlap.programs.gemm_rs import GemmRs
from armillary.training.overlap.programs.primitives import signal, store_async
from armillary.training.overlap.simulation.outcome import decomposition, disturbed, metrics, timeline
from armillary.training.overlap.simulation.schedule import COMPUTE, SEND, SIGNAL, WAIT, Building, simulate
from armillary.training.overlap.simulation.tracing import tile_seconds, trace
from armillary.training.overlap.workload import PLAIN, routed

H100 = Gpu.of("h100")
#: A device with few SMs, so that schedules are small enough for plain Python.
SMALL = replace(H100, sms=4)


def operator(op: str, n: int = 4, size: int = 256) -> Operator:
    """A small operator of each kind."""
    if op in PLAIN:
        return Operator(op, devices=n, m=size * n, n=size)
    if op == "moe_dispatch_gemm":
        facts = {"op": op, "devices": n, "tokens": size, "experts": 2 * n, "top_k": 2, "hidden": 512, "ffn": 512}
        return routed(facts, np.random.default_rng(n))
    if op.endswith("attention"):
        return Operator(op, devices=n, batch=1, heads=2 * n, sequence=size * n, width=64)
    return Operator(op, devices=n, m=size * n, n=size, k=512)


OPS = ("gemm_rs", "ag_gemm", "gemm_ar", "ring_attention", "ulysses_attention", "moe_dispatch_gemm", *PLAIN)


def test_one_worker_computes_sends_and_signals_another() -> None:
    made = Building(H100, 2)
    flag, route = made.flag("there"), made.p2p(0, 1, H100.tma, 16384, None)
    rate = H100.tma.rate(16384)
    first = made.tasks([(COMPUTE, 0, 2e-6, 0), (SEND, route, rate * 3e-6, 0), (SIGNAL, flag, 1e-6, 1)], device=0, role="storer")
    second = made.tasks([(WAIT, flag, 0.0, 1), (COMPUTE, 0, 4e-6, 0)], device=1, role="consumer")
    made.worker("a", 0, [made.queue(first)])
    made.worker("b", 1, [made.queue(second)])
    timed = simulate(made.schedule())
    assert timed.seconds == pytest.approx(2e-6 + 3e-6 + 1e-6 + 4e-6)
    assert timed.link_bytes.tolist() == pytest.approx([rate * 3e-6, 0, 0, rate * 3e-6])
    assert timed.busy(COMPUTE).tolist() == pytest.approx([2e-6, 4e-6])


def test_two_flows_into_one_device_share_its_link_and_the_rest_is_taken_by_others() -> None:
    # 0 -> 2 and 1 -> 2 share the link down to 2; 1 -> 0 gets what 1 -> 2 leaves of the link up.
    made = Building(H100, 3)
    for source, target, size in ((0, 2, 100.0), (1, 2, 100.0), (1, 0, 100.0)):
        route = made.p2p(source, target, H100.tma, 16384, None)
        made.worker(f"{source}", source, [made.queue(made.tasks([(SEND, route, size, 0)], device=source, role="s"))])
    rate = H100.tma.rate(16384)
    timed = simulate(made.schedule())
    assert timed.seconds == pytest.approx(200 / rate)
    assert (timed.end * rate).tolist() == pytest.approx([200, 200, 200])


def test_an_sm_sends_at_its_own_share_until_enough_of_them_fill_the_link() -> None:
    def taken(sms: int) -> float:
        made = Building(H100, 2)
        route = made.p2p(0, 1, H100.tma, 16384)
        for number in range(sms):
            made.worker(str(number), 0, [made.queue(made.tasks([(SEND, route, 1e6, 0)], device=0, role="s"))])
        return simulate(made.schedule()).seconds

    alone = 1e6 / (H100.tma.rate(16384) / 15)
    assert taken(1) == pytest.approx(alone)
    assert taken(15) == pytest.approx(alone)
    assert taken(30) == pytest.approx(2 * alone)


def test_a_send_slows_the_tile_beside_it_by_epsilon_of_their_common_time() -> None:
    made = Building(H100, 2)
    route = made.p2p(0, 1, H100.tma, 16384, None)
    rate = H100.tma.rate(16384)
    made.worker("consumer", 0, [made.queue(made.tasks([(COMPUTE, 0, 10e-6, 0)], device=0, role="c"))], sm=0)
    made.worker("storer", 0, [made.queue(made.tasks([(SEND, route, rate * 4e-6, 0)], device=0, role="s"))], sm=0)
    made.worker("elsewhere", 0, [made.queue(made.tasks([(COMPUTE, 0, 10e-6, 0)], device=0, role="c"))], sm=1)
    timed = simulate(made.schedule())
    assert timed.end.tolist() == pytest.approx([10e-6 + EPSILON * 4e-6, 4e-6, 10e-6])


def test_a_storer_with_one_buffer_holds_the_tile_after_the_next() -> None:
    # A tile of 1 µs and a send of 3 µs: from the second tile on, sends decide, and the last one ends at 1 + 3·3 µs and the barriers.
    made = Building(H100, 2, stages=1)
    flags = made.flag("sm", 2)
    route = made.p2p(0, 1, H100.tma, 16384, None)
    rate = H100.tma.rate(16384)
    from armillary.training.overlap.simulation.schedule import FREED, PRODUCED

    tile = [(COMPUTE, 0, 1e-6, 0), (WAIT, FREED, 0.0, 0), (SIGNAL, PRODUCED, BARRIER_S, 1)]
    store = [(WAIT, PRODUCED, 0.0, 0), (SEND, route, rate * 3e-6, 0), (SIGNAL, FREED, BARRIER_S, 1)]
    made.worker("c", 0, [made.queue(made.tasks(tile * 3, [3] * 3, device=0, role="c"))], produced=flags, freed=flags + 1)
    made.worker("s", 0, [made.queue(made.tasks(store * 3, [3] * 3, device=0, role="s"))], produced=flags, freed=flags + 1)
    # Between two sends there are the two barriers of the buffer; the free flag at the end takes one more.
    assert simulate(made.schedule()).seconds == pytest.approx(1e-6 + BARRIER_S + 3 * 3e-6 + 2 * 2 * BARRIER_S + BARRIER_S)


@st.composite
def schedules(draw: st.DrawFn) -> Building:
    """Random workers on three devices that compute, send, signal and wait for flags that are signalled somewhere."""
    made = Building(SMALL, 3, launch_s=1e-6)
    flags = [made.flag(f"flag {i}") for i in range(4)]
    kinds = st.sampled_from(["p2p", "multicast", "fabric"])
    for w in range(draw(st.integers(1, 6))):
        dev = w % 3
        operations = []
        for _ in range(draw(st.integers(0, 5))):
            what = draw(st.sampled_from(["compute", "send", "signal", "wait"]))
            if what == "compute":
                operations.append((COMPUTE, 0, draw(st.integers(1, 50)) * 1e-7, 0))
            elif what == "signal":
                operations.append((SIGNAL, draw(st.sampled_from(flags)), draw(st.sampled_from([0.0, 1.5e-6])), draw(st.integers(1, 2))))
            elif what == "wait":
                operations.append((WAIT, draw(st.sampled_from(flags)), 0.0, draw(st.integers(0, 2))))
            else:
                by, sms = draw(st.sampled_from([SMALL.tma, SMALL.registers])), draw(st.sampled_from([None, 1.0, 8.0]))
                kind = draw(kinds)
                if kind == "p2p":
                    route = made.p2p(dev, (dev + draw(st.integers(1, 2))) % 3, by, 4096, sms)
                else:
                    route = made.multicast(dev, by, 4096, sms) if kind == "multicast" else made.in_fabric(dev, by, 4096, sms)
                operations.append((SEND, route, float(draw(st.integers(1, 40)) * 30011), 0))
        if operations:
            gate = draw(st.sampled_from([-1, *flags]))
            queue = made.queue(made.tasks(operations, device=dev, role="r"), gate, 1 if gate >= 0 else 0)
            made.worker(str(w), dev, [queue], sm=draw(st.sampled_from([-1, dev])))
    return made


@settings(max_examples=100, deadline=None)
@given(schedules())
def test_an_independent_simulator_gives_the_same_seconds(made: Building) -> None:
    schedule = made.schedule()
    expected = plain_schedule.seconds(schedule)
    if expected < 0:
        with pytest.raises(DeadlockFound):
            simulate(schedule)
    else:
        assert simulate(schedule).seconds == pytest.approx(expected, rel=1e-9, abs=1e-15)


@pytest.mark.parametrize("op", ["gemm_rs", "gemm_ar", "ring_attention", "moe_dispatch_gemm", "all_reduce"])
def test_programs_and_streams_agree_with_it_too(op: str) -> None:
    work = operator(op, 2, 128)
    schedules = [trace(program_for(work, Tile(), inter=False, fabric=False), SMALL, in_sm=True).schedule(0)]
    schedules.append(trace(program_for(work, Tile(), inter=True, fabric=True), SMALL, in_sm=False).schedule(1))
    # The library holds 24 SMs, so its schedules need as many.
    schedules.append(with_copies(work, SMALL, Tile(), 1))
    for schedule in schedules:
        assert simulate(schedule).seconds == pytest.approx(plain_schedule.seconds(schedule), rel=1e-9)


def test_the_library_holds_its_sms_and_the_kernel_beside_it_has_the_rest() -> None:
    streams = Streams(H100, 2)
    seconds = np.full(132, 100e-6)
    streams.library("send", 40e6, [[], []])
    done = [streams.kernel(dev, seconds) for dev in (0, 1)]
    schedule = streams.schedule()
    timed = simulate(schedule)
    # The kernel starts first, with all SMs; the call gets its SMs when the tiles have ended.
    assert schedule.comm_sms == 24
    assert len(done) == 2
    assert timed.seconds > 100e-6 + 40e6 / H100.registers.peak


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("inter", [False, True])
def test_infinitely_fast_links_leave_computation_alone(op: str, inter: bool) -> None:
    work = operator(op)
    program = program_for(work, Tile(), inter=inter, fabric=inter)
    c = 8 if inter else 0
    fast = simulate_program(program, device=H100.with_links(1e12), comm_sms=c).seconds
    tiles = max(program.tasks(d) for d in range(4))
    each = max((tile_seconds(program, H100, d, t) for d in range(4) for t in range(program.tasks(d))), default=0.0)
    waves = -(-tiles // (H100.sms - c)) * each
    # Signals remain: at most a few on the way of each wave or ring stage.
    assert LAUNCH_S + 0.9 * waves <= fast <= LAUNCH_S + waves + 16 * (SIGNAL_S + FLAG_S)


@pytest.mark.parametrize("op", OPS)
def test_infinitely_fast_computation_leaves_the_volume_over_the_rate(op: str) -> None:
    work = operator(op, size=2048 if op != "moe_dispatch_gemm" else 1024)
    program = program_for(work, Tile(), inter=False, fabric=False)
    timed = simulate_program(program, device=H100.with_compute(1e12))
    least = timed.link_bytes.max() / H100.tma.rate(16384)
    assert least <= timed.seconds <= 1.25 * least + LAUNCH_S + 16 * SIGNAL_S


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("inter", [False, True])
def test_one_device_communicates_nothing(op: str, inter: bool) -> None:
    work = operator(op, 1)
    program = program_for(work, Tile(), inter=inter, fabric=inter)
    timed = simulate_program(program, device=H100, comm_sms=8 if inter else 0)
    assert timed.link_bytes.tolist() == [0, 0]
    for schedule in (with_library(work, H100, Tile(), 1, False), with_copies(work, H100, Tile(), 1)):
        assert simulate(schedule).link_bytes.tolist() == [0, 0]


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("n", [3, 8])
def test_links_carry_the_analytic_volumes(op: str, n: int) -> None:
    work = operator(op, n)
    kind = {"gemm_rs": "reduce-scatter", "ag_gemm": "all-gather", "gemm_ar": "all-reduce", "ulysses_attention": "all-to-all"}
    kind |= {name: name.replace("_", "-") for name in PLAIN}
    expected = work.crossing
    if op in kind:
        np.testing.assert_allclose(expected, sent_share(kind[op], n) * work.payload)
    elif op == "ring_attention":
        np.testing.assert_allclose(expected, (n - 1) * sent_share("send", n) * work.payload)
    down = simulate_program(program_for(work, Tile(), inter=False, fabric=False)).link_bytes[n:]
    np.testing.assert_allclose(down, expected)
    np.testing.assert_allclose(simulate(with_copies(work, H100, Tile(), 1)).link_bytes[n:], expected)
    if op not in ("gemm_ar", "all_reduce"):
        np.testing.assert_allclose(simulate(with_library(work, H100, Tile(), 1, False)).link_bytes[n:], expected)


@pytest.mark.parametrize("n", [2, 8])
def test_the_fabric_moves_each_byte_once_and_the_owners_share_again(n: int) -> None:
    work = operator("gemm_ar", n)
    bytes_ = simulate_program(program_for(work, Tile(), inter=True, fabric=True), comm_sms=16).link_bytes
    # Tiles may not divide evenly over the owners, but all links together carry exactly (n + 1) · payload each way.
    assert bytes_[:n].sum() == pytest.approx((n + 1) * work.payload)
    assert bytes_[n:].sum() == pytest.approx((n + 1) * work.payload)
    one_shot = simulate_program(program_for(work, Tile(), inter=False, fabric=False, style="one-shot")).link_bytes
    np.testing.assert_allclose(one_shot, (n - 1) * work.payload)


def test_a_message_of_2_kb_is_20_times_slower_through_the_copy_engine() -> None:
    streams = Streams(H100, 2)
    streams.copy(0, 1, 2048.0, [])
    engine = simulate(streams.schedule()).seconds - LAUNCH_S - SIGNAL_S
    made = Building(H100, 2)
    made.worker("s", 0, [made.queue(made.tasks([(SEND, made.p2p(0, 1, H100.tma, 2048), 2048.0, 0)], device=0, role="s"))])
    assert engine >= 20 * simulate(made.schedule()).seconds
    assert engine == pytest.approx(COPY_LAUNCH_S + 2048 / 369e9)


def test_a_copy_engine_reaches_99_percent_at_256_mb_and_29_percent_at_1_mb() -> None:
    assert H100.copy_engine.rate(256e6) / H100.copy_engine.peak == pytest.approx(0.99, abs=0.005)
    assert H100.copy_engine.rate(1e6) / H100.copy_engine.peak == pytest.approx(0.28, abs=0.01)


def test_a_copy_that_waits_does_not_hold_an_engine() -> None:
    streams = Streams(replace(H100, engines=1), 2)
    late = streams.kernel(0, np.full(132, 1e-3))
    streams.copy(0, 1, 1e6, [late])
    early = streams.copy(0, 1, 1e6, [])
    timed = simulate(streams.schedule())
    ends = [timed.end[i] for i in np.flatnonzero(timed.schedule.operations[0] == SEND)]
    assert early.flag >= 0
    assert max(ends) > 1e-3 > min(ends)


@dataclass(frozen=True)
class Forgetful(GemmAr):
    """A storer that forgets to signal one tile."""

    def storer(self, dev, task):  # type: ignore[no-untyped-def]
        for action in super().storer(dev, task):
            if task != 3 or dev != 1 or action.__class__.__name__ != "Signal":
                yield action


def test_a_missing_signal_is_a_deadlock_that_names_the_task() -> None:
    program = Forgetful(operator("gemm_ar"), inter=True)
    with pytest.raises(
        DeadlockFound, match=r"communicator of task 0 on device 3 waits for ready on device 3\[3\], which has 3 of 4 signals"
    ):
        simulate_program(program, comm_sms=4)


@dataclass(frozen=True)
class Strange(GemmRs):
    """A storer with a primitive of its own."""

    def storer(self, dev, task):  # type: ignore[no-untyped-def]
        yield "send", dev, task


@dataclass(frozen=True)
class Beyond(GemmRs):
    """A storer with a flag that does not exist."""

    def storer(self, dev, task):  # type: ignore[no-untyped-def]
        yield store_async("c", dev, "tile", ((0, 1), (0, 1)))
        yield signal("done", 7, dev)


def test_unknown_primitives_and_flags_are_named() -> None:
    with pytest.raises(InputError, match=r"Strange yields \('send', 0, 0\), which is no primitive; expected store_async"):
        simulate_program(Strange(operator("gemm_rs")))
    with pytest.raises(InputError, match=r"Beyond: flag done\[7\] does not exist"):
        simulate_program(Beyond(operator("gemm_rs")))


def test_wrong_placements_are_refused() -> None:
    fabric = program_for(operator("gemm_ar"), Tile(), inter=True, fabric=True)
    with pytest.raises(InputError, match="need SMs of their own"):
        simulate_program(fabric, comm_sms=0)
    with pytest.raises(InputError, match="h800 has no reduction in the fabric"):
        simulate_program(fabric, comm_sms=8, device="h800")
    with pytest.raises(InputError, match="132 communicator SMs; expected 0 to 131"):
        simulate_program(fabric, comm_sms=132)
    with pytest.raises(InputError, match=r"256 × 256 .* takes 327680 bytes of shared memory; h100-80 has 232448 per SM \(227 KB\)"):
        simulate_program(GemmRs(operator("gemm_rs"), Tile(256, 256)))


@pytest.mark.parametrize("op", ["gemm_rs", "gemm_ar", "moe_dispatch_gemm"])
def test_the_parts_of_the_time_add_up(op: str) -> None:
    timed = simulate_program(program_for(operator(op, 8, 1024), Tile(), inter=False, fabric=False))
    parts = decomposition(timed)
    total = parts["launch_s"] + max(parts["compute_s"], parts["comm_s"]) + parts["non_overlapped_s"] + parts["sync_s"]
    assert total == pytest.approx(timed.seconds)
    assert min(parts.values()) >= -1e-12


def test_metrics_timeline_and_slow_devices() -> None:
    work = operator("gemm_rs", 4, 1024)
    timed = simulate_program(program_for(work, Tile(), inter=False, fabric=False))
    values = metrics(work, timed)
    assert 0 < values["link_utilisation"] < H100.tma.peak / H100.link
    assert values["tflops_per_device"] == pytest.approx(work.flops / timed.seconds / 1e12)
    events = timeline(timed)["traceEvents"]
    assert {e["ph"] for e in events} == {"M", "X"}
    assert max(e["ts"] + e["dur"] for e in events if e["ph"] == "X") <= 1e6 * timed.seconds + 1e-3
    slow = simulate(disturbed(timed.schedule, np.array([1.0, 2.0, 1.0, 1.0])))
    assert slow.seconds > timed.seconds
    assert simulate(disturbed(timed.schedule, np.ones(4))).seconds == timed.seconds
