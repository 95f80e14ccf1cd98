"""Logs are read from text and binary files, and what is wrong with one is said in one line."""

from __future__ import annotations

import bz2
import dataclasses
import gzip
import os
import struct
import tracemalloc
import zlib
from pathlib import Path
from random import Random

import numpy as np
import pytest
from darshan_logs import EXAMPLES, INPUT, MACSIO, alone, header, row, shipped_file, synthetic

from armillary.errors import InputError
from armillary.observability.io import Log, diagnose, read_log, write_binary_log, write_text_log
from armillary.observability.io.logs.header import PACKINGS
from armillary.observability.io.logs.log import Segments
from armillary.observability.io.logs.modules import NUMBERS
from armillary.observability.io.logs.text import read_text_log
from armillary.observability.io.logs.unpacking import MOST_EMPTY
from armillary.observability.io.workload import shipped
from armillary.testing.fuzzing import damaged_bytes


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "job.txt"
    path.write_text(text)
    return path


def test_counters_of_a_text_log_become_records(tmp_path):
    text = header(extra=["# metadata: h = romio_no_indep_rw=true", "# POSIX module: 99 bytes (compressed), ver=4"])
    text += (
        row("POSIX_READS", 5) + row("POSIX_F_READ_TIME", "1.250000") + row("POSIX_READS", 7, rank=1) + row("STDIO_OPENS", 1, -1, "STDIO")
    )
    log = read_log(written(tmp_path, text))
    assert (log.version, log.processes, log.run_time_s, log.executable, log.job) == ("3.41", 4, 12.5, "./app", "7")
    assert log.metadata == {"h": "romio_no_indep_rw=true"}
    posix = log.modules["POSIX"]
    assert posix.ranks.tolist() == [0, 1]
    assert posix.counters["POSIX_READS"].tolist() == [5, 7]
    assert posix.counters["POSIX_F_READ_TIME"].tolist() == [1.25, 0.0]
    assert posix.version == 4
    assert log.totals["POSIX_READS"] == 12
    table = log.records("POSIX")
    assert table["file"].to_list() == ["/scratch/a", "/scratch/a"]
    assert table["file_system"].to_list() == ["lustre", "lustre"]
    assert log.modules["STDIO"].ranks.tolist() == [-1]


def test_minus_one_was_not_monitored_and_negative_times_count_as_nothing(tmp_path):
    log = read_log(written(tmp_path, header() + row("POSIX_MMAPS", -1) + row("POSIX_F_WRITE_TIME", "-3.5") + row("POSIX_READS", 1, 1)))
    posix = log.modules["POSIX"]
    assert posix.counters["POSIX_MMAPS"].tolist() == [-1, -1]
    assert posix.amount("POSIX_MMAPS").tolist() == [0, 0]
    assert log.totals["POSIX_F_WRITE_TIME"] == 0


def test_both_generations_of_stripes_are_read(tmp_path):
    old = "".join(
        row(f"LUSTRE_{name}", value, -1, "LUSTRE", 42)
        for name, value in [("STRIPE_SIZE", 1048576), ("STRIPE_WIDTH", 2), ("OST_ID_1", 9), ("OST_ID_0", 4)]
    )
    new = "".join(
        row(f"LUSTRE_COMP{i}_{name}", value, -1, "LUSTRE", 43)
        for i, name, value in [
            (1, "STRIPE_SIZE", 65536),
            (1, "STRIPE_COUNT", 1),
            (1, "STRIPE_PATTERN", "raid0"),
            (1, "OST_ID_0", 3),
            (2, "STRIPE_SIZE", 1 << 20),
            (2, "OST_ID_0", 5),
        ]
    )
    stripes = read_log(written(tmp_path, header() + row("LUSTRE_NUM_COMPONENTS", 2, -1, "LUSTRE", 43) + old + new)).stripes
    assert stripes is not None
    found = {(int(stripes.ids[i]), int(stripes.component[i])): (int(stripes.size[i]), stripes.of(i).tolist()) for i in range(len(stripes))}
    assert found == {(42, 1): (1048576, [4, 9]), (43, 1): (65536, [3]), (43, 2): (1048576, [5])}


def test_traced_requests_are_read_from_text(tmp_path):
    text = header() + "# DXT, file_id: 18446744073709551615, file_name: /scratch/a\n# DXT, rank: 1, hostname: n1\n"
    text += " X_POSIX       1  write        0        4096     100      0.5000      0.7500  [ 14]\n"
    text += " X_POSIX       1   read        0           0      50      1.0000      1.2500  [ 14] [  3]  77\n"
    text += "# DXT, file_id: 5, file_name: /scratch/b\n X_MPIIO 0 read 0 7 8 1.0 2.0 N/A\n"
    log = read_log(written(tmp_path, text))
    posix = log.segments["DXT_POSIX"]
    assert posix.ids.tolist() == [(1 << 64) - 1] * 2
    assert posix.wrote.tolist() == [True, False]
    assert posix.offset.tolist() == [4096, 0]
    assert posix.end_s.tolist() == [0.75, 1.25]
    assert log.dxt()["file"].to_list() == ["/scratch/a", "/scratch/a", "/scratch/b"]


def test_a_partial_module_and_modules_that_are_left_are_named(tmp_path):
    extra = ["# *WARNING*: The POSIX module contains incomplete data!", "# APMPI module: 5 bytes (compressed), ver=1"]
    log = read_log(written(tmp_path, header(extra=extra) + row("POSIX_READS", 1)))
    assert log.partial == ("POSIX",)
    assert log.modules["POSIX"].partial
    assert log.left == ("APMPI",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (header() + row("POSIX_READS", 1 << 63), "job.txt:8: POSIX_READS: found \"9223372036854775808\"; expected a whole number below 2⁶³"),
        (header() + row("POSIX_READS", "x"), 'found "x"'),
        (header() + row("POSIX_F_READ_TIME", "nan"), 'POSIX_F_READ_TIME: found "nan"; expected seconds'),
        (header() + row("POSIX_READS", 1, number=1 << 64), "id: found"),
        (header() + "POSIX\t0\t1\tPOSIX_READS\n", "job.txt:8: found 4 fields; expected 8 fields"),
        (header() + row("POSIX_READS", 1, rank=4), "job.txt:8: found the rank 4 of 4 processes; expected -1 to 3"),
        (header() + row("POSIX_READS", 1) + row("POSIX_READS", 2), "job.txt:9: found a counter of one record twice"),
        (header() + row("LUSTRE_COMP99_STRIPE_SIZE", 1, -1, "LUSTRE"), "job.txt:8: found component 99"),
        (header() + row("LUSTRE_STRIPE_SIZE", "big", -1, "LUSTRE"), 'LUSTRE_STRIPE_SIZE: found "big"'),
        (header() + " X_POSIX 0 write 0 0 4 1.0 2.0\n", "job.txt:8: found a traced request before any file"),
        (header() + "# DXT, file_id: 5, file_name: b\n X_POSIX 0 write 0 0 x 1.0 2.0\n", "job.txt:9: found"),
        (header() + "# DXT, file_id: 5, file_name: b\n X_POSIX 9 write 0 0 4 1.0 2.0\n", "job.txt:9: found the rank 9 of 4 processes"),
        (header().replace("3.41", "9.99"), 'job.txt:1: found the log version "9.99"; expected one of 3.00'),
        (header().replace("nprocs: 4", "nprocs: 0"), "nprocs"),
        (header().replace("# nprocs: 4\n", ""), 'found no line "# nprocs:"'),
        (header().replace("run time: 12.5", "run time: -1"), "run time"),
        ("hello\n", "found no Darshan log"),
        ("", "found no Darshan log"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_text_log_is_said_with_its_line(tmp_path, text, message):
    with pytest.raises(InputError) as raised:
        read_log(written(tmp_path, text))
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_more_records_than_are_wanted_are_refused(tmp_path):
    path = written(tmp_path, header(100) + "".join(row("POSIX_READS", 1, rank=i) for i in range(11)))
    assert len(read_text_log(path, most_records=11).modules["POSIX"]) == 11
    with pytest.raises(InputError, match="more than 10 records"):
        read_text_log(path, most_records=10)


def same(a: Log, b: Log, tolerance: float) -> None:
    for name, module in a.modules.items():
        other = b.modules[name]
        order, place = np.lexsort((module.ranks, module.ids)), np.lexsort((other.ranks, other.ids))
        assert np.array_equal(module.ids[order], other.ids[place])
        assert np.array_equal(module.ranks[order], other.ranks[place])
        for counter, values in module.counters.items():
            assert other.column(counter)[place] == pytest.approx(values[order], abs=tolerance, rel=0), counter
    if a.stripes is not None:
        assert b.stripes is not None
        for field in ("ids", "size", "begin", "osts"):
            assert np.array_equal(getattr(a.stripes, field), getattr(b.stripes, field)), field


def test_a_log_that_is_written_as_text_is_read_back(tmp_path):
    log, _ = synthetic("one-stripe", ranks=16)
    path = tmp_path / "job.txt"
    write_text_log(log, path)
    same(log, read_log(path), 6e-7)
    packed = tmp_path / "job.txt.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    same(log, read_log(packed), 6e-7)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize(("packing", "threads"), [*((one, False) for one in PACKINGS), (PACKINGS[0], True)])
def test_a_log_that_is_written_as_binary_is_read_back(tmp_path, order, packing, threads):
    log = traced()
    path = tmp_path / "job.darshan"
    write_binary_log(log, path, order=order, packing=packing, threads=threads)
    found = read_log(path)
    same(log, found, 0.0)
    assert (found.processes, found.executable, found.mounts) == (log.processes, log.executable, tuple(log.mounts))
    assert found.run_time_s == pytest.approx(log.run_time_s, abs=1e-6)
    assert found.metadata == log.metadata
    assert {found.file(int(number)) for number in found.modules["POSIX"].ids} == set(log.names.values())
    mine, theirs = found.segments["DXT_POSIX"], log.segments["DXT_POSIX"]
    order_of = np.lexsort((np.arange(len(theirs)), ~theirs.wrote, theirs.ranks, theirs.ids))
    for name in ("ids", "ranks", "wrote", "offset", "length", "start_s", "end_s"):
        assert np.array_equal(getattr(mine, name), getattr(theirs, name)[order_of]), name


def test_a_packed_binary_log_is_read(tmp_path):
    log, path = alone("one-stripe", 16), tmp_path / "job.darshan.gz"
    write_binary_log(log, tmp_path / "job.darshan")
    path.write_bytes(gzip.compress((tmp_path / "job.darshan").read_bytes()))
    same(log, read_log(path), 0.0)


def test_darshans_library_reads_what_is_written_as_a_binary_log(tmp_path):
    darshan = pytest.importorskip("darshan")
    log = traced()
    path = tmp_path / "job.darshan"
    write_binary_log(log, path)
    with darshan.DarshanReport(str(path), read_all=True) as report:
        assert report.metadata["job"]["nprocs"] == log.processes
        tables = report.records["POSIX"].to_df()
        requests = sum(len(one["write_segments"]) + len(one["read_segments"]) for one in report.records["DXT_POSIX"].to_df())
    assert requests == len(log.segments["DXT_POSIX"])
    order = np.lexsort((tables["counters"]["rank"], tables["counters"]["id"].astype(np.uint64)))
    posix = log.modules["POSIX"]
    mine = np.lexsort((posix.ranks, posix.ids))
    for kind in ("counters", "fcounters"):
        for name in tables[kind].columns[2:]:
            assert tables[kind][name].to_numpy()[order] == pytest.approx(posix.column(name)[mine], rel=0, abs=0), name


def real_logs() -> list[Path]:
    """Every binary log at hand: those of the package darshan."""
    folder = shipped()
    return [] if folder is None else sorted(folder.rglob("*.darshan"))


@pytest.mark.parametrize("path", real_logs(), ids=lambda path: f"{path.parent.name}-{path.stem[-40:]}")
def test_the_reader_agrees_with_darshans_library_on_every_real_log(path):
    """Module by module, counter by counter, and every traced request."""
    darshan = pytest.importorskip("darshan")
    log = read_log(path)
    with darshan.DarshanReport(str(path), read_all=False) as report:
        assert set(report.modules) == {*log.modules, *log.segments, *log.left, *(["LUSTRE"] if log.stripes is not None else [])}
        assert report.metadata["job"]["nprocs"] == log.processes
        for name, module in log.modules.items():
            report.mod_read_all_records(name)
            tables = report.records[name].to_df()
            theirs = np.lexsort((tables["counters"]["rank"], tables["counters"]["id"].astype(np.uint64)))
            mine = np.lexsort((module.ranks, module.ids))
            assert len(theirs) == len(mine)
            for kind in ("counters", "fcounters"):
                for counter in tables[kind].columns[2:]:
                    assert counter in module.counters
                    values = tables[kind][counter].to_numpy()[theirs]
                    # The library sets the variances of old logs to 0, which were computed in another way.
                    assert np.array_equal(values, module.column(counter)[mine]) or ("VARIANCE" in counter and not values.any()), counter
        for name, part in log.segments.items():
            report.mod_read_all_dxt_records(name)
            found = {True: [], False: []}  # type: dict[bool, list[tuple[int, ...]]]
            for record in report.records[name].to_df():
                for wrote, key in ((True, "write_segments"), (False, "read_segments")):
                    table = record[key]
                    if len(table):
                        found[wrote] += [
                            (record["id"], record["rank"], *row) for row in table[["offset", "length"]].itertuples(index=False)
                        ]
            for wrote, rows in found.items():
                mine = part.wrote == wrote
                ours = zip(*(column[mine].tolist() for column in (part.ids, part.ranks, part.offset, part.length)))
                assert sorted(ours) == sorted((int(a), int(b), int(c), int(d)) for a, b, c, d in rows)


@pytest.mark.parametrize("name", [f"{EXAMPLES}/ior_hdf5_example.darshan", MACSIO, f"{INPUT}/sample-goodost.darshan"])
def test_text_and_binary_readers_give_the_same_records(tmp_path, name):
    log = read_log(shipped_file(name))
    path = tmp_path / "job.txt"
    write_text_log(log, path)
    again = read_log(path)
    same(log, again, 6e-7)
    for module, part in log.segments.items():
        for field in ("ids", "ranks", "wrote", "offset", "length"):
            assert np.array_equal(getattr(part, field), getattr(again.segments[module], field))


def test_darshans_own_report_gives_the_same_totals():
    darshan = pytest.importorskip("darshan")
    path = shipped_file(MACSIO)
    with darshan.DarshanReport(str(path), read_all=True) as report:
        table = report.records["POSIX"].to_df()["counters"]
        expected = {
            name: float(table[name].clip(lower=0).sum()) for name in ("POSIX_WRITES", "POSIX_BYTES_WRITTEN", "POSIX_FILE_NOT_ALIGNED")
        }
    log = read_log(path)
    assert {name: log.totals[name] for name in expected} == expected


@pytest.fixture
def binary_log(tmp_path: Path) -> Path:
    path = tmp_path / "job.darshan"
    write_binary_log(traced(), path)
    return path


def traced() -> Log:
    """A log with counters, stripes and traced requests."""
    log = alone("one-stripe", 16)
    ids = np.array(sorted(log.names), np.uint64)
    n = 40
    draw = np.random.default_rng(2)
    begin = np.arange(n, dtype=float)
    part = Segments(
        "DXT_POSIX", draw.choice(ids, n), draw.integers(0, 16, n), draw.random(n) < 0.5, draw.integers(0, 1 << 40, n),
        draw.integers(0, 1 << 20, n), begin, begin + 0.5,
    )  # fmt: skip
    return dataclasses.replace(log, segments={"DXT_POSIX": part})


def test_a_truncated_binary_log_names_the_byte(binary_log):
    whole = binary_log.read_bytes()
    for length in (20, 100, 1400, len(whole) - 1):
        binary_log.write_bytes(whole[:length])
        with pytest.raises(InputError, match=rf"found {length:,} bytes; expected") as raised:
            read_log(binary_log)
        assert "\n" not in str(raised.value)
    binary_log.write_bytes(b"9.99" + whole[4:])
    with pytest.raises(InputError, match=r'log version "9\.99"'):
        read_log(binary_log)


def test_too_many_records_or_requests_of_a_binary_log_are_refused(binary_log):
    held = sum(map(len, read_log(binary_log).modules.values()))
    with pytest.raises(InputError, match=r"found more than|found more records"):
        read_log(binary_log, most_records=held)  # The stripes and the traced requests have records, too.
    with pytest.raises(InputError, match="found more than 39 traced requests"):
        read_log(binary_log, most_segments=39)
    assert len(read_log(binary_log, most_segments=40).segments["DXT_POSIX"]) == 40


def part_of(whole: bytes, number: int) -> tuple[int, int]:
    """(offset, bytes) of a module in a log of version 3.41; the names of files have the number -1."""
    at = 48 + 16 * number
    return struct.unpack_from("<QQ", whole, at)  # type: ignore[return-value]


def with_part(whole: bytes, number: int, part: bytes) -> bytes:
    """The log with a module's bytes replaced by others, which stand at its end."""
    made = bytearray(whole)
    struct.pack_into("<QQ", made, 48 + 16 * number, len(whole), len(part))
    return bytes(made) + part


NAMES, POSIX, LUSTRE, DXT = -1, NUMBERS.index("POSIX"), NUMBERS.index("LUSTRE"), NUMBERS.index("DXT_POSIX")


@pytest.mark.parametrize(
    ("number", "at", "value", "message"),
    [
        (LUSTRE, 16, 1 << 62, "components"), (LUSTRE, 24, 1 << 62, "stripes of a file"), (LUSTRE, 16, -1, "components"),
        (LUSTRE, 24, 19_999, "ends"), (LUSTRE, 16, 64, "ends"), (LUSTRE, 8, 16, "the rank 16 of 16"), (POSIX, 8, 16, "the rank 16 of 16"),
        (POSIX, 8, -2, "the rank -2 of 16"), (DXT, 88, 1 << 62, "traced requests"), (DXT, 96, -1, "found"), (DXT, 8, 99, "of rank 99"),
        (DXT, 88, 50, "ends|expected"), (DXT, 104, -5, "negative offset"), (DXT, 112, -5, "negative offset or length"),
        (DXT, 120, 0x7FF0 << 48, "a time that is no number"),
    ],
)  # fmt: skip
def test_numbers_that_lie_inside_the_packed_parts_are_refused(binary_log, number, at, value, message):
    """The packing is right after the damage, so that the reader meets wild counts, ranks and lengths."""
    whole = binary_log.read_bytes()
    begin, length = part_of(whole, number)
    inside = bytearray(zlib.decompress(whole[begin : begin + length]))
    inside[at : at + 8] = (value & ((1 << 64) - 1)).to_bytes(8, "little")
    binary_log.write_bytes(with_part(whole, number, zlib.compress(bytes(inside))))
    with pytest.raises(InputError, match=message) as raised:
        read_log(binary_log)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("number", [NAMES, POSIX, LUSTRE, DXT])
def test_a_part_that_ends_early_or_holds_too_little_is_refused(binary_log, number):
    whole = binary_log.read_bytes()
    begin, length = part_of(whole, number)
    inside = zlib.decompress(whole[begin : begin + length])
    for part in (zlib.compress(inside[:-3]), zlib.compress(inside)[:-6], b"\0" * 50):
        binary_log.write_bytes(with_part(whole, number, part))
        with pytest.raises(InputError) as raised:
            read_log(binary_log)
        assert "\n" not in str(raised.value)


def test_a_header_that_points_outside_or_into_itself_is_refused(binary_log):
    whole = binary_log.read_bytes()
    for offset, length in ((1 << 63, 10), ((1 << 64) - 1, (1 << 64) - 1), (100, 50), (len(whole) - 5, 6)):
        made = bytearray(whole)
        struct.pack_into("<QQ", made, 48 + 16 * POSIX, offset, length)
        binary_log.write_bytes(bytes(made))
        with pytest.raises(InputError, match="expected"):
            read_log(binary_log)


@pytest.mark.parametrize(
    ("number", "pack"),
    [(POSIX, zlib.compress), (POSIX, bz2.compress), *(pytest.param(one, zlib.compress, marks=pytest.mark.slow) for one in (NAMES, DXT))],
)
def test_a_dense_part_is_refused_before_it_takes_memory(binary_log, number, pack):
    """120 MiB of zeros in 120 KiB, and for bzip2 in 100 bytes."""
    log, packing = traced(), 1 if pack is bz2.compress else 0
    write_binary_log(log, binary_log, packing=packing)
    binary_log.write_bytes(with_part(binary_log.read_bytes(), number, pack(bytes(120 << 20))))
    tracemalloc.start()
    try:
        with pytest.raises(InputError):
            read_log(binary_log, most_records=1000)
        assert tracemalloc.get_traced_memory()[1] < 100 << 20
    finally:
        tracemalloc.stop()


def test_a_part_of_nothing_but_empty_streams_is_refused(binary_log):
    part = zlib.compress(b"") * (MOST_EMPTY + 1)
    binary_log.write_bytes(with_part(binary_log.read_bytes(), POSIX, part))
    with pytest.raises(InputError, match="empty streams"):
        read_log(binary_log)


def test_damaged_binary_logs_are_read_or_refused(binary_log):
    """Two hundred damaged files; in half of them the damage is inside a packed part."""
    whole, random = binary_log.read_bytes(), Random(11)
    refused = 0
    for i in range(200):
        if i % 2:
            number = random.choice([NAMES, POSIX, LUSTRE, DXT])
            begin, length = part_of(whole, number)
            inside = damaged_bytes(zlib.decompress(whole[begin : begin + length]), random)
            binary_log.write_bytes(with_part(whole, number, zlib.compress(inside, 1)))
        else:
            binary_log.write_bytes(damaged_bytes(whole, random))
        said = refusal(binary_log)
        refused += bool(said)
        assert "\n" not in said
    assert 50 < refused < 200


def refusal(path: Path) -> str:
    """What is said of a log that cannot be read; nothing where it can be read and diagnosed."""
    try:
        assert diagnose(read_log(path)).markdown()
    except InputError as error:
        return str(error)
    return ""


def test_a_fifo_is_never_waited_for(tmp_path):
    os.mkfifo(tmp_path / "job.darshan")
    with pytest.raises(InputError, match="found a FIFO"):
        read_log(tmp_path / "job.darshan")
