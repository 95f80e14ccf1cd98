"""Policies of progress with separate costs: what they equal, what each cost does to whom, and where every second of a core went."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from progress_programs import GETS, HAND, MIB, NEAR, digest, exchange, late, virtual
from virtual_programs import US, mixed

from armillary import comm
from armillary.comm import ANY_SOURCE, Deadlock, Ghost, LogGP, RankFailed
from armillary.comm.virtual.progress import Policy
from armillary.errors import InputError

SPREAD = {"placement": [0, 0, 1, 1, 2]}
MACHINES = {
    "wire": {"constants": HAND},
    "near": {"constants": NEAR, **SPREAD},
    "gets": {"constants": GETS},
    "shared": {"constants": None, "cluster": "slingshot-200", **SPREAD},
    "single": {"constants": None, "cluster": "slingshot-200", "shm": "single-copy", **SPREAD},
    "flow": {"constants": None, "cluster": "bxi2-100", "model": "flow", **SPREAD},
}
OLD = {"in-calls": "in-calls", "thread": comm.thread(0.2), "nic": "nic", "interrupt": comm.interrupt(3e-6)}

#: Digests of `exchange` and `mixed` with timelines, taken before policies had separate costs.
GOLDEN = {
    ("wire", "in-calls"): ("f3df374919603579", "c2f68bf88d57fdb6"),
    ("wire", "thread"): ("7c749148c0e031a1", "eb13c1dab52fde4e"),
    ("wire", "nic"): ("7a400b4c2a1a9541", "c2f68bf88d57fdb6"),
    ("wire", "interrupt"): ("8163dffe1306cea3", "c2f68bf88d57fdb6"),
    ("near", "in-calls"): ("82601452e478a672", "e9a4074ab3ffb02d"),
    ("near", "thread"): ("a527763ef51546b3", "a04f77c2e9af231c"),
    ("near", "nic"): ("db5437afb3ddf1c9", "23a04f34545e828b"),
    ("near", "interrupt"): ("4db4599ff4e14daf", "60ffd94bdc3ab619"),
    ("gets", "in-calls"): ("6b06510b52275331", "cf684fc358ad0e3f"),
    ("gets", "thread"): ("fad1e8f9c881cd84", "8114bfda102fe2f9"),
    ("gets", "nic"): ("e9879d4a95e9ac3c", "cf684fc358ad0e3f"),
    ("gets", "interrupt"): ("ea0a76eac21d3ca5", "cf684fc358ad0e3f"),
    ("shared", "in-calls"): ("4eaad421ac74e7e5", "fd1bd4cfdb82d7a2"),
    ("shared", "thread"): ("fa8eab1f23455de7", "ea2017384389e761"),
    ("shared", "nic"): ("310b2c98c8b6b2cb", "fd1bd4cfdb82d7a2"),
    ("shared", "interrupt"): ("0f09e5414eb09a15", "fd1bd4cfdb82d7a2"),
    ("single", "in-calls"): ("cb55ee169c1a4e51", "fd1bd4cfdb82d7a2"),
    ("single", "thread"): ("e2e1dd1d9a123347", "ea2017384389e761"),
    ("single", "nic"): ("d3a79e61bc52a224", "fd1bd4cfdb82d7a2"),
    ("single", "interrupt"): ("1a658344f8a240be", "fd1bd4cfdb82d7a2"),
    ("flow", "in-calls"): ("242d95ac7c51e435", "f4ca9df444d162b9"),
    ("flow", "thread"): ("333025e93a0b8280", "dfd5002e10e9fcb9"),
    ("flow", "nic"): ("4ed137b9e5a37a88", "f4ca9df444d162b9"),
    ("flow", "interrupt"): ("2bf7a7ba445f6053", "f4ca9df444d162b9"),
}


def exactly(seconds):
    return pytest.approx(seconds, rel=1e-12, abs=0)


@pytest.mark.parametrize(("machine", "progress"), GOLDEN)
def test_the_policies_that_stood_keep_every_bit(machine, progress):
    how = {"ranks": 5, "progress": OLD[progress], "timeline": True, **MACHINES[machine]}
    found = (digest(virtual(exchange, 3, **how)), digest(virtual(mixed, 1, payload="real", **how)))
    assert found == GOLDEN[machine, progress]


@pytest.mark.parametrize("machine", [name for name in MACHINES if name != "flow"])
def test_without_costs_it_is_the_nic(machine):
    for seed in (0, 1):
        plain = virtual(exchange, seed, ranks=5, progress="nic", **MACHINES[machine])
        paced = virtual(exchange, seed, ranks=5, progress=Policy(), **MACHINES[machine])
        assert paced.values == plain.values
        assert paced.seconds == plain.seconds
    plain = virtual(mixed, 1, ranks=5, payload="real", progress="nic", **MACHINES[machine])
    assert virtual(mixed, 1, ranks=5, payload="real", progress=Policy(), **MACHINES[machine]).values == plain.values


@settings(max_examples=15)
@given(seed=st.integers(0, 10**6), ranks=st.integers(2, 6), rounds=st.integers(1, 3))
def test_without_costs_it_is_the_nic_for_any_exchange(seed, ranks, rounds):
    how = {"ranks": ranks, "constants": NEAR, "placement": [r // 2 for r in range(ranks)]}
    assert virtual(exchange, seed, rounds, progress=Policy(), **how).values == virtual(exchange, seed, rounds, progress="nic", **how).values


def test_with_flows_only_senders_learn_later_that_they_are_done():
    """A flow tells when its last byte arrives, so a send is complete a latency later than with `nic`; the receiver sees no difference."""
    machine = {"constants": None, "cluster": "bxi2-100", "model": "flow", "placement": [0, 1]}
    plain = virtual(late, MIB, 1e-6, progress="nic", **machine)
    paced = virtual(late, MIB, 1e-6, progress=Policy(), **machine)
    assert paced[1] == plain[1]
    assert paced[0] == exactly(plain[0] + 1.3 * US)


# What each cost does

COSTS = Policy(detect=1 * US, entry=2 * US, handler=0.5 * US, exit=0.25 * US, switch=0.125 * US, completions=True)


def watched(c, *args):
    return late(c, *args), c.busy


def test_every_cost_falls_on_the_rank_that_computes():
    """The RTS arrives at 1.5 us. Its handler works 1 us later, and answers after switch, entry and one event."""
    result = virtual(watched, progress=COSTS)
    # The two events of rank 1 are the RTS and the arrival of the data; both interrupt it.
    once = (2 * 0.125 + 2 + 0.5 + 0.25) * US
    (sent, sender), (ended, receiver) = result.values
    answered = (1.5 + 1 + 0.125 + 2 + 0.5) * US
    # CTS; the sender polls, so the CTS costs it one event; the data leaves.
    left = answered + US + 0.5 * US + (MIB - 1) * 1e-9
    assert sent == exactly(left)
    assert ended == exactly(10e-3 + 2 * once + 0.5 * US)
    assert receiver.computing == 10e-3
    assert receiver.stolen == exactly(2 * once)
    assert receiver.handling == exactly(2 * once + 0.5 * US)
    assert receiver.runs == 2
    assert (sender.computing, sender.stolen, sender.runs) == (0.0, 0.0, 0)
    assert sender.handling == exactly(1.0 * US)


def test_completions_are_left_to_the_wait():
    """Only the RTS interrupts; a message without a receive does too, and one with a receive does not."""
    (_, _), (ended, receiver) = virtual(watched, progress=replace(COSTS, completions=False)).values
    once = (2 * 0.125 + 2 + 0.5 + 0.25) * US
    assert ended == exactly(10e-3 + once + 0.5 * US)
    assert receiver.runs == 1

    def program(c, posted):
        if c.rank == 0:
            c.send(Ghost(8), 1)
        elif posted:
            request = c.irecv(Ghost(8), 0)
            c.compute(50 * US)
            request.wait()
        else:
            c.compute(50 * US)
            c.recv(Ghost(8), 0)
        return c.busy.runs

    assert virtual(program, True, progress=Policy(entry=US))[1] == 0
    assert virtual(program, False, progress=Policy(entry=US))[1] == 1


def test_a_rank_that_does_not_look_answers_in_its_next_call():
    result = virtual(late, progress=Policy("never"))
    assert result.values == virtual(late).values


def test_polls_are_paid_for_and_find_what_came_since_the_last():
    """Polls every 50 us cost 0.1 us each; the RTS of 1.5 us is found by the first."""
    result = virtual(watched, progress=Policy("poll", every=50 * US, poll=0.1 * US, handler=0.2 * US, completions=True))
    (sent, _), (ended, receiver) = result.values
    assert sent == exactly((50.1 + 0.2 + 1 + 0.2) * US + (MIB - 1) * 1e-9)
    assert ended == exactly(10e-3 + 200 * 0.1 * US + 2 * 0.2 * US + 0.5 * US)
    assert receiver.stolen == exactly(200 * 0.1 * US + 2 * 0.2 * US)


def test_a_helper_pays_on_its_own_core():
    result = virtual(watched, progress=Policy("helper", detect=0.3 * US, handler=0.2 * US, core_share=0.25, completions=True))
    (sent, _), (ended, receiver) = result.values
    assert sent == exactly((1.5 + 0.3 + 0.2 + 1 + 0.2) * US + (MIB - 1) * 1e-9)
    assert ended == exactly(10e-3 / 0.75 + 0.5 * US)
    assert receiver.helper == exactly(0.4 * US)
    assert receiver.stolen == 0.0


def test_a_sleeper_wakes_late():
    """Asleep in `recv`, rank 1 wakes for the RTS and again for the data."""

    def program(c):
        c.send(Ghost(MIB), 1) if c.rank == 0 else c.recv(Ghost(MIB), 0)
        return c.now()

    awake = virtual(program, progress=Policy("never"))
    asleep = virtual(program, progress=Policy("never", wake=5 * US))
    assert awake[1] == exactly((1.5 + 1 + 1 + 0.5) * US + (MIB - 1) * 1e-9)
    assert asleep[1] == exactly(awake[1] + 3 * 5 * US)  # the RTS, the CTS at rank 0, the data


def test_a_scheduler_delays_by_its_own_stream():
    policy = Policy(spread=4e-3)
    one, again = (virtual(late, progress=policy)[0] for _ in range(2))
    other = comm.run(late, ranks=2, backend="virtual", payload="ghost", constants=HAND, progress=policy, seed=1)[0]
    assert one == again != other
    assert 1e-3 < one < 1e-3 + 4e-3 + 5 * US


def test_events_of_one_moment_share_a_run():
    """Four senders' messages land together: one run takes them; with a batch of one, each has a run of its own."""

    def program(c):
        if c.rank:
            c.send(Ghost(8), 0)
            return None
        requests = [c.irecv(Ghost(8), r) for r in range(1, 5)]
        c.compute(100 * US)
        c.waitall(requests)
        return c.busy

    policy = {"entry": 2 * US, "handler": 0.5 * US, "exit": US, "completions": True}
    together = virtual(program, ranks=5, progress=Policy(**policy))[0]
    apart = virtual(program, ranks=5, progress=Policy(**policy, batch=1))[0]
    assert (together.runs, apart.runs) == (1, 4)
    assert together.stolen == exactly((2 + 4 * 0.5 + 1) * US)
    assert apart.stolen == exactly(4 * 3.5 * US)


def test_a_call_that_holds_the_lock_is_told_and_looks_at_its_end():
    """Rank 1 copies 12 us into a message when the RTS comes; its interrupt is refused, and the call answers at its end."""
    constants = LogGP(US, 0.5 * US, 0.5 * US, byte_gap=1e-9, copy=1e-9)

    def program(c):
        if c.rank == 0:
            c.send(Ghost(MIB), 1, 1)
        else:
            request = c.irecv(Ghost(MIB), 0, 1)
            c.isend(Ghost(12_000), 2)
            told = c.now()
            c.compute(5e-3)
            request.wait()
            return told
        return c.now()

    def receiver(c):
        return program(c) if c.rank < 2 else c.recv(Ghost(12_000), 1)

    costs = {"entry": US, "handler": 0.5 * US, "exit": 0.25 * US}
    free = virtual(receiver, ranks=3, constants=constants, progress=Policy(**costs))
    held = virtual(receiver, ranks=3, constants=constants, progress=Policy(**costs, lock=True))
    assert free[1] == exactly((0.5 + 12 + 1 + 0.5 + 0.25) * US)
    assert free[0] == exactly((1.5 + 1 + 0.5 + 1 + 0.5) * US + (MIB - 1) * 1e-9)
    assert held[1] == exactly((0.5 + 12 + 1 + 0.25 + 0.5) * US)
    assert held[0] == exactly((0.5 + 12 + 1 + 0.25 + 0.5 + 1 + 0.5) * US + (MIB - 1) * 1e-9)


@pytest.mark.parametrize("late", [0.05, 0.5, 0.95, 1.05, 1.5, 2.5])
def test_what_comes_while_notifications_are_armed_again_is_not_lost(late):
    """Rank 1's wait ends and takes 1 us to arm; an RTS that comes within it, or in the entry that it refuses, is answered when it ends."""

    def program(c):
        if c.rank == 1:
            request = c.irecv(Ghost(MIB), 0, 1)
            c.compute(20 * US)
            c.recv(Ghost(8), 2)
            c.compute(5e-3)
            request.wait()
        elif c.rank == 2:
            c.compute(100 * US)
            c.send(Ghost(8), 1)
        else:
            # The message of rank 2 is complete at 102.007 us; the RTS takes 1.5 us.
            c.compute((102.007 + late - 1.5) * US)
            c.send(Ghost(MIB), 1, 1)
        return c.now()

    costs = Policy(detect=0.1 * US, entry=US, handler=0.5 * US, exit=0.25 * US, rearm=US, lock=True)
    sent = virtual(program, ranks=3, progress=costs)[0]
    assert sent - (102.007 + late) * US - (MIB - 1) * 1e-9 < (1 + 2 * 1.25 + 0.1 + 0.5 + 1 + 1 + 0.5) * US


def test_a_storm_changes_the_policy_and_quiet_changes_it_back():
    polls = Policy("poll", every=50 * US, poll=0.1 * US, handler=0.2 * US, completions=True)
    policy = Policy(entry=1.8 * US, handler=0.2 * US, completions=True, otherwise=polls, above=50_000.0)

    def program(c, gap):
        if c.rank == 0:
            for _ in range(3000):
                c.send(Ghost(8), 1)
                c.compute(gap)
            return None
        requests = [c.irecv(Ghost(8), 0) for _ in range(3000)]
        c.compute(3000 * gap)
        c.waitall(requests)
        return c.busy

    storm, quiet = (virtual(program, gap, constants=LogGP(US), progress=policy)[1] for gap in (10 * US, 40 * US))
    assert quiet.stolen == pytest.approx(3000 * 2 * US, rel=0.01)
    # One millisecond of interrupts, then polls.
    assert storm.stolen == pytest.approx(100 * 2 * US + 2900 * 0.2 * US + 29e-3 / 50e-6 * 0.1 * US, rel=0.05)


def test_costs_of_interrupts_that_are_not_disarmed_in_wait():
    def program(c):
        c.send(Ghost(8), 1) if c.rank == 0 else c.recv(Ghost(8), 0)
        return c.now()

    costs = {"entry": US, "exit": 0.25 * US, "handler": 0.5 * US, "completions": True}
    assert virtual(program, progress=Policy(**costs))[1] == exactly((0.5 + 1 + 0.007 + 0.5) * US)
    armed = virtual(program, progress=Policy(**costs, armed_in_wait=True))[1]
    assert armed == exactly((0.5 + 1 + 0.007 + 0.5 + 1.75) * US)
    assert virtual(program, progress=Policy(rearm=0.2 * US))[1] == exactly((0.5 + 1 + 0.007 + 0.5 + 0.2) * US)


# Where the seconds went

ALL_SORTS = {
    "free": Policy(),
    "costly": COSTS,
    "locked": Policy(detect=US, entry=US, handler=0.2 * US, exit=0.2 * US, rearm=0.2 * US, lock=True),
    "armed": Policy(entry=US, handler=0.2 * US, armed_in_wait=True),
    "never": Policy("never", handler=0.2 * US),
    "asleep": Policy("never", wake=5 * US, handler=0.2 * US),
    "polls": Policy("poll", every=20 * US, poll=0.1 * US, handler=0.2 * US),
    "helper": Policy("helper", detect=0.3 * US, handler=0.2 * US, core_share=0.25),
    "scheduled": Policy(spread=1e-3, switch=2.5 * US, handler=0.2 * US),
    "adaptive": Policy(entry=US, otherwise=Policy("poll", poll=0.1 * US), above=20_000.0, during=1e-4),
}


def account(c, seed):
    trace = exchange(c, seed, 2)
    done = c.iallreduce(Ghost(5000), Ghost(5000))
    c.compute(50 * US)
    done.wait()
    return trace, c.busy


@pytest.mark.parametrize("machine", ["near", "shared", "flow"])
@pytest.mark.parametrize("policy", ALL_SORTS)
def test_the_seconds_of_a_core_add_up_to_the_run(policy, machine):
    result = virtual(account, 5, ranks=5, progress=ALL_SORTS[policy], **MACHINES[machine])
    for _, busy in result.values:
        assert busy.total == exactly(result.seconds)
        assert min(busy.copying, busy.handling, busy.computing, busy.waiting) >= 0.0
        assert busy.stolen <= busy.handling + busy.copying + 1e-15


@pytest.mark.parametrize("policy", ALL_SORTS)
def test_the_order_of_running_decides_nothing(policy):
    def program(c):
        return mixed(c, 3), account(c, 3)[0]

    how = {"ranks": 5, "payload": "ghost", "progress": ALL_SORTS[policy], **MACHINES["near"]}
    plain = virtual(program, timeline=True, **how)
    for shuffle in range(2):
        other = virtual(program, timeline=True, shuffle=shuffle, **how)
        assert digest(other) == digest(plain)


def test_runs_of_the_handler_stand_in_the_timeline():
    line = virtual(late, progress=COSTS, timeline=True).timeline
    names = [line.strings[i] for i in line.spans["name"]] if hasattr(line, "strings") else line.frame()["name"].to_list()
    assert names.count("handler") == 3  # RTS and data at rank 1, and the CTS in rank 0's wait


# Staged collectives


def reduced(c, n):
    mine, answer = np.arange(n) * (c.rank + 1.0), np.zeros(n)
    buffer = np.full(5, float(c.rank))
    first, second = c.iallreduce(mine, answer), c.ibcast(buffer, c.size - 1)
    c.compute(20 * US)
    c.waitall([second, first])
    return answer.tolist(), buffer.tolist()


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 5, 7, 8, 13])
@pytest.mark.parametrize("policy", ["free", "locked", "never", "helper"])
def test_staged_collectives_are_right(ranks, policy):
    for n in (3, 4000):
        result = virtual(reduced, n, ranks=ranks, payload="real", progress=ALL_SORTS[policy])
        total = (np.arange(n) * ranks * (ranks + 1) / 2.0).tolist()
        assert result.values == [(total, [ranks - 1.0] * 5)] * ranks


def test_a_stage_goes_on_when_the_one_before_is_complete():
    """Eight ranks, three stages: with the NIC all of them pass while the ranks compute; without progress only in the wait."""

    def program(c):
        done = c.iallreduce(Ghost(8), Ghost(8))
        c.compute(100 * US)
        before = done.arrival
        done.wait()
        return before, c.now()

    each = (0.5 + 1 + 0.007 + 0.5) * US
    for before, after in virtual(program, ranks=8, progress=Policy()).values:
        assert before == exactly(3 * each)
        # What the stages cost is pushed behind the computing: the first send in the call, and then two sends and three receives.
        assert after == exactly(100 * US + 3 * 0.5 * US + 3 * 0.5 * US)
    for before, after in virtual(program, ranks=8, progress=Policy("never")).values:
        assert before is None
        assert after == exactly((0.5 + 100 + 0.5) * US + 2 * each)


def test_a_staged_call_that_never_ends_is_named():
    with pytest.raises(Deadlock, match="rank 1: iallreduce of 2 ranks"):
        virtual(lambda c: c.iallreduce(Ghost(8), Ghost(8)).wait() if c.rank else None, progress=Policy())


def test_an_error_in_a_stage_is_the_ranks():
    def program(c):
        def stages():
            yield [c.irecv(Ghost(8), 1 - c.rank, 9)]
            raise KeyError("in a stage")

        call = c.staged(stages())
        c.compute(10 * US)
        c.send(Ghost(8), 1 - c.rank, 9)
        c.compute(10 * US)
        call.wait()

    with pytest.raises(RankFailed, match="in a stage"):
        virtual(program, progress=Policy())


# Other calls, and bad input


@pytest.mark.parametrize("policy", ["never", "locked", "scheduled"])
def test_all_calls_work_with_a_policy(policy):
    """Windows, probes, wildcards, tests and groups give the same data whatever progress costs; only their times differ."""

    def data(c):
        with c.window(8, np.float64) as window:
            window.accumulate(np.array([c.rank + 1.0]), 0)
            window.fence()
            first = float(window.local[0])
        half = c.split(c.rank % 2, -c.rank)
        total = float(half.allreduce(np.array(c.rank + 1.0)))
        seen = []
        if c.rank:
            c.send(np.full(800, float(c.rank)), 0, 1)
        else:
            room = np.empty(800)
            for k in range(c.size - 1):
                status = c.probe(ANY_SOURCE, 1) if k % 2 else None
                seen.append(c.recv(room, status.source if status else ANY_SOURCE, 1).source)
                assert room[0] == seen[-1]
        c.barrier()
        return first, total, sorted(seen)

    plain = virtual(data, ranks=5, payload="real")
    assert virtual(data, ranks=5, payload="real", progress=ALL_SORTS[policy]).values == plain.values
    modelled = virtual(data, ranks=5, payload="real", progress=ALL_SORTS[policy], collectives="modelled")
    assert modelled.values == plain.values


@pytest.mark.parametrize(
    "bad",
    [
        {"computing": "sometimes"}, {"detect": -1.0}, {"entry": float("nan")}, {"handler": float("inf")}, {"exit": "1"}, {"every": 0.0},
        {"every": -1.0}, {"core_share": 1.0}, {"batch": 0}, {"batch": 1.5}, {"spread": -1e-9}, {"during": 0.0},
        {"otherwise": Policy("poll", otherwise=Policy())},
    ],
)  # fmt: skip
def test_policies_that_cannot_be(bad):
    with pytest.raises(InputError) as caught:
        Policy(**bad)
    assert "\n" not in str(caught.value)
