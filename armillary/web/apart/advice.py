"""Advises as a folder asks: `python -m armillary.web.apart.advice FOLDER STORE`. It leaves what it says meanwhile, and the advice."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from armillary.advice import advise
from armillary.web.apart.holding import held, tell

if TYPE_CHECKING:
    from armillary.cluster import Cluster


def main(folder: Path, store: Path) -> int:
    """Writes `advice.json` and `advice.html` into the folder, or one line about why not into `refused`."""
    with held(folder) as ours:
        if not ours:
            return 3
        asked = json.loads((folder / "asked.json").read_text(encoding="utf-8"))
        with (folder / "said").open("a", encoding="utf-8") as said:

            def say(text: str) -> None:
                said.write(f"{text}\n")
                said.flush()

            found = advise(
                _cluster(asked["cluster"]), runs=asked["runs"], work=asked["work"], today=asked["today"], seconds=float(asked["seconds"]),
                store=store, say=say,
            )  # fmt: skip
        found.write(folder / "advice.html")
        found.write(folder / "advice.json")
        tell(folder / "ended", "yes")
    return 0


def _cluster(text: str) -> Cluster | str:
    from armillary import cluster

    return cluster.loads(text, files=False) if "\n" in text else text


if __name__ == "__main__":
    status = main(Path(sys.argv[1]), Path(sys.argv[2]))
    sys.stdout.flush()
    os._exit(status)
