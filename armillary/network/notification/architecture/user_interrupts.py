"""User interrupts: what the processor, the kernel and the sender do with a descriptor, bit by bit.

A receiver's descriptor (UPID) has 128 bits, is aligned to 64 bytes, and holds

    bit 0        ON    a notification is outstanding
    bit 1        SN    notifications are suppressed, because the thread is not running
    bits 16-23   NV    the notification vector
    bits 32-63   NDST  the APIC id of the receiver's core (in xAPIC mode in its bits 8-15)
    bits 64-127  PIR   one bit per user vector

A sender's entry (16 bytes) holds bit 0 (valid), the user vector in its second byte and the descriptor's address in its upper half. A send
sets the vector's bit in PIR; if neither ON nor SN was set, it sets ON and sends NV to NDST. A core that receives NV while the thread runs
on it clears ON and moves PIR to UIRR; in user mode, if UIF is set, it clears UIF and enters the handler with the highest vector. UIRET
sets UIF. A kernel that takes the thread off its core sets SN; when it puts it back it clears SN, writes NDST and notifies itself if PIR is
not empty. In a system call the notification is recognised, and the handler is entered on return.

A core's send is one locked operation on the descriptor. A device that sets the bit of PIR and then ON with two operations of its own is
not: between them, a core may take the bit of PIR on account of another notification, and ON is then set for nothing. If the kernel moves
the thread before that notification arrives, ON stays set, and every later event is lost (the exhaustive search finds this in twelve
steps). With `resume_clears_on`, which is our design, the kernel clears ON together with SN, and nothing is lost.

Every operation is O(1) in the number of vectors and sends.

Intel 64 and IA-32 Architectures Software Developer's Manual, volume 3, chapter on user interrupts (2021).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from armillary.errors import InputError

VECTORS = 64
_WORD = (1 << 64) - 1


@dataclass
class Upid:
    """A user posted-interrupt descriptor."""

    address: int
    nv: int
    ndst: int
    on: bool = False
    sn: bool = False
    pir: int = 0
    #: Whether NDST stands in bits 8-15 of its field.
    xapic: bool = False

    def __post_init__(self) -> None:
        if self.address % 64 or not 0 <= self.address <= _WORD:
            raise InputError(f"address: found {self.address:#x}; expected a multiple of 64 that fits 64 bits", where="descriptor")
        if not 0 <= self.nv <= 255:
            raise InputError(f"nv: found {self.nv}; expected 0 to 255", where="descriptor")
        most = 255 if self.xapic else (1 << 32) - 1
        if not 0 <= self.ndst <= most:
            raise InputError(f"ndst: found {self.ndst}; expected 0 to {most}", where="descriptor")
        if not 0 <= self.pir <= _WORD:
            raise InputError(f"pir: found {self.pir:#x}; expected 64 bits", where="descriptor")

    def encode(self) -> int:
        """Return the 128 bits."""
        ndst = self.ndst << 8 if self.xapic else self.ndst
        return int(self.on) | int(self.sn) << 1 | self.nv << 16 | ndst << 32 | self.pir << 64

    @classmethod
    def decode(cls, bits: int, address: int = 0, xapic: bool = False) -> Upid:
        """Return the descriptor with these 128 bits; bits that are reserved must be 0."""
        if not 0 <= bits < 1 << 128:
            raise InputError(f"found {bits:#x}; expected 128 bits", where="descriptor")
        if bits & 0xFF00FFFC or (xapic and bits >> 32 & 0xFFFF00FF):
            raise InputError(f"found {bits:#x}; expected reserved bits to be 0", where="descriptor")
        ndst = bits >> 32 & 0xFFFFFFFF
        return cls(address, bits >> 16 & 255, ndst >> 8 if xapic else ndst, bool(bits & 1), bool(bits >> 1 & 1), bits >> 64, xapic)


@dataclass(frozen=True)
class Sender:
    """An entry of a sender's table: a valid bit, a vector and a descriptor."""

    vector: int
    upid: Upid
    valid: bool = True

    def __post_init__(self) -> None:
        _check_vector(self.vector)

    def encode(self) -> int:
        """Return the 128 bits."""
        return int(self.valid) | self.vector << 8 | self.upid.address << 64


@dataclass
class Thread:
    """A receiver: its descriptor, the vectors that its core has recognised, and what it does."""

    upid: Upid
    uirr: int = 0
    uif: bool = True
    #: The APIC id of its core, or None while it is off the cores.
    core: int | None = None
    in_kernel: bool = False
    #: The vectors whose handlers it is in, innermost last, with UIF as it was pushed.
    handlers: list[int] = field(default_factory=list)
    #: Every handler entry so far, in order.
    entered: list[int] = field(default_factory=list)


class UserInterrupts:
    """One machine: threads with descriptors, and notifications on their way to cores."""

    def __init__(self, resume_clears_on: bool = False) -> None:
        #: Whether the kernel clears ON when it puts a thread back, as devices need that post and notify in two operations.
        self.resume_clears_on = resume_clears_on
        #: Notifications that have been sent and not yet arrived, as (APIC id, notification vector), oldest first.
        self.messages: list[tuple[int, int]] = []
        #: All notifications that were ever sent by senders, and by kernels to their own core.
        self.sent = 0
        self.self_notified = 0
        #: Notifications that reached a core on which their thread was not; each is a fix-up in the kernel.
        self.stale = 0
        self._threads: list[Thread] = []

    # The control path: system calls

    def register(self, core: int, nv: int = 0xEC, xapic: bool = False) -> Thread:
        """Register a handler for a thread that runs on `core`, and return the thread with its descriptor."""
        self._check_free(core)
        made = Thread(Upid(64 * (len(self._threads) + 1), nv, core, xapic=xapic), core=core)
        self._threads.append(made)
        return made

    def sender(self, thread: Thread, vector: int) -> Sender:
        """Allocate a vector of the thread to a sender: a thread, or an event queue of a device."""
        return Sender(vector, thread.upid)

    # Sending

    def send(self, sender: Sender) -> bool:
        """Send a user interrupt as a core does, in one operation (SENDUIPI); return whether a notification was sent."""
        self.post(sender)
        return self.raise_notification(sender)

    def post(self, sender: Sender) -> None:
        """The first operation of a device's send: set the vector's bit."""
        if not sender.valid:
            raise InputError(f"found an invalid entry for vector {sender.vector}; expected a valid one", where="sender")
        sender.upid.pir |= 1 << sender.vector

    def raise_notification(self, sender: Sender) -> bool:
        """The second operation: unless a notification is outstanding or they are suppressed, send one."""
        upid = sender.upid
        if upid.on or upid.sn:
            return False
        upid.on = True
        self.messages.append((upid.ndst, upid.nv))
        self.sent += 1
        return True

    # Receiving

    def deliver(self, place: int = 0) -> None:
        """Let a notification on its way, the oldest by default, reach its core."""
        core, vector = self.messages.pop(place)
        thread = next((t for t in self._threads if t.core == core and t.upid.nv == vector), None)
        if thread is None:
            # The thread has left. Its requests stay in PIR, where the kernel finds them when it puts the thread back.
            self.stale += 1
            return
        upid = thread.upid
        upid.on = False
        thread.uirr |= upid.pir
        upid.pir = 0
        self._enter(thread)

    def _enter(self, thread: Thread) -> None:
        """Enter the handler with the highest vector, if the thread is in user mode and lets interrupts in."""
        if thread.core is None or thread.in_kernel or not thread.uif or not thread.uirr:
            return
        vector = thread.uirr.bit_length() - 1
        thread.uirr &= ~(1 << vector)
        thread.uif = False
        thread.handlers.append(vector)
        thread.entered.append(vector)

    def uiret(self, thread: Thread) -> None:
        """Return from the handler, which lets interrupts in again."""
        if not thread.handlers:
            raise InputError("found no handler to return from; expected the thread in one", where="uiret")
        self._check_running(thread, "uiret")
        thread.handlers.pop()
        thread.uif = True
        self._enter(thread)

    def clui(self, thread: Thread) -> None:
        """Keep interrupts out."""
        self._check_running(thread, "clui")
        thread.uif = False

    def stui(self, thread: Thread) -> None:
        """Let interrupts in, and take one that waits."""
        self._check_running(thread, "stui")
        thread.uif = True
        self._enter(thread)

    def testui(self, thread: Thread) -> bool:
        """Return whether interrupts are let in."""
        self._check_running(thread, "testui")
        return thread.uif

    # The kernel

    def enter_kernel(self, thread: Thread) -> None:
        """Begin a system call."""
        self._check_running(thread, "system call")
        thread.in_kernel = True

    def leave_kernel(self, thread: Thread) -> None:
        """Return from a system call; what was recognised meanwhile is delivered now."""
        if thread.core is None or not thread.in_kernel:
            raise InputError("found no system call to return from; expected the thread in one", where="system call")
        thread.in_kernel = False
        self._enter(thread)

    def deschedule(self, thread: Thread) -> None:
        """Take the thread off its core: from now on requests only gather in PIR."""
        if thread.core is None:
            raise InputError("found a thread that is not running; expected one that is", where="deschedule")
        thread.upid.sn = True
        thread.core = None

    def resume(self, thread: Thread, core: int) -> None:
        """Put the thread on a core, which may be another one, and deliver what has gathered."""
        if thread.core is not None:
            raise InputError(f"found a thread that runs on core {thread.core}; expected one that does not run", where="resume")
        self._check_free(core)
        upid = thread.upid
        upid.ndst = core
        upid.sn = False
        if self.resume_clears_on:
            upid.on = False
        thread.core = core
        if upid.pir:
            self.self_notified += 1
            # A core holds one bit per vector for what it has been sent and has not taken, so a second notification adds nothing.
            if (core, upid.nv) not in self.messages:
                self.messages.append((core, upid.nv))
        self._enter(thread)

    def _check_free(self, core: int) -> None:
        if any(thread.core == core for thread in self._threads):
            raise InputError(f"found core {core} taken; expected one without a registered thread", where="core")

    def _check_running(self, thread: Thread, what: str) -> None:
        if thread.core is None or thread.in_kernel:
            raise InputError("found a thread that is not in user mode; expected it to run there", where=what)


def _check_vector(vector: int) -> None:
    if isinstance(vector, bool) or not isinstance(vector, int) or not 0 <= vector < VECTORS:
        raise InputError(f"vector: found {vector!r}; expected 0 to {VECTORS - 1}", where="sender")
