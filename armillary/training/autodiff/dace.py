"""DaCe itself, by the authors: the backward pass of its dataflow graphs, every forwarded value stored.

The pre-release 2.0.0b1 has `dace.autodiff.add_backward_pass` without the integer program. A C++ compiler makes the code, in a few seconds
per kernel. It gets the kernels with loops, because it multiplies large matrices without BLAS here; what its own front end refuses is
declined with its words. In a process of its own. DaCe AD, IEEE CLUSTER 2025.
"""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass

from armillary.arena import NotForThisCase, Technique

from .kernels.catalogue import KERNELS
from .running.measured import Measured
from .running.peer_process import Peer
from .workload import Problem

_peer = Peer("armillary.training.autodiff.running.dace_child")


@dataclass(frozen=True)
class Dace(Technique):
    """The authors' own code, store-all; declines what its front end refuses. DaCe, 2025."""

    takes = frozenset({"dace"})

    def measure(self, problem: Problem) -> Measured:
        """Lets DaCe differentiate the kernel."""
        if importlib.util.find_spec("dace") is None or importlib.util.find_spec("dace.autodiff") is None:
            raise NotForThisCase("DaCe with its autodiff is not here: pip install dace==2.0.0b1, which needs a C++ compiler")
        if problem.kernel is None:
            raise NotForThisCase("only the built-in kernels are made into programs of DaCe")
        if problem.limit is not None:
            raise NotForThisCase("it has no limit of memory")
        function = KERNELS[problem.kernel].function
        file = sys.modules[function.__module__].__file__
        request = {"file": file, "function": function.__name__, "output": problem.output}
        # The decorator, the annotation of every array, and the objective as an output.
        changes = 2 + sum(hasattr(value, "shape") for value in problem.arguments.values())
        return _peer.measure(problem, request, changes)
