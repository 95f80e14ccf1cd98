"""`VniService`: VNIs for jobs and claims, from Python or as the two webhooks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from armillary.errors import InputError

from . import hooks
from .database import HIGHEST, LOWEST, QUARANTINE_S, VniDatabase
from .published import PublishedDatabase


class VniService:
    """Hands out VNIs from a database at `path` (":memory:" for none); the options are those of `VniDatabase`.

    free_table=False searches as the published service does. published_finalize answers a second finalization with an error, as it does.
    """

    def __init__(
        self, path: str | Path, *, low: int = LOWEST, high: int = HIGHEST, quarantine_s: float = QUARANTINE_S,
        clock: Callable[[], float] | None = None, durable: bool = True, free_table: bool = True, published_finalize: bool = False,
    ) -> None:  # fmt: skip
        made = VniDatabase if free_table else PublishedDatabase
        self.database = made(path, low=low, high=high, quarantine_s=quarantine_s, clock=clock, durable=durable)
        self.published_finalize = published_finalize

    def __enter__(self) -> VniService:
        return self

    def __exit__(self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None) -> None:
        self.database.close()

    def acquire(self, owner: str, namespace: str) -> int:
        """The VNI of a job, which is given out now if it has none."""
        return self.database.acquire(owner, namespace, uid=owner)

    def claim(self, name: str, namespace: str) -> int:
        """The VNI of a claim, which jobs of the namespace may join."""
        return self.database.acquire(hooks.claim_name(name, "claim"), namespace, kind="claim", uid=f"claim/{name}")

    def join(self, claim: str, namespace: str, user: str) -> int:
        """The VNI of a claim, which `user` uses from now on."""
        return self.database.join(claim, namespace, user)

    def leave(self, claim: str, namespace: str, user: str) -> bool:
        """Ends the use of a claim; False if there was none."""
        return self.database.leave(claim, namespace, user)

    def release(self, owner: str, namespace: str) -> bool:
        """Gives the VNI of a job or a claim back; False if there is none, InUse if the claim has users."""
        return self.database.release(owner, namespace)

    def sync(self, document: object) -> hooks.Answer:
        """Answers /sync."""
        return hooks.sync(self.database, document)

    def finalize(self, document: object) -> hooks.Answer:
        """Answers /finalize."""
        if self.published_finalize and self._has_nothing(document):
            return hooks.Answer(500, {"error": "VNI not found"})
        return hooks.finalize(self.database, document)

    def _has_nothing(self, document: object) -> bool:
        try:
            gone = hooks.Decorated.of(document)
        except InputError:
            return False
        return gone.wanted in hooks.OWN and self.database.vni_of(f"vni-{gone.uid}", gone.namespace) is None

    def serve(self, port: int = 8842, **options: Any) -> None:
        """Serves both webhooks until it is interrupted; the options are those of `VniServer`."""
        from .server import serve

        serve(self, port=port, **options)
