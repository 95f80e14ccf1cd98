"""Every kind of trace gives the invocations that stand in it, and a bad one says what is wrong in one line."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from armillary.errors import InputError
from armillary.scheduling.faas import Invocations, read_invocations
from armillary.scheduling.faas.pods import peaks

MINUTES = ",".join(map(str, range(1, 1441)))
REQUESTS = (
    "time_worker,time_frontend,requestID,clusterName,funcName,podID,userID,totalCost_worker,workerCost,runtimeCost,totalCost_frontend,"
    "frontendCost,busCost,readBodyCost,writeRspCost,cpu_usage,memory_usage,requestBodySize"
)
COLD = "day,time,clusterName,funcName,userID,requestID,totalCost_cold_start,podAllocationCost,deployCodeCost,deployDependencyCost,schedulingCost,podID"


def day(rows: dict[tuple[str, str, str], dict[int, int]]) -> str:
    """A day of Azure 2019: counts by minute, from 1."""
    lines = [f"HashOwner,HashApp,HashFunction,Trigger,{MINUTES}"]
    for key, counts in rows.items():
        lines.append(",".join([*key, "http", *(str(counts.get(m, 0)) for m in range(1, 1441))]))
    return "\n".join(lines) + "\n"


def rows_of(trace: Invocations) -> list[tuple[str, float, float]]:
    """(function, arrival, duration) of all invocations."""
    return [(trace.names[f], round(a, 6), d) for f, a, d in zip(trace.function.tolist(), trace.arrival_s.tolist(), trace.duration_s.tolist())]


def test_a_plain_table_in_any_order(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("function,arrival_s,duration_s,memory_mb,cold_s\nb,5,1,512,0.5\na,7,2,,\nb,1,3,512,0.5\n")
    trace = read_invocations(path, cold_s=9.0, memory_mb=256)
    assert rows_of(trace) == [("b", 1, 3), ("b", 5, 1), ("a", 7, 2)]
    assert trace.cold_s.tolist() == [0.5, 9.0]
    assert trace.memory_gb.tolist() == [0.5, 0.25]
    assert trace.reordered == 1


def test_arrivals_may_be_dates(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("function,arrival_s,duration_s\nf,2024-06-01T00:00:10Z,1\nf,2024-06-01T00:00:00.5Z,2\n")
    assert rows_of(read_invocations(path)) == [("f", 1717200000.5, 2), ("f", 1717200010.0, 1)]


def test_azure_2021_arrivals_are_ends_less_durations(tmp_path: Path) -> None:
    path = tmp_path / "AzureFunctionsInvocationTraceForTwoWeeksJan2021.txt"
    path.write_text("app,func,end_timestamp,duration\na,f,10.0,2.5\na,g,11.0,0.5\nb,f,9.0,9.0\n")
    trace = read_invocations(path)
    assert rows_of(trace) == [("a---f", 7.5, 2.5), ("a---g", 10.5, 0.5), ("b---f", 0.0, 9.0)]
    assert trace.horizon_s == 11.0


def test_azure_2019_spreads_counts_over_their_minutes(tmp_path: Path) -> None:
    (tmp_path / "invocations_per_function_md.anon.d01.csv").write_text(day({("o", "a", "f"): {1: 2, 3: 1}, ("o", "a", "g"): {1440: 4}}))
    (tmp_path / "invocations_per_function_md.anon.d02.csv").write_text(day({("o", "a", "f"): {2: 1}}))
    (tmp_path / "function_durations_percentiles.anon.d01.csv").write_text(
        "HashOwner,HashApp,HashFunction,Average,Count,Minimum,Maximum\no,a,f,250,3,1,900\no,x,y,1,1,1,1\n"
    )
    (tmp_path / "app_memory_percentiles.anon.d01.csv").write_text("HashOwner,HashApp,SampleCount,AverageAllocatedMb\no,a,5,512\n")
    even = read_invocations(tmp_path, spread="even", duration_s=0.1)
    assert rows_of(even) == [
        ("o---a---f", 0.0, 0.25), ("o---a---f", 30.0, 0.25), ("o---a---f", 120.0, 0.25), ("o---a---f", 86460.0, 0.25),
        *(("o---a---g", 1439 * 60 + 15.0 * k, 0.1) for k in range(4)),
    ]  # fmt: skip
    assert even.memory_gb.tolist() == [0.5, 0.5]
    assert even.horizon_s == 2 * 86400
    one_day = tmp_path / "invocations_per_function_md.anon.d01.csv"
    start = read_invocations(one_day, spread="start")
    assert start.arrival_s.tolist() == [0, 0, 120, *[1439 * 60] * 4]
    drawn = read_invocations(one_day, seed=1)
    assert np.array_equal(drawn.arrival_s // 60, start.arrival_s // 60)
    assert len(np.unique(drawn.arrival_s)) == len(drawn)


def test_huawei_requests_take_sizes_from_pods_and_cold_starts_from_their_file(tmp_path: Path) -> None:
    path, cold = tmp_path / "requests.csv.gz", tmp_path / "cold.csv"
    lines = [REQUESTS, *(f"{2592000 + t},,r,c,{f},pool22-300-128-000061841{k},u,0.5,0.1,{d},,,,,,0.1,50,10" for t, f, k, d in
                         ((3, "1", 1, 0.25), (1, "1", 2, 0.5), (2, "2", 3, 1.0)))]  # fmt: skip
    path.write_bytes(gzip.compress(("\n".join(lines) + "\n").encode()))
    cold.write_text(f"{COLD}\n0,5,c,1,u,r,1.5,1,0,0,0,pool22-300-128-0000000001\n0,6,c,1,u,r,2.5,1,0,0,0,pool22-300-128-0000000002\n")
    trace = read_invocations(path, cold_starts=str(cold))
    assert rows_of(trace) == [
        ("1---u---pool22-300-128", 2592001.0, 0.5), ("1---u---pool22-300-128", 2592003.0, 0.25), ("2---u---pool22-300-128", 2592002.0, 1.0),
    ]  # fmt: skip
    assert trace.vcpu.tolist() == [0.3, 0.3]
    assert trace.memory_gb.tolist() == [0.125, 0.125]
    assert trace.cold_s.tolist() == [2.0, 2.0]  # The second function has none of its own: the median over functions.


def test_huawei_counts_per_minute(tmp_path: Path) -> None:
    (tmp_path / "day_01.csv").write_text("day,time,7,f---u---pool22-600-512\n1,0,2,\n1,60,,1\n")
    (tmp_path / "df_funcID_runtime_triggerType.csv").write_text("funcID,cpu_request,runtime,triggerType-invocationType\n7,400,Go,timer-s\n")
    trace = read_invocations(tmp_path, spread="even", duration_s=0.5)
    assert rows_of(trace) == [("7", 86400.0, 0.5), ("7", 86430.0, 0.5), ("f---u---pool22-600-512", 86460.0, 0.5)]
    assert trace.vcpu.tolist() == [0.4, 0.6]
    assert trace.memory_gb.tolist() == [0.125, 0.5]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("time,bytes\n1,2\n", r"t.csv:1: found the columns time, bytes; expected Azure 2019 .*Azure 2021 .*Huawei 2025 .*function, arrival_s"),
        ("function,arrival_s,duration_s\na,1,-2\n", r't.csv:2: column "duration_s": found "-2"'),
        ("function,arrival_s,duration_s\na,x,2\n", "t.csv:2"),
        ("function,arrival_s,duration_s\n", "no rows"),
        ("app,func,end_timestamp,duration\na,b,1,nan\n", "t.csv:2"),
        ("HashOwner,HashApp,HashFunction,Trigger,1,2,3\na,b,c,http,1,1,1\n", "found 3 minutes; expected the 1,440"),
        (f"{REQUESTS}\n1,,r,c,f,pool22-300,u,1,1,1,,,,,,1,1,1\n", r't.csv:2: column "podID": found "pool22-300"; expected a pod such as'),
        ("day,time,7,time\n1,0,2,1\n", "t.csv:1: found a column twice"),
        (f"{COLD}\n0,5,c,1,u,r,1.5,1,0,0,0,pool22-300-128-1\n", "found none; expected the files of one trace"),
    ],
)
def test_a_bad_trace_is_refused_in_one_line(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(InputError, match=said) as error:
        read_invocations(tmp_path / "t.csv")
    assert "\n" not in str(error.value)


def test_counts_that_would_fill_memory_are_refused_before_anything_is_made(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(day({("o", "a", "f"): dict.fromkeys(range(1, 1441), 10 ** 9)}))
    with pytest.raises(InputError, match="1,440,000,000,000 invocations; expected at most"):
        read_invocations(tmp_path / "t.csv")


def test_invocations_that_all_run_at_once_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "t.csv").write_text("function,arrival_s,duration_s\n" + "f,0,9\n" * 30 + "g,0,9\n" * 3)
    assert peaks(read_invocations(tmp_path / "t.csv")).tolist() == [30, 3]
    monkeypatch.setattr("armillary.scheduling.faas.traces.MOST_VISITS", 900)
    with pytest.raises(InputError, match='found 30 invocations of "f" at once'):
        read_invocations(tmp_path / "t.csv")


def test_a_folder_of_two_traces_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("function,arrival_s,duration_s\na,1,2\n")
    (tmp_path / "b.csv").write_text("app,func,end_timestamp,duration\na,b,3,1\n")
    with pytest.raises(InputError, match="found table and Azure 2021"):
        read_invocations(tmp_path)
    with pytest.raises(InputError, match="found another kind of file; expected durations"):
        read_invocations(tmp_path / "a.csv", durations=str(tmp_path / "b.csv"))
