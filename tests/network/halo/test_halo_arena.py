"""The arena: cases, claims, surveys, files of the user, the answer."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from armillary import comm
from armillary.arena import NotForThisCase, Outcome
from armillary.network.halo import Access
from armillary.network.halo.applications.codes import alone, code
from armillary.network.halo.arena import LIBRARIES, halo
from armillary.network.halo.measuring.measured import FOUR, STRATEGIES, Measured, Strategy, measure
from armillary.network.halo.measuring.survey import image_parts, packed_wins, rank_agreement, winners
from armillary.network.halo.readers.cases import read_case
from armillary.network.halo.views.measured import climb

Command = Callable[..., subprocess.CompletedProcess[str]]
HAS_MPI = not comm.backends()["mpi"]
CASES = {case.name: case for case in halo.built_in("small")}


def test_every_claim_has_four_cases_at_least() -> None:
    for number, _, claim in halo.claims():
        for kind in claim.kinds:
            assert sum(kind.takes(case.kinds) for case in CASES.values()) >= 4, number


def test_claims_over_rivals_name_every_technique_that_may_win() -> None:
    found = [set(claim.baselines) for _, _, claim in halo.claims(["datatype"]) if len(claim.baselines) > 2]
    assert found == [{name for name in halo.techniques if name.startswith("packed")}]
    dynamic = [set(claim.baselines) for _, _, claim in halo.claims(["dynamic-protocol"]) if len(claim.baselines) > 1]
    assert dynamic == [{"static-cached", "static-shared"}]


def test_oversubscribed_ranks_take_no_part_in_claims() -> None:
    for case in CASES.values():
        assert ("claimed" in case.kinds) == ("/2@" in case.name)
        assert ("oversubscribed" in case.kinds) == ("/4@" in case.name)


def test_measured_and_simulated_never_mix() -> None:
    packed, dynamic = halo.make("packed"), halo.make("dynamic-protocol")
    assert isinstance(halo.execute(dynamic, CASES["cfd/weak/2@mpich"]), NotForThisCase)
    assert isinstance(halo.execute(packed, CASES["miniamr/slow"]), NotForThisCase)
    assert isinstance(halo.execute(halo.make("datatype-persistent"), CASES["survey/whole"]), NotForThisCase)


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """The (library, strategies) of each job that is started; none is, and job n says that every exchange took n seconds."""
    started: list[tuple[str, int]] = []

    def run(program: str, work: Any, given: list[Any], rounds: int, **how: Any) -> Any:
        started.append((how["library"], len(given)))
        n = float(len(started))
        fault = "swapped" if n == 2 else ""
        row = {"own": [n] * rounds, "reference": [2.0] * rounds, "step": n, "fault": fault}
        if isinstance(work, dict):
            return SimpleNamespace(values=[[{**row, "step": [n] * rounds, "conversions": 7.0} for _ in given]])
        return [[[row for _ in given] for _ in work]]

    monkeypatch.setattr(comm, "run", run)
    monkeypatch.setattr(comm, "backends", lambda: {"mpi": "", "nccl": "no GPU"})
    monkeypatch.setattr(comm, "libraries", lambda: [SimpleNamespace(name=name) for name in LIBRARIES])
    return started


def test_rounds_of_several_jobs_are_put_together(jobs: list[tuple[str, int]]) -> None:
    one = STRATEGIES[0]
    assert measure([{}], [one], library="mpich", ranks=2, rounds=2, jobs=3) == [
        {one: Measured((1.0, 1.0, 2.0, 2.0, 3.0, 3.0), (2.0,) * 6, 2.0, "swapped")}
    ]
    found = climb({"device": "cpu"}, [Access()], ranks=1, rounds=1, library="mpich", jobs=2)[Access()]
    assert (found.own, found.reference, found.conversions, found.fault) == ((4.0, 5.0), (4.0, 5.0), 7.0, "")
    assert jobs == [("mpich", 1)] * 5


def test_all_techniques_of_a_case_are_measured_in_the_same_jobs(jobs: list[tuple[str, int]]) -> None:
    case = CASES["cfd/weak/2@openmpi"].at(1234, 0)
    ratios = set()
    for name in halo.techniques:
        found = halo.execute(halo.make(name), case)
        if isinstance(found, Outcome):
            ratios.add(found.values["exchange_ratio"])
    assert jobs == [("openmpi", len(STRATEGIES))] * 2
    assert ratios == {0.75}
    halo.execute(halo.make("packed", {"packer": "numba"}), case)
    assert jobs[2:] == [("openmpi", 1)] * 2, "what is set otherwise has jobs of its own"


def test_a_survey_that_is_tried_again_is_not_measured_again(jobs: list[tuple[str, int]]) -> None:
    case = CASES["survey/half"].at(1234, 0)
    found = [halo.execute(halo.make("datatype"), case) for _ in range(3)]
    assert all(isinstance(one, Outcome) and one.values["rank_agreement"] == 0.0 for one in found)
    assert [library for library, _ in jobs] == [name for name in LIBRARIES for _ in range(2)]


def even(*, datatype: float = 1.0, packed: float = 1.0) -> dict[Strategy, float]:
    return {one: datatype if one.method == "datatype" else packed for one in STRATEGIES}


def test_winners_win_clearly_and_often() -> None:
    first, second = Strategy("packed", "p2p"), Strategy("datatype", "p2p")
    table = {("cfd", "mpich", str(i)): {**even(), first: 0.9} for i in range(5)}
    table["cfd", "mpich", "5"] = {**even(), second: 0.9}
    assert winners(table) == 2
    table["cfd", "mpich", "5"] = {**even(), second: 0.96}
    assert winners(table) == 1, "4 % is no win"
    table["cfd", "mpich", "5"] = {**even(), second: 0.9}
    table["cfd", "mpich", "6"] = even()
    assert winners(table) == 1, "one of seven is less than 15 %"


def test_shares_of_pairs_and_parts_by_hand() -> None:
    one = {**even(datatype=2.0), Strategy("datatype", "p2p"): 0.5}
    assert packed_wins({("cfd", "mpich", "weak"): one, ("life", "mpich", "weak"): even(packed=9.0)}, "cfd") == 0.75
    best = {**even(), Strategy("datatype", "p2p"): 0.5}
    worse = {**even(), Strategy("datatype", "p2p"): 1.5}
    table = {("image", "mpich", "weak"): best, ("image", "impi", "weak"): best, ("image", "openmpi", "weak"): worse}
    assert image_parts(table) == (True, True, True)
    assert image_parts({**table, ("image", "openmpi", "strong"): best}) == (True, True, False)


def test_libraries_that_agree_and_disagree() -> None:
    up = {one: float(i) for i, one in enumerate(STRATEGIES)}
    down = {one: -x for one, x in up.items()}
    assert rank_agreement({("life", "a", "weak"): up, ("life", "b", "weak"): up}, "life") == 1.0
    assert rank_agreement({("life", "a", "weak"): up, ("life", "b", "weak"): down}, "life") == -1.0
    three = {("life", "a", "weak"): up, ("life", "b", "weak"): up, ("life", "c", "weak"): down}
    assert rank_agreement(three, "life") == pytest.approx(-1 / 3)
    assert len(FOUR) == 4


def test_a_glider_moves_by_one_cell_in_four_steps() -> None:
    import dataclasses

    import numpy as np

    a = np.zeros((10, 10), np.uint8)
    a[2:5, 2:5] = [[0, 1, 0], [0, 0, 1], [1, 1, 1]]
    one = dataclasses.replace(code("life"), start=lambda shape: a.copy())
    assert np.array_equal(alone(one, (8, 8), 4), np.roll(a[1:-1, 1:-1], (1, 1), (0, 1)))
    assert np.array_equal(alone(one, (8, 8), 32), a[1:-1, 1:-1]), "around the torus in 32 steps"


def test_the_flow_is_its_walls_and_jacobis_mean() -> None:
    import numpy as np

    one = code("cfd")
    a = one.start((6, 12))
    inside = alone(one, (6, 12), 1)
    wanted = (a[:-2, 1:-1] + a[2:, 1:-1] + a[1:-1, :-2] + a[1:-1, 2:]) / 4
    assert np.array_equal(inside, wanted)
    assert a.max() == 2.0, "what flows in"


@pytest.mark.skipif(not HAS_MPI, reason="found no MPI library")
def test_a_case_of_ones_own_is_measured_and_answered(armillary_here: Command, tmp_path: Path) -> None:
    path, options = halo.write_example(tmp_path)
    given = [f"--{name}={value}" for name, value in options.items()]
    found = armillary_here(
        "compare", "network/halo", "--work", str(path), *given, "--techniques", "packed,datatype", "--repeats", "1"
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
    assert "times the loop by hand" in found.stdout.replace("\n", " ")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("shape = [8, 8]\ndecomposition = [4, 1]\nhalo = 3", "rank 0, dimension 0: found a halo of width 3 around 2 cells"),
        ("shape = [8, 8]\ndecomposition = [2]", "decomposition: found [2]; expected 2 numbers"),
        ("shape = [8, 8]\ndecomposition = [16, 16]", "at most 64 ranks"),
        ('shape = [8, 8]\ndecomposition = [1, 2]\ndtype = "object"', 'because objects have no bytes'),
        ('shape = [8, 8]\ndecomposition = [1, 2]\ndtype = "flaot"', "expected a type of NumPy"),
        ("shape = [1, 8]\ndecomposition = [2, 1]", "rank 0, dimension 0: found 2 cells with the halo"),
        ("shape = [0, 8]\ndecomposition = [1, 1]", "shape: found 0; expected whole numbers from 1"),
        ("shape = [8, 8]\ndecomposition = [1, 1]\nperiodic = [true]", "periodic: found [True]; expected 2 times"),
        ("shape = [8, 8]\ndecomposition = [1, 1]\nstencil = \"cross\"", "unknown stencil"),
        ("shape = [8, 8]\ndecomposition = [1, 1]\norder = \"K\"", "unknown order"),
        ("shape = [8, 8]\ndecomposition = [1, 1]\nfields = 17", "fields: found 17"),
        ("shape = [8, 8]\ndecomposition = [1, 1]\ncolour = 1", "unknown key"),
        ("shape = [16000000, 16000000]\ndecomposition = [1, 1]", "at most 700 MB"),
        ("shape = [8, 8, 8, 8]\ndecomposition = [1, 1, 1, 1]", "expected 1 to 3"),
        ("decomposition = [1, 1]", "shape: found None"),
        ("shape = [8,", "found no TOML"),
    ],
)
def test_a_wrong_case_is_refused_in_one_line(tmp_path: Path, content: str, said: str) -> None:
    from armillary.errors import InputError

    (tmp_path / "x.toml").write_text(content)
    with pytest.raises(InputError) as error:
        read_case(tmp_path / "x.toml")
    assert said in str(error.value)
    assert str(error.value).startswith(str(tmp_path / "x.toml"))
    assert "\n" not in str(error.value)


def test_a_wrong_case_ends_the_command(armillary_here: Command, tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text("shape = [8, 8]\ndecomposition = [4, 1]\nhalo = 3\n")
    found = armillary_here("compare", "network/halo", "--work", str(tmp_path / "x.toml"))
    assert found.returncode == 2
    assert "rank 0, dimension 0" in found.stderr
    assert found.stderr.count("\n") == 1
