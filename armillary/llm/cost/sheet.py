"""A model's cost sheet: its parameters, its memory and its seconds on a device, as facts and as text."""

from __future__ import annotations

from typing import Any

from armillary.llm.cost.counts import flops, kv_bytes_per_token, kv_share
from armillary.llm.cost.device import Chip
from armillary.llm.cost.memory import fits
from armillary.llm.cost.plan import Plan
from armillary.llm.cost.step_cost import StepCost
from armillary.llm.model.shapes import PARTS, Model

#: The numbers of sequences that decode together, and the lengths of prompts, for which the sheet gives seconds.
BATCHES = (1, 8, 64, 256)
PROMPTS = (512, 2048, 8192)


def sheet(model: Model, device: Chip, *, tp: int = 1, pp: int = 1, context: int = 2048) -> dict[str, Any]:
    """Exact counts, and modelled bytes and seconds, of a model on tp · pp devices; each decode reads `context` tokens."""
    cost = StepCost.build(model, device, tp=tp, pp=pp)
    report = fits(model, Plan(tp=tp, pp=pp), device)
    each = kv_bytes_per_token(model)
    token = each * kv_share(model, tp) / pp
    return {
        "model": model.name,
        "family": model.family,
        "layers": [{"layers": n, "attention": kind.attention, "window": kind.window, "mlp": kind.mlp} for kind, n in model.runs()],
        "hidden": model.hidden,
        "heads": model.heads,
        "kv_heads": model.kv_heads,
        "vocabulary": model.vocab,
        "dtype": model.dtype if model.quantised is None else f"{model.quantised.method}, {model.quantised.bits} bits",
        "parameters": model.params(),
        "active_parameters": model.params(active=True),
        "parameters_by_part": {part: model.params_by(part) for part in PARTS},
        "weight_bytes": model.weight_bytes(),
        "kv_bytes_per_token": each,
        "forward_flops_per_token": flops(model, [(1, 0)]).matmul,
        "device": device.name,
        "devices": tp * pp,
        "memory_bytes": device.memory,
        "fits": report.fits,
        "kv_tokens": max(0, int(report.free / 1.04 / token)),
        "context": context,
        "decode_s": {str(b): cost.decode(b, b * context) for b in BATCHES},
        "prefill_s": {str(n): cost.prefill(n, n * (n + 1) // 2) for n in PROMPTS},
        "kind": "modelled",
        "calibration": cost.calibration,
    }


def text(facts: dict[str, Any]) -> str:
    """The sheet as text for a person."""
    runs = ", ".join(
        f"{run['layers']} {run['mlp']}" + (f" (window {run['window']:,})" if run["window"] else "") for run in _merged(facts["layers"])
    )
    parts = ", ".join(f"{part} {count:,}" for part, count in facts["parameters_by_part"].items() if count)
    active = facts["active_parameters"]
    token = f"{facts['forward_flops_per_token'] / 1e9:,.2f} GFLOP"
    lines = [
        f"{facts['model']} ({facts['family']}): {facts['parameters']:,} parameters, {active:,} active, {facts['dtype']}",
        f"  layers     {runs}; hidden {facts['hidden']:,}, {facts['heads']} heads, {facts['kv_heads']} of keys and values",
        f"  parameters {parts}",
        f"  weights    {_bytes(facts['weight_bytes'])}; KV {facts['kv_bytes_per_token']:,} B per token; {token} per token",
        f"on {facts['devices']} × {facts['device']} ({_bytes(facts['memory_bytes'])}{' each' if facts['devices'] > 1 else ''}), modelled",
    ]
    room = f"fits; room for {facts['kv_tokens']:,} tokens of KV" if facts["fits"] else "does not fit"
    lines.append(f"  memory     {room} (1 GiB workspace, 4 % fragmentation)")
    decode = "   ".join(f"{b}: {s * 1e3:.2f} ms, {int(b) / s:,.0f} tokens/s" for b, s in facts["decode_s"].items())
    lines.append(f"  decode     {decode}   (sequences of {facts['context']:,} tokens)")
    lines.append("  prefill    " + "   ".join(f"{n}: {s * 1e3:.1f} ms" for n, s in facts["prefill_s"].items()) + "   (tokens)")
    lines.append(f"  rests on   {facts['calibration']}")
    return "\n".join(lines)


def _merged(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Counts runs of one kind together, so that alternating layers take one line."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for run in runs:
        key = (run["mlp"], run["window"])
        found[key] = {**run, "layers": run["layers"] + found.get(key, {"layers": 0})["layers"]}
    return list(found.values())


def _bytes(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:,.0f} PB"
