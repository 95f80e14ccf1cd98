"""How many GPUs do my adapters need, and which goes where? Which worker takes an image request, and what stays loaded?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from armillary.arena import Arena, Artifact, Case, Constant, Metric, NotForThisCase, Outcome, Result, parameter
from armillary.errors import InputError
from armillary.timing import Stopwatch
from armillary.wording import listed

from .engine.starvation import ALLOWED, STARVED

if TYPE_CHECKING:
    import numpy as np

    from armillary.llm import Model, Requests

    from .images.workload import ImageTrace
    from .readers.image_traces import LoadTimes
    from .workload import AdapterTable, AdapterWork

_MIX, _SERVED, _ROWS = frozenset({"mix"}), frozenset({"served"}), frozenset({"measured-rows"})

adapters = Arena(
    "serving/adapters",
    question="I serve hundreds of adapters: how many GPUs do I need, and which adapter goes where?",
    metrics=[
        Metric("gpus", on=_MIX, doc="the technique's own count, or the least above it at which nothing starves"),
        Metric("starved", scale="difference", on=_MIX, doc="share of adapters that get less than 90 % of their tokens"),
        Metric("token_throughput", unit="tok/s", better="higher", on=_MIX, doc="prompt and output tokens that were processed"),
        Metric("mean_latency", unit="s", on=_SERVED, doc="from arrival to the last token or image"),
        Metric("p50_latency", unit="s", on=_SERVED, doc="half of the requests take no longer"),
        Metric("p90_latency", unit="s", on=_SERVED, doc="nine of ten requests take no longer"),
        Metric("p99_latency", unit="s", on=_SERVED, doc="99 of 100 requests take no longer"),
        Metric("hit_ratio", better="higher", scale="difference", on=_SERVED, doc="share of adapters and models already on the device"),
        Metric("updates_per_h", unit="1/h", on=_SERVED, doc="adapters and base models loaded per hour"),
        Metric("throughput_error", unit="%", scale="difference", on=_ROWS, doc="SMAPE against runs of real vLLM"),
        Metric("tpot_error", unit="%", scale="difference", on=_ROWS, doc="median error against runs of real vLLM"),
        Metric("speedup", unit="x", better="higher", kind="measured", on=_ROWS, doc="an hour of 384 adapters over the twin's seconds"),
        Metric("plan_s", unit="s", kind="measured", on=_MIX, doc="seconds of the first placement on this machine, without learning"),
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
    repeats=1,
    telling=("low-rates", "mixed-rates", "unpredictable", "vllm-32-slots", "images-steady", "images-bursts"),
    constants=[
        Constant("iteration", "fitted", "ms", "fitted to 12 of 74 measured vLLM runs (arXiv 2508.08343) in adapters/engine/gpu_engine.py"),
        Constant("starved below", STARVED, "", "share of the offered tokens; the criterion of arXiv 2508.08343"),
        Constant("starved by chance", ALLOWED, "", "share of adapters that may starve and still count as none; our choice"),
        Constant("image workers", "32 A10G, 24 L40S, 8 A100", "", "0.50, 0.28 and 0.20 s per step (our choice, after GenTD26)"),
        Constant("loads", "4.4 and 22.7", "s", "medians of LoRAs and models in GenTD26; the host takes a tenth, SSD 0.35 (ours)"),
    ],
)  # fmt: skip

_MANY, _SOME = {"tiny": 48, "small": 384, "large": 1024}, {"tiny": 24, "small": 128, "large": 1024}
#: Each mix has its adapters at each scale, rates (requests per second) in equal thirds, whether the rates change, and kinds.
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
#: Requests per second for images: 0.7 of what the 64 workers could do without any load.
IMAGE_RATE = 1.88
#: Whether there are bursts, the coefficient of variation of the rate between ten-minute intervals, and the number of LoRAs.
IMAGES = {
    "images-steady": (False, 0.0, 874), "images-bursts": (True, 0.3, 874), "images-bursts-even": (True, 0.0, 874),
    "images-bursts-uneven": (True, 0.5, 874), "images-bursts-few": (True, 0.3, 200), "images-bursts-many": (True, 0.3, 2000),
}  # fmt: skip
IMAGE_WINDOW_S = {"tiny": 400.0, "small": 3600.0, "large": 36000.0}
#: The cases of the tiny scale: every kind of case, few of each.
TINY = frozenset({"low-rates", "mixed-rates", "unpredictable", "vllm-8-slots", "vllm-64-slots", "images-steady", "images-bursts"})


@adapters.cases
def cases(scale: str) -> Iterator[Case]:
    """Yields eight mixes of adapters, the measured vLLM rows by slots, and six traces of image requests; some of each at the tiny scale."""
    yield from (case for case in _cases(scale) if scale != "tiny" or case.name in TINY)


def _cases(scale: str) -> Iterator[Case]:
    for name, (count, rates, unpredictable, kinds) in MIXES.items():
        facts = {"adapters": count[scale], "rates": list(rates), "window_s": WINDOW_S[scale], "unpredictable": unpredictable}
        yield Case(name, _mix, facts, frozenset({"llm", "mix", "served", *kinds}))
    for low, high in ((8, 8), (16, 16), (32, 32), (64, 64), (128, 192)):
        name = f"vllm-{low}-slots" if low == high else f"vllm-{low}-to-{high}-slots"
        yield Case(name, _rows, {"low": low, "high": high, "most": 2 if scale == "tiny" else 64}, frozenset({"llm", "measured-rows"}))
    for name, (bursts, swing, loras) in IMAGES.items():
        facts = {"rate": IMAGE_RATE, "window_s": IMAGE_WINDOW_S[scale], "bursts": bursts, "swing": swing}
        facts["loras"] = loras * (5 if scale == "large" else 1)
        yield Case(name, _images, facts, frozenset({"image", "served", "bursts" if bursts else "steady"}))


@dataclass(frozen=True)
class Reading:
    """How a file of adapters, requests or images is read, and what serves them."""

    kind: Literal["auto", "table", "requests", "peft", "trace", "images"] = parameter("auto", "what the file is; auto tells by its columns")
    adapters: str = parameter("128", "for a trace that names no adapters: their number, or the file of a table", file=True)
    zipf: float = parameter(1.0, "of that number of adapters, the k-th is requested k^zipf times less often than the first", range=(0, 10))
    rank: int = parameter(16, "the rank of adapters for which the file states none", range=(1, 512))
    rate: float = parameter(0.1, "requests per second of PEFT adapters that rates.csv does not name", range=(0, 1e4))
    limit: int = parameter(0, "the number of requests to read from the beginning; 0 reads all of them", range=(0, 2**40))
    window: float = parameter(600.0, "seconds to simulate where the file has rates and no requests", range=(1, 1e6))
    model: str = parameter("llama-3.1-8b", "the base model: one that comes with Armillary, a config.json, or its folder", file=True)
    device: str = parameter("h100-64", "the GPU, by its name in the catalogue of devices")
    speed: float = parameter(1.0, "for images: how many times closer together the requests arrive", range=(1e-3, 1e5))
    loads: tuple[str, ...] = parameter(
        (), "for images: files lora_load*.csv and base_load*.csv with measured load times, or the folder that holds them", file=True
    )


@dataclass(frozen=True)
class Loaded:
    """A user's file as it was read: its content, the table from which a trace draws adapters, and the base model."""

    how: Reading
    content: AdapterTable | AdapterWork | Requests | ImageTrace
    table: AdapterTable | None
    model: str | Model


@adapters.read(Reading, folders=True)
def read(path: Path, how: Reading) -> Loaded:
    """Reads a table of adapters, requests that name them, PEFT adapters, an image trace, or a trace of `armillary.llm`."""
    from armillary.llm import Model

    from .engine.gpu_engine import GpuEngine
    from .readers import adapter_files as files
    from .readers.image_traces import load_files

    table = None if how.adapters.strip().isdigit() else _drawn_from(how.adapters)
    times = load_files(how.loads)
    model: str | Model = how.model if how.model in Model.presets() else Model.find(how.model)
    GpuEngine(model, how.device).most_slots(how.rank)
    kind = _kind(path, how.kind)
    content: Any
    if kind == "images":
        content = _images_of(path, times).faster(how.speed)
    elif kind == "table":
        content = files.read_table(path)
    elif kind == "peft":
        content = files.read_peft(path, how.rate)
    elif kind == "requests":
        content = files.read_requests(path, how.rank, limit=how.limit)
    else:
        from armillary.llm import Requests

        content = Requests.read(str(path), limit=how.limit or None)
    loaded = Loaded(how, content, table, model)
    _work(loaded, seed=0)
    return loaded


@adapters.own_cases
def own_cases(loaded: Loaded, name: str, how: Reading) -> Iterator[Case]:
    """Yields one case: images, or adapters with requests, which are drawn if the file has none."""
    from .images.workload import ImageTrace

    if isinstance(loaded.content, ImageTrace):
        yield Case(name, _own, {"notes": list(loaded.content.notes)}, frozenset({"image", "served", "file"}))
        return
    facts = {"model": Path(how.model).name, "device": how.device, "notes": list(_work(loaded, seed=0).notes)}
    yield Case(name, _own, facts, frozenset({"llm", "mix", "served", "file"}))


@adapters.example
def example(folder: Path) -> tuple[Path, dict[str, str]]:
    """Returns six adapters with their ranks and rates."""
    file = folder / "adapters.csv"
    file.write_text("adapter,rank,rate_per_s\n" + "".join(f"language-{i},{8 << i % 3},{0.1 * (i + 1):.1f}\n" for i in range(6)))
    return file, {"window": "60"}


@adapters.run
def run(technique: Any, case: Case) -> Outcome:
    """Simulates a placement, sends images through the workers, or compares the twin with measured runs."""
    if "image" in case.kinds:
        return _run_images(technique, case)
    if "measured-rows" in case.kinds:
        return _run_rows(technique, case)
    import numpy as np

    from .placing.trial import least_gpus, metrics

    work = case.workload
    found = least_gpus(technique, work)
    latency = found.result.e2e
    left = [Artifact.table("placement", found.placement.table()), Artifact.quantiles("latency", latency[np.isfinite(latency)], "s")]
    return Outcome(metrics(found, work), [*left, Artifact.timeline(found.result.perfetto(TIMELINE_SLICES))])


def _run_rows(technique: Any, case: Case) -> Outcome:
    import numpy as np

    from .engine.measured import rows, split, twin_agreement
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
    with Stopwatch() as watch:
        twin_agreement(large, model)
    return Outcome(
        {
            "throughput_error": float(np.mean([a.smape for a in found])), "tpot_error": float(np.median([a.tpot_error for a in found])),
            "speedup": 3600.0 / watch.seconds,
        }
    )  # fmt: skip


def _run_images(technique: Any, case: Case) -> Outcome:
    import numpy as np

    from .images.policy import genai_64
    from .images.service import serve

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
    """Says how many GPUs are needed, which placement needs the fewest, and which dispatcher makes image requests wait least."""
    said = [*_placed(result), *_dispatched(result)]
    errors = result.medians("twin-greedy", "throughput_error") if "twin-greedy" in result.techniques else {}
    if errors:
        said.append(f"The twin is {sum(errors.values()) / len(errors):.1f} % off real vLLM on runs that it was not fitted on.")
    return " ".join(said) or "Nothing was placed."


def _placed(result: Result) -> list[str]:
    best = {case: found for case in result.cases if (found := _fewest(result, case))}
    if not best:
        return []
    if len(best) > 1:
        counts = [gpus for _, gpus, _ in best.values()]
        least = [{t for t, n in result.on(case, "gpus").items() if n <= gpus} for case, (_, gpus, _) in best.items()]
        often = {t: sum(t in techniques for techniques in least) for t in result.techniques}
        most = [t for t, n in often.items() if n == max(often.values())]
        who = f"{listed(most)} {'needs' if len(most) == 1 else 'need'} the fewest on {often[most[0]]} of {len(best)} mixes"
        return [f"A mix needs {min(counts):.0f} to {max(counts):.0f} GPUs, and {who}."]
    (case, (technique, gpus, starves)), parameters = next(iter(best.items())), result.cases[next(iter(best))]["parameters"]
    need = f"{gpus:.0f} GPU{'' if gpus == 1 else 's'} ({parameters.get('device', 'h100-64')})"
    if starves:
        line = f"No placement kept every adapter of {case} served; {technique} came closest on {need}."
    else:
        line = f"{case} needs {need}; place the adapters with {technique}."
        worst = max(((n, t) for t, n in result.on(case, "gpus").items()), default=(gpus, technique))
        line += f" {worst[1]} would need {worst[0]:.0f}." if worst[0] > gpus else ""
    return [line + "".join(f" ({note}.)" for note in parameters.get("notes", ()))]


def _fewest(result: Result, case: str) -> tuple[str, float, bool] | None:
    """Returns (technique, GPUs, whether adapters starve) of the best placement by starvation, then GPUs, then latency."""
    gpus = result.on(case, "gpus") if "gpus" in result.metrics else {}
    if not gpus:
        return None
    starved = result.on(case, "starved") if "starved" in result.metrics else {}
    latency = result.on(case, "mean_latency") if "mean_latency" in result.metrics else {}
    placed = [t for t in result.techniques if t in gpus]
    best = min(placed, key=lambda t: (starved.get(t, 0.0) > ALLOWED, gpus[t], latency.get(t, float("inf"))))
    return best, gpus[best], starved.get(best, 0.0) > ALLOWED


def _dispatched(result: Result) -> list[str]:
    images = [case for case, facts in result.cases.items() if "image" in facts["kinds"]]
    ranked = {case: found for case in images if (found := result.on(case, "mean_latency") if "mean_latency" in result.metrics else {})}
    if not ranked:
        return []
    firsts = [next(iter(found)) for found in ranked.values()]
    best = max(dict.fromkeys(firsts), key=firsts.count)
    case, found = next((case, found) for case, found in ranked.items() if next(iter(found)) == best)
    second = result.second(case, "mean_latency")
    said = f"Dispatch images with {best}" + (f", the fastest on {firsts.count(best)} of {len(ranked)} traces" if len(ranked) > 1 else "")
    times = f"{found[best]:.0f} s per request on average" + (f", and {second} takes {found[second]:.0f} s" if second else "")
    notes = "".join(f" ({note}.)" for note in result.cases[case]["parameters"].get("notes", ()))
    return [f"{said}: on {case} it takes {times}.{notes}"]


@adapters.plots
def plots(result: Result) -> Sequence[Any]:
    """Plots quantiles of the latency, one panel per case, and the GPUs needed."""
    from armillary.figures import panels

    shares = {"p50_latency": "50 %", "p90_latency": "90 %", "p99_latency": "99 %"}
    lines: dict[str, dict[str, list[tuple[float | str, float]]]] = {}
    for technique in result.techniques:
        for metric, share in shares.items():
            for case, seconds in result.medians(technique, metric).items():
                lines.setdefault(case, {}).setdefault(technique, []).append((share, seconds))
    drawn = [panels(lines, "Latency that a share of requests does not exceed", "share of requests", "s", log_y=True)] if lines else []
    gpus = result.panels("GPUs needed so that nothing starves", "gpus", y="GPUs") if "gpus" in result.metrics else []
    return [*drawn, *gpus]


def _mix(case: Case, rng: np.random.Generator) -> AdapterWork:
    from .workload import synthetic

    p = case.parameters
    return synthetic(p["adapters"], p["rates"], p["window_s"], rng, unpredictable=p["unpredictable"])


def _rows(case: Case, rng: np.random.Generator) -> Any:
    from .engine.gpu_engine import GpuEngine
    from .engine.measured import split

    return GpuEngine().twin_model(), split()[0]


def _images(case: Case, rng: np.random.Generator) -> ImageTrace:
    from .images.workload import synthetic

    p = case.parameters
    return synthetic(p["rate"], p["window_s"], rng, loras=p["loras"], bursts=p["bursts"], swing=p["swing"])


def _own(case: Case, rng: np.random.Generator) -> AdapterWork | ImageTrace:
    return _work(case.loaded, case.seed32("adapters"))


def _work(loaded: Loaded, seed: int) -> Any:
    """Returns the adapters and requests of a file, drawn if it lacks them; an image trace is returned unchanged."""
    import dataclasses

    import numpy as np

    from . import workload as w
    from .images.workload import ImageTrace

    how, content = loaded.how, loaded.content
    rng = np.random.default_rng(seed)
    if isinstance(content, ImageTrace):
        return content
    if isinstance(content, w.AdapterTable):
        found = w.AdapterWork(content, w.requests_for(content, how.window, rng), how.window)
    elif isinstance(content, w.AdapterWork):
        found = content
    elif loaded.table is not None:
        found = w.with_adapters(content, rng, table=loaded.table)
    else:
        found = w.with_adapters(content, rng, count=int(how.adapters), exponent=how.zipf)
    return dataclasses.replace(found, model=loaded.model, device=how.device)


def _drawn_from(name: str) -> AdapterTable:
    from .readers.adapter_files import read_table

    if not Path(name).is_file():
        raise InputError(f'found "{name}"; expected a number of adapters or the file of a table', where="--adapters")
    return read_table(Path(name))


def _images_of(path: Path, times: LoadTimes) -> ImageTrace:
    from .readers.image_traces import read_gentd26, read_public

    return read_public(path) if path.suffix == ".json" else read_gentd26(path, times)


def _kind(path: Path, kind: str) -> str:
    """Returns what a path holds, by its columns."""
    from armillary.files import read_head

    if kind != "auto":
        return kind
    if path.is_dir():
        return "peft"
    head = read_head(path).decode("utf-8-sig", "replace")
    columns = {c.strip().strip('"') for c in head.partition("\n")[0].split(",")}
    if {"adapter", "rank", "rate_per_s"} <= columns:
        return "table"
    if {"arrival_s", "adapter", "prompt_tokens", "output_tokens"} <= columns:
        return "requests"
    if "checkpoint_model_version_id" in columns or (path.suffix == ".json" and '"base_model_id"' in head):
        return "images"
    return "trace"
