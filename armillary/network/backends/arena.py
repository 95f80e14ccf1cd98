"""Which communication backend should this code run on, and what does the uniform layer cost over calling it directly?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armillary.arena import Arena, Case, Metric, NotForThisCase, Outcome, Result, parameter
from armillary.errors import InputError, unknown

if TYPE_CHECKING:
    import numpy as np

    from .measurement import Measured
    from .twin import Twin

backends = Arena(
    "network/backends",
    question="Which communication backend should this code run on, and what does the uniform layer cost over calling it directly?",
    telling=["jacobi@mpi", "pingpong-8B@mpi", "jacobi@threads", "pingpong-8B@threads", "jacobi@virtual"],
    metrics=[
        Metric(
            "overhead", "%", kind="measured", scale="difference", on=frozenset({"twin"}),
            doc="over the native twin in the same rounds of the same ranks, as the median of the ratios",
        ),
        Metric("time", "s", kind="by case", doc="one run of the program on the slowest rank, as the median of the rounds"),
        Metric("latency", "us", kind="measured", on=frozenset({"latency"}), doc="one way, which is half an exchange"),
        Metric("bandwidth", "GB/s", better="higher", kind="measured", on=frozenset({"bandwidth"}), doc="payload one way"),
        Metric("spread", "%", better=None, kind="measured", on=frozenset({"measured"}), doc="between the quartiles of the rounds"),
        Metric("lines_changed", kind="modelled", doc="lines of the program that change on the way to the nearest backend"),
    ],
    techniques={
        "mpi4py-native": ".mpi4py_native:Mpi4pyNative",
        "threads-native": ".threads_native:ThreadsNative",
        "nccl-native": ".torch_distributed:NcclNative",
        "torch-distributed": ".torch_distributed:TorchDistributed",
        "uniconn": ".uniconn:Uniconn",
    },
    papers={"uniconn": "uniconn"},
    baseline="uniconn",
    # A unit already holds fifteen rounds in which the texts take turns.
    repeats=2,
)  # fmt: skip

#: The grid points per side and the sweeps of Jacobi, the points per side of the Poisson problem, the rounds, and the divisor of the
#: exchanges in one round.
SIZES: dict[str, dict[str, dict[str, int]]] = {
    "tiny": {"jacobi": {"n": 96, "iterations": 6}, "cg": {"grid": 6}, "rounds": {"rounds": 4, "share": 40}},
    "small": {"jacobi": {"n": 1024, "iterations": 20}, "cg": {"grid": 24}, "rounds": {"rounds": 15, "share": 1}},
    "large": {"jacobi": {"n": 2048, "iterations": 200}, "cg": {"grid": 64}, "rounds": {"rounds": 15, "share": 1}},
}
#: The sizes of Jacobi if ranks have devices.
DEVICE_SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"n": 256, "iterations": 6, "periodic": True},
    "small": {"n": 4096, "iterations": 50, "periodic": True},
    "large": {"n": 16384, "iterations": 200, "periodic": True},
}
#: The bytes of a message, and the exchanges in one round.
PINGPONG = {"8B": (8, 1000), "1KiB": (1 << 10, 800), "64KiB": (1 << 16, 200), "1MiB": (1 << 20, 40), "64MiB": (1 << 26, 1)}
BANDWIDTH = {"64KiB": (1 << 16, 4), "1MiB": (1 << 20, 1)}
ALLREDUCE = {"8B": (8, 400), "1KiB": (1 << 10, 300), "64KiB": (1 << 16, 100)}
#: The sides of the other grids of Jacobi, as multiples of the first, with the multiple of the sweeps that makes the work the same; and the
#: sides of the other Poisson problems.
JACOBI = ((0.5, 4.0), (1.5, 4 / 9), (2.0, 0.25))
CG = (0.75, 1.25, 1.5)
#: The size that simulated time, in which nothing is claimed, leaves out.
NOT_VIRTUAL = "1KiB"
#: Messages of this size and more are long; it is their overhead that the paper calls negligible.
LONG = 1 << 16
MEASURED = ("mpi", "threads", "nccl")
#: Starting processes takes most of the time of a small case, so the tiny scale has few of them.
TINY = {
    "pingpong-8B@mpi", "jacobi@threads", "cg@threads", "pingpong-64KiB@threads", "bandwidth-64KiB@threads",
    "allreduce-8B@threads", "jacobi@nccl", "jacobi@virtual", "cg@virtual", "allreduce-8B@virtual",
}  # fmt: skip
RANKS = {"mpi": 2, "threads": 2, "nccl": 1, "virtual": 8}


@backends.cases
def cases(scale: str) -> Iterator[Case]:
    """Each program on each backend, on two ranks, on one GPU, and on eight virtual ranks in simulated time."""
    return (case for case in every_case(scale) if scale != "tiny" or case.name in TINY)


def every_case(scale: str) -> Iterator[Case]:
    """The cases of all programs on all backends, including those that the tiny scale leaves out."""
    size = SIZES[scale]
    for backend in (*MEASURED, "virtual"):
        first = DEVICE_SIZES[scale] if backend == "nccl" else size["jacobi"]
        yield _case("jacobi", backend, first, scale)
        yield _case("cg", backend, size["cg"], scale)
        if backend != "virtual":
            yield from _other_sizes(backend, first, size["cg"], scale)
        share = size["rounds"]["share"]
        for program, table in (("pingpong", PINGPONG), ("bandwidth", BANDWIDTH), ("allreduce", ALLREDUCE)):
            if backend in ("nccl", "virtual") and program == "bandwidth":
                continue
            for name, (nbytes, exchanges) in table.items():
                if (backend, name) == ("virtual", NOT_VIRTUAL):
                    continue
                yield _case(program, backend, {"nbytes": nbytes, "exchanges": max(1, exchanges // share)}, scale, name)


def _other_sizes(backend: str, jacobi: dict[str, Any], cg: dict[str, Any], scale: str) -> Iterator[Case]:
    """Jacobi and conjugate gradients at three more sizes each, because a claim is judged over several cases."""
    for side, sweeps in JACOBI:
        n = int(side * jacobi["n"])
        yield _case("jacobi", backend, {**jacobi, "n": n, "iterations": max(2, round(sweeps * jacobi["iterations"]))}, scale, f"{side:g}x")
    for side in CG:
        yield _case("cg", backend, {**cg, "grid": round(side * cg["grid"])}, scale, f"{side:g}x")


def _case(program: str, backend: str, options: dict[str, Any], scale: str, size: str = "") -> Case:
    kinds = {program, backend}
    kinds |= {"simulated"} if backend == "virtual" else {"measured", "twin"}
    if program not in ("jacobi", "cg"):
        kinds |= {"messages", "long" if options["nbytes"] >= LONG else "short"}
        if backend != "virtual":
            kinds |= {"pingpong": {"latency", "bandwidth"}, "bandwidth": {"bandwidth"}, "allreduce": set()}[program]
    name = f"{program}-{size}@{backend}" if size else f"{program}@{backend}"
    what: dict[str, Any] = {"program": program, "backend": backend, "ranks": RANKS[backend], "options": options}
    # Simulated rounds are all equal.
    what["rounds"] = 2 if backend == "virtual" else SIZES[scale]["rounds"]["rounds"]
    return Case(name, _work, what, frozenset(kinds))


@dataclass(frozen=True)
class Reading:
    """The backends on which a program runs, and how often it runs there."""

    backends: tuple[str, ...] = parameter(("mpi", "threads"), "the backends to run on: mpi, threads, gloo, nccl, virtual, one")
    ranks: int = parameter(2, "ranks of each backend", range=(1, 64))
    rounds: int = parameter(15, "timed rounds", range=(2, 10_000))
    function: str = parameter("", "the function in a Python file: `name(comm)` prepares and returns what is to be timed")

    def validate(self) -> None:
        """Checks that every backend exists."""
        from armillary.comm import backends as known

        for backend in self.backends:
            if backend not in known():
                raise unknown("backend", backend, known(), where="--backends")


@backends.read(Reading)
def read(path: Path, how: Reading) -> str:
    """Reads a MatrixMarket file for conjugate gradients, or a Python file with a program of your own (`--function name`)."""
    if path.suffix == ".py":
        return _own(path, how.function)
    from .matrices import matrix_market

    matrix_market(str(path))
    return "cg"


@backends.own_cases
def own_cases(program: str, name: str, how: Reading) -> Iterator[Case]:
    """The program on each backend."""
    for backend in how.backends:
        kinds = {"file", "simulated" if backend == "virtual" else "measured", backend}
        if program == "cg":
            kinds |= {"cg"} | ({"twin"} if backend != "virtual" else set())
        what = {"program": program, "backend": backend, "ranks": how.ranks, "rounds": how.rounds}
        yield Case(f"{name}@{backend}", _own_work, what, frozenset(kinds))


@backends.example
def example(folder: Path) -> tuple[Path, dict[str, str]]:
    """Writes the matrix of a chain of eight springs as MatrixMarket."""
    file = folder / "chain.mtx"
    entries = [(i, i, 2) for i in range(1, 9)] + [(i + 1, i, -1) for i in range(1, 8)]
    file.write_text("%%MatrixMarket matrix coordinate real symmetric\n8 8 15\n" + "".join(f"{i} {j} {v}\n" for i, j, v in entries))
    return file, {"backends": "threads", "rounds": "2"}


def _own(path: Path, function: str) -> str:
    """The name of a program of the user's file, which ranks import from the folder of the case's file."""
    from armillary.comm.jobs.program import found

    if not function.isidentifier():
        raise InputError(f'found "{function}"; expected the name of a function in {path.name}', where="--function")
    found(f"{path.resolve()}:{function}")
    return f"{path.name}:{function}"


def _work(case: Case, rng: np.random.Generator) -> dict[str, Any]:
    return dict(case.parameters)


def _own_work(case: Case, rng: np.random.Generator) -> dict[str, Any]:
    # What was read may come from another file of the same content, which may be gone.
    file = case.files[0].resolve()
    if case.loaded == "cg":
        return {**case.parameters, "options": {"grid": 0, "path": str(file)}}
    return {**case.parameters, "program": str(file.with_name(case.loaded)), "options": {}}


@backends.run
def run(technique: Twin, case: Case) -> Outcome:
    """Runs the technique's text of the program and its native twin in turn, on one set of ranks."""
    work = case.workload
    program, backend, options = work["program"], work["backend"], work["options"]
    technique.check(backend, program)
    measured = _measured(technique, case)
    values = {"time": measured.median, "lines_changed": float(_lines_changed(technique, program))}
    if "measured" in case.kinds:
        values["spread"] = 100 * measured.spread
    if "twin" in case.kinds:
        values["overhead"] = measured.overhead
    if "latency" in case.kinds:
        values["latency"] = 1e6 * measured.median / options["exchanges"] / 2
    if "bandwidth" in case.kinds:
        messages = options["exchanges"] * (2 if program == "pingpong" else 64)
        values["bandwidth"] = options["nbytes"] * messages / measured.median / 1e9
    return Outcome(values, noisy=measured.noisy)


#: The measurements of the last set of ranks that no technique has asked for yet, by case, seed and repeat.
_UNASKED: dict[tuple[str, int, int], dict[str, Measured]] = {}


def _measured(technique: Twin, case: Case) -> Measured:
    """The technique's rounds. The native twin and Uniconn are measured together, once for both; a second request measures again."""
    from .measurement import measure
    from .uniconn import Uniconn

    key = (case.digest, case.seed, case.repeat)
    waiting = _UNASKED.get(key, {})
    if technique.texts in waiting:
        return waiting.pop(technique.texts)
    work = case.workload
    native = native_of(work["backend"]) if "twin" in case.kinds else None
    texts = [technique.texts] if native is None else [native.texts, Uniconn.texts if technique.texts == native.texts else technique.texts]
    found = measure(texts, work["program"], work["options"], work["backend"], work["ranks"], work["rounds"], case.seed)
    mine = found.pop(technique.texts if ":" not in work["program"] else work["program"])
    _UNASKED.clear()
    _UNASKED[key] = {text: other for text, other in found.items() if {text, technique.texts} == {Uniconn.texts, native and native.texts}}
    return mine


def native_of(backend: str) -> type[Twin]:
    """The technique that is written for this backend only."""
    for name in backends.techniques:
        found: Any = backends.technique(name)
        if found.backends == {backend}:
            return found
    raise NotForThisCase(f"backend {backend} has no native twin")


def _lines_changed(technique: Twin, program: str) -> int:
    """The lines of the technique's text that change on the way to the nearest backend with another text; 0 for the text for all."""
    from .lines import lines_changed
    from .uniconn import Uniconn

    if ":" in program or technique.texts == Uniconn.texts:
        return 0
    others: list[Any] = [backends.technique(name) for name in backends.techniques]
    return lines_changed(technique.texts, sorted({t.texts for t in others} - {technique.texts, Uniconn.texts}), program)


@backends.answer
def answer(result: Result) -> str:
    """Names the fastest backend of up to two programs, and says what the uniform layer costs."""
    if "uniconn" not in result.techniques:
        return "Uniconn was not measured, so nothing is said about the uniform layer."
    by_program: dict[str, dict[str, float]] = {}
    for name, seconds in result.medians("uniconn", "time").items():
        program, _, backend = name.rpartition("@")
        if backend in MEASURED:
            by_program.setdefault(program, {})[backend] = seconds
    several = [program for program in ("jacobi", "cg", *by_program) if len(by_program.get(program, {})) > 1]
    compared = [_compared(program, by_program[program]) for program in dict.fromkeys(several)]
    overheads = result.medians("uniconn", "overhead")
    said = [f"{' and '.join(compared[:2])}."] if compared else []
    if overheads:
        worst = max(overheads, key=overheads.__getitem__)
        middle = sorted(overheads.values())[len(overheads) // 2]
        most = f"{overheads[worst]:.1f} % at most ({worst})"
        said.append(f"The uniform layer costs {middle:.1f} % over the library at the median, and {most}.")
    return " ".join(said) or "No backend was measured."


def _compared(program: str, seconds: dict[str, float]) -> str:
    """Which backend is the fastest for a program; times that differ by less than 5 % count as equal."""
    first, second = sorted(seconds, key=seconds.__getitem__)[:2]
    ratio = seconds[second] / seconds[first]
    if ratio < 1.05:
        return f"{program} runs equally fast on {first} and {second}"
    return f"{program} runs {ratio:.2f}x as fast on {first} as on {second}"
