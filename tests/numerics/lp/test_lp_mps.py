"""Tests of what MPS files mean, and of where they are wrong."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

import armillary
from armillary.errors import InputError
from armillary.numerics.lp import HighsSimplex, LinearProgram, read_mps, solve, write_solution
from armillary.numerics.lp.arena import lp as lp_arena

INF = np.inf
WHOLE = """\
* a remark
NAME          SMALL
ROWS
 N  COST
 L  LIM1
 G  LIM2
 E  MYEQN
COLUMNS
    X1        COST               1.0   LIM1               1.0
    X1        LIM2               1.0
    X2        COST               2.0   LIM1               1.0
    X2        MYEQN             -1.0
    X3        COST              -1.0   MYEQN              1.0
RHS
    RHS       COST              -7.0   LIM1               4.0
    RHS       LIM2               1.0   MYEQN              7.0
RANGES
    RNG       LIM1               2.5   MYEQN              3.0
BOUNDS
 UP BND       X1                 4.0
 LO BND       X2                -1.0
 UP BND       X2                 1.0
ENDATA
"""


def read(tmp_path: Path, text: str) -> LinearProgram:
    path = tmp_path / "a.mps"
    path.write_text(text)
    return read_mps(path)


def test_a_whole_file(tmp_path: Path) -> None:
    assert read(tmp_path, WHOLE.replace("NAME          SMALL\n", "")).name == ""
    lp = read(tmp_path, WHOLE)
    assert (lp.name, lp.rows, lp.columns) == ("SMALL", ("LIM1", "LIM2", "MYEQN"), ("X1", "X2", "X3"))
    assert lp.matrix.toarray().tolist() == [[1, 1, 0], [1, 0, 0], [0, -1, 1]]
    assert lp.cost.tolist() == [1, 2, -1]
    assert lp.row_lower.tolist() == [1.5, 1, 7]
    assert lp.row_upper.tolist() == [4, INF, 10]
    assert lp.lower.tolist() == [0, -1, 0]
    assert lp.upper.tolist() == [4, 1, INF]
    assert lp.constant == 7.0
    assert lp.objective(np.zeros(3)) == 7.0


def test_packed_files_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.mps.gz").write_bytes(gzip.compress(WHOLE.encode()))
    assert read_mps(tmp_path / "a.mps.gz").name == "SMALL"


def bounded(bounds: str, columns: str = "    X  C  1.0  R  1.0\n    Y  C  1.0  R  1.0\n") -> str:
    return f"NAME A\nROWS\n N C\n G R\nCOLUMNS\n{columns}RHS\n    R R 1.0\nBOUNDS\n{bounds}ENDATA\n"


@pytest.mark.parametrize(
    ("line", "low", "high"),
    [
        (" UP B X 3", 0, 3), (" UP B X -3", -INF, -3), (" UP B X 0", 0, 0), (" LO B X -2\n UP B X -1", -2, -1), (" LO B X 2", 2, INF),
        (" FX B X 5", 5, 5), (" FR B X", -INF, INF), (" MI B X", -INF, INF), (" MI B X\n UP B X 4", -INF, 4), (" PL B X", 0, INF),
        (" BV B X", 0, 1), (" UI B X 7", 0, 7), (" LI B X 2", 2, INF), (" UP X 3", 0, 3), (" FR X", -INF, INF),
        (" UP B X 3\n UP OTHER X 9", 0, 3),
    ],
)  # fmt: skip
def test_bounds(tmp_path: Path, line: str, low: float, high: float) -> None:
    lp = read(tmp_path, bounded(line + "\n"))
    assert (lp.lower[0], lp.upper[0]) == (low, high)
    assert (lp.lower[1], lp.upper[1]) == (0, INF)


@pytest.mark.parametrize(
    ("kind", "span", "low", "high"), [("E", 2, 5, 7), ("E", -2, 3, 5), ("L", 2, 3, 5), ("L", -2, 3, 5), ("G", 2, 5, 7), ("G", -2, 5, 7)]
)
def test_the_signs_of_ranges(tmp_path: Path, kind: str, span: float, low: float, high: float) -> None:
    lp = read(tmp_path, f"NAME A\nROWS\n N C\n {kind} R\nCOLUMNS\n X C 1 R 1\nRHS\n S R 5\nRANGES\n S R {span}\nENDATA\n")
    assert (lp.row_lower[0], lp.row_upper[0]) == (low, high)


def test_senses_markers_free_rows_and_repeats(tmp_path: Path) -> None:
    text = """\
NAME
OBJSENSE
    MAX
ROWS
 N  C
 N  OTHER
 L  R
COLUMNS
    M1        'MARKER'                 'INTORG'
    X         C         1   R         1
    X         OTHER     5
    M2        'MARKER'                 'INTEND'
    Y         C         2   R         1
    Y         R         2
RHS
    S         R         4
ENDATA
"""
    lp = read(tmp_path, text)
    assert lp.sense == -1
    assert lp.matrix.toarray().tolist() == [[1, 3]]
    assert lp.notes == ("1 integer variables, relaxed", "1 free rows beyond the objective, dropped", "1 repeated entries, added up")
    assert HighsSimplex().solve(lp).objective == pytest.approx(4.0)
    for other, best in (("OBJSENSE MAX", 4.0), ("OBJSENSE\n    MINIMIZE", 0.0)):
        assert HighsSimplex().solve(read(tmp_path, text.replace("OBJSENSE\n    MAX", other))).objective == pytest.approx(best)
    named = read(tmp_path, text.replace("ROWS\n", "OBJNAME\n    OTHER\nROWS\n"))
    assert named.cost.tolist() == [-5, 0]


def test_names_with_blanks_in_the_fixed_form(tmp_path: Path) -> None:
    text = (
        "NAME          A\nROWS\n N  COST\n G  ROW ONE\nCOLUMNS\n"
        "    MY COL    COST               1.0   ROW ONE            1.0\n"
        "RHS\n    RHS       COST               0.0   ROW ONE            2.0\nENDATA\n"
    )
    lp = read(tmp_path, text)
    assert (lp.rows, lp.columns, lp.row_lower.tolist()) == (("ROW ONE",), ("MY COL",), [2.0])


@pytest.mark.parametrize(
    ("old", "new", "place", "says"),
    [
        (" E  MYEQN", " X  MYEQN", ":7:2", "kind of row"),
        (" E  MYEQN", " E  LIM1", ":7:5", "again"),
        ("COLUMNS", "COLUMNZ", ":8:1", "section"),
        ("X1        LIM2               1.0", "X1        LIM9               1.0", ":10:15", "LIM9"),
        ("X1        LIM2               1.0", "X1        LIM2               one", ":10:34", "expected a number"),
        ("X1        LIM2               1.0", "X1        LIM2               nan", ":10:34", "NaN"),
        ("X1        LIM2               1.0", "X1        LIM2", ":10:15", "found 2 fields"),
        ("    RHS       LIM2               1.0   MYEQN              7.0", "    RHS       LIM9               1.0", ":16:15", "LIM9"),
        (" LO BND       X2                -1.0", " LO BND       X9                -1.0", ":21:15", "X9"),
        (" LO BND       X2                -1.0", " ZZ BND       X2                -1.0", ":21:2", "kind of bound"),
        (" LO BND       X2                -1.0", " LO BND       X2                 9.0", "", "lower one"),
        ("ENDATA\n", "", ":22", "ENDATA"),
        (" N  COST", " L  COST", "", "objective"),
        ("    RNG       LIM1               2.5   MYEQN              3.0", "    RNG       COST               2.5", ":18:15", "range of the objective"),
        ("    X2        COST               2.0   LIM1               1.0", "    X1        COST               2.0\n    X0  COST 1\n    X1 COST 1", ":13:5", "again after others"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_line_and_column(tmp_path: Path, old: str, new: str, place: str, says: str) -> None:
    assert old in WHOLE
    with pytest.raises(InputError, match=says) as error:
        read(tmp_path, WHOLE.replace(old, new))
    assert f"a.mps{place}" in str(error.value)
    assert "\n" not in str(error.value)


def test_every_cut_is_refused_or_the_same(tmp_path: Path) -> None:
    whole = read(tmp_path, WHOLE)
    for end in range(len(WHOLE)):
        try:
            found = read(tmp_path, WHOLE[:end])
        except InputError:
            continue
        assert (found.matrix != whole.matrix).nnz == 0


def test_spoiled_bytes_never_give_a_traceback(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    path = tmp_path / "a.mps"
    for _ in range(400):
        data = bytearray(WHOLE.encode())
        for place in rng.integers(0, len(data), 3):
            data[place] = int(rng.integers(0, 256))
        path.write_bytes(data)
        try:
            read_mps(path)
        except InputError as error:
            assert str(error)  # noqa: PT017
    path.write_bytes(b"x" * 20_000)
    with pytest.raises(InputError, match="more than"):
        read_mps(path)


def test_solutions_are_written(tmp_path: Path) -> None:
    lp = read(tmp_path, WHOLE)
    found = solve(lp, "highs-simplex")
    write_solution(lp, found, tmp_path / "a.sol")
    lines = (tmp_path / "a.sol").read_text().splitlines()
    assert lines[0] == "# Status optimal"
    assert lines[3].split()[0] == "X1"
    assert len(lines) == 4 + 3 + 3


def test_the_arena_solves_mps_and_answers_for_one_program(tmp_path: Path) -> None:
    (tmp_path / "a.mps").write_text(WHOLE)
    result = armillary.compare("numerics/lp", work=tmp_path / "a.mps", techniques=["r2hpdhg", "highs-simplex"], repeats=1)
    assert result.medians("r2hpdhg", "solved") == {"a.mps": 1.0}
    assert lp_arena._answer(result).startswith("The first method to reach its own tolerance was ")  # type: ignore[misc]


def test_the_answer_speaks_of_no_objective_where_there_is_none(tmp_path: Path) -> None:
    (tmp_path / "no.mps").write_text(
        "NAME no\nROWS\n N C\n G LOW\n L HIGH\nCOLUMNS\n X C 1 LOW 1\n X HIGH 1\nRHS\n RHS LOW 2\n RHS HIGH 1\nENDATA\n"
    )
    result = armillary.compare("numerics/lp", work=tmp_path / "no.mps", techniques=["rram-pdhg", "highs-simplex"], repeats=1)
    said = lp_arena._answer(result)  # type: ignore[misc]
    assert "of 1 program without an optimum" in said
    assert "objective" not in said


OPTIMA = {"afiro": -464.7531, "adlittle": 225494.96, "25fv47": 5501.8459, "israel": -896644.82, "woodinfe": None, "galenet": None}


@pytest.mark.shared_data
@pytest.mark.parametrize("name", OPTIMA)
def test_netlib(shared_data: Path, name: str) -> None:
    lp = read_mps(shared_data / "mps" / f"{name}.mps")
    found = solve(lp)
    if OPTIMA[name] is None:
        assert found.status == "infeasible"
    else:
        assert found.status == "optimal"
        assert found.objective == pytest.approx(OPTIMA[name], rel=1e-4)
