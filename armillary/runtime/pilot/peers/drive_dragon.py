"""Dragon on one node: a warm pool for functions, templates in process groups for executables. Run by its launcher, `dragon`."""

# mypy: ignore-errors
import multiprocessing
import time

import dragon  # noqa: F401  (it adds its start method)
from dragon.native.process import Popen, ProcessTemplate
from dragon.native.process_group import ProcessGroup
from work import batches, read, say, stamped, stamped_all


def group(command, count):
    """Exit statuses of so many processes of one group."""
    made = ProcessGroup(restart=False, ignore_error_on_exit=True)
    made.add_process(nproc=count, template=ProcessTemplate(target=command[0], args=tuple(command[1:]), cwd="/tmp", stdout=Popen.DEVNULL))
    made.init()
    made.start()
    made.join()
    codes = [code for _, code in made.inactive_puids]
    made.close()
    return codes


if __name__ == "__main__":
    started = time.monotonic()
    work = read()
    multiprocessing.set_start_method("dragon")
    import shutil

    command = [shutil.which(work["command"][0]), *work["command"][1:]]
    with multiprocessing.Pool(work["workers"]) as pool:
        pool.map(stamped, [0.0] * 4 * work["workers"])
        bootstrap = time.monotonic() - started
        began = time.monotonic()
        if work["batched"]:
            pending = [pool.apply_async(stamped_all, (batch,)) for batch in batches(work)]
        else:
            pending = [pool.apply_async(stamped, (work["seconds"],)) for _ in range(work["functions"])]
        codes, left = [], work["executables"]
        # A group starts all its members at once, so tasks that take long come in groups as large as the places.
        size = work["slots"] if work["seconds"] else max(1, left)
        while left > 0:
            codes += group(command, min(size, left))
            left -= size
        found = [one.get() for one in pending]
        stamps = [stamp for batch in found for stamp in batch] if work["batched"] else found
        say(bootstrap, began, time.monotonic(), codes, stamps)
