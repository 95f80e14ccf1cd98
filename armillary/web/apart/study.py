"""Runs the study that a run's folder asks for: `python -m armillary.web.apart.study FOLDER STORE`.

Only one study runs at a time, because studies that measure need the machine; the others wait for their turn, and for the store's own lock.
"""

from __future__ import annotations

import fcntl
import os
import sys
import time
from pathlib import Path

from armillary.study.store import StoreError
from armillary.study.study import compare, planned
from armillary.web.apart.holding import held, tell
from armillary.web.asked import Asked

#: Seconds between two looks whether another process still writes to the store.
LOOK_S = 2.0


def main(folder: Path, store: Path) -> int:
    """Runs the study, or leaves one line about why not in `refused`."""
    with held(folder) as ours:
        if not ours:
            return 3
        asked = Asked.from_json((folder / "asked.json").read_text(encoding="utf-8"))
        words = asked.words()
        tell(folder / "identity", planned(**words).identity)
        with (folder.parent / "turn").open("a") as turn:
            fcntl.flock(turn, fcntl.LOCK_EX)
            while True:
                try:
                    result = compare(**words, engine="auto", store=store, command=asked.command(), retry_failed=asked.retry_failed)
                    break
                except StoreError as error:
                    if "is writing to this store" not in str(error):
                        raise
                    time.sleep(LOOK_S)
        tell(folder / "ended", str(result.study))
    return 0


if __name__ == "__main__":
    status = main(Path(sys.argv[1]), Path(sys.argv[2]))
    sys.stdout.flush()
    os._exit(status)
