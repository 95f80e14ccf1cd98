"""Studies on every engine: the same numbers, nothing lost, nothing done twice."""

from __future__ import annotations

import itertools
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import armillary
from armillary.errors import InputError
from armillary.study.engines import Here, engine
from armillary.study.plan import Recipe, plan
from armillary.study.store import Store, StoreError
from armillary.study.study import conduct

DRAWN = ["plain", "twin", "own"]


def compare(store: Path, **how: Any) -> armillary.Result:
    return armillary.compare("outside/draws", store=store, **{"techniques": DRAWN, **how})


def values(result: armillary.Result) -> list[tuple[Any, ...]]:
    return sorted(result.table().select("technique", "case", "repeat", "metric", "kind", "value").rows())


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Any, ...]]:
    return values(compare(tmp_path_factory.mktemp("undisturbed") / "s.db"))


@pytest.mark.parametrize("name", ["processes:2", "dask"])
def test_every_engine_gives_the_same_values(name: str, tmp_path: Path, undisturbed: list[tuple[Any, ...]]) -> None:
    assert values(compare(tmp_path / "s.db", engine=name)) == undisturbed


def test_order_and_hash_seed_do_not_matter(tmp_path: Path, undisturbed: list[tuple[Any, ...]]) -> None:
    class Backwards(Here):
        def run(self, units: Any, recipe: Recipe) -> Any:
            return super().run(list(reversed(units)), recipe)

    assert values(conduct(plan(Recipe("outside/draws"), techniques=DRAWN), Backwards(), tmp_path / "s.db")) == undisturbed
    for seed in ("1", "2"):
        code = f"import armillary; armillary.compare('outside/draws', techniques={DRAWN}, store=r'{tmp_path / seed}.db')"
        subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, env={**os.environ, "PYTHONHASHSEED": seed})
        assert values(armillary.Result.load(tmp_path / f"{seed}.db")) == undisturbed


def test_another_technique_or_repeat_changes_nothing_else(tmp_path: Path, undisturbed: list[tuple[Any, ...]]) -> None:
    more = values(compare(tmp_path / "s.db", techniques=[*DRAWN, "moody"], repeats=5))
    assert [row for row in more if row[0] != "moody" and row[2] < 3] == undisturbed
    assert values(compare(tmp_path / "t.db", seed=1)) != undisturbed


def test_every_technique_meets_the_same_work(tmp_path: Path) -> None:
    result = compare(tmp_path / "s.db")
    assert result.values("plain", "total") == result.values("twin", "total")
    plain, own = (result.values(name, "total") for name in ("plain", "own"))
    extra = [own[case][repeat] - plain[case][repeat] for case in own for repeat in own[case]]
    assert len(set(extra)) == len(extra), "a technique's own numbers are its own in every unit"
    assert all(0 <= e < 1 for e in extra)


def test_what_is_known_is_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "log"
    monkeypatch.setenv("OUTSIDE_LOG", str(log))
    compare(tmp_path / "s.db")
    assert len(log.read_text().splitlines()) == 3 * 6 * 3
    compare(tmp_path / "s.db")
    compare(tmp_path / "s.db", techniques=["plain"], cases=["draw-1"])
    assert len(log.read_text().splitlines()) == 54
    compare(tmp_path / "s.db", techniques=["plain"], cases=["draw-1"], settings={"plain": {"factor": 2.0}})
    assert len(log.read_text().splitlines()) == 57
    compare(tmp_path / "s.db", techniques=["plain"], cases=["draw-1"], fresh=True)
    assert len(log.read_text().splitlines()) == 60


def test_stale_units_are_run_again_unless_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "log"
    monkeypatch.setenv("OUTSIDE_LOG", str(log))
    compare(tmp_path / "s.db", techniques=["plain"])
    connection = sqlite3.connect(tmp_path / "s.db")
    connection.execute("UPDATE unit SET code_digest = x'00' WHERE repeat = 0")
    connection.commit()
    connection.close()
    kept = compare(tmp_path / "s.db", techniques=["plain"], keep_stale=True)
    assert len(log.read_text().splitlines()) == 18
    assert sum(unit["stale"] for unit in kept.units) == 6
    again = compare(tmp_path / "s.db", techniques=["plain"])
    assert len(log.read_text().splitlines()) == 24
    assert not any(unit["stale"] for unit in again.units)


def test_a_changed_file_is_another_case(tmp_path: Path) -> None:
    work = tmp_path / "numbers.txt"
    work.write_text("1\n2\n")
    first = compare(tmp_path / "s.db", techniques=["plain"], work=work)
    work.write_text("1\n2\n3\n")
    second = compare(tmp_path / "s.db", techniques=["plain"], work=work)
    assert first.values("plain", "total") != second.values("plain", "total")
    assert values(armillary.Result.load(tmp_path / "s.db", first.study)) == values(first)


STUDY = "import armillary, sys; armillary.compare('outside/draws', techniques=['plain', 'twin'], repeats=17, store=sys.argv[1], engine=sys.argv[2])"


def _done(store: Path) -> set[tuple[str, str, int]]:
    connection = sqlite3.connect(f"file:{store}?mode=ro", uri=True)
    try:
        return set(connection.execute("SELECT technique, case_name, repeat FROM unit WHERE state = 'done'").fetchall())
    except sqlite3.OperationalError:
        return set()
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("name", "kills"), [("processes:2", 2), *(pytest.param(name, 10, marks=pytest.mark.slow) for name in ("here", "processes:2"))]
)
def test_kill_9_loses_no_finished_unit(name: str, kills: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """204 units of 20 ms, and the coordinator killed at random instants: twenty times in all, twice in the ordinary tests."""
    log, store = tmp_path / "log", tmp_path / "s.db"
    log.touch()
    monkeypatch.setenv("OUTSIDE_LOG", str(log))
    monkeypatch.setenv("OUTSIDE_MS", "20")
    rng = random.Random(name)
    killed_with: dict[tuple[str, str, int], int] = {}
    for attempt in range(kills):
        process = subprocess.Popen([sys.executable, "-W", "ignore", "-c", STUDY, str(store), name], stderr=subprocess.PIPE)
        seen = len(_done(store)) if store.exists() else 0
        deadline = time.monotonic() + 60
        while (len(_done(store)) if store.exists() else 0) <= seen and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(rng.uniform(0, 0.25))
        process.send_signal(signal.SIGKILL)
        process.wait()
        for done in _done(store):
            killed_with.setdefault(done, attempt)
        _wait_for_workers(store)
    monkeypatch.setenv("OUTSIDE_MS", "0")
    before = Counter(log.read_text().splitlines())
    result = armillary.compare("outside/draws", techniques=["plain", "twin"], repeats=17, store=store)
    assert {unit["state"] for unit in result.units} == {"done"}
    assert len(result.units) == 204
    assert kills <= len(killed_with) < 204, "the kills came in the middle"
    ran = Counter(log.read_text().splitlines())
    for technique, case, repeat in killed_with:
        line = f"{technique.capitalize()}|{case}|{repeat}"
        assert ran[line] == before[line], "a committed unit is not run again after a kill"
    assert values(result) == values(
        armillary.compare("outside/draws", techniques=["plain", "twin"], repeats=17, store=tmp_path / "clean.db")
    )
    connection = sqlite3.connect(store)
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def _wait_for_workers(store: Path) -> None:
    """Workers whose coordinator was killed end their unit and leave."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        lines = subprocess.run(["ps", "-eo", "ppid,args"], capture_output=True, text=True).stdout.splitlines()
        if not any(line.split()[0] == "1" and "armillary.study.worker" in line for line in lines):
            return
        time.sleep(0.05)


def test_a_killed_worker_fails_its_unit_only(tmp_path: Path) -> None:
    how: dict[str, Any] = {"techniques": ["plain", "moody"], "repeats": 1, "engine": "processes:2", "settings": {"moody": {"mood": "kill"}}}
    result = compare(tmp_path / "s.db", **how)
    assert {u["state"] for u in result.units if u["technique"] == "plain"} == {"done"}
    for unit in result.failed:
        assert "signal 9" in unit["error"]
        assert "last words" in unit["traceback"]
    assert len(result.failed) == 6
    again = compare(tmp_path / "s.db", **how)
    assert [u["attempt"] for u in again.failed] == [1] * 6, "a failure is not tried again by itself"
    retried = compare(tmp_path / "s.db", **how, retry_failed=True)
    assert [u["attempt"] for u in retried.failed] == [2] * 6


def test_a_unit_that_hangs_is_ended(tmp_path: Path) -> None:
    how: dict[str, Any] = {"techniques": ["moody"], "cases": ["draw-0"], "repeats": 1, "settings": {"moody": {"mood": "hang"}}}
    result = compare(tmp_path / "s.db", timeout_s=0.5, **how)
    assert [u["error"] for u in result.failed] == ["timeout: still running after 0.5 s"]


@pytest.mark.parametrize(
    ("mood", "state", "said"),
    [("nan", "failed", 'metric "total": found nan'), ("inf", "failed", "found inf"), ("missing", "failed", "metric price: missing"),
     ("extra", "failed", '"totl" is not declared'), ("text", "failed", "expected a number"), ("numpy", "done", ""), ("artifact", "done", ""),
     ("huge", "failed", "at most 16 MiB"), ("raise", "failed", "RuntimeError: a bad day"), ("exit", "failed", "SystemExit"),
     ("loud", "done", ""), ("decline", "declined", "not today"), ("return", "declined", "not today either")],
)  # fmt: skip
def test_moods(mood: str, state: str, said: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    result = compare(tmp_path / "s.db", techniques=["moody"], cases=["draw-0"], repeats=1, settings={"moody": {"mood": mood}})
    (unit,) = result.units
    assert unit["state"] == state
    assert said in (unit["error"] or unit["reason"] or "")
    assert "\n" not in (unit["error"] or "")
    assert len(unit["traceback"] or "") <= 8192
    out = capfd.readouterr()
    assert len(out.out) == 0, "a technique's output stays out of stdout"


def test_measured_units_never_overlap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "log"
    monkeypatch.setenv("OUTSIDE_LOG", str(log))
    monkeypatch.setenv("OUTSIDE_MS", "25")  # long enough for two studies to meet, were nothing to keep them apart
    code = "import armillary, sys; armillary.compare('outside/clocked', repeats=2, store=sys.argv[1], engine='processes:2')"
    runs = [subprocess.Popen([sys.executable, "-W", "ignore", "-c", code, str(tmp_path / f"{i}.db")]) for i in range(2)]
    assert [run.wait(60) for run in runs] == [0, 0]
    spans = sorted(tuple(map(float, line.split())) for line in log.read_text().splitlines())
    assert len(spans) >= 24
    assert all(later[0] >= earlier[1] for earlier, later in itertools.pairwise(spans))


def test_without_measured_metrics_nothing_measured_is_kept(tmp_path: Path) -> None:
    result = armillary.compare("outside/clocked", metrics=["spins"], repeats=1, store=tmp_path / "s.db", engine="processes:2")
    assert result.kinds("short", "seconds") == set()
    assert result.kinds("short", "spins") == {"simulated"}
    full = armillary.compare("outside/clocked", repeats=1, store=tmp_path / "s.db")
    assert full.kinds("short", "seconds") == {"measured"}


def test_global_generators_are_seeded_and_restored(tmp_path: Path) -> None:
    random.seed(5)
    np.random.seed(5)  # noqa: NPY002
    expected = random.random(), np.random.random()  # noqa: NPY002
    random.seed(5)
    np.random.seed(5)  # noqa: NPY002
    compare(tmp_path / "s.db", cases=["draw-0"])
    assert (random.random(), np.random.random()) == expected  # noqa: NPY002


def test_a_full_disk_ends_the_study_and_it_goes_on_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = Store.open
    monkeypatch.setattr(Store, "open", lambda path, **how: small(path, max_pages=48, **how))
    with pytest.raises(StoreError, match="full"):
        compare(tmp_path / "s.db", repeats=40)
    monkeypatch.undo()
    connection = sqlite3.connect(tmp_path / "s.db")
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "s.db").rename(tmp_path / "elsewhere" / "s.db")
    assert len(compare(tmp_path / "elsewhere" / "s.db", repeats=40).units) == 720


def test_until_adds_repeats(tmp_path: Path) -> None:
    result = compare(tmp_path / "s.db", techniques=["plain", "own"], repeats=1, until=1e-9, seconds=1.0)
    assert result.plan["repeats"] > 1


def test_a_technique_object_joins_a_comparison(tmp_path: Path) -> None:
    from armillary_outside.draws import Plain

    result = compare(tmp_path / "s.db", techniques=["twin", Plain(factor=3.0)])
    assert result.techniques["plain"] == {"factor": 3.0}
    assert result.medians("plain", "total")["draw-0"] == pytest.approx(3 * result.medians("twin", "total")["draw-0"])


@pytest.mark.parametrize("name", ["there", "processes", "processes:0", "processes:x", "processes:99999", "http://x"])
def test_unknown_engines(name: str) -> None:
    with pytest.raises(InputError, match="--engine"):
        engine(name)


@pytest.mark.parametrize(
    ("how", "said"),
    [({"repeats": 0}, "--repeats 0"), ({"techniques": ["plian"]}, 'did you mean "plain"'), ({"cases": ["draw-9"]}, "unknown case"),
     ({"metrics": ["totl"]}, 'did you mean "total"'), ({"scale": "huge"}, "unknown scale"), ({"seed": -1}, "--seed"),
     ({"settings": {"plain": {"factr": 1}}}, 'did you mean "factor"'), ({"settings": {"plain": {"factor": 1e9}}}, "from 0.1 to 100.0"),
     ({"settings": {"other": {"factor": 1}}}, "unknown technique"), ({"cluster": "no-such-cluster"}, "no-such-cluster"),
     ({"work": "absent.txt"}, "no such file"), ({"techniques": []}, "no technique")],
)  # fmt: skip
def test_bad_plans_write_nothing(how: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        compare(tmp_path / "s.db", **how)
    assert said in str(caught.value)
    assert list(tmp_path.iterdir()) == []
