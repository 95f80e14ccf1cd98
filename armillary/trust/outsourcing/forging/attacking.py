"""Tries forged answers on a client, and counts which ones it believes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import cycle
from typing import Literal

import numpy as np

from armillary.trust.outsourcing.delegation.session import Session
from armillary.trust.outsourcing.group.bases import Bases, Scalars
from armillary.trust.outsourcing.group.element import ENCODED_BYTES, Element
from armillary.trust.outsourcing.two_g2t import Cheated, Spent

from .forgeries import FORGERIES, Scene


@dataclass
class Attacked:
    """How often each forgery was tried, and how often it was believed."""

    tried: Counter[str] = field(default_factory=Counter)
    believed: Counter[str] = field(default_factory=Counter)
    #: Clients that were set up, because one had rejected as many answers as it may.
    clients: int = 1

    def rows(self) -> list[dict[str, object]]:
        """One row per forgery."""
        return [{"forgery": name, "tried": self.tried[name], "believed": self.believed[name]} for name in self.tried]


def attack(
    begin: Callable[[Bases], Session], bases: Bases, draw: Callable[[], Scalars], attacks: int, rng: np.random.Generator
) -> Attacked:
    """Every forgery in turn, as many as `attacks` in all; there is a new query for each round of all of them."""
    found = Attacked()
    session, stranger = begin(bases), begin(bases)
    names = cycle(FORGERIES)
    while found.tried.total() < attacks:
        x = draw()
        query = session.query(x)
        scene = scene_of(session, stranger, query, x, rng)
        for name, _ in zip(names, range(min(len(FORGERIES), attacks - found.tried.total()))):
            believed = _believed(session, query, scene, name)
            if believed == "spent":
                session, found.clients = begin(bases), found.clients + 1
                query = session.query(x)
                scene = scene_of(session, stranger, query, x, rng)
                believed = _believed(session, query, scene, name)
            found.tried[name] += believed != "right"
            found.believed[name] += believed == "yes"
    found.believed = +found.believed
    found.tried = +found.tried
    return found


def _believed(session: Session, query: object, scene: Scene, name: str) -> Literal["yes", "no", "spent", "right"]:
    """Whether the client believes a forgery; "right" if it is none, as for a query of nothing but zeros."""
    forged = FORGERIES[name](scene)
    if forged == b"".join(map(bytes, scene.right)):
        return "right"
    try:
        session.check(query, forged)
    except Cheated:
        return "no"
    except Spent:
        return "spent"
    return "yes"


def scene_of(session: Session, stranger: Session, query: object, x: Scalars, rng: np.random.Generator) -> Scene:
    """What the server of this exchange sees and can compute."""
    answer = session.ask(query)
    right = [Element.from_bytes(answer[at : at + ENCODED_BYTES]) for at in range(0, len(answer), ENCODED_BYTES)]
    other = stranger.ask(stranger.query(x))
    return Scene(right, x, lambda changed: session.ask(session.changed(query, changed)), other, rng)
