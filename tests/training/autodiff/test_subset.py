"""What a kernel may say, and the one line that it gets for everything else."""

# ruff: noqa: RET504
from __future__ import annotations

import numpy as np
import pytest
from interpreted import plain

from armillary.errors import InputError
from armillary.training.autodiff.frontend.source import of_text

X = {"x": np.array([0.5, 1.0, 2.0, 3.0])}

REFUSED = {
    "try:\n        return x\n    except ValueError:\n        return x": ("k.py:3", "try"),
    "return [a for a in x]": ("k.py:3", "list comprehension"),
    "return np.linalg.norm(x)": ("k.py:3", "norm"),
    "return np.fft(x)": ("k.py:3", "fft"),
    "return unknown(x)": ("k.py:3", 'unknown name "unknown"'),
    "y = x\n    for v in x:\n        y = y + v\n    return y": ("k.py:4", "range"),
    "return x + 1j": ("k.py:3", "complex"),
    "return f(x)": ("k.py:3", "calls itself"),
    "return x[x > 1.0]": ("k.py:3", "truth values"),
    "y = np.zeros(int(x[0]))\n    return y": ("k.py:3", "int of a real number"),
    "return x[9]": ("k.py:3", "index 9"),
    "return x + np.zeros(3)": ("k.py:3", "shapes"),
    "x[:3] = x[1:3]\n    return x": ("k.py:3", "shape"),
    "if x[0] > 0:\n        return x\n    return 2 * x": ("k.py:4", "return inside"),
    "x.sort()\n    return x": ("k.py:3", "sort"),
    "global z\n    return x": ("k.py:3", "global"),
    "return x[0:4:0]": ("k.py:3", "step"),
    "while x > 0:\n        x = x - 1\n    return x": ("k.py:3", "comparison"),
    "return x.reshape(3, 2)": ("k.py:3", "reshape"),
    "def g(y):\n        return y\n    return g(x)": ("k.py:3", "nested function"),
    "return lambda y: x": ("k.py:3", "lambda"),
    "y = x[np.array([0, 1])] + 0\n    return y": ("k.py:3", ""),
    "return None": ("k.py", "returns nothing"),
}


@pytest.mark.parametrize("body", REFUSED)
def test_what_is_not_supported_is_refused_with_its_line(body: str) -> None:
    text = f"import numpy as np\ndef f(x):\n    {body}\n"
    place, words = REFUSED[body]
    with pytest.raises(InputError) as refused:
        plain(of_text(text, "f", "k.py"))(**X)
    assert place in str(refused.value)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


SHARING = {
    "a view that outlives its array": "y = x * 2\n    for t in range(2):\n        z = y[1:]\n        y = y * x\n        x[1:] += z\n    return x",
    "a view that is kept while its base changes": (
        "z = x[1:] * 1.0\n    for t in range(3):\n        x[:] = x * 0.5\n        x[1:] += z\n        z = x[1:]\n    return x"
    ),
    "a reshaped array whose base changes": "y = x.reshape(2, 2)\n    x[:] = x * x\n    return y",
    "a branch that makes a view": "y = x * 1.0\n    if x[0] > 0:\n        y = x\n    x[:] = x * 2\n    return y",
}


@pytest.mark.parametrize("name", SHARING)
def test_shared_memory_is_handled_or_refused_and_never_wrong(name: str) -> None:
    text = f"import numpy as np\ndef f(x):\n    {SHARING[name]}\n"
    space: dict = {}
    exec(text, space)
    try:
        found = plain(of_text(text, "f", "k.py")).forward(**X)
    except InputError:
        return
    assert found == pytest.approx(space["f"](X["x"].copy()))


def test_wrong_arguments_are_refused() -> None:
    def f(x, y):
        return x * y

    made = plain(f, "x")
    with pytest.raises(InputError, match="expected real numbers to differentiate by"):
        made(np.arange(3), np.ones(3))
    with pytest.raises(InputError, match="complex128"):
        made(np.ones(3), np.ones(3) * 1j)
    with pytest.raises(InputError, match="object"):
        made(np.ones(3), np.array([None]))
    shared = np.ones(4)
    with pytest.raises(InputError, match="share memory"):
        made(shared[:3], shared[1:])
    with pytest.raises(InputError, match="missing"):
        made(np.ones(3))
    with pytest.raises(InputError, match='"z" in wrt'):
        plain(f, "z")(np.ones(3), np.ones(3))
    with pytest.raises(InputError, match="strategy"):
        plain(f, "x", strategy="none")
    with pytest.raises(InputError, match="expected bytes"):
        plain(f, "x", memory="much")
    with pytest.raises(InputError, match="def"):
        plain(lambda x: x)
    with pytest.raises(InputError, match="shape"):
        made.vjp(np.ones(3), np.ones(3))[1](np.ones(2))


def test_indices_that_only_the_run_can_tell_are_checked() -> None:
    def gather(x, index):
        return x[index] * 2.0

    def rows(x, start):
        y = np.zeros(2)
        for i in range(2):
            y[i] = np.sum(x[start[i] : start[i + 1]])
        return y

    assert plain(gather, "x")(np.ones(3), np.array([2, 2])).tolist() == [0.0, 0.0, 4.0]
    with pytest.raises(InputError, match="outside its array"):
        plain(gather, "x")(np.ones(3), np.array([0, 3]))
    with pytest.raises(InputError, match="outside its array"):
        plain(gather, "x")(np.ones(3), np.array([-1]))
    assert plain(rows, "x")(np.arange(4.0), np.array([0, 1, 4])).tolist() == [1.0] * 4
    with pytest.raises(InputError, match="outside its array"):
        plain(rows, "x")(np.ones(4), np.array([0, 1, 5]))


def test_functions_are_inlined_with_their_own_names() -> None:
    def double(y, by=2.0):
        x = y * by
        return x

    def f(x):
        y = double(x) + double(double(x), 3.0)
        return double(y, by=1.0)

    text = (
        "def double(y, by=2.0):\n    x = y * by\n    return x\n\n\n"
        "def f(x):\n    y = double(x) + double(double(x), 3.0)\n    return double(y, by=1.0)\n"
    )
    assert plain(of_text(text, "f", "k.py"))(**X)[0].tolist() == [8.0] * 4
    assert double(1.0) == 2.0
    assert f(1.0) == 8.0


def test_names_change_their_kind_only_where_that_is_clear() -> None:
    text = "def f(x):\n    s = 0\n    for i in range(4):\n        s = s + x[i] * x[i]\n    n = 0\n    for i in range(3):\n        n = n + 1\n    return s * n\n"
    assert plain(of_text(text, "f", "k.py"))(**X)[0] == pytest.approx(6 * X["x"])


def test_limits_are_read_with_their_units() -> None:
    from armillary.training.autodiff.pipeline.gradient import bytes_of

    assert bytes_of("512MiB") == 512 << 20
    assert bytes_of("1.5 kB") == 1500
    assert bytes_of(7) == 7
    assert bytes_of(None) is None
