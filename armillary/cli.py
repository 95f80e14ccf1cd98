"""The command line: list, show, compare, reproduce, diff, cluster.

Exit status: 0, 1 when some unit failed, 2 for bad input (one line on stderr), 3 for trouble with the store.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from armillary import __version__, catalogue
from armillary.errors import InputError, one_line, unknown
from armillary.llm.cli import llm_app
from armillary.serving.deployment.cli import deploy_app, serve, smoke

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
cluster_app = typer.Typer(help="Describe machines: this one, presets, and files.", no_args_is_help=True)
app.add_typer(cluster_app, name="cluster")
app.add_typer(llm_app, name="llm")
app.add_typer(deploy_app, name="deploy")
app.command()(serve)
app.command()(smoke)


def _arena_names(incomplete: str) -> list[str]:
    return [path for path in catalogue.arenas() if path.startswith(incomplete)]


def _technique_names(incomplete: str) -> list[str]:
    return sorted({t for a in catalogue.arenas().values() for t in a.techniques if t.startswith(incomplete)})


AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
NoColor = Annotated[bool, typer.Option("--no-color", help="No colours; NO_COLOR does the same.")]
StorePath = Annotated[Optional[Path], typer.Option("--store", help="The results' SQLite file.")]  # noqa: UP045
Engine = Annotated[str, typer.Option(help="here, processes:N, dask, or a Dask scheduler's address (tcp://host:8786).")]
Scale = Annotated[str, typer.Option(help="Size of the built-in work: tiny, small or large.")]
Repeats = Annotated[Optional[int], typer.Option(help="Repeats of each unit; 5 by default when something is measured.")]  # noqa: UP045
Seed = Annotated[int, typer.Option(help="The study's seed: same seed, same simulated numbers.")]
Setting = Annotated[list[str], typer.Option("--set", help="A parameter: technique.name=value.", default_factory=list)]
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
    symbols = {"held": "●", "held in part": "◐", "not held": "○", "not tried": "–"}
    width = max(len(row["technique"]) for row in rows)
    for path, arena in arenas.items():
        print(f"{bold}{path}{off}  {arena.question}")
        for row in (r for r in rows if r["arena"] == path):
            said = "  ".join(f"{symbols[state]} #{claim.rpartition('#')[2]} {state}" for claim, state in sorted(row["verdicts"].items()))
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


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def compare(
    ctx: typer.Context,
    arena: Annotated[str, typer.Argument(help="The arena: field/arena.", autocompletion=_arena_names)],
    settings: Setting,
    work: Annotated[list[Path], typer.Option(help="Your own file; the arena's own reading options may follow.", default_factory=list)],
    techniques: Annotated[Optional[str], typer.Option(help="Comma-separated; all by default.")] = None,  # noqa: UP045
    cases: Annotated[Optional[str], typer.Option(help="Comma-separated names or patterns (zipf-*).")] = None,  # noqa: UP045
    metrics: Annotated[Optional[str], typer.Option(help="Comma-separated; none measured: units may run side by side.")] = None,  # noqa: UP045
    scale: Scale = "small",
    cluster: Cluster = None,
    repeats: Repeats = None,
    seed: Seed = 0,
    engine: Engine = "here",
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
    engine: Engine = "here",
    store: StorePath = None,
    html: Html = None,
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
    how: dict[str, Any] = dict(  # noqa: C408
        scale=scale, cluster=cluster, repeats=repeats, seed=seed, engine=engine, store=store, fresh=fresh, keep_stale=keep_stale,
        retry_failed=retry_failed, timeout_s=timeout, memory_bytes=_bytes(memory), durable=durable, quiet=quiet, command=_command(),
        settings=_settings(settings),
    )  # fmt: skip
    results = [one(technique, **how)] if technique else reproduce_all(field, **how)
    _give(results, as_json, no_color, html, verdicts_only=True)


@app.command("numerics", context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []})
def numerics(context: typer.Context) -> None:
    """`numerics assembly train`: measure assembly strategies on this machine, and train what chooses among them."""
    if context.args[:1] != ["assembly"]:
        raise InputError("expected: armillary numerics assembly train [--help]")
    from armillary.numerics.assembly.__main__ import main as assembly

    raise typer.Exit(assembly(context.args[1:]))


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


@cluster_app.command("here")
def cluster_here(
    measure: Annotated[bool, typer.Option(help="Measure memory bandwidth, arithmetic and loopback too (a few seconds).")] = False,
    toml: Annotated[bool, typer.Option("--toml", help="Print a cluster file to edit.")] = False,
    as_json: AsJson = False,
) -> None:
    """The machine this runs on."""
    from armillary import cluster

    _print_cluster(cluster.here(measure=measure), toml, as_json)


@cluster_app.command("list")
def cluster_list(as_json: AsJson = False) -> None:
    """The presets."""
    from armillary import cluster

    described = cluster.described()
    if as_json:
        print(json.dumps(described, indent=1))
        return
    width = max(map(len, described))
    for name, text in described.items():
        print(f"{name:<{width}}  {text}")


@cluster_app.command("show")
def cluster_show(
    name: Annotated[str, typer.Argument(help="A preset or a file.")],
    toml: Annotated[bool, typer.Option("--toml", help="Print it as a cluster file.")] = False,
    as_json: AsJson = False,
) -> None:
    """A preset or a file, as a table."""
    from armillary import cluster

    _print_cluster(cluster.find(name), toml, as_json)


@cluster_app.command("check")
def cluster_check(
    file: Annotated[Path, typer.Argument(help="A cluster file, slurm.conf, hwloc or SimGrid XML, Kubernetes nodes as JSON.")],
    follow: Annotated[bool, typer.Option(help="Follow Include lines of a slurm.conf.")] = False,
) -> None:
    """Every fault of a file, one line each; exit status 2 if there is any."""
    from armillary import cluster

    try:
        found = cluster.load(file, follow=follow)
    except InputError as error:
        for fault in error.faults:
            print(fault, file=sys.stderr)
        raise typer.Exit(2) from None
    print(f"{file}: a good description of {found.name}: {found.nodes} nodes, {found.cores} cores")


@cluster_app.command("diff")
def cluster_diff(a: str, b: str) -> None:
    """What differs between two clusters, in words."""
    from armillary import cluster

    print(cluster.diff(cluster.find(a), cluster.find(b)) or "no difference")


@cluster_app.command("fit")
def cluster_fit(file: Annotated[Path, typer.Argument(help="Ping-pong CSV (link,bytes,seconds) or OSU output.")]) -> None:
    """Latency and bandwidth per link class from your own measurements, as TOML."""
    from armillary import cluster

    print(cluster.fit(file))


@cluster_app.command("cost")
def cluster_cost(name: str, utilisation: Annotated[float, typer.Option(help="Share of the peak that is used.")] = 1.0) -> None:
    """What an hour costs: energy, embodied carbon, price."""
    from armillary import cluster

    print(cluster.find(name).cost_per_hour(utilisation))


def _print_cluster(found: Any, toml: bool, as_json: bool) -> None:
    print(found.to_toml() if toml else found.to_json() if as_json else found.summary())


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
    known = [f"--{name}" for name in home.options()]
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
    """What the store says of claims; an absent store says nothing."""
    from armillary.study.store import Store, default_store

    path = store or default_store()
    if store is None and not path.exists():
        return {}
    with Store.read(path) as opened:
        return opened.last_verdicts()


def _command() -> str:
    return " ".join(["armillary", *sys.argv[1:]])


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
