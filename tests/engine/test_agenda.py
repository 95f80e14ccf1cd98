"""The bare loop: the order of calls, and that time never goes back."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from armillary.engine import Agenda, Simulation


def test_calls_happen_in_order_of_time_then_of_insertion() -> None:
    agenda, said = Agenda(), []
    for time, word in ((2.0, "c"), (1.0, "a"), (2.0, "d"), (1.0, "b")):
        agenda.at(time, said.append, word)
    agenda.run(until=1.5)
    assert (said, agenda.now, agenda.next_time, len(agenda)) == (["a", "b"], 1.0, 2.0, 2)
    agenda.run()
    assert (said, agenda.now, agenda.next_time) == (["a", "b", "c", "d"], 2.0, math.inf)


def test_what_is_due_in_the_past_happens_now() -> None:
    agenda, said = Agenda(5.0), []
    agenda.at(1.0, said.append, "late")
    agenda.after(0.0, said.append, "later")
    agenda.step()
    assert (said, agenda.now) == (["late"], 5.0)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=30))
def test_it_agrees_with_the_whole_engine(calls: list[tuple[int, int]]) -> None:
    """Each call adds a second one; both loops make the same calls at the same times."""
    seen = []
    for loop in (Agenda(), Simulation()):
        said: list[tuple[float, int]] = []

        def first(i: int, gap: int, loop=loop, said=said) -> None:
            said.append((loop.now, i))
            loop.after(gap, lambda: said.append((loop.now, -i)))

        for i, (time, gap) in enumerate(calls):
            loop.at(time, first, i, gap)
        loop.run()
        seen.append(said)
    assert seen[0] == seen[1]
