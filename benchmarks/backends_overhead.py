"""The cost of the uniform layer over mpi4py and over threads called directly, and beside torch.distributed with Gloo, turn by turn.

python benchmarks/backends_overhead.py [--rounds 21] [--scale small] [--no-torch]
"""

from __future__ import annotations

import argparse
import importlib.util
from typing import Any

from armillary import catalogue
from armillary.network.backends import TorchDistributed, Uniconn, measure
from armillary.network.backends.arena import native_of


def row(case: Any, rounds: int, peer: bool) -> str:
    """Return one line of the table: medians, the overhead, and how many times as long as Uniconn the peer takes."""
    work = case.parameters
    native = native_of(work["backend"])
    texts = [native.texts, Uniconn.texts, *([TorchDistributed.texts] if peer else [])]
    found = measure(texts, work["program"], work["options"], work["backend"], work["ranks"], rounds)
    own, twin = found[Uniconn.texts], found[native.texts]
    best = 100 * (min(own.seconds) / min(twin.seconds) - 1)
    ratio = f"{found[TorchDistributed.texts].median / own.median:10.1f}x" if peer else f"{'':11}"
    exchanges = work["options"].get("exchanges")
    added = f"{1e6 * (min(own.seconds) - min(twin.seconds)) / exchanges / 4:10.2f}" if work["program"] == "pingpong" else f"{'':10}"
    noisy = " noisy" if own.noisy else ""
    return f"{case.name:26}{1e3 * twin.median:11.3f}{1e3 * own.median:11.3f}{own.overhead:11.2f}{best:11.2f}{added}{ratio}{noisy}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--scale", default="small", choices=["tiny", "small", "large"])
    parser.add_argument("--no-torch", action="store_true")
    given = parser.parse_args()
    torch = importlib.util.find_spec("torch") is not None and not given.no_torch
    print(f"{'case':26}{'native ms':>11}{'uniconn ms':>11}{'over %':>11}{'best %':>11}{'us per call':>10}{'gloo takes':>11}")
    for case in catalogue.arena("network/backends").built_in(given.scale):
        backend = case.parameters["backend"]
        if backend in ("mpi", "threads"):
            print(row(case, given.rounds, torch and backend == "mpi"), flush=True)


if __name__ == "__main__":
    main()
