"""Writes shell text in which every word is quoted, unless it is marked as shell text already."""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Iterable, Mapping


class Raw(str):
    """Shell text that goes in as it is, such as `"$PORT"` with its quotes."""

    __slots__ = ()


def words(given: Iterable[str]) -> str:
    """Returns the words as a shell command."""
    return " ".join(word if isinstance(word, Raw) else shlex.quote(word) for word in given)


def folded(given: Iterable[str], indent: str = "  ") -> str:
    """Returns a long command folded over several lines, with one option and its value per line."""
    lines: list[str] = []
    for word in given:
        text = word if isinstance(word, Raw) else shlex.quote(word)
        if text.startswith("-") or not lines:
            lines.append(text)
        else:
            lines[-1] += f" {text}"
    return f" \\\n{indent}".join(lines)


def exports(env: Mapping[str, str], prefix: str = "") -> list[str]:
    """Returns `export NAME='value'` for each variable."""
    return [f"export {prefix}{name}={shlex.quote(value)}" for name, value in sorted(env.items())]


_ZEROS = "0" * 64
_CONTENTS = re.compile(r"contents sha256:([0-9a-f]{64})")


def seal(text: str, target: str, digest: str, *, comment: str = "# ") -> str:
    """Returns the text with a head that names the renderer and the description, and a hash that reveals later edits."""
    said = [f"{comment}Rendered by armillary deploy for {target}; description sha256:{digest}", f"{comment}contents sha256:{_ZEROS}"]
    first, newline, rest = text.partition("\n")
    sealed = "\n".join([first, *said, rest] if first.startswith("#!") and newline else [*said, text])
    return stamp(sealed)


def stamp(text: str) -> str:
    """Replaces the zeros in the head by the hash of the contents."""
    blank = _CONTENTS.sub(f"contents sha256:{_ZEROS}", text, count=1)
    return blank.replace(f"contents sha256:{_ZEROS}", f"contents sha256:{hashlib.sha256(blank.encode()).hexdigest()}", 1)


def untouched(text: str) -> bool | None:
    """Returns whether a rendered file is unchanged since it was rendered, or None for a file that was not rendered."""
    found = _CONTENTS.search(text)
    return None if found is None else stamp(text) == text
