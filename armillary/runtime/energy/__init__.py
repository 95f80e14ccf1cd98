"""Power per type of task from a meter that reads every 10 to 100 ms: the published model beside other ways, and meters.

from armillary.runtime.energy import Meter, TaskPower
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
