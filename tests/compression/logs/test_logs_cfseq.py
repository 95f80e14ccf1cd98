"""CFseq's entropies agree with sums by hand, its orders with brute force, and its plans survive a file and refuse a log of another kind."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import random
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.compression.logs import CFseq, Plan, cfseq, detect, drifted, gain_on, generate, replan
from armillary.compression.logs.planning.entropy import blocks, conditional_entropy, entropy, entropy_order, similarity, start_order
from armillary.compression.logs.planning.plan import unwritten, written
from armillary.compression.logs.planning.search import Scorer, search
from armillary.compression.logs.records.formats import PLAIN, Format
from armillary.compression.logs.records.sample import read_sample, take_sample
from armillary.compression.logs.streams.compressors import FAMILIES, compressor
from armillary.compression.logs.workload import KINDS
from armillary.errors import InputError
from armillary.streams import stream

QUICK = CFseq(sample_bytes=120_000, most_orders=400, budget_s=60.0)


def table(*columns: list[bytes]) -> tuple[bytes, Format]:
    data = b"".join(b"\t".join(row) + b"\n" for row in zip(*columns, strict=True))
    return data, Format("tsv", PLAIN, "\t", len(columns))


def noise(rows: int, length: int, seed: int) -> list[bytes]:
    letters = np.frombuffer(b"0123456789abcdefghijklmnopqrstuvwxyz", np.uint8)
    return [row.tobytes() for row in letters[stream(seed, "noise").integers(36, size=(rows, length))]]


def test_entropy_by_hand() -> None:
    assert entropy(np.array([0, 0, 1, 1])) == 1.0
    assert entropy(np.array([7, 7, 7])) == 0.0
    assert entropy(np.array([0, 1, 2, 3])) == 2.0
    j, i = np.array([0, 0, 1, 1, 0]), np.array([3, 5, 4, 4, 3])
    assert conditional_entropy(j, i) == pytest.approx(0.0, abs=1e-12)
    assert conditional_entropy(np.array([0, 1, 0, 1]), np.array([0, 0, 1, 1])) == 1.0


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=50))
def test_knowing_more_never_adds_bits(pairs: list[tuple[int, int]]) -> None:
    a, b = np.array(pairs).T
    assert -1e-9 <= conditional_entropy(a, b) <= entropy(a) + 1e-9
    assert entropy(a) + conditional_entropy(b, a) == pytest.approx(entropy(b) + conditional_entropy(a, b))


def test_groups_affinity_and_shared_beginnings() -> None:
    server = [b"web", b"dns", b"web", b"ssh"] * 50
    service = [{b"web": b"webx", b"dns": b"53", b"ssh": b"22"}[s] for s in server]
    data, form = table([b"tcp"] * 200, noise(200, 16, 1), server, service)
    found = similarity(take_sample(data, form))
    assert found.group == ("constant", "noise", "redundant", "redundant")
    assert found.affinity[2, 3] == pytest.approx(1.0)
    assert found.affinity[1, 3] == 0.0, "a field of distinct values says nothing about others"
    assert found.entropy[2] == pytest.approx(1.5)
    assert found.shared_prefix[2, 3] == pytest.approx(1.5)
    assert found.previous_prefix[0] == pytest.approx(3 * 199 / 200)
    assert found.mean_bytes.tolist() == [3.0, 16.0, 3.0, 3.0]
    assert start_order(found) == (0, 2, 3, 1) or start_order(found) == (0, 3, 2, 1)
    assert entropy_order(found)[0] == 0
    assert sorted(map(sorted, blocks(found, start_order(found)))) == [[0], [1], [2, 3]]


def test_constants_come_to_stand_together() -> None:
    rows = 1500
    data, form = table([b"proto=tcp"] * rows, noise(rows, 16, 1), [b"action=accept"] * rows)
    facts = similarity(take_sample(data, form))
    assert blocks(facts, start_order(facts)) == ((0, 2), (1,))
    assert start_order(facts) in ((0, 2, 1), (2, 0, 1))
    # With noise on both sides of each, it pays in bytes and the plan does it.
    data, form = table([b"proto=tcp"] * rows, noise(rows, 8, 2), [b"action=accept"] * rows, noise(rows, 8, 3))
    order = QUICK.plan_for(data, form).order
    assert abs(order.index(0) - order.index(2)) == 1


def test_independent_noise_stays_as_it_is() -> None:
    data, form = table(*(noise(1200, 12, seed) for seed in range(6)))
    plan = QUICK.plan_for(data, form)
    assert plan.order == tuple(range(6))
    assert plan.estimated_gain == 0.0


def eight_fields() -> tuple[bytes, Format]:
    rng = stream(3, "eight")
    rows = 300
    pick = rng.integers(0, 12, rows)
    return table(
        [b"%d" % (1_700_000_000 + i) for i in range(rows)], noise(rows, 6, 9), [b"host-%d" % h for h in pick], [b"up"] * rows,
        [b"%d" % p for p in rng.integers(1024, 65536, rows)], [b"rack-%d" % (h % 3) for h in pick],
        [b"%s" % s for s in rng.choice([b"GET", b"POST"], rows)], [b"v1.2"] * rows,
    )  # fmt: skip


@pytest.mark.slow
def test_local_search_is_near_the_best_of_all_orders() -> None:
    sample = take_sample(*eight_fields())
    scorer = Scorer(sample, compressor("zstd-1"))
    best = min(scorer._size(order, sample) for order in itertools.permutations(range(8)))
    single = tuple((i,) for i in range(8))
    found = search(scorer, start_order(similarity(sample)), single, budget_s=600)
    assert found.bytes <= 1.005 * best
    assert not found.ended_early


def seven_fields() -> tuple[bytes, Format]:
    data, form = generate("zeek-conn", 100_000, stream(2, "zeek-conn"))
    rows = [line.split(b"\t") for line in data.split(b"\n")[:-1] if not line.startswith(b"#")]
    columns = sorted(int(i) for i in stream(2, "pick").choice(form.fields, 7, replace=False))
    return table(*([row[i] for row in rows] for i in columns))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["zstd-3", "gzip-6"])
def test_a_plan_for_few_fields_is_the_best_of_all_orders(name: str) -> None:
    data, form = seven_fields()
    sizes = {order: len(compressor(name).compress(Plan(form, order).transform_bytes(data))) for order in itertools.permutations(range(7))}
    plan = CFseq(compressor=name).plan_for(data, form)
    assert plan.moves
    assert sizes[plan.order] <= 1.005 * min(sizes.values())


def test_few_blocks_are_searched_exhaustively() -> None:
    sample = take_sample(*eight_fields())
    scorer = Scorer(sample, compressor("zstd-1"))
    chosen = ((0,), (1, 4), (2, 5), (3, 7), (6,))
    every = [tuple(itertools.chain(*order)) for order in itertools.permutations(chosen)]
    found = search(scorer, every[0], chosen, budget_s=600)
    assert found.bytes == min(scorer._size(order, sample) for order in [*every, tuple(range(8))])
    assert found.tried >= 121


def test_the_sample_text_is_the_transformed_log() -> None:
    data, form = eight_fields()
    order = (3, 1, 0, 2, 7, 6, 5, 4)
    assert bytes(Scorer(take_sample(data, form), compressor("zstd-1")).text(order)) == Plan(form, order).transform_bytes(data)


def with_odd_lines(name: str, every: int) -> tuple[bytes, Format]:
    data, form = generate(name, 60_000, stream(3, name))
    lines = data.split(b"\n")[:-1]
    odd = [line + form.separator.encode() + b"x%d" % i if i % every == every - 1 else line for i, line in enumerate(lines)]
    return b"\n".join(odd) + b"\n", form


@pytest.mark.parametrize("name", ["netflow", "zeek-conn", "json-events"])
def test_the_sample_text_keeps_lines_that_do_not_fit(name: str) -> None:
    data, form = with_odd_lines(name, 7)
    data = data.replace(b"\n", b"\r\n", 40)
    order = tuple(int(i) for i in stream(1, "o").permutation(form.fields))
    sample = take_sample(data, form)
    assert 0 < len(sample.exceptions) < 0.2 * sample.lines
    assert bytes(Scorer(sample, compressor("zstd-1")).text(order)) == Plan(form, order).transform_bytes(data)


@pytest.mark.parametrize("name", ["firewall-kv", "access-log", "json-events"])
@pytest.mark.parametrize("packer", ["zstd-3", "gzip-6", "bzip2-9", "ppmd-6"])
def test_a_plan_delivers_what_it_promises_and_never_enlarges_a_log(name: str, packer: str) -> None:
    data, form = with_odd_lines(name, 6)
    plan = replace(QUICK, compressor=packer, most_orders=30).plan_for(data, form)
    own = compressor(packer)
    packed = own.compress(written(plan, data))
    assert len(own.compress(data)) / len(packed) - 1 == pytest.approx(plan.estimated_gain)
    assert len(packed) <= len(own.compress(data))
    assert unwritten(own.decompress(packed))[1] == data


def test_a_log_that_begins_like_a_plan_comes_back(tmp_path: Path) -> None:
    data, form = eight_fields()
    log = Plan(form, (1, 0, 2, 3, 4, 5, 6, 7)).transform_bytes(data, embed=True)
    assert unwritten(written(None, log)) == (None, log)
    assert written(Plan(form, tuple(range(8))), data) == data
    (tmp_path / "log").write_bytes(b"".join(b"%d\t%d\t%d\n" % (i, i * i, i + 3) for i in range(4)))
    assert cfseq.compress(tmp_path / "log", tmp_path / "packed").order == (0, 1, 2)
    assert cfseq.decompress(tmp_path / "packed", tmp_path / "again") is None
    assert (tmp_path / "again").read_bytes() == (tmp_path / "log").read_bytes()


def test_threads_and_repetition_do_not_change_the_plan() -> None:
    data, form = generate("netflow", 80_000, stream(0, "n"))
    plans = [replace(QUICK, threads=threads).plan_for(data, form) for threads in (1, 2, 2)]
    assert plans[0].order == plans[1].order == plans[2].order
    assert plans[0].tried == plans[1].tried


def test_budgets_end_the_search() -> None:
    data, form = generate("netflow", 60_000, stream(0, "n"))
    plan = replace(QUICK, most_orders=5).plan_for(data, form)
    assert plan.ended_early
    assert plan.estimated_gain >= 0
    assert replace(QUICK, budget_s=0.0).plan_for(data, form).ended_early


@pytest.mark.parametrize("name", ["zeek-conn", "json-events"])
def test_the_original_order_hardly_matters(name: str) -> None:
    ratios = []
    for order in (0, 1, 2):
        data, form = generate(name, 50_000, stream(5, name), order=order)
        plan = replace(QUICK, sample_bytes=50_000, most_orders=700).plan_for(data, form)
        ratios.append(len(data) / len(compressor("zstd-3").compress(plan.transform_bytes(data))))
    assert max(ratios) / min(ratios) < 1.02


@pytest.mark.parametrize("name", KINDS)
def test_the_whole_gains_what_the_sample_promised(name: str) -> None:
    data, form = generate(name, 600_000, stream(2, name))
    plan = replace(QUICK, sample_bytes=300_000, most_orders=150).plan_for(data, form)
    alone = len(compressor("zstd-3").compress(data))
    moved = plan.transform_bytes(data)
    assert abs(alone / len(compressor("zstd-3").compress(moved)) - 1 - plan.estimated_gain) < 0.03
    assert plan.inverse_bytes(moved) == data


def test_polars_reads_the_same_table_by_names() -> None:
    import polars as pl

    data, form = generate("zeek-conn", 40_000, stream(1, "z"))
    order = tuple(int(i) for i in stream(1, "o").permutation(form.fields))

    def read(text: bytes) -> pl.DataFrame:
        lines = text.decode().splitlines()
        names = next(line for line in lines if line.startswith("#fields")).split("\t")[1:]
        types = next(line for line in lines if line.startswith("#types")).split("\t")[1:]
        assert dict(zip(names, types, strict=True))["ts"] == "time"
        return pl.read_csv(text, separator="\t", comment_prefix="#", has_header=False, new_columns=names, infer_schema_length=0)

    moved = read(Plan(form, order).transform_bytes(data))
    assert moved.columns != read(data).columns
    assert moved.select(read(data).columns).equals(read(data))


def test_a_plan_survives_its_sidecar_and_its_comment(tmp_path: Path) -> None:
    data, _form = generate("proxy", 60_000, stream(1, "p"))
    (tmp_path / "log").write_bytes(data)
    plan = replace(QUICK, most_orders=50).fit(tmp_path / "log")
    plan.save(tmp_path / "plan.json")
    assert (tmp_path / "plan.json").read_text().count("\n") == 1
    assert Plan.load(tmp_path / "plan.json") == plan
    told = plan.transform(tmp_path / "log", tmp_path / "moved", embed=True)
    assert told.exceptions == 0
    assert told.lines == data.count(b"\n")
    plan.inverse(tmp_path / "moved", tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == data
    plan.transform(tmp_path / "log", tmp_path / "plain")
    assert (tmp_path / "plain").read_bytes() == plan.transform_bytes(data)
    out = io.BytesIO()
    plan.inverse(io.BytesIO(plan.transform_bytes(data)), out)
    assert out.getvalue() == data
    cfseq.compress(tmp_path / "log", tmp_path / "log.zst", plan=plan)
    assert cfseq.decompress(tmp_path / "log.zst", tmp_path / "once more").order == plan.order
    assert (tmp_path / "once more").read_bytes() == data


def test_drift_asks_for_a_new_plan() -> None:
    data, form = generate("firewall-kv", 120_000, stream(1, "f"))
    plan = QUICK.plan_for(data, form)
    assert plan.estimated_gain > 0.02
    assert gain_on(plan, data) == pytest.approx(plan.estimated_gain)
    assert replan(plan, data, QUICK) is plan
    other, _ = generate("firewall-kv", 120_000, stream(1, "f"), order=4)
    assert drifted(plan, other)
    assert replan(plan, other, QUICK).order != plan.order


def test_the_sample_is_eight_stretches_of_whole_lines(tmp_path: Path) -> None:
    data = b"".join(b"%06d\tx\n" % i for i in range(10_000))
    (tmp_path / "log").write_bytes(data)
    pieces = read_sample(tmp_path / "log", 9 * 800)
    assert len(pieces) == 8
    assert pieces == read_sample(data, 9 * 800)
    assert all(piece.endswith(b"\n") and len(piece) % 9 == 0 and piece in data for piece in pieces)
    assert pieces[0].startswith(b"000000")
    assert pieces[-1].endswith(b"009999\tx\n")
    assert b"".join(read_sample(data, 1 << 20)) == data


@pytest.mark.parametrize("family", [f for f in FAMILIES if f != "denum"])
def test_compressors_come_back_and_refuse_damage(family: str) -> None:
    data, _ = generate("dns", 30_000, stream(1, "d"))
    own = compressor(family)
    packed = own.compress(data)
    assert len(packed) < len(data) / 2
    assert own.decompress(packed) == data
    assert own.decompress(own.compress(b"")) == b""
    with pytest.raises(InputError):
        own.decompress(packed[: len(packed) // 2])
    assert own.decompress(packed, most_bytes=len(data)) == data
    with pytest.raises(InputError, match="set most_bytes"):
        own.decompress(packed, most_bytes=len(data) - 1)


def test_ppmd_does_not_go_on_behind_an_end_or_wait_for_more() -> None:
    """pyppmd crashes if it is asked for more after an error, and if it is dropped while its thread waits for input."""
    made = compressor("ppmd-6")
    packed = made.compress(bytes(range(256)) * 40)
    rng = random.Random(1)
    for _ in range(60):
        at = rng.randrange(13, len(packed))
        for damaged in (packed[:at], packed[:at] + rng.randbytes(1) + packed[at + 1 :]):
            with contextlib.suppress(InputError):
                made.decompress(damaged, most_bytes=1 << 20)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_few_bytes_do_not_fill_the_memory(family: str) -> None:
    packed = compressor(f"{family}-{FAMILIES[family][1]}").compress((b"x" * 99 + b"\n") * 120_000)
    assert len(packed) < 1 << 18
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match="set most_bytes"):
            compressor(family).decompress(packed, most_bytes=1 << 20)
        assert tracemalloc.get_traced_memory()[1] < 11 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", ["lzw", "zstd-99", "gzip-0", "zstd--1", ""])
def test_a_compressor_that_there_is_not(name: str) -> None:
    with pytest.raises(InputError):
        compressor(name)


GOOD = json.loads(Plan(Format("tsv", PLAIN, "\t", 3), (2, 0, 1)).to_json())


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"permutation": [0, 0, 1]}, "each of 0 to 2 once"),
        ({"permutation": [0, 1]}, "each of 0 to 2 once"),
        ({"permutation": "abc"}, "whole numbers"),
        ({"format": {**GOOD["format"], "separator": ""}}, "its separator"),
        ({"format": {**GOOD["format"], "separator": "\t,"}}, "its separator"),
        ({"version": 9}, "version 9"),
        ({"armillary": "x"}, "expected a plan"),
        ({"format": None}, "format"),
        ({"format": {**GOOD["format"], "fields": 10**9}}, "1 to 1000 fields"),
        ({"format": {**GOOD["format"], "grammar": 7}}, "known grammar"),
        ({"format": {**GOOD["format"], "separator": "ab"}}, "separator"),
        ({"estimated_gain": "much"}, "number"),
    ],
)
def test_a_sidecar_that_is_no_plan(change: dict[str, object], says: str, tmp_path: Path) -> None:
    (tmp_path / "plan").write_text(json.dumps({**GOOD, **change}))
    with pytest.raises(InputError, match=says) as error:
        Plan.load(tmp_path / "plan")
    assert "\n" not in str(error.value)


MIXED = b"a\tb\tc\n" * 70 + b"odd line\n" * 30


@pytest.mark.parametrize(
    ("maker", "log", "says"),
    [
        (CFseq(format="tsv"), MIXED, r"30 of 100 lines.*odd line"),
        (CFseq(), b"just some words\nand others here\n", "free text"),
        (CFseq(sample_bytes=0), b"a\tb\tc\n" * 9, "found 0 bytes"),
        (CFseq(compressor="lzw"), b"a\tb\tc\n" * 9, "unknown compressor"),
    ],
)
def test_a_log_that_cannot_be_planned_for(maker: CFseq, log: bytes, says: str) -> None:
    with pytest.raises(InputError, match=says):
        maker.fit(log)
    assert CFseq(format="tsv", lenient=True, most_orders=10).fit(MIXED).order == (0, 1, 2)


def test_files_without_a_plan(tmp_path: Path) -> None:
    (tmp_path / "junk").write_bytes(b"\x00\xff{")
    with pytest.raises(InputError, match="one line of JSON"):
        Plan.load(tmp_path / "junk")
    with pytest.raises(InputError, match="no such file"):
        Plan.load(tmp_path / "none")
    (tmp_path / "z").write_bytes(compressor("zstd-3").compress(b"a\n"))
    with pytest.raises(InputError, match="no plan in front"):
        cfseq.decompress(tmp_path / "z", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_plan_for_other_names_is_refused() -> None:
    data = b"name,size,kind\n" + b"a,1,x\n" * 20
    form = detect(data)
    assert form is not None
    plan = replace(QUICK, most_orders=5).plan_for(data, form)
    assert plan.header
    turned = Plan(form, (2, 0, 1), header=plan.header)
    assert turned.inverse_bytes(turned.transform_bytes(data)) == data
    with pytest.raises(InputError, match="header: found name other kind"):
        plan.transform_bytes(data.replace(b"size", b"other"))
    with pytest.raises(InputError, match="header"):
        turned.inverse_bytes(data)
