"""The bound holds for every value, whatever the values are, and the bytes depend on nothing but them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from armillary.compression import fields as fz
from armillary.compression.fields.pipeline.container import extents
from armillary.compression.fields.pipeline.fz import violators
from armillary.compression.fields.pipeline.pipeline import NAMED, Pipeline
from armillary.compression.fields.stages.bounds import absolute_bound, finite_span
from armillary.compression.fields.stages.stage import Context
from armillary.errors import InputError

MORE = (
    "range -> lorenzo(block=True, radius=16) -> fixed-width(16)",
    "range -> lorenzo -> bitshuffle -> rze",
    "range -> interp(alpha=1.5, beta=2.0, cubic=False, radius=64) -> store",
)
ALL = (*NAMED, *MORE)
SHAPES = [(0,), (1,), (7,), (300,), (5, 9), (33, 17), (1, 40), (40, 1), (3, 4, 5), (9, 17, 10), (2, 5, 3, 4), (3, 1, 1, 8)]
AWKWARD = [float("nan"), float("inf"), -float("inf"), -0.0, 1e-45, 5e-324, 1e38, -3e38, 1.7e308, 2.0**30, 0.1]


def assert_within(x: np.ndarray, y: np.ndarray, mode: str, eps: float) -> None:
    assert (y.shape, y.dtype) == (x.shape, x.dtype)
    assert violators(x.reshape(-1), y.reshape(-1), mode, eps).size == 0


def through(pipeline: str, x: np.ndarray, eps: float, threads: int = 1) -> np.ndarray:
    """By the stages alone, so that a chunk that would be stored is coded all the same."""
    chain = Pipeline.of(pipeline)
    ctx = Context(extents(x.shape), x.dtype, "abs", eps, None, threads)
    return chain.inverse(ctx, chain.forward(ctx, x.reshape(-1))).reshape(x.shape)


def arrays(dtype: type) -> st.SearchStrategy[np.ndarray]:
    width = 32 if dtype is np.float32 else 64
    odd = st.sampled_from([float(dtype(v)) for v in AWKWARD if width == 64 or abs(v) < 3.4e38 or v != v or abs(v) == float("inf")])
    elements = st.one_of(st.floats(width=width), st.floats(-10, 10, width=width), odd)
    return st.sampled_from(SHAPES).flatmap(lambda shape: hnp.arrays(dtype, shape, elements=elements, fill=st.floats(-1, 1, width=width)))


@pytest.mark.parametrize("pipeline", ALL)
@given(x=st.one_of(arrays(np.float32), arrays(np.float64)), eps=st.sampled_from([1e-9, 1e-3, 0.5, 1e30]), threads=st.integers(1, 2))
@settings(max_examples=40, deadline=None)
def test_every_value_is_within_an_absolute_bound(pipeline: str, x: np.ndarray, eps: float, threads: int) -> None:
    with np.errstate(all="ignore"):
        if x.size:
            assert_within(x, through(pipeline, x, eps, threads), "abs", eps)
        assert_within(x, fz.decompress(fz.compress(x, eps, "abs", pipeline, threads=threads)), "abs", eps)


@pytest.mark.parametrize("pipeline", ["default", "quality", "speed"])
@given(x=st.one_of(arrays(np.float32), arrays(np.float64)), eps=st.sampled_from([1e-6, 1e-3, 0.3]))
@settings(max_examples=40, deadline=None)
def test_every_value_is_within_relative_bounds(pipeline: str, x: np.ndarray, eps: float) -> None:
    with np.errstate(all="ignore"):
        allowed = absolute_bound("rel", eps, finite_span(x))
        assert_within(x, fz.decompress(fz.compress(x, eps, "rel", pipeline)), "abs", allowed)
        assert_within(x, fz.decompress(fz.compress(x, eps, "pw_rel", pipeline)), "pw_rel", eps)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("pipeline", ["default", "quality", "speed", "fz-fused", "cuszp-fused", "particles"])
def test_values_a_hair_from_half_way(dtype: type, pipeline: str) -> None:
    eps = 1e-3
    k = np.arange(-50_000, 50_000)
    middle = (2 * eps * (k + 0.5)).astype(dtype)
    x = np.concatenate([np.nextafter(middle, dtype(np.inf)), middle, np.nextafter(middle, dtype(-np.inf))])
    assert_within(x, through(pipeline, x, eps), "abs", eps)


@pytest.mark.parametrize("pipeline", ["default", "quality", "speed", "fz-fused", "cuszp-fused"])
@pytest.mark.parametrize("name", ["climate-T", "climate-cloud", "cosmology", "turbulence", "hurricane", "particles", "weights"])
def test_built_in_fields_at_all_bounds_and_modes(name: str, pipeline: str) -> None:
    from armillary.compression.fields.workload import shape_of

    x = fz.field(name, shape_of(name, "tiny"), np.random.default_rng(0))
    for mode, bounds in (("rel", (1e-2, 1e-4, 1e-7)), ("abs", (1.0, 1e-3)), ("pw_rel", (1e-2, 1e-5))):
        for value in bounds:
            data = fz.compress(x, value, mode, pipeline)
            assert_within(x, fz.decompress(data), mode, absolute_bound(mode, value, finite_span(x)))
            assert len(data) <= 1.02 * x.nbytes + 1000


@pytest.mark.parametrize("pipeline", ALL)
def test_threads_do_not_change_a_byte(pipeline: str) -> None:
    for shape in ((70_000,), (150, 500), (20, 60, 70)):
        x = np.cumsum(np.random.default_rng(1).normal(size=shape), axis=-1).astype(np.float32)
        one, two = (fz.compress(x, 1e-3, "rel", pipeline, threads=threads) for threads in (1, 3))
        assert one == two
        assert np.array_equal(fz.decompress(one, threads=1), fz.decompress(one, threads=3))


@pytest.mark.parametrize("pipeline", ["default", "speed", "fz-fused", "cuszp-fused", "particles"])
def test_what_came_back_compresses_to_the_same_bytes(pipeline: str) -> None:
    x = fz.field("turbulence", (16, 20, 24), np.random.default_rng(2))
    once = fz.compress(x, 0.25, "abs", pipeline)
    assert fz.compress(fz.decompress(once), 0.25, "abs", pipeline) == once


@pytest.mark.parametrize("name", ["turbulence", "hurricane", "climate-T", "particles"])
def test_tuned_values_that_came_back_compress_to_the_same_bytes(name: str) -> None:
    shape = {"climate-T": (90, 120), "particles": (20_000,)}.get(name, (20, 30, 40))
    x = fz.field(name, shape, np.random.default_rng(2))
    eps = 1e-3 * float(x.max() - x.min())
    once = fz.compress(x, eps, "abs", "quality")
    assert fz.compress(fz.decompress(once), eps, "abs", "quality") == once


def smooth_fields() -> dict[str, np.ndarray]:
    z, y, x = np.meshgrid(*(np.linspace(0, 1, n) for n in (48, 64, 64)), indexing="ij")
    t = np.linspace(0, 1, 1 << 17)
    return {
        "waves": np.sin(9 * x * y) + np.cos(7 * z + 3 * x) * y, "hill": np.exp(-20 * ((x - 0.5) ** 2 + (y - 0.4) ** 2 + (z - 0.6) ** 2)),
        "plane": np.sin(20 * x[0] * y[0]) + np.cos(17 * x[0] + 3 * y[0]), "chirp": np.sin(300 * t * t),
    }  # fmt: skip


@pytest.mark.slow
def test_quality_is_near_sz3_on_very_smooth_fields() -> None:
    """Edges that are copied and anchors every eighth point once cost a third of the ratio here."""
    pytest.importorskip("pysz")
    from armillary.compression.fields.sz3 import Sz3

    logs = []
    for field in smooth_fields().values():
        x = field.astype(np.float32)
        eps = 1e-2 * float(x.max() - x.min())
        logs.append(np.log(len(Sz3().pack(x, eps)) / len(fz.compress(x, eps, "abs", "quality"))))
    assert np.exp(np.mean(logs)) > 0.9


def test_interpolated_values_stay_within_twice_the_bound_when_compressed_again() -> None:
    x = fz.field("turbulence", (16, 20, 24), np.random.default_rng(2))
    once = fz.decompress(fz.compress(x, 0.25, "abs", "range -> interp -> huffman"))
    assert np.array_equal(fz.decompress(fz.compress(once, 0.25, "abs", "range -> interp -> huffman")), once)


def test_transposing_does_not_hurt_the_bound() -> None:
    x = fz.field("hurricane", (12, 30, 40), np.random.default_rng(3))
    for pipeline in ("default", "quality", "speed"):
        for turned in (x.T, x.transpose(1, 0, 2), x[::-1], x[:, ::2]):
            assert_within(np.ascontiguousarray(turned), fz.decompress(fz.compress(turned, 1e-3, "abs", pipeline)), "abs", 1e-3)


@pytest.mark.parametrize("pipeline", ["range -> lorenzo(block=True) -> huffman", "default", "speed"])
def test_chunks_give_the_same_values_as_the_whole(pipeline: str) -> None:
    for shape in ((5000,), (64, 100), (40, 16, 16), (3, 20, 10, 10)):
        x = np.cumsum(np.random.default_rng(4).normal(size=shape), axis=0).astype(np.float32)
        whole, cut = fz.compress(x, 1e-3, "rel", pipeline), fz.compress(x, 1e-3, "rel", pipeline, chunk_bytes=8192)
        assert np.array_equal(fz.decompress(whole), fz.decompress(cut))


@pytest.mark.parametrize("pipeline", ["default", "quality", "speed", "fz-fused", "cuszp-fused"])
def test_a_constant_field_is_nearly_nothing(pipeline: str) -> None:
    x = np.full((128, 128, 128), 3.25, np.float32)
    data = fz.compress(x, 1e-3, "abs", pipeline)
    assert x.nbytes / len(data) > 8000
    assert np.array_equal(fz.decompress(data), x)


@pytest.mark.slow
def test_a_constant_field_of_512_cubed() -> None:
    x = np.full((512, 512, 512), 3.25, np.float32)
    for pipeline in ("default", "speed"):
        assert x.nbytes / len(fz.compress(x, 1e-3, "abs", pipeline)) > 1e4


@pytest.mark.parametrize("bound", [5e-324, 1e-320])
def test_the_smallest_bounds_are_kept_by_levels_too(bound: float) -> None:
    x = np.linspace(0, 1e-320, 700)
    assert np.abs(fz.decompress(fz.compress(x, bound, "abs", "quality")) - x).max() <= bound


def test_noise_at_a_tight_bound_is_stored() -> None:
    x = np.random.default_rng(5).normal(size=(64, 64, 64)).astype(np.float32)
    for pipeline in ("default", "quality", "speed"):
        assert len(fz.compress(x, 1e-7, "rel", pipeline)) <= 1.02 * x.nbytes


def test_a_psnr_is_reached() -> None:
    from armillary.compression.fields.advice.metrics import errors

    x = fz.field("turbulence", (32, 40, 40), np.random.default_rng(6))
    for target in (50.0, 80.0):
        reached = errors(x, fz.decompress(fz.compress(x, target, "psnr", "default")))[1]
        assert target - 0.5 <= reached <= target + 3


def test_tuning_never_costs_much_and_default_plan_is_plain() -> None:
    x = fz.field("hurricane", (32, 48, 48), np.random.default_rng(7))
    plain = len(fz.compress(x, 1e-3, "rel", "range -> interp -> huffman -> zstd"))
    tuned = len(fz.compress(x, 1e-3, "rel", "range -> interp(tune=True) -> huffman -> zstd"))
    assert tuned <= 1.02 * plain


ONES = np.ones(3, np.float32)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        *(((ONES, value), "expected a positive finite number") for value in (0, -1, float("nan"), float("inf"), "much")),
        ((np.ones(3, np.int64),), "int64; expected float32 or float64"),
        ((np.ones(3, np.complex128),), "complex128"),
        ((np.ones((1, 1, 1, 1, 2)),), "5 dimensions; expected 1 to 4"),
        ((ONES, 1e-3, "relative"), "unknown error bound mode"),
        ((ONES, 1.5, "pw_rel"), "pw_rel bound below 1"),
        ((ONES, 0.1, "pw_rel", "range -> lorenzo -> huffman"), "no `log` stage"),
        ((np.arange(3.0), 0.1, "pw_rel", "range -> log -> interp(alpha=1.5, beta=2.0) -> huffman"), "differ by level"),
    ],
)
def test_bad_bounds_arrays_and_modes(arguments: tuple[Any, ...], says: str) -> None:
    with pytest.raises(InputError, match=says):
        fz.compress(*arguments)


def test_torch_tensors_come_back_as_tensors() -> None:
    torch = pytest.importorskip("torch")
    x = torch.linspace(0, 1, 1000).reshape(10, 100)
    y = fz.decompress(fz.compress(x, 1e-3, "abs"), like=x)
    assert isinstance(y, torch.Tensor)
    assert float((x - y).abs().max()) <= 1e-3


def test_big_endian_and_read_only_arrays() -> None:
    x = np.linspace(0, 1, 500).astype(">f4")
    x.flags.writeable = False
    assert np.max(np.abs(fz.decompress(fz.compress(x, 1e-3, "abs")) - x)) <= 1e-3
