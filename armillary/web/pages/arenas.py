"""One arena: its question, techniques, recorded plot and claims, and the form that runs it."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse

from armillary import catalogue, cluster
from armillary.errors import InputError
from armillary.records import records
from armillary.study.progress import clock
from armillary.study.report.record_plot import dot_plot
from armillary.web.forms import asked_of
from armillary.wording import counted

#: Seconds that an arena may take to describe itself, and that a plan may take, which reads the user's files.
DESCRIBE_S, PLAN_S = 120.0, 120.0


async def arena(request: Request, explorer: Any, pages: Any) -> Any:
    """The arena's page."""
    return await _page(request, explorer, pages)


async def plan(request: Request, explorer: Any, pages: Any) -> Any:
    """How many units a filled form asks for and how long they will take; as JSON for the page's script, as the page otherwise."""
    home = catalogue.arena(_path(request))
    form = await explorer.form(request)
    wants_json = "application/json" in request.headers.get("accept", "")
    try:
        facts = await _facts(home.path, explorer)
        asked = await asked_of(form, facts, explorer)
        estimate = await explorer.apart.ask("estimate", {"asked": asked.json(), "store": str(explorer.store)}, seconds=PLAN_S)
    except InputError as error:
        if wants_json:
            return JSONResponse({"refused": str(error.faults[0])}, 400)
        return await _page(request, explorer, pages, refused=str(error.faults[0]), status=400)
    said = in_words(estimate)
    if wants_json:
        return JSONResponse({"said": said, "asked": asked.json()})
    return await _page(request, explorer, pages, planned=said, asked=asked.json())


async def run(request: Request, explorer: Any, pages: Any) -> Any:
    """Starts the study that the form asks for and goes to its page."""
    home = catalogue.arena(_path(request))
    form = await explorer.form(request)
    facts = await _facts(home.path, explorer)
    try:
        asked = await asked_of(form, facts, explorer)
        if asked.arena != home.path:
            raise InputError("the form belongs to another arena")
        await explorer.apart.ask("estimate", {"asked": asked.json(), "store": str(explorer.store)}, seconds=PLAN_S)
    except InputError as error:
        return await _page(request, explorer, pages, refused=str(error.faults[0]), status=400)
    started = explorer.runs.start(asked.plain())
    return RedirectResponse(f"/runs/{started.name}", 303)


def in_words(estimate: dict[str, Any]) -> str:
    """The size of a study as a person says it."""
    units = f"{counted(estimate['units'], 'unit')} on {counted(estimate['cases'], 'case')}"
    known = f", {estimate['known']:,} of them known already" if estimate["known"] else ""
    seconds = estimate["seconds"]
    if estimate["known"] == estimate["units"]:
        return f"{units}, all known already: the answer comes at once."
    takes = "nobody has run it yet, so there is no estimate of the time" if seconds is None else f"about {clock(seconds)}"
    alone = "; it measures, so other work on this machine should rest" if estimate["alone"] else ""
    return f"{units}{known}: {takes}{alone}."


async def _page(request: Request, explorer: Any, pages: Any, *, status: int = 200, **more: Any) -> Any:
    home = catalogue.arena(_path(request))
    facts = await _facts(home.path, explorer)
    record = records().get(home.path)
    claims = [(name, record.of(name)) for name in home.techniques if record and record.of(name)]
    plot = dot_plot(record) if record else ""
    values = {"planned": "", "asked": "", "refused": "", "presets": cluster.described(), "root": explorer.root, **more}
    return pages("arena", status=status, facts=facts, record=record, claims=claims, plot=plot, **values)


async def _facts(path: str, explorer: Any) -> dict[str, Any]:
    found: dict[str, Any] = await explorer.apart.once("describe", {"arena": path}, seconds=DESCRIBE_S)
    return found


def _path(request: Request) -> str:
    return f"{request.path_params['field']}/{request.path_params['name']}"


ROUTES = [
    ("/arenas/{field}/{name}", ["GET"], arena),
    ("/arenas/{field}/{name}/plan", ["POST"], plan),
    ("/arenas/{field}/{name}/run", ["POST"], run),
]
