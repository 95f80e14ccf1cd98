"""The explorer as an ASGI application: its state, its routes and how its pages are made."""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.applications import Starlette
from starlette.datastructures import FormData
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from armillary import __version__, report_card
from armillary.errors import InputError, one_line
from armillary.study.progress import clock
from armillary.study.store import StoreError

from .apart.calling import Apart
from .entrance import Entrance
from .runs import Runs, private
from .uploads import Uploads

HERE = Path(__file__).parent
#: Connections at a time, many of which a careless program may leave half open, and seconds for a request's headers.
CONNECTIONS, HEADERS_S = 512, 10.0
#: Files and fields of one form.
MOST_FILES, MOST_FIELDS, LONGEST_FIELD = 16, 4000, 1 << 20


@dataclass
class Explorer:
    """What the pages share: where results are kept, what may be read, and the secrets of this start of the server."""

    store: Path
    #: A folder whose files may be named as work, or None.
    root: Path | None
    most_upload: int
    runs: Runs
    advices: Runs
    uploads: Uploads
    #: Where reports are kept until their study goes on.
    reports: Path
    apart: Apart
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24), repr=False)
    session: str = field(default_factory=lambda: secrets.token_urlsafe(24), repr=False)
    origin: str = ""
    #: Streams of events that are open.
    streams: int = 0

    @classmethod
    def made(cls, store: Path, root: Path | None = None, most_upload: int = 256 << 20) -> Explorer:
        """An explorer with its private folder beside the store."""
        store = store.absolute()
        folder = store.with_name(f"{store.stem}-web")
        private(folder)
        private(folder / "reports")
        return cls(
            store, None if root is None else root.resolve(), most_upload, Runs.made(folder / "runs", store, "study"),
            Runs.made(folder / "advice", store, "advice"), Uploads.made(folder / "uploads", most_upload), folder / "reports", Apart(),
        )  # fmt: skip

    def uploads_in_use(self) -> set[str]:
        """The folders of uploads that some run names."""
        words = [str(value) for runs in (self.runs, self.advices) for run in runs.all() for value in _leaves(run.asked)]
        return {Path(one).parent.name for word in words for one in word.split(",") if one.startswith(str(self.uploads.folder))}

    @property
    def csrf(self) -> str:
        """The word that every form of this start of the server carries."""
        return hmac.new(self.session.encode(), b"forms", "sha256").hexdigest()

    async def form(self, request: Request) -> FormData:
        """The fields of a form that was sent from one of our own pages."""
        try:
            form = await request.form(max_files=MOST_FILES, max_fields=MOST_FIELDS, max_part_size=LONGEST_FIELD)
        except (MultiPartException, HTTPException) as error:
            raise InputError(one_line(f"the form cannot be read: {getattr(error, 'detail', None) or error}")) from None
        given = form.get("csrf") or request.headers.get("x-csrf", "")
        if not isinstance(given, str) or not hmac.compare_digest(given.encode(), self.csrf.encode()):
            raise HTTPException(403, "the form was not made by this start of the server; reload the page and send it again")
        return form


class Pages:
    """Makes pages from templates; every value is escaped."""

    def __init__(self, explorer: Explorer) -> None:
        self.explorer = explorer
        self.environment = Environment(
            loader=FileSystemLoader(HERE / "templates"), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
        )
        self.environment.filters |= {"clock": clock, "coded": coded, "first_sentence": report_card.first_sentence, "number": _number}
        self.environment.globals |= {"version": __version__, "figure": report_card.figure, "state_of": report_card.state}

    def __call__(self, name: str, *, status: int = 200, **values: Any) -> HTMLResponse:
        """The page made from a template."""
        template = self.environment.get_template(f"{name}.html")
        return HTMLResponse(template.render(csrf=self.explorer.csrf, **values), status)


def application(explorer: Explorer) -> Any:
    """The application: pages behind the entrance."""
    from .pages import advice, arenas, machine, papers, start, studies

    pages = Pages(explorer)
    routes = [
        Route(path, _with(explorer, pages, endpoint), methods=methods)
        for module in (start, papers, arenas, studies, machine, advice)
        for path, methods, endpoint in module.ROUTES
    ]
    static = Mount("/static", StaticFiles(directory=HERE / "static"))

    def trouble(request: Request, error: Exception) -> Response:
        if isinstance(error, HTTPException):
            return pages("trouble", status=error.status_code, said=str(error.detail))
        if isinstance(error, InputError):
            return pages("trouble", status=400, said=str(error))
        return pages("trouble", status=500, said=one_line(str(error)) if isinstance(error, StoreError) else "Something failed here.")

    handlers: Any = dict.fromkeys((HTTPException, InputError, StoreError, Exception), trouble)
    return Entrance(Starlette(routes=[*routes, static], exception_handlers=handlers), explorer)


def _with(explorer: Explorer, pages: Pages, endpoint: Callable[..., Any]) -> Callable[..., Any]:
    """An endpoint of Starlette from one that takes the explorer and its pages too."""
    import inspect

    if inspect.iscoroutinefunction(endpoint):

        async def answered(request: Request) -> Any:
            return await endpoint(request, explorer, pages)

        return answered
    return lambda request: endpoint(request, explorer, pages)


def _leaves(value: Any) -> Iterator[Any]:
    """The values in nested lists and mappings."""
    inside = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else None
    if inside is None:
        yield value
    else:
        for one in inside:
            yield from _leaves(one)


def coded(text: str) -> Markup:
    """Text with what stands between backticks as code."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def _number(value: float | None, digits: int = 4) -> str:
    return "–" if value is None else f"{value:.{digits}g}"
