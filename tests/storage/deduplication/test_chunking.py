"""Cuts and names of chunks, which are compared with the published package byte by byte."""

from __future__ import annotations

import hashlib
import io

import numpy as np
import pytest

from armillary.errors import InputError
from armillary.storage.deduplication.store.chunking import Chunker, fingerprint


def test_fixed_chunks_end_every_chunk_bytes() -> None:
    assert Chunker("fixed", 256).cuts(bytes(600)).tolist() == [256, 512, 600]
    assert Chunker("fixed", 256).cuts(bytes(512)).tolist() == [256, 512]
    assert Chunker("fixed", 256).cuts(b"").tolist() == []


def test_a_fingerprint_is_blake2b_of_160_bits() -> None:
    assert fingerprint(b"abc") == hashlib.blake2b(b"abc", digest_size=20).digest()


def texts() -> list[bytes]:
    rng = np.random.default_rng(5)
    random = rng.integers(0, 256, 1 << 20, dtype=np.uint8).tobytes()
    few = rng.integers(0, 2, 300_000, dtype=np.uint8).tobytes()
    return [b"", b"x", random, few, bytes(400_000), random[:5000] * 40, random[:1024], random[:1025]]


@pytest.mark.parametrize("average", [256, 1024, 4096, 16384, 65536])
def test_fastcdc_cuts_where_the_published_package_does(average: int) -> None:
    peer = pytest.importorskip("fastcdc.fastcdc_py").fastcdc_py
    for text in texts():
        theirs = [chunk.offset + chunk.length for chunk in peer(text[:300_000], avg_size=average)]
        assert Chunker("fastcdc", average).cuts(text[:300_000]).tolist() == theirs


@pytest.mark.parametrize("name", ["fixed", "fastcdc"])
def test_a_stream_is_cut_as_the_whole(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    chunker = Chunker(name, 1024)
    monkeypatch.setattr("armillary.storage.deduplication.store.chunking.BLOCK", 20_000)
    for text in texts():
        ends, at = [], 0
        for block, cuts in chunker.pieces(io.BytesIO(text)):
            ends += (at + cuts).tolist()
            at += len(block)
        assert ends == chunker.cuts(text).tolist()


def test_an_insertion_moves_only_the_cuts_near_it() -> None:
    text = texts()[2]
    chunker = Chunker("fastcdc", 1024)
    before, after = set(chunker.cuts(text).tolist()), {end - 3 for end in chunker.cuts(text[:500_000] + b"abc" + text[500_000:]).tolist()}
    assert len(before - after) < 0.6 * len(before)  # those before the insertion
    assert {end for end in before if end > 520_000} <= after


@pytest.mark.parametrize(
    "arguments", [("fastcdc", 5000), ("fixed", 100), ("fixed", 1 << 27), ("rabin", 4096), ("fixed", True), ("fixed", 4096.0)]
)
def test_a_bad_chunker_is_refused(arguments: tuple) -> None:
    with pytest.raises(InputError):
        Chunker(*arguments)
