"""The applications against other programs for the same thing: SciPy, direct sums, sequential sweeps, PyTorch's gradients."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import scipy.linalg
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.errors import InputError
from armillary.runtime.dataflow import (
    Application,
    Blocking,
    Dask,
    ForkJoin,
    Oversubscribed,
    Sequential,
    SingleApi,
    TaskAware,
    TaskAwareShared,
    application,
)
from armillary.runtime.dataflow.applications.application import stages
from armillary.runtime.dataflow.running.laps import check
from armillary.runtime.dataflow.running.technique import Setting, opened
from armillary.runtime.dataflow.running.ways import in_order

WAYS: list[Any] = [
    Sequential(), ForkJoin(), Blocking(), pytest.param(SingleApi(), marks=pytest.mark.slow), Dask(), TaskAware(),
    TaskAware(chain=False), TaskAware(notify="callback"), TaskAware(poll="50us"), TaskAwareShared(), Oversubscribed(),
]  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def packages() -> None:
    pytest.importorskip("pyopencl")
    pytest.importorskip("torch")
    pytest.importorskip("dask")


def lap(way: Any, app: Application, workers: int = 2) -> Any:
    with way.lap(app, Setting(workers)) as once:
        app.reset()
        return once()


def factor_of(app: Application, n: int, tile: int) -> np.ndarray:
    found = np.zeros((n, n))
    for name, value in app.data.items():
        i, j = (int(part) for part in name.split(","))
        found[i * tile : (i + 1) * tile, j * tile : (j + 1) * tile] = np.tril(value) if i == j else value
    return found


def whole_of(app: Application, n: int, tile: int) -> np.ndarray:
    found = np.zeros((n, n))
    for name, value in zip(app.data, (content for _, content in app.initial)):
        i, j = (int(part) for part in name.split(","))
        found[i * tile : (i + 1) * tile, j * tile : (j + 1) * tile] = value
        found[j * tile : (j + 1) * tile, i * tile : (i + 1) * tile] = value.T
    return found


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_cholesky_is_scipys(way: Any) -> None:
    app = application("cholesky", 192, 48, seed=3)
    lap(way, app)
    expected = scipy.linalg.cholesky(whole_of(app, 192, 48), lower=True)
    assert np.abs(factor_of(app, 192, 48) - expected).max() < 1e-12
    check(app)


@pytest.mark.parametrize("api", ["blas", "torch", "numba", "opencl"])
def test_every_api_gives_the_factor(api: str) -> None:
    app = application("cholesky", 64, 16, seed=4)
    assert api in app.everywhere
    with opened((api,), Setting(1), threads=1) as apis:
        in_order(apis, app.on(api))
    assert np.abs(factor_of(app, 64, 16) - scipy.linalg.cholesky(whole_of(app, 64, 16), lower=True)).max() < 1e-12


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_sweeps_are_sequential_gauss_seidel_bit_by_bit(way: Any) -> None:
    app = application("heat", 24, 8, 3, seed=5)
    grid, start = app.initial[0]
    expected = start.copy()
    for _ in range(3):
        for i in range(1, 25):
            for j in range(1, 25):
                expected[i, j] = 0.25 * (expected[i - 1, j] + expected[i, j - 1] + expected[i, j + 1] + expected[i + 1, j])
    lap(way, app)
    assert np.array_equal(grid, expected)


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_bodies_move_as_by_a_direct_sum(way: Any) -> None:
    app = application("nbody", 3, 20, 2, seed=6)
    places = np.concatenate([content for _, content in app.initial[:3]])
    speeds = np.zeros_like(places)
    for _ in range(2):
        apart = places[None] - places[:, None]
        square = (apart**2).sum(2) + 1e-4
        speeds += 1e-4 * (apart / (square**1.5)[:, :, None]).sum(1)
        places = places + 1e-4 * speeds
    lap(way, app)
    assert np.abs(np.concatenate([array for array, _ in app.initial[:3]]) - places).max() < 1e-12


def gradients_by_torch(app: Application, batch: int, layers: int, width: int) -> dict[str, np.ndarray]:
    import torch

    first = {name: torch.tensor(content, dtype=torch.float64) for name, (_, content) in zip(app.data, app.initial)}
    leaves = {name: value.requires_grad_() for name, value in first.items() if name[0] in "wgb" or name.startswith("h0")}
    loss = torch.zeros((), dtype=torch.float64)
    for s in range(batch):
        h = leaves[f"h0.{s}"]
        for n in range(layers):
            a = torch.nn.functional.layer_norm(h, (width,), leaves[f"g1.{n}"], leaves[f"b1.{n}"], 1e-5)
            q, k, v = (a @ leaves[f"w{name}.{n}"] for name in "qkv")
            h = h + torch.softmax(q @ k.T / math.sqrt(width), -1) @ v @ leaves[f"wo.{n}"]
            a = torch.nn.functional.layer_norm(h, (width,), leaves[f"g2.{n}"], leaves[f"b2.{n}"], 1e-5)
            h = h + torch.nn.functional.gelu(a @ leaves[f"w1.{n}"], approximate="tanh") @ leaves[f"w2.{n}"]
        loss = loss + (h * first[f"start.{s}"]).sum()
    loss.backward()
    found = {}
    for name, value in leaves.items():
        assert value.grad is not None
        found[f"dh.{name[3:]}" if name.startswith("h0") else f"d{name}"] = value.grad.numpy()
    return found


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_gradients_are_those_of_autograd(way: Any) -> None:
    app = application("block", 2, 12, 16, 2, seed=7)
    lap(way, app)
    expected = gradients_by_torch(app, 2, 2, 16)
    assert len(expected) == 2 * 10 + 2
    for name, value in expected.items():
        assert np.abs(app.data[name] - value).max() <= 1e-5 * np.abs(value).max(), name


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_chains_end_where_arithmetic_says(way: Any) -> None:
    app = application("mix", 3, 4, 5, seed=8)
    lap(way, app)
    for array, start in app.initial:
        assert np.abs(array - (1 - (1 - start) * 0.999 ** (4 * 5))).max() < 1e-12


def test_a_wrong_result_is_found() -> None:
    for sizes in (("cholesky", 64, 32), ("heat", 16, 8, 2), ("nbody", 2, 16, 2), ("block", 1, 8, 8, 1), ("mix", 2, 2, 3)):
        app = application(*sizes)  # type: ignore[arg-type]
        lap(Sequential(), app)
        check(app)
        last = app.operations[-1]
        last.kernel.variant("numba")(*last.args)  # The last kernel once too often.
        with pytest.raises(ArithmeticError, match="as far off"):
            check(app)


def test_data_of_one_lap_does_not_reach_the_next() -> None:
    app = application("cholesky", 64, 32)
    found = TaskAware().run(app, Setting(2), 3)
    assert len(found.seconds) == 3
    assert found.p90 >= found.makespan
    assert found.threads >= 3


def test_stages_are_the_depths_of_the_graph() -> None:
    app = application("cholesky", 3 * 8, 8)
    assert [[op.kernel.name for op in stage] for stage in stages(app.operations)] == [
        ["potrf"], ["trsm", "trsm"], ["syrk", "gemm", "syrk"], ["potrf"], ["trsm"], ["syrk"], ["potrf"],
    ]  # fmt: skip


@settings(max_examples=60)
@given(st.lists(st.tuples(st.sets(st.integers(0, 4), max_size=3), st.sets(st.integers(0, 4), min_size=1, max_size=2)), max_size=25))
def test_no_stage_holds_two_that_depend_on_each_other(accesses: list[tuple[set[int], set[int]]]) -> None:
    from armillary.runtime.dataflow import Kernel, Operation

    made = [
        Operation(Kernel(str(i)), "blas", (), tuple(map(str, reads - updates)), tuple(map(str, updates)))
        for i, (reads, updates) in enumerate(accesses)
    ]  # fmt: skip
    found = stages(made)
    depth = {op.kernel.name: number for number, stage in enumerate(found) for op in stage}
    assert sum(len(stage) for stage in found) == len(made)
    for i, one in enumerate(made):
        for j in range(i):
            other = made[j]
            mine, theirs = set(one.updates), set(other.updates)
            if mine & (theirs | set(other.reads)) or set(one.reads) & theirs:
                assert depth[str(j)] < depth[str(i)]


def test_counts_are_those_of_the_algorithms() -> None:
    nt = 5
    names = [op.kernel.name for op in application("cholesky", nt * 4, 4).operations]
    assert {name: names.count(name) for name in set(names)} == {
        "potrf": nt, "trsm": nt * (nt - 1) // 2, "syrk": nt * (nt - 1) // 2, "gemm": nt * (nt - 1) * (nt - 2) // 6,
    }  # fmt: skip
    assert len(application("heat", 32, 8, 3).operations) == 48
    assert len(application("nbody", 4, 8, 2).operations) == 2 * (16 + 4)


def test_a_buffer_that_two_apis_share_is_right_a_thousand_times() -> None:
    from armillary.runtime.dataflow import Apis, ClSource, Kernel
    from armillary.tasks import Graph, Threads

    source = "__kernel void add(__global double* a, const int n) { int i = get_global_id(0); a[i] = a[i] * 2 + n; }"
    kernel = Kernel("add", {"opencl": ClSource(source, "add", lambda a, n: (a.size,)), "blas": lambda a, n: np.subtract(a, n, out=a)})
    shared = np.arange(64.0)
    wrong: list[int] = []
    with Apis("opencl", "blas", chain=False) as apis:
        graph = Graph()
        handle = graph.data("shared", shared)
        for n in range(1000):
            apis.add(graph, "opencl", kernel, shared, n, updates=[handle])

            def look(n: int = n) -> None:
                # On the host, between two kernels of the device: halved again, so that the numbers stay small.
                if not np.array_equal(shared, np.arange(64.0) * 2 + n):
                    wrong.append(n)
                shared[...] = np.arange(64.0)

            graph.add(look, updates=[handle])
        apis.run(graph, Threads(2)).raise_first()
    assert not wrong


@pytest.mark.parametrize(
    ("name", "sizes", "said"),
    [
        ("cholesky", (100, 30), "expected a multiple"),
        ("heat", (100, 30, 1), "expected a multiple"),
        ("cholesky", (100,), "expected n, tile"),
        ("mix", (0, 1, 1), "chains: found 0"),
        ("mix", (1.5, 1, 1), "whole number"),
        ("mix", (100_000, 100, 1), "10,000,000 kernels"),
        ("fft", (8,), "fft"),
    ],
)
def test_wrong_sizes_are_one_sentence(name: str, sizes: tuple[int, ...], said: str) -> None:
    with pytest.raises(InputError, match=said) as found:
        application(name, *sizes)
    assert "\n" not in str(found.value)
