"""Selected inverses on a CUDA device: a year of a field of 500 points, the streaming path, and answers equal to the host's.

python benchmarks/gpu/selinv.py prints a table and one JSON object. Needs PyTorch with CUDA; CuPy where it is there.
"""

from __future__ import annotations

import json
import sys
import time
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch

from armillary.numerics.selinv.blocks.block_arrow import BlockArrow
from armillary.numerics.selinv.costs.work import whole_work
from armillary.numerics.selinv.inversion.factorisation import factor, selected_inverse


def chain(n: int, b: int, a: int, kind: str = "real") -> BlockArrow:
    """A chain of dense blocks, positive definite by dominance."""
    rng = np.random.default_rng(0)

    def draw(*shape: int) -> Any:
        x = rng.normal(size=shape)
        return x + 1j * rng.normal(size=shape) if kind == "complex" else x

    few = min(n, 8)
    diagonal, lower, arrow, tip = draw(few, b, b), draw(few, b, b), draw(few, a, b), draw(a, a)
    diagonal = diagonal + diagonal.conj().transpose(0, 2, 1) + (8 * np.sqrt(b) + 4 * a) * np.eye(b)
    tip = tip + tip.conj().T + 4.0 * n * b * np.eye(a)
    index = np.arange(n) % few
    return BlockArrow(diagonal[index], lower[index[: n - 1]], arrow[index], tip)


def both(blocks: BlockArrow, **how: Any) -> tuple[float, float, Any, Any]:
    """Seconds of factor and inverse, the factor and the inverse."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    f = factor(blocks, check=False, **how)
    torch.cuda.synchronize()
    middle = time.perf_counter()
    x = selected_inverse(f)
    torch.cuda.synchronize()
    return middle - start, time.perf_counter() - middle, f, x


def on_host(x: Any) -> Any:
    """As NumPy."""
    return x if isinstance(x, np.ndarray) else x.get() if hasattr(x, "get") else x.cpu().numpy()


def same_as_host() -> dict[str, float]:
    """The largest difference from the host's blocks over their largest number, by kind of array and of numbers."""
    found = {}
    for kind in ("real", "complex"):
        for a in (0, 3):
            blocks = chain(12, 70, a, kind)
            expected, ways = selected_inverse(factor(blocks)), {"torch": blocks.mapped(lambda x: torch.from_numpy(x).cuda())}
            if find_spec("cupy") is not None:
                import cupy

                ways["cupy"] = blocks.mapped(cupy.asarray)
            for name, there in ways.items():
                f = factor(there)
                x = selected_inverse(f)
                worst = 0.0
                for part in ("diagonal", "lower", "arrow"):
                    mine, theirs = on_host(getattr(x.part, part)), getattr(expected.part, part)
                    worst = max(worst, float(np.abs(mine - theirs).max(initial=0) / np.abs(expected.part.diagonal).max()))
                rhs = np.ones(blocks.order)
                worst = max(worst, float(np.abs(f.solve(rhs) - factor(blocks).solve(rhs)).max()))
                found[f"{name} {kind} a={a}"] = worst
    return found


def streaming(n: int, b: int, a: int) -> dict[str, Any]:
    """Streamed and resident: the same bits, and how long each takes."""
    blocks = chain(n, b, a)
    resident = both(blocks, device="cuda", stream=False)
    both(blocks, device="cuda", stream=True)
    streamed = both(blocks, device="cuda", stream=True)
    resident = both(blocks, device="cuda", stream=False)
    pairs = [(getattr(resident[3].part, part), getattr(streamed[3].part, part)) for part in ("diagonal", "lower", "arrow")]
    found: dict[str, Any] = {
        "equal bits": all(np.array_equal(on_host(x), on_host(y)) for x, y in pairs),
        "resident [s], with the copy to the device": sum(resident[:2]),
        "streamed [s]": sum(streamed[:2]),
        "counters": vars(streamed[2].streamed),
    }
    if find_spec("cupy") is not None:
        through = both(blocks, device="cupy", stream=True)
        found["cupy streamed [s]"] = sum(through[:2])
        kept = both(blocks, device="cupy", stream=False)
        found["cupy equal bits"] = all(
            np.array_equal(on_host(getattr(through[3].part, part)), on_host(getattr(kept[3].part, part)))
            for part in ("diagonal", "lower", "arrow")
        )
    return found


def year(n: int, b: int, a: int) -> dict[str, Any]:
    """The blocks on the device: median of three after one."""
    blocks = chain(n, b, a).mapped(lambda x: torch.from_numpy(x).cuda())
    torch.cuda.reset_peak_memory_stats()
    times = [both(blocks)[:2] for _ in range(4)][1:]
    times.sort(key=sum)
    seconds = sum(times[1])
    return {
        "factor [s]": times[1][0],
        "inverse [s]": times[1][1],
        "seconds": seconds,
        "TFLOP/s": whole_work(n, b, a).flops / seconds / 1e12,
        "peak [GB]": torch.cuda.max_memory_allocated() / 1e9,
    }


def main() -> None:
    """Prints what was found."""
    n, b, a = (int(x) for x in (sys.argv[1:] or ["365", "500", "10"]))
    found: dict[str, Any] = {"device": torch.cuda.get_device_name(), "torch": torch.__version__}
    for name, work in (
        ("differs from host by", same_as_host),
        (f"n={n} b={b} a={a}", lambda: year(n, b, a)),
        ("n=64 b=400 a=4 streamed", lambda: streaming(64, 400, 4)),
    ):
        found[name] = work()
        print(name)
        for key, value in found[name].items():
            print(f"  {key:45s} {value}", flush=True)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
