"""The arena as a whole: techniques by hand, agreement, questions, claims, a file of one's own, and a workflow that really runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from workflow_examples import GENOME, TWO, TWO_COSTS, random_costs

import armillary
from armillary import catalogue
from armillary.errors import InputError
from armillary.scheduling.workflow import (
    AllShared,
    AnalyticModel,
    Configurations,
    Exhaustive,
    Fsf,
    Heft,
    Hybrid,
    Ltl,
    Planning,
    QoSFlow,
    Query,
    Random,
    ablation,
    built_in,
    concordance,
    enumerate_configurations,
    list_schedule,
    questions,
    share_met,
)
from armillary.scheduling.workflow.analysis.agreement import first_makespan, groups
from armillary.scheduling.workflow.analysis.measures import measures, planning_of
from armillary.scheduling.workflow.arena import workflow
from armillary.scheduling.workflow.execution.real import graph_of, run_all, scaled

SIMPLE = {"all-shared": AllShared(), "fsf": Fsf(), "ltl": Ltl(), "hybrid": Hybrid(), "heft": Heft(), "analytic": AnalyticModel()}


def test_concordance_by_hand() -> None:
    seconds = np.array([1.0, 2.0, 3.0])
    assert concordance(np.array([0.0, 1.0, 2.0]), seconds) == 1
    assert concordance(np.array([2.0, 1.0, 0.0]), seconds) == 0
    assert concordance(np.zeros(3), seconds) == 0.5
    assert concordance(np.array([0.0, 0.0, 1.0]), seconds) == pytest.approx(2.5 / 3)
    assert concordance(np.array([0.0, 1.0]), np.ones(2)) == 0.5


@settings(max_examples=50, deadline=None)
@given(values=st.lists(st.integers(0, 5), min_size=2, max_size=20), seed=st.integers(0, 1000))
def test_a_tie_is_worth_what_a_coin_gives(values: list[int], seed: int) -> None:
    """Concordance with ties is the mean over both ways to break each tie, and reversing a ranking gives one less it."""
    rng = np.random.default_rng(seed)
    score, seconds = np.array(values, float), rng.random(len(values))
    found = concordance(score, seconds)
    order = np.arange(len(values)) / 100
    both = (concordance(score + order, seconds) + concordance(score - order, seconds)) / 2
    assert found == pytest.approx(both)
    assert concordance(-score, seconds) == pytest.approx(1 - found)


def test_first_choice_and_groups_by_hand() -> None:
    score, seconds = np.array([0.0, 0.0, 1.0]), np.array([10.0, 20.0, 5.0])
    assert first_makespan(score, seconds) == 15
    assert groups(score, seconds) == (2, pytest.approx(2 / 3 * 5 / 15))


def three(tier: list[list[int]], nodes: list[int]) -> Planning:
    found = Configurations(np.array(tier, np.int8), np.array(nodes, np.int64))
    costs = tuple(random_costs(GENOME, n, np.random.default_rng(n)) for n in sorted(set(nodes)))
    return Planning(GENOME, found, np.arange(len(nodes)), costs)


def test_rules_of_thumb_by_hand() -> None:
    planning = three([[0, 0, 0, 0, 0], [2, 2, 2, 2, 2], [1, 1, 1, 1, 1], [2, 0, 0, 0, 0], [2, 1, 0, 0, 0]], [2] * 5)
    assert Fsf().rank(planning).score.tolist() == [4, 0, 3, 2, 1]
    assert AllShared().rank(planning).score.tolist() == [0, 3, 3, 1, 2]
    # Everything local: two stage-ins, three fan-outs and two flushes. One on tmpfs: in and out. Two: both twice.
    assert Ltl().rank(planning).score.tolist() == [0, 3, 3, 1, 2]
    hybrid = Hybrid().rank(planning).score
    assert hybrid[1] == 0
    more = three([[0, 0, 0, 0, 0], [2, 2, 2, 2, 2]], [10, 2])
    for technique in (Ltl(), AllShared()):
        assert technique.rank(more).score.tolist() == [0, 1], "more nodes come first"
    alike = three([[2, 2, 2, 2, 2], [2, 2, 2, 2, 2], [0, 0, 0, 0, 0]], [2, 10, 10])
    assert Fsf().rank(alike).score.tolist() == [1, 0, 2], "more nodes come first among equal tiers"
    assert Hybrid().rank(alike).score.tolist() == [1, 0, 0], "all in memory and all shared are worth the same"


def test_list_scheduling_takes_the_tier_of_least_finish_time() -> None:
    choice, end = list_schedule(TWO, TWO_COSTS, 4)
    # A on b ends after 12 s and on s after 5 + 1 + 0.5 s; then B on s takes the fan-out, its own time and the flush.
    assert choice.tolist() == [1, 1]
    assert end == pytest.approx(6.5 + 1 + 0.8 + 1)
    planning = Planning(TWO, enumerate_configurations(TWO, [1]), np.arange(4), (TWO_COSTS,))
    # A on the wrong tier counts 12 − 1.5 s, B 8 − 0.8 s.
    assert Heft().rank(planning).score == pytest.approx(end + np.array([10.5 + 7.2, 10.5, 7.2, 0]))


def small_case(name: str = "genome-10"):  # type: ignore[no-untyped-def]
    (case,) = (case for case in workflow.built_in("tiny") if case.name == name)
    return case.at(0, 0)


def test_no_technique_but_the_oracle_sees_the_judge() -> None:
    work = small_case().workload
    for technique in (*SIMPLE.values(), QoSFlow(), Random()):
        seen = planning_of(work, technique)
        assert seen.measured is None
        shuffled = planning_of(replace(work, judged=work.judged[::-1]), technique)
        if not isinstance(technique, Random):
            assert np.array_equal(technique.rank(seen).score, technique.rank(shuffled).score)
    assert np.array_equal(Exhaustive().rank(planning_of(work, Exhaustive())).score, work.judged)
    found = measures(Exhaustive(), work, np.random.default_rng(0)).values
    assert found["concordance"] == 1
    assert found["first_regret"] == 0
    assert found["promise_error"] == 0
    assert found["qos_met"] == 1


def test_questions_are_feasible_exactly_where_they_say_so() -> None:
    work = small_case("genome").workload
    options = work.configurations.at(work.candidates)
    asked = questions(options, work.layout, work.judged, np.random.default_rng(0))
    assert len(asked) == 40
    assert sum(not question.feasible for question in asked) == 4
    assert {question.query.nodes_max for question in asked} >= {None, 2}
    assert any(question.query.tiers for question in asked)
    for question in asked:
        allowed = question.query.allows(options, work.layout)
        assert (work.judged[allowed] <= question.query.deadline_s).any() == question.feasible


def test_an_answer_counts_only_if_it_holds_in_the_judge() -> None:
    planning = Planning(TWO, enumerate_configurations(TWO, [1]), np.arange(4), (TWO_COSTS,))
    judged = np.array([20.0, 18.1, 17.5, 9.3])
    from armillary.scheduling.workflow.analysis.questions import Question

    ranking = AnalyticModel().rank(planning)
    good, bad, never = Question(Query(10.0), True), Question(Query(9.3001), True), Question(Query(5.0), False)
    assert share_met(AnalyticModel(), planning, ranking, [good, bad, never], judged) == 1
    slower = np.array([20.0, 18.1, 17.5, 11.0])
    assert share_met(AnalyticModel(), planning, ranking, [good], slower) == 0, "promised 9.3 s, delivered 11 s"
    shared = AllShared().rank(planning)
    assert share_met(AllShared(), planning, shared, [good, never], judged) == 0, "a rule of thumb never says infeasible"
    tied = Fsf().rank(planning)
    assert share_met(Fsf(), planning, tied, [Question(Query(18.0, tiers=("b", "s")), True)], judged) == 1
    margin = QoSFlow(min_leaf=1, selection="unpruned", margin=0.5)
    assert share_met(margin, planning, margin.rank(planning), [Question(Query(10.0), True)], judged) == 0


def test_cases_are_those_of_the_claims() -> None:
    cases = {case.name: case for case in workflow.built_in("small")}
    scaled_cases = [name for name, case in cases.items() if "scaled" in case.kinds]
    assert len(scaled_cases) == 11
    assert {name for name, case in cases.items() if "misfit" in case.kinds} == {f"flat-{w}" for w in ("genome", "montage", "ddmd", "seismology")}
    assert "work" not in cases["real"].kinds | cases["wide"].kinds | cases["flat-genome"].kinds
    rivals = {rival for _, _, claim in workflow.claims(["qosflow"]) for rival in claim.baselines}
    assert rivals == {"fsf", "ltl", "hybrid", "all-shared", "heft", "analytic"}
    large = {case.name: case for case in workflow.built_in("large")}
    assert large["wide"].parameters["stages"] == 12
    assert large["genome-10"].parameters["most"] == 300


def test_where_all_tiers_are_alike_nothing_orders_better_than_few_copies() -> None:
    """The misfit: storage does not matter, so a promise about it is worth little, and the first choice is hardly worse than shared."""
    work = small_case("flat-genome").workload
    shared, mine = (measures(technique, work, np.random.default_rng(0)).values for technique in (AllShared(), QoSFlow()))
    assert mine["first_s"] < 1.1 * shared["first_s"]


def test_the_ablation_names_every_part() -> None:
    found = ablation(small_case("seismology-10").workload)
    assert next(iter(found)) == "qosflow"
    assert {"no tree (analytic)", "no pruning", "merged regions"} <= set(found)
    assert found["no pruning"]["regions"] >= found["qosflow"]["regions"]
    assert all(0 <= values["concordance"] <= 1 for values in found.values())


def test_a_comparison_of_a_file_answers(tmp_path: Path) -> None:
    path, options = workflow.write_example(tmp_path)
    chosen = ["ltl", "analytic", "qosflow", "exhaustive"]
    found = armillary.compare("scheduling/workflow", work=path, options=options, techniques=chosen, store=tmp_path / "r.db")
    assert set(found.on("survey.json", "concordance")) == set(chosen)
    assert "orders configurations best on survey.json" in found.answer()
    ranked = found.artifact_rows("qosflow", "survey.json", "ranking")
    assert {"judged_s", "promised_s", "split", "merge", "analyse", "report", "nodes"} == set(ranked[0])
    assert found.artifact_rows("qosflow", "survey.json", "regions")


def test_an_order_that_chance_gives_too_is_not_called_the_best(tmp_path: Path) -> None:
    chosen = ["all-shared", "fsf", "random"]
    found = armillary.compare("scheduling/workflow", scale="tiny", cases=["flat-genome"], techniques=chosen, store=tmp_path / "r.db")
    assert max(found.on("flat-genome", "concordance").values()) < 0.6
    assert "No technique orders the configurations of flat-genome much better than chance" in found.answer()


def test_a_line_about_a_file_names_it(tmp_path: Path) -> None:
    path, _ = workflow.write_example(tmp_path)
    path.write_text(path.read_text().replace('"coreCount": 1', '"coreCount": 1000', 1))
    with pytest.raises(InputError, match=r"survey.json: a task needs 1000 cores; expected at most 64"):
        armillary.compare("scheduling/workflow", work=path, techniques=["ltl"], store=tmp_path / "r.db")


def test_another_cluster_may_be_named() -> None:
    cluster = armillary.cluster.preset("tiers-10").scale(nodes=12)
    (case,) = (case for case in workflow.built_in("tiny", cluster) if case.name == "seismology-10")
    assert workflow.execute(Ltl(), case.at(0, 0)).values["first_s"] > 0  # type: ignore[union-attr]
    assert catalogue.arena("scheduling/workflow") is workflow


def test_a_workflow_really_runs_in_directories(tmp_path: Path) -> None:
    """Twenty tasks in two configurations: the files are where the tiers are, and the graph is the workflow's."""
    made = scaled(built_in("genome", np.random.default_rng(0), 10), 1e-6, 0.0)
    graph = graph_of(made)
    assert len(graph) == made.tasks
    assert sorted(len(task.before) for task in graph.tasks) == sorted(np.diff(made.first_parent).tolist())
    work = small_case().workload
    assert work.machine is not None
    folders = {name: tmp_path / name for name in work.machine.names}
    for folder in folders.values():
        folder.mkdir()
    two = Configurations(np.array([[0, 0, 0, 0, 0], [2, 2, 2, 2, 2]], np.int8), np.ones(2, np.int64))
    found = run_all(made, replace(work.machine, cores=2), two, folders)
    assert (found > 0).all()
    assert not [path for path in tmp_path.rglob("*") if path.is_file()], "nothing is left behind"


@pytest.mark.slow
def test_the_real_case_is_measured() -> None:
    (case,) = (case for case in workflow.built_in("small") if case.name == "real")
    assert workflow.metrics["concordance"].kind_on(case) == "measured"
    done = workflow.execute(AnalyticModel(), case.at(0, 0))
    assert 0 <= done.values["concordance"] <= 1  # type: ignore[union-attr]
    assert done.values["first_s"] > 0  # type: ignore[union-attr]
