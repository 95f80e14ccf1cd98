"""Schedules that cannot be are refused in one line that says where, what was found and what was expected."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from armillary.errors import InputError
from armillary.storage.synchronization import Operation, Outage, Schedule, generate, read_schedule

W = Operation(1, "A", "write", "f")


@pytest.mark.parametrize(
    ("ops", "world", "says"),
    [
        ([Operation(5, "A", "write", "f"), W], {}, "schedule: operation 2: t: found 1 after 5"),
        ([Operation(float("nan"), "A", "write", "f")], {}, "schedule: operation 1: t: found nan"),
        ([Operation(1, "Z", "write", "f")], {}, 'unknown replica "Z"'),
        ([Operation(1, "A", "wirte", "f")], {}, 'did you mean "write"'),
        ([Operation(1, "A", "begin", group="g")], {}, "begin and no end"),
        ([Operation(1, "A", "end", group="g")], {}, "expected the group that this replica has open"),
        ([Operation(1, "A", "write", "f", group="g")], {}, 'found "g"; expected ""'),
        ([Operation(1, "A", "write", "/etc/passwd")], {}, "expected a relative path"),
        ([Operation(1, "A", "write", "a/../../b")], {}, "expected a relative path"),
        ([Operation(1, "A", "rename", "f", "../g")], {}, "expected a relative path"),
        ([Operation(1, "A", "write", "f", size=-1)], {}, "size: found -1"),
        ([W], {"delay_s": -0.1}, "delay: found -0.1"),
        ([W], {"loss": 1.5}, "loss: found 1.5"),
        ([W], {"duplication": -0.5}, "duplication: found -0.5"),
        ([W], {"outages": (Outage(5, 5, "A"),)}, "outage: found 5 to 5"),
        ([W], {"outages": (Outage(5, 6, "Q"),)}, 'unknown replica "Q"'),
        ([W], {"clocks": {"Q": (0.0, 0.0)}}, 'unknown replica "Q"'),
        ([W], {"replicas": ("A", "server")}, "replicas: found"),
    ],
)
def test_bad_schedules(ops: list[Operation], world: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError) as error:
        Schedule(**{"replicas": ("A", "B"), "operations": tuple(ops), **world})
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_a_file_is_read(tmp_path: Path) -> None:
    good = tmp_path / "good.csv"
    good.write_text("t,replica,op,path,to,size\n1,A,write,f,,10\n2,B,rename,f,g,\n")
    read = read_schedule(good, loss=0.1)
    assert read.replicas == ("A", "B")
    assert read.operations == (Operation(1.0, "A", "write", "f", size=10), Operation(2.0, "B", "rename", "f", "g"))
    lines = tmp_path / "good.jsonl"
    lines.write_text('{"t": 1, "replica": "A", "op": "write", "path": "f"}\n{"t": 2, "replica": "B", "op": "delete", "path": "f"}\n')
    assert [op.op for op in read_schedule(lines).operations] == ["write", "delete"]


def test_the_user_model_is_seeded_and_keeps_its_shares() -> None:
    one, two = (generate("team", np.random.default_rng(3), 1000) for _ in range(2))
    assert one == two
    assert one != generate("team", np.random.default_rng(4), 1000)
    acts = [op for op in one.operations if op.t >= 100 and not op.group]
    for names, share, within in ((["delete"], 0.08, 0.03), (["rename"], 0.07, 0.03), (["write", "append"], 0.80, 0.05)):
        assert sum(op.op in names for op in acts) / 1000 == pytest.approx(share, abs=within)
    with pytest.raises(InputError, match="unknown case"):
        generate("nobody", np.random.default_rng(0), 10)


def test_a_content_gives_its_size_and_a_size_beside_it_must_agree(tmp_path: Path) -> None:
    file = tmp_path / "with.csv"
    rows = "t,replica,op,path,size,content\n1,A,write,f,,née\n2,B,append,f,3,abc\n3,A,write,g,,\n4,A,write,h,0,\n"
    file.write_text(rows, encoding="utf-8")
    assert [op.size for op in read_schedule(file).operations] == [4, 3, 1000, 0]
    lines = tmp_path / "with.jsonl"
    lines.write_text('{"t": 1, "replica": "A", "op": "write", "path": "f", "content": "a\\nb", "size": 9}\n')
    with pytest.raises(InputError, match=r'with.jsonl:1: column "size": found 9 beside a content of 3 bytes'):
        read_schedule(lines)
    first, second = (
        '{"t": 1, "replica": "A", "op": "write", "path": "f", "content": "a\\nb"}',
        '{"t": 1, "replica": "B", "op": "read", "path": "f"}',
    )
    lines.write_text(f"{first}\n{second}")
    assert read_schedule(lines).operations[0].size == 3


def test_a_fault_of_a_file_names_its_line(tmp_path):
    """The header is line 1, so the second operation stands in line 3."""
    path = tmp_path / "s.csv"
    path.write_text("t,replica,op,path\n0,A,write,a\n1,B,write,../b\n")
    with pytest.raises(InputError, match=r"s\.csv:3: path"):
        read_schedule(path)
    lines = tmp_path / "s.jsonl"
    lines.write_text('{"t": 0, "replica": "A", "op": "write", "path": "a"}\n\n{"t": 1, "replica": "B", "op": "end", "path": "", "group": "x"}\n')
    with pytest.raises(InputError, match=r"s\.jsonl:3: end of group"):
        read_schedule(lines)
