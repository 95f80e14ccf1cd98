"""What each part of CPLX brings: the same work with one part switched off at a time."""

from __future__ import annotations

from armillary.scheduling.mesh.cdp import Cdp
from armillary.scheduling.mesh.cplx import Cplx
from armillary.scheduling.mesh.lpt import Lpt
from armillary.scheduling.mesh.simulation.play import play
from armillary.scheduling.mesh.workload import MeshWork


def ablation(work: MeshWork) -> dict[str, dict[str, float]]:
    """Variant to its metrics on the work."""
    variants = {
        "cplx": (Cplx(), True),
        "no re-balancing (cdp)": (Cdp(), True),
        "no contiguous start (lpt)": (Lpt(), True),
        "no early stop": (Cplx(threshold=0.0), True),
        "equal pieces if even": (Cplx(even="equal"), True),
        "three alternatives": (Cplx(alternatives=3), True),
        "raw costs": (Cplx(), False),
        "placed every step": (Cplx(trigger="1"), True),
    }
    found = {}
    for name, (policy, hygiene) in variants.items():
        values = play(work, policy, hygiene=hygiene).metrics()
        del values["place_ms"]
        found[name] = values
    return found
