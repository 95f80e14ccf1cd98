"""The compiled loops that pack and unpack the halos of several fields: one launch for all fields and sides of an exchange.

A row of `table` is (field, first and last index + 1 along three axes, start in the buffer). Whoever calls has checked the regions.
"""

from __future__ import annotations

from armillary.kernels import kernel


@kernel
def pack(table, buffer, fields):  # type: ignore[no-untyped-def]
    """Copies regions of fields into a buffer, one after another."""
    for row in range(table.shape[0]):
        field = fields[table[row, 0]]
        at = table[row, 7]
        for i in range(table[row, 1], table[row, 2]):
            for k in range(table[row, 3], table[row, 4]):
                for j in range(table[row, 5], table[row, 6]):
                    buffer[at] = field[i, k, j]
                    at += 1


@kernel
def unpack(table, buffer, fields):  # type: ignore[no-untyped-def]
    """Copies a buffer into regions of fields, one after another."""
    for row in range(table.shape[0]):
        field = fields[table[row, 0]]
        at = table[row, 7]
        for i in range(table[row, 1], table[row, 2]):
            for k in range(table[row, 3], table[row, 4]):
                for j in range(table[row, 5], table[row, 6]):
                    field[i, k, j] = buffer[at]
                    at += 1
