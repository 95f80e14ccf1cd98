"""Users' files of prompts, batches, omega and profiles are read, and wrong ones are refused with the right words."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import armillary
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
    ("read", "text", "said"),
    [
        (read_prompts, "", "found no prompt"),
        (read_prompts, '{"prompt_tokens": 3}\n', 'key "max_tokens": found None'),
        (read_prompts, '{"prompt_tokens": 3, "max_tokens": 0}\n', "expected 1 to"),
        (read_prompts, '{"prompt_tokens": true, "max_tokens": 1}\n', "found True"),
        (read_prompts, '{"custom_id": "a", "body": {"messages": []}}\n', "found no messages"),
        (read_prompts, '{"custom_id": "a", "body": 3}\n', "a body that is an object"),
        (read_omega, "a,b\n", "expected layer, bits, omega"),
        (read_omega, "layer,bits,omega\n0,5,1\n", 'column "bits": found "5"; expected one of 2, 3, 4, 8, 16'),
        (read_omega, "layer,bits,omega\n0,4,-1\n", 'column "omega": found "-1"; expected a number of at least 0'),
        (read_omega, "layer,bits,omega\n0,4,1\n0,4,2\n", ":3: found layer 0, bits 4 again"),
        (read_omega, "layer,bits,omega\n1,4,1\n", "no omega of layer 0"),
        (read_omega, "layer,bits,omega\n99999999,4,1\n", "from 0 to 9,999"),
        (read_profile, f"{HEADER}t4,0,64,64,4,1,8,0,0\n", ':2: column "lat_avg": found "0"; expected seconds above 0'),
        (read_profile, f"{HEADER}t4,0,64,64,5,1,8,0,1\n", ':2: column "bit": found "5"'),
        (read_profile, f"{HEADER}t4,7,64,64,4,1,8,0,1\n", ':2: column "shard"'),
        (read_profile, f"{HEADER}t4,0,64,64,4,0,8,0,1\n", ':2: column "batch_size"'),
    ],
)
def test_bad_files_say_where_and_what(tmp_path: Path, read: Callable[[Path], Any], text: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        read(written(tmp_path, "p.jsonl" if read is read_prompts else "t.csv", text))
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


def linear(device: str, shard: int, bit: int, batch: int, new: int, past: int) -> float:
    """Returns seconds that the regressors can give exactly."""
    touched = regressors(shard, 4096, 14336, bit, batch, new, past)
    return sum(x * c for x, c in zip(touched, (3, 1, 2, 0.5, 1, 0.2), strict=False)) / {"t4": 1.0, "v100-32": 3.0}[device] / 1e12


def profile(bits: tuple[int, ...] = (4, 8)) -> str:
    lengths = ((256, 0), (512, 0), (1, 300), (1, 600))
    rows = [
        f"{device},{shard},4096,14336,{bit},{batch},{new},{past},{linear(device, shard, bit, batch, new, past):.9g}\n"
        for device, shard, bit, batch, (new, past) in itertools.product(("t4", "v100-32"), (0, 1), bits, (1, 2, 4, 8), lengths)
    ]
    return HEADER + "".join(rows)


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
    # In the profile a V100 is three times as fast as a T4, and the planner must follow it.
    layers = {s.device.kind: len(s) for s in plan.stages}
    assert 14 <= layers["v100-32"] <= 18



def test_a_profile_without_a_device_or_precision_is_no_ground_for_a_plan(tmp_path: Path) -> None:
    path = written(tmp_path, "profile.csv", profile(bits=(4,)))
    how: dict[str, Any] = {"prompt": 512, "output": 8, "batch": 8, "profile": path}
    with pytest.raises(InputError, match="no row of device t4 at 8 bits for prefill"):
        SplitQuant(group=8).plan("llama-3-8b", "mixed-offline-3", bits=(4, 8), **how)
    with pytest.raises(InputError, match="no row of device a100-40 at 4 bits"):
        SplitQuant(group=8).plan("llama-3-8b", "mixed-offline-2", bits=(4,), **how)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"batch": 0}, "batch"),
        ({"prompt": 0}, "prompt: found 0 to 0 tokens"),
        ({"omega": stand_in_omega(3, (4,))}, "omega for 3 layers; opt-13b has 40"),
        ({"bits": (5,)}, "expected some of"),
        ({"cluster": "cpu-2core"}, "has no GPU"),
    ],
)
def test_work_that_cannot_be(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        _ = OfflineWork.of("opt-13b", **{"cluster": "mixed-offline-1", **wrong}).devices


def test_own_prompts_get_an_answer(tmp_path: Path) -> None:
    good = written(tmp_path, "p.jsonl", '{"prompt_tokens": 64, "max_tokens": 4}\n' * 6)
    options = {"model": "llama-3.2-1b", "devices": "mixed-offline-7", "batch": "4"}
    said = armillary.compare("serving/offline", work=good, options=options, techniques=["uniform", "pipeedge"]).answer()
    assert "tokens per second on p.jsonl, where" in said
    assert "quality is a stand-in" in said
