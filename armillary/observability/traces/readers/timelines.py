"""Timelines of Armillary's own simulations and tasks as a `Run`, so that they can stand beside real traces in Paraver and Perfetto."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..run.model import HOST, NVTX, Process, Run, Spans, Thread

if TYPE_CHECKING:
    from armillary.engine.timeline import Timeline


def run_of_timeline(timeline: Timeline) -> Run:
    """The spans of an `engine.Timeline` (or of `trace.timeline()` of tasks) as ranges; processes of the timeline become nodes."""
    nodes = list(dict.fromkeys(track.process for track in timeline.tracks))
    within: dict[str, int] = {}
    threads = []
    for track in timeline.tracks:
        within[track.process] = within.get(track.process, 0) + 1
        threads.append(Thread(nodes.index(track.process), HOST, within[track.process]))
    spans = timeline.spans
    used, name = np.unique(spans["name"], return_inverse=True)
    start, end = (np.rint(spans[column] * 1e9).astype(np.int64) for column in ("start", "end"))
    many = len(start)
    more = {"domain": np.zeros(many, np.int32), "pushed": np.ones(many, np.bool_), "payload": np.zeros(many, np.int32)}
    one = Spans(start, end, spans["track"].astype(np.int32), name.reshape(-1).astype(np.int32), np.zeros(many, np.uint32), more)
    processes = tuple(Process(node, number, None) for number, node in enumerate(nodes))
    names = tuple(timeline.string(int(number)) for number in used)
    return Run(processes, tuple(threads), names, {NVTX: one.in_order()} if many else {}, where="a timeline")
