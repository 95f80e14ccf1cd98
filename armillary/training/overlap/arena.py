"""Which transfer mechanism and which overlap schedule hides the communication of a fused multi-GPU operator best?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armillary.arena import Arena, Artifact, Case, Constant, Metric, NotForThisCase, Outcome, Result, parameter

if TYPE_CHECKING:
    import numpy as np

    from .workload import OverlapWork

_SIMULATED = frozenset({"simulated"})

overlap = Arena(
    "training/overlap",
    question="For this fused operator on these GPUs, which transfer mechanism and which overlap schedule hides communication best, and how "
    "much of it is left?",
    metrics=[
        Metric("op_s", unit="s", kind="by case", doc="seconds of the whole operator, the launch included"),
        Metric("exposed_comm_fraction", scale="difference", on=_SIMULATED, doc="share of op_s that infinitely fast links would save"),
        Metric("tflops_per_device", unit="TFLOP/s", better="higher", on=_SIMULATED | {"program"}, doc="useful flops of the busiest device"),
        Metric("link_utilisation", better="higher", scale="difference", on=_SIMULATED,
               doc="bytes in the busier direction over what the link could carry, averaged over the devices"),
        Metric("comm_sms", better=None, on=_SIMULATED, doc="SMs that only communicate, or that library calls hold"),
        Metric("device_lines", kind="modelled", scale="difference", on=_SIMULATED,
               doc="lines of device code to write; 0 where kernels come from a library"),
        Metric("promise_error", scale="difference", on=_SIMULATED, doc="|promised seconds / simulated seconds − 1|"),
        Metric("result_error", kind="by case", steady=True, on=frozenset({"measured"}),
               doc="largest difference from NumPy's result in float64, relative to its largest element"),
    ],
    techniques={
        "sequential": ".sequential:Sequential",
        "stream-overlap": ".stream_overlap:StreamOverlap",
        "copy-engine": ".copy_engine:CopyEngine",
        "intra-sm-only": ".intra_sm_only:IntraSmOnly",
        "inter-sm-only": ".inter_sm_only:InterSmOnly",
        "parallelkittens": ".parallelkittens:ParallelKittens",
    },
    papers={"parallelkittens": "parallelkittens"},
    baseline="sequential",
    tradeoff=("op_s", "link_utilisation"),
    repeats=1,
    telling=[
        "gemm_rs-8192-h100", "gemm_rs-16384-h100", "gemm_ar-8192-h100", "gemm_ar-16384-h100", "ring_attention-4096-h100",
        "ring_attention-32768-h100", "moe_dispatch_gemm-1024-h100", "moe_dispatch_gemm-4096-h100",
    ],
    constants=[
        Constant("copy engine", "82 %, 81 %", "", "of the link's rate on H100 and B200, 1 GB transfers (ParallelKittens); 7 µs per launch"),
        Constant("TMA", "78 %, 74 %, 15 SMs", "", "of the link's rate, and SMs that saturate it; messages of 2 KB (ParallelKittens)"),
        Constant("registers", "76 %, 70 %, 76 SMs", "", "the same with messages of 128 B (ParallelKittens)"),
        Constant("signals", "64 ns, 0.83 µs, 1.5 µs", "", "in an SM, through device memory, to a device (ParallelKittens; 1 to 2 µs)"),
        Constant("launch", 4e-6, "s", "of a kernel; 1 µs more between kernels of a stream (ours)"),
        Constant("library call", "12.5 µs, 24 SMs", "",
                 "10 to 15 µs; NCCL's channels (ours); bandwidth ÷ 1.7 for less than 4 MiB per rank, which is NCCL's buffer"),
        Constant("ε", 0.02, "", "slowdown of a tile by communication in the same SM"),
        Constant("shares of the peak", "armillary.llm", "", "H100 calibrated (0.82 of products, 0.55 of that in attention); B200 is not"),
        Constant("L2", "√SMs", "", "tiles of a wave share operands, so their reads count this many times less (ours)"),
    ],
)  # fmt: skip

DEVICES = {"h100": "h100-80", "b200": "b200-180"}
#: Sides of products, tokens of attention, and tokens per device of mixtures of experts; the tiny scale has the first of each.
SIDES, TOKENS, ROUTED = (4096, 8192, 16384), (4096, 16384, 32768, 131072), (1024, 4096, 8192)
#: How many times the rows, or the tokens, of its name a case has.
ROWS = {"tiny": 0.25, "small": 1.0, "large": 2.0}
#: Real runs: the operators, and by scale the side of a product, with 4 ranks.
REAL = ("gemm_rs", "gemm_ar", "ring_attention")
REAL_SIDE = {"tiny": 64, "small": 512, "large": 512}


@overlap.cases
def cases(scale: str) -> Iterator[Case]:
    """Tensor-, sequence- and expert-parallel operators on 8 GPUs of two kinds, plain collectives, devices that are slower than planned, and
    real runs on 4 ranks of this machine.
    """
    tiny, rows = scale == "tiny", ROWS[scale]
    few = 1 if tiny else None
    for name, device in DEVICES.items():
        if tiny and name != "h100":
            continue
        for side in SIDES[:few]:
            for op in ("gemm_rs", "ag_gemm", "gemm_ar"):
                yield Case(f"{op}-{side}-{name}", _made, {"device": device, **_product(op, side, rows)}, _SIMULATED | {"tp", "program"})
        for tokens in TOKENS[:few]:
            for op in ("ring_attention", "ulysses_attention"):
                sizes = {"op": op, "devices": 8, "batch": 2 if tiny else round(16 * rows), "heads": 16, "sequence": tokens, "width": 128}
                yield Case(f"{op}-{tokens}-{name}", _made, {"device": device, **sizes}, _SIMULATED | {"sp", "program"})
        for tokens in ROUTED[:few]:
            facts = {"device": device, **_experts(round(rows * tokens), 32 if tiny else 256)}
            yield Case(f"moe_dispatch_gemm-{tokens}-{name}", _made, facts, _SIMULATED | {"ep", "program"})
    for op in ("all_reduce",) if tiny else ("all_gather", "reduce_scatter", "all_reduce", "all_to_all"):
        facts = {"device": "h100-80", "op": op, "devices": 8, "m": round(rows * 8192), "n": 8192}
        yield Case(f"{op}-8192-h100", _made, facts, _SIMULATED | {"plain"})
    for op in ("gemm_rs",) if tiny else ("gemm_rs", "gemm_ar"):
        yield Case(f"misfit-{op}-8192", _made, {"device": "h100-80", **_product(op, 8192, rows)}, _SIMULATED | {"misfit", "program"})
    for op in REAL if scale != "tiny" else REAL[:1]:
        yield Case(f"real-{op}", _real, {"op": op, "ranks": 4, "side": REAL_SIDE[scale]}, frozenset({"measured"}))


def _product(op: str, side: int, rows: float) -> dict[str, Any]:
    """A product whose inner or outer dimension is cut over 8 devices."""
    n, k = (side // 8, side) if op == "ag_gemm" else (side, side // 8)
    return {"op": op, "devices": 8, "m": round(rows * side), "n": n, "k": k}


def _experts(tokens: int, experts: int) -> dict[str, Any]:
    """A layer as DeepSeek-V3 has it."""
    return {"op": "moe_dispatch_gemm", "devices": 8, "tokens": tokens, "experts": experts, "top_k": 8, "hidden": 7168, "ffn": 2048}


@dataclass(frozen=True)
class Reading:
    """How a table of operators is read, and the device that they run on."""

    device: str = parameter("h100-80", "the device: h100-80, h200-141, h800 or b200-180")
    devices: int = parameter(8, "devices, where a row names none", range=(1, 72))
    dtype: str = parameter("bf16", "type of elements, where a row names none", choices=("bf16", "fp16", "fp8"))
    experts: int = parameter(256, "experts of a mixture of experts", range=(1, 4096))
    top_k: int = parameter(8, "experts of each token", range=(1, 64))
    heads: int = parameter(16, "heads of attention", range=(1, 1024))
    batch: int = parameter(1, "sequences of attention", range=(1, 1 << 16))


@overlap.read(Reading)
def read(path: Path, how: Reading) -> list[dict[str, Any]]:
    """Reads a CSV of operators, `op,M,N,K,devices,dtype`."""
    from .readers.operators_csv import read_operators

    return read_operators(path, how)


@overlap.own_cases
def own_cases(rows: list[dict[str, Any]], name: str, how: Reading) -> Iterator[Case]:
    """One case per row."""
    from .workload import PLAIN

    for number, row in enumerate(rows):
        kind = {"plain"} if row["op"] in PLAIN else {"program"}
        facts = {"device": how.device, **row}
        yield Case(f"{name}:{number + 1}", _made, facts, _SIMULATED | {"file"} | kind)


@overlap.example
def example(folder: Path) -> tuple[Path, dict[str, str]]:
    """Writes the products of one tensor-parallel layer, attention over 8 devices, and a dispatch."""
    path = folder / "operators.csv"
    path.write_text(
        "op,M,N,K,devices,dtype\nag_gemm,4096,1536,4096,8,bf16\ngemm_rs,4096,4096,512,8,bf16\n"
        "gemm_ar,2048,4096,1792,4,bf16\nring_attention,8192,128,,8,bf16\nmoe_dispatch_gemm,256,1024,2048,8,bf16\n"
        "all_reduce,2048,4096,,8,bf16\n"
    )  # fmt: skip
    return path, {"device": "h100-80", "experts": "32"}


@overlap.run
def run(technique: Any, case: Case) -> Outcome:
    """Plans on the nominal costs and simulates the plan on the costs as they turn out; in measured cases the program really runs."""
    if "measured" in case.kinds:
        return _measured(technique, case)
    import numpy as np

    from .simulation.outcome import decomposition, disturbed, metrics, timeline
    from .simulation.schedule import simulate

    work: OverlapWork = case.workload
    plan = technique.plan(work)
    timed = plan.timed
    if work.slow or timed is None:
        timed = simulate(disturbed(plan.schedule, np.array(work.slow)) if work.slow else plan.schedule)
    values = metrics(work.operator, timed)
    values |= {
        "comm_sms": float(plan.comm_sms), "device_lines": float(plan.device_lines),
        "promise_error": abs(plan.predicted / timed.seconds - 1),
    }  # fmt: skip
    if "program" not in case.kinds:
        values.pop("tflops_per_device")
    where = Artifact.table("where the time went", [{**decomposition(timed), **{k: str(v) for k, v in plan.facts.items()}}])
    return Outcome(values, [where, Artifact.timeline(timeline(timed))])


def _measured(technique: Any, case: Case) -> Outcome:
    from .execution.run import run as execute
    from .programs.template import Tile

    if not hasattr(technique, "real"):
        raise NotForThisCase("it launches whole kernels and has no tile program to run here")
    program = technique.real(case.workload, Tile(64, 64))
    found = execute(program, executor="cpu", comm_sms=2 if program.inter else 0, seed=0)
    return Outcome({"op_s": found.seconds, "result_error": found.error})


@overlap.answer
def answer(result: Result) -> str:
    """Names the fastest technique, by how much, and how much communication it leaves exposed."""
    if "op_s" not in result.metrics:
        return "Ask for the metric op_s to get an answer."
    ranked = {case: found for case in result.cases if "simulated" in result.cases[case]["kinds"] and (found := result.on(case, "op_s"))}
    if not ranked:
        return "Real runs show whether results are right; ask for simulated cases to get an answer on time."
    near = {case: [t for t, s in found.items() if s <= 1.005 * min(found.values())] for case, found in ranked.items()}
    names = [t for best in near.values() for t in best]
    best = max(dict.fromkeys(names), key=lambda t: (names.count(t), t == "parallelkittens"))
    won = [case for case, first in near.items() if best in first]
    where = won[0] if len(ranked) == 1 else f"{len(won)} of {len(ranked)} cases"
    said = f"{best} is the fastest on {where}"
    gains = [ratio for case in won if best != "sequential" and (ratio := result.ratio(case, "op_s", best, "sequential"))]
    if gains:
        low, high = f"{min(gains):.2f}", f"{max(gains):.2f}"
        said += f", {low if low == high else f'{low} to {high}'} times as fast as sequential"
    if "exposed_comm_fraction" in result.metrics:
        left = [100 * share for case in won if (share := result.on(case, "exposed_comm_fraction").get(best)) is not None]
        if left:
            low, high = f"{min(left):.0f}", f"{max(left):.0f}"
            said += f", and {low if low == high else f'{low} to {high}'} % of its time is communication that it cannot hide"
    lost = [case for case in near if case not in won]
    if lost:
        others = sorted({near[case][0] for case in lost})
        said += f"; {' and '.join(others) if len(others) < 3 else ', '.join(others)} {'is' if len(others) == 1 else 'are'} faster elsewhere"
    return said + "."


@overlap.plots
def plots(result: Result) -> Sequence[Any]:
    """Seconds of the operator and exposed communication, by case."""
    drawn = []
    for metric, title in (("op_s", "Seconds of the operator"), ("exposed_comm_fraction", "Share of time that fast links would save")):
        if metric in result.metrics:
            drawn += result.panels(title, metric, y="s" if metric == "op_s" else "share", log_y=metric == "op_s")
    return drawn


def _made(case: Case, rng: np.random.Generator) -> OverlapWork:
    from .machine.mechanisms import Gpu
    from .workload import Operator, OverlapWork, routed

    sizes = {key: value for key, value in case.parameters.items() if key != "device"}
    gpu = Gpu.of(case.parameters["device"])
    operator = routed(sizes, rng) if sizes["op"] == "moe_dispatch_gemm" else Operator(**sizes)
    work = OverlapWork(operator, gpu, notes=() if gpu.calibrated else (f"{gpu.name} is not calibrated",))
    return work.misfit(rng) if "misfit" in case.kinds else work


def _real(case: Case, rng: np.random.Generator) -> OverlapWork:
    from .machine.mechanisms import Gpu
    from .workload import Operator, OverlapWork

    p = case.parameters
    side, n = p["side"], p["ranks"]
    if p["op"] == "ring_attention":
        return OverlapWork(Operator("ring_attention", devices=n, batch=1, heads=4, sequence=side, width=32), Gpu.of("h100-80"))
    return OverlapWork(Operator(p["op"], devices=n, m=side, n=side, k=side // n), Gpu.of("h100-80"))
