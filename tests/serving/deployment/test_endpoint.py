"""The endpoint is tested as its clients see it: with OpenAI's own client, raw requests, and clients that misbehave."""

from __future__ import annotations

import http.client
import json
import signal
import stat
from concurrent.futures import ThreadPoolExecutor

import pytest

from armillary.errors import InputError
from armillary.llm import Requests
from armillary.llm.tiny import tokens as tk
from armillary.llm.tiny.generation import Engine
from armillary.llm.tiny.transformer import Tiny
from armillary.serving.deployment import Load, Serving, bench, serve, smoke
from armillary.serving.deployment.checking.benchmark import write
from armillary.serving.deployment.checking.client import Client
from armillary.serving.deployment.endpoint.prometheus import Counters, parse

torch = pytest.importorskip("torch")
pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
KEY = "a-key-for-tests"
GREEDY = {"model": "tiny-llama", "temperature": 0}
HEADERS = {"authorization": f"Bearer {KEY}", "content-type": "application/json"}


@pytest.fixture
def client(server):
    return Client(server.url, KEY)


@pytest.fixture(scope="module")
def alone():
    """Gives the greedy text after a prompt, from the engine without any server."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # the server computes beside us
    engine = Engine(Tiny.make("tiny-llama", seed=0, dtype=torch.float64))
    yield lambda prompt, count: tk.decode(engine.generate([tk.encode(prompt)], count, stop=(tk.END, tk.TURN))[0])
    torch.set_num_threads(before)


def texts(client, body):
    """Returns the texts of a completion's choices."""
    return [choice["text"] for choice in client.ask("/v1/completions", body).json["choices"]]


def test_a_completion_is_the_engines_own_text(client, alone):
    reply = client.ask("/v1/completions", {**GREEDY, "prompt": "Hello", "max_tokens": 24})
    assert reply.status == 200
    assert reply.json["choices"][0]["text"] == alone("Hello", 24)
    assert reply.json["usage"] == {"prompt_tokens": 6, "completion_tokens": 24, "total_tokens": 30}
    assert reply.json["choices"][0]["finish_reason"] == "length"


def test_64_at_once_give_the_texts_of_one_after_another(client, alone):
    prompts = [f"prompt number {i}" for i in range(64)]
    with ThreadPoolExecutor(64) as pool:
        found = list(pool.map(lambda p: texts(client, {**GREEDY, "prompt": p, "max_tokens": 8})[0], prompts))
    assert found == [alone(p, 8) for p in prompts]
    assert len(set(found)) > 30


def test_a_stream_is_the_whole_text_in_pieces(client):
    body = {**GREEDY, "prompt": ["one", "two"], "n": 2, "max_tokens": 20}
    whole = texts(client, body)
    parts = ["", "", "", ""]
    ends = []
    for _, event in client.stream("/v1/completions", {**body, "stream_options": {"include_usage": True}}):
        for choice in event["choices"]:
            parts[choice["index"]] += choice["text"]
            ends += [choice["finish_reason"]] if choice["finish_reason"] else []
        usage = event["usage"]
    assert parts == whole
    assert whole[0] == whole[1] != whole[2]
    assert len(ends) == 4
    assert usage == {"prompt_tokens": 8, "completion_tokens": 80, "total_tokens": 88}


def test_a_stop_string_cuts_and_is_not_shown(client, alone):
    text = alone("Hello", 60)
    stop = text[5:8]
    body = {**GREEDY, "prompt": "Hello", "max_tokens": 60, "stop": ["never there", stop]}
    found = client.ask("/v1/completions", body).json
    assert found["choices"][0]["text"] == text[: text.index(stop)]
    assert found["choices"][0]["finish_reason"] == "stop"
    assert found["usage"]["completion_tokens"] < 60
    streamed = "".join(c["text"] for _, event in client.stream("/v1/completions", body) for c in event["choices"])
    assert streamed == found["choices"][0]["text"]


def test_seeds_decide_samples(client):
    body = {"model": "tiny-llama", "prompt": "Hello", "max_tokens": 16, "temperature": 1.0, "n": 3, "seed": 5}
    once, again = (texts(client, body) for _ in range(2))
    assert once == again
    assert len(set(once)) == 3
    assert len({texts(client, {**body, "seed": None, "n": 1})[0] for _ in range(4)}) > 1
    assert texts(client, {**body, "top_p": 1e-9})[0] == texts(client, {**body, "temperature": 0})[0]


def test_logprobs_are_of_the_tokens_given(client):
    body = {**GREEDY, "prompt": "Hello", "max_tokens": 6, "logprobs": 3}
    found = client.ask("/v1/completions", body).json["choices"][0]["logprobs"]
    assert len(found["tokens"]) == len(found["token_logprobs"]) == len(found["top_logprobs"]) == len(found["text_offset"]) == 6
    for token, value, top in zip(found["tokens"], found["token_logprobs"], found["top_logprobs"], strict=True):
        assert len(top) <= 3
        assert top[token] == pytest.approx(value)
        assert max(top, key=top.get) == token
        assert value < 0
    model = Tiny.make("tiny-llama", seed=0, dtype=torch.float64)
    expected = torch.log_softmax(model.logits(tk.encode("Hello"))[-1], -1).max().item()
    assert found["token_logprobs"][0] == pytest.approx(expected, abs=1e-6)  # the engine draws from float32 logits


def test_an_adapter_is_a_model_of_its_own(client, adapter_folder):
    models = {m["id"]: m["parent"] for m in client.ask("/v1/models").json["data"]}
    assert models == {"tiny-llama": None, "fables": "tiny-llama"}
    body = {**GREEDY, "prompt": "Hello", "max_tokens": 24}
    (text,) = texts(client, {**body, "model": "fables"})
    model = Tiny.make("tiny-llama", seed=0, dtype=torch.float64)
    model.add_lora(adapter_folder)
    expected = Engine(model).generate([tk.encode("Hello")], 24, stop=(tk.END, tk.TURN), adapters=[0])[0]
    assert text == tk.decode(expected)
    assert [text] != texts(client, body)


@pytest.mark.parametrize(
    ("path", "body", "status", "param"),
    [
        ("/v1/completions", {"prompt": "x"}, 400, "model"),
        *(
            ("/v1/completions", {**GREEDY, "prompt": "x", key: value}, 400, key)
            for key, value in (
                ("max_tokens", 0), ("temperature", 3), ("n", "two"), ("prompt", []), ("prompt", [600]), ("prompt", {"a": 1}),
                ("echo", True), ("max_tokens", 2050),
            )
        ),
        ("/v1/completions", {**GREEDY, "prompt": ["x"] * 70}, 400, "n"),
        ("/v1/completions", {**GREEDY, "prompt": "x" * 2100}, 400, "max_tokens"),
        ("/v1/completions", {**GREEDY, "model": "other", "prompt": "x"}, 404, "model"),
        ("/v1/completions", {**GREEDY, "prompt": "x" * 1_100_000}, 413, None),
        ("/v1/chat/completions", {**GREEDY, "messages": []}, 400, "messages"),
        ("/v1/chat/completions", {**GREEDY, "messages": [{"role": "judge", "content": "x"}]}, 400, "messages"),
        ("/v1/chat/completions", {**GREEDY, "messages": [{"role": "user", "content": "x"}], "tools": [{}]}, 400, "tools"),
        ("/v1/embeddings", {"model": "tiny-llama", "input": "x"}, 404, None),
        ("/v1/models", {"a": 1}, 405, None),
    ],
)  # fmt: skip
def test_what_is_refused_says_so_as_openai_does(client, path, body, status, param):
    reply = client.ask(path, body)
    error = reply.json["error"]
    assert (reply.status, error["param"]) == (status, param)
    assert set(error) == {"message", "type", "param", "code"}
    assert "\n" not in error["message"]


def test_bodies_that_are_no_json_are_refused(server):
    for body in (b"", b"{", b"[1]", b"\xff\xfe", b"[" * 100_000):
        line = http.client.HTTPConnection(server.url.split("//")[1], timeout=30)
        line.request("POST", "/v1/completions", body, HEADERS)
        reply = line.getresponse()
        assert reply.status == 400
        assert json.loads(reply.read())["error"]["type"] == "invalid_request_error"
        line.close()


@pytest.mark.parametrize("key", ["", "wrong", KEY + "x", KEY.upper()])
def test_a_wrong_key_opens_nothing(server, key):
    for path, body in (("/v1/models", None), ("/v1/completions", {**GREEDY, "prompt": "x"})):
        reply = Client(server.url, key).ask(path, body)
        assert (reply.status, reply.json["error"]["code"]) == (401, "invalid_api_key")
    assert Client(server.url).ask("/health").status == 200


def test_too_many_at_once_are_told_to_come_back(client):
    """Of 80 places 64 are taken, so 64 more requests do not fit."""
    body = {**GREEDY, "prompt": ["x"] * 64, "max_tokens": 400, "ignore_eos": True}
    events = client.stream("/v1/completions", body)
    next(events)
    reply = client.ask("/v1/completions", {**GREEDY, "prompt": ["y"] * 64, "max_tokens": 1})
    assert (reply.status, reply.json["error"]["code"]) == (429, "rate_limit_exceeded")
    assert parse(client.ask("/metrics").text)["vllm:num_requests_running"], "a client that has a token is counted"
    events.close()
    _settled(client)


def _settled(client, ended=0):
    """Asks, at most 5,000 times, until nothing runs any more and `ended` requests are booked."""
    for _ in range(5000):
        samples = parse(client.ask("/metrics").text)
        idle = samples["vllm:num_requests_running"] + samples["vllm:num_requests_waiting"] == 0
        if idle and samples["vllm:request_success_total"] >= ended:
            return samples
    raise AssertionError("requests of clients that left still run")


@pytest.mark.parametrize("streamed", [True, False])
def test_a_client_that_leaves_frees_its_request(client, server, streamed):
    before = parse(client.ask("/metrics").text)
    line = http.client.HTTPConnection(server.url.split("//")[1], timeout=30)
    body = json.dumps({**GREEDY, "prompt": "x", "max_tokens": 2000, "ignore_eos": True, "stream": streamed})
    line.request("POST", "/v1/completions", body, HEADERS)
    if streamed:
        line.getresponse().readline()
    else:
        for _ in range(5000):
            if parse(client.ask("/metrics").text)["vllm:num_requests_running"]:
                break
    line.close()
    after = _settled(client, before["vllm:request_success_total"] + 1)
    assert after["vllm:gpu_cache_usage_perc"] == 0
    assert after["vllm:generation_tokens_total"] - before["vllm:generation_tokens_total"] < 2000
    assert after["vllm:request_success_total"] - before["vllm:request_success_total"] == 1


def test_openais_own_client(server):
    openai = pytest.importorskip("openai")
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key=KEY, max_retries=0) as peer:
        assert [m.id for m in peer.models.list()] == ["tiny-llama", "fables"]
        messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": [{"type": "text", "text": "Grüße, 世界"}]}]
        how = {"model": "tiny-llama", "messages": messages, "temperature": 0, "max_tokens": 20}
        whole = peer.chat.completions.create(**how, logprobs=True, top_logprobs=2)
        assert whole.usage.completion_tokens == len(whole.choices[0].logprobs.content) == 20
        assert all(len(t.top_logprobs) == 2 for t in whole.choices[0].logprobs.content)
        parts = [c.choices[0].delta.content or "" for c in peer.chat.completions.create(**how, stream=True)]
        assert "".join(parts) == whole.choices[0].message.content
        completion = peer.completions.create(model="fables", prompt="Hello", max_tokens=3, n=2, stop=["\n"])
        assert [c.index for c in completion.choices] == [0, 1]
        with pytest.raises(openai.NotFoundError):
            peer.completions.create(model="absent", prompt="x")
        with pytest.raises(openai.BadRequestError):
            peer.completions.create(model="tiny-llama", prompt="x" * 3000)
        with pytest.raises(openai.AuthenticationError):
            peer.with_options(api_key="wrong").models.list()


def test_the_smoke_test_passes_and_the_bench_is_read_back(server, tmp_path):
    found = smoke(server.url, key=KEY)
    assert found.passed, found.text()
    record = bench(server.url, Load(requests=12, rate=200.0, prompt=40, output=9, seed=2), key=KEY)
    assert record["completed"] == 12
    assert [len(gaps) for gaps in record["itls"]] == [8] * 12
    write(record, tmp_path / "bench.json")
    read = Requests.read(tmp_path / "bench.json")
    assert read.prompt.tolist() == [41] * 12
    assert read.output.tolist() == [9] * 12


def test_the_smoke_test_notices_a_wrong_key_and_a_wrong_endpoint(server):
    found = smoke(server.url, key="wrong")
    assert not found.passed
    assert {c.name for c in found.checks if c.passed} <= {"health", "wrong key"}
    with pytest.raises(InputError, match="http://host:port"):
        smoke("ftp://nowhere")


@pytest.mark.slow
def test_a_drain_finishes_what_runs_and_takes_nothing_new(start, tmp_path):
    file = tmp_path / "endpoint.json"
    with start("--endpoint-file", str(file)) as up:
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert json.loads(file.read_text())["url"] == up.url
        client = Client(up.url)
        events = client.stream("/v1/completions", {**GREEDY, "prompt": "x", "max_tokens": 120, "ignore_eos": True})
        next(events)
        up.process.send_signal(signal.SIGTERM)
        assert len([c for _, e in events for c in e["choices"]]) == 119
        assert up.process.wait(timeout=30) == 0
        assert not file.exists()
        with pytest.raises(OSError, match="refused"):
            client.ask("/health")


@pytest.mark.slow
def test_a_killed_server_breaks_the_stream_and_the_next_start_is_clean(start, tmp_path):
    file = tmp_path / "endpoint.json"
    with start("--endpoint-file", str(file)) as up:
        events = Client(up.url).stream("/v1/completions", {**GREEDY, "prompt": "x", "max_tokens": 2000, "ignore_eos": True})
        next(events)
        up.process.kill()
        with pytest.raises((OSError, http.client.HTTPException)):
            for _ in events:
                pass
    assert file.exists()
    with start("--endpoint-file", str(file), "--model", "tiny-moe") as up:
        assert json.loads(file.read_text())["url"] == up.url
        assert smoke(up.url, concurrent=2).passed


@pytest.mark.parametrize(
    ("what", "says"),
    [
        (Serving(port=70000), "port"),
        (Serving(host="0.0.0.0"), "without a key"),
        (Serving(api_key="\n"), "API key"),
        (Serving(dtype="int4"), "dtype"),
        (Serving(max_seqs=0), "max_seqs"),
        (Serving(model="tiny-gpt"), "config.json"),
        (Serving(host="no.such.host.invalid", open=True), "cannot listen"),
    ],
)
def test_what_cannot_be_served_is_refused_in_a_line(what, says):
    with pytest.raises(InputError, match=says) as caught:
        serve(what)
    assert "\n" not in str(caught.value)


def test_text_comes_whole_and_stops_are_held_back():
    text = tk.Text(["END", "\n\n"])
    shown = [text.feed(b) for b in "añb EN ENx".encode()]
    assert "".join(shown) == "añb EN ENx"
    assert shown[1:3] == ["", "ñ"]
    assert [text.feed(b) for b in b"E"] == [""]
    assert text.feed(300) == ""
    assert [text.feed(b) for b in b"NDmore"] == [""] * 6
    assert text.stopped
    assert text.end() == ""
    half = tk.Text(["END"])
    assert [half.feed(b) for b in (0xE4, 0xB8)] == ["", ""]
    assert half.end() == "\ufffd"
    held = tk.Text(["END"])
    assert "".join(held.feed(b) for b in b"xEN") == "x"
    assert held.end() == "EN"


def test_counters_count_and_read_back():
    counters = Counters("m")
    counters.add("prompt_tokens", 3)
    for seconds in (0.0005, 0.03, 1000.0):
        counters.observe("time_to_first_token_seconds", seconds)
    counters.finish("stop")
    samples = parse(counters.text())
    assert samples["vllm:prompt_tokens_total"] == 3
    assert samples["vllm:time_to_first_token_seconds_count"] == 3
    assert 'vllm:time_to_first_token_seconds_bucket{le="0.04",model_name="m"} 2' in counters.text()
    assert 'le="+Inf",model_name="m"} 3' in counters.text()
