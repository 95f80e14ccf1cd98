"""The lengths of responses, read from logs of RL frameworks or drawn from seeded mixes with the published shapes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError, one_line
from armillary.files import Column, read_json_lines, read_table

from .simulation.setup import Setup

MATH, CODE, JUDGE = 0, 1, 2
TASKS = ("math", "code", "judge")
MOST_ROWS, MOST_LINE, MOST_TOKENS = 20_000_000, 1 << 24, 1 << 24
#: The largest number that a column of the log may have.
MOST = 2**31 - 1
#: The seconds that a program under test may take; one that takes longer never ends.
LIMIT_S = 30.0


@dataclass(frozen=True)
class RolloutWork:
    """An epoch of prompts in order, and the responses that each would draw, one after another.

    `prompt` [prompts] and `length` [prompts, draws] are in tokens; `reward_s` [prompts, draws] are the seconds of a code test (inf if it
    never ends); `correct` is [prompts, draws]; `task` [prompts] is 0 for math, 1 for code and 2 for judged. A prompt that is started again
    goes on drawing: attempt a takes the draws from a·`per_attempt` on, and wraps around at their end. `accept` are the tokens kept per
    iteration with drafts, measured on token streams; without it, the published ones are used.
    """

    setup: Setup
    prompt: npt.NDArray[np.int32]
    length: npt.NDArray[np.int32]
    reward_s: npt.NDArray[np.float64]
    correct: npt.NDArray[np.bool_]
    task: npt.NDArray[np.int8]
    notes: tuple[str, ...] = ()
    accept: npt.NDArray[np.float64] | None = None

    @staticmethod
    def of(
        setup: Setup, prompt: Any, length: Any, *, reward_s: Any = None, correct: Any = None, task: Any = None, notes: Sequence[str] = (),
        accept: npt.NDArray[np.float64] | None = None, where: str | None = None,
    ) -> RolloutWork:  # fmt: skip
        """The work, after its checks; without `reward_s`, rewards take no time."""
        prompt, length = np.asarray(prompt, np.int32), np.atleast_2d(np.asarray(length, np.int32))
        n = len(prompt)
        if not n or length.shape[0] != n or length.shape[1] < 1:
            raise InputError(f"found {n} prompts and responses of shape {length.shape}; expected at least one of each prompt", where=where)
        if prompt.min() < 1 or length.min() < 1:
            raise InputError("prompts and responses: expected at least one token each", where=where)
        if length.max() > setup.max_length:
            raise InputError(f"a response of {int(length.max()):,} tokens; expected at most {setup.max_length:,}, the maximum", where=where)
        if prompt.max() > setup.max_prompt:
            raise InputError(f"a prompt of {int(prompt.max()):,} tokens; expected at most {setup.max_prompt:,}", where=where)
        seconds = np.zeros(length.shape) if reward_s is None else np.asarray(reward_s, float)
        right = np.ones(length.shape, bool) if correct is None else np.asarray(correct, bool)
        kind = np.zeros(n, np.int8) if task is None else np.asarray(task, np.int8)
        if seconds.shape != length.shape or right.shape != length.shape or kind.shape != (n,) or not np.all(seconds >= 0):
            raise InputError("rewards: expected seconds of 0 or more for every response, and a task for every prompt", where=where)
        return RolloutWork(setup, prompt, length, seconds, right, kind, tuple(notes), accept)

    def __len__(self) -> int:
        return len(self.prompt)

    @property
    def steps(self) -> int:
        """The number of whole steps of P0 prompts."""
        return len(self) // self.setup.p0

    @property
    def per_attempt(self) -> int:
        """The draws between one start of a prompt and the next."""
        return max(self.setup.r0, self.length.shape[1] // 2)

    def draw(self, prompts: Any, responses: Any, attempts: Any) -> npt.NDArray[np.int64]:
        """The columns of the tables for response j of each prompt in its attempt."""
        return (np.asarray(attempts) * self.per_attempt + np.asarray(responses)) % self.length.shape[1]


def mix(setup: Setup, steps: int, rng: np.random.Generator, tasks: Sequence[float] = (0.4, 0.4, 0.2)) -> RolloutWork:
    """Math, code and judged prompts with few long responses, after RollPacker's published shape; the parameters are ours.

    ln length = N(ln 520, 0.45) of the prompt + N(0, 0.35). 8 % of the prompts are hard. A response to a hard prompt is a tail response with
    probability 0.5, and to another prompt with 0.035; tails are lognormal with median 6,000 and σ 1. Lengths grow 0.5 % per step and are
    clipped at the maximum. Tests of code are lognormal with median 0.8 s and σ 0.9; 5 % never end, and 60 % of the rest are correct.
    """
    if steps < 1 or len(tasks) != 3 or min(tasks) < 0 or not math.isclose(sum(tasks), 1.0):
        raise InputError("steps, tasks: expected at least one step and three shares that sum to 1")
    n, draws = steps * setup.p0, 2 * math.ceil(1.5 * setup.r0)
    mean, hard = rng.normal(math.log(520), 0.45, n), rng.random(n) < 0.08
    usual = np.exp(mean[:, None] + rng.normal(0, 0.35, (n, draws)))
    tail = rng.random((n, draws)) < np.where(hard, 0.5, 0.035)[:, None]
    long = np.exp(rng.normal(math.log(6000), 1.0, (n, draws)))
    drift = 1.005 ** (np.arange(n) // setup.p0)
    length = np.clip(np.where(tail, long, usual) * drift[:, None], 16, setup.max_length).astype(np.int32)
    prompt = np.clip(np.exp(rng.normal(math.log(250), 0.5, n)), 32, min(2048, setup.max_prompt)).astype(np.int32)
    seconds = np.exp(rng.normal(math.log(0.8), 0.9, (n, draws)))
    never = rng.random((n, draws)) < 0.05
    correct = (rng.random((n, draws)) < 0.6) & ~never
    task = rng.choice(3, n, p=np.asarray(tasks)).astype(np.int8)
    return RolloutWork.of(setup, prompt, length, reward_s=np.where(never, np.inf, seconds), correct=correct, task=task)


def chain_of_thought(
    setup: Setup, steps: int, mean: float, rng: np.random.Generator, *, between: float = 0.9, within: float = 0.35
) -> RolloutWork:  # fmt: skip
    """Long reasoning whose siblings resemble each other, after Seer's set-ups: ln length = group N(·, between) + response N(0, within).

    The median is chosen so that lengths clipped at the maximum have the published mean. Answers are checked by rule, in no time.
    """
    n, draws = steps * setup.p0, 2 * math.ceil(1.5 * setup.r0)
    centre = _centre(mean, math.hypot(between, within), setup.max_length)
    log = centre + rng.normal(0, between, n)[:, None] + rng.normal(0, within, (n, draws))
    length = np.clip(np.exp(log), 16, setup.max_length).astype(np.int32)
    prompt = np.clip(np.exp(rng.normal(math.log(250), 0.5, n)), 32, min(2048, setup.max_prompt)).astype(np.int32)
    return RolloutWork.of(setup, prompt, length)


def _centre(mean: float, sigma: float, most: int) -> float:
    """The logarithm of the median at which a lognormal that is clipped at `most` has this mean."""
    if not 16 < mean < most:
        raise InputError(f"mean: found {mean}; expected between 16 and the maximum {most}")
    normal = NormalDist()
    z = np.array([normal.inv_cdf((i + 0.5) / 4096) for i in range(4096)])
    low, high = math.log(16.0), math.log(float(most)) + 8
    for _ in range(60):
        mid = (low + high) / 2
        low, high = (mid, high) if np.minimum(np.exp(mid + sigma * z), most).mean() < mean else (low, mid)
    return low


def read_log(path: Path, setup: Setup, *, limit: int = 0, accept: npt.NDArray[np.float64] | None = None) -> RolloutWork:
    """Reads the lengths in an RL framework's log, which has `step,prompt_id,response_id,prompt_tokens,response_tokens`.

    It is CSV, JSONL or Parquet. `reward_s` (a code test that took 30 s or more never ends) and `task` (math, code, judge) are optional.
    Every prompt of a step has the same number of responses, which becomes R0, and the number of prompts of the first step becomes P0.
    `limit` is the number of steps that are read, or 0 for all.
    """
    import polars as pl

    columns = [
        Column("step", "int", least=0, most=MOST),
        Column("prompt_id", "str"),
        Column("response_id", "int", least=0, most=MOST),
        Column("prompt_tokens", "int", unit="tokens", least=1, most=MOST),
        Column("response_tokens", "int", unit="tokens", least=1, most=setup.max_length),
        Column("reward_s", unit="seconds", least=0, default=0.0),
        Column("task", "str", choices=TASKS, default="math"),
    ]
    kind = "jsonl" if path.suffix.casefold() == ".json" else None
    table = read_table(path, columns, format=kind, row_limit=MOST_ROWS, unique=("step", "prompt_id", "response_id"))
    rows = table.frame.sort("step", maintain_order=True)
    groups = rows.group_by("step", "prompt_id", maintain_order=True).agg(pl.exclude("response_id").sort_by("response_id"))
    numbers, prompts = np.unique(groups["step"].to_numpy(), return_counts=True)
    steps = min(len(numbers), limit or len(numbers))
    p0, r0 = int(prompts[0]), len(groups["task"][0])
    if odd := [i for i in range(steps - 1) if prompts[i] != p0]:
        found = f"step {numbers[odd[0]]} has {prompts[odd[0]]} prompts"
        raise InputError(f"{found}; expected {p0}, as in step {numbers[0]}", where=str(path))
    groups = groups.head(int(prompts[:steps].sum()))
    counts = groups["task"].list.len()
    wrong = (counts != r0) | (groups["prompt_tokens"].list.n_unique() + groups["task"].list.n_unique() > 2)
    if wrong.any():
        row = int(wrong.arg_max() or 0)
        said = f"{counts[row]} responses; expected {r0}" if counts[row] != r0 else "different prompt_tokens or tasks"
        raise InputError(f'prompt "{one_line(groups["prompt_id"][row], 40)}" of step {groups["step"][row]} has {said}', where=str(path))
    groups = groups.head(len(groups) // p0 * p0)
    prompt, seconds = groups["prompt_tokens"].list.first().to_numpy(), np.array(groups["reward_s"].to_list())
    return RolloutWork.of(
        setup.with_size(p0=p0, r0=r0, max_prompt=max(setup.max_prompt, int(prompt.max()))), prompt, groups["response_tokens"].to_list(),
        reward_s=np.where(seconds >= LIMIT_S, np.inf, seconds), correct=seconds < LIMIT_S,
        task=[TASKS.index(task) for task in groups["task"].list.first()], accept=accept, where=str(path),
        notes=[f"{len(groups)} prompts × {r0} responses from the log; further draws of a prompt repeat them"],
    )  # fmt: skip


def read_streams(path: Path) -> dict[str, list[tuple[str, npt.NDArray[np.int32]]]]:
    """The requests and tokens of each group in a JSONL file of `{"group", "request", "tokens": [int]}`, in file order."""
    groups: dict[str, list[tuple[str, npt.NDArray[np.int32]]]] = {}
    for line, row in read_json_lines(path, longest=MOST_LINE, most=MOST_ROWS):
        where = f"{path}:{line}"
        if missing := [key for key in ("group", "request", "tokens") if key not in row]:
            raise InputError(f'found no key "{missing[0]}"; expected group, request and tokens', where=where)
        tokens = row["tokens"]
        if not isinstance(tokens, list) or not tokens or len(tokens) > MOST_TOKENS:
            raise InputError(f"tokens: expected a list of 1 to {MOST_TOKENS:,} token ids", where=where)
        if not all(isinstance(t, int) and not isinstance(t, bool) and -(2**31) <= t < 2**31 for t in tokens):
            raise InputError("tokens: expected whole numbers of 32 bits", where=where)
        groups.setdefault(str(row["group"]), []).append((str(row["request"]), np.array(tokens, np.int32)))
    if not groups:
        raise InputError("found no stream; expected at least one line", where=str(path))
    return groups
