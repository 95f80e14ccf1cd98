"""Halo exchanges: plans beside the loop by hand, the cost of plans, the ablation of dynamic protocols, and CloverLeaf's ladder.

    python benchmarks/network_halo.py [--large]

Ratios are medians over rounds in which both sides take turns. `--large` adds two cases of 2,304 virtual ranks.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from armillary import comm
from armillary.network.halo import DynamicProtocol, Strategy, machine_of, measure, miniamr, play, stencil3d
from armillary.network.halo.measuring.measured import FOUR, STRATEGIES

SHAPES = {"cfd": (512, 1024), "life": (512, 1024), "image": (512, 1024)}


def exchanges() -> None:
    for one in comm.libraries():
        print(f"{one.name} {one.version}: exchange over the loop by hand, two ranks, 512² each")
        works = [
            {"application": name, "shape": list(shape), "decomposition": [1, 2], "steps": 5, "exchanges": 100}
            for name, shape in SHAPES.items()
        ]  # fmt: skip
        tables = measure(works, STRATEGIES, library=one.name, ranks=2, rounds=11)
        print("  " + " " * 36 + "".join(f"{name:>10}" for name in SHAPES))
        for strategy in STRATEGIES:
            fault = "  falls back to messages" if any(table[strategy].fault for table in tables) else ""
            print(f"  {strategy!s:36}" + "".join(f"{table[strategy].ratio:10.2f}" for table in tables) + fault)


def parts() -> None:
    print("ablation on the first library, life: exchange over the loop by hand")
    work = {"application": "life", "shape": [512, 1024], "decomposition": [1, 2], "steps": 5, "exchanges": 100}
    several = [
        Strategy("packed", "p2p"), Strategy("packed", "p2p", packer="numba"), Strategy("packed", "p2p", corners="phases"),
        Strategy("datatype", "p2p"), Strategy("datatype", "p2p", describe="vector"), Strategy("datatype", "p2p", corners="phases"),
    ]  # fmt: skip
    found = measure([work], several, library=comm.libraries()[0].name, ranks=2, rounds=11)[0]
    for one in several:
        print(f"  {one!s:16} packer={one.packer} describe={one.describe} corners={one.corners}: {found[one].ratio:.2f}")
    created = comm.run(f"{Path(__file__).resolve()}:creation", ranks=2, backend="mpi", library=comm.libraries()[0].name).values[0]
    for call, seconds in created.items():
        print(f"  plan and first exchange, datatype {call}: {1e6 * seconds:.0f} µs")


def creation(ranks: object) -> dict[str, float]:
    """Seconds to make a plan and exchange once, on a live rank."""
    import numpy as np

    from armillary.network.halo import Halo

    halo, a = Halo((514, 514), "f8", 1, ranks, (1, 2)), np.zeros((514, 514))
    found = {}
    for call in FOUR:
        began = time.perf_counter()
        for _ in range(50):
            plan = halo.plan("datatype", call)
            plan.exchange(a)
            plan.free()
        found[call] = (time.perf_counter() - began) / 50
    return found


def ablation() -> None:
    print("dynamic protocols by part: simulated exchange in µs")
    machine = machine_of("infiniband-hdr100")
    patterns = {
        "flat 64": stencil3d((12, 8, 1), 64, 27, 12, 10), "slab 64": stencil3d((24, 2, 2), 64, 27, 12, 10),
        "1 node 27p": stencil3d((4, 4, 3), 64, 27, 48, 10), "miniamr": miniamr(4, 4, 96, 12, 10),
    }  # fmt: skip
    from armillary.network.halo import StaticProtocol

    several = {
        "static-protocol": StaticProtocol(), "static-cached": StaticProtocol("rput-cached", "read", 65536, True),
        "static-shared": StaticProtocol("rget", "shared-copy", 65536), "dynamic-protocol": DynamicProtocol(),
        "whole copies": DynamicProtocol(chunks=False), "no remembered buffers": DynamicProtocol(cached=False),
        "copies in halves": DynamicProtocol(balance=False), "nothing through the NIC": DynamicProtocol(loopback=False),
        "order of neighbours": DynamicProtocol(inter_first=False), "no feedback": DynamicProtocol(feedback=False),
    }  # fmt: skip
    print("  " + " " * 26 + "".join(f"{name:>12}" for name in patterns))
    for name, technique in several.items():
        times = [play(one, technique.planner(one, machine)).seconds for one in patterns.values()]
        print(f"  {name:26}" + "".join(f"{1e6 * seconds:12.1f}" for seconds in times))


def large() -> None:
    from armillary.network.halo import StaticProtocol

    machine = machine_of("infiniband-hdr100")
    for name, one in (("48x48x1, 128³", stencil3d((48, 48, 1), 128, 27, 48, 4)), ("16x12x12, 64³", stencil3d((16, 12, 12), 64, 27, 48, 4))):
        for technique in (StaticProtocol(), DynamicProtocol()):
            began = time.process_time()
            played = play(one, technique.planner(one, machine))
            took = time.process_time() - began
            times = f"{1e6 * played.seconds:.1f} µs, promised {1e6 * played.promise_s:.1f}"
            print(f"  {name} {type(technique).__name__}: {times}; {took:.0f} CPU s")


def ladder() -> None:
    """CloverLeaf on one rank around a periodic box: what Python costs by rung, by source of overhead, and by kind of call."""
    from dataclasses import replace

    from armillary.network.halo import DECKS, Access
    from armillary.network.halo.views.measured import climb

    naive = Access(True, True, True, True, True, True)
    switches = ("convert", "slices", "loops", "sync", "stage", "rebuild")
    rungs = {
        "convert-each-step": naive, "views-mpi": Access(sync=True), "view-streams": Access(), "split": Access(split=True),
        "view-graphs": Access(graph=True),
    } | {f"all but {name}": replace(naive, **{name: False}) for name in switches}  # fmt: skip
    for owner in ("torch", "numpy"):
        deck = DECKS["corner"].sized(240, 4, True)
        work = {"deck": deck.given(), "decomposition": [1, 1], "library": owner, "steps": 4, "device": "cpu"}
        found = climb(work, list(rungs.values()), ranks=1, rounds=11, library=comm.libraries()[0].name)
        print(f"CloverLeaf 240², fields owned by {owner}: Python per exchange in µs, step in µs, conversions per step")
        for name, access in rungs.items():
            one = found[access]
            print(f"  {name:20} {1e6 * one.host_overhead:9.1f} {1e6 * one.step_s:9.0f} {one.conversions:6.0f}")


def gpus() -> None:
    """The ladder on simulated GPUs, with the stored costs of Python and with those of an interpreter that is five times as quick."""
    from armillary.network.halo import DECKS, Access, StreamModel, ViewGraphs, ViewStreams
    from armillary.network.halo.views.costs import STORED, longer
    from armillary.network.halo.views.gpus import simulate

    print("CloverLeaf on simulated H100 GPUs: µs per step (share of transfers hidden)")
    for factor in (1.0, 0.2):
        model = StreamModel(longer(STORED["h100-80"], factor))
        print(f"  launch {1e6 * model.costs.launch_s:.0f} µs")
        for cells in (240, 960, 1920, 3840, 7680):
            for dims in ((2, 2), (2, 4)):
                deck = DECKS["corner"].sized(cells, 1)
                several = {
                    "convert": Access(True, True, True, True, True, True), "mpi": Access(sync=True),
                    "streams": ViewStreams().planned(model, deck, dims), "split": Access(split=True), "whole": Access(),
                    "graphs": ViewGraphs().planned(model, deck, dims),
                }  # fmt: skip
                played = {name: simulate(model, deck, dims, access) for name, access in several.items()}
                row = "".join(f"  {name} {1e6 * one.seconds:5.0f} ({one.overlap:.2f})" for name, one in played.items())
                print(f"    {cells:5}² on {dims[0] * dims[1]}:{row}")


def solver() -> None:
    """CloverLeaf's benchmark deck: its kinetic energy after 87 steps, and the CPU seconds per cell and step."""
    from armillary.network.halo.clover.block import FIELDS, block
    from armillary.network.halo.clover.deck import BENCHMARK, KINETIC
    from armillary.network.halo.views.kernels import Compiled, hosted
    from armillary.network.halo.views.ladder import Access, Rung, sums

    def run(ranks: object) -> tuple[float, float]:
        part = block(BENCHMARK)
        fields = part.start()
        rung = Rung(ranks, part, fields, (1, 1), Access(graph=True), Compiled())
        began = time.process_time()
        for _ in range(BENCHMARK.end_step):
            rung.step()
        return time.process_time() - began, sums(part, hosted(fields, list(FIELDS)))["kinetic"]

    took, kinetic = comm.run(run, ranks=1, backend="one").values[0]
    each = 1e9 * took / BENCHMARK.end_step / (BENCHMARK.x_cells * BENCHMARK.y_cells)
    print(f"CloverLeaf 960², 87 steps: kinetic energy {kinetic:.14f}, {100 * (kinetic / KINETIC[2] - 1):+.1e} % from its own")
    print(f"  {took:.1f} CPU s, {each:.0f} ns per cell and step, compilation included if the cache was empty")


def main() -> None:
    solver()
    if not comm.backends()["mpi"]:
        exchanges()
        parts()
        ladder()
    ablation()
    gpus()
    if "--large" in sys.argv:
        large()


if __name__ == "__main__":
    main()
