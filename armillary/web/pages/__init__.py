"""The pages: one module each, with its routes."""

from __future__ import annotations


def prepare() -> None:
    """Reads what the first pages show before anybody asks for it: the questions, the papers and their records."""
    from .papers import report
    from .start import lines

    lines()
    report()
