"""Jacobi, conjugate gradients and messages on one GPU: the uniform layer over NCCL, and torch.distributed called directly.

Both programs run in one process in turn, round by round, and the rank exchanges halos with itself. The script needs PyTorch with CUDA and
NumPy.

python benchmarks/gpu/backends_nccl.py [--n 16384] [--iterations 200] [--grid 64] [--rounds 15] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
import tempfile
import time
import types
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))


def lazy_stub(name: str, file: str) -> tuple[Any, Any, Any]:
    """Do what lazy-loader does with a stub, for machines that lack it."""
    import importlib

    found = re.findall(r"^from (\.[\w.]*) import (\w+) as \w+$", Path(file).with_suffix(".pyi").read_text(), re.MULTILINE)
    homes = {attribute: module for module, attribute in found}

    def get(attribute: str) -> Any:
        if attribute not in homes:
            raise AttributeError(f"module {name} has no {attribute}")
        return getattr(importlib.import_module(homes[attribute], name), attribute)

    return get, lambda: list(homes), list(homes)


try:
    import lazy_loader  # noqa: F401
except ImportError:
    shim = types.ModuleType("lazy_loader")
    shim.attach_stub = lazy_stub  # type: ignore[attr-defined]
    sys.modules["lazy_loader"] = shim

import numpy as np  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

from armillary.comm.communicator import Communicator  # noqa: E402
from armillary.comm.counters import Tally  # noqa: E402


class DeviceRanks(Communicator):
    """One rank with one GPU, which offers only what the coordinator's calls need."""

    _transfers = "armillary.comm.torch_distributed.transfers:NcclTransfers"

    def __init__(self, group: Any) -> None:
        super().__init__(0, [0], Tally())
        self.__dict__["group_of_torch"] = group

    @property
    def native(self) -> Any:
        """The group of torch."""
        return self.__dict__["group_of_torch"]

    @property
    def _shadow(self) -> Any:
        return self

    def barrier(self) -> None:
        """Wait until everything that was started is done; there is no other rank."""
        torch.cuda.synchronize()


def measured(native: Any, uniform: Any, rounds: int) -> dict[str, Any]:
    """Measure both in turn, synchronised with the device around each; the overhead is the median of the ratios of the rounds."""
    same = bits(native()) == bits(uniform())
    seconds: list[list[float]] = [[], []]
    for turn in range(rounds):
        for i in (0, 1) if turn % 2 else (1, 0):
            torch.cuda.synchronize()
            start = time.perf_counter()
            (native, uniform)[i]()
            torch.cuda.synchronize()
            seconds[i].append(time.perf_counter() - start)
    low, _, high = statistics.quantiles(seconds[0], n=4)
    ratios = [u / n for n, u in zip(*seconds)]
    return {
        "native_s": statistics.median(seconds[0]),
        "uniconn_s": statistics.median(seconds[1]),
        "overhead_percent": 100 * (statistics.median(ratios) - 1),
        "overhead_quartiles": [100 * (q - 1) for q in statistics.quantiles(ratios, n=4)],
        "spread_percent": 100 * (high - low) / statistics.median(seconds[0]),
        "same_bits": same,
    }


def bits(answer: Any) -> Any:
    """Return what is compared: the bytes of tensors, and other answers as they are."""
    if isinstance(answer, tuple):
        return tuple(bits(part) for part in answer)
    return answer.cpu().numpy().tobytes() if isinstance(answer, torch.Tensor) else answer


def main() -> None:
    """Print a table and JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--n", type=int, default=16384)
    parser.add_argument("--iterations", type=int, default=200)
    parser.add_argument("--grid", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("no NVIDIA GPU that torch can use")
    torch.cuda.set_device(0)
    with tempfile.TemporaryDirectory() as folder:
        store = dist.FileStore(str(Path(folder) / "store"), 1)
        dist.init_process_group("nccl", store=store, rank=0, world_size=1, device_id=torch.device("cuda", 0))
        table = run(given)
        dist.destroy_process_group()
    about = {
        "gpu": torch.cuda.get_device_name(0),
        "torch": torch.__version__,
        "nccl": ".".join(map(str, torch.cuda.nccl.version())),
        "python": sys.version.split()[0],
        "rounds": given.rounds,
    }
    print(f"{'program':24}{'native s':>12}{'uniconn s':>12}{'overhead %':>12}{'spread %':>10}  bits")
    for name, row in table.items():
        said = "same" if row["same_bits"] else "DIFFERENT"
        figures = f"{row['native_s']:12.6f}{row['uniconn_s']:12.6f}{row['overhead_percent']:12.2f}{row['spread_percent']:10.1f}"
        print(f"{name:24}{figures}  {said}")
    text = json.dumps({"about": about, "programs": table}, indent=1)
    print(text)
    if given.json:
        given.json.write_text(text)


def run(given: argparse.Namespace) -> dict[str, Any]:
    """Every program, both ways."""
    from armillary.network.backends import programs, torch_distributed

    group = dist.group.WORLD
    work: dict[str, tuple[str, dict[str, Any]]] = {
        f"jacobi {given.n}^2": ("jacobi", {"n": given.n, "iterations": given.iterations, "periodic": True}),
        "jacobi 1024^2": ("jacobi", {"n": 1024, "iterations": given.iterations, "periodic": True}),
        f"cg {given.grid}^3": ("cg", {"grid": given.grid}),
    }
    for name, nbytes, exchanges in (("8 B", 8, 200), ("64 KiB", 1 << 16, 200), ("1 MiB", 1 << 20, 100), ("64 MiB", 1 << 26, 20)):
        work[f"to itself {name}"] = ("pingpong", {"nbytes": nbytes, "exchanges": exchanges})
    for name, nbytes in (("8 B", 8), ("64 KiB", 1 << 16), ("64 MiB", 1 << 26)):
        work[f"allreduce {name}"] = ("allreduce", {"nbytes": nbytes, "exchanges": 100})
    table = {}
    for name, (program, options) in work.items():
        native, uniform = (getattr(text, program)(DeviceRanks(group), **options) for text in (torch_distributed, programs))
        table[name] = measured(native, uniform, given.rounds)
        del native, uniform
        torch.cuda.empty_cache()
    assert np is not None
    return table


if __name__ == "__main__":
    main()
