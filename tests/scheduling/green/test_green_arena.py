"""The arena: cases, claims, own work, retraining, and bad input on the command line."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import armillary
from armillary.arena import NotForThisCase
from armillary.cli import app
from armillary.cluster import preset
from armillary.errors import InputError
from armillary.scheduling.green import GreenK8s, GreenWork, Nodes, OracleSun, PackAndSleep, built_in, play
from armillary.scheduling.green.arena import green


def sun_file(path: Any, days: int, start: str = "2024-06-01T00:00:00+00:00", step_min: int = 30) -> None:
    begin = datetime.datetime.fromisoformat(start)
    rows = []
    for k in range(days * 24 * 60 // step_min):
        hour = k * step_min / 60 % 24
        watts = 900 * max(0.0, np.sin(np.pi * (hour - 6) / 12)) * (0.55 + 0.45 * np.cos(k * 0.37))
        rows.append(f"{(begin + datetime.timedelta(minutes=k * step_min)).isoformat()},{watts:.1f}")
    path.write_text("\n".join(["timestamp,watts", *rows]) + "\n")


def test_cases_are_sites_by_weathers_and_misfits() -> None:
    small = green.built_in("small")
    assert sum("lit" in case.kinds for case in small) == 9
    assert sum("dark" in case.kinds for case in small) == sum("tight" in case.kinds for case in small) == 4
    assert set(green.telling) <= {case.name for case in small}
    assert len(green.built_in("tiny")) == 5
    assert green.technique("oracle-sun").oracle
    assert not green.claims_of("oracle-sun")
    rivals = {name for _, _, claim in green.claims(["greenk8s"]) for name in ((claim.over,) if isinstance(claim.over, str) else claim.over or ())}
    assert rivals == {"k8s-default", "k8s-most", "pack-and-sleep", "wait-awhile", "greedy-green"}


def test_the_panels_give_what_they_are_sized_for() -> None:
    work = built_in(np.random.default_rng(1), Nodes.of(preset("k8s-20")), many=200, days=1, latitude=-35.0, weather="overcast")
    from armillary.scheduling.green import K8sDefault

    played = play(work, K8sDefault().policy(work))
    assert work.sun.during[:1440].sum() == pytest.approx(0.6 * played.power_w[:1440].sum())
    assert np.all(work.pods.deadline_s <= 36 * 3600 + 1)


def test_own_work_with_a_sun_of_its_own(tmp_path: Any) -> None:
    path, options = green.write_example(tmp_path)
    found = armillary.compare(
        "scheduling/green", work=str(path), techniques=["k8s-default", "greenk8s"], options=options, store=tmp_path / "s.db", quiet=True
    )
    rows = found.on(next(iter(found.cases)), "brown_kwh")
    assert rows["greenk8s"] < rows["k8s-default"]


def own(tmp_path: Any, days: int, start: str) -> GreenWork:
    sun_file(tmp_path / "sun.csv", days)
    (tmp_path / "pods.csv").write_text("submit_s,duration_s,cpu,memory_gb\n0,3600,1,1\n600,1800,2,2\n")
    options = {"sun": str(tmp_path / "sun.csv"), "start": start, "latitude": "40"}
    (case,) = green.from_file(tmp_path / "pods.csv", options)
    return case.workload


def test_the_forecaster_can_be_trained_on_the_days_before(tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    work = own(tmp_path, 12, "2024-06-10T00:00Z")
    assert work.history is not None
    assert len(work.history[0]) == 9 * 96
    technique = GreenK8s(retrain=True, steps=3)
    assert technique.model(work).digest != GreenK8s().model(work).digest
    played = play(work, technique.policy(work))
    assert (played.state.end > 0).all()
    short = own(tmp_path, 12, "2024-06-02T00:00Z")
    with pytest.raises(NotForThisCase, match="week"):
        technique.model(short)


def test_what_a_planner_promises_is_compared_with_what_it_delivers(tmp_path: Any) -> None:
    work = built_in(np.random.default_rng(4), Nodes.of(preset("k8s-20")), many=200, days=1, latitude=35.0, weather="clear")
    honest, hasty = (play(work, technique.policy(work)).metrics()["promise_error"] for technique in (OracleSun(), PackAndSleep()))
    assert 0 < hasty < 0.3  # declared durations are off by a tenth
    assert 0 < honest < 1.0
    # Where runs take four times as long as declared, promises are off by three quarters.
    from dataclasses import replace

    late = replace(work, pods=replace(work.pods, declared_s=work.pods.duration_s / 4))
    assert play(late, PackAndSleep().policy(late)).metrics()["promise_error"] == pytest.approx(0.75, abs=0.05)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--latitude", "95"], "latitude"), (["--carbon", "dirty"], "g/kWh"), (["--exponent", "0.5"], "0.75"),
        (["--sun", "SUN", "--start", "2030-01-01T00:00Z"], "cover the work"), (["--start", "soon"], "start"), (["--cluster", "hpc-256"], "power"),
    ],
)  # fmt: skip
def test_bad_options_end_in_one_line_and_status_2(tmp_path: Any, options: Any, said: Any) -> None:
    sun_file(tmp_path / "sun.csv", 3)
    path = tmp_path / "pods.csv"
    path.write_text("submit_s,duration_s,cpu,memory_gb\n0,3600,1,1\n")
    words = [str(tmp_path / "sun.csv") if word == "SUN" else word for word in options]
    given = dict(zip((word.removeprefix("--") for word in words[::2]), words[1::2]))
    with pytest.raises(InputError, match=said) as error:
        for case in green.from_file(path, given):
            case.workload  # noqa: B018
    assert "\n" not in str(error.value)


def test_gaps_in_daylight_are_refused(tmp_path: Any) -> None:
    sun_file(tmp_path / "sun.csv", 3)
    lines = (tmp_path / "sun.csv").read_text().splitlines()
    del lines[1 + 48 + 20 : 1 + 48 + 28]  # four hours around noon of the second day
    (tmp_path / "sun.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "pods.csv").write_text("submit_s,duration_s,cpu,memory_gb\n0,3600,1,1\n")
    with pytest.raises(InputError, match="daylight"):
        for case in green.from_file(tmp_path / "pods.csv", {"sun": str(tmp_path / "sun.csv"), "latitude": "40"}):
            case.workload  # noqa: B018


def test_the_command_line_knows_green() -> None:
    found = CliRunner().invoke(app, ["green", "serve", "--help"])
    assert found.exit_code == 0
    assert "kube-scheduler" in found.output
    found = CliRunner().invoke(app, ["green", "serve", "--port", "70000"])
    assert found.exit_code != 0


@pytest.mark.slow
def test_two_hundred_thousand_pods_on_five_hundred_nodes() -> None:
    (case,) = [case for case in green.built_in("large") if case.name == "clear-35n"]
    work = case.workload
    played = play(work, GreenK8s().policy(work))
    assert len(work.nodes) == 500
    assert played.missed.mean() < 0.2
