"""Multi-scalar multiplication: against the naive sum, in the exceptional cases of the formulas, on one thread and on two."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from armillary.errors import InputError
from armillary.trust.outsourcing import Bases, Element, FixedBases, as_scalars, msm, times_generator
from armillary.trust.outsourcing.delegation.session import one_by_one
from armillary.trust.outsourcing.group.bases import integers
from armillary.trust.outsourcing.group.scalars import ORDER
from armillary.trust.outsourcing.local_naive import with_libsodium
from armillary.trust.outsourcing.summing.digits import WIDEST, Windows, cut, extent, windows_for
from armillary.trust.outsourcing.summing.msm import sums_over
from armillary.trust.outsourcing.workload import SCALAR_KINDS, scalars_of

exponents = st.one_of(st.sampled_from([0, 1, 2, ORDER - 1, ORDER // 2, 2**64 - 1, 2**251, 2**252]), st.integers(0, ORDER - 1))


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64DXSM(seed))


@pytest.mark.parametrize("kind", SCALAR_KINDS)
@pytest.mark.parametrize("terms", [0, 1, 2, 31, 32, 33, 100, 1000])
def test_every_way_to_sum_gives_the_naive_sum(terms: int, kind: str) -> None:
    bases, x = Bases.from_label("sums", terms), scalars_of(kind, terms, rng(terms))
    wanted = one_by_one(bases, x)
    assert msm(bases, x) == msm(bases, x, threads=2) == wanted
    assert bytes(msm(bases, x)) == bytes(wanted)
    fixed = FixedBases(bases)
    assert fixed.msm(x) == fixed.msm(x, threads=2) == wanted
    assert FixedBases(bases, most_bytes=360).msm(x) == wanted


def test_libsodium_gives_the_same_sum() -> None:
    pytest.importorskip("rbcl")
    for kind in SCALAR_KINDS:
        bases, x = Bases.from_label("sodium", 60), scalars_of(kind, 60, rng(1))
        assert with_libsodium(bases, x) == msm(bases, x)
    nothing = Bases.from_encodings([bytes(32)] * 40)
    assert with_libsodium(nothing, as_scalars([3] * 40)) == Element.identity()


@given(terms=st.lists(st.tuples(exponents, exponents), max_size=50), copies=st.sampled_from([120, 500, 2048]))
def test_sums_of_multiples_of_the_generator_are_sums_of_numbers(terms: list[tuple[int, int]], copies: int) -> None:
    """Repeated points, opposite ones and the identity come up, with zero and the largest scalars."""
    bases = Bases.from_elements([times_generator(a) for a, _ in terms])
    x = [b for _, b in terms]
    wanted = times_generator(sum(a * b for a, b in terms))
    assert msm(bases, x) == wanted
    assert msm(bases, x, threads=2) == wanted
    assert FixedBases(bases, most_bytes=copies).msm(x) == wanted


@pytest.mark.parametrize("terms", [3, 40, 300])
def test_repeated_opposite_and_neutral_points_meet_in_one_bucket(terms: int) -> None:
    g = times_generator(7)
    bases = Bases.from_elements([(g, Element.identity() - g, Element.identity())[i % 3] for i in range(terms)])
    for scalar in (1, 5, ORDER - 1):
        count = sum((1, -1, 0)[i % 3] for i in range(terms))
        assert msm(bases, [scalar] * terms) == times_generator(7 * scalar * count)
    assert bytes(msm(bases, [0] * terms)) == bytes(32)
    assert msm(bases, [ORDER - 1] * terms) == Element.identity() - msm(bases, [1] * terms)


@given(numbers=st.lists(exponents, min_size=1, max_size=20), width=st.integers(2, WIDEST))
def test_digits_add_up_to_the_scalar(numbers: list[int], width: int) -> None:
    x = as_scalars(numbers)
    _, bits = extent(x)
    count = max(1, -(-(bits + 1) // width))
    digits = cut(x, Windows(width, count, count))
    assert [sum(int(d) << width * w for w, d in enumerate(digits[:, i])) for i in range(len(numbers))] == numbers
    assert int(np.abs(digits).max(initial=0)) <= 1 << (width - 1)


@given(terms=st.integers(0, 1 << 24), bits=st.integers(0, 253), copies=st.integers(1, 70))
def test_windows_cover_the_bits_with_the_copies_there_are(terms: int, bits: int, copies: int) -> None:
    windows = windows_for(terms, bits, copies=copies)
    assert windows.width * windows.count >= bits + 1
    assert 1 <= windows.copies <= copies
    assert windows.copies * windows.passes >= windows.count


def test_stored_copies_stay_within_their_bytes_and_spare_doublings() -> None:
    for terms in (64, 300, 2000):
        fixed = FixedBases(Bases.from_label("fixed", terms))
        assert fixed.table.nbytes <= 2048 * terms
        assert fixed.windows.passes < windows_for(terms, 252).passes


def test_several_tables_share_their_digits() -> None:
    a, b, x = Bases.from_label("a", 50), Bases.from_label("b", 50), scalars_of("uniform", 50, rng())
    assert sums_over([a.ready[None], b.ready[None]], x) == [msm(a, x), msm(b, x)]


@pytest.mark.parametrize("x", [[1, 2], [1] * 4, b"", np.zeros((2, 4), np.uint64)])
def test_another_number_of_scalars_than_bases_is_refused(x: Any) -> None:
    with pytest.raises(InputError, match="for 3 bases; expected one per base"):
        msm(Bases.from_label("a", 3), x)
    with pytest.raises(InputError, match="expected one per base"):
        FixedBases(Bases.from_label("a", 3)).msm(x)


def test_points_may_be_encodings() -> None:
    points = [bytes(times_generator(k)) for k in (2, 3)]
    assert msm(points, [5, 7]) == times_generator(31)
    assert msm(points, b"".join(k.to_bytes(32, "little") for k in (5, 7))) == times_generator(31)


def test_kinds_of_scalars_are_what_they_say() -> None:
    assert max(integers(scalars_of("small", 500, rng()))) < 2**64
    assert set(integers(scalars_of("bits", 500, rng()))) == {0, 1}
    assert 0.8 < integers(scalars_of("sparse", 2000, rng())).count(0) / 2000 < 0.97
    assert max(integers(scalars_of("uniform", 500, rng()))).bit_length() >= 252
    with pytest.raises(InputError, match="unknown kind of scalars"):
        scalars_of("other", 3, rng())
