"""Two gains together: what an arena's best technique changes is handed to the simulator of another arena, where both best techniques act.

Gains of different arenas are often multiplied, as if they had nothing to do with each other. Where one simulator can hold both, four
runs on the same work tell: neither technique, each alone, and both. HANDED lists the pairs and what is handed over. Other pairs of
arenas share no quantity that one of their simulators takes, so nothing is said about them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import fmean
from typing import Any

from armillary import catalogue
from armillary.advice.finding import Finding
from armillary.advice.questions import Machine
from armillary.arena import Arena, Case, InputError, NotForThisCase
from armillary.streams import stream

#: Gains whose product is this near to what both give together add up, as a share.
NEAR = 0.02
#: More cases than these add nothing but time.
MOST_CASES = 4


@dataclass(frozen=True)
class Handed:
    """What an arena hands to the simulator of another one of its field."""

    first: str
    #: The metric of `first` whose gain is handed over.
    gain_in: str
    second: str
    #: What is handed over, as part of a sentence.
    what: str
    #: The work of `second` as the machine lets both techniques act on it, and that work after the first technique's gain.
    shared: Callable[[Any, Machine], Any]
    changed: Callable[[Any, float], Any]
    #: Cases of `second` that have one of these kinds are left out.
    without: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Together:
    """Ratios over today's techniques on the second arena's work: each technique alone, and both; above 1 is better."""

    first: str
    first_technique: str
    second: str
    second_technique: str
    metric: str
    kind: str
    first_alone: float
    second_alone: float
    both: float
    cases: int
    what: str

    @property
    def share(self) -> float:
        """What both give over the product of what each gives."""
        return self.both / (self.first_alone * self.second_alone)

    def in_words(self) -> str:
        """Whether the gains add up, in a sentence."""
        alone = f"{self.first_alone:.3g} and {self.second_alone:.3g} times alone"
        said = f"{self.first_technique} and {self.second_technique} together give {self.both:.3g} times in {self.metric} ({alone})"
        if abs(self.share - 1) <= NEAR:
            how = "the gains add up"
        elif self.both < max(self.first_alone, self.second_alone) / (1 + NEAR):
            how = "one of them alone gives more"
        else:
            much = "more" if self.share > 1 else "less"
            how = f"that is {abs(self.share - 1):.0%} {much} than the product of the two"
        return f"{said}: {how}"

    def json(self) -> dict[str, Any]:
        """As plain data."""
        return {**asdict(self), "share": self.share, "says": self.in_words()}


def _shorter_computation(work: Any, gain: float) -> Any:
    """An iteration whose computation takes 1/gain of its seconds, and so leaves the network idle for less."""
    return replace(work, spans=work.spans / gain)


def _across_servers(work: Any, machine: Machine) -> Any:
    """The node's tensor-parallel group with the network between the machine's servers in place of the link inside a node."""
    from armillary.llm.cost.device import Fabric

    fabric = Fabric.of_cluster(machine.cluster)[1]
    device = work.node.device
    start = fabric.far_s * max(1.0, math.log2(work.node.gpus)) * 2
    far = replace(device, link_rate=fabric.far_rate / device.calibration.link, calibration=replace(device.calibration, all_reduce_s=start))
    return replace(work, node=replace(work.node, device=far, nvlink=fabric.far_rate))


def _faster_all_reduce(work: Any, gain: float) -> Any:
    """A node whose all-reduces take 1/gain of their seconds, whatever their size."""
    device = work.node.device
    c = replace(device.calibration, all_reduce_s=device.calibration.all_reduce_s / gain)
    return replace(work, node=replace(work.node, device=replace(device, link_rate=device.link_rate * gain, calibration=c)))


HANDED: Sequence[Handed] = (
    Handed(
        "training/pipeline", "step_time_s", "training/checkpoint",
        "the computation between two collectives takes less time by the pipeline's gain, so checkpoints find less idle network",
        lambda work, machine: work, _shorter_computation, frozenset({"measured", "failures"}),
    ),
    Handed(
        "serving/allreduce", "allreduce_us", "serving/resilience",
        "the group of GPUs that loses one spans servers of this machine, and its all-reduces take less time by the gain",
        _across_servers, _faster_all_reduce,
    ),
)  # fmt: skip


def together(
    findings: Iterable[Finding], cases: Callable[[Arena], Sequence[Case]], machine: Machine, seed: int, until: float
) -> list[Together]:
    """Tries every pair of HANDED whose two arenas have something better than today's; ends when the monotonic clock says `until`."""
    helps: dict[tuple[str, str], Finding] = {(f.arena, f.metric): f for f in findings if f.helps and f.ratio}
    found = []
    for handed in HANDED:
        first = helps.get((handed.first, handed.gain_in))
        second = next((f for (arena, _), f in helps.items() if arena == handed.second), None)
        if first is None or second is None or not math.isfinite(first.gain):
            continue
        home = catalogue.arena(handed.second)
        kept = [case.at(seed, 0) for case in cases(home) if not case.kinds & handed.without][:MOST_CASES]
        tried = [one for case in kept if (one := _tried(handed, home, case, first, second, machine, until)) is not None]
        if tried:
            alone_1, alone_2, both = (math.exp(fmean(math.log(ratios[i]) for ratios in tried)) for i in range(3))
            found.append(Together(
                first.arena, first.technique, second.arena, second.technique, second.metric, second.kind, alone_1, alone_2, both,
                len(tried), handed.what,
            ))  # fmt: skip
    return found


def _tried(
    handed: Handed, home: Arena, case: Case, first: Finding, second: Finding, machine: Machine, until: float
) -> tuple[float, float, float] | None:
    """(first alone, second alone, both) over neither; None where one of the four does not answer or the time is over."""
    values: dict[tuple[bool, bool], float] = {}
    for with_first in (False, True):
        for with_second in (False, True):
            if time.monotonic() > until:
                return None
            name = second.technique if with_second else second.today
            value = _value(handed, home, case, name, first.gain if with_first else 1.0, machine, second.metric)
            if value is None or not (math.isfinite(value) and value > 0):
                return None
            values[with_first, with_second] = value
    better_high = home.metrics[second.metric].better == "higher"
    base = values[False, False]
    ratios = {key: (value / base if better_high else base / value) for key, value in values.items()}
    return ratios[True, False], ratios[False, True], ratios[True, True]


def _value(handed: Handed, home: Arena, case: Case, name: str, gain: float, machine: Machine, metric: str) -> float | None:
    def make(changed: Case, rng: Any) -> Any:
        return handed.changed(handed.shared(case.make(case, rng), machine), gain)

    facts: Mapping[str, Any] = {**case.parameters, "together": {"with": handed.first, "gain": gain}}
    technique = home.make(name).with_rng(stream(case.seed, "together", name))
    try:
        outcome = home.execute(technique, replace(case, make=make, parameters=facts))
    except InputError:
        return None
    return None if isinstance(outcome, NotForThisCase) else outcome.values.get(metric)
