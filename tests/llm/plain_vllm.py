"""vLLM's batching once more, in plain Python over lists and dictionaries: slow, and written without a look at the arrays."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class One:
    number: int
    arrival: float
    prompt: int
    output: int
    adapter: int = -1
    out: int = 0
    computed: int = 0
    blocks: int = 0
    preemptions: int = 0
    first: float | None = None
    done: float | None = None
    times: list[float] = field(default_factory=list)

    @property
    def known(self) -> int:
        return self.prompt + self.out


def serve(requests, *, a, b=0.0, c=0.0, budget=2048, seqs=256, block=16, blocks=1000, slots=0, load=0.0):
    """[One], with times filled in; t = a + b·N + c·Σ(computed before) + load for each adapter brought to a slot."""
    todo = sorted(requests, key=lambda q: (q.arrival, q.number))
    waiting: list[One] = []
    running: list[One] = []
    free, now, iterations = blocks, 0.0, 0
    on_device: dict[int, int] = {}
    places: list[int | None] = [None] * slots
    need = lambda tokens: -(-tokens // block)  # noqa: E731
    while todo or waiting or running:
        if not waiting and not running:
            now = max(now, todo[0].arrival)
        while todo and todo[0].arrival <= now:
            waiting.append(todo.pop(0))
        iterations += 1
        left, plan, used, extra, put_back = budget, [], [], 0.0, False

        def bring(q, used=used, iterations=iterations):
            cost = 0.0
            if q.adapter >= 0 and q.adapter not in used:
                if q.adapter not in on_device:
                    # an empty slot, or the one unused for longest; of equals the first
                    place = (
                        places.index(None)
                        if None in places
                        else min((i for i in range(slots) if places[i] not in used), key=lambda i: on_device[places[i]])
                    )
                    if places[place] is not None:
                        del on_device[places[place]]
                    places[place] = q.adapter
                    cost = load
                used.append(q.adapter)
                on_device[q.adapter] = iterations
            return cost

        i = 0
        while i < len(running) and left:
            q = running[i]
            n = min(q.known - q.computed, left)
            while need(q.computed + n) - q.blocks > free:
                victim = running.pop()
                free += victim.blocks
                victim.blocks = victim.computed = 0
                victim.preemptions += 1
                waiting.insert(0, victim)
                put_back = True
                if victim is q:
                    break
            if q not in running:
                break
            free -= need(q.computed + n) - q.blocks
            q.blocks = need(q.computed + n)
            extra += bring(q)
            plan.append((q, n))
            left -= n
            i += 1
        for q in [] if put_back else list(waiting):
            if not left or len(running) == seqs:
                break
            if q.adapter >= 0 and q.adapter not in used and len(used) == slots:
                continue
            n = min(q.known, left)
            if need(n) > free:
                break
            waiting.remove(q)
            running.append(q)
            free -= need(n)
            q.blocks = need(n)
            extra += bring(q)
            plan.append((q, n))
            left -= n
        now += a + b * sum(n for _, n in plan) + c * sum(q.computed for q, _ in plan) + extra
        for q, n in plan:
            q.computed += n
            if q.computed == q.known:
                q.out += 1
                q.times.append(now)
                q.first = now if q.first is None else q.first
                if q.out == q.output:
                    q.done = now
                    running.remove(q)
                    free += q.blocks
    assert free == blocks
    return sorted(requests, key=lambda q: q.number), iterations
