"""Batching policies: each chooses the tokens of the next iteration, for the simulator and for real engines.

A policy looks at the sequences of one replica and writes which of them run, with how many tokens (`State.lists`). It takes and frees their
blocks, and moves them between waiting and running. No policy reads the length of an output, except `sjf_oracle`.
"""

from __future__ import annotations

import numpy as np

from armillary.kernels import kernel, part

from .paging import give_name, hits, release, share, take
from .state import (
    ADAPTER,
    ADAPTERS,
    ARRIVED,
    ASYNC_LOADS,
    BEFORE_IT,
    BEHIND_IT,
    BUDGET,
    CACHED,
    CHOICE,
    CHOSEN,
    COMPUTED,
    DISTINCT,
    DRAFT,
    EXTRA,
    FINAL,
    FINISHED,
    FIRST,
    FREE,
    HELD,
    HITS,
    HOST_ADAPTERS,
    HOST_USED,
    ITERATIONS,
    KEPT,
    KNOWN,
    LANE,
    LAST,
    LOADED,
    LONG_PREFILL,
    NOTHING,
    OLDER,
    ON_HOST,
    OUTPUT,
    POLICY,
    PREEMPTED,
    PREEMPTIONS,
    PREFIXES,
    PRIORITY,
    PROMPT,
    RESERVE,
    RUN_LIST,
    RUNNING,
    RUNS,
    SCHEDULED,
    SEQUENCES,
    SHARES,
    SIZE,
    SLOT,
    START,
    STATUS,
    SWAP,
    SWAP_ROOM,
    SWAP_TOKEN_S,
    SWAPPED_TOKENS,
    USED,
    WAITERS,
    WAITING,
    WAITS,
)  # fmt: skip

#: The kinds of sequences that `run_running` considers.
DECODES, PROMPTS, WORST = 1, 2, 4
NO_RESERVE = -1


@part
def wait_last(s, q, r):
    """Puts a sequence at the end of the waiting queue."""
    s.seq[q, STATUS] = WAITING
    s.seq[q, BEHIND_IT] = NOTHING
    s.seq[q, BEFORE_IT] = s.eng[r, FINAL]
    if s.eng[r, FINAL] == NOTHING:
        s.eng[r, FIRST] = q
    else:
        s.seq[s.eng[r, FINAL], BEHIND_IT] = q
    s.eng[r, FINAL] = q
    s.eng[r, WAITS] += 1
    s.adapters[r, s.seq[q, ADAPTER], WAITERS] += 1


@kernel
def wait_before(s, q, r, other):
    """Puts a sequence before `other` in the waiting queue."""
    s.seq[q, STATUS] = WAITING
    s.seq[q, BEHIND_IT] = other
    s.seq[q, BEFORE_IT] = s.seq[other, BEFORE_IT]
    if s.seq[other, BEFORE_IT] == NOTHING:
        s.eng[r, FIRST] = q
    else:
        s.seq[s.seq[other, BEFORE_IT], BEHIND_IT] = q
    s.seq[other, BEFORE_IT] = q
    s.eng[r, WAITS] += 1
    s.adapters[r, s.seq[q, ADAPTER], WAITERS] += 1


@part
def wait_first(s, q, r):
    """Puts a sequence at the front of the waiting queue."""
    if s.eng[r, FIRST] == NOTHING:
        wait_last(s, q, r)
    else:
        wait_before(s, q, r, s.eng[r, FIRST])


@part
def leave_waiting(s, q, r):
    """Removes a sequence from the waiting queue."""
    if s.seq[q, BEFORE_IT] == NOTHING:
        s.eng[r, FIRST] = s.seq[q, BEHIND_IT]
    else:
        s.seq[s.seq[q, BEFORE_IT], BEHIND_IT] = s.seq[q, BEHIND_IT]
    if s.seq[q, BEHIND_IT] == NOTHING:
        s.eng[r, FINAL] = s.seq[q, BEFORE_IT]
    else:
        s.seq[s.seq[q, BEHIND_IT], BEFORE_IT] = s.seq[q, BEFORE_IT]
    s.eng[r, WAITS] -= 1
    s.adapters[r, s.seq[q, ADAPTER], WAITERS] -= 1


@part
def give_back(s, q, r):
    """Frees all blocks of a sequence."""
    release(s, r, s.seq[q, LAST], s.seq[q, HELD])
    s.seq[q, LAST] = NOTHING
    s.seq[q, HELD] = 0


@part
def leave_running(s, q, r):
    """Removes a sequence from the running ones, which keep their order."""
    n = s.eng[r, RUNS]
    at = 0
    while s.lists[r, RUN_LIST, at] != q:
        at += 1
    for i in range(at, n - 1):
        s.lists[r, RUN_LIST, i] = s.lists[r, RUN_LIST, i + 1]
    s.eng[r, RUNS] = n - 1


@kernel
def preempt(s, q, r):
    """Moves a running sequence to the front of the waiting queue. Its KV is swapped to the host where there is room, and otherwise lost."""
    give_back(s, q, r)
    if s.eng[r, SWAP] and s.eng[r, SWAPPED_TOKENS] + s.seq[q, COMPUTED] <= s.eng[r, SWAP_ROOM]:
        s.seq[q, KEPT] = s.seq[q, COMPUTED]
        s.eng[r, SWAPPED_TOKENS] += s.seq[q, KEPT]
        s.clock[r, EXTRA] += s.seq[q, KEPT] * s.clock[r, SWAP_TOKEN_S]
    s.seq[q, COMPUTED] = 0
    s.seq[q, PREEMPTIONS] += 1
    s.eng[r, PREEMPTED] += 1
    wait_first(s, q, r)


@part
def grow(s, q, r, tokens):
    """Takes the blocks that `tokens` more tokens need, which must be free, and names the blocks that they fill."""
    size = s.eng[r, SIZE]
    end = s.seq[q, COMPUTED] + tokens
    need = (end + size - 1) // size
    while s.seq[q, HELD] < need:
        s.seq[q, LAST] = take(s, r, s.seq[q, LAST])
        s.seq[q, HELD] += 1
    if s.eng[r, PREFIXES]:
        first = s.first_name[q]
        full = min(end // size, s.first_name[q + 1] - first)
        old = s.seq[q, COMPUTED] // size
        if full > old:
            block = s.seq[q, LAST]
            for i in range(s.seq[q, HELD] - 1, old - 1, -1):
                if i < full:
                    give_name(s, r, block, s.names[first + i])
                block = s.blocks[r, block, OLDER]


@part
def can_use(s, q, r, now):
    """Whether the adapter of a sequence may take part in this iteration; an asynchronous load starts here."""
    a = s.seq[q, ADAPTER]
    if a == NOTHING or s.adapters[r, a, USED] == s.eng[r, ITERATIONS]:
        return True
    if s.eng[r, DISTINCT] >= s.eng[r, ADAPTERS]:
        return False
    if s.eng[r, ASYNC_LOADS]:
        if s.adapters[r, a, SLOT] == NOTHING:
            if not make_slot(s, r, a, now):
                return False
            begin = max(now, s.clock[r, LANE])
            s.clock[r, LANE] = begin + from_store(s, r, a)
            s.ready[r, a] = s.clock[r, LANE]
        return s.ready[r, a] <= now
    return True


@kernel
def make_slot(s, r, a, now):
    """Finds a slot on the device for adapter `a`: a free one, or that of the least recently used adapter. False if all are in use."""
    best = np.int64(NOTHING)
    oldest = s.eng[r, ITERATIONS]
    for place in range(s.eng[r, ADAPTERS]):
        other = s.slots[r, place]
        if other == NOTHING:
            best = place
            break
        if s.adapters[r, other, USED] < oldest and s.ready[r, other] <= now:
            oldest = s.adapters[r, other, USED]
            best = place
    if best == NOTHING:
        return False
    if s.slots[r, best] != NOTHING:
        s.adapters[r, s.slots[r, best], SLOT] = NOTHING
    s.slots[r, best] = a
    s.adapters[r, a, SLOT] = best
    return True


@kernel
def from_store(s, r, a):
    """Seconds to load an adapter onto the device, from the host if it is there, and otherwise from disk, after which the host keeps it."""
    s.eng[r, LOADED] += 1
    if s.adapters[r, a, ON_HOST]:
        return s.load_s[0, a]
    if s.eng[r, HOST_ADAPTERS] > 0:
        if s.eng[r, HOST_USED] >= s.eng[r, HOST_ADAPTERS]:
            out = NOTHING
            for other in range(s.adapters.shape[1] - 1):
                if s.adapters[r, other, ON_HOST] and (out == NOTHING or s.adapters[r, other, USED] < s.adapters[r, out, USED]):
                    out = other
            s.adapters[r, out, ON_HOST] = 0
            s.eng[r, HOST_USED] -= 1
        s.adapters[r, a, ON_HOST] = 1
        s.eng[r, HOST_USED] += 1
    return s.load_s[1, a]


@part
def use_adapter(s, q, r):
    """Counts the adapter of a sequence as part of this iteration, and loads it where loads block."""
    a = s.seq[q, ADAPTER]
    if a == NOTHING:
        return
    if s.adapters[r, a, USED] != s.eng[r, ITERATIONS]:
        s.eng[r, DISTINCT] += 1
        if s.adapters[r, a, SLOT] == NOTHING:
            make_slot(s, r, a, np.inf)
            s.clock[r, EXTRA] += from_store(s, r, a)
        s.adapters[r, a, USED] = s.eng[r, ITERATIONS]


@part
def choose(s, q, r, tokens):
    """Adds a sequence to the iteration."""
    k = s.eng[r, CHOSEN]
    s.lists[r, CHOICE, k] = q
    s.lists[r, SHARES, k] = tokens
    s.eng[r, CHOSEN] = k + 1


@part
def begin(s, r):
    """Clears the choices of the last iteration."""
    s.eng[r, CHOSEN] = 0
    s.eng[r, DISTINCT] = 0
    s.eng[r, ITERATIONS] += 1
    s.clock[r, EXTRA] = 0.0


@part
def wanted(s, q, r):
    """The tokens that a running sequence would compute now: those that are known but not computed, and drafts after the last token."""
    left = s.seq[q, KNOWN] - s.seq[q, COMPUTED]
    if left == 1 and s.seq[q, KNOWN] > s.seq[q, PROMPT]:
        left += s.eng[r, DRAFT]
    return left


@kernel
def put_one_back(s, r, kinds):
    """Preempts the last running sequence, or with WORST the least important and latest one; returns (its place, its tokens in the
    iteration).
    """
    at = s.eng[r, RUNS] - 1
    if kinds & WORST:
        for k in range(s.eng[r, RUNS] - 1):
            x, y = s.lists[r, RUN_LIST, k], s.lists[r, RUN_LIST, at]
            later = s.seq[x, PRIORITY] == s.seq[y, PRIORITY] and s.when[x, ARRIVED] > s.when[y, ARRIVED]
            if s.seq[x, PRIORITY] > s.seq[y, PRIORITY] or later:
                at = k
    victim = s.lists[r, RUN_LIST, at]
    tokens = np.int64(0)
    for k in range(s.eng[r, CHOSEN]):
        if s.lists[r, CHOICE, k] == victim:
            tokens = s.lists[r, SHARES, k]
            for m in range(k, s.eng[r, CHOSEN] - 1):
                s.lists[r, CHOICE, m] = s.lists[r, CHOICE, m + 1]
                s.lists[r, SHARES, m] = s.lists[r, SHARES, m + 1]
            s.eng[r, CHOSEN] -= 1
            break
    leave_running(s, victim, r)
    preempt(s, victim, r)
    return at, tokens


@kernel
def run_running(s, r, budget, kinds):
    """Gives tokens and blocks to the running sequences, in order, while they last; when blocks run out, one sequence is preempted.

    `kinds` is DECODES, PROMPTS or both of them; with WORST the least important sequence is preempted, not the last one. Returns the budget
    that is left, and whether any sequence was preempted.
    """
    size = s.eng[r, SIZE]
    put_back = False
    i = 0
    while i < s.eng[r, RUNS] and budget > 0:
        q = s.lists[r, RUN_LIST, i]
        is_decode = s.seq[q, KNOWN] - s.seq[q, COMPUTED] == 1 and s.seq[q, KNOWN] > s.seq[q, PROMPT]
        if not kinds & (DECODES if is_decode else PROMPTS) or not can_use(s, q, r, s.clock[r, START]):
            i += 1
            continue
        n = min(wanted(s, q, r), budget)
        if s.eng[r, LONG_PREFILL] > 0:
            n = min(n, s.eng[r, LONG_PREFILL])
        # Only a sequence that fills its last block, or needs another one, looks for blocks, because divisions are the largest cost of a
        # decode.
        if s.seq[q, COMPUTED] + n >= s.seq[q, HELD] * size or s.eng[r, RESERVE] > 0:
            while (s.seq[q, COMPUTED] + n + size - 1) // size - s.seq[q, HELD] > s.eng[r, FREE]:
                at, tokens = put_one_back(s, r, kinds)
                budget += tokens
                put_back = True
                if at == i:
                    return budget, True
                if at < i:
                    i -= 1
            grow(s, q, r, n)
        use_adapter(s, q, r)
        choose(s, q, r, n)
        budget -= n
        i += 1
    return budget, put_back


@kernel
def let_in(s, r, q, budget, reserve):
    """Admits a waiting sequence if its blocks are free; returns the number of tokens that it takes, or 0.

    With `reserve`, the blocks for this many further tokens are taken at once and the prompt is not cut; with NO_RESERVE, only the blocks
    for the tokens that run now are taken.
    """
    size = s.eng[r, SIZE]
    found, found_free = 0, 0
    first = s.first_name[q]
    kept = s.seq[q, KEPT]
    if kept == 0 and s.eng[r, PREFIXES]:
        most = min((s.seq[q, KNOWN] - 1) // size, s.first_name[q + 1] - first)
        found, found_free = hits(s, r, s.names, first, most)
    here = max(kept, found * size)
    n = s.seq[q, KNOWN] - here
    if reserve == NO_RESERVE:
        n = min(n, budget)
        if s.eng[r, LONG_PREFILL] > 0:
            n = min(n, s.eng[r, LONG_PREFILL])
    need = (here + n + max(0, reserve) + size - 1) // size - found
    if need + found_free > s.eng[r, FREE]:
        return 0
    leave_waiting(s, q, r)
    if found > 0:
        s.seq[q, LAST] = share(s, r, s.names, first, found, found_free)
        s.seq[q, HELD] = found
        s.eng[r, HITS] += found * size
    if s.when[q, SCHEDULED] < 0.0:
        s.when[q, SCHEDULED] = s.clock[r, START]
        s.seq[q, CACHED] = found * size
    if kept > 0:
        s.seq[q, COMPUTED] = 0
        grow(s, q, r, kept)
        if s.eng[r, SWAP] and s.seq[q, PREEMPTIONS] > 0:
            s.clock[r, EXTRA] += kept * s.clock[r, SWAP_TOKEN_S]
            s.eng[r, SWAPPED_TOKENS] -= kept
        s.seq[q, KEPT] = 0
    s.seq[q, COMPUTED] = here
    grow(s, q, r, n)
    while s.seq[q, HELD] < (here + n + max(0, reserve) + size - 1) // size:
        s.seq[q, LAST] = take(s, r, s.seq[q, LAST])
        s.seq[q, HELD] += 1
    s.seq[q, STATUS] = RUNNING
    s.lists[r, RUN_LIST, s.eng[r, RUNS]] = q
    s.eng[r, RUNS] += 1
    use_adapter(s, q, r)
    choose(s, q, r, n)
    return n


@kernel
def run_waiting(s, r, budget, reserve):
    """Admits waiting sequences, in order, until one finds no blocks; a sequence whose adapter finds no slot keeps its place."""
    q = s.eng[r, FIRST]
    full = s.eng[r, DISTINCT] >= s.eng[r, ADAPTERS]
    able = _able(s, r) if full else 0
    while q != NOTHING and budget > 0 and s.eng[r, RUNS] < s.eng[r, SEQUENCES]:
        after = s.seq[q, BEHIND_IT]
        if full and able == 0:
            break
        if can_use(s, q, r, s.clock[r, START]):
            n = let_in(s, r, q, budget, reserve)
            if n == 0:
                break
            budget -= n
            able -= 1
            if not full and s.eng[r, DISTINCT] >= s.eng[r, ADAPTERS]:
                full = True
                able = _able(s, r)
        q = after
    return budget


@part
def _able(s, r):
    """The number of waiting requests whose adapter is already in the batch, or that need no adapter."""
    able = s.adapters[r, s.adapters.shape[1] - 1, WAITERS]
    for place in range(s.eng[r, ADAPTERS]):
        a = s.slots[r, place]
        if a != NOTHING and s.adapters[r, a, USED] == s.eng[r, ITERATIONS]:
            able += s.adapters[r, a, WAITERS]
    return able


@kernel
def vllm(s, r):
    """The policy of vLLM (V1): a budget of tokens goes to running sequences first, and prompts are cut to the rest. When blocks run out,
    the last sequence is preempted.
    """
    begin(s, r)
    budget, put_back = run_running(s, r, s.eng[r, BUDGET], np.int64(DECODES | PROMPTS))
    if not put_back and s.eng[r, WAITS] > 0:
        run_waiting(s, r, budget, np.int64(NO_RESERVE))


@kernel
def sarathi(s, r):
    """The policy of Sarathi-Serve: all decodes run first, and the rest of a fixed chunk goes to prompts."""
    begin(s, r)
    budget, put_back = run_running(s, r, s.eng[r, BUDGET], np.int64(DECODES))
    if not put_back:
        budget, put_back = run_running(s, r, budget, np.int64(PROMPTS))
    if not put_back and s.eng[r, WAITS] > 0:
        run_waiting(s, r, budget, np.int64(NO_RESERVE))


@kernel
def orca(s, r):
    """The policy of Orca: whole prompts run beside decodes, and an admitted sequence reserves room for its longest answer."""
    begin(s, r)
    run_running(s, r, np.int64(1) << 40, np.int64(DECODES | PROMPTS))
    run_waiting(s, r, np.int64(1) << 40, s.eng[r, RESERVE])


@kernel
def static(s, r):
    """The policy of FasterTransformer: a batch runs until all its sequences are finished; those that finish early run on as padding."""
    begin(s, r)
    done = True
    for i in range(s.eng[r, RUNS]):
        done = done and s.seq[s.lists[r, RUN_LIST, i], STATUS] == FINISHED
    if done:
        for i in range(s.eng[r, RUNS]):
            give_back(s, s.lists[r, RUN_LIST, i], r)
        s.eng[r, RUNS] = 0
        run_waiting(s, r, np.int64(1) << 40, s.eng[r, RESERVE])
        return
    for i in range(s.eng[r, RUNS]):
        q = s.lists[r, RUN_LIST, i]
        if s.seq[q, STATUS] != FINISHED:
            grow(s, q, r, np.int64(1))
        use_adapter(s, q, r)
        choose(s, q, r, np.int64(1))


@kernel
def sglang(s, r):
    """The policy of SGLang: prompts run before decodes, the one with the longest cached prefix first; decodes run when no prompt can."""
    begin(s, r)
    size = s.eng[r, SIZE]
    budget, put_back = run_running(s, r, s.eng[r, BUDGET], np.int64(PROMPTS))
    while not put_back and budget > 0 and s.eng[r, RUNS] < s.eng[r, SEQUENCES]:
        best, longest = np.int64(NOTHING), np.int64(-1)
        q = s.eng[r, FIRST]
        looked = 0
        while q != NOTHING and looked < 128:
            if can_use(s, q, r, s.clock[r, START]):
                first = s.first_name[q]
                found, _ = hits(s, r, s.names, first, min((s.seq[q, KNOWN] - 1) // size, s.first_name[q + 1] - first))
                if found > longest:
                    best, longest = q, found
            q = s.seq[q, BEHIND_IT]
            looked += 1
        if best == NOTHING:
            break
        n = let_in(s, r, best, budget, np.int64(NO_RESERVE))
        if n == 0:
            break
        budget -= n
    if s.eng[r, CHOSEN] == 0:
        run_running(s, r, s.eng[r, BUDGET], np.int64(DECODES))


@kernel
def sjf_oracle(s, r):
    """Like `vllm`, but admits the sequence with the least remaining work first, for which it reads the length of the output."""
    begin(s, r)
    budget, put_back = run_running(s, r, s.eng[r, BUDGET], np.int64(DECODES | PROMPTS))
    while not put_back and budget > 0 and s.eng[r, RUNS] < s.eng[r, SEQUENCES]:
        best = np.int64(NOTHING)
        q = s.eng[r, FIRST]
        while q != NOTHING:
            if can_use(s, q, r, s.clock[r, START]) and (
                best == NOTHING or s.seq[q, PROMPT] + s.seq[q, OUTPUT] < s.seq[best, PROMPT] + s.seq[best, OUTPUT]
            ):
                best = q
            q = s.seq[q, BEHIND_IT]
        if best == NOTHING:
            break
        n = let_in(s, r, best, budget, np.int64(NO_RESERVE))
        if n == 0:
            break
        budget -= n


@kernel
def priority(s, r):
    """Like `vllm`, but the most important sequence is first in the queue, and the least important and latest is preempted when blocks run
    out.
    """
    begin(s, r)
    budget, put_back = run_running(s, r, s.eng[r, BUDGET], np.int64(DECODES | PROMPTS | WORST))
    while not put_back and budget > 0 and s.eng[r, RUNS] < s.eng[r, SEQUENCES]:
        best = np.int64(NOTHING)
        q = s.eng[r, FIRST]
        while q != NOTHING:
            if can_use(s, q, r, s.clock[r, START]) and (
                best == NOTHING
                or s.seq[q, PRIORITY] < s.seq[best, PRIORITY]
                or (s.seq[q, PRIORITY] == s.seq[best, PRIORITY] and s.when[q, ARRIVED] < s.when[best, ARRIVED])
            ):
                best = q
            q = s.seq[q, BEHIND_IT]
        if best == NOTHING:
            break
        n = let_in(s, r, best, budget, np.int64(NO_RESERVE))
        if n == 0:
            break
        budget -= n


POLICIES = ("vllm", "sarathi", "orca", "static", "sglang", "sjf-oracle", "priority")


@kernel
def _plan(s, r):
    policy = s.eng[r, POLICY]
    if policy == 0:
        vllm(s, r)
    elif policy == 1:
        sarathi(s, r)
    elif policy == 2:
        orca(s, r)
    elif policy == 3:
        static(s, r)
    elif policy == 4:
        sglang(s, r)
    elif policy == 5:
        sjf_oracle(s, r)
    else:
        priority(s, r)


@kernel
def plan(s, r):
    """Fills the next iteration of replica `r` by its policy.

    If every running sequence was preempted, none has been admitted yet, so it chooses again among the waiting ones.
    """
    put_back = s.eng[r, PREEMPTED]
    _plan(s, r)
    while s.eng[r, CHOSEN] == 0 and s.eng[r, PREEMPTED] != put_back:
        put_back = s.eng[r, PREEMPTED]
        _plan(s, r)
