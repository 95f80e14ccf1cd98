"""Sharded training on ranks that are threads: every technique and optimizer beside a single process, copies, bytes and memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from armillary import comm
from armillary.errors import InputError
from armillary.llm import TrainableTiny
from armillary.llm.tiny.trainable import cross_entropy
from armillary.llm.tiny.transformer import Shape
from armillary.training.sharding import Ddp, Flat, Group, Sharding, VeScaleFsdp, peak_buffers, ragged, shard
from armillary.training.sharding.arena import sharding
from armillary.training.sharding.optimizers.muon import newton_schulz_flops, roots
from armillary.training.sharding.runtime.training import addresses_inside

CONFIG = {
    "model_type": "llama", "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
    "intermediate_size": 20, "vocab_size": 32,
}  # fmt: skip
MOE = {**CONFIG, "model_type": "mixtral", "num_local_experts": 3, "num_experts_per_tok": 2, "num_hidden_layers": 2}
torch.set_num_threads(1)
ALL = tuple(sharding.techniques)
#: One of each kind of layout.
THREE = ("vescale-fsdp", "zero3-elementwise", "ddp")
SHARDED = tuple(name for name in ALL if name != "ddp")


def batch(step: int) -> torch.Tensor:
    """Four sequences."""
    return torch.randint(0, 32, (4, 9), generator=torch.Generator().manual_seed(step))


def trained(
    ranks: Any, sharding: Sharding, steps: int = 4, optim: str = "adamw", blocks: Any = 1, dtype: torch.dtype = torch.float64,
    config: dict[str, Any] = CONFIG, same: bool = False, options: dict[str, Any] | None = None, after: Callable[[Any], Any] | None = None,
) -> dict[str, Any]:  # fmt: skip
    model = TrainableTiny(Shape.of(config), dtype=dtype)
    made = shard(model, ranks, sharding=sharding, optim=optim, blocks=blocks, lr=1e-2, align=4, **(options or {}))
    seen: dict[str, Any] = {"peak": 0, "inside": True, "losses": []}

    def look() -> None:
        seen["peak"] = max(seen["peak"], made.state_bytes())
        seen["inside"] &= addresses_inside(made)

    made.on_event = look
    each = 4 // ranks.size
    for step in range(steps):
        # Ranks that all see one sequence have gradients whose mean is exact.
        ids = batch(step)[:1] if same else batch(step)[ranks.rank * each : (ranks.rank + 1) * each]
        sent = made.wires.bytes
        loss = cross_entropy(made(ids[:, :-1]), ids[:, 1:])
        loss.backward()
        made.step()
        seen["losses"].append(loss.item())
    sent = made.wires.bytes - sent
    return {
        "state": {name: value.numpy() for name, value in made.state_dict().items()}, "copied": made.copied, "sent": sent, **seen,
        "after": after(made) if after else None, "buckets": list(made.buckets()),
    }  # fmt: skip


def run(technique: Sharding | str, n: int, *args: Any, **named: Any) -> list[dict[str, Any]]:
    made = sharding.make(technique) if isinstance(technique, str) else technique
    return comm.run(trained, made, *args, ranks=n, backend="threads", named=named).values


def distance(one: dict[str, Any], other: dict[str, Any]) -> float:
    assert set(one["state"]) == set(other["state"])
    return max(float(np.abs(one["state"][name] - value).max()) for name, value in other["state"].items())


def plain(steps: int, make: Callable[[nn.Module], torch.optim.Optimizer], dtype: torch.dtype = torch.float64) -> dict[str, Any]:
    """The same training with PyTorch alone."""
    model = TrainableTiny(Shape.of(CONFIG), dtype=dtype)
    optimizer = make(model)
    for step in range(steps):
        ids = batch(step)
        optimizer.zero_grad()
        cross_entropy(model(ids[:, :-1]), ids[:, 1:]).backward()
        optimizer.step()
    return {"state": {name: value.detach().numpy() for name, value in model.named_parameters()}}


@pytest.fixture(scope="module")
def single() -> dict[str, Any]:
    return plain(20, lambda model: torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.01))


@pytest.fixture(scope="module")
def few() -> dict[str, Any]:
    return run(Ddp(), 1, 4)[0]


@pytest.mark.parametrize("n", [2, 4])
def test_twenty_steps_equal_a_single_process(n: int, single: dict[str, Any]) -> None:
    got = run("vescale-fsdp", n, 20)
    assert distance(got[0], single) < 1e-10
    assert all(distance(got[0], other) == 0 for other in got)


@pytest.mark.parametrize("technique", ALL)
def test_every_technique_trains_as_a_single_process(technique: str, few: dict[str, Any]) -> None:
    assert distance(run(technique, 2, 4)[0], few) < 1e-12


def test_in_single_precision_they_are_as_close_as_rounding_lets_them(single: dict[str, Any]) -> None:
    one = plain(20, lambda model: torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.01), torch.float32)
    assert distance(run("vescale-fsdp", 2, 20, dtype=torch.float32)[0], one) < 1e-3 * distance(one, single) + 1e-5


@pytest.mark.parametrize("technique", THREE)
def test_a_mixture_of_experts_trains_too(technique: str) -> None:
    one = run(Ddp(), 1, 3, config=MOE)[0]
    assert distance(run(technique, 2, 3, config=MOE)[0], one) < 1e-12


def test_one_rank_is_ordinary_training(single: dict[str, Any]) -> None:
    for technique in ("vescale-fsdp", "fsdp2-rowwise", "ddp"):
        (got,) = run(technique, 1, 20 if technique == "vescale-fsdp" else 4)
        assert technique != "vescale-fsdp" or distance(got, single) < 1e-12
        assert got["sent"] == 0


# What is copied, sent and kept


@pytest.mark.parametrize("technique", ALL)
def test_views_copy_nothing_and_the_others_every_byte(technique: str) -> None:
    got = run(technique, 2, 2)[0]
    weights = 2 * 8 * sum(value.size for value in got["state"].values())
    shards = 2 * 8 * sum(b.shard for b in got["buckets"])
    resident = 2 * 8 * 16  # The last norm is gathered once per step.
    # FSDP1 copies gradients. FSDP2 and ZeRO-3 also join shards and copy weights out, in both passes but for the last group and the norm.
    last = 2 * 8 * 32 * 16
    twice = 2 * (weights + shards) - (last + resident) - (last + resident) // 2
    expected = {"fsdp1-flat": weights, "fsdp2-rowwise": weights + twice, "zero3-elementwise": weights + twice}
    assert got["copied"] == expected.get(technique, 0)
    # By address: gathered weights lie in the communication buffer unless they were copied out.
    assert got["inside"] == (technique not in ("fsdp2-rowwise", "zero3-elementwise"))


@pytest.mark.parametrize("technique", ALL)
def test_bytes_are_counted_as_the_communicator_counts_them(technique: str) -> None:
    def total(ranks: Any, made: Sharding) -> tuple[int, int]:
        with ranks.phase("training"):
            got = trained(ranks, made, 1, after=lambda sharded: sharded.wires.bytes)
        return int(got["after"]), int(got["sent"])

    result = comm.run(total, sharding.make(technique), ranks=2, backend="threads")
    for (counted, _), counters in zip(result.values, result.counters):
        # The state dict at the end gathers through the wires too.
        assert counted == counters["training"].bytes


@pytest.mark.parametrize(
    ("technique", "optim"), [*((name, "adamw") for name in ALL), ("vescale-fsdp", "adam8bit"), ("fsdp1-flat", "adam8bit")]
)
def test_the_modelled_peak_of_memory_is_the_measured_one(technique: str, optim: str) -> None:
    def groups(made: Any) -> tuple[list[Group], Group, int]:
        layouts = [Group(1, tuple(s.bucket for s in g.shards)) for g in made.groups]
        state = {id(t.untyped_storage()): t.untyped_storage().nbytes() for t in _optimizer_state(made.optimizer)}
        return layouts[:-1], layouts[-1], sum(state.values())

    made = sharding.make(technique)
    got = run(made, 2, 2, optim=optim, blocks=[4, 0], after=groups)[0]
    layouts, resident, state = got["after"]
    shards = 2 * 8 * sum(b.shard for group in (*layouts, resident) for b in group.buckets)
    assert got["peak"] == shards + state + peak_buffers(made, layouts, 8, resident=resident)  # type: ignore[arg-type]


def _optimizer_state(optimizer: Any) -> list[torch.Tensor]:
    if isinstance(optimizer, torch.optim.Optimizer):
        return [value for state in optimizer.state.values() for value in state.values()]
    return list(optimizer.states())


def test_sharding_divides_the_state_by_the_ranks() -> None:
    whole = run("ddp", 4, 1)[0]["peak"]
    assert all(run(name, 4, 1)[0]["peak"] < 0.8 * whole for name in SHARDED)


# Ablations: every part can be switched off, and the results stay


@pytest.mark.parametrize(
    "change", [{"order": "given"}, {"buffer": "per-parameter"}, {"prefetch": False}, {"merge": 0.0}, {"divide": False}]
)
def test_without_a_part_training_is_the_same(change: dict[str, Any], few: dict[str, Any]) -> None:
    made = VeScaleFsdp(**change)
    got = run(made, 2, 4, blocks=[4, 0])[0]
    assert distance(got, few) < 1e-12
    cut = sum(b.cut_blocks() for b in got["buckets"])
    assert (cut > 0) == (change == {"order": "given"})
    assert (got["copied"] > 0) == (change == {"buffer": "per-parameter"})


def test_a_layout_by_hand_reduces_to_the_flat_one() -> None:
    """With granularity 1 and the given order, veScale's buffer is FSDP1's."""
    weights = ragged.weights_of({"a": (5, 4), "b": (3,), "c": (2, 2)})
    mine = VeScaleFsdp(order="given").buckets(weights, 3, 1)
    assert mine == sharding.make("fsdp1-flat").buckets(weights, 3, 1)  # type: ignore[attr-defined]
    assert isinstance(mine[0], Flat)
    assert [mine[0].piece(0, rank) for rank in range(3)] == [(0, 0, 9), (0, 9, 18), (0, 18, 20)]


# Optimizers


@pytest.mark.parametrize(("technique", "blocks"), [*((name, [4, 6]) for name in ALL), ("vescale-fsdp", "whole")])
def test_eight_bit_moments_are_those_of_a_single_process(technique: str, blocks: Any) -> None:
    """Ranks that see equal batches have equal gradients to the bit, and so must have equal bytes, cut or not."""

    def moments(made: Any) -> dict[str, Any]:
        held = {weight.name: piece for weight, piece, _, _ in made.shares()}
        return {name: (held[name], [x.numpy() for x in both]) for name, both in made.optimizer.moments().items()}

    how = {"steps": 2, "optim": "adam8bit", "blocks": blocks, "dtype": torch.float32, "same": True, "after": moments}
    (one,) = run("ddp", 1, **how)
    for n in (2, 4) if technique == "vescale-fsdp" else (4,):
        found: dict[str, int] = {}
        for got in run(technique, n, **how):
            for name, (piece, both) in got["after"].items():
                for mine, whole in zip(both, one["after"][name][1]):
                    np.testing.assert_array_equal(mine, whole.reshape(-1)[piece.start : piece.stop], err_msg=name)
                found[name] = found.get(name, 0) + piece.size
        assert found.keys() == one["after"].keys()
        assert distance(got, one) == 0


def test_eight_bit_adam_is_close_to_adam_and_takes_a_quarter_of_the_moments() -> None:
    def state(made: Any) -> int:
        return sum(tensor.nbytes for tensor in _optimizer_state(made.optimizer))

    how = {"dtype": torch.float32, "blocks": [4, 0], "after": state}
    exact, rough = run("vescale-fsdp", 2, 8, **how), run("vescale-fsdp", 2, 8, optim="adam8bit", **how)
    assert rough[0]["after"] < 0.32 * exact[0]["after"]
    assert abs(np.mean(exact[0]["losses"][-3:]) - np.mean(rough[0]["losses"][-3:])) < 0.1
    assert exact[0]["losses"][-1] < exact[0]["losses"][0]


@pytest.mark.parametrize("technique", THREE)
def test_muon_on_four_ranks_equals_a_single_process(technique: str) -> None:
    def with_muon(ranks: Any, made: Sharding) -> dict[str, Any]:
        model = TrainableTiny(Shape.of(CONFIG), dtype=torch.float64)
        sharded = shard(model, ranks, sharding=made, optim="muon", lr=1e-2)
        sharded.optimizer.dtype = torch.float64
        each = 4 // ranks.size
        for step in range(4):
            ids = batch(step)[ranks.rank * each : (ranks.rank + 1) * each]
            cross_entropy(sharded(ids[:, :-1]), ids[:, 1:]).backward()
            sharded.step()
        return {"state": {name: value.numpy() for name, value in sharded.state_dict().items()}}

    made = sharding.make(technique)
    (one,) = comm.run(with_muon, Ddp(), ranks=1, backend="one").values
    assert distance(comm.run(with_muon, made, ranks=4, backend="threads").values[0], one) < 1e-10


def test_muon_in_bfloat16_equals_pytorchs() -> None:
    def with_muon(ranks: Any) -> dict[str, Any]:
        model = nn.Sequential(nn.Linear(12, 20, bias=False), nn.Linear(20, 6, bias=False))
        _fill(model)
        sharded = shard(model, ranks, optim="muon", lr=1e-2, units=["0", "1"])
        for step in range(3):
            _loss(sharded, step).backward()
            sharded.step()
        return {"state": {name: value.numpy() for name, value in sharded.state_dict().items()}}

    model = nn.Sequential(nn.Linear(12, 20, bias=False), nn.Linear(20, 6, bias=False))
    _fill(model)
    peer = torch.optim.Muon(model.parameters(), lr=1e-2, adjust_lr_fn="match_rms_adamw")
    for step in range(3):
        peer.zero_grad()
        _loss(model, step).backward()
        peer.step()
    expected = {"state": {name: value.detach().numpy() for name, value in model.named_parameters()}}
    for n in (1, 2, 4):
        assert distance(comm.run(with_muon, ranks=n, backend="threads").values[0], expected) == 0


def _fill(model: nn.Module) -> None:
    rng = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(torch.randn(weight.shape, generator=rng))


def _loss(model: Any, step: int) -> torch.Tensor:
    x = torch.randn(8, 12, generator=torch.Generator().manual_seed(step))
    return model(x).square().mean()


def test_roots_are_where_a_matrix_lies_or_where_little_is_to_do() -> None:
    made = [ragged.Weight(str(i), (size, size)) for i, size in enumerate((8, 8, 4, 2))]
    assert roots(made, [[0, 64], [64, 0], [16, 0], [2, 2]], 2) == [1, 0, 0, 1]
    assert roots(made, [[32, 32], [32, 32], [8, 8], [2, 2]], 2) == [0, 1, 0, 1]
    assert newton_schulz_flops((2, 3), steps=1) == 4 * 4 * 3 + 2 * 8


@pytest.mark.parametrize("n", [2, 4])
def test_shampoo_in_blocks_needs_no_exchange(n: int) -> None:
    how = {"steps": 3, "optim": "shampoo", "blocks": [4, 8]}
    (one,) = run("ddp", 1, **how)
    got = run("vescale-fsdp", n, **how)
    assert distance(got[0], one) < 1e-10
    assert got[0]["sent"] == run("vescale-fsdp", n, 3, blocks=[4, 8])[0]["sent"]
    with pytest.raises(comm.RankFailed, match="cut blocks; expected none"):
        run("fsdp1-flat", n, **how)


def test_shampoo_of_one_block_by_hand() -> None:
    def step(ranks: Any) -> np.ndarray:
        model = nn.Linear(2, 2, bias=False).double()
        nn.init.zeros_(model.weight)
        sharded = shard(model, ranks, optim="shampoo", lr=1.0, blocks="whole", units=[], eps=0.0)
        (sharded(torch.eye(2, dtype=torch.float64)) * torch.tensor([[4.0, 0.0], [0.0, 9.0]])).sum().backward()
        sharded.step()
        return sharded.state_dict()["weight"].numpy()

    # L = R = diag(16, 81), so that L^(−1/4) G R^(−1/4) is the identity.
    for got in comm.run(step, ranks=2, backend="threads").values:
        np.testing.assert_allclose(got, -np.eye(2), atol=1e-12)


# Modules of other shapes


class Odd(nn.Module):
    """Units that run in another order than they were defined in, one of them twice, with shared, frozen and unused weights."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(6, 6) for _ in range(4))
        self.tail = nn.Linear(6, 6)
        self.tail.weight = self.layers[1].weight
        self.unused = nn.Parameter(torch.ones(3))
        self.layers[3].bias.requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for i in (2, 0, 3, 0, 1):
            x = torch.tanh(self.layers[i](x))
        return self.tail(x)


def odd(ranks: Any, made: Sharding) -> dict[str, Any]:
    model = Odd().double()
    _fill(model)
    sharded = shard(model, ranks, sharding=made, optim="none", units=[f"layers.{i}" for i in range(4)] + ["tail"])
    optimizer = torch.optim.SGD(list(sharded.parameters()), lr=0.1, momentum=0.9)
    each = 4 // ranks.size
    for step in range(3):
        x = torch.randn(4, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(step))
        sharded(x[ranks.rank * each : (ranks.rank + 1) * each]).square().mean().backward()
        optimizer.step()
        with torch.no_grad():
            sharded(x)
    return {"state": {name: value.numpy() for name, value in sharded.state_dict().items()}}


@pytest.mark.parametrize("technique", ALL)
def test_units_may_run_in_any_order_twice_and_share_weights(technique: str) -> None:
    model = Odd().double()
    _fill(model)
    peer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(3):
        peer.zero_grad()
        model(torch.randn(4, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(step))).square().mean().backward()
        peer.step()
    expected = {"state": {name: value.detach().numpy() for name, value in model.named_parameters()}}
    got = comm.run(odd, sharding.make(technique), ranks=2, backend="threads").values
    assert distance(got[0], expected) < 1e-12


class Either(nn.Module):
    """Uses one of two units."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4, bias=False) for _ in range(2))
        self.scale = nn.Parameter(torch.ones(4))

    def forward(self, x: torch.Tensor, which: int) -> torch.Tensor:
        return self.layers[which](x) * self.scale


@pytest.mark.parametrize("technique", THREE)
def test_units_that_take_no_part_have_no_gradient_and_weights_are_never_old(technique: str) -> None:
    def program(ranks: Any) -> list[float]:
        model = Either()
        _fill(model)
        made = VeScaleFsdp(merge=0.0) if technique == "vescale-fsdp" else sharding.make(technique)
        sharded = shard(model, ranks, sharding=made, optim="none", align=1)  # type: ignore[arg-type]
        x = torch.ones(1, 4)
        sharded(x, 1).sum().backward()
        sharded(x, 0).sum().backward()
        unused = sum(float(g.abs().sum()) for weight, _, _, g in sharded.shares() if weight.name == "layers.1.weight")
        sharded(x, 1)  # No backward pass follows, so that the last unit stays gathered.
        for weight in sharded.parameters():
            weight.data.zero_()
        return [unused, sharded(x, 1).abs().sum().item()]

    assert comm.run(program, ranks=2, backend="threads").values == [[0.0, 0.0]] * 2


def test_a_small_parameter_lives_on_one_rank_and_the_others_still_step() -> None:
    def sizes(ranks: Any) -> list[int]:
        model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 2))
        sharded = shard(model, ranks, blocks="whole", align=1)
        sharded(torch.ones(1, 8)).sum().backward()
        sharded.step()
        return [piece.size for weight, piece, _, _ in sharded.shares() if weight.name == "1.weight"]

    found = [sum(each) for each in comm.run(sizes, ranks=4, backend="threads").values]
    assert sorted(found) == [0, 0, 0, 16]


def test_a_plan_can_be_given() -> None:
    def train(ranks: Any) -> dict[str, Any]:
        model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 2))
        _fill(model)
        shapes = {name: tuple(weight.shape) for name, weight in model.named_parameters()}
        plan = ragged.Plan.from_json(ragged.plan(shapes, ranks.size, [2, 0], align=1).to_json())
        sharded = shard(model, ranks, plan)
        sharded(torch.ones(1, 8)).sum().backward()
        before = sharded.clip(0.5)
        norm = sum(float(p.grad.square().sum()) for p in sharded.parameters())
        for wrong, says in (
            (ragged.plan(shapes, ranks.size + 1), "expected 2"),
            ([plan] * 3, "found 3 plans"),
            (ragged.plan({"a": (2,)}, 2), "other"),
        ):
            with pytest.raises(InputError, match=says):
                shard(model, ranks, wrong)
        return {"norm": norm, "before": before, "cut": sum(b.cut_blocks() for b in sharded.buckets())}

    got = comm.run(train, ranks=2, backend="threads").values
    assert sum(each["norm"] for each in got) == pytest.approx(0.25, rel=1e-5)
    assert got[0]["before"] == got[1]["before"] > 0.5
    assert got[0]["cut"] == 0


def test_weights_can_be_gathered_in_bfloat16() -> None:
    exact = run("vescale-fsdp", 2, 6, dtype=torch.float32)
    for technique in ("vescale-fsdp", "fsdp2-rowwise"):
        rough = run(technique, 2, 6, dtype=torch.float32, options={"dtype": torch.bfloat16})
        assert abs(rough[0]["losses"][-1] - exact[0]["losses"][-1]) < 0.1
        assert rough[0]["sent"] < 0.6 * exact[0]["sent"]
        assert rough[0]["state"]["model.norm.weight"].dtype == np.float32


def test_weights_are_loaded_and_exported(tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.torch")

    def there_and_back(ranks: Any) -> bool:
        one, other = (
            shard(TrainableTiny(Shape.of(CONFIG), seed=seed), ranks, sharding=made)
            for seed, made in ((0, VeScaleFsdp()), (1, sharding.make("fsdp2-rowwise")))
        )
        state = one.state_dict()
        other.load_state_dict(state)
        one.export(tmp_path / "model.safetensors")
        with pytest.raises(InputError, match="expected a tensor of shape"):
            other.load_state_dict({})
        return all(torch.equal(value, other.state_dict()[name]) for name, value in state.items())

    assert all(comm.run(there_and_back, ranks=2, backend="threads").values)
    expected = dict(TrainableTiny(Shape.of(CONFIG), seed=0).named_parameters())
    written = safetensors.load_file(tmp_path / "model.safetensors")
    assert written.keys() == expected.keys()
    assert all(torch.equal(written[name], value) for name, value in expected.items())


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"optim": "sgd"}, 'optimizer "sgd"'),
        ({"units": ["2"]}, 'module "2"'),
        ({"blocks": [{"pattern": "*", "block": "row"}, {"pattern": "0*", "block": 1}]}, "matches two rules"),
    ],
)
def test_bad_choices_are_one_line(change: dict[str, Any], says: str) -> None:
    def attempt(ranks: Any) -> None:
        shard(nn.Sequential(nn.Linear(4, 4)), ranks, **change)

    with pytest.raises(comm.RankFailed, match=says):
        comm.run(attempt, ranks=1, backend="one")


def test_weights_that_are_not_contiguous_are_refused_and_steps_need_an_optimizer() -> None:
    def attempt(ranks: Any) -> None:
        model = nn.Linear(3, 4)
        with pytest.raises(InputError, match="found no optimizer"):
            shard(model, ranks, optim="none").step()
        turned = nn.Linear(3, 4)
        turned.weight = nn.Parameter(torch.zeros(3, 4).T)
        with pytest.raises(InputError, match='"weight": found a tensor whose elements are not contiguous'):
            shard(turned, ranks)

    comm.run(attempt, ranks=1, backend="one")
