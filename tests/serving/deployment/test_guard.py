"""What a stranger may do to the endpoint: slow, endless and crafted requests, clients that hang up, and an engine that is gone."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import logging
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

pytest.importorskip("torch")
pytest.importorskip("starlette")
uvicorn = pytest.importorskip("uvicorn")

from armillary.listening import bounded_connection  # noqa: E402
from armillary.llm.tiny.transformer import Tiny  # noqa: E402
from armillary.serving.deployment.checking.client import Client  # noqa: E402
from armillary.serving.deployment.endpoint.batcher import MOST_FAILURES, Batcher  # noqa: E402
from armillary.serving.deployment.endpoint.endpoint import Endpoint  # noqa: E402
from armillary.serving.deployment.endpoint.guard import Limits  # noqa: E402

SHORT = Limits(headers_s=0.3, body_s=0.5, connections=8)
ASK = {"model": "tiny-llama", "prompt": "x", "max_tokens": 2}


@contextlib.contextmanager
def served(batcher: Batcher, limits: Limits = SHORT, **how) -> Iterator[str]:
    """Serves a batcher in a thread, at a free port of the loopback."""
    endpoint = Endpoint(batcher, "tiny-llama", limits=limits, **how)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(64)
        config = uvicorn.Config(
            endpoint.app(), http=bounded_connection(limits.connections, limits.headers_s), lifespan="off", log_level="warning", ws="none",
            log_config=None, timeout_keep_alive=1,
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])))
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(timeout=30)


@pytest.fixture(scope="module")
def batcher():
    made = Batcher(Tiny.make("tiny-llama"))
    made.start()
    yield made
    made.stop()


@pytest.fixture(scope="module")
def url(batcher):
    with served(batcher) as at:
        yield at


def send(url: str, head: str, body: bytes = b"") -> bytes:
    """Sends raw bytes and returns all that comes back until the server closes."""
    with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), timeout=20) as line:
        line.sendall(head.replace("\n", "\r\n").encode() + body)
        return b"".join(iter(lambda: line.recv(1 << 16), b""))


def post(url: str, **headers: str) -> int:
    line = http.client.HTTPConnection(url.split("//")[1], timeout=20)
    line.request("POST", "/v1/completions", json.dumps(ASK), {"content-type": "application/json"} | headers)
    with contextlib.closing(line):
        return line.getresponse().status


@pytest.mark.parametrize(
    "host", ["127.0.0.1:80", "[::1]:80", "localhost", "tiny:8000", "tiny.default.svc:8000", "box.local", "models.example.org"]
)
def test_hosts_that_no_stranger_can_point_here_are_served(batcher, host):
    with served(batcher, hosts=frozenset({"models.example.org"})) as at:
        assert post(at, host=host) == 200


@pytest.mark.parametrize("host", ["evil.example.org", "127.0.0.1.nip.example", "a.b:80", "", "[::1", "x.svc.example.org"])
def test_a_name_that_a_stranger_points_here_is_refused(url, host):
    assert post(url, host=host) in (400, 403)


@pytest.mark.parametrize("origin", ["https://evil.example.org", "null", "http://localhost:1", "http://127.0.0.1"])
def test_pages_of_other_sites_are_refused(url, origin):
    assert post(url, origin=origin) == 403
    assert post(url, origin=url) == 200


def test_a_key_stands_for_host_and_origin(batcher):
    with served(batcher, api_key="sesame") as at:
        assert post(at, host="evil.example.org", origin="https://evil.example.org") == 401
        assert post(at, host="evil.example.org", authorization="Bearer sesame") == 200


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "", "text/plain; application/json"])
def test_what_a_form_can_send_is_refused(url, kind):
    assert post(url, **{"content-type": kind}) == 415


def test_headers_that_never_end_are_given_up(url):
    assert send(url, "GET /health HTTP/1.1\nhost: localhost\n").startswith(b"HTTP/1.1 408")
    assert send(url, "").startswith(b"HTTP/1.1 408")
    with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), timeout=20) as kept:
        kept.sendall(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert kept.recv(1000).startswith(b"HTTP/1.1 200")
        kept.sendall(b"GET /health HTTP/1.1\r\n")
        assert kept.recv(1000).startswith(b"HTTP/1.1 408")


def test_a_body_that_never_ends_is_given_up(url):
    head = "POST /v1/completions HTTP/1.1\nhost: localhost\ncontent-type: application/json\nconnection: close\ncontent-length: 90\n\n{"
    assert send(url, head).startswith(b"HTTP/1.1 408")


def test_the_connections_are_counted(batcher):
    with served(batcher, Limits(headers_s=30, connections=4)) as at, contextlib.ExitStack() as open_:
        place = ("127.0.0.1", int(at.rpartition(":")[2]))
        lines = [open_.enter_context(socket.create_connection(place, timeout=20)) for _ in range(5)]
        assert lines[4].recv(100).startswith(b"HTTP/1.1 503")
        for line in lines:
            line.close()
        assert any(Client(at).ask("/health").status == 200 for _ in range(200))


@pytest.mark.parametrize("size", [(1 << 20) + 1, 24 << 20])
@pytest.mark.parametrize("announced", [True, False])
def test_a_body_that_is_too_large_is_answered_although_it_is_still_being_sent(url, size, announced):
    body = b'{"prompt": "' + b"x" * size
    head = "POST /v1/completions HTTP/1.1\nhost: localhost\ncontent-type: application/json\nconnection: close\n"
    if announced:
        reply = send(url, f"{head}content-length: {len(body)}\n\n", body)
    else:
        reply = send(url, f"{head}transfer-encoding: chunked\n\n", b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body))
    assert reply.startswith(b"HTTP/1.1 413")
    assert b"request_too_large" in reply


@pytest.mark.parametrize(("path", "status"), [("/v1/completions", b"415"), ("/nowhere", b"415"), ("/v1/models", b"415")])
def test_any_refusal_waits_for_the_body(url, path, status):
    head = f"POST {path} HTTP/1.1\nhost: localhost\nconnection: close\ncontent-length: {8 << 20}\n\n"
    assert send(url, head, bytes(8 << 20)).startswith(b"HTTP/1.1 " + status)


def test_a_client_that_waits_for_a_go_on_is_refused_before_its_body(url):
    head = (
        "POST /v1/completions HTTP/1.1\nhost: localhost\ncontent-type: application/json\nexpect: 100-continue\ncontent-length: 9000000\n\n"
    )
    reply = send(url, head)
    assert b"413" in reply.splitlines()[0]
    assert b"100 Continue" not in reply


@pytest.mark.parametrize("when", ["body", "answer", "stream"])
def test_a_client_that_hangs_up_leaves_nothing_in_the_log(batcher, caplog, when):
    with caplog.at_level(logging.WARNING), served(batcher) as at:
        text = json.dumps({**ASK, "max_tokens": 2000, "ignore_eos": True, "stream": when == "stream"})
        size = len(text) + (9 if when == "body" else 0)
        head = f"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {size}\r\n\r\n{text}"
        line = socket.create_connection(("127.0.0.1", int(at.rpartition(":")[2])), timeout=20)
        line.sendall(head.encode())
        if when == "stream":
            line.recv(100)
        elif when == "answer":
            assert any(batcher.counters.gauges["num_requests_running"] or time.sleep(0.01) for _ in range(2000))
        line.close()
        assert any(not batcher.inside or time.sleep(0.01) for _ in range(2000))
    assert not caplog.records


def broken(step) -> Batcher:
    """Returns a batcher whose engine's iterations are replaced."""
    made = Batcher(Tiny.make("tiny-llama"), stall_s=0.2)
    made.start()
    made.engine.step = step
    return made


def test_health_notices_an_engine_that_hangs():
    go_on = threading.Event()
    hung = broken(lambda: go_on.wait(60) and [])
    with served(hung) as at:
        assert Client(at).ask("/health").status == 200
        events = threading.Thread(target=lambda: list(Client(at).stream("/v1/completions", ASK)), daemon=True)
        events.start()
        assert any(Client(at).ask("/health").status == 503 for _ in range(2000))
        assert "no progress" in Client(at).ask("/health").text
        assert Client(at).ask("/v1/completions", ASK).status == 503
        hung.engine.step = type(hung.engine).step.__get__(hung.engine)
        go_on.set()
        events.join(timeout=30)
        assert any(Client(at).ask("/health").status == 200 for _ in range(2000))
    hung.stop()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_health_notices_an_engine_whose_thread_is_dead():
    def step():
        raise SystemExit("out of memory")

    dead = broken(step)
    with served(dead) as at:
        reply = Client(at).ask("/v1/completions", ASK)
        assert reply.status == 500
        assert "out of memory" in reply.text
        assert any(Client(at).ask("/health").status == 503 for _ in range(200))
        assert Client(at).ask("/v1/completions", ASK).status == 503


def test_health_notices_an_engine_that_always_fails():
    def step():
        raise RuntimeError("no")

    failing = broken(step)
    with served(failing) as at:
        for _ in range(MOST_FAILURES):
            assert Client(at).ask("/v1/completions", ASK).status == 500
        assert Client(at).ask("/health").status == 503
    failing.stop()


def test_sglangs_key_is_in_no_process_list(tmp_path):
    """The command is really started, with a package of that name that prints what it was given and what the process list shows."""
    from armillary.serving.deployment import Service
    from armillary.serving.deployment.rendering.engine_command import engine_words

    package = tmp_path / "sglang"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "launch_server.py").write_text(
        "import pathlib, sys\nif __name__ == '__main__':\n    print(sys.argv[1:])\n    print(pathlib.Path('/proc/self/cmdline').read_bytes())\n"
    )
    content = {
        "name": "one", "engine": "sglang", "image": "docker.io/lmsysorg/sglang:v0.5.0", "model": {"source": "path", "id": "m"},
        "auth": {"api_key_secret": "k:v"}, "resources": {"gpus_per_node": 1, "cpus": 1, "memory_gib": 1},
    }  # fmt: skip
    command = engine_words(Service.parse(content), host="127.0.0.1", port="1")
    env = {"PYTHONPATH": str(tmp_path), "SGLANG_API_KEY": "open-sesame-42"}
    said = subprocess.run([sys.executable, *command[1:]], env=env, capture_output=True, text=True, check=True).stdout.splitlines()
    assert "'--api-key', 'open-sesame-42'" in said[0]
    assert "'--tp-size', '1'" in said[0]
    assert "open-sesame-42" not in said[1]
