"""The arena: what is measured, what is declined, and what a user gives it."""

from __future__ import annotations

import shutil
import sys

import backends_programs
import pytest

from armillary import catalogue, comm
from armillary.arena import NotForThisCase
from armillary.comm.jobs.program import found
from armillary.errors import InputError
from armillary.network.backends import Fastest, Measured, Uniconn, fastest_backend, lines_changed
from armillary.network.backends.arena import every_case
from armillary.network.backends.lines import changed

ARENA = catalogue.arena("network/backends")
TINY = {case.name: case for case in every_case("tiny")}
TEXTS = "armillary.network.backends"


def execute(technique, case):
    return ARENA.execute(ARENA.make(technique), case)


def test_overhead_is_the_median_of_the_rounds_own_ratios():
    measured = Measured((1.1, 2.1, 3.3, 4.4, 5.25), (1.0, 2.0, 3.0, 4.0, 5.0))
    assert measured.median == 3.3
    assert measured.noisy
    quiet = Measured((1.1, 1.05, 1.1, 1.1, 1.2), (1.0,) * 5)
    assert quiet.overhead == pytest.approx(10.0)
    assert quiet.spread == pytest.approx(0.075 / 1.1)
    assert not quiet.noisy
    noisy = Measured((1.0, 1.0, 1.0, 2.0, 3.0, 4.0), (1.0,) * 6)
    assert noisy.noisy
    assert noisy.overhead == pytest.approx(50.0)


def test_a_native_twin_has_no_overhead():
    outcome = execute("threads-native", TINY["allreduce-8B@threads"])
    assert outcome.values["overhead"] == 0.0


def test_latency_and_bandwidth_follow_from_the_time():
    case = TINY["pingpong-64KiB@threads"]
    values = execute("uniconn", case).values
    exchanges = case.parameters["options"]["exchanges"]
    assert values["latency"] == pytest.approx(1e6 * values["time"] / exchanges / 2)
    assert values["bandwidth"] == pytest.approx(65536 / (values["latency"] * 1e-6) / 1e9)
    case = TINY["bandwidth-1MiB@threads"]
    values = execute("uniconn", case).values
    assert values["bandwidth"] == pytest.approx(64 * case.parameters["options"]["exchanges"] * 2**20 / values["time"] / 1e9)


def test_mpi_and_its_twin_are_measured_together():
    if comm.backends()["mpi"]:
        pytest.skip(comm.backends()["mpi"])
    case = TINY["jacobi@mpi"]
    native, uniform = execute("mpi4py-native", case).values, execute("uniconn", case).values
    assert native["overhead"] == 0.0
    assert set(native) == set(uniform)
    assert native["lines_changed"] > 0


def test_virtual_ranks_give_simulated_time_only():
    case = TINY["jacobi@virtual"]
    first, second = execute("uniconn", case).values, execute("uniconn", case.at(0, 1)).values
    assert set(first) == {"time", "lines_changed"}
    assert first == second
    assert ARENA.metrics["time"].kind_on(case) == "simulated"
    assert ARENA.metrics["time"].kind_on(TINY["jacobi@mpi"]) == "measured"


@pytest.mark.parametrize(
    ("technique", "case", "said"),
    [
        ("mpi4py-native", "jacobi@threads", "written for mpi"),
        ("threads-native", "jacobi@mpi", "written for threads"),
        ("threads-native", "jacobi@virtual", "not for virtual"),
        ("torch-distributed", "cg@nccl", "nccl-native"),
        ("torch-distributed", "cg@threads", "not for threads"),
        ("nccl-native", "cg@mpi", "written for nccl"),
    ],
)
def test_a_case_of_another_kind_is_declined_with_the_reason(technique, case, said):
    outcome = execute(technique, TINY[case])
    assert isinstance(outcome, NotForThisCase)
    assert said in str(outcome)


def test_claims_of_what_cannot_be_had_say_what_they_need():
    needs = [claim.needs for claim in Uniconn.claims if claim.needs]
    assert needs == ["NVSHMEM and 64 GPUs"]
    assert [claim.by.at_most for claim in Uniconn.claims[:2]] == [3.0, 2.0]


def test_lines_that_change_are_counted_in_the_text(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "text_one.py").write_text('def p(c):\n    """Doc."""\n    # comment\n    a = c.send(1)\n    b = 2\n    return a\n')
    (tmp_path / "text_two.py").write_text("def p(c):\n    a = c.post( 1 )\n    b = 2\n    d = 3\n    return a\n")
    assert changed("text_one", "text_one", "p") == 0
    assert changed("text_one", "text_two", "p") == 2
    assert lines_changed("text_one", ["text_two", "text_one"], "p") == 0
    assert lines_changed("text_one", [], "p") == 0


@pytest.mark.parametrize("program", ["jacobi", "cg", "pingpong", "bandwidth", "allreduce"])
def test_native_texts_change(program):
    assert changed(f"{TEXTS}.mpi4py_native", f"{TEXTS}.threads_native", program) > 3


def test_the_fastest_backend_of_a_program():
    found = fastest_backend("backends_programs:prepared", ["threads", "one"], ranks=1, options={"count": 100})
    assert set(found.seconds) == {"threads", "one"}
    assert found.backend == min(found.seconds, key=found.seconds.__getitem__)
    assert found.times_faster >= 1
    assert found.backend in str(found)
    built_in = fastest_backend("allreduce", ["threads"], options={"nbytes": 8, "exchanges": 2})
    assert (built_in.backend, built_in.times_faster) == ("threads", 1.0)


def test_what_cannot_run_is_left_out_with_the_reason():
    with pytest.raises(InputError, match="no such thing"):
        fastest_backend("backends_programs:fails", ["threads"])
    with pytest.raises(InputError, match="unknown backend"):
        fastest_backend("jacobi", ["treads"])
    with pytest.raises(InputError, match="simulated"):
        fastest_backend("jacobi", ["virtual"])
    with pytest.raises(InputError, match="at least one"):
        fastest_backend("jacobi", [])
    with pytest.raises(InputError, match="module"):
        fastest_backend("no_such_module:program", ["threads"])
    found = Fastest("mpi", 1.5, {"mpi": 1.0, "threads": 1.5}, {})
    assert str(found) == "mpi, 1.50 times as fast as the next (mpi 1 s, threads 1.5 s)"


def test_a_program_of_the_user(tmp_path):
    file = shutil.copy(backends_programs.__file__, tmp_path / "my_program.py")
    cases = ARENA.from_file(file, {"function": "whole", "backends": "threads", "rounds": "3", "ranks": "3"})
    assert [case.name for case in cases] == ["my_program.py@threads"]
    values = execute("uniconn", cases[0]).values
    assert set(values) == {"time", "spread", "lines_changed"}
    assert isinstance(execute("threads-native", cases[0]), NotForThisCase)


def test_a_matrix_of_the_user(tmp_path):
    file = tmp_path / "a.mtx"
    file.write_text("%%MatrixMarket matrix coordinate real symmetric\n3 3 4\n1 1 4.0\n2 2 5.0\n3 3 6.0\n2 1 1.0\n")
    cases = ARENA.from_file(file, {"backends": "threads", "rounds": "2"})
    assert execute("uniconn", cases[0]).values["overhead"] > -100
    assert execute("threads-native", cases[0]).values["overhead"] == 0


def test_a_file_beside_the_program_takes_no_package_s_place(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    (tmp_path / "colorsys.py").write_text("raise RuntimeError('in the place of the library')\n")
    (tmp_path / "beside_the_program.py").write_text("ANSWER = 42\n")
    file = tmp_path / "mine.py"
    file.write_text("import beside_the_program, colorsys\n\ndef whole(comm):\n    return beside_the_program.ANSWER\n")
    (case,) = ARENA.from_file(file, {"function": "whole", "backends": "threads"})
    assert case.parameters["program"] == "mine.py:whole", "no path of the machine"
    assert found(f"{file}:whole")(None) == 42
    file.write_text("def whole(comm):\n    return 7\n")
    assert found(f"{file}:whole")(None) == 7, "the same file with other content is another program"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"backends": "treads", "function": "whole"}, "treads"),
        ({"function": "no-such"}, "expected the name of a function in"),
        ({"function": "missing"}, "missing"),
    ],
)
def test_bad_options_are_refused(tmp_path, options, said):
    file = shutil.copy(backends_programs.__file__, tmp_path / "another_program.py")
    with pytest.raises(InputError, match=said):
        ARENA.from_file(file, options)
