"""`armillary inspect`: the mode of a source, as a linter prints it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer


def inspect(
    path: Annotated[Path, typer.Argument(help="A Python source, a package folder, or a Knative func project.")],
    entry: Annotated[str, typer.Option(help="The file of a folder at which the function begins.")] = "",
    big_elements: Annotated[float, typer.Option(help="A tensor of so many elements asks for a GPU.")] = 1e6,
    service: Annotated[Optional[Path], typer.Option(help="A Knative Service (JSON); prints it with the mode instead.")] = None,  # noqa: UP045
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of lines.")] = False,
) -> None:
    """Say whether a serverless function deserves a GPU, from its source. Nothing is executed."""
    import dataclasses
    import json

    from armillary.errors import InputError
    from armillary.files import read_json

    from .inspection.inspect import explain
    from .sockets.knative import knative

    if not big_elements >= 1:
        raise InputError(f"found {big_elements:g}; expected at least 1", where="--big-elements")
    found = explain(path, entry=entry, big_elements=big_elements)
    if service is not None:
        manifest = read_json(service)
        if not isinstance(manifest, dict):
            raise InputError("expected a Knative Service", where=str(service))
        typer.echo(json.dumps(knative(manifest, found.mode), indent=1))
    elif as_json:
        facts = {"mode": found.mode.value, "reason": found.reason, "files": list(found.files), "annotation": found.annotation}
        typer.echo(json.dumps(facts | {"evidence": [dataclasses.asdict(one) for one in found.evidence]}, indent=1))
    else:
        typer.echo(found.text())


commands = {"inspect": inspect}
