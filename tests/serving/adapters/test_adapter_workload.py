"""Adapters and requests are read from files, and the arena runs end to end on small ones."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from armillary.arena import NotForThisCase
from armillary.errors import InputError
from armillary.serving.adapters.arena import adapters
from armillary.serving.adapters.readers.adapter_files import read_peft, read_requests, read_table
from armillary.serving.adapters.workload import AdapterTable, requests_for, synthetic, with_adapters

SHARED = Path(__file__).parents[3] / ".." / "shared" / "data" / "llm" / "splitwise_conv.csv"


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_a_table_is_read(tmp_path: Path) -> None:
    table = read_table(write(tmp_path / "t.csv", "adapter,rank,rate_per_s,prompt_mean,output_mean\nfr,8,0.5,100,50\nde,16,0,,\n"))
    assert table.names == ("fr", "de")
    assert table.token_rate.tolist() == [75.0, 0.0]
    assert table.prompt[1] == 223.0


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("a,0,1", 'column "rank": found "0"'), ("a,513,1", 'column "rank": found "513"'), ("a,8.5,1", 'column "rank": found "8.5"'),
        ("a,8,-1", 'column "rate_per_s": found "-1"'), ("a,8,1\na,8,1", "adapter a again"),
    ],
)  # fmt: skip
def test_bad_tables_are_refused_in_one_line(tmp_path: Path, row: str, said: str) -> None:
    with pytest.raises(InputError, match=said) as caught:
        read_table(write(tmp_path / "t.csv", f"adapter,rank,rate_per_s\n{row}\n"))
    assert "\n" not in str(caught.value)
    assert "t.csv" in str(caught.value)


def test_requests_that_name_adapters_are_read(tmp_path: Path) -> None:
    text = "arrival_s,adapter,prompt_tokens,output_tokens\n5,fr,10,20\n6,de,30,40\n15,fr,10,20\n"
    work = read_requests(write(tmp_path / "r.csv", text), rank=8)
    assert work.adapters.names == ("fr", "de")
    assert work.adapters.rate.tolist() == [0.2, 0.1]
    assert work.requests.adapter.tolist() == [0, 1, 0]
    assert work.requests.arrival_s.tolist() == [0.0, 1.0, 10.0]
    for bad, said in (("5,a,1,1\n4,a,1,1", "do not decrease"), ("5,a,0,1", "whole number"), ("5,a,1,1.5", "whole number")):
        with pytest.raises(InputError, match=said):
            read_requests(write(tmp_path / "r.csv", f"arrival_s,adapter,prompt_tokens,output_tokens\n{bad}\n"), rank=8)


def peft(folder: Path, r: object = 16, size: int = 64, base: str = "llama-3.1-8b") -> None:
    folder.mkdir(parents=True)
    config = {"r": r, "lora_alpha": 32, "target_modules": ["q_proj"], "base_model_name_or_path": base}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    header = json.dumps({"w": {"dtype": "F16", "shape": [size // 2], "data_offsets": [0, size]}, "__metadata__": {}}).encode()
    (folder / "adapter_model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(size))


def test_a_folder_of_peft_adapters_is_read_by_its_headers(tmp_path: Path) -> None:
    peft(tmp_path / "fr", 8, 64)
    peft(tmp_path / "de", 16, 128)
    (tmp_path / "rates.csv").write_text("adapter,rate_per_s\nfr,0.7\n")
    table = read_peft(tmp_path, rate=0.1)
    assert table.names == ("de", "fr")
    assert table.rate.tolist() == [0.1, 0.7]
    assert table.bytes is not None
    assert table.bytes.tolist() == [128, 64]
    assert table.base == "llama-3.1-8b"


def test_bad_peft_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no adapter_config\.json"):
        read_peft(tmp_path, 0.1)
    peft(tmp_path / "a", None)
    with pytest.raises(InputError, match="r: found None"):
        read_peft(tmp_path, 0.1)
    (tmp_path / "a" / "adapter_config.json").write_text('{"r": 8}')
    (tmp_path / "a" / "adapter_model.safetensors").write_bytes((1 << 60).to_bytes(8, "little") + b"{}")
    with pytest.raises(InputError, match="header of"):
        read_peft(tmp_path, 0.1)
    (tmp_path / "a" / "adapter_model.safetensors").unlink()
    peft(tmp_path / "b", 8, base="other")
    with pytest.raises(InputError, match="several base models"):
        read_peft(tmp_path, 0.1)


def test_a_trace_without_adapters_draws_them_and_says_so() -> None:
    plain = requests_for(AdapterTable.of([8], [20.0]), 200.0, np.random.default_rng(0))
    work = with_adapters(plain, np.random.default_rng(1), count=16, exponent=1.0)
    count = np.bincount(work.requests.adapter, minlength=16)
    assert count[0] > 1.5 * count[1] > 2 * count[7]
    assert "names no adapters" in work.notes[0]
    assert "16" in work.notes[0]
    assert work.adapters.rate.sum() == pytest.approx(len(plain) / work.window_s)
    table = AdapterTable.of([8, 16], [3.0, 1.0])
    spread = with_adapters(plain, np.random.default_rng(1), table=table)
    assert np.mean(spread.requests.adapter == 0) == pytest.approx(0.75, abs=0.03)


def test_synthetic_work_has_the_rates_it_says() -> None:
    work = synthetic(30, (1.6, 0.4, 0.1), 900.0, np.random.default_rng(0))
    assert len(work.requests) == pytest.approx(900 * 10 * 2.1, rel=0.05)
    assert sorted(np.bincount(work.adapters.rank)[[8, 16, 32]]) == [10, 10, 10]
    wild = synthetic(30, (1.6, 0.4, 0.1), 900.0, np.random.default_rng(0), unpredictable=True)
    spans = np.histogram2d(wild.requests.adapter, wild.requests.arrival_s, [np.arange(31), [0, 300, 600, 900]])[0]
    assert (spans == 0).mean() > 0.15, "some adapters are silent for a while"


def test_the_arena_reads_each_kind_of_file(tmp_path: Path) -> None:
    table = write(tmp_path / "t.csv", "adapter,rank,rate_per_s\n" + "".join(f"a{i},8,0.2\n" for i in range(6)))
    rows = "".join(f"2023-11-16 18:15:{i:02d}.0,50,20\n" for i in range(40))
    trace = write(tmp_path / "azure.csv", f"TIMESTAMP,ContextTokens,GeneratedTokens\n{rows}")
    for path, options in ((table, {"window": "60"}), (trace, {"adapters": "4"})):
        (case,) = adapters.from_file(path, options)
        outcome = adapters.execute(adapters.make("balanced"), case.at(0, 0))
        assert not isinstance(outcome, NotForThisCase)
        assert (case.name, outcome.values["gpus"], outcome.values["starved"]) == (path.name, 1.0, 0.0)
        assert {a.name for a in outcome.artifacts} == {"latency.quantiles.json", "placement.csv", "timeline.json"}
    with pytest.raises(InputError, match="number of adapters"):
        adapters.from_file(trace, {"adapters": "nowhere.csv"})


def test_a_unit_outside_its_kind_is_declined() -> None:
    cases = {case.name: case.at(0, 0) for case in adapters.built_in("tiny")}
    for technique, case in (("rock", "low-rates"), ("twin-search", "images-steady"), ("balanced", "vllm-8-slots")):
        assert isinstance(adapters.execute(adapters.make(technique), cases[case]), NotForThisCase)


def test_rock_is_faster_than_round_robin_at_tiny_scale() -> None:
    case = next(case.at(0, 0) for case in adapters.built_in("tiny") if case.name == "images-bursts")
    rock, turn = (adapters.execute(adapters.make(n), case).values["mean_latency"] for n in ("rock", "round-robin"))  # type: ignore[union-attr]
    assert rock < turn


@pytest.mark.shared_data
@pytest.mark.skipif(not SHARED.exists(), reason="no shared data")
def test_a_public_trace_gets_an_answer() -> None:
    (case,) = adapters.from_file(SHARED, {"limit": "1500"})
    outcome = adapters.execute(adapters.make("balanced"), case.at(0, 0))
    assert not isinstance(outcome, NotForThisCase)
    assert outcome.values["gpus"] >= 1
