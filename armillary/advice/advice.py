"""What `advise` found, in order: a table, JSON, and one HTML page."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armillary.advice.finding import Finding
from armillary.advice.questions import FILE, NEARNESS, UNREAD, NotAsked
from armillary.advice.together import Together
from armillary.errors import InputError
from armillary.study.verdicts import ENOUGH_CASES
from armillary.wording import counted, listed

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True)
class Answered:
    """One finding with where its values come from and what it takes to use the technique."""

    finding: Finding
    #: "your file", "your machine" or "built-in work".
    near: str
    #: "run now", or "recorded 2026-11-16".
    source: str
    adopt: str
    assumes: str

    @property
    def order(self) -> tuple[Any, ...]:
        """Sure gains first, then the nearest work, then ratios before differences, which have no common scale; then by the low end."""
        f = self.finding
        low = f.low if math.isfinite(f.low) else f.gain
        return (not f.sure, NEARNESS.index(self.near), not f.ratio, -low, f.arena, f.metric)

    def json(self) -> dict[str, Any]:
        """As plain data."""
        return {**self.finding.json(), "near": self.near, "source": self.source, "adopt": self.adopt, "assumes": self.assumes}


@dataclass(frozen=True)
class Advice:
    """Which techniques would change most, which of today's may stay, and what could not be judged."""

    cluster: str
    work: tuple[str, ...]
    seed: int
    seconds: float
    answers: tuple[Answered, ...]
    not_judged: tuple[NotAsked, ...]
    #: Pairs of the best techniques of two arenas that one simulator holds.
    together: tuple[Together, ...] = ()

    @property
    def changes(self) -> list[Answered]:
        """The gains that are sure, and those seen on the asker's own file, most first."""
        own = [a for a in self.answers if a.near == FILE and a.finding.helps]
        sure = [a for a in self.answers if a.finding.sure]
        return sorted({id(a): a for a in [*own, *sure]}.values(), key=lambda a: a.order)

    @property
    def unsure(self) -> list[Answered]:
        """Where something looks better than today's technique, and the cases do not settle it."""
        settled = {id(a) for a in self.changes}
        return sorted((a for a in self.answers if a.finding.helps and id(a) not in settled), key=lambda a: a.order)

    @property
    def stays(self) -> list[Answered]:
        """Where nothing is better than what people do today."""
        return sorted((a for a in self.answers if not a.finding.helps), key=lambda a: a.order)

    def answer(self) -> str:
        """The advice in two or three sentences."""
        first = self.changes[:3]
        if not first:
            said = "Nothing that could be judged is surely better than what is done today."
        else:
            said = f"On {self.cluster}, {listed([in_words(a.finding) for a in first], 4)}."
        rest = [
            f"{counted(len(self.unsure), 'more gain')} {'is' if len(self.unsure) == 1 else 'are'} not sure" if self.unsure else "",
            f"nothing is better than today's technique in {counted(len(self.stays), 'question')}" if self.stays else "",
            f"{counted(len(self.not_judged), 'arena')} could not be judged" if self.not_judged else "",
        ]
        return " ".join(filter(None, [said, f"Besides, {'; '.join(filter(None, rest))}." if any(rest) else ""]))

    @property
    def told(self) -> tuple[NotAsked, ...]:
        """The arenas that could not be judged, without those that do not read the asker's files, which are most."""
        return tuple(n for n in self.not_judged if not n.reason.startswith(UNREAD))

    def table(self) -> pl.DataFrame:
        """Every answer, in order, as a Polars table."""
        import polars as pl

        rows = [
            {**{k: v for k, v in a.json().items() if isinstance(v, str | int | float | bool | None)}, "costs": "; ".join(a.finding.costs)}
            for a in [*self.changes, *self.unsure, *self.stays]
        ]
        return pl.DataFrame(rows, infer_schema_length=None)

    def json(self) -> dict[str, Any]:
        """As plain data."""
        parts = {"changes": self.changes, "unsure": self.unsure, "stays": self.stays}
        return {
            "cluster": self.cluster, "work": list(self.work), "seed": self.seed, "answer": self.answer(),
            **{name: [a.json() for a in answers] for name, answers in parts.items()}, "together": [t.json() for t in self.together],
            "not_judged": [asdict(n) for n in self.not_judged],
        }  # fmt: skip

    def write(self, path: str | Path) -> Path:
        """Writes HTML, JSON or CSV, by the file's ending."""
        path = Path(path)
        if path.suffix == ".json":
            text = json.dumps(self.json(), indent=1)
        elif path.suffix == ".csv":
            text = self.table().write_csv()
        elif path.suffix == ".html":
            from armillary.advice.page import render

            text = render(self)
        else:
            raise InputError(f'found "{path.suffix}"; expected .html, .json or .csv', where=str(path))
        part = path.with_name(f"{path.name}.part")
        part.write_text(text, encoding="utf-8")
        part.replace(path)
        return path


def in_words(finding: Finding) -> str:
    """A finding as part of a sentence."""
    return f"{finding.technique} gives {gain(finding)} over {finding.today} in {finding.metric} ({finding.arena})"


def gain(finding: Finding) -> str:
    """The gain as a person says it: `1.5 times` or `+0.03`."""
    return f"{finding.gain:.3g} times" if finding.ratio else f"{finding.gain:+.3g}"


def spread(finding: Finding) -> str:
    """The gain's interval; fewer than four cases tell too little for one."""
    if finding.cases < ENOUGH_CASES:
        return "too few cases"
    if not (math.isfinite(finding.low) and math.isfinite(finding.high)) or finding.low == finding.high:
        return "–"
    return f"{finding.low:.3g} to {finding.high:.3g}"


def on_what(answered: Answered) -> str:
    """The work, how many cases, and on how many it is worse."""
    worse = f", worse on {answered.finding.worse_on}" if answered.finding.worse_on else ""
    return f"{answered.near}, {counted(answered.finding.cases, 'case')}{worse}"


def sections(advice: Advice) -> Sequence[tuple[str, str, list[Answered]]]:
    """(title, what it holds, answers) of the parts that are not empty."""
    found = [
        ("What would change most", "Gains that are sure, or that were seen on your own file.", advice.changes),
        (
            "What may be better",
            "The interval reaches no gain, or there are fewer than four cases.",
            advice.unsure,
        ),
        ("What may stay as it is", "No technique that answers all the work is better than today's.", advice.stays),
    ]
    return [part for part in found if part[2]]
