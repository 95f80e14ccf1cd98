"""The control loop by hand, every published rule of the stand-in, language models that answer badly, and the classifier."""

from __future__ import annotations

import contextlib
import http.server
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest

from armillary.errors import InputError
from armillary.training.prefetch import ChatPolicy, ClassifierPolicy, ControlLoop, Decision, Effect, IclStandIn, Record, Static, Window
from armillary.training.prefetch.classifier import WEIGHTS
from armillary.training.prefetch.control.chat import messages, parsed
from armillary.training.prefetch.control.logistic import FEATURES, features, fit
from armillary.training.prefetch.control.stand_in import expected_saving

STATIC = Static(capacity=100, halo=400, minibatches=1000, period=25, window=4)
YES, NO = Decision(True), Decision(False)


def records(first: int, hit_rate: int, comm: int, sampled: int = 100, count: int = 4) -> list[Record]:
    """Equal records of consecutive minibatches."""
    return [Record(first + i, 0, first + i, 1000 - first - i - 1, hit_rate, comm, sampled) for i in range(count)]


# The loop


def test_a_window_is_asked_about_when_it_is_full_and_nothing_is_pending() -> None:
    loop = ControlLoop(STATIC)
    asked = [loop.post(record) for record in records(0, 30, 70)]
    assert asked[:3] == [None, None, None]
    assert asked[3] is not None
    assert asked[3].window == Window(3, 996, 30.0, 70.0, 100.0)
    assert asked[3].history == ()
    assert all(loop.post(record) is None for record in records(4, 30, 70, count=20)), "a decision is pending"
    assert loop.take() is None, "no answer is there yet"
    loop.answered(NO)
    assert loop.take() == NO
    assert loop.take() is None, "it is taken once"


def test_an_effect_is_what_changed_between_the_windows() -> None:
    loop = ControlLoop(STATIC)
    for record in records(0, 40, 60):
        loop.post(record)
    loop.answered(YES)
    assert loop.applied(loop.take() or NO, 6, 20) == "replaced"
    question = [loop.post(record) for record in records(7, 44, 42, sampled=70)][-1]
    assert question is not None
    assert question.history == (Effect("replaced", 6, 20, 0.2, 4.0, -30.0, -30.0, 0.6, 0.6),), "fewer were sampled, and that is all"


def test_a_replacement_empties_the_window_and_a_refusal_does_not() -> None:
    for decision, moved, left in ((YES, 5, 3), (YES, 0, 1), (NO, 0, 1)):
        loop = ControlLoop(STATIC)
        for record in records(0, 40, 60) + records(4, 40, 60, count=3):
            loop.post(record)
        loop.answered(decision)
        loop.applied(decision, 7, moved)
        assert all(loop.post(record) is None for record in records(8, 40, 60, count=left - 1))
        assert (loop.post(records(20, 40, 60)[0]) is None) == (moved > 0)


@pytest.mark.parametrize(
    ("decision", "moved", "kind"),
    [(YES, 3, "replaced"), (YES, 0, "skipped"), (NO, 0, "declined"), (Decision(True, valid=False), 0, "invalid")],
)
def test_each_kind_of_decision_is_recorded(decision: Decision, moved: int, kind: str) -> None:
    loop = ControlLoop(STATIC)
    for record in records(0, 40, 60):
        loop.post(record)
    loop.answered(decision)
    assert loop.applied(decision, 4, moved) == kind


def test_five_effects_are_kept_and_none_without_a_history() -> None:
    for kept in (5, 0):
        loop = ControlLoop(STATIC, kept=kept)
        for turn in range(8):
            for record in records(4 * turn, 40, 60):
                loop.post(record)
            loop.answered(NO)
            loop.applied(NO, 4 * turn + 3, 0)
        assert len(loop.history) == kept
    assert [effect.minibatch for effect in loop.history] == []


def test_effects_can_be_left_out() -> None:
    loop = ControlLoop(STATIC, effects=False)
    for turn in range(2):
        for record in records(4 * turn, 40, 60):
            loop.post(record)
        loop.answered(YES)
        loop.applied(YES, 4 * turn + 3, 7)
    assert loop.history == (Effect("replaced", 3, 7, 0.07),)


def test_nobody_may_answer_what_was_not_asked() -> None:
    loop = ControlLoop(STATIC)
    with pytest.raises(ValueError, match="nothing was asked"):
        loop.answered(YES)
    with pytest.raises(ValueError, match="nothing was asked"):
        loop.applied(YES, 0, 0)


# The stand-in


def window(hit_rate: float = 60, comm: float = 40, remaining: int = 500) -> Window:
    """A window of 100 sampled vertices."""
    return Window(500, remaining, hit_rate, comm, 100)


def effect(kind: str = "declined", points: float = 0.0, before: float = 0.4, after: float = 0.4, moved: int = 0) -> Effect:
    """An effect with these changes."""
    return Effect(kind, 400, moved, moved / 100, points, 0.0, 0.0, before, after)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("now", "history", "replaces", "because"),
    [
        (window(0, 100), (), True, "is 0"),
        (window(0, 100, remaining=49), (), False, "remain"),
        (window(30, 70), (), True, "low"),
        (window(60), (), False, "steady"),
        (window(60), (effect(points=-3),), True, "fell"),
        (window(60), (effect(points=-2.9),), False, "steady"),
        (window(60), (effect(before=0.30, after=0.40),), True, "communication rises"),
        (window(60), (effect(before=0.39, after=0.40),), False, "steady"),
        (window(30, 70), (effect("skipped"),), False, "no candidates"),
        (window(30, 70), (effect("replaced", 0.2), effect("replaced", 0.5)), False, "changed nothing"),
        (window(30, 70), (effect("replaced", 0.2), effect("skipped")), False, "no candidates"),
        (window(30, 70), (effect(points=2.0),), False, "rises without"),
        (window(30, 70), (effect("replaced", 5.0, 0.9, 0.7, moved=10),), True, "low"),
        (window(30, 70), (effect("replaced", 5.0, 0.71, 0.7, moved=90),), False, "fetched more"),
    ],
)
def test_the_published_instructions_are_followed(now: Window, history: tuple[Effect, ...], replaces: bool, because: str) -> None:
    static = replace(STATIC, window=25)
    decision = IclStandIn().decide(static, now, history)
    assert decision.replace is replaces
    assert because in decision.reason
    assert decision.expected["comm"] == ("decrease" if replaces else "stagnant")


def test_a_saving_is_the_weighted_gain_less_what_was_fetched() -> None:
    static, now = replace(STATIC, window=10), window(comm=40)
    assert expected_saving(static, now, ()) is None
    assert expected_saving(static, now, (effect(),)) is None, "nothing was replaced yet"
    one = effect("replaced", 5, 0.6, 0.5, moved=30)
    assert expected_saving(static, now, (one,)) == pytest.approx(0.1 * 100 * 10 - 30)
    two = effect("replaced", 5, 0.5, 0.3, moved=60)
    gain, cost = (0.5 * 0.1 + 0.2) / 1.5, (0.5 * 30 + 60) / 1.5
    assert expected_saving(static, now, (one, two)) == pytest.approx(gain * 1000 - cost)
    worse = effect(before=0.4, after=0.45)
    assert expected_saving(static, now, (one, worse)) == pytest.approx((0.1 + 0.05) * 1000 - 30), "it would have got worse by itself"
    assert expected_saving(static, window(comm=40, remaining=3), (one,)) == pytest.approx(0.1 * 100 * 3 - 30)


# A language model


class Endpoint(http.server.BaseHTTPRequestHandler):
    """Answers with what the test put there."""

    body: bytes = b""
    delay_s = 0.0
    seen: ClassVar[list[dict[str, object]]] = []

    def do_POST(self) -> None:
        Endpoint.seen.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        time.sleep(self.delay_s)
        self.send_response(200 if self.body else 500)
        self.end_headers()
        with contextlib.suppress(OSError):
            self.wfile.write(self.body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def endpoint() -> Iterator[str]:
    """The address of a local endpoint."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    Endpoint.body, Endpoint.delay_s, Endpoint.seen = b"", 0.0, []
    yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    server.shutdown()
    thread.join()
    server.server_close()


def completion(content: object) -> bytes:
    """A chat completion with this content."""
    return json.dumps({"choices": [{"message": {"role": "assistant", "content": content}}]}).encode()


GOOD = {"decision": "replace", "explanation": "comm rises", "expected_impact": {"hit_rate": "increase", "comm": "decrease"}}


def test_a_model_is_told_the_sizes_the_window_and_the_history(endpoint: str) -> None:
    Endpoint.body = completion(json.dumps(GOOD))
    history = (effect("replaced", 3.0, moved=20), effect("skipped"), effect("declined"), effect("invalid"))
    decision = ChatPolicy(endpoint + "/", "small").decide(STATIC, window(), history)
    assert decision == Decision(True, {"hit_rate": "increase", "comm": "decrease"}, "comm rises")
    (request,) = Endpoint.seen
    assert request["model"] == "small"
    system, user = (one["content"] for one in request["messages"])  # type: ignore[attr-defined]
    assert "400 remote vertices" in system
    assert "a cache of 100 vertices" in system
    assert "hit_rate 60 %, comm 40, sampled 100" in user
    assert "20 vertices, 20.0 % of the cache" in user
    assert "hit_rate +3 points" in user
    assert "no candidates" in user


def test_a_fence_around_the_answer_is_taken_off() -> None:
    assert parsed(completion("```json\n" + json.dumps({**GOOD, "decision": "keep"}) + "\n```")).replace is False


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"{",
        b"[]",
        b"[" * 100_000,
        completion(None),
        completion("I would replace."),
        completion("[1, 2]"),
        completion(json.dumps({**GOOD, "decision": "maybe"})),
        completion(json.dumps({**GOOD, "decision": True})),
        completion(json.dumps({"decision": "replace"})),
        completion(json.dumps({**GOOD, "explanation": 7})),
        completion(json.dumps({**GOOD, "expected_impact": {"hit_rate": "up", "comm": "down"}})),
        completion(json.dumps({**GOOD, "expected_impact": []})),
        completion("x" * 10_000_000),
        b"\xff\xfe" + b"\0" * 100,
    ],
    ids=lambda answer: f"{len(answer)} bytes {answer[-12:]!r}",
)
def test_an_answer_that_is_no_decision_is_invalid(answer: bytes) -> None:
    decision = parsed(answer)
    assert not decision.valid
    assert not decision.replace
    assert decision.reason


def test_an_endpoint_that_fails_or_is_late_or_says_too_much_gives_an_invalid_decision(
    endpoint: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert not ChatPolicy(endpoint, "m").decide(STATIC, window(), ()).valid, "status 500"
    Endpoint.body = completion("x" * 10_000_000)
    assert "bytes" in ChatPolicy(endpoint, "m").decide(STATIC, window(), ()).reason
    Endpoint.body, Endpoint.delay_s = completion(json.dumps(GOOD)), 0.5
    assert not ChatPolicy(endpoint, "m", timeout_s=0.05).decide(STATIC, window(), ()).valid
    assert not ChatPolicy("http://127.0.0.1:9/v1", "m", timeout_s=0.5).decide(STATIC, window(), ()).valid, "nobody listens"
    assert len(caplog.records) == 4


@pytest.mark.parametrize("url", ["", "localhost:8000", "file:///etc/hosts", "ftp://x/v1"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(InputError, match="endpoint"):
        ChatPolicy(url, "m")
    with pytest.raises(InputError, match="model"):
        ChatPolicy("http://localhost/v1", "")


def test_the_messages_name_what_no_decision_causes() -> None:
    system, user = messages(STATIC, window(), ())
    assert "no decision of yours changes it" in system["content"]
    assert user["content"].endswith("none yet")


def test_training_goes_on_with_a_model_that_answers_nonsense(endpoint: str) -> None:
    from prefetch_traces import drifting, trainer_of, work_of

    from armillary.training.prefetch import Rudder, StaticDegree, replay

    Endpoint.body = completion("Replace! Or rather not.")
    trainer = trainer_of(drifting(np.random.default_rng(0), halo=300, hot=60, minibatches=60, phase=20, often=36, seldom=4), 300)
    work = work_of(trainer, fraction=0.2)
    done = replay(work, Rudder(policy="chat", url=endpoint, model="m", latency_s=0.0, window=10).caches(work))
    assert [row["kind"] for row in done.decisions] == ["invalid"] * 5
    assert done.comm == replay(work, StaticDegree().caches(work)).comm


# The classifier


def test_the_fit_is_that_of_scikit_learn() -> None:
    linear_model = pytest.importorskip("sklearn.linear_model")
    rng = np.random.default_rng(0)
    rows = np.column_stack([np.ones(300), rng.normal(size=(300, 4))])
    labels = (rows @ [0.5, 1, -2, 0, 0.3] + rng.normal(size=300) > 0).astype(float)
    peer = linear_model.LogisticRegression(C=1 / 2.0, tol=1e-10, max_iter=10_000).fit(rows[:, 1:], labels)
    found = fit(rows, labels, penalty=2.0)
    assert found == pytest.approx([*peer.intercept_, *peer.coef_[0]], abs=1e-5)


def test_features_stand_in_their_order_and_are_shares() -> None:
    seen = features(STATIC, window(60, 40, 250), (effect("replaced", 5, 0.5, 0.4, moved=20),))
    assert dict(zip(FEATURES, seen, strict=True)) == pytest.approx(
        {"bias": 1, "hit rate": 0.6, "missed": 0.4, "buffer": 0.25, "remaining": 0.25, "missed change": -0.1, "hit rate change": 0.05,
         "attempted": 1, "moved": 0.2}
    )  # fmt: skip
    assert len(features(Static(0, 0), Window(0, -1, 0, 0, 0), ())) == len(FEATURES)


def test_the_classifier_decides_at_a_half() -> None:
    always, never = ClassifierPolicy((9.0, *[0.0] * 8)), ClassifierPolicy((-9.0, *[0.0] * 8))
    assert always.decide(STATIC, window(), ()).replace
    assert not never.decide(STATIC, window(), ()).replace
    assert 0 < ClassifierPolicy(WEIGHTS).probability(STATIC, window(), ()) < 1
    with pytest.raises(InputError, match="weights"):
        ClassifierPolicy((1.0,))


@pytest.mark.slow
def test_training_it_again_gives_the_stored_weights() -> None:
    from armillary.training.prefetch import train

    assert train() == pytest.approx(WEIGHTS, abs=2e-4)
