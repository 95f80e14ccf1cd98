"""One end of a link: a register that is written before every send, and the rules by which two of them agree.

A transaction carries versions both ways. a: OFFER(A) → b: stages A, HOLD(B) → a: stages B, COMMIT → b: shows A, DONE → a: shows B. What is
staged is invisible and can be dropped until COMMIT; after that both ends only go forward. Every message says (epoch, n); a message of n + 1
proves that n is over. No timer decides anything: a repeated message is recognised and answered with the phase that holds. On reconnection
each end asks for the other's register and follows `resume`. Two ends cannot both know of a commit in bounded time over a lossy link:
COMMITTING may last.

This is our design, after the bilateral link transactions that Why iCloud Fails (arXiv 2602.19433) proposes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Literal, NamedTuple

from ..world.protocol import HEADER_BYTES, Message
from .versions import Item, Version, VersionStore, digest

COUNT_BYTES = 12


class Phase(Enum):
    """Where a transaction stands at one end."""

    IDLE = "idle"
    OFFERED = "offered"
    HELD = "held"
    COMMITTING = "committing"
    DONE = "done"


Step = Literal["nothing", "reverse", "commit again", "complete", "answer done", "error"]


def resume(mine: Phase, theirs: Phase) -> Step:
    """Says what an end does on learning the other's phase of the same transaction; "error" cannot happen while registers are durable."""
    match mine, theirs:
        case (Phase.IDLE, Phase.IDLE) | (Phase.DONE, Phase.DONE):
            return "nothing"
        case (Phase.OFFERED, Phase.IDLE | Phase.HELD | Phase.OFFERED) | (Phase.IDLE | Phase.HELD, Phase.OFFERED):
            return "reverse"
        case (Phase.COMMITTING, Phase.HELD):
            return "commit again"
        case (Phase.COMMITTING, Phase.DONE) | (Phase.HELD, Phase.COMMITTING):
            return "complete"
        case (Phase.DONE, Phase.COMMITTING):
            return "answer done"
    return "error"


@dataclass(frozen=True)
class Register:
    """What is on disk for one end of a link; it is replaced whole."""

    epoch: int = 1
    n: int = 1
    phase: Phase = Phase.IDLE
    digest: str = ""
    staged: tuple[Item, ...] = ()
    outgoing: tuple[Item, ...] = ()
    #: The last transaction that this end finished as its second party, for repeats of its COMMIT.
    finished: tuple[int, str] = (0, "")
    #: How often this end has asked for the other's register; it is kept, or an answer from before a crash could pass for one after it.
    asked: int = 0

    def but(self, changes: Mapping[str, object]) -> Register:
        """Returns a copy with these fields changed; `dataclasses.replace` takes three times as long, and every message saves one."""
        made = object.__new__(Register)
        made.__dict__.update(self.__dict__)
        made.__dict__.update(changes)
        return made


class Word(NamedTuple):
    """What a link message says; `summary` is always the sender's own, as it is now."""

    epoch: int
    n: int
    summary: Mapping[str, int]
    items: tuple[Item, ...] = ()
    digest: str = ""
    phase: Phase = Phase.IDLE
    nonce: int = 0


class LinkEnd:
    """One end, which takes messages and returns those to send. `show` is called with what becomes visible and inserts it."""

    def __init__(self, store: VersionStore, stands: bool, show: Callable[[tuple[Item, ...]], list[Version]]) -> None:
        self.store = store
        #: Whether our offer stands when two cross; that of the lower replica id does.
        self.stands = stands
        self.show = show
        self.register = Register()
        self.theirs: dict[str, int] = {}
        self.errors = 0
        self.persisted = 0
        self._resuming = False
        #: What came while the other's register was not known yet.
        self._deferred: list[Message] = []

    def offer(self) -> list[Message]:
        """Proposes what the other end lacks, and nothing while a transaction is open or when it lacks nothing."""
        r = self.register
        if self.is_open:
            return []
        out = self.store.beyond(self.theirs)
        if not out:
            return []
        if r.phase is Phase.DONE and r.outgoing:
            # Ours of a transaction that is done here is staged there for certain, and shown on sight of the next message.
            staged = {dot for dot, _ in r.outgoing}
            out = tuple(item for item in out if item[0] not in staged)
        if not out:
            return []
        n = r.n if r.phase is Phase.IDLE else r.n + 1
        self._save(n=n, phase=Phase.OFFERED, outgoing=out, staged=(), digest="")
        return [self._word("offer", items=out)]

    def again(self) -> list[Message]:
        """Repeats what may have been lost."""
        if self._resuming:
            return [self._word("resume", nonce=self.register.asked)]
        if self.register.phase is Phase.OFFERED:
            return [self._word("offer", items=self.register.outgoing)]
        if self.register.phase is Phase.COMMITTING:
            return [self._word("commit", digest=self.register.digest)]
        return []

    def reconnect(self) -> list[Message]:
        """Asks for the other's register when the link is back, and does nothing else until it is known."""
        self._save(asked=self.register.asked + 1)
        self._resuming = True
        return self.again()

    @property
    def is_open(self) -> bool:
        """Whether something is unfinished here."""
        phase = self.register.phase
        return self._resuming or (phase is not Phase.IDLE and phase is not Phase.DONE)

    def receive(self, message: Message) -> list[Message]:
        """Takes one message; repeats and late ones change nothing."""
        word: Word = message.body
        r = self.register
        if word.epoch < r.epoch:
            return [self._word("state")]
        if word.epoch > r.epoch:
            self._save(epoch=word.epoch, n=word.n, phase=Phase.IDLE, staged=(), outgoing=(), digest="")
            self.theirs = {}
            self._resuming = False
        theirs = self.theirs
        if word.summary != theirs:
            for author, count in word.summary.items():
                if count > theirs.get(author, 0):
                    theirs[author] = count
        if message.kind == "resume":
            return self._asked_for(word)
        if message.kind == "register":
            return self._resumed(word) if self._resuming and word.nonce == self.register.asked else []
        if self._resuming:
            self._deferred = [*self._deferred[-7:], message]
            return []
        if word.n > self.register.n:
            self._over(word.n)
        if message.kind == "state":
            return []
        if word.n < self.register.n:
            return self._late(message.kind, word)
        match message.kind:
            case "offer":
                return self._offered(word)
            case "hold":
                return self._held(word)
            case "commit":
                return self._committed(word)
        return self._done(word)

    def _late(self, kind: str, word: Word) -> list[Message]:
        if kind == "commit" and self.register.finished == (word.n, word.digest):
            return [self._word("done", n=word.n, digest=word.digest)]
        return [self._word("state")] if kind in ("offer", "commit") else []

    def _over(self, n: int) -> None:
        """Catches up with the other end, which is at `n`: it has finished what we were committing and dropped what we offered or held."""
        if self.register.phase is Phase.COMMITTING:
            self.show(self.register.staged)
        self._save(n=n, phase=Phase.IDLE, staged=(), outgoing=(), digest="")

    def _offered(self, word: Word) -> list[Message]:
        r = self.register
        if r.phase is Phase.OFFERED and self.stands:
            return []
        if r.phase is Phase.HELD and r.staged == word.items:
            return [self._word("hold", items=r.outgoing, digest=r.digest)]
        if r.phase is Phase.DONE and r.staged == word.items:
            return [self._word("done", digest=r.digest)]
        if r.phase not in (Phase.IDLE, Phase.OFFERED):
            return []
        if not self.store.is_closed(word.items):
            self._save(n=r.n + 1, phase=Phase.IDLE, staged=(), outgoing=(), digest="")
            return [self._word("state")]
        back = self.store.beyond(word.summary)
        self._save(phase=Phase.HELD, staged=word.items, outgoing=back, digest=digest(word.items, back))
        return [self._word("hold", items=back, digest=self.register.digest)]

    def _held(self, word: Word) -> list[Message]:
        r = self.register
        if r.phase is Phase.OFFERED and digest(r.outgoing, word.items) == word.digest and self.store.is_closed(word.items):
            self._save(phase=Phase.COMMITTING, staged=word.items, digest=word.digest)
        if self.register.phase is Phase.COMMITTING and self.register.digest == word.digest:
            return [self._word("commit", digest=word.digest)]
        return []

    def _committed(self, word: Word) -> list[Message]:
        r = self.register
        if r.phase is Phase.HELD and r.digest == word.digest:
            self._finish()
        if self.register.phase is Phase.DONE and self.register.digest == word.digest:
            return [self._word("done", digest=word.digest)]
        return []

    def _finish(self) -> None:
        """Ends the transaction for the second party, which shows what was offered."""
        self.show(self.register.staged)
        self._save(phase=Phase.DONE, finished=(self.register.n, self.register.digest))

    def _done(self, word: Word) -> list[Message]:
        r = self.register
        if r.phase is not Phase.COMMITTING or r.digest != word.digest:
            return []
        self.show(r.staged)
        self._save(n=r.n + 1, phase=Phase.IDLE, staged=(), outgoing=(), digest="")
        return [self._word("state")]

    def _asked_for(self, word: Word) -> list[Message]:
        """Answers with the register. An offer of ours is withdrawn with the answer, or its HOLD could still arrive and commit it."""
        r = self.register
        answer = self._word("register", nonce=word.nonce, phase=r.phase, digest=r.digest)
        if r.phase is Phase.OFFERED:
            self._save(n=r.n + 1, phase=Phase.IDLE, staged=(), outgoing=(), digest="")
        return [answer]

    def _resumed(self, word: Word) -> list[Message]:
        self._resuming = False
        waiting, self._deferred = self._deferred, []
        out = self._learned(word)
        for message in waiting:
            out += self.receive(message)
        return out

    def _learned(self, word: Word) -> list[Message]:
        r = self.register
        if word.n > r.n:
            self._over(word.n)
        if word.n != r.n:
            return [self._word("state")]
        same = r.digest == word.digest or Phase.OFFERED in (r.phase, word.phase)
        step = resume(r.phase, word.phase) if same or r.phase is word.phase else "error"
        if step == "reverse":
            self._save(n=r.n + 1, phase=Phase.IDLE, staged=(), outgoing=(), digest="")
        elif step == "commit again":
            return self.again()
        elif step == "answer done":
            return [self._word("done", digest=r.digest)]
        elif step == "complete" and r.phase is Phase.HELD:
            self._finish()
            return [self._word("done", digest=r.digest)]
        elif step == "complete":
            return self._done(word)
        elif step == "error":
            return self._new_epoch()
        return []

    def _new_epoch(self) -> list[Message]:
        """Begins anew after a register was lost: all is summarised again, and nothing is deleted on the evidence of absence."""
        self.errors += 1
        self.theirs = {}
        self._save(epoch=self.register.epoch + 1, n=1, phase=Phase.IDLE, staged=(), outgoing=(), digest="")
        return self.reconnect()

    def _save(self, **changes: object) -> None:
        self.register = self.register.but(changes)
        self.persisted += 1

    def _word(self, kind: str, *, n: int | None = None, items: tuple[Item, ...] = (), **rest: object) -> Message:
        summary = self.store.summary()
        word = Word(self.register.epoch, self.register.n if n is None else n, summary, items, **rest)  # type: ignore[arg-type]
        size = HEADER_BYTES + COUNT_BYTES * len(summary)
        if not items:
            return Message(kind, word, size)
        return Message(kind, word, size + sum([v.bytes for _, v in items]), frozenset([v.path for _, v in items]))
