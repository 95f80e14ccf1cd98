"""Ray on this machine: warm workers, all tasks submitted before any result is asked for, batches where the work is batched."""

# mypy: ignore-errors
import time

import ray
from work import batches, execute, read, say, stamped, stamped_all

started = time.monotonic()
work = read()
slots = work["slots"]
ray.init(num_cpus=slots, include_dashboard=False, log_to_driver=False, configure_logging=False)
one, many, run = ray.remote(stamped), ray.remote(stamped_all), ray.remote(execute)
ray.get([one.remote(0.05) for _ in range(slots)])
ray.get([run.remote(["true"]) for _ in range(slots)])
bootstrap = time.monotonic() - started

began = time.monotonic()
codes = [run.remote(work["command"]) for _ in range(work["executables"])]
if work["batched"]:
    stamps = [stamp for batch in ray.get([many.remote(batch) for batch in batches(work)]) for stamp in batch]
else:
    stamps = ray.get([one.remote(work["seconds"]) for _ in range(work["functions"])])
codes = ray.get(codes)
say(bootstrap, began, time.monotonic(), codes, stamps)
ray.shutdown()
