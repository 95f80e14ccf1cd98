"""What a schedule promises: the busiest lane of each pass and of the update, without any waiting."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from armillary.training.offload.simulation.machine import STATE_BYTES
from armillary.training.offload.simulation.schedule import GPU, IN, NVME, OUT, READ, WRITE, Schedule

if TYPE_CHECKING:
    from armillary.training.offload.workload import OffloadWork


def promise(work: OffloadWork, schedule: Schedule) -> float:
    """Seconds of the last iteration: forward and backward each take as long as their busiest lane, and so does the update.

    It knows the planned seconds of operations, the bytes of all moves and the rates of the links, and nothing about waiting.
    """
    machine, moves, last = work.machine, schedule.moves, work.iterations - 1
    ops = work.order.shape[1]
    order = work.order[last]
    mine = moves.slot // (2 * ops) == last
    phase = work.phase[order][(moves.slot[mine] // 2) % ops]
    kind, size = moves.kind[mine], work.size[moves.tensor[mine]]
    alloc, total = moves.alloc_s[mine], 0.0
    for one in (0, 1):
        here = phase == one
        lanes = [float(size[here & (kind == what)].sum()) / rate if rate else 0.0 for what, rate in (
            (IN, machine.pcie), (OUT, machine.pcie), (READ, machine.nvme_read), (WRITE, machine.nvme_write),
        )]  # fmt: skip
        if one == 1:
            lanes[1] += work.total_bytes / machine.pcie  # The gradients.
        total += max(*lanes, float(alloc[here].sum()), float(work.planned[work.phase == one].sum()))
    states = STATE_BYTES * float(work.elements[schedule.streamed].sum())
    home = schedule.home[last]
    back = float(work.size[home == GPU].sum()) / machine.pcie
    reads = states / machine.nvme_read if states else 0.0
    spilled = float(work.size[home == NVME].sum())
    writes = (states + spilled) / machine.nvme_write if states + spilled else 0.0
    return total + max(float(np.sum(work.update_s)), back, reads, writes)
