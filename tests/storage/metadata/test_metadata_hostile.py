"""What a stranger can bring: names that fall into one bucket, and store files whose checksums are right and whose links lie."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from child_process import in_a_child
from damaged_images import GROUP, HANDLERS, Image, sound

from armillary.errors import InputError
from armillary.storage.metadata import Mdsec, MetadataStore, WorkBuilder
from armillary.storage.metadata.record_groups.groups import DEPTH, TABLE_USED
from armillary.storage.metadata.record_groups.inspection import check
from armillary.storage.metadata.record_groups.records import DIRECTORY, INTENT, TINY, hash_names, name_hash
from armillary.storage.metadata.simulation.accesses import emit, empty
from armillary.storage.metadata.workload import CREATE, MKDIR, RENAME, STAT


@pytest.mark.skipif(sys.hash_info.algorithm != "siphash13", reason="this Python hashes its strings otherwise")
def test_the_hash_is_that_of_python():
    names = [b"a", b"12345678", b"a name of some length", bytes(range(200))]
    code = f"print([hash(name) % 2**64 for name in {names!r}])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, env={"PYTHONHASHSEED": "0"}, check=True, text=True)
    assert str([int(name_hash(np.frombuffer(name, np.uint8), 0, len(name), 0, 0)) for name in names]) == run.stdout.strip()


def _colliding(count, bits, key=(0, 0)):
    """Names whose hashes agree in the bits from 8 on by which directories are split."""
    digits = np.array([list(b"%05d" % i) for i in range(100_000)], np.uint8)
    text = np.zeros((100_000, 8), np.uint8)
    text[:, 3:] = digits
    hashes = np.zeros(len(text), np.uint64)
    found = []
    for stem in range(1000):
        text[:, :3] = list(b"%03d" % stem)
        hash_names(text.reshape(-1), 8 * np.arange(len(text) + 1), *key, hashes)
        chosen = (hashes >> np.uint64(8)) & np.uint64((1 << bits) - 1) == 0
        found += [row.tobytes() for row in text[chosen]]
        if len(found) >= count:
            return found[:count]
    raise AssertionError


def _with_files(names):
    builder = WorkBuilder()
    folder = builder.add(MKDIR, 1, b"d")
    for name in names:
        builder.add(CREATE, folder, name)
    builder.load_ends()
    for name in names:
        builder.add(STAT, folder, name)
    builder.add(RENAME, folder, names[0], to=(folder, names[0] + b"x"))
    return builder, folder


def test_names_that_fall_into_one_bucket_make_it_longer_and_not_the_table():
    names = _colliding(20, 19)
    builder, folder = _with_files(names)
    engine = Mdsec(chain=1, tiny=0).start(builder.build(), 1 << 20)
    engine.load()
    engine.do(engine.work.loaded, len(engine.work.ops))
    assert not engine.status.any()
    s = engine.layout
    assert s.dirs[s.row[folder], DEPTH] <= 5
    assert s.m[TABLE_USED] < 100
    assert check(engine.space, GROUP, int(s.m[0]), 16) == []


def test_a_store_survives_names_chosen_for_its_key(tmp_path):
    """Three hundred names that agree in ten bits of its own hash; a stranger does not know the key, and two stores differ in it."""
    with MetadataStore(tmp_path / "s") as store, MetadataStore(tmp_path / "t") as other:
        assert store._key != other._key
        names = _colliding(300, 10, store._key)
        folder = store.mkdir(1, "d")
        for name in names:
            store.create_many(folder, [name])
        assert store.check() == []
        assert (store.lookup_many(folder, names) > 0).all()
        assert store._layout.dirs[store._layout.row[folder], DEPTH] <= 4
    with MetadataStore(tmp_path / "s") as store:
        assert len(store) == 301


def test_a_directory_that_outgrows_a_full_shared_group_moves():
    names = [b"n%d" % i for i in range(17)]
    builder, folder = _with_files(names)
    engine = Mdsec(tiny=15).start(builder.build(), 1 << 20)
    engine.do(0, len(engine.work.ops))
    assert not engine.status.any()
    assert {name for directory, name in engine.tree() if directory == folder} == {*names[1:], names[0] + b"x"}
    assert check(engine.space, GROUP, int(engine.layout.m[0]), 16) == []


def test_a_full_access_list_drops_what_does_not_fit():
    accesses = empty(3)
    for i in range(10):
        emit(accesses, i, 64, 0)
    assert accesses[0, 0] == 3


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return sound(tmp_path_factory.mktemp("sound") / "store")


def _changed(whole, number, word=None, *, half=None, value=0):
    """Changes a word or half word of an id's record."""
    image = Image(whole)
    group, slot = image.place_of(number)
    r = image.record(group, slot)
    if half is None:
        image.w[r + word] = np.uint64(value)
    else:
        image.h[2 * r + half] = np.uint32(value)
    image.seal(group, slot)
    return image


def _header(whole, number, word, value):
    """Changes a word of the header of the first group of a directory."""
    image = Image(whole)
    head = int(image.w[image.record(*image.place_of(number)) + 10])
    image.w[head * GROUP // 8 + word] = np.uint64(value)
    image.seal(head)
    return image


#: Ids in `sound`: 2 to 6 are nested directories, 7 is plain, 8 to 47 are its files, 48 and 49 have long names.
ROOT_RECORD, TOP, INNER, PLAIN, A_FILE, LONG = 1, 2, 5, 7, 8, 48


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda b: _changed(b, ROOT_RECORD, half=17, value=TINY), "root"),
        (lambda b: _changed(b, ROOT_RECORD, 1, value=1 << 40), "root"),
        (lambda b: _changed(b, ROOT_RECORD, half=18, value=5 | DIRECTORY << 16), "root"),
        (lambda b: _changed(b, A_FILE, 0, value=A_FILE + 1), "two places"),
        (lambda b: _changed(b, INNER, 0, value=TOP), "two places"),
        (lambda b: _changed(b, A_FILE, 0, value=1 << 62), "too large"),
        (lambda b: _changed(b, A_FILE, 1, value=TOP), "cannot be"),
        (lambda b: _changed(b, A_FILE, 10, value=1), "cannot be"),
        (lambda b: _changed(b, A_FILE, half=17, value=TINY), "cannot be"),
        (lambda b: _changed(b, A_FILE, half=18, value=255 | 1 << 16), "cannot be"),
        (lambda b: _changed(b, A_FILE, half=18, value=2 | INTENT << 16), "cannot be"),
        (lambda b: _changed(b, A_FILE, half=18, value=2 | 1 << 16 | 1 << 24), "cannot be"),
        (lambda b: _changed(b, LONG, half=18, value=255 | 1 << 16 | 1 << 24), "cannot be"),
        (lambda b: _changed(b, LONG, half=18, value=160 | 1 << 16), "cannot be"),
        (lambda b: _changed(b, PLAIN, half=17, value=TINY), "does not belong"),
        (lambda b: _changed(b, PLAIN, 10, value=1 << 30), "cannot be"),
        (lambda b: _changed(b, PLAIN, 10, value=1), "leads nowhere"),
        (lambda b: _header(b, PLAIN, 0, TOP), "does not belong"),
        (lambda b: _header(b, PLAIN, 1, 1 << 20), "does not belong"),
        (lambda b: _header(b, PLAIN, 2, 1 << 40), "leads nowhere"),
        (lambda b: _header(b, PLAIN, 3, HANDLERS + 1), "leads nowhere"),
    ],
)  # fmt: skip
def test_an_image_whose_links_lie_is_refused(tmp_path, whole, damage, message):
    path = tmp_path / "store"
    path.write_bytes(damage(whole).b.tobytes())
    with pytest.raises(InputError, match=message) as caught:
        MetadataStore(path)
    assert str(path) in str(caught.value)


def test_an_open_intent_does_not_excuse_a_directory_inside_itself(tmp_path, whole):
    """The first walk allows an id with an open intent in two places; the second, after all intents are settled, does not."""
    image = _changed(whole, INNER, 0, value=TOP)
    r = image.record(1, 0)
    image.w[r : r + 32] = 0
    image.w[r], image.h[2 * r + 18] = TOP, INTENT << 16
    image.seal(1, 0)
    image.w[GROUP // 8 + 1] = 1
    image.seal(1)
    path = tmp_path / "store"
    path.write_bytes(image.b.tobytes())
    with pytest.raises(InputError, match="two places"):
        MetadataStore(path)


def test_buckets_must_share_out_the_hashes(tmp_path, whole):
    path = tmp_path / "store"
    path.write_bytes(whole)
    with MetadataStore(path) as store:
        hashed = int(store.lookup_many(1, ["hashed"])[0])
    image = Image(whole)
    head = int(image.w[image.record(*image.place_of(hashed)) + 10])
    for byte, value in ((44, 0), (44, 24), (36, 1)):
        broken = Image(whole)
        broken.b[head * GROUP + byte] = value
        broken.seal(head)
        path.write_bytes(broken.b.tobytes())
        with pytest.raises(InputError, match="buckets"):
            MetadataStore(path)


def test_a_store_is_open_once(tmp_path):
    def refused() -> bool:
        try:
            MetadataStore(tmp_path / "s").close()
        except InputError as error:
            return "already open" in str(error)
        return False

    with MetadataStore(tmp_path / "s") as store:
        store.create_many(1, ["a"])
        assert refused()
        assert in_a_child(refused) == 1
    assert in_a_child(refused) == 0


def test_what_is_no_regular_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    for name, message in (("fifo", "a FIFO"), (".", "folder|directory"), ("missing/s", "no such file")):
        with pytest.raises(InputError, match=message):
            MetadataStore(tmp_path / name)


def test_ids_may_outrun_the_slots(tmp_path):
    """A small directory whose files come and go for long can still be opened."""
    with MetadataStore(tmp_path / "s") as store:
        store.create_many(1, ["kept"])
        for _ in range(150):
            store.create_many(1, [f"f{i}" for i in range(1000)])
            store.unlink_many(1, [f"f{i}" for i in range(1000)])
        last = int(store.create_many(1, ["last"])[0])
        assert last > 150_000
    with MetadataStore(tmp_path / "s") as store:
        assert store.lookup_many(1, ["last"]).tolist() == [last]
