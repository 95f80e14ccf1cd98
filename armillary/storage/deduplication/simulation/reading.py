"""How fast files are read back: every node has one disk and one NIC, each with a first-come, first-served queue.

A run is one request. It reaches its node after half a round trip, waits for the disk, which takes seek + bytes/bandwidth, then waits for
the node's NIC, and arrives after the other half. A reader has `depth` requests of its file in flight and takes the next file when all of
them have arrived; `readers` files are read at once. Containers are mapped to nodes by rendezvous hashing, as Ceph maps objects. The next
request is always sent at the moment at which one arrives, so the queues are served in the order of time. This is the closed loop of
`armillary.engine` with two stations per node.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from armillary.kernels import kernel, part

from ..layouts.layout import Layout, runs_per_file
from ..workload import Devices, Workload


@dataclass(frozen=True)
class Reads:
    """Seconds and bytes of each file that is not empty, in the order of the files."""

    seconds: np.ndarray
    bytes: np.ndarray

    @property
    def throughput(self) -> np.ndarray:
        """MB/s of each file."""
        return self.bytes / self.seconds / 1e6


def read_all(work: Workload, layout: Layout, rng: np.random.Generator) -> Reads:
    """Reads every file once, in random order."""
    starts, place, chunks = work.files.starts, layout.place, layout.chunks
    runs = runs_per_file(starts, place, layout.slots)
    first = np.concatenate(([0], np.cumsum(runs)))
    container, size = np.empty(first[-1], np.int64), np.zeros(first[-1], np.int64)
    _requests(starts, place, work.sizes[chunks], layout.slots, container, size)
    filled = np.flatnonzero(runs)
    seconds = simulate(first, node_of(container, work.devices.nodes), size, rng.permutation(filled), work.devices)
    total = np.concatenate(([0], np.cumsum(work.sizes[chunks])))
    return Reads(seconds[filled], (total[starts[1:]] - total[starts[:-1]])[filled])


def simulate(first: np.ndarray, node: np.ndarray, size: np.ndarray, order: np.ndarray, devices: Devices) -> np.ndarray:
    """Seconds from the first request to the last byte of each file; file f has requests first[f] to first[f + 1], read in `order`."""
    seconds = np.zeros(len(first) - 1)
    places = devices.readers * devices.depth
    _simulate(
        np.asarray(first, np.int64), np.asarray(node, np.int64), np.asarray(size, np.int64), np.asarray(order, np.int64),
        devices.readers, devices.depth, devices.rtt_s, devices.seek_s, devices.disk_bytes_per_s, devices.nic_bytes_per_s,
        np.zeros((devices.nodes, 2)), np.empty(places), np.empty(places, np.int64), np.zeros((devices.readers, 3), np.int64),
        np.zeros(devices.readers), seconds,
    )  # fmt: skip
    return seconds


def node_of(container: np.ndarray, nodes: int) -> np.ndarray:
    """The node of each container: the one whose hash with the container is greatest (rendezvous hashing)."""
    out = np.empty(len(container), np.int64)
    _rendezvous(np.asarray(container, np.int64), nodes, out)
    return out


@kernel
def _rendezvous(container, nodes, out):
    for i in range(len(container)):
        best, greatest = 0, np.uint64(0)
        for node in range(nodes):
            z = np.uint64(container[i]) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(node + 1) * np.uint64(0xD1B54A32D192ED03)
            z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            z = z ^ (z >> np.uint64(31))
            if node == 0 or z > greatest:
                best, greatest = node, z
        out[i] = best


@kernel
def _requests(starts, place, sizes, slots, container, size):
    n = -1
    for f in range(len(starts) - 1):
        last = -2
        for r in range(starts[f], starts[f + 1]):
            p = place[r]
            if p == last:
                continue
            if p != last + 1 or p % slots == 0:
                n += 1
                container[n] = p // slots
            size[n] += sizes[r]
            last = p


@part
def _push(times, who, count, time, reader):
    at = count
    while at > 0:
        parent = (at - 1) // 2
        if times[parent] <= time:
            break
        times[at], who[at] = times[parent], who[parent]
        at = parent
    times[at], who[at] = time, reader


@part
def _pop(times, who, count):
    """Removes the earliest entry from a heap of `count`, which the caller has already read."""
    time, reader = times[count - 1], who[count - 1]
    at = 0
    while True:
        child = 2 * at + 1
        if child >= count - 1:
            break
        if child + 1 < count - 1 and times[child + 1] < times[child]:
            child += 1
        if times[child] >= time:
            break
        times[at], who[at] = times[child], who[child]
        at = child
    times[at], who[at] = time, reader


@part
def _serve(now, node, size, rtt, seek, disk_rate, nic_rate, free):
    """The time at which a request that is sent now arrives; `free` holds the times from which on each disk and NIC is free."""
    done = max(now + 0.5 * rtt, free[node, 0]) + seek + size / disk_rate
    free[node, 0] = done
    sent = max(done, free[node, 1]) + size / nic_rate
    free[node, 1] = sent
    return sent + 0.5 * rtt


@kernel
def _simulate(first, node, size, order, readers, depth, rtt, seek, disk_rate, nic_rate, free, times, who, state, began, seconds):
    # state[reader]: its file, its next request, its requests in flight.
    upcoming, count = 0, 0
    for reader in range(readers):
        if upcoming == len(order):
            break
        f = order[upcoming]
        upcoming += 1
        state[reader, 0], state[reader, 1] = f, first[f]
        while state[reader, 2] < depth and state[reader, 1] < first[f + 1]:
            i = state[reader, 1]
            _push(times, who, count, _serve(0.0, node[i], size[i], rtt, seek, disk_rate, nic_rate, free), reader)
            count += 1
            state[reader, 1] += 1
            state[reader, 2] += 1
    while count > 0:
        now, reader = times[0], who[0]
        _pop(times, who, count)
        count -= 1
        state[reader, 2] -= 1
        f = state[reader, 0]
        if state[reader, 1] == first[f + 1] and state[reader, 2] == 0:
            seconds[f] = now - began[reader]
            if upcoming == len(order):
                continue
            f = order[upcoming]
            upcoming += 1
            began[reader] = now
            state[reader, 0], state[reader, 1] = f, first[f]
        while state[reader, 2] < depth and state[reader, 1] < first[f + 1]:
            i = state[reader, 1]
            _push(times, who, count, _serve(now, node[i], size[i], rtt, seek, disk_rate, nic_rate, free), reader)
            count += 1
            state[reader, 1] += 1
            state[reader, 2] += 1
