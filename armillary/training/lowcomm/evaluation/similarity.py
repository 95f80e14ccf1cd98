"""How far a model is from another one: linear centred kernel alignment of what their last layers hold.

With centred features X [n, p] and Y [n, q] of the same n tokens, CKA = ‖XᵀY‖² / (‖XᵀX‖ ‖YᵀY‖) in Frobenius norms: 1 where one is a rotation
and a scaling of the other.

Similarity of Neural Network Representations Revisited, arXiv 1905.00414 (ICML 2019).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from armillary.llm import TrainableTiny

from .loss import ROWS

Features = npt.NDArray[np.float64]


def features(model: TrainableTiny, inputs: Tensor) -> Features:
    """What the last layer holds for every token of inputs [rows, context], after the last norm: [rows × context, width]."""
    *body, _ = model.pieces()
    found = []
    with torch.no_grad():
        for at in range(0, len(inputs), ROWS):
            x = inputs[at : at + ROWS]
            for piece in body:
                x = piece(x)
            found.append(model.model.norm(x).flatten(0, 1).double().cpu().numpy())
    return np.concatenate(found)


def linear_cka(x: Features, y: Features) -> float:
    """The alignment of two sets of features of the same tokens, from 0 to 1."""
    x, y = x - x.mean(0), y - y.mean(0)
    below = float(np.linalg.norm(x.T @ x) * np.linalg.norm(y.T @ y))
    return float(np.linalg.norm(x.T @ y) ** 2) / below if below else 0.0
