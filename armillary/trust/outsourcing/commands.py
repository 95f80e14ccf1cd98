"""`armillary 2g2t`: sets a client up, serves its sums, asks for one and checks it, and says whether that pays."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Multi-scalar multiplications on ristretto255 that somebody else computes.", no_args_is_help=True)
Bases = Annotated[Path, typer.Option(help="The bases: concatenated encodings (.r255), JSON or CSV of hexadecimal ones.")]
Public = Annotated[Path, typer.Option(help="The shifted bases, which are public.")]
Secret = Annotated[Path, typer.Option(help="The client's secrets.")]
Port = Annotated[int, typer.Option(help="The port; 0 takes a free one and says which.")]
Host = Annotated[str, typer.Option(help="The address.")]


@app.command("setup")
def setup(
    bases: Bases, public: Public, secret: Secret,
    seeded: Annotated[bool, typer.Option("--seeded", help="Keep a seed in place of 32 bytes per base.")] = False,
) -> None:  # fmt: skip
    """Draw fresh secrets for these bases, and write them and the shifted bases."""
    from .readers.containers import read_bases
    from .two_g2t import Client

    client, shifted = Client.setup(read_bases(bases), seeded=seeded)
    # The secrets first: shifted bases whose secrets could not be written are of no use.
    client.save(secret)
    shifted.save(public)
    typer.echo(f"{client.terms:,} bases; the client keeps {client.state_bytes:,} secret bytes")


@app.command("serve")
def serve(
    bases: Bases, public: Public, port: Port = 8855, host: Host = "127.0.0.1",
    threads: Annotated[int, typer.Option(help="Threads of one sum.")] = 1,
    connections: Annotated[int, typer.Option(help="The most that are open; others are told that the server is busy.")] = 16,
    queries: Annotated[int, typer.Option(help="The most that are received or computed at a time.")] = 4,
    idle: Annotated[float, typer.Option(help="Seconds after which a silent connection is closed.")] = 30.0,
) -> None:  # fmt: skip
    """Answer queries until interrupted. Anybody who can connect can ask; nothing secret is here."""
    import contextlib

    from .delegation.server import Server
    from .readers.containers import read_bases
    from .service.tcp import Service

    server = Server(read_bases(bases), read_bases(public), threads=threads)
    service = Service(server, host=host, port=port, connections=connections, queries=queries, idle_s=idle)
    with contextlib.suppress(KeyboardInterrupt), service:
        typer.echo(f"serving sums over {len(server.bases):,} bases on {service.address[0]} port {service.address[1]}")
        service.wait()


@app.command("ask")
def ask(
    secret: Secret,
    scalars: Annotated[Path, typer.Option(help="The scalars: 32 bytes each, little-endian; raw, JSON or CSV.")],
    port: Port = 8855, host: Host = "127.0.0.1",
    timeout: Annotated[float, typer.Option(help="Seconds within which the reply must come.")] = 60.0,
) -> None:  # fmt: skip
    """Ask for a sum, check it, and print its encoding. The exit status is 1 if the server cheats or gives no answer."""
    from .readers.containers import read_scalars
    from .service.remote import Refused, RemoteServer
    from .two_g2t import Cheated, Client, Spent

    client, x = Client.load(secret), read_scalars(scalars)
    try:
        with RemoteServer((host, port), timeout_s=timeout) as server:
            found = client.verify(x, server.answer(x))
    except (Refused, Spent) as problem:
        typer.echo(f"no answer: {problem}", err=True)
        raise typer.Exit(1) from None
    except Cheated as problem:
        # The file counts rejections, since each one rules out a multiplier.
        client.save(secret)
        typer.echo(f"the server cheats: {problem}", err=True)
        raise typer.Exit(1) from None
    typer.echo(bytes(found).hex())


@app.command("plan")
def plan(
    terms: Annotated[int, typer.Argument(help="Terms of one sum.")],
    round_trip: Annotated[float, typer.Option(help="Seconds to the server and back.")] = 0.001,
    bandwidth: Annotated[float, typer.Option(help="Bytes per second towards the server.")] = 125e6,
    cores: Annotated[float, typer.Option(help="Cores of the server, as fast as one of this machine.")] = 16.0,
    derived: Annotated[bool, typer.Option("--derived", help="The server derives the scalars itself, so they are not sent.")] = False,
) -> None:
    """Measure this machine, and say whether sums of so many terms should be outsourced."""
    from .planning.calculator import Network, choose, measured_costs

    costs = measured_costs(terms)
    found = choose(terms, costs, Network(round_trip, bandwidth, scalars=not derived), server_cores=cores)
    typer.echo(f"a sum here takes {_ms(found.local_s)}; a check takes {_ms(found.check_s)} of the client's CPU")
    typer.echo(f"asking takes {_ms(found.outsourced_s)} in all, after a setup of {_ms(found.setup_s)}")
    typer.echo(_verdict("the client's work", found.queries_of_work) + "; " + _verdict("waiting", found.queries_of_time))
    if costs.scaled:
        typer.echo("measured with fewer terms and scaled")


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:,.3g} ms"


def _verdict(what: str, queries: float) -> str:
    return f"it never saves {what}" if queries == float("inf") else f"it saves {what} from query {queries:,.0f} on"


commands = {"2g2t": app}
