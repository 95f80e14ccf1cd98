"""How fast the planning of scheduling/workflow is on this machine, beside scikit-learn and WfCommons.

python benchmarks/scheduling_workflow.py prints CPU seconds of the analytic model for 531,441 configurations of 12 stages (goal: 20 s); of
the tree's selection on 5,000 rows (goal: 30 s), and the same selection with scikit-learn fitting a tree anew for every strength of pruning,
as a ratio; of reading a workflow of 1,000 tasks, beside WfCommons' own reader if it is installed, as a ratio; milliseconds of a judged
configuration of 140 tasks (goal: 10 ms); and QoSFlow's first choice beside everything shared where all tiers are equally fast (goal: at
most 5 % slower). Last, one JSON object.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from sklearn.model_selection import KFold
from sklearn.tree import DecisionTreeRegressor

from armillary.scheduling.workflow import (
    Layout,
    Machine,
    Planner,
    Player,
    Settings,
    Statistics,
    Workflow,
    built_in,
    costs_of,
    enumerate_configurations,
)
from armillary.scheduling.workflow.arena import workflow
from armillary.scheduling.workflow.planning.makespan import totals
from armillary.scheduling.workflow.regions.tree import Tree, choose, features
from armillary.tasks.formats import from_wfformat


def cpu_s(what: Callable[[], object], turns: int = 3) -> float:
    """The median CPU seconds of a call."""
    taken = []
    for _ in range(turns):
        start = time.process_time()
        what()
        taken.append(time.process_time() - start)
    return statistics.median(taken)


def refitted(x: np.ndarray, y: np.ndarray, alphas: np.ndarray, settings: Settings) -> None:
    """Cross-validation as scikit-learn alone does it: one fit for every fold and strength of pruning."""
    for repeat in range(settings.repeats):
        for train, valid in KFold(settings.folds, shuffle=True, random_state=settings.seed + 137 * repeat).split(x):
            for alpha in alphas:
                tree = DecisionTreeRegressor(
                    criterion="absolute_error", min_samples_leaf=settings.min_leaf, max_depth=settings.max_depth, random_state=0,
                    ccp_alpha=float(alpha),
                )  # fmt: skip
                tree.fit(x[train], y[train]).predict(x[valid])


def instance(tasks: int, folder: Path) -> Path:
    """A WfFormat file of levels with 100 tasks, each of which reads what one task of the level before wrote."""
    files = [{"id": f"f{n}", "sizeInBytes": 1000} for n in range(tasks + 1)]
    listed = []
    for n in range(tasks):
        parents, children = [f"t{n - 100}"] if n >= 100 else [], [f"t{n + 100}"] if n + 100 < tasks else []
        reads = [f"f{n - 99}" if n >= 100 else "f0"]
        listed.append({"name": f"k_ID{n}", "id": f"t{n}", "parents": parents, "children": children, "inputFiles": reads,
                       "outputFiles": [f"f{n + 1}"]})  # fmt: skip
    ran = [{"id": f"t{n}", "runtimeInSeconds": 1.0, "coreCount": 1, "command": {"program": "k"}} for n in range(tasks)]
    path = folder / "w.json"
    path.write_text(json.dumps({
        "name": "w", "createdAt": "2026-01-01T00:00:00Z", "schemaVersion": "1.5",
        "workflow": {"specification": {"tasks": listed, "files": files},
                     "execution": {"makespanInSeconds": 1, "executedAt": "2026-01-01T00:00:00Z", "tasks": ran}},
    }))  # fmt: skip
    return path


def main() -> None:
    """Measures and prints."""
    found: dict[str, object] = {}
    machine = Machine.of("tiers-10")
    many = Statistics.of(built_in("pyflextrkr", np.random.default_rng(0), 48, stages=12))
    layout = Layout.of(many, machine.names, machine.shared)
    configurations = enumerate_configurations(layout, [10], cross_local=True)
    cost = costs_of(many, machine, 10)
    found["analytic_s"] = cpu_s(lambda: totals(configurations, layout, [cost]), 1)
    print(f"analytic model of {len(configurations):,} configurations with {len(layout.stages)} stages: {found['analytic_s']:.2f} s")

    total = totals(configurations, layout, [cost])
    rows = np.sort(np.random.default_rng(0).choice(len(total), 5000, replace=False))
    x, y, settings = features(configurations.at(rows), layout), total[rows], Settings()
    tree = Tree(x, y, settings)
    chosen = choose(x, y, tree, settings)
    ours = cpu_s(lambda: choose(x, y, tree, settings), 1)
    # One repetition with every tenth strength stands for all of them, because every fit takes about as long.
    few = chosen.alphas[::10]
    theirs = cpu_s(lambda: refitted(x, y, few, Settings(repeats=1)), 1) * settings.repeats * len(chosen.alphas) / len(few)
    found["selection_s"], found["refitting_s"], found["refitting_over_ours"] = ours, theirs, theirs / ours
    print(f"selection on 5,000 rows, {len(chosen.alphas)} strengths: {ours:.1f} s; a fit each {theirs:.1f} s ({theirs / ours:.1f} times)")

    with tempfile.TemporaryDirectory() as folder:
        path = instance(1000, Path(folder))
        mine = cpu_s(lambda: Workflow.from_graph(from_wfformat(path)))
        found["read_s"] = mine
        try:
            from wfcommons.wfinstances import Instance

            schema = Path(folder) / "schema.json"  # Its own schema lies on the network; an empty one lets everything through.
            schema.write_text("{}")
            other = cpu_s(lambda: Instance(path, schema_file=str(schema)))
            found["wfcommons_s"], found["wfcommons_over_ours"] = other, other / mine
            print(f"reading 1,000 tasks: {1e3 * mine:.0f} ms; WfCommons {1e3 * other:.0f} ms ({other / mine:.1f} times)")
        except ImportError as error:
            print(f"reading 1,000 tasks: {1e3 * mine:.0f} ms; WfCommons could not read it ({type(error).__name__})")

    player = Player(built_in("genome", np.random.default_rng(0), 100), machine, 10)
    player.play([0, 1, 0, 2, 2])
    found["play_ms"] = 1e3 * cpu_s(lambda: [player.play([0, 1, 0, 2, 2]) for _ in range(20)]) / 20
    print(f"a judged configuration of 140 tasks: {found['play_ms']:.2f} ms")

    cases = [case.at(0, 0) for case in workflow.built_in("small") if "misfit" in case.kinds]
    ratio = {}
    for case in cases:
        mine_s, shared_s = (workflow.execute(workflow.make(name), case).values["first_s"] for name in ("qosflow", "all-shared"))  # type: ignore[union-attr]
        ratio[case.name] = mine_s / shared_s - 1
    found["misfit_slower"] = ratio
    print("equal tiers, first choice beside everything shared:", ", ".join(f"{name} {100 * r:+.1f} %" for name, r in ratio.items()))
    fitted = cpu_s(lambda: Planner.of(built_in("genome", np.random.default_rng(0), 100), machine).fit(), 1)
    found["genome_fit_s"] = fitted
    print(f"regions of the genome workflow at three scales: {fitted:.2f} s")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
