"""`armillary web`: the explorer, served to this machine's browser."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated, Optional

import typer

from armillary.errors import InputError


def web(
    port: Annotated[int, typer.Option(help="Where it listens, on the loopback; 0 takes any that is free.")] = 8642,
    store: Annotated[Optional[Path], typer.Option(help="The results' SQLite file.")] = None,  # noqa: UP045
    root: Annotated[Optional[Path], typer.Option(help="A folder whose files may be named as work; none by default.")] = None,  # noqa: UP045
    open_: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
    most_upload: Annotated[int, typer.Option(help="The largest upload in MiB.", min=1, max=1 << 20)] = 256,
) -> None:
    """Explore questions, papers, studies and machines in the browser, and run comparisons there."""
    from armillary import extras
    from armillary.listening import ThreadedServer, serve_until_interrupted

    for package in ("starlette", "uvicorn", "jinja2", "python_multipart"):
        extras.need(package)
    from armillary.study.store import default_store
    from armillary.web.application import CONNECTIONS, HEADERS_S, Explorer, application
    from armillary.web.pages import prepare

    if root is not None and not root.is_dir():
        raise InputError("expected a folder that exists", where=f"--root {root}")
    explorer = Explorer.made(store or default_store(), root, most_upload << 20)
    prepare()
    server = ThreadedServer(application(explorer), host="127.0.0.1", port=port, connections=CONNECTIONS, headers_s=HEADERS_S)

    def said(url: str) -> None:
        explorer.origin = url
        address = f"{url}/?token={explorer.token}"
        typer.echo(f"Armillary answers at {address}\nThe address is for you alone: who has it may run studies as you. Ctrl-C ends it.")
        if open_:
            webbrowser.open(address)

    serve_until_interrupted(server, said)


commands = {"web": web}
