"""What people bring: prompts, batches, tables of omega, profiles; and what is said when something is wrong with them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from armillary.cli import main
from armillary.errors import InputError
from armillary.serving.offline import OfflineWork, SplitQuant, read_omega, read_profile, read_prompts
from armillary.serving.offline.pricing.latency_model import fit, regressors
from armillary.serving.offline.quality.indicator import stand_in_omega

HEADER = "device,shard,h1,h2,bit,batch_size,input_seq_length,past_seq_length,lat_avg\n"


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_plain_prompts_and_openai_batches(tmp_path: Path) -> None:
    plain = written(tmp_path, "p.jsonl", '{"prompt_tokens": 12, "max_tokens": 3}\n\n{"prompt_tokens": 7, "max_tokens": 5}\n')
    prompts, outputs, notes = read_prompts(plain)
    assert (prompts.tolist(), outputs.tolist(), notes) == ([12, 7], [3, 5], ())
    lines = [
        {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions",
         "body": {"model": "m", "messages": [{"role": "user", "content": "x" * 80}], "max_tokens": 9}},
        {"custom_id": "b", "method": "POST", "url": "/v1/completions", "body": {"model": "m", "prompt": "y" * 40}},
        {"custom_id": "c", "method": "POST", "url": "/v1/chat/completions",
         "body": {"messages": [{"role": "user", "content": [{"type": "text", "text": "z" * 20}]}], "max_completion_tokens": 4}},
    ]  # fmt: skip
    batch = written(tmp_path, "b.jsonl", "\n".join(map(json.dumps, lines)))
    prompts, outputs, notes = read_prompts(batch)
    assert (prompts.tolist(), outputs.tolist()) == ([20, 10, 5], [9, 100, 4])
    assert any("four characters" in note for note in notes)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "found no prompt"),
        ("[1]\n", ":1: found an array; expected an object"),
        ('{"prompt_tokens": 3}\n', 'key "max_tokens": found None'),
        ('{"prompt_tokens": 3, "max_tokens": 0}\n', "expected 1 to"),
        ('{"prompt_tokens": true, "max_tokens": 1}\n', "found True"),
        ('{"prompt_tokens": 1, "max_tokens": 1}\n{"a\n', ":2: found \"\"a\" in column 2; expected JSON"),
        ('{"custom_id": "a", "body": {"messages": []}}\n', "found no messages"),
        ('{"custom_id": "a", "body": 3}\n', "a body that is an object"),
    ],
)
def test_bad_prompts_say_where_and_what(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        read_prompts(written(tmp_path, "p.jsonl", text))
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_batches_are_of_like_lengths_and_padded_to_their_longest() -> None:
    work = OfflineWork.of("llama-3-8b", "mixed-offline-7", prompt=[10, 500, 20, 400, 30], output=[1, 2, 3, 4, 5], batch=2)
    assert [tuple(b) for b in work.batches] == [(2, 500, 4), (2, 30, 5), (1, 10, 1)]
    assert (work.tokens, tuple(work.longest)) == (15, (2, 500, 5))


def test_omega_survives_its_file(tmp_path: Path) -> None:
    table = stand_in_omega(5, (3, 4, 8))
    table.write(tmp_path / "o.csv")
    again = read_omega(tmp_path / "o.csv")
    assert again.bits == (3, 4, 8)
    assert again.values == pytest.approx(table.values)
    assert again.of((4, 16))[:, 1].tolist() == [0.0] * 5
    with pytest.raises(InputError, match="no omega for 2 bits"):
        again.of((2,))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a,b\n", "expected layer, bits, omega"),
        ("layer,bits,omega\n", "found no rows"),
        ("layer,bits,omega\n0,5,1\n", 'column "bits": found "5"; expected one of 2, 3, 4, 8, 16'),
        ("layer,bits,omega\n0,4,-1\n", 'column "omega": found "-1"; expected a number of at least 0'),
        ("layer,bits,omega\n0,4,nan\n", 'column "omega": found "nan"'),
        ("layer,bits,omega\n0,4,1\n0,4,2\n", ":3: found layer 0, bits 4 again"),
        ("layer,bits,omega\n1,4,1\n", "no omega of layer 0"),
        ("layer,bits,omega\n99999999,4,1\n", "from 0 to 9,999"),
        ("layer,bits,omega\nx,4,1\n", 'column "layer": found "x"'),
    ],
)
def test_bad_omega_tables(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        read_omega(written(tmp_path, "o.csv", text))
    assert said in str(caught.value)


def linear(device: str, shard: int, bit: int, batch: int, new: int, past: int) -> float:
    """Seconds that the regressors can give exactly."""
    speed = {"t4": 1.0, "v100-32": 3.0}[device]
    return (
        sum(x * c for x, c in zip(regressors(shard, 4096, 14336, bit, batch, new, past), (3, 1, 2, 0.5, 1, 0.2), strict=False))
        / speed
        / 1e12
    )


def profile(bits: tuple[int, ...] = (4, 8)) -> str:
    rows = []
    for device in ("t4", "v100-32"):
        for shard in (0, 1):
            for bit in bits:
                for batch in (1, 2, 4, 8):
                    for new, past in ((256, 0), (512, 0), (1, 300), (1, 600)):
                        rows.append(
                            f"{device},{shard},4096,14336,{bit},{batch},{new},{past},{linear(device, shard, bit, batch, new, past):.9g}"
                        )
    return HEADER + "\n".join(rows) + "\n"


def test_a_profile_is_fitted_and_planned_with(tmp_path: Path) -> None:
    path = written(tmp_path, "profile.csv", profile())
    model = fit(read_profile(path))
    assert model.error < 1e-4
    for device in ("t4", "v100-32"):
        for bit, batch, new, past in ((4, 3, 400, 0), (8, 5, 1, 450)):
            exact = sum(linear(device, shard, bit, batch, new, past) for shard in (0, 1))
            assert model.seconds(device, 0, bit, batch, new, past) == pytest.approx(exact, rel=0.02)
    plan = SplitQuant(group=2).plan("llama-3-8b", "mixed-offline-3", prompt=512, output=8, batch=8, bits=(4, 8), profile=path)
    assert sum(len(s) for s in plan.stages) == 32
    # The profile says that a V100 is three times a T4: the planner must have believed it.
    layers = {s.device.kind: len(s) for s in plan.stages}
    assert 14 <= layers["v100-32"] <= 18


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("t4,0,64,64,4,1,8,0,0", 'column "lat_avg": found "0"; expected seconds above 0'),
        ("t4,0,64,64,4,1,8,0,-1", 'column "lat_avg"'),
        ("t4,0,64,64,4,1,8,0,nan", 'column "lat_avg"'),
        ("t4,0,64,64,5,1,8,0,1", 'column "bit": found "5"'),
        ("t4,7,64,64,4,1,8,0,1", 'column "shard"'),
        ("t4,0,64,64,4,0,8,0,1", 'column "batch_size"'),
        ("t4,0,64,64,4,1,8,0", "found 8 cells; expected 9"),
        ("t4,0,64,x,4,1,8,0,1", 'column "h2": found "x"'),
    ],
)
def test_bad_profiles_say_which_line(tmp_path: Path, row: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        read_profile(written(tmp_path, "p.csv", HEADER + row + "\n"))
    assert said in str(caught.value)
    assert ":2: " in str(caught.value)


def test_a_profile_without_a_device_or_precision_is_no_ground_for_a_plan(tmp_path: Path) -> None:
    path = written(tmp_path, "profile.csv", profile(bits=(4,)))
    how: dict[str, Any] = {"prompt": 512, "output": 8, "batch": 8, "profile": path}
    with pytest.raises(InputError, match="no row of device t4 at 8 bits for prefill"):
        SplitQuant(group=8).plan("llama-3-8b", "mixed-offline-3", bits=(4, 8), **how)
    with pytest.raises(InputError, match="no row of device a100-40 at 4 bits"):
        SplitQuant(group=8).plan("llama-3-8b", "mixed-offline-2", bits=(4,), **how)


def test_work_that_cannot_be() -> None:
    with pytest.raises(InputError, match="batch"):
        OfflineWork.of("opt-13b", "mixed-offline-1", batch=0)
    with pytest.raises(InputError, match="prompt: found 0 to 0 tokens"):
        OfflineWork.of("opt-13b", "mixed-offline-1", prompt=0)
    with pytest.raises(InputError, match="omega for 3 layers; opt-13b has 40"):
        OfflineWork.of("opt-13b", "mixed-offline-1", omega=stand_in_omega(3, (4,)))
    with pytest.raises(InputError, match="has no GPU"):
        _ = OfflineWork.of("opt-13b", "cpu-2core").devices
    with pytest.raises(InputError, match="expected some of"):
        OfflineWork.of("opt-13b", "mixed-offline-1", bits=(5,))


def test_the_command_line_answers_for_prompts(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    good = written(tmp_path, "p.jsonl", '{"prompt_tokens": 64, "max_tokens": 4}\n' * 6)
    how = ("--model", "llama-3.2-1b", "--devices", "mixed-offline-7", "--batch", "4", "--techniques", "uniform,pipeedge")
    command = ["armillary", "compare", "serving/offline", "--store", str(tmp_path / "s.db"), "--work", str(good), *how]
    monkeypatch.setattr("sys.argv", command)
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code in (0, None)
    said = " ".join(capsys.readouterr().out.split())
    assert "tokens per second on p.jsonl, where" in said
    assert "quality is a stand-in" in said
