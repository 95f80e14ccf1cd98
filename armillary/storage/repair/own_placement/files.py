"""Stripe placement from files: CSV, `ceph pg dump pgs -f json`, and `hdfs fsck / -files -blocks -locations`.

A CSV has the columns `stripe,index,node`, after a line `# k=10 m=4` unless k and m are given. In a dump of Ceph, the position in `acting`
is the shard, and 2147483647 marks a shard without an OSD. In the output of HDFS, the policy (RS-6-3-1024k) gives k and m, and within a
stripe block ids count up from that of the group.
"""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Any

import numpy as np

from armillary.errors import InputError, one_line, unknown
from armillary.files import read_head, read_json, read_lines

from ..coding.reed_solomon import ReedSolomon
from .placement import Placement

FORMATS = ("auto", "csv", "ceph", "hdfs")
#: Ceph's CRUSH_ITEM_NONE.
NO_OSD = 2147483647
#: The most bytes of a dump of Ceph, which has a few KiB per placement group.
_DUMP_BYTES = 1 << 32
_CODE = re.compile(r"k\s*=\s*(\d{1,3})\b.*?\bm\s*=\s*(\d{1,3})\b")
_CODE_PART = re.compile(r"[km]\s*=\s*\d{1,3}")
_POLICY = re.compile(r"erasure-coded: policy=([A-Za-z]+(?:-LEGACY)?)-(\d{1,3})-(\d{1,3})-\w+")
_GROUP = re.compile(r"\d+\. (?:\S+:)?blk_(-?\d{1,19})_\d+ len=\d+")
_LOCATION = re.compile(r"blk_(-?\d{1,19}):DatanodeInfoWithStorage\[([^,\]]+)[,\]]")


def read_placement(path: str | Path, k: int | None = None, m: int | None = None, *, format: str = "auto") -> Placement:
    """The placement in a file; `format` is csv, ceph, hdfs, or auto, which looks at the content.

    k and m are the data and parity blocks per stripe, and must be given where the file does not have them.
    """
    if format not in FORMATS:
        raise unknown("format", format, FORMATS)
    kind = _format(path) if format == "auto" else format
    return {"csv": read_csv, "ceph": read_ceph, "hdfs": read_hdfs}[kind](str(path), k, m)


def _format(path: str | Path) -> str:
    start = read_head(path).decode("utf-8", "replace").lstrip()
    if start[:1] in ("{", "["):
        return "ceph"
    return "hdfs" if any(word in start for word in ("DatanodeInfo", "erasure-coded:", "fsck")) else "csv"


def read_csv(where: str, k: int | None = None, m: int | None = None) -> Placement:
    """The placement in a table `stripe,index,node`; blocks that no line names are missing."""
    lines = (text for _, text in read_lines(where))
    line, first = 1, next(lines, "")
    if found := _CODE.search(first):
        k, m = _agree(k, m, int(found[1]), int(found[2]), f"{where}:1")
        if first.lstrip().startswith("#"):
            line, first = 2, next(lines, "")
    header = [name.strip() for name in first.split(",")]
    if header[:3] != ["stripe", "index", "node"] or any(not _CODE_PART.fullmatch(extra) for extra in header[3:]):
        raise InputError(f'found header "{one_line(first.strip(), 80)}"; expected "stripe,index,node"', where=f"{where}:{line}")
    code = _code(k, m, where)
    places: dict[str, list[int]] = {}
    nodes: dict[str, int] = {}
    reader = csv.reader(lines)
    try:
        for row in reader:
            if not row:
                continue
            here = f"{where}:{line + reader.line_num}"
            if len(row) < 3:
                raise InputError(f"found {len(row)} columns; expected stripe,index,node", where=here)
            stripe, text, node = row[0].strip(), row[1].strip(), row[2].strip()
            if not text.isascii() or not text.isdigit() or len(text) > 3 or int(text) >= code.n:
                raise InputError(f'column "index": found "{one_line(text, 40)}"; expected 0 to {code.n - 1}', where=here)
            if not node:
                raise InputError('column "node": found nothing; expected a name', where=here)
            blocks = places.setdefault(stripe, [-1] * code.n)
            if blocks[int(text)] >= 0:
                raise InputError(f"found block {text} of stripe {one_line(stripe, 40)} twice; expected once", where=here)
            blocks[int(text)] = nodes.setdefault(node, len(nodes))
    except csv.Error as error:
        raise InputError(f"cannot be read as CSV ({error})", where=where) from None
    return _placement(code, places, nodes, where)


def read_ceph(where: str, k: int | None = None, m: int | None = None) -> Placement:
    """The placement groups whose acting set has k + m shards; others belong to other pools."""
    code = _code(k, m, where)
    found: Any = read_json(where, limit=_DUMP_BYTES)
    if isinstance(found, dict) and isinstance(found.get("pg_map"), dict):
        found = found["pg_map"]
    groups = found.get("pg_stats") if isinstance(found, dict) else None
    if not isinstance(groups, list):
        raise InputError("found no list pg_stats; expected the output of ceph pg dump pgs -f json", where=where)
    places: dict[str, list[int]] = {}
    nodes: dict[str, int] = {}
    for number, group in enumerate(groups):
        here = f"{where}: pg_stats[{number}]"
        if not isinstance(group, dict) or not isinstance(group.get("pgid"), str) or not isinstance(group.get("acting"), list):
            raise InputError("found no pgid and acting; expected a placement group", where=here)
        acting = group["acting"]
        if len(acting) != code.n:
            continue
        if any(isinstance(osd, bool) or not isinstance(osd, int) or not -1 <= osd <= NO_OSD for osd in acting):
            raise InputError(f"acting: found {one_line(str(acting), 80)}; expected numbers of OSDs", where=here)
        if group["pgid"] in places:
            raise InputError(f"found pgid {one_line(group['pgid'], 40)} twice; expected once", where=here)
        places[group["pgid"]] = [-1 if osd in (-1, NO_OSD) else nodes.setdefault(f"osd.{osd}", len(nodes)) for osd in acting]
    if not places:
        raise InputError(f"found no placement group with {code.n} shards; expected some with k + m", where=where)
    return _placement(code, places, nodes, where)


def read_hdfs(where: str, k: int | None = None, m: int | None = None) -> Placement:
    """The block groups of erasure-coded files; replicated files are passed over."""
    places: dict[str, list[int]] = {}
    nodes: dict[str, int] = {}
    policy: tuple[int, int] | None = None
    size: tuple[int, int] | None = (k, m) if k is not None and m is not None else None
    for line, text in read_lines(where):
        here = f"{where}:{line}"
        if found := _POLICY.search(text):
            if not found[1].startswith("RS"):
                raise InputError(f'found policy "{found[1]}-{found[2]}-{found[3]}"; expected a Reed-Solomon one (RS)', where=here)
            policy = (int(found[2]), int(found[3]))
            size = size or policy
        elif " bytes, " in text and text.startswith("/"):
            policy = None
        group = _GROUP.match(text.lstrip())
        if group is None or policy is None or policy != size:
            continue
        code = _code(*policy, here)
        base, blocks = int(group[1]), [-1] * code.n
        for block, node in _LOCATION.findall(text):
            index = int(block) - base
            if not 0 <= index < code.n:
                raise InputError(f"found block blk_{block} in group blk_{base}; expected one of the next {code.n}", where=here)
            blocks[index] = nodes.setdefault(node.strip(), len(nodes))
        if f"blk_{base}" in places:
            raise InputError(f"found block group blk_{base} twice; expected once", where=here)
        places[f"blk_{base}"] = blocks
    if not places or size is None:
        raise InputError("found no block group of an erasure-coded file; expected hdfs fsck / -files -blocks -locations", where=where)
    return _placement(_code(*size, where), places, nodes, where)


def _agree(k: int | None, m: int | None, file_k: int, file_m: int, where: str) -> tuple[int, int]:
    if (k is not None and k != file_k) or (m is not None and m != file_m):
        raise InputError(f"found k={file_k} m={file_m}; expected k={k} m={m} as asked for", where=where)
    return file_k, file_m


def _code(k: int | None, m: int | None, where: str) -> ReedSolomon:
    if k is None or m is None:
        raise InputError("found no k and m; expected them in a line '# k=… m=…' or as arguments", where=where)
    try:
        return ReedSolomon(int(k), int(m))
    except InputError as error:
        raise InputError(error.message, where=where) from None


def _placement(code: ReedSolomon, places: dict[str, list[int]], nodes: dict[str, int], where: str) -> Placement:
    if not places:
        raise InputError("found no stripes; expected at least one", where=where)
    return Placement(code, tuple(nodes), tuple(places), np.array(list(places.values()), np.int64))
