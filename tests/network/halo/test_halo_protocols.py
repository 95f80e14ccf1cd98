"""Patterns, plans by node, and what they take on virtual ranks."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary import comm
from armillary.errors import InputError
from armillary.network.halo import (
    BestStatic,
    DynamicHalo,
    DynamicProtocol,
    Pattern,
    StaticProtocol,
    advise,
    machine_of,
    miniamr,
    play,
    stencil3d,
)
from armillary.network.halo.patterns.amr import COARSE_FINE, SAME, _faces, amr_table, mesh
from armillary.network.halo.patterns.stencil import stencil_table
from armillary.network.halo.simulation.least import CannotWin, Least
from armillary.network.halo.simulation.plans import Fixed, moved
from armillary.network.halo.simulation.play import exchange

MACHINE = machine_of("infiniband-hdr100")
FAR, NEAR = ("rget", "rput", "rput-cached"), ("shm", "read", "write", "shared-copy", "loopback")
KIB, MIB = 1 << 10, 1 << 20


def pattern(sent, per_node, iterations=4):
    return Pattern((tuple(tuple(one) for one in sent),), (0,) * iterations, per_node)


def seconds(technique, one):
    return play(one, technique.planner(one, MACHINE)).seconds


def test_a_cube_of_27_has_26_neighbours_in_its_middle():
    table = stencil_table((3, 3, 3), 10)
    sizes = sorted(nbytes for _, nbytes in table[13])
    assert sizes == [8] * 8 + [80] * 12 + [800] * 6
    assert len(stencil_table((3, 3, 3), 10, 7)[13]) == 6
    assert len(stencil_table((3, 3, 3), 10, 19)[13]) == 18
    assert len(table[0]) == 7


@settings(max_examples=15, deadline=None)
@given(st.tuples(*[st.floats(0.1, 0.9)] * 3), st.integers(1, 3), st.integers(1, 4), st.floats(0.05, 0.45))
def test_a_mesh_fills_the_box_and_is_balanced(centre, base, levels, radius):
    leaves = mesh(base, levels, centre, radius)
    assert sum(1 / 8 ** leaf[0] for leaf in leaves) == pytest.approx(base**3)
    for leaf in leaves:
        for _, other in _faces(leaf, base):
            family = [(other[0] - up, *(x >> up for x in other[1:])) for up in range(other[0] + 1)]
            held = [one for one in family if one in leaves]
            assert not held or leaf[0] - held[0][0] <= 1, "a coarse neighbour is one level coarser at most"


def test_two_blocks_and_a_refined_one_by_hand():
    leaves = {(0, 0, 0, 0), (0, 0, 0, 1), (0, 0, 1, 1), (0, 0, 1, 0)} | {(0, 1, j, k) for j in (0, 1) for k in (0, 1)}
    assert sum(n for sent in amr_table(leaves, 2, 1, 8) for _, n in sent) == 24 * SAME
    leaves.remove((0, 0, 0, 0))
    leaves |= {(1, i, j, k) for i, j, k in np.ndindex(2, 2, 2)}
    table = amr_table(leaves, 2, 2, 15)
    assert sum(n for sent in table for _, n in sent) == (24 - 6 + 24) * SAME + 3 * 4 * 2 * COARSE_FINE


def test_messages_of_a_moving_sphere_change_every_five_steps():
    one = miniamr(4, 3, 8, 4, 10)
    assert one.epochs == (0,) * 5 + (1,) * 5
    assert one.tables[0] != one.tables[1]


def test_one_long_message_between_nodes_takes_its_closed_form():
    one = pattern([[(1, MIB)], []], 1, iterations=1)
    wire = MIB / MACHINE.nic
    cached = seconds(StaticProtocol("rput-cached", "read", first=True), one)
    rget = seconds(StaticProtocol("rget", "read"), one)
    assert wire + MACHINE.latency < cached < wire + 3 * MACHINE.latency + 4 * MACHINE.overhead
    assert cached < rget
    assert rget - cached == pytest.approx(MACHINE.latency, rel=1.0)


def test_with_nodes_of_one_rank_dynamic_is_the_cached_write():
    one = stencil3d((4, 2, 1), 64, 27, 1, 12)
    dynamic = seconds(DynamicProtocol(feedback=False), one)
    assert dynamic <= seconds(StaticProtocol(), one)
    # What is decided is charged once, before the iterations.
    assert dynamic == pytest.approx(seconds(StaticProtocol("rput-cached", "read", 65536, True), one), abs=0.5e-6 / 12 + 1e-9)


def test_on_one_node_copies_decide_and_the_nic_takes_a_part():
    one = stencil3d((2, 2, 2), 128, 7, 8, 6)
    planner = DynamicProtocol().planner(one, MACHINE)
    plan = planner.plan(0, 0)
    assert planner._estimated(0)[0].rho == math.inf
    assert plan.kind == "intra"
    assert plan.psi == 0, "four messages would have to move to relieve all ranks, which takes longer than their copies"
    assert seconds(DynamicProtocol(), one) < 1.03 * seconds(StaticProtocol(), one)
    both = pattern([[(1, 4 * MIB)], [(0, 4 * MIB)]], 2)
    planner = DynamicProtocol().planner(both, MACHINE)
    assert planner.plan(0, 0).psi == 0.5, "of two messages that cannot be split, one"
    # The other message is copied in halves by both, beside the 4 MiB of the NIC.
    assert planner.plan(0, 0).promise == pytest.approx(4 * MIB / MACHINE.nic + MACHINE.latency)
    played = play(both, planner)
    assert played.seconds == pytest.approx(played.promise_s, rel=0.01)
    assert played.seconds < 0.81 * seconds(StaticProtocol(), both)


def test_a_rank_that_all_send_to_lets_the_senders_copy():
    one = pattern([[]] + [[(0, 256 * KIB)]] * 7, 8)
    planner = DynamicProtocol().planner(one, MACHINE)
    assert set(planner.plan(0, 0).shares.values()) == {1.0} or planner.plan(0, 0).promise < 40e-6
    assert play(one, planner).seconds < 0.2 * seconds(StaticProtocol(), one)


def test_nothing_goes_through_a_nic_that_is_the_limit():
    one = stencil3d((4, 2, 2), 128, 7, 2, 6)
    planner = DynamicProtocol().planner(one, MACHINE)
    assert all(planner.plan(node, 0).psi == 0 for node in range(one.nodes))


def test_a_copying_rank_answers_late_by_its_copy_or_by_one_piece():
    # Rank 0 copies 4 MiB from rank 1, and rank 2 on another node asks it for room in the meantime.
    one = pattern([[], [(0, 4 * MIB)], [(0, 64 * KIB)], []], 2, iterations=1)

    def rank_2_took(chunk):
        planner = Fixed(one, MACHINE, "rput", "read", chunk)
        placement = [rank // 2 for rank in range(4)]
        found = comm.run(exchange, one, planner, ranks=4, backend="virtual", model="flow", cluster="infiniband-hdr100",
                         placement=placement, payload="ghost", progress=comm.Policy("never", protocol=planner.choose))  # fmt: skip
        begin, end, _ = found.values[2]
        return end - begin

    copy, piece, wire = 4 * MIB / MACHINE.core, 64 * KIB / MACHINE.core, 64 * KIB / MACHINE.nic
    whole, pieces = rank_2_took(0), rank_2_took(65536)
    assert copy <= whole <= copy + wire + 10e-6
    assert pieces <= piece + wire + 15e-6


def test_two_idle_ranks_share_a_copy_in_half_the_time():
    one = pattern([[(1, 4 * MIB)], [], [], []], 2, iterations=2)
    read, shared = seconds(StaticProtocol(), one), seconds(StaticProtocol("rget", "shared-copy", 65536), one)
    assert shared == pytest.approx(read / 2, rel=0.05)
    dynamic = DynamicProtocol(loopback=False).planner(one, MACHINE)
    assert dynamic.plan(0, 0).shares[0, 1] == 0.5


def test_shares_follow_the_other_load_of_both_ends():
    one = pattern([[(1, MIB), (2, MIB), (3, MIB)], [], [], []], 4)
    shares = DynamicProtocol(loopback=False).planner(one, MACHINE).plan(0, 0).shares
    assert sum(shares.values()) < 1.5, "rank 0 sends three messages, so the receivers copy more"


def test_a_constant_pattern_switches_once_at_most():
    for dims, per_node in (((6, 2, 1), 12), ((4, 4, 1), 4), ((2, 2, 2), 8)):
        one = stencil3d(dims, 48, 27, per_node, 110)
        planner = DynamicProtocol().planner(one, MACHINE)
        play(one, planner)
        late = [node for k, node in planner.switches if k > 10]
        assert all(late.count(node) <= 1 for node in set(late))


def test_dynamic_is_near_the_best_assignment_of_four_messages():
    one = pattern([[(1, MIB), (2, 512 * KIB)], [(3, 512 * KIB)], [(3, MIB)], []], 2, iterations=4)
    messages = [(a, b, n) for a, sent in enumerate(one.tables[0]) for b, n in sent]
    best = math.inf
    for chosen in itertools.product(*[("rget", "rput-cached") if a // 2 != b // 2 else ("read", "shared-copy", "loopback") for a, b, _ in messages]):
        names = {(a, b): name for (a, b, _), name in zip(messages, chosen)}

        class Assigned(Fixed):
            def choose(self, source, destination, nbytes, k, names=names):
                name = names.get((source, destination)) if nbytes > 16 * KIB else None
                if name is None:
                    return None
                return moved(name, 65536 if name in ("read", "shared-copy") else 0)

        best = min(best, play(one, Assigned(one, MACHINE, "rget", "read", first=True)).seconds)
    assert seconds(DynamicProtocol(), one) <= 1.1 * best


def traded(c, table, choose_iterations):
    """Exchange real bytes in every iteration and say whether all arrived."""
    received = [(a, n) for a, sent in enumerate(table) for b, n in sent if b == c.rank]
    for k in range(choose_iterations):
        c.iteration = k
        rooms = [np.zeros(n, np.uint8) for _, n in received]
        requests = [c.irecv(room, a, 0) for room, (a, _) in zip(rooms, received)]
        sends = [np.full(n, (c.rank * 16 + other + k) % 251, np.uint8) for other, n in table[c.rank]]
        requests += [c.isend(data, other, 0) for data, (other, _) in zip(sends, table[c.rank])]
        comm.waitall(requests)
        assert all((room == (a * 16 + c.rank + k) % 251).all() for room, (a, _) in zip(rooms, received))
    return True


def test_every_protocol_delivers_the_bytes():
    table = stencil_table((2, 2, 2), 60)
    one = Pattern((table,), (0, 0, 0), 4)
    planners = [StaticProtocol(far, near, chunk, True).planner(one, MACHINE) for far in FAR for near in NEAR for chunk in (0, 4096)]
    planners.append(DynamicProtocol().planner(one, MACHINE))
    for planner in planners:
        policy = comm.Policy("never", protocol=planner.choose)
        found = comm.run(traded, table, 3, ranks=8, backend="virtual", model="flow", cluster="infiniband-hdr100",
                         placement=[0] * 4 + [1] * 4, progress=policy)  # fmt: skip
        assert found.values == [True] * 8


def patterns():
    """Two nodes of up to three ranks that send short and long messages at random, to be exchanged three times."""

    def tables(per_node):
        ranks = 2 * per_node
        nbytes = st.sampled_from([1, 8 * KIB, 16 * KIB, 16 * KIB + 1, 200 * KIB, MIB])
        sent = [st.dictionaries(st.sampled_from([r for r in range(ranks) if r != rank]), nbytes, max_size=2) for rank in range(ranks)]
        table = st.tuples(*sent).map(lambda rows: tuple(tuple(row.items()) for row in rows))
        return st.builds(lambda a, b: Pattern((a, b), (0, 1, 1), per_node), table, table)

    return st.integers(1, 3).flatmap(tables)


@settings(max_examples=15, deadline=None)
@given(patterns())
def test_the_best_static_protocol_is_the_best_of_eight_that_all_end(one):
    near = (("read", 64 * KIB), ("shared-copy", 64 * KIB), ("shm", 0), ("loopback", 0))
    eight = [StaticProtocol(far, how, chunk, True).played(one, MACHINE) for far in ("rget", "rput-cached") for how, chunk in near]
    assert BestStatic().played(one, MACHINE) == min(eight, key=lambda played: played.seconds)


@settings(max_examples=10, deadline=None)
@given(patterns(), st.sampled_from(FAR), st.sampled_from(NEAR), st.sampled_from([0, 4096]))
def test_no_play_takes_less_than_its_least_and_none_that_takes_it_is_ended(one, far, near, chunk):
    technique = StaticProtocol(far, near, chunk, True)
    played = technique.played(one, MACHINE)
    planner = technique.planner(one, MACHINE)
    assert Least(one, planner, MACHINE).seconds <= played.seconds * one.iterations * (1 + 1e-9)
    assert play(one, planner, least=Least(one, planner, MACHINE, played.seconds * one.iterations)) == played


def test_a_play_that_cannot_win_ends_as_soon_as_that_is_certain():
    one = pattern([[(2, MIB)], [(3, MIB)], [], []], 2, iterations=10)
    planner = StaticProtocol("rget", "read").planner(one, MACHINE)
    bound = Least(one, planner, MACHINE).seconds
    assert bound == pytest.approx(10 * 2 * MIB / MACHINE.nic)
    assert Least(one, planner, MACHINE, 0.99 * bound).hopeless
    least = Least(one, planner, MACHINE, 1.001 * bound)
    assert not least.hopeless
    with pytest.raises(CannotWin):
        play(one, planner, least=least)
    assert least._begun[0][9] == (0, math.inf), "before the last iteration, because each has a latency that the bound does not count"
    copied = pattern([[(1, MIB)], []], 2)
    for near, parts in (("shm", 1.0), ("read", 1.0), ("shared-copy", 0.5)):
        planner = StaticProtocol("rget", near).planner(copied, MACHINE)
        assert Least(copied, planner, MACHINE).seconds == pytest.approx(4 * parts * MIB / MACHINE.core)


def test_protocols_that_no_message_is_long_enough_for_do_not_count():
    technique = StaticProtocol("rput-cached", "shm", 4096, True)
    short, mixed = pattern([[(1, 8 * KIB), (2, 16 * KIB)], [], [], []], 2), pattern([[(1, 8 * KIB + 1), (2, 16 * KIB)], [], [], []], 2)
    assert technique.needed(short) == StaticProtocol(first=True)
    assert technique.needed(mixed) == StaticProtocol("rget", "shm", 4096, True)
    assert technique.needed(pattern([[(2, 16 * KIB + 1)], [], [], []], 2)) == StaticProtocol("rput-cached", first=True)
    assert technique.played(short, MACHINE) == technique.needed(short).played(short, MACHINE)


def star(c, protocol):
    """All others send 1,000 rows to rank 0; returns what this rank copied."""
    halo = DynamicHalo(c, protocol)
    copied = 0
    for k in range(3):
        rooms = [np.zeros((1000, 3)) for _ in range(1, c.size)] if c.rank == 0 else []
        sends = [] if c.rank == 0 else [(0, np.full((1000, 6), 10.0 * k + c.rank)[:, ::2])]
        copied = halo.exchange(sends, [(other + 1, room) for other, room in enumerate(rooms)])
        assert all((room == 10.0 * k + other + 1).all() for other, room in enumerate(rooms))
    halo.free()
    return copied


@pytest.mark.parametrize(("protocol", "hub"), [("read", 72_000), ("write", 0), ("shared-copy", 36_000)])
def test_threads_copy_for_each_other(protocol, hub):
    assert comm.run(star, protocol, ranks=4).values == [hub, *[(72_000 - hub) // 3] * 3]


def test_threads_share_copies_by_load():
    copied = comm.run(star, "dynamic", ranks=4).values
    assert sum(copied) == 72_000
    assert max(copied) < 30_000, "rank 0 alone would copy 72,000 bytes, and in halves 36,000"


def test_ranks_that_do_not_agree_are_told():
    def wrong(c):
        DynamicHalo(c).exchange([(1, np.zeros(3))] if c.rank == 0 else [], [])

    with pytest.raises(comm.RankFailed, match="at one end only"):
        comm.run(wrong, ranks=2)
    with pytest.raises(InputError, match="unknown protocol"):
        DynamicHalo(None, "reed")


def test_advice_names_what_limits():
    found = advise(pattern([[(1, 4 * MIB)], [(0, 4 * MIB)]], 2))
    assert found.rho == math.inf
    assert found.gain > 0
    assert "copies inside the node" in str(found)
    assert "the NIC (" in str(advise(stencil3d((4, 2, 2), 128, 7, 2, 4)))


def test_wrong_patterns_and_clusters_are_refused():
    with pytest.raises(InputError, match="expected 0 or more"):
        pattern([[(1, -1)], []], 1)
    with pytest.raises(InputError, match="no node without ranks"):
        pattern([[(1, 1)], [], []], 2)
    with pytest.raises(InputError, match="another of the 2 ranks"):
        pattern([[(2, 1)], []], 1)
    with pytest.raises(InputError, match="7, 19 or 27"):
        stencil_table((2, 2, 2), 4, 9)
    with pytest.raises(InputError, match="without NIC"):
        machine_of(_without_nic())


def _without_nic():
    class Node:
        nics = ()
        memories = ()

    class Without:
        name = "dark"

        def node(self, number):
            return Node()

    return Without()
