"""The layer as actors use it: connect, open a stream, and put or get variables in transactions. Calls block in simulated time.

def publisher(dtl):
    stream = dtl.connect().stream("Stream1")
    field = stream.define_variable("field", (8, 8), start=(0, 0), count=(8, 8), itemsize=8)
    engine = stream.open("/pfs/field", "publish")
    engine.begin(); engine.put(field); engine.end(); engine.close()

layer = Layer(cluster, [StreamSettings("Stream1", "File", "File")])
layer.start(publisher, node=0)
layer.run()
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from armillary.cluster import Cluster
from armillary.engine import Event, Simulation
from armillary.errors import InputError, unknown
from armillary.network.transport.readers.metadata import Metadata
from armillary.network.transport.reduction.reduction import Reduction
from armillary.network.transport.simulation.platform import Extras, Platform
from armillary.network.transport.simulation.transfers import Transfers
from armillary.network.transport.workload import check_engine

from .engine import Engine
from .files import FileEngine
from .staging import StagingEngine
from .variable import Variable

MODES = ("publish", "subscribe")
#: Paths that begin so are on the shared file system; others are on the disk of the publisher's node.
SHARED = "/pfs/"


@dataclass(frozen=True)
class StreamSettings:
    """A stream's engine and transport, as in DTLMod's configuration."""

    name: str
    engine: str
    transport: str
    reduction: Reduction = field(default_factory=Reduction)
    export_metadata: bool = False

    def __post_init__(self) -> None:
        check_engine(self.engine, self.transport, f"stream {self.name}")
        if not self.engine or not self.transport:
            raise InputError("found no engine or no transport_method; expected both", where=f"stream {self.name}")


class Layer:
    """A connection manager over one cluster, and the streams that its configuration names."""

    def __init__(
        self, cluster: Cluster, streams: Iterable[StreamSettings] = (), *, extras: Extras | None = None, aggregate: bool = True
    ) -> None:
        self.sim = Simulation()
        self.platform = Platform(self.sim, cluster, extras)
        self.transfers = Transfers(self.sim, self.platform, aggregate=aggregate)
        self._settings = {s.name: s for s in streams}
        self._streams: dict[str, Stream] = {}
        self.connected = 0

    def start(self, actor: Callable[[Connection], Any], node: int = 0, name: str | None = None, at: float = 0.0) -> Any:
        """Starts `actor(dtl)` on a node at a time; the returned event carries its result."""

        def run() -> Any:
            if at > 0.0:
                self.sim.sleep(at)
            return actor(Connection(self, node))

        return self.sim.spawn(run, name=name or getattr(actor, "__name__", "actor"))

    def run(self) -> float:
        """Plays until every actor has ended; returns the seconds. Actors that wait for a side that never comes are a `Deadlock`."""
        try:
            self.sim.run()
        except BaseException:
            self.sim.close()
            raise
        return self.sim.now

    def metadata(self, stream: str) -> Metadata:
        """Which blocks of which variables stand in which files, by transaction."""
        found = self._streams[stream]
        if found._engine is None:
            return Metadata(())
        return exported(found._engine, found.path)


class Connection:
    """An actor's connection, which costs nothing."""

    def __init__(self, layer: Layer, node: int) -> None:
        self.layer, self.node = layer, node
        self._connected = False

    @property
    def now(self) -> float:
        """The simulated time in seconds."""
        return self.layer.sim.now

    def connect(self) -> Connection:
        """Connects, at any time."""
        self.layer.connected += not self._connected
        self._connected = True
        return self

    def disconnect(self) -> None:
        """Disconnects."""
        self.layer.connected -= self._connected
        self._connected = False

    def sleep(self, seconds: float) -> None:
        """Lets time pass."""
        self.layer.sim.sleep(seconds)

    def compute(self, flops: float) -> None:
        """Computes on one core of the actor's node."""
        pool, each = self.layer.platform.cores(self.node)
        _wait(pool.use(flops, cap=each))

    def stream(self, name: str) -> Stream:
        """A stream of the configuration."""
        if not self._connected:
            raise InputError("found stream() before connect(); expected connect() first", where=f"stream {name}")
        if name not in self.layer._streams:
            if name not in self.layer._settings:
                raise unknown("stream", name, self.layer._settings)
            self.layer._streams[name] = Stream(self.layer, self.layer._settings[name])
        return self.layer._streams[name].seen_by(self)


class Stream:
    """A stream: its variables and, once somebody has opened it, its engine."""

    def __init__(self, layer: Layer, settings: StreamSettings) -> None:
        self.layer, self.settings, self.path = layer, settings, ""
        self.variables: dict[str, Variable] = {}
        self._engine: Engine | None = None

    def seen_by(self, connection: Connection) -> Any:
        """The stream as one actor sees it."""
        return ActorStream(self, connection)

    def engine(self, path: str) -> Engine:
        """The engine, made when the first actor opens the stream."""
        if self._engine is None:
            layer, name = self.layer, self.settings.name
            if self.settings.engine == "File":
                made: Engine = FileEngine(name, layer.sim, layer.transfers, shared=path.startswith(SHARED))
            else:
                made = StagingEngine(name, layer.sim, layer.transfers, instant=self.settings.transport == "MQ")
            made.variables = self.variables
            self._engine, self.path = made, path
        elif path != self.path:
            raise InputError(f"found the path {path}; expected {self.path}, as others opened it", where=self.settings.name)
        return self._engine


class ActorStream:
    """A stream, for one actor."""

    def __init__(self, stream: Stream, connection: Connection) -> None:
        self._stream, self._connection = stream, connection
        self._defined: dict[str, tuple[Sequence[int], Sequence[int]]] = {}

    def define_variable(
        self, name: str, shape: Sequence[int], start: Sequence[int], count: Sequence[int], itemsize: int = 8
    ) -> ActorVariable:
        """Defines a global variable and the block of it that this actor publishes."""
        variable = self._stream.variables.get(name)
        if variable is None:
            variable = self._stream.variables[name] = Variable(name, shape, itemsize, self._stream.settings.reduction)
        elif variable.shape != tuple(shape) or variable.itemsize != itemsize:
            said = f"found {list(shape)} of {itemsize} bytes; expected {list(variable.shape)} of {variable.itemsize}, as others defined it"
            raise InputError(said, where=f"variable {name}")
        variable.check_selection(start, count)
        self._defined[name] = (tuple(start), tuple(count))
        return ActorVariable(variable)

    def inquire_variable(self, name: str) -> ActorVariable:
        """A variable that somebody has defined."""
        if name not in self._stream.variables:
            raise unknown("variable", name, self._stream.variables, where=self._stream.settings.name)
        return ActorVariable(self._stream.variables[name])

    def open(self, path: str, mode: str) -> ActorEngine:
        """Opens the stream to publish or to subscribe; a path below /pfs/ is on the shared file system."""
        if mode not in MODES:
            raise unknown("mode", mode, MODES, where=self._stream.settings.name)
        engine = self._stream.engine(path)
        if mode == "subscribe":
            return ActorEngine(engine, engine.open_subscriber(self._connection.node), publishes=False)
        number = engine.open_publisher(self._connection.node)
        for name, (start, count) in self._defined.items():
            self._stream.variables[name].hold(number, start, count)
        return ActorEngine(engine, number, publishes=True)


class ActorVariable:
    """A variable and what an actor selects of it: everything, unless it says otherwise."""

    def __init__(self, variable: Variable) -> None:
        self.variable = variable
        self.start: tuple[int, ...] = (0,) * len(variable.shape)
        self.count: tuple[int, ...] = variable.shape

    def select(self, start: Sequence[int], count: Sequence[int]) -> None:
        """Limits what `get` takes."""
        self.variable.check_selection(start, count)
        self.start, self.count = tuple(start), tuple(count)


class ActorEngine:
    """An open stream, for one actor."""

    def __init__(self, engine: Engine, number: int, *, publishes: bool) -> None:
        self._engine, self._number, self._publishes = engine, number, publishes

    def select_transactions(self, first: int, many: int) -> None:
        """Limits a subscriber to `many` transactions from number `first`."""
        self._engine.select_transactions(self._number, first, many)

    def begin(self) -> None:
        """Begins a transaction; a subscriber gets `EndOfStream` when there is none left."""
        _wait(self._engine.begin_publisher() if self._publishes else self._engine.begin_subscriber(self._number))

    def put(self, variable: ActorVariable) -> None:
        """Publishes this actor's block."""
        self._engine.put(self._number, variable.variable)

    def get(self, variable: ActorVariable) -> None:
        """Asks for the selected part, which is there after `end`."""
        self._engine.get(self._number, variable.variable, variable.start, variable.count)

    def end(self) -> None:
        """Ends the transaction."""
        _wait(self._engine.end_publisher(self._number) if self._publishes else self._engine.end_subscriber(self._number))

    def cancel(self) -> None:
        """Cancels the transaction under way: whoever waits gets `TransactionCancelled`."""
        self._engine.cancel()

    def close(self) -> None:
        """Closes the stream for this actor."""
        if self._publishes:
            _wait(self._engine.close_publisher())
        else:
            self._engine.close_subscriber(self._number)


def exported(engine: Engine, path: str = "data") -> Metadata:
    """The metadata of all transactions of a stream."""
    found = []
    for name, variable in engine.variables.items():
        start, count = variable.blocks
        by_transaction: dict[int, tuple[tuple[str, tuple[tuple[int, int], ...]], ...]] = {}
        for number, puts in engine.published.items():
            if name in puts:
                who = [p for p in sorted(puts[name]) if p < len(start) and count[p].all()]
                by_transaction[number] = tuple(
                    (f"{path}/data.{p}", tuple((int(a), int(a + n)) for a, n in zip(start[p], count[p], strict=True))) for p in who
                )
        found.append((name, variable.itemsize, variable.shape, by_transaction))
    return Metadata(tuple(found))


def _wait(event: Event | None) -> None:
    if event is not None:
        event.wait()


def save_metadata(metadata: Metadata, path: str | Path) -> None:
    """Writes DTLMod's text, or JSON where the name ends so."""
    text = metadata.json() if str(path).endswith(".json") else metadata.text()
    Path(path).write_text(text, encoding="utf-8")
