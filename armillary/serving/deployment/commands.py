"""`armillary serve`, `armillary smoke` and `armillary deploy`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


def serve(
    model: Annotated[str, typer.Option(help="A built-in model (tiny-llama, tiny-moe) or a Hugging Face folder.")] = "tiny-llama",
    port: Annotated[int, typer.Option(help="The port; 0 takes a free one and says which.")] = 0,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    name: Annotated[Optional[str], typer.Option(help="The model's name to clients.")] = None,  # noqa: UP045
    adapter: Annotated[Optional[list[Path]], typer.Option(help="A PEFT adapter's folder, served as its own model. Repeatable.")] = None,  # noqa: UP045
    key_variable: Annotated[str, typer.Option(help="The environment variable that holds the API key.")] = "ARMILLARY_API_KEY",
    key_file: Annotated[Optional[Path], typer.Option(help="A file that holds the API key.")] = None,  # noqa: UP045
    allow_host: Annotated[Optional[list[str]], typer.Option(help="A further name that clients may use in Host. Repeatable.")] = None,  # noqa: UP045
    open_: Annotated[bool, typer.Option("--open", help="Listen beyond this machine without a key.")] = False,
    endpoint_file: Annotated[Optional[Path], typer.Option(help="Write address and port here (0600) while it serves.")] = None,  # noqa: UP045
    max_seqs: Annotated[int, typer.Option(help="The most sequences in a batch.")] = 64,
    blocks: Annotated[int, typer.Option(help="Blocks of 16 tokens for keys and values.")] = 1024,
    most: Annotated[int, typer.Option(help="The most sequences that are running or waiting; further ones get status 429.")] = 256,
    seed: Annotated[int, typer.Option(help="Seed of a built-in model's weights.")] = 0,
    dtype: Annotated[str, typer.Option(help="float64 (the text does not depend on the batch) or float32.")] = "float64",
    threads: Annotated[int, typer.Option(help="Threads of the engine's arithmetic.")] = 1,
    drain_s: Annotated[int, typer.Option(help="Seconds that running requests get to finish after SIGTERM.")] = 25,
) -> None:
    """Serve an OpenAI-compatible endpoint on a tiny transformer that runs anywhere."""
    from .endpoint.server import Serving, announce, key_from
    from .endpoint.server import serve as run

    what = Serving(
        model, name, host, port, key_from(key_variable, key_file), open_, tuple(adapter or ()), seed, dtype, threads, max_seqs, blocks,
        most, drain_s, endpoint_file, tuple(allow_host or ()),
    )  # fmt: skip
    run(what, said=announce)


def smoke(
    url: Annotated[str, typer.Argument(help="The endpoint: http://host:port.")],
    model: Annotated[Optional[str], typer.Option(help="The model to ask; the first one by default.")] = None,  # noqa: UP045
    key_variable: Annotated[str, typer.Option(help="The environment variable that holds the API key.")] = "ARMILLARY_API_KEY",
    key_file: Annotated[Optional[Path], typer.Option(help="A file that holds the API key.")] = None,  # noqa: UP045
    bench: Annotated[Optional[Path], typer.Option(help="Load the endpoint too, and write vLLM's benchmark record here.")] = None,  # noqa: UP045
    requests: Annotated[int, typer.Option(help="Requests of the load.")] = 64,
    rate: Annotated[float, typer.Option(help="Requests per second (Poisson); inf sends all at once.")] = 8.0,
    prompt: Annotated[int, typer.Option(help="Characters of a prompt.")] = 128,
    output: Annotated[int, typer.Option(help="Tokens of an answer.")] = 32,
    seed: Annotated[int, typer.Option(help="Seed of arrivals and prompts.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Test whether an OpenAI-compatible endpoint really answers. The exit status is 1 if it fails a check."""
    import dataclasses
    import json

    from armillary.errors import InputError

    from .checking.benchmark import Load, summary, write
    from .checking.benchmark import bench as measure
    from .checking.smoke_test import smoke as ask
    from .endpoint.server import key_from

    load = Load(requests, rate, prompt, output, seed)
    load.check()
    if bench is not None and (bench.is_dir() or not bench.parent.is_dir()):
        raise InputError("expected a file in a folder that exists", where=str(bench))
    key = key_from(key_variable, key_file)
    found = ask(url, key=key, model=model)
    typer.echo(json.dumps([dataclasses.asdict(c) for c in found.checks], indent=1) if as_json else found.text())
    if bench is not None and found.passed:
        record = measure(url, load, key=key, model=found.model)
        write(record, bench)
        typer.echo(summary(record), err=as_json)
    if not found.passed:
        raise typer.Exit(1)


deploy_app = typer.Typer(help="One description of a GenAI service, rendered for every platform.", no_args_is_help=True)


@deploy_app.command("list")
def deploy_list() -> None:
    """List the descriptions that come with the package, and the targets."""
    from .description.files import built_in
    from .rendering.targets import TARGETS

    typer.echo(f"descriptions: {', '.join(built_in())}")
    typer.echo(f"targets: {', '.join(TARGETS)}")


@deploy_app.command("show")
def deploy_show(
    service: Annotated[
        str, typer.Argument(help="A description (TOML, YAML, JSON, Compose, a file with a vllm or docker line), or a built-in one.")
    ],
) -> None:
    """Show a description as TOML, also one that is read from a `docker run` or `vllm serve` line."""
    from .description.service import Service

    typer.echo(Service.read(service).to_toml(), nl=False)


@deploy_app.command("render")
def deploy_render(
    service: Annotated[str, typer.Argument(help="A description, or a built-in one.")],
    to: Annotated[str, typer.Option(help="Targets, comma-separated, or all.")] = "all",
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder to write into; each target gets a folder of its own.")] = Path(
        "deploy"
    ),
    force: Annotated[bool, typer.Option(help="Replace files that were edited since they were rendered.")] = False,
) -> None:
    """Write the files of the targets, and check them."""
    from armillary.errors import InputError

    from .checking.checks import check
    from .checking.read_back import honoured
    from .description.service import Service
    from .rendering.targets import TARGETS, render, target, write

    names = list(TARGETS) if to == "all" else [name.strip() for name in to.split(",") if name.strip()]
    if not names:
        raise InputError("--to: expected a target", where="deploy render")
    for name in names:
        target(name)
    found = Service.read(service)
    files = {name: render(found, name) for name in names}
    # The self-check comes before anything is written.
    for name in names:
        failed = [c for c in check(files[name], name) if c.passed is False]
        if failed:
            raise InputError(f"{failed[0].what}: {failed[0].said or 'failed'}", where=f"{name}: {failed[0].where}")
    for path in write(found, names, out, force=force):
        typer.echo(str(path))
    for name in names:
        for lost in (f for f in honoured(found, files[name], name) if not f.held):
            typer.echo(f"armillary: {name}: {lost.setting} is not in the output", err=True)


@deploy_app.command("check")
def deploy_check(
    folder: Annotated[Path, typer.Argument(help="A folder that `deploy render` wrote.")],
    as_json: AsJson = False,
) -> None:
    """Check the schemas, shell syntax and consistency of rendered files. The exit status is 1 if a check fails."""
    import dataclasses
    import json

    from .checking.checks import check_folder

    found = check_folder(folder)
    if as_json:
        typer.echo(json.dumps({name: [dataclasses.asdict(c) for c in checks] for name, checks in found.items()}, indent=1))
    else:
        for name, checks in found.items():
            made = [c for c in checks if c.passed is not None]
            typer.echo(f"{name}: {sum(bool(c.passed) for c in made)} of {len(made)} checks passed")
            for c in checks:
                if not c.passed:
                    typer.echo(f"  {'FAIL' if c.passed is False else 'left out'}  {c.where}: {c.what}{': ' + c.said if c.said else ''}")
    if any(c.passed is False for checks in found.values() for c in checks):
        raise typer.Exit(1)


@deploy_app.command("plan")
def deploy_plan(
    service: Annotated[str, typer.Argument(help="A description, or a built-in one.")],
    model: Annotated[str, typer.Option(help="The model's shape: a preset of `armillary llm list`, or a config.json.")],
    device: Annotated[str, typer.Option(help="A device of the catalogue.")] = "h100-sxm",
    trace: Annotated[Optional[Path], typer.Option(help="Requests: a public trace's file, or a benchmark's record.")] = None,  # noqa: UP045
    rate: Annotated[float, typer.Option(help="Without a trace: Poisson arrivals per second; lengths follow Azure's chats.")] = 10.0,
    requests: Annotated[int, typer.Option(help="Without a trace: the number of requests.")] = 2000,
    ttft: Annotated[float, typer.Option(help="Seconds to the first token.")] = 1.0,
    tpot: Annotated[float, typer.Option(help="Seconds for each further token.")] = 0.1,
    share: Annotated[float, typer.Option(help="The share of requests that must be in time.")] = 0.99,
    seed: Annotated[int, typer.Option(help="Seed of generated requests.")] = 0,
    out: Annotated[Optional[Path], typer.Option("--out", "-o", help="Write the scaled description to this TOML file.")] = None,  # noqa: UP045
) -> None:
    """Simulate how many replicas these requests and this goal need, and write `scale` into a description."""
    from armillary.errors import InputError
    from armillary.llm import Model, Requests, generate

    from .description.service import Service
    from .launching.sizing import Goal, size

    goal = Goal(ttft, tpot, share)
    goal.check()
    if out is not None and (out.is_dir() or not out.parent.is_dir()):
        raise InputError("expected a file in a folder that exists", where=str(out))
    if trace is None and not (0 < rate < 1e6 and 1 <= requests <= 1_000_000):
        raise InputError(f"--rate {rate:g}, --requests {requests}: expected a positive rate and 1 to 1,000,000 requests")
    work = Requests.read(str(trace)) if trace is not None else generate(requests, rate=rate, seed=seed)
    found = size(Service.read(service), work, Model.find(model), device, goal)
    for count, good in found.tried.items():
        typer.echo(f"{count:>4} replica{'s' if count > 1 else ' '}  {good:.2%} in time{'  <- enough' if count == found.replicas else ''}")
    typer.echo(f"{found.replicas} × {found.service.parallel.tensor * found.service.parallel.pipeline} {device}; simulated")
    if out is not None:
        out.write_text(found.service.to_toml())
        typer.echo(f"wrote {out}", err=True)


commands = {"serve": serve, "smoke": smoke, "deploy": deploy_app}
