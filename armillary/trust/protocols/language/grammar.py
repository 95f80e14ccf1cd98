"""The grammar of protocol files: what a person wrote, as a tree of blocks.

    file     = protocol {protocol}
    protocol = "protocol" NAME "(" "role" NAME {"," "role" NAME} ")" block
    block    = "{" {message} [last] "}"
    message  = NAME "(" [field {"," field}] ")" "from" NAME "to" NAME ";"
    field    = type NAME                      type = ("int"|"float"|"str"|"bytes"|"bool"|"json") {"[]"}
    last     = "rec" NAME block | "continue" NAME ";" | "do" NAME "(" NAME {"," NAME} ")" ";"
             | "choice" "at" NAME block {"or" block}
             | "mixed" "(" NAME "|>" NAME ")" "{" "left" block "right" block "}"

What is last in a block is its end: nothing follows a recursion, a choice or a call.
"""

from __future__ import annotations

import keyword
from dataclasses import dataclass

from armillary.errors import InputError, one_line

from .tokens import MOST_NESTING, Place, Token, tokens

TYPES = ("int", "float", "str", "bytes", "bool", "json")
_WORDS = {"protocol", "role", "rec", "continue", "do", "choice", "or", "mixed", "left", "right", "from", "to", "at", *TYPES}


@dataclass(frozen=True)
class Field:
    """One part of a message's payload: its name and its type, such as `int` or `str[]`."""

    name: str
    type: str


@dataclass(frozen=True)
class Message:
    """`label(fields) from sender to receiver;`"""

    label: str
    payload: tuple[Field, ...]
    sender: str
    receiver: str
    place: Place


@dataclass(frozen=True)
class Recursion:
    """`rec name { … }`"""

    name: str
    body: Block
    place: Place


@dataclass(frozen=True)
class Continue:
    """`continue name;`"""

    name: str
    place: Place


@dataclass(frozen=True)
class Call:
    """`do name(roles);`"""

    name: str
    roles: tuple[str, ...]
    place: Place


@dataclass(frozen=True)
class Choice:
    """`choice at chooser { … } or { … }`"""

    chooser: str
    blocks: tuple[Block, ...]
    place: Place


@dataclass(frozen=True)
class MixedChoice:
    """`mixed (tentative |> observer) { left { … } right { … } }`"""

    tentative: str
    observer: str
    left: Block
    right: Block
    place: Place


Last = Recursion | Continue | Call | Choice | MixedChoice


@dataclass(frozen=True)
class Block:
    """Messages one after another, and what the block ends with; nothing means the end of the protocol."""

    messages: tuple[Message, ...]
    last: Last | None
    place: Place


@dataclass(frozen=True)
class Definition:
    """One `protocol` of a file."""

    name: str
    roles: tuple[str, ...]
    body: Block
    place: Place


def parse(text: str, file: str) -> dict[str, Definition]:
    """The protocols of a file by name, in their order."""
    return _Parser(text, file).file()


class _Parser:
    def __init__(self, text: str, file: str) -> None:
        self.where = file
        self.tokens = list(tokens(text, file))
        self.at = 0
        self.depth = 0

    def file(self) -> dict[str, Definition]:
        found: dict[str, Definition] = {}
        while not found or self.now.text:
            one = self.definition()
            if one.name in found:
                raise self.fault(f'found a second protocol "{one.name}"; expected each name once', one.place)
            found[one.name] = one
        return found

    @property
    def now(self) -> Token:
        return self.tokens[self.at]

    def fault(self, message: str, place: Place) -> InputError:
        return InputError(message, where=f"{self.where}:{place.line}:{place.column}")

    def expected(self, what: str) -> InputError:
        found = f'"{one_line(self.now.text, 40)}"' if self.now.text else "the end of the file"
        return self.fault(f"found {found}; expected {what}", self.now.place)

    def take(self, text: str) -> Token:
        if self.now.text != text:
            raise self.expected(f'"{text}"')
        self.at += 1
        return self.tokens[self.at - 1]

    def took(self, text: str) -> bool:
        if self.now.text == text:
            self.at += 1
            return True
        return False

    def name(self, what: str) -> Token:
        token = self.now
        if not token.is_name or token.text in _WORDS:
            raise self.expected(what)
        if keyword.iskeyword(token.text) or token.text.startswith("_"):
            raise self.fault(f'found "{token.text}"; expected {what} that Python can use as a name without "_" in front', token.place)
        self.at += 1
        return token

    def names(self, what: str) -> tuple[str, ...]:
        self.take("(")
        found = [self.name(what).text]
        while self.took(","):
            found.append(self.name(what).text)
        self.take(")")
        return tuple(found)

    def definition(self) -> Definition:
        place = self.take("protocol").place
        name = self.name("the name of a protocol").text
        self.take("(")
        roles: list[str] = []
        while not roles or self.took(","):
            self.take("role")
            role = self.name("the name of a role")
            if role.text in roles:
                raise self.fault(f'found role "{role.text}" twice; expected each role once', role.place)
            roles.append(role.text)
        self.take(")")
        return Definition(name, tuple(roles), self.block(), place)

    def block(self) -> Block:
        place = self.take("{").place
        self.depth += 1
        if self.depth > MOST_NESTING:
            raise self.fault(f"found more than {MOST_NESTING} blocks inside each other; expected at most {MOST_NESTING}", place)
        messages: list[Message] = []
        last: Last | None = None
        while last is None and self.now.text != "}":
            if self.now.text in ("rec", "continue", "do", "choice", "mixed"):
                last = self.last()
            else:
                messages.append(self.message())
        if self.now.text != "}":
            raise self.expected('"}", because nothing follows a recursion, a choice or a call')
        self.take("}")
        self.depth -= 1
        return Block(tuple(messages), last, place)

    def message(self) -> Message:
        label = self.name("a message, rec, continue, do, choice, mixed or }")
        self.take("(")
        fields: list[Field] = []
        while self.now.text != ")":
            if fields:
                self.take(",")
            fields.append(self.field())
            if fields[-1].name in [one.name for one in fields[:-1]]:
                raise self.fault(f'found "{fields[-1].name}" twice in one payload; expected each name once', label.place)
        self.take(")")
        self.take("from")
        sender = self.name("a role")
        self.take("to")
        receiver = self.name("a role")
        if sender.text == receiver.text:
            raise self.fault(f'found "{label.text}" from {sender.text} to itself; expected two different roles', label.place)
        end = self.take(";").place.end
        return Message(label.text, tuple(fields), sender.text, receiver.text, Place(label.place.line, label.place.column, end))

    def field(self) -> Field:
        if self.now.text not in TYPES:
            raise self.expected("a type (" + ", ".join(TYPES) + ")")
        kind = self.now.text
        self.at += 1
        while self.took("[]"):
            kind += "[]"
            if len(kind) > 20:
                raise self.fault("found a list of lists of lists; expected at most a few levels", self.now.place)
        return Field(self.name("the name of a field").text, kind)

    def last(self) -> Last:
        word = self.now
        self.at += 1
        if word.text == "rec":
            return Recursion(self.name("the name of a recursion").text, self.block(), word.place)
        if word.text == "continue":
            name = self.name("the name of a recursion").text
            self.take(";")
            return Continue(name, word.place)
        if word.text == "do":
            name = self.name("the name of a protocol").text
            roles = self.names("a role")
            self.take(";")
            return Call(name, roles, word.place)
        if word.text == "choice":
            self.take("at")
            chooser = self.name("a role").text
            blocks = [self.block()]
            while self.took("or"):
                blocks.append(self.block())
            return Choice(chooser, tuple(blocks), word.place)
        self.take("(")
        tentative = self.name("a role").text
        self.take("|>")
        observer = self.name("a role")
        self.take(")")
        if tentative == observer.text:
            raise self.fault(f"found {tentative} on both sides of |>; expected two different roles", observer.place)
        self.take("{")
        self.take("left")
        left = self.block()
        self.take("right")
        right = self.block()
        self.take("}")
        return MixedChoice(tentative, observer.text, left, right, word.place)
