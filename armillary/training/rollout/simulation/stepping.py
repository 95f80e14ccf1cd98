"""The compiled loop under every rollout, in which instances generate in segments.

An instance batches as vLLM V1 does (`armillary.llm`, policy `vllm`): running requests first, in order, then waiting ones while the
budget of tokens, the sequences and the blocks of KV last. When blocks run out, the youngest goes back to the front of the queue and
computes again. Iterations in which nothing is decided are one *segment*, whose seconds are a closed sum, because an iteration's price is
affine in the context. Whatever comes from outside (an abort, a request, a change of speed) cuts a segment after the iteration in
flight, so that results are those of single iterations. `armillary.llm.Fleet` has the same rules without that cut; a test compares both.

With drafts, a decode verifies γ+1 tokens of every sequence and keeps `accept[siblings ahead, γ]` of them on average, so progress may be a
fraction of a token.
"""

# Kernels carry their types in the arrays that they are given.
# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from armillary.kernels import kernel, part

NOTHING = -1
#: The status of a request: not sent, waiting at an instance, running there, at its target, or given up.
AHEAD, WAITING, RUNNING, ENDED, ABORTED = 0, 1, 2, 3, 4
#: Columns of `tag`.
STATUS, HOME, NEXT, BEFORE, GROUP, HELD, PREEMPTIONS, PROMPT, TARGET = range(9)
#: Columns of `num`: the tokens made, the tokens whose KV is there, the tokens per iteration, and the seconds at which it ended.
DONE, COMPUTED, RATE, AT = range(4)
#: Columns of `eng`.
RUNS, WAITS, FIRST, LAST, FREE, CAPACITY, REPEAT, PREEMPTED, DRAFT = range(9)
#: Columns of `clock`: begin and end of the segment, seconds of its first iteration and what each further one adds, the factor by which the
#: instance is slower, busy seconds, and tokens made.
START, END, STEP, SLOPE, SLOW, BUSY, OUT = range(7)
#: Entries of `fixed`.
BUDGET, SEQUENCES, BLOCK, BEST = range(4)
#: The most drafts of a sequence, and the most paths.
MOST_DRAFT, MOST_PATHS = 16, 4
#: Iterations may take this much longer because of drafts, and are then still bound by memory.
MEMORY_BOUND = 1.05
_TINY = 1e-9


class State(NamedTuple):
    """The state that changes, and what an iteration costs."""

    tag: np.ndarray  # int64 [request, 9]
    num: np.ndarray  # float64 [request, 4]
    eng: np.ndarray  # int64 [instance, 9]
    clock: np.ndarray  # float64 [instance, 7]
    run: np.ndarray  # int64 [instance, 2, most running]: the requests that run, and their new tokens in this iteration
    member: np.ndarray  # int64 [2, group + 1]: where a group's requests begin, and how many may end before `advance` stops
    body: np.ndarray  # float64 [tokens]: the seconds that depend on new tokens
    head: np.ndarray  # float64 [sequences]
    rate: np.ndarray  # float64: seconds per pair, per token of context, per iteration, and per running request
    fixed: np.ndarray  # int64 [4]
    accept: np.ndarray  # float64 [siblings, drafts + 1, paths]: tokens kept per iteration; no rows without drafts
    ended: np.ndarray  # int64: [number, requests …] that ended in the last event


@part
def _read(table, x):
    last = table.shape[0] - 1
    if x <= last:
        return table[x]
    return table[last] + (x - last) * (table[last] - table[last - 1])


@part
def _sum(first, slope, k):
    return k * first + slope * (0.5 * k * (k - 1))


@part
def _blocks(tokens, size):
    return np.int64(np.ceil((tokens - _TINY) / size))


@part
def _unlink(s, q, r):
    before, after = s.tag[q, BEFORE], s.tag[q, NEXT]
    if before == NOTHING:
        s.eng[r, FIRST] = after
    else:
        s.tag[before, NEXT] = after
    if after == NOTHING:
        s.eng[r, LAST] = before
    else:
        s.tag[after, BEFORE] = before
    s.eng[r, WAITS] -= 1


@part
def _wait_first(s, q, r):
    s.tag[q, STATUS], s.tag[q, BEFORE], s.tag[q, NEXT] = WAITING, NOTHING, s.eng[r, FIRST]
    if s.eng[r, FIRST] != NOTHING:
        s.tag[s.eng[r, FIRST], BEFORE] = q
    else:
        s.eng[r, LAST] = q
    s.eng[r, FIRST] = q
    s.eng[r, WAITS] += 1


@part
def _wait_last(s, q, r):
    s.tag[q, STATUS], s.tag[q, NEXT], s.tag[q, BEFORE] = WAITING, NOTHING, s.eng[r, LAST]
    if s.eng[r, LAST] != NOTHING:
        s.tag[s.eng[r, LAST], NEXT] = q
    else:
        s.eng[r, FIRST] = q
    s.eng[r, LAST] = q
    s.eng[r, WAITS] += 1


@part
def _release(s, q, r):
    s.eng[r, FREE] += s.tag[q, HELD]
    s.tag[q, HELD] = 0


@part
def _drop_running(s, i, r):
    for j in range(i, s.eng[r, RUNS] - 1):
        s.run[r, 0, j] = s.run[r, 0, j + 1]
        s.run[r, 1, j] = s.run[r, 1, j + 1]
    s.eng[r, RUNS] -= 1


@part
def _decodes(s, q):
    return s.num[q, DONE] > 0.0 and s.num[q, COMPUTED] >= s.tag[q, PROMPT] + s.num[q, DONE] - 1.0 - _TINY


@part
def _wanted(s, q):
    """The new tokens that a request's next output needs: one, or all that were not computed."""
    if _decodes(s, q):
        return np.int64(1)
    return np.int64(np.ceil(s.tag[q, PROMPT] + s.num[q, DONE] - s.num[q, COMPUTED] - _TINY))


@kernel
def _plan(s, r):
    """Chooses what the next iteration of instance `r` computes; returns whether a request was sent back."""
    budget, size = s.fixed[BUDGET], s.fixed[BLOCK]
    preempted = False
    i = 0
    while i < s.eng[r, RUNS]:
        q = s.run[r, 0, i]
        n = min(_wanted(s, q), budget)
        s.run[r, 1, i] = n
        gone = False
        need = _blocks(s.num[q, COMPUTED] + n, size) - s.tag[q, HELD]
        while n > 0 and need > s.eng[r, FREE]:
            last = s.run[r, 0, s.eng[r, RUNS] - 1]
            s.eng[r, RUNS] -= 1
            _release(s, last, r)
            s.num[last, COMPUTED] = 0.0
            s.tag[last, PREEMPTIONS] += 1
            s.eng[r, PREEMPTED] += 1
            _wait_first(s, last, r)
            preempted = True
            if last == q:
                gone = True
                break
        if gone:
            break
        if n > 0 and need > 0:
            s.tag[q, HELD] += need
            s.eng[r, FREE] -= need
        budget -= n
        i += 1
    while not preempted and s.eng[r, FIRST] != NOTHING and budget > 0 and s.eng[r, RUNS] < s.fixed[SEQUENCES]:
        q = s.eng[r, FIRST]
        n = min(budget, _wanted(s, q))
        need = _blocks(s.num[q, COMPUTED] + n, size)
        if need > s.eng[r, FREE]:
            break
        _unlink(s, q, r)
        s.tag[q, STATUS], s.tag[q, HELD] = RUNNING, need
        s.eng[r, FREE] -= need
        s.run[r, 0, s.eng[r, RUNS]] = q
        s.run[r, 1, s.eng[r, RUNS]] = n
        s.eng[r, RUNS] += 1
        budget -= n
    return preempted


@kernel
def _ahead(s, q):
    """The number of siblings that have come at least as far, so that what they said there is known."""
    g = s.tag[q, GROUP]
    count = 0
    for other in range(s.member[0, g], s.member[0, g + 1]):
        if other != q and s.num[other, DONE] >= s.num[q, DONE] and s.num[other, DONE] > 0.0:
            count += 1
    return min(count, s.accept.shape[0] - 1)


@kernel
def _drafts(s, r, batch, context):
    """The (drafts per sequence, paths) that a pass verifies while bound by memory, or those that make most tokens per second."""
    fixed = s.rate[1] * context + s.rate[2] + s.rate[3] * batch
    plain = _read(s.body, batch) + _read(s.head, batch) + fixed
    most = s.accept.shape[1] - 1
    if s.fixed[BEST] == 0:
        room, low, high = MEMORY_BOUND * plain, batch, (most * MOST_PATHS + 1) * batch
        while high - low > 0:  # the largest number of tokens within the bound
            mid = (low + high + 1) // 2
            if _read(s.body, mid) + _read(s.head, mid) + fixed <= room:
                low = mid
            else:
                high = mid - 1
        each = low // batch - 1
        draft = min(most, each)
        return draft, max(1, min(s.accept.shape[2], each // draft)) if draft > 0 else 1
    kept, draft = 0.0, 0
    middle = s.accept.shape[0] // 2
    for gamma in range(most + 1):
        n = batch * (gamma + 1)
        now = s.accept[middle, gamma, 0] / (_read(s.body, n) + _read(s.head, n) + fixed)
        if now > kept * (1 + 1e-12):
            kept, draft = now, gamma
    return draft, 1


@kernel
def _stretch(s, r):
    """The number of iterations without a decision, which is until a request reaches its target or blocks run out."""
    size, runs = s.fixed[BLOCK], s.eng[r, RUNS]
    k = np.int64(1) << 40
    for i in range(runs):
        q = s.run[r, 0, i]
        k = min(k, np.int64(np.ceil((s.tag[q, TARGET] - s.num[q, DONE]) / s.num[q, RATE] - _TINY)))
    k = max(k, np.int64(1))
    low, high = np.int64(1), k + 1
    while high - low > 1:
        mid = k if high == k + 1 and low == 1 and k > 1 else (low + high) // 2
        need = 0
        for i in range(runs):
            q = s.run[r, 0, i]
            need += max(0, _blocks(s.num[q, COMPUTED] + mid * s.num[q, RATE], size) - s.tag[q, HELD])
        if need > s.eng[r, FREE]:
            high = mid
        else:
            low = mid
    return low


@kernel
def _start(s, r, now):
    """Begins a segment at `now`, or leaves the instance idle."""
    s.clock[r, START], s.clock[r, END], s.eng[r, REPEAT] = now, np.inf, 0
    if s.eng[r, RUNS] + s.eng[r, WAITS] == 0:
        return True
    preempted = _plan(s, r)
    tokens = sequences = chosen = np.int64(0)
    pairs = context = grows = 0.0
    plain = not preempted
    for i in range(s.eng[r, RUNS]):
        q, n = s.run[r, 0, i], s.run[r, 1, i]
        if n == 0:
            plain = False
            continue
        chosen += 1
        tokens += n
        sequences += 1
        if _decodes(s, q):
            context += s.num[q, COMPUTED] + 1.0
        else:
            pairs += n * s.num[q, COMPUTED] + 0.5 * n * (n + 1)
            plain = False
    if chosen == 0:
        return False
    draft, paths = 0, 1
    if plain and s.accept.shape[0] > 0:
        draft, paths = _drafts(s, r, sequences, context)
    for i in range(s.eng[r, RUNS]):
        q = s.run[r, 0, i]
        s.num[q, RATE] = s.accept[_ahead(s, q), draft, paths - 1] if draft > 0 else 1.0
        grows += s.num[q, RATE]
    tokens, heads = tokens * (1 + draft * paths), sequences * (1 + draft * paths)
    first = (
        _read(s.body, tokens) + _read(s.head, heads) + s.rate[0] * pairs + s.rate[1] * context + s.rate[2]
        + s.rate[3] * s.eng[r, RUNS]
    )  # fmt: skip
    k = np.int64(1)
    if plain:
        k = _stretch(s, r)
    s.eng[r, REPEAT], s.eng[r, DRAFT] = k, draft
    s.clock[r, STEP], s.clock[r, SLOPE] = first * s.clock[r, SLOW], s.rate[1] * grows * s.clock[r, SLOW]
    s.clock[r, END] = now + _sum(s.clock[r, STEP], s.clock[r, SLOPE], k)
    return True


@kernel
def _end(s, r, now):
    """Books what a segment made; `ended` lists the requests that reached their targets."""
    k, size = s.eng[r, REPEAT], s.fixed[BLOCK]
    s.clock[r, BUSY] += now - s.clock[r, START] if k > 0 else 0.0
    kept = 0
    runs = s.eng[r, RUNS]
    for i in range(runs):
        q, n = s.run[r, 0, i], s.run[r, 1, i]
        if k > 0 and n > 0:
            out = 0.0
            if _decodes(s, q):
                out = min(k * s.num[q, RATE], s.tag[q, TARGET] - s.num[q, DONE])
                s.num[q, COMPUTED] += out
                need = _blocks(s.num[q, COMPUTED], size) - s.tag[q, HELD]
                if need > 0:
                    s.tag[q, HELD] += need
                    s.eng[r, FREE] -= need
            else:
                s.num[q, COMPUTED] += n
                if s.num[q, COMPUTED] >= s.tag[q, PROMPT] + s.num[q, DONE] - _TINY:
                    out = 1.0
            s.num[q, DONE] += out
            s.clock[r, OUT] += out
            if s.num[q, DONE] >= s.tag[q, TARGET] - _TINY:
                s.num[q, DONE] = s.tag[q, TARGET]
                s.tag[q, STATUS], s.num[q, AT] = ENDED, now
                _release(s, q, r)
                s.ended[0] += 1
                s.ended[s.ended[0]] = q
                continue
        s.run[r, 0, kept] = q
        kept += 1
    s.eng[r, RUNS] = kept
    s.eng[r, REPEAT] = 0


@part
def _cut(s, r, now):
    """Shortens a segment to the iteration in flight at `now`; returns how many iterations are over."""
    k = s.eng[r, REPEAT]
    if k == 0 or s.clock[r, END] == np.inf:
        return np.int64(0)
    low, high = np.int64(0), k
    while high - low > 0:  # the most iterations that end by `now`
        mid = (low + high + 1) // 2
        if s.clock[r, START] + _sum(s.clock[r, STEP], s.clock[r, SLOPE], mid) <= now:
            low = mid
        else:
            high = mid - 1
    left = low if low > 0 and s.clock[r, START] + _sum(s.clock[r, STEP], s.clock[r, SLOPE], low) == now else low + 1
    if left < k:
        s.eng[r, REPEAT] = left
        s.clock[r, END] = s.clock[r, START] + _sum(s.clock[r, STEP], s.clock[r, SLOPE], left)
    return min(low, k)


@part
def _wake(s, r, now):
    if s.clock[r, END] == np.inf:
        s.clock[r, END], s.clock[r, START], s.eng[r, REPEAT] = now, now, 0
    else:
        _cut(s, r, now)


@kernel
def submit(s, q, r, now):
    """Lets request `q` wait at instance `r` from `now` on."""
    s.tag[q, HOME] = r
    _wait_last(s, q, r)
    _wake(s, r, now)


@kernel
def submit_all(s, homes, now):
    """Lets every request wait, in order, at the instance that `homes` says."""
    for q in range(len(homes)):
        r = homes[q]
        s.tag[q, HOME] = r
        _wait_last(s, q, r)
        _wake(s, r, now)


@kernel
def take_off(s, q, now, status):
    """Takes request `q` off its instance at `now`, which frees its blocks at once; the tokens of whole iterations stay."""
    r = s.tag[q, HOME]
    if s.tag[q, STATUS] == WAITING:
        _unlink(s, q, r)
    elif s.tag[q, STATUS] == RUNNING:
        over = _cut(s, r, now)
        i = 0
        while s.run[r, 0, i] != q:
            i += 1
        if over > 0 and _decodes(s, q):
            out = min(over * s.num[q, RATE], s.tag[q, TARGET] - s.num[q, DONE])
            s.num[q, DONE] += out
            s.clock[r, OUT] += out
        _drop_running(s, i, r)
        _release(s, q, r)
    s.num[q, COMPUTED] = 0.0
    s.tag[q, STATUS] = status


@kernel
def set_speed(s, r, now, slow):
    """Makes instance `r` take `slow` times as long for iterations that begin after `now`."""
    if s.clock[r, SLOW] != slow:
        s.clock[r, SLOW] = slow
        _wake(s, r, now)


@kernel
def advance(s, now, until, stop):
    """Lets time pass to `until`, or, with `stop`, until the caller has to decide; returns (the time, the instance that is stuck).

    The caller has to decide when a request reaches its target and its group has used up its quota; `ended` lists all that ended.
    """
    s.ended[0] = 0
    while True:
        r = np.argmin(s.clock[:, END])
        t = s.clock[r, END]
        if t > until or t == np.inf:
            return now if until == np.inf else max(now, until), NOTHING
        now = max(now, t)
        if stop:
            had = s.ended[0]
            # All that ends at this moment ends before the caller decides, and nothing begins before that.
            for other in range(s.eng.shape[0]):
                if s.clock[other, END] <= now and s.eng[other, REPEAT] > 0:
                    _end(s, other, now)
                    s.clock[other, END], s.clock[other, START] = now, now
            ask = False
            for i in range(had, s.ended[0]):
                g = s.tag[s.ended[i + 1], GROUP]
                s.member[1, g] -= 1
                ask = ask or s.member[1, g] <= 0
            if ask:
                return now, NOTHING
        elif s.eng[r, REPEAT] > 0:
            _end(s, r, now)
            s.ended[0] = 0
        if not _start(s, r, now):
            return now, r
