"""When will my job start? Forecasts of queue waits, learned and planned.

from armillary.scheduling.waittime import LearnedWait, from_slurm
LearnedWait().fit(read_jobs("log.swf")).predict(jobs, state)
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
