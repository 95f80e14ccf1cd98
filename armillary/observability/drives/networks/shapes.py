"""The shapes of a network's weights, which follow from its settings; stored ones are compared with them."""

from __future__ import annotations


def shapes(kind: str, inputs: int, width: int, heads: int) -> dict[str, tuple[int, ...]]:
    """Name and shape of every array of a network, as `parts.made(...).state_dict()` has them."""
    if kind == "gru-attention":
        found = _gates("gru", 3, inputs, width) | _linear("attend", width, width) | {"query": (width,)}
        return found | _top(2 * width, width)
    if kind == "cnn-lstm":
        return _linear("taps", 3 * inputs, width) | _gates("lstm", 4, width, width) | _top(width, width)
    found = _top(width, width)
    if kind != "xlstm":
        found |= _gates("lstm", 4, inputs, width)
    if kind != "lstm":
        found |= _xlstm(inputs, width, heads)
    if kind == "both":
        found |= _linear("gate", 2 * width, width)
    return found


def _xlstm(inputs: int, width: int, heads: int) -> dict[str, tuple[int, ...]]:
    inner, per = 2 * width, width // heads
    found = _linear("xlstm.embed", inputs, width) | _linear("xlstm.up", width, 4 * width) | _linear("xlstm.down", inner, width)
    found |= _linear("xlstm.ffn1", width, inner) | _linear("xlstm.ffn2", inner, width)
    for i in (1, 2, 3):
        found |= {f"xlstm.norm{i}.weight": (width,), f"xlstm.norm{i}.bias": (width,)}
    found |= {
        "xlstm.mlstm.qkv": (3 * inner, inner), "xlstm.mlstm.output": (inner, inner), "xlstm.mlstm.gates": (2 * heads, inner),
        "xlstm.mlstm.gate_bias": (2 * heads,), "xlstm.slstm.weight": (4 * width, width), "xlstm.slstm.recurrent": (4, heads, per, per),
        "xlstm.slstm.bias": (4 * width,),
    }  # fmt: skip
    return found | _linear("xlstm.mlstm.head", inner, 1) | _linear("xlstm.slstm.head", width, 1)


def _gates(name: str, gates: int, inputs: int, width: int) -> dict[str, tuple[int, ...]]:
    rows = gates * width
    found: dict[str, tuple[int, ...]] = {f"{name}.encoder.weight_ih_l0": (rows, inputs), f"{name}.encoder.weight_hh_l0": (rows, width)}
    for end in ("ih", "hh"):
        found[f"{name}.encoder.bias_{end}_l0"] = (rows,)
    return found | _linear(f"{name}.head", width, 1)


def _top(inputs: int, width: int) -> dict[str, tuple[int, ...]]:
    return _linear("top.encoder.0", inputs, width) | _linear("top.head", width, 1)


def _linear(name: str, inputs: int, outputs: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (outputs, inputs), f"{name}.bias": (outputs,)}
