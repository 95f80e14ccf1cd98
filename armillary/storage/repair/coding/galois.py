"""Arithmetic of bytes in the field of 256 elements, polynomial x^8 + x^4 + x^3 + x^2 + 1 (0x11D), as storage codes use it.

A sum is an XOR. A product by a constant c is linear over the bits of a byte, so it is the XOR of two looked-up values, one for each
nibble: c·x = low_c[x & 15] ^ high_c[x >> 4]. Tables of 16 bytes fit a vector register, and one shuffle instruction looks up 32 bytes at
once. Processors without AVX2 use a table of 256 bytes per constant instead, one byte at a time.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import binding, ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from armillary.errors import InputError
from armillary.kernels import loop

POLYNOMIAL = 0x11D
#: The number of bytes that one step of the vector kernel takes.
STEP = 64


def _powers() -> tuple[np.ndarray, np.ndarray]:
    exponent, logarithm = np.zeros(512, np.int64), np.zeros(256, np.int64)
    value = 1
    for power in range(255):
        exponent[power] = exponent[power + 255] = value
        logarithm[value] = power
        value <<= 1
        if value & 0x100:
            value ^= POLYNOMIAL
    return exponent, logarithm


EXPONENT, LOGARITHM = _powers()


def _products() -> np.ndarray:
    found = np.zeros((256, 256), np.uint8)
    logs = LOGARITHM[1:]
    found[1:, 1:] = EXPONENT[logs[:, None] + logs[None, :]]
    return found


#: Every product: PRODUCTS[a, b] = a·b.
PRODUCTS = _products()
#: NIBBLES[c] is low_c twice and then high_c twice, which two 32-byte registers hold.
NIBBLES = np.concatenate([np.tile(PRODUCTS[:, :16], 2), np.tile(PRODUCTS[:, np.arange(16) << 4], 2)], axis=1)
INVERSES = np.concatenate([[0], EXPONENT[255 - LOGARITHM[1:]]]).astype(np.uint8)
VECTORS = bool(dict(binding.get_host_cpu_features()).get("avx2", False))


def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Elementwise products of bytes; shapes broadcast as in NumPy."""
    return PRODUCTS[np.asarray(a, np.uint8), np.asarray(b, np.uint8)]


def matrix_product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The product of two matrices over the field."""
    return np.bitwise_xor.reduce(PRODUCTS[np.asarray(a)[:, :, None], np.asarray(b)[None, :, :]], axis=1)


def inverse(matrix: np.ndarray) -> np.ndarray:
    """The inverse of a square matrix over the field (Gauss-Jordan); an InputError if there is none."""
    n = len(matrix)
    work = np.concatenate([np.asarray(matrix, np.uint8), np.eye(n, dtype=np.uint8)], axis=1)
    if not _eliminate(work, PRODUCTS, INVERSES):
        raise InputError(f"a {n} by {n} matrix over GF(256) is singular")
    return work[:, n:].copy()


@loop
def _eliminate(work, products, inverses):
    n = len(work)
    for column in range(n):
        pivot = column
        while pivot < n and work[pivot, column] == 0:
            pivot += 1
        if pivot == n:
            return False
        if pivot != column:
            for j in range(2 * n):
                work[pivot, j], work[column, j] = work[column, j], work[pivot, j]
        scale = inverses[work[column, column]]
        for j in range(2 * n):
            work[column, j] = products[scale, work[column, j]]
        for row in range(n):
            factor = work[row, column]
            if row != column and factor != 0:
                for j in range(2 * n):
                    work[row, j] ^= products[factor, work[column, j]]
    return True


@intrinsic
def _sum_of_products(typingctx: Any, target: Any, sources: Any, tables: Any, count: Any, offset: Any) -> Any:
    """Writes the 64 bytes XOR_i c_i·x_i at address `target` + offset, where x_i stands at address sources[i] + offset.

    `sources` and `tables` are addresses too: of `count` addresses, and of `count` tables of 64 bytes (`NIBBLES[c_i]`).
    """
    signature = types.void(types.intp, types.intp, types.intp, types.intp, types.intp)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        target, sources, tables, count, offset = arguments
        byte, vector, word = ir.IntType(8), ir.VectorType(ir.IntType(8), 32), ir.IntType(64)
        kind = ir.FunctionType(vector, [vector, vector])
        shuffle = cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.avx2.pshuf.b")
        fifteen = ir.Constant(vector, [ir.Constant(byte, 15)] * 32)
        four = ir.Constant(vector, [ir.Constant(byte, 4)] * 32)

        def loaded(address: Any) -> Any:
            return builder.load(builder.inttoptr(address, vector.as_pointer()), align=1)

        sums = [cgutils.alloca_once_value(builder, ir.Constant(vector, [ir.Constant(byte, 0)] * 32)) for _ in range(STEP // 32)]
        for held in sums:
            builder.store(ir.Constant(vector, [ir.Constant(byte, 0)] * 32), held)
        with cgutils.for_range(builder, count) as loop:
            at = builder.add(sources, builder.mul(loop.index, ir.Constant(word, 8)))
            source = builder.add(builder.load(builder.inttoptr(at, word.as_pointer())), offset)
            table = builder.add(tables, builder.mul(loop.index, ir.Constant(word, 64)))
            low, high = loaded(table), loaded(builder.add(table, ir.Constant(word, 32)))
            for place, held in enumerate(sums):
                x = loaded(builder.add(source, ir.Constant(word, 32 * place)))
                below = builder.call(shuffle, [low, builder.and_(x, fifteen)])
                above = builder.call(shuffle, [high, builder.and_(builder.lshr(x, four), fifteen)])
                builder.store(builder.xor(builder.load(held), builder.xor(below, above)), held)
        for place, held in enumerate(sums):
            address = builder.add(builder.add(target, offset), ir.Constant(word, 32 * place))
            builder.store(builder.load(held), builder.inttoptr(address, vector.as_pointer()), align=1)
        return context.get_dummy_value()

    return signature, generate


@loop
def _combine_vectors(target, addresses, tables, count, length):
    for offset in range(0, length, STEP):
        _sum_of_products(target, addresses, tables, count, offset)


@loop
def _combine_bytes(target, coefficients, sources, products, start):
    for i in range(len(coefficients)):
        row, source = products[coefficients[i]], sources[i]
        for at in range(start, len(target)):
            target[at] ^= row[source[at]]


def combine(coefficients: np.ndarray, sources: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """XOR_i c_i·x_i over the rows x_i of `sources` (uint8[count, length]), which is what a helper, a switch or a decoder computes.

    Rows are contiguous. The sum is written to `out` if that is given.
    """
    sources = np.asarray(sources)
    if sources.dtype != np.uint8 or sources.ndim != 2 or (sources.shape[1] > 1 and sources.strides[1] != 1):
        sources = np.ascontiguousarray(sources, np.uint8)
    count, length = sources.shape
    found = np.zeros(length, np.uint8) if out is None else out
    coefficients = np.ascontiguousarray(coefficients, np.uint8)
    whole = length - length % STEP if VECTORS and count else 0
    if whole:
        addresses = sources.ctypes.data + sources.strides[0] * np.arange(count, dtype=np.int64)
        tables = NIBBLES[coefficients]
        _combine_vectors(found.ctypes.data, addresses.ctypes.data, tables.ctypes.data, count, whole)
    if whole < length:
        found[whole:] = 0
        _combine_bytes(found, coefficients, sources, PRODUCTS, whole)
    elif not count:
        found[:] = 0
    return found


def combine_rows(coefficients: np.ndarray, rows: list[np.ndarray], length: int) -> np.ndarray:
    """XOR_i c_i·x_i of rows that lie anywhere in memory, each of which is contiguous and has `length` bytes."""
    found = np.zeros(length, np.uint8)
    whole = length - length % STEP if VECTORS and rows else 0
    if whole:
        addresses = np.array([row.ctypes.data for row in rows], np.int64)
        tables = NIBBLES[coefficients]
        _combine_vectors(found.ctypes.data, addresses.ctypes.data, tables.ctypes.data, len(rows), whole)
    for c, row in zip(coefficients, rows):
        found[whole:] ^= PRODUCTS[c][row[whole:]]
    return found
