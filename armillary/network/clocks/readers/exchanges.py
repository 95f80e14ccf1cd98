"""Recorded exchanges of time stamps, and what they tell of clocks and links."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from armillary.files import Column, read_table
from armillary.network.clocks.alignment.two_way import two_way_offset
from armillary.network.clocks.graph.network import ClockNetwork


@dataclass(frozen=True)
class Exchanges:
    """Links as measured: their network, and one row per link about offset, drift and delay."""

    network: ClockNetwork
    rows: tuple[dict[str, Any], ...]


def read_exchanges(path: str | Path, *, unit_s: float, asymmetry: float) -> Exchanges:
    """Reads `local,remote,t1,t2,t3,t4`, in units of `unit_s` seconds, as two_way_offset takes them.

    A link's delay is the least that was seen and its jitter what the 99th percentile lies above it. Asymmetry cannot be seen from
    exchanges; it is taken to be the share `asymmetry` of the delay.
    """
    table = read_table(path, [Column("local", "str"), Column("remote", "str"), *(Column(f"t{i}") for i in (1, 2, 3, 4))])
    stamps = np.stack([table[f"t{i}"] for i in (1, 2, 3, 4)])
    for early, late, said in ((0, 3, "t4 before t1"), (1, 2, "t3 before t2")):
        wrong = np.flatnonzero(stamps[late] < stamps[early])
        if len(wrong):
            raise table.error(int(wrong[0]), f"found {said}; expected it later", f"t{late + 1}")
    wrong = np.flatnonzero(stamps[3] - stamps[0] < stamps[2] - stamps[1])
    if len(wrong):
        raise table.error(int(wrong[0]), "found less time between t1 and t4 than between t2 and t3; expected at least as much", "t4")
    # Large stamps lose their last digits in sums of unlike ones, so differences are taken first, and each clock gets an origin of its own.
    offset, delay, _ = two_way_offset(*(stamps - stamps[:1].min()))
    names: dict[str, int] = {}
    ends = np.array([[names.setdefault(str(name), len(names)) for name in row] for row in zip(table["local"], table["remote"])])
    same = np.flatnonzero(ends[:, 0] == ends[:, 1])
    if len(same):
        raise table.error(int(same[0]), "found a clock that measures itself; expected another one", "remote")
    turned = ends[:, 0] > ends[:, 1]
    ends[turned] = ends[turned][:, ::-1]
    offset = np.where(turned, -offset, offset)
    pairs, link = np.unique(ends, axis=0, return_inverse=True)
    listed = list(names)
    rows, delays, jitters = [], [], []
    for k, (a, b) in enumerate(pairs.tolist()):
        mine = np.flatnonzero(link.ravel() == k)
        late, off, at = delay[mine] * unit_s, offset[mine] * unit_s, (stamps[0, mine] - stamps[0].min()) * unit_s
        least = float(late.min())
        quick = late <= np.quantile(late, 0.25)
        spread = float(((at[quick] - at[quick].mean()) ** 2).sum())
        drift = float(((at[quick] - at[quick].mean()) * off[quick]).sum() / spread) if quick.sum() > 2 and spread > 0 else 0.0
        rows.append({
            "local": listed[a], "remote": listed[b], "exchanges": len(mine), "offset_s": float(off[quick].mean()), "drift_ppm": drift * 1e6,
            "delay_s": least, "jitter_s": float(np.quantile(late, 0.99)) - least, "error_s": least,
        })  # fmt: skip
        delays.append(max(least, 1e-12))
        jitters.append(max(0.0, float(np.quantile(late, 0.99)) - least))
    network = ClockNetwork.of(
        pairs, len(names), delay=np.array(delays), asymmetry=asymmetry * np.array(delays), jitter=np.array(jitters), names=tuple(listed)
    )
    return Exchanges(network, tuple(rows))
