"""What messages cost, by hand: every time here follows from the constants."""

from __future__ import annotations

import numpy as np
import pytest

from armillary import cluster, comm
from armillary.comm import ANY_SOURCE, Ghost, LogGP, SharedMemory
from armillary.errors import InputError

US = 1e-6
HAND = LogGP(latency=US, send_overhead=0.5 * US, receive_overhead=0.5 * US, byte_gap=1e-9)
MIB = 1 << 20


def virtual(program, *args, ranks=2, payload="ghost", constants=HAND, **options):
    return comm.run(program, *args, ranks=ranks, backend="virtual", payload=payload, constants=constants, **options)


def exactly(seconds):
    return pytest.approx(seconds, rel=1e-12, abs=0)


def ping_pong(c, n, rounds):
    ball = np.zeros(n, np.uint8)
    for _ in range(rounds):
        if c.rank == 0:
            c.send(ball, 1)
            c.recv(ball, 1)
        else:
            c.recv(ball, 0)
            c.send(ball, 0)
    return c.now()


def test_half_a_round_trip_of_eight_bytes():
    result = virtual(ping_pong, 8, 1, payload="real")
    assert result[0] / 2 == exactly(2.007 * US)
    assert result.seconds == result[0]
    assert virtual(ping_pong, 8, 50)[0] / 100 == exactly(2.007 * US)


def test_copies_of_eager_messages_cost_both_sides():
    constants = LogGP(US, 0.5 * US, 0.25 * US, byte_gap=1e-9, copy=1e-10)
    assert virtual(ping_pong, 1000, 1, constants=constants)[0] / 2 == exactly((0.5 + 0.1 + 1 + 0.999 + 0.25 + 0.1) * US)


def two_in_a_row(c):
    if c.rank == 0:
        c.send(Ghost(101), 1)
        c.send(Ghost(1), 1)
        return c.now()
    times = []
    for _ in range(2):
        c.recv(Ghost(200), 0)
        times.append(c.now())
    return times


def test_a_nic_is_busy_with_a_message_and_the_gap():
    """The first leaves at 0.5 us and takes 0.1; with a gap of 2 us the second leaves at 2.6, not at 1.0."""
    result = virtual(two_in_a_row, constants=LogGP(US, 0.5 * US, 0.5 * US, gap=2 * US, byte_gap=1e-9))
    assert result[0] == exactly(US)
    assert result[1] == [exactly((0.5 + 1 + 0.1 + 0.5) * US), exactly((2.6 + 1 + 0.5) * US)]
    apart = virtual(two_in_a_row)
    assert apart[1][1] == exactly((1.0 + 1 + 0.5) * US + 0.1 * US)


def both_send(c):
    if c.rank < 2:
        c.compute(0.1 * US * c.rank)
        c.send(Ghost(1001), c.rank + 2)
    else:
        c.recv(Ghost(1001), c.rank - 2)
    return c.now()


def test_ranks_of_a_node_share_its_nic_in_the_order_of_time():
    """Ranks 0 and 1 on node 0: 1 comes 0.1 us later and waits until the first message has left. Shared memory has no NIC."""
    c = cluster.preset("slingshot-200")
    result = comm.run(both_send, ranks=4, backend="virtual", payload="ghost", cluster=c, placement=[0, 0, 1, 2])
    busy = 0.25 * US + 1001 / 10e9
    first = busy + 1.8 * US + 1000 / 25e9
    assert result[2] == exactly(first + busy)
    assert result[3] == exactly(max(0.1 * US + busy, busy + 1000 / 25e9) + 1.8 * US + 1000 / 25e9 + busy)


# Long messages


def late_receiver(c, n, how):
    if c.rank == 0:
        c.send(Ghost(n), 1)
    else:
        request = c.irecv(Ghost(n), 0)
        c.compute(10e-3)
        if how == "call in between":
            c.isend(Ghost(0), 1, 5)
            c.compute(5e-3)
        request.wait()
    return c.now()


def wire(n):
    return US + (n - 1) * 1e-9


def test_a_long_message_waits_for_its_receiver_to_call():
    start = 10e-3
    result = virtual(late_receiver, MIB, "")
    assert result[1] == exactly(start + US + wire(MIB) + 0.5 * US)
    assert result[0] == exactly(start + US + wire(MIB) - US)


@pytest.mark.parametrize(
    ("progress", "begins"), [("nic", 1.5 * US), (comm.thread(0.0), 1.5 * US), (comm.interrupt(3 * US), 4.5 * US)], ids=str
)
def test_a_long_message_goes_on_without_its_receiver(progress, begins):
    result = virtual(late_receiver, MIB, "", progress=progress)
    arrives = begins + US + wire(MIB)
    late = 3 * US if not isinstance(progress, str) and progress.kind == "interrupt" else 0.0
    assert arrives < 10e-3
    assert result[0] == exactly(arrives - US)
    assert result[1] == exactly(10e-3 + late + 0.5 * US)


def test_any_call_in_between_answers():
    result = virtual(late_receiver, MIB, "call in between")
    assert result[0] == exactly(10e-3 + US + wire(MIB) - US)
    # The message to itself: o_s; then 5 ms, in which the data has come.
    assert result[1] == exactly(10e-3 + 0.5 * US + 5e-3 + 0.5 * US)


def late_sender(c, n):
    if c.rank == 1:
        c.recv(Ghost(n), 0)
    else:
        request = c.isend(Ghost(n), 1)
        c.compute(10e-3)
        request.wait()
    return c.now()


def test_a_rank_that_has_ended_answers():
    """Rank 1 posts, computes and returns without waiting: its library answers when it ends."""

    def program(c):
        if c.rank == 0:
            c.send(Ghost(MIB), 1)
        else:
            c.irecv(Ghost(MIB), 0)
            c.compute(10e-3)
        return c.now()

    assert virtual(program)[0] == exactly(10e-3 + US + wire(MIB) - US)


def test_the_sender_must_call_too_unless_the_receiver_gets():
    waits = virtual(late_sender, MIB)
    assert waits[1] == exactly(10e-3 + 0.5 * US + wire(MIB) + 0.5 * US)
    gets = virtual(late_sender, MIB, constants=LogGP(US, 0.5 * US, 0.5 * US, byte_gap=1e-9, get=True))
    assert gets[1] == exactly(0.5 * US + US + US + wire(MIB) + 0.5 * US)
    assert gets[0] == exactly(10e-3 + 0.5 * US)


def test_a_helper_thread_takes_a_share_of_the_core():
    assert virtual(lambda c: c.compute(1.0) or c.now(), progress=comm.thread(0.2))[0] == exactly(1.25)


@pytest.mark.parametrize("how", ["two-copy", "single-copy"])
def test_inside_a_node(how):
    shm = SharedMemory(latency=0.2 * US, overhead=0.1 * US, copy=1e-10, how=how)
    constants = LogGP(US, shm=shm)
    small = virtual(ping_pong, 1000, 1, constants=constants, placement=[0, 0])
    assert small[0] / 2 == exactly((0.1 + 0.1 + 0.2 + 0.1 + 0.1) * US)
    asked = (0.1 + 0.2) * US
    copied = MIB * 1e-10
    if how == "two-copy":
        expected = asked + 0.2 * US + copied + 0.2 * US + 8192 * 1e-10 + 0.1 * US
    else:
        expected = asked + 0.5 * US + copied + 0.1 * US
    assert virtual(late_free, MIB, constants=constants, placement=[0, 0])[1] == exactly(expected)
    assert virtual(late_free, MIB, constants=constants, placement=[0, 1])[1] == exactly(3 * US)


def late_free(c, n):
    c.send(Ghost(n), 1) if c.rank == 0 else c.recv(Ghost(n), 0)
    return c.now()


def test_where_eager_ends():
    for n, expected in ((16384, 0.5 * US + wire(16384) + 0.5 * US), (16385, 0.5 * US + US + US + wire(16385) + 0.5 * US)):
        assert virtual(late_free, n)[1] == exactly(expected)


# Flows

GIGABYTE = {
    "armillary": 1,
    "name": "gigabyte",
    "group": [
        {
            "name": "node",
            "count": 65,
            "node": {
                "socket": [{"count": 1, "cores": 1}],
                "memory": [{"name": "ram", "kind": "dram", "size": "1 GB", "bandwidth": "10 GB/s"}],
                "nic": [{"rate": "1 GB/s", "network": "net"}],
            },
        }
    ],
    "network": {"net": {"topology": "star", "rate": "1 GB/s", "latency": "10 us"}},
}


def incast(c, n):
    if c.rank:
        c.send(Ghost(n), 0)
    else:
        c.waitall([c.irecv(Ghost(n), ANY_SOURCE) for _ in range(c.size - 1)])
    return c.now()


@pytest.mark.parametrize("eager_limit", [1 << 30, 0])
def test_sixty_four_senders_share_the_receivers_nic(eager_limit):
    machine = cluster.from_dict(GIGABYTE)
    constants = LogGP(10 * US, eager_limit=eager_limit)
    result = virtual(incast, 10**6, ranks=65, cluster=machine, model="flow", constants=constants, placement=range(65))
    handshake = 0.0 if eager_limit else 20 * US
    assert result[0] == pytest.approx(64e-3 + 10 * US + handshake, abs=1e-6 * 64e-3)
    # LogGP has no contention at the receiver.
    alone = virtual(incast, 10**6, ranks=65, constants=LogGP(10 * US, byte_gap=1e-9, eager_limit=1 << 30))
    assert alone[0] < 2e-3


# Computing


def test_computing_follows_the_roofline():
    c = cluster.preset("slingshot-200")
    socket = c.node(0).sockets[0]
    peak = float(socket.peak("fp64")) / 64

    def program(ranks):
        ranks.compute(flops=1e9, bytes=1.0)
        first = ranks.now()
        ranks.compute(flops=1.0, bytes=1e9)
        return first, ranks.now() - first

    flops, memory = comm.run(program, ranks=2, backend="virtual", cluster=c)[0]
    assert flops == exactly(1e9 / peak)
    assert memory == exactly(1e9 / (204.8e9 / 2))
    gpu = cluster.preset("dgx-h100")
    device = gpu.node(0).device(1)
    times = comm.run(program, ranks=1, backend="virtual", cluster=gpu, placement=["n0/device:1"])[0]
    assert times[0] == exactly(1e9 / float(device.peak["fp64"]))
    with pytest.raises(comm.RankFailed, match="found no flop/s"):
        comm.run(program, ranks=1, backend="virtual", cluster="hpc-256")


def test_measured_time_is_charged():
    def program(c):
        c.charge()
        before = c.now()
        sum(i * i for i in range(20000))
        c.charge()
        c.barrier()
        return c.now() - before

    slow = comm.run(program, ranks=2, backend="virtual", speed_ratio=1000.0)[0]
    assert slow > 0.05


def test_phases_are_simulated_seconds():
    def program(c):
        with c.phase("work"):
            c.compute(2.5)

    assert virtual(program).counters[1]["work"].seconds == 2.5


# Bad input


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"cluster": "slingshot-20"}, "slingshot-20"),
        ({"cluster": 3}, "expected a Cluster"),
        ({"placement": "blocks"}, "did you mean"),
        ({"placement": [0]}, "found 1 nodes"),
        ({"placement": [0, 99], "cluster": "slingshot-200"}, "node 99"),
        ({"placement": [0, "node-99"], "cluster": "slingshot-200"}, "unknown node"),
        ({"placement": [0, "n1/device:0"], "cluster": "slingshot-200"}, "device"),
        ({"placement": [0, 1.5]}, "1.5"),
        ({"placement": [[0], [1]]}, "found"),
        ({"placement": 7}, "placement"),
        ({"model": "logp"}, "unknown model"),
        ({"progress": "threads"}, "did you mean"),
        ({"progress": "interrupt"}, "interrupt\\(cost\\)"),
        ({"payload": "ghosts"}, "did you mean"),
        ({"shm": "three-copy"}, "unknown shm"),
        ({"constants": 3}, "LogGP"),
        ({"collectives": "modeled"}, "modelled"),
        ({"speed_ratio": 0}, "speed_ratio"),
        ({"clusters": "x"}, "unknown option"),
    ],
)
def test_what_cannot_be_run(options, words):
    with pytest.raises(InputError, match=words) as caught:
        comm.run(ping_pong, 1, 1, ranks=2, backend="virtual", **options)
    assert "\n" not in str(caught.value)


def test_more_ranks_than_cores_need_a_list():
    with pytest.raises(InputError, match="4096 cores"):
        comm.run(ping_pong, 1, 1, ranks=4097, backend="virtual", cluster="slingshot-200")
    result = comm.run(lambda c: c.node_size, ranks=65, backend="virtual", cluster="slingshot-200", placement=[3] * 65)
    assert result.values == [65] * 65


def test_modelled_is_for_virtual_ranks():
    with pytest.raises(InputError, match="unknown option"):
        comm.run(ping_pong, ranks=2, collectives="modelled")


@pytest.mark.parametrize(
    "make",
    [
        lambda: LogGP(-1.0),
        lambda: LogGP(float("nan")),
        lambda: LogGP(1.0, eager_limit=-1),
        lambda: LogGP(1.0, eager_limit=1.5),
        lambda: SharedMemory(how="none"),
        lambda: SharedMemory(copy=float("inf")),
        lambda: comm.thread(1.0),
        lambda: comm.interrupt(-1.0),
        lambda: comm.Progress("never"),
    ],
)
def test_constants_that_cannot_be(make):
    with pytest.raises(InputError):
        make()


@pytest.mark.parametrize("bad", [{"seconds": -1.0}, {"flops": float("nan")}, {"bytes": float("inf")}])
def test_work_that_cannot_be(bad):
    with pytest.raises(comm.RankFailed, match="compute"):
        virtual(lambda c: c.compute(**bad))


# Orders that only time decides


def test_messages_are_handled_as_they_arrive():
    """Waited for last, rank 2's message came long before: handling it does not come after rank 1's."""

    def program(c):
        if c.rank:
            c.compute(100 * US if c.rank == 1 else 0.0)
            c.send(Ghost(1), 0)
        else:
            c.waitall([c.irecv(Ghost(1), 1), c.irecv(Ghost(1), 2)])
        return c.now()

    assert virtual(program, ranks=3)[0] == exactly((100 + 0.5 + 1 + 0.5) * US)


def test_data_does_not_move_before_its_receive_is_posted():
    def program(c):
        c.compute(10e-3 * c.rank)
        c.send(Ghost(MIB), 1) if c.rank == 0 else c.recv(Ghost(MIB), 0)
        return c.now()

    assert virtual(program, progress="nic")[1] == exactly(10e-3 + US + wire(MIB) + 0.5 * US)


def test_puts_of_one_instant_are_done_in_the_order_of_ranks():
    def program(c):
        with c.window(8, np.int64) as window:
            if c.rank:
                window.put(np.array([c.rank]), 0)
            window.fence()
            return int(window.local[0])

    assert virtual(program, ranks=4)[0] == 3


def test_round_robin_passes_over_full_nodes():
    def group(name, cores):
        return {"name": name, "count": 1, "node": {**GIGABYTE["group"][0]["node"], "socket": [{"count": 1, "cores": cores}]}}

    machine = cluster.from_dict({**GIGABYTE, "group": [group("small", 1), group("large", 3)]})
    result = comm.run(lambda c: c.node, ranks=4, backend="virtual", cluster=machine, placement="round-robin")
    assert result.values == [0, 1, 1, 1]


def test_a_failure_waits_for_earlier_ones():
    """Rank 0 fails at 10 ms without waiting; rank 1 needs the loop to reach 2 us before it fails."""

    def program(c):
        if c.rank == 0:
            c.send(Ghost(1), 1)
            c.compute(10e-3)
            raise KeyError("late")
        c.recv(Ghost(1), ANY_SOURCE)
        raise KeyError("early")

    with pytest.raises(comm.RankFailed, match="early"):
        virtual(program)
