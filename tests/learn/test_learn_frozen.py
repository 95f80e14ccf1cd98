"""Frozen networks give what PyTorch gives, in NumPy and inside compiled loops, and need no PyTorch; trees give what scikit-learn gives."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from test_learn_blocks import BLOCKS, shaken  # noqa: E402

from armillary.errors import InputError  # noqa: E402
from armillary.kernels import loop  # noqa: E402
from armillary.learn import (  # noqa: E402
    ArraysConfig,
    CrossDeep,
    Lstm,
    Mlp,
    Model,
    SetTransformer,
    cross_deep_into,
    from_sklearn,
    load,
    lstm_step,
    mlp_best,
    mlp_into,
)  # fmt: skip
from armillary.learn.perceptron import Block  # noqa: E402


def inputs_of(block: Block, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    c: Any = block.config
    size = {"mlp": lambda c: c.inputs, "cross-deep": lambda c: c.dim}
    if c.kind in size:
        return (rng.standard_normal((5, size[c.kind](c))).astype(np.float32),)
    if c.kind == "dual-tower":
        return tuple(rng.standard_normal((5, size[t.kind](t))).astype(np.float32) for t in (c.left, c.right))
    if c.kind == "actor-critic":
        return (rng.standard_normal((5, 3, c.inputs) if c.entities else (5, c.inputs)).astype(np.float32),)
    if c.kind.startswith("cnn"):
        return (rng.standard_normal((2, c.channels, *c.size)).astype(np.float32),)
    x = rng.standard_normal((4, 6, c.inputs)).astype(np.float32)
    if c.kind == "typed-attention":
        real = rng.random((4, 6)) < 0.7
        real[0] = False
        return x, rng.integers(0, c.types, (4, 6)), real, rng.integers(-1, c.edges, (4, 6, 6))
    if c.kind == "set-transformer":
        real = rng.random((4, 6)) < 0.7
        real[1] = False
        return x, real
    return (x, rng.random((4, 6)).astype(np.float32)) if c.kind == "gru-decay" else (x,)


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.config.kind)
def test_frozen_is_torch(block: Block) -> None:
    for seed in range(3):
        rng = np.random.default_rng(seed)
        block.load_arrays([(0.3 * rng.standard_normal(a.shape)).astype(np.float32) for a in block.state_arrays()])
        given = inputs_of(block, rng)
        with torch.no_grad():
            expected = block(*map(torch.from_numpy, given))
        frozen = Model.of(block).frozen()
        if block.config.kind == "actor-critic":
            found: Any = (frozen.logits(*given), frozen.value(*given))
        else:
            found, expected = (frozen(*given),), (expected,)
        for mine, theirs in zip(found, expected):
            assert mine.dtype == np.float32
            # In float32 the error of a sum grows with its terms, not with the sum.
            assert np.abs(mine - theirs.numpy()).max() <= 1e-5 * max(1.0, float(theirs.abs().max()))


@given(st.integers(0, 10**6), st.lists(st.integers(1, 40), max_size=4), st.sampled_from(["relu", "tanh", "gelu", "silu"]))
@settings(max_examples=30)
def test_a_compiled_perceptron_is_torch(seed: int, hidden: list[int], activation: Any) -> None:
    rng = np.random.default_rng(seed)
    net = Mlp(int(rng.integers(1, 20)), hidden, int(rng.integers(1, 9)), activation=activation, seed=seed)
    frozen = Model.of(net).frozen()
    x, out = rng.standard_normal(net.config.inputs).astype(np.float32), np.empty(net.config.outputs, np.float32)
    mlp_into(*frozen.compiled, x, out, frozen.scratch())
    with torch.no_grad():
        expected = net(torch.from_numpy(x)).numpy()
    assert np.allclose(out, expected, atol=1e-5)
    assert mlp_best(*frozen.compiled, x, out, frozen.scratch()) == out.argmax()


@given(st.integers(0, 10**6), st.integers(0, 3), st.lists(st.integers(1, 30), max_size=3), st.integers(0, 2))
@settings(max_examples=20)
def test_a_compiled_cross_network_is_torch(seed: int, cross: int, deep: list[int], rank: int) -> None:
    rng = np.random.default_rng(seed)
    net = CrossDeep(int(rng.integers(1, 12)), cross, deep, 4, rank=rank, seed=seed)
    frozen = Model.of(net).frozen()
    x, out = rng.standard_normal(net.config.dim).astype(np.float32), np.empty(4, np.float32)
    cross_deep_into(*frozen.compiled, x, out, frozen.scratch())
    with torch.no_grad():
        assert np.allclose(out, net(torch.from_numpy(x)).numpy(), rtol=1e-5, atol=1e-5)


def test_a_compiled_lstm_step_is_torch() -> None:
    net = shaken(Lstm(3, 8, 2, layers=2))
    frozen = Model.of(net).frozen()
    x = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)
    h, c, scratch = np.zeros((2, 8), np.float32), np.zeros((2, 8), np.float32), frozen.scratch()
    for t in range(5):
        lstm_step(*frozen.compiled, 0, x[t], h[0], c[0], scratch)
        lstm_step(*frozen.compiled, 1, h[0], h[1], c[1], scratch)
    with torch.no_grad():
        assert np.allclose(h[1], net.features(torch.from_numpy(x)[None])[0], atol=1e-5)


def test_a_simulators_own_loop_may_ask_the_network() -> None:
    frozen = Model.of(Mlp(4, (16,), 3, seed=1)).frozen()

    @loop
    def simulate(weights: np.ndarray, sizes: np.ndarray, activation: int, states: np.ndarray, scratch: np.ndarray) -> np.ndarray:
        chosen, out = np.empty(len(states), np.int64), np.empty(sizes[-1], np.float32)
        for i in range(len(states)):
            chosen[i] = mlp_best(weights, sizes, activation, states[i], out, scratch)
        return chosen

    states = np.random.default_rng(0).standard_normal((50, 4)).astype(np.float32)
    assert (simulate(*frozen.compiled, states, frozen.scratch()) == frozen(states).argmax(1)).all()


WITHOUT = """
import importlib.abc, sys
class Refuse(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "safetensors", "sklearn", "gymnasium"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Refuse())
import numpy as np
import armillary.learn as learn
model = learn.load(sys.argv[1])
print(float(model.frozen()(np.ones((1, 3), np.float32)).sum()))
print(float(learn.load(sys.argv[2]).frozen()(np.ones((1, 4, 5), np.float32)).sum()))
recipe = learn.Recipe("f/a/t", "armillary.learn.perceptron:Mlp")
try:
    recipe.trained()
except learn.store.InputError as error:
    print(error)
for name in ("Ppo", "fit", "Single"):
    try:
        getattr(learn, name)
    except learn.store.InputError as error:
        print(error)
"""


def test_frozen_models_need_no_torch(tmp_path: Path) -> None:
    one, other = Model.of(Mlp(3, (8,), 2)), Model.of(SetTransformer(5))
    one.save(tmp_path / "one.safetensors")
    other.save(tmp_path / "other.safetensors")
    run = subprocess.run([sys.executable, "-c", WITHOUT, str(tmp_path / "one.safetensors"), str(tmp_path / "other.safetensors")], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    lines = run.stdout.splitlines()
    assert float(lines[0]) == pytest.approx(float(one.frozen()(np.ones((1, 3), np.float32)).sum()), abs=1e-5)
    assert float(lines[1]) == pytest.approx(float(other.frozen()(np.ones((1, 4, 5), np.float32)).sum()), abs=1e-4)
    assert all("the package torch is not installed (pip install" in line and "armillary[learn]" in line for line in lines[2:5])
    assert lines[5].startswith("the package gymnasium is not installed (pip install ")


def test_listing_the_arenas_imports_no_torch() -> None:
    code = "import sys; sys.argv = ['armillary', 'list']\nfrom armillary import cli\ntry:\n    cli.main()\nfinally:\n    print(sorted({'torch', 'sklearn'} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.stdout.splitlines()[-1] == "[]", run.stderr


@pytest.mark.parametrize("name", ["HistGradientBoostingRegressor", "HistGradientBoostingClassifier", "RandomForestRegressor", "RandomForestClassifier", "DecisionTreeRegressor"])
def test_trees_are_sklearns(name: str, tmp_path: Path) -> None:
    ensemble, tree = pytest.importorskip("sklearn.ensemble"), pytest.importorskip("sklearn.tree")
    rng = np.random.default_rng(0)
    x = rng.standard_normal((400, 5)).astype(np.float32)
    y = x[:, 0] * x[:, 1] + np.sin(3 * x[:, 2])
    if name.startswith("Hist"):
        x[rng.random(x.shape) < 0.1] = np.nan
    how = {"max_iter": 10} if name.startswith("Hist") else {"n_estimators": 5} if "Forest" in name else {}
    made = getattr(ensemble, name, None) or getattr(tree, name)
    estimator = made(random_state=0, **how).fit(x, y > 0 if "Classifier" in name else y)
    expected = estimator.predict_proba(x)[:, 1] if "Classifier" in name else estimator.predict(x)
    model = Model(*from_sklearn(estimator))
    model.save(tmp_path / "trees.safetensors")
    assert np.allclose(load(tmp_path / "trees.safetensors").frozen()(x)[:, 0], expected, atol=1e-5)


def test_trees_that_are_no_trees_are_refused(tmp_path: Path) -> None:
    tree = pytest.importorskip("sklearn.tree")
    config, arrays = from_sklearn(tree.DecisionTreeRegressor().fit(np.arange(8.0)[:, None], np.arange(8.0)))
    for name, value, said in (("right", 0, "behind its parent"), ("right", 10**6, "behind"), ("feature", 1, "a feature"), ("root", -1, "a node"), ("group", 3, "an output"), ("missing_left", 9, "0 or 1")):
        wrong = {key: a.copy() for key, a in arrays.items()}
        wrong[name][0] = value
        path = tmp_path / "wrong.safetensors"
        path.write_bytes(Model(config, wrong).to_bytes())
        with pytest.raises(InputError, match=rf"{name}\[0\]: found -?\d+; expected .*{said}"):
            load(path)
    with pytest.raises(InputError, match="expected trees"):
        from_sklearn(object())
    with pytest.raises(InputError, match="expected two"):
        from_sklearn(tree.DecisionTreeClassifier().fit(np.arange(3.0)[:, None], [0, 1, 2]))


def test_arrays_are_a_model_too(tmp_path: Path) -> None:
    table = np.arange(6, dtype=np.float32).reshape(2, 3)
    Model(ArraysConfig(arrays={"table": (2, 3)}), {"table": table}).save(tmp_path / "t.safetensors")
    assert np.array_equal(load(tmp_path / "t.safetensors").frozen()["table"], table)
