"""The arena from the command line: an own log in words, the list of drives at risk, a nightly job, and what is refused."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path

import pytest
from small_fleets import drawn

from armillary import catalogue, compare
from armillary.arena import NotForThisCase
from armillary.errors import InputError
from armillary.observability.drives import write_alibaba, write_backblaze

ARENA = "observability/drives"


def test_an_own_log_is_answered_in_words_with_the_drives_at_risk(tmp_path: Path) -> None:
    path, options = catalogue.arena(ARENA).write_example(tmp_path / "log")
    found = compare(ARENA, work=path, options=options, techniques=["lightgbm", "threshold", "none"], store=tmp_path / "s.db")
    said = found.answer()
    assert "predicts failures best" in said
    assert "of the failing drives" in said
    rows = found.artifact_rows("lightgbm", path.name, "at-risk")
    assert len(rows) == 50
    assert {"model", "serial", "date", "score", "flagged"} == set(rows[0])
    assert [row["score"] for row in rows] == sorted((row["score"] for row in rows), reverse=True)
    flagged = [row for row in rows if str(row["flagged"]).lower() == "true"]
    assert not flagged or f"{flagged[0]['model']}/{flagged[0]['serial']}" in said
    assert "recall_of_possible" not in found.metrics or not found.on(path.name, "recall_of_possible")


def test_the_first_fleet_is_the_same_at_the_tiny_scale_whatever_runs_before() -> None:
    arena = catalogue.arena(ARENA)
    case = next(one for one in arena.built_in("tiny") if one.name == "fleet-1")
    values = [arena.execute(arena.make(name), case.at(0, 0)).values for name in ("lightgbm", "none", "lightgbm")]
    same = {key: value for key, value in values[0].items() if key not in ("train_s", "drives_per_s")}
    assert same == {key: value for key, value in values[2].items() if key in same}
    assert values[1]["recall"] == values[1]["f05"] == values[1]["false_alarm_rate"] == 0
    assert values[0]["oracle_recall"] == values[1]["oracle_recall"]


@pytest.mark.slow
def test_parts_that_are_switched_off_take_some_cases_only() -> None:
    arena = catalogue.arena(ARENA)
    case = next(one for one in arena.built_in("small") if one.name == "natural")
    outcome = arena.execute(arena.make("no-guidance"), case.at(0, 0))
    assert isinstance(outcome, NotForThisCase)


def test_telling_cases_leave_the_ablations_out_and_claims_have_four_cases_or_more() -> None:
    arena = catalogue.arena(ARENA)
    small = arena.built_in("small")
    for _, _, claim in arena.claims(["gmppredictor"]):
        if claim.needs:
            continue
        for kind in claim.kinds:
            assert sum(kind.takes(case.kinds) for case in small) >= 4
    rivals = set(next(claim for _, _, claim in arena.claims(["gmppredictor"])).baselines)
    assert rivals == set(arena.techniques) - {"gmppredictor", "no-partition", "no-guidance", "static-loss"}


def test_a_log_with_too_few_failures_or_days_ends_with_status_2(tmp_path: Path, armillary_command) -> None:  # type: ignore[no-untyped-def]
    write_alibaba(drawn(1, drives=40, days=60, failures=5), tmp_path / "few")
    run = armillary_command("compare", ARENA, "--work", str(tmp_path / "few"), "--horizon", "10", "--store", str(tmp_path / "s.db"))
    assert run.returncode == 2
    assert "expected at least 10 (pool models or fleets)" in run.stderr
    assert len([line for line in run.stderr.strip().splitlines() if "left out" not in line]) == 1
    assert not (tmp_path / "s.db").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"horizon": 30}, "expected at least 110 days for a horizon of 30"), ({"attributes": "5,x"}, "attributes: found"),
        ({"models": "none"}, "found no drive with a day"), ({"format": "backblaze"}, "expected date"), ({"most-rows": 999}, "most"),
    ],
)  # fmt: skip
def test_options_that_do_not_fit_are_said(tmp_path: Path, options: dict[str, object], message: str) -> None:
    path, usual = catalogue.arena(ARENA).write_example(tmp_path / "log")
    with pytest.raises(InputError) as raised:
        catalogue.arena(ARENA).from_file(path, {**usual, **options})
    assert message in str(raised.value)


@pytest.mark.slow
def test_a_nightly_job_fits_once_and_scores_every_night(tmp_path: Path, armillary_command) -> None:  # type: ignore[no-untyped-def]
    pytest.importorskip("torch")
    one = drawn(51, drives=320, days=70, failures=140)
    write_alibaba(one, tmp_path / "log")
    out = tmp_path / "m.npz"
    fitted = armillary_command(
        "drives", "fit", str(tmp_path / "log"), "--out", str(out), "--horizon", "10", "--epochs", "2", "--ensemble", "1"
    )
    assert fitted.returncode == 0, fitted.stderr
    assert "Learned from 320 drives with 140 failures" in fitted.stdout
    scored = armillary_command(
        "drives", "score", str(tmp_path / "log"), "--model", str(out), "--csv", str(tmp_path / "risk.csv"), "--prometheus",
        str(tmp_path / "drives.prom"), "--top", "20", "--drift",
    )  # fmt: skip
    assert scored.returncode == 0, scored.stderr
    rows = list(csv.DictReader((tmp_path / "risk.csv").open()))
    assert len(rows) == 20
    assert "flagged" in scored.stdout
    assert "signs" in scored.stdout
    assert (tmp_path / "drives.prom").read_text().startswith("# HELP armillary_drive_failure_probability")
    shutil.rmtree(tmp_path / "log")
    write_backblaze(one.last(20), tmp_path / "log")
    again = armillary_command("drives", "score", str(tmp_path / "log"), "--model", str(out))
    assert again.returncode == 0, again.stderr
    bad = armillary_command(
        "drives", "score", str(tmp_path / "log"), "--model", str(tmp_path / "none.npz"), "--csv", str(tmp_path / "x.csv")
    )
    assert bad.returncode == 2
    assert len([line for line in bad.stderr.strip().splitlines() if "left out" not in line]) == 1
    assert not (tmp_path / "x.csv").exists()
    nowhere = armillary_command("drives", "fit", str(tmp_path / "log"), "--out", str(tmp_path / "none" / "m.npz"))
    assert nowhere.returncode == 2
    assert "no such folder" in nowhere.stderr
