"""Measures matrix products, attention, element-wise kernels and copies on a real device, for the cost model (PyTorch).

On CUDA the calls of one repeat form a graph between two events, so that no launch is counted. The calls cycle through enough copies of a
weight that none is still in the cache, as when a model decodes. On other devices the clock of the host is used, for tests of this file.
"""

from __future__ import annotations

import datetime
import json
import shutil
import statistics
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from armillary.errors import InputError
from armillary.llm.cost.calibration import Fit, Point, fit
from armillary.llm.cost.counts import local_shape
from armillary.llm.cost.device import Chip, chip
from armillary.llm.model.shapes import Model
from armillary.timing import Stopwatch, timed

ROWS = (1, 8, 32, 128, 256, 512, 1024, 2048, 4096, 8192)
CONTEXTS = (512, 1024, 2048, 4096, 8192, 16384)
#: Bytes of the copies of one weight together, which exceed the cache of any device.
TURNS_BYTES = 256 << 20


@dataclass(frozen=True)
class Work:
    """What is measured: the numbers of rows, the contexts, the models and degrees whose matrices are taken, and the repeats."""

    rows: Sequence[int] = ROWS
    contexts: Sequence[int] = CONTEXTS
    models: Sequence[str] = ("llama-3-8b", "qwen2.5-32b")
    tps: Sequence[int] = (1, 8)
    warm: int = 10
    repeats: int = 50
    #: Bytes of the copies of one weight together, and bytes of a copy to or from the host.
    turns_bytes: int = TURNS_BYTES
    copy_bytes: int = 256 << 20


def gemm_shapes(work: Work) -> list[tuple[str, int, int]]:
    """The distinct (op, outputs, inputs) of the models' matrix products."""
    found: dict[tuple[int, int], str] = {}
    for name in work.models:
        model = Model.preset(name)
        for tp in work.tps:
            for role in ("qkv", "o", "gate_up", "down"):
                shapes = [local_shape(model, t, tp) for t in model.layer(0).role(role)]
                found.setdefault((sum(s[2] for s in shapes), shapes[0][1]), role)
    return [(op, n, k) for (n, k), op in found.items()]


#: The least milliseconds of one repeat.
_SHORT_MS = 1.0


class _Timer:
    """Measures milliseconds of calls on one device: `ms(calls)` runs a list of calls back to back, many times."""

    def __init__(self, torch: Any, device: str, work: Work) -> None:
        self.torch, self.device, self.work, self.cuda = torch, device, work, device.startswith("cuda")

    def ms(self, calls: Sequence[Callable[[], Any]]) -> tuple[float, float, float]:
        """The median, 10th and 90th percentile of the milliseconds of one call."""
        found = self._once(calls)
        if self.cuda and found[0] * len(calls) < _SHORT_MS:
            # A graph takes about 15 µs to start, so short graphs are made long enough to hide that.
            found = self._once([*calls] * (1 + int(_SHORT_MS / (found[0] * len(calls)))))
        return found

    def _once(self, calls: Sequence[Callable[[], Any]]) -> tuple[float, float, float]:
        run = self._graph(calls) if self.cuda else lambda: [call() for call in calls]
        for _ in range(self.work.warm):
            run()
        times = sorted(t / len(calls) for t in (self._cuda(run) if self.cuda else self._host(run)))
        return statistics.median(times), times[len(times) // 10], times[-1 - len(times) // 10]

    def _graph(self, calls: Sequence[Callable[[], Any]]) -> Callable[[], Any]:
        torch = self.torch
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for call in calls:
                call()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for call in calls:
                call()
        replay: Callable[[], Any] = graph.replay
        return replay

    def _cuda(self, run: Callable[[], Any]) -> list[float]:
        event = self.torch.cuda.Event
        marks = [(event(enable_timing=True), event(enable_timing=True)) for _ in range(self.work.repeats)]
        for start, stop in marks:
            start.record()
            run()
            stop.record()
        self.torch.cuda.synchronize()
        return [start.elapsed_time(stop) for start, stop in marks]

    def _host(self, run: Callable[[], Any]) -> list[float]:
        found = []
        for _ in range(self.work.repeats):
            with Stopwatch() as watch:
                run()
            found.append(1e3 * watch.seconds)
        return found


def points(torch: Any, device: str, work: Work, said: Callable[[str], None] = lambda _: None) -> Iterator[Point]:
    """Yields the time of every kernel, one after another."""
    timer, dtype = _Timer(torch, device, work), torch.bfloat16
    for op, n, k in gemm_shapes(work):
        turns = max(1, min(64, -(-work.turns_bytes // (2 * n * k))))
        weights = [torch.randn(k, n, device=device, dtype=dtype) for _ in range(turns)]
        for m in work.rows:
            x = torch.randn(m, k, device=device, dtype=dtype)
            calls = [partial(torch.mm, x, w) for w in (weights if 2.0 * m * n * k < 4e11 else weights[:1])]
            yield _point(op, m, n, k, timer.ms(calls))
        said(f"{op} {k} × {n}")
        del weights
    yield from _attention(torch, device, work, timer)
    said("attention")
    yield from _elements(torch, device, work, timer)
    said("element-wise kernels")


def _point(
    op: str, m: int, n: int, k: int, ms: tuple[float, float, float], moved: float | None = None, flops: float | None = None
) -> Point:
    return Point(op, m, n, k, ms[0], ms[1], ms[2], moved, flops)


def _attention(torch: Any, device: str, work: Work, timer: _Timer) -> Iterator[Point]:
    heads, d, batch = 32, 128, 16
    attend = torch.nn.functional.scaled_dot_product_attention
    for c in work.contexts:
        q, k, v = (torch.randn(1, heads, c, d, device=device, dtype=torch.bfloat16) for _ in range(3))
        ms = timer.ms([partial(attend, q, k, v, is_causal=True)])
        yield _point("attention_prefill", c, heads, d, ms, 2.0 * 4 * heads * d * c, 2.0 * heads * d * c * (c + 1))
    for c in work.contexts:
        k, v = (torch.randn(batch, heads, c, d, device=device, dtype=torch.bfloat16) for _ in range(2))
        q = torch.randn(batch, heads, 1, d, device=device, dtype=torch.bfloat16)
        ms = timer.ms([partial(attend, q, k, v)])
        yield _point("attention_decode", batch, heads, c, ms, 2.0 * 2 * batch * heads * d * c, 4.0 * batch * heads * d * c)


def _elements(torch: Any, device: str, work: Work, timer: _Timer) -> Iterator[Point]:
    functional, wide, hidden = torch.nn.functional, 14336, 4096
    for m in work.rows:
        x, y = (torch.randn(m, hidden, device=device, dtype=torch.bfloat16) for _ in range(2))
        gain = torch.ones(hidden, device=device, dtype=torch.bfloat16)
        gate, up = (torch.randn(m, wide, device=device, dtype=torch.bfloat16) for _ in range(2))
        out, turned = torch.empty_like(gate), torch.empty_like(x)

        def act(gate: Any = gate, up: Any = up, out: Any = out) -> Any:
            return torch.mul(functional.silu(gate), up, out=out)

        def rope(x: Any = x, gain: Any = gain, out: Any = turned) -> Any:
            return torch.addcmul(torch.mul(x, gain, out=out), x, gain, out=out)

        # Passes over memory that these kernels make, two bytes each: silu 2 and product 3; product 2 and sum of products 3.
        yield _point("norm", m, hidden, 1, timer.ms([partial(functional.rms_norm, x, (hidden,), gain)]), 4.0 * m * hidden)
        yield _point("act", m, wide, 1, timer.ms([act]), 10.0 * m * wide)
        yield _point("rope", m, hidden, 1, timer.ms([rope]), 10.0 * m * hidden)
        yield _point("residual", m, hidden, 1, timer.ms([partial(torch.add, x, y, out=turned)]), 6.0 * m * hidden)


def copies(torch: Any, device: str, work: Work) -> dict[str, float]:
    """Bytes/s of copies inside the device, and of copies in both directions between the device and page-locked or ordinary host memory."""
    timer = _Timer(torch, device, work)
    here = [torch.empty(work.copy_bytes, dtype=torch.uint8, device=device) for _ in range(2)]
    found = {"device_copy": 2 * work.copy_bytes / timer.ms([lambda: here[0].copy_(here[1])])[0] * 1e3}
    if not timer.cuda:
        return found
    for name, pinned in (("pinned", True), ("pageable", False)):
        host = torch.empty(work.copy_bytes, dtype=torch.uint8, pin_memory=pinned)
        for way, target, source in (("to_device", here[0], host), ("to_host", host, here[0])):
            copy = partial(target.copy_, source, non_blocking=pinned)
            found[f"{name}_{way}"] = work.copy_bytes / timed(copy, here[0], min_seconds=0, min_calls=12).median
    return found


def calibrate(
    device: str = "cuda:0", *, on: Chip | None = None, work: Work | None = None, said: Callable[[str], None] = lambda _: None
) -> tuple[dict[str, Any], Fit]:
    """Measures a device and fits the roofline; returns the content of a calibration file and the fit. `on` states the peaks of the device;
    by default it is found in the catalogue by name.
    """
    try:
        import torch
    except ImportError:
        raise InputError("calibrating needs PyTorch with CUDA: pip install armillary[learn]") from None
    work = work or Work()
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise InputError(f"--device {device}: PyTorch finds no CUDA device here")
    name = torch.cuda.get_device_name(device) if device.startswith("cuda") else "cpu"
    if on is None:
        on = chip(name)
    measured = list(points(torch, device, work, said))
    found = fit(measured, on)
    content = {
        "id": on.name, "device": name, "also": _also(on), "driver": _driver(torch, device), "torch": torch.__version__,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(), **found.as_json(), "copies": copies(torch, device, work),
        "points": [p.as_json() for p in measured],
    }  # fmt: skip
    return content, found


def _also(on: Chip) -> list[str]:
    """Other names that the catalogue has for the same device."""
    names = {on.name}
    try:
        from armillary.cluster import parts

        for each in parts()["device"]:
            other = chip(each)
            if (other.peaks, other.bandwidth, other.memory, other.link_rate) == (on.peaks, on.bandwidth, on.memory, on.link_rate):
                names.add(each)
    except (ImportError, InputError):
        pass
    return sorted(names)


def _driver(torch: Any, device: str) -> str:
    if not device.startswith("cuda"):
        return "none"
    said = f"CUDA {torch.version.cuda}"
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return said
    asked = subprocess.run([tool, "--query-gpu=driver_version", "--format=csv,noheader"], capture_output=True, text=True, timeout=30)
    return f"{asked.stdout.splitlines()[0].strip()}, {said}" if asked.returncode == 0 and asked.stdout.strip() else said


def write_calibration(content: dict[str, Any], path: str | Path) -> None:
    """Writes a calibration file that a person can read, with one point per line."""
    rest = {k: v for k, v in content.items() if k != "points"}
    head = json.dumps(rest, indent=1)[:-2]
    lines = ",\n  ".join(json.dumps(p) for p in content["points"])
    Path(path).write_text(f'{head},\n "points": [\n  {lines}\n ]\n}}\n', encoding="utf-8")
