"""Metadata engines on byte-addressable devices: a store that can be used by itself, and its rivals.

from armillary.storage.metadata import MetadataStore
store = MetadataStore.scan("/data", "data.meta")
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
