"""Tensor train by LAPACK's SVD of one unfolding after another. Oseledets: Tensor-train decomposition, 2011."""

from __future__ import annotations

from .decomposition.method import Train


class TtSvd(Train):
    """Tensor train by LAPACK's SVD."""
