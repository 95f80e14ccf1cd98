"""Cells, arrays and their bills: by hand, by law, and against NumPy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary import comm
from armillary.crossbar import Bill, Converters, Crossbar, Device, Prices, devices, program
from armillary.crossbar.cells import device
from armillary.errors import InputError

PLAIN = Device("plain", g_max=11e-6, g_min=1e-6, levels=11, write_up=2.0, write_down=-1.0, pulse=1e-6, curve_up=0.0, curve_down=0.0,
               cycle_noise=0.0, read_noise=0.0)  # fmt: skip


def random(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


# Cells


def test_programming_by_hand() -> None:
    cells = program(PLAIN, np.array([[1e-6, 4.4e-6, 11e-6]]), np.random.default_rng(0))
    np.testing.assert_allclose(cells.conductance, [[1e-6, 4e-6, 11e-6]])
    assert cells.up.tolist() == [[0, 3, 10]]
    assert cells.down.tolist() == [[0, 0, 0]]


def test_a_bent_curve_is_followed_and_corrected() -> None:
    bent = Device("bent", 11e-6, 1e-6, 11, 2.0, -1.0, 1e-6, 2.0, -2.0, 0.0)
    wanted = np.linspace(1e-6, 11e-6, 11)[None, :]
    first = program(bent, wanted, np.random.default_rng(0), verify=0)
    curve = 1e-6 + 10e-6 * (1 - np.exp(-2 * np.arange(11) / 10)) / (1 - np.exp(-2))
    np.testing.assert_allclose(first.conductance[0], curve, rtol=1e-9)
    checked = program(bent, wanted, np.random.default_rng(0), verify=20)
    # A pulse moves by up to 2.3 levels where the curve is steep, so that half a level cannot always be met.
    assert np.abs(checked.conductance - wanted).max() <= 1.2 * bent.step
    assert np.abs(checked.conductance - wanted).mean() < 0.5 * np.abs(curve - wanted[0]).mean()
    assert checked.down.sum() > 0


@pytest.mark.parametrize("name", devices())
def test_verifying_brings_cells_nearer(name: str) -> None:
    kind = device(name)
    wanted = np.random.default_rng(1).uniform(kind.g_min, kind.g_max, (60, 60))
    off = [np.abs(program(kind, wanted, np.random.default_rng(2), verify).conductance - wanted).mean() for verify in (0, 10)]
    assert off[1] < 0.8 * off[0]


def test_noise_of_pulses_has_its_law() -> None:
    noisy = Device("noisy", 11e-6, 1e-6, 101, 2.0, -1.0, 1e-6, 0.0, 0.0, cycle_noise=0.001)
    wanted = np.full((200, 200), 1e-6 + 36 * noisy.step)
    cells = program(noisy, wanted, np.random.default_rng(0), verify=0)
    assert (cells.up == 36).all()
    assert np.std(cells.conductance) == pytest.approx(0.001 * 10e-6 * 6, rel=0.03)


# Arrays


@settings(max_examples=25, deadline=None)
@given(m=st.integers(1, 40), n=st.integers(1, 40), tile=st.integers(1, 17), seed=st.integers(0, 10**6))
def test_ideal_arrays_multiply_exactly(m: int, n: int, tile: int, seed: int) -> None:
    w, x = random((m, n), seed), random((n,), seed + 1)
    bar = Crossbar(w, device("EpiRAM").ideal(), tile, Converters(None, None))
    np.testing.assert_allclose(bar.multiply(x), w @ x, rtol=1e-9, atol=1e-9)


def test_tiles_without_weights_are_not_made() -> None:
    w = np.zeros((8, 8))
    w[0, 0] = 1.0
    bar = Crossbar(w, PLAIN, tile=4)
    assert bar.tiles == 1
    assert bar.bill.cells == 1
    zero = Crossbar(np.zeros((3, 3)), PLAIN, tile=4)
    assert (zero.tiles, zero.bill.pulses) == (0, 0)
    assert zero.multiply(np.ones(3)).tolist() == [0, 0, 0]


def test_the_bill_by_hand() -> None:
    """One cell ten levels up, read once with 1 V share: a 1×1 array of one pair."""
    bar = Crossbar(np.array([[2.0]]), PLAIN, tile=1, converters=Converters(8, 8), prices=Prices(adcs_per_tile=1))
    assert bar.bill.pulses == 10
    assert bar.bill.write_joules == pytest.approx(10 * 2.0**2 * (11e-6 + 1e-6) / 2 * 1e-6)
    assert bar.bill.write_seconds == pytest.approx(10 * 1e-6)
    assert bar.multiply(np.array([3.0])) == pytest.approx(6.0)
    assert bar.bill.conversions == 8
    assert bar.bill.read_joules == pytest.approx(8 * 0.25 * 5e-9 * (11e-6 + 1e-6) + 8 * 1.67e-12 * 1.1)
    assert bar.bill.read_seconds == pytest.approx(8 * (5e-9 + 0.83e-9))
    before = bar.bill.write_joules
    for _ in range(5):
        bar.multiply(np.array([1.0]))
    assert bar.bill.write_joules == before
    assert bar.bill.reads == 6


def test_energy_is_the_sum_over_tiles() -> None:
    w = random((12, 12))
    whole = Crossbar(w, PLAIN, tile=6).bill
    parts = [Crossbar(np.where(mask, w, 0.0), PLAIN, tile=6) for mask in _quarters()]
    # Quarters have their own scale: only the one with the largest entry is written alike.
    assert whole.pulses >= max(part.bill.pulses for part in parts)
    alike = [Crossbar(np.where(mask, np.sign(w), 0.0), PLAIN, tile=6).bill for mask in _quarters()]
    assert Crossbar(np.sign(w), PLAIN, tile=6).bill.write_joules == pytest.approx(sum(bill.write_joules for bill in alike))


def _quarters() -> list[np.ndarray]:
    masks = []
    for i in (0, 6):
        for j in (0, 6):
            mask = np.zeros((12, 12), bool)
            mask[i : i + 6, j : j + 6] = True
            masks.append(mask)
    return masks


def test_conversion_bits_cost_twice_each() -> None:
    assert Prices().conversion(9) == 2 * Prices().conversion(8)
    bill = Bill()
    bill.digital(33)
    assert bill.digital_seconds == pytest.approx(2e-9)
    assert bill.digital_joules == pytest.approx(33 * 10e-12)
    assert bill.joules == bill.digital_joules


def test_correction_makes_products_better() -> None:
    w, x = random((80, 80)), random((80,), 1)
    off = [np.linalg.norm(Crossbar(w, "EpiRAM", correct=c, converters=Converters(None, None)).multiply(x) - w @ x) for c in (0, 1, 2)]
    assert off[0] > 1.5 * off[1] > 2 * off[2]


@pytest.mark.parametrize("name", devices())
def test_one_correction_helps_every_device(name: str) -> None:
    # With the worst cell's error as the range of the correction, a tile of this size gained 2.0 to 4.0 times.
    w, inputs = random((128, 128)), random((10, 128), 1)
    off = []
    for correct in (0, 1):
        bar = Crossbar(w, name, 128, correct=correct, seed=0)
        off.append(np.mean([np.linalg.norm(bar.multiply(x) - w @ x) for x in inputs]))
    assert off[0] > 4.3 * off[1]


def test_the_range_of_a_correction_by_hand() -> None:
    bar = Crossbar(np.eye(2), "EpiRAM", 2)
    # A hundred errors of 0.1 and one of 0.8, so that Σe² = 1.64: s²·1.64 + (0.8 − s)² is least for s = 0.8/2.64.
    missing = np.append(np.full(100, 0.1), -0.8)
    assert bar._correction_range(missing, last=True) == pytest.approx(0.8 / 2.64, abs=0.8 / 64)
    assert bar._correction_range(missing, last=False) == 0.8
    assert bar._correction_range(np.zeros(3), last=True) == 0.0


def test_replicate_reads_average_noise() -> None:
    loud = Device("loud", 11e-6, 1e-6, 1 << 53, 2.0, -1.0, 1e-6, 0.0, 0.0, 0.0, read_noise=0.2)
    w, x = random((64, 64)), random((64,), 1)
    bar = Crossbar(w, loud, converters=Converters(None, None))
    reads = np.array([1, 4, 16, 64])
    noise = [np.std([bar.multiply(x, int(r)) - w @ x for _ in range(60)]) for r in reads]
    assert np.polyfit(np.log(reads), np.log(noise), 1)[0] == pytest.approx(-0.5, abs=0.1)


def test_noise_by_column_has_the_law_of_noise_by_cell() -> None:
    loud = Device("loud", 11e-6, 1e-6, 1 << 53, 2.0, -1.0, 1e-6, 0.0, 0.0, 0.0, read_noise=0.2)
    w, x = random((8, 32)), np.sign(random((32,), 1))
    spread = []
    for exact in (False, True):
        bar = Crossbar(w, loud, tile=32, converters=Converters(None, None), exact_noise=exact)
        spread.append(np.std([bar.multiply(x) - w @ x for _ in range(800)], axis=0))
    np.testing.assert_allclose(spread[0], spread[1], rtol=0.15)


def test_converters_round() -> None:
    bar = Crossbar(np.eye(4), PLAIN, tile=4, converters=Converters(dac_bits=2, adc_bits=None))
    # Two bits: −1, 0 or 1 of the largest.
    assert bar.multiply(np.array([1.0, 0.6, 0.4, -0.9])).tolist() == [1.0, 1.0, 0.0, -1.0]


def program_over_ranks(ranks: comm.Communicator) -> list[float]:
    w, x = random((50, 70)), random((70,), 1)
    bar = Crossbar(w, replace(device("EpiRAM"), read_noise=0.0), tile=16, correct=1, comm=ranks, converters=Converters(None, None))
    return (bar.multiply(x) - w @ x).tolist()  # type: ignore[no-any-return]


def test_ranks_share_the_tiles_and_agree() -> None:
    loud = comm.run(program_over_ranks, ranks=3)
    assert loud[0] == loud[1] == loud[2]
    # Cells are drawn by tile, whoever has it: only the noise of reads would differ between numbers of ranks.
    alone = comm.run(program_over_ranks, ranks=1)[0]
    assert np.linalg.norm(alone) > 0.1
    np.testing.assert_allclose(loud[0], alone, atol=1e-12)


def test_same_seed_same_numbers() -> None:
    w, x = random((20, 20)), random((20,), 1)
    a, b, c = (Crossbar(w, "TaOx-HfOx", seed=s).multiply(x) for s in (1, 1, 2))
    assert (a == b).all()
    assert (a != c).any()
    assert Crossbar(w, PLAIN).as_linear_operator().shape == (20, 20)


def test_bad_input_is_refused() -> None:
    with pytest.raises(InputError, match="levels"):
        Device("x", 2e-6, 1e-6, 1, 1, 1, 1e-6, 0, 0, 0)
    with pytest.raises(InputError, match="g_min < g_max"):
        Device("x", 1e-6, 1e-6, 4, 1, 1, 1e-6, 0, 0, 0)
    for arguments, says in (
        ({"tile": 0}, "tile"),
        ({"correct": 3}, "correct"),
        ({"device": "EpiRAN"}, "did you mean"),
    ):
        with pytest.raises(InputError, match=says):
            Crossbar(np.eye(2), **arguments)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="finite"):
        Crossbar(np.array([[np.nan]]))
    with pytest.raises(InputError, match="adc_bits"):
        Converters(adc_bits=0)
    with pytest.raises(InputError, match="shape"):
        Crossbar(np.eye(2)).multiply(np.ones(3))
    with pytest.raises(InputError, match="outside"):
        program(PLAIN, np.array([1.0]), np.random.default_rng(0))
