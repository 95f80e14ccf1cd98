"""The ring queues and lists against plain Python lists."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.storage.queue import (
    SIZE,
    append,
    close_holes,
    empty_queues,
    grown_queues,
    leave,
    members,
    oldest,
    pop,
    push,
    ring_cells,
    unlink,
)  # fmt: skip


def test_ring_has_twice_the_cells():
    assert [ring_cells(n) for n in (1, 4, 5, 8, 9, 1000)] == [8, 8, 16, 16, 32, 2048]


def test_the_oldest_leaves_first_and_holes_are_skipped():
    cells, queues = empty_queues([4])
    slot = np.zeros(4, np.int32)
    for o in (2, 0, 3):
        push(cells, queues, 0, slot, o, 1)
    leave(cells, queues, 0, slot, 2, None)
    assert oldest(cells, queues, 0) == 0
    assert members(cells, queues, 0).tolist() == [3, 0]
    assert (pop(cells, queues, 0, None), pop(cells, queues, 0, None), queues[0, SIZE]) == (0, 3, 0)


@settings(max_examples=150, deadline=None)
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["join", "join", "leave", "pop", "close", "grow"]), st.integers(0, 1), st.integers(0, 11)), max_size=200
    )
)
def test_two_queues_behave_like_lists(steps):
    held = np.arange(1, 13, dtype=np.int64)
    cells, queues = empty_queues([12, 12])
    slot = np.zeros(12, np.int32)
    model = [[], []]
    room = 12
    for what, q, o in steps:
        home = next((k for k in (0, 1) if o in model[k]), None)
        if what == "join" and home is None:
            push(cells, queues, q, slot, o, held[o])
            model[q].append(o)
        elif what == "leave" and home is not None:
            leave(cells, queues, home, slot, o, held)
            model[home].remove(o)
        elif what == "pop" and model[q]:
            assert pop(cells, queues, q, held) == model[q].pop(0)
        elif what == "close":
            close_holes(cells, queues, q, slot, 0)
        elif what == "grow" and room < 200:
            room *= 2
            cells, queues = grown_queues(cells, queues, [slot, slot], [room, room])
        for k in (0, 1):
            assert members(cells, queues, k).tolist() == model[k][::-1]
            assert queues[k, SIZE] == sum(held[v] for v in model[k])


def test_a_mark_moves_with_its_object():
    cells, queues = empty_queues([4])
    slot = np.zeros(4, np.int32)
    for o in range(4):
        push(cells, queues, 0, slot, o, 1)
    for o in (0, 2):
        leave(cells, queues, 0, slot, o, None)
    mark = close_holes(cells, queues, 0, slot, 3)
    assert cells[mark & 7] == 3


@settings(max_examples=100, deadline=None)
@given(steps=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 7)), max_size=80))
def test_linked_lists_behave_like_lists(steps):
    first, last = np.full(3, -1, np.int32), np.full(3, -1, np.int32)
    before, after = np.zeros(8, np.int32), np.zeros(8, np.int32)
    model = [[], [], []]
    for b, o in steps:
        home = next((k for k in range(3) if o in model[k]), None)
        if home is None:
            append(first, last, before, after, b, o)
            model[b].append(o)
        else:
            unlink(first, last, before, after, home, o)
            model[home].remove(o)
        for k in range(3):
            walked, v = [], first[k]
            while v >= 0:
                walked.append(int(v))
                v = after[v]
            assert walked == model[k]
            assert last[k] == (model[k][-1] if model[k] else -1)
