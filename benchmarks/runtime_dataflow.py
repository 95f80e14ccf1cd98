"""Data flow over several APIs: what a task costs, what polling costs, what each part brings, and the peers, in one run as ratios.

    python benchmarks/runtime_dataflow.py            on this machine's cores
    python benchmarks/runtime_dataflow.py --gpu      chains of kernels of PyTorch, Triton and CuPy on an NVIDIA device

Rounds of all ways are interleaved, and medians are shown, because other programs may have the cores.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

from armillary.runtime.dataflow import Apis, Kernel, Sim
from armillary.tasks import Graph, Threads

ROUNDS = 7


def interleaved(ways: dict[str, Callable[[], Any]], rounds: int = ROUNDS) -> dict[str, float]:
    """Median seconds of each way, after one round that warms up."""
    took: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(rounds + 1):
        for name, way in ways.items():
            began = time.perf_counter()
            way()
            if turn:
                took[name].append(time.perf_counter() - began)
    return {name: statistics.median(seconds) for name, seconds in took.items()}


def show(title: str, took: dict[str, float], over: str, per: int = 0) -> None:
    print(title)
    for name, seconds in took.items():
        each = f"  {seconds / per * 1e6:8.1f} µs each" if per else ""
        print(f"  {name:28} {seconds * 1e3:9.2f} ms  {took[over] / seconds:6.2f}×{each}")


def waiting() -> None:
    """40 kernels of 50 ms on a device that has room for all of them, with one worker."""
    kernel = Kernel("sleep", {"sim": 0.05})

    def aware() -> None:
        with Apis(Sim(concurrency=64), pool=40) as apis:
            graph = Graph()
            for _ in range(40):
                apis.add(graph, "sim", kernel)
            apis.run(graph, Threads(1)).raise_first()

    def blocking() -> None:
        with Apis(Sim(concurrency=64), pool=40) as apis:
            graph = Graph()
            for _ in range(40):
                graph.add(lambda: apis.sim.wait(kernel, ()))
            graph.run(Threads(1)).raise_first()

    show("40 kernels of 50 ms, one worker", interleaved({"blocking": blocking, "taskaware": aware}, 1), "blocking")


def polling() -> None:
    """CPU time of the service per event that has happened, and of an idle second."""
    from armillary.runtime.dataflow.awareness.poller import Lane, Pending, Poller

    class Happened:
        def done(self) -> bool:
            return True

        def wait(self) -> None: ...

    took = []
    for _ in range(ROUNDS):
        lanes = [Lane(i, None) for i in range(8)]
        poller = Poller(lanes)
        poller._registered = True
        for i in range(10_000):
            poller.add(lanes[i % 8], Pending(Happened()))
        poller.ask()
        took.append(poller.cpu_s / 10_000 * 1e6)
    print(f"polling: {statistics.median(took):.2f} µs of CPU per completed event (10,000 pending; goal: under 3)")
    with Apis(Sim(latency=1e-4)) as apis:
        graph = Graph()
        apis.add(graph, "sim", Kernel("k", {"sim": None}))
        apis.run(graph, Threads(2)).raise_first()
        began, calls = time.process_time(), apis.sim.poller.calls
        time.sleep(1.0)
        used = 100 * (time.process_time() - began)
        print(f"polling: {used:.2f} % of a core and {apis.sim.poller.calls - calls} calls in a second with nothing pending (goal: < 1 %)")


def ways_of(app: Any, workers: int, techniques: dict[str, Any]) -> tuple[dict[str, Callable[[], Any]], Callable[[], None]]:
    """A lap of each technique, whose APIs stay open until the second result is called."""
    from contextlib import ExitStack

    from armillary.runtime.dataflow.running.technique import Setting

    stack = ExitStack()

    def lap_of(technique: Any) -> Callable[[], Any]:
        lap = stack.enter_context(technique.lap(app, Setting(workers)))

        def fresh() -> None:
            app.reset()
            lap()

        return fresh

    return {name: lap_of(technique) for name, technique in techniques.items()}, stack.close


def compared(title: str, app: Any, techniques: dict[str, Any], over: str, workers: int = 2, per: bool = False) -> None:
    ways, close = ways_of(app, workers, techniques)
    try:
        show(title, interleaved(ways), over, len(app.operations) if per else 0)
    finally:
        close()


def on_cores() -> None:
    from armillary.runtime.dataflow import Blocking, Dask, SingleApi, TaskAware, TaskAwareShared, application

    waiting()
    polling()
    ablations = {
        "blocking": Blocking(), "taskaware": TaskAware(), "chain off": TaskAware(chain=False), "every 50 µs": TaskAware(poll="50us"),
        "every 1 ms": TaskAware(poll="1ms"), "callbacks": TaskAware(notify="callback"), "tokens": TaskAwareShared(),
    }  # fmt: skip
    bare = {"bare queue": SingleApi(), **ablations, "dask": Dask()}
    compared("empty OpenCL kernels, 8 chains of 60", application("empty", 8, 60), bare, "bare queue", per=True)
    compared("empty OpenCL kernels, 1 chain of 400", application("empty", 1, 400), bare, "bare queue", per=True)
    compared("mix, 8 chains of 16", application("mix", 8, 16, 200), ablations, "blocking")
    heat = application("heat", 512, 64, 10)
    compared("heat 512/64 × 10, peer dask.threaded (goal: ≥ 1.5×)", heat, {"dask": Dask(), "taskaware": TaskAware()}, "dask", per=True)
    eager()
    for shape in ((8, 8), (32, 4)):
        app = application("mix", *shape, 40, apis=("sim", "numba"), latency=2e-3)
        compared(f"kernels of 2 ms on another device, {shape[0]} chains of {shape[1]}", app, ablations, "blocking")


def eager() -> None:
    """A transformer block by plain PyTorch with its own gradients, beside ours."""
    import math

    import torch

    from armillary.runtime.dataflow import Sequential, TaskAware, application

    batch, seq, width, layers = 4, 64, 128, 2
    app = application("block", batch, seq, width, layers)
    values = {name: torch.tensor(content) for name, (_, content) in zip(app.data, app.initial)}
    leaves = {name: value.requires_grad_() for name, value in values.items() if name[0] in "wgb"}

    def plain() -> None:
        h = torch.stack([values[f"h0.{s}"] for s in range(batch)])
        for n in range(layers):
            a = torch.nn.functional.layer_norm(h, (width,), leaves[f"g1.{n}"], leaves[f"b1.{n}"])
            q, k, v = (a @ leaves[f"w{name}.{n}"] for name in "qkv")
            h = h + torch.softmax(q @ k.mT / math.sqrt(width), -1) @ v @ leaves[f"wo.{n}"]
            a = torch.nn.functional.layer_norm(h, (width,), leaves[f"g2.{n}"], leaves[f"b2.{n}"])
            h = h + torch.nn.functional.gelu(a @ leaves[f"w1.{n}"], approximate="tanh") @ leaves[f"w2.{n}"]
        (h * torch.stack([values[f"start.{s}"] for s in range(batch)])).sum().backward()

    ways, close = ways_of(app, 2, {"sequential": Sequential(), "taskaware": TaskAware()})
    show("block 4×64×128×2, peer PyTorch eager (whole batch at once)", interleaved({"torch eager": plain, **ways}), "torch eager")
    close()


# On an NVIDIA device: chains of a product, GELU, a product and a normalisation.

CHAINS, LAYERS, TOKENS, WIDTH = 16, 12, 1024, 1024


def on_device() -> None:
    """Chains of PyTorch's kernels, and of PyTorch's with CuPy's and Triton's in between, by hand and as tasks."""
    import torch

    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}")
    torch.manual_seed(0)
    for tokens, width in ((128, 256), (TOKENS, WIDTH)):
        print(f"{CHAINS} chains of {LAYERS} layers, {tokens} tokens of width {width}, float32")
        for small in ("torch", "cupy", "triton"):
            chains_on_device(torch, tokens, width, small)


def chains_on_device(torch: Any, tokens: int, width: int, small: str) -> None:
    weight = torch.randn(2, width, width, device="cuda") / width**0.5
    start = torch.randn(CHAINS, tokens, width, device="cuda")
    state = [(start[c].clone(), torch.empty(tokens, width, device="cuda")) for c in range(CHAINS)]
    first = Kernel("first", {"torch": lambda x, y: torch.mm(x, weight[0], out=y)})
    gelu = Kernel("square", {"torch": lambda y: y.mul_(y.sigmoid()), "cupy": _cupy_swish(small), "triton": _triton_swish(small)})
    second = Kernel("second", {"torch": lambda x, y: torch.mm(y, weight[1], out=x)})
    norm = Kernel("norm", {"torch": lambda x: x.copy_(torch.nn.functional.layer_norm(x, (width,)))})
    count = CHAINS * LAYERS * 4

    def reset() -> None:
        for c, (x, _) in enumerate(state):
            x.copy_(start[c])
        torch.cuda.synchronize()

    def by_hand(streams: int) -> Callable[[], None]:
        pool = [torch.cuda.Stream() for _ in range(streams)]

        def run() -> None:
            reset()
            with torch.no_grad():
                for _ in range(LAYERS):
                    for c, (x, y) in enumerate(state):
                        with torch.cuda.stream(pool[c % streams]):
                            first.variants["torch"](x, y)
                            gelu.variants["torch"](y)
                            second.variants["torch"](x, y)
                            norm.variants["torch"](x)
            torch.cuda.synchronize()

        return run

    def tasks(chain: bool, wait: bool = False) -> Callable[[], None]:
        names = {"torch", small}
        apis = Apis(chain=chain)
        for name in sorted(names):
            apis.bind("triton") if name == "triton" else apis.wrap_torch() if name == "torch" else apis.wrap_cupy()

        def run() -> None:
            reset()
            graph = Graph()
            handles = [graph.data(f"x{c}", x) for c, (x, _) in enumerate(state)]
            for _ in range(LAYERS):
                for c, (x, y) in enumerate(state):
                    calls = (("torch", first, (x, y)), (small, gelu, (y,)), ("torch", second, (x, y)), ("torch", norm, (x,)))
                    for api, kernel, args in calls:
                        if wait:
                            graph.add(apis[api].wait, kernel, args, updates=[handles[c]])
                        else:
                            apis.add(graph, api, kernel, *args, updates=[handles[c]])
            (graph.run(Threads(2)) if wait else apis.run(graph, Threads(2))).raise_first()

        return run

    ways = {"one stream": by_hand(1), "8 streams by hand": by_hand(8)} if small == "torch" else {}
    ways |= {"blocking": tasks(False, True), "taskaware": tasks(True), "chain off": tasks(False)}
    show(f" small kernel by {small}", interleaved(ways), "8 streams by hand" if small == "torch" else "blocking", count)
    by_hand(1)()
    expected = [x.clone() for x, _ in state]
    tasks(True)()
    torch.cuda.synchronize()
    worst = max(float((a - x).abs().max()) for a, (x, _) in zip(expected, state))
    print(f"  largest difference from one stream: {worst:.2g}")


def _cupy_swish(small: str) -> Any:
    if small != "cupy":
        return None
    import cupy

    swish = cupy.ElementwiseKernel("", "float32 y", "y = y / (1 + expf(-y))", "swish")
    return lambda y: swish(y)


def _triton_swish(small: str) -> Any:
    if small != "triton":
        return None
    import triton
    from armillary_swish import swish  # type: ignore[import-not-found]

    return lambda y: swish[(triton.cdiv(y.numel(), 1024),)](y, y.numel(), BLOCK=1024)


SWISH = """
import triton
import triton.language as tl


@triton.jit
def swish(y, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    value = tl.load(y + at, mask=inside)
    tl.store(y + at, value * tl.sigmoid(value), mask=inside)
"""


def main() -> None:
    if "--gpu" in sys.argv:
        import pathlib
        import tempfile

        # Triton reads the source of a kernel from its file, and this one is written only where there is Triton.
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "armillary_swish.py").write_text(SWISH)
            sys.path.insert(0, folder)
            on_device()
    else:
        on_cores()


if __name__ == "__main__":
    main()
