"""The energy of NVIDIA GPUs: their counter of millijoules where they have one, else their power in milliwatts."""

from __future__ import annotations

from typing import Any

from .rapl import NoMeter


class Nvml:
    """Every GPU as a source for `Meter`, through `nvidia-ml-py`. `power=True` samples the power even where there is a counter."""

    def __init__(self, *, power: bool = False, library: Any = None) -> None:
        if library is None:
            try:
                import pynvml
            except ImportError:
                raise NoMeter("the package nvidia-ml-py is not installed") from None
            library = pynvml
        self._library = library
        try:
            library.nvmlInit()
        except library.NVMLError as error:
            raise NoMeter(f"NVML does not start ({error})") from None
        try:
            self._devices = [library.nvmlDeviceGetHandleByIndex(i) for i in range(library.nvmlDeviceGetCount())]
            if not self._devices:
                raise NoMeter("NVML finds no GPU")
            self.form = "power" if power or not self._counts() else "energy"
            for number in range(len(self._devices)):
                self.read(number)
        except library.NVMLError as error:
            self.close()
            raise NoMeter(f"NVML says neither energy nor power ({error})") from None
        except NoMeter:
            self.close()
            raise
        self.domains = tuple(f"gpu{i}" for i in range(len(self._devices)))
        self.wraps = (0.0,) * len(self._devices)

    def _counts(self) -> bool:
        try:
            for device in self._devices:
                self._library.nvmlDeviceGetTotalEnergyConsumption(device)
        except (self._library.NVMLError, AttributeError):
            return False
        return True

    def read(self, number: int) -> float:
        """Joules on the counter of a GPU, or its watts."""
        device = self._devices[number]
        if self.form == "energy":
            return float(self._library.nvmlDeviceGetTotalEnergyConsumption(device)) * 1e-3
        return float(self._library.nvmlDeviceGetPowerUsage(device)) * 1e-3

    def close(self) -> None:
        """Ends NVML."""
        if self._library is not None:
            library, self._library = self._library, None
            library.nvmlShutdown()
