"""Exchanges of live ranks, on every MPI library that is here: against NumPy's padding, by hand, and what is refused."""

from __future__ import annotations

import pytest

from armillary import comm
from armillary.comm import RankFailed
from armillary.network.halo.measuring.measured import STRATEGIES, Measured, Strategy, measure

LIBRARIES = [one.name for one in comm.libraries()] if not comm.backends()["mpi"] else []
pytestmark = pytest.mark.skipif(not LIBRARIES, reason="found no MPI library")
OTHERS = [pytest.param(name, marks=pytest.mark.slow) for name in LIBRARIES[1:]]
FIRST_AND_OTHERS = [*LIBRARIES[:1], *OTHERS]
WORK = {"application": "image", "shape": [24, 20], "decomposition": [1, 2], "steps": 5, "exchanges": 2}


def on_mpi(program, *args, ranks, library=None):
    found = comm.run(f"halo_programs:{program}", *args, ranks=ranks, backend="mpi", library=library or LIBRARIES[0], timeout=120)
    return found.values


@pytest.mark.parametrize("library", FIRST_AND_OTHERS)
@pytest.mark.parametrize("ranks", [1, pytest.param(2, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.slow), 4])
def test_every_exchange_is_numpys_padding(library, ranks):
    fallen = on_mpi("against_padding", 1000 + ranks, 120, ranks=ranks, library=library)
    assert len(set(fallen)) == 1, "all ranks fall back together"
    if library == "mpich":
        assert fallen[0] == 0


def test_one_rank_by_hand():
    assert on_mpi("alone", ranks=1) == ["right"]


@pytest.mark.parametrize(("library", "call"), [("openmpi", "neighbourhood-persistent"), ("impi", "neighbourhood")])
@pytest.mark.slow
def test_known_faults_of_libraries_are_found(library, call):
    if library not in LIBRARIES:
        pytest.skip(f"{library} is not here; list its prefix in ARMILLARY_MPI")
    found = measure([WORK], [Strategy("datatype", call), Strategy("datatype", "p2p")], library=library, ranks=2, rounds=3)[0]
    assert "wrong side" in found[Strategy("datatype", call)].fault
    assert not found[Strategy("datatype", "p2p")].fault


def test_what_cannot_be_exchanged_is_refused_on_all_ranks():
    first, second = on_mpi("refusals", ranks=2)
    assert first == second
    for said, words in zip(
        first,
        (
            "rank 1, dimension 0: found 3 cells", "rank 0, dimension 0: found a halo of width 2 around 1 cells", "expected a product of 2",
            "expected numbers, because objects", "expected faces of one size", "expected float64 of shape [8, 8]", "found partitioned",
            "found diagonal with a neighbourhood call",
        ),
    ):  # fmt: skip
        assert words in said


def test_many_plans_keep_no_memory():
    assert on_mpi("many_plans", 10_000, ranks=1)[0] < 4.0


def test_tuning_is_remembered():
    found = on_mpi("tuned", ranks=2)
    before, after, table = found[0]
    assert before == ("packed", "p2p")
    assert tuple(after) == tuple(table[0])
    assert len(table) == 9
    assert found[0] == found[1]


def test_a_cartesian_communicator_brings_its_decomposition():
    assert on_mpi("on_a_cartesian_communicator", ranks=2) == [[1, 0, 0, 1], [0, 1, 1, 0]]


def test_every_code_is_that_of_one_rank_under_every_strategy():
    works = [{**WORK, "application": name, "decomposition": split} for name in ("cfd", "life", "image") for split in ([1, 2], [2, 1])]
    works.append({**WORK, "application": "life", "dtype": "i4"})
    found = measure(works, STRATEGIES, library=LIBRARIES[0], ranks=2, rounds=3)
    assert [len(table) for table in found] == [9] * 7
    assert all(cell.ratio > 0 and cell.step > 0 and len(cell.own) == 3 for table in found for cell in table.values())


def test_wrong_halos_fail_before_anything_is_timed():
    cell = [Strategy("packed", "p2p").given()]
    with pytest.raises(RankFailed, match="halos differ"):
        on_mpi("broken", [WORK], cell, 3, ranks=2)


def test_the_ratio_is_the_median_of_the_rounds_own_ratios():
    measured = Measured((1.0, 4.0, 3.0), (2.0, 4.0, 1.0), 0.0)
    assert measured.ratio == 1.0
    assert measured.median == 3.0
    assert measured.noisy
    assert not Measured((1.0, 1.1, 1.05), (1.0, 1.0, 1.0), 0.0).noisy
