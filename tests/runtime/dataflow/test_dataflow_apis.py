"""The adapters: absent packages, arguments that cannot be shared, OpenCL's processor name, and the choice of an API."""

from __future__ import annotations

import ctypes
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from armillary.arena import NotForThisCase
from armillary.errors import InputError
from armillary.extras import MissingPackage
from armillary.runtime.dataflow import Apis, Chooser, ClSource, DeviceError, Kernel, Sim, launch
from armillary.runtime.dataflow.apis import pocl
from armillary.tasks import Graph, Threads


@pytest.mark.parametrize(
    ("api", "module", "package"),
    [("opencl", "pyopencl", "pyopencl"), ("torch", "torch", "torch"), ("cupy", "cupy", "cupy"), ("triton", "triton", "triton")],
)
def test_an_absent_package_is_named(monkeypatch: pytest.MonkeyPatch, api: str, module: str, package: str) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingPackage, match=f"the package {package}"):
        Apis(api)


@pytest.mark.parametrize("api", ["torch-cuda", "triton"])
def test_an_absent_device_is_named(api: str) -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a device")
    if api == "triton":
        pytest.importorskip("triton")
    with pytest.raises(MissingPackage, match="needs a CUDA device"):
        Apis(api)


def test_a_technique_declines_where_a_package_is_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    from armillary.runtime.dataflow.arena import dataflow
    from armillary.runtime.dataflow.running import technique

    monkeypatch.setitem(sys.modules, "pyopencl", None)
    monkeypatch.setattr(technique, "_opencl", {})
    case = next(case for case in dataflow.built_in("tiny") if case.name.startswith("mix"))
    found = dataflow.execute(dataflow.make("taskaware"), case.at(0, 0))
    assert isinstance(found, NotForThisCase)
    assert "pyopencl" in str(found)


def bodies(apis: Apis, api: str, kernel: Kernel, *args: Any) -> Any:
    graph = Graph()
    graph.add(lambda: launch(apis[api], kernel, *args))
    return apis.run(graph, Threads(1)).raise_first()


def test_arguments_that_cannot_be_shared_are_one_sentence() -> None:
    pytest.importorskip("pyopencl")
    kernel = Kernel("k", {"opencl": ClSource("__kernel void k(__global double* a) { }", "k", lambda a: (1,))})
    frozen = np.zeros(4)
    frozen.flags.writeable = False
    with Apis("opencl") as apis:
        for argument in ("text", [1, 2], np.zeros((4, 4))[:, :2], frozen):
            with pytest.raises(InputError, match="share"):
                bodies(apis, "opencl", kernel, argument)
        wrong = Kernel("wrong", {"opencl": ClSource("__kernel void wrong(__global double* a) { this is no C }", "wrong", lambda a: (1,))})
        with pytest.raises(InputError, match="OpenCL does not take the kernel"):
            bodies(apis, "opencl", wrong, np.zeros(1))


def test_torch_takes_a_pointer_and_no_copy() -> None:
    pytest.importorskip("torch")
    array = np.ones((3, 3))
    with Apis("torch") as apis:
        bodies(apis, "torch", Kernel("double", {"torch": lambda t: t.mul_(2)}), array)
        assert (array == 2).all()
        array.flags.writeable = False
        other = np.ones(2)
        other.flags.writeable = False
        with pytest.raises(InputError, match="read-only"):
            bodies(apis, "torch", Kernel("double", {"torch": lambda t: t.mul_(2)}), other)


def test_many_arrays_do_not_pile_up() -> None:
    pytest.importorskip("pyopencl")
    from armillary.runtime.dataflow.apis.opencl import MOST_BUFFERS

    kernel = Kernel("k", {"opencl": ClSource("__kernel void k(__global double* a) { a[0] += 1; }", "k", lambda a: ((1,), (1,)))})
    arrays = [np.zeros(1) for _ in range(MOST_BUFFERS + 500)]
    with Apis("opencl") as apis:
        graph = Graph()
        for array in arrays:
            apis.add(graph, "opencl", kernel, array)
        apis.run(graph, Threads(1)).raise_first()
        api: Any = apis.opencl.api
        assert len(api._buffers) <= MOST_BUFFERS
    assert all(array[0] == 1 for array in arrays)


def test_the_processors_name_is_mended_only_where_it_is_found_once() -> None:
    triple, name, other = (ctypes.create_string_buffer(text) for text in (b"x86_64-unknown-linux-gnu", b"generic", b"generic"))
    words = (ctypes.c_uint64 * 512)()
    device = SimpleNamespace(int_ptr=ctypes.addressof(words))
    assert not pocl.repair(device), "nothing is there"
    words[7] = ctypes.addressof(name)
    assert not pocl.repair(device), "no triple stands before it"
    words[6] = ctypes.addressof(triple)
    words[9], words[10] = ctypes.addressof(triple), ctypes.addressof(other)
    assert not pocl.repair(device), "two names"
    words[10] = 8  # Not an address of this process.
    assert pocl.repair(device)
    assert name.value == b"x86-64"
    assert other.value == b"generic"
    assert not pocl.repair(device), "it has been mended"


def test_parts_of_the_opencl_device_compute_the_same() -> None:
    pytest.importorskip("pyopencl")
    from armillary.runtime.dataflow.apis.opencl import OpenCl

    api = OpenCl(width=1)
    kernel = Kernel(
        "k", {"opencl": ClSource("__kernel void k(__global double* a) { a[get_global_id(0)] += 1; }", "k", lambda a: (a.size,))}
    )
    arrays = [np.zeros(256) for _ in range(6)]
    with Apis(api) as apis:
        graph = Graph()
        for array in arrays:
            apis.add(graph, "opencl", kernel, array)
        apis.run(graph, Threads(2)).raise_first()
    assert all((array == 1).all() for array in arrays)
    assert all(device.max_compute_units == 1 for device in api.devices)


def test_the_fastest_api_is_chosen_after_two_trials_of_each() -> None:
    import time

    slow = Kernel("k", {"blas": lambda a: time.sleep(2e-3), "numba": lambda a: None, "sim": 0.05})
    small, large = np.zeros(4), np.zeros(4096)
    with Apis("blas", "numba", Sim(latency=0.05)) as apis:
        chooser = Chooser(apis, seed=1)
        graph = Graph()
        handle = graph.data("x", np.zeros(1))
        taken: list[str] = []
        for i in range(40):
            graph.add(lambda: taken.append(chooser.launch(slow, small)), updates=[handle], key=f"k{i}")
        apis.run(graph, Threads(1)).raise_first()
    counts = {name: taken.count(name) for name in ("blas", "numba", "sim")}
    assert min(counts.values()) >= 2
    assert counts["numba"] >= 25
    rows = {row["api"]: row for row in chooser.table()}
    assert rows["numba"]["us"] < rows["blas"]["us"] < rows["sim"]["us"]
    # Another class of sizes has a table of its own.
    assert chooser.pick(slow, (large,)) in rows
    assert len({row["numbers"] for row in chooser.table()}) == 2
    with pytest.raises(InputError, match="no API here offers"):
        chooser.pick(Kernel("none", {"cupy": None}), ())


def test_a_failed_choice_fails_its_task() -> None:
    def fails() -> None:
        raise ArithmeticError("no")

    with Apis(Sim(latency=1e-4)) as apis:
        chooser = Chooser(apis)
        graph = Graph()
        graph.add(lambda: chooser.launch(Kernel("k", {"sim": fails})), key="k")
        run = apis.run(graph, Threads(1))
        assert isinstance(run.failed["k"], DeviceError)
