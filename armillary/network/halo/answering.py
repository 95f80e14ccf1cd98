"""The answer in words."""

from __future__ import annotations

from armillary.arena import Result
from armillary.wording import listed

#: Strategies that differ by less than this share count as equal.
EQUAL = 0.05


def exchanges(result: Result) -> str:
    """Which strategy is the fastest on each measured case, and by how much over the loop by hand."""
    if "exchange_ratio" not in result.metrics:
        return ""
    ranked = {case: found for case in result.cases if (found := result.on(case, "exchange_ratio"))}
    if not ranked:
        return ""
    said = []
    for case, found in list(ranked.items())[:3]:
        first = next(iter(found))
        equal = [name for name in found if found[name] <= (1 + EQUAL) * found[first]]
        names = listed(equal[:2]) if len(equal) <= 2 else f"{first} and {len(equal) - 1} others within 5 %"
        said.append(f"on {case} {names} ({found[first]:.2f} times the loop by hand)")
    rest = f" {len(ranked) - 3} more cases are in the table." if len(ranked) > 3 else ""
    return f"The fastest exchange is {'; '.join(said)}.{rest}"


def protocols(result: Result) -> str:
    """What dynamic protocols bring over the static one of libraries on the simulated cases."""
    if "exchange_time_sim" not in result.metrics or not {"dynamic-protocol", "static-protocol"} <= set(result.techniques):
        return ""
    dynamic, static = result.medians("dynamic-protocol", "exchange_time_sim"), result.medians("static-protocol", "exchange_time_sim")
    gains = {case: 100 * (1 - dynamic[case] / static[case]) for case in dynamic if case in static}
    if not gains:
        return ""
    best, worst = max(gains, key=gains.__getitem__), min(gains, key=gains.__getitem__)
    if max(gains.values()) < 3:
        return (
            f"On virtual ranks, choosing protocols at run time changes an exchange by {gains[worst]:+.1f} to {gains[best]:+.1f} % "
            "(positive is quicker), which is not worth it here: the NIC is busy all the time, whatever the protocol."
        )
    said = f"On virtual ranks, choosing protocols at run time shortens an exchange by up to {gains[best]:.1f} % ({best})"
    return f"{said}; on {worst} it is {-gains[worst]:.1f} % longer." if gains[worst] < -0.5 else f"{said}."


def accesses(result: Result) -> str:
    """What Python costs per exchange by rung, and which rung steps fastest on simulated GPUs."""
    parts = []
    if "host_overhead" in result.metrics:
        cases = [case for case in result.cases if len(result.on(case, "host_overhead")) > 1]
        for case in cases[:1]:
            found = result.on(case, "host_overhead")
            first, last = next(iter(found)), list(found)[-1]
            parts.append(
                f"From Python, {first} costs the host {found[first]:.1f} us per exchange of {case}, and {last} {found[last]:.0f} us."
            )
    if "step_time_sim" in result.metrics:
        said = []
        for case in [case for case in result.cases if len(result.on(case, "step_time_sim")) > 1][:2]:
            found = result.on(case, "step_time_sim")
            names = list(found)
            said.append(f"on {case} {names[0]} steps in {found[names[0]]:.0f} us and {names[1]} in {found[names[1]]:.0f} us")
        if said:
            parts.append(f"On simulated GPUs, {'; '.join(said)}.")
    return " ".join(parts)
