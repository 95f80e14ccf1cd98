"""One GenAI service: how does it run on Kubernetes, under Slurm, or on this machine, from one description, and does it answer?"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armillary.arena import Arena, Case, Metric, NotForThisCase

if TYPE_CHECKING:
    import numpy as np

    from armillary.study import Result

    from .service import Service
    from .target import Target

_RENDERED = frozenset({"rendered"})
_RUNS = frozenset({"runs"})

deployment = Arena(
    "serving/deployment",
    question="How do I run this GenAI service on Kubernetes, under Slurm or on this machine, from one description, and does it answer?",
    metrics=[
        Metric(
            "valid",
            better="higher",
            kind="measured",
            steady=True,
            scale="difference",
            on=_RENDERED,
            doc="share of the checks on the files that passed",
        ),
        Metric(
            "honoured",
            better="higher",
            kind="measured",
            steady=True,
            scale="difference",
            on=_RENDERED,
            doc="share of the settings found in the files",
        ),
        Metric(
            "author_lines",
            unit="lines",
            better="lower",
            kind="measured",
            steady=True,
            on=_RENDERED,
            doc="what a person writes for these targets",
        ),
        Metric(
            "portable",
            better="higher",
            kind="measured",
            steady=True,
            scale="difference",
            on=_RENDERED,
            doc="targets whose files hold every setting",
        ),
        Metric(
            "answers",
            better="higher",
            kind="measured",
            steady=True,
            scale="difference",
            on=_RUNS,
            doc="share of the smoke test's checks that passed",
        ),
        Metric("ready_s", unit="s", better="lower", kind="measured", on=_RUNS, doc="from the start to /health 200"),
        Metric("first_token_s", unit="s", better="lower", kind="measured", on=_RUNS, doc="median, under the load"),
        Metric("requests_per_s", unit="1/s", better="higher", kind="measured", on=_RUNS, doc="under the load, all sent at once"),
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
    uses=("armillary.llm",),
    repeats=2,
)

SERVICES = ("tiny", "llama-3.1-8b-1gpu", "llama-3.1-70b-4gpu", "llama-3.1-405b-4x4", "rag")
#: What is started: a model and options of the engine.
STARTED = {
    "tiny-started": ("tiny-llama", {}),
    "experts-started": ("tiny-moe", {}),
    "single-precision-started": ("tiny-llama", {"dtype": "float32", "max-seqs": 32}),
}
#: Requests of the load on a running service, by scale.
REQUESTS = {"tiny": 8, "small": 48, "large": 256}


@deployment.cases
def cases(scale: str) -> Iterator[Case]:
    """Five services to render, and the one that runs anywhere to start, in three forms."""
    for name in SERVICES:
        yield Case(name, _make, {"service": name}, frozenset({"rendered", name}))
    for name, (model, options) in STARTED.items():
        parameters = {"service": "tiny", "model": model, "engine_args": options, "requests": REQUESTS[scale]}
        yield Case(name, _make_variant, parameters, frozenset({"runs"}))


@deployment.read
def read(path: Path, *, start: bool = False) -> Iterator[Case]:
    """Your own description (TOML, YAML, JSON, Compose, a `vllm serve` or `docker run` line); `--start true` starts it too."""
    from .description_files import read as load

    load(path)
    yield Case(path.name, _load, {"service": str(path)}, frozenset({"rendered", "file"}), source=path)
    if start:
        yield Case(f"{path.name}-started", _load, {"service": str(path), "requests": 48}, frozenset({"runs", "file"}), source=path)


def _make(case: Case, rng: np.random.Generator) -> Service:
    from .description_files import read as load

    return load(case.parameters["service"])


def _make_variant(case: Case, rng: np.random.Generator) -> Service:
    from .service import Service

    content = _make(case, rng).model_dump(mode="json")
    content["model"]["id"], content["engine_args"] = case.parameters["model"], dict(case.parameters["engine_args"])
    return Service.parse(content, case.name)


def _load(case: Case, rng: np.random.Generator) -> Service:
    from .description_files import read as load

    assert case.source is not None
    return load(case.source)


@deployment.run
def run(target: Target, case: Case) -> dict[str, float] | NotForThisCase:
    """Renders and checks, or starts and asks."""
    from .targets import TARGETS

    service = case.workload
    one = target.platform if target.platform in TARGETS else None
    if "runs" in case.kinds:
        return _started(service, [one] if one else list(TARGETS), case.parameters["requests"], target.platform)
    if target.platform == "by-hand":
        return _by_hand(target, service)
    if one is None and target.platform != "converged":
        return NotForThisCase("not a target that comes with the package")
    names = [one] if one else list(TARGETS)
    found = [_judged(service, name) for name in names]
    return {
        "valid": sum(f[0] for f in found) / len(found),
        "honoured": sum(f[1] for f in found) / len(found),
        "author_lines": float(_description_lines(case)),
        "portable": float(sum(f[1] == 1.0 for f in found)),
    }


#: (share of checks passed, share of settings found) by description and target: rendering is deterministic, so once is enough.
_JUDGED: dict[tuple[str, str], tuple[float, float]] = {}


def _judged(service: Service, name: str) -> tuple[float, float]:
    from . import checks
    from . import read_back as settings

    key = (service.digest, name)
    if key not in _JUDGED:
        files = service.render(name)
        _JUDGED[key] = (checks.share(checks.check(files, name)), settings.share(settings.honoured(service, files, name)))
    return _JUDGED[key]


def _by_hand(target: Any, service: Service) -> dict[str, float]:
    from . import checks
    from . import read_back as settings
    from .by_hand import written_lines

    examples: dict[str, dict[str, str]] = target.examples(service)
    valid = [checks.share(checks.check(files, name, rendered=False)) for name, files in examples.items()]
    held = [settings.share(settings.honoured(service, files, name)) for name, files in examples.items()]
    lines = sum(written_lines(text) for files in examples.values() for text in files.values())
    return {
        "valid": sum(valid) / len(valid),
        "honoured": sum(held) / len(held),
        "author_lines": float(lines),
        "portable": float(held.count(1.0)),
    }


def _description_lines(case: Case) -> int:
    from .by_hand import written_lines
    from .description_files import text_of

    return written_lines(text_of(case.source if case.source is not None else case.parameters["service"])[1])


def _started(service: Service, targets: list[str], requests: int, platform: str) -> dict[str, float] | NotForThisCase:
    """The service on every one of these targets that is here: the worst of their answers, times and rates."""
    from .benchmark import Load, bench
    from .server import key_from
    from .smoke_test import smoke
    from .start import running, why_not

    if platform == "by-hand":
        return NotForThisCase("examples for counting lines; they install an engine of their own")
    there = [name for name in targets if why_not(name, service) is None]
    if not there:
        return NotForThisCase(why_not(targets[0], service) or "")
    out: list[tuple[float, float, float, float]] = []
    key = key_from("ARMILLARY_API_KEY", None) if service.api_key is not None else None
    for name in there:
        with tempfile.TemporaryDirectory() as folder, running(service, name, Path(folder)) as up:
            found = smoke(up.url, key=key)
            record = bench(up.url, Load(requests, float("inf"), 64, 32), key=key)
            share = sum(c.passed for c in found.checks) / len(found.checks)
            out.append((share, up.ready_s, record.get("median_ttft_ms", float("inf")) / 1e3, record["request_throughput"]))
    return {
        "answers": min(o[0] for o in out), "ready_s": max(o[1] for o in out), "first_token_s": max(o[2] for o in out),
        "requests_per_s": min(o[3] for o in out),
    }  # fmt: skip


@deployment.answer
def answer(result: Result) -> str:
    """What one description gives, against by hand."""
    said = []
    if "converged" in result.techniques:
        valid, held = result.medians("converged", "valid"), result.medians("converged", "honoured")
        lines, hand = (
            result.medians("converged", "author_lines"),
            result.medians("by-hand", "author_lines") if "by-hand" in result.techniques else {},
        )
        if valid:
            said.append(f"One description of {min(lines.values()):.0f} to {max(lines.values()):.0f} lines gives seven platforms")
            said[-1] += f" ({max(hand.values()):.0f} lines by hand)" if hand else ""
            said[-1] += f"; {sum(v == 1 for v in valid.values())} of {len(valid)} services pass every check,"
            said[-1] += f" {sum(v == 1 for v in held.values())} hold every setting; measured."
        ready = result.medians("converged", "ready_s")
        if ready:
            said.append(f"What runs here was ready after {max(ready.values()):.1f} s and answered.")
    return " ".join(said) or "No target was rendered."
