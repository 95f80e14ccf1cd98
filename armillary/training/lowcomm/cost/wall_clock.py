"""The seconds that training would take over a slow network, from a measured step and counted bytes.

Workers stand in a ring. An all-reduce of n bytes among k workers sends 2(k − 1)/k·n through each port in 2(k − 1) messages, and an
all-gather (k − 1)·n in k − 1. What is exchanged behind the backward pass, or behind inner steps that go on, costs only the seconds that
these do not hide.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Network:
    """The link of each worker: bits per second and the seconds of one message's way."""

    bandwidth: float = 100e6
    latency_s: float = 0.01


def wire_bytes(payload: float, workers: int, *, gathers: bool = False) -> float:
    """Bytes that leave a worker's port for exchanges of this payload."""
    return payload * (workers - 1) if gathers else payload * 2 * (workers - 1) / workers


def exchange_s(payload: float, workers: int, network: Network, *, gathers: bool = False) -> float:
    """Seconds of one exchange of `payload` bytes."""
    messages = (workers - 1) * (1 if gathers else 2)
    return 8 * wire_bytes(payload, workers, gathers=gathers) / network.bandwidth + messages * network.latency_s


def wall_clock_s(
    steps: int, step_s: float, syncs: int, payload: float, workers: int, network: Network, *, hidden_s: float = 0.0, gathers: bool = False
) -> float:
    """Seconds of a stage: its steps, and what is not hidden of `syncs` exchanges that share `payload` bytes evenly."""
    if not syncs:
        return steps * step_s
    return steps * step_s + syncs * max(0.0, exchange_s(payload / syncs, workers, network, gathers=gathers) - hidden_s)
