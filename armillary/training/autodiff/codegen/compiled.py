"""Turns generated text into machine code.

The text is made anew for each program, plan and set of shapes, and equal texts are one function. Machine code is kept
by `armillary.kernels` under a digest of what the text says, so a later process compiles nothing that an earlier one has compiled.
"""

from __future__ import annotations

import hashlib
import math
import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from armillary.kernels import loop

from .runtime import RUNTIME


def compiled(text: str, name: str) -> Callable[..., Any]:
    """The function that a generated text defines, compiled when it is first called."""
    module_name = f"armillary_generated_{hashlib.sha256(text.encode()).hexdigest()[:24]}"
    module = sys.modules.get(module_name)
    if module is None:
        module = types.ModuleType(module_name)
        vars(module).update(np=np, math=math, **RUNTIME)
        exec(compile(text, f"<{module_name}>", "exec"), vars(module))
        setattr(module, name, loop(error_model="numpy")(getattr(module, name)))
        sys.modules[module_name] = module
    made: Callable[..., Any] = getattr(module, name)
    return made
