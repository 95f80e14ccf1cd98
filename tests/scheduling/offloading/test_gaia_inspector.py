"""The inspector: the labelled corpus, each rule by itself, bad input, and that nothing of a source ever runs."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st

from armillary.errors import InputError
from armillary.scheduling.offloading import Mode, corpus, explain, inspect, inspect_files, knative, published
from armillary.scheduling.offloading.inspection.models import parameters_of
from armillary.scheduling.offloading.inspection.project import parse


def mode(source: str, **how: float) -> str:
    return inspect_files({"func.py": source}, "func.py", **how).mode.value


# The corpus


def test_the_corpus_is_large_and_has_every_mode() -> None:
    assert len(corpus()) >= 60
    for one in Mode:
        assert sum(entry.mode is one for entry in corpus()) >= 10


def test_the_corpus() -> None:
    found = {entry.name: (inspect_files(entry.files, entry.entry).mode.value, entry.mode.value) for entry in corpus()}
    assert {name: pair for name, pair in found.items() if pair[0] != pair[1]} == {}


def test_the_published_functions_have_the_published_modes() -> None:
    found = {name: inspect_files(files, entry).mode.value for name, (files, entry) in published().items()}
    assert found == {
        "matmul": "cpu_preferred", "resnet18": "cpu_preferred", "tinyllama-short": "gpu_preferred", "tinyllama-long": "gpu_preferred",
        "idle-wait": "cpu_preferred",
    }  # fmt: skip


# The specification's own cases


def test_aliases_and_guards() -> None:
    assert mode('import torch as t; x = t.randn(3).to("cuda")') == "gpu"
    assert mode('import torch as t\nif t.cuda.is_available():\n    x = t.randn(3).to("cuda")') == "cpu_preferred"


def test_constants_are_propagated() -> None:
    assert mode('import torch\nd = "cu" + "da"; torch.nn.Linear(1, 1).to(d)') == "gpu"
    assert mode('import os, torch\nd = os.environ["D"]; torch.nn.Linear(1, 1).to(d)') == "cpu_preferred"


def test_findings_accumulate() -> None:
    assert mode("import torch\ntorch.zeros(1).cuda()\ntorch.zeros(1)\nprint(torch.ones(2))") == "gpu"


def test_comments_and_docstrings_say_nothing() -> None:
    assert mode('"""Uses "cuda"."""\n# model.cuda()\ndef main(): "cuda"') == "cpu"


def test_sizes_count() -> None:
    assert mode("import torch\na = torch.randn(20000, 20000) @ torch.randn(20000, 20000)") == "gpu_preferred"
    assert mode("import torch\na = torch.randn(10, 10)") == "cpu_preferred"
    assert mode("import torch\na = torch.randn(40, 40)", big_elements=1000) == "gpu_preferred", "the published threshold"
    assert mode("import torch\na = torch.randn(40, 40)", big_elements=10_000) == "cpu_preferred"


def test_flops_are_counted() -> None:
    def flops(body: str) -> float:
        return inspect_files({"f.py": f"import torch\nimport torch.nn.functional as F\nimport numpy as np\n{body}"}, "f.py").flops

    assert flops("torch.randn(3, 4) @ torch.randn(4, 5)") == 2 * 3 * 4 * 5
    assert flops("for _ in range(7):\n    torch.bmm(torch.ones(2, 3, 4), torch.ones(2, 4, 5))") == 7 * 2 * 2 * 3 * 4 * 5
    assert flops("[torch.mm(torch.eye(3), torch.eye(3)) for _ in range(4)]") == 4 * 2 * 27
    assert flops('torch.einsum("ij,jk->ik", torch.ones(2, 3), torch.ones(3, 5))') == 2 * 2 * 3 * 5
    assert flops("F.conv2d(torch.ones(1, 3, 8, 8), torch.ones(4, 3, 3, 3), padding=1)") == 2 * 4 * 64 * 27
    assert flops("torch.nn.Conv2d(3, 4, 3, padding=1)(torch.ones(1, 3, 8, 8))") == 2 * 4 * 64 * 27
    assert flops("F.linear(torch.ones(6, 3), torch.ones(5, 3))") == 2 * 6 * 3 * 5
    assert flops("q = torch.ones(1, 2, 10, 8)\nF.scaled_dot_product_attention(q, q, q)") == 4 * 2 * 10 * 10 * 8
    assert flops("np.dot(np.zeros((2, 3)), np.ones((3, 4)))") == 2 * 2 * 3 * 4
    assert flops("def f(n):\n    return torch.ones(n, n) @ torch.ones(n, n)") == 0, "unknown shapes stay unknown"
    assert flops("def f(n=3):\n    return torch.ones(n, n) @ torch.ones(n, n)") == 2 * 27
    assert flops("def f(n):\n    return torch.ones(n, n) @ torch.ones(n, n)\ndef main():\n    return f(3)") == 2 * 27


@pytest.mark.parametrize(
    ("name", "millions"),
    [("resnet18", 11.7), ("resnet18_weights", 11.7), ("vit_l_16", 304.3), ("bert-base-uncased", 110), ("google-bert/bert-large-cased", 340),
     ("TinyLlama/TinyLlama-1.1B-Chat-v1.0", 1100), ("meta-llama/Llama-2-7b-hf", 7000), ("facebook/opt-350m", 350), ("gpt2", 124),
     ("gpt2-xl", 1558), ("mistralai/Mixtral-8x7B-v0.1", 56_000), ("something-else", None), ("", None)],
)  # fmt: skip
def test_parameters_by_name(name: str, millions: float | None) -> None:
    assert parameters_of(name) == (None if millions is None else pytest.approx(millions * 1e6))


# Nothing runs


def test_a_source_that_would_do_harm_does_nothing(tmp_path: Path) -> None:
    mark = tmp_path / "harm"
    source = tmp_path / "func.py"
    source.write_text(
        f"import pathlib, torch\npathlib.Path({str(mark)!r}).write_text('x')\nwhile True:\n    pass\n"
        "class A:\n    x = 1 / 0\nraise SystemExit(3)\n"
    )
    before = set(sys.modules)
    assert inspect(source) is Mode.CPU_PREFERRED
    assert not mark.exists()
    assert not {name for name in set(sys.modules) - before if name.partition(".")[0] in ("torch", "func")}


# Projects


def test_a_func_project_and_its_reachable_files(tmp_path: Path) -> None:
    (tmp_path / "func.yaml").write_text("name: f\nruntime: python\n")
    (tmp_path / "function").mkdir()
    (tmp_path / "function" / "func.py").write_text("from .heavy import model\ndef main(c): return model(c)\n")
    (tmp_path / "function" / "heavy.py").write_text("from torchvision import models\nmodel = models.vit_l_16()\n")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_func.py").write_text("import torch\ntorch.zeros(1).cuda()\n")
    found = explain(tmp_path)
    assert found.mode is Mode.GPU_PREFERRED
    assert found.files == ("function/func.py", "function/heavy.py")
    assert inspect(tmp_path, entry="tests/test_func.py") is Mode.GPU


def test_imports_are_followed_to_depth_five() -> None:
    chain = {"func.py": "import m1\n"} | {f"m{k}.py": f"import m{k + 1}\n" for k in range(1, 9)}
    for deepest, expected in ((5, "gpu"), (6, "cpu")):
        files = chain | {f"m{deepest}.py": "import torch\ntorch.zeros(1).cuda()\n"}
        assert inspect_files(files, "func.py").mode.value == expected


def test_several_sources_without_an_entry_point_are_refused(tmp_path: Path) -> None:
    for name in ("a.py", "b.py"):
        (tmp_path / name).write_text("x = 1\n")
    with pytest.raises(InputError, match="name the entry point"):
        inspect(tmp_path)
    with pytest.raises(InputError, match="one of the project's sources"):
        inspect(tmp_path, entry="c.py")


# What it says


def test_evidence_reads_like_a_linter(tmp_path: Path) -> None:
    (tmp_path / "func.py").write_text('import torch\n\nmodel = torch.nn.Linear(3, 3)\nmodel.to("cuda:1")\n')
    found = explain(tmp_path / "func.py")
    assert found.text().splitlines() == [
        "func.py:1:1: OFF301 imports torch",
        'func.py:4:1: OFF101 calls .to("cuda:1")',
        'func.py: gpu: line 4 of func.py calls .to("cuda:1"), whether there is a GPU or not',
    ]
    assert found.annotation == {"gaia.dev/execution-mode": "gpu"}


def test_the_command(tmp_path: Path, armillary_here: Callable[..., CompletedProcess[str]]) -> None:
    (tmp_path / "func.py").write_text('import torch\nd = "cuda" if torch.cuda.is_available() else "cpu"\n')
    said = armillary_here("inspect", "func.py")
    assert said.returncode == 0
    assert said.stdout.splitlines()[-1].startswith("func.py: cpu_preferred: ")
    assert json.loads(armillary_here("inspect", "func.py", "--json").stdout)["mode"] == "cpu_preferred"
    service = {"apiVersion": "serving.knative.dev/v1", "kind": "Service", "metadata": {"name": "f"}}
    (tmp_path / "service.json").write_text(json.dumps(service))
    manifest = json.loads(armillary_here("inspect", "func.py", "--service", "service.json").stdout)
    assert manifest["spec"]["template"]["metadata"]["annotations"] == {"gaia.dev/execution-mode": "cpu_preferred"}
    bad = armillary_here("inspect", "nothing.py")
    assert bad.returncode == 2
    assert bad.stderr.count("\n") == 1


def test_a_manifest_gets_and_loses_its_gpu() -> None:
    service = {
        "apiVersion": "serving.knative.dev/v1", "kind": "Service", "metadata": {"name": "f"},
        "spec": {"template": {"spec": {"containers": [{"image": "f", "resources": {"limits": {"cpu": "1"}}}], "nodeSelector": {"disk": "ssd"}}}},
    }  # fmt: skip
    on = knative(service, Mode.GPU_PREFERRED)
    pod = on["spec"]["template"]["spec"]
    assert pod["containers"][0]["resources"]["limits"] == {"cpu": "1", "nvidia.com/gpu": "1"}
    assert pod["nodeSelector"] == {"disk": "ssd", "nvidia.com/gpu.present": "true"}
    off = knative(on, "cpu_preferred")["spec"]["template"]["spec"]
    assert off["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "0"
    assert off["nodeSelector"] == {"disk": "ssd"}
    assert "nodeSelector" not in knative({k: v for k, v in service.items() if k != "spec"}, "cpu")["spec"]["template"]["spec"]
    for bad in ({"kind": "Deployment"}, service | {"spec": 3}, service | {"spec": {"template": {"spec": {"containers": []}}}}):
        with pytest.raises(InputError):
            knative(bad, "gpu")
    with pytest.raises(InputError, match="unknown mode"):
        knative(service, "tpu")


# Bad input


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"def main(:\n    pass\n", "func.py:1: found no Python"),
        (b"x = 1\ny = (\n", "func.py:2: found no Python"),
        (b"x = '\xff'\n", "expected UTF-8"),
        (b"x = 1\n\0y = 2\n", "func.py:2: found a null byte"),
        (b"# coding: nonsense\nx = 1\n", "coding line"),
        (b"# coding: rot13\nk = 1\n", "expected one of text"),
        (b"x = " + b"(" * 250 + b"1" + b")" * 250, "func.py"),
        (b"x = " + b"-" * 50_000 + b"1", "nested too deeply"),
        (b"x = 1" + b" + 1" * 900, "levels"),
        (b"x = " + b"[" * 190 + b"]" * 190, None),
        (b"x" + b".y" * 500, "levels"),
        (b"x = 1" + b"0" * 5000, "found no Python"),
        (b"".join(b" " * k + b"if x:\n" for k in range(99)) + b" " * 99 + b"pass\n", None),
    ],
)  # fmt: skip
def test_bad_sources_end_in_one_line(tmp_path: Path, data: bytes, said: str | None) -> None:
    path = tmp_path / "func.py"
    path.write_bytes(data)
    if said is None:
        inspect(path)
        return
    with pytest.raises(InputError) as error:
        inspect(path)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_another_encoding_is_read(tmp_path: Path) -> None:
    path = tmp_path / "func.py"
    path.write_bytes("# -*- coding: latin-1 -*-\nname = 'Müller'\nimport torch\n".encode("latin-1"))
    assert inspect(path) is Mode.CPU_PREFERRED


def test_a_large_source_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "func.py"
    path.write_bytes(b"#" * 10_000_001)
    with pytest.raises(InputError, match="at most 10,000,000"):
        inspect(path)


def test_a_long_chain_of_elif_is_followed() -> None:
    chain = "if x == 0:\n    pass\n" + "".join(f"elif x == {k}:\n    y = {k}\n" for k in range(1, 300)) + "else:\n    import torch\n"
    assert mode(f"x = input()\n{chain}") == "cpu_preferred"


def test_work_from_a_source_is_bounded() -> None:
    assert mode("import torch\nx = 10 ** 10 ** 10\ny = 'a' * 10 ** 12\nz = 1 << 10 ** 9\ntorch.zeros(2 ** 63, 2 ** 63)") == "cpu_preferred"
    nested = "".join("    " * k + f"for i{k} in range(10 ** 9):\n" for k in range(40)) + "    " * 40 + "torch.eye(9) @ torch.eye(9)\n"
    assert mode(f"import torch\n{nested}") == "gpu_preferred"
    calls = (
        "import torch\n" + "".join(f"def f{k}(x):\n    return f{k + 1}(x) + f{k + 1}(x)\n" for k in range(60)) + "def f60(x): return x\n"
    )
    assert mode(calls) == "cpu_preferred"
    assert mode("import torch\ndef f(x):\n    return f(x) + g(x)\ndef g(x):\n    return f(x)\nf(1)") == "cpu_preferred"


PIECES = st.sampled_from([
    "import torch", "import torch as t", "from torch import nn", "x = torch.zeros(3)", "x = x.cuda()", 'x = x.to(d)', 'd = "cuda"',
    'd = "cuda" if torch.cuda.is_available() else "cpu"', "def f(a, b=2):", "class A:", "if torch.cuda.is_available():", "else:", "try:",
    "except Exception:", "for i in range(9):", "while x:", "return x", "pass", "with open(x) as y:", "x = [i for i in y if i]", "raise x",
    "@x.y", "async def g():", "await x", "lambda a: a", "x: int = f'{d}:{x}'", "global x", "match x:", "case 1:", "x += y @ z", "del x", "(",
])  # fmt: skip


@drawn(st.lists(st.tuples(st.integers(0, 3), PIECES), max_size=25))
@settings(max_examples=100)
def test_any_source_gives_a_mode_or_one_line(lines: list[tuple[int, str]]) -> None:
    source = "\n".join("    " * level + text for level, text in lines)
    try:
        found = inspect_files({"func.py": source}, "func.py")
    except InputError:
        return
    parse(source, "func.py")
    assert found.mode in Mode
    if not found.evidence:
        assert found.mode is Mode.CPU
