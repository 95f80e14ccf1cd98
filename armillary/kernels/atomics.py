"""Atomic operations on the words of a shared array, and the calls by which a thread waits, for loops that run on several threads.

A word is an element of a one-dimensional, C-contiguous, aligned array of uint64; any other array is refused when the loop is compiled.
`load` acquires and `store` releases. `xchg`, `add` and `cas` are sequentially consistent, and so are
`load_seq_cst` and `store_seq_cst`. They take and give uint64 alone, because
Numba would make a float64 out of a uint64 and an int64.

The intrinsics name functions of the C library and no addresses, so loops that use them are kept in the cache like others.
"""

from __future__ import annotations

import platform
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.core.errors import TypingError
from numba.extending import intrinsic

__all__ = [
    "add", "cas", "futex_wait", "futex_wake", "load", "load_seq_cst", "mutex_lock", "mutex_unlock", "pause", "store", "store_seq_cst",
    "xchg", "yield_core",
]  # fmt: skip

#: The number of the futex call by processor.
FUTEX = {"x86_64": 202, "aarch64": 98}
WORD_BYTES = 8
#: Inside compiled code an intrinsic takes one argument less than its definition, so no type fits both.
_intrinsic: Any = intrinsic


def _word(words: Any, *values: Any) -> None:
    fits = isinstance(words, types.Array) and words.dtype == types.uint64 and words.ndim == 1 and words.layout == "C"
    if not fits or not words.aligned or not words.mutable:
        raise TypingError(f"found {words}; expected a writable, aligned, C-contiguous array of uint64 in one dimension")
    for value in values:
        if not isinstance(value, types.Integer):
            raise TypingError(f"found {value}; expected an integer, because atomic operations take no floating-point numbers")


def _pointer(context: Any, builder: Any, kind: Any, words: Any, index: Any) -> Any:
    array = context.make_array(kind)(context, builder, words)
    if context.enable_boundscheck:
        cgutils.do_boundscheck(context, builder, index, builder.extract_value(array.shape, 0), 0)
    return builder.gep(array.data, [index])


@_intrinsic
def load(typing_context: Any, words: Any, index: Any) -> Any:
    """The word at `index`; nothing after it is done before it (acquire)."""
    _word(words, index)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load_atomic(_pointer(context, builder, signature.args[0], *arguments), "acquire", WORD_BYTES)

    return types.uint64(words, types.intp), generate


@_intrinsic
def load_seq_cst(typing_context: Any, words: Any, index: Any) -> Any:
    """The word at `index`, in one order with all sequentially consistent operations: for a look after a write that others look for."""
    _word(words, index)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load_atomic(_pointer(context, builder, signature.args[0], *arguments), "seq_cst", WORD_BYTES)

    return types.uint64(words, types.intp), generate


@_intrinsic
def store(typing_context: Any, words: Any, index: Any, value: Any) -> Any:
    """Writes a word; everything before it is done before it (release)."""
    _word(words, index, value)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.store_atomic(arguments[2], _pointer(context, builder, signature.args[0], *arguments[:2]), "release", WORD_BYTES)
        return context.get_dummy_value()

    return types.none(words, types.intp, types.uint64), generate


@_intrinsic
def store_seq_cst(typing_context: Any, words: Any, index: Any, value: Any) -> Any:
    """Writes a word; a later load of this thread is not done before it is visible (sequentially consistent)."""
    _word(words, index, value)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.store_atomic(arguments[2], _pointer(context, builder, signature.args[0], *arguments[:2]), "seq_cst", WORD_BYTES)
        return context.get_dummy_value()

    return types.none(words, types.intp, types.uint64), generate


@_intrinsic
def xchg(typing_context: Any, words: Any, index: Any, value: Any) -> Any:
    """Writes a word and gives what stood there."""
    _word(words, index, value)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.atomic_rmw("xchg", _pointer(context, builder, signature.args[0], *arguments[:2]), arguments[2], "seq_cst")

    return types.uint64(words, types.intp, types.uint64), generate


@_intrinsic
def add(typing_context: Any, words: Any, index: Any, value: Any) -> Any:
    """Adds to a word, modulo 2⁶⁴, and gives what stood there before."""
    _word(words, index, value)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.atomic_rmw("add", _pointer(context, builder, signature.args[0], *arguments[:2]), arguments[2], "seq_cst")

    return types.uint64(words, types.intp, types.uint64), generate


@_intrinsic
def cas(typing_context: Any, words: Any, index: Any, expected: Any, value: Any) -> Any:
    """Writes a word if `expected` stands there; gives what stood there, which is `expected` where it was written."""
    _word(words, index, expected, value)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        where = _pointer(context, builder, signature.args[0], *arguments[:2])
        return builder.extract_value(builder.cmpxchg(where, arguments[2], arguments[3], "seq_cst", "seq_cst"), 0)

    return types.uint64(words, types.intp, types.uint64, types.uint64), generate


@_intrinsic
def pause(typing_context: Any) -> Any:
    """Tells the core that the thread spins: `pause` on x86, `yield` on ARM, nothing elsewhere."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        machine = platform.machine()
        if machine in ("x86_64", "AMD64"):
            builder.call(_function(builder, ir.FunctionType(ir.VoidType(), []), "llvm.x86.sse2.pause"), [])
        elif machine in ("aarch64", "arm64"):
            hint = _function(builder, ir.FunctionType(ir.VoidType(), [ir.IntType(32)]), "llvm.aarch64.hint")
            builder.call(hint, [ir.Constant(ir.IntType(32), 1)])
        return context.get_dummy_value()

    return types.none(), generate


@_intrinsic
def yield_core(typing_context: Any) -> Any:
    """Lets another thread have the core (sched_yield)."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.call(_function(builder, ir.FunctionType(ir.IntType(32), []), "sched_yield"), [])
        return context.get_dummy_value()

    return types.none(), generate


@_intrinsic
def futex_wait(typing_context: Any, words: Any, index: Any, value: Any, most_ns: Any) -> Any:
    """Sleeps while the lower half of the word is that of `value`, until `futex_wake` or for `most_ns` at most, less than a second."""
    _word(words, index, value, most_ns)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        long, where = ir.IntType(64), _pointer(context, builder, signature.args[0], *arguments[:2])
        period = cgutils.alloca_once(builder, long, size=2)
        builder.store(ir.Constant(long, 0), builder.gep(period, [ir.Constant(long, 0)]))
        builder.store(arguments[3], builder.gep(period, [ir.Constant(long, 1)]))
        low = builder.zext(builder.trunc(arguments[2], ir.IntType(32)), long)
        _futex(builder, where, 0, low, builder.ptrtoint(period, long))
        return context.get_dummy_value()

    return types.none(words, types.intp, types.uint64, types.int64), generate


@_intrinsic
def futex_wake(typing_context: Any, words: Any, index: Any) -> Any:
    """Wakes every thread that sleeps on the word."""
    _word(words, index)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        long = ir.IntType(64)
        where = _pointer(context, builder, signature.args[0], *arguments)
        _futex(builder, where, 1, ir.Constant(long, 0x7FFFFFFF), ir.Constant(long, 0))
        return context.get_dummy_value()

    return types.none(words, types.intp), generate


@_intrinsic
def mutex_lock(typing_context: Any, words: Any, index: Any) -> Any:
    """Locks the C library's mutex that lies at this word; words of 0 are one that nobody holds."""
    _word(words, index)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _on_mutex(context, builder, signature, arguments, "pthread_mutex_lock")

    return types.int32(words, types.intp), generate


@_intrinsic
def mutex_unlock(typing_context: Any, words: Any, index: Any) -> Any:
    """Unlocks the C library's mutex that lies at this word."""
    _word(words, index)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _on_mutex(context, builder, signature, arguments, "pthread_mutex_unlock")

    return types.int32(words, types.intp), generate


def _function(builder: Any, kind: Any, name: str) -> Any:
    return cgutils.get_or_insert_function(builder.module, kind, name)


def _on_mutex(context: Any, builder: Any, signature: Any, arguments: Any, name: str) -> Any:
    where = _pointer(context, builder, signature.args[0], *arguments)
    return builder.call(_function(builder, ir.FunctionType(ir.IntType(32), [where.type]), name), [where])


def _futex(builder: Any, where: Any, operation: int, value: Any, timeout: Any) -> None:
    number = FUTEX.get(platform.machine())
    if number is None:
        raise TypingError(f"found the processor {platform.machine()}; expected one of {', '.join(FUTEX)} for futexes")
    long = ir.IntType(64)
    call = _function(builder, ir.FunctionType(long, [long], var_arg=True), "syscall")
    address = builder.ptrtoint(where, long)
    zero = ir.Constant(long, 0)
    builder.call(call, [ir.Constant(long, number), address, ir.Constant(long, operation), value, timeout, zero, zero])
