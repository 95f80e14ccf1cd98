"""The arena: every kind of file, what a bad one says, real backends, and the example from the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import numpy as np
import pytest
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st

from armillary import catalogue, compare
from armillary.errors import InputError
from armillary.outcome import NotForThisCase
from armillary.scheduling.offloading import (
    Bandit,
    CpuOnly,
    Gaia,
    GaiaRuntime,
    GpuOnly,
    Mode,
    OneShot,
    RealWork,
    StaticHint,
    histogram_quantile,
    play,
    play_really,
    read_log,
    read_prometheus,
)  # fmt: skip
from armillary.scheduling.offloading.execution.real import _TorchBackend, backends, has_cuda
from armillary.scheduling.offloading.readers.prometheus import log_of
from armillary.scheduling.offloading.readers.request_logs import both_backends
from armillary.scheduling.offloading.runtime.histogram import bucketed

ARENA = "scheduling/offloading"


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


# Logs


def test_the_artifacts_logs_are_read(tmp_path: Path) -> None:
    plain = read_log(
        write(
            tmp_path / "a.csv",
            "timestamp,response_time_ms\n2025-06-01T10:00:00,110.5\n2025-06-01T10:00:02.500000,-1\n2025-06-01T10:00:03,250\n",
        )
    )
    assert plain.arrival_s.tolist() == [0.0, 3.0]
    assert plain.latency_s.tolist() == [0.1105, 0.25]
    assert (plain.failed, plain.size) == (1, None)
    sized = read_log(
        write(tmp_path / "b.csv", "timestamp,matrix_size,response_time_ms\n2025-06-01 10:00:01,200,3\n2025-06-01 10:00:00,0,2\n")
    )
    assert sized.size is not None
    assert sized.size.tolist() == [0.0, 200.0]
    assert sized.reordered == 1
    ours = read_log(write(tmp_path / "c.csv", "timestamp,latency_ms,size\n5,100,1\n7,200,2\n"))
    assert ours.arrival_s.tolist() == [0.0, 2.0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a,b\n1,2\n", "expected timestamp,response_time_ms"),
        ("function,arrival_s,duration_s\nf,1,2\n", "expected timestamp,response_time_ms"),
        ("timestamp,latency_ms\n1,-0.5\n", "−1 for a failure"),
        ("timestamp,latency_ms\n1,-7\n", "from -1"),
        ("timestamp,latency_ms\n1,-1\n", "no other"),
        ("timestamp,latency_ms\n1,nan\n", "latency_ms"),
        ("timestamp,latency_ms\nyesterday,3\n", "timestamp"),
        ("timestamp,latency_ms\n0,3\n1e9,3\n", "at most 1e+07 s"),
        ("timestamp,latency_ms\n", "no rows"),
    ],
)
def test_bad_logs_end_in_one_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(InputError) as error:
        read_log(write(tmp_path / "bad.csv", text))
    assert said in str(error.value)
    assert "bad.csv" in str(error.value)


def test_both_backends_by_size_by_rank_and_by_factor(tmp_path: Path) -> None:
    cpu = read_log(write(tmp_path / "c.csv", "timestamp,size,latency_ms\n0,0,100\n1,10,400\n2,5,200\n"))
    gpu = read_log(write(tmp_path / "g.csv", "timestamp,size,latency_ms\n0,0,50\n1,0,70\n2,0,60\n3,10,160\n"))
    assert both_backends(cpu, gpu, 1.0, "x")[1].tolist() == pytest.approx([0.06, 0.16, 0.11])
    assert both_backends(cpu, None, 4.0, "x")[1].tolist() == pytest.approx([0.025, 0.1, 0.05])
    plain_cpu = read_log(write(tmp_path / "pc.csv", "timestamp,latency_ms\n0,300\n1,100\n2,200\n"))
    plain_gpu = read_log(write(tmp_path / "pg.csv", "timestamp,latency_ms\n0,10\n1,20\n2,30\n"))
    assert both_backends(plain_cpu, plain_gpu, 1.0, "x")[1].tolist() == pytest.approx([0.03, 0.01, 0.02])
    with pytest.raises(InputError, match="in both or in none"):
        both_backends(cpu, plain_gpu, 1.0, "x")


# Prometheus


def answer(
    counts: list[list[int]], bounds: list[str], *, name: str = "activator_request_latencies_bucket", first: float = 1000.0
) -> dict[str, Any]:
    """A range query's answer: counts are cumulative over time and bounds."""
    series = [
        {"metric": {"__name__": name, "le": bound, "revision_name": "f-00001"},
         "values": [[first + 15 * t, str(counts[t][b])] for t in range(len(counts))]}
        for b, bound in enumerate(bounds)
    ]  # fmt: skip
    return {"status": "success", "data": {"resultType": "matrix", "result": series}}


def prometheus(tmp_path: Path, document: object) -> Path:
    return write(tmp_path / "range.json", json.dumps(document))


def test_a_histogram_of_prometheus_is_read(tmp_path: Path) -> None:
    found = read_prometheus(prometheus(tmp_path, answer([[0, 0, 0], [2, 3, 3], [2, 5, 6]], ["100", "500", "+Inf"])))
    assert found.bounds_ms.tolist() == [100.0, 500.0]
    assert found.times_s.tolist() == [0.0, 15.0, 30.0]
    assert found.counts.tolist() == [[2, 1, 0], [0, 2, 1]]
    seconds = read_prometheus(prometheus(tmp_path, answer([[0, 0], [1, 2]], ["0.5", "+Inf"], name="kn.serving.invocation.duration_bucket")))
    assert seconds.bounds_ms.tolist() == [500.0], "since Knative 1.19 bounds are seconds"


def test_a_reset_counter_counts_from_zero(tmp_path: Path) -> None:
    found = read_prometheus(prometheus(tmp_path, answer([[7, 9], [8, 10], [1, 2]], ["100", "+Inf"])))
    assert found.counts.tolist() == [[1, 0], [1, 1]]


def test_metrics_lead_the_controller(tmp_path: Path) -> None:
    """Twelve requests per minute between 1 and 2 s: promoted at the first look that knows of them."""
    counts = [[0, 3 * t, 3 * t] for t in range(20)]
    found = read_prometheus(prometheus(tmp_path, answer(counts, ["1000", "2000", "+Inf"])))
    runtime = GaiaRuntime(Mode.CPU_PREFERRED)
    metrics = found.metrics()
    assert metrics[3].rate_1m == pytest.approx(12 / 60)
    assert metrics[3].p95_ms == pytest.approx(1950.0)
    modes = [runtime.step(one) for one in metrics]
    assert modes[0] is Mode.CPU_PREFERRED, "three requests within a minute are below the guard"
    assert modes[1] is Mode.GPU_PREFERRED


@drawn(st.lists(st.tuples(*[st.integers(0, 6)] * 4), min_size=1, max_size=12).filter(lambda rows: any(map(any, rows))))
@settings(max_examples=40)
def test_single_requests_have_the_histogram_again(tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[int, ...]]) -> None:
    bounds = [100.0, 500.0, 2000.0]
    table = np.cumsum(np.cumsum(np.array([(0, 0, 0, 0), *rows]), axis=0), axis=1)
    path = prometheus(tmp_path_factory.mktemp("p"), answer(table.tolist(), ["100", "500", "2000", "+Inf"]))
    found = read_prometheus(path)
    log = log_of(found, "x")
    whole = np.sum(rows, axis=0)
    assert len(log) == whole.sum()
    again = bucketed(1e3 * log.latency_s, bounds)
    # Requests beyond the last bound are put onto it.
    assert again[:2].tolist() == whole[:2].tolist()
    assert again[2:].sum() == whole[2:].sum()
    assert found.metrics()[-1].p95_ms == pytest.approx(histogram_quantile(0.95, bounds, whole))


def broken(document: dict[str, Any], *path: Any, value: Any) -> dict[str, Any]:
    made = json.loads(json.dumps(document))
    place = made
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return made


GOOD = answer([[0, 0], [1, 2]], ["100", "+Inf"])


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ([], "data.result"),
        ({"data": {"result": []}}, "data.result"),
        (broken(GOOD, "data", "result", 0, "metric", value=3), "metric and values"),
        (broken(GOOD, "data", "result", 0, "metric", "le", value="x"), "le="),
        (broken(GOOD, "data", "result", 0, "metric", "__name__", value="other"), None),
        (answer([[0, 0], [1, 2]], ["100", "+Inf"], name="other"), "expected one of activator"),
        (broken(GOOD, "data", "result", 0, "values", 1, value=[1015, "-3"]), "not negative"),
        (broken(GOOD, "data", "result", 0, "values", 1, value=[1015, "many"]), "expected a number"),
        (broken(GOOD, "data", "result", 0, "values", 1, value=[1000, "1"]), "do not increase"),
        (answer([[0, 0], [3, 2]], ["100", "+Inf"]), "cumulative"),
        (answer([[0, 0], [0, 0]], ["100", "+Inf"]), "counters that rise"),
        (answer([[0], [1]], ["+Inf"]), "buckets of a histogram"),
        (answer([[0, 0]], ["100", "+Inf"]), "at least two"),
        (broken(GOOD, "data", "result", 0, "metric", "revision_name", value="f-00002"), "--revision"),
    ],
)  # fmt: skip
def test_bad_answers_end_in_one_line(tmp_path: Path, document: Any, said: str | None) -> None:
    path = prometheus(tmp_path, document)
    if said is None:
        return
    with pytest.raises(InputError) as error:
        log_of(read_prometheus(path), str(path))
    assert said in str(error.value)


# The arena


def test_a_file_becomes_a_case_with_its_options(tmp_path: Path) -> None:
    arena = catalogue.arena(ARENA)
    path, options = arena.write_example(tmp_path)
    (case,) = arena.from_file(path, options)
    assert case.parameters["failed"] == 1
    assert case.parameters["first_mode"] == Mode.CPU_PREFERRED.rank, "the inspector read func.py"
    assert case.workload.closed
    (away,) = arena.from_file(path, options | {"away_s": "100", "every_s": "300", "mode": "gpu", "load": "log"})
    assert away.workload.down_s[:2].tolist() == [[200.0, 300.0], [500.0, 600.0]][: len(away.workload.down_s)]
    assert away.workload.mode.tolist() == [3]


@pytest.mark.parametrize(
    ("name", "text", "options", "said"),
    [
        ("x.txt", "x", {}, "expected .csv"),
        ("x.csv", "timestamp,latency_ms\n0,1\n", {"gpu": "missing.csv"}, "no such file"),
        ("x.csv", "timestamp,latency_ms\n0,1\n", {"away_s": "2000"}, "--every-s"),
        ("x.csv", "timestamp,latency_ms\n0,1\n", {"mode": "tpu"}, "did you mean"),
        ("x.csv", "timestamp,latency_ms\n" + "0,999999999\n" * 200, {"load": "closed"}, "together"),
        ("x.json", "{", {}, "expected JSON"),
        ("x.py", "def", {}, "found no Python"),
    ],
)
def test_bad_files_end_in_one_line(tmp_path: Path, name: str, text: str, options: dict[str, str], said: str) -> None:
    with pytest.raises(InputError) as error:
        catalogue.arena(ARENA).from_file(write(tmp_path / name, text), options)
    assert said in str(error.value)


def test_a_source_is_inspected_and_answered(tmp_path: Path) -> None:
    (tmp_path / "func.py").write_text("import torch\nx = torch.zeros(3).cuda()\n")
    result = compare(ARENA, work=tmp_path / "func.py", techniques=["gaia"])
    assert "func.py is gpu, because line 2 of func.py calls .cuda()" in result.answer()


def test_the_answer_names_a_technique_and_what_gaia_does(tmp_path: Path) -> None:
    path, options = catalogue.arena(ARENA).write_example(tmp_path)
    said = compare(ARENA, work=path, options=options, repeats=1).answer()
    assert "has the least latency times cost on cpu.csv" in said
    assert "times cpu-only's latency at" in said


def test_captured_is_one_for_gpu_only_and_zero_for_cpu_only() -> None:
    arena = catalogue.arena(ARENA)
    case = next(one for one in arena.built_in("tiny") if one.name == "matmul-closed")
    values = {name: arena.execute(arena.make(name), case).values for name in ("cpu-only", "gpu-only", "gaia")}  # type: ignore[union-attr]
    assert values["cpu-only"]["captured"] == 0
    assert values["gpu-only"]["captured"] == 1
    ours = values["gaia"]["latency_mean_ms"]
    low, high = values["gpu-only"]["latency_mean_ms"], values["cpu-only"]["latency_mean_ms"]
    assert values["gaia"]["captured"] == pytest.approx((high - ours) / (high - low))


def test_the_corpus_is_judged_for_those_that_look_and_those_that_do_not() -> None:
    arena = catalogue.arena(ARENA)
    case = next(one for one in arena.built_in("tiny") if one.name == "corpus")
    accuracy = {name: arena.execute(arena.make(name), case).values["mode_accuracy"] for name in ("cpu-only", "gpu-only", "gaia")}  # type: ignore[union-attr]
    assert accuracy["gaia"] == 1
    assert 0 < accuracy["cpu-only"] < 0.5
    assert 0 < accuracy["gpu-only"] < 0.5
    assert isinstance(arena.execute(arena.make("bandit"), case), NotForThisCase)


def test_large_cases_are_a_day() -> None:
    facts = {case.name: case.parameters for case in catalogue.arena(ARENA).built_in("large")}
    assert facts["fleet"] == {"functions": 1000, "seconds": 86_400.0, "most": 10_000_000}


# Real backends


class Counted:
    """A backend whose times are written down beforehand, and which counts what it was asked for."""

    def __init__(self, start_s: float, serve_s: float) -> None:
        self.start_s, self.serve_s, self.started, self.served = start_s, serve_s, 0, list[int]()

    def start(self) -> float:
        self.started += 1
        return self.start_s

    def serve(self, size: int) -> float:
        self.served.append(size)
        return self.serve_s * (1 + size)


@pytest.mark.parametrize("technique", [CpuOnly(), GpuOnly(), StaticHint(), OneShot(), Bandit(), Gaia()])
def test_a_real_run_is_the_simulated_one_with_measured_times(technique: Any) -> None:
    """Every request is run once, on the backend that it was routed to, and playing the measured times again gives the same run."""
    sizes = np.tile(np.arange(6.0), 20)
    pair = Counted(0.03, 0.02), Counted(0.02, 0.004)
    played, known = play_really(RealWork(sizes, "threads", 100.0, 1, 0.5), technique.policy(), pair)
    assert [len(backend.served) for backend in pair] == [int((played.backend == b).sum()) for b in (0, 1)]
    assert sum(backend.started for backend in pair) == 2 + 1 + played.switches
    asked = [int(size) for b in (0, 1) for size in sizes[played.backend == b]]
    assert asked == [size for backend in pair for size in backend.served]
    again = play(known, technique.policy()) if not np.isnan(known.service_s).all() else played
    assert np.array_equal(again.latency_s, played.latency_s)
    expected = 100 * np.where(played.backend == 1, 0.004, 0.02) * (1 + sizes)
    assert (played.latency_s >= expected - 1e-9).all()


def test_threads_really_multiply() -> None:
    one, two = backends("threads")
    assert one.start() > 0
    assert two.serve(120) > 0
    assert one.serve(0) >= 0


@pytest.mark.slow
@pytest.mark.parametrize("attention", [False, True])
def test_pytorch_really_serves_on_the_cpu(attention: bool) -> None:
    pytest.importorskip("torch")
    pair = _TorchBackend("cpu", attention), _TorchBackend("cpu", attention)
    played, known = play_really(RealWork(np.tile([0.0, 40.0, 80.0], 10), "cuda-matmul", 1000.0, 1, 0.5), Gaia().policy(), pair)
    assert np.isfinite(known.service_s[played.backend, np.arange(30)]).all()


@pytest.mark.skipif(has_cuda(), reason="there is a CUDA device")
def test_without_a_gpu_the_real_case_says_so() -> None:
    arena = catalogue.arena(ARENA)
    case = next(one for one in arena.built_in("tiny") if one.name == "real-cuda-matmul")
    said = arena.execute(arena.make("gaia"), case)
    assert isinstance(said, NotForThisCase)
    assert "no CUDA device" in str(said)


@pytest.mark.skipif(not has_cuda(), reason="there is no CUDA device")
@pytest.mark.parametrize("kind", ["cuda-matmul", "cuda-attention"])
def test_a_gpu_really_serves(kind: str) -> None:
    cpu, gpu = backends(kind)
    for backend in (cpu, gpu):
        assert backend.start() > 0
        assert backend.serve(256) > 0


def test_the_example_from_the_command_line(tmp_path: Path, armillary_here: Callable[..., CompletedProcess[str]]) -> None:
    path, options = catalogue.arena(ARENA).write_example(tmp_path)
    said = armillary_here("compare", ARENA, "--work", str(path), *(f"--{k}={v}" for k, v in options.items()), "--repeats", "1",
                          "--techniques", "cpu-only,gpu-only,gaia")  # fmt: skip
    assert said.returncode == 0, said.stderr
    assert "gaia" in said.stdout
    bad = armillary_here("compare", ARENA, "--work", str(path), "--gpu", "nowhere.csv")
    assert bad.returncode == 2
    assert bad.stderr.count("\n") == 1
