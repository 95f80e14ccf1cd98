"""Two ends over a stream, damaged frames, and what a stranger may say."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import random
import socket
import threading
from pathlib import Path

import pytest
from directory_trees import STATE, tree
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.errors import InputError
from armillary.storage.synchronization.directories import Entry, Replica, Transport, converse, sync, wire
from armillary.storage.synchronization.directories.entries import entry_version
from armillary.storage.synchronization.directories.session import Session
from armillary.storage.synchronization.replicas.link_register import Phase, Register, Word
from armillary.storage.synchronization.world.protocol import Message

ME = "ab" * 16


def talk(pair: tuple[Path, Path], damage=lambda data: data) -> list[object]:
    """Runs both ends over a socket, each in a thread, and returns their reports or errors; `damage` sees what the left one sends."""
    ends = socket.socketpair()
    out: list[object] = [None, None]

    def run(me: int) -> None:
        with ends[me] as end:
            write = (lambda data: end.sendall(damage(data))) if me == 0 else end.sendall
            try:
                with Replica(pair[me], durable=False) as replica:
                    out[me] = converse(replica, Transport(end.recv, write))
            except InputError as error:
                out[me] = error

    threads = [threading.Thread(target=run, args=(me,)) for me in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    return out


def test_two_ends_over_a_socket(pair, a, b):
    (a / "big").write_bytes(os.urandom(3 * wire.PIECE + 5))
    (a / "empty").write_bytes(b"")
    (b / "d").mkdir()
    (b / "d/big").write_bytes(os.urandom(2 * wire.PIECE))
    reports = talk(pair)
    assert [r.status for r in reports] == ["in sync"] * 2
    assert tree(a) == tree(b)
    assert len(tree(a)) == 4


def test_a_flipped_bit_is_an_error_and_never_a_wrong_tree(pair, a, b):
    rng = random.Random(0)
    files = {f"f{k}": rng.randbytes(500) for k in range(6)}
    for name, data in files.items():
        (a / name).write_bytes(data)
    sent = [0]

    def count(data: bytes) -> bytes:
        sent[0] += len(data)
        return data

    talk(pair, count)
    total = sent[0]
    seen = 0
    for trial in range(20):
        (a / "f0").write_bytes(rng.randbytes(500))
        (b / "g").write_bytes(rng.randbytes(50))
        # A little beyond the first meeting's length would never be reached; these talks are shorter.
        at = [rng.randrange(min(total, 1600))]

        def flip(data: bytes, at=at, bit=1 << trial % 8) -> bytes:
            if 0 <= at[0] < len(data):
                data = data[: at[0]] + bytes([data[at[0]] ^ bit]) + data[at[0] + 1 :]
                at[0] = -1
            elif at[0] >= 0:
                at[0] -= len(data)
            return data

        before = (a / "f0").read_bytes(), (b / "g").read_bytes()
        out = talk(pair, flip)
        assert before == ((a / "f0").read_bytes(), (b / "g").read_bytes())
        if at[0] < 0:
            assert any(isinstance(o, InputError) for o in out)
            seen += 1
        for root in pair:
            assert set(tree(root)) <= {b"g", *(n.encode() for n in files)}
        assert sync(*pair, durable=False).status == "in sync"
        assert tree(a) == tree(b)
        assert (b / "f0").read_bytes() == before[0]
    assert seen > 10


def session(tmp_path: Path) -> Session:
    root = tmp_path / "s"
    root.mkdir()
    return Session(Replica(root, durable=False))


def hello(me: str = ME, count: int = 0, version: int = wire.FORMAT) -> bytes:
    return wire.Writer(wire.HELLO).text("armillary-sync").number(version).blob(bytes.fromhex(me)).number(count).done()


def test_what_a_stranger_may_not_say(tmp_path):
    s = session(tmp_path)
    for body in (b"", b"\x07\x00", hello(version=9), b"\x01\x05hello", hello()[:-1], hello(me="ab"), b"\xff"):
        with pytest.raises(InputError):
            s.take(body)
    s.take(hello())
    with pytest.raises(InputError):
        s.take(hello())
    for body in (b"\x02", b"\x02\x99", b"\x03\xff\xff\xff\xff\x0f", b"\x04\x20" + bytes(31), b"\x63"):
        with pytest.raises(InputError):
            s.take(body)


@pytest.mark.parametrize("path", ["../escape", "/absolute", STATE + "/state.sqlite", "a/../../b"])
def test_offers_outside_the_root_are_refused(tmp_path, path):
    s = session(tmp_path)
    s.take(hello())
    made = entry_version((), f"{ME}/1", path, Entry("link", 0, 1, "x"))
    word = Word(1, 1, {ME: 1}, (((ME, 1), made),))
    with pytest.raises(InputError, match="path: found"):
        s.take(wire.link_body(Message("offer", word)))


def test_a_version_with_a_wrong_id_or_no_parents_is_refused(tmp_path):
    for k, made in enumerate((
        entry_version(("cd" * 16,), f"{ME}/1", "f", None),
        entry_version((), f"{ME}/1", "f", None).__class__("ee" * 16, f"{ME}/1", (), "f", None, "", ()),
    )):  # fmt: skip
        folder = tmp_path / str(k)
        folder.mkdir()
        s = session(folder)
        s.take(hello())
        s.take(wire.link_body(Message("offer", Word(1, 1, {ME: 1}, (((ME, 1), made),)))))
        with pytest.raises(InputError, match="wrong id"):
            list(s.turn())
        assert tree(s.replica.path) == {}


@given(st.binary(max_size=200))
def test_any_bytes_are_taken_apart_or_refused(body):
    with contextlib.suppress(InputError):
        wire.read_link(wire.Reader(body), STATE)


texts = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="/\0"), min_size=1, max_size=20).filter(
    lambda t: t not in (".", "..", STATE) and len(t.encode()) < 256
)
ids = st.binary(min_size=16, max_size=16).map(bytes.hex)
entries = st.one_of(
    st.none(),
    st.builds(Entry, st.just("file"), st.integers(0, 0o777), st.integers(0, 2**62), st.binary(min_size=32, max_size=32).map(bytes.hex)),
    st.builds(Entry, st.just("dir"), st.integers(0, 0o777), st.just(0), st.just("")),
    st.builds(Entry, st.just("link"), st.just(0), st.integers(0, 100), texts),
)
versions = st.builds(entry_version, st.lists(ids, max_size=3, unique=True).map(tuple), texts, texts, entries)
words = st.builds(
    Word, st.integers(0, 2**40), st.integers(0, 2**40), st.dictionaries(ids, st.integers(0, 2**40), max_size=4),
    st.lists(st.tuples(st.tuples(ids, st.integers(0, 2**40)), versions), max_size=4).map(tuple), st.just("") | ids, st.sampled_from(Phase), st.integers(0, 9),
)  # fmt: skip


@settings(max_examples=50)
@given(st.sampled_from(wire.LINK_KINDS), words)
def test_messages_come_back_as_they_were(kind, word):
    body = wire.link_body(Message(kind, word))
    assert wire.read_link(wire.Reader(body[1:]), STATE) == Message(kind, word)


def test_frames_are_checked():
    sent: list[bytes] = []
    out = Transport(lambda n: b"", sent.append)
    out.send(b"hello")
    frame = b"".join(sent)
    assert Transport(_reader(frame), sent.append).receive() == b"hello"
    for k in range(8 * len(frame)):
        bad = bytearray(frame)
        bad[k // 8] ^= 1 << k % 8
        with pytest.raises(InputError):
            Transport(_reader(bytes(bad)), sent.append).receive()
    for cut in range(len(frame)):
        with pytest.raises(InputError, match="other end is gone"):
            Transport(_reader(frame[:cut]), sent.append).receive()


def _reader(data: bytes):
    left = [data]

    def read(n: int) -> bytes:
        part, left[0] = left[0][:n], left[0][n:]
        return part

    return read


def test_every_field_of_a_register_is_kept(pair):
    made = entry_version((), f"{ME}/1", "f\udcff", Entry("file", 0o640, 3, "0f" * 32))
    gone = entry_version((made.id,), f"{ME}/1", "f\udcff", None)
    items = (((ME, 1), made), ((ME, 2), gone))
    full = Register(3, 7, Phase.COMMITTING, "cd" * 16, items, items[:1], (6, "ef" * 16), 5)
    names = [field.name for field in dataclasses.fields(Register)]
    assert all(getattr(full, name) != getattr(Register(), name) for name in names)
    with Replica(pair[0], durable=False) as replica:
        assert replica.store.register(ME) == Register()
        replica.store.keep_register(ME, full, names)
        assert replica.store.register(ME) == full
