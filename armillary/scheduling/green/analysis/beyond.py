"""Green beyond the sun: power below a carbon intensity counts as green, and money saved per hour of delay."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from armillary.errors import InputError
from armillary.scheduling.energy import Carbon
from armillary.scheduling.green.problem.sunshine import PAST, SLOT_S, Sunshine, length
from armillary.scheduling.green.simulation.play import Played
from armillary.scheduling.green.workload import GreenWork


def green_below(work: GreenWork, carbon: Carbon, g_per_kwh: float, start_s: float = 0.0) -> GreenWork:
    """The work on a grid whose power counts as green while it is below an intensity; slot 0 is at `start_s` on the grid's clock.

    The green power is all that the cluster can take, or none, so `green_share` becomes the share of the energy below that intensity.
    """
    if not g_per_kwh >= 0:
        raise InputError(f"found {g_per_kwh:g} g/kWh; expected at least 0", where="g_per_kwh")
    moments = start_s + SLOT_S * (np.arange(length(work.slots)) - PAST + 0.5)
    intensity = carbon.values[np.maximum(np.searchsorted(carbon.times_s, moments, side="right") - 1, 0)]
    most = float(work.nodes.peak_w.sum())
    sky = Sunshine(np.where(intensity < g_per_kwh, most, 0.0), np.full(len(moments), most))
    return replace(work, sun=sky, carbon=carbon, carbon_start_s=start_s)


def saved_per_hour(played: Played, reference: Played, price_per_kwh: float) -> float:
    """Money saved on energy from the grid per hour of delay that pods accept, against a play that delays less; 0 without delay."""
    delay = float(np.maximum(0.0, played.start_s - reference.start_s).sum()) / 3600.0
    return price_per_kwh * (reference.brown_kwh - played.brown_kwh) / delay if delay > 0 else 0.0
