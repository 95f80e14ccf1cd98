"""A process that differentiates the built-in kernels by DaCe itself: one request per line, one answer per line.

python -m armillary.training.autodiff.running.dace_child

DaCe wants the types of arguments as annotations and the objective as a scalar output, so a program text is made from the kernel's own.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np


def program_text(file: Path, function: str, static: dict[str, Any], arrays: dict[str, Any], output: str | None) -> str:
    """The kernel as a DaCe program: sizes as constants, annotated arrays, and the sum of the result in `objective_`."""
    functions = {node.name: node for node in ast.parse(file.read_text()).body if isinstance(node, ast.FunctionDef)}
    constants = [node for node in ast.parse(file.read_text()).body if isinstance(node, ast.Assign)]
    main = functions[function]
    called = {node.id for one in functions.values() for node in ast.walk(one) if isinstance(node, ast.Name)} & set(functions) - {function}
    lines = ["import numpy as np", "import dace", *(ast.unparse(node) for node in constants)]
    lines += [f"{name} = {value!r}" for name, value in static.items()]
    for name in functions:
        if name in called:
            lines += ["@dace.program", ast.unparse(functions[name])]
    body = [node for node in main.body if not isinstance(node, ast.Return)]
    body = [node for node in body if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))]
    last = main.body[-1]
    result = output
    if result is None and isinstance(last, ast.Return) and last.value is not None:
        value = last.value.elts[0] if isinstance(last.value, ast.Tuple) else last.value
        result = ast.unparse(value)
    types = {name: f"dace.{value.dtype}[{', '.join(map(str, value.shape))}]" for name, value in arrays.items()}
    head = ", ".join(f"{one.arg}: {types[one.arg]}" for one in main.args.args if one.arg in types)
    lines += ["@dace.program", f"def objective({head}, objective_: dace.float64[1]):"]
    lines += ["    " + line for node in body for line in ast.unparse(node).splitlines()]
    lines += [f"    objective_[0] = np.sum({result})"]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Answers requests until the input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    kept: dict[str, Any] = {}
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = answered(request, kept)
        except Exception as error:
            answer = {"declined": f"DaCe refuses it ({type(error).__name__}: {str(error).splitlines()[0][:160] if str(error) else ''})"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def answered(request: dict[str, Any], kept: dict[str, Any]) -> dict[str, Any]:
    """Times one gradient; arrays come and go as .npz files in a folder."""
    folder = Path(request["folder"])
    with np.load(folder / "arguments.npz", allow_pickle=False) as stored:
        arrays = {name: stored[name] for name in stored.files}
    text = program_text(Path(request["file"]), request["function"], request["static"], arrays, request["output"])
    if kept.get("text") != text:
        kept.clear()
        kept.update(text=text, made=compiled(folder, text, request["active"]))
    gradient, forward, seconds, bytes_ = kept["made"]
    seeds = {f"gradient_{name}": np.zeros_like(arrays[name]) for name in request["active"]}

    def run() -> None:
        for value in seeds.values():
            value[...] = 0.0
        own = {name: value.copy() for name, value in arrays.items()}
        gradient(**own, objective_=np.zeros(1), gradient_objective_=np.ones(1), **seeds)

    def plain() -> None:
        forward(**{name: value.copy() for name, value in arrays.items()}, objective_=np.zeros(1))

    run()
    np.savez(folder / "gradients.npz", **{name: seeds[f"gradient_{name}"] for name in request["active"]})
    plain()
    calls = request["calls"]
    return {"gradient_s": median(run, calls), "forward_s": median(plain, calls), "compile_s": seconds, "extra_bytes": bytes_}


def compiled(folder: Path, text: str, active: list[str]) -> tuple[Any, Any, float, int]:
    """(gradient, forward run, seconds of compilation, bytes of the arrays that DaCe adds)."""
    import dace  # type: ignore[import-not-found,unused-ignore]
    from dace.autodiff import add_backward_pass  # type: ignore[import-not-found,unused-ignore]

    file = folder / "program.py"
    file.write_text(text)
    spec = importlib.util.spec_from_file_location("program", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    dace.Config.set("default_build_folder", value=str(folder / "build"))
    begin = time.perf_counter()
    sdfg = module.objective.to_sdfg(simplify=True)
    sdfg.name = "objective_gradient"
    add_backward_pass(sdfg=sdfg, inputs=list(active), outputs=["objective_"])
    gradient = sdfg.compile()
    seconds = time.perf_counter() - begin
    plain = module.objective.to_sdfg(simplify=True)
    plain.name = "objective_forward"
    known = {*plain.arrays, *(f"gradient_{name}" for name in plain.arrays)}
    extra = 0
    for name, array in sdfg.arrays.items():
        if array.transient and name not in known:
            try:
                extra += int(array.total_size) * array.dtype.bytes
            except (TypeError, ValueError):
                continue
    return gradient, plain.compile(), seconds, extra


def median(work: Any, calls: int) -> float:
    """Seconds of one call."""
    seconds = []
    for _ in range(calls):
        begin = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds)


if __name__ == "__main__":
    main()
