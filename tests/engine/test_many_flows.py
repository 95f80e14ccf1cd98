"""A flow that stands for several equal ones ends when they would."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary import cluster
from armillary.engine import Activity, Event, Network, Pool, Simulation
from armillary.errors import InputError

STAR = cluster.preset("two-clusters-insitu")


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(1, 5), st.sampled_from([1e6, 3e6, 5e6]), st.sampled_from([None, 2e6])),
        min_size=1, max_size=6,
    )
)  # fmt: skip
def test_flows_end_as_their_singles_do(wanted: list[tuple[int, int, int, float, float | None]]) -> None:
    ended = []
    for together in (True, False):
        sim = Simulation()
        net = Network(sim, STAR)
        flows = []
        for a, b, count, nbytes, cap in wanted:
            if together:
                flows.append([net.flow(a, 256 + b, nbytes, rate=cap, count=count)])
            else:
                flows.append([net.flow(a, 256 + b, nbytes, rate=cap) for _ in range(count)])
        times: dict[int, float] = {}

        def note(i: int, sim: Simulation = sim, times: dict[int, float] = times) -> Callable[[Event], None]:
            return lambda _: times.__setitem__(i, sim.now)

        for i, group in enumerate(flows):
            for flow in group:
                assert flow.callbacks is not None
                flow.callbacks.append(note(i))
        sim.run()
        ended.append([times[i] for i in range(len(wanted))])
    assert ended[0] == pytest.approx(ended[1], rel=1e-9)


def test_a_fatpipe_limits_each_of_them() -> None:
    sim = Simulation()
    pool = Pool(sim, 10.0, policy="fatpipe")
    many = Activity(sim, 100.0, pool, count=7)
    assert many.work == 700.0
    sim.run()
    assert sim.now == pytest.approx(10.0)


def test_a_count_is_a_whole_number() -> None:
    sim = Simulation()
    with pytest.raises(InputError, match="count"):
        Activity(sim, 1.0, Pool(sim, 1.0), count=0)
