"""How fast network/routing simulates on this machine, how close it is to theory, what each part of PIAR brings, and what trying costs auto.

python benchmarks/network_routing.py prints packet-hops per CPU second at df-1056, load 0.5, uniform (goal: 3 million), the CPU seconds
of 20,000 cycles of it (goal: 60), and the peak of memory (goal: 1 GiB); accepted load over 1/gamma_max of exact channel loads, which is the
peer of oblivious routings because no simulator of this kind installs from PyPI or Debian; auto's regret against the best of the three
routings that it picks from; the table of PIAR's parts; and, with --large, 5,000 cycles of df-9702 (goal: 600 s) and the table of parts on
df-1056. Last, one JSON object.
"""

from __future__ import annotations

import argparse
import json
import resource
from typing import Any

from armillary.network.routing import Auto, Min, Par, Piar, UgalL, Valiant, channel_loads, preset, simulate
from armillary.network.routing.analysis.ablation import ablation

TRAFFICS = ("uniform", "adversarial:1", "adversarial:h", "permutation", "mixed:0.5")


def speeds(large: bool) -> dict[str, float]:
    """Packet-hops per CPU second, CPU seconds and peak memory."""
    found: dict[str, float] = {}
    net = preset("df-1056")
    for routing in (Min(), UgalL(), Par(), Piar(), Auto()):
        name = type(routing).__name__.lower()
        simulate(net, routing, "uniform", 0.5, cycles=50, until_arrived=False)
        for traffic, load in (("uniform", 0.5), ("adversarial:1", 1.0)):
            played = simulate(net, routing, traffic, load, cycles=3000, until_arrived=False)
            found[f"{name} {traffic} {load:g}"] = played.hops_per_s
            print(f"{name:8s} df-1056 {traffic} at {load:g}: {played.hops_per_s / 1e6:5.1f} million packet-hops per CPU second", flush=True)
    found["20000 cycles s"] = simulate(net, Piar(), "uniform", 0.5, cycles=20_000).cpu_s
    print(f"piar, 20,000 cycles of df-1056 at 0.5: {found['20000 cycles s']:.1f} CPU seconds")
    if large:
        net = preset("df-9702")
        for routing in (Min(), Piar()):
            played = simulate(net, routing, "uniform", 0.5, cycles=5000)
            found[f"df-9702 {type(routing).__name__.lower()} s"] = played.cpu_s
            name, rate = type(routing).__name__.lower(), played.hops_per_s / 1e6
            print(f"{name}, 5,000 cycles of df-9702 at 0.5: {played.cpu_s:.1f} CPU s, {rate:.1f} M/s")
    found["peak_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"peak of memory: {found['peak_mib']:.0f} MiB")
    return found


def beside_theory() -> dict[str, float]:
    """Accepted load at full load over the exact bound."""
    found, net = {}, preset("df-72")
    for routing in (Min(), Valiant(), Valiant("router")):
        for traffic in ("uniform", "adversarial:1", "adversarial:h"):
            bound = channel_loads(net, routing, traffic).saturation
            accepted = simulate(net, routing, traffic, 1.0, cycles=12_000, until_arrived=False).accepted
            name = f"{type(routing).__name__.lower()}{' to routers' if getattr(routing, 'to', '') == 'router' else ''} {traffic}"
            found[name] = accepted / bound
            print(f"{name}: accepted {accepted:.3f}, bound {bound:.3f}, ratio {accepted / bound:.2f}", flush=True)
    return found


def parts(cycles: int, large: bool) -> dict[str, Any]:
    """PIAR with one part off, at full load and below: accepted load, and latency."""
    found: dict[str, Any] = {}
    for name in ("df-72", "df-1056") if large else ("df-72",):
        net = preset(name)
        columns = [
            ("uniform", 1.0),
            ("adversarial:1", 1.0),
            ("adversarial:h", 1.0),
            ("mixed:0.5", 1.0),
            # All nodes of a router send to the next router.
            (f"shift:{net.nodes // net.routers}", 1.0),
            ("uniform", 0.5),
            ("adversarial:1", 0.3),
        ]
        table: dict[str, list[float]] = {}
        for traffic, load in columns:
            for variant, (accepted, latency, hops) in ablation(net, traffic, load, cycles=cycles if load == 1 else cycles // 2).items():
                table.setdefault(variant, []).append(accepted if load == 1 else latency)
                assert hops >= 1
        print(f"\n| {name} | " + " | ".join(f"{t} at {x:g}" for t, x in columns) + " |\n|---|" + "---|" * len(columns))
        for variant, row in table.items():
            print(f"| {variant} | " + " | ".join(f"{v:.3f}" if v < 1 else f"{v:.1f}" for v in row) + " |", flush=True)
        found[name] = table
    return found


def regret(cycles: int) -> dict[str, float]:
    """How much less auto accepts than the best of the routings that it tries, in percent."""
    found, net = {}, preset("df-72")
    for traffic in (*TRAFFICS, "phases:2000", "bursts"):
        load = 0.9 if traffic == "bursts" else 1.0
        auto = simulate(net, Auto(), traffic, load, cycles=cycles, until_arrived=False)
        best = max(simulate(net, one, traffic, load, cycles=cycles, until_arrived=False).accepted for one in (Piar(), Par(), Min()))
        found[traffic] = 100 * (1 - auto.accepted / best)
        print(f"auto on {traffic}: {auto.accepted:.3f}, best of three {best:.3f}, regret {found[traffic]:.1f} %, {Auto().used(auto.state)}")
    return found


def main() -> None:
    """Prints the tables and one JSON object."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--large", action="store_true", help="also 5,000 cycles of df-9702, and PIAR's parts on df-1056")
    asked.add_argument("--cycles", type=int, default=6000, help="cycles of the tables")
    given = asked.parse_args()
    found = {
        "speed": speeds(given.large),
        "theory": beside_theory(),
        "regret_percent": regret(2 * given.cycles),
        "parts": parts(given.cycles, given.large),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
