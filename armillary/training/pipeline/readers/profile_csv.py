"""A measured profile of layers: one row per layer with milliseconds and bytes."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from armillary.errors import InputError
from armillary.files import Column, column_names, read_table

from ..planning.layers import Layers

COLUMNS = (
    "name", "type", "forward_ms", "backward_input_ms", "backward_weight_ms", "recompute_selective_ms", "recompute_full_ms", "param_bytes",
    "act_none_bytes", "act_selective_bytes", "act_full_bytes", "boundary_bytes",
)  # fmt: skip
#: More layers would make the exact partitions slow.
MOST_LAYERS = 1000
MOST_MS, MOST_BYTES = 1e9, 1e15


def read_profile(path: Path, *, state: float = 1.0) -> Layers:
    """Reads a profile with the columns of `COLUMNS`, and optionally `recompute_mlp_ms,act_mlp_bytes`.

    Types are head (first row only), tail (last row only) and free names for the others. `backward_ms` may stand instead of the two
    halves of the backward pass, and is then split evenly. `state` are the bytes that stay on the device per byte of parameters.
    """
    found = set(column_names(path))
    milliseconds = {"unit": "milliseconds", "least": 0.0, "most": MOST_MS}
    size = {"unit": "bytes", "least": 0.0, "most": MOST_BYTES}
    fused = "backward_ms" in found and "backward_input_ms" not in found
    halves = ("backward_ms",) if fused else ("backward_input_ms", "backward_weight_ms")
    mlp = "recompute_mlp_ms" in found or "act_mlp_bytes" in found
    options = ("none", "selective", *(("mlp",) if mlp else ()), "full")
    columns = [
        Column("name", "str"), Column("type", "str"), Column("forward_ms", **milliseconds),  # type: ignore[arg-type]
        *(Column(name, **milliseconds) for name in halves),  # type: ignore[arg-type]
        *(Column(f"recompute_{option}_ms", **milliseconds) for option in options[1:]),  # type: ignore[arg-type]
        Column("param_bytes", **size),  # type: ignore[arg-type]
        *(Column(f"act_{option}_bytes", **size) for option in options),  # type: ignore[arg-type]
        Column("boundary_bytes", **size),  # type: ignore[arg-type]
    ]  # fmt: skip
    table = read_table(path, columns, row_limit=MOST_LAYERS)
    if fused:
        backward_input = backward_weight = table["backward_ms"] / 2e3
    else:
        backward_input, backward_weight = table["backward_input_ms"] / 1e3, table["backward_weight_ms"] / 1e3
    extra = np.stack([np.zeros(table.rows), *(table[f"recompute_{option}_ms"] / 1e3 for option in options[1:])], axis=1)
    kept = np.stack([table[f"act_{option}_bytes"] for option in options], axis=1)
    worse = np.argwhere(kept[:, 1:] > kept[:, :1])
    if len(worse):
        row, option = (int(x) for x in worse[0])
        raise table.error(
            row, f"found {kept[row, option + 1]:g} bytes; expected at most act_none_bytes", f"act_{options[option + 1]}_bytes"
        )
    try:
        return Layers(
            tuple(table["name"]), tuple(table["type"]), options, table["forward_ms"] / 1e3, backward_input, backward_weight, extra, kept,
            state * table["param_bytes"], table["boundary_bytes"], table["param_bytes"], kept[:, :1] - kept,
        )  # fmt: skip
    except InputError as error:
        raise InputError(error.message, where=str(path)) from None
