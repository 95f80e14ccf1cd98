"""The arena end to end: files, metrics, sockets and peers."""

# ruff: noqa: B007
from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from armillary.arena import NotForThisCase, Outcome
from armillary.errors import InputError
from armillary.training.autodiff import dace_ad
from armillary.training.autodiff.arena import autodiff
from armillary.training.autodiff.frontend.source import of_text
from armillary.training.autodiff.kernels.catalogue import KERNELS, sizes
from armillary.training.autodiff.readers.initialise import initialise
from armillary.training.autodiff.running.changes import changes
from armillary.training.autodiff.running.jax_ports import changed
from armillary.training.autodiff.workload import built_in

TINY = {case.name: case for case in autodiff.built_in("tiny")}


def test_every_kernel_has_its_sizes_and_its_data() -> None:
    assert set(sizes()) == set(KERNELS)
    for name in KERNELS:
        assert {"tiny", "S", "M", "L", "paper"} <= set(sizes()[name])
        assert built_in(name, "tiny", np.random.default_rng(0)).active
    assert sizes()["seidel_2d"]["S"] == {"TSTEPS": 8, "N": 50}


def test_a_unit_gives_every_metric_and_its_plan() -> None:
    outcome = autodiff.execute(autodiff.make("dace-ad"), TINY["durbin"])
    assert isinstance(outcome, Outcome)
    assert set(outcome.values) == set(autodiff.metrics)
    assert outcome.values["max_rel_error"] < 1e-12
    assert outcome.values["source_changes"] == 0
    assert outcome.values["promise_error"] == 0
    assert b"stored" in outcome.artifacts[0].data


def test_finite_differences_agree_and_decline_what_takes_too_long() -> None:
    outcome = autodiff.execute(autodiff.make("finite-difference"), TINY["trisolv"])
    assert isinstance(outcome, Outcome)
    assert outcome.values["max_rel_error"] < 1e-7
    declined = autodiff.execute(autodiff.make("finite-difference", {"most_operations": 10.0}), TINY["trisolv"])
    assert isinstance(declined, NotForThisCase)
    assert "runs of the kernel" in str(declined)


def test_a_limit_below_what_is_needed_is_declined() -> None:
    from dataclasses import replace

    problem = replace(built_in("durbin", "tiny", np.random.default_rng(0)), limit=8)
    with pytest.raises(NotForThisCase, match="needs at least"):
        autodiff.make("dace-ad").measure(problem)  # type: ignore[attr-defined]
    with pytest.raises(NotForThisCase, match="this strategy needs"):
        autodiff.make("store-all").measure(problem)  # type: ignore[attr-defined]


# -- Files --------------------------------------------------------------------------------------------------------------------------------


def folder_with(tmp_path: Path, **changes_: object) -> Path:
    home, _ = autodiff.write_example(tmp_path)
    file = home / "wave.json"
    about = json.loads(file.read_text())
    about["benchmark"].update(changes_)
    file.write_text(json.dumps(about))
    return home


def test_a_folder_of_kernels_is_parsed_and_never_imported(tmp_path: Path) -> None:
    home, options = autodiff.write_example(tmp_path)
    (home / "wave.py").write_text("import os\nos.abort()\n" + (home / "wave.py").read_text())
    (case,) = autodiff.from_file(home, options)
    outcome = autodiff.execute(autodiff.make("dace-ad"), case.at(0, 0))
    assert isinstance(outcome, Outcome)
    assert outcome.values["max_rel_error"] < 1e-6


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"func_name": "nothing"}, "missing"),
        ({"func_name": "a b"}, "func_name"),
        ({"module_name": "other"}, "other_numpy.py"),
        ({"module_name": "../wave"}, "module_name"),
        ({"parameters": {"S": {"T": 20, "N": 1e12}}}, "expected a number up to"),
        ({"parameters": {"S": {"T": 20, "N": "x"}}}, "expected a number up to"),
        ({"parameters": {"M": {}}}, 'no sizes "S"'),
        ({"input_args": ["T", "u", "v", "c", "d"]}, "neither a size nor made by init"),
        ({"input_args": "T"}, "list of names"),
        ({"init": {"func_name": "initialize", "input_args": ["K"], "output_args": ["u"]}}, "K is not among the sizes"),
        ({"init": {"func_name": "initialize", "input_args": ["N"], "output_args": ["u"]}}, "returns 3 values"),
    ],
)
def test_a_wrong_description_is_refused_in_one_line(tmp_path: Path, change: dict[str, object], words: str) -> None:
    home = folder_with(tmp_path, **change)
    with pytest.raises(InputError) as refused:
        autodiff.from_file(home, {})
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_folder_without_kernels_and_unknown_kernels_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="benchmark"):
        autodiff.from_file(tmp_path, {})
    home, _ = autodiff.write_example(tmp_path)
    with pytest.raises(InputError, match='unknown kernel "sea"'):
        autodiff.from_file(home, {"kernels": "sea"})
    with pytest.raises(InputError, match="folder"):
        autodiff.from_file(home / "wave.json", {})


@pytest.mark.parametrize(
    "body",
    [
        "return np.zeros(1 << 40)", "return np.zeros((1 << 20, 1 << 20))", "import os\n    return os.listdir()", "return open('x')",
        "return ().__class__", "return __import__('os')", "return np.load('x')", "return np.zeros(3).tofile('x')", "return 9 ** 9 ** 9",
        "for i in range(1 << 30):\n        x = i\n    return x", "return N / 0", "return eval('1')", "return np.zeros(3)[7]", "return (0,) * (1 << 40)",
    ],
)  # fmt: skip
def test_data_are_made_without_running_the_file(body: str) -> None:
    source = of_text(f"import numpy as np\ndef initialize(N):\n    {body}\n", "initialize", "data.py")
    with pytest.raises(InputError) as refused:
        initialise(source, {"N": 4}, 1)
    assert "\n" not in str(refused.value)


def test_data_are_those_of_numpy() -> None:
    text = (
        "import numpy as np\n"
        "def initialize(M, N, datatype=np.float64):\n"
        "    from numpy.random import default_rng\n"
        "    rng = default_rng(42)\n"
        "    A = np.empty((N, N), dtype=datatype)\n"
        "    for i in range(N):\n"
        "        A[i, :i + 1] = np.fromfunction(lambda j: (-j % N) / N + 1, (i + 1,), dtype=datatype)\n"
        "        A[i, i + 1:] = 0.0\n"
        "        A[i, i] = 1.0\n"
        "    A[:] = A @ np.transpose(A)\n"
        "    return A, rng.random((M, 2), dtype=np.float32), datatype(1.5), int(np.ceil(M / 2))\n"
    )
    space: dict = {}
    exec(text, space)
    mine = initialise(of_text(text, "initialize", "data.py"), {"M": 3, "N": 4}, 4)
    for one, other in zip(mine, space["initialize"](3, 4)):
        assert np.array_equal(one, other)


# -- Changes and sockets ------------------------------------------------------------------------------------------------------------------


def test_changes_count_statements_that_are_new(tmp_path: Path) -> None:
    kernel, port = tmp_path / "kernel.py", tmp_path / "port.py"
    kernel.write_text('def f(x):\n    """Doc."""\n    y = np.exp(x)\n    x[0] = 1.0\n    return y\n')
    port.write_text("def f(x):\n    y = jnp.exp(x)\n    x = x.at[0].set(1.0)\n    return y\n")
    assert changes(kernel, port, "f") == 1
    assert changes(kernel, kernel, "f") == 0


def test_loops_cost_changes_and_products_do_not() -> None:
    assert changed("seidel_2d", "statements") > 3
    assert changed("k3mm", "statements") == 0


def rosenbrock(x):
    return np.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)


def test_scipy_minimises_with_the_gradient() -> None:
    from scipy.optimize import minimize, rosen_der

    made = dace_ad.grad(rosenbrock, "x")
    start = np.array([-1.2, 1.0, 0.5])
    assert made(start) == pytest.approx(rosen_der(start))
    found = minimize(rosenbrock, start, jac=made, method="BFGS")
    assert found.x == pytest.approx(np.ones(3), abs=1e-4)


def wave(u, v, c):
    for t in range(4):
        v[1:-1] += c[1:-1] * (u[2:] - 2.0 * u[1:-1] + u[:-2])
        u += v - 0.1 * v * v
    return u


@pytest.mark.slow
def test_torch_uses_the_gradient() -> None:
    torch = pytest.importorskip("torch")
    made = dace_ad.torch(wave)
    rng = np.random.default_rng(0)
    given = [torch.tensor(rng.random(6), dtype=torch.float64, requires_grad=True) for _ in range(3)]
    assert torch.autograd.gradcheck(made, given)


@pytest.mark.slow
def test_jax_uses_the_gradient() -> None:
    jax = pytest.importorskip("jax")
    jax.config.update("jax_enable_x64", True)
    made = dace_ad.jax(wave)
    rng = np.random.default_rng(0)
    given = [jax.numpy.asarray(rng.random(6)) for _ in range(3)]
    found = jax.grad(lambda *v: (made(*v) ** 2).sum(), argnums=(0, 1, 2))(*given)
    result, pull = dace_ad.vjp(wave, *(np.array(one) for one in given))
    for mine, theirs in zip(found, pull(2 * np.asarray(result))):
        assert np.asarray(mine) == pytest.approx(theirs)


@pytest.mark.slow
@pytest.mark.parametrize("style", ["jax", "jax-scan"])
@pytest.mark.parametrize("name", KERNELS)
def test_the_ports_have_the_kernel_s_gradient(name: str, style: str) -> None:
    pytest.importorskip("jax")
    from armillary.training.autodiff.running import reference

    problem = built_in(name, "tiny", np.random.default_rng(4))
    found = autodiff.make(style).measure(problem)  # type: ignore[attr-defined]
    probes = reference.probes(problem, np.random.default_rng(5))
    single = any(problem.arguments[one].dtype == np.float32 for one in problem.active)
    assert reference.error(found.gradients, probes) < (1e-4 if single else 1e-6)


@pytest.mark.slow
def test_a_limit_gives_the_rewrite_checkpoints() -> None:
    pytest.importorskip("jax")
    from dataclasses import replace

    problem = built_in("nbody", "tiny", np.random.default_rng(4))
    free = autodiff.make("jax-scan").measure(problem)  # type: ignore[attr-defined]
    tight = replace(problem, limit=int(free.extra_bytes * 0.95))
    held = autodiff.make("jax-scan").measure(tight)  # type: ignore[attr-defined]
    assert held.extra_bytes < free.extra_bytes
    for name in problem.active:
        assert held.gradients[name] == pytest.approx(free.gradients[name])
