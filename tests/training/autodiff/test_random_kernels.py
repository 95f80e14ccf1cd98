"""Random kernels: the gradient of every strategy, limit and choice of parts is that of a complex step."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from interpreted import all_parts_off, complex_step, plain
from random_kernels import Kernel, N

from armillary.errors import InputError
from armillary.training.autodiff.frontend.source import of_text

NAMES = ("x", "y", "A", "s")


def arguments_of(seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {"x": rng.random(N), "y": rng.random(N), "A": rng.random((N, N)), "s": float(rng.random())}


def check(seed: int) -> int:
    """The number of plans that were compared."""
    text = Kernel(seed).text()
    space: dict[str, Any] = {}
    exec(text, space)
    source, arguments = of_text(text, "f", f"kernel-{seed}.py"), arguments_of(seed)

    def run(**given: Any) -> Any:
        return space["f"](**{k: v.copy() if isinstance(v, np.ndarray) else v for k, v in given.items()})

    with np.errstate(all="ignore"):
        truth = {name: complex_step(run, arguments, name) for name in NAMES}
    scale = float(np.max([1.0, *(np.max(np.abs(one)) for one in truth.values())]))
    if not scale < 1e6:
        return 0
    stored = plain(source, NAMES, strategy="store")
    assert np.asarray(stored.forward(**arguments)) == pytest.approx(run(**arguments), rel=1e-10, abs=1e-10), text
    most = stored.plan_of(arguments).bytes
    least = plain(source, NAMES, strategy="recompute").plan_of(arguments).bytes
    draw = random.Random(seed)
    plans = [{"strategy": "store"}, {"strategy": "recompute"}, {"strategy": "ilp"}]
    plans += [{"strategy": "ilp", "memory": draw.randint(min(least, most), max(least, most))} for _ in range(3)]
    plans += [{"strategy": draw.choice(("store", "recompute", "ilp")), "choices": draw.choice(all_parts_off())} for _ in range(2)]
    compared = 0
    for options in plans:
        made = plain(source, NAMES, **options)  # type: ignore[arg-type]
        try:
            gradients = dict(zip(NAMES, made(**arguments)))
        except InputError:  # The limit lies below what any plan needs.
            continue
        for name in NAMES:
            assert np.asarray(gradients[name]) == pytest.approx(truth[name], rel=1e-8, abs=1e-9 * scale), (text, options, name)
        value, again = made.value_and_grad(**arguments)
        assert value == pytest.approx(float(np.sum(run(**arguments))), rel=1e-9, abs=1e-9), text
        assert all(np.array_equal(one, gradients[name]) for name, one in zip(NAMES, again)), "leaving work out changes nothing"
        assert made.peak_bytes <= options.get("memory", 1 << 40)  # type: ignore[operator]
        assert made.peak_bytes == made.plan_of(arguments).bytes, (text, options)
        compared += 1
    return compared


@pytest.mark.parametrize("seed", range(6))
def test_a_random_kernel(seed: int) -> None:
    check(seed)


@pytest.mark.slow
def test_many_random_kernels() -> None:
    assert sum(check(seed) for seed in range(1000, 1200)) > 600
