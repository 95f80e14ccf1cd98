"""Memory that two threads share, and the calls of the C library that block, for compiled loops.

Addresses are whole numbers. A load acquires and a store releases, so what was written before the store is seen after the load.
"""

# Inside compiled code an intrinsic takes one argument less than its definition.
# mypy: disable-error-code="call-arg,import-untyped,no-untyped-call"

from __future__ import annotations

import platform
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic


@intrinsic
def load_acquire(typing_context: Any, address: Any) -> Any:
    """The 64-bit number at an address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load_atomic(builder.inttoptr(arguments[0], ir.IntType(64).as_pointer()), "acquire", 8)

    return types.int64(types.int64), generate


@intrinsic
def store_release(typing_context: Any, address: Any, value: Any) -> Any:
    """Stores a 64-bit number at an address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.store_atomic(arguments[1], builder.inttoptr(arguments[0], ir.IntType(64).as_pointer()), "release", 8)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


@intrinsic
def pause(typing_context: Any) -> Any:
    """Tells an x86 core that it spins; on others it does nothing."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if platform.machine() in ("x86_64", "AMD64"):
            builder.call(cgutils.get_or_insert_function(builder.module, ir.FunctionType(ir.VoidType(), []), "llvm.x86.sse2.pause"), [])
        return context.get_dummy_value()

    return types.void(), generate


@intrinsic
def c_read(typing_context: Any, file: Any, address: Any, size: Any) -> Any:
    """`read` of the C library."""
    return types.int64(types.int64, types.int64, types.int64), _moves("read")


@intrinsic
def c_write(typing_context: Any, file: Any, address: Any, size: Any) -> Any:
    """`write` of the C library."""
    return types.int64(types.int64, types.int64, types.int64), _moves("write")


def _moves(name: str) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(ir.IntType(64), [ir.IntType(32), ir.IntType(64), ir.IntType(64)])
        function = cgutils.get_or_insert_function(builder.module, kind, name)
        return builder.call(function, [builder.trunc(arguments[0], ir.IntType(32)), arguments[1], arguments[2]])

    return generate


@intrinsic
def c_syscall(typing_context: Any, number: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
    """`syscall` of the C library with four arguments."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(ir.IntType(64), [ir.IntType(64)], var_arg=True)
        function = cgutils.get_or_insert_function(builder.module, kind, "syscall")
        return builder.call(function, list(arguments))

    return types.int64(*[types.int64] * 5), generate
