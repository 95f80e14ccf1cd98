"""Saved maps and journals: whole or refused, and nothing acknowledged is lost when the process is killed."""

from __future__ import annotations

import io
import json
import os
import random
import signal
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from armillary.errors import InputError
from armillary.storage.keyvalue import DurableMap, SimdMap

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
#: A writer whose every change follows from its number: inserts, overwrites, deletes and snapshots, each acknowledged on stdout.
WRITER = """
import sys
import numpy as np
from armillary.storage.keyvalue import DurableMap

def change(number):
    rng = np.random.default_rng(number)
    keys = rng.integers(-2, 300, rng.integers(1, 40))
    return number % 3 == 2, keys, np.full(len(keys), number)

if __name__ == "__main__":
    folder, first = sys.argv[1], int(sys.argv[2])
    index = DurableMap(folder)
    for number in range(first, first + 100_000):
        deletes, keys, values = change(number)
        index.delete_many(keys) if deletes else index.insert_many(keys, values)
        sys.stdout.write(f"{number}\\n")
        sys.stdout.flush()
        if number % 7 == 0:
            index.snapshot()
"""

#: Dies at the n-th call that reaches the operating system, for n = 0, 1, 2 …; prints what was acknowledged and whether it lived.
STEPS = """
import os, signal, sys
import numpy as np
from armillary.storage.keyvalue import DurableMap

folder = sys.argv[1]
warm = DurableMap(os.path.join(folder, "warm")); warm.insert_many([1], [1]); warm.delete_many([1]); warm.snapshot(); warm.close()

def child(step, where, out):
    left = [step]
    def dying(name):
        real = getattr(os, name)
        def call(*args, **kwargs):
            if left[0] == 0:
                if name == "pwrite" and len(args[1]) > 3:
                    real(args[0], args[1][: len(args[1]) // 2], args[2])
                os.kill(os.getpid(), signal.SIGKILL)
            left[0] -= 1
            return real(*args, **kwargs)
        setattr(os, name, call)
    for name in ("pwrite", "fsync", "replace", "ftruncate", "open", "unlink"):
        dying(name)
    index = DurableMap(where)
    for number in range(4):
        index.insert_many([number, 50], [10 + number, number])
        os.write(out, bytes([number]))
        if number in (1, 2):
            index.snapshot()
    index.delete_many([0])
    os.write(out, b"d")
    os._exit(0)

for step in range(400):
    where = os.path.join(folder, str(step))
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        child(step, where, write)
    os.close(write)
    told = b""
    while piece := os.read(read, 100):
        told += piece
    os.close(read)
    _, status = os.waitpid(pid, 0)
    print(step, told.hex() or "-", int(os.WIFSIGNALED(status)), flush=True)
    if not os.WIFSIGNALED(status):
        break
"""


def apply(model: dict[int, int], change: Any, number: int) -> None:
    deletes, keys, values = change(number)
    for key, value in zip(keys.tolist(), values.tolist()):
        if deletes:
            model.pop(key, None)
        else:
            model[key] = value


def content(index: Any) -> dict[int, int]:
    keys, values = index.map.items()
    return dict(zip(keys.tolist(), values.tolist()))


@pytest.mark.slow
def test_nothing_acknowledged_is_lost_when_the_writer_is_killed(tmp_path: Path) -> None:
    names: dict[str, Any] = {"__name__": "writer"}
    exec(WRITER, names)  # the same definition of a change in both processes
    change, model, first = names["change"], {}, 0  # type: ignore[var-annotated]
    dice = random.Random(5)
    script = tmp_path / "writer.py"
    script.write_text(WRITER)
    for _ in range(8):
        command = [sys.executable, str(script), str(tmp_path / "map"), str(first)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT) as writer:
            assert writer.stdout is not None
            # It runs ahead of us, so the kill falls anywhere in its work.
            acknowledged = [int(writer.stdout.readline()) for _ in range(dice.randrange(1, 120))]
            for _ in range(dice.randrange(20_000)):
                pass
            writer.send_signal(signal.SIGKILL)
            acknowledged += [int(line) for line in writer.stdout if line.endswith("\n")]
            assert writer.wait() == -signal.SIGKILL
        assert acknowledged == list(range(first, first + len(acknowledged)))
        for number in acknowledged:
            apply(model, change, number)
        after = dict(model)
        apply(after, change, first + len(acknowledged))
        with DurableMap(tmp_path / "map") as index:
            found = content(index)
            assert found in (model, after), "all that was acknowledged, and at most the one change under way"
        first += len(acknowledged) + (found == after and found != model)
        model = found
    assert first > 50


@pytest.mark.slow
def test_every_step_may_be_the_last(tmp_path: Path) -> None:
    script = tmp_path / "steps.py"
    script.write_text(STEPS)
    ran = subprocess.run([sys.executable, str(script), str(tmp_path)], capture_output=True, text=True, env=ENVIRONMENT, check=True)
    lines = [line.split() for line in ran.stdout.splitlines()]
    assert lines[-1][2] == "0", "the last child went through"
    assert len(lines) > 25
    states = [{}, {0: 10, 50: 0}, {0: 10, 1: 11, 50: 1}, {0: 10, 1: 11, 2: 12, 50: 2}, {0: 10, 1: 11, 2: 12, 3: 13, 50: 3}]
    states.append({key: value for key, value in states[4].items() if key})
    seen = set()
    for step, told, _ in lines:
        count = 0 if told == "-" else len(told) // 2
        with DurableMap(tmp_path / step) as index:
            found = content(index)
            assert found in states[count : count + 2], f"killed at call {step} after {count} acknowledgements"
            seen.add((count, found == states[count]))
            index.insert_many([77], [1])
        with DurableMap(tmp_path / step) as again:
            assert content(again) == found | {77: 1}
            assert sorted(path.name for path in (tmp_path / step).iterdir() if path.name.startswith((".", "journal"))) == [
                f"journal-{again.generation}.log"
            ]
    assert {count for count, _ in seen} == set(range(6))


def test_a_snapshot_bounds_the_journal(tmp_path: Path) -> None:
    with DurableMap(tmp_path, "uint32", "float64", journal_bytes=10_000) as index:
        for start in range(0, 5000, 500):
            index.insert_many(np.arange(start, start + 500, dtype=np.uint32), np.arange(500) / 2)
        assert index.generation >= 3
        assert (tmp_path / f"journal-{index.generation}.log").stat().st_size < 20_000
    with DurableMap(tmp_path, "uint32", "float64") as index:
        assert len(index) == 5000
        assert index.get_many(np.array([501], np.uint32))[0][0] == 0.5
        index.insert_many(np.array([9999], np.uint32), [1.0])
        assert index.contains_many(np.array([9999, 10_000], np.uint32)).tolist() == [True, False]


def test_one_process_at_a_time_and_the_same_types(tmp_path: Path) -> None:
    with DurableMap(tmp_path) as index:
        index.insert_many([5, 6])
        assert index.get_many([6])[0][0] == 1, "rows are numbered"
        with pytest.raises(InputError, match="another process"):
            DurableMap(tmp_path)
        index.snapshot()
    for dtype, said in (("uint32", "found a map of int64"), ("object", "unknown type")):
        with pytest.raises(InputError, match=said):
            DurableMap(tmp_path, dtype)
    with pytest.raises(InputError, match="closed"):
        index.insert_many([1])
    with DurableMap(tmp_path) as index:
        index.insert_many([7])
        assert index.get_many([7])[0][0] == 2, "and numbered on"


def test_damage_is_told_and_a_torn_end_is_cut(tmp_path: Path) -> None:
    with DurableMap(tmp_path) as index:
        index.insert_many([1], [1])
        index.insert_many([2], [2])
    journal = tmp_path / "journal-0.log"
    whole = journal.read_bytes()
    for cut in range(len(whole) - 31, len(whole)):
        journal.write_bytes(whole[:cut])
        with DurableMap(tmp_path) as index:
            assert content(index) == {1: 1}
    journal.write_bytes(whole + bytes(1000))
    with DurableMap(tmp_path) as index:
        assert content(index) == {1: 1, 2: 2}
    assert journal.stat().st_size == len(whole)
    for at in range(32, len(whole) - 32):
        journal.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        with pytest.raises(InputError):
            DurableMap(tmp_path)
    journal.write_bytes(b"ARMKVJNL" + bytes(100))
    with pytest.raises(InputError, match="header"):
        DurableMap(tmp_path)


def test_files_that_were_moved_about_are_not_guessed_at(tmp_path: Path) -> None:
    with DurableMap(tmp_path) as index:
        index.insert_many([1], [1])
        index.snapshot()
        index.insert_many([2], [2])
    for name, said in (("snapshot.npz", "later than"), ("journal-1.log", "no journal-1")):
        (tmp_path / name).rename(tmp_path / "away")
        with pytest.raises(InputError, match=said):
            DurableMap(tmp_path)
        (tmp_path / "away").rename(tmp_path / name)
    with DurableMap(tmp_path) as index:
        assert content(index) == {1: 1, 2: 2}


def test_a_full_disk_is_an_error_and_leaves_what_was_acknowledged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = DurableMap(tmp_path)
    index.insert_many([1], [1])
    real = os.pwrite

    def full(handle: int, data: bytes, at: int) -> int:
        real(handle, data[:5], at)
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(OSError, match="No space"):
            index.insert_many([2], [2])
    assert content(index) == {1: 1}
    with pytest.raises(OSError, match="open the map again"):
        index.insert_many([3], [3])
    index.close()
    with DurableMap(tmp_path) as index:
        assert content(index) == {1: 1}


@pytest.mark.parametrize("dtype", ["uint32", "int64", "float32"])
def test_save_and_load(tmp_path: Path, dtype: str) -> None:
    keys = np.concatenate([np.arange(3000), [-1, -2] if dtype == "int64" else []]).astype(dtype)
    index = SimdMap(keys, np.arange(len(keys), dtype=np.float32), load=0.97)
    index.delete_many(keys[::3])
    index.save(tmp_path / "map.npz")
    again = SimdMap.load(tmp_path / "map.npz")
    assert repr(again) == repr(index)
    assert again._state.tolist() == index._state.tolist()
    for mine, theirs in zip(again.get_many(keys, -1), index.get_many(keys, -1)):
        assert np.array_equal(mine, theirs)
    again.insert_many(keys, np.zeros(len(keys), np.float32))
    assert len(again) == len(keys)
    assert [path.name for path in tmp_path.iterdir()] == ["map.npz"]
    with np.load(tmp_path / "map.npz", allow_pickle=False) as plain:
        assert set(plain) == {"header", "keys", "values"}


def changed_is_refused(
    path: Path, said: str, *, header: dict[str, Any] | None = None, compress: bool = False, **arrays: np.ndarray
) -> None:
    """Saves a map, puts other entries into its header or other arrays into the file, and expects one line that says it."""
    SimdMap(np.arange(100)).save(path)
    with np.load(path) as plain:
        held = dict(plain)
    held["header"] = np.frombuffer(json.dumps({**json.loads(held["header"].tobytes()), **(header or {})}).encode(), np.uint8)
    (np.savez_compressed if compress else np.savez)(path, **{**held, **arrays})
    with pytest.raises(InputError) as error:
        SimdMap.load(path)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("header", "said"),
    [({"magic": "something"}, "no header of a saved map"), ({"version": 3}, "found version 3"), ({"keys": "object"}, "expected one of"),
     ({"values": "complex128"}, "expected one of"), ({"buckets": 10**9}, "elements"), *(({"buckets": b}, "buckets") for b in (2**40, 5.5, True)),
     ({"load": 7}, "load"), ({"primary": None}, "primary"), ({"sides": [1, 2]}, "sides"), ({"extra": {"a": "b"}}, "extra"), ({"rows": -1}, "rows")],
)  # fmt: skip
def test_a_saved_header_that_was_changed_is_refused(tmp_path: Path, header: dict[str, Any], said: str) -> None:
    changed_is_refused(tmp_path / "map.npz", said, header=header)


def test_saved_arrays_that_were_changed_are_refused(tmp_path: Path) -> None:
    changed_is_refused(tmp_path / "map.npz", "found 3 elements", keys=np.zeros(3, np.uint64))
    changed_is_refused(tmp_path / "map.npz", "found uint8", values=np.zeros(3, np.uint8))
    changed_is_refused(tmp_path / "map.npz", "compressed", compress=True)


def test_truncated_and_damaged_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "map.npz"
    SimdMap(np.arange(1000)).save(path)
    whole = path.read_bytes()
    for cut in (0, 10, 500, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:cut])
        with pytest.raises(InputError):
            SimdMap.load(path)
    for at in range(100, len(whole) - 400, 997):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])
        with pytest.raises(InputError):
            SimdMap.load(path)
    with pytest.raises(InputError, match="no such file"):
        SimdMap.load(tmp_path / "nothing.npz")
    pickled = io.BytesIO()
    np.save(pickled, np.array([{}], object), allow_pickle=True)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("header.npy", pickled.getvalue())
    with pytest.raises(InputError, match="found object"):
        SimdMap.load(path)


def test_a_failed_save_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "map.npz"
    SimdMap([1]).save(path)

    def fails(handle: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fails)
        with pytest.raises(OSError, match="Input/output"):
            SimdMap([1, 2]).save(path)
    assert len(SimdMap.load(path)) == 1
    assert [found.name for found in tmp_path.iterdir()] == ["map.npz"]


def test_what_is_written_is_flushed_before_it_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def noted(name: str) -> None:
        real = getattr(os, name)

        def call(*args: Any) -> Any:
            calls.append(name)
            return real(*args)

        monkeypatch.setattr(os, name, call)

    with DurableMap(tmp_path) as index:
        for name in ("pwrite", "fsync", "replace", "unlink"):
            noted(name)
        index.insert_many([1], [1])
        assert calls == ["pwrite", "fsync"]
        calls.clear()
        index.snapshot()
        # A new journal and its name, the snapshot, its new name, the folder, and only then the old journal.
        assert [name for name in calls if name != "unlink"] == ["pwrite", "fsync", "fsync", "fsync", "replace", "fsync"]
        assert calls[-1] == "unlink"
    with DurableMap(tmp_path, sync=False) as index:
        calls.clear()
        index.insert_many([2], [2])
        assert calls == ["pwrite"]


@pytest.mark.parametrize("name", ["lock", "journal-1.log", "snapshot.npz"])
@pytest.mark.parametrize("kind", ["link", "fifo", "second name"])
def test_links_and_special_files_in_the_folder_are_refused(tmp_path: Path, name: str, kind: str) -> None:
    """A map from a stranger must not write into, or cut, a file outside its folder, and a FIFO must not make it wait."""
    with DurableMap(tmp_path / "map", sync=False) as index:
        index.insert_many([1], [1])
        index.snapshot()
    part, outside = tmp_path / "map" / name, tmp_path / "outside"
    outside.write_bytes(b"precious")
    if kind == "second name":
        os.link(part, tmp_path / "another")
    else:
        part.unlink()
        os.mkfifo(part) if kind == "fifo" else part.symlink_to(outside)
    if (name, kind) == ("snapshot.npz", "second name"):
        DurableMap(tmp_path / "map").close()
        return
    with pytest.raises(InputError, match=r"regular file|second name"):
        DurableMap(tmp_path / "map")
    assert outside.read_bytes() == b"precious"
