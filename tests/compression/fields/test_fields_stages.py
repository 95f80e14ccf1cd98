"""Tests of the stages by hand and against oracles that share no code with them."""

from __future__ import annotations

import heapq
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from armillary.compression.fields.stages.bitshuffle import Bitshuffle, ZeroBlocks
from armillary.compression.fields.stages.fixed_width import FixedWidth
from armillary.compression.fields.stages.histogram import Histogram, TopkHistogram
from armillary.compression.fields.stages.huffman import AHEAD, LONGEST, Huffman, canonical_codes, code_lengths, lookup_tables
from armillary.compression.fields.stages.interpolation import Interp, Plan, passes
from armillary.compression.fields.stages.logarithm import _EXP, _LOG, _logs, _powers
from armillary.compression.fields.stages.lorenzo import Lorenzo
from armillary.compression.fields.stages.rze import Rze
from armillary.compression.fields.stages.stage import Context
from armillary.errors import InputError


def context(*shape: int, threads: int = 1, dtype: type = np.float32) -> Context:
    b, z, y, x = (1,) * (4 - len(shape)) + shape
    return Context((b, z, y, x), np.dtype(dtype), threads=threads)


def bound(eps: float) -> np.ndarray:
    return np.array([eps, 0.0])


def test_four_values_by_hand() -> None:
    x = np.array([[0, 1], [2, 4]], np.float32)
    found = Lorenzo().forward(context(2, 2), data=x.reshape(-1), bound=bound(0.5))
    assert (found["codes"].astype(int) - 512).reshape(2, 2).tolist() == [[0, 1], [2, 1]]
    assert found["outliers"].size == found["raw"].size == 0


@pytest.mark.parametrize("shape", [(50,), (13, 17), (9, 8, 11), (3, 5, 6, 7)])
@pytest.mark.parametrize("threads", [1, 3])
def test_lorenzo_is_one_difference_along_each_axis(shape: tuple[int, ...], threads: int) -> None:
    q = np.random.default_rng(0).integers(-3000, 3000, shape)
    d = q
    for axis in range(max(0, len(shape) - 3), len(shape)):
        d = np.diff(d, axis=axis, prepend=0)
    found = Lorenzo(radius=1000).forward(context(*shape, threads=threads), data=q.astype(np.float32).reshape(-1), bound=bound(0.5))
    inside = np.abs(d.reshape(-1)) < 1000
    assert np.array_equal(found["codes"], np.where(inside, d.reshape(-1) + 1000, 0))
    assert np.array_equal(found["outliers"], d.reshape(-1)[~inside])


@pytest.mark.parametrize("shape", [(600,), (33, 35), (17, 9, 18)])
def test_blocks_do_not_look_across_their_borders(shape: tuple[int, ...]) -> None:
    side = {1: 256, 2: 16, 3: 8}[len(shape)]
    q = np.random.default_rng(1).integers(-100, 100, shape)
    found = Lorenzo(block=True).forward(context(*shape, threads=2), data=q.astype(np.float32).reshape(-1), bound=bound(0.5))
    corner = tuple(slice(side, 2 * side) for _ in shape)
    d = q[corner]
    for axis in range(len(shape)):
        d = np.diff(d, axis=axis, prepend=0)
    assert np.array_equal(found["codes"].reshape(shape)[corner].astype(int) - 512, d)


def test_a_cubic_leaves_nothing_between_the_anchors() -> None:
    t = np.arange(33.0) - 16
    x = np.rint(t**3 - 5 * t**2 + 3 * t)
    plane = np.broadcast_to(x, (33, 33, 33)).copy()
    ctx = context(33, 33, 33, dtype=np.float64)
    found = Interp().coded(ctx, plane.reshape(-1), bound(0.5), Plan())
    at = (33 // 8 + 1) ** 3
    assert found["raw"].size == 0
    for one in passes(ctx, Plan(), at):
        codes = found["codes"][one.at : one.at + one.size].reshape(one.counts).astype(int) - 512
        inner = codes[..., 1:-1] if one.axis == 3 else codes
        assert not inner.any(), one


def naive_interpolation(
    x: np.ndarray, eps: float, radius: int, stride: int = 8, extrapolate: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Reconstruction and codes after the anchors, point by point, for a float64 field in three dimensions."""
    recon = np.zeros_like(x)
    every = (slice(None, None, stride),) * 3
    recon[every] = 2 * eps * np.rint(x[every] * (0.5 / eps))
    codes = []
    for s in [1 << k for k in range(stride.bit_length() - 2, -1, -1)]:
        done: list[int] = []
        for axis in (2, 1, 0):
            steps = [2 * s if a == axis or a not in done else s for a in range(3)]
            starts = [s if a == axis else 0 for a in range(3)]
            done.append(axis)
            for point in np.ndindex(*(max(0, -(-(n - st_) // step)) for n, st_, step in zip(x.shape, starts, steps, strict=True))):
                p = [st_ + i * step for st_, i, step in zip(starts, point, steps, strict=True)]

                def at(k: int, p: list[int] = p, axis: int = axis, s: int = s) -> float | None:
                    q = list(p)
                    q[axis] += k * s
                    return float(recon[tuple(q)]) if 0 <= q[axis] < x.shape[axis] else None

                f = [at(k) for k in (-3, -1, 1, 3)]
                if f[2] is None and extrapolate and f[0] is not None:
                    further = at(-5)
                    guess = 1.5 * f[1] - 0.5 * f[0] if further is None else (15 * f[1] - 10 * f[0] + 3 * further) / 8
                elif f[2] is None:
                    guess = f[1]
                elif f[0] is None and f[3] is None:
                    guess = (f[1] + f[2]) / 2
                elif f[0] is None:
                    guess = (3 * f[1] + 6 * f[2] - f[3]) / 8
                elif f[3] is None:
                    guess = (-f[0] + 6 * f[1] + 3 * f[2]) / 8
                else:
                    guess = (-f[0] + 9 * f[1] + 9 * f[2] - f[3]) / 16
                d = np.rint((x[tuple(p)] - guess) * (0.5 / eps))
                codes.append(d + radius)
                recon[tuple(p)] = guess + 2 * eps * d
    return recon, np.array(codes)


def test_interpolation_against_a_plain_one() -> None:
    rng = np.random.default_rng(2)
    x = np.cumsum(np.cumsum(rng.normal(size=(11, 13, 18)), axis=2), axis=1)
    eps = 0.015625
    recon, codes = naive_interpolation(x, eps, 30000)
    stage, ctx = Interp(radius=30000), context(*x.shape, dtype=np.float64)
    found = stage.forward(ctx, data=x.reshape(-1), bound=bound(eps))
    assert np.array_equal(found["codes"][found["codes"].size - codes.size :], codes)
    assert np.allclose(stage.inverse(ctx, **found, bound=bound(eps))["data"].reshape(x.shape), recon, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("stride", "extrapolate"), [(0, 1), (32, 1), (32, 0), (128, 1)])
def test_anchors_further_apart_and_extrapolated_ends_against_a_plain_one(stride: int, extrapolate: int) -> None:
    rng = np.random.default_rng(3)
    x = np.cumsum(np.cumsum(rng.normal(size=(10, 14, 40)), axis=2), axis=1)
    eps = 0.015625
    recon, codes = naive_interpolation(x, eps, 30000, stride or 8, bool(extrapolate))
    stage, ctx = Interp(radius=30000), context(*x.shape, dtype=np.float64)
    found = stage.coded(ctx, x.reshape(-1), bound(eps), Plan(extrapolate=extrapolate, stride=stride))
    assert np.array_equal(found["codes"][found["codes"].size - codes.size :], codes)
    assert np.allclose(stage.inverse(ctx, **found, bound=bound(eps))["data"].reshape(x.shape), recon, rtol=0, atol=1e-12)


@pytest.mark.parametrize("knobs", [[1, 1, 0, 0, 2, 0], [1, 1, 0, 0, 0, 16], [1, 1, 0, 0, 0, -1], [1, 1, 0, 0, 0], [1, 1, 0, 0, 0.5, 3]])
def test_a_plan_of_interpolation_out_of_range_is_refused(knobs: list[float]) -> None:
    stage, ctx = Interp(), context(4, 5, 6, dtype=np.float64)
    found = stage.coded(ctx, np.arange(120.0), bound(0.5), Plan())
    with pytest.raises(InputError, match="interpolation plan"):
        stage.inverse(ctx, **{**found, "plan": np.array(knobs, np.float64)}, bound=bound(0.5))


@given(codes=hnp.arrays(np.uint16, st.integers(0, 5000), elements=st.integers(500, 530)), threads=st.integers(1, 3))
@settings(max_examples=40, deadline=None)
def test_histograms_agree_with_bincount(codes: np.ndarray, threads: int) -> None:
    ctx = context(max(1, codes.size), threads=threads)
    expected = np.trim_zeros(np.bincount(codes, minlength=1), "b")
    for stage in (Histogram(), TopkHistogram(), TopkHistogram(k=3, centre=65535)):
        assert np.array_equal(np.trim_zeros(stage.forward(ctx, codes=codes)["counts"], "b"), expected)


def plain_huffman(counts: np.ndarray) -> tuple[int, int]:
    """Returns the bits of an unlimited Huffman code, and the least depth of its tree."""
    heap = [(int(c), 0) for c in counts if c]
    heapq.heapify(heap)
    bits = 0
    while len(heap) > 1:
        (a, d), (b, e) = heapq.heappop(heap), heapq.heappop(heap)
        bits += a + b
        heapq.heappush(heap, (a + b, max(d, e) + 1))
    return bits, heap[0][1]


@given(counts=hnp.arrays(np.int64, st.integers(2, 300), elements=st.integers(0, 10000)))
@settings(max_examples=100, deadline=None)
def test_lengths_are_optimal_and_a_prefix_code(counts: np.ndarray) -> None:
    lengths = code_lengths(counts, 16)
    used = counts > 0
    if used.sum() < 2:
        assert not lengths.any()
        return
    assert np.array_equal(lengths > 0, used)
    assert sum(2.0 ** -int(length) for length in lengths[used]) == 1.0
    bits, depth = plain_huffman(counts)
    assert int((lengths * counts).sum()) >= bits
    if depth <= 16:
        assert int((lengths * counts).sum()) == bits
    codes = canonical_codes(lengths)
    words = sorted(format(int(c), f"0{n}b") for c, n in zip(codes[used], lengths[used], strict=True))
    assert all(not b.startswith(a) for a, b in itertools.pairwise(words))


def test_lengths_stay_within_sixteen_bits_where_fibonacci_asks_for_more() -> None:
    counts = [1, 1]
    while len(counts) < 40:
        counts.append(counts[-1] + counts[-2])
    lengths = code_lengths(np.array(counts))
    assert lengths.max() == 16
    assert sum(2.0 ** -int(n) for n in lengths) == 1.0


def codes_of(*sizes: int) -> st.SearchStrategy[np.ndarray]:
    return hnp.arrays(np.uint16, st.sampled_from(sizes), elements=st.integers(0, 65535), fill=st.just(512))


@given(codes=codes_of(0, 1, 5, 16384, 16385, 40000), threads=st.integers(1, 2))
@settings(max_examples=30, deadline=None)
def test_huffman_gives_the_codes_back(codes: np.ndarray, threads: int) -> None:
    ctx = context(max(1, codes.size), threads=threads)
    coded = Huffman().forward(ctx, codes=codes, **Histogram().forward(ctx, codes=codes))
    assert np.array_equal(Huffman().inverse(ctx, **coded)["codes"], codes)


def test_huffman_bits_as_a_plain_coder_writes_them() -> None:
    rng = np.random.default_rng(3)
    codes = np.clip(rng.normal(512, 30, 50000), 0, 1023).astype(np.uint16)
    ctx = context(codes.size)
    counts = np.bincount(codes, minlength=1024)
    coded = Huffman().forward(ctx, codes=codes, counts=counts)
    lengths = code_lengths(counts)
    words = canonical_codes(lengths)
    expected = b""
    for start in range(0, codes.size, 1 << 14):
        text = "".join(format(int(words[c]), f"0{lengths[c]}b") for c in codes[start : start + (1 << 14)])
        text += "0" * (-len(text) % 32)
        expected += b"".join(int(text[i : i + 32], 2).to_bytes(4, "little") for i in range(0, len(text), 32))
    assert coded["bits"].astype("<u4").tobytes() == expected


def test_lookup_tables_name_the_code_that_the_next_bits_start_with() -> None:
    fibonacci = [1, 1]
    while len(fibonacci) < 20:
        fibonacci.append(fibonacci[-1] + fibonacci[-2])
    for counts in (np.array([5, 0, 1, 2]), np.array(fibonacci)):
        lengths = code_lengths(counts)
        codes = canonical_codes(lengths)
        look, longer = lookup_tables(7, lengths)
        for bits in range(0, 1 << LONGEST, 97):
            found = [k for k in np.flatnonzero(lengths) if bits >> (LONGEST - int(lengths[k])) == codes[k]]
            entry = (found[0] + 7) << 5 | int(lengths[found[0]]) if found else 0
            assert longer[bits] == entry
            assert look[bits >> (LONGEST - AHEAD)] == (entry if entry & 31 <= AHEAD else 0)
    with pytest.raises(InputError, match="bits can tell apart"):
        lookup_tables(0, np.array([1, 1, 1], np.uint8))


@pytest.mark.parametrize("spread", [1.5, 10, 100])
def test_huffman_is_near_the_entropy(spread: float) -> None:
    codes = np.clip(np.random.default_rng(4).normal(512, spread, 200_000), 1, 1023).round().astype(np.uint16)
    counts = np.bincount(codes, minlength=1024)
    p = counts[counts > 0] / codes.size
    entropy = float(-(p * np.log2(p)).sum())
    bits = int((code_lengths(counts) * counts).sum())
    assert codes.size * entropy <= bits <= codes.size * (entropy + 0.1)
    coded = Huffman().forward(context(codes.size), codes=codes, counts=counts)
    assert 32 * coded["bits"].size <= bits + 32 * coded["sizes"].size


def plain_planes(codes: np.ndarray, centre: int) -> np.ndarray:
    d = codes.astype(np.int32) - centre
    z = np.where(d >= 0, 2 * d, -2 * d - 1).astype(np.uint32)
    z = np.concatenate([z, np.zeros(-z.size % 2048, np.uint32)])
    out = np.zeros(z.size, np.uint16)
    for i, value in enumerate(z):
        tile, inside = divmod(i, 2048)
        g, rest = divmod(inside, 128)
        j, w = divmod(rest, 8)
        for p in range(16):
            out[tile * 2048 + p * 128 + g * 8 + w] |= ((int(value) >> p) & 1) << j
    return out


def test_bit_planes_as_they_are_written_down() -> None:
    codes = np.random.default_rng(5).integers(0, 1024, 3000).astype(np.uint16)
    found = Bitshuffle().forward(context(3000, threads=2), codes=codes)
    assert np.array_equal(found["planes"], plain_planes(codes, 512))


@given(codes=codes_of(1, 31, 2048, 2049, 9000), threads=st.integers(1, 2))
@settings(max_examples=30, deadline=None)
def test_bit_level_coders_give_the_codes_back(codes: np.ndarray, threads: int) -> None:
    ctx = context(codes.size, threads=threads)
    shuffled = Bitshuffle().forward(ctx, codes=codes)
    dropped = ZeroBlocks().forward(ctx, planes=shuffled["planes"])
    assert np.unpackbits(dropped["flags"]).sum() * 8 == dropped["blocks"].size
    assert np.array_equal(ZeroBlocks().inverse(ctx, **dropped)["planes"], shuffled["planes"])
    zeros = Rze().forward(ctx, planes=shuffled["planes"])
    assert np.count_nonzero(zeros["kept"]) == zeros["kept"].size
    assert np.array_equal(Rze().inverse(ctx, **zeros)["planes"], shuffled["planes"])
    assert np.array_equal(Bitshuffle().inverse(ctx, **shuffled)["codes"], codes)
    packed = FixedWidth().forward(ctx, codes=codes)
    assert np.array_equal(FixedWidth().inverse(ctx, **packed)["codes"], codes)


def test_quiet_codes_cost_flags_only() -> None:
    codes = np.full(4096, 512, np.uint16)
    codes[5] = 513
    dropped = ZeroBlocks().forward(context(4096), planes=Bitshuffle().forward(context(4096), codes=codes)["planes"])
    assert dropped["flags"].size == 64
    assert dropped["blocks"].size == 8
    packed = FixedWidth().forward(context(4096), codes=codes)
    assert packed["widths"].tolist() == [2, *[0] * 127]


def test_logarithms_and_powers_are_exact_to_the_guard() -> None:
    x = np.concatenate([np.random.default_rng(6).lognormal(0, 50, 5000), [1.0, 2.0, 5e-324, 1.7e308]])
    logs, back = np.empty_like(x), np.empty_like(x)
    _logs(x, logs, _LOG)
    assert np.max(np.abs(logs - np.log2(x))) < 1e-12
    _powers(logs, back, _EXP)
    normal = x > 1e-300
    assert np.max(np.abs(back[normal] / x[normal] - 1)) < 1e-12


def test_stages_refuse_what_cannot_be_theirs() -> None:
    ctx = context(100)
    codes = np.full(100, 512, np.uint16)
    for outliers, places, says in ((3, [], "one for each zero code"), (0, [100], "below 100")):
        given = {"raw_index": np.array(places, np.uint32), "raw": np.zeros(len(places), np.float32), "bound": bound(1.0)}
        with pytest.raises(InputError, match=says):
            Lorenzo().inverse(ctx, codes=codes, outliers=np.ones(outliers, np.int32), **given)
    mixed = np.random.default_rng(7).integers(500, 520, 100).astype(np.uint16)
    coded = Huffman().forward(ctx, codes=mixed, counts=np.bincount(mixed))
    same_lengths, many_codes = coded["table"].copy(), coded["table"].copy()
    same_lengths[10:], many_codes[:8] = 1, 255
    changes = ({"bits": coded["bits"][:-1]}, "add up"), ({"table": same_lengths}, "tell apart"), ({"table": many_codes}, "at most 100")
    for change, says in changes:
        with pytest.raises(InputError, match=says):
            Huffman().inverse(ctx, **{**coded, **change})
