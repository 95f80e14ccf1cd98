"""MetadataStore against a dict, through closing, reopening and damage."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import nullcontext

import numpy as np
import polars as pl
import pytest
from child_process import in_a_child
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule, run_state_machine_as_test

from armillary.errors import InputError
from armillary.storage.metadata import MetadataStore, advise

names = st.sampled_from([b"a", b"b", b"c" * 140, b"d" * 141, b"e" * 255, b"\xff\x80"]) | st.integers(0, 40).map(lambda i: b"n%d" % i)


class StoreMachine(RuleBasedStateMachine):
    """A store beside its model, which is {(directory, name): (id, size)}."""

    folder: str = ""

    @initialize(granule=st.sampled_from([4096, 16384]), handlers=st.integers(1, 4))
    def start(self, granule, handlers):
        self.granule = granule
        self.file = os.path.join(self.folder, "store")
        if os.path.exists(self.file):
            os.remove(self.file)
        self.store = MetadataStore(self.file, granule, handlers)
        self.model = {}
        self.directories = [1]

    @rule(at=st.integers(0, 50), wanted=st.lists(names, min_size=1, max_size=12, unique=True), size=st.integers(0, 2**62))
    def create(self, at, wanted, size):
        directory = self.directories[at % len(self.directories)]
        fresh = [name for name in wanted if (directory, name) not in self.model]
        with pytest.raises(InputError, match="exists") if len(fresh) < len(wanted) else nullcontext():
            self.store.create_many(directory, wanted, {"size": size})
        for name, number in zip(fresh, self.store.lookup_many(directory, fresh).tolist(), strict=True):
            self.model[directory, name] = number, size

    @rule(at=st.integers(0, 50), name=names)
    def mkdir(self, at, name):
        directory = self.directories[at % len(self.directories)]
        if (directory, name) not in self.model:
            number = self.store.mkdir(directory, name)
            self.model[directory, name] = number, 0
            self.directories.append(number)

    @precondition(lambda self: self.model)
    @rule(at=st.integers(0, 500))
    def remove(self, at):
        (directory, name), (number, _) = sorted(self.model.items())[at % len(self.model)]
        if number not in self.directories:
            self.store.unlink_many(directory, [name])
        elif any(parent == number for parent, _ in self.model):
            with pytest.raises(InputError, match="not empty"):
                self.store.rmdir(directory, name)
            return
        else:
            self.store.rmdir(directory, name)
            self.directories.remove(number)
        del self.model[directory, name]

    @precondition(lambda self: self.model)
    @rule(at=st.integers(0, 500), to=st.integers(0, 50), new=names)
    def rename(self, at, to, new):
        (directory, name), (number, size) = sorted(self.model.items())[at % len(self.model)]
        target = self.directories[to % len(self.directories)]
        parents = {child: parent for (parent, _), (child, _) in self.model.items()}
        above = [target]
        while above[-1] != 1:
            above.append(parents[above[-1]])
        other = self.model.get((target, new))
        folder, over = number in self.directories, other is not None and other[0] in self.directories
        same = (target, new) == (directory, name)
        full = over and any(parent == other[0] for parent, _ in self.model)
        if not same and ((folder and number in above) or (other and (folder != over or full))):
            with pytest.raises(InputError):
                self.store.rename(directory, name, target, new)
            return
        self.store.rename(directory, name, target, new)
        if over and not same:
            self.directories.remove(other[0])
        del self.model[directory, name]
        self.model[target, new] = number, size

    @precondition(lambda self: self.model)
    @rule(at=st.integers(0, 500), size=st.integers(0, 2**62))
    def setattr(self, at, size):
        (directory, name), (number, _) = sorted(self.model.items())[at % len(self.model)]
        self.store.setattr_many(directory, [name], {"size": size})
        self.model[directory, name] = number, size

    @rule()
    def reopen(self):
        self.store.close()
        self.store = MetadataStore(self.file, self.granule)
        assert self.store.recovered == 0

    @invariant()
    def equal(self):
        if not hasattr(self, "store"):
            return
        assert self.store.check() == []
        assert len(self.store) == len(self.model)
        found = {}
        for directory in self.directories:
            frame = self.store.readdirplus(directory)
            for row in frame.iter_rows(named=True):
                assert row["parent"] == directory
                found[directory, row["name"]] = row["id"], row["size"]
        assert found == self.model
        if self.model:
            keys = list(self.model)
            ids = [self.model[key][0] for key in keys]
            assert self.store.lookup_many([d for d, _ in keys], [n for _, n in keys]).tolist() == ids
            assert self.store.stat_many(ids)["size"].to_list() == [self.model[key][1] for key in keys]

    def teardown(self):
        if hasattr(self, "store"):
            self.store.close()


def test_it_behaves_as_a_dict(tmp_path):
    StoreMachine.folder = str(tmp_path)
    run_state_machine_as_test(StoreMachine, settings=settings(max_examples=10, stateful_step_count=30))


def test_large_directories_grow_split_and_come_back(tmp_path):
    with MetadataStore(tmp_path / "s") as store:
        folder = store.mkdir(1, "big")
        wanted = [f"image_{i:07d}.jpeg" for i in range(20_000)]
        ids = store.create_many(folder, wanted, {"size": np.arange(20_000), "mtime": 5})
        store.unlink_many(folder, wanted[::3])
        assert store.check() == []
    with MetadataStore(tmp_path / "s") as store:
        assert store.check() == []
        left = store.lookup_many(folder, wanted)
        assert (left[::3] == 0).all()
        assert (left[1::3] == ids[1::3]).all()
        assert store.stat_many(ids[1:3])["size"].to_list() == [1, 2]
        frame = store.readdirplus(folder)
        assert len(frame) == len(store) - 1 == 20_000 - 6667
        assert int(store.create_many(folder, ["late"])[0]) > int(ids[-1])


def test_query_answers_as_find_does(tmp_path):
    tree = tmp_path / "tree"
    (tree / "a" / "b").mkdir(parents=True)
    (tree / "a" / "b" / "deep.txt").write_text("12345")
    (tree / "a" / "other.txt").write_text("")
    (tree / "link").symlink_to("a")
    (tree / os.fsdecode(b"odd\xff")).write_text("x")
    with MetadataStore.scan(tree, tmp_path / "s") as store:
        found = store.query(pl.col("path").str.ends_with(".txt") & (pl.col("size") > 0))
        assert found["path"].to_list() == ["/a/b/deep.txt"]
        assert set(store.query(pl.col("directory"))["path"]) == {"/a", "/a/b"}
        assert len(store.query()) == 6
        assert b"odd\xff" in store.query()["name"].to_list()
        stat = os.stat(tree / "a" / "b" / "deep.txt")
        assert found.select("mode", "size", "mtime").row(0) == (stat.st_mode, 5, stat.st_mtime_ns)
    with pytest.raises(InputError, match="exists already"):
        MetadataStore.scan(tree, tmp_path / "s")


def test_a_killed_process_loses_no_finished_call(tmp_path):
    def write():
        store = MetadataStore(tmp_path / "s")
        folder = store.mkdir(1, "d")
        store.create_many(folder, [f"f{i}" for i in range(500)])
        store.rename(folder, "f7", 1, "moved")
        os.kill(os.getpid(), signal.SIGKILL)

    assert in_a_child(write) == -signal.SIGKILL
    with MetadataStore(tmp_path / "s") as store:
        assert store.check() == []
        assert len(store) == 501
        assert store.lookup_many(1, ["moved"])[0] > 0


def test_threads_may_share_a_store(tmp_path):
    with MetadataStore(tmp_path / "s") as store:
        folders = [store.mkdir(1, f"d{i}") for i in range(4)]

        def fill(folder):
            for start in range(0, 400, 40):
                store.create_many(folder, [f"f{start + i}" for i in range(40)])

        threads = [threading.Thread(target=fill, args=(folder,)) for folder in folders]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(store) == 4 + 1600
        assert store.check() == []


@pytest.mark.parametrize("name", ["", "a/b", "nul\0", "x" * 256, ".", "..", b"y" * 300])
def test_bad_names_are_refused(tmp_path, name):
    with MetadataStore(tmp_path / "s") as store:
        with pytest.raises(InputError):
            store.create_many(1, ["fine", name])
        assert len(store) == 0


def test_bad_calls_are_refused(tmp_path):
    for name, value in (("granule", 3000), ("handlers", 0)):
        with pytest.raises(InputError, match=name):
            MetadataStore(tmp_path / "s", **{name: value})
    store = MetadataStore(tmp_path / "s")
    for call in (
        lambda: store.create_many(77, ["a"]), lambda: store.readdirplus(2), lambda: store.stat_many([5]), lambda: store.unlink_many(1, ["a"]),
        lambda: store.rename(1, "a", 1, "b"), lambda: store.create_many(1, ["a"], {"colour": 1}), lambda: store.setattr_many(1, ["a"], {"size": 1}),
        lambda: store.create_many(1, ["a", "b"], {"size": [1]}), lambda: store.create_many(1, ["a"], {"mode": -1}),
    ):  # fmt: skip
        with pytest.raises(InputError) as caught:
            call()
        assert "\n" not in str(caught.value)
    assert store.lookup_many(55, ["a"]).tolist() == [0]
    store.close()
    with pytest.raises(InputError, match="closed"):
        store.check()


def test_other_files_are_not_opened(tmp_path):
    path = tmp_path / "s"
    with MetadataStore(path) as store:
        store.create_many(1, [f"f{i}" for i in range(100)])
    whole = path.read_bytes()
    for change, message in (
        (lambda b: b"not a store" * 1000, "no metadata store"),
        (lambda b: b[:8] + b"\x09" + b[9:], "version 9"),
        (lambda b: b[:20] + b"\x01" + b[21:], "checksum"),
        (lambda b: b + b"\0" * 100, "multiple of the granule"),
        (lambda b: b[:8192], "groups"),
    ):
        path.write_bytes(change(whole))
        with pytest.raises(InputError, match=message):
            MetadataStore(path)
    path.write_bytes(whole)
    with pytest.raises(InputError, match="granule"):
        MetadataStore(path, granule=16384)


def test_random_damage_never_escapes_as_another_error(tmp_path):
    path = tmp_path / "s"
    with MetadataStore(path) as store:
        folder = store.mkdir(1, "d")
        store.create_many(folder, [f"f{i}" for i in range(300)])
    whole = bytearray(path.read_bytes())
    used = np.flatnonzero(np.frombuffer(whole, np.uint8))
    rng = np.random.default_rng(0)
    refused = 0
    for _ in range(60):
        broken = bytearray(whole)
        for at in rng.choice(used, 3).tolist():
            broken[at] ^= int(rng.integers(1, 256))
        path.write_bytes(broken)
        try:
            with MetadataStore(path) as store:
                store.check()
        except InputError:
            refused += 1
    assert refused > 40


def test_advice_by_size(tmp_path):
    for name, files in (("few", 3), ("one", 12), ("several", 40), ("many", 300)):
        (tmp_path / name).mkdir()
        for i in range(files):
            (tmp_path / name / str(i)).write_text("")
    advice = {row["path"]: (row["granules"], row["advice"]) for row in advise(tmp_path).iter_rows(named=True)}
    assert advice["few"] == (3 / 15, "shared")
    assert advice["one"] == (1.0, "one granule")
    assert advice["several"] == (3.0, "several granules")
    assert advice["many"] == (20.0, "hashed")
    with pytest.raises(InputError):
        advise(tmp_path / "nowhere")
