"""What an arena's own answer and plots may ask of a study's result.

A protocol of the contract, so that no arena imports the floor above it, not even for types: `armillary.study.Result` keeps it.

    @tiers.answer
    def answer(result: Result) -> str:
        for case in result.cases:
            ranked = result.on(case, "mean_latency")           # technique to value, best first
            best, *others = ranked

    @tiers.plots
    def plots(result: Result) -> Sequence[Any]:
        by_load = lambda case, facts: (facts["parameters"]["model"], facts["parameters"]["rho"])
        return result.panels("Latency by load", "mean_latency", by_load, x="offered load", y="s")
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Protocol

#: Where a case is drawn: the panel it belongs to and its place on the x axis (a number or a name), or None to leave it out.
Place = Callable[[str, Mapping[str, Any]], tuple[str, float | str] | None]
#: Panel to technique to (x, y) points, as `armillary.figures.panels` draws them.
Lines = dict[str, dict[str, list[tuple[float | str, float]]]]


class Result(Protocol):
    """Techniques × cases with their metrics; values are medians over repeats."""

    @property
    def techniques(self) -> Mapping[str, Mapping[str, Any]]:
        """The techniques that were run, with their parameters."""
        ...

    @property
    def cases(self) -> Mapping[str, Mapping[str, Any]]:
        """The cases, each with its `kinds` and `parameters`."""
        ...

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics that were asked for."""
        ...

    def medians(self, technique: str, metric: str) -> dict[str, float]:
        """Case to the technique's median; empty where it has none."""
        ...

    def on(self, case: str, metric: str, *, without: Collection[str] = ()) -> dict[str, float]:
        """Technique to its median on one case, the best first; without those that have no value there or are named in `without`."""
        ...

    def best(self, case: str, metric: str, *, without: Collection[str] = ()) -> str | None:
        """The first technique of `on`, or None."""
        ...

    def second(self, case: str, metric: str, *, without: Collection[str] = ()) -> str | None:
        """The second technique of `on`, or None."""
        ...

    def ratio(self, case: str, metric: str, technique: str, over: str) -> float | None:
        """How many times better `technique` is than `over` on a case: above 1 is better. None where one has no positive value."""
        ...

    def artifact_rows(self, technique: str, case: str, name: str) -> list[dict[str, Any]]:
        """The rows of the table artifact `name` that a technique left on a case; empty where it left none."""
        ...

    def first_places(self, metric: str) -> dict[str, int]:
        """Technique to the number of cases on which it is the best, most first; those that are never the best are left out."""
        ...

    def lines(self, metric: str, place: Place | None = None, *, techniques: Iterable[str] | None = None) -> Lines:
        """Values as lines over a parameter. Without `place`: one panel, the cases' names on the x axis."""
        ...

    def panels(
        self, title: str, metric: str, place: Place | None = None, *, x: str = "", y: str = "", log_x: bool = False, log_y: bool = False,
        least_points: int = 1, columns: int = 3,
    ) -> list[Any]:  # fmt: skip
        """`lines` as one figure in a list, or an empty list where no line has `least_points` points. `y` is the metric's unit if empty."""
        ...
