"""Mutants of what our decoders and stores read, whose checksums are repaired, so that the damage reaches the code behind them.

`DECODERS` gives for each name a function that makes sound data once, in a folder, and returns another one, which makes a mutant from a
random generator and returns the act that decodes and uses it. `tests/fuzz_decoders` runs tens of thousands of them.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import random
import shutil
import sqlite3
import struct
import sys
import tempfile
import tomllib
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from armillary.errors import InputError
from armillary.testing.fuzzing import Attempt, damaged_array, damaged_bytes, damaged_number, damaged_value

Act = Callable[[], object]
Mutate = Callable[[random.Random], Act]
DECODERS: dict[str, Callable[[Path], Mutate]] = {}
#: What a decoder may make of a mutant.
MOST_BYTES = 1 << 24


def decoder(name: str) -> Callable[[Callable[..., Mutate]], Callable[..., Mutate]]:
    def listed(make: Callable[..., Mutate]) -> Callable[..., Mutate]:
        DECODERS[name] = make
        return make

    return listed


def decoder_attempts(name: str, count: int, seed: int = 0) -> Iterator[Attempt]:
    """`count` attempts for the decoder of this name; the same seed gives the same mutants."""
    with tempfile.TemporaryDirectory(prefix="armillary-fuzz-") as folder:
        mutate = DECODERS[name](Path(folder))
        for number in range(count):
            rng = random.Random(f"{name} {seed} {number}")
            yield f"number {number}", lambda rng=rng: mutate(rng)()


def _field(pipeline: str, folder: Path) -> Mutate:
    from armillary.compression import fields as fz
    from armillary.compression.fields.pipeline import container

    x = fz.field("hurricane", (6, 10, 12), np.random.default_rng(0))
    data = memoryview(fz.compress(x, 1e-3, "rel", pipeline, chunk_bytes=2000))
    facts, at0 = container._read(data, len(container.MAGIC), None)
    chunks, at = [], at0
    while at < len(data):
        method, sections, at = container.read_chunk(data, at)
        chunks.append((method, sections))

    def mutate(rng: random.Random) -> Act:
        head = damaged_value(facts, rng) if rng.random() < 0.25 else facts
        made = []
        at = rng.randrange(len(chunks))
        for number, (method, sections) in enumerate(chunks):
            if number == at:
                name = rng.choice(list(sections)) if sections else ""
                if rng.random() < 0.1:
                    method = rng.choice(container.METHODS)
                elif name:
                    sections = {**sections, name: damaged_array(sections[name], rng)}
                    if rng.random() < 0.05:
                        del sections[name]
            made.append(container.pack_chunk(method, sections))
        try:
            start = container.MAGIC + container._head(head)
        except ValueError:  # An infinity, which our JSON does not have.
            start = bytes(data[:at0])

        def act() -> None:
            found = fz.decompress(start + b"".join(made), most_bytes=MOST_BYTES, threads=1)
            assert head is not facts or found.shape == x.shape

        return act

    return mutate


PIPELINES = {
    "default": "default", "speed": "speed", "fz-fused": "fz-fused", "cuszp-fused": "cuszp-fused", "particles": "particles",
    "interpolated": "range -> interp(radius=2048, tune=True) -> topk-histogram(centre=2048) -> huffman",
    "packed": "range -> lorenzo -> histogram -> huffman -> zstd", "run-length": "range -> lorenzo -> bitshuffle -> rze", "fixed-width": "range -> none -> delta -> fixed-width",
}  # fmt: skip
DECODERS |= {f"fields/{name}": functools.partial(_field, pipeline) for name, pipeline in PIPELINES.items()}


@decoder("logs/denum")
def _denum(folder: Path) -> Mutate:
    from armillary.compression.logs import denum
    from armillary.compression.logs.workload import generate

    chunk = generate("zeek-conn", 3000, np.random.default_rng(0))[0] + b"a 1.5 10.0.0.1 12:30:59 007 2024-01-05 x9 99999999999999999999\n" * 9
    streams = denum._streams(chunk)[0]
    packer = denum._packer("zstd", 1)

    def mutate(rng: random.Random) -> Act:
        stream = rng.choice(list(streams))
        flags, items, raw = streams[stream]
        how = rng.random()
        if how < 0.6:
            raw = damaged_bytes(raw, rng)
        elif how < 0.8:
            items = damaged_number(items, rng) % (1 << 32)
        elif how < 0.9:
            flags ^= 1
        else:
            stream = rng.randrange(256)
        body = bytearray(denum._archive({**streams, stream: (flags, items, raw)}, packer, "zstd", chunk))
        if rng.random() < 0.15:
            struct.pack_into("<I", body, rng.choice((1, 5)), damaged_number(len(chunk), rng) % (1 << 32))
        whole = denum.MAGIC + struct.pack("<II", len(body), zlib.crc32(body)) + body + struct.pack("<II", 0, 1)
        return lambda: denum.unpack(whole, most_bytes=MOST_BYTES)

    return mutate


@decoder("logs/columnar")
def _columnar(folder: Path) -> Mutate:
    from armillary.compression.logs import columnar
    from armillary.compression.logs.planning.technique import Log
    from armillary.compression.logs.streams.compressors import compressor
    from armillary.compression.logs.workload import generate

    text, form = generate("zeek-conn", 6000, np.random.default_rng(0))
    data = columnar.pack(Log(text + b"odd line\n", form), "zstd-1", True)
    (length,) = struct.unpack_from("<I", data, len(columnar.MAGIC))
    at = len(columnar.MAGIC) + 4 + length
    head = json.loads(compressor("zstd-9").decompress(data[len(columnar.MAGIC) + 4 : at]))
    packer, raws = compressor("zstd-1"), []
    for facts in head["streams"]:
        raws.append(packer.decompress(data[at : at + facts["bytes"]]))
        at += facts["bytes"]

    def mutate(rng: random.Random) -> Act:
        made, which = list(raws), rng.randrange(len(raws))
        facts = head
        if rng.random() < 0.5:
            made[which] = damaged_bytes(made[which], rng)
        else:
            facts = damaged_value(head, rng)
        bodies = [packer.compress(raw) for raw in made]
        if isinstance(facts, dict) and isinstance(facts.get("streams"), list) and len(facts["streams"]) == len(bodies):
            facts = {**facts, "streams": [{**one, "bytes": len(body)} if isinstance(one, dict) and facts is head else one for one, body in zip(facts["streams"], bodies)]}
        text = compressor("zstd-9").compress(json.dumps(facts).encode())
        return lambda: columnar.unpack(columnar.MAGIC + struct.pack("<I", len(text)) + text + b"".join(bodies), most_bytes=MOST_BYTES)

    return mutate


@decoder("logs/plans")
def _plans(folder: Path) -> Mutate:
    from armillary.compression.logs.planning.plan import EMBED, Plan, unwritten
    from armillary.compression.logs.workload import generate

    logs = []
    for name in ("zeek-conn", "json-events", "proxy"):
        text, form = generate(name, 2000, np.random.default_rng(0))
        plan = Plan(form, tuple(reversed(range(form.fields))))
        logs.append((json.loads(plan.to_json()), plan.transform_bytes(text)))

    def mutate(rng: random.Random) -> Act:
        plan, log = rng.choice(logs)
        if rng.random() < 0.7:
            plan = damaged_value(plan, rng)
        else:
            log = damaged_bytes(log, rng)
        return lambda: unwritten(EMBED + json.dumps(plan).encode() + b"\n" + log)

    return mutate


@decoder("logs/compressors")
def _compressors(folder: Path) -> Mutate:
    from armillary.compression.logs.streams.compressors import FAMILIES, compressor
    from armillary.compression.logs.workload import generate

    text = generate("proxy", 3000, np.random.default_rng(0))[0]
    packed = [(compressor(family), compressor(family).compress(text)) for family in FAMILIES if family != "denum"]

    def mutate(rng: random.Random) -> Act:
        made, data = rng.choice(packed)
        data = damaged_bytes(data, rng)
        return lambda: made.decompress(data, most_bytes=MOST_BYTES)

    return mutate


@decoder("logs/lines")
def _lines(folder: Path) -> Mutate:
    from armillary.compression.logs.codecs.numcodecs_lines import LogLines

    codec = LogLines(compressor="zstd-1")
    data = codec.encode(np.array([b"a,1,x", b"b,2,y", b"c,3,z"] * 20).reshape(6, 10))
    (length,) = struct.unpack_from("<I", data)
    head = json.loads(data[4 : 4 + length])

    def mutate(rng: random.Random) -> Act:
        if rng.random() < 0.2:
            made = damaged_bytes(data, rng)
        else:
            facts = damaged_value(head, rng)
            if rng.random() < 0.3 and isinstance(facts, dict):
                facts["dtype"] = rng.choice(("S2147483647", "S0", "O", "f8", "S5,f8", "V9", "U5", "S1000000"))
            text = json.dumps(facts).encode()
            made = struct.pack("<I", len(text)) + text + data[4 + length :]
        return lambda: codec.decode(made)

    return mutate


@decoder("tensors/trains")
def _trains(folder: Path) -> Mutate:
    from armillary.compression.tensors import from_safetensors, to_safetensors, tt_svd

    rng0 = np.random.default_rng(0)
    path = folder / "t.safetensors"
    to_safetensors({"a": tt_svd(rng0.normal(size=(4, 5, 6)), 0.1), "b": tt_svd(rng0.normal(size=(3, 4)), 0.1)}, path)
    whole = path.read_bytes()

    def act() -> None:
        for train in from_safetensors(path, most_bytes=MOST_BYTES).values():
            train.full(most_bytes=MOST_BYTES)
            train.norm()

    return functools.partial(_safetensors, whole, path, act)


def _safetensors(whole: bytes, path: Path, act: Act, rng: random.Random) -> Act:
    """Damages the header or the bytes of a safetensors file, and repairs the header's length."""
    (length,) = struct.unpack_from("<Q", whole)
    head, body = json.loads(whole[8 : 8 + length]), whole[8 + length :]
    how = rng.random()
    if how < 0.5:
        head = damaged_value(head, rng)
    elif how < 0.7:
        names = [name for name in head if name != "__metadata__"]
        one = rng.choice(names)
        head[rng.choice(("a/²", "a/99999999999", "x", "/0", "a/-1", "b/1", one + "0"))] = head.pop(one)
    elif how < 0.85:
        size = rng.choice((2, 20, 60))
        for k in range(size):
            head[f"z/{k}"] = {"dtype": "F64", "shape": [1, 2, 1], "data_offsets": [len(body) + 16 * k, len(body) + 16 * (k + 1)]}
        body += bytes(16 * size)
    else:
        body = damaged_bytes(body, rng)
    text = json.dumps(head).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)
    return act


def _archive(arrays: dict[str, np.ndarray], path: Path) -> None:
    with path.open("wb") as file:
        np.savez(file, **arrays)


@decoder("keyvalue/snapshots")
def _snapshots(folder: Path) -> Mutate:
    from armillary.storage.keyvalue import SimdMap

    path = folder / "map.npz"
    sound = []
    for keys, layout, load in (("int64", "simd3", 0.97), ("uint32", "three-hash", 0.9), ("float64", "one-hash", 0.6)):
        index = SimdMap(np.arange(-2, 900).astype(keys), load=load, layout=layout)  # type: ignore[arg-type]
        index.delete_many(np.arange(0, 900, 3).astype(keys))
        index.save(path)
        with np.load(path) as plain:
            sound.append(dict(plain))
    whole = path.read_bytes()

    def act() -> None:
        index = SimdMap.load(path)
        queries = np.arange(-20, 1200).astype(index.key_dtype)
        index.get_many(queries)
        index.contains_many(queries)
        index.items()
        index.delete_many(queries[::7])
        index.insert_many(queries, np.zeros(len(queries), index.value_dtype))
        index.lines(queries)
        index.items()

    def mutate(rng: random.Random) -> Act:
        arrays = dict(rng.choice(sound))
        how = rng.random()
        if how < 0.5:
            name = rng.choice(("keys", "values"))
            arrays[name] = damaged_array(arrays[name], rng)
        elif how < 0.95:
            header = damaged_value(json.loads(arrays["header"].tobytes()), rng)
            if isinstance(header, dict) and rng.random() < 0.3:
                header["version"] = 1
            arrays["header"] = np.frombuffer(json.dumps(header).encode(), np.uint8)
        if how < 0.95:
            _archive(arrays, path)
        else:
            path.write_bytes(damaged_bytes(whole, rng))
        return act

    return mutate


@decoder("keyvalue/journals")
def _journals(folder: Path) -> Mutate:
    from armillary.storage.keyvalue import DurableMap
    from armillary.storage.keyvalue.maps.journal import DELETE, INSERT, RECORD

    store = folder / "map"
    with DurableMap(store, sync=False) as index:
        index.insert_many(np.arange(-2, 200))
        index.snapshot()
        index.insert_many([1, -1, 5000], [7, 8, 9])
        index.delete_many([3, -2])
        index.insert_many(np.arange(40))
    path = store / "journal-1.log"
    whole = path.read_bytes()
    snapshot = (store / "snapshot.npz").read_bytes()
    records, at = [], 32
    while at < len(whole):
        operation, count, _, _ = RECORD.unpack_from(whole, at)
        length = count * (16 if operation == INSERT else 8)
        records.append((operation, count, whole[at + RECORD.size : at + RECORD.size + length]))
        at += RECORD.size + length

    def act() -> None:
        with DurableMap(store, sync=False) as index:
            index.get_many(np.arange(-5, 300))
            index.insert_many(np.arange(300), np.arange(300))
            index.delete_many(np.arange(0, 300, 2))
            index.snapshot()

    def mutate(rng: random.Random) -> Act:
        for other in store.iterdir():
            other.unlink()
        (store / "snapshot.npz").write_bytes(snapshot)
        made, which = [whole[:32]], rng.randrange(len(records))
        for number, (operation, count, payload) in enumerate(records):
            if number == which:
                how = rng.random()
                if how < 0.3:
                    count = damaged_number(count, rng) % (1 << 32)
                elif how < 0.5:
                    operation = rng.choice((INSERT, DELETE, 0, 3, 1 << 31))
                elif how < 0.9:
                    payload = damaged_array(np.frombuffer(payload, np.int64), rng).tobytes()
                else:
                    payload = damaged_bytes(payload, rng)
            start = struct.pack("<III", operation, count, zlib.crc32(payload))
            made.append(start + struct.pack("<I", zlib.crc32(start)) + payload)
        if rng.random() < 0.05:
            made[0] = damaged_bytes(made[0], rng)
        path.write_bytes(b"".join(made))
        return act

    return mutate


@decoder("keyvalue/columns")
def _columns(folder: Path) -> Mutate:
    import polars as pl

    from armillary.storage.keyvalue.workload import read_column

    frame = pl.DataFrame({"key": np.arange(500), "other": np.arange(500) / 3})
    sound = {}
    for ending, write in ((".parquet", frame.write_parquet), (".arrow", frame.write_ipc)):
        for packing in ("uncompressed", "zstd", "lz4"):
            made = io.BytesIO()
            write(made, compression=packing)  # type: ignore[operator]
            sound[f"{packing}{ending}"] = made.getvalue()

    def mutate(rng: random.Random) -> Act:
        name = rng.choice(list(sound))
        path = folder / name
        path.write_bytes(damaged_bytes(sound[name], rng))
        return lambda: read_column(path)

    return mutate


@decoder("deduplication/stores")
def _deduplication(folder: Path) -> Mutate:
    sys.path.insert(0, str(Path(__file__).parent / "storage/deduplication"))
    from test_crafted_stores import K, used

    from armillary.storage.deduplication import DedupStore

    sound = folder / "sound"
    with DedupStore(sound, "fixed", K, sync=False) as store:
        data = np.random.default_rng(1).bytes(6 * K)
        for name in ("a", "b", "c/d"):
            store.put(name, data + name.encode() * 900)
    copy = folder / "store"
    tables = {"chunks": ("id", "fingerprint", "container", "slot", "offset", "room", "length", "crc", "refs"), "files": ("id", "name", "size"),
              "recipes": ("file", "part", "start", "ids"), "meta": ("key", "value")}  # fmt: skip

    def mutate(rng: random.Random) -> Act:
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(sound, copy)
        database = sqlite3.connect(copy / "index.sqlite")
        with contextlib.suppress(sqlite3.Error):
            for _ in range(rng.choice((1, 1, 2))):
                _change_a_row(database, tables, rng)
            if rng.random() < 0.2:
                database.execute("INSERT INTO redo VALUES (?, ?, ?, ?)", [*(damaged_number(rng.randrange(4), rng) % (1 << 63) for _ in range(3)), rng.randbytes(K)])
            database.commit()
        database.close()
        return functools.partial(used, copy)

    return mutate


def _change_a_row(database: sqlite3.Connection, tables: dict[str, tuple[str, ...]], rng: random.Random) -> None:
    """Changes one cell, or deletes one row."""
    table = rng.choice(list(tables))
    column = rng.choice(tables[table])
    found = database.execute(f"SELECT * FROM {table} ORDER BY 1").fetchall()
    if not found:
        return
    names = [row[1] for row in database.execute(f"PRAGMA table_info({table})")]
    row = rng.choice(found)
    where = " AND ".join(f"{name} IS ?" for name in names)
    if rng.random() < 0.1:
        database.execute(f"DELETE FROM {table} WHERE {where}", row)
        return
    old = row[names.index(column)]
    if rng.random() < 0.15:
        value: Any = rng.choice((None, "x", b"", b"\0", 1.5, "../x", -1, b"../x"))
    elif isinstance(old, int):
        value = (damaged_number(old, rng) + (1 << 63)) % (1 << 64) - (1 << 63)
    elif isinstance(old, bytes):
        value = damaged_bytes(old, rng)
    else:
        value = damaged_bytes(str(old).encode(), rng).decode("utf-8", "replace")
    database.execute(f"UPDATE {table} SET {column} = ? WHERE {where}", (value, *row))


@decoder("metadata/images")
def _images(folder: Path) -> Mutate:
    sys.path.insert(0, str(Path(__file__).parent / "storage/metadata"))
    from damaged_images import mutant, sound, use

    path = folder / "store"
    whole = sound(path)

    def mutate(rng: random.Random) -> Act:
        path.write_bytes(mutant(whole, np.random.default_rng(rng.randrange(1 << 62))))

        def act() -> None:
            found = use(path)
            if found == "refused":
                raise InputError(found)
            assert found == "sound"

        return act

    return mutate


@decoder("synchronization/states")
def _states(folder: Path) -> Mutate:
    from armillary.storage.synchronization.directories import sync

    state = ".armillary-sync"
    sound = folder / "sound"
    for root, other in (("a", "b"), ("b", "a")):
        (sound / root / "d").mkdir(parents=True)
        (sound / root / f"d/{root}").write_bytes(root.encode() * 50)
        (sound / root / f"to-{other}").symlink_to("d")
    sync(sound / "a", sound / "b", durable=False)
    (sound / "a/d/b").write_bytes(b"changed")
    (sound / "b/d/b").write_bytes(b"changed otherwise")
    sync(sound / "a", sound / "b", durable=False)
    copy = folder / "copy"
    with contextlib.closing(sqlite3.connect(sound / "a" / state / "state.sqlite")) as database:
        tables = {
            name: tuple(row[1] for row in database.execute(f"PRAGMA table_info({name})"))
            for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'").fetchall()
        }

    def act() -> None:
        sync(copy / "a", copy / "b", durable=False)
        assert sorted(path.name for path in copy.iterdir()) == ["a", "b"]

    def mutate(rng: random.Random) -> Act:
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(sound, copy, symlinks=True)
        for root in ("a", "b"):
            database = sqlite3.connect(copy / root / state / "state.sqlite")
            database.execute("UPDATE meta SET value = ? WHERE key = 'root'", ((copy / root).stat().st_ino,))
            if root == "a":
                with contextlib.suppress(sqlite3.Error):
                    for _ in range(rng.choice((1, 2, 4))):
                        _change_a_row(database, tables, rng)
            database.commit()
            database.close()
        (copy / "b/new").write_bytes(b"new")
        return act

    return mutate


@decoder("synchronization/wire")
def _wire(folder: Path) -> Mutate:
    from armillary.storage.synchronization.directories import Replica
    from armillary.storage.synchronization.directories.session import Session
    from armillary.storage.synchronization.directories.syncing import _start

    def act(rng: random.Random) -> None:
        shutil.rmtree(folder / "pair", ignore_errors=True)
        for name in ("a", "b"):
            (folder / "pair" / name).mkdir(parents=True)
            (folder / "pair" / name / name).write_bytes(name.encode() * 100)
        with Replica(folder / "pair/a", durable=False) as a, Replica(folder / "pair/b", durable=False) as b:
            ends = []
            for replica in (a, b):
                _start(replica)
                ends.append(Session(replica))
            left = rng.randrange(8)
            try:
                hellos = [end.hello() for end in ends]
                if left == 0:
                    hellos[0] = damaged_bytes(hellos[0], rng)
                ends[1].take(hellos[0])
                ends[0].take(hellos[1])
                for _ in range(200):
                    if all(end.finished for end in ends) or not any(end.my_turn for end in ends):
                        break
                    speaker = 0 if ends[0].my_turn else 1
                    for body in ends[speaker].turn():
                        if speaker == 0:
                            left -= 1
                            if left == 0:
                                body = body[:1] + damaged_bytes(body[1:], rng)
                        ends[1 - speaker].take(body)
            finally:
                for end in ends:
                    end.end()
        assert sorted(path.name for path in (folder / "pair").iterdir()) == ["a", "b"]

    return lambda rng: functools.partial(act, rng)


@decoder("matrices")
def _matrices(folder: Path) -> Mutate:
    import scipy.sparse as sp

    from armillary.files.matrices import read_sparse

    made = sp.random_array((12, 9), density=0.4, rng=np.random.default_rng(0))
    sound = []
    for kind in ("csr", "csc", "coo", "bsr", "dia"):
        sp.save_npz(folder / "m.npz", made.asformat(kind), compressed=False)
        with np.load(folder / "m.npz") as plain:
            sound.append(dict(plain))

    def mutate(rng: random.Random) -> Act:
        arrays = dict(rng.choice(sound))
        name = rng.choice(list(arrays))
        found = damaged_array(arrays[name], rng)
        arrays[name] = found.reshape(arrays[name].shape) if found.size == arrays[name].size else found
        _archive(arrays, folder / "m.npz")
        return act

    def act() -> None:
        found = read_sparse(folder / "m.npz")
        if max(found.shape) < 1 << 20:
            found.tocsr().sum()

    return mutate


@decoder("llm/traces")
def _traces(folder: Path) -> Mutate:
    from armillary.llm.serving.request_files import read

    numbers = range(20)
    bench = {"input_lens": [10 + i for i in numbers], "output_lens": [5 + i for i in numbers], "ttfts": [0.1] * 20, "itls": [[0.1, 0.2]] * 20,
             "errors": [""] * 20, "start_times": [float(i) for i in numbers], "request_rate": 2.0}  # fmt: skip
    talks = [{"id": str(i), "conversations": [{"from": "human", "value": "hello there " * i}, {"from": "gpt", "value": "general " * i}]} for i in range(3, 20)]
    mooncake = [{"timestamp": 100 * i, "input_length": 900 + i, "output_length": 9, "hash_ids": [0, i]} for i in numbers]
    texts = {"azure.csv": "TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(f"2023-11-16 18:15:{i + 10}.5,{100 + i},{i + 1}\n" for i in numbers),
             "vidur.csv": "arrived_at,num_prefill_tokens,num_decode_tokens\n" + "".join(f"{i}.5,{100 + i},{i + 1}\n" for i in numbers),
             "burst.csv": "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n" + "".join(f"{i},GPT-4,{10 + i},5,{15 + i},API log\n" for i in numbers)}  # fmt: skip

    def mutate(rng: random.Random) -> Act:
        name = rng.choice((*texts, "bench.json", "share.json", "mooncake.jsonl"))
        if name in texts:
            data = damaged_bytes(texts[name].encode(), rng)
        elif name == "mooncake.jsonl":
            rows = [*mooncake]
            rows[rng.randrange(len(rows))] = damaged_value(mooncake[0], rng)
            data = "\n".join(map(json.dumps, rows)).encode()
        else:
            data = json.dumps(damaged_value(bench if name == "bench.json" else talks, rng)).encode()
        path = folder / name
        path.write_bytes(data)
        return lambda: read(path)

    return mutate


@decoder("llm/models")
def _models(folder: Path) -> Mutate:
    import torch

    from armillary.llm import Tiny

    torch.set_num_threads(1)
    config = {"model_type": "mixtral", "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "intermediate_size": 8,
              "vocab_size": 32, "max_position_embeddings": 64, "num_local_experts": 2, "num_experts_per_tok": 1}  # fmt: skip
    at = folder / "model"
    model = Tiny.make(config)
    model.save(at)
    sound = json.loads((at / "config.json").read_text())
    whole = (at / "model.safetensors").read_bytes()
    lora = folder / "lora"
    lora.mkdir()
    adapter = {"r": 2, "lora_alpha": 4}
    from safetensors.torch import save

    target = "base_model.model.model.layers.0.self_attn.q_proj"
    tensors = save({f"{target}.lora_A.weight": torch.ones(2, 16), f"{target}.lora_B.weight": torch.ones(16, 2)})

    def act() -> None:
        Tiny.load(at).logits([1, 2, 3])

    def add() -> None:
        made = Tiny(model.shape, model.weights)
        made.logits([1, 2, 3], made.add_lora(lora))

    def mutate(rng: random.Random) -> Act:
        if rng.random() < 0.3:
            facts, config_file, weights, file, act_ = adapter, lora / "adapter_config.json", tensors, lora / "adapter_model.safetensors", add
        else:
            facts, config_file, weights, file, act_ = sound, at / "config.json", whole, at / "model.safetensors", act
        config_file.write_text(json.dumps(facts))
        file.write_bytes(weights)
        if rng.random() < 0.5:
            made = json.dumps(damaged_value(facts, rng)).encode()
            config_file.write_bytes(made if rng.random() < 0.9 else damaged_bytes(made, rng))
            return act_
        return _safetensors(weights, file, act_, rng)

    return mutate


@decoder("checkpoint/versions")
def _versions(folder: Path) -> Mutate:
    import torch

    from armillary.files import crc32c
    from armillary.training.checkpoint import read_version
    from armillary.training.checkpoint.runtime.state import Flat
    from armillary.training.checkpoint.runtime.version_files import write_version

    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(2, 3)).sum().backward()
    optimizer.step()
    flat = Flat(model, optimizer)
    description = flat.describe({"batch": 3})
    data = torch.empty(flat.total, dtype=torch.uint8)
    flat.read(0, data)
    path = write_version(folder / "v.safetensors", description, data, 7)
    whole = path.read_bytes()
    (size,) = struct.unpack_from("<Q", whole)
    facts = json.loads(json.loads(whole[8 : 8 + size])["__metadata__"]["armillary"])

    def act() -> None:
        _, found, raw = read_version(path)
        flat.load(found, raw)

    def mutate(rng: random.Random) -> Act:
        _safetensors(whole, path, act, rng)
        changed = path.read_bytes()
        (length,) = struct.unpack_from("<Q", changed)
        head, body = json.loads(changed[8 : 8 + length]), changed[8 + length :]
        meta = head.get("__metadata__") if isinstance(head, dict) else None
        if isinstance(meta, dict):
            meta["crc32c"] = f"{crc32c(body):08x}"
            if rng.random() < 0.4:
                meta["armillary"] = json.dumps(damaged_value(facts, rng))
        text = json.dumps(head).encode()
        path.write_bytes(struct.pack("<Q", len(text)) + text + body)
        return act

    return mutate


@decoder("learn/models")
def _models(folder: Path) -> Mutate:
    from sklearn.tree import DecisionTreeRegressor

    from armillary.learn import Features, MlpConfig, Model, PartsConfig, from_sklearn, load
    from armillary.learn.kinds import RecurrentConfig, SetTransformerConfig, TypedAttentionConfig

    rng0 = np.random.default_rng(0)
    columns = {"a": np.arange(9.0), "b": np.arange(9.0) ** 2}
    trees, nodes = from_sklearn(DecisionTreeRegressor(max_depth=3).fit(np.column_stack([*columns.values()]), np.sin(columns["a"])))
    tower = MlpConfig(inputs=2, hidden=(3,), outputs=1)
    parts = PartsConfig(parts={"tower": tower, "tree": trees}, arrays={"table": (2, 2)})
    others = (tower, RecurrentConfig(kind="lstm", inputs=2, hidden=2, outputs=1), SetTransformerConfig(inputs=2, d=4, heads=2, isab=1, inducing=2))
    given = {"mlp": np.ones((1, 2)), "trees": np.ones((1, 2)), "typed-attention": np.ones((1, 2, 2)), "lstm": np.ones((1, 2, 2)), "set-transformer": np.ones((1, 2, 2))}
    sound = [Model(trees, nodes)]
    for config in (*others, TypedAttentionConfig(inputs=2, d=4, heads=2, layers=1, outputs=1), parts):
        arrays = {name: rng0.standard_normal(shape).astype(np.float32) for name, shape in config.shapes().items()}
        arrays |= {f"tree.{name}": array for name, array in nodes.items()} if config is parts else {}
        sound.append(Model(config, arrays, technique="a/b/c", features=Features.fit(columns, ["a", "b"]), metrics={"mae": 1.0}, trained_on=("x",)))
    wholes, path = [model.to_bytes() for model in sound], folder / "m.safetensors"

    def act() -> None:
        found = load(path)
        assert found.config.weights <= 1 << 24
        frozen = found.frozen()
        if found.kind == "parts" and "tree" in found.config.parts:
            frozen["tree"](np.ones((1, found.config.parts["tree"].inputs)))
        elif found.kind in given and getattr(found.config, "inputs", 0) == 2:
            frozen(given[found.kind])

    def mutate(rng: random.Random) -> Act:
        whole = rng.choice(wholes)
        (size,) = struct.unpack_from("<Q", whole)
        head, body = json.loads(whole[8 : 8 + size]), whole[8 + size :]
        how = rng.random()
        if how < 0.4:  # A value inside one of the texts of the metadata, which are JSON themselves.
            key = rng.choice(("config", "config", "features", "metrics", "trained_on", "versions"))
            head["__metadata__"][key] = json.dumps(damaged_value(json.loads(head["__metadata__"][key]), rng))
        elif how < 0.6:  # The indices of trees, whose walks must stay inside.
            name = rng.choice([name for name in head if name != "__metadata__"])
            begin, end = head[name]["data_offsets"]
            kind = {"F32": "<f4", "I32": "<i4", "I16": "<i2", "U8": "u1"}[head[name]["dtype"]]
            changed = damaged_array(np.frombuffer(body[begin:end], kind), rng)
            body = body[:begin] + np.asarray(changed).astype(kind, casting="unsafe").tobytes() + body[end:]
        else:
            return _safetensors(whole, path, act, rng)
        text = json.dumps(head).encode()
        path.write_bytes(struct.pack("<Q", len(text)) + text + body)
        return act

    return mutate


@decoder("cluster/files")
def _clusters(folder: Path) -> Mutate:
    from armillary import cluster
    from armillary.cluster.reader import PRESETS

    sound = [PRESETS / f"{name}.toml" for name in ("dgx-h100", "torus-4096", "dragonfly-10k", "tiers-3", "k8s-20", "edge-fog-cloud")]

    def mutate(rng: random.Random) -> Act:
        file = rng.choice(sound)
        if rng.random() < 0.5:
            path = folder / "cluster.toml"
            path.write_bytes(damaged_bytes(file.read_bytes(), rng))
            return lambda: _seen(cluster.load(path))
        facts = damaged_value(tomllib.loads(file.read_text()), rng)
        return lambda: _seen(cluster.from_dict(facts, where="cluster"))

    def _seen(found: Any) -> None:
        str(found)
        repr(found.summary() if hasattr(found, "summary") else found)

    return mutate


@decoder("green/files")
def _green(folder: Path) -> Mutate:
    from armillary.cluster import preset
    from armillary.scheduling.energy import Carbon
    from armillary.scheduling.green import GreenWork, K8sMost, Nodes, Sunshine, built_in, play, read_pods, read_sun, read_vector
    from armillary.scheduling.green.problem.sunshine import length
    from armillary.scheduling.green.readers.sun import resampled
    from armillary.scheduling.green.workload import slots_of

    pod = {"kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": [{"resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}]}}
    vector = {"status": "success", "data": {"resultType": "vector", "result": [{"metric": {"node": "a"}, "value": [0, "1.5"]}]}}
    sound = {
        "task_events.csv": "".join(f"{600 + 60 * t}000000,,1,{i},,{k},u,0,9,0.25,0.5,0,0\n" for i in range(3) for t, k in ((0, 0), (1, 1), (9, 4))),
        "instance_usage.csv": "start_time,end_time,collection_id,instance_index,average_usage.cpus,assigned_memory\n300000000,600000000,1,0,0.1,0.1\n",
        "pods.csv": "submit_s,duration_s,cpu,memory_gb,usage,tier,deadline_s\n0,600,1,1,0.5,batch,9000\n60,900,2,2,3,mid,1200\n",
        "pods.json": json.dumps({"items": [pod, pod]}),
        "pods.yaml": f"items:\n- {json.dumps(pod)}\n",
        "nsrdb.csv": "Latitude,Longitude,Time Zone\n40,-105,-7\nYear,Month,Day,Hour,Minute,GHI\n2020,6,1,11,0,700\n2020,6,1,12,0,800\n",
        "pvgis.csv": "Latitude (decimal degrees):\t45\n\ntime,G(i),T2m\n20160101:1010,400.0,5.0\n20160101:1110,450.5,6.0\n\nend\n",
        "vector.json": json.dumps(vector),
    }  # fmt: skip
    nodes = Nodes.of(preset("k8s-20"))
    # The loop is compiled here, because compiling takes longer than one file may.
    warm = built_in(np.random.default_rng(0), nodes, many=5, days=0.1, latitude=0.0, weather="clear", dark=True)
    play(warm, K8sMost().policy(warm))

    def used(path: Path) -> object:
        if path.name == "vector.json":
            return read_vector(path)
        if path.name in ("nsrdb.csv", "pvgis.csv"):
            sun = read_sun(path)
            return resampled(sun, sun.times_s[:1] + 60.0 * np.arange(100), (sun.latitude or 0.0, sun.longitude or 0.0), str(path))
        pods = read_pods(path)
        slots = slots_of(pods)
        if slots > 20_000 or len(pods.usage) > 1_000_000:
            return pods
        dark = np.zeros(length(slots))
        work = GreenWork(nodes, pods, Sunshine(dark, dark), Carbon.flat(0.0))
        return play(work, K8sMost().policy(work)).metrics()

    def mutate(rng: random.Random) -> Act:
        name = rng.choice(sorted(sound))
        path = folder / name
        path.write_bytes(damaged_bytes(sound[name].encode(), rng))
        return lambda: used(path)

    return mutate
