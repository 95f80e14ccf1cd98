"""`armillary learn`: the trained models, those that come with the package and those that were trained here."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from armillary.errors import InputError, one_line

if TYPE_CHECKING:
    from armillary.learn.recipes import Recipe
    from armillary.learn.store import Model

learn_app = typer.Typer(help="Trained models: list them, empty their cache, train the shipped ones anew.", no_args_is_help=True)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


def _files() -> Iterator[tuple[str, Path]]:
    from armillary.learn.recipes import ROOT, cache_folder

    yield from (("package", file) for file in sorted(ROOT.glob("*/*/models/*.safetensors")))
    yield from (("cache", file) for file in sorted(cache_folder().glob("*.safetensors")))


@learn_app.command("list")
def learn_list(as_json: AsJson = False) -> None:
    """List every trained model: where it is, its size, what it was trained on, and its metrics."""
    from armillary.learn.store import load

    found: list[dict[str, Any]] = []
    for where, file in _files():
        facts: dict[str, Any] = {"where": where, "file": str(file), "bytes": file.stat().st_size}
        try:
            model = load(file)
        except InputError as error:
            found.append(facts | {"technique": "", "fault": error.message})
            continue
        found.append(
            facts | {
                "technique": model.technique, "kind": model.kind, "weights": model.config.weights, "trained_on": list(model.trained_on),
                "seed": model.seed, "steps": model.steps, "metrics": dict(model.metrics), "versions": dict(model.versions),
                "deterministic": model.deterministic,
            }
        )  # fmt: skip
    if as_json:
        typer.echo(json.dumps(found, indent=1))
        return
    if not found:
        typer.echo("There are no trained models.")
    for one in found:
        if "fault" in one:
            typer.echo(f"{Path(one['file']).name}  {one['where']}  cannot be used: {one['fault']}")
            continue
        metrics = ", ".join(f"{name} {value:.4g}" for name, value in one["metrics"].items()) or "no metrics"
        cases = f"{len(one['trained_on'])} case{'s' if len(one['trained_on']) != 1 else ''}"
        stem, home = Path(one["file"]).stem, one["technique"].rpartition("/")[0]
        # A technique may come with several models, whose files have names.
        name = one_line(one["technique"] if one["technique"] and one["where"] == "cache" else f"{home}/{stem}".strip("/"), 60)
        typer.echo(f"{name:<44} {one['where']:<8} {one['kind']:<16} {one['bytes']:>9,} bytes  {cases}, {one['steps']:,} steps; {metrics}")


@learn_app.command("forget")
def learn_forget(
    technique: Annotated[Optional[str], typer.Argument(help="Only the models of this technique.")] = None,  # noqa: UP045
) -> None:
    """Delete cached models; those that come with the package stay."""
    from armillary.learn.recipes import forget

    count, size = forget(technique)
    typer.echo(f"forgot {count} model{'s' if count != 1 else ''} ({size:,} bytes)")


@learn_app.command("rebuild")
def learn_rebuild(
    technique: Annotated[str, typer.Argument(help="The technique whose shipped models are trained anew.")],
    check: Annotated[bool, typer.Option("--check", help="Write nothing; compare the metrics with those of the shipped models.")] = False,
) -> None:
    """Train the models that come with the package from their built-in cases, and write their files."""
    from armillary import catalogue
    from armillary.learn.recipes import shown

    home, name = catalogue.technique(technique)
    made = home.make(name)
    recipes: list[Recipe] = list(getattr(made, "recipes", list)())
    if not recipes:
        raise InputError(f"{home.path}/{name} has no models", where=technique)
    faults = []
    for recipe in recipes:
        with shown(recipe) as progress:
            model = recipe.trained(progress)
        if check:
            faults += _differences(recipe, model)
        else:
            typer.echo(f'{recipe.file.name}: shipped="{_write(recipe, model)}"  ({recipe.file.stat().st_size:,} bytes)')
    if faults:
        for fault in faults:
            typer.echo(fault, err=True)
        raise typer.Exit(1)
    if check:
        typer.echo(f"the metrics of {len(recipes)} model{'s' if len(recipes) != 1 else ''} agree within 5 %")


def _write(recipe: Recipe, model: Model) -> str:
    from armillary.learn.recipes import ALL_SHIPPED_BYTES, ROOT, SHIPPED_BYTES

    size = len(model.to_bytes())
    others = sum(file.stat().st_size for file in ROOT.glob("*/*/models/*.safetensors") if file != recipe.file)
    if size > SHIPPED_BYTES or others + size > ALL_SHIPPED_BYTES:
        most = f"at most {SHIPPED_BYTES:,} and {ALL_SHIPPED_BYTES:,} in all"
        said = f"found {size:,} bytes beside {others:,} of other models; expected {most}"
        raise InputError(said, where=recipe.file.name)
    recipe.file.parent.mkdir(parents=True, exist_ok=True)
    return model.save(recipe.file)


def _differences(recipe: Recipe, model: Model) -> list[str]:
    from armillary.learn.store import load

    known = load(recipe.file)
    found = []
    for name in sorted({*known.metrics, *model.metrics}):
        old, new = known.metrics.get(name), model.metrics.get(name)
        if old is None or new is None or abs(new - old) > 0.05 * abs(old):
            found.append(f"{recipe.file.name}: {name}: found {new}; expected {old} within 5 %")
    return found


commands = {"learn": learn_app}
