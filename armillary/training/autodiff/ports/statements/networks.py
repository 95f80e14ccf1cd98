"""Layers of neural networks, statement by statement."""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"
from __future__ import annotations

import jax.numpy as jnp
from jax.lax import dynamic_slice, fori_loop


def relu(x):
    return jnp.maximum(x, 0.0)


def softmax(x):
    greatest = jnp.max(x, axis=-1, keepdims=True)
    powers = jnp.exp(x - greatest)
    return powers / jnp.sum(powers, axis=-1, keepdims=True)


def mlp(input, w1, b1, w2, b2, w3, b3):
    x = relu(input @ w1 + b1)
    x = relu(x @ w2 + b2)
    return softmax(x @ w3 + b3)


def conv2d(input, weights):
    K = weights.shape[0]
    N, _, _, C_in = input.shape
    H_out = input.shape[1] - K + 1
    W_out = input.shape[2] - K + 1
    output = jnp.zeros((N, H_out, W_out, weights.shape[3]), dtype=input.dtype)

    def point(j, state):
        output, i = state
        patch = dynamic_slice(input, (0, i, j, 0), (N, K, K, C_in))
        return output.at[:, i, j, :].set(jnp.sum(patch[:, :, :, :, jnp.newaxis] * weights[jnp.newaxis, :, :, :], axis=(1, 2, 3))), i

    return fori_loop(0, H_out, lambda i, output: fori_loop(0, W_out, point, (output, i))[0], output)


def conv2d_bias(input, weights, bias):
    return conv2d(input, weights) + bias


def maxpool2d(x):
    N, H, W, C = x.shape
    output = jnp.zeros((N, H // 2, W // 2, C), dtype=x.dtype)

    def point(j, state):
        output, i = state
        patch = dynamic_slice(x, (0, 2 * i, 2 * j, 0), (N, 2, 2, C))
        return output.at[:, i, j, :].set(jnp.max(patch, axis=(1, 2))), i

    return fori_loop(0, H // 2, lambda i, output: fori_loop(0, W // 2, point, (output, i))[0], output)


def lenet5(input, conv1, conv1bias, conv2, conv2bias, fc1w, fc1b, fc2w, fc2b, fc3w, fc3b, N, C_before_fc1):
    x = maxpool2d(relu(conv2d(input, conv1) + conv1bias))
    x = maxpool2d(relu(conv2d(x, conv2) + conv2bias))
    x = jnp.reshape(x, (N, C_before_fc1))
    x = relu(x @ fc1w + fc1b)
    x = relu(x @ fc2w + fc2b)
    return x @ fc3w + fc3b
