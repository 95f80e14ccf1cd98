"""The arena: built-in cases, files of one's own, options, the answer, programs for each QPU, and what a bad file says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from armillary import compare
from armillary.cluster import find
from armillary.errors import InputError
from armillary.scheduling.quantum import Network, Planner, QuantumWork, ghz, programs, qft, read_jobs, read_links, read_qasm
from armillary.scheduling.quantum.arena import Reading, answer, quantum, read
from armillary.scheduling.quantum.circuits.circuit import TWO
from armillary.scheduling.quantum.planning.placing import on_best_links

QUICK = {"techniques": ["fifo", "epr-nodes", "asap"], "metrics": ["makespan_s", "promise_error"], "repeats": 1, "quiet": True}


def test_the_cases_are_batches_misfits_and_an_exact_one() -> None:
    small = {case.name: case for case in quantum.built_in("small")}
    batches = [f"{name}-{jobs}" for jobs in (20, 50) for name in ("homogeneous", "heterogeneous", "ring")]
    misfits = ["misfit-20", "misfit-50"]
    loads = [f"{name}-100" for name in ("homogeneous", "heterogeneous", "ring")]
    more = [*loads, *(f"{name}-slots" for name in ("homogeneous", "heterogeneous", "ring", "star")), "many"]
    assert list(small) == [*batches, *(f"{name}-b" for name in batches), *misfits, *(f"{name}-b" for name in misfits), "exact", *more]
    assert quantum.telling_cases() == batches
    trained = [name for name, case in small.items() if "trained" in case.kinds]
    assert trained == ["homogeneous-50", "heterogeneous-50", "homogeneous-50-b", "heterogeneous-50-b"]
    large = {case.name: case for case in quantum.built_in("large")}
    assert large["many"].parameters["qpus"] == 50
    assert large["many"].parameters["jobs"] == 5000
    assert list(large) == list(small)
    assert large["star-slots"].parameters["jobs"] == 100


def test_a_case_is_drawn_from_its_seed() -> None:
    case = quantum.built_in("tiny")[1]
    work: QuantumWork = case.workload
    other: QuantumWork = case.at(1, 0).workload
    assert len(work.jobs) == 20
    assert work.known is work.network
    assert set(np.unique(work.network.rate)) <= {0, 10, 50, 182, 250}
    assert [job.name for job in work.jobs] != [job.name for job in other.jobs]
    assert work.seed != other.seed
    misfit: QuantumWork = next(c for c in quantum.built_in("tiny") if "misfit" in c.kinds).workload
    assert not np.array_equal(misfit.known.rate, misfit.network.rate)


def test_a_comparison_answers_in_words() -> None:
    result = compare("scheduling/quantum", scale="tiny", cases=["heterogeneous-20"], **QUICK)
    values = {name: result.medians(name, "makespan_s")["heterogeneous-20"] for name in QUICK["techniques"]}  # type: ignore[attr-defined]
    best = min(values, key=values.__getitem__)
    assert result.answer().startswith(f"{best} has the shortest makespan on heterogeneous-20")


def test_strategies_that_tie_are_named_together(tmp_path: Path) -> None:
    (tmp_path / "circuits").mkdir()
    (tmp_path / "circuits" / "pair.qasm").write_text('OPENQASM 2.0;\ninclude "qelib1.inc";\nqreg q[2];\ncx q[0],q[1];\n')
    names = ["fifo", "list", "asap"]
    found = compare("scheduling/quantum", work=tmp_path / "circuits", techniques=names, repeats=1, store=tmp_path / "r.db", quiet=True)
    assert found.answer() == "The strategies hardly differ in makespan."
    slow = {case: {"fifo": 2.0, "list": 2.0, "asap": 3.0} for case in ("circuits",)}

    class Tied:
        metrics, cases = ("makespan_s",), ("circuits",)

        def on(self, case: str, metric: str) -> dict[str, float]:
            return slow[case]

    assert answer(Tied()) == "fifo and list have the same makespan on circuits, 33 % below the longest."


def test_the_example_is_read_and_runs(tmp_path: Path) -> None:
    path, options = quantum.write_example(tmp_path)
    (case,) = quantum.from_file(path, options)
    work: QuantumWork = case.workload
    assert len(work.jobs) == 8
    assert work.jobs[4].priority == 1
    assert work.jobs[6].arrival_s == 30
    assert work.network.rate[0, 3] == 250
    assert work.network.latency_s[0, 1] == pytest.approx(10e-6 + 5e-6)
    assert "exact" in case.kinds
    found = compare(
        "scheduling/quantum", work=path, options=options, techniques=["fifo", "milp"], metrics=["makespan_s"], repeats=1, quiet=True
    )
    assert found.medians("milp", "makespan_s")


def test_a_folder_of_circuits_and_a_single_one(tmp_path: Path) -> None:
    for circuit in (ghz(5), qft(6)):
        (tmp_path / f"{circuit.name}.qasm").write_text(circuit.text())
    (tmp_path / "notes.txt").write_text("no circuit")
    assert [job.name for job in read_jobs(tmp_path)] == ["ghz_5.qasm", "qft_6.qasm"]
    (job,) = read_jobs(tmp_path / "qft_6.qasm", shots=7)
    assert (job.qubits, job.shots) == (6, 7)
    work = read(tmp_path, Reading(topology="ring", times="expected", gate_grouping=True))
    assert work.grouping
    assert (work.network.rate > 0).sum() == 12


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("time,size\n1,2\n", 'found a file with "time, size"; expected a QASM file'),
        ("job,file\na,../secret.qasm\n", "expected a QASM file in the folder of the circuits"),
        ("job,file\na,/etc/passwd\n", "expected a QASM file in the folder of the circuits"),
        ("job,file\na,missing.qasm\n", 'found no file "missing.qasm"'),
        ("job,file,shots\na,ghz.qasm,0\n", "shots"),
        ("job,file,arrival_s\na,ghz.qasm,-1\n", "arrival_s"),
        ("job,file\na,ghz.qasm\na,ghz.qasm\n", "job"),
        ("job,file\n", "no rows"),
        ("job,file,shots\na,ghz.qasm,1\nb,ghz.qasm,1\nc,ghz.qasm,1000000000\n", "operations to simulate"),
    ],
)  # fmt: skip
def test_a_bad_batch_is_one_line(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "ghz.qasm").write_text(ghz(4).text())
    table = tmp_path / "batch.csv"
    table.write_text(text)
    with pytest.raises(InputError, match=said) as error:
        quantum.from_file(table, {"circuits": str(tmp_path)})
    assert "\n" not in str(error.value)


def test_a_table_needs_the_folder_of_its_circuits(tmp_path: Path) -> None:
    table = tmp_path / "batch.csv"
    table.write_text("job,file\na,ghz.qasm\n")
    with pytest.raises(InputError, match="--circuits"):
        quantum.from_file(table)
    other = tmp_path / "photo.png"
    other.write_bytes(b"\x89PNG")
    with pytest.raises(InputError, match="found another kind of file; expected a QASM file"):
        quantum.from_file(other)
    with pytest.raises(InputError, match=r"found no file that ends in \.qasm"):
        (tmp_path / "empty").mkdir()
        quantum.from_file(tmp_path / "empty")


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ("qpu-0,qpu-9,182", 'found a link to "qpu-9"; expected a QPU'),
        ("qpu-0,qpu-1,0", "epr_rate_hz"),
        ("qpu-0,qpu-1,-5", "epr_rate_hz"),
        ("qpu-0,qpu-1,1e6", "at most 100000 Hz"),
        ("qpu-0,qpu-1,5\nqpu-1,qpu-0,6", "each pair of QPUs once"),
        ("qpu-0,qpu-0,5", "each pair of QPUs once"),
        ("qpu-0,qpu-1,5", "found no route"),
    ],
)  # fmt: skip
def test_bad_links_are_one_line(tmp_path: Path, rows: str, said: str) -> None:
    circuit, links = tmp_path / "ghz.qasm", tmp_path / "links.csv"
    circuit.write_text(ghz(4).text())
    links.write_text(f"a,b,epr_rate_hz\n{rows}\n")
    with pytest.raises(InputError, match=said) as error:
        quantum.from_file(circuit, {"links": str(links)})
    assert "links.csv" in str(error.value)


def test_links_may_be_numbers(tmp_path: Path) -> None:
    links = tmp_path / "links.csv"
    links.write_text("a,b,epr_rate_hz,fidelity,distance_km\n" + "".join(f"{i},{i + 1},50,0.9,2\n" for i in range(5)))
    network = Network.of(links=read_links(links))
    assert network.rate[2, 3] == 50
    assert network.routes[0, 5] == (0, 1, 2, 3, 4, 5)


def test_other_clusters_say_what_they_lack(tmp_path: Path) -> None:
    circuit = tmp_path / "ghz.qasm"
    circuit.write_text(ghz(60).text())
    with pytest.raises(InputError, match="needs 60 qubits; expected at most the 48"):
        quantum.from_file(circuit)
    with pytest.raises(InputError, match="no device of kind qpu"):
        quantum.from_file(circuit, {"cluster": "hpc-256"})
    with pytest.raises(InputError, match="no device of kind qpu"):
        quantum.built_in("tiny", find("hpc-256"))


# Programs


def test_programs_hold_every_gate_once_and_every_remote_gate_twice() -> None:
    network = Network.of()
    circuit = qft(20)
    placed = on_best_links(Planner(network), circuit, network.data.tolist())
    assert placed is not None
    made = programs(circuit, placed, network)
    assert len(made.texts) == 3
    found = [read_qasm(text, name) for name, text in made.texts.items()]
    crossing = placed.crossing(circuit)
    assert len(made.ebits) == crossing
    remote = sum(sum(call.name == "remote_cp" for call in (c.calls[k] for k in c.call)) for c in found)
    assert remote == 2 * crossing
    assert sum(len(c) for c in found) == len(circuit) + crossing
    assert sum(int((c.kind == TWO).sum()) for c in found) == circuit.two_qubit_gates + crossing
    assert made.coupling().count("\n") == crossing + 1
    assert {qubit for e in made.ebits for qubit in e.slots} == {0, 1}


def test_programs_are_qiskits_too() -> None:
    pytest.importorskip("qiskit")
    from qiskit import qasm2

    network = Network.of(topology="ring")
    made = programs(ghz(4), [0, 0, 2, 2], network)
    assert made.ebits[0].route == ("qpu-0", "qpu-1", "qpu-2")
    assert made.ebits[0].qubits == (1, 2)
    for text in made.texts.values():
        loaded = qasm2.loads(text, custom_instructions=qasm2.LEGACY_CUSTOM_INSTRUCTIONS)
        assert loaded.num_qubits == 4
        assert loaded.count_ops()["remote_cx"] == 1
    assert "remote_cx q[1],comm[0]; // ebit 0" in made.texts["qpu-0"]


def test_programs_check_the_placement() -> None:
    with pytest.raises(InputError, match="found 9 qubits on qpu-0; expected at most 8"):
        programs(ghz(9), [0] * 9, Network.of())
    with pytest.raises(InputError, match="expected one of 6 QPUs for each of 4"):
        programs(ghz(4), [0, 0, 9, 1], Network.of())
