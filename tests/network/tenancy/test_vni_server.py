"""The VNI service over HTTP: its limits when they are overfilled, stalled and hung."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tenancy_objects import job, request

from armillary.errors import InputError
from armillary.network.tenancy import Limits, VniServer, VniService
from armillary.network.tenancy.service.measured import hazards, requests_per_s
from armillary.network.tenancy.service.server import serve


@contextlib.contextmanager
def served(service: VniService | None = None, **limits: Any) -> Iterator[VniServer]:
    with service or VniService(":memory:") as made, VniServer(made, port=0, limits=Limits(**{"read_s": 0.3, **limits})) as server:
        yield server


@pytest.fixture(scope="module")
def server() -> Iterator[VniServer]:
    with served() as one:
        yield one


def place(server: VniServer) -> tuple[str, int]:
    return "127.0.0.1", int(server.url.rpartition(":")[2])


def post(server: VniServer, body: object, path: str = "/sync", **headers: str) -> tuple[int, Any]:
    line = http.client.HTTPConnection(*place(server), timeout=20)
    line.request("POST", path, body if isinstance(body, bytes) else json.dumps(body), {"content-type": "application/json", **headers})
    answer = line.getresponse()
    said = json.loads(answer.read() or b"null")
    line.close()
    return answer.status, said


def send(server: VniServer, data: bytes) -> bytes:
    """Sends bytes and returns all that comes until the other side closes."""
    with socket.create_connection(place(server), timeout=20) as line:
        with contextlib.suppress(OSError):
            line.sendall(data)
        found = b""
        with contextlib.suppress(OSError):
            while part := line.recv(65536):
                found += part
        return found


HEAD = b"POST /sync HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nconnection: close\r\n"


def test_both_hooks_answer(server: VniServer) -> None:
    status, answer = post(server, request(job("u")))
    assert status == 200
    assert answer["attachments"][0]["spec"]["vni"] == 100
    assert post(server, request(job("u")), "/finalize")[1]["finalized"] is True
    assert post(server, request(job("x", "missing")))[0] == 404


def test_other_paths_methods_and_kinds_are_refused(server: VniServer) -> None:
    assert post(server, {}, "/acquire")[0] == 404
    assert post(server, {}, **{"content-type": "text/plain"})[0] == 415
    assert b" 405 " in send(server, b"GET /sync HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").splitlines()[0]
    assert b" 200 " in send(server, b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").splitlines()[0]
    assert b" 403 " in send(server, b"GET /healthz HTTP/1.1\r\nhost: a.example\r\nconnection: close\r\n\r\n").splitlines()[0]


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"\xff\xfe", b'{"object": NaN}', b"[" * 200_000, b'{"a": 1, "a": 2}', b"9" * 9000, b'{"object": {"metadata": {}}}']
)  # fmt: skip
def test_what_is_no_document_is_answered_with_400(server: VniServer, body: bytes) -> None:
    for path in ("/sync", "/finalize"):
        status, answer = post(server, body, path)
        assert status == 400
        assert "\n" not in answer["error"]
        assert len(answer["error"]) < 400


@pytest.mark.parametrize("announced", [True, False])
def test_a_body_of_more_than_a_mebibyte_is_refused_while_it_is_being_sent(announced: bool) -> None:
    body = b" " * ((1 << 20) + 1)
    with served(read_s=10) as one:
        if announced:
            reply = send(one, HEAD + b"content-length: %d\r\n\r\n" % len(body) + body)
        else:
            reply = send(one, HEAD + b"transfer-encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(body), body))
        assert b" 413 " in reply.splitlines()[0]
        assert post(one, json.dumps(request(job("u"))).encode().ljust(1 << 20))[0] == 200


def test_a_client_that_waits_for_a_go_on_is_refused_before_its_body(server: VniServer) -> None:
    reply = send(server, HEAD + b"expect: 100-continue\r\ncontent-length: 99999999\r\n\r\n")
    assert b" 413 " in reply.splitlines()[0]
    assert b"100 Continue" not in reply


def test_headers_and_bodies_that_stall_are_given_up(server: VniServer) -> None:
    assert send(server, b"POST /sync HTTP/1.1\r\nhost: x\r\n").startswith(b"HTTP/1.1 408")
    assert send(server, b"").startswith(b"HTTP/1.1 408")
    assert b" 408 " in send(server, HEAD + b"content-length: 90\r\n\r\n{").splitlines()[0]


def test_a_65th_connection_is_turned_away() -> None:
    assert Limits().connections == 64
    with served(read_s=30) as one, contextlib.ExitStack() as stack:
        lines = [stack.enter_context(socket.create_connection(place(one), timeout=20)) for _ in range(65)]
        assert lines[64].recv(100).startswith(b"HTTP/1.1 503")
        for line in lines[:8]:
            line.close()
        assert any(_status(one) == 200 for _ in range(200))


def _status(server: VniServer) -> int:
    with contextlib.suppress(OSError, http.client.HTTPException):
        return post(server, request(job("u")))[0]
    return 0


def test_a_database_that_hangs_holds_nobody_up(tmp_path: Path) -> None:
    """Another process has the write lock: requests are given up, those that wait are bounded, and all goes on afterwards."""
    path = tmp_path / "vni.db"
    with served(VniService(path), answer_s=0.3, waiting=4, read_s=10) as one:
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            found: list[int] = []
            ask = [threading.Thread(target=lambda i=i: found.append(post(one, request(job(f"u{i}")))[0])) for i in range(12)]
            for thread in ask:
                thread.start()
            for thread in ask:
                thread.join()
            assert set(found) == {504, 503}
            assert found.count(504) <= 4
            assert b" 200 " in send(one, b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").splitlines()[0]
            other.execute("ROLLBACK")
        assert any(_status(one) == 200 for _ in range(5000))
        one.service.database.check()


def test_a_commit_that_fails_is_an_error_for_all_who_share_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with served() as one:
        base = one.service.database
        run = base._run

        def failing(statement: str, *values: Any) -> int:
            if statement == "COMMIT":
                raise sqlite3.OperationalError("disk I/O error\nat once")
            return run(statement, *values)

        monkeypatch.setattr(base, "_run", failing)
        status, answer = post(one, request(job("u")))
        assert (status, answer["error"]) == (500, "OperationalError: disk I/O error\\nat once")
        monkeypatch.undo()
        assert base.allocations() == []
        assert post(one, request(job("u")))[0] == 200


def test_many_at_once_share_commits_and_lose_nothing(tmp_path: Path) -> None:
    with VniService(tmp_path / "vni.db") as service:
        assert requests_per_s(service, 60, clients=6) > 0
        assert service.database.allocations() == []
        assert hazards(service.database) == 0
        assert service.database.free() == (65436 - 60, 60)
        service.database.check()


def test_it_listens_on_the_loopback_and_elsewhere_wants_a_token() -> None:
    with served() as one:
        assert one.url.startswith("http://127.0.0.1:")
        assert one._listener.proto == socket.IPPROTO_TCP, "small answers are sent at once"
    service = VniService(":memory:")
    with pytest.raises(InputError, match="without a token"):
        VniServer(service, host="0.0.0.0")
    for token in ("short", "with/slash/with/slash", "ä" * 20, "x" * 201):
        with pytest.raises(InputError, match="token"):
            VniServer(service, token=token)
    with pytest.raises(InputError, match="0 to 65535"):
        VniServer(service, port=70000)
    with pytest.raises(InputError, match="cannot listen"):
        serve(service, host="no.such.host.invalid", token="x" * 16, port=0)
    VniServer(service, host="0.0.0.0", open=True)
