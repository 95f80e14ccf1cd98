"""python -m armillary.numerics.assembly train: measures a table on this machine and trains the network that chooses."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from armillary.errors import InputError


def main(arguments: list[str] | None = None) -> int:
    """Runs the command; bad input is one line on stderr and status 2."""
    parser = argparse.ArgumentParser(prog="armillary numerics assembly", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("train", help="measure every strategy on the meshes of the catalogue, and train from that")
    command.add_argument("--device", choices=["here"], default="here", help="what to measure on: this machine's CPU")
    command.add_argument("--meshes", type=int, default=420, help="how many of the catalogue's 420 meshes, spread over all families")
    command.add_argument("--smallest", type=int, default=20_000, help="elements of the smallest linear triangle mesh")
    command.add_argument("--largest", type=int, default=200_000, help="elements of the largest one")
    command.add_argument("--epochs", type=int, default=400, help="passes over the table")
    command.add_argument(
        "--out", type=Path, default=Path("assembly-weights"), help="folder for table.npz, all.npz and fold0.npz to fold4.npz"
    )
    command.add_argument("--table", type=Path, help="train from this table (with pictures) instead of measuring")
    given = parser.parse_args(arguments)
    try:
        _train(given)
    except InputError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


def _train(given: argparse.Namespace) -> None:
    from .table import load_table, measure_table, spread_out
    from .training import train_all
    from .workload import catalogue

    if not 100 <= given.smallest <= given.largest <= 100_000_000:
        raise InputError(f"found {given.smallest} to {given.largest}; expected 100 ≤ smallest ≤ largest ≤ 100000000", where="--smallest")
    if not 1 <= given.epochs <= 100_000:
        raise InputError(f"found {given.epochs}; expected 1 to 100000", where="--epochs")

    def tell(line: str) -> None:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()

    if given.table is not None:
        table = load_table(given.table, "cpu")
    else:
        table = measure_table(spread_out(catalogue(given.smallest, given.largest), given.meshes), tell)
        given.out.mkdir(parents=True, exist_ok=True)
        table.save(given.out / "with_pictures.npz", with_pictures=True)
    train_all(table, given.out, given.epochs, tell)
    tell(f"written to {given.out}")


if __name__ == "__main__":
    raise SystemExit(main())
