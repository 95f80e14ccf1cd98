"""Meters: powercap trees as kernels make them, a real thread that samples, refusals, wraps, files, and simulated readings."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from armillary.arena import NotForThisCase
from armillary.errors import InputError
from armillary.runtime.energy import Meter, NoMeter, Nvml, Perf, Rapl, TaskPower, intervals, read_readings, zones
from armillary.runtime.energy.arena import energy
from armillary.tasks import Graph, Threads

UNREADABLE = not os.access("/sys/class/powercap/intel-rapl:0/energy_uj", os.R_OK)


def powercap(folder: Path) -> Path:
    """Two packages with parts, the platform, the same package again through memory-mapped registers, and the control type, by links."""
    devices, tree = folder / "devices", folder / "class"
    tree.mkdir(parents=True)
    layout = {
        "intel-rapl": None, "intel-rapl:0": ("package-0", 5_000_000, 262_143_328_850), "intel-rapl:0:0": ("core", 3_000_000, 262_143_328_850),
        "intel-rapl:0:1": ("dram", 1_000_000, 65_712_999_613), "intel-rapl:1": ("package-1", 262_143_328_000, 262_143_328_850),
        "intel-rapl:1:0": ("core", 7, 262_143_328_850), "intel-rapl:2": ("psys", 99_000_000, 262_143_328_850), "intel-rapl-mmio": None,
        "intel-rapl-mmio:0": ("package-0", 5_000_001, 262_143_328_850),
    }  # fmt: skip
    for name, facts in layout.items():
        place = devices / name.replace(":", "/")
        place.mkdir(parents=True)
        if facts is not None:
            (place / "name").write_text(f"{facts[0]}\n")
            (place / "energy_uj").write_text(f"{facts[1]}\n")
            (place / "max_energy_range_uj").write_text(f"{facts[2]}\n")
            (place / "constraint_0_name").write_text("long_term\n")
        (place / "enabled").write_text("1\n")
        (tree / name).symlink_to(place)
    return tree


def test_parts_of_a_package_are_never_added_to_it(tmp_path: Path) -> None:
    tree = powercap(tmp_path)
    assert [zone.domain for zone in zones(tree)] == ["package-0", "package-1"]
    assert [zone.domain for zone in zones(tree, parts=True)] == ["package-0", "package-0/core", "package-0/dram", "package-1", "package-1/core"]
    source = Rapl(tree)
    assert [source.read(0), source.read(1)] == pytest.approx([5.0, 262_143.328])
    assert source.wraps == pytest.approx((262_143.32885,) * 2)
    source.close()


def test_a_meter_follows_counters_across_their_wrap(tmp_path: Path) -> None:
    tree = powercap(tmp_path)
    counters = [tree / name / "energy_uj" for name in ("intel-rapl:0", "intel-rapl:1")]
    with Meter("rapl", period=0.002, root=tree) as meter:
        for step in range(1, 21):
            time.sleep(0.004)
            for counter, value in zip(counters, (5_000_000 + step * 20_000, (262_143_328_000 + step * 100) % 262_143_328_850)):
                with counter.open("r+b", buffering=0) as file:  # In one call and in place, as a kernel answers.
                    file.write(f"{value:012d}\n".encode())
        time.sleep(0.004)
    found = meter.readings
    assert set(found) == {"package-0", "package-1"}
    assert found["package-0"].steps().sum() == pytest.approx(0.4)
    assert found["package-1"].steps().sum() == pytest.approx(20 * 100e-6, rel=1e-6), "the second counter wrapped"
    assert (np.diff(found["package-0"].time) > 0).all()
    assert (found["package-0"].half_ns >= 0).all()
    assert len(intervals(found["package-0"])) >= 5
    back = read_readings(meter.write(tmp_path / "e.csv"), wrap_j=found["package-1"].wrap_j)
    assert back["package-0"].value.tolist() == found["package-0"].value.tolist()
    assert back["package-0"].time.tolist() == found["package-0"].time.tolist()


def test_a_counter_that_only_root_may_read_is_refused_with_that_reason(tmp_path: Path) -> None:
    tree = powercap(tmp_path)
    (tree / "intel-rapl:0" / "energy_uj").chmod(0)
    code = f"from armillary.runtime.energy import Rapl, NoMeter\ntry: Rapl({str(tree)!r})\nexcept NoMeter as reason: print(reason)"
    if os.geteuid():
        said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    else:
        if not shutil.which("setpriv"):
            pytest.skip("root reads everything, and there is no setpriv to become another user")
        for folder in (tmp_path, *tmp_path.parents):
            if folder != Path("/") and folder.stat().st_uid == os.geteuid() and not folder.stat().st_mode & 0o001:
                folder.chmod(folder.stat().st_mode | 0o055)
        # A user of no name keeps no cache of compiled loops, and this needs none.
        drop = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", sys.executable, "-c", code]
        run = subprocess.run(drop, capture_output=True, text=True, env={**os.environ, "HOME": str(tmp_path)})
        if run.returncode:
            pytest.skip("another user cannot run this interpreter here")
        said = run.stdout
    assert "may be read by root only" in said


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda tree: shutil.rmtree(tree), "does not exist"),
        (lambda tree: [(tree / name).unlink() for name in os.listdir(tree) if ":" in name], "no package"),
        (lambda tree: (tree / "intel-rapl:0" / "energy_uj").write_text("many\n"), "does not hold microjoules"),
        (lambda tree: (tree / "intel-rapl:1" / "max_energy_range_uj").write_text("0\n"), "does not hold microjoules"),
        (lambda tree: (tree / "intel-rapl:1" / "name").write_text("package-0\n"), "two zones of one name"),
    ],
)
def test_a_tree_that_is_no_meter_says_why(tmp_path: Path, spoil: Any, said: str) -> None:
    tree = powercap(tmp_path)
    spoil(tree)
    with pytest.raises(NoMeter, match=said):
        Rapl(tree)


@pytest.mark.skipif(not UNREADABLE, reason="this machine's RAPL counters can be read")
def test_this_machine_declines_the_real_cases_with_the_reason() -> None:
    with pytest.raises(NoMeter, match=r"RAPL|root only"):
        Meter("rapl")
    case = next(case for case in energy.built_in("tiny") if case.name == "meter-rapl-1")
    found = energy.execute(energy.make("taskwise"), case.at(0, 0))
    assert isinstance(found, NotForThisCase)
    assert "no rapl meter: " in str(found)


def test_performance_events_decline_where_there_are_none(tmp_path: Path) -> None:
    with pytest.raises(NoMeter, match="no event energy-pkg"):
        Perf(tmp_path)
    (tmp_path / "events").mkdir()
    scale = "2.3283064365386962890625e-10"
    for name, text in {"type": "9999", "cpumask": "0", "events/energy-pkg": "event=0x02", "events/energy-pkg.scale": scale}.items():
        (tmp_path / name).write_text(text + "\n")
    with pytest.raises(NoMeter, match="may not be read"):
        Perf(tmp_path)  # The kernel itself refuses a device of this number.
    (tmp_path / "events/energy-pkg").write_text("umask=3\n")
    with pytest.raises(NoMeter, match="not in a form"):
        Perf(tmp_path)


class Library:
    """NVML as far as it is asked."""

    class NVMLError(Exception):
        pass

    def __init__(self, counts: bool = True, devices: int = 2, starts: bool = True, says: bool = True) -> None:
        self.counts, self.devices, self.starts, self.says, self.ended = counts, devices, starts, says, 0

    def nvmlInit(self) -> None:
        if not self.starts:
            raise self.NVMLError("driver not loaded")

    def nvmlShutdown(self) -> None:
        self.ended += 1

    def nvmlDeviceGetCount(self) -> int:
        return self.devices

    def nvmlDeviceGetHandleByIndex(self, number: int) -> int:
        return number

    def nvmlDeviceGetTotalEnergyConsumption(self, device: int) -> int:
        if not self.counts:
            raise self.NVMLError("not supported")
        return 1000 + device + int(time.monotonic() * 1e6) % 1000

    def nvmlDeviceGetPowerUsage(self, device: int) -> int:
        if not self.says:
            raise self.NVMLError("not supported")
        return 75_000 + 1000 * device


def test_gpus_are_read_by_counter_or_by_power() -> None:
    counter = Nvml(library=Library())
    assert (counter.form, counter.domains) == ("energy", ("gpu0", "gpu1"))
    sampled = Nvml(library=Library(counts=False))
    assert sampled.form == "power"
    assert sampled.read(1) == 76.0
    assert Nvml(power=True, library=Library()).form == "power"
    for broken, said in ((Library(starts=False), "does not start"), (Library(devices=0), "no GPU"), (Library(False, says=False), "neither")):
        with pytest.raises(NoMeter, match=said):
            Nvml(library=broken)
    library = Library()
    with Meter(Nvml(library=library), period=0.001) as meter:
        time.sleep(0.01)
    assert library.ended == 1
    assert len(meter.readings["gpu1"]) >= 3


class Counter:
    """A source that draws 20 W of a busy worker and 5 W of an idle one, by what the program below says of itself."""

    form, domains, wraps = "energy", ("package-0",), (0.0,)

    def __init__(self, workers: int) -> None:
        self.workers, self.lock = workers, threading.Lock()
        self.joules, self.since, self.running, self.closed = 0.0, time.monotonic_ns(), 0, False

    def add(self, change: int) -> None:
        with self.lock:
            now = time.monotonic_ns()
            self.joules += (self.running * 20.0 + (self.workers - self.running) * 5.0) * (now - self.since) * 1e-9
            self.since, self.running = now, self.running + change

    def read(self, number: int) -> float:
        self.add(0)
        return self.joules

    def close(self) -> None:
        self.closed = True


def test_a_program_that_ran_under_a_meter_is_fitted_on_one_clock() -> None:
    counter = Counter(2)

    def body(seconds: float) -> None:
        counter.add(1)
        time.sleep(seconds)
        counter.add(-1)

    graph = Graph()
    rng = np.random.Generator(np.random.PCG64DXSM(1))
    for i in range(60):
        graph.add(body, float(rng.uniform(0.004, 0.02)), name="a" if i % 3 else "b", key=f"t{i}")
        if i % 10 == 9:  # Everybody waits for one task, so that workers are idle now and then.
            last = graph.tasks[-10:]
            graph.add(body, 0.02, after=last, name="a", key=f"wait{i}")
            graph.tasks[-1].kind = ""
    with Meter(counter, period=0.01) as meter:
        run = graph.run(Threads(2))
    assert counter.closed
    model = TaskPower().fit(run.trace, meter.readings)
    # The clocks fit: with an offset of some periods the powers would be far from these.
    assert model.power_["a"] == pytest.approx(20.0, rel=0.2)
    assert model.power_["b"] == pytest.approx(20.0, rel=0.3)
    assert model.power_["idle"] < 12.0
    row = next(i for i, key in enumerate(run.trace.keys) if key == "t5")
    at = int(np.flatnonzero(run.trace["task"] == row)[0])
    lasted = (run.trace["body_ended"][at] - run.trace["started"][at]) * 1e-9
    assert model.energy_of("t5") == pytest.approx(model.power_["a"] * lasted)
    total = model.predict(run.trace)
    assert total == pytest.approx(counter.joules, rel=0.15)
    table = model.table()
    assert set(table["type"]) == {"a", "b", "idle"}
    assert table["share"].sum() == pytest.approx(1.0)
    with pytest.raises(InputError, match="found 0 such tasks"):
        model.energy_of("nobody")
    assert TaskPower(**model.get_params()).set_params(huber=False).huber is False
    with pytest.raises(InputError, match="unknown parameter"):
        model.set_params(alpha=1)


def test_a_meter_that_breaks_in_mid_run_says_so_and_is_closed() -> None:
    class Breaks(Counter):
        calls = 0

        def read(self, number: int) -> float:
            self.calls += 1
            if self.calls > 3:
                raise OSError("the device is gone")
            return super().read(number)

    source = Breaks(1)
    with pytest.raises(OSError, match="gone"), Meter(source, period=0.001) as meter:
        time.sleep(0.03)
    assert source.closed
    assert len(meter.readings["package-0"]) == 3
    with pytest.raises(InputError, match="period"):
        Meter(Counter(1), period=0.0)
    with pytest.raises(InputError, match="unknown meter"):
        Meter("wall")


def test_the_thread_of_a_meter_ends_when_the_program_raises() -> None:
    source = Counter(1)
    with pytest.raises(ZeroDivisionError), Meter(source, period=0.001):
        _ = 1 / 0
    assert source.closed
    assert not [one for one in threading.enumerate() if one.name == "armillary-meter"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("time_s,domain\n0,p\n", "energy_j in joules or power_w in watts"),
        ("time_s,domain,energy_j,power_w\n0,p,1,1\n", "both energy_j and power_w"),
        ("time_s,domain,energy_j\n0,p,1\n1,p,-2\n", 'e.csv:3: column "energy_j"'),
        ("time_s,domain,power_w\n0,p,nan\n", "power_w"),
        ("time_s,domain,energy_j\n0,p,1\n2,p,2\n1,p,3\n", "e.csv:4"),
        ("time_s,domain,energy_j\n0,p,1\n1,p,2\n1,p,3\n", "not after the last"),
        ("time_s,domain,energy_j\n0,p,3\n1,p,2\n2,p,4\n", "its --wrap in joules"),
        ("domain,energy_j\np,3\n", "time_s"),
        ("time_s,domain,energy_j\n", "no rows"),
        ("time_s,domain,energy_j\n1e300,p,1\n", "time_s"),
    ],
)
def test_wrong_readings_are_one_line(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "e.csv").write_text(text)
    with pytest.raises(InputError) as found:
        read_readings(tmp_path / "e.csv")
    assert said in str(found.value)
    assert "\n" not in str(found.value)


def test_rows_of_several_domains_may_be_mixed(tmp_path: Path) -> None:
    (tmp_path / "e.csv").write_text("time_s,domain,power_w\n0,a,10\n0,b,1\n1,b,2\n1,a,20\n3,a,30\n")
    found = read_readings(tmp_path / "e.csv")
    assert found["a"].steps().tolist() == [20.0, 60.0], "a power stands for the time since the reading before"
    assert found["b"].value.tolist() == [1.0, 2.0]
