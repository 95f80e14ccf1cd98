"""How many GPUs do my adapters need, and which goes where? Which worker takes an image request, and what stays loaded?"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from armillary.arena import Arena, Artifact, Case, Constant, Metric, NotForThisCase, Outcome
from armillary.errors import InputError

if TYPE_CHECKING:
    import numpy as np

    from armillary.study import Result

_MIX, _SERVED, _ROWS = frozenset({"mix"}), frozenset({"served"}), frozenset({"measured-rows"})

adapters = Arena(
    "serving/adapters",
    question="I serve hundreds of adapters: how many GPUs do I need, and which adapter goes where?",
    metrics=[
        Metric("gpus", better="lower", kind="simulated", on=_MIX, doc="its own count, or the least above at which nothing starves"),
        Metric("starved", better="lower", kind="simulated", scale="difference", on=_MIX, doc="share of adapters under 90 %"),
        Metric("token_throughput", unit="tok/s", better="higher", kind="simulated", on=_MIX, doc="prompt and output tokens"),
        Metric("mean_latency", unit="s", better="lower", kind="simulated", on=_SERVED, doc="from arrival to the last token or image"),
        Metric("p50_latency", unit="s", better="lower", kind="simulated", on=_SERVED),
        Metric("p90_latency", unit="s", better="lower", kind="simulated", on=_SERVED),
        Metric("p99_latency", unit="s", better="lower", kind="simulated", on=_SERVED),
        Metric("hit_ratio", better="higher", kind="simulated", scale="difference", on=_SERVED, doc="on the device at the start"),
        Metric("updates_per_h", unit="1/h", better="lower", kind="simulated", on=_SERVED, doc="adapters and base models loaded"),
        Metric("throughput_error", unit="%", better="lower", kind="simulated", scale="difference", on=_ROWS, doc="SMAPE against real vLLM"),
        Metric("tpot_error", unit="%", better="lower", kind="simulated", scale="difference", on=_ROWS, doc="median, against real vLLM"),
        Metric("speedup", unit="x", better="higher", kind="measured", on=_ROWS, doc="the hour of 384 adapters over the twin's seconds"),
        Metric("plan_s", unit="s", better="lower", kind="measured", on=_MIX, doc="the first placement, on this machine; learning apart"),
    ],
    techniques={
        "twin-greedy": ".twin_greedy:TwinGreedy",
        "twin-search": ".twin_search:TwinSearch",
        "round-robin": ".round_robin:RoundRobin",
        "first-fit": ".first_fit:FirstFit",
        "balanced": ".balanced:Balanced",
        "dlora": ".dlora:Dlora",
        "rank-aware": ".rank_aware:RankAware",
        "replicate": ".replicate:Replicate",
        "rock": ".rock:Rock",
        "random": ".random:Random",
        "least-loaded": ".least_loaded:LeastLoaded",
        "affinity": ".affinity:Affinity",
        "lru": ".lru:Lru",
        "lfu": ".lfu:Lfu",
    },
    papers={"twin-greedy": "adapter-digital-twin", "rock": "rock"},
    baseline="round-robin",
    tradeoff=("gpus", "mean_latency"),
    uses=("armillary.llm",),
    repeats=1,
    constants=[
        Constant("iteration", "fitted", "ms", "10 of 74 measured vLLM runs (arXiv 2508.08343): serving/adapters/gpu_engine.py"),
        Constant("starved below", 0.9, "", "of the offered tokens: the criterion of arXiv 2508.08343"),
        Constant("starved by chance", 0.01, "", "share of adapters that may be under it and still count as none; ours"),
        Constant("image workers", "32 A10G, 24 L40S, 8 A100", "", "0.50/0.28/0.20 s a step: ours, after GenTD26's median"),
        Constant("loads", "4.4 and 22.7", "s", "medians of LoRAs and base models in GenTD26; host a tenth, SSD 0.35 of it: ours"),
    ],
)  # fmt: skip

_MANY, _SOME = {"tiny": 48, "small": 384, "large": 1024}, {"tiny": 24, "small": 128, "large": 1024}
#: Mixes: adapters at each scale, requests a second in equal thirds, whether they change, kinds.
MIXES: dict[str, tuple[dict[str, int], tuple[float, float, float], bool, tuple[str, ...]]] = {
    "low-rates": (_MANY, (0.1, 0.05, 0.025), False, ("low-rates",)),
    "low-even": (_MANY, (0.1, 0.1, 0.1), False, ("low-rates",)),
    "low-wide": (_MANY, (0.4, 0.025, 0.00625), False, ("low-rates",)),
    "low-rare": (_MANY, (0.1, 0.0125, 0.003125), False, ("low-rates",)),
    "low-few": (_SOME, (0.4, 0.1, 0.05), False, ("low-rates",)),
    "mixed-rates": (_SOME, (1.6, 0.1, 0.0125), False, ()),
    "high-rates": ({"tiny": 16, "small": 128, "large": 384}, (1.6, 0.8, 0.4), False, ()),
    "unpredictable": (_SOME, (0.8, 0.4, 0.1), True, ("unpredictable",)),
}
#: Iterations that the timeline of a unit keeps.
TIMELINE_SLICES = 20_000
WINDOW_S = {"tiny": 120.0, "small": 600.0, "large": 3600.0}
#: Requests a second for images: 0.7 of what the 64 workers could do without any load.
IMAGE_RATE = 1.88
#: Bursts, the rate's coefficient of variation from ten minutes to ten minutes, LoRAs.
IMAGES = {
    "images-steady": (False, 0.0, 874), "images-bursts": (True, 0.3, 874), "images-bursts-even": (True, 0.0, 874),
    "images-bursts-uneven": (True, 0.5, 874), "images-bursts-few": (True, 0.3, 200), "images-bursts-many": (True, 0.3, 2000),
}  # fmt: skip
IMAGE_WINDOW_S = {"tiny": 400.0, "small": 3600.0, "large": 36000.0}


@adapters.cases
def cases(scale: str) -> Iterator[Case]:
    """Eight mixes of adapters, the measured vLLM rows by slots, and six hours of images."""
    for name, (count, rates, unpredictable, kinds) in MIXES.items():
        facts = {"adapters": count[scale], "rates": list(rates), "window_s": WINDOW_S[scale], "unpredictable": unpredictable}
        yield Case(name, _mix, facts, frozenset({"llm", "mix", "served", *kinds}))
    for low, high in ((8, 8), (16, 16), (32, 32), (64, 64), (128, 192)):
        name = f"vllm-{low}-slots" if low == high else f"vllm-{low}-to-{high}-slots"
        yield Case(name, _rows, {"low": low, "high": high, "most": 2 if scale == "tiny" else 64}, frozenset({"llm", "measured-rows"}))
    for name, (bursts, swing, loras) in IMAGES.items():
        facts = {
            "rate": IMAGE_RATE,
            "window_s": IMAGE_WINDOW_S[scale],
            "bursts": bursts,
            "swing": swing,
            "loras": loras * (5 if scale == "large" else 1),
        }
        yield Case(name, _images, facts, frozenset({"image", "served", "bursts" if bursts else "steady"}))


@adapters.read
def read(
    path: Path,
    *,
    kind: Literal["auto", "table", "requests", "peft", "trace", "images"] = "auto",
    adapters: str = "128",
    zipf: float = 1.0,
    rank: int = 16,
    rate: float = 0.1,
    limit: int = 0,
    window: float = 600.0,
    model: str = "llama-3.1-8b",
    device: str = "h100-64",
) -> Iterator[Case]:
    """Adapters and requests from a file or a folder.

    A table of adapters (`adapter,rank,rate_per_s`), requests that name adapters (`arrival_s,adapter,prompt_tokens,output_tokens`), a folder
    of PEFT adapters, an image trace, or any trace that `armillary.llm` reads: its requests then draw one of `adapters` (a number, or a
    table's file), the k-th k^zipf times less often. `rank` and `rate` are for what the file does not say, `window` the seconds simulated
    where the file has rates and no requests, `limit` the first so many requests.
    """
    how = {"kind": kind, "adapters": adapters, "zipf": zipf, "rank": rank, "rate": rate, "limit": limit, "window": window, "model": model,
           "device": device}  # fmt: skip
    if not 1 <= window <= 1e6 or limit < 0 or not 0 <= rate <= 1e4 or not 0 <= zipf <= 10:
        raise InputError("window, limit, rate, zipf: expected 1 to 1e6 s, 0 or more requests, 0 to 1e4 a second, an exponent of 0 to 10")
    found = _found(path, kind)
    # Read now: what is wrong with the file is said before anything is run or written.
    if found == "images":
        _image_file(path, path.stat().st_mtime_ns)
        yield Case(path.name, _load_images, {**how, "kind": found, "path": str(path)}, frozenset({"image", "served", "file"}), source=path)
        return
    notes = _work(path, _changed(path), found, json.dumps(how, sort_keys=True), 0).notes
    source = path if path.is_file() else path / "rates.csv" if (path / "rates.csv").is_file() else None
    facts = {**how, "kind": found, "path": str(path), "notes": list(notes)}
    yield Case(path.name, _load, facts, frozenset({"llm", "mix", "served", "file"}), source=source)


@adapters.run
def run(technique: Any, case: Case) -> Outcome:
    """A placement put to the simulator, images through the workers, or the twin against measured rows."""
    if "image" in case.kinds:
        return _run_images(technique, case)
    if "measured-rows" in case.kinds:
        return _run_rows(technique, case)
    import numpy as np

    from .serving_run import least_gpus, metrics

    work = case.workload
    found = least_gpus(technique, work)
    table = found.placement.table().write_csv().encode()
    timeline = json.dumps(found.result.perfetto(TIMELINE_SLICES), separators=(",", ":")).encode()
    latency = found.result.e2e
    left = [Artifact("placement.csv", "text/csv", table), Artifact.quantiles("latency", latency[np.isfinite(latency)], "s")]
    left.append(Artifact("timeline.json", "application/json", timeline))
    return Outcome(metrics(found, work), left)


def _run_rows(technique: Any, case: Case) -> Outcome:
    import time

    import numpy as np

    from .measured import rows, split, twin_agreement
    from .twin_greedy import TwinGreedy
    from .twin_search import TwinSearch

    if not isinstance(technique, TwinGreedy) or isinstance(technique, TwinSearch):
        raise NotForThisCase("has no twin of the engine to compare with measured runs")
    model, chosen = case.workload
    low, high = case.parameters["low"], case.parameters["high"]
    held = [row for row in split()[1] if low <= row.slots <= high][: case.parameters["most"]]
    assert not set(held) & set(chosen)
    found = [twin_agreement(row, model) for row in held]
    large = max(rows(), key=lambda r: (r.adapters, r.slots == 32, r.rates[0] == 0.1))
    start = time.perf_counter()
    twin_agreement(large, model)
    seconds = time.perf_counter() - start
    return Outcome(
        {
            "throughput_error": float(np.mean([a.smape for a in found])), "tpot_error": float(np.median([a.tpot_error for a in found])),
            "speedup": 3600.0 / seconds,
        }
    )  # fmt: skip


def _run_images(technique: Any, case: Case) -> Outcome:
    import numpy as np

    from .image_policy import genai_64
    from .image_service import serve

    found = serve(case.workload, technique.policy(), genai_64())
    p50, p90, p99 = (float(x) for x in np.percentile(found.latency_s, (50, 90, 99)))
    return Outcome(
        {
            "mean_latency": float(found.latency_s.mean()), "p50_latency": p50, "p90_latency": p90, "p99_latency": p99,
            "hit_ratio": found.hit_ratio, "updates_per_h": found.updates_per_h,
        },
        [Artifact.quantiles("latency", found.latency_s, "s")],
    )  # fmt: skip


@adapters.answer
def answer(result: Result) -> str:
    """How many GPUs are needed and which placement does with so few; which dispatcher makes image requests wait least."""
    said = []
    for case, facts in result.cases.items():
        gpus = (
            {t: found[case] for t in result.techniques if case in (found := result.medians(t, "gpus"))} if "gpus" in result.metrics else {}
        )
        parameters = facts["parameters"]
        if gpus:
            latency = {t: result.medians(t, "mean_latency").get(case, float("inf")) for t in gpus}
            starved = {t: result.medians(t, "starved").get(case, 0.0) for t in gpus}
            best = min(gpus, key=lambda t: (starved[t] > 0.01, gpus[t], latency[t]))
            others = sorted({(n, t) for t, n in gpus.items() if n > gpus[best]})
            device = parameters.get("device", "h100-64")
            line = (
                f"{case}: you need {_gpus(gpus[best], device)}; place the adapters with {best} ({latency[best]:.1f} s a request on average)"
            )
            if starved[best] > 0.01:
                line = f"{case}: no placement tried kept every adapter served; {best} came closest on {_gpus(gpus[best], device)}"
            elif others:
                line += f"; {others[-1][1]} would need {others[-1][0]:.0f}"
            elif len(gpus) > 1:
                line += "; every placement tried does with as many"
            notes = "".join(f" ({note})" for note in parameters.get("notes", ()))
            said.append(f"{line}{notes}.")
        elif "image" in facts["kinds"]:
            latency = {t: found[case] for t in result.techniques if case in (found := result.medians(t, "mean_latency"))}
            if latency:
                best = min(latency, key=lambda t: latency[t])
                worst = max(latency, key=lambda t: latency[t])
                hits = result.medians(best, "hit_ratio").get(case, float("nan"))
                said.append(
                    f"{case}: dispatch with {best}: {latency[best]:.0f} s a request on average ({worst}: {latency[worst]:.0f} s), "
                    f"{100 * hits:.0f} % of models and LoRAs are loaded already."
                )
    errors = result.medians("twin-greedy", "throughput_error") if "twin-greedy" in result.techniques else {}
    if errors:
        said.append(f"The twin is {sum(errors.values()) / len(errors):.1f} % off real vLLM on runs it was not fitted on.")
    return " ".join(said) or "Nothing was placed."


def _gpus(count: float, device: str) -> str:
    return f"{count:.0f} GPU{'' if count == 1 else 's'} ({device})"


@adapters.plots
def plots(result: Result) -> Sequence[Any]:
    """Latency at its quantiles, one panel a case, and GPUs needed."""
    from armillary.figures import panels

    shares = {"p50_latency": 0.5, "p90_latency": 0.9, "p99_latency": 0.99}
    lines: dict[str, dict[str, list[tuple[float | str, float]]]] = {}
    for technique in result.techniques:
        for metric, share in shares.items():
            for case, seconds in result.medians(technique, metric).items():
                lines.setdefault(case, {}).setdefault(technique, []).append((f"{100 * share:.0f} %", seconds))
    drawn = [panels(lines, "Latency that a share of requests does not exceed", "share of requests", "s", log_y=True)] if lines else []
    gpus: dict[str, dict[str, list[tuple[float | str, float]]]] = {"GPUs": {}}
    for technique in result.techniques:
        found = result.medians(technique, "gpus")
        if found:
            gpus["GPUs"][technique] = [(case, n) for case, n in found.items()]
    return [*drawn, *([panels(gpus, "GPUs needed so that nothing starves", "", "GPUs")] if gpus["GPUs"] else [])]


def _mix(case: Case, rng: np.random.Generator) -> Any:
    from .workload import synthetic

    p = case.parameters
    return synthetic(p["adapters"], p["rates"], p["window_s"], rng, unpredictable=p["unpredictable"])


def _rows(case: Case, rng: np.random.Generator) -> Any:
    from .gpu_engine import GpuEngine
    from .measured import split

    return GpuEngine().twin_model(), split()[0]


def _images(case: Case, rng: np.random.Generator) -> Any:
    from .image_workload import synthetic

    p = case.parameters
    return synthetic(p["rate"], p["window_s"], rng, loras=p["loras"], bursts=p["bursts"], swing=p["swing"])


def _load(case: Case, rng: np.random.Generator) -> Any:
    how = {k: v for k, v in case.parameters.items() if k not in ("path", "notes")}
    path = Path(case.parameters["path"])
    return _work(path, _changed(path), case.parameters["kind"], json.dumps(how, sort_keys=True), case.seed32("adapters"))


def _load_images(case: Case, rng: np.random.Generator) -> Any:
    path = Path(case.parameters["path"])
    return _image_file(path, path.stat().st_mtime_ns)


def _changed(path: Path) -> int:
    return path.stat().st_mtime_ns


@functools.lru_cache(maxsize=2)
def _image_file(path: Path, changed_ns: int) -> Any:
    from .image_workload import read_gentd26, read_public

    return read_public(path) if path.suffix == ".json" else read_gentd26(path)


def _found(path: Path, kind: str) -> str:
    """What a path holds, by its columns."""
    if kind != "auto":
        return kind
    if path.is_dir():
        return "peft"
    try:
        with path.open(encoding="utf-8-sig", errors="replace") as file:
            head = file.read(4096)
    except OSError as problem:
        raise InputError(f"cannot be read: {problem.strerror}", where=str(path)) from None
    columns = {c.strip().strip('"') for c in head.partition("\n")[0].split(",")}
    if {"adapter", "rank", "rate_per_s"} <= columns:
        return "table"
    if {"arrival_s", "adapter", "prompt_tokens", "output_tokens"} <= columns:
        return "requests"
    if "checkpoint_model_version_id" in columns or (path.suffix == ".json" and '"base_model_id"' in head):
        return "images"
    return "trace"


@functools.lru_cache(maxsize=2)
def _work(path: Path, changed_ns: int, kind: str, how_text: str, seed: int) -> Any:
    """The adapters and requests of a file, drawn where it does not say them."""
    import dataclasses

    import numpy as np

    from armillary.llm import Requests

    from . import workload as w

    how = json.loads(how_text)
    rng = np.random.default_rng(seed)
    if kind in ("table", "peft"):
        table = w.read_table(path) if kind == "table" else w.read_peft(path, how["rate"])
        found = w.AdapterWork(table, w.requests_for(table, how["window"], rng), how["window"])
    elif kind == "requests":
        found = w.read_requests(path, how["rank"], **({"limit": how["limit"]} if how["limit"] else {}))
    elif kind == "images":
        raise InputError("expected an image trace to be read as one", where=str(path))
    else:
        requests = Requests.read(str(path), limit=how["limit"] or None)
        named = how["adapters"].strip()
        if named.isdigit():
            found = w.with_adapters(requests, rng, count=int(named), exponent=how["zipf"])
        else:
            table_path = Path(named)
            if not table_path.is_file():
                raise InputError(f'found "{named}"; expected a number of adapters or a table\'s file', where="--adapters")
            found = w.with_adapters(requests, rng, table=w.read_table(table_path))
    return dataclasses.replace(found, model=how["model"], device=how["device"])
