"""Kernels for a CUDA device give the host's bytes, on a device where there is one and under Triton's interpreter elsewhere.

`test_fields_gpu.py` runs this in a process of its own, because the interpreter is chosen once, before Triton is imported. By hand:
TRITON_INTERPRET=1 python -m pytest tests/compression/fields/gpu_kernels.py
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
pytest.importorskip("triton", reason="Triton is not installed")
if DEVICE == "cpu" and os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("no CUDA device, and not under Triton's interpreter", allow_module_level=True)

from armillary.compression import fields as fz  # noqa: E402
from armillary.compression.fields import gpu  # noqa: E402
from armillary.compression.fields.gpu import checksum, interpolation, speed, tuning  # noqa: E402
from armillary.compression.fields.gpu.checksum import LANES, SEGMENT, checksums, section_checksums  # noqa: E402
from armillary.compression.fields.gpu.chunks import coder_of  # noqa: E402
from armillary.compression.fields.gpu.quantise_kernels import divisor  # noqa: E402
from armillary.compression.fields.pipeline.container import pack_chunk, read_chunk, read_chunk_head, read_head  # noqa: E402
from armillary.compression.fields.stages import fz_fused  # noqa: E402
from armillary.compression.fields.stages.huffman import AHEAD  # noqa: E402
from armillary.compression.fields.stages.lossless import Zstd  # noqa: E402
from armillary.compression.fields.stages.stage import Context  # noqa: E402
from armillary.errors import InputError  # noqa: E402
from armillary.files.checksums import crc32c  # noqa: E402

PIPELINES = ("speed", "default", "fz-fused", "cuszp-fused")
#: The search of `quality` takes some 20 s under the interpreter, so it has tests of its own there.
EVERY = (*PIPELINES, "quality")


@pytest.fixture(autouse=True)
def few_programs(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Saves time under the interpreter, which pays per operation and not per lane; checksums have tests of their own."""
    if DEVICE == "cpu":
        monkeypatch.setattr(speed, "TILES", 8)
        if "device_checksums" not in request.fixturenames:
            monkeypatch.setattr(checksum, "checksums", host_checksums)


@pytest.fixture
def device_checksums() -> None:
    """Leaves the checksums to the device."""


def host_checksums(words: Any, starts: np.ndarray, counts: np.ndarray) -> Any:
    memory = words.numpy()
    sums = [crc32c(memory[start : start + count].tobytes()) for start, count in zip(starts, counts, strict=True)]
    return torch.from_numpy(np.array(sums, np.uint32).view(np.int32))


AWKWARD = (np.nan, np.inf, -np.inf, -0.0, 1e-45, 5e-324, 1e38, -3e38, 2.0**30, -(2.0**31), 0.1, 1e300)


def on_device(x: np.ndarray) -> Any:
    return torch.from_numpy(x).to(DEVICE)


def assert_same(x: np.ndarray, bound: float, mode: str = "abs", pipeline: str = "speed", chunk_bytes: int = 1 << 26) -> str:
    """Checks that file and restored values are those of the host; returns the methods of the chunks."""
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


#: The first of each is always tested, the others where there is a device or slow tests are asked for.
SHAPES = {
    "speed": [((9, 10, 11), "f4"), ((61, 83), "f8"), ((4913,), "f4"), ((2, 9, 10, 11), "f4"), ((3, 1, 1, 700), "f8"), ((17, 17, 17), "f4")],
    "fz-fused": [((9, 11, 13), "f4"), ((2, 5, 6, 7), "f8"), ((30, 31), "f8"), ((700,), "f4")],
    "cuszp-fused": [((9, 10, 11), "f4"), ((700,), "f8")],
    "default": [((6, 7, 8), "f4"), ((15, 20), "f8"), ((300,), "f4"), ((2, 3, 6, 7), "f4"), ((17, 17, 17), "f4")],
}


SLOW_INTERPRETED = pytest.mark.slow if DEVICE == "cpu" else pytest.mark.usefixtures()


def later(*values: Any) -> Any:
    """Marks a case that takes seconds under the interpreter."""
    return pytest.param(*values, marks=pytest.mark.slow if DEVICE == "cpu" else ())


@pytest.mark.parametrize(
    ("pipeline", "shape", "dtype"),
    [(later if k else pytest.param)(name, *case) for name, cases in SHAPES.items() for k, case in enumerate(cases)],
)
def test_smooth_fields_of_every_dimension_give_the_bytes_of_the_host(pipeline: str, shape: tuple[int, ...], dtype: str) -> None:
    axes = np.meshgrid(*(np.linspace(0, 3, n) for n in shape), indexing="ij")
    x: np.ndarray = np.sum([40 * np.sin(2 * a + i) for i, a in enumerate(axes)], axis=0).astype(dtype)
    assert assert_same(x, 1e-2 if pipeline == "default" else 1e-3, "rel", pipeline) == "pipeline"


@pytest.mark.parametrize("pipeline", EVERY if DEVICE == "cuda" else PIPELINES)
def test_outliers_and_violators_keep_their_order(pipeline: str) -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((4, 8, 15) if pipeline == "default" else (6, 10, 17)).astype(np.float32)
    x[rng.random(x.shape) < 0.02] *= 1e5
    x.reshape(-1)[rng.choice(x.size, 30, replace=False)] = np.resize(np.array([np.nan, np.inf, -np.inf, 3e38, -0.0, 1e-45]), 30)
    assert assert_same(x, 0.1 if pipeline == "default" else 0.01, pipeline=pipeline) == "pipeline"


@pytest.mark.parametrize(("pipeline", "dtype"), [("speed", np.float32), later("speed", np.float64), ("cuszp-fused", np.float32)])
def test_values_between_two_codes_fall_the_way_they_fall_on_the_host(pipeline: str, dtype: type) -> None:
    eps = 0.1
    k = np.arange(-600, 600) + 0.5
    middle: np.ndarray = (2 * eps * k).astype(dtype)
    x = np.concatenate([np.nextafter(middle, dtype(-np.inf)), middle, np.nextafter(middle, dtype(np.inf))])
    assert assert_same(x, eps, pipeline=pipeline) == "pipeline"


@pytest.mark.parametrize(
    ("pipeline", "shape"),
    [("speed", (5, 17, 12)), later("speed", (4100,)), later("default", (15, 20)), later("fz-fused", (15, 20)), ("cuszp-fused", (15, 20))],
)
def test_quantised_values_of_64_bits(pipeline: str, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(2)
    x = np.cumsum(rng.integers(-40, 40, np.prod(shape))).astype(np.float64).reshape(shape) * 2.0**-4 + 2.0**28
    x.reshape(-1)[::97] *= -1
    x.reshape(-1)[::641] = 2.0**60
    assert assert_same(x, 2.0**-5, pipeline=pipeline) == ("pipeline" if pipeline in ("speed", "default") else "store")
    x.reshape(-1)[::3] /= 2**10
    assert_same(x.astype(np.float32), 2.0**-5, pipeline=pipeline)


@SLOW_INTERPRETED
def test_rows_longer_than_a_segment_carry_over() -> None:
    x = (np.sin(np.arange(2 * 4200) / 500) * 1000).astype(np.float32)
    x[5000] = 1e6
    assert assert_same(x, 0.01) == "pipeline"
    assert assert_same(x.reshape(2, 4200), 0.01) == "pipeline"


def test_the_bytes_do_not_depend_on_how_many_tiles_a_program_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "TILES", 2)
    assert assert_same((np.sin(np.arange(5100) / 500) * 1000).astype(np.float32).reshape(3, 1700), 0.01) == "pipeline"


@pytest.mark.parametrize(("shape", "size"), [((3, 10, 21), 512), later((20, 31), 512), later((2, 1, 1, 700), 512), later((5000,), 4096)])
def test_prediction_starts_anew_in_every_piece_of_a_fused_chunk(shape: tuple[int, ...], size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fz_fused, "_PIECE", size)
    x = (np.sin(np.arange(np.prod(shape)) / 40) * 100 + 1000).astype(np.float32).reshape(shape)
    x.reshape(-1)[[3, 400, 540]] = 1e5, np.nan, -1e6
    assert assert_same(x, 0.01, pipeline="fz-fused") == "pipeline"


def test_residuals_of_the_fused_code_at_its_limit() -> None:
    x = np.cumsum([32766.0, -32766.0, 32767.0, -32767.0, 32768.0, -32768.0, 1.0, 2**20] * 8)
    assert assert_same(x, 0.5, pipeline="fz-fused") == "pipeline"


@SLOW_INTERPRETED
def test_residuals_that_wrap_around() -> None:
    eps = 0.5 / (2**30 - 1)
    x = np.where(np.arange(7 * 9 * 15) % 2, 1.0, -1.0).reshape(7, 9, 15)
    x[3, 4, 5] = 0.9
    q = np.rint(x / (2 * eps)).astype(np.int64)
    assert np.abs(np.diff(np.diff(np.diff(q, axis=0), axis=1), axis=2)).max() > 2**32
    assert assert_same(x, eps) == "pipeline"
    assert_same(x, eps, pipeline="cuszp-fused")


@pytest.mark.parametrize("pipeline", ["speed", later("default"), later("fz-fused"), "cuszp-fused", later("quality")])
def test_chunks_of_every_method_in_one_file(pipeline: str) -> None:
    rng = np.random.default_rng(3)
    x = np.zeros((10, 8, 8), np.float32)
    x[:4] = np.linspace(0, 1, 4)[:, None, None] + np.linspace(0, 1, 8)
    x[4:8] = 7.0
    x[8:] = rng.standard_normal((2, 8, 8)) * 1e6
    assert assert_same(x, 1e-2, "abs", pipeline, chunk_bytes=4 * 8 * 8 * 4) == "pipeline constant store"
    if DEVICE == "cuda":
        x[4:8] = np.nan
        assert assert_same(x, 1e-3, "rel", pipeline, chunk_bytes=4 * 8 * 8 * 4).startswith("pipeline store")


@pytest.mark.parametrize("pipeline", EVERY)
def test_next_to_nothing(pipeline: str) -> None:
    nothings = (np.zeros(0), np.zeros((3, 0)), np.ones(1), np.array([np.nan]), np.array([0.0, -0.0]), np.full((5, 5), np.inf))
    for x in nothings:
        assert_same(x, 0.5, "rel", pipeline)
        assert_same(x.astype(np.float32), 0.5, "abs", pipeline)


@pytest.mark.parametrize(("radius", "centre"), [later(2, 2), later(32768, 32768), (32768, 5), later(512, 65535)])
def test_any_radius_and_centre(radius: int, centre: int) -> None:
    x = (np.sin(np.arange(600) / 7) * 30000).astype(np.float32)
    assert_same(x, 0.5, pipeline=f"range -> lorenzo(radius={radius}) -> bitshuffle(centre={centre}) -> zero-blocks")


@pytest.mark.parametrize(("radius", "height"), [(2, 8), later(2048, 3000)])
def test_any_radius_of_huffman_codes(radius: int, height: float) -> None:
    x = (np.sin(np.arange(300) / 7) * height).astype(np.float32)
    assert assert_same(x, 0.5, pipeline=f"range -> lorenzo(radius={radius}) -> histogram -> huffman") == "pipeline"


def test_one_symbol_alone_takes_no_bits() -> None:
    x = np.linspace(0, 0.1, 3000).astype(np.float32)
    assert assert_same(x, 0.5, pipeline="default") == "pipeline"
    assert len(fz.compress(x, 0.5, "abs", "default")) < 1500


@SLOW_INTERPRETED
def test_codes_longer_than_the_first_table_looks_ahead() -> None:
    # Counts like Fibonacci numbers make the longest codes.
    counts = [1, 1]
    while len(counts) < 14:
        counts.append(counts[-1] + counts[-2])
    x = np.cumsum(np.random.default_rng(6).permutation(np.repeat(np.arange(1, len(counts) + 1), counts))).astype(np.float64)
    assert max(read_lengths(fz.compress(x, 0.5, "abs", "default"))) > AHEAD
    assert assert_same(x, 0.5, pipeline="default") == "pipeline"


def read_lengths(data: bytes) -> list[int]:
    _, start = read_head(memoryview(data))
    return [int(n) for n in read_chunk(memoryview(data), start)[1]["huffman.table"][10:]]


def test_every_huffman_chunk_starts_a_word_of_its_own() -> None:
    x = (np.sin(np.arange(36000) / 300) * 90).astype(np.float32)
    assert gpu.compress(on_device(x), 0.01, "abs", "default").cpu().numpy().tobytes() == fz.compress(x, 0.01, "abs", "default")


@SLOW_INTERPRETED
def test_every_huffman_chunk_is_found_again() -> None:
    x = (np.sin(np.arange(36000) / 300) * 90).astype(np.float32)
    assert assert_same(x, 0.01, pipeline="default") == "pipeline"


@given(data=st.data())
@settings(max_examples=7 if DEVICE == "cpu" else 100, deadline=None)
def test_any_values(data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from([np.float32, np.float64]))
    shape = data.draw(st.sampled_from([(1,), (7,), (150,), (5, 9), (13, 17), (40, 1), (3, 4, 5), (4, 7, 10), (2, 5, 3, 4)]))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    x = rng.standard_normal(shape) * data.draw(st.sampled_from([1e-300, 1e-3, 1.0, 1e6, 1e30]))
    x = np.where(rng.random(shape) < data.draw(st.sampled_from([0.0, 0.05, 0.6])), rng.choice(AWKWARD, shape), x)
    with np.errstate(all="ignore"):
        x = x.astype(dtype)
    bound, mode = data.draw(st.sampled_from([1e-320, 1e-9, 1e-3, 0.5, 1e30])), data.draw(st.sampled_from(["abs", "rel"]))
    assert_same(x, bound, mode, data.draw(st.sampled_from(EVERY if DEVICE == "cuda" else PIPELINES)))


def test_checksums_of_pieces_are_those_of_the_host(device_checksums: None) -> None:
    rng = np.random.default_rng(4)
    counts = np.array([0, 1, 2, LANES - 1, LANES, LANES + 1, 3 * LANES, SEGMENT // 2, SEGMENT + 1], np.int64)
    starts = np.concatenate([[0], np.cumsum(counts + 3)[:-1]]).astype(np.int64)
    words = rng.integers(-(2**31), 2**31, int(starts[-1] + counts[-1]), dtype=np.int32)
    found = checksums(on_device(words), starts, counts).cpu().numpy().view(np.uint32)
    assert found.tolist() == [crc32c(words[s : s + n].tobytes()) for s, n in zip(starts, counts, strict=True)]
    sizes = 4 * counts - np.array([0, 1, 2, 3, 0, 1, 2, 3, 1])
    (loose,) = section_checksums([(on_device(words), starts, sizes)])
    assert loose == [crc32c(words[s : s + n].tobytes()[:size]) for s, n, size in zip(starts, counts, sizes, strict=True)]
    zeros = checksums(on_device(np.zeros(8, np.int32)), np.array([0]), np.array([8]))
    assert int(zeros[0]) & 0xFFFFFFFF == 0x8A9136AA


@given(d=st.integers(1, 2**31 - 1), n=st.integers(0, 2**31 - 1), k=st.integers(0, 2**31))
def test_division_by_a_product(d: int, n: int, k: int) -> None:
    multiplier, shift = divisor(d)
    assert multiplier < 2**32
    for value in (n, min(k // d * d, 2**31 - 1), max(0, min(k // d * d, 2**31) - 1)):
        assert ((2 * value * multiplier) >> 32) >> shift == value // d


def test_bytes_of_the_host_and_arrays_of_the_device_both_go_in(device_checksums: None) -> None:
    x = np.linspace(0, 1, 700, dtype=np.float32).reshape(35, 20)
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
    for place in rng.choice(len(data), 40, replace=False):
        bad = bytearray(data)
        bad[place] ^= 1 << int(rng.integers(8))
        with pytest.raises(InputError):
            gpu.decompress(on_device(np.frombuffer(bytes(bad), np.uint8).copy()))
    for stop in (0, 3, 20, len(data) // 2, len(data) - 1):
        with pytest.raises(InputError):
            gpu.decompress(on_device(np.frombuffer(data[:stop], np.uint8).copy()))
    with pytest.raises(InputError, match="after the last chunk"):
        gpu.decompress(data + b"x", like=on_device(x))


MISFITS: list[tuple[str, str, Callable[[np.ndarray], np.ndarray], str]] = [
    ("speed", "zero-blocks.flags", lambda a: a ^ np.uint8(1), "the flags ask for"),
    ("speed", "zero-blocks.flags", lambda a: a[:-32], "bytes of flags"),
    ("speed", "zero-blocks.blocks", lambda a: np.zeros_like(a), "one for each zero code"),
    ("speed", "lorenzo.outliers", lambda a: a[:-1], "one for each zero code"),
    ("speed", "lorenzo.outliers", lambda a: a.astype(np.int64), "expected 32 bits"),
    ("speed", "lorenzo.raw_index", lambda a: a + np.uint32(2**31), "expected places below"),
    ("speed", "lorenzo.raw_index", lambda a: np.concatenate([a, a]), "places for"),
    ("speed", "bitshuffle.count", lambda a: a + 1, "codes; expected"),
    ("speed", "range.bound", lambda a: a[:1], "two numbers"),
    ("speed", "range.bound", lambda a: a.view(np.int64), "expected f8"),
    ("default", "huffman.table", lambda a: a[:9], "at least 10"),
    ("default", "huffman.table", lambda a: np.where(np.arange(a.size) < 10, a, 1).astype(np.uint8), "bits can tell apart"),
    ("default", "huffman.table", lambda a: np.where(np.arange(a.size) == 0, a - 1, a).astype(np.uint8), "of uint16"),
    ("default", "huffman.sizes", lambda a: a + np.uint16(1), "add up"),
    ("default", "lorenzo.outliers", lambda a: a[:-1], "one for each zero code"),
    ("default", "range.bound", lambda a: a[:1], "two numbers"),
    ("fz-fused", "fz-fused.flags", lambda a: a ^ np.uint8(1), "other blocks"),
    ("fz-fused", "fz-fused.counts", lambda a: a + np.array([0, 1], np.uint32), "other blocks"),
    ("fz-fused", "fz-fused.counts", lambda a: a[:0], "fused pieces"),
    ("fz-fused", "fz-fused.outliers", lambda a: a[:-1], "one for each zero code"),
    ("cuszp-fused", "cuszp-fused.widths", lambda a: a + np.uint8(1), "widths ask for"),
    ("cuszp-fused", "cuszp-fused.widths", lambda a: a + np.uint8(40), "at most 32"),
    ("cuszp-fused", "cuszp-fused.widths", lambda a: a[:-1], "expected"),
    ("cuszp-fused", "cuszp-fused.raw_index", lambda a: a + np.uint32(2**31), "expected places below"),
]


@pytest.mark.parametrize(("pipeline", "name", "change", "message"), MISFITS)
def test_sections_that_do_not_fit_are_refused_whatever_their_checksums(
    pipeline: str, name: str, change: Callable[[np.ndarray], np.ndarray], message: str
) -> None:
    x = (np.sin(np.arange(400) / 50) * 10).astype(np.float32)
    x[[7, 300]] = np.nan
    x[200] = 1e5
    forged = with_changed_sections(fz.compress(x, 1e-2, "abs", pipeline), lambda sections: sections.update({name: change(sections[name])}))
    with pytest.raises(InputError, match=message):
        gpu.decompress(forged, like=on_device(x))


def with_changed_sections(data: bytes, change: Callable[[dict[str, np.ndarray]], None]) -> bytes:
    _, start = read_head(memoryview(data))
    method, sections, _ = read_chunk(memoryview(data), start)
    assert method == "pipeline"
    change(sections)
    return data[:start] + pack_chunk(method, sections)


def test_huffman_bits_that_are_no_codes_or_too_many_are_refused() -> None:
    x = np.cumsum(np.resize([1.0, 2.0, 1.0, 3.0], 160)).astype(np.float32)

    def longer(sections: dict[str, np.ndarray]) -> None:
        sections["huffman.sizes"] = sections["huffman.sizes"] + np.uint16(1)
        sections["huffman.bits"] = np.append(sections["huffman.bits"], np.uint32(0))

    def none_at_the_end(sections: dict[str, np.ndarray]) -> None:
        # Code lengths 1, 2, 2 become 1, 2, 3: what was 11 at the end may be 111, which is none; as many words are used.
        table = sections["huffman.table"].copy()
        table[-1] += 1
        sections["huffman.table"] = table
        sections["huffman.bits"] = sections["huffman.bits"].copy()
        sections["huffman.bits"][-1] |= np.uint32(0xFFFF)

    for change in (longer, none_at_the_end):
        data = with_changed_sections(fz.compress(x, 0.5, "abs", "default"), change)
        with pytest.raises(InputError, match="Huffman bits"):
            fz.decompress(data)
        with pytest.raises(InputError, match="Huffman bits"):
            gpu.decompress(data, like=on_device(x))


def interpolated(**options: Any) -> str:
    """Returns the stages of `quality` without a search, which takes most of the time under the interpreter."""
    shown = ", ".join(f"{name}={value}" for name, value in options.items())
    return f"range -> interp({shown}) -> histogram -> huffman -> zstd"


def odd_field() -> np.ndarray:
    """A smooth field with values that are stored, among them anchors and some that are not finite."""
    x = waves((10, 9, 12), np.float32)
    x.reshape(-1)[3:600:50] = np.nan
    x[0, 0, 0], x[8, 8, 8], x[5, 5, 5], x[0, 0, 8] = np.inf, -np.inf, 3e38, 1e5
    return x


def waves(shape: tuple[int, ...], dtype: type) -> np.ndarray:
    axes = np.meshgrid(*(np.linspace(0, 3, n) for n in shape), indexing="ij")
    found: np.ndarray = np.sum([40 * np.sin(2 * a + i) for i, a in enumerate(axes)], axis=0).astype(dtype)
    return found


@pytest.mark.parametrize(
    ("x", "bound", "options"),
    [
        (odd_field(), 0.1, {"radius": 2048, "alpha": 1.5, "beta": 2.0}),
        (waves((2, 5, 6, 7), np.float64), 1.0, {"radius": 2}),
        later(waves((700,), np.float64), 0.01, {"radius": 32768}),
        later(waves((33, 31), np.float32), 0.1, {"alpha": 2.0, "beta": 4.0, "cubic": False}),
        later(waves((2, 300), np.float32), 0.1, {"cubic": False}),
        later(np.round(waves((5, 10, 12), np.float64)) + 2.0**28, 2.0**-6, {"radius": 64}),
    ],
)
def test_interpolation_gives_the_bytes_of_the_host(x: np.ndarray, bound: float, options: dict[str, Any]) -> None:
    assert assert_same(x, bound, pipeline=interpolated(**options)) == "pipeline"


def test_tiles_of_codes_that_two_passes_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpolation, "BLOCK", 32)
    x = waves((5, 7, 4), np.float32)
    x.reshape(-1)[::3] = np.nan
    assert assert_same(x, 0.1, pipeline=interpolated(radius=2048)) == "pipeline"


@SLOW_INTERPRETED
@pytest.mark.parametrize(
    ("shape", "dtype", "bound"), [((300,), np.float64, 1e-3), ((12, 35), np.float32, 1e-2), ((4, 5, 9), np.float32, 1e-3)]
)
def test_the_search_finds_the_plan_of_the_host(shape: tuple[int, ...], dtype: type, bound: float) -> None:
    assert assert_same(waves(shape, dtype), bound, "rel", "quality") == "pipeline"


@SLOW_INTERPRETED
def test_a_search_that_is_close_is_decided_by_the_bits_of_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    exact = tuning._Tried.exact_bits
    monkeypatch.setattr(tuning, "CLOSE", 0.9)
    monkeypatch.setattr(tuning._Tried, "exact_bits", lambda tried, k, key: asked.append(key) or exact(tried, k, key))
    assert assert_same(waves((290,), np.float32), 1e-3, "rel", "quality") == "pipeline"
    assert asked


FRAMED: list[Any] = [
    ("interp.raw", lambda a: a[:-1], "one for each zero code"),
    ("interp.raw", lambda a: a.astype(np.float64), "expected f4|of one dtype"),
    later("interp.anchor_outliers", lambda a: np.append(a, a.dtype.type(1)), "one for each zero code"),
    later("interp.anchor_raw_index", lambda a: a + np.uint32(2**31), "expected places below|as many, below"),
    ("interp.plan", lambda a: a[:3], "interpolation plan"),
    ("interp.plan", lambda a: a * -1, "interpolation plan"),
    ("range.bound", lambda a: a[:1], "two numbers|found 1 values"),
    ("huffman.sizes", lambda a: a + np.uint16(1), "add up"),
    ("huffman.table", lambda a: a[:9], "at least 10"),
]


@pytest.mark.parametrize(("name", "change", "message"), FRAMED)
def test_sections_in_frames_that_do_not_fit_are_refused(name: str, change: Callable[[np.ndarray], np.ndarray], message: str) -> None:
    x = odd_field()
    ctx = Context((1, *x.shape), x.dtype)

    def forge(sections: dict[str, np.ndarray]) -> None:
        plain = Zstd().inverse(ctx, **sections)
        sections.update(Zstd().forward(ctx, **plain | {name: change(plain[name])}))

    forged = with_changed_sections(fz.compress(x, 0.1, "abs", interpolated(radius=2048)), forge)
    for restore in (lambda: fz.decompress(forged), lambda: gpu.decompress(forged, like=on_device(x))):
        with pytest.raises(InputError, match=message):
            restore()


def test_frames_that_are_none_are_refused() -> None:
    x = odd_field()

    def forge(sections: dict[str, np.ndarray]) -> None:
        sections["huffman.bits"] = np.append(sections["huffman.bits"][:8], np.uint8(3))

    forged = with_changed_sections(fz.compress(x, 0.1, "abs", interpolated(radius=2048)), forge)
    with pytest.raises(InputError, match=r"section huffman\.bits"):
        gpu.decompress(forged, like=on_device(x))


def test_what_has_no_kernels_is_said() -> None:
    x = on_device(np.ones(5, np.float32))
    for mode, pipeline in (("abs", "particles"), ("pw_rel", "speed"), ("abs", "range -> lorenzo(block=True) -> bitshuffle -> zero-blocks")):
        with pytest.raises(InputError, match="no kernels"):
            gpu.compress(x, 0.5, mode, pipeline)
    with pytest.raises(InputError, match="no kernels"):
        gpu.decompress(fz.compress(np.linspace(0, 1, 50), 0.01, pipeline="particles"), like=x)
    unknown = ("range -> lorenzo(radius=4096) -> huffman", "range -> lorenzo -> huffman -> zstd", "range -> fz-fused -> zstd")
    for text in (*unknown, "range -> interp -> huffman", "range -> interp -> bitshuffle -> zero-blocks -> zstd"):
        assert coder_of(fz.Pipeline.from_string(text)) is None
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
