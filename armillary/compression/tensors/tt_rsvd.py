"""Tensor train by random sketches with one power step. Halko, Martinsson, Tropp: Finding structure with randomness, 2011."""

from __future__ import annotations

from .decomposition.method import Train


class TtRsvd(Train):
    """Tensor train by random sketches with one power step."""

    engine = "random"
