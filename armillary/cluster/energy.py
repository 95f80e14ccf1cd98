"""The power, carbon and cost of a cluster. Nothing is invented; a figure that the file lacks is an error that names it."""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from armillary.cluster import schema as s
from armillary.cluster.traces import Trace, seconds
from armillary.errors import InputError, unknown

if TYPE_CHECKING:
    from armillary.cluster.cluster import Cluster

#: A moment, as seconds since 1970, a datetime, or ISO 8601 text.
When: TypeAlias = float | str | datetime.datetime
JOULES_PER_KWH = 3.6e6


@dataclass(frozen=True)
class Cost:
    """The cost of one hour of the whole cluster; None where the file lacks a figure."""

    #: kWh at the meter.
    energy_kwh: float | None
    #: The price of that energy, and the price of the machine per hour of its lifetime, in `currency`.
    energy_price: float | None
    machine_price: float | None
    currency: str | None
    #: Grams of CO₂e of the energy, and of making the machine.
    carbon_g: float | None
    embodied_g: float | None

    def __str__(self) -> str:
        def said(value: float | None, text: str) -> str:
            return "unknown" if value is None else text.format(value)

        money = self.currency or ""
        return (
            f"per hour: energy {said(self.energy_kwh, '{:,.1f} kWh')}, its price {said(self.energy_price, '{:,.2f} ' + money)},"
            f" carbon {said(self.carbon_g, '{:,.0f} g')}, embodied {said(self.embodied_g, '{:,.0f} g')},"
            f" machine {said(self.machine_price, '{:,.2f} ' + money)}"
        )


def power(cluster: Cluster, utilisation: float | Mapping[str, float], profile: str | None, pue: bool) -> float:
    """See `Cluster.power`."""
    if isinstance(utilisation, Mapping):
        for name in utilisation:
            cluster.group(name)
    total = 0.0
    for g in cluster.groups:
        u = utilisation.get(g.name, 0.0) if isinstance(utilisation, Mapping) else utilisation
        watts = g.count * _node_power(g, float(u), profile)
        total += watts * (_pue(cluster, g.site) if pue else 1.0)
    return total


def _node_power(g: s.NodeGroup, u: float, profile: str | None) -> float:
    if not (math.isfinite(u) and 0.0 <= u <= 1.0):
        raise InputError(f"utilisation: found {u:g}; expected 0 to 1")
    at = f"group.{g.name}.node.power"
    figures = g.node.power
    if profile is not None:
        if profile not in g.node.power_profiles:
            raise unknown("power profile", profile, g.node.power_profiles, where=f"group.{g.name}")
        figures, at = g.node.power_profiles[profile], f"group.{g.name}.node.power_profiles.{profile}"
    idle, peak = (figures.idle, figures.peak) if figures else (None, None)
    lacking = [key for key, value, needed in (("idle", idle, u < 1), ("peak", peak, u > 0)) if needed and value is None]
    if lacking:
        raise InputError(f"{' and '.join(lacking)} unknown, so the power at utilisation {u:g} is unknown too", where=at)
    if u == 0:
        return float(idle or 0.0)
    if u == 1:
        return float(peak or 0.0)
    return float(idle or 0.0) + u ** float(figures.exponent if figures else 1.0) * (float(peak or 0.0) - float(idle or 0.0))


def _site(cluster: Cluster, name: str | None) -> s.Site:
    if name is None:
        return cluster.site
    for site in cluster.sites:
        if site.name == name:
            return site
    raise unknown("site", name, (x.name or "" for x in cluster.sites), where=cluster.name)


def _pue(cluster: Cluster, name: str | None) -> float:
    pue = _site(cluster, name).pue
    return 1.0 if pue is None else float(pue)


def carbon(cluster: Cluster, joules: float, start: When | None, duration: float, site: str | None, pue: bool) -> float:
    """See `Cluster.carbon`."""
    intensity = _over_time(_site(cluster, site).carbon_intensity, "carbon_intensity", start, duration)
    return joules / JOULES_PER_KWH * intensity * (_pue(cluster, site) if pue else 1.0)


def _over_time(value: Any, key: str, start: When | None, duration: float) -> float:
    if value is None:
        raise InputError("unknown", where=f"site.{key}")
    if not math.isfinite(duration) or duration < 0:
        raise InputError(f"found {duration:g} seconds; expected 0 or more")
    if not isinstance(value, Trace):
        return float(value)
    if start is None:
        raise InputError("changes over time, so a start is needed", where=f"site.{key}")
    return value.mean(seconds(start), duration)


def embodied(cluster: Cluster, duration: float, nodes: float | None) -> float:
    """See `Cluster.embodied`."""
    site = cluster.site
    for key in ("embodied", "lifetime"):
        if getattr(site, key) is None:
            raise InputError("unknown", where=f"site.{key}")
    share = 1.0 if nodes is None else nodes / cluster.nodes
    return float(site.embodied or 0.0) * share * duration / float(site.lifetime or 1.0)


def cost_per_hour(cluster: Cluster, utilisation: float | Mapping[str, float], start: When | None) -> Cost:
    """See `Cluster.cost_per_hour`."""
    site = cluster.site
    try:
        joules: float | None = power(cluster, utilisation, None, True) * 3600
    except InputError:
        joules = None
    price = site.energy_price
    hour = None
    if joules is not None and price is not None:
        hour = joules / JOULES_PER_KWH * _over_time(price, "energy_price", start, 3600)
    grams = carbon(cluster, joules, start, 3600, None, False) if joules is not None and site.carbon_intensity is not None else None
    made = embodied(cluster, 3600, None) if site.embodied is not None and site.lifetime is not None else None
    machine, currency = _machine_price(cluster)
    energy_currency = None if price is None else str(price.unit)[:3]
    if currency and energy_currency and currency != energy_currency:
        raise InputError(f"energy is priced in {energy_currency}, the machine in {currency}; expected one currency", where=cluster.name)
    if machine is not None:
        machine = machine * 3600 / float(site.lifetime) if site.lifetime is not None else None
    kwh = None if joules is None else joules / JOULES_PER_KWH
    return Cost(kwh, hour, machine, currency or energy_currency, grams, made)


def _machine_price(cluster: Cluster) -> tuple[float | None, str | None]:
    """The total price of the parts that have one, with its currency; None if no part has a price."""
    total, currencies = 0.0, set()
    for g in cluster.groups:
        node = g.node
        priced: list[tuple[float, Any]] = [(1, node.price)]
        priced += [(socket.count, socket.price) for socket in node.sockets]
        priced += [(device.count, device.price) for device in node.devices]
        priced += [(tier.count * float(tier.size or 0) / 2**30, tier.price) for tier in node.memories]
        for count, price in priced:
            if price is not None:
                total += g.count * count * float(price)
                currencies.add(price.unit[:3])
    if len(currencies) > 1:
        raise InputError(f"prices in {', '.join(sorted(currencies))}; expected one currency", where=cluster.name)
    return (total, currencies.pop()) if currencies else (None, None)
