"""Every configuration of small machines, by plain recursion: an oracle that shares nothing with the explorer.

Messages carry what they are (label, place, instances) so that a wrong reception is seen; nothing is counted relatively, nothing is kept
by number, and no interleaving is left out. Loops make the instances grow, so it gives up after a number of configurations.
"""

from __future__ import annotations

import sys
from typing import Any


def brute_force(system: Any, bound: int, most: int) -> bool | None:
    """Whether something goes wrong without tags; None where there is too much to look at."""
    machines = {machine.role: machine for machine in system.machines}
    around: dict[int, set[int]] = {}
    for machine in system.machines:
        for state in machine.states:
            for step in state.steps:
                for i, (k, _) in enumerate(step.path):
                    around.setdefault(k, set()).update(name for name, _ in step.path[:i])
    seen: set[Any] = set()
    wrong: list[str] = []

    def entered(counts: dict[int, int], step: Any) -> dict[int, int]:
        after = dict(counts)
        for k, _ in step.path:
            if k in step.fresh:
                after[k] = after.get(k, 0) + 1
                for other, outer in around.items():
                    if k in outer:
                        after[other] = 0
        return after

    def understood(role: str, at: int) -> set[tuple[str, str]]:
        found, waiting, been = set(), [at], {at}
        while waiting:
            state = machines[role].states[waiting.pop()]
            found |= set(state.discards) | {(step.peer, step.label) for step in state.steps if not step.send}
            for step in state.steps:
                if step.target not in been:
                    been.add(step.target)
                    waiting.append(step.target)
        return found

    def visit(
        states: dict[str, int], counts: dict[str, dict[int, int]], sides: dict[str, dict[int, Any]], queues: dict[Any, tuple]
    ) -> None:
        key = (tuple(states.items()), repr(sorted((r, sorted(c.items())) for r, c in counts.items())), repr(sorted(queues.items())))
        if wrong or key in seen or len(seen) > most:
            return
        seen.add(key)
        moved = full = False
        for role, machine in machines.items():
            state = machine.states[states[role]]
            for step in state.steps:
                if not step.send:
                    continue
                queue = queues.get((role, step.peer), ())
                if len(queue) >= bound:
                    full = True
                    continue
                moved = True
                after = entered(counts[role], step)
                letter = (step.label, step.path, tuple(after[k] for k, _ in step.path))
                visit(
                    {**states, role: step.target},
                    {**counts, role: after},
                    {**sides, role: {**sides[role], **dict(step.decides)}},
                    {**queues, (role, step.peer): (*queue, letter)},
                )
            for sender in machines:
                queue = queues.get((sender, role), ())
                if not queue:
                    continue
                label, path, instances = queue[0]
                rest = {**queues, (sender, role): queue[1:]}
                fits = [step for step in state.steps if not step.send and (step.peer, step.label) == (sender, label)]
                for step in fits:
                    moved = True
                    after = entered(counts[role], step)
                    if step.path != path or tuple(after[k] for k, _ in path) != instances:
                        wrong.append("mistaken")
                        return
                    visit(
                        {**states, role: step.target}, {**counts, role: after}, {**sides, role: {**sides[role], **dict(step.decides)}}, rest
                    )
                if not fits and (sender, label) in state.discards:
                    moved = True
                    if not old(counts[role], sides[role], path, instances):
                        wrong.append("thrown away")
                        return
                    visit(states, counts, sides, rest)
                elif not fits and (sender, label) not in understood(role, states[role]):
                    wrong.append("never understood")
                    return
        if not moved and not full and (any(machines[r].states[s].steps for r, s in states.items()) or any(queues.values())):
            wrong.append("stuck")

    def old(counts: dict[int, int], sides: dict[int, Any], path: Any, instances: Any) -> bool:
        for (k, side), n in zip(path, instances):
            now, held = counts.get(k, 0), sides.get(k)
            if n != now:
                return bool(n < now)
            if held is not None and held != side:
                return True
        return False

    before = sys.getrecursionlimit()
    sys.setrecursionlimit(50_000)
    try:
        start: dict[str, Any] = {role: {} for role in machines}
        visit(dict.fromkeys(machines, 0), start, dict(start), {})
    finally:
        sys.setrecursionlimit(before)
    return True if wrong else None if len(seen) > most else False
