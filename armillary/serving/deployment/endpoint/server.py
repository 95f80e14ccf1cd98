"""Starts the endpoint (uvicorn): loads the model, announces the address, and on SIGTERM finishes running requests before it ends."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armillary import extras
from armillary.errors import InputError, one_line
from armillary.files import read_text
from armillary.listening import LOOPBACK, bounded_connection, listen

if TYPE_CHECKING:
    from armillary.llm.tiny.transformer import Tiny

#: What a server imports beyond the package itself.
PACKAGES = ("uvicorn", "starlette", "torch")


@dataclass(frozen=True)
class Serving:
    """The model to serve and the address to listen on. Without an `api_key`, everyone who reaches the endpoint is served."""

    model: str = "tiny-llama"
    name: str | None = None
    host: str = "127.0.0.1"
    port: int = 0
    api_key: str | None = None
    open: bool = False
    adapters: tuple[Path, ...] = ()
    seed: int = 0
    dtype: str = "float64"
    threads: int = 1
    max_seqs: int = 64
    blocks: int = 1024
    most: int = 256
    drain_s: int = 25
    endpoint_file: Path | None = None
    hosts: tuple[str, ...] = ()

    def check(self) -> None:
        """Raises InputError for what cannot be served."""
        if not 0 <= self.port <= 65535:
            raise InputError(f"port: found {self.port}; expected 0 to 65535 (0: any that is free)")
        if self.dtype not in ("float32", "float64"):
            raise InputError(f"dtype: found {self.dtype}; expected float32 or float64")
        if self.host not in LOOPBACK and self.api_key is None and not self.open:
            raise InputError(f"host {self.host}: whoever reaches it would be served without a key; set a key, or give --open")
        if self.api_key is not None and (not self.api_key.isprintable() or not self.api_key.strip()):
            raise InputError("the API key is empty or has characters that no header may carry")
        if not (1 <= self.max_seqs <= 1024 and 1 <= self.blocks <= 1 << 20 and 1 <= self.most <= 4096 and 1 <= self.threads <= 1024):
            raise InputError("max_seqs, blocks, most, threads: expected 1 to 1024, 1 to 1048576, 1 to 4096, 1 to 1024")

    def load(self) -> Tiny:
        """Returns the model with its adapters."""
        import torch

        from armillary.llm.tiny.transformer import BUILT_IN, Tiny

        torch.set_num_threads(self.threads)
        dtype = getattr(torch, self.dtype)
        model = Tiny.make(self.model, seed=self.seed, dtype=dtype) if self.model in BUILT_IN else Tiny.load(self.model, dtype=dtype)
        for folder in self.adapters:
            model.add_lora(folder)
        names = [self.name or model.name, *(lora.name for lora in model.loras)]
        if len(set(names)) < len(names):
            raise InputError(f"two models or adapters have the same name: {', '.join(sorted(names))}")
        return model


def serve(what: Serving, *, said: Callable[[str], Any] = print) -> None:
    """Serves until SIGTERM or SIGINT; `said` is called with the address as soon as requests are accepted."""
    what.check()
    for package in PACKAGES:
        extras.need(package)
    import uvicorn

    from .batcher import Batcher
    from .endpoint import Endpoint

    with listen(what.host, what.port) as listener:
        model = what.load()
        batcher = Batcher(model, max_seqs=what.max_seqs, blocks=what.blocks, most=what.most)
        batcher.start()
        name = what.name or model.name
        own = () if what.host in LOOPBACK else (socket.gethostname(), socket.getfqdn())
        hosts = frozenset(host.lower() for host in (what.host, *own, *what.hosts))
        endpoint = Endpoint(batcher, name, api_key=what.api_key, hosts=hosts)
        settings = uvicorn.Config(
            endpoint.app(), log_level="warning", access_log=False, lifespan="off", timeout_graceful_shutdown=what.drain_s, ws="none",
            server_header=False, http=bounded_connection(endpoint.limits.connections, endpoint.limits.headers_s), proxy_headers=False,
        )  # fmt: skip
        port = listener.getsockname()[1]
        shown = f"[{what.host}]" if ":" in what.host else what.host
        url = f"http://{shown}:{port}"
        with _endpoint_file(what.endpoint_file, {"url": url, "host": what.host, "port": port, "model": name, "pid": os.getpid()}):
            asyncio.run(_until_told(uvicorn.Server(settings), endpoint, listener, lambda: said(f"serving {name} on {url}")))
        batcher.stop()


async def _until_told(server: Any, endpoint: Any, listener: socket.socket, ready: Callable[[], None]) -> None:
    def told() -> None:
        server.force_exit = endpoint.draining  # the second signal ends at once
        endpoint.draining = server.should_exit = True

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told)
    server.capture_signals = contextlib.nullcontext  # uvicorn's own handlers would end the process by the signal instead of draining
    running = asyncio.ensure_future(server.serve(sockets=[listener]))
    while not server.started and not running.done():
        await asyncio.sleep(0.005)
    if server.started:
        ready()
    await running


@contextlib.contextmanager
def _endpoint_file(path: Path | None, content: dict[str, Any]) -> Iterator[None]:
    """Writes the endpoint's address to a file that only its owner can read, and removes it when the endpoint ends."""
    if path is None:
        yield
        return
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            json.dump(content, file)
        unfinished.replace(path)
    except OSError as problem:
        raise InputError(f"cannot be written: {one_line(str(problem), 100)}", where=str(path)) from None
    try:
        yield
    finally:
        with contextlib.suppress(OSError, ValueError):
            if json.loads(path.read_text()).get("pid") == os.getpid():
                path.unlink()


def key_from(variable: str, file: Path | None) -> str | None:
    """Returns the API key from a file or an environment variable, but never from the command line, which other users can read."""
    if file is not None:
        try:
            return read_text(file, limit=4096).strip()
        except InputError as problem:
            raise InputError(f"cannot read the API key: {one_line(str(problem), 200)}") from None
    return os.environ.get(variable) or None


def announce(line: str) -> None:
    """Prints a line and flushes it, because whoever started the server waits for it."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
