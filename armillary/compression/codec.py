"""Sockets of the compression arenas: a numcodecs codec and a Zarr 3 array-to-bytes codec, each over a pair of functions.

An arena inherits `ArrayCodec`, which is a `numcodecs.abc.Codec` (for Zarr 2, Kerchunk, HDF5 tools), and wraps it once with `zarr_codec`
for Zarr 3. Needs numcodecs and zarr, which are optional.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numcodecs.abc import Codec  # type: ignore[import-untyped]
from numcodecs.compat import ensure_contiguous_ndarray_like, ndarray_copy  # type: ignore[import-untyped]

from armillary.errors import InputError, unknown


class ArrayCodec(Codec):  # type: ignore[misc]
    """An array to bytes and back, with parameters that a store keeps; subclasses give `pack`, `unpack` and `defaults`."""

    #: Parameters and their defaults: what `get_config` keeps.
    defaults: ClassVar[Mapping[str, Any]] = {}
    #: The most bytes that `unpack` makes. It is no parameter, because parameters come from the store that is read.
    most_bytes: ClassVar[int] = 1 << 30

    def __init__(self, **parameters: Any) -> None:
        for name in parameters:
            if name not in self.defaults:
                raise unknown("parameter", name, self.defaults, where=str(self.codec_id))
        self.parameters = {**self.defaults, **parameters}
        self.validate()

    def validate(self) -> None:
        """Raises InputError where the parameters are not sensible."""

    def pack(self, x: np.ndarray) -> bytes:
        """The array as bytes that say what they hold."""
        raise NotImplementedError

    def unpack(self, data: memoryview) -> np.ndarray:
        """The array."""
        raise NotImplementedError

    def encode(self, buf: Any) -> bytes:
        """`buf` as bytes."""
        array = np.asarray(buf)
        return self.pack(array if array.ndim else array.reshape(1))

    def decode(self, buf: Any, out: Any = None) -> Any:
        """The array, into `out` where it is given."""
        found = self.unpack(memoryview(ensure_contiguous_ndarray_like(buf)).cast("B"))
        return found if out is None else ndarray_copy(found, out)

    def get_config(self) -> dict[str, Any]:
        """What a store writes down to make the codec again."""
        return {"id": self.codec_id, **self.parameters}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """The codec that a store wrote down."""
        return cls(**{key: value for key, value in config.items() if key != "id"})

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in self.parameters.items())})"


def zarr_codec(codec: type[ArrayCodec], name: str) -> Any:
    """The class of that name that makes `codec` the serializer of a Zarr 3 array."""
    from zarr.abc.codec import ArrayBytesCodec

    @dataclass(frozen=True, init=False)
    class ZarrCodec(ArrayBytesCodec):
        """An `ArrayCodec` as the serializer of a Zarr 3 array."""

        parameters: dict[str, Any]
        is_fixed_size = False
        wrapped: ClassVar[type[ArrayCodec]] = codec

        def __init__(self, **parameters: Any) -> None:
            object.__setattr__(self, "parameters", self.wrapped(**parameters).parameters)

        @classmethod
        def from_dict(cls, data: Mapping[str, Any]) -> Any:
            found = data.get("configuration") or {}
            if data.get("name") != cls.wrapped.codec_id or not isinstance(found, Mapping):
                raise InputError(f"codec: found {data.get('name')!r}; expected {cls.wrapped.codec_id!r} with a configuration")
            return cls(**found)

        def to_dict(self) -> dict[str, Any]:
            return {"name": self.wrapped.codec_id, "configuration": dict(self.parameters)}

        def compute_encoded_size(self, input_byte_length: int, _chunk_spec: Any) -> int:
            raise NotImplementedError("compressed sizes depend on the data")

        async def _encode_single(self, chunk_array: Any, chunk_spec: Any) -> Any:
            packed = self.wrapped(**self.parameters).pack(np.ascontiguousarray(chunk_array.as_numpy_array()))
            return chunk_spec.prototype.buffer.from_bytes(packed)

        async def _decode_single(self, chunk_bytes: Any, chunk_spec: Any) -> Any:
            found = self.wrapped(**self.parameters).unpack(memoryview(chunk_bytes.to_bytes()))
            if tuple(found.shape) != tuple(chunk_spec.shape):
                raise InputError(f"chunk: found shape {found.shape}; expected {tuple(chunk_spec.shape)}")
            return chunk_spec.prototype.nd_buffer.from_numpy_array(found)

        def __hash__(self) -> int:
            return hash((type(self), tuple(sorted(self.parameters.items()))))

    ZarrCodec.__name__ = ZarrCodec.__qualname__ = name
    return ZarrCodec
