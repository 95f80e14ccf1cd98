"""The store returns the bytes it was given, keeps chunks once, keeps places on updates, and refuses bad input in one line."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.errors import InputError
from armillary.storage.deduplication import DedupStore

K = 1024


def numbered(*numbers: int) -> bytes:
    """One chunk per number."""
    return b"".join(number.to_bytes(4, "little") * (K // 4) for number in numbers)


@pytest.fixture
def store(tmp_path: Path):  # type: ignore[no-untyped-def]
    with DedupStore(tmp_path / "store", "fixed", K, sync=False) as opened:
        yield opened


def interleaved(store: DedupStore, files: dict[str, bytes], unit: int = K) -> None:
    writers = {name: store.writer(name) for name in files}
    for at in range(0, max(map(len, files.values())), unit):
        for name, writer in writers.items():
            writer.write(files[name][at : at + unit])
    for writer in writers.values():
        writer.close()


def runs(store: DedupStore) -> dict[str, int]:
    frame = store.fragmentation()
    return dict(zip(frame["name"], frame["runs"], strict=True))


def test_two_files_written_alternately_are_one_run_each_after_relocation(store: DedupStore) -> None:
    files = {"a": numbered(0, 1, 2, 3), "b": numbered(10, 11, 12, 13)}
    interleaved(store, files)
    assert runs(store) == {"a": 4, "b": 4}
    ratio = store.dedup_ratio()
    report = store.relocate(1.0)
    assert (report.runs_before, report.runs_after, report.moved_chunks, report.moved_bytes) == (8, 2, 8, 8 * K)
    assert runs(store) == {"a": 1, "b": 1}
    assert store.dedup_ratio() == ratio == 1.0
    assert {name: store.get(name) for name in files} == files
    assert store.verify().clean
    again = store.relocate(1.0)
    assert (again.moved_bytes, again.containers_written) == (0, 0)


def test_one_writer_without_duplicates_is_left_alone(store: DedupStore) -> None:
    for i in range(5):
        store.put(f"f{i}", numbered(*range(1500 * i, 1500 * (i + 1))))
    report = store.relocate(1.0)
    assert report.moved_bytes == 0
    assert store.verify().clean


def test_shared_chunks_are_kept_once(store: DedupStore) -> None:
    store.put("a", numbered(1, 2, 3))
    store.put("b", numbered(3, 2, 1, 1))
    assert store.verify().chunks == 3
    assert store.dedup_ratio() == 7 / 3
    store.delete("a")
    assert store.get("b") == numbered(3, 2, 1, 1)
    store.delete("b")
    assert (store.verify().chunks, store.names(), store.dedup_ratio()) == (0, [], 1.0)


def test_an_update_of_a_chunk_of_ones_own_keeps_the_runs(store: DedupStore) -> None:
    store.put("a", numbered(*range(10)))
    before = {chunk.id: chunk.place for chunk in store.index.all_chunks()}
    store.update("a", 4 * K, numbered(99))
    assert store.get("a") == numbered(0, 1, 2, 3, 99, 5, 6, 7, 8, 9)
    assert runs(store) == {"a": 1}
    assert {chunk.id: chunk.place for chunk in store.index.all_chunks()} == before
    assert store.verify().clean


def test_an_update_of_a_shared_chunk_leaves_the_other_file(store: DedupStore) -> None:
    store.put("a", numbered(1, 2, 3))
    store.put("b", numbered(1, 2, 3))
    store.update("a", K, numbered(9))
    assert (store.get("a"), store.get("b")) == (numbered(1, 9, 3), numbered(1, 2, 3))
    store.update("a", K, numbered(2))
    assert store.get("a") == store.get("b")
    assert store.verify().chunks == 3


def test_a_shared_update_takes_a_free_slot_near_its_file(store: DedupStore) -> None:
    interleaved(store, {"a": numbered(*range(50)), "b": numbered(*range(20), *range(100, 130))})
    store.relocate(1.0)
    store.put("later", numbered(*range(500, 510)))
    homes = {chunk.place.container for chunk in store.index.by_id(store.recipe_ids(1)).values()}
    store.update("a", 5 * K, numbered(900))
    (new,) = [chunk for chunk in store.index.all_chunks() if store.payloads([chunk])[0] == numbered(900)]
    assert new.place.container in homes
    assert store.get("b") == numbered(*range(20), *range(100, 130))
    assert store.verify().clean


def test_empty_single_and_repeated_chunks(store: DedupStore) -> None:
    files = {"empty": b"", "one": b"x", "repeated": numbered(7) * 1000}
    for name, data in files.items():
        store.put(name, data)
    store.update("one", 0, b"")
    store.update("empty", 0, b"")
    assert {name: store.get(name) for name in files} == files
    assert runs(store) == {"empty": 0, "one": 1, "repeated": 1}
    store.relocate(1.0)
    assert {name: store.get(name) for name in files} == files
    store.update("empty", 0, b"now")
    assert store.get("empty") == b"now"


def test_a_nearly_empty_container_is_merged(store: DedupStore) -> None:
    slots = store.slots
    for i in range(2):
        store.put(f"big{i}", numbered(*range(10_000 * i, 10_000 * i + slots - 5)))
        store.put(f"small{i}", numbered(*range(10_000 * i + 5_000, 10_000 * i + 5_005)))
    for i in range(2):
        store.delete(f"big{i}")
    assert len(store.index.live_containers()) == 2
    store.relocate(1.0)
    assert len(store.index.live_containers()) == 1
    assert store.get("small1") == numbered(*range(15_000, 15_005))


@pytest.mark.parametrize("chunker", ["fixed", "fastcdc"])
def test_rounds_keep_their_budget_and_give_space_back(tmp_path: Path, chunker: str) -> None:
    rng = np.random.default_rng(2)
    files = {f"f{i}": rng.bytes(700_000) for i in range(24)}
    with DedupStore(tmp_path / "s", chunker, 16384, sync=False) as store:
        interleaved(store, files, 65536)
        for _ in range(3):
            report = store.relocate()
            assert report.moved_bytes <= 0.2 * report.live_bytes
            assert report.most_added_runs <= 0
            assert report.disk_bytes <= 1.1 * report.live_bytes
            assert (report.live_bytes, report.disk_bytes) == (store.space().live_bytes, store.space().disk_bytes)
        for i in range(0, 24, 2):
            store.delete(f"f{i}")
        assert store.relocate(0.0).disk_bytes <= 1.1 * store.space().live_bytes
        assert {name: store.get(name) for name in store.names()} == {name: files[name] for name in store.names()}
        assert store.verify().clean


def test_writers_open_together_share_chunks_and_may_give_up(store: DedupStore) -> None:
    a, b = store.writer("a"), store.writer("b")
    a.write(numbered(1, 2))
    b.write(numbered(1, 2, 3))
    a.abort()
    b.close()
    assert store.names() == ["b"]
    c = store.writer("c")
    c.write(numbered(3))
    store.delete("b")
    c.close()
    assert store.get("c") == numbered(3)
    assert store.verify().clean


def test_files_and_paths_can_be_put(store: DedupStore, tmp_path: Path) -> None:
    data = np.random.default_rng(0).bytes(100_000)
    (tmp_path / "in").write_bytes(data)
    assert store.put("path", tmp_path / "in") == 100_000
    with (tmp_path / "in").open("rb") as file:
        store.put("file", file)
    assert store.get("file") == store.get("path") == data
    assert store.dedup_ratio() == 2.0
    assert store.get("path", 99_999, 50) == data[-1:]
    assert store.get("path", 200_000) == b""


OPERATIONS = st.lists(
    st.tuples(st.sampled_from(["put", "update", "delete", "relocate", "reopen"]), st.integers(0, 3), st.integers(0, 30_000), st.integers(0, 9_000),
              st.integers(0, 5)),
    max_size=12,
)  # fmt: skip


@pytest.mark.parametrize("chunker", ["fixed", "fastcdc"])
@given(operations=OPERATIONS)
@settings(max_examples=40)
def test_it_behaves_like_a_dict_of_bytes(chunker: str, operations: list) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store, model = DedupStore(folder, chunker, K, sync=False), {}
        try:
            for what, number, offset, length, seed in operations:
                name, data = f"dir/{number}", np.random.default_rng(seed).bytes(length)
                if what == "put":
                    store.put(name, data)
                    model[name] = data
                elif what == "relocate":
                    store.relocate(min(1.0, offset / 20_000))
                elif what == "reopen":
                    store.close()
                    store = DedupStore(folder, chunker, K, sync=False)
                elif name in model and what == "delete":
                    store.delete(name)
                    del model[name]
                elif name in model:
                    at = offset % (len(model[name]) + 1)
                    store.update(name, at, data)
                    model[name] = model[name][:at] + data + model[name][at + len(data) :]
                assert store.names() == sorted(model)
                assert {known: store.get(known) for known in model} == model
            assert store.verify().faults == ()
            for known, value in model.items():
                assert store.get(known, 700, 2000) == value[700:2700]
        finally:
            store.close()


def test_damage_is_named(store: DedupStore) -> None:
    store.put("a", numbered(*range(5)))
    path = store.containers.path(store.log.container)  # type: ignore[union-attr]
    data = bytearray(path.read_bytes())
    data[32 + 2 * (16 + K) + 16 + 100] ^= 1
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"slot 2.*bad CRC"):
        store.get("a")
    assert store.get("a", 0, 2 * K) == numbered(0, 1)
    faults = store.verify().faults
    assert len(faults) == 1
    assert "slot 2" in faults[0]


def test_bad_input_is_refused(store: DedupStore, tmp_path: Path) -> None:
    store.put("a", b"abc")
    for name in ("", "../a", "a/../b", "x\0y", "..", "y" * 5000, "\udc80"):
        with pytest.raises(InputError):
            store.put(name, b"x")
    for attempt in (
        lambda: store.get("a", -1), lambda: store.get("a", 0, -1), lambda: store.get("none"), lambda: store.update("a", -1, b"x"),
        lambda: store.update("a", 4, b"x"), lambda: store.delete("none"), lambda: store.relocate(2.0), lambda: store.relocate(1.0, mode="best"),
        lambda: DedupStore(tmp_path / "nowhere", readonly=True), lambda: DedupStore(tmp_path / "other", "fastcdc", 5000),
    ):  # fmt: skip
        with pytest.raises(InputError) as error:
            attempt()
        assert "\n" not in str(error.value)
    assert store.names() == ["a"]
    store.close()
    with pytest.raises(InputError, match="expected fixed 4096"):
        DedupStore(tmp_path / "store", "fixed", 4096)
    (tmp_path / "junk" / "containers").mkdir(parents=True)
    (tmp_path / "junk" / "index.sqlite").write_bytes(b"not a database at all" * 100)
    with pytest.raises(InputError, match="index of a store"):
        DedupStore(tmp_path / "junk")
