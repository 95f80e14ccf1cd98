"""Reads a network from two tables: edges `router_a,group_a,router_b,group_b,latency,width`, and nodes `node,router`."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from armillary.errors import InputError
from armillary.files import Column, Table, read_table

from .network import MOST_LATENCY, MOST_LINKS, MOST_NODES, Network


def _number(name: str) -> Column:
    return Column(name, "int", least=0, most=(1 << 31) - 1)


EDGES = (
    *map(_number, ("router_a", "group_a", "router_b", "group_b")),
    Column("latency", "int", unit="cycles", least=1, most=MOST_LATENCY),
    Column("width", "int", unit="parallel links", least=1, most=1024, default=1),
)
NODES = (_number("node"), _number("router"))


def read_edges(edges: str | Path, nodes: str | Path = "", *, per_router: int = 1) -> Network:
    """A network from a table of edges and one of nodes; without the latter every router has `per_router` nodes.

    Routers and groups may have any numbers; they are numbered in their order. Nodes are numbered from 0 without gaps.
    """
    table = read_table(edges, EDGES, row_limit=MOST_LINKS)
    a, b = table["router_a"], table["router_b"]
    ids, number = np.unique(np.concatenate([a, b]), return_inverse=True)
    given = np.concatenate([table["group_a"], table["group_b"]])
    group_of = np.full(len(ids), -1, np.int64)
    group_of[number] = given
    wrong = np.flatnonzero(group_of[number] != given)
    if len(wrong):
        row = int(wrong.min()) % table.rows
        router = int(ids[number[wrong.min()]])
        own, other = int(given[wrong.min()]), int(group_of[number[wrong.min()]])
        raise table.error(row, f"found router {router} in group {own} and in {other}; expected one group")
    same = np.flatnonzero(a == b)
    if len(same):
        raise table.error(int(same[0]), f"found router {int(a[same[0]])} at both ends; expected two routers", "router_b")
    if int(table["width"].sum()) > MOST_LINKS:
        raise InputError(f"found {int(table['width'].sum()):,} links; expected at most {MOST_LINKS:,}", where=str(edges))
    _, group = np.unique(group_of, return_inverse=True)
    rows = np.repeat(np.arange(table.rows), table["width"])
    ends = number.reshape(2, -1)[:, rows].astype(np.int64)
    if nodes:
        node_router = _node_routers(read_table(nodes, NODES, row_limit=MOST_NODES, unique=("node",)), ids)
    else:
        node_router = np.repeat(np.arange(len(ids)), per_router)
    try:
        return Network(
            group.astype(np.int64), node_router, ends[0], ends[1], table["latency"][rows].astype(np.int64), np.zeros(len(rows), bool),
            Path(edges).name,
        )  # fmt: skip
    except InputError as error:
        raise InputError(error.message, where=str(edges)) from None


def _node_routers(table: Table, ids: np.ndarray) -> np.ndarray:
    at = np.minimum(np.searchsorted(ids, table["router"]), len(ids) - 1)
    wrong = np.flatnonzero(ids[at] != table["router"])
    if len(wrong):
        raise table.error(int(wrong[0]), f"found router {int(table['router'][wrong[0]])}; expected a router of the edges", "router")
    wrong = np.flatnonzero(table["node"] >= table.rows)
    if len(wrong):
        raise table.error(int(wrong[0]), f"found node {int(table['node'][wrong[0]])}; expected nodes from 0 to {table.rows - 1}", "node")
    found = np.empty(table.rows, np.int64)
    found[table["node"]] = at
    return found
