"""Deduplicated stores: where the chunks that files share should lie, so that files read fast and nothing is kept twice.

from armillary.storage.deduplication import DedupStore
with DedupStore("folder") as store:
    store.put("name", b"bytes")
    store.relocate()
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
