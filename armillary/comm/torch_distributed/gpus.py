"""GPUs for NCCL: this module says what is missing on this machine, without importing PyTorch, which takes seconds."""

from __future__ import annotations

import ctypes
import os
import re
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

_HIDDEN = "found no NVIDIA GPU, because CUDA_VISIBLE_DEVICES hides all of them"
_NO_GPU = "found no NVIDIA GPU that PyTorch can use"
_NO_CUDA = "found an NVIDIA GPU, but PyTorch is built without CUDA"


def lacks_gpu() -> str:
    """Say why PyTorch, which is installed, can use no GPU here; return "" if it can."""
    if os.environ.get("CUDA_VISIBLE_DEVICES", "0").strip() in ("", "-1"):
        return _HIDDEN
    if _driver_gpus() == 0:
        return _NO_GPU
    if not _has_cuda():
        return _NO_CUDA
    torch: Any = sys.modules.get("torch")
    return "" if torch is None or torch.cuda.device_count() else _NO_GPU


def _has_cuda() -> bool:
    """Return whether PyTorch is built with CUDA, according to the file that says so."""
    spec = find_spec("torch")
    version = Path(spec.origin).with_name("version.py") if spec is not None and spec.origin else None
    return version is None or not version.exists() or not re.search(r"^cuda\b.*=\s*None\s*$", version.read_text(), re.MULTILINE)


def _driver_gpus() -> int | None:
    """Return the number of GPUs that the driver's management library reports; None if it does not answer although there is a driver."""
    try:
        nvml = ctypes.CDLL("nvml.dll" if sys.platform == "win32" else "libnvidia-ml.so.1")
        count = ctypes.c_uint(0)
        if nvml.nvmlInit_v2() != 0:
            return 0
        try:
            return int(count.value) if nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) == 0 else None
        finally:
            nvml.nvmlShutdown()
    except (OSError, AttributeError):
        pass
    try:
        # Some boards have the driver without its management library.
        ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        return 0
    return None
