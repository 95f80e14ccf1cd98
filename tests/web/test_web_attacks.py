"""What a stranger's page, program or file tries on the explorer, and that it is refused."""

from __future__ import annotations

import gzip
import io
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from web_server import Served, csrf, served

from armillary.web.application import coded

SECRET = "the content of a private file"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("web")
    (folder / "secret.csv").write_text(SECRET)
    root = folder / "root"
    root.mkdir()
    (root / "inside.csv").write_text("arrival_s,length_s\n0,1\n")
    (root / "out").symlink_to(folder / "secret.csv")
    with served(folder / "store", "--root", str(root), "--most-upload", "2") as found:
        yield found


@pytest.fixture(scope="module")
def client(server: Served) -> Iterator[httpx.Client]:
    with server.client() as found:
        yield found


def post(client: httpx.Client, server: Served, path: str, data: dict[str, object], **how: object) -> httpx.Response:
    """A form as one of our pages sends it."""
    word = csrf(client.get("/advise").text)
    return client.post(path, data={"csrf": word, **data}, headers={"origin": server.url}, **how)  # type: ignore[arg-type]


def test_without_the_token_nothing_is_shown(server: Served) -> None:
    for path in ("/", "/studies", "/static/explorer.js", "/?token=wrong", "/studies/1/as/csv"):
        answer = httpx.get(server.url + path)
        assert answer.status_code == 403
        assert "set-cookie" not in answer.headers


def test_the_cookie_is_shut_away_from_scripts_and_other_sites(server: Served) -> None:
    answer = httpx.get(server.entrance)
    assert answer.status_code == 303
    assert "HttpOnly" in answer.headers["set-cookie"]
    assert "SameSite=Strict" in answer.headers["set-cookie"]
    assert "token" not in answer.headers["location"]


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "0.0.0.0"])
def test_another_host_is_refused(client: httpx.Client, host: str) -> None:
    assert client.get("/", headers={"host": host}).status_code == 403


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:1", "https://127.0.0.1"])
def test_another_origin_is_refused(client: httpx.Client, origin: str) -> None:
    word = csrf(client.get("/advise").text)
    assert client.post("/machine/check", data={"csrf": word, "text": ""}, headers={"origin": origin}).status_code == 403
    assert client.post("/machine/check", data={"csrf": word, "text": ""}).status_code == 403  # It does not say where it comes from.


@pytest.mark.parametrize("word", ["", "0" * 64, None])
def test_a_forged_form_is_refused(client: httpx.Client, server: Served, word: str | None) -> None:
    data = {"text": "", **({} if word is None else {"csrf": word})}
    for path in ("/machine/check", "/advise", "/arenas/storage/eviction/run", "/arenas/storage/eviction/plan"):
        assert client.post(path, data=data, headers={"origin": server.url}).status_code == 403


def test_the_word_of_a_form_is_not_that_of_another_start(client: httpx.Client, tmp_path: Path) -> None:
    with served(tmp_path / "other") as other, other.client() as there:
        answer = there.post("/machine/check", data={"csrf": csrf(client.get("/advise").text)}, headers={"origin": other.url})
    assert answer.status_code == 403


def test_only_reading_and_forms_are_answered(client: httpx.Client) -> None:
    assert [client.request(method, "/").status_code for method in ("PUT", "DELETE", "PATCH", "OPTIONS")] == [405] * 4


@pytest.mark.parametrize(
    "path",
    ["/static/../application.py", "/static/%2e%2e/application.py", "/static//etc/passwd", "/runs/..%2f..%2fs.db", "/runs/aaaaaaaa",
     "/advise/aaaaaaaa/as/html", "/advise/..%2f../as/html", "/studies/1/left/1/..%2f..%2fs.db", "/studies/99/report", "/studies/x"],
)  # fmt: skip
def test_paths_lead_nowhere_else(client: httpx.Client, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code in (400, 404)
    assert "root:" not in answer.text
    assert "import" not in answer.text


@pytest.mark.parametrize("named", ["../secret.csv", "out", "/etc/passwd", "inside.csv/../../secret.csv", "..", "no.csv"])
def test_only_files_under_the_root_are_read(client: httpx.Client, server: Served, named: str) -> None:
    answer = post(client, server, "/arenas/storage/eviction/plan", {"work_path": named})
    assert answer.status_code == 400
    assert SECRET not in answer.text
    assert "under the folder" in answer.text


def test_without_a_root_only_uploads_are_work(tmp_path: Path) -> None:
    with served(tmp_path / "other") as other, other.client() as there:
        answer = post(there, other, "/arenas/storage/eviction/plan", {"work_path": "/etc/passwd"})
    assert answer.status_code == 400
    assert "without --root" in answer.text


@pytest.mark.parametrize("field", ["work", "options"])
def test_a_request_that_names_a_file_of_its_own_is_refused(client: httpx.Client, server: Served, field: str) -> None:
    import json

    asked = {"arena": "storage/deduplication", "work": ["/etc/passwd"]} if field == "work" else {
        "arena": "serving/tiers", "work": [], "options": {"bandwidth": "/etc/passwd"}
    }  # fmt: skip
    answer = post(client, server, f"/arenas/{asked['arena']}/run", {"asked": json.dumps(asked)})
    assert answer.status_code == 400
    assert "root:" not in answer.text


def test_an_upload_over_the_limit_is_refused(client: httpx.Client, server: Served) -> None:
    answer = post(client, server, "/arenas/storage/eviction/plan", {}, files={"work": ("large.csv", b"0" * (5 << 20))})
    assert answer.status_code == 413
    small = post(client, server, "/arenas/storage/eviction/plan", {}, files={"work": ("large.csv", b"0" * ((2 << 20) + 10))})
    assert small.status_code == 400
    assert "2 MiB" in small.text


def test_a_bomb_is_refused_and_the_server_lives(client: httpx.Client, server: Served) -> None:
    bomb = gzip.compress(b"0,1\n" * (100 << 20))
    assert len(bomb) < 2 << 20
    answer = post(client, server, "/arenas/storage/eviction/plan", {}, files={"work": ("bomb.csv.gz", bomb)})
    assert answer.status_code == 400
    assert client.get("/").status_code == 200


@pytest.mark.parametrize("name", ["../../evil.csv", "/etc/cron.d/evil", "<script>alert(1)</script>.csv", "a\\..\\b.csv", ".bashrc", "x" * 300])
def test_names_of_uploads_are_made_harmless(client: httpx.Client, server: Served, name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    answer = post(client, server, "/arenas/storage/eviction/plan", {}, files={"work": (name, io.BytesIO(b"time,object\n0,1\n1,1\n"))})
    assert "<script>alert" not in answer.text
    uploads = server_folder(server) / "s-web" / "uploads"
    for path in uploads.glob("*/*"):
        assert path.parent.parent == uploads
        assert path.name.replace(".", "").replace("_", "").replace("-", "").isalnum()
    assert oct(uploads.stat().st_mode & 0o777) == "0o700"


def server_folder(server: Served) -> Path:
    return Path(os.readlink(f"/proc/{server.process.pid}/cwd"))


def test_a_cluster_of_ones_own_names_no_files(client: httpx.Client, server: Served) -> None:
    answer = post(client, server, "/machine/check", {"text": 'extends = "/etc/passwd"\n'})
    assert "files cannot be named here" in answer.text
    run = post(client, server, "/advise", {"cluster_text": 'name = "x"\nextends = "/etc/passwd"\n'})
    assert run.status_code == 400


def test_code_in_texts_is_marked_and_everything_else_escaped() -> None:
    assert coded("`<b>` and <i>`") == "<code>&lt;b&gt;</code> and &lt;i&gt;`"


def test_script_in_names_stays_text(client: httpx.Client, server: Served) -> None:
    evil = "<script>alert(1)</script>"
    for answer in (
        client.get("/", params={"q": evil}),
        client.get(f"/arenas/storage/{evil}"),
        client.get("/machine", params={"a": evil}),
        post(client, server, "/machine/check", {"text": f'name = "{evil}"\n'}),
        post(client, server, "/arenas/storage/eviction/plan", {"technique": evil, "case": evil}),
    ):
        assert evil not in answer.text


def test_every_page_forbids_what_is_not_its_own(client: httpx.Client) -> None:
    for path in ("/", "/papers", "/studies", "/machine", "/advise", "/nothing", "/arenas/storage/eviction"):
        headers = client.get(path).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "same-origin"


def test_half_open_connections_keep_nobody_out(client: httpx.Client, server: Served) -> None:
    port = int(server.url.rpartition(":")[2])
    held = [socket.create_connection(("127.0.0.1", port)) for _ in range(200)]
    try:
        for one in held:
            one.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n")
        started = time.monotonic()
        assert client.get("/studies").status_code == 200
        assert time.monotonic() - started < 5
    finally:
        for one in held:
            one.close()


def test_the_first_page_is_quick_and_the_server_small(client: httpx.Client, server: Served) -> None:
    client.get("/")
    times = []
    for _ in range(5):
        started = time.process_time(), time.perf_counter()
        assert client.get("/").status_code == 200
        times.append(time.perf_counter() - started[1])
    resident = int(Path(f"/proc/{server.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    assert resident < 300 << 20
    assert min(times) < 1.0  # 0.2 s on a quiet machine, which the documentation states.
