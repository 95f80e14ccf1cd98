"""OpenAI's completions protocol: checks requests and writes answers and errors in its format."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from armillary.errors import InputError, one_line
from armillary.llm.tiny import tokens as tk

from .batcher import Piece

#: The most answers to one request over all its prompts, and the most stop strings of a request.
MOST_CHOICES, MOST_STOPS = 64, 16


class Refused(Exception):
    """A request that is not served: the HTTP status and OpenAI's error object."""

    def __init__(self, status: int, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        kinds = {401: "authentication_error", 429: "rate_limit_error", 500: "server_error", 503: "server_error", 504: "server_error"}
        self.status = status
        self.body = {
            "error": {"message": one_line(message), "type": kinds.get(status, "invalid_request_error"), "param": param, "code": code}
        }


class _Asked(BaseModel):
    # Unknown keys are ignored, as in other OpenAI-compatible engines; those that would change the answer are refused below.
    model_config = ConfigDict(strict=True, extra="ignore")

    model: str
    stream: bool = False
    stream_options: dict[str, Any] | None = None
    n: Annotated[int, Field(ge=1, le=MOST_CHOICES)] | None = 1
    temperature: Annotated[float, Field(ge=0, le=2)] | None = 1.0
    top_p: Annotated[float, Field(gt=0, le=1)] | None = 1.0
    seed: int | None = None
    stop: str | list[str] | None = None
    ignore_eos: bool = False
    presence_penalty: float | None = 0.0
    frequency_penalty: float | None = 0.0
    logit_bias: dict[str, float] | None = None

    @field_validator("temperature", "top_p", mode="before")
    @classmethod
    def _whole_numbers_are_numbers(cls, value: Any) -> Any:
        return float(value) if isinstance(value, int) and not isinstance(value, bool) else value

    @field_validator("stop")
    @classmethod
    def _few_stops(cls, value: str | list[str] | None) -> str | list[str] | None:
        if isinstance(value, list) and len(value) > MOST_STOPS:
            raise ValueError(f"found {len(value)} stop strings; expected at most {MOST_STOPS}")
        return value

    @property
    def stops(self) -> list[str]:
        """The stop strings as a list."""
        return [] if self.stop is None else [self.stop] if isinstance(self.stop, str) else self.stop

    @property
    def wants_usage(self) -> bool:
        """Whether a stream ends with the count of tokens."""
        return bool((self.stream_options or {}).get("include_usage"))

    def refuse_what_changes_the_answer(self, raw: dict[str, Any]) -> None:
        """Raises for settings that are known, not supported, and not at a neutral value."""
        neutral: dict[str, Any] = {
            "presence_penalty": (0, None),
            "frequency_penalty": (0, None),
            "logit_bias": ({}, None),
            "echo": (False, None),
            "suffix": ("", None),
            "tools": ([], None),
            "tool_choice": ("none", None),
            "functions": ([], None),
            "response_format": ({"type": "text"}, None),
            "best_of": (self.n or 1, None),
            "prompt_logprobs": (None,),
            "use_beam_search": (False, None),
            "min_tokens": (0, None),
        }
        for key, fine in neutral.items():
            if key in raw and raw[key] not in fine:
                raise Refused(400, f"{key} is not supported by this engine", param=key, code="unsupported_parameter")


class Completion(_Asked):
    """`POST /v1/completions`."""

    prompt: str | list[str] | list[int] | list[list[int]]
    max_tokens: Annotated[int, Field(ge=1)] | None = 16
    logprobs: Annotated[int, Field(ge=0, le=20)] | None = None

    def prompts(self) -> list[list[int]]:
        """Returns the prompts as tokens."""
        given = self.prompt
        if isinstance(given, str):
            return [tk.encode(given)]
        if not given:
            raise Refused(400, "prompt: found an empty list; expected at least one prompt", param="prompt")
        if all(isinstance(p, int) for p in given):
            return [[p for p in given if isinstance(p, int)]]
        return [tk.encode(p) if isinstance(p, str) else [*p] for p in given if not isinstance(p, int)]

    @property
    def top(self) -> int | None:
        """The number of likeliest tokens to return with each token, or None for no log-probabilities at all."""
        return self.logprobs

    @property
    def most(self) -> int | None:
        """The most tokens that an answer may have, or None for as many as fit."""
        return self.max_tokens


class _Part(BaseModel):
    type: Literal["text"]
    text: str


class _Message(BaseModel):
    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[_Part]


class Chat(_Asked):
    """`POST /v1/chat/completions`."""

    messages: Annotated[list[_Message], Field(min_length=1)]
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    logprobs: bool | None = False
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None

    def prompts(self) -> list[list[int]]:
        """Returns the conversation as tokens."""
        texts = [m.content if isinstance(m.content, str) else "".join(p.text for p in m.content) for m in self.messages]
        return [tk.encode_chat([{"role": m.role, "content": text} for m, text in zip(self.messages, texts, strict=True)])]

    @property
    def top(self) -> int | None:
        """The number of likeliest tokens to return with each token, or None for no log-probabilities at all."""
        return (self.top_logprobs or 0) if self.logprobs else None

    @property
    def most(self) -> int | None:
        """The most tokens that an answer may have, or None for as many as fit."""
        return self.max_completion_tokens or self.max_tokens


def checked(kind: type[Completion] | type[Chat], raw: Any) -> Completion | Chat:
    """Returns a request's body as an object of its kind; raises `Refused` with 400 and the key that is wrong."""
    if not isinstance(raw, dict):
        raise Refused(400, f"found {type(raw).__name__}; expected a JSON object")
    try:
        asked = kind.model_validate(raw)
    except ValidationError as problem:
        first = problem.errors(include_url=False)[0]
        where = ".".join(str(p) for p in first["loc"] if not isinstance(p, str) or p.isidentifier())
        raise Refused(400, f"{where}: {first['msg']}", param=str(first["loc"][0]) if first["loc"] else None) from None
    except InputError as problem:
        raise Refused(400, str(problem)) from None
    asked.refuse_what_changes_the_answer(raw)
    return asked


def completion_logprobs(pieces: Sequence[Piece], offset: int) -> dict[str, Any]:
    """Returns the `logprobs` of a completion's choice; `offset` is where its text begins."""
    out: dict[str, Any] = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
    for piece in pieces:
        if piece.token is None:
            continue
        out["tokens"].append(tk.shown(piece.token))
        out["token_logprobs"].append(piece.logprob)
        out["top_logprobs"].append({tk.shown(t): p for t, p in piece.top})
        out["text_offset"].append(offset)
        offset += len(piece.text)
    return out


def chat_logprobs(pieces: Sequence[Piece]) -> dict[str, Any]:
    """Returns the `logprobs` of a chat's choice."""

    def one(token: int, logprob: float) -> dict[str, Any]:
        return {"token": tk.shown(token), "logprob": logprob, "bytes": [token] if token < 256 else []}

    said = [p for p in pieces if p.token is not None]
    return {"content": [{**one(p.token or 0, p.logprob), "top_logprobs": [one(t, x) for t, x in p.top]} for p in said], "refusal": None}
