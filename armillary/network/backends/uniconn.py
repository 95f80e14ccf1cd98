"""Uniconn: one small set of calls for MPI, NCCL and shared memory, so that one program text runs on all of them.

Libraries differ in names, in how they synchronise (two-sided, ordered by a stream, one-sided with signals) and in what calls them (the host
or a kernel). A program here always gives both what a two-sided library needs (buffers and ranks) and what a one-sided one needs (the place
in the other's memory, a signal and its value). It uses `post` and `acknowledge`, in batches, and the collective calls. The backend is a
parameter, which is resolved once when the `Coordinator` is made; after that a call is the backend's own function, which looks up what it
knows about the buffers and makes one native call.

The paper's library is C++ on GPUs. Persistent requests on MPI, direct copies and signals between threads, and the modes of devices, which
are a cost model on virtual ranks only, are our design.

Uniconn: A Uniform High-Level Communication Library for Portable Multi-GPU Programming. IEEE CLUSTER 2025.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from armillary.arena import Claim, Gain, Kind, Level
from armillary.network.backends.twin import Twin


@dataclass(frozen=True)
class Uniconn(Twin):
    """The programs over `armillary.comm.Coordinator`, on every backend."""

    claims: ClassVar[tuple[Claim, ...]] = (
        Claim(
            "overhead", by=Level(at_most=3.0), on=(Kind("jacobi", "mpi"), Kind("jacobi", "threads")),
            says="under 3 % over the native library for Jacobi",
        ),
        Claim(
            "overhead", by=Level(at_most=2.0), on=(Kind("cg", "mpi"), Kind("cg", "threads")),
            says="under 2 % over the native library for conjugate gradients",
        ),
        Claim(
            "overhead", by=Level(at_most=3.0), on=(Kind("messages", "long", "mpi"), Kind("messages", "long", "threads")),
            honest=(None, 3.0), why="negligible is read as no more than what the paper allows Jacobi",
            says="negligible over the native library for messages of 64 KiB and more",
        ),
        Claim(
            "time", over="torch-distributed", by=Gain(ratio=(1.0, None)), on=Kind("messages", "mpi"),
            why="a rival of ours: what people use today for portable code, over Gloo in the same MPI job",
            says="no slower than torch.distributed with Gloo for messages and reductions over MPI", source="ours",
        ),
        Claim("overhead", by=Level(at_most=3.0), on=Kind("jacobi", "nccl"), says="under 3 % over NCCL for Jacobi"),
        Claim("overhead", by=Level(at_most=2.0), on=Kind("cg", "nccl"), says="under 2 % over NCCL for conjugate gradients"),
        Claim(
            "overhead", by=Level(at_most=3.0), on=Kind("jacobi"), needs="NVSHMEM and 64 GPUs",
            says="under 3 % over NVSHMEM, host and device side, up to 64 GPUs",
        ),
    )  # fmt: skip

    texts: ClassVar[str] = "armillary.network.backends.programs"
    backends: ClassVar[frozenset[str]] = frozenset({"mpi", "threads", "virtual", "nccl", "gloo"})

    def check(self, backend: str, program: str) -> None:
        """Takes any program if the backend can be used here."""
        super().check(backend, program.replace(":", "."))
