"""JAX on the ports of the built-in kernels, in a process of its own."""

from __future__ import annotations

import functools
from pathlib import Path

from armillary import extras
from armillary.arena import NotForThisCase

from ..kernels.catalogue import KERNELS
from ..workload import Problem
from .changes import changes
from .measured import Measured
from .peer_process import Peer

_peer = Peer("armillary.training.autodiff.running.jax_child")
_HERE = Path(__file__).parents[1]


@functools.cache
def changed(kernel: str, style: str) -> int:
    """The statements that a port changes or adds."""
    function = KERNELS[kernel].function
    file = function.__module__.rpartition(".")[2] + ".py"
    return changes(_HERE / "kernels" / file, _HERE / "ports" / style / file, function.__name__)


def measure(problem: Problem, style: str) -> Measured:
    """The gradient of a port: `statements` or `scans`."""
    extras.need("jax")
    if problem.kernel is None:
        raise NotForThisCase("only the built-in kernels have a port")
    function = KERNELS[problem.kernel].function
    module = f"armillary.training.autodiff.ports.{style}.{function.__module__.rpartition('.')[2]}"
    return _peer.measure(problem, {"module": module, "function": function.__name__}, changed(problem.kernel, style))
