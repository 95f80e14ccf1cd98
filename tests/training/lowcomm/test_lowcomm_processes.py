"""Workers as processes over Gloo: the weights of replicas that take turns, torch's default group, and a worker that is killed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import lowcomm_programs
import numpy as np
import pytest
from test_lowcomm_training import SMALL, documents

from armillary import comm
from armillary.training.lowcomm import Ddp, Diloco, StreamingDiloco, Training, trained, training
from armillary.training.lowcomm.workers import checkpoints

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(comm.backends()["gloo"]), reason=comm.backends()["gloo"] or "Gloo is here"),
]


@pytest.fixture(scope="module")
def work() -> Training:
    return training(documents(), replace(SMALL, workers=3, steps=(10, 4, 0), context=32), np.random.default_rng(0), raw=0.0)


@pytest.mark.parametrize("technique", [Ddp(), Diloco(), Diloco(bits=16), StreamingDiloco(bits=4)], ids=str)
def test_processes_and_replicas_that_take_turns_give_the_same_bits(technique: Any, work: Training) -> None:
    real, turns = trained(technique, work, backend="gloo"), trained(technique, work)
    assert np.array_equal(real.weights, turns.weights)
    assert [one["losses"] for one in real.stages] == [one["losses"] for one in turns.stages]
    assert (real.comm_bytes, real.sync_count) == (turns.comm_bytes, turns.sync_count)
    assert real.cosine == turns.cosine


def test_torch_s_default_group_needs_no_communicator() -> None:
    ran = comm.run("lowcomm_programs:own_loop", 3, ranks=2, backend="gloo", timeout=120).values
    assert np.array_equal(ran[0], ran[1])
    (alone,) = comm.run(lowcomm_programs.own_loop, 3, ranks=1, backend="one").values
    assert not np.array_equal(ran[0], alone)


@pytest.mark.parametrize("step", [8, 10])
def test_a_killed_worker_goes_on_to_the_weights_of_a_run_that_was_never_disturbed(step: int, work: Training, tmp_path: Path) -> None:
    """Killed right after the end of a round (8 is the second round's last step) and inside one."""
    plain = {**work.plain(), "folder": str(tmp_path), "save_every": 1, "stop": 0}
    target = "armillary.training.lowcomm.diloco:Diloco"
    with pytest.raises(comm.RankFailed):
        comm.run("lowcomm_programs:dies", target, {}, plain, step, ranks=3, backend="gloo", timeout=120)
    # Worker 1 had saved the step before it was killed, and so has everybody.
    assert checkpoints.saved(tmp_path, 1)[-1] == step - 1
    went_on = trained(Diloco(), work, backend="gloo", folder=str(tmp_path), save_every=5)
    assert np.array_equal(went_on.weights, trained(Diloco(), work).weights)
