"""What goes over the wire: a query is a magic number, a count and that many scalars; a reply a magic number, a status, a length, a body.

A query that is longer than it says shows in the next one, which then does not begin with the magic number.
"""

from __future__ import annotations

import struct

from armillary.trust.outsourcing.group.element import ENCODED_BYTES

MAGIC = b"2G2T"
#: Magic number and number of scalars, little-endian.
QUERY = struct.Struct("<4sI")
#: Magic number, status, and bytes that follow.
REPLY = struct.Struct("<4sBI")
ANSWERED, REFUSED, BUSY = 0, 1, 2
#: The longest reason that a reply gives.
MOST_REASON = 400


def query(scalars: bytes) -> bytes:
    """A whole query."""
    return QUERY.pack(MAGIC, len(scalars) // ENCODED_BYTES) + scalars


def reply(status: int, body: bytes) -> bytes:
    """A whole reply."""
    return REPLY.pack(MAGIC, status, len(body)) + body
