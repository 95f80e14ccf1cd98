"""numcodecs and Zarr find the codecs and use them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

numcodecs = pytest.importorskip("numcodecs")

from armillary.compression.fields import FZ  # noqa: E402
from armillary.errors import InputError  # noqa: E402


def test_a_numcodecs_codec_survives_its_configuration() -> None:
    codec = FZ(mode="abs", bound=1e-2, pipeline="speed")
    numcodecs.register_codec(FZ)
    again = numcodecs.get_codec(codec.get_config())
    assert again == codec
    x = np.linspace(0, 1, 1000).reshape(10, 100)
    y = again.decode(codec.encode(x))
    assert np.max(np.abs(x - y)) <= 1e-2
    out = np.empty_like(x)
    codec.decode(codec.encode(x), out=out)
    assert np.array_equal(out, y)


def test_bad_parameters_are_told_when_the_codec_is_made() -> None:
    wrong = ("bound", -1, "positive finite"), ("tolerance", 1, 'unknown parameter "tolerance"'), ("pipeline", "best", "unknown pipeline")
    for name, value, says in wrong:
        with pytest.raises(InputError, match=says):
            FZ(**{name: value})
    with pytest.raises(InputError):
        FZ().decode(b"not a field")


def test_zarr_arrays_keep_the_bound(tmp_path: Path) -> None:
    zarr = pytest.importorskip("zarr")
    from zarr.registry import register_codec

    from armillary.compression.fields import FZZarr

    register_codec("armillary.fz", FZZarr)
    x = np.cumsum(np.random.default_rng(0).normal(size=(20, 30)), axis=1)
    made = zarr.create_array(
        str(tmp_path / "x.zarr"), shape=x.shape, dtype=x.dtype, chunks=(8, 30), serializer=FZZarr(mode="abs", bound=1e-3), compressors=None
    )
    made[...] = x
    found = zarr.open_array(str(tmp_path / "x.zarr"), mode="r")
    assert np.max(np.abs(found[...] - x)) <= 1e-3
    configuration = {"mode": "abs", "bound": 1e-3, "pipeline": "default"}
    assert found.metadata.codecs[0].to_dict() == {"name": "armillary.fz", "configuration": configuration}
