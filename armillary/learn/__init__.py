"""The learned parts that several fields share: small networks, two reinforcement learners, and how trained models are stored and found.

`fit` trains a network on arrays, `Dqn` and `Ppo` train one in a batched environment. `Model` holds the result, `load` reads one from a
file, `model.frozen()` runs it without PyTorch, and `obtain` finds a technique's model or trains it on first use. Only training needs
PyTorch (`pip install "armillary[learn]"`).
"""

from typing import Any

import lazy_loader

_found, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:
    """A public name, whose module is imported now; a package that is missing for it is named with the extra that brings it."""
    try:
        return _found(name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in ("torch", "gymnasium", "sklearn"):
            from armillary import extras

            raise extras.missing(error.name or "torch") from None
        raise
