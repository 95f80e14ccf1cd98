"""Requests are read from files and drawn from seeds."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from armillary.errors import InputError
from armillary.llm.cost.iteration import AffineCost
from armillary.llm.serving import synthetic as make
from armillary.llm.serving.fleet import Fleet
from armillary.llm.serving.replica import Replica
from armillary.llm.serving.request_files import bench
from armillary.llm.serving.requests import Requests, chained
from armillary.llm.serving.synthetic import generate

SHARED = Path(__file__).parents[2] / ".." / "shared" / "data" / "llm"


def _file(tmp_path, name, text):
    path = tmp_path / name
    path.write_text(text)
    return str(path)


def test_azure_times_have_seven_decimals_or_a_zone(tmp_path):
    text = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9951690,396,109\n"
    got = Requests.read(_file(tmp_path, "a.csv", text))
    assert got.arrival_s.tolist() == pytest.approx([0.0, 4.314579], abs=1e-9)
    assert (got.prompt.tolist(), got.output.tolist()) == ([374, 396], [44, 109])
    zone = "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10T00:00:00.009930+00:00,2162,5\n2024-05-11T00:00:01+00:00,3,6\n"
    assert Requests.read(_file(tmp_path, "b.csv", zone)).arrival_s.tolist() == pytest.approx([0.0, 86400.99007], abs=1e-9)


def test_vidur_and_burstgpt(tmp_path):
    got = Requests.read(_file(tmp_path, "v.csv", "arrived_at,num_prefill_tokens,num_decode_tokens\n1.0,10,2\n3.5,7,1\n"))
    assert got.arrival_s.tolist() == [0.0, 2.5]
    rows = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,ChatGPT,472,18,490,Conversation log\n45,GPT-4,9,0,9,API log\n50,GPT-4,9,3,12,API log\n"
    got = Requests.read(_file(tmp_path, "b.csv", rows))
    assert got.arrival_s.tolist() == [0.0, 45.0]
    assert got.dropped == 1


def test_mooncake_ids_become_chains_of_small_blocks(tmp_path):
    rows = [
        {"timestamp": 0, "input_length": 1100, "output_length": 5, "hash_ids": [7, 8, 9]},
        {"timestamp": 2000, "input_length": 1030, "output_length": 5, "hash_ids": [7, 8, 10]},
    ]
    path = _file(tmp_path, "m.jsonl", "\n".join(json.dumps(r) for r in rows))
    got = Requests.read(path)
    a, b = (got.prefix_hash[got.prefix_off[i] : got.prefix_off[i + 1]] for i in (0, 1))
    assert (len(a), len(b)) == (1100 // 16, 1030 // 16)
    assert a[:64].tolist() == b[:64].tolist()
    assert len(set(a.tolist())) == len(a)
    assert got.arrival_s.tolist() == [0.0, 2.0]
    served = Replica(cost=AffineCost(1e-3), blocks=500).run(got)
    assert served.cached_tokens.tolist() == [0, 1024]
    with pytest.raises(InputError, match="divisor of 512"):
        Requests.read(path, block=100)


def test_sharegpt_takes_the_first_question_and_its_answer(tmp_path):
    talk = [{"from": "system", "value": "x"}, {"from": "human", "value": "a" * 41}, {"from": "gpt", "value": "b" * 80}]
    rows = [
        {"id": "1", "conversations": talk},
        {"id": "2", "conversations": talk[:2]},
        {"id": "3", "conversations": [talk[1], {"from": "gpt", "value": "b"}]},
    ]
    path = _file(tmp_path, "s.json", json.dumps(rows))
    got = Requests.read(path)
    assert (got.prompt.tolist(), got.output.tolist(), got.dropped) == ([11], [20], 2)
    assert Requests.read(path, filter=False).output.tolist() == [20, 1]


def test_what_the_simulator_writes_it_reads(tmp_path):
    work = generate(50, rate=20, seed=3)
    result = Replica(cost=AffineCost(5e-3, 1e-5), blocks=20_000).run(work)
    result.write(tmp_path / "run.json")
    back = Requests.read(str(tmp_path / "run.json"))
    assert back.prompt.tolist() == work.prompt.tolist()
    assert back.output.tolist() == work.output.tolist()
    assert back.arrival_s == pytest.approx(work.arrival_s - work.arrival_s[0])
    assert bench(tmp_path / "run.json")["mean_ttft_ms"] == pytest.approx(1e3 * result.summary()["mean_ttft_s"])
    result.write(tmp_path / "run.parquet")
    assert (tmp_path / "run.parquet").stat().st_size > 0


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("x.json", '{"input_lens": [1], "output_lens": [1], "start_times": ["x"]}', "start_times: expected"),
        ("x.json", '{"input_lens": [1], "output_lens": [99999999999999999999]}', "output_lens: expected"),
        ("x.csv", "a,b\n1,2\n", "expected one of"),
        ("x.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\nyesterday,1,2\n", 'x.csv:2: column "TIMESTAMP": found "yesterday"'),
        ("x.csv", "arrived_at,num_prefill_tokens,num_decode_tokens\n1,2,3\n0.5,2,3\n", "x.csv:3: .* do not decrease"),
        ("x.csv", "arrived_at,num_prefill_tokens,num_decode_tokens\n1,0,3\n", 'found "0"; expected'),
        ("x.csv", "arrived_at,num_prefill_tokens,num_decode_tokens\n", "no request"),
        ("x.jsonl", '{"timestamp": 1, "input_length": 5, "hash_ids": []}\n', "x.jsonl:1: expected timestamp"),
        ("x.jsonl", '{"timestamp": 1, "input_length": 5, "output_length": 1, "hash_ids": [1, 2, 3]}\n', "x.jsonl:1: expected timestamp"),
        ("x.json", '[{"conversations": 3}]', "expected conversations"),
        ("x.json", '{"input_lens": [1], "output_lens": [1, 2]}', "expected 1 entries"),
        ("x.json", '{"request_rate": 3}', "expected a list"),
        ("x.bin", "\x00\x01", "expected one of"),
        ("x.csv", "", "expected one of"),
    ],
)
def test_a_wrong_file_is_said_in_a_line(tmp_path, name, text, said):
    with pytest.raises(InputError, match=said) as caught:
        Requests.read(_file(tmp_path, name, text))
    assert "\n" not in str(caught.value)
    assert name in str(caught.value)


@pytest.mark.parametrize("arrivals", ["poisson", "gamma", "mmpp", "diurnal"])
def test_arrivals_have_their_rate(arrivals):
    times = generate(20_000, arrivals=arrivals, rate=5.0, cv=3.0, swing=0.0, on_s=5.0, off_s=45.0).arrival_s
    assert len(times) / times[-1] == pytest.approx(5.0, rel=0.08)
    assert np.all(np.diff(times) >= 0)


@pytest.mark.parametrize(
    ("name", "prompt", "output"), [("azure-conv", 1154.7, 211.1), ("azure-code", 2047.9, 35.3), ("sharegpt", 223.0, 197.0)]
)
def test_lengths_are_those_of_the_trace(name, prompt, output):
    # In the trace, azure-code's outputs have a mean of 27.9, because the last percent is not spread evenly from 251 to 1,899 tokens.
    got = make.lengths(name, 200_000, np.random.default_rng(1))
    assert got[0].mean() == pytest.approx(prompt, rel=0.05)
    assert got[1].mean() == pytest.approx(output, rel=0.12)
    for table, values in zip(make.TABLES.get(name, ()), got, strict=False):
        assert np.quantile(values, make.SHARES[1:-2]) == pytest.approx(table[1:-2], rel=0.05, abs=1.5)


def test_a_seed_is_a_workload():
    once, again, other = (generate(100, seed=seed).prompt.tolist() for seed in (5, 5, 6))
    assert once == again != other


def test_a_turn_begins_with_what_was_said():
    work = generate(30, turns=3, prompt=40, output=24, think_s=2.0, rate=0.01, seed=1)
    got = Replica(cost=AffineCost(1e-3), blocks=2000).run(work)
    order = np.flatnonzero(work.session == 0)
    assert work.prompt[order].tolist() == [40, 104, 168]
    assert got.cached_tokens[order].tolist() == [0, 48, 112]
    assert (got.arrived[order[1:]] - got.finish[order[:-1]]) == pytest.approx([2.0, 2.0])


def test_system_prompts_are_shared_by_some():
    work = generate(4000, shared_prefixes=[(64, 0.5), (32, 0.25)], prompt=16, output=2, rate=5.0, seed=2)
    share = [float((work.prompt == t).mean()) for t in (80, 48, 16)]
    assert share == pytest.approx([0.5, 0.25, 0.25], abs=0.03)
    cached = Replica(cost=AffineCost(1e-3), blocks=2000).run(work).cached_tokens
    assert np.median(cached[work.prompt == 80]) == 64
    assert cached[work.prompt == 16].max() == 0


def test_a_closed_loop_has_so_many_at_a_time():
    work = generate(40, arrivals="closed", concurrency=4, think_s=0.5, prompt=8, output=4)
    serving = Fleet([Replica(cost=AffineCost(0.01), blocks=100)]).start(work)
    for until in np.arange(0.0, 5.0, 0.07):
        serving.run(float(until))
        assert len(serving.running(0)) + len(serving.waiting(0)) <= 4
    serving.run()
    assert np.all(np.isfinite(serving.result().finish))


def test_some_of_the_requests():
    work = generate(30, turns=3, prompt=40, output=24, rate=0.01)
    part = work.take(work.session < 4)
    assert len(part) == 12
    assert np.all(part.follows[part.turn > 0] >= 0)
    assert len(part.prefix_hash) == part.prefix_off[-1]
    assert len(work.take(work.turn == 1)) == 10
    assert work.take(work.turn == 1).follows.max() == -1


def test_a_chain_stands_for_all_before_it():
    a, b = (chained(np.array(x, np.uint64)) for x in ([1, 2, 3], [9, 2, 3]))
    assert not set(a.tolist()) & set(b.tolist())
    assert chained(np.array([1, 2], np.uint64)).tolist() == a[:2].tolist()
    assert chained(np.empty(0, np.uint64)).tolist() == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"n": 0}, {"arrivals": "sometimes"}, {"rate": 0}, {"like": "nothing"}, {"arrivals": "closed"},
        {"shared_prefixes": [(5, 0.7), (6, 0.7)]}, {"arrivals": "diurnal", "swing": 2.0},
    ],
)  # fmt: skip
def test_bad_wishes_are_refused(wrong):
    with pytest.raises(InputError):
        generate(**{"n": 5, **wrong})


@pytest.mark.shared_data
def test_the_real_trace():
    path = SHARED / "splitwise_conv.csv"
    if not path.exists():
        pytest.skip("no shared data")
    got = Requests.read(str(path))
    assert len(got) == 19_366
    assert got.prompt.mean() == pytest.approx(1154.7, abs=0.1)
