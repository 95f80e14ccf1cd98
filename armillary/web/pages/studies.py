"""The studies of the store, running and done: progress as it happens, stop and go on, the report, and downloads."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, RedirectResponse, Response, StreamingResponse

from armillary.errors import InputError
from armillary.study.progress import clock
from armillary.study.store import Store
from armillary.web.asked import Asked
from armillary.web.runs import Run

#: Seconds between two looks at a running study, and the most streams of progress at a time.
LOOK_S, MOST_STREAMS = 0.7, 32
#: The states of units that need not run any more.
ENDED = ("done", "declined", "failed")
REPORT_S = 300.0
FORMS = {"html": "text/html", "csv": "text/csv", "parquet": "application/vnd.apache.parquet", "json": "application/json"}
#: The report brings its own script and data, and is shut into a frame that can neither see nor change the page around it.
REPORT_POLICY = (
    "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; "
    "font-src data:; frame-ancestors 'self'"
)


@dataclass(frozen=True)
class Progress:
    """How far a study is."""

    done: int
    units: int
    failed: int
    running: list[str]
    left: str
    state: str

    @property
    def share(self) -> float:
        """Of the units, how many have ended."""
        return self.done / self.units if self.units else 0.0


def studies(request: Request, explorer: Any, pages: Any) -> Any:
    """All studies, the newest first, and the runs that have none yet."""
    runs = list(explorer.runs.all())
    numbers: dict[str, int] = {}
    rows: list[dict[str, Any]] = []
    if explorer.store.exists():
        with Store.read(explorer.store) as store:
            states, numbers, found = store.states_of(), store.identities(), store.studies()
        state_of = {numbers[run.identity]: run.state for run in reversed(runs) if run.identity in numbers}
        for number, created, _, _, plan in found:
            counts, recipe = states.get(number, {}), json.loads(plan)["recipe"]
            ended = sum(counts.get(state, 0) for state in ENDED)
            rows.append(
                {
                    "number": number, "created": _when(created), "arena": recipe["arena"], "scale": recipe["scale"], "done": ended,
                    "units": sum(counts.values()), "failed": counts.get("failed", 0), "state": state_of.get(number, ""),
                }
            )  # fmt: skip
    waiting = [(run, Asked.from_json(run.asked), _when(run.created)) for run in runs if run.identity not in numbers]
    return pages("studies", rows=rows, waiting=waiting[:50])


def run_page(request: Request, explorer: Any, pages: Any) -> Any:
    """A run that was just started: its study's page as soon as it has one."""
    run = explorer.runs.run(request.path_params["run"])
    number = _number_of(explorer, run)
    if number is not None:
        return RedirectResponse(f"/studies/{number}", 303)
    return pages("run", run=run, asked=Asked.from_json(run.asked), refresh=run.state == "running")


def study(request: Request, explorer: Any, pages: Any) -> Any:
    """A study's page."""
    number, plan, identity = _study(request, explorer)
    run = explorer.runs.of_study(identity)
    with Store.read(explorer.store) as store:
        left = [(key, name, size) for key, name, _, size in store.left(number)][:200]
    progress = _progress(explorer, number, identity)
    return pages("study", number=number, plan=plan, run=run, progress=progress, left=left, forms=list(FORMS)[1:])


async def events(request: Request, explorer: Any, pages: Any) -> Any:
    """Progress as server-sent events, until the study rests or the reader leaves."""
    number, _, identity = _study(request, explorer)
    if explorer.streams >= MOST_STREAMS:
        raise HTTPException(503, "too many pages look at running studies; close some")

    async def told() -> AsyncIterator[bytes]:
        explorer.streams += 1
        try:
            while True:
                progress = await run_in_threadpool(_progress, explorer, number, identity)
                yield f"data: {json.dumps({**vars(progress), 'share': progress.share})}\n\n".encode()
                if progress.state != "running" or await request.is_disconnected():
                    return
                await asyncio.sleep(LOOK_S)
        finally:
            explorer.streams -= 1

    return StreamingResponse(told(), media_type="text/event-stream")


async def stop(request: Request, explorer: Any, pages: Any) -> Any:
    """Ends a run's process; what was done is kept."""
    await explorer.form(request)
    name = request.path_params["run"]
    await run_in_threadpool(explorer.runs.stop, name)
    return RedirectResponse(f"/runs/{name}", 303)


async def go_on(request: Request, explorer: Any, pages: Any) -> Any:
    """Starts a stopped run again."""
    await explorer.form(request)
    run = await run_in_threadpool(explorer.runs.go_on, request.path_params["run"])
    return RedirectResponse(f"/runs/{run.name}", 303)


async def resume(request: Request, explorer: Any, pages: Any) -> Any:
    """Goes on with a study of the store that no run of the page began: the command line's, for one."""
    await explorer.form(request)
    _, plan, identity = _study(request, explorer)
    run = explorer.runs.of_study(identity)
    if run is None:
        run = await run_in_threadpool(explorer.runs.start, Asked.from_plan(plan).plain())
    else:
        run = await run_in_threadpool(explorer.runs.go_on, run.name)
    return RedirectResponse(f"/runs/{run.name}", 303)


async def report(request: Request, explorer: Any, pages: Any) -> Any:
    """The report, for the frame inside the page."""
    path = await _written(request, explorer, "html")
    return FileResponse(path, media_type="text/html", headers={"content-security-policy": REPORT_POLICY})


async def download(request: Request, explorer: Any, pages: Any) -> Any:
    """The study as a file."""
    form = request.path_params["form"]
    if form not in FORMS:
        raise HTTPException(404, f"expected one of {', '.join(FORMS)}")
    path = await _written(request, explorer, form)
    name = f"armillary-study-{request.path_params['number']}.{form}"
    return FileResponse(path, media_type=FORMS[form], filename=name)


def artifact(request: Request, explorer: Any, pages: Any) -> Any:
    """What a unit left beside its metrics: a timeline, a table."""
    number, _, _ = _study(request, explorer)
    key, name = int(request.path_params["unit"]), request.path_params["name"]
    with Store.read(explorer.store) as store:
        ids = {row[0]: row[1] for row in store.results(number)[0]}
        found = next((one for one in store.artifacts(ids[key]) if one.name == name), None) if key in ids else None
    if found is None:
        raise HTTPException(404, "this study left nothing of that name")
    harmless = "".join(c if c.isalnum() or c in "._-" else "_" for c in found.name)
    headers = {"content-disposition": f'attachment; filename="{harmless}"'}
    return Response(found.data, media_type="application/octet-stream", headers=headers)


def _study(request: Request, explorer: Any) -> tuple[int, dict[str, Any], str]:
    """(number, plan, identity) of the study that is asked for."""
    number = int(request.path_params["number"])
    if explorer.store.exists():
        with Store.read(explorer.store) as store:
            found = store.plan_of(number)
        if found is not None:
            return number, json.loads(found[1]), found[0]
    raise HTTPException(404, f"the store holds no study {number}")


def _number_of(explorer: Any, run: Run) -> int | None:
    if not run.identity or not explorer.store.exists():
        return None
    with Store.read(explorer.store) as store:
        found: int | None = store.study_of(run.identity)
    return found


def _progress(explorer: Any, number: int, identity: str) -> Progress:
    run = explorer.runs.of_study(identity)
    with Store.read(explorer.store) as store:
        counts = store.states_of(number).get(number, {})
        running = [f"{technique} on {case}, for {clock(time.time() - since)}" for technique, case, since in store.running(number)]
        ended, seconds = store.spent(number)
    units, done = sum(counts.values()), sum(counts.get(state, 0) for state in ENDED)
    left = clock((units - done) * seconds / ended) if ended and done < units else ""
    state = run.state if run else "ended" if done == units else "stopped"
    alive = state == "running"
    return Progress(done, units, counts.get("failed", 0), running[:8] if alive else [], left if alive else "", state)


async def _written(request: Request, explorer: Any, form: str) -> Path:
    """The study's file of this form, made anew when more of its units have ended."""
    number, _, identity = _study(request, explorer)
    with Store.read(explorer.store) as store:
        counts = store.states_of(number).get(number, {})
    ended = sum(counts.get(state, 0) for state in ENDED)
    path: Path = explorer.reports / f"{identity[:24]}-{ended}.{form}"
    if not path.exists():
        if not ended:
            raise InputError("the study has no finished unit yet, so there is nothing to report")
        for old in explorer.reports.glob(f"{identity[:24]}-*.{form}"):
            old.unlink(missing_ok=True)
        await explorer.apart.ask("report", {"store": str(explorer.store), "study": number, "target": str(path)}, seconds=REPORT_S)
    return path


def _when(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


ROUTES = [
    ("/studies", ["GET"], studies),
    ("/studies/{number:int}", ["GET"], study),
    ("/studies/{number:int}/events", ["GET"], events),
    ("/studies/{number:int}/report", ["GET"], report),
    ("/studies/{number:int}/go-on", ["POST"], resume),
    ("/studies/{number:int}/as/{form}", ["GET"], download),
    ("/studies/{number:int}/left/{unit:int}/{name}", ["GET"], artifact),
    ("/runs/{run}", ["GET"], run_page),
    ("/runs/{run}/stop", ["POST"], stop),
    ("/runs/{run}/go-on", ["POST"], go_on),
]
