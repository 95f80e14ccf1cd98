"""Denum: every byte comes back, numbers go where their shape says, and a damaged archive is refused."""

from __future__ import annotations

import io
import lzma

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.compression.logs import denum, generate
from armillary.compression.logs.streams.numbers import from_varints, to_varints
from armillary.compression.logs.workload import KINDS
from armillary.errors import InputError
from armillary.streams import stream


@pytest.fixture(autouse=True)
def always_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small chunks would be stored as they stand, and test nothing."""
    monkeypatch.setattr(denum, "_SMALL_CHUNK", 0)
    monkeypatch.setattr(denum, "FEW", -1.0)


AWKWARD = [
    b"007", b"1.02.003", b"+5", b"-0", b"1e5", b"9" * 40, b"0" * 30, b"1.1.1.1", b"001.001.001.001", b"256.1.1.1", b"1.2.3.4.5", b"10.0.0.1:8080", b"10.0.0.1/24",
    b"23:59:59", b"23:60:00", b"99:00:00", b"1:2:3", b"2024-01-15", b"2024-01-15T10:11:12.345Z", b"0.5", b"00.5", b"12.", b".5", b"1.0000000001", b"3.14159",
    b"1700000000.123456", b"9223372036854775807", b"9223372036854775808", b"18446744073709551616", b"C4J4Th3PJpwUYZZ6gc", b"x1", b"1x", b"_7", b"\xc3\xa97",
    b"1-2-3-4-5-6-7-8", b"1//2", b"1--2", b"1:.2", b"\x01", b"\x01\x02", b"\x02", b"\x00", b"\r", b"", b" ", b"[", b"]", b"word", b"Word", b"=", b",",
]  # fmt: skip


def back(data: bytes) -> bytes:
    return denum.unpack(denum.pack(data))


def test_awkward_tokens_come_back_alone_and_together() -> None:
    for token in AWKWARD:
        for line in (token, token + b"\n", b"a " + token + b" b\n", token + b"\r\n", token + token + b"\n"):
            assert back(line) == line, line
    whole = b"\n".join(AWKWARD) + b" ".join(AWKWARD)
    assert back(whole) == whole
    assert back(b"") == b""
    assert back(b"\n\n") == b"\n\n"


SEPARATORS = [b"\n", b" ", b":", b".", b"-", b"/"]
PIECE = st.one_of(st.sampled_from([*AWKWARD, *SEPARATORS]), st.binary(max_size=5), st.integers(0, 10**20).map(lambda n: b"%d" % n))


@settings(max_examples=150, deadline=None)
@given(st.lists(PIECE, max_size=60))
def test_any_bytes_come_back(pieces: list[bytes]) -> None:
    data = b"".join(pieces)
    assert back(data) == data


def streams(data: bytes) -> dict[int, tuple[int, int, bytes]]:
    return denum._streams(data)[0]


def test_values_stand_in_the_stream_of_their_shape() -> None:
    found = streams(b"from 10.0.0.1 port 22 at 00:01:40 took 1.50 007\nfrom 10.0.0.2 port 443 at 00:01:41 took 2.25 008\n")
    assert found[denum.PATTERNS][1] == 1, "both lines are one pattern"

    def values(tag: int) -> list[int]:
        flags, items, raw = found[tag]
        out = np.empty(items, np.int64)
        assert from_varints(np.frombuffer(raw, np.uint8), bool(flags & 1), out) == len(raw)
        return out.tolist()

    assert values(0) == [22, 443]
    assert values(41) == [(10 << 24) + 1, (10 << 24) + 2]
    assert values(42) == [100, 101]
    assert values(21 + 2) == [150, 225]
    assert values(2 + 3) == [7, 8]
    assert found[42][0] == 1, "a rising stream is kept as differences"
    assert found[42][2] == bytes([200, 1, 2])


def test_timestamps_that_go_back_are_kept_as_they_are() -> None:
    falling = b"".join(b"%d\n" % (1_700_000_000 - 7 * i) for i in range(50))
    assert streams(falling)[1][0] == 0
    assert back(falling) == falling


def test_a_name_met_once_costs_a_zero() -> None:
    found = streams(b"".join(b"id a%db\n" % i for i in range(100)) + b"id a7b\n")
    _flags, items, raw = found[denum.VARIABLE_IDS]
    assert (items, raw[:100]) == (101, bytes(100))
    assert raw[100:] == bytes([16])


@settings(deadline=None)
@given(st.lists(st.integers(-(2**62), 2**62 - 1)), st.booleans())
def test_varints_come_back(values: list[int], differences: bool) -> None:
    numbers, out = np.array(values, np.int64), np.empty(10 * len(values) + 1, np.uint8)
    used = to_varints(numbers, differences, out)
    again = np.empty_like(numbers)
    assert from_varints(out[:used], differences, again) == used
    assert again.tolist() == values
    if used:
        assert from_varints(out[: used - 1], differences, again) == -1


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("backend", ["xz", "zstd"])
def test_generated_logs_come_back_and_beat_xz(name: str, backend: str) -> None:
    data, _ = generate(name, 120_000, stream(1, name))
    packed = denum.pack(data, backend=backend, level=6)
    assert denum.unpack(packed) == data
    if backend == "xz":
        assert len(packed) < len(lzma.compress(data, preset=6))


def test_chunks_end_at_lines_and_inside_a_line_that_is_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(denum, "LINES", 10)
    monkeypatch.setattr(denum, "MOST_CHUNK", 100)
    data = b"".join(b"a %d\n" % i for i in range(95)) + b"x1" * 200 + b"\nlast 5"
    pieces = list(denum._chunks(io.BytesIO(data)))
    assert b"".join(pieces) == data
    assert pieces[0] == b"".join(b"a %d\n" % i for i in range(10))
    assert max(map(len, pieces)) <= 100
    assert back(data) == data


def test_a_log_without_digits_is_no_larger_than_under_xz(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    words = b"alpha beta gamma delta omega index search media static assets image video".split()
    rng = stream(0, "words")
    text = b"".join(b" ".join(words[i] for i in row) + b"\n" for row in rng.integers(12, size=(3000, 7)))
    assert len(denum.pack(text)) <= 1.02 * len(lzma.compress(text, preset=6))
    letters = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz  \n", np.uint8)[rng.integers(29, size=100_000)].tobytes()
    assert len(denum.pack(letters)) <= 1.02 * len(lzma.compress(letters, preset=6))


def test_stats_name_the_streams(tmp_path) -> None:  # type: ignore[no-untyped-def]
    data, _ = generate("dns", 60_000, stream(1, "d"))
    (tmp_path / "log").write_bytes(data)
    denum.compress(tmp_path / "log", tmp_path / "log.dn")
    table = denum.stats(tmp_path / "log.dn")
    assert table.columns == ["stream", "items", "raw_bytes", "bytes"]
    assert {"patterns", "pattern ids", "variables"} <= set(table["stream"])
    assert 0.9 * (tmp_path / "log.dn").stat().st_size < table["bytes"].sum() < (tmp_path / "log.dn").stat().st_size
    denum.decompress(tmp_path / "log.dn", tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == data


def test_damage_anywhere_is_refused() -> None:
    data, _ = generate("access-log", 20_000, stream(1, "a"))
    rng = stream(1, "damage")
    whole = denum.pack(data)
    for place in rng.integers(len(whole), size=300).tolist():
        bad = bytearray(whole)
        bad[place] ^= 1 << int(rng.integers(8))
        with pytest.raises(InputError) as error:
            denum.unpack(bytes(bad))
        assert "\n" not in str(error.value)
    for size in rng.integers(len(whole), size=100).tolist():
        with pytest.raises(InputError):
            denum.unpack(whole[:size])
    for bad_end, says in ((whole + b"x", "behind"), (b"not an archive", "ARMDN1")):
        with pytest.raises(InputError, match=says):
            denum.unpack(bad_end)


@pytest.mark.parametrize(("backend", "level"), [("lzo", 1), ("xz", 10), ("zstd", 0)])
def test_a_backend_that_there_is_not(backend: str, level: int) -> None:
    with pytest.raises(InputError, match="expected xz"):
        denum.pack(b"x", backend=backend, level=level)
