"""Paths resolved against the tree that a builder has made so far."""

from __future__ import annotations

from ..workload import MKDIR, ROOT, WorkBuilder, check_name


class Paths:
    """The directories of a builder's tree by their paths."""

    def __init__(self, builder: WorkBuilder) -> None:
        self.builder = builder

    def parts(self, path: bytes, where: str) -> list[bytes]:
        """Returns the names of a path."""
        names = [name for name in path.split(b"/") if name not in (b"", b".")]
        for name in names:
            check_name(name, where=where)
        return names

    def resolve(self, names: list[bytes], *, make: bool) -> int | None:
        """Returns the directory that these names lead to, or None."""
        at = ROOT
        for name in names:
            child = self.builder.find(at, name)
            if child is None:
                if not make:
                    return None
                child = self.builder.add(MKDIR, at, name, mode=0o40755)
            elif not self.builder.is_directory(child):
                return None
            at = child
        return at
