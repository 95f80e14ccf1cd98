"""A Hypothesis machine that drives a protocol of storage/synchronization through operations, outages and waits, and holds it to what it
promises.

    class TestMine(SyncMachine.TestCase): ...          # or, for a protocol of your own:

    class MyMachine(SyncMachine):
        protocol = MyProtocol()
        promises = ("lost_updates", "silent_divergence")

    TestMine = MyMachine.TestCase

`promises` are counts of the arena that must be 0 at quiescence. Hypothesis is needed (`pip install hypothesis`).
"""

from __future__ import annotations

from typing import ClassVar

from armillary.errors import InputError
from armillary.storage.synchronization.transactional_link import TransactionalLink
from armillary.storage.synchronization.world.protocol import SyncProtocol
from armillary.storage.synchronization.world.schedule import SERVER, Operation, Schedule
from armillary.storage.synchronization.world.simulation import World

try:
    from hypothesis import strategies as st
    from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
except ImportError:  # pragma: no cover
    raise InputError("SyncMachine needs the package hypothesis; install it with: pip install hypothesis") from None

_PATHS = ("f", "g", "F", "f/x", "new\nline")
REPLICAS = ("A", "B", "C")


class SyncMachine(RuleBasedStateMachine):
    """Three replicas under `protocol`; at the end all links come up, and each count in `promises` must be 0."""

    protocol: ClassVar[SyncProtocol] = TransactionalLink()
    promises: ClassVar[tuple[str, ...]] = (
        "lost_updates", "resurrected", "silent_divergence", "open_divergence", "torn_groups", "spurious_conflicts", "duplicates",
    )  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        self.world = World(Schedule(REPLICAS, ()), self.protocol)
        self.group: dict[str, str] = {}
        self.cut: set[str] = set()
        self.groups = 0

    @initialize(seed=st.integers(0, 99), loss=st.sampled_from([0.0, 0.3]), delay_s=st.sampled_from([0.05, 5.0]))
    def begin(self, seed: int, loss: float, delay_s: float) -> None:
        """A network, good or bad."""
        schedule = Schedule(REPLICAS, (), seed=seed, loss=loss, duplication=loss, delay_s=delay_s)
        self.world = World(schedule, self.protocol)
        self.world.advance(1.0)

    def _do(self, replica: str, op: str, path: str = "", to: str = "", group: str | None = None) -> None:
        group = self.group.get(replica, "") if group is None else group
        self.world.do(Operation(self.world.sim.now, replica, op, path, to, 100, group))

    @rule(replica=st.sampled_from(REPLICAS), op=st.sampled_from(["write", "append", "delete"]), path=st.sampled_from(_PATHS))
    def edits(self, replica: str, op: str, path: str) -> None:
        """A user edits or deletes."""
        self._do(replica, op, path)

    @rule(replica=st.sampled_from(REPLICAS), path=st.sampled_from(_PATHS), to=st.sampled_from(_PATHS))
    def renames(self, replica: str, path: str, to: str) -> None:
        """A user renames; onto a file that is there it is refused."""
        if path != to:
            self._do(replica, "rename", path, to)

    @rule(replica=st.sampled_from(REPLICAS), path=st.sampled_from(_PATHS))
    def reads(self, replica: str, path: str) -> None:
        """A user reads, and looks whether a group is torn."""
        self._do(replica, "read", path, group="")

    @rule(replica=st.sampled_from(REPLICAS))
    def opens_or_closes_a_group(self, replica: str) -> None:
        """A user begins a group, or ends the one that is open."""
        if replica in self.group:
            self._do(replica, "end", group=self.group.pop(replica))
        else:
            self.groups += 1
            self.group[replica] = f"g{self.groups}"
            self._do(replica, "begin")

    @rule(seconds=st.sampled_from([0.01, 0.2, 3.0, 30.0]))
    def waits(self, seconds: float) -> None:
        """Time passes."""
        self.world.advance(seconds)

    @rule(replica=st.sampled_from(REPLICAS))
    def goes_away(self, replica: str) -> None:
        """All links of a replica go down."""
        self._switch(replica, down=True)

    @precondition(lambda self: bool(self.cut))
    @rule(replica=st.sampled_from(REPLICAS))
    def comes_back(self, replica: str) -> None:
        """They come up again."""
        self._switch(replica, down=False)

    def _switch(self, replica: str, *, down: bool) -> None:
        if (replica in self.cut) == down:
            return
        (self.cut.add if down else self.cut.remove)(replica)
        for a, b in self.world.links:
            other = b if a == replica else a
            if replica in (a, b) and (other == SERVER or other not in self.cut):
                (self.world.cut if down else self.world.mend)(a, b)

    def teardown(self) -> None:
        """Quiescence: the promises."""
        for replica in list(self.group):
            self._do(replica, "end", group=self.group.pop(replica))
        outcome = self.world.settle()
        broken = {name: outcome.counts[name] for name in self.promises if outcome.counts[name] != 0}
        assert not broken, f"{type(self.protocol).__name__} broke its promises: {broken}"
