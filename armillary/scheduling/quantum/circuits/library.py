"""The five families of the built-in batches: GHZ, graph states, QAOA, QFT and VQE, each with all qubits measured at the end."""

from __future__ import annotations

import math

import numpy as np

from .circuit import Builder, Circuit

FAMILIES = ("ghz", "graph", "qaoa", "qft", "vqe")


def ghz(qubits: int) -> Circuit:
    """A chain of CNOTs."""
    made = Builder(f"ghz_{qubits}", qubits)
    made.add("h", 0)
    for q in range(qubits - 1):
        made.add("cx", q, q + 1)
    return _measured(made)


def graph_state(qubits: int, edges: list[tuple[int, int]] | None = None) -> Circuit:
    """A controlled-Z for each edge; by default those of a ring."""
    made = Builder(f"graph_{qubits}", qubits)
    for q in range(qubits):
        made.add("h", q)
    for a, b in ring(qubits) if edges is None else edges:
        made.add("cz", a, b)
    return _measured(made)


def qaoa(qubits: int, layers: int, edges: list[tuple[int, int]], angles: list[float]) -> Circuit:
    """`layers` times a ZZ rotation for each edge and an X rotation for each qubit; two angles per layer."""
    made = Builder(f"qaoa_{qubits}", qubits)
    for q in range(qubits):
        made.add("h", q)
    for layer in range(layers):
        for a, b in edges:
            made.add("rzz", a, b, angles=[angles[2 * layer]])
        for q in range(qubits):
            made.add("rx", q, angles=[angles[2 * layer + 1]])
    return _measured(made)


def qft(qubits: int) -> Circuit:
    """The quantum Fourier transform without the swaps at its end."""
    made = Builder(f"qft_{qubits}", qubits)
    for target in range(qubits - 1, -1, -1):
        made.add("h", target)
        for control in range(target - 1, -1, -1):
            made.add("cp", control, target, angles=[math.pi / (1 << (target - control))])
    return _measured(made)


def vqe(qubits: int, layers: int, angles: list[float]) -> Circuit:
    """A hardware-efficient ansatz: rotations of every qubit, then a chain of CNOTs, `layers` times, then rotations."""
    made = Builder(f"vqe_{qubits}", qubits)
    at = 0
    for layer in range(layers + 1):
        for q in range(qubits):
            made.add("ry", q, angles=[angles[at]])
            made.add("rz", q, angles=[angles[at + 1]])
            at += 2
        if layer < layers:
            for q in range(qubits - 1):
                made.add("cx", q, q + 1)
    return _measured(made)


def drawn(family: str, qubits: int, rng: np.random.Generator) -> Circuit:
    """A circuit of a family: QAOA of one to three layers on a 3-regular graph, VQE of two to four layers, a graph state on a ring with
    as many chords as half its qubits."""
    if family == "ghz":
        return ghz(qubits)
    if family == "qft":
        return qft(qubits)
    if family == "graph":
        edges = ring(qubits)
        known = {tuple(sorted(edge)) for edge in edges}
        while len(edges) < min(qubits + qubits // 2, qubits * (qubits - 1) // 2):
            a, b = sorted(rng.choice(qubits, 2, replace=False).tolist())
            if (a, b) not in known:
                known.add((a, b))
                edges.append((a, b))
        return graph_state(qubits, edges)
    if family == "qaoa":
        even = max(4, qubits + qubits % 2)
        layers = int(rng.integers(1, 4))
        return qaoa(even, layers, regular(even, rng), rng.uniform(0, math.pi, 2 * layers).tolist())
    layers = int(rng.integers(2, 5))
    return vqe(qubits, layers, rng.uniform(0, math.pi, 2 * qubits * (layers + 1)).tolist())


def ring(qubits: int) -> list[tuple[int, int]]:
    """The edges of a ring; of two qubits, one."""
    return [(q, (q + 1) % qubits) for q in range(qubits if qubits > 2 else qubits - 1)]


def regular(vertices: int, rng: np.random.Generator) -> list[tuple[int, int]]:
    """The edges of a random simple 3-regular graph on an even number of vertices: stubs are paired until no edge repeats."""
    while True:
        stubs = rng.permutation(np.repeat(np.arange(vertices), 3)).reshape(-1, 2)
        edges = {tuple(sorted(pair)) for pair in stubs.tolist()}
        if len(edges) == len(stubs) and all(a != b for a, b in edges):
            return sorted((int(a), int(b)) for a, b in edges)


def _measured(made: Builder) -> Circuit:
    for q in range(made.qubits):
        made.add("measure", q)
    return made.done()
