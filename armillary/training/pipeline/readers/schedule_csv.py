"""torch's schedule file, as `_dump_csv` and `_load_csv` of torch.distributed.pipelining write and read it.

It has no header and one row per rank; an empty cell is idle. Cells are `<stage>(F|I|W|B)<micro-batch>` or pairs
`(2F1;3B0)OVERLAP_F_B`. The dialect with communication adds `<stage>(SEND_F|RECV_F|SEND_B|RECV_B)<micro-batch>` and
`<stage>(UNSHARD|RESHARD|REDUCE_GRAD)`, and has no empty cells; those actions are checked and left out, because the simulator places
transfers itself. torch looks only at the start of a cell, so it takes `0F0x`; here that is refused.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from pathlib import Path

from armillary.errors import InputError, one_line
from armillary.files import read_text

from ..simulation.schedule import MOST_ACTIONS, Action, Pair, Schedule

_COMPUTE = re.compile(r"(\d{1,6})([FIWB])(\d{1,7})")
_PAIR = re.compile(r"\((\d{1,6}[FIWB]\d{1,7});(\d{1,6}[FIWB]\d{1,7})\)OVERLAP_F_B")
_OTHER = re.compile(r"\d{1,6}(?:(?:SEND_F|RECV_F|SEND_B|RECV_B)\d{1,7}|UNSHARD|RESHARD|REDUCE_GRAD)")
MOST_FILE_BYTES = 64 << 20


def read_schedule(path: Path) -> Schedule:
    """Reads and validates a schedule of either dialect."""
    text = read_text(path, limit=MOST_FILE_BYTES)
    orders: list[list[Action | Pair]] = []
    empty: tuple[int, int] | None = None
    comms, count = False, 0
    try:
        rows = list(csv.reader(io.StringIO(text), strict=True))
    except csv.Error as error:
        raise InputError(f"not a CSV: {error}", where=str(path)) from None
    for number, row in enumerate(rows, start=1):
        order: list[Action | Pair] = []
        for column, cell in enumerate(row, start=1):
            said = cell.strip()
            if not said:
                empty = empty or (number, column)
                continue
            if _OTHER.fullmatch(said):
                comms = True
                continue
            order.append(_parsed(said, f"{path}:{number}: cell {column}"))
            count += 1
            if count > MOST_ACTIONS:
                raise InputError(f"more than {MOST_ACTIONS:,} actions", where=str(path))
        orders.append(order)
    if comms and empty is not None:
        raise InputError("found an empty cell; a schedule with communication has none", where=f"{path}:{empty[0]}: cell {empty[1]}")
    if not count:
        raise InputError("found no actions; expected one row per rank with cells such as 0F0", where=str(path))
    try:
        return Schedule.of(orders).validate()
    except InputError as error:
        raise InputError(error.message, where=str(path)) from None


def looks_like_a_schedule(cells: Sequence[str]) -> bool:
    """Whether the first row of a file holds actions of a schedule, or is empty, as that of an idle rank."""
    said = [cell for cell in cells if cell]
    return not said or any(_COMPUTE.match(cell) or _PAIR.match(cell) or _OTHER.match(cell) for cell in said)


def _parsed(said: str, where: str) -> Action | Pair:
    one = _COMPUTE.fullmatch(said)
    if one:
        return Action(int(one[1]), one[2], int(one[3]))
    two = _PAIR.fullmatch(said)
    if two:
        first, second = (_parsed(each, where) for each in two.groups())
        if isinstance(first, Action) and isinstance(second, Action) and first.kind == "F" and second.kind in "BI":
            return Pair(first, second)
    raise InputError(f'found "{one_line(said, 40)}"; expected an action such as 0F3 or (2F1;3B0)OVERLAP_F_B', where=where)
