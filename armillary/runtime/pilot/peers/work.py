"""What every driver reads from its command line and prints at its end, and the bodies of tasks. Imports nothing of Armillary."""

# mypy: ignore-errors
import json
import subprocess
import sys
import time


def read():
    """executables, functions, batched, seconds, command, workers, slots."""
    return json.loads(sys.argv[1])


def stamped(seconds):
    """The body of a function task."""
    began = time.monotonic()
    if seconds:
        time.sleep(seconds)
    return began


def stamped_all(many):
    """A batch of them."""
    return [stamped(seconds) for seconds in many]


def execute(command):
    """The exit status of a command."""
    return subprocess.call(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


def batches(work):
    """The arguments of all functions, four batches per worker."""
    size = max(1, -(-work["functions"] // (4 * work["workers"])))
    left = work["functions"]
    while left > 0:
        yield [work["seconds"]] * min(size, left)
        left -= size


def say(bootstrap, began, ended, codes, stamps):
    """The last line of a driver's output."""
    found = {
        "bootstrap": bootstrap, "makespan": ended - began, "done": sum(code == 0 for code in codes) + len(stamps),
        "latency": [max(0.0, stamp - began) for stamp in stamps],
    }  # fmt: skip
    print("\n" + json.dumps(found), flush=True)  # noqa: T201
