"""Bounded memories, lost nodes, named resources and backfilling of virtual workers: times by hand, then what must always hold."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary import cluster
from armillary.errors import InputError
from armillary.tasks import Graph, Virtual, WorkerLost
from armillary.tasks.placement import Heft
from armillary.tasks.policies import Fifo, Lifo, Steal
from armillary.tasks.shapes import cholesky, random_layered
from armillary.tasks.transfers import Transfers


def reader(g: Graph, *names: str, on: str = "q", mode: str = "reads") -> None:
    for name in names:
        g.add(None, name=name, cost=1.0, on=(on,), **{mode: [g.handle(name)]})  # type: ignore[arg-type]


def sized(**sizes: int) -> Graph:
    g = Graph()
    for name, nbytes in sizes.items():
        g.data(name, nbytes=nbytes)
    return g


def two_nodes(memory: float | None = None, **more: Any) -> Virtual:
    """Data lie on n0, whose worker is of kind p; q works on n1; a byte takes a second."""
    return Virtual(("p", "q"), bandwidth=1.0, memory=memory, **more)


def moves(run: Any) -> list[tuple[str, str, int]]:
    table = run.trace.table()
    links = table.filter(table["kind"] == "link").sort("started")
    return list(zip(links["key"], links["node"], links["bytes_in"]))


def one_after_the_other(g: Graph) -> Graph:
    for earlier, later in zip(g.tasks, g.tasks[1:]):
        if earlier.id not in later.before:
            later.before.append(earlier.id)
            earlier.after.append(later.id)
    return g


def test_a_copy_that_does_not_fit_is_forgotten_and_fetched_again() -> None:
    for memory, seconds in ((100, 3 * 61), (120, 2 * 61 + 1), (None, 2 * 61 + 1)):
        g = sized(a=60, b=60)
        reader(g, "a", "b", "a")
        run = one_after_the_other(g).run(two_nodes(memory))
        run.trace.check(g)
        assert run.seconds == seconds


def test_the_copy_used_longest_ago_leaves_first() -> None:
    g = sized(a=60, b=60, c=60)
    reader(g, "a", "b", "a", "c", "a", "b")
    run = one_after_the_other(g).run(two_nodes(120))
    assert [key.partition("#")[0] for key, _, _ in moves(run)] == ["a", "b", "c", "b"]


def test_a_dirty_copy_goes_home_before_it_is_forgotten() -> None:
    g = sized(a=60, b=60, c=40)
    reader(g, "a", mode="writes")
    reader(g, "b")
    reader(g, "a", on="p")
    reader(g, "c", "b")
    run = one_after_the_other(g).run(two_nodes(100))
    run.trace.check(g)
    # Write 1 s, a goes home 60 s, b comes 60 s, read 1 s; then a is at home, and c has room beside b.
    assert run.seconds == 1 + 60 + 60 + 1 + 1 + (40 + 1) + 1
    assert moves(run) == [("b#1", "n1", 60), ("b#1", "n0", 60), ("c#3", "n0", 40)]


def test_a_task_waits_for_room_that_another_holds() -> None:
    c = cluster.preset("dgx-h100").scale(nodes=2)
    g = Graph()
    g.add(None, cost=0.5, name="looks again in the middle")
    for name in "ab":
        g.add(None, reads=[g.data(name, nbytes=60, home=c.node(1).name)], cost=1.0, name=name)
    for memory, at_once in ((100, False), (120, True)):
        run = g.run(Virtual(c, memory=memory))
        run.trace.check(g)
        assert (spans(run)["b"][0] < spans(run)["a"][1]) is at_once


def spans(run: Any) -> dict[str, tuple[int, int]]:
    table = run.trace.table()
    bodies = table.filter(table["kind"] != "link")
    return {name: (start, end) for name, start, end in zip(bodies["name"], bodies["started"], bodies["ended"])}


def test_a_copy_that_leaves_cannot_be_read_any_more() -> None:
    c = cluster.preset("dgx-h100").scale(nodes=2)
    g = Graph()
    x, y = (g.data(name, nbytes=60, home=c.node(1).name) for name in "xy")
    g.add(None, writes=[x], cost=1.0, name="write")
    g.add(None, reads=[y], cost=1.0, name="y", after=g.tasks[:1])
    g.add(None, reads=[x], cost=1.0, name="x")
    run = g.run(Virtual(c, memory=100))
    run.trace.check(g)
    assert [nbytes for _, _, nbytes in moves(run)] == [60, 60, 60]
    assert spans(run)["x"][0] > spans(run)["y"][1]


def test_parts_of_one_array_move_apart() -> None:
    g = Graph()
    a = g.data("a", nbytes=100, shape=(10,))
    for part in (a[0:5], a[5:10], a[2:4]):
        g.add(None, reads=[part], cost=1.0, on=("q",))
    run = one_after_the_other(g).run(two_nodes())
    assert [nbytes for _, _, nbytes in moves(run)] == [50, 50]
    assert run.seconds == 50 + 1 + 50 + 1 + 1


def test_a_device_has_a_memory_of_its_own() -> None:
    c = cluster.preset("dgx-h100").scale(nodes=2)
    g = Graph()
    x = g.data("x", nbytes=10**9)
    for _ in range(2):
        g.add(None, reads=[x], cost=1.0, on=("gpu",), after=g.tasks)
    run = g.run(Virtual(c))
    alpha, beta = c.alpha_beta("n0/socket:0", "n0/device:0")
    assert [nbytes for _, _, nbytes in moves(run)] == [10**9]
    assert run.seconds == pytest.approx(2 + alpha + beta * 10**9, rel=1e-6)
    y = g.data("y", nbytes=10**9, home=f"{c.node(1).name}/device:0")
    g.add(None, reads=[y], cost=1.0, on=("gpu",), after=g.tasks)
    assert len(moves(g.run(Virtual(c)))) == 2
    g.data("z", nbytes=1, home="nowhere")
    with pytest.raises(InputError, match='unknown home "nowhere"'):
        g.run(Virtual(c))


def test_an_update_of_a_part_needs_room_beside_what_it_came_from() -> None:
    for memory, again in ((70, 0), (60, 30)):
        g = Graph()
        a, b = g.data("a", nbytes=40, shape=(4,)), g.data("b", nbytes=30)
        for access in ({"reads": [b]}, {"updates": [a[0:2]]}, {"reads": [b]}):
            g.add(None, cost=1.0, on=("q",), **access)  # type: ignore[arg-type]
        # 20 bytes of a come and 20 are written; b stays where there is room for 70.
        assert one_after_the_other(g).run(two_nodes(memory)).seconds == 30 + 1 + 20 + 1 + again + 1


def test_a_task_larger_than_the_memory_is_refused() -> None:
    g = sized(a=60)
    reader(g, "a")
    with pytest.raises(InputError, match="a#0 accesses 60 bytes; the memory of a q worker holds 50"):
        g.run(two_nodes(50))
    with pytest.raises(InputError, match="memory"):
        two_nodes(0)


# Lost nodes


def after_a_loss(dies: float, home: str | None = None, policy: str = "fifo") -> tuple[Graph, Any]:
    """n1 makes x; n0 works until 20 and then reads x, which takes 5 s to come; n2 could make x again."""
    g = Graph()
    x = g.data("x", nbytes=5)
    y = g.data("y", nbytes=3, home=home)
    g.add(None, name="make", reads=[y], writes=[x], cost=10.0, on=("q",))
    wait = g.add(None, name="wait", cost=20.0, on=("p",))
    g.add(None, name="read", reads=[x], cost=1.0, on=("p",), after=[wait], retries=0)
    return g, g.run(Virtual(("p", "q", "q"), bandwidth=1.0, failures={"n1": dies}), policy=policy)


def test_data_lost_with_a_node_is_made_again() -> None:
    # make again on n2: y comes 3 s, 10 s; x comes 5 s; read 1 s.
    g, run = after_a_loss(15.0)
    run.trace.check(g)
    assert run.seconds == 20 + 3 + 10 + 5 + 1
    table = run.trace.table()
    rows = table.filter((table["name"] == "make") & (table["kind"] != "link")).sort("attempt")
    assert list(zip(rows["attempt"], rows["status"], rows["node"])) == [(1, "done", "n1"), (2, "done", "n2")]
    assert not run.failed


def test_data_that_left_in_time_is_not_made_again() -> None:
    _, run = after_a_loss(25.5)
    assert run.seconds == 20 + 5 + 1


def test_data_on_its_way_from_a_dying_node_does_not_arrive() -> None:
    _, run = after_a_loss(22.0)
    assert run.seconds == 22 + 3 + 10 + 5 + 1


def test_a_copy_that_outlives_the_written_one_goes_home_before_it_is_forgotten() -> None:
    """q writes x and r reads it; q's node and x's home die; r needs the room; then p reads x, which has gone to the first node."""
    g = Graph()
    x, y = g.data("x", nbytes=60, home="n3"), g.data("y", nbytes=60)
    g.add(None, writes=[x], cost=1.0, on=("q",))
    g.add(None, reads=[x], cost=100.0, on=("r",))
    g.add(None, reads=[y], cost=1.0, on=("r",))
    g.add(None, reads=[x], cost=1.0, on=("p",))
    one = Virtual(("p", "q", "r", "s"), bandwidth=1.0, memory=100, failures={"n1": 100.0, "n3": 110.0})
    run = one_after_the_other(g).run(one)
    run.trace.check(g)
    assert set(run.trace["attempt"].tolist()) == {1}
    assert run.seconds == 1 + 60 + 100 + 60 + 60 + 1 + 1


def test_a_node_that_dies_while_it_makes_lost_data_again() -> None:
    g, _ = after_a_loss(15.0)
    run = g.run(Virtual(("p", "q", "q", "q"), bandwidth=1.0, failures={"n1": 15.0, "n2": 25.0}))
    run.trace.check(g)
    assert run.seconds == 25 + 3 + 10 + 5 + 1
    assert not run.failed


def test_what_was_there_at_the_start_cannot_be_made_again() -> None:
    g, run = after_a_loss(15.0, home="n1")
    run.trace.check(g)
    assert isinstance(run.failed["read#2"], WorkerLost)
    assert "data y" in str(run.failed["read#2"])


@pytest.mark.parametrize("policy", ["fifo", "steal", "priority", "heft", "dm", "dmda", "locality"])
def test_every_policy_goes_on_without_the_lost_workers(policy: str) -> None:
    g = cholesky(5, cost=1.0, tile_bytes=3)
    for task in g.tasks:
        task.retries = 1
    one = Virtual(("cpu",) * 3, bandwidth=5.0, failures={"n1": 6.0}, noise=0.1)
    runs = [g.run(one, policy=policy) for _ in range(2)]
    runs[0].trace.check(g)
    assert not runs[0].failed
    assert not runs[0].cancelled
    assert np.array_equal(runs[0].trace.rows, runs[1].trace.rows)


def test_a_task_that_nobody_is_left_to_run_fails() -> None:
    g = Graph()
    g.add(None, name="first", cost=2.0, on=("p",), key="first")
    g.add(None, name="then", cost=1.0, on=("q",), after=g.tasks, key="then")
    for policy in ("fifo", "dm", "heft"):
        run = g.run(Virtual(("p", "q"), failures={"n1": 1.0}), policy=policy)
        assert list(run.failed) == ["then"]
        assert "no worker is left" in str(run.failed["then"])


class Watched(Transfers):
    """Looks at the books whenever something changes."""

    seen: float = 0.0

    def _look(self) -> None:
        for place, held in enumerate(self.memories.held):
            assert self.memories.used[place] >= sum(copy.nbytes for copy in held) - 1e-9
            assert all(copy in copy.layer.copies or place in self._dead for copy in held)
            assert self.memories.used[place] <= self.memories.capacities[place] + 1e-9
            Watched.seen = max(Watched.seen, self.memories.used[place])

    def claim(self, *given: Any) -> bool:
        found = super().claim(*given)
        # While a dirty copy leaves, the room that it leaves is promised already.
        if not any(copy.leaving for held in self.memories.held for copy in held):
            self._look()
        return found


@given(st.integers(0, 999), st.integers(12, 40), st.booleans(), st.sampled_from(["fifo", "lifo", "heft", "dmda", "locality"]))
@settings(max_examples=40, deadline=None)
def test_memories_never_hold_more_than_they_have(seed: int, memory: int, fails: bool, policy: str) -> None:
    draws = np.random.default_rng(seed)
    g = Graph()
    handles = [g.data(f"d{i}", nbytes=int(draws.integers(1, 5))) for i in range(6)]
    for _ in range(30):
        a, b = draws.choice(6, 2, replace=False)
        written: dict[str, Any] = {"writes" if draws.integers(3) == 0 else "updates": [handles[b]]}
        g.add(None, reads=[handles[a]], cost=float(draws.integers(1, 4)), retries=1, **written)
    failures = {"n2": float(draws.integers(1, 40))} if fails else None
    Watched.seen = 0.0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("armillary.tasks.virtual.Transfers", Watched)
        run = g.run(Virtual(("cpu",) * 3, bandwidth=2.0, memory=memory, failures=failures), policy=policy)
    run.trace.check(g)
    assert not run.failed
    assert not run.cancelled
    assert set(run.trace["task"].tolist()) == set(range(30))
    assert 0 < Watched.seen <= memory


def test_room_enough_changes_nothing() -> None:
    g = cholesky(6, cost=1.0, tile_bytes=7)
    runs = [g.run(Virtual(("cpu",) * 3, bandwidth=3.0, memory=memory)) for memory in (None, 10**9)]
    assert np.array_equal(runs[0].trace.rows, runs[1].trace.rows)


# Named resources


def test_named_resources_are_held_on_each_node() -> None:
    g = Graph()
    for k in range(6):
        g.add(None, name=f"t{k}", cost=1.0, needs={"licence": 1} if k < 3 else None)
    for backfill, seconds in ((True, 3), (False, 4)):
        run = g.run(Virtual(3, resources={"licence": 1}, backfill=backfill))
        run.trace.check(g)
        assert run.seconds == seconds
    two = g.run(Virtual(("cpu", "cpu", "cpu"), resources={"licence": 1}))
    two.trace.check(g)
    assert two.seconds == 2
    with pytest.raises(InputError, match="t0#0 needs 1 licence; no node has more than 0"):
        g.run(Virtual(3))
    with pytest.raises(InputError, match="licence"):
        Virtual(3, resources={"licence": -1.0})


def test_memory_that_a_task_needs_is_that_of_its_node() -> None:
    c = cluster.preset("dgx-h100").scale(nodes=1)
    size = float(c.node(0).memory().size or 0.0)
    g = Graph()
    for _ in range(3):
        g.add(None, name="t", cost=1.0, needs={"memory": 0.6 * size})
    assert g.run(Virtual(c)).seconds == 3
    g.add(None, name="t", cost=1.0, needs={"memory": 1.1 * size}, key="huge")
    with pytest.raises(InputError, match="huge needs"):
        g.run(Virtual(c))


# Backfilling


def begins(run: Any) -> dict[str, float]:
    return {name: start / 1e9 for name, start in zip(run.trace.table()["name"], run.trace["started"])}


def test_tasks_of_several_cores_backfill() -> None:
    g = Graph()
    g.add(None, name="long", cost=10.0, needs={"cores": 2})
    g.add(None, name="wide", cost=5.0, needs={"cores": 4})
    g.add(None, name="too long", cost=11.0, needs={"cores": 1})
    g.add(None, name="pair", cost=10.0, needs={"cores": 2})
    g.add(None, name="last", cost=1.0)
    run = g.run(Virtual(4, backfill=True))
    run.trace.check(g)
    assert begins(run) == {"long": 0, "pair": 0, "wide": 10, "too long": 15, "last": 15}


def test_what_the_waiting_task_can_spare_backfills_however_long() -> None:
    g = Graph()
    g.add(None, name="long", cost=10.0, needs={"cores": 2})
    g.add(None, name="wide", cost=5.0, needs={"cores": 3})
    g.add(None, name="first", cost=100.0, needs={"cores": 1})
    g.add(None, name="second", cost=100.0, needs={"cores": 1})
    assert begins(g.run(Virtual(4, backfill=True))) == {"long": 0, "wide": 10, "first": 0, "second": 15}


def test_licences_are_reserved_too() -> None:
    g = Graph()
    g.add(None, name="long", cost=10.0, needs={"cores": 2})
    g.add(None, name="wide", cost=5.0, needs={"cores": 3, "licence": 1})
    g.add(None, name="taker", cost=100.0, needs={"licence": 1})
    g.add(None, name="free", cost=100.0)
    assert begins(g.run(Virtual(4, resources={"licence": 1}, backfill=True))) == {"long": 0, "wide": 10, "taker": 15, "free": 0}


def test_licences_that_come_free_are_foreseen() -> None:
    g = Graph()
    g.add(None, name="holds", cost=10.0, needs={"licence": 1})
    g.add(None, name="other", cost=50.0)
    g.add(None, name="waits", cost=5.0, needs={"cores": 2, "licence": 1})
    g.add(None, name="delays", cost=20.0, needs={"cores": 2})
    run = g.run(Virtual(4, resources={"licence": 1}, backfill=True))
    assert begins(run) == {"holds": 0, "other": 0, "waits": 10, "delays": 15}


def test_what_is_put_back_keeps_its_turn() -> None:
    g = random_layered(1, 4)
    a, b, c, d = g.tasks
    for policy, order in ((Fifo(), [a, b, c, d]), (Lifo(), [d, c, b, a])):
        for task in g.tasks:
            policy.push(task)
        popped = [policy.pop(0), policy.pop(0)]
        policy.put_back(popped)  # type: ignore[arg-type]
        assert [policy.pop(0) for _ in range(4)] == order
    steal = Steal(1)
    for task in g.tasks:
        steal.push(task)
    steal.put_back([steal.pop(0), steal.pop(0)])  # type: ignore[list-item]
    assert [steal.pop(0) for _ in range(4)] == [d, c, b, a]


def test_a_plan_keeps_what_is_put_back_unless_its_worker_died() -> None:
    g = random_layered(1, 4)
    heft = Heft()
    heft.prepare(g, Virtual(2).site)
    for task in g.tasks:
        heft.push(task)
    planned = list(iter(lambda: heft.pop(0), None))
    heft.put_back(planned)
    assert list(iter(lambda: heft.pop(0), None)) == planned
    heft.lost([0])
    heft.put_back(planned)
    assert set(iter(lambda: heft.pop(1), None)) == set(g.tasks)
