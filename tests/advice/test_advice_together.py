"""Two gains together: both act in one simulator, and whether they add up is computed from four runs."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from armillary import catalogue
from armillary.advice import asking
from armillary.advice.finding import Finding
from armillary.advice.together import HANDED, Together, together
from armillary.arena import Arena, Case

PIPELINE, CHECKPOINT = ("training/pipeline", "zb-h1", "1f1b", "step_time_s"), ("training/checkpoint", "moe-rckpt", "none", "iteration_s")
ALLREDUCE = ("serving/allreduce", "heroserve", "distserve", "allreduce_us")
RESILIENCE = ("serving/resilience", "failsafe", "restore-recompute", "token_throughput")


def finding(who: tuple[str, str, str, str], gain: float) -> Finding:
    arena, technique, today, metric = who
    return Finding(arena, "?", technique, today, metric, "simulated", True, gain, gain, gain, 5, 0, 1, True, (), {}, ())


def tiny(arena: Arena) -> list[Case]:
    return [case for case in arena.built_in("tiny") if case.name in ("gpt-moe-350m-skewed", "chat-half-load", "long-context")]


def tried(tmp_path: Path, *findings: Finding, until: float | None = None) -> list[Together]:
    end = time.monotonic() + 100 if until is None else until
    return together(findings, tiny, asking._machine("dgx-a100", tmp_path), 0, end)


def test_a_gain_of_nothing_changes_nothing(tmp_path: Path) -> None:
    found = tried(tmp_path, finding(PIPELINE, 1 + 1e-9), finding(CHECKPOINT, 1.1))
    assert found == []  # What is no gain is not handed over.
    (pair,) = tried(tmp_path, finding(PIPELINE, 1.1), finding(CHECKPOINT, 1.1))
    # Without checkpoints an iteration is computation, collectives and the update, and only the first becomes shorter.
    assert 1.0 < pair.first_alone < 1.1
    assert pair.second_alone <= 1.0


def test_shorter_computation_leaves_checkpoints_less_room(tmp_path: Path) -> None:
    (pair,) = tried(tmp_path, finding(PIPELINE, 50.0), finding(CHECKPOINT, 1.1))
    assert pair.share < 0.9  # With hardly any idle network, checkpoints stretch the iteration.
    assert "less than the product" in pair.in_words() or "one of them alone gives more" in pair.in_words()


def test_faster_all_reduces_help_a_group_that_spans_servers(tmp_path: Path) -> None:
    (pair,) = tried(tmp_path, finding(ALLREDUCE, 2.0), finding(RESILIENCE, 1.2))
    assert pair.first_alone > 1.0
    assert pair.both >= max(pair.first_alone, pair.second_alone) * 0.98


def test_a_pair_is_left_out_where_one_side_gains_nothing_or_time_is_over(tmp_path: Path) -> None:
    assert tried(tmp_path, finding(PIPELINE, 1.1)) == []
    assert tried(tmp_path, finding(PIPELINE, 1.1), finding(CHECKPOINT, 0.9)) == []
    assert tried(tmp_path, finding(PIPELINE, 1.1), finding(CHECKPOINT, 1.1), until=0.0) == []


@pytest.mark.parametrize(
    ("ratios", "said"),
    [((1.2, 1.5, 1.8), "add up"), ((1.2, 1.5, 1.6), "11% less than"), ((1.2, 1.5, 2.0), "11% more than"), ((1.2, 1.5, 1.3), "alone gives more")],
)
def test_the_words_follow_the_ratios(ratios: tuple[float, float, float], said: str) -> None:
    assert said in Together("a/b", "x", "a/c", "y", "m", "simulated", *ratios, 3, "w").in_words()


def test_every_pair_names_arenas_of_one_field_and_metrics_that_exist() -> None:
    for handed in HANDED:
        first, second = catalogue.arena(handed.first), catalogue.arena(handed.second)
        assert first.field == second.field
        assert first.metrics[handed.gain_in].scale == "ratio"
