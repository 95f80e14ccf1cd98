"""Exact match on held-out questions: the model continues a prompt greedily, and only the whole answer counts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from armillary.llm import TrainableTiny

#: Prompts that are continued at once.
PROMPTS = 256


def exact_match(model: TrainableTiny, prompts: Sequence[npt.NDArray[np.int16]], answers: Sequence[npt.NDArray[np.int16]]) -> float:
    """The share of prompts after which the model's likeliest tokens, one by one, are the answer with its end."""
    right = 0
    for at in range(0, len(prompts), PROMPTS):
        right += int(_matched(model, prompts[at : at + PROMPTS], answers[at : at + PROMPTS]).sum())
    return right / max(1, len(prompts))


def _matched(model: TrainableTiny, prompts: Sequence[npt.NDArray[np.int16]], answers: Sequence[npt.NDArray[np.int16]]) -> torch.Tensor:
    """Which prompts are answered.

    A row whose next token is wrong cannot match any more, and one that is still right continues with the answer's own token, so that
    one pass over prompt and answer together says what token-by-token generation would.
    """
    device = next(model.parameters()).device
    longest = max(p.size + a.size for p, a in zip(prompts, answers))
    rows = torch.zeros((len(prompts), longest), dtype=torch.long)
    asked = torch.zeros((len(prompts), longest), dtype=torch.bool)
    for i, (prompt, answer) in enumerate(zip(prompts, answers)):
        both = torch.from_numpy(np.concatenate([prompt, answer]).astype(np.int64))
        rows[i, : both.numel()] = both
        asked[i, prompt.size : both.numel()] = True
    with torch.no_grad():
        likeliest = model(rows[:, :-1].to(device)).argmax(-1).cpu()
    return ((likeliest == rows[:, 1:]) | ~asked[:, 1:]).all(1)
