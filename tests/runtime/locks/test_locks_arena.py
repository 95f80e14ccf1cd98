"""The arena: cases, claims, answer, a trace of one's own and wrong ones."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from armillary.arena import NotForThisCase
from armillary.cluster import preset
from armillary.errors import InputError
from armillary.runtime.locks import Clh, Hapax, Machine, Pthread, PyLock, Ticket, Twa, read_trace, simulate
from armillary.runtime.locks.arena import locks

Command = Callable[..., subprocess.CompletedProcess[str]]
HEAD = "thread,lock,arrive_ns,hold_ns\n"


def test_every_claim_has_four_cases_at_least() -> None:
    cases = locks.built_in("small")
    for number, _, claim in locks.claims():
        for kind in claim.kinds:
            assert sum(kind.takes(case.kinds) for case in cases) >= 4, number


def test_the_claim_of_comparable_throughput_leaves_out_no_lock_of_its_kind() -> None:
    rivals = [set(claim.baselines) for _, name, claim in locks.claims(["hapax"]) if "comparable" in claim.says]
    assert len(rivals) == 2
    assert all(found == set(locks.techniques) - {"hapax", "hapax-vw", "ttas", "pthread", "pylock"} for found in rivals)


def test_one_claim_for_real_threads_and_one_for_simulated_ones_leave_out_nobody() -> None:
    rivals = {claim.metric: set(claim.baselines) for _, name, claim in locks.claims(["hapax"]) if "of all locks" in claim.says}
    everybody = set(locks.techniques) - {"hapax"}
    assert rivals == {"acquires_per_s": everybody, "acquires_simulated_per_s": everybody - {"pthread", "pylock"}}


def test_bytes_follow_the_parameters_and_are_those_of_packed_locks() -> None:
    assert Hapax(slots=64).occupies() == (16, 16, 8 * 64 + 8)
    assert Twa(slots=64).occupies() == (16, 0, 8 * 64)
    for name in locks.techniques:
        lock: Any = locks.make(name)
        if isinstance(lock, PyLock):
            continue
        node = 8 if isinstance(lock, Clh) else 0  # Each lock brings a node of its own.
        assert lock.occupies().lock == 8 * lock.places(4, 2, pad=False).lock_stride + node, name


def test_cases_on_a_cluster_fit_its_cores() -> None:
    names = [case.name for case in locks.built_in("small", preset("coherence-1x16"))]
    assert names == [f"simulated/{work}/{threads}" for work in ("max-contention", "moderate") for threads in (4, 8, 16)]
    with pytest.raises(InputError, match="no coherence latencies"):
        locks.built_in("small", preset("dgx-h100"))


def test_locks_with_the_kernel_in_them_take_real_cases_only() -> None:
    simulated = next(case for case in locks.built_in("tiny") if "simulated" in case.kinds)
    for made in (Pthread(), PyLock()):
        assert isinstance(locks.execute(made, simulated.at(0, 0)), NotForThisCase)


def test_a_trace_is_replayed_as_it_was_recorded(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(HEAD + "1,0,500,30\n0,0,0,100.5\n0,1,700,20\n1,0,510,40\n")
    work = read_trace(tmp_path / "t.csv", threads=3, locks=5)
    assert (work.threads, work.locks) == (3, 5)
    assert work.first.tolist() == [0, 2, 4, 4]
    assert work.lock.tolist() == [0, 1, 0, 0]
    assert work.arrive_ps.tolist() == [0, 700_000, 500_000, 510_000]
    assert work.hold_ps.tolist() == [100_500, 20_000, 30_000, 40_000]
    found = simulate(Ticket(), work, Machine((4,)))
    assert found.came_ps.tolist()[:3] == [0, 700_000, 500_000]
    assert found.came_ps[3] > found.gone_ps[2], "a thread comes again after its release"
    assert (found.gone_ps - found.entered_ps).tolist() == work.hold_ps.tolist()


def test_a_trace_of_ones_own_is_answered_in_words(armillary_here: Command, tmp_path: Path) -> None:
    path, options = locks.write_example(tmp_path)
    given = [part for name, value in options.items() for part in (f"--{name}", value)]
    found = armillary_here("compare", "runtime/locks", "--work", str(path), *given, "--repeats", "1", "--techniques", "hapax,ticket,mcs")
    assert found.returncode == 0
    assert "lets threads in fastest on locks.csv" in found.stdout.replace("\n", " ")


@pytest.mark.parametrize(
    ("content", "options", "said"),
    [
        ("thread,lock,arrive_ns\n0,0,1\n", [], "hold_ns"),
        (HEAD, [], "found no rows"),
        (HEAD + "-1,0,0,1\n", [], 'x.csv:2: column "thread"'),
        (HEAD + "0,x,0,1\n", [], 'x.csv:2: column "lock"'),
        (HEAD + "0,0,0,-1\n", [], 'x.csv:2: column "hold_ns"'),
        (HEAD + "0,0,nan,1\n", [], 'x.csv:2: column "arrive_ns"'),
        (HEAD + "0,0,9,1\n1,0,0,1\n0,0,8,1\n", [], 'x.csv:4: column "arrive_ns"'),
        (HEAD + "0,0,0,1\n0,7,2,1\n", ["--locks", "4"], 'x.csv:3: column "lock": found "7"; expected a whole number from 0 to 3'),
        (HEAD + "0,0,0,1\n5,0,2,1\n", ["--threads", "4"], 'x.csv:3: column "thread": found "5"'),
        (HEAD + "300,0,0,1\n", [], 'column "thread"'),
        (HEAD + "0,99999999,0,1\n", [], 'column "lock"'),
        (HEAD + "20,0,0,1\n", ["--machine", "coherence-1x16"], "expected at most 16, the cores of coherence-1x16"),
        (HEAD + "0,0,0,1\n", ["--machine", "laptop"], "no coherence latencies"),
        (HEAD + "0,0,0,1\n", ["--machine", "nowhere"], "nowhere"),
        (HEAD + "0,0,0,1e15\n" * 6000, [], "in all; expected fewer"),
        (HEAD + "0,0,0,1\n", ["--threads", "257"], "257"),
    ],
)  # fmt: skip
def test_a_wrong_trace_is_one_line(armillary_here: Command, tmp_path: Path, content: str, options: list[str], said: str) -> None:
    (tmp_path / "x.csv").write_text(content)
    found = armillary_here("compare", "runtime/locks", "--work", str(tmp_path / "x.csv"), *options)
    assert found.returncode == 2
    assert said in found.stderr
    assert found.stderr.count("\n") == 1
    assert not (tmp_path / "own.db").exists()


FAR = """armillary = 1
name = "far"
[[group]]
name = "node"
count = 1
[[group.node.socket]]
count = 1
cores = 4
coherence.local = "1 ns"
coherence.socket = "{}"
[[group.node.memory]]
name = "ram"
kind = "dram"
latency = "90 ns"
attached = "socket"
"""


@pytest.mark.parametrize("latency", ["2 ms", "1e300 s"])
def test_a_machine_whose_picoseconds_would_not_fit_is_one_line(armillary_here: Command, tmp_path: Path, latency: str) -> None:
    (tmp_path / "far.toml").write_text(FAR.format(latency))
    (tmp_path / "x.csv").write_text(HEAD + "0,0,0,1\n")
    found = armillary_here("compare", "runtime/locks", "--work", str(tmp_path / "x.csv"), "--machine", str(tmp_path / "far.toml"))
    assert found.returncode == 2
    assert "far: " in found.stderr
    assert "0.001" in found.stderr
    assert found.stderr.count("\n") == 1


def test_wrong_parameters_are_one_line(armillary_here: Command) -> None:
    for given, said in (("hapax.slots=3", "expected a power of two"), ("hapax.block=0", "block"), ("twa.slots=100", "power of two")):
        found = armillary_here("compare", "runtime/locks", "--scale", "tiny", "--set", given)
        assert found.returncode == 2
        assert said in found.stderr
        assert found.stderr.count("\n") == 1


def test_a_trace_changes_nothing_by_its_order_of_rows(tmp_path: Path) -> None:
    rng = np.random.Generator(np.random.PCG64DXSM(3))
    rows = [f"{thread},{int(rng.integers(3))},{100 * i},{int(rng.integers(1, 90))}" for i in range(40) for thread in range(4)]
    (tmp_path / "a.csv").write_text(HEAD + "\n".join(rows) + "\n")
    (tmp_path / "b.csv").write_text(HEAD + "\n".join(sorted(rows, key=lambda row: row.split(",")[0])) + "\n")
    one, other = (simulate(Hapax(), read_trace(tmp_path / name), Machine((4,))) for name in ("a.csv", "b.csv"))
    assert (one.entered_ps == other.entered_ps).all()
    assert one.acquires == 160
