"""The arena: built-in cases, files of one's own, options, the answer, and what a bad file says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from armillary import compare
from armillary.errors import InputError
from armillary.scheduling.faas import Invocations
from armillary.scheduling.keepalive import KeepAliveWork, LaceRl
from armillary.scheduling.keepalive.arena import keepalive
from armillary.scheduling.keepalive.workload import trained_knowledge

QUICK = {"techniques": ["static-60", "break-even", "oracle"], "metrics": ["cost", "joint_share", "pareto_gap"], "repeats": 1, "quiet": True}


def test_the_cases_are_grids_by_lambda_and_misfits() -> None:
    names = [case.name for case in keepalive.built_in("small")]
    assert names == [
        *(f"{grid}-{lam}" for grid in ("flat", "solar-dip", "wind-noisy") for lam in (0.3, 0.5, 0.7)),
        "misfit-flat-wind-noisy", "misfit-solar-dip-flat", "misfit-wind-noisy-solar-dip", "misfit-flat-solar-dip",
        "misfit-solar-dip-wind-noisy", "misfit-wind-noisy-flat",
    ]  # fmt: skip
    assert keepalive.telling_cases() == ["flat-0.5", "solar-dip-0.5", "wind-noisy-0.5"]
    large = {case.name: case for case in keepalive.built_in("large")}
    assert list(large) == names
    assert large["flat-0.3"].parameters["invocations"] == 100_000_000
    assert {name for name, case in large.items() if "front" in case.kinds} == {"flat-0.5", "solar-dip-0.5", "wind-noisy-0.5"}
    assert sum("front" in case.kinds for case in keepalive.built_in("small")) == 9


def test_knowledge_comes_from_other_functions_than_the_test_day() -> None:
    case = keepalive.built_in("tiny")[0]
    work: KeepAliveWork = case.workload
    other: KeepAliveWork = case.at(1, 0).workload
    assert work.knowledge.latency_s == other.knowledge.latency_s
    assert work.trace.arrival_s[0] != other.trace.arrival_s[0]  # type: ignore[union-attr]
    misfit = next(c for c in keepalive.built_in("tiny") if "misfit" in c.kinds)
    assert misfit.parameters["known"] != misfit.parameters["grid"]


def test_a_comparison_answers_in_words() -> None:
    result = compare("scheduling/keepalive", scale="tiny", cases=["flat-0.5"], **QUICK)
    values = {name: result.medians(name, "cost")["flat-0.5"] for name in ("static-60", "break-even", "oracle")}
    assert values["oracle"] <= values["break-even"] < values["static-60"] == 1.0
    assert result.medians("static-60", "joint_share")["flat-0.5"] == 0.0
    assert result.medians("oracle", "pareto_gap")["flat-0.5"] == 0.0
    assert keepalive._answer is not None
    said = keepalive._answer(result)
    assert said.startswith("break-even has the lowest cost on flat-0.5")
    assert "A timer that knew every gap would save" in said


def test_the_front_has_one_point_per_lambda_and_is_drawn() -> None:
    result = compare("scheduling/keepalive", scale="tiny", cases=["solar-dip-0.5"], **QUICK)
    rows = result.artifact_rows("oracle", "solar-dip-0.5", "front")
    assert [float(row["lambda"]) for row in rows] == [k / 10 for k in range(1, 10)]
    carbon = [float(row["idle_carbon_g"]) for row in rows]
    assert carbon == sorted(carbon, reverse=True)
    assert len(result.artifact_rows("static-60", "solar-dip-0.5", "front")) == 1
    assert keepalive._plots is not None
    assert len(keepalive._plots(result)) == 2


def test_the_example_is_a_days_trace_with_its_grid(tmp_path: Path) -> None:
    path, options = keepalive.write_example(tmp_path)
    (case,) = keepalive.from_file(path, options)
    work: KeepAliveWork = case.workload
    assert work.carbon.values.min() == 120
    assert len(work.trace) == 900 + 23 + 480 + 2000
    assert work.history is not None
    assert 0 < len(work.history) < len(work.trace)
    outcome = keepalive.execute(LaceRl(), case)
    values: Any = outcome.values  # type: ignore[union-attr]
    # The last 45 % of the day are counted.
    assert 0 < values["cold_starts"] < 0.6 * len(work.trace)  # type: ignore[arg-type]


def test_a_trace_with_dates_meets_the_intensities_of_its_own_hours(tmp_path: Path) -> None:
    path, grid = tmp_path / "t.csv", tmp_path / "grid.csv"
    path.write_text("function,arrival_s,duration_s\n" + "".join(f"f,2024-06-01T{h:02d}:30:00Z,1\n" for h in range(10, 20)))
    grid.write_text("time,g_per_kwh\n" + "".join(f"2024-06-01T{h:02d}:00Z,{100 + h}\n" for h in range(24)))
    (case,) = keepalive.from_file(path, {"carbon": str(grid)})
    dated: KeepAliveWork = case.workload
    assert isinstance(dated.trace, Invocations)
    assert dated.carbon.at(dated.trace.start_s) == 110
    # Seconds that the file's dates do not cover begin with the file, and a start that is given always counts.
    path.write_text("function,arrival_s,duration_s\n" + "".join(f"f,{5000 + 3600 * h},1\n" for h in range(10)))
    for start, first in (("", 100), ("2024-06-01T07:00Z", 107)):
        (case,) = keepalive.from_file(path, {"carbon": str(grid), "carbon_start": start})
        assert case.workload.carbon.at(5000.0) == first


def test_without_history_the_training_day_is_known_and_nothing_can_be_trained_on(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("function,arrival_s,duration_s\n" + "".join(f"f,{100 * k},1\n" for k in range(50)))
    (case,) = keepalive.from_file(tmp_path, {"history": "0", "validation": "0"})
    assert case.workload.knowledge == trained_knowledge("flat", 500, 200_000)
    declined = keepalive.execute(LaceRl(retrain=True), case)
    assert "no invocation stands in the history" in str(declined)


def test_a_folder_and_a_grid_by_name(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("function,arrival_s,duration_s\n" + "".join(f"f,{1000 * k},1\n" for k in range(50)))
    (case,) = keepalive.from_file(tmp_path, {"carbon": "wind-noisy", "lam": "0.3", "history": "0", "validation": "0", "startup": "busy"})
    work: KeepAliveWork = case.workload
    assert (work.lam, work.startup) == (0.3, "busy")
    result: Any = keepalive.execute(keepalive.make("static-600"), case)
    assert result.values["cold_starts"] == 50


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"carbon": "coal"}, "--carbon coal: found no such file; expected a file, or flat, solar-dip, wind-noisy"),
        ({"lam": "2"}, "--lam"),
        ({"history": "0.9", "validation": "0.5"}, "--history"),
        ({"spread": "late"}, "--spread"),
        ({"carbon": "GRID", "carbon_start": "2024-06-02T12:00Z"}, "expected them to cover the work"),
        ({"carbon": "GRID", "carbon_start": "noon"}, "--carbon-start"),
        ({"durations": "GRID"}, "grid.csv:1: found the columns time, g_per_kwh"),
    ],
)
def test_wrong_options_are_refused_in_one_line(tmp_path: Path, options: dict[str, str], said: str) -> None:
    path, given = keepalive.write_example(tmp_path)
    with pytest.raises(InputError, match=said) as error:
        keepalive.from_file(path, {name: value.replace("GRID", given["carbon"]) for name, value in options.items()})
    assert "\n" not in str(error.value)


def test_a_trace_with_nothing_left_to_count_is_declined(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("function,arrival_s,duration_s\nf,0,1\nf,10,500\n")
    (case,) = keepalive.from_file(tmp_path / "t.csv", {})
    declined = keepalive.execute(keepalive.make("static-60"), case)
    assert "no invocation is left to count" in str(declined)


def test_claims_name_every_rival() -> None:
    claims = keepalive.claims_of("lace-rl")
    rivals = {name for name in keepalive.techniques if not keepalive.technique(name).oracle} - {"lace-rl"}
    assert set(claims[1].baselines) == rivals
    assert [claim.metric for claim in claims] == ["joint_share", "cost", "pareto_gap", "decide_us", "cost"]
