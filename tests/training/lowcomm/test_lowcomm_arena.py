"""The arena end to end: cases, claims, answers, and a user's own text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import armillary
from armillary.arena import NotForThisCase, Outcome
from armillary.claim import Kind
from armillary.training.lowcomm import Diloco
from armillary.training.lowcomm.arena import SEEDS, answer, lowcomm, plots


def tiny(name: str) -> Any:
    return next(case for case in lowcomm.built_in("tiny") if case.name == name).at(0, 0)


def test_cases_have_five_seeds_and_rounds_of_their_own() -> None:
    cases = lowcomm.built_in("small")
    pretrain = [case for case in cases if "pretrain" in case.kinds]
    assert len(pretrain) == 3 * 2 * SEEDS
    assert {case.parameters["every"] for case in pretrain} == {10, 30, 100}
    assert len([case for case in cases if "sft" in case.kinds]) == 2 * 2 * SEEDS
    assert lowcomm.telling_cases("small") == ["quick-iid", "quick-by-file"]
    for case in cases:
        assert len(case.kinds & {"iid", "by-file"}) == 1
    first, second = (tiny("quick-iid").workload, next(c for c in lowcomm.built_in("tiny") if c.name == "quick-iid").at(1, 0).workload)
    assert not np.array_equal(first.stages[0].inputs, second.stages[0].inputs)
    assert first.seed != second.seed


def test_claims_are_those_of_the_study() -> None:
    found = {number: claim for number, _, claim in lowcomm.claims()}
    assert list(found) == [*(f"training/lowcomm/ddp#{i}" for i in (1, 2)), *(f"training/lowcomm/diloco#{i}" for i in (1, 2, 3, 4))]
    for number, claim in found.items():
        assert claim.on == Kind("sft" if "/ddp#" in number else "pretrain")
        assert claim.stand_in if "/ddp#" in number else not claim.stand_in
    # What the first claim asks for follows from the counters: at most 400 steps over 4 rounds.
    small = [case.parameters for case in lowcomm.built_in("small") if "pretrain" in case.kinds]
    assert max(sum(p["steps"]) / -(-sum(p["steps"]) // p["every"]) for p in small) == 100


def test_arms_take_only_cases_with_all_stages() -> None:
    declined = lowcomm.execute(lowcomm.make("diloco-then-ddp"), tiny("quick-iid"))
    assert isinstance(declined, NotForThisCase)


@pytest.mark.parametrize("name", ["quick-iid", "sft-h30-by-file-0"])
def test_values_are_those_of_the_runs(name: str) -> None:
    case = tiny(name)
    outcomes = {}
    for technique in ("ddp", "diloco"):
        outcome = lowcomm.execute(lowcomm.make(technique), case)
        assert isinstance(outcome, Outcome)
        outcomes[technique] = outcome
        assert ("task_accuracy" in outcome.values) == ("sft" in case.kinds)
        curve = outcome.artifacts[0].data.decode().splitlines()
        assert curve[0] == "stage,step,loss,bytes"
    ddp, diloco = outcomes["ddp"].values, outcomes["diloco"].values
    steps, every = case.parameters["steps"], case.parameters["every"]
    rounds = sum(-(-n // every) for n in steps)
    assert (ddp["sync_count"], diloco["sync_count"]) == (sum(steps), rounds)
    assert ddp["comm_bytes"] / diloco["comm_bytes"] == sum(steps) / rounds
    assert ddp["drift"] == 0
    assert diloco["drift"] > 0
    assert ddp["wire_bytes"] == ddp["comm_bytes"]  # 2(k − 1)/k is 1 for two workers


def test_a_changed_parameter_does_not_get_the_reference_s_figures() -> None:
    case = tiny("quick-iid")
    whole, half = (lowcomm.execute(lowcomm.make("ddp", {"bits": bits}), case).values for bits in (32, 16))  # type: ignore[union-attr]
    assert half["comm_bytes"] == whole["comm_bytes"] / 2
    assert half["wall_clock_s"] != whole["wall_clock_s"]


def test_an_own_corpus_is_one_case_and_a_comparison_answers(tmp_path: Path) -> None:
    file = tmp_path / "own.txt"
    file.write_text("\n\n".join(f"line {i} of a very short book about rounds" for i in range(30)))
    options = {"workers": 2, "every": 4, "steps": 8, "width": 16, "layers": 1, "heads": 2, "context": 16, "batch": 2, "latency_ms": 0}
    (case,) = lowcomm.from_file(file, options)
    assert case.kinds == {"file", "iid"}
    result = armillary.compare("training/lowcomm", work=file, options=options, techniques=["ddp", "diloco", "large-batch"], repeats=1)
    assert "times that of data parallelism on the case, with 4 times fewer bytes" in result.answer()
    assert len(plots(result)) == 3
    assert result.medians("ddp", "comm_bytes") == {case.name: 4 * 8 * (2 * 256 * 16 + 4 * 16 * 16 + 2 * 16 * 64)}
    text = json.loads(json.dumps(case.parameters))
    assert text["documents"] == 30


class Said:
    """A result with given values: technique to (bytes, loss) on each case."""

    def __init__(self, *cases: dict[str, tuple[float, float]]) -> None:
        self.values = {f"case-{i}": case for i, case in enumerate(cases)}
        self.cases: dict[str, Any] = dict.fromkeys(self.values, {"kinds": ["pretrain", "iid"], "parameters": {}})
        self.metrics = ("val_loss", "comm_bytes")

    def on(self, case: str, metric: str) -> dict[str, float]:
        place = 0 if metric == "comm_bytes" else 1
        return dict(sorted(((name, pair[place]) for name, pair in self.values[case].items()), key=lambda item: item[1]))


def test_answers_name_the_fewest_bytes_within_five_percent() -> None:
    ddp, near, nearer, far = (100.0, 2.0), (10.0, 2.08), (20.0, 2.01), (1.0, 3.0)
    said = answer(Said({"ddp": ddp, "diloco": near, "local-sgd": nearer, "large-batch": far}))  # type: ignore[arg-type]
    assert said.startswith("diloco has a loss of 1.04 times that of data parallelism on the case, with 10 times fewer bytes.")
    assert said.endswith("Large batches with about the same traffic reach 1.50 times that loss.")
    none = answer(Said({"ddp": ddp, "diloco": (10.0, 2.4), "local-sgd": (10.0, 2.2)}, {"ddp": ddp, "local-sgd": (5.0, 2.6)}))  # type: ignore[arg-type]
    assert none.startswith("local-sgd has a loss of 1.10 to 1.30 times that of data parallelism on 2 of 2 cases, with 10 to 20 times fewer")
    assert none.endswith("nothing that sends so little comes within 5 %.")
    assert "fewer bytes than data parallelism" in answer(Said({"ddp": ddp}))  # type: ignore[arg-type]
    lone = Said({"ddp": ddp})
    lone.metrics = ("val_loss",)
    assert answer(lone) == "Ask for the metrics val_loss and comm_bytes to get an answer."  # type: ignore[arg-type]


def test_the_technique_has_the_parameters_of_the_papers() -> None:
    assert (Diloco().lr, Diloco().momentum, Diloco().outer, Diloco().keep) == (0.7, 0.9, "nesterov", True)
