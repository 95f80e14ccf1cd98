"""Kernels at random: loops, branches, slices, in-place updates and names that are bound again, with values that stay small."""

from __future__ import annotations

import random

#: Elements per axis.
N = 6


class Kernel:
    """Writes one kernel `f(x, y, A, s)` that returns `x`."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.lines: list[str] = []
        self.loops: list[str] = []
        self.vectors = ["x", "y"]
        self.scalars = ["s"]

    def text(self) -> str:
        """The whole function."""
        self.line("def f(x, y, A, s):", 0)
        self.body(1, self.random.randint(2, 4))
        self.line("x += 0.1 * y + 0.01 * np.sum(A, axis=0)", 1)
        self.line("x *= 1.0 + 0.1 * s", 1)
        self.line("return x", 1)
        return "import numpy as np\n\n\n" + "\n".join(self.lines) + "\n"

    def line(self, text: str, depth: int) -> None:
        self.lines.append("    " * depth + text)

    def body(self, depth: int, count: int) -> None:
        for _ in range(count):
            kind = self.random.random()
            if kind < 0.3 and len(self.loops) < 2 and depth < 4:
                self.loop(depth)
            elif kind < 0.4 and depth < 4:
                self.branch(depth)
            else:
                self.assignment(depth)

    def loop(self, depth: int) -> None:
        name = "ij"[len(self.loops)]
        ranges = ["range(1, 5)", "range(4, 0, -1)", "range(1, 4)"]
        if self.loops:
            ranges += [f"range(1, {self.loops[0]} + 1)", f"range({self.loops[0]}, 5)"]
        self.line(f"for {name} in {self.random.choice(ranges)}:", depth)
        self.loops.append(name)
        known = list(self.vectors), list(self.scalars)
        self.body(depth + 1, self.random.randint(1, 3))
        self.vectors, self.scalars = known
        self.loops.pop()

    def branch(self, depth: int) -> None:
        tests = [f"{self.scalar()} > 0.3"] + [f"{one} > 2" for one in self.loops]
        self.line(f"if {self.random.choice(tests)}:", depth)
        known = list(self.vectors), list(self.scalars)
        self.body(depth + 1, 1)
        if self.random.random() < 0.5:
            self.vectors, self.scalars = list(known[0]), list(known[1])
            self.line("else:", depth)
            self.body(depth + 1, 1)
        self.vectors, self.scalars = known

    def at(self) -> str:
        """An index that is inside."""
        if self.loops and self.random.random() < 0.8:
            return self.random.choice(self.loops) + self.random.choice(["", "", " - 1", " + 1"])
        return self.random.choice(["0", "2", "-1"])

    def vector_name(self) -> str:
        return self.random.choice(self.vectors)

    def scalar(self) -> str:
        choices = [f"{self.vector_name()}[{self.at()}]", f"A[{self.at()}, {self.at()}]", self.random.choice(self.scalars)]
        if self.random.random() < 0.3:
            choices += [f"0.2 * np.sum({self.vector_name()})", f"0.2 * np.dot({self.vector_name()}, {self.vector_name()})"]
            choices += [f"np.max({self.vector_name()})"]
            if self.loops:
                choices.append(f"0.2 * ({self.vector_name()}[:{self.loops[-1]}] @ {self.vector_name()}[:{self.loops[-1]}])")
        return self.random.choice(choices)

    def whole(self) -> str:
        choices = [
            self.vector_name(),
            f"np.flip({self.vector_name()})",
            f"A[{self.at()}, :]",
            f"A[:, {self.at()}]",
            f"0.2 * A @ {self.vector_name()}",
        ]
        choices += [f"0.2 * np.sum(A, axis={self.random.randint(0, 1)})", f"A[{self.at()}]"]
        return self.random.choice(choices)

    def inner(self) -> str:
        name = self.vector_name()
        choices = [f"{name}[1:-1]", f"{name}[:-2]", f"{name}[2:]", f"A[{self.at()}, 1:-1]", f"A[2:, {self.at()}]"]
        return self.random.choice(choices)

    def combined(self, part) -> str:
        # Never a plain read: NumPy 2.4 copies a row into a column that crosses it without a copy in between.
        a, b = part(), part()
        return self.random.choice([
            f"0.4 * {a} * {b}", f"0.5 * ({a}) + 0.3 * ({b})", f"np.sin({a}) * 0.7", f"({a}) / (2.0 + ({b}) * ({b}))", f"0.3 * ({a}) * ({a}) - 0.2 * ({b})",
            f"np.sqrt(1.0 + ({a}) * ({a}))", f"1.0 * ({a})", f"np.exp(-({a}) * ({a}))",
        ])  # fmt: skip

    def assignment(self, depth: int) -> None:
        kind = self.random.random()
        sign = self.random.choice(["=", "=", "+=", "-=", "*="])
        if kind < 0.35:
            target = self.random.choice([f"{self.random.choice('xy')}[{self.at()}]", f"A[{self.at()}, {self.at()}]"])
            self.line(f"{target} {sign} {self.combined(self.scalar)}", depth)
        elif kind < 0.55:
            target = self.random.choice(["x[:]", "y[:]", f"A[{self.at()}, :]", f"A[:, {self.at()}]"])
            self.line(f"{target} {sign} {self.combined(self.whole)}", depth)
        elif kind < 0.75:
            target = self.random.choice(["x[1:-1]", "y[:-2]", "x[2:]", f"A[{self.at()}, 1:-1]", f"A[:-2, {self.at()}]"])
            self.line(f"{target} {sign} {self.combined(self.inner)}", depth)
        elif kind < 0.85:
            self.line(f"s = {self.combined(self.scalar)}", depth)
        elif kind < 0.95:
            name = f"v{self.random.randint(0, 1)}"
            value = self.combined(self.whole)
            self.line(f"{name} = ({value}) * 1.0", depth)
            if name not in self.vectors:
                self.vectors.append(name)
        else:
            self.line(f"A[:, :] {sign} 0.5 * A * A.T + 0.1", depth)
