"""The simulation: queueing theory, Ciw and SimPy as oracles, backpressure, conservation, timeouts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given as drawn_by
from hypothesis import settings
from hypothesis import strategies as st
from small_applications import given, pair, single

from armillary.errors import InputError
from armillary.scheduling.microservices import (
    Application,
    Decision,
    RequestType,
    Service,
    Simulation,
    StepRule,
    built_in,
    drawn,
    play,
    rates_of,
    tree,
)
from armillary.scheduling.microservices.control.allocator import Fixed


def latencies(work: Any) -> Any:
    sim = Simulation(work)
    sim.advance(float(work.seconds))
    r = sim._requests
    return (r.end - r.arrival)[np.isfinite(r.end)]


def test_one_request_by_hand():
    app = pair()
    found = latencies(given(app, [0.0], [[0.5, 0.25]], 2))
    assert found == pytest.approx([0.75]), "two cores, but a call uses one at a time"


def test_two_requests_share_a_core_by_hand():
    found = latencies(given(single(8, 1.0), [0.0, 0.1], [[0.2], [0.1]], 2))
    # 0.1 s alone, then both at half speed: the second needs 0.2 s, the first then has nothing left.
    assert sorted(found) == pytest.approx([0.2, 0.3])


def test_parallel_calls_overlap_and_groups_follow_each_other():
    services = tuple(Service(name, 4, 1.0, quota=4.0) for name in "abcd")
    shape = tree("a", [tree("b"), tree("c")], tree("d"))
    app = Application("groups", services, (RequestType("ask", 1.0, shape),), 1000.0)
    # a 0.1, then b 0.2 beside c 0.3, then d 0.05
    assert latencies(given(app, [0.0], [[0.1, 0.2, 0.3, 0.05]], 2)) == pytest.approx([0.45])


def erlang_c(c: int, a: float) -> float:
    top = a**c / math.factorial(c) * c / (c - a)
    return top / (sum(a**k / math.factorial(k) for k in range(c)) + top)


def test_one_thread_per_core_is_m_m_c():
    rng = np.random.default_rng(1)
    n, c, a = 400_000, 4, 3.2
    arrival, demand = np.cumsum(rng.exponential(1 / (100 * a), n)), rng.exponential(0.01, n)
    work = given(single(c, float(c)), arrival, demand[:, None], int(arrival[-1]) + 5)
    sim = Simulation(work)
    sim.advance(float(work.seconds))
    took = sim._requests.end - arrival
    waited = took - work.demand_s > 1e-7
    assert erlang_c(c, a) == pytest.approx(0.59643, abs=5e-6)
    assert waited.mean() == pytest.approx(erlang_c(c, a), rel=0.02)
    assert (took - work.demand_s).mean() == pytest.approx(erlang_c(c, a) * 0.01 / (c - a), rel=0.04)


@pytest.mark.parametrize("law", ["exponential", "lognormal"])
def test_processor_sharing_does_not_care_for_the_law_of_service_times(law):
    rng = np.random.default_rng(3)
    n, mean, rho = 600_000, 0.01, 0.7
    arrival = np.cumsum(rng.exponential(mean / rho, n))
    sigma = math.sqrt(math.log1p(4.0))  # a coefficient of variation of 2
    demand = rng.exponential(mean, n) if law == "exponential" else rng.lognormal(math.log(mean) - sigma**2 / 2, sigma, n)
    found = latencies(given(single(100_000, 1.0), arrival, demand[:, None], int(arrival[-1]) + 60))
    assert found.mean() == pytest.approx(mean / (1 - rho), rel=0.02)


def test_a_tandem_with_blocking_is_ciws():
    """A gateway with as many threads as there is room in a tandem of two single servers blocks as Ciw does, customer by customer."""
    ciw = pytest.importorskip("ciw")
    rng = np.random.default_rng(5)
    n, buffer = 2_000, 1
    gaps, first, second = rng.exponential(0.012, n), rng.exponential(0.008, n), rng.exponential(0.009, n)
    first, second = first.astype(np.float32).astype(float), second.astype(np.float32).astype(float)
    network = ciw.create_network(
        arrival_distributions=[ciw.dists.Sequential(list(gaps)), None],
        service_distributions=[ciw.dists.Sequential(list(first)), ciw.dists.Sequential(list(second))],
        number_of_servers=[1, 1], routing=[[0.0, 1.0], [0.0, 0.0]], queue_capacities=[float("inf"), buffer],
    )  # fmt: skip
    simulated = ciw.Simulation(network)
    simulated.simulate_until_max_customers(n, method="Finish")
    records = simulated.get_all_records()
    ends = sorted(record.exit_date for record in records if record.node == 2)
    assert any(record.time_blocked > 0 for record in records), "a tandem that never blocks would prove nothing"

    services = (Service("gate", 2 + buffer, 1.0, quota=1.0), Service("a", 1, 1.0, quota=1.0), Service("b", 1, 1.0, quota=1.0))
    app = Application("tandem", services, (RequestType("ask", 1.0, tree("gate", tree("a"), tree("b"))),), 1e6)
    arrival = np.cumsum(gaps)
    work = given(app, arrival, np.stack([np.zeros(n), first, second], 1), int(arrival[-1]) + 5)
    sim = Simulation(work)
    sim.advance(float(work.seconds))
    assert (sim._requests.end - arrival).max() < 5, "nothing timed out"
    np.testing.assert_allclose(np.sort(sim._requests.end)[: len(ends)], ends, rtol=1e-6)


def in_simpy(work: Any) -> Any:
    """The same application as SimPy processes, with processor sharing worked out anew at every change."""
    import simpy

    app, env = work.application, simpy.Environment()
    rates = (app.quotas * app.replicas).tolist()
    pools = [simpy.Resource(env, int(n)) for n in app.threads * app.replicas]
    ends = np.full(len(work.arrival_s), np.nan)
    stations = [_Shared(env, rate) for rate in rates]

    def call(node: Any, demands: dict[int, float]) -> Any:
        s = app.names.index(node.service)
        with pools[s].request() as thread:
            yield thread
            yield stations[s].compute(demands[id(node)])
            for group in node.groups:
                yield env.all_of([env.process(call(one, demands)) for one in group])

    def request(i: int) -> Any:
        yield env.timeout(work.arrival_s[i])
        shape = app.requests[work.type[i]].tree
        order, at = [shape], 0
        while at < len(order):
            order += [one for group in order[at].groups for one in group]
            at += 1
        start = work.first[i]
        # One object per call, so that equal trees do not share a demand.
        copies = _copied(order[0])
        flat, at = [copies], 0
        while at < len(flat):
            flat += [one for group in flat[at].groups for one in group]
            at += 1
        yield env.process(call(copies, {id(one): float(work.demand_s[start + k]) for k, one in enumerate(flat)}))
        ends[i] = env.now

    for i in range(len(work.arrival_s)):
        env.process(request(i))
    env.run()
    return ends


class _Node:
    def __init__(self, service: str, groups: list[list[_Node]]) -> None:
        self.service, self.groups = service, groups


def _copied(call: Any) -> _Node:
    return _Node(call.service, [[_copied(one) for one in group] for group in call.groups])


class _Shared:
    """Processor sharing by brute force: every change reduces what all jobs have left."""

    def __init__(self, env: Any, rate: float) -> None:
        self.env, self.rate = env, rate
        self.left: dict[Any, float] = {}
        self.since, self.version = 0.0, 0

    def compute(self, work: float) -> Any:
        done = self.env.event()
        self._advance()
        self.left[done] = work
        self._plan()
        return done

    def _speed(self) -> float:
        return min(1.0, self.rate / len(self.left))

    def _advance(self) -> None:
        if self.left:
            gone = (self.env.now - self.since) * self._speed()
            for job in self.left:
                self.left[job] -= gone
        self.since = self.env.now

    def _plan(self) -> None:
        self.version += 1
        if self.left:
            first = min(self.left, key=lambda job: self.left[job])
            self.env.process(self._finish(first, self.version, max(self.left[first], 0.0) / self._speed()))

    def _finish(self, job: Any, version: int, after: float) -> Any:
        yield self.env.timeout(after)
        if version == self.version:
            self._advance()
            del self.left[job]
            job.succeed()
            self._plan()


def test_the_shop_is_the_same_in_simpy():
    pytest.importorskip("simpy")
    app = built_in("shop-8")
    work = drawn(np.random.default_rng(2), app, np.full(5, 300.0))
    theirs = in_simpy(work)
    sim = Simulation(work)
    sim.advance(60.0)
    ours = sim._requests.end
    assert np.nanmax(theirs - work.arrival_s) < 5, "nothing timed out"
    np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-6)
    assert sim.calls == work.calls


def test_backpressure_fills_the_caller_and_starves_its_cpu():
    app = pair(threads=(8, 8), quotas=(1.5, 2.0))
    work = drawn(np.random.default_rng(0), app, np.full(60, 90.0))
    free, tight = (play(work, Fixed(np.array(quotas))) for quotas in ((1.5, 2.0), (1.5, 0.6)))  # b needs 1.08 cores
    # Later, requests that have waited for nearly 5 s fail while they are served, and their work is lost on top.
    used = [np.mean([window.used[0] for window in played.windows[2:5]]) for played in (free, tight)]
    taken = [np.mean([window.occupancy[0] for window in played.windows[2:5]]) for played in (free, tight)]
    assert taken[0] < 0.8
    assert taken[1] > 0.99, "all threads of the caller wait for the callee"
    assert used[1] < 0.75 * used[0], "and so it computes less"
    assert tight.windows[4].queue[0] > 50
    assert tight.windows[-1].failed > 50


def test_a_rule_on_cpu_starves_the_caller_that_waits():
    app = pair(threads=(6, 6), quotas=(1.2, 1.4))
    work = drawn(np.random.default_rng(0), app, np.full(80, 90.0))
    sim = Simulation(work)
    sim.step()
    quotas = np.array([1.2, 0.3])  # the callee is throttled, and stays so
    sim.step(Decision(quotas))
    for _ in range(4):
        window = sim.step(Decision(quotas))
        quotas = np.array([StepRule().decide(window).quotas[0], 0.3])
        assert window.occupancy[0] == pytest.approx(1.0)
    assert quotas[0] == pytest.approx(1.2 * 0.9**4), "the rule takes cores away from a service whose threads are all taken"


def flow(sim: Simulation) -> tuple[int, int, int, int]:
    r = sim._requests
    known = r.arrival < sim.now
    ended = r.end[known] - r.arrival[known] <= 5.0
    return int(known.sum()), int(ended.sum()), sim.failed, sim.inside


@settings(max_examples=10, deadline=None)
@drawn_by(st.integers(0, 10_000), st.floats(0.05, 1.5), st.integers(1, 5))
def test_requests_are_conserved(seed, factor, threads):
    app = built_in("shop-8")
    services = tuple(Service(s.name, threads, s.cpu_ms, s.cv, s.replicas) for s in app.services)
    app = Application("few", services, app.requests, app.slo_ms, app.rate)
    work = drawn(np.random.default_rng(seed), app, np.full(12, 120.0))
    sim = Simulation(work, np.clip(app.quotas * factor, 0.1, 16))
    answered = failed = arrived = 0
    for k in range(12):
        window = sim.step(Decision(np.clip(sim.quotas * (1.3 if k % 3 else 0.6), 0.1, 16)))
        answered, failed, arrived = answered + window.answered, failed + window.failed, arrived + window.arrived
    known, ended, lost, inside = flow(sim)
    assert known == arrived == ended + lost + inside
    assert (answered, failed) == (ended, lost)
    x = sim._services
    assert (x.used <= np.maximum(x.threads, 0)).all()
    sim.advance(60.0)
    assert sim._services.used.sum() == 0, "everything ends when nothing arrives"
    assert sim._stations.held.sum() == 0
    assert sim._counts[4] == 0


def test_a_request_that_is_too_old_has_failed_and_counts_as_violated():
    app = single(1, 0.1, cpu_ms=10.0)
    sim = Simulation(given(app, [0.1], [[0.9]], 12))  # 9 s at a tenth of a core
    windows = [sim.step() for _ in range(12)]
    assert [w.failed for w in windows].index(1) == 5
    assert windows[5].violated
    assert windows[5].type_p99_s[0] == 5.0
    assert sum(w.answered for w in windows) == 0
    assert windows[2].violated, "nothing is answered although something waits for longer than its objective"


def test_calls_of_failed_requests_are_not_begun():
    app = single(1, 1.0)
    sim = Simulation(given(app, [0.0, 0.1, 0.2], [[5.5], [1.0], [0.5]], 10))
    for _ in range(10):
        sim.step()
    end = sim._requests.end
    assert end[0] == pytest.approx(5.5)
    assert end[1] == pytest.approx(5.5), "its turn came after its time, so it is answered at once"
    assert end[2] == pytest.approx(5.5)
    assert sim._stations.done.sum() == pytest.approx(5.5)


def test_quotas_take_effect_after_a_moment_and_replicas_after_twenty_seconds():
    app = single(4, 1.0)
    sim = Simulation(given(app, np.zeros(1), [[100.0]], 40))
    sim.step()
    window = sim.step(Decision(np.array([0.5])))
    assert window.used[0] == pytest.approx(0.2 * 1.0 + 0.8 * 0.5)
    assert sim.core_s == pytest.approx(1.0 + 0.2 + 0.4)
    seen = [int(sim.step(Decision(np.array([0.5]), np.array([3]))).replicas[0]) for _ in range(22)]
    assert seen.index(3) == 19
    assert sim.core_s == pytest.approx(1.6 + 22 * 3 * 0.5), "new replicas are paid from the decision on"
    assert sim.changes == 2


def test_zero_load_has_no_violation():
    app = built_in("shop-8")
    played = play(drawn(np.random.default_rng(0), app, np.zeros(20)), StepRule())
    assert played.violation == 0
    assert len(played.latency_s) == 0
    assert played.metrics()["p99_ms"] == 0


@pytest.mark.parametrize("load", ["diurnal", "step", "flash", "sinusoid"])
def test_loads_have_their_mean(load):
    rates = rates_of(load, np.random.default_rng(0), 300, 150.0)
    assert rates.mean() == pytest.approx(150.0)
    assert (rates > 0).all()
    assert rates.max() / rates.min() > 1.9


def test_too_much_is_refused_before_it_is_drawn():
    app = built_in("shop-8")
    with pytest.raises(InputError, match="calls; expected at most"):
        drawn(np.random.default_rng(0), app, np.full(80_000, 1e6))
    with pytest.raises(InputError, match="finite"):
        drawn(np.random.default_rng(0), app, np.array([np.nan]))


def test_more_requests_inside_than_allowed_end_the_run(monkeypatch):
    from armillary.scheduling.microservices.simulation import play as playing

    app = single(1, 0.1, cpu_ms=10.0)
    monkeypatch.setattr(playing, "MOST_SLOTS", 1000)
    with pytest.raises(InputError, match="calls under way"):
        Simulation(drawn(np.random.default_rng(0), app, np.full(10, 5000.0))).advance(10.0)


def test_the_same_seed_gives_the_same_run():
    app = built_in("hotel-17")
    runs = [play(drawn(np.random.default_rng(4), app, np.full(15, 200.0)), StepRule()).metrics() for _ in range(2)]
    for run in runs:
        run.pop("decide_ms")
    assert runs[0] == runs[1]
