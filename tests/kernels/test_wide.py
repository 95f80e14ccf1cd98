"""Whole numbers of several words in compiled loops, against Python's integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numba.core.caching import NullCache
from numba.core.errors import TypingError

from armillary.kernels import kernel
from armillary.kernels.wide import added, dot, hidden, taken, times

WORD = 1 << 64
MOST = WORD - 1
#: Words at which carries begin and end come up more often than a uniform draw would have them.
words = st.one_of(st.sampled_from([0, 1, 2, MOST, MOST - 1, 1 << 63, (1 << 63) - 1]), st.integers(0, MOST))


def parts(number: int, count: int) -> tuple[np.uint64, ...]:
    return tuple(np.uint64(number >> 64 * i & MOST) for i in range(count))


def whole(found: tuple[Any, ...]) -> int:
    return sum(int(one) << 64 * i for i, one in enumerate(found))


@kernel
def sums(a, b):  # type: ignore[no-untyped-def]
    return added(a, b)


@kernel
def differences(a, b):  # type: ignore[no-untyped-def]
    return taken(a, b)


@kernel
def products(a, b):  # type: ignore[no-untyped-def]
    return times(a, b)


@kernel
def dots(total, a, b):  # type: ignore[no-untyped-def]
    return dot(total, a, b)


@kernel
def unseen(word, by):  # type: ignore[no-untyped-def]
    return hidden(word) & by, hidden(word - by)


@given(word=words, by=words)
def test_a_hidden_word_is_the_same_word(word: int, by: int) -> None:
    found = unseen(np.uint64(word), np.uint64(by))
    assert tuple(map(int, found)) == (word & by, (word - by) % WORD)


def test_the_compiler_does_not_know_what_is_hidden() -> None:
    """Without the piece of assembly the mask would be a selection, which the machine may take as a branch."""

    @kernel
    def known(word):  # type: ignore[no-untyped-def]
        return hidden(np.uint64(5)) * word

    @kernel
    def folded(word):  # type: ignore[no-untyped-def]
        return np.uint64(5) * word

    texts = []
    for loop in (known, folded):
        loop._cache = NullCache()
        assert int(loop(np.uint64(7))) == 35
        texts.append(" ".join(loop.inspect_llvm().values()))
    assert "asm" in texts[0]
    assert "asm" not in texts[1]


@pytest.mark.parametrize("count", [1, 2, 4])
@given(data=st.data())
@example(data=None)
def test_sums_and_differences_are_those_of_the_integers_modulo_their_bits(count: int, data: Any) -> None:
    """The explicit example is the longest carry: all ones, and one more."""
    numbers = [sum(data.draw(words) << 64 * i for i in range(count)) for _ in range(2)] if data else [(1 << 64 * count) - 1, 1]
    a, b = (parts(one, count) for one in numbers)
    assert whole(sums(a, b)) == sum(numbers) % (1 << 64 * count)
    assert whole(differences(a, b)) == (numbers[0] - numbers[1]) % (1 << 64 * count)
    assert whole(differences(b, a)) == (numbers[1] - numbers[0]) % (1 << 64 * count)


@pytest.mark.parametrize(("left", "right"), [(1, 1), (1, 2), (5, 2), (3, 2)])
@given(data=st.data())
@example(data=None)
def test_products_have_every_word(left: int, right: int, data: Any) -> None:
    if data:
        a, b = (sum(data.draw(words) << 64 * i for i in range(count)) for count in (left, right))
    else:
        a, b = ((1 << 64 * count) - 1 for count in (left, right))
    found = products(parts(a, left), parts(b, right))
    assert len(found) == left + right
    assert whole(found) == a * b


@pytest.mark.parametrize(("total_words", "factors"), [(2, 1), (2, 5), (3, 1), (3, 4)])
@given(data=st.data())
@example(data=None)
def test_a_dot_product_keeps_the_bits_of_its_total(total_words: int, factors: int, data: Any) -> None:
    if data:
        total = sum(data.draw(words) << 64 * i for i in range(total_words))
        a, b = ([data.draw(words) for _ in range(factors)] for _ in range(2))
    else:
        total, a, b = (1 << 64 * total_words) - 1, [MOST] * factors, [MOST] * factors
    found = dots(parts(total, total_words), tuple(map(np.uint64, a)), tuple(map(np.uint64, b)))
    assert whole(found) == (total + sum(x * y for x, y in zip(a, b))) % (1 << 64 * total_words)


@pytest.mark.parametrize(
    ("call", "arguments"),
    [
        (sums, (parts(1, 2), parts(1, 3))),
        (differences, (parts(1, 2), parts(1, 1))),
        (sums, ((1, 2), (3, 4))),
        (sums, ((1.0, 2.0), (3.0, 4.0))),
        (products, (np.uint64(3), parts(1, 1))),
        (unseen, (3, 4)),
        (dots, (parts(1, 1), parts(1, 1), parts(1, 1))),
        (dots, (parts(1, 2), parts(1, 2), parts(1, 3))),
    ],
)
def test_other_types_are_refused_when_the_loop_is_compiled(call: Any, arguments: Any) -> None:
    with pytest.raises(TypingError, match="expected"):
        call(*arguments)
