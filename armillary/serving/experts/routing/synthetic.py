"""Draws routing from token numbers with a given affinity, or with none as the control.

Token numbers follow Zipf's law and belong to latent topics. A topic prefers a group of experts in every layer, and the groups are
scattered over the expert numbers. A token number's k favourite experts in a layer are mostly in its topic's group and get `affinity` of
its choices on average; the rest go anywhere. Requests draw from one or two topics. With `affinity` = k / experts nothing can be predicted.
"""

from __future__ import annotations

import numpy as np

from armillary.errors import InputError

from .trace import RoutingTrace

TOPICS = 16
#: Share of a token number's favourites that lie in its topic's group.
IN_GROUP = 0.8
#: Token numbers that all topics share (function words), by rank.
SHARED = 64


def draw(
    requests: int, *, experts: int, k: int, layers: int, affinity: float, rng: np.random.Generator, vocabulary: int = 32_000,
    prompt: int = 96, output: int = 32, topics: tuple[int, ...] | None = None,
) -> RoutingTrace:  # fmt: skip
    """Draws requests of prompt + output tokens. `affinity` is the mean share of a token's choices on its k favourites, or one per layer.

    topics: the topics that requests may have (all of them by default), to learn on some and be judged on others.
    """
    if vocabulary < TOPICS or not 1 <= k <= experts or min(requests, layers, prompt) < 1 or output < 0:
        raise InputError(f"expected at least {TOPICS} token numbers, k of 1 to {experts}, and a request, a layer and a prompt token")
    topic_of = rng.permutation(vocabulary) % TOPICS
    rank = rng.permutation(vocabulary)
    weight = 1.0 / (1.0 + np.argsort(rank))
    favourites = _favourites(vocabulary, experts, k, layers, topic_of, rng)
    tokens, owner = _tokens(requests, prompt + output, weight, topic_of, np.asarray(topics if topics is not None else range(TOPICS)), rng)
    share = np.broadcast_to(np.asarray(affinity, float), (layers,))
    chosen = np.empty((layers, len(tokens), k), np.int16)
    for layer in range(layers):
        chosen[layer] = _choose(favourites[layer][tokens], experts, k, float(share[layer]), rng)
    position = np.tile(np.arange(prompt + output, dtype=np.int32), requests)
    return RoutingTrace(tokens.astype(np.int32), position, owner.astype(np.int32), chosen, experts, np.full(requests, prompt, np.int32))


def _favourites(vocabulary: int, experts: int, k: int, layers: int, topic_of: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """[layers, vocabulary, k] each token number\'s favourite experts."""
    size = max(k, experts // TOPICS * 2)
    made = np.empty((layers, vocabulary, k), np.int16)
    groups = np.empty((layers, TOPICS, size), np.int64)
    for layer in range(layers):
        shuffled = np.concatenate([rng.permutation(experts) for _ in range(-(-TOPICS * size // experts))])
        groups[layer] = shuffled[: TOPICS * size].reshape(TOPICS, size)
        # There is one key per token and expert; favourites are the k smallest, which are mostly those of the group.
        for start in range(0, vocabulary, 4096):
            part = topic_of[start : start + 4096]
            keys = rng.random((len(part), experts)) + 1.0
            inside = np.zeros((len(part), experts), bool)
            np.put_along_axis(inside, groups[layer][part], True, axis=1)
            keys[inside & (rng.random(keys.shape) < IN_GROUP)] -= 1.0
            made[layer, start : start + len(part)] = np.argpartition(keys, k - 1, axis=1)[:, :k]
    return made


def _tokens(
    requests: int, length: int, weight: np.ndarray, topic_of: np.ndarray, allowed: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Draws the token numbers of each request from its topics or from those shared by all."""
    shared = np.argsort(-weight)[:SHARED]
    common = weight[shared] / weight[shared].sum()
    members = [np.flatnonzero(topic_of == t) for t in range(TOPICS)]
    cumulative = [np.cumsum(weight[m])[:-1] / weight[m].sum() for m in members]
    out = np.empty(requests * length, np.int64)
    for r in range(requests):
        mine = rng.choice(allowed, size=int(rng.integers(1, 3)) if len(allowed) > 1 else 1, replace=False)
        topic = mine[rng.integers(0, len(mine), length)]
        row = np.empty(length, np.int64)
        for t in mine:
            at = np.flatnonzero(topic == t)
            row[at] = members[t][np.searchsorted(cumulative[t], rng.random(len(at)))]
        usual = rng.random(length) < 0.25
        row[usual] = shared[np.searchsorted(np.cumsum(common)[:-1], rng.random(int(usual.sum())))]
        out[r * length : (r + 1) * length] = row
    return out, np.repeat(np.arange(requests), length)


def _choose(favourites: np.ndarray, experts: int, k: int, share: float, rng: np.random.Generator) -> np.ndarray:
    """Draws k different experts per token; each favourite is kept with a probability that makes `share` of all choices favourites."""
    n = len(favourites)
    # A choice that is not kept is a favourite by chance with probability k / experts.
    keep = np.clip((share - k / experts) / (1 - k / experts), 0.0, 1.0)
    kept = rng.random((n, k)) < keep
    keys = rng.random((n, experts))
    np.put_along_axis(
        keys, favourites.astype(np.int64), np.where(kept, -1.0, np.take_along_axis(keys, favourites.astype(np.int64), 1)), axis=1
    )
    return np.argpartition(keys, k - 1, axis=1)[:, :k].astype(np.int16)
