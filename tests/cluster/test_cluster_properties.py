"""Random valid clusters survive the round trip; mutated files give a cluster or an `InputError`, nothing else."""

from __future__ import annotations

import random
import time
import tomllib
import tracemalloc

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from armillary import cluster
from armillary.cluster.toml import write_toml
from armillary.errors import InputError

words = st.text(st.characters(codec="utf-8", exclude_categories=("Cs",), exclude_characters="\x00"), min_size=1, max_size=12)
names = st.text("abcdefghijklmnopqrstuvwxyz0123456789-_ é\"\\'#.", min_size=1, max_size=8)


def numbers(low, high):
    return st.floats(low, high, allow_nan=False, allow_infinity=False)


def sourced(values):
    full = st.fixed_dictionaries({"value": values, "source": words}, optional={"measured": values})
    return st.one_of(values, full)


def quantity(low, high, *units):
    """Bare, with a unit, or with a source; `low` and `high` in the base unit."""
    texts = st.builds(lambda x, u: f"{x / u[1]!r} {u[0]}", numbers(low, high), st.sampled_from(units)) if units else st.nothing()
    return sourced(st.one_of(numbers(low * 1.01, high), texts))


RATE = quantity(1e9, 1e13, ("GB/s", 1e9), ("Gb/s", 1.25e8), ("GiB/s", 2**30))
SIZE = quantity(1e3, 1e15, ("GB", 1e9), ("MiB", 2**20))
TIME = quantity(1e-9, 1e9, ("us", 1e-6), ("h", 3600))
WATT = quantity(1, 1e6, ("W", 1), ("kW", 1e3))


def tables(required, optional):
    return st.fixed_dictionaries(required, optional=optional)


sockets = tables(
    {"count": st.integers(1, 4)},
    {
        "cores": st.sampled_from([8, 64, {"value": 16, "source": "x"}]),
        "threads_per_core": st.integers(1, 4),
        "clock": tables({}, {"base": quantity(1e9, 3e9, ("GHz", 1e9))}),
        "tdp": WATT,
        "name": names,
        "price": st.sampled_from(["100 EUR", {"value": "3.5 USD", "source": "list"}]),
        "caches": st.lists(tables({"level": st.integers(1, 3), "size": SIZE}, {"shared_by": st.sampled_from([1, 2, 4])}), max_size=3),
    },
)
memories = tables(
    {"kind": st.sampled_from(["hbm", "dram", "nvme", "pfs"])},
    {"size": SIZE, "bandwidth": RATE, "latency": TIME, "attached": st.sampled_from(["socket", "network"]),
     "endurance": numbers(0, 1e6), "unusual": st.booleans()},
)  # fmt: skip
devices = tables(
    {"kind": st.sampled_from(["gpu", "npu", "simt", "qpu"]), "count": st.integers(1, 8)},
    {
        "peak": tables({}, {"fp64": quantity(1e9, 1e15, ("TFLOP/s", 1e12)), "int8": quantity(1e9, 1e15, ("TOPS", 1e12))}),
        "memory": memories,
        "model": st.sampled_from(["a100-40", "H100 SXM5", "nobody's"]),
        "power": tables({}, {"peak": WATT}),
    },
)
duplex = st.one_of(RATE, st.fixed_dictionaries({"up": RATE, "down": RATE}))
nics = tables({"count": st.integers(1, 4)}, {"rate": duplex, "network": st.just("net"), "latency": TIME, "message_gap": TIME})
networks = st.one_of(
    tables({"topology": st.just("star")}, {"rate": RATE, "latency": tables({}, {"nic": TIME, "switch": TIME})}),
    tables({"topology": st.just("rail"),
            "rails": st.integers(1, 8), "leaf_ports": st.integers(2, 64), "spines": st.integers(1, 4)}, {"rate": RATE}),
    tables({"topology": st.just("full")}, {"rate": RATE, "latency": TIME, "fidelity": numbers(0, 1)}),
    tables({"topology": st.just("nvl"),
            "domain": st.integers(1, 99), "switches": st.integers(1, 9), "links_per_device": st.integers(1, 18)}, {}),
    tables({"topology": st.just("dragonfly"),
            "groups": st.just(1000), "switches_per_group": st.just(8), "endpoints_per_switch": st.just(4)},
           {"global": st.sampled_from(["relative", "absolute"]), "length": tables({}, {"global": quantity(0.1, 100, ("m", 1))})}),
)  # fmt: skip


@st.composite
def clusters(draw):
    labels = draw(st.lists(names, min_size=1, max_size=3, unique=True))
    groups = [
        {
            "name": label,
            "count": draw(st.integers(1, 500)),
            "node": {
                "socket": draw(st.lists(sockets, max_size=2)),
                "memory": draw(st.lists(memories, max_size=2)),
                "device": draw(st.lists(devices, max_size=2)),
                "nic": draw(st.lists(nics, max_size=2)),
            },
        }
        for label in labels
    ]
    data = {"armillary": 1, "name": draw(names), "group": groups, "network": {"net": draw(networks)}}
    if draw(st.booleans()):
        data["description"] = draw(words)
    if draw(st.booleans()):
        data["site"] = draw(tables({}, {"pue": numbers(1, 3), "carbon_intensity": quantity(1, 900, ("g/kWh", 1)), "lifetime": TIME}))
    if draw(st.booleans()):
        data["facts"] = draw(
            st.lists(st.fixed_dictionaries({"key": words, "value": st.one_of(words, st.integers(-9, 9)), "source": words}), max_size=3)
        )
    return data


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(clusters())
def test_any_cluster_round_trips(data):
    c = cluster.from_dict(data)
    assert cluster.from_dict(tomllib.loads(c.to_toml())) == c
    assert cluster.from_dict(tomllib.loads(write_toml(data))) == c
    assert cluster.from_dict(c.to_dict()).digest == c.digest
    c.summary()
    assert cluster.diff(c, c) == ""


plain = st.recursive(
    st.one_of(st.text(max_size=20), st.integers(-(2**60), 2**60), numbers(-1e300, 1e300), st.booleans()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=8), inner, max_size=3)),
    max_leaves=12,
)


@settings(max_examples=120, deadline=None)
@given(st.dictionaries(st.text(min_size=0, max_size=8), plain, max_size=6))
def test_whatever_is_written_is_read_back_the_same(data):
    assert tomllib.loads(write_toml(data)) == data


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.sampled_from(["armillary", "name", "group", "network", "site", "extends", "facts", "x"]), plain, max_size=7))
def test_any_tables_give_a_cluster_or_an_input_error(data):
    faults = ("",)
    try:
        cluster.from_dict(data)
    except InputError as error:
        faults = error.faults
    assert 1 <= len(faults) <= 21
    assert all(len(line) <= 400 and "\n" not in line for line in faults)


# mutated files

SNIPPETS = [
    "1000000000", "-1", "0", "nan", "inf", "1e999", '"400 gb/s"', '"1e300 GB"', "true", "[]", "{}", '""', '"socket:999999999"',
    "9" * 400, '"\\u0000"', "2024-01-01T00:00:00Z", "[[0, 1]]", '{value = 1, source = 2}', '{trace = "/dev/zero"}',
    '{trace = "."}', '"torus"', '"dragonfly"', "[10000000, 10000000, 10000000]", "0x7fffffffffffffff", "'''",
    '"n[1-999999999]"', "\x7f", "\ud7ff", "[[[[[[[[", "a.b.c = 1\n", "[group.node]\n",
]  # fmt: skip


def mutated(text, rng):
    """`text` with one to four random edits: a byte, a line, a value, a cut, a copy."""
    for _ in range(rng.randint(1, 4)):
        lines = text.split("\n")
        at = rng.randrange(len(lines))
        kind = rng.randrange(7)
        if kind == 0 and text:
            i = rng.randrange(len(text))
            text = text[:i] + chr(rng.choice([0, 9, 34, 44, 61, 91, 93, 123, 125, rng.randrange(32, 127), 0x20AC])) + text[i + 1 :]
            continue
        if kind == 1:
            del lines[at]
        elif kind == 2:
            lines.insert(at, lines[rng.randrange(len(lines))])
        elif kind == 3 and "=" in lines[at]:
            lines[at] = lines[at].split("=")[0] + "= " + rng.choice(SNIPPETS)
        elif kind == 4:
            lines = lines[:at]
        elif kind == 5:
            lines[at], lines[rng.randrange(len(lines))] = lines[rng.randrange(len(lines))], lines[at]
        else:
            words = lines[at].split(" ")
            words[rng.randrange(len(words))] = rng.choice(SNIPPETS)
            lines[at] = " ".join(words)
        text = "\n".join(lines) or " "
    return text


def fuzz(file_text, tmp_path, seeds, most_seconds=float("inf")):
    texts = [
        file_text,
        *((cluster.reader.PRESETS / f"{n}.toml").read_text() for n in ("frontier", "tiers-3", "perlmutter", "dgx-h200", "qpu-6")),
    ]
    path = tmp_path / "fuzz.toml"
    good = 0
    for seed in seeds:
        rng = random.Random(seed)
        path.write_text(mutated(rng.choice(texts), rng), errors="surrogatepass")
        start = time.process_time()
        try:
            c = cluster.load(path)
        except InputError:
            continue
        c.summary()
        assert cluster.from_dict(tomllib.loads(c.to_toml()), base=tmp_path) == c, seed
        good += 1
        assert time.process_time() - start < most_seconds, seed
    return good


def test_mutated_files_are_read_or_refused(file_text, tmp_path):
    assert fuzz(file_text, tmp_path, range(500)) > 25


@pytest.mark.slow
def test_many_mutated_files_are_read_or_refused(file_text, tmp_path):
    tracemalloc.start()
    try:
        assert fuzz(file_text, tmp_path, range(500, 10_000), most_seconds=1.0) > 475
        assert tracemalloc.get_traced_memory()[1] < 200e6
    finally:
        tracemalloc.stop()
