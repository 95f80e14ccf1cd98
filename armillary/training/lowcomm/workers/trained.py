"""One technique on one piece of work: run the workers, and judge the model that they share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError

from ..cost.wall_clock import wall_clock_s, wire_bytes
from ..workload import PROGRAM, Training
from .scheme import Synchronised

#: Seconds after which processes that do not answer are given up.
PATIENCE_S = 3600.0


@dataclass(frozen=True)
class Trained:
    """What the workers brought: facts by stage (see `workers.training.train`), of worker 0, and what they mean."""

    technique: Synchronised
    work: Training
    stages: tuple[Mapping[str, Any], ...]

    @property
    def weights(self) -> npt.NDArray[np.float32]:
        """The shared weights at the end, flat."""
        found: npt.NDArray[np.float32] = self.stages[-1]["weights"]
        return found

    def val_loss(self, name: str) -> float:
        """Nats per token on the validation rows of a stage, at its end."""
        return float(next(one for one in self.stages if one["name"] == name)["val_loss"])

    @property
    def comm_bytes(self) -> int:
        """The counted payload of all exchanges, per worker."""
        return int(self.stages[-1]["bytes"])

    @property
    def sync_count(self) -> int:
        """The exchanges of all stages."""
        return sum(int(one["syncs"]) for one in self.stages)

    @property
    def payloads(self) -> list[int]:
        """The counted payload of each stage, per worker."""
        totals = [int(one["bytes"]) for one in self.stages]
        return [b - a for a, b in zip([0, *totals], totals)]

    @property
    def wire_bytes(self) -> float:
        """Bytes that leave a worker's port, modelled from the payload."""
        k = self.work.sizes.workers
        return sum(wire_bytes(payload, k, gathers=one["gathers"]) for payload, one in zip(self.payloads, self.stages))

    @property
    def wall_clock_s(self) -> float:
        """Seconds over the network of the work, modelled from the measured step and the counted payload."""
        k, total = self.work.sizes.workers, 0.0
        for payload, one in zip(self.payloads, self.stages):
            hidden = one["hidden_steps"] * one["step_s"] + (one["backward_s"] if one["hides_backward"] else 0.0)
            total += wall_clock_s(
                one["steps"], one["step_s"], one["syncs"], payload, k, self.work.network, hidden_s=hidden, gathers=one["gathers"]
            )  # fmt: skip
        return total

    @property
    def cosine(self) -> float:
        """The mean cosine between the workers' pseudo-gradients, or gradients, over all rounds; 1 for a single worker."""
        seen = [value for one in self.stages for value in one["cosines"]]
        return float(np.mean(seen)) if seen else 1.0

    def model(self) -> Any:
        """The trained model on the CPU."""
        import torch

        from .training import made

        found = made(self.work.plain())
        torch.nn.utils.vector_to_parameters(torch.from_numpy(np.array(self.weights)), found.parameters())
        return found

    def accuracies(self) -> dict[str, float]:
        """Exact match by task; empty without a stage of fine-tuning."""
        from ..evaluation.tasks import exact_match

        encode = self.work.vocabulary.encode
        model = self.model()
        return {
            task: exact_match(model, tokens, [encode(one.answer.encode()) for one in asked])
            for task, (tokens, asked) in self.work.questions.items()
        }  # fmt: skip

    def features(self) -> npt.NDArray[np.float64]:
        """What the last layer holds for the compared rows."""
        import torch

        from ..evaluation.similarity import features

        return features(self.model(), torch.from_numpy(self.work.compared.astype(np.int64)))


def trained(
    technique: Synchronised, work: Training, *, backend: str = "virtual", folder: str = "", save_every: int = 0, stop: int = 0,
    after: Trained | None = None,
) -> Trained:  # fmt: skip
    """Train with a technique, as replicas that take turns in this process (`virtual`), or as `threads` or processes (`gloo`).

    With `folder`, workers save their state after every `save_every` steps and go on from what they find there; `stop` ends the run
    after that many steps, as if it were killed. `after` has the first stage already, by a technique that does in it what this one does.
    """
    from armillary import comm, extras
    from armillary.arena import parameters

    torch = extras.need("torch")
    kind = type(technique)
    settings = {name: getattr(technique, name) for name in parameters(kind)}
    begin = {"weights": after.stages[0]["weights"], "bytes": after.stages[0]["bytes"]} if after else {}
    plain = {**work.plain(), "folder": folder, "save_every": save_every, "stop": stop, "begin": begin}
    options: dict[str, Any] = {"timeout": PATIENCE_S} if backend == "gloo" else {}
    threads = torch.get_num_threads()
    try:
        target = f"{kind.__module__}:{kind.__qualname__}"
        ran = comm.run(PROGRAM, target, settings, plain, ranks=work.sizes.workers, backend=backend, **options)
    except comm.RankFailed as failed:
        if isinstance(failed.exception, InputError):
            raise failed.exception from None
        raise
    finally:
        torch.set_num_threads(threads)
    return Trained(technique, work, (*(after.stages[:1] if after else ()), *ran.values[0]["stages"]))
