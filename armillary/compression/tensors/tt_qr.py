"""Tensor train by column-pivoted QR, cut where the rest is small. Businger, Golub: Linear least squares by Householder, 1965."""

from __future__ import annotations

from .decomposition.method import Train


class TtQr(Train):
    """Tensor train by column-pivoted QR."""

    engine = "qr"
