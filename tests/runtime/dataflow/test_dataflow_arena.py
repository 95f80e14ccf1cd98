"""The arena: cases and claims, described programs and wrong ones, and what their simulation says by hand."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.errors import InputError
from armillary.runtime.dataflow import Program, play, read_program
from armillary.runtime.dataflow.arena import dataflow
from armillary.runtime.dataflow.simulation.play import Machine, Rules

Command = Callable[..., subprocess.CompletedProcess[str]]
HEAD = "task,api,us,width,after\n"
FREE = {"task_ns": 0, "launch_ns": 0, "poll_ns": 0}
WAYS = {name: dataflow.technique(name).rules for name in dataflow.techniques}  # type: ignore[attr-defined]
PLAYED = {name: rules for name, rules in WAYS.items() if rules is not None}


def program(rows: list[tuple[int, int, int, list[int]]]) -> Program:
    """Kernels as (API, nanoseconds, width, predecessors)."""
    first = np.cumsum([0] + [len(row[3]) for row in rows])
    before = [name for row in rows for name in row[3]]
    columns = [np.array([row[i] for row in rows], np.int64) for i in range(3)]
    return Program(*columns, np.asarray(first, np.int64), np.array(before, np.int64), ("host", "gpu", "npu"))


def test_every_claim_has_four_cases_at_least() -> None:
    cases = dataflow.built_in("small")
    for number, _, claim in dataflow.claims():
        for kind in claim.kinds:
            if "few-workers" in kind.tags and dataflow_cores() > 4:
                continue  # With many cores only programs with many chains are of that kind.
            assert sum(kind.takes(case.kinds) for case in cases) >= 4, number


def dataflow_cores() -> int:
    from armillary.runtime.dataflow.running.technique import cores

    return cores()


def test_the_wide_claim_leaves_out_nobody_who_knows_nothing_of_devices() -> None:
    rivals = [set(claim.baselines) for _, _, claim in dataflow.claims(["taskaware"]) if "every other way" in claim.says]
    assert rivals == [set(dataflow.techniques) - {"taskaware", "taskaware-shared", "oversubscribed"}]


def test_a_chain_on_a_device_takes_what_arithmetic_says() -> None:
    chain = program([(1, 1000, 1, [i - 1] if i else []) for i in range(10)])
    assert play(chain, PLAYED["taskaware"], Machine(**FREE)).makespan_ns == 10_000
    assert play(chain, PLAYED["taskaware"], Machine(task_ns=5, launch_ns=7, poll_ns=11)).makespan_ns == 10 * 1023
    # Who waits sees the end at once, and in program order there is no task.
    assert play(chain, PLAYED["blocking"], Machine(task_ns=5, launch_ns=7, poll_ns=11)).makespan_ns == 10 * 1012
    assert play(chain, PLAYED["sequential"], Machine(task_ns=5, launch_ns=7, poll_ns=11)).makespan_ns == 10 * 1007


def test_forty_kernels_of_a_device_with_forty_places() -> None:
    flat = program([(1, 50_000_000, 1, []) for _ in range(40)])
    machine = Machine(workers=1, places=40, **FREE)
    assert play(flat, PLAYED["taskaware"], machine).makespan_ns == 50_000_000
    assert play(flat, PLAYED["blocking"], machine).makespan_ns == 2_000_000_000
    assert play(flat, PLAYED["blocking"], Machine(workers=4, places=40, **FREE)).makespan_ns == 500_000_000
    assert play(flat, PLAYED["taskaware"], Machine(workers=1, places=4, **FREE)).makespan_ns == 500_000_000


def test_a_barrier_waits_for_the_slowest() -> None:
    # Two chains, the long kernel of each in another stage.
    rows = [(0, 10, 1, []), (0, 1, 1, []), (0, 1, 1, [0]), (0, 10, 1, [1])]
    assert play(program(rows), PLAYED["forkjoin"], Machine(workers=2, **FREE)).makespan_ns == 20
    assert play(program(rows), PLAYED["blocking"], Machine(workers=2, **FREE)).makespan_ns == 11


def test_tokens_hold_back_wide_kernels() -> None:
    rows = [(0, 10, 2, []), (0, 10, 2, [])]
    assert play(program(rows), PLAYED["taskaware-shared"], Machine(workers=2, cores=2, **FREE)).makespan_ns == 20
    assert play(program(rows), PLAYED["taskaware-shared"], Machine(workers=2, cores=4, **FREE)).makespan_ns == 10


rows = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 1000), st.integers(1, 2), st.lists(st.integers(0, 100), max_size=3)), min_size=1,
    max_size=30
)  # fmt: skip


@settings(max_examples=60)
@given(rows, st.sampled_from(sorted(PLAYED)), st.integers(1, 3), st.integers(1, 3))
def test_no_play_breaks_order_or_capacity(
    drawn: list[tuple[int, int, int, list[int]]], way: str, workers: int, places: int
) -> None:  # fmt: skip
    made = program(
        [(api, ns, width, sorted({name % i for name in before}) if i else []) for i, (api, ns, width, before) in enumerate(drawn)]
    )
    found = play(made, PLAYED[way], Machine(workers=workers, cores=2, places=places, task_ns=3, launch_ns=2, poll_ns=4))
    for i in range(made.kernels):
        for before in made.before[made.first[i] : made.first[i + 1]]:
            assert found.started[i] >= found.ended[before]
        assert found.ended[i] >= found.started[i] + made.ns[i]
    on_host = [i for i in range(made.kernels) if made.api[i] == 0]
    for i in range(made.kernels):
        here = [j for j in range(made.kernels) if found.started[j] <= found.started[i] < found.started[j] + made.ns[j]]
        assert sum(made.api[j] == 0 for j in here) <= workers
        assert all(sum(made.api[j] == api for j in here) <= places for api in (1, 2))
        if way == "taskaware-shared":
            assert sum(int(made.width[j]) for j in here if j in on_host) <= 2


def test_a_program_of_ones_own_is_answered_in_words(armillary_here: Command, tmp_path: Path) -> None:
    path, options = dataflow.write_example(tmp_path)
    given_options = [part for name, value in options.items() for part in (f"--{name.replace('_', '-')}", value)]
    found = armillary_here("compare", "runtime/dataflow", "--work", str(path), *given_options)
    assert found.returncode == 0
    said = found.stdout.replace("\n", " ")
    assert "is fastest on program.csv" in said
    assert "declined: dask" in found.stdout


def test_a_program_is_read_as_it_stands(tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text(HEAD + "a,gpu,1.5,1,\nb,host,2,2,a\nc,npu,0,1,a b\n")
    found = read_program(tmp_path / "p.csv")
    assert found.apis == ("host", "gpu", "npu")
    assert (found.api.tolist(), found.ns.tolist(), found.width.tolist()) == ([1, 0, 2], [1500, 2000, 0], [1, 2, 1])
    assert (found.first.tolist(), found.before.tolist()) == ([0, 0, 1, 3], [0, 0, 1])


@pytest.mark.parametrize(
    ("content", "options", "said"),
    [
        ("task,api\n0,host\n", [], "us"),
        (HEAD, [], "found no rows"),
        (HEAD + "0,host,-1,1,\n", [], 'x.csv:2: column "us"'),
        (HEAD + "0,host,nan,1,\n", [], 'x.csv:2: column "us"'),
        (HEAD + "0,host,1e300,1,\n", [], 'x.csv:2: column "us"'),
        (HEAD + "0,host,1,0,\n", [], 'x.csv:2: column "width"'),
        (HEAD + "0,host,1,3,\n", [], "width 3; expected at most 2, the number of tokens"),
        (HEAD + "0,host,1,1,\n0,host,1,1,\n", [], 'x.csv:3: column "task": found "0" again'),
        (HEAD + "0,host,1,1,1\n1,host,1,1,\n", [], 'x.csv:2: column "after": found "1"; expected the name of an earlier task'),
        (HEAD + "0,host,1,1,0\n", [], 'x.csv:2: column "after"'),
        (HEAD + "".join(f"{i},a{i},1,1,\n" for i in range(80)), [], "81 APIs; expected at most 64"),
        (HEAD + "".join(f"{i},host,1e12,1,\n" for i in range(200)), [], "in all"),
        (HEAD + "0,host,1,1,\n", ["--workers", "0"], "workers"),
        (HEAD + "0,host,1,1,\n", ["--poll-us", "-1"], "poll"),
    ],
)
def test_a_wrong_program_is_one_line(armillary_here: Command, tmp_path: Path, content: str, options: list[str], said: str) -> None:
    (tmp_path / "x.csv").write_text(content)
    found = armillary_here("compare", "runtime/dataflow", "--work", str(tmp_path / "x.csv"), *options)
    assert found.returncode == 2
    assert said in found.stderr
    assert found.stderr.count("\n") == 1
    assert not (tmp_path / "own.db").exists()


def test_a_width_beyond_the_cores_is_refused_in_python_too() -> None:
    with pytest.raises(InputError, match="width 3"):
        play(program([(0, 1, 3, [])]), Rules(), Machine(cores=2))


def test_wrong_parameters_are_one_line(armillary_here: Command) -> None:
    for given_setting, said in (
        ("taskaware.poll=often", "poll"),
        ("taskaware.streams=0", "streams"),
        ("taskaware-shared.tokens=-1", "tokens"),
    ):
        found = armillary_here("compare", "runtime/dataflow", "--scale", "tiny", "--set", given_setting)
        assert found.returncode == 2
        assert said in found.stderr
        assert found.stderr.count("\n") == 1
