"""What is stored and computed again: proofs against brute force, plans against enumeration, promises against what is allocated."""

# ruff: noqa: B007
from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from interpreted import BALANCE, plain

from armillary.errors import InputError
from armillary.training.autodiff import Choices
from armillary.training.autodiff.arena import LIMITED
from armillary.training.autodiff.forwarding.counting import Pass, capacity, cost, executions
from armillary.training.autodiff.forwarding.planning import Model, Plan, best, recomputable, recompute_all, store_all
from armillary.training.autodiff.frontend.lowering import lower
from armillary.training.autodiff.frontend.source import of_text
from armillary.training.autodiff.pipeline.gradient import gradient
from armillary.training.autodiff.program.affine import Affine, Range, number, variable
from armillary.training.autodiff.program.dependence import Dependence, infeasible
from armillary.training.autodiff.program.regions import Access, Loop, Map, Place
from armillary.training.autodiff.workload import built_in


def model_of(name: str, seed: int = 0) -> Model:
    problem = built_in(name, "tiny", np.random.default_rng(seed))
    made = plain(problem.source, problem.active, output=problem.output)
    return made.prepare(made.bind((), problem.arguments)).model


# -- Proofs -------------------------------------------------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(-3, 3), st.integers(-3, 3), st.integers(-4, 4)), min_size=1, max_size=5))
def test_what_is_proved_infeasible_has_no_solution(rows: list[tuple[int, int, int]]) -> None:
    box = [{"a": 1, "": 3}, {"a": -1, "": 3}, {"b": 1, "": 3}, {"b": -1, "": 3}]
    system = [*box, *({"a": a, "b": b, "": c} for a, b, c in rows)]
    found = any(
        all(row.get("a", 0) * x + row.get("b", 0) * y + row.get("", 0) >= 0 for row in system) for x in range(-3, 4) for y in range(-3, 4)
    )
    if infeasible(system):
        assert not found


def test_infeasible_sees_what_it_should() -> None:
    assert infeasible([{"x": 1, "": -5}, {"x": -1, "": 4}])
    assert not infeasible([{"x": 1, "": -5}, {"x": -1, "": 5}])
    assert infeasible([{"x": 2, "": -1}, {"x": -2, "": 1}]), "2x = 1 has no integer solution"
    assert infeasible([{"x": 1, "y": -1, "": -1}, {"y": 1, "x": -1}])


INDICES = ("i", "i - 1", "i + 1", "j", "j + 1", "i + j", "2 * i", "5 - i", "0")


@settings(max_examples=40)
@given(
    st.tuples(*[st.sampled_from(INDICES)] * 3),
    st.sampled_from(["range(1, 4)", "range(3, 0, -1)"]),
    st.sampled_from(["range(i)", "range(1, 4)"]),
)
def test_a_value_that_is_called_intact_is_never_overwritten(at: tuple[str, str, str], outer: str, inner: str) -> None:
    text = (
        "def f(x, y):\n"
        f"    for i in {outer}:\n"
        f"        for j in {inner}:\n"
        f"            y[i] = x[{at[0]}] * x[{at[0]}]\n"
        f"            x[{at[1]}] = y[j] * 2.0\n"
        f"        x[{at[2].replace('j', 'i')}] = 1.0\n"
    )
    program = lower(of_text(text, "f", "f.py"), {"x": np.zeros(12), "y": np.zeros(12)}, "x")
    dependence = Dependence(program)
    trace = _trace(program.root, {})
    for statement in program.statements():
        if isinstance(statement, Map):
            for access in statement.reads():
                if dependence.intact(statement, access):
                    assert not _overwritten(trace, statement, access), (text, access)


def _trace(body, at):  # type: ignore[no-untyped-def]
    """Every run of every assignment, with the values of the loop variables."""
    found = []
    for statement in body:
        if isinstance(statement, Loop):
            one = statement.range
            for value in range(one.low.at(at), one.high.at(at), one.step):
                found += _trace(statement.body, {**at, one.name: value})
        else:
            found.append((statement, dict(at)))
    return found


def _overwritten(trace, statement, access) -> bool:  # type: ignore[no-untyped-def]
    for moment, (one, at) in enumerate(trace):
        if one is statement:
            place = tuple(index.at(at) for index in access.index)
            for other, then in trace[moment:]:
                if other.array == access.array and tuple(index.at(then) for index in other.index) == place:
                    return True
    return False


@settings(max_examples=40)
@given(st.integers(0, 5), st.integers(1, 3), st.booleans(), st.integers(1, 4))
def test_capacities_are_what_counting_gives(size: int, step: int, triangular: bool, at_once: int) -> None:
    outer = Range("a", number(0), number(size), step)
    inner = Range("b", number(0), variable("a") if triangular else number(3))
    sizes = [[max(0, a + 1 - b) for b in range(a if triangular else 3)] for a in range(0, size, step)]
    full = capacity([Pass(outer), Pass(inner)], lambda at: np.maximum(0, at["a"] + 1 - at["b"]), {"a", "b"})
    assert full == sum(map(sum, sizes))
    chunks = [sum(map(sum, sizes[k : k + at_once])) for k in range(0, len(sizes), at_once)]
    assert capacity([Pass(outer, at_once), Pass(inner)], lambda at: np.maximum(0, at["a"] + 1 - at["b"]), {"a", "b"}) == max(
        chunks, default=0
    )


def test_executions_of_triangles() -> None:
    loops = [Loop(0, Range("i", number(0), number(5))), Loop(0, Range("j", number(0), variable("i")))]
    assert executions(loops) == 10
    assert executions([Loop(0, Range("i", number(4), number(0), -1))]) == 4


# -- Plans --------------------------------------------------------------------------------------------------------------------------------


def enumerated(model: Model, limit: int | None) -> Plan | None:
    """The best plan by trying all."""
    can = recomputable(model)
    numbers = [one.number for one in model.candidates]
    assert len(numbers) <= 10
    found: Plan | None = None
    choices = [one.options for one in model.replays.values()]
    for options in itertools.product(*choices):
        chosen = {serial: option for serial, option in zip(model.replays, options) if not option.taped}
        for bits in itertools.product((0, 1), repeat=len(numbers)):
            stored = frozenset(k for k, bit in zip(numbers, bits) if bit)
            plan = model.evaluate(stored, chosen)
            if not plan.recomputed <= can or (limit is not None and plan.bytes > limit):
                continue
            if found is None or plan.seconds < found.seconds - 1e-18:
                found = plan
    return found


@pytest.mark.parametrize("name", ["durbin", "gramschmidt", "adi", "trmm", "doitgen"])
def test_the_integer_program_finds_what_enumeration_finds(name: str) -> None:
    model = model_of(name)
    everything, least = store_all(model).bytes, min(recompute_all(model).bytes, store_all(model).bytes)
    for limit in (None, everything, (everything + least) // 2, least, least // 2):
        truth = enumerated(model, limit)
        if truth is None:
            with pytest.raises(InputError, match="needs at least") as refused:
                best(model, limit)
            possible = int(str(refused.value).rpartition(" ")[2])
            assert enumerated(model, possible) is not None
            assert enumerated(model, possible - 1) is None, "the least limit is the least"
        else:
            plan = best(model, limit)
            assert plan.optimal
            assert plan.seconds == pytest.approx(truth.seconds, rel=1e-6)
            assert limit is None or plan.bytes <= limit


def pair(x, s):
    n = x.shape[0]
    for t in range(4):
        big = 2.0 * x
        small = 0.0
        for i in range(n):
            small += np.exp(np.sin(x[i]))
        x[:] = big * big * s + small * small
    return x


def test_cheap_memory_is_stored_and_cheap_work_is_done_again() -> None:
    x = np.full(200, 0.1)
    most = plain(pair, ("x",), strategy="store").plan_of({"x": x, "s": 0.1}).bytes
    made = plain(pair, ("x",), memory=0.7 * most, choices=Choices(segments=False))
    prepared = made.prepare(made.bind((x, 0.1), {}))
    fate = {one.array.name.rpartition("_")[0]: one.number in prepared.plan.stored for one in prepared.forwarding.candidates if one.direct}
    assert fate["small"], "200 exponentials for eight bytes"
    assert not fate["big"], "one multiplication for each eight bytes"


@pytest.mark.parametrize(
    "name", ["durbin", *(pytest.param(one, marks=pytest.mark.slow) for one in ("cavity_flow", "nbody", "vadv", "gramschmidt"))]
)
def test_no_limit_is_passed_and_the_gradient_stays(name: str) -> None:
    problem = built_in(name, "tiny", np.random.default_rng(1))
    stored = plain(problem.source, problem.active, output=problem.output, strategy="store")
    truth = stored(**problem.fresh())
    most, least = (
        stored.peak_bytes,
        plain(problem.source, problem.active, output=problem.output, strategy="recompute").plan_of(problem.arguments).bytes,
    )
    tried = 0
    for limit in np.linspace(min(least, most), most, 20).astype(int):
        made = plain(problem.source, problem.active, output=problem.output, memory=int(limit))
        try:
            gradients = made(**problem.fresh())
        except InputError:
            continue
        tried += 1
        assert made.peak_bytes <= limit
        assert made.peak_bytes == made.plan_of(problem.arguments).bytes
        for mine, theirs in zip(gradients, truth):
            assert mine == pytest.approx(theirs, rel=1e-12, abs=1e-14)
    assert tried >= 10


def test_segments_need_the_memory_of_the_closed_form() -> None:
    def steps(x):
        for t in range(64):
            x[:] = x * x * 0.5 + 0.25

    x = np.full(10, 0.3)
    full = plain(steps, output="x", strategy="store")
    full(x)
    assert full.peak_bytes == 64 * 80
    made = plain(steps, output="x", memory=16 * 80)
    made(x)
    assert made.peak_bytes == 16 * 80, "8 snapshots and 8 passes"
    with pytest.raises(InputError, match="needs at least 160"):
        plain(steps, output="x", memory=100)(x)
    assert plain(steps, output="x", memory=160)(x)[0] == pytest.approx(full(x)[0], rel=1e-12)


def test_a_limit_without_segments_is_refused() -> None:
    def steps(x):
        for t in range(64):
            x[:] = x * x * 0.5 + 0.25

    with pytest.raises(InputError, match="needs at least 5120"):
        plain(steps, output="x", memory=16 * 80, choices=Choices(segments=False))(np.full(10, 0.3))


@pytest.mark.parametrize("name", ["cavity_flow", "nbody", "vadv", "correlation"])
def test_a_plan_for_another_machine_is_hardly_slower(name: str) -> None:
    model = model_of(name)
    plan, rng = best(model, None), np.random.default_rng(2)
    for _ in range(10):
        kept = [one.cost for one in model.candidates]
        for one in model.candidates:
            factor = float(np.exp(0.1 * rng.standard_normal()))
            one.cost = replace(one.cost, flops=one.cost.flops * factor, bytes=one.cost.bytes * factor)
        mine, simple = model.evaluate(plan.stored, plan.options), store_all(model)
        whole = 3 * sum(one.seconds(BALANCE) for one in kept) + simple.seconds
        assert mine.seconds - simple.seconds <= 0.03 * whole
        for one, before in zip(model.candidates, kept):
            one.cost = before


@pytest.mark.parametrize("name", LIMITED)
def test_half_of_the_memory_costs_less_than_a_third_more(name: str) -> None:
    """By the model, at the sizes of the cases: a gradient takes about three runs of the kernel, and what is carried comes on top."""
    problem = built_in(name, "S", np.random.default_rng(0))
    stored = plain(problem.source, problem.active, output=problem.output, strategy="store")
    everything = stored.plan_of(problem.arguments)
    half = plain(problem.source, problem.active, output=problem.output, memory=everything.bytes // 2).plan_of(problem.arguments)
    program = stored.prepare(stored.bind((), problem.arguments)).program
    kernel = sum(cost(one, (), program.arrays).seconds(BALANCE) for one in program.root)
    assert half.bytes <= everything.bytes // 2
    assert 3 * kernel + half.seconds <= 1.3 * (3 * kernel + everything.seconds)


def test_affine_arithmetic() -> None:
    i, j = variable("i"), variable("j")
    assert str((i * 2 - j + 1) - i + 6) == "i + -1*j + 7"
    assert (i - i).fixed
    assert (i + 3).with_names({"i": j * 2}) == j * 2 + 3
    assert isinstance(Place((), ()).ranges, tuple)
    assert Access("x", (i,)) == Access("x", (Affine((("i", 1),)),))


@pytest.mark.parametrize("name", ["durbin", "cavity_flow"])
def test_equal_programs_give_equal_code(name: str) -> None:
    """Machine code is found again by the text, which once held numbers that grew with every program."""
    first, second = (built_in(name, "tiny", np.random.default_rng(seed)) for seed in (0, 1))
    texts = [
        gradient(problem.source, problem.active, output=problem.output, strategy="recompute").prepare(problem.fresh()).text
        for problem in (first, second)
    ]
    assert texts[0] == texts[1]
