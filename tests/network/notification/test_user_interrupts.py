"""The architecture of user interrupts: the rules one by one, and every interleaving of them."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from armillary.errors import InputError
from armillary.network.notification import Sender, Upid, UserInterrupts, search


@pytest.fixture
def machine():
    return UserInterrupts()


def test_the_descriptor_has_its_bits_where_the_architecture_says():
    upid = Upid(64, nv=0xEC, ndst=0x12345678, on=True, sn=True, pir=1 << 63 | 1)
    assert upid.encode() == (0x8000000000000001 << 64) | 0x12345678_00EC_0003
    assert Upid(0, 0xEC, 7, xapic=True).encode() == 7 << 40 | 0xEC << 16
    assert Sender(5, upid).encode() == 64 << 64 | 5 << 8 | 1


@given(st.integers(0, 255), st.integers(0, 2**32 - 1), st.booleans(), st.booleans(), st.integers(0, 2**64 - 1))
def test_a_descriptor_survives_its_bits(nv, ndst, on, sn, pir):
    upid = Upid(128, nv, ndst, on, sn, pir)
    assert Upid.decode(upid.encode(), 128) == upid


def test_two_sends_of_one_vector_are_one_entry(machine):
    thread = machine.register(core=0)
    sender = machine.sender(thread, 3)
    assert machine.send(sender)
    assert not machine.send(sender)
    assert machine.messages == [(0, 0xEC)]
    machine.deliver()
    machine.uiret(thread)
    assert thread.entered == [3]


def test_two_vectors_are_two_entries_and_the_highest_comes_first(machine):
    thread = machine.register(core=0)
    machine.send(machine.sender(thread, 3))
    assert not machine.send(machine.sender(thread, 7))
    machine.deliver()
    assert thread.entered == [7]
    assert not machine.testui(thread)
    machine.uiret(thread)
    assert thread.entered == [7, 3]
    machine.uiret(thread)
    assert machine.testui(thread)
    assert (thread.uirr, thread.upid.pir, thread.upid.on) == (0, 0, False)


def test_a_suppressed_thread_gets_its_requests_when_it_is_back(machine):
    thread = machine.register(core=0)
    machine.deschedule(thread)
    assert thread.upid.sn
    assert not machine.send(machine.sender(thread, 5))
    assert machine.messages == []
    assert thread.upid.pir == 1 << 5
    machine.resume(thread, core=2)
    assert machine.messages == [(2, 0xEC)]
    machine.deliver()
    assert thread.entered == [5]
    assert machine.self_notified == 1


@pytest.mark.parametrize("opened", ["stui", "uiret"])
def test_what_is_kept_out_comes_in_later(machine, opened):
    thread = machine.register(core=0)
    if opened == "uiret":
        machine.send(machine.sender(thread, 9))
        machine.deliver()
    else:
        machine.clui(thread)
    before = list(thread.entered)
    machine.send(machine.sender(thread, 4))
    machine.deliver()
    assert thread.entered == before
    assert thread.uirr == 1 << 4
    getattr(machine, opened)(thread)
    assert thread.entered == [*before, 4]


def test_a_system_call_delivers_on_return(machine):
    thread = machine.register(core=0)
    machine.enter_kernel(thread)
    machine.send(machine.sender(thread, 4))
    machine.deliver()
    assert thread.entered == []
    machine.leave_kernel(thread)
    assert thread.entered == [4]


def test_a_notification_to_the_old_core_is_not_lost(machine):
    """The notification reaches the core that the thread has left: the kernel fixes it up, and the request comes on the new core."""
    thread = machine.register(core=0)
    machine.send(machine.sender(thread, 4))
    machine.deschedule(thread)
    machine.deliver()
    assert machine.stale == 1
    machine.resume(thread, core=1)
    machine.deliver()
    assert thread.entered == [4]
    assert not thread.upid.on


def test_the_highest_and_lowest_vectors(machine):
    thread = machine.register(core=0)
    for vector in (0, 63):
        machine.send(machine.sender(thread, vector))
    machine.deliver()
    machine.uiret(thread)
    assert thread.entered == [63, 0]


# Every interleaving


@pytest.mark.parametrize("sends", [((1, 3), (1,)), ((1, 3), (2,)), ((1, 1), (1,)), ((0, 63), (5,))])
def test_no_vector_is_lost_and_none_is_spurious(sends):
    found = search(sends)
    assert found.fault == ()
    assert 1000 < found.states < 1_000_000
    assert found.settled > 0


def test_devices_that_notify_apart_lose_events_unless_the_kernel_clears_on():
    """Between the two operations of a device, ON is set for nothing, and the notification misses the thread."""
    lost = search(((1, 3), (1,)), devices=True)
    assert lost.what == "vectors 3 are lost"
    assert any(step.startswith("taken off") for step in lost.fault)
    assert search(((1, 3), (1,)), partial(UserInterrupts, resume_clears_on=True)).fault == ()


@pytest.mark.slow
def test_devices_lose_nothing_if_the_kernel_clears_on():
    for sends in (((1, 3), (1,)), ((1, 3), (2,)), ((1, 1), (1,))):
        repaired = search(sends, partial(UserInterrupts, resume_clears_on=True), devices=True)
        assert repaired.fault == ()
        assert 30_000 < repaired.states < 1_000_000


class NoSelfNotification(UserInterrupts):
    def resume(self, thread, core):
        thread.upid.ndst, thread.upid.sn, thread.core = core, False, core
        self._enter(thread)


class OnStays(UserInterrupts):
    def deliver(self, place=0):
        thread = self._threads[0]
        reached = thread.core == self.messages[place][0]
        super().deliver(place)
        thread.upid.on = thread.upid.on or reached


class NoSecondLook(UserInterrupts):
    def uiret(self, thread):
        thread.handlers.pop()
        thread.uif = True


class RecognisedTwice(UserInterrupts):
    def _enter(self, thread):
        before = thread.uirr
        super()._enter(thread)
        thread.uirr = before


class SendsToTheOldCore(UserInterrupts):
    def resume(self, thread, core):
        before = thread.upid.ndst
        super().resume(thread, core)
        thread.upid.ndst = before


class ForgetsRequestsInKernel(UserInterrupts):
    def leave_kernel(self, thread):
        thread.in_kernel = False


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        (NoSelfNotification, "lost"), (OnStays, "lost"), (NoSecondLook, "lost"), (RecognisedTwice, "without a send"),
        (SendsToTheOldCore, "lost"), (ForgetsRequestsInKernel, "lost"),
    ],
)  # fmt: skip
def test_the_search_finds_what_is_wrong_with_a_machine(wrong, what):
    found = search(machine=wrong)
    assert what in found.what
    assert found.fault


def test_a_fault_can_be_followed_step_by_step():
    found = search(((1,),), NoSelfNotification)
    assert found.fault == ("taken off its core", "sender 0 sends 1", "resumed on core 0") or "sender 0 sends 1" in found.fault


# Bad input


@pytest.mark.parametrize("vector", [-1, 64, 1.5, True, "3"])
def test_vectors_are_0_to_63(machine, vector):
    with pytest.raises(InputError, match="expected 0 to 63"):
        machine.sender(machine.register(0), vector)
    with pytest.raises(InputError, match="expected 0 to 63"):
        search(((vector,),))


@pytest.mark.parametrize(
    "make",
    [
        lambda: Upid(63, 1, 1), lambda: Upid(64, 256, 1), lambda: Upid(64, 1, 1 << 32), lambda: Upid(64, 1, 256, xapic=True),
        lambda: Upid(64, 1, 1, pir=-1), lambda: Upid.decode(1 << 128), lambda: Upid.decode(4), lambda: Upid.decode(1 << 32, xapic=True),
        lambda: search(((1, 2, 3), (1, 2, 3)), most=100),
    ],
)  # fmt: skip
def test_what_cannot_be(make):
    with pytest.raises(InputError):
        make()


def test_operations_in_the_wrong_state(machine):
    thread = machine.register(0)
    for call in (machine.uiret, machine.leave_kernel, lambda t: machine.resume(t, 1)):
        with pytest.raises(InputError):
            call(thread)
    machine.deschedule(thread)
    for call in (machine.clui, machine.stui, machine.testui, machine.enter_kernel, machine.deschedule):
        with pytest.raises(InputError):
            call(thread)
    other = machine.register(1)
    with pytest.raises(InputError, match="core 1 taken"):
        machine.resume(thread, 1)
    with pytest.raises(InputError):
        machine.send(Sender(1, other.upid, valid=False))
