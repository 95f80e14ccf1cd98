"""What an inspection carries along: names of blocks, functions that are being followed, and what a file says."""

from __future__ import annotations

from dataclasses import dataclass, field

from .modes import Evidence
from .values import Value


@dataclass(frozen=True)
class Keys:
    """A dictionary with constant keys."""

    of: tuple[tuple[str, Value], ...]


class Scope:
    """Names of a block; what a block does not set itself is looked up outside."""

    __slots__ = ("outer", "values")

    def __init__(self, outer: Scope | None = None) -> None:
        self.outer = outer
        self.values: dict[str, Value] = {}

    def get(self, name: str) -> Value | None:
        """What is known about a name, or None if it was never set."""
        scope: Scope | None = self
        while scope is not None:
            found = scope.values.get(name)
            if found is not None:
                return found
            scope = scope.outer
        return None


@dataclass
class Frame:
    """A function that is being followed: its key, its class, and what it returns."""

    key: tuple[str, str]
    owner: str = ""
    returns: list[Value] = field(default_factory=list)


@dataclass
class Found:
    """What one file says."""

    file: str
    imports: list[Evidence] = field(default_factory=list)
    #: (evidence, function in which it stands, whether it is guarded).
    explicit: list[tuple[Evidence, tuple[str, str], bool]] = field(default_factory=list)
    tensors: list[tuple[float, Evidence]] = field(default_factory=list)
    models: list[tuple[float, Evidence]] = field(default_factory=list)
    #: Operations of one run of each function, and the place of its largest product.
    flops: dict[tuple[str, str], float] = field(default_factory=dict)
    products: list[tuple[float, Evidence]] = field(default_factory=list)
