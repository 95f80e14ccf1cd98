"""Errors between ranks."""

from __future__ import annotations


class CommError(Exception):
    """Something went wrong between ranks. Bad arguments raise `InputError` instead."""


class Truncated(CommError):
    """A message was longer than the buffer that received it. `received` is None where the MPI library does not report the length."""

    def __init__(self, received: int | None, capacity: int) -> None:
        self.received = received
        self.capacity = capacity
        size = "a longer message" if received is None else f"a message of {received} bytes"
        super().__init__(f"{size} for a buffer of {capacity} bytes")


class Aborted(CommError):
    """Another rank failed, so this rank ends at its next call."""


class Deadlock(CommError):
    """Every rank that has not ended waits for another one. The message says what each of them waits for."""


class Killed(CommError):
    """The rank was ended by `Communicator.kill`, which simulates a fault."""


class RankFailed(CommError):
    """A rank ended with an exception or was killed; the error says which rank, what it raised, and where.

    `exception` is the exception itself if the rank ran in this process, and otherwise a `CommError` with its one-line text. It is also the
    cause of this error.
    """

    def __init__(self, rank: int, exception: BaseException, trace: str = "") -> None:
        self.rank = rank
        self.exception = exception
        self.trace = trace
        said = f"{type(exception).__name__}: {exception}" if type(exception) is not CommError else str(exception)
        super().__init__(f"rank {rank}: {said}" + (f"\n{trace}" if trace else ""))
