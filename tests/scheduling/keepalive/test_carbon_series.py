"""Carbon intensities: files, gaps, integrals."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from armillary.cluster.traces import read_trace
from armillary.errors import InputError
from armillary.scheduling.energy import Carbon, grid, idle_watts, read_carbon

OLD = "Datetime (UTC),Country,Zone Name,Zone Id,Carbon Intensity gCO₂eq/kWh (direct),Carbon Intensity gCO₂eq/kWh (LCA),Low Carbon Percentage"
NEW = "Datetime (UTC),Country,Zone name,Zone id,Carbon intensity gCO₂eq/kWh (direct),Carbon intensity gCO₂eq/kWh (Life cycle),Carbon-free energy"


def export(header: str, hours: list[tuple[int, str, str]]) -> str:
    """Electricity Maps' export of a day."""
    return "\n".join([header, *(f"2024-01-01 {h:02d}:00:00,Germany,Germany,DE,{direct},{lca},50" for h, direct, lca in hours)]) + "\n"


@pytest.mark.parametrize("header", [OLD, NEW])
def test_an_export_gives_the_intensity_that_was_asked_for(tmp_path: Path, header: str) -> None:
    path = tmp_path / "DE.csv"
    path.write_text(export(header, [(0, "100", "150"), (1, "200", "250"), (2, "300", "350")]))
    assert read_carbon(path).values.tolist() == [150, 250, 350]
    direct = read_carbon(path, "direct")
    assert direct.values.tolist() == [100, 200, 300]
    start = 1704067200.0
    assert direct.times_s[0] == start
    assert direct.end_s == start + 3 * 3600
    assert direct.grams(1000.0, start + 1800, start + 5400) == pytest.approx(0.5 * 100 + 0.5 * 200)


def test_short_gaps_are_interpolated_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "DE.csv"
    path.write_text(export(OLD, [(0, "0", "100"), (1, "0", "200"), (2, "0", ""), (5, "0", "600"), (6, "0", "700"), (7, "0", "800")]))
    carbon = read_carbon(path)
    assert carbon.interpolated == 3
    assert carbon.values.tolist() == [100, 200, 300, 400, 500, 600, 700, 800]


def test_a_table_of_our_own_is_what_a_cluster_file_takes(tmp_path: Path) -> None:
    path = tmp_path / "grid.csv"
    path.write_text("time,g_per_kwh\n2024-01-01T00:00Z,100\n2024-01-01T01:00Z,300\n2024-01-01T02:00Z,50\n")
    carbon = read_carbon(path)
    trace = read_trace("grid.csv", "carbon", {"base": tmp_path})
    same = Carbon.of(trace)
    assert carbon.times_s.tolist() == same.times_s.tolist()
    assert carbon.values.tolist() == same.values.tolist()
    start = float(carbon.times_s[0]) + 600
    assert carbon.grams(3.6e6 / 7200, start, start + 7200) == pytest.approx(trace.mean(start, 7200))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (export(OLD, [(0, "1", "1"), (1, "1", "1"), (9, "1", "1")]), "no carbon intensity for 8.0 h after 2024-01-01T01:00:00Z"),
        (export(OLD, [(0, "1", "-4"), (1, "1", "1")]), "DE.csv:2"),
        (export(OLD, [(1, "1", "1"), (0, "1", "1")]), "DE.csv:3"),
        (export(OLD, [(0, "1", "")]), "found 0 carbon intensities"),
        ("a,b\n1,2\n", "expected Electricity Maps'"),
    ],
)
def test_a_bad_series_is_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "DE.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=said):
        read_carbon(path)


def test_series_that_end_too_early_are_refused() -> None:
    hours = Carbon.hourly([1.0, 2.0])
    hours.check_covers(0.0, 7200.0, "x")
    Carbon.flat(3.0).check_covers(-1e9, 1e9, "x")
    with pytest.raises(InputError, match="x: found carbon intensities for 0 to 7,200 s"):
        hours.check_covers(0.0, 7201.0, "x")


def test_grids_stay_within_what_they_are_called() -> None:
    rng = np.random.default_rng(0)
    assert grid("flat", rng).values.tolist() == [450.0]
    sun = grid("solar-dip", rng).values
    assert sun[:24].argmin() in (11, 12)
    assert 120 <= sun.min() < 125
    assert sun.max() == 480
    wind = grid("wind-noisy", rng, 2000).values
    assert wind.min() >= 60
    assert wind.max() <= 350
    assert wind.std() > 40
    with pytest.raises(InputError, match="unknown grid"):
        grid("nuclear", rng)


def test_an_idle_pod_of_one_core_and_two_gigabytes() -> None:
    assert idle_watts(1.0, 2.0) == pytest.approx((0.74 + 2 * 0.3725) * 1.2)
