"""What is wrong with a job's I/O, how sure that is, on which files and ranks, and what to change.

from armillary.observability.io import read_log, diagnose
print(diagnose(read_log("job.darshan")).markdown())
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
