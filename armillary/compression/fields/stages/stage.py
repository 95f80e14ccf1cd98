"""A stage is one link of a compressor: a pure function from named arrays to named arrays, and its inverse.

A stage reads *ports* (named arrays) and writes ports. In a pipeline, an output that a later stage reads is passed on; every other
output, and each that is `stored`, becomes a section of the container. `inverse` gets the outputs back and returns the inputs. A stage
with `analysis` only looks at the data (a histogram): it has no inverse, and nothing that it gives is stored.

Other packages add stages through the entry-point group `armillary.compression.stages` (`"name" = "package.module:Class"`): frozen
dataclasses that inherit `Stage` and whose fields are their configuration.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import importlib.metadata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from armillary.errors import InputError, unknown

#: Kinds of data that a port may carry: what NumPy calls `dtype.kind` and the item sizes.
KINDS: Mapping[str, tuple[str, ...]] = {
    "float": ("<f4", "<f8"),
    "float64": ("<f8",),
    "codes": ("<u2",),
    "ints": ("<i4", "<i8"),
    "index": ("<u4",),
    "bytes": ("|u1",),
    "words": ("<u2", "<u4"),
    "counts": ("<i8",),
}


@dataclass(frozen=True)
class Port:
    """A named array that a stage reads or writes; `kind` is a key of `KINDS`."""

    name: str
    kind: str
    stored: bool = False


@dataclass(frozen=True)
class Context:
    """The facts of a chunk for its stages: its extents as (batch, z, y, x), the array's own dtype, the bound as asked for, the threads.

    `span` is the least and largest finite value of the whole array where the chunk is a part of one, `own` those of the chunk where they
    are known already.
    """

    shape: tuple[int, int, int, int]
    dtype: np.dtype
    mode: str = "abs"
    bound: float = 0.0
    span: tuple[float, float] | None = None
    threads: int = 1
    own: tuple[float, float] | None = None

    @property
    def size(self) -> int:
        """Values in the chunk."""
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def dimensions(self) -> int:
        """1, 2 or 3: along how many axes neighbours help, leading axes of one point left out."""
        return 3 if self.shape[1] > 1 else 2 if self.shape[2] > 1 else 1


class Stage:
    """One link of a compressor; subclasses are frozen dataclasses whose fields are the configuration."""

    name: ClassVar[str] = ""
    version: ClassVar[int] = 1
    inputs: ClassVar[tuple[Port, ...]] = ()
    outputs: ClassVar[tuple[Port, ...]] = ()
    analysis: ClassVar[bool] = False
    #: Takes every open port instead of named ones, each by itself (a second lossless pass).
    every_port: ClassVar[bool] = False
    #: Whether it keeps the bound for every value by itself; a pipeline with a lossy stage that does not is decoded and patched.
    keeps_bound: ClassVar[bool] = True

    def forward(self, ctx: Context, **arrays: np.ndarray) -> dict[str, np.ndarray]:
        """Returns the outputs for these inputs."""
        raise NotImplementedError

    def inverse(self, ctx: Context, **arrays: np.ndarray) -> dict[str, np.ndarray]:
        """Returns the inputs that gave these outputs, within the bound."""
        raise NotImplementedError

    def config(self) -> dict[str, Any]:
        """Returns the configuration as plain data; `make(name, config)` gives the stage back."""
        return dataclasses.asdict(self)  # type: ignore[call-overload]

    def check(self) -> None:
        """Raises InputError where the configuration makes no sense; single types are checked without it."""


INSIDE = {
    "range": ".bounds:Range",
    "log": ".logarithm:Log",
    "lorenzo": ".lorenzo:Lorenzo",
    "interp": ".interpolation:Interp",
    "none": ".delta:Quantise",
    "delta": ".delta:Delta",
    "histogram": ".histogram:Histogram",
    "topk-histogram": ".histogram:TopkHistogram",
    "huffman": ".huffman:Huffman",
    "bitshuffle": ".bitshuffle:Bitshuffle",
    "zero-blocks": ".bitshuffle:ZeroBlocks",
    "fixed-width": ".fixed_width:FixedWidth",
    "rze": ".rze:Rze",
    "zstd": ".lossless:Zstd",
    "store": ".lossless:Store",
    "fz-fused": ".fz_fused:FzFusedStage",
    "cuszp-fused": ".cuszp_fused:CuszpFusedStage",
}


@functools.cache
def stages() -> dict[str, str]:
    """Returns every stage by name, those of other packages after our own."""
    found = dict(INSIDE)
    for entry in sorted(importlib.metadata.entry_points(group="armillary.compression.stages")):
        found.setdefault(entry.name, entry.value)
    return found


def stage_class(name: str, *, where: str | None = None) -> type[Stage]:
    """Returns the class of a stage, loaded now."""
    if name not in stages():
        raise unknown("stage", name, stages(), where=where)
    module, _, attribute = stages()[name].partition(":")
    found = getattr(importlib.import_module(module, __package__), attribute)
    if not (isinstance(found, type) and issubclass(found, Stage)):
        raise InputError(f'stage "{name}": found {found!r}; expected a class that inherits Stage', where=where)
    return found


def make(name: str, config: Mapping[str, Any] | None = None, *, where: str | None = None) -> Stage:
    """Returns a stage with this configuration, each value checked."""
    from armillary.parameters import with_parameters

    made = with_parameters(stage_class(name, where=where), config or {}, where=f"{where}: {name}" if where else name)
    made.check()
    return made
