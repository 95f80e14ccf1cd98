"""Transactions over files and staging: times by hand, order, lateness, end and cancellation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from armillary.cluster import Cluster, from_dict
from armillary.engine import Deadlock
from armillary.errors import InputError
from armillary.network.transport import EndOfStream, Extras, Layer, StreamSettings, TransactionCancelled


def machine(nodes: int = 2, size: str = "1 TB") -> Cluster:
    """Nodes with an SSD of 510 and 560 MB/s, and 1 GB/s links without latency."""
    disk = {"name": "ssd", "kind": "ssd", "size": size, "bandwidth": "560 MB/s", "write_bandwidth": "510 MB/s", "attached": "node"}
    store = {"name": "pfs", "kind": "pfs", "size": "1 TB", "bandwidth": "200 MB/s", "write_bandwidth": "100 MB/s", "attached": "network"}
    node = {
        "socket": [{"count": 1, "cores": 4, "flops": {"fp64": "4 GFLOP/s"}}], "memory": [disk, store],
        "nic": [{"rate": "1 GB/s", "network": "net"}],
    }  # fmt: skip
    net = {"topology": "star", "rate": "1 GB/s", "latency": "0 s"}
    return from_dict({"armillary": 1, "name": "m", "group": [{"name": "g", "count": nodes, "node": node}], "network": {"net": net}})


FILES = StreamSettings("s", "File", "File")
STAGING = StreamSettings("s", "Staging", "Mailbox")
PLAIN = Extras(1e9, 0.0)


def publisher(layer: Layer, size: int, times: list[float], steps: int = 1, path: str = "/data", wait: float = 0.0) -> Callable[[Any], None]:
    def run(dtl: Any) -> None:
        stream = dtl.connect().stream("s")
        v = stream.define_variable("v", (size,), (0,), (size,), itemsize=1)
        engine = stream.open(path, "publish")
        for _ in range(steps):
            if wait:
                dtl.sleep(wait)
            engine.begin()
            times.append(dtl.now)
            engine.put(v)
            engine.end()
        engine.close()
        dtl.disconnect()
        times.append(dtl.now)

    return run


def subscriber(times: list[float], path: str = "/data", most: int = 100) -> Callable[[Any], int]:
    def run(dtl: Any) -> int:
        stream = dtl.connect().stream("s")
        engine = stream.open(path, "subscribe")
        for taken in range(most):
            try:
                engine.begin()
            except EndOfStream:
                return taken
            engine.get(stream.inquire_variable("v"))
            engine.end()
            times.append(dtl.now)
        engine.close()
        return most

    return run


def test_a_file_is_written_and_read_at_the_disks_rates() -> None:
    layer = Layer(machine(), [FILES], extras=PLAIN)
    wrote: list[float] = []
    read: list[float] = []
    layer.start(publisher(layer, 510_000_000, wrote), 0)
    done = layer.start(subscriber(read), 0)
    assert layer.run() == pytest.approx(1.0 + 510 / 560)
    assert wrote == [0.0, pytest.approx(1.0)]
    assert read == [pytest.approx(1.0 + 510 / 560)]
    assert done.value == 1
    assert layer.connected == 1, "the subscriber did not disconnect"


def test_a_reader_elsewhere_takes_the_network_after_the_disk() -> None:
    layer = Layer(machine(), [FILES], extras=PLAIN)
    layer.start(publisher(layer, 500_000_000, []), 0)
    layer.start(subscriber([]), 1)
    assert layer.run() == pytest.approx(500 / 510 + 500 / 560 + 0.5)


def test_the_shared_file_system_takes_network_and_disk_in_turn() -> None:
    layer = Layer(machine(), [FILES], extras=PLAIN)
    layer.start(publisher(layer, 100_000_000, [], path="/pfs/x"), 0)
    layer.start(subscriber([], path="/pfs/x"), 1)
    assert layer.run() == pytest.approx(0.1 + 1.0 + 0.5 + 0.1)


def test_writes_of_the_previous_transaction_hold_the_next_one() -> None:
    layer = Layer(machine(), [FILES], extras=PLAIN)
    times: list[float] = []
    layer.start(publisher(layer, 510_000_000, times, steps=3), 0)
    layer.run()
    assert times == pytest.approx([0.0, 1.0, 2.0, 3.0])


def test_files_may_be_read_after_all_publishers_have_closed() -> None:
    layer = Layer(machine(), [FILES], extras=PLAIN)
    read: list[float] = []
    layer.start(publisher(layer, 510_000_000, [], steps=2), 0)
    done = layer.start(subscriber(read), 0, at=100.0)
    layer.run()
    assert done.value == 2
    assert read == pytest.approx([100 + 510 / 560, 100 + 2 * 510 / 560])


def test_staging_waits_for_the_late_side() -> None:
    layer = Layer(machine(), [STAGING], extras=PLAIN)
    began: list[float] = []
    layer.start(publisher(layer, 1_000_000_000, began, steps=2), 0)
    layer.start(subscriber([]), 1, at=5.0)
    assert layer.run() == pytest.approx(7.0)
    assert began == pytest.approx([5.0, 6.0, 7.0]), "the first begins when the subscriber does; the second when its data have moved"


def test_staging_without_the_other_side_is_a_deadlock_that_names_it() -> None:
    layer = Layer(machine(), [STAGING], extras=PLAIN)
    layer.start(publisher(layer, 10, []), 0)
    with pytest.raises(Deadlock, match="all subscribers of s to begin transaction 1"):
        layer.run()
    layer = Layer(machine(), [STAGING], extras=PLAIN)
    layer.start(subscriber([]), 0)
    with pytest.raises(Deadlock, match="no publisher has opened it"):
        layer.run()


def test_message_queues_take_no_time() -> None:
    layer = Layer(machine(), [StreamSettings("s", "Staging", "MQ")], extras=PLAIN)
    layer.start(publisher(layer, 1_000_000_000, [], steps=3), 0)
    done = layer.start(subscriber([]), 1)
    assert layer.run() == 0.0
    assert done.value == 3


@pytest.mark.parametrize("settings", [FILES, STAGING], ids=["files", "staging"])
def test_the_end_of_a_stream_releases_every_subscriber(settings: StreamSettings) -> None:
    layer = Layer(machine(4), [settings], extras=PLAIN)
    for _ in range(2):
        layer.start(subscriber([]), 1)
    rest = [layer.start(subscriber([]), 2 + i) for i in range(2)]
    layer.start(publisher(layer, 100, [], steps=3, wait=1.0), 0)
    layer.run()
    assert [r.value for r in rest] == [3, 3]


@pytest.mark.parametrize("settings", [FILES, STAGING], ids=["files", "staging"])
def test_cancelling_releases_everybody(settings: StreamSettings) -> None:
    layer = Layer(machine(), [settings], extras=PLAIN)
    ended: list[tuple[str, float]] = []

    def taking(dtl: Any) -> None:
        engine = dtl.connect().stream("s").open("/data", "subscribe")
        with pytest.raises(TransactionCancelled):
            while True:
                engine.begin()
                engine.get(dtl.stream("s").inquire_variable("v"))
                engine.end()
        ended.append(("taking", dtl.now))

    def giving(dtl: Any) -> None:
        stream = dtl.connect().stream("s")
        v = stream.define_variable("v", (510_000_000,), (0,), (510_000_000,), itemsize=1)
        engine = stream.open("/data", "publish")
        with pytest.raises(TransactionCancelled):
            while True:
                engine.begin()
                engine.put(v)
                engine.end()
        ended.append(("giving", dtl.now))

    def cancelling(dtl: Any) -> None:
        dtl.sleep(0.25)
        dtl.connect().stream("s").open("/data", "subscribe").cancel()

    layer.start(giving, 0)
    layer.start(taking, 1)
    layer.start(cancelling, 0)
    layer.run()
    assert sorted(ended) == [("giving", 0.25), ("taking", 0.25)]


def test_two_publishers_wait_for_each_other_at_the_end() -> None:
    layer = Layer(machine(3), [FILES], extras=PLAIN)
    times: list[float] = []

    def half(which: int) -> Callable[[Any], None]:
        def run(dtl: Any) -> None:
            stream = dtl.connect().stream("s")
            v = stream.define_variable("v", (8,), (4 * which,), (4,), itemsize=1)
            engine = stream.open("/data", "publish")
            engine.begin()
            dtl.sleep(1.0 + which)
            engine.put(v)
            engine.end()
            times.append(dtl.now)
            engine.close()

        return run

    layer.start(half(0), 0)
    layer.start(half(1), 1)
    done = layer.start(subscriber([]), 2)
    layer.run()
    assert times == [2.0, 2.0]
    assert done.value == 1
    assert layer.metadata("s").text() == "1\tv\t1*{8}\n  Transaction 1:\n    /data/data.0: [0:4]\n    /data/data.1: [4:8]\n"


def test_publishers_that_begin_at_unlike_times_are_all_released() -> None:
    # The second publisher begins its second transaction at the very instant when the files of the first are written.
    layer = Layer(machine(3), [FILES], extras=PLAIN)
    times: list[float] = []

    def half(which: int) -> Callable[[Any], None]:
        def run(dtl: Any) -> None:
            stream = dtl.connect().stream("s")
            v = stream.define_variable("v", (1020,), (510 * which,), (510,), itemsize=1_000_000)
            engine = stream.open("/data", "publish")
            for _ in range(4):
                engine.begin()
                engine.put(v)
                engine.end()
                if which:
                    dtl.sleep(1.0)
            engine.close()
            times.append(dtl.now)

        return run

    layer.start(half(0), 0)
    layer.start(half(1), 1)
    layer.run()
    assert times == pytest.approx([4.0, 4.0])


def test_overlapping_publishers_and_wrong_calls_are_refused() -> None:
    layer = Layer(machine(), [FILES], extras=PLAIN)

    def giving(dtl: Any) -> None:
        stream = dtl.connect().stream("s")
        v = stream.define_variable("v", (8,), (0,), (5,), itemsize=1)
        engine = stream.open("/data", "publish")
        engine.begin()
        engine.put(v)
        engine.end()

    layer.start(giving, 0)
    layer.start(giving, 1)
    with pytest.raises(InputError, match="publishers 0 and 1 that overlap"):
        layer.run()

    def outside(dtl: Any) -> None:
        dtl.connect().stream("s").define_variable("v", (8,), (4,), (5,))

    layer = Layer(machine(), [FILES])
    layer.start(outside)
    with pytest.raises(InputError, match=r"from \[4\] to \[9\]"):
        layer.run()


def test_transactions_can_be_selected_from_files_alone() -> None:
    def selecting(first: int, many: int) -> Callable[[Any], list[float]]:
        def run(dtl: Any) -> list[float]:
            stream = dtl.connect().stream("s")
            engine = stream.open("/data", "subscribe")
            engine.select_transactions(first, many)
            times = []
            try:
                while True:
                    engine.begin()
                    engine.get(stream.inquire_variable("v"))
                    engine.end()
                    times.append(dtl.now)
            except EndOfStream:
                return times

        return run

    layer = Layer(machine(), [FILES], extras=PLAIN)
    layer.start(publisher(layer, 56, [], steps=5), 0)
    done = layer.start(selecting(2, 3), 0, at=10.0)
    layer.run()
    assert len(done.value) == 3
    layer = Layer(machine(), [FILES], extras=PLAIN)
    layer.start(publisher(layer, 56, [], steps=5), 0)
    layer.start(selecting(4, 3), 0, at=10.0)
    with pytest.raises(InputError, match="found transactions 4 to 6; expected 1 to 5"):
        layer.run()
    layer = Layer(machine(), [STAGING], extras=PLAIN)
    layer.start(publisher(layer, 56, []), 0)
    layer.start(selecting(2, 1), 0)
    with pytest.raises(InputError, match="with Staging, which keeps none"):
        layer.run()


def test_a_full_disk_is_named() -> None:
    layer = Layer(machine(size="1 GB"), [FILES], extras=PLAIN)
    layer.start(publisher(layer, 400_000_000, [], steps=3), 0)
    with pytest.raises(InputError, match=r"the disk of node g-0 is full: found 1\.2e\+09 bytes written; expected at most 1e\+09"):
        layer.run()
