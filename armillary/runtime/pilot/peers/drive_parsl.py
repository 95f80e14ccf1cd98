"""Parsl's HighThroughputExecutor on this machine: warm workers that fetch ahead, batches where the work is batched."""

# mypy: ignore-errors
import tempfile
import time

import parsl
from parsl.config import Config
from parsl.executors import HighThroughputExecutor
from parsl.providers import LocalProvider
from work import batches, execute, read, say, stamped, stamped_all

started = time.monotonic()
work = read()
executor = HighThroughputExecutor(
    label="here", max_workers_per_node=work["slots"], cores_per_worker=1e-3, address="127.0.0.1", encrypted=False,
    prefetch_capacity=0 if work["seconds"] else 100, provider=LocalProvider(init_blocks=1, min_blocks=1, max_blocks=1),
)  # fmt: skip
config = Config(executors=[executor], run_dir=tempfile.mkdtemp(), strategy="none", usage_tracking=0, initialize_logging=False)
with parsl.load(config):
    one, many, run = parsl.python_app(stamped), parsl.python_app(stamped_all), parsl.python_app(execute)
    [future.result() for future in [one(0.05) for _ in range(work["slots"])]]
    [future.result() for future in [run(["true"]) for _ in range(work["slots"])]]
    bootstrap = time.monotonic() - started
    began = time.monotonic()
    codes = [run(work["command"]) for _ in range(work["executables"])]
    if work["batched"]:
        stamps = [stamp for future in [many(batch) for batch in batches(work)] for stamp in future.result()]
    else:
        stamps = [future.result() for future in [one(work["seconds"]) for _ in range(work["functions"])]]
    codes = [future.result() for future in codes]
    say(bootstrap, began, time.monotonic(), codes, stamps)
