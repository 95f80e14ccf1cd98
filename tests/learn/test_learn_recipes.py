"""Where a model comes from, that it is trained once, and that nothing stale or half is ever found."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("torch")

import training_recipes

from armillary import catalogue, sources
from armillary.errors import InputError
from armillary.learn import Recipe, load, obtain
from armillary.learn.recipes import cache_file, forget

HERE = Path(__file__).parent
TRAIN = "training_recipes:train"


def recipe(**facts: object) -> Recipe:
    return Recipe("field/arena/technique", **{"train": TRAIN, "seed": 3} | facts)


def test_a_model_is_trained_once_and_then_found(own_cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = own_cache.parent / "log"
    made = recipe(parameters={"log": str(log)}, cases=("abc",), expected_s=2)
    one, two = obtain(made), obtain(made)
    assert log.read_text() == "trained\n"
    assert capsys.readouterr().err == "armillary: training field/arena/technique on first use (about 2 s)\n"
    assert one.digest == two.digest
    assert (two.technique, two.trained_on, two.seed, two.steps) == ("field/arena/technique", ("abc",), 3, 10)
    assert two.created_from == made.digest()
    assert set(two.versions) == {"armillary", "numpy", "python", "torch"}
    assert cache_file(made).name == f"{made.cache_digest()}.safetensors"


@pytest.mark.parametrize("change", [{"parameters": {"steps": 11}}, {"cases": ("abc",)}, {"seed": 4}, {"name": "other"}])
def test_another_parameter_case_seed_or_name_is_another_model(change: dict, own_cache: Path) -> None:
    assert recipe(**change).cache_digest() != recipe().cache_digest()


def test_another_line_of_code_is_another_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "learned_shop"
    (package / "models").mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "training.py").write_text("from learned_shop import part\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    def digest(text: str) -> str:
        (package / "part.py").write_text(text)
        for kept in (sources.source, sources._data):
            kept.cache_clear()
        return Recipe("f/a/t", "learned_shop.training:train").cache_digest()

    one = digest("A = 1\n")
    assert digest("A = 1  \n# a comment\n") == one
    assert digest("A = 2\n") != one
    (package / "models" / "m.safetensors").write_bytes(b"a model does not change what trains it")
    assert digest("A = 1\n") == one


def test_a_file_that_the_user_names_comes_first(own_cache: Path, tmp_path: Path) -> None:
    obtain(recipe(), quiet=True)
    other = recipe(seed=9).trained()
    other.save(tmp_path / "mine.safetensors")
    assert obtain(recipe(), tmp_path / "mine.safetensors").digest == other.digest
    with pytest.raises(InputError, match="a model of field/arena/technique; expected one of field/arena/else"):
        obtain(Recipe("field/arena/else", TRAIN), tmp_path / "mine.safetensors")


def test_a_shipped_model_is_found_without_training(own_cache: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    made = recipe(folder=tmp_path, parameters={"log": str(log)})
    digest = made.trained().save(made.file)
    log.unlink()
    shipped = recipe(folder=tmp_path, parameters={"log": str(log)}, shipped=digest)
    assert shipped.file.name == "technique.safetensors"
    assert obtain(shipped).digest == digest
    assert not log.exists()
    other = recipe(folder=tmp_path, parameters={"log": str(log), "steps": 12}, shipped=digest)
    assert obtain(other, quiet=True).steps == 12, "a shipped model of other parameters is not taken"
    with pytest.raises(InputError, match="found a file with SHA-256"):
        obtain(recipe(folder=tmp_path, shipped="0" * 64))
    with pytest.raises(InputError, match="expected the shipped model"):
        obtain(recipe(folder=tmp_path / "nowhere", shipped=digest))


def test_a_damaged_file_in_the_cache_is_made_anew(own_cache: Path) -> None:
    first = obtain(recipe(), quiet=True)
    cache_file(recipe()).write_bytes(b"damaged")
    assert obtain(recipe(), quiet=True).digest == first.digest
    assert load(cache_file(recipe())).digest == first.digest


def test_a_cache_that_cannot_be_written_is_done_without(own_cache: Path) -> None:
    own_cache.write_text("a file in the place of the folder")
    with pytest.warns(UserWarning, match="cannot be written"):
        assert obtain(recipe(), quiet=True).steps == 10


START = """
import sys, json
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from armillary.learn import Recipe, obtain, recipes
recipes.cache_folder = lambda: Path(sys.argv[2])
if len(sys.argv) > 4:
    Path(sys.argv[4]).touch()
print(obtain(Recipe("field/arena/technique", "training_recipes:count", parameters=json.loads(sys.argv[3])), quiet=True).digest)
"""


def start(cache: Path, parameters: dict, *started: Path) -> subprocess.Popen:
    command = [sys.executable, "-c", START, str(HERE), str(cache), json.dumps(parameters), *map(str, started)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_a_killed_training_leaves_no_file_and_the_next_one_succeeds(own_cache: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert start(own_cache, {"log": str(log), "kill": True}).wait() == -9
    assert log.read_text() == "trained\n"
    assert [file.suffix for file in own_cache.iterdir()] == [".lock"]
    made = Recipe("field/arena/technique", "training_recipes:count", parameters={"log": str(log)})
    assert obtain(made, quiet=True).steps == 10
    assert sorted(file.suffix for file in own_cache.iterdir()) == [".lock", ".lock", ".safetensors"]


def test_two_processes_train_once(own_cache: Path, tmp_path: Path) -> None:
    log, second = tmp_path / "log", tmp_path / "second"
    # Whichever comes first trains until the second process is about to ask.
    both = [start(own_cache, {"log": str(log), "wait_for": str(second)}, *more) for more in ((), (second,))]
    said = [process.communicate()[0] for process in both]
    assert said[0] == said[1] != ""
    assert log.read_text() == "trained\n"
    assert len(list(own_cache.glob("*.safetensors"))) == 1


@pytest.mark.slow
def test_weights_are_the_same_in_other_processes_and_with_other_threads() -> None:
    here = training_recipes.digest(5)
    code = f"import sys; sys.path.insert(0, {str(HERE)!r}); import torch; torch.rand(4); import training_recipes; print(training_recipes.digest(5))"
    for threads in ("1", "2"):
        run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": threads}, check=True)
        assert run.stdout.strip() == here


@pytest.mark.slow
def test_weights_are_the_same_in_a_pool() -> None:
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        assert pool.map(training_recipes.digest, [5, 6, 5]) == [training_recipes.digest(seed) for seed in (5, 6, 5)]


def test_models_are_listed_and_forgotten(own_cache: Path, armillary_here: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    shipped = armillary_here("learn", "list").stdout.count(" package ")
    obtain(recipe(), quiet=True)
    (own_cache / "damaged.safetensors").write_bytes(b"x")
    run = armillary_here("learn", "list")
    assert run.returncode == 0
    assert "field/arena/technique" in run.stdout
    assert "mlp" in run.stdout
    assert "10 steps; loss" in run.stdout
    assert "cannot be used" in run.stdout
    listed = json.loads(armillary_here("learn", "list", "--json").stdout)
    assert len(listed) == shipped + 2
    assert armillary_here("learn", "forget", "elsewhere").stdout.startswith("forgot 0 models")
    assert armillary_here("learn", "forget", "technique").stdout.startswith("forgot 1 model ")
    assert armillary_here("learn", "forget").stdout.startswith("forgot 1 model ")
    assert list(own_cache.iterdir()) == []
    assert forget() == (0, 0)


class Home:
    path = "field/arena"

    def __init__(self, *recipes: Recipe) -> None:
        self._recipes = recipes

    def make(self, name: str) -> Home:
        return self

    def recipes(self) -> tuple[Recipe, ...]:
        return self._recipes


def test_a_shipped_model_is_rebuilt_and_checked(
    own_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, armillary_here: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    made = recipe(folder=tmp_path / "models")
    monkeypatch.setattr(catalogue, "technique", lambda name: (Home(made), name))
    run = armillary_here("learn", "rebuild", "technique")
    assert run.returncode == 0, run.stderr
    digest = load(made.file).digest
    assert f'technique.safetensors: shipped="{digest}"' in run.stdout
    assert obtain(recipe(folder=tmp_path / "models", shipped=digest)).digest == digest
    assert "agree within 5 %" in armillary_here("learn", "rebuild", "technique", "--check").stdout
    monkeypatch.setattr(catalogue, "technique", lambda name: (Home(recipe(folder=tmp_path / "models", seed=99)), name))
    run = armillary_here("learn", "rebuild", "technique", "--check")
    assert run.returncode == 1
    assert "loss: found" in run.stderr
    assert load(made.file).digest == digest, "a check writes nothing"
    monkeypatch.setattr(catalogue, "technique", lambda name: (Home(), name))
    assert armillary_here("learn", "rebuild", "technique").returncode == 2
