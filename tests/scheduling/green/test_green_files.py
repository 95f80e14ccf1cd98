"""Users' files: Google's cluster data, Pod lists, our table, NSRDB, PVGIS; sound ones by hand and bad ones in one line."""

from __future__ import annotations

import gzip
import json
from typing import Any

import numpy as np
import pytest

from armillary.errors import InputError
from armillary.scheduling.green import read_pods, read_sun, read_vector
from armillary.scheduling.green.readers.pods import Assumed

MINUTE = 60_000_000
BEGIN = 600_000_000
AFTER = 2**63 - 1


def events(*rows: tuple[int, int, int, int, int, int, str, str]) -> str:
    """Lines of task_events: time, job, index, type, class, priority, cpu, memory."""
    lines = [f"{t},,{job},{i},,{kind},u,{level},{priority},{cpu},{mem},0.0001,0" for t, job, i, kind, level, priority, cpu, mem in rows]
    return "\n".join(lines) + "\n"


def usage(*rows: tuple[int, int, int, float]) -> str:
    """Lines of task_usage: start, job, index, mean CPU rate."""
    return "\n".join(f"{t},{t + 5 * MINUTE},{job},{i},42,{cpu},0.01,0.01,0,0,0.01,0,0,{2 * cpu},0,,,1,0,0" for t, job, i, cpu in rows) + "\n"


@pytest.fixture
def google_2011(tmp_path: Any) -> Any:
    """One task that ran ten minutes, one that ran before the trace and goes on, one that never started, one evicted and run again."""
    text = events(
        (BEGIN, 1, 0, 0, 0, 9, "0.25", "0.5"), (BEGIN + MINUTE, 1, 0, 1, 0, 9, "0.25", "0.5"), (BEGIN + 11 * MINUTE, 1, 0, 4, 0, 9, "", ""),
        (0, 2, 7, 0, 1, 0, "0.125", "0.1"), (0, 2, 7, 1, 1, 0, "0.125", "0.1"), (AFTER, 2, 7, 4, 1, 0, "0.125", "0.1"),
        (BEGIN + MINUTE, 3, 0, 0, 2, 4, "0.1", "0.1"),
        (BEGIN, 4, 0, 0, 3, 4, "0.5", "0.1"), (BEGIN, 4, 0, 1, 3, 4, "0.5", "0.1"), (BEGIN + 2 * MINUTE, 4, 0, 2, 3, 4, "0.5", "0.1"),
        (BEGIN + 5 * MINUTE, 4, 0, 1, 3, 4, "0.5", "0.1"), (BEGIN + 20 * MINUTE, 4, 0, 4, 3, 4, "0.5", "0.1"),
    )  # fmt: skip
    for name, content in (("task_events", text), ("task_usage", usage((BEGIN + MINUTE, 1, 0, 0.1), (BEGIN + 6 * MINUTE, 1, 0, 0.05)))):
        (tmp_path / name).mkdir()
        (tmp_path / name / "part-00000-of-00500.csv.gz").write_bytes(gzip.compress(content.encode()))
    return tmp_path


def test_google_2011_by_hand(google_2011: Any) -> None:
    pods = read_pods(google_2011)
    by_name = {pods.name(p): p for p in range(len(pods))}
    assert sorted(by_name) == ["1-0", "2-7", "4-0"]
    p = by_name["1-0"]
    assert (pods.submit_s[p], pods.duration_s[p], pods.cpu[p], pods.memory_gb[p], pods.tier[p]) == (0.0, 600.0, 8.0, 64.0, 0)
    assert pods.usage[pods.offsets[p] : pods.offsets[p + 1]].tolist() == pytest.approx([3.2, 1.6])
    p = by_name["2-7"]  # from the beginning of the trace to its end
    assert (pods.submit_s[p], pods.duration_s[p], pods.tier[p]) == (0.0, 20 * 60.0, 3)
    assert pods.usage[pods.offsets[p]] == pytest.approx(0.45 * 4)
    p = by_name["4-0"]  # its last run
    assert (pods.submit_s[p], pods.duration_s[p], pods.tier[p]) == (0.0, 900.0, 1)
    single = google_2011 / "task_events" / "part-00000-of-00500.csv.gz"
    assert len(read_pods(single, Assumed(machine_cores=64), usage=str(google_2011 / "task_usage" / single.name))) == 3
    assert read_pods(single, Assumed(machine_cores=64)).cpu.max() == 32.0


@pytest.mark.parametrize("flat", ["average_usage.cpus", "average_usage_cpus"])
def test_google_2019_by_hand(tmp_path: Any, flat: Any) -> None:
    (tmp_path / "instance_usage.csv").write_text(
        f"start_time,end_time,collection_id,instance_index,machine_id,{flat},{flat.replace('average', 'maximum')},assigned_memory\n"
        "300000000,600000000,10,0,1,0.1,0.2,0.05\n600000000,900000000,10,0,1,0.05,0.1,0.05\n300000000,600000000,11,3,1,0.01,,0.01\n"
    )
    (tmp_path / "collection_events.csv").write_text("time,type,collection_id,priority\n0,0,10,200\n0,SUBMIT,11,25\n")
    pods = read_pods(tmp_path)
    assert [pods.name(p) for p in range(2)] == ["10-0", "11-3"]
    assert pods.tier.tolist() == [0, 3]
    assert pods.duration_s.tolist() == [600.0, 300.0]
    assert pods.cpu.tolist() == pytest.approx([6.4, 0.32])
    assert pods.usage.tolist() == pytest.approx([3.2, 1.6, 0.32])
    assert read_pods(tmp_path / "instance_usage.csv").tier.tolist() == [2, 2]
    import polars as pl

    pl.read_csv(tmp_path / "instance_usage.csv").write_parquet(tmp_path / "usage.parquet")
    assert read_pods(tmp_path / "usage.parquet", collections=str(tmp_path / "collection_events.csv")).tier.tolist() == [0, 3]


POD: dict[str, Any] = {
    "apiVersion": "v1", "kind": "Pod",
    "metadata": {"name": "train", "namespace": "ml", "labels": {"app": "train"}, "annotations": {"armillary.dev/duration-seconds": "7200"}},
    "spec": {"priority": 0, "containers": [{"name": "c", "resources": {"requests": {"cpu": "1500m", "memory": "2Gi"}}}]},
}  # fmt: skip


def test_a_pod_list_in_json_and_yaml(tmp_path: Any) -> None:
    done = {**POD, "status": {"phase": "Succeeded"}}
    web = {**POD, "metadata": {"name": "web"}, "spec": {**POD["spec"], "priority": 2_000_000_000}}
    document = {"apiVersion": "v1", "kind": "List", "items": [POD, done, web]}
    (tmp_path / "pods.json").write_text(json.dumps(document))
    pods = read_pods(tmp_path / "pods.json")
    assert (pods.names, pods.tier.tolist(), pods.cpu.tolist()) == (("ml/train", "default/web"), [2, 0], [1.5, 1.5])
    assert pods.duration_s.tolist() == [7200.0, 3600.0]
    assert pods.memory_gb[0] == pytest.approx(2.147483648)
    yaml = pytest.importorskip("yaml")
    (tmp_path / "pods.yaml").write_text(yaml.safe_dump_all([POD, web]))
    assert np.array_equal(read_pods(tmp_path / "pods.yaml").cpu, pods.cpu)
    (tmp_path / "tag.yaml").write_text("!!python/object/apply:os.system ['true']")
    with pytest.raises(InputError, match="tag"):
        read_pods(tmp_path / "tag.yaml")


NSRDB = """Source,Location ID,City,State,Country,Latitude,Longitude,Time Zone,Elevation,Local Time Zone
NSRDB,1,-,-,-,39.74,-105.18,-7,1829,-7
Year,Month,Day,Hour,Minute,Temperature,DNI,GHI
2020,6,1,11,0,20,800,700
2020,6,1,12,0,22,900,800
"""
PVGIS = """Latitude (decimal degrees):\t45.000
Longitude (decimal degrees):\t8.000
Elevation (m):\t250
Slope: 35 deg.

time,G(i),H_sun,T2m,WS10m,Int
20160101:1010,400.0,20.0,5.0,1.0,0.0
20160101:1110,450.5,21.0,6.0,1.0,0.0

G(i): Global irradiance on the inclined plane (W/m2)
"""


def test_sun_files_by_hand(tmp_path: Any) -> None:
    (tmp_path / "nsrdb.csv").write_text(NSRDB)
    sun = read_sun(tmp_path / "nsrdb.csv")
    assert sun.times_s[0] == 1591034400.0  # 11:00 at UTC−7 is 18:00
    assert (sun.values.tolist(), sun.irradiance, sun.latitude, [] if sun.air_c is None else sun.air_c.tolist()) == ([700.0, 800.0], True, 39.74, [20.0, 22.0])
    (tmp_path / "pvgis.csv").write_text(PVGIS)
    sun = read_sun(tmp_path / "pvgis.csv")
    assert (sun.times_s[0], sun.values.tolist(), sun.longitude) == (1451643000.0, [400.0, 450.5], 8.0)
    watts = PVGIS.replace("time,G(i)", "time,P,G(i)").replace("1010,", "1010,123.0,").replace("1110,", "1110,130.0,")
    (tmp_path / "p.csv").write_text(watts)
    assert (read_sun(tmp_path / "p.csv").values.tolist(), read_sun(tmp_path / "p.csv").irradiance) == ([123.0, 130.0], False)
    parts = PVGIS.replace("G(i),H_sun", "Gb(i),Gd(i),Gr(i),H_sun").replace("400.0,", "300.0,90.0,10.0,").replace("450.5,", "400.0,50.0,0.5,")
    (tmp_path / "parts.csv").write_text(parts)
    assert read_sun(tmp_path / "parts.csv").values.tolist() == [400.0, 450.5]
    (tmp_path / "own.csv").write_text("timestamp,watts\n2024-01-01T00:00Z,0\n2024-01-01T00:15Z,5\n")
    assert read_sun(tmp_path / "own.csv").values.tolist() == [0.0, 5.0]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (NSRDB.replace("39.74", "93.1"), "latitude"), (NSRDB.replace(",700\n", ",-3\n"), "W/m²"), (NSRDB.replace("GHI", "GHJ"), "GHI"),
        (NSRDB.replace("2020,6,1,11", "2020,6,31,11"), "moment"), (NSRDB.replace("2020,6,1,12", "2020,6,1,10"), "increase"),
        (PVGIS.replace("20160101:1010", "noon"), "20160101:0010"), (PVGIS.replace("time,G(i)", "time,X(i)"), "neither P"),
        (PVGIS.split("time,")[0], "time,"), ("timestamp,watts\n2024-01-01T00:00Z,-5\n2024-01-01T01:00Z,1\n", "watts"),
        ("timestamp,power\n2024-01-01T00:00Z,5\n", "watts"),
    ],
)  # fmt: skip
def test_bad_suns_are_refused_in_one_line(tmp_path: Any, content: Any, said: Any) -> None:
    path = tmp_path / "sun.csv"
    path.write_text(content)
    with pytest.raises(InputError, match=said.replace("(", r"\(")) as error:
        read_sun(path)
    assert "\n" not in str(error.value)
    assert "sun.csv" in str(error.value)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("p.csv", "submit_s,duration_s,cpu,memory_gb\n0,0,1,1\n", "duration_s"), ("p.csv", "submit_s,duration_s,cpu\n0,5,1\n", "memory_gb"),
        ("p.csv", "submit_s,duration_s,cpu,memory_gb,tier\n0,5,1,1,gold\n", "tier"),
        ("p.csv", "submit_s,duration_s,cpu,memory_gb,deadline_s\n9,5,1,1,3\n", "deadline"),
        ("p.json", "[]", "Pod list"), ("p.json", '{"items": []}', "no pod"), ("p.json", '{"items": [{"kind": "Node"}]}', "expected a Pod"),
        ("p.json", json.dumps({"items": [{**POD, "metadata": {"name": "a", "annotations": {"armillary.dev/duration-seconds": "soon"}}}]}),
         "seconds above 0"),
        ("p.csv", events((0, 1, 0, 0, 0, 9, "0.25", "0.5")), "no event within"), ("p.csv", "5,,x,0,,0,u,0,9,0.2,0.5,0,0\n", "job"),
        ("p.csv", "start_time,end_time,collection_id\n0,1,2\n", "instance_index"),
    ],
)  # fmt: skip
def test_bad_pods_are_refused_in_one_line(tmp_path: Any, name: Any, content: Any, said: Any) -> None:
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(InputError, match=said) as error:
        read_pods(path)
    assert "\n" not in str(error.value)
    assert name in str(error.value)


def test_prometheus_answers(tmp_path: Any) -> None:
    path = tmp_path / "usage.json"
    answer = {"status": "success", "data": {"resultType": "vector", "result": [
        {"metric": {"node": "a"}, "value": [1.0, "2.5"]}, {"metric": {"node": "b"}, "value": [1.0, "NaN"]}]}}  # fmt: skip
    path.write_text(json.dumps(answer))
    assert read_vector(path) == {"a": 2.5}
    for bad in ("[]", '{"status": "error"}', json.dumps({**answer, "data": {"resultType": "matrix", "result": []}}),
                json.dumps(answer).replace("2.5", "x"), json.dumps(answer).replace('"node"', '"pod"')):  # fmt: skip
        path.write_text(bad)
        with pytest.raises(InputError):
            read_vector(path)
