"""Calls a module of this folder as a process: JSON goes in on stdin, JSON comes back on stdout, and an error is a sentence."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from armillary.errors import InputError, one_line

#: Processes at a time, and the most bytes that one may answer.
AT_A_TIME, MOST_BYTES = 2, 16 << 20


class Apart:
    """Runs modules of `armillary.web.apart`, a few at a time, and remembers the answers that cannot change."""

    def __init__(self) -> None:
        self._turn = asyncio.Semaphore(AT_A_TIME)
        self._known: dict[tuple[str, str], Any] = {}

    async def once(self, module: str, given: Any, *, seconds: float) -> Any:
        """As `ask`, but a question that was answered before is not asked again."""
        key = (module, json.dumps(given, sort_keys=True))
        if key not in self._known:
            self._known[key] = await self.ask(module, given, seconds=seconds)
        return self._known[key]

    async def ask(self, module: str, given: Any, *, seconds: float) -> Any:
        """What `module` answers to `given`; InputError with its sentence if it refuses, or if it takes longer than `seconds`."""
        async with self._turn:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", f"armillary.web.apart.{module}", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL, start_new_session=True, limit=MOST_BYTES,
            )  # fmt: skip
            try:
                async with asyncio.timeout(seconds):
                    answer = await self._exchanged(process, json.dumps(given).encode())
            except TimeoutError:
                raise InputError(f"this took longer than {seconds:g} s and was ended") from None
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
        try:
            found = json.loads(answer)
        except ValueError:
            raise InputError("it failed without an answer") from None
        if "refused" in found:
            raise InputError(found["refused"])
        return found["answer"]

    async def _exchanged(self, process: asyncio.subprocess.Process, given: bytes) -> bytes:
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(ConnectionError):
            process.stdin.write(given)
            await process.stdin.drain()
            process.stdin.close()
        read = bytearray()
        while piece := await process.stdout.read(1 << 16):
            read += piece
            if len(read) > MOST_BYTES:
                raise InputError(f"it answered more than {MOST_BYTES >> 20} MiB")
        return bytes(read)


def answer(make: Callable[[Any], Any]) -> None:
    """The main function of a module: reads the question, prints what `make` says to it."""
    import warnings

    warnings.simplefilter("ignore")
    ours = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # What techniques print is not the answer.
    try:
        said: dict[str, Any] = {"answer": make(json.load(sys.stdin))}
    except InputError as error:
        said = {"refused": str(error.faults[0]) if error.faults else str(error)}
    except Exception as error:
        said = {"refused": one_line(f"{type(error).__name__}: {error}", 300)}
    json.dump(said, ours, default=str)
    ours.flush()
    os._exit(0)  # Threads of libraries have nothing more to say.
