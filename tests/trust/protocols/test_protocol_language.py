"""Protocol files: what is read, and what is refused, each fault with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from armillary.errors import InputError
from armillary.trust.protocols import built_in, load, loads
from armillary.trust.protocols.language.protocol import Interaction, Mixed
from armillary.trust.protocols.suite.built_in import BROKEN, DIRECTED, SOUND


def test_the_suite_has_fourteen_sound_fourteen_broken_and_six_directed() -> None:
    assert (len(SOUND), len(BROKEN), len(DIRECTED)) == (14, 14, 6)
    assert all(built_in(name).mixes for name in SOUND + BROKEN)
    assert not any(built_in(name).mixes for name in DIRECTED)


def test_a_loop_leads_back_to_its_mixed_choice() -> None:
    job = built_in("request_timeout")
    first = job.nodes[0]
    assert isinstance(first, Mixed)
    done = next(node for node in job.interactions() if node.branches[0].label == "done")
    assert done.branches[0].target == 0
    assert done.inside == ((0, "left"),)


def test_a_sub_protocol_stands_in_the_place_of_its_call() -> None:
    transfer = built_in("delegated_transfer")
    choice = next(node for node in transfer.interactions() if len(node.branches) == 2)
    assert (choice.sender, choice.receiver) == ("Bank", "Payer")
    assert isinstance(transfer.nodes[choice.branches[0].target], Interaction)


BODY = "protocol P(role A, role B) { %s }"
WRONG = {
    "syntax": ("m() from A B;", 'p.mst:1:41: found "B"; expected "to"'),
    "role": ("m() from A to C;", 'unknown role "C"'),
    "itself": ("m() from A to A;", "from A to itself; expected two different roles"),
    "unguarded": ("rec X { rec Y { continue X; } }", "does nothing before it continues"),
    "twice": ("choice at A { m() from A to B; } or { m() from A to B; }", 'found the label "m" twice in one choice'),
    "chooser": ("choice at A { m() from B to A; } or { n() from A to B; }", "does not begin"),
    "receivers": ("choice at A { m() from A to B; } or { }", "without a message"),
    "after": ("rec X { m() from A to B; continue X; } m() from A to B;", "nothing follows a recursion"),
    "type": ("m(integer x) from A to B;", "expected a type (int"),
    "field": ("m(int x, int x) from A to B;", '"x" twice'),
    "keyword": ("class() from A to B;", "Python can use"),
    "continue": ("m() from A to B; continue Z;", 'unknown recursion "Z"'),
    "call": ("do Q(A, B);", 'unknown protocol "Q"'),
    "same": ("mixed (A |> A) { left { } right { } }", "both sides"),
    "empty": ("mixed (A |> B) { left { } right { } }", "without a message"),
    "mark": ("m() from A to B; ?", 'found "?'),
    "nesting": ("rec X { m() from A to B; " * 70, "found more than 64 blocks"),
    "many": ("choice at A { m() from A to B; do P(A, B); } or { n() from A to B; do P(B, A); }", ""),
}


@pytest.mark.parametrize("name", sorted(WRONG))
def test_a_wrong_text_is_refused_in_one_line_with_its_place(name: str) -> None:
    text, expected = WRONG[name]
    if not expected:
        assert len(loads(BODY % text).nodes) < 10  # Calls with exchanged roles come back to themselves.
        return
    with pytest.raises(InputError) as refused:
        loads(BODY % text, file="p.mst")
    assert expected in str(refused.value)
    assert str(refused.value).startswith("p.mst:1")
    assert "\n" not in str(refused.value)


def test_a_file_of_more_than_a_mebibyte_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "large.mst"
    file.write_text("// " + "x" * (1 << 20) + "\n" + BODY % "m() from A to B;")
    with pytest.raises(InputError, match="expected at most 1,048,576"):
        load(file)


def test_calls_that_multiply_are_refused_before_they_fill_the_memory() -> None:
    parts = [
        f"protocol P{i}(role A, role B) {{ choice at A {{ a() from A to B; do P{i + 1}(A, B); }} or {{ b() from A to B; do P{i + 1}(A, B); }} }}"
        for i in range(40)
    ]
    with pytest.raises(InputError, match="20,000 steps"):
        loads("\n".join([*parts, "protocol P40(role A, role B) { c() from A to B; }"]))
