"""A gradient that can be called, and everything that is known about it.

A `Gradient` holds a function's source and the choices; for each set of shapes it makes a `Program`, a plan and a compiled function once.
"""

from __future__ import annotations

import inspect
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from armillary.errors import InputError

from ..codegen.compiled import compiled
from ..codegen.writer import Signature, forward_text, gradient_text
from ..forwarding.candidates import Forwarding
from ..forwarding.counting import Balance, measured_balance
from ..forwarding.planning import Model, Plan, Strategy, best, recompute_all, store_all
from ..forwarding.replay import replays
from ..frontend.lowering import lower
from ..frontend.source import Source, of_function
from ..program.dependence import Dependence
from ..program.regions import Array, Program
from ..reversal.activity import activity
from ..reversal.adjoint import Reversed, reverse

#: Bytes of arrays that a gradient keeps from one call to the next.
SCRATCH_BYTES = 64 << 20
UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40}


def bytes_of(memory: str | float | None) -> int | None:
    """A limit of memory in bytes: a number, or text such as "512MiB"; None for none."""
    if memory is None:
        return None
    if isinstance(memory, str):
        found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", memory)
        if found is None or found[2].lower() not in UNITS:
            raise InputError(f'found "{memory}"; expected bytes, such as 512MiB', where="memory")
        memory = float(found[1]) * UNITS[found[2].lower()]
    if not memory >= 0 or memory > 1 << 60:
        raise InputError(f"found {memory}; expected a number of bytes", where="memory")
    return int(memory)


@dataclass(frozen=True)
class Choices:
    """The parts of the method that can be switched off."""

    #: Differentiate only what connects the inputs with the output.
    critical: bool = True
    #: Read values that are still in memory where they are.
    in_place: bool = True
    #: Let loops be replayed from snapshots.
    segments: bool = True


@dataclass
class Prepared:
    """One program with its plan, and the compiled gradient."""

    program: Program
    reversed: Reversed
    forwarding: Forwarding
    model: Model
    plan: Plan
    wrt: tuple[str, ...]
    #: The gradient alone, whose forward run computes only what it needs.
    text: str
    signature: Signature
    function: Callable[..., Any]
    #: The result and the gradient.
    with_value: Callable[..., Any]
    #: Seconds of everything before compilation.
    analysis_s: float

    def __post_init__(self) -> None:
        program, arrays = self.program, self.program.arrays
        self._own = [_layout(arrays[name]) for name in self.signature.own]
        self._adjoints = [_layout(arrays[name]) for name in self.signature.adjoints]
        self._output = arrays[program.output]
        self._seed = np.ones(self._output.shape, self._output.dtype) if self._output.shape else 1.0
        slots = [*self.signature.adjoints, *self.signature.scalars]
        self._places = [slots.index(name) for name in self.wrt]
        self._prepare = preparation(program)
        self._mine = [name in self.wrt for name in self.signature.adjoints]
        self._lock = threading.Lock()
        #: Arrays of the last call that nobody else has, so that the next one finds their pages in place.
        self._scratch: tuple[list[Any], list[Any]] | None = None

    def _memory(self) -> tuple[list[Any], list[Any]]:
        """Arrays for the program's own values, and adjoints that are zero."""
        kept, self._scratch = self._scratch, None
        if kept is None:
            return [np.empty(shape, dtype) for shape, dtype in self._own], [np.zeros(shape, dtype) for shape, dtype in self._adjoints]
        own, adjoints = kept
        for place, (shape, dtype) in enumerate(self._adjoints):
            if self._mine[place]:
                adjoints[place] = np.zeros(shape, dtype)
            else:
                adjoints[place].fill(0)
        return own, adjoints

    def run(
        self, arguments: Mapping[str, Any], seed: Any = None, limit: int | None = None, *, value: bool = False
    ) -> tuple[Any, tuple[Any, ...], int]:
        """(result, gradients, bytes at the worst moment) for arguments by name, which have to be of the shapes it was prepared for.

        Without `value` the result has no content.
        """
        given = [prepare(arguments[name]) for name, prepare in self._prepare]
        with self._lock:
            own, adjoints = self._memory()
        meter = np.array([0, 0, limit or 0], np.int64)
        result = np.empty(self._output.shape if value else (0,) * len(self._output.shape), self._output.dtype)
        function = self.with_value if value else self.function
        scalar, *scalars = function(*given, *own, *adjoints, result, self._seed if seed is None else seed, meter)
        found = [*adjoints, *scalars]
        if sum(one.nbytes for one in (*own, *adjoints)) <= SCRATCH_BYTES:
            self._scratch = (own, list(adjoints))
        return result if self._output.shape else scalar, tuple(found[place] for place in self._places), int(meter[1])

    def report(self) -> str:
        """What is stored, what is computed again, what that promises, and the generated source."""
        lines = [f"gradient of {self.program.name} by {', '.join(self.wrt)}"]
        arrays = self.reversed.activity.adjoints
        lines.append(f"{self.reversed.statements} statements have an adjoint; {len(arrays)} arrays have one")
        for one in self.forwarding.candidates:
            state = "stored" if one.number in self.plan.stored else "computed again" if one.number in self.plan.recomputed else "not needed"
            if state == "not needed" and not one.direct:
                continue
            size = self.model.tape_bytes(one, [(r, self.plan.options[r.loop.serial]) for r in self.model.around(one.loops)
                                               if r.loop.serial in self.plan.options])  # fmt: skip
            work = f"{one.cost.flops + one.cost.blas:.3g} operations" if one.slice is not None else "cannot be computed again by itself"
            lines.append(f"line {one.line}: {one.array.name}: {state} ({size} bytes on a tape; {work})")
        for serial, option in self.plan.options.items():
            replay = self.model.replays[serial]
            lines.append(
                f"line {replay.loop.line}: the loop of {replay.most} passes is replayed from snapshots every {option.every} passes, "
                f"{option.at_once} at a time ({', '.join(replay.state)})"
            )
        lines.append(f"{self.plan.bytes} bytes beside the arrays and their adjoints; about {self.plan.seconds:.2g} s for what is carried")
        return "\n".join([*lines, "", self.text])


@dataclass
class Forward:
    """A compiled program without its gradient."""

    program: Program
    signature: Signature
    function: Callable[..., Any]

    def __post_init__(self) -> None:
        self._prepare = preparation(self.program)
        self._own = [_layout(self.program.arrays[name]) for name in self.signature.own]
        self._place = [*self.program.arguments, *self.signature.own].index(self.program.output) if self.array else -1

    @property
    def array(self) -> bool:
        """Whether the result is an array."""
        return bool(self.program.arrays[self.program.output].shape)

    def run(self, arguments: Mapping[str, Any]) -> Any:
        """The result for arguments by name."""
        arrays = [prepare(arguments[name]) for name, prepare in self._prepare]
        arrays += [np.empty(shape, dtype) for shape, dtype in self._own]
        value = self.function(*arrays)
        return arrays[self._place] if self.array else value


@dataclass
class Gradient:
    """The gradient of a function by some of its arguments.

    Calling it with the function's arguments returns the derivatives of the sum of the function's result, one array per name in `wrt` (one
    array if `wrt` is one name). Arguments that the function changes are copied first.
    """

    source: Source
    wrt: tuple[str, ...] | None
    memory: int | None = None
    strategy: Strategy = "ilp"
    output: str | None = None
    balance: Balance | None = None
    single: bool = False
    choices: Choices = field(default_factory=Choices)
    #: Bytes that tapes, snapshots and buffers took at the worst moment of the last call.
    peak_bytes: int = field(default=0, init=False)
    _prepared: dict[Any, Prepared] = field(default_factory=dict, init=False, repr=False)
    _forward: dict[Any, Forward] = field(default_factory=dict, init=False, repr=False)
    _defaults: Mapping[str, Any] = field(default_factory=dict, repr=False)

    # -- Calls --------------------------------------------------------------------------------------------------------------------------

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self._run(self.bind(arguments, named), None)[1]

    def value_and_grad(self, *arguments: Any, **named: Any) -> tuple[float, Any]:
        """The sum of the result, and its derivatives."""
        result, gradients = self._run(self.bind(arguments, named), None, value=True)
        return float(np.sum(result)), gradients

    def vjp(self, *arguments: Any, **named: Any) -> tuple[Any, Callable[[Any], Any]]:
        """The result, and a function from its cotangent to those of `wrt`."""
        bound = {
            name: np.array(value, copy=True) if isinstance(value, np.ndarray) else value
            for name, value in self.bind(arguments, named).items()
        }
        prepared = self.prepare(bound)
        result = self.forward(**bound)
        shape = prepared.program.arrays[prepared.program.output].shape

        def pull(cotangent: Any) -> Any:
            seed = np.asarray(cotangent, float)
            if seed.shape != shape:
                raise InputError(f"found a cotangent of the shape {seed.shape}; expected {shape}")
            return self._run(bound, seed)[1]

        return result, pull

    def forward(self, *arguments: Any, **named: Any) -> Any:
        """The function itself, compiled."""
        bound = self.bind(arguments, named)
        with _errors(self.source):
            return self.prepare_forward(bound).run(bound)

    def prepare_forward(self, bound: Mapping[str, Any]) -> Forward:
        """The compiled function for arguments of these shapes."""
        key = self._key(bound)
        if key not in self._forward:
            program = lower(self.source, bound, self.output)
            text, signature = forward_text(program)
            self._forward[key] = Forward(program, signature, compiled(text, "forward"))
        return self._forward[key]

    def program_of(self, arguments: Mapping[str, Any]) -> Program:
        """The lowered program for arguments of these shapes."""
        return self.prepare_forward(self.bind((), arguments)).program

    def plan_of(self, arguments: Mapping[str, Any]) -> Plan:
        """What would be stored and computed again for these arguments."""
        return self.prepare(self.bind((), arguments)).plan

    def report(self, *arguments: Any, **named: Any) -> str:
        """What is stored and computed again for these arguments, with the generated source."""
        return self.prepare(self.bind(arguments, named)).report()

    def _run(self, bound: Mapping[str, Any], seed: Any, *, value: bool = False) -> tuple[Any, Any]:
        prepared = self.prepare(bound)
        output = prepared.program.arrays[prepared.program.output]
        if seed is not None:
            seed = np.ascontiguousarray(seed, output.dtype) if output.shape else float(seed)
        with _errors(self.source):
            result, gradients, self.peak_bytes = prepared.run(bound, seed, self.memory, value=value)
        return result, gradients[0] if self.single else gradients

    # -- Preparation --------------------------------------------------------------------------------------------------------------------

    def bind(self, arguments: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments by name, defaults included; active ones are checked."""
        names = [one.arg for one in self.source.tree.args.args]
        if len(arguments) > len(names) or set(named) - set(names):
            raise InputError(f"found arguments that {self.source.name} does not take; expected {', '.join(names)}")
        bound = {**self._defaults, **dict(zip(names, arguments)), **named}
        for name in names:
            if name not in bound:
                raise InputError(f"argument {name} of {self.source.name} is missing")
        for name in self.names(bound):
            value = np.asarray(bound[name])
            if value.dtype.kind != "f":
                raise InputError(f"argument {name}: found {value.dtype}; expected real numbers to differentiate by")
        return {name: bound[name] for name in names}

    def names(self, bound: Mapping[str, Any]) -> tuple[str, ...]:
        """The arguments to differentiate by."""
        if self.wrt is None:
            found = tuple(name for name, value in bound.items() if isinstance(value, np.ndarray) and value.dtype.kind == "f")
            if not found:
                raise InputError(f"{self.source.name} has no array of real numbers to differentiate by")
            return found
        for name in self.wrt:
            if name not in bound:
                raise InputError(f'found "{name}" in wrt; expected an argument of {self.source.name}: {", ".join(bound)}')
        return self.wrt

    def prepare(self, bound: Mapping[str, Any]) -> Prepared:
        """The compiled gradient for arguments of these shapes."""
        key = self._key(bound)
        if key not in self._prepared:
            self._prepared[key] = self._prepare(bound)
        return self._prepared[key]

    def _prepare(self, bound: Mapping[str, Any]) -> Prepared:
        begin = time.perf_counter()
        arrays = {name: value for name, value in bound.items() if isinstance(value, np.ndarray) and value.size}
        names = list(arrays)
        for k, name in enumerate(names):
            for other in names[k + 1 :]:
                if np.may_share_memory(arrays[name], arrays[other]):
                    raise InputError(f"arguments {name} and {other} share memory; expected separate arrays", where=self.source.file)
        program = lower(self.source, bound, self.output)
        wrt = self.names(bound)
        dependence = Dependence(program, trusting=self.choices.in_place)
        found = reverse(program, activity(program, wrt, program.output, critical=self.choices.critical), dependence)
        forwarding = Forwarding(program, found, dependence)
        loops = replays(program, forwarding) if self.choices.segments else []
        model = Model(program, forwarding, loops, self.balance or measured_balance())
        plan = self._plan(model)
        text, signature = gradient_text(program, found, forwarding, model, plan, wrt, value=False)
        whole, _ = gradient_text(program, found, forwarding, model, plan, wrt, value=True)
        functions = compiled(text, "gradient"), compiled(whole, "gradient")
        return Prepared(program, found, forwarding, model, plan, wrt, text, signature, *functions, time.perf_counter() - begin)

    def _plan(self, model: Model) -> Plan:
        if self.strategy == "ilp":
            return best(model, self.memory)
        plan = store_all(model) if self.strategy == "store" else recompute_all(model)
        if self.memory is not None and plan.bytes > self.memory:
            raise InputError(f"found a limit of {self.memory} bytes; this strategy needs {plan.bytes}", where="memory")
        return plan

    def _key(self, bound: Mapping[str, Any]) -> Any:
        def one(value: Any) -> Any:
            if isinstance(value, np.ndarray) and value.ndim:
                return str(value.dtype), value.shape
            return value if isinstance(value, int | bool | np.integer | np.bool_) else type(value).__name__

        return tuple((name, one(value)) for name, value in bound.items())


def preparation(program: Program) -> list[tuple[str, Callable[[Any], Any]]]:
    """How each argument is made ready: a number, a copy where the program changes it, or the array itself."""
    changed = program.overwritten
    made: list[tuple[str, Callable[[Any], Any]]] = []
    for name in program.arguments:
        array = program.arrays[name]
        if not array.shape:
            made.append((name, float if array.kind == "f" else int))
        else:
            made.append((name, _copied if name in changed else np.ascontiguousarray))
    return made


def _copied(value: Any) -> Any:
    return np.array(value, order="C", copy=True)


def _layout(array: Array) -> tuple[tuple[int, ...], Any]:
    return array.shape, np.dtype(np.uint8 if array.kind == "b" else array.dtype)


class _errors:
    """Makes what a compiled function may raise into errors of the user's input."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, IndexError):
            raise InputError(str(error), where=self._source.file) from None
        if isinstance(error, MemoryError):
            raise InputError(str(error) or "the memory does not suffice", where="memory") from None


def gradient(
    function: Callable[..., Any] | Source, wrt: str | Sequence[str] | None = None, *, memory: str | float | None = None,
    strategy: Strategy = "ilp", output: str | None = None, balance: Balance | None = None, choices: Choices | None = None,
) -> Gradient:  # fmt: skip
    """The gradient of a function, or of one in a file that was read."""
    if strategy not in ("ilp", "store", "recompute"):
        raise InputError(f'found the strategy "{strategy}"; expected ilp, store or recompute')
    source = function if isinstance(function, Source) else of_function(function)
    defaults: dict[str, Any] = {}
    if not isinstance(function, Source):
        defaults = {name: one.default for name, one in inspect.signature(function).parameters.items() if one.default is not one.empty}
    single = isinstance(wrt, str)
    names = None if wrt is None else (wrt,) if isinstance(wrt, str) else tuple(wrt)
    return Gradient(source, names, bytes_of(memory), strategy, output, balance, single, choices or Choices(), _defaults=defaults)
