"""Renders the subset of Helm's template language that our charts use, so that a chart can be rendered without Helm.

The subset is `{{ .Values.a.b }}`, `{{ .name }}`, `{{ "text" }}`, pipes to `quote`, `default`, `toYaml` and `nindent`, and
`{{- if }}`, `{{- range }}` and `{{- end }}`.
"""

from __future__ import annotations

import json
import re
from typing import Any

from armillary.errors import InputError, one_line

_ACTION = re.compile(r"\{\{(-?)\s*(.*?)\s*(-?)\}\}", re.DOTALL)
_WORD = re.compile(r'"(?:[^"\\]|\\.)*"|\S+')


def render(text: str, values: dict[str, Any]) -> str:
    """Returns the text with its actions carried out on `values`."""
    pieces: list[tuple[str, str]] = []  # ("text" or "action", content)
    at, trim = 0, False
    for found in _ACTION.finditer(text):
        before = text[at : found.start()]
        before = before.lstrip() if trim else before
        pieces.append(("text", before.rstrip() if found[1] else before))
        pieces.append(("action", found[2]))
        at, trim = found.end(), bool(found[3])
    rest = text[at:]
    pieces.append(("text", rest.lstrip() if trim else rest))
    out, end = _block(pieces, 0, {"Values": values})
    if end != len(pieces):
        raise InputError("found an {{ end }} that closes no block")
    return out


def _block(pieces: list[tuple[str, str]], at: int, dot: Any) -> tuple[str, int]:
    """Returns the text from piece `at` to the `end` that closes the block, or to the last piece, and the index of that piece."""
    out: list[str] = []
    while at < len(pieces):
        kind, content = pieces[at]
        if kind == "text":
            out.append(content)
        elif content == "end":
            return "".join(out), at
        elif content.startswith(("if ", "range ")):
            word, _, expression = content.partition(" ")
            value = _pipe(expression, dot)
            many = ([dot] if value else []) if word == "if" else list(value or [])
            _, end = _block(pieces, at + 1, {} if not many and word == "range" else dot if word == "if" else many[0])
            out += [_block(pieces, at + 1, one)[0] for one in many]
            if end >= len(pieces):
                raise InputError(f"{{{{ {one_line(content, 60)} }}}} has no end")
            at = end
        else:
            out.append(_shown(_pipe(content, dot)))
        at += 1
    return "".join(out), at


def _pipe(expression: str, dot: Any) -> Any:
    value: Any = None
    for i, stage in enumerate(expression.split(" | ")):
        parts = _WORD.findall(stage.strip())
        if i == 0 and len(parts) == 1:
            value = _operand(parts[0], dot)
            continue
        if i == 0:
            parts.append("")  # a function with its operand in place: toYaml .Values.x
            value = _operand(parts[1], dot)
            parts = [parts[0]]
        name, given = parts[0], parts[1:]
        if name == "quote":
            value = _quoted(_shown(value))
        elif name == "default" and given:
            value = value if value not in (None, "", 0, False, [], {}) else _operand(given[0], dot)
        elif name == "toYaml":
            from ..description.yaml_files import yaml

            value = yaml().safe_dump(value, sort_keys=True, default_flow_style=False, width=10_000, allow_unicode=True).rstrip("\n")
            value = value.removesuffix("\n...")
        elif name == "nindent" and given and given[0].isdigit():
            value = "\n" + "\n".join(" " * int(given[0]) + line for line in str(value).split("\n"))
        else:
            raise InputError(f"template: {one_line(expression, 80)!r} is not in the subset that charts of armillary use")
    return value


def _quoted(text: str) -> str:
    """Returns the text quoted as Go does, with unprintable characters escaped."""
    known = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}
    out = []
    for c in text:
        code = ord(c)
        plain = c.isprintable() and c != "\ufeff"
        out.append(
            known.get(c) or (c if plain else f"\\x{code:02x}" if code < 0x80 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}")
        )
    return f'"{"".join(out)}"'


def _operand(word: str, dot: Any) -> Any:
    if word.startswith('"'):
        return json.loads(word)
    if word == ".":
        return dot
    if not re.fullmatch(r"(\.\w+)+", word):
        raise InputError(f"template: {one_line(word, 80)!r} is not in the subset that charts of armillary use")
    value = dot
    for key in word[1:].split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _shown(value: Any) -> str:
    if value is None:
        return ""
    return ("true" if value else "false") if isinstance(value, bool) else str(value)
