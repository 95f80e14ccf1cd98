"""Which calls of CUDA make the host wait for the device, and which give it work."""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt

from ..run.model import CALL, Run

#: Calls that return when the device has done something. A plain cudaMemcpy waits, an asynchronous one does not.
WAITS = re.compile(
    r"cu(da)?(Ctx|Device|Stream|Event|Thread)Synchronize|cudaMemcpy(2D|3D|ToSymbol|FromSymbol|Peer)?(_ptds)?$"
    r"|cuMemcpy[A-Z]?[A-Za-z]*(?<!Async)(_v2)?$|cudaMemset$|cudaFree$|cuMemFree"
)
#: Calls that give the device something to do and return.
LAUNCHES = re.compile(r"cu(da)?(Launch|GraphLaunch|Memcpy\w*Async|Memset\w*Async)")


def waits(run: Run) -> npt.NDArray[np.bool_]:
    """For each call, whether it waits."""
    return _matching(run, WAITS)


def launches(run: Run) -> npt.NDArray[np.bool_]:
    """For each call, whether it launches."""
    return _matching(run, LAUNCHES)


def _matching(run: Run, pattern: re.Pattern[str]) -> npt.NDArray[np.bool_]:
    spans = run.of(CALL)
    return run.named(lambda name: pattern.match(name) is not None)[spans.name] if len(spans) else np.zeros(0, np.bool_)
