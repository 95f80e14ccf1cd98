"""The field, the codes and their coefficients: by hand, against galois, zfec and pyeclib, and with bad input."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.errors import InputError
from armillary.storage.repair import ReedSolomon
from armillary.storage.repair.coding import galois
from armillary.storage.repair.coding.reed_solomon import generator


def test_products_by_hand() -> None:
    """2·0x80 wraps round the polynomial; 3·7 is 7 + 14 without carries."""
    assert galois.product(np.array(2), np.array(0x80)) == 0x1D
    assert galois.product(np.array(3), np.array(7)) == 9
    assert galois.product(np.array(0), np.array(200)) == 0
    assert all(galois.PRODUCTS[x, galois.INVERSES[x]] == 1 for x in range(1, 256))


def test_the_whole_multiplication_table_is_that_of_galois() -> None:
    peer = pytest.importorskip("galois")
    field = peer.GF(2**8, irreducible_poly=peer.Poly.Int(0x11D), compile="python-calculate")  # avoids a compilation
    values = np.arange(256, dtype=np.uint8)
    assert np.array_equal(galois.PRODUCTS, np.asarray(field(values)[:, None] * field(values)[None, :]))
    rng = np.random.default_rng(1)
    for n in (1, 2, 7, 16):
        matrix = generator(n, 16)[np.sort(rng.choice(n + 16, n, replace=False))]
        assert np.array_equal(galois.inverse(matrix), np.asarray(np.linalg.inv(field(np.array(matrix)))))


@settings(max_examples=60)
@given(st.integers(0, 300), st.integers(0, 9), st.integers(0, 2**32 - 1))
def test_a_sum_of_products_is_the_table_s_at_every_length(length: int, count: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    coefficients = rng.integers(0, 256, count, np.uint8)
    wide = rng.integers(0, 256, (count, length + 5), np.uint8)
    for sources in (wide[:, :length], wide[:, 3 : 3 + length]):
        obvious = np.bitwise_xor.reduce(galois.PRODUCTS[coefficients[:, None], sources], axis=0, initial=0).astype(np.uint8)
        out = np.full(length, 99, np.uint8)
        assert galois.combine(coefficients, sources, out) is out
        assert np.array_equal(out, obvious)


def test_the_byte_kernel_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    sources, coefficients = rng.integers(0, 256, (5, 1000), np.uint8), rng.integers(0, 256, 5, np.uint8)
    first = galois.combine(coefficients, sources)
    monkeypatch.setattr(galois, "VECTORS", False)
    assert np.array_equal(galois.combine(coefficients, sources), first)


@pytest.mark.parametrize("matrix", ["vandermonde", "cauchy"])
@pytest.mark.parametrize(("k", "m"), [(4, 2), (3, 3), (6, 3), (1, 2), (5, 0)])
def test_every_loss_that_the_code_allows_comes_back_and_no_other(k: int, m: int, matrix: str) -> None:
    code = ReedSolomon(k, m, matrix)
    data = np.random.default_rng(k).integers(0, 256, (k, 77), np.uint8)
    stripe = np.concatenate([data, code.encode(data)])
    for size in range(m + 1):
        for lost in itertools.combinations(range(k + m), size):
            back = code.decode({i: stripe[i] for i in range(k + m) if i not in lost})
            assert set(back) == set(lost)
            assert all(np.array_equal(back[i], stripe[i]) for i in lost)
    for lost in itertools.combinations(range(k + m), m + 1):
        with pytest.raises(InputError, match=rf"found {k - 1} of {k + m} blocks .*expected at least k = {k}"):
            code.decode({i: stripe[i] for i in range(k + m) if i not in lost})


def test_single_and_double_losses_of_six_four_from_every_four_helpers() -> None:
    code = ReedSolomon(4, 2)
    data = np.random.default_rng(0).integers(0, 256, (4, 50), np.uint8)
    stripe = np.concatenate([data, code.encode(data)])
    for lost in range(6):
        for helpers in itertools.permutations([i for i in range(6) if i != lost], 4):
            coefficients = code.coefficients(lost, helpers)
            assert np.array_equal(galois.combine(coefficients, stripe[list(helpers)]), stripe[lost])


@settings(max_examples=150)
@given(st.sampled_from([(10, 4), (12, 4), (20, 20), (200, 55)]), st.sampled_from(["vandermonde", "cauchy"]), st.integers(0, 2**32 - 1))
def test_wide_codes_decode_from_any_k(size: tuple[int, int], matrix: str, seed: int) -> None:
    k, m = size
    rng = np.random.default_rng(seed)
    code = ReedSolomon(k, m, matrix)
    data = rng.integers(0, 256, (k, 65), np.uint8)
    stripe = np.concatenate([data, code.encode(data)])
    lost = set(rng.choice(k + m, m, replace=False).tolist())
    back = code.decode({i: stripe[i].tobytes() for i in range(k + m) if i not in lost})
    assert all(np.array_equal(back[i], stripe[i]) for i in lost)


def test_parity_is_that_of_zfec() -> None:
    """zfec uses the same field and the same Vandermonde construction, so the very bytes agree."""
    zfec = pytest.importorskip("zfec")
    rng = np.random.default_rng(2)
    for k, m in ((4, 2), (6, 3), (10, 4), (12, 4)):
        data = rng.integers(0, 256, (k, 256), np.uint8)
        shares = zfec.Encoder(k, k + m).encode([row.tobytes() for row in data], list(range(k + m)))
        ours = ReedSolomon(k, m).encode(data)
        assert [bytes(row) for row in ours] == [bytes(share) for share in shares[k:]]
        kept = sorted(rng.choice(k + m, k, replace=False).tolist())
        back = ReedSolomon(k, m).decode({i: shares[i] for i in kept}, wanted=range(k))
        assert all(np.array_equal(back[i], data[i]) for i in range(k))


def test_a_cauchy_stripe_is_that_of_isa_l() -> None:
    """isa-l's Cauchy rows are 1/(i ^ j) for i from k on, so the decoder of Ceph and Swift can read our bytes."""
    driver = pytest.importorskip("pyeclib.ec_iface")
    rng = np.random.default_rng(3)
    for k, m in ((4, 2), (10, 4)):
        peer = driver.ECDriver(k=k, m=m, ec_type="isa_l_rs_cauchy")
        fragments = peer.encode(rng.bytes(k * 1024))
        header = len(fragments[0]) - 1024
        stripe = [np.frombuffer(fragment, np.uint8)[header:] for fragment in fragments]
        ours = ReedSolomon(k, m, "cauchy").encode(np.stack(stripe[:k]))
        assert np.array_equal(ours, np.stack(stripe[k:]))


def test_bad_codes_and_blocks_are_one_line() -> None:
    code = ReedSolomon(4, 2)
    for make in (
        lambda: ReedSolomon(200, 56), lambda: ReedSolomon(0, 2), lambda: ReedSolomon(4, -1), lambda: ReedSolomon(4, 2, "random"),
        lambda: code.encode(np.zeros((3, 5), np.uint8)), lambda: ReedSolomon(2, 1).encode([b"abc", b"ab"]),
        lambda: code.coefficients(9, [0, 1, 2, 3]), lambda: code.coefficients(5, [0, 1, 2, 2]), lambda: code.coefficients(5, [0, 1, 2]),
        lambda: galois.inverse(np.zeros((2, 2), np.uint8)),
    ):  # fmt: skip
        with pytest.raises(InputError) as caught:
            make()
        assert "\n" not in str(caught.value)
