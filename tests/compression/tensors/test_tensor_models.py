"""Tests of models in tensor-train form, of the model of the edge processor, and of files."""

from __future__ import annotations

import bisect
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from armillary.compression.tensors import TT, EdgeProcessor, GemmOnly, TtEdge, Tucker, estimate, fold, sensitivity, tt_svd
from armillary.compression.tensors.models.compression import best_modes, compress_model, tt_conv2d, tt_linear
from armillary.compression.tensors.models.weight_files import from_safetensors, read_tensors, to_safetensors
from armillary.compression.tensors.processor.edge import PHASES, decomposition, total
from armillary.compression.tensors.processor.method import on_processor
from armillary.compression.tensors.workload import Tensors, built_in, looks_trained
from armillary.errors import InputError


def weights() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    conv, linear = looks_trained((16, 8, 3, 3), rng), looks_trained((64, 128), rng)
    return {"conv": conv, "linear": linear, "bias": rng.normal(size=64).astype(np.float32)}


def test_a_model_at_one_error() -> None:
    made = compress_model(weights(), 0.2)
    for name, w in weights().items():
        assert made[name].full().shape == w.shape
        assert np.linalg.norm(made[name].full() - w) <= 0.2 * np.linalg.norm(w) * 1.0001
    assert made["bias"].train is None


def test_a_budget_is_kept_and_shared_out_well() -> None:
    rng = np.random.default_rng(1)
    # One layer compresses well and one does not, so one error for both would spoil the second for little.
    easy = np.kron(rng.normal(size=(8, 8)), rng.normal(size=(8, 8)))
    model = {"easy": easy + 0.3 * rng.normal(size=(64, 64)), "hard": rng.normal(size=(64, 64))}
    values = 2 * 64 * 64
    made = compress_model(model, ratio=1.6)
    assert sum(layer.size for layer in made.values()) <= values / 1.6
    errors = {name: np.linalg.norm(made[name].full() - w) / np.linalg.norm(w) for name, w in model.items()}
    # The least error for both at which they fit, to a hundredth.
    at_one_error = [float(eps) for eps in np.linspace(0.01, 0.95, 95)]
    fits = bisect.bisect_left(at_one_error, True, key=lambda eps: sum(v.size for v in compress_model(model, eps).values()) <= values / 1.6)
    worse = compress_model(model, at_one_error[fits])
    before = sum((np.linalg.norm(worse[name].full() - w) / np.linalg.norm(w)) ** 2 for name, w in model.items())
    assert sum(e**2 for e in errors.values()) <= before * 1.01
    for kind in (np.float32, np.float64):
        # A float64 counts eight bytes; once it counted four, and the result had twice the budget.
        model = {name: w.astype(kind) for name, w in model.items()}
        made = compress_model(model, budget_bytes=8 * 4096)
        assert sum(v.nbytes for v in made.values()) <= 8 * 4096
        assert sum(v.nbytes for v in made.values()) > 0.8 * 8 * 4096
        assert all(v.full().dtype == kind for v in made.values())
    with pytest.raises(InputError, match="budget"):
        compress_model(model, budget_bytes=8)


def test_modes_are_chosen_by_size() -> None:
    w = looks_trained((64, 128), np.random.default_rng(0))
    best = best_modes(w, 0.3)
    assert tt_svd(fold(w, *best), 0.3).size <= tt_svd(fold(w, (8, 8), (16, 8)), 0.3).size


def test_layers_compute_in_train_form() -> None:
    torch = pytest.importorskip("torch")
    made = compress_model(weights(), 0.3)
    rng = np.random.default_rng(2)
    x = torch.tensor(rng.normal(size=(5, 3, 128)), dtype=torch.float32)
    bias = np.arange(64, dtype=np.float32)
    linear = tt_linear(made["linear"], bias)
    truth = x @ torch.tensor(made["linear"].full()).T + torch.tensor(bias)
    assert torch.allclose(linear(x), truth, atol=1e-4)
    image = torch.tensor(rng.normal(size=(2, 8, 9, 7)), dtype=torch.float32)
    for stride, padding in ((1, 0), (1, 1), (2, 1), ((2, 1), (0, 1))):
        conv = tt_conv2d(made["conv"], None, stride, padding)
        truth = torch.nn.functional.conv2d(image, torch.tensor(made["conv"].full()), stride=stride, padding=padding)
        assert torch.allclose(conv(image), truth, atol=1e-4)
    linear(x).square().sum().backward()
    assert all(core.grad is not None for core in linear.cores)
    with pytest.raises(InputError, match="not compressed"):
        tt_linear(compress_model({"w": rng.normal(size=(2, 2))}, 0.0)["w"])


def test_tucker_is_within_its_error() -> None:
    for a in (np.random.default_rng(0).normal(size=(5, 6, 7)), built_in("video", np.random.default_rng(0), "tiny").layers["video"]):
        for eps in (0.0, 0.1, 0.5):
            made = Tucker(eps=eps).compress(a)
            assert np.linalg.norm(made.full() - a) <= (eps + 1e-3 * (eps == 0)) * np.linalg.norm(a)


def test_the_engine_gains_nothing_where_it_is_a_core_and_moving_is_free() -> None:
    p = EdgeProcessor(engine_flops=1 / 2.5, engine_sort=20.0, engine_truncate=5.0, dma=np.inf, setup=0.0)
    work = built_in("resnet32", np.random.default_rng(0), "tiny")
    assert GemmOnly().estimate(work, p).ms == pytest.approx(TtEdge().estimate(work, p).ms, rel=1e-12)


def test_the_model_is_monotone_in_each_constant() -> None:
    trains = [tt_svd(a, 0.3, engine="plain") for a in built_in("resnet32", np.random.default_rng(0), "tiny").layers.values()]
    p = EdgeProcessor()
    for kind in ("gemm-only", "tt-edge"):
        base = on_processor(trains, kind, p)  # type: ignore[arg-type]
        assert sum(base.phases.values()) == pytest.approx(base.ms, rel=1e-12)
        for name, slower in (
            ("core_cycles", 2), ("feed", 0.5), ("dma", 0.5), ("setup", 2), ("scratchpad", 0.01), ("engine_flops", 0.5), ("core_sort", 2), ("macs", 0.5),
        ):  # fmt: skip
            other = on_processor(trains, kind, replace(p, **{name: getattr(p, name) * slower}))  # type: ignore[arg-type]
            assert other.ms >= base.ms
    table = sensitivity(trains)
    assert {"dma", "setup", "feed"} <= set(table["constant"])
    assert (table["halved"] > 0).all()


def test_what_fits_the_scratchpad_is_not_moved() -> None:
    p = EdgeProcessor(setup=0.0)
    # 64 × 32 floats are 8 KiB; 200 × 200 are 160 KB.
    small = decomposition(64, 32, 60, 10, "tt-edge", p)
    assert small["reduce"].moving == small["accumulate"].moving == 0
    large = decomposition(200, 200, 400, 10, "tt-edge", p)
    assert 0 < large["reduce"].moving < decomposition(200, 200, 400, 10, "gemm-only", p)["reduce"].moving


def test_one_tiny_decomposition_by_hand() -> None:
    # 2×1: one reflection of length 2 with nothing beside it, U accumulated on 2×1, no sweeps.
    p = EdgeProcessor()
    made = decomposition(2, 1, 0, 1, "gemm-only", p)
    assert made["reduce"].core == 3 * 2 * 2.5
    assert made["reduce"].moving == 8 / 4 + 600
    assert made["accumulate"].accelerator == 2 * 8 / 8 + 1200
    assert made["truncate"].core == 5
    engine = decomposition(2, 1, 0, 1, "tt-edge", p)
    assert engine["reduce"].cycles == 3 * 2 / 16
    took = total([engine], "tt-edge", p)
    assert set(took.phases) == set(PHASES)
    # 100 MHz: a cycle is 10 ns.
    assert took.ms == pytest.approx(sum(x.cycles for x in engine.values()) * 1e-5)


def test_estimates_by_layer() -> None:
    table = estimate([np.random.default_rng(0).normal(size=(8, 8, 3)).astype(np.float32)] * 2, 0.3)
    assert table.shape == (2 * len(PHASES), 3)
    assert (table["ms"] >= 0).all()
    with pytest.raises(InputError, match=r"EdgeProcessor\.clock"):
        EdgeProcessor(clock=0)


@pytest.mark.slow
def test_a_trained_network_keeps_its_accuracy() -> None:
    pytest.importorskip("torch")
    pytest.importorskip("sklearn")
    work: Tensors = built_in("digits", np.random.default_rng(0))
    before = work.judge({})
    assert before > 95
    ruined = {name: np.zeros_like(w) for name, w in work.layers.items()}
    assert work.judge(ruined) < 30
    assert work.judge({}) == before


def test_files(tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    from safetensors.numpy import save_file

    save_file(weights(), str(tmp_path / "w.safetensors"))
    np.savez(tmp_path / "w.npz", **weights())
    np.save(tmp_path / "one.npy", weights()["linear"])
    for name in ("w.safetensors", "w.npz"):
        found = read_tensors(tmp_path / name)
        assert set(found) == {"conv", "linear"}
        np.testing.assert_array_equal(found["conv"], weights()["conv"])
    assert set(read_tensors(tmp_path / "w.npz", "lin*")) == {"linear"}
    assert set(read_tensors(tmp_path / "one.npy")) == {"one"}
    trains = {"a.b": tt_svd(weights()["conv"], 0.2), "c": tt_svd(weights()["linear"], 0.2)}
    to_safetensors(trains, tmp_path / "t.safetensors")
    again = from_safetensors(tmp_path / "t.safetensors")
    assert {name: t.ranks for name, t in again.items()} == {name: t.ranks for name, t in trains.items()}


def test_small_cores_do_not_become_a_tensor_without_end(tmp_path: Path) -> None:
    train = TT((np.ones((1, 2, 1)),) * 50)
    with pytest.raises(InputError, match=r"50 modes.*set most_bytes"):
        train.full()
    with pytest.raises(InputError, match="set most_bytes"):
        tt_svd(weights()["linear"], 0.2).full(most_bytes=weights()["linear"].nbytes - 1)
    save_file = pytest.importorskip("safetensors.numpy").save_file
    for name in ("a/²", "a/" + "9" * 5000, "a/-1", "/0", "a"):
        save_file({name: np.ones((1, 2, 1))}, tmp_path / "t.safetensors")
        with pytest.raises(InputError, match="expected cores named"):
            from_safetensors(tmp_path / "t.safetensors")


def test_bad_files(tmp_path: Path) -> None:
    cases: list[tuple[str, Any, str]] = [
        ("x.pkl", b"\x80\x04K\x01.", "pickle"),
        ("x.txt", b"1", "expected .safetensors"),
        ("x.safetensors", b"\xff" * 20, "not a safetensors"),
        ("x.npz", b"PK\x03\x04", "not an .npz of arrays"),
        ("y.npz", b"x\x00\x01", "not an .npz of arrays: File is not a zip file"),
        ("y.npy", b"x\x00\x01", "a pickle, or nothing that NumPy wrote"),
        ("x.npy", b"\x93NUMPY", "not an array"),
    ]
    arrays: list[tuple[str, Any, str]] = [
        ("objects.npz", np.array([{}, {}], dtype=object), "found Python objects"),
        ("nan.npz", np.array([[1.0, np.nan]]), r"a: found nan at \(0, 1\)"),
        ("flat.npz", np.ones(3), "no float tensor"),
    ]
    for name, data, _ in cases:
        (tmp_path / name).write_bytes(data)
    for name, data, _ in arrays:
        np.savez(tmp_path / name, a=data)
    for name, _, said in cases + arrays:
        with pytest.raises(InputError, match=said):
            read_tensors(tmp_path / name)


def test_a_torch_file_that_would_run_code_is_refused(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    torch.save({"w": torch.ones(3, 4)}, tmp_path / "good.pt")
    assert set(read_tensors(tmp_path / "good.pt")) == {"w"}
    torch.save({"w": Path("x")}, tmp_path / "bad.pt")
    with pytest.raises(InputError, match="convert it to safetensors"):
        read_tensors(tmp_path / "bad.pt")
