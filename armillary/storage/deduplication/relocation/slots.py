"""Where new content goes when a chunk is overwritten, so that the neighbours of the chunk in its file stay neighbours.

Content that exists is referred to. A chunk that nobody else uses gives its slot to its successor. A shared chunk stays, and the new
content takes the nearest free slot of the container that holds most of the file's chunks, then of the containers that follow in the file,
and otherwise the end of the log.

Revisiting Fragmentation for Deduplication in Clustered Primary Storage Systems (ReoDedup), IEEE CLUSTER 2025. The choice of the nearest
slot and the extent of the search are our design.
"""

from __future__ import annotations

import numpy as np

from armillary.kernels import kernel, part

#: Containers of the file that are tried before the end of the log.
TRIED = 64


def home_container(containers: np.ndarray) -> int:
    """The container that holds most of a file's chunks, and the smallest number among equals."""
    found, counts = np.unique(containers, return_counts=True)
    return int(found[np.argmax(counts)])


@part
def nearest_free(occupied, base, slots, near):
    """The free slot of occupied[base : base + slots] nearest to `near`, the later of two; -1 if all are taken."""
    for distance in range(slots):
        later, earlier = near + distance, near - distance
        if later < slots and not occupied[base + later]:
            return later
        if 0 <= earlier < slots and not occupied[base + earlier]:
            return earlier
    return -1


@kernel
def free_slot(occupied, near):
    """The free slot nearest to `near` of one container's slots; -1 if all are taken."""
    return nearest_free(occupied, 0, len(occupied), near)


@part
def _home(f, starts, now, position, slots, counts):
    best = position[now[starts[f]]] // slots
    for r in range(starts[f], starts[f + 1]):
        k = position[now[r]] // slots
        counts[k] += 1
        if counts[k] > counts[best] or (counts[k] == counts[best] and k < best):
            best = k
    for r in range(starts[f], starts[f + 1]):
        counts[position[now[r]] // slots] = 0
    return best


@part
def _slot_for(r, f, starts, now, position, occupied, slots, home):
    """A free position near file f's other chunks for its reference r, or -1."""
    near = 0
    if r > starts[f] and position[now[r - 1]] // slots == home:
        near = min(position[now[r - 1]] % slots + 1, slots - 1)
    slot = nearest_free(occupied, home * slots, slots, near)
    if slot >= 0:
        return home * slots + slot
    tried, last, length = 0, home, starts[f + 1] - starts[f]
    for step in range(1, length):
        q = starts[f] + (r - starts[f] + step) % length
        k = position[now[q]] // slots
        if k != last:
            slot = nearest_free(occupied, k * slots, slots, position[now[q]] % slots)
            if slot >= 0:
                return k * slots + slot
            last = k
            tried += 1
            if tried == TRIED:
                break
    return -1


@kernel
def overwrite(refs, chunks, now, position, users, occupied, starts, file_of, slots, remap, homes, counts, log):
    """Overwrites reference refs[k] with chunks[k], which changes `now`, `position`, `users` and `occupied`; returns the end of the log.

    `homes` is -1 for every file at first, and keeps each file's container during the round. Without `remap`, new content goes to the log.
    """
    for i in range(len(refs)):
        r, n = refs[i], chunks[i]
        o = now[r]
        if n == o:
            continue
        if position[n] < 0:
            where = np.int64(-1)
            if remap and users[o] == 1:
                where = position[o]
                position[o] = -1
            elif remap:
                f = file_of[r]
                if homes[f] < 0:
                    homes[f] = _home(f, starts, now, position, slots, counts)
                where = _slot_for(r, f, starts, now, position, occupied, slots, homes[f])
            if where < 0:
                while occupied[log]:
                    log += 1
                where = log
            occupied[where] = True
            position[n] = where
        now[r] = n
        users[n] += 1
        users[o] -= 1
        if users[o] == 0 and position[o] >= 0:
            occupied[position[o]] = False
            position[o] = -1
    return log
