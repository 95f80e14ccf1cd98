"""The probe: the right lanes, one instruction where there is AVX-512, two where there is AVX2."""

from __future__ import annotations

import re

import numpy as np
import pytest

from armillary.storage.keyvalue.tables.keys import aligned
from armillary.storage.keyvalue.tables.probe import isa, match8, match16, match_scalar, probe_assembly, probe_ir


@pytest.mark.parametrize("cpu", ["sapphirerapids", "znver4"])
@pytest.mark.parametrize(("bits", "compare"), [(32, "vpcmpeqd"), (64, "vpcmpeqq")])
def test_avx512_processors_probe_a_bucket_with_one_comparison(cpu: str, bits: int, compare: str) -> None:
    text = probe_assembly(cpu, bits)
    assert "zmm" in text
    found = re.findall(rf"{compare}\s.*", text)
    assert len(found) == 1
    assert re.search(r"%k\d", found[0]), "into a mask register"
    assert "kmov" in text


@pytest.mark.parametrize("bits", [32, 64])
def test_avx2_processors_take_two_halves(bits: int) -> None:
    text = probe_assembly("haswell", bits)
    assert "ymm" in text
    assert "zmm" not in text
    assert len(re.findall(r"vpcmpeq[dq]\s", text)) == 2


def test_other_processors_get_it_too() -> None:
    assert "cmeq" in probe_assembly("generic", 32, "aarch64-unknown-linux-gnu")
    assert "x86" not in probe_ir()
    assert isa()


@pytest.mark.parametrize(("match", "dtype"), [(match16, np.uint32), (match8, np.uint64)])
def test_every_lane_by_itself(match: object, dtype: type) -> None:
    lanes = 64 // np.dtype(dtype).itemsize
    for lane in range(lanes):
        bucket = aligned(lanes, dtype, 7)
        bucket[lane] = 9
        assert match(bucket, 9) == 1 << lane  # type: ignore[operator]
        assert match(bucket, 7) == (1 << lanes) - 1 - (1 << lane)  # type: ignore[operator]
        assert match(bucket, 8) == 0  # type: ignore[operator]


@pytest.mark.parametrize(("match", "dtype"), [(match16, np.uint32), (match8, np.uint64)])
def test_vector_and_scalar_masks_agree(match: object, dtype: type) -> None:
    rng = np.random.default_rng(3)
    width = np.dtype(dtype).itemsize
    bucket = aligned(64 // width, dtype)
    for _ in range(500):
        bucket[:] = rng.choice(rng.integers(0, 256, (5, width), dtype=np.uint8).view(dtype).ravel(), len(bucket))
        for key in {int(bucket[0]), int(bucket[-1]), 0, int(np.iinfo(dtype).max), int(bucket[3]) ^ 1 << (8 * width - 1)}:
            assert match(bucket, dtype(key)) == match_scalar(bucket, key)  # type: ignore[operator]
