"""The arena: a user's reports from the command line, two runs to compare, conversions, claims, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from trace_reports import export

from armillary import catalogue, compare
from armillary.errors import InputError
from armillary.observability.traces import paraver_handler, read_paraver
from armillary.observability.traces.arena import traces
from armillary.observability.traces.memory import Peak
from armillary.observability.traces.synthesis.exports import write_exports
from armillary.observability.traces.synthesis.programs import Design, simulated
from armillary.observability.traces.workload import clocks_of

ARENA = "observability/traces"


def reports(folder: Path, seed: int = 7, **design: float) -> Path:
    folder.mkdir()
    program = simulated(Design(ranks=2, iterations=4, kernels=8, **design), 7)  # type: ignore[arg-type]
    write_exports(program, folder, clocks_of(2, np.random.default_rng(seed)))
    return folder


def test_every_claim_has_four_cases_at_least_or_needs_the_large_scale() -> None:
    cases = traces.built_in("small")
    for number, _, claim in traces.claims():
        assert claim.scale == "large" or all(sum(kind.takes(case.kinds) for case in cases) >= 4 for kind in claim.kinds), number


def test_no_view_is_left_out_of_the_claims_about_causes() -> None:
    rivals = {name for _, _, claim in traces.claims(["nsys2prv"]) if claim.metric == "cause_found" for name in claim.baselines}
    assert rivals == set(traces.techniques) - {"nsys2prv", "compare"}


def test_a_folder_of_reports_is_answered_in_words(tmp_path: Path) -> None:
    path, _ = catalogue.arena(ARENA).write_example(tmp_path)
    found = compare(ARENA, work=path, store=tmp_path / "s.db")
    said = found.answer()
    assert "2 devices of 2 processes on 2 nodes computed during " in said
    assert "to the host's own work, most on rank " in said
    rows = found.artifact_rows("nsys2prv", "reports", "devices")
    assert [row["device"] for row in rows] == ["rank 0 GPU 0", "rank 1 GPU 0"]
    assert sum(float(value) for name, value in rows[0].items() if name != "device") == pytest.approx(1.0)
    assert found.on("reports", "lost")["busy"] > 0.3


def test_two_runs_are_compared_in_words(tmp_path: Path) -> None:
    before, after = reports(tmp_path / "before"), reports(tmp_path / "after", 8, host=600_000.0)
    said = compare(ARENA, work=after, options={"before": str(before)}, store=tmp_path / "s.db").answer()
    assert "compared with the earlier one. What changed most: lost to host +" in said


def test_a_region_is_looked_at_alone(tmp_path: Path) -> None:
    path = reports(tmp_path / "r", host=600_000.0)
    found = compare(ARENA, work=path, options={"region": "step"}, techniques=["nsys2prv", "busy"], store=tmp_path / "s.db")
    assert found.on("r", "lost")["nsys2prv"] < 0.1  # the host works between the launches of two steps
    assert "busy" not in found.on("r", "lost")
    with pytest.raises(InputError, match=r'region "stop".*step'):
        catalogue.arena(ARENA).from_file(path, {"region": "stop"})


def test_the_command_converts_and_tells(tmp_path: Path, armillary_here) -> None:  # type: ignore[no-untyped-def]
    path = reports(tmp_path / "r", transfers=200_000.0)
    done = armillary_here("traces", "convert", str(path), "--paraver", "out.prv", "--perfetto", "out.json.gz", "--states")
    assert done.returncode == 0
    assert "out.prv: " in done.stdout
    assert read_paraver(tmp_path / "out.prv").events.height > 1000
    told = armillary_here("traces", "lost", str(path))
    assert told.returncode == 0
    assert told.stdout.startswith("devices ")
    assert "rank 1 GPU 0" in told.stdout


@pytest.mark.parametrize("how", [["--paraver", "out"], ["--perfetto", "out.json"], []])
def test_a_bad_report_among_good_ones_ends_with_status_2_and_nothing_written(tmp_path: Path, armillary_here, how: list[str]) -> None:  # type: ignore[no-untyped-def]
    path = reports(tmp_path / "r")
    if how:
        (path / "z.sqlite").write_bytes((path / "rank0001.sqlite").read_bytes()[:9000])
    before = sorted(one.name for one in tmp_path.iterdir())
    done = armillary_here("traces", "convert", str(path), *how)
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1
    assert sorted(one.name for one in tmp_path.iterdir()) == before


def test_a_bad_report_ends_a_comparison_with_status_2_and_nothing_written(tmp_path: Path, armillary_here) -> None:  # type: ignore[no-untyped-def]
    export(tmp_path / "bad.sqlite", kernels=[{"start": 9, "end": 3, "name": "k", "correlation": 1}])
    done = armillary_here("compare", ARENA, "--work", "bad.sqlite", "--store", "s.db")
    assert done.returncode == 2
    assert "row 1: found an end at 3 after a start at 9" in done.stderr
    assert [one.name for one in tmp_path.iterdir()] == ["bad.sqlite"]


@pytest.mark.slow
def test_the_handler_of_pytorchs_profiler_writes_paraver(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    profile, handler = torch.profiler.profile, paraver_handler(tmp_path / "traces")
    with profile(activities=[torch.profiler.ProfilerActivity.CPU], on_trace_ready=handler), torch.profiler.record_function("my step"):
        torch.ones(8) @ torch.ones(8)
    [path] = (tmp_path / "traces").glob("*.prv")
    assert "my step" in path.with_suffix(".pcf").read_text()
    assert len(read_paraver(path).intervals(9600)) >= 2


def test_a_conversion_says_its_speed_and_memory(tmp_path: Path) -> None:
    case = next(one for one in traces.built_in("tiny") if one.name == "conversion-1").at(0, 0)
    outcome = traces.execute(traces.make("nsys2prv"), case)
    values = outcome.values  # type: ignore[union-attr]
    assert values["events_per_s"] > 1_000
    assert 50 < values["bytes_per_event"] < 1_000
    assert values["peak_memory"] >= 0


def test_the_peak_of_memory_is_seen() -> None:
    with Peak() as peak:
        _ = np.ones(20_000_000)
    assert 150e6 < peak.bytes < 400e6


def test_the_same_seed_gives_the_same_runs() -> None:
    case = next(one for one in traces.built_in("tiny") if one.name == "two-1").at(3, 0)
    first, second = (case.make(case, case.stream("workload")) for _ in range(2))
    assert json.dumps(first.truth.shares) == json.dumps(second.truth.shares)
    assert first.run.frame().equals(second.run.frame())
