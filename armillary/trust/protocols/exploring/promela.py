"""The same system for SPIN: Promela text, and a run of SPIN on it where it is installed.

Queues are arrays, so that a guard can look at the head. Every message carries its instances, counted modulo 16; what has become stale is
marked so at once. An assertion fails where a message can never be received, or is taken for another one; a role that waits for ever is an
invalid end state.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from ..checking.machine import Machines, Step
from ..language.protocol import LEFT, Side
from .system import System

#: Instances are counted modulo this, and a stale message has this one.
MODULUS, GONE = 16, 255


@dataclass(frozen=True)
class SpinFound:
    """What SPIN said: errors, states, and whether it looked at everything."""

    errors: int
    states: int
    complete: bool


def lacking() -> str:
    """What is missing to run SPIN here, or ""."""
    if shutil.which("spin") is None:
        return "SPIN is not installed (Debian: apt-get install spin)"
    return "" if shutil.which("gcc") else "SPIN needs a C compiler (Debian: apt-get install gcc)"


def promela(system: Machines, bound: int = 2) -> str:
    """The system as Promela, with queues of `bound` messages."""
    return _Model(system, bound).text()


class _Model:
    def __init__(self, machines: Machines, bound: int) -> None:
        self.machines = machines
        self.system = System(machines, bound)
        self.bound = bound
        self.mixes = self.system.mixes
        self.width = 1 + len(self.mixes)
        #: Numbers of (label, path), from 1.
        self.kinds: dict[tuple[str, tuple[Side, ...]], int] = {}
        for machine in machines.machines:
            for state in machine.states:
                for step in state.steps:
                    self.kinds.setdefault((step.label, step.path), len(self.kinds) + 1)

    def text(self) -> str:
        lines = [f"/* {self.machines.name}: queues of {self.bound}, {'with' if self.machines.tags else 'without'} tags */"]
        for a, b in self.system.pairs:
            lines.append(f"byte len_{a}_{b}; byte q_{a}_{b}[{self.bound * self.width}];")
        for role in range(len(self.system.roles)):
            lines += self.role(role)
        return "\n".join(lines) + "\n"

    def role(self, role: int) -> list[str]:
        machine = self.machines.machines[role]
        lines = [f"active proctype {machine.role}() {{"]
        lines += [f"  byte c{slot}; byte s{slot};" for slot in range(len(self.mixes))]
        for number, state in enumerate(machine.states):
            end = "end_" if not state.steps else ""
            lines += [f"{end}S{number}:", "  if"]
            options = [line for step in state.sends for line in self.send(role, step)]
            for place, sender in self.system.inbound[role]:
                options += self.hear(role, number, sender)
                del place
            lines += options or ["  :: false -> skip"]
            lines.append("  fi;")
        return [*lines, "}"]

    def update(self, role: int, step: Step) -> str:
        """The assignments of a step, then the marks of what has become stale."""
        done = []
        for k, _ in step.path:
            if k in step.fresh:
                done.append(f"c{self.system.slot[k]} = (c{self.system.slot[k]} + 1) % {MODULUS}")
                for inner in self.system.within[k]:
                    done += [f"c{self.system.slot[inner]} = 0", f"s{self.system.slot[inner]} = 0"]
        for k, side in step.decides:
            done.append(f"s{self.system.slot[k]} = {0 if side is None else 1 if side == LEFT else 2}")
        return "; ".join(done)

    def marks(self, role: int) -> str:
        if not self.mixes:
            return ""
        parts = []
        for _, sender in self.system.inbound[role]:
            queue = f"q_{sender}_{role}"
            for at in range(self.bound):
                base = at * self.width
                for (label, path), kind in self.kinds.items():
                    del label
                    if path and kind in self.sent(sender, role):
                        gone = "; ".join(f"{queue}[{base + 1 + self.system.slot[k]}] = {GONE}" for k, _ in path)
                        test = f"{queue}[{base}] == {kind} && {self.stale(queue, base, path)}"
                        parts.append(f"if :: (len_{sender}_{role} > {at} && {test}) -> {gone} :: else fi")
        return "; ".join(parts)

    def sent(self, sender: int, receiver: int) -> set[int]:
        """The kinds of message on a queue."""
        peer = self.system.roles[receiver]
        states = self.machines.machines[sender].states
        return {self.kinds[s.label, s.path] for state in states for s in state.steps if s.send and s.peer == peer}

    def stale(self, queue: str, base: int, path: tuple[Side, ...]) -> str:
        if not path:
            return "false"
        (k, side), rest = path[0], path[1:]
        slot = self.system.slot[k]
        n, c, s = f"{queue}[{base + 1 + slot}]", f"c{slot}", f"s{slot}"
        old = f"({n} == {GONE} || ({n} != {c} && ({c} + {MODULUS} - {n}) % {MODULUS} < {MODULUS // 2}))"
        other = f"({n} == {c} && {s} != 0 && {s} != {1 if side == LEFT else 2})"
        return f"({old} || {other} || ({n} == {c} && {self.stale(queue, base, rest)}))"

    def fits(self, queue: str, step: Step, path: tuple[Side, ...]) -> str:
        if step.path != path:
            return "false"
        tests: list[str] = []
        begun: set[int] = set()
        for k, _ in path:
            slot = self.system.slot[k]
            now = "0" if self.system.around[k] & begun else f"c{slot}"
            due = f"(({now} + 1) % {MODULUS})" if k in step.fresh else now
            tests.append(f"{queue}[{1 + slot}] == {due}")
            if k in step.fresh:
                begun.add(k)
        return "(" + (" && ".join(tests) or "true") + ")"

    def send(self, role: int, step: Step) -> list[str]:
        to = self.system.number[step.peer]
        length, queue = f"len_{role}_{to}", f"q_{role}_{to}"
        carried = [f"{queue}[{length} * {self.width}] = {self.kinds[step.label, step.path]}"]
        carried += [f"{queue}[{length} * {self.width} + {1 + slot}] = 0" for slot in range(len(self.mixes))]
        carried += [f"{queue}[{length} * {self.width} + {1 + self.system.slot[k]}] = c{self.system.slot[k]}" for k, _ in step.path]
        body = "; ".join(filter(None, [self.update(role, step), *carried, f"{length}++", self.marks(role)]))
        return [f"  :: d_step {{ ({length} < {self.bound}) -> {body} }} -> goto {self.label(role, step.target)}"]

    def label(self, role: int, state: int) -> str:
        return f"end_S{state}" if not self.machines.machines[role].states[state].steps else f"S{state}"

    def hear(self, role: int, number: int, sender: int) -> list[str]:
        state = self.machines.machines[role].states[number]
        peer, queue, length = self.system.roles[sender], f"q_{sender}_{role}", f"len_{sender}_{role}"
        size = self.bound * self.width
        moved = [f"{queue}[{i}] = {queue}[{i + self.width}]" for i in range(size - self.width)]
        shift = "; ".join([f"{length}--", *moved, *(f"{queue}[{i}] = 0" for i in range(size - self.width, size))])
        lines = []
        for (label, path), kind in self.kinds.items():
            if kind not in self.sent(sender, role):
                continue
            head = f"{length} > 0 && {queue}[0] == {kind}"
            stale = self.stale(queue, 0, path)
            here = self.label(role, number)
            steps = [step for step in state.receives if (step.peer, step.label) == (peer, label)]
            waits = self.system.later[role].has(number, (peer, label))
            if self.machines.tags:
                lines.append(f"  :: d_step {{ ({head} && {stale}) -> {shift} }} -> goto {here}")
                fit = [self.fits(queue, step, path) for step in steps]
                for step, test in zip(steps, fit):
                    body = "; ".join(filter(None, [shift, self.update(role, step), self.marks(role)]))
                    lines.append(f"  :: d_step {{ ({head} && !{stale} && {test}) -> {body} }} -> goto {self.label(role, step.target)}")
                if not waits:
                    lines.append(f"  :: ({head} && !{stale}) -> assert(false)")
            elif steps:
                for step in steps:
                    body = "; ".join(filter(None, [shift, self.update(role, step), self.marks(role)]))
                    to = self.label(role, step.target)
                    lines.append(f"  :: d_step {{ ({head} && {self.fits(queue, step, path)}) -> {body} }} -> goto {to}")
                    lines.append(f"  :: ({head} && !{self.fits(queue, step, path)}) -> assert(false)")
            elif (peer, label) in state.discards:
                lines.append(f"  :: d_step {{ ({head} && {stale}) -> {shift} }} -> goto {here}")
                lines.append(f"  :: ({head} && !{stale}) -> assert(false)")
            elif not waits:
                lines.append(f"  :: ({head}) -> assert(false)")
        return lines


def spin(system: Machines, bound: int = 2, *, timeout_s: float = 120.0, depth: int = 1_000_000) -> SpinFound:
    """What SPIN finds: invalid end states and failed assertions."""
    with tempfile.TemporaryDirectory(prefix="armillary-spin-") as name:
        folder = Path(name)
        (folder / "model.pml").write_text(promela(system, bound))
        for command in (
            ["spin", "-a", "model.pml"],
            ["gcc", "-O0", "-DSAFETY", "-DNOREDUCE", "-DVECTORSZ=65536", "-w", "-o", "pan", "pan.c"],
        ):
            run = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=timeout_s)
            if run.returncode or not (folder / "pan.c").exists():
                raise RuntimeError(f"{command[0]} refused the model: {(run.stdout + run.stderr)[-400:]}")
        said = subprocess.run(["./pan", f"-m{depth}"], cwd=folder, capture_output=True, text=True, timeout=timeout_s).stdout
    errors, states = re.search(r"errors: (\d+)", said), re.search(r"(\d+) states, stored", said)
    if errors is None or states is None:
        raise RuntimeError(f"SPIN's verifier said something else: {said[-400:]}")
    return SpinFound(int(errors.group(1)), int(states.group(1)), "max search depth too small" not in said)
