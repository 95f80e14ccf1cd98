"""Presets: the published figures come out, every number says where it is from, and every file round-trips."""

from __future__ import annotations

import tomllib

import pytest

from armillary import cluster
from armillary.cluster.fields import Table
from armillary.cluster.units import Count, Quantity
from armillary.errors import InputError

NAMES = cluster.presets()

#: Every preset that the specifications of the arenas name.
NAMED = [
    "dgx-h100", "dgx-h200", "h200", "gb200-nvl72", "frontier", "frontier-2022", "perlmutter", "archer2", "jetson-orin-nano",
    "jetson-orin-nano-super", "edge-fog-cloud", "fat-tree-1k", "dragonfly-10k", "torus-4096", "laptop", "dgx-a100",
    "h800-node", "ascend-910b-node", "one-gpu-workstation", "cpu-2core", "laptop-2core", "perlmutter-gpu", "perlmutter-cpu",
    "leonardo-booster", "marenostrum5-gpp", "marenostrum5-acc", "armv8-sve-node", "pcie4-box", "rtx-pro-6000",
    "slingshot-200", "infiniband-hdr100", "bxi2-100", "ethernet-25", "two-clusters-insitu", "cxl-hybrid", "cxl-dram",
    "hpc-256", "hpc-4096", "smt-2x16x2", "k8s-20", "edge-125", "qpu-6", "amr-512", "amr-4096", "tiers-3", "tiers-10", "ina-6x2",
    "genai-64", "edge-riscv",
    *(f"mixed-offline-{i}" for i in range(1, 11)),
]  # fmt: skip


def test_every_named_preset_is_there():
    assert set(NAMED) <= set(NAMES)


def _quantities(thing, at=""):
    if isinstance(thing, Quantity):
        yield at, thing
    elif isinstance(thing, Table):
        for name in type(thing).model_fields:
            yield from _quantities(getattr(thing, name), f"{at}.{name}")
    elif isinstance(thing, tuple | list):
        for i, entry in enumerate(thing):
            yield from _quantities(entry, f"{at}[{i}]")
    elif isinstance(thing, dict):
        for key, entry in thing.items():
            yield from _quantities(entry, f"{at}.{key}")


@pytest.mark.parametrize("name", NAMES)
def test_every_figure_has_a_source(name):
    without = [at for at, q in _quantities(cluster.preset(name)) if not q.source and not at.endswith(".exponent")]
    assert without == []


@pytest.mark.parametrize("name", NAMES)
def test_what_is_written_loads_as_an_equal_cluster(name, tmp_path):
    c = cluster.preset(name)
    (tmp_path / "x.toml").write_text(c.to_toml())
    (tmp_path / "x.json").write_text(c.to_json())
    assert cluster.load(tmp_path / "x.toml") == c
    assert cluster.load(tmp_path / "x.json") == c
    assert c.name == name
    assert name in c.summary()


@pytest.mark.parametrize("name", [n for n in NAMES if n not in ("frontier", "frontier-2022")])
def test_every_network_can_be_laid_out(name):
    c = cluster.preset(name)
    for network in c.networks:
        graph = c.graph(network)
        assert len(graph.endpoints) == c.endpoints(network)
        if len(graph.endpoints) > 1 and name != "ina-6x2":
            graph.routes([0], [len(graph.endpoints) - 1])


def test_dgx_h100():
    c = cluster.preset("dgx-h100")
    assert (c.nodes, c.cores, c.threads, c.devices("gpu")) == (1, 112, 224, 8)
    device = c.node(0).device(0)
    assert (device.peak["bf16"], device.peak["fp8"], device.memory.bandwidth) == (989.4e12, 1978.9e12, 3.35e12)
    assert c.memory("hbm") == 640e9
    assert c.memory("nvme") == 2 * 1.92e12 + 8 * 3.84e12
    assert c.power(1.0) == 10200
    assert c.missing("power") == ["group.gpu.node.power.idle"]
    with pytest.raises(InputError, match=r"group.gpu.node.power: idle unknown"):
        c.power(0.5)
    assert c.alpha_beta("n0/device:0", "n0/device:7") == (0.5e-6, 1 / 450e9)
    assert cluster.preset("dgx-h200").memory("hbm") == 1128e9


def test_gb200_nvl72():
    c = cluster.preset("gb200-nvl72")
    assert (c.devices("gpu"), c.cores) == (72, 36 * 72)
    assert c.memory("hbm") == pytest.approx(13.4e12, rel=1e-2)
    assert sum(d.count * d.memory.bandwidth for d in c.groups[0].node.devices) * 18 == 576e12
    assert c.bisection("nvlink") == 36 * 900e9
    assert c.path("n0/device:0", "n17/device:3", "nvlink").rate == 900e9
    assert c.peak("fp4") == 72 * 10e15


def test_frontier():
    c = cluster.preset("frontier")
    assert (c.nodes, c.devices("gpu")) == (9856, 78848)
    assert (c.node(0).cores, c.node(0).usable_cores) == (64, 56)
    assert c.peak("fp64") == pytest.approx(1.884e18, rel=5e-4)
    graph = c.graph("compute")
    assert (len(graph.endpoints), graph.switches) == (39424, 2464)
    arrays = [graph.kind, graph.group, graph.endpoints, graph.u, graph.v, graph.rate, graph.latency, graph.link_kind, graph.weight]
    arrays += [graph.adjacency.start, graph.adjacency.neighbour, graph.adjacency.link]
    assert sum(a.nbytes for a in arrays) < 50e6
    near = [c.node(0).device(i).near for i in range(8)]
    assert near == ["numa:3", "numa:3", "numa:1", "numa:1", "numa:0", "numa:0", "numa:2", "numa:2"]
    assert len(set(c.node(0).cache_domains(3))) == 8
    assert c.alpha_beta("n0/device:0", "n0/device:1")[1] == 1 / 200e9
    # The NIC of a GCD's own package is nearer than that of another.
    assert "nic:2" in [h.start for h in c.path("n0/device:0", "n9000/device:5").links]


def test_frontier_of_the_system_paper():
    c = cluster.preset("frontier-2022")
    assert (c.nodes, c.node(0).usable_cores) == (9472, 56)
    assert c.group_bandwidth("compute") == pytest.approx(7.3e12)
    assert c.taper("compute") == pytest.approx(0.570, abs=5e-4)
    assert c.global_bandwidth("compute") == pytest.approx(270.1e12)
    assert c.bisection("compute") == 37 * 37 * 4 * 25e9


def test_archer2():
    c = cluster.preset("archer2")
    assert (c.nodes, c.cores) == (5860, 750_080)
    assert c.embodied(3600, nodes=1) == pytest.approx(23.7, abs=0.05)
    assert c.power(1.0) == pytest.approx(3.22e6, rel=1e-5)
    assert c.power(1.0, "bios") == pytest.approx(3.01e6, rel=1e-5)
    assert c.power(1.0, "2.0-ghz") == pytest.approx(2.53e6, rel=1e-5)
    assert c.graph().switches == 768
    assert c.network().offers >= c.endpoints()


def test_perlmutter():
    c = cluster.preset("perlmutter")
    assert (c.nodes, c.devices("gpu"), c.endpoints()) == (4864, 7168, 1792 * 4 + 3072)
    assert c.graph().switches == 14 * 32 + 12 * 16
    assert c.path("n0/device:0", "n0/device:1").rate == 100e9
    assert c.node(1536).device(0).memory.bandwidth == 2.039e12


def test_a_jetson_counts_its_memory_once():
    c = cluster.preset("jetson-orin-nano")
    assert (c.memory(), c.cores, c.peak("int8")) == (8e9, 6, 20e12)
    better = cluster.preset("jetson-orin-nano-super")
    assert (better.peak("int8"), better.node(0).memory().bandwidth, better.power(1.0)) == (33e12, 102e9, 25)


def test_mips_are_no_flops():
    c = cluster.preset("edge-fog-cloud")
    assert c.peak("fp64") == 0
    assert c.node(0).sockets[0].ops == 1e9
    assert c.power({"cloud": 1.0}) == pytest.approx(8 * 82.4 + 5 * 83.4 + 1648)


def test_the_arenas_find_their_figures():
    amr = cluster.preset("amr-512")
    assert amr.cores == 512
    assert amr.alpha_beta("n0", "n1") == (pytest.approx(1.8e-6), 0.25e-9)
    assert amr.alpha_beta("n0/socket:0", "n0/socket:1") == (0.6e-6, 0.1e-9)
    qpu = cluster.preset("qpu-6").node(0).device(0)
    assert (qpu.data_qubits, qpu.communication_qubits, qpu.two_qubit_s) == (8, 2, 100e-6)
    assert cluster.preset("qpu-6").network().epr_rate == 182
    assert cluster.preset("ina-6x2").network().switch.aggregation.slots == 512
    assert cluster.preset("slingshot-200").alpha_beta(0, 1) == (pytest.approx(1.8e-6), 1 / 25e9)
    assert cluster.preset("k8s-20").power(1.0) == 8 * 120 + 8 * 300 + 4 * 450
    mixed = cluster.preset("mixed-offline-5")
    assert [(g.name, g.node.devices[0].count) for g in mixed.groups] == [("t4", 4), ("v100-32", 2)]
    insitu = cluster.preset("two-clusters-insitu")
    assert insitu.path(0, 300).rate == 1e9 / 8
    assert insitu.memory("pfs") == 100e12


def test_unknown_presets_name_the_nearest():
    with pytest.raises(InputError, match='unknown preset "fronter"'):
        cluster.preset("fronter")
    with pytest.raises(InputError):
        cluster.preset("../../etc/passwd")


def test_presets_are_plain_toml_of_this_schema():
    for name in NAMES:
        path = cluster.reader.PRESETS / f"{name}.toml"
        data = tomllib.loads(path.read_text())
        assert data["armillary"] == 1


def test_counts_keep_their_sources():
    cores = cluster.preset("frontier").groups[0].node.sockets[0].cores
    assert isinstance(cores, Count)
    assert cores.source == "Frontier user guide"
