"""`LogLines` compresses arrays of log lines in any program that takes numcodecs."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from armillary.errors import InputError
from armillary.extras import MissingPackage

from ...codec import ArrayCodec


class LogLines(ArrayCodec):
    """Compresses an array of bytes lines (dtype S, or object of bytes), with fields reordered by CFseq where there are fields."""

    codec_id = "armillary.log-lines"
    defaults: ClassVar[Mapping[str, Any]] = {"compressor": "zstd-3", "format": "auto", "budget_s": 1.0}

    def validate(self) -> None:
        """Refuses an unknown compressor."""
        from ..streams.compressors import compressor

        compressor(self.parameters["compressor"])

    def pack(self, x: np.ndarray) -> bytes:
        """Returns a head with dtype and shape, then the compressed lines with their plan in front."""
        from ..cfseq import CFseq
        from ..planning.plan import written
        from ..streams.compressors import compressor

        if x.dtype.kind not in "SO":
            raise InputError(f"lines: found dtype {x.dtype}; expected bytes")
        lines = [bytes(line) for line in x.reshape(-1).tolist()]
        if any(b"\n" in line for line in lines):
            raise InputError("lines: found a newline inside a line; expected none")
        text = b"".join(line + b"\n" for line in lines)
        planned = False
        try:
            maker = CFseq(compressor=self.parameters["compressor"], budget_s=self.parameters["budget_s"], format=self.parameters["format"])
            plan = maker.fit(text)
            text, planned = written(plan, text), True
        except MissingPackage:
            raise
        except InputError:
            # The order stays for free text, for no lines, and where too many lines do not fit.
            pass
        head = json.dumps({"dtype": x.dtype.str, "shape": list(x.shape), "planned": planned}).encode()
        return struct.pack("<I", len(head)) + head + compressor(self.parameters["compressor"]).compress(text)

    def unpack(self, data: memoryview) -> np.ndarray:
        """Restores the array."""
        from ..planning.plan import unwritten
        from ..streams.compressors import compressor, too_large

        whole = bytes(data)
        length = struct.unpack_from("<I", whole)[0] if len(whole) >= 4 else 1 << 31
        if 4 + length > len(whole):
            raise InputError(f"lines: found {len(whole)} bytes; expected a head of {length}")
        try:
            head = json.loads(whole[4 : 4 + length])
            dtype, shape, planned = np.dtype(head["dtype"]), tuple(int(n) for n in head["shape"]), bool(head["planned"])
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
            raise InputError("lines: found a damaged head; expected dtype and shape") from None
        text = compressor(self.parameters["compressor"]).decompress(whole[4 + length :], most_bytes=self.most_bytes)
        if planned:
            text = unwritten(text, "lines")[1]
        lines = text.split(b"\n")[:-1]
        if dtype.kind not in "SO" or min(shape, default=0) < 0 or len(lines) != math.prod(shape):
            raise InputError(f"lines: found {len(lines)} lines of {dtype}; expected {shape}")
        if len(lines) * dtype.itemsize > self.most_bytes:
            raise too_large("lines", self.most_bytes)
        out = np.empty(len(lines), dtype)
        out[:] = lines
        return out.reshape(shape)
