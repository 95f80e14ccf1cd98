"""Files: Azure's traces of both years with their readings, tables of metrics and hosts, and what a bad one says."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from armillary import compare
from armillary.errors import InputError
from armillary.scheduling.vm import read_hosts, read_metrics
from armillary.scheduling.vm.arena import vm as arena
from armillary.scheduling.vm.learning.logged import fitted, state_at
from armillary.scheduling.vm.readers.azure import read_azure
from armillary.scheduling.vm.readers.tables import METRICS
from armillary.scheduling.vm.readers.work import table_work
from armillary.scheduling.vm.simulation.play import play
from armillary.scheduling.vm.trace import Trace

DAY = 86400


def row(name: str, created: int = 0, deleted: int = 2_591_400, avg: float = 20.0, p95: float = 40.0, cores: str = "4", memory: str = "8") -> str:
    return f"{name},sub,dep,{created},{deleted},91.77,{avg},{p95},Interactive,{cores},{memory}"


def azure(path: Path, **how):
    return read_azure(path, **{"most": 100, "begin_s": 0.0, "alive_s": (5 * DAY, 7 * DAY), "hours": 168} | how)


def written(tmp_path: Path, lines: list[str], name: str = "vmtable.csv") -> Path:
    path = tmp_path / name
    text = "\n".join(lines) + "\n"
    if name.endswith(".gz"):
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text)
    return path


# Azure


@pytest.mark.parametrize("name", ["vmtable.csv", "vmtable.csv.gz"])
def test_buckets_are_texts_in_one_year_and_numbers_in_the_other(tmp_path, name):
    lines = [row("a"), row("b", cores=">24", memory=">64"), row("c", cores="1", memory="1.75"), row("d", cores="24", memory="64")]
    found = azure(written(tmp_path, lines, name))
    assert found.names == ("a", "b", "c", "d")
    assert found.vcpu.tolist() == [4, 30, 1, 24]
    assert found.memory_gb.tolist() == [8.0, 70.0, 1.75, 64.0]
    assert found.cpu_mean == pytest.approx([0.2] * 4)
    assert found.readings is None


def test_only_vms_of_the_judged_days_are_taken_and_not_more_than_asked(tmp_path):
    lines = [row("early", 0, 4 * DAY), row("short", 5 * DAY, 5 * DAY), row("late", 8 * DAY, 9 * DAY)]
    lines += [row(f"v{i}") for i in range(9)]
    found = azure(written(tmp_path, lines), most=4)
    assert found.names == ("short", "v0", "v1", "v2")


def test_readings_fill_their_five_minutes(tmp_path):
    table = written(tmp_path, [row("a"), row("b")])
    first = written(tmp_path, ["0,a,1,2,50.0", "300,b,0,9,25.0", "300,zzz,0,0,3"], "vm_cpu_readings-file-1-of-195.csv.gz")
    second = written(tmp_path, ["3600,a,1,2,75.0", "999999999,a,1,2,75.0"], "vm_cpu_readings-file-2-of-195.csv.gz")
    found = azure(table, readings=(first, second)).readings
    assert found.shape == (2, 168, 12)
    assert found[0, 0, 0] == pytest.approx(0.5)
    assert found[1, 0, 1] == pytest.approx(0.25)
    assert found[0, 1, 0] == pytest.approx(0.75)
    assert np.isfinite(found).sum() == 3


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([row("a", 500, 100)], "vmdeleted"),
        ([row("a", cores="many")], 'found "many"; expected a number or ">24"'),
        ([row("a", memory="-4")], 'expected a number or ">64"'),
        ([row("a", cores="nan")], "expected a number"),
        ([row("a", cores="1e9")], "expected a number"),
        ([row("a", avg=400.0)], "avgcpu"),
        ([row("a").replace("Interactive", "Batch")], "expected one of Delay-insensitive, Interactive, Unknown"),
        ([row("a"), row("a")], "twice"),
        ([row("a", 0, 10)], "found no VM between"),
        (["a,b,c"], "vmtable"),
        ([""], "vmtable"),
    ],
)
def test_a_bad_trace_is_refused_in_one_line(tmp_path, lines, said):
    with pytest.raises(InputError) as raised:
        azure(written(tmp_path, lines))
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_trace_is_played_from_the_arena(tmp_path):
    rng = np.random.default_rng(0)
    lines = [
        row(f"v{i}", int(rng.integers(0, 6 * DAY)), 20 * DAY, float(rng.uniform(5, 60)), 70.0, str(rng.choice([2, 4, 8])), "8") for i in range(60)
    ]
    readings = written(tmp_path, [f"{300 * t},v{i},0,99,{30 + i % 7}" for t in range(50) for i in range(20)], "readings.csv")
    path = written(tmp_path, lines)
    (case,) = arena.from_file(path, {"fleet": "8", "rounds": "4", "overcommit": "1", "readings": str(readings)})
    work = case.at(0, 0).workload
    assert len(work.hosts) == 8
    assert work.population.demand[3, 0, 0] == pytest.approx(0.33)
    assert (work.population.created > 0).any()
    result = compare("scheduling/vm", work=path, techniques=["best-fit", "trace"], options={"fleet": "8", "rounds": "4", "overcommit": "1"})
    assert set(result.techniques) == {"best-fit", "trace"}


# Tables


@pytest.fixture
def example(tmp_path: Path) -> tuple[Path, dict[str, str]]:
    return arena.write_example(tmp_path)


def test_the_example_is_read_and_played(example):
    path, options = example
    (case,) = arena.from_file(path, options)
    work = case.at(0, 0).workload
    assert len(work.population) == 24
    assert work.hosts.names == ("host-0", "host-1", "host-2", "host-3")
    assert np.bincount(work.host, minlength=4).tolist() == [9, 9, 6, 0]
    assert (work.start, work.rounds) == (8, 2)
    assert work.metrics["ports"].std() > 0
    played = play(work, Trace(budget=1.0).ranker(work))
    assert np.isfinite(played.qos).all()


def test_metrics_survive_the_way_to_the_model_and_back(example):
    path, options = example
    table = read_metrics(path, options["hosts"])
    work = table_work(table, np.random.default_rng(0), overcommit=3.0)
    rows = table.vm == 3
    assert work.metrics["llc_mpki"][3] == pytest.approx(table.columns["llc_mpki"][rows].mean())
    quality = work.judge.played(1, work.host)
    seen = work.state(1, work.host, quality)
    assert seen.x[3, 9] == pytest.approx(table.columns["llc_mpki"][rows].mean(), rel=0.1)


def test_parquet_says_the_same_as_csv(example, tmp_path):
    path, options = example
    pl.read_csv(path).write_parquet(tmp_path / "m.parquet")
    one, two = read_metrics(path, options["hosts"]), read_metrics(tmp_path / "m.parquet", options["hosts"])
    assert one.vms == two.vms
    assert np.array_equal(one.columns["mem_gbps"], two.columns["mem_gbps"])
    assert one.hosts.names == two.hosts.names


def test_hosts_that_nobody_described_are_those_of_the_preset(example):
    found = read_metrics(example[0]).hosts
    assert found.names == ("host-0", "host-1", "host-2")
    assert set(found.threads.tolist()) == {64}


HEAD = "time,host,vm,vcpu,memory_gb,cpu"


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["0,a,x,2,4,0.5", "0,b,x,2,4,0.5"], 'found "x" on a and b at one time'),
        (["0,a,x,2,4,0.5", "0,a,x,2,4,0.6"], 'found "x" twice at one time'),
        (["0,a,x,2,4,nan"], "cpu"),
        (["0,a,x,2,4,1.5"], "cpu"),
        (["0,a,x,0,4,0.5"], "vcpu"),
        (["0,a,x,2,-4,0.5"], "memory_gb"),
        (["later,a,x,2,4,0.5"], "time"),
    ],
)
def test_a_bad_table_is_refused_in_one_line(tmp_path, lines, said):
    path = written(tmp_path, [HEAD, *lines], "m.csv")
    with pytest.raises(InputError) as raised:
        read_metrics(path)
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)
    assert "m.csv" in str(raised.value)


def test_what_the_model_needs_must_be_there(tmp_path):
    path = written(tmp_path, [HEAD, "0,a,x,2,4,0.5"], "m.csv")
    with pytest.raises(InputError, match="steal"):
        read_metrics(path, every_metric=True)


def test_one_hour_is_too_little(tmp_path):
    with pytest.raises(InputError, match="expected two hours at least"):
        arena.from_file(written(tmp_path, [HEAD, "0,a,x,2,4,0.5"], "m.csv"))


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["host,cores", "a,4", "a,8"], "host"),
        (["host,cores,threads,sockets", "a,5,8,1"], "multiple"),
        (["host,cores", "a,0"], "cores"),
        (["host,speed", "a,inf"], "speed"),
        (["host,threads", "a,1000000000"], "threads"),
    ],
)
def test_bad_hosts_are_refused(tmp_path, lines, said):
    with pytest.raises(InputError, match=said):
        read_hosts(written(tmp_path, lines, "hosts.csv"))


def test_a_host_that_is_not_in_the_table_of_hosts_is_refused(tmp_path):
    metrics = written(tmp_path, [HEAD, "0,a,x,2,4,0.5", "0,b,y,2,4,0.5"], "m.csv")
    with pytest.raises(InputError, match=r'm\.csv:3.*"b"; expected a host of the table'):
        read_metrics(metrics, written(tmp_path, ["host", "a"], "hosts.csv"))


def test_files_that_do_not_go_together_are_refused(tmp_path, example):
    path, options = example
    with pytest.raises(InputError, match="--readings"):
        arena.from_file(path, options | {"readings": str(path)})
    with pytest.raises(InputError, match="--hosts"):
        arena.from_file(written(tmp_path, [row("a")]), {"hosts": options["hosts"]})
    with pytest.raises(InputError, match="found no such file"):
        arena.from_file(written(tmp_path, [row("a")]), {"readings": "nowhere.csv"})


# Learning from a table


def logged(tmp_path: Path, hours: int = 6) -> Path:
    """Metrics of 12 VMs on two hosts, of which the second is crowded and its VMs suffer."""
    rng = np.random.default_rng(0)
    names = [name for name, *_ in METRICS]
    lines = [",".join([HEAD, *names, "qos"])]
    for t in range(0, 3600 * hours, 1800):
        for v in range(12):
            crowded = v >= 3
            values = {
                "steal": 0.0, "cpi": 1.4, "ports": 0.4, "l2_mpki": 17, "llc_mpki": 7, "mem_gbps": 4, "net_mbps": 40, "disk_mbps": 25,
                "core_bound": 0.26, "l2_bound": 0.22, "llc_bound": 0.19, "dram_bound": 0.22,
            }  # fmt: skip
            cells = [f"{values[name] * rng.lognormal(0, 0.05):.4f}" for name in names]
            lines.append(f"{t},{'ab'[crowded]},v{v},4,8,{rng.uniform(0.2, 0.4):.3f},{','.join(cells)},{0.5 if crowded else 0.9}")
    return written(tmp_path, lines, "logged.csv")


def test_a_table_with_qos_trains_further(tmp_path):
    pytest.importorskip("torch")
    path = logged(tmp_path)
    before = Trace.load(epochs=8)
    after = before.fit(path)
    table = read_metrics(path, every_metric=True)
    state, qos = state_at(table, 3600.0 * 5)
    vms = np.arange(12)
    wrong = [np.abs(one.ranker.scores(state, vms)[vms, state.host] - qos).mean() for one in (before, after)]
    assert wrong[1] < 0.7 * wrong[0]
    after.save(tmp_path / "own.safetensors")
    again = Trace.load(tmp_path / "own.safetensors")
    assert np.array_equal(again.ranker.scores(state, vms), after.ranker.scores(state, vms))


def test_a_table_without_qos_cannot_train(tmp_path, example):
    model = Trace.load().model
    with pytest.raises(InputError, match="found no column qos"):
        fitted(model, read_metrics(example[0]), epochs=1)
    one = logged(tmp_path, 1).read_text().splitlines()[:13]
    with pytest.raises(InputError, match="expected two at least"):
        Trace.load().fit(written(tmp_path, one, "one.csv"))


def test_a_bad_file_ends_the_command_with_one_line(tmp_path, armillary_here):
    bad = written(tmp_path, [HEAD, "0,a,x,2,4,0.5", "0,b,x,2,4,0.5"], "bad.csv")
    done = armillary_here("compare", "scheduling/vm", "--work", str(bad))
    assert done.returncode == 2
    assert done.stderr.strip().count("\n") == 0
    assert 'found "x" on a and b' in done.stderr
