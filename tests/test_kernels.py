"""The cache of compiled loops: what makes two loops different, what makes them equal, and what a damaged folder does (nothing)."""

from __future__ import annotations

import errno
import importlib
import json
import os
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from numba.core.caching import NullCache
from numba.core.dispatcher import Dispatcher

from armillary.kernels import cache, kernel, loop, parallel_loop
from armillary.kernels.content import NoContentError, digest
from armillary.kernels.exponential import exp, exp32

ROOT = Path(__file__).parents[1]
#: Four modules in a row: only `far` reads WEIGHT, which stands three imports away; `near` reads nothing of them.
PACKAGE = {
    "__init__.py": "",
    "weights.py": "WEIGHT = 3\nOTHER = 5\n",
    "parts.py": "from armillary.kernels import part\nfrom .weights import WEIGHT\n@part\ndef weigh(x):\n    return WEIGHT * x\n",
    "sums.py": "from armillary.kernels import part\nfrom . import parts\n@part\ndef add(x):\n    return parts.weigh(x) + 1\n",
    "loops.py": """from armillary.kernels import kernel, loop
from .sums import add
@kernel
def far(x):
    return add(x)
@loop
def near(x: int) -> int:
    # A comment.
    y = 2 * x
    return y
""",
}


class Packages:
    """Writes small packages and imports them under one name, as two clones or two versions of one package would be."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.name = f"pack_{uuid.uuid4().hex[:8]}"

    def load(self, module: str = "loops", clone: str = "clone", **changes: str) -> ModuleType:
        """Imports a module of the package afresh; `changes` maps a file's stem to its text."""
        for name in [name for name in sys.modules if name.split(".")[0] == self.name]:
            del sys.modules[name]
        place = self.folder / f"{clone}_{uuid.uuid4().hex[:8]}"
        for file, text in PACKAGE.items():
            (place / self.name).mkdir(parents=True, exist_ok=True)
            (place / self.name / file).write_text(text)
        for stem, text in changes.items():
            (place / self.name / f"{stem}.py").write_text(text)
        sys.path.insert(0, str(place))
        importlib.invalidate_caches()
        try:
            return importlib.import_module(f"{self.name}.{module}")
        finally:
            sys.path.remove(str(place))


@pytest.fixture
def packages(tmp_path: Path) -> Iterator[Packages]:
    made = Packages(tmp_path)
    yield made
    for name in [name for name in sys.modules if name.split(".")[0] == made.name]:
        del sys.modules[name]


@pytest.fixture
def entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[Path]]:
    """Moves the cache to a folder of this test; gives its entries."""
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "kernels"))
    return lambda: sorted((tmp_path / "kernels").glob("*.kernel"))


def hits(compiled: Any) -> int:
    return sum(compiled.stats.cache_hits.values())


def test_a_constant_three_imports_away_changes_exactly_its_users(packages: Packages) -> None:
    before = packages.load()
    far, near = digest(before.far), digest(before.near)
    changed = packages.load(weights="WEIGHT = 4\nOTHER = 5\n")
    assert digest(changed.far) != far
    assert digest(changed.near) == near
    other = packages.load(weights="WEIGHT = 3\nOTHER = 6\n")
    assert (digest(other.far), digest(other.near)) == (far, near)


def test_a_part_reached_through_a_module_counts(packages: Packages) -> None:
    before = digest(packages.load().far)
    assert digest(packages.load(parts=PACKAGE["parts.py"].replace("WEIGHT * x", "WEIGHT * x + x")).far) != before


def test_docstrings_comments_and_annotations_change_nothing(packages: Packages) -> None:
    before = packages.load()
    digests = digest(before.far), digest(before.near)
    told = {
        "parts": PACKAGE["parts.py"].replace("def weigh(x):\n", 'def weigh(x: int) -> int:\n    """Weighs."""\n    # Twice.\n\n'),
        "loops": PACKAGE["loops.py"].replace("# A comment.", '"""Doubles."""').replace("y =", "y: int =").replace("(x: int)", "(x: float)"),
    }
    after = packages.load(**told)
    assert after.near.__doc__ == "Doubles."
    assert (digest(after.far), digest(after.near)) == digests


def test_two_clones_share_entries(packages: Packages, entries: Callable[[], list[Path]]) -> None:
    assert packages.load(clone="one").far(2) == 7
    written = entries()
    assert len(written) == 3  # The kernel and its two parts.
    far = packages.load(clone="two").far
    assert far(2) == 7
    assert (hits(far), entries()) == (1, written)


def test_two_sets_of_options_do_not_share(packages: Packages, entries: Callable[[], list[Path]]) -> None:
    text = "from armillary.kernels import loop\ndef divide(x, y):\n    return x / y\n"
    text += "checked = loop(divide)\nunchecked = loop(error_model='numpy')(divide)\n"
    for _ in range(2):
        loops = packages.load(loops=text)
        assert loops.unchecked(1.0, 0.0) == np.inf
        with pytest.raises(ZeroDivisionError):
            loops.checked(1.0, 0.0)
    assert (hits(loops.checked), hits(loops.unchecked), len(entries())) == (1, 1, 2)
    some, others = (digest(loop(fastmath=flags)(loops.divide)) for flags in ({"nnan", "ninf"}, {"nnan", "arcp"}))
    assert len({some, others, digest(loops.checked), digest(kernel(loops.divide)), digest(parallel_loop(loops.divide))}) == 5


def test_every_loop_of_the_package_can_be_kept() -> None:
    files = [file for file in (ROOT / "armillary").rglob("*.py") if "armillary.kernels import" in file.read_text()]
    assert len(files) > 50
    for file in files:
        module = importlib.import_module(".".join(file.relative_to(ROOT).with_suffix("").parts))
        for compiled in vars(module).values():
            if isinstance(compiled, Dispatcher):
                assert len(digest(compiled)) == 40


def test_serial_and_parallel_steps_of_a_linear_program_are_two_loops() -> None:
    from armillary.numerics.lp.first_order import steps

    assert digest(steps.halpern_serial) != digest(steps.halpern_parallel)


def test_captured_values_and_defaults_count(packages: Packages, entries: Callable[[], list[Path]]) -> None:
    text = "from armillary.kernels import loop\ndef make(k):\n    @loop\n    def times(x):\n        return k * x\n    return times\n"
    loops = packages.load(loops=text)
    table = np.array([1, 2, 3])
    assert digest(loops.make(2)) == digest(loops.make(2)) != digest(loops.make(3))
    assert digest(loops.make(2)) != digest(loops.make(2.0)) != digest(loops.make(table)) != digest(loops.make(table[::-1]))
    assert [loops.make(k)(5) for k in (2, 3, 2)] == [10, 15, 10]
    assert len(entries()) == 2
    defaults = "from armillary.kernels import loop\n@loop\ndef far(x, y={}):\n    return x + y\n"
    assert digest(packages.load(loops=defaults.format(1)).far) != digest(packages.load(loops=defaults.format(2)).far)


def test_an_intrinsic_and_what_it_calls_count(packages: Packages) -> None:
    text = """from armillary.kernels import kernel
from numba import types
from numba.extending import intrinsic
SHIFT = 1
def emit(builder, x):
    return builder.add(x, x.type(SHIFT))
@intrinsic
def shifted(typing, x):
    def build(context, builder, signature, arguments):
        return emit(builder, arguments[0])
    return types.int64(types.int64), build
@kernel
def far(x):
    return shifted(x)
"""
    before = digest(packages.load(loops=text).far)
    assert digest(packages.load(loops=text).far) == before
    assert digest(packages.load(loops=text.replace("SHIFT = 1", "SHIFT = 2")).far) != before
    assert digest(packages.load(loops=text.replace("builder.add", "builder.sub")).far) != before


def test_a_loop_that_calls_itself_or_cannot_be_imported_is_not_kept(packages: Packages, entries: Callable[[], list[Path]]) -> None:
    text = "from armillary.kernels import loop\n@loop\ndef product(n):\n    if n <= 1:\n        return 1\n    return n * product(n - 1)\n"
    text += "@loop\ndef user(n):\n    return product(n) + 1\n"
    loops = packages.load(loops=text)
    assert loops.user(5) == 121
    for compiled in (loops.product, loops.user):
        with pytest.raises(NoContentError, match="calls itself"):
            digest(compiled)
    typed: dict[str, Any] = {"__name__": "typed_in"}
    exec("from armillary.kernels import loop\n@loop\ndef twice(x):\n    return 2 * x\n", typed)
    assert typed["twice"](4) == 8
    assert entries() == []


def test_a_function_among_the_arguments_is_not_kept(packages: Packages, entries: Callable[[], list[Path]]) -> None:
    text = "from armillary.kernels import loop\n@loop\ndef once(x):\n    return x + 1\n@loop\ndef apply(f, x):\n    return f(x)\n"
    loops = packages.load(loops=text)
    assert loops.apply(loops.once, 1) == 2
    assert [entry.name.split("-")[0].rsplit(".")[-1] for entry in entries()] == ["once"]


@pytest.mark.parametrize("damage", [lambda body: body[: len(body) // 2], lambda body: b"", lambda body: body[:-1] + bytes([body[-1] ^ 1]), lambda body: b"other" * 99])
def test_a_damaged_entry_is_compiled_again(packages: Packages, entries: Callable[[], list[Path]], damage: Callable[[bytes], bytes]) -> None:
    assert packages.load().near(2) == 4
    (entry,) = entries()
    whole = entry.read_bytes()
    entry.write_bytes(damage(whole))
    near = packages.load().near
    assert (near(2), hits(near)) == (4, 0)
    near = packages.load().near
    assert (near(2), hits(near)) == (4, 1)


def test_an_entry_under_another_name_is_not_taken(packages: Packages, entries: Callable[[], list[Path]]) -> None:
    loops = packages.load()
    loops.near(2)
    (whole,) = entries()
    loops.near(2.5)
    (real,) = set(entries()) - {whole}
    shutil.copy(whole, real)
    near = packages.load().near
    assert (near(2.5), hits(near)) == (5.0, 0)


def test_a_folder_that_cannot_be_written_is_no_error(packages: Packages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "file"))
    near = packages.load().near
    assert (near(2), near.stats.cache_path) == (4, None)


@pytest.mark.parametrize("error", [errno.EACCES, errno.EROFS, errno.ENOSPC])
def test_a_folder_that_is_read_only_or_full_is_read(
    packages: Packages, entries: Callable[[], list[Path]], monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    assert packages.load().near(2) == 4
    written = entries()
    os.utime(written[0], (0, 0))

    def refused(*_: object) -> None:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(Path, "write_bytes", refused)
    monkeypatch.setattr(os, "utime", refused)
    loops = packages.load()
    assert (loops.near(2), hits(loops.near), loops.far(2)) == (4, 1, 7)
    assert set(written[0].parent.iterdir()) == {written[0].parent / "cleaned", *written}


def test_a_folder_that_others_can_write_to_is_not_used(packages: Packages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o770)
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "open"))
    with pytest.warns(UserWarning, match="someone else"):
        assert packages.load().near(2) == 4
    assert list((tmp_path / "open").iterdir()) == []


def test_the_folder_is_the_users_own(entries: Callable[[], list[Path]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = cache.folder()
    assert made is not None
    assert made.stat().st_mode & 0o777 == 0o700
    monkeypatch.delenv(cache.VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    assert cache.folder() == tmp_path / "caches" / "armillary" / "kernels"


def test_only_entries_that_were_not_used_for_long_are_removed(packages: Packages, entries: Callable[[], list[Path]]) -> None:
    packages.load().far(2)
    used, unused, young = entries()
    long_ago, stamp = time.time() - cache.KEPT_S - cache.DAY_S, used.parent / "cleaned"
    theirs = used.parent / "notes.kernel.txt"
    theirs.write_text("")
    left_over = used.with_name(f"{used.name}.{uuid.uuid4().hex}")
    left_over.write_text("")
    for file in (used, unused, theirs, left_over):
        os.utime(file, (long_ago, long_ago))
    cache._clean(used.parent)
    assert unused.exists(), "cleaned twice in a day"
    for compiled in vars(packages.load()).values():  # Any use is a use.
        if getattr(compiled, "__name__", "") == used.name.split("-")[0].rsplit(".", 1)[-1]:
            compiled(2)
    os.utime(stamp, (long_ago, long_ago))
    cache._clean(used.parent)
    assert not unused.exists()
    assert not left_over.exists()
    assert used.exists()
    assert young.exists()
    assert theirs.exists()


def python(code: str, *path: Path) -> subprocess.Popen[str]:
    where = os.pathsep.join(map(str, [*path, ROOT]))
    surroundings = {**os.environ, "PYTHONPATH": where, "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.Popen([sys.executable, "-c", code], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=surroundings, cwd=path[0])


def answer(process: subprocess.Popen[str]) -> Any:
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return json.loads(out)


def test_processes_at_once_and_after_share_a_folder(packages: Packages, entries: Callable[[], list[Path]]) -> None:
    where = Path(packages.load().__file__ or "").parents[1]
    code = f"from {packages.name}.loops import far\nprint([far(2), sum(far.stats.cache_hits.values())])"
    for process in [python(code, where) for _ in range(2)]:
        assert answer(process)[0] == 7
    assert len(entries()) == 3
    assert answer(python(code, where)) == [7, 1]


def test_closures_of_two_processes_stay_apart_in_one_loop(packages: Packages, entries: Callable[[], list[Path]]) -> None:
    text = """from armillary.kernels import loop
def make(k):
    @loop
    def times(x):
        return k * x
    return times
def both(a, b):
    @loop
    def pair(x):
        return a(x), b(x)
    return pair
"""
    loops = packages.load(loops=text)
    where = Path(loops.__file__ or "").parents[1]
    assert answer(python(f"from {packages.name}.loops import *\nprint(make(2)(10))", where)) == 20
    code = f"from {packages.name}.loops import *\na, b = make(2), make(3)\nprint([a(10), sum(a.stats.cache_hits.values()), b(10), *both(a, b)(10)])"
    assert answer(python(code, where)) == [20, 1, 30, 20, 30]


def test_an_edited_part_in_another_module_changes_the_answer_of_lru(tmp_path: Path, entries: Callable[[], list[Path]]) -> None:
    shutil.copytree(ROOT / "armillary", tmp_path / "armillary", ignore=shutil.ignore_patterns("__pycache__"))
    code = "from armillary.storage.eviction import Lru\nprint(int(Lru().run([1, 2, 1, 2, 3, 3], 2).sum()))"
    assert answer(python(code, tmp_path)) == 3
    policy = tmp_path / "armillary" / "storage" / "eviction" / "simulation" / "policy.py"
    before = policy.read_text()
    after = before.replace("    if operation == LOOKUP:\n        return True\n", "    if operation == LOOKUP:\n        return i > 3\n")
    assert after != before
    policy.write_text(after)
    assert answer(python(code, tmp_path)) == 1
    policy.write_text(before)
    assert answer(python(code, tmp_path)) == 3


@loop
def _exponentials(x, out):  # type: ignore[no-untyped-def]
    for i in range(x.size):
        out[i] = exp(x[i])


@loop
def _exponentials_32(x, out):  # type: ignore[no-untyped-def]
    for i in range(x.size):
        out[i] = exp32(x[i])


@pytest.mark.parametrize(("run", "dtype", "least", "most"), [(_exponentials, np.float64, -708.0, 709.0), (_exponentials_32, np.float32, -87.0, 88.0)])
def test_exponentials_are_those_of_the_library_to_the_last_place(run: Any, dtype: Any, least: float, most: float) -> None:
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.uniform(least, most, 200_000), rng.uniform(-1e-6, 1e-6, 1000), rng.normal(size=1000)]).astype(dtype)
    found = np.empty_like(x)
    run(x, found)
    exact = np.exp(x.astype(np.longdouble))
    assert (abs(found - exact) / np.spacing(exact.astype(dtype))).max() <= 1.5
    edges = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e30, -1e30, most + 2, least - 60], dtype)
    found = np.empty_like(edges)
    run(edges, found)
    with np.errstate(over="ignore", under="ignore"):
        np.testing.assert_array_equal(found, np.exp(edges))


def test_a_loop_of_exponentials_is_turned_into_vectors() -> None:
    """The reason why they exist: a call of the C library would keep the loop scalar."""
    made, x = loop(_exponentials.py_func), np.zeros(64)
    made._cache = NullCache()  # Machine code from the cache has no text to look at.
    made(x, x.copy())
    assert any("x double>" in text for text in made.inspect_llvm().values())
