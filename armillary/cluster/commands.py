"""`armillary cluster`: this machine, presets, and files that describe machines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from armillary.errors import InputError

cluster_app = typer.Typer(help="Describe machines: this one, presets, and files.", no_args_is_help=True)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]


@cluster_app.command("here")
def cluster_here(
    measure: Annotated[bool, typer.Option(help="Also measure memory bandwidth, arithmetic and loopback (takes a few seconds).")] = False,
    toml: Annotated[bool, typer.Option("--toml", help="Print a cluster file to edit.")] = False,
    as_json: AsJson = False,
) -> None:
    """Describe the machine that this runs on."""
    from armillary import cluster

    _print_cluster(cluster.here(measure=measure), toml, as_json)


@cluster_app.command("list")
def cluster_list(as_json: AsJson = False) -> None:
    """List the presets."""
    from armillary import cluster

    described = cluster.described()
    if as_json:
        typer.echo(json.dumps(described, indent=1))
        return
    width = max(map(len, described))
    for name, text in described.items():
        typer.echo(f"{name:<{width}}  {text}")


@cluster_app.command("show")
def cluster_show(
    name: Annotated[str, typer.Argument(help="A preset or a file.")],
    toml: Annotated[bool, typer.Option("--toml", help="Print it as a cluster file.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show a preset or a file as a table."""
    from armillary import cluster

    _print_cluster(cluster.find(name), toml, as_json)


@cluster_app.command("check")
def cluster_check(
    file: Annotated[Path, typer.Argument(help="A cluster file, slurm.conf, hwloc or SimGrid XML, or Kubernetes nodes as JSON.")],
    follow: Annotated[bool, typer.Option(help="Follow Include lines of a slurm.conf.")] = False,
) -> None:
    """Report every fault of a file, one per line; the exit status is 2 if there is any."""
    from armillary import cluster
    from armillary.wording import counted

    try:
        found = cluster.load(file, follow=follow)
    except InputError as error:
        for fault in error.faults:
            typer.echo(fault, err=True)
        raise typer.Exit(2) from None
    typer.echo(f"{file}: valid; {found.name} has {counted(found.nodes, 'node')} and {counted(found.cores, 'core')}")


@cluster_app.command("diff")
def cluster_diff(a: str, b: str) -> None:
    """Say in words how two clusters differ."""
    from armillary import cluster

    typer.echo(cluster.diff(cluster.find(a), cluster.find(b)) or "no difference")


@cluster_app.command("fit")
def cluster_fit(file: Annotated[Path, typer.Argument(help="Ping-pong CSV (link,bytes,seconds) or OSU output.")]) -> None:
    """Fit latency and bandwidth per link class to your own measurements, and print TOML."""
    from armillary import cluster

    typer.echo(cluster.fit(file))


@cluster_app.command("cost")
def cluster_cost(name: str, utilisation: Annotated[float, typer.Option(help="Share of the peak that is used.")] = 1.0) -> None:
    """Compute the energy, carbon, embodied carbon and price of one hour."""
    from armillary import cluster

    typer.echo(cluster.find(name).cost_per_hour(utilisation))


def _print_cluster(found: Any, toml: bool, as_json: bool) -> None:
    typer.echo(found.to_toml() if toml else found.to_json() if as_json else found.summary())


commands = {"cluster": cluster_app}
