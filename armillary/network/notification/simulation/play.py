"""Play a scenario under a policy of progress, and say what it took."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from armillary.network.notification.workload import BURST, BURST_S, CHUNK, CHUNKS, WINDOW, Nic, Scenario

if TYPE_CHECKING:
    from armillary.comm.virtual.progress import Policy
    from armillary.comm.virtual.protocols import Protocol

#: The cluster of the built-in scenarios. Its 64 nodes hold one rank each; more ranks share nodes in turn.
CLUSTER = "bxi2-100"
#: Seconds per byte of a copy, as in the cluster.
_COPY = 1e-10


@dataclass(frozen=True)
class Played:
    """What a scenario took: seconds of the timed part, and what the ranks' cores did in it on average."""

    seconds: float
    iterations: int
    #: The simulated seconds that each rank was told to compute.
    compute_s: float
    #: Shares of a rank's core, averaged over ranks: copying, handling, computing and waiting.
    copying: float
    handling: float
    computing: float
    waiting: float
    #: The share of the core that notification took from the ranks that computed.
    stolen: float
    #: Runs of the handler per rank and iteration.
    runs: float
    timeline: Any = None

    @property
    def iteration_s(self) -> float:
        """Seconds per iteration."""
        return self.seconds / self.iterations


def play(scenario: Scenario, policy: Policy, compute_s: float, *, seed: int = 0, timeline: bool = False) -> Played:
    """Play the scenario with `compute_s` seconds of computing per iteration (for all of it in `burst`)."""
    from armillary import comm
    from armillary.network.notification.simulation.programs import program

    machine: dict[str, Any] = {"cluster": CLUSTER, "placement": [rank % 64 for rank in range(scenario.ranks)]}
    if scenario.nic is not None:
        machine = {"constants": _constants(scenario.nic)}
    how = replace(policy, protocol=_protocols(scenario))
    result = comm.run(
        program, scenario, compute_s, ranks=scenario.ranks, backend="virtual", payload="ghost", seed=seed, progress=how,
        timeline=timeline, **machine,
    )  # fmt: skip
    rows = result.values
    begin, end = min(row[0] for row in rows), max(row[1] for row in rows)
    length = max(end - begin, 1e-300)
    computing = rows[1::2] if scenario.scenario == BURST else rows
    lost = sum(row[6] / max(row[1] - row[0], 1e-300) for row in computing) / len(computing)
    shares = [sum(row[i] for row in rows) / len(rows) / length for i in range(2, 6)]
    iterations = 1 if scenario.trace is not None or scenario.scenario == BURST else scenario.iterations
    runs = sum(row[7] for row in rows) / len(rows) / iterations
    return Played(
        end - begin, iterations, compute_s, shares[0], shares[1], shares[2], shares[3], lost + policy.core_share, runs, result.timeline
    )


def alone(scenario: Scenario) -> float:
    """Return the seconds per iteration that the communication takes without computing, with polling in waits."""
    from armillary.network.notification.poll_in_wait import PollInWait

    return play(scenario, PollInWait().policy(), 0.0).iteration_s


def compute_of(scenario: Scenario, alone_s: float) -> float:
    """Return the seconds that each rank computes per iteration (for all of it in `burst`)."""
    if scenario.trace is not None:
        return scenario.trace.compute_s
    if scenario.scenario == BURST:
        return scenario.compute * BURST_S * scenario.iterations
    return scenario.compute * alone_s


def overlap(played: Played, alone_s: float) -> float:
    """Return the share of the communication that computing hid: 1 - (T_total - T_compute) / T_comm, within 0 and 1."""
    hidden = 1.0 - (played.iteration_s - played.compute_s) / alone_s
    return min(1.0, max(0.0, hidden))


def _constants(nic: Nic) -> Any:
    from armillary.comm import LogGP

    us = 1e-6
    overheads = nic.send_overhead_us * us, nic.receive_overhead_us * us
    return LogGP(nic.latency_us * us, *overheads, byte_gap=1e-9 / nic.bandwidth_gb_s, copy=_COPY)


def _protocols(scenario: Scenario) -> Any:
    from armillary.comm.virtual.protocols import Protocol

    pieces = Protocol("rput-cached", chunk=CHUNK, window=WINDOW)

    def choose(source: int, destination: int, nbytes: int, iteration: int) -> Protocol | str | None:
        if nbytes <= EAGER or source % 64 == destination % 64:
            return None
        return pieces if scenario.scenario == CHUNKS else scenario.protocol

    return choose


#: The bytes of the longest message that is sent without asking, which is that of virtual ranks.
EAGER = 16384
