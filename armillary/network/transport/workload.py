"""A workflow: components with ranks, and streams of variables between them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armillary.errors import InputError, unknown

from .blocks.decomposition import Ints, blocks, checked_shape, cubes
from .blocks.redistribution import check_disjoint, checked_blocks
from .reduction.reduction import Reduction

if TYPE_CHECKING:
    from armillary.cluster import Cluster

    from .simulation.play import Simulated

ENGINES = {"File": ("File",), "Staging": ("Mailbox", "MQ")}
MOST_RANKS = 1_000_000
MOST_STEPS = 100_000
MOST_RANK_STEPS = 20_000_000


@dataclass(frozen=True)
class Component:
    """A program of `ranks` processes on nodes of `group`, each computing `compute` flops per step."""

    name: str
    ranks: int
    group: str
    compute: float = 0.0


@dataclass(frozen=True)
class VariableSpec:
    """A global array: cut into `publish` parts per dimension by the publishers, and into `subscribe` parts by the subscribers.

    `blocks` gives publishers' blocks as (start, count) per rank where they are not regular; `selection` limits what subscribers take.
    """

    name: str
    shape: tuple[int, ...]
    itemsize: int = 8
    publish: tuple[int, ...] = ()
    subscribe: tuple[int, ...] = ()
    blocks: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = ()
    selection: tuple[tuple[int, ...], tuple[int, ...]] | None = None

    def published(self, ranks: int) -> tuple[Ints, Ints]:
        """(start, count) per publisher."""
        if self.blocks:
            if len(self.blocks) != ranks:
                raise InputError(f"found {len(self.blocks)} blocks; expected {ranks}, one per publisher", where=f"variable {self.name}")
            found = checked_blocks(self.shape, [b[0] for b in self.blocks], [b[1] for b in self.blocks], f"variable {self.name}")
            check_disjoint(found, f"variable {self.name}")
            return found
        return blocks(self.shape, self._parts(self.publish, ranks, "publish"))

    def selected(self, ranks: int) -> tuple[Ints, Ints]:
        """(start, count) per subscriber."""
        shape = self.shape if self.selection is None else self.selection[1]
        start, count = blocks(shape, self._parts(self.subscribe, ranks, "subscribe", shape))
        if self.selection is not None:
            checked_blocks(self.shape, [self.selection[0]], [self.selection[1]], f"selection of {self.name}")
            start = start + self.selection[0]
        return start, count

    def _parts(self, found: tuple[int, ...], ranks: int, what: str, shape: tuple[int, ...] | None = None) -> tuple[int, ...]:
        shape = shape or self.shape
        parts = found or cubes(ranks, shape)
        product = 1
        for p in parts:
            product *= p
        if len(parts) != len(shape) or product != ranks or min(parts) < 1:
            said = f"{what}: found {list(parts)}; expected {len(shape)} whole numbers whose product is {ranks}, the number of ranks"
            raise InputError(said, where=f"variable {self.name}")
        return parts


@dataclass(frozen=True)
class StreamSpec:
    """Variables that `source` publishes in every `every`-th step, and `target` takes."""

    name: str
    source: str
    target: str
    variables: tuple[VariableSpec, ...]
    every: int = 1
    engine: str = ""
    transport: str = ""
    reduction: Reduction = field(default_factory=Reduction)
    export_metadata: bool = False

    def __post_init__(self) -> None:
        check_engine(self.engine, self.transport, f"stream {self.name}")


def check_engine(engine: str, transport: str, where: str) -> None:
    """Refuses an engine or a transport method that there is not, and those that do not go together."""
    if engine and engine not in ENGINES:
        raise unknown("engine", engine, ENGINES, where=where)
    methods = [method for all_of in ENGINES.values() for method in all_of]
    if transport and transport not in methods:
        raise unknown("transport_method", transport, methods, where=where)
    if engine and transport and transport not in ENGINES[engine]:
        raise InputError(f"transport_method: found {transport} with {engine}; expected {' or '.join(ENGINES[engine])}", where=where)


@dataclass(frozen=True)
class Workflow:
    """Components and the streams between them, for `steps` steps."""

    name: str
    components: tuple[Component, ...]
    streams: tuple[StreamSpec, ...]
    steps: int = 5
    #: What the real runs execute, if it is one of their programs.
    program: str = ""
    where: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        where = self.where or self.name
        names = [c.name for c in self.components]
        for what, found in (("component", names), ("stream", [s.name for s in self.streams])):
            twice = next((name for name in found if found.count(name) > 1), None)
            if twice is not None:
                raise InputError(f"found two {what}s of the name {twice}; expected one", where=where)
        if not 1 <= self.steps <= MOST_STEPS:
            raise InputError(f"steps: found {self.steps}; expected 1 to {MOST_STEPS:,}", where=where)
        processes = sum(c.ranks for c in self.components)
        if processes * self.steps > MOST_RANK_STEPS:
            said = f"found {processes:,} ranks and {self.steps:,} steps; expected at most {MOST_RANK_STEPS:,} ranks times steps"
            raise InputError(said, where=where)
        if not self.components or not self.streams:
            raise InputError("found no components or no streams; expected at least two components and a stream", where=where)
        for c in self.components:
            if not 1 <= c.ranks <= MOST_RANKS:
                raise InputError(f"component {c.name}: found {c.ranks} ranks; expected 1 to {MOST_RANKS:,}", where=where)
        for s in self.streams:
            for end in (s.source, s.target):
                if end not in names:
                    raise unknown("component", end, names, where=f"{where}, stream {s.name}")
            if s.source == s.target:
                raise InputError(f"stream {s.name}: found {s.source} at both ends; expected two components", where=where)
            if not s.variables:
                raise InputError(f"stream {s.name}: found no variables; expected at least one", where=where)
            for v in s.variables:
                checked_shape(v.shape, f"{where}, variable {v.name}")
                v.published(self.component(s.source).ranks)
                v.selected(self.component(s.target).ranks)
        self._check_order(where)

    def _check_order(self, where: str) -> None:
        left = {c.name for c in self.components}
        while left:
            free = {c for c in left if not any(s.target == c and s.source in left for s in self.streams)}
            if not free:
                raise InputError(f"found a circle of streams through {', '.join(sorted(left))}; expected none", where=where)
            left -= free

    @staticmethod
    def read(path: str | Path) -> Workflow:
        """Reads a workflow from TOML."""
        from .readers.workflows import read_workflow

        return read_workflow(path)

    def component(self, name: str) -> Component:
        """The component of that name."""
        return next(c for c in self.components if c.name == name)

    def inputs(self, name: str) -> list[StreamSpec]:
        """The streams that a component takes."""
        return [s for s in self.streams if s.target == name]

    def outputs(self, name: str) -> list[StreamSpec]:
        """The streams that a component publishes."""
        return [s for s in self.streams if s.source == name]

    def with_reduction(self, reduction: Reduction) -> Workflow:
        """The same with another reduction of every stream."""
        return replace(self, streams=tuple(replace(s, reduction=reduction) for s in self.streams))

    def less_often(self, factor: int) -> Workflow:
        """The same with every stream published `factor` times less often."""
        return replace(self, streams=tuple(replace(s, every=s.every * factor) for s in self.streams))

    def simulate(self, cluster: Cluster, transport: str = "", **how: Any) -> Simulated:
        """Plays the workflow on a cluster. Without a `transport` every stream needs its own engine; see `simulation.play.simulate`."""
        from .simulation.play import simulate

        return simulate(self, cluster, transport, **how)


@dataclass(frozen=True)
class TransportWork:
    """A workflow and the cluster that it runs on."""

    workflow: Workflow
    cluster: Cluster


def fan(
    publishers: int,
    subscribers: int,
    shape: tuple[int, ...],
    publish: tuple[int, ...] = (),
    subscribe: tuple[int, ...] = (),
    steps: int = 5,
) -> Workflow:
    """M publishers and N subscribers of one variable, without computing."""
    variable = VariableSpec("v", shape, 8, publish, subscribe)
    both = (Component("publisher", publishers, ""), Component("subscriber", subscribers, ""))
    return Workflow("fan", both, (StreamSpec("data", "publisher", "subscriber", (variable,)),), steps)


def pipeline(edge: int, *, wide: bool = False, steps: int = 5) -> Workflow:
    """A simulation, a filter that keeps a quarter of its data, and a visualisation; `wide` gives the filter as many ranks."""
    cells = edge**3
    filters = 64 if wide else 16
    parts = (
        Component("simulation", 64, "", 12.0 * 1000 * cells / 64), Component("filter", filters, "", 7.0 * 1000 * cells / filters),
        Component("visualisation", 4, "", 3.0 * 250 * cells / 4),
    )  # fmt: skip
    streams = (
        StreamSpec("field", "simulation", "filter", (VariableSpec("field", (edge, edge, edge)),)),
        StreamSpec("filtered", "filter", "visualisation", (VariableSpec("filtered", (edge // 2, edge // 2, edge)),)),
    )
    return Workflow("pipeline", parts, streams, steps)


def grayscott(edge: int, *, heavy: bool = False, steps: int = 5) -> Workflow:
    """Two fields of a reaction and diffusion in blocks, 30 flops per cell; the analysis takes slabs. `heavy` iterates more."""
    cells = edge**3
    many = 1000.0 if heavy else 1.0
    taking = 8 if edge >= 8 else 1
    variables = tuple(VariableSpec(name, (edge, edge, edge), 8, (4, 4, 4), (1, 1, taking)) for name in "uv")
    parts = (Component("simulation", 64, "", many * 30.0 * cells / 64), Component("analysis", taking, "", many * 4.0 * cells / taking))
    return Workflow("grayscott", parts, (StreamSpec("fields", "simulation", "analysis", variables),), steps)


def md(*, dense: bool = False, atoms: int = 1_000_000, steps: int = 20) -> Workflow:
    """Molecular dynamics: positions of all atoms in every fourth step (every one if `dense`), 2,000 flops per atom and step."""
    positions = VariableSpec("positions", (atoms, 3), 8, (96, 1), (12, 1))
    parts = (Component("dynamics", 96, "", 2000.0 * atoms / 96), Component("analysis", 12, "", 3000.0 * atoms / 12))
    return Workflow("md", parts, (StreamSpec("frames", "dynamics", "analysis", (positions,), 1 if dense else 4),), steps)
