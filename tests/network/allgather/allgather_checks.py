"""What the tests of the arena share: awkward graphs, a plain interpreter of schedules, a search for races, and programs for live ranks."""

from __future__ import annotations

import numpy as np

from armillary.errors import InputError
from armillary.network.allgather import Auto, Cascade, CommonNeighbour, Direct, DistanceHalving, NodeAware, from_edges
from armillary.network.allgather.planning.prices import Prices
from armillary.network.allgather.planning.schedule import RECV, SEND, STAGE

PRICES = Prices(1.2e-6, 0.25e-6, 0.25e-6, 0.0, 8e-11, 1e-10, 16384, 0.2e-6, 0.25e-6, 8192, 8192, 3.6e-12)
TECHNIQUES = {
    "direct": Direct(),
    "node-aware": NodeAware(),
    "common-neighbour": CommonNeighbour(),
    "common-neighbour, 3": CommonNeighbour(k=3),
    "distance-halving": DistanceHalving(),
    "cascade": Cascade(),
    "cascade, 1 path": Cascade(paths=1),
    "cascade, 2 paths": Cascade(paths=2),
    "cascade, not pruned": Cascade(paths=1, prune=False),
    "cascade, not combined": Cascade(paths=2, combine=False),
    "cascade, one leader": Cascade(paths=2, leaders=False),
    "cascade, no window": Cascade(paths=2, window=False),
    "auto": Auto(),
}


def blocks_of(sizes, salt=0):
    """A block of random bytes for each rank."""
    return [np.random.default_rng([rank, salt]).integers(0, 256, int(size), np.uint8) for rank, size in enumerate(sizes)]


def expected(graph, blocks, rank):
    """What a rank must receive, from the lists of the graph alone."""
    return np.concatenate([np.empty(0, np.uint8), *[blocks[source] for source in graph.into(rank)]])


def carried_out(schedule, blocks):
    """What all ranks receive if the schedule is carried out step by step, by NumPy alone: all copies, then all messages at once."""
    problem = schedule.problem
    ends = problem.received_bytes[problem.graph.in_start]
    received = [np.zeros(int(n), np.uint8) for n in np.diff(ends)]
    stages = [np.zeros(int(n), np.uint8) for n in schedule.stage_bytes]

    def memory(rank, place):
        stage = stages[problem.node_of[rank] if schedule.shared else rank]
        return {SEND: blocks[rank], STAGE: stage, RECV: received[rank]}[int(place)]

    for step in range(schedule.steps):
        for i in np.flatnonzero(schedule.copy_step == step):
            rank, n = schedule.copy_rank[i], schedule.copy_bytes[i]
            begin, put = schedule.copy_from_at[i], schedule.copy_to_at[i]
            memory(rank, schedule.copy_to[i])[put : put + n] = memory(rank, schedule.copy_from[i])[begin : begin + n]
        now = np.flatnonzero(schedule.step == step)
        flying = []
        for i in now:
            begin, n = schedule.from_at[i], schedule.nbytes[i]
            flying.append(memory(schedule.source[i], schedule.from_place[i])[begin : begin + n].copy())
            assert len(flying[-1]) == n
        for i, data in zip(now, flying):
            put = schedule.to_at[i]
            memory(schedule.destination[i], schedule.to_place[i])[put : put + len(data)] = data
    return received


def races(schedule):
    """Reads of a shared stage that are not ordered behind the write by messages, as (rank, step, writer, step): must be empty.

    Each rank's clock is 2·step + 1 after the copies of a step and 2·step + 2 after its messages; messages carry the clocks of their sender.
    """
    if not schedule.shared:
        return []
    node, ranks = schedule.problem.node_of, schedule.problem.ranks
    clocks = np.zeros((ranks, ranks), np.int64)
    written = [[] for _ in schedule.stage_bytes]
    found = []

    def read(rank, begin, n, step):
        for a, b, writer, when in written[node[rank]]:
            if a < begin + n and begin < b and writer != rank and clocks[rank, writer] < when:
                found.append((int(rank), step, int(writer), when))

    for step in range(schedule.steps):
        fresh = []
        for i in np.flatnonzero(schedule.copy_step == step):
            rank, n = schedule.copy_rank[i], schedule.copy_bytes[i]
            if schedule.copy_from[i] == STAGE:
                read(rank, schedule.copy_from_at[i], n, step)
            if schedule.copy_to[i] == STAGE:
                fresh.append((node[rank], schedule.copy_to_at[i], schedule.copy_to_at[i] + n, rank, 2 * step + 1))
        for v, *entry in fresh:
            written[v].append(entry)
        clocks[np.arange(ranks), np.arange(ranks)] = 2 * step + 1
        now = np.flatnonzero(schedule.step == step)
        for i in now:
            if schedule.from_place[i] == STAGE and schedule.nbytes[i]:
                read(schedule.source[i], schedule.from_at[i], schedule.nbytes[i], step)
        sent = clocks.copy()
        for i in now:
            taker, n = schedule.destination[i], schedule.nbytes[i]
            clocks[taker] = np.maximum(clocks[taker], sent[schedule.source[i]])
            if schedule.to_place[i] == STAGE and n:
                written[node[taker]].append([schedule.to_at[i], schedule.to_at[i] + n, taker, 2 * step + 2])
        clocks[np.arange(ranks), np.arange(ranks)] = 2 * step + 2
    return found


def awkward(ranks, seed=0):
    """A random graph with an edge that occurs three times, a rank that is its own neighbour twice, and an isolated rank."""
    rng = np.random.default_rng(seed)
    give, take = np.nonzero(rng.random((ranks, ranks)) < 0.5)
    kept = (give != ranks - 1) & (take != ranks - 1)
    give, take = give[kept].tolist(), take[kept].tolist()
    return from_edges(ranks, [*give, 0, 0, 0, 1 % ranks, 1 % ranks], [*take, 2 % ranks, 2 % ranks, 2 % ranks, 1 % ranks, 1 % ranks])


SIZES = (7, 0, 33, 5000, 1, 20_000, 64, 12)
PLACEMENTS = {4: ([0, 0, 1, 1], [0, 1, 2, 3], [0, 0, 0, 0], [2, 0, 2, 1]), 6: ([0, 0, 0, 1, 1, 2], [0, 1, 2, 3, 4, 5])}


def live(comm, native=None, placements=None):
    """Every technique on live ranks, three times with different bytes: the names of those that received what they should, or raises.

    `native(comm, graph, send, wanted, counts)` is the library's own call, with which the bytes are compared too.
    """
    rank, ranks = comm.rank, comm.size
    passed = []
    graph = awkward(ranks)
    mine = graph.into(rank).tolist(), graph.out(rank).tolist()
    for sizes in ([24] * ranks, list(SIZES[:ranks])):
        blocks = [blocks_of(sizes, salt) for salt in range(3)]
        wanted = [expected(graph, row, rank) for row in blocks]
        if native is not None:
            native(comm, graph, blocks[0][rank], wanted[0], [sizes[source] for source in graph.into(rank)])
        for placement in placements or PLACEMENTS[ranks]:
            for name, technique in TECHNIQUES.items():
                # Probes take time on processes that share cores, so most calls are planned for a named cluster.
                cluster = None if (name, placement) == ("auto", PLACEMENTS[ranks][0]) else "infiniband-hdr100"
                call = technique.on(comm, *mine, sizes[rank], nodes=placement, cluster=cluster)
                # The same buffers three times, so that both halves of a window are used and used again.
                send, recv = np.zeros(sizes[rank], np.uint8), np.zeros(call.recv_bytes, np.uint8)
                for salt in range(3):
                    send[:], recv[:] = blocks[salt][rank], 0
                    call(send, recv)
                    if not np.array_equal(recv, wanted[salt]):
                        raise AssertionError(f"{name} on {placement}, call {salt}: rank {rank} received other bytes")
                if not np.array_equal(call(blocks[2][rank].copy(), np.zeros_like(recv)), wanted[2]):
                    raise AssertionError(f"{name} on {placement}: rank {rank} received other bytes in other buffers")
                call.close()
                passed.append(f"{name} {placement} {sizes}")
    return passed


def live_mpi(comm, placements):
    """`live` on the processes of an MPI library, against its own calls; and what ranks that disagree are told."""

    def native(ranks, graph, send, wanted, counts):
        from mpi4py import MPI

        rank = ranks.rank
        shape = MPI.COMM_WORLD.Create_dist_graph_adjacent(graph.into(rank).tolist(), graph.out(rank).tolist(), reorder=False)
        found = np.zeros_like(wanted)
        shape.Neighbor_allgatherv(send, [found, counts])
        assert np.array_equal(found, wanted)
        if len(send) == 24:
            # Open MPI 5.0 sends nothing from a rank that says that it receives blocks of no bytes, so one without sources says 24 too.
            found = np.zeros(max(24, len(wanted)), np.uint8)
            shape.Neighbor_allgather([send, 24, MPI.BYTE], [found, 24, MPI.BYTE])
            assert np.array_equal(found[: len(wanted)], wanted)
        shape.Free()

    passed = live(comm, native, placements)
    # The real communicator of mpi4py, on the nodes that it has.
    others = [rank for rank in range(comm.size) if rank != comm.rank]
    with Cascade().on(comm.native, others, others, 16) as call:
        recv = np.zeros(16 * len(others), np.uint8)
        call(np.full(16, comm.rank, np.uint8), recv)
        assert recv.tolist() == [rank for rank in others for _ in range(16)]
    said = []
    for sources, destinations, nbytes in (([], [0] if comm.rank == 1 else [], 8), ([9], [], 8), ([], [], -1)):
        try:
            Cascade().on(comm, sources, destinations, nbytes)
        except InputError as error:
            said.append(str(error))
    return [len(passed), *said]


def live_virtual(comm):
    """`live` without wildcards; a name by which virtual ranks and threads can run it."""
    return len(live(comm))
