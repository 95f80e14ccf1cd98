"""The matrix accelerator alone: the core makes every reflection and drives every call. The baseline of TT-Edge, 2025."""

from __future__ import annotations

from .processor.method import OnProcessor


class GemmOnly(OnProcessor):
    """The matrix accelerator alone."""
