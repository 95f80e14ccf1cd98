"""Which layer gets which bits on which device? A problem holds the numbers, and a choice is priced by the published formula.

A `Problem` is one order of the devices and one pair of micro-batches, as arrays. A `Choice` gives each layer a device and a
precision. Its time is

    Σ T_pre + (m_p − 1)·max T_pre + Σ T_dec + (m_d·(n − 1) − 1)·max T_dec,

where T[j] is the longer of the compute and the send time of stage j, and n the number of output tokens. The release has the last term as
(m_d − 1)·(n − 1)·max T_dec (`released=True`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
#: Bits that a layer may have.
LEGAL_BITS = (2, 3, 4, 8, 16)


class DoesNotFit(InputError):
    """No choice fits the devices' memory."""


def checked_bits(bits: Sequence[int], where: str = "bits") -> tuple[int, ...]:
    """Returns the precisions in ascending order, each once; raises `InputError` for one that is not supported."""
    wrong = [b for b in bits if b not in LEGAL_BITS]
    if wrong or not bits:
        raise InputError(f"found {wrong[0] if wrong else 'none'}; expected some of {', '.join(map(str, LEGAL_BITS))}", where=where)
    return tuple(sorted(set(bits)))


@dataclass(frozen=True)
class Choice:
    """For each layer, a device (its index in the order) and a precision (its index in the problem's bits)."""

    device: Ints
    bits: Ints

    def layers_of(self, device: int) -> Ints:
        """Returns the layers on a device."""
        return np.flatnonzero(self.device == device)


@dataclass(frozen=True)
class Problem:
    """One order of devices with one prefill and one decode micro-batch, in seconds and bytes or any other consistent units.

    The arrays cover L layers (or groups of layers), N devices in their order, and the precisions `bits` in ascending order.
    """

    bits: tuple[int, ...]
    memory: Floats  # [L, bits]: weights and cached keys and values
    budget: Floats  # [N]
    prefill: Floats  # [L, N, bits]: one prefill micro-batch
    decode: Floats  # [L, N, bits]: one token for one decode micro-batch
    omega: Floats  # [L, bits]: what the precision costs in quality
    micro_prefill: int  # m_p: prefill micro-batches
    micro_decode: int  # m_d
    output: int  # n: tokens to make
    send_prefill: Floats = field(default_factory=lambda: np.zeros(0))  # [N]: to the next device; empty means none
    send_decode: Floats = field(default_factory=lambda: np.zeros(0))
    once_prefill: Floats = field(default_factory=lambda: np.zeros(0))  # [N]: beside the layers (embedding, head)
    once_decode: Floats = field(default_factory=lambda: np.zeros(0))
    names: tuple[str, ...] = ()
    released: bool = False

    def __post_init__(self) -> None:
        layers, devices, kinds = self.prefill.shape
        for name in ("send_prefill", "send_decode", "once_prefill", "once_decode"):
            if not len(getattr(self, name)):
                object.__setattr__(self, name, np.zeros(devices))
        if not self.names:
            object.__setattr__(self, "names", tuple(f"D{j}" for j in range(devices)))
        shapes = (self.memory.shape, self.decode.shape, self.omega.shape, self.budget.shape, len(self.bits))
        if shapes != ((layers, kinds), (layers, devices, kinds), (layers, kinds), (devices,), kinds):
            raise InputError(f"a problem of {layers} layers, {devices} devices and {kinds} precisions whose arrays have other shapes")
        if self.micro_prefill < 1 or self.micro_decode < 1 or self.output < 1:
            raise InputError("expected at least one micro-batch and one output token")

    @property
    def layers(self) -> int:
        """The number of layers, or of groups of layers."""
        return len(self.memory)

    @property
    def devices(self) -> int:
        """The number of devices."""
        return len(self.budget)

    @property
    def prefill_turns(self) -> int:
        """The number of times that the slowest stage's prefill counts beyond the sum over stages."""
        return self.micro_prefill - 1

    @property
    def decode_turns(self) -> int:
        """The number of times that the slowest stage's decode counts beyond the sum over stages."""
        if self.released:
            return (self.micro_decode - 1) * (self.output - 1)
        return max(0, self.micro_decode * (self.output - 1) - 1)

    @property
    def decodes(self) -> bool:
        """Whether there is any decoding; the first token comes from the pass over the prompt."""
        return self.output > 1

    def stage_times(self, choice: Choice) -> tuple[Floats, Floats]:
        """Returns (T_pre, T_dec) of every stage; zero for a device without layers."""
        used = np.bincount(choice.device, minlength=self.devices) > 0
        found = []
        for table, once, send in (
            (self.prefill, self.once_prefill, self.send_prefill),
            (self.decode, self.once_decode, self.send_decode),
        ):
            each = table[np.arange(self.layers), choice.device, choice.bits]
            total = np.bincount(choice.device, each, self.devices) + once
            found.append(np.where(used, np.maximum(total, send), 0.0))
        return found[0], found[1] * self.decodes

    def seconds(self, choice: Choice) -> float:
        """Returns the time by the formula."""
        pre, dec = self.stage_times(choice)
        return float(pre.sum() + self.prefill_turns * pre.max() + dec.sum() + self.decode_turns * dec.max())

    def quality(self, choice: Choice) -> float:
        """Returns Σω."""
        return float(self.omega[np.arange(self.layers), choice.bits].sum())

    def held(self, choice: Choice) -> Floats:
        """Returns the bytes on each device."""
        each = self.memory[np.arange(self.layers), choice.bits]
        return np.bincount(choice.device, each, self.devices).astype(np.float64)

    def feasible(self, choice: Choice, *, empty: bool = False) -> bool:
        """Returns whether the choice is contiguous, fits the memory, and (unless `empty`) gives every device a layer."""
        if (np.diff(choice.device) < 0).any() or (self.held(choice) > self.budget * (1 + 1e-9) + 1e-12).any():
            return False
        return empty or len(np.unique(choice.device)) == self.devices

    def check(self, *, empty: bool = False) -> None:
        """Raises `DoesNotFit` if obviously nothing fits, and names the device or the total that is missing."""
        least = self.memory.min(1)
        if self.layers < self.devices and not empty:
            raise DoesNotFit(f"{self.layers} layers for {self.devices} devices; expected at least one for each")
        short = float(least.sum() - np.maximum(self.budget, 0.0).sum())
        if short > 0:
            raise DoesNotFit(
                f"at {self.bits[0]} bits the layers and their cache need {_size(least.sum())}, the devices have "
                f"{_size(np.maximum(self.budget, 0).sum())} for them: {_size(short)} short"
            )
        if not empty:
            for name, budget in zip(self.names, self.budget, strict=True):
                if budget < least.min():
                    raise DoesNotFit(
                        f"device {name} has {_size(max(0.0, float(budget)))} for layers and the smallest takes {_size(least.min())}; "
                        "leave the device out, or allow_empty=True"
                    )


def _size(value: float) -> str:
    return f"{value / 1e9:.2f} GB" if value >= 1e6 else f"{value:g} bytes"


def flat(problem: Problem, counts: Sequence[int], bit: int) -> Choice:
    """Returns the choice that gives each device its count of layers in order, all at one precision (an index of the bits)."""
    device = np.repeat(np.arange(problem.devices), np.asarray(counts, np.int64))
    return Choice(device, np.full(problem.layers, bit, np.int64))


def even(layers: int, devices: int) -> list[int]:
    """Returns the layers per device, as even as possible; the first devices get one more."""
    return [layers // devices + (j < layers % devices) for j in range(devices)]
