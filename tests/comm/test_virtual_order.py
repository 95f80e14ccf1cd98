"""Simulated time decides, and nothing else: not the order in which ranks happen to run, not hashes, not how far a rank ran ahead."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import textwrap
from pathlib import Path

import comm_checks
import comm_programs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from virtual_programs import US, fingerprint, mixed, virtual

from armillary import comm
from armillary.comm import ANY_SOURCE, ANY_TAG, Aborted, Deadlock, Ghost, RankFailed, Truncated
from armillary.errors import InputError


@pytest.mark.parametrize(
    "options",
    [{}, {"constants": None, "cluster": "slingshot-200", "placement": [0, 0, 1, 1, 2]}, {"progress": "nic"}],
    ids=["loggp", "shared nics", "nic"],
)
def test_the_order_of_running_does_not_matter(options):
    plain = virtual(mixed, 1, ranks=5, timeline=True, **options)
    for shuffle in range(6):
        other = virtual(mixed, 1, ranks=5, timeline=True, shuffle=shuffle, **options)
        assert other.values == plain.values
        assert other.seconds == plain.seconds
        assert fingerprint(other.timeline) == fingerprint(plain.timeline)


def test_the_order_of_running_does_not_matter_for_flows():
    options = {"constants": None, "cluster": "infiniband-hdr100", "placement": [0, 0, 1, 1, 2], "model": "flow"}
    plain = virtual(mixed, 2, ranks=5, timeline=True, **options)
    for shuffle in range(4):
        other = virtual(mixed, 2, ranks=5, timeline=True, shuffle=shuffle, **options)
        assert other.values == plain.values
        assert fingerprint(other.timeline) == fingerprint(plain.timeline)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**20), st.integers(2, 6))
def test_any_program_of_these_is_the_same_shuffled(seed, ranks):
    assert virtual(mixed, seed, ranks=ranks, shuffle=seed).values == virtual(mixed, seed, ranks=ranks).values


def test_hash_seeds_do_not_matter():
    code = textwrap.dedent(
        """
        import sys
        sys.path.insert(0, sys.argv[1])
        from virtual_programs import fingerprint, mixed, virtual
        result = virtual(mixed, 3, ranks=4, timeline=True)
        print(result.values, result.seconds, fingerprint(result.timeline))
        """
    )
    command = [sys.executable, "-c", code, str(Path(__file__).parent)]
    runs = [subprocess.Popen(command, env={"PYTHONHASHSEED": seed, "PATH": ""}, stdout=subprocess.PIPE) for seed in ("0", "1", "4242")]
    seen = [run.communicate()[0] for run in runs]
    assert [run.returncode for run in runs] == [0, 0, 0]
    assert len(set(seen)) == 1


def test_wildcards_follow_arrival_and_not_the_order_of_running():
    """Rank 2 runs last and sends first; rank 0 asks at a time when only that one has come."""

    def program(c):
        got = np.empty(1, np.int64)
        if c.rank == 0:
            c.compute(4 * US)
            return [c.recv(got, ANY_SOURCE).source for _ in range(2)]
        c.compute(5 * US if c.rank == 1 else 0.0)
        c.send(np.array([c.rank]), 0)
        return None

    assert virtual(program, ranks=3)[0] == [2, 1]


def test_a_wildcard_before_a_named_receive_gets_the_first_message():
    """The named receive was posted ahead of the loop's time; the message that came first still goes to the earlier wildcard."""

    def program(c):
        if c.rank == 0:
            a, b = np.empty(1, np.int64), np.empty(1, np.int64)
            wild = c.irecv(a, ANY_SOURCE, 0)
            c.compute(20 * US)
            named = c.irecv(b, 1, 0)
            c.waitall([wild, named])
            return int(a[0]), int(b[0])
        c.send(np.array([10]), 0)
        c.send(np.array([11]), 0)
        return None

    assert virtual(program)[0] == (10, 11)


def test_a_probe_sees_only_what_has_arrived():
    def program(c):
        if c.rank:
            c.send(np.zeros(4), 0, 9)
            return None
        nothing = c.iprobe(1, 9)
        waits = c.probe(ANY_SOURCE, ANY_TAG)
        when = c.now()
        assert c.iprobe(1, 8) is None
        return nothing, tuple(waits), when, c.recv(np.empty(4), 1, 9).nbytes

    nothing, waits, when, nbytes = virtual(program)[0]
    assert nothing is None
    assert waits == (1, 9, 32)
    assert when == pytest.approx(0.3 * US + 32e-11 + US + 31e-10)
    assert nbytes == 32


def test_waiting_for_any_takes_the_first_to_arrive():
    def program(c):
        if c.rank:
            c.compute((3 - c.rank) * 50 * US)
            c.send(np.zeros(1), 0)
            return None
        requests = [c.irecv(np.empty(1), r) for r in (1, 2)]
        first, _ = c.waitany(requests)
        when = c.now()
        second, _ = c.waitany([requests[0]])
        return first, when, second

    first, when, second = virtual(program, ranks=3)[0]
    assert (first, second) == (1, 0)
    assert when == pytest.approx(50 * US + 0.3 * US + 16e-11 + US + 7e-10 + 0.2 * US)


@pytest.mark.parametrize(
    "options", [{}, {"constants": None}, {"constants": None, "cluster": "slingshot-200", "placement": [0, 1], "model": "flow"}]
)
def test_messages_do_not_overtake(options):
    assert virtual(comm_checks.messages_do_not_overtake, **options).unreceived == []


# Ends


def test_ranks_that_wait_for_each_other_are_named():
    with pytest.raises(Deadlock, match=r"rank 0: recv\(source=1, tag=7\); rank 1: recv\(source=ANY_SOURCE, tag=7\)"):
        virtual(lambda c: c.recv(np.empty(1), 1 if c.rank == 0 else ANY_SOURCE, 7))
    with pytest.raises(Deadlock, match=r"rank 0: send\(dest=1, tag=0, 1048576 bytes\); rank 1: send\(dest=0, tag=0, 1048576 bytes\)"):
        virtual(lambda c: c.send(np.zeros(1 << 20, np.uint8), 1 - c.rank))
    with pytest.raises(Deadlock, match="rank 2"):
        virtual(lambda c: c.barrier() if c.rank == 2 else None, ranks=3)
    with pytest.raises(Deadlock, match=r"probe\(source=0, tag=ANY_TAG\)"):
        virtual(lambda c: c.probe(0), ranks=1)
    with pytest.raises(Deadlock, match="rank 1: allreduce of 3 ranks"):
        virtual(lambda c: c.allreduce(np.zeros(1)) if c.rank else None, ranks=3, collectives="modelled")
    with pytest.raises(Deadlock, match="and 80 more"):
        virtual(comm_programs.all_receive_first, ranks=100)


def test_short_messages_do_not_wait_for_their_receiver():
    left = virtual(lambda c: c.send(np.zeros(1), 1 - c.rank, 3)).unreceived
    assert left == ["from rank 1 to rank 0, tag 3, 8 bytes", "from rank 0 to rank 1, tag 3, 8 bytes"]
    left = virtual(lambda c: c.isend(np.zeros(1000), 1 - c.rank, 3) and None).unreceived
    assert left == ["from rank 1 to rank 0, tag 3, 8000 bytes", "from rank 0 to rank 1, tag 3, 8000 bytes"]


def test_the_earliest_failure_is_told_and_the_others_end():
    ended = []

    def program(c):
        c.compute(float(10 - c.rank))
        if c.rank in (0, 2):
            raise KeyError(f"no such key {c.rank}")
        try:
            c.recv(np.empty(1), 0)
        except Aborted:
            ended.append(c.rank)
            raise

    with pytest.raises(RankFailed, match="no such key 2") as caught:
        virtual(program, ranks=4)
    assert caught.value.rank == 2
    assert isinstance(caught.value.exception, KeyError)
    assert "test_virtual_order.py" in caught.value.trace
    assert sorted(ended) == [1, 3]


def test_a_killed_rank_is_told():
    with pytest.raises(RankFailed, match="killed") as caught:
        virtual(comm_programs.killed, ranks=3)
    assert caught.value.rank == 1


def test_a_message_that_is_too_long():
    def program(c):
        if c.rank == 0:
            c.send(Ghost(5000), 1)
            c.send(np.zeros(5), 1)
        else:
            for room in (Ghost(4999), np.zeros(4)):
                with pytest.raises(Truncated):
                    c.recv(room, 0)

    virtual(program, payload="ghost")


def test_what_was_not_received_can_be_taken_back():
    def program(c):
        if c.rank == 0:
            request = c.isend(np.zeros(5000), 1)
            assert request.cancel()
            assert not request.cancel()
            request.wait()
            c.send(np.ones(1), 1, 5)
            c.send(np.ones(2), 1, 0)
        else:
            assert c.recv(np.empty(1), 0, 5).nbytes == 8
            assert c.recv(np.empty(5000), 0, 0).nbytes == 16

    assert virtual(program).unreceived == []


def test_random_numbers_come_from_the_seed_and_the_rank():
    one, again, other = (comm.run(lambda c: c.rng.random(), ranks=3, backend="virtual", seed=s).values for s in (1, 1, 2))
    assert one == again
    assert len({*one, *other}) == 6
    assert one == comm.run(lambda c: c.rng.random(), ranks=3, seed=1).values


# Timelines


def test_a_timeline_of_64_ranks_can_be_exported(tmp_path, monkeypatch):
    line = comm.run(
        comm_programs.jacobi, 32, 3, ranks=64, backend="virtual", cluster="slingshot-200", placement="round-robin", timeline=True
    ).timeline
    assert len(line.tracks) == 64
    assert line.tracks[3].thread == "rank 3"
    spans, arrows = line.spans, line.arrows
    assert (arrows["sent"] <= arrows["received"]).all()
    for track in range(64):
        mine = sorted(zip(spans["start"][spans["track"] == track], -spans["end"][spans["track"] == track]))
        stack = []
        for start, end in mine:
            while stack and stack[-1] <= start:
                stack.pop()
            assert not stack or -end <= stack[-1], "spans nest or are disjoint"
            stack.append(-end)
    line.to_chrome(tmp_path / "t.json")
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    assert {e["ph"] for e in events} >= {"X", "s", "f", "M"}
    assert sum(e["ph"] == "s" for e in events) == len(arrows)
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "engine")
    parse_prv = importlib.import_module("test_timelines").parse_prv
    line.to_paraver(tmp_path / "t.prv")
    records = parse_prv((tmp_path / "t.prv").read_text())
    assert sum(r[0] == 3 for r in records) == len(arrows)
    assert line.critical_path()[-1].end == pytest.approx(line.end)


def test_without_asking_there_is_no_timeline():
    assert virtual(comm_programs.sample_sort).timeline is None


def test_ghosts_are_asked_for():
    with pytest.raises(RankFailed, match="payload"):
        virtual(lambda c: c.isend(Ghost(8), 0))
    with pytest.raises(RankFailed, match="Ghost"):
        comm.run(lambda c: c.send(Ghost(8), 0), ranks=1)
    for bad in (lambda: Ghost(-1), lambda: Ghost(7, np.float64), lambda: Ghost(1.5)):
        with pytest.raises(InputError):
            bad()
