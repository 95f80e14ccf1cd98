"""Advice on a machine and one's own files: asked for with a form, worked out in a process of its own, and shown when it is done."""

from __future__ import annotations

import time
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, RedirectResponse

from armillary import catalogue, cluster
from armillary.errors import InputError
from armillary.web.asked import HERE
from armillary.web.pages.studies import REPORT_POLICY

LEAST_S, MOST_S = 5.0, 3600.0


def ask(request: Request, explorer: Any, pages: Any) -> Any:
    """The form, and what was asked before."""
    fields = list(dict.fromkeys(arena.field for arena in catalogue.arenas().values()))
    before = [(run, time.strftime("%Y-%m-%d %H:%M", time.localtime(run.created))) for run in explorer.advices.all()][:50]
    return pages("advise", fields=fields, presets=cluster.described(), before=before, baselines=_baselines(), refused="")


async def start(request: Request, explorer: Any, pages: Any) -> Any:
    """Begins to work it out."""
    form = await explorer.form(request)
    chosen = str(form.get("cluster_text", "")).replace("\r\n", "\n").strip() or str(form.get("cluster", HERE))
    if "\n" in chosen:
        cluster.loads(chosen, files=False)
    elif chosen != HERE and chosen not in cluster.presets():
        raise InputError("expected the name of a preset, or a cluster file's text", where=f"cluster {chosen[:60]}")
    try:
        seconds = float(str(form.get("seconds", "300")))
    except ValueError:
        seconds = -1.0
    if not LEAST_S <= seconds <= MOST_S:
        raise InputError(f"expected {LEAST_S:g} to {MOST_S:g}", where="seconds")
    today = {}
    for line in str(form.get("today", "")).splitlines():
        arena, equals, technique = (part.strip() for part in line.partition("="))
        if equals:
            today[arena] = technique
    given = [one for one in form.getlist("work") if isinstance(one, UploadFile) and one.filename]
    work = [str(await explorer.uploads.keep(one, explorer.uploads_in_use())) for one in given]
    runs = [one for one in form.getlist("runs") if isinstance(one, str)]
    asked = {"cluster": chosen, "runs": runs, "work": work, "today": today, "seconds": seconds}
    run = await run_in_threadpool(explorer.advices.start, asked)
    return RedirectResponse(f"/advise/{run.name}", 303)


def show(request: Request, explorer: Any, pages: Any) -> Any:
    """The advice, or how far it is."""
    run = explorer.advices.run(request.path_params["run"])
    said = explorer.advices.place(run.name) / "said"
    lines = said.read_text(encoding="utf-8").splitlines()[-40:] if said.exists() else []
    return pages("advice", run=run, said=lines, refresh=run.state == "running")


def page(request: Request, explorer: Any, pages: Any) -> Any:
    """The advice itself, for the frame inside the page, and as a file."""
    form = request.path_params["form"]
    path = explorer.advices.place(request.path_params["run"]) / f"advice.{form}"
    if form not in ("html", "json") or not path.exists():
        raise HTTPException(404, "there is no such advice yet")
    kind = "text/html" if form == "html" else "application/json"
    return FileResponse(path, media_type=kind, headers={"content-security-policy": REPORT_POLICY})


async def stop(request: Request, explorer: Any, pages: Any) -> Any:
    """Ends the process; what was done is kept."""
    await explorer.form(request)
    await run_in_threadpool(explorer.advices.stop, request.path_params["run"])
    return RedirectResponse(f"/advise/{request.path_params['run']}", 303)


async def go_on(request: Request, explorer: Any, pages: Any) -> Any:
    """Asks again; what was done is not done twice."""
    await explorer.form(request)
    await run_in_threadpool(explorer.advices.go_on, request.path_params["run"])
    return RedirectResponse(f"/advise/{request.path_params['run']}", 303)


def _baselines() -> list[str]:
    return [f"{arena.path}={arena.baseline}" for arena in catalogue.arenas().values() if arena.baseline]


ROUTES = [
    ("/advise", ["GET"], ask),
    ("/advise", ["POST"], start),
    ("/advise/{run}", ["GET"], show),
    ("/advise/{run}/as/{form}", ["GET"], page),
    ("/advise/{run}/stop", ["POST"], stop),
    ("/advise/{run}/go-on", ["POST"], go_on),
]
