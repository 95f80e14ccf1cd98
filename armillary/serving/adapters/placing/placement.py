"""Which adapter goes to which GPU, and how many slots each engine is started with."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from armillary.arena import Technique
from armillary.errors import InputError

from ..engine.gpu_engine import GpuEngine

if TYPE_CHECKING:
    from armillary.llm import Requests

    from ..workload import AdapterTable

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Gpu:
    """One engine, with its adapters, its share of each adapter's requests, its slots and the largest rank."""

    adapters: tuple[int, ...]
    slots: int
    max_rank: int
    share: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if not self.share:
            object.__setattr__(self, "share", (1.0,) * len(self.adapters))


@dataclass(frozen=True)
class Placement:
    """Engines for all adapters of a table. If `shared`, every engine may serve every adapter, and the least loaded one takes a request.

    `notes` say what the technique did beyond placing, such as splitting an adapter.
    """

    adapters: AdapterTable
    gpus: tuple[Gpu, ...]
    engine: GpuEngine = field(default_factory=GpuEngine)
    shared: bool = False
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.gpus)

    @property
    def slots(self) -> tuple[int, ...]:
        """The slots for adapters of each engine."""
        return tuple(gpu.slots for gpu in self.gpus)

    @property
    def split(self) -> tuple[int, ...]:
        """The adapters that more than one GPU serves."""
        count = np.bincount([a for gpu in self.gpus for a in gpu.adapters], minlength=len(self.adapters))
        return tuple(int(a) for a in np.flatnonzero(count > 1))

    def check(self) -> None:
        """Raises InputError unless every adapter is served once (or in shares that make 1) and every engine would start."""
        total = np.zeros(len(self.adapters))
        for number, gpu in enumerate(self.gpus):
            np.add.at(total, list(gpu.adapters), gpu.share)
            if gpu.adapters and int(self.adapters.rank[list(gpu.adapters)].max()) > gpu.max_rank:
                raise InputError(f"GPU {number}: an adapter's rank is above {gpu.max_rank}, the engine's largest")
            if not self.engine.kv_tokens(gpu.slots, gpu.max_rank):
                raise InputError(f"GPU {number}: {gpu.slots} slots of rank {gpu.max_rank} leave too little KV to start")
        if self.shared:
            return
        wrong = np.flatnonzero(np.abs(total - 1.0) > 1e-6)
        if len(wrong):
            raise InputError(f'adapter "{self.adapters.names[wrong[0]]}" is served {total[wrong[0]]:g} times; expected once')

    def homes(self, requests: Requests) -> npt.NDArray[np.int32]:
        """Returns the GPU of each request, or -1 for the least loaded one. A split adapter's requests alternate in its shares."""
        if self.shared:
            return np.full(len(requests), -1, np.int32)
        home = np.full(len(self.adapters), -1, np.int64)
        shares: dict[int, list[tuple[int, float]]] = {}
        for number, gpu in enumerate(self.gpus):
            for a, share in zip(gpu.adapters, gpu.share, strict=True):
                home[a] = number
                shares.setdefault(a, []).append((number, share))
        out = home[requests.adapter].astype(np.int32)
        for a, parts in shares.items():
            if len(parts) > 1:
                mine = np.flatnonzero(requests.adapter == a)
                # Multiples of the golden ratio modulo 1 fall evenly into the interval of each share, in proportion to its length.
                at = np.searchsorted(np.cumsum([s for _, s in parts]), (np.arange(len(mine)) * 0.6180339887498949) % 1.0, side="right")
                out[mine] = np.asarray([g for g, _ in parts])[np.minimum(at, len(parts) - 1)]
        return out

    def table(self) -> Any:
        """Returns a Polars frame with one row per adapter and GPU: name, rank, requests per second there, GPU, and slots of that GPU."""
        import polars as pl

        rows = [
            {"adapter": self.adapters.names[a], "rank": int(self.adapters.rank[a]), "rate_per_s": float(self.adapters.rate[a]) * share,
             "gpu": number, "slots": gpu.slots}
            for number, gpu in enumerate(self.gpus)
            for a, share in zip(gpu.adapters, gpu.share, strict=True)
        ]  # fmt: skip
        return pl.DataFrame(rows)

    def vllm_args(self, gpu: int, folder: str = "adapters") -> list[str]:
        """Returns the arguments of `vllm serve` for one GPU; adapters are looked for in `folder`/name."""
        if not 0 <= gpu < len(self.gpus):
            raise InputError(f"gpu: found {gpu}; expected 0 to {len(self.gpus) - 1}")
        here = self.gpus[gpu]
        names = [self.adapters.names[a] for a in here.adapters]
        modules = [json.dumps({"name": name, "path": f"{folder}/{name}"}, ensure_ascii=False) for name in names]
        return [
            "--enable-lora", "--max-loras", str(here.slots), "--max-cpu-loras", str(max(here.slots, len(names))), "--max-lora-rank",
            str(_allowed_rank(here.max_rank)), *(["--lora-modules", *modules] if modules else []),
        ]  # fmt: skip

    def kubernetes(self, image: str = "vllm/vllm-openai:latest", folder: str = "/adapters") -> list[dict[str, Any]]:
        """Returns one Deployment per GPU as JSON manifests."""
        out = []
        for number in range(len(self.gpus)):
            labels = {"app": "adapters", "gpu": str(number)}
            container = {
                "name": "engine", "image": image, "args": ["--model", self.engine.name, *self.vllm_args(number, folder)],
                "ports": [{"containerPort": 8000}], "resources": {"limits": {"nvidia.com/gpu": 1}},
            }  # fmt: skip
            out.append(
                {
                    "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": f"adapters-{number}", "labels": labels},
                    "spec": {
                        "replicas": 1, "selector": {"matchLabels": labels},
                        "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
                    },
                }
            )  # fmt: skip
        return out


def _allowed_rank(rank: int) -> int:
    """Returns the smallest maximum rank with which vLLM can be started."""
    return next((r for r in (8, 16, 32, 64, 128, 256, 320, 512) if r >= rank), rank)


class Placer(Technique):
    """A technique of the `llm` kind, which places adapters on as few GPUs as it considers sufficient."""

    takes = frozenset({"llm"})

    def place(self, adapters: AdapterTable, *, engine: GpuEngine | None = None, min_gpus: int = 1) -> Placement:
        """Places each adapter on at least `min_gpus` GPUs."""
        raise NotImplementedError


def start_gpus(adapters: AdapterTable, engine: GpuEngine, min_gpus: int) -> int:
    """Returns the GPUs with which a technique begins that knows only the data sheet: offered tokens over the engine's peak."""
    return max(min_gpus, 1, int(np.ceil(float(adapters.token_rate.sum()) / engine.peak_tokens_per_s())))


def resident(
    adapters: AdapterTable, groups: Sequence[Sequence[int]], engine: GpuEngine, slots: int = 0, max_rank: int = 0
) -> tuple[Gpu, ...]:
    """Returns engines with one slot per adapter as far as memory allows, or `slots` at most, so that adapters that fit are loaded once."""
    out = []
    for group in groups:
        rank = max_rank or (int(adapters.rank[list(group)].max()) if len(group) else int(adapters.rank.min()))
        most = engine.most_slots(rank)
        if not most:
            raise InputError(f"{engine.name} on {engine.device}: not one slot of rank {rank} fits; expected a smaller rank or a larger GPU")
        out.append(Gpu(tuple(int(a) for a in group), max(1, min(len(group), slots or most, most)), rank))
    return tuple(out)


def least_loaded(loads: npt.NDArray[np.float64], order: Sequence[int] | Ints, gpus: int) -> list[list[int]]:
    """Gives each adapter, in this order, to the GPU with the least load so far."""
    import heapq

    groups: list[list[int]] = [[] for _ in range(gpus)]
    heap = [(0.0, 0, g) for g in range(gpus)]
    for a in order:
        load, count, g = heapq.heappop(heap)
        groups[g].append(int(a))
        heapq.heappush(heap, (load + float(loads[a]), count + 1, g))
    return groups
