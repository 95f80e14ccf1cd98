"""The order that accesses imply: by hand, then against a checker that compares every pair by sets of indices."""

from __future__ import annotations

import numpy as np
import pytest
import tasks_bodies as bodies
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.errors import InputError
from armillary.tasks import Graph, Piece, Reduction, Threads, task
from armillary.tasks.progress import Progress
from armillary.tasks.shapes import (
    chain,
    cholesky,
    cybershake,
    epigenomics,
    fft,
    fork_join,
    lu,
    mapreduce,
    montage,
    qr,
    random_layered,
    stencil,
    wavefront,
)


def test_a_read_waits_for_the_writes_that_it_meets() -> None:
    g = Graph()
    a = g.data("a", np.zeros(8))
    first, second = g.add(None, writes=[a[0:4]]), g.add(None, writes=[a[4:8]])
    read = g.add(None, reads=[a[2:6]])
    other = g.add(None, reads=[a[6:8]])
    over = g.add(None, updates=[a[0:3]])
    assert read.before == [first.id, second.id]
    assert other.before == [second.id]
    assert over.before == [first.id, read.id]


def test_even_and_odd_elements_do_not_conflict() -> None:
    g = Graph()
    a = g.data("a", np.zeros(8))
    even, odd = g.add(None, writes=[a[0:8:2]]), g.add(None, writes=[a[1:8:2]])
    third = g.add(None, writes=[a[0:8:3]])
    assert odd.before == []
    assert sorted(third.before) == [even.id, odd.id]


def test_what_a_write_covers_is_forgotten() -> None:
    g = Graph()
    a = g.data("a", np.zeros(100))
    for _ in range(5):
        for i in range(100):
            g.add(None, updates=[a[i]])
        g.add(None, updates=[a])
    assert len(g._regions[a.id]) == 1
    assert sorted(g.tasks[-1].before) == list(range(403, 504))  # the last write of everything, and those since


def test_commutes_exclude_each_other_without_an_edge() -> None:
    g = Graph()
    a = g.data("a", np.zeros(8))
    write = g.add(None, writes=[a])
    one, two, apart = g.add(None, commutes=[a[0:4]]), g.add(None, commutes=[a[2:6]]), g.add(None, commutes=[a[6:8]])
    read = g.add(None, reads=[a[3]])
    assert one.before == two.before == apart.before == [write.id]
    assert set(one.excludes or ()) & set(two.excludes or ())
    assert not set(one.excludes or ()) & set(apart.excludes or ())
    assert sorted(read.before) == [write.id, one.id, two.id]


def test_reductions_combine_before_the_next_access_in_order() -> None:
    g = Graph()
    a = g.data("a", np.ones(2))
    for x in (1e16, 1.0, -1e16):
        g.add(bodies.accumulate, a, x, reduces=[Reduction(a)])
    assert all(not t.before for t in g.tasks)
    read = g.add(np.sum, a)
    assert g.tasks[3].name == "combine"
    assert g.tasks[3].before == [0, 1, 2]
    run = g.run(Threads(2))
    run.trace.check(g)
    assert run.result(read) == 2 * (((1 + 1e16) + 1.0) - 1e16)


def test_decorated_functions_name_their_accesses() -> None:
    @task(reads=("a",), updates=("b",))
    def axpy(a: np.ndarray, b: np.ndarray, alpha: float) -> None:
        b += alpha * a

    g = Graph()
    x, y = g.data("x", np.ones(3)), g.data("y", np.zeros(3))
    g.add(axpy, x, y, 2.0)
    g.add(axpy, y, x, 1.0)
    g.run(Threads(2)).raise_first()
    assert g.tasks[1].before == [0]
    assert x.value.tolist() == [3, 3, 3]


def test_decorated_functions_are_given_data_by_keyword_too() -> None:
    @task(reads=("a",), writes=("b",))
    def copy(a: np.ndarray, b: np.ndarray) -> None:
        b[...] = a

    g = Graph()
    x, y = g.data("x", np.ones(3)), g.data("y", np.zeros(3))
    g.add(copy, x, kwargs={"b": y})
    read = g.add(np.sum, y)
    assert read.before == [0]
    assert g.run(Threads(2)).result(read) == 3


def test_a_list_of_indices_is_the_box_around_them_and_is_not_written() -> None:
    g = Graph()
    a = g.data("a", np.arange(8.0))
    first, second = g.add(None, writes=[a[0:3]]), g.add(None, writes=[a[3:8]])
    assert g.add(None, reads=[a[[1, 2]]]).before == [first.id]
    assert g.add(None, reads=[a[[2, 3]]]).before == [first.id, second.id]
    assert g.add(None, reads=[a[np.array([1, -1])]]).before == [first.id, second.id]
    assert g.add(None, reads=[a[np.arange(8) > 4]]).before == [second.id]
    with pytest.raises(InputError, match="cannot be written"):
        g.add(bodies.increment, a[[1, 2]], updates=[a[[1, 2]]])
    for wrong in ([], [9], ["x"], [1.5], np.zeros(8, bool)):
        with pytest.raises(InputError):
            a[wrong]


MODES = ("reads", "writes", "updates", "commutes")
accesses = st.lists(st.tuples(st.sampled_from(MODES), st.integers(0, 9), st.integers(1, 6), st.integers(1, 3)), min_size=1, max_size=14)


@given(accesses)
@settings(max_examples=150, deadline=None)
def test_the_order_is_that_of_comparing_every_pair(given_accesses: list[tuple[str, int, int, int]]) -> None:
    g = Graph()
    a = g.data("a", np.zeros(16))
    sets = []
    for mode, start, length, step in given_accesses:
        piece = a[start : start + length : step]
        g.add(None, **{mode: [piece]})  # type: ignore[arg-type]
        sets.append((mode, set(range(*slice(start, start + length, step).indices(16)))))
    count = len(sets)
    wanted = np.zeros((count, count), bool)
    excluded = []
    for j in range(count):
        for i in range(j):
            modes = {sets[i][0], sets[j][0]}
            if sets[i][1] & sets[j][1] and modes != {"reads"}:
                if modes == {"commutes"}:
                    excluded.append((i, j))
                else:
                    wanted[i, j] = True
    found = np.zeros_like(wanted)
    for t in g.tasks:
        found[t.before, t.id] = True
    for _ in range(4):
        wanted, found = wanted | (wanted @ wanted), found | (found @ found)
    assert np.array_equal(wanted, found)
    for i, j in excluded:
        assert found[i, j] or set(g.tasks[i].excludes or ()) & set(g.tasks[j].excludes or ())


@given(accesses, st.integers(1, 3), st.sampled_from(["fifo", "lifo", "random", "steal", "priority"]))
@settings(max_examples=25, deadline=None)
def test_any_policy_gives_what_one_after_the_other_gives(
    given_accesses: list[tuple[str, int, int, int]], workers: int, policy: str
) -> None:
    def body(part: np.ndarray, how: str, k: int) -> float:
        if how in ("writes", "updates"):
            part[...] = part * 3 % 1009 + k if how == "updates" else k
        elif how == "commutes":
            part += k
        return float(part.sum()) if how != "commutes" else 0.0

    def build() -> tuple[Graph, np.ndarray]:
        g = Graph()
        value = np.arange(16.0)
        a = g.data("a", value)
        for k, (mode, start, length, step) in enumerate(given_accesses):
            piece: Piece = a[start : start + length : step]
            g.add(body, piece, mode, k, priority=k % 3, **{mode: [piece]})  # type: ignore[arg-type]
        return g, value

    one, expected = build()
    results = [body(t.args[0].of(expected), *t.args[1:]) for t in one.tasks]
    g, value = build()
    run = g.run(Threads(workers), policy=policy).raise_first()
    run.trace.check(g)
    assert np.array_equal(value, expected)
    assert [run.result(t) for t in g.tasks] == results


def test_cholesky_has_the_tasks_and_the_path_of_the_textbook() -> None:
    g = cholesky(3)
    assert [t.name for t in g.critical_path().tasks] == ["potrf", "trsm", "syrk", "potrf", "trsm", "syrk", "potrf"]
    assert g.critical_path().seconds == 7
    counts = {name: sum(t.name == name for t in cholesky(6).tasks) for name in ("potrf", "trsm", "syrk", "gemm")}
    assert counts == {"potrf": 6, "trsm": 15, "syrk": 15, "gemm": 20}


def test_shapes_are_graphs() -> None:
    for g in (
        lu(4),
        qr(4),
        chain(5),
        fork_join(3),
        stencil(3, 3, 3),
        fft(3),
        mapreduce(3, 2),
        random_layered(4, 5),
        montage(4),
        epigenomics(2, 3),
        cybershake(2, 3),
        wavefront(3, 3),
    ):
        g.validate()
    assert (chain(5).width(), fork_join(6).width(), len(lu(4)), fft(3).critical_path().seconds) == (1, 6, 4 + 12 + 14, 4)
    for one in random_layered(3, 4, degree=3, seed=1).tasks:
        assert len(set(one.before)) == (3 if one.id >= 4 else 0)
        assert all(one.id // 4 - 1 == number // 4 for number in one.before)
    assert random_layered(3, 4, seed=1).total_work() == random_layered(3, 4, seed=1).total_work()


@pytest.mark.parametrize(
    "wrong",
    [
        {"cost": -1.0}, {"cost": float("nan")}, {"cost": {"cpu": float("inf")}}, {"needs": {"cores": -1}}, {"nodes": 0}, {"retries": -1},
        {"on": ()}, {"reads": ["a"]},
    ],
)  # fmt: skip
def test_bad_terms_are_refused(wrong: dict) -> None:
    with pytest.raises(InputError):
        Graph().add(None, name="t", **wrong)


def test_keys_and_names_are_taken_once_and_graphs_do_not_mix() -> None:
    g, other = Graph(), Graph()
    g.add(None, name="t", key="k")
    with pytest.raises(InputError, match="already used"):
        g.add(None, name="t", key="k")
    a = other.data("a", np.zeros(2))
    with pytest.raises(InputError, match="exists"):
        other.data("a")
    with pytest.raises(InputError, match="another graph"):
        g.add(None, name="u", reads=[a])
    with pytest.raises(InputError, match="did you mean"):
        Graph.handle(other, "aa")


def test_only_one_of_those_that_commute_is_ready() -> None:
    g = Graph()
    a = g.data("a", np.zeros(4))
    for piece in (a[0:2], a[0:2], a[1:3], a[3]):
        g.add(None, commutes=[piece])
    progress = Progress(g)
    assert [t.id for t in progress.start()] == [0, 3]
    assert [t.id for t in progress.done(g.tasks[0])] == [1]
    assert progress.done(g.tasks[3]) == []
    assert [t.id for t in progress.done(g.tasks[1])] == [2]
    assert progress.done(g.tasks[2]) == []
    assert progress.left == 0
