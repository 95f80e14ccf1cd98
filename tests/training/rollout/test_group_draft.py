"""Drafts from siblings against brute force, and a real sampler whose output must not change."""

from __future__ import annotations

import numpy as np
import pytest

from armillary.errors import InputError
from armillary.training.rollout import DraftClient, DraftServer, GroupDraft, measured
from armillary.training.rollout.drafting import acceptance


def letters(text: str) -> list[int]:
    return [ord(c) for c in text]


def continuations(streams: list[list[int]], said: list[int]) -> dict[int, int]:
    found: dict[int, int] = {}
    for stream in streams:
        for i in range(len(stream) - len(said)):
            if stream[i : i + len(said)] == said:
                after = stream[i + len(said)]
                found[after] = found.get(after, 0) + 1
    return found


def brute(streams: list[list[int]], context: list[int], n: int, paths: int, max_suffix: int) -> list[list[int]]:
    """The most frequent continuations (ties by token) of the longest suffix that was said with something after it."""
    context = context[-max_suffix:]
    for k in range(len(context), 0, -1):
        first = continuations(streams, context[-k:])
        if first:
            break
    else:
        return []
    out = []
    for token in sorted(first, key=lambda t: (-first[t], t))[:paths]:
        said, draft = [*context[-k:], token], [token]
        while len(draft) < n and (after := continuations(streams, said)):
            draft.append(min(after, key=lambda t: (-after[t], t)))
            said.append(draft[-1])
        out.append(draft)
    return out


def test_the_small_examples() -> None:
    drafts = GroupDraft()
    drafts.add("g", 0, letters("abcabd"))
    assert drafts.propose("g", letters("ab"), 1, paths=2) == [letters("c"), letters("d")]
    assert (drafts.count("g", letters("abc")), drafts.count("g", letters("abd")), drafts.count("g", letters("ab"))) == (1, 1, 2)
    once = GroupDraft()
    once.add("g", 0, letters("abcabc"))
    assert once.propose("g", letters("ab"), 1, paths=2) == [letters("c")]
    assert once.propose("g", letters("zz"), 3) == []
    assert once.propose("other", letters("ab"), 3) == []


@pytest.mark.parametrize("part", range(4))
def test_drafts_and_counts_are_those_of_brute_force(part: int) -> None:
    """Each part has 250 groups of up to four streams that grow in turn, with one to three letters and short and long suffixes."""
    for seed in range(250 * part, 250 * part + 250):
        rng = np.random.default_rng(seed)
        many, alphabet, max_suffix = int(rng.integers(1, 5)), int(rng.integers(1, 4)), int(rng.integers(1, 8))
        drafts, streams = GroupDraft(max_suffix), [[] for _ in range(many)]
        for _ in range(int(rng.integers(1, 12))):
            k, new = int(rng.integers(many)), rng.integers(-1, alphabet - 1, int(rng.integers(1, 14))).tolist()
            streams[k] += new
            drafts.add("g", k, new)
            drafts.add("another", k, [0, 1, 0])
        for _ in range(3):
            context, paths = rng.integers(-1, alphabet - 1, int(rng.integers(1, 9))).tolist(), int(rng.integers(1, 4))
            assert drafts.propose("g", context, 6, paths) == brute(streams, context, 6, paths, max_suffix)
            places = sum(s[i : i + len(context)] == context for s in streams for i in range(len(s) - len(context) + 1))
            assert drafts.count("g", context) == places


@pytest.mark.parametrize("period", [1, 2, 5])
def test_periodic_streams_are_counted_up_to_the_depth(period: int) -> None:
    drafts = GroupDraft(max_suffix=1)
    stream = [i % period for i in range(400)]
    for start in range(0, 400, 50):
        drafts.add("g", 0, stream[start : start + 50])
        drafts.add("g", 1, stream[start : start + 49])
    other = [x for start in range(0, 400, 50) for x in stream[start : start + 49]]
    for size in (1, 2, 7, 40, 64, 65):
        said = stream[:size]
        places = sum(s[i : i + size] == said for s in (stream, other) for i in range(len(s) - size + 1))
        assert drafts.count("g", said) == places


def test_groups_do_not_mix_and_streams_grow_token_by_token_alike() -> None:
    rng = np.random.default_rng(5)
    tokens = rng.integers(0, 3, 300).tolist()
    at_once, by_one = GroupDraft(), GroupDraft()
    at_once.add("g", 0, tokens)
    for t in tokens:
        by_one.add("g", 0, [t])
        by_one.add("h", 0, [7])
    for i in range(0, 290, 10):
        assert at_once.propose("g", tokens[i : i + 6], 8, 3) == by_one.propose("g", tokens[i : i + 6], 8, 3)
    assert by_one.propose("h", [0], 4) == []
    assert len(at_once) == 300


def test_output_is_the_same_with_and_without_drafts() -> None:
    """The sampler is a greedy Markov chain, whose next token follows from the last two, and wrong drafts are thrown away."""
    rng = np.random.default_rng(11)
    model = rng.integers(0, 12, (12, 12))

    def plain(start: list[int], count: int) -> list[int]:
        out = list(start)
        for _ in range(count):
            out.append(int(model[out[-2], out[-1]]))
        return out

    drafts, passes = GroupDraft(), 0
    for request in range(6):
        start = [int(x) for x in rng.integers(0, 12, 2)]
        truth, out = plain(start, 200), list(start)
        drafts.add("prompt", request, out)
        while len(out) < 202:
            draft = (drafts.propose("prompt", out, 8) or [[]])[0]
            # One forward pass gives the model's own token at every position of the draft, as far as the draft is right.
            passes += 1
            new = []
            for guess in [*draft, None]:
                new.append(int(model[(out + new)[-2], (out + new)[-1]]))
                if guess != new[-1]:
                    break
            new = new[: 202 - len(out)]
            out += new
            drafts.add("prompt", request, new)
        assert out == truth
    assert passes < 6 * 200 / 2


def test_measured_acceptance_grows_with_siblings() -> None:
    rng = np.random.default_rng(2)
    phrases = [rng.integers(0, 500, 12).tolist() for _ in range(30)]
    groups = {
        str(g): [(str(r), np.array([t for k in rng.integers(0, 10, 25) for t in phrases[10 * g + k]], np.int32)) for r in range(4)]
        for g in range(3)
    }
    means = measured(groups, most_siblings=5)
    assert means[0] >= 1
    assert means[3] > 1.3 * means[0]
    assert means[5] == means[3]
    noise = {"g": [(str(r), rng.integers(0, 2**31 - 1, 300).astype(np.int32)) for r in range(3)]}
    np.testing.assert_allclose(measured(noise, most_siblings=2), 1.0)


def test_the_published_means_come_back() -> None:
    table = acceptance.table(acceptance.chances(15))
    assert table[:, 0, :].max() == table[:, 0, :].min() == 1.0
    np.testing.assert_allclose(table[[0, 1, 5, 15], 16, 0], [1.70, 2.04, 2.32, 2.53], rtol=2e-3)
    assert (np.diff(table, axis=1) >= 0).all()
    assert (np.diff(table, axis=0) >= 0).all()
    # A draft of one token can give at most two.
    assert table[:, 1, :].max() <= 2


@pytest.mark.parametrize("tokens", [[2**31], [-(2**31) - 1], [0.5], ["a"]])
def test_tokens_beyond_32_bits_are_refused(tokens: list) -> None:
    with pytest.raises(InputError, match="32 bits"):
        GroupDraft().add("g", 0, tokens)


def test_bad_drafts_are_refused() -> None:
    with pytest.raises(InputError):
        GroupDraft(0)
    with pytest.raises(InputError):
        GroupDraft().propose("g", [1], 0)
    with pytest.raises(InputError):
        acceptance.chances(3, [0.5, 2.0], [0, 1])


def test_a_proposer_is_shaped_like_an_engines() -> None:
    drafts = GroupDraft()
    drafts.add("g", 0, letters("to be or not to be"))
    proposer = drafts.proposer("g", 4)
    found = proposer.propose(np.array(letters("not to"), np.int32))
    assert found is not None
    assert found.dtype == np.int32
    assert found.tolist() == letters(" be")
    assert proposer.propose(letters("xyz")) is None


def test_clients_see_batches_and_end_up_with_the_same_drafts() -> None:
    rng = np.random.default_rng(9)
    streams = [rng.integers(0, 3, 200).tolist() for _ in range(3)]
    server, plain = DraftServer(batch=50), GroupDraft()
    early, late = DraftClient(server), DraftClient(server)
    server.report("g", 0, streams[0][:49])
    assert early.fetch("g") == 0
    server.report("g", 0, streams[0][49:52])
    assert early.fetch("g") == 52
    assert early.fetch("g") == 0
    server.report("g", 0, streams[0][52:], over=True)
    for k in (1, 2):
        for i in range(0, 200, 10):
            server.report("g", k, streams[k][i : i + 10], over=i == 190)
    assert early.fetch("g") == 600 - 52
    assert late.fetch("g") == 600
    for k, stream in enumerate(streams):
        plain.add("g", k, stream)
    for i in range(0, 190, 7):
        wanted = plain.propose("g", streams[1][i : i + 6], 8, 2)
        assert early.propose("g", streams[1][i : i + 6], 8, 2) == late.propose("g", streams[1][i : i + 6], 8, 2) == wanted
    with pytest.raises(InputError):
        DraftServer(0)
