"""Fits: from points that the model made, from public profiles, from vidur's files; and the commands around them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from armillary.errors import InputError
from armillary.llm import Calibration, Chip, Fabric, chip
from armillary.llm.commands import llm_app
from armillary.llm.cost.calibration import AllReduce, Point, fit, fit_all_reduce, read_vidur, read_vidur_all_reduce
from armillary.llm.cost.device import read_calibration
from armillary.llm.cost.measure import Work, calibrate, gemm_shapes, write_calibration
from armillary.llm.cost.operators import collective_seconds, gemm_seconds

#: Medians of a public profile, milliseconds: Llama-2-7B on one H100 SXM.
TOKENS = (1, 8, 32, 64, 128, 256, 512, 1024, 2048, 4096)
H100 = {
    "qkv": (12288, 4096, (0.038, 0.036, 0.038, 0.040, 0.041, 0.052, 0.090, 0.151, 0.281, 0.589)),
    "o": (4096, 4096, (0.016, 0.016, 0.016, 0.016, 0.020, 0.022, 0.029, 0.049, 0.095, 0.194)),
    "gate_up": (22016, 4096, (0.064, 0.064, 0.066, 0.066, 0.071, 0.130, 0.134, 0.256, 0.493, 0.993)),
    "down": (4096, 11008, (0.038, 0.036, 0.039, 0.040, 0.048, 0.056, 0.076, 0.109, 0.216, 0.438)),
}
PUBLIC = [Point(op, m, n, k, ms) for op, (n, k, times) in H100.items() for m, ms in zip(TOKENS, times, strict=True)]


def made(calibration: Calibration, noise: float = 0.0, seed: int = 0) -> list[Point]:
    """Points that a device with these constants would give."""
    on, random = chip("h100", calibration), np.random.default_rng(seed)
    return [
        Point(op, m, n, k, gemm_seconds(on, m, n, k) * 1e3 * float(np.exp(noise * random.standard_normal())))
        for op, (n, k, _) in H100.items()
        for m in (*TOKENS, 16, 96, 300, 700, 1500, 3000, 6000)
    ]


def test_the_public_points_alone_give_the_published_constants() -> None:
    found = fit(PUBLIC, chip("h100"))
    assert 0.78 <= found.calibration.eta_c <= 0.86
    assert 0.80 <= found.calibration.eta_m <= 0.88
    assert found.mape <= 0.12
    assert found.points == 40
    assert found.calibration.calibrated


@settings(max_examples=10, deadline=None)
@given(st.floats(0.5, 0.95), st.floats(0.5, 0.95), st.floats(1e-6, 10e-6))
def test_a_fit_finds_the_constants_that_made_the_points(eta_c: float, eta_m: float, t0: float) -> None:
    found = fit(made(Calibration(eta_c=eta_c, eta_m=eta_m, t0=t0)), chip("h100"), tiles=False)
    assert found.mape < 0.01
    assert found.calibration.eta_c == pytest.approx(eta_c, rel=0.03)
    assert found.calibration.eta_m == pytest.approx(eta_m, rel=0.03)
    assert found.calibration.t0 == pytest.approx(t0, abs=0.5e-6)


def test_tiles_are_fitted_where_they_differ() -> None:
    tiles = ((128, 256, 1.0), (128, 128, 0.95), (64, 256, 0.6), (64, 128, 0.9), (64, 64, 0.4))
    points = made(Calibration(eta_c=0.8, eta_m=0.8, tiles=tiles), noise=0.01)
    with_tiles, without = fit(points, chip("h100")), fit(points, chip("h100"), tiles=False)
    assert with_tiles.mape < 0.02 < without.mape


def test_attention_and_element_wise_shares_are_what_their_points_reached() -> None:
    on = chip("h100")
    base = Calibration(eta_c=0.8, eta_m=0.8)
    more = [
        Point("attention_prefill", c, 32, 128, 1e3 * 2e9 * c / (0.6 * 0.8 * on.peak("bf16")), moved=1.0, flops=2e9 * c)
        for c in (1, 2, 4, 8)
    ]
    more += [Point("attention_decode", 16, 32, c, 1e3 * 1e6 * c / (0.9 * 0.8 * on.bandwidth), moved=1e6 * c) for c in (1, 2, 4, 8)]
    more += [Point("act", c, 1, 1, 1e3 * 1e6 * c / (0.7 * 0.8 * on.bandwidth), moved=1e6 * c) for c in (1, 2, 4, 8)]
    found = fit(made(base) + more, on, tiles=False).calibration
    assert (found.eta_attn, found.eta_decode, found.elem("act")) == pytest.approx((0.6, 0.9, 0.7), rel=0.02)


def test_too_few_points_and_bad_times_are_refused() -> None:
    with pytest.raises(InputError, match="19 matrix products; expected at least 20"):
        fit(PUBLIC[:19], chip("h100"))
    for ms in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(InputError, match="expected a positive time"):
            fit([*PUBLIC, Point("o", 1, 1, 1, ms)], chip("h100"))


def test_all_reduces_are_fitted() -> None:
    points = [
        AllReduce(n, size, 1e3 * (40e-6 + 2 * (n - 1) / n * size / 200e9)) for n in (2, 4, 8) for size in (2048, 1 << 20, 1 << 24, 1 << 26)
    ]
    floor, share, error = fit_all_reduce([*points, AllReduce(16, 1 << 20, 99.0)], 400e9)
    assert (floor, share) == pytest.approx((40e-6, 0.5), rel=0.02)
    assert error < 0.01
    with pytest.raises(InputError, match="expected at least 5"):
        fit_all_reduce(points[:3], 400e9)


# vidur's files

HEAD = "time_stats.attn_pre_proj.median,time_stats.mlp_up_proj.median,time_stats.mlp_act.median,n_head,n_kv_head,n_embd,n_expanded_embd,use_gated_mlp,num_tokens,num_tensor_parallel_workers"


def test_a_vidur_row_by_hand(tmp_path: Path) -> None:
    path = tmp_path / "mlp.csv"
    path.write_text(f"{HEAD}\n0.5,0.7,0.1,32,8,4096,14336,True,64,2\n")
    assert read_vidur(path) == [
        Point("qkv", 64, (4096 + 2 * 1024) // 2, 4096, 0.5),
        Point("gate_up", 64, 14336, 4096, 0.7),
        Point("act", 64, 4096, 1, 0.1, moved=64 * 6 * 14336 / 2),
    ]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a,b\n1,2\n", r'mlp\.csv:1: no column "num_tokens"'),
        (f"{HEAD}\n0.5,0.7,0.1,32,8,4096,14336,True,none,2\n", r'mlp\.csv:2: column "num_tokens": found "none"'),
        (f"{HEAD}\n-1,0.7,0.1,32,8,4096,14336,True,64,2\n", r'mlp\.csv:2: column "time_stats.attn_pre_proj.median": found "-1"'),
        (f"{HEAD}\n0.5,0.7\n", r"mlp\.csv:2: column"),
    ],
)
def test_a_bad_profile_names_its_line(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "mlp.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=says):
        read_vidur(path)


@pytest.mark.shared_data
def test_a_real_profile_calibrates_the_a100(shared_data: Path) -> None:
    points = read_vidur(shared_data / "llm" / "a100_llama-2-7b_mlp.csv")
    assert len(points) == 8 * 1044
    found = fit(points, chip("a100"))
    assert found.mape <= 0.09
    ours = chip("a100").calibration
    assert (found.calibration.eta_c, found.calibration.eta_m) == pytest.approx((ours.eta_c, ours.eta_m), rel=0.02)
    assert found.mape == pytest.approx(ours.error or 0, abs=0.005)


@pytest.mark.shared_data
def test_real_all_reduces_are_what_the_a100_is_given(shared_data: Path) -> None:
    points = read_vidur_all_reduce(shared_data / "llm" / "a100_dgx_all_reduce.csv")
    floor, share, error = fit_all_reduce(points, 300e9)
    ours = chip("a100").calibration
    assert (floor, share) == pytest.approx((ours.all_reduce_s, ours.link), rel=0.02)
    assert error < 0.15
    fabric = Fabric.of(chip("a100"))
    eight = [p for p in points if p.ranks == 8 == p.devices_per_node]
    assert np.mean([abs(collective_seconds(fabric, "all-reduce", p.size, 8) * 1e3 / p.ms - 1) for p in eight]) < 0.16


# Files and commands


def test_a_calibration_is_used_only_for_its_device(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    write_calibration(
        {"device": "NVIDIA H200", "id": "mine", **fit(PUBLIC, chip("h200")).as_json(), "points": [p.as_json() for p in PUBLIC]}, path
    )
    ours = chip("h200", path)
    assert (ours.calibration.id, ours.calibration.points) == ("mine", 40)
    assert ours.calibration.eta_c == pytest.approx(fit(PUBLIC, chip("h200")).calibration.eta_c, abs=1e-4)
    with pytest.raises(InputError, match="a calibration of h200, not of h100"):
        chip("h100", path)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"fit": None}, 'expected an object with "device" and "fit"'),
        ({"fit": {"eta_c": 7, "eta_m": 0.8, "t0": 1e-6}}, 'key "eta_c": found 7'),
        ({"fit": {"eta_c": 0.7, "eta_m": 0.8, "t0": "fast"}}, "key \"t0\": found 'fast'"),
        ({"fit": {"eta_c": 0.7, "eta_m": 0.8, "t0": 0, "tiles": [[1, 2]]}}, 'key "tiles"'),
        ({"fit": {"eta_c": 0.7, "eta_m": 0.8, "t0": 0, "eta_elem": "x"}}, 'key "eta_elem"'),
        ({"also": "h100"}, 'key "also"'),
    ],
)
def test_a_bad_calibration_names_its_key(tmp_path: Path, change: dict[str, Any], says: str) -> None:
    path = tmp_path / "bad.json"
    path.write_text(json.dumps({"device": "h100", "fit": {"eta_c": 0.8, "eta_m": 0.8, "t0": 4e-6}, **change}))
    with pytest.raises(InputError, match=says):
        read_calibration(path)
    with pytest.raises(InputError, match="not JSON"):
        path.write_text("{")
        read_calibration(path)


def test_the_shapes_that_are_measured() -> None:
    shapes = gemm_shapes(Work())
    assert ("qkv", 6144, 4096) in shapes
    assert ("gate_up", 2 * 27648 // 8, 5120) in shapes
    assert len(shapes) == 16


def test_measuring_works_where_there_is_no_gpu(tmp_path: Path) -> None:
    """Small, on the host: every kind of point is there and the file reads back."""
    pytest.importorskip("torch")
    work = Work(
        rows=(1, 8),
        contexts=(16, 32),
        models=("gpt2", "llama-3.2-1b"),
        tps=(1, 4),
        warm=1,
        repeats=3,
        turns_bytes=1 << 20,
        copy_bytes=1 << 16,
    )
    content, found = calibrate("cpu", on=Chip("cpu", (("bf16", 1e11),), 1e10, 1e10, sms=2), work=work)
    assert {p["op"] for p in content["points"]} == {
        "qkv", "o", "gate_up", "down", "attention_prefill", "attention_decode", "norm", "act", "rope", "residual",
    }  # fmt: skip
    assert content["copies"]["device_copy"] > 0
    write_calibration(content, tmp_path / "cpu.json")
    read, names = read_calibration(tmp_path / "cpu.json")
    assert read.points == found.points >= 20
    assert "cpu" in names


def test_the_commands(armillary_command: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path) -> None:
    def run(*arguments: str) -> Any:
        return CliRunner().invoke(llm_app, arguments)

    facts = json.loads(run("show", "llama-3.1-8b", "--device", "h100", "--json").stdout)
    assert facts["parameters"] == 8_030_261_248
    assert facts["kind"] == "modelled"
    assert facts["decode_s"]["1"] < facts["decode_s"]["256"]
    text = run("show", "llama-3.1-8b").stdout
    assert "8,030,261,248 parameters" in text
    assert "modelled" in text
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    bad = armillary_command("llm", "show", "config.json")
    assert (bad.returncode, bad.stderr.count("\n")) == (2, 1)
    assert 'config.json: key "hidden_size": is missing' in bad.stderr
    assert "llama-3-8b" in run("list").stdout
    (tmp_path / "mlp.csv").write_text("a\n")
    fitted = run("calibrate", "--vidur", str(tmp_path / "mlp.csv"), "--name", "a100", "--out", str(tmp_path / "out.json"))
    assert isinstance(fitted.exception, InputError)
    assert not (tmp_path / "out.json").exists()


def test_importing_costs_nothing_heavy() -> None:
    code = "import sys, armillary.llm, armillary.llm.model.shapes; print([m for m in ('torch', 'scipy', 'numba', 'pydantic', 'numpy') if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True).stdout
    assert out.strip() == "[]"
