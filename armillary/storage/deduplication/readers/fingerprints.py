"""Chunks numbered in the order in which their fingerprints are met."""

from __future__ import annotations

HEX = frozenset("0123456789abcdef")


class Numbered:
    """The numbers and sizes of the chunks so far."""

    def __init__(self) -> None:
        self.numbers: dict[bytes, int] = {}
        #: The bytes of each chunk.
        self.sizes: list[int] = []

    def number(self, name: bytes, size: int) -> int:
        """The number of the chunk with this fingerprint; a fingerprint that had another size before raises ValueError."""
        found = self.numbers.setdefault(name, len(self.sizes))
        if found == len(self.sizes):
            self.sizes.append(size)
        elif self.sizes[found] != size:
            raise ValueError(f"found {size} bytes for a fingerprint; expected {self.sizes[found]}, as before")
        return found
