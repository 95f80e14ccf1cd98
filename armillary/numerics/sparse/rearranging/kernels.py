"""The loops over entries, which find where each goes, pack without locks, and build a block from what came.

All release the GIL. Packing is two passes over contiguous parts of the columns: the first counts into a private histogram for each part,
an exclusive sum in the order (destination, part) turns counts into private offsets, and the second writes straight into the send buffer.
So threads need neither locks nor atomics, and the buffer does not depend on how many there are.
"""

from __future__ import annotations

import numpy as np

from armillary.kernels import loop

#: Up to this many rows of a column are sorted by their ranks (twice as fast as by insertion on 16), more by radix.
FEW_BITS = 5
FEW = 1 << FEW_BITS
_DIGIT = 11


@loop
def count_moved(jc, cp, ir, first, last, row_part, col_part, pc, histogram):
    """Counts destinations of the entries of columns jc[first:last], when row i goes to grid row row_part[i], column j to col_part[j]."""
    for x in range(first, last):
        column = col_part[jc[x]]
        for e in range(cp[x], cp[x + 1]):
            histogram[row_part[ir[e]] * pc + column] += 1


@loop
def pack_moved(jc, cp, ir, num, first, last, row_part, row_local, col_part, col_local, pc, offsets, out):
    """Does the second pass of `count_moved`: it writes local places at the destination and values, from private offsets on."""
    for x in range(first, last):
        column = col_part[jc[x]]
        j = col_local[jc[x]]
        for e in range(cp[x], cp[x + 1]):
            i = ir[e]
            destination = row_part[i] * pc + column
            at = offsets[destination]
            offsets[destination] = at + 1
            out[at].i = row_local[i]
            out[at].j = j
            out[at].v = num[e]


@loop
def _find(keys, table, i):
    """Says which of the sorted keys is i, by table where there is one, else by bisection; -1 for none."""
    if table.size:
        return np.int64(table[i])
    low, high = 0, keys.size
    while low < high:
        middle = (low + high) // 2
        if keys[middle] < i:
            low = middle + 1
        else:
            high = middle
    if low < keys.size and keys[low] == i:
        return np.int64(low)
    return np.int64(-1)


@loop
def count_wanted(cp, ir, places, wanted, first, last, keys, table, row_ptr, row_pos, col_ptr, col_pos, mb, nb, pc, histogram):
    """Counts destinations of the entries that an extraction asks for: column places[x] is key wanted[x]; keys may repeat."""
    for x in range(first, last):
        u = wanted[x]
        for e in range(cp[places[x]], cp[places[x] + 1]):
            found = _find(keys, table, ir[e])
            if found >= 0:
                for a in range(row_ptr[found], row_ptr[found + 1]):
                    row = row_pos[a] // mb * pc
                    for b in range(col_ptr[u], col_ptr[u + 1]):
                        histogram[row + col_pos[b] // nb] += 1


@loop
def pack_wanted(cp, ir, num, places, wanted, first, last, keys, table, row_ptr, row_pos, col_ptr, col_pos, mb, nb, pc, offsets, out):
    """Does the second pass of `count_wanted`."""
    for x in range(first, last):
        u = wanted[x]
        for e in range(cp[places[x]], cp[places[x] + 1]):
            found = _find(keys, table, ir[e])
            if found >= 0:
                for a in range(row_ptr[found], row_ptr[found + 1]):
                    row = row_pos[a] // mb
                    for b in range(col_ptr[u], col_ptr[u + 1]):
                        column = col_pos[b] // nb
                        at = offsets[row * pc + column]
                        offsets[row * pc + column] = at + 1
                        out[at].i = row_pos[a] - row * mb
                        out[at].j = col_pos[b] - column * nb
                        out[at].v = num[e]


@loop
def group(parts, count):
    """Returns how many items each part has, and the items in the order of their parts, each part's in their own order."""
    counts = np.zeros(count, np.int64)
    for x in range(parts.size):
        counts[parts[x]] += 1
    at = np.zeros(count, np.int64)
    for part in range(1, count):
        at[part] = at[part - 1] + counts[part - 1]
    order = np.empty(parts.size, np.int64)
    for x in range(parts.size):
        order[at[parts[x]]] = x
        at[parts[x]] += 1
    return counts, order


@loop
def count_buckets(triples, first, last, bucket_of, shift, histogram):
    """Returns how many of triples[first:last] fall into each range of columns; column j is in bucket_of[j >> shift]."""
    for e in range(first, last):
        histogram[bucket_of[triples[e].j >> shift]] += 1


@loop
def fill_buckets(triples, first, last, bucket_of, shift, offsets, out):
    """Does the second pass of `count_buckets`."""
    for e in range(first, last):
        j = triples[e].j
        bucket = bucket_of[j >> shift]
        at = offsets[bucket]
        offsets[bucket] = at + 1
        out[at].i = triples[e].i
        out[at].j = j
        out[at].v = triples[e].v


@loop
def sort_bucket(triples, first, last, low, width, ir, num):
    """Sorts the entries of columns [low, low + width) into ir and num at the same place; gives its nonempty columns and their ends.

    It counts where there are not many more columns than entries, and sorts by the radix of the columns otherwise.
    """
    n = last - first
    if width <= 8 * n + 1024:
        starts = np.zeros(width + 1, np.int64)
        for e in range(first, last):
            starts[triples[e].j - low + 1] += 1
        present = 0
        for c in range(width):
            if starts[c + 1]:
                present += 1
            starts[c + 1] += starts[c]
        jc = np.empty(present, ir.dtype)
        ends = np.empty(present, np.int64)
        present = 0
        for c in range(width):
            if starts[c + 1] > starts[c]:
                jc[present] = low + c
                ends[present] = first + starts[c + 1]
                present += 1
        for e in range(first, last):
            c = triples[e].j - low
            at = first + starts[c]
            starts[c] += 1
            ir[at] = triples[e].i
            num[at] = triples[e].v
    else:
        order = np.empty(n, np.int64)
        keys = np.empty(n, np.int64)
        for e in range(n):
            order[e] = first + e
            keys[e] = triples[first + e].j - low
        _radix(keys, order, 0, n)
        present = 0
        for e in range(n):
            if e == 0 or keys[e] != keys[e - 1]:
                present += 1
            ir[first + e] = triples[order[e]].i
            num[first + e] = triples[order[e]].v
        jc = np.empty(present, ir.dtype)
        ends = np.empty(present, np.int64)
        present = 0
        for e in range(n):
            if e == n - 1 or keys[e] != keys[e + 1]:
                jc[present] = low + keys[e]
                ends[present] = first + e + 1
                present += 1
    start = first
    few_keys, few_values = np.empty(FEW, np.int64), np.empty(FEW, num.dtype)
    for c in range(ends.size):
        _sort_segment(ir, num, start, ends[c], few_keys, few_values)
        start = ends[c]
    return jc, ends


@loop
def _rank(keys, n, e):
    """Returns the place of keys[e] among n different keys when they are sorted: a loop without branches, which vectorises."""
    key = keys[e]
    rank = np.int32(0)
    for f in range(n):
        rank += np.int32(keys[f] < key)
    return rank


@loop
def _sort_segment(keys, values, first, last, few_keys, few_values):
    """Sorts keys[first:last] stably with their values; nothing is done where they ascend already."""
    ascends = True
    for e in range(first + 1, last):
        if keys[e] < keys[e - 1]:
            ascends = False
            break
    if ascends:
        return
    n = last - first
    if n > FEW:
        _radix(keys, values, first, last)
        return
    for e in range(n):
        few_keys[e] = np.int64(keys[first + e]) << FEW_BITS | e
        few_values[e] = values[first + e]
    for e in range(n):
        at = first + _rank(few_keys, n, e)
        keys[at] = few_keys[e] >> FEW_BITS
        values[at] = few_values[e]


@loop
def _radix(keys, values, first, last):
    """Sorts stably by digits of 11 bits, from the last digit on."""
    n = last - first
    most = np.int64(0)
    for e in range(first, last):
        if keys[e] > most:
            most = np.int64(keys[e])
    other_keys = np.empty(n, keys.dtype)
    other_values = np.empty(n, values.dtype)
    counts = np.empty((1 << _DIGIT) + 1, np.int64)
    shift = 0
    while most >> shift:
        counts[:] = 0
        for e in range(first, last):
            counts[((np.int64(keys[e]) >> shift) & ((1 << _DIGIT) - 1)) + 1] += 1
        for d in range(1 << _DIGIT):
            counts[d + 1] += counts[d]
        for e in range(first, last):
            digit = (np.int64(keys[e]) >> shift) & ((1 << _DIGIT) - 1)
            other_keys[counts[digit]] = keys[e]
            other_values[counts[digit]] = values[e]
            counts[digit] += 1
        for e in range(n):
            keys[first + e] = other_keys[e]
            values[first + e] = other_values[e]
        shift += _DIGIT


@loop
def add_repeated(cp, ir, num):
    """Adds up entries that stand side by side in the same place, in their order; in place, gives the new pointers."""
    pointers = np.zeros(cp.size, np.int64)
    at = 0
    for x in range(cp.size - 1):
        begin = at
        for e in range(cp[x], cp[x + 1]):
            if at > begin and ir[at - 1] == ir[e]:
                num[at - 1] = num[at - 1] + num[e]
            else:
                ir[at] = ir[e]
                num[at] = num[e]
                at += 1
        pointers[x + 1] = at
    return pointers


@loop
def count_merged(ajc, acp, air, bjc, bcp, bir, marked_rows, marked_cols):
    """Counts the columns of the merged block and the entries of each: those of A that are not in a marked row and column, and all of B."""
    room = ajc.size + bjc.size
    jc = np.empty(room, ajc.dtype)
    counts = np.zeros(room, np.int64)
    x = y = n = 0
    while x < ajc.size or y < bjc.size:
        has_a = x < ajc.size and (y >= bjc.size or ajc[x] <= bjc[y])
        has_b = y < bjc.size and (x >= ajc.size or bjc[y] <= ajc[x])
        column = ajc[x] if has_a else bjc[y]
        a0, a1, b0, b1 = 0, 0, 0, 0
        if has_a:
            a0, a1 = acp[x], acp[x + 1]
            x += 1
        if has_b:
            b0, b1 = bcp[y], bcp[y + 1]
            y += 1
        drop = marked_cols.size > 0 and marked_cols[column]
        count = b1 - b0
        b = b0
        for a in range(a0, a1):
            if drop and marked_rows[air[a]]:
                continue
            while b < b1 and bir[b] < air[a]:
                b += 1
            if not (b < b1 and bir[b] == air[a]):
                count += 1
        if count:
            jc[n] = column
            counts[n] = count
            n += 1
    return jc[:n].copy(), counts[:n].copy()


@loop
def fill_merged(ajc, acp, air, anum, bjc, bcp, bir, bnum, marked_rows, marked_cols, ir, num):
    """Does the second pass of `count_merged`; entries of both in one place are added."""
    x = y = at = 0
    while x < ajc.size or y < bjc.size:
        has_a = x < ajc.size and (y >= bjc.size or ajc[x] <= bjc[y])
        has_b = y < bjc.size and (x >= ajc.size or bjc[y] <= ajc[x])
        column = ajc[x] if has_a else bjc[y]
        a0, a1, b, b1 = 0, 0, 0, 0
        if has_a:
            a0, a1 = acp[x], acp[x + 1]
            x += 1
        if has_b:
            b, b1 = bcp[y], bcp[y + 1]
            y += 1
        drop = marked_cols.size > 0 and marked_cols[column]
        for a in range(a0, a1):
            if drop and marked_rows[air[a]]:
                continue
            while b < b1 and bir[b] < air[a]:
                ir[at] = bir[b]
                num[at] = bnum[b]
                at += 1
                b += 1
            ir[at] = air[a]
            if b < b1 and bir[b] == air[a]:
                num[at] = anum[a] + bnum[b]
                b += 1
            else:
                num[at] = anum[a]
            at += 1
        while b < b1:
            ir[at] = bir[b]
            num[at] = bnum[b]
            at += 1
            b += 1


@loop
def gather_rows(starts, ptr, indices, first, last, out):
    """Copies the minor indices of some compressed rows to out[ptr[k]:ptr[k + 1]], k in [first, last), from starts[k] on.

    Copying does nothing else, so that the processor waits for the memory of many rows at once; looking up at the same time takes five times
    as long.
    """
    for k in range(first, last):
        source, at = starts[k], ptr[k]
        for e in range(ptr[k + 1] - at):
            out[at + e] = indices[source + e]


@loop
def look_up(found, ptr, first, last, keys, table, key_ptr, counts):
    """Replaces each index in `found` by its key, or -1, and counts what rows [first, last) will keep into counts[k + 1].

    A key is wanted key_ptr[key + 1] - key_ptr[key] times, or once where `key_ptr` is empty.
    """
    for k in range(first, last):
        total = 0
        if table.size and not key_ptr.size:
            for e in range(ptr[k], ptr[k + 1]):
                key = table[found[e]]
                found[e] = key
                total += np.int64(key >= 0)
        else:
            for e in range(ptr[k], ptr[k + 1]):
                key = _find(keys, table, found[e])
                found[e] = key
                if key >= 0:
                    total += key_ptr[key + 1] - key_ptr[key]
        counts[k + 1] = total


@loop
def take_found(found, data, starts, ptr, key_ptr, pos, first, last, out_ptr, out_indices, out_data):
    """Writes what `look_up` found to rows [first, last) of the extraction and sorts each row."""
    few_keys, few_values = np.empty(FEW, np.int64), np.empty(FEW, out_data.dtype)
    for k in range(first, last):
        at, shift = out_ptr[k], starts[k] - ptr[k]
        for e in range(ptr[k], ptr[k + 1]):
            key = found[e]
            if key < 0:
                continue
            if key_ptr.size == 0:
                out_indices[at] = key
                out_data[at] = data[shift + e]
                at += 1
                continue
            for b in range(key_ptr[key], key_ptr[key + 1]):
                out_indices[at] = pos[b]
                out_data[at] = data[shift + e]
                at += 1
        _sort_segment(out_indices, out_data, out_ptr[k], at, few_keys, few_values)


@loop
def take_permuted(indptr, indices, data, major, minor, first, last, out_ptr, out_indices, out_data):
    """Fills rows [first, last) of a permuted compressed matrix: row k is row major[k], and its column j becomes minor[j]."""
    few = np.empty(FEW, out_indices.dtype)
    no_keys, no_values = np.empty(0, np.int64), np.empty(0, out_data.dtype)
    for k in range(first, last):
        begin = out_ptr[k]
        n = out_ptr[k + 1] - begin
        source = indptr[major[k]]
        if n > FEW:
            for e in range(n):
                out_indices[begin + e] = minor[indices[source + e]]
                out_data[begin + e] = data[source + e]
            _sort_segment(out_indices, out_data, begin, begin + n, no_keys, no_values)
            continue
        for e in range(n):
            few[e] = minor[indices[source + e]]
        for e in range(n):
            at = begin + _rank(few, n, e)
            out_indices[at] = few[e]
            out_data[at] = data[source + e]
