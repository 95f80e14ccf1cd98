"""What every test has: the outside package on the path, a store of its own, and no user's settings."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# How long an example takes says more of the machine's other work than of the code.
settings.register_profile("armillary", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("armillary")

OUTSIDE = Path(__file__).parent / "outside"
sys.path.insert(0, str(OUTSIDE))
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(OUTSIDE), os.environ.get("PYTHONPATH")]))


@pytest.fixture(autouse=True)
def own_surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test sees or leaves anything in the user's folders."""
    monkeypatch.setenv("ARMILLARY_STORE", str(tmp_path / "own.db"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("NO_COLOR", raising=False)


@pytest.fixture
def armillary_command(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs the command line as a person does, in an empty folder."""

    def run(*arguments: str, timeout: float = 120, **how: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "armillary.cli", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=timeout, cwd=tmp_path, **how)  # type: ignore[call-overload,no-any-return]

    return run


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The real files beside the checkout; tests that want them skip where there are none."""
    folder = Path(__file__).parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("no real files beside the checkout")
    return folder
