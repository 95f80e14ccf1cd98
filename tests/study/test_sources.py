"""Which code a unit can reach: a change there, and nowhere else, changes the digest."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

FILES = {
    "__init__.py": "",
    "arena.py": "PROGRAM = 'shop.child:main'\n\ndef run():\n    from .work import made\n\n    return made()\n",
    "child.py": "def main():\n    return 1\n",
    "work.py": "from . import sizes\nimport shop.tools as tools\n\ndef made():\n    return sizes.LARGE + tools.cut()\n",
    "sizes.py": '"""Sizes."""\nLARGE = 3\n',
    "unused.py": "LARGE = 3\n",
    "tools/__init__.py": "import lazy_loader\n__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)\n",
    "tools/__init__.pyi": "from .cutting import cut as cut\nfrom .glueing import glue as glue\n",
    "tools/cutting.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from shop.unused import LARGE\ndef cut():\n    return 1\n",
    "tools/glueing.py": "def glue():\n    return 2\n",
    "tools/presets/fine.toml": "teeth = 3\n",
}


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        file = tmp_path / "shop" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return tmp_path


def digest(folder: Path) -> str:
    code = "from armillary import sources; print(sources.digest(['shop.arena'])); sources.keep()"
    surroundings = {"PYTHONPATH": str(folder), "XDG_CACHE_HOME": str(folder / "cache"), "PATH": ""}
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=surroundings, check=True)
    return run.stdout.strip()


def change(folder: Path, name: str, old: str, new: str) -> None:
    file = folder / "shop" / name
    text = file.read_text()
    assert old in text or not old
    file.write_text(text.replace(old, new) if old else text + new)


def test_what_is_reached_counts_and_nothing_else(shop: Path) -> None:
    """One process per change is slow, so the changes that must not count are made together, those that must one after another."""
    before = digest(shop)
    change(shop, "unused.py", "3", "4")
    change(shop, "tools/glueing.py", "2", "5")
    change(shop, "sizes.py", "Sizes.", "Other words.")
    change(shop, "work.py", "", "# A comment.\n\n")
    assert digest(shop) == before, "unreached code, a stub's other name, a docstring, a comment"
    for name, old, new in (
        ("sizes.py", "LARGE = 3", "LARGE = 4"),
        ("tools/cutting.py", "return 1", "return 2"),
        ("child.py", "return 1", "return 2"),
        ("tools/presets/fine.toml", "3", "4"),
    ):
        change(shop, name, old, new)
        after = digest(shop)
        assert after != before, name
        before = after


def test_a_damaged_cache_of_sources_is_no_cache(shop: Path) -> None:
    before = digest(shop)
    kept = shop / "cache" / "armillary" / "sources.json"
    entries = json.loads(kept.read_text())["sources"]
    for damaged in ('{"form": 2, "sources": ', json.dumps({"form": 2, "sources": dict.fromkeys(entries, 3)})):
        kept.write_text(damaged)
        assert digest(shop) == before


def test_an_arena_reaches_its_techniques_ground_and_presets() -> None:
    from armillary import catalogue, sources

    tiers = catalogue.arena("serving/tiers")
    modules = sources.reached([tiers.module, tiers.target("hyperion").partition(":")[0]])
    assert {"armillary.arena", "armillary.case", "armillary.streams", "armillary.serving.tiers.hyperion"} <= set(modules)
    assert "armillary.serving.tiers.edgeshard" not in modules, "another technique's code is not this one's"
    names = {name for name, _ in sources.data_files(modules.values())}
    assert "cluster/presets/tiers-3.toml" in names
