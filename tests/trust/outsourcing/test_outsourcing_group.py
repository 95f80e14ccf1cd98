"""The group: RFC 9496's vectors, Python's integers, FLINT, OpenSSL and libsodium."""

from __future__ import annotations

import hashlib
import os
import random
from typing import Any

import numpy as np
import pytest
import ristretto_by_hand as by_hand
from hypothesis import example, given
from hypothesis import strategies as st

from armillary.errors import InputError
from armillary.kernels import kernel
from armillary.trust.outsourcing import Bases, Element, as_scalars, times_generator
from armillary.trust.outsourcing.group import field, scalars
from armillary.trust.outsourcing.group.bases import integers
from armillary.trust.outsourcing.group.element import linear, scalar_words
from armillary.trust.outsourcing.group.encoding import encode_all, map_all
from armillary.trust.outsourcing.group.scalars import ORDER, inner_into, reduced_words

#: RFC 9496, appendix A.1.
MULTIPLES = [
    "0000000000000000000000000000000000000000000000000000000000000000",
    "e2f2ae0a6abc4e71a884a961c500515f58e30b6aa582dd8db6a65945e08d2d76",
    "6a493210f7499cd17fecb510ae0cea23a110e8d5b901f8acadd3095c73a3b919",
    "94741f5d5d52755ece4f23f044ee27d5d1ea1e2bd196b462166b16152a9d0259",
    "da80862773358b466ffadfe0b3293ab3d9fd53c5ea6c955358f568322daf6a57",
    "e882b131016b52c1d3337080187cf768423efccbb517bb495ab812c4160ff44e",
    "f64746d3c92b13050ed8d80236a7f0007c3b3f962f5ba793d19a601ebb1df403",
    "44f53520926ec81fbd5a387845beb7df85a96a24ece18738bdcfa6a7822a176d",
    "903293d8f2287ebe10e2374dc1a53e0bc887e592699f02d077d5263cdd55601c",
    "02622ace8f7303a31cafc63f8fc48fdc16e1c8c8d234b2f0d6685282a9076031",
    "20706fd788b2720a1ed2a5dad4952b01f413bcf0e7564de8cdc816689e2db95f",
    "bce83f8ba5dd2fa572864c24ba1810f9522bc6004afe95877ac73241cafdab42",
    "e4549ee16b9aa03099ca208c67adafcafa4c3f3e4e5303de6026e3ca8ff84460",
    "aa52e000df2e16f55fb1032fc33bc42742dad6bd5a8fc0be0167436c5948501f",
    "46376b80f409b29dc2b5f6f0c52591990896e5716f41477cd30085ab7f10301e",
    "e0c418f7c8d9c4cdd7395b93ea124f3ad99021bb681dfc3302a9d99a2e53e64e",
]
#: Appendix A.2: not canonical, odd, not square, xy odd, y = 0.
BAD = [
    "00ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
    "ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "f3ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "0100000000000000000000000000000000000000000000000000000000000000",
    "01ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "ed57ffd8c914fb201471d1c3d245ce3c746fcbe63a3679d51b6a516ebebe0e20",
    "c34c4e1826e5d403b78e246e88aa051c36ccf0aafebffe137d148a2bf9104562",
    "c940e5a4404157cfb1628b108db051a8d439e1a421394ec4ebccb9ec92a8ac78",
    "47cfc5497c53dc8e61c91d17fd626ffb1c49e2bca94eed052281b510b1117a24",
    "f1c6165d33367351b0da8f6e4511010c68174a03b6581212c71c0e1d026c3c72",
    "87260f7a2f12495118360f02c26a470f450dadf34a413d21042b43b9d93e1309",
    "26948d35ca62e643e26a83177332e6b6afeb9d08e4268b650f1f5bbd8d81d371",
    "4eac077a713c57b4f4397629a4145982c661f48044dd3f96427d40b147d9742f",
    "de6a7b00deadc788eb6b6c8d20c0ae96c2f2019078fa604fee5b87d6e989ad7b",
    "bcab477be20861e01e4a0e295284146a510150d9817763caf1a6f4b422d67042",
    "2a292df7e32cababbd9de088d1d1abec9fc0440f637ed2fba145094dc14bea08",
    "f4a9e534fc0d216c44b218fa0c42d99635a0127ee2e53c712f70609649fdff22",
    "8268436f8c4126196cf64b3c7ddbda90746a378625f9813dd9b8457077256731",
    "2810e5cbc2cc4d4eece54f61c6f69758e289aa7ab440b3cbeaa21995c2f4232b",
    "3eb858e78f5a7254d8c9731174a94f76755fd3941c0ac93735c07ba14579630e",
    "a45fdc55c76448c049a1ab33f17023edfb2be3581e9c7aade8a6125215e04220",
    "d483fe813c6ba647ebbfd3ec41adca1c6130c2beeee9d9bf065c8d151c5f396e",
    "8a2e1d30050198c65a54483123960ccc38aef6848e1ec8f5f780e8523769ba32",
    "32888462f8b486c68ad7dd9610be5192bbeaf3b443951ac1a8118419d9fa097b",
    "227142501b9d4355ccba290404bde41575b037693cef1f438c47f8fbf35d1165",
    "5c37cc491da847cfeb9281d407efc41e15144c876e0170b499a96a22ed31e01e",
    "445425117cb8c90edcbc7c1cc0e74f747f2c1efa5630a967c64f287792a48a4b",
    "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
]
#: Appendix A.3: SHA-512 of a sentence, mapped to the group.
MAPPED = {
    "Ristretto is traditionally a short shot of espresso coffee": "3066f82a1a747d45120d1740f14358531a8f04bbffe6a819f86dfe50f44a0a46",
    "made with the normal amount of ground coffee but extracted with": "f26e5b6f7d362d2d2a94c5d0e7602cb4773c95a2e5c31a64f133189fa76ed61b",
    "about half the amount of water in the same amount of time": "006ccd2a9e6867e6a2c5cea83d3302cc9de128dd2a9a57dd8ee7b9d7ffe02826",
    "by using a finer grind.": "f8f0c87cf237953c5890aec3998169005dae3eca1fbb04548c635953c817f92a",
    "This produces a concentrated shot of coffee per volume.": "ae81e7dedf20a497e10c304a765c1767a42d6e06029758d2d7e8ef7cc4c41179",
    "Just pulling a normal shot short will produce a weaker shot": "e2705652ff9f5e44d3e841bf1c251cf7dddb77d140870d1ab2ed64f1a9ce8628",
    "and is not a Ristretto as some believe.": "80bd07262511cdde4863f8a7434cef696750681cb9510eea557088f76d9e5065",
}
OTHERS = [1, 2, 7, 8, 9, 15, 16, 17, ORDER - 1, ORDER - 2, ORDER // 2, 2**251, 2**252, int("88" * 31, 16), int("77" * 31, 16)]
exponents = st.one_of(st.sampled_from([0, *OTHERS]), st.integers(0, ORDER - 1))
numbers = st.one_of(st.sampled_from([0, 1, 2, 19, by_hand.P - 1, by_hand.P - 19, 2**254, 2**255 - 20]), st.integers(0, by_hand.P - 1))
#: Limbs as they may stand before a product, up to the bound that its text names.
limbs = st.tuples(*[st.one_of(st.sampled_from([0, 1, 2**51 - 1, 2**51, 2**54 - 1]), st.integers(0, 2**54 - 1))] * 5)


def test_small_multiples_are_those_of_the_rfc() -> None:
    total, generator = Element.identity(), Element.generator()
    for k, wanted in enumerate(MULTIPLES):
        assert bytes(total).hex() == bytes(times_generator(k)).hex() == bytes(generator * k).hex() == wanted
        assert Element.from_bytes(bytes.fromhex(wanted)) == total
        total = total + generator


@pytest.mark.parametrize("encoding", BAD)
def test_what_the_rfc_refuses_is_refused(encoding: str) -> None:
    assert by_hand.decode(bytes.fromhex(encoding)) is None
    with pytest.raises(InputError, match="canonical encoding"):
        Element.from_bytes(bytes.fromhex(encoding))
    with pytest.raises(InputError, match=f"base 2: found {encoding}"):
        Bases.from_bytes(bytes.fromhex(MULTIPLES[1] + MULTIPLES[2] + encoding + encoding))


@pytest.mark.parametrize("sentence", MAPPED)
def test_bytes_are_mapped_as_the_rfc_says(sentence: str) -> None:
    points: Any = np.empty((1, 20), np.uint64)
    words: Any = np.empty((1, 4), np.uint64)
    map_all(np.frombuffer(hashlib.sha512(sentence.encode()).digest(), "<u8").reshape(1, 8).astype(np.uint64), points)
    encode_all(points, words)
    assert words.astype("<u8").tobytes().hex() == MAPPED[sentence]


@kernel
def _calculated(a, b, found):  # type: ignore[no-untyped-def]
    x, y = (a[0], a[1], a[2], a[3], a[4]), (b[0], b[1], b[2], b[3], b[4])
    results = (
        field.product(x, y), field.squared(x), field.carried(x), field.negated(x), field.inverse(x), field.even_of(x),
        field.minus(field.carried(x), field.carried(y)),
    )  # fmt: skip
    for k, one in enumerate(results):
        for i in range(5):
            found[k, i] = one[i]
    found[7, 0], found[7, 1] = field.odd(x), field.same(x, y)
    square, root = field.root_of_ratio(x, y)
    found[7, 2] = square
    for i in range(5):
        found[8, i] = root[i]
    words = field.words_of(x)
    for i in range(4):
        found[9, i] = words[i]


@given(a=limbs, b=limbs)
@example(a=(2**54 - 1,) * 5, b=(2**54 - 1,) * 5)
@example(a=field.limbs(0), b=field.limbs(0))
@example(a=tuple(int(one) for one in field.limbs(-1)), b=(2**51 - 19 + 1, 2**51 - 1, 2**51 - 1, 2**51 - 1, 2**51 - 1))
def test_the_field_is_that_of_flint_for_all_limbs_that_its_bounds_allow(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    flint = pytest.importorskip("flint")
    f = flint.fmpz_mod_ctx(by_hand.P)
    found: Any = np.zeros((10, 5), np.uint64)
    _calculated(np.array(a, np.uint64), np.array(b, np.uint64), found)
    x, y = (f(sum(int(limb) << 51 * i for i, limb in enumerate(one))) for one in (a, b))
    results = [f(field.number_of(tuple(row))) for row in found]
    assert results[0] == x * y
    assert results[1] == x * x
    assert results[2] == x
    assert results[3] == -x
    assert results[4] == (f(0) if x == 0 else 1 / x)
    assert results[6] == x - y
    even = int(x) if int(x) % 2 == 0 else by_hand.P - int(x)
    assert results[5] == f(even)
    assert [int(one) for one in found[7, :2]] == [int(x) % 2, int(x == y)]
    assert (found[0] < 2**51 + 2**13).all()
    assert (found[1] < 2**51 + 2**13).all()
    assert sum(int(word) << 64 * i for i, word in enumerate(found[9, :4])) == int(x)
    root = results[8]
    assert int(root) % 2 == 0
    if y != 0:
        assert y * root * root == (x if found[7, 2] else x * f(field.SQRT_MINUS_ONE))
        assert bool(found[7, 2]) == (pow(int(x / y), (by_hand.P - 1) // 2, by_hand.P) in (0, 1))


@pytest.mark.parametrize("k", OTHERS)
def test_multiples_are_those_of_the_curves_own_equation(k: int) -> None:
    wanted = by_hand.encode(by_hand.multiply(k, by_hand.BASE))
    assert bytes(times_generator(k)) == bytes(Element.generator() * k) == bytes(Element.generator() * scalar_words(k)[0]) == wanted
    assert bytes(Element.identity() - times_generator(k)) == bytes(times_generator(ORDER - k))


def test_random_elements_are_added_encoded_and_compared_as_by_hand() -> None:
    rng = random.Random(1)
    for _ in range(20):
        a, b, s = (rng.randrange(ORDER) for _ in range(3))
        x, y = by_hand.multiply(a, by_hand.BASE), by_hand.multiply(b, by_hand.BASE)
        ours, others = Element.from_bytes(by_hand.encode(x)), Element.from_bytes(by_hand.encode(y))
        assert bytes(ours + others) == by_hand.encode(by_hand.add(x, y))
        assert bytes(ours * s) == by_hand.encode(by_hand.multiply(s, x))
        assert linear(s, ours, b) == ours * s + times_generator(b)
        assert ours != others
        assert ours == times_generator(a)


@given(a=exponents, b=exponents, s=exponents)
def test_the_laws_of_the_group(a: int, b: int, s: int) -> None:
    x, y = times_generator(a), times_generator(b)
    assert x + y == y + x == times_generator(a + b)
    assert x - y == times_generator(a - b)
    assert (x + y) * s == x * s + y * s == times_generator((a + b) * s)
    assert x + x == x * 2
    assert x - x == Element.identity()
    assert Element.from_bytes(bytes(x)) == x
    assert (bytes(x) == bytes(y)) == (x == y) == (a % ORDER == b % ORDER)
    assert linear(s, x, b) == x * s + y


def test_every_torsion_point_stands_for_the_same_element() -> None:
    """ristretto255 is a quotient: adding a point of order 4 changes the coordinates and not the element."""
    torsion = [(0, 1), (0, by_hand.P - 1), (by_hand.I, 0), (by_hand.P - by_hand.I, 0)]
    for k in (0, 1, 5, ORDER - 3):
        for point in torsion:
            x, y = by_hand.add(by_hand.multiply(k, by_hand.BASE), point)
            coordinates = [one for number in (x, y, 1, x * y) for one in field.limbs(number)]
            moved = Element(np.array(coordinates, np.uint64))
            assert moved == times_generator(k)
            assert bytes(moved) == bytes(times_generator(k))


def test_openssl_has_the_same_curve() -> None:
    ed25519 = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.ed25519")
    for i in range(25):
        seed = hashlib.sha256(bytes([i])).digest()
        secret = bytearray(hashlib.sha512(seed).digest()[:32])
        secret[0] &= 248
        secret[31] = secret[31] & 127 | 64
        point = by_hand.edwards(ed25519.Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw())
        assert bytes(times_generator(int.from_bytes(secret, "little"))) == by_hand.encode(point)


def test_libsodium_gives_the_same_bytes() -> None:
    sodium = pytest.importorskip("rbcl")
    rng = random.Random(2)
    for _ in range(1000):
        hashed = rng.randbytes(64)
        point = bytes(sodium.crypto_core_ristretto255_from_hash(hashed))
        other = bytes(sodium.crypto_core_ristretto255_from_hash(rng.randbytes(64)))
        k = rng.randrange(1, ORDER)
        scalar = k.to_bytes(32, "little")
        ours, others = Element.from_bytes(point), Element.from_bytes(other)
        assert bytes(ours) == point
        assert bytes(ours * k) == bytes(sodium.crypto_scalarmult_ristretto255(scalar, point))
        assert bytes(times_generator(k)) == bytes(sodium.crypto_scalarmult_ristretto255_base(scalar))
        assert bytes(ours + others) == bytes(sodium.crypto_core_ristretto255_add(point, other))
        assert bytes(ours - others) == bytes(sodium.crypto_core_ristretto255_sub(point, other))
        points: Any = np.empty((1, 20), np.uint64)
        map_all(np.frombuffer(hashed, "<u8").reshape(1, 8).astype(np.uint64), points)
        assert bytes(Element(points[0])) == point
        wide = np.frombuffer(hashed, "<u8").reshape(1, 8).astype(np.uint64)
        assert reduced_words(wide).astype("<u8").tobytes() == bytes(sodium.crypto_core_ristretto255_scalar_reduce(hashed))


def is_element(data: bytes) -> bool:
    try:
        Element.from_bytes(data)
    except InputError:
        return False
    return True


def test_libsodium_accepts_the_same_strings() -> None:
    """Those below 2²⁵⁵; libsodium 1.0.18, which rbcl has, drops the top bit of others, and RFC 9496 refuses them."""
    sodium = pytest.importorskip("rbcl")
    rng = random.Random(3)
    tried = [rng.randbytes(31) + bytes([rng.randrange(128)]) for _ in range(10_000)]
    found = [is_element(one) for one in tried]
    assert found == [bool(sodium.crypto_core_ristretto255_is_valid_point(one)) for one in tried]
    assert 300 < sum(found) < 2000
    assert not any(is_element(one[:31] + bytes([one[31] | 128])) for one in tried)


def test_strings_are_elements_as_by_hand() -> None:
    rng = random.Random(4)
    tried = [rng.randbytes(31) + bytes([rng.randrange(128)]) for _ in range(300)]
    assert [is_element(one) for one in tried] == [by_hand.decode(one) is not None for one in tried]


@given(wide=st.lists(st.one_of(st.integers(0, 2**512 - 1), st.sampled_from([0, ORDER, ORDER - 1, 2**512 - 1, ORDER << 259])), min_size=1))
def test_numbers_of_512_bits_are_reduced(wide: list[int]) -> None:
    words = np.array([[one >> 64 * k & (1 << 64) - 1 for k in range(8)] for one in wide], np.uint64)
    assert integers(reduced_words(words)) == [one % ORDER for one in wide]


@given(pairs=st.lists(st.tuples(exponents, exponents), max_size=40), start=exponents)
@example(pairs=[(ORDER - 1, ORDER - 1)] * 1000, start=ORDER - 1)
def test_an_inner_product_is_that_of_the_integers(pairs: list[tuple[int, int]], start: int) -> None:
    from armillary.trust.outsourcing.summing.inner import inner_product

    x, y = (as_scalars([pair[side] for pair in pairs]) for side in (0, 1))
    wanted = (start + sum(a * b for a, b in pairs)) % ORDER
    found: Any = np.empty(4, np.uint64)
    inner_into(x, y, scalar_words(start)[0], found)
    assert integers(found.reshape(1, 4)) == [wanted]
    assert integers(inner_product(x, y, start=scalar_words(start)[0], threads=2).reshape(1, 4)) == [wanted]


def test_an_inner_product_is_the_same_on_two_threads() -> None:
    from armillary.trust.outsourcing.group.bases import random_scalars
    from armillary.trust.outsourcing.summing.inner import WORTH_A_THREAD, inner_product

    rng = np.random.Generator(np.random.PCG64DXSM(5))
    x, y = (as_scalars(random_scalars(rng, 2 * WORTH_A_THREAD + 3)) for _ in range(2))
    one, two = (integers(inner_product(x, y, threads=threads).reshape(1, 4))[0] for threads in (1, 2))
    assert one == two == sum(a * b for a, b in zip(integers(x), integers(y))) % ORDER


@pytest.mark.parametrize(
    ("given_scalars", "said"),
    [
        ([1, ORDER], "scalar 1: found 7237005577"),
        ([-1], "scalar 0: found -1"),
        (ORDER.to_bytes(32, "little"), "scalar 0: found edd3f55c1a631258"),
        (bytes(31), "found 31 bytes; expected a multiple of 32"),
        (np.zeros((2, 3), np.uint64), r"shape \(2, 3\)"),
        (np.zeros((2, 4)), "float64"),
        (np.full((1, 4), 2**64 - 1, np.uint64), "expected a number below q"),
    ],
)
def test_scalars_that_are_none_are_refused(given_scalars: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        as_scalars(given_scalars)


def test_the_largest_scalar_is_taken() -> None:
    assert integers(as_scalars([0, ORDER - 1])) == [0, ORDER - 1]
    assert scalars.first_large(as_scalars([ORDER - 1])) == -1


def test_generators_of_a_label_begin_with_those_of_a_shorter_list() -> None:
    assert bytes(Bases.from_label("a", 40))[: 32 * 7] == bytes(Bases.from_label("a", 7))
    assert bytes(Bases.from_label("a", 7)) != bytes(Bases.from_label("b", 7))
    assert len({bytes(Bases.from_label("a", 40).element(i)) for i in range(40)}) == 40
    assert bytes(Bases.from_bytes(bytes(Bases.from_label("a", 40)))) == bytes(Bases.from_label("a", 40))
    with pytest.raises(InputError, match="expected at most 16,777,216"):
        Bases.from_label("a", (1 << 24) + 1)
    with pytest.raises(InputError, match="expected at most"):
        Bases.from_label("a", -1)


def test_a_wrong_length_is_named() -> None:
    with pytest.raises(InputError, match="found 33 bytes"):
        Bases.from_bytes(bytes(33))
    with pytest.raises(InputError, match="base 1: found 31 bytes"):
        Bases.from_encodings([bytes(32), bytes(31)])
    with pytest.raises(InputError, match="found 31 bytes"):
        Element.from_bytes(os.urandom(31))
