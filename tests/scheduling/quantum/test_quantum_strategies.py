"""The strategies: knapsack, demand, link-aware sets, ageing, the integer program, each against brute force, and what wrong rates cost."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.arena import NotForThisCase
from armillary.errors import InputError
from armillary.scheduling.quantum import (
    Asap,
    Circuit,
    Epr,
    EprNodes,
    Fifo,
    Job,
    ListScheduling,
    Milp,
    Network,
    Planner,
    ResourcePriority,
    State,
    ablation,
    built_in,
    fewest_qpus,
    ghz,
    modelled_fidelity,
    plan,
    play,
    qft,
)  # fmt: skip
from armillary.scheduling.quantum.planning.placing import MOST_SETS, best_sets, on_best_links, on_most_free
from armillary.scheduling.quantum.planning.strategy import Start, Strategy, filled
from armillary.scheduling.quantum.resource_priority import fullest
from armillary.scheduling.quantum.workload import linked, repeated


def state(jobs: list[Job], network: Network | None = None, free: list[int] | None = None, **more: object) -> State:
    on = Network.of() if network is None else network
    return State(0.0, on, Planner(on), jobs, range(len(jobs)), on.data.tolist() if free is None else free, **more)  # type: ignore[arg-type]


@settings(deadline=None, max_examples=100)
@given(st.lists(st.integers(1, 30), min_size=1, max_size=9), st.integers(0, 60))
def test_the_fullest_subset_is_that_of_brute_force(sizes: list[int], room: int) -> None:
    subsets = [c for k in range(len(sizes) + 1) for c in itertools.combinations(range(len(sizes)), k) if sum(sizes[i] for i in c) <= room]
    older = [tuple(i in c for i in range(len(sizes))) for c in subsets]
    best = max(zip([sum(sizes[i] for i in c) for c in subsets], [len(c) for c in subsets], older, subsets))
    assert fullest(sizes, room) == list(best[3])


def test_fifo_takes_a_prefix_and_list_what_fits() -> None:
    jobs = [Job(str(i), ghz(n)) for i, n in enumerate((20, 24, 6, 24, 4))]
    assert [j for j, _ in Fifo().select(state(jobs))] == [0, 1]
    assert [j for j, _ in ListScheduling().select(state(jobs))] == [0, 1, 4]
    assert [j for j, _ in ResourcePriority().select(state(jobs))] == [0, 1, 4]
    assert [j for j, _ in ResourcePriority(window=2).select(state(jobs))] == [0, 1]


def test_priorities_come_before_everything() -> None:
    jobs = [Job("small", ghz(16)), Job("large", qft(16)), Job("urgent", ghz(40), priority=1)]
    for strategy in (Fifo(), ListScheduling(), Epr(), EprNodes(), Asap()):
        found = play(jobs, Network.of(), strategy, clock="planned")
        assert found.start_s[2] == 0, strategy


def test_the_hungriest_jobs_go_first() -> None:
    jobs = [Job("ghz", ghz(24)), Job("qft", qft(24)), Job("medium", qft(16))]
    planner = Planner(Network.of())
    assert planner.demand_s(jobs[1]) == pytest.approx(1000 * 192 / 182)  # 192 gates between three blocks of eight
    assert [j for j, _ in Epr().select(state(jobs))] == [1, 2]
    assert [j for j, _ in Epr().select(state(jobs[::-1]))] == [1, 0]


def brute_force(planner: Planner, circuit: Circuit, free: list[int], sizes: tuple[int, ...]) -> float:
    """The least waiting over all ways to put blocks of these sizes on different QPUs."""
    _, between = planner.cut(circuit, sizes)
    return min(
        sum(between[x, y] * planner.pair_s[q[x], q[y]] for x in range(len(sizes)) for y in range(x + 1, len(sizes)))
        for q in itertools.permutations(range(len(free)), len(sizes))
        if all(free[q[x]] >= sizes[x] for x in range(len(sizes)))
    )


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10**6), st.integers(9, 24), st.sampled_from(("qft", "vqe", "graph")))
def test_the_chosen_set_is_the_best_of_its_sizes(seed: int, qubits: int, family: str) -> None:
    from armillary.scheduling.quantum import drawn

    rng = np.random.default_rng(seed)
    network = linked(Network.of(), "complete", rng)
    planner, circuit = Planner(network), drawn(family, qubits, rng)
    free = [8] * 6
    found = on_best_links(planner, circuit, free)
    assert found is not None
    least = -(-qubits // 8)
    assert len(found.qpus) == least  # with equal room a larger set leaves a QPU empty
    cost = _waiting(planner, circuit, found.site)
    assert cost == pytest.approx(brute_force(planner, circuit, free, found.sizes))


def _waiting(planner: Planner, circuit: Circuit, site: np.ndarray) -> float:
    ends = site[circuit.pairs]
    return float(sum(planner.pair_s[a, b] for a, b in ends.tolist()))


def test_one_more_qpu_is_taken_where_its_links_are_better() -> None:
    rate = np.full((5, 5), 1.0)
    rate[2:, 2:] = 250.0
    np.fill_diagonal(rate, 0)
    network = repeated(Network.of(), 5).with_rates(rate)
    found = on_best_links(Planner(network), ghz(14), [8, 8, 5, 5, 5])
    assert found is not None
    assert sorted(found.qpus) == [2, 3, 4]
    assert on_most_free(Planner(network), ghz(14), [8, 8, 5, 5, 5]).qpus == (0, 1)  # type: ignore[union-attr]


def test_large_networks_grow_sets_from_their_best_links() -> None:
    rng = np.random.default_rng(0)
    network = linked(repeated(Network.of(), 40), "complete", rng)
    fast = network.rate.copy()
    for a, b in itertools.combinations((7, 19, 33), 2):
        fast[a, b] = fast[b, a] = 1000.0
    planner = Planner(network.with_rates(fast))
    assert MOST_SETS < 40 * 39 * 38 // 6
    found = on_best_links(planner, qft(24), [8] * 40)
    assert found is not None
    assert sorted(found.qpus) == [7, 19, 33]


def test_sets_come_in_order_and_are_different() -> None:
    network = linked(Network.of(), "complete", np.random.default_rng(4))
    planner = Planner(network)
    found = best_sets(planner, qft(16), [8] * 6, 8)
    costs = [_waiting(planner, qft(16), one.site) for one in found]
    assert len({one.qpus for one in found}) == 8
    assert costs == sorted(costs)
    assert best_sets(planner, qft(24), [8, 8, 0, 0, 0, 0], 8) == []


def test_equal_links_make_epr_nodes_and_epr_equal() -> None:
    work = built_in(np.random.default_rng(2), jobs=15)
    assert work.play(EprNodes()).makespan_s == work.play(Epr()).makespan_s


def test_ageing_lets_a_small_job_overtake_in_the_end() -> None:
    small, large = Job("small", ghz(40)), Job("large", qft(24), arrival_s=1e9 - 1e-3)
    planner = Planner(Network.of())
    old = State(1e9, planner.network, planner, [small, large], [0, 1], planner.network.data.tolist(), latency_s=1.0)
    assert Asap().select(old)[0][0] == 0
    assert Asap(age_weight=0.0).select(old)[0][0] == 1


@dataclass(frozen=True)
class InOrder(Strategy):
    """Starts jobs as soon as they fit, in one fixed order."""

    order: tuple[int, ...] = ()
    slots = False

    def select(self, state: State) -> list[Start]:
        """The jobs that start now."""
        return filled(state, [j for j in self.order if j in state.queue], on_best_links)


@pytest.mark.parametrize("seed", range(2))
def test_no_strategy_beats_the_best_order_by_the_planners_clock(seed: int) -> None:
    work = built_in(np.random.default_rng(seed), jobs=5, heterogeneous=True)
    orders = [play(work.jobs, work.network, InOrder(order), clock="planned").makespan_s for order in itertools.permutations(range(5))]
    eager = work.plan(Asap()).makespan_s
    assert min(orders) <= eager <= max(orders)
    assert eager <= 1.5 * min(orders)
    assert work.plan(Asap()).lower_bound_s <= min(orders) * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(2))
def test_the_integer_program_finds_the_best_slots(seed: int) -> None:
    work = built_in(np.random.default_rng(seed), jobs=4, heterogeneous=True)
    planner = Planner(work.network)
    at = State(0.0, work.network, planner, work.jobs, range(4), work.network.data.tolist())
    slots = Milp(placements=3).slots_of(at)
    promised = sum(max(planner.expected_s(work.jobs[j], placed) for j, placed in slot) for slot in slots)
    offered = [best_sets(planner, job.circuit, work.network.data.tolist(), 3) for job in work.jobs]
    best = np.inf
    for chosen in itertools.product(*offered):
        taken = [planner.expected_s(job, placed) for job, placed in zip(work.jobs, chosen)]
        room = np.array([np.bincount(placed.site, minlength=6) for placed in chosen])
        for slot in itertools.product(range(4), repeat=4):
            groups = [[j for j in range(4) if slot[j] == s] for s in range(4)]
            if slot[0] == 0 and all((room[group].sum(0) <= work.network.data).all() for group in groups if group):
                best = min(best, sum(max(taken[j] for j in group) for group in groups if group))
    assert promised == pytest.approx(best, rel=1e-6)
    found = work.plan(Milp())
    assert all(found.makespan_s <= work.plan(other).makespan_s * (1 + 1e-6) for other in (EprNodes(), Epr(), ListScheduling(), Fifo()))


def test_the_integer_program_declines_long_queues() -> None:
    with pytest.raises(NotForThisCase, match="at most 8"):
        plan([Job(str(i), ghz(6)) for i in range(9)], technique="milp")


@pytest.mark.slow
def test_wrong_rates_cost_epr_nodes_at_most_a_tenth() -> None:
    ratios = []
    # Single batches range from 0.4 to 3 times the time.
    for seed in range(40):
        work = built_in(np.random.default_rng(1000 + seed), jobs=20, heterogeneous=True, misfit=True, seed=seed)
        assert sorted(work.known.rate.ravel()) == sorted(work.network.rate.ravel())
        ratios.append(work.play(EprNodes()).makespan_s / work.play(Epr()).makespan_s)
    assert np.exp(np.log(ratios).mean()) <= 1.1


def test_each_part_brings_something_on_unequal_links() -> None:
    total: dict[str, float] = {}
    for seed in range(2):
        for name, found in ablation(built_in(np.random.default_rng(seed), jobs=16, heterogeneous=True, seed=seed)).items():
            total[name] = total.get(name, 0.0) + np.log(found.makespan_s)
    assert total["asap"] < total["epr-nodes (asap with slots)"] < total["epr-nodes without links (epr)"]
    work = built_in(np.random.default_rng(0), jobs=12, heterogeneous=True)
    parts = ablation(work)
    assert parts["epr-nodes without links (epr)"].makespan_s == work.play(Epr()).makespan_s
    assert parts["neither (list)"].makespan_s == work.play(ListScheduling()).makespan_s


def test_fidelity_is_a_product() -> None:
    network = Network.of()
    planner = Planner(network)
    circuit = ghz(16)
    placed = on_best_links(planner, circuit, network.data.tolist())
    assert placed is not None
    assert placed.crossing(circuit) == 1
    assert modelled_fidelity(circuit, placed, network) == pytest.approx(0.9999 * 0.998 ** (15 + 1) * 0.997 ** (16 + 2) * 0.94)
    ring = Network.of(topology="ring")
    assert ring.pair_fidelity[0, 2] == pytest.approx(0.94**2)


def test_the_fewest_qpus_that_meet_a_fidelity() -> None:
    pure = np.full((4, 4), 0.6)
    pure[2, 3] = pure[3, 2] = 0.99
    network = replace(repeated(Network.of(), 4), fidelity=pure)
    network = linked(network, "complete")
    rate = network.rate.copy()
    rate[2, 3] = rate[3, 2] = 100.0
    network = network.with_rates(rate)
    fast, good = fewest_qpus(ghz(16), network, 0.3), fewest_qpus(ghz(16), network, 0.85)
    assert set(good.placement.qpus) == {2, 3}
    assert set(fast.placement.qpus) != {2, 3}
    assert fast.shot_s < good.shot_s
    assert good.meets
    assert good.fidelity >= 0.85
    assert not fewest_qpus(ghz(16), network, 0.999).meets
    assert len(fewest_qpus(ghz(8), network, 0.9).placement.qpus) == 1
    with pytest.raises(InputError, match="from 0 to 1"):
        fewest_qpus(ghz(8), network, 2)


def test_plans_take_names_and_circuits() -> None:
    found = plan([qft(16), ghz(12), ghz(20)], "qpu-6", technique="asap", age_weight=0)
    assert found.start_s.tolist() == [0, 0, 0]
    assert found.makespan_s == pytest.approx(found.lower_bound_s)
    with pytest.raises(InputError, match="unknown technique"):
        plan([ghz(4)], technique="fastest")


@pytest.mark.slow
def test_five_thousand_jobs_on_fifty_qpus() -> None:
    work = built_in(np.random.default_rng(0), jobs=5000, heterogeneous=True, qpus=50, clock="expected")
    found = work.play(Asap())
    assert found.utilisation > 0.5
