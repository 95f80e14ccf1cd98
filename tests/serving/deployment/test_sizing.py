"""The least number of replicas is compared with trying every number."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from armillary.errors import InputError
from armillary.llm import AffineCost, Fleet, Replica, generate
from armillary.serving.deployment import Goal, Service, size
from armillary.serving.deployment.launching.sizing import least


@given(st.integers(1, 256))
def test_the_least_count_is_found(enough):
    found, tried = least(lambda count: min(1.0, count / enough), 1.0)
    assert found == enough
    assert all((count >= enough) == (share >= 1.0) for count, share in tried.items())


def test_a_goal_that_no_number_reaches_is_refused():
    with pytest.raises(InputError, match="too slow for this goal"):
        least(lambda count: 0.5, 0.9)


def test_every_smaller_number_misses_the_goal():
    replica = Replica(cost=AffineCost(0.02, 0.0005, 0.0), blocks=4000, max_seqs=16)
    requests = generate(300, rate=12.0, prompt=64, output=32, seed=3)
    goal = Goal(0.3, 0.06, 0.95)
    service = Service.read("llama-3.1-8b-1gpu")
    found = size(service, requests, "llama-3.1-8b", "h100-sxm", goal, replica=replica)

    def share(count):
        result = Fleet([replica] * count, router="least-tokens").run(requests)
        return np.mean((result.first_token - result.arrived <= 0.3) & ((result.finish - result.first_token) / 31 <= 0.06))

    assert found.replicas > 1
    assert share(found.replicas) >= 0.95
    assert all(share(count) < 0.95 for count in range(1, found.replicas))
    assert found.service.scale.max == found.replicas
    assert Service.parse(found.service.model_dump(mode="json")) == found.service


@pytest.mark.parametrize("goal", [Goal(0.0), Goal(1.0, -1.0), Goal(1.0, 1.0, 0.0), Goal(1.0, 1.0, 1.5)])
def test_goals_that_are_none_are_refused(goal):
    with pytest.raises(InputError):
        goal.check()


def test_a_replica_that_spans_nodes_is_refused():
    with pytest.raises(InputError, match="spans nodes"):
        size(Service.read("llama-3.1-405b-4x4"), generate(2, rate=1.0), "llama-3.1-8b", "h100-sxm")


def test_the_command_writes_a_description(armillary_command, tmp_path):
    run = armillary_command(
        "deploy", "plan", "llama-3.1-8b-1gpu", "--model", "llama-3.1-8b", "--rate", "20", "--requests", "300", "-o", "scaled.toml"
    )
    assert run.returncode == 0, run.stderr
    assert "simulated" in run.stdout
    assert Service.read(tmp_path / "scaled.toml").name == "llama-8b"
    for bad in (["--rate", "0"], ["--share", "2"], ["--model", "absent"], ["--trace", "absent.csv"]):
        refused = armillary_command("deploy", "plan", "llama-3.1-8b-1gpu", "--model", "llama-3.1-8b", *bad)
        assert refused.returncode == 2
        assert refused.stderr.count("\n") == 1
