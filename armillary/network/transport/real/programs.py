"""The programs that really run: what a step computes, how many flops that is, and what moves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from armillary.errors import unknown
from armillary.network.transport.workload import Component, StreamSpec, VariableSpec, Workflow

Floats: TypeAlias = npt.NDArray[np.float64]
#: Variables, and flops per cell and step of the simulation and of the analysis.
PROGRAMS = {
    "grayscott": (("u", "v"), 30.0, 8.0),
    "pipeline": (("field",), 14.0, 14.0),
    "heat": (("t",), 9.0, 6.0),
    "plain": (("x",), 0.0, 0.0),
}
STEPS = 5


@dataclass
class State:
    """The fields of the simulation."""

    program: str
    fields: list[Floats]

    @classmethod
    def start(cls, program: str, size: int) -> State:
        """The first state, the same in every run."""
        if program not in PROGRAMS:
            raise unknown("program", program, PROGRAMS)
        fields = [np.ones((size,) * 3) * (0.5 + i) for i in range(len(PROGRAMS[program][0]))]
        for field in fields:
            field[size // 3 : size // 2, size // 3 : size // 2, size // 3 : size // 2] += 0.25
        return cls(program, fields)

    def step(self) -> None:
        """One step of the simulation."""
        if self.program == "grayscott":
            u, v = self.fields
            reaction = u * v * v
            self.fields = [
                u + 0.1 * (0.2 * laplacian(u) - reaction + 0.04 * (1.0 - u)), v + 0.1 * (0.1 * laplacian(v) + reaction - 0.1 * v)
            ]  # fmt: skip
        elif self.program == "pipeline":
            f = self.fields[0]
            self.fields = [f + 0.1 * (laplacian(f) - 0.1 * f * f + 0.05 * f)]
        elif self.program == "heat":
            self.fields = [self.fields[0] + 0.1 * laplacian(self.fields[0])]


def laplacian(a: Floats) -> Floats:
    """The seven-point Laplacian with fixed borders."""
    out = np.zeros_like(a)
    out[1:-1, 1:-1, 1:-1] = (
        a[2:, 1:-1, 1:-1] + a[:-2, 1:-1, 1:-1] + a[1:-1, 2:, 1:-1] + a[1:-1, :-2, 1:-1] + a[1:-1, 1:-1, 2:] + a[1:-1, 1:-1, :-2]
        - 6.0 * a[1:-1, 1:-1, 1:-1]
    )  # fmt: skip
    return out


def analyse(program: str, fields: list[Floats]) -> float:
    """What the analysis makes of one step."""
    if program == "grayscott":
        u, v = fields
        return float(((u - u.mean()) ** 2).mean() + ((v - v.mean()) ** 2).mean())
    if program == "pipeline":
        smooth = fields[0] + 0.1 * laplacian(fields[0])
        image = smooth.max(axis=0) - smooth.min(axis=0)
        return float((image * image).sum())
    if program == "heat":
        t = fields[0]
        return float(((t - t.mean()) ** 2).mean() + t.max())
    return float(fields[0].flat[0])


def workflow_of(program: str, size: int, steps: int = STEPS, reader_factor: float = 1.0) -> Workflow:
    """The same program for the simulation; `reader_factor` is what a flop of the analysis costs in those of the simulation."""
    names, giving, taking = PROGRAMS[program]
    cells = float(size**3)
    parts = (Component("simulation", 1, "", giving * cells), Component("analysis", 1, "", reader_factor * taking * cells))
    variables = tuple(VariableSpec(name, (size,) * 3) for name in names)
    return Workflow(program, parts, (StreamSpec("data", "simulation", "analysis", variables),), steps, program)
