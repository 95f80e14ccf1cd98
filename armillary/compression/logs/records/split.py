"""Splits lines into fields and writes them in another order, by byte loops over a whole chunk without a Python object per line.

A line fits when it has exactly as many fields as the log, no carriage return before its end, quotes and brackets that close, and (where
`#` opens a comment) no field that begins with `#`. All of these stay true or false when fields change places, so the inverse is exact.
"""

from __future__ import annotations

import numpy as np

from armillary.kernels import loop

NEWLINE, RETURN, QUOTE, HASH, BACKSLASH, SPACE = 10, 13, 34, 35, 92, 32
PLAIN, QUOTED, BRACKETS, PAIRS, JSON = range(5)
#: A longer line is left alone, so that a stream needs bounded memory; its length does not depend on the order of its fields.
LONGEST_LINE = 16 << 20


@loop
def _fields(line, begin, end, grammar, separator, width, comments, starts, ends):
    # Writes the fields of line[begin:end], which holds no line end, to starts and ends. Returns their number, or -1 where the grammar
    # breaks or there are more than fit.
    most = len(starts)
    if end - begin > LONGEST_LINE:
        return -1
    if grammar == JSON:
        if end - begin < 2 or line[begin] != 123 or line[end - 1] != 125:
            return -1
        begin += 1
        end -= 1
    count = 0
    at = begin
    while True:
        if count == most:
            return -1
        start = at
        if comments and at < end and line[at] == HASH:
            return -1
        if grammar == PLAIN:
            while at < end and line[at] != separator:
                if line[at] == RETURN:
                    return -1
                at += 1
        elif grammar == QUOTED:
            if at < end and line[at] == QUOTE:
                at += 1
                while True:
                    if at >= end or line[at] == RETURN:
                        return -1
                    if line[at] == QUOTE:
                        if at + 1 < end and line[at + 1] == QUOTE:
                            at += 2
                            continue
                        at += 1
                        break
                    at += 1
                if at < end and line[at] != separator:
                    return -1
            else:
                while at < end and line[at] != separator:
                    if line[at] == RETURN:
                        return -1
                    at += 1
        elif grammar == BRACKETS:
            closing = 0
            if at < end:
                closing = QUOTE if line[at] == QUOTE else 93 if line[at] == 91 else 0
            if closing:
                at += 1
                while at < end and line[at] != closing:
                    if line[at] == RETURN:
                        return -1
                    at += 2 if line[at] == BACKSLASH and closing == QUOTE else 1
                if at >= end:
                    return -1
                at += 1
                if at < end and line[at] != separator:
                    return -1
            else:
                while at < end and line[at] != separator:
                    if line[at] == RETURN:
                        return -1
                    at += 1
        elif grammar == PAIRS:
            quoted = False
            while at < end and (quoted or line[at] != separator):
                byte = line[at]
                if byte == RETURN:
                    return -1
                if byte == QUOTE:
                    quoted = not quoted
                elif byte == BACKSLASH and quoted:
                    at += 1
                at += 1
            if quoted or at > end:
                return -1
        else:
            quoted = False
            depth = 0
            while at < end and (quoted or depth or line[at] != separator):
                byte = line[at]
                if byte == RETURN:
                    return -1
                if quoted:
                    if byte == BACKSLASH:
                        at += 1
                    elif byte == QUOTE:
                        quoted = False
                elif byte == QUOTE:
                    quoted = True
                elif byte == 123 or byte == 91:
                    depth += 1
                elif byte == 125 or byte == 93:
                    depth -= 1
                    if depth < 0:
                        return -1
                at += 1
            if quoted or depth or at > end:
                return -1
        starts[count] = start
        ends[count] = at
        count += 1
        if at >= end:
            return count
        if width == 2 and (at + 1 >= end or line[at + 1] != SPACE):
            return -1
        at += width


@loop
def _header(line, begin, end):
    # Returns where the names of a header line begin (behind "#fields\t", "#types\t" or "#Fields: "), or -1.
    if end - begin > 8 and line[begin] == HASH and line[begin + 6] == 115:
        lower = line[begin + 1] == 102 and line[begin + 7] == 9
        upper = line[begin + 1] == 70 and line[begin + 7] == 58 and line[begin + 8] == 32
        same = line[begin + 2] == 105 and line[begin + 3] == 101 and line[begin + 4] == 108 and line[begin + 5] == 100
        if same and lower:
            return begin + 8
        if same and upper:
            return begin + 9
    if (
        end - begin > 7
        and line[begin] == HASH
        and line[begin + 6] == 9
        and (
            line[begin + 1] == 116
            and line[begin + 2] == 121
            and line[begin + 3] == 112
            and line[begin + 4] == 101
            and line[begin + 5] == 115
        )
    ):
        return begin + 7
    return -1


@loop
def _names_in(line, begin, end, separator, starts, ends):
    # Finds the names of a header line, which single separators part; they may begin with #.
    if end - begin > LONGEST_LINE:
        return -1
    count = 0
    at = begin
    while True:
        if count == len(starts):
            return -1
        starts[count] = at
        while at < end and line[at] != separator:
            if line[at] == RETURN:
                return -1
            at += 1
        ends[count] = at
        count += 1
        if at >= end:
            return count
        at += 1


@loop
def _line_end(data, begin, size):
    # Returns (end of the content, start of the next line); the content leaves out \n and \r\n.
    at = begin
    while at < size and data[at] != NEWLINE:
        at += 1
    if at == size:
        return at, at
    if at > begin and data[at - 1] == RETURN:
        return at - 1, at + 1
    return at, at + 1


@loop
def fields_per_line(data, grammar, separator, width, comments):
    """Counts the fields of every line of `data` (uint8); a line that does not fit the grammar counts -1."""
    lines = 0
    for byte in data:
        lines += byte == NEWLINE
    counts = np.empty(lines + 1, np.int64)
    starts = np.empty(1001, np.int64)
    ends = np.empty(1001, np.int64)
    at, line = 0, 0
    while at < len(data):
        end, following = _line_end(data, at, len(data))
        counts[line] = _fields(data, at, end, grammar, separator, width, comments, starts, ends)
        line += 1
        at = following
    return counts[:line]


@loop
def reorder(data, size, order, grammar, separator, width, comments, out):
    """Writes data[:size] into `out` with field order[i] of each fitting line (and header) in place i.

    Returns (lines, lines that do not fit and are no comment, number of the first of them or -1).
    """
    fields = len(order)
    starts = np.empty(fields, np.int64)
    ends = np.empty(fields, np.int64)
    at, lines, left, first = 0, 0, 0, -1
    braces = 1 if grammar == JSON else 0
    while at < size:
        end, following = _line_end(data, at, size)
        write = at
        names = _header(data, at, end) if comments else -1
        if names >= 0:
            count = _names_in(data, names, end, separator, starts, ends)
        else:
            count = _fields(data, at, end, grammar, separator, width, comments, starts, ends)
        if count == fields:
            stop = names if names >= 0 else at + braces
            while write < stop:
                out[write] = data[write]
                write += 1
            for place in range(fields):
                field = order[place]
                if place:
                    out[write] = separator
                    write += 1
                    if width == 2:
                        out[write] = SPACE
                        write += 1
                for source in range(starts[field], ends[field]):
                    out[write] = data[source]
                    write += 1
        elif not (comments and at < end and data[at] == HASH):
            if left == 0:
                first = lines
            left += 1
        while write < following:
            out[write] = data[write]
            write += 1
        lines += 1
        at = following
    return lines, left, first


@loop
def parse(data, fields, grammar, separator, width, comments):
    """Returns (begin of each line and one past the last, start[line, field], end[line, field], fits) of all lines of `data`."""
    lines = 0
    for byte in data:
        lines += byte == NEWLINE
    if len(data) and data[-1] != NEWLINE:
        lines += 1
    begins = np.empty(lines + 1, np.int64)
    starts = np.zeros((lines, fields), np.int32)
    ends = np.zeros((lines, fields), np.int32)
    fits = np.zeros(lines, np.bool_)
    at, line = 0, 0
    own_starts = np.empty(fields, np.int64)
    own_ends = np.empty(fields, np.int64)
    while at < len(data):
        end, following = _line_end(data, at, len(data))
        begins[line] = at
        if _fields(data, at, end, grammar, separator, width, comments, own_starts, own_ends) == fields:
            fits[line] = True
            for field in range(fields):
                starts[line, field] = own_starts[field]
                ends[line, field] = own_ends[field]
        line += 1
        at = following
    begins[lines] = len(data)
    return begins, starts, ends, fits


@loop
def take_header(data, begin, end, separator, starts, ends):
    """Writes where the names of a header line data[begin:end] begin and end; returns whether there are as many as fields."""
    size = _line_end(data, begin, end)[0]
    names = _header(data, begin, size)
    return names >= 0 and _names_in(data, names, size, separator, starts, ends) == len(starts)


@loop
def assemble(data, begins, starts, ends, moves, order, separator, width, out):
    """Writes the lines of a sample to `out` as `reorder` would; returns the number of bytes.

    Line i is data[begins[i]:begins[i + 1]], and its fields are known where moves[i]. Other lines are copied.
    """
    write = 0
    fields = len(order)
    for line in range(len(starts)):
        source = begins[line]
        if moves[line]:
            while source < starts[line, 0]:
                out[write] = data[source]
                write += 1
                source += 1
            for place in range(fields):
                if place:
                    out[write] = separator
                    write += 1
                    if width == 2:
                        out[write] = SPACE
                        write += 1
                field = order[place]
                for at in range(starts[line, field], ends[line, field]):
                    out[write] = data[at]
                    write += 1
            source = np.int64(ends[line, fields - 1])
        while source < begins[line + 1]:
            out[write] = data[source]
            write += 1
            source += 1
    return write


@loop
def intern(data, starts, ends):
    """Returns (id of each piece data[start:end], index of the first piece of each id).

    Equal bytes have equal ids, which are counted from 0 in the order of first appearance.
    """
    count = len(starts)
    size = 16
    while size < 2 * count:
        size *= 2
    table = np.full(size, -1, np.int64)
    hashes = np.empty(count, np.uint64)
    ids = np.empty(count, np.int64)
    firsts = np.empty(count, np.int64)
    known = 0
    for piece in range(count):
        value = np.uint64(0xCBF29CE484222325)
        for at in range(starts[piece], ends[piece]):
            value = (value ^ np.uint64(data[at])) * np.uint64(0x100000001B3)
        value ^= value >> np.uint64(29)
        hashes[piece] = value
        slot = np.int64(value & np.uint64(size - 1))
        while True:
            other = table[slot]
            if other < 0:
                table[slot] = piece
                ids[piece] = known
                firsts[known] = piece
                known += 1
                break
            if hashes[other] == value and ends[other] - starts[other] == ends[piece] - starts[piece]:
                same = True
                shift = starts[other] - starts[piece]
                for at in range(starts[piece], ends[piece]):
                    if data[at] != data[at + shift]:
                        same = False
                        break
                if same:
                    ids[piece] = ids[other]
                    break
            slot = (slot + 1) & (size - 1)
    return ids, firsts[:known]
