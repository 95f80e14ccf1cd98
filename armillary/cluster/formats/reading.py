"""Recognises which tool wrote a file, from its content and not from its name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from armillary.cluster.formats import hwloc, kubernetes, nvidia_smi, simgrid, slurm, xml
from armillary.cluster.formats.files import as_text, read_bytes
from armillary.errors import InputError, one_line

XML = re.compile(rb"(\xef\xbb\xbf|\xff\xfe|\xfe\xff)?\s*<")
#: Encodings other than UTF-8 in which an XML file may begin with "<".
WIDE = (b"<\0", b"\0<", b"\xff\xfe<\0", b"\xfe\xff\0<")


def read(path: Path, follow: bool = False) -> dict[str, Any] | None:
    """Reads another tool's file into the tables of a cluster file; returns None if the format is unknown.

    The known formats are `slurm.conf` (with `topology.conf` and `gres.conf` beside it), hwloc XML version 2, SimGrid platform XML, the text
    of `nvidia-smi topo -m`, and the JSON of `kubectl get nodes`. `follow` lets a Slurm file include others. Nothing is ever executed or
    fetched.
    """
    path = Path(path)
    data = read_bytes(path)
    if XML.match(data[:1000]) or data.startswith(WIDE):
        root = xml.parse(data, path)
        if root.name == "topology":
            return hwloc.read(root, path)
        if root.name == "platform":
            return simgrid.read(root, path)
        raise InputError(
            f"found XML with <{one_line(root.name, 40)}>; expected <topology> (hwloc) or <platform> (SimGrid)", where=str(path)
        )
    text = as_text(data, path)
    if text.lstrip()[:1] == "{":
        parsed = kubernetes.parse(text, path)
        if not kubernetes.looks_like(parsed):
            raise InputError("found JSON; expected nodes as kubectl prints them", where=str(path))
        return kubernetes.read(parsed, path)
    if nvidia_smi.looks_like(text):
        return nvidia_smi.read(text, path)
    if slurm.looks_like(text):
        return slurm.read(path, follow)
    return None
