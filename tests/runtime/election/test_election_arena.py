"""The arena: cases, claims, answer, populations and schedules of one's own, and wrong ones."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from armillary.runtime.election import Population, Tradeoff, Tree, read_agents, recorded, simulate, write_agents
from armillary.runtime.election.arena import MOST_PAIRWISE, election
from armillary.streams import stream

Command = Callable[..., subprocess.CompletedProcess[str]]


def test_every_claim_has_four_cases_at_least() -> None:
    for number, _, claim in election.claims():
        cases = election.built_in(claim.scale)
        for kind in claim.kinds:
            assert sum(kind.takes(case.kinds) for case in cases) >= 4, number


def test_the_claims_over_rivals_name_every_other_technique_that_takes_all_of_their_cases() -> None:
    """A claim over a technique that declines one of its cases could never be judged."""
    rivals: set[str] = set()
    for _, _, claim in election.claims(["tradeoff"]):
        rivals |= set(claim.baselines)
        most = max(case.parameters.get("agents", 0) for case in election.built_in(claim.scale) if claim.kinds[0].takes(case.kinds))
        assert "pairwise" not in claim.baselines or most <= MOST_PAIRWISE
    assert rivals == set(election.techniques) - {"tradeoff"}


def test_a_population_of_ones_own_is_answered_in_words(armillary_here: Command, tmp_path: Path) -> None:
    path, options = election.write_example(tmp_path)
    found = armillary_here("compare", "runtime/election", "--work", str(path), *(f"--{k}={v}" for k, v in options.items()))
    assert found.returncode == 0
    assert "has right ranks first, after" in found.stdout
    assert "Every run came to right ranks." in found.stdout.replace("\n", " ")


def test_states_come_back_from_a_file_and_a_schedule_is_replayed(armillary_here: Command, tmp_path: Path) -> None:
    protocol = Tradeoff(rho=3).protocol(20)
    population = protocol.random_state(stream(0, "file"))
    write_agents(population, protocol, tmp_path / "states.parquet")
    again = read_agents(tmp_path / "states.parquet", protocol)
    assert (again.agents == population.agents).all()
    assert (again.memory == population.memory).all()
    first, second = (np.concatenate(column) for column in zip(*recorded(20, 60_000, stream(1, "file"))))
    pl.DataFrame({"initiator": first, "responder": second}).write_parquet(tmp_path / "meetings.parquet")
    found = armillary_here(
        "compare", "runtime/election", "--work", str(tmp_path / "states.parquet"), "--technique", "tradeoff", "--rho", "3",
        "--schedule", str(tmp_path / "meetings.parquet"), "--techniques", "tradeoff,tree",
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
    assert "tree: the file has the variables of tradeoff" in found.stdout.replace("\n", " ")


def test_the_simulated_population_can_be_looked_at() -> None:
    found = simulate(Tree(), 32, "all-one", seed=4)
    assert isinstance(found.population, Population)
    assert found.trajectory[0] == (0.0, 0)
    assert found.trajectory[-1][1] == 32


@pytest.mark.parametrize(
    ("content", "options", "said"),
    [
        ("rank\n1\n", [], "found one agent; expected at least two"),
        ("rank\n1\n0\n", [], 'x.csv:3: column "rank"'),
        ("rank\n1\n7\n", [], 'x.csv:3: column "rank": found 7; expected a rank from 1 to 2'),
        ("rank\n1\nx\n", [], 'x.csv:3: column "rank"'),
        ("ranks\n1\n2\n", [], "rank"),
        ("rank\n1\n2\n", ["--schedule", "y.csv"], "y.csv:3"),
        ("role,main,extra,candidate\n0,1,0,0\n0,2,0,9\n", ["--technique", "tree"], 'x.csv:3: column "candidate"'),
        ("role,main\n0,1\n0,2\n", ["--technique", "tree"], "extra"),
        ("role,main\n0,1\n0,2\n", ["--technique", "oak"], "oak"),
        ("rank\n1\n2\n", ["--runs", "0"], "runs"),
    ],
)
def test_a_wrong_file_is_one_line(armillary_here: Command, tmp_path: Path, content: str, options: list[str], said: str) -> None:
    (tmp_path / "x.csv").write_text(content)
    (tmp_path / "y.csv").write_text("initiator,responder\n0,1\n1,1\n")
    options = [str(tmp_path / one) if one.endswith(".csv") else one for one in options]
    found = armillary_here("compare", "runtime/election", "--work", str(tmp_path / "x.csv"), *options)
    assert found.returncode == 2
    assert said in found.stderr
    assert found.stderr.count("\n") == 1
