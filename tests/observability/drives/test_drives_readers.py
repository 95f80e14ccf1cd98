"""Logs as they are: Alibaba's days, Backblaze's folders and archives, smartctl's documents, and everything that can be wrong with them."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from small_fleets import drawn, fleet

from armillary.errors import InputError
from armillary.observability.drives import read_alibaba, read_backblaze, read_logs, read_smartctl, write_alibaba, write_backblaze
from armillary.observability.drives.fleets.fleet import NEVER, Fleet
from armillary.observability.drives.readers import days, gathering

#: A header of the older and one of the newer files of Backblaze, shortened to a few attributes.
OLD = "date,serial_number,model,capacity_bytes,failure,smart_5_normalized,smart_5_raw,smart_9_normalized,smart_9_raw"
NEW = (
    "date,serial_number,model,capacity_bytes,failure,datacenter,cluster_id,vault_id,pod_id,pod_slot_num,is_legacy_format,"
    "smart_5_normalized,smart_5_raw,smart_187_normalized,smart_187_raw,smart_210_normalized,smart_210_raw,smart_211_normailized,smart_211_raw"
)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Fleet, Path]:
    one = drawn(1, drives=60, days=30, failures=20)
    return one, write_alibaba(one, tmp_path_factory.mktemp("alibaba"))


def same(one: Fleet, other: Fleet) -> None:
    """Both hold the same days of the same drives, in whatever order."""
    rows = []
    shared = np.intersect1d(one.attributes, other.attributes)
    for given in (one, other):
        # An attribute that no drive reports is not kept by the readers.
        there = np.isin(given.attributes, shared)
        assert np.isnan(given.raw[:, ~there]).all()
        named = [given.name(int(i)) for i in given.drive]
        order = np.lexsort((given.day, named))
        rows.append(([named[int(i)] for i in order], given.day[order].tolist(), given.raw[order][:, there], given.normal[order][:, there]))
    assert rows[0][:2] == rows[1][:2]
    assert np.array_equal(rows[0][2], rows[1][2], equal_nan=True)
    assert np.allclose(rows[0][3], rows[1][3], equal_nan=True)
    failures = [{given.name(i): int(given.failure[i]) for i in range(len(given))} for given in (one, other)]
    assert failures[0] == failures[1]


def test_what_is_written_is_read(written: tuple[Fleet, Path]) -> None:
    one, folder = written
    found = read_alibaba(folder)
    same(one, found)
    assert found.first_date == "2018-01-01"
    assert found.weight == 1.0
    assert read_alibaba(folder, folder / "ssd_failure_label.csv", last=10).days == 10
    assert set(read_alibaba(folder, models=("MA1",)).models) == {"MA1"}
    assert read_alibaba(folder, attributes=(5, 9)).attributes.tolist() == [5, 9]


def test_disks_of_one_number_are_two_drives_if_their_models_differ(tmp_path: Path) -> None:
    (tmp_path / "20180101.csv").write_text("disk_id,ds,model,n_5,r_5\n7,20180101,MA1,100,0\n7,20180101,MB1,100,3\n")
    (tmp_path / "ssd_failure_label.csv").write_text("model,disk_id,failure_time\nMB1,7,2018-01-20 19:15:32\n")
    found = read_alibaba(tmp_path)
    assert sorted(found.name(i) for i in range(2)) == ["MA1/7", "MB1/7"]
    assert found.failure[found.find("MB1", "7")] == 19
    assert found.failure[found.find("MA1", "7")] == NEVER
    assert found.known_until == 20


def test_columns_go_by_name_and_halves_may_be_missing(tmp_path: Path) -> None:
    (tmp_path / "20180101.csv").write_text("model,r_5,disk_id,n_187,ds\nMC1,4,1,99,20180101\nMC1,,2,,20180101\n")
    (tmp_path / "20180102.csv").write_text("disk_id,ds,model,n_5,r_5,r_187,n_187\n1,20180102,MC1,90,1.5e3,2,98\n")
    found = read_alibaba(tmp_path)
    first = int(found.start[found.find("MC1", "1")])
    assert found.attributes.tolist() == [5, 187]
    assert found.raw[first].tolist() == pytest.approx([4, np.nan], nan_ok=True)
    assert found.raw[first + 1].tolist() == [1500, 2]
    assert found.normal[first + 1].tolist() == [90, 98]
    assert "no file of failures was given" in found.notes


def test_the_sister_file_of_labels_is_read_for_its_failures(tmp_path: Path) -> None:
    (tmp_path / "20180101.csv").write_text("disk_id,ds,model,r_5\n1,20180101,A1,4\n2,20180101,A1,4\n")
    (tmp_path / "ssd_failure_tag.csv").write_text(
        "model,failure_time,failure,app,r_5,n_5,disk_id,node_id,rack_id,machine_room_id\nA1,2018-03-05,1,WPS,3,99,2,11,22,33\n"
        "A1,2018-02-04,1,WPS,3,99,2,11,22,33\nA2,2018-02-04,1,WPS,3,99,9,11,22,33\n"
    )
    found = read_alibaba(tmp_path)
    assert found.failure[found.find("A1", "2")] == 34
    assert "1 failures are of drives that the log does not have" in found.notes


def test_a_drive_that_failed_before_its_first_day_is_kept_and_flagged(tmp_path: Path) -> None:
    for day in (3, 4, 5):
        (tmp_path / f"2018010{day}.csv").write_text(f"disk_id,ds,model,r_5\n1,2018010{day},A1,4\n2,2018010{day},A1,4\n")
    (tmp_path / "ssd_failure_label.csv").write_text("model,disk_id,failure_time\nA1,1,2017-12-30\nA1,2,2018-01-05\n")
    found = read_alibaba(tmp_path)
    assert found.failure[found.find("A1", "1")] == -4
    assert np.diff(found.start).tolist() == [3, 2]
    assert any("1 drives failed on or before their first day" in note for note in found.notes)


def backblaze_day(day: str, rows: list[str], header: str = OLD) -> str:
    return "\n".join([header, *(f"{day},{row}" for row in rows)]) + "\n"


def test_backblaze_with_its_quirks(tmp_path: Path) -> None:
    (tmp_path / "2019-01-01.csv").write_text(
        backblaze_day("2019-01-01", ["Z1,ST4000DM000,4000787030016,0,,,100,1E+3", "Z2,ST4000DM000,-1,0,100,0,,"])
    )
    new = ["Z1,ST4000DM000,4000787030016,0,sac0,0,1,20,3,False,100,7,,,,,98,6", "Z2,ST4000DM000,4000787030016,1,,,,,,,100,8,,2,,,,"]
    (tmp_path / "2019-01-02.csv").write_text(backblaze_day("2019-01-02", new, NEW))
    found = read_backblaze(tmp_path, attributes=(5, 9, 187, 210, 211))
    assert found.attributes.tolist() == [5, 9, 211]  # 187 stands on the day of a failure only, and of 210 nothing is ever said.
    one, other = found.find("ST4000DM000", "Z1"), found.find("ST4000DM000", "Z2")
    assert found.raw[found.start[one] : found.start[one + 1]] == pytest.approx(
        np.array([[np.nan, 1000, np.nan], [7, np.nan, 6]]), nan_ok=True
    )
    assert found.normal[found.start[one] + 1, 2] == 98
    assert found.failure[other] == 1
    assert found.start[other + 1] - found.start[other] == 1
    assert found.known_until == 2


def test_columns_that_are_empty_for_thousands_of_rows(tmp_path: Path) -> None:
    rows = [f"S{i},ST,1,0,,,," for i in range(20_000)] + ["S20000,ST,1,0,,3.0,,"]
    (tmp_path / "2019-01-01.csv").write_text(backblaze_day("2019-01-01", rows))
    found = read_backblaze(tmp_path)
    assert len(found) == 20_001
    assert np.nansum(found.raw[:, 0]) == 3


def test_a_quarter_in_an_archive_and_archives_in_a_folder(tmp_path: Path) -> None:
    one = drawn(2, drives=30, days=20, failures=12)
    loose = write_backblaze(one, tmp_path / "loose")
    with zipfile.ZipFile(tmp_path / "data_Q1_2018.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(loose.iterdir()):
            archive.write(file, f"data_Q1_2018/{file.name}")
            archive.writestr(f"__MACOSX/data_Q1_2018/._{file.name}", b"\0\1\2")
    alone = read_backblaze(tmp_path / "data_Q1_2018.zip")
    same(alone, read_backblaze(loose))
    (tmp_path / "quarters").mkdir()
    (tmp_path / "data_Q1_2018.zip").rename(tmp_path / "quarters" / "data_Q1_2018.zip")
    same(alone, read_logs(tmp_path / "quarters"))
    assert alone.failed.sum() > 3
    # A failure is known from the day on which the drive was last seen; what the log does not show, nobody knows.
    assert alone.failed.sum() <= one.failed.sum()


def test_what_is_wrong_with_an_archive_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(days, "FREE_BYTES", 1 << 16)
    path = tmp_path / "q.zip"
    path.write_bytes(b"PK\x03\x04 and nothing else")
    with pytest.raises(InputError, match="cannot be read as a zip archive"):
        read_backblaze(path)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("2019-01-01.csv", OLD + "\n" + "\n" * (4 << 20))
    with pytest.raises(InputError, match="unpack to more than 250 times"):
        read_backblaze(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("2019-01-01.csv", backblaze_day("2019-01-01", ["S,ST,1,0,1,1,1,many"]))
    with pytest.raises(InputError) as raised:
        read_backblaze(path)
    assert str(raised.value) == f'{path}/2019-01-01.csv:2: column "r_9": found "many"; expected a number'
    data = bytearray(path.read_bytes())
    data[data.index(b"many")] ^= 1
    path.write_bytes(data)
    with pytest.raises(InputError, match="CRC"):
        read_backblaze(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("../2019-01-01.csv", backblaze_day("2019-01-01", ["S,ST,1,0,1,1,1,1"]))
    assert len(read_backblaze(path)) == 1  # A name that climbs is a name; nothing is written by it.
    assert [one.name for one in tmp_path.iterdir()] == ["q.zip"]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"notes.txt": "x"}, "found no file named by its date; expected 20180103.csv or 2018-01-03.csv"),
        ({"20181301.csv": "x"}, "found a date that does not exist"),
        ({"20180101.csv": "disk_id,ds,model,r_5\n1,20180102,A,3\n"}, '20180101.csv:2: column "ds": found "20180102"; expected 20180101'),
        ({"20180101.csv": "disk_id,ds,model,r_5\n1,20180101,A,many\n"}, '20180101.csv:2: column "r_5": found "many"; expected a number'),
        ({"20180101.csv": "disk_id,ds,model,r_5\n1,20180101,A,inf\n"}, "expected a finite number"),
        ({"20180101.csv": "disk_id,ds,model,r_5\n1,20180101,A,1\n1,20180101,A,2\n"}, "found drive A/1 twice on 2018-01-01"),
        ({"20180101.csv": "disk_id,ds,model,r_5\n,20180101,A,1\n"}, 'column "disk_id": found nothing'),
        ({"20180101.csv": "disk_id,ds,model\n1,20180101,A\n"}, "found the SMART attributes none"),
        ({"20180101.csv": "disk_id,ds,model,r_5\n"}, "found no drive with a day"),
        ({"20180101.csv": "name,value\n1,2\n"}, 'expected "disk_id" (Alibaba) or "serial_number" (Backblaze)'),
        ({"20180101.csv": "disk_id,ds,model,r_5\n1,20180101,A,1\n", "2018-01-01.csv": OLD}, "found 2018-01-01 again"),
        ({"2019-01-01.csv": backblaze_day("2019-01-01", ["S,ST,1,2,,,,"])}, 'column "failure": found "2"; expected a whole number from 0 to 1'),
        ({"2019-01-01.csv": backblaze_day("2019-01-02", ["S,ST,1,0,,,,"])}, 'column "date": found "2019-01-02"; expected 2019-01-01'),
        (
            {"20180101.csv": "disk_id,ds,model,r_5\n1,20180101,A,1\n", "ssd_failure_label.csv": "model,disk_id,failure_time\nX,1,2018-02-01\n"},
            "found failures of X; expected drives of the log, which has A",
        ),
        (
            {"20180101.csv": "disk_id,ds,model,r_5\n1,20180101,A,1\n", "ssd_failure_label.csv": "disk_id,failure_time\n1,2018-02-01\n"},
            "expected model, disk_id, failure_time",
        ),
        (
            {"20180101.csv": "disk_id,ds,model,r_5\n1,20180101,A,1\n", "ssd_failure_label.csv": "model,disk_id,failure_time\nA,1,soon\n"},
            'ssd_failure_label.csv:2: column "failure_time": found "soon"',
        ),
    ],
)  # fmt: skip
def test_bad_logs_end_in_one_line(tmp_path: Path, files: dict[str, str], message: str) -> None:
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    with pytest.raises(InputError) as raised:
        read_logs(tmp_path)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_rows_that_do_not_fit_memory_go_over_files(written: tuple[Fleet, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    one, folder = written
    monkeypatch.setattr(gathering.tempfile, "tempdir", str(tmp_path))
    seen: list[int] = []
    spread = gathering.Gathering._spread

    def watched(self: gathering.Gathering) -> None:
        seen.append(self._bytes)
        spread(self)

    monkeypatch.setattr(gathering.Gathering, "_spread", watched)
    monkeypatch.setattr(gathering.Gathering.__init__, "__defaults__", (None, 60_000))
    same(one, read_alibaba(folder))
    assert len(seen) > 5
    assert max(seen) < 60_000 + 60 * 50 * 8
    assert list(tmp_path.iterdir()) == []


def test_a_kept_log_is_read_again_without_its_source(written: tuple[Fleet, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from armillary.observability.drives.readers import logs

    one, folder = written
    kept = tmp_path / "deep" / "cache"
    same(one, read_alibaba(folder, cache=kept))
    facts = json.loads((kept / "log.json").read_text())
    assert facts["attributes"] == one.attributes.tolist()
    parsed = []
    whole = logs._day
    monkeypatch.setattr(logs, "_day", lambda *given: parsed.append(given[1]) or whole(*given))
    same(one, read_alibaba(folder, cache=kept))
    assert parsed == []
    assert read_alibaba(folder, cache=kept, last=5).days == 5
    assert len(parsed) == 5
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["cache"]
    for file in kept.glob("*.parquet"):
        file.write_bytes(b"PAR1 nonsense")
    with pytest.raises(InputError):
        read_alibaba(folder, cache=kept, last=5)


def test_a_cache_folder_with_something_else_in_it_is_left_alone(written: tuple[Fleet, Path], tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(InputError, match="found something else than a kept log"):
        read_alibaba(written[1], cache=tmp_path)
    assert (tmp_path / "thesis.txt").read_text() == "mine"


def test_healthy_drives_are_thinned_where_there_are_too_many_rows(written: tuple[Fleet, Path]) -> None:
    one, folder = written
    found = read_alibaba(folder, most_rows=1000)
    assert found.rows <= 1000
    assert found.failed.sum() == one.failed.sum()
    assert found.weight == pytest.approx((~one.failed).sum() / (~found.failed).sum())
    assert found.weight > 1
    with pytest.raises(InputError, match="failing drives alone take too many"):
        read_alibaba(folder, most_rows=50)


def test_packed_days_and_exact_numbers(tmp_path: Path) -> None:
    import gzip

    (tmp_path / "20180101.csv.gz").write_bytes(gzip.compress(b"disk_id,ds,model,r_241\n1,20180101,A,281474976710655\n"))
    assert read_alibaba(tmp_path).raw[0, 0] == 281474976710655


ATA = {
    "json_format_version": [1, 0], "smartctl": {"version": [7, 2]}, "device": {"name": "/dev/sda", "type": "sat", "protocol": "ATA"},
    "model_name": "ST4000DM000-1F2168", "serial_number": "Z3", "local_time": {"time_t": 1700000000, "asctime": "Tue Nov 14 22:13:20 2023 UTC"},
    "ata_smart_attributes": {"revision": 10, "table": [
        {"id": 5, "name": "Reallocated_Sector_Ct", "value": 100, "worst": 100, "thresh": 10, "raw": {"value": 8, "string": "8"}},
        {"id": 194, "name": "Temperature_Celsius", "value": 27, "worst": 41, "thresh": 0, "raw": {"value": 64424509467, "string": "27 (0 15 0 0 0)"}},
    ]},
}  # fmt: skip
NVME = {
    "model_name": "MB2", "serial_number": "S5", "local_time": {"time_t": 1700090000},
    "nvme_smart_health_information_log": {
        "critical_warning": 0, "temperature": 35, "available_spare": 98, "available_spare_threshold": 10, "percentage_used": 4,
        "data_units_read": 1, "data_units_written": 2, "power_cycles": 30, "power_on_hours": 4000, "unsafe_shutdowns": 5, "media_errors": 6,
    },
}  # fmt: skip


def test_documents_of_smartctl(tmp_path: Path) -> None:
    (tmp_path / "sda.json").write_text(json.dumps(ATA))
    (tmp_path / "nvme0.json").write_text(json.dumps(NVME))
    later = json.loads(json.dumps(ATA))
    later["local_time"]["time_t"] += 3600
    later["ata_smart_attributes"]["table"][0]["raw"]["value"] = 9
    (tmp_path / "sda-later.json").write_text(json.dumps(later))
    found = read_logs(tmp_path)
    assert (len(found), found.rows, found.days) == (2, 2, 2)
    disk, nvme = found.find("ST4000DM000-1F2168", "Z3"), found.find("MB2", "S5")
    where = {int(a): i for i, a in enumerate(found.attributes)}
    assert found.raw[found.start[disk], where[5]] == 9
    assert found.normal[found.start[disk], where[5]] == 100
    assert found.raw[found.start[nvme], where[187]] == 6
    assert found.normal[found.start[nvme], where[233]] == 96
    assert found.date(int(found.day[found.start[disk]])) == "2023-11-14"
    assert len(read_smartctl(tmp_path / "sda.json")) == 1


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("model_name",), None, "model_name: found nothing; expected text"), (("serial_number",), 7, "serial_number: found 7"),
        (("local_time", "time_t"), "now", "local_time.time_t: found 'now'; expected seconds since 1970"), (("local_time", "time_t"), -1, "local_time.time_t"),
        (("ata_smart_attributes", "table"), 3, "found neither ata_smart_attributes.table nor"),
        (("ata_smart_attributes", "table", 0, "id"), 4000, "table[0]: id: found 4000; expected a number from 1 to 255"),
        (("ata_smart_attributes", "table", 1, "id"), 5, "found attribute 5 again"),
        (("ata_smart_attributes", "table", 0, "raw", "value"), "8", "raw.value: found '8'; expected a number"),
        (("ata_smart_attributes", "table", 0), 5, "id: found nothing"),
    ],
)  # fmt: skip
def test_bad_documents_end_in_one_line(tmp_path: Path, path: tuple[str | int, ...], value: object, message: str) -> None:
    document = json.loads(json.dumps(ATA))
    at = document
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = value
    (tmp_path / "a.json").write_text(json.dumps(document))
    with pytest.raises(InputError) as raised:
        read_smartctl(tmp_path / "a.json")
    assert message in str(raised.value)
    assert str(raised.value).startswith(str(tmp_path / "a.json"))


def test_a_log_that_another_program_writes_is_read(tmp_path: Path) -> None:
    """Polars reads what we write, so the files are ordinary CSV."""
    folder = write_alibaba(fleet().last(2), tmp_path)
    day = sorted(folder.glob("2018*.csv"))[0]
    assert pl.read_csv(day).columns[:5] == ["disk_id", "ds", "model", "n_1", "r_1"]
