"""Kinds of MPI calls and their numbers as Extrae gives them, which Paraver's configuration files for MPI expect."""

from __future__ import annotations

import re

#: Event types: point to point, collective, other, one-sided, and files.
POINT_TO_POINT, COLLECTIVE, OTHER, ONE_SIDED, INPUT_OUTPUT = range(50_000_001, 50_000_006)
_ONE_SIDED = re.compile(r"MPI_(Win_|R?Get(_accumulate)?$|R?Put$|R?Accumulate$|Fetch_and_op$|Compare_and_swap$|Rget_accumulate$)")

#: The numbers of calls by Extrae's numbering, from these firsts on.
_NUMBERED = {
    1: "Send Recv Isend Irecv Wait Waitall Bcast Barrier Reduce Allreduce Alltoall Alltoallv Gather Gatherv Scatter Scatterv Allgather "
    "Allgatherv Comm_rank Comm_size Comm_create Comm_dup Comm_split Comm_group Comm_free",
    30: "Scan Init Finalize Bsend Ssend Rsend Ibsend Issend Irsend Test Cancel Sendrecv Sendrecv_replace Cart_create",
    59: "Waitany Waitsome Probe Iprobe Win_create Win_free Put Get Accumulate Win_fence Win_start Win_complete Win_post Win_wait Win_test "
    "Win_lock Win_unlock Pack Unpack",
    80: "Reduce_scatter",
    123: "Start Startall Testall Testany Test_cancelled Testsome",
    141: "File_open File_close File_read File_read_all File_write File_write_all File_read_at File_read_at_all File_write_at "
    "File_write_at_all",
    154: "Ireduce Iallreduce Ibarrier Ibcast Ialltoall Ialltoallv Iallgather Iallgatherv Igather Igatherv Iscatter Iscatterv",
    168: "Reduce_scatter_block Ireduce_scatter_block Alltoallw Ialltoallw Get_accumulate",
}  # fmt: skip
NUMBERS = {f"MPI_{name}": first + k for first, names in _NUMBERED.items() for k, name in enumerate(names.split())}
#: Calls without a number in the list get one from here on, in the order of their names.
FIRST_FREE = 1000


def kind_of_call(name: str, usual: int) -> int:
    """The event type of a call that stands in the table whose calls are `usual`."""
    if name.startswith("MPI_File_"):
        return INPUT_OUTPUT
    if usual == OTHER and _ONE_SIDED.match(name):
        return ONE_SIDED
    return usual
