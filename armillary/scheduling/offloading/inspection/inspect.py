"""The mode of a source, with reasons: `inspect("func.py")` and `explain("func.py")`.

An explicit call that needs a GPU and that no test guards makes the mode `gpu`. A source that imports an accelerator package is
`gpu_preferred` if it loads a heavy model, makes a large tensor or computes a lot, and `cpu_preferred` otherwise. Any other source is
`cpu`. Of several files the strongest mode counts; files that the entry point does not reach do not.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from armillary.errors import InputError
from armillary.scheduling.offloading.runtime.controller import Mode

from . import models
from .interpreter import Analysis
from .modes import Evidence, Inspection
from .project import MOST_TOTAL, read_project, read_source
from .scopes import Found

#: A tensor of so many elements, or so many operations, asks for a GPU. The published prototype takes 1,000 elements.
BIG_ELEMENTS, BIG_FLOPS = 1e6, 1e9
#: Findings of each kind that are kept per file.
KEPT = 20


def inspect(path: str | os.PathLike[str], *, entry: str = "", big_elements: float = BIG_ELEMENTS, big_flops: float = BIG_FLOPS) -> Mode:
    """The mode of a Python source, of a package folder or of a Knative func project. Nothing is executed or imported.

    entry: the file at which a project's function begins, where it is not func.py, main.py, app.py or handler.py.
    """
    return explain(path, entry=entry, big_elements=big_elements, big_flops=big_flops).mode


def explain(
    path: str | os.PathLike[str], *, entry: str = "", big_elements: float = BIG_ELEMENTS, big_flops: float = BIG_FLOPS
) -> Inspection:  # fmt: skip
    """The mode with one sentence why, the places that say so, and the annotation for a manifest."""
    files, first = read_project(Path(path), entry)
    return _from_disk(files, first, str(path), big_elements, big_flops)


def explain_source(path: Path, *, entry: str = "") -> Inspection:
    """The same for a file by itself, or for a folder: what stands beside a file does not count."""
    if path.is_file():
        return _from_disk({path.name: path}, path.name, str(path), BIG_ELEMENTS, BIG_FLOPS)
    return explain(path, entry=entry)


def _from_disk(files: Mapping[str, Path], entry: str, where: str, big_elements: float, big_flops: float) -> Inspection:
    texts: dict[str, str] = {}

    def source(name: str) -> str:
        texts[name] = read_source(files[name], name)
        if sum(map(len, texts.values())) > MOST_TOTAL:
            raise InputError(f"found more than {MOST_TOTAL:,} characters of source; expected fewer", where=where)
        return texts[name]

    found = _inspected(source, files, entry, big_elements, big_flops)
    return replace(found, texts=texts)


def inspect_files(
    files: Mapping[str, str], entry: str, *, big_elements: float = BIG_ELEMENTS, big_flops: float = BIG_FLOPS
) -> Inspection:  # fmt: skip
    """The same for sources that are at hand as text, by their path inside the project."""
    return _inspected(files.__getitem__, files, entry, big_elements, big_flops)


def _inspected(
    read: Callable[[str], str], files: Mapping[str, object], entry: str, big_elements: float, big_flops: float
) -> Inspection:  # fmt: skip
    analysis = Analysis(read, files, entry)
    # Looking for garbage among the nodes of a large tree takes longer than parsing it.
    collected = gc.isenabled()
    gc.disable()
    try:
        analysis.load(entry, 0)
    except RecursionError:
        raise InputError("found expressions that are nested too deeply; expected at most 200 levels", where=entry) from None
    finally:
        if collected:
            gc.enable()
    guarded = analysis.only_guarded()
    best: tuple[Mode, str] | None = None
    evidence: set[Evidence] = set()
    flops = parameters = 0.0
    for source in analysis.sources.values():
        mode, reason, said = _decided(source.found, guarded, big_elements, big_flops)
        evidence |= set(said)
        flops = max([flops, *source.found.flops.values()])
        parameters = max([parameters, *(count for count, _ in source.found.models)])
        if best is None or mode.rank > best[0].rank:
            best = mode, reason
    assert best is not None
    return Inspection(*best, tuple(sorted(evidence)), tuple(analysis.sources), flops, parameters)


def _decided(
    found: Found, guarded: set[tuple[str, str]], big_elements: float, big_flops: float
) -> tuple[Mode, str, list[Evidence]]:  # fmt: skip
    """(mode, reason, evidence) of one file."""
    calls = [Evidence(e.file, e.line, e.column, "guarded" if under or function in guarded else "explicit", e.what)
             for e, function, under in found.explicit]  # fmt: skip
    # A call that is reached in several ways is explicit if one of them is.
    explicit = sorted({one for one in calls if one.kind == "explicit"})
    places = {(one.line, one.column) for one in explicit}
    tests = sorted({one for one in calls if one.kind == "guarded" and (one.line, one.column) not in places})
    heavy = sorted((e for count, e in found.models if count >= models.HEAVY), key=lambda e: e.line)
    others = [e for count, e in found.models if count < models.HEAVY]
    tensors = [e for elements, e in sorted(found.tensors, key=lambda one: -one[0]) if elements >= big_elements]
    flops = max(found.flops.values(), default=0.0)
    products = [e for _, e in sorted(found.products, key=lambda one: -one[0])] if flops >= big_flops else []
    said = [*found.imports[:KEPT], *explicit[:KEPT], *tests[:KEPT], *heavy[:KEPT], *others[:KEPT], *tensors[:3], *products[:3]]
    if explicit:
        return Mode.GPU, f"line {explicit[0].line} of {found.file} {explicit[0].what}, whether there is a GPU or not", said
    if not found.imports:
        return Mode.CPU, "no package that uses an accelerator is imported", said
    if heavy:
        return Mode.GPU_PREFERRED, f"line {heavy[0].line} of {found.file} {heavy[0].what}", said
    if flops >= big_flops:
        return Mode.GPU_PREFERRED, f"a function of {found.file} computes at least {flops:.3g} operations per call", said
    if tensors:
        return Mode.GPU_PREFERRED, f"line {tensors[0].line} of {found.file} {tensors[0].what}", said
    return Mode.CPU_PREFERRED, f"{found.file} {found.imports[0].what}, and no heavy work could be inferred", said
