"""The arena: cases, claims, answer, files of the user's kind and wrong ones."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from armillary.arena import Outcome
from armillary.errors import InputError
from armillary.network.transport import Auto, Layer, Metadata, TransportWork, Workflow, fan, read_metadata, read_streams, save_metadata
from armillary.network.transport.arena import EXAMPLE, transport
from armillary.network.transport.auto import WAYS
from armillary.network.transport.real.experiment import Compared
from armillary.network.transport.simulation.way import Way

Command = Callable[..., subprocess.CompletedProcess[str]]


def test_every_claim_has_four_cases_at_least() -> None:
    for number, _, claim in transport.claims():
        cases = transport.built_in(claim.scale)
        for kind in claim.kinds:
            assert sum(kind.takes(case.kinds) for case in cases) >= 4, number


SIMULATED = [case.name for case in transport.built_in("small") if "simulated" in case.kinds]


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow) if n in ("fan-wide-pencils", "fan-wide-slabs") else n for n in SIMULATED]
)
def test_every_built_in_workflow_ends_under_every_transport(name: str) -> None:
    work = next(case for case in transport.built_in("small") if case.name == name).at(0, 0).workload
    ended: dict[object, float] = {
        name: work.workflow.simulate(work.cluster, name).makespan for name in ("ideal", "file-shared", "staging-remote")
    }
    for choice in Auto().search(work):
        ended[choice.transport, choice.placement] = choice.found.makespan
    assert min(ended.values()) == ended["ideal"]


def test_auto_and_the_transports_share_their_simulations(monkeypatch: pytest.MonkeyPatch) -> None:
    played: list[Way] = []
    simulate = Way.simulate

    case = next(case for case in transport.built_in("small") if case.name == "fan-wide-cubes").at(1234, 0)

    def counted(way: Way, work: TransportWork) -> object:
        if work is case.workload:  # Not what warms up.
            played.append(way)
        return simulate(way, work)

    monkeypatch.setattr(Way, "simulate", counted)
    found = {name: transport.execute(transport.make(name), case) for name in reversed(transport.techniques)}
    assert sorted((way.transport, way.placement) for way in played) == sorted([*WAYS, ("ideal", "")])
    seconds = {name: one.values["simulation_time"] for name, one in found.items() if isinstance(one, Outcome)}
    shared = sum(seconds[name] for name in ("file-shared", "file-local", "staging-colocated", "staging-remote"))
    assert seconds["auto"] > shared, "the search takes what all of its ways take"
    played.clear()
    transport.execute(transport.make("file-shared", {"reduction": "decimation"}), case)
    assert [way.reduction.kind for way in played] == ["decimation"], "another reduction is another simulation"


def test_a_real_workflow_runs_once_for_all_techniques(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def compared(work: object, rounds: int) -> Compared:
        asked.append(rounds)
        return Compared({"BP5": 1.0, "SST": 2.0}, {"BP5": 1.1, "SST": 1.5}, 0.5, False, {"flop_s": 1e-9})

    monkeypatch.setattr("armillary.network.transport.real.experiment.compared", compared)
    case = next(case for case in transport.built_in("small") if case.name == "real-pipeline-64").at(1234, 0)
    found = {name: transport.execute(transport.make(name), case) for name in ("auto", "adios2-sst", "adios2-bp5")}
    assert asked == [6]
    regrets = {name: one.values["regret"] for name, one in found.items() if isinstance(one, Outcome)}
    assert regrets == {"auto": 0.0, "adios2-sst": 100.0, "adios2-bp5": 0.0}
    transport.execute(transport.make("adios2-sst", {"rounds": 2}), case)
    assert asked == [6, 2]


def test_a_workflow_of_ones_own_is_answered_in_words(armillary_here: Command, tmp_path: Path) -> None:
    path, options = transport.write_example(tmp_path)
    settings = [f"--{k}={v}" for k, v in options.items()]
    found = armillary_here("compare", "network/transport", "--work", str(path), *settings, "--repeats", "1")
    assert found.returncode == 0, found.stderr
    assert "finishes first on coupled" in found.stdout.replace("\n", " ")


def test_a_workflow_file_is_read_and_played(tmp_path: Path) -> None:
    from armillary.cluster import preset

    path, options = transport.write_example(tmp_path)
    workflow = Workflow.read(path)
    assert [c.ranks for c in workflow.components] == [32, 4]
    with pytest.raises(InputError, match="stream field has no engine"):
        workflow.simulate(preset("two-clusters-insitu"))
    work = transport.from_file(path, options)[0].loaded
    own = work.workflow.simulate(work.cluster)
    assert own.makespan == workflow.simulate(work.cluster, "staging-remote").makespan


def test_metadata_is_written_and_read_in_dtlmods_form(tmp_path: Path) -> None:
    block = (("/pfs/x/data.0", ((0, 4), (0, 8))), ("/pfs/x/data.1", ((4, 8), (0, 8))))
    one = Metadata((("u", 8, (8, 8), {1: block, 2: block[:1]}), ("v", 4, (3,), {})))
    save_metadata(one, tmp_path / "m.txt")
    text = (tmp_path / "m.txt").read_text()
    assert text.startswith("8\tu\t2*{8,8}\n  Transaction 1:\n    /pfs/x/data.0: [0:4, 0:8]\n")
    assert read_metadata(tmp_path / "m.txt") == one
    save_metadata(one, tmp_path / "m.json")
    assert json.loads((tmp_path / "m.json").read_text())["variables"][0]["shape"] == [8, 8]
    for wrong, said in (
        ("8\tu\t1*{8}\n", "found 0 transactions; expected 1"), ("x\n", "expected a variable"),
        ("8\tu\t1*{8}\n  Transaction 1:\n    f: [0:9]\n", "inside"), ("8\tu\t1*{8}\n  Transaction 1:\n  Transaction 1:\n", "twice"),
        ("8\tu\t1*{8}\n  Transaction 1:\n    f: [0-9]\n", "expected"),
    ):  # fmt: skip
        (tmp_path / "w.txt").write_text(wrong)
        with pytest.raises(InputError, match=said):
            read_metadata(tmp_path / "w.txt")


def test_dtlmods_configuration_is_read(tmp_path: Path) -> None:
    one = {"name": "Stream1", "engine": {"type": "File", "transport_method": "File"}, "export_metadata": True}
    two = {"name": "Stream2", "engine": {"type": "Staging", "transport_method": "MQ"}, "reduction_methods": ["compression"]}
    (tmp_path / "s.json").write_text(json.dumps({"streams": [one, two]}))
    found = read_streams(tmp_path / "s.json")
    assert [(s.name, s.engine, s.transport, s.reduction.kind, s.export_metadata) for s in found] == [
        ("Stream1", "File", "File", "none", True), ("Stream2", "Staging", "MQ", "compression", False)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"streams": [{"name": "field"}]}', "found no engine"),
        ('{"streams": [{"name": "field", "engine": {"type": "File", "transport_method": "MQ"}}]}', "found MQ with File"),
        ('{"streams": [{"name": "field", "engine": {"type": "Fax", "transport_method": "MQ"}}]}', "Fax"),
        ('{"streams": [{"name": "field", "name": "x", "engine": {"type": "File", "transport_method": "File"}}]}', "name"),
        ('{"streams": []}', "found no list"),
        ('{"streams": [{"name": "other", "engine": {"type": "File", "transport_method": "File"}}]}', "expected one of the workflow"),
        ("[", "s.json"),
    ],
)
def test_a_wrong_configuration_is_one_line(armillary_here: Command, tmp_path: Path, content: str, said: str) -> None:
    path, _ = transport.write_example(tmp_path)
    (tmp_path / "s.json").write_text(content)
    found = armillary_here("compare", "network/transport", "--work", str(path), "--streams", str(tmp_path / "s.json"))
    assert found.returncode == 2
    assert said in found.stderr
    assert found.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("ranks = 32", "ranks = 0", "ranks: found 0"),
        ('group = "b"', 'group = "z"', "z"),
        ('to = "analysis"', 'to = "nobody"', "nobody"),
        ('to = "analysis"', 'to = "simulation"', "at both ends"),
        ("publish = [4, 4, 2]", "publish = [4, 4, 4]", "whose product is 32"),
        ("shape = [128, 128, 128]", "shape = [128, 0, 128]", "a size of 0"),
        ("shape = [128, 128, 128]", "shape = [4611686018427387904, 4, 4]", "shape"),
        ("itemsize = 8", "itemsize = 8\nstart = [0, 0, 100]\ncount = [1, 1, 100]", "expected it inside"),
        ("itemsize = 8", "itemsize = 8\nblocks = [{start = [0], count = [1]}]", "expected 3 each"),
        ("publish = [4, 4, 2]", "blocks = [{start = [0, 0, 0], count = [1, 1, 1]}]", "found 1 blocks; expected 32"),
        ('name = "field"', 'name = "field"\nengine = "File"\ntransport_method = "MQ"', "found MQ with File"),
        ('name = "field"', 'name = "field"\nreduction = {kind = "compression", side = "subscriber"}', "compression at the subscriber"),
        ("steps = 4", "steps = 4\nspeed = 2", 'the key "speed"'),
        ("steps = 4", "steps = ", "found no TOML"),
        ('name = "coupled"', 'name = "coupled"\nname = "twice"', "found no TOML"),
    ],
)
def test_a_wrong_workflow_is_one_line(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert old in EXAMPLE
    (tmp_path / "w.toml").write_text(EXAMPLE.replace(old, new, 1))
    with pytest.raises(InputError) as caught:
        transport.from_file(tmp_path / "w.toml")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_of_overlapping_blocks_names_them(tmp_path: Path) -> None:
    blocks = ", ".join(f"{{start = [{i}, 0, 0], count = [2, 128, 128]}}" for i in range(32))
    (tmp_path / "w.toml").write_text(EXAMPLE.replace("publish = [4, 4, 2]", f"blocks = [{blocks}]"))
    with pytest.raises(InputError, match="publishers 0 and 1 that overlap"):
        transport.from_file(tmp_path / "w.toml")


def test_a_circle_of_streams_is_refused() -> None:
    from dataclasses import replace

    one = fan(2, 2, (8, 8))
    back = replace(one.streams[0], name="back", source="subscriber", target="publisher")
    with pytest.raises(InputError, match="circle"):
        replace(one, streams=(*one.streams, back))


def test_an_unknown_stream_is_named() -> None:
    from armillary.cluster import preset

    layer = Layer(preset("two-clusters-insitu"))
    layer.start(lambda dtl: dtl.connect().stream("s"))
    with pytest.raises(InputError, match="unknown stream"):
        layer.run()
