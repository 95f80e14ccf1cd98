"""Detects what is known about power: readable energy counters, the limits of packages, and sensors.

The idle and peak power of the whole node are not derived from these; they stay unknown until someone measures them.
"""

from __future__ import annotations

import re

from armillary.cluster.detect.tree import Facts, Tree

POWERCAP = "/sys/class/powercap"
HWMON = "/sys/class/hwmon"


def read_power(tree: Tree, facts: Facts) -> dict[int, float]:
    """The sustained power limit of each package in watts, if the running-average limits (RAPL) state it."""
    limits: dict[int, float] = {}
    for zone in tree.names(POWERCAP)[:1024]:
        match = re.fullmatch(r"package-([0-9]{1,4})(-die-[0-9]{1,4})?", tree.text(f"{POWERCAP}/{zone}/name") or "")
        if not match:
            continue
        package = int(match[1])
        readable = tree.number(f"{POWERCAP}/{zone}/energy_uj") is not None
        facts.add(f"power.package{package}.energy_readable", readable, f"{POWERCAP}/{zone}/energy_uj")
        path = f"{POWERCAP}/{zone}/constraint_0_max_power_uw"
        microwatts = tree.number(path)
        if microwatts and 1e6 <= microwatts <= 1e10:
            # A package may appear twice (through registers and through memory); the dies of one package add up.
            if match[2]:
                limits[package] = limits.get(package, 0.0) + microwatts / 1e6
            else:
                limits[package] = microwatts / 1e6
            facts.add(f"power.package{package}.limit", microwatts / 1e6, path)
    for sensor in tree.names(HWMON)[:1024]:
        label = tree.text(f"{HWMON}/{sensor}/name")
        for reading in ("power1_average", "power1_input"):
            microwatts = tree.number(f"{HWMON}/{sensor}/{reading}") if label else None
            if microwatts is not None and 0 < microwatts <= 1e12:
                facts.add(f"power.{label}.{sensor}", microwatts / 1e6, f"{HWMON}/{sensor}/{reading}")
                break
    return limits
