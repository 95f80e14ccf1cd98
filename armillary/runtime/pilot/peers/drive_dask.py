"""Dask on this machine: warm worker processes, `client.map` and one `gather`, batches where the work is batched."""

# mypy: ignore-errors
import time

from dask.distributed import Client, LocalCluster
from work import batches, execute, read, say, stamped, stamped_all

if __name__ == "__main__":
    started = time.monotonic()
    work = read()
    # Places beyond the cores are threads: the tasks that fill them sleep or wait for a process.
    threads = -(-work["slots"] // work["workers"])
    with (
        LocalCluster(n_workers=work["workers"], threads_per_worker=threads, dashboard_address=None, host="127.0.0.1") as cluster,
        Client(cluster) as client,
    ):
        client.wait_for_workers(work["workers"])
        client.gather(client.map(stamped, [0.01] * work["slots"], pure=False))
        client.gather(client.map(execute, [["true"]] * work["slots"], pure=False))
        bootstrap = time.monotonic() - started
        began = time.monotonic()
        codes = client.map(execute, [work["command"]] * work["executables"], pure=False, batch_size=1000)
        if work["batched"]:
            found = client.gather(client.map(stamped_all, list(batches(work)), pure=False))
            stamps = [stamp for batch in found for stamp in batch]
        else:
            stamps = client.gather(client.map(stamped, [work["seconds"]] * work["functions"], pure=False, batch_size=1000))
        codes = client.gather(codes)
        say(bootstrap, began, time.monotonic(), codes, stamps)
