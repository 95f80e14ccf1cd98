"""The programs agree with NumPy and SciPy, and give the same bits on every backend and as their native twins."""

from __future__ import annotations

import backends_programs as own
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import io, sparse
from scipy.sparse.linalg import cg as scipy_cg

from armillary import catalogue, comm
from armillary.errors import InputError
from armillary.network.backends import Mpi4pyNative, ThreadsNative, TorchDistributed, Uniconn, measure
from armillary.network.backends.matrices import matrix_market, poisson, system
from armillary.network.backends.measurement import first_library

SMALL = {
    "jacobi": {"n": 40, "iterations": 9},
    "cg": {"grid": 5},
    "pingpong": {"nbytes": 64, "exchanges": 3},
    "bandwidth": {"nbytes": 64, "exchanges": 2},
    "allreduce": {"nbytes": 64, "exchanges": 3},
}


def available(backend):
    if comm.backends()[backend]:
        pytest.skip(f"{backend}: {comm.backends()[backend]}")
    more = {"timeout": 120} if backend in ("mpi", "gloo") else {}
    return {"backend": backend, **more, **(first_library() if backend == "mpi" else {})}


def by_hand(n, iterations, periodic):
    """Jacobi with slices and a loop, which shares only the order of additions with the program."""
    a = np.zeros((n + 2, n))
    a[0] = 1.0
    for _ in range(iterations):
        b = a.copy()
        b[1:-1, 1:-1] = (((a[:-2] + a[2:])[:, 1:-1] + a[1:-1, :-2]) + a[1:-1, 2:]) * 0.25
        if periodic:
            b[0], b[-1] = b[-2], b[1]
        a = b
    return a[1:-1]


def test_one_sweep_of_a_grid_of_three_by_hand():
    rows = comm.run(own.jacobi_rows, 3, 1, ranks=1)[0]
    assert rows.tolist() == [[0, 0.25, 0], [0, 0, 0], [0, 0, 0]]


@pytest.mark.parametrize("periodic", [False, True])
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_jacobi_is_numpys(ranks, periodic):
    parts = comm.run(own.jacobi_rows, 22, 8, periodic, ranks=ranks).values
    assert np.array_equal(np.concatenate(parts), by_hand(22, 8, periodic))


@settings(max_examples=15, deadline=None)
@given(n=st.integers(3, 30), iterations=st.integers(0, 9), ranks=st.integers(1, 3))
def test_jacobi_of_any_size_is_numpys(n, iterations, ranks):
    if (ranks - 1) * -(-n // ranks) >= n:
        return
    parts = comm.run(own.jacobi_rows, n, iterations, ranks=ranks).values
    assert np.array_equal(np.concatenate(parts), by_hand(n, iterations, False))


def csr(parts):
    return sparse.csr_array((parts[2], parts[1], parts[0]))


def test_the_poisson_matrix_is_a_product_of_lines():
    line = np.eye(4) + np.eye(4, k=1) + np.eye(4, k=-1)
    assert np.array_equal(csr(poisson(4)).toarray(), 27 * np.eye(64) - np.kron(np.kron(line, line), line))
    assert np.linalg.eigvalsh(csr(poisson(4)).toarray())[0] > 0


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_conjugate_gradients_are_scipys(ranks):
    found = comm.run(own.cg_part, 7, ranks=ranks).values
    matrix, rhs = csr(system(7, None)[0]), system(7, None)[1]
    x = np.concatenate([part for _, part in found])
    assert np.linalg.norm(rhs - matrix @ x) <= 1e-10 * np.linalg.norm(rhs) * 1.01
    steps = []
    scipy_cg(matrix, rhs, rtol=1e-10, atol=0.0, callback=steps.append)
    assert abs(found[0][0] - len(steps)) <= 1


def test_conjugate_gradients_read_a_file(tmp_path):
    spread = np.random.default_rng(2).normal(size=(30, 30))
    matrix = sparse.coo_array(np.where(abs(spread @ spread.T) > 4, spread @ spread.T, 0) + 60 * np.eye(30))
    file = tmp_path / "spd.mtx"
    io.mmwrite(file, matrix, symmetry="symmetric")
    found = comm.run(own.cg_part, 0, str(file), ranks=2).values
    expected = np.cos(np.arange(30) * 0.37)
    assert np.allclose(np.concatenate([part for _, part in found]), expected, atol=1e-8)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nothing", "not a Matrix Market file"),
        ("%%MatrixMarket matrix coordinate real symmetric\n2 3 1\n1 1 1.0\n", "square"),
        ("%%MatrixMarket matrix coordinate real symmetric\n2 2 900000000\n1 1 1.0\n", "announced"),
        ("%%MatrixMarket matrix coordinate real symmetric\n2 2 2\n1 1 1.0\n2 2 -1.0\n", "not positive"),
        ("%%MatrixMarket matrix coordinate real general\n2 2 3\n1 1 1.0\n2 2 1.0\n1 2 0.5\n", "not symmetric"),
        ("%%MatrixMarket matrix coordinate complex symmetric\n1 1 1\n1 1 1.0 0.0\n", "complex"),
        ("%%MatrixMarket matrix coordinate real symmetric\n2 2 2\n1 1 1.0\n2 2 x\n", "expected an entry"),
        ("%%MatrixMarket matrix coordinate real symmetric\n99999999999 99999999999 1\n1 1 1.0\n", "expected a square matrix of 1 to"),
    ],
)
def test_bad_matrices_are_refused_in_one_line(tmp_path, text, said):
    file = tmp_path / "bad.mtx"
    file.write_text(text)
    with pytest.raises(InputError, match=said) as caught:
        matrix_market(str(file))
    assert "\n" not in str(caught.value)
    assert str(file) in str(caught.value)


@pytest.mark.parametrize("ranks", [2, 3])
def test_one_text_gives_the_same_bits_on_every_backend(ranks):
    expected = comm.run(own.all_programs, ranks=ranks).values
    for backend in ("mpi", "virtual", "gloo")[: 3 if ranks == 2 else 2]:
        if not comm.backends()[backend]:
            assert comm.run(own.all_programs, ranks=ranks, **available(backend)).values == expected, backend


def test_alone_gives_the_bits_of_one():
    assert comm.run(own.all_programs, backend="one").values == comm.run(own.all_programs, ranks=1, backend="virtual").values


# Sums of three ranks come in different orders, so conjugate gradients are left to two.
@pytest.mark.parametrize(
    ("program", "ranks"),
    [("jacobi", 2), ("jacobi", 3), ("cg", 2), ("allreduce", 2), ("allreduce", 3), ("pingpong", 2), ("bandwidth", 2)],
)
def test_threads_native_gives_the_same_bits(program, ranks):
    # `measure` raises an error if the texts give different bits.
    found = measure([ThreadsNative.texts, Uniconn.texts], program, SMALL[program], "threads", ranks, 2)
    assert list(found) == [ThreadsNative.texts, Uniconn.texts]


def test_mpi4py_native_and_torch_give_the_same_bits():
    texts = dict.fromkeys(SMALL, [Mpi4pyNative.texts, Uniconn.texts])
    if not comm.backends()["gloo"]:
        texts |= dict.fromkeys(("jacobi", "cg"), [Mpi4pyNative.texts, Uniconn.texts, TorchDistributed.texts])
    found = comm.run(own.every_text, texts, SMALL, ranks=2, **available("mpi"))[0]
    assert {program: len(table) for program, table in found.items()} == {program: len(names) for program, names in texts.items()}
    assert min(seconds for table in found.values() for rounds in table for seconds in rounds) > 0


def test_different_bits_are_an_error(monkeypatch):
    from armillary.network.backends import threads_native

    def wrong(comm, nbytes, exchanges):
        return lambda: np.zeros(nbytes // 8)

    monkeypatch.setattr(threads_native, "allreduce", wrong)
    with pytest.raises(comm.RankFailed, match="different bits"):
        measure([ThreadsNative.texts, Uniconn.texts], "allreduce", SMALL["allreduce"], "threads", 2, 2)


def test_every_built_in_program_has_a_text_for_every_technique():
    arena = catalogue.arena("network/backends")
    programs = {case.parameters["program"] for case in arena.built_in("small")}
    assert programs == set(SMALL)
    for name in arena.techniques:
        texts = __import__(arena.technique(name).texts, fromlist=["x"])
        assert all(callable(getattr(texts, program)) for program in programs)
