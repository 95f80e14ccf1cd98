"""Host lists: by hand, against a slow expansion that shares no code, and lists that must fail before they cost anything."""

from __future__ import annotations

import contextlib
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from armillary.cluster.formats.hostlist import count, expand
from armillary.errors import InputError


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("n1", ["n1"]),
        ("n[1-3]", ["n1", "n2", "n3"]),
        ("n[008-010,12]", ["n008", "n009", "n010", "n12"]),
        ("a,b[1-2]-ib,c", ["a", "b1-ib", "b2-ib", "c"]),
        ("r[0-1]n[0-1]", ["r0n0", "r0n1", "r1n0", "r1n1"]),
        ("n[1-2,2-3]", ["n1", "n2", "n3"]),
        ("n[98-102]", ["n98", "n99", "n100", "n101", "n102"]),
        (" a , b ", ["a", "b"]),
        ("", []),
    ],
)
def test_lists_by_hand(text: str, hosts: list[str]) -> None:
    assert expand(text) == hosts


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("n[1-999999999]", "999,999,999 hosts; expected at most 1,000,000"),
        ("n[0-999]n[0-999]n[0-1]", "2,000,000 hosts"),
        ("n[1-500000],m[1-500001]", "1,000,001 hosts"),
        ("n[3-1]", "runs backwards"),
        ("n[1", "not closed"),
        ("n]1[", "do not match"),
        ("n[[1]]", "do not match"),
        ("n[]", "expected a number or a range"),
        ("n[1-]", "expected a number or a range"),
        ("n[a-b]", "expected a number or a range"),
        ("n[1-99999999999999999999]", "expected a number or a range"),
        ("n*", "expected letters"),
        ("n[1]" * 9, "more than 8 brackets"),
    ],
)
def test_bad_lists_say_what_is_wrong(text: str, what: str) -> None:
    with pytest.raises(InputError, match=what):
        expand(text, "slurm.conf:3")
    with pytest.raises(InputError, match=r"slurm\.conf:3"):
        count(text, "slurm.conf:3")


pieces = st.lists(
    st.tuples(
        st.text("abcxyz-", min_size=1, max_size=3),
        st.lists(st.tuples(st.integers(0, 30), st.integers(0, 12), st.integers(1, 3)), min_size=1, max_size=3),
    ),
    min_size=1,
    max_size=2,
)


@given(st.lists(pieces, min_size=1, max_size=3))
def test_expansion_agrees_with_a_slow_one(names: list[list[tuple[str, list[tuple[int, int, int]]]]]) -> None:
    texts, expected = [], []
    for parts in names:
        text, choices = "", []
        for fixed, ranges in parts:
            spelled = [(str(low).zfill(digits), str(low + more).zfill(digits)) for low, more, digits in ranges]
            text += fixed + "[" + ",".join(f"{a}-{b}" for a, b in spelled) + "]"
            numbers = [str(n).zfill(len(a)) for a, b in spelled for n in range(int(a), int(b) + 1)]
            choices.append([fixed + number for number in numbers])
        texts.append(text)
        expected += ["".join(choice) for choice in itertools.product(*choices)]
    assert expand(",".join(texts)) == list(dict.fromkeys(expected))
    assert count(",".join(texts)) == len(expected)


@given(st.text("n[]0123,- ab", max_size=40))
def test_any_text_is_a_list_or_an_input_error(text: str) -> None:
    with contextlib.suppress(InputError):
        assert len(expand(text)) <= 1_000_000
