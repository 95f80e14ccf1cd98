"""mdtest's command lines."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

import numpy as np

from armillary.errors import InputError, one_line, unknown
from armillary.files import read_text

from ..workload import Work, mdtest

#: Most items that an mdtest description may ask for.
MOST_ITEMS = 100_000_000


@dataclass(frozen=True)
class MdtestRun:
    """A run of mdtest: `items` files in a tree of this depth, with `branch` directories in each."""

    items: int
    depth: int
    branch: int

    def work(self, rng: np.random.Generator) -> Work:
        """Returns its operations, in orders drawn from `rng`."""
        return mdtest(rng, self.items, depth=self.depth, branch=self.branch)


def read_mdtest(path: Path) -> MdtestRun:
    """Reads a command line of mdtest with -n items or -I items per directory, -z depth and -b branch."""
    text = read_text(path, limit=1 << 16)
    values = {"-n": 0, "-I": 0, "-z": 0, "-b": 1}
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise InputError(f"found {error}; expected an mdtest command line", where=str(path)) from None
    words = words[1:] if words and words[0].endswith("mdtest") else words
    for option, given in zip_longest(words[::2], words[1::2], fillvalue=""):
        if option not in values:
            raise unknown("option", option, values, where=str(path))
        if not given.isdecimal() or len(given) > 9:
            raise InputError(f'{option}: found "{one_line(given, 40)}"; expected a whole number', where=str(path))
        values[option] = int(given)
    depth, branch = values["-z"], values["-b"]
    if depth > 20 or branch < 1 or branch**depth > MOST_ITEMS:
        raise InputError(f"-z {depth} -b {branch}; expected at most {MOST_ITEMS} directories", where=str(path))
    directories = sum(branch**level for level in range(1, depth + 1)) or 1
    items = values["-n"] or values["-I"] * directories
    if not 1 <= items <= MOST_ITEMS:
        raise InputError(f"found {items} items; expected 1 to {MOST_ITEMS} (-n, or -I for each directory)", where=str(path))
    return MdtestRun(items, depth, branch)
