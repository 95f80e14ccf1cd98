"""The servers of all stars, where no user sits and which tell the clients that there is something new."""

from __future__ import annotations

from collections.abc import Mapping

from ..world.protocol import Act, Content, Host, Message, Shown


class StarServer:
    """The middle of a star. It keeps everything and shows nothing; the clients start whatever happens."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self._up = dict.fromkeys(host.peers, False)

    def local(self, act: Act) -> bool:
        """Refuses, because no user sits here."""
        return False

    def link(self, peer: str, up: bool) -> None:
        """Notes the link's state; a client that is back asks by itself."""
        self._up[peer] = up

    def round(self) -> None:
        """Does nothing, because the clients start."""

    def status(self) -> str:
        """Says that it is in sync; nobody asks."""
        return "in sync"

    def look(self, path: str) -> tuple[Shown, ...]:
        """Shows nothing, because nobody looks here."""
        return ()

    def tree(self) -> Mapping[str, tuple[Content, ...]]:
        """Shows nothing, because nobody looks here."""
        return {}

    def safe_elsewhere(self, path: str) -> bool:
        """Returns False, because the server keeps everything and never drops a content that others have."""
        return False


class TellingServer(StarServer):
    """A server that tells a client once that there is news, and again until the client has seen it."""

    def __init__(self, host: Host, retry_s: float) -> None:
        super().__init__(host)
        self._retry_s = retry_s
        #: Whom we have told that there is news and who has not asked for it yet; and for whom a repetition is due.
        self._told = dict.fromkeys(host.peers, False)
        self._telling = dict.fromkeys(host.peers, False)

    def news(self) -> Message:
        """Returns what a client is told."""
        raise NotImplementedError

    def is_behind(self, peer: str) -> bool:
        """Returns whether the client is not known to have seen the newest."""
        raise NotImplementedError

    def tell(self, peer: str) -> None:
        """Sends the news, unless the client was told and has not answered yet."""
        if self._up[peer] and not self._told[peer]:
            self._told[peer] = True
            self.host.send(peer, self.news())
            if not self._telling[peer]:
                self._telling[peer] = True
                self.host.after(self._retry_s, self._tell_again, peer)

    def may_tell(self, peer: str) -> None:
        """Notes that the client has asked or answered, so that it may be told again."""
        self._told[peer] = False

    def _tell_again(self, peer: str) -> None:
        self._telling[peer] = False
        if self.is_behind(peer):
            self._told[peer] = False
            self.tell(peer)
