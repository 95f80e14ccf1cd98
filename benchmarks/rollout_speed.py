"""How fast rollouts are simulated and drafts are found on this machine.

python benchmarks/rollout_speed.py prints seconds of: 100 steps of RollPacker and of verl (128 prompts × 8 responses, up to 32k tokens),
one step of Seer on the Kimi-K2 set-up (6,400 requests, mean 39k tokens), 10,000 requests of up to 32k tokens on the segment loop beside
`armillary.llm.Fleet` by segment and by iteration (same work, same times of ending, as ratios); and tokens and drafts a second of
`GroupDraft`. Last, one JSON object.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from armillary.llm import Fleet, Replica, Requests
from armillary.training.rollout import Generation, GroupDraft, RollPacker, Seer, Setup, Verl, chain_of_thought, mix

SEED, REPEATS = 1, 3


def best(work: Callable[[], Any], repeats: int = REPEATS) -> float:
    """Seconds of the fastest of some calls: the machine may be shared."""
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def steps() -> dict[str, float]:
    """Seconds of 100 steps, and of one large one."""
    long = Setup("qwen2.5-32b", gpus=128, tp=4, max_length=32768, train_tp=4)
    work = mix(long, 100, np.random.default_rng(SEED))
    few = mix(long, 5, np.random.default_rng(SEED))
    kimi = Setup("kimi-k2", gpus=256, tp=32, p0=800, max_length=98304, train_tp=8, train_pp=4)
    chains = chain_of_thought(kimi, 1, 39e3, np.random.default_rng(SEED))
    for technique in (Verl(), RollPacker(), Seer()):
        technique.steps(few)
    return {
        "verl, 100 steps": best(lambda: Verl().steps(work), 1),
        "rollpacker, 100 steps": best(lambda: RollPacker().steps(work), 1),
        "seer, kimi-k2": best(lambda: Seer().steps(chains), 1),
    }


def loops() -> dict[str, float]:
    """Seconds of 10,000 requests on sixteen instances: this loop, and the ground's by segment and by iteration."""
    rng = np.random.default_rng(SEED)
    n = 10_000
    length = np.clip(np.exp(rng.normal(9.0, 1.0, n)), 16, 32768).astype(int)
    setup = Setup("qwen2.5-7b", gpus=32, tp=2, max_length=32768)
    instances = setup.instances()
    home = (np.arange(n) % instances.count).astype(np.int32)

    def ours() -> Generation:
        generation = Generation(instances, np.full(n, 200), length, np.arange(n))
        for q in range(n):
            generation.send(q, int(home[q]))
        while generation.next():
            pass
        return generation

    class Cost:
        def arrays(self) -> Any:
            return instances.cost

    replica = Replica(cost=Cost(), blocks=instances.kv_tokens // 16, max_seqs=1024, max_batched_tokens=8192, prefix_cache=False)
    fleet, requests = Fleet([replica] * instances.count), Requests.of(np.zeros(n), np.full(n, 200), length)
    truth = fleet.run(requests, home=home, step="segment")
    assert np.allclose(ours().ended_at, truth.finish, rtol=1e-9)
    return {
        "loop": best(ours),
        "ground, segments": best(lambda: fleet.run(requests, home=home, step="segment")),
        "ground, iterations": best(lambda: fleet.run(requests, home=home), 1),
        "tokens": float(length.sum()),
    }


def drafts() -> dict[str, float]:
    """Tokens appended and drafts proposed a second: eight streams of 125,000 tokens that share phrases."""
    rng = np.random.default_rng(SEED)
    phrases = rng.integers(0, 50_000, (4000, 16)).astype(np.int32)
    streams = [phrases[rng.zipf(1.3, 7813) % 4000].ravel() for _ in range(8)]
    total = sum(map(len, streams))

    def fill() -> GroupDraft:
        draft = GroupDraft()
        for start in range(0, len(streams[0]), 512):
            for k, stream in enumerate(streams):
                draft.add("g", k, stream[start : start + 512])
        return draft

    draft = fill()
    contexts = [streams[k][i : i + 24] for k in range(8) for i in range(0, 100_000, 100)]
    seconds = best(lambda: [draft.propose("g", context, 8) for context in contexts])
    return {"tokens/s": total / best(fill), "drafts/s": len(contexts) / seconds}


def main() -> None:
    """Prints every figure."""
    found = {"steps": steps(), "loops": loops(), "drafts": drafts()}
    for name, seconds in found["steps"].items():
        print(f"{name:26} {seconds:8.2f} s")
    loop = found["loops"]
    for name in ("loop", "ground, segments", "ground, iterations"):
        print(f"{name:26} {loop[name]:8.2f} s  {loop[name] / loop['loop']:6.1f} × this loop")
    for name, rate in found["drafts"].items():
        print(f"{name:26} {rate:12,.0f}")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
