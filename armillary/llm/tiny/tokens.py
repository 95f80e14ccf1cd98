"""Text as tokens for the tiny models: a token is a byte, and a few tokens above 255 are marks that stand for no text.

The built-in models have a vocabulary of 512. Ids 0 to 255 are the bytes of UTF-8, and 256 to 261 are the marks below. The others stand for
nothing, so a model with random weights may generate tokens that no text shows.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Mapping, Sequence

from armillary.errors import InputError

BEGIN, END, SYSTEM, USER, ASSISTANT, TURN = range(256, 262)
#: The roles of a chat, and the mark that opens a turn of each; every turn closes with `TURN`.
ROLES = {"system": SYSTEM, "developer": SYSTEM, "user": USER, "assistant": ASSISTANT}


def encode(text: str) -> list[int]:
    """The tokens of a text: a mark for the beginning, and then its bytes."""
    return [BEGIN, *text.encode("utf-8", "replace")]


def encode_chat(messages: Sequence[Mapping[str, str]]) -> list[int]:
    """The tokens of a conversation (messages with `role` and `content`), up to the point where the assistant speaks next."""
    out = [BEGIN]
    for message in messages:
        role = message["role"]
        if role not in ROLES:
            raise InputError(f"role: found {role!r}; expected one of {', '.join(ROLES)}")
        out += [ROLES[role], *message["content"].encode("utf-8", "replace"), TURN]
    return [*out, ASSISTANT]


def decode(tokens: Iterable[int]) -> str:
    """The text of tokens; bytes that are not UTF-8 show as U+FFFD."""
    return bytes(t for t in tokens if 0 <= t < 256).decode("utf-8", "replace")


def shown(token: int) -> str:
    """One token as text for a person: its byte, or the name of its mark."""
    marks = {BEGIN: "<begin>", END: "<end>", SYSTEM: "<system>", USER: "<user>", ASSISTANT: "<assistant>", TURN: "<turn>"}
    return bytes([token]).decode("utf-8", "replace") if token < 256 else marks.get(token, f"<{token}>")


class Text:
    """The text of an answer while its tokens arrive, cut before the first of the `stop` strings.

    `feed` returns the text that may be shown so far: part of a character waits for the rest, and a possible beginning of a stop string
    waits until it turns out not to be one. The results of `feed` and `end`, joined, are `decode` of the tokens, cut.
    """

    def __init__(self, stop: Sequence[str] = ()) -> None:
        self._stop = [s for s in stop if s]
        self._bytes = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""
        #: Set once a stop string has appeared; nothing is shown after it.
        self.stopped = False

    def feed(self, token: int) -> str:
        """Takes a token and returns the text that it completes."""
        if self.stopped or not 0 <= token < 256:
            return ""
        return self._show(self._bytes.decode(bytes([token])))

    def end(self) -> str:
        """The rest of the text, after the last token."""
        if self.stopped:
            return ""
        rest = self._show(self._bytes.decode(b"", True))
        last, self._held = (rest if self.stopped else rest + self._held), ""
        return last

    def _show(self, more: str) -> str:
        text = self._held + more
        found = [at for at in (text.find(s) for s in self._stop) if at >= 0]
        if found:
            self.stopped, self._held = True, ""
            return text[: min(found)]
        keep = max((n for s in self._stop for n in range(min(len(s) - 1, len(text)), 0, -1) if text.endswith(s[:n])), default=0)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]
