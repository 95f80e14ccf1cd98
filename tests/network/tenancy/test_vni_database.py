"""The database of VNIs against a dictionary, faults at every statement, kills, and several writers."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tenancy_objects import Clock, Faulty

from armillary.errors import InputError
from armillary.network.tenancy import InUse, NoFreeVni, NoSuchClaim, VniDatabase, VniService
from armillary.network.tenancy.service.clock import SteadyClock
from armillary.network.tenancy.service.database import Taken
from armillary.network.tenancy.service.published import PublishedDatabase
from armillary.testing.fuzzing import damaged_bytes


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_the_same_owner_gets_the_same_vni(clock: Clock) -> None:
    with VniDatabase(":memory:", clock=clock) as base:
        assert base.acquire("a", "n") == 100
        assert base.acquire("a", "n") == 100
        assert base.acquire("a", "m") == 101, "the owner of another namespace is another owner"
        assert [entry[1] for entry in base.log()] == ["acquire", "acquire"]


def test_all_numbers_are_given_once_and_then_there_is_none(clock: Clock) -> None:
    with VniDatabase(":memory:", clock=clock) as base:
        with base.together():
            given = {base.acquire(f"o{i}", "n") for i in range(65436)}
        assert given == set(range(100, 65536))
        with pytest.raises(NoFreeVni, match="no VNI is free"):
            base.acquire("one more", "n")
        base.check()


def test_a_released_vni_rests_for_a_minute(clock: Clock) -> None:
    with VniDatabase(":memory:", low=100, high=100, clock=clock) as base:
        base.acquire("a", "n")
        assert base.release("a", "n")
        assert base.free() == (0, 1)
        clock.now += 59.9
        with pytest.raises(NoFreeVni) as caught:
            base.acquire("b", "n")
        assert caught.value.wait_s == pytest.approx(0.1)
        clock.now += 0.1
        assert base.acquire("b", "n") == 100
        assert not base.release("a", "n"), "it has none any more"


def test_the_vni_that_rested_longest_comes_first(clock: Clock) -> None:
    with VniDatabase(":memory:", low=100, high=102, clock=clock) as base:
        for owner in "abc":
            base.acquire(owner, "n")
        for owner in "bca":
            base.release(owner, "n")
            clock.now += 1
        clock.now += 100
        assert [base.acquire(owner, "n") for owner in "xyz"] == [101, 102, 100]


def test_a_claim_lives_as_long_as_its_users(clock: Clock) -> None:
    with VniDatabase(":memory:", clock=clock) as base:
        vni = base.acquire("mesh", "n", kind="claim", uid="c")
        assert base.join("mesh", "n", "job-1") == vni == base.join("mesh", "n", "job-1")
        before = base._connection.serialize()
        with pytest.raises(InUse):
            base.release("mesh", "n")
        with pytest.raises(InUse):
            base.end("n", "c", "claim")
        assert base._connection.serialize() == before, "not even the time of the last release changes"
        assert base.users("mesh", "n") == ["job-1"]
        assert base.leave("mesh", "n", "job-1")
        assert not base.leave("mesh", "n", "job-1")
        assert base.release("mesh", "n")
        assert base.free() == (65435, 1)
        with pytest.raises(NoSuchClaim):
            base.join("mesh", "n", "job-2")


def test_only_claims_can_be_joined_and_names_have_one_owner(clock: Clock) -> None:
    with VniDatabase(":memory:", clock=clock) as base:
        base.acquire("vni-1", "n", uid="1")
        with pytest.raises(NoSuchClaim):
            base.join("vni-1", "n", "2")
        with pytest.raises(Taken):
            base.acquire("vni-1", "n", kind="claim", uid="1")
        with pytest.raises(Taken):
            base.acquire("vni-1", "n", uid="2")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"low": 0}, "found the VNI 0; expected a whole number from 1 to 65535"),
        ({"high": 65536}, "found the VNI 65536"),
        ({"low": True}, "found the VNI True"),
        ({"low": 200, "high": 100}, "range: found 200 to 100; expected a range that begins before it ends"),
        ({"quarantine_s": -1}, "found -1 s"),
        ({"quarantine_s": float("nan")}, "found nan s"),
    ],
)
def test_bad_settings_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        VniDatabase(":memory:", **options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("owner", ["", "a\nb", "x" * 301, 7, None])
def test_bad_names_are_refused(owner: Any) -> None:
    with VniDatabase(":memory:") as base, pytest.raises(InputError, match="expected a name"):
        base.acquire(owner, "n")


def test_other_files_are_refused(tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    with contextlib.closing(sqlite3.connect(other)) as made:
        made.execute("CREATE TABLE allocation (vni)")
    before = other.read_bytes()
    with pytest.raises(InputError, match="another kind of database"):
        VniDatabase(other)
    assert other.read_bytes()[100:] == before[100:]
    (tmp_path / "text.db").write_text("no database at all, but a text of some length")
    with pytest.raises(InputError, match=r"text\.db"):
        VniDatabase(tmp_path / "text.db")
    with pytest.raises(InputError, match="no-such-folder"):
        VniDatabase(tmp_path / "no-such-folder" / "vni.db")
    with VniDatabase(tmp_path / "good.db") as base:
        base._connection.execute("CREATE TRIGGER t AFTER INSERT ON log BEGIN DELETE FROM user; END")
    with pytest.raises(InputError, match="another kind of database"):
        VniDatabase(tmp_path / "good.db")


@pytest.mark.parametrize(
    "damage",
    ["UPDATE allocation SET vni = 70000", "UPDATE free SET vni = -1 WHERE vni = 105", "INSERT INTO free VALUES (0.0, 100)", "INSERT INTO setting VALUES ('x', 1)",
     "UPDATE setting SET value = 1e300", "PRAGMA user_version = 9", "PRAGMA application_id = 9", "ALTER TABLE log ADD COLUMN x TEXT"],
)  # fmt: skip
def test_a_damaged_file_is_refused(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "vni.db"
    with VniDatabase(path, low=100, high=109) as base:
        base.acquire("a", "n")
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute(damage)
    with pytest.raises(InputError, match=r"vni\.db: (found|is no)"):
        VniDatabase(path, low=100, high=110)


def test_damaged_bytes_are_refused_or_do_no_harm(tmp_path: Path) -> None:
    path, copy = tmp_path / "vni.db", tmp_path / "copy.db"
    with VniDatabase(path, low=100, high=160) as base:
        for i in range(20):
            base.acquire(f"o{i}", "n")
        base._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    data, refused = path.read_bytes(), 0
    for number in range(40):
        for name in ("copy.db", "copy.db-wal", "copy.db-shm"):
            (tmp_path / name).unlink(missing_ok=True)
        copy.write_bytes(damaged_bytes(data, random.Random(number)))
        try:
            with VniDatabase(copy, low=100, high=160, durable=False) as found:
                with contextlib.suppress(NoFreeVni):
                    assert 100 <= found.acquire("new", "n") <= 160
                found.release("o1", "n")
        except InputError:
            refused += 1
    assert refused > 10


def test_a_range_may_grow_and_shrink(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "vni.db"
    with VniDatabase(path, low=100, high=103, clock=clock) as base:
        assert [base.acquire(owner, "n") for owner in "abcd"] == [100, 101, 102, 103]
    with VniDatabase(path, low=101, high=105, clock=clock) as base:
        base.check()
        assert base.vni_of("a", "n") == 100, "what is allocated stays"
        base.release("a", "n")
        assert base.free() == (2, 0), "and does not come back outside the range"
        base.check()
    with VniDatabase(path, low=100, high=103, clock=clock) as base:
        assert base.free() == (1, 0)
        base.check()


def test_the_clock_never_goes_back_and_the_wall_clock_does_not_hurry_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    with VniDatabase(tmp_path / "vni.db", low=100, high=100, clock=clock) as base:
        base.acquire("a", "n")
        base.release("a", "n")
        clock.now -= 3600
        with pytest.raises(NoFreeVni) as caught:
            base.acquire("b", "n")
        assert caught.value.wait_s == 60
    steady = SteadyClock(latest=5e9)
    assert 5e9 <= steady() < 5e9 + 10, "it goes on from the latest time that was written down"
    steady = SteadyClock()
    monkeypatch.setattr(time, "time", lambda: 9e9)
    assert steady() < 8e9, "a step of the wall clock does not end a rest"


@pytest.mark.parametrize("made", [VniDatabase, PublishedDatabase])
def test_the_published_search_gives_out_under_the_same_rules(made: Callable[..., VniDatabase], clock: Clock) -> None:
    with made(":memory:", low=100, high=104, clock=clock) as base:
        assert [base.acquire(owner, "n") for owner in "abcde"] == [100, 101, 102, 103, 104]
        with pytest.raises(NoFreeVni):
            base.acquire("f", "n")
        base.release("c", "n")
        assert base.free() == (0, 1)
        with pytest.raises(NoFreeVni):
            base.acquire("f", "n")
        clock.now += 61
        assert base.acquire("f", "n") == 102


class Model(RuleBasedStateMachine):
    """The database and a dictionary are asked the same."""

    owners = st.sampled_from(["a", "b", "c"])
    claims = st.sampled_from(["k", "l"])
    namespaces = st.sampled_from(["n", "m"])
    users = st.sampled_from(["u", "v"])

    @initialize(size=st.integers(1, 6), rest=st.sampled_from([0.0, 10.0, 60.0]))
    def begin(self, size: int, rest: float) -> None:
        self.clock = Clock()
        self.rest, self.low, self.high = rest, 100, 99 + size
        self.base = VniDatabase(":memory:", low=self.low, high=self.high, quarantine_s=rest, clock=self.clock)
        self.held: dict[tuple[str, str], tuple[int, str]] = {}
        self.use: dict[tuple[str, str], set[str]] = {}
        self.ready = dict.fromkeys(range(self.low, self.high + 1), 0.0)

    def _acquire(self, owner: str, namespace: str, kind: Any) -> None:
        key = (namespace, owner)
        ready = [vni for vni, since in self.ready.items() if since <= self.clock.now]
        if key in self.held:
            assert self.base.acquire(owner, namespace, kind=kind) == self.held[key][0]
        elif not ready:
            with pytest.raises(NoFreeVni):
                self.base.acquire(owner, namespace, kind=kind)
        else:
            vni = self.base.acquire(owner, namespace, kind=kind)
            assert vni in ready
            assert self.ready.pop(vni) <= min(self.ready.values(), default=1e99), "the one that rested longest"
            self.held[key] = (vni, kind)
            self.use[key] = set()

    @rule(owner=owners, namespace=namespaces)
    def acquire(self, owner: str, namespace: str) -> None:
        self._acquire(owner, namespace, "job")

    @rule(claim=claims, namespace=namespaces)
    def make_claim(self, claim: str, namespace: str) -> None:
        self._acquire(claim, namespace, "claim")

    @rule(owner=owners | claims, namespace=namespaces)
    def release(self, owner: str, namespace: str) -> None:
        key = (namespace, owner)
        if self.use.get(key):
            with pytest.raises(InUse):
                self.base.release(owner, namespace)
        else:
            assert self.base.release(owner, namespace) == (key in self.held)
            if key in self.held:
                self.ready[self.held.pop(key)[0]] = self.clock.now + self.rest

    @rule(claim=owners | claims, namespace=namespaces, user=users)
    def join(self, claim: str, namespace: str, user: str) -> None:
        key = (namespace, claim)
        if self.held.get(key, (0, ""))[1] == "claim":
            assert self.base.join(claim, namespace, user) == self.held[key][0]
            self.use[key].add(user)
        else:
            with pytest.raises(NoSuchClaim):
                self.base.join(claim, namespace, user)

    @rule(claim=claims, namespace=namespaces, user=users)
    def leave(self, claim: str, namespace: str, user: str) -> None:
        key = (namespace, claim)
        there = key in self.held and user in self.use[key]
        assert self.base.leave(claim, namespace, user) == there
        if there:
            self.use[key].remove(user)

    @rule(seconds=st.sampled_from([0.0, 1.0, 9.9, 10.0, 59.0, 61.0, -5.0]))
    def pass_time(self, seconds: float) -> None:
        self.clock.now = max(self.clock.now, self.clock.now + seconds)

    @precondition(lambda self: hasattr(self, "base"))
    @invariant()
    def same(self) -> None:
        assert {(a.namespace, a.owner): (a.vni, a.kind) for a in self.base.allocations()} == self.held
        for (namespace, owner), users in self.use.items():
            if (namespace, owner) in self.held:
                assert self.base.users(owner, namespace) == sorted(users)
        ready = sum(since <= self.clock.now for since in self.ready.values())
        assert self.base.free() == (ready, len(self.ready) - ready)
        self.base.check()

    def teardown(self) -> None:
        if hasattr(self, "base"):
            self.base.close()


Model.TestCase.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)
TestModel = Model.TestCase


# Faults

STEPS: list[tuple[str, Callable[[VniDatabase], object]]] = [
    ("acquire", lambda base: base.acquire("vni-1", "n", uid="1")),
    ("claim", lambda base: base.acquire("mesh", "n", kind="claim", uid="c")),
    ("join", lambda base: base.join("mesh", "n", "1")),
    ("again", lambda base: base.acquire("vni-1", "n", uid="1")),
    ("end of the job", lambda base: base.end("n", "1")),
    ("end of the claim", lambda base: base.end("n", "c", "claim")),
]


def state(base: VniDatabase) -> Any:
    """All that lasts."""
    tables = ("free", "allocation", "user", "log", "setting")
    return {name: base._all(f"SELECT * FROM {name} ORDER BY 1, 2") for name in tables}


def reference() -> list[Any]:
    """The state before the first step and after each."""
    with VniDatabase(":memory:", low=100, high=109, clock=Clock()) as base:
        found = [state(base)]
        for _, step in STEPS:
            step(base)
            found.append(state(base))
    return found


def statements() -> int:
    """How many statements the steps and the opening take."""
    Faulty.statements, Faulty.fail_at, Faulty.die_at = 0, None, None
    with Faulty(":memory:", low=100, high=109, clock=Clock()) as base:
        for _, step in STEPS:
            step(base)
    return Faulty.statements


def test_a_statement_that_fails_undoes_its_transition_and_no_other() -> None:
    known, at_opening = reference(), 0
    for number in range(1, statements() + 1):
        Faulty.statements, Faulty.fail_at, Faulty.die_at = 0, number, None
        try:
            base = Faulty(":memory:", low=100, high=109, clock=Clock())
        except InputError:
            at_opening += 1
            continue
        with base:
            for done, (_, step) in enumerate(STEPS, 1):
                try:
                    step(base)
                except sqlite3.OperationalError:
                    assert state(base) == known[done - 1], "the transition has left something behind"
                    step(base)
                assert state(base) == known[done]
            base.check()
    assert at_opening > 3
    assert number - at_opening > 20, "every statement of the steps has failed once"


def opening() -> int:
    """How many of these make the file."""
    Faulty.statements, Faulty.fail_at, Faulty.die_at = 0, None, None
    Faulty(":memory:", low=100, high=109, clock=Clock()).close()
    return Faulty.statements


def test_a_process_that_is_killed_before_any_statement_of_a_transition_loses_nothing(tmp_path: Path) -> None:
    assert killed_at(range(opening() + 1, statements() + 1), tmp_path) > 30


@pytest.mark.slow
def test_a_process_that_is_killed_while_it_makes_the_file_leaves_one_that_can_be_used(tmp_path: Path) -> None:
    assert killed_at(range(1, opening() + 1), tmp_path) > 8


def killed_at(numbers: Iterable[int], folder: Path) -> int:
    """Kills a process before each of these statements, looks at what it left, and goes on with it; how many were killed."""
    known, killed = reference(), 0
    for number in numbers:
        path, told = folder / f"{number}.db", folder / f"{number}.done"
        child = os.fork()
        if child == 0:  # dies before statement `number`, by SIGKILL
            try:
                Faulty.statements, Faulty.fail_at, Faulty.die_at = 0, None, number
                base = Faulty(path, low=100, high=109, clock=Clock(), durable=False)
                for place, (_, step) in enumerate(STEPS, 1):
                    step(base)
                    told.write_text(str(place))
            finally:
                os._exit(1)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status)
        assert os.WTERMSIG(status) == signal.SIGKILL
        killed += 1
        done = int(told.read_text()) if told.exists() else 0
        with VniDatabase(path, low=100, high=109, clock=Clock(), durable=False) as found:
            found.check()
            # The one that was under way may have been committed just before the end, and what was answered is there.
            assert state(found) in known[done : done + 2]
            for _, step in STEPS[done:]:
                step(found)
            assert state(found)["allocation"] == []
            assert len(state(found)["free"]) == 10
    return killed


_WRITER = """
import sys
from armillary.network.tenancy import VniDatabase
base = VniDatabase(sys.argv[1], durable=sys.argv[4] == "1")
for i in range(int(sys.argv[3])):
    print(f"{sys.argv[2]}-{i}", base.acquire(f"{sys.argv[2]}-{i}", "n"), flush=True)
"""


def writer(path: Path, name: str, many: int, durable: int = 0) -> subprocess.Popen[str]:
    """A process that acquires, and prints what it was given after each commit."""
    return subprocess.Popen([sys.executable, "-c", _WRITER, str(path), name, str(many), str(durable)], stdout=subprocess.PIPE, text=True)


def test_what_was_answered_before_a_kill_is_there_afterwards(tmp_path: Path) -> None:
    for turn in range(2):
        path = tmp_path / f"{turn}.db"
        process = writer(path, "w", 100_000, durable=turn % 2)
        assert process.stdout is not None
        told = [process.stdout.readline() for _ in range(random.Random(turn).randrange(20, 200))]
        process.kill()
        told += [line for line in process.stdout.read().splitlines(keepends=True) if line.endswith("\n")]
        process.wait()
        process.stdout.close()
        with VniDatabase(path) as base:
            base.check()
            for line in told:
                owner, vni = line.split()
                assert base.vni_of(owner, "n") == int(vni)
            assert len(base.allocations()) - len(told) in (0, 1)


def test_two_processes_never_give_out_one_number_twice(tmp_path: Path) -> None:
    path = tmp_path / "vni.db"
    VniDatabase(path).close()
    processes = [writer(path, name, 1000) for name in ("a", "b")]
    given = [line.split() for process in processes for line in process.communicate()[0].splitlines()]
    assert len(given) == 2000
    assert len({vni for _, vni in given}) == 2000
    with VniDatabase(path) as base:
        base.check()
        assert {a.owner: str(a.vni) for a in base.allocations()} == dict(given)


def test_requests_that_share_a_commit_fail_apart(tmp_path: Path) -> None:
    with VniService(tmp_path / "vni.db", low=100, high=101) as service:
        base = service.database
        with base.together():
            assert base.acquire("a", "n") == 100
            assert base.acquire("b", "n") == 101
            with pytest.raises(NoFreeVni):
                base.acquire("c", "n")
            base.release("a", "n")
        assert [a.owner for a in base.allocations()] == ["b"]
        with pytest.raises(ZeroDivisionError), base.together():
            base.release("b", "n")
            raise ZeroDivisionError
        assert [a.owner for a in base.allocations()] == ["b"], "what was not committed has not happened"
        base.check()


def test_threads_share_one_database(tmp_path: Path) -> None:
    with VniDatabase(tmp_path / "vni.db", durable=False) as base:
        threads = [
            threading.Thread(target=lambda name=name: [base.acquire(f"{name}-{i % 50}", "n") for i in range(100)]) for name in "abcd"
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(base.allocations()) == 200
        base.check()


def test_the_log_is_bounded(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    monkeypatch.setattr("armillary.network.tenancy.service.database.LOG_ROWS", 10)
    with VniDatabase(":memory:", clock=clock) as base:
        for i in range(50):
            base.acquire(str(i), "n")
        assert len(base.log()) <= 11
        assert base.log()[-1][3] == "49"
