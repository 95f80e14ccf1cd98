"""How fast scheduling/microservices simulates, decides and learns on this machine, beside Ciw, SimPy and stable-baselines3.

python benchmarks/scheduling_microservices.py prints service visits per second of the shop (goal: 1.5 million), with windows and without;
visits per second of a tandem of two servers beside Ciw's and SimPy's in the same run, as ratios, with equal ends; milliseconds of DDRM's
decisions for 8 and 28 services (goal: 10 ms); and the table of DDRM's parts. --large adds 10 minutes of 500 requests per second of the
social network (goal: 60 s). --learn adds PPO's windows per second beside stable-baselines3's on the same environment, and the mean return
of both after as many windows. --trained adds the parts whose models are trained first (some minutes). Last, one JSON object.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import numpy as np

from armillary.scheduling.microservices import (
    Application,
    Ddrm,
    Microservices,
    MicroservicesWork,
    RequestType,
    Service,
    Simulation,
    StepRule,
    ablation,
    built_in,
    drawn,
    play,
    rates_of,
    tree,
)
from armillary.scheduling.microservices.learning.predictor import Predictor
from armillary.streams import stream


def shop_work(load: str, seed: int = 0, seconds: int = 300) -> MicroservicesWork:
    """A load of the shop that is neither trained on nor judged."""
    rng = stream(seed, "benchmark", load)
    return drawn(rng, built_in("shop-8"), rates_of(load, rng, seconds, 150.0))


def visits() -> dict[str, float]:
    """Visits per CPU second: ten minutes at 600 requests per second in one piece, and a run with a decision per second."""
    app = built_in("shop-8")
    work = drawn(np.random.default_rng(0), app, np.full(600, 600.0))
    Simulation(work, app.quotas * 4).advance(1.0)
    sim = Simulation(work, app.quotas * 4)
    start = time.process_time()
    sim.advance(600.0)
    plain = sim.calls / (time.process_time() - start)
    work = shop_work("step")
    play(work, StepRule(), 5)
    start = time.process_time()
    played = play(work, StepRule())
    return {"visits_per_s": plain, "controlled_visits_per_s": played.calls / (time.process_time() - start)}


def beside_others(n: int = 20_000) -> dict[str, float]:
    """A tandem of two single servers, here, in Ciw and in SimPy, with the same times."""
    import ciw
    import simpy

    rng = np.random.default_rng(0)
    gaps, first, second = (rng.exponential(mean, n).astype(np.float32).astype(float) for mean in (0.012, 0.008, 0.009))
    arrival = np.cumsum(gaps)

    services = tuple(Service(name, threads, 1.0, quota=1.0) for name, threads in (("gate", 100_000), ("a", 1), ("b", 1)))
    app = Application("tandem", services, (RequestType("ask", 1.0, tree("gate", tree("a"), tree("b"))),), 1e6)
    demand = np.stack([np.zeros(n), first, second], 1).ravel().astype(np.float32)
    seconds = int(arrival[-1]) + 60
    work = MicroservicesWork(app, arrival, np.zeros(n, np.int64), 3 * np.arange(n), demand, seconds, np.zeros(seconds))
    Simulation(work).advance(1.0)
    sim = Simulation(work)
    start = time.process_time()
    sim.advance(float(seconds))
    ours = time.process_time() - start

    network = ciw.create_network(
        arrival_distributions=[ciw.dists.Sequential(list(gaps)), None],
        service_distributions=[ciw.dists.Sequential(list(first)), ciw.dists.Sequential(list(second))],
        number_of_servers=[1, 1], routing=[[0.0, 1.0], [0.0, 0.0]],
    )  # fmt: skip
    start = time.process_time()
    simulated = ciw.Simulation(network)
    simulated.simulate_until_max_customers(n, method="Finish")
    with_ciw = time.process_time() - start
    ends = np.sort([one.exit_date for one in simulated.get_all_records() if one.node == 2])

    start = time.process_time()
    env = simpy.Environment()
    servers = simpy.Resource(env, 1), simpy.Resource(env, 1)
    left = np.zeros(n)

    def customer(i: int) -> Any:
        yield env.timeout(arrival[i])
        for server, took in zip(servers, (first[i], second[i])):
            with server.request() as turn:
                yield turn
                yield env.timeout(took)
        left[i] = env.now

    for i in range(n):
        env.process(customer(i))
    env.run()
    with_simpy = time.process_time() - start
    end = np.sort(sim._requests.end)
    return {
        "tandem_visits_per_s": 2 * n / ours, "ciw_visits_per_s": 2 * n / with_ciw, "simpy_visits_per_s": 2 * n / with_simpy,
        "ratio_to_ciw": with_ciw / ours, "ratio_to_simpy": with_simpy / ours,
        "differ_s": float(max(np.abs(end[: len(ends)] - ends).max(), np.abs(end - np.sort(left)).max())),
    }  # fmt: skip


def decisions() -> dict[str, float]:
    """Milliseconds per decision with 8 services, and with 28 under the shop's predictor."""
    found = {}
    for name, rate in (("shop-8", 150.0), ("social-28", 500.0)):
        app = built_in(name)
        work = drawn(np.random.default_rng(1), app, rates_of("step", np.random.default_rng(1), 60, rate))
        technique = Ddrm(cold_start=False)
        play(work, technique.controller(app), 4)
        taken = play(work, technique.controller(app)).decided_s
        found |= {f"decide_{name}_ms": 1e3 * float(taken.mean()), f"decide_{name}_p99_ms": 1e3 * float(np.quantile(taken, 0.99))}
    return found


def parts(trained: bool, draws: int = 4) -> dict[str, float]:
    """Score, core-seconds and violations with one part of DDRM switched off, means over draws of three loads."""
    rows: dict[str, list[Any]] = {}
    loads = [(load, shop_work(load, k)) for load in ("diurnal", "step", "flash") for k in range(draws)]
    for _, work in loads:
        for name, played in ablation(work, trained=trained).items():
            rows.setdefault(name, []).append(played)
    found = {}
    for name, played in rows.items():
        metrics = [one.metrics() for one in played]
        score, cores, bad, brier = (float(np.mean([m[key] for m in metrics])) for key in ("score", "cpu_core_s", "slo_violation", "brier"))
        print(f"{name:22s}{score:9.0f}{cores:9.0f}{100 * bad:8.2f} %{brier:9.4f}")
        found |= {f"{name}/score": score, f"{name}/slo_violation": bad}
    return found


def learning(windows: int = 8_000) -> dict[str, float]:
    """Windows per second of PPO here and in stable-baselines3 from a fresh policy, and what both reach."""
    import gymnasium
    from stable_baselines3 import PPO
    from stable_baselines3.common.vec_env import DummyVecEnv

    from armillary.learn import ActorCritic, Ppo, episode_returns
    from armillary.learn.gymnasium_envs import Single
    from armillary.scheduling.microservices.learning.observation import INPUTS

    app = built_in("shop-8")
    predictor = Ddrm().predictor_parts(app)
    Predictor(predictor, app)

    def env(n: int) -> Microservices:
        return Microservices(n, app, predictor)

    ours = ActorCritic(INPUTS, (5,), (48, 48), entities=True)
    start = time.process_time()
    Ppo(rollout=128, minibatch=256, lr=3e-4, gamma=0.97, entropy=0.0).train(env(8), windows, network=ours)
    taken = time.process_time() - start
    from armillary.learn import Model

    frozen = Model.of(ours).frozen()
    mine = float(episode_returns(env(8), lambda seen, mask: frozen(seen)).mean())

    made = DummyVecEnv([lambda: gymnasium.wrappers.FlattenObservation(Single(env(1))) for _ in range(8)])
    peer = PPO("MlpPolicy", made, n_steps=128, batch_size=256, n_epochs=4, learning_rate=3e-4, gamma=0.97, seed=0, device="cpu")
    start = time.process_time()
    peer.learn(windows)
    peers = time.process_time() - start
    theirs = float(episode_returns(env(8), lambda seen, mask: peer.predict(seen.reshape(len(seen), -1), deterministic=True)[0]).mean())
    return {
        "ppo_windows_per_s": windows / taken, "sb3_windows_per_s": windows / peers, "ratio_to_sb3": peers / taken,
        "ppo_return": mine, "sb3_return": theirs,
    }  # fmt: skip


def large() -> dict[str, float]:
    """Ten minutes of the social network at 500 requests per second under the step rule."""
    app = built_in("social-28")
    work = drawn(np.random.default_rng(0), app, rates_of("diurnal", np.random.default_rng(0), 600, 500.0))
    start = time.process_time()
    played = play(work, StepRule())
    return {"social_s": time.process_time() - start, "social_visits": float(played.calls)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, what in (("large", "the social network, too"), ("learn", "stable-baselines3, too"), ("trained", "parts that train anew")):
        parser.add_argument(f"--{name}", action="store_true", help=what)
    chosen = parser.parse_args()
    found: dict[str, float] = {}
    for part in (visits, beside_others, decisions, *((large,) if chosen.large else ()), *((learning,) if chosen.learn else ())):
        values = part()
        print(", ".join(f"{name} {value:,.4g}" for name, value in values.items()))
        found |= values
    found |= parts(chosen.trained)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
