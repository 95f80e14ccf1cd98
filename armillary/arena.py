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
import fnmatch
import importlib
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

from armillary import extras
from armillary.case import Case
from armillary.claim import Claim, Exponent, Gain, Kind, Level, Parity, Wins
from armillary.errors import InputError, unknown
from armillary.outcome import QUANTILES, Artifact, NotForThisCase, Outcome, ValueKind
from armillary.parameters import Parameter, canonical, parameter, parameters, with_parameters
from armillary.reading import Reading
from armillary.result import Result
from armillary.streams import stream

if TYPE_CHECKING:
    import numpy as np

    from armillary.cluster import Cluster

__all__ = [
    "QUANTILES", "Arena", "Artifact", "Case", "Claim", "Constant", "Exponent", "Gain", "InputError", "Kind", "Level", "Metric",
    "NotForThisCase", "Outcome", "Parity", "Result", "Technique", "ValueKind", "Wins", "canonical", "parameter", "parameters",
    "with_parameters",
]  # fmt: skip

F = TypeVar("F", bound=Callable[..., Any])

SCALES = ("tiny", "small", "large")
NAME = re.compile(r"[a-z0-9][a-z0-9._+-]*")


@dataclass(frozen=True)
class Metric:
    """One figure that a run gives, what it is in, which way is better, and how it came to be.

    `kind="by case"` leaves that to the case, which then carries "measured" or "simulated" among its kinds. `scale="difference"`
    compares by subtraction (accuracies, shares, dB) rather than by ratio. `on` limits the metric to cases that carry all these
    kinds. `better=None` is a figure to look at, never compared. `unbounded` allows infinities. `steady` marks
    a measured value that does not depend on how busy the machine is: a count, a ratio of sizes, an error.
    `clocked` marks a modelled value that rests on seconds measured here, and so varies from run to run: a price times seconds.
    """

    name: str
    unit: str = ""
    better: Literal["lower", "higher"] | None = "lower"
    kind: ValueKind | Literal["by case"] = "simulated"
    scale: Literal["ratio", "difference"] = "ratio"
    on: frozenset[str] = frozenset()
    unbounded: bool = False
    steady: bool = False
    clocked: bool = False
    doc: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "on", frozenset(self.on))

    def kind_on(self, case: Case) -> ValueKind:
        """How this metric's value on `case` came to be."""
        if self.kind != "by case":
            return self.kind
        return "measured" if "measured" in case.kinds else "simulated"

    def needs_quiet(self, case: Case) -> bool:
        """Whether the value on `case` depends on what else this machine does, so that the unit must have it to itself."""
        return self.clocked or self.kind_on(case) == "measured"

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

    @classmethod
    def claims_with(cls, settings: Mapping[str, str]) -> tuple[Claim, ...]:
        """The claims of a variant of the technique with these parameters; those of the class unless it says otherwise."""
        return cls.claims

    def validate(self) -> None:
        """Raises InputError when the parameters do not go together; single ranges are checked without it."""


class Arena:
    """One question, with its metrics, its work and its techniques.

    `path` is `field/arena`. `techniques` maps a name to `module:Class`, relative to the arena's package, or to a variant of a class,
    `module:Class(parameter=value)`. `papers` says which
    techniques are published systems (a key of papers.toml). `baseline` is what plots compare with, `tradeoff` the two metrics of
    the Pareto plot. `warmup` asks for one unmeasured run per technique and case, so that compilation is not timed; `repeats` replaces
    the study's default; `requires` are cluster fields without which a case cannot run. `telling` are names or patterns of the few cases
    that `compare` runs unless it is told otherwise, chosen so that it answers within a minute on two cores; all when there are none.
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
        warmup: bool = False,
        repeats: int | None = None,
        requires: Iterable[str] = (),
        constants: Iterable[Constant] = (),
        telling: Iterable[str] = (),
    ) -> None:
        self.path = path
        self.field, _, self.name = path.partition("/")
        self.question = question
        self.metrics = {metric.name: metric for metric in metrics}
        self.techniques = dict(techniques)
        self.papers = dict(papers or {})
        self.baseline = baseline
        self.tradeoff = tradeoff
        self.warmup = warmup
        self.repeats = repeats
        self.requires = frozenset(requires)
        self.constants = tuple(constants)
        self.telling = tuple(telling)
        #: Technique classes, from their first use on.
        self._classes: dict[str, type[Technique]] = {}
        #: Set by the decorators below.
        self._cases: Callable[..., Iterable[Case]] | None = None
        self._run: Callable[[Any, Case], Mapping[str, float] | Outcome | NotForThisCase] | None = None
        self._reading: Reading | None = None
        self._example: Callable[[Path], Any] | None = None
        self._plots: Callable[..., Sequence[Any]] | None = None
        self._answer: Callable[..., str] | None = None
        self._warm_up: Callable[[Any, Case], Any] | None = None
        #: (technique with its parameters, kinds of case) that were warmed up in this process.
        self._warm: set[tuple[str, frozenset[str]]] = set()

    def cases(self, make: F) -> F:
        """Decorates `cases(scale)` or `cases(scale, cluster)`: the built-in work."""
        self._cases = make
        return make

    def run(self, run: F) -> F:
        """Decorates `run(technique, case)`: one technique on one case, to its metrics."""
        self._run = run
        return run

    def read(self, options: type, *, folders: bool = False, work_option: str = "") -> Callable[[F], F]:
        """Decorates `read(path, options)`: what is in a user's file, checked. It is called once for each content.

        `options` is a frozen dataclass of `parameter(...)` fields, which are the command line's options for `--work`. With `folders`
        the user may name a folder too. The file that the option `work_option` names is the work where `--work` is not given.
        """

        def decorate(read: F) -> F:
            self._reading = Reading(self.path, read, options, folders, work_option)
            return read

        return decorate

    def own_cases(self, make: F) -> F:
        """Decorates `own_cases(loaded, name, options)`: the cases in what `read` returned. Without it there is one, named after the file.

        A case's workload is what was read, unless its `make(case, rng)` makes another one out of `case.loaded`.
        """
        if self._reading is None:
            raise TypeError(f"arena {self.path}: own_cases needs a reader; decorate `read` first")
        self._reading.make_cases = make
        return make

    def example(self, write: F) -> F:
        """Decorates `example(folder)`: writes a small file of the user's kind; returns its path, or (path, options)."""
        self._example = write
        return write

    def warm_up(self, warm_up: F) -> F:
        """Decorates `warm_up(technique, case)`: a little of the same work, done once per technique and kind of case before the first run.

        For compiled loops, so that the clock sees the work alone; cheaper than `warmup`, which runs the whole unit twice.
        """
        self._warm_up = warm_up
        return warm_up

    def plots(self, plots: F) -> F:
        """Decorates `plots(result)`: the arena's own Plotly figures for the report."""
        self._plots = plots
        return plots

    def answer(self, answer: F) -> F:
        """Decorates `answer(result)`: the answer in a sentence that a person would use, instead of the general one."""
        self._answer = answer
        return answer

    @property
    def package(self) -> str:
        """The Python package that the arena stands in."""
        return self.module.rpartition(".")[0]

    @property
    def module(self) -> str:
        """The module in which the arena's run function stands."""
        if self._run is None:
            raise TypeError(f"arena {self.path} has no run function")
        return self._run.__module__

    def target(self, name: str) -> str:
        """Where a technique's class stands, as `package.module:Class`."""
        place = self.techniques[name].partition("(")[0]
        return f"{self.package}{place}" if place.startswith(".") else place

    def variant(self, name: str) -> dict[str, str]:
        """The parameters that make a technique a variant of its class: `.cfseq:CFseq(compressor=gzip-6)`; empty for most."""
        settings = self.techniques[name].partition("(")[2].removesuffix(")")
        return dict(item.split("=", 1) for item in settings.split(",")) if settings else {}

    def join(self, found: type[Technique]) -> str:
        """The name of a technique's class, which joins the arena under its own name if it is new: for classes made in a notebook."""
        target = f"{found.__module__}:{found.__qualname__}"
        for name in self.techniques:
            if target == self.target(name):
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
            module, _, attribute = self.target(name).partition(":")
            self._classes[name] = getattr(importlib.import_module(module), attribute)
        return self._classes[name]

    def make(self, name: str, values: Mapping[str, Any] | None = None) -> Technique:
        """A technique with these parameters, checked."""
        return with_parameters(self.technique(name), {**self.variant(name), **(values or {})}, where=name)

    def claims_of(self, name: str) -> tuple[Claim, ...]:
        """What the paper says of one technique."""
        return self.technique(name).claims_with(self.variant(name))

    def claims(self, techniques: Iterable[str] | None = None) -> Iterator[tuple[str, str, Claim]]:
        """The claims of these techniques, or of all, as (claim id, technique, claim)."""
        for name in self.techniques if techniques is None else techniques:
            for number, claim in enumerate(self.claims_of(name), start=1):
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

    def telling_cases(self, scale: str = "small") -> list[str] | None:
        """The names of the built-in cases that `compare` runs by default at this scale, or None for all: the tiny scale is small enough."""
        if not self.telling or scale == "tiny":
            return None
        names = [case.name for case in self.built_in(scale)]
        return [name for name in names if any(fnmatch.fnmatchcase(name, pattern) for pattern in self.telling)] or None

    def options(self) -> dict[str, Parameter]:
        """The options that this arena's reader takes, by name."""
        return {} if self._reading is None else parameters(self._reading.options)

    def work_among(self, options: dict[str, str]) -> Path:
        """Takes the file that stands for the work out of the options, where the reader has such an option and it is given."""
        name = "" if self._reading is None else self._reading.work_option
        if name not in options:
            raise InputError(f"--{next(iter(options))} says how to read a file; give one with --work")
        if not Path(options[name]).exists():
            raise InputError("found no such file; without --work this option names the file to read", where=f"--{name} {options[name]}")
        return Path(options.pop(name))

    def own_files(self, path: Path, options: Mapping[str, Any] | None = None) -> tuple[Path, ...]:
        """Every file that the cases of a user's file depend on: the file itself and those that its options name."""
        return self._reader().files(path, self._reader().checked(options))

    def absolute(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Options of the reader as given, with absolute files."""
        return dict(options) if self._reading is None else self._reading.absolute(options)

    def from_file(self, path: Path, options: Mapping[str, Any] | None = None) -> list[Case]:
        """The cases in a user's file. It is read here, so that what is wrong with it is said before anything runs."""
        return self._reader().cases(path, self._reader().checked(options))

    def write_example(self, folder: Path) -> tuple[Path, dict[str, str]]:
        """Writes a small file of the kind that this arena reads; returns its path and the options to read it with."""
        if self._example is None:
            raise InputError(f"{self.path} has no example of a user's file")
        written = self._example(folder)
        return written if isinstance(written, tuple) else (written, {})

    def _reader(self) -> Reading:
        if self._reading is None:
            raise InputError(f"{self.path} reads no files; its cases are built in")
        return self._reading

    def execute(self, technique: Technique, case: Case) -> Outcome | NotForThisCase:
        """One technique on one case; metrics are not checked here."""
        if self._run is None:
            raise TypeError(f"arena {self.path} has no run function")
        if technique.takes and not technique.takes & case.kinds:
            return NotForThisCase(f"takes {', '.join(sorted(technique.takes))} cases")
        try:
            self._warmed(technique, case)
            outcome = self._run(technique, case)
        except NotForThisCase as declined:
            return declined
        except extras.MissingPackage as missing:
            return NotForThisCase(str(missing))
        except ModuleNotFoundError as error:
            if not extras.optional(error.name):
                raise
            return NotForThisCase(str(extras.missing(error.name or "")))
        return outcome if isinstance(outcome, Outcome | NotForThisCase) else Outcome(outcome)

    def _warmed(self, technique: Technique, case: Case) -> None:
        key = (f"{type(technique).__qualname__} {canonical(technique)}", case.kinds)
        if self._warm_up is not None and key not in self._warm:
            self._warm.add(key)
            # A twin's stream, so that the unit's own draws do not depend on whether it was the first of its kind in the process.
            self._warm_up(technique.with_rng(stream(0, "warm-up", type(technique).__name__)), case)

    def __repr__(self) -> str:
        return f"Arena({self.path!r}, {len(self.techniques)} techniques)"
