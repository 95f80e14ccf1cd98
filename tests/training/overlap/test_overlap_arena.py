"""The arena: its work, tables of operators, what a bad one says, the answer, and the kernels for one GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from armillary import catalogue, compare
from armillary.errors import InputError
from armillary.training.overlap.arena import Reading, cases, overlap
from armillary.training.overlap.readers.operators_csv import read_operators
from armillary.training.overlap.workload import OPS, Operator, chosen, routed

HEAD = "op,M,N,K,devices,dtype\n"


def table(folder: Path, *rows: str, head: str = HEAD) -> Path:
    """A file with these rows."""
    path = folder / "ops.csv"
    path.write_text(head + "".join(f"{row}\n" for row in rows))
    return path


def test_every_kind_has_four_cases_at_the_small_scale_and_the_telling_ones_exist() -> None:
    kinds = [case.kinds for case in cases("small")]
    assert {kind: sum(kind in k for k in kinds) for kind in ("tp", "sp", "ep")} == {"tp": 18, "sp": 16, "ep": 6}
    assert len(overlap.telling_cases() or ()) == 8
    names = [case.name for case in cases("small")]
    assert len(names) == len(set(names))
    assert {case.parameters["op"] for case in cases("small")} == set(OPS)


def test_a_table_becomes_one_case_per_row_with_defaults_from_the_options(tmp_path: Path) -> None:
    path = table(tmp_path, "gemm_rs,1024,2048,512,4,fp16", "ring_attention,4096,64,,,", "moe_dispatch_gemm,32,64,128,8,")
    found = read_operators(path, Reading(devices=2, heads=6, batch=3, experts=16, top_k=2))
    assert found[0] == {"op": "gemm_rs", "devices": 4, "dtype": "fp16", "m": 1024, "n": 2048, "k": 512}
    assert found[1] == {"op": "ring_attention", "devices": 2, "dtype": "bf16", "batch": 3, "heads": 6, "sequence": 4096, "width": 64}
    assert found[2]["tokens"] == 32
    assert [case.name for case in overlap.from_file(path, {"experts": "16"})] == ["ops.csv:1", "ops.csv:2", "ops.csv:3"]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("gemm,64,64,64,8,bf16", r'ops.csv:2: column "op": found "gemm"; expected'),
        ("gemm_rs,100,64,64,8,bf16", r"ops.csv:2: .*m: found 100; expected a multiple of the 8 devices"),
        ("gemm_rs,64,64,0,8,bf16", r"ops.csv:2: .*k: found 0; expected 1 to"),
        ("gemm_rs,64,-1,64,8,bf16", r'ops.csv:2: column "N": found "-1"; expected a whole number from 1'),
        ("gemm_rs,64,64,64,800,bf16", r'ops.csv:2: column "devices": found "800"; expected a whole number from 0 to 72'),
        ("gemm_rs,64,64,64,8,int3", r'ops.csv:2: column "dtype": found "int3"'),
        ("gemm_rs,many,64,64,8,bf16", r'ops.csv:2: column "M": found "many"'),
        ("ulysses_attention,4096,64,,7,bf16", r"ops.csv:2: .*sequence: found 4096; expected a multiple of the 7 devices"),
        ("moe_dispatch_gemm,4194304,64,64,8,bf16", r"ops.csv:2: .*4194304 tokens for 256 experts; expected at most"),
        ("moe_dispatch_gemm,4,64,64,7,bf16", r"ops.csv:2: .*experts: found 256; expected a multiple of the 7 devices"),
        ("ring_attention,4194304,65536,0,8,bf16", r"ops.csv:2: .*flops per device; expected at most"),
    ],
)  # fmt: skip
def test_a_bad_row_is_named_in_one_line(tmp_path: Path, row: str, said: str) -> None:
    with pytest.raises(InputError, match=said) as error:
        read_operators(table(tmp_path, row), Reading())
    assert "\n" not in str(error.value)


def test_a_foreign_table_and_an_unknown_device_are_told_what_is_expected(tmp_path: Path) -> None:
    path = table(tmp_path, "0.1,a,3", head="time,object,size\n")
    with pytest.raises(InputError, match="found the columns object, size, time; expected a table of operators with op,M,N,K,devices,dtype"):
        read_operators(path, Reading())
    with pytest.raises(InputError, match='device "rtx-4090": its transfer mechanisms are not published; expected h100-80'):
        read_operators(table(tmp_path, "gemm_rs,64,64,64,8,bf16"), Reading(device="rtx-4090"))


def test_an_operator_whose_schedule_is_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from armillary.training.overlap import program_for, simulate
    from armillary.training.overlap.programs.template import Tile
    from armillary.training.overlap.simulation import schedule

    monkeypatch.setattr(schedule, "MOST_OPERATIONS", 1000)
    with pytest.raises(InputError, match="more than 1000 operations"):
        simulate(program_for(Operator("gemm_rs", m=8192, n=8192, k=64), Tile(), inter=False, fabric=False))


def test_tokens_choose_different_experts_and_popular_ones_more_often() -> None:
    rng = np.random.default_rng(0)
    picks = chosen(500, 4, np.ones(16), rng)
    assert all(len(set(row)) == 4 for row in picks.tolist())
    facts = {"op": "moe_dispatch_gemm", "devices": 4, "tokens": 300, "experts": 16, "top_k": 4, "hidden": 8, "ffn": 8}
    even, skewed = (np.sort(np.array(routed(facts, np.random.default_rng(1), skew).counts).sum(0)) for skew in (0.0, 1.5))
    assert even.sum() == skewed.sum() == 4 * 300 * 4
    assert skewed[-1] > 1.5 * even[-1]


def test_the_answer_names_the_fastest_its_gain_and_what_is_left() -> None:
    result = compare("training/overlap", scale="tiny", cases=["gemm_ar-4096-h100"])
    said = result.answer()
    assert said.startswith("parallelkittens is the fastest on gemm_ar-4096-h100, ")
    assert "times as fast as sequential" in said
    assert "% of its time is communication that it cannot hide." in said


def test_claims_stand_beside_the_technique_as_the_paper_says_them() -> None:
    claims = catalogue.arena("training/overlap").claims_of("parallelkittens")
    assert [(c.metric, str(c.by), c.honest) for c in claims[:3]] == [
        ("op_s", "≥ 2.33×", (1.86, 2.9)), ("op_s", "≥ 4.08×", (3.26, 5.1)), ("op_s", "≥ 1.22×", (1.1, 1.5)),
    ]  # fmt: skip
    assert all(c.aggregate == "max" for c in claims[:3])
    assert sum(c.needs is not None for c in claims) == 1


def run_apart(name: str, folder: Path, **environment: str) -> None:
    """Runs a file of tests in a process of its own, because Triton decides once whether it interprets."""
    command = [sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider", str(Path(__file__).with_name(name))]
    kept = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    done = subprocess.run(
        command, cwd=Path(__file__).parents[3], env=kept | {"TRITON_CACHE_DIR": str(folder)} | environment, capture_output=True, text=True
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout, done.stdout


@pytest.mark.slow
def test_tiles_of_the_gpu_kernels_are_right_under_the_interpreter(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    pytest.importorskip("triton", reason="Triton is not installed")
    run_apart("gpu_tiles.py", tmp_path, **({} if torch.cuda.is_available() else {"TRITON_INTERPRET": "1"}))


@pytest.mark.slow
def test_the_gpu_kernels_compile_and_keep_their_signals(tmp_path: Path) -> None:
    pytest.importorskip("triton", reason="Triton is not installed")
    run_apart("gpu_assembly_of_signals.py", tmp_path)


def test_an_operator_that_would_fill_the_memory_is_refused_before_it_is_scheduled() -> None:
    """A schedule of 2²⁰ × 2²⁰ once took 20 GB before its operations were counted."""
    with pytest.raises(InputError, match="536,870,912 tiles"):
        Operator("gemm_ar", devices=8, m=1 << 20, n=1 << 20, k=8192)
