"""The built-in cases: applications with sizes, and random programs for simulated time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from armillary.arena import Case

if TYPE_CHECKING:
    import numpy as np

    from .readers.programs import Program

REAL, SIMULATED = frozenset({"real"}), frozenset({"simulated"})
#: Application, sizes, further kinds and further parameters, by scale.
Row = tuple[str, tuple[int, ...], dict[str, Any]]

TINY: tuple[Row, ...] = (
    ("cholesky", (128, 64), {}), ("heat", (64, 32, 2), {}), ("nbody", (2, 64, 1), {}), ("block", (2, 16, 32, 1), {}),
    ("mix", (4, 4, 20), {}), ("far", (4, 3, 1), {}), ("empty", (4, 4), {"api": "opencl"}),
)  # fmt: skip
SMALL: tuple[Row, ...] = (
    ("cholesky", (1024, 128), {}), ("cholesky", (2048, 256), {}), ("cholesky", (768, 128), {}), ("cholesky", (512, 64), {}),
    ("heat", (512, 64, 10), {}), ("heat", (1024, 128, 20), {}), ("heat", (1024, 256, 10), {}), ("heat", (512, 128, 10), {}),
    ("nbody", (8, 1024, 5), {"laps": 2}), ("nbody", (8, 512, 2), {}), ("nbody", (4, 512, 5), {}), ("nbody", (12, 256, 3), {}),
    ("block", (2, 64, 128, 2), {}), ("block", (4, 128, 256, 2), {}), ("block", (4, 64, 128, 2), {}), ("block", (6, 64, 256, 1), {}),
    ("block", (8, 32, 128, 2), {}),
    ("mix", (8, 16, 200), {}), ("mix", (8, 40, 50), {}), ("mix", (16, 12, 400), {}), ("mix", (32, 8, 100), {}),
    ("far", (8, 8, 2), {}), ("far", (16, 6, 3), {}), ("far", (8, 12, 1), {}), ("far", (32, 4, 2), {}),
    ("misfit", (1, 12, 4000), {}), ("misfit", (2, 8, 4000), {}), ("misfit", (2, 6, 8000), {}), ("misfit", (2, 12, 3000), {}),
    ("empty", (64, 8), {"api": "opencl"}), ("empty", (1, 400), {"api": "opencl"}), ("empty", (8, 60), {"api": "opencl"}),
    ("empty", (200, 2), {"api": "opencl"}),
)  # fmt: skip
#: What the first case of an application is at the large scale; all others stay.
LARGE = {"cholesky": (8192, 512), "block": (16, 1024, 1024, 2)}
#: Lengths of laps are chosen so that a default comparison ends within a minute on two cores.
LAPS = {"tiny": 1, "small": 5, "large": 11}
#: Chains, kernels per chain, devices' share of the kernels, of the random programs.
PROGRAMS = ((8, 40, 0.5), (32, 20, 0.5), (8, 40, 0.9), (64, 10, 0.8))


def built_in(scale: str) -> Iterator[Case]:
    """All cases of a scale; the first one of each application is also its tiny and its large one."""
    cores = len(os.sched_getaffinity(0))
    seen: dict[str, int] = {}
    for name, sizes, more in TINY if scale == "tiny" else SMALL:
        number = seen[name] = seen.get(name, 0) + 1
        own = LARGE.get(name, sizes) if scale == "large" and number == 1 else sizes
        yield _real(f"{name}-{number}", name, own, more, scale, cores)
    for number, (chains, length, share) in enumerate(PROGRAMS[:1] if scale == "tiny" else PROGRAMS):
        facts = {"chains": chains, "length": min(length, 6) if scale == "tiny" else length, "share": share, "workers": 2, "cores": 2}
        yield Case(f"program-{number + 1}", random_program, facts, SIMULATED)


def _real(case: str, name: str, sizes: tuple[int, ...], more: dict[str, Any], scale: str, cores: int) -> Case:
    facts = {"application": name, "sizes": sizes, "workers": "cores", "laps": LAPS[scale], **more}
    kinds = {name, "application"} if name != "empty" else {name}
    if name in ("cholesky", "nbody", "block", "mix", "heat"):
        kinds.add("two-libraries")
    if name == "far":
        kinds = {"application", "far-device"}
    if name == "misfit":
        kinds = {"application", "misfit"}
        facts["workers"] = str(max(sizes[0], 1))
    chains = sizes[0] if name in ("block", "mix", "far") else 0
    if chains and 2 * cores <= chains:
        kinds.add("few-workers")
    return Case(case, make_application, facts, frozenset(kinds) | REAL)


@dataclass
class Fresh:
    """How to make an application of a case; each technique gets its own, because it works in place."""

    name: str
    sizes: tuple[int, ...]
    seed: int
    how: dict[str, Any]
    #: The right result, computed by the first check and shared by the others.
    known: dict[str, Any] = field(default_factory=dict)

    def make(self) -> Any:
        """The application with its data at the start."""
        from .applications.make import application

        shared = {} if self.name == "empty" else {"known": self.known}
        return application(self.name, *self.sizes, seed=self.seed, **self.how, **shared)


def make_application(case: Case, rng: np.random.Generator) -> Fresh:
    """The application of a case, with its data drawn by seed."""
    p = case.parameters
    name, sizes = str(p["application"]), tuple(p["sizes"])
    how: dict[str, Any] = {}
    if name == "far":
        name, sizes, how = "mix", (*sizes[:2], 40), {"apis": ("sim", "numba"), "latency": 1e-3 * sizes[2]}
    elif name == "misfit":
        name, how = "mix", {"apis": ("opencl",)}
    elif name == "empty":
        how = {"api": p["api"]}
    return Fresh(name, sizes, int(rng.integers(2**31)), how)


def random_program(case: Case, rng: np.random.Generator) -> Program:
    """Chains of kernels of which a share goes to one device, the others to the host; times are drawn uniformly from 50 to 500 µs."""
    import numpy as np

    from .readers.programs import HOST, Program

    p = case.parameters
    chains, length = int(p["chains"]), int(p["length"])
    count = chains * length
    # In program order kernel `i` is number i // chains of chain i % chains.
    first = np.maximum(0, np.arange(count + 1) - chains).astype(np.int64)
    before = np.arange(max(0, count - chains), dtype=np.int64)
    api = (rng.integers(0, 1000, count) < 1000 * float(p["share"])).astype(np.int64)
    return Program(api, rng.integers(50_000, 500_001, count), np.ones(count, np.int64), first, before, (HOST, "device"))
