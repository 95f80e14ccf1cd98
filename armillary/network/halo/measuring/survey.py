"""What a table of measurements of all libraries says about strategies: who wins, how often packing wins, and whether libraries agree."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations

from .measured import FOUR, Strategy

#: The ratio to the loop by hand of each strategy, by (application, library, scaling).
Table = Mapping[tuple[str, str, str], Mapping[Strategy, float]]
#: A win must be by this share, and so often, for a strategy to count as a winner.
CLEAR, OFTEN = 0.05, 0.15


def winners(table: Table) -> int:
    """The number of strategies that win at least 15 % of the groups of cells by more than 5 % over the second."""
    wins: dict[Strategy, int] = {}
    for ratios in table.values():
        first, second = sorted(ratios, key=ratios.__getitem__)[:2]
        if ratios[second] > (1 + CLEAR) * ratios[first]:
            wins[first] = wins.get(first, 0) + 1
    return sum(count >= OFTEN * len(table) for count in wins.values())


def packed_wins(table: Table, application: str) -> float:
    """The share of pairs (packed and datatype through the same call) that packing wins."""
    pairs = [
        ratios[Strategy("packed", call)] < ratios[Strategy("datatype", call)]
        for (name, _, _), ratios in table.items()
        if name == application
        for call in FOUR
    ]
    return sum(pairs) / len(pairs)


def image_parts(table: Table) -> tuple[bool, bool, bool]:
    """Whether datatype messages are fastest on MPICH, fastest on Intel MPI, and slower than packed ones on Open MPI, in both scalings."""
    by_library: dict[str, list[Mapping[Strategy, float]]] = {}
    for (name, library, _), ratios in table.items():
        if name == "image":
            by_library.setdefault(library, []).append(ratios)
    datatype, packed = Strategy("datatype", "p2p"), Strategy("packed", "p2p")

    def fastest(library: str) -> bool:
        return all(min(ratios, key=ratios.__getitem__) == datatype for ratios in by_library[library])

    slower = all(ratios[datatype] > ratios[packed] for ratios in by_library["openmpi"])
    return fastest("mpich"), fastest("impi"), slower


def rank_agreement(table: Table, application: str) -> float:
    """The mean of Kendall's tau between the libraries' orders of strategies, over pairs of libraries and scalings."""
    taus = []
    for scaling in sorted({key[2] for key in table}):
        orders = [table[key] for key in sorted(table) if key[0] == application and key[2] == scaling]
        taus += [_tau(a, b) for a, b in combinations(orders, 2)]
    return sum(taus) / len(taus)


def _tau(a: Mapping[Strategy, float], b: Mapping[Strategy, float]) -> float:
    score = pairs = 0
    for x, y in combinations(sorted(a), 2):
        product = (a[x] - a[y]) * (b[x] - b[y])
        score += (product > 0) - (product < 0)
        pairs += 1
    return score / pairs
