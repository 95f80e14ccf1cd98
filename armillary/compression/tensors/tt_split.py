"""Tensor train by the split SVD: bidiagonalisation, then QR iteration. Golub, Kahan: Calculating the singular values, 1965."""

from __future__ import annotations

from armillary.arena import Claim, Kind, Level

from .decomposition.method import Train


class TtSplit(Train):
    """Tensor train by the split SVD, which the edge processors use."""

    engine = "split"
    claims = (
        Claim("ratio", by=Level(at_least=2.0), on=Kind("digits"), says="a high ratio: at least 2 on a network that was trained"),
        Claim("accuracy_drop", by=Level(at_most=1.0), on=Kind("digits"), says="little accuracy lost: at most a point, at that ratio"),
    )
