"""Text, vocabularies, tasks and batches: oracles that share no code, and files from strangers."""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.errors import InputError
from armillary.training.lowcomm import TASKS, Vocabulary, example, learned, python_source
from armillary.training.lowcomm.arena import lowcomm
from armillary.training.lowcomm.corpora.arith_mix import chance
from armillary.training.lowcomm.corpora.batches import NO_TARGET, Text, divided, stage, task_rows, tasks_of
from armillary.training.lowcomm.corpora.vocabulary import _WORD
from armillary.training.lowcomm.readers.text import read_documents

BYTES = Vocabulary()

# Vocabularies


def merged_naively(text: bytes, merges: int) -> list[tuple[int, int]]:
    """Count all pairs anew for every merge."""
    words, made = [list(word) for word in _WORD.findall(text)], []
    for _ in range(merges):
        counts = Counter(pair for word in words for pair in itertools.pairwise(word))
        if not counts or max(counts.values()) < 2:
            break
        best = min(counts, key=lambda pair: (-counts[pair], pair))
        made.append(best)
        for word in words:
            i = 0
            while i + 1 < len(word):
                if (word[i], word[i + 1]) == best:
                    word[i : i + 2] = [255 + len(made)]
                i += 1
    return made


@settings(max_examples=60, deadline=None)
@given(text=st.text("aab bc\n1_", max_size=120), merges=st.integers(0, 12))
def test_merges_are_those_of_counting_again_after_every_merge(text: str, merges: int) -> None:
    vocabulary = learned(text.encode(), merges)
    assert list(vocabulary.merges) == merged_naively(text.encode(), merges)
    assert vocabulary.size == 256 + len(vocabulary.merges)


@settings(max_examples=60, deadline=None)
@given(seen=st.text(max_size=80), text=st.text(max_size=80))
def test_every_text_survives_its_tokens(seen: str, text: str) -> None:
    """Also text whose words were never seen; words never lose bytes between them."""
    for vocabulary in (BYTES, learned(seen.encode() * 3, 20)):
        assert vocabulary.decode(vocabulary.encode(text.encode()).tolist()) == text.encode()
    assert b"".join(_WORD.findall(text.encode())) == text.encode()


def test_training_tokenises_its_own_text_as_it_was_merged() -> None:
    text = b"def add(self, other): return self.value + other.value\n" * 3
    vocabulary = learned(text, 60)
    assert len(vocabulary.encode(text)) < len(text) / 2
    with pytest.raises(InputError, match="0 to 4,096"):
        learned(b"x", 4097)


# Tasks


def answered(prompt: str) -> str:
    """The right answer, found another way: by reading the question."""
    question = prompt.removeprefix("Q: ").removesuffix(" A: ")
    if m := re.fullmatch(r"(\d+)([+-])(\d+)", question):
        return str(int(m[1]) + int(m[3]) * (1 if m[2] == "+" else -1))
    if m := re.fullmatch(r"(\d+) mod (\d)", question):
        return str(int(m[1]) - int(m[1]) // int(m[2]) * int(m[2]))
    if m := re.fullmatch(r"rev ([a-z]{2,5})", question):
        return "".join(reversed(m[1]))
    pairs, _, asked = question.rpartition(" ")
    return dict(pair.split("=") for pair in pairs.split())[asked.removesuffix("?")]


@pytest.mark.parametrize("task", TASKS)
def test_answers_are_right_and_tests_never_ask_what_was_trained_on(task: str) -> None:
    rng = np.random.default_rng(0)
    trained = [example(task, rng) for _ in range(300)]
    asked = [example(task, rng, held_out=True) for _ in range(100)]
    for one in trained + asked:
        assert one.answer == answered(one.prompt) + "\n"
    assert not {one.prompt for one in trained} & {one.prompt for one in asked}
    assert chance(asked) == max(Counter(one.answer for one in asked).values()) / 100


def test_rows_hold_whole_examples_and_targets_are_the_next_tokens() -> None:
    rng = np.random.default_rng(0)
    for only in (True, False):
        inputs, targets = task_rows(list(TASKS), 20, 64, BYTES, rng, answers_only=only)
        for row, aims in zip(inputs, targets):
            text = bytes(row.astype(np.uint8)).rstrip(b"\n").decode()
            for line in text.split("\n"):
                prompt, _, answer = line.partition(" A: ")
                assert answered(f"{prompt} A: ") == answer
            used = np.flatnonzero(aims != NO_TARGET)
            assert (aims[used] == np.append(row, 0)[used + 1]).all()
            said = bytes(aims[used].astype(np.uint8)).decode()
            answers = "".join(line.partition(" A: ")[2] + "\n" for line in text.split("\n"))
            # With loss on answers only, the targets spell the answers and nothing else.
            assert said == answers if only else len(said) > len(answers)
    with pytest.raises(InputError, match="context of 8"):
        task_rows(["recall"], 1, 8, BYTES, rng, answers_only=True)


# Shards and batches


@settings(max_examples=60, deadline=None)
@given(sizes=st.lists(st.integers(1, 1000), min_size=1, max_size=40), parts=st.integers(1, 8))
def test_every_document_has_one_owner_and_nobody_is_without(sizes: list[int], parts: int) -> None:
    found = divided(sizes, parts)
    assert sorted(i for part in found for i in part) == list(range(len(sizes)))
    assert [i for part in found for i in part] == list(range(len(sizes)))
    if len(sizes) >= parts:
        assert all(found)


def test_workers_by_file_draw_from_their_own_documents_alone() -> None:
    documents = [bytes([97 + i]) * 200 for i in range(8)]
    for shards, alone in (("by-file", True), ("iid", False)):
        text = Text.of(documents, 4, shards, BYTES, np.random.default_rng(0), 16)  # type: ignore[arg-type]
        drawn = [set(text.windows(i, 300, 16, np.random.default_rng(1)).ravel().tolist()) for i in range(4)]
        assert all(not a & b for i, a in enumerate(drawn) for b in drawn[:i]) == alone
        held = set(text.validation.tolist())
        assert not held & set().union(*drawn)
    assert [tasks_of(i, 4, "by-file") for i in range(4)] == [["add"], ["subtract"], ["modulo", "reverse"], ["recall"]]
    assert all(tasks_of(i, 7, "by-file") for i in range(7))
    assert tasks_of(-1, 4, "by-file") == tasks_of(2, 4, "iid") == list(TASKS)


def test_batches_have_their_share_of_tasks_and_the_same_seed_gives_the_same() -> None:
    text = Text.of([b"x" * 400] * 4, 2, "iid", BYTES, np.random.default_rng(0), 64)
    made = [stage("pretrain", text, 50, 2, 8, 64, "iid", BYTES, np.random.default_rng(3)) for _ in range(2)]
    assert np.array_equal(made[0].inputs, made[1].inputs)
    assert made[0].inputs.shape == made[0].targets.shape == (50, 2, 8, 64)
    share = float((made[0].inputs[..., 0] == ord("Q")).mean())
    assert 0.15 < share < 0.25
    assert (stage("sft", text, 3, 2, 4, 64, "iid", BYTES, np.random.default_rng(3)).inputs[..., 0] == ord("Q")).all()


def test_the_library_s_own_source_is_text_within_its_bound() -> None:
    found = python_source(np.random.default_rng(0), 200_000)
    assert 100_000 < sum(map(len, found)) <= 200_000
    assert any(b"import" in one for one in found)
    assert found == python_source(np.random.default_rng(0), 200_000)
    assert found != python_source(np.random.default_rng(1), 200_000)


# Files


def test_text_json_lines_and_parquet_give_the_same_documents(tmp_path: Path) -> None:
    texts = ["one two", "drei vier", "cinq"]
    (tmp_path / "a.txt").write_text("\n\n".join(texts))
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": text, "id": 1}) + "\n" for text in texts))
    pl.DataFrame({"text": texts}).write_parquet(tmp_path / "a.parquet")
    for name in ("a.txt", "a.jsonl", "a.parquet"):
        assert read_documents(tmp_path / name) == tuple(text.encode() + b"\n" for text in texts)


@pytest.mark.parametrize(
    ("name", "data", "says"),
    [
        ("a.csv", b"text\nhello\n", "expected UTF-8 text (.txt), or a table with a column text (.jsonl or .parquet)"),
        ("a.txt", b"\n \n\n", "found no text"),
        ("a.txt", b"\xff\xfe", "a.txt"),
        ("a.jsonl", b'{"body": "x"}\n', "text"),
        ("a.jsonl", b'{"text": 7', "a.jsonl"),
        ("a.parquet", b"PAR1junk", "a.parquet"),
    ],
)
def test_files_of_another_kind_are_refused_in_one_line(tmp_path: Path, name: str, data: bytes, says: str) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(InputError) as error:
        lowcomm.from_file(tmp_path / name)
    assert says in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "found 56 tokens for worker 0; expected at least one context of 64 and 1"),
        ({"every": 0}, "every"),
        ({"heads": 3}, "found a width of 64 for 3 heads; expected a multiple of 6"),
        ({"steps": 1_000_000, "batch": 1024}, "expected at most 268,435,456"),
        ({"width": 1024, "layers": 48}, "expected at most 2,147,483,648"),
        ({"context": 8, "shards": "by-file"}, "found 3 tokens for validation"),
    ],
)
def test_too_little_text_and_sizes_that_do_not_fit_are_refused(tmp_path: Path, options: dict[str, Any], says: str) -> None:
    (tmp_path / "a.txt").write_text("x" * 57 + "\n")
    with pytest.raises(InputError) as error:
        lowcomm.from_file(tmp_path / "a.txt", options)
    assert says in str(error.value)
    assert "\n" not in str(error.value)
