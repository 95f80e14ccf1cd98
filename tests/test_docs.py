"""The documentation is true: its Python examples give what they show, its commands run."""

from __future__ import annotations

import doctest
import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
#: Pages whose commands everybody runs first; those of the others take minutes in all, and are left to `-m ""`.
FIRST = {"README.md", "index.md", "own-work.md"}
LONG = {"offline.md"}
TRACE = "time,object,size\n" + "".join(f"{i},{('home', 'logo', 'news')[i * i % 3]},{(512, 9000, 70)[i * i % 3]}\n" for i in range(40))


@pytest.fixture
def folder_of_examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The small files that the pages speak of."""
    (tmp_path / "t.csv").write_text(TRACE)
    (tmp_path / "three.csv").write_text("time,object,size\n0.0,home,512\n0.4,logo,9000\n1.1,home,512\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def pages(language: str, ordinary: Callable[[str], bool]) -> list[Any]:
    """The pages with examples in this language; those that are not ordinary are slow."""
    return [
        pytest.param(page, id=page.name, marks=() if ordinary(page.name) else pytest.mark.slow) for page in PAGES if blocks(page, language)
    ]


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", pages("python", lambda name: name not in LONG))
def test_python_examples(page: Path, folder_of_examples: Path) -> None:
    code = "\n".join(blocks(page, "python"))
    test = doctest.DocTestParser().get_doctest(code, {"__name__": "__main__"}, page.name, str(page), 0)
    said: list[str] = []
    results = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=said.append)
    assert results.attempted > 0, "examples are written as a Python prompt shows them"
    assert results.failed == 0, "".join(said)


@pytest.mark.parametrize("page", pages("console", lambda name: name in FIRST))
def test_console_examples(page: Path, folder_of_examples: Path, armillary_command: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    commands = [line[2:] for block in blocks(page, "console") for line in block.splitlines() if line.startswith("$ armillary ")]
    for command in commands:
        run = armillary_command(*shlex.split(command, comments=True)[1:], timeout=300)
        assert run.returncode == 0, f"{command}\n{run.stderr}"
        assert run.stdout, command


def test_every_page_is_in_the_navigation() -> None:
    listed = set(re.findall(r'"([^"]+\.md)"', (ROOT / "zensical.toml").read_text()))
    assert {page.name for page in PAGES if page.parent.name == "docs"} <= listed
