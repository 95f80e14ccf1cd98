"""My verifier spends its time on multi-scalar multiplications over fixed points: can an untrusted server do them for it?"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armillary.arena import Arena, Artifact, Case, Constant, Metric, Outcome, Result, parameter
from armillary.wording import listed

if TYPE_CHECKING:
    import numpy as np

    from .forging.attacking import Attacked
    from .planning.calculator import Costs
    from .workload import Sums

SUMS = frozenset({"sums"})
#: A server that is asked over a network, as the second break-even takes it.
SERVER_CORES, ROUND_TRIP_S, BYTES_PER_S = 16, 0.001, 125e6
#: What the sum here may cost per term in `speedup`: a slow sum of ours must not flatter the check.
MOST_LOCAL_S = 6e-6

outsourcing = Arena(
    "trust/outsourcing",
    question="Can an untrusted server compute my multi-scalar multiplications, and can I check its answer much faster than computing it?",
    metrics=[
        Metric("verify_s", "s", kind="measured", on=SUMS, doc="CPU of the client from the answer's bytes to the checked sum"),
        Metric("verify_after_s", "s", kind="measured", on=SUMS, doc="the same if all that needs no answer was computed before it came"),
        Metric("inner_s", "s", kind="measured", on=SUMS, doc="the part of verify_s that looks at every scalar"),
        Metric("speedup", better="higher", kind="measured", on=SUMS, doc="the fastest sum here, at most 6 µs per term, over verify_s"),
        Metric("local_s", "s", kind="measured", on=SUMS, doc="CPU of the plain sum here, timed in the same unit"),
        Metric("local_us_a_term", "µs", kind="measured", on=SUMS, doc="that per term"),
        Metric("server_s", "s", kind="measured", on=SUMS, doc="CPU of the server for one answer; 0 where nobody is asked"),
        Metric("server_over_local", kind="measured", on=SUMS, doc="server_s over local_s"),
        Metric("setup_s", "s", kind="measured", on=SUMS, doc="CPU of the client, once per bases"),
        Metric(
            "after_over_multiplication", kind="measured", on=SUMS, doc="verify_after_s over one multiplication of an element by a secret"
        ),
        Metric("response_bytes", "B", kind="measured", steady=True, on=SUMS, doc="of one answer"),
        Metric("state_bytes", "B", kind="measured", steady=True, on=SUMS, doc="that the client keeps between queries"),
        Metric(
            "break_even", "queries", kind="modelled", clocked=True, unbounded=True, on=SUMS,
            doc="from which on the client's CPU, setup included, is less than that of the sums here; inf if never",
        ),
        Metric(
            "break_even_network", "queries", kind="modelled", clocked=True, unbounded=True, on=SUMS,
            doc="the same for the time until the sum is there, with a server of 16 such cores, 1 ms away over 1 Gbit/s",
        ),
        Metric(
            "false_accepts", kind="measured", steady=True, scale="difference", on=frozenset({"attacks"}),
            doc="forged answers that were believed",
        ),
        Metric(
            "toy_accepts", kind="simulated", scale="difference", on=frozenset({"toy"}),
            doc="believed share of the best forger's answers on a group of 101 elements, times 101",
        ),
    ],
    techniques={
        "2g2t": ".two_g2t:TwoG2T",
        "2g2t-prf": ".two_g2t_prf:TwoG2TPrf",
        "local": ".local:Local",
        "local-fixed": ".local_fixed:LocalFixed",
        "local-naive": ".local_naive:LocalNaive",
        "recheck": ".recheck:Recheck",
        "none": ".none:Unchecked",
    },
    papers={"2g2t": "2g2t"},
    baseline="local",
    tradeoff=("verify_s", "state_bytes"),
    repeats=3,
    telling=("uniform/256", "uniform/2048", "uniform/16384", "sparse/2048", "bits/2048", "attacks/1000", "toy/1"),
    constants=[
        Constant("cap of the local sum", 6.0, "µs per term", "the specification's, so that a slow sum here cannot flatter the check"),
        Constant("server", SERVER_CORES, "cores of this machine's speed", "of the break-even over a network (chosen)"),
        Constant("network", "1 ms, 1 Gbit/s", "", "round trip and bandwidth of the same, with the scalars sent (chosen)"),
    ],
)  # fmt: skip

SIZES = tuple(1 << k for k in range(8, 19))
EASY = ("small", "sparse", "bits")
EASY_SIZES = (2048, 16384)
DRAWS = (1, 2, 3, 4)
#: Attacks of the short case and of each long draw, the number of terms in them, and keys of the toy group.
ATTACKS = {"tiny": (48, 48), "small": (1000, 8400), "large": (10_000, 84_000)}
KEYS = {"tiny": 2000, "small": 50_000, "large": 500_000}
ATTACKED_TERMS, TOY_TERMS = 64, 4
TINY = {"uniform/256", "sparse/2048", "attacks/1000", "toy/1"}


@outsourcing.cases
def cases(scale: str) -> Iterator[Case]:
    """Sums of 2^8 to 2^18 uniform scalars and of easier ones, forged answers, and keys of a group of 101 elements."""
    return (case for case in _every(scale) if scale != "tiny" or case.name in TINY)


def _every(scale: str) -> Iterator[Case]:
    for n in SIZES:
        kinds = {"sums", "uniform"} | ({"growing"} if n <= 1 << 14 else set()) | ({"long"} if n >= 1 << 10 else set())
        yield Case(f"uniform/{n}", _sums, {"terms": n, "scalars": "uniform"}, frozenset(kinds))
    for kind in EASY:
        for n in EASY_SIZES:
            yield Case(f"{kind}/{n}", _sums, {"terms": n, "scalars": kind}, frozenset({"sums", "easy"}))
    few, many = ATTACKS[scale]
    facts = {"terms": ATTACKED_TERMS, "scalars": "uniform"}
    yield Case("attacks/1000", _attacked, {**facts, "attacks": few, "draw": 0}, frozenset({"attacks"}))
    for draw in DRAWS:
        yield Case(f"attacks/draw-{draw}", _attacked, {**facts, "attacks": many, "draw": draw}, frozenset({"attacks"}))
        yield Case(f"toy/{draw}", _toy, {"terms": TOY_TERMS, "keys": KEYS[scale], "draw": draw}, frozenset({"toy"}))


@dataclass(frozen=True)
class Reading:
    """What is summed over the user's bases."""

    scalars: str = parameter("", "a file of scalars: 32 bytes each, little-endian, below q; raw, JSON or CSV as the bases", file=True)
    kind: str = parameter("uniform", "scalars that are drawn where no file is given", choices=("uniform", *EASY))


@outsourcing.read(Reading)
def read(path: Path, how: Reading) -> Any:
    """Reads bases: concatenated ristretto255 encodings of 32 bytes (`.r255`), or JSON or CSV of hexadecimal ones."""
    from .workload import read as read_work

    return read_work(path, how.scalars, how.kind)


@outsourcing.own_cases
def own_cases(loaded: Any, name: str, how: Reading) -> Iterator[Case]:
    """One query over the user's bases."""
    yield Case(name, _own, {"terms": len(loaded[0]), "scalars": how.kind}, frozenset({"sums", "file"}))


@outsourcing.example
def example(folder: Path) -> tuple[Path, dict[str, str]]:
    """Writes 64 bases and as many scalars."""
    import numpy as np

    from .group.bases import Bases
    from .workload import scalars_of

    Bases.from_label("example", 64).save(folder / "bases.r255")
    x = scalars_of("uniform", 64, np.random.Generator(np.random.PCG64DXSM(1)))
    (folder / "scalars.bin").write_bytes(x.astype("<u8").tobytes())
    return folder / "bases.r255", {"scalars": str(folder / "scalars.bin")}


@outsourcing.warm_up
def warm_up(technique: Any, case: Case) -> None:
    """Compiles the loops."""
    import numpy as np

    from .workload import labelled

    if "toy" not in case.kinds:
        work = labelled(64, "uniform", np.random.Generator(np.random.PCG64DXSM(0)))
        _costs(technique, work, *_stored(work))


@outsourcing.run
def run(technique: Any, case: Case) -> Outcome:
    """Times a query, tries forged answers, or counts on the toy group."""
    if "toy" in case.kinds:
        p = case.parameters
        share = technique.toy_share(p["keys"], p["terms"], case.stream("keys"))
        return Outcome({"toy_accepts": share * _toy_order()})
    if "attacks" in case.kinds:
        found = _attacks(technique, case)
        return Outcome({"false_accepts": float(found.believed.total())}, [Artifact.table("forgeries", found.rows())])
    return _timed(technique, case)


def _attacks(technique: Any, case: Case) -> Attacked:
    from .forging.attacking import attack
    from .workload import scalars_of

    p, rng = case.parameters, case.stream("forger")
    bases = case.workload.bases
    return attack(technique.begin, bases, lambda: scalars_of(p["scalars"], len(bases), rng), p["attacks"], rng)


def _toy_order() -> int:
    from .forging.toy import ORDER

    return ORDER


def _timed(technique: Any, case: Case) -> Outcome:
    work: Sums = case.workload
    fixed, fixed_setup = case.once(_copies)
    costs, took, sizes = _costs(technique, work, fixed, fixed_setup)
    from .planning.calculator import Network, choose

    n = len(work.bases)
    choice = choose(n, costs, Network(ROUND_TRIP_S, BYTES_PER_S), server_cores=SERVER_CORES)
    fastest = min(took["local"], took.get("fixed", math.inf), n * MOST_LOCAL_S)
    values = {
        "verify_s": took["check"], "verify_after_s": took["after"], "inner_s": took["inner"], "speedup": fastest / took["check"],
        "local_s": took["local"], "local_us_a_term": 1e6 * took["local"] / n, "server_s": took["server"],
        "server_over_local": took["server"] / took["local"], "setup_s": costs.setup_s,
        "after_over_multiplication": took["after"] / took["multiplication"], "break_even": choice.queries_of_work,
        "break_even_network": choice.queries_of_time if took["server"] else math.inf, **sizes,
    }  # fmt: skip
    rows = [{"what": name, "cpu_s": seconds} for name, seconds in {**took, "setup": costs.setup_s, "fixed setup": fixed_setup}.items()]
    return Outcome(values, [Artifact.table("seconds", rows)])


def _costs(technique: Any, work: Sums, fixed: Any, fixed_setup: float) -> tuple[Costs, dict[str, float], dict[str, float]]:
    """Sets up, asks and checks one query, which must give the right sum; then times every part of it and the sums here in turns."""
    from .group.element import Element
    from .measuring import in_turns, once
    from .planning.calculator import Costs
    from .summing.msm import msm
    from .two_g2t import drawn_multiplier

    session, setup = once(lambda: technique.begin(work.bases))
    query = session.query(work.x)
    answer = session.ask(query)
    one, k, right = Element.generator(), drawn_multiplier(), msm(work.bases, work.x)
    works = {"local": lambda: msm(work.bases, work.x), "check": lambda: session.check(query, answer), "multiplication": lambda: one * k}
    found = [session.check(query, answer)]
    if fixed is not None:
        works["fixed"] = lambda: fixed.msm(work.x)
        found.append(fixed.msm(work.x))
    if answer:
        prepared = session.prepare(query)
        works |= {"server": lambda: session.ask(query), "after": lambda: prepared(answer), "inner": lambda: session.read_scalars(query)}
        found.append(prepared(answer))
    if any(one != right for one in found):
        raise RuntimeError("two ways to compute one sum do not agree")
    took = in_turns(works)
    # Who asks nobody has nothing to prepare, and all of its work looks at the scalars.
    took = {"server": 0.0, "after": took["check"], "inner": took["check"], **took}
    costs = Costs(took["local"], took.get("fixed", math.inf), fixed_setup, took["server"], setup, took["check"])
    return costs, took, {"response_bytes": float(len(answer)), "state_bytes": float(session.state_bytes)}


def _copies(case: Case) -> Any:
    return _stored(case.workload)


def _stored(work: Sums) -> tuple[Any, float]:
    """(bases with stored copies, CPU seconds of their setup); (None, 0) where there are too many bases."""
    from .local_fixed import MOST_STORED
    from .measuring import once
    from .summing.msm import FixedBases

    return once(lambda: FixedBases(work.bases)) if len(work.bases) <= MOST_STORED else (None, 0.0)


@outsourcing.answer
def answer(result: Result) -> str:
    """Says how much faster a check is than the sum, when the setup is earned back, and what was believed."""
    own = [case for case, facts in result.cases.items() if "file" in facts["kinds"]]
    said: list[str] = []
    for case in own:
        said += _own_answer(result, case)
    if not own and {"speedup", "verify_s"} <= set(result.metrics) and "2g2t" in result.techniques:
        faster = result.medians("2g2t", "speedup")
        if faster:
            least, most = min(faster, key=lambda case: faster[case]), max(faster, key=lambda case: faster[case])
            said.append(
                f"Checking an answer with 2g2t takes {_ratio(faster[least])} than the fastest sum here for {least}"
                f" and {_ratio(faster[most])} for {most}."
            )
    if "false_accepts" in result.metrics:
        said += _believed(result)
    return " ".join(said) or "Ask for speedup and verify_s, or for false_accepts, to get an answer."


def _own_answer(result: Result, case: str) -> Iterator[str]:
    """One file: times, and from which query on it pays."""
    wanted = ("verify_s", "speedup", "break_even", "break_even_network")
    if "2g2t" not in result.techniques or not set(wanted) <= set(result.metrics):
        return
    found = [result.medians("2g2t", metric).get(case) for metric in wanted]
    check, faster, work, time = found
    if check is None or faster is None:
        return
    yield f"For {case}, checking an answer with 2g2t takes {1e3 * check:.3g} ms, {_ratio(faster)} than the fastest sum here;"
    yield f"its setup is earned back {_after(work)} in CPU time of the client"
    yield f"and {_after(time)} in waiting, if the server has {SERVER_CORES} such cores and is 1 ms away."


def _after(queries: float | None) -> str:
    return "never" if queries is None or math.isinf(queries) else f"after {queries:,.0f} queries"


def _ratio(ratio: float) -> str:
    return f"{ratio:.3g} times less" if ratio >= 1 else f"{1 / ratio:.3g} times more"


def _believed(result: Result) -> Iterator[str]:
    tried = {case: facts["parameters"]["attacks"] for case, facts in result.cases.items() if "attacks" in facts["kinds"]}
    clean: list[str] = []
    loose: list[tuple[str, float]] = []
    for name in result.techniques:
        found = result.medians(name, "false_accepts")
        if found:
            share = sum(found.values()) / sum(tried[case] for case in found)
            if share:
                loose.append((name, share))
            else:
                clean.append(name)
    total = sum(tried.values())
    if clean or loose:
        yield f"Of {total:,} forged answers {listed(clean) or 'no technique'} believed none."
    if loose:
        yield f"Believed were {listed([f'{100 * share:.2g} % by {name}' for name, share in loose])}."


@outsourcing.plots
def plots(result: Result) -> Sequence[Any]:
    """Speed-up and CPU time of a check by the number of terms."""

    def sizes(case: str, facts: Any) -> tuple[str, float] | None:
        return ("uniform scalars", float(facts["parameters"]["terms"])) if "uniform" in facts["kinds"] else None

    drawn: list[Any] = []
    for metric, title in (("speedup", "Speed-up over the fastest sum here"), ("verify_s", "CPU seconds to a checked sum")):
        if metric in result.metrics:
            drawn += result.panels(f"{title} by terms", metric, sizes, x="terms", log_x=True, log_y=True, least_points=2)
    return drawn


def _sums(case: Case, rng: np.random.Generator) -> Sums:
    from .workload import labelled

    return labelled(case.parameters["terms"], case.parameters["scalars"], rng)


_attacked = _sums


def _toy(case: Case, rng: np.random.Generator) -> None:
    return None


def _own(case: Case, rng: np.random.Generator) -> Sums:
    from .workload import Sums, scalars_of

    bases, x = case.loaded
    return Sums(bases, scalars_of(case.parameters["scalars"], len(bases), rng) if x is None else x)
