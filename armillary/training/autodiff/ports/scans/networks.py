"""Layers of neural networks by XLA's own operations."""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"
from __future__ import annotations

import jax.numpy as jnp
from jax.lax import conv_general_dilated

from ..statements.networks import mlp, relu, softmax

__all__ = ["conv2d_bias", "lenet5", "mlp", "softmax"]


def conv2d(input, weights):
    return conv_general_dilated(input, weights, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def conv2d_bias(input, weights, bias):
    return conv2d(input, weights) + bias


def maxpool2d(x):
    N, H, W, C = x.shape
    return jnp.max(x[:, : H // 2 * 2, : W // 2 * 2].reshape(N, H // 2, 2, W // 2, 2, C), axis=(2, 4))


def lenet5(input, conv1, conv1bias, conv2, conv2bias, fc1w, fc1b, fc2w, fc2b, fc3w, fc3b, N, C_before_fc1):
    x = maxpool2d(relu(conv2d(input, conv1) + conv1bias))
    x = maxpool2d(relu(conv2d(x, conv2) + conv2bias))
    x = jnp.reshape(x, (N, C_before_fc1))
    x = relu(x @ fc1w + fc1b)
    x = relu(x @ fc2w + fc2b)
    return x @ fc3w + fc3b
