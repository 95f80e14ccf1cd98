"""What a person did wrong, said in one line.

Files, traces, cluster descriptions and parameters come from strangers. Whatever is wrong with one raises `InputError`; the command
line prints its one line and exits with status 2. Anything else that escapes is a defect of Armillary.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

#: An absolute path of two parts or more; a fraction, a rate or an address of the web is none.
_PATH = re.compile(r"""(?<![\w:/.…])/(?:[^\s/'",:<>()=]+/)+([^\s/'",:<>()=]*)""")


class InputError(Exception):
    """A file, name or value that cannot be used: where, what was found, what was expected.

    `where` is a file (with `:line` or `: key.path` when there is one), an option or a name. Several faults of one file are one
    error: `InputError.several` keeps them as `faults`, and `str` gives one line each.
    """

    def __init__(self, message: str, *, where: str | None = None) -> None:
        self.where = where
        self.message = one_line(message)
        #: One entry for each fault; a single fault unless made by `several`.
        self.faults: tuple[str, ...] = (f"{one_line(where)}: {self.message}" if where else self.message,)
        super().__init__(self.faults[0])

    @classmethod
    def several(cls, faults: Iterable[str], *, most: int = 20) -> InputError:
        """One error for many faults of one input; at most `most` are kept and the rest counted."""
        lines = [one_line(fault) for fault in faults]
        if len(lines) > most:
            lines = [*lines[:most], f"and {len(lines) - most} more"]
        error = cls(lines[0])
        error.faults = tuple(lines)
        error.args = ("\n".join(lines),)
        return error


def one_line(text: str, most: int = 400) -> str:
    """`text` with control characters made visible and cut to `most` characters: safe to print in a terminal."""
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in str(text))
    return shown if len(shown) <= most else shown[: most - 1] + "…"


def unknown(what: str, name: str, known: Iterable[str], *, where: str | None = None) -> InputError:
    """The error for a name that does not exist, with the nearest names that do."""
    options = sorted(set(known))
    near = difflib.get_close_matches(name[:200], options, n=3, cutoff=0.5)
    if near:
        hint = "did you mean " + " or ".join(f'"{n}"' for n in near) + "?"
    elif options:
        hint = "known: " + ", ".join(options[:12]) + ("…" if len(options) > 12 else "")
    else:
        hint = "there is none"
    return InputError(f'unknown {what} "{one_line(name, 80)}" ({hint})', where=where)


def without_paths(text: str) -> str:
    """The text with absolute paths cut to their last part: what is passed on tells nothing about the machine it was made on."""
    return _PATH.sub(r"…/\1", text)
