"""In-memory key-value maps: a vector-probed hash map to use, its rivals to compare it with, and what tells which one is fastest.

from armillary.storage.keyvalue import SimdMap
rows, found = SimdMap(keys).get_many(queries)
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
