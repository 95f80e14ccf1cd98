"""Logs without loss: which order of the fields compresses best, and what heavier log compressors add.

from armillary.compression.logs import CFseq
plan = CFseq(compressor="zstd-3").fit("conn.log")
plan.transform("conn.log", "conn.reordered.log")
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
