"""`armillary green serve`: GreenK8s behind the Kubernetes scheduler."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

green_app = typer.Typer(help="Pods by the sun: the scheduler extender of GreenK8s.", no_args_is_help=True)


@green_app.callback()
def _green() -> None:
    """Pods by the sun: the scheduler extender of GreenK8s."""


@green_app.command("serve")
def serve(
    port: Annotated[int, typer.Option(help="The port; 0 takes a free one and says which.")] = 8888,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    cluster: Annotated[str, typer.Option(help="A preset or cluster file whose groups are node types, with their power.")] = "k8s-20",
    sun: Annotated[Optional[Path], typer.Option(help="timestamp,watts, NSRDB or PVGIS; read again when it changes.")] = None,  # noqa: UP045
    usage: Annotated[Optional[Path], typer.Option(help="The answer of a Prometheus query: cores in use by node.")] = None,  # noqa: UP045
    label: Annotated[str, typer.Option(help="The label of that query that names the node.")] = "node",
    latitude: Annotated[float, typer.Option(help="Degrees north.")] = 35.0,
    longitude: Annotated[float, typer.Option(help="Degrees east.")] = 0.0,
) -> None:
    """Serve /filter, /prioritize and /metrics for kube-scheduler."""
    from armillary.scheduling.kubernetes import Extender
    from armillary.scheduling.kubernetes import serve as run

    from .greenk8s import GreenK8s
    from .sockets.files import FedScheduler

    fed = FedScheduler(GreenK8s(), (latitude, longitude), cluster, sun, usage, label)
    run(Extender(fed.judge, metrics=fed.metrics), host=host, port=port, said=lambda url: typer.echo(f"serving {url}"))


commands = {"green": green_app}
