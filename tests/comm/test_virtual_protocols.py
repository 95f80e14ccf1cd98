"""Protocols by message: their times by hand, whose core they occupy, and the right data in every combination."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from progress_programs import MIB, virtual
from virtual_programs import US

from armillary import cluster, comm
from armillary.comm import ANY_SOURCE, Ghost, LogGP, RankFailed, SharedMemory
from armillary.comm.virtual.progress import Policy
from armillary.comm.virtual.protocols import BETWEEN, INSIDE, Protocol
from armillary.errors import InputError

SHM = SharedMemory(latency=0.2 * US, overhead=0.1 * US, copy=1e-10, setup=0.5 * US)
FAR = LogGP(latency=US, send_overhead=0.5 * US, receive_overhead=0.5 * US, byte_gap=1e-9, shm=SHM)
WIRE = (MIB - 1) * 1e-9
COPY = MIB * 1e-10


def exactly(seconds):
    return pytest.approx(seconds, rel=1e-12, abs=0)


def by(protocol, computing="never", **costs):
    return Policy(computing, protocol=lambda source, destination, nbytes, iteration: protocol, **costs)


def run(program, *args, protocol="rput", place=(0, 1), computing="never", costs=None, **options):
    progress = by(protocol, computing, **(costs or {}))
    return virtual(program, *args, ranks=len(place), constants=FAR, placement=list(place), progress=progress, **options)


def one(c, n, sender=0.0, receiver=0.0):
    """One message, whose sides compute before they wait."""
    if c.rank == 0:
        request = c.isend(Ghost(n), 1)
        c.compute(sender)
    else:
        request = c.irecv(Ghost(n), 0)
        c.compute(receiver)
    request.wait()
    return c.now(), c.busy


def times(result):
    return [time for time, _ in result.values]


# Between nodes


def test_eager_of_any_size():
    assert times(run(one, MIB, protocol="eager"))[1] == exactly((0.5 + 1 + 0.5) * US + WIRE)


def test_a_read_needs_the_receiver_only():
    sent, received = times(run(one, MIB, 10e-3, protocol="rget"))
    assert received == exactly((1.5 + 2 + 0.5) * US + WIRE)
    assert sent == exactly(10e-3 + 0.5 * US)
    assert times(run(one, MIB, 0.0, 10e-3, protocol="rget"))[1] == exactly(10e-3 + 2 * US + WIRE + 0.5 * US)


def test_a_write_needs_both_sides():
    assert times(run(one, MIB, 10e-3))[1] == exactly(10e-3 + 0.5 * US + US + WIRE + 0.5 * US)
    assert times(run(one, MIB, 0.0, 10e-3))[1] == exactly(10e-3 + 2 * US + WIRE + 0.5 * US)


def again(c, n, rounds, compute, tag=0):
    """The same exchange again and again, of which each round begins together."""
    spent = []
    for k in range(rounds):
        c.iteration = k
        c.compute(1e-2 * (k + 1) - c.now())
        begin = c.now()
        other = 1 - c.rank
        requests = [c.irecv(Ghost(n), other, tag), c.isend(Ghost(n), other, tag)]
        c.compute(compute)
        c.waitall(requests)
        spent.append(c.now() - begin)
    return spent


def test_a_cached_buffer_spares_the_handshake():
    """Both post and send at once. From the second round on, the receiver's credit (0.5 us, 1 us, 15 bytes) allows the sender to write."""
    first, *others = run(again, MIB, 4, 0.0, protocol="rput-cached")[0]
    assert first == exactly((0.5 + 1 + 1 + 1 + 0.5) * US + WIRE)
    # The credit of 16 bytes leaves after 0.5 us; the data leaves when it has come, and passes the NIC behind it.
    for spent in others:
        assert spent == pytest.approx((0.5 + 1 + 0.015 + 1 + 0.5) * US + WIRE, rel=1e-9)
    # Both compute 2 ms: what is asked for is answered in the wait, and the data of both is there one exchange later.
    cold = run(again, MIB, 2, 2e-3, protocol="rput")[0]
    assert cold == [pytest.approx(2e-3 + (0.5 + 1 + 1 + 0.5) * US + WIRE, rel=1e-9)] * 2


def test_a_credit_that_has_come_lets_the_data_go_in_the_call():
    """Rank 1 posts long before rank 0 sends, and rank 0 computes afterwards: nothing holds the data up."""

    def program(c):
        waits = []
        for k in range(3):
            c.compute(10e-3 * (k + 1) - c.now())
            if c.rank == 0:
                c.compute(1e-3)
                request = c.isend(Ghost(MIB), 1)
                c.compute(2e-3)
                request.wait()
            else:
                c.recv(Ghost(MIB), 0, 0)
            waits.append(c.now() - 10e-3 * (k + 1))
        return waits

    for k, spent in enumerate(run(program, protocol="rput-cached")[1]):
        if k:
            assert spent == pytest.approx(1e-3 + (0.5 + 1 + 0.5) * US + WIRE, rel=1e-9)
        else:
            assert spent == pytest.approx(3e-3 + (0.5 + 1 + 0.5) * US + WIRE, rel=1e-9)


def test_another_protocol_on_the_same_tag_asks_again():
    """The third round is eager, so the fourth asks; receives posted two at a time are counted right."""
    name = {0: "rput-cached", 1: "rput-cached", 2: "eager", 3: "rput-cached", 4: "rput-cached"}

    def program(c):
        got = []
        rooms = [np.zeros(40_000, np.uint8) for _ in range(2)]
        if c.rank:
            pending = [c.irecv(rooms[0], 0)]
            for k in range(5):
                if k < 4:
                    pending.append(c.irecv(rooms[(k + 1) % 2], 0))
                pending.pop(0).wait()
                got.append(int(rooms[k % 2][-1]))
            return got
        for k in range(5):
            c.iteration = k
            c.send(np.full(40_000, k + 1, np.uint8), 1)
        return None

    policy = Policy("never", protocol=lambda s, d, n, k: name[k] if s == 0 and n > 100 else "eager")
    result = virtual(program, payload="real", constants=FAR, placement=[0, 1], progress=policy)
    assert result[1] == [1, 2, 3, 4, 5]


def test_open_receives_are_refused_where_a_sender_writes_without_asking():
    def program(c):
        for k in range(3):
            c.iteration = k
            if c.rank == 0:
                c.send(Ghost(MIB), 1)
            else:
                c.recv(Ghost(MIB), ANY_SOURCE if k == 2 else 0, 0)

    with pytest.raises(RankFailed, match="rput-cached"):
        run(program, protocol="rput-cached")
    # A receive from any source promises nothing, so all is well without a named one before it.
    run(lambda c: c.send(Ghost(MIB), 1) if c.rank == 0 else c.recv(Ghost(MIB), ANY_SOURCE), protocol="rput-cached")


def test_pieces_release_each_other():
    """With a window of two, exactly two pieces move while a rank that does not look computes; interrupts let all of them move."""
    pieces = Protocol("rput-cached", chunk=65536, window=2)
    compute = 5e-3
    piece = 65536 * 1e-9

    def left_after(computing):
        return run(again, MIB, 2, compute, protocol=pieces, computing=computing)[0][1] - compute

    # The credit comes while the ranks compute, so without a look nothing moves at all before the wait.
    moving = left_after("never")
    assert moving > 14 * piece
    assert left_after("interrupt") == pytest.approx(0.5 * US + 2 * 0.5 * US, abs=0.6 * US)

    def program(c):
        for k in range(2):
            c.compute(20e-3 * (k + 1) - c.now())
            if c.rank == 0:
                c.compute(1e-3)
                request = c.isend(Ghost(MIB), 1)
                c.compute(compute)
                request.wait()
            else:
                c.recv(Ghost(MIB), 0, 0)
        return c.now() - 40e-3 - 1e-3

    spent = run(program, protocol=pieces)[1]
    # Fourteen pieces after the computing, in pairs: each pair waits for the acknowledgement of the pair before.
    assert spent == pytest.approx(compute + 14 * piece, rel=2e-3)


def test_a_read_in_pieces_is_complete_when_all_are_there():
    sent, received = times(run(one, MIB, protocol=Protocol("rget", chunk=65536, window=4)))
    assert received == pytest.approx((1.5 + 2 + 0.5) * US + WIRE, rel=1e-4)
    assert sent == exactly(received - 0.5 * US + US)


# Inside a node


def near(n, sender=0.0, receiver=0.0, **how):
    return run(one, n, sender, receiver, place=(0, 0), **how)


def test_the_receiver_copies_once():
    (sent, sender), (received, receiver) = near(MIB, protocol="read").values
    assert received == exactly((0.1 + 0.2 + 0.5 + 0.1) * US + COPY)
    assert sent == exactly((0.1 + 0.2 + 0.5 + 0.2) * US + COPY)
    assert (sender.copying, receiver.copying) == (0.0, exactly(COPY))


def test_the_sender_copies_once():
    (sent, sender), (received, receiver) = near(MIB, protocol="write").values
    assert sent == exactly((0.1 + 0.2 + 0.2) * US + COPY)
    assert received == exactly((0.1 + 0.2 + 0.2 + 0.2 + 0.1) * US + COPY)
    assert (sender.copying, receiver.copying) == (exactly(COPY), 0.0)


def test_a_shared_copy_takes_half_the_time():
    (_, sender), (received, receiver) = near(MIB, protocol="shared-copy").values
    # The receiver begins after RTS and set-up; the sender hears of it 0.2 us later, and its end is heard of 0.2 us later.
    assert received == exactly((0.1 + 0.2 + 0.5 + 0.2 + 0.2 + 0.1) * US + COPY / 2)
    assert sender.copying == receiver.copying == exactly(COPY / 2)
    for share, (first, second) in ((0.0, (0.0, COPY)), (0.25, (COPY / 4, 3 * COPY / 4)), (1.0, (COPY, 0.0))):
        (_, sender), (_, receiver) = near(MIB, protocol=Protocol("shared-copy", share=share)).values
        assert (sender.copying, receiver.copying) == (exactly(first), exactly(second))


def test_cells_are_copied_in_and_out():
    (_, sender), (received, receiver) = near(MIB, protocol=Protocol("shm", poll=0.0)).values
    assert (sender.copying, receiver.copying) == (exactly(COPY), exactly(COPY))
    # In step, one cell apart; then the last cell is copied out.
    assert received == exactly((0.1 + 0.2 + 0.2 + 0.2 + 0.1) * US + COPY + 8192e-10)
    small = near(1000, protocol="shm")
    assert times(small)[1] == exactly((0.1 + 0.1 + 0.2 + 0.1 + 0.1) * US)


def test_the_nic_moves_a_message_inside_the_node():
    (sent, sender), (received, receiver) = near(MIB, protocol="loopback").values
    assert received == exactly((0.1 + 0.2 + 1 + 0.1) * US + WIRE)
    assert sent == exactly((0.1 + 0.2 + 1 + 0.2) * US + WIRE)
    assert sender.copying == receiver.copying == 0.0


def test_loopback_shares_the_nic():
    """With flows, a message to the node itself and one to another node share the NIC's way out."""

    def program(c):
        if c.rank == 0:
            c.waitall([c.isend(Ghost(10 * MIB), 1), c.isend(Ghost(10 * MIB), 2)])
        else:
            c.recv(Ghost(10 * MIB), 0)
        return c.now()

    policy = Policy("never", protocol=lambda s, d, n, k: "loopback" if d < 2 else "rget")
    how = {"ranks": 3, "constants": None, "cluster": "bxi2-100", "model": "flow", "placement": [0, 0, 1]}
    both = virtual(program, progress=policy, **how)
    assert max(both.values) == pytest.approx(20 * MIB / 12.5e9, rel=1e-2)
    read = virtual(program, progress=Policy("never", protocol=lambda s, d, n, k: "read" if d < 2 else "rget"), **how)
    assert read[2] == pytest.approx(10 * MIB / 12.5e9, rel=1e-2)


@pytest.mark.parametrize(("chunk", "late"), [(0, 4 * MIB * 1e-10), (65536, 65536e-10)])
def test_a_rank_that_copies_answers_late_by_its_copy_or_by_one_chunk(chunk, late):
    """Rank 1 copies 4 MiB when the RTS of rank 2 comes; only between chunks does it look."""

    def choose(source, destination, nbytes, iteration):
        return Protocol("read", chunk=chunk) if {source, destination} == {0, 1} else "rput"

    def program(c):
        if c.rank == 0:
            c.send(Ghost(4 * MIB), 1)
        elif c.rank == 1:
            c.waitall([c.irecv(Ghost(4 * MIB), 0), c.irecv(Ghost(MIB), 2)])
        else:
            c.compute(0.1 * US)
            c.send(Ghost(MIB), 1)
        return c.now()

    policy = Policy("never", protocol=choose)
    sent = virtual(program, ranks=3, constants=FAR, placement=[0, 0, 1], progress=policy)[2]
    begun = (0.1 + 0.2 + 0.5) * US
    asked = (0.1 + 0.5 + 1) * US
    at_once = asked + US + WIRE
    assert asked > begun
    if chunk:
        assert 0.0 < sent - at_once <= late + 1e-12
    else:
        assert sent == exactly(begun + late + US + WIRE)


# The data


@settings(max_examples=40)
@given(
    seed=st.integers(0, 10**6), computing=st.sampled_from(["never", "poll", "interrupt", "helper"]), chunk=st.sampled_from([0, 1000, 65536]),
    ranks=st.integers(2, 5), model=st.sampled_from(["loggp", "flow"]),
)  # fmt: skip
def test_every_combination_moves_the_right_bytes(seed, computing, chunk, ranks, model):
    """Random protocols for random sizes on few tags; every receive names its source, so messages must come in the order of sending."""
    rng = np.random.default_rng(seed)
    between = rng.choice(BETWEEN, (ranks, ranks, 8)).tolist()
    inside = rng.choice(INSIDE, (ranks, ranks, 8)).tolist()
    sizes = rng.choice([1, 900, 9000, 70_000], (ranks, ranks, 8)).tolist()
    place = [r // 2 for r in range(ranks)]

    def choose(source, destination, nbytes, iteration):
        if source == destination:
            return None
        names = inside if place[source] == place[destination] else between
        return Protocol(names[source][destination][iteration % 8], chunk=chunk, share=0.3)

    def program(c):
        turn = np.random.default_rng([seed, c.rank])
        others = [r for r in range(c.size) if r != c.rank]
        good = True
        for k in range(8):
            c.iteration = k
            rooms = {other: np.zeros(sizes[other][c.rank][k], np.uint8) for other in others}
            requests = [c.irecv(room, other, k % 2) for other, room in rooms.items()]
            c.compute(float(turn.random()) * 20 * US)
            requests += [c.isend(np.full(sizes[c.rank][other][k], 16 * c.rank + k, np.uint8), other, k % 2) for other in others]
            c.compute(float(turn.random()) * 60 * US)
            c.waitall(requests)
            good &= all((room == 16 * other + k).all() for other, room in rooms.items())
        return good, c.busy

    policy = Policy(computing, detect=0.2 * US, handler=0.1 * US, poll=0.1 * US, every=5 * US, protocol=choose)
    machine = {"constants": FAR} if model == "loggp" else {"constants": None, "cluster": "bxi2-100", "model": "flow"}
    result = virtual(program, ranks=ranks, payload="real", placement=place, progress=policy, **machine)
    for good, busy in result.values:
        assert good
        assert busy.total == exactly(result.seconds)


def test_without_a_choice_a_message_moves_as_before():
    for place in ((0, 1), (0, 0)):
        plain = virtual(lambda c: one_plain(c), constants=FAR, placement=list(place))
        paced = run(one, MIB, protocol=None, place=place)
        assert times(paced) == plain.values


def one_plain(c):
    c.send(Ghost(MIB), 1) if c.rank == 0 else c.recv(Ghost(MIB), 0)
    return c.now()


# What the choice is asked, and bad input


def test_the_choice_is_asked_with_ranks_of_the_run_bytes_and_iteration():
    asked = set()

    def choose(*question):
        asked.add(question)

    def program(c):
        half = c.split(c.rank // 2)
        c.iteration = 7
        if half.rank == 0:
            half.send(Ghost(300), 1)
        else:
            half.recv(Ghost(300), 0)

    virtual(program, ranks=4, constants=FAR, placement=[0, 1, 2, 3], progress=Policy(protocol=choose))
    assert {(0, 1, 300, 7), (2, 3, 300, 7)} <= asked


@pytest.mark.parametrize(
    ("protocol", "place", "words"),
    [
        ("rgot", (0, 1), "did you mean"), (3, (0, 1), "expected a Protocol"), ("read", (0, 1), "between nodes"), ("rput", (0, 0), "inside a node"),
    ],
)  # fmt: skip
def test_choices_that_cannot_be(protocol, place, words):
    with pytest.raises(RankFailed, match=words):
        run(one, MIB, protocol=protocol, place=place)


@pytest.mark.parametrize(
    "bad", [{"name": "x"}, {"name": "read", "chunk": -1}, {"name": "read", "window": 0}, {"name": "read", "share": 1.5},
            {"name": "read", "poll": -1.0}, {"name": "read", "chunk": True}],
)  # fmt: skip
def test_protocols_that_cannot_be(bad):
    with pytest.raises(InputError):
        Protocol(**bad)


def test_loopback_needs_a_second_node():
    lone = cluster.preset("bxi2-100").slice([0])
    with pytest.raises(InputError, match="loopback: found a cluster of one node"):
        virtual(one, MIB, constants=None, cluster=lone, placement=[0, 0], progress=by("loopback"))


def test_a_named_policy_goes_with_a_choice():
    """`run_virtual` takes a choice of protocols beside the policies that stood before."""
    from armillary.comm.task import Task
    from armillary.comm.virtual.start import run_virtual

    for progress in ("in-calls", "nic", comm.thread(0.2), comm.interrupt(1e-6)):
        ran = run_virtual(
            Task(one, (MIB,), {}, 2, 0, {}), progress=progress, protocol=lambda s, d, n, k: "rget", constants=FAR, placement=[0, 1],
            payload="ghost",
        )  # fmt: skip
        assert ran.values[1][0] == exactly((1.5 + 2 + 0.5) * US + WIRE)
