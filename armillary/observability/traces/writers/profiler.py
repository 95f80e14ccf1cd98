"""A handler for PyTorch's profiler that writes Paraver traces directly.

    with torch.profiler.profile(on_trace_ready=paraver_handler("traces"), schedule=…) as profiler: …
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..readers.kineto import read_kineto


def paraver_handler(folder: str | Path, name: str = "trace") -> Callable[[Any], None]:
    """A function for `on_trace_ready`, which writes `folder/name-STEP.prv` with its `.pcf` and `.row` for each recorded window."""

    def write(profiler: Any) -> None:
        target = Path(folder)
        target.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="armillary-trace-") as room:
            written = Path(room) / "trace.json"
            profiler.export_chrome_trace(str(written))
            run = read_kineto(written, ranges=("user_annotation", "cpu_op"))
        run.to_paraver(target / f"{name}-{getattr(profiler, 'step_num', 0)}")

    return write
