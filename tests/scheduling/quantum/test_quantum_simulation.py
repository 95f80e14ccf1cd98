"""The judge: waiting times, slots, shared communication qubits, coherence, grouping, and what a plan promises."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.errors import InputError
from armillary.scheduling.quantum import (
    Asap,
    Builder,
    Circuit,
    Epr,
    EprNodes,
    Fifo,
    Job,
    ListScheduling,
    Network,
    Placement,
    Planner,
    ResourcePriority,
    Schedule,
    built_in,
    ghz,
    play,
    qft,
)  # fmt: skip
from armillary.scheduling.quantum.network.network import joined, slowest_of
from armillary.scheduling.quantum.planning.strategy import Start, State, Strategy
from armillary.scheduling.quantum.simulation.batch import tables
from armillary.scheduling.quantum.simulation.events import Player

SLOTTED = (Fifo(), ListScheduling(), ResourcePriority(), Epr(), EprNodes())
ALL = (*SLOTTED, Asap())


def network(
    qpus: int = 2, *, data: int = 4, communication: int = 2, rate: float = 182.0, topology: str = "complete", **seconds: float
) -> Network:
    """Equal QPUs whose gates take no time unless said."""
    linked = np.zeros((qpus, qpus))
    for a, b in joined(qpus, topology):
        linked[a, b] = linked[b, a] = rate
    times = {"gate_s": 0.0, "two_qubit_s": 0.0, "measure_s": 0.0, "swap_s": 0.0, "coherence_s": 1.0} | seconds
    each = {name: np.full(qpus, value) for name, value in times.items()}
    return Network(
        tuple(f"qpu-{i}" for i in range(qpus)), np.full(qpus, data), np.full(qpus, communication), **each, rate=linked,
        fidelity=np.where(linked > 0, 0.94, 0.0), latency_s=np.zeros((qpus, qpus)),
    )  # fmt: skip


def cnots(pairs: list[tuple[int, int]], qubits: int) -> Circuit:
    made = Builder("cnots", qubits)
    for a, b in pairs:
        made.add("cx", a, b)
    return made.done()


def alone(circuit: Circuit, on: Network, site: list[int], shots: int = 1, **how: object) -> tuple[float, Player]:
    """Seconds of a placed circuit, played alone."""
    player = Player(tables([Job("one", circuit)], bool(how.get("grouping"))), on, np.array([shots]), **how)  # type: ignore[arg-type]
    player.start(0, np.array(site), 0.0)
    player.grant(0.0)
    at, job = player.advance()
    assert job == 0
    assert player.state.free.tolist() == on.communication.tolist()
    return at, player


def test_the_mean_wait_for_a_pair_is_one_over_the_rate() -> None:
    seconds, player = alone(cnots([(0, 1)], 2), network(), [0, 1], shots=20_000)
    assert seconds / 20_000 == pytest.approx(5.49e-3, rel=0.02)
    assert player.state.waited[0] / player.state.remote[0] == pytest.approx(1 / 182, rel=0.02)


def test_waits_are_geometric() -> None:
    on = network(rate=50_000.0)
    waits = [alone(cnots([(0, 1)], 2), on, [0, 1], seed=seed)[0] for seed in range(1500)]
    attempts = np.rint(np.array(waits) / 10e-6).astype(int)
    assert attempts.min() == 1
    for k in (1, 2, 3):
        assert (attempts == k).mean() == pytest.approx(0.5**k, abs=0.05)


@pytest.mark.parametrize("strategy", ALL, ids=lambda s: type(s).__name__)
def test_jobs_that_need_all_qpus_run_one_after_the_other(strategy: Strategy) -> None:
    on = network(2, data=4)
    jobs = [Job("a", qft(8), shots=20), Job("b", ghz(8), shots=20)]
    both = play(jobs, on, strategy, clock="expected")
    single = [play([job], on, strategy, clock="expected").makespan_s for job in jobs]
    assert both.makespan_s == pytest.approx(sum(single), rel=1e-12)


def test_a_slot_ends_with_its_slowest_job() -> None:
    on = network(2, data=1, gate_s=1.0)
    long, short = Builder("long", 1), Builder("short", 1)
    for _ in range(10):
        long.add("x", 0)
    short.add("x", 0)
    first, second = short.done(), long.done()
    jobs = [Job("a", first, shots=1), Job("b", second, shots=1), Job("c", first, shots=1)]
    assert play(jobs, on, ListScheduling(), shots_simulated=1).makespan_s == 11
    eager = play(jobs, on, Asap(), shots_simulated=1)
    assert eager.makespan_s == 10
    assert eager.start_s.tolist().count(1.0) == 1


def test_ten_times_the_rate_takes_a_tenth_of_the_time() -> None:
    work = built_in(np.random.default_rng(3), jobs=6, heterogeneous=True)
    still = replace(work.network, gate_s=np.zeros(6), two_qubit_s=np.zeros(6), measure_s=np.zeros(6), swap_s=np.zeros(6),
                    latency_s=np.zeros((6, 6)), coherence_s=np.full(6, np.inf))  # fmt: skip
    for strategy in (ListScheduling(), EprNodes(), Asap()):
        slow = play(work.jobs, still, strategy, clock="expected").makespan_s
        fast = play(work.jobs, still.with_rates(10 * still.rate), strategy, clock="expected").makespan_s
        assert slow / fast == pytest.approx(10, rel=1e-9)
        drawn = [play(work.jobs, on, strategy).makespan_s for on in (still, still.with_rates(10 * still.rate))]
        assert drawn[0] / drawn[1] == pytest.approx(10, rel=0.05)


def over_its_qubits(found: Schedule) -> bool:
    """Whether a QPU holds more qubits than it has at any moment, counted anew from the schedule."""
    for now in found.start_s:
        held = np.zeros(len(found.network), np.int64)
        for j, placed in enumerate(found.placements):
            if found.start_s[j] <= now < found.finish_s[j]:
                np.add.at(held, placed.site, 1)
        if (held > found.network.data).any():
            return True
    return False


@settings(deadline=None, max_examples=8)
@given(st.integers(0, 10**6), st.integers(1, 12), st.sampled_from(("complete", "ring", "star")), st.sampled_from(("at once", "slots")))
def test_no_qpu_is_ever_over_its_qubits_and_every_job_runs_once(seed: int, jobs: int, topology: str, arrivals: str) -> None:
    work = built_in(np.random.default_rng(seed), jobs=jobs, topology=topology, heterogeneous=True, arrivals=arrivals, seed=seed)
    for strategy in ALL:
        found = work.play(strategy)
        assert not over_its_qubits(found)
        assert (found.finish_s > found.start_s).all()
        assert all(start >= job.arrival_s for start, job in zip(found.start_s, found.jobs))
        for job, placed in zip(found.jobs, found.placements):
            assert np.bincount(placed.site, minlength=6)[list(placed.qpus)].tolist() == list(placed.sizes)
            assert sum(placed.sizes) == job.qubits
        assert 0 < found.utilisation <= 1
        assert found.makespan_s >= max(found.finish_s - found.start_s)


def test_two_communication_qubits_halve_the_time_of_parallel_gates() -> None:
    circuit = cnots([(0, 4), (1, 5), (2, 6), (3, 7)], 8)
    site = [0, 0, 0, 0, 1, 1, 1, 1]
    one, _ = alone(circuit, network(communication=1), site, expected=True)
    two, _ = alone(circuit, network(communication=2), site, expected=True)
    four, _ = alone(circuit, network(communication=4), site, expected=True)
    assert [one, two, four] == pytest.approx([4 / 182, 2 / 182, 1 / 182])


def test_pairs_are_made_ahead_of_a_chain_of_gates() -> None:
    # Both gates act on qubit 0; with one communication qubit each waits for its own pair, with two the second pair is there already.
    circuit = cnots([(0, 1), (0, 2)], 3)
    assert alone(circuit, network(communication=1), [0, 1, 1], expected=True)[0] == pytest.approx(2 / 182)
    assert alone(circuit, network(communication=2), [0, 1, 1], expected=True)[0] == pytest.approx(1 / 182)


def test_a_pair_that_waits_too_long_is_made_anew() -> None:
    made = Builder("late", 2)
    made.add("x", 0)
    made.add("cx", 0, 1)
    circuit = made.done()
    seconds, player = alone(circuit, network(gate_s=1.0, coherence_s=2.0), [0, 1], expected=True)
    assert seconds == pytest.approx(1.0)
    assert player.state.pairs[0] == 1
    seconds, player = alone(circuit, network(gate_s=1.0, coherence_s=0.4), [0, 1], expected=True)
    # Made at 5.5 ms, lost at 405.5, made at 411, lost at 811, made at 816.5: ready at 1 s.
    assert seconds == pytest.approx(1.0)
    assert player.state.pairs[0] == 3
    seconds, player = alone(circuit, network(gate_s=1.0, coherence_s=0.493), [0, 1], expected=True)
    assert seconds == pytest.approx(2 * 0.493 + 3 / 182)


def test_a_route_needs_a_pair_per_hop_and_a_swap() -> None:
    on = network(3, topology="ring", swap_s=0.5).with_rates(np.array([[0, 182.0, 0], [182, 0, 91], [0, 91, 0]]))
    seconds, player = alone(cnots([(0, 1)], 2), on, [0, 2], shots=4000)
    assert player.state.pairs[0] == 8000
    mean = 1 / 182 + 1 / 91 - 1 / 273
    assert on.pair_s[0, 2] == pytest.approx(mean) == pytest.approx(slowest_of([182, 91]))
    assert seconds / 4000 == pytest.approx(mean + 0.5, rel=0.02)
    with pytest.raises(InputError, match="no route from qpu-0 to qpu-2"):
        replace(on, communication=np.array([2, 1, 2])).routes  # noqa: B018


def test_hops_that_never_meet_are_refused() -> None:
    on = network(3, topology="ring", coherence_s=1e-6).with_rates(np.array([[0, 2.0, 0], [2, 0, 2], [0, 2, 0]]))
    with pytest.raises(InputError, match="decohere"):
        alone(cnots([(0, 1)], 2), on, [0, 2], shots=5)


def test_jobs_share_communication_qubits() -> None:
    on = network(2, data=4, communication=1)
    pair = cnots([(0, 1)], 2)
    player = Player(tables([Job("a", pair), Job("b", pair)]), on, np.array([1, 1]), expected=True)
    for j in range(2):
        player.start(j, np.array([0, 1]), 0.0)
    player.grant(0.0)
    assert player.advance() == (pytest.approx(1 / 182), 0)
    assert player.advance() == (pytest.approx(2 / 182), 1)


def test_grouped_gates_share_a_pair() -> None:
    star = cnots([(0, 1), (0, 2), (0, 3)], 4)
    times = {"two_qubit_s": 0.1, "measure_s": 0.01, "communication": 1}
    apart, single = alone(star, network(**times), [0, 1, 1, 1], expected=True)  # type: ignore[arg-type]
    together, grouped = alone(star, network(**times), [0, 1, 1, 1], expected=True, grouping=True)  # type: ignore[arg-type]
    assert (single.state.pairs[0], grouped.state.pairs[0]) == (3, 1)
    assert apart == pytest.approx(3 * (1 / 182 + 0.22))
    assert together == pytest.approx(1 / 182 + 4 * 0.1 + 2 * 0.01)
    broken = Builder("broken", 3)
    broken.add("cx", 0, 1)
    broken.add("h", 0)
    broken.add("cx", 0, 2)
    assert alone(broken.done(), network(), [0, 1, 1], expected=True, grouping=True)[1].state.pairs[0] == 2
    assert alone(cnots([(0, 1), (2, 0)], 3), network(), [0, 1, 1], expected=True, grouping=True)[1].state.pairs[0] == 2
    # Of gates that act on both qubits alike, either can be the control.
    symmetric = Builder("symmetric", 3)
    symmetric.add("cp", 0, 1, angles=[1.0])
    symmetric.add("cp", 2, 0, angles=[1.0])
    assert alone(symmetric.done(), network(), [0, 1, 1], expected=True, grouping=True)[1].state.pairs[0] == 1


def test_grouping_never_locks_up() -> None:
    for seed in range(3):
        work = replace(built_in(np.random.default_rng(seed), jobs=6, heterogeneous=True, topology="ring"), grouping=True)
        grouped, plain = work.play(Asap()), replace(work, grouping=False).play(Asap())
        assert grouped.pairs is not None
        assert plain.pairs is not None
        assert grouped.pairs.sum() < plain.pairs.sum()


def test_local_circuits_take_their_critical_path() -> None:
    made = Builder("local", 3)
    made.add("h", 0)
    made.add("cx", 0, 1)
    made.add("barrier", 0, 1, 2)
    made.add("x", 2)
    made.add("measure", 2)
    on = network(gate_s=1.0, two_qubit_s=10.0, measure_s=100.0)
    assert alone(made.done(), on, [0, 0, 0], shots=3)[0] == 3 * (1 + 10 + 1 + 100)


def test_the_same_luck_for_every_strategy() -> None:
    work = built_in(np.random.default_rng(0), jobs=1, heterogeneous=True, seed=5)
    assert work.play(EprNodes()).makespan_s == work.play(Asap()).makespan_s
    assert replace(work, seed=6).play(Asap()).makespan_s != work.play(Asap()).makespan_s


@pytest.mark.parametrize("family", ["ghz", "graph", "qaoa", "qft", "vqe"])
def test_a_job_alone_takes_about_what_its_plan_promises(family: str) -> None:
    from armillary.scheduling.quantum import drawn

    rng = np.random.default_rng(1)
    for qubits in (10, 18, 24):
        job = Job("alone", drawn(family, qubits, rng))
        on = Network.of()
        promised, delivered = (play([job], on, EprNodes(), clock=clock).makespan_s for clock in ("planned", "sampled"))
        assert 0.5 < delivered / promised < 1.8


def test_promises_are_broken_where_jobs_share_communication_qubits_and_the_error_says_so() -> None:
    work = built_in(np.random.default_rng(0), jobs=20, heterogeneous=True)
    promised, delivered = work.plan(Asap()), work.play(Asap())
    assert promised.makespan_s < delivered.makespan_s
    wrong = replace(work, known=work.network.shuffled(np.random.default_rng(1)))
    assert wrong.plan(EprNodes()).makespan_s != work.plan(EprNodes()).makespan_s


def test_shots_that_differ_are_played_in_proportion() -> None:
    on = network(2, data=4)
    jobs = [Job("a", ghz(8), shots=100), Job("b", ghz(8), shots=1000), Job("c", ghz(8), shots=500)]
    found = play(jobs, on, Fifo(), clock="expected")
    ran = found.finish_s - found.start_s
    assert ran / ran[0] == pytest.approx([1, 10, 5], rel=1e-9)
    with pytest.raises(InputError, match="operations to simulate"):
        play([Job("a", ghz(8), shots=1), Job("b", ghz(8), shots=1), Job("c", ghz(8), shots=10**9)], on, Fifo())


def test_a_job_larger_than_everything_is_refused() -> None:
    with pytest.raises(InputError, match="needs 9 qubits; expected at most the 8"):
        play([Job("large", ghz(9))], network(2, data=4), Fifo())


@dataclass(frozen=True)
class Greedy(Strategy):
    """Puts everything on the first QPU."""

    def select(self, state: State) -> list[Start]:
        """Too much."""
        return [(j, Placement((0,), (state.jobs[j].qubits,), np.zeros(state.jobs[j].qubits, np.int64))) for j in state.queue]


def test_a_strategy_that_takes_too_much_is_caught() -> None:
    with pytest.raises(RuntimeError, match="more qubits on QPU 0"):
        play([Job("a", ghz(3)), Job("b", ghz(3))], network(), Greedy())


def test_estimates_bound_the_time_of_a_chain() -> None:
    on = network(2, data=4, communication=1)
    chain = cnots([(0, 1)] * 5, 2)
    planner = Planner(on)
    placed = Placement((0, 1), (1, 1), np.array([0, 1]))
    assert planner.shot_s(chain, placed) == pytest.approx(5 / 182)
    assert planner.local_s(chain, placed) == 0
    assert alone(chain, on, [0, 1], expected=True)[0] == pytest.approx(5 / 182)


def test_the_gantt_chart_has_a_lane_per_qubit() -> None:
    work = built_in(np.random.default_rng(0), jobs=5)
    events = [e for e in work.play(Asap()).gantt()["traceEvents"] if e["ph"] == "X"]
    assert len(events) == sum(job.qubits for job in work.jobs)
    by_lane: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for event in events:
        by_lane.setdefault((event["pid"], event["tid"]), []).append((event["ts"], event["ts"] + event["dur"]))
    for bars in by_lane.values():
        bars.sort()
        assert all(end <= start + 1e-3 for (_, end), (start, _) in itertools.pairwise(bars))
