"""A peer in a process of its own: its threads, its memory and its compiler stay out of this one.

One process is kept per peer, so that a repeat of a unit finds its program compiled.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from armillary.arena import NotForThisCase

from ..workload import Problem
from .measured import CALLS, Measured


class Peer:
    """A child process that answers requests."""

    def __init__(self, module: str) -> None:
        self._module = module
        self._process: subprocess.Popen[str] | None = None

    def measure(self, problem: Problem, request: dict[str, Any], changes: int) -> Measured:
        """Lets the child differentiate a problem."""
        with tempfile.TemporaryDirectory(prefix="armillary-peer-") as name:
            folder = Path(name)
            arrays = {key: value for key, value in problem.arguments.items() if isinstance(value, np.ndarray)}
            static = {key: value for key, value in problem.arguments.items() if not isinstance(value, np.ndarray)}
            np.savez(folder / "arguments.npz", **arrays)  # type: ignore[arg-type]
            asked = {**request, "folder": name, "static": static, "active": problem.active, "limit": problem.limit, "calls": CALLS}
            answer = self._ask(asked)
            if "declined" in answer:
                raise NotForThisCase(answer["declined"])
            if "failed" in answer:
                raise RuntimeError(answer["failed"])
            with np.load(folder / "gradients.npz", allow_pickle=False) as stored:
                gradients = {key: stored[key] for key in stored.files}
        return Measured(gradients, answer["gradient_s"], answer["forward_s"], answer["compile_s"], answer["extra_bytes"], changes)

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        if self._process is None or self._process.poll() is not None:
            environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
            command = [sys.executable, "-W", "ignore", "-m", self._module]
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
            )
            atexit.register(self.close)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            self._process = None
            raise RuntimeError(f"{self._module} ended without an answer")
        found: dict[str, Any] = json.loads(line)
        return found

    def close(self) -> None:
        """Ends the child."""
        if self._process is not None and self._process.poll() is None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            try:
                self._process.wait(5)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._process = None
