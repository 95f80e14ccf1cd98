"""What is said of real logs and of planted faults, and that it does not depend on names, order or units."""

from __future__ import annotations

import dataclasses
import itertools
import json

import numpy as np
import pytest
from darshan_logs import EXAMPLES, INPUT, MACSIO, alone, rng, shipped_log, synthetic

from armillary.errors import InputError
from armillary.observability.io import (
    LABELS,
    IOAgent,
    Known,
    Log,
    Parts,
    Rules,
    Thresholds,
    Truth,
    diagnose,
    fleet,
    fragments,
    write_text_log,
)
from armillary.observability.io.diagnosis.describing import described
from armillary.observability.io.diagnosis.finding import Answer, Finding, as_text
from armillary.observability.io.diagnosis.judging import judged
from armillary.observability.io.diagnosis.merging import Node, tree
from armillary.observability.io.knowledge.conditions import condition
from armillary.observability.io.knowledge.entries import built_in, read_knowledge
from armillary.observability.io.knowledge.retrieval import Index
from armillary.observability.io.synthesis.faults import FAULTS
from armillary.observability.io.synthesis.logs import log_of
from armillary.observability.io.synthesis.planting import planted
from armillary.observability.io.synthesis.program import MIB, Program, metadata, requests
from armillary.observability.io.synthesis.timing import INTERLEAVE_S, METADATA_S, REQUEST_S, timed
from armillary.observability.io.workload import score


def labels(log: Log) -> tuple[str, ...]:
    return diagnose(log).labels


def field(log: Log, key: str, name: str) -> float:
    return fragments(log)[key].number(name)


def test_a_slow_target_is_named():
    log = shipped_log(f"{EXAMPLES}/sample-badost.darshan")
    found = diagnose(log)
    assert set(found.labels) == {"server-imbalance", "no-mpi"}
    assert found.findings[0].targets == (14,)
    assert field(log, "LUSTRE.servers", "files_on_slowest") == 85
    assert field(log, "LUSTRE.servers", "median_file_s_on_slowest") == pytest.approx(509.6, abs=0.05)
    assert "server-imbalance" not in labels(shipped_log(f"{INPUT}/sample-goodost.darshan"))


def test_a_shared_file_of_2048_processes():
    log = shipped_log(f"{EXAMPLES}/example.darshan")
    found = set(labels(log))
    assert found == {"misaligned-write", "rank-imbalance", "shared-file"}
    assert field(log, "POSIX.alignment", "misaligned") == 16401
    assert field(log, "POSIX.ranks", "shared_fastest_s") == pytest.approx(20.4, abs=0.05)
    assert field(log, "POSIX.ranks", "shared_slowest_s") == pytest.approx(85.5, abs=0.05)
    assert field(log, "MPI-IO.calls", "writes_collective") == 16384


def test_small_independent_writes():
    log = shipped_log(MACSIO)
    assert {"small-write", "misaligned-write", "no-collective-write"} <= set(labels(log))
    assert [field(log, "POSIX.sizes", name) for name in ("writes_small", "writes")] == [7812, 7816]
    assert field(log, "POSIX.alignment", "misaligned") == 7681
    assert [field(log, "MPI-IO.calls", name) for name in ("writes_independent", "writes_collective")] == [7695, 64]


def test_one_process_without_a_name():
    # Its command line is cut in the middle; Darshan's library then gives no executable at all.
    log = dataclasses.replace(shipped_log(f"{EXAMPLES}/dxt.darshan"), executable="")
    assert {"small-read", "random-read", "high-metadata"} <= set(labels(log))
    assert field(log, "POSIX.sizes", "reads_small") == 6126
    posix = log.modules["POSIX"]
    reads, sequential = posix.amount("POSIX_READS"), posix.amount("POSIX_SEQ_READS")
    assert [reads.sum(), sequential.sum(), (reads > 0).sum()] == [6126, 4696, 99]
    # A record whose first read begins behind byte 0 counts it as sequential already, so nothing is taken off there.
    assert field(log, "POSIX.order", "reads_random") == np.maximum(0, reads - sequential - (reads > 0)).sum() == 1372


def test_logs_without_requests_of_posix_and_without_faults():
    streams = diagnose(shipped_log(f"{EXAMPLES}/noposix.darshan"))
    assert streams.labels == ("low-level-read",)
    assert not any(key.startswith("POSIX") for key in streams.fragments)
    nothing = diagnose(shipped_log(f"{INPUT}/sample-dxt-simple.darshan"))
    assert nothing.labels == ()
    assert "Nothing" in nothing.summary()


def test_a_single_stripe_is_named_before_the_rank_that_it_makes_busy():
    log = alone("one-stripe", 496)
    found = diagnose(log)
    assert found.labels[0] == "server-imbalance"
    assert "single stripe" in found.findings[0].cause
    assert "rank-imbalance" in found.findings[0].explains
    assert "rank-imbalance" not in found.labels
    assert "rank-imbalance" in diagnose(log, parts=Parts(explains=False)).labels


@pytest.mark.parametrize("name", sorted(set(FAULTS) - {"slow-target", "one-stripe", "many-files", "no-chunking"}))
def test_a_fault_that_takes_nearly_all_time_is_found(name):
    log, truth = synthetic(name, 0.9, 64, 5)
    found = diagnose(log)
    assert truth.labels <= set(found.labels), found.labels
    assert truth.severity[name] > 0.08


def test_the_times_of_a_program_by_hand():
    program = Program(2, 1)
    file = program.add("/scratch/a", (0,), MIB)
    program.phases = [requests([0], [file], True, [0], 3, MIB)]
    each = REQUEST_S + MIB / 1.2e9
    assert timed(program).seconds == pytest.approx(3 * each + METADATA_S)
    program.phases = [metadata([0, 1], [file, file], [2, 2])]
    assert timed(program).seconds == pytest.approx(4 * METADATA_S), "two ranks share one metadata server"
    crowd = Program(9, 1)
    files = [crowd.add(f"/scratch/{i}", (0,), MIB) for i in range(9)]
    crowd.phases = [requests(range(9), files, True, [0] * 9, 1, MIB)]
    assert timed(crowd).seconds == pytest.approx(9 * (each + INTERLEAVE_S), rel=0.05)


def test_planted_shares_are_those_of_the_times():
    for asked in (0.1, 0.3, 0.6):
        _, truth = planted(["small-write"], [asked], 32, rng(1))
        assert truth.severity["small-write"] == pytest.approx(asked, abs=0.05)


def changed(log: Log, **columns: object) -> Log:
    posix = log.modules["POSIX"]
    return dataclasses.replace(log, modules={**log.modules, "POSIX": dataclasses.replace(posix, **columns)})


def test_names_of_files_change_nothing():
    log, _ = synthetic("small-read")
    other = dataclasses.replace(log, names={number: f"/scratch/other/{i}" for i, number in enumerate(log.names)})
    assert labels(other) == labels(log)


def test_the_order_of_ranks_and_records_changes_nothing():
    for name in ("small-read", "rank-imbalance", "no-collective-write"):
        log, _ = synthetic(name, ranks=64)
        posix = log.modules["POSIX"]
        order = np.random.default_rng(3).permutation(len(posix))
        assert labels(dataclasses.replace(log, modules={**log.modules, "POSIX": posix.taken(order)})) == labels(log)
        own = posix.ranks >= 0
        shifted = np.where(own, (posix.ranks + 5) % log.processes, -1)
        assert set(labels(changed(log, ranks=shifted))) == set(labels(log))


def test_times_ten_times_as_long_change_only_labels_with_seconds():
    log, _ = synthetic("small-write", 0.6)
    slower = {
        name: dataclasses.replace(m, counters={c: v * 10 if "_F_" in c and "VARIANCE" not in c else v for c, v in m.counters.items()})
        for name, m in log.modules.items()
    }
    seconds = {"rank-imbalance", "high-metadata"}
    assert set(labels(dataclasses.replace(log, modules=slower, run_time_s=10 * log.run_time_s))) ^ set(labels(log)) <= seconds


def test_requests_of_one_mib_are_small_and_longer_ones_are_not():
    for extra, small in ((0, True), (1, False)):
        program = Program(1, 4)
        file = program.add("/scratch/a", range(4), MIB)
        program.phases = [requests([0], [file], True, [0], 2000, MIB + extra)]
        assert ("small-write" in labels(log_of(program, "x", rng()))) == small


def leaves(log: Log) -> list[Node]:
    made = fragments(log)
    return [Node.leaf(one, judged(one, made["JOB.context"], Thresholds())) for one in made.values()]


def test_merging_says_the_same_in_every_order():
    for name in ("no-chunking", "one-stripe", "many-files", "slow-target"):
        nodes = leaves(alone(name, 64))
        first, levels = tree(nodes)
        assert levels <= 5
        expected = {label: (one.demoted != "", one.explains) for label, one in first.explained().items()}
        for seed in range(6):
            order = np.random.default_rng(seed).permutation(len(nodes))
            root, _ = tree([nodes[i] for i in order])
            assert {label: (one.demoted != "", one.explains) for label, one in root.explained().items()} == expected


def test_two_findings_of_one_label_are_united():
    a, b = Finding("no-mpi", 0.2, 0.5, ()), Finding("no-mpi", 0.6, 0.4, (), files=("x",))
    both = a.united(b)
    assert (both.severity, both.confidence, both.files) == (0.6, pytest.approx(0.7), ("x",))


def test_every_number_of_a_report_stands_in_a_fragment():
    for name in ("no-chunking", "one-stripe", "small-write", "low-level-read", "high-metadata"):
        found = diagnose(alone(name, 64))
        assert found.findings
        for finding in found.findings:
            assert finding.evidence
            for piece in finding.evidence:
                assert found.fragments[piece.fragment].number(piece.field) == piece.value
            assert finding.knowledge, finding.label
        text = found.markdown()
        assert all(one.label in text for one in found.findings)
        assert json.loads(json.dumps(found.json()))["findings"][0]["label"] == found.labels[0]


def test_fragments_are_small_and_described():
    strange = dataclasses.replace(alone("no-chunking", 32), executable="🦀" * 5000, mounts=[("/scratch", "🦀" * 900)])
    real = [shipped_log(name) for name in (MACSIO, f"{EXAMPLES}/sample-badost.darshan", f"{EXAMPLES}/ior_hdf5_example.darshan")]
    for log in [*(alone(name, 32) for name in FAULTS), strange, *real]:
        made = fragments(log)
        assert len(made) <= 30
        for one in made.values():
            assert len(as_text(one.as_json())) <= 1024
            assert 2 <= len(described(one)) <= 6


def test_the_quantiles_of_ranks_by_hand():
    program = Program(5, 5)
    files = [program.add(f"/scratch/{rank}", (rank,), MIB) for rank in range(5)]
    parts = [requests([rank], [files[rank]], True, [0], rank + 1, MIB) for rank in range(5)]
    program.phases = parts
    each = REQUEST_S + MIB / 1.2e9
    found = fragments(log_of(program, "x", rng()))["POSIX.ranks"]
    for quantile, times in ((25, 2), (50, 3), (75, 4)):
        assert found.number(f"own_s_quantile_{quantile}") == pytest.approx(times * each + METADATA_S, rel=1e-5)


def test_names_in_a_report_cannot_pretend_to_be_markup():
    log, _ = synthetic("small-read", 0.6)
    evil = dataclasses.replace(log, name="a`\x1b[31m", names=dict.fromkeys(log.names, "/scratch/`rm`\n# heading"))
    assert "\x1b" not in diagnose(evil).markdown()
    assert "\n# heading" not in diagnose(evil).markdown()


def test_questions_are_answered_from_fragments_and_knowledge():
    found = diagnose(alone("rank-imbalance", 64))
    said = found.ask("why is rank 0 slow?")
    assert "[POSIX.ranks]" in said
    assert "rank 0" in said
    assert found.ask("zzz qqq") == "Nothing in this log or in the knowledge fits the question."


def test_thresholds_scale_and_stay_shares():
    doubled, halved = Thresholds().scaled(2.0), Thresholds().scaled(0.5)
    assert doubled.small_share == 0.2
    assert doubled.small_share_few == 0.99
    assert halved.server_times == 1.5
    assert halved.repeated_times == 1.05
    assert Thresholds().scaled(1.0) == Thresholds()


def test_scores_by_hand():
    truth = Truth({"small-read": 0.5, "no-mpi": 0.1}, brings=frozenset({"shared-file"}), causes=frozenset({"small-read"}))
    said = Answer(tuple(Finding(name, 1, 1, ()) for name in ("small-read", "shared-file", "random-read")))
    found = score([(truth, said), (Truth({}), Answer(()))])
    assert (found.found, found.wrong, found.missed, found.first, found.judged) == (1, 1, 1, 2, 2)
    assert found.f1 == 0.5
    undecided = Truth({"no-mpi": 0.0}, absent=frozenset({"small-read"}))
    assert score([(undecided, said)]).wrong == 1


def test_flat_rules_take_consequences_for_causes():
    log = alone("one-stripe", 256)
    assert Rules().answer(Known(log)).labels[0] != "server-imbalance"
    assert IOAgent().answer(Known(log)).labels[0] == "server-imbalance"


def test_conditions_are_read_and_compared():
    made = fragments(alone("small-write", 16))
    assert condition("POSIX.sizes.writes > 10 and not (POSIX.sizes.writes < 5 or POSIX.sizes.none == 0)", "x").holds(made)
    assert not condition("MPI-IO.calls.writes > 0", "x").holds(made)
    for bad in ("POSIX.sizes.writes", "POSIX.sizes.writes > x", "writes > 1", "a.b.c > 1 )", "(" * 30 + "a.b.c > 1", "a.b.c > 1 §", "not " * 30 + "a.b.c > 1", "__import__('os')"):  # fmt: skip
        with pytest.raises(InputError, match=r"^x: "):
            condition(bad, "x")


def test_the_knowledge_is_whole():
    entries = built_in()
    assert len(entries) >= 60
    assert {tag for one in entries for tag in one.tags} == set(LABELS)
    known = {f"{key}.{name}" for fault in ("shared-file", "low-level-read", "no-chunking", "rank-imbalance", "slow-target", "one-stripe") for key, one in fragments(alone(fault, 64)).items() for name in one.fields}  # fmt: skip
    asked = {name for one in entries for name in one.when.names if not name.startswith(("H5", "PNETCDF"))}
    assert asked <= known, asked - known


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[entry]]\nid='a'\ntitle='t'\nwhen='A.b.c > 1'\ntext='x'\ncolour=1", 'found the field "colour"'),
        ("[[entry]]\nid='a'\ntitle='t'\nwhen='A.b.c >'\ntext='x'", "found the end of the condition"),
        ("[[entry]]\nid='a'\ntitle='t'\nwhen='A.b.c > 1'\ntext='x'\ntags=['slow']", 'tags: found "slow"'),
        ("[[entry]]\nid='a'", "title: expected some text"),
        ("x = 1", 'found "x"'),
        ("][", "cannot be read as TOML"),
    ],
)
def test_what_is_wrong_with_a_knowledge_file_is_said(tmp_path, text, message):
    path = tmp_path / "knowledge.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=message.replace("[", r"\[")) as raised:
        read_knowledge(path)
    assert "\n" not in str(raised.value)


def test_bm25_by_hand():
    """Two documents of two words; `fast` stands in one: ln(1 + 1.5/1.5)·2.2/(1 + 1.2)."""
    index = Index({"a": "fast disk", "b": "slow disk"})
    assert index.best("fast")[0] == ("a", pytest.approx(np.log(2.0)))
    assert [name for name, _ in index.best("disk")] == ["a", "b"]


def test_a_folder_of_logs(tmp_path):
    for name, seed in itertools.product(("small-write", "slow-target"), (1, 2)):
        write_text_log(alone(name, 32, seed), tmp_path / f"{name}-{seed}.txt")
    (tmp_path / "broken.txt").write_text("# darshan log version: 3.41\n")
    found = fleet(tmp_path)
    assert len(found.diagnoses) == 4
    assert list(found.unread) == ["broken.txt"]
    table = found.table()
    assert set(table["application"]) == {"small-write", "slow-target"}
    assert "4 logs were read." in found.summary()
    for names in found.slow_targets().values():
        assert len(names) > 1
