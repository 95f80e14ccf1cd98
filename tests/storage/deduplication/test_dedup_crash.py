"""After SIGKILL at random moments of put, update and relocate, everything acknowledged is there and the store is whole."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import TextIO

import numpy as np
import pytest
from test_dedup_store import interleaved, numbered

from armillary.errors import InputError
from armillary.storage.deduplication import DedupStore


def content(seed: int) -> bytes:
    """The bytes that stand for `seed`, half of which are shared with other seeds."""
    own = np.random.default_rng(seed).bytes(6000 + seed % 5000)
    shared = np.random.default_rng(seed % 3).bytes(8192)
    return own + shared


def work_until_killed(folder: Path, work: str, chunker: str, seed: int, output: TextIO) -> None:
    """Puts, updates or relocates without end, and writes one line before each operation and one after it."""
    rng = np.random.default_rng(seed)
    with DedupStore(folder, chunker, 1024) as store:
        names = store.names()
        print("ready", file=output, flush=True)
        for step in range(10**6):
            name, value = str(rng.choice(names)), int(rng.integers(1 << 30))
            if work == "relocate":
                print("begin relocate", file=output, flush=True)
                store.relocate(0.5)
                store.update(name, 0, store.get(name, 0, 1))
                store.put(f"scratch-{step % 4}", content(value))
                continue
            print(f"begin {work} {name} {value}", file=output, flush=True)
            if work == "put":
                store.put(name, content(value))
            else:
                store.update(name, 1000, content(value))
            print(f"done {work} {name} {value}", file=output, flush=True)


def killed(folder: Path, work: str, chunker: str, seed: int, after_s: float, lines: int) -> list[str]:
    """What a worker process printed before it was killed, `after_s` seconds after its line number `lines`."""
    reading, writing = os.pipe()
    worker = os.fork()
    if not worker:
        try:
            os.close(reading)
            work_until_killed(folder, work, chunker, seed, os.fdopen(writing, "w"))
        finally:
            os._exit(1)
    os.close(writing)
    said = []
    with os.fdopen(reading) as output:
        for line in output:
            said.append(line.strip())
            if len(said) == lines:
                threading.Timer(after_s, os.kill, (worker, signal.SIGKILL)).start()
    assert os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1]) == -signal.SIGKILL, said[-3:]
    return said


@pytest.mark.parametrize("kills", [5, pytest.param(20, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("work", "chunker"), [("put", "fixed"), ("update", "fixed"), ("relocate", "fixed"), ("update", "fastcdc")])
def test_nothing_acknowledged_is_lost(tmp_path: Path, work: str, chunker: str, kills: int) -> None:
    rng = np.random.default_rng(len(work) + len(chunker))
    expected = {f"file-{i}": content(i) for i in range(6)}
    with DedupStore(tmp_path / "s", chunker, 1024) as store:
        interleaved(store, expected, 2048)
    for attempt in range(kills):
        said = killed(tmp_path / "s", work, chunker, attempt, float(rng.uniform(0, 0.05)), int(rng.integers(2, 20)))
        pending = None
        for line in said[1:]:
            what, *rest = line.split()
            if work == "relocate":
                continue
            name, value = rest[1], int(rest[2])
            new = content(value)
            after = new if work == "put" else expected[name][:1000] + new + expected[name][1000 + len(new) :]
            if what == "begin":
                pending = (name, after)
            else:
                expected[name], pending = after, None
        with DedupStore(tmp_path / "s", chunker, 1024) as store:
            assert store.verify().faults == ()
            for name in list(expected):
                found = store.get(name)
                if pending is not None and name == pending[0] and found == pending[1]:
                    expected[name] = found
                assert found == expected[name], name
            for name in store.names():
                store.get(name)


def test_a_promise_that_was_not_kept_is_kept_on_opening(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = DedupStore(tmp_path, "fixed", 1024)
    store.put("f", bytes(1024) + b"1" * 1024)
    monkeypatch.setattr("armillary.storage.deduplication.store.overwriting._Change.keep_promises", lambda change: None)
    store.update("f", 0, b"2" * 1024)
    # The transaction is over but the slot still holds the old bytes, so a reader finds the promise.
    assert store.get("f") == b"2" * 1024 + b"1" * 1024
    with DedupStore(tmp_path, "fixed", 1024, readonly=True) as reader:
        assert reader.get("f", 0, 2) == b"22"
    store.close()
    with DedupStore(tmp_path, "fixed", 1024) as again:
        assert again.index.promised() == []
        assert again.verify().clean
        assert again.get("f") == b"2" * 1024 + b"1" * 1024


def test_a_failed_copy_leaves_the_old_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = DedupStore(tmp_path, "fixed", 1024)
    interleaved(store, {"a": numbered(*range(8)), "b": numbered(*range(100, 108))})

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(store.containers, "write", full)
        with pytest.raises(OSError, match="space"):
            store.relocate(1.0)
    assert store.verify().clean
    assert store.relocate(1.0).runs_after == 2
    store.close()


def test_a_reader_in_another_process_sees_old_or_new(tmp_path: Path) -> None:
    old, new = b"o" * 5000, b"n" * 5000
    writer = DedupStore(tmp_path, "fixed", 1024, sync=False)
    writer.put("f", old)
    writer.put("g", np.random.default_rng(0).bytes(50_000))
    reader = DedupStore(tmp_path, "fixed", 1024, readonly=True)
    stop = threading.Event()

    def change() -> None:
        for i in range(60):
            writer.put("f", new if i % 2 == 0 else old)
            writer.update("g", 3000, np.random.default_rng(i).bytes(4000))
            writer.relocate(1.0)
        stop.set()

    thread = threading.Thread(target=change)
    thread.start()
    looks = 0
    while not stop.is_set():
        assert reader.get("f") in (old, new)
        assert len(reader.get("g")) == 50_000
        looks += 1
    thread.join()
    assert looks > 0
    writer.close()
    reader.close()


def test_two_writers_are_refused(tmp_path: Path) -> None:
    with DedupStore(tmp_path, "fixed", 1024), pytest.raises(InputError, match="alone"):
        DedupStore(tmp_path, "fixed", 1024)
    with DedupStore(tmp_path, "fixed", 1024):
        pass
