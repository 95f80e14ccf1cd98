"""The arena: its cases and files, advice for a trace, real wake-ups on this machine, and what a user may get wrong."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary import catalogue
from armillary.arena import NotForThisCase
from armillary.errors import InputError
from armillary.network.notification import Advice, Uintr, advise, measure_wakeups, read_trace
from armillary.network.notification.arena import MECHANISMS, every_case
from armillary.network.notification.readers.scenarios import read_scenario
from armillary.network.notification.wakeups.measure import Wakeup, measure_wakeup

ARENA = catalogue.arena("network/notification")
HEADER = "rank,time_ns,op,peer,bytes,compute_ns\n"
EXCHANGE = "0,0,irecv,1,1000000,0\n0,5,isend,1,1000000,0\n1,0,irecv,0,1000000,0\n1,5,isend,0,1000000,0\n0,9,wait,,,200000\n1,9,wait,,,200000\n"


@pytest.fixture
def write(tmp_path):
    def write(text, name="messages.csv"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


def execute(technique, case):
    return ARENA.execute(ARENA.make(technique), case)


# Cases


def test_every_claim_has_at_least_four_cases_of_each_kind():
    cases = list(every_case("small"))
    for _, _, claim in ARENA.claims():
        for kind in claim.kinds:
            assert sum(kind.takes(case.kinds) for case in cases) >= 4, claim.says


def test_near_perfect_means_both_parts():
    cases = {case.name: case for case in every_case("small")}
    hidden = execute("uintr", cases["rendezvous-1MiB-2x4"]).values
    assert hidden["overlap"] > 0.95
    assert hidden["near_perfect"] == 1.0
    polled = execute("poll-in-wait", cases["rendezvous-1MiB-2x4"]).values
    assert polled["overlap"] < 0.5
    assert polled["near_perfect"] == 0.0
    # Polling hides most of a stencil here, so nobody is near-perfect where it is not.
    stencil = cases["stencil-1MiB-8x4"]
    assert execute("poll-in-wait", stencil).values["overlap"] > 0.5
    assert execute("uintr", stencil).values["near_perfect"] == 0.0


def test_the_same_seed_gives_the_same_delays():
    case = next(case for case in every_case("tiny") if case.name == "burst-2x4")
    first, second = execute("thread-shared-core", case).values, execute("thread-shared-core", case).values
    assert first == second
    other = ARENA.execute(ARENA.make("thread-shared-core").with_rng(np.random.default_rng(5)), case).values
    assert other["time"] != first["time"]


# Files


def test_a_trace_is_played_as_it_says(write):
    trace = read_trace(write(HEADER + EXCHANGE))
    assert (trace.ranks, trace.operations) == (2, 6)
    assert trace.compute_s == pytest.approx(200e-6)
    assert list(trace.of(0))[1] == (0.0, "isend", 1, 1_000_000)
    case = ARENA.from_file(write(HEADER + EXCHANGE))[0]
    polled, interrupted = execute("poll-in-wait", case).values, execute("uintr", case).values
    assert polled["time"] == pytest.approx(200 + 80 + 2 * 1.3 + 0.9, abs=1.0)
    assert interrupted["time"] == pytest.approx(200 + 2 * 2.0 + 0.75, abs=0.5)
    assert interrupted["overlap"] > 0.9


def test_rows_may_be_mixed_and_blocking_calls_are_taken(write):
    trace = read_trace(write(HEADER + "1,5,recv,0,8,0\n0,0,send,1,8,1000\n1,6,send,0,70000,0\n0,1,recv,1,70000,0\n"))
    assert [name for _, name, _, _ in trace.of(0)] == ["send", "recv"]
    assert advise(trace).table[0]["time_us"] > 0


def test_advice_follows_the_trace_and_the_cores(write):
    found = advise(write(HEADER + EXCHANGE), cores=16)
    assert found.use not in ("uintr", "adaptive")
    times = {row["technique"]: row["time_us"] for row in found.table}
    assert times[found.use] == min(time for name, time in times.items() if name not in ("uintr", "adaptive"))
    assert times[found.with_card] == min(times.values())
    assert found.saves == pytest.approx(100 * (1 - times[found.use] / times["poll-in-wait"]))
    alone = advise(write(HEADER + EXCHANGE), cores=1)
    assert "thread-own-core" not in {row["technique"] for row in alone.table}
    idle = advise(write(HEADER + "0,0,send,1,8,0\n1,0,recv,0,8,0\n"))
    assert idle.use == idle.with_card == "poll-in-wait"
    assert str(Advice("block", "uintr", 1.0, [])) == (
        "use block, which saves 1.0 % over polling in waits; with a card that posts user interrupts, use uintr"
    )


def test_a_scenario_of_ones_own(write):
    text = 'scenario = "stencil"\nbytes = 65536\ncompute = 2.0\nranks = 4\niterations = 2\n[nic]\nlatency_us = 5\n'
    scenario = read_scenario(write(text, "s.toml"))
    assert (scenario.nbytes, scenario.ranks, scenario.nic.latency_us, scenario.nic.bandwidth_gb_s) == (65536, 4, 5.0, 12.5)
    case = ARENA.from_file(write(text, "s.toml"))[0]
    assert execute("uintr", case).values["latency_ratio"] == pytest.approx((5.5 + 2.5) / 5.5)
    one_core = ARENA.from_file(write(text, "t.toml"))[0]
    assert execute("thread-own-core", one_core).values["stolen"] == 0.25


def test_a_progress_core_on_a_rank_with_one_core_is_declined(write):
    case = ARENA.from_file(write('scenario = "rendezvous"\ncores = 1\niterations = 2\n', "s.toml"))[0]
    assert isinstance(execute("thread-own-core", case), NotForThisCase)
    assert execute("uintr", case).values["time"] > 0


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ("0,0,irecv,1,8,0\n1,0,wait,,,0\n", "receive of rank 0 from rank 1 that is never sent"),
        ("0,0,isend,1,8,0\n1,0,wait,,,0\n", "send of rank 0 to rank 1 that is never received"),
        ("0,0,isend,1,80,0\n1,0,irecv,0,8,0\n", "room for 8 bytes"),
        ("0,0,isend,1,8,0\n0,1,isend,1,8,0\n1,0,irecv,0,8,0\n", "never received"),
        ("0,0,isend,1,8,0\n1,0,irecv,0,8,0\n1,0,irecv,0,8,0\n", "never sent"),
        ("0,0,isend,0,8,0\n", "the rank itself"), ("0,0,isend,,8,0\n", "no peer"), ("0,0,isend,1,,0\n", "no bytes"),
        ("0,0,put,1,8,0\n", "expected one of"), ("0,-1,wait,,,0\n", "time_ns"), ("0,0,wait,,,-5\n", "compute_ns"),
        ("0,0,isend,5000,8,0\n", "peer"), ("0,9,isend,1,8,0\n0,2,wait,,,0\n1,0,irecv,0,8,0\n", "do not decrease"),
        ("x,0,wait,,,0\n", "rank"), ("0,0,isend,1,99999999999999999,0\n", "bytes"), ("", "rows"),
        ("0,0,recv,1,8,0\n0,1,send,1,8,0\n1,0,recv,0,8,0\n1,1,send,0,8,0\n", "wait for each other"), ("0,0,wait,,,0\n", "ranks"),
    ],
)  # fmt: skip
def test_traces_that_cannot_be(rows, words, write):
    with pytest.raises(InputError, match=words) as caught:
        ARENA.from_file(write(HEADER + rows))
    assert "\n" not in str(caught.value)
    assert "messages.csv" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('scenario = "bursts"', "did you mean"), ("ranks = 2", "no key scenario"), ('scenario = "burst"\nranks = 1', "ranks"),
        ('scenario = "burst"\nranks = "two"', "a whole number"), ('scenario = "burst"\nrank = 2', "did you mean"), ("scenario = ", "no TOML"),
        ('scenario = "trace"', "CSV"), ('scenario = "burst"\n[nic]\nlatency_us = -1', "latency_us"),
        ('scenario = "burst"\n[nic]\nlatency = 1', "did you mean"), ('scenario = "burst"\nnic = 3', "a table"),
        ('scenario = "rendezvous"\nbytes = 0', "bytes: found 0"), ('scenario = "rendezvous"\ncompute = inf', "compute"),
        ('scenario = "rendezvous"\ncompute = nan', "compute"), ('scenario = "burst"\niterations = 1000000\nranks = 4096', "events"),
        ('scenario = "burst"\n[nic]\nbandwidth_gb_s = 0', "bandwidth_gb_s"), ('scenario = "burst"\ncores = true', "cores"),
    ],
)  # fmt: skip
def test_scenario_files_that_cannot_be(text, words, write):
    with pytest.raises(InputError, match=words) as caught:
        ARENA.from_file(write(text, "s.toml"))
    assert "\n" not in str(caught.value)
    assert "s.toml" in str(caught.value)


@settings(max_examples=12)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.sampled_from([0, 8, 20_000])), max_size=12), st.integers(0, 10**6))
def test_every_complete_trace_can_be_played(tmp_path_factory, messages, seed):
    """Messages between random ranks, all receives before all sends of a rank: the sums of computing bound the time from below."""
    messages = [(a, b, n) for a, b, n in messages if a != b]
    rows = [f"{b},0,irecv,{a},{n},100\n" for a, b, n in messages] + [f"{a},1,isend,{b},{n},2000\n" for a, b, n in messages]
    path = tmp_path_factory.mktemp("trace") / "t.csv"
    path.write_text(HEADER + "".join(rows) + "0,2,wait,,,0\n3,2,wait,,,5000\n")
    trace = read_trace(path)
    for row in advise(trace).table:
        assert row["time_us"] >= 1e6 * trace.compute_s - 1e-9


def test_the_command_line_says_it_in_one_line(write, armillary_command: Callable[..., subprocess.CompletedProcess[str]]):
    path = write(HEADER + "0,0,irecv,1,8,0\n1,0,wait,,,0\n")
    ran = armillary_command("compare", "network/notification", "--work", str(path), check=False)
    assert ran.returncode == 2
    # A broken package outside is there on purpose, and told first.
    said = [line for line in ran.stderr.splitlines() if "armillary-outside" not in line]
    assert len(said) == 1
    assert "never sent" in said[0]
    assert ran.stdout == ""


# Wake-ups


def test_wakeups_are_ratios_of_the_same_rounds():
    found = Wakeup("pipe", (4.0, 5.0, 6.0), (1.0, 2.0, 3.0))
    assert found.one_way_us == 5.0
    assert found.ratio == 2.5
    assert found.noisy
    assert not Wakeup("pipe", (5.0, 5.0, 5.1), (1.0, 1.0, 1.0)).noisy


def two_processors():
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs two processors")


@pytest.mark.parametrize("mechanism", ["poll", *MECHANISMS])
def test_every_mechanism_wakes_the_other_thread(mechanism):
    two_processors()
    processors, files, threads = os.sched_getaffinity(0), len(os.listdir("/proc/self/fd")), threading.active_count()
    found = measure_wakeup(mechanism, rounds=2, exchanges=20)
    assert len(found.rounds_us) == len(found.polled_us) == 2
    assert min(*found.rounds_us, *found.polled_us) > 0.0
    assert os.sched_getaffinity(0) == processors
    assert len(os.listdir("/proc/self/fd")) == files
    assert threading.active_count() == threads


def test_the_table_names_every_mechanism():
    two_processors()
    rows = measure_wakeups(rounds=2, exchanges=5)
    assert [row["mechanism"] for row in rows] == ["poll", *MECHANISMS]
    assert rows[0]["over_polling"] == 1.0


def test_one_processor_is_refused(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    with pytest.raises(InputError, match="found one processor"):
        measure_wakeup("poll")


@pytest.mark.parametrize("bad", [{"mechanism": "eventfds"}, {"rounds": 1}, {"exchanges": 0}, {"rounds": 2.5}])
def test_measurements_that_cannot_be(bad):
    with pytest.raises(InputError):
        measure_wakeup(**{"mechanism": "pipe", **bad})


def test_who_is_measured_and_who_declines():
    two_processors()
    case = next(case for case in every_case("tiny") if case.name == "here-eventfd")
    assert execute("block", case).values["wakeup_measured"] > 0.0
    assert execute("poll-in-wait", case).values["wakeup_ratio"] == 1.0
    assert "user interrupts" in str(execute("uintr", case))
    assert isinstance(execute("interrupt", case), NotForThisCase)


def test_the_claim_about_latency_is_an_input():
    circular = [claim for claim in Uintr.claims if claim.circular]
    assert [claim.metric for claim in circular] == ["latency_ratio"]
