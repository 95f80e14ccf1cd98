"""This machine and every preset, drawn; two of them side by side with their differences; and a file of one's own, checked as one types."""

from __future__ import annotations

from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse

from armillary import cluster
from armillary.errors import InputError
from armillary.web.asked import HERE
from armillary.web.machine_drawing import drawing

MOST_TEXT = 1 << 20


def machine(request: Request, explorer: Any, pages: Any) -> Any:
    """One or two machines; this one by default."""
    names = [request.query_params.get("a", HERE)[:80] or HERE, request.query_params.get("b", "")[:80]]
    found = [(name, _found(name)) for name in names if name]
    differences = cluster.diff(found[0][1], found[1][1]) if len(found) == 2 else []
    shown = [(name, drawing(one), one) for name, one in found]
    return pages("machine", shown=shown, names=names, differences=differences, presets=cluster.described(), text="", checked="", faults=[])


async def check(request: Request, explorer: Any, pages: Any) -> Any:
    """A cluster file's text: its faults, or the machine that it describes."""
    form = await explorer.form(request)
    given = form.get("text", "")
    text = given.replace("\r\n", "\n") if isinstance(given, str) else ""
    faults, picture = await run_in_threadpool(_checked, text)
    if "application/json" in request.headers.get("accept", ""):
        return JSONResponse({"faults": faults, "drawing": picture})
    presets = cluster.described()
    return pages("machine", shown=[], names=[HERE, ""], differences=[], presets=presets, text=text, checked=picture, faults=faults)


def _checked(text: str) -> tuple[list[str], str]:
    if len(text) > MOST_TEXT:
        return [f"found {len(text):,} characters; expected at most {MOST_TEXT:,}"], ""
    try:
        return [], drawing(cluster.loads(text, "your file", files=False))
    except InputError as error:
        return list(error.faults), ""


def _found(name: str) -> cluster.Cluster:
    return cluster.here() if name == HERE else cluster.preset(name)


ROUTES = [("/machine", ["GET"], machine), ("/machine/check", ["POST"], check)]
