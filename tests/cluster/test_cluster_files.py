"""Cluster files: what they say is what the cluster answers, and everything wrong with one is said at once."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
import tomllib

import pytest

from armillary import cluster
from armillary.errors import InputError


@pytest.fixture
def data(file_text):
    return tomllib.loads(file_text)


def faults(data, **kwargs):
    with pytest.raises(InputError) as error:
        cluster.from_dict(data, where="my.toml", **kwargs)
    return error.value.faults


def test_totals_are_those_of_the_file(file_text, tmp_path):
    path = tmp_path / "my.toml"
    path.write_text(file_text)
    c = cluster.load(path)
    assert (c.nodes, c.cores, c.threads, c.devices("gpu"), c.devices("npu")) == (32, 3584, 7168, 256, 0)
    assert c.peak("fp64") == 256 * 34e12
    assert c.peak("fp64", of="cpu") == 64 * 3.6e12
    assert c.memory("hbm") == 256 * 80e9
    assert c.memory() == 256 * 80e9 + 32 * 2e12


def test_objects_are_made_on_demand(data):
    node = cluster.from_dict(data).node(17)
    bandwidth = node.device(3).memory.bandwidth
    assert (bandwidth, bandwidth.source, bandwidth.measured) == (3.35e12, "data sheet", 3.1e12)
    assert node.device(3).peak["bf16"] == 989.4e12
    assert node.numa[1].cores == range(56, 112)
    assert node.core(60).threads == (60, 172)
    assert node.siblings[0] == (0, 112)
    assert set(node.cache_domains(3)) == {0, 1}
    assert (node.name, node.rack) == ("gpu-17", 4)


def test_flops_of_a_socket_are_derived_and_marked(data):
    del data["group"][0]["node"]["socket"][0]["flops"]
    data["group"][0]["node"]["socket"][0]["fma_units"] = 2
    peak = cluster.from_dict(data).node(0).sockets[0].peak("fp64")
    assert peak.derived
    assert peak == 56 * 2.0e9 * 8 * 2 * 2


def test_the_messages_of_the_specification(data):
    node = data["group"][0]["node"]
    node["nic"][0]["rate"] = "400 gb/s"
    node["devices"] = node["device"]
    lines = faults(data)
    assert 'my.toml: group.gpu.node.nic.rate: "400 gb/s": unit not understood (did you mean "400 Gb/s" bits, or "400 GB/s" bytes?)' in lines
    assert 'my.toml: group.gpu.node.devices: unknown key (did you mean "device"?)' in lines
    assert len(lines) == 2


def test_too_few_ports_says_how_many_are_missing(data):
    data["group"][0]["count"] = 128
    data["network"]["compute"] = {
        "topology": "dragonfly", "groups": 8, "switches_per_group": 8, "endpoints_per_switch": 8,
    }  # fmt: skip
    (line,) = faults(data)
    expected = 'my.toml: network.compute: dragonfly offers 512 endpoints, but group "gpu" needs 1024 (128 nodes × 8 NICs)'
    assert line.startswith(expected)
    assert "512 ports are missing" in line


def _set(*steps):
    *where, value = steps

    def change(data):
        for step in where[:-1]:
            data = data[step]
        data[where[-1]] = value

    return change


NODE = ("group", 0, "node")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (_set("group", 0, "count", 0), "group.gpu.count: found 0; expected a whole number from 1 to 10,000,000"),
        (_set("group", 0, "count", 10**9), "group.gpu.count: found 1000000000"),
        (_set("group", 0, "count", 1.5), "group.gpu.count: found 1.5"),
        (_set("group", 0, "count", True), "group.gpu.count: found true"),
        (_set(*NODE, "device", 0, "near", "socket:2"), 'group.gpu.node.device.near: found "socket:2"; the node has 2 sockets'),
        (_set(*NODE, "device", 0, "near", "device:1"), 'near: found "device:1"; expected socket:k or numa:k'),
        (_set(*NODE, "device", 0, "near", ["socket:0"]), "group.gpu.node.device.near: found 1 entries; expected 8"),
        (_set(*NODE, "nic", 0, "network", "comput"), 'nic.network: found "comput"; expected one of the networks: compute'),
        (_set(*NODE, "socket", 0, "numa", 3), "group.gpu.node.socket.numa: found 3; expected a divisor of the 56 cores"),
        (_set(*NODE, "socket", 0, "caches", 2, "shared_by", 5), "group.gpu.node.socket.caches[2].shared_by: found 5"),
        (_set(*NODE, "device", 0, "peak", "fp8", "100 TFLOP/s"), "looks swapped"),
        (_set(*NODE, "device", 0, "peak", "int8", "100 TFLOP/s"), "a compute rate where an integer compute rate"),
        (_set(*NODE, "memory", 0, "bandwidth", "614 Mb/s"), "memory.ddr5.bandwidth: found 76.75 MB/s; expected 1 GB/s to 100 TB/s"),
        (_set(*NODE, "memory", 0, "bandwidth", "-1 GB/s"), "expected more than 0"),
        (_set(*NODE, "memory", 0, "kind", "drum"), 'group.gpu.node.memory.ddr5.kind: found "drum"; expected "hbm", "dram"'),
        (_set(*NODE, "memory", 0, "unusual", "yes"), 'unusual: found "yes"; expected true or false'),
        (_set(*NODE, "power", "idle", "20 kW"), "group.gpu.node.power.idle: found 20 kW, more than peak with 10.2 kW"),
        (_set(*NODE, "link", 0, "between", "cpu"), 'group.gpu.node.link[0].between: found "cpu"'),
        (_set(*NODE, "link", 0, "pairs", [[0, 9]]), "group.gpu.node.link[0].pairs: found [0, 9]"),
        (_set(*NODE, "link", 0, "topologi", 1), 'group.gpu.node.link[0].topologi: unknown key (did you mean "topology"?)'),
        (_set(*NODE, "socket", {}), "group.gpu.node.socket: found a table; expected an array"),
        (_set(*NODE, "socket", 0, "cores", {"value": 56, "sauce": "x"}), 'unknown key "sauce"'),
        (_set("network", "compute", "topology", "dragon"), 'topology: found "dragon"; expected dragonfly, fat-tree'),
        (_set("network", "compute", "k", 4), "network.compute.k: unknown key"),
        (_set("network", "compute", {"topology": "fat-tree", "k": 5}), "network.compute.k: found 5; expected an even number"),
        (_set("network", "compute", {"topology": "fat-tree"}), "network.compute: a fat tree has either k or levels"),
        (_set("network", "compute", {"topology": "torus", "dims": [4, 4]}), "torus offers 16 endpoints"),
        (_set("network", "compute", {"topology": "torus", "dims": [1000]}), "torus has 1000 endpoints, but 256 are attached"),
        (
            _set("network", "compute", {
                "topology": "dragonfly", "groups": 100, "switches_per_group": 4, "endpoints_per_switch": 4, "global_ports": 2}),
            "groups: found 100; 1 link to each of 99 other groups need 99 global ports, a group has 8 (4 switches × 2)",
        ),
        (_set("network", "compute", {"topology": "rail", "rails": 8, "leaf_ports": 16}), "offers 128 endpoints"),
        (_set("network", "compute", {}), "network.compute.topology: missing"),
        (_set("site", "pue", 0.5), "site.pue: found 0.5; expected a number from 1 to 100"),
        (_set("site", "energy_price", 0.2), "site.energy_price: 0.2: a price without a currency"),
        (_set("site", "carbon_intensity", {"trace": "nowhere.csv"}), 'site.carbon_intensity: "nowhere.csv": no such file'),
        (_set("armillary", 2), "armillary: found 2; expected 1"),
        (_set("extends", "dgx-h10"), 'unknown preset "dgx-h10" (did you mean "dgx-h100"'),
        (_set("extends", 3), "extends: expected the name"),
    ],
)  # fmt: skip
def test_a_fault_is_named_with_its_key(data, change, says):
    change(data)
    assert any(says in line and line.startswith("my.toml: ") for line in faults(data)), faults(data)


def test_unusual_bandwidths_can_be_meant(data):
    memory = data["group"][0]["node"]["memory"][0]
    memory["bandwidth"], memory["unusual"] = "614 Mb/s", True
    assert cluster.from_dict(data).node(0).memory().bandwidth == 614e6 / 8


def test_all_faults_come_at_once_up_to_twenty(data):
    for i in range(30):
        data["group"][0]["node"][f"key{i}"] = 1
    lines = faults(data)
    assert len(lines) == 21
    assert lines[-1] == "and 10 more"


def test_a_short_array_is_not_also_called_short_when_its_entry_is_wrong(data):
    data["network"]["compute"] = {"topology": "fat-tree", "levels": [{"down": 0, "switches": 1}]}
    assert len(faults(data)) == 1


def test_names_must_differ(data):
    data["group"].append(copy.deepcopy(data["group"][0]))
    assert 'my.toml: group.gpu: two groups are called "gpu"' in faults(data)


@pytest.mark.parametrize("text", ["a = ", "\x00", "[a]\n[a]", "x" * 100, "a = " + "[" * 5000])
def test_what_is_no_toml_is_said(tmp_path, text):
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(InputError):
        cluster.load(path)


def test_missing_and_binary_files_are_said(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        cluster.load(tmp_path / "none.toml")
    (tmp_path / "b.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="not UTF-8"):
        cluster.load(tmp_path / "b.toml")
    with pytest.raises(InputError, match="no such file"):
        cluster.load(tmp_path)


# extends


def test_extends_merges_tables_and_named_entries(tmp_path):
    path = tmp_path / "my.toml"
    path.write_text("""
armillary = 1
name = "mine"
extends = "dgx-h100"
[[group]]
name = "gpu"
count = 32
  [group.node]
  power = { idle = "2.4 kW" }
  [[group.node.memory]]
  name = "ddr5"
  size = "1 TB"
  [[group.node.device]]
  kind = "gpu"
  count = 4
  near = "socket:0"
""")
    c = cluster.load(path)
    node = c.group("gpu").node
    assert (c.name, c.nodes, c.devices("gpu")) == ("mine", 32, 128)
    assert (node.power.idle, node.power.peak) == (2400, 10200)
    assert [m.name for m in node.memories] == ["ddr5", "os", "cache"]
    assert (node.memories[0].size, node.memories[0].bandwidth) == (1e12, 614e9)
    assert node.devices[0].memory.bandwidth == 3.35e12


@pytest.mark.parametrize("number", ['"9 kW"', '{value = "9 kW"}'])
def test_a_changed_number_does_not_keep_the_old_source(tmp_path, number):
    path = tmp_path / "my.toml"
    path.write_text(f'armillary = 1\nname = "m"\nextends = "dgx-h100"\n[[group]]\nname = "gpu"\nnode.power.peak = {number}\n')
    peak = cluster.load(path).group("gpu").node.power.peak
    assert (peak, peak.source) == (9000, None)


def test_another_topology_replaces_the_network(tmp_path):
    path = tmp_path / "my.toml"
    path.write_text('armillary = 1\nname = "m"\nextends = "dgx-h100"\n[network.compute]\ntopology = "star"\nrate = "400 Gb/s"\n')
    assert cluster.load(path).network("compute").topology == "star"


def test_files_extend_files_and_circles_are_refused(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "c.csv").write_text("time,g_per_kwh\n2024-01-01T00:00Z,100\n2024-01-01T01:00Z,300\n")
    (tmp_path / "sub" / "base.toml").write_text(
        'armillary = 1\nname = "b"\n[site]\ncarbon_intensity = {trace = "c.csv"}\n[[group]]\nname = "g"\ncount = 2\n'
    )
    (tmp_path / "top.toml").write_text('extends = "sub/base.toml"\nname = "top"\n')
    c = cluster.load(tmp_path / "top.toml")
    assert c.name == "top"
    assert c.carbon(3.6e6, "2024-01-01T01:30Z") == 300
    (tmp_path / "a.toml").write_text('extends = "b.toml"\n')
    (tmp_path / "b.toml").write_text('extends = "a.toml"\n')
    with pytest.raises(InputError, match="circle"):
        cluster.load(tmp_path / "a.toml")


def test_a_preset_that_names_a_file_can_be_extended_from_elsewhere(tmp_path):
    (tmp_path / "m.toml").write_text('armillary = 1\nname = "m"\nextends = "two-clusters-insitu"\n')
    assert cluster.load(tmp_path / "m.toml").endpoints() == 384


# parts


def test_a_part_fills_what_the_file_leaves_out(data):
    data["group"][0]["node"]["device"] = [{"count": 2, "kind": "gpu", "model": "a100-40", "memory": {"kind": "hbm", "size": "39 GB"}}]
    device = cluster.from_dict(data).node(0).device(1)
    assert (device.peak["bf16"], device.memory.bandwidth, device.memory.size) == (312e12, 1.555e12, 39e9)
    assert device.memory.bandwidth.source
    assert device.memory.size.source is None


def test_a_model_that_nobody_knows_is_only_a_name(data):
    assert cluster.from_dict(data).node(0).device(0).model == "Some GPU"


def test_the_catalogue_has_what_the_specification_names():
    known = cluster.parts()
    assert {"xeon-8480+", "epyc-9654", "epyc-7763", "epyc-7742", "grace", "a64fx", "graviton3"} == set(known["socket"])
    assert len(known["device"]) >= 21


# equality, digest, round trip


def test_round_trips_are_equal(data, tmp_path):
    c = cluster.from_dict(data)
    for name, text in (("a.toml", c.to_toml()), ("a.json", c.to_json())):
        (tmp_path / name).write_text(text)
        assert cluster.load(tmp_path / name) == c
    assert json.loads(c.to_json())["group"][0]["node"]["nic"][0]["rate"] == 50e9


def test_two_processes_give_one_digest(file_text, tmp_path):
    (tmp_path / "my.toml").write_text(file_text)
    here = cluster.load(tmp_path / "my.toml")
    code = f"from armillary import cluster; c = cluster.load({str(tmp_path / 'my.toml')!r}); print(c.digest, hash(c))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert out == [here.digest, str(hash(here))]


def _numbers(data, at=()):
    """Paths of all numbers and texts with numbers."""
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in items:
        if isinstance(value, dict | list):
            yield from _numbers(value, (*at, key))
        elif isinstance(value, int | float) or (isinstance(value, str) and value[:1].isdigit()):
            yield (*at, key)


def test_any_changed_number_changes_the_digest(data):
    seen = {cluster.from_dict(data).digest}
    tried = 0
    for path in list(_numbers(data)):
        if path == ("armillary",):
            continue
        for factor in (2, 1.0001):
            changed = copy.deepcopy(data)
            inner = changed
            for step in path[:-1]:
                inner = inner[step]
            old = inner[path[-1]]
            if isinstance(old, str):
                number, unit = old.split(" ")
                inner[path[-1]] = f"{float(number) * factor!r} {unit}"
            else:
                inner[path[-1]] = old * factor if isinstance(old, float) else int(old * 2)
            try:
                digest = cluster.from_dict(changed).digest
            except InputError:
                continue
            assert digest not in seen or factor != 2, path
            seen.add(digest)
            tried += 1
            break
    assert tried > 30


def test_a_trace_counts_by_content_not_by_name(data, tmp_path):
    rows = "time,g_per_kwh\n2024-01-01T00:00Z,100\n2024-01-01T01:00Z,{}\n"
    digests = []
    for name, last in (("a.csv", 300), ("b.csv", 300), ("c.csv", 301)):
        (tmp_path / name).write_text(rows.format(last))
        data["site"]["carbon_intensity"] = {"trace": name}
        digests.append(cluster.from_dict(data, base=tmp_path).digest)
    assert digests[0] == digests[1] != digests[2]


def test_imports_stay_light():
    heavy = "{'numba', 'scipy', 'polars', 'networkx', 'torch', 'plotly'}"
    code = f"""
import sys
from armillary import cluster
assert not {{'numpy', 'pydantic'}} & set(sys.modules), 'heavy import of the package'
c = cluster.preset('frontier')
c.graph(); c.summary(); c.to_toml(); c.power
assert not {heavy} & set(sys.modules), {heavy} & set(sys.modules)
c.path(0, 30000)
assert 'numba' in sys.modules and 'networkx' not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_files_of_other_tools_are_loaded_by_the_same_call(tmp_path, file_text):
    (tmp_path / "slurm.conf").write_text(
        "ClusterName=test\nNodeName=n[001-128,130] CPUs=64 Sockets=2 CoresPerSocket=16 ThreadsPerCore=2 RealMemory=256000\n"
    )
    c = cluster.load(tmp_path / "slurm.conf")
    assert (c.nodes, c.cores, c.threads) == (129, 129 * 32, 129 * 64)
    (tmp_path / "machine.txt").write_text(file_text)
    assert cluster.load(tmp_path / "machine.txt").name == "my-cluster"


@pytest.mark.parametrize("line", ['extends = "my.toml"', '[power]\ncarbon_intensity = "week.csv"', '[[link]]\nedges = "wires.csv"'])
def test_text_that_may_not_name_files_is_refused_where_it_does(line):
    with pytest.raises(InputError, match="files cannot be named here"):
        cluster.loads(line, files=False)


def test_text_may_extend_a_preset_and_nests_only_so_deep(file_text):
    assert cluster.loads(file_text, files=False) == cluster.loads(file_text)
    extended = cluster.loads('extends = "dgx-h100"\nname = "mine"', files=False)
    assert extended.devices("gpu") == cluster.find("dgx-h100").devices("gpu")
    with pytest.raises(InputError, match="nested too deep"):
        cluster.loads("a = " + "[" * 100_000 + "]" * 100_000)
