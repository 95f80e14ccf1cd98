"""What one process reads from another: damaged frames and values are refused, and nothing is allocated from a number in them."""

from __future__ import annotations

import json
import math

import damaged_wires
import numpy as np
import pytest

from armillary.comm import CommError, RankFailed
from armillary.comm.jobs.folder import collect, process
from armillary.comm.jobs.values import dump, load
from armillary.errors import InputError


def test_damaged_bytes_are_refused_or_decoded():
    outcomes = damaged_wires.check(400)
    assert outcomes["values", "refused"] > 100
    assert outcomes["answers", "refused"] > 100


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6).reshape(2, 3),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.zeros((0, 3), np.float32),
        np.array(2.5),
        np.array([1, 2], ">i4"),
        np.array(["ab", "c"]),
        np.zeros(2, [("a", "<i4"), ("b", "<f8", (2,)), ("c", [("x", "u1"), ("y", "<M8[ns]")])]),
    ],
)
def test_arrays_come_back_as_they_were(array):
    back = load(dump(array))
    assert back.dtype == array.dtype
    assert back.shape == array.shape
    assert back.flags.f_contiguous == array.flags.f_contiguous
    assert np.array_equal(back, array)
    assert back.flags.writeable


def crafted(**changed):
    tree = {"array": "<f8", "shape": [2], "order": "C", "scalar": False, **changed}
    text = json.dumps(tree).encode()
    return len(text).to_bytes(8, "little") + text + bytes(16)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"shape": [10**15]}, "expected at most the 16"),
        ({"shape": [1 << 62, 1 << 62]}, "expected at most the 16"),
        ({"shape": [-1, 2]}, "whole numbers of 0 or more"),
        ({"shape": [True, 2]}, "whole numbers of 0 or more"),
        ({"shape": [1] * 40}, "at most 32 dimensions"),
        ({"array": "|O"}, "expected numbers"),
        ({"array": "|S0", "shape": [10**12]}, "no bytes"),
        ({"array": "nonsense"}, "damaged"),
        ({"shape": [1]}, "8 bytes after the arrays"),
        ({"order": "Z"}, "damaged"),
    ],
)
def test_numbers_of_an_array_are_compared_with_the_bytes_that_are_there(changed, says):
    assert np.array_equal(load(crafted()), [0.0, 0.0])
    with pytest.raises(InputError, match=says):
        load(crafted(**changed))


def test_a_length_beyond_the_end_is_refused():
    with pytest.raises(InputError, match="expected all of them"):
        load((1 << 40).to_bytes(8, "little") + b"[]")


def test_a_report_of_a_failure_that_cannot_be_read_is_still_a_failure(tmp_path):
    (tmp_path / "failed.1").write_text("{")
    (tmp_path / "pid.0").write_text("[1")
    (tmp_path / "pid.1").write_text("[null, {}]")
    assert process(tmp_path, 0) is None
    assert process(tmp_path, 1) is None
    with pytest.raises(RankFailed, match="cannot be read"):
        collect(tmp_path, 2, lambda missing: (0, "gone"))


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ((9, 0, 0, 0, 0, 0, 0), "kind 9"),
        ((0, 8, 0, 0, 0, 0, 0), "flags 8"),
        ((0, 0, 0, 4, 0, 0, 0), "source 4"),
        ((0, 0, 0, -1, 0, 0, 0), "source -1"),
        ((0, 0, 0, 0, 40000, 0, 0), "tag 40000"),
        ((0, 0, 0, 0, 0, -1, 0), "length of -1"),
        ((0, 0, 0, 0, 0, 1 << 41, 0), "a length of"),
        ((0, 0, 0, 0, 0, 0, 1 << 40), "number"),
    ],
)
def test_a_frame_that_no_process_sends_is_refused(fields, says):
    pytest.importorskip("torch")
    from armillary.comm.torch_distributed.frames import decode, encode

    with pytest.raises(CommError, match=says):
        decode(encode(fields), 4)
    with pytest.raises(CommError, match="expected 512"):
        decode(encode(fields)[:100], 4)
    assert math.isfinite(decode(encode((0, 1, 5, 3, 2, 4, 1), np.arange(4, dtype=np.uint8)), 4)[0][5])
