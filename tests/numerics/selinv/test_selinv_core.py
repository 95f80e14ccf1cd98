"""Blocks of the inverse agree with those by hand and of dense inverses, over ranks and on a memory budget."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from selinv_programs import invert_and_solve, invert_made_here, random_blocks

from armillary import comm
from armillary.comm import RankFailed
from armillary.errors import InputError
from armillary.numerics.selinv.blocks.block_arrow import BlockArrow
from armillary.numerics.selinv.blocks.chains import Chain
from armillary.numerics.selinv.blocks.partitions import part_of, partition
from armillary.numerics.selinv.inversion.elimination import eliminate
from armillary.numerics.selinv.inversion.factorisation import factor, selected_inverse
from armillary.numerics.selinv.inversion.reduced import assembled, reduced_labels

SMALL = np.array([[4.0, -1, 0, 1], [-1, 4, -1, 1], [0, -1, 4, 1], [1, 1, 1, 5]])


def wanted(blocks: BlockArrow) -> np.ndarray:
    """Returns where the blocks are, as a mask of the whole matrix."""
    ones = BlockArrow(*(np.ones_like(x) for x in (blocks.diagonal, blocks.lower, blocks.arrow, blocks.tip)), blocks.sizes)
    return ones.to_dense() != 0


def test_four_by_four_by_hand() -> None:
    blocks = BlockArrow.from_sparse(sp.csr_array(SMALL))
    assert (blocks.n, blocks.b, blocks.a) == (3, 1, 1)
    f = factor(blocks)
    assert np.exp(f.logdet()) == pytest.approx(216, rel=1e-14)
    x = selected_inverse(f)
    assert 216 * x.diagonal() == pytest.approx([65, 72, 65, 56], rel=1e-14)
    assert 216 * x.part.lower.reshape(-1) == pytest.approx([24, 24], rel=1e-14)
    assert 216 * x.part.arrow.reshape(-1) == pytest.approx([-20, -24, -20], rel=1e-14)
    assert np.linalg.inv(SMALL)[2, 0] == pytest.approx(11 / 216)
    assert x.to_sparse().toarray()[2, 0] == 0  # not computed


@pytest.mark.parametrize("kind", ["f", "c"])
@pytest.mark.parametrize("a", [0, 1, 5])
@pytest.mark.parametrize(("n", "ranks"), [(1, 1), (2, 1), (3, 2), (4, 2), (9, 2), (5, 3), (11, 3), (7, 4), (16, 4), (15, 8)])
def test_ranks_give_what_a_dense_inverse_gives(n: int, ranks: int, a: int, kind: str) -> None:
    blocks = random_blocks(n, 3, a, seed=n + a, kind=kind)
    whole, mask = blocks.to_dense(), wanted(blocks)
    inverse = np.linalg.inv(whole)
    rhs = np.cos(np.arange(blocks.order * 3)).reshape(blocks.order, 3)
    for strategy in ("allgather", "gather-scatter", "nested") if ranks > 1 else ("allgather",):
        for *parts, diagonal, logdet, solution in comm.run(invert_and_solve, blocks, strategy, ranks=ranks).values:
            found = BlockArrow(*parts).to_dense()
            assert np.abs(found - inverse)[mask].max() < 1e-13 * np.abs(inverse).max() * n
            np.testing.assert_allclose(diagonal, np.diag(inverse).real, rtol=1e-12)
            assert logdet == pytest.approx(np.linalg.slogdet(whole)[1], rel=1e-13)
            np.testing.assert_allclose(solution, np.linalg.solve(whole, rhs), atol=1e-12 * np.abs(inverse).max() * n)


@settings(max_examples=25, deadline=None)
@given(ranks=st.integers(2, 8), extra=st.integers(0, 9), b=st.integers(1, 5), a=st.sampled_from([0, 1, 5]), ratio=st.floats(0.3, 8.0))
def test_distributed_equals_sequential(ranks: int, extra: int, b: int, a: int, ratio: float) -> None:
    blocks = random_blocks(2 * ranks - 1 + extra, b, a, seed=extra)
    alone = invert_and_solve(None, blocks)
    for found in comm.run(invert_and_solve, blocks, "allgather", ratio, ranks=ranks).values:
        for mine, theirs in zip(found, alone):
            np.testing.assert_allclose(mine, theirs, rtol=1e-11, atol=1e-11 * np.abs(theirs).max(initial=0))


def test_mpi_gives_what_threads_give() -> None:
    if comm.backends()["mpi"]:
        pytest.skip("mpi4py is not here")
    for strategy in ("allgather", "gather-scatter"):
        threads = comm.run(invert_made_here, 9, 4, 2, strategy, ranks=2)
        how = {"backend": "mpi", "library": comm.libraries()[0].name, "timeout": 120}
        mpi = comm.run(invert_made_here, 9, 4, 2, strategy, ranks=2, **how)
        for mine, theirs in zip(mpi.values, threads.values):
            for x, y in zip(mine, theirs):
                np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-14)
        assert [c["reduce"].bytes for c in mpi.counters] == [c["reduce"].bytes for c in threads.counters]


def test_bytes_are_those_of_the_boundary_blocks() -> None:
    n, b, a, ranks = 20, 6, 3, 4
    blocks = random_blocks(n, b, a)
    gathered = [2 * b * b + a * b] + [4 * b * b + 2 * a * b] * 2 + [3 * b * b + 2 * a * b]
    for strategy in ("allgather", "gather-scatter"):
        result = comm.run(invert_and_solve, blocks, strategy, ranks=ranks)
        reduced = [counters["reduce"].bytes for counters in result.counters]
        if strategy == "allgather":
            assert reduced == [8 * (count + a * a) for count in gathered]
        else:
            # The root keeps its own blocks and sends log det; in the second phase it sends out everyone else's, and the tip to all.
            assert reduced == [8 * (a * a + 1)] + [8 * (count + a * a) for count in gathered[1:]]
            assert [counters["scatter"].bytes for counters in result.counters] == [8 * (sum(gathered[1:]) + a * a), 0, 0, 0]


@pytest.mark.parametrize(("n", "ranks", "limit"), [(4, 3, 2), (6, 4, 3), (1, 2, 1)])
def test_too_many_ranks_are_refused(n: int, ranks: int, limit: int) -> None:
    with pytest.raises(InputError, match=rf"2·ranks − 1 ≤ blocks, at most {limit} ranks"):
        partition(n, ranks)
    with pytest.raises(RankFailed, match="2·ranks − 1 ≤ blocks"):
        comm.run(invert_and_solve, random_blocks(n, 2, 0), ranks=ranks)


@given(ranks=st.integers(1, 40), extra=st.integers(0, 500), ratio=st.one_of(st.just("auto"), st.floats(0.05, 100.0)))
def test_partitions_tile_the_chain(ranks: int, extra: int, ratio: float | str) -> None:
    n = 2 * ranks - 1 + extra
    bounds = partition(n, ranks, ratio)
    sizes = np.diff(bounds)
    assert (bounds[0], bounds[-1], len(sizes)) == (0, n, ranks)
    assert sizes[0] >= 1
    assert (sizes[1:] >= 2).all()
    assert np.ptp(sizes[1:]) <= 1 if ranks > 1 else True


def test_rank_zero_gets_more_blocks() -> None:
    # The factorisation alone costs 8 1/3 b³ against 3 1/3 b³ per block; with the inverse it is 27 1/3 against 12 1/3.
    assert np.diff(partition(512, 16, 2.5)).tolist()[0] in range(70, 80)
    sizes = np.diff(partition(512, 16))
    assert 1.8 < sizes[0] / sizes[1] < 2.6


def test_rows_of_the_product_with_the_matrix_are_those_of_the_identity() -> None:
    blocks = random_blocks(7, 5, 3, kind="c")
    x = selected_inverse(factor(blocks)).blocks()
    for i in range(blocks.n):
        total = x.diagonal[i] @ blocks.diagonal[i] + x.arrow[i].conj().T @ blocks.arrow[i]
        if i:
            total = total + x.lower[i - 1] @ blocks.lower[i - 1].conj().T
        if i + 1 < blocks.n:
            total = total + x.lower[i].conj().T @ blocks.lower[i]
        assert np.abs(total - np.eye(5)).max() < 1e-13


def test_the_reduced_system_is_the_schur_complement_and_has_its_zeros() -> None:
    n, b, a, ranks = 13, 3, 2, 4
    blocks, bounds = random_blocks(n, b, a), partition(n, ranks)
    boundaries = []
    for rank in range(ranks):
        part = part_of(blocks, bounds, rank)
        source = {"diagonal": part.diagonal, "lower": part.lower, "arrow": part.arrow}
        target = {name: x.copy() for name, x in source.items()} | {"fill": np.zeros_like(part.diagonal)}
        boundary, _ = eliminate(Chain(source, target), part.labels, np.zeros((a, a)), middle=rank > 0, closes=False)
        boundaries.append(boundary)
    tip = blocks.tip + sum(one.tip for one in boundaries)
    labels = [label for rank in range(ranks) for label in reduced_labels(bounds, rank)]
    part = assembled(boundaries, tip, labels)
    assert part.m == 2 * ranks - 1 == len(labels)
    assert part.lower.shape[0] == 2 * ranks - 2
    reduced = BlockArrow(part.diagonal, part.lower, part.arrow, part.tip).to_dense()
    keep = np.concatenate([*(np.arange(label * b, (label + 1) * b) for label in labels), np.arange(n * b, n * b + a)])
    gone = np.setdiff1d(np.arange(n * b + a), keep)
    whole = blocks.to_dense()
    schur = whole[np.ix_(keep, keep)] - whole[np.ix_(keep, gone)] @ np.linalg.solve(whole[np.ix_(gone, gone)], whole[np.ix_(gone, keep)])
    np.testing.assert_allclose(reduced, schur, atol=1e-12)
    chain = (2 * ranks - 1) * b
    for i in range(2 * ranks - 1):
        for j in range(i - 1):
            assert not reduced[i * b : (i + 1) * b, j * b : (j + 1) * b].any()
    assert reduced[chain:, :chain].all()


def test_four_times_the_matrix_is_a_quarter_of_the_inverse_in_every_bit() -> None:
    blocks = random_blocks(9, 7, 3)
    four = BlockArrow(4 * blocks.diagonal, 4 * blocks.lower, 4 * blocks.arrow, 4 * blocks.tip)
    for ranks in (1, 3):
        once, scaled = (comm.run(invert_and_solve, m, ranks=ranks).values[0] for m in (blocks, four))
        for mine, theirs in zip(once[:5], scaled[:5]):
            assert np.array_equal(mine, 4 * theirs)


def test_a_permutation_of_the_arrow_permutes_the_inverse() -> None:
    blocks, order = random_blocks(6, 4, 5), np.array([3, 0, 4, 1, 2])
    turned = BlockArrow(blocks.diagonal, blocks.lower, blocks.arrow[:, order], blocks.tip[np.ix_(order, order)])
    x, y = selected_inverse(factor(blocks)).part, selected_inverse(factor(turned)).part
    np.testing.assert_allclose(y.arrow, x.arrow[:, order], rtol=1e-10, atol=1e-15)
    np.testing.assert_allclose(y.tip, x.tip[np.ix_(order, order)], rtol=1e-12)
    np.testing.assert_allclose(y.diagonal, x.diagonal, rtol=1e-10, atol=1e-15)


@pytest.mark.parametrize("columns", [1, 17])
def test_solutions(columns: int) -> None:
    blocks = random_blocks(8, 5, 2)
    rhs = np.random.default_rng(1).normal(size=(blocks.order, columns))
    f = factor(blocks)
    expected = np.linalg.solve(blocks.to_dense(), rhs)
    np.testing.assert_allclose(f.solve(rhs), expected, rtol=1e-11, atol=1e-14)
    np.testing.assert_allclose(f.solve(rhs[:, 0]), expected[:, 0], rtol=1e-11, atol=1e-14)
    for bad in (np.zeros(3), np.full(blocks.order, np.nan), np.zeros(blocks.order, complex)):
        with pytest.raises(InputError, match="right-hand side"):
            f.solve(bad)


@pytest.mark.parametrize(("block", "pivot"), [(0, 2), (4, 0), (5, 3), (8, 1)])
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_what_is_not_positive_definite_is_named(block: int, pivot: int, ranks: int) -> None:
    blocks = random_blocks(9, 4, 1)
    diagonal = blocks.diagonal.copy()
    diagonal[block, pivot, pivot] = -1000.0
    bad = BlockArrow(diagonal, blocks.lower, blocks.arrow, blocks.tip)
    with pytest.raises(InputError if ranks == 1 else RankFailed, match=f"block {block}: not positive definite at pivot {pivot}"):
        factor(bad) if ranks == 1 else comm.run(invert_and_solve, bad, ranks=ranks)
    tip = BlockArrow(blocks.diagonal, blocks.lower, blocks.arrow, -blocks.tip)
    with pytest.raises(InputError, match="tip: not positive definite at pivot 0"):
        factor(tip)


def test_ill_conditioned_matrices_lose_what_they_must() -> None:
    blocks = random_blocks(8, 6, 2)
    scale = np.logspace(0, -6, 8 * 6 + 2)  # condition about 1e12
    whole = blocks.to_dense() * scale[:, None] * scale
    turned = np.linalg.qr(np.random.default_rng(0).normal(size=(6, 6)))[0]
    mix = sp.block_diag([turned] * 8 + [np.eye(2)]).toarray()
    bad = mix @ whole @ mix.T
    bad = (bad + bad.T) / 2
    assert 1e10 < np.linalg.cond(bad) < 1e14
    made = BlockArrow.from_sparse(sp.csr_array(bad), block=6, arrow=2)
    inverse = np.linalg.inv(bad)
    assert np.abs(selected_inverse(factor(made)).diagonal() - np.diag(inverse)).max() < 1e-3 * np.abs(inverse).max()


@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize("kind", ["f", "c"])
def test_streaming_gives_the_same_bits_through_two_buffers(ranks: int, kind: str) -> None:
    blocks = random_blocks(11, 4, 2, kind=kind)
    budget = 60 * blocks.diagonal[0].nbytes

    def program(ranks_here, stream):
        f = factor(blocks, ranks_here, stream=stream, device_bytes=budget)
        x = selected_inverse(f)
        return x.part.diagonal, x.part.lower, x.part.arrow, f.solve(np.ones(blocks.order)), f.streamed

    resident, streamed = (comm.run(program, stream, ranks=ranks).values for stream in (False, True))
    automatic = comm.run(program, "auto", ranks=ranks).values
    for mine, theirs, auto in zip(resident, streamed, automatic):
        for x, y, z in zip(mine[:4], theirs[:4], auto[:4]):
            assert np.array_equal(x, y)
            assert np.array_equal(x, z)
        assert mine[4].buffers == 0
        assert theirs[4].buffers == 2
        assert theirs[4].ahead > 0
        assert theirs[4].bytes_in > theirs[4].bytes_out > 0
    if ranks == 1:
        counters = streamed[0][4]
        # Factor, inverse and two solves read all blocks once each; factor and inverse write them.
        assert counters.copies_in == 4 * (3 * 11 - 1)
        assert counters.copies_out == 2 * (3 * 11 - 1)
        # Nothing can be copied before the first step of a walk; at the last block there is no lower one.
        assert counters.ahead == counters.copies_in - (3 + 2 + 3 + 2)
        with pytest.raises(InputError, match="expected at least"):
            factor(blocks, stream=True, device_bytes=100)


def test_in_place() -> None:
    blocks = random_blocks(6, 4, 2)
    expected = selected_inverse(factor(blocks))
    copies = BlockArrow(*(x.copy() for x in (blocks.diagonal, blocks.lower, blocks.arrow, blocks.tip)))
    f = factor(copies, overwrite=True)
    x = selected_inverse(f, overwrite=True)
    assert np.shares_memory(x.part.diagonal, copies.diagonal)
    assert np.array_equal(x.part.diagonal, expected.part.diagonal)
    assert np.array_equal(x.part.lower, expected.part.lower)
    assert f.logdet() == factor(blocks).logdet()
    for use in (lambda: f.solve(np.ones(26)), lambda: selected_inverse(f)):
        with pytest.raises(InputError, match="overwritten"):
            use()


@pytest.mark.parametrize("dtype", ["float64", "float32", "complex128"])
def test_torch_gives_torch(dtype: str) -> None:
    torch = pytest.importorskip("torch")
    blocks = random_blocks(6, 5, 2, kind="c" if dtype.startswith("c") else "f")
    parts = [torch.from_numpy(x.astype(dtype)) for x in (blocks.diagonal, blocks.lower, blocks.arrow, blocks.tip)]
    f = factor(BlockArrow(*parts))
    x = selected_inverse(f)
    host = selected_inverse(factor(blocks))
    assert isinstance(x.diagonal(), torch.Tensor)
    np.testing.assert_allclose(x.diagonal().numpy(), host.diagonal(), rtol=1e-4 if dtype == "float32" else 1e-12)
    rhs = torch.ones(blocks.order, dtype=parts[0].dtype)
    assert isinstance(f.solve(rhs), torch.Tensor)
    assert isinstance(f.solve(np.ones(blocks.order)), np.ndarray)
    assert np.abs(x.to_sparse().toarray() - host.to_sparse().toarray()).max() < (1e-6 if dtype == "float32" else 1e-13)


def test_unknown_choices_are_refused() -> None:
    wrong = ("strategy", "allgater", 'unknown strategy "allgater"'), ("balance", "heavy", "balance"), ("stream", "maybe", "stream")
    for name, value, says in wrong:
        with pytest.raises(InputError, match=says):
            factor(random_blocks(3, 2, 0), **{name: value})
