"""Workflows, tables of costs and tables of configurations in; job scripts and Snakemake profiles out; what is refused."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from armillary import catalogue
from armillary.errors import InputError
from armillary.scheduling.workflow import (
    Configurations,
    Planner,
    QoSFlow,
    Workflow,
    makespans,
    read_configurations,
    read_costs,
)
from armillary.scheduling.workflow.readers.files import read_work
from armillary.tasks.formats import from_wfformat

HEAD = (
    "producer,producerStageOrder,consumer,consumerStageOrder,producerStorageType,producerTasksPerNode,consumerStorageType,"
    "consumerTasksPerNode,SPM,estT_prod,estT_cons\n"
)
#: The two stages of the analytic model's test by hand, on beegfs and an SSD.
COSTS = HEAD + """\
stage_in-A,0,A,1,beegfs,1,beegfs,1,0,0,10
stage_in-A,0,A,1,beegfs-ssd,1,ssd,1,0,5,1
stage_in-A,0,A,1,beegfs-ssd,2,ssd,1,0,6,1
A,1,B,2,beegfs,1,beegfs,1,0,2,6
A,1,B,2,beegfs,1,ssd,1,0,2,0.6
A,1,B,2,ssd,1,beegfs,1,0,0.5,6
A,1,B,2,ssd,1,ssd,1,0,0.5,0.6
stage_in-B,1,B,2,beegfs-ssd,1,ssd,1,0,0.3,0.6
A,1,stage_out-A,2,beegfs,1,beegfs-ssd,1,0,2,4
A,1,stage_out-A,2,ssd,1,ssd-beegfs,1,0,0.5,3
A,1,stage_out-A,2,ssd,1,ssd-ssd,1,0,0.5,1
B,2,stage_out-B,3,beegfs,1,beegfs,1,0,2,0
B,2,stage_out-B,3,ssd,1,ssd-beegfs,1,0,0.2,1
"""
ORDER = {
    "A": {"stage_order": 1, "parallelism": 1, "num_tasks": 1, "predecessors": {"initial_data": {}}, "outputs": ["x"]},
    "B": {"stage_order": 2, "parallelism": 1, "num_tasks": 1, "predecessors": {"A": {}}, "outputs": []},
}


def task(key: str, parents: list[str] = [], reads: list[str] = [], writes: list[str] = [], **more: Any) -> dict[str, Any]:  # noqa: B006
    return {"name": key, "id": key, "parents": parents, "children": [], "inputFiles": reads, "outputFiles": writes, **more}


def document(tasks: list[dict[str, Any]], files: dict[str, int], ran: dict[str, Any] | None = None) -> dict[str, Any]:
    listed = [{"id": name, "sizeInBytes": size} for name, size in files.items()]
    execution = {"execution": {"tasks": [{"id": key, **facts} for key, facts in (ran or {}).items()]}} if ran is not None else {}
    return {"name": "w", "schemaVersion": "1.5", "workflow": {"specification": {"tasks": tasks, "files": listed}, **execution}}


def written(folder: Path, content: Any, name: str = "w.json") -> Path:
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def read(path: Path) -> Workflow:
    found = read_work(path).workflow
    assert found is not None
    return found


def test_stages_are_programs_at_a_level(tmp_path: Path) -> None:
    ran = {key: {"runtimeInSeconds": 1, "command": {"program": program}} for key, program in
           (("a", "split"), ("b", "work"), ("c", "work"), ("d", "work"), ("e", "/opt/bin/join"))}  # fmt: skip
    tasks = [task("e", ["d"]), task("d", ["b", "c"]), task("b", ["a"]), task("c", ["a"]), task("a")]
    found = read(written(tmp_path, document(tasks, {}, ran)))
    assert found.stages == ("split", "work@1", "work@2", "join")
    assert found.counts.tolist() == [1, 2, 1, 1]
    assert found.task_names == ("a", "b", "c", "d", "e")


def test_without_programs_the_name_without_its_number_counts(tmp_path: Path) -> None:
    tasks = [task("individuals_ID0000001"), task("individuals_ID0000002"), task("merge_ID0000003", ["individuals_ID0000001"])]
    assert read(written(tmp_path, document(tasks, {}))).stages == ("individuals", "merge")
    older = {"schemaVersion": "1.4", "workflow": {"tasks": [
        {"name": "x_1", "category": "fit", "files": [{"link": "output", "name": "f", "sizeInBytes": 5}]},
        {"name": "y_1", "category": "plot", "parents": ["x_1"], "files": [{"link": "input", "name": "f", "sizeInBytes": 5}]},
    ]}}  # fmt: skip
    assert read(written(tmp_path, older)).stages == ("fit", "plot")


def test_a_file_makes_an_edge_even_if_nobody_states_it(tmp_path: Path) -> None:
    found = read(written(tmp_path, document([task("b", reads=["f"]), task("a", writes=["f"])], {"f": 10})))
    assert found.stages == ("a", "b")
    assert found.parent.tolist() == [0]
    assert found.producer.tolist() == [0]


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (document([task("a", ["b"]), task("b", ["a"])], {}), r"cycle: "),
        (document([task("a", reads=["g"], writes=["f"]), task("b", reads=["f"], writes=["g"])], {"f": 1, "g": 1}), r"cycle: (a -> b|b -> a)"),
        (document([task("a", writes=["f"]), task("b", writes=["f"])], {"f": 1}), r'file "f" is written by two tasks, "a" and "b"'),
        (document([task("a", ["ghost"])], {}), r'unknown parent "ghost"'),
        (document([task("a", reads=["f"])], {"f": -1}), "not negative"),
        (document([], {}), "no tasks"),
        (document([task("a")], {}, {"a": {"runtimeInSeconds": 1, "coreCount": 65}}), "65 cores"),
        (document([task("nodes")], {}), 'a stage called "nodes"'),
        (document([task(f"s{n}", [f"s{n - 1}"] if n else []) for n in range(65)], {}), "65 stages"),
        (document([task(f"s{n}") for n in range(15)], {}), r"configurations.*--sample"),
    ],
)
def test_a_bad_workflow_is_one_line(tmp_path: Path, content: Any, match: str) -> None:
    path = written(tmp_path, content)
    with pytest.raises(InputError, match=match) as error:
        catalogue.arena("scheduling/workflow").from_file(path, {})
    assert "\n" not in str(error.value)


def test_work_is_counted_before_anything_is_judged(tmp_path: Path) -> None:
    """A task that reads 30,000 files would start 30,000 copies at once."""
    files = {f"f{n}": 1 for n in range(30_000)}
    path = written(tmp_path, document([task("a", reads=list(files))], files))
    with pytest.raises(InputError, match="--judged"):
        catalogue.arena("scheduling/workflow").from_file(path, {})


def test_a_sample_lets_a_wide_workflow_through(tmp_path: Path) -> None:
    path = written(tmp_path, document([task(f"s{n}") for n in range(15)], {}, {f"s{n}": {"runtimeInSeconds": 1} for n in range(15)}))
    (case,) = catalogue.arena("scheduling/workflow").from_file(path, {"sample": "300", "judged": "10"})
    assert len(case.at(0, 0).workload.configurations) == 300


def test_a_table_of_costs_gives_the_makespans_by_hand(tmp_path: Path) -> None:
    table = read_costs(written(tmp_path, COSTS, "costs.csv"), written(tmp_path, ORDER, "order.json"))
    assert table.layout.tiers == ("beegfs", "ssd")
    assert table.layout.initial == (True, False)
    found = Configurations(np.array([[0, 0], [0, 1], [1, 0], [1, 1]], np.int8), np.ones(4, np.int64))
    assert makespans(found, table.layout, [table.at(1)]).total == pytest.approx([20, 18.1, 17.5, 9.3])
    planner = QoSFlow.from_costs(tmp_path / "costs.csv", tmp_path / "order.json", nodes=[1])
    assert planner.fit(QoSFlow(min_leaf=1, selection="unpruned")).ask().configuration == {"A": "ssd", "B": "ssd", "nodes": 1}


def test_costs_between_two_concurrencies_are_interpolated(tmp_path: Path) -> None:
    order = {**ORDER, "A": {**ORDER["A"], "num_tasks": 4}}
    more = COSTS + "A,1,B,2,ssd,16,ssd,1,0,2.5,0.6\n"
    table = read_costs(written(tmp_path, more, "costs.csv"), written(tmp_path, order, "order.json"))
    assert table.at(4).write[0, 1] == pytest.approx(0.5)
    assert table.at(1).write[0, 1] == pytest.approx(1.5), "four tasks per node lie half-way between 1 and 16 in the logarithm"
    assert table.at(1).stage_in[0, 1] == 5.0, "the cheapest concurrency of a copy"


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda t, o: (t.replace("A,1,B,2,ssd,1,beegfs,1,0,0.5,6\n", "").replace("A,1,B,2,ssd,1,ssd,1,0,0.5,0.6\n", ""), o),
         "writing for producer A, consumer B, tier ssd is missing"),
        (lambda t, o: (t.replace("stage_in-A,0,A,1,beegfs,1,beegfs,1,0,0,10\n", ""), o), "producer stage_in-A, consumer A, tier beegfs"),
        (lambda t, o: (t.replace("ssd-ssd", "ssd-beegfs"), o), r"stage_out-A, tiers ssd-ssd"),
        (lambda t, o: (t.replace("ssd-ssd", "ssd-tape"), o), "a pair such as beegfs-ssd"),
        (lambda t, o: (t.replace("beegfs", "disk"), o), "--shared"),
        (lambda t, o: (t.replace(",10\n", ",-10\n"), o), "estT_cons"),
        (lambda t, o: (t.replace("A,1,B", "Z,1,B"), o), 'unknown stage "Z"'),
        (lambda t, o: (t, {**o, "B": {**o["B"], "predecessors": {"Q": {}}}}), 'unknown stage "Q"'),
        (lambda t, o: (t, {**o, "B": {**o["B"], "stage_order": 1}}), "may be a cycle"),
        (lambda t, o: (t, {**o, "B": {**o["B"], "num_tasks": 0}}), "num_tasks"),
        (lambda t, o: (t, {**o, "B": {**o["B"], "num_tasks": 10**9}}), "num_tasks"),
        (lambda t, o: (t, []), "expected an object of stages"),
        (lambda t, o: (t.replace("estT_prod", "est"), o), "estT_prod"),
    ],
)
def test_a_bad_table_of_costs_names_the_cell(tmp_path: Path, change: Any, match: str) -> None:
    table, order = change(COSTS, ORDER)
    path = written(tmp_path, table, "costs.csv")
    options = {"order": str(written(tmp_path, order, "order.json")), "nodes": "1"}
    with pytest.raises(InputError, match=match) as error:
        catalogue.arena("scheduling/workflow").from_file(path, options)
    assert "\n" not in str(error.value)


def configuration_rows() -> str:
    rows = ["nodes,total,in_o1,critical_path,first_stor,second_stor,read_first"]
    for nodes in (2, 5, 10):
        for first in ("beegfs", "ssd", "tmpfs"):
            for second in ("beegfs", "ssd", "tmpfs"):
                total = 100 - 30 * (first == "tmpfs") - nodes + 5 * (second == "ssd")
                rows.append(f"{nodes},{total},-,-,{first},{second},-")
    return "\n".join(rows) + "\n"


def test_a_table_of_configurations_is_fitted_on_its_own_makespans(tmp_path: Path) -> None:
    path = written(tmp_path, configuration_rows(), "runs.csv")
    table = read_configurations(path)
    assert table.layout.tiers == ("beegfs", "ssd", "tmpfs")
    assert table.layout.before == ((), (0,))
    fit = QoSFlow.fit_table(path, QoSFlow(min_leaf=3, selection="unpruned"))
    assert fit.regions()["first"][0] == "tmpfs"
    assert fit.ask(deadline_s=75).configuration["first"] == "tmpfs"
    assert fit.ask(deadline_s=10).feasible is False
    arena = catalogue.arena("scheduling/workflow")
    (case,) = arena.from_file(path, {})
    case = case.at(0, 0)
    # Leaves of eight leave two regions for 27 rows; smaller ones find the three effects.
    small = {"min_leaf": 2, "selection": "unpruned"}
    assert arena.execute(arena.make("qosflow", small), case).values["concordance"] > 0.8  # type: ignore[union-attr]
    assert "needs costs" in str(arena.execute(arena.make("analytic"), case))
    order = {"first": {"stage_order": 0, "num_tasks": 3}, "second": {"stage_order": 0, "num_tasks": 3}}
    assert read_configurations(path, written(tmp_path, order, "order.json")).layout.before == ((), ())


@pytest.mark.parametrize(
    ("content", "match"),
    [
        ("time,host,value\n1,2,3\n", r"a WfFormat workflow.*a table of costs per edge.*a table of configurations"),
        ("nodes,total,a_stor\n2,10,beegfs\n", "at least 4"),
        ("nodes,total,a_stor\n" + "2,10,ssd\n2,11,tmpfs\n" * 3, "--shared"),
        ("nodes,total,a_stor\n" + "2,10,beegfs\n" * 5, "expected 2 to"),
        ("nodes,total,a_stor\n" + "2,-10,beegfs\n2,1,ssd\n" * 3, "total"),
        ("nodes,total,a_stor\n" + "0,10,beegfs\n2,1,ssd\n" * 3, "nodes"),
        (HEAD, "--order"),
    ],
)
def test_a_bad_table_of_configurations_is_one_line(tmp_path: Path, content: str, match: str) -> None:
    path = written(tmp_path, content, "runs.csv")
    with pytest.raises(InputError, match=match) as error:
        catalogue.arena("scheduling/workflow").from_file(path, {})
    assert "\n" not in str(error.value)


def test_other_files_and_options_are_refused(tmp_path: Path) -> None:
    arena = catalogue.arena("scheduling/workflow")
    with pytest.raises(InputError, match="ending"):
        arena.from_file(written(tmp_path, "x", "work.yaml"), {})
    path, _ = arena.write_example(tmp_path)
    for options, match in (({"nodes": "20"}, "20 nodes"), ({"nodes": "2,2"}, "different"), ({"tiers": "tape"}, "unknown tier"),
                           ({"machine": "laptop"}, "kind pfs"), ({"real": "true", "bytes_scale": "1"}, "--bytes-scale"),
                           ({"real": "true", "directories": "tmpfs=/no/such"}, "--directories")):  # fmt: skip
        with pytest.raises(InputError, match=match):
            arena.from_file(path, options)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), kind=st.sampled_from(["costs", "order", "runs"]))
def test_a_damaged_table_is_read_or_refused_in_one_line(tmp_path: Path, data: st.DataObject, kind: str) -> None:
    texts = {"costs": COSTS, "order": json.dumps(ORDER), "runs": configuration_rows()}
    text = texts[kind]
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text) - 1))
        piece = data.draw(st.sampled_from(["", ",", "\n", "-", "e308", "nan", "9" * 30, "stage_in-", "ssd", '"', "{", "\x00", "\ud800x"[1:]]))
        text = text[:at] + piece + text[at + data.draw(st.integers(0, 8)) :]
    texts[kind] = text
    order = written(tmp_path, texts["order"], "order.json")
    path = written(tmp_path, texts["runs"] if kind == "runs" else texts["costs"], "table.csv")
    said = ""
    try:
        catalogue.arena("scheduling/workflow").from_file(path, {} if kind == "runs" else {"order": str(order), "nodes": "1,2"})
    except InputError as error:
        said = str(error)
    assert "\n" not in said


HOSTILE = "in; touch hacked $(touch hacked) 'quoted'"


def test_job_scripts_are_valid_shell_and_quote_what_comes_from_files(tmp_path: Path) -> None:
    tasks = [task(f"a{n}", reads=[HOSTILE], writes=[f"f{n}"]) for n in range(3)] + [task("b", reads=["f0", "f1", "f2"], writes=["g"])]
    ran = {**{f"a{n}": {"runtimeInSeconds": 1, "command": {"program": "a $(touch hacked)"}} for n in range(3)},
           "b": {"runtimeInSeconds": 1, "command": {"program": "b"}, "coreCount": 4}}  # fmt: skip
    path = written(tmp_path, document(tasks, {HOSTILE: 3 << 20, "f0": 1 << 20, "f1": 1 << 20, "f2": 1 << 20, "g": 10}, ran))
    fit = QoSFlow.from_wfformat(path, nodes=[2]).fit(QoSFlow(min_leaf=1))
    first = fit.layout.stages[0]
    scripts = fit.to_slurm({first: "ssd", "b": "beegfs", "nodes": 2}, tmp_path / "jobs")
    assert [script.name for script in scripts] == ["01-a___touch_hacked_.sbatch", "02-b.sbatch", "submit.sh"]
    local, shared, submit = (script.read_text() for script in scripts)
    assert "#SBATCH -N 2\n" in local
    assert "#SBATCH --ntasks-per-node=2\n" in local
    assert "#SBATCH --tmp=" in local
    assert "sbcast --force" in local
    assert "--tmp" not in shared
    assert "#SBATCH --cpus-per-task=4\n" in shared
    assert "--dependency=afterok:$job1" in submit
    fake = tmp_path / "bin"
    fake.mkdir()
    for name, body in (("srun", 'while [[ "$1" == --* ]]; do shift; done; "$@"'), ("sbcast", 'cp "$2" "$3"'), ("sbatch", "echo 7")):
        (fake / name).write_text(f"#!/bin/bash\n{body}\n")
        (fake / name).chmod(0o755)
    for place in ("shared/input", "ssd"):
        (tmp_path / place).mkdir(parents=True)
    (tmp_path / "shared/input" / HOSTILE).write_text("data")
    run_stage = tmp_path / "jobs" / "run-stage"
    run_stage.write_text('#!/bin/bash\nprintf "%s" "$1" > "$ROOT"/stage-seen\nls "$ROOT"/input > "$ROOT"/inputs-seen\n')
    run_stage.chmod(0o755)
    environment = {"PATH": f"{fake}:/usr/bin:/bin", "BEEGFS_DIR": str(tmp_path / "shared"), "SSD_DIR": str(tmp_path / "ssd"),
                   "SLURM_PROCID": "0"}  # fmt: skip
    for script in scripts:
        subprocess.run(["bash", script.name], cwd=tmp_path / "jobs", env=environment, check=True, capture_output=True)
    assert (tmp_path / "ssd/stage-seen").read_text() == first
    assert (tmp_path / "ssd/inputs-seen").read_text().strip() == HOSTILE
    assert not list(tmp_path.rglob("hacked"))


def test_a_snakemake_profile_has_the_tier_of_every_rule(tmp_path: Path) -> None:
    path, _ = catalogue.arena("scheduling/workflow").write_example(tmp_path)
    fit = QoSFlow.from_wfformat(path, nodes=[5]).fit()
    text = fit.to_snakemake({"split": "ssd", "merge": "ssd", "analyse": "beegfs", "report": "beegfs", "nodes": 5})
    yaml = pytest.importorskip("yaml")
    found = yaml.safe_load(text)
    assert found["default-resources"] == {"nodes": 5, "tier": "beegfs"}
    assert found["set-resources"]["split"] == {"tier": "ssd", "nodes": 5, "disk_mb": 2448}
    assert found["set-resources"]["merge"]["nodes"] == 1
    assert "disk_mb" not in found["set-resources"]["report"]


def test_job_scripts_need_a_workflow(tmp_path: Path) -> None:
    fit = QoSFlow.fit_table(written(tmp_path, configuration_rows(), "runs.csv"), QoSFlow(min_leaf=3))
    with pytest.raises(InputError, match="tasks and files"):
        fit.to_slurm({"first": "ssd", "second": "ssd", "nodes": 2}, tmp_path)


@pytest.mark.slow
def test_an_instance_of_wfcommons_gives_its_own_totals(tmp_path: Path) -> None:
    wfcommons = pytest.importorskip("wfcommons")
    recipes = pytest.importorskip("wfcommons.wfchef.recipes")
    made = wfcommons.WorkflowGenerator(recipes.GenomeRecipe.from_num_tasks(60)).build_workflow()
    made.write_json(tmp_path / "genome.json")
    found = Workflow.from_graph(from_wfformat(tmp_path / "genome.json"))
    assert found.tasks == len(made.tasks)
    assert found.compute_s.sum() == pytest.approx(sum(task.runtime for task in made.tasks.values()))
    files = {f.file_id: f.size for task in made.tasks.values() for f in (*task.input_files, *task.output_files)}
    assert found.size.sum() == sum(files.values())
    stated = {(found.task_names[p], found.task_names[t]) for t in range(found.tasks)
              for p in found.parent[found.first_parent[t] : found.first_parent[t + 1]]}  # fmt: skip
    assert set(made.edges) <= stated
    assert set(found.stages) == {"individuals", "individuals_merge", "sifting", "mutation_overlap", "frequency"}
    assert len(Planner.of(found, _machine(), [10]).planning.configurations) == 87


def _machine():  # type: ignore[no-untyped-def]
    from armillary.scheduling.workflow import Machine

    return Machine.of("tiers-10")
