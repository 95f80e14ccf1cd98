"""What a loop executes does not depend on the secret, instruction by instruction; a loop that is not written so is seen to differ."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import pytest

ONE, LARGE = 1, 123456789012345678901234567890123456789012345678901234567890
PROGRAM = Path(__file__).with_name("stepped.py")

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64", reason="single steps are taken with ptrace on x86-64"
)


def traces(loop: str, *secrets: int) -> list[str]:
    ran = subprocess.run([sys.executable, str(PROGRAM), loop, *map(str, secrets)], capture_output=True, text=True, timeout=600)
    if "PermissionError" in ran.stderr:
        pytest.skip("this machine does not let a process trace its child")
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines()


@pytest.mark.slow
@pytest.mark.parametrize("loop", ["inner", "hash", "multiple"])
def test_secrets_do_not_choose_what_is_executed(loop: str) -> None:
    one, other = traces(loop, ONE, LARGE)
    assert one == other
    assert int(one.split()[0]) > 100


@pytest.mark.slow
def test_a_loop_that_branches_on_its_scalars_is_seen_to() -> None:
    one, other = traces("sum", ONE, LARGE)
    assert one != other
