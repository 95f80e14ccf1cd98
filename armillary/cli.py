"""The command line: list, show, compare, reproduce, diff, cluster.

Exit status: 0, 1 when some unit failed, 2 for bad input (one line on stderr), 3 for trouble with the store.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer
from typer.core import TyperCommand

from armillary import __version__, catalogue
from armillary.errors import InputError, one_line, unknown
from armillary.parameters import option_name

if TYPE_CHECKING:
    from armillary.study import Result

#: Typer brings its own copy of Click in some versions and imports it in others.
ClickException: type[Exception] = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")

app = typer.Typer(
    name="armillary",
    help="Which published technique pays off on my cluster and my workload, and by how much?",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _arena_names(incomplete: str) -> list[str]:
    return [path for path in catalogue.arenas() if path.startswith(incomplete)]


def _technique_names(incomplete: str) -> list[str]:
    return sorted({t for a in catalogue.arenas().values() for t in a.techniques if t.startswith(incomplete)})


AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
NoColor = Annotated[bool, typer.Option("--no-color", help="No colours; NO_COLOR does the same.")]
StorePath = Annotated[Optional[Path], typer.Option("--store", help="The results' SQLite file.")]  # noqa: UP045
Engine = Annotated[str, typer.Option(help="auto, here, processes:N, dask, or a Dask scheduler's address (tcp://host:8786).")]
Scale = Annotated[str, typer.Option(help="Size of the built-in work: tiny, small or large.")]
Repeats = Annotated[Optional[int], typer.Option(help="Repeats of each unit; 5 by default when something is measured.")]  # noqa: UP045
Seed = Annotated[int, typer.Option(help="The study's seed: same seed, same simulated numbers.")]
Setting = Annotated[list[str], typer.Option("--set", help="A parameter: technique.name=value.", default_factory=list, show_default=False)]
Work = Annotated[
    list[Path], typer.Option(help="Your own file; options of the arena's reader may follow.", default_factory=list, show_default=False)
]
Html = Annotated[Optional[Path], typer.Option(help="Write the report to this HTML file.")]  # noqa: UP045
Fresh = Annotated[bool, typer.Option(help="Run everything again, stored or not.")]
KeepStale = Annotated[bool, typer.Option(help="Keep stored units whose code changed since.")]
RetryFailed = Annotated[bool, typer.Option(help="Run failed units again.")]
Timeout = Annotated[Optional[float], typer.Option(help="Seconds after which a unit is ended as failed.")]  # noqa: UP045
Memory = Annotated[Optional[str], typer.Option(help="Replace a worker process that has grown beyond this (for example 4GiB).")]  # noqa: UP045
Durable = Annotated[bool, typer.Option(help="Flush each result to disk: survives a loss of power.")]
NameHost = Annotated[bool, typer.Option("--name-host", help="Store this host's name as it is; it is hashed otherwise.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")]
Cluster = Annotated[Optional[str], typer.Option("--cluster", help="A preset or a cluster file to put the work on.")]  # noqa: UP045


@app.callback(invoke_without_command=True)
def top(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    """Which published technique pays off on my cluster and my workload, and by how much?"""
    if version:
        print(f"armillary {__version__}")
        raise typer.Exit


@app.command("list")
def list_(
    field: Annotated[Optional[str], typer.Argument(help="Only this field, or this field/arena.")] = None,  # noqa: UP045
    as_json: AsJson = False,
    store: StorePath = None,
    no_color: NoColor = False,
) -> None:
    """Every field, arena and technique, and each claim's last verdict."""
    arenas = {path: a for path, a in catalogue.arenas().items() if field is None or field in (a.field, path)}
    if not arenas:
        known = catalogue.arenas()
        raise unknown("field or arena", field or "", [*known, *{a.field for a in known.values()}])
    verdicts = _last_verdicts(store)
    rows = []
    for path, arena in arenas.items():
        for name in arena.techniques:
            judged = {claim: v for claim, v in verdicts.items() if claim.rpartition("#")[0] == f"{path}/{name}"}
            paper = catalogue.papers().get(arena.papers.get(name, ""))
            rows.append({
                "arena": path, "technique": name, "paper": paper.title if paper else None, "source": paper.source if paper else None,
                "verdicts": {claim: state for claim, (state, _) in judged.items()},
            })  # fmt: skip
    if as_json:
        print(json.dumps({"arenas": {p: a.question for p, a in arenas.items()}, "techniques": rows}, indent=1))
        return
    _print_list(arenas, rows)


def _print_list(arenas: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    """Plain text, without rich: this is the command that must answer at once."""
    bold, dim, off = ("\033[1m", "\033[2m", "\033[0m") if sys.stdout.isatty() and "NO_COLOR" not in os.environ else ("", "", "")
    from armillary.records import SYMBOLS

    width = max(len(row["technique"]) for row in rows)
    for path, arena in arenas.items():
        print(f"{bold}{path}{off}  {arena.question}")
        for row in (r for r in rows if r["arena"] == path):
            said = "  ".join(f"{SYMBOLS[state]} #{claim.rpartition('#')[2]} {state}" for claim, state in sorted(row["verdicts"].items()))
            what = f"{row['paper']} ({row['source']})" if row["paper"] else f"{dim}baseline{off}"
            print(f"  {row['technique']:<{width}}  {what}{'  ' + said if said else ''}")
    papers = sum(bool(row["paper"]) for row in rows)
    print(f"{len(arenas)} arena{'s' if len(arenas) != 1 else ''}, {len(rows)} techniques, {papers} of them published systems")


@app.command()
def show(
    name: Annotated[str, typer.Argument(help="A technique, field/arena/technique, or an arena.", autocompletion=_technique_names)],
    as_json: AsJson = False,
    no_color: NoColor = False,
) -> None:
    """What it is, the paper, its claims, its parameters, how to use it."""
    from armillary import describe

    try:
        home, technique = catalogue.technique(name)
        facts = describe.technique(home, technique)
    except InputError as not_technique:
        try:
            facts = describe.arena(catalogue.arena(name))
        except InputError:
            raise not_technique from None
    print(json.dumps(facts, indent=1, default=str) if as_json else describe.text(facts))


class _WithReaderOptions(TyperCommand):
    """`compare`, whose help shows the options of an arena's reader when the arena is named."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        super().format_help(ctx, formatter)
        named = [word for word in sys.argv[1:] if word in catalogue.arenas() or any(a.name == word for a in catalogue.arenas().values())]
        for home in map(catalogue.arena, named[:1]):
            from armillary import describe

            print("\n".join(describe.reader_options(home)))


@app.command(cls=_WithReaderOptions, context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def compare(
    ctx: typer.Context,
    arena: Annotated[str, typer.Argument(help="The arena: field/arena.", autocompletion=_arena_names)],
    settings: Setting,
    work: Work,
    techniques: Annotated[Optional[str], typer.Option(help="Comma-separated; all by default.")] = None,  # noqa: UP045
    cases: Annotated[Optional[str], typer.Option(help="Comma-separated names or patterns (zipf-*); '*' is all.")] = None,  # noqa: UP045
    metrics: Annotated[Optional[str], typer.Option(help="Comma-separated. If none of them is measured, units may run in parallel.")] = None,  # noqa: UP045
    scale: Scale = "small",
    cluster: Cluster = None,
    repeats: Repeats = None,
    seed: Seed = 0,
    engine: Engine = "auto",
    store: StorePath = None,
    html: Html = None,
    csv: Annotated[Optional[Path], typer.Option(help="Write every value to this CSV file.")] = None,  # noqa: UP045
    parquet: Annotated[Optional[Path], typer.Option(help="Write every value to this Parquet file.")] = None,  # noqa: UP045
    as_json: AsJson = False,
    until: Annotated[Optional[str], typer.Option(help="Add repeats until the leading gain's interval is this narrow (2%).")] = None,  # noqa: UP045
    seconds: Annotated[Optional[float], typer.Option(help="Time budget for --until.")] = None,  # noqa: UP045
    fresh: Fresh = False,
    keep_stale: KeepStale = False,
    retry_failed: RetryFailed = False,
    timeout: Timeout = None,
    memory: Memory = None,
    durable: Durable = False,
    name_host: NameHost = False,
    quiet: Quiet = False,
    no_color: NoColor = False,
) -> None:
    """Put techniques to the same work: the built-in cases, or your own file."""
    from armillary.study import compare as run

    _name_host(name_host)
    home = catalogue.arena(arena)
    options = _reader_options(ctx.args, home)
    if options and not work:
        raise InputError(f"--{next(iter(options))} says how to read a file; give one with --work")
    _writable(html, csv, parquet)
    result = run(
        arena, work=work, options=options, techniques=_names(techniques), settings=_settings(settings), cases=_names(cases),
        metrics=_names(metrics), scale=scale, cluster=cluster, repeats=repeats, seed=seed, engine=engine, store=store, fresh=fresh,
        keep_stale=keep_stale, retry_failed=retry_failed, timeout_s=timeout, memory_bytes=_bytes(memory), durable=durable,
        until=_share(until), seconds=seconds, quiet=quiet, command=_command(),
    )  # fmt: skip
    _give([result], as_json, no_color, html, csv, parquet)


@app.command()
def reproduce(
    settings: Setting,
    technique: Annotated[Optional[str], typer.Argument(help="The technique.", autocompletion=_technique_names)] = None,  # noqa: UP045
    field: Annotated[Optional[str], typer.Option(help="Every technique of a field.")] = None,  # noqa: UP045
    everything: Annotated[bool, typer.Option("--all", help="Every technique there is.")] = False,
    scale: Scale = "small",
    cluster: Cluster = None,
    repeats: Repeats = None,
    seed: Seed = 0,
    engine: Engine = "auto",
    store: StorePath = None,
    html: Html = None,
    record: Annotated[Optional[Path], typer.Option(help="Write the arenas' records into this folder; every technique runs then.")] = None,  # noqa: UP045
    as_json: AsJson = False,
    fresh: Fresh = False,
    keep_stale: KeepStale = False,
    retry_failed: RetryFailed = False,
    timeout: Timeout = None,
    memory: Memory = None,
    durable: Durable = False,
    name_host: NameHost = False,
    quiet: Quiet = False,
    no_color: NoColor = False,
) -> None:
    """Judge a paper's claims: held, held in part, not held, not tried."""
    from armillary.study import reproduce as one
    from armillary.study import reproduce_all

    if (technique is not None) + (field is not None) + everything != 1:
        raise InputError("expected one of: a technique, --field FIELD, --all")
    _name_host(name_host)
    _writable(html)
    if record is not None and not record.is_dir():
        raise InputError("expected a folder that exists", where=f"--record {record}")
    how: dict[str, Any] = dict(  # noqa: C408
        scale=scale, cluster=cluster, repeats=repeats, seed=seed, engine=engine, store=store, fresh=fresh, keep_stale=keep_stale,
        retry_failed=retry_failed, timeout_s=timeout, memory_bytes=_bytes(memory), durable=durable, quiet=quiet, command=_command(),
        settings=_settings(settings), record=record,
    )  # fmt: skip
    results = [one(technique, **how)] if technique else reproduce_all(field, **how)
    _give(results, as_json, no_color, html, verdicts_only=True)


@app.command()
def diff(
    before: Annotated[Path, typer.Argument(help="A store.")],
    after: Annotated[Path, typer.Argument(help="Another store, of another machine or version.")],
    as_json: AsJson = False,
    no_color: NoColor = False,
) -> None:
    """The same units in two stores: paired gains with intervals, and which verdicts changed."""
    from armillary.study import terminal
    from armillary.study.diff import differences

    found = differences(before, after)
    if as_json:
        print(json.dumps(found, indent=1))
        return
    out = terminal.console(not no_color)
    out.print(terminal.table_of(found["gains"], "arena", "technique", "metric", "kind", ">gain", ">low", ">high", ">pairs"))
    for change in found["verdicts"]:
        out.print(f"{change['claim']}: {change['before']} became {change['after']}")


def _give(
    results: list[Result], as_json: bool, no_color: bool, html: Path | None, csv: Path | None = None, parquet: Path | None = None,
    *, verdicts_only: bool = False,
) -> None:  # fmt: skip
    """Prints and writes results; exit status 1 if a unit failed."""
    from armillary.study import terminal

    if as_json:
        print(json.dumps([r.json() for r in results] if len(results) != 1 else results[0].json(), indent=1))
    else:
        out = terminal.console(not no_color)
        for result in results:
            if verdicts_only:
                out.print(f"{result.arena.path}: {result.arena.question}", style="bold")
                out.print(terminal.verdict_table(result.verdicts))
            else:
                terminal.print_result(result, out)
    for path in (html, csv, parquet):
        if path is not None:
            for result in results:
                target = path if len(results) == 1 else path.with_stem(f"{path.stem}-{result.arena.path.replace('/', '-')}")
                print(f"wrote {result.write(target)}", file=sys.stderr)
    if any(result.failed for result in results):
        raise typer.Exit(1)


def _reader_options(args: list[str], home: Any) -> dict[str, str]:
    """The arena's own options, `--name value` or `--name=value`, out of what typer did not know."""
    options: dict[str, str] = {}
    known = [option_name(name) for name in home.options()]
    rest = iter(args)
    for arg in rest:
        name, equals, value = arg.partition("=")
        if not name.startswith("-"):
            raise InputError(f'unexpected argument "{arg}"')
        if name not in known:
            raise unknown("option", name, [*known, *_compare_options()])
        options[name[2:]] = value if equals else _next(rest, name)
    return options


def _next(rest: Any, name: str) -> str:
    try:
        return str(next(rest))
    except StopIteration:
        raise InputError(f"{name}: expected a value") from None


def _compare_options() -> list[str]:
    command = typer.main.get_command(app).commands["compare"]  # type: ignore[attr-defined]
    return [option for parameter in command.params for option in parameter.opts if option.startswith("--")]


def _names(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def _settings(given: list[str]) -> dict[str, dict[str, str]]:
    """`technique.parameter=value`, each."""
    settings: dict[str, dict[str, str]] = {}
    for item in given:
        name, equals, value = item.partition("=")
        technique, dot, parameter = name.rpartition(".")
        if not (equals and dot and technique and parameter):
            raise InputError(f'--set "{item}": expected technique.parameter=value')
        settings.setdefault(technique, {})[parameter] = value
    return settings


def _bytes(text: str | None) -> int | None:
    if text is None:
        return None
    from armillary.cluster.units import UnitError, read

    try:
        return int(read(text, "size"))
    except UnitError as error:
        raise InputError(str(error), where="--memory") from None


def _share(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = 0.0
    if not 0 < share < 1:
        raise InputError(f'--until "{text}": expected a share such as 2% or 0.02')
    return share


def _name_host(wanted: bool) -> None:
    """Lets this process and its workers store the host's name."""
    if wanted:
        os.environ["ARMILLARY_NAME_HOST"] = "1"


def _writable(*paths: Path | None) -> None:
    """Refuses an output that cannot be written before hours are spent on it."""
    for path in paths:
        if path is not None and (path.is_dir() or not path.parent.is_dir()):
            raise InputError("expected a file in a folder that exists", where=str(path))


def _last_verdicts(store: Path | None) -> dict[str, tuple[str, float | None]]:
    """What the records say of claims, and over that what the user's own store says."""
    from armillary.records import records

    known = {v["claim"]: (str(v["state"]), v["figure"]) for record in records().values() for v in record.verdicts}
    from armillary.study.store import Store, default_store

    path = store or default_store()
    if store is None and not path.exists():
        return known
    with Store.read(path) as opened:
        return known | opened.last_verdicts()


def _command() -> str:
    return " ".join(["armillary", *sys.argv[1:]])


def _add_own_commands() -> None:
    """Adds the commands that ground packages and arenas bring in their `commands.py`, below the verbs."""
    files = [*catalogue.ROOT.glob("*/commands.py"), *catalogue.ROOT.glob("*/*/commands.py")]
    for file in sorted(files, key=lambda file: (len(file.parts), file)):
        module = importlib.import_module(".".join(("armillary", *file.relative_to(catalogue.ROOT).with_suffix("").parts)))
        for name, command in module.commands.items():
            if isinstance(command, typer.Typer):
                app.add_typer(command, name=name, rich_help_panel="Tools")
            else:
                app.command(name, rich_help_panel="Tools")(command)


_add_own_commands()


def main() -> None:
    """Runs the command line; every expected trouble is one line on stderr."""
    warnings.showwarning = lambda message, *_, **__: print(f"armillary: {one_line(str(message))}", file=sys.stderr)
    status: Any = 0
    try:
        status = app(standalone_mode=False)
    except InputError as error:
        more = f" (and {len(error.faults) - 1} more)" if len(error.faults) > 1 else ""
        status = _complain(f"{error.faults[0]}{more}", 2)
    except ClickException as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            print(error.format_message())  # type: ignore[attr-defined]
            status = 2
        else:
            status = _complain(one_line(error.format_message()), 2)  # type: ignore[attr-defined]
    except (KeyboardInterrupt, typer.Abort):
        status = _complain("stopped; what was done is kept", 130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 1
    except Exception as error:
        if type(error).__name__ != "StoreError":
            raise
        status = _complain(one_line(str(error)), 3)
    sys.exit(status if isinstance(status, int) else 0)


def _complain(line: str, status: int) -> int:
    print(f"armillary: {line}", file=sys.stderr)
    return status


if __name__ == "__main__":
    main()
