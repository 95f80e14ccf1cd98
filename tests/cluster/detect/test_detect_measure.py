"""What is measured is what it says: figures in plausible units, stored beside the nominal ones."""

from __future__ import annotations

import numpy as np
import pytest

from armillary.cluster import Cluster
from armillary.cluster.detect import describe, measure
from armillary.cluster.detect.machine import _beside
from armillary.cluster.detect.measure import Measured


def test_the_triad_computes_what_stream_computes() -> None:
    kernel = measure._triad_kernel()
    b, c = np.arange(1000.0), np.ones(1000)
    a = np.empty(1000)
    kernel(a, b, c, 3.0, 0.0)
    assert np.array_equal(a, b + 3.0)


def test_short_measurements_give_positive_finite_figures() -> None:
    rate = measure.triad(1 << 16, threads=1, seconds=0.01)
    flops = measure.gemm(np.float32, n=64, seconds=0.01)
    trip = measure.ping(20)
    assert 0 < trip < 10
    assert 0 < rate < 1e14
    assert 0 < flops < 1e16


def test_measured_values_stand_beside_nominal_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "measure", lambda *_: Measured(50e9, 1e12, 2e12, 1.5e-5, 4))
    data = describe(measure=True)
    cluster = Cluster.from_dict(data)
    node = cluster.groups[0].node
    assert node.memories[0].bandwidth is not None
    assert node.memories[0].bandwidth.measured == 50e9
    flops = node.sockets[0].flops
    assert flops is not None
    assert flops["fp64"] is not None
    assert flops["fp64"].measured == 1e12 / sum(socket.count for socket in node.sockets)
    facts = {fact.key: fact.value for fact in cluster.facts}
    assert facts["measured.loopback_round_trip"] == 1.5e-5


def test_a_nominal_value_is_kept() -> None:
    assert _beside({"value": 3.0, "source": "firmware"}, 2.0, "x") == {"value": 3.0, "source": "firmware", "measured": 2.0}
    assert _beside(3.0, 2.0, "x") == {"value": 3.0, "measured": 2.0}
    assert _beside(None, 2.0, "triad") == {"value": 2.0, "source": "measured: triad", "measured": 2.0}


@pytest.mark.slow
def test_this_machine_measures_itself() -> None:
    cluster = Cluster.from_dict(describe(measure=True))
    bandwidth = cluster.groups[0].node.memories[0].bandwidth
    assert bandwidth is not None
    assert bandwidth.measured is not None
    assert 1e8 < bandwidth.measured < 1e13
