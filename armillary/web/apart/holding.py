"""A run's lock, which its process holds for as long as it lives, and the files by which it says what became of it."""

from __future__ import annotations

import contextlib
import fcntl
import warnings
from collections.abc import Iterator
from pathlib import Path

from armillary.errors import InputError, one_line
from armillary.study.store import StoreError


@contextlib.contextmanager
def held(folder: Path) -> Iterator[bool]:
    """Holds a run's lock; gives False where another process has it. What goes wrong inside becomes one line in `refused`.

    The lock is of a kind whose holder can be asked for, and the kernel takes it away however its holder ends.
    """
    warnings.simplefilter("ignore")
    with (folder / "lock").open("r+") as mine:
        try:
            fcntl.lockf(mine, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
            return
        try:
            yield True
        except (InputError, StoreError) as error:
            tell(folder / "refused", one_line(str(error), 500))
        except KeyboardInterrupt:
            pass
        except Exception as error:
            tell(folder / "refused", one_line(f"{type(error).__name__}: {error}", 500))


def tell(file: Path, text: str) -> None:
    """Writes a file whole."""
    part = file.with_suffix(".part")
    part.write_text(text, encoding="utf-8")
    part.replace(file)
