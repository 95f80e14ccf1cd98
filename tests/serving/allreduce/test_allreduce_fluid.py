"""The compiled loop agrees with the event loop, collective by collective; slots are counted, and starved groups and moves work."""

from __future__ import annotations

import dataclasses
import math
from typing import Literal

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from armillary.errors import InputError
from armillary.serving.allreduce import Atp, HeroServe, Hierarchical, Ina, InaHier, Ring, StaticSplit, Wires, collective_seconds
from armillary.serving.allreduce.collectives.path import Path
from armillary.serving.allreduce.planning.planner import planned_seconds
from armillary.serving.allreduce.simulation import fluid as fl
from armillary.serving.allreduce.simulation.bursts import CALM, Bursts
from armillary.serving.allreduce.simulation.flow_level import Stream, iterations
from armillary.serving.allreduce.simulation.groups import Group, Groups

WIRES = Wires.of("ina-6x2")
APART = dataclasses.replace(WIRES, reach=((0,),) * 3 + ((1,),) * 3)
M = 16 << 20
PATHS = {
    "ring": Ring().path, "hierarchical": Hierarchical().path, "ina": Ina().path, "ina-hier": InaHier().path,
    "static-split": StaticSplit().path, "atp": Atp().path, "heroserve": HeroServe(rehome="never").path,
}  # fmt: skip
#: Two groups share a switch, the first with prompts and the second decoding; a third one is on the other switch.
GROUPS = [Group((0, 1, 2), 4, 0), Group((3, 4), 4, 0, decode=True, reserved=64), Group((5,), 4, 1)]
WORK = [Stream(0, 0.3e-3, 6 << 20, 24), Stream(1, 0.1e-3, 1 << 20, 24), Stream(2, 0.2e-3, 1 << 20, 24)]
TRAFFIC = {"calm": CALM, "bursts": Bursts(0.5), "tenants": Bursts(0.5, slots=384)}


def rng_for(bursts: Bursts, seed: int = 3) -> np.random.Generator | None:
    return np.random.default_rng(seed) if bursts.share or bursts.slots else None


def fast(
    groups: list[Group], path: Path, work: list[Stream], until: float, bursts: Bursts = CALM, seed: int = 3
) -> tuple[list[list[float]], Groups]:
    net = Groups(WIRES, groups, path, bursts, rng_for(bursts, seed))
    for stream in work:
        net.start(stream.group, stream.compute_s, stream.nbytes, stream.repeats)
    ends: list[list[float]] = [[] for _ in work]
    while (g := net.advance(until)) >= 0:
        ends[g].append(net.now)
        net.start(g, work[g].compute_s, work[g].nbytes, work[g].repeats)
    return ends, net


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("traffic", TRAFFIC)
def test_the_compiled_loop_is_the_event_loop(path: str, traffic: str) -> None:
    until = 0.25
    slow, network = iterations(WIRES, GROUPS, PATHS[path], WORK, until, TRAFFIC[traffic], rng_for(TRAFFIC[traffic]))
    quick, net = fast(GROUPS, PATHS[path], WORK, until, TRAFFIC[traffic])
    # A chunked path requests slots at other moments if its repeats pass in one step; everything else is equal up to rounding.
    within = 0.02 if path == "heroserve" else 1e-9
    for a, b in zip(slow, quick, strict=True):
        assert abs(len(a) - len(b)) <= (1 if path == "heroserve" else 0)
        same = min(len(a), len(b))
        assert same > 0
        np.testing.assert_allclose(b[:same], a[:same], rtol=within)
    assert net.most_slots <= WIRES.slots
    assert max(s.most for s in network.slots) <= WIRES.slots
    if path != "heroserve":
        assert net.starved == network.fallbacks


@given(
    sizes=st.lists(st.sampled_from([1 << 14, 1 << 18, 1 << 20, 5 << 20]), min_size=2, max_size=2),
    computes=st.lists(st.floats(1e-5, 1e-3), min_size=2, max_size=2),
    path=st.sampled_from(sorted(PATHS)),
    seed=st.integers(0, 100),
)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_random_streams_agree(sizes: list[int], computes: list[float], path: str, seed: int) -> None:
    groups = [Group((0, 1, 2, 3), 4, 1), Group((2, 3, 4, 5), 2, 1, decode=True, reserved=32)]
    work = [Stream(k, computes[k], float(sizes[k]), 7) for k in range(2)]
    slow, _ = iterations(WIRES, groups, PATHS[path], work, 0.06, TRAFFIC["tenants"], rng_for(TRAFFIC["tenants"], seed))
    quick, net = fast(groups, PATHS[path], work, 0.06, TRAFFIC["tenants"], seed)
    for a, b in zip(slow, quick, strict=True):
        same = min(len(a), len(b))
        assert abs(len(a) - len(b)) <= max(1, 0.05 * same)
        if same:
            assert b[same - 1] == pytest.approx(a[same - 1], rel=0.04 if path == "heroserve" else 1e-6)
    assert net.most_slots <= WIRES.slots


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("servers", [2, 4])
@pytest.mark.parametrize("nbytes", [16 << 10, 1 << 20, M])
def test_one_collective_alone_takes_what_the_formula_says(path: str, servers: int, nbytes: int) -> None:
    group = Group(tuple(range(servers)), 4)
    simulated = collective_seconds(WIRES, [group], PATHS[path], nbytes)
    modelled = planned_seconds(PATHS[path], WIRES, WIRES.shape(servers), nbytes)
    assert simulated == pytest.approx(modelled, rel=0.05)


def test_figures_of_the_spec_on_the_event_loop() -> None:
    group = [Group((0, 1, 2, 3), 4)]
    wide = dataclasses.replace(WIRES, asic=math.inf)
    assert collective_seconds(wide, group, PATHS["ring"], M) == pytest.approx(2.817e-3, abs=5e-7)
    assert collective_seconds(wide, group, PATHS["hierarchical"], M) == pytest.approx(2.169e-3, abs=5e-7)
    assert collective_seconds(wide, group, PATHS["ina-hier"], M) == pytest.approx(1.458e-3, abs=5e-7)
    # S is 6.5 GB/s, because the chip adds up four such inputs.
    narrow = dataclasses.replace(WIRES, asic=4 * 6.5e9)
    alone = collective_seconds(narrow, group, PATHS["heroserve"], M) - 95.9e-6 - 60e-6
    assert alone == pytest.approx(1.598e-3, rel=5e-3)
    assert collective_seconds(narrow, group, PATHS["ina-hier"], M) == pytest.approx(2.581e-3 + 20e-6 + 95.9e-6, rel=1e-3)


@pytest.mark.parametrize("path", PATHS)
def test_every_byte_is_delivered_once(path: str) -> None:
    work, tenants = [dataclasses.replace(w, repeats=1) for w in WORK[:2]], TRAFFIC["tenants"]
    ends, network = iterations(WIRES, GROUPS[:2], PATHS[path], work, 0.05, tenants, rng_for(tenants))
    for k, stream in enumerate(work):
        done = sum(network.delivered[k])
        assert len(ends[k]) * stream.nbytes <= done * (1 + 1e-12)
        assert done <= (len(ends[k]) + 1) * stream.nbytes


def test_four_jobs_have_a_quarter_each() -> None:
    wires = dataclasses.replace(WIRES, servers=8, reach=((0, 1),) * 8, asic=math.inf)
    groups = [Group((2 * k, 2 * k + 1), 4, 0) for k in range(4)]
    net = Groups(wires, groups, PATHS["ina-hier"])
    assert net.net.gi[:, fl.QUOTA].tolist() == [128] * 4
    for g in range(4):
        net.start(g, 0.0, float(M), 1)
    ends = []
    while net.advance(1.0) >= 0:
        ends.append(net.now)
    before = 2 * (0.75 * M / 300e9 + 6e-6)
    assert ends == pytest.approx([before + 20e-6 + M / wires.rate_of(128)] * 4)
    assert net.most_slots == 512


def test_a_starved_collective_takes_the_ring_after_its_timer() -> None:
    path = Path(x=1.0, wait_s=300e-6)
    net = Groups(WIRES, [Group((0, 1), 4, 0)], path)
    net.net.sw[0, fl.TENANT] = 512  # Somebody holds every slot for ever.
    net.start(0, 0.0, float(M), 3)
    assert net.advance(1.0) == 0
    assert net.starved == 3
    each = planned_seconds(Hierarchical().path, WIRES, WIRES.shape(2), M) + 300e-6
    assert net.now == pytest.approx(3 * each)


@pytest.mark.parametrize("path", sorted(PATHS))
def test_no_path_waits_for_ever_without_slots(path: str) -> None:
    net = Groups(WIRES, GROUPS, PATHS[path])
    net.net.sw[:, fl.TENANT] = 512
    for stream in WORK:
        net.start(stream.group, stream.compute_s, stream.nbytes, stream.repeats)
    assert {net.advance(10.0) for _ in WORK} == {0, 1, 2}


def test_slots_that_come_back_wake_those_that_wait() -> None:
    # Of two jobs that may both take all slots, the second waits for the first and not for its timer.
    net = Groups(WIRES, [Group((0, 1), 4, 0), Group((2, 3), 4, 0)], Path(x=1.0, wait_s=1.0))
    net.net.gi[:, fl.QUOTA] = 512
    for g in range(2):
        net.start(g, 0.0, float(M), 1)
    net.advance(1.0)
    first = net.now
    net.advance(1.0)
    assert net.starved == 0
    assert net.now == pytest.approx(2 * first, rel=0.06)


def test_decoding_has_its_slots_and_goes_first() -> None:
    groups = [Group((0, 1, 2), 4, 0), Group((3, 4), 4, 0, decode=True, reserved=200)]
    alone, _ = fast(groups[1:], PATHS["heroserve"], [dataclasses.replace(WORK[1], group=0)], 0.1)
    beside, net = fast(groups, PATHS["heroserve"], WORK[:2], 0.1)
    assert net.net.sw[0, fl.RESERVED] == 200
    mean = np.mean(np.diff(beside[1])) / np.mean(np.diff(alone[0]))
    assert 1.0 <= mean < 1.03, "a decode waits for one chunk of a prompt at most"
    late, _ = fast(groups, HeroServe(rehome="never", decode_first=False).path, WORK[:2], 0.1)
    assert np.mean(np.diff(late[1])) > np.mean(np.diff(beside[1]))


def test_prompts_leave_reserved_slots_alone() -> None:
    wires = dataclasses.replace(WIRES, asic=math.inf)
    groups = [Group((0, 1), 4, 0), Group((2, 3), 4, 0, decode=True, reserved=256)]
    net = Groups(wires, groups, dataclasses.replace(PATHS["heroserve"], chunk=0.0))
    net.net.sw[0, fl.TENANT] = 200
    net.start(0, 0.0, float(M), 1)
    net.start(1, 10e-6, float(M), 1)
    most = 0
    for step in range(200):
        if net.advance(1e-5 * (step + 1)) >= 0:
            break
        most = max(most, int(net.net.gi[0, fl.HELD]))
    assert most == 512 - 200 - 256


def test_a_group_moves_to_the_switch_that_is_less_busy() -> None:
    group = Group((0, 1), 4, 0)
    stays = Groups(WIRES, [group], HeroServe().path)
    stays.start(0, 1e-3, float(1 << 20), 10)
    assert stays.home(0) == 0
    moves = Groups(WIRES, [group], HeroServe().path, Bursts(0.5), np.random.default_rng(1))
    moves.net.on[0], moves.net.cap[0] = 1, 6.25e9
    moves.net.clock[0] = 0.005
    moves.start(0, 1e-3, float(1 << 20), 10)
    assert moves.home(0) == 1
    assert moves.moves == 1
    held = Groups(WIRES, [group], HeroServe(rehome="never").path, Bursts(0.5), np.random.default_rng(1))
    held.net.on[0], held.net.cap[0] = 1, 6.25e9
    held.start(0, 1e-3, float(1 << 20), 10)
    assert held.home(0) == 0


@pytest.mark.parametrize("rehome", ["iteration", "collective"])
def test_reserved_slots_move_with_their_group(rehome: Literal["iteration", "collective"]) -> None:
    groups = [Group((0, 1, 2), 4, 0), Group((3, 4), 4, 0, decode=True, reserved=100)]
    net = Groups(WIRES, groups, HeroServe(rehome=rehome).path, Bursts(0.5), np.random.default_rng(4))
    for k in range(2):
        net.start(k, WORK[k].compute_s, WORK[k].nbytes, WORK[k].repeats)
    homes = set()
    while (g := net.advance(0.5)) >= 0:
        net.start(g, WORK[g].compute_s, WORK[g].nbytes, WORK[g].repeats)
        homes.add(net.home(g))
        assert net.net.sw[net.home(1), fl.RESERVED] == 100
        assert net.net.sw[:, fl.RESERVED].sum() == 100
    assert homes == {0, 1}
    assert net.moves > 10
    assert net.most_slots <= 512
    assert (net.net.sw[:, fl.IN_USE] >= 0).all()


def test_choosing_the_switch_before_every_collective_dodges_bursts() -> None:
    group = [Group((0, 1, 2, 3), 4, 0)]
    work = [Stream(0, 0.2e-3, 4 << 20, 100)]
    done = {}
    for rehome in ("never", "iteration", "collective"):
        ends, _ = fast(group, HeroServe(rehome=rehome).path, work, 5.0, Bursts(0.5))
        done[rehome] = len(ends[0])
    calm = len(fast(group, HeroServe(rehome="never").path, work, 5.0)[0][0])
    assert done["never"] < done["collective"] <= calm
    assert done["iteration"] == pytest.approx(done["never"], rel=0.1)


def test_a_group_stays_where_its_servers_do_not_reach_another_switch() -> None:
    wires = dataclasses.replace(WIRES, reach=((0,), (0, 1), (0, 1), (0, 1), (0, 1), (0, 1)))
    net = Groups(wires, [Group((0, 1), 4, 0)], HeroServe(rehome="collective").path, Bursts(0.5), np.random.default_rng(1))
    net.start(0, 1e-4, float(1 << 20), 500)
    assert net.advance(10.0) == 0
    assert net.moves == 0


def test_small_changes_of_the_share_are_not_made() -> None:
    path = HeroServe(rehome="never", hysteresis=1.0).path
    net = Groups(WIRES, [Group((0, 1, 2, 3), 4, 0)], path)
    net.start(0, 0.0, float(M), 1)
    net.advance(1.0)
    first = net.net.gf[0, fl.X]
    assert first == pytest.approx(15 / 17.5)
    net.net.sw[0, fl.TENANT] = 400
    net.start(0, 0.0, float(M), 1)
    net.advance(2.0)
    assert net.net.gf[0, fl.X] == first
    sharp = Groups(WIRES, [Group((0, 1, 2, 3), 4, 0)], HeroServe(rehome="never", hysteresis=0.0).path)
    sharp.net.sw[0, fl.TENANT] = 400
    sharp.start(0, 0.0, float(M), 1)
    sharp.advance(1.0)
    assert sharp.net.gf[0, fl.X] < first


def test_bursts_last_as_long_as_they_should() -> None:
    at, which = Bursts(0.5, cycle_s=50.0).toggles(12, 2, np.random.default_rng(5))
    assert (np.diff(at) >= 0).all()
    assert set(which.tolist()) == set(range(12))
    on = [np.sum(t[1::2] - t[::2]) / 50.0 for t in (at[which == k] for k in range(12))]
    assert np.mean(on) == pytest.approx(0.2, abs=0.02)
    assert Bursts(0.0).toggles(12, 2, np.random.default_rng(5))[0].size == 0



@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: Groups(dataclasses.replace(WIRES, slots=0), GROUPS, PATHS["ina-hier"]), "aggregation: found 0 slots"),
        (lambda: Groups(WIRES, [Group((0, 1), 4, 5)], PATHS["ring"]), "do not all reach switch 5"),
        (lambda: Groups(APART, [Group((2, 3), 4)], PATHS["ring"]), "no switch in common"),
        (lambda: Groups(WIRES, GROUPS, PATHS["ring"]).start(0, -1.0, 1.0, 1), "iteration: found 1 repeats"),
        (lambda: Bursts(1.0), "share: found 1.0"),
        (lambda: Bursts(0.5, on_s=0.0), "on_s, off_s"),
        (lambda: Bursts(0.5, slots=-1), "slots: found -1"),
    ],
)
def test_bad_input_is_refused(call, says: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InputError, match=says):
        call()
