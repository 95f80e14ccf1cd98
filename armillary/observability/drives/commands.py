"""`armillary drives`: fit a predictor to SMART logs, and score today's drives with it, as a nightly job does."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

if TYPE_CHECKING:
    from .fleets.fleet import Fleet
    from .prediction.predictor import Predictor

drives_app = typer.Typer(help="Drives that will fail: fit GMPpredictor to SMART logs, and score drives with it.", no_args_is_help=True)
LOG = "A folder of daily logs (Alibaba, Backblaze), a quarter's zip archive, or documents of smartctl --json -a."


@drives_app.callback()
def _drives() -> None:
    """Drives that will fail: fit GMPpredictor to SMART logs, and score drives with it."""


@drives_app.command("fit")
def fit(
    log: Annotated[Path, typer.Argument(help=LOG)],
    out: Annotated[Path, typer.Option(help="The predictor's file, .npz; its JSON is written beside it.")],
    labels: Annotated[Optional[Path], typer.Option(help="The file of failures of an Alibaba log.")] = None,  # noqa: UP045
    horizon: Annotated[int, typer.Option(min=1, max=365, help="Days ahead.")] = 30,
    epochs: Annotated[int, typer.Option(min=1, max=1000, help="Epochs at most.")] = 30,
    ensemble: Annotated[int, typer.Option(min=1, max=20, help="Networks per model of drive.")] = 3,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same predictor.")] = 0,
    cache: Annotated[Optional[Path], typer.Option(help="A folder that keeps the log as Parquet for the next time.")] = None,  # noqa: UP045
) -> None:
    """Learn from a log with known failures, and write the predictor."""
    from rich.progress import Progress

    from .gmppredictor import GmpPredictor
    from .prediction.storing import check_name
    from .readers.logs import read_logs

    check_name(out)
    fleet = read_logs(log, labels=labels, cache=cache)
    with Progress(transient=True) as shown:
        task = shown.add_task("training", total=1.0)
        technique = GmpPredictor(horizon=horizon, epochs=epochs, ensemble=ensemble)
        made = technique.fit(fleet, seed, progress=lambda share: shown.update(task, completed=share))
    made.save(out)
    facts = made.trained_on
    typer.echo(
        f"Learned from {facts['drives']:,} drives with {facts['failures']:,} failures; on the validation days F0.5 is"
        f" {facts['validation_f05']:.2f} and recall {facts['validation_recall']:.2f}. Wrote {out} and {out.with_suffix('.json').name}."
    )
    for note in fleet.notes:
        typer.echo(f"Note: {note}.")


@drives_app.command("score")
def score(
    log: Annotated[Path, typer.Argument(help=LOG)],
    model: Annotated[Path, typer.Option(help="The predictor's file, as `fit` wrote it.")],
    csv: Annotated[Optional[Path], typer.Option(help="Write the drives at risk to this CSV file.")] = None,  # noqa: UP045
    prometheus: Annotated[Optional[Path], typer.Option(help="Write all drives to this file in Prometheus' text format.")] = None,  # noqa: UP045
    top: Annotated[int, typer.Option(min=1, help="Drives in the list.")] = 50,
    days: Annotated[int, typer.Option(min=7, help="Days of the log to read, from its end.")] = 40,
    drift: Annotated[
        bool, typer.Option(help="Say whether the signs of failure are still those of training; needs known failures.")
    ] = False,
    labels: Annotated[Optional[Path], typer.Option(help="The file of failures of an Alibaba log, for --drift.")] = None,  # noqa: UP045
) -> None:
    """Name the drives at risk on the last day of a log."""
    from .prediction.predictor import Predictor
    from .prediction.storing import write_text
    from .readers.logs import read_logs

    made = Predictor.load(model)
    fleet = read_logs(log, labels=labels, last=0 if drift else days)
    made.predict(fleet if not drift else fleet.last(days))
    listed = made.at_risk(top)
    if csv is not None:
        write_text(csv, listed.write_csv())
    if prometheus is not None:
        write_text(prometheus, made.prometheus())
    typer.echo(_said(made, listed))
    if drift:
        _say_drift(made, fleet)


def _said(made: Predictor, listed: object) -> str:
    import polars as pl

    assert isinstance(listed, pl.DataFrame)
    flagged = listed.filter("flagged")
    if not flagged.height:
        return "No drive is flagged."
    names = [f"{m}/{s} ({100 * p:.0f} %)" for m, s, p in flagged.select("model", "serial", "probability").head(10).iter_rows()]
    more = f" and {flagged.height - 10} more" if flagged.height > 10 else ""
    verb = "is" if flagged.height == 1 else "are"
    start = f"{flagged.height} of the {listed.height} listed drives {verb} flagged to fail within {made.horizon} days"
    return f"{start}: {', '.join(names)}{more}."


def _say_drift(made: Predictor, fleet: Fleet) -> None:
    for one in made.drift(fleet):
        typer.echo(f"{str(one)[0].upper()}{str(one)[1:]}.")


commands = {"drives": drives_app}
