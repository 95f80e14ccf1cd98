"""The command line as a person meets it: answers, files, exit statuses, one-line complaints."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from armillary import catalogue

Command = Callable[..., subprocess.CompletedProcess[str]]
QUICK = ("--techniques", "plain,own", "--repeats", "1", "-q")


def test_list_has_a_line_for_every_arena_and_more_about_a_field_or_an_arena(armillary_here: Command) -> None:
    everything = armillary_here("list").stdout
    assert len([line for line in everything.splitlines() if line.startswith("  eviction ")]) == 1
    assert "  draws " in everything, "the outside arena"
    assert re.search(r"^  experts .* 1 paper ", everything, re.MULTILINE), "three techniques of one paper are one paper"
    assert max(map(len, everything.splitlines())) <= 160
    field = armillary_here("list", "storage").stdout
    assert "FIFO-MEP: An Efficient Multi-Eviction-Point" in field
    # Another test of this process may have joined a technique to it.
    eviction = catalogue.arena("storage/eviction")
    assert f"and {len(eviction.techniques) - len(eviction.papers)} baselines" in field
    for name in ("eviction", "storage/eviction"):
        arena = armillary_here("list", name).stdout
        assert "keep-nothing" in arena, "the outside technique"
        assert "s3-fifo" in arena
    assert armillary_here("show", "storage").stdout == field
    listed = json.loads(armillary_here("list", "--json").stdout)
    assert {"arena", "technique", "paper", "source", "verdicts"} == set(listed["techniques"][0])


def test_list_shows_what_was_judged(armillary_command: Command, armillary_here: Command) -> None:
    assert armillary_command("reproduce", "plain", "-q").returncode == 0
    assert "○1" in next(line for line in armillary_here("list").stdout.splitlines() if line.startswith("  draws"))
    after = armillary_here("list", "outside/draws").stdout
    assert "○ #1 not held" in after
    assert "storage" not in after


def test_the_report_of_the_last_study_opens(armillary_command: Command, armillary_here: Command, tmp_path: Path) -> None:
    none = armillary_here("open")
    assert none.returncode == 2
    calls = tmp_path / "browser"
    calls.write_text(f'#!/bin/sh\necho "$1" > {tmp_path}/seen\n')
    calls.chmod(0o755)
    browser = {**os.environ, "BROWSER": str(calls), "NO_COLOR": "1"}
    assert armillary_command("compare", "outside/draws", *QUICK, "--open", env=browser).returncode == 0
    assert (tmp_path / "seen").read_text().startswith("file://")
    (tmp_path / "seen").unlink()
    assert armillary_command("open", env=browser).returncode == 0
    assert (tmp_path / "seen").exists()


def test_no_color_holds_wherever_it_stands(armillary_here: Command) -> None:
    for words in (["--no-color", "list"], ["list", "--no-color"], ["cluster", "list", "--no-color"]):
        run = armillary_here(*words)
        assert run.returncode == 0, run.stderr
        assert "\x1b" not in run.stdout


@pytest.mark.parametrize(
    ("words", "offered"),
    [("compare stor", "storage/eviction"), ("compare storage/eviction --techniques lru,s3", "lru,s3-fifo"), ("show fifo-m", "fifo-mep"),
     ("compare storage/eviction --cases cd", "cdn@small"), ("compare serving/tiers --cluster dgx-h", "dgx-h100")],
)  # fmt: skip
def test_completion(words: str, offered: str, armillary_command: Command) -> None:
    env = {**os.environ, "_ARMILLARY_COMPLETE": "complete_bash", "COMP_WORDS": f"armillary {words}", "COMP_CWORD": str(len(words.split()))}
    code = "import sys; sys.argv[0] = 'armillary'; from armillary.cli import main; main()"
    run = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert offered in run.stdout.splitlines(), run.stderr


def test_show(armillary_here: Command) -> None:
    shown = armillary_here("show", "fifo-mep").stdout
    for part in (
        "IEEE CLUSTER 2025",
        "points",
        "our design",
        "armillary reproduce fifo-mep",
        "from armillary.storage.eviction import FifoMep",
        "Claims:",
    ):
        assert part.casefold() in shown.casefold(), part
    assert "requests_per_s" in armillary_here("show", "storage/eviction").stdout
    assert json.loads(armillary_here("show", "storage/eviction/lru", "--json").stdout)["arena"] == "storage/eviction"
    both = armillary_here("show", "lru")
    assert both.returncode == 2
    assert "serving/adapters/lru, storage/eviction/lru" in both.stderr
    wrong = armillary_here("show", "fifo-map")
    assert wrong.returncode == 2
    assert 'did you mean "fifo-mep"' in wrong.stderr


def test_compare_prints_a_table_and_writes_files(armillary_command: Command, tmp_path: Path) -> None:
    run = armillary_command("compare", "outside/draws", *QUICK, "--html", "r.html", "--csv", "r.csv", "--parquet", "r.parquet")
    assert run.returncode == 0
    assert "own has the highest total" in run.stdout
    assert "simulated" in run.stdout
    assert "\x1b" not in run.stdout
    assert all((tmp_path / name).stat().st_size > 500 for name in ("r.html", "r.csv", "r.parquet"))
    data = json.loads(armillary_command("compare", "outside/draws", *QUICK, "--json").stdout)
    assert data["arena"] == "outside/draws"


def test_progress_goes_to_stderr(armillary_command: Command) -> None:
    run = armillary_command("compare", "outside/draws", "--techniques", "plain", "--repeats", "1")
    assert "6 done, 0 failed, 0 left" in run.stderr
    assert "done" not in run.stdout
    again = armillary_command("compare", "outside/draws", "--techniques", "plain", "--repeats", "1")
    assert "6 known from before" in again.stderr


def test_an_outside_technique_in_an_arena_inside(armillary_command: Command) -> None:
    run = armillary_command(
        "compare",
        "storage/eviction",
        "--scale",
        "tiny",
        "--techniques",
        "lru,keep-nothing",
        "--cases",
        "zipf-1.0@*",
        "--repeats",
        "1",
        "-q",
    )
    assert run.returncode == 0, run.stderr
    assert "keep-nothing" in run.stdout
    assert "lru has the lowest miss_ratio" in run.stdout


def test_reproduce_judges_and_says_how(armillary_command: Command) -> None:
    run = armillary_command("reproduce", "outside/draws/plain", "-q")
    assert run.returncode == 0
    assert "never less than its twin" in run.stdout
    assert "not held" in run.stdout
    data = json.loads(armillary_command("reproduce", "--field", "outside", "-q", "--json").stdout)
    assert data["verdicts"][0]["state"] == "not held"


def test_a_failed_unit_is_exit_status_1(armillary_command: Command) -> None:
    run = armillary_command("compare", "outside/draws", "--techniques", "moody", "--set", "moody.mood=raise", "--repeats", "1", "-q")
    assert run.returncode == 1
    assert "RuntimeError: a bad day" in run.stdout
    assert "Traceback" not in run.stderr


def test_own_work_with_the_readers_options(armillary_command: Command, tmp_path: Path) -> None:
    (tmp_path / "n.txt").write_text("5\n1\n1\n")
    data = json.loads(armillary_command("compare", "outside/draws", "--work", "n.txt", "--skip", "1", *QUICK, "--json").stdout)
    assert data["plan"]["cases"]["n.txt"]["parameters"]["skip"] == 1
    equal = armillary_command("compare", "outside/draws", "--work", "n.txt", "--skip=1", *QUICK)
    assert equal.returncode == 0


def test_diff_of_two_stores(armillary_command: Command) -> None:
    for store in ("a.db", "b.db"):
        assert armillary_command("compare", "outside/draws", *QUICK, "--store", store).returncode == 0
    same = json.loads(armillary_command("diff", "a.db", "b.db", "--json").stdout)
    assert {row["gain"] for row in same["gains"]} == {1.0}
    assert same["verdicts"] == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["compare", "outside/draws", "--timeout", "-5"], "--timeout -5"),
        (["compare", "outside/draws", "--timeout", "nan"], "seconds above 0"),
        (["compare", "outside/draws", "--seconds", "0"], "--seconds 0"),
        (["shwo"], "show"),
        (["compare", "storage/evicton"], 'did you mean "storage/eviction"'),
        (["compare", "outside/draws", "--techniques", "nothing"], "unknown technique"),
        (["compare", "outside/draws", "--techniques", "<script>\x1b[31m"], "unknown technique"),
        (["compare", "outside/draws", "--techniques", "../../etc/passwd"], "unknown technique"),
        (["compare", "outside/draws", "--set", "plain"], "technique.parameter=value"),
        (["compare", "outside/draws", "--set", "plain.factor=x"], "expected float"),
        (["compare", "outside/draws", "--set", "plain.factor=1e999"], "finite"),
        (["compare", "outside/draws", "--repeats", "0"], "--repeats 0"),
        (["compare", "outside/draws", "--repeats", "many"], "repeats"),
        (["compare", "outside/draws", "--scale", "enormous"], "unknown scale"),
        (["compare", "outside/draws", "--cluster", "laptop"], "does not depend on a cluster"),
        (["compare", "outside/draws", "--work", "good.txt", "--cluster", "laptop"], "is not put on a cluster"),
        (["compare", "training/pipeline", "--model", "absent.json"], "no such file"),
        (["compare", "training/pipeline", "--pp", "2"], "give one with --work"),
        (["compare", "outside/draws", "--engine", "slurm"], "--engine"),
        (["compare", "outside/draws", "--work", "absent.txt"], "no such file"),
        (["compare", "outside/draws", "--skip", "1"], "--work"),
        (["compare", "outside/draws", "--work", "bad.txt"], "bad.txt:2"),
        (["compare", "outside/draws", "--work", "good.txt", "--skp", "1"], 'did you mean "--skip"'),
        (["compare", "outside/draws", "--work", "good.txt", "--skip"], "expected a value"),
        (["compare", "outside/draws", "extra"], "unexpected argument"),
        (["compare", "outside/draws", "--store", "bad.txt"], "store of Armillary"),
        (["compare", "outside/draws", "--html", "absent/r.html"], "folder that exists"),
        (["compare", "outside/draws", "--until", "lots"], "--until"),
        (["compare", "outside/draws", "--memory", "4 gb/s"], "4 gb/s"),
        (["compare"], "arena"),
        (["reproduce"], "expected one of"),
        (["reproduce", "twin"], "makes no claim"),
        (["reproduce", "--field", "astrology"], "unknown field"),
        (["show", "nobody"], "unknown technique"),
        (["list", "astrology"], "unknown field or arena"),
        (["cluster", "show", "dgx-h1000"], "dgx-h100"),
        (["cluster", "check", "bad.txt"], "bad.txt"),
        (["diff", "a.db", "b.db"], "no such store"),
        (["conquer"], "conquer"),
    ],
)
def test_bad_input_is_one_line_and_exit_status_2(arguments: list[str], said: str, armillary_here: Command, tmp_path: Path) -> None:
    (tmp_path / "bad.txt").write_text("1\nnot a number\n")
    (tmp_path / "good.txt").write_text("1\n2\n")
    before = sorted(tmp_path.rglob("*"))
    run = armillary_here(*arguments)
    lines = [line for line in run.stderr.splitlines() if "left out" not in line]
    assert run.returncode == 2, run.stderr
    assert len(lines) == 1, lines
    assert said in lines[0]
    assert "\x1b" not in lines[0]
    assert run.stdout == ""
    assert sorted(tmp_path.rglob("*")) == before, "nothing is written"


def test_a_busy_store_is_exit_status_3(armillary_command: Command, tmp_path: Path) -> None:
    from armillary.study.store import Store

    with Store.open(tmp_path / "s.db"):
        run = armillary_command("compare", "outside/draws", *QUICK, "--store", "s.db")
    assert run.returncode == 3
    assert "is writing to this store" in run.stderr
    assert run.stderr.count("\n") <= 2


def test_version_help_and_completion(armillary_here: Command) -> None:
    for flag in ("--version", "-V"):
        assert armillary_here(flag).stdout.startswith("armillary 0")
    assert "compare" in armillary_here("--help").stdout
    assert "--techniques" in armillary_here("compare", "--help").stdout
