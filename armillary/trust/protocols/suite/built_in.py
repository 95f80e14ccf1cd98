"""The built-in protocols, and which of them each technique should accept: written down before the first run.

`SHOULD` names the kinds: "sound" has a mixed choice, "directed" has none, "broken" breaks the condition that begins its name. `token`
should accept six of the broken ones, because its encoding has neither tentative messages nor two first ones, so what is wrong there is
not wrong any more; `monitor` and `none` check nothing.
"""

from __future__ import annotations

import functools
from pathlib import Path

from ..language.protocol import Protocol, load

FOLDER = Path(__file__).parent
SOUND = (
    "request_timeout", "streaming_stop", "two_sided_close", "cancel_third_party", "heartbeat", "bounded_retries", "handoff", "subscription",
    "amqp_channel", "amqp_connection", "supervised_worker", "two_buyers_withdrawal", "nested_mixed", "ring_of_four",
)  # fmt: skip
DIRECTED = ("two_buyers", "ping_pong", "three_tier", "login", "pipeline", "delegated_transfer")
BROKEN = (
    "observer_same_label", "observer_right_by_other", "observer_left_to_other", "commitment_early_to_third", "commitment_ends_early",
    "commitment_loops_early", "awareness_one_side", "awareness_acts_unasked", "awareness_same_label_third", "awareness_overtaken",
    "staleness_no_ack", "staleness_same_ack", "staleness_ack_on_one_way", "merge_untold",
)  # fmt: skip
KINDS = {"sound": SOUND, "directed": DIRECTED, "broken": BROKEN}
#: What each technique should accept.
SHOULD: dict[str, frozenset[str]] = {
    "mixed": frozenset(SOUND + DIRECTED),
    "classic": frozenset(DIRECTED),
    "token": frozenset(
        (*SOUND, *DIRECTED, "observer_same_label", "commitment_ends_early", "staleness_no_ack", "staleness_same_ack",
         "staleness_ack_on_one_way", "commitment_loops_early")
    ),
    "explore": frozenset((*SOUND, *DIRECTED, "observer_same_label")),
    "monitor": frozenset(SOUND + DIRECTED + BROKEN),
    "none": frozenset(SOUND + DIRECTED + BROKEN),
}  # fmt: skip


def kind_of(name: str) -> str:
    """The kind of a built-in protocol."""
    return next(kind for kind, names in KINDS.items() if name in names)


@functools.cache
def built_in(name: str) -> Protocol:
    """A built-in protocol by name."""
    folder = FOLDER.parent / "amqp" if name.startswith("amqp_") else FOLDER / kind_of(name)
    return load(folder / f"{name}.mst")
