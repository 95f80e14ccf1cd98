"""The arena on equal tiers, with own files, and with wrong files."""

from __future__ import annotations

import pytest

from armillary.catalogue import arena
from armillary.cluster import find
from armillary.errors import InputError
from armillary.serving.tiers import Hierarchy, Tier


@pytest.fixture(scope="module")
def tiers():
    return arena("serving/tiers")


def test_on_equal_tiers_hyperion_is_gpipe(tiers):
    case = next(c for c in tiers.built_in("tiny") if c.name == "phi-3-medium/0.6/equal").at(0, 0)
    ours, plain = (tiers.execute(tiers.make(name), case) for name in ("hyperion", "gpipe"))
    assert ours.values["mean_latency"] == pytest.approx(plain.values["mean_latency"], rel=0.1)
    assert 0 < ours.values["ttft"] <= ours.values["mean_latency"] <= ours.values["p95_latency"] * 1.5
    assert {one.name for one in ours.artifacts} == {"latency.quantiles.json", "timeline.json", "plan.csv"}


def test_own_requests_and_links(tiers, tmp_path):
    work = tmp_path / "trace.csv"
    work.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.68,37,4\n2023-11-16 18:15:50.99,39,5\n")
    slow, fast = tmp_path / "slow.csv", tmp_path / "fast.up"
    slow.write_text("time_s,bandwidth_mbps,latency_ms\n0,100,50\n1,0,50\n2,200,50\n")
    fast.write_text("".join(f"{ms}\n" for ms in range(1, 1000)))
    (case,) = tiers.from_file(work, {"bandwidth": f"{slow},{fast}", "model": "llama-3.2-1b", "others": "false"})
    assert case.workload.costs.hierarchy.tiers[0].latency_s == pytest.approx(0.05)
    outcome = tiers.execute(tiers.make("hyperion"), case.at(0, 0))
    assert outcome.values["mean_latency"] > 0.1
    (stretched,) = tiers.from_file(work, {"rho": "0.5", "model": "llama-3.2-1b"})
    assert len(stretched.workload.requests) == 2


def test_files_that_are_wrong(tiers, tmp_path):
    work = tmp_path / "trace.csv"
    work.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.68,37,4\n")
    good, back = tmp_path / "good.csv", tmp_path / "back.csv"
    good.write_text("time_s,bandwidth_mbps\n0,10\n1,10\n")
    back.write_text("time_s,bandwidth_mbps\n1,10\n0,10\n")
    for options, said in (
        ({"bandwidth": str(good)}, "expected 2"),
        ({"bandwidth": f"{good},{back}"}, "that increase"),

        ({"tiers": "dgx-h100"}, "topology tiers"),
    ):
        with pytest.raises(InputError) as caught:
            tiers.from_file(work, options)
        assert said in str(caught.value)


def test_tiers_that_are_wrong():
    with pytest.raises(InputError, match="at least one node"):
        Tier("edge", (), ())
    with pytest.raises(InputError, match="no tier"):
        Hierarchy(())


def test_another_cluster_has_no_equal_tiers(tiers):
    names = [case.name for case in tiers.built_in("tiny", find("tiers-3"))]
    assert "phi-3-medium/0.6" in names
    assert "phi-3-medium/0.6/equal" not in names
