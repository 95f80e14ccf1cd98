"""Pilots: many tasks inside one allocation, started by srun, Flux, Dragon, warm interpreters or our own spawner; real and simulated.

from armillary.runtime.pilot import Pilot, Slurm, Task
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
