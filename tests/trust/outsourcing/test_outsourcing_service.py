"""The server over TCP: honest and lying, killed and frozen; and every limit, overfilled by real connections."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from armillary.errors import InputError
from armillary.trust.outsourcing import Bases, Busy, Cheated, Client, Refused, RemoteServer, Server, Service, msm
from armillary.trust.outsourcing.service import tcp
from armillary.trust.outsourcing.service.wire import ANSWERED, BUSY, MAGIC, MOST_REASON, QUERY, REFUSED, REPLY, query, reply

TERMS = 40
X = list(range(1, TERMS + 1))
SCALARS = b"".join(one.to_bytes(32, "little") for one in X)


@pytest.fixture
def bases() -> Bases:
    return Bases.from_label("service", TERMS)


@pytest.fixture
def made(bases: Bases) -> tuple[Client, Server]:
    client, public = Client.setup(bases)
    return client, Server(bases, public)


def heard(connection: socket.socket, patience_s: float = 20.0) -> tuple[int, bytes]:
    """The next reply; an empty status −1 if the connection is closed instead."""
    connection.settimeout(patience_s)
    data = b""
    while len(data) < REPLY.size:
        more = connection.recv(REPLY.size - len(data))
        if not more:
            return -1, data
        data += more
    magic, status, length = REPLY.unpack(data)
    assert magic == MAGIC
    body = b""
    while len(body) < length:
        body += connection.recv(length - len(body))
    return status, body


def closed(connection: socket.socket, patience_s: float = 20.0) -> bool:
    connection.settimeout(patience_s)
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def until(true: Callable[[], bool], patience_s: float = 20.0) -> bool:
    deadline = time.monotonic() + patience_s
    while not true() and time.monotonic() < deadline:
        threading.Event().wait(0.002)
    return true()


def test_a_client_asks_checks_and_asks_again(made: tuple[Client, Server], bases: Bases) -> None:
    client, server = made
    with Service(server) as service:
        assert service.address[0] == "127.0.0.1"
        with RemoteServer(service.address) as remote:
            for x in (X, X[::-1], [0] * TERMS):
                assert client.verify(x, remote.answer(x)) == msm(bases, x)
            with pytest.raises(InputError, match=r"below q|q − 1"):
                remote.answer([-1] * TERMS)
        assert until(lambda: service.open == 0)
    assert service.working == 0


def test_many_clients_at_once_get_their_own_answers(made: tuple[Client, Server], bases: Bases) -> None:
    client, server = made
    found: dict[int, Any] = {}
    with Service(server, connections=8, queries=8) as service:

        def ask(k: int) -> None:
            with RemoteServer(service.address) as remote:
                x = [k + one for one in X]
                found[k] = client.verify(x, remote.answer(x))

        threads = [threading.Thread(target=ask, args=(k,)) for k in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    assert found == {k: msm(bases, [k + one for one in X]) for k in range(8)}


def test_one_connection_too_many_is_told_and_a_place_that_is_free_again_is_taken(made: tuple[Client, Server]) -> None:
    _, server = made
    with Service(server, connections=2) as service, contextlib.ExitStack() as held:
        first = [held.enter_context(socket.create_connection(service.address)) for _ in range(2)]
        assert until(lambda: service.open == 2)
        for _ in range(3):
            with socket.create_connection(service.address) as third:
                status, said = heard(third)
                assert (status, said) == (BUSY, b"2 connections are open")
                assert closed(third)
        first[0].close()
        assert until(lambda: service.open == 1)
        with RemoteServer(service.address) as remote:
            assert len(remote.answer(X)) == 64
    with pytest.raises(InputError, match="cannot connect"):
        RemoteServer(service.address)


def test_one_query_too_many_is_told(made: tuple[Client, Server], monkeypatch: pytest.MonkeyPatch) -> None:
    _, server = made
    go_on = threading.Event()
    sums = server.answer

    def slow(x: Any) -> bytes:
        assert go_on.wait(30)
        return sums(x)

    monkeypatch.setattr(server, "answer", slow)
    with Service(server, queries=2) as service, contextlib.ExitStack() as held:
        waiting = [held.enter_context(socket.create_connection(service.address)) for _ in range(2)]
        for one in waiting:
            one.sendall(query(SCALARS))
        assert until(lambda: service.working == 2)
        with RemoteServer(service.address) as remote, pytest.raises(Busy, match="2 queries are being answered"):
            remote.answer(X)
        go_on.set()
        assert [heard(one)[0] for one in waiting] == [ANSWERED, ANSWERED]
        with RemoteServer(service.address) as remote:
            assert len(remote.answer(X)) == 64


@pytest.mark.parametrize("sent", [b"", MAGIC, QUERY.pack(MAGIC, TERMS), QUERY.pack(MAGIC, TERMS) + SCALARS[:-1]])
def test_who_stops_in_the_middle_is_closed_and_gives_its_place_back(made: tuple[Client, Server], sent: bytes) -> None:
    _, server = made
    with Service(server, connections=1, queries=1, idle_s=0.15, message_s=0.15) as service:
        with socket.create_connection(service.address) as silent:
            silent.sendall(sent)
            began = time.monotonic()
            assert closed(silent)
            assert time.monotonic() - began < 15
        assert until(lambda: service.open == service.working == 0)
        with RemoteServer(service.address) as remote:
            assert len(remote.answer(X)) == 64


def test_who_sends_a_byte_now_and_then_does_not_stay(made: tuple[Client, Server]) -> None:
    _, server = made
    with Service(server, message_s=0.3) as service, socket.create_connection(service.address) as trickle:
        trickle.sendall(QUERY.pack(MAGIC, TERMS))
        began = time.monotonic()
        with contextlib.suppress(OSError):
            while time.monotonic() - began < 15:
                trickle.sendall(b"\0")
                threading.Event().wait(0.005)
                if not service.open:
                    break
        assert time.monotonic() - began < 10
        assert until(lambda: service.working == 0)


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (QUERY.pack(MAGIC, TERMS + 1) + SCALARS, b"found 41 scalars; expected 40"),
        (QUERY.pack(MAGIC, 0), b"found 0 scalars; expected 40"),
        (QUERY.pack(MAGIC, 2**32 - 1) + bytes(100_000), b"found 4,294,967,295 scalars; expected 40"),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"found no query where one should begin"),
        (QUERY.pack(MAGIC, TERMS) + b"\xff" * (32 * TERMS), b"scalars: scalar 0: found ffffffff"),
        (QUERY.pack(MAGIC, TERMS + 1) + bytes(tcp.DISCARDED_BYTES // 2), b"found 41 scalars"),
    ],
)
def test_a_wrong_query_is_refused_with_the_reason(made: tuple[Client, Server], sent: bytes, said: bytes) -> None:
    _, server = made
    with Service(server) as service, socket.create_connection(service.address) as wrong:
        wrong.sendall(sent)
        wrong.shutdown(socket.SHUT_WR)
        status, why = heard(wrong)
        assert status == REFUSED
        assert why.startswith(said)
        assert len(why) <= MOST_REASON
        assert closed(wrong)


def test_a_query_longer_than_it_says_shows_in_the_next_one(made: tuple[Client, Server]) -> None:
    _, server = made
    with Service(server) as service, socket.create_connection(service.address) as longer:
        longer.sendall(query(SCALARS) + bytes(64))
        assert heard(longer)[0] == ANSWERED
        status, why = heard(longer)
        assert status == REFUSED
        assert b"the one before was longer than it said" in why
        assert closed(longer)


def test_a_flood_of_bytes_after_a_refusal_is_cut_off(made: tuple[Client, Server]) -> None:
    _, server = made
    with Service(server) as service, socket.create_connection(service.address) as flood:
        flood.sendall(QUERY.pack(MAGIC, 1))
        sent = 0
        flood.settimeout(20)
        with pytest.raises(OSError):
            while sent < 1 << 30:
                sent += flood.send(bytes(1 << 16))
        assert sent < 1 << 27
        assert until(lambda: service.open == 0)


def test_leaving_the_service_ends_open_connections(made: tuple[Client, Server]) -> None:
    _, server = made
    with Service(server) as service:
        open_one = socket.create_connection(service.address)
        assert until(lambda: service.open == 1)
    with open_one:
        assert closed(open_one)
    assert not any(thread.name.startswith("msm") for thread in threading.enumerate())


@pytest.mark.parametrize(
    "wrong", [{"connections": 0}, {"queries": 0}, {"idle_s": 0.0}, {"message_s": -1.0}, {"port": 70_000}, {"port": -1}]
)
def test_bounds_that_let_nobody_in_are_refused(made: tuple[Client, Server], wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        Service(made[1], **wrong)


class Liar:
    """A socket that takes one query and then sends what it was told to."""

    def __init__(self, sent: bytes, *, then_close: bool = True) -> None:
        self.sent, self.then_close = sent, then_close

    def __enter__(self) -> Liar:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = self._listener.getsockname()[:2]
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()
        return self

    def _serve(self) -> None:
        with self._listener, self._listener.accept()[0] as connection:
            left = QUERY.size + len(SCALARS)
            while left > 0:
                left -= len(connection.recv(left))
            connection.sendall(self.sent)
            if not self.then_close:
                self._over.wait(30)

    def __exit__(self, *gone: object) -> None:
        self._over.set()
        self._thread.join(30)


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (b"", "closed after 0 of 9 bytes"),
        (b"HTTP/1.1 400 Bad Request\r\n", "no reply of this service"),
        (REPLY.pack(MAGIC, ANSWERED, 2**32 - 1), "no reply of this service"),
        (REPLY.pack(MAGIC, REFUSED, MOST_REASON + 1), "no reply of this service"),
        (reply(ANSWERED, bytes(64))[:-1], "closed after 63 of 64 bytes"),
        (reply(REFUSED, b"\x1b[2J\xff no"), r"\\x1b\[2J� no"),
        (reply(77, b"what?"), "what"),
    ],
)
def test_a_liars_reply_is_bounded_and_made_printable(sent: bytes, said: str) -> None:
    with Liar(sent) as liar, RemoteServer(liar.address, timeout_s=20) as remote, pytest.raises(Refused, match=said):
        remote.answer(X)


@pytest.mark.parametrize("body", [bytes(64), b"\xff" * 64, b"", bytes(63)])
def test_a_liars_answer_is_refused_by_the_check(made: tuple[Client, Server], body: bytes) -> None:
    with Liar(reply(ANSWERED, body)) as liar, RemoteServer(liar.address, timeout_s=20) as remote, pytest.raises(Cheated):
        made[0].verify(X, remote.answer(X))


@pytest.mark.parametrize("sent", [b"", reply(ANSWERED, bytes(64))[:20]])
def test_a_server_that_stops_in_its_reply_is_given_up(sent: bytes) -> None:
    with (
        Liar(sent, then_close=False) as liar,
        RemoteServer(liar.address, timeout_s=0.2) as remote,
        pytest.raises(Refused, match="no reply"),
    ):
        remote.answer(X)


def test_a_late_reply_is_never_taken_for_the_next_answer(made: tuple[Client, Server], monkeypatch: pytest.MonkeyPatch) -> None:
    client, server = made
    go_on = threading.Event()
    sums = server.answer
    monkeypatch.setattr(server, "answer", lambda x: sums(x) if go_on.wait(30) else b"")
    with Service(server) as service, RemoteServer(service.address, timeout_s=0.2) as remote:
        with pytest.raises(Refused, match="no reply"):
            remote.answer(X)
        go_on.set()
        assert until(lambda: service.working == 0)
        with pytest.raises(Refused, match="make another one"):
            remote.answer(X[::-1])
        with RemoteServer(service.address) as another:
            client.verify(X[::-1], another.answer(X[::-1]))
    assert client.rejections == 0


@contextlib.contextmanager
def served(folder: Path, bases: Bases, public: Bases) -> Iterator[tuple[subprocess.Popen[str], tuple[str, int]]]:
    """The command line's service, in a process of its own."""
    bases.save(folder / "b.r255")
    public.save(folder / "t.r255")
    command = [sys.executable, "-m", "armillary.cli", "2g2t", "serve", "--bases", "b.r255", "--public", "t.r255", "--port", "0"]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        said = process.stdout.readline().split()
        assert said[:2] == ["serving", "sums"], said
        yield process, (said[6], int(said[8]))
    finally:
        process.kill()
        process.communicate(timeout=30)


def test_a_server_that_is_frozen_or_killed_is_noticed(tmp_path: Path, bases: Bases) -> None:
    client, public = Client.setup(bases)
    with served(tmp_path, bases, public) as (process, address):
        with RemoteServer(address) as remote:
            assert client.verify(X, remote.answer(X)) == msm(bases, X)
        with RemoteServer(address, timeout_s=0.3) as remote:
            os.kill(process.pid, signal.SIGSTOP)
            with pytest.raises(Refused, match="no reply"):
                remote.answer(X)
            os.kill(process.pid, signal.SIGCONT)
        with RemoteServer(address) as remote:
            assert client.verify(X, remote.answer(X)) == msm(bases, X)
            os.kill(process.pid, signal.SIGKILL)
            process.wait(30)
            with pytest.raises(Refused, match=r"closed|no reply"):
                remote.answer(X)
        with pytest.raises(InputError, match="cannot connect"):
            RemoteServer(address)
    assert client.rejections == 0


def test_the_service_ends_when_interrupted(tmp_path: Path, bases: Bases) -> None:
    _, public = Client.setup(bases)
    with served(tmp_path, bases, public) as (process, address), socket.create_connection(address):
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""
