"""Pods from files: a table of our own, a Pod list of Kubernetes, and Google's cluster data of 2011 and 2019.

A table has `submit_s`, `duration_s`, `cpu` and `memory_gb`, and if known `pod`, `usage` (cores), `tier`, `app`, `deadline_s` and
`declared_s`. A Pod list is a snapshot: its pods are submitted at once. What a file does not say is taken from `Assumed`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from armillary.errors import InputError, one_line
from armillary.files import Column, column_names, read_head, read_json, read_table, read_yaml
from armillary.scheduling.green.problem.pods import BATCH, MOST_PODS, TIERS, Floats, Ints, Pods, room_s
from armillary.scheduling.kubernetes import Pod

#: What a pod's annotations may say: how long it runs, within how many seconds it must have ended, and its application.
DURATION, DEADLINE, APP = "armillary.dev/duration-seconds", "armillary.dev/deadline-seconds", "app.kubernetes.io/name"
#: Kubernetes' priorities from which on a pod counts as production (system classes are 2·10⁹) and as mid tier.
PRODUCTION, MID = 1_000_000, 1000


@dataclass(frozen=True)
class Assumed:
    """What a file may leave open."""

    #: Usage over request, seconds of a pod in a snapshot, and hours that batch pods may wait beyond their run.
    usage: float = 0.45
    duration_s: float = 3600.0
    slack_h: float = 6.0
    #: Google's machines: cores and gigabytes of the largest.
    machine_cores: float = 32.0
    machine_memory_gb: float = 128.0


def read_pods(path: str | Path, assumed: Assumed | None = None, *, usage: str = "", collections: str = "") -> Pods:
    """The pods in a file or a folder, by its content.

    usage: Google 2011's task_usage beside a task_events file. collections: Google 2019's collection_events beside an instance_usage file.
    """
    from .google import read_2011, read_2019

    place, known = Path(path), assumed or Assumed()
    for option, file in (("usage-file", usage), ("collections", collections)):
        if file and (place.is_dir() or not Path(file).is_file()):
            what = "a file beside a folder, which has its own" if place.is_dir() else "no such file"
            raise InputError(f"found {what}", where=f"--{option} {one_line(file, 60)}")
    if place.is_dir():
        events, used = _parts(place / "task_events"), _parts(place / "task_usage")
        if events:
            return read_2011(events, used, known)
        instances, groups = _files(place, "instance_usage"), _files(place, "collection_events")
        if instances:
            return read_2019(instances, groups, known)
        raise InputError("found neither task_events nor instance_usage; expected a folder of Google's cluster data", where=str(path))
    name = place.name.lower().removesuffix(".gz").removesuffix(".zst")
    listed = name.endswith((".json", ".yaml", ".yml"))
    if not listed and not name.endswith(".parquet") and _without_header(place):
        _refuse("collections", collections)
        return read_2011([place], [Path(usage)] if usage else [], known)
    _refuse("usage-file", usage)
    if not listed and "collection_id" in column_names(place):
        return read_2019([place], [Path(collections)] if collections else [], known)
    _refuse("collections", collections)
    return _listed(place, known) if listed else _table(place, known)


def _refuse(option: str, file: str) -> None:
    if file:
        raise InputError("found a file that belongs to another format; expected none", where=f"--{option} {one_line(file, 60)}")


def _parts(folder: Path) -> list[Path]:
    return sorted(folder.glob("part-*.csv*")) if folder.is_dir() else []


def _files(folder: Path, start: str) -> list[Path]:
    return sorted(file for file in folder.iterdir() if file.name.startswith(start) and file.is_file())


def _without_header(path: Path) -> bool:
    """Whether the first line of a CSV is one of numbers."""
    cells = read_head(path, 400).split(b"\n")[0].decode("utf-8", "replace").split(",")
    try:
        float(cells[0])
    except ValueError:
        return False
    return len(cells) == 13


def _table(path: Path, known: Assumed) -> Pods:
    columns = [
        Column("pod", "str", default=""), Column("submit_s", "time"), Column("duration_s", above=0, most=1e8, unit="seconds"),
        Column("cpu", least=0, most=1e6, unit="cores"), Column("memory_gb", least=0, most=1e6, unit="gigabytes"),
        Column("usage", least=0, most=1e6, unit="cores", optional=True), Column("tier", "str", default="batch", choices=TIERS),
        Column("app", "str", default=""), Column("deadline_s", "time", optional=True),
        Column("declared_s", above=0, most=1e8, optional=True),
    ]  # fmt: skip
    table = read_table(path, columns, row_limit=MOST_PODS)
    submit = table["submit_s"] - table["submit_s"].min()
    duration = table["duration_s"]
    tier = np.array([TIERS.index(name) for name in table["tier"].tolist()], np.int64)
    deadline = table["deadline_s"] - table["submit_s"].min() if "deadline_s" in table else promised(submit, duration, tier, known.slack_h)
    late = np.flatnonzero(deadline < submit)
    if len(late):
        raise table.error(int(late[0]), "found a deadline before the submission; expected a later one")
    used = table["usage"] if "usage" in table else known.usage * table["cpu"]
    names = tuple(name or f"pod-{i}" for i, name in enumerate(table["pod"].tolist()))
    return _checked(path, submit, duration, table.get("declared_s", duration), table["cpu"], table["memory_gb"],
                    tier, numbered(table["app"].tolist()), deadline, used, np.arange(len(submit) + 1), 86400.0, names)  # fmt: skip


def promised(submit: Floats, duration: Floats, tier: Ints, slack_h: float) -> Floats:
    """Deadlines where a file has none: batch pods may wait for some hours, others start at once."""
    found: Floats = submit + room_s(duration) + np.where(tier >= BATCH, 3600.0 * slack_h, 0.0)
    return found


def numbered(names: Sequence[str]) -> Ints:
    """A number per different name."""
    _, found = np.unique(np.array(names, dtype=str), return_inverse=True)
    return found.astype(np.int64)


def _listed(path: Path, known: Assumed) -> Pods:
    """A Pod list (`kubectl get pods -o json` or `-o yaml`), or one document per pod; pods that have ended are left out."""
    if path.name.lower().removesuffix(".gz").endswith(".json"):
        documents = [read_json(path)]
    else:
        documents = read_yaml(path)
    items: list[Any] = []
    for document in documents:
        if not isinstance(document, dict):
            raise InputError("expected a Pod list or Pods", where=str(path))
        listed = document.get("items")
        items += listed if isinstance(listed, list) else [document]
    pods, rows = [], []
    for i, item in enumerate(items):
        where = f"{path}: items[{i}]"
        if not isinstance(item, dict) or item.get("kind", "Pod") != "Pod":
            raise InputError("expected a Pod", where=where)
        status = item.get("status") if isinstance(item.get("status"), dict) else {}
        if status and status.get("phase") in ("Succeeded", "Failed"):
            continue
        pod = Pod.of(item, where)
        duration = seconds(pod.annotations.get(DURATION, ""), known.duration_s, f"{where}: {DURATION}")
        tier = tier_of(item)
        within = seconds(pod.annotations.get(DEADLINE, ""), math.inf, f"{where}: {DEADLINE}")
        if math.isinf(within):
            within = float(promised(np.zeros(1), np.array([duration]), np.array([tier]), known.slack_h)[0])
        pods.append(pod)
        rows.append((duration, pod.cpu, pod.memory / 1e9, tier, within))
    if not rows:
        raise InputError("found no pod that waits or runs; expected at least one", where=str(path))
    lasting, cpu, memory, tiers, deadline = (np.array(column, np.float64) for column in zip(*rows))
    apps = numbered([pod.labels.get(APP, pod.labels.get("app", "")) for pod in pods])
    names = tuple(f"{pod.namespace}/{pod.name}" for pod in pods)
    return _checked(path, np.zeros(len(rows)), lasting, lasting, cpu, memory, tiers.astype(np.int64), apps, deadline, known.usage * cpu,
                    np.arange(len(rows) + 1), 86400.0, names)  # fmt: skip


def tier_of(pod: Any) -> int:
    """A pod's tier: by its priority, and best-effort if it requests nothing and limits nothing."""
    spec = pod.get("spec") if isinstance(pod.get("spec"), dict) else {}
    status = pod.get("status") if isinstance(pod.get("status"), dict) else {}
    if status.get("qosClass") == "BestEffort":
        return 3
    priority = spec.get("priority", 0)
    if not isinstance(priority, int) or isinstance(priority, bool):
        return BATCH
    if priority >= PRODUCTION:
        return 0
    if priority >= MID:
        return 1
    return BATCH if priority >= 0 else 3


def seconds(text: str, default: float, where: str) -> float:
    """Seconds above 0 in an annotation."""
    if not text:
        return default
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not 0 < found <= 1e8:
        raise InputError(f'found "{one_line(text, 40)}"; expected seconds above 0', where=where)
    return found


def _checked(path: Path, *columns: Any) -> Pods:
    *per_pod, usage, offsets, step, names = columns
    made: Any = Pods
    try:
        found: Pods = made(*per_pod, np.asarray(usage, np.float64), offsets.astype(np.int64), step, names).check()
        return found
    except InputError as error:
        raise InputError(error.message, where=str(path)) from None
