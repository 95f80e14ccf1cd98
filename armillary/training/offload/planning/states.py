"""Where Adam's states live: in the host as far as they fit, the rest on the drive."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from armillary.arena import NotForThisCase
from armillary.training.offload.simulation.machine import STATE_BUFFERS, STATE_BYTES

if TYPE_CHECKING:
    from armillary.training.offload.workload import OffloadWork

BoolArray = npt.NDArray[np.bool_]
#: States of tensors with fewer elements stay in the host: one request to the drive would cost more than they save.
SMALL = 100_000


def all_or_nothing(work: OffloadWork) -> tuple[BoolArray, float]:
    """(states that stream, bytes of the host in use): all states in the host if they fit beside the parameters, otherwise all on the drive,
    except those of small tensors.

    The host keeps 2 bytes per parameter for its copy of the parameter, which the gradient overwrites and the update overwrites again.
    """
    need = work.state_bytes + work.total_bytes
    if need <= work.machine.host_bytes:
        return np.zeros(len(work.size), bool), need
    if not work.machine.nvme:
        raise NotForThisCase(f"needs {need / 1e9:.3g} GB of host memory, or a drive")
    streamed = work.elements >= SMALL
    need = work.total_bytes + float(STATE_BYTES * work.elements[~streamed].sum()) + staging_bytes(work, streamed)
    if need > work.machine.host_bytes:
        raise NotForThisCase(f"needs {need / 1e9:.3g} GB of host memory even with all states on the drive")
    return streamed, need


def largest_kept(work: OffloadWork, room: float) -> tuple[BoolArray, float]:
    """(states that stream, bytes of states and their buffers): small states and then the largest ones stay while `room` lasts."""
    states = (STATE_BYTES * work.elements).astype(float)
    if states.sum() <= room:
        return np.zeros(len(states), bool), float(states.sum())
    streamed = work.elements >= SMALL
    held = float(states[~streamed].sum())
    for t in np.argsort(-states, kind="stable"):
        if streamed[t]:
            streamed[t] = False
            if held + states[t] + staging_bytes(work, streamed) > room:
                streamed[t] = True
            else:
                held += states[t]
    return streamed, held + staging_bytes(work, streamed)


def kept_in_host(work: OffloadWork) -> tuple[BoolArray, float]:
    """(states that stream, bytes of the host in use): all parameters, and as many states as the rest of the host holds."""
    streamed, states = largest_kept(work, work.machine.host_bytes - work.total_bytes)
    host = work.total_bytes + states
    if host > work.machine.host_bytes:
        raise NotForThisCase("the host does not hold the parameters beside the buffers of states")
    if streamed.any() and not work.machine.nvme:
        raise NotForThisCase("the host does not hold Adam's states, and there is no drive")
    return streamed, host


def staging_bytes(work: OffloadWork, streamed: BoolArray) -> float:
    """Bytes of the buffers through which states stream, each as large as the largest of them."""
    return float(STATE_BUFFERS * STATE_BYTES * work.elements[streamed].max()) if streamed.any() else 0.0
