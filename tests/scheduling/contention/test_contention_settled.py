"""The fixed point of co-located use: by hand, against a plain reference, and as properties."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.errors import InputError
from armillary.scheduling.contention import Applications, Fleet, Model, Topology, draw_applications, p95, settle, settle_floating

ONE = Topology.regular(1, 2, 2)


def fleet_of(*topologies: Topology) -> Fleet:
    return Fleet(topologies, np.arange(len(topologies)))


def settled(
    apps: Applications, topology: Topology, rows: list[list[int]], demand: list[float], app: list[int], model: Model | None = None
) -> Any:
    offsets = np.concatenate(([0], np.cumsum([len(r) for r in rows])))
    threads = np.array([t for r in rows for t in r])
    return settle(apps, fleet_of(topology), np.array(app), np.array(demand), np.zeros(len(rows)), offsets, threads, model or Model())


def test_two_siblings_by_hand() -> None:
    apps = Applications.of([[1, 1, 0, 0, 0]] * 2, [[0, 0, 0, 0, 0], [1, 1, 0, 0, 0]])
    # Threads 0 and 2 are on core 0. With u the use, u0 = 0.4·(1 + 0.25·u1) and u1 = 0.3·(1 + (0.25 + 0.9)·u0).
    found = settled(apps, ONE, [[0], [2]], [0.4, 0.3], [0, 1])
    u1 = 0.3 * (1 + 1.15 * 0.4) / (1 - 0.3 * 1.15 * 0.4 * 0.25)
    assert found.use == pytest.approx([0.4 * (1 + 0.25 * u1), u1], abs=1e-9)
    assert found.slow_socket.tolist() == [1, 1]


def test_another_core_of_the_socket_by_hand() -> None:
    apps = Applications.of([[0, 0, 1, 0.5, 0]] * 2, [[0, 0, 0, 0, 0], [0, 0, 0.5, 1, 0]])
    found = settled(apps, ONE, [[0], [1]], [0.5, 0.2], [0, 1])
    x = 0.5 * (0.5 * 1 + 1 * 0.5) * 8 / 2
    assert found.use == pytest.approx([0.5, 0.2 * (1 + 0.15 * x**1.5)], abs=1e-12)
    other = settled(apps, Topology.regular(2, 1, 2), [[0], [1]], [0.5, 0.2], [0, 1])
    assert other.use.tolist() == [0.5, 0.2]  # on another socket nothing is shared


def test_own_threads_on_one_core_are_siblings_and_elsewhere_they_are_not() -> None:
    apps = Applications.of([[1, 1, 1, 1, 0]], [[1, 1, 1, 1, 0]])
    spread, both = settled(apps, ONE, [[0, 1]], [0.6], [0]), settled(apps, ONE, [[0, 2]], [0.6], [0])
    assert spread.use.tolist() == [0.3]
    assert both.use == pytest.approx([0.3 / (1 - 0.3 * 1.15)], abs=1e-9)


def test_use_is_at_most_one_and_load_says_how_far_beyond() -> None:
    apps = Applications.of([[1, 1, 0, 0, 0]], [[1, 1, 0, 0, 0]])
    found = settled(apps, ONE, [[0], [2]], [0.9, 0.9], [0, 0])
    assert found.use.tolist() == [1, 1]
    assert found.load == pytest.approx([0.9 * 2.15] * 2)


@st.composite
def servers(draw: st.DrawFn) -> tuple[Applications, Topology, list[list[int]], list[float], list[int]]:
    speed = draw(st.sampled_from([1.0, 1.25]))
    topology = Topology.regular(draw(st.integers(1, 2)), draw(st.integers(1, 4)), draw(st.integers(1, 3)), speed=speed)
    order = draw(st.permutations(range(topology.threads)))
    cuts = sorted(draw(st.sets(st.integers(1, topology.threads), max_size=5)))
    rows = [sorted(order[a:b]) for a, b in zip([0, *cuts], cuts)] or [[0]]
    demand = [draw(st.floats(0, 1)) * len(r) for r in rows]
    apps = draw_applications(np.random.default_rng(draw(st.integers(0, 99))), 4)
    return apps, topology, rows, demand, [draw(st.integers(0, 3)) for _ in rows]


def equation(apps: Applications, topology: Topology, rows: list[list[int]], demand: list[float], app: list[int], u: Any, i: int) -> float:
    """The right-hand side of instance i's equation, thread by thread."""
    near = x = 0.0
    owner = {t: j for j, held in enumerate(rows) for t in held}
    for h in rows[i]:
        for g, j in owner.items():
            s, p = apps.sensitivity[app[i]], apps.pressure[app[j]]
            if g != h and topology.core[g] == topology.core[h]:
                near += u[j] * (0.25 + 0.9 * (s[0] * p[0] + s[1] * p[1]) / 2)
            elif g != h and j != i and topology.socket[g] == topology.socket[h]:
                x += u[j] * (s[2] * p[2] + s[3] * p[3]) * 8 / topology.cores_per_socket[topology.socket[h]]
    k = len(rows[i])
    slow = (1 + near / k) * (1 + 0.15 * (x / k) ** 1.5)
    return min(1.0, demand[i] * slow / topology.speed / k)


@settings(max_examples=60, deadline=None)
@given(servers())
def test_use_satisfies_its_equation(server: Any) -> None:
    apps, topology, rows, demand, app = server
    found = settled(apps, topology, rows, demand, app)
    for i in range(len(rows)):
        assert abs(found.use[i] - equation(apps, topology, rows, demand, app, found.use, i)) < 1e-9


@settings(max_examples=40, deadline=None)
@given(servers(), st.integers(0, 10))
def test_more_requests_of_one_slow_nobody_less(server: Any, which: int) -> None:
    apps, topology, rows, demand, app = server
    more = list(demand)
    more[which % len(rows)] *= 1.2
    assert (settled(apps, topology, rows, more, app).use >= settled(apps, topology, rows, demand, app).use - 1e-9).all()


def test_the_order_of_servers_and_instances_changes_no_bit() -> None:
    rng = np.random.default_rng(1)
    apps, kinds = draw_applications(rng, 8), (Topology.regular(2, 4, 2), Topology.regular(2, 4, 2, speed=1.25))
    app, demand, server = rng.integers(0, 8, 24), rng.uniform(0.5, 1.5, 24), np.repeat(np.arange(6), 4)
    threads = np.concatenate([rng.permutation(16)[:12] for _ in range(6)])
    kind = np.array([0, 1, 1, 0, 1, 0])
    whole = settle(apps, Fleet(kinds, kind), app, demand, server, np.arange(0, 73, 3), threads)
    order = rng.permutation(24)
    turn = rng.permutation(6)
    held = threads.reshape(24, 3)[order].ravel()
    renamed = np.argsort(turn)[server[order]]
    again = settle(apps, Fleet(kinds, kind[turn]), app[order], demand[order], renamed, np.arange(0, 73, 3), held)
    assert np.array_equal(whole.use[order], again.use)


def test_floating_machines_wait_only_beyond_the_threads() -> None:
    apps = Applications.of([[0] * 5], [[0] * 5])
    host = fleet_of(Topology.regular(1, 2, 2))
    calm = Model(smt_base=0.0)
    found = settle_floating(apps, host, np.zeros(2), np.array([1.5, 1.0]), np.zeros(2), np.array([2, 2]), calm)
    assert found.slowdown.tolist() == [1, 1]
    assert found.use.tolist() == [0.75, 0.5]
    crowd = settle_floating(apps, host, np.zeros(4), np.full(4, 2.0), np.zeros(4), np.full(4, 2), calm)
    assert crowd.wait.tolist() == [2, 2, 2, 2]  # 8 busy vCPUs on 4 threads


def test_floating_by_hand_with_siblings() -> None:
    apps = Applications.of([[1, 1, 0, 0, 0]], [[1, 1, 0, 0, 0]])
    found = settle_floating(apps, fleet_of(ONE), np.zeros(2), np.array([0.5, 0.5]), np.zeros(2), np.array([1, 1]))
    # One of the three other threads is the sibling: u = 0.5·(1 + 1.15·u/3).
    assert found.use == pytest.approx([0.5 / (1 - 0.5 * 1.15 / 3)] * 2, abs=1e-9)


def test_a_fleet_of_overcommitted_hosts_converges() -> None:
    rng = np.random.default_rng(0)
    apps = draw_applications(rng, 30)
    vcpus = rng.choice([2, 4, 8, 24], 2000)
    host = fleet_of(*[Topology.regular(2, 16, 2)] * 40)
    found = settle_floating(apps, host, rng.integers(0, 30, 2000), vcpus * rng.uniform(0.1, 1.0, 2000), rng.integers(0, 40, 2000), vcpus)
    assert found.error <= 1e-10
    assert (found.slowdown >= 1).all()
    assert (found.wait > 1).any()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"threads": [0, 1, 1, 3]}, "in two instances"), ({"threads": [0, 1, 2, 4]}, "expected 0 to 3"),
        ({"threads": [0, 1, 2, -1]}, "expected 0 to 3"),
        ({"app": [0, 5]}, "expected 0 to 0"), ({"server": [0, 1]}, "server"), ({"demand": [1.0, math.nan]}, "demand"),
        ({"demand": [1.0, -1.0]}, "demand"), ({"offsets": [0, 3, 2]}, "offsets"), ({"offsets": [0, 0, 4]}, "offsets"),
    ],
)  # fmt: skip
def test_what_a_loop_would_not_notice_is_refused(change: dict[str, Any], said: str) -> None:
    arguments = {"app": [0, 0], "demand": [1.0, 1.0], "server": [0, 0], "offsets": [0, 2, 4], "threads": [0, 1, 2, 3]} | change
    app, demand, server, offsets, threads = (np.array(v) for v in arguments.values())
    with pytest.raises(InputError, match=said):
        settle(Applications.of([[0] * 5], [[0] * 5]), fleet_of(ONE), app, demand, server, offsets, threads)


def test_a_host_holds_a_bounded_number_of_machines() -> None:
    many = 2049
    with pytest.raises(InputError, match="2,049 machines on host 1"):
        settle_floating(draw_applications(np.random.default_rng(0), 1), fleet_of(ONE, ONE), np.zeros(many), np.ones(many), np.ones(many), np.ones(many))


def test_the_queue_agrees_with_theory() -> None:
    # Erlang's formula for M/D/1 with service time 1: P(wait ≤ t) = (1 − ρ)·Σ_{j ≤ t} (ρ(j − t))^j/j!·e^(−ρ(j − t)).
    rho = 0.5

    def below(t: float) -> float:
        return (1 - rho) * sum((rho * (j - t)) ** j / math.factorial(j) * math.exp(-rho * (j - t)) for j in range(int(t) + 1))

    exact = next(t for t in np.arange(0, 10, 0.001) if below(float(t)) >= 0.95) + 1.0
    many = p95(np.full(64, rho), np.ones(64), np.zeros(64), np.ones(64), requests=20_000)
    assert many.mean() == pytest.approx(exact, rel=0.02)
    assert p95(np.zeros(1), np.ones(1), np.zeros(1), np.ones(1)).tolist() == [1.0]


def test_an_instance_meets_the_same_requests_whatever_the_others_do() -> None:
    rps, seconds, sigma, threads = np.full(70, 3.0), np.full(70, 0.5), np.full(70, 0.8), np.full(70, 2)
    alone = p95(rps, seconds, sigma, threads, requests=500)
    changed = p95(np.where(np.arange(70) == 3, 1.0, rps), seconds, sigma, threads, requests=500)
    assert np.array_equal(np.delete(alone, 3), np.delete(changed, 3))
    assert changed[3] < alone[3]
    assert np.array_equal(alone[:10], p95(rps[:10], seconds[:10], sigma[:10], threads[:10], requests=500))


def reference_p95(rps: float, seconds: float, sigma: float, k: int, gaps: Any, normal: Any) -> float:
    import heapq

    free, now, times = [0.0] * k, 0.0, []
    for gap, z in zip(gaps, normal):
        now += gap / rps
        start = max(now, heapq.heappop(free))
        end = start + seconds * math.exp(sigma * z - sigma**2 / 2)
        heapq.heappush(free, end)
        times.append(end - now)
    return float(np.quantile(times, 0.95))


def test_the_queue_equals_a_plain_one() -> None:
    from armillary.streams import stream

    rng = stream(7, "requests", "0")
    gaps, normal = rng.standard_exponential((64, 300)), rng.standard_normal((64, 300))
    found = p95(np.array([5.0, 9.0]), np.array([0.3, 0.4]), np.array([0.9, 0.4]), np.array([2, 3]), seed=7, requests=300)
    plain = [reference_p95(5, 0.3, 0.9, 2, gaps[0], normal[0]), reference_p95(9, 0.4, 0.4, 3, gaps[1], normal[1])]
    assert found == pytest.approx(plain, rel=1e-9)
