"""The report: complete, self-contained, safe with hostile names, small, and alive in a browser."""

from __future__ import annotations

import base64
import gzip
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import html5lib
import pytest
from armillary_outside.draws import draws
from results_by_hand import Made

import armillary
from armillary.arena import Case
from armillary.claim import Claim, Gain
from armillary.errors import without_paths
from armillary.figures import panels
from armillary.study.report import plots
from armillary.study.verdicts import families, family_ours, family_says, family_state, judge

CHROMIUM = next((found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None)
HOSTILE = "<script>alert(1)</script>\"'&</script>"


@pytest.fixture
def result(tmp_path: Path) -> armillary.Result:
    return armillary.compare("outside/draws", techniques=["plain", "twin", "own", "moody"], store=tmp_path / "s.db",
                             settings={"moody": {"mood": "raise"}})  # fmt: skip


def without_library(text: str) -> str:
    """The page without plotly.js, which takes a parser in Python half a minute."""
    library = max(re.findall(r"<script[^>]*>.*?</script>", text, flags=re.S), key=len)
    assert len(library) > 1e6
    return text.replace(library, "")


def test_it_parses_and_asks_for_nothing(result: armillary.Result, tmp_path: Path) -> None:
    text = result.html(tmp_path / "r.html").read_text()
    tree = html5lib.parse(without_library(text), namespaceHTMLElements=False)
    (policy,) = [meta.get("content") for meta in tree.iter("meta") if meta.get("http-equiv") == "Content-Security-Policy"]
    assert policy.startswith("default-src 'none';")
    assert "http" not in policy
    for element in tree.iter():
        for name in ("src", "href"):
            assert not str(element.get(name, "")).startswith(("http:", "https:", "//")), element.get(name)
    assert not list(tree.iter("iframe"))
    assert "@import" not in text.split("</style>")[0]


def test_it_says_everything(result: armillary.Result, tmp_path: Path) -> None:
    text = result.html(tmp_path / "r.html").read_text()
    visible = re.sub(r"<script.*?</script>", "", text, flags=re.S)
    for part in (draws.question, "own has the highest total", "Verdicts", "never less than its twin", "not held", "simulated", "modelled", "RuntimeError: a bad day",
                 "Method", "mood", "bootstrap", "multiplicity", "Environment", "Download every value", "seed 0"):  # fmt: skip
        assert part in visible, part
    link = re.search(r"data:application/gzip;base64,([A-Za-z0-9+/=]+)", text)
    assert link
    rows = gzip.decompress(base64.b64decode(link.group(1))).decode().splitlines()
    assert len(rows) == result.table().height + 1


def test_hostile_names_are_only_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make = draws._cases
    assert make is not None
    monkeypatch.setattr(
        draws, "_cases", lambda scale: [Case(HOSTILE, next(iter(make(scale))).make, {"n": 3, HOSTILE: HOSTILE}, frozenset({HOSTILE}))]
    )
    from armillary.study.plan import _cases_of

    _cases_of.cache_clear()
    result = armillary.compare("outside/draws", techniques=["plain", "own"], store=tmp_path / "s.db", command=HOSTILE)
    text = result.html(tmp_path / "r.html").read_text()
    _cases_of.cache_clear()
    tree = html5lib.parse(without_library(text), namespaceHTMLElements=False)
    scripts = ["".join(s.itertext()) for s in tree.iter("script") if s.get("type") != "application/json"]
    assert not any("alert(1)" in script for script in scripts)
    assert "&lt;script&gt;alert(1)" in text
    for script in tree.iter("script"):
        if script.get("type") == "application/json":
            assert "<script" not in str(json.loads("".join(script.itertext()))), "Plotly would make elements of it"


def test_a_name_is_no_formula(tmp_path: Path) -> None:
    (tmp_path / "=1+1.txt").write_text("1\n2\n")
    result = armillary.compare("outside/draws", work=tmp_path / "=1+1.txt", techniques=["plain"], repeats=1, store=tmp_path / "s.db")
    rows = result.write(tmp_path / "r.csv").read_text().splitlines()
    assert all(",'=1+1.txt," in row for row in rows[1:])


def test_two_thousand_units_stay_under_six_megabytes(tmp_path: Path) -> None:
    result = armillary.compare("outside/draws", techniques=["plain", "twin", "own"], repeats=112, store=tmp_path / "s.db")
    assert len(result.units) == 2016
    assert result.html(tmp_path / "r.html").stat().st_size < 6e6


def test_plots_change_to_bands_when_there_are_too_many_points(result: armillary.Result, monkeypatch: pytest.MonkeyPatch) -> None:
    assert {trace.type for trace in plots.dots(result, "total").data} == {"scatter"}
    monkeypatch.setattr(plots, "MOST_POINTS", 2)
    assert "box" in {trace.type for trace in plots.dots(result, "total").data}


def test_pareto_by_hand() -> None:
    points = {"a": (1.0, 5.0), "b": (2.0, 3.0), "c": (3.0, 4.0), "d": (4.0, 1.0), "e": (1.0, 6.0)}
    assert plots.pareto(points) == ["a", "b", "d"]


def test_results_leave_in_every_format(result: armillary.Result, tmp_path: Path) -> None:
    import polars as pl

    assert pl.read_csv(result.write(tmp_path / "r.csv")).height == result.table().height
    assert pl.read_parquet(result.write(tmp_path / "r.parquet")).equals(result.table())
    data: dict[str, Any] = json.loads(result.write(tmp_path / "r.json").read_text())
    assert data["schema"] == 1
    assert {v["state"] for v in data["verdicts"]} == {"not held"}
    with pytest.raises(armillary.InputError, match="ends in"):
        result.write(tmp_path / "r.docx")
    with pytest.raises(armillary.InputError, match="No such file"):
        result.write(tmp_path / "absent" / "r.csv")


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium found")
def test_it_opens_in_a_browser_without_a_complaint_or_a_request(result: armillary.Result, tmp_path: Path) -> None:
    assert CHROMIUM is not None
    page = result.html(tmp_path / "r.html")
    quiet = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-sync",
             "--disable-component-update", "--disable-dev-shm-usage", "--enable-logging=stderr", "--v=0", f"--user-data-dir={tmp_path / 'profile'}",
             "--window-size=1200,900", "--virtual-time-budget=10000", "--dump-dom"]  # fmt: skip
    run = subprocess.run([CHROMIUM, *quiet, page.as_uri()], capture_output=True, text=True, timeout=120, env={**os.environ, "LANG": "C"})
    # The page's policy forbids every request, and a forbidden one is a complaint on the console.
    complaints = [line for line in run.stderr.splitlines() if "CONSOLE" in line]
    assert complaints == []
    dom = re.sub(r"<script>.*?</script>", "", run.stdout, flags=re.S)
    placed = re.findall(r'<div class="plot[^"]*" id="plot\d+" role="img"', dom)
    assert len(re.findall(r'class="plot js-plotly-plot"', dom)) == len(placed) >= 4
    assert dom.count('class="main-svg"') >= len(placed)


def test_claims_that_differ_in_their_rival_alone_are_one_row_that_opens() -> None:
    levels = {f"c{i}": [10.0] for i in range(4)}
    rivals = {name: {case: [10.0 * gain] for case in levels} for name, gain in (("a", 1.2), ("b", 2.0), ("c", 1.5))}
    result = Made({"cost": {"new": levels, **rivals}})
    claims = [Claim("cost", over=name, by=Gain(ratio=(1.4, None)), says=f"1.4 times cheaper than {name}") for name in rivals]
    verdicts = [judge(f"by/hand/new#{i}", "new", claim, result, whole=True) for i, claim in enumerate(claims)]
    (family,) = families(verdicts)
    assert family_says(family) == "1.4 times cheaper than each of 3 rivals"
    assert family_ours(family) == "1.2× (a) to 2× (b)"
    assert family_state(family) == "held in part against 1, held against 2"


def test_a_line_plot_never_pools_cases_that_differ_in_something_else() -> None:
    cells = {f"c{i}": [float(i)] for i in range(9)}
    made = Made({"cost": {"new": cells, "old": cells}})
    for i, facts in enumerate(made.cases.values()):
        facts["parameters"] = {"n": i // 3, "m": i % 3}
    figure = plots.lines(made, "cost", "n")
    assert len({trace.xaxis for trace in figure.data}) == 3, "a panel for each m"
    assert sorted(trace.y for trace in figure.data if trace.name == "new") == [(0, 3, 6), (1, 4, 7), (2, 5, 8)]
    for i, facts in enumerate(made.cases.values()):
        facts["parameters"] = {"n": i // 3, "m": i}
    assert plots.lines(made, "cost", "n") is None


def test_many_lines_become_a_highlighted_few() -> None:
    lines = {"": {f"t{i}": [(x, x * i) for x in range(3)] for i in range(12)}}
    figure = panels(lines, "many", "x", "y", bold=["t3", "t7"])
    assert [trace.name for trace in figure.data if trace.showlegend] == ["t3", "t7"]
    assert len(figure.data) == 12


def test_no_path_of_the_machine_leaves_it(tmp_path: Path) -> None:
    (tmp_path / "n.txt").write_text("1\n2\n")
    moody = {"moody": {"mood": "raise"}}
    result = armillary.compare("outside/draws", work=tmp_path / "n.txt", techniques=["plain", "moody"], settings=moody, repeats=1,
                               store=tmp_path / "s.db", command=f"armillary compare --work {tmp_path}/n.txt")  # fmt: skip
    assert result.failed
    for written in (result.write(tmp_path / "r.html"), result.write(tmp_path / "r.json"), result.write(tmp_path / "r.csv")):
        text = written.read_text()
        assert str(tmp_path) not in text
        assert str(Path(__file__).parents[2]) not in text


def test_what_is_no_path_stays() -> None:
    for text in ("3 GB/s per node", "a/b/c", "https://example.org/a/b", "1/2 to 3/4", "and/or"):
        assert without_paths(text) == text
    assert without_paths('File "/home/someone/x.py", line 3') == 'File "…/x.py", line 3'
