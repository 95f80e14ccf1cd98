"""Real checkpoints: states as bytes, versions, files, experts on ranks, and (slow) a killed rank whose training goes on bit for bit."""

from __future__ import annotations

import copy
import threading
from pathlib import Path
from typing import Any

import checkpoint_programs
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from armillary import comm
from armillary.errors import InputError
from armillary.llm import TrainableTiny
from armillary.llm.tiny.trainable import Mixture
from armillary.llm.tiny.transformer import Shape
from armillary.training.checkpoint import read_version, write_version
from armillary.training.checkpoint.arena import checkpoint
from armillary.training.checkpoint.runtime.expert_parallel import Ranks, spread
from armillary.training.checkpoint.runtime.state import Flat, tensors_of
from armillary.training.checkpoint.runtime.traffic import Gate
from armillary.training.checkpoint.runtime.versions import Versions, newest_on_all


def stepped(count: int = 3) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    model, optimizer = checkpoint_programs.made(0)
    for number in range(count):
        checkpoint_programs.update(model, optimizer, number)
    return model, optimizer


def taken(flat: Flat, chunk: int) -> tuple[Any, torch.Tensor]:
    description = flat.describe({"number": 7})
    data = torch.empty(flat.total, dtype=torch.uint8)
    for at in range(0, flat.total, chunk):
        flat.read(at, data[at : at + chunk])
    return description, data


# States


@pytest.mark.parametrize("chunk", [61, 1 << 20])
def test_a_state_that_travelled_in_chunks_goes_on_bit_for_bit(chunk: int) -> None:
    model, optimizer = stepped()
    description, data = taken(Flat(model, optimizer), chunk)
    ahead = [checkpoint_programs.update(model, optimizer, number) for number in range(3, 6)]
    other, others = checkpoint_programs.made(1)
    Flat(other, others).load(description, data)
    assert [checkpoint_programs.update(other, others, number) for number in range(3, 6)] == ahead
    assert all(torch.equal(a, b) for a, b in zip(model.state_dict().values(), other.state_dict().values(), strict=True))


def test_settings_of_the_optimizer_come_along_and_other_models_are_refused() -> None:
    model, optimizer = stepped()
    optimizer.param_groups[0]["lr"] = 0.123
    description, data = taken(Flat(model, optimizer), 64)
    other, others = checkpoint_programs.made(1)
    Flat(other, others).load(description, data)
    assert others.param_groups[0]["lr"] == 0.123
    small = torch.nn.Linear(2, 2)
    with pytest.raises(InputError, match="the version and the model differ"):
        Flat(small, torch.optim.SGD(small.parameters())).load(description, data)
    with pytest.raises(InputError, match="complex64"):
        odd = torch.nn.Linear(2, 2, dtype=torch.complex64)
        Flat(odd, torch.optim.SGD(odd.parameters())).describe()


def test_a_version_file_is_a_safetensors_file_and_damage_is_noticed(tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    description, data = taken(Flat(*stepped()), 1000)
    path = write_version(tmp_path / "v.safetensors", description, data, 12)
    version, same, again = read_version(path)
    assert (version, same) == (12, description)
    assert torch.equal(again, data)
    opened, mine = safetensors.load_file(path), tensors_of(description, data)
    assert set(opened) == set(mine)
    assert all(torch.equal(opened[name], mine[name]) for name in mine)
    raw = path.read_bytes()
    for damaged in (raw[:-3], raw[:50], b"", raw[:-1] + bytes([raw[-1] ^ 1]), raw.replace(b'"F32"', b'"F99"', 1)):
        path.write_bytes(damaged)
        with pytest.raises(InputError):
            read_version(path)


# Versions


def test_a_version_counts_only_when_its_last_byte_has_arrived() -> None:
    held = Versions()
    for version in (1, 2):
        held.begin(version, 10, "d", bytearray)
        assert not held.arrived(6)
        assert held.arrived(4)
    held.begin(3, 10, "d", bytearray)
    held.arrived(9)
    assert sorted(held.whole) == [1, 2], "a crash in the middle of 3 leaves 2"
    held.begin(4, 10, "d", bytearray)
    held.arrived(10)
    assert sorted(held.whole) == [2, 4], "1 went when 4 began, because 2 was whole everywhere; 3 never was"
    with pytest.raises(InputError, match="more bytes"):
        held.arrived(1)
    held.forget_after(2)
    assert list(held.whole) == [2]


def test_memory_of_a_version_that_goes_is_used_again() -> None:
    held, made = Versions(), []

    def allocate(total: int) -> bytearray:
        made.append(total)
        return bytearray(total)

    for version in range(1, 30):
        held.begin(version, 5, None, allocate)
        held.arrived(5)
    assert len(made) == 3
    held.begin(30, 0, None, allocate)
    assert 30 in held.whole, "nothing is whole at once"


def test_recovery_takes_the_newest_version_that_all_ranks_can_have() -> None:
    held = [{0: {4, 5}, 3: {4}}, {1: {4, 5}, 0: {4, 5}}, {2: {4}, 1: {4}}, {2: {4}}]
    # Rank 3 is new; rank 0 holds version 4 of it, and 2 has no version 5.
    assert newest_on_all(held) == (4, {0: 0, 1: 1, 2: 2, 3: 0})


def test_ranks_that_hold_each_others_copies_are_unrecoverable_from_memory() -> None:
    # Of two ranks that died together, nobody has the state of rank 1: its own copy and that on rank 2 are gone.
    assert newest_on_all([{0: {7}, 3: {7}}, {}, {}, {3: {7}, 2: {7}}]) is None
    assert newest_on_all([{0: {7}, 3: {7}}, {}, {2: {7}, 1: {7}}, {3: {7}, 2: {7}}]) is not None


@given(st.integers(2, 6), st.data())
def test_what_recovery_chooses_exists(ranks: int, data: st.DataObject) -> None:
    versions = st.sets(st.integers(1, 4))
    held = [{r: data.draw(versions), (r - 1) % ranks: data.draw(versions)} for r in range(ranks)]
    found = newest_on_all(held)
    for version in range(1, 5):
        everywhere = all(any(version in held[r].get(owner, set()) for r in range(ranks)) for owner in range(ranks))
        assert not (everywhere and (found is None or found[0] < version))
    if found is not None:
        assert all(found[0] in held[found[1][owner]][owner] for owner in range(ranks))


def test_a_gate_lets_out_what_a_span_has_room_for() -> None:
    gate = Gate()
    gate.open(10)
    assert [gate.take(8), gate.take(8)] == [8, 2]
    got: list[int] = []
    waiting = threading.Thread(target=lambda: got.append(gate.take(8)))
    waiting.start()
    gate.close()
    gate.open(5)
    waiting.join()
    gate.close()
    gate.flush(True)
    assert [*got, gate.take(8)] == [5, 8]
    gate.flush(False)
    gate.stop()
    assert gate.take(8) == 0


# Experts on ranks


def test_experts_on_two_ranks_compute_what_one_process_computes() -> None:
    shape = Shape(16, 2, 2, 2, 8, 24, 40, 1e4, 1e-5, 12, False, 4, 2)
    ids = torch.randint(0, 40, (4, 13), generator=torch.Generator().manual_seed(5))
    whole = TrainableTiny(shape, seed=3, dtype=torch.float64)
    loss = whole.loss(ids[:, :-1], ids[:, 1:])
    loss.backward()
    lock = threading.Lock()

    def program(ranks: Any) -> tuple[float, dict[str, Any]]:
        with lock:
            model = TrainableTiny(shape, seed=3, dtype=torch.float64)
        model = spread(model, Ranks(ranks))
        mine = ids[2 * ranks.rank : 2 * ranks.rank + 2]
        found = model.loss(mine[:, :-1], mine[:, 1:])
        found.backward()
        return float(found.detach()), {name: p.grad.numpy() for name, p in model.named_parameters() if p.grad is not None}

    (first, one), (second, two) = comm.run(program, ranks=2).values
    assert (first + second) / 2 == pytest.approx(float(loss.detach()))
    for name, p in whole.named_parameters():
        if ".experts." in name:
            head, _, tail = name.partition(".experts.")
            number, _, rest = tail.partition(".")
            mine = (one, two)[int(number) // 2][f"{head}.experts.{int(number) % 2}.{rest}"] / 2
        else:
            mine = (one[name] + two[name]) / 2
        np.testing.assert_allclose(mine, p.grad.numpy(), atol=1e-12, err_msg=name)


def test_experts_that_do_not_divide_are_refused() -> None:
    model = TrainableTiny(Shape(16, 1, 2, 2, 8, 24, 40, 1e4, 1e-5, 12, False, 3, 2))
    assert isinstance(copy.copy(model.model.layers[0].block_sparse_moe), Mixture)
    with pytest.raises(comm.RankFailed, match="found 3 experts for 2 ranks"):
        comm.run(lambda ranks: spread(model, Ranks(ranks)), ranks=2)


# Processes


@pytest.mark.slow
@pytest.mark.skipif(bool(comm.backends()["gloo"]), reason=comm.backends()["gloo"] or "Gloo is here")
def test_two_ranks_keep_export_and_recover_each_others_state(tmp_path: Path) -> None:
    for rank, found in enumerate(comm.run("checkpoint_programs:quiet", str(tmp_path), ranks=2, backend="gloo", timeout=120).values):
        assert "replicas: found 3 for 2 nodes" in found["said"][0]
        assert "replicas: found 2 for 1 nodes" in found["said"][1]
        assert "replicas: found 1" in found["said"][2]
        assert "no version is whole yet" in found["said"][3]
        assert found["held"][-1] == 6
        assert found["same"]
        assert found["version"] == found["back"] == 6
        assert found["extra"] == {"number": 5}
        assert found["again"] == []
        assert found["names"][0].startswith(f"rank{rank}.model.")
        assert 0 < found["filed"] < 6
        assert found["later"] == found["losses"][found["filed"] :]


@pytest.mark.slow
@pytest.mark.skipif(bool(comm.backends()["gloo"]), reason=comm.backends()["gloo"] or "Gloo is here")
def test_two_neighbours_that_die_together_are_unrecoverable_from_memory() -> None:
    found = comm.run("checkpoint_programs:pair_dies", 6, ranks=4, backend="gloo", restarts=2, timeout=120).values
    assert all("unrecoverable from memory" in said for said, _ in found)
    assert {generation for _, generation in found} == {2}


@pytest.mark.slow
@pytest.mark.parametrize("technique", ["moe-rckpt", "gemini", "opportunistic", "none"])
@pytest.mark.skipif(bool(comm.backends()["gloo"]), reason=comm.backends()["gloo"] or "Gloo is here")
def test_training_after_a_killed_rank_equals_undisturbed_training_bit_for_bit(technique: str) -> None:
    case = next(case for case in checkpoint.built_in("small") if case.name == "real-kill").at(0, 0)
    outcome = checkpoint.execute(checkpoint.make(technique), case)
    values = outcome.values  # type: ignore[union-attr]
    assert values["state_equal"] == 1
    assert values["real_lost_iterations"] <= 1 if technique != "none" else values["real_lost_iterations"] >= 3
    assert values["recovery_s"] > 0
