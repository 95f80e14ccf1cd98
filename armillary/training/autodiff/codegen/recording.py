"""The forward run with recording: tapes, snapshots, buffers, and the memory that they take."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ..forwarding.candidates import Candidate, Forwarding
from ..forwarding.planning import Model, Plan
from ..forwarding.replay import TAPE, Option, Replay
from ..program.affine import Affine, Range
from ..program.regions import ArgBest, Branch, Check, Dot, Loop, Map, Operand, Program, Statement, While, inside
from ..reversal.adjoint import Reversed, live_statements
from .forward import Forward
from .printing import Resolve, nothing


class Recording(Forward):
    """Writes statements that run forwards and push what the plan stores."""

    def __init__(self, program: Program, reversed_: Reversed, forwarding: Forwarding, model: Model, plan: Plan) -> None:
        super().__init__(program)
        self.reversed, self.forwarding, self.model, self.plan = reversed_, forwarding, model, plan
        self.live = live_statements(program, reversed_.activity)
        self.stored = {one.number: one for one in forwarding.candidates if one.number in plan.stored}
        self.options: dict[int, tuple[Replay, Option]] = {
            serial: (model.replays[serial], option) for serial, option in plan.options.items() if not option.taped
        }

    def prepare(self) -> None:
        """Declares tapes, snapshots, buffers and the places on them."""
        for number, one in self.stored.items():
            self.text.line(f"k_{number} = tape_{self._tape_dtype(one)}(meter, 0)")
            self.text.line(f"p_{number} = 0")
        for number in sorted(self.plan.recomputed):
            array = self.forwarding.candidates[number].array
            if array.shape:
                self.text.line(
                    f"b_{number} = np.empty({tuple(0 for _ in array.shape)}, np.{'uint8' if array.kind == 'b' else array.dtype})"
                )
            else:
                self.text.line(f"b_{number} = {nothing(array.kind)}")
        for each in self.program.statements():
            if isinstance(each, While) and each.serial in self.live:
                self.text.line(f"w_{each.serial} = tape_int64(meter, 0)")
                self.text.line(f"y_{each.serial} = 0")
        for serial, (replay, _) in self.options.items():
            for name in (*replay.state, *replay.inputs):
                self.text.line(f"s_{serial}_{name} = tape_{self._dtype(name)}(meter, 0)")
            self.text.line(f"n_{serial} = 0")
            self.text.line(f"r_{serial} = 0")

    def _tape_dtype(self, candidate: Candidate) -> str:
        return self._dtype(candidate.array.name)

    def _dtype(self, name: str) -> str:
        array = self.arrays[name]
        return "uint8" if array.kind == "b" else array.dtype

    def _sizes(self, part: int) -> list[tuple[str, str, str, int]]:
        """The tapes and snapshots of a part of the program: (name, length, dtype, bytes)."""
        found = []
        chosen = {serial: option for serial, (_, option) in self.options.items()}
        for number, one in self.stored.items():
            if self.model.part(one) == part:
                around = [(other, chosen.get(other.loop.serial, TAPE)) for other in self.model.around(one.loops)]
                bytes_ = 0 if one.growing else self.model.tape_bytes(one, around)
                found.append((f"k_{number}", str(bytes_ // one.itemsize), self._tape_dtype(one), bytes_))
        for serial, (replay, option) in self.options.items():
            if self.model._part[serial] == part:
                outer = [(other, chosen.get(other.loop.serial, TAPE)) for other in self.model.around(replay.loops)]
                at_once = {other.loop.serial: its.at_once for other, its in outer if not its.taped}
                counts = dict.fromkeys(replay.state, replay.snapshots(option, at_once)) | dict.fromkeys(replay.inputs, replay.runs(at_once))
                for name, count in counts.items():
                    size = count * int(np.prod(self.arrays[name].shape, dtype=np.int64))
                    found.append((f"s_{serial}_{name}", str(size), self._dtype(name), size * np.dtype(self._dtype(name)).itemsize))
        return found

    def _buffers(self, part: int, *, end: int) -> list[tuple[str, str, str, int]]:
        """The buffers that the reverse of a part is the first (`end` 1) or the last (`end` 0) to use."""
        found = []
        for number in sorted(self.plan.recomputed):
            one = self.forwarding.candidates[number]
            if self.model.buffer_parts(one)[end] == part and one.array.shape:
                found.append((f"b_{number}", str(one.array.shape), self._dtype(one.array.name), one.array.nbytes))
        return found

    def _take(self, part: int, *, early: bool) -> None:
        for name, shape, dtype, bytes_ in self._sizes(part) if early else self._buffers(part, end=1):
            if shape.startswith("("):
                self.text.line(f"take(meter, {bytes_})")
                self.text.line(f"{name} = np.empty({shape}, np.{dtype})")
            else:
                self.text.line(f"{name} = tape_{dtype}(meter, {shape})")

    def _free(self, part: int) -> None:
        """Gives everything of a part back."""
        for name, shape, dtype, _ in self._sizes(part) + self._buffers(part, end=0):
            self.text.line(f"meter[0] -= {name}.size * {name}.itemsize")
            if shape.startswith("("):
                empty = ", ".join("0" for one in shape.strip("()").split(",") if one.strip())
                self.text.line(f"{name} = np.empty(({empty},), np.{dtype})")
            else:
                self.text.line(f"{name} = tape_{dtype}(meter, 0)")

    def record_root(self, keep: frozenset[str] | None) -> None:
        """The forward run, with everything recorded that the plan stores; with `keep`, only what computes these arrays."""
        self._record(self.program.root, keep, lambda part: self._take(part, early=True))
        self.checking = False

    def record(self, body: list[Statement], keep: frozenset[str] | None) -> None:
        """Runs statements and pushes what the plan stores."""
        self._record(body, keep, lambda _: None)

    def _record(self, body: list[Statement], keep: frozenset[str] | None, before: Callable[[int], None]) -> None:
        waiting: list[Statement] = []

        def run() -> None:
            self.plain(waiting, keep)
            waiting.clear()

        for place, statement in enumerate(body):
            pushes = any(one.body is body and one.first == place for one in self.stored.values())
            if pushes or not isinstance(statement, Map) or not statement.joins:
                run()
            before(place)
            self._pushes(body, place)
            if isinstance(statement, Map):
                waiting.append(statement)
            else:
                self._recorded(statement, keep)
        run()

    def _pushes(self, body: list[Statement], place: int) -> None:
        for number, one in self.stored.items():
            if one.body is body and one.first == place:
                self._push(number, one)

    def _holds(self, statement: Statement) -> bool:
        """Whether anything inside a statement is pushed."""
        return any(any(loop is statement for loop in one.loops) or self._body_inside(one.body, statement) for one in self.stored.values())

    def _body_inside(self, body: list[Statement], statement: Statement) -> bool:
        return any(part is body for one in inside(statement) for part in _parts(one))

    def _recorded(self, statement: Statement, keep: frozenset[str] | None) -> None:
        holds = not isinstance(statement, Map | Dot | ArgBest | Check) and self._holds(statement)
        if not holds and not self.keeps(statement, keep):
            return
        if isinstance(statement, Loop) and statement.serial in self.options:
            self._snapshots(statement, keep)
        elif isinstance(statement, Loop) and holds:
            with self.text.block(self.head(statement.range, self.in_place)):
                self.record(statement.body, keep)
        elif isinstance(statement, While):
            self._while(statement, keep, lambda: self.record(statement.body, keep))
            if statement.serial in self.live:
                # The passes are counted on a tape of their own.
                count, place = f"w_{statement.serial}", f"y_{statement.serial}"
                with self.text.block(f"if {place} == {count}.size:"):
                    self.text.line(f"{count} = grown({count}, {place} + 1, meter)")
                self.text.line(f"{count}[{place}] = v_{statement.trips}")
                self.text.line(f"{place} += 1")
        elif isinstance(statement, Branch) and holds:
            self._branch(statement, self.in_place, lambda part: self.record(part, keep))
        else:
            self.plain([statement], keep)

    def _snapshots(self, loop: Loop, keep: frozenset[str] | None) -> None:
        """A loop of which only the last passes are recorded; before, there are snapshots of its state and nothing else."""
        replay, option = self.options[loop.serial]
        count, z, last = self.fresh("c"), self.fresh("z"), self.fresh("z")
        for name in replay.inputs:
            self._save(loop, name, "r")
        self.text.line(f"r_{loop.serial} += 1")
        self.text.line(f"{count} = {self.count(loop.range, self.in_place)}")
        self.text.line(f"{last} = {self._last_chunk(count, option)}")
        for head, record in ((f"for {z} in range({last}):", False), (f"for {z} in range({last}, {count}):", True)):
            with self.text.block(head):
                self._pass(loop, z)
                with self.text.block(f"if {z} % {option.every} == 0:"):
                    for name in replay.state:
                        self._save(loop, name, "n")
                    self.text.line(f"n_{loop.serial} += 1")
                if record:
                    self.record(loop.body, keep)
                else:
                    self.plain(loop.body, keep)

    def _last_chunk(self, count: str, option: Option) -> str:
        """The first of the last passes of a loop that are on the tape at once."""
        begin = f"max(0, {count} - 1) // {option.every} * {option.every}"
        return f"{begin} + (max(0, {count} - 1) - {begin}) // {option.at_once} * {option.at_once}"

    def _pass(self, loop: Loop, z: str) -> None:
        """The loop variable of a pass, by its number."""
        low, step = self.affine(loop.range.low, self.in_place), loop.range.step
        self.text.line(f"i_{loop.range.name} = {low} + {z}{'' if step == 1 else f' * ({step})'}")

    def _save(self, loop: Loop, name: str, counter: str) -> None:
        place = f"{counter}_{loop.serial}"
        if self.arrays[name].shape:
            self.text.line(f"save(s_{loop.serial}_{name}, {place}, v_{name})")
        else:
            self.text.line(f"s_{loop.serial}_{name}[{place}] = v_{name}")

    def _restore(self, loop: Loop, names: Sequence[str], counter: str) -> None:
        place = f"{counter}_{loop.serial}"
        for name in names:
            if self.arrays[name].shape:
                self.text.line(f"restore(s_{loop.serial}_{name}, {place}, v_{name})")
            else:
                self.text.line(f"v_{name} = s_{loop.serial}_{name}[{place}]{' != 0' if self.arrays[name].kind == 'b' else ''}")

    def _length(self, candidate: Candidate) -> str:
        if not candidate.box:
            return "1"
        lengths = [high - low for low, high in candidate.box]
        return " * ".join(str(max(0, one.constant)) if one.fixed else f"max(0, {self.affine(one, self.in_place)})" for one in lengths)

    def _push(self, number: int, candidate: Candidate) -> None:
        if candidate.growing:
            with self.text.block(f"if p_{number} + {self._length(candidate)} > k_{number}.size:"):
                self.text.line(f"k_{number} = grown(k_{number}, p_{number} + {self._length(candidate)}, meter)")
        if not candidate.box:
            self.text.line(f"k_{number}[p_{number}] = v_{candidate.array.name}")
        else:
            ranges = tuple(Range(self.fresh("x"), low, high) for low, high in candidate.box)
            index = tuple(Affine(((one.name, 1),)) for one in ranges)
            with self.nest(ranges, self.in_place):
                self.text.line(f"{self._taped(candidate, index)} = {self.at(f'v_{candidate.array.name}', index, self.in_place)}")
        self.text.line(f"p_{number} += {self._length(candidate)}")

    def _taped(self, candidate: Candidate, index: Sequence[Affine], resolve: Resolve | None = None) -> str:
        """An element of a candidate on its tape."""
        resolve = resolve or self.in_place
        number = candidate.number
        said = f"p_{number}"
        for k, (one, (low, _)) in enumerate(zip(index, candidate.box)):
            strides = [f"({self.affine(high - low_, resolve)})" for low_, high in candidate.box[k + 1 :]]
            place = self.affine(one - low, resolve)
            said += f" + ({place})" + "".join(f" * {stride}" for stride in strides)
        return f"k_{number}[{said}]"

    def taped_operand(self, operand: Operand, number: int, resolve: Resolve) -> str:
        """An operand on a tape; the trailing dimensions are whole there, so it has no gaps."""
        candidate = self.stored[number]
        lengths = [f"({self.affine(high - low, resolve)})" for low, high in candidate.box]
        size = " * ".join(lengths)
        said = f"k_{number}[p_{number}:p_{number} + {size}].reshape({', '.join(lengths)})"
        prefix = [self.affine(one - low, resolve) for one, (low, _) in zip(operand.prefix, candidate.box)]
        return self.operand(operand, said, prefix, resolve) + (".T" if operand.transposed else "")


def _parts(statement: Statement) -> list[list[Statement]]:
    if isinstance(statement, Loop | While):
        return [statement.body]
    if isinstance(statement, Branch):
        return [statement.then, statement.otherwise]
    return []
