"""The arena: every kind of file, what a bad one says, the answer, and the example."""

from __future__ import annotations

from pathlib import Path

import pytest

from armillary import catalogue, compare
from armillary.errors import InputError
from armillary.scheduling.batch import Moved, read_io

DARSHAN = """\
# darshan log version: 3.41
# exe: ./writer
# uid: 1000
# jobid: {job}
# nprocs: 4
# run time: 12.5
# *******************************************************
total_POSIX_OPENS: 3
total_POSIX_BYTES_READ: 1000
total_POSIX_BYTES_WRITTEN: 3000
total_POSIX_F_READ_TIME: 2.0
total_POSIX_F_WRITE_TIME: 4.0
total_POSIX_F_META_TIME: 2.0
total_MPIIO_BYTES_WRITTEN: 3000
total_MPIIO_F_WRITE_TIME: 5.0
total_STDIO_BYTES_READ: 0
total_STDIO_BYTES_WRITTEN: 500
total_STDIO_F_WRITE_TIME: 0.4
total_STDIO_F_META_TIME: -1
"""


def test_darshans_totals_are_divided_by_processes_and_mpi_io_is_not_added(tmp_path: Path) -> None:
    folder = tmp_path / "totals"
    folder.mkdir()
    (folder / "a.txt").write_text(DARSHAN.format(job=7))
    (folder / "b.txt").write_text(DARSHAN.format(job=7))
    (folder / "c.txt").write_text(DARSHAN.format(job=9))
    found = read_io(folder).moved
    assert found[9] == Moved(4500.0, pytest.approx(8.4 / 4))
    assert found[7] == Moved(9000.0, pytest.approx(2 * 8.4 / 4))  # Two programs of one job.
    assert read_io(folder / "c.txt").moved == {9: found[9]}


def test_a_table_of_io_is_read(tmp_path: Path) -> None:
    (tmp_path / "x.io.csv").write_text("job,bytes_read,bytes_written,io_time_s,phases\n4,10,20,3,2\n5,0,0,0,1\n")
    assert read_io(tmp_path / "x.io.csv").moved == {4: Moved(30.0, 3.0, 2), 5: Moved(0.0, 0.0, 1)}


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("x.csv", "time,bytes\n1,2\n", "x.csv:1: .*expected a table with the columns job, bytes_read, .*or a folder of texts of darshan"),
        ("x.csv", "job,bytes_read,bytes_written,io_time_s\n1,2,3,inf\n", "io_time_s"),
        ("x.csv", "job,bytes_read,bytes_written,io_time_s\n1,-2,3,4\n", "bytes_read"),
        ("x.csv", "job,bytes_read,bytes_written,io_time_s\n1,2,3,4\n1,2,3,4\n", "job"),
        ("x.csv", "job,bytes_read,bytes_written,io_time_s,phases\n1,2,3,4,9999999\n", "phases"),
        ("x.txt", "# a comment\n", 'found no line "# jobid:"'),
        ("x.txt", DARSHAN.format(job=7).replace("nprocs: 4", "nprocs: 0"), "found 0 processes"),
        ("x.txt", DARSHAN.format(job="seven"), r'x.txt:4: jobid: found "seven"'),
        ("x.txt", "# jobid: 1\n# nprocs: 1\n", "found no total_POSIX_"),
        ("x.darshan", "a\0b", "binary Darshan log; expected the text that darshan-parser --total prints"),
    ],
)
def test_bad_io_ends_in_one_line(tmp_path: Path, name: str, text: str, said: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=said) as error:
        read_io(tmp_path / name)
    assert "\n" not in str(error.value)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="empty folder"):
        read_io(tmp_path / "empty")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"capacity_gb": "0"}, "--capacity-gb"),
        ({"io": ""}, "--capacity-gb without --io"),
        ({"io_load": "0.4"}, "--io-load"),
        ({"io": "no-such-file"}, "no such file"),
        ({"knowledge": "all"}, "--knowledge"),
        ({"nodes": "4"}, "expected at most the machine's 4"),
        ({"zone": "Mars/Base"}, "time zone"),
        ({"faster": "0"}, "--faster"),
        ({"io": "", "capacity_gb": "0", "io_load": "0.9"}, "fills a file system to at most|links"),
    ],
)
def test_a_bad_option_is_refused(tmp_path: Path, options: dict[str, str], said: str) -> None:
    arena = catalogue.arena("scheduling/batch")
    path, good = arena.write_example(tmp_path)
    if options.get("zone"):
        (tmp_path / "log.swf").write_text("JobIDRaw|Submit|Start|End|Timelimit|NNodes|State\n")
    with pytest.raises(InputError, match=said):
        for case in arena.from_file(path, {**good, **options}):
            _ = case.at(0, 0).workload


def test_io_of_other_jobs_and_empty_logs_are_refused(tmp_path: Path) -> None:
    arena = catalogue.arena("scheduling/batch")
    path, good = arena.write_example(tmp_path)
    (tmp_path / "other.csv").write_text("job,bytes_read,bytes_written,io_time_s\n99999,1,2,3\n")
    with pytest.raises(InputError, match="none of which is in the log"):
        arena.from_file(path, {**good, "io": str(tmp_path / "other.csv")})
    (tmp_path / "none.swf").write_text("; Version: 2.2\n1 0 0 -1 4" + " -1" * 13 + "\n")
    with pytest.raises(InputError, match=r"found no job that ran \(1 job without"):
        arena.from_file(tmp_path / "none.swf")


def test_the_example_is_answered(tmp_path: Path) -> None:
    arena = catalogue.arena("scheduling/batch")
    path, options = arena.write_example(tmp_path)
    result = compare("scheduling/batch", work=path, options=options, store=tmp_path / "s.db")
    assert "has the shortest mean turnaround on log.swf" in result.answer()
    slowdown = result.on("log.swf", "io_slowdown")
    assert slowdown["equilibrio-eager"] < slowdown["easy"]
    rows = result.artifact_rows("equilibrio", "log.swf", "frontier")
    assert [row["policy"] for row in rows] == ["equilibrio"] * 6 + ["bandwidth-license", "peak-license"]


def test_a_log_without_io_may_be_given_built_in_io(tmp_path: Path) -> None:
    arena = catalogue.arena("scheduling/batch")
    path, _ = arena.write_example(tmp_path)
    (plain,) = arena.from_file(path, {"first": "100", "faster": "2"})
    assert plain.at(0, 0).workload.volume.sum() == 0
    assert len(plain.at(0, 0).workload) == 100
    (tidal,) = arena.from_file(path, {"io_load": "0.1", "knowledge": "quarter-heaviest"})
    work = tidal.at(0, 0).workload
    assert work.load == pytest.approx(0.1)
    assert (work.told_duty > 0).sum() == 30


def test_cases_have_the_kinds_that_claims_name() -> None:
    arena = catalogue.arena("scheduling/batch")
    cases = arena.built_in("small")
    assert len(cases) == 28
    for kind in ("calm", "tidal", "storm", "history", "quarter-random", "quarter-heaviest", "false", "misfit"):
        assert sum(kind in case.kinds for case in cases) == 4, kind
    assert len(arena.telling_cases("small") or []) == 7
    assert {case.parameters["machine"] for case in arena.built_in("large")} == {"hpc-4096"}


@pytest.mark.shared_data
def test_the_nasa_log_is_read_and_replayed(shared_data: Path) -> None:
    arena = catalogue.arena("scheduling/batch")
    (case,) = arena.from_file(shared_data / "swf" / "NASA-iPSC-1993-3.1-cln.swf.gz")
    work = case.at(0, 0).workload
    assert (len(work), work.jobs.machine_nodes, work.jobs.waits_known) == (18_239, 128, False)
    outcome = arena.execute(arena.make("fcfs"), case.at(0, 0))
    assert outcome.values["fairness"] == 1.0
    with pytest.raises(InputError, match="binary Darshan log"):
        arena.from_file(shared_data / "swf" / "NASA-iPSC-1993-3.1-cln.swf.gz", {"io": str(shared_data / "darshan"), "capacity_gb": "1"})


def test_policies_that_do_not_differ_have_no_winner(tmp_path: Path) -> None:
    """Jobs that never wait have the same turnaround whatever the policy is."""
    log = tmp_path / "calm.swf"
    log.write_text("".join(f"{i} {1000 * i} -1 100 1 -1 -1 1 200 -1 1 1 1 1 1 1 -1 -1\n" for i in range(1, 6)))
    result = compare("scheduling/batch", work=log, repeats=1, store=tmp_path / "s.db")
    assert result.answer() == "The policies hardly differ in mean turnaround. I/O hardly contends."
