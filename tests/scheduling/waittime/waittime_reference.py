"""Slow answers in plain Python, written from the definitions: every quantity is computed anew from the whole log for one job."""

from __future__ import annotations

from math import inf

import numpy as np
from hypothesis import strategies as st

from armillary.scheduling.queueing.play import starts
from armillary.scheduling.swf import Jobs


@st.composite
def logs(draw: st.DrawFn, most: int = 25, nodes: int = 8) -> Jobs:
    """Small logs with ties, jobs of no length, waits of none and unknown users; some run more jobs at once than the machine has nodes."""
    n = draw(st.integers(2, most))
    whole = lambda low, high: np.array(draw(st.lists(st.integers(low, high), min_size=n, max_size=n)))  # noqa: E731
    run = whole(0, 60)
    return Jobs.of(
        whole(0, 120), run, whole(1, nodes), requested_s=run + whole(0, 60), machine_nodes=nodes, wait_s=whole(0, 80).astype(float),
        user=whole(-1, 2), executable=whole(-1, 2), queue=whole(-1, 1), partition=whole(-1, 1),
    )  # fmt: skip


def state(jobs: Jobs, j: int) -> tuple[float, list[int], list[int]]:
    """(now, running jobs, queued jobs) at the submission of job j: every end up to now, every start before now."""
    now = float(jobs.submit_s[j])
    start, end = jobs.start_s, jobs.end_s
    queued = [k for k in range(j) if start[k] >= now]
    return now, [k for k in range(j) if start[k] < now < end[k]], queued


def planned(
    jobs: Jobs, j: int, *, ends: dict[int, float] | None = None, seconds: dict[int, float] | None = None, depth: int = 500
) -> dict[int, float]:
    """The planned starts of the queued jobs and of job j: each takes the earliest instant from which its nodes are free long enough."""
    now, running, queued = state(jobs, j)
    ends = {k: float(jobs.start_s[k] + jobs.requested_s[k]) for k in running} if ends is None else ends
    held = [(now, ends[k], int(jobs.nodes[k])) for k in running if ends[k] > now]
    found = {}
    for k in [*queued[:depth], j]:
        lasts = max(float(jobs.requested_s[k]) if seconds is None else seconds[k], 1.0)
        for begin in sorted({now, *(end for _, end, _ in held)}):
            instants = [begin, *(t for a, b, _ in held for t in (a, b) if begin < t < begin + lasts)]
            if all(sum(size for a, b, size in held if a <= t < b) + jobs.nodes[k] <= jobs.machine_nodes for t in instants):
                found[k] = begin
                break
        if k != j:
            held.append((found[k], found[k] + lasts, int(jobs.nodes[k])))
    return found


def predictions(jobs: Jobs, j: int, corrections: list[float]) -> tuple[dict[int, float], dict[int, float]]:
    """(ends of running jobs, seconds of waiting ones and of job j) from the mean of users' last two run times."""
    now, running, queued = state(jobs, j)

    def predicted(k: int, at: float) -> float:
        # A user's runs in the order in which they became known: by end, and at one instant by number.
        ended = [i for i in range(len(jobs)) if jobs.user[i] == jobs.user[k] >= 0 and known(i, at)]
        ended.sort(key=lambda i: (jobs.end_s[i], jobs.run_s[i] == 0, jobs.start_s[i], i))
        last = [float(jobs.run_s[i]) for i in ended[-2:]]
        return min(float(jobs.requested_s[k]), sum(last) / len(last)) if last else float(jobs.requested_s[k])

    def known(i: int, at: float) -> bool:
        return bool(jobs.end_s[i] < at) if jobs.run_s[i] == 0 else bool(jobs.end_s[i] <= at)

    ends = {}
    for k in running:
        start = float(jobs.start_s[k])
        end = start + predicted(k, start)
        if end <= now:
            later = [end + c for c in corrections if end + c > now] or [end + corrections[-1]]
            end = min(later[0], start + float(jobs.requested_s[k]))
        ends[k] = end
    seconds = {k: predicted(k, now) for k in [*queued, j]}
    return ends, seconds


def forward(jobs: Jobs, j: int, corrections: list[float]) -> float:
    """The wait that planning with predicted run times gives."""
    ends, seconds = predictions(jobs, j, corrections)
    return planned(jobs, j, ends=ends, seconds=seconds)[j] - float(jobs.submit_s[j])


def decayed(values: list[float], half_life: float) -> float:
    """The mean in which each value counts half as much as the one `half_life` places later."""
    weights = [0.5 ** ((len(values) - 1 - i) / half_life) for i in range(len(values))]
    return sum(w * v for w, v in zip(weights, values, strict=True)) / sum(weights)


def features(jobs: Jobs, j: int, half_life: float) -> dict[str, float]:
    """The features of job j that are counts, sums and means, before logarithms."""
    now, running, queued = state(jobs, j)
    start, end = jobs.start_s, jobs.end_s
    plan = planned(jobs, j)
    ahead = [k for k in queued if plan[k] <= plan[j]]
    left = {k: max(float(start[k] + jobs.requested_s[k]) - now, 0.0) for k in running}
    begun = [k for k in range(j) if start[k] < now]
    work = lambda ks: float(sum(jobs.nodes[k] * jobs.requested_s[k] for k in ks))  # noqa: E731
    found = {
        "free_nodes": max(jobs.machine_nodes - sum(int(jobs.nodes[k]) for k in running), 0), "running_jobs": len(running),
        "running_node_s": sum(jobs.nodes[k] * left[k] for k in running), "queued_jobs": len(queued),
        "queued_nodes": sum(int(jobs.nodes[k]) for k in queued), "queued_node_s": work(queued), "ahead_jobs": len(ahead),
        "ahead_nodes": sum(int(jobs.nodes[k]) for k in ahead), "ahead_node_s": work(ahead),
        "head_age": now - float(jobs.submit_s[queued[0]]) if queued else 0.0,
        "starts_1h": sum(start[k] >= now - 3600 for k in begun), "submits_1h": sum(jobs.submit_s[k] >= now - 3600 for k in range(j)),
        "forecast": plan[j] - now,
    }  # fmt: skip
    order = sorted(running, key=lambda k: start[k] + jobs.requested_s[k])
    busy = sum(int(jobs.nodes[k]) for k in running)
    for share in (10, 50, 90):
        freed, at = 0, 0.0
        for k in order:
            freed += int(jobs.nodes[k])
            at = left[k]
            if freed >= share / 100 * busy:
                break
        found[f"remaining_{share}"] = at
    for name, keys in (
        ("user", jobs.user),
        ("executable", [(u, e) if e >= 0 else -1 for u, e in zip(jobs.user, jobs.executable, strict=True)]),
    ):
        unknown = (jobs.user[j] if name == "user" else jobs.executable[j]) < 0
        mine = [] if unknown else [k for k in range(j) if keys[k] == keys[j]]
        waits = [float(jobs.wait_s[k]) for k in sorted(mine, key=lambda k: (start[k], k)) if start[k] < now]
        everyone = [float(jobs.wait_s[k]) for k in begun]
        found[f"{name}_wait"] = decayed(waits, half_life) if waits else sum(everyone) / len(everyone) if everyone else 0.0
        found[f"{name}_unknown"] = float(not waits)
        found[f"{name}_queued"] = sum(k in queued for k in mine)
        found[f"{name}_running"] = sum(k in running for k in mine)
    assert end[j] < inf
    return found


def forward_easy(jobs: Jobs, j: int, ends: dict[int, float], seconds: dict[int, float]) -> float:
    """The wait under EASY from now on: running jobs begin at once on an empty machine with what is left of them, then comes the queue."""
    now, running, queued = state(jobs, j)
    order = sorted(running, key=lambda k: jobs.start_s[k] + jobs.requested_s[k])
    left = [max(float(jobs.start_s[k] + jobs.requested_s[k]) - now, 0.0) for k in order]
    rest = [*queued, j]
    there = Jobs.of(
        np.zeros(len(order) + len(rest)), [*(max(ends[k] - now, 0.0) for k in order), *(max(seconds[k], 1.0) for k in rest)],
        [int(jobs.nodes[k]) for k in [*order, *rest]], requested_s=[*left, *(float(jobs.requested_s[k]) for k in rest)],
        machine_nodes=jobs.machine_nodes,
    )  # fmt: skip
    return float(starts(there, "easy")[-1])
