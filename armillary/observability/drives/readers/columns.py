"""The columns of daily logs: which SMART attributes a log reports, and how each vendor of logs spells their names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from armillary.errors import InputError
from armillary.files import Column

#: Attributes that say something of a drive's state, of solid-state drives and of disks; others are read if they are asked for.
KNOWN = frozenset({
    1, 3, 4, 5, 7, 8, 9, 10, 11, 12, 22, *range(169, 185), *range(187, 203), 206, 210, 218, 220, 222, 223, 225, 226, *range(230, 236),
    *range(240, 249),
})  # fmt: skip
NAN = float("nan")
_ALIBABA = re.compile(r"([rn])_(\d{1,3})")
_BACKBLAZE = re.compile(r"smart_(\d{1,3})_(normalized|normailized|raw)")


def attributes(names: Iterable[str], wanted: Sequence[int] = ()) -> tuple[int, ...]:
    """The attributes that columns of these names report, at least in part; `wanted` ones, or all that are known to matter."""
    there = set(names)
    found = {int(m[2]) for name in there if (m := _ALIBABA.fullmatch(name))}
    found |= {int(m[1]) for name in there if (m := _BACKBLAZE.fullmatch(name))}
    chosen = found & (set(wanted) if wanted else KNOWN)
    if not chosen:
        raise InputError(
            f"found the SMART attributes {', '.join(map(str, sorted(found)[:12])) or 'none'}; expected some of those asked for"
        )
    return tuple(sorted(chosen))


def alibaba(numbers: Sequence[int]) -> list[Column]:
    """Columns of a day of the Alibaba logs; a value may be empty, and a half of an attribute may be missing."""
    values = [Column(f"{half}_{a}", default=NAN) for a in numbers for half in ("r", "n")]
    return [Column("disk_id", "str"), Column("ds", "str"), Column("model", "str"), *values]


def backblaze(numbers: Sequence[int]) -> list[Column]:
    """Columns of a day of Backblaze; the headers of some years spell `smart_211_normailized`."""
    values = [
        column
        for a in numbers
        for column in (
            Column(f"r_{a}", default=NAN, aliases=(f"smart_{a}_raw",)),
            Column(f"n_{a}", default=NAN, aliases=(f"smart_{a}_normalized", f"smart_{a}_normailized")),
        )
    ]
    return [
        Column("date", "str"),
        Column("serial_number", "str"),
        Column("model", "str"),
        Column("failure", "int", least=0, most=1),
        *values,
    ]
