"""CloverLeaf's input decks: what they say, what is wrong with them, and damaged ones."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from armillary import comm
from armillary.errors import InputError
from armillary.network.halo import read_deck
from armillary.network.halo.clover.block import block
from armillary.network.halo.clover.deck import BENCHMARK
from armillary.network.halo.readers.cases import read_case_or_deck
from armillary.network.halo.readers.clover import parse_deck
from armillary.testing.fuzzing import DAMAGES

Command = Callable[..., subprocess.CompletedProcess[str]]
#: The benchmark deck as CloverLeaf has it, with a comment and the spellings that it takes.
DECK = """*clover

 state 1 density=0.2 energy 1.0
 state 2 density=1.0 energy=2.5 geometry=rectangle xmin=0.0 xmax=5.0 ymin=0.0 ymax=2.0

 x_cells=960
 y_cells=960        ! cells across

 xmin=0.0, ymin=0.0
 XMAX=10.0
 ymax=1.0d1

 initial_timestep=0.04
 timestep_rise=1.5
 max_timestep=0.04
 end_step=87
 test_problem 2
 profiler_on ; and visit
 visit_frequency=100

*endclover
"""


def test_the_benchmark_deck_is_read_as_cloverleaf_reads_it(tmp_path: Path) -> None:
    (tmp_path / "clover.in").write_text(DECK)
    assert read_deck(tmp_path / "clover.in") == BENCHMARK


def test_what_is_left_out_is_cloverleafs_default() -> None:
    deck = parse_deck("*clover\nstate 1 density=1 energy=1\n*endclover\n", "x")
    assert (deck.x_cells, deck.xmax, deck.max_timestep, deck.end_time) == (10, 100.0, 1.0, 10.0)


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("*endclover", "", "found no *endclover"),
        ("*clover", "", "found *endclover; expected one block"),
        ("*endclover", "*end", ":21: found *end;"),
        ("x_cells=960", "x_cells=nine", ":6: x_cells: found nine; expected a whole number from 2"),
        ("x_cells=960", "x_cells=1", "x_cells: found 1; expected a whole number from 2"),
        ("x_cells=960", "x_cells=99999", "cells; expected at most 1048576 together"),
        ("x_cells=960", "x_cells", "x_cells: found nothing"),
        ("x_cells=960", "x_cell=960", 'unknown key "x_cell"'),
        ("x_cells=960", "y_cells=9\n y_cells=9", "y_cells: found it twice"),
        ("xmin=0.0, ymin", "xmin=10.0, ymin", "xmax: found 10.0; expected more than 10.0"),
        ("XMAX=10.0", "XMAX=nan", ":10: xmax: found nan; expected a number"),
        ("XMAX=10.0", "XMAX=1e200", "xmax: found 1e200; expected a number"),
        ("density=0.2", "density=-1", ":3: state 1: found density -1.0; expected more than 0"),
        ("density=0.2 ", "", "state 1: found density none"),
        ("energy=2.5", "energy=-2", "state 2: found energy -2.0; expected 0 or more"),
        ("state 2", "state 3", "found states [1, 3]; expected 1 and so on"),
        ("state 2", "state 1", "state 1: found it twice, first in line 3"),
        ("state 2", "state 2000000000", "state: found 2000000000; expected a whole number from 1 to 100"),
        ("=rectangle", "=triangle", 'unknown geometry "triangle"'),
        ("geometry", "colour", 'unknown key "colour"'),
        ("=rectangle", "=circle radius=-1", "state 2: found radius -1.0; expected 0 or more"),
        ("max_timestep=0.04", "max_timestep=0", "max_timestep: found 0.0; expected more than 0"),
        ("end_step=87", "end_step=0", "end_step: found 0; expected a whole number from 1"),
    ],
)
def test_a_wrong_deck_is_refused_in_one_line(tmp_path: Path, before: str, after: str, said: str) -> None:
    assert before in DECK
    (tmp_path / "x.in").write_text(DECK.replace(before, after, 1))
    with pytest.raises(InputError) as error:
        read_deck(tmp_path / "x.in")
    assert said in str(error.value)
    assert str(error.value).startswith(str(tmp_path / "x.in"))
    assert "\n" not in str(error.value)


def test_a_deck_that_is_too_small_for_its_ranks_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.in").write_text(DECK.replace("x_cells=960", "x_cells=3"))
    with pytest.raises(InputError, match="dimension 1: found 3 cells for 2 ranks"):
        read_case_or_deck(tmp_path / "x.in", 2)


def test_four_hundred_damaged_decks_are_accepted_or_refused() -> None:
    small = DECK.replace("960", "12").encode()
    accepted = refused = 0
    for number in range(400):
        rng = random.Random(f"deck {number}")
        data = small
        for _ in range(rng.choice((1, 1, 2))):
            data = rng.choice(DAMAGES)(data, rng) or b"*clover"
        try:
            deck = parse_deck(data.decode("utf-8", "replace"), "x.in")
        except InputError as error:
            refused += "\n" not in str(error)
            continue
        accepted += 1
        if deck.x_cells * deck.y_cells < 4096:
            fields = block(deck).start()
            assert fields["density0"].min() > 0
    assert accepted > 20
    assert accepted + refused == 400


@pytest.mark.slow
@pytest.mark.skipif(bool(comm.backends()["mpi"]), reason="found no MPI library")
def test_a_deck_of_ones_own_climbs_the_ladder(armillary_here: Command, tmp_path: Path) -> None:
    (tmp_path / "clover.in").write_text(DECK.replace("960", "16").replace("end_step=87", "end_step=2"))
    found = armillary_here(
        "compare", "network/halo", "--work", str(tmp_path / "clover.in"), "--rounds", "3", "--ranks", "2", "--repeats", "1",
        "--techniques", "convert-each-step,view-streams",
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
    assert "us per exchange of" in found.stdout.replace("\n", " ")


def test_a_wrong_deck_ends_the_command(armillary_here: Command, tmp_path: Path) -> None:
    (tmp_path / "clover.in").write_text(DECK.replace("energy=2.5", "energy=hot"))
    found = armillary_here("compare", "network/halo", "--work", str(tmp_path / "clover.in"))
    assert found.returncode == 2
    assert found.stderr.count("\n") == 1
    assert "clover.in:4: energy: found hot" in found.stderr
