"""ARTS and HEFT are checked by hand and compared with a central queue that knows every workload."""

from __future__ import annotations

import heapq

import numpy as np
import pytest

from armillary.errors import InputError
from armillary.serving.tiers import Arts, earliest_finish
from armillary.serving.tiers.heft import upward_ranks

SEED = 11


def test_the_node_that_will_be_done_first():
    arts = Arts([10.0, 2.0])
    arts.queue = [10.0, 3.0]
    assert arts.pick(2.0) == 0  # 1.2 s against 2.5 s
    assert arts.queue == [12.0, 3.0]


def test_it_flips_when_the_node_has_become_slow():
    arts = Arts([10.0, 2.0], alpha=1.0)
    arts.queue = [10.0, 3.0]
    arts.done(0, 0.5, 0.5)
    assert arts.capacity == [1.0, 2.0]
    assert arts.pick(2.0) == 1


def test_observations_are_averaged():
    arts = Arts([1.0], alpha=0.3)
    arts.queue = [5.0]
    arts.done(0, 1.0, 2.0)
    assert arts.capacity == [pytest.approx(0.7 * 1.0 + 0.3 * 0.5)]
    assert arts.queue == [4.0]
    arts.done(0, 1.0, 2.0, booked=0.25)
    assert arts.queue == [3.75]


def test_ties_go_to_the_first():
    assert Arts([1.0, 1.0, 1.0]).pick(1.0) == 0


def test_nodes_without_memory_are_left_out():
    arts = Arts([10.0, 1.0], [5.0, 100.0])
    assert arts.pick(1.0, memory=6.0) == 1
    assert arts.pick(1.0, memory=4.0) == 0
    assert arts.pick(1.0, memory=4.0) == 1
    # If no node has room, the one whose queue is empty first is taken.
    assert arts.pick(1.0, memory=1000.0) == 0
    arts.release(0, 0.0, 1000.0)
    assert arts.free[0] == pytest.approx(1.0)


def test_a_work_for_every_node():
    assert Arts([1.0, 1.0]).pick([5.0, 2.0]) == 1


def test_late_news():
    arts = Arts([1.0, 1.0], staleness_s=10.0)
    assert [arts.pick(1.0, now=t) for t in (0.0, 1.0, 2.0)] == [0, 0, 0]
    assert arts.pick(1.0, now=10.5) == 1  # of the three the first is known


@pytest.mark.parametrize(
    ("nodes", "how"), [([[]], {}), ([[1.0, 0.0]], {}), ([[1.0], [1.0, 2.0]], {}), ([[1.0]], {"alpha": 0.0}), ([[1.0]], {"staleness_s": -1.0})]
)
def test_bad_nodes(nodes, how):
    with pytest.raises(InputError):
        Arts(*nodes, **how)


def waits(choose, arrivals, works, nodes):
    """Returns the mean wait before FIFO service on equal nodes that `choose` picks."""
    free = [0.0] * nodes
    ends: list[tuple[float, int, float, float]] = []
    total = 0.0
    for now, work in zip(arrivals, works, strict=True):
        while ends and ends[0][0] <= now:
            end, k, did, began = heapq.heappop(ends)
            choose.done(k, did, end - began, end)
        k = choose.pick(now, work, [max(0.0, f - now) for f in free])
        start = max(now, free[k])
        free[k] = start + work
        heapq.heappush(ends, (free[k], k, work, start))
        total += start - now
    return total / len(arrivals)


class Central:
    """Joins the node with the least workload, which it knows exactly."""

    def pick(self, now, work, left):
        return int(np.argmin(left))

    def done(self, *_):
        pass


class Seen:
    """ARTS, which learns of work when a node has done it."""

    def __init__(self, nodes):
        self.arts = Arts([1.0] * nodes)

    def pick(self, now, work, left):
        return self.arts.pick(work, now=now)

    def done(self, k, work, seconds, now):
        self.arts.done(k, work, seconds, now)


@pytest.mark.parametrize("nodes", [2, 5])
def test_on_equal_nodes_it_waits_little_longer_than_a_central_queue_and_no_longer_if_told_of_all_work(nodes):
    rng = np.random.default_rng(SEED)
    n = 30_000
    works = rng.lognormal(0.0, 0.5, n)
    arrivals = np.cumsum(rng.exponential(works.mean() / (0.85 * nodes), n))
    central, seen, told, turn = (waits(how, arrivals, works, nodes) for how in (Central(), Seen(nodes), Told(nodes), Turn(nodes)))
    assert central <= seen <= 1.25 * central
    assert told == pytest.approx(central, rel=0.03)
    assert seen < 0.9 * turn


class Told(Seen):
    """ARTS that is told of all work as it is done."""

    def pick(self, now, work, left):
        for k, rest in enumerate(left):
            self.arts.done(k, self.arts.queue[k] - rest, 0.0)
        return self.arts.pick(work, now=now)

    def done(self, *_):
        pass


class Turn:
    def __init__(self, nodes):
        self.nodes, self.next = nodes, -1

    def pick(self, now, work, left):
        self.next = (self.next + 1) % self.nodes
        return self.next

    def done(self, *_):
        pass


def test_upward_ranks_of_a_chain():
    assert upward_ranks([[2.0, 4.0], [1.0], [5.0]], [0.5, 0.25]) == [3.0 + 0.5 + 1.0 + 0.25 + 5.0, 1.0 + 0.25 + 5.0, 5.0]


def test_each_stage_where_it_ends_first():
    # In stage 0, node 1 is free at once but slower. Stage 1 can begin at 1 + 0.5, and its node 0 is busy until 4.
    nodes, end = earliest_finish([[2.0, 3.0], [4.0, 5.0]], [[0.5, 1.0], [1.0, 1.0]], [0.5], [[5.0, 0.0], [4.0, 0.0]])
    assert nodes == [1, 1]
    assert end == pytest.approx(1.5 + 5.0)
