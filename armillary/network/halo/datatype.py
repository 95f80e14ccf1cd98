"""MPI derived datatypes: the strided halo is described once, and the library moves it.

A column of a row-major array is a vector with the row length as its stride; any side of any array is a subarray. With the datatype the
array itself is the buffer of the call, and the program copies nothing. Whether the library is quicker at it than a loop depends on
program, call and library, so all of them are measured on the machine at hand.

Do MPI Derived Datatypes Actually Help? A Single-Node Cross-Implementation Study on Shared-Memory Communication, arXiv 2511.13804, 2025.
The split of two ranks into two halves with a strided border, the stamps, and the fallback where a library swaps halos are our design.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from armillary.arena import Claim, Gain, Kind, Level, parameter

from .exchanging import CALLS, Exchanging
from .measuring.measured import Strategy

PACKED = ("packed", "packed-persistent", "packed-neighbourhood", "packed-neighbourhood-persistent", "packed-partitioned")
_OTHERS = "other versions of the libraries and other processors may turn it"


@dataclass(frozen=True)
class Datatype(Exchanging):
    """Halos by derived datatypes through one of MPI's calls."""

    call: str = parameter("p2p", "the call of MPI", choices=CALLS[:-1])
    describe: str = parameter("subarray", "how a block is described: one subarray, or nested vectors", choices=("subarray", "vector"))
    corners: str = parameter("auto", "corners as messages of their own, or axis by axis", choices=("auto", "phases"))

    takes: ClassVar[frozenset[str]] = frozenset({"exchange", "survey"})
    claims: ClassVar[tuple[Claim, ...]] = (
        Claim(
            "winners", by=Level(at_least=2.0), on=Kind("survey"), source="abstract",
            says="no strategy dominates across programs, calls and libraries",
        ),
        Claim(
            "packed_wins", by=Level(at_least=0.6), on=Kind("survey"), says="packing is mostly ahead for the flow solver",
            honest=(0.6, None), why=f"the abstract gives no share; mostly is read as three in five, and {_OTHERS}", source="abstract",
        ),
        Claim(
            "image_parts", by=Level(at_least=1.0), on=Kind("survey"), source="abstract",
            says="for the image, datatype messages are fastest on MPICH and on Intel MPI, and slower than packed ones on Open MPI",
        ),
        Claim(
            "rank_agreement", by=Level(at_most=0.5), on=Kind("survey"), honest=(None, 0.5), source="abstract",
            why="the abstract says that rankings change between libraries; a Kendall tau below 0.5 is read as that",
            says="libraries rank the strategies for Life differently",
        ),
        Claim(
            "exchange_ratio", over=("datatype-neighbourhood", "datatype-persistent"), by=Gain(ratio=(1.0, None)),
            on=Kind("claimed", "mpich"), source="abstract",
            says="on MPICH, datatypes are slower through neighbourhood and through persistent calls than through messages",
        ),
        Claim(
            "exchange_ratio", over=PACKED, by=Gain(ratio=(1.0, None)), on=Kind("claimed"), source="ours",
            says="quicker than the best packed exchange through any call",
        ),
        Claim(
            "exchange_ratio", over="packed", by=Gain(ratio=(0.95, None)), on=Kind("claimed", "life"), source="ours",
            says="no more than 5 % slower than packed messages where elements are single bytes, which suits a library least",
        ),
    )  # fmt: skip

    @classmethod
    def claims_with(cls, settings: Mapping[str, str]) -> tuple[Claim, ...]:
        """The claims are made of messages; the other calls are the rivals."""
        return () if settings.get("call", "p2p") != "p2p" else cls.claims

    def strategy(self) -> Strategy:
        """What the ranks are asked to do."""
        return Strategy("datatype", self.call, describe=self.describe, corners=self.corners)
