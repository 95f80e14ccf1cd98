"""The program of one worker: train the model through all stages with one technique, and report what it took.

It is importable by name, and its arguments and results are numbers, text and arrays, so that it runs on every backend of `armillary.comm`:
as processes, or as replicas that take turns in one process, which gives the same weights bit for bit.
"""

from __future__ import annotations

import importlib
import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from armillary.comm import MIN, Communicator
from armillary.llm import TrainableTiny
from armillary.llm.tiny.trainable import cross_entropy
from armillary.llm.tiny.transformer import Shape

from ..diloco import Diagnosis, check_loss
from ..evaluation.loss import mean_loss
from ..exchange.mean import SYNCHRONISE
from .checkpoints import load, save, saved
from .inner import Inner
from .scheme import Scheme, Synchronised

#: Evaluations of the shared weights per stage, besides the last one, and their rows.
EVALUATIONS, CURVE_ROWS = 10, 32


def train(ranks: Communicator, target: str, settings: Mapping[str, Any], work: Mapping[str, Any]) -> dict[str, Any]:
    """Train through the stages of `work` and return weights, losses, curves, counts and seconds by stage.

    `target` is the technique's `module:Class` and `settings` its parameters. `work` holds the model (`width`, `layers`, `heads`,
    `vocabulary`, `context`, `seed`), `every`, `optimizer`, `schedule`, `lr` (a factor), `device`, and `stages` as `Batches.plain` gives
    them. With `folder`, workers save their state after every `save_every` steps and go on from what is there; they stop after `stop`
    steps. With `begin`, the shared weights and the counted bytes after the first stage, they go on with the second one.
    """
    torch.set_num_threads(1)
    module, _, name = target.partition(":")
    technique: Synchronised = getattr(importlib.import_module(module), name)(**settings)
    device = torch.device(_device(work["device"]))
    model, twin = (made(work).to(device) for _ in range(2))
    worker = Worker(ranks, technique, model, twin, work, device)
    worker.resume()
    first = worker.begin(work["begin"]) if work.get("begin") else 0
    stages = [worker.stage(number) for number in range(first, len(work["stages"]))]
    return {"stages": [one for one in stages if one], "steps": worker.steps}


def made(work: Mapping[str, Any]) -> TrainableTiny:
    """The model of some work: nanochat's style, with weights from its seed."""
    width, heads = work["width"], work["heads"]
    shape = Shape(
        width, work["layers"], heads, heads, width // heads, 4 * width, work["vocabulary"], 10000.0, 1e-6, work["context"], tied=False
    )  # fmt: skip
    return TrainableTiny(shape, style="nanochat", seed=work["seed"])


def _device(name: str) -> str:
    return ("cuda" if torch.cuda.is_available() else "cpu") if name == "auto" else name


@dataclass
class Record:
    """What a worker notes during a stage."""

    #: The training loss of every step, and (step, validation loss) of the shared weights, which worker 0 evaluates.
    losses: list[float] = field(default_factory=list)
    curve: list[list[float]] = field(default_factory=list)
    #: Seconds of each forward and backward pass together, and of each backward pass.
    passes: list[float] = field(default_factory=list)
    backward: list[float] = field(default_factory=list)


class Worker:
    """One worker's model and its way through the stages."""

    def __init__(
        self, ranks: Communicator, technique: Synchronised, model: TrainableTiny, twin: TrainableTiny, work: Mapping[str, Any],
        device: torch.device,
    ) -> None:  # fmt: skip
        self.ranks, self.technique, self.model, self.twin, self.work, self.device = ranks, technique, model, twin, work, device
        self.folder = Path(work["folder"]) if work.get("folder") else None
        self.stop = int(work.get("stop") or 1 << 62)
        #: Steps of all stages so far, and the checkpoint from which the run goes on, until its stage is reached.
        self.steps = 0
        self._from: dict[str, Any] | None = None
        #: The payload of stages that ran elsewhere.
        self._bytes_before = 0

    def begin(self, after: Mapping[str, Any]) -> int:
        """Take the weights that were trained in the first stage, and return the number of the second."""
        torch.nn.utils.vector_to_parameters(torch.from_numpy(np.array(after["weights"])).to(self.device), self.model.parameters())
        self.steps, self._bytes_before = len(self.work["stages"][0]["inputs"]), int(after["bytes"])
        return 1

    def resume(self) -> None:
        """Find the newest checkpoint that all workers have."""
        if self.folder is None:
            return
        mine = saved(self.folder, self.ranks.rank)
        # A killed worker may have missed the newest one, so the oldest of the newest counts; each keeps one more.
        newest = int(self.ranks.allreduce(np.array([mine[-1] if mine else 0]), op=MIN)[0])
        if newest:
            self._from = load(self.folder, self.ranks.rank, newest)

    def stage(self, number: int) -> dict[str, Any]:
        """Train through one stage and return its facts; empty where it ended before the checkpoint, or before this stage's end."""
        stage, work = self.work["stages"][number], self.work
        steps = len(stage["inputs"])
        if self._from is not None and self._from["stage"] > number:
            self.steps += steps
            return {}
        if self.steps >= self.stop:
            return {}
        inner = Inner(self.model, steps, work["optimizer"], work["schedule"], work["lr"])
        scheme = self.technique.scheme(stage["name"], inner, work["every"], self.ranks)
        seen, record, first = Diagnosis(self.ranks), Record(), 0
        if self.ranks.size > 1:
            scheme.watch(seen)
        if self._from is not None:
            scheme.load_state_dict(self._from["scheme"])
            record.losses, record.curve, seen.cosines = (list(self._from[name]) for name in ("losses", "curve", "cosines"))
            first, self._from = int(self._from["step"]), None
            self.steps += first
        self._train(number, first, scheme, record, seen)
        if self.steps >= self.stop and len(record.losses) < steps:
            return {}
        scheme.finish()
        found = 0.0
        if self.ranks.rank == 0:
            record.curve.append([steps, self._loss(scheme, stage, CURVE_ROWS)])
            found = self._loss(scheme, stage, None)
        return {
            "name": stage["name"], "losses": record.losses, "curve": record.curve, "val_loss": found,
            "weights": scheme.shared().detach().cpu().numpy().copy(),
            "steps": steps, "syncs": scheme.syncs, "bytes": self._bytes(), "cosines": seen.cosines,
            "step_s": statistics.median(record.passes) + inner.update_s / len(record.passes),
            "backward_s": statistics.median(record.backward), "hides_backward": scheme.hides_backward,
            "hidden_steps": scheme.hidden_steps, "gathers": scheme.gathers,
        }  # fmt: skip

    def _train(self, number: int, first: int, scheme: Scheme, record: Record, seen: Diagnosis) -> None:
        """The steps of a stage from `first` on."""
        stage = self.work["stages"][number]
        inputs, targets = (_ids(stage[name][:, self.ranks.rank], self.device) for name in ("inputs", "targets"))
        steps = len(inputs)
        marks = {round(steps * (i + 1) / EVALUATIONS) for i in range(EVALUATIONS)} - {steps}
        for step in range(first, steps):
            began = self._now()
            loss = cross_entropy(self.model(inputs[step]), targets[step])
            middle = self._now()
            loss.backward()  # type: ignore[no-untyped-call]
            ended = self._now()
            record.passes.append(ended - began)
            record.backward.append(ended - middle)
            record.losses.append(check_loss(loss, step + 1, self.ranks.rank))
            scheme.step()
            self.steps += 1
            if step + 1 in marks and self.ranks.rank == 0:
                record.curve.append([step + 1, self._loss(scheme, stage, CURVE_ROWS)])
            self._checkpoint(number, step + 1, scheme, record, seen)
            if self.steps >= self.stop:
                return

    def _now(self) -> float:
        """Seconds of work: of this thread's CPU, which no other worker in the process takes part in, or of the GPU's clock."""
        if self.device.type == "cpu":
            return time.thread_time()
        torch.cuda.synchronize(self.device)
        return time.perf_counter()

    def _bytes(self) -> int:
        """The payload of all stages so far."""
        with self.ranks.phase(SYNCHRONISE) as counters:
            return self._bytes_before + counters.bytes

    def _loss(self, scheme: Scheme, stage: Mapping[str, Any], rows: int | None) -> float:
        """The validation loss of the shared weights."""
        torch.nn.utils.vector_to_parameters(scheme.shared().detach().clone(), self.twin.parameters())
        return mean_loss(self.twin, *(_ids(stage[f"val_{name}"][:rows], self.device) for name in ("inputs", "targets")))

    def _checkpoint(self, number: int, step: int, scheme: Scheme, record: Record, seen: Diagnosis) -> None:
        every = int(self.work.get("save_every") or 0)
        if self.folder is None or not every or self.steps % every:
            return
        notes = {"losses": record.losses, "curve": record.curve, "cosines": seen.cosines}
        save(self.folder, self.ranks.rank, self.steps, {"stage": number, "step": step, "scheme": scheme.state_dict(), **notes})


def _ids(tokens: Any, device: torch.device) -> torch.Tensor:
    """Token numbers on a device."""
    return torch.from_numpy(np.array(tokens)).long().to(device)
