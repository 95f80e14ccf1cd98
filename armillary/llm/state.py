"""The state of a serving engine, or of several, as a few arrays that compiled loops share.

They are few and wide because a compiled function takes each array apart into seven numbers: with a column an array, compiling took
two minutes. All whole numbers are int64: a function would be compiled again for every mixture.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

NOTHING = -1

#: Where a sequence is.
AHEAD, WAITING, RUNNING, FINISHED, GONE, MOVING = range(6)
#: Columns of `seq`; what every iteration reads is in the first cache line. OUTPUT is for whoever runs the engine, not for policies;
#: KNOWN tokens are the prompt and what came out; the KV of COMPUTED tokens is in HELD blocks, of which LAST is the last; KEPT tokens
#: bring their KV along when they are let in.
PROMPT, OUTPUT, ADAPTER, KNOWN, COMPUTED, STATUS, HOME, HELD = range(8)
LAST, PRIORITY, KEPT, BEFORE_IT, BEHIND_IT, PREEMPTIONS, CACHED, SPARE = range(8, 16)
#: Columns of `when`, seconds; negative or NaN: not yet.
ARRIVED, SCHEDULED, FIRST_TOKEN, LAST_TOKEN, DONE_AT, TIMES = range(6)
#: Columns of `eng`: what an engine is told …
BUDGET, SEQUENCES, LONG_PREFILL, ADAPTERS, POLICY, PREFIXES, DRAFT, RESERVE, SWAP, SWAP_ROOM = range(10)
ASYNC_LOADS, HOST_ADAPTERS, ROLE, PAUSED = range(10, 14)
#: … and what it counts: sequences that run and wait, the first and the last that waits, blocks, and what was done so far.
(RUNS, WAITS, FIRST, FINAL, CHOSEN, DISTINCT, CAPACITY, FREE, SIZE, REPEAT) = range(14, 24)
(PREEMPTED, LOADED, ITERATIONS, TOKENS, HOST_USED, SWAPPED_TOKENS, HITS, COLUMNS) = range(24, 32)
#: Columns of `clock`, seconds: when the iteration began and ends, what loads and swaps add to it, the first of its repeats and how
#: much each next one takes more; when the lane for loads is free; a token's KV over the host link; time at work, and blocks
#: in use times that.
START, END, EXTRA, STEP, SLOPE, LANE, SWAP_TOKEN_S, BUSY_S, BLOCK_S, CLOCKS = range(10)
#: What a replica is for.
BOTH, PREFILL, DECODE = range(3)
#: Columns of `lists`: who runs, in the order they were let in; who is in this iteration; with how many tokens.
RUN_LIST, CHOICE, SHARES = range(3)
#: Columns of `adapters`: its slot on the device or NOTHING; the iteration that used it last; whether the host has it; who waits for it.
SLOT, USED, ON_HOST, WAITERS = range(4)
#: Columns of `blocks`: towards the older end of the free list, or of the sequence; towards the younger end; sequences that hold it.
OLDER, YOUNGER, USERS = range(3)


class State(NamedTuple):
    """Sequences, replicas and blocks; replicas first where there are several indices."""

    seq: np.ndarray  # int64 [sequence, 16]
    when: np.ndarray  # float64 [sequence, TIMES]
    first_name: np.ndarray  # int64 [sequence + 1]: where its names begin
    names: np.ndarray  # uint64: chained hashes of full blocks of prompt and output
    eng: np.ndarray  # int64 [replica, COLUMNS]
    clock: np.ndarray  # float64 [replica, CLOCKS]
    lists: np.ndarray  # int64 [replica, 3, sequences]
    adapters: np.ndarray  # int64 [replica, adapter + 1, 4]; the last stands for none
    slots: np.ndarray  # int64 [replica, slot]: the adapter there, or NOTHING
    ready: np.ndarray  # float64 [replica, adapter + 1]: when its load ends, s
    load_s: np.ndarray  # float64 [2, adapter + 1]: from the host, from disk
    blocks: np.ndarray  # int64 [replica, block + 1, 3]; the last is the gate of the free list
    name: np.ndarray  # uint64 [replica, block]: the chained hash of its content, 0 where it has none
    key: np.ndarray  # uint64 [replica, place]: names, by open addressing
    value: np.ndarray  # int64 [replica, place]: their blocks


def empty(
    sequences: int, replicas: int, *, most_running: int, adapters: int, slots: int, blocks: list[int], size: list[int],
    names: np.ndarray, first_name: np.ndarray, named: bool,
) -> State:  # fmt: skip
    """Nothing running anywhere; `blocks[r]` blocks of `size[r]` tokens each; `named`: blocks can be found again by their hash."""
    most = max(blocks)
    places = 1 << (2 * most).bit_length() if named else 1
    state = State(
        np.zeros((sequences, 16), np.int64), np.full((sequences, TIMES), np.nan), first_name, names,
        np.zeros((replicas, COLUMNS), np.int64), np.zeros((replicas, CLOCKS)), np.zeros((replicas, 3, most_running), np.int64),
        np.zeros((replicas, adapters + 1, 4), np.int64),
        np.full((replicas, max(1, slots)), NOTHING, np.int64), np.zeros((replicas, adapters + 1)), np.zeros((2, adapters + 1)),
        np.zeros((replicas, most + 1, 3), np.int64), np.zeros((replicas, most), np.uint64), np.zeros((replicas, places), np.uint64),
        np.full((replicas, places), NOTHING, np.int64),
    )  # fmt: skip
    state.seq[:, [ADAPTER, HOME, LAST, BEFORE_IT, BEHIND_IT]] = NOTHING
    state.when[:, [ARRIVED, SCHEDULED]] = -1.0
    state.eng[:, [FIRST, FINAL]] = NOTHING
    state.eng[:, CAPACITY], state.eng[:, SIZE] = blocks, size
    state.clock[:, END] = np.inf
    for r in range(replicas):
        forget_all(state, r)
    return state


def forget_all(state: State, r: int) -> None:
    """Makes all blocks of a replica free and nameless and its adapters unloaded, as at its start or after its loss."""
    count, gate = int(state.eng[r, CAPACITY]), state.blocks.shape[1] - 1
    state.blocks[r, :count, YOUNGER] = np.arange(1, count + 1)
    state.blocks[r, :count, OLDER] = np.arange(-1, count - 1)
    if count:
        state.blocks[r, count - 1, YOUNGER] = state.blocks[r, 0, OLDER] = gate
    state.blocks[r, gate, YOUNGER], state.blocks[r, gate, OLDER] = (0, count - 1) if count else (gate, gate)
    state.blocks[r, :, USERS], state.name[r], state.key[r], state.value[r] = 0, 0, 0, NOTHING
    state.eng[r, FREE], state.eng[r, HOST_USED] = count, 0
    state.adapters[r, :, SLOT], state.adapters[r, :, USED], state.adapters[r, :, ON_HOST], state.slots[r] = NOTHING, -1, 0, NOTHING
