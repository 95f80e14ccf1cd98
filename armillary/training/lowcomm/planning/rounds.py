"""How long rounds should be: long ones save traffic and cost quality, and the bandwidth decides which of the two costs more time.

`explored` trains once per length of rounds. Everything else is computed from these runs: the front of traffic and loss, and for any
network and any loss the length with which training reaches that loss first. This is our design; the papers take H as given.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ..cost.wall_clock import Network
from ..ddp import Ddp
from ..diloco import Diloco
from ..workers.scheme import Synchronised
from ..workers.trained import Trained, trained
from ..workload import Training


@dataclass(frozen=True)
class Choice:
    """One length of rounds (0 is data parallelism), its traffic per worker in bytes and its loss at the end."""

    every: int
    run: Trained

    @property
    def comm_bytes(self) -> int:
        """Payload per worker."""
        return self.run.comm_bytes

    @property
    def val_loss(self) -> float:
        """Nats per token after pretraining."""
        return self.run.val_loss("pretrain")

    def seconds_to(self, loss: float, network: Network) -> float | None:
        """Modelled seconds until the shared weights reach a validation loss, between evaluations by a straight line; None if never."""
        stage = self.run.stages[0]
        per_step = replace(self.run, work=replace(self.run.work, network=network), stages=(stage,)).wall_clock_s / stage["steps"]
        before: tuple[int, float] | None = None
        for step, now in stage["curve"]:
            if now <= loss:
                if before is None or before[1] <= now:
                    return float(step * per_step)
                return float((before[0] + (step - before[0]) * (before[1] - loss) / (before[1] - now)) * per_step)
            before = (step, now)
        return None


def explored(work: Training, lengths: Sequence[int] = (10, 30, 100), technique: Synchronised | None = None) -> list[Choice]:
    """Train the work with data parallelism and with rounds of each length (DiLoCo's unless another technique is given).

    All choices make the same inner steps, so the quickest one that was measured stands for all, and no choice wins by a quiet moment.
    """
    made = technique or Diloco()
    runs = [trained(Ddp(), work), *(trained(made, replace(work, sizes=replace(work.sizes, every=every))) for every in lengths)]
    quickest = {name: min(run.stages[0][name] for run in runs) for name in ("step_s", "backward_s")}
    alike = [replace(run, stages=({**run.stages[0], **quickest}, *run.stages[1:])) for run in runs]
    return [Choice(every, run) for every, run in zip((0, *lengths), alike)]


def front(choices: Iterable[Choice]) -> list[Choice]:
    """The choices that no other one beats in both traffic and loss, the least traffic first."""
    found: list[Choice] = []
    for choice in sorted(choices, key=lambda one: (one.comm_bytes, one.val_loss)):
        if not found or choice.val_loss < found[-1].val_loss:
            found.append(choice)
    return found


def fastest(choices: Iterable[Choice], loss: float, network: Network) -> tuple[Choice, float] | None:
    """The choice that reaches a loss first over a network, with its modelled seconds; None if no choice reaches it."""
    reached = [(seconds, one) for one in choices if (seconds := one.seconds_to(loss, network)) is not None]
    if not reached:
        return None
    seconds, best = min(reached, key=lambda pair: pair[0])
    return best, seconds
