"""A deterministic controller that follows Rudder's published instructions; it stands in for the language model and is none.

The instructions: replace if the hit rate is 0; replace if it fell, is low, or communication rises; do not if the last attempt found no
candidates, the last attempts changed nothing, the hit rate rises by itself, or training is nearly done. An estimate of ours comes on top:
what replacements brought lately must exceed what they fetched before the next decision can be made.
"""

from __future__ import annotations

from dataclasses import dataclass

from .loop import Decision, Effect, History, Static, Window

#: Attempts in a row that may change nothing before no further one is made.
STAGNANT_ATTEMPTS = 2
#: Percentage points and percent below which nothing changed.
LEAST_POINTS, LEAST_PERCENT = 1.0, 1.0
#: Points by which the hit rate must fall, and percent by which the share that is missed must rise, to be more than the noise of sampling.
FALLS_POINTS, RISES_PERCENT = 3.0, 5.0
#: The weight of an effect relative to that of the one after it.
FADING = 0.5


@dataclass(frozen=True)
class IclStandIn:
    """Decides by the published instructions and an online estimate."""

    #: The hit rate in percent below which it is low.
    low: float = 40.0
    #: The share of the minibatches that must remain.
    least_remaining: float = 0.05

    def decide(self, static: Static, window: Window, history: History) -> Decision:
        """Whether to replace; the rules are tried in the order of the instructions."""
        if static.minibatches and 0 <= window.remaining < self.least_remaining * static.minibatches:
            return _no("few minibatches remain")
        if window.hit_rate == 0:
            return _yes("the hit rate is 0")
        last = history[-1] if history else None
        if last is not None and last.kind == "skipped":
            return _no("the last attempt found no candidates")
        attempts = history[-STAGNANT_ATTEMPTS:]
        if len(attempts) == STAGNANT_ATTEMPTS and all(one.attempted and _stagnant(one) for one in attempts):
            return _no("the last attempts changed nothing")
        points = None if last is None else last.hit_rate_points
        if last is not None and not last.attempted and points is not None and points >= LEAST_POINTS:
            return _no("the hit rate rises without a replacement")
        wanted = self._wanted(window, last)
        if not wanted:
            return _no("the hit rate and communication are steady")
        saved = expected_saving(static, window, history)
        if saved is not None and saved <= 0:
            return _no(f"{wanted}, but replacements fetched more than they saved lately")
        return _yes(wanted)

    def _wanted(self, window: Window, last: Effect | None) -> str:
        if last is not None and last.hit_rate_points is not None and last.hit_rate_points <= -FALLS_POINTS:
            return "the hit rate fell"
        if window.hit_rate < self.low:
            return "the hit rate is low"
        if last is None or last.missed_before is None or last.missed_after is None:
            return ""
        # Communication relative to what was sampled, because no decision causes that.
        return "communication rises" if 100 * last.missed_after > (100 + RISES_PERCENT) * last.missed_before else ""


def expected_saving(static: Static, window: Window, history: History) -> float | None:
    """Vertices that a replacement saves before the next decision, less those that it fetches; None without an earlier replacement.

    The share that is missed changes by itself too, as much as after decisions that replaced nothing.
    """
    gain = cost = weight = 0.0
    drift = idle = 0.0
    factor = 1.0
    for effect in reversed(history):
        if effect.missed_before is not None and effect.missed_after is not None:
            fell = effect.missed_before - effect.missed_after
            if effect.kind == "replaced":
                gain, cost, weight = gain + factor * fell, cost + factor * effect.moved, weight + factor
            else:
                drift, idle = drift + factor * fell, idle + factor
        factor *= FADING
    if not weight:
        return None
    by_itself = drift / idle if idle else 0.0
    lasts = static.window if window.remaining < 0 else min(static.window, window.remaining)
    return (gain / weight - by_itself) * window.sampled * lasts - cost / weight


def _stagnant(effect: Effect) -> bool:
    """Whether neither the hit rate nor communication got better, as far as it is known."""
    if effect.kind == "skipped":
        return True
    if effect.hit_rate_points is None or effect.missed_before is None or effect.missed_after is None:
        return False
    fell = 100 * (effect.missed_before - effect.missed_after) / effect.missed_before if effect.missed_before else 0.0
    return effect.hit_rate_points < LEAST_POINTS and fell < LEAST_PERCENT


def _yes(reason: str) -> Decision:
    return Decision(True, {"hit_rate": "increase", "comm": "decrease"}, reason)


def _no(reason: str) -> Decision:
    return Decision(False, {"hit_rate": "stagnant", "comm": "stagnant"}, reason)
