"""Blocks as a person writes them: a word for all matrices, or a file of rules.

`1` cuts anywhere, `row` keeps rows, `whole` keeps matrices, `32` keeps 32 rows together, and `128x128` keeps blocks of that shape. A file
has rules `{"pattern": "*.experts.*.weight", "block": [32, 32]}`, as a JSON list or as `[[rule]]` tables of TOML.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from armillary.errors import InputError
from armillary.files import read_json, read_text

#: Bytes of a file of rules.
_LONGEST = 1 << 20


def read_blocks(said: str) -> Any:
    """What `ragged.weights_of` takes: a block or a list of rules."""
    if said in ("1", "row", "whole"):
        return 1 if said == "1" else said
    sizes = re.fullmatch(r"(\d{1,9})(?:x(\d{1,9}))?", said)
    if sizes is not None:
        return (int(sizes[1]), int(sizes[2] or 0))
    path = Path(said)
    if path.suffix not in (".json", ".toml"):
        raise InputError(f'found "{said}"; expected 1, row, whole, 32, 128x128, or a .json or .toml file of rules', where="--block")
    if path.suffix == ".json":
        rules = read_json(path, limit=_LONGEST)
    else:
        try:
            rules = tomllib.loads(read_text(path, limit=_LONGEST)).get("rule")
        except tomllib.TOMLDecodeError as error:
            raise InputError(str(error), where=said) from None
    if not isinstance(rules, list) or not rules:
        raise InputError("expected a list of rules, each with a pattern and a block", where=said)
    return rules
