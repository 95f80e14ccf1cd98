"""`armillary traces`: reports of many GPUs as one trace for Paraver or Perfetto, and where the time went."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

Reports = Annotated[list[Path], typer.Argument(help="SQLite exports of Nsight Systems, traces of PyTorch's profiler, or folders of them.")]
Align = Annotated[bool, typer.Option("--align/--no-align", help="Align the clocks of reports by MPI_Init and by collectives.")]
traces_app = typer.Typer(help="Reports of many GPUs as one trace, and where their time went.", no_args_is_help=True)


@traces_app.command("convert")
def convert(
    reports: Reports,
    paraver: Annotated[Optional[Path], typer.Option(help="Write this .prv with its .pcf and .row.")] = None,  # noqa: UP045
    perfetto: Annotated[Optional[Path], typer.Option(help="Write this JSON, packed if its name ends in .gz.")] = None,  # noqa: UP045
    align: Align = True,
    states: Annotated[bool, typer.Option(help="Write states for Paraver: running, waiting, group communication.")] = False,
    packed: Annotated[bool, typer.Option(help="Pack the .prv with gzip.")] = False,
) -> None:
    """Convert reports into one trace; every report is read before anything is written."""
    from armillary.errors import InputError

    from .readers.reading import read_reports

    if paraver is None and perfetto is None:
        raise InputError("found neither --paraver nor --perfetto; expected the file to write")
    run = read_reports(reports, align=align)
    for note in run.notes:
        typer.echo(note, err=True)
    if paraver is not None:
        size = run.to_paraver(paraver, states=states, packed=packed)
        typer.echo(f"{paraver}: {len(run):,} events, {size:,} bytes")
    if perfetto is not None:
        size = run.to_chrome(perfetto)
        typer.echo(f"{perfetto}: {len(run):,} events, {size:,} bytes")


@traces_app.command("lost")
def lost(
    reports: Reports,
    region: Annotated[Optional[str], typer.Option(help="Look at the ranges of NVTX with this name only.")] = None,  # noqa: UP045
    align: Align = True,
) -> None:
    """Print efficiencies, and the share of time that each device lost to each cause."""
    from .analysis.lost import CAUSES
    from .readers.reading import read_reports

    run = read_reports(reports, align=align)
    found = run.lost(region)
    for note in run.notes:
        typer.echo(note, err=True)
    typer.echo(str(run.efficiency(region)))
    width = max([len("device"), *map(len, found.devices)])
    typer.echo(f"{'device':{width}}  {'useful':>7}  " + "  ".join(f"{cause:>13}" for cause in CAUSES))
    for row in found.frame().iter_rows(named=True):
        typer.echo(f"{row['device']:{width}}  {row['useful']:7.1%}  " + "  ".join(f"{row[cause]:13.1%}" for cause in CAUSES))


commands = {"traces": traces_app}
