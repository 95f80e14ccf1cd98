"""Writes a network for BookSim2: its `anynet` file, and a configuration that uses it.

One line per router: `router 0 node 0 node 1 router 1 10 router 9 15`. A number after an item is the latency of that channel in cycles, 1
unless given. Channels between routers are one way, so every link is written at both of its ends. BookSim numbers routers and nodes from 0
without gaps, and `anynet` takes one channel between two routers, so parallel links cannot be written. Its built-in `dragonflynew` has a
wiring of its own, and is no export.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from armillary.errors import InputError

from ..fabric.network import Network

_CONFIG = """topology = anynet;
network_file = {file};
routing_function = min;
num_vcs = 6;
vc_buf_size = 32;
internal_speedup = 2.0;
packet_size = 1;
traffic = uniform;
injection_rate = 0.1;
"""


def write_booksim(net: Network, path: str | Path) -> list[str]:
    """Writes `path` and a `.cfg` beside it; returns both names. Failed links are left out."""
    path = Path(path)
    config = path.with_suffix(".cfg")
    if config == path or any(c in path.name for c in " ;=\n\t"):
        raise InputError(f'found the name "{path.name}"; expected one without spaces, ";" and "=", and not ending in .cfg', where="path")
    lines = [["router", str(r)] for r in range(net.routers)]
    for node, router in enumerate(net.node_router.tolist()):
        lines[router] += ["node", str(node)]
    works = ~net.dead
    low, high = np.minimum(net.a[works], net.b[works]), np.maximum(net.a[works], net.b[works])
    pairs, counts = np.unique(low * net.routers + high, return_counts=True)
    if (counts > 1).any():
        one, other = divmod(int(pairs[counts > 1][0]), net.routers)
        raise InputError(
            f"routers {one} and {other} have parallel links; an anynet file has one channel between two routers", where=str(path)
        )
    for a, b, latency in zip(net.a[works].tolist(), net.b[works].tolist(), net.latency[works].tolist()):
        lines[a] += ["router", str(b), str(latency)]
        lines[b] += ["router", str(a), str(latency)]
    path.write_text("".join(" ".join(line) + "\n" for line in lines))
    config.write_text(_CONFIG.format(file=path.name))
    return [str(path), str(config)]
