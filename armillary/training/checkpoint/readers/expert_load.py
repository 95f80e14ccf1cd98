"""Expert load: how many tokens each expert of each MoE layer got in each iteration.

A long table has `iteration,layer,expert,tokens`; a wide one `iteration,layer` and one column per expert, `expert_0`, `expert_1`, ….
Iterations, layers and experts count from 0; layers are those with experts. CSV, TSV, JSON lines and Parquet are read.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from armillary.errors import InputError
from armillary.files import Column, column_names, read_table
from armillary.training.checkpoint.workload import MOST_EXPERTS, MOST_ITERATIONS, MOST_ROWS, MOST_TOKENS, WARM_UP, IntArray

KINDS = "expert load (columns iteration, layer, expert, tokens; or iteration, layer, expert_0, expert_1, …) or a model's config.json"
_WIDE = re.compile(r"(?:expert_|e)(\d{1,5})")
_LAYERS = 100_000


def read_load(path: str | Path) -> IntArray:
    """[T, M, E]: the tokens of a table of either form, whole and consistent."""
    names = column_names(path)
    wide = sorted((int(match[1]), name) for name in names if (match := _WIDE.fullmatch(name)))
    keys = [Column("iteration", "int", least=0, most=MOST_ITERATIONS - 1), Column("layer", "int", least=0, most=_LAYERS - 1)]
    if not {"iteration", "layer"} <= set(names) or not ({"expert", "tokens"} <= set(names) or wide):
        raise InputError(f"found columns {', '.join(names[:6])}; expected {KINDS}", where=str(path))
    if "expert" in names:
        columns = [*keys, Column("expert", "int", least=0, most=MOST_EXPERTS - 1), Column("tokens", "int", least=0, most=MOST_TOKENS)]
        table = read_table(path, columns, row_limit=MOST_ROWS)
        expert, tokens = table["expert"], table["tokens"]
        experts = int(expert.max()) + 1
        iteration, layer = table["iteration"], table["layer"]
        place = (iteration * (int(layer.max()) + 1) + layer) * experts + expert
    else:
        if [number for number, _ in wide] != list(range(len(wide))) or len(wide) > MOST_EXPERTS:
            raise InputError(f"found {len(wide)} experts; expected expert_0, expert_1, … without gaps", where=str(path))
        experts = len(wide)
        columns = [*keys, *(Column(name, "int", least=0, most=MOST_TOKENS) for _, name in wide)]
        table = read_table(path, columns, row_limit=MOST_ROWS // experts)
        iteration, layer = table["iteration"], table["layer"]
        tokens = np.stack([table[name] for _, name in wide], axis=1).reshape(-1)
        place = ((iteration * (int(layer.max()) + 1) + layer)[:, None] * experts + np.arange(experts)).reshape(-1)
    count, layers = int(iteration.max()) + 1, int(layer.max()) + 1
    if count * layers * experts > MOST_ROWS:
        said = f"{count} iterations of {layers} layers of {experts} experts"
        raise InputError(f"{said}; expected at most {MOST_ROWS:,} values", where=str(path))
    if count <= WARM_UP:
        raise InputError(f"found {count} iterations; expected more than the {WARM_UP} of the warm-up", where=str(path))
    values = np.full(count * layers * experts, -1, np.int64)
    if len(np.unique(place)) != len(place):
        order = np.argsort(place, kind="stable")
        row = int(order[1:][np.diff(place[order]) == 0][0]) // (1 if "expert" in names else experts)
        raise table.error(row, f"found iteration {iteration[row]}, layer {layer[row]} again; expected every value once")
    values[place] = tokens
    found: IntArray = values.reshape(count, layers, experts)
    missing = np.argwhere(found < 0)
    if len(missing):
        t, m, e = missing[0].tolist()
        said = f"iteration {t}, layer {m}, expert {e} is missing"
        raise InputError(f"{said}; expected every layer and expert of every iteration", where=str(path))
    return _checked(found, path)


def _checked(found: IntArray, path: str | Path) -> IntArray:
    """The load, whose layers all route as many tokens in every iteration."""
    totals = found.sum(axis=2)
    total = int(totals[0, 0])
    odd = np.argwhere(totals != total)
    if total == 0 or len(odd):
        t, m = odd[0].tolist() if len(odd) else (0, 0)
        said = f"iteration {t}, layer {m}: found {totals[t, m]} tokens in all"
        raise InputError(f"{said}; expected {total if total else 'some'}, as in the first layer", where=str(path))
    return found
