"""Layers of neural networks."""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"
from __future__ import annotations

import numpy as np


def relu(x):
    """What is positive, else zero."""
    return np.maximum(x, 0.0)


def softmax(x):
    """Exponentials along the last axis, divided by their sum."""
    greatest = np.max(x, axis=-1, keepdims=True)
    powers = np.exp(x - greatest)
    return powers / np.sum(powers, axis=-1, keepdims=True)


def mlp(input, w1, b1, w2, b2, w3, b3):
    """Three dense layers."""
    x = relu(input @ w1 + b1)
    x = relu(x @ w2 + b2)
    return softmax(x @ w3 + b3)


def conv2d(input, weights):
    """A convolution without padding; the channels are last."""
    K = weights.shape[0]
    H_out = input.shape[1] - K + 1
    W_out = input.shape[2] - K + 1
    output = np.zeros((input.shape[0], H_out, W_out, weights.shape[3]), dtype=input.dtype)
    for i in range(H_out):
        for j in range(W_out):
            output[:, i, j, :] = np.sum(input[:, i : i + K, j : j + K, :, np.newaxis] * weights[np.newaxis, :, :, :], axis=(1, 2, 3))
    return output


def conv2d_bias(input, weights, bias):
    """A convolution and a bias."""
    return conv2d(input, weights) + bias


def maxpool2d(x):
    """The greatest of every two by two."""
    output = np.zeros((x.shape[0], x.shape[1] // 2, x.shape[2] // 2, x.shape[3]), dtype=x.dtype)
    for i in range(x.shape[1] // 2):
        for j in range(x.shape[2] // 2):
            output[:, i, j, :] = np.max(x[:, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2, :], axis=(1, 2))
    return output


def lenet5(input, conv1, conv1bias, conv2, conv2bias, fc1w, fc1b, fc2w, fc2b, fc3w, fc3b, N, C_before_fc1):
    """LeNet: two convolutions with pooling, and three dense layers."""
    x = maxpool2d(relu(conv2d(input, conv1) + conv1bias))
    x = maxpool2d(relu(conv2d(x, conv2) + conv2bias))
    x = np.reshape(x, (N, C_before_fc1))
    x = relu(x @ fc1w + fc1b)
    x = relu(x @ fc2w + fc2b)
    return x @ fc3w + fc3b
