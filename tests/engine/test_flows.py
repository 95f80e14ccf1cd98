"""Flows and pools in simulated time: by hand first, then what must hold whatever happens, then what a cluster's links do."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary import cluster
from armillary.engine import Activity, Deadlock, LinkDown, Network, NetworkModel, Pool, Simulation
from armillary.errors import InputError


def star(nodes=4, rate="1 GB/s", latency="10 us", **node):
    tables = {"nic": [{"rate": rate, "network": "net"}], **node}
    return cluster.from_dict(
        {
            "armillary": 1,
            "name": "star",
            "group": [{"name": "h", "count": nodes, "node": tables}],
            "network": {"net": {"topology": "star", "rate": rate if isinstance(rate, str) else "10 GB/s", "latency": latency}},
        }
    )


def ends(sim, activities):
    """Run, and say when each was done."""
    found = {}
    for i, activity in enumerate(activities):
        activity.callbacks.append(lambda event, i=i: found.__setitem__(i, sim.now))
    sim.run()
    return [found.get(i) for i in range(len(activities))]


# By hand


def test_three_flows_over_two_links():
    sim = Simulation()
    one, two = Pool(sim, 1e6, "L1"), Pool(sim, 2e6, "L2")
    flows = [Activity(sim, 1e6, [one]), Activity(sim, 1e6, [one, two]), Activity(sim, 6e6, [two])]
    assert [f.rate for f in flows] == [0.5e6, 0.5e6, 1.5e6]
    assert (one.used, two.used) == (1e6, 2e6)
    assert ends(sim, flows) == [2.0, 2.0, 3.5]


def test_an_activity_that_joins_late_slows_the_others_from_then_on():
    sim = Simulation()
    disk = Pool(sim, 100.0)
    first = disk.use(100.0)
    late = []
    sim.after(0.5, lambda: late.append(disk.use(25.0)))
    sim.run(until=0.75)
    assert (first.rate, first.remaining, late[0].remaining) == (50.0, 37.5, 12.5)
    assert ends(sim, [first, late[0]]) == [1.25, 1.0]


def test_a_capacity_that_changes_in_the_middle():
    sim = Simulation()
    link = Pool(sim, 10.0)
    flow = link.use(100.0)
    link.set_capacity(5.0, at=4.0)
    link.set_capacity(0.0, at=6.0)
    link.set_capacity(50.0, at=9.0)
    assert ends(sim, [flow]) == [10.0]


def test_an_end_that_was_put_forward_leaves_nothing_behind():
    sim = Simulation()
    link = Pool(sim, 10.0)
    flow = link.use(100.0)
    link.set_capacity(50.0, at=5.0)
    assert ends(sim, [flow]) == [6.0]
    assert sim.now == 6.0


def test_bytes_that_arrive_are_those_that_were_sent():
    """What the links carried, summed up between changes, is what was asked for."""
    sim = Simulation()
    net = Network(sim, star(6, latency="0 s"))
    rng = np.random.default_rng(5)
    asked, carried, last = 0.0, 0.0, 0.0
    flows = []
    for _ in range(60):
        a, b = rng.choice(6, 2, replace=False).tolist()
        nbytes = float(rng.exponential(1e8))
        asked += nbytes
        flows.append(net.flow(a, b, nbytes))
        rate = sum(f.rate for f in flows)
        step = min(float(rng.exponential(0.01)), sim.peek() - sim.now)
        sim.run(until=sim.now + step)
        carried += rate * (sim.now - last)
        last = sim.now
    while sim.peek() < math.inf:
        rate = sum(f.rate for f in flows)
        after = sim.peek()
        sim.run(until=after + 1e-15)
        carried += rate * (sim.now - last)
        last = sim.now
    assert all(f.happened for f in flows)
    assert carried == pytest.approx(asked, rel=1e-6)


def test_a_stalled_activity_is_a_deadlock_that_says_so():
    sim = Simulation()
    link = Pool(sim, 0.0, "link")

    def sender():
        yield link.use(10.0, name="copy")

    sim.process(sender())
    with pytest.raises(Deadlock, match=r"sender waits for copy \(10 of 10 left, rate 0\)"):
        sim.run()


def test_an_aggregation_tree_is_one_activity():
    sim = Simulation()
    up = [Pool(sim, 10.0) for _ in range(3)]
    switch, down = Pool(sim, 15.0), Pool(sim, 10.0)
    tree = Activity(sim, 50.0, {**dict.fromkeys(up, 1.0), switch: 3.0, down: 1.0})
    assert tree.rate == 5.0
    other = up[0].use(5.0)
    assert (other.rate, switch.used, down.used) == (5.0, 15.0, 5.0)
    assert ends(sim, [tree, other]) == [10.0, 1.0]


def test_background_waits_for_foreground():
    sim = Simulation()
    link = Pool(sim, 10.0)
    background, foreground = link.use(100.0, priority=1), link.use(50.0)
    assert (background.rate, foreground.rate) == (0.0, 10.0)
    assert ends(sim, [background, foreground]) == [15.0, 5.0]


def test_weights_and_caps_may_change_on_the_way():
    sim = Simulation()
    link = Pool(sim, 12.0)
    a, b = link.use(120.0), link.use(120.0)
    sim.run(until=5.0)
    a.set_weight(3.0)
    assert (a.rate, b.rate) == (9.0, 3.0)
    a.set_cap(2.0)
    assert (a.rate, b.rate) == (2.0, 10.0)
    a.set_cap(None)
    assert ends(sim, [a, b])[0] == 15.0


def test_a_cancelled_activity_never_happens_and_frees_its_share():
    sim = Simulation()
    link = Pool(sim, 10.0)
    kept, gone = link.use(20.0), link.use(1000.0)
    delayed = link.use(5.0, delay=0.5)
    sim.after(2.0, gone.cancel)
    delayed.cancel()
    assert ends(sim, [kept, gone, delayed]) == [3.0, None, None]
    assert link.activities == []


def test_no_work_takes_no_time():
    sim = Simulation()
    assert Pool(sim, 1.0).use(0.0).happened
    assert Activity(sim, 5.0, []).rate == math.inf
    sim.run()
    assert sim.now == 0.0


def test_changes_of_one_instant_are_solved_once():
    sim = Simulation()
    link = Pool(sim, 10.0)

    def one():
        yield link.use(1.0)

    for _ in range(50):
        sim.process(one())
    sim.run()
    assert sim.now == 5.0
    assert sim.sharing.solves == 2


def test_activities_that_finish_together_happen_in_the_order_of_asking():
    sim, log = Simulation(), []
    pools = [Pool(sim, 3.0), Pool(sim, 7.0)]

    def one(i):
        yield pools[i % 2].use((3.0, 7.0)[i % 2])
        log.append(i)

    for i in range(8):
        sim.process(one(i))
    sim.run()
    assert log == list(range(8))
    assert sim.now == 4.0


def test_a_failed_pool_fails_who_uses_it_and_holds_nothing():
    sim, log = Simulation(), []
    link, other = Pool(sim, 10.0, "cable"), Pool(sim, 10.0)

    def sender(pools):
        try:
            yield Activity(sim, 100.0, pools)
            log.append(("done", sim.now))
        except LinkDown as error:
            log.append((str(error), sim.now))

    sim.process(sender([link, other]))
    sim.process(sender([other]))
    link.fail(at=2.0)
    sim.run(until=3.0)
    assert log == [("cable is down", 2.0)]
    assert link.down
    assert other.used == 10.0
    sim.process(sender([link]))
    sim.run(until=4.0)
    assert log[-1] == ("cable is down", 3.0)
    link.restore()
    sim.process(sender([link]))
    sim.run()
    assert log[2:] == [("done", 11.0), ("done", 14.0)]
    assert link.used == other.used == 0.0
    assert not sim._processes


def test_a_failure_that_nobody_waits_for_ends_the_run():
    sim = Simulation()
    link = Pool(sim, 1.0, "cable")
    link.use(10.0)
    link.fail(at=1.0)
    with pytest.raises(LinkDown, match="cable is down"):
        sim.run()


# What must hold


@st.composite
def workloads(draw):
    pools = draw(st.lists(st.floats(0.5, 20.0), min_size=1, max_size=4))
    jobs = draw(
        st.lists(
            st.tuples(
                st.floats(0.0, 5.0),
                st.floats(0.1, 50.0),
                st.sets(st.integers(0, len(pools) - 1), min_size=1),
                st.floats(0.2, 4.0),
                st.one_of(st.none(), st.floats(0.1, 5.0)),
            ),
            min_size=1,
            max_size=12,
        )
    )
    return pools, jobs


def run(pools, jobs, work=1.0, rate=1.0):
    sim = Simulation()
    shared = [Pool(sim, c * rate) for c in pools]
    flows = [
        Activity(sim, w * work, [shared[i] for i in sorted(which)], weight=p, cap=None if cap is None else cap * rate, delay=start)
        for start, w, which, p, cap in jobs
    ]
    return ends(sim, flows)


@settings(max_examples=40, deadline=None)
@given(workloads())
def test_a_thousand_times_the_work_on_a_thousand_times_the_capacity_takes_as_long(workload):
    pools, jobs = workload
    np.testing.assert_allclose(run(pools, jobs, 1000.0, 1000.0), run(pools, jobs), rtol=1e-9)


@settings(max_examples=40, deadline=None)
@given(workloads())
def test_small_steps_of_time_give_the_same_ends(workload):
    """An independent simulation: fresh rates at every change, work reduced by hand."""
    from armillary.engine import max_min

    pools, jobs = workload
    left = [w for _, w, *_ in jobs]
    done = [None] * len(jobs)
    now = 0.0
    for _ in range(4 * len(jobs)):
        if None not in done:
            break
        on = [i for i, job in enumerate(jobs) if done[i] is None and job[0] <= now]
        rates = max_min(
            pools, [sorted(jobs[i][2]) for i in on], weights=[jobs[i][3] for i in on], caps=[jobs[i][4] or math.inf for i in on]
        )
        coming = [job[0] for job in jobs if job[0] > now]
        after = min([now + left[i] / r for i, r in zip(on, rates, strict=True)] + coming)
        for i, r in zip(on, rates, strict=True):
            left[i] -= r * (after - now)
            if left[i] <= 1e-9 * jobs[i][1]:
                done[i] = after
        now = after
    np.testing.assert_allclose(run(pools, jobs), done, rtol=1e-7, atol=1e-9)


def test_a_change_of_few_ends_among_many_keeps_the_order_of_all():
    """Each rank of 8 × 8 exchanges with 48 neighbours at once, so that changes of some ends meet thousands of others.

    Ends that were all changed before any of them was put in its place left others out of order, and one of them came due in the past.
    """
    from armillary.comm import Ghost, waitall
    from armillary.comm import run as ranks_of

    def halo(ranks):
        row, column = divmod(ranks.rank, 8)
        near = sorted({(row + i) % 8 * 8 + (column + j) % 8 for i in range(-3, 4) for j in range(-3, 4)} - {ranks.rank})
        block = Ghost(4096)
        waitall([*(ranks.irecv(block, r) for r in near), *(ranks.isend(block, r) for r in near)])

    found = ranks_of(
        halo, ranks=64, backend="virtual", cluster="slingshot-200", placement=list(range(64)), model="flow", payload="ghost"
    ).seconds
    # Every NIC of 200 Gb/s sends and receives 48 blocks, and a rank spends its overheads on each of them one after the other.
    assert 48 * 4096 / 25e9 < found < 20 * 48 * 4096 / 25e9


def test_a_weighted_flow_is_as_good_as_equal_flows_on_one_path():
    def finish(bundled):
        sim = Simulation()
        a, b = Pool(sim, 10.0), Pool(sim, 7.0)
        others = [a.use(30.0), b.use(40.0)]
        bundle = [Activity(sim, 60.0, [a, b], weight=6.0)] if bundled else [Activity(sim, 10.0, [a, b]) for _ in range(6)]
        found = ends(sim, others + bundle)
        return [*found[:2], max(found[2:])]

    np.testing.assert_allclose(finish(True), finish(False), rtol=1e-9)


# A cluster's links


def test_a_flow_takes_the_latency_then_its_bytes_at_the_rate_of_the_nic():
    sim = Simulation()
    net = Network(sim, star())
    flow = net.flow(0, 1, 1e6)
    sim.run(until=5e-6)
    assert (flow.rate, net.uplink(0).used) == (0.0, 0.0)
    assert ends(sim, [flow]) == [pytest.approx(10e-6 + 1e-3, rel=1e-12)]


def test_no_bytes_take_the_latency_only():
    sim = Simulation()
    assert ends(sim, [Network(sim, star()).flow(0, 1, 0)]) == [pytest.approx(10e-6, rel=1e-12)]
    sim = Simulation()
    without = Network(sim, star(), model=NetworkModel(latency_factor=0.0))
    assert ends(sim, [without.flow(0, 1, 1e6)]) == [1e-3]


def test_sixty_four_senders_share_the_receivers_link():
    sim = Simulation()
    net = Network(sim, star(65, latency="1 us"))
    found = ends(sim, [net.flow(i, 64, 1e6) for i in range(64)])
    assert found == pytest.approx([64e-3 + 1e-6] * 64, rel=1e-9)


def test_both_directions_of_a_link_are_apart_unless_acknowledgements_count():
    sim = Simulation()
    net = Network(sim, star(latency="0 s"))
    assert ends(sim, [net.flow(0, 1, 1e9), net.flow(1, 0, 1e9)]) == [1.0, 1.0]
    sim = Simulation()
    net = Network(sim, star(latency="0 s"), model=NetworkModel(crosstraffic=0.05))
    assert ends(sim, [net.flow(0, 1, 1e9), net.flow(1, 0, 1e9)]) == pytest.approx([1.05, 1.05], rel=1e-12)


def test_a_nic_may_be_faster_one_way():
    sim = Simulation()
    net = Network(sim, star(3, rate={"up": "1 GB/s", "down": "4 GB/s"}, latency="0 s"))
    assert (net.uplink(1).capacity, net.downlink(1).capacity) == (1e9, 4e9)
    assert ends(sim, [net.flow(0, 2, 1e9), net.flow(1, 2, 1e9)]) == [1.0, 1.0]


def test_inside_a_node_a_flow_uses_the_memory_and_no_link():
    memory = [{"kind": "dram", "bandwidth": "10 GB/s", "copy_bandwidth_per_core": "4 GB/s", "size": "1 GB"}]
    sim = Simulation()
    net = Network(sim, star(2, memory=memory))
    alone = net.flow(0, "n0", 4e9)
    assert alone.rate == 4e9
    flows = [alone, *(net.flow(0, 0, 4e9) for _ in range(3))]
    assert [f.rate for f in flows] == [2.5e9] * 4
    assert ends(sim, flows) == [1.6] * 4
    with pytest.raises(InputError, match="no memory"):
        Network(Simulation(), star()).flow(0, 0, 1.0)


def test_devices_behind_a_switch_share_their_ports():
    sim = Simulation()
    net = Network(sim, cluster.preset("ina-6x2"))
    flows = [net.flow("n0/device:0", f"n0/device:{i}", 300e6) for i in (1, 2)]
    found = ends(sim, flows)
    assert found == pytest.approx([0.5e-6 + 2e-3] * 2, rel=1e-9)


def test_a_device_leaves_its_node_by_a_nic():
    sim = Simulation()
    net = Network(sim, cluster.preset("ina-6x2"))
    way = net.route("n0/device:0", "n3/device:1")
    alone = net.route("n0/nic:0", "n3/nic:0")
    assert len(way.links) == len(alone.links) == 2
    assert way.latency > alone.latency
    assert net.flow("n0/device:0", "n3/device:1", 1e9, latency=0.0).rate == 12.5e9


def test_a_switch_with_a_capacity_is_shared_by_all_that_cross_it():
    sim = Simulation()
    net = Network(sim, cluster.preset("two-clusters-insitu"))
    flows = [net.flow(i, i + 20, 1e9, latency=0.0) for i in range(20)]
    assert sum(f.rate for f in flows) == pytest.approx(10e9 / 8, rel=1e-9)


def test_disks_and_shared_file_systems_are_pools():
    sim = Simulation()
    net = Network(sim, cluster.preset("two-clusters-insitu"))
    assert ends(sim, [net.storage(0, "ssd", "write").use(510e6)]) == [1.0]
    assert net.storage(0, "pfs") is net.storage(300, "pfs")
    assert net.storage(0, "ssd") is not net.storage(1, "ssd")
    slow = net.flow(0, 1, 1e6, also=[Pool(sim, 1e3)])
    sim.run(until=sim.now + 1.0)
    assert slow.rate == 1e3


def test_routes_of_a_fat_tree_spread_over_its_roots():
    sim = Simulation()
    net = Network(sim, cluster.preset("fat-tree-1k"))
    fabric = net.fabric()
    tops = set()
    for target in range(512, 576):
        way = net.route(0, target).links
        assert len(way) == 6
        tops.add(fabric.ends(way[2])[1])
    assert len(tops) == 64, "64 hosts behind 8 switches of a pod are reached by 64 different roots"
    for source, target in itertools.pairwise([0, 700, 3, 1023, 17]):
        way = net.route(source, target).links
        assert all(fabric.ends(a)[1] == fabric.ends(b)[0] for a, b in itertools.pairwise(way))


@pytest.mark.parametrize("name", ["fat-tree-1k", "dragonfly-10k", "torus-4096", "slingshot-200"])
def test_routes_are_as_short_as_those_of_the_cluster(name):
    described = cluster.preset(name)
    graph = described.graph()
    rng = np.random.default_rng(1)
    a, b = rng.integers(0, len(graph.endpoints), (2, 40))
    theirs = graph.routes(a, b)
    for routing in ("static", "ecmp"):
        router = Network(Simulation(), described, routing=routing, seed=9).fabric().router
        for x, y, links in zip(a.tolist(), b.tolist(), theirs, strict=True):
            ours = router.route(x, y, flow=5)
            weight = graph.weight
            assert sum(weight[link >> 1] for link in ours) == sum(weight[link >> 1] for link in links[links >= 0])


def test_ecmp_spreads_the_flows_of_one_pair_and_repeats():
    def ways(seed):
        net = Network(Simulation(), cluster.preset("fat-tree-1k"), routing="ecmp", seed=seed)
        return [net._find(0, 1000, None, flow).links for flow in range(50)]

    assert ways(1) == ways(1)
    assert ways(1) != ways(2)
    assert len(set(ways(1))) > 20


def test_a_path_of_ones_own():
    sim = Simulation()
    net = Network(sim, star())
    mine = Pool(sim, 1e3)
    assert ends(sim, [net.flow(0, 1, 1e3, path=[mine], latency=2.0)]) == [3.0]


def test_a_rate_asked_for_is_kept():
    sim = Simulation()
    net = Network(sim, star(latency="0 s"))
    assert ends(sim, [net.flow(0, 2, 1e8, rate=1e8), net.flow(1, 2, 0.9e9)]) == pytest.approx([1.0, 1.0])


def test_a_link_that_goes_down_fails_its_flows():
    sim, seen = Simulation(), []
    net = Network(sim, star())

    def sender(target):
        try:
            yield net.flow(0, target, 1e9)
        except LinkDown:
            seen.append((target, sim.now))

    sim.process(sender(1))
    sim.process(sender(2))
    net.downlink(1).fail(at=0.25)
    sim.run()
    assert seen == [(1, 0.25)]


def test_flows_of_a_timeline_do_not_overlap_on_a_track():
    sim = Simulation(timeline=True)
    net = Network(sim, star(8))
    rng = np.random.default_rng(3)

    def rank(i):
        for _ in range(5):
            yield float(rng.random()) * 1e-3
            yield sim.all_of(*(net.flow(i, int(j), 1e5 * (1 + int(j))) for j in rng.integers(0, 8, 3) if j != i))

    for i in range(8):
        sim.process(rank(i))
    sim.run()
    spans = sim.timeline.frame()
    assert len(spans) == net.flows
    for _, track in spans.group_by("process", "thread"):
        ordered = track.sort("start")
        assert (ordered["start"][1:] >= ordered["end"][:-1]).all()


def disconnected(tmp_path):
    (tmp_path / "net.csv").write_text("from,to,rate,latency\nh0,s0,1 GB/s,1 us\nh1,s1,1 GB/s,1 us\n")
    return cluster.from_dict(
        {
            "armillary": 1,
            "name": "two",
            "group": [{"name": "h", "count": 2, "node": {"nic": [{"rate": "1 GB/s", "network": "net"}]}}],
            "network": {"net": {"topology": "file", "edges": "net.csv", "endpoints": "h"}},
        },
        base=tmp_path,
    )


def test_nodes_that_no_links_join_are_both_named(tmp_path):
    net = Network(Simulation(), disconnected(tmp_path))
    with pytest.raises(InputError, match="node 0 NIC 0 cannot reach node 1 NIC 0"):
        net.flow(0, 1, 1.0)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda net: net.flow(0, 99, 1.0), "node 99 does not exist"),
        (lambda net: net.flow("nowhere", 0, 1.0), "expected a node number, or a place"),
        (lambda net: net.flow(0, 1, -1.0), "nbytes: found -1.0"),
        (lambda net: net.flow(0, 1, math.nan), "nbytes: found nan"),
        (lambda net: net.flow(0, 1, 1.0, weight=0.0), "weight"),
        (lambda net: net.flow(0, 1, 1.0, rate=math.nan), "rate"),
        (lambda net: net.flow(0, 1, 1.0, on="other"), "unknown network"),
        (lambda net: net.link(10_000), "link 10000 does not exist"),
        (lambda net: net.aggregation(0), "cannot aggregate"),
        (lambda net: net.storage(0, "tape"), "no memory"),
        (lambda net: Network(net.sim, net.cluster, routing="luck"), "unknown routing"),
        (lambda net: NetworkModel(crosstraffic=-1.0), "crosstraffic"),
        (lambda net: Pool(net.sim, -1.0), "capacity: found -1.0"),
        (lambda net: Pool(net.sim, math.nan), "capacity: found nan"),
        (lambda net: Pool(net.sim, 1.0, policy="lottery"), "unknown policy"),
        (lambda net: Pool(net.sim, 1.0).set_capacity(math.nan), "capacity"),
        (lambda net: Pool(net.sim, 1.0).use(math.inf), "work"),
        (lambda net: Activity(net.sim, 1.0, [Pool(Simulation(), 1.0)]), "pools of this simulation"),
        (lambda net: Activity(net.sim, 1.0, {Pool(net.sim, 1.0): 0.0}), "usage of pool"),
    ],
)
def test_bad_flows_are_input_errors(call, says):
    with pytest.raises(InputError, match=says):
        call(Network(Simulation(), star()))
