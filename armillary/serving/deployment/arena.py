"""How does one GenAI service run on Kubernetes, under Slurm or on this machine from one description, and does it answer?"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from armillary.arena import Arena, Case, Metric, NotForThisCase, Result, parameter
from armillary.errors import InputError

if TYPE_CHECKING:
    import numpy as np

    from .by_hand import ByHand
    from .description.service import Service
    from .rendering.target import Target

_RENDERED = frozenset({"rendered"})
_RUNS = frozenset({"runs"})


def _share(name: str, on: frozenset[str], doc: str) -> Metric:
    return Metric(name, better="higher", kind="measured", steady=True, scale="difference", on=on, doc=doc)


deployment = Arena(
    "serving/deployment",
    question="How do I run this GenAI service on Kubernetes, under Slurm or on this machine, from one description, and does it answer?",
    metrics=[
        _share("valid", _RENDERED, "share of the checks on the files that passed"),
        _share("honoured", _RENDERED, "share of the settings that were found in the files"),
        Metric("author_lines", unit="lines", better="lower", kind="measured", steady=True, on=_RENDERED, doc="lines that a person writes"),
        _share("portable", _RENDERED, "number of targets whose files hold every setting"),
        _share("answers", _RUNS, "share of the smoke test's checks that passed"),
        Metric("ready_s", unit="s", better="lower", kind="measured", on=_RUNS, doc="from the start until /health answers 200"),
        Metric("first_token_s", unit="s", better="lower", kind="measured", on=_RUNS, doc="median time to the first token, under the load"),
        Metric("requests_per_s", unit="1/s", better="higher", kind="measured", on=_RUNS, doc="under the load, all requests sent at once"),
    ],
    techniques={
        "converged": ".converged:Converged",
        "kubernetes": ".kubernetes:Kubernetes",
        "helm": ".helm:Helm",
        "slurm-apptainer": ".slurm_apptainer:SlurmApptainer",
        "slurm-podman": ".slurm_podman:SlurmPodman",
        "flux": ".flux:Flux",
        "compose": ".compose:Compose",
        "bare": ".bare:Bare",
        "by-hand": ".by_hand:ByHand",
    },
    papers={"converged": "converged-genai"},
    baseline="by-hand",
    repeats=2,
    telling=("tiny", "llama-3.1-8b-1gpu", "llama-3.1-405b-4x4", "rag", "tiny-started"),
)

SERVICES = ("tiny", "llama-3.1-8b-1gpu", "llama-3.1-70b-4gpu", "llama-3.1-405b-4x4", "rag")
#: The services that are started, each with its model and the options of the engine.
STARTED = {
    "tiny-started": ("tiny-llama", {}),
    "experts-started": ("tiny-moe", {}),
    "single-precision-started": ("tiny-llama", {"dtype": "float32", "max-seqs": 32}),
    "queueing-started": ("tiny-llama", {"max-seqs": 4}),
}
#: The number of requests that load a running service, by scale.
REQUESTS = {"tiny": 4, "small": 48, "large": 256}
#: The cases of the tiny scale.
TINY = frozenset({"tiny", "tiny-started"})


@dataclass(frozen=True)
class Described:
    """A service, and how many lines a person wrote to describe it."""

    service: Service
    lines: int


@deployment.cases
def cases(scale: str) -> Iterator[Case]:
    """Yields five services to render and four forms of the tiny service to start; the tiny scale has fewer."""
    yield from (case for case in _cases(scale) if scale != "tiny" or case.name in TINY)


def _cases(scale: str) -> Iterator[Case]:
    for name in SERVICES:
        yield Case(name, _make, {"service": name}, frozenset({"rendered", name}))
    for name, (model, options) in STARTED.items():
        parameters = {"service": "tiny", "model": model, "engine_args": options, "requests": REQUESTS[scale]}
        yield Case(name, _make_variant, parameters, frozenset({"runs"}))


@dataclass(frozen=True)
class Reading:
    """How a description is tested."""

    start: bool = parameter(False, "whether the service is started here too, and asked whether it answers")


@deployment.read(Reading)
def read(path: Path, how: Reading) -> Described:
    """Returns a description: TOML, YAML, JSON, Compose, or a text with a `vllm serve` or `docker run` line."""
    from .by_hand import written_lines
    from .description.files import read as load
    from .description.files import text_of

    try:
        return Described(load(path), written_lines(text_of(path)[1]))
    except InputError as error:
        first, *more = error.faults
        raise InputError(f"{first} (`armillary deploy show` lists {len(more)} more faults)" if more else first) from None


@deployment.own_cases
def own_cases(described: Described, name: str, how: Reading) -> Iterator[Case]:
    """Yields the description to render and, if asked for, to start."""
    yield Case(name, kinds=frozenset({"rendered", "file"}))
    if how.start:
        yield Case(f"{name}-started", parameters={"requests": REQUESTS["small"]}, kinds=frozenset({"runs", "file"}))


@deployment.example
def example(folder: Path) -> Path:
    """Returns a model on one GPU, as a `vllm serve` line."""
    file = folder / "serve.sh"
    file.write_text("vllm serve meta-llama/Llama-3.1-8B-Instruct --tensor-parallel-size 1 --max-model-len 8192\n")
    return file


def _make(case: Case, rng: np.random.Generator) -> Described:
    from .by_hand import written_lines
    from .description.files import read, text_of

    name = case.parameters["service"]
    return Described(read(name), written_lines(text_of(name)[1]))


def _make_variant(case: Case, rng: np.random.Generator) -> Described:
    from .description.service import Service

    described = _make(case, rng)
    content = described.service.model_dump(mode="json")
    content["model"]["id"], content["engine_args"] = case.parameters["model"], dict(case.parameters["engine_args"])
    return Described(Service.parse(content, case.name), described.lines)


@deployment.run
def run(target: Target, case: Case) -> dict[str, float] | NotForThisCase:
    """Renders and checks the files, or starts the service and asks it."""
    from .rendering.targets import TARGETS

    described: Described = case.workload
    one = target.platform if target.platform in TARGETS else None
    names = [one] if one else list(TARGETS)
    if "runs" in case.kinds:
        return _started(case, names, target.platform)
    if target.platform == "by-hand":
        return _by_hand(target, described.service)  # type: ignore[arg-type]
    if one is None and target.platform != "converged":
        return NotForThisCase("not a target that comes with the package")
    return _figures([case.once(_judged, name) for name in names], described.lines)


def _figures(found: Sequence[tuple[float, float]], lines: int) -> dict[str, float]:
    """Returns the arena's figures of (share of checks passed, share of settings found) on some targets."""
    valid, held = ([pair[i] for pair in found] for i in (0, 1))
    return {
        "valid": sum(valid) / len(valid), "honoured": sum(held) / len(held), "author_lines": float(lines),
        "portable": float(held.count(1.0)),
    }  # fmt: skip


def _judged(case: Case, name: str) -> tuple[float, float]:
    """Returns (share of checks passed, share of settings found) of one target."""
    from .checking import checks
    from .checking import read_back as settings

    service = case.workload.service
    files = service.render(name)
    return checks.share(checks.check(files, name)), settings.share(settings.honoured(service, files, name))


def _by_hand(target: ByHand, service: Service) -> dict[str, float]:
    from .by_hand import written_lines
    from .checking import checks
    from .checking import read_back as settings

    examples = target.examples(service)
    found = [
        (checks.share(checks.check(files, name, rendered=False)), settings.share(settings.honoured(service, files, name)))
        for name, files in examples.items()
    ]
    return _figures(found, sum(written_lines(text) for files in examples.values() for text in files.values()))


def _started(case: Case, targets: list[str], platform: str) -> dict[str, float] | NotForThisCase:
    """Starts the service on each of these targets that this machine has; returns the worst of their answers, times and rates."""
    from .launching.start import why_not

    if platform == "by-hand":
        return NotForThisCase("the examples serve to count lines; they would install an engine of their own")
    service = case.workload.service
    there = [name for name in targets if why_not(name, service) is None]
    if not there:
        return NotForThisCase(why_not(targets[0], service) or "")
    # Not `case.once`: what is measured must be measured anew for each technique.
    answers, ready, first, rate = zip(*(_asked(case, name) for name in there), strict=True)
    return {"answers": min(answers), "ready_s": max(ready), "first_token_s": max(first), "requests_per_s": min(rate)}


def _asked(case: Case, name: str) -> tuple[float, float, float, float]:
    """Starts one target; returns (share of checks passed, seconds until ready, seconds to the first token, requests per second)."""
    from .checking.benchmark import Load, bench
    from .checking.smoke_test import smoke
    from .endpoint.server import key_from
    from .launching.start import running

    service = case.workload.service
    key = key_from("ARMILLARY_API_KEY", None) if service.api_key is not None else None
    with tempfile.TemporaryDirectory() as folder, running(service, name, Path(folder)) as up:
        found = smoke(up.url, key=key)
        record = bench(up.url, Load(case.parameters["requests"], float("inf"), 64, 32), key=key)
    share = sum(c.passed for c in found.checks) / len(found.checks)
    return share, up.ready_s, record.get("median_ttft_ms", float("inf")) / 1e3, record["request_throughput"]


@deployment.answer
def answer(result: Result) -> str:
    """Returns what one description gives, compared with files written by hand."""
    if "converged" not in result.techniques:
        return "Add the technique converged to compare one description with files for each platform."
    found = {metric: result.medians("converged", metric) for metric in ("valid", "honoured", "author_lines", "ready_s", "answers")}
    hand = result.medians("by-hand", "author_lines") if "by-hand" in result.techniques else {}
    said = []
    if found["valid"]:
        lines = sorted({f"{n:.0f}" for n in found["author_lines"].values()}, key=int)
        line = f"One description of {' to '.join(dict.fromkeys((lines[0], lines[-1])))} lines gives the files of seven platforms"
        line += f", which take {max(hand.values()):.0f} lines by hand" if hand else ""
        whole = [sum(v == 1 for v in found[metric].values()) for metric in ("valid", "honoured")]
        said.append(f"{line}; {whole[0]} of {len(found['valid'])} services pass every check and {whole[1]} hold every setting.")
    if found["ready_s"]:
        passed = min(found["answers"].values())
        right = "passed every check" if passed == 1 else f"passed {passed:.0%} of the checks"
        said.append(f"Started on this machine, it was ready after {max(found['ready_s'].values()):.1f} s and {right} of the smoke test.")
    return " ".join(said) or "No target was rendered."
