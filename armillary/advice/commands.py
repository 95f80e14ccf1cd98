"""`armillary advise`: what would change most on a machine and with some files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from armillary.errors import InputError

if TYPE_CHECKING:
    from armillary.advice import Advice


def advise(
    cluster: Annotated[str, typer.Option(help="here, a preset, or a cluster file.")] = "here",
    work: Annotated[Optional[list[Path]], typer.Option(help="Your own file; arenas that read it are asked about it.")] = None,  # noqa: UP045
    runs: Annotated[Optional[str], typer.Option(help="Comma-separated fields and arenas; all by default.")] = None,  # noqa: UP045
    today: Annotated[Optional[list[str]], typer.Option(help="What you use now: arena=technique.")] = None,  # noqa: UP045
    seconds: Annotated[float, typer.Option(help="How long new comparisons may take together.")] = 300.0,
    html: Annotated[Optional[Path], typer.Option(help="Write the advice to this file (.html, .json or .csv).")] = None,  # noqa: UP045
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
    engine: Annotated[str, typer.Option(help="auto, here, processes:N, dask, or a Dask scheduler's address.")] = "auto",
    store: Annotated[Optional[Path], typer.Option(help="The results' SQLite file.")] = None,  # noqa: UP045
    seed: Annotated[int, typer.Option(help="The study's seed.")] = 0,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
) -> None:
    """Say which techniques would change most on this machine and this work, over what is done today."""
    from armillary.advice import advise as ask

    if html is not None and (html.is_dir() or not html.parent.is_dir()):
        raise InputError("expected a file in a folder that exists", where=f"--html {html}")
    said = None if quiet else lambda text: typer.echo(text, err=True)
    found = ask(
        cluster, work=work or (), runs=[name.strip() for name in (runs or "").split(",") if name.strip()], today=_pairs(today or []),
        seconds=seconds, engine=engine, store=store, seed=seed, say=said,
    )  # fmt: skip
    if as_json:
        typer.echo(json.dumps(found.json(), indent=1))
    else:
        _print(found)
    if html is not None:
        typer.echo(f"wrote {found.write(html)}", err=True)


def _pairs(given: list[str]) -> dict[str, str]:
    found = {}
    for item in given:
        arena, equals, technique = item.partition("=")
        if not (arena and equals and technique):
            raise InputError(f'--today "{item}": expected arena=technique')
        found[arena] = technique
    return found


def _print(advice: Advice) -> None:
    from armillary.advice.advice import gain, on_what, sections, spread
    from armillary.study import terminal
    from armillary.wording import counted

    out = terminal.console()
    for title, _, answers in sections(advice):
        rows: list[dict[str, Any]] = [
            {
                "use": a.finding.technique, "instead of": a.finding.today, "gain": gain(a.finding), "interval": spread(a.finding),
                "in": f"{a.finding.metric} ({a.finding.kind})", "arena": a.finding.arena, "on": on_what(a),
                "but": "; ".join(a.finding.costs[:2]),
            }
            for a in answers
        ]  # fmt: skip
        out.print(f"\n{title}", style="bold")
        out.print(terminal.table_of(rows, *rows[0]))
    for a in advice.changes[:5]:
        if a.adopt:
            out.print(f"{a.finding.technique}: {a.adopt}")
    if advice.together:
        out.print("\nTwo at a time", style="bold")
    for pair in advice.together:
        out.print(f"{pair.in_words()} ({pair.kind}, {counted(pair.cases, 'case')} of {pair.second}; {pair.what}).")
    if advice.told:
        out.print("\nCould not be judged", style="bold")
        out.print(terminal.table_of([{"arena": n.arena, "why": n.reason} for n in advice.told], "arena", "why"))
    if unread := len(advice.not_judged) - len(advice.told):
        out.print(f"{counted(unread, 'arena')} {'does' if unread == 1 else 'do'} not read the file; --json says what each expects.")
    out.print(f"\n{advice.answer()}")


commands = {"advise": advise}
