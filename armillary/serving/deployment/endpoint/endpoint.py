"""An OpenAI-compatible endpoint on the tiny engine, with health, models, metrics, completions and chat, streamed or not (Starlette)."""

from __future__ import annotations

import asyncio
import hmac
import json
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from armillary.llm.serving.state import NOTHING
from armillary.llm.tiny.generation import Sampling

from .batcher import Asked, Batcher, Piece
from .guard import Guard, Limits, answer_of, too_large
from .protocol import MOST_CHOICES, Chat, Completion, Refused, chat_logprobs, checked, completion_logprobs


class Endpoint:
    """The routes over one batcher. Clients see the model under `name`, and each adapter as a model under its own name."""

    def __init__(
        self, batcher: Batcher, name: str, *, api_key: str | None = None, hosts: frozenset[str] = frozenset(), limits: Limits | None = None
    ) -> None:
        self.batcher, self.name, self._key, self._hosts, self.limits = batcher, name, api_key, hosts, limits or Limits()
        #: Set when the server is about to end: running requests are finished, and no new ones are accepted.
        self.draining = False
        self._since = int(time.time())
        self._seeds = 0
        self.models = {name: NOTHING} | {lora.name: number for number, lora in enumerate(batcher.engine.model.loras)}

    def app(self) -> ASGIApp:
        """Returns the ASGI application, guarded."""
        routes = Starlette(
            routes=[
                Route("/health", self._health),
                Route("/metrics", self._metrics),
                Route("/v1/models", self._models),
                Route("/v1/models/{name:path}", self._model),
                Route("/v1/completions", self._completions, methods=["POST"]),
                Route("/v1/chat/completions", self._chat, methods=["POST"]),
            ],
            exception_handlers={Refused: _refused, HTTPException: _http_error},  # type: ignore[dict-item]
        )
        return Guard(routes, self.limits, hosts=self._hosts, keyed=self._key is not None)

    async def _health(self, request: Request) -> Response:
        if self.draining:
            raise Refused(503, "the server is about to end")
        self._need_an_engine()
        return PlainTextResponse("")

    async def _metrics(self, request: Request) -> Response:
        return PlainTextResponse(self.batcher.counters.text(), media_type="text/plain; version=0.0.4")

    async def _models(self, request: Request) -> Response:
        self._allow(request)
        return JSONResponse({"object": "list", "data": [self._described(name) for name in self.models]})

    async def _model(self, request: Request) -> Response:
        self._allow(request)
        self._number(request.path_params["name"])
        return JSONResponse(self._described(request.path_params["name"]))

    def _described(self, name: str) -> dict[str, Any]:
        root = None if name == self.name else self.name
        return {
            "id": name, "object": "model", "created": self._since, "owned_by": "armillary", "parent": root,
            "max_model_len": self.batcher.longest,
        }  # fmt: skip

    async def _completions(self, request: Request) -> Response:
        return await self._answer(request, Completion)

    async def _chat(self, request: Request) -> Response:
        return await self._answer(request, Chat)

    def _allow(self, request: Request) -> None:
        if self._key is None:
            return
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not hmac.compare_digest(given.strip().encode(), self._key.encode()):
            raise Refused(401, "the API key is missing or wrong; send it as Authorization: Bearer KEY", code="invalid_api_key")

    def _need_an_engine(self) -> None:
        if self.batcher.trouble:
            raise Refused(503, self.batcher.trouble)

    def _number(self, name: str) -> int:
        if name not in self.models:
            raise Refused(404, f"the model {name!r} does not exist", param="model", code="model_not_found")
        return self.models[name]

    async def _answer(self, request: Request, kind: type[Completion] | type[Chat]) -> Response:
        self._allow(request)
        if self.draining:
            raise Refused(503, "the server is about to end and accepts no new requests")
        self._need_an_engine()
        asked = checked(kind, await _json(request, self.limits))
        answer = _Answer(self, asked)
        if asked.stream:
            return _Streamed(answer)
        try:
            return JSONResponse(await _unless_gone(request, answer.whole()))
        finally:
            answer.leave()

    def sequences(self, asked: Completion | Chat) -> list[Asked]:
        """Returns a request as sequences for the engine, n for each prompt."""
        adapter, n, longest = self._number(asked.model), asked.n or 1, self.batcher.longest
        prompts = asked.prompts()
        count = len(prompts) * n
        if count > MOST_CHOICES:
            raise Refused(400, f"{len(prompts)} prompts with n {n} are {count} answers; expected at most {MOST_CHOICES}", param="n")
        for prompt in prompts:
            if not prompt or min(prompt) < 0 or max(prompt) >= self.batcher.engine.model.shape.vocab:
                expected = f"tokens from 0 to {self.batcher.engine.model.shape.vocab - 1}"
                raise Refused(400, f"prompt: expected at least one token, and {expected}", param="prompt")
            room = longest - len(prompt)
            if room < 1 or (asked.most is not None and asked.most > room):
                said = f"this model's maximum context length is {longest} tokens; found {len(prompt)} in the prompt"
                raise Refused(400, f"{said} and {asked.most} for the answer", param="max_tokens", code="context_length_exceeded")
        if self.batcher.inside + count > self.batcher.most:
            raise Refused(429, f"{self.batcher.inside} requests are being served already; try again", code="rate_limit_exceeded")
        if asked.seed is None:
            self._seeds += 1  # a fresh seed for each request without one, so that samples differ
        first = self._seeds if asked.seed is None else asked.seed
        temperature = 1.0 if asked.temperature is None else asked.temperature
        return [
            Asked(
                prompt, asked.most or longest - len(prompt), Sampling(temperature, asked.top_p or 1.0, (first + i) & 0xFFFFFFFF),
                asked.stops, adapter, asked.top or 0, asked.ignore_eos, heard=lambda piece: None,
            )
            for prompt in prompts for i in range(n)
        ]  # fmt: skip


class _Answer:
    """The answer to one HTTP request while it is being made. `leave` must be called at the end, whatever happened."""

    def __init__(self, home: Endpoint, asked: Completion | Chat) -> None:
        self.home, self.asked, self.is_chat = home, asked, isinstance(asked, Chat)
        self.sequences = home.sequences(asked)
        self.open = set(range(len(self.sequences)))
        self.id = f"{'chatcmpl' if self.is_chat else 'cmpl'}-{uuid.uuid4().hex}"
        self.created = int(time.time())
        self._pieces: asyncio.Queue[tuple[int, Piece]] = asyncio.Queue()
        self._left = False
        loop = asyncio.get_running_loop()
        home.batcher.inside += len(self.sequences)
        for index, sequence in enumerate(self.sequences):
            sequence.heard = self._ear(loop, index)
            home.batcher.submit(sequence)

    def _ear(self, loop: asyncio.AbstractEventLoop, index: int) -> Any:
        def heard(piece: Piece) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._pieces.put_nowait, (index, piece))

        return heard

    async def pieces(self) -> AsyncIterator[tuple[int, Piece]]:
        """Yields (choice, piece) as they come, until every choice is finished."""
        while self.open:
            index, piece = await self._pieces.get()
            if piece.finished == "error":
                raise Refused(500, piece.text)
            if piece.finished:
                self.open.discard(index)
            yield index, piece

    def leave(self) -> None:
        """Aborts the sequences that are still running, because the client has everything or has gone."""
        if self._left:
            return
        self._left = True
        self.home.batcher.inside -= len(self.sequences)
        for index in self.open:
            self.home.batcher.abort(self.sequences[index])

    def usage(self) -> dict[str, int]:
        """Returns the tokens of prompts and answers; a prompt counts once, even if it has several answers."""
        n = self.asked.n or 1
        prompt, out = sum(len(s.prompt) for s in self.sequences[::n]), sum(s.tokens for s in self.sequences)
        return {"prompt_tokens": prompt, "completion_tokens": out, "total_tokens": prompt + out}

    def _frame(self, choices: list[dict[str, Any]], *, streamed: bool) -> dict[str, Any]:
        kind = ("chat.completion.chunk" if streamed else "chat.completion") if self.is_chat else "text_completion"
        return {"id": self.id, "object": kind, "created": self.created, "model": self.asked.model, "choices": choices}

    async def whole(self) -> dict[str, Any]:
        """Returns the answer as one object."""
        came: list[list[Piece]] = [[] for _ in self.sequences]
        async for index, piece in self.pieces():
            came[index].append(piece)
        choices = []
        for index, pieces in enumerate(came):
            text = "".join(p.text for p in pieces)
            said: dict[str, Any] = {"message": {"role": "assistant", "content": text, "refusal": None}} if self.is_chat else {"text": text}
            choices.append({"index": index, **said, "logprobs": self._logprobs(pieces, 0), "finish_reason": pieces[-1].finished})
        return {**self._frame(choices, streamed=False), "usage": self.usage()}

    async def events(self) -> AsyncIterator[bytes]:
        """Yields the answer as server-sent events."""
        shown = [0] * len(self.sequences)
        try:
            if self.is_chat:
                for index in range(len(self.sequences)):
                    role = {"role": "assistant", "content": ""}
                    yield self._event([{"index": index, "delta": role, "logprobs": None, "finish_reason": None}])
            async for index, piece in self.pieces():
                said: dict[str, Any] = {"delta": {"content": piece.text} if piece.text else {}} if self.is_chat else {"text": piece.text}
                finished = piece.finished or None
                probable = self._logprobs([piece], shown[index])
                shown[index] += len(piece.text)
                yield self._event([{"index": index, **said, "logprobs": probable, "finish_reason": finished}])
            if self.asked.wants_usage:
                yield _sse({**self._frame([], streamed=True), "usage": self.usage()})
        except Refused as refused:
            yield _sse(refused.body)
        yield b"data: [DONE]\n\n"

    def _event(self, choices: list[dict[str, Any]]) -> bytes:
        frame = self._frame(choices, streamed=True)
        return _sse({**frame, "usage": None} if self.asked.wants_usage else frame)

    def _logprobs(self, pieces: Sequence[Piece], offset: int) -> dict[str, Any] | None:
        if self.asked.top is None:
            return None
        return chat_logprobs(pieces) if self.is_chat else completion_logprobs(pieces, offset)


class _Streamed(StreamingResponse):
    """A stream whose request leaves the engine when the client has received all of it, or disconnects."""

    def __init__(self, answer: _Answer) -> None:
        super().__init__(answer.events(), media_type="text/event-stream", headers={"cache-control": "no-cache"})
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._answer.leave()


def _sse(what: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(what, separators=(',', ':'))}\n\n".encode()


async def _json(request: Request, limits: Limits) -> Any:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > limits.body_bytes:
            raise too_large(limits)
    try:
        return json.loads(bytes(body))
    except (ValueError, RecursionError):
        raise Refused(400, "the body is not JSON") from None


async def _unless_gone(request: Request, work: Any) -> Any:
    """Returns the result of the work, which is cancelled if the client disconnects."""
    working = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait({working, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnect
        return working.result()
    finally:
        for task in (working, gone):
            task.cancel()


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _refused(request: Request, refused: Refused) -> Response:
    return answer_of(refused)


async def _http_error(request: Request, problem: HTTPException) -> Response:
    said = f"{request.method} {request.url.path}: {problem.detail}"
    return JSONResponse(Refused(problem.status_code, said).body, problem.status_code, headers=problem.headers)
