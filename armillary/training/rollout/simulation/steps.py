"""Steps of post-training: which requests were started, what they made, and the figures of an epoch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ..scheduling.stream_trainer import streamed
from ..workload import RolloutWork
from .generation import Generation, Instances

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
NONE: IntArray = np.zeros(0, np.int64)
#: The limits of running requests that are tried, as shares of the requests that an instance gets.
SEQUENCES = (0.75, 0.5, 0.35, 0.25, 0.15)


class Launch:
    """The requests of a round: `count` responses to each of `prompts`, each prompt in its `attempt`; siblings stand together."""

    def __init__(self, work: RolloutWork, prompts: Any, count: int, attempts: Any = 0) -> None:
        self.work, self.count = work, count
        self.prompts = np.asarray(prompts, np.int64)
        self.prompt = np.repeat(self.prompts, count)
        self.response = np.tile(np.arange(count), len(self.prompts))
        self.column = work.draw(self.prompt, self.response, np.repeat(np.broadcast_to(attempts, len(self.prompts)), count))
        self.length = work.length[self.prompt, self.column].astype(np.int64)
        self.group = np.repeat(np.arange(len(self.prompts)), count)
        self.number = {request: q for q, request in enumerate(zip(self.prompt.tolist(), self.response.tolist(), strict=True))}

    def __len__(self) -> int:
        return len(self.prompt)

    @property
    def tokens(self) -> IntArray:
        """The tokens of prompt and response together."""
        return self.work.prompt[self.prompt] + self.length

    def start(self, instances: Instances, quota: Any = 0) -> Generation:
        """Sends all requests at once, each group to one instance, in turn."""
        generation = Generation(instances, self.work.prompt[self.prompt], self.length, self.group, quota=quota)
        generation.send_all(self.group % instances.count)
        return generation


def tuned(work: RolloutWork, gpus: int | None = None) -> Instances:
    """Instances whose limit of running requests suits the work: if KV runs out on the first step, the best of five limits on that step.

    An operator would set this limit (`max_num_seqs`), because engines that preempt and compute again can spend most of a step on that.
    """
    setup = work.setup
    usual = setup.instances(gpus=gpus)
    launch = Launch(work, np.arange(min(setup.p0, len(work))), setup.r0)

    def trial(instances: Instances) -> Generation:
        generation = launch.start(instances)
        generation.finish()
        return generation

    first = trial(usual)
    if not first.preemptions:
        return usual
    most = min(usual.max_seqs, -(-len(launch) // usual.count))
    tried = [replace(usual, max_seqs=max(1, round(most * share))) for share in SEQUENCES]
    return min([(first.over_s, 0, usual), *((trial(x).over_s, i + 1, x) for i, x in enumerate(tried))], key=lambda x: x[:2])[2]


@dataclass(frozen=True)
class Step:
    """One step: where its seconds went, its tokens, and what was trained on."""

    kind: str
    rollout_s: float
    #: Seconds from the end of nine tenths of the kept responses to the end of the last.
    tail_s: float
    #: Seconds that the step waits for rewards, learning (inference, training, update) and weights after the rollout.
    reward_s: float
    learn_s: float
    sync_s: float
    #: The prompts that were trained on, and the lengths of their responses.
    prompts: tuple[int, ...]
    lengths: IntArray
    made_tokens: float
    offpolicy_tokens: float = 0.0
    preemptions: int = 0
    #: The instance-seconds of the rollout, and those in which an instance computed or already learned.
    offered_s: float = 0.0
    busy_s: float = 0.0
    #: Seconds that ran in parallel with other parts of the step, and so do not add to it.
    hidden_s: float = 0.0
    tp: int = 0

    @property
    def seconds(self) -> float:
        """The seconds of the whole step."""
        return self.rollout_s + self.reward_s + self.learn_s + self.sync_s - self.hidden_s

    def row(self) -> dict[str, float | str]:
        """The step as a row of the table that a run leaves."""
        times = ("rollout_s", "reward_s", "learn_s", "sync_s", "seconds")
        counts = {"prompts": len(self.prompts), "responses": len(self.lengths), "tokens": int(self.lengths.sum())}
        spent = {name: float(f"{getattr(self, name):.6g}") for name in times}
        return {"kind": self.kind or "step", "tp": self.tp, **spent, **counts, "preemptions": self.preemptions}


def timeline(steps: Sequence[Step]) -> dict[str, Any]:
    """The steps as trace events, with one lane each for rollout, reward, learning and weights; hidden parts lie under the rollout."""
    lanes = ("rollout", "reward", "learning", "weights")
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "thread_name", "pid": 0, "tid": i, "args": {"name": lane}} for i, lane in enumerate(lanes)
    ]
    start = 0.0
    for number, step in enumerate(steps):
        at = start
        for i, seconds in enumerate((step.rollout_s, step.reward_s, step.learn_s, step.sync_s)):
            begin = at if i == 0 else at - step.hidden_s
            name = f"{step.kind or 'step'} {number}"
            events.append({"ph": "X", "name": name, "pid": 0, "tid": i, "ts": 1e6 * begin, "dur": 1e6 * seconds})
            at += seconds
        start += step.seconds
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def tail(ended_s: FloatArray) -> float:
    """The seconds from the moment at which 90 % have ended to the end of the last."""
    if not len(ended_s):
        return 0.0
    order = np.sort(ended_s)
    return float(order[-1] - order[max(0, -(-9 * len(order) // 10) - 1)])


def conclude(
    launch: Launch, generation: Generation, kept: IntArray, *, rewards_s: float, tp: int, kind: str = "",
    known_s: FloatArray | None = None, freed_s: float = np.inf, freed_share: float = 0.0, reshard_s: float = 0.0,
) -> Step:  # fmt: skip
    """The step of a rollout that is over now: it waits for rewards, learns on `kept`, and hands the weights over.

    `rewards_s` is when the last reward is known, from the rollout's start. With `known_s` (for each kept response), the `freed_share` of
    the devices that was freed at `freed_s` has learned since then on prompts whose rewards were known.
    """
    setup, rollout = launch.work.setup, generation.over_s
    infer, train, update = setup.learning(launch.tokens[kept])
    work_s = infer + train
    end = max(rollout, rewards_s)
    done = 0.0
    if known_s is not None and freed_share > 0:
        groups, where = np.unique(launch.group[kept], return_inverse=True)
        ready, total = np.zeros(len(groups)), np.zeros(len(groups))
        np.maximum.at(ready, where, known_s)
        np.add.at(total, where, work_s)
        done = streamed(ready, total, freed_s, end, freed_share)
    count = generation.instances.count
    busy = generation.busy_s + done * count
    return Step(
        kind, rollout, tail(generation.ended_at[kept]), end - rollout, float(work_s.sum()) - done + update,
        setup.sync_s(tp) + reshard_s, tuple(dict.fromkeys(launch.prompt[kept].tolist())), launch.length[kept], generation.made_tokens,
        preemptions=generation.preemptions, offered_s=count * rollout, busy_s=min(busy, count * rollout), tp=tp,
    )  # fmt: skip


def metrics(steps: Sequence[Step], work: RolloutWork) -> dict[str, float]:
    """The arena's figures of an epoch, as means per P0 × R0 trained responses, however many each step had."""
    trained = sum(len(s.lengths) for s in steps)
    per = trained / (work.setup.p0 * work.setup.r0)
    kept, made = float(sum(s.lengths.sum() for s in steps)), sum(s.made_tokens for s in steps)
    rollout = sum(s.rollout_s for s in steps)
    offered = sum(s.offered_s for s in steps)
    fair = work.length[: work.steps * work.setup.p0, : work.setup.r0].ravel() if work.steps else work.length[:, : work.setup.r0].ravel()
    return {
        "step_s": sum(s.seconds for s in steps) / per,
        "rollout_s": rollout / per,
        "rollout_tokens_per_s": kept / rollout,
        "all_tokens_per_s": made / rollout,
        "tail_s": sum(s.tail_s for s in steps) / per,
        "bubble_fraction": 1.0 - sum(s.busy_s for s in steps) / offered if offered else 0.0,
        "preemptions": sum(s.preemptions for s in steps) / per,
        "wasted_tokens": max(0.0, made - kept) / per,
        "offpolicy_fraction": sum(s.offpolicy_tokens for s in steps) / kept,
        "sample_bias": ks_distance(np.concatenate([s.lengths for s in steps]), fair),
    }


def ks_distance(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> float:
    """The Kolmogorov-Smirnov distance, which is the largest difference of two empirical distribution functions."""
    a, b = np.sort(a), np.sort(b)
    x = np.concatenate([a, b])
    return float(np.max(np.abs(np.searchsorted(a, x, side="right") / len(a) - np.searchsorted(b, x, side="right") / len(b))))
