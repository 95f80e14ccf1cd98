"""A case: one piece of work, which every technique of an arena meets in the same form.

Built-in work is made by a generator function from the case's parameters and a seeded stream. Work from a user's files is read once by
the arena's reader; its case carries those files and a digest of all their content. Within one process the workload of the case that
is being run, and whatever `Case.once` computed for it, is kept until the next case begins.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from armillary.errors import InputError
from armillary.frozen import frozen
from armillary.parameters import canonical_json
from armillary.streams import seed32, stream

if TYPE_CHECKING:
    import numpy as np

    from armillary.cluster import Cluster

T = TypeVar("T")


def as_read(case: Case, rng: np.random.Generator) -> Any:
    """The workload of a case from a user's file, when it is exactly what the reader returned."""
    return case.loaded


@dataclass(frozen=True)
class Case:
    """One piece of work: what to do it on, how to make it, and what kind it is.

    `make(case, rng)` builds the workload; it must depend on the case and `rng` alone. `kinds` are the words by which techniques take or
    decline it and claims choose it. `files`, `content` and `load` are set by `Arena.from_file`, `seed` and `repeat` by the study.
    """

    name: str
    make: Callable[[Case, np.random.Generator], Any] = field(default=as_read, compare=False)
    parameters: Mapping[str, Any] = field(default_factory=dict)
    kinds: frozenset[str] = frozenset()
    cluster: Cluster | None = None
    #: The user's files that the case came from, further files that options name included.
    files: tuple[Path, ...] = ()
    #: A digest over the content of all `files` and the options with which they were read.
    content: str = ""
    #: Reads the files again, or takes what was read from the arena's cache.
    load: Callable[[], Any] | None = field(default=None, compare=False, repr=False)
    seed: int = 0
    repeat: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "kinds", frozenset(self.kinds))
        if "|" in self.name or not self.name or not self.name.isprintable():
            raise InputError(f'case name "{self.name}": expected printable characters without "|"')

    def at(self, seed: int, repeat: int) -> Case:
        """The same work, drawn for this study seed and repeat."""
        return replace(self, seed=seed, repeat=repeat)

    def stream(self, *names: str) -> np.random.Generator:
        """A stream of the work's random numbers. It does not know the technique, so every technique meets the same numbers."""
        return stream(self.seed, "case", self.name, str(self.repeat), *names)

    @functools.cached_property
    def rng(self) -> np.random.Generator:
        """The work's random numbers while it is run: equal for every technique on this case and repeat."""
        return self.stream()

    def seed32(self, name: str) -> int:
        """An integer seed for a library that takes one, from the work's stream."""
        return seed32(self.seed, "case", self.name, str(self.repeat), name)

    @property
    def loaded(self) -> Any:
        """What the arena's reader made of the user's files; its arrays are read-only."""
        if self.load is None:
            raise TypeError(f"case {self.name} does not come from a file")
        return self.load()

    @property
    def workload(self) -> Any:
        """The work itself, made once for techniques that run one after another; its arrays are read-only."""
        return self.once(_workload)

    def once(self, compute: Callable[..., T], *arguments: Hashable) -> T:
        """`compute(case, *arguments)`, computed once for this case, seed and repeat: later techniques on it get the same object.

        For what every technique needs and none may influence: a reference solution, a baseline's misses, a sorted copy. Arrays in it
        are read-only from then on, so that no technique can change the next one's input.
        """
        kept = _kept_for(self)
        key = (f"{compute.__module__}:{compute.__qualname__}", arguments)
        if key not in kept:
            kept[key] = frozen(compute(self, *arguments))
        found: T = kept[key]
        return found

    @functools.cached_property
    def digest(self) -> str:
        """Hex SHA-256 over everything that defines the case: generator, parameters, kinds, cluster, and the content of its files."""
        what = {
            "name": self.name,
            "make": f"{self.make.__module__}:{self.make.__qualname__}",
            "parameters": dict(self.parameters),
            "kinds": sorted(self.kinds),
            "cluster": None if self.cluster is None else self.cluster.digest,
            "content": self.content,
        }
        return hashlib.sha256(canonical_json(what).encode()).hexdigest()


#: What was made for the last case in this process: (digest, seed, repeat), and values by the name of the function that computed them.
_last: list[tuple[tuple[str, int, int], dict[Hashable, Any]]] = []


def _kept_for(case: Case) -> dict[Hashable, Any]:
    key = (case.digest, case.seed, case.repeat)
    if not _last or _last[0][0] != key:
        _last[:] = [(key, {})]
    return _last[0][1]


def _workload(case: Case) -> Any:
    return case.make(case, case.stream("workload"))
