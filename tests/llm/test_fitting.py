"""Costs fitted to a benchmark's record."""

from __future__ import annotations

import json

import numpy as np
import pytest

from armillary.errors import InputError
from armillary.llm import AffineCost, Engine, Replica, Tiny, generate
from armillary.llm.serving.fitting import errors, fit, measured
from armillary.llm.tiny.recording import record

HIDDEN = Replica(cost=AffineCost(9e-3, 6e-5, 4e-7, running=8e-5), blocks=5000, prefix_cache=False)
GUESS = Replica(cost=AffineCost(2e-3, 3e-5, 1e-7), blocks=5000, prefix_cache=False)


def _runs(replica, rates):
    return [replica.run(generate(150, rate=rate, like="sharegpt", seed=i), token_times=True).to_vllm() for i, rate in enumerate(rates)]


def test_hidden_constants_are_found_and_hold_on_another_load(tmp_path):
    fitted = fit(GUESS, _runs(HIDDEN, [2.0, 12.0]))
    assert fitted.loss < 0.01
    unseen = _runs(HIDDEN, [5.0, 7.0, 20.0])[2]
    assert max(abs(e) for e in errors(GUESS, unseen).values()) > 0.2
    assert max(abs(e) for e in errors(fitted.replica, unseen).values()) < 0.05
    assert fitted.without[fitted.explains_most] > 5 * fitted.loss
    assert set(fitted.constants) == {"host_s", "running_s", "tokens", "context"}


def test_a_file_will_do(tmp_path):
    path = tmp_path / "run.json"
    path.write_text(json.dumps(_runs(HIDDEN, [4.0])[0]))
    fitted = fit(GUESS, [path], constants=["host_s"])
    assert fitted.constants["tokens"] == 1.0
    assert fitted.constants["host_s"] > 5e-3


def test_a_real_engine_is_recorded():
    work = generate(12, rate=200.0, prompt=np.arange(4, 16), output=np.arange(1, 13), seed=1)
    got = record(Engine(Tiny.make("tiny-llama")), work)
    assert [len(g) for g in got["itls"]] == [n - 1 for n in work.output]
    assert min(got["ttfts"]) > 0
    figures = measured(got)
    assert figures["output_per_s"] == pytest.approx(work.output.sum() / got["duration"])


@pytest.mark.parametrize(
    "call",
    [
        lambda: fit(GUESS, []),
        lambda: fit(GUESS, _runs(HIDDEN, [2.0]), constants=["speed"]),
        lambda: measured({"output_lens": [1, 2], "ttfts": [0.1], "itls": [[], []]}),
        lambda: measured({"output_lens": [1], "ttfts": [0.1], "itls": [[]], "duration": 1.0}),
    ],
)
def test_what_cannot_be_fitted_is_refused(call):
    with pytest.raises(InputError):
        call()
