"""After SIGKILL at any persisted write, of either end or of both, no version is lost, none is applied twice, and the trees are equal."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from directory_trees import STATE, contents, tree

from armillary.errors import InputError
from armillary.files.checksums import crc32c
from armillary.storage.synchronization.directories import Replica, Transport, converse, durable, store, sync

# Children are forked: what they need is loaded once, here.
crc32c(b"")


def prepare(folder: Path) -> tuple[Path, Path]:
    """Makes two directories that were in sync and were then changed on both sides in all ways."""
    a, b = folder / "a", folder / "b"
    shutil.rmtree(folder, ignore_errors=True)
    a.mkdir(parents=True)
    b.mkdir()
    for name in ("edit", "delete", "old", "clash", "swap"):
        (a / name).write_bytes(b"base " + name.encode())
    (a / "dir").mkdir()
    (a / "dir/x").write_bytes(b"inner")
    sync(a, b, durable=False)
    (a / "edit").write_bytes(b"edited")
    (a / "old").rename(a / "new")
    (b / "old").write_bytes(b"edited under the old name")
    (a / "clash").write_bytes(b"left")
    (b / "clash").write_bytes(b"right")
    # What is new is made before anything is removed, or it may get a removed file's number and pass for it under a new name.
    (b / "made").mkdir()
    (b / "made/in").write_bytes(b"now a directory")
    (a / "made").write_bytes(b"now a file")
    os.symlink("edit", b / "link")
    (b / "delete").unlink()
    (b / "swap").unlink()
    (b / "made").rename(b / "swap")
    shutil.rmtree(a / "dir")
    (a / "made").rename(a / "dir")
    return a, b


EXPECTED = sorted([b"edited", b"edited under the old name", b"left", b"right", b"now a directory", b"now a file"])


def killed_after(k: int) -> Callable[[], None]:
    left = [k]

    def count() -> None:
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    return count


def child(work: Callable[[], None], k: int) -> int:
    """Runs something in a process that is killed after its k-th persisted write, or never if k is 0; returns its id."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        if k:
            durable.after_write = killed_after(k)
        work()
        code = 0
    except InputError:
        code = 2
    finally:
        os._exit(code)


def wait(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def talk(root: Path, end: socket.socket) -> None:
    with Replica(root, durable=False) as replica:
        converse(replica, Transport(end.recv, end.sendall))


def exchange(a: Path, b: Path, victim: int, k: int) -> list[int]:
    """Runs two processes over a socket, of which `victim` is killed after its k-th persisted write; returns their exit statuses."""
    ends = socket.socketpair()

    def work(me: int) -> Callable[[], None]:
        def run() -> None:
            ends[1 - me].close()
            talk((a, b)[me], ends[me])

        return run

    pids = [child(work(me), k if me == victim else 0) for me in (0, 1)]
    for end in ends:
        end.close()
    return [wait(pid) for pid in pids]


def versions(root: Path) -> list[tuple[str, int, str]]:
    with Replica(root, durable=False) as replica:
        found = replica.store.rows("SELECT author, number, id FROM log ORDER BY author, number")
        for _, of_author in itertools.groupby(found, key=lambda row: row[0]):
            assert all(number == expected for expected, (_, number, _) in enumerate(of_author, 1))
        assert replica.store.rows("SELECT COUNT(*) FROM want") == [(0,)]
        return found


def check(a: Path, b: Path, count: int | None) -> int:
    """Resumes; then everything must be there once on both sides, with nothing left to do. Returns the number of different versions."""
    for _ in range(3):
        report = sync(a, b, durable=False)
    assert (report.to_left, report.to_right, report.transactions) == ((), (), 0)
    assert report.status == "conflict"
    assert tree(a) == tree(b)
    assert contents(a) == EXPECTED
    assert set(os.listdir(a)) - {report.conflicts[0], STATE} == {"edit", "new", "clash", "swap", "dir", "link"}
    left, right = versions(a), versions(b)
    assert left == right
    different = len({id for _, _, id in left})
    # There is one version for each thing a user did, and one merge; a crash makes no other.
    assert count is None or different == count
    for root in (a, b):
        assert os.listdir(root / STATE / "staging") == []
    return different


@pytest.fixture(autouse=True)
def small_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes what `prepare` does take at least three transactions."""
    monkeypatch.setattr(store, "BATCH", 3)


@pytest.mark.parametrize("step", [18, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("victim", [0, 1])
def test_either_end_is_killed_after_persisted_writes(tmp_path: Path, victim: int, step: int) -> None:
    """The slow one is killed after each of them."""
    a, b = prepare(tmp_path / "t")
    assert exchange(a, b, victim, 0) == [0, 0]
    with Replica(a, durable=False) as replica:
        assert replica.store.rows("SELECT n FROM links")[0][0] >= 4
    count = check(a, b, None)
    for k in itertools.count(1, step):
        a, b = prepare(tmp_path / "t")
        codes = exchange(a, b, victim, k)
        if codes[victim] == 0:
            break
        assert codes[victim] == -signal.SIGKILL, (k, codes)
        assert codes[1 - victim] in (0, 2), (k, codes)
        check(a, b, count)
    assert k > 30


@pytest.mark.slow
def test_both_ends_are_killed_after_each_persisted_write(tmp_path: Path) -> None:
    count = None
    for k in itertools.count(1):
        a, b = prepare(tmp_path / "t")
        code = wait(child(lambda a=a, b=b: sync(a, b, durable=False), k))  # type: ignore[misc]
        if code == 0:
            break
        assert code == -signal.SIGKILL
        # It is killed again on the way back, at a place that moves.
        wait(child(lambda a=a, b=b: sync(a, b, durable=False), 1 + k % 7))  # type: ignore[misc]
        count = check(a, b, count)
    assert k > 50


def test_a_kill_during_the_first_scan_leaves_nothing_half_done(tmp_path: Path) -> None:
    for k in range(1, 12):
        a, b = tmp_path / f"a{k}", tmp_path / f"b{k}"
        a.mkdir()
        b.mkdir()
        (a / "f").write_bytes(b"x")
        wait(child(lambda a=a, b=b: sync(a, b, durable=False), k))  # type: ignore[misc]
        assert sync(a, b, durable=False).status == "in sync"
        assert tree(a) == tree(b)
        assert contents(b) == [b"x"]
