"""`armillary assembly train`: measures every strategy on this machine and trains the network that chooses among them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from armillary.errors import InputError, unknown

assembly_app = typer.Typer(help="Finite element assembly: measure strategies on this machine.", no_args_is_help=True)


@assembly_app.callback()
def assembly() -> None:
    """Finite element assembly: measure strategies on this machine."""


@assembly_app.command("train")
def train(
    meshes: Annotated[int, typer.Option(help="How many of the catalogue's 420 meshes to measure, spread over all families.")] = 420,
    smallest: Annotated[int, typer.Option(help="Elements of the smallest linear triangle mesh.")] = 20_000,
    largest: Annotated[int, typer.Option(help="Elements of the largest one.")] = 200_000,
    epochs: Annotated[int, typer.Option(help="Passes over the table.")] = 400,
    out: Annotated[Path, typer.Option(help="Folder for table.npz, all.npz and fold0.npz to fold4.npz.")] = Path("assembly-weights"),
    clock: Annotated[str, typer.Option(help="What is measured: wall seconds, or cpu seconds of the busiest thread.")] = "wall",
    table: Annotated[Optional[Path], typer.Option(help="Train from this table (with pictures) instead of measuring.")] = None,  # noqa: UP045
) -> None:
    """Measure every strategy on the catalogue's meshes with this machine's CPU, and train the network that chooses from that."""
    from .selecting.table import CLOCKS, load_table, measure_table, spread_out
    from .selecting.training import train_all
    from .workload import catalogue

    if not 100 <= smallest <= largest <= 100_000_000:
        raise InputError(f"found {smallest} to {largest}; expected 100 ≤ smallest ≤ largest ≤ 100000000", where="--smallest")
    if not 1 <= epochs <= 100_000:
        raise InputError(f"found {epochs}; expected 1 to 100000", where="--epochs")
    if clock not in CLOCKS:
        raise unknown("clock", clock, CLOCKS)
    if table is not None:
        measured = load_table(table, "cpu")
    else:
        measured = measure_table(spread_out(catalogue(smallest, largest), meshes), typer.echo, clock=clock)
        out.mkdir(parents=True, exist_ok=True)
        measured.save(out / "with_pictures.npz", with_pictures=True)
    train_all(measured, out, epochs, typer.echo)
    typer.echo(f"written to {out}")


commands = {"assembly": assembly_app}
