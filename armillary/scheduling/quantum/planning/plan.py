"""`plan`: a schedule for jobs of one's own, by the estimates of a strategy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from armillary.errors import InputError
from armillary.scheduling.quantum.circuits.circuit import Circuit
from armillary.scheduling.quantum.network.network import Network
from armillary.scheduling.quantum.simulation.batch import Job
from armillary.scheduling.quantum.simulation.play import play
from armillary.scheduling.quantum.simulation.schedule import Schedule

from .strategy import Strategy


def plan(
    jobs: Sequence[Job | Circuit], network: Network | str = "qpu-6", technique: str | Strategy = "epr-nodes", **parameters: Any
) -> Schedule:
    """When and where each job runs, if it takes the time that is expected of it alone.

    jobs: jobs, or circuits of 1,000 shots that are all there at once. network: or the name of a cluster. technique: its name, with its
    parameters as keywords, or the strategy itself.
    """
    from armillary.scheduling.quantum.arena import quantum

    made = quantum.make(technique, parameters) if isinstance(technique, str) else technique
    if not isinstance(made, Strategy):
        raise InputError(f"found a {type(made).__name__}; expected a strategy of scheduling/quantum", where="technique")
    batch = [Job(one.name, one) if isinstance(one, Circuit) else one for one in jobs]
    return play(batch, Network.of(network) if isinstance(network, str) else network, made, clock="planned")
