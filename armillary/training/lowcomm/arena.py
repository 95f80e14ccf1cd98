"""Sites that are joined by a slow network cannot exchange gradients every step; the techniques here train with few synchronisations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armillary.arena import Arena, Artifact, Case, Constant, Metric, Outcome, Result, parameter
from armillary.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from .workers.scheme import Synchronised
    from .workers.trained import Trained
    from .workload import Sizes, Training

_SFT = frozenset({"sft"})

lowcomm = Arena(
    "training/lowcomm",
    question="My sites are joined by a slow network. How much does training with few synchronisations cost in model quality, and how much "
    "traffic does it save?",
    metrics=[
        Metric("val_loss", unit="nats", kind="measured", steady=True, doc="loss per held-out token after pretraining"),
        Metric("comm_bytes", unit="B", kind="measured", steady=True, doc="payload of all exchanges per worker, counted once"),
        Metric("sync_count", kind="measured", steady=True, doc="exchanges; one of a single fragment counts as one too"),
        Metric("wire_bytes", unit="B", kind="modelled", doc="bytes that leave a worker's port when workers form a ring"),
        Metric(
            "wall_clock_s", unit="s", kind="modelled", clocked=True,
            doc="measured CPU seconds of the steps, and the exchanges over the network of the case that nothing hides",
        ),
        Metric(
            "drift", kind="measured", steady=True, scale="difference",
            doc="1 − linear CKA of the last layer against the model of data parallelism, on held-out text",
        ),
        Metric(
            "cosine", better="higher", kind="measured", steady=True, scale="difference",
            doc="mean cosine between the workers' pseudo-gradients (or gradients), once per round",
        ),
        Metric("mid_val_loss", unit="nats", kind="measured", steady=True, on=_SFT, doc="the same loss after mid-training, on its text"),
        Metric("sft_val_loss", unit="nats", kind="measured", steady=True, on=_SFT, doc="the same loss after fine-tuning, on answers only"),
        Metric(
            "task_accuracy", better="higher", kind="measured", steady=True, scale="difference", on=_SFT,
            doc="exact match on held-out questions after fine-tuning, as a mean over five tasks",
        ),
    ],
    techniques={
        "ddp": ".ddp:Ddp",
        "large-batch": ".large_batch:LargeBatch",
        "local-sgd": ".local_sgd:LocalSgd",
        "streaming-diloco": ".streaming_diloco:StreamingDiloco",
        "diloco": ".diloco:Diloco",
        "diloco-then-ddp": ".diloco_then_ddp:DilocoThenDdp",
        "ddp-then-diloco": ".ddp_then_diloco:DdpThenDiloco",
    },
    papers={"diloco": "nanochat-diloco"},
    baseline="ddp",
    tradeoff=("val_loss", "comm_bytes"),
    # Seeds are cases of their own, so that a comparison takes one and a claim is judged on five.
    repeats=1,
    telling=["quick-*"],
    constants=[
        Constant("bandwidth", "100 Mbit/s", "", "the link of each site; our choice, and an option for your own text"),
        Constant("latency", "10 ms", "", "the way of one message; our choice, and an option for your own text"),
        Constant("AdamW", "3e-3·√(64/d), 0.9/0.95, decay 0.1", "", "inner optimizer; clipped at 1, warm-up 5 %, cosine to zero"),
        Constant("Muon", "0.02; head 0.004, embedding 0.2, × (d/768)^-½", "", "nanochat's rates, AdamW betas 0.8/0.95 outside matrices"),
        Constant("outer", "0.7 and 0.9", "", "learning rate and Nesterov momentum, arXiv 2311.08105"),
    ],
)  # fmt: skip

#: By scale: width, layers, heads, context, batch per worker, workers, and bytes of the corpus.
MODELS = {
    "tiny": (32, 1, 2, 48, 2, 2, 300_000),
    "small": (64, 2, 4, 64, 8, 4, 20_000_000),
    "large": (192, 6, 6, 256, 8, 4, 20_000_000),
}
#: By scale: the steps of quick cases, of pretraining, and of the three stages of `sft` cases, and the divisor of H.
STEPS: dict[str, tuple[int, int, tuple[int, int, int], int]] = {
    "tiny": (12, 16, (10, 6, 10), 10),
    "small": (120, 400, (400, 100, 300), 1),
    "large": (2000, 2000, (2000, 500, 1500), 1),
}
#: Sequences per worker of a quick case, which has to answer within a minute on two cores.
QUICK_BATCH = 4
SEEDS = 5
SHARDS = ("iid", "by-file")
#: The tiny scale's cases.
TINY = ("quick-iid", "quick-by-file", "sft-h30-by-file-0")


@lowcomm.cases
def cases(scale: str) -> Iterator[Case]:
    """Pretraining with rounds of 10, 30 and 100 steps, all stages with 30 and 100, Muon inside, and two quick cases; each with text that
    is shared at random or belongs to a worker, and the first two with five seeds.
    """
    return (case for case in _every_case(scale) if scale != "tiny" or case.name in TINY)


def _every_case(scale: str) -> Iterator[Case]:
    quick, pretrain, stages, shorter = STEPS[scale]
    for shards in SHARDS:
        yield _case(scale, f"quick-{shards}", "quick", 30 // shorter, shards, (quick, 0, 0), batch=QUICK_BATCH)
    for every in (10, 30, 100):
        for shards in SHARDS:
            for seed in range(SEEDS):
                yield _case(scale, f"pretrain-h{every}-{shards}-{seed}", "pretrain", max(1, every // shorter), shards, (pretrain, 0, 0))
    for every in (30, 100):
        for shards in SHARDS:
            for seed in range(SEEDS):
                name, length = f"sft-h{every}-{shards}-{seed}", max(1, every // shorter)
                yield _case(scale, name, "sft", length, shards, stages, optimizer="muon")
    for shards in SHARDS:
        yield _case(scale, f"muon-h30-{shards}", "muon", 30 // shorter, shards, (pretrain, 0, 0), optimizer="muon")


def _case(scale: str, name: str, kind: str, every: int, shards: str, steps: tuple[int, int, int], **other: Any) -> Case:
    width, layers, heads, context, batch, workers, size = MODELS[scale]
    small = {"validation": 16, "compared": 16, "prompts": 8} if scale == "tiny" else {}
    return Case(name, _built_in, {
        "width": width, "layers": layers, "heads": heads, "context": context, "batch": batch, "workers": workers, "corpus_bytes": size,
        "every": every, "shards": shards, "steps": list(steps), "device": "auto" if scale == "large" else "cpu", **small, **other,
    }, frozenset({kind, shards}))  # fmt: skip


def _built_in(case: Case, rng: np.random.Generator) -> Training:
    from .corpora.python_source import python_source
    from .workload import training

    return training(python_source(rng, case.parameters["corpus_bytes"]), _sizes(case.parameters), rng)


def _sizes(facts: Any) -> Sizes:
    from dataclasses import fields

    from .workload import Sizes

    known = {field.name: facts[field.name] for field in fields(Sizes) if field.name in facts}
    return Sizes(**{**known, "steps": tuple(facts["steps"])})


@dataclass(frozen=True)
class Reading:
    """How a model is trained on a user's text, by how many workers, and over which network."""

    workers: int = parameter(4, "the number of workers", range=(1, 64))
    every: int = parameter(30, "the inner steps H between synchronisations", range=(1, 100_000))
    steps: int = parameter(200, "inner steps per worker", range=(1, 1_000_000))
    shards: str = parameter("iid", "whether workers draw from all documents or have their own", choices=SHARDS)
    merges: int = parameter(0, "merges of a byte-pair vocabulary that is learned from the text; 0 trains on bytes", range=(0, 4096))
    width: int = parameter(64, "the width of the model, a multiple of twice the heads", range=(8, 1024))
    layers: int = parameter(2, "the layers of the model", range=(1, 48))
    heads: int = parameter(4, "the attention heads", range=(1, 64))
    context: int = parameter(64, "tokens per sequence", range=(8, 2048))
    batch: int = parameter(4, "sequences per worker and step", range=(1, 1024))
    optimizer: str = parameter("adamw", "the inner optimizer: adamw, or muon for matrices as nanochat has it", choices=("adamw", "muon"))
    schedule: str = parameter("cosine", "the learning rate after the warm-up", choices=("cosine", "warmdown"))
    lr: float = parameter(1.0, "a factor on the inner learning rate", range=(1e-6, 1e6))
    bandwidth_mbit: float = parameter(100.0, "the link of each worker in megabits per second", range=(0.001, 1e7))
    latency_ms: float = parameter(10.0, "the way of one message between workers in milliseconds", range=(0.0, 1e5))
    device: str = parameter("cpu", "where replicas are trained; auto takes a GPU if there is one", choices=("cpu", "auto"))

    def validate(self) -> None:
        """Raise where sizes do not go together."""
        _own_sizes(self).check()


def _own_sizes(how: Reading) -> Sizes:
    from dataclasses import asdict

    return _sizes({**asdict(how), "steps": (how.steps, 0, 0)})


@lowcomm.read(Reading)
def read(path: Path, how: Reading) -> tuple[bytes, ...]:
    """Reads documents from UTF-8 text (a paragraph each), or from the column `text` of JSONL or Parquet."""
    import numpy as np

    from .readers.text import read_documents
    from .workload import training

    found = read_documents(path)
    try:
        # What is too short for these options is said before anything runs.
        training(found, _probe(how), np.random.default_rng(0), raw=0.0, merges=how.merges)
    except InputError as error:
        raise InputError(error.message, where=str(path)) from None
    return found


def _probe(how: Reading) -> Sizes:
    from dataclasses import replace

    return replace(_own_sizes(how), steps=(1, 0, 0), batch=1)


@lowcomm.own_cases
def own_cases(documents: tuple[bytes, ...], name: str, how: Reading) -> Iterator[Case]:
    """The text as one case of pretraining."""
    from dataclasses import asdict

    facts = {**asdict(how), "steps": [how.steps, 0, 0], "documents": len(documents), "bytes": sum(map(len, documents))}
    yield Case(name, _own, facts, frozenset({"file", how.shards}))


def _own(case: Case, rng: np.random.Generator) -> Training:
    from .cost.wall_clock import Network
    from .workload import training

    facts = case.parameters
    network = Network(1e6 * facts["bandwidth_mbit"], 1e-3 * facts["latency_ms"])
    return training(case.loaded, _sizes(facts), rng, raw=0.0, merges=facts["merges"], network=network)


@lowcomm.example
def example(folder: Path) -> tuple[Path, dict[str, str]]:
    """Writes a JSONL file of forty short documents in two languages."""
    import json

    words = ("red green blue grey", "eins zwei drei vier")
    file = folder / "documents.jsonl"
    texts = (f"{i}: " + " ".join(words[i % 2].split()[(i + j) % 4] for j in range(24)) for i in range(40))
    file.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return file, {
        "workers": "2", "every": "4", "steps": "8", "width": "16", "layers": "1", "heads": "2", "context": "16", "batch": "2",
        "merges": "4",
    }  # fmt: skip


@lowcomm.run
def run(technique: Synchronised, case: Case) -> Outcome:
    """Trains with the workers of the case, as replicas that take turns, and judges the weights that they share."""
    from .evaluation.similarity import linear_cka

    reference, features = case.once(_reference)
    found = reference if type(technique) is type(reference.technique) and technique == reference.technique else _arm(technique, case)
    values = {
        "val_loss": found.val_loss("pretrain"), "comm_bytes": float(found.comm_bytes), "sync_count": float(found.sync_count),
        "wire_bytes": found.wire_bytes, "wall_clock_s": found.wall_clock_s, "drift": max(0.0, 1 - linear_cka(found.features(), features)),
        "cosine": found.cosine,
    }  # fmt: skip
    rows = [
        {"stage": one["name"], "step": step, "loss": loss, "bytes": payload * step / one["steps"]}
        for one, payload in zip(found.stages, found.payloads) for step, loss in one["curve"]
    ]  # fmt: skip
    left = [Artifact.table("curve", rows)]
    if "sft" in case.kinds:
        accuracies = found.accuracies()
        values |= {"mid_val_loss": found.val_loss("mid"), "sft_val_loss": found.val_loss("sft")}
        values["task_accuracy"] = sum(accuracies.values()) / len(accuracies)
        left.append(Artifact.table("tasks", [{"task": task, "accuracy": value} for task, value in accuracies.items()]))
    return Outcome(values, left)


def _reference(case: Case) -> tuple[Trained, npt.NDArray[np.float64]]:
    """Data parallelism on the same work, which drift is measured against, and the features of its model."""
    from .ddp import Ddp

    found = _arm(Ddp(), case)
    return found, found.features()


def _arm(technique: Synchronised, case: Case) -> Trained:
    """The technique's run; arms that pretrain alike share their pretraining."""
    from .workers.trained import trained

    if "sft" not in case.kinds:
        return trained(technique, case.workload)
    return trained(technique, case.workload, after=case.once(_pretrained, technique.pretrains_as()))


def _pretrained(case: Case, technique: Synchronised) -> Trained:
    from .workers.trained import trained

    return trained(technique, case.workload, stop=case.workload.sizes.steps[0])


@lowcomm.answer
def answer(result: Result) -> str:
    """Says what the fewest bytes within five percent of data parallelism's loss are, and what large batches reach with that traffic."""
    if not {"val_loss", "comm_bytes"} <= set(result.metrics):
        return "Ask for the metrics val_loss and comm_bytes to get an answer."
    found = [one for case in result.cases if (one := _cheapest(result, case))]
    if not found:
        return "No technique trained with fewer bytes than data parallelism on these cases."
    close = [one for one in found if one[2] <= 1.05]
    chosen = close or found
    best = max(dict.fromkeys(name for name, *_ in chosen), key=[name for name, *_ in chosen].count)
    mine = [one for one in chosen if one[0] == best]
    where = "the case" if len(result.cases) == 1 else f"{len(mine)} of {len(result.cases)} cases"
    said = f"{best} has a loss of {_span([r for _, _, r in mine], '.2f')} times that of data parallelism on {where}, with "
    said += f"{_span([b for _, b, _ in mine], '.0f')} times fewer bytes"
    said += "." if close else ", and nothing that sends so little comes within 5 %."
    large = [loss / dp for case in result.cases if (loss := result.on(case, "val_loss").get("large-batch")) and (dp := _ddp(result, case))]
    if large and best != "large-batch":
        said += f" Large batches with about the same traffic reach {_span(large, '.2f')} times that loss."
    return said


def _ddp(result: Result, case: str) -> float | None:
    return result.on(case, "val_loss").get("ddp")


def _cheapest(result: Result, case: str) -> tuple[str, float, float] | None:
    """A technique that sends less than data parallelism, how many times less, and its loss over that of data parallelism.

    It is the one with the fewest bytes of those within 5 % of data parallelism's loss, or the one with the lowest loss.
    """
    sent, lost = result.on(case, "comm_bytes"), result.on(case, "val_loss")
    if "ddp" not in sent or "ddp" not in lost:
        return None
    rows = [(name, sent["ddp"] / sent[name], lost[name] / lost["ddp"]) for name in lost if name in sent and sent[name] < sent["ddp"]]
    if not rows:
        return None
    close = [row for row in rows if row[2] <= 1.05]
    return max(close, key=lambda row: (round(row[1], 3), -row[2])) if close else min(rows, key=lambda row: row[2])


def _span(values: Sequence[float], form: str) -> str:
    low, high = (format(pick(values), form) for pick in (min, max))
    return low if low == high else f"{low} to {high}"


@lowcomm.plots
def plots(result: Result) -> Sequence[Any]:
    """Losses over the length of rounds, accuracies, and modelled seconds."""

    def by_rounds(case: str, facts: Any) -> tuple[str, float | str] | None:
        kinds = set(facts["kinds"])
        return f"{', '.join(sorted(kinds & {'quick', 'pretrain', 'sft', 'muon', 'file'}))} {', '.join(sorted(kinds & set(SHARDS)))}", case

    drawn: list[Any] = []
    for metric, title in (
        ("val_loss", "Loss after pretraining"), ("task_accuracy", "Exact match after fine-tuning"), ("comm_bytes", "Payload per worker"),
        ("wall_clock_s", "Seconds over the network of the case"),
    ):  # fmt: skip
        if metric in result.metrics:
            drawn += result.panels(title, metric, by_rounds, log_y=metric in ("comm_bytes", "wall_clock_s"))
    return drawn
