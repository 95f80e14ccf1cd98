"""Tests of the metrics, of the files that are read, and of the advice."""

from __future__ import annotations

import importlib
import time
from pathlib import Path

import numpy as np
import pytest

from armillary.compression import fields as fz
from armillary.compression.fields.advice.metrics import errors, overall_speedup, radial_spectrum, spectrum_error, ssim
from armillary.compression.fields.arena import fields
from armillary.compression.fields.readers.field_files import dimensions_in_name
from armillary.compression.fields.stages.stage import Context
from armillary.compression.fields.workload import FIELDS, shape_of
from armillary.errors import InputError


def test_speedup_by_hand() -> None:
    # 1 GB over 1 GB/s in 1 s; at ratio 4 and 2 GB/s: 0.25 s + 0.5 s, and 0.5 s more to decompress.
    assert overall_speedup(1e9, 4, 2e9) == pytest.approx(1 / 0.75)
    assert overall_speedup(1e9, 4, 2e9, 2e9) == pytest.approx(1 / 1.25)


def test_metrics_by_hand() -> None:
    x = np.array([[0.0, 1.0], [2.0, 4.0]])
    assert errors(x, x + np.array([[0, 0.4], [0, 0]])) == (pytest.approx(0.4), pytest.approx(20 * np.log10(4 / 0.2)), pytest.approx(0.05))
    assert errors(x, x)[1] == float("inf")
    rng = np.random.default_rng(0)
    y = rng.normal(size=(40, 40))
    assert ssim(y, y) == pytest.approx(1.0)
    assert ssim(y, rng.normal(size=(40, 40))) < 0.3
    wave = np.cos(2 * np.pi * 3 * np.arange(64) / 64)
    assert np.argmax(radial_spectrum(wave)) + 1 == 3
    assert spectrum_error(radial_spectrum(y), radial_spectrum(0.9 * y)) == pytest.approx(0.19, rel=1e-6)


def test_a_broken_bound_is_a_failure() -> None:
    case = next(iter(fields.built_in("tiny"))).at(0, 0)

    class Careless(fz.FzmodSpeed):
        def pack(self, x: np.ndarray, eps: float, threads: int = 2) -> bytes:
            return super().pack(x, 1.1 * eps, threads)

    with pytest.raises(ArithmeticError, match="the bound does not hold"):
        fields.execute(Careless(), case)


@pytest.mark.parametrize(
    ("name", "found"),
    [("CLDHGH_1_1800_3600.f32", (1800, 3600)), ("Uf48_100x500x500.dat", (100, 500, 500)), ("density.f32", None), ("x_77.f64", (77,))],
)  # fmt: skip
def test_dimensions_stand_in_the_name(name: str, found: tuple[int, ...] | None) -> None:
    assert dimensions_in_name(name) == found


def test_files_of_every_kind_are_read(tmp_path: Path) -> None:
    x = np.random.default_rng(1).normal(size=(6, 10)).astype(np.float32)
    x.tofile(tmp_path / "t_6_10.f32")
    x.tofile(tmp_path / "t.dat")
    x.astype(np.float64).tofile(tmp_path / "t_1_6_10.d64")
    np.save(tmp_path / "t.npy", x)
    assert np.array_equal(fz.read_field(tmp_path / "t_6_10.f32"), x)
    assert np.array_equal(fz.read_field(tmp_path / "t.dat", "6x10"), x)
    assert np.array_equal(fz.read_field(tmp_path / "t_1_6_10.d64"), x.astype(np.float64))
    assert np.array_equal(fz.read_field(tmp_path / "t.npy"), x)
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "t.h5", "w") as file:
        file["g/x"], file["g/n"] = x, np.arange(3)
    assert np.array_equal(fz.read_field(f"{tmp_path / 't.h5'}:/g/x"), x)
    assert np.array_equal(fz.read_field(tmp_path / "t.h5"), x)
    zarr = pytest.importorskip("zarr")
    zarr.save_array(str(tmp_path / "t.zarr"), x)
    assert np.array_equal(fz.read_field(tmp_path / "t.zarr"), x)


@pytest.mark.parametrize(
    ("name", "content", "shape", "says"),
    [
        ("a_6_10.f32", bytes(200), None, "found 200 bytes; shape (6, 10) of float32 needs 240"), ("a.npy", b"junk", None, "not an array"),
        ("a.txt", b"1 2", None, "ending"), ("a.h5", b"junk", None, "not an HDF5 file"), ("a.zarr", b"junk", None, "not a Zarr array"),
        ("a.f32", b"", None, "found 0 bytes"), ("a.f32", bytes(240), "6x11", "needs 264"), ("a.f32", bytes(240), "axb", "expected 1 to 4 positive"),
        ("a.f32", bytes(240), "1x1x1x2x30", "expected 1 to 4 positive"), ("a.f32", bytes(240), "0x5", "positive"),
    ],
)  # fmt: skip
def test_bad_files_and_shapes_are_told_in_one_line(tmp_path: Path, name: str, content: bytes, shape: str | None, says: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError) as caught:
        fz.read_field(tmp_path / name, shape)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_hdf5_file_is_closed_after_it_was_read_or_refused(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    file = tmp_path / "x.h5"
    with h5py.File(file, "w") as out:
        out["a"], out["b"] = np.ones((4, 5), np.float32), np.ones(3, np.float32)
        out.create_dataset("huge", shape=(1 << 40,), dtype=np.float32, chunks=(1 << 10,))
    for dataset, says in ((None, "3 datasets of floats"), ("c", "no dataset"), ("huge", "4,398,046,511,104 bytes")):
        with pytest.raises(InputError, match=says):
            fz.read_field(file, dataset=dataset)
    assert fz.read_field(file, dataset="a").shape == (4, 5)
    with h5py.File(file, "r+") as again:  # It could not be opened for writing while a reader held it.
        again["a"][0, 0] = 2


def test_one_busy_moment_does_not_decide_the_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    from armillary.compression.fields.advice import auto as advice

    calls = []

    def sometimes_slow(*arguments: object, **options: object) -> bytes:
        calls.append(1)
        time.sleep(0.2 if len(calls) == 2 else 0.002)
        return b""

    monkeypatch.setattr(advice, "compress", sometimes_slow)
    assert advice._speed.__wrapped__("default", 1) > 80**3 * 4 / 0.1


def test_integers_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "i.npy", np.arange(5))
    with pytest.raises(InputError, match="expected float32 or float64"):
        fz.read_field(tmp_path / "i.npy")


def test_a_users_file_has_its_bandwidth_and_kinds(tmp_path: Path) -> None:
    np.ones((20, 30, 30), np.float32).cumsum(dtype=np.float32).tofile(tmp_path / "u_20_30_30.f32")
    (case,) = fields.from_file(tmp_path / "u_20_30_30.f32", {"bound": "1e-2", "bandwidth": "0.1"})
    assert (case.parameters["bandwidth"], case.kinds) == (1e8, {"file", "float32", "grid"})


def test_certificates_say_what_is_wrong() -> None:
    x = fz.field("turbulence", (16, 16, 16), np.random.default_rng(3))
    data = fz.compress(x, 1e-3, "rel")
    good = fz.certify(x, data)
    assert good.holds
    assert 0 < good.max_error <= good.bound
    assert good.spectrum_error < 0.05
    assert good.gradient_error < 0.2
    y = x.copy()
    y[3, 4, 5] += 50
    bad = fz.certify(y, data)
    assert not bad.holds
    assert bad.place == (3, 4, 5)
    y[3, 4, 5] = np.nan
    assert not fz.certify(y, data).holds
    with pytest.raises(InputError, match="the array is float32 of shape"):
        fz.certify(x[:4], data)


def test_rate_distortion_is_a_table() -> None:
    x = fz.field("hurricane", (16, 20, 20), np.random.default_rng(4))
    table = fz.rate_distortion(x, ["default", "speed"], [1e-2, 1e-3])
    assert table.shape[0] == 4
    assert (table["psnr_dB"].to_numpy()[[0, 2]] < table["psnr_dB"].to_numpy()[[1, 3]]).all()
    assert (table["ratio"].to_numpy()[[0, 2]] > table["ratio"].to_numpy()[[1, 3]]).all()


def test_advice_for_ratio_and_link() -> None:
    x = fz.field("turbulence", (48, 64, 64), np.random.default_rng(5))
    advice = fz.auto(x, 1e-2, objective="ratio")
    true = x.nbytes / len(fz.compress(x, 1e-2, "rel", advice.pipeline))
    assert advice.ratio == pytest.approx(true, rel=0.1)
    assert advice.ratio == max(ratio for ratio, _ in advice.estimates.values())
    slow = fz.auto(x, 1e-2, objective="link", bandwidth=1e5)
    assert slow.name == advice.name
    fast = fz.auto(x, 1e-2, objective="link", bandwidth=1e13)
    assert fast.estimates[fast.name][1] == max(speed for _, speed in fast.estimates.values())
    with pytest.raises(InputError, match="bandwidth"):
        fz.auto(x, objective="link")


def test_fields_depend_on_their_seed_alone() -> None:
    one, two = (fz.field("cosmology", (8, 9, 10), np.random.default_rng(6)) for _ in range(2))
    assert np.array_equal(one, two)
    assert one.min() > 0
    cloud = fz.field("climate-cloud", (60, 80), np.random.default_rng(7))
    assert (cloud.min(), cloud.max()) == (0, 1)


def test_the_sample_comes_from_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    auto = importlib.import_module("armillary.compression.fields.advice.auto")
    monkeypatch.setattr(auto, "LEAST", 1 << 21)
    for shape in ((1, 1, 2048, 2048), (1, 256, 256, 256), (4, 1, 1024, 1024)):
        places = np.arange(np.prod(shape), dtype=np.float64)
        blocks = auto._sample(Context(shape, places.dtype), places)
        middles = blocks[:, blocks.shape[1] // 2, blocks.shape[2] // 2, blocks.shape[3] // 2].astype(int)
        corners = {tuple(2 * c // n for c, n in zip(at, shape, strict=True)) for at in zip(*np.unravel_index(middles, shape), strict=True)}
        assert len(corners) >= 0.75 * np.prod([min(n, 2) for n in shape])


@pytest.mark.slow
def test_nine_of_ten_estimates_are_within_a_tenth() -> None:
    auto = importlib.import_module("armillary.compression.fields.advice.auto")
    near = []
    for name in FIELDS:
        x = fz.field(name, shape_of(name, "small"), np.random.default_rng(2))
        for bound in (1e-2, 1e-3, 1e-4):
            eps = bound * (float(x.max()) - float(x.min()))
            sizes = {text: len(fz.compress(x, eps, "abs", text, threads=2)) for text in auto.CANDIDATES.values()}
            near += [abs(auto.estimated_ratio(x, eps, text, 2) * size / x.nbytes - 1) <= 0.1 for text, size in sizes.items()]
    assert np.mean(near) >= 0.9
