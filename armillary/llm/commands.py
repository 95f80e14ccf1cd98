"""`armillary llm`: a model's cost sheet, the models that come with the package, and the calibration of a device."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from armillary.errors import InputError

llm_app = typer.Typer(help="What a transformer costs: shapes, memory and modelled seconds.", no_args_is_help=True)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


@llm_app.command("list")
def llm_list() -> None:
    """List the models that come with the package."""
    from armillary.llm import Model

    for name in Model.presets():
        typer.echo(f"{name:<16} {Model.preset(name).params():>16,} parameters")


@llm_app.command("show")
def llm_show(
    model: Annotated[str, typer.Argument(help="A preset, a config.json, or a folder that holds one.")],
    device: Annotated[str, typer.Option(help="A device of the catalogue.")] = "h100",
    tp: Annotated[int, typer.Option(help="Devices over which each matrix is split.")] = 1,
    pp: Annotated[int, typer.Option(help="Pipeline stages.")] = 1,
    context: Annotated[int, typer.Option(help="Tokens of context that a decoding sequence has.")] = 2048,
    calibration: Annotated[Optional[Path], typer.Option(help="A file that `armillary llm calibrate` wrote.")] = None,  # noqa: UP045
    assume: Annotated[Optional[str], typer.Option(help="Read an unknown model_type as this family.")] = None,  # noqa: UP045
    as_json: AsJson = False,
) -> None:
    """Show the cost sheet of a model on a device."""
    from armillary.llm import Model, chip
    from armillary.llm.cost.sheet import sheet, text

    if context < 1:
        raise InputError(f"--context {context}: expected at least 1")
    path = Path(model)
    found = Model.from_config(path, assume=assume) if assume and path.exists() else Model.find(model)
    facts = sheet(found, chip(device, calibration), tp=tp, pp=pp, context=context)
    typer.echo(json.dumps(facts, indent=1) if as_json else text(facts))


@llm_app.command("calibrate")
def llm_calibrate(
    device: Annotated[str, typer.Option(help="PyTorch's name of the device.")] = "cuda:0",
    out: Annotated[Path, typer.Option(help="The calibration file to write.")] = Path("calibration.json"),
    name: Annotated[Optional[str], typer.Option(help="The device's name in the catalogue, if PyTorch's name is not known there.")] = None,  # noqa: UP045
    vidur: Annotated[Optional[Path], typer.Option(help="Fit to a profile of linear operators that vidur made; needs --name.")] = None,  # noqa: UP045
) -> None:
    """Measure matrix products, attention and copies on a device, and fit the cost model to them (about a minute)."""
    from armillary.llm import chip
    from armillary.llm.cost.calibration import fit, read_vidur
    from armillary.llm.cost.measure import calibrate, write_calibration

    if out.is_dir() or not out.parent.is_dir():
        raise InputError("expected a file in a folder that exists", where=str(out))
    if vidur is not None:
        if name is None:
            raise InputError("--vidur needs --name, the device that was profiled")
        measured, on = read_vidur(vidur), chip(name)
        found = fit(measured, on)
        content: dict[str, Any] = {"id": on.name, "device": on.name, "source": vidur.name, **found.as_json()}
        content["points"] = [p.as_json() for p in measured]
    else:
        content, found = calibrate(device, on=chip(name) if name else None, said=lambda what: typer.echo(f"measured {what}", err=True))
    write_calibration(content, out)
    c = found.calibration
    constants = f"η_c {c.eta_c:.3f}, η_m {c.eta_m:.3f}, t0 {c.t0 * 1e6:.1f} µs"
    typer.echo(f"{found.points} matrix products: {constants}; mean error {found.mape:.1%}, 90th percentile {found.p90:.1%}")
    typer.echo(f"wrote {out}", err=True)


commands = {"llm": llm_app}
