"""Tests of the features, the network and the selectors: what they see, what they learn, and what they refuse."""

from __future__ import annotations

import functools
import json
import time
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from armillary import catalogue
from armillary.errors import InputError
from armillary.numerics.assembly import Assembler, Plan, build, choose, features, problem_of
from armillary.numerics.assembly.assembling.strategy import STRATEGIES, strategy
from armillary.numerics.assembly.commands import assembly_app
from armillary.numerics.assembly.elements.elements import ELEMENTS
from armillary.numerics.assembly.meshes.grids import fan, grid, renumbered, together
from armillary.numerics.assembly.meshes.mesh import Mesh, oriented, read_mesh
from armillary.numerics.assembly.selecting.choice import Choice, choose_for, shipped, shipped_table
from armillary.numerics.assembly.selecting.features import NAMES, VERSION, Features, pictures
from armillary.numerics.assembly.selecting.hybrid import Hybrid, at_hubs, split
from armillary.numerics.assembly.selecting.network import HERE, LAYERS, SCALES, Network, load
from armillary.numerics.assembly.selecting.table import FOLDS, Seconds, Table, fold_of, load_table, spread_out
from armillary.numerics.assembly.workload import FAMILIES, ORDERS, in_order
from armillary.numerics.assembly.workload import catalogue as plans

NUMERIC = list(STRATEGIES)


def features_of(mesh, physics="poisson") -> Features:
    return features(problem_of(mesh, physics))


def test_there_are_thirty_six_features_all_finite():
    assert len(NAMES) == len(set(NAMES)) == 36
    for family in FAMILIES:
        found = features_of(build(Plan(family, "triangle", "P1", "poisson", 800)))
        assert found.numbers.shape == (36,)
        assert np.isfinite(found.numbers).all(), family
        assert found.pictures.shape == (2, 64, 64)
        assert found.pictures.max() == 1.0
        assert found.pictures.min() >= 0.0


def test_features_of_a_grid_are_those_counted_by_hand():
    found = features_of(grid("triangle", (10, 10)))
    valence = np.bincount(grid("triangle", (10, 10)).cells.ravel())
    assert found["nodes"] == pytest.approx(np.log1p(121))
    assert found["elements"] == pytest.approx(np.log1p(200))
    assert found["valence most"] == pytest.approx(np.log1p(6))
    assert found["valence mean"] == pytest.approx(np.log1p(valence.mean()))
    # All nodes are sampled; 40 of 121 are on the boundary, and inner rows have 7 entries.
    assert found["boundary share"] == pytest.approx(40 / 121)
    assert found["row most"] == pytest.approx(np.log1p(7))
    assert found["components"] == pytest.approx(np.log1p(1))
    assert found["bandwidth"] == pytest.approx(np.log1p(12))
    assert found["unused share"] == 0
    cubes = features_of(grid("hexahedron", (4, 4, 4)))
    assert cubes["boundary share"] == pytest.approx(1 - 27 / 125)
    assert cubes["row most"] == pytest.approx(np.log1p(27))
    tetrahedra = features_of(grid("tetra", (4, 4, 4)))
    assert tetrahedra["boundary share"] == pytest.approx(1 - 27 / 125)


def test_parts_and_hubs_are_seen():
    found = features_of(together([grid("triangle", (3, 3)), grid("triangle", (4, 4)), fan(50)]))
    assert found["components"] == pytest.approx(np.log1p(3))
    assert found["valence most"] == pytest.approx(np.log1p(50))
    assert found["at hubs"] == pytest.approx(50 / 100)


def test_renumbering_changes_what_it_should_and_nothing_else():
    mesh = grid("tetra", (7, 7, 7))
    rng = np.random.default_rng(0)
    other = renumbered(mesh, rng.permutation(len(mesh.points)), rng)
    first, second = features_of(mesh), features_of(other)
    same = "nodes", "elements", "valence mean", "valence deviation", "valence most", "valence p95", "row most", "components", "dimension"
    for name in same:
        assert first[name] == pytest.approx(second[name]), name
    order = "reuse distance", "use span", "nodes in a run", "lines in a run"
    for name in ("distance mean", "profile", "gap", "distance mean absolute", *order):
        assert second[name] > first[name] * 1.2, name
    # A band along the diagonal becomes a cloud.
    corner = pictures(mesh.cells, len(mesh.points))[0, :16, -16:].sum(), pictures(other.cells, len(mesh.points))[0, :16, -16:].sum()
    assert corner[0] == 0 < corner[1]


def test_the_order_of_a_strip_is_counted_by_hand():
    # Element k has nodes k, k + 1 and k + 2, so node k is used by elements k - 2, k - 1 and k, and eight nodes share a line.
    cells = np.arange(1024)[:, None] + np.arange(3)
    points = np.stack([np.arange(1026.0), np.arange(1026) % 2], axis=1)
    found = features_of(oriented(Mesh(points, cells.astype(np.int32), ELEMENTS["triangle"])))
    inner = np.isin(np.linspace(0, 1025, 512).astype(int), [0, 1, 1024, 1025], invert=True)
    assert found["reuse distance"] == pytest.approx(np.log(2), rel=0.01)
    assert found["use span"] == pytest.approx(np.log(3) * inner.mean(), rel=0.01)
    assert found["nodes in a run"] == pytest.approx(514 / 512)
    assert found["lines in a run"] == pytest.approx(65 / 512, rel=0.02)


@pytest.mark.parametrize(
    ("cell", "physics", "elements", "first", "second", "kept"),
    [
        ("tetra", "elasticity", 15_000, "scatter-atomic", "blocked", ("as made",)),
        ("tetra", "poisson", 46_000, "coo-sort", "coloured", ("as made", "rcm")),
        ("triangle", "elasticity", 30_000, "row-gather", "coo-sort", ("as made", "rcm")),
    ],
)
def test_the_predicted_ranking_follows_a_renumbering(cell, physics, elements, first, second, kept):
    """In the measured table, these two change places when the grid is renumbered at random."""
    mesh = build(Plan("perturbed", cell, "P1", physics, elements, seed=1005))
    rng = np.random.default_rng(5)
    for order in (*kept, "random"):
        found = choose_for(problem_of(in_order(mesh, order, rng), physics)).numeric
        assert (found[first] < found[second]) == (order != "random"), (order, found)


def test_a_catalogue_has_every_order_and_no_order_of_the_judged_grids():
    found = plans()
    assert len({plan.name for plan in found}) == len(found) == 420
    for family in FAMILIES:
        orders = {plan.order for plan in found if plan.family == family}
        assert orders == ({"as made"} if family in ("structured", "perturbed", "renumbered", "rcm", "hilbert") else set(ORDERS))


def test_the_gini_of_equal_rows_is_zero_and_of_a_hub_is_not():
    ring = features_of(together([fan(3, centre=3.0 * k) for k in range(20)]))
    assert ring["row gini"] == pytest.approx(0, abs=1e-12)
    assert features_of(fan(300))["row gini"] > 0.1


def random_network(seed: int = 0) -> Network:
    rng = np.random.default_rng(seed)
    layers = {name: rng.normal(size=shape).astype(np.float32) * 0.1 for name, shape in (LAYERS | SCALES).items()}
    layers["deviation"] = np.ones(len(NAMES), np.float32)
    return Network(layers, "cpu", {"machine": "none"})


def test_numpy_infers_what_torch_does():
    torch = pytest.importorskip("torch")
    from armillary.numerics.assembly.selecting.training import _forward

    network = random_network()
    found = features_of(build(Plan("renumbered", "triangle", "P1", "poisson", 500)))
    w = {name: torch.tensor(x) for name, x in network.layers.items()}
    scaled = torch.tensor(np.clip(found.numbers - network.layers["mean"], -4, 4), dtype=torch.float32)
    expected = _forward(torch, w, torch.tensor(found.pictures)[None], scaled[None])[0] + w["offset"]
    assert network.log_seconds(found) == pytest.approx(expected.numpy(), rel=1e-4, abs=1e-4)


def planted(meshes: int, seed: int) -> Table:
    """Fabricates features and seconds: a rule of two features says which strategy is twice as fast as the next."""
    rng = np.random.default_rng(seed)
    numbers = rng.normal(size=(meshes, len(NAMES)))
    images = rng.uniform(size=(meshes, 2, 64, 64)).astype(np.float32) * 0.1
    best = np.where(numbers[:, 3] > 0.4, 0, np.where(numbers[:, 8] > 0, 2, 3))
    families = tuple(str(rng.choice(FAMILIES)) for _ in range(meshes))
    return Table(families, numbers, images, planted_seconds(numbers[:, 0], best), "cpu", {})


def planted_seconds(size: np.ndarray, best: np.ndarray) -> np.ndarray:
    """Returns log-seconds that grow with `size`; the strategy `best` is twice as fast as any other."""
    seconds = np.tile(np.log([4.0, 4.5, 5.0, 5.5, 6.0, 1, 2, 3, 4, 5]), (len(size), 1)) * 0.3 + 0.2 * size[:, None]
    seconds[np.arange(len(size)), best] = seconds[:, :5].min(axis=1) - 0.7
    return seconds


@functools.cache
def planted_on_meshes() -> Table:
    """Returns the features of real meshes of all families with fabricated seconds, which hubs, elasticity and order of nodes decide."""
    found = [(plan, features_of(build(plan), plan.physics)) for plan in plans(400, 2000)[::2]]
    numbers = np.array([one.numbers for _, one in found])
    at = {name: numbers[:, k] for k, name in enumerate(NAMES)}
    best = np.where(at["valence most"] > 4.5, 1, np.where(at["unknowns per node"] > 1, 3, np.where(at["nodes per element"] > 4, 4, 2)))
    images = np.array([one.pictures for _, one in found])
    return Table(tuple(plan.family for plan, _ in found), numbers, images, planted_seconds(at["elements"], best), "cpu", {})


@pytest.mark.slow
def test_the_network_recovers_a_planted_rule():
    pytest.importorskip("torch")
    from armillary.numerics.assembly.selecting.training import picks, score, train

    table = planted_on_meshes()
    order = np.random.default_rng(0).permutation(len(table.families))
    learned, judged = table.where(order[60:]), table.where(order[:60])
    network = train(learned, epochs=20)
    result = score(judged, learned, picks(network, judged))
    assert result.accuracy >= 0.95
    assert result.over_average < 0.9
    assert result.median_regret == 0


def test_training_twice_gives_the_same_weights_and_leaves_the_random_stream_alone():
    torch = pytest.importorskip("torch")
    from armillary.numerics.assembly.selecting.training import train

    table = planted(16, 2)
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    first, second = train(table, epochs=2), train(table, epochs=2)
    assert torch.equal(torch.rand(3), expected)
    assert all(np.array_equal(first.layers[name], second.layers[name]) for name in LAYERS)


def test_boosted_trees_recover_it_too():
    pytest.importorskip("sklearn")
    from armillary.numerics.assembly.features_only import boosted
    from armillary.numerics.assembly.selecting.training import score

    learned, judged = planted(400, 0), planted(200, 1)
    models = boosted(learned, trees=40)
    chosen = np.argmin([m.predict(judged.numbers) for m in models], axis=0)
    assert score(judged, learned, chosen).accuracy >= 0.95


def test_no_family_is_learned_from_and_judged():
    table = planted(200, 3)
    for fold in range(FOLDS):
        learned, judged = table.without(fold), table.only(fold)
        assert not set(learned.families) & set(judged.families)
        assert len(learned.families) + len(judged.families) == 200
        assert len(learned.numbers) == len(learned.log_seconds) == len(learned.pictures) == len(learned.families)
    assert len(table.without(-1).families) == 200
    assert fold_of("somebody's mesh") == -1


def test_a_table_and_weights_survive_their_files(tmp_path: Path):
    table = planted(20, 4)
    table.save(tmp_path / "t.npz", with_pictures=True)
    again = load_table(tmp_path / "t.npz", "cpu")
    assert again.families == table.families
    assert again.numbers == pytest.approx(table.numbers, rel=1e-6)
    assert again.pictures == pytest.approx(table.pictures, abs=1e-3)
    network = random_network()
    network.save(tmp_path / "w.npz")
    found = features_of(grid("triangle", (5, 5)))
    assert load(tmp_path / "w.npz", "cpu").log_seconds(found) == pytest.approx(network.log_seconds(found), abs=0.02)
    assert (tmp_path / "w.npz").stat().st_size < 300_000


def test_weights_of_another_device_or_version_are_refused(tmp_path: Path):
    network = random_network()
    path = tmp_path / "w.npz"
    network.save(path)
    with pytest.raises(InputError, match='found weights of "cpu"; expected "cuda:H200"'):
        load(path, "cuda:H200")
    for version, changed, says in ((99, {}, "features 99"), (VERSION, {"mean": np.full(len(NAMES), np.nan)}, '"mean"')):
        tag = {"device": "cpu", "features": version, "strategies": NUMERIC}
        np.savez(path, tag=np.frombuffer(json.dumps(tag).encode(), np.uint8), **(network.layers | changed))
        with pytest.raises(InputError, match=says):
            load(path, "cpu")
    np.savez(path, mean=np.zeros(len(NAMES)))
    with pytest.raises(InputError, match="no weights of a selector"):
        load(path, "cpu")


def test_the_shipped_weights_are_small_and_one_fold_each():
    for name in ("all", *(f"fold{k}" for k in range(FOLDS))):
        assert (HERE / "cpu" / f"{name}.npz").stat().st_size < 300_000
    for family in FAMILIES:
        assert shipped(family).facts["fold"] == fold_of(family)
    assert "fold" not in shipped().facts
    assert set(shipped_table().families) == set(FAMILIES)


def test_the_fan_is_never_coloured():
    for valence, dimension in ((10_000, 2), (5_000, 2), (3_000, 3)):
        problem = problem_of(fan(valence, dimension))
        assert all(choose_for(problem, family=family).strategy != "coloured" for family in ("", "fan"))


def test_a_choice_says_why_and_the_table_begins_with_it():
    mesh = build(Plan("perturbed", "triangle", "P1", "poisson", 2000))
    found = choose(mesh.points, mesh.cells)
    assert found.table[0]["strategy"] == found.strategy
    assert {line["strategy"] for line in found.table} == set(NUMERIC)
    assert found.strategy in found.why
    assert all(line["numeric_s"] > 0 for line in found.table)
    seldom = choose(mesh.points, mesh.cells, reuse=1)
    for line in seldom.table:
        assert line["seconds"] == pytest.approx(line["numeric_s"] + line["setup_s"])


def test_reuse_makes_preparation_count():
    assert Choice("a", {"a": 1.0, "b": 2.0}, {"a": 10.0, "b": 0.0}, "", reuse=1).table[0]["strategy"] == "b"
    assert Choice("a", {"a": 1.0, "b": 2.0}, {"a": 10.0, "b": 0.0}, "", reuse=100).table[0]["strategy"] == "a"


def test_auto_gives_the_matrix_and_verify_keeps_the_faster(monkeypatch):
    mesh = build(Plan("perturbed", "triangle", "P1", "poisson", 300))
    asm = Assembler(mesh.points, mesh.cells, verify=True)
    expected = Assembler(mesh.points, mesh.cells, strategy="row-gather")()
    assert asm.choice is not None
    assert abs(asm() - expected).max() <= 1e-13
    first, second = asm.choice.first_two()
    assert first != second
    # On this clock the choice takes ten seconds and the other one takes one second.
    ticks = iter([0, 10 * 10**9, 20 * 10**9, 21 * 10**9])
    for _ in range(18):
        asm()
    assert asm.strategy == first
    monkeypatch.setattr(time, "perf_counter_ns", lambda: next(ticks))
    assert abs(asm() - expected).max() <= 1e-13
    assert asm.strategy == second
    assert abs(asm() - expected).max() <= 1e-13


def test_hubs_are_set_apart_where_a_tenth_is_gained():
    mesh = together([grid("triangle", (40, 40)), fan(400)])
    problem = problem_of(mesh)
    assert at_hubs(problem).sum() == 400
    found = features(problem)

    class Planted(Network):
        def seconds(self, one):
            hubs = one["valence most"] > 4
            return np.array([9.0, 1.0, 5.0, 9.0, 9.0]) if hubs else np.array([9.0, 5.0, 1.0, 9.0, 9.0]), np.ones(5)

    network = Planted({}, "cpu", {})
    made = split(problem, found, network, 5.0, 0)
    assert made is not None
    assert made[0] == Hybrid("scatter-atomic", "coloured")
    assert made[1] == pytest.approx(0.6, abs=1e-3)
    assert split(problem, found, network, 2.1, 0) is None
    given = np.random.default_rng(0).uniform(1, 2, mesh.elements)
    expected = Assembler(mesh.points, mesh.cells, strategy="row-gather")(given)
    for one in (made[0], Hybrid("row-gather", "blocked"), Hybrid("coo-sort", "row-gather")):
        asm = Assembler(mesh.points, mesh.cells, strategy=one)
        assert asm.facts["elements at hubs"] == 400
        assert abs(asm(given) - expected).max() <= 1e-12
    plain = problem_of(grid("triangle", (10, 10)))
    assert split(plain, features(plain), network, 5.0, 0) is None


def test_the_best_and_what_counts_as_right():
    seconds = Seconds({"coo-sort": 2.0, "blocked": 1.0, "coloured": 1.04}, {}, 1.0)
    assert seconds.best == "blocked"
    assert [seconds.right(name) for name in seconds.numeric] == [False, True, True]


def test_plans_are_spread_over_families():
    some = spread_out(plans(), 30)
    assert len(some) == 30
    assert {plan.family for plan in some} == set(FAMILIES)
    with pytest.raises(InputError, match="at least 12"):
        spread_out(plans(), 3)


def test_techniques_are_judged_alike():
    arena = catalogue.arena("numerics/assembly")
    case = next(c for c in arena.built_in("tiny") if c.name == "renumbered-tetra-poisson").at(0, 0)
    judged = [name for name in arena.techniques if name != "features-only"]  # It would be trained first.
    found = {name: arena.execute(arena.make(name), case).values for name in judged}
    for values in found.values():
        assert values["regret"] >= 0
        assert values["accuracy"] == float(values["regret"] <= 0.05 + 1e-12)
    assert found["oracle"]["regret"] == 0
    assert found["coo-sort"]["speedup_over_fixed"] == 1
    assert found["oracle"]["seconds"] == min(found[name]["seconds"] for name in NUMERIC)
    assert found["always-best-on-average"]["seconds"] in [found[name]["seconds"] for name in NUMERIC]
    assert found["pattern-aware"]["seconds"] in [found[name]["seconds"] for name in NUMERIC]
    assert arena.execute(arena.make("blocked", {"part_elements": 100}), case).values["seconds"] > 0


def test_selectors_never_learn_from_the_family_they_judge(monkeypatch):
    from armillary.numerics.assembly import always_best_on_average as average

    table = planted(60, 0)
    seconds = np.zeros((60, 10))
    seconds[:, 1] = -1
    # On the fans themselves another strategy is far ahead, which a selector that looked would take.
    seconds[[k for k, name in enumerate(table.families) if fold_of(name) == fold_of("fan")], 4] = -1000
    cheat = Table(table.families, table.numbers, table.pictures, seconds, "cpu", {})
    monkeypatch.setattr(average, "shipped_table", lambda: cheat)
    problem = problem_of(fan(20))
    assert average.AlwaysBestOnAverage().pick(problem, "fan") == strategy("scatter-atomic")
    assert average.AlwaysBestOnAverage().pick(problem, "") == strategy("blocked")


MESHES = {
    "two.vtk": (
        "# vtk DataFile Version 3.0\ntwo\nASCII\nDATASET UNSTRUCTURED_GRID\nPOINTS 4 double\n0 0 0 1 0 0 1 1 0 0 1 0\n"
        "CELLS 2 8\n3 0 1 2\n3 0 3 2\nCELL_TYPES 2\n5\n5\n"
    ),
    "two.msh": (
        "$MeshFormat\n2.2 0 8\n$EndMeshFormat\n$Nodes\n4\n1 0 0 0\n2 1 0 0\n3 1 1 0\n4 0 1 0\n$EndNodes\n"
        "$Elements\n3\n1 1 2 0 1 1 2\n2 2 2 0 1 1 2 3\n3 2 2 0 1 1 3 4\n$EndElements\n"
    ),
}


@pytest.mark.parametrize("name", MESHES)
def test_meshio_files_become_meshes(name, tmp_path: Path):
    pytest.importorskip("meshio")
    (tmp_path / name).write_text(MESHES[name])
    mesh = read_mesh(tmp_path / name)
    k = Assembler(mesh.points, mesh.cells, strategy="row-gather")().toarray()
    assert k.tolist() == [[1, -0.5, 0, -0.5], [-0.5, 1, -0.5, 0], [0, -0.5, 1, -0.5], [-0.5, 0, -0.5, 1]]


@pytest.mark.parametrize("suffix", [".vtu", ".vtk", ".msh", ".inp", ".xdmf"])
@pytest.mark.parametrize("cell", ["triangle", "tetra10", "hexahedron"])
def test_what_meshio_writes_is_read_back(suffix, cell, tmp_path: Path):
    meshio = pytest.importorskip("meshio")
    if suffix == ".xdmf":
        pytest.importorskip("h5py")
    plan = {"triangle": ("triangle", "P1"), "tetra10": ("tetra", "P2"), "hexahedron": ("hexahedron", "Q1")}[cell]
    mesh = build(Plan("perturbed", *plan, "poisson", 60))
    points = np.pad(mesh.points, ((0, 0), (0, 3 - mesh.points.shape[1])))
    known = {"file_format": "gmsh"} if suffix == ".msh" else {}  # Ansys has the suffix too.
    meshio.Mesh(points, [(cell, mesh.cells)]).write(tmp_path / f"m{suffix}", **known)
    found = read_mesh(tmp_path / f"m{suffix}")
    assert found.element == mesh.element
    expected = Assembler(mesh.points, mesh.cells, mesh.element.name, strategy="row-gather")()
    assert abs(Assembler(found.points, found.cells, found.element.name, strategy="row-gather")() - expected).max() < 1e-10


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.obj", "x", "found the ending .obj"),
        ("bad.vtk", "nonsense", "meshio cannot read it"),
        ("short.vtk", MESHES["two.vtk"][:100], "meshio cannot read it"),
        ("bad.msh", "$MeshFormat\n2.2 0 8\n$EndMeshFormat\n$Nodes\nmany\n", "meshio cannot read it"),
        ("huge.vtk", MESHES["two.vtk"].replace("POINTS 4", "POINTS 4000000000"), "a count of 4000000000"),
        ("huge.msh", MESHES["two.msh"].replace("$Nodes\n4", "$Nodes\n99999999999"), "a count of 99999999999"),
        ("far.vtk", MESHES["two.vtk"].replace("3 0 3 2", "3 0 3 9"), "found node 9"),
        ("nan.vtk", MESHES["two.vtk"].replace("1 1 0 0 1 0", "1 nan 0 0 1 0"), "expected finite numbers"),
        ("mixed.vtk", MESHES["two.vtk"].replace("CELLS 2 8", "CELLS 2 9").replace("3 0 3 2", "4 0 1 2 3").replace("5\n5\n", "5\n9\n"), "mixed cells"),
        ("line.vtk", MESHES["two.vtk"].replace("CELLS 2 8\n3 0 1 2\n3 0 3 2\nCELL_TYPES 2\n5\n5", "CELLS 1 3\n2 0 1\nCELL_TYPES 1\n3"), "expected one of triangle"),
        ("space.vtk", MESHES["two.vtk"].replace("1 1 0 0 1 0", "1 1 5 0 1 0"), "a surface in space"),
        ("flat.vtk", MESHES["two.vtk"].replace("3 0 3 2", "3 0 3 3"), "element 1 has no volume"),
    ],
)  # fmt: skip
def test_bad_files_are_refused_in_one_line(name, text, words, tmp_path: Path):
    pytest.importorskip("meshio")
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError) as error:
        read_mesh(tmp_path / name)
    assert words in str(error.value)
    assert name in str(error.value)
    assert "\n" not in str(error.value)


def test_a_file_is_a_case_with_its_physics(tmp_path: Path):
    pytest.importorskip("meshio")
    (tmp_path / "two.vtk").write_text(MESHES["two.vtk"])
    (case,) = catalogue.arena("numerics/assembly").from_file(tmp_path / "two.vtk", {"physics": "elasticity"})
    assert case.workload.problem.work.dofs == 2


def test_train_measures_and_writes_weights(tmp_path: Path):
    pytest.importorskip("torch")

    def train(*arguments):
        return CliRunner().invoke(assembly_app, ["train", *arguments])

    sizes = ["--meshes", "12", "--smallest", "500", "--largest", "600", "--epochs", "2"]
    done = train(*sizes, "--out", str(tmp_path))
    assert done.exit_code == 0, done.output
    assert done.output.count("fold ") == FOLDS
    assert load(tmp_path / "all.npz", "cpu").facts["meshes"] == 12
    assert len(load_table(tmp_path / "table.npz", "cpu").families) == 12
    mesh = grid("triangle", (5, 5))
    assert choose(mesh.points, mesh.cells, weights=tmp_path / "all.npz").strategy in STRATEGIES
    for wrong, says in ((["--meshes", "3"], "--meshes"), (["--table", str(tmp_path / "none.npz")], "none.npz")):
        refused = train(*wrong).exception
        assert isinstance(refused, InputError)
        assert says in str(refused)
