"""Model files: what goes in comes out, other programs read them, and a stranger's file is refused before it can do anything."""

from __future__ import annotations

import ast
import json
import pickle
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import armillary
from armillary.errors import InputError
from armillary.learn import Feature, Features, MlpConfig, Model, load
from armillary.learn.kinds import KINDS, Config, PartsConfig, parse_config, register


def small(**facts: Any) -> Model:
    config = MlpConfig(inputs=3, hidden=(4,), outputs=2)
    rng = np.random.default_rng(0)
    return Model(config, {name: rng.standard_normal(shape).astype(np.float32) for name, shape in config.shapes().items()}, **facts)


def changed(model: Model, change: Callable[[dict], None], data: bytes | None = None) -> bytes:
    whole = model.to_bytes()
    (size,) = struct.unpack_from("<Q", whole)
    head = json.loads(whole[8 : 8 + size])
    change(head)
    text = json.dumps(head).encode()
    return struct.pack("<Q", len(text)) + text + (whole[8 + size :] if data is None else data)


def test_what_goes_in_comes_out(tmp_path: Path) -> None:
    features = Features.fit({"a": [1.0, 3.0], "b": [5.0, 5.0], "c": [0.0, 1.0]}, [Feature(name="a", unit="s"), "b", "c"])
    model = small(technique="f/a/t", features=features, trained_on=("abc",), seed=7, steps=9, metrics={"mae": 0.5}, versions={"numpy": "2"}, created_from="ab", code="cd", deterministic=False)
    digest = model.save(tmp_path / "m.safetensors")
    found = load(tmp_path / "m.safetensors")
    assert digest == model.digest == found.digest
    for name in ("technique", "features", "trained_on", "seed", "steps", "metrics", "versions", "created_from", "code", "deterministic", "config"):
        assert getattr(found, name) == getattr(model, name)
    assert all(np.array_equal(found.arrays[name], a) for name, a in model.arrays.items())
    assert not any(a.flags.writeable for a in found.arrays.values())
    assert [file.name for file in tmp_path.iterdir() if file.suffix != ".db"] == ["m.safetensors"]


def test_the_safetensors_package_reads_it(tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors")
    model = small(technique="f/a/t")
    model.save(tmp_path / "m.safetensors")
    with safetensors.safe_open(tmp_path / "m.safetensors", "numpy") as file:
        assert file.metadata()["format"] == "armillary-model/1"
        assert set(file.keys()) == set(model.arrays)
        assert all(np.array_equal(file.get_tensor(name), a) for name, a in model.arrays.items())


def test_what_the_safetensors_package_writes_is_read(tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.numpy")
    model = small()
    whole = model.to_bytes()
    metadata = json.loads(whole[8 : 8 + struct.unpack_from("<Q", whole)[0]])["__metadata__"]
    safetensors.save_file(dict(model.arrays), str(tmp_path / "m.safetensors"), metadata)
    found = load(tmp_path / "m.safetensors")
    assert all(np.array_equal(found.arrays[name], a) for name, a in model.arrays.items())


def _rename(head: dict) -> None:
    head["stranger"] = head.pop("head.bias")


def _metadata(**values: str) -> Callable[[dict], None]:
    return lambda head: head["__metadata__"].update(values)


def _offsets(head: dict) -> None:
    head["head.bias"]["data_offsets"] = [8, 16]


def _config(**values: Any) -> Callable[[dict], None]:
    def change(head: dict) -> None:
        head["__metadata__"]["config"] = json.dumps(json.loads(head["__metadata__"]["config"]) | values)

    return change


BAD: dict[str, tuple[Callable[[Model], bytes], str]] = {
    "renamed": (lambda m: changed(m, _rename), "head.bias"),
    "shape": (lambda m: changed(m, lambda h: h["head.bias"].update(shape=[3])), r"head.bias.shape: found \[3\]; expected \[2\]"),
    "true as size": (lambda m: changed(m, lambda h: h["head.bias"].update(shape=[2.0])), "shape"),
    "header": (lambda m: struct.pack("<Q", 2 << 20) + b"{" + b" " * (2 << 20), "header of 2,097,152 bytes"),
    "dtype": (lambda m: changed(m, lambda h: h["head.bias"].update(dtype="F64")), "head.bias.dtype: found 'F64'; expected F32"),
    "nan": (lambda m: changed(m, lambda h: None, m.to_bytes()[-104:-4] + np.float32(np.nan).tobytes()), "found nan at"),
    "kind": (lambda m: changed(m, _metadata(kind="bomb")), "kind"),
    "kind in both": (lambda m: changed(m, lambda h: (_config(kind="bomb")(h), _metadata(kind="bomb")(h))), 'unknown kind "bomb"'),
    "pickle": (lambda m: pickle.dumps(m.arrays), "header of"),
    "offsets": (lambda m: changed(m, _offsets), "data_offsets"),
    "short": (lambda m: m.to_bytes()[:-4], "bytes of data"),
    "long": (lambda m: m.to_bytes() + b"1234", "bytes of data"),
    "empty": (lambda m: b"", "found 0 bytes"),
    "format": (lambda m: changed(m, _metadata(format="other/1")), "format"),
    "extra": (lambda m: changed(m, _metadata(code2="x")), "code2"),
    "no metadata": (lambda m: changed(m, lambda h: h.pop("__metadata__")), "__metadata__"),
    "huge": (lambda m: changed(m, _config(hidden=[65536, 65536])), "weights; expected at most"),
    "negative": (lambda m: changed(m, _config(inputs=-3)), "config.inputs"),
    "unknown key": (lambda m: changed(m, _config(nonsense=1)), "config.nonsense"),
    "features": (lambda m: changed(m, _metadata(features='{"features": [{"name": "a"}], "mean": [0], "scale": [0]}')), "features"),
    "metrics": (lambda m: changed(m, _metadata(metrics='{"mae": "x"}')), "metrics.mae"),
    "seed": (lambda m: changed(m, _metadata(seed="-1")), "seed"),
    "list": (lambda m: struct.pack("<Q", 2) + b"[]", "no object"),
    "text": (lambda m: struct.pack("<Q", 3) + b"{x}", "expected JSON"),
    "deep": (lambda m: changed(m, _metadata(config="[" * 5000)), "nested"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_strangers_file_is_refused_without_a_large_allocation(name: str, tmp_path: Path) -> None:
    make, said = BAD[name]
    path = tmp_path / "m.safetensors"
    path.write_bytes(make(small()))
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match=said) as error:
            load(path)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
    assert str(path) in str(error.value)
    assert "found" in str(error.value) or "unknown" in str(error.value)


def test_a_file_of_more_than_64_mib_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    with path.open("wb") as file:
        file.truncate((64 << 20) + 1)
    with pytest.raises(InputError, match="expected at most 67,108,864"):
        load(path)


def test_weights_that_are_not_finite_are_not_written(tmp_path: Path) -> None:
    model = small()
    model.arrays["head.bias"][0] = np.inf
    with pytest.raises(InputError, match="not finite"):
        model.save(tmp_path / "m.safetensors")
    assert not (tmp_path / "m.safetensors").exists()
    with pytest.raises(InputError, match="cannot be written"):
        small().save(tmp_path / "nowhere" / "m.safetensors")


def test_a_fields_own_composition_is_stored_in_parts(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from armillary.learn import CrossDeep, Lstm, SetTransformer

    class Towers(torch.nn.Module):
        def __init__(self, seed: int) -> None:
            super().__init__()
            self.vm = CrossDeep(4, out=8, seed=seed)
            self.inside = torch.nn.ModuleDict({"host": SetTransformer(3, 8, 2, seed=seed), "past": Lstm(2, 4, 1, seed=seed)})
            self.matrix = torch.nn.Parameter(torch.eye(8) * seed)

    one = Towers(1)
    Model.of(one).save(tmp_path / "m.safetensors")
    found = load(tmp_path / "m.safetensors")
    assert isinstance(found.config, PartsConfig)
    assert set(found.config.parts) == {"vm", "inside.host", "inside.past"}
    x = np.ones((2, 4), np.float32)
    with torch.no_grad():
        assert np.allclose(found.frozen()["vm"](x), one.vm(torch.from_numpy(x)), atol=1e-5)
    assert np.array_equal(found.frozen()["matrix"], np.eye(8))
    other = Towers(2)
    found.load_into(other)
    assert all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), other.state_dict().values()))
    with pytest.raises(InputError, match="expected the tensors of this model"):
        found.load_into(CrossDeep(4))
    with pytest.raises(InputError, match="PyTorch module"):
        found.module()


def test_several_models_and_arrays_are_one_file(tmp_path: Path) -> None:
    radius = np.array([[1.0, 2.0]])
    Model.joined({"zero": small(), "wait": small()}, {"radius": radius}, technique="f/a/t").save(tmp_path / "m.safetensors")
    found = load(tmp_path / "m.safetensors").frozen()
    x = np.ones((2, 3), np.float32)
    assert np.array_equal(found["zero"](x), small().frozen()(x))
    assert np.array_equal(found["radius"], radius)
    with pytest.raises(KeyError):
        found["nothing"]


def test_a_module_comes_back_from_its_file(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from armillary.learn import Mlp

    one = Mlp(3, (4,), 2, seed=5)
    Model.of(one).save(tmp_path / "m.safetensors")
    assert torch.equal(load(tmp_path / "m.safetensors").module()(torch.ones(1, 3)), one(torch.ones(1, 3)))


def test_parts_that_lie_in_each_other_are_refused() -> None:
    mlp = {"kind": "mlp", "inputs": 1, "outputs": 1}
    for parts, arrays in (({"a": mlp}, {"a": [1]}), ({"a": mlp, "a.b": mlp}, {}), ({"a": {"kind": "parts"}}, {}), ({"../a": mlp}, {})):
        with pytest.raises(InputError, match="config"):
            parse_config({"kind": "parts", "parts": parts, "arrays": arrays})


def test_a_kind_is_registered_once() -> None:
    class Other(MlpConfig):
        pass

    register("mlp", MlpConfig)
    with pytest.raises(InputError, match="second kind"):
        register("mlp", Other)
    assert all(issubclass(kind, Config) for kind in KINDS.values())


def table(**more: Any) -> dict[str, Any]:
    return {"nodes": [1.0, 2.0, 3.0], "wait": [0.0, np.nan, 2.0]} | more


def test_features_are_standardised_and_missing_ones_marked() -> None:
    found = Features.fit(table(), [Feature(name="nodes"), Feature(name="wait", unit="s", missing="indicator")])
    x = found.matrix(table())
    assert x.shape == (3, found.width) == (3, 3)
    assert np.allclose(x[:, 0], [-1.2247, 0, 1.2247], atol=1e-4)
    assert x[1].tolist() == [0, 0, 1]
    assert np.array_equal(found.matrix(pl.DataFrame(table())), x)
    mean = Features.fit(table(), [Feature(name="nodes"), Feature(name="wait", missing="mean")])
    assert mean.matrix(table())[1].tolist() == [0, 0]


@pytest.mark.parametrize(
    ("columns", "units", "said"),
    [({"nodes": [1.0]}, {}, "found no feature wait; expected nodes, wait"), (table(extra=[1, 2, 3]), {}, "unknown feature extra"), (table(), {}, "wait: found nan in row 1"),
     (table(wait=[1, 2, np.inf]), {}, "found inf in row 2"), (table(wait=[1, 2]), {}, "2 to 3 rows"), (table(wait=[1, 2, 3]), {"wait": "min"}, 'unit "min"; expected "s"'), (table(wait=["x"] * 3), {}, "no numbers")],
)  # fmt: skip
def test_features_that_do_not_fit_are_named(columns: dict, units: dict, said: str) -> None:
    found = Features.fit(table(), [Feature(name="nodes"), Feature(name="wait", unit="s")])
    with pytest.raises(InputError, match=said):
        found.matrix(columns, units=units)


def test_predict_takes_columns() -> None:
    features = Features.fit({"a": [0.0, 2.0], "b": [0.0, 2.0], "c": [0.0, 2.0]}, ["a", "b", "c"])
    model = small(features=features)
    columns = {"a": [1.0], "b": [2.0], "c": [0.0]}
    assert np.array_equal(model.predict(columns), model.frozen()(np.array([[0.0, 1.0, -1.0]])))
    with pytest.raises(InputError, match="without features"):
        small().predict(columns)


def test_nothing_in_learn_unpickles() -> None:
    banned = {("torch", "load"), ("pickle", "load"), ("pickle", "loads"), ("joblib", "load")}
    for file in (Path(armillary.__file__).parent / "learn").glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                assert not {alias.name for alias in node.names} & {"pickle", "joblib", "shelve", "marshal", "dill"}, file
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                assert (node.value.id, node.attr) not in banned, file
            if isinstance(node, ast.keyword):
                assert node.arg != "allow_pickle", file
