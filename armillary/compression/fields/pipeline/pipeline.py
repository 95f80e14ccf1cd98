"""Pipelines are made of stages: from a list, as a graph, from TOML or from a string.

    Pipeline([Range(), Lorenzo(), Histogram(), Huffman()])
    Pipeline().add(Range()).add(Lorenzo(), after="range").add(Bitshuffle(), after="lorenzo", port="codes")
    Pipeline.from_string("range -> lorenzo(radius=512) -> histogram -> huffman -> zstd(3)")
    Pipeline.from_toml('[[stage]]\ntype = "range"\n[[stage]]\ntype = "lorenzo"\ninput = "range"\nradius = 256')

A stage's inputs come from where it is told (`after`, `port`; `input = "node.port"` in TOML), else from the nearest stage before it that
has an output of that name. A pipeline is checked when it is built.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from armillary.errors import InputError, unknown

from ..stages.stage import KINDS, Context, Port, Stage, make, stage_class

#: Where the array itself comes from.
SOURCE = "in"
_DATA = Port("data", "float")

NAMED = {
    "default": "range -> lorenzo -> histogram -> huffman",
    "quality": "range -> interp(radius=2048, tune=True) -> topk-histogram(centre=2048) -> huffman -> zstd",
    "speed": "range -> lorenzo -> bitshuffle -> zero-blocks",
    "fz-fused": "range -> fz-fused",
    "cuszp-fused": "range -> cuszp-fused",
    "particles": "range -> none -> delta -> histogram -> huffman",
}


@dataclass(frozen=True)
class Node:
    """A stage in a pipeline, with its name there and the source of each of its inputs: port to (node, port)."""

    name: str
    stage: Stage
    sources: Mapping[str, tuple[str, str]]


class Pipeline:
    """Stages in an order in which each finds its inputs; `forward` gives sections, and `inverse` restores the array."""

    def __init__(self, stages: Iterable[Stage] = ()) -> None:
        self.nodes: list[Node] = []
        for stage in stages:
            self.add(stage)

    def add(self, stage: Stage, *, after: str | Sequence[str] | None = None, port: str | None = None, name: str | None = None) -> Pipeline:
        """Adds a stage after the stage named `after` (behind its output `port` where there are several); returns the pipeline itself."""
        if not isinstance(stage, Stage):
            raise InputError(f"pipeline: found {type(stage).__name__}; expected a Stage")
        stage.check()
        known = [node.name for node in self.nodes]
        if name is None:
            same = sum(node.stage.name == stage.name for node in self.nodes)
            name = stage.name if not same else f"{stage.name}#{same + 1}"
        if name in (*known, SOURCE):
            raise InputError(f'pipeline: stage "{name}" is there already')
        if self.nodes and self.nodes[-1].stage.every_port and not stage.every_port:
            raise InputError(f'pipeline: stage "{name}" comes after "{known[-1]}", which takes every section; expected it last')
        refs = [] if after is None else [after] if isinstance(after, str) else list(after)
        if port is not None:
            refs = [f"{refs[0] if refs else (known[-1] if known else SOURCE)}.{port}", *refs[1:]]
        self.nodes.append(Node(name, stage, self._wired(name, stage, refs)))
        return self

    def _wired(self, name: str, stage: Stage, refs: Sequence[str]) -> dict[str, tuple[str, str]]:
        outputs = {SOURCE: {"data": _DATA}, **{n.name: {p.name: p for p in n.stage.outputs} for n in self.nodes}}
        sources: dict[str, tuple[str, str]] = {}
        for ref in refs:
            node, _, port = ref.partition(".") if ref not in outputs else (ref, "", "")
            if node not in outputs:
                raise unknown("stage", node, outputs, where=f"pipeline: input of {name}")
            if port:
                if port not in outputs[node]:
                    raise unknown("port", port, outputs[node], where=f"pipeline: input of {name} from {node}")
                open_ports = [p for p in stage.inputs if p.name not in sources]
                target = next((p for p in open_ports if p.name == port), open_ports[0] if open_ports else None)
                if target is None:
                    raise InputError(f"pipeline: {name} has no input left for {ref}")
                sources[target.name] = (node, port)
            else:
                for p in stage.inputs:
                    if p.name in outputs[node]:
                        sources.setdefault(p.name, (node, p.name))
        for wanted in stage.inputs:
            if wanted.name not in sources:
                found = next((node for node in reversed(outputs) if wanted.name in outputs[node]), None)
                if found is None:
                    raise InputError(f'pipeline: stage "{name}" needs {wanted.name}; no stage before it gives one')
                sources[wanted.name] = (found, wanted.name)
            node, port = sources[wanted.name]
            given = outputs[node][port]
            if not set(KINDS[given.kind]) & set(KINDS[wanted.kind]):
                raise InputError(f"pipeline: {node}.{port} is {given.kind}; {name} expects {wanted.kind} as {wanted.name}")
        return sources

    @classmethod
    def named(cls, name: str) -> Pipeline:
        """Returns one of the named pipelines: default, quality, speed and the fused rivals."""
        if name not in NAMED:
            raise unknown("pipeline", name, NAMED)
        return cls.from_string(NAMED[name])

    @classmethod
    def of(cls, pipeline: Pipeline | str, mode: str = "abs") -> Pipeline:
        """Returns a pipeline from what a person gives: itself, a name, or a string of stages; for pw_rel a named one takes `log` first."""
        if isinstance(pipeline, Pipeline):
            return pipeline
        if pipeline in NAMED:
            text = NAMED[pipeline]
            return cls.from_string(text.replace("range -> ", "range -> log -> ", 1) if mode == "pw_rel" else text)
        if "->" not in pipeline and "(" not in pipeline:
            raise unknown("pipeline", pipeline, NAMED)
        return cls.from_string(pipeline)

    @classmethod
    def from_string(cls, text: str) -> Pipeline:
        """`range -> lorenzo(radius=512) -> huffman -> zstd(3)`; before `huffman` a histogram is added where there is none."""
        made = cls()
        for part in text.split("->"):
            name, config = _call(part.strip())
            stage = make(name, config, where="pipeline")
            names = {node.stage.name for node in made.nodes}
            if name == "huffman" and not names & {"histogram", "topk-histogram"}:
                made.add(make("histogram"))
            made.add(stage)
        return made

    @classmethod
    def from_toml(cls, text: str) -> Pipeline:
        """`[[stage]]` tables with `type`, optionally `name` and `input` ("node" or "node.port", or a list of them); other keys
        configure it."""
        try:
            tables = tomllib.loads(text).get("stage")
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            raise InputError(f"pipeline: {error}") from None
        if not isinstance(tables, list) or not tables or not all(isinstance(t, dict) for t in tables):
            raise InputError("pipeline: found no [[stage]]; expected at least one")
        waiting = []
        for number, table in enumerate(tables, start=1):
            config = dict(table)
            kind = config.pop("type", None)
            if not isinstance(kind, str):
                raise InputError(f"pipeline: stage {number}: found no type")
            refs = config.pop("input", [])
            refs = [refs] if isinstance(refs, str) else refs
            name = config.pop("name", kind)
            if not (isinstance(refs, list) and all(isinstance(r, str) for r in refs) and isinstance(name, str)):
                raise InputError(f"pipeline: stage {number}: expected name and input as text")
            waiting.append((name, make(kind, config, where="pipeline"), refs))
        return cls._ordered(waiting)

    @classmethod
    def _ordered(cls, waiting: list[tuple[str, Stage, list[str]]]) -> Pipeline:
        made, names = cls(), [name for name, _, _ in waiting]
        while waiting:
            done = {SOURCE, *(node.name for node in made.nodes)}
            ready = [w for w in waiting if all(_node_of(ref, names) in done or _node_of(ref, names) not in names for ref in w[2])]
            if not ready:
                raise InputError(f"pipeline: a cycle through {', '.join(sorted(w[0] for w in waiting))}")
            name, stage, refs = ready[0]
            made.add(stage, after=refs, name=name)
            waiting = [w for w in waiting if w is not ready[0]]
        return made

    def to_json(self) -> list[dict[str, Any]]:
        """Returns the pipeline as plain data, for the container's header."""
        return [
            {
                "name": n.name,
                "type": n.stage.name,
                "version": n.stage.version,
                "config": n.stage.config(),
                "from": {k: list(v) for k, v in n.sources.items()},
            }
            for n in self.nodes
        ]

    @classmethod
    def from_json(cls, nodes: Any, *, where: str | None = None) -> Pipeline:
        """Returns the pipeline of a header, every part of it checked."""
        if not isinstance(nodes, list) or not 0 < len(nodes) <= 64:
            raise InputError("pipeline: expected a list of 1 to 64 stages", where=where)
        made = cls()
        for node in nodes:
            try:
                name, kind, version, config, sources = (node[k] for k in ("name", "type", "version", "config", "from"))
                refs = [f"{n}.{p}" for n, p in sources.values()]
                well_formed = isinstance(name, str) and isinstance(kind, str) and isinstance(version, int) and isinstance(config, dict)
            except (KeyError, TypeError, ValueError, AttributeError):
                well_formed = False
            if not well_formed:
                raise InputError("pipeline: found a stage without name, type, version, config and from", where=where)
            from ..stages.stage import stages

            if kind not in stages():
                raise InputError(f'stage "{kind}" version {version} is not known here; install the package that brings it', where=where)
            if version > stage_class(kind).version:
                raise InputError(f'stage "{kind}" version {version} is newer than ours, {stage_class(kind).version}', where=where)
            made.add(make(kind, config, where=where), after=refs, name=name)
        return made

    def __str__(self) -> str:
        return " -> ".join(_shown(node.stage) for node in self.nodes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Pipeline) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash(str(self))

    @property
    def keeps_bound(self) -> bool:
        """Whether its stages keep the bound by themselves, without a look at what comes back."""
        return all(node.stage.keeps_bound for node in self.nodes)

    def check_mode(self, mode: str) -> None:
        """Refuses a mode that the stages cannot keep."""
        kinds = [node.stage.name for node in self.nodes]
        if mode == "pw_rel" and "log" not in kinds:
            raise InputError(f"mode pw_rel: the pipeline {self} has no `log` stage; expected one after `range`")
        if mode != "pw_rel" and "log" in kinds:
            raise InputError(f"mode {mode}: the pipeline {self} has a `log` stage, which is for pw_rel")
        for node in self.nodes:
            if mode == "pw_rel" and getattr(node.stage, "levels_off", False):
                raise InputError("mode pw_rel: interp with bounds that differ by level; expected alpha=1, beta=1 or tune=False")
        if (
            not kinds
            or kinds[0] != "range"
            or not any(node.sources.get("data", ("", ""))[0] != SOURCE for node in self.nodes if node.sources)
        ):
            raise InputError(f"pipeline: found {self}; expected `range`, then a stage that quantises")

    def forward(self, ctx: Context, data: np.ndarray) -> dict[str, np.ndarray]:
        """Returns sections by name (`stage.port`): every output that no stage took, and those that are always stored."""
        values: dict[tuple[str, str], np.ndarray] = {(SOURCE, "data"): data}
        last = self._last_uses()
        plain = [node for node in self.nodes if not node.stage.every_port]
        for node in plain:
            given = {port: values[source] for port, source in node.sources.items()}
            for port, array in node.stage.forward(ctx, **given).items():
                values[node.name, port] = array
            del given
            for source in node.sources.values():
                if last[source] == node.name and source[0] != SOURCE and not self._stored(source):
                    del values[source]
        sections = {f"{node}.{port}": array for (node, port), array in values.items() if node != SOURCE and not self._analysed(node)}
        for node in self.nodes[len(plain) :]:
            sections = node.stage.forward(ctx, **sections)
        return sections

    def inverse(self, ctx: Context, sections: Mapping[str, np.ndarray]) -> np.ndarray:
        """Returns the array, flat, from its sections."""
        found = dict(sections)
        plain = [node for node in self.nodes if not node.stage.every_port]
        for node in reversed(self.nodes[len(plain) :]):
            found = node.stage.inverse(ctx, **found)
        expected = self._section_names()
        if set(found) != expected:
            raise InputError(f"found sections {', '.join(sorted(found))}; expected {', '.join(sorted(expected))}")
        values = {(name.rpartition(".")[0], name.rpartition(".")[2]): array for name, array in found.items()}
        for (name, port), array in values.items():
            kind = next(p.kind for n in plain if n.name == name for p in n.stage.outputs if p.name == port)
            if array.dtype.str not in KINDS[kind]:
                raise InputError(f"section {name}.{port}: found {array.dtype}; expected {kind}")
            if port == "bound" and array.size != 2:
                raise InputError(f"section {name}.{port}: found {array.size} values; expected the bound and its width")
        for node in reversed(plain):
            if node.stage.analysis:
                continue
            given = {p.name: values.pop((node.name, p.name)) for p in node.stage.outputs if (node.name, p.name) in values}
            kept = {p: values[s] for p, s in node.sources.items() if self._stored(s) and s in values}
            for port, array in node.stage.inverse(ctx, **(kept | given)).items():
                values.setdefault(node.sources[port], array)
        if (SOURCE, "data") not in values:
            raise InputError("the pipeline does not lead back to the array")
        return values[SOURCE, "data"]

    def _stored(self, source: tuple[str, str]) -> bool:
        return any(p.stored for n in self.nodes if n.name == source[0] for p in n.stage.outputs if p.name == source[1])

    def _analysed(self, name: str) -> bool:
        return any(node.stage.analysis for node in self.nodes if node.name == name)

    def _last_uses(self) -> dict[tuple[str, str], str]:
        return {source: node.name for node in self.nodes for source in node.sources.values()}

    def _section_names(self) -> set[str]:
        used = {s for node in self.nodes for s in node.sources.values()}
        return {
            f"{node.name}.{p.name}"
            for node in self.nodes
            if not node.stage.analysis and not node.stage.every_port
            for p in node.stage.outputs
            if p.stored or (node.name, p.name) not in used
        }


def _node_of(ref: str, names: Sequence[str]) -> str:
    return ref if ref in names else ref.rpartition(".")[0] or ref


def _call(text: str) -> tuple[str, dict[str, Any]]:
    """Parses `name(3, key=value)` without evaluating anything but literals."""
    name, bracket, rest = text.partition("(")
    name = name.strip()
    if not bracket:
        return name, {}
    if not rest.endswith(")"):
        raise InputError(f'pipeline: found "{text}"; expected name(key=value)')
    try:
        call = ast.parse(f"f({rest}", mode="eval").body
        assert isinstance(call, ast.Call)
        positional = [ast.literal_eval(a) for a in call.args]
        config = {str(k.arg): ast.literal_eval(k.value) for k in call.keywords if k.arg}
    except (SyntaxError, ValueError, AssertionError, RecursionError, MemoryError, TypeError):
        raise InputError(f'pipeline: found "{text}"; expected name(key=value) with plain values') from None
    known = [f.name for f in fields(stage_class(name, where="pipeline"))]  # type: ignore[arg-type]
    if len(positional) > len(known):
        raise InputError(f'pipeline: "{name}" takes {len(known)} values; found {len(positional)}')
    return name, dict(zip(known, positional, strict=False)) | config


def _shown(stage: Stage) -> str:
    changed = [f"{f.name}={getattr(stage, f.name)!r}" for f in fields(stage) if getattr(stage, f.name) != f.default]  # type: ignore[arg-type]
    return f"{stage.name}({', '.join(changed)})" if changed else stage.name
