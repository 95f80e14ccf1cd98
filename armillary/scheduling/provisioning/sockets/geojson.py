"""A plan as GeoJSON, for a map."""

from __future__ import annotations

from typing import Any

import numpy as np

from armillary.scheduling.provisioning.problem.plan import Plan


def to_geojson(plan: Plan) -> dict[str, Any]:
    """A FeatureCollection (RFC 7946): nodes with their services and load, links, and one line per route."""
    p, checked = plan.problem, plan.check()
    at = [[float(lon), float(lat)] for lat, lon in zip(p.latitude, p.longitude)]
    found: list[dict[str, Any]] = []
    for k, name in enumerate(p.nodes):
        holds = [p.services[m] for m in np.flatnonzero(plan.placed[:, k])]
        facts = {"kind": "node", "id": name, "services": holds, "cores": float(p.cores[k]), "load": float(checked.load[k])}
        found.append({"type": "Feature", "geometry": {"type": "Point", "coordinates": at[k]}, "properties": facts})
    for a, b, mbps in zip(p.link_a.tolist(), p.link_b.tolist(), p.link_mbps.tolist()):
        line = {"type": "LineString", "coordinates": [at[a], at[b]]}
        found.append({"type": "Feature", "geometry": line, "properties": {"kind": "link", "a": p.nodes[a], "b": p.nodes[b], "mbps": mbps}})
    for u, share, path in zip(plan.user.tolist(), plan.share.tolist(), plan.path.tolist()):
        nodes = path[: int(p.length[u])]
        home = int(p.origin[u].argmax())
        chain = [p.services[m] for m in p.chain[p.chain_start[u] : p.chain_start[u + 1]]]
        facts = {"kind": "route", "user": p.users[u], "share": share, "chain": chain, "nodes": [p.nodes[k] for k in nodes],
                 "latency_ms": float(checked.latency[u])}  # fmt: skip
        line = {"type": "LineString", "coordinates": [at[home], *(at[k] for k in nodes)]}
        found.append({"type": "Feature", "geometry": line, "properties": facts})
    return {"type": "FeatureCollection", "features": found}
