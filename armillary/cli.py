"""The command line: list, show, compare, reproduce, open, diff, and the tools that packages bring.

Exit status: 0, 1 when some unit failed, 2 for bad input (one line on stderr), 3 for trouble with the store.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer
from typer.core import TyperCommand

from armillary import __version__, catalogue
from armillary.arena import SCALES
from armillary.errors import InputError, one_line, unknown
from armillary.parameters import option_name

if TYPE_CHECKING:
    from armillary.arena import Arena
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


def _places(incomplete: str) -> list[str]:
    fields = sorted({arena.field for arena in catalogue.arenas().values()})
    return [field for field in fields if field.startswith(incomplete)] + _arena_names(incomplete)


def _technique_names(incomplete: str) -> list[str]:
    return sorted({t for a in catalogue.arenas().values() for t in a.techniques if t.startswith(incomplete)})


def _everything(incomplete: str) -> list[str]:
    return _places(incomplete) + _technique_names(incomplete)


def _chosen_techniques(ctx: typer.Context, incomplete: str) -> list[str]:
    """Completes the last of several names with those of the arena that stands before it."""
    return [name for home in _arena_before(ctx) for name in _last_of(incomplete, home.techniques)]


def _chosen_cases(ctx: typer.Context, incomplete: str) -> list[str]:
    scale = ctx.params.get("scale") or "small"
    return [name for home in _arena_before(ctx) for name in _last_of(incomplete, [case.name for case in home.built_in(scale)])]


def _chosen_metrics(ctx: typer.Context, incomplete: str) -> list[str]:
    return [name for home in _arena_before(ctx) for name in _last_of(incomplete, home.metrics)]


def _arena_before(ctx: typer.Context) -> list[Arena]:
    """The arena on the line that is being completed, or none; the parser has not always got to it."""
    words = [ctx.params.get("arena"), *ctx.args, *os.environ.get("COMP_WORDS", "").split()]
    return [catalogue.arenas()[word] for word in words if word in catalogue.arenas()][:1]


def _last_of(incomplete: str, names: Iterable[str]) -> list[str]:
    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in names if name.startswith(last)]


def _scales() -> list[str]:
    return list(SCALES)


def _presets(incomplete: str) -> list[str]:
    from armillary import cluster

    return [name for name in cluster.presets() if name.startswith(incomplete)]


AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
StorePath = Annotated[Optional[Path], typer.Option("--store", help="The results' SQLite file.")]  # noqa: UP045
Engine = Annotated[str, typer.Option(help="auto, here, processes:N, dask, or a Dask scheduler's address (tcp://host:8786).")]
Scale = Annotated[str, typer.Option(help="Size of the built-in work: tiny, small or large.", autocompletion=_scales)]
Repeats = Annotated[Optional[int], typer.Option(help="Repeats of each unit; 5 by default when something is measured.")]  # noqa: UP045
Seed = Annotated[int, typer.Option(help="The study's seed: same seed, same simulated numbers.")]
Setting = Annotated[list[str], typer.Option("--set", help="A parameter: technique.name=value.", default_factory=list, show_default=False)]
Work = Annotated[
    list[Path], typer.Option(help="Your own file; options of the arena's reader may follow.", default_factory=list, show_default=False)
]
Open = Annotated[bool, typer.Option("--open", help="Show the report in the browser.")]
Html = Annotated[Optional[Path], typer.Option(help="Write the report to this HTML file.")]  # noqa: UP045
Fresh = Annotated[bool, typer.Option(help="Run everything again, stored or not.")]
KeepStale = Annotated[bool, typer.Option(help="Keep stored units whose code changed since.")]
RetryFailed = Annotated[bool, typer.Option(help="Run failed units again.")]
Timeout = Annotated[Optional[float], typer.Option(help="Seconds after which a unit is ended as failed.")]  # noqa: UP045
Memory = Annotated[Optional[str], typer.Option(help="Replace a worker process that has grown beyond this (for example 4GiB).")]  # noqa: UP045
Durable = Annotated[bool, typer.Option(help="Flush each result to disk: survives a loss of power.")]
NameHost = Annotated[bool, typer.Option("--name-host", help="Store this host's name as it is; it is hashed otherwise.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")]
Cluster = Annotated[
    Optional[str], typer.Option("--cluster", help="A preset or a cluster file to put the work on.", autocompletion=_presets)  # noqa: UP045
]
Techniques = Annotated[Optional[str], typer.Option(help="Comma-separated; all by default.", autocompletion=_chosen_techniques)]  # noqa: UP045
Cases = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(help="Comma-separated names or patterns (zipf-*); a telling few by default, '*' is all.", autocompletion=_chosen_cases),
]
Metrics = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(help="Comma-separated. If none of them is measured, units may run in parallel.", autocompletion=_chosen_metrics),
]


@app.callback(invoke_without_command=True)
def top(
    version: Annotated[bool, typer.Option("--version", "-V", help="Print the version.")] = False,
    no_color: Annotated[bool, typer.Option("--no-color", help="No colours, in any command; NO_COLOR does the same.")] = False,
) -> None:
    """Which published technique pays off on my cluster and my workload, and by how much?"""
    if version:
        print(f"armillary {__version__}")
        raise typer.Exit


@app.command("list")
def list_(
    name: Annotated[Optional[str], typer.Argument(help="Only this field or arena, with more about it.", autocompletion=_places)] = None,  # noqa: UP045
    as_json: AsJson = False,
    store: StorePath = None,
) -> None:
    """List the arenas with their questions and the marks of their claims; name a field or an arena for more."""
    from armillary import overview

    verdicts = _last_verdicts(store)
    if as_json:
        arenas = overview.chosen(name)[1]
        print(json.dumps({"arenas": {a.path: a.question for a in arenas}, "techniques": overview.rows(arenas, verdicts)}, indent=1))
    else:
        print(overview.text(name, verdicts))


@app.command()
def show(
    name: Annotated[str, typer.Argument(help="A technique, an arena or a field.", autocompletion=_everything)],
    as_json: AsJson = False,
) -> None:
    """Describe a technique (paper, claims, parameters, use), an arena (metrics, cases, files) or a field."""
    from armillary import describe

    if any(name == arena.field for arena in catalogue.arenas().values()):
        list_(name, as_json, None)
        return
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
    techniques: Techniques = None,
    cases: Cases = None,
    metrics: Metrics = None,
    scale: Scale = "small",
    cluster: Cluster = None,
    repeats: Repeats = None,
    seed: Seed = 0,
    engine: Engine = "auto",
    store: StorePath = None,
    html: Html = None,
    show_report: Open = False,
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
) -> None:
    """Put techniques to the same work: the built-in cases, or your own file."""
    from armillary.study import compare as run

    _name_host(name_host)
    home = catalogue.arena(arena)
    options = _reader_options(ctx.args, home)
    if options and not work:
        work = [home.work_among(options)]
    _writable(html, csv, parquet)
    result = run(
        arena, work=work, options=options, techniques=_names(techniques), settings=_settings(settings), cases=_names(cases),
        metrics=_names(metrics), scale=scale, cluster=cluster, repeats=repeats, seed=seed, engine=engine, store=store, fresh=fresh,
        keep_stale=keep_stale, retry_failed=retry_failed, timeout_s=timeout, memory_bytes=_bytes(memory), durable=durable,
        until=_share(until), seconds=seconds, quiet=quiet, command=_command(),
    )  # fmt: skip
    _give([result], as_json, html, csv, parquet, show=show_report)


@app.command()
def reproduce(
    settings: Setting,
    technique: Annotated[Optional[str], typer.Argument(help="The technique.", autocompletion=_technique_names)] = None,  # noqa: UP045
    field: Annotated[Optional[str], typer.Option(help="Every technique of a field.")] = None,  # noqa: UP045
    everything: Annotated[bool, typer.Option("--all", help="Every technique there is.")] = False,
    cases: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="Comma-separated names or patterns: only claims with no other case are judged. With --record, the others stay."),
    ] = None,
    scale: Scale = "small",
    cluster: Cluster = None,
    repeats: Repeats = None,
    seed: Seed = 0,
    engine: Engine = "auto",
    store: StorePath = None,
    html: Html = None,
    show_report: Open = False,
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
        settings=_settings(settings), record=record, cases=_names(cases),
    )  # fmt: skip
    results = [one(technique, **how)] if technique else reproduce_all(field, **how)
    _give(results, as_json, html, verdicts_only=True, show=show_report)


@app.command("open")
def open_(
    study: Annotated[Optional[int], typer.Argument(help="The study's number; the newest one by default.")] = None,  # noqa: UP045
    store: StorePath = None,
) -> None:
    """Show the report of a study that is in the store, in the browser."""
    from armillary.study import Result
    from armillary.study.store import default_store

    _open(Result.load(store or default_store(), study))


@app.command()
def diff(
    before: Annotated[Path, typer.Argument(help="A store.")],
    after: Annotated[Path, typer.Argument(help="Another store, of another machine or version.")],
    as_json: AsJson = False,
) -> None:
    """The same units in two stores: paired gains with intervals, and which verdicts changed."""
    from armillary.study import terminal
    from armillary.study.diff import differences

    found = differences(before, after)
    if as_json:
        print(json.dumps(found, indent=1))
        return
    out = terminal.console()
    out.print(terminal.table_of(found["gains"], "arena", "technique", "metric", "kind", ">gain", ">low", ">high", ">pairs"))
    for change in found["verdicts"]:
        out.print(f"{change['claim']}: {change['before']} became {change['after']}")


def _give(
    results: list[Result], as_json: bool, html: Path | None, csv: Path | None = None, parquet: Path | None = None,
    *, verdicts_only: bool = False, show: bool = False,
) -> None:  # fmt: skip
    """Prints and writes results; exit status 1 if a unit failed."""
    from armillary.study import terminal

    if as_json:
        print(json.dumps([r.json() for r in results] if len(results) != 1 else results[0].json(), indent=1))
    else:
        out = terminal.console()
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
    if show:
        for result in results:
            _open(result)
    if any(result.failed for result in results):
        raise typer.Exit(1)


def _open(result: Result) -> None:
    """Shows the report in the browser. Where there is none, the report's place is said."""
    import webbrowser

    from armillary.study.store import reports

    target = result.write(reports() / f"{result.arena.path.replace('/', '-')}-{result.study}.html")
    try:
        shown = webbrowser.open(target.as_uri())
    except webbrowser.Error:
        shown = False
    print(f"{'opened' if shown else 'no browser was found; the report is'} {target}", file=sys.stderr)


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
    if "--no-color" in sys.argv[1:]:
        # It holds for every command, wherever it stands.
        os.environ["NO_COLOR"] = "1"
        sys.argv[1:] = [word for word in sys.argv[1:] if word != "--no-color"]
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
