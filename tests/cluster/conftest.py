"""Small clusters that several tests of this folder use."""

from __future__ import annotations

import pytest

from armillary.cluster import from_dict

FILE = """
armillary = 1
name = "my-cluster"
description = "two racks of H100 nodes"

[site]
pue = 1.2
carbon_intensity = "180 g/kWh"
energy_price = "0.18 EUR/kWh"
embodied = "7320 t"
lifetime = "6 y"

[[group]]
name = "gpu"
count = 32
mtbf = "5 y"
repair = "6 h"

  [group.node]
  rack = 4
  power = { idle = "2.4 kW", peak = "10.2 kW" }

  [[group.node.socket]]
  count = 2
  model = "Some CPU"
  cores = 56
  threads_per_core = 2
  numa = 1
  clock = { base = "2.0 GHz", max = "3.8 GHz" }
  flops = { fp64 = "3.6 TFLOP/s" }
  simd = "avx512"
  caches = [ { level = 1, size = "48 KiB", shared_by = 1 }, { level = 2, size = "2 MiB", shared_by = 1 },
             { level = 3, size = "105 MiB", shared_by = 56 } ]
  tdp = "350 W"

  [[group.node.memory]]
  name = "ddr5"
  kind = "dram"
  size = "2 TB"
  bandwidth = "614 GB/s"
  latency = "110 ns"
  attached = "socket"

  [[group.node.device]]
  count = 8
  kind = "gpu"
  model = "Some GPU"
  peak = { fp64 = "34 TFLOP/s", bf16 = "989.4 TFLOP/s", fp8 = "1978.9 TFLOP/s", int8 = "1978.9 TOPS" }
  memory = { kind = "hbm", size = "80 GB", bandwidth = { value = "3.35 TB/s", source = "data sheet", measured = "3.1 TB/s" } }
  power = { idle = "70 W", peak = "700 W" }
  warp_size = 32
  shared = { banks = 32, bank_bytes = 4, size = "228 KiB", vector_bytes = 16 }
  near = "socket:0"

  [[group.node.nic]]
  count = 8
  model = "ConnectX-7"
  rate = "400 Gb/s"
  network = "compute"
  near = "device"

  [[group.node.link]]
  kind = "nvlink"
  topology = "switch"
  between = "device"
  rate = "450 GB/s"
  latency = "0.5 us"

  [[group.node.link]]
  kind = "pcie"
  topology = "tree"
  between = ["socket", "device"]
  rate = "63 GB/s"
  latency = "0.9 us"

[network.compute]
topology = "rail"
rails = 8
leaf_ports = 64
spines = 8
rate = "400 Gb/s"
latency = { nic = "0.6 us", switch = "0.13 us", metre = "5 ns" }
length = { local = "3 m", global = "30 m" }
"""


@pytest.fixture(scope="session")
def file_text():
    """A cluster file that uses most of the schema."""
    return FILE


@pytest.fixture(scope="session")
def network_of():
    """Makes a cluster of `nodes` nodes with `nics` NICs each on one network of 1 GB/s links."""

    def make(nodes, nics=1, **network):
        node = {"nic": [{"count": nics, "network": "net", "rate": "1 GB/s"}]}
        table = {"rate": "1 GB/s", "latency": {"nic": "0.6 us", "switch": "0.1 us"}, **network}
        return from_dict({"armillary": 1, "name": "x", "group": [{"name": "g", "count": nodes, "node": node}], "network": {"net": table}})

    return make
