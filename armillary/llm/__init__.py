"""Transformers: shapes from a Hugging Face `config.json`, what they cost, and the serving simulator.

`Model.from_config("config.json")` gives shapes and exact counts; `flops`, `fits`, `volumes` and `StepCost` say what they cost. Every
time here is modelled, and says on which calibration it rests.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
