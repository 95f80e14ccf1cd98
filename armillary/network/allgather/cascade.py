"""Cascade: a block travels from node to node along a path, together with all others that go the same way.

Nodes stand in a ring, in the order of their distance. In each direction there are k paths: distance m lies on path (m-1) mod k, so that on
every path a node hands on to the same node, k further. A block enters a path only if somebody on it wants the block, is dropped off at
every node that does, and stops at its last taker (pruning). What a node hands on in one direction travels as one message, whatever path it
is on (combining). Inside a node blocks lie in a window that its ranks share: each block comes in once, and its takers copy it from there.
A message has the blocks that travel furthest in front, so that what is handed on next is the beginning of what came, and is not copied.

Cascade: a Collaborative Algorithm for Scalable And Efficient Neighborhood Allgather, IEEE CLUSTER 2025. The abstract gives the idea and
that there is a performance model; the rule of paths, the combining, the order of blocks and the choice of k are our design.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from armillary.arena import Claim, Gain, Kind, Level, Technique, parameter
from armillary.errors import InputError

from .execution.socket import Planned
from .planning.carriers import Carriers
from .planning.paths import candidates, entries, most_paths, price
from .planning.places import laid_out
from .planning.prices import Prices
from .planning.problem import Problem
from .planning.schedule import Schedule

RIVALS = ("direct", "node-aware", "common-neighbour", "distance-halving")
#: Modelled times that differ by less than this share are ties.
TIE = 0.02
_UP_TO = "0.6 to 1.8 of the published figure count as held, because our fabric, protocols and rival are models of the paper's"


def _up_to(figure: float, over: str, kind: str, says: str, metric: str = "time") -> Claim:
    return Claim(
        metric, over=over, by=Gain(ratio=(figure, None)), on=Kind("paper", kind), aggregate="max", says=says, source="abstract",
        honest=(round(0.6 * figure, 3), round(1.8 * figure, 3)), part=1.2, why=_UP_TO, scale="large",
    )  # fmt: skip


@dataclass(frozen=True)
class Cascade(Planned, Technique):
    """Blocks cascade along k paths per direction."""

    paths: int | Literal["auto"] = parameter("auto", "paths per direction, or auto for the number with the least modelled time")
    prune: bool = parameter(True, "whether a block stops at its last taker; otherwise it travels to the end of its path")
    combine: bool = parameter(True, "whether a node hands on one message per direction; otherwise one per path")
    leaders: bool = parameter(True, "whether a node's ranks share its path work; otherwise its first rank does all of it")
    window: bool = parameter(True, "whether the ranks of a node share a window; otherwise blocks reach and leave leaders as messages")

    claims = (
        _up_to(9.54, "direct", "random", "up to 9.54× faster than direct messages on random sparse graphs"),
        _up_to(7.05, "direct", "moore", "up to 7.05× faster than direct messages on Moore neighbourhoods"),
        _up_to(5.25, "direct", "spmm", "up to 5.25× faster than direct messages for sparse times dense matrices", "spmm_time"),
        _up_to(2.57, "distance-halving", "random", "up to 2.57× faster than distance halving on random sparse graphs"),
        _up_to(4.81, "distance-halving", "moore", "up to 4.81× faster than distance halving on Moore neighbourhoods"),
        Claim(
            "time", over=RIVALS, by=Gain(ratio=(1.05, None)), on=Kind("short"), honest=(1.05, None), part=1.0,
            says="faster than the best other technique on blocks of 8 B to 4 KiB", source="ours", why="the level is ours",
        ),
        Claim(
            "no_worse", by=Level(at_least=1.0), on=Kind("stress"), source="ours",
            says="on no case without locality or with rare long blocks more than 5 % slower than direct or node-aware messages",
        ),
    )  # fmt: skip

    def validate(self) -> None:
        """There is at least one path."""
        if self.paths != "auto" and self.paths < 1:
            raise InputError(f"found {self.paths}; expected auto or at least 1", where="paths")

    def schedule(self, problem: Problem, prices: Any = None) -> Schedule:
        """The paths of every block, dealt to the ranks of each node."""
        k, why = self._paths(problem, prices)
        entered = entries(problem, k, self.prune)
        messages = Carriers(problem, entered, k, self.combine, self.leaders).messages(self.window)
        chosen = {"paths": k, "steps": int(entered.last.max(initial=-1)) + 1}
        return laid_out("cascade", problem, messages, self.window, why, chosen)

    def _paths(self, problem: Problem, prices: Prices | None) -> tuple[int, str]:
        most = most_paths(problem.nodes)
        if self.paths != "auto":
            k = min(self.paths, most)
            return k, f"{k} paths per direction, as asked for."
        if prices is None:
            raise InputError("found no cluster; expected one, because the number of paths depends on it", where="cascade.paths")
        times = {k: price(problem, k, prices) for k in candidates(most)}
        # Times that the model hardly tells apart go to more paths, with which less is handed on.
        best = max(k for k in times if times[k] <= (1 + TIE) * min(times.values()))
        said = ", ".join(f"{k}: {1e6 * seconds:.1f}" for k, seconds in times.items())
        what = " (nothing is handed on)" if best == most else ""
        return best, f"{best} paths per direction{what}; modelled us by number of paths: {said}."
