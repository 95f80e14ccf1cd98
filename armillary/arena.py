"""The contract between a question and its answers.

An *arena* is one question, the work on which its answers are compared, and the metrics. A *technique* is one answer: a frozen
dataclass whose fields are its parameters. A *case* is one piece of work. The arena's `run` function puts one technique to one case
and returns its metrics. Nothing here knows how studies are run, stored or judged, and nothing is loaded before it is used.

    eviction = Arena("storage/eviction", question="…", metrics=[Metric("miss_ratio", better="lower", kind="simulated")],
                     techniques={"lru": ".lru:Lru"})

    @eviction.cases
    def cases(scale): return [Case("zipf-1.0", make=zipf, parameters={"alpha": 1.0}, kinds={"skewed"})]

    @eviction.run
    def run(technique, case): return {"miss_ratio": technique.simulate(case.workload).miss_ratio}
"""

from __future__ import annotations

import copy
import functools
import hashlib
import importlib
import inspect
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from armillary.claim import Claim, Exponent, Gain, Kind, Level, Parity, Wins
from armillary.errors import InputError, unknown
from armillary.parameters import canonical, canonical_json, check, parameters, with_parameters
from armillary.streams import seed32, stream

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from armillary.cluster import Cluster

__all__ = [
    "Arena", "Artifact", "Case", "Claim", "Constant", "Exponent", "Gain", "InputError", "Kind", "Level", "Metric", "NotForThisCase",
    "Outcome", "Parity", "Technique", "Wins", "canonical", "parameters", "with_parameters",
]  # fmt: skip

ValueKind = Literal["measured", "simulated", "modelled"]
SCALES = ("tiny", "small", "large")
NAME = re.compile(r"[a-z0-9][a-z0-9._+-]*")


@dataclass(frozen=True)
class Metric:
    """One figure that a run gives, what it is in, which way is better, and how it came to be.

    `kind="by case"` leaves that to the case, which then carries "measured" or "simulated" among its kinds. `scale="difference"`
    compares by subtraction (accuracies, shares, dB) rather than by ratio. `on` limits the metric to cases that carry all these
    kinds. `better=None` is a figure to look at, never compared. `unbounded` allows infinities. `steady` says of something measured
    that a busy machine does not change it: a count, a ratio of sizes, an error.
    """

    name: str
    unit: str = ""
    better: Literal["lower", "higher"] | None = "lower"
    kind: ValueKind | Literal["by case"] = "simulated"
    scale: Literal["ratio", "difference"] = "ratio"
    on: frozenset[str] = frozenset()
    unbounded: bool = False
    steady: bool = False
    doc: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "on", frozenset(self.on))

    def kind_on(self, case: Case) -> ValueKind:
        """How this metric's value on `case` came to be."""
        if self.kind != "by case":
            return self.kind
        return "measured" if "measured" in case.kinds else "simulated"

    def applies(self, case: Case) -> bool:
        """Whether a run on `case` must give this metric."""
        return self.on <= case.kinds


@dataclass(frozen=True)
class Constant:
    """A number that a model rests on, with its source; the report's method section lists them."""

    name: str
    value: float | str
    unit: str
    source: str


#: The media type of `Artifact.quantiles`.
QUANTILES = "application/vnd.armillary.quantiles+json"


@dataclass(frozen=True)
class Artifact:
    """Bytes that a run leaves beside its metrics (a timeline, an array): at most 16 MiB, never a pickle.

    The report offers every artifact for download, draws those that `quantiles` made as distributions, and a `timeline.json` (trace
    events, as Perfetto and Chrome read them) as a timeline.
    """

    name: str
    media: str
    data: bytes

    @classmethod
    def quantiles(cls, of: str, values: npt.ArrayLike, unit: str = "") -> Artifact:
        """The distribution of `values` in 201 quantiles, the ends included; `of` says what they are: "latency"."""
        import numpy as np

        found = np.quantile(np.asarray(values, float), np.linspace(0, 1, 201)) if np.size(values) else np.empty(0)
        said = {"of": of, "unit": unit, "count": int(np.size(values)), "quantiles": [float(f"{v:.6g}") for v in found]}
        return cls(f"{of}.quantiles.json", QUANTILES, json.dumps(said, separators=(",", ":")).encode())


@dataclass(frozen=True)
class Outcome:
    """What `run` may return instead of a plain mapping: metrics, artifacts, and whether its own rounds were too far apart to trust."""

    values: Mapping[str, float]
    artifacts: Sequence[Artifact] = ()
    noisy: bool = False


class NotForThisCase(Exception):
    """The technique declines the case, with the reason; raised or returned. Shown as declined, never as a zero."""


class Technique:
    """One answer to an arena's question. Subclasses are frozen dataclasses; the fields are the parameters."""

    #: What the paper says, to be judged.
    claims: ClassVar[tuple[Claim, ...]] = ()
    #: The kinds of case that it takes; a case without any of them is declined. Empty: every case.
    takes: ClassVar[frozenset[str]] = frozenset()
    #: Whether it sees the future: listed apart, never a claim's baseline.
    oracle: ClassVar[bool] = False

    @property
    def rng(self) -> np.random.Generator:
        """The technique's own random stream: the unit's inside a study, a fixed one outside."""
        own: np.random.Generator | None = self.__dict__.get("_rng")
        if own is None:
            own = stream(0, "unit", type(self).__name__)
            self.__dict__["_rng"] = own
        return own

    def with_rng(self, rng: np.random.Generator) -> Technique:
        """A copy that draws from `rng`."""
        twin = copy.copy(self)
        twin.__dict__["_rng"] = rng
        return twin

    def validate(self) -> None:
        """Raises InputError when the parameters do not go together; single ranges are checked without it."""


@dataclass(frozen=True)
class Case:
    """One piece of work: what to do it on, how to make it, and what kind it is.

    `make(case, rng)` builds the workload; it must depend on the case and `rng` alone. A case from a user's file names the file in
    `source`, and its bytes are part of the digest. `seed` and `repeat` are set by the study.
    """

    name: str
    make: Callable[[Case, np.random.Generator], Any] = field(compare=False)
    parameters: Mapping[str, Any] = field(default_factory=dict)
    kinds: frozenset[str] = frozenset()
    cluster: Cluster | None = None
    source: Path | None = None
    seed: int = 0
    repeat: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "kinds", frozenset(self.kinds))
        if "|" in self.name or not self.name or not self.name.isprintable():
            raise InputError(f'case name "{self.name}": expected printable characters without "|"')

    def at(self, seed: int, repeat: int) -> Case:
        """The same work, drawn for this study seed and repeat."""
        return replace(self, seed=seed, repeat=repeat)

    def stream(self, *names: str) -> np.random.Generator:
        """A stream of the work's random numbers; it does not know the technique, so every technique meets the same."""
        return stream(self.seed, "case", self.name, str(self.repeat), *names)

    @functools.cached_property
    def rng(self) -> np.random.Generator:
        """The work's random numbers while it is run: equal for every technique on this case and repeat."""
        return self.stream()

    def seed32(self, name: str) -> int:
        """An integer seed for a library that takes one, from the work's stream."""
        return seed32(self.seed, "case", self.name, str(self.repeat), name)

    @property
    def workload(self) -> Any:
        """The work itself, made once for techniques that run one after another; nobody may change it."""
        return _made(self)

    @functools.cached_property
    def digest(self) -> str:
        """Hex SHA-256 over everything that defines the case: generator and parameters, kinds, cluster, the file's bytes."""
        what = {
            "name": self.name,
            "make": f"{self.make.__module__}:{self.make.__qualname__}",
            "parameters": dict(self.parameters),
            "kinds": sorted(self.kinds),
            "cluster": None if self.cluster is None else self.cluster.digest,
            "file": None if self.source is None else _file_digest(self.source, self.source.stat().st_mtime_ns),
        }
        return hashlib.sha256(canonical_json(what).encode()).hexdigest()


class Arena:
    """One question, with its metrics, its work and its techniques.

    `path` is `field/arena`. `techniques` maps a name to `module:Class`, relative to the arena's package. `papers` says which
    techniques are published systems (a key of papers.toml). `baseline` is what plots compare with, `tradeoff` the two metrics of
    the Pareto plot. `uses` names the packages beyond the arena's own folder whose change makes stored results stale. `warmup` asks
    for one unmeasured run per technique and case (compilation); `repeats` replaces the study's default; `requires` are cluster
    fields without which a case cannot run.
    """

    def __init__(
        self,
        path: str,
        *,
        question: str,
        metrics: Iterable[Metric],
        techniques: Mapping[str, str],
        papers: Mapping[str, str] | None = None,
        baseline: str | None = None,
        tradeoff: tuple[str, str] | None = None,
        uses: Iterable[str] = (),
        warmup: bool = False,
        repeats: int | None = None,
        requires: Iterable[str] = (),
        constants: Iterable[Constant] = (),
    ) -> None:
        self.path = path
        self.field, _, self.name = path.partition("/")
        self.question = question
        self.metrics = {metric.name: metric for metric in metrics}
        self.techniques = dict(techniques)
        self.papers = dict(papers or {})
        self.baseline = baseline
        self.tradeoff = tradeoff
        self.uses = tuple(uses)
        self.warmup = warmup
        self.repeats = repeats
        self.requires = frozenset(requires)
        self.constants = tuple(constants)
        #: Technique classes, from their first use on.
        self._classes: dict[str, type[Technique]] = {}
        #: Set by the decorators below.
        self._cases: Callable[..., Iterable[Case]] | None = None
        self._run: Callable[[Any, Case], Mapping[str, float] | Outcome | NotForThisCase] | None = None
        self._read: Callable[..., Iterable[Case]] | None = None
        self._plots: Callable[..., Sequence[Any]] | None = None
        self._answer: Callable[..., str] | None = None

    def cases(self, make: Callable[..., Iterable[Case]]) -> Callable[..., Iterable[Case]]:
        """Decorates `cases(scale)` or `cases(scale, cluster)`: the built-in work."""
        self._cases = make
        return make

    def run(self, run: Callable[[Any, Case], Mapping[str, float] | Outcome | NotForThisCase]) -> Callable[..., Any]:
        """Decorates `run(technique, case)`: one technique on one case, to its metrics."""
        self._run = run
        return run

    def read(self, read: Callable[..., Iterable[Case]]) -> Callable[..., Iterable[Case]]:
        """Decorates `read(path, *, option=default, …)`: a user's file as cases; the keywords are command-line options."""
        self._read = read
        return read

    def plots(self, plots: Callable[..., Sequence[Any]]) -> Callable[..., Sequence[Any]]:
        """Decorates `plots(result)`: the arena's own Plotly figures for the report."""
        self._plots = plots
        return plots

    def answer(self, answer: Callable[..., str]) -> Callable[..., str]:
        """Decorates `answer(result)`: the answer in a sentence that a person would use, instead of the general one."""
        self._answer = answer
        return answer

    @property
    def package(self) -> str:
        """The Python package that the arena stands in."""
        if self._run is None:
            raise TypeError(f"arena {self.path} has no run function")
        return self._run.__module__.rpartition(".")[0]

    def join(self, found: type[Technique]) -> str:
        """The name of a technique's class, which joins the arena under its own name if it is new: for classes made in a notebook."""
        target = f"{found.__module__}:{found.__qualname__}"
        for name, known in self.techniques.items():
            if target == (f"{self.package}{known}" if known.startswith(".") else known):
                self._classes[name] = found
                return name
        name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", found.__name__).lower().strip("_")
        self.add(name, target)
        self._classes[name] = found
        return name

    def add(self, name: str, target: str) -> None:
        """Adds an outside technique, `package.module:Class`."""
        if not NAME.fullmatch(name):
            raise InputError(f'technique name "{name}" in {self.path}: expected lower-case letters, digits and -')
        if name in self.techniques:
            raise InputError(f'technique "{name}" exists in {self.path} already')
        self.techniques[name] = target

    def technique(self, name: str) -> type[Technique]:
        """The class of a technique, loaded now."""
        if name not in self.techniques:
            raise unknown("technique", name, self.techniques, where=self.path)
        if name not in self._classes:
            module, _, attribute = self.techniques[name].partition(":")
            self._classes[name] = getattr(importlib.import_module(module, self.package), attribute)
        return self._classes[name]

    def make(self, name: str, values: Mapping[str, Any] | None = None) -> Technique:
        """A technique with these parameters, checked."""
        return with_parameters(self.technique(name), values or {}, where=name)

    def claims(self, techniques: Iterable[str] | None = None) -> Iterator[tuple[str, str, Claim]]:
        """The claims of these techniques, or of all, as (claim id, technique, claim)."""
        for name in self.techniques if techniques is None else techniques:
            for number, claim in enumerate(self.technique(name).claims, start=1):
                yield f"{self.path}/{name}#{number}", name, claim

    def built_in(self, scale: str = "small", cluster: Cluster | None = None) -> list[Case]:
        """The built-in cases at this scale, on this cluster if the arena's work can be put on another one."""
        if scale not in SCALES:
            raise unknown("scale", scale, SCALES)
        if self._cases is None:
            raise InputError(f"{self.path} has no built-in cases; give it a file with --work")
        if cluster is None:
            return list(self._cases(scale))
        if "cluster" not in inspect.signature(self._cases).parameters:
            raise InputError(f"{self.path} does not depend on a cluster; leave --cluster out")
        cluster.require(self.requires)
        return list(self._cases(scale, cluster=cluster))

    def options(self) -> dict[str, inspect.Parameter]:
        """The options that this arena's reader takes, by name."""
        if self._read is None:
            return {}
        return {name: p for name, p in inspect.signature(self._read).parameters.items() if p.kind is p.KEYWORD_ONLY}

    def from_file(self, path: Path, options: Mapping[str, str] | None = None) -> list[Case]:
        """The cases in a user's file."""
        from armillary.parameters import Parameter

        if self._read is None:
            raise InputError(f"{self.path} reads no files; its cases are built in")
        known, types = self.options(), inspect.get_annotations(self._read, eval_str=True)
        checked = {}
        for name, text in (options or {}).items():
            if name not in known:
                raise unknown("option", f"--{name}", [f"--{n}" for n in known], where=self.path)
            checked[name] = check(Parameter(name, types[name], known[name].default, ""), text, where=f"--{name}")
        if not path.exists():
            raise InputError("no such file", where=str(path))
        return list(self._read(path, **checked))

    def execute(self, technique: Technique, case: Case) -> Outcome | NotForThisCase:
        """One technique on one case; metrics are not checked here."""
        if self._run is None:
            raise TypeError(f"arena {self.path} has no run function")
        if technique.takes and not technique.takes & case.kinds:
            return NotForThisCase(f"takes {', '.join(sorted(technique.takes))} cases")
        try:
            outcome = self._run(technique, case)
        except NotForThisCase as declined:
            return declined
        return outcome if isinstance(outcome, Outcome | NotForThisCase) else Outcome(outcome)

    def measures(self, cases: Iterable[Case] = ()) -> bool:
        """Whether any metric is measured on any of these cases, so that units must have the machine to themselves."""
        by_case = any("measured" in case.kinds for case in cases)
        return any(m.kind == "measured" or (m.kind == "by case" and by_case) for m in self.metrics.values())

    def __repr__(self) -> str:
        return f"Arena({self.path!r}, {len(self.techniques)} techniques)"


#: The last workload made in this process: techniques meet the same case one after another.
_LAST_WORKLOAD: list[tuple[tuple[str, int, int], Any]] = []


def _made(case: Case) -> Any:
    key = (case.digest, case.seed, case.repeat)
    if not _LAST_WORKLOAD or _LAST_WORKLOAD[0][0] != key:
        _LAST_WORKLOAD.clear()
        _LAST_WORKLOAD.append((key, case.make(case, case.stream("workload"))))
    return _LAST_WORKLOAD[0][1]


@functools.lru_cache(maxsize=64)
def _file_digest(path: Path, changed_ns: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
