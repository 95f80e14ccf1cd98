"""The arena: cases, claims, answers, files of the user's kind and wrong ones."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy.io import mmwrite
from scipy.sparse import coo_matrix, save_npz

from armillary.arena import Case, NotForThisCase, Outcome
from armillary.trust.corruption.arena import corruption
from armillary.trust.corruption.matrices.built_in import KINDS, poisson

Command = Callable[..., subprocess.CompletedProcess[str]]


def case(name: str) -> Case:
    return next(one for one in corruption.built_in("tiny") if one.name == name)


def outcome(technique: str, name: str) -> Outcome:
    found = corruption.execute(corruption.make(technique), case(name))
    assert isinstance(found, Outcome), found
    return found


def test_every_claim_has_four_cases_at_least() -> None:
    cases = corruption.built_in("small")
    for number, _, claim in corruption.claims():
        for kind in claim.kinds:
            assert sum(kind.takes(one.kinds) for one in cases) >= 4, number


def test_rivals_take_the_cases_on_which_they_are_named() -> None:
    """A claim over a technique that declines could never be judged."""
    from armillary.trust.corruption.solvers.kinds import SOLVERS

    for _, _, claim in corruption.claims():
        for rival in claim.baselines:
            needs = getattr(corruption.technique(rival), "needs", "")
            for one in corruption.built_in("small"):
                if needs and any(kind.takes(one.kinds) for kind in claim.kinds):
                    assert getattr(SOLVERS[one.parameters["kernel"]], needs), (rival, one.name)


def test_the_average_is_over_all_kernels_and_matrices() -> None:
    cases = [one for one in corruption.built_in("small") if "folds" in one.kinds]
    assert len(cases) == 8 * 4
    claim = corruption.claims_of("counters-standard")[0]
    assert all(claim.kinds[0].takes(one.kinds) for one in cases)
    assert claim.stand_in


def test_twice_finds_everything_and_nothing_finds_nothing() -> None:
    for name in ("cg/rmat", "trisolve/delaunay"):
        twice, never = outcome("duplicate", name).values, outcome("none", name).values
        assert twice["recall_at_5"] > 0.9
        assert twice["harm_missed"] == 0
        assert (never["recall"], never["recall_at_5"], never["harm_missed"], never["latency"]) == (0, 0, 1, float("inf"))


def test_checks_inside_find_what_they_look_at_and_are_quiet_otherwise() -> None:
    for name in ("abft", "residual", "aid"):
        found = outcome(name, "cg/rmat").values
        assert found["recall_at_5"] > 0.1
        assert found["false_alarms"] < 0.02
    assert outcome("abft", "cg/rmat").values["recall"] > 0.4
    both = outcome("combined", "cg/rmat").values
    assert both["recall"] <= outcome("abft", "cg/rmat").values["recall"]


def test_checks_decline_kernels_that_lack_what_they_need() -> None:
    cases = {one.name: one for one in corruption.built_in("tiny")}
    for technique, name, said in (
        ("abft", "sssp/repeated", "no product"), ("residual", "jacobi/unseen", "no recurrence"), ("aid", "trisolve/delaunay", "no iterate"), ("aid", "sssp/repeated", "no iterate"),
        ("forest-no-caches", "trisolve/delaunay", "left out"),
    ):  # fmt: skip
        found = corruption.execute(corruption.make(technique), cases[name])
        assert isinstance(found, NotForThisCase)
        assert said in str(found)


def test_a_chosen_classifier_is_one_of_its_family() -> None:
    from armillary.trust.corruption.classifiers.kinds import FAMILIES

    work = case("cg/rmat").workload
    for family, members in FAMILIES.items():
        technique = corruption.make(f"counters-{family}")
        kinds, seconds = technique.kinds(work)
        assert set(kinds) <= set(members)
        assert len(kinds) == len(work.folds())
        assert seconds > 0


def test_a_matrix_of_ones_own_is_answered_in_words(armillary_here: Command, tmp_path: Path) -> None:
    path, options = corruption.write_example(tmp_path)
    given = [part for name, value in options.items() for part in (f"--{name}", value)]
    found = armillary_here(
        "compare", "trust/corruption", "--work", str(path), *given, "--repeats", "1", "--techniques", "counters-iforest,abft,none"
    )
    assert found.returncode == 0, found.stderr
    said = " ".join(found.stdout.split())
    assert "With 5 % false alarms, counters-iforest finds" in said
    assert "abft finds" in said


def test_logs_without_labels_are_watched(armillary_here: Command, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    lines = []
    for window in range(200):
        more = 1.5 if window >= 150 else 1.0
        for event, value in (("cycles", 1e9 * more), ("instructions", 2e9), ("branch-misses", 1e6)):
            lines.append(f"{0.1 * (window + 1):15.6f};{value * rng.lognormal(0, 0.01):.0f};;{event};100000000;100.00;;")
    (tmp_path / "perf.txt").write_text("\n".join(lines) + "\n")
    found = armillary_here(
        "compare", "trust/corruption", "--work", str(tmp_path / "perf.txt"), "--repeats", "1", "--techniques",
        "counters-autoencoder,counters-forest,abft",
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
    said = " ".join(found.stdout.split())
    assert "counters-autoencoder alarms in 49.0 % of the later windows of perf.txt, the first at window 151." in said
    assert "needs labelled windows" in said


def test_hardware_counters_that_are_absent_are_declined(tmp_path: Path) -> None:
    mmwrite(tmp_path / "a.mtx", coo_matrix(poisson((6, 6)).scipy()))
    (one,) = corruption.from_file(tmp_path / "a.mtx", {"kernels": "jacobi", "counters": "perf"})
    found = corruption.execute(corruption.make("abft"), one)
    assert isinstance(found, NotForThisCase)
    assert "hardware counters" in str(found)


def test_kernels_that_do_not_suit_a_matrix_are_declined(tmp_path: Path) -> None:
    save_npz(tmp_path / "web.npz", KINDS["web"](60, np.random.default_rng(0)).scipy())
    cases = corruption.from_file(tmp_path / "web.npz", {"kernels": "cg,pagerank", "pairs": "8"})
    first, second = (corruption.execute(corruption.make("abft"), one) for one in cases)
    assert isinstance(first, NotForThisCase)
    assert "not symmetric" in str(first)
    assert isinstance(second, Outcome)


@pytest.mark.parametrize(
    ("content", "options", "said"),
    [
        ("%%MatrixMarket matrix coordinate real general\n3 4 1\n1 1 1.0\n", (), "expected a square matrix"),
        ("%%MatrixMarket matrix coordinate real general\n3 3 1\n9 1 1.0\n", (), "a.mtx"),
        ("%%MatrixMarket matrix coordinate real general\n3 3 2\n1 1 1.0\n2 2 nan\n", (), "found nan"),
        ("%%MatrixMarket matrix coordinate real general\n3 3 1\n1 1 1.0\n", ("--kernels", "fft"), 'unknown kernel "fft"'),
        ("%%MatrixMarket matrix coordinate real general\n3 3 1\n1 1 1.0\n", ("--targets", "rows"), 'unknown target "rows"'),
        ("%%MatrixMarket matrix coordinate real general\n3 3 1\n1 1 1.0\n", ("--pairs", "2"), "from 6 to 5000"),
    ],
)
def test_wrong_matrices_and_options_are_one_line(armillary_here: Command, tmp_path: Path, content: str, options: tuple[str, ...], said: str) -> None:
    (tmp_path / "a.mtx").write_text(content)
    found = armillary_here("compare", "trust/corruption", "--work", str(tmp_path / "a.mtx"), *options)
    assert found.returncode == 2
    assert said in found.stderr
    assert len(found.stderr.strip().splitlines()) == 1
    assert [one.name for one in tmp_path.iterdir()] == ["a.mtx"]


def test_labelled_logs_are_judged_and_short_ones_refused(armillary_here: Command, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for runs, name in ((44, "long.csv"), (8, "short.csv")):
        lines = ["run,window,label,instructions,llc_misses"]
        for run in range(runs):
            for window in range(10):
                bad = int(run % 2 and window >= 4)
                lines.append(f"r{run},{window},{bad},{1e6 * rng.lognormal(0, 0.005):.0f},{1e4 * (1 + 0.2 * bad) * rng.lognormal(0, 0.005):.0f}")
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    found = armillary_here(
        "compare", "trust/corruption", "--work", str(tmp_path / "long.csv"), "--repeats", "1", "--techniques", "counters-svm,counters-ocsvm,abft"
    )
    assert found.returncode == 0, found.stderr
    said = " ".join(found.stdout.split())
    assert "finds 100 % of the corrupted runs from counters" in said
    found = armillary_here("compare", "trust/corruption", "--work", str(tmp_path / "short.csv"))
    assert found.returncode == 2
    assert "found 4 clean and 4 corrupted runs; expected at least 6 of each" in found.stderr
    assert len(found.stderr.strip().splitlines()) == 1
