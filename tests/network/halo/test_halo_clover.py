"""CloverLeaf: against its own known answers, against formulas on whole arrays, on any number of ranks, and under any order of streams."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from halo_streams import LazyStreams

from armillary import comm
from armillary.errors import InputError
from armillary.network.halo import DECKS, Access, Deck, State
from armillary.network.halo.clover import formulas, loops, sweeps
from armillary.network.halo.clover.block import FIELDS, HALO, block
from armillary.network.halo.clover.deck import BENCHMARK, KINETIC, WITHIN_PERCENT, deck_of
from armillary.network.halo.clover.step import EXCHANGES, divided, table
from armillary.network.halo.clover.walls import mirrors
from armillary.network.halo.views.kernels import Compiled, Formulas, hosted, owned
from armillary.network.halo.views.ladder import Rung, sums

NAIVE = Access(True, True, True, True, True, True)
RUNGS = {"naive": NAIVE, "mpi": Access(sync=True), "streams": Access(split=True), "graphs": Access(graph=True)}
STATE = ("density0", "energy0", "xvel0", "yvel0", "pressure", "viscosity")


def ran(c, deck, steps, access=Access(), formula=False, library="numpy", dims=(1, 1), parity=0):  # noqa: B008
    """One rank's block, fields and clock after some steps."""
    part = block(deck, dims, divmod(c.rank, dims[1]))
    fields = owned(part.start(), library)
    rung = Rung(c, part, fields, dims, access, Formulas(fields["density0"]) if formula else Compiled())
    rung._number = parity
    for _ in range(steps):
        rung.step()
    rung.free()
    return part, hosted(fields, list(FIELDS)), np.asarray(rung.clock).copy()


def alone(*arguments, **named):
    return comm.run(ran, *arguments, named=named, ranks=1, backend="one").values[0]


def inside(part, name, field):
    extra = FIELDS[name].extra
    return field[HALO : HALO + part.rows + extra[0], HALO : HALO + part.columns + extra[1]]


def same(one, other, names=tuple(FIELDS)):
    return [name for name in names if not np.array_equal(inside(one[0], name, one[1][name]), inside(other[0], name, other[1][name]))]


def test_the_kinetic_energy_of_test_problem_1_is_cloverleafs():
    deck = replace(DECKS["corner"], x_cells=10, y_cells=2, ymax=2.0, end_time=3.0)
    steps = 75  # of 0.04 each, which the last one reaches
    part, fields, clock = alone(deck, steps)
    assert clock[1] == pytest.approx(3.0)
    assert abs(100 * sums(part, fields)["kinetic"] / KINETIC[1] - 100) < WITHIN_PERCENT
    assert sums(part, fields)["kinetic"] == pytest.approx(KINETIC[1], rel=1e-12)


@pytest.mark.slow
def test_the_kinetic_energy_of_the_benchmark_deck_is_cloverleafs():
    part, fields, _ = alone(BENCHMARK, BENCHMARK.end_step, Access(graph=True))
    found = sums(part, fields)
    assert abs(100 * found["kinetic"] / KINETIC[2] - 100) < WITHIN_PERCENT
    assert found["mass"] == pytest.approx(0.2 * 90 + 10, rel=1e-12)


@pytest.mark.parametrize("name", ["corner", "disc"])
def test_loops_and_formulas_give_the_same_bits_for_fifty_steps(name):
    deck = DECKS[name].sized(30, 50)
    one, other = alone(deck, 50), alone(deck, 50, formula=True)
    assert same(one, other) == []
    assert np.array_equal(one[2], other[2]), "the time step stays where it was computed, and is the same"


def test_tensors_differ_from_arrays_in_the_last_digits_only():
    pytest.importorskip("torch")
    deck = DECKS["layers"].sized(16, 12)
    one, other = alone(deck, 12), alone(deck, 12, formula=True, library="torch")
    for name in STATE:
        assert np.allclose(inside(one[0], name, one[1][name]), inside(other[0], name, other[1][name]), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("periodic", [False, True])
@pytest.mark.parametrize("dims", [(1, 2), (2, 1), (2, 2), (3, 1)])
def test_every_rung_on_many_ranks_is_one_rank_bit_for_bit(dims, periodic):
    deck = DECKS["disc"].sized(27, 6, periodic)
    whole = alone(deck, 6, formula=True)
    for name, access in RUNGS.items():
        for part, fields, clock in comm.run(ran, deck, 6, access, named={"dims": dims}, ranks=dims[0] * dims[1]).values:
            assert np.array_equal(clock[:2], whole[2][:2])
            for field in FIELDS:
                extra = FIELDS[field].extra
                rows = slice(part.row0, part.row1 + extra[0])
                wanted = inside(whole[0], field, whole[1][field])[rows, part.column0 : part.column1 + extra[1]]
                assert np.array_equal(inside(part, field, fields[field]), wanted), (name, field)


def test_every_rung_owned_by_torch_gives_the_bits_of_numpys():
    pytest.importorskip("torch")
    deck = DECKS["corner"].sized(20, 4, True)
    whole = alone(deck, 4)
    for access in RUNGS.values():
        assert same(alone(deck, 4, access, library="torch"), whole) == []


def test_mass_is_conserved_at_every_step():
    deck = DECKS["disc"].sized(24, 40)
    before = sums(*alone(deck, 0)[:2])["mass"]
    for steps in range(1, 12):
        after = sums(*alone(deck, steps)[:2])["mass"]
        assert after == pytest.approx(before, rel=1e-12)
        before = after


def test_the_remap_of_cells_moves_energy_and_loses_none():
    rng = np.random.default_rng(3)
    part = block(DECKS["corner"].sized(12, 1, True))
    fields = {name: np.zeros(part.shape) for name in part.start()}
    cells = (slice(HALO, HALO + 12), slice(HALO, HALO + 12))
    for name in ("density1", "energy1"):
        fields[name][:16, :16] = np.pad(1 + rng.random((12, 12)), 2, mode="wrap")
    flux = np.pad(0.02 * (rng.random((12, 12)) - 0.5), 2, mode="wrap")
    fields["vol_flux_x"][:16, :16] = flux
    fields["vol_flux_x"][:, 16] = fields["vol_flux_x"][:, 4]
    dx = part.deck.dx
    volume = dx * dx + np.diff(fields["vol_flux_x"], axis=1)[:16, :16]
    before = (fields["density1"][:16, :16] * fields["energy1"][:16, :16] * volume)[cells].sum()
    rects = np.array([[HALO, HALO + 12, HALO, HALO + 13]])
    names = ("density1", "energy1", "vol_flux_x", "vol_flux_y", "mass_flux_x", "energy_flux")
    sweeps.cell_flux(rects, 1, False, dx, dx, *(fields[name] for name in names))
    sweeps.cell_update(np.array([[HALO, HALO + 12, HALO, HALO + 12]]), 1, False, dx, dx, *(fields[name] for name in names))
    after = (fields["density1"] * fields["energy1"])[cells].sum() * dx * dx
    assert after == pytest.approx(before, rel=1e-12)


def test_a_state_that_is_symmetric_stays_so():
    part, fields, _ = alone(DECKS["blast"].sized(30, 20), 20)
    for name, across, along in (("density0", 1, 1), ("energy0", 1, 1), ("xvel0", -1, 1), ("yvel0", 1, -1)):
        field = inside(part, name, fields[name])
        assert np.allclose(field, across * field[:, ::-1], rtol=0, atol=1e-12), name
        assert np.allclose(field, along * field[::-1], rtol=0, atol=1e-12), name


def test_a_transposed_problem_has_a_transposed_answer():
    deck = Deck((State(0.2, 1.0), State(1.0, 2.5, xmin=1.0, xmax=6.0, ymin=2.0, ymax=4.0)), 20, 15, 0.0, 10.0, 0.0, 6.0, 0.04, 0.04)
    turned = Deck((State(0.2, 1.0), State(1.0, 2.5, xmin=2.0, xmax=4.0, ymin=1.0, ymax=6.0)), 15, 20, 0.0, 6.0, 0.0, 10.0, 0.04, 0.04)
    one, other = alone(deck, 10), alone(turned, 10, parity=1)
    for name, twin in (("density0", "density0"), ("energy0", "energy0"), ("xvel0", "yvel0"), ("yvel0", "xvel0")):
        assert np.allclose(inside(one[0], name, one[1][name]), inside(other[0], twin, other[1][twin]).T, rtol=0, atol=1e-12), name


@pytest.mark.parametrize("delayed", ["communication", "compute", "shuffled"])
def test_no_order_of_streams_that_events_allow_changes_the_result(delayed):
    deck = DECKS["disc"].sized(24, 4, True)
    wanted = alone(deck, 4)
    for seed in range(3 if delayed == "shuffled" else 1):
        assert same(comm.run(lazily, deck, LazyStreams(delayed, seed), ranks=1, backend="one").values[0], wanted) == []


def test_without_events_a_delayed_stream_would_change_the_result():
    deck = DECKS["disc"].sized(24, 4, True)
    wanted = alone(deck, 4)
    assert same(comm.run(lazily, deck, LazyStreams("communication", events=False), ranks=1, backend="one").values[0], wanted)


def lazily(c, deck, streams):
    part = block(deck)
    fields = part.start()
    rung = Rung(c, part, fields, (1, 1), Access(split=True), Compiled(), streams)
    for _ in range(4):
        rung.step()
    assert streams.waiting > 100, "nothing has run yet"
    streams.synchronise()
    return part, fields, rung.clock


def test_nothing_is_converted_or_allocated_after_the_start(monkeypatch):
    import tracemalloc

    def measured(c):
        part = block(DECKS["corner"].sized(256, 1, True))
        rungs = [Rung(c, part, part.start(), (1, 1), access, Compiled()) for access in (RUNGS["mpi"], RUNGS["streams"], RUNGS["graphs"])]
        for rung in rungs:
            rung.step()
            rung.step()
        calls = []
        whole = np.from_dlpack
        monkeypatch.setattr(np, "from_dlpack", lambda x: (calls.append(1), whole(x))[1])
        tracemalloc.start()
        for rung in rungs:
            for _ in range(4):
                rung.step()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        before = len(calls)
        naive = Rung(c, part, part.start(), (1, 1), NAIVE, Compiled())
        made = len(calls)
        naive.step()
        return before, peak, [rung.spent.conversions for rung in rungs], len(calls) - made, naive.spent.conversions

    before, peak, none, some, counted = comm.run(measured, ranks=1, backend="one").values[0]
    assert (before, none) == (0, [0, 0, 0])
    assert peak < 256 * 256 * 8, "less than one field; messages to the rank itself keep a copy of their bytes"
    assert some >= counted > 400


@pytest.mark.parametrize("off", ["convert", "slices", "loops", "sync", "stage", "rebuild"])
def test_each_switch_of_the_naive_rung_changes_what_is_done_and_no_bit(off):
    deck = DECKS["disc"].sized(12, 2, True)
    wanted = alone(deck, 2)

    def counted(c, access):
        part = block(deck)
        fields = part.start()
        rung = Rung(c, part, fields, (1, 1), access, Compiled())
        events = []
        sys.setprofile(lambda frame, event, function: events.append((event, getattr(function, "__name__", frame.f_code.co_name))))
        rung.step()
        sys.setprofile(None)
        rung.step()
        return (part, fields), Counter(events)

    whole = comm.run(counted, NAIVE, ranks=1, backend="one").values[0]
    without = comm.run(counted, replace(NAIVE, **{off: False}), ranks=1, backend="one").values[0]
    assert same(whole[0], wanted) == same(without[0], wanted) == []
    assert sum(without[1].values()) < sum(whole[1].values()), "fewer calls"


def test_a_step_has_six_exchanges_of_fifteen_fields():
    assert [depth for _, depth in EXCHANGES] == [1, 1, 1, 2, 2, 2]
    # The speed of sound is one of CloverLeaf's fifteen, and no step needs it from another rank.
    assert len(FIELDS) == 15
    assert {name for names, _ in EXCHANGES for name in names} == set(FIELDS) - {"soundspeed"}
    assert [launch.along for launch in table(1) if getattr(launch, "kernel", "") == "cell_flux"] == [0, 1]


def test_a_frame_and_an_inside_cover_a_rectangle_once():
    for rect in ((2, 20, 2, 30), (2, 8, 2, 9), (2, 9, 2, 9), (2, 4, 2, 4)):
        covered = np.zeros((40, 40), int)
        frame, inner = divided(rect)
        for low, high, left, right in (*frame, *inner):
            covered[low:high, left:right] += 1
        assert covered[rect[0] : rect[1], rect[2] : rect[3]].min() == covered.max() == 1
        assert covered.sum() == (rect[1] - rect[0]) * (rect[3] - rect[2])


def test_walls_mirror_cells_nodes_and_fluxes_by_hand():
    part = block(DECKS["corner"].sized(4, 1))
    names = ("density0", "xvel0", "vol_flux_x")
    fields = {name: np.arange(81.0).reshape(9, 9) for name in names}
    other = {name: field.copy() for name, field in fields.items()}
    rows = mirrors(part, names, 2)
    loops.reflect(rows, tuple(fields.values()))
    formulas.reflect(rows.tolist(), list(other.values()))
    assert all(np.array_equal(fields[name], other[name]) for name in names)
    middle = 4 * 9.0
    assert fields["density0"][4, :8].tolist() == [middle + j for j in (3, 2, 2, 3, 4, 5, 5, 4)]
    assert fields["xvel0"][4].tolist() == [s * (middle + j) for s, j in zip((-1, -1, 1, 1, 1, 1, 1, -1, -1), (4, 3, 2, 3, 4, 5, 6, 5, 4))]
    assert fields["xvel0"][:, 4].tolist() == [9.0 * k + 4 for k in (4, 3, 2, 3, 4, 5, 6, 5, 4)]
    # A flux is mirrored along its wall about the centre of the last cell.
    assert fields["vol_flux_x"][:8, 4].tolist() == [9.0 * k + 4 for k in (4, 3, 2, 3, 4, 5, 4, 3)]
    assert fields["density0"][0, 0] == fields["density0"][3, 3], "corners are mirrored twice"


def test_states_fill_rectangles_circles_and_points():
    deck = Deck((State(1.0, 1.0), State(2.0, 1.0, xvel=3.0, xmin=2.0, xmax=4.0, ymin=0.0, ymax=1.0)), 10, 10, 0.0, 10.0, 0.0, 10.0)
    fields = block(deck).start()
    assert (fields["density0"] == 2.0).sum() == 2 * 1
    assert (fields["xvel0"] == 3.0).sum() == 3 * 2, "the nodes around them"
    circle = replace(deck, states=(State(1.0, 1.0), State(2.0, 1.0, geometry="circle", xmin=5.0, ymin=5.0, radius=1.0)))
    assert (block(circle).start()["density0"] == 2.0).sum() == 4
    point = replace(deck, states=(State(1.0, 1.0), State(2.0, 1.0, geometry="point", xmin=3.0, ymin=7.0)))
    assert np.argwhere(block(point).start()["density0"] == 2.0).tolist() == [[9, 5]]


def test_a_deck_survives_the_way_to_other_processes():
    import json

    deck = DECKS["layers"].sized(8, 3, True)
    assert deck_of(json.loads(json.dumps(deck.given()))) == deck


def test_a_block_of_less_than_a_halo_is_refused():
    with pytest.raises(InputError, match="dimension 0: found 4 cells for 3 ranks; expected at least 2"):
        block(DECKS["corner"].sized(4, 1), (3, 1))


def test_the_longest_step_is_the_least_of_the_limits_by_hand():
    part = block(replace(DECKS["corner"], x_cells=4, y_cells=4))
    fields = part.start()
    fields["density0"][...], fields["soundspeed"][...] = 1.0, 2.0
    cells, clock = np.array([[2, 6, 2, 6]]), np.zeros(3)
    names = ("density0", "soundspeed", "viscosity", "xvel0", "yvel0")
    loops.time_step(cells, 2.5, 2.5, *(fields[name] for name in names), clock)
    assert clock[2] == pytest.approx(0.7 * 2.5 / 2.0)
    fields["xvel0"][:, 3] = 50.0
    loops.time_step(cells, 2.5, 2.5, *(fields[name] for name in names), clock)
    assert clock[2] == pytest.approx(min(0.5 * 2.5 / 50.0, 0.7 * 2.5 / 50.0))
    formulas.advance(clock, 1.5, 0.01)
    assert clock[:2].tolist() == [0.0, 0.0], "at most half as much again as the step before, which was 0"
