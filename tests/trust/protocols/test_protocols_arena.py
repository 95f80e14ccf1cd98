"""The arena: cases, claims, answers, files of the user's kind and wrong ones."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from armillary.arena import NotForThisCase, Outcome
from armillary.trust.protocols import built_in, machines_of
from armillary.trust.protocols.arena import SCENARIOS, protocols
from armillary.trust.protocols.sessions.rate import messages_per_s, monitor_us

Command = Callable[..., subprocess.CompletedProcess[str]]


def outcome(technique: str, case: str) -> Outcome:
    found = protocols.execute(protocols.make(technique), next(one for one in protocols.built_in("tiny") if one.name == case))
    assert isinstance(found, Outcome)
    return found


def test_every_claim_has_four_cases_at_least() -> None:
    cases = protocols.built_in("small")
    for number, _, claim in protocols.claims():
        for kind in claim.kinds:
            assert sum(kind.takes(case.kinds) for case in cases) >= 4, number


def test_the_cases_are_those_of_the_specification() -> None:
    kinds = [case.kinds for case in protocols.built_in("small")]
    assert [sum(one in case for case in kinds) for one in ("suite", "broken", "directed", "family", "broker")] == [
        34,
        14,
        6,
        14,
        len(SCENARIOS),
    ]
    assert {case.name for case in protocols.built_in("small")} >= set(protocols.telling)


@pytest.mark.parametrize("technique", protocols.techniques)
def test_a_broken_protocol_is_refused_or_seen_to_go_wrong(technique: str) -> None:
    values = outcome(technique, "commitment_early_to_third").values
    lets_pass = technique in ("monitor", "none")
    assert values["accepted_broken"] == (lets_pass or technique == "token")
    assert values["accepted_unsafe"] == lets_pass
    assert (values["lost_sessions"] > 0) == lets_pass


def test_a_permission_costs_messages_and_nothing_is_wasted() -> None:
    mixed, token = (outcome(name, "request_timeout").values for name in ("mixed", "token"))
    assert mixed["extra_messages"] == 0 < 1 <= token["extra_messages"]
    assert mixed["wasted_messages"] > 0 == token["wasted_messages"]
    assert mixed["trace_differences"] == token["trace_differences"] == 0
    assert (mixed["recoveries"], token["recoveries"]) == (1, 1)


def test_a_counterexample_leaves_a_picture() -> None:
    pictures = [one for one in outcome("none", "staleness_no_ack").artifacts if one.name == "counterexample.svg"]
    assert len(pictures) == 1
    assert b"<svg" in pictures[0].data
    assert not [one for one in outcome("mixed", "request_timeout").artifacts if one.name.endswith(".svg")]


@pytest.mark.parametrize("name", ["supervised_worker", "heartbeat", "ring_of_four", "amqp_channel"])
def test_sessions_whose_one_side_always_speaks_come_to_an_end(name: str) -> None:
    assert messages_per_s(machines_of(built_in(name)), 0.005) > 0


def test_a_monitor_is_measured_on_every_role() -> None:
    assert 0 < monitor_us(machines_of(built_in("request_timeout")), 3000) < 1000


def test_without_a_broker_its_cases_are_declined_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    from armillary.trust.protocols.amqp import broker

    monkeypatch.setattr(broker, "script", lambda: "")
    case = next(one for one in protocols.built_in("small") if one.name == "broker/round_trip")
    for technique, said in (("mixed", "RabbitMQ is not installed"), ("token", "specified with a mixed choice")):
        found = protocols.execute(protocols.make(technique), case)
        assert isinstance(found, NotForThisCase)
        assert said in str(found)


def test_a_protocol_of_ones_own_is_answered_in_words(armillary_here: Command, tmp_path: Path) -> None:
    path, _ = protocols.write_example(tmp_path)
    found = armillary_here("compare", "trust/protocols", "--work", str(path), "--sessions=50", "--repeats", "1")
    assert found.returncode == 0, found.stderr
    assert "mixed accepts job.mst; 50 sessions ended in agreement" in found.stdout.replace("\n", " ")
    path.write_text(path.read_text().replace("ack() from Client to Server; ", ""))
    found = armillary_here("compare", "trust/protocols", "--work", str(path), "--techniques", "mixed", "--repeats", "1")
    assert found.returncode == 0
    assert "mixed refuses job.mst: line 6: staleness, role Client" in " ".join(found.stdout.split())
    assert 'This would repair it: line 6: after "expired", Client tells Server "acknowledged".' in " ".join(found.stdout.split())


def test_machines_and_logs_of_ones_own_are_judged(armillary_here: Command, tmp_path: Path) -> None:
    rows = {"A": [[0, "!", "B", "ping", 1], [1, "?", "B", "pong", 2]], "B": [[0, "?", "A", "ping", 1], [1, "!", "A", "pong", 2]]}
    (tmp_path / "ping.json").write_text(json.dumps({"machines": {role: {"initial": 0, "transitions": one} for role, one in rows.items()}}))
    events = [("A", "send", "B", "ping"), ("B", "receive", "A", "ping"), ("B", "send", "A", "pang")]
    (tmp_path / "log.jsonl").write_text(
        "".join(json.dumps(dict(zip(("role", "direction", "peer", "label"), one))) + "\n" for one in events)
    )
    found = armillary_here("compare", "trust/protocols", "--work", str(tmp_path / "ping.json"), "--repeats", "1")
    assert found.returncode == 0, found.stderr
    assert "accepts ping.json" in found.stdout
    found = armillary_here(
        "compare", "trust/protocols", "--work", str(tmp_path / "ping.json"), f"--events={tmp_path / 'log.jsonl'}", "--repeats", "1"
    )
    assert found.returncode == 0, found.stderr
    assert 'role B, state 1: found send "pang" to A; expected send "pong" to A' in " ".join(found.stdout.split())


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("x.mst", "protocol P(role A, role B) { m() from A B; }", 'x.mst:1:41: found "B"; expected "to"'),
        ("x.mst", "", "the end of the file"),
        ("x.json", '{"machines": {"A": 3}}', "machines.A"),
        ("x.dot", "digraph A { 0 -> 1; }", "expected from -> to"),
    ],
)
def test_a_wrong_file_is_one_line(armillary_here: Command, tmp_path: Path, name: str, content: str, said: str) -> None:
    (tmp_path / name).write_text(content)
    found = armillary_here("compare", "trust/protocols", "--work", str(tmp_path / name))
    assert found.returncode == 2
    assert said in found.stderr
    assert found.stderr.count("\n") == 1
