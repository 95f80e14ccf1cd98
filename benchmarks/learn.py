"""How fast frozen networks answer, and how `Ppo` and `Dqn` do beside stable-baselines3 on CartPole with equal settings and decisions.

    python benchmarks/learn.py [--seeds 5] [--decisions 50000] [--only frozen|stacked|speed|ppo|dqn]

Both sides of a comparison run in this process, one after the other, each on one thread. Mean returns are over 20 episodes per seed
with the likeliest action.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from armillary.learn import Cnn2, Dqn, Mlp, Model, Ppo, StackedTrainer, mlp_into, squared

Array = np.ndarray[Any, Any]


class CartPole:
    """Gymnasium's CartPole-v1 for `n` copies at once, with its dynamics, bounds and limit of 500 steps."""

    name, observation, factors = "CartPole", (4,), (2,)

    def __init__(self, n: int) -> None:
        self.n = n

    def reset(self, seeds: Array) -> Array:
        self.rng = np.random.default_rng(np.asarray(seeds))
        self.state = self.rng.uniform(-0.05, 0.05, (4, self.n))
        self.age = np.zeros(self.n, np.int64)
        return self.state.T.astype(np.float32)

    def step(self, actions: Array) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        x, v, angle, turn = self.state
        force = np.where(actions == 1, 10.0, -10.0)
        cos, sin = np.cos(angle), np.sin(angle)
        push = (force + 0.05 * turn**2 * sin) / 1.1
        bend = (9.8 * sin - cos * push) / (0.5 * (4 / 3 - 0.1 * cos**2 / 1.1))
        a = push - 0.05 * bend * cos / 1.1
        self.state = np.stack([x + 0.02 * v, v + 0.02 * a, angle + 0.02 * turn, turn + 0.02 * bend])
        self.age += 1
        done = (np.abs(self.state[0]) > 2.4) | (np.abs(self.state[2]) > 12 * 2 * np.pi / 360)
        truncated = self.age >= 500
        final = self.state.T.astype(np.float32)
        ended = done | truncated
        if ended.any():
            self.state[:, ended] = self.rng.uniform(-0.05, 0.05, (4, int(ended.sum())))
            self.age[ended] = 0
        return self.state.T.astype(np.float32), np.ones(self.n, np.float32), done, truncated, {"final_obs": final}

    def mask(self) -> None:
        return None


def score(act: Callable[[Array], Array], episodes: int = 20) -> float:
    """The mean return of a policy over the first episode of each copy."""
    env = CartPole(episodes)
    seen = env.reset(np.arange(episodes) + 1000)
    total, going = np.zeros(episodes), np.ones(episodes, bool)
    while going.any():
        seen, reward, done, truncated, _ = env.step(act(seen))
        total += reward * going
        going &= ~(done | truncated)
    return float(total.mean())


def clocked(work: Callable[[], Any]) -> tuple[Any, float, float]:
    """(result, wall seconds, CPU seconds)."""
    wall, cpu = time.perf_counter(), time.process_time()
    found = work()
    return found, time.perf_counter() - wall, time.process_time() - cpu


def compared(name: str, ours: Callable[[int], Any], theirs: Callable[[int], Any], seeds: int, decisions: int) -> None:
    mine, peer, my_s, peer_s = [], [], 0.0, 0.0
    for seed in range(seeds):
        (net, _, cpu) = clocked(lambda seed=seed: ours(seed))
        mine.append(score(net))
        my_s += cpu
        (net, _, cpu) = clocked(lambda seed=seed: theirs(seed))
        peer.append(score(net))
        peer_s += cpu
        print(f"{name}, seed {seed}: mean return {mine[-1]:.0f} against {peer[-1]:.0f}", flush=True)
    a, b = float(np.mean(mine)), float(np.mean(peer))
    print(f"{name}: mean return {a:.0f} against {b:.0f} ({a / b:.2f} times)")
    said = f"{seeds * decisions / my_s:,.0f} against {seeds * decisions / peer_s:,.0f} decisions per CPU second"
    print(f"{name}: {said} ({peer_s / my_s:.1f} times), {my_s / seeds:.1f} s against {peer_s / seeds:.1f} s per run")


def ppo(seeds: int, decisions: int) -> None:
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env

    how = Ppo(
        rollout=32, epochs=20, minibatch=256, lr=1e-3, gamma=0.98, lam=0.8, entropy=0.0, most_kl=1e9,
        normalise_observations=False, normalise_rewards=False,
    )  # fmt: skip

    def ours(seed: int) -> Callable[[Array], Array]:
        found: Callable[[Array], Array] = how.train(CartPole(8), decisions, seed=seed).model().frozen()
        return found

    def theirs(seed: int) -> Callable[[Array], Array]:
        made = PPO(
            "MlpPolicy", make_vec_env("CartPole-v1", 8, seed=seed), n_steps=32, batch_size=256, n_epochs=20, gamma=0.98, gae_lambda=0.8,
            learning_rate=lambda left: 1e-3 * left, ent_coef=0.0, seed=seed, device="cpu",
        )  # fmt: skip
        made.learn(decisions)
        return lambda seen: made.predict(seen, deterministic=True)[0]

    compared("PPO", ours, theirs, seeds, decisions)


def dqn(seeds: int, decisions: int) -> None:
    from stable_baselines3 import DQN
    from stable_baselines3.common.env_util import make_vec_env

    how = Dqn(
        hidden=(256, 256), lr=2.3e-3, batch=64, capacity=100_000, train_every=2, learning_starts=1000, copy_every=128,
        explore_share=0.16, explore_last=0.04,
    )  # fmt: skip

    def ours(seed: int) -> Callable[[Array], Array]:
        net = how.train(CartPole(8), decisions, seed=seed).model().frozen()
        return lambda seen: net(seen).argmax(-1)

    def theirs(seed: int) -> Callable[[Array], Array]:
        made = DQN(
            "MlpPolicy", make_vec_env("CartPole-v1", 8, seed=seed), learning_rate=2.3e-3, batch_size=64, buffer_size=100_000,
            learning_starts=1000, gamma=0.99, target_update_interval=256, train_freq=32, gradient_steps=128, exploration_fraction=0.16,
            exploration_final_eps=0.04, policy_kwargs={"net_arch": [256, 256]}, seed=seed, device="cpu",
        )  # fmt: skip
        made.learn(decisions)
        return lambda seen: made.predict(seen, deterministic=True)[0]

    compared("DQN", ours, theirs, seeds, decisions)


def speed(decisions: int) -> None:
    """Decisions per second at the default settings; theirs with DummyVecEnv, on our environment and on Gymnasium's own CartPole."""
    from stable_baselines3 import DQN, PPO
    from stable_baselines3.common.env_util import make_vec_env

    from armillary.learn import Single

    def peer_ppo(env: Any, decisions: int) -> None:
        PPO("MlpPolicy", make_vec_env(env, 16), n_steps=128, batch_size=512, n_epochs=4, seed=0, device="cpu").learn(decisions)

    def peer_dqn(env: Any, decisions: int) -> None:
        made = DQN(
            "MlpPolicy", make_vec_env(env, 16), learning_rate=1e-3, batch_size=64, buffer_size=50_000, learning_starts=1000,
            train_freq=1, gradient_steps=4, seed=0, device="cpu",
        )  # fmt: skip
        made.learn(decisions)

    rows: dict[str, tuple[Callable[[int], Any], Callable[[Any, int], Any]]] = {
        "PPO": (lambda count: Ppo().train(CartPole(16), count), peer_ppo),
        "DQN": (lambda count: Dqn().train(CartPole(16), count), peer_dqn),
    }
    for name, (ours, theirs) in rows.items():
        ours(2048)
        _, _, mine = clocked(lambda ours=ours: ours(decisions))
        for where, env in (("our environment", lambda: Single(CartPole(1))), ("Gymnasium's", "CartPole-v1")):
            theirs(env, 2048)
            _, _, peer = clocked(lambda theirs=theirs, env=env: theirs(env, decisions))
            said = f"{decisions / mine:,.0f} against {decisions / peer:,.0f} decisions per CPU second ({peer / mine:.1f} times)"
            print(f"{name}, default settings, 16 copies, theirs on {where}: {said}", flush=True)


def stacked() -> None:
    """Steps of many small models at once against a loop over them, at batch 16."""
    makes: dict[str, tuple[Callable[[int], Any], tuple[int, ...]]] = {
        "Mlp 64-100-80-10": (lambda i: Mlp(64, (100, 80), 10, seed=i), (64,)),
        "Cnn2 of 28 × 28": (lambda i: Cnn2(1, (28, 28), 12, 10, seed=i), (1, 28, 28)),
    }
    for name, (make, shape) in makes.items():
        weights = make(0).config.weights
        for n in (8, 24):
            x, y = torch.zeros(n, 16, *shape), torch.zeros(n, 16, 10)
            spent = []
            for at_once in (True, False):
                trainer = StackedTrainer(make, n, squared, stacked=at_once)
                trainer.step(x, y)
                spent.append(clocked(lambda trainer=trainer, x=x, y=y: [trainer.step(x, y) for _ in range(20)])[2])
            said = f"{spent[0] * 50:.1f} ms per step against {spent[1] * 50:.1f} ({spent[1] / spent[0]:.1f} times)"
            print(f"{n} times {name} ({weights:,} weights): {said}")


def frozen() -> None:
    net = Mlp(8, (64, 64), 5)
    fast = Model.of(net).frozen()
    x, out, scratch = np.zeros(8, np.float32), np.empty(5, np.float32), fast.scratch()
    given, compiled = torch.zeros(1, 8), fast.compiled
    rows: dict[str, Callable[[], Any]] = {
        "PyTorch": lambda: net(given), "NumPy": lambda: fast(x),
        "compiled, called from Python": lambda: mlp_into(*compiled, x, out, scratch),
    }  # fmt: skip
    with torch.no_grad():
        for name, call in rows.items():
            call()
            _, _, cpu = clocked(lambda call=call: [call() for _ in range(20_000)])
            print(f"MLP 8-64-64-5, {name}: {cpu / 20_000 * 1e6:.1f} µs per call")
    from armillary.kernels import loop

    @loop
    def many(weights: Array, sizes: Array, activation: int, x: Array, out: Array, scratch: Array, count: int) -> None:
        for _ in range(count):
            mlp_into(weights, sizes, activation, x, out, scratch)
            x[0] += out[0] * np.float32(1e-9)

    many(*compiled, x, out, scratch, 1)
    _, _, cpu = clocked(lambda: many(*compiled, x, out, scratch, 200_000))
    print(f"MLP 8-64-64-5, inside a compiled loop: {cpu / 200_000 * 1e6:.2f} µs per call")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--decisions", type=int, default=50_000)
    parser.add_argument("--only", choices=("frozen", "stacked", "speed", "ppo", "dqn"))
    wanted = parser.parse_args()
    torch.set_num_threads(1)
    if wanted.only in (None, "frozen"):
        frozen()
    if wanted.only in (None, "stacked"):
        stacked()
    if wanted.only in (None, "speed"):
        speed(wanted.decisions)
    for name, run in (("ppo", ppo), ("dqn", dqn)):
        if wanted.only in (None, name):
            run(wanted.seeds, wanted.decisions)


if __name__ == "__main__":
    main()
