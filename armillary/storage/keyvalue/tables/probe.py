"""One vector comparison tells which lanes of a bucket hold a key: the probe primitive, written once as LLVM vector IR.

A bucket is one 64-byte line, 16 keys of 32 bits or 8 of 64. `match(keys, slot, key)` loads the line, spreads the key over all lanes,
compares and returns the lanes that are equal as the bits of an integer. The IR names no vendor's instruction: LLVM makes of it one
`vpcmpeqd` of a 512-bit register into a mask register where there is AVX-512, two 256-bit compares on AVX2, and what other processors
have elsewhere. `probe_assembly` shows it for any processor.

Everything here is compiled into the kernels of this arena; nothing allocates.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import binding, ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic

from armillary.kernels import kernel as kernel
from armillary.kernels import part as part

LINE = 64


def emit_match(builder: Any, pointer: Any, key: Any, lanes: int, align: int, predicate: str = "==") -> Any:
    """Emits IR for the lanes at `pointer` for which `lane predicate key`, as the low bits of a 32-bit integer."""
    vector = ir.VectorType(key.type, lanes)
    line = builder.load(builder.bitcast(pointer, vector.as_pointer()))
    line.align = align
    first = builder.insert_element(ir.Constant(vector, ir.Undefined), key, ir.IntType(32)(0))
    spread = builder.shuffle_vector(
        first, ir.Constant(vector, ir.Undefined), ir.Constant(ir.VectorType(ir.IntType(32), lanes), [0] * lanes)
    )
    equal = builder.icmp_unsigned(predicate, line, spread)
    return builder.zext(builder.bitcast(equal, ir.IntType(lanes)), ir.IntType(32))


def _matcher(lanes_of: Callable[[int], int], predicate: str) -> Any:
    """Returns an intrinsic `(array, slot, key) -> uint32`; `slot` is the index of the first of `lanes` lanes and a multiple of them."""

    @intrinsic
    def compare(typing, array, slot, key):
        bits = array.dtype.bitwidth
        lanes = lanes_of(bits)

        def build(context, builder, signature, arguments):
            data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
            pointer = builder.gep(data, [arguments[1]])
            return emit_match(builder, pointer, arguments[2], lanes, lanes * bits // 8, predicate)

        return types.uint32(array, types.intp, array.dtype), build

    return compare


#: Lanes of a whole line that equal the key.
match = _matcher(lambda bits: 8 * LINE // bits, "==")
#: Lanes of a whole line that are not below the key, unsigned: with TOMB, the free ones.
match_from = _matcher(lambda bits: 8 * LINE // bits, ">=")
#: Four neighbouring keys, for buckets of four.
match4 = _matcher(lambda bits: 4, "==")
#: Sixteen one-byte tags.
match_tags = _matcher(lambda bits: 16, "==")


@intrinsic
def first_lane(typing, mask):
    """Returns the number of the lowest set bit; `mask` is not zero."""

    def build(context, builder, signature, arguments):
        return builder.zext(builder.cttz(arguments[0], ir.IntType(1)(1)), ir.IntType(64))

    return types.intp(types.uint32), build


@intrinsic
def lane_count(typing, mask):
    """Returns how many bits are set."""

    def build(context, builder, signature, arguments):
        return builder.zext(builder.ctpop(arguments[0]), ir.IntType(64))

    return types.intp(types.uint32), build


@intrinsic
def prefetch(typing, array, index):
    """Starts the fetch of the line of `array[index]`, for reading."""

    def build(context, builder, signature, arguments):
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        byte_pointer, int32 = ir.IntType(8).as_pointer(), ir.IntType(32)
        signature_ir = ir.FunctionType(ir.VoidType(), [byte_pointer, int32, int32, int32])
        prefetch_ir = builder.module.declare_intrinsic("llvm.prefetch", [byte_pointer], signature_ir)
        address = builder.bitcast(builder.gep(data, [arguments[1]]), byte_pointer)
        builder.call(prefetch_ir, [address, int32(0), int32(3), int32(1)])
        return context.get_dummy_value()

    return types.void(array, types.intp), build


@kernel
def match16(bucket, key):
    """Returns the lanes of one bucket of 16 keys (uint32, on a 64-byte line) that equal `key`, as bits."""
    return match(bucket, 0, np.uint32(key))


@kernel
def match8(bucket, key):
    """Returns the lanes of one bucket of 8 keys (uint64, on a 64-byte line) that equal `key`, as bits."""
    return match(bucket, 0, np.uint64(key))


def match_scalar(bucket: np.ndarray, key: int) -> int:
    """Computes the same mask lane by lane; the vector form is checked against it."""
    return sum(1 << lane for lane, held in enumerate(bucket.tolist()) if held == int(key))


def probe_ir(bits: int = 32) -> str:
    """Returns the probe as a module of LLVM IR with one function `probe(keys*, key) -> i32`; `bits` is 32 or 64."""
    key_type = ir.IntType(bits)
    module = ir.Module(name="probe")
    function = ir.Function(module, ir.FunctionType(ir.IntType(32), [key_type.as_pointer(), key_type]), name="probe")
    builder = ir.IRBuilder(function.append_basic_block())
    builder.ret(emit_match(builder, function.args[0], function.args[1], 8 * LINE // bits, LINE))
    return str(module)


def probe_assembly(cpu: str, bits: int = 32, triple: str = "x86_64-unknown-linux-gnu") -> str:
    """Returns the probe's assembly for a processor by LLVM's name (`sapphirerapids`, `znver4`, `haswell`), which need not be here."""
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    parsed = binding.parse_assembly(probe_ir(bits))
    parsed.verify()
    machine = binding.Target.from_triple(triple).create_target_machine(cpu=cpu, opt=3)
    return str(machine.emit_assembly(parsed))


@functools.cache
def isa() -> str:
    """Returns the widest vectors that the kernels get here: "AVX-512", "AVX2", or the name of the processor."""
    features = binding.get_host_cpu_features()
    if features.get("avx512f") and features.get("avx512bw"):
        return "AVX-512"
    return "AVX2" if features.get("avx2") else binding.get_host_cpu_name()
