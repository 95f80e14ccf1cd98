"""Power, energy, carbon and cost: exact over traces, and never invented."""

from __future__ import annotations

import datetime
import tomllib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from armillary import cluster
from armillary.errors import InputError


@pytest.fixture
def data(file_text):
    return tomllib.loads(file_text)


@pytest.fixture
def with_trace(data, tmp_path):
    def make(text, key="carbon_intensity", name="c.csv", **table):
        (tmp_path / name).write_text(text)
        data["site"][key] = {"trace": name, **table}
        return cluster.from_dict(data, where="my.toml", base=tmp_path)

    return make


HOURS = "time,g_per_kwh\n2024-01-01T00:00Z,100\n2024-01-01T01:00Z,300\n2024-01-01T02:00:00+00:00,200\n"


def test_power_goes_from_idle_to_peak_times_pue(data):
    c = cluster.from_dict(data)
    assert c.power(0.0) == pytest.approx(32 * 2400 * 1.2)
    assert c.power(1.0, pue=False) == pytest.approx(32 * 10200)
    assert c.power(0.5, pue=False) == pytest.approx(32 * 6300)
    assert c.power({"gpu": 0.5}, pue=False) == pytest.approx(32 * 6300)
    assert c.energy(3600, 0.5) == pytest.approx(32 * 6300 * 1.2 * 3600)


def test_an_exponent_bends_the_curve(data):
    data["group"][0]["node"]["power"]["exponent"] = 2
    assert cluster.from_dict(data).power(0.5, pue=False) == pytest.approx(32 * (2400 + 0.25 * 7800))


@pytest.mark.parametrize("utilisation", [-0.1, 1.1, float("nan"), {"cpu": 1.0}])
def test_impossible_utilisations_are_refused(data, utilisation):
    with pytest.raises(InputError):
        cluster.from_dict(data).power(utilisation)


def test_a_node_without_figures_has_no_power(data):
    del data["group"][0]["node"]["power"]
    c = cluster.from_dict(data)
    for u in (0.0, 0.5, 1.0):
        with pytest.raises(InputError, match=r"group\.gpu\.node\.power"):
            c.power(u)
    assert c.missing("power") == ["group.gpu.node.power"] * 2


def test_a_kilowatt_hour_at_180_grams_and_pue_1_2_is_216_grams(data):
    c = cluster.from_dict(data)
    assert c.carbon(3.6e6) == pytest.approx(216)
    assert c.carbon(c.energy(3600, 1.0), pue=False) == pytest.approx(32 * 10.2 * 1.2 * 180)
    assert c.carbon(c.energy(3600, 1.0, pue=False)) == pytest.approx(32 * 10.2 * 1.2 * 180)


def test_a_trace_that_changes_in_the_middle_is_integrated_exactly(with_trace):
    c = with_trace(HOURS)
    start = datetime.datetime(2024, 1, 1, 0, 45, tzinfo=datetime.UTC)
    # a quarter hour at 100 and half an hour at 300
    assert c.carbon(3.6e6, start, seconds=45 * 60, pue=False) == pytest.approx((15 * 100 + 30 * 300) / 45)
    assert c.carbon(3.6e6, "2024-01-01T00:30Z", pue=False) == 100
    assert c.carbon(3.6e6, "2024-01-01T01:00Z", pue=False) == 300
    assert c.carbon(3.6e6, "2024-01-01T00:00Z", seconds=3 * 3600, pue=False) == pytest.approx(200)


@given(st.integers(0, 10_000), st.integers(1, 10_800))
def test_the_integral_is_additive(start, seconds):
    from armillary.cluster.traces import Trace

    times, values = np.array([0.0, 3600.0, 7200.0, 9000.0]), np.array([100.0, 300.0, 0.0, 50.0])
    trace = Trace("carbon", cluster.reader.PRESETS, times, values, "g/kWh", 30000.0)
    cut = seconds // 3
    whole = trace.mean(start, seconds) * seconds
    parts = trace.mean(start, cut) * cut + trace.mean(start + cut, seconds - cut) * (seconds - cut)
    assert whole == pytest.approx(parts)
    steps = np.searchsorted(times, np.arange(start, start + seconds) + 0.5, side="right") - 1
    assert whole == pytest.approx(values[steps].sum())  # one second at a time: every change is at a whole second


def test_outside_of_a_trace_is_an_error(with_trace):
    c = with_trace(HOURS)
    for start, seconds in (("2023-12-31T23:59Z", 0), ("2024-01-01T03:00Z", 0), ("2024-01-01T02:30Z", 3600)):
        with pytest.raises(InputError, match="the trace covers"):
            c.carbon(1.0, start, seconds=seconds)
    with pytest.raises(InputError, match="a start is needed"):
        c.carbon(1.0)
    with pytest.raises(InputError, match="expected a time such as"):
        c.carbon(1.0, "yesterday")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "found no header"),
        ("time,grams\n1,2\n", "found the columns time, grams; expected time, g_per_kwh"),
        ("time,g_per_kwh\n2024-01-01T00:00Z,1\n", "1 rows; expected at least 2"),
        ("time,g_per_kwh\n2024-01-01T01:00Z,1\n2024-01-01T00:00Z,1\n", 'c.csv:3: column "time": found "2024-01-01T00:00Z" after'),
        ("time,g_per_kwh\n2024-01-01T00:00Z,1\n2024-01-03T00:00Z,1\n", "c.csv:3: a gap of 172800 s"),
        ("time,g_per_kwh\n2024-01-01T00:00Z,x\n", 'c.csv:2: column "g_per_kwh": found "x"'),
        ("time,g_per_kwh\n2024-01-01T00:00Z,-1\n", 'c.csv:2: column "g_per_kwh": found "-1"'),
        ("time,g_per_kwh\n2024-01-01T00:00Z,nan\n", 'c.csv:2: column "g_per_kwh": found "nan"'),
        ("time,g_per_kwh\n13:07,1\n", 'c.csv:2: column "time": found "13:07"'),
        ("time,g_per_kwh\n2024-01-01T00:00Z\n", "c.csv:2: found 1 cell"),
    ],
)
def test_bad_traces_name_the_line(with_trace, text, says):
    with pytest.raises(InputError) as error:
        with_trace(text)
    assert says in str(error.value)
    assert str(error.value).startswith("my.toml: site.carbon_intensity: ")


def test_a_gap_can_be_meant(with_trace):
    c = with_trace("time,g_per_kwh\n2024-01-01T00:00Z,1\n2024-01-03T00:00Z,2\n", gaps="2 d")
    assert c.carbon(3.6e6, "2024-01-02T00:00Z", pue=False) == 1


def test_too_many_rows_are_refused_while_streaming(with_trace, monkeypatch):
    monkeypatch.setattr("armillary.cluster.traces.MOST_ROWS", 2)
    with pytest.raises(InputError, match="more than 2 rows"):
        with_trace(HOURS)


def test_bandwidth_traces(data, tmp_path):
    (tmp_path / "bw.csv").write_text("time_s,bandwidth_mbps,latency_ms\n0,8,10\n1,16,20\n")
    data["network"]["compute"]["trace"] = "bw.csv"
    trace = cluster.from_dict(data, base=tmp_path).network().trace
    assert (trace.at(0.5), trace.at(1.0), trace.latencies.tolist()) == (1e6, 2e6, [0.01, 0.02])
    (tmp_path / "m.down").write_text("".join(f"{ms}\n" for ms in [0, 0, 50, 99, 100, 250]))
    data["network"]["compute"]["trace"] = "m.down"
    mahimahi = cluster.from_dict(data, base=tmp_path).network().trace
    assert mahimahi.values.tolist() == [4 * 15000, 15000, 15000]
    (tmp_path / "m.down").write_text("5\n3\n")
    with pytest.raises(InputError, match="milliseconds from 0 to 1,000,000,000 that do not decrease"):
        cluster.from_dict(data, base=tmp_path)


def test_cost_of_an_hour(data):
    node = data["group"][0]["node"]
    node["device"][0]["price"] = "25000 EUR"
    c = cluster.from_dict(data)
    cost = c.cost_per_hour(1.0)
    kwh = 32 * 10.2 * 1.2
    assert cost.energy_kwh == pytest.approx(kwh)
    assert cost.energy_price == pytest.approx(kwh * 0.18)
    assert cost.carbon_g == pytest.approx(kwh * 180)
    assert cost.embodied_g == pytest.approx(7320e6 / (6 * 8766))
    assert cost.machine_price == pytest.approx(256 * 25000 / (6 * 8766))
    assert "\n" not in str(cost)
    assert "EUR" in str(cost)
    node["device"][0]["price"] = "25000 USD"
    with pytest.raises(InputError, match="one currency"):
        cluster.from_dict(data).cost_per_hour()


def test_unknown_costs_stay_unknown():
    cost = cluster.preset("laptop").cost_per_hour()
    assert cost.energy_kwh is cost.machine_price is cost.carbon_g is cost.embodied_g is None
    assert "unknown" in str(cost)


def test_price_traces(with_trace):
    c = with_trace("time,eur_per_kwh\n2024-01-01T00:00Z,0.1\n2024-01-01T01:00Z,-0.05\n", "energy_price")
    cost = c.cost_per_hour(1.0, start="2024-01-01T00:30Z")
    assert cost.energy_price == pytest.approx(32 * 10.2 * 1.2 * 0.025)
    assert cost.currency == "EUR"


def test_sites_by_name(data):
    data["site"] = [
        {"name": "north", "carbon_intensity": "20 g/kWh"},
        {"name": "south", "carbon_intensity": "500 g/kWh", "pue": 2.0},
    ]
    data["group"][0]["site"] = "south"
    c = cluster.from_dict(data)
    assert c.carbon(3.6e6) == 20
    assert c.carbon(3.6e6, site="south") == 1000
    assert c.power(1.0) == 32 * 10200 * 2
    data["group"][0]["site"] = "west"
    with pytest.raises(InputError, match=r'group\.gpu\.site: found "west"'):
        cluster.from_dict(data)


def test_requirements_list_all_that_is_absent(data):
    c = cluster.from_dict(data)
    c.require({"device.memory.bandwidth", "nic.rate", "network.latency.nic", "site.pue", "power", "node.device.peak.bf16"})
    with pytest.raises(InputError) as error:
        c.require({"device.price", "memory.granule", "device.peak.fp4"})
    assert set(error.value.faults) == {
        "my-cluster: group.gpu.node.device.price: unknown, but needed here",
        "my-cluster: group.gpu.node.memory.ddr5.granule: unknown, but needed here",
        "my-cluster: group.gpu.node.device.peak.fp4: unknown, but needed here",
    }
    assert cluster.preset("laptop").missing("device.peak.fp64") == ["device (there is none)"]
    with pytest.raises(InputError, match="unknown requirement"):
        c.require({"device.colour"})
