"""One byte loop takes the numeric tokens out of log lines, and another one puts them back.

A line becomes a *pattern*, the line with every numeric token replaced by the byte 1 and a byte that names the token's *tag*. The tag is
the shape of the token: a plain number, a number with leading zeros and a certain number of digits, a fraction with a certain number of
decimals, an IPv4 address, a time of day, or any other group of numbers of certain widths that `:` `.` `-` `/` join. Values go to one
stream per tag. Whatever a value does not say (zeros in front, separators, widths) is in the tag, so the inverse is exact. Words of letters
and digits, and numbers too long for 63 bits, go to the stream of variables.
"""

from __future__ import annotations

import numpy as np

from armillary.kernels import loop

MARK = 1
#: This byte behind the mark at the start of a pattern says that the rest is a line as it stands.
RAW = 2
#: Tags. Plain numbers below and from 10^9; fixed widths; decimals by width behind small and large whole parts; addresses; times;
#: variables; words; then groups.
SMALL, LARGE, ZEROS, POINT, LONG_POINT, ADDRESS, CLOCK, VARIABLE, WORD, GROUPS = 0, 1, 2, 21, 31, 41, 42, 43, 44, 45
TAGS = 220
#: Tag bytes start here, so that none of them is a newline or the mark.
FIRST = 32
MOST_PARTS = 6


@loop
def _kind(byte):
    # Returns 2 for a digit, 1 for a letter (or _ or a byte above 127), 0 for anything else.
    if 48 <= byte <= 57:
        return 2
    if 65 <= byte <= 90 or 97 <= byte <= 122 or byte == 95 or byte >= 128:
        return 1
    return 0


@loop
def _digits(line, at, end):
    # Returns one past the last digit of the run at `at`, or -1 where a letter belongs to the run.
    while at < end:
        kind = _kind(line[at])
        if kind == 0:
            return at
        if kind == 1:
            return -1
        at += 1
    return at


@loop
def _value(line, at, end, value):
    # Returns `value` followed by these digits, or -1 where that takes more than 63 bits.
    for i in range(at, end):
        if value > 922337203685477579:
            return np.int64(-1)
        value = value * 10 + np.int64(line[i] - 48)
    return value


@loop
def tokenise(data, shapes, shape_count, patterns, line_ends, tags, values, places, lengths):
    """Writes the patterns of all lines of `data` to `patterns`, each up to its entry of `line_ends`.

    Tokens go to `tags` and `values`, variables to `places` and `lengths`. `shapes` holds the `shape_count` groups that are known so far.
    Returns (bytes of patterns, lines, tokens, variables, shapes). A line that holds the mark itself begins with the mark and the byte RAW,
    and stands there as it is.
    """
    size = len(data)
    write, line, tokens, variables = 0, 0, 0, 0
    begins = np.empty(MOST_PARTS, np.int64)
    stops = np.empty(MOST_PARTS, np.int64)
    at = 0
    while at < size:
        end = at
        marked = False
        while end < size and data[end] != 10:
            if data[end] == MARK:
                marked = True
            end += 1
        if marked:
            patterns[write] = MARK
            patterns[write + 1] = RAW
            write += 2
            while at < end:
                patterns[write] = data[at]
                write += 1
                at += 1
        while at < end:
            kind = _kind(data[at])
            if kind == 0:
                patterns[write] = data[at]
                write += 1
                at += 1
                continue
            stop = at
            digits, letters = False, False
            while stop < end:
                kind = _kind(data[stop])
                if kind == 0:
                    break
                digits = digits or kind == 2
                letters = letters or kind == 1
                stop += 1
            if not digits:
                while at < stop:
                    patterns[write] = data[at]
                    write += 1
                    at += 1
                continue
            tag, value = VARIABLE, np.int64(0)
            if not letters:
                begins[0], stops[0] = at, stop
                parts = 1
                ahead = stop
                while (
                    parts < MOST_PARTS
                    and ahead + 1 < end
                    and (data[ahead] == 58 or data[ahead] == 46 or data[ahead] == 45 or data[ahead] == 47)
                ):
                    behind = _digits(data, ahead + 1, end)
                    if behind <= ahead + 1:
                        break
                    begins[parts], stops[parts] = ahead + 1, behind
                    parts += 1
                    ahead = behind
                # IPv4: exactly four parts joined by points, each 0 to 255 without zeros in front; a port or mask behind it is a number of
                # its own.
                dotted = 1
                while dotted < parts and data[stops[dotted - 1]] == 46:
                    dotted += 1
                if dotted == 4:
                    address = np.int64(0)
                    for i in range(4):
                        part = _value(data, begins[i], stops[i], np.int64(0)) if stops[i] - begins[i] <= 3 else np.int64(999)
                        if part > 255 or (data[begins[i]] == 48 and stops[i] - begins[i] > 1):
                            address = np.int64(-1)
                            break
                        address = address * 256 + part
                    if address >= 0:
                        tag, value, stop = ADDRESS, address, stops[3]
                if (
                    (
                        tag == VARIABLE
                        and parts >= 3
                        and data[stops[0]] == 58
                        and data[stops[1]] == 58
                        and (parts == 3 or data[stops[2]] != 58)
                    )
                    and stops[0] - begins[0] == 2
                    and stops[1] - begins[1] == 2
                    and stops[2] - begins[2] == 2
                ):
                    minutes = _value(data, begins[1], stops[1], np.int64(0))
                    seconds = _value(data, begins[2], stops[2], np.int64(0))
                    if minutes < 60 and seconds < 60:
                        tag, stop = CLOCK, stops[2]
                        value = _value(data, begins[0], stops[0], np.int64(0)) * 3600 + minutes * 60 + seconds
                if tag == VARIABLE and parts == 2 and data[stops[0]] == 46 and stops[1] - begins[1] <= 9:
                    whole = stops[0] - begins[0]
                    if (whole == 1 or data[at] != 48) and whole + stops[1] - begins[1] <= 18:
                        value = _value(data, begins[1], stops[1], _value(data, at, stops[0], np.int64(0)))
                        tag, stop = (POINT if whole <= 9 else LONG_POINT) + stops[1] - begins[1], stops[1]
                if tag == VARIABLE and parts > 1:
                    shape = np.int64(0)
                    total = 0
                    short = True
                    for i in range(parts):
                        width = stops[i] - begins[i]
                        total += width
                        short = short and width < 16
                        which = 0
                        if i + 1 < parts:
                            which = 0 if data[stops[i]] == 58 else 1 if data[stops[i]] == 46 else 2 if data[stops[i]] == 45 else 3
                        shape = shape * 64 + width % 16 * 4 + which
                    if short and total <= 18:
                        shape = shape * 8 + parts
                        known = 0
                        while known < shape_count and shapes[known] != shape:
                            known += 1
                        if known == shape_count and shape_count < TAGS - GROUPS:
                            shapes[known] = shape
                            shape_count += 1
                        if known < shape_count:
                            tag, value = GROUPS + known, np.int64(0)
                            for i in range(parts):
                                value = _value(data, begins[i], stops[i], value)
                            stop = stops[parts - 1]
                if tag == VARIABLE:
                    width = stop - at
                    value = _value(data, at, stop, np.int64(0))
                    if data[at] == 48 and width > 1:
                        tag = ZEROS + width if width <= 18 else VARIABLE
                    elif value >= 0 and width <= 19:
                        tag = SMALL if width <= 9 else LARGE
            patterns[write] = MARK
            patterns[write + 1] = FIRST + tag
            write += 2
            if tag == VARIABLE:
                places[variables], lengths[variables] = at, stop - at
                variables += 1
            else:
                tags[tokens], values[tokens] = tag, value
                tokens += 1
            at = stop
        line_ends[line] = write
        line += 1
        at = end + 1
    return write, line, tokens, variables, shape_count


@loop
def _write(out, at, value, width):
    # Writes the value in exactly `width` digits; returns one past the last, or -1 where it does not fit.
    if at + width > len(out):
        return -1
    for i in range(width):
        out[at + width - 1 - i] = 48 + value % 10
        value //= 10
    return at + width if value == 0 else -1


@loop
def _width(value):
    width = 1
    while value >= 10:
        value //= 10
        width += 1
    return width


@loop
def restore(
    patterns,
    starts,
    ids,
    shapes,
    streams,
    stream_starts,
    variables,
    variable_starts,
    variable_ids,
    words,
    word_starts,
    word_ids,
    last_newline,
    out,
):
    """Fills `out` with the restored lines; returns the number of bytes, or -1 where the streams contradict each other.

    Pattern p is patterns[starts[p]:starts[p + 1]]; the values of tag t are streams[stream_starts[t]:stream_starts[t + 1]].
    """
    next_value = stream_starts[:-1].copy()
    next_variable, next_word, write, room = 0, 0, 0, len(out)
    begins = np.empty(MOST_PARTS, np.int64)
    for line in range(len(ids)):
        if ids[line] < 0 or ids[line] + 1 >= len(starts):
            return -1
        at, end = starts[ids[line]], starts[ids[line] + 1]
        raw = end - at >= 2 and patterns[at] == MARK and patterns[at + 1] == RAW
        if raw:
            at += 2
        while at < end:
            byte = patterns[at]
            if byte != MARK or raw:
                if write >= room:
                    return -1
                out[write] = byte
                write += 1
                at += 1
                continue
            if at + 1 >= end:
                return -1
            tag = np.int64(patterns[at + 1]) - FIRST
            at += 2
            if tag < 0 or tag >= TAGS:
                return -1
            if tag in (VARIABLE, WORD):
                pieces, piece_starts, which, cursor = variables, variable_starts, variable_ids, next_variable
                if tag == WORD:
                    pieces, piece_starts, which, cursor = words, word_starts, word_ids, next_word
                if cursor >= len(which) or which[cursor] < 0 or which[cursor] + 1 >= len(piece_starts):
                    return -1
                begin, stop = piece_starts[which[cursor]], piece_starts[which[cursor] + 1]
                if write + stop - begin > room:
                    return -1
                for i in range(begin, stop):
                    out[write] = pieces[i]
                    write += 1
                if tag == WORD:
                    next_word += 1
                else:
                    next_variable += 1
                continue
            if next_value[tag] >= stream_starts[tag + 1]:
                return -1
            value = streams[next_value[tag]]
            next_value[tag] += 1
            if value < 0:
                return -1
            if tag in (SMALL, LARGE):
                write = _write(out, write, value, _width(value))
            elif tag < POINT:
                write = _write(out, write, value, tag - ZEROS)
            elif tag < ADDRESS:
                width = tag - (POINT if tag < LONG_POINT else LONG_POINT)
                scale = 10**width
                write = _write(out, write, value // scale, _width(value // scale))
                if write < 0 or write >= room:
                    return -1
                out[write] = 46
                write = _write(out, write + 1, value % scale, width)
            elif tag == ADDRESS:
                for i in range(4):
                    part = (value >> (24 - 8 * i)) & 255
                    write = _write(out, write, part, _width(part))
                    if write < 0 or (i < 3 and write >= room):
                        return -1
                    if i < 3:
                        out[write] = 46
                        write += 1
            elif tag == CLOCK:
                if write + 8 > room:
                    return -1
                if _write(out, write, value // 3600, 2) < 0:
                    return -1
                _write(out, write + 3, value // 60 % 60, 2)
                _write(out, write + 6, value % 60, 2)
                out[write + 2] = 58
                out[write + 5] = 58
                write += 8
            else:
                if tag - GROUPS >= len(shapes):
                    return -1
                shape = shapes[tag - GROUPS]
                parts = shape % 8
                if parts < 1 or parts > MOST_PARTS:
                    return -1
                shape //= 8
                for i in range(parts):
                    begins[parts - 1 - i] = shape % 64
                    shape //= 64
                total = write
                for i in range(parts):
                    total += begins[i] // 4 + (1 if i + 1 < parts else 0)
                if total > room:
                    return -1
                place = total
                for i in range(parts):
                    code = begins[parts - 1 - i]
                    if i:
                        place -= 1
                        which_one = code % 4
                        out[place] = 58 if which_one == 0 else 46 if which_one == 1 else 45 if which_one == 2 else 47
                    width = code // 4
                    place -= width
                    scale = 10**width
                    _write(out, place, value % scale, width)
                    value //= scale
                if value != 0:
                    return -1
                write = total
            if write < 0:
                return -1
        if line + 1 < len(ids) or last_newline:
            if write >= room:
                return -1
            out[write] = 10
            write += 1
    return write


@loop
def to_varints(values, differences, out):
    """Writes zigzag varints of the values, or of their differences, to `out`; returns the number of bytes."""
    write = 0
    previous = np.int64(0)
    for value in values:
        number = value
        if differences:
            number = value - previous
            previous = value
        left = np.uint64((number << 1) ^ (number >> 63))
        while left >= np.uint64(128):
            out[write] = np.uint8((left & np.uint64(127)) | np.uint64(128))
            left >>= np.uint64(7)
            write += 1
        out[write] = np.uint8(left)
        write += 1
    return write


@loop
def from_varints(data, differences, out):
    """Fills `out` from varints; returns the number of bytes read, or -1 where they end early or run over 64 bits."""
    at = 0
    previous = np.int64(0)
    for i in range(len(out)):
        value = np.uint64(0)
        shift = np.uint64(0)
        while True:
            if at >= len(data) or shift > np.uint64(63):
                return -1
            byte = np.uint64(data[at])
            at += 1
            value |= (byte & np.uint64(127)) << shift
            if byte < np.uint64(128):
                break
            shift += np.uint64(7)
        number = np.int64(value >> np.uint64(1)) ^ -np.int64(value & np.uint64(1))
        if differences:
            previous = previous + number
            number = previous
        out[i] = number
    return at
