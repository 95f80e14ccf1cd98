"""The cost of keeping, writing, reading and moving a byte, and of a late answer, by which placements are judged.

The shape (depreciation, bandwidth, energy, service levels) is the paper's. The figures are ours unless `source` says otherwise, and a
TOML file can replace any of them. Sizes are in bytes, times in seconds, and money in dollars.
"""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from armillary.errors import InputError, one_line
from armillary.files import read_text

GIB = 2.0**30
GB = 1e9
YEAR = 365.0 * 86400
KWH = 3.6e6


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=True)


class Tier(_Table):
    """One kind of memory in every caching node; `share` is its part of a node's cache."""

    name: str
    share: float = Field(ge=0, le=1)
    #: $/GiB, years, W/GiB, and full writes before it is worn out.
    price: float = Field(ge=0)
    lifetime: float = Field(gt=0)
    idle: float = Field(ge=0)
    endurance: float = Field(gt=0)
    #: J/B.
    read_energy: float = Field(ge=0)
    write_energy: float = Field(ge=0)
    #: Seconds to the first byte, and bytes/s after it.
    latency: float = Field(ge=0)
    bandwidth: float = Field(gt=0)
    source: str = "ours"


class Service(_Table):
    """A class of service: an answer after `deadline` seconds costs `penalty` dollars."""

    name: str
    deadline: float = Field(gt=0)
    penalty: float = Field(ge=0)


class Prices(_Table):
    """All prices. Links without a price of their own cost `internal`, and those to an origin cost `transit`, in $/GB."""

    tiers: tuple[Tier, ...] = (
        Tier(name="dram", share=0.05, price=4.0, lifetime=5, idle=0.35, endurance=float("inf"), read_energy=0.15e-9, write_energy=0.15e-9,
             latency=0.1e-6, bandwidth=20e9),
        Tier(name="pmem", share=0.15, price=2.0, lifetime=5, idle=0.1, endurance=1e6, read_energy=1e-9, write_energy=3e-9, latency=0.4e-6,
             bandwidth=6e9),
        Tier(name="nvme", share=0.80, price=0.10, lifetime=5, idle=0.002, endurance=1825, read_energy=2.7e-9, write_energy=4e-9,
             latency=90e-6, bandwidth=3e9),
    )  # fmt: skip
    classes: tuple[Service, ...] = (
        Service(name="gold", deadline=0.020, penalty=1e-5),
        Service(name="silver", deadline=0.050, penalty=2e-6),
        Service(name="bronze", deadline=0.200, penalty=2e-7),
    )
    #: $/kWh, and the watts that a facility draws per watt of its machines.
    electricity: float = Field(default=0.12, ge=0)
    pue: float = Field(default=1.5, ge=1)
    internal: float = Field(default=0.002, ge=0)
    transit: float = Field(default=0.02, ge=0)
    #: J/B for each link crossed, and one-way seconds and bytes/s of the link to an origin.
    hop_energy: float = Field(default=80e-9, ge=0)
    transit_latency: float = Field(default=0.010, ge=0)
    transit_bandwidth: float = Field(default=1.25e9, gt=0)

    @model_validator(mode="after")
    def _shares(self) -> Prices:
        if not self.tiers:
            raise ValueError("found no tiers; expected at least one")
        if sum(tier.share for tier in self.tiers) > 1 + 1e-9:
            raise ValueError(f"found tiers whose shares add up to {sum(t.share for t in self.tiers):g}; expected at most 1")
        for what, names in (("tier", [t.name for t in self.tiers]), ("class", [c.name for c in self.classes])):
            if len(set(names)) < len(names):
                raise ValueError(f"found two of one {what}: {', '.join(names)}; expected different names")
        if not self.classes:
            raise ValueError("found no classes; expected at least one")
        return self

    @property
    def joule(self) -> float:
        """Dollars per joule that a machine uses."""
        return self.pue * self.electricity / KWH

    def scaled(self, factor: float) -> Prices:
        """These prices with every price and penalty times a factor; physical figures stay."""
        return self.model_copy(
            update={
                "tiers": tuple(t.model_copy(update={"price": t.price * factor}) for t in self.tiers),
                "classes": tuple(c.model_copy(update={"penalty": c.penalty * factor}) for c in self.classes),
                "electricity": self.electricity * factor,
                "internal": self.internal * factor,
                "transit": self.transit * factor,
            }
        )

    def shaken(self, rng: np.random.Generator, by: float = 3.0) -> Prices:
        """These prices with each one multiplied or divided by `by` at random, which nobody optimised for."""

        def one(value: float) -> float:
            return value * by if rng.random() < 0.5 else value / by

        return self.model_copy(
            update={
                "tiers": tuple(t.model_copy(update={"price": one(t.price)}) for t in self.tiers),
                "classes": tuple(c.model_copy(update={"penalty": one(c.penalty)}) for c in self.classes),
                "electricity": one(self.electricity),
                "internal": one(self.internal),
                "transit": one(self.transit),
            }
        )

    def per_byte(self) -> PerByte:
        """The tiers' costs as arrays."""
        t = self.tiers
        column = lambda name: np.array([getattr(tier, name) for tier in t], np.float64)  # noqa: E731
        wear = column("price") / GIB / column("endurance")
        return PerByte(
            hold=column("price") / GIB / (column("lifetime") * YEAR) + column("idle") / GIB * self.joule,
            write=wear + column("write_energy") * self.joule,
            serve=column("read_energy") * self.joule,
            latency=column("latency"),
            bandwidth=column("bandwidth"),
        )


@dataclass(frozen=True)
class PerByte:
    """float64[tiers] each: $/(B·s) to hold, $/B to write and to serve, seconds to the first byte, bytes/s after it."""

    hold: np.ndarray
    write: np.ndarray
    serve: np.ndarray
    latency: np.ndarray
    bandwidth: np.ndarray


def read_prices(path: str | os.PathLike[str]) -> Prices:
    """Prices from a TOML file; what it leaves out keeps its default."""
    try:
        found: dict[str, Any] = tomllib.loads(read_text(path, limit=1 << 20))
        return Prices.model_validate(found)
    except tomllib.TOMLDecodeError as error:
        raise InputError(one_line(str(error)), where=str(path)) from None
    except ValidationError as error:
        first = error.errors()[0]
        at = ".".join(str(part) for part in first["loc"])
        raise InputError(f"{at + ': ' if at else ''}{first['msg']}", where=str(path)) from None
