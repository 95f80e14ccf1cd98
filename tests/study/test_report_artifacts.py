"""What units leave beside their metrics, in the report: distributions drawn, a timeline drawn, files to take away."""

from __future__ import annotations

import base64
import gzip
import html
import json
import re
from pathlib import Path

import numpy as np
import pytest
from armillary_outside.draws import draws

import armillary
from armillary.arena import Artifact, Outcome
from armillary.study.report import artifact_plots

TRACE = {
    "traceEvents": [
        {"ph": "M", "name": "thread_name", "pid": 0, "tid": 0, "args": {"name": "replica <0>"}},
        {"ph": "X", "name": "512 tokens", "pid": 0, "tid": 0, "ts": 0.0, "dur": 2e6},
        {"ph": "X", "name": "8 tokens", "pid": 0, "tid": 0, "ts": 2e6, "dur": 1e6},
        {"ph": "X", "name": "copy", "pid": 0, "tid": 1, "ts": 1e6, "dur": 5e5},
    ]
}


@pytest.fixture
def result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> armillary.Result:
    run = draws._run
    assert run is not None

    def leaves(technique, case):
        found = run(technique, case)
        values = found.values if isinstance(found, Outcome) else found
        kept = [
            Artifact.quantiles("latency", [1.0, 3.0, 2.0], "s"),
            Artifact("timeline.json", "application/json", json.dumps(TRACE).encode()),
        ]
        return Outcome(values, kept)

    leaves.__module__ = run.__module__
    monkeypatch.setattr(draws, "_run", leaves)
    return armillary.compare("outside/draws", techniques=["plain", "own"], store=tmp_path / "s.db")


def test_every_artifact_is_listed_and_can_be_read(result: armillary.Result) -> None:
    assert {(one.technique, one.name) for one in result.artifacts} == {
        (t, n) for t in ("plain", "own") for n in ("latency.quantiles.json", "timeline.json")
    }
    one = next(one for one in result.artifacts if one.name == "timeline.json")
    assert json.loads(result.artifact(one)) == TRACE
    assert one.size == len(result.artifact(one))


def test_quantiles_by_hand() -> None:
    said = json.loads(Artifact.quantiles("latency", np.arange(101.0), "s").data)
    assert (said["of"], said["unit"], said["count"]) == ("latency", "s", 101)
    assert said["quantiles"][::2] == list(range(101))
    assert json.loads(Artifact.quantiles("latency", []).data)["quantiles"] == []


def test_distributions_have_a_panel_a_case_and_a_line_a_technique(result: armillary.Result) -> None:
    (made,) = artifact_plots.distributions(result)
    cases = min(len(result.cases), artifact_plots.MOST_PANELS)
    assert len(made.data) == 2 * cases
    assert (made.data[0].x[0], made.data[0].x[-1], made.data[0].y[-1]) == (1.0, 3.0, 1.0)
    assert {line.name for line in made.data if line.showlegend} == {"plain", "own"}


def test_the_timeline_has_a_lane_a_thread_and_a_colour_a_kind_of_event(result: armillary.Result) -> None:
    made = artifact_plots.timeline(result)
    assert made is not None
    bars = {bar.name: bar for bar in made.data}
    assert set(bars) == {"tokens", "copy"}
    assert list(bars["tokens"].y) == ["replica <0>"] * 2
    assert list(bars["tokens"].base) == [0.0, 2.0]
    assert list(bars["copy"].x) == [0.5]


def test_the_page_carries_the_files(result: armillary.Result, tmp_path: Path) -> None:
    text = result.html(tmp_path / "r.html").read_text()
    assert "Distributions" in text
    assert "Timelines and other files" in text
    links = re.findall(r'<a download="([^"]*timeline\.json\.gz)" href="data:application/gzip;base64,([^"]+)"', text)
    assert len(links) == sum(one.name == "timeline.json" for one in result.artifacts)
    assert json.loads(gzip.decompress(base64.b64decode(html.unescape(links[0][1])))) == TRACE
    assert "replica <0>" not in text


def test_a_page_without_room_says_where_the_file_is(result: armillary.Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("armillary.study.report.page.MOST_LEFT_BYTES", 0)
    text = result.html(tmp_path / "r.html").read_text()
    assert "timeline.json.gz" not in text
    assert f"{len(json.dumps(TRACE)):,} B in the store" in text
