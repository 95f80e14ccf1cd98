"""Random protocols, drawn so that a fair share of them is sound and the others are nearly so."""

from __future__ import annotations

import random

ROLES = ("A", "B", "C", "D")


class Draw:
    """One protocol text per instance of `random.Random`."""

    def __init__(self, rng: random.Random, most: int = 14) -> None:
        self.rng = rng
        self.left = most
        self.names = 0

    def protocol(self) -> str:
        roles = ROLES[: self.rng.choice((2, 3, 3, 4))]
        return f"protocol P({', '.join(f'role {r}' for r in roles)}) {{ {self.block(roles, (), 0, set())} }}"

    def label(self) -> str:
        if self.names and self.rng.random() < 0.12:
            return f"m{self.rng.randrange(self.names)}"
        self.names += 1
        return f"m{self.names - 1}"

    def message(self, a: str, b: str) -> str:
        self.left -= 1
        return f"{self.label()}() from {a} to {b}; "

    def block(self, roles: tuple[str, ...], loops: tuple[str, ...], depth: int, knows: set[str]) -> str:
        """Messages among roles that know where they are (all, outside of mixed choices), then an end."""
        rng, text = self.rng, ""
        for _ in range(rng.choice((0, 1, 1, 2))):
            a = rng.choice(sorted(knows)) if knows and rng.random() < 0.9 else rng.choice(roles)
            b = rng.choice([r for r in roles if r != a])
            text += self.message(a, b)
            if knows:
                knows = knows | {b}
        last = rng.random()
        if depth > 3 or self.left <= 0 or last < 0.25:
            if loops and rng.random() < 0.6:
                return text + f"continue {rng.choice(loops)}; "
            return text
        if last < 0.4 and not text.endswith("} "):
            name = f"X{depth}{rng.randrange(99)}"
            inner = self.block(roles, (*loops, name), depth + 1, knows)
            return (
                text
                + f"rec {name} {{ {self.message(*rng.sample(roles, 2)) if rng.random() < 0.4 or inner.startswith('continue') else ''}{inner} }} "
            )
        if last < 0.55:
            a, b = rng.sample(roles, 2)
            if knows and rng.random() < 0.8:
                a = rng.choice(sorted(knows))
                b = rng.choice([r for r in roles if r != a])
            blocks = [self.message(a, b) + self.told(roles, a, b, knows) + self.block(roles, loops, depth + 1, knows) for _ in range(2)]
            return text + f"choice at {a} {{ {blocks[0]} }} or {{ {blocks[1]} }} "
        return text + self.mixed(roles, loops, depth)

    def told(self, roles: tuple[str, ...], a: str, b: str, knows: set[str]) -> str:
        others = [r for r in roles if r not in (a, b)]
        return "".join(self.message(self.rng.choice((a, b)), r) for r in others) if self.rng.random() < 0.8 else ""

    def mixed(self, roles: tuple[str, ...], loops: tuple[str, ...], depth: int) -> str:
        rng = self.rng
        p, o = rng.sample(roles, 2)
        others = [r for r in roles if r not in (p, o)]
        if rng.random() < 0.3:
            others = others[:-1]
        left = self.message(p, o)
        if rng.random() < 0.3:
            left += self.message(p, o)
        left += self.message(o, p) if rng.random() < 0.8 else ""
        right = self.message(o, p) + (self.message(p, o) if rng.random() < 0.85 else "")
        for r in others:
            left += self.message(rng.choice((o, o, p)), r)
            right += self.message(rng.choice((o, o, p)), r)
        here = set(roles) if len(others) == len(roles) - 2 else {p, o, *others}
        inside = tuple(sorted(here)) if rng.random() < 0.8 else roles
        left += self.block(inside, loops, depth + 1, here)
        right += self.block(inside, loops, depth + 1, here)
        return f"mixed ({p} |> {o}) {{ left {{ {left} }} right {{ {right} }} }} "


def random_protocol(seed: int, most: int = 14) -> str:
    """The text of one protocol."""
    return Draw(random.Random(seed), most).protocol()
