"""Kernels for a CUDA device give the host's bytes: on one where there is one, else under Triton's interpreter."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
if DEVICE == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is imported
pytest.importorskip("triton", reason="Triton is not installed")

from armillary.compression import fields as fz  # noqa: E402
from armillary.compression.fields import gpu  # noqa: E402
from armillary.compression.fields.container import pack_chunk, read_chunk, read_chunk_head, read_head  # noqa: E402
from armillary.compression.fields.gpu import speed  # noqa: E402
from armillary.compression.fields.gpu.checksum import LANES, SEGMENT, checksums  # noqa: E402
from armillary.compression.fields.gpu.quantise_kernels import divisor  # noqa: E402
from armillary.crc32c import crc32c  # noqa: E402
from armillary.errors import InputError  # noqa: E402


@pytest.fixture(autouse=True)
def few_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter's time goes by operations, not by lanes."""
    if DEVICE == "cpu":
        monkeypatch.setattr(speed, "TILES", 8)


AWKWARD = (np.nan, np.inf, -np.inf, -0.0, 1e-45, 5e-324, 1e38, -3e38, 2.0**30, -(2.0**31), 0.1, 1e300)


def on_device(x: np.ndarray) -> Any:
    return torch.from_numpy(x).to(DEVICE)


def assert_same(x: np.ndarray, bound: float, mode: str = "abs", pipeline: str = "speed", chunk_bytes: int = 1 << 26) -> str:
    """Same file as the host's and the same values back; the methods of the chunks."""
    with np.errstate(all="ignore"):
        expected = fz.compress(x, bound, mode, pipeline, chunk_bytes=chunk_bytes)
        data = gpu.compress(on_device(x), bound, mode, pipeline, chunk_bytes=chunk_bytes)
        assert data.cpu().numpy().tobytes() == expected
        back = gpu.decompress(data)
    assert back.device.type == DEVICE
    assert back.cpu().numpy().tobytes() == fz.decompress(expected).tobytes()
    assert back.cpu().numpy().shape == x.shape
    return " ".join(methods(expected))


def methods(data: bytes) -> list[str]:
    head, at = read_head(memoryview(data))
    found = []
    for _ in head.chunks:
        method, sections, at = read_chunk_head(memoryview(data), at)
        at += sum(s.size for s in sections)
        found.append(method)
    return found


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        *(((17, 17, 17), d) for d in (np.float32, np.float64)), ((61, 83), np.float64), ((4913,), np.float32), ((2, 9, 10, 11), np.float32),
        ((3, 1, 1, 700), np.float64), ((1, 700), np.float32), ((700, 1), np.float32), ((5, 1, 300), np.float64),
    ],
)  # fmt: skip
def test_smooth_fields_of_every_dimension_give_the_bytes_of_the_host(shape: tuple[int, ...], dtype: type) -> None:
    axes = np.meshgrid(*(np.linspace(0, 3, n) for n in shape), indexing="ij")
    x: np.ndarray = np.sum([40 * np.sin(2 * a + i) for i, a in enumerate(axes)], axis=0).astype(dtype)
    assert assert_same(x, 1e-3, "rel") == "pipeline"


def test_outliers_and_violators_keep_their_order() -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((17, 17, 17)).astype(np.float32)
    x[rng.random(x.shape) < 0.02] *= 1e5
    x.reshape(-1)[rng.choice(x.size, 60, replace=False)] = np.resize(np.array([np.nan, np.inf, -np.inf, 3e38, -0.0, 1e-45]), 60)
    assert assert_same(x, 0.01) == "pipeline"


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_values_between_two_codes_fall_the_way_they_fall_on_the_host(dtype: type) -> None:
    eps = 0.1
    k = np.arange(-700, 700) + 0.5
    middle: np.ndarray = (2 * eps * k).astype(dtype)
    x = np.concatenate([np.nextafter(middle, dtype(-np.inf)), middle, np.nextafter(middle, dtype(np.inf))])
    assert assert_same(x, eps) == "pipeline"


@pytest.mark.parametrize("shape", [(4100,), (41, 100), (10, 17, 25)])
def test_quantised_values_of_64_bits(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(2)
    x = np.cumsum(rng.integers(-40, 40, np.prod(shape))).astype(np.float64).reshape(shape) * 2.0**-4 + 2.0**28
    x.reshape(-1)[::97] *= -1
    x.reshape(-1)[::641] = 2.0**60
    assert assert_same(x, 2.0**-5) == "pipeline"
    assert assert_same(x.astype(np.float32), 2.0**-5) in ("pipeline", "store")


def test_rows_longer_than_a_segment_carry_over() -> None:
    x = (np.sin(np.arange(2 * 4500) / 500) * 1000).astype(np.float32)
    x[5000] = 1e6
    assert assert_same(x, 0.01) == "pipeline"
    assert assert_same(x.reshape(2, 4500), 0.01) == "pipeline"


def test_the_bytes_do_not_depend_on_how_many_tiles_a_program_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "TILES", 2)
    assert assert_same((np.sin(np.arange(9000) / 500) * 1000).astype(np.float32).reshape(3, 3000), 0.01) == "pipeline"


def test_residuals_that_wrap_around() -> None:
    eps = 0.5 / (2**30 - 1)
    x = np.where(np.arange(11 * 13 * 15) % 2, 1.0, -1.0).reshape(11, 13, 15)
    x[3, 4, 5] = 0.9
    q = np.rint(x / (2 * eps)).astype(np.int64)
    assert np.abs(np.diff(np.diff(np.diff(q, axis=0), axis=1), axis=2)).max() > 2**32
    assert assert_same(x, eps) == "pipeline"


def test_chunks_of_every_method_in_one_file() -> None:
    rng = np.random.default_rng(3)
    x = np.zeros((40, 16, 16), np.float32)
    x[:16] = np.linspace(0, 1, 16)[:, None, None] + np.linspace(0, 1, 16)
    x[16:32] = 7.0
    x[32:] = rng.standard_normal((8, 16, 16)) * 1e6
    assert assert_same(x, 1e-3, chunk_bytes=16 * 16 * 16 * 4) == "pipeline constant store"
    x[16:32] = np.nan
    assert assert_same(x, 1e-3, "rel", chunk_bytes=16 * 16 * 16 * 4) == "pipeline store pipeline"


@pytest.mark.parametrize(
    "x", [np.zeros(0), np.zeros((3, 0)), np.ones(1), np.array([np.nan]), np.array([0.0, -0.0]), np.full((5, 5), np.inf)]
)
def test_next_to_nothing(x: np.ndarray) -> None:
    for mode in ("abs", "rel"):
        assert_same(x, 0.5, mode)
        assert_same(x.astype(np.float32), 0.5, mode)


@pytest.mark.parametrize(("radius", "centre"), [(2, 2), (100, 512), (32768, 32768), (32768, 5), (512, 65535)])
def test_any_radius_and_centre(radius: int, centre: int) -> None:
    x = (np.sin(np.arange(3000) / 7) * 30000).astype(np.float32)
    assert_same(x, 0.5, pipeline=f"range -> lorenzo(radius={radius}) -> bitshuffle(centre={centre}) -> zero-blocks")


@given(data=st.data())
@settings(max_examples=12, deadline=None)
def test_any_values(data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from([np.float32, np.float64]))
    shape = data.draw(st.sampled_from([(1,), (7,), (300,), (5, 9), (33, 17), (40, 1), (3, 4, 5), (9, 17, 10), (2, 5, 3, 4)]))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    x = rng.standard_normal(shape) * data.draw(st.sampled_from([1e-300, 1e-3, 1.0, 1e6, 1e30]))
    x = np.where(rng.random(shape) < data.draw(st.sampled_from([0.0, 0.05, 0.6])), rng.choice(AWKWARD, shape), x)
    with np.errstate(all="ignore"):
        x = x.astype(dtype)
    assert_same(x, data.draw(st.sampled_from([1e-320, 1e-9, 1e-3, 0.5, 1e30])), data.draw(st.sampled_from(["abs", "rel"])))


def test_checksums_of_pieces_are_those_of_the_host() -> None:
    rng = np.random.default_rng(4)
    counts = np.array([0, 1, 2, LANES - 1, LANES, LANES + 1, SEGMENT, SEGMENT + 1, 3 * SEGMENT - 7], np.int64)
    starts = np.concatenate([[0], np.cumsum(counts + 3)[:-1]]).astype(np.int64)
    words = rng.integers(-(2**31), 2**31, int(starts[-1] + counts[-1]), dtype=np.int32)
    found = checksums(on_device(words), starts, counts).cpu().numpy().view(np.uint32)
    assert found.tolist() == [crc32c(words[s : s + n].tobytes()) for s, n in zip(starts, counts, strict=True)]
    zeros = checksums(on_device(np.zeros(8, np.int32)), np.array([0]), np.array([8]))
    assert int(zeros[0]) & 0xFFFFFFFF == 0x8A9136AA


@given(d=st.integers(1, 2**31 - 1), n=st.integers(0, 2**31 - 1), k=st.integers(0, 2**31))
def test_division_by_a_product(d: int, n: int, k: int) -> None:
    multiplier, shift = divisor(d)
    assert multiplier < 2**32
    for value in (n, min(k // d * d, 2**31 - 1), max(0, min(k // d * d, 2**31) - 1)):
        assert ((2 * value * multiplier) >> 32) >> shift == value // d


def test_bytes_of_the_host_and_arrays_of_the_device_both_go_in() -> None:
    x = np.linspace(0, 1, 5000, dtype=np.float32).reshape(50, 100)
    data = fz.compress(x, 1e-3, "rel", "speed")
    like = on_device(x)
    assert gpu.decompress(data, like=like).cpu().numpy().tobytes() == fz.decompress(data).tobytes()
    assert fz.decompress(data, like=like).device.type == DEVICE
    assert fz.compress(like, 1e-3, "rel", "speed") == data


def test_a_damaged_file_is_refused() -> None:
    x = np.sin(np.arange(3000) / 50).astype(np.float32)
    x[7] = np.nan
    data = fz.compress(x, 1e-3, "abs", "speed")
    rng = np.random.default_rng(5)
    for place in rng.choice(len(data), 15, replace=False):
        bad = bytearray(data)
        bad[place] ^= 1 << int(rng.integers(8))
        with pytest.raises(InputError):
            gpu.decompress(on_device(np.frombuffer(bytes(bad), np.uint8).copy()))
    for stop in (0, 3, 20, len(data) // 2, len(data) - 1):
        with pytest.raises(InputError):
            gpu.decompress(on_device(np.frombuffer(data[:stop], np.uint8).copy()))
    with pytest.raises(InputError, match="after the last chunk"):
        gpu.decompress(data + b"x", like=on_device(x))


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("zero-blocks.flags", lambda a: a ^ np.uint8(1), "the flags ask for"),
        ("zero-blocks.flags", lambda a: a[:-32], "bytes of flags"),
        ("zero-blocks.blocks", lambda a: np.zeros_like(a), "one for each zero code"),
        ("lorenzo.outliers", lambda a: a[:-1], "one for each zero code"),
        ("lorenzo.outliers", lambda a: a.astype(np.int64), "expected 32 bits"),
        ("lorenzo.raw_index", lambda a: a + np.uint32(2**31), "expected places below"),
        ("lorenzo.raw_index", lambda a: np.concatenate([a, a]), "places for"),
        ("bitshuffle.count", lambda a: a + 1, "codes; expected"),
        ("range.bound", lambda a: a[:1], "two numbers"),
        ("range.bound", lambda a: a.view(np.int64), "expected f8"),
    ],
)
def test_sections_that_do_not_fit_are_refused_whatever_their_checksums(name: str, change: object, message: str) -> None:
    x = (np.sin(np.arange(5000) / 50) * 100).astype(np.float32)
    x[[7, 4000]] = np.nan
    x[1000] = 1e5
    data = fz.compress(x, 1e-2, "abs", "speed")
    _, start = read_head(memoryview(data))
    method, sections, _ = read_chunk(memoryview(data), start)
    sections[name] = change(sections[name])  # type: ignore[operator]
    with pytest.raises(InputError, match=message):
        gpu.decompress(data[:start] + pack_chunk(method, sections), like=on_device(x))


def test_what_has_no_kernels_is_said() -> None:
    x = on_device(np.ones(5, np.float32))
    for mode, pipeline in (("abs", "default"), ("pw_rel", "speed"), ("abs", "range -> lorenzo(block=True) -> bitshuffle -> zero-blocks")):
        with pytest.raises(InputError, match="no kernels"):
            gpu.compress(x, 0.5, mode, pipeline)
    with pytest.raises(InputError, match="no kernels"):
        gpu.decompress(fz.compress(np.linspace(0, 1, 50), 0.01, pipeline="default"), like=x)
    with pytest.raises(InputError, match="CUDA device"):
        gpu.compress(np.ones(5, np.float32), 0.5)
    with pytest.raises(InputError, match="float32 or float64"):
        gpu.compress(x.half(), 0.5)
    with pytest.raises(InputError, match="dimensions"):
        gpu.compress(x.reshape(1, 1, 1, 1, 5), 0.5)
    with pytest.raises(InputError, match="uint8"):
        gpu.decompress(x)


def test_cupy_arrays_come_back_as_cupy_arrays() -> None:
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    if DEVICE == "cpu":
        pytest.skip("no CUDA device")
    x = np.linspace(0, 1, 5000, dtype=np.float32).reshape(50, 100)
    data = gpu.compress(cupy.asarray(x), 1e-3, "rel")
    assert isinstance(data, cupy.ndarray)
    assert cupy.asnumpy(data).tobytes() == fz.compress(x, 1e-3, "rel", "speed")
    assert isinstance(gpu.decompress(data), cupy.ndarray)
