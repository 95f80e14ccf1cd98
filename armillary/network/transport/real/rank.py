"""One of the two processes of a real run: reads orders as JSON lines, and answers each with what its phases took.

Started as `python -m armillary.network.transport.real.rank publish|subscribe`.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

#: Seconds that a subscriber waits for a publisher, or the other way round.
PATIENCE_S = 60


def main() -> None:
    """Serves orders until its input ends."""
    from armillary import extras

    adios2 = extras.need("adios2")
    role = sys.argv[1]
    adios = adios2.Adios()
    say({"ready": True})
    for number, line in enumerate(sys.stdin):
        order = json.loads(line)
        io = adios.declare_io(f"io{number}")
        io.set_engine(order["engine"])
        if order["engine"] == "SST":
            io.set_parameters(
                {"RendezvousReaderCount": "1", "QueueLimit": "1", "QueueFullPolicy": "Block", "OpenTimeoutSecs": str(PATIENCE_S)}
            )
        else:
            io.set_parameters({"OpenTimeoutSecs": str(PATIENCE_S), "BeginStepPollingFrequencySecs": "0.001"})
        found = (publish if role == "publish" else subscribe)(adios2, io, order)
        say(found)


def say(found: dict[str, Any]) -> None:
    """Answers with one line."""
    sys.stdout.write(json.dumps(found) + "\n")
    sys.stdout.flush()


def publish(adios2: Any, io: Any, order: dict[str, Any]) -> dict[str, float]:
    """Simulates and publishes."""
    from armillary.network.transport.real.programs import PROGRAMS, State

    state = State.start(order["program"], order["size"])
    names, shape = PROGRAMS[order["program"]][0], [order["size"]] * 3
    computed = put = 0.0
    began = time.monotonic()
    with adios2.Stream(io, order["path"], "w") as stream:
        opened = time.monotonic() - began
        for _ in range(order["steps"]):
            at = time.monotonic()
            state.step()
            computed += time.monotonic() - at
            at = time.monotonic()
            stream.begin_step()
            for name, field in zip(names, state.fields, strict=True):
                stream.write(name, field, shape, [0, 0, 0], shape)
            stream.end_step()
            put += time.monotonic() - at
    return {"began": began, "ended": time.monotonic(), "opened": opened, "compute": computed, "move": put}


def subscribe(adios2: Any, io: Any, order: dict[str, Any]) -> dict[str, float]:
    """Takes and analyses."""
    from armillary.network.transport.real.programs import PROGRAMS, analyse

    names = PROGRAMS[order["program"]][0]
    computed = got = total = 0.0
    began = time.monotonic()
    with adios2.Stream(io, order["path"], "r") as stream:
        opened = time.monotonic() - began
        for _ in stream.steps():
            at = time.monotonic()
            fields = [stream.read(name) for name in names]
            got += time.monotonic() - at
            at = time.monotonic()
            total += analyse(order["program"], fields)
            computed += time.monotonic() - at
    return {"began": began, "ended": time.monotonic(), "opened": opened, "compute": computed, "move": got, "value": total}


if __name__ == "__main__":
    main()
