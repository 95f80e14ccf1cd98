"""How replicas that join states tell each other: changes at once, then lists of what each has, until nobody wants anything.

A key's state can be joined with another replica's state of it, in any order and any number of times. A local change is pushed to
everyone who can be reached. What a peer is not known to have is listed to it again (summaries only), and it asks for what it lacks;
what it does not ask for it has. What a peer sent or listed itself, it has too. So nothing rests on a message that arrives, and a repeat
changes nothing.

A. Demers et al., Epidemic algorithms for replicated database maintenance, PODC 1987; the messages are our design.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Generic, TypeVar

from ..world.protocol import HEADER_BYTES, Act, Content, Host, Message

State = TypeVar("State")
Summary = TypeVar("Summary")


class AntiEntropyNode(ABC, Generic[State, Summary]):
    """A replica that keeps a state for each key; the protocol says what a state is and how two are joined."""

    def __init__(self, host: Host, retry_s: float) -> None:
        self.host, self.retry_s = host, retry_s
        self.states: dict[str, State] = {}
        #: Keys whose state changed since somebody last emptied this.
        self.changed: set[str] = set()
        #: For each peer, the keys that it may lack.
        self.pending: dict[str, dict[str, None]] = {peer: {} for peer in host.peers}
        self._up = dict.fromkeys(host.peers, False)
        self._listing = dict.fromkeys(host.peers, False)

    @abstractmethod
    def change(self, act: Act) -> list[str]:
        """Does what the user asks; the keys that it touched."""

    @abstractmethod
    def join(self, key: str, theirs: State) -> None:
        """Takes another replica's state in, and calls `touch` if that changed anything."""

    @abstractmethod
    def summary(self, key: str) -> Summary:
        """Returns what tells whether another state lacks something of ours."""

    @abstractmethod
    def lacks(self, key: str, summary: Summary) -> bool:
        """Returns whether a state with that summary has something that ours has not."""

    @abstractmethod
    def state_bytes(self, state: State) -> int:
        """Returns a state's size on the wire, in bytes."""

    @abstractmethod
    def summary_bytes(self, summary: Summary) -> int:
        """Returns a summary's size on the wire, in bytes."""

    @abstractmethod
    def contents(self, place: str) -> Iterable[Content]:
        """Yields the contents that this key shows."""

    def paths(self, key: str) -> Iterable[str]:
        """Yields the paths whose contents a message with this key carries."""
        return (key,)

    def touch(self, key: str) -> None:
        """Notes that a key's state changed."""
        self.changed.add(key)
        for pending in self.pending.values():
            pending[key] = None

    def local(self, act: Act) -> bool:
        """Changes at once, and tells everyone who can be reached."""
        touched = self.change(act)
        if touched:
            message = self._carrying(touched)
            for peer in self.host.peers:
                if self._up[peer]:
                    self.host.send(peer, message)
                    self._list_later(peer)
        return True

    def _carrying(self, keys: Iterable[str]) -> Message:
        body = tuple((key, self.states[key]) for key in keys if key in self.states)
        size = HEADER_BYTES + sum(len(key) + self.state_bytes(state) for key, state in body)
        return Message("push", body, size, frozenset(path for key, _ in body for path in self.paths(key)))

    def _list_later(self, peer: str) -> None:
        if not self._listing[peer]:
            self._listing[peer] = True
            self.host.after(self.retry_s, self._list, peer)

    def _list(self, peer: str) -> None:
        """Sends the summaries of what the peer may lack; again, until it is known to have them."""
        self._listing[peer] = False
        if self.pending[peer] and self._up[peer]:
            body = tuple((key, self.summary(key)) for key in self.pending[peer])
            size = HEADER_BYTES + sum(len(key) + self.summary_bytes(summary) for key, summary in body)
            self.host.send(peer, Message("have", body, size))
            self._list_later(peer)

    def receive(self, sender: str, message: Message) -> None:
        """Takes states, lists of summaries, and wants."""
        pending = self.pending[sender]
        if message.kind == "push":
            for key, state in message.body:
                self.join(key, state)
                if self.states[key] == state:
                    pending.pop(key, None)
            for peer, keys in self.pending.items():
                if keys:
                    self._list_later(peer)
        elif message.kind == "have":
            wanted = []
            for key, summary in message.body:
                if self.lacks(key, summary):
                    wanted.append(key)
                elif key in pending and self.summary(key) == summary:
                    del pending[key]
            self.host.send(sender, Message("want", (message.body, tuple(wanted)), HEADER_BYTES + sum(map(len, wanted))))
        elif message.kind == "want":
            listed, wanted = message.body
            missing = set(wanted)
            for key, summary in listed:
                if key not in missing and key in pending and self.summary(key) == summary:
                    del pending[key]
            if wanted:
                self.host.send(sender, self._carrying(wanted))
                self._list_later(sender)

    def link(self, peer: str, up: bool) -> None:
        """Lists what the peer may lack when the link is back."""
        self._up[peer] = up
        if up:
            self._list(peer)

    def round(self) -> None:
        """Lists what any peer may lack."""
        for peer in self.host.peers:
            self._list(peer)

    def is_waiting(self) -> bool:
        """Returns whether a peer may lack something."""
        return any(self.pending.values())

    def is_acked(self, key: str) -> bool:
        """Returns whether some peer is known to have this key as it is here."""
        return any(key not in pending for pending in self.pending.values())
