"""Deduplicated stores, in which the chunks that files share lie so that files read fast and nothing is stored twice.

from armillary.storage.deduplication import DedupStore
with DedupStore("folder") as store:
    store.put("name", b"bytes")
    store.relocate()
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
