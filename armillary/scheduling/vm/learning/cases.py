"""Which training fleets there are, by digest; apart from the samples, so that a technique can name them without drawing them."""

from __future__ import annotations

from armillary.case import Case

#: Training fleets of each kind, their hosts and VMs.
FLEETS = {"interfering": 10, "bursty": 10, "calm": 4}
HOSTS, VMS = 40, 600
#: Snapshots per epoch, and how many more for validation; days 1 to 4 train, and day 5 of further fleets validates.
SNAPSHOTS, HELD = 480, 60
TRAINING = tuple(
    Case(f"train-{kind}", parameters={"kind": kind, "fleets": many, "hosts": HOSTS, "vms": VMS}).digest for kind, many in FLEETS.items()
)
