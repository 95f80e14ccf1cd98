"""Plans prefill and decode instances, their parallelism and their counts, for the highest rate that meets the bounds.

Every pair of layouts is scored by a bound for each phase, with the seconds of collectives on the path: prompts are an M/D/1 queue whose
wait and service must stay within the TTFT, and decoding is a batch whose iteration must stay within the TPOT. The best few are simulated
for a minute, and the one in which most requests per second meet their bounds is taken. DistServe plans like this for its own collectives;
here every technique gets the same planner with its own path.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from armillary.errors import InputError

from ..collectives.allreduce_time import SMALL_BYTES, Shape, best_share
from ..collectives.path import Path, uses
from ..collectives.wires import Wires
from ..simulation.serving_run import serve
from ..workload import ServingWork
from .phase_cost import MOST_SEQUENCES, MOST_TOKENS, PhaseCost, phase_cost
from .placement import Fleet, Plan, given, place, with_homes

TENSOR, PIPELINE = (1, 2, 4, 8, 16), (1, 2, 4)
#: The number of candidates that are simulated, and the simulated seconds of each.
BEST, SIMULATED_S = 10, 60.0


def planned_seconds(path: Path, wires: Wires, shape: Shape, nbytes: float, jobs: int = 1) -> float:
    """Returns the modelled seconds of one all-reduce when `jobs` groups share the switch."""
    if shape.ranks == 1 or nbytes == 0:
        return 0.0
    need = uses(path, shape, nbytes)
    if shape.servers == 1:
        return need.before_s
    share = min(wires.rate_of(wires.slots / jobs), wires.asic / (need.inputs * jobs)) if path.switched else 0.0
    if path.choice == "best" and nbytes < SMALL_BYTES:
        x = 1.0 if share > 0 and need.switch_s <= need.ring_s else 0.0
    elif path.choice == "best":
        x = best_share(need.ring, shape.nic, share)
    elif path.choice == "slots":
        x = min(1.0, wires.slots / jobs / wires.window)
    else:
        x = path.x
    rate = shape.nic / max(need.link(x), need.link(x, first=True))
    if x > 0:
        rate = min(rate, share / x)
    return need.before_s + need.latency_s(x) + nbytes / rate


@dataclass(frozen=True)
class Layout:
    """One way to run an instance, and the requests per second that one instance carries."""

    tp: int
    pp: int
    rate: float

    @property
    def devices(self) -> int:
        """Devices of one instance."""
        return self.tp * self.pp


def _shape(wires: Wires, tp: int) -> Shape | None:
    if tp <= wires.gpus:
        return wires.shape(1, tp)
    if tp % wires.gpus or tp // wires.gpus > wires.servers:
        return None
    return wires.shape(tp // wires.gpus)


def prefill_rate(work: ServingWork, cost: PhaseCost, path: Path | None, shape: Shape, pp: int, jobs: int) -> float:
    """Returns the requests per second whose prompts one instance carries with M/D/1 wait + service within the TTFT; 0 if none can.

    The service is D = T/pp for a batch of b prompts with all-reduces in T; the batch waits ρD/(2(1−ρ)) on average, so
    ρ = 2W/(D + 2W) with W = TTFT − T. Without a path only compute counts.
    """
    together = max(1, int(MOST_TOKENS // work.mean_prompt))
    tokens = together * work.mean_prompt
    pairs = together * work.mean_prompt * (work.mean_prompt + 1) / 2
    seconds = cost.prefill_s(int(tokens), pairs, together)
    if path is not None:
        seconds += cost.repeats * planned_seconds(path, work.wires, shape, tokens * cost.token_bytes, jobs)
    wait, service = work.slo.ttft_s - seconds, seconds / pp
    return 0.0 if wait <= 0 else 2 * wait / (service + 2 * wait) / service * together


def decode_rate(work: ServingWork, cost: PhaseCost, path: Path | None, shape: Shape, pp: int, jobs: int) -> float:
    """Returns the requests per second that one instance decodes with the largest batch within the TPOT and the memory for KV."""
    held = work.mean_prompt + work.mean_output
    most = min(MOST_SEQUENCES, int(cost.kv_tokens(pp) / held))

    def seconds(n: int) -> float:
        each = max(1, n // pp)
        found = cost.decode_s(each, int(each * (work.mean_prompt + work.mean_output / 2)))
        if path is not None:
            found += cost.repeats * planned_seconds(path, work.wires, shape, each * cost.token_bytes, jobs)
        return found

    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if seconds(middle) <= work.slo.tpot_s else (low, middle - 1)
    return low / (seconds(low) * max(1.0, work.mean_output - 1)) if low else 0.0


def _layouts(work: ServingWork, path: Path | None, jobs: int) -> tuple[list[Layout], list[Layout]]:
    """Returns every way to run a prefill and a decode instance that memory and bounds allow."""
    longest = int((work.prompt + work.output).max())
    found: tuple[list[Layout], list[Layout]] = ([], [])
    for tp in TENSOR:
        shape = _shape(work.wires, tp)
        if shape is None or tp > work.wires.servers * work.wires.gpus:
            continue
        try:
            cost = phase_cost(work.model, work.wires.device, tp)
        except InputError:
            continue  # The heads do not divide.
        for pp in PIPELINE:
            if cost.kv_tokens(pp) < longest or (cost.repeats // 2) % pp:
                continue
            for out, rate in zip(found, (prefill_rate, decode_rate), strict=True):
                each = rate(work, cost, path, shape, pp, jobs)
                if each > 0:
                    out.append(Layout(tp, pp, each))
    return found


def candidates(work: ServingWork, path: Path | None) -> Iterator[tuple[float, Fleet, Fleet]]:
    """Returns (requests per second, prefill, decode) of the best counts for every pair of layouts, best first."""
    devices = work.wires.servers * work.wires.gpus
    found = []
    by_jobs = {jobs: _layouts(work, path, jobs) for jobs in range(1, 2 + devices // max(2, 2 * work.wires.gpus) // work.wires.switches)}
    for p_at in range(len(by_jobs[1][0])):
        for d_at in range(len(by_jobs[1][1])):
            best: tuple[float, Fleet, Fleet] | None = None
            p, d = by_jobs[1][0][p_at], by_jobs[1][1][d_at]
            for count in range(1, devices // p.devices + 1):
                others = (devices - count * p.devices) // d.devices
                if others < 1:
                    break
                wide = count * p.pp * (p.tp > work.wires.gpus) + others * d.pp * (d.tp > work.wires.gpus)
                jobs = min(max(1, math.ceil(wide / work.wires.switches)), max(by_jobs))
                if p_at >= len(by_jobs[jobs][0]) or d_at >= len(by_jobs[jobs][1]):
                    continue
                rate = min(count * by_jobs[jobs][0][p_at].rate, others * by_jobs[jobs][1][d_at].rate)
                if best is None or rate > best[0]:
                    best = (rate, Fleet(p.tp, p.pp, count), Fleet(d.tp, d.pp, others))
            if best is not None:
                found.append(best)
    yield from sorted(found, key=lambda c: (-c[0], c[1].devices + c[2].devices, c[1].tp, c[1].pp, c[2].tp))


def expected_rate(work: ServingWork, path: Path | None) -> float:
    """Returns the requests per second of the best plan by score, or of the given placement; without a path all-reduces are free."""
    if work.placed is not None:
        return _score(work, path, *work.placed)
    best = next(candidates(work, path), None)
    if best is None:
        raise InputError(f"{work.model} does not fit on {work.wires.servers} x {work.wires.gpus} {work.wires.device} within its bounds")
    return best[0]


def compute_bound(work: ServingWork) -> float:
    """Returns the requests per second that compute alone would allow, which no technique can exceed."""
    return expected_rate(work, None)


def _score(work: ServingWork, path: Path | None, prefill: Fleet, decode: Fleet) -> float:
    rates = []
    wide = sum(f.count * f.pp for f in (prefill, decode) if f.tp > work.wires.gpus)
    jobs = max(1, math.ceil(wide / work.wires.switches))
    for fleet, rate in ((prefill, prefill_rate), (decode, decode_rate)):
        shape = _shape(work.wires, fleet.tp)
        if shape is None:
            raise InputError(
                f"TP {fleet.tp}: expected a part or a multiple of {work.wires.gpus} GPUs that {work.wires.servers} servers have"
            )
        rates.append(fleet.count * rate(work, phase_cost(work.model, work.wires.device, fleet.tp), path, shape, fleet.pp, jobs))
    return min(rates)


def plan_for(work: ServingWork, path: Path, *, aware: bool = False, best: int = BEST, seconds: float = SIMULATED_S) -> Plan:
    """Returns the plan that does best in simulation among the `best` by score, or the placement of the work.

    If `aware`, home switches follow the expected bytes, and slots are reserved for decoding.
    """
    if work.placed is not None:
        plan = replace(given(work.wires, *work.placed), score=_score(work, path, *work.placed))
        return _homed(work, plan) if aware else plan
    found: list[Plan] = []
    for score, prefill, decode in candidates(work, path):
        packed = place(work.wires, prefill, decode)
        if packed is not None:
            packed = replace(packed, score=score)
            found.append(_homed(work, packed) if aware else packed)
        if len(found) == best:
            break
    if not found:
        raise InputError(f"no plan for {work.model} meets {work.slo.ttft_s:g} s and {work.slo.tpot_s:g} s on these servers")
    if len(found) == 1:
        return found[0]
    rate = found[0].score
    most = max(8, min(len(work.arrival), math.ceil(rate * seconds)))
    arrival, prompt, output = work.at(rate, most)

    def goodput(plan: Plan) -> float:
        """Returns the requests per second that meet their bounds when more arrive than any candidate can carry."""
        served = serve(work.wires, plan, path, work.model, arrival, prompt, output, bursts=work.bursts, seed=work.seed)
        return served.attained(work.slo) * rate

    return max(found, key=lambda plan: (goodput(plan), plan.score))


def _homed(work: ServingWork, plan: Plan) -> Plan:
    """Assigns homes by expected bytes/s and reserves ⌈2·M_d/payload⌉ slots per decoding group, at most as many as fill its NIC."""
    cost = phase_cost(work.model, work.wires.device, 1)
    sent = []
    for part, tokens in ((plan.prefill, work.mean_prompt), (plan.decode, work.mean_output)):
        each = plan.score * tokens / len(part) * cost.token_bytes * cost.repeats
        sent += [each / one.pp for one in part for _ in one.stages]
    batch = min(MOST_SEQUENCES, max(1.0, plan.score * work.mean_output * work.slo.tpot_s / 2 / len(plan.decode)))
    reserved = min(math.ceil(2 * batch * cost.token_bytes / work.wires.payload), work.wires.window)
    return with_homes(work.wires, plan, sent, reserved)
