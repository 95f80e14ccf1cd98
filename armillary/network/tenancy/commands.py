"""`armillary vni`: the VNI service, its manifests, an audit, and a plan."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
vni_app = typer.Typer(help="VNIs for the jobs of a Kubernetes cluster on a Slingshot fabric.", no_args_is_help=True)


@vni_app.command("serve")
def vni_serve(
    path: Annotated[Path, typer.Option(help="The database; it is made if it does not exist.")],
    port: Annotated[int, typer.Option(help="The port; 0 takes a free one and says which.")] = 8842,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    low: Annotated[int, typer.Option(help="The first VNI of the range.")] = 100,
    high: Annotated[int, typer.Option(help="The last VNI of the range.")] = 65535,
    quarantine: Annotated[float, typer.Option(help="Seconds for which a released VNI rests.")] = 60.0,
    token_file: Annotated[Optional[Path], typer.Option(help="A file with the token that is the first part of every path.")] = None,  # noqa: UP045
    open_: Annotated[bool, typer.Option("--open", help="Listen beyond this machine without a token.")] = False,
    allow_host: Annotated[Optional[list[str]], typer.Option(help="A further name that clients may use in Host. Repeatable.")] = None,  # noqa: UP045
) -> None:
    """Serve the webhooks of the VNI controller, /sync and /finalize."""
    from armillary.files import read_text

    from .service.server import HOSTS, serve
    from .service.vni_service import VniService

    token = None if token_file is None else read_text(token_file, limit=4096).strip()
    with VniService(path, low=low, high=high, quarantine_s=quarantine) as service:
        hosts = (*HOSTS, *(allow_host or ()))
        serve(service, port=port, host=host, token=token, open=open_, hosts=hosts, said=lambda url: _announce(url, token))


def _announce(url: str, token: str | None) -> None:
    typer.echo(f"serving VNIs on {url.removesuffix(f'/{token}') if token else url}")


@vni_app.command("manifests")
def vni_manifests(
    tenants: Annotated[list[str], typer.Argument(help="The tenants, which are Kubernetes namespaces.")],
    image: Annotated[str, typer.Option(help="A container image with Armillary.")] = "armillary:latest",
    quarantine: Annotated[float, typer.Option(help="Seconds for which a released VNI rests.")] = 60.0,
) -> None:
    """Print the manifests with which the service is installed."""
    from .kubernetes.manifests import manifests

    typer.echo(manifests(tenants, image=image, quarantine_s=quarantine), nl=False)


@vni_app.command("audit")
def vni_audit(
    files: Annotated[list[Path], typer.Argument(help="All manifests of the cluster, and the services of its cards (YAML).")],
    as_json: AsJson = False,
) -> None:
    """Say what would let a job use the VNI of another. The exit status is 1 if something is of high severity."""
    import dataclasses
    import json

    from .kubernetes.audit import audit

    found = audit(files)
    if as_json:
        typer.echo(json.dumps([dataclasses.asdict(one) for one in found], indent=1))
    else:
        for one in found:
            typer.echo(f"{one.severity:6}  {one.rule}  {one.where}: {one.said}")
        typer.echo(f"{len(found)} findings" if found else "nothing was found")
    if any(one.severity == "high" for one in found):
        raise typer.Exit(1)


@vni_app.command("plan")
def vni_plan(
    trace: Annotated[Path, typer.Argument(help="Jobs: SWF, or a table with submit_s, pods and duration_s.")],
    low: Annotated[int, typer.Option(help="The first VNI of the range.")] = 100,
    high: Annotated[int, typer.Option(help="The last VNI of the range.")] = 65535,
    quarantine: Annotated[float, typer.Option(help="Seconds for which a released VNI rests.")] = 60.0,
    rate: Annotated[float, typer.Option(help="The share of jobs that may be refused.")] = 1e-6,
) -> None:
    """Say how many VNIs these jobs need. The exit status is 1 if the range has fewer."""
    from .planning.plan import plan
    from .readers.traces import read_trace

    found = plan(read_trace(trace), low=low, high=high, quarantine_s=quarantine, rate=rate)
    typer.echo(f"{found.needed:,} VNIs are needed: {found.peak:,} at once in this trace, {found.erlang:,} by Erlang's formula")
    rest = "none, however short the rest" if found.longest_rest_s is None else f"{found.longest_rest_s:,.0f} s"
    typer.echo(f"the range has {high - low + 1:,}; the longest rest with which it suffices: {rest}")
    if not found.fits:
        raise typer.Exit(1)


commands = {"vni": vni_app}
