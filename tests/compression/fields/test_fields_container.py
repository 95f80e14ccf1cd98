"""Tests of pipelines as people write them, and of files that were damaged or made to deceive."""

from __future__ import annotations

import json
import struct
import tracemalloc
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from armillary.compression import fields as fz
from armillary.compression.fields.arena import fields
from armillary.compression.fields.pipeline.container import MAGIC, Head, chunk_count, chunk_plan, pack_chunk, read_chunk, read_head
from armillary.compression.fields.pipeline.pipeline import Pipeline
from armillary.compression.fields.stages.bitshuffle import Bitshuffle, ZeroBlocks
from armillary.compression.fields.stages.bounds import Range
from armillary.compression.fields.stages.histogram import Histogram
from armillary.compression.fields.stages.huffman import Huffman
from armillary.compression.fields.stages.lorenzo import Lorenzo
from armillary.compression.fields.stages.lossless import Zstd
from armillary.compression.fields.stages.stage import Context
from armillary.errors import InputError
from armillary.extras import MissingPackage
from armillary.files.checksums import crc32c


def example(pipeline: str = "default") -> tuple[np.ndarray, bytes]:
    x = fz.field("hurricane", (8, 20, 24), np.random.default_rng(0))
    return x, fz.compress(x, 1e-3, "rel", pipeline)


def test_four_ways_to_say_the_same_pipeline() -> None:
    text = Pipeline.from_string("range -> lorenzo(radius=256) -> histogram -> huffman -> zstd(3)")
    listed = Pipeline([Range(), Lorenzo(radius=256), Histogram(), Huffman()])
    toml = Pipeline.from_toml(
        '[[stage]]\ntype="range"\n[[stage]]\ntype="lorenzo"\ninput="range"\nradius=256\n[[stage]]\ntype="histogram"\n[[stage]]\ntype="huffman"\ninput=["lorenzo.codes","histogram"]'
    )
    graph = Pipeline().add(Range()).add(Lorenzo(radius=256), after="range").add(Histogram(), after="lorenzo", port="codes").add(Huffman())
    assert listed == toml == graph
    assert str(text) == "range -> lorenzo(radius=256) -> histogram -> huffman -> zstd"
    assert Pipeline.from_json(json.loads(json.dumps(text.to_json()))) == text


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("range -> lorentz", 'unknown stage "lorentz"'),
        ("range -> lorenzo(radius=1)", "from 2 to 32768"),
        ("range -> lorenzo(size=1)", 'unknown parameter "size"'),
        ("range -> lorenzo(__import__('os'))", "plain values"),
        ("range -> huffman", "needs codes"),
        ("lorenzo -> huffman", "needs bound"),
        ("range -> lorenzo -> zstd -> huffman", "expected it last"),
        ("range -> lorenzo(1,2,3)", "takes 2 values"),
        ("fastest", 'unknown pipeline "fastest"'),
    ],
)
def test_bad_pipelines_are_told_when_they_are_built(text: str, says: str) -> None:
    with pytest.raises(InputError, match=says.replace("(", r"\(")):
        Pipeline.of(text)


def test_bad_graphs_are_told_when_they_are_built() -> None:
    start = Pipeline().add(Range()).add(Lorenzo())
    with pytest.raises(InputError, match='unknown port "planes"'):
        start.add(Bitshuffle(), after="lorenzo", port="planes")
    with pytest.raises(InputError, match="zero-blocks expects words"):
        start.add(ZeroBlocks(), after="lorenzo", port="outliers")
    with pytest.raises(InputError, match='unknown stage "nowhere"'):
        start.add(Histogram(), after="nowhere")
    with pytest.raises(InputError, match="a cycle through a, b"):
        Pipeline.from_toml('[[stage]]\ntype="lorenzo"\nname="a"\ninput="b"\n[[stage]]\ntype="range"\nname="b"\ninput="a"')
    with pytest.raises(InputError, match="found no"):
        Pipeline.from_toml("x = 1")


@pytest.mark.parametrize("pipeline", ["default", "quality", "speed", "fz-fused", "cuszp-fused"])
def test_flipped_and_cut_files_are_refused(pipeline: str) -> None:
    _, data = example(pipeline)
    rng = np.random.default_rng(1)
    for place in rng.integers(0, len(data), 200):
        spoilt = bytearray(data)
        spoilt[place] ^= int(rng.integers(1, 256))
        with pytest.raises(InputError):
            fz.decompress(bytes(spoilt))
    for length in {0, 1, 6, 14, len(data) - 1, *rng.integers(0, len(data), 40).tolist()}:
        with pytest.raises(InputError):
            fz.decompress(data[:length])
    with pytest.raises(InputError, match="after the last chunk"):
        fz.decompress(data + b"x")


@pytest.mark.parametrize("pipeline", ["default", "speed", "fz-fused", "cuszp-fused", "particles"])
@pytest.mark.parametrize("bound", [[], [1.0]])
def test_a_bound_that_is_cut_is_refused(pipeline: str, bound: list[float]) -> None:
    data = memoryview(example(pipeline)[1])
    _, start = read_head(data)
    method, sections, end = read_chunk(data, start)
    cut = pack_chunk(method, {**sections, "range.bound": np.array(bound)})
    with pytest.raises(InputError, match="expected the bound and its width"):
        fz.decompress(bytes(data[:start]) + cut + bytes(data[end:]))


def forged(change: dict[str, object]) -> bytes:
    _, data = example()
    length = struct.unpack_from("<I", data, 6)[0]
    facts = json.loads(zlib.decompress(data[14 : 14 + length])) | change
    text = json.dumps(facts).encode()
    return MAGIC + struct.pack("<II", len(text), crc32c(struct.pack("<I", len(text)) + text)) + text + data[14 + length :]


def test_a_head_that_claims_the_moon_allocates_nothing() -> None:
    with pytest.raises(InputError, match="cannot hold their chunks"):
        fz.decompress(forged({"shape": [10**6, 10**6, 10**6]}))
    with pytest.raises(InputError, match="too short for their heads"):
        fz.decompress(forged({"shape": [10**9], "chunk_bytes": 4}))
    wrong = {"bound": [0], "mode": ["?"], "dtype": ["|O"], "chunk_bytes": [0], "shape": [[-1], [], [1.5]], "span": [[1]]}
    for name, value in ((name, value) for name, values in wrong.items() for value in values):
        with pytest.raises(InputError, match="missing or out of range"):
            fz.decompress(forged({name: value}))


def constant(shape: list[int], chunk_bytes: int, chunks: int) -> bytes:
    """A file of constant chunks, each of which is a few bytes."""
    head = Head(np.dtype("<f4"), tuple(shape), "abs", 1.0, None, chunk_bytes, Pipeline.named("default"))
    return head.pack() + chunks * pack_chunk("constant", {"value": np.ones(1, np.float32)})


@pytest.mark.parametrize("shape", [[1 << 26, 1, 1, 16], [1 << 22, 4, 4, 4], [1 << 20, 1 << 5, 1, 8], [1 << 30]])
def test_a_plan_of_more_chunks_than_the_file_can_hold_is_not_made(shape: list[int]) -> None:
    data = constant(shape, 4, 1)
    assert len(data) < 1000
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match=r"too short for their heads|set most_bytes|cannot hold their chunks"):
            fz.decompress(data)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_counting_chunks_is_making_their_plan() -> None:
    for shape in ((1000,), (10, 30), (7, 5, 6), (3, 4, 5, 6), (1, 9, 2, 2), (4, 1, 1, 50), (0, 3), (5000, 1, 3, 2)):
        for size in (1, 64, 400, 10**6):
            assert chunk_count(shape, 4, size) == len(chunk_plan(shape, 4, size))


def test_a_few_bytes_do_not_become_gigabytes() -> None:
    data = constant([4, 1 << 28], 1 << 30, 4)
    assert len(data) < 1000
    with pytest.raises(InputError, match=r"found an array of 4,294,967,296 bytes.*set most_bytes"):
        fz.decompress(data)
    x, data = example("quality")
    assert fz.decompress(data, most_bytes=x.nbytes).shape == x.shape
    with pytest.raises(InputError, match="set most_bytes"):
        fz.decompress(data, most_bytes=x.nbytes - 1)


@pytest.mark.parametrize("name", fields.techniques)
def test_every_decoder_has_a_limit(name: str) -> None:
    technique: Any = fields.make(name)
    x = example()[0]
    try:
        data = technique.pack(x, 1e-2)
    except MissingPackage as missing:
        pytest.skip(str(missing))
    assert technique.unpack(data, most_bytes=2 * x.nbytes).shape == x.shape
    with pytest.raises(InputError, match="set most_bytes"):
        technique.unpack(data, most_bytes=x.nbytes - 1)


def test_a_section_of_zstandard_is_bounded_by_the_values() -> None:
    ctx = Context((1, 1, 1, 1000), np.dtype("<f4"))
    sections = {f"s{i}": np.zeros(30_000, np.uint8) for i in range(100)}
    packed = Zstd().forward(ctx, **sections)
    with pytest.raises(InputError, match="expected at most"):
        Zstd().inverse(ctx, **packed)


def test_a_stage_that_is_not_here_is_named_with_its_version() -> None:
    node = {"name": "a", "type": "wavelet", "version": 3, "config": {}, "from": {}}
    with pytest.raises(InputError, match='stage "wavelet" version 3 is not known here'):
        fz.decompress(forged({"pipeline": [node]}))
    with pytest.raises(InputError, match='stage "range" version 99 is newer'):
        fz.decompress(forged({"pipeline": [node | {"type": "range", "version": 99}]}))
    with pytest.raises(InputError, match="without name, type"):
        fz.decompress(forged({"pipeline": [{"name": 1}]}))


def test_chunks_cover_the_array_in_order() -> None:
    for shape in ((1000,), (10, 30), (7, 5, 6), (3, 4, 5, 6), (1, 9, 2, 2), (4, 1, 1, 50)):
        for size in (1, 64, 400, 10**6):
            at = 0
            for start, cut in chunk_plan(shape, 4, size):
                assert start == at
                at += int(np.prod(cut))
            assert at == np.prod(shape)


def test_a_stream_is_the_file_that_compress_gives(tmp_path: Path) -> None:
    for shape in ((60, 10, 12), (3, 20, 10, 12), (9000,)):
        x = np.cumsum(np.random.default_rng(3).normal(size=shape), axis=-1).astype(np.float32)
        for mode in ("rel", "abs"):
            written = fz.compress_stream(x, tmp_path / "x.fzm", 1e-3, mode, "speed", chunk_bytes=8000)
            data = (tmp_path / "x.fzm").read_bytes()
            assert len(data) == written
            assert data == fz.compress(x, 1e-3, mode, "speed", chunk_bytes=8000)
