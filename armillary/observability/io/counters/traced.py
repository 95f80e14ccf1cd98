"""What module POSIX would count of the requests that a log traced: to check a log against itself, or to have counters where it has none."""

from __future__ import annotations

import numpy as np

from armillary.errors import InputError

from ..logs.log import Log, Module
from .posix import count_posix
from .reduction import reduced
from .requests import Requests


def counters(log: Log) -> Module:
    """The POSIX counters of a log's traced requests (DXT_POSIX), joined into records of rank -1 where the log's own are."""
    traced = log.segments.get("DXT_POSIX")
    if traced is None:
        raise InputError("found no traced requests; expected the module DXT_POSIX", where=log.name)
    own = log.modules.get("POSIX")
    alignment: dict[int, int] = {}
    if own is not None:
        alignment = dict(zip(own.ids.tolist(), own.column("POSIX_FILE_ALIGNMENT").tolist()))
    made = count_posix(Requests.traced(traced), alignment or 4096)
    if own is None:
        return made
    joined = np.isin(made.ids, own.ids[own.ranks < 0])
    if not joined.any():
        return made
    together = reduced(made.taken(np.flatnonzero(joined)), log.processes, all_files=True)
    alone = made.taken(np.flatnonzero(~joined))
    names = together.counters
    columns = {name: np.concatenate([alone.counters[name], together.counters[name]]) for name in names}
    ids, ranks = np.concatenate([alone.ids, together.ids]), np.concatenate([alone.ranks, together.ranks])
    return Module("POSIX", ids, ranks, columns, version=made.version)
