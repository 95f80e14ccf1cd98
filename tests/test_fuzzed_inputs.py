"""Bad inputs: two hundred by hand, each of which is exit status 2 and one line; damaged examples for every reader; mutants for decoders."""

from __future__ import annotations

import gzip
import random
import struct
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fuzzed_decoders import DECODERS, decoder_attempts

from armillary import catalogue, cli
from armillary.extras import MissingPackage
from armillary.testing.fuzzing import reader_attempts, tally

Make = Callable[[Path], list[str]]
EVICTION = ["compare", "storage/eviction", "--techniques", "lru", "--repeats", "1", "-q", "--work"]


def trace(name: str, content: bytes, *options: str) -> Make:
    def make(folder: Path) -> list[str]:
        (folder / name).write_bytes(content)
        return [*EVICTION, name, *options]

    return make


def described(content: str, command: str = "check") -> Make:
    def make(folder: Path) -> list[str]:
        (folder / "my.toml").write_text(content)
        return ["cluster", command, "my.toml"]

    return make


def typed(*arguments: str) -> Make:
    return lambda folder: list(arguments)


def record(time: int = 1, key: int = 7, size: int = 100, following: int = -1) -> bytes:
    return struct.pack("<IQIq", time, key, size, following)


def bad_inputs() -> Iterator[tuple[str, Make]]:
    rng = random.Random(20251)
    good = b"time,object,size\n" + b"".join(b"%d,o%d,%d\n" % (i, i % 7, 100 + i) for i in range(50))
    whole = b"".join(record(i, i % 7) for i in range(50))
    for i in range(16):  # truncated
        cut = 24 * rng.randrange(50) + rng.randrange(1, 24)
        yield f"record-file-cut-{i}", trace("t.oracleGeneral.bin", whole[:cut])
        packed = gzip.compress(good * 200, mtime=0)
        yield f"gzip-cut-{i}", trace("t.csv.gz", packed[: rng.randrange(1, len(packed) - 9)])
    for i in range(32):  # binary where text belongs
        noise = bytes(rng.randrange(256) for _ in range(rng.randrange(40, 400))) + b"\x00\x01\xff\n"
        yield f"binary-{i}", trace(("t.csv", "t.txt", "t.csv.gz", "t.csv.zst")[i % 4], noise)
    for i in range(36):  # wrong columns
        rows = good.splitlines()
        at = rng.randrange(1, len(rows))
        rows[at] = rng.choice([b"1", b"1,", b",,", b"1,,5", b"1,o,-5", b"1,o,five", b"1,o,1e400"])
        yield f"row-{i}", trace("t.csv", b"\n".join(rows), "--columns", "time=0,id=1,size=2", "--count", "bytes")
    for i, columns in enumerate(
        ("id=9", "id=-1", "id", "=1", "id=1,id=2", "weight=1", "id=nobody", "time=0", ",", "id=1;size=2", "id=\x1b[31m", "id=1e9")
    ):
        yield f"columns-{i}", trace("t.csv", good, "--columns", columns)
    numbers = ("NaN", "nan", "inf", "-inf", "1e308", "99999999999999999999999999", "-7", "0x10", "1_000", "½", "", " ", "1 2", "--5", "1;5")
    for i, number in enumerate(numbers):
        rows = f"time,object,size\n1,a,5\n2,b,{number}\n"
        yield f"size-{i}", trace("t.csv", rows.encode(), "--columns", "id=1,size=2", "--count", "bytes", "--sizes", number or "none")
    for i, sizes in enumerate(("nan", "inf", "-1", "0", "many", "[[]]", "{}", "1e999", "0.1,-0.1", "0.1;0.2")):
        yield f"cache-size-{i}", trace("t.csv", good, "--sizes", sizes)
    for i, option in enumerate((("--format", "cdc6600"), ("--block", "0"), ("--block", "-4096"), ("--block", "x"), ("--delimiter", "ab"), ("--header", "perhaps"),
                                ("--count", "atoms"), ("--sizes", ""), ("--block", "1e30"), ("--delimiter", "\n"))):  # fmt: skip
        yield f"option-{i}", trace("t.csv", good, *option)
    for key in (2**63 - 1,):
        yield "record-size", trace("t.oracleGeneral.bin", record(key=key, size=5)[:-1])
    yield "directory", lambda folder: [*EVICTION, str(folder)]
    yield "device", lambda folder: [*EVICTION, "/dev/zero"]
    yield "empty", trace("t.csv", b"")
    yield "long-line", trace("t.csv", b"time,object,size\n1," + b"x" * 200_000 + b",3\n", "--columns", "id=1")
    yield "twitter-op", trace("t.csv", b"0,k,1,1,1,get,0\n1,k,1,1,1,steal,0\n", "--format", "twitter")

    base = 'armillary = 1\nname = "x"\n[[group]]\nname = "g"\ncount = 2\n[group.node]\n[[group.node.socket]]\ncores = 4\n'
    wrong = [
        'extends = "my.toml"\n' + base, 'extends = "./my.toml"\n', 'extends = "no-such-preset"\n', base.replace("= 1\n", "= 2\n", 1), base.replace("count = 2", "count = 0"),
        base.replace("count = 2", "count = 1e99"), base.replace("count = 2", "count = nan"), base.replace("count = 2", 'count = "two"'), base + "clock = 3\n" + "[x]\n",
        base.replace("cores", "coers"), base + 'tdp = "350 kg"\n', base + 'tdp = "350"\n', base + 'flops = { fp64 = "3 gb/s" }\n', base[:-20], base + "\x00", "= = =", "[" * 5000,
        "a = " + "[" * 5000, 'a = "' + "x" * 100_000, base + '[network.n]\ntopology = "moebius"\n', base + '[network.n]\ntopology = "torus"\ndims = [0, 0]\n',
        base + '[network.n]\ntopology = "torus"\ndims = [99999999, 99999999]\nrate = "1 GB/s"\n', base + '[network.n]\ntopology = "dragonfly"\ngroups = -1\n', base + 'numa = 3\n',
        base + '[[group.node.nic]]\ncount = 2\nrate = "400 gb/s"\nnetwork = "n"\n', base + '[[group.node.nic]]\nrate = "400 Gb/s"\nnetwork = "absent"\n',
    ]  # fmt: skip
    for i, text in enumerate(wrong):
        yield f"cluster-{i}", described(text)
    for i, text in enumerate(wrong[2:8]):
        yield f"cluster-show-{i}", described(text, "show")

    names = (
        "../../etc/passwd",
        "lru;rm -rf ~",
        "$(id)",
        "__import__('os')",
        "lru\x00",
        "\x1b]0;x\x07",
        "🦀",
        "a" * 5000,
        "{}",
        "%s%n",
        "lru,,sieve!",
        "<b>",
        "-",
        "LRU",
        "lru|{}",
    )
    for i, name in enumerate(names):
        yield f"technique-{i}", typed("compare", "storage/eviction", "--techniques", name, "--repeats", "1")
        yield f"show-{i}", typed("show", "--", name)
    for i, setting in enumerate(("=", ".=", "lru", "lru.x", "lru.x=1", "fifo-mep.points=2,1", "fifo-mep.points=0", "fifo-mep.points=nan", "fifo-mep.cap=99999", "nobody.x=1",
                                 "fifo-mep.points=[0.1", "fifo-mep.reinsert=nowhere", "fifo-mep.ghost=-1")):  # fmt: skip
        yield f"set-{i}", typed("compare", "storage/eviction", "--techniques", "lru,fifo-mep", "--set", setting)


INPUTS = dict(bad_inputs())


def test_there_are_two_hundred() -> None:
    assert len(INPUTS) >= 200


@pytest.mark.parametrize("name", INPUTS)
def test_one_line_and_exit_status_2(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = INPUTS[name](tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    monkeypatch.setattr(sys, "argv", ["armillary", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    out = capsys.readouterr()
    lines = [line for line in out.err.splitlines() if "left out" not in line]
    assert ended.value.code == 2, (arguments[-3:], out.out[-300:], lines)
    assert lines
    assert len(lines) == 1 or arguments[:2] == ["cluster", "check"], lines
    assert all(line.isprintable() and len(line) < 1000 for line in lines), lines
    assert "Traceback" not in out.err
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


READERS = [path for path, arena in catalogue.arenas().items() if arena._reading is not None]
DAMAGED = 500


@pytest.mark.parametrize("path", READERS)
def test_a_damaged_file_is_read_or_refused(path: str) -> None:
    """`tests/fuzz_readers` does the same ten thousand times, with bounds checked in compiled loops."""
    assert tally(reader_attempts(catalogue.arena(path), -(-DAMAGED // len(READERS)))).faults == []


MUTANTS = 20


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", DECODERS)
def test_a_mutant_with_right_checksums_is_decoded_or_refused(name: str) -> None:
    """`tests/fuzz_decoders` does the same twenty thousand times, with bounds checked in compiled loops."""
    try:
        found = tally(decoder_attempts(name, MUTANTS))
    except (MissingPackage, ImportError) as missing:
        pytest.skip(str(missing))
    assert found.faults == []
    assert found.refused
