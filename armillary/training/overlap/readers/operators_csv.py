"""Tables of operators: `op,M,N,K,devices,dtype`, one operator per row.

M, N and K mean what they mean for a product. Attention has its tokens in M and the width of a head in N; the plain collectives have the
matrix in M and N; a mixture of experts has tokens per device in M, the hidden size in N and the width of an expert in K.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from armillary.errors import InputError
from armillary.files import Column, column_names, read_table
from armillary.training.overlap.machine.mechanisms import Gpu
from armillary.training.overlap.workload import ATTENTIONS, GEMMS, MOST, MOST_DEVICES, OPS, PLAIN, WIDTH, Operator

MOST_ROWS = 1000
#: The most tokens times experts of a row, whose choices are drawn.
MOST_CHOICES = 1 << 26
COLUMNS = [
    Column("op", "str", choices=OPS),
    Column("M", "int", least=1, most=MOST),
    Column("N", "int", least=1, most=MOST),
    Column("K", "int", least=0, most=MOST, default=0),
    Column("devices", "int", least=0, most=MOST_DEVICES, default=0),
    Column("dtype", "str", choices=("", *WIDTH), default=""),
]


def read_operators(path: str | Path, how: Any) -> list[dict[str, Any]]:
    """The operators of a table, as arguments of `Operator`; each is checked here, so that a bad row is named before anything runs."""
    gpu = Gpu.of(how.device)
    names = set(column_names(path))
    if not {"op", "M", "N"} <= names:
        raise InputError(
            f"found the columns {', '.join(sorted(names)[:8]) or '(none)'}; expected a table of operators with op,M,N,K,devices,dtype",
            where=str(path),
        )  # fmt: skip
    table = read_table(path, COLUMNS, row_limit=MOST_ROWS)
    found = []
    for row in range(table.rows):
        m, n, k = (int(table[name][row]) for name in ("M", "N", "K"))
        op = str(table["op"][row])
        sizes: dict[str, Any] = {
            "op": op,
            "devices": int(table["devices"][row]) or how.devices,
            "dtype": str(table["dtype"][row]) or how.dtype,
        }
        if op in GEMMS:
            sizes |= {"m": m, "n": n, "k": k}
        elif op in PLAIN:
            sizes |= {"m": m, "n": n}
        elif op in ATTENTIONS:
            sizes |= {"batch": how.batch, "heads": how.heads, "sequence": m, "width": n}
        else:
            sizes |= {"tokens": m, "experts": how.experts, "top_k": how.top_k, "hidden": n, "ffn": k}
        try:
            _checked(sizes)
            gpu.peak(sizes["dtype"])
        except InputError as error:
            raise table.error(row, str(error)) from None
        found.append(sizes)
    return found


def _checked(sizes: dict[str, Any]) -> None:
    if sizes["op"] != "moe_dispatch_gemm":
        Operator(**sizes)
        return
    if sizes["tokens"] * sizes["experts"] > MOST_CHOICES:
        raise InputError(f"{sizes['tokens']} tokens for {sizes['experts']} experts; expected at most {MOST_CHOICES} choices per device")
    # Even counts stand for those that are drawn later.
    each = sizes["tokens"] * sizes["top_k"]
    counts = [each // sizes["experts"] + (e < each % sizes["experts"]) for e in range(sizes["experts"])]
    Operator(**sizes, counts=tuple(tuple(counts) for _ in range(sizes["devices"])))
