"""How fast offloading is planned and simulated on this machine, and what its hooks cost.

python benchmarks/training_offload.py prints seconds of: 100 iterations over 10,000 tensors, planned and simulated (goal 2 s); the plan of
one such model (goal 50 ms); and real training of a small transformer: plain, wrapped with everything resident (microseconds of hooks per
access, goal 20), and with half of it in files under each technique, as a multiple of plain training in the same run. Last, one JSON
object. The peer on a GPU, FSDP2 with CPU offload, is in benchmarks/gpu/offload.py.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from typing import Any

import torch

from armillary.llm import TrainableTiny
from armillary.llm.tiny.transformer import Shape
from armillary.training.offload import LayerToLayer, Lru, Machine, Offloader, OffloadWork, TenCache, ZeroInfinity, simulate

TENSORS, ITERATIONS = 10_000, 100
SHAPE = Shape(384, 6, 12, 12, 32, 1536, 1024, 1e4, 1e-5, 64, False)
STEPS = 6


def many() -> OffloadWork:
    """Ten thousand tensors of three sizes, two per module, of which half fit."""
    sizes = [(33 << 20, 134 << 20, 33 << 20)[i % 3] if i % 2 == 0 else 8192 for i in range(TENSORS)]
    ahead = [(0, i // 16, [i, i + 1], 1e-3) for i in range(0, TENSORS, 2)]
    machine = Machine("large", "h100-80", sum(sizes) / 2 + 2.0**30, 20.0 * sum(sizes), 55e9, 1e-5)
    back = [(1, layer, used, 2e-3) for _, layer, used, _ in reversed(ahead)]
    return OffloadWork.of("many", machine, sizes, ahead + back, iterations=ITERATIONS)


def simulated() -> dict[str, float]:
    """Seconds of planning once, and of planning and simulating everything."""
    work, technique = many(), TenCache(gpu_factor=0.0)
    few = work.with_iterations(2)
    simulate(few, technique.schedule(few))
    start = time.perf_counter()
    technique.window(work)
    planned = time.perf_counter() - start
    start, cpu = time.perf_counter(), time.process_time()
    simulate(work, technique.schedule(work))
    return {"plan": planned, "100 iterations": time.perf_counter() - start, "100 iterations, CPU": time.process_time() - cpu}


def steps(model: Any, optimizer: Any, count: int) -> list[float]:
    """Seconds of each step."""
    rng, seconds = torch.Generator().manual_seed(0), []
    for _ in range(count):
        ids = torch.randint(0, SHAPE.vocab, (2, 65), generator=rng)
        start = time.perf_counter()
        optimizer.zero_grad()
        model.loss(ids[:, :-1], ids[:, 1:]).backward()
        optimizer.step()
        seconds.append(time.perf_counter() - start)
    return seconds


def real() -> dict[str, float]:
    """Median seconds per step: plain, wrapped with all of it resident, and with half of it."""
    torch.set_num_threads(1)
    model = TrainableTiny(SHAPE)
    total = sum(p.numel() * p.element_size() for p in model.parameters())
    found = {"plain": statistics.median(steps(model, torch.optim.AdamW(model.parameters()), STEPS)[2:])}
    ours = TenCache(slack=0)
    runs = {"10cache, all resident": (ours, 1.01), "10cache": (ours, 0.5), "layer-to-layer": (LayerToLayer(), 0.5), "lru": (Lru(), 0.5),
            "zero-infinity": (ZeroInfinity(), 0.5)}  # fmt: skip
    for name, (technique, share) in runs.items():
        model = TrainableTiny(SHAPE)
        with (
            tempfile.TemporaryDirectory() as folder,
            Offloader(model, gpu_bytes=share * total, nvme_dir=folder, fast="ram", slow="disk", technique=technique) as off,
        ):
            found[name] = statistics.median(steps(model, off.optimizer(torch.optim.AdamW), STEPS)[2:])
    return found


def hooks() -> float:
    """CPU microseconds of hooks per access: a forward and backward pass of tiny modules, wrapped and plain, with everything resident."""
    torch.set_num_threads(1)
    seconds = []
    for wrapped in (False, True):
        model = torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(200)))
        x = torch.randn(1, 8)
        off = Offloader(model, gpu_bytes=1e9, device="cpu", technique=TenCache(slack=0)) if wrapped else None
        each = []
        for _ in range(12):
            start = time.process_time()
            model(x).sum().backward()
            each.append(time.process_time() - start)
        seconds.append(statistics.median(each[3:]))
        if off is not None:
            off.close()
    return 1e6 * (seconds[1] - seconds[0]) / (2 * 400)


def main() -> None:
    """Prints every figure."""
    found: dict[str, Any] = {"simulated": simulated(), "hooks_us": hooks(), "real": real()}
    for name, seconds in found["simulated"].items():
        print(f"{name:24} {seconds:8.3f} s")
    print(f"{'hooks per access':24} {found['hooks_us']:8.1f} µs")
    for name, seconds in found["real"].items():
        print(f"{name:24} {seconds:8.3f} s  {seconds / found['real']['plain']:6.2f} × plain")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
