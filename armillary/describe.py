"""What an arena or a technique is, as data and as text: for `armillary show` and for the catalogue pages of the documentation."""

from __future__ import annotations

import inspect
import sys
from dataclasses import replace
from typing import Any

from armillary import catalogue
from armillary.arena import Arena, parameters
from armillary.claim import Claim
from armillary.parameters import Parameter, option_name


def technique(home: Arena, name: str) -> dict[str, Any]:
    """A technique: what it does, the paper, its claims, its parameters, how to use it."""
    found, made = home.technique(name), home.make(name)
    paper = catalogue.papers().get(home.papers.get(name, ""))
    module = inspect.getdoc(sys.modules[found.__module__]) or ""
    return {
        "name": name,
        "arena": home.path,
        "about": module if len(module) > len(inspect.getdoc(found) or "") else inspect.getdoc(found) or "",
        "paper": None if paper is None else {"title": paper.title, "source": paper.source, "authors": paper.authors},
        "oracle": found.oracle,
        "takes": sorted(found.takes),
        "claims": [_claim(claim) for claim in home.claims_of(name)],
        "parameters": [_parameter(replace(p, default=getattr(made, p.name)), p.name) for p in parameters(found).values()],
        "import": f"from {home.package if found.__module__.startswith(home.package) else found.__module__} import {found.__name__}",
        "compare": f"armillary compare {home.path} --techniques {','.join(dict.fromkeys([home.baseline or name, name]))}",
    }


def arena(home: Arena) -> dict[str, Any]:
    """An arena: its question, metrics, techniques, cases and what it reads."""
    return {
        "arena": home.path,
        "question": home.question,
        "metrics": [{"name": m.name, "unit": m.unit, "better": m.better, "kind": m.kind, "about": m.doc} for m in home.metrics.values()],
        "techniques": [_listed(home, name) for name in home.techniques],
        "cases": [case.name for case in home.built_in("small")] if home._cases is not None else [],
        "reads": "" if home._reading is None else inspect.getdoc(home._reading.read) or "",
        "options": [_parameter(p, option_name(p.name)) for p in home.options().values()],
        "constants": [{"name": c.name, "value": c.value, "unit": c.unit, "source": c.source} for c in home.constants],
    }


def text(facts: dict[str, Any]) -> str:
    """Either of the above as a person reads it."""
    return _technique_text(facts) if "name" in facts else _arena_text(facts)


def _technique_text(facts: dict[str, Any]) -> str:
    lines = [f"{facts['arena']}/{facts['name']}", "", facts["about"], ""]
    if facts["paper"]:
        lines += [f"Paper: {facts['paper']['title']}. {facts['paper']['source']}. {facts['paper']['authors']}.", ""]
    if facts["oracle"]:
        lines += ["It sees the future: a bound, not a competitor.", ""]
    if facts["claims"]:
        lines += ["Claims:", *(f"  {i}. {c['says'] or c['figure']}\n     {c['judged']}" for i, c in enumerate(facts["claims"], 1)), ""]
    if facts["parameters"]:
        lines += ["Parameters:", *map(_parameter_text, facts["parameters"]), ""]
    lines += ["Use it:", f"  {facts['compare']}"]
    if facts["claims"]:
        lines.append(f"  armillary reproduce {facts['name']}")
    return "\n".join([*lines, f"  {facts['import']}"])


def _arena_text(facts: dict[str, Any]) -> str:
    lines = [facts["arena"], "", facts["question"], "", "Metrics:"]
    for m in facts["metrics"]:
        unit = f" [{m['unit']}]" if m["unit"] else ""
        lines.append(f"  {m['name']}{unit}  {m['kind']}, {m['better'] or 'neither'} is better. {m['about']}")
    lines += ["", "Techniques:", *map(_listed_text, facts["techniques"])]
    lines += ["", f"Cases: {', '.join(facts['cases'])}"]
    return "\n".join([*lines, *_reader_text(facts)])


def _listed(home: Arena, name: str) -> dict[str, Any]:
    """A technique in a line: what it does, and the paper if it is a published system."""
    about = inspect.getdoc(home.technique(name)) or ""
    paper = catalogue.papers()[home.papers[name]].title if name in home.papers else None
    return {"name": name, "about": " ".join(about.partition("\n\n")[0].split()), "paper": paper, "variant": home.variant(name)}


def _listed_text(t: dict[str, Any]) -> str:
    variant = f" ({', '.join(f'{k}={v}' for k, v in t['variant'].items())})" if t["variant"] else ""
    return f"  {t['name']}{variant}  {t['about']}" + (f" Paper: {t['paper']}." if t["paper"] else "")


def reader_options(home: Arena) -> list[str]:
    """What an arena reads and with which options, as lines of text; nothing where it reads no files."""
    return _reader_text(arena(home))


def _reader_text(facts: dict[str, Any]) -> list[str]:
    if not facts["reads"]:
        return []
    return ["", f"Your own file, --work FILE: {facts['reads']}", *map(_parameter_text, facts["options"])]


def _parameter(p: Parameter, name: str) -> dict[str, Any]:
    return {"name": name, "type": p.type_name, "default": p.default, "about": p.doc, "legal": p.legal}


def _parameter_text(p: dict[str, Any]) -> str:
    legal = f"; {p['legal']}" if p["legal"] else ""
    return f"  {p['name']} = {p['default']!r}  {p['about']} ({p['type']}{legal})"


def _claim(claim: Claim) -> dict[str, Any]:
    over = f" over {' or '.join(claim.baselines)}" if claim.baselines else ""
    bound = "" if claim.honest is None else f"; counts as held from {claim.honest[0]}"
    part = "" if claim.part is None else f", in part from {claim.part}"
    on = " or ".join(str(kind) for kind in claim.kinds)
    judged = f"{claim.metric}{over}: {'up to ' if claim.aggregate == 'max' else ''}{claim.by}, on {on}{bound}{part}"
    return {"says": claim.says, "figure": f"{claim.metric} {claim.by}", "judged": judged, "why": claim.why, "source": claim.source}
