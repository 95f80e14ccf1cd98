"""Where a model comes from: a file that the user names, the cache, the wheel, or training on first use.

A `Recipe` says which technique trains what, with which parameters, on which cases, from which seed, and by which function. Its digest
covers all of these, and the digest under which a model is cached also covers the code that the training function can reach. A changed
parameter or line of code therefore never finds an old model in the cache.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib
import inspect
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from armillary import extras, sources
from armillary.errors import InputError, one_line
from armillary.parameters import canonical_json

from .store import Model, load, versions

#: The folder of the package, in which shipped models stand.
ROOT = Path(__file__).parents[1]
#: Is told the share of the work that is done, from 0 to 1.
Progress = Callable[[float], None]
#: The most bytes of a shipped model and of all of them together.
SHIPPED_BYTES, ALL_SHIPPED_BYTES = 300_000, 3_000_000


@dataclass(frozen=True)
class Recipe:
    """How a model is made: `train(recipe, progress)` gives a `Model`, from these parameters, cases and seed alone."""

    #: `field/arena/technique`.
    technique: str
    #: The training function, as "package.module:function"; a function itself in a notebook.
    train: str | Callable[[Recipe, Progress], Model]
    #: Every parameter that affects training.
    parameters: Mapping[str, Any] = field(default_factory=dict)
    #: The digests of the training cases.
    cases: tuple[str, ...] = ()
    seed: int = 0
    #: The model's name where a technique has several; the technique's own by default.
    name: str = ""
    #: Hex SHA-256 of the file that comes with the package; empty where none does.
    shipped: str = ""
    #: Seconds that training takes on one core, to be told before it begins.
    expected_s: float = 0.0
    #: The folder of shipped models; `armillary/<field>/<arena>/models` by default.
    folder: Path | None = None

    @property
    def file(self) -> Path:
        """The file that is shipped with the package."""
        *home, technique = self.technique.split("/")
        return (self.folder or ROOT.joinpath(*home, "models")) / f"{self.name or technique}.safetensors"

    def digest(self) -> str:
        """Hex SHA-256 over technique, name, parameters, cases and seed."""
        facts = [self.technique, self.name, dict(self.parameters), list(self.cases), self.seed]
        return hashlib.sha256(canonical_json(facts).encode()).hexdigest()

    def code_digest(self) -> str:
        """Hex SHA-256 over the meaning of all code and data that the training function reaches; model files do not count."""
        if not isinstance(self.train, str):
            return hashlib.sha256(_text_of(self.train)).hexdigest()
        modules = sources.reached([self.train.partition(":")[0]])
        total = hashlib.sha256()
        for module in sorted(modules.keys() - sources.JUDGING):
            total.update(f"{module} {sources.source(modules[module]).meaning}\0".encode())
        for name, file in sorted(sources.data_files(modules.values())):
            if file.suffix != ".safetensors":
                total.update(f"{name} {hashlib.sha256(file.read_bytes()).hexdigest()}\0".encode())
        sources.keep()
        return total.hexdigest()

    def cache_digest(self) -> str:
        """Hex SHA-256 over `digest` and `code_digest`: the name in the cache."""
        return hashlib.sha256(f"{self.digest()} {self.code_digest()}".encode()).hexdigest()

    def trained(self, progress: Progress | None = None) -> Model:
        """Trains the model now, whatever is stored."""
        train: Any = self.train
        try:
            if isinstance(train, str):
                module, _, name = train.partition(":")
                train = getattr(importlib.import_module(module), name)
            model: Model = train(self, progress or _nothing)
        except ModuleNotFoundError as error:
            if not extras.optional(error.name):
                raise
            raise extras.missing(error.name or "torch") from None
        return replace(
            model, technique=self.technique, trained_on=self.cases, seed=self.seed, created_from=self.digest(), code=self.code_digest(),
            versions=versions(),
        )  # fmt: skip


def _text_of(function: Callable[..., Any]) -> bytes:
    try:
        return inspect.getsource(function).encode()
    except (OSError, TypeError):
        code = function.__code__
        return bytes(code.co_code) + repr([c for c in code.co_consts if isinstance(c, int | float | str | tuple)]).encode()


def cache_folder() -> Path:
    """`${XDG_CACHE_HOME:-~/.cache}/armillary/models`."""
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "armillary" / "models"


def cache_file(recipe: Recipe) -> Path:
    """The file under which a recipe's model is cached."""
    return cache_folder() / f"{recipe.cache_digest()}.safetensors"


def obtain(recipe: Recipe, model: str | os.PathLike[str] | None = None, *, quiet: bool = False) -> Model:
    """The model of a recipe: from the file `model`, from the cache, from the package, or trained now and cached, in this order.

    Two processes that ask for one model train it once. Training shows its progress on stderr, unless `quiet`.
    """
    if model is not None:
        found = load(model)
        if found.technique not in ("", recipe.technique):
            raise InputError(f"found a model of {one_line(found.technique, 80)}; expected one of {recipe.technique}", where=str(model))
        return found
    cached = _cached(recipe) if _has_cache() else None
    return cached or _shipped(recipe) or _train_once(recipe, quiet)


def forget(technique: str | None = None) -> tuple[int, int]:
    """Deletes cached models, all of them or those of one technique; returns how many there were and their bytes.

    A model that another process trains now is left alone.
    """
    count = size = 0
    folder = cache_folder()
    for file in sorted(folder.glob("*.safetensors")):
        if technique is not None:
            try:
                name = load(file).technique
            except InputError:
                continue
            if technique not in (name, name.rpartition("/")[2]):
                continue
        size += file.stat().st_size
        file.unlink()
        count += 1
        _unlock(file.with_suffix(".lock"))
    if technique is None:
        for left in [*folder.glob("*.lock"), *folder.glob(".*.part")]:
            _unlock(left)
    return count, size


def _unlock(file: Path) -> None:
    """Deletes a lock, unless a process holds it."""
    with contextlib.suppress(OSError), file.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        file.unlink()


def _has_cache() -> bool:
    try:
        return any(name.endswith(".safetensors") for name in os.listdir(cache_folder()))
    except OSError:
        return False


def _cached(recipe: Recipe) -> Model | None:
    file = cache_file(recipe)
    if not file.exists():
        return None
    try:
        found = load(file)
    except InputError:
        return None  # A damaged file is made anew.
    return found if found.created_from == recipe.digest() else None


def _shipped(recipe: Recipe) -> Model | None:
    if not recipe.shipped:
        return None
    where = str(recipe.file)
    try:
        found = hashlib.sha256(recipe.file.read_bytes()).hexdigest()
    except OSError as error:
        raise InputError(f"cannot be read ({(error.strerror or str(error)).lower()}); expected the shipped model", where=where) from None
    if found != recipe.shipped:
        said = f"found a file with SHA-256 {found[:16]}…; expected {recipe.shipped[:16]}…, as {recipe.technique} says"
        raise InputError(said, where=where)
    model = load(recipe.file)
    return model if model.created_from == recipe.digest() else None


def _train_once(recipe: Recipe, quiet: bool) -> Model:
    with _locked(recipe) as file:
        if file is not None:
            found = _cached(recipe)
            if found is not None:
                return found
        with shown(recipe, quiet=quiet) as progress:
            model = recipe.trained(progress)
        if file is not None:
            model.save(file)
        return model


@contextlib.contextmanager
def _locked(recipe: Recipe) -> Iterator[Path | None]:
    """The file in the cache, while no other process makes it; None where the cache cannot be written."""
    file = cache_file(recipe)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        lock = _lock(file.with_suffix(".lock"))
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        warnings.warn(f"the cache {file.parent} cannot be written ({reason}), so the trained model is not kept", stacklevel=4)
        yield None
        return
    try:
        yield file
    finally:
        os.close(lock)


def _lock(path: Path) -> int:
    """A descriptor that holds the lock; one whose file `forget` deleted while this process waited is not taken."""
    while True:
        held = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(held, fcntl.LOCK_EX)
            if path.exists() and os.fstat(held).st_ino == path.stat().st_ino:
                return held
        except BaseException:
            os.close(held)
            raise
        os.close(held)


@contextlib.contextmanager
def shown(recipe: Recipe, *, quiet: bool = False) -> Iterator[Progress]:
    """Says on stderr that a model is being trained, and gives what shows the progress."""
    if quiet:
        yield _nothing
        return
    about = f" (about {recipe.expected_s:.0f} s)" if recipe.expected_s else ""
    said = f"training {recipe.technique}{'/' + recipe.name if recipe.name else ''} on first use{about}"
    if not sys.stderr.isatty():
        sys.stderr.write(f"armillary: {said}\n")
        yield _nothing
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    with Bar(TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn(), console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(said, total=1.0)
        yield lambda share: bar.update(task, completed=share)


def _nothing(share: float) -> None:
    """Shows no progress."""
