"""Sharded training on processes over Gloo: the results of threads, PyTorch's own FSDP, checkpoints, and a killed rank."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sharded_programs
import torch

from armillary import comm
from armillary.training.sharding import RaggedLoadPlanner, shard
from armillary.training.sharding.arena import sharding

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(comm.backends()["gloo"]), reason=comm.backends()["gloo"] or "Gloo is here"),
]


@pytest.fixture(scope="module")
def gloo(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("checkpoint")
    found = comm.run("sharded_programs:everything", str(folder), ranks=2, backend="gloo", timeout=120).values[0]
    return {**found, "folder": folder}


@pytest.fixture(scope="module")
def threads() -> dict[str, Any]:
    return comm.run(sharded_programs.everything, "", ranks=2, backend="threads").values[0]


def close(one: dict[str, Any], other: dict[str, Any], within: float) -> None:
    assert set(one) == set(other)
    for name, value in other.items():
        np.testing.assert_allclose(one[name], value, rtol=0, atol=within, err_msg=name)


@pytest.mark.parametrize("optim", ["adamw", "adam8bit"])
@pytest.mark.parametrize("technique", list(sharding.techniques))
def test_processes_give_what_threads_give(technique: str, optim: str, gloo: dict[str, Any], threads: dict[str, Any]) -> None:
    # Only the all-reduce of whole gradients may add in another order.
    close(gloo[f"{technique} {optim}"], threads[f"{technique} {optim}"], 1e-12 if technique == "ddp" else 0.0)
    assert gloo[f"{technique} {optim} bytes"] == threads[f"{technique} {optim} bytes"]


@pytest.mark.parametrize("technique", list(sharding.techniques))
def test_every_technique_equals_pytorchs_fully_shard(technique: str, gloo: dict[str, Any]) -> None:
    close(gloo[f"{technique} adamw"], gloo["fully_shard"], 1e-10)


def test_a_checkpoint_is_loaded_on_other_layouts_and_other_numbers_of_ranks(gloo: dict[str, Any]) -> None:
    import torch.distributed.checkpoint as dcp

    expected = {name: value.detach().numpy() for name, value in sharded_programs.model().named_parameters()}
    close(gloo["loaded"], expected, 0.0)

    def alone(ranks: Any, folder: Path) -> dict[str, Any]:
        made = shard(sharded_programs.model(seed=2), ranks, align=4)
        dcp.load(made.local_state_dict(), checkpoint_id=str(folder), planner=RaggedLoadPlanner(made), no_dist=True)
        return sharded_programs.weights(made)

    close(comm.run(alone, gloo["folder"], ranks=1, backend="one").values[0], expected, 0.0)


def test_a_rank_that_is_killed_in_a_step_ends_the_run_with_its_number() -> None:
    began = time.monotonic()
    with pytest.raises(comm.RankFailed, match="rank 1"):
        comm.run("sharded_programs:dies", ranks=2, backend="gloo", timeout=60)
    assert time.monotonic() - began < 60


def test_the_built_in_case_trains_on_processes() -> None:
    case = next(case for case in sharding.built_in("small") if case.name == "tiny-gpt-n2-adam8bit")
    outcome = sharding.execute(sharding.make("vescale-fsdp"), case.at(0, 0))
    values = outcome.values  # type: ignore[union-attr]
    assert values["copy_bytes"] == values["cut_blocks"] == 0
    assert values["loss_gap"] < 1e-3
    assert torch.isfinite(torch.tensor(values["step_s"]))
