"""Runs one of accasim's dispatchers on a log, in a process of its own: `python batch_accasim.py FOLDER NODES FirstInFirstOut`.

The folder holds `work.swf`; `starts.json` is written there, job number to start in seconds. accasim was written for Python 3.5, so some
names that Python has moved since are put back before it is imported.
"""

from __future__ import annotations

import collections
import collections.abc
import json
import sys
from datetime import datetime
from pathlib import Path


def main(folder: Path, nodes: int, dispatcher: str) -> None:
    for name in ("Mapping", "MutableMapping", "Iterable", "Sequence", "Callable", "Set"):
        if not hasattr(collections, name):
            setattr(collections, name, getattr(collections.abc, name))
    from accasim.base import scheduler_class
    from accasim.base.allocator_class import FirstFit
    from accasim.base.simulator_class import Simulator

    system = {"groups": {"g0": {"core": 1, "mem": 1_000_000}}, "resources": {"g0": nodes}}
    (folder / "system.json").write_text(json.dumps({**system, "equivalence": {"processor": {"core": 1}}, "start_time": 0}))
    simulator = Simulator(
        str(folder / "work.swf"), str(folder / "system.json"), getattr(scheduler_class, dispatcher)(FirstFit()), scheduling_output=True, statistics_output=False,
        show_statistics=False, RESULTS_FOLDER_PATH=str(folder / "results"), LOG_LEVEL="ERROR",
    )  # fmt: skip
    simulator.start_simulation()
    zero, starts = datetime(1970, 1, 1), {}
    for line in next((folder / "results").glob("sched-*")).read_text().splitlines():
        first, _, last = line.split("__")
        start = datetime.strptime(last.split(";")[0], "%Y-%m-%d %H:%M:%S")
        starts[first.split(";")[0]] = (start - zero).total_seconds()
    (folder / "starts.json").write_text(json.dumps(starts))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
