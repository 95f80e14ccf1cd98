"""Which published technique pays off on my cluster and my workload, and by how much?

import armillary
result = armillary.compare("storage/eviction", techniques=["lru", "s3-fifo", "fifo-mep"])
result.summary()             # a Polars table
result.html("report.html")
"""

import lazy_loader

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
