"""What the agent asks of a backend. All of it is called in the agent's loop, and none of it may wait."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from armillary.runtime.pilot.agent.agent import Agent
    from armillary.runtime.pilot.agent.scheduler import Instance
    from armillary.runtime.pilot.agent.task import Live

EXECUTABLE, FUNCTION = 0, 1


class Backend:
    """One instance of a way to start tasks. It calls the agent's `up`, `died`, `launching`, `running`, `done` and `failed`."""

    name: ClassVar[str] = ""
    kinds: ClassVar[frozenset[int]] = frozenset()
    #: Why it died, as the agent noted it.
    died: str = ""

    def start(self, agent: Agent, instance: Instance) -> None:
        """Begins to start; `agent.up(instance)` is called when it can take tasks."""
        raise NotImplementedError

    def launch(self, live: Live) -> None:
        """Starts a task that has its place; gives the place back (`agent.scheduler.release`) when it has ended."""
        raise NotImplementedError

    def flush(self) -> None:
        """Sends what `launch` has collected, after each pass of the scheduler."""

    def lost(self) -> Iterable[Live]:
        """The tasks that it has now, which it forgets."""
        return ()

    def stop(self) -> None:
        """Ends whatever it started."""
