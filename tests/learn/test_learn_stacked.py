"""Many models trained at once are those that a loop over them trains."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from armillary.errors import InputError  # noqa: E402
from armillary.learn import Cnn2, Gru, Mlp, StackedTrainer, squared  # noqa: E402


def batches(n: int, *shape: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    rng = np.random.default_rng(0)
    return [
        (torch.from_numpy(rng.standard_normal((n, 8, *shape)).astype(np.float32)), torch.from_numpy(rng.standard_normal((n, 8, 2)).astype(np.float32)))
        for _ in range(20)
    ]


@pytest.mark.parametrize(("optimiser", "theirs"), [
    ("sgd", lambda p: torch.optim.SGD(p, 0.05, weight_decay=0.01)), ("momentum", lambda p: torch.optim.SGD(p, 0.05, momentum=0.9, weight_decay=0.01)),
    ("adamw", lambda p: torch.optim.AdamW(p, 0.05, weight_decay=0.01)),
])  # fmt: skip
@pytest.mark.parametrize("stacked", [True, False])
def test_twenty_steps_are_those_of_torchs_optimisers(optimiser: str, theirs: object, stacked: bool) -> None:
    trainer = StackedTrainer(lambda i: Mlp(3, (8,), 2, seed=i), 3, squared, optimiser=optimiser, lr=0.05, weight_decay=0.01, stacked=stacked)
    alone = [Mlp(3, (8,), 2, seed=i) for i in range(3)]
    moved = [theirs(one.parameters()) for one in alone]  # type: ignore[operator]
    for x, y in batches(3, 3):
        losses = trainer.step(x, y)
        for i, (one, optimizer) in enumerate(zip(alone, moved)):
            optimizer.zero_grad()
            loss = squared(one(x[i]), y[i])
            loss.backward()
            optimizer.step()
            assert losses[i].item() == pytest.approx(loss.item(), abs=1e-4)
    for ours, one in zip(trainer.modules(), alone):
        assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(ours.parameters(), one.parameters()))


def test_images_are_stacked_and_recurrent_layers_looped() -> None:
    images = StackedTrainer(lambda i: Cnn2(1, (8, 8), 4, 2, seed=i), 2, squared)
    assert images.step(torch.ones(2, 8, 1, 8, 8), torch.zeros(2, 8, 2)).shape == (2,)
    recurrent = StackedTrainer(lambda i: Gru(3, 4, 2, seed=i), 2, squared)
    assert recurrent.step(torch.ones(2, 8, 5, 3), torch.zeros(2, 8, 2)).shape == (2,)


def test_batches_of_another_number_of_models_are_refused() -> None:
    trainer = StackedTrainer(lambda i: Mlp(3, (8,), 2, seed=i), 3, squared)
    with pytest.raises(InputError, match="expected 3"):
        trainer.step(torch.ones(2, 8, 3), torch.ones(2, 8, 2))
    with pytest.raises(InputError, match="expected at least one"):
        StackedTrainer(lambda i: Mlp(3), 0, squared)
