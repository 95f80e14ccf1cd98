"""Whole numbers of several words in compiled loops, with all the bits that Numba's integers would lose.

A number is a tuple of uint64 words, least first. The operations are LLVM's own on integers of as many bits, which have no branches. That
is not enough for secrets: a compiler that sees what a mask is made of may put a branch in its place, and LLVM does. A mask that comes
out of `hidden` stays one.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.core.errors import TypingError
from numba.extending import intrinsic

__all__ = ["added", "dot", "hidden", "taken", "times"]

#: Inside compiled code an intrinsic takes one argument less than its definition, so no type fits both.
_intrinsic: Any = intrinsic
_WORD = 64


def _words(*found: Any) -> None:
    for one in found:
        if not (isinstance(one, types.UniTuple) and one.dtype == types.uint64 and one.count):
            raise TypingError(f"found {one}; expected a tuple of uint64 words")


def _joined(builder: Any, value: Any, count: int, bits: int) -> Any:
    """The integer of `bits` bits that a tuple of words stands for."""
    long, whole = ir.IntType(bits), None
    for i in range(count):
        one = builder.extract_value(value, i)
        one = builder.zext(one, long) if bits > _WORD else one
        whole = one if whole is None else builder.or_(whole, builder.shl(one, ir.Constant(long, _WORD * i)))
    return whole


def _parted(builder: Any, whole: Any, count: int) -> Any:
    """An integer as a tuple of words."""
    long, word = ir.IntType(_WORD * count), ir.IntType(_WORD)
    if count == 1:
        return cgutils.pack_array(builder, [whole])
    return cgutils.pack_array(builder, [builder.trunc(builder.lshr(whole, ir.Constant(long, _WORD * i)), word) for i in range(count)])


@_intrinsic
def dot(typing_context: Any, total: Any, a: Any, b: Any) -> Any:
    """total + Σ aᵢ·bᵢ, where every aᵢ and bᵢ is one word and the sum keeps as many words as `total`."""
    _words(total, a, b)
    if a.count != b.count or total.count < 2:
        raise TypingError(f"found {a.count} and {b.count} factors and {total.count} words of a sum; expected as many factors, two words")

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        bits = _WORD * total.count
        found, double, long = _joined(builder, arguments[0], total.count, bits), ir.IntType(2 * _WORD), ir.IntType(bits)
        for i in range(a.count):
            x, y = (builder.zext(builder.extract_value(one, i), double) for one in arguments[1:])
            one = builder.mul(x, y)
            found = builder.add(found, one if total.count == 2 else builder.zext(one, long))
        return _parted(builder, found, total.count)

    return total(total, a, b), generate


@_intrinsic
def added(typing_context: Any, a: Any, b: Any) -> Any:
    """a + b in as many words as each has; a carry out of the last is lost."""
    _words(a, b)
    return a(a, b), _pairwise("add", a, b)


@_intrinsic
def taken(typing_context: Any, a: Any, b: Any) -> Any:
    """a − b in as many words as each has; below 0 it counts from 2 to the power of their bits."""
    _words(a, b)
    return a(a, b), _pairwise("sub", a, b)


def _pairwise(operation: str, a: Any, b: Any) -> Any:
    if a.count != b.count:
        raise TypingError(f"found {a.count} and {b.count} words; expected as many")

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        x, y = (_joined(builder, one, a.count, _WORD * a.count) for one in arguments)
        return _parted(builder, getattr(builder, operation)(x, y), a.count)

    return generate


@_intrinsic
def times(typing_context: Any, a: Any, b: Any) -> Any:
    """a·b, in as many words as both have together."""
    _words(a, b)
    count = a.count + b.count

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        x, y = (_joined(builder, one, kind.count, _WORD * count) for one, kind in zip(arguments, (a, b)))
        return _parted(builder, builder.mul(x, y), count)

    return types.UniTuple(types.uint64, count)(a, b), generate


@_intrinsic
def hidden(typing_context: Any, word: Any) -> Any:
    """The same word, of which the compiler no longer knows where it comes from: an empty piece of assembly stands between."""
    if word != types.uint64:
        raise TypingError(f"found {word}; expected uint64")

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        long = ir.IntType(_WORD)
        return builder.asm(ir.FunctionType(long, [long]), "", "=r,0", [arguments[0]], False)

    return word(word), generate
