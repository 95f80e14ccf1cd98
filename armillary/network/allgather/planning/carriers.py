"""Who carries Cascade's blocks: the messages of each step, and the rank of each node that sends and receives them."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from ..graphs.neighbours import Ints
from .paths import CHAINS, LARGE_BYTES, Entries
from .problem import Problem
from .traffic import NONE, Messages, Traffic, groups


class Carriers:
    """The path work of all nodes, dealt to their ranks.

    The messages of a path's first step belong to leader (direction·k + path) of their node, modulo its ranks. What is handed on in a
    direction belongs to one *chain*, or to up to four where it is large; a chain has the same leader at every step, so only the first
    hand-over passes from one rank of a node to another.
    """

    def __init__(self, problem: Problem, entered: Entries, k: int, combine: bool = True, leaders: bool = True) -> None:
        self._problem = problem
        # Blocks that travel furthest come first in every message.
        order = np.lexsort((entered.block, entered.path, -entered.last))
        self._block, self._direction, self._path, self._last = (column[order] for column in entered)
        self._k = k
        self._leaders = leaders
        self._home = problem.node_of[self._block].astype(np.int64)
        self._sign = np.where(self._direction == 0, 1, -1)
        self._counts = np.array([len(local) for local in problem.local])
        self._first_local = np.concatenate(([0], np.cumsum(self._counts)))[:-1]
        self._by_node = np.concatenate(problem.local)
        self._chain, chains = self._chains(combine)
        #: The leaders of a direction: one per path or per chain.
        self._width = max(k, chains)

    def _chains(self, combine: bool) -> tuple[Ints, int]:
        if not combine:
            return self._path, self._k
        on = self._last >= 1
        key = (self._direction * self._problem.nodes + self._stop(1)) * on - (~on)
        order, starts = groups(key)
        found, chains = np.zeros(len(key), np.int64), 1
        nbytes = self._problem.block_bytes[self._block]
        most = max((int(nbytes[order[a:b]].sum()) for a, b in pairwise(starts) if key[order[a]] >= 0), default=0)
        if most >= LARGE_BYTES and self._leaders:
            chains = max(1, min(CHAINS, int(self._counts.min()) // 2))
            for a, b in pairwise(starts):
                found[order[a:b]] = np.arange(b - a) % chains
        return found, chains

    def _stop(self, step: int) -> Ints:
        """The node that has each block before it is sent in this step."""
        if step == 0:
            return self._home
        moved = self._path + 1 + (step - 1) * self._k
        return np.asarray((self._home + self._sign * moved) % self._problem.nodes, np.int64)

    def _leader(self, node: Ints, direction: Ints, number: Ints) -> Ints:
        """The rank of each node that does the work of this number in this direction."""
        place = direction * self._width + number if self._leaders else np.zeros_like(number)
        return self._by_node[self._first_local[node] + place % self._counts[node]].astype(np.int64)

    def messages(self, window: bool) -> Messages:
        """The messages of one call; without a window also those by which blocks reach leaders and takers."""
        problem, traffic = self._problem, Traffic()
        holders = None if window else np.full((problem.ranks, problem.nodes), -1, np.int64)
        step = traffic.barrier(0, problem) if window else self._gather(traffic)
        last = int(self._last.max(initial=-1))
        for turn in range(last + 1):
            on = self._last >= turn
            number = self._path if turn == 0 else self._chain
            here, there = self._stop(turn), self._stop(turn + 1)
            giver, taker = self._leader(here, self._direction, number), self._leader(there, self._direction, number)
            if turn == 1:
                step = self._hand_over(traffic, step, on, here, giver, window)
            self._send(traffic, step, on, giver, taker, number)
            if holders is not None:
                holders[self._block[on], there[on]] = np.where(
                    holders[self._block[on], there[on]] < 0, taker[on], holders[self._block[on], there[on]]
                )
            step += 1
        if holders is not None:
            self._deliver(traffic, step, holders)
        elif problem.nodes > 1:
            traffic.barrier(step, problem)
        return traffic.messages()

    def _send(self, traffic: Traffic, step: int, on: npt.NDArray[np.bool_], giver: Ints, taker: Ints, number: Ints) -> None:
        """Adds one message per giver, direction and number, its blocks in the order of how far they travel."""
        which = np.flatnonzero(on)
        if not len(which):
            return
        order, starts = groups((giver[which] * 2 + self._direction[which]) * self._width + number[which])
        which = which[order]
        heads = which[starts[:-1]]
        traffic.add(step, giver[heads], taker[heads], np.diff(starts), self._block[which])

    def _hand_over(self, traffic: Traffic, step: int, on: npt.NDArray[np.bool_], here: Ints, giver: Ints, window: bool) -> int:
        """Tells the leader of each chain that the messages of the paths are there, or sends it their blocks if there is no window."""
        came = self._leader(here, self._direction, self._path)
        moved = np.flatnonzero(on & (came != giver))
        if not len(moved):
            return step
        order, starts = groups(came[moved] * self._problem.ranks + giver[moved])
        moved = moved[order]
        heads = moved[starts[:-1]]
        if window:
            traffic.add(step, came[heads], giver[heads], np.zeros(len(heads)), NONE)
        else:
            traffic.add(step, came[heads], giver[heads], np.diff(starts), self._block[moved])
        return step + 1

    def _gather(self, traffic: Traffic) -> int:
        """Sends each rank's block to the leaders that carry it, and to the ranks of its own node that want it."""
        problem, ranks = self._problem, self._problem.ranks
        leader = self._leader(self._home, self._direction, self._path)
        graph = problem.graph
        near = problem.node_of[graph.sender] == problem.node_of[graph.destinations]
        pairs = np.concatenate((self._block * ranks + leader, graph.sender[near].astype(np.int64) * ranks + graph.destinations[near]))
        pairs = np.unique(pairs[pairs // ranks != pairs % ranks])
        traffic.add(0, pairs // ranks, pairs % ranks, np.ones(len(pairs)), pairs // ranks)
        return 1

    def _deliver(self, traffic: Traffic, step: int, holders: Any) -> None:
        """Sends each taker its blocks from the leader of its node that received them."""
        graph, node = self._problem.graph, self._problem.node_of
        far = np.flatnonzero(node[graph.sources] != node[graph.receiver])
        taker, block = graph.receiver[far].astype(np.int64), graph.sources[far].astype(np.int64)
        pairs = np.unique(taker * self._problem.ranks + block)
        taker, block = pairs // self._problem.ranks, pairs % self._problem.ranks
        holder = holders[block, node[taker]]
        kept = holder != taker
        order, starts = groups(holder[kept] * self._problem.ranks + taker[kept])
        if len(order):
            givers, takers, blocks = holder[kept][order], taker[kept][order], block[kept][order]
            traffic.add(step, givers[starts[:-1]], takers[starts[:-1]], np.diff(starts), blocks)
