"""A real model over ranks gives the logits of the unsharded model, before a loss and after it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from armillary.errors import InputError

torch = pytest.importorskip("torch")

from armillary.llm import Tiny  # noqa: E402
from armillary.serving.resilience import DATA_PARALLEL, serve_through_loss, tiny_layout  # noqa: E402

CONFIG = {
    "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 8, "num_key_value_heads": 4,
    "intermediate_size": 172, "vocab_size": 132, "rms_norm_eps": 1e-5, "tie_word_embeddings": False,
}  # fmt: skip


@pytest.fixture(autouse=True)
def _one_thread_per_rank() -> Iterator[None]:
    """Uses one thread, because such small products gain nothing from more and ranks that are threads would wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


PROMPTS = [[1, 2, 3, 4, 5, 6, 7, 8, 9], [7, 7, 7], [5, 100, 131, 0, 17, 18]]


def in_one_piece(model: Tiny, prompt: list[int], steps: int) -> list[torch.Tensor]:
    tokens, out = list(prompt), []
    for _ in range(steps):
        out.append(model.logits(tokens)[-1])
        tokens.append(int(out[-1].argmax()))
    return out


@pytest.mark.parametrize("dead", [0, 1, 2])
def test_logits_are_those_of_the_model_in_one_piece(dead: int) -> None:
    model = Tiny.make(CONFIG, seed=3)
    found = serve_through_loss(model, PROMPTS, gpus=3, dead=dead)
    for prompt, logits in zip(PROMPTS, found.logits, strict=True):
        assert torch.stack(in_one_piece(model, prompt, 6)).sub(logits).abs().max() < 1e-5
    old, new = found.layouts
    assert (old.heads[0] == DATA_PARALLEL).sum() == 1
    assert new.gpus == 2
    # 9 + 3 - 1, 3 + 3 - 1 and 6 + 3 - 1 tokens are cached, of which 8, 4 and 8 are in full blocks; the rest is computed again.
    assert found.recomputed_tokens == 3 + 1 + 0
    # Restored are one lost head in three layers for each of three requests, and the data-parallel head of the one request there.
    assert found.restored == 3 * 3 + 3


def test_without_a_mirror_everything_is_computed_again() -> None:
    model = Tiny.make({**CONFIG, "model_type": "qwen2", "tie_word_embeddings": True}, seed=4)
    for name, value in model.weights.items():
        if name.endswith("bias"):
            value += torch.linspace(-1, 1, len(value))
    found = serve_through_loss(model, PROMPTS, gpus=3, dead=1, mirror=False)
    assert (found.restored, found.recomputed_tokens) == (0, 11 + 5 + 8)
    for prompt, logits in zip(PROMPTS, found.logits, strict=True):
        assert torch.stack(in_one_piece(model, prompt, 6)).sub(logits).abs().max() < 1e-5


def test_virtual_ranks_say_the_same() -> None:
    model = Tiny.make(CONFIG, seed=3)
    threads, virtual = (serve_through_loss(model, PROMPTS[:1], gpus=4, dead=2, backend=b) for b in ("threads", "virtual"))
    assert torch.equal(threads.logits[0], virtual.logits[0])
    assert not (threads.layouts[0].heads == DATA_PARALLEL).any()  # four heads on four ranks
    assert torch.stack(in_one_piece(model, PROMPTS[0], 6)).sub(threads.logits[0]).abs().max() < 1e-5


def test_ranks_hold_their_shards_only() -> None:
    from armillary.serving.resilience.execution.sharded import shard

    model = Tiny.make(CONFIG, seed=3)
    layout = tiny_layout(model, 3)
    each = [sum(w.numel() for w in shard(model, layout, d).values() if w.dtype != torch.int64) for d in range(3)]
    whole = sum(w.numel() for w in model.weights.values())
    head = 3 * (2 * 2 + 2) * 8 * 64  # the data-parallel head's weights, over three layers
    norms = 7 * 64
    assert sum(each) == whole + 2 * (head + norms)
    assert max(each) < 0.45 * whole


def test_what_cannot_be_sharded() -> None:
    model = Tiny.make(CONFIG, seed=3)
    for said, what, prompts, how in (
        ("gpus", model, PROMPTS, {"gpus": 1}), ("dead", model, PROMPTS, {"gpus": 3, "dead": 3}), ("prompts", model, [[]], {}),
        ("experts", Tiny.make("tiny-moe"), PROMPTS, {"gpus": 2, "dead": 0}),
    ):  # fmt: skip
        with pytest.raises(InputError, match=said):
            serve_through_loss(what, prompts, **how)
