"""What every test has: the outside package on the path, a store of its own, and no user's settings."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# How long an example takes says more about the machine's other work than about the code. Examples come from fixed seeds, so that a clone
# does not pass or fail by luck; `tests/look_for_examples` draws thousands at random instead.
settings.register_profile("check", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True, database=None)
settings.register_profile("look", deadline=None, suppress_health_check=list(HealthCheck), print_blob=True)
settings.load_profile(os.environ.get("ARMILLARY_EXAMPLES", "check"))

# Some virtual machines list AMX and end a process that uses it, which PyTorch's bfloat16 products do; so they stay below it here.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

#: Packages that add arenas and techniques from outside: one for the tests, and the example of docs/add-an-arena.md.
OUTSIDE = [str(Path(__file__).parent / "outside"), str(Path(__file__).parents[1] / "examples")]
sys.path[:0] = OUTSIDE
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [*OUTSIDE, os.environ.get("PYTHONPATH")]))


@pytest.fixture(autouse=True)
def own_surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test sees the user's results or leaves any; compiled loops are shared with the user through their cache."""
    monkeypatch.setenv("ARMILLARY_STORE", str(tmp_path / "own.db"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("ARMILLARY_LOCK", f"armillary-tests-{os.getpid()}")


@pytest.fixture
def armillary_command(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs the command line as a person does, in an empty folder."""

    def run(*arguments: str, timeout: float = 120, **how: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "armillary.cli", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=timeout, cwd=tmp_path, **how)  # type: ignore[call-overload,no-any-return]

    return run


@pytest.fixture
def armillary_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs the command line in this process, in an empty folder: for the many commands that end before anything runs."""
    from armillary import cli

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        with monkeypatch.context() as there:
            there.chdir(tmp_path)
            there.setattr(sys, "argv", ["armillary", *arguments])
            there.setattr(warnings, "showwarning", warnings.showwarning)
            with pytest.raises(SystemExit) as ended:
                cli.main()
        out, err = capsys.readouterr()
        return subprocess.CompletedProcess(list(arguments), int(ended.value.code or 0), out, err)

    return run


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The real files beside the checkout; tests that want them skip where there are none."""
    folder = Path(__file__).parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("no real files beside the checkout")
    return folder


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Multiplies the examples of every property test when somebody looks for new ones."""
    times = int(os.environ.get("ARMILLARY_EXAMPLES_TIMES", "1"))
    for item in items if times > 1 else ():
        test = getattr(item, "function", None)
        usual = getattr(test, "_hypothesis_internal_use_settings", None)
        if usual is not None:
            test._hypothesis_internal_use_settings = settings(usual, max_examples=times * usual.max_examples)  # type: ignore[union-attr]


#: Seconds that the ordinary tests of one arena may take, with compiled loops in the cache.
ARENA_BUDGET_S = 12.0


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Names the arenas whose ordinary tests took longer than they may."""
    spent: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            parts = getattr(report, "nodeid", "").split("/")
            if len(parts) > 3 and "slow" not in getattr(report, "keywords", {}):
                spent["/".join(parts[:3])] += getattr(report, "duration", 0.0)
    for folder, seconds in spent.most_common():
        if seconds > ARENA_BUDGET_S:
            terminalreporter.write_line(
                f"{folder} took {seconds:.0f} s; an arena's ordinary tests take at most {ARENA_BUDGET_S:.0f} s warm"
            )
