"""Exploration against SPIN, what each part of the mechanism is for, and limits on what a stranger's file may ask for."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest

from armillary.errors import InputError
from armillary.trust.protocols import (
    Machines,
    MixedChoiceTypes,
    Unsound,
    built_in,
    chart,
    check,
    explore_machines,
    loads,
    machines_of,
    play,
    promela,
    spin,
    violations,
)  # fmt: skip
from armillary.trust.protocols.checking.machine import Machine, State, Step, machines
from armillary.trust.protocols.checking.projection import projected
from armillary.trust.protocols.exploring import explorer
from armillary.trust.protocols.exploring.explorer import Counterexample
from armillary.trust.protocols.exploring.promela import lacking
from armillary.trust.protocols.exploring.system import Move
from armillary.trust.protocols.suite.built_in import BROKEN, DIRECTED, SOUND

QUICK = ("awareness_one_side", False)


EACH = [(name, tags) for name in SOUND + DIRECTED + BROKEN for tags in (False, True)]


@pytest.mark.skipif(bool(lacking()), reason=lacking())
@pytest.mark.parametrize(("name", "tags"), [pytest.param(*one, marks=() if one == QUICK else pytest.mark.slow) for one in EACH])
def test_spin_agrees_with_exploration(name: str, tags: bool) -> None:
    system = machines_of(built_in(name), tags=tags)
    said = spin(system, 2, timeout_s=300)
    found = explore_machines(system, bound=2, reduce=False)
    assert said.complete
    assert (said.errors > 0) == (found.counterexample is not None)


def test_promela_is_the_same_text_each_time() -> None:
    system = machines_of(built_in("nested_mixed"))
    text = promela(system, 2)
    assert text == promela(machines_of(built_in("nested_mixed")), 2)
    assert text.count("active proctype") == 2
    assert "end_S" in text


def test_without_interrupts_a_race_ends_in_no_agreement() -> None:
    job = built_in("request_timeout")
    parts = projected(job, interrupts=False)
    system = Machines(tuple(one.machine for one in parts.values()), False, "Job", {0: "Server"})
    found = explore_machines(system, bound=2).counterexample
    assert found is not None
    assert (found.kind, found.role) == ("progress", "Client")
    assert [str(one) for one in found.trace][:2] == ['Client sends "req" to Server', 'Server sends "expired" to Client']
    assert {one.how for one in play(system, range(60))} - {"agreement"}


def test_without_discards_an_old_message_is_never_understood() -> None:
    job = machines_of(built_in("request_timeout"))
    parts = tuple(Machine(one.role, tuple(State(state.steps, state.ended) for state in one.states)) for one in job.machines)
    found = explore_machines(Machines(parts, False, "Job", job.observers), bound=2).counterexample
    assert found is not None
    assert (found.kind, found.role) == ("safety", "Server")


#: What `merge` refuses too when the condition of the name is off, so that only all conditions together let it pass.
TWICE = {
    "observer_right_by_other",
    "commitment_early_to_third",
    "commitment_ends_early",
    "awareness_one_side",
    "awareness_acts_unasked",
    "awareness_same_label_third",
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_a_condition_alone_refuses_goes_wrong_without_it(name: str) -> None:
    condition = name.partition("_")[0]
    judged = MixedChoiceTypes(without=condition).judge(built_in(name))
    assert judged.accepted == (name not in TWICE)
    if judged.accepted and name != "observer_same_label":
        assert judged.system is not None
        assert explore_machines(judged.system, bound=2).counterexample is not None
    assert not MixedChoiceTypes().judge(built_in(name)).accepted


def test_reduction_leaves_out_what_nobody_can_tell_apart() -> None:
    def pair(i: int) -> list[Machine]:
        said = [State((Step(True, f"B{i}", "m", (), j + 1),)) for j in range(5)]
        heard = [State((Step(False, f"A{i}", "m", (), j + 1),)) for j in range(5)]
        return [Machine(f"A{i}", (*said, State((), True))), Machine(f"B{i}", (*heard, State((), True)))]

    system = machines([one for i in range(3) for one in pair(i)])
    whole, reduced = (explore_machines(system, bound=2, reduce=reduce) for reduce in (False, True))
    # Each pair alone has 3 + 3 + 3 + 3 + 2 + 1 configurations: how many were sent, and at most two of them on the way.
    assert whole.configurations == 15**3
    assert reduced.configurations == 31
    assert whole.sound
    assert reduced.sound


def test_an_exploration_gives_up_at_its_limit() -> None:
    found = explore_machines(machines_of(built_in("amqp_channel")), bound=8, most=500, reduce=False)
    assert (found.configurations, found.complete, found.sound) == (500, False, False)


def test_a_counterexample_is_drawn_with_every_name_escaped() -> None:
    found = explore_machines(machines_of(built_in("staleness_no_ack")), bound=2).counterexample
    assert found is not None
    drawn = ElementTree.fromstring(chart(("Client", "Server", "Log"), found))
    texts = [one.text for one in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert texts[:3] == ["Client", "Server", "Log"]
    assert texts[-1] == f"{found.kind}: {found.role} {found.message}"
    assert texts.count("req") == sum(one.kind == "send" and one.label == "req" for one in found.trace)
    bad = Counterexample("safety", "A", "<script>", (Move("A", "send", "B", "</svg>&"),))
    assert "<script>" not in chart(("A", "B"), bad)
    ElementTree.fromstring(chart(("A", "B"), bad))


def test_a_long_protocol_takes_memory_in_proportion() -> None:
    import tracemalloc

    text = f"protocol P(role A, role B) {{ {''.join(f'm{i}() from A to B; ' for i in range(1200))} }}"
    system = check(loads(text))
    tracemalloc.start()
    assert not explore_machines(system, bound=2, most=200).complete
    (ended,) = play(system, [1])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert ended.how == "unended"
    assert peak < 16 << 20


def test_a_role_that_may_be_anywhere_is_refused_before_it_fills_the_memory() -> None:
    # In each of the states behind 450 messages, the next may be any of the 450.
    ways = "".join(f" or {{ z{i}() from A to C; b{i}() from A to B; continue X; }}" for i in range(450))
    text = f"rec X {{ choice at A {{ x() from A to C; continue X; }} {ways} }}"
    with pytest.raises(InputError, match="places at which role B may be"):
        machines_of(loads(f"protocol P(role A, role B, role C) {{ {text} }}"))


def test_configurations_of_many_roles_are_fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explorer, "MOST_NUMBERS", 300)
    found = explore_machines(machines_of(built_in("request_timeout")), bound=2, reduce=False)
    assert not found.complete
    assert found.configurations == 300 // 6  # Three roles, and three pairs that talk.


def test_too_many_mixed_choices_are_refused() -> None:
    one = "or {{ a{0}() from A to B; mixed (A |> B) {{ left {{ l() from A to B; m() from B to A; }} right {{ r() from B to A; s() from A to B; }} }} }} "
    head = "protocol P(role A, role B) { choice at A { z() from A to B; } "
    assert len(loads(head + "".join(one.format(i) for i in range(256)) + "}").mixes) == 256
    with pytest.raises(InputError, match="more than 256 mixed choices"):
        loads(head + "".join(one.format(i) for i in range(257)) + "}")


def test_a_fault_names_file_line_role_and_condition() -> None:
    text = built_in("request_timeout").text.replace("ack() from Client to Server; ", "")
    with pytest.raises(Unsound, match=r"^job\.mst:\d+: staleness, role Client: ") as refused:
        check(loads(text, file="job.mst"))
    assert refused.value.violations == tuple(violations(loads(text)))
