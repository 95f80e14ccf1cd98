"""Simulated time: exact makespans by hand, published ones, bounds, and the same trace each time."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary import cluster
from armillary.errors import InputError
from armillary.tasks import BrokenTrace, Graph, Virtual, Work
from armillary.tasks.placement import _gap
from armillary.tasks.shapes import chain, cholesky, fork_join, random_layered

GREEDY = ("fifo", "lifo", "priority", "random", "steal")


def test_makespans_by_hand() -> None:
    assert chain(5, cost=2.0).run(Virtual(3)).seconds == 10
    assert fork_join(6).run(Virtual(3)).seconds == 4
    assert cholesky(3).run(Virtual(100)).seconds == 7
    assert fork_join(6).run(Virtual(3, overhead=1.0)).seconds == 9  # the last of eight is submitted at 8 s
    assert fork_join(6).run(Virtual(3, submit_rate=0.5)).seconds == 17


def heft_example() -> Graph:
    """The ten tasks on three processors of the HEFT paper; an edge's cost is its bytes at one byte a second."""
    costs = [
        (14, 16, 9),
        (13, 19, 18),
        (11, 13, 19),
        (13, 8, 17),
        (12, 13, 10),
        (13, 16, 9),
        (7, 15, 11),
        (5, 11, 14),
        (18, 12, 20),
        (21, 7, 16),
    ]
    edges = {
        (1, 2): 18, (1, 3): 12, (1, 4): 9, (1, 5): 11, (1, 6): 14, (2, 8): 19, (2, 9): 16, (3, 7): 23, (4, 8): 27, (4, 9): 23, (5, 9): 13,
        (6, 8): 15, (7, 10): 17, (8, 10): 11, (9, 10): 13,
    }  # fmt: skip
    g = Graph()
    data = {edge: g.data(str(edge), nbytes=nbytes) for edge, nbytes in edges.items()}
    for i in range(1, 11):
        reads, writes = [data[e] for e in edges if e[1] == i], [data[e] for e in edges if e[0] == i]
        g.add(None, reads=reads, writes=writes, name=f"t{i}", cost=dict(zip("pqr", costs[i - 1])), on=tuple("pqr"))
    return g


def test_heft_gives_the_80_of_its_paper() -> None:
    g = heft_example()
    run = g.run(Virtual(tuple("pqr"), bandwidth=1.0), policy="heft")
    run.trace.check(g)
    assert run.seconds == 80


@pytest.mark.parametrize("policy", [*GREEDY, "dm", "dmda", "locality", "heft"])
def test_every_policy_runs_everything_and_repeats_itself(policy: str) -> None:
    g = heft_example()
    runs = [g.run(Virtual(tuple("pqr"), bandwidth=1.0, noise=0.3, seed=5), policy=policy, seed=2) for _ in range(2)]
    runs[0].trace.check(g)
    assert np.array_equal(runs[0].trace.rows, runs[1].trace.rows)


@given(st.integers(1, 5), st.integers(1, 6), st.integers(1, 4), st.integers(0, 99), st.sampled_from(GREEDY))
@settings(max_examples=40, deadline=None)
def test_greedy_makespans_lie_within_grahams_bounds(layers: int, width: int, workers: int, seed: int, policy: str) -> None:
    g = random_layered(layers, width, seed=seed)
    run = g.run(Virtual(workers), policy=policy, seed=seed)
    run.trace.check(g)
    least = max(g.critical_path().seconds, g.total_work() / workers)
    assert least - 1e-6 <= run.seconds <= (2 - 1 / workers) * least + 1e-6


@given(st.integers(1, 6), st.integers(1, 8), st.integers(1, 4), st.integers(0, 99), st.sampled_from(GREEDY), st.sampled_from([0.0, 0.2]))
@settings(max_examples=60, deadline=None)
def test_a_plain_run_is_the_same_as_on_the_engine(layers: int, width: int, workers: int, seed: int, policy: str, noise: float) -> None:
    g = random_layered(layers, width, seed=seed)
    draws = np.random.default_rng(seed)
    for task in g.tasks:
        # Whole seconds and none at all, so that many things happen at one instant.
        task.cost, task.priority = float(draws.integers(0, 3)), int(draws.integers(3))
    one = Virtual(("cpu",) * workers if seed % 2 else workers, noise=noise, seed=seed)
    plain = g.run(one, policy=policy, seed=seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("armillary.tasks.virtual._VirtualRun._is_plain", lambda run: False)
        engine = g.run(one, policy=policy, seed=seed)
    assert np.array_equal(plain.trace.rows, engine.trace.rows)
    assert plain.seconds == engine.seconds


def test_a_gang_starts_on_all_its_nodes_at_one_instant() -> None:
    g = Graph()
    for _ in range(3):
        g.add(None, name="wide", nodes=2, cost=10.0)
        g.add(None, name="small", cost=4.0)
    for backfill in (False, True):
        run = g.run(Virtual(("cpu", "cpu", "cpu"), backfill=backfill))
        run.trace.check(g)
        table = run.trace.table()
        for key in table.filter(table["name"] == "wide")["key"].unique():
            rows = table.filter(table["key"] == key)
            assert (len(rows), rows["started"].n_unique(), rows["node"].n_unique()) == (2, 1, 2)
        assert run.seconds == 30
        for instant in table["started"]:
            assert len(table.filter((table["started"] <= instant) & (table["ended"] > instant))) <= 3


def test_what_a_trace_says_of_time_by_hand() -> None:
    """a (2 s) on n0, its 3 bytes come to n1 in 3 s, b (4 s) there: the other worker of each time is idle."""
    g = Graph()
    x = g.data("x", nbytes=3)
    g.add(None, writes=[x], cost=2.0, on=("p",), key="a")
    g.add(None, reads=[x], cost=4.0, on=("q",), key="b")
    g.add(None, cost=1.0, on=("p",), key="aside")
    run = g.run(Virtual(("p", "q"), bandwidth=1.0))
    run.trace.check(g)
    assert run.seconds == 9
    assert run.trace.utilisation() == pytest.approx((2 + 4 + 1) / (2 * 9))
    assert run.trace.idle() == {0: 6.0, 1: 5.0}
    path = run.trace.path(g)
    assert (path.keys, path.compute, path.wait, path.transfer) == (("a", "b"), 6.0, 0.0, 3.0)


def test_backfilling_fills_and_does_not_delay_the_gang() -> None:
    def graph() -> Graph:
        g = Graph()
        g.add(None, name="long", cost=10.0)
        g.add(None, name="gang", nodes=3, cost=5.0)
        g.add(None, name="short", cost=10.0)
        g.add(None, name="too long", cost=11.0)
        return g

    plain, filled = (graph().run(Virtual(("cpu",) * 3, backfill=b)).trace.table() for b in (False, True))
    starts = [{n: t.filter(t["name"] == n)["started"][0] / 1e9 for n in ("gang", "short", "too long")} for t in (plain, filled)]
    assert starts[0] == {"gang": 10, "short": 15, "too long": 15}
    assert starts[1] == {"gang": 10, "short": 0, "too long": 15}


def test_a_node_that_dies_gives_its_task_to_another() -> None:
    g = Graph()
    g.add(None, name="a", cost=10.0, retries=1)
    g.add(None, name="b", cost=10.0)
    run = g.run(Virtual(("cpu", "cpu"), failures={"n0": 4.0}))
    run.trace.check(g)
    assert run.seconds == 20
    assert sorted(run.trace["attempt"].tolist()) == [1, 1, 2]


def test_work_is_charged_by_the_cluster_and_moved_over_its_network() -> None:
    c = cluster.preset("dgx-h100").scale(nodes=2)
    gpu = c.node(0).device(0)
    g = Graph()
    x = g.data("x", nbytes=10**9, home=c.node(1).name)
    g.add(None, reads=[x], cost=Work(flops=1e15), on=("gpu",))
    run = g.run(Virtual(c))
    run.trace.check(g)
    moved = run.trace.table().filter(run.trace.table()["kind"] == "link")
    assert len(moved) == 1
    compute = 1e15 / float(gpu.peak["fp64"])
    assert run.seconds == pytest.approx(compute + (moved["ended"][0] - moved["started"][0]) / 1e9, rel=1e-6)
    assert run.trace.path(g).transfer > 0


def test_the_same_trace_in_another_process_with_another_hash_seed() -> None:
    code = (
        "from armillary.tasks import Virtual; from armillary.tasks.shapes import cholesky; import hashlib;"
        "v = Virtual(('cpu',) * 4, noise=0.2, seed=3, bandwidth=9.0, memory=20, failures={'n2': 9.0});"
        "r = cholesky(6, tile_bytes=4).run(v, policy='priority', on_error='continue');"
        "print(len(r.trace), hashlib.sha256(r.trace.rows.tobytes()).hexdigest())"
    )
    said = {
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={"PYTHONHASHSEED": s}, check=True).stdout
        for s in "12"
    }
    assert len(said) == 1


def test_check_refuses_a_trace_of_another_graph() -> None:
    run = fork_join(3).run(Virtual(3))
    with pytest.raises(BrokenTrace, match="before"):
        run.trace.check(chain(5))
    with pytest.raises(BrokenTrace, match="without a row"):
        run.trace.check(chain(6))


def test_a_trace_leaves_as_a_timeline() -> None:
    run = fork_join(3).run(Virtual(3))
    line = run.trace.timeline()
    assert line.end == run.seconds
    assert len(line.spans) == 5


def test_what_cannot_run_is_refused() -> None:
    g = Graph()
    g.add(None, name="t", on=("gpu",), cost=1.0, key="k")
    with pytest.raises(InputError, match="task k runs on gpu"):
        g.run(Virtual(2))
    with pytest.raises(InputError, match="unknown node"):
        Virtual(2, failures={"n7": 1.0})
    with pytest.raises(InputError, match="noise"):
        Virtual(2, noise=-1)
    g = Graph()
    g.add(None, name="t", nodes=2, key="k")
    with pytest.raises(InputError, match="needs 2 nodes"):
        g.run(Virtual(2))


def test_heft_uses_the_gaps_that_are_long_enough() -> None:
    slots = [(0.0, 2.0, 0), (5.0, 9.0, 1)]
    assert [_gap(slots, 1.0, length) for length in (3.0, 3.5)] == [2.0, 9.0]
    assert _gap(slots, 2.5, 2.5) == 2.5
    assert _gap(slots, 2.6, 2.5) == 9.0
