"""A language model is asked over HTTP at the user's address, and believed only where the log agrees."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from darshan_logs import alone

from armillary import catalogue
from armillary.arena import NotForThisCase
from armillary.errors import InputError
from armillary.observability.io import HttpModel, IOAgentLlm, Known, ModelError, Said, WholeLlm, diagnose, fragments
from armillary.observability.io.models import http as http_model
from armillary.observability.io.models.patience import Patience


class Scripted:
    """A server on the loopback that answers each prompt with what `answer` makes of it."""

    def __init__(self, answer: Callable[[str], Any]) -> None:
        self.prompts: list[str] = []
        self.keys: list[str | None] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.prompts.append(body["messages"][0]["content"])
                outer.keys.append(self.headers.get("Authorization"))
                said = answer(outer.prompts[-1])
                status, data = said if isinstance(said, tuple) else (200, said)
                if isinstance(data, str):
                    data = json.dumps({"choices": [{"message": {"content": data}}], "usage": {"prompt_tokens": 11}}).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True)
        self.thread.start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def serve() -> Iterator[Callable[[Callable[[str], Any]], Scripted]]:
    """Starts scripted servers, which end with the test."""
    started: list[Scripted] = []

    def start(answer: Callable[[str], Any]) -> Scripted:
        started.append(Scripted(answer))
        return started[-1]

    yield start
    for one in started:
        one.close()


def fragment_of(prompt: str) -> dict[str, Any]:
    line = next(line for line in prompt.splitlines() if line.startswith("Fragment: "))
    return json.loads(line.removeprefix("Fragment: "))


def statement(fragment: dict[str, Any], **changed: Any) -> dict[str, Any]:
    value = fragment["fields"]["writes_small"]
    made = {
        "label": "small-write", "severity": 0.5, "confidence": 0.9, "text": f"{value} writes are small.",
        "evidence": [{"field": "writes_small", "value": value}], "knowledge": [],
    }  # fmt: skip
    return {**made, **changed}


def speaking(**changed: Any) -> Callable[[str], str]:
    """A model that makes one statement about the sizes and none about anything else."""

    def answer(prompt: str) -> str:
        if "Two diagnoses" in prompt:
            return "[]"
        if ADVICE in prompt:
            return "No."
        fragment = fragment_of(prompt)
        return json.dumps([statement(fragment, **changed)] if fragment["id"] == "POSIX.sizes" else [])

    return answer


LOG = alone("small-write", 16)
#: What a prompt that asks about one entry of the knowledge ends with.
ADVICE = "Does this advice apply"


def test_a_model_judges_one_fragment_at_a_time(serve):
    server = serve(speaking())
    found = diagnose(LOG, model=HttpModel(server.url, "scripted", key="secret"))
    assert found.labels == ("small-write",)
    assert found.unsupported == 0
    judgements = [prompt for prompt in server.prompts if prompt.startswith("You examine")]
    assert len(judgements) == len(fragments(LOG))
    assert found.tokens == 11 * len(server.prompts)
    assert all(len(prompt) < 20_000 for prompt in server.prompts)
    assert set(server.keys) == {"Bearer secret"}
    assert "secret" not in repr(HttpModel(server.url, "scripted", key="secret"))


def test_a_model_confirms_entries_one_by_one_and_sees_those_that_it_confirms(serve):
    def answer(prompt: str) -> str:
        return "Yes, it does." if ADVICE in prompt else "[]"

    asked, told = serve(answer), serve(speaking())
    diagnose(LOG, model=HttpModel(asked.url, "scripted"))
    diagnose(LOG, model=HttpModel(told.url, "scripted"))
    doubts = [prompt for prompt in asked.prompts if ADVICE in prompt]
    assert doubts
    assert all(prompt.count("Advice: ") == 1 for prompt in doubts)

    def shown(server: Scripted) -> int:
        return sum(prompt.count("\n- [") for prompt in server.prompts if prompt.startswith("You examine"))

    assert shown(asked) - shown(told) == len(doubts), "what is confirmed is shown, and what is not confirmed is not"


@pytest.mark.parametrize("part", ["head", "body"])
def test_a_server_that_hangs_or_trickles_is_left_in_time(part):
    """One that never answers, and one that sends a byte now and then."""
    listener = socket.create_server(("127.0.0.1", 0))
    done = threading.Event()

    def trickle() -> None:
        connection, _ = listener.accept()
        with connection, contextlib.suppress(OSError):
            connection.recv(1 << 16)
            if part == "body":
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
            while part == "body" and not done.wait(0.05):
                connection.sendall(b"x")
            done.wait(5)

    thread = threading.Thread(target=trickle, daemon=True)
    thread.start()
    try:
        with pytest.raises(ModelError, match=r"more than 0\.3 seconds|timed out"):
            HttpModel(f"http://127.0.0.1:{listener.getsockname()[1]}/v1", "slow", timeout_s=0.3).complete("hello")
    finally:
        done.set()
        thread.join(5)
        listener.close()
    assert not thread.is_alive()


def test_a_model_that_fails_twice_or_takes_too_long_is_asked_no_more():
    class Failing:
        asked = 0

        def complete(self, prompt: str) -> Said:
            self.asked += 1
            raise ModelError("no")

    failing = Failing()
    found = diagnose(LOG, model=failing)
    assert failing.asked == 2
    assert found.labels == diagnose(LOG).labels
    patient = Patience(failing, most_s=-1.0)
    with pytest.raises(ModelError, match="took more than"):
        patient.complete("x")
    assert failing.asked == 2


@pytest.mark.parametrize(
    "changed",
    [
        {"text": "987654 writes are small."},
        {"evidence": [{"field": "writes_small", "value": 3}]},
        {"evidence": [{"field": "nothing", "value": 3}]},
        {"evidence": []},
        {"knowledge": ["an-entry-that-is-not-there"]},
        {"label": "haunted"},
        {"severity": 7},
        {"confidence": "sure"},
        {"text": None},
    ],
)
def test_a_statement_that_the_log_does_not_bear_out_is_dropped_and_counted(serve, changed):
    found = diagnose(LOG, model=HttpModel(serve(speaking(**changed)).url, "scripted"))
    assert found.labels == ()
    assert found.unsupported == 1


@pytest.mark.parametrize(
    ("answer", "note"),
    [
        (lambda _: (500, b"no"), "status 500"),
        (lambda _: (200, b"{}"), "no chat completion"),
        (lambda _: (200, b"<html>"), "no chat completion"),
        (lambda _: "I would rather not.", "is no JSON"),
        (lambda _: (302, b""), "status 302"),
    ],
)
def test_the_rules_judge_where_the_model_does_not(serve, answer, note):
    found = diagnose(LOG, model=HttpModel(serve(answer).url, "scripted"))
    assert found.labels == diagnose(LOG).labels
    assert any(note in one for one in found.notes)


def test_an_address_at_which_nobody_listens_falls_back(serve):
    server = serve(speaking())
    server.close()
    found = diagnose(LOG, model=HttpModel(server.url, "scripted", timeout_s=5))
    assert found.labels == diagnose(LOG).labels
    assert any("cannot be reached" in note for note in found.notes)
    server.close = lambda: None  # type: ignore[method-assign]


def test_an_answer_without_end_is_cut(serve, monkeypatch):
    monkeypatch.setattr(http_model, "MOST_BYTES", 1000)
    with pytest.raises(ModelError, match="more than 1,000 bytes"):
        HttpModel(serve(lambda _: "x" * 5000).url, "scripted").complete("hello")


@pytest.mark.parametrize("url", ["localhost:8000", "file:///etc/passwd", "http://", "ftp://x/y"])
def test_only_addresses_of_the_web_are_taken(url):
    with pytest.raises(InputError, match="expected an address"):
        HttpModel(url, "name")


def test_effects_are_taken_only_between_findings_that_are_there(serve):
    def answer(prompt: str) -> str:
        if "Two diagnoses" in prompt:
            return json.dumps([{"effect": "misaligned-write", "cause": "small-write"}, {"effect": "no-mpi", "cause": "haunted"}])
        if ADVICE in prompt:
            return "no"
        fragment = fragment_of(prompt)
        if fragment["id"] == "POSIX.sizes":
            return json.dumps([statement(fragment)])
        if fragment["id"] == "POSIX.alignment":
            value = fragment["fields"]["misaligned"]
            return json.dumps(
                [
                    statement(
                        {"fields": {"writes_small": value}}, label="misaligned-write", evidence=[{"field": "misaligned", "value": value}]
                    )
                ]
            )
        return "[]"

    found = diagnose(LOG, model=HttpModel(serve(answer).url, "scripted"))
    assert found.labels == ("small-write",)
    assert found.findings[0].explains == ("misaligned-write",)
    assert found.unsupported >= 1


def test_answers_in_words_keep_their_quotes():
    class Words:
        def __init__(self, text: str) -> None:
            self.text = text

        def complete(self, prompt: str) -> Said:
            return Said(self.text if prompt.startswith("Answer the question") else "[]", 1)

    honest, liar = (diagnose(LOG, model=Words(text)) for text in ("The writes are small.", "There were 12345678 writes."))
    assert honest.ask("why are writes slow?").startswith("The writes are small.\n\n- ")
    assert "was dropped" in liar.ask("why are writes slow?")


def test_techniques_with_a_model_wait_for_one(serve):
    with pytest.raises(NotForThisCase, match="needs a language model"):
        IOAgentLlm().answer(Known(LOG))
    server = serve(lambda _: json.dumps([{"label": "small-write", "text": "There are 424242 small writes."}, {"label": "x"}]))
    whole = WholeLlm(url=server.url, model="scripted").answer(Known(LOG))
    assert whole.labels == ("small-write",)
    assert whole.unsupported == 1
    assert "darshan log version" in server.prompts[0]
    assert IOAgentLlm(url=serve(speaking()).url, model="m").answer(Known(LOG)).labels == ("small-write",)
    assert catalogue.arena("observability/io").make("ioagent-llm").url == ""
