"""Transformers: their shapes from a Hugging Face `config.json`, what they cost, a serving simulator, and a tiny one that really runs.

`Model.from_config("config.json")` gives shapes and exact counts; `flops`, `fits`, `volumes` and `StepCost` say what they cost. Every time
is modelled, and carries the name of the calibration that it rests on.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
