"""Real runs over ADIOS2, and the calibration's arithmetic."""

from __future__ import annotations

import numpy as np
import pytest

from armillary.network.transport.real.experiment import AS_TRANSPORT, ENGINES, Calibration, differ, in_turns, line
from armillary.network.transport.real.programs import PROGRAMS, State, analyse, laplacian, workflow_of


def test_a_line_is_found_through_noise() -> None:
    points = [(x, 0.001 + x / 1e9) for x in (1e6, 2e6, 4e6) for _ in range(3)] + [(2e6, 1.0)]
    late, rate = line(points)
    assert late == pytest.approx(0.001)
    assert rate == pytest.approx(1e9)
    assert line([(1e6, 0.1), (2e6, 0.1)])[0] == pytest.approx(0.1, rel=1e-5), "a cost that does not grow is all latency"


def test_predictions_by_hand() -> None:
    found = Calibration(1e-9, 2e-9, (0.001, 1e9), (0.002, 2e9), (0.003, 4e9), {"BP5": 0.1, "SST": 0.5})
    assert found.predict("plain", 100, AS_TRANSPORT["SST"]) == pytest.approx(0.5 + 5 * (0.003 + 8e6 / 4e9), rel=1e-9)
    files = 5 * (0.001 + 0.008) + 0.002 + 0.004
    assert found.predict("plain", 100, AS_TRANSPORT["BP5"]) == pytest.approx(0.1 + files, rel=1e-9)
    assert found.predict("heat", 100, "ideal") == pytest.approx(
        5 * 9e6 * 1e-9 + 6e6 * 2e-9 if 9e-3 >= 12e-3 else 9e-3 + 5 * 12e-3, rel=1e-9
    )


def test_engines_take_turns_and_rounds_that_differ_are_followed_by_more() -> None:
    def told(sst: list[float]) -> tuple[list[str], dict[str, list[float]]]:
        asked: list[str] = []

        def run(engine: str) -> float:
            asked.append(engine)
            return 1.0 if engine == "BP5" else sst[len(asked) // 2 - 1]

        return asked, in_turns(run, 6)

    asked, found = told([1.0] * 6)
    assert asked == [*ENGINES] * 6
    asked, found = told([1.0, 1.1, 9.0, 1.2, 1.0, 1.1, 1.0])
    assert asked == [*ENGINES] * 7, "one more round tells that the long one was alone"
    assert found["BP5"] == [1.0] * 7
    asked, found = told([1.0, 2.0] * 6)
    assert len(found["SST"]) == 12
    assert differ(found["SST"])


def test_rounds_differ_if_their_quartiles_are_far_apart() -> None:
    assert not differ([5.0]), "one round differs from nothing"
    assert differ([1.0, 1.0, 1.4]), "of three rounds the quartiles are the first and the last"
    assert not differ([1.0, 1.1, 1.2])
    assert not differ([1.0, 1.0, 1.1, 1.1, 1.2, 1.2, 9.0])


@pytest.mark.parametrize("program", ["grayscott", "pipeline", "heat"])
def test_programs_change_their_fields_and_stay_finite(program: str) -> None:
    state = State.start(program, 12)
    first = analyse(program, state.fields)
    for _ in range(20):
        state.step()
    assert analyse(program, state.fields) != first
    assert all(np.isfinite(field).all() for field in state.fields)
    assert len(state.fields) == len(PROGRAMS[program][0])
    assert workflow_of(program, 12).streams[0].variables[0].shape == (12, 12, 12)


def test_the_laplacian_of_a_square_is_constant() -> None:
    x = np.arange(6.0)
    squares = x[:, None, None] ** 2 + 0 * x[:, None] + 0 * x
    assert (laplacian(squares)[1:-1, 1:-1, 1:-1] == 2.0).all()


@pytest.mark.slow
def test_both_engines_give_the_analysis_the_same_data() -> None:
    pytest.importorskip("adios2")
    from armillary.network.transport.real.experiment import Pair

    state = State.start("heat", 12)
    expected = 0.0
    for _ in range(3):
        state.step()
        expected += analyse("heat", state.fields)
    with Pair() as pair:
        for engine in ("BP5", "SST"):
            giving, taking = pair.run("heat", 12, engine, steps=3)
            assert taking["value"] == expected
            assert giving["ended"] > giving["began"]
