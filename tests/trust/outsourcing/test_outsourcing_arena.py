"""The arena: cases, claims, answers, files of the user's kind and wrong ones, commands, and whether to outsource."""

from __future__ import annotations

import json
import math
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from armillary.arena import NotForThisCase, Outcome
from armillary.errors import InputError
from armillary.trust.outsourcing import (  # fmt: skip
    Bases,
    Client,
    Costs,
    LocalNaive,
    Network,
    Server,
    Service,
    choose,
    measured_costs,
    msm,
    read_bases,
    read_scalars,
)
from armillary.trust.outsourcing.arena import outsourcing
from armillary.trust.outsourcing.group.bases import integers
from armillary.trust.outsourcing.group.scalars import ORDER
from armillary.trust.outsourcing.planning.calculator import queries
from armillary.trust.outsourcing.workload import scalars_of

Command = Callable[..., subprocess.CompletedProcess[str]]
GOOD = bytes(Bases.from_label("example", 3))
HEX = [GOOD[i : i + 32].hex() for i in range(0, 96, 32)]


def outcome(technique: str, case: str) -> Outcome:
    found = outsourcing.execute(outsourcing.make(technique), next(one for one in outsourcing.built_in("tiny") if one.name == case))
    assert isinstance(found, Outcome), found
    return found


def test_every_claim_has_four_cases_at_least() -> None:
    cases = outsourcing.built_in("small")
    for number, _, claim in outsourcing.claims():
        for kind in claim.kinds:
            assert sum(kind.takes(case.kinds) for case in cases) >= 4, number


def test_the_claim_of_speed_leaves_out_no_technique_that_does_the_job() -> None:
    others = set(outsourcing.techniques) - {"2g2t", "2g2t-prf", "none"}  # `none` has no way to know whether the sum is right.
    for name in ("2g2t", "2g2t-prf"):
        assert any(set(claim.baselines) == others for _, _, claim in outsourcing.claims([name]))


def test_the_attacks_of_a_whole_judgement_are_a_hundred_thousand() -> None:
    cases = outsourcing.built_in("small")
    attacks = sum(case.parameters["attacks"] for case in cases if case.name.startswith("attacks/draw"))
    assert attacks * (outsourcing.repeats or 1) >= 100_000
    assert sum(case.parameters["keys"] for case in cases if "toy" in case.kinds) == 200_000


@pytest.mark.parametrize("technique", [name for name in outsourcing.techniques if name != "none"])
def test_a_query_is_answered_and_measured(technique: str) -> None:
    values = outcome(technique, "uniform/256").values
    asks = technique not in ("local", "local-fixed", "local-naive")
    assert (values["server_s"] > 0) == (values["response_bytes"] > 0) == asks
    assert values["speedup"] * values["verify_s"] <= min(values["local_s"], 256 * 6e-6) * (1 + 1e-9)
    assert values["local_us_a_term"] == pytest.approx(1e6 * values["local_s"] / 256)
    wanted = {"2g2t": (64, 32 * 257), "2g2t-prf": (64, 64), "recheck": (64, 32 * 256), "local": (0, 32 * 256)}
    if technique in wanted:
        assert (values["response_bytes"], values["state_bytes"]) == wanted[technique]


def test_forged_answers_are_counted_by_name() -> None:
    for technique, believed in (("2g2t", False), ("2g2t-prf", False), ("none", True)):
        found = outcome(technique, "attacks/1000")
        assert (found.values["false_accepts"] > 0) == believed
        table = next(one for one in found.artifacts if one.name == "forgeries.csv").data.decode()
        assert "guessed-multiplier,3," in table


def test_techniques_decline_what_is_not_their_kind() -> None:
    cases = {case.name: case for case in outsourcing.built_in("small")}
    for technique, case in (("none", "uniform/256"), ("local", "attacks/1000"), ("local-naive", "toy/1"), ("local-fixed", "toy/1")):
        assert isinstance(outsourcing.execute(outsourcing.make(technique), cases[case]), NotForThisCase)
    with pytest.raises(NotForThisCase, match="16,384"):
        LocalNaive().begin(Bases.from_label("example", 20_000))


def test_a_wrong_sum_is_a_failure_and_no_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    from armillary.trust.outsourcing import local

    monkeypatch.setattr(local, "msm", lambda bases, x: msm(bases, np.zeros_like(x)))
    with pytest.raises(RuntimeError, match="do not agree"):
        outcome("local", "uniform/256")


def test_files_of_ones_own_are_answered_in_words(armillary_here: Command, tmp_path: Path) -> None:
    path, options = outsourcing.write_example(tmp_path)
    given = [part for name, value in options.items() for part in (f"--{name}", value)]
    found = armillary_here("compare", "trust/outsourcing", "--work", str(path), *given, "--repeats", "1", "--techniques", "2g2t,local")
    assert found.returncode == 0, found.stderr
    said = " ".join(found.stdout.split())
    assert "For bases.r255, checking an answer with 2g2t takes" in said
    assert "times less than the fastest sum here; its setup is earned back" in said


def test_rows_come_in_every_container(tmp_path: Path) -> None:
    (tmp_path / "a.r255").write_bytes(GOOD)
    (tmp_path / "a.json").write_text(json.dumps(HEX))
    (tmp_path / "b.json").write_text(json.dumps({"bases": HEX, "scalars": ["00" * 32]}))
    (tmp_path / "a.csv").write_text("hex\n" + "\n".join(HEX) + "\n")
    (tmp_path / "b.csv").write_text("name,encoding\n" + "\n".join(f"x,{one.upper()}" for one in HEX) + "\n")
    for name in ("a.r255", "a.json", "b.json", "a.csv", "b.csv"):
        assert bytes(read_bases(tmp_path / name)) == GOOD
    assert integers(read_scalars(tmp_path / "b.json")) == [0]
    (tmp_path / "x.bin").write_bytes((ORDER - 1).to_bytes(32, "little"))
    assert integers(read_scalars(tmp_path / "x.bin")) == [ORDER - 1]
    read_bases(tmp_path / "a.r255").save(tmp_path / "c.r255")
    assert (tmp_path / "c.r255").read_bytes() == GOOD
    with pytest.raises(InputError, match="cannot be written"):
        read_bases(tmp_path / "a.r255").save(tmp_path / "no" / "c.r255")


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("x.r255", b"", "found no base"),
        ("x.r255", GOOD[:-1], "found 95 bytes; expected a multiple of 32"),
        ("x.r255", GOOD[:32] + b"\xff" * 32, "base 1: found ffffff"),
        ("x.r255", b"\x01" + bytes(31), "base 0: found 01000000"),
        ("x.json", b"{}", 'expected a list of hexadecimal strings, or an object with "bases"'),
        ("x.json", b"[1]", 'row 0: found "1"; expected 64 hexadecimal digits'),
        ("x.json", json.dumps([HEX[0], HEX[1][:-1]]).encode(), "row 1: found"),
        ("x.json", b"[", "x.json"),
        ("x.csv", b"hex\nzz\n", 'x.csv:2: column "hex"'),
        ("x.csv", b"name\nzz\n", "hex"),
        ("x.csv", b"hex\n", "found no"),
    ],
)
def test_wrong_bases_are_one_line(armillary_here: Command, tmp_path: Path, name: str, content: bytes, said: str) -> None:
    (tmp_path / name).write_bytes(content)
    found = armillary_here("compare", "trust/outsourcing", "--work", str(tmp_path / name))
    assert found.returncode == 2
    assert said in found.stderr
    assert found.stderr.count("\n") == 1
    assert not (tmp_path / "own.db").exists()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (bytes(32), "found 1 scalars for 3 bases"),
        (bytes(64) + ORDER.to_bytes(32, "little"), "scalar 2: found edd3f55c"),
        (bytes(33), "multiple of 32"),
    ],
)
def test_wrong_scalars_are_one_line(armillary_here: Command, tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "b.r255").write_bytes(GOOD)
    (tmp_path / "x.bin").write_bytes(content)
    found = armillary_here("compare", "trust/outsourcing", "--work", str(tmp_path / "b.r255"), "--scalars", str(tmp_path / "x.bin"))
    assert found.returncode == 2
    assert said in found.stderr
    assert found.stderr.count("\n") == 1


def test_a_file_of_more_than_the_most_terms_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "huge.r255"
    with path.open("wb") as file:
        file.truncate(32 * ((1 << 24) + 1))
    with pytest.raises(InputError, match="expected at most"):
        read_bases(path)


def test_the_commands_set_up_ask_and_see_a_cheat(armillary_here: Command, tmp_path: Path) -> None:
    bases = Bases.from_label("example", 40)
    x = scalars_of("uniform", 40, np.random.Generator(np.random.PCG64DXSM(1)))
    bases.save(tmp_path / "b.r255")
    (tmp_path / "x.bin").write_bytes(x.astype("<u8").tobytes())
    files = ("--bases", "b.r255", "--public", "t.r255")
    found = armillary_here("2g2t", "setup", *files, "--secret", "s.bin")
    assert (found.returncode, found.stdout) == (0, "40 bases; the client keeps 1,312 secret bytes\n")
    public = Bases.load(tmp_path / "t.r255")
    with Service(Server(bases, public)) as service:
        ask = ("2g2t", "ask", "--secret", "s.bin", "--scalars", "x.bin", "--port", str(service.address[1]))
        found = armillary_here(*ask)
        assert (found.returncode, found.stdout) == (0, f"{bytes(msm(bases, x)).hex()}\n")
    with Service(Server(bases, bases)) as service:
        found = armillary_here(*ask[:-1], str(service.address[1]))
        assert (found.returncode, found.stdout, found.stderr) == (1, "", "the server cheats: the answer is not the sum\n")
    assert Client.load(tmp_path / "s.bin").rejections == 1
    found = armillary_here(*ask)
    assert found.returncode == 2
    assert "cannot connect to 127.0.0.1" in found.stderr
    few = Bases.from_label("example", 39)
    with Service(Server(few, few)) as service:
        found = armillary_here(*ask[:-1], str(service.address[1]))
        assert (found.returncode, found.stderr) == (1, "no answer: found 40 scalars; expected 39\n")


def test_a_wrong_file_of_the_commands_is_one_line(armillary_here: Command, tmp_path: Path) -> None:
    (tmp_path / "b.r255").write_bytes(GOOD)
    (tmp_path / "s.bin").write_bytes(b"nothing")
    for arguments, said in (
        (("setup", "--bases", "no.r255", "--public", "t", "--secret", "s"), "no.r255"),
        (("setup", "--bases", "b.r255", "--public", "t", "--secret", "no/s"), "cannot be written"),
        (("ask", "--secret", "s.bin", "--scalars", "b.r255"), "found no secrets of a 2G2T client"),
        (("serve", "--bases", "b.r255", "--public", "s.bin"), "found 7 bytes"),
        (("plan", "0"), "found 0 terms"),
        (("plan", "64", "--bandwidth", "0"), "more than 0"),
    ):
        found = armillary_here("2g2t", *arguments)
        assert found.returncode == 2, arguments
        assert said in found.stderr
        assert found.stderr.count("\n") == 1
    assert sorted(one.name for one in tmp_path.iterdir() if one.is_file()) == ["b.r255", "s.bin"]


def test_a_plan_says_when_it_pays(armillary_here: Command) -> None:
    found = armillary_here("2g2t", "plan", "256", "--cores", "64")
    assert found.returncode == 0
    assert "it saves the client's work from query" in found.stdout
    assert "it never saves waiting" in armillary_here("2g2t", "plan", "64", "--round-trip", "1").stdout


COSTS = Costs(local_s=10.0, fixed_s=8.0, fixed_setup_s=30.0, server_s=20.0, setup_s=50.0, check_s=1.0)


def test_the_calculator_by_hand() -> None:
    found = choose(1000, COSTS, Network(0.5, 32_064.0), server_cores=4)
    assert (found.local_s, found.check_s, found.setup_s) == (8.0, 1.0, 50.0)
    assert found.outsourced_s == 0.5 + 1.0 + 5.0 + 1.0
    assert found.queries_of_work == 6  # 50 < 9 · 6, and 20 < 7 · 3 after the copies' own setup.
    assert found.queries_of_time == 41  # 20 < 0.5 · 41, and 50 < 2.5 · 21.
    assert found.saves_work
    assert found.saves_time
    alone = choose(1000, COSTS)
    assert alone.queries_of_time == math.inf
    assert not alone.saves_time
    assert Network(0.5, 1e6, scalars=False).seconds(10**6) == pytest.approx(0.5 + 64e-6)


costs = st.builds(Costs, *[st.floats(1e-6, 1e3) for _ in range(6)])


@given(found=costs, cores=st.floats(0.1, 100))
def test_from_the_query_it_names_on_it_pays_and_not_before(found: Costs, cores: float) -> None:
    choice = choose(100, found, server_cores=cores)
    for count, spent in ((choice.queries_of_work, choice.check_s), (choice.queries_of_time, choice.outsourced_s)):
        if math.isinf(count) or count > 1e9:
            continue
        for number, pays in ((count, True), (count + 7, True), (count - 1, False)):
            here = min(number * found.local_s, found.fixed_setup_s + number * found.fixed_s)
            margin = 1e-9 * (here + found.setup_s + number * spent)
            there = found.setup_s + number * spent
            if number >= 1:
                assert there < here + margin if pays else there > here - margin


def test_savings_that_never_come() -> None:
    assert queries(1.0, 0.0) == queries(1.0, -1.0) == math.inf
    assert queries(-5.0, 1.0) == 1
    for wrong in (lambda: Network(-1.0), lambda: Network(1.0, 0.0), lambda: Network(math.nan), lambda: choose(0, COSTS)):
        with pytest.raises(InputError):
            wrong()
    with pytest.raises(InputError):
        choose(5, COSTS, server_cores=0)
    for terms in (0, (1 << 24) + 1):
        with pytest.raises(InputError, match="terms; expected 1 to"):
            measured_costs(terms)


def test_costs_are_measured_at_the_number_of_terms_that_is_asked_for() -> None:
    found = measured_costs(300)
    assert not found.scaled
    assert 0 < found.check_s < found.local_s < found.server_s * 2
