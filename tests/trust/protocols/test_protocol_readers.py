"""Machines and logs of other people: what is read, what is refused, and what a log says of a protocol."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from armillary.errors import InputError
from armillary.trust.protocols import (
    built_in,
    check,
    endpoint,
    explore_machines,
    from_dot,
    from_json,
    machines_of,
    read_machines,
    to_dot,
    to_json,
)
from armillary.trust.protocols.readers.events import judge, read_events
from armillary.trust.protocols.suite.built_in import DIRECTED
from armillary.trust.protocols.workload import read

PING = {
    "roles": ["A", "B"],
    "machines": {
        "A": {"initial": 0, "transitions": [[0, "!", "B", "ping", 1], [1, "?", "B", "pong", 0], [0, "!", "B", "stop", 2]]},
        "B": {"initial": "s", "transitions": [["s", "?", "A", "ping", "t"], ["t", "!", "A", "pong", "s"], ["s", "?", "A", "stop", "e"]]},
    },
}


def changed(path: str, value: Any) -> str:
    data: Any = json.loads(json.dumps(PING))
    at = data
    *way, last = path.split("/")
    for key in way:
        at = at[int(key) if isinstance(at, list) else key]
    at[int(last) if isinstance(at, list) else last] = value
    return json.dumps(data)


def test_hand_written_machines_are_explored() -> None:
    assert explore_machines(from_json(json.dumps(PING), "ping.json"), bound=2).sound
    found = explore_machines(from_json(changed("machines/B/transitions/1/3", "pang"), "ping.json"), bound=2).counterexample
    assert found is not None
    assert (found.kind, found.role) == ("safety", "A")
    assert "pang" in found.message
    assert [str(one) for one in found.trace] == ['A sends "ping" to B', 'B receives "ping" from A', 'B sends "pang" to A']


def test_final_states_may_be_named() -> None:
    waiting = {**PING, "machines": {**PING["machines"], "A": {"initial": 0, "final": [0], "transitions": [[0, "?", "B", "pong", 1]]}}}
    waiting["machines"] = {**waiting["machines"], "B": {"initial": 0, "final": [0], "transitions": [[0, "!", "A", "pong", 1]]}}
    system = from_json(json.dumps(waiting), "x.json")
    assert [state.ended for state in system.of("A").states] == [True, False]


@pytest.mark.parametrize("name", DIRECTED)
def test_machines_survive_json_and_dot(name: str) -> None:
    system = machines_of(built_in(name))
    before = explore_machines(system, bound=2)
    for again in (from_json(json.dumps(to_json(system)), "x.json"), from_dot(to_dot(system), "x.dot")):
        assert again.roles == system.roles
        found = explore_machines(again, bound=2)
        assert (found.sound, found.configurations) == (before.sound, before.configurations)


WRONG = {
    "no machines": ("[]", 'found no "machines"'),
    "not json": ("{", "x.json"),
    "roles": (changed("roles", ["A", "A"]), "2 with 1 names"),
    "other roles": (changed("roles", ["A", "C"]), "expected one per role"),
    "role names": (changed("roles", ["A", "B\n"]), "expected names"),
    "no initial": (changed("machines/A", {"transitions": []}), '"initial" and "transitions"'),
    "row": (changed("machines/A/transitions/0", [1, 2]), "transitions[0]"),
    "mark": (changed("machines/A/transitions/0/1", "x"), 'expected "!" or "?"'),
    "peer": (changed("machines/A/transitions/0/2", "A"), "expected another role"),
    "unknown peer": (changed("machines/A/transitions/0/2", "Z"), "expected another role"),
    "label": (changed("machines/A/transitions/0/3", 'a"; import os'), "expected a name"),
    "state": (changed("machines/A/initial", [0]), "expected a whole number or a word"),
    "final": (changed("machines/A/final", [99]), "expected states of the machine"),
    "deep": ("[" * 100_000, "x.json"),
}


@pytest.mark.parametrize("name", sorted(WRONG))
def test_wrong_machines_are_refused_in_one_line(tmp_path: Path, name: str) -> None:
    text, said = WRONG[name]
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(InputError) as refused:
        read_machines(tmp_path / "x.json")
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("graph A { }", "no digraph"),
        ("digraph A { 0 -> 1 }", 'expected from -> to [label="Peer!label"]'),
        ("digraph A { }", "no edge"),
        ('digraph A { 0 -> 1 [label="B!m"] }', "expected another role"),
        ('digraph A { 0 -> 1 [label="B!m"] } digraph A { 0 -> 1 [label="A?m"] }', "2 digraphs with 1 names"),
    ],
)
def test_wrong_dot_is_refused_in_one_line(text: str, said: str) -> None:
    with pytest.raises(InputError, match=r"x\.dot") as refused:
        from_dot(text, "x.dot")
    assert said in str(refused.value)


@pytest.mark.parametrize("label", ["a.b", "a-b", "class"])
def test_no_endpoint_is_made_of_names_that_python_lacks(label: str) -> None:
    system = from_json(changed("machines/A/transitions/0/3", label), "x.json")
    with pytest.raises(InputError, match="a name that Python can use"):
        endpoint(system, "A")


def test_the_name_of_a_file_is_never_run() -> None:
    system = from_json(json.dumps(PING), '/x""" ; raise SystemExit("run")  # """.json')
    with pytest.raises(InputError, match="a name that Python can use"):
        endpoint(system, "A")
    assert endpoint(from_json(json.dumps(PING), "ping.json"), "A").module().begin is not None


def log(*rows: tuple[str, str, str, str]) -> str:
    return "".join(json.dumps(dict(zip(("role", "direction", "peer", "label"), row))) + "\n" for row in rows)


CROSSING = (
    ("Client", "send", "Server", "req"), ("Server", "send", "Client", "expired"), ("Client", "receive", "Server", "expired"),
    ("Server", "receive", "Client", "req"), ("Client", "send", "Server", "ack"), ("Server", "receive", "Client", "ack"),
    ("Server", "send", "Log", "gaveup"), ("Log", "receive", "Server", "gaveup"),
)  # fmt: skip


def test_a_log_is_judged_role_by_role(tmp_path: Path) -> None:
    system = check(built_in("request_timeout"))
    path = tmp_path / "log.jsonl"
    path.write_text(log(*CROSSING))
    assert judge(read_events(path), system, "log.jsonl") == []
    late = [*CROSSING, ("Server", "receive", "Client", "req"), ("Log", "receive", "Server", "done"), ("Log", "receive", "Server", "done")]
    path.write_text(log(*late))
    faults = judge(read_events(path), system, "log.jsonl")
    assert [(one.line, one.role) for one in faults] == [(9, "Server"), (10, "Log")]
    assert 'receive "req" from Client' in faults[0].said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "found no event"),
        ("3\n", "log.jsonl:1"),
        ('{"role": "Client"}\n', '"direction"'),
        ('{"role": "Client", "direction": "sends", "peer": "Server", "label": "x"}\n', "sends"),
        (log(("Nobody", "send", "Server", "x")), "Nobody"),
        ('{"role"\n', "log.jsonl:1"),
    ],
)
def test_a_wrong_log_is_refused_with_its_line(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(text)
    with pytest.raises(InputError) as refused:
        judge(read_events(path), check(built_in("request_timeout")), str(path))
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_files_are_read_by_their_endings_and_options(tmp_path: Path) -> None:
    job, ping, events = tmp_path / "job.mst", tmp_path / "ping.json", tmp_path / "log.jsonl"
    job.write_text(built_in("request_timeout").text + "protocol Other(role X, role Y) { m() from X to Y; }")
    ping.write_text(json.dumps(PING))
    events.write_text(log(*CROSSING))
    assert read(job).name == "Job"
    assert read(job, name="Other").name == "Other"
    assert read(ping).roles == ("A", "B")
    assert len(read(job, events=str(events)).events) == 8
    for wrong, said in (({"name": "Third"}, "Third"), ({"events": "a", "broker": "b"}, "expected one of them")):
        with pytest.raises(InputError, match=said):
            read(job, **wrong)
    with pytest.raises(InputError, match="with a protocol file only"):
        read(ping, name="Job")
