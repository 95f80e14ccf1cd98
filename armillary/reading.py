"""How a user's file becomes cases: options checked, every file opened once, content part of every case.

An arena declares a reader and its options. `Reading` checks the options, finds all the files that they name, digests their content,
lets the reader read them once for each content, and marks every case with its files. What was read is kept while it is in use: the two
contents that were asked for last.
"""

from __future__ import annotations

import functools
import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from armillary import extras
from armillary.case import Case
from armillary.errors import InputError, one_line
from armillary.files.content import check_readable, content_digest
from armillary.frozen import frozen
from armillary.parameters import canonical_json, option_name, parameters, with_options

KEPT = 2


@dataclass
class Reading:
    """One arena's reader: `read(path, options)` and, where a file holds several cases, `make_cases(loaded, name, options)`."""

    arena: str
    read: Callable[[Path, Any], Any]
    #: A frozen dataclass whose fields are the options.
    options: type
    #: Whether a folder may be named instead of a file.
    folders: bool = False
    #: The option that names the work where `--work` is not given.
    work_option: str = ""
    make_cases: Callable[[Any, str, Any], Iterable[Case]] | None = None
    #: What was read last, by digest; the oldest goes first.
    _kept: OrderedDict[str, Any] = field(default_factory=OrderedDict, repr=False)

    def checked(self, values: Mapping[str, Any] | None) -> Any:
        """The options as an object, each value checked against its type and legal values."""
        return with_options(self.options, values or {}, where=self.arena)

    def files(self, path: Path, options: Any) -> tuple[Path, ...]:
        """The file and every further file that an option names; what an option names and does not exist is a preset, or a mistake."""
        check_readable(path, folder=self.folders)
        found = [path]
        for name, value in self._named(options):
            other = Path(value)
            if other.exists():
                check_readable(other, folder=True, where=f"{option_name(name)} {value}")
                found.append(other)
        return tuple(found)

    def cases(self, path: Path, options: Any) -> list[Case]:
        """The cases in a file, each with its files and their content."""
        files = self.files(path, options)
        content = self._digest(files, options)
        load = functools.partial(self._load, path, options, files, content)
        name = path.name or path.resolve().name or "folder"
        if self.make_cases is None:
            made: Iterable[Case] = [Case(name, parameters=self._plain(options), kinds=frozenset({"file"}))]
            load()
        else:
            made = self.make_cases(load(), name, options)
        return [replace(case, files=files, content=content, load=load) for case in made]

    def absolute(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The options as given, with the files that they name made absolute: a worker may run in another folder."""
        made = dict(values)
        known = parameters(self.options)
        for given, value in values.items():
            facts = known.get(given.replace("-", "_"))
            if facts is not None and facts.file and isinstance(value, str):
                made[given] = ",".join(str(Path(v).absolute()) if v and Path(v).exists() else v for v in value.split(","))
        return made

    def _named(self, options: Any) -> list[tuple[str, str]]:
        """(option, value) of every value that may name a file."""
        found = []
        for name, facts in parameters(self.options).items():
            value = getattr(options, name)
            if facts.file and value:
                values = value.split(",") if isinstance(value, str) else value
                found += [(name, str(one)) for one in values if one]
        return found

    def _plain(self, options: Any) -> dict[str, Any]:
        """The options as a case's parameters; of a file its name alone, because its content counts and its place does not."""
        named = {name for name, _ in self._named(options)}
        plain = {}
        for name in parameters(self.options):
            value = getattr(options, name)
            if name in named:
                values = value.split(",") if isinstance(value, str) else value
                value = ",".join(Path(one).name if Path(one).exists() else str(one) for one in values)
            plain[name] = value
        return plain

    def _digest(self, files: tuple[Path, ...], options: Any) -> str:
        # Readers tell formats, and some even extents, by a file's name.
        what = {"options": self._plain(options), "content": [(file.name, content_digest(file)) for file in files]}
        return hashlib.sha256(canonical_json(what).encode()).hexdigest()

    def _read(self, path: Path, options: Any) -> Any:
        """What the arena's reader makes of a file. A reader says itself what is wrong; this is for what escapes it."""
        try:
            return self.read(path, options)
        except ModuleNotFoundError as error:
            if not extras.optional(error.name):
                raise
            raise extras.missing(error.name or "") from None
        except (EOFError, UnicodeError, MemoryError, RecursionError, OverflowError, OSError) as error:
            raise InputError(f"cannot be read ({type(error).__name__}: {one_line(str(error))})", where=str(path)) from error

    def _load(self, path: Path, options: Any, files: tuple[Path, ...], content: str) -> Any:
        if content not in self._kept:
            if self._digest(files, options) != content:
                raise InputError("the file changed since the study was planned", where=str(path))
            self._kept[content] = frozen(self._read(path, options))
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(content)
        return self._kept[content]
