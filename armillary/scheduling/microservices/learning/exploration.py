"""Training data for the predictor: windows under quotas that walk randomly around the step rule, violated a third of the time."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from armillary.scheduling.microservices.application.application import Application
from armillary.scheduling.microservices.control.allocator import within
from armillary.scheduling.microservices.simulation.play import Simulation
from armillary.scheduling.microservices.simulation.window import Decision, Floats, Window
from armillary.scheduling.microservices.step_rule import StepRule
from armillary.scheduling.microservices.workload import training_work
from armillary.streams import stream

from .features import LEVELS, Floats32, Observed

#: Windows of an episode, and how far ahead the second label looks.
EPISODE, AHEAD = 300, 5
#: The share of violated windows that is aimed at, looked at over so many windows.
WANTED, LOOKED_AT = (0.2, 0.5), 20
#: Chance that a service gets a random level instead of the rule's.
RANDOM = 0.15


@dataclass(frozen=True, eq=False)
class Explored:
    """Histories [rows, services, windows, facts], proposals [rows, services, 3] and labels [rows, 2], in the order of time by episode."""

    history: Floats32
    proposed: Floats32
    labels: Floats32
    episode: np.ndarray

    @property
    def share(self) -> float:
        """The share of windows that were violated."""
        return float(self.labels[:, 0].mean())


def explored(app: Application, windows: int, seed: int = 0) -> Explored:
    """About so many windows of training loads, each with the quotas that were tried and what came of them."""
    parts = [_episode(app, seed, number) for number in range(-(-windows // EPISODE))]
    whole = [np.concatenate(arrays) for arrays in zip(*parts)]
    return Explored(*(array[:windows] for array in whole))


def _episode(app: Application, seed: int, number: int) -> tuple[np.ndarray, ...]:
    rng = stream(seed, "scheduling/microservices", "explore", str(number))
    work = training_work(app, seed, number, EPISODE)
    sim = Simulation(work, within(app.quotas * np.exp(rng.normal(0, 0.3, len(app.services)))))
    seen, rule = Observed(app), StepRule()
    walk, pressure = rng.normal(0, 0.4, len(app.services)), rng.uniform(0, 0.8)
    window = sim.step()
    histories, proposals, bad = [], [], [window.violated]
    for _ in range(EPISODE):
        seen.add(window)
        walk = 0.97 * walk + 0.12 * rng.standard_normal(len(walk))
        lately = float(np.mean(bad[-LOOKED_AT:]))
        pressure += 0.04 if lately < WANTED[0] else -0.08 if lately > WANTED[1] else 0.0
        quotas = _tried(rng, rule, window, np.exp(walk - pressure))
        histories.append(seen.history())
        proposals.append(seen.proposed(quotas))
        window = sim.step(Decision(quotas))
        bad.append(window.violated)
    after = np.array(bad[1:], np.float32)
    within_five = np.array([after[k : k + AHEAD].max() for k in range(len(after))], np.float32)
    return np.stack(histories), np.stack(proposals), np.stack([after, within_five], 1), np.full(len(after), number)


def _tried(rng: np.random.Generator, rule: StepRule, window: Window, biased: Floats) -> Floats:
    """The step rule, as if services were busier or less busy than they are, with some services at a random level."""
    factors = rule.factors(replace(window, used=window.used * biased))
    random = rng.random(len(biased)) < RANDOM
    factors = np.where(random, LEVELS[rng.integers(0, len(LEVELS), len(biased))], factors)
    return within(window.quotas * factors)
