"""A captured time step: PyTorch records all that a step queues on its streams, and then launches the whole as one graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from armillary import extras

from .streams import COMPUTE, Call

if TYPE_CHECKING:
    from .ladder import Rung

#: Steps before the capture, in which libraries allocate and compile what they need.
_WARM = 3


def captured(rung: Rung, calls: Sequence[Call]) -> Callable[[], None]:
    """Return one launch of a graph of these calls; if the capture fails, the calls one by one, and `rung.fault` says why.

    The steps before the capture are real, so the fields are put back afterwards. A capture itself computes nothing.
    """
    torch = extras.need("torch")
    streams: Any = rung.streams

    def step() -> None:
        for function, arguments in calls:
            function(*arguments)

    kept = {name: field.clone() for name, field in {**rung.whole, "clock": rung.clock}.items()}
    compute = streams.streams[COMPUTE]
    compute.wait_stream(torch.cuda.current_stream())
    with streams.on(COMPUTE):
        for _ in range(_WARM):
            step()
    streams.synchronise()
    for name, value in kept.items():
        (rung.clock if name == "clock" else rung.whole[name]).copy_(value)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph, stream=compute):
            step()
    except RuntimeError as error:
        rung.fault = f"the step could not be captured: {error}".splitlines()[0]
        return step
    replay: Callable[[], None] = graph.replay
    return replay
