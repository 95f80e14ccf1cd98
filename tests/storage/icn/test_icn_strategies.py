"""Networks of caches: exact small cases, laws that always hold, and an independent approximation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq

from armillary.arena import NotForThisCase
from armillary.storage import icn
from armillary.storage.icn.pricing import billing as columns

ON_PATH = [icn.Lce(), icn.Lcd(), icn.Prob(), icn.ProbCache(), icn.Cl4m(), icn.Edge(), icn.HashRouting(), icn.Coa(), icn.LceTiers()]
ALL = [*ON_PATH, icn.CostBased(), icn.CostBased(sample=0, copies=2, routing="nearest"), icn.Lce(routing="nearest"), icn.Lce(pending=True)]


def made(name: str, seed: int, **how: float) -> icn.Network:
    """Generated requests on a built-in topology."""
    return icn.generate(icn.built_in(name), icn.Prices(), np.random.default_rng(seed), **how)  # type: ignore[arg-type]


def one_tier(**change: float) -> icn.Prices:
    """Prices with a single tier of memory, which tests set piece by piece."""
    tier = {
        "name": "only", "share": 1.0, "price": 0.0, "lifetime": 5, "idle": 0.0, "endurance": float("inf"), "read_energy": 0.0,
        "write_energy": 0.0, "latency": 0.0, "bandwidth": 1e15,
    }  # fmt: skip
    fields = {k: v for k, v in change.items() if k in tier}
    rest = {k: v for k, v in change.items() if k not in tier}
    free = {"electricity": 0.0, "internal": 0.0, "transit": 0.0, "classes": (icn.Service(name="one", deadline=1e9, penalty=0.0),)}
    return icn.Prices.model_validate(free | {"tiers": (icn.Tier.model_validate(tier | fields),)} | rest)


def single() -> icn.Topology:
    """One router before one origin."""
    none = np.empty(0)
    return icn.Topology(("r",), np.empty((0, 2), np.int32), none, none, none, np.zeros(1, np.int32), np.zeros(1, np.int32))


def asked(where: icn.Topology, prices: icn.Prices, contents: list[int], gap: float = 1.0, room: int = 10, warm: int = 0, sizes: list[int] | None = None,
          receivers: list[int] | None = None) -> icn.Network:  # fmt: skip
    """Requests for these contents, `gap` seconds apart, at the first receiver unless `receivers` are given."""
    many = max(contents, default=0) + 1
    size = np.array(sizes or [1] * many, np.int64)
    catalogue = icn.Catalogue(size, np.zeros(len(size), np.int8), np.zeros(len(size), np.int32))
    at = np.full(len(contents), where.receivers[0], np.int32) if receivers is None else np.array(receivers, np.int32)
    requests = icn.Requests(gap * np.arange(1.0, len(contents) + 1), at, np.array(contents, np.int32), warm)
    return icn.Network(where, catalogue, requests, prices, np.full((len(where), len(prices.tiers)), room, np.int64))


def test_one_router_is_lru() -> None:
    # Capacity 2: misses 0, 1, hit 0, miss 2 (drops 1), hit 0, miss 1.
    found = icn.Lce().simulate(asked(single(), one_tier(), [0, 1, 0, 2, 0, 1], room=2))
    assert found.usage.count(columns.HITS) == 2
    assert found.usage.count(columns.WRITES) == 4


def test_ches_approximation() -> None:
    rng = np.random.default_rng(0)
    n, alpha, room = 2000, 0.8, 100
    p = (1.0 + np.arange(n)) ** -alpha
    p /= p.sum()
    drawn = np.searchsorted(np.cumsum(p), rng.random(300_000)).clip(0, n - 1)
    network = asked(single(), one_tier(), drawn.tolist(), room=room, warm=100_000, sizes=[1] * n)
    t = brentq(lambda t: (1 - np.exp(-p * t)).sum() - room, 1, 1e7)
    assert icn.Lce().simulate(network).hit_ratio == pytest.approx(float((p * (1 - np.exp(-p * t))).sum()), abs=0.01)


@pytest.mark.parametrize(
    ("strategy", "copies"), [(icn.Lce(), {0, 1, 2}), (icn.Lcd(), {2}), (icn.Edge(), {0}), (icn.Cl4m(), {0}), (icn.Prob(chance=1.0), {0, 1, 2}), (icn.Prob(chance=0.0), set())],
    ids=lambda v: type(v).__name__ if not isinstance(v, set) else "",
)  # fmt: skip
def test_where_a_first_copy_stays(strategy: object, copies: set[int]) -> None:
    # Two requests for one content at the edge of a line. The latency of each says where the content was found.
    line = icn.built_in("line")
    network = asked(line, one_tier(transit_latency=0.01, transit_bandwidth=1e15), [0, 0])
    found = strategy.simulate(network)  # type: ignore[attr-defined]
    assert found.usage.latency[0] == pytest.approx(2 * (0.002 + 0.002 + 0.01), rel=1e-4)
    nearest = min(copies, default=3)
    there = [0.0, 0.004, 0.008, 0.028][nearest]
    assert found.usage.latency[1] == pytest.approx(there, abs=1e-6)
    assert found.usage.count(columns.WRITES) == len(copies) + (1 if isinstance(strategy, icn.Lcd) else 0)


def test_lcd_comes_down_one_hop_a_request() -> None:
    network = asked(icn.built_in("line"), one_tier(transit_bandwidth=1e15), [0] * 5)
    assert icn.Lcd().simulate(network).usage.latency == pytest.approx([0.028, 0.008, 0.004, 0.0, 0.0], abs=1e-6)


def test_probcache_by_its_formula() -> None:
    # Equal caches, a path of 3 caching nodes, c = 3 hops to the origin: P(x) = (3 − x + 1)/10 · x/3 for x = 1, 2, 3.
    line = icn.built_in("line")
    counts = np.zeros(3)
    for seed in range(2000):
        network = asked(line, one_tier(transit_bandwidth=1e15), [0])
        made = icn.ProbCache().with_rng(np.random.default_rng(seed)).simulate(network)  # type: ignore[attr-defined]
        counts[: int(made.usage.count(columns.WRITES))] += 1
    expected = sum((4 - x) / 10 * x / 3 for x in (1, 2, 3))
    assert counts.sum() / 2000 == pytest.approx(expected, abs=0.05)


def test_each_content_has_one_home() -> None:
    network = made("abilene", 1, contents=300, requests=5000, warm=0, alpha=0.8, share=0.2)
    assert icn.HashRouting().simulate(network).replicas <= 1.0


def test_victims_sink_and_hits_rise() -> None:
    tiers = tuple(
        icn.Tier(name=name, share=0.5, price=0, lifetime=5, idle=0, endurance=1e9, read_energy=0, write_energy=0, latency=0, bandwidth=1e15)
        for name in ("fast", "slow")
    )
    prices = one_tier().model_copy(update={"tiers": tiers})
    # Each tier has room for one: 0 enters, 1 enters and 0 sinks, and then 0 is hit on the lower tier.
    network = asked(single(), prices, [0, 1, 0, 0], room=1)
    low, high = icn.Lce().simulate(network), icn.LceTiers().simulate(network)
    assert low.usage.read.tolist() == [0, 2]
    assert high.usage.read.tolist() == [1, 1]


@pytest.mark.parametrize("strategy", ALL, ids=lambda s: type(s).__name__)
@settings(max_examples=12)
@given(seed=st.integers(0, 10**6), share=st.sampled_from([0.0, 0.002, 0.05, 0.5, 3.0]))
def test_what_is_always_true(strategy: object, seed: int, share: float) -> None:
    rng = np.random.default_rng(seed)
    where = icn.built_in(["line", "abilene", "grid"][seed % 3])
    network = icn.generate(where, icn.Prices(), rng, contents=60, requests=1500, warm=int(rng.integers(0, 500)), alpha=0.9, share=share)
    found = strategy.simulate(network)  # type: ignore[attr-defined]
    used = found.usage
    # Every byte comes from a tier or an origin; every request is counted once.
    assert used.count(columns.DELIVERED) == used.read.sum() + used.count(columns.ORIGIN_BYTES)
    assert used.count(columns.REQUESTS) == len(network.requests) - network.requests.warm
    assert used.count(columns.DELIVERED) == network.catalogue.size[network.requests.content[network.requests.warm :]].sum()
    # The parts add up at any prices.
    assert found.bill.total == pytest.approx(sum(vars(found.bill).values()), rel=1e-12)
    assert (used.held >= 0).all()
    longest = network.requests.time[-1] - network.requests.time[0]
    assert (used.held <= network.capacity.sum(axis=0) * longest * (1 + 1e-9)).all()
    if share == 0.0:
        assert found.hit_ratio == 0
        assert used.count(columns.WRITES) == 0


def test_doubling_every_price_changes_no_decision() -> None:
    network = made("abilene", 4, contents=400, requests=20_000, warm=2000, alpha=0.9, share=0.05)
    double = icn.Network(network.topology, network.catalogue, network.requests, network.prices.scaled(2.0), network.capacity)
    one, two = icn.CostBased().simulate(network), icn.CostBased().simulate(double)
    np.testing.assert_array_equal(one.usage.latency, two.usage.latency)
    np.testing.assert_array_equal(one.usage.written, two.usage.written)
    assert two.bill.total == pytest.approx(2 * one.bill.total, rel=1e-12)


def test_no_copies_where_nothing_is_saved() -> None:
    # Bandwidth and energy are free and nothing is late, so a copy saves nothing but costs its holding.
    network = asked(icn.built_in("line"), one_tier(price=4.0), [0, 1, 0, 1, 0], room=10**6, sizes=[1000, 1000])
    assert icn.CostBased().simulate(network).usage.count(columns.WRITES) == 0


def test_flash_that_wears_out_at_once_is_not_written() -> None:
    # A megabyte that is asked for every thousand seconds saves 0.00007 $ of transit per hour; wearing out its place costs 0.0037 $.
    def writes(endurance: float) -> float:
        prices = one_tier(price=4.0, endurance=endurance, transit=0.02)
        network = asked(icn.built_in("line"), prices, [0] * 200, gap=1000.0, room=10**9, sizes=[10**6])
        return icn.CostBased().simulate(network).usage.count(columns.WRITES)

    assert writes(1.0) == 0
    assert writes(1e9) == 1


def test_a_line_keeps_one_replica_at_the_edge() -> None:
    network = asked(icn.built_in("line"), icn.Prices(), [0] * 3000, room=10**9, warm=1000, sizes=[10**6])
    found = icn.CostBased().simulate(network)
    assert found.replicas == pytest.approx(1.0)
    assert found.hit_ratio == 1.0
    assert found.usage.latency.max() < 0.002, "at the receiver's own node, before the first link"


def test_only_moving_costs_so_the_asked_for_is_kept() -> None:
    # Each node has room for one content, so the edge keeps the one that is asked for nine times as often.
    stream = ([0] * 9 + [1]) * 300
    network = asked(icn.built_in("line"), one_tier(transit=0.02, internal=0.002), stream, room=1, warm=1000)
    found = icn.CostBased().simulate(network)
    assert found.hit_ratio > 0.89
    assert found.usage.count(columns.ORIGIN_BYTES) < 0.11 * found.usage.count(columns.DELIVERED)


def test_what_is_no_longer_asked_for_is_dropped_though_there_is_room() -> None:
    prices = one_tier(price=4.0, transit=0.02, endurance=1e9)
    stream = [0] * 200 + [1] * 4000
    found = icn.CostBased(half_life=60.0, sweep=10.0).simulate(
        asked(icn.built_in("line"), prices, stream, room=10**9, warm=3000, sizes=[10**6, 10**6])
    )
    assert found.usage.count(columns.COPIES) / found.usage.count(columns.REQUESTS) == pytest.approx(1.0, abs=0.01)


def test_near_the_optimum_on_a_small_case() -> None:
    network = made("line", 3, contents=8, requests=40_000, warm=20_000, alpha=1.0, share=1.5)
    best, found = icn.Optimal().simulate(network), icn.CostBased().simulate(network)
    # A copy that comes and goes can save the holding compared with a standing copy, and nothing else.
    least = best.bill.total - best.bill.depreciation
    assert least <= found.bill.total <= 1.15 * best.bill.total
    for strategy in ON_PATH:
        assert least <= strategy.simulate(network).bill.total


def test_the_bound_declines_what_is_too_large() -> None:
    with pytest.raises(NotForThisCase):
        icn.Optimal().simulate(made("abilene", 0, contents=200, requests=10, warm=0, alpha=1.0, share=0.1))


def test_the_optimum_by_trying_every_placement() -> None:
    """Simulates each of the 16 placements of two contents on two nodes with one tier."""
    from armillary.storage.icn.simulation.replay import NOWHERE, on_path

    where = icn.topology([("a", "b", 0.002)], ["a", "b"], ["b"])
    rng = np.random.default_rng(5)
    contents = rng.choice(2, 400, p=[0.7, 0.3]).tolist()
    receivers = rng.choice(2, 400, p=[0.8, 0.2]).tolist()
    prices = one_tier(price=400.0, transit=0.02, internal=0.002, read_energy=1e-9, electricity=0.12)
    network = asked(where, prices, contents, room=10**6, sizes=[10**6, 10**6], receivers=receivers)
    totals = []
    for mask in range(16):
        chosen = [(i // 2, i % 2) for i in range(4) if mask >> i & 1]
        if sum(node == 0 for _, node in chosen) > 1 or sum(node == 1 for _, node in chosen) > 1:
            continue
        placed = (np.array([c for c, _ in chosen], np.int64), np.array([v for _, v in chosen], np.int64), np.zeros(len(chosen), np.int64))
        totals.append(on_path(network, NOWHERE, placed=placed).bill.total)
    assert icn.Optimal().simulate(network).bill.total == pytest.approx(min(totals), rel=1e-9)


def test_a_request_joins_the_fetch_of_another() -> None:
    line = icn.built_in("line")
    network = asked(line, one_tier(transit_bandwidth=1e15), [0, 0], gap=0.01)
    plain, joined = icn.Edge().simulate(network), icn.Edge(pending=True).simulate(network)
    assert plain.usage.latency[1] == pytest.approx(0.0, abs=1e-6)
    assert joined.usage.latency[1] == pytest.approx(0.028 - 0.01, abs=1e-5)


def test_the_bill_by_hand() -> None:
    prices = icn.Prices()
    used = columns.Usage(
        np.array([2.0**30 * 100, 0, 0]), np.array([0.0, 0, 2.0**30]), np.zeros(3), np.array([1, 0, 2]), np.zeros(12), np.zeros(0)
    )
    found = icn.bill(used, prices)
    assert found.depreciation == pytest.approx(4 * 100 / (5 * 365 * 86400) + 0.10 / 1825)
    assert found.energy == pytest.approx((100 * 0.35 + 2**30 * 4e-9) * 1.5 * 0.12 / 3.6e6)
    assert found.service == pytest.approx(1e-5 + 2 * 2e-7)
    assert found.bandwidth == 0


def test_shares_of_caches() -> None:
    where = icn.built_in("isp")
    assert len(where) == 79
    catalogue = icn.Catalogue(np.full(1000, 79_000), np.zeros(1000, np.int8), np.zeros(1000, np.int32))
    each = icn.shared_out(where, catalogue, icn.Prices(), 0.01)
    assert each[0].tolist() == [500, 1500, 8000]
    assert each.shape == (79, 3)


def test_false_prices_do_not_decide_better_than_true_ones() -> None:
    """NVMe that seems a thousand times dearer makes fewer copies, which helps only a valuation that makes too many."""
    network = made("abilene", 0, contents=20_000, requests=120_000, warm=40_000, alpha=0.8, share=0.01)
    dram, pmem, nvme = network.prices.tiers
    false = network.prices.model_copy(update={"tiers": (dram, pmem, nvme.model_copy(update={"price": 1000 * nvme.price}))})
    misled = icn.CostBased().simulate(replace(network, prices=false))
    assert icn.CostBased().simulate(network).bill.total <= 1.003 * columns.bill(misled.usage, network.prices).total


def test_a_content_that_is_asked_for_once_is_not_copied() -> None:
    network = icn.generate(
        icn.built_in("line"), icn.Prices(), np.random.default_rng(0), contents=500, requests=500, warm=0, alpha=0.0, share=1.0
    )
    once = replace(network, requests=replace(network.requests, content=np.arange(500, dtype=np.int32)))
    # The sketch takes a few of them for others that were asked for before.
    assert icn.CostBased().simulate(once).usage.count(columns.WRITES) <= 0.06 * 500
