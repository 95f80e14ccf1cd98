"""The serving simulator: seconds for fixed workloads, and vidur on the same work in the same run, both on one core.

python benchmarks/serving_speed.py [--requests 2000] [--rate 8] [--million] [--fleet] [--vidur PYTHON]

`--vidur` names a Python that has vidur (0.0.26): it is given the same requests, the same number of KV blocks, chunked prefill with
decodes first (its `sarathi`, our `sarathi`), and our price of an iteration in place of its predictor, so that both simulate the same
engine: mean latencies have to agree, and the ratio of the times is one of simulators. Compilation is not counted: a first run warms up.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np

from armillary.llm import AffineCost, Fleet, Replica, Requests, generate

START, TOKEN, CONTEXT = 6e-3, 2e-5, 2e-8
BLOCKS = 20_000

VIDUR = r"""
import json, sys, time
sys.argv, (work, out, start, token, context, blocks) = sys.argv[:1], sys.argv[1:]
from vidur.config import SimulationConfig
from vidur.entities import Request
from vidur._native.entities import ExecutionTime
from vidur.execution_time_predictor.execution_time_predictor_registry import ExecutionTimePredictorRegistry
from vidur.request_generator import RequestGeneratorRegistry
from vidur.types import ExecutionTimePredictorType, RequestGeneratorType
from vidur.utils.random import set_seeds

class Price:
    def __init__(self, predictor_config, replica_config, cache_config):
        self.layers = replica_config.num_layers_per_pipeline_stage

    def get_execution_time(self, batch, stage):
        seconds = float(start) + float(token) * sum(batch.num_q_tokens) + float(context) * sum(batch.num_kv_tokens)
        return ExecutionTime(self.layers, *([0.0] * 4), 1e3 * seconds / self.layers, *([0.0] * 9))

    get_execution_time_native = get_execution_time

class Trace:
    def __init__(self, config):
        rows = [line.split(",") for line in open(work).read().split()]
        self.requests = [Request(float(t), int(p), int(o)) for t, p, o in rows]

    def generate(self):
        return self.requests

ExecutionTimePredictorRegistry._registry[ExecutionTimePredictorType.RANDOM_FORREST] = Price
RequestGeneratorRegistry._registry[RequestGeneratorType.SYNTHETIC] = Trace
sys.argv += [
    "--request_generator_config_type", "synthetic", "--replica_scheduler_config_type", "sarathi",
    "--sarathi_scheduler_config_chunk_size", "2048", "--sarathi_scheduler_config_batch_size_cap", "256",
    "--cache_config_num_blocks", blocks, "--cache_config_block_size", "16", "--replica_config_model_name", "meta-llama/Llama-3-8B",
    "--replica_config_device", "h100", "--replica_config_num_pipeline_stages", "1", "--replica_config_tensor_parallel_size", "1",
    "--execution_time_predictor_config_type", "random_forrest", "--log_level", "error",
    *("--no-metrics_config_" + flag for flag in (
        "write_metrics", "enable_chrome_trace", "store_plots", "write_json_trace", "store_operation_metrics",
        "store_token_completion_metrics", "store_request_metrics", "store_batch_metrics", "store_utilization_metrics"))
]
from vidur.simulator import Simulator
config = SimulationConfig.create_from_cli_args()
set_seeds(config.seed)
made = Simulator(config)
begun = time.perf_counter()
made.run()
took = time.perf_counter() - begun
done = made._request_generator.requests
n = len(done)
json.dump({
    "seconds": took, "ttft": sum(r.prefill_completed_at - r.arrived_at for r in done) / n,
    "e2e": sum(r.completed_at - r.arrived_at for r in done) / n,
    "tpot": sum((r.completed_at - r.prefill_completed_at) / (r.num_decode_tokens - 1) for r in done if r.num_decode_tokens > 1) / n,
}, open(out, "w"))
"""


def ours(work: Requests, policy: str = "vllm", step: str = "iteration") -> tuple[float, dict[str, float]]:
    """Seconds for one replica, and its summary."""
    replica = Replica(cost=AffineCost(START, TOKEN, CONTEXT), blocks=BLOCKS, policy=policy, prefix_cache=False)
    replica.run(generate(20, rate=1.0), step=step)
    begun = time.perf_counter()
    result = replica.run(work, step=step)
    return time.perf_counter() - begun, result.summary()


def vidur(python: str, work: Requests) -> dict[str, float]:
    """Seconds that vidur takes for the same, and its mean latencies."""
    with tempfile.TemporaryDirectory() as folder:
        path, out, script = Path(folder) / "trace.csv", Path(folder) / "out.json", Path(folder) / "run.py"
        rows = "\n".join(f"{t:.6f},{p},{o}" for t, p, o in zip(work.arrival_s, work.prompt, work.output, strict=True))
        path.write_text(rows)
        script.write_text(VIDUR)
        subprocess.run(
            [python, str(script), str(path), str(out), str(START), str(TOKEN), str(CONTEXT), str(BLOCKS)], check=True, cwd=folder
        )
        return dict(json.loads(out.read_text()))


def main() -> None:
    """Prints one line a workload."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--rate", type=float, default=8.0)
    parser.add_argument("--million", action="store_true")
    parser.add_argument("--fleet", action="store_true")
    parser.add_argument("--vidur", default="")
    args = parser.parse_args()
    work = generate(args.requests, rate=args.rate, like="azure-conv", seed=1)
    for policy in ("vllm", "sarathi"):
        for step in ("iteration", "segment"):
            seconds, s = ours(work, policy, step)
            said = f"TTFT {s['mean_ttft_s']:.4f} s, TPOT {s['mean_tpot_s']:.5f} s"
            print(f"{args.requests:,} requests, {policy}, by {step}: {seconds:.3f} s; {said}")
    if args.vidur:
        theirs = vidur(args.vidur, work)
        seconds, s = ours(work, "sarathi")
        pairs = {
            "TTFT": (theirs["ttft"], s["mean_ttft_s"]),
            "TPOT": (theirs["tpot"], s["mean_tpot_s"]),
            "E2E": (theirs["e2e"], s["mean_e2e_s"]),
        }
        said = ", ".join(f"{name} {a:.4f} and {b:.4f} s ({100 * (b / a - 1):+.1f} %)" for name, (a, b) in pairs.items())
        print(
            f"vidur: {theirs['seconds']:.2f} s, armillary {seconds:.3f} s: {theirs['seconds'] / seconds:.0f} times; theirs and ours: {said}"
        )
    if args.million:
        rng = np.random.default_rng(1)
        n = 1_000_000
        big = Requests.of(np.cumsum(rng.exponential(1 / 18, n)), np.clip(rng.normal(512, 256, n), 2, None).astype(int),
                          np.clip(rng.normal(256, 256, n), 2, None).astype(int))  # fmt: skip
        for step in ("iteration", "segment"):
            seconds, _ = ours(big, "vllm", step)
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
            print(f"1,000,000 requests by {step}: {seconds:.1f} s, {peak:.2f} GiB")
        tail = Requests.of(np.zeros(10_000), 200, rng.lognormal(9.5, 0.6, 10_000).clip(100, 32_000).astype(int))
        replica = Replica(cost=AffineCost(START, TOKEN, CONTEXT), blocks=400_000, max_seqs=256, prefix_cache=False)
        begun = time.perf_counter()
        replica.run(tail, step="segment")
        print(f"10,000 long answers ({int(tail.output.sum(dtype=np.int64)):,} tokens) by segment: {time.perf_counter() - begun:.2f} s")
    if args.fleet:
        many = generate(100_000, rate=400.0, like="sharegpt", seed=2)
        fleet = Fleet([Replica(cost=AffineCost(START, TOKEN, CONTEXT), blocks=BLOCKS, prefix_cache=False)] * 64, "least-tokens")
        begun = time.perf_counter()
        fleet.run(many)
        print(f"64 replicas, 100,000 requests, least-tokens: {time.perf_counter() - begun:.1f} s")


if __name__ == "__main__":
    main()
