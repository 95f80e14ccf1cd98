"""The mechanism on its own, in a user's training loop: what it must equal in the limits, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary import comm
from armillary.errors import InputError
from armillary.training.lowcomm import DiLoCo, StreamingDiLoCo, outer_step
from armillary.training.lowcomm.diloco import Diagnosis
from armillary.training.lowcomm.exchange.e3m0 import BLOCK, LEVELS, decoded, encoded, encoded_bytes
from armillary.training.lowcomm.exchange.mean import mean_over, payload_bytes
from armillary.training.lowcomm.streaming_diloco import fragments_of


def net(seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3)).to(dtype)


def batch(step: int, worker: int, dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
    rng = torch.Generator().manual_seed(1000 * step + worker)
    return torch.randn(4, 5, generator=rng).to(dtype), torch.randn(4, 3, generator=rng).to(dtype)


def loss_of(model: torch.nn.Module, step: int, worker: int) -> torch.Tensor:
    x, y = batch(step, worker, next(model.parameters()).dtype)
    return (model(x) - y).square().mean()


def flat(model: torch.nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


Make = Callable[[torch.nn.Module, torch.optim.Optimizer, Any], DiLoCo]


def workers(make: Make, *, k: int = 3, steps: int = 7, optimizer: str = "sgd", dtype: torch.dtype = torch.float32) -> list[dict[str, Any]]:
    """Train `k` workers with rounds, and return what each of them ends with."""

    def program(ranks: Any) -> dict[str, Any]:
        model = net(seed=ranks.rank, dtype=dtype)
        inner: Any = torch.optim.SGD(model.parameters(), lr=0.1) if optimizer == "sgd" else torch.optim.AdamW(model.parameters(), lr=0.01)
        rounds = make(model, inner, ranks)
        for step in range(steps):
            inner.zero_grad()
            loss = loss_of(model, step, ranks.rank)
            loss.backward()
            inner.step()
            rounds.step(loss)
        rounds.finish()
        return {"weights": flat(model), "theta": rounds.theta, "rounds": rounds.round, "state": inner.state_dict()}

    found: list[dict[str, Any]] = comm.run(program, ranks=k, backend="virtual").values
    return found


def data_parallel(k: int = 3, steps: int = 7, dtype: torch.dtype = torch.float64, lr: float = 0.1) -> torch.Tensor:
    """Plain SGD on the mean of the workers' gradients, without any of the arena's code."""
    model = net(seed=0, dtype=dtype)
    for step in range(steps):
        model.zero_grad()
        for worker in range(k):
            (loss_of(model, step, worker) / k).backward()
        with torch.no_grad():
            for p in model.parameters():
                assert p.grad is not None
                p -= lr * p.grad
    return flat(model)


# What it must equal


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rounds_of_one_step_that_average_plain_sgd_are_data_parallelism(dtype: torch.dtype) -> None:
    for how in ({"outer": "average"}, {"outer": "nesterov", "lr": 1.0, "momentum": 0.0}):
        found = workers(lambda m, o, g, how=how: DiLoCo(m, o, every=1, group=g, **how), dtype=dtype)  # type: ignore[misc]
        for one in found:
            assert torch.allclose(one["weights"], data_parallel(dtype=dtype), rtol=0, atol=1e-6 if dtype == torch.float32 else 1e-14)


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
@pytest.mark.parametrize("every", [1, 3, 100])
def test_one_worker_that_averages_with_itself_trains_as_if_alone(optimizer: str, every: int) -> None:
    """Bit for bit, also by the path of the outer optimizer, and inside torch without any group."""
    (averaged,) = workers(lambda m, o, g: DiLoCo(m, o, "average", every, g), k=1, optimizer=optimizer)
    (stepped,) = workers(lambda m, o, g: DiLoCo(m, o, "nesterov", every, g, lr=1.0, momentum=0.0), k=1, optimizer=optimizer)
    (grouped,) = workers(lambda m, o, g: DiLoCo(m, o, "average", every), k=1, optimizer=optimizer)
    model = net()
    plain: Any = torch.optim.SGD(model.parameters(), lr=0.1) if optimizer == "sgd" else torch.optim.AdamW(model.parameters(), lr=0.01)
    for step in range(7):
        plain.zero_grad()
        loss_of(model, step, 0).backward()
        plain.step()
    for one in (averaged, stepped, grouped):
        assert torch.equal(one["weights"], flat(model))


@settings(max_examples=30, deadline=None)
@given(lr=st.floats(0.01, 2.0), momentum=st.floats(0.0, 0.99), nesterov=st.booleans(), rounds=st.integers(1, 5), seed=st.integers(0, 1000))
def test_the_outer_step_is_that_of_torch_bit_for_bit(lr: float, momentum: float, nesterov: bool, rounds: int, seed: int) -> None:
    rng = torch.Generator().manual_seed(seed)
    theta, velocity = torch.randn(17, generator=rng), torch.zeros(17)
    peer = torch.nn.Parameter(theta.clone())
    sgd = torch.optim.SGD([peer], lr=lr, momentum=momentum, nesterov=nesterov and momentum > 0)
    for _ in range(rounds):
        delta = torch.randn(17, generator=rng)
        outer_step(theta, delta, velocity, lr, momentum, nesterov=nesterov and momentum > 0)
        peer.grad = delta.clone()
        sgd.step()
        assert torch.equal(theta, peer.detach())


def test_rounds_follow_the_formula_step_by_step() -> None:
    """Two workers, two rounds of three steps and one of one, against the formulas written out."""
    found = workers(lambda m, o, g: DiLoCo(m, o, every=3, group=g), k=2, dtype=torch.float64)
    theta, v = flat(net(dtype=torch.float64)), torch.zeros(8 * 5 + 8 + 3 * 8 + 3, dtype=torch.float64)
    for steps in ([0, 1, 2], [3, 4, 5], [6]):
        ends = []
        for worker in range(2):
            model = net(dtype=torch.float64)
            torch.nn.utils.vector_to_parameters(theta.clone(), model.parameters())
            for step in steps:
                model.zero_grad()
                loss_of(model, step, worker).backward()
                with torch.no_grad():
                    for p in model.parameters():
                        p -= 0.1 * p.grad  # type: ignore[operator]
            ends.append(flat(model))
        delta = theta - (ends[0] + ends[1]) / 2
        v = 0.9 * v + delta
        theta = theta - 0.7 * (delta + 0.9 * v)
    for one in found:
        assert one["rounds"] == 3
        assert torch.allclose(one["weights"], theta, rtol=0, atol=1e-14)
        assert torch.equal(one["weights"], one["theta"])


def test_parts_that_are_switched_off_change_the_result() -> None:
    """Momentum, its Nesterov form, and the outer rate each matter."""
    made: list[Make] = [
        lambda m, o, g: DiLoCo(m, o, every=2, group=g),
        lambda m, o, g: DiLoCo(m, o, "momentum", 2, g),
        lambda m, o, g: DiLoCo(m, o, "average", 2, g),
        lambda m, o, g: DiLoCo(m, o, every=2, group=g, momentum=0.0),
        lambda m, o, g: DiLoCo(m, o, every=2, group=g, bits=16),
        lambda m, o, g: DiLoCo(m, o, every=2, group=g, bits=4),
    ]
    ends = [workers(make)[0]["weights"] for make in made]
    for i, one in enumerate(ends):
        for other in ends[:i]:
            assert not torch.equal(one, other)
    assert torch.allclose(ends[0], ends[4], atol=2e-2)


def test_inner_optimizers_keep_their_state_across_rounds() -> None:
    for one in workers(lambda m, o, g: DiLoCo(m, o, every=2, group=g), optimizer="adamw", steps=9):
        assert {int(state["step"]) for state in one["state"]["state"].values()} == {9}


# Streaming


def test_streaming_with_one_fragment_and_nothing_late_is_diloco() -> None:
    for bits in (32, 4):
        whole = workers(lambda m, o, g, b=bits: DiLoCo(m, o, every=3, group=g, bits=b), optimizer="adamw")  # type: ignore[misc]
        single = workers(
            lambda m, o, g, b=bits: StreamingDiLoCo(m, o, 3, g, fragments=1, delay=0, mix=0.0, bits=b), optimizer="adamw"  # type: ignore[misc]
        )  # fmt: skip
        for one, other in zip(whole, single):
            assert torch.equal(one["weights"], other["weights"])


def test_fragments_take_turns_and_each_has_its_round() -> None:
    events: list[tuple[int, int]] = []

    def program(ranks: Any) -> list[int]:
        model = net(seed=ranks.rank)
        rounds = StreamingDiLoCo(model, None, 6, ranks, fragments=2, delay=2, mix=0.25)
        sizes = [sum(piece.stop - piece.start for piece in part) for part in rounds.slices]
        rounds.on_delta = lambda delta: events.append((rounds.steps, delta.numel())) if ranks.rank == 0 else None
        for _ in range(13):
            rounds.step()
        rounds.finish()
        return sizes

    sizes = comm.run(program, ranks=2, backend="virtual").values[0]
    assert sizes == [8 * 5 + 8, 3 * 8 + 3]
    # Rounds of six steps, three steps apart; after step 13 both have trained since and are exchanged once more.
    assert events == [(3, sizes[0]), (6, sizes[1]), (9, sizes[0]), (12, sizes[1]), (13, sizes[0]), (13, sizes[1])]


def test_a_late_fragment_is_mixed_with_the_weights_that_the_worker_has_reached() -> None:
    """By hand: one weight per fragment, an exchange at step 1 of 2 that arrives one step later, and α = 0.25."""

    def program(ranks: Any) -> list[float]:
        model = torch.nn.Linear(1, 1, bias=False)
        with torch.no_grad():
            model.weight.fill_(8.0)
        rounds = StreamingDiLoCo(model, None, 4, ranks, fragments=1, delay=1, mix=0.25, lr=0.5, momentum=0.5)
        rounds.due = [1]
        seen = []
        for step in range(3):
            with torch.no_grad():
                model.weight -= 1.0 + ranks.rank  # worker 0 walks by 1 per step, worker 1 by 2
            rounds.step()
            seen.append(float(model.weight.detach()))
            if step == 1:
                seen.append(float(rounds.theta))
        return seen

    first, second = comm.run(program, ranks=2, backend="virtual").values
    # Δ = 8 − (7 + 6)/2 = 1.5, v = 1.5, θ = 8 − 0.5·(1.5 + 0.5·1.5) = 6.875; at step 2 the workers are at 6 and 4.
    assert first == [7.0, 0.25 * 6.0 + 0.75 * 6.875, 6.875, 0.25 * 6.0 + 0.75 * 6.875 - 1]
    assert second == [6.0, 0.25 * 4.0 + 0.75 * 6.875, 6.875, 0.25 * 4.0 + 0.75 * 6.875 - 2]


def test_layers_are_dealt_out_in_turn() -> None:
    names = ["embed", "layers.0.q", "layers.0.k", "layers.1.q", "layers.2.q", "layers.2.k", "head"]
    assert fragments_of(names, 2) == [[0, 3, 6], [1, 2, 4, 5]]
    assert fragments_of(names, 99) == [[0], [1, 2], [3], [4, 5], [6]]
    for count in range(1, 7):
        assert sorted(i for part in fragments_of(names, count) for i in part) == list(range(7))


# Codes


@settings(max_examples=60, deadline=None)
@given(count=st.integers(0, 3 * BLOCK + 5), seed=st.integers(0, 10**6), spread=st.floats(0.0, 4.0))
def test_four_bits_give_the_nearest_level_of_each_element(count: int, seed: int, spread: float) -> None:
    values = (np.random.default_rng(seed).normal(size=count) * np.exp(spread * np.random.default_rng(seed + 1).normal(size=count))).astype(
        "f4"
    )
    code = encoded(torch.from_numpy(values))
    assert code.numel() == encoded_bytes(count) == payload_bytes(count, 4)
    back = decoded(code, count).numpy()
    for at in range(0, count, BLOCK):
        block = values[at : at + BLOCK].astype(float)
        levels = np.array([sign * level for level in LEVELS for sign in (1, -1)]) * np.abs(block).max()
        nearest = np.abs(block[:, None] - levels[None]).min(1)
        assert np.allclose(np.abs(block - back[at : at + BLOCK]), nearest, rtol=1e-5, atol=1e-6 * max(1e-30, np.abs(block).max()))


@pytest.mark.parametrize(("bits", "width"), [(32, 4), (16, 2), (4, 0.5)])
def test_a_mean_counts_its_payload_once_and_has_the_same_bits_on_all_ranks(bits: Any, width: float) -> None:
    def program(ranks: Any) -> torch.Tensor:
        with ranks.phase("x"):
            return mean_over(ranks, torch.linspace(-1, 1, 512) * (ranks.rank + 1), bits)

    ran = comm.run(program, ranks=3, backend="virtual")
    assert all(torch.equal(one, ran.values[0]) for one in ran.values)
    assert torch.allclose(ran.values[0], 2 * torch.linspace(-1, 1, 512), atol={32: 1e-6, 16: 2e-2, 4: 0.6}[bits])
    assert {counters["x"].bytes for counters in ran.counters} == {int(512 * width) + (8 if bits == 4 else 0)}


def test_the_cosine_is_that_of_all_pairs() -> None:
    vectors = np.random.default_rng(0).normal(size=(4, 9)).astype("f4")

    def program(ranks: Any) -> list[float]:
        seen = Diagnosis(ranks)
        seen(torch.from_numpy(vectors[ranks.rank]))
        return seen.cosines

    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    pairs = [float(unit[i] @ unit[j]) for i in range(4) for j in range(i)]
    assert comm.run(program, ranks=4, backend="virtual").values[0] == [pytest.approx(np.mean(pairs), abs=1e-6)]


# Going on


@pytest.mark.parametrize("cut", [3, 4])
@pytest.mark.parametrize("streaming", [False, True])
def test_a_worker_goes_on_from_its_state_as_if_nothing_had_happened(cut: int, streaming: bool) -> None:
    """At the end of a round (3) and inside one (4)."""

    def program(ranks: Any, first: int, last: int, state: Any) -> dict[str, Any]:
        model = net()
        inner = torch.optim.AdamW(model.parameters(), lr=0.01)
        rounds = StreamingDiLoCo(model, inner, 3, ranks, fragments=2, delay=1) if streaming else DiLoCo(model, inner, every=3, group=ranks)
        if state:
            rounds.load_state_dict(state[ranks.rank])
        for step in range(first, last):
            inner.zero_grad()
            loss_of(model, step, ranks.rank).backward()
            inner.step()
            rounds.step()
        return {**rounds.state_dict(), "weights": flat(model)}

    def ran(*args: Any) -> list[dict[str, Any]]:
        return comm.run(program, *args, ranks=2, backend="virtual").values

    whole, half = ran(0, 8, None), ran(0, cut, None)
    for one, other in zip(whole, ran(cut, 8, half)):
        assert torch.equal(one["weights"], other["weights"])
        assert torch.equal(one["velocity"], other["velocity"])
        assert (one["round"], one["steps"]) == (other["round"], other["steps"])


# What is refused


@pytest.mark.parametrize("how", [{"every": 0}, {"every": True}, {"every": 2.5}, {"bits": 8}, {"outer": "adam"}])
def test_wrong_settings_are_refused_in_one_line(how: dict[str, Any]) -> None:
    with pytest.raises(InputError) as error:
        DiLoCo(net(), None, **how)
    assert "\n" not in str(error.value)


def test_a_model_without_weights_a_wrong_state_and_a_wrong_delay_are_refused() -> None:
    with pytest.raises(InputError, match="without trainable"):
        DiLoCo(torch.nn.ReLU())
    with pytest.raises(InputError, match="expected 75"):
        DiLoCo(net()).load_state_dict(DiLoCo(torch.nn.Linear(2, 2)).state_dict())
    with pytest.raises(InputError, match="delay below 3"):
        StreamingDiLoCo(net(), every=3, delay=3)


@pytest.mark.parametrize("case", ["shape", "name", "missing", "more"])
def test_workers_with_other_parameters_are_told_which_is_the_first(case: str) -> None:
    made = {
        "shape": lambda: torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.Tanh(), torch.nn.Linear(8, 4)),
        "name": lambda: torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.Linear(8, 3)),
        "missing": lambda: torch.nn.Sequential(torch.nn.Linear(5, 8)),
        "more": lambda: torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3), torch.nn.Linear(3, 3)),
    }[case]

    def program(ranks: Any) -> str:
        try:
            DiLoCo(made() if ranks.rank == 1 else net(), every=1, group=ranks)
        except InputError as error:
            return str(error)
        return ""

    said = {"shape": '"2.weight" of shape [3, 8]', "name": '"2.weight"', "missing": '"2.weight"', "more": "4 parameters"}[case]
    for message in comm.run(program, ranks=3, backend="virtual").values:
        assert message.startswith("DiLoCo: worker 1 has other parameters")
        assert said in message


def test_a_loss_that_is_not_a_number_stops_with_step_and_worker() -> None:
    rounds = DiLoCo(net(), every=5)
    rounds.step(torch.tensor(1.0))
    with pytest.raises(InputError, match="the loss is nan at step 2 of worker 0"):
        rounds.step(torch.tensor(float("nan")))


def test_weights_that_are_not_finite_stop_every_worker_and_name_the_one() -> None:
    def program(ranks: Any) -> str:
        model = net()
        rounds = DiLoCo(model, every=2, group=ranks)
        rounds.step()
        if ranks.rank == 1:
            with torch.no_grad():
                next(model.parameters())[0, 0] = torch.inf
        try:
            rounds.step()
        except InputError as error:
            return str(error)
        return ""

    for message in comm.run(program, ranks=3, backend="virtual").values:
        assert "weights of worker 1 are not finite at step 2" in message
