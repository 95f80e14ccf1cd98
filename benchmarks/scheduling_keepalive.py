"""How fast scheduling/keepalive is on this machine, and LACE-RL's learner beside stable-baselines3's.

python benchmarks/scheduling_keepalive.py prints invocations per CPU second of each technique on the built-in day (goals: 3 million with
static-60 and 100,000 with lace-rl), microseconds per decision through the controller (goal 15), the mean cost of each part switched off,
the costs of misfits over break-even's for five seeds (goal 1.05), the share of the decisions that the limit on waits changes, what the
other rules of the simulator change, and the cost of our DQN over that of stable-baselines3's after as many steps in the same environment
(goal 1.02), for three seeds. With `--week`, 10^8 invocations are streamed, and peak memory is measured (goal 4 GiB). The last line is one
JSON object.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from dataclasses import replace
from typing import Any

import numpy as np

from armillary.learn import Dqn
from armillary.scheduling.energy import GRIDS
from armillary.scheduling.keepalive import Counted, KeepAlive, LaceRl, Policy, ablation, play, training_table
from armillary.scheduling.keepalive.arena import front, keepalive
from armillary.scheduling.keepalive.simulation.decisions import NETWORK
from armillary.scheduling.keepalive.simulation.scores import joint_share
from armillary.scheduling.keepalive.workload import KeepAliveWork, built_in
from armillary.streams import stream

LAMBDAS = (0.3, 0.5, 0.7)
STEPS, SEEDS = 40_000, 3


def case(name: str, scale: str = "small", seed: int = 0) -> KeepAliveWork:
    """The work of a built-in case, by the beginning of its name."""
    found: KeepAliveWork = next(one for one in keepalive.built_in(scale) if one.name.startswith(name)).at(seed, 0).workload
    return found


def cost(work: KeepAliveWork, technique: Any, lam: float) -> float:
    """The cost of a technique, in units of static-60's."""
    work = work.at(lam)
    reference = Counted.of(work, play(work, keepalive.make("static-60").policy(work), lam))  # type: ignore[attr-defined]
    return Counted.of(work, play(work, technique.policy(work), lam)).cost(lam, reference)


def speeds(work: KeepAliveWork) -> dict[str, float]:
    """Invocations per CPU second of each technique."""
    found = {}
    for name in keepalive.techniques:
        policy = keepalive.make(name).policy(work)  # type: ignore[attr-defined]
        play(work, policy, 0.5)
        start, turns = time.process_time(), 0
        while time.process_time() - start < 0.5:
            invocations = int(play(work, policy, 0.5).invocations.sum())
            turns += 1
        found[name] = invocations * turns / (time.process_time() - start)
    return found


def controller_us() -> float:
    """CPU microseconds per call of the controller."""
    controller = LaceRl.load(lam=0.5)
    controller.keep_alive("f", 0.0, 300.0)
    start = time.process_time()
    for k in range(20_000):
        controller.keep_alive("f", float(k), 300.0 + k % 7)
    return 1e6 * (time.process_time() - start) / 20_000


class Sb3:
    """stable-baselines3's policy as a technique of the arena."""

    def __init__(self, model: Any) -> None:
        layers = [layer for layer in model.q_net.q_net if hasattr(layer, "weight")]
        parts = [part.detach().numpy().ravel() for layer in layers for part in (layer.weight.T, layer.bias)]
        sizes = np.array([layers[0].in_features, *(layer.out_features for layer in layers)], np.int64)
        self.network = (np.ascontiguousarray(np.concatenate(parts), np.float32), sizes, 0)

    def policy(self, work: KeepAliveWork) -> Policy:
        """The network inside the compiled loop."""
        return Policy(NETWORK, network=self.network)


class Ours(Sb3):
    """Our network as a technique of the arena."""

    def __init__(self, frozen: Any) -> None:
        self.network = frozen.compiled


def beside_sb3(seed: int) -> dict[str, float]:
    """Mean cost over grids and λ of both learners after as many steps in the same environment, and their CPU seconds.

    Both explore and learn alike: as many updates of as many transitions, the same network, discount and rate of learning. Ours steps eight
    copies of the environment at once and is a double DQN, and the peer is the package's DQN.
    """
    from stable_baselines3 import DQN

    from armillary.learn.gymnasium_envs import Single

    table = training_table(200, 60_000, "solar-dip")
    how: dict[str, Any] = {"gamma": 0.9, "batch": 256, "lr": 1e-3, "copy_every": 1000, "capacity": 50_000, "train_every": 8}
    start = time.process_time()
    ours = Dqn(**how, explore_share=0.5).train(KeepAlive(8, table), STEPS, seed=seed).model().frozen()
    ours_s = time.process_time() - start
    start = time.process_time()
    peer = DQN(
        "MlpPolicy", Single(KeepAlive(1, table)), gamma=0.9, batch_size=256, learning_rate=1e-3, target_update_interval=8000,
        buffer_size=50_000, train_freq=8, learning_starts=1000, exploration_fraction=0.5, policy_kwargs={"net_arch": [64, 64]}, seed=seed,
    )  # fmt: skip
    peer.learn(STEPS)
    peer_s = time.process_time() - start
    costs: dict[str, list[float]] = {"ours": [], "peer": []}
    for name in GRIDS:
        work = built_in(
            stream(0, "keepalive", "validate", name), grid_name=name, lam=0.5, functions=150, most=30_000, length_s=86400.0
        )  # fmt: skip
        for lam in LAMBDAS:
            costs["ours"].append(cost(work, Ours(ours), lam))
            costs["peer"].append(cost(work, Sb3(peer), lam))
    mean = {name: float(np.mean(values)) for name, values in costs.items()}
    return {"ours": mean["ours"], "peer": mean["peer"], "ratio": mean["ours"] / mean["peer"], "ours_s": ours_s, "peer_s": peer_s}


def parts() -> dict[str, float]:
    """The mean cost over grids and λ of LACE-RL, of each variant with a part switched off, and of rivals."""
    rows: dict[str, list[float]] = {}
    for name in GRIDS:
        base = case(f"{name}-0.5")
        for lam in LAMBDAS:
            here = base.at(lam)
            reference = Counted.of(here, play(here, keepalive.make("static-60").policy(here), lam))  # type: ignore[attr-defined]
            for part, one in ablation(here).items():
                rows.setdefault(part, []).append(one.cost(lam, reference))
            for rival in ("swarm", "oracle"):
                rows.setdefault(rival, []).append(cost(base, keepalive.make(rival), lam))
    return {part: float(np.mean(values)) for part, values in rows.items()}


def misfits(seed: int) -> dict[str, float]:
    """The cost of LACE-RL over break-even's on each misfit."""
    works = {name: case(f"misfit-{name}-", seed=seed) for name in GRIDS}
    return {name: cost(work, LaceRl(), 0.5) / cost(work, keepalive.make("break-even"), 0.5) for name, work in works.items()}


def limited(work: KeepAliveWork) -> float:
    """The share of the decisions that the limit on waits changes."""
    keeps = [np.zeros(len(work.trace)), np.zeros(len(work.trace))]  # type: ignore[arg-type]
    for out, limit in zip(keeps, (True, False)):
        play(work, LaceRl(limit_waits=limit).policy(work), work.lam, out)
    return float(np.mean(np.abs(keeps[0] - keeps[1]) > 1e-6))


def shares(work: KeepAliveWork) -> dict[str, float]:
    """The joint share of both published reductions."""
    reference = Counted.of(work, play(work, keepalive.make("static-60").policy(work), work.lam))  # type: ignore[attr-defined]
    point = (float(reference.cold_starts), reference.carbon_g)
    return {name: joint_share(front(keepalive.make(name), work), point) for name in ("break-even", "lace-rl", "oracle")}


def shown(values: dict[str, float], digits: int = 3) -> str:
    """The values in one line."""
    return ", ".join(f"{name} {value:.{digits}f}" for name, value in values.items())


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--week", action="store_true", help="stream 10^8 invocations too")
    wanted = parser.parse_args()
    found: dict[str, Any] = {}
    work = case("solar-dip-0.5")
    found["invocations per s"] = speeds(work)
    print("invocations per CPU second:", ", ".join(f"{name} {rate:,.0f}" for name, rate in found["invocations per s"].items()))
    found["controller_us"] = controller_us()
    print(f"controller: {found['controller_us']:.1f} µs per decision")

    found["mean cost"] = parts()
    print("mean cost over grids and λ:", shown(found["mean cost"], 4))
    found["misfit over break-even"] = [misfits(seed) for seed in range(5)]
    for seed, one in enumerate(found["misfit over break-even"]):
        print(f"misfits of seed {seed}, lace-rl over break-even:", shown(one))
    found["limited"] = {name: limited(case(f"{name}-0.5")) for name in GRIDS}
    print("share of the decisions that the limit changes:", shown(found["limited"]))

    busy, oldest = replace(work, startup="busy"), replace(work, reuse="lru")
    names = ("break-even", "swarm", "lace-rl", "oracle")
    found["busy"] = {name: cost(busy, keepalive.make(name), 0.5) for name in names}
    print("cost if pods are busy while they start:", shown(found["busy"]))
    found["oldest first"] = {name: cost(oldest, keepalive.make(name), 0.5) for name in names}
    print("cost if the pod that waited longest serves:", shown(found["oldest first"]))
    found["joint share"] = {"mru": shares(work), "lru": shares(oldest)}
    for reuse, one in found["joint share"].items():
        print(f"joint share with {reuse}:", shown(one))

    found["beside stable-baselines3"] = [beside_sb3(seed) for seed in range(SEEDS)]
    for seed, one in enumerate(found["beside stable-baselines3"]):
        print(f"after {STEPS:,} steps, seed {seed}: ours {one['ours']:.4f} in {one['ours_s']:.0f} CPU s, "
              f"stable-baselines3 {one['peer']:.4f} in {one['peer_s']:.0f} CPU s, ratio {one['ratio']:.3f}")  # fmt: skip
    print(f"mean ratio {np.mean([one['ratio'] for one in found['beside stable-baselines3']]):.3f}")
    if wanted.week:
        week = case("solar-dip-0.3", "large")
        for name in ("static-60", "lace-rl"):
            start = time.process_time()
            counted = Counted.of(week, play(week, keepalive.make(name).policy(week), 0.5))  # type: ignore[attr-defined]
            spent = time.process_time() - start
            found[f"week {name}"] = {"invocations": counted.invocations, "cpu_s": spent, "cold_starts": counted.cold_starts}
            print(f"week, {name}: {counted.invocations:,} invocations in {spent:.0f} CPU s, {counted.cold_starts:,} cold starts")
        found["peak_gib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20)
        print(f"peak memory {found['peak_gib']:.2f} GiB")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
