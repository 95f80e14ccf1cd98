"""Checks the code that the compiler makes of floating-point kernels; `test_fields_gpu.py` runs this in a process of its own.

A fused multiply-add or a flushed subnormal would give other values than the host's.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

triton = pytest.importorskip("triton", reason="Triton is not installed")

from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402

from armillary.compression.fields.gpu import (  # noqa: E402
    decode_kernels,
    encode_kernels,
    fused_kernels,
    huffman_kernels,
    interpolation_kernels,
)
from armillary.compression.fields.gpu.quantise_kernels import EXACT  # noqa: E402

_DIVIDE = {"mx": "i64", "my": "i64", "mz": "i64"}
_COUNTS = dict.fromkeys(("counts", "outliers", "violators", "outlier_counts", "violator_counts", "drawn", "totals", "places"), "*i32")
_ENDS = dict.fromkeys(("ends", "outlier_ends", "violator_ends", "state"), "*i64")


def assembly(kernel: Any, value: str, constants: dict[str, Any], options: dict[str, Any], **types: str) -> str:
    """Returns the PTX for arrays of `value`; arguments without a type are int32."""
    known = _DIVIDE | _COUNTS | _ENDS | {"x": f"*{value}", "raw": f"*{value}", "out": f"*{value}", "facts": "*fp64", "width": "*fp64"}
    known |= {"step": "*fp64", "words": "*i32"} | {name: kind.format(value) for name, kind in types.items()}
    signature = {name: "constexpr" if name in constants else known.get(name, "i32") for name in kernel.arg_names}
    fixed = {(kernel.arg_names.index(name),): constant for name, constant in constants.items()}
    made = triton.compile(ASTSource(kernel, signature, fixed, {}), target=GPUTarget("cuda", 90, 32), options=options)
    return str(made.asm["ptx"])


TABLES = {"recon": "*{}", "codes": "*i16", "jobs": "*i64", "lattices": "*i64", "step": "i32"}
PLANES = {"planes": "*i16", "flags": "*i16", "blocks": "*i32"}
KERNELS = [
    (encode_kernels.to_planes, "fp32", {"DIMENSIONS": 2, "WIDE": False, "TILES": 1}, PLANES),
    (encode_kernels.collect, "fp64", {"DIMENSIONS": 1, "WIDE": True}, {"outliers": "*i64"}),
    (fused_kernels.fz, "fp32", {"DIMENSIONS": 1, "WINDOW": 32}, {"flags": "*i64", "blocks": "*i16"}),
    (fused_kernels.cuszp, "fp32", {"BLOCKS": 64, "WINDOW": 32}, {"widths": "*i8"}),
    (fused_kernels.cuszp_violators, "fp32", {"BLOCK": 2048}, {}),
    (fused_kernels.cuszp_values, "fp32", {"BLOCKS": 64}, {"widths": "*u8"}),
    (huffman_kernels.to_codes, "fp32", {"DIMENSIONS": 1, "WIDE": False}, {"codes": "*i16"}),
    (interpolation_kernels.predict, "fp32", {"BLOCK": 1024}, TABLES),
    (interpolation_kernels.anchors, "fp64", {"BLOCK": 1024}, TABLES),
    (interpolation_kernels.restore, "fp32", {"BLOCK": 1024}, TABLES),
    (decode_kernels.finish_rows, "fp32", {"SEGMENT": 4096, "LAST": True, "BLOCK": 1024}, {"values": "*i32", "carries": "*i32"}),
    (decode_kernels.sum_down, "fp32", {"LAST": True, "DEPTH": 32, "WIDTH": 64}, {"values": "*i32"}),
]


@pytest.mark.parametrize(("kernel", "value", "constants", "types"), KERNELS)
def test_products_and_sums_are_rounded_apart(kernel: Any, value: str, constants: dict[str, Any], types: dict[str, str]) -> None:
    ptx = assembly(kernel, value, constants, EXACT, **types)
    assert re.search(r"\bmul\.(rn\.)?f64", ptx)
    assert not re.search(r"\bfma\.|\.ftz\b", ptx)


def test_the_compiler_would_fuse_them_if_it_were_let() -> None:
    kernel, value, constants, types = KERNELS[0]
    assert re.search(r"\bfma\.", assembly(kernel, value, constants, {}, **types))
