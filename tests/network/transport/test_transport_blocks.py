"""Who needs what of whose: by hand, against brute force, and what is refused."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.errors import InputError
from armillary.network.transport import Reduction, VariableSpec, blocks, redistribution
from armillary.network.transport.blocks.decomposition import cubes


def test_eight_cubes_against_four_slabs() -> None:
    found = redistribution((8, 8, 8), blocks((8, 8, 8), (2, 2, 2)), blocks((8, 8, 8), (1, 1, 4)))
    assert np.bincount(found.subscriber).tolist() == [4, 4, 4, 4]
    assert {tuple(c) for c in found.count.tolist()} == {(4, 4, 2)}
    assert found.elements.sum() == 512
    assert found.table()[0] == {"subscriber": 0, "publisher": 0, "start": [0, 0, 0], "count": [4, 4, 2]}


@st.composite
def _decomposed(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    dims = draw(st.integers(1, 3))
    shape = tuple(draw(st.integers(1, 9)) for _ in range(dims))
    return shape, tuple(draw(st.integers(1, 4)) for _ in range(dims)), tuple(draw(st.integers(1, 4)) for _ in range(dims))


@settings(max_examples=60, deadline=None)
@given(_decomposed())
def test_each_element_moves_once_and_as_brute_force_says(case: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]) -> None:
    shape, publish, subscribe = case
    ours, theirs = blocks(shape, publish), blocks(shape, subscribe)
    found = redistribution(shape, ours, theirs)
    held, wanted = np.full(shape, -1), np.full(shape, -1)
    for owner, (start, count) in ((held, ours), (wanted, theirs)):
        for rank, (a, n) in enumerate(zip(start, count, strict=True)):
            owner[tuple(slice(x, x + y) for x, y in zip(a, n, strict=True))] = rank
    assert (held >= 0).all()
    assert (wanted >= 0).all()
    brute = {(s, p): int(((wanted == s) & (held == p)).sum()) for s, p in itertools.product(range(len(theirs[0])), range(len(ours[0])))}
    assert {k: v for k, v in brute.items() if v} == {
        (s, p): e for s, p, e in zip(found.subscriber.tolist(), found.publisher.tolist(), found.elements.tolist(), strict=True)
    }


def test_wrong_blocks_are_named() -> None:
    whole = ([[0]], [[8]])
    with pytest.raises(InputError, match=r"publishers: rank 1: found a block from \[6\] to \[9\]"):
        redistribution((8,), ([[0], [6]], [[6], [3]]), whole)
    with pytest.raises(InputError, match=r"blocks of publishers 0 and 1 that overlap at \[5\]"):
        redistribution((8,), ([[0], [5]], [[6], [3]]), whole)
    with pytest.raises(InputError, match="whole numbers"):
        redistribution((8,), ([[0.5]], [[1]]), whole)
    with pytest.raises(InputError, match="fewer than"):
        redistribution((1 << 40, 1 << 40), ([[0, 0]], [[1, 1]]), ([[0, 0]], [[1, 1]]))
    with pytest.raises(InputError, match="rank 0"):
        redistribution((8,), ([[(1 << 63) - 1]], [[2]]), whole)
    with pytest.raises(InputError, match="whose product is 4"):
        VariableSpec("v", (8, 8), 8, (3, 2)).published(4)


def test_cubes_use_every_rank() -> None:
    assert cubes(64, (100, 100, 100)) == (4, 4, 4)
    assert np.prod(cubes(20_000, (1000, 1000, 1000))) == 20_000
    assert cubes(7, (5,)) == (7,)


def test_decimation_and_compression_by_hand() -> None:
    assert Reduction("decimation", stride=(1, 2, 4)).shape((640, 640, 640)) == (640, 320, 160)
    sz = Reduction("compression", compressor="sz", eps=1e-3, smoothness=0.5)
    assert sz.ratio_at("v", 1) == pytest.approx(24.4 * 1e-3**0.181)
    assert sz.ratio_at("v", 1) == pytest.approx(6.989, abs=1e-3)
    assert Reduction("compression", compressor="sz", eps=1e-4).ratio_at("v", 1) < sz.ratio_at("v", 1)
    zfp = Reduction("compression", compressor="zfp", eps=2.0**-15)
    assert zfp.ratio_at("v", 1) == 4.0
    assert zfp.bytes_of(5, 3, "v", 1) == 4.0, "rounded up"
    varied = Reduction("compression", ratio=10.0, variation=0.5)
    drawn = [varied.ratio_at("v", i) for i in range(50)]
    assert 5.0 <= min(drawn) < max(drawn) <= 15.0
    assert drawn == [varied.ratio_at("v", i) for i in range(50)]
    assert Reduction("decimation", interpolation="cubic", flops=2.0).flops_at("publisher", 10) == 160.0
    with pytest.raises(InputError, match="compression at the subscriber"):
        Reduction("compression", side="subscriber")
    with pytest.raises(InputError, match="cubic for 2 dimensions"):
        Reduction("decimation", interpolation="cubic").shape((4, 4))


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 40), st.integers(1, 7), st.integers(1, 6))
def test_decimated_blocks_cover_the_decimated_shape(size: int, stride: int, parts: int) -> None:
    one = Reduction("decimation", stride=(stride,))
    start, count = one.blocks((size,), *blocks((size,), (parts,)))
    taken = [i for a, n in zip(start[:, 0].tolist(), count[:, 0].tolist(), strict=True) for i in range(a, a + n)]
    assert taken == list(range(one.shape((size,))[0]))
