"""What the compiler makes of the waiting kernel for an H100; `test_overlap_arena.py` runs this in a process of its own."""

from __future__ import annotations

import re

import pytest

triton = pytest.importorskip("triton", reason="Triton is not installed")

from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402

from armillary.training.overlap.gpu import kernels  # noqa: E402
from armillary.training.overlap.gpu.virtual_devices import Tile  # noqa: E402


def assembly(kernel, constants, **types):
    tile = Tile().options()
    fixed = {name: value for name, value in (tile | constants).items() if name in kernel.arg_names}
    signature = {name: "constexpr" if name in fixed else types.get(name, "i32") for name in kernel.arg_names}
    source = ASTSource(kernel, signature, {(kernel.arg_names.index(name),): value for name, value in fixed.items()}, {})
    made = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 8, "num_stages": 3})
    return made.asm["ptx"], made.metadata.shared


def test_signals_release_waits_acquire_and_tiles_come_from_l2():
    arrays = dict.fromkeys(("a", "b", "partial", "out"), "*bf16") | dict.fromkeys(("flags", "stuck"), "*i32")
    ptx, shared = assembly(kernels.all_reduce_kernel, {"COMM": 2}, **arrays)
    assert re.search(r"atom\.global\.gpu\.release\.add", ptx)
    assert len(re.findall(r"(ld|atom)\.global\.gpu\.acquire", ptx)) >= 2
    assert re.search(r"ld\.global\.cg", ptx)
    assert shared <= 227 * 1024
    release = ptx.index("gpu.release.add")
    assert "bar.sync" in ptx[:release]


def test_adds_to_the_owner_are_atomic():
    ptx, _ = assembly(kernels.reduce_scatter_kernel, {}, a="*bf16", b="*bf16", out="*fp32")
    assert re.search(r"(atom|red)\.global\.gpu\.relaxed\.add[a-z0-9.]*\.f32", ptx)
