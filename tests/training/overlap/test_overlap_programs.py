"""Tile programs on real data: every operator against NumPy, the primitives one by one, lost signals, and worker processes."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.errors import InputError
from armillary.training.overlap import PROGRAMS, DeadlockFound, Layout, Operator, Tile, TileProgram, program_for, run
from armillary.training.overlap.execution.memory import STRIPES, Memory, size_of
from armillary.training.overlap.execution.rank import Rank
from armillary.training.overlap.programs.catalogue import REDUCING
from armillary.training.overlap.programs.gemm_ar import GemmAr
from armillary.training.overlap.programs.primitives import (
    ALL,
    all_reduce,
    barrier,
    load,
    reduce,
    signal,
    signal_all,
    store_add_async,
    store_async,
    wait,
)
from armillary.training.overlap.workload import GEMMS, OPS, PLAIN, routed

SMALL = Tile(8, 16, 8)


@st.composite
def operators(draw: st.DrawFn) -> Operator:
    """Operators of every kind with ragged shapes, on 1 to 4 ranks."""
    op, n = draw(st.sampled_from(OPS)), draw(st.integers(1, 4))
    size = st.integers(1, 21)
    if op in PLAIN:
        return Operator(op, devices=n, m=n * draw(size), n=draw(size))
    if op in GEMMS:
        m = draw(size)
        return Operator(op, devices=n, m=m if op == "gemm_ar" else n * m, n=draw(size), k=draw(size))
    if op == "moe_dispatch_gemm":
        experts = n * draw(st.integers(1, 3))
        sizes = {
            "tokens": draw(size),
            "experts": experts,
            "top_k": draw(st.integers(1, min(3, experts))),
            "hidden": draw(size),
            "ffn": draw(size),
        }
        return routed({"op": op, "devices": n, **sizes}, np.random.default_rng(draw(st.integers(0, 99))), draw(st.sampled_from([0.0, 2.0])))
    heads = draw(st.integers(1, 2)) * (n if op == "ulysses_attention" else 1)
    return Operator(
        op, devices=n, batch=draw(st.integers(1, 2)), heads=heads, sequence=n * draw(size), width=draw(st.integers(1, 9)), causal=draw(st.booleans())
    )  # fmt: skip


@settings(max_examples=80, deadline=None)
@given(operators(), st.booleans(), st.booleans(), st.sampled_from(["two-shot", "one-shot"]), st.integers(1, 3), st.integers(0, 3))
def test_every_operator_gives_numpys_result(work: Operator, inter: bool, fabric: bool, style: str, sms: int, comm_sms: int) -> None:
    program = program_for(work, SMALL, inter=inter, fabric=fabric and inter, style=style)
    ran = run(program, executor="threads", sms=sms, comm_sms=comm_sms, timeout=20)
    assert ran.error <= 1e-5
    if work.op in ("gemm_ar", "all_reduce") and not (work.op == "gemm_ar" and style == "one-shot" and not (fabric and inter)):
        assert all(np.array_equal(ran.results[0], other) for other in ran.results[1:])


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("op", ["ring_attention", "ulysses_attention"])
def test_attention_equals_softmax_attention(op: str, causal: bool) -> None:
    work = Operator(op, devices=4, batch=2, heads=4, sequence=96, width=16, causal=causal)
    program = program_for(work, SMALL, inter=True, fabric=False)
    given = program.inputs(np.random.default_rng(5))
    ran = run(program, executor="threads", inputs=given)
    name, at = ("q", 1) if op == "ring_attention" else ("tokens", 2)
    whole = np.concatenate([x[name] for x in given], axis=at).astype(float)
    if op == "ring_attention":
        q, (k, v) = whole, (np.concatenate([x["kv"][0][:, i] for x in given], axis=1).astype(float) for i in (0, 1))
    else:
        q, k, v = whole
    out = np.concatenate(ran.results, axis=1)
    for pair in range(8):
        for row in (0, 1, 24, 95):
            seen = slice(0, row + 1) if causal else slice(None)
            scores = k[pair, seen] @ q[pair, row] / 4.0
            weights = np.exp(scores - scores.max())
            np.testing.assert_allclose(out[pair, row], weights @ v[pair, seen] / weights.sum(), atol=1e-5)


@dataclass(frozen=True)
class Script(TileProgram):
    """A program whose communicators follow a function of (device, task)."""

    script: Any = None
    count: int = 1
    flags: int = 4

    def layouts(self) -> dict[str, Layout]:
        return {"x": Layout((4, 6), "input"), "y": Layout((4, 6))}

    def bars(self) -> dict[str, int]:
        return {"flag": self.flags}

    def tasks(self, dev: int) -> int:
        return 0

    def comm_tasks(self, dev: int) -> int:
        return self.count

    def communicator(self, dev: int, task: int) -> Any:
        return self.script(dev, task)

    def outputs(self) -> str:
        return "y"


def scripted(script: Any, count: int = 1, flags: int = 4, comm_sms: int = 1) -> Memory:
    """Runs a script on 4 ranks and gives back their memory; x of device d is d everywhere."""
    program = Script(Operator("all_to_all", devices=4, m=4, n=6), script=script, count=count, flags=flags)
    memory = Memory(program, [bytearray(size_of(program)) for _ in range(4)], [threading.Lock() for _ in range(STRIPES)])
    for dev in range(4):
        memory.arrays[dev]["x"][...] = dev
    failures: list[BaseException] = []

    def one(dev: int) -> None:
        try:
            Rank(program, dev, memory, 1, comm_sms, 10.0).run()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=one, args=(dev,)) for dev in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return memory


WHOLE = ((0, 4), (0, 6))


def test_store_async_puts_a_tile_on_one_device_or_on_all() -> None:
    def script(dev: int, task: int) -> Any:
        yield load("t", "x", ((0, 2), (0, 3)))
        if dev == 1:
            yield store_async("y", 2, "t", ((1, 3), (2, 5)))
        if dev == 3:
            yield store_async("y", ALL, "t", ((2, 4), (0, 3)))

    memory = scripted(script)
    assert memory.arrays[0]["y"].sum() == 3 * 6
    assert memory.arrays[2]["y"][1, 2:5].tolist() == [1, 1, 1]
    assert memory.arrays[2]["y"][3, :3].tolist() == [3, 3, 3]


def test_store_add_async_loses_no_add() -> None:
    def script(dev: int, task: int) -> Any:
        yield load("t", "x", WHOLE)
        yield store_add_async("y", task % 4, "t", WHOLE)

    memory = scripted(script, count=200, comm_sms=3)
    assert all((memory.arrays[dev]["y"] == 50 * (0 + 1 + 2 + 3)).all() for dev in range(4))


def test_reduce_brings_the_sum_here_and_all_reduce_leaves_it_everywhere() -> None:
    def script(dev: int, task: int) -> Any:
        if dev == 2:
            yield reduce("y", "x", ((0, 2), (0, 6)), ((2, 4), (0, 6)))
        yield barrier("flag", 0)
        if dev == 1:
            yield all_reduce("x", ((3, 4), (1, 3)))

    memory = scripted(script)
    assert memory.arrays[2]["y"].sum() == 12 * 6
    assert memory.arrays[0]["y"].sum() == 0
    for dev in range(4):
        assert memory.arrays[dev]["x"][3].tolist() == [dev, 6, 6, dev, dev, dev]


def test_ten_thousand_random_signals_are_all_counted() -> None:
    rng = np.random.default_rng(0)
    plan = rng.integers(0, 4, (4, 100, 25, 2))

    def script(dev: int, task: int) -> Any:
        for target, coord in plan[dev, task]:
            yield signal("flag", int(coord), int(target))

    memory = scripted(script, count=100, comm_sms=4)
    expected = np.zeros((4, 4), int)
    np.add.at(expected, (plan[..., 0].ravel(), plan[..., 1].ravel()), 1)
    assert plan[..., 0].size == 10_000
    assert [memory.flags[dev]["flag"].tolist() for dev in range(4)] == expected.tolist()


def test_signal_all_and_wait_let_all_go_at_once() -> None:
    def script(dev: int, task: int) -> Any:
        if dev == 3:
            yield load("t", "x", WHOLE)
            yield store_async("y", ALL, "t", WHOLE)
            yield signal_all("flag", 1, 5)
        yield wait("flag", 1, 5)
        yield load("seen", "y", WHOLE)
        yield store_add_async("x", dev, "seen", WHOLE)

    memory = scripted(script)
    assert [memory.arrays[dev]["x"][0, 0] for dev in range(4)] == [3, 4, 5, 6]


def test_a_barrier_can_be_used_a_thousand_times() -> None:
    rounds = 250
    seen: list[int] = []

    def script(dev: int, task: int) -> Any:
        # Between two barriers exactly one device appends, so the order of all rounds is known.
        for turn in range(rounds):
            if turn % 4 == dev:
                seen.append(turn)
            for _ in range(4):
                yield barrier("flag", 2)

    memory = scripted(script)
    assert seen == list(range(rounds))
    assert all(memory.flags[dev]["flag"][2] == 0 for dev in range(4))


@dataclass(frozen=True)
class Forgetful(GemmAr):
    """A storer that never signals tile 2 of device 1."""

    def storer(self, dev: int, task: int) -> Any:
        for action in super().storer(dev, task):
            if (dev, task) != (1, 2) or type(action).__name__ != "Signal":
                yield action


def test_a_lost_signal_times_out_and_names_the_task() -> None:
    program = Forgetful(Operator("gemm_ar", devices=2, m=16, n=32, k=4), SMALL, True)
    with pytest.raises(
        DeadlockFound, match=r"communicator of task 1 on device 0 waits for ready\[2\] on device 0, which has 1 of 2 signals"
    ):
        run(program, executor="threads", timeout=0.3)


def test_a_failing_worker_stops_the_others_long_before_their_timeout() -> None:
    @dataclass(frozen=True)
    class Failing(GemmAr):
        def consumer(self, dev: int, task: int) -> Any:
            if dev == 1 and task == 1:
                raise ZeroDivisionError("task 1")
            yield from super().consumer(dev, task)

    with pytest.raises(ZeroDivisionError, match="task 1"):
        run(Failing(Operator("gemm_ar", devices=2, m=16, n=32, k=4), SMALL, True), executor="threads", timeout=1000)

    def strange(dev: int, task: int) -> Any:
        yield "send"

    with pytest.raises(InputError, match="Script yields 'send', which is no primitive"):
        scripted(strange)


def test_wrong_calls_are_refused() -> None:
    program = program_for(Operator("gemm_rs", devices=2, m=4, n=4, k=4), SMALL, inter=False, fabric=False)
    with pytest.raises(InputError, match="3 ranks for a program of 2 devices"):
        run(program, ranks=3)
    with pytest.raises(InputError, match='unknown executor "mpi"'):
        run(program, executor="mpi")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="inputs for 1 devices; expected 2"):
        run(program, executor="threads", inputs=program.inputs(np.random.default_rng(0))[:1])
    with pytest.raises(InputError, match=r"input a of device 0: found shape \(3, 4\); expected \(4, 4\)"):
        run(program, executor="threads", inputs=[{"a": np.zeros((3, 4)), "b": np.zeros((4, 4))}] * 2)
    large = program_for(Operator("gemm_rs", devices=2, m=1 << 16, n=1 << 16, k=4), SMALL, inter=True, fabric=False)
    with pytest.raises(InputError, match="expected at most 4294967296 for a real run"):
        run(large, executor="threads")


def test_every_operator_has_a_program_with_fewer_than_50_lines_for_the_device() -> None:
    assert set(PROGRAMS) == set(OPS)
    lines = {op: program.device_lines() for op, program in PROGRAMS.items()}
    assert all(5 <= count < 50 for count in lines.values()), lines


def test_lines_are_those_that_hold_code() -> None:
    class Two(TileProgram):
        def consumer(self, dev: int, task: int) -> Any:
            """Not counted."""
            # Nor this.

            yield wait("a", 0, 1)
            yield load(
                "t",
                "x",
                ((0, 1),),
            )

    assert Two.device_lines() == 1 + 1 + 4


def test_only_reducing_operators_need_the_fabric() -> None:
    for op in REDUCING:
        with pytest.raises(InputError, match="needs SMs of its own"):
            program_for(Operator(op, devices=2, m=4, n=4, k=4), SMALL, inter=False, fabric=True)


def test_processes_share_memory_and_gemm_ar_is_equal_on_all_of_them() -> None:
    work = Operator("gemm_ar", devices=3, m=40, n=50, k=16)
    program = program_for(work, Tile(16, 16, 16), inter=True, fabric=True)
    given = program.inputs(np.random.default_rng(1))
    ran = run(program, ranks=3, executor="cpu", inputs=given, comm_sms=1)
    assert ran.error <= 1e-5
    assert all(np.array_equal(ran.results[0], other) for other in ran.results[1:])
    # Adding in the order of the devices gives the same bits in threads.
    again = run(program, executor="threads", inputs=given, sms=3, comm_sms=2)
    assert np.array_equal(ran.results[0], again.results[0])


@pytest.mark.slow
def test_processes_name_a_lost_signal_too() -> None:
    program = Forgetful(Operator("gemm_ar", devices=2, m=16, n=32, k=4), SMALL, True)
    with pytest.raises(DeadlockFound, match=r"task 1 on device 0 waits for ready\[2\]"):
        run(program, executor="cpu", timeout=1.0)


@pytest.mark.slow
def test_gloo_gives_the_same_results() -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    from armillary import comm

    rng = np.random.default_rng(3)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((2, 32, 16), (2, 16, 48)))
    rows = rng.standard_normal((2, 10, 7)).astype(np.float32)
    theirs = comm.run("gloo_products:collectives", a, b, rows, ranks=2, backend="gloo", timeout=60).values
    given = [{"a": a[d], "b": b[d]} for d in (0, 1)]
    summed = run(program_for(Operator("gemm_ar", devices=2, m=32, n=48, k=16), SMALL, inter=True, fabric=True), inputs=given)
    scattered = run(program_for(Operator("gemm_rs", devices=2, m=32, n=48, k=16), SMALL, inter=False, fabric=False), inputs=given)
    padded = [{"x": np.concatenate([rows[0], rows[1]])} for _ in (0, 1)]
    gathered = run(program_for(Operator("all_gather", devices=2, m=20, n=7), SMALL, inter=True, fabric=False), inputs=padded)
    for dev in (0, 1):
        np.testing.assert_allclose(summed.results[dev], theirs[dev]["all"], atol=1e-4)
        np.testing.assert_allclose(scattered.results[dev], theirs[dev]["mine"], atol=1e-4)
        assert np.array_equal(gathered.results[dev], theirs[dev]["gathered"].reshape(20, 7))
