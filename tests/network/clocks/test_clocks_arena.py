"""The arena: cases, answer, files of the user's kind and wrong ones."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from armillary.claim import Kind
from armillary.network.clocks.arena import clocks
from armillary.network.clocks.readers.exchanges import read_exchanges

Command = Callable[..., subprocess.CompletedProcess[str]]


def test_every_claim_has_four_cases_at_least() -> None:
    cases = clocks.built_in("small")
    for number, _, claim in clocks.claims():
        for kind in claim.kinds:
            assert sum(kind.takes(case.kinds) for case in cases) >= 4, number
    assert sum(Kind("rings").takes(case.kinds) for case in cases) == 5


def test_claims_over_rivals_name_every_technique_that_may_win() -> None:
    found = [claim.baselines for _, _, claim in clocks.claims() if len(claim.baselines) > 1]
    assert [set(one) for one in found] == [set(clocks.techniques) - {"gcs-two-way", "gcs-one-way", "free"}]


def test_recorded_exchanges_give_offset_delay_and_drift(tmp_path: Path) -> None:
    rows = ["local,remote,t1,t2,t3,t4"]
    for i in range(40):
        t, late = 1_000_000_000 * i, (400 if i % 4 else 0)
        ahead = 2500 + 100 * i  # ns: 0.1 ppm
        rows.append(f"a,b,{t},{t + 1000 + late + ahead},{t + 1500 + late + ahead},{t + 2500 + late}")
    rows.append("c,a,0,900,1000,2000")
    (tmp_path / "x.csv").write_text("\n".join(rows) + "\n")
    found = read_exchanges(tmp_path / "x.csv", unit_s=1e-9, asymmetry=0.1)
    one = next(row for row in found.rows if {row["local"], row["remote"]} == {"a", "b"})
    assert one["exchanges"] == 40
    assert one["delay_s"] == pytest.approx(1e-6)
    assert one["jitter_s"] == pytest.approx(2e-7)
    assert one["drift_ppm"] == pytest.approx(0.1, rel=1e-6)
    other = next(row for row in found.rows if {row["local"], row["remote"]} == {"a", "c"})
    assert other["local"] == "a"
    assert other["offset_s"] == pytest.approx(50e-9), "c is 50 ns ahead of a, measured from c"
    assert found.network.asymmetry.tolist() == pytest.approx([0.1e-6, 0.095e-6])


def test_a_graph_of_ones_own_is_answered_in_words(armillary_here: Command, tmp_path: Path) -> None:
    path, options = clocks.write_example(tmp_path)
    found = armillary_here("compare", "network/clocks", "--work", str(path), *(f"--{k}={v}" for k, v in options.items()), "--repeats", "1")
    assert found.returncode == 0
    assert "keeps neighbours closest on links" in found.stdout
    assert "never beyond its bound" in found.stdout.replace("\n", " ")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("node_a,node_b,delay_s\na,b,1e-6\nc,d,1e-6\n", "found no way from a to c"),
        ("node_a,node_b,delay_s\na,b,-1e-6\n", "delay_s"),
        ("node_a,node_b,delay_s,asymmetry_s\na,b,1e-6,2e-6\n", "x.csv:2: found an asymmetry of 2e-06 s between a and b"),
        ("node_a,node_b,delay_s\na,b,1e-6\nb,a,1e-6\n", "two links between"),
        ("node_a,node_b,delay_s\na,a,1e-6\n", "expected"),
        ("node_a,node_b\na,b\n", "delay_s"),
        ("local,remote,t1,t2,t3,t4\na,b,0,1,2,3\na,b,5,1,2,3\n", 'x.csv:3: column "t4": found t4 before t1'),
        ("local,remote,t1,t2,t3,t4\na,b,0,9,2,13\n", 'column "t3": found t3 before t2'),
        ("local,remote,t1,t2,t3,t4\na,b,0,1,9,3\n", "between t2 and t3"),
        ("local,remote,t1,t2,t3,t4\na,a,0,1,2,3\n", "a clock that measures itself"),
    ],
)
def test_a_wrong_file_is_one_line(armillary_here: Command, tmp_path: Path, content: str, said: str) -> None:
    (tmp_path / "x.csv").write_text(content)
    found = armillary_here("compare", "network/clocks", "--work", str(tmp_path / "x.csv"))
    assert found.returncode == 2
    assert said in found.stderr
    assert found.stderr.count("\n") == 1


def test_wrong_oscillators_are_named(armillary_here: Command, tmp_path: Path) -> None:
    (tmp_path / "g.csv").write_text("node_a,node_b,delay_s\na,b,1e-6\n")
    for content, said in (("node,offset_ppm\na,1\n", "found no frequency of b"), ("node,offset_ppm\na,1\nz,1\n", 'found "z"'),
                          ("node,offset_ppm,stability\na,1,xo\nb,2,quartz\n", "quartz")):  # fmt: skip
        (tmp_path / "o.csv").write_text(content)
        found = armillary_here("compare", "network/clocks", "--work", str(tmp_path / "g.csv"), "--oscillators", str(tmp_path / "o.csv"))
        assert found.returncode == 2
        assert said in found.stderr
