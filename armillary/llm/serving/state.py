"""The state of a serving engine, or of several, as a few arrays that compiled loops share.

The arrays are few and wide because a compiled function receives each array as seven numbers: with one array per column, compiling took two
minutes. All integers are int64, because a function is compiled again for every combination of types.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

NOTHING = -1

#: The status of a sequence.
AHEAD, WAITING, RUNNING, FINISHED, GONE, MOVING = range(6)
#: Columns of `seq`; those that every iteration reads are in the first cache line. OUTPUT is for the caller of the engine, not for policies.
#: KNOWN tokens are the prompt and the output so far; the KV of COMPUTED tokens is in HELD blocks, of which LAST is the last; KEPT tokens
#: bring their KV along on admission.
PROMPT, OUTPUT, ADAPTER, KNOWN, COMPUTED, STATUS, HOME, HELD = range(8)
LAST, PRIORITY, KEPT, BEFORE_IT, BEHIND_IT, PREEMPTIONS, CACHED, SPARE = range(8, 16)
#: Columns of `when`, in seconds; negative or NaN means not yet.
ARRIVED, SCHEDULED, FIRST_TOKEN, LAST_TOKEN, DONE_AT, TIMES = range(6)
#: Columns of `eng`: the settings of an engine …
BUDGET, SEQUENCES, LONG_PREFILL, ADAPTERS, POLICY, PREFIXES, DRAFT, RESERVE, SWAP, SWAP_ROOM = range(10)
ASYNC_LOADS, HOST_ADAPTERS, ROLE, PAUSED = range(10, 14)
#: … and its counters: running and waiting sequences, the first and the last of the waiting queue, blocks, and work done so far.
(RUNS, WAITS, FIRST, FINAL, CHOSEN, DISTINCT, CAPACITY, FREE, SIZE, REPEAT) = range(14, 24)
(PREEMPTED, LOADED, ITERATIONS, TOKENS, HOST_USED, SWAPPED_TOKENS, HITS, COLUMNS) = range(24, 32)
#: Columns of `clock`, in seconds: when the iteration began and ends, what loads and swaps add to it, the first of its repeats and the
#: increase of each further one; when the lane for loads is free; the transfer of one token's KV over the host link; busy time, and blocks
#: in use integrated over it.
START, END, EXTRA, STEP, SLOPE, LANE, SWAP_TOKEN_S, BUSY_S, BLOCK_S, CLOCKS = range(10)
#: The roles of a replica.
BOTH, PREFILL, DECODE = range(3)
#: Columns of `lists`: the running sequences in order of admission, the sequences in this iteration, and their tokens.
RUN_LIST, CHOICE, SHARES = range(3)
#: Columns of `adapters`: its slot on the device or NOTHING; the iteration that used it last; whether the host has it; the sequences that
#: wait for it.
SLOT, USED, ON_HOST, WAITERS = range(4)
#: Columns of `blocks`: the next older block of the free list or of the sequence; the next younger one; the number of sequences that hold
#: it.
OLDER, YOUNGER, USERS = range(3)


class State(NamedTuple):
    """Sequences, replicas and blocks; replicas first where there are several indices."""

    seq: np.ndarray  # int64 [sequence, 16]
    when: np.ndarray  # float64 [sequence, TIMES]
    first_name: np.ndarray  # int64 [sequence + 1]: where the names of a sequence begin
    names: np.ndarray  # uint64: chained hashes of full blocks of prompt and output
    eng: np.ndarray  # int64 [replica, COLUMNS]
    clock: np.ndarray  # float64 [replica, CLOCKS]
    lists: np.ndarray  # int64 [replica, 3, sequences]
    adapters: np.ndarray  # int64 [replica, adapter + 1, 4]; the last row stands for no adapter
    slots: np.ndarray  # int64 [replica, slot]: the adapter in the slot, or NOTHING
    ready: np.ndarray  # float64 [replica, adapter + 1]: when the load of an adapter ends, s
    load_s: np.ndarray  # float64 [2, adapter + 1]: seconds to load from the host, from disk
    blocks: np.ndarray  # int64 [replica, block + 1, 3]; the last row is the sentinel of the free list
    name: np.ndarray  # uint64 [replica, block]: the chained hash of the content, 0 for none
    key: np.ndarray  # uint64 [replica, place]: names in a table with open addressing
    value: np.ndarray  # int64 [replica, place]: their blocks


def empty(
    sequences: int, replicas: int, *, most_running: int, adapters: int, slots: int, blocks: list[int], size: list[int],
    names: np.ndarray, first_name: np.ndarray, named: bool,
) -> State:  # fmt: skip
    """A state in which nothing runs, with `blocks[r]` blocks of `size[r]` tokens each. With `named`, blocks can be found again by their
    hash.
    """
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
    """Frees all blocks of a replica, forgets their names and unloads its adapters, as at its start or after its failure."""
    count, gate = int(state.eng[r, CAPACITY]), state.blocks.shape[1] - 1
    state.blocks[r, :count, YOUNGER] = np.arange(1, count + 1)
    state.blocks[r, :count, OLDER] = np.arange(-1, count - 1)
    if count:
        state.blocks[r, count - 1, YOUNGER] = state.blocks[r, 0, OLDER] = gate
    state.blocks[r, gate, YOUNGER], state.blocks[r, gate, OLDER] = (0, count - 1) if count else (gate, gate)
    state.blocks[r, :, USERS], state.name[r], state.key[r], state.value[r] = 0, 0, 0, NOTHING
    state.eng[r, FREE], state.eng[r, HOST_USED] = count, 0
    state.adapters[r, :, SLOT], state.adapters[r, :, USED], state.adapters[r, :, ON_HOST], state.slots[r] = NOTHING, -1, 0, NOTHING
