"""Damaged files of every kind that is read beside protocol texts end in a judgement or in one line, and in no other way."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from armillary.errors import InputError
from armillary.testing.fuzzing import damaged_bytes
from armillary.trust.protocols import built_in, check, explore_machines, machines_of, read_machines, to_dot, to_json
from armillary.trust.protocols.amqp.capture import judge_captures, read_captures
from armillary.trust.protocols.endpoints.tables import table_of
from armillary.trust.protocols.readers.events import judge, read_events
from armillary.trust.protocols.sessions.wire import BadMessage, decode, encode

CAPTURES = [Path(__file__).parent / "captures" / f"pika_{side}.bin" for side in ("client", "broker")]
JOB = check(built_in("request_timeout"))


def captures(folder: Path, rng: random.Random) -> None:
    for path in CAPTURES:
        (folder / path.name).write_bytes(damaged_bytes(path.read_bytes(), rng) if rng.random() < 0.6 else path.read_bytes())
    judge_captures(*read_captures(*(folder / path.name for path in CAPTURES)))


def machine_files(folder: Path, rng: random.Random) -> None:
    system = machines_of(built_in("three_tier"))
    name, text = rng.choice((("x.json", json.dumps(to_json(system))), ("x.dot", to_dot(system))))
    (folder / name).write_bytes(damaged_bytes(text.encode(), rng))
    explore_machines(read_machines(folder / name), bound=2, most=2000)


def logs(folder: Path, rng: random.Random) -> None:
    rows = [{"time": 1.5, "role": "Client", "direction": "send", "peer": "Server", "label": "req", "payload": [1, "aGk="]}] * 3
    (folder / "x.jsonl").write_bytes(damaged_bytes("".join(json.dumps(row) + "\n" for row in rows).encode(), rng))
    judge(read_events(folder / "x.jsonl"), JOB, "x.jsonl")


def messages(folder: Path, rng: random.Random) -> None:
    from armillary.trust.protocols import Message

    table = table_of(JOB.of("Server"))
    whole = encode(Message("Client", "Server", "req", (7, b"body"), ((0, 3, "left"),), 9))[4:]
    try:
        decode(damaged_bytes(whole, rng), table.types)
    except BadMessage:
        raise InputError("refused") from None


@pytest.mark.parametrize("many", [60, pytest.param(3000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("read", [captures, machine_files, logs, messages])
def test_damage_ends_in_a_judgement_or_in_one_line(tmp_path: Path, read: object, many: int) -> None:
    said = []
    for seed in range(many):
        try:
            read(tmp_path, random.Random(seed))  # type: ignore[operator]
        except InputError as refused:
            said.append(str(refused))
    assert not [one for one in said if "\n" in one]
    assert len(said) < many
