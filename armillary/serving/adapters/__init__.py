"""Adapters on GPUs: how many are needed, which goes where, and who takes a request.

from armillary.serving.adapters import AdapterTable, TwinGreedy
placement = TwinGreedy().place(AdapterTable.of(rank=[8, 16], rate=[0.4, 0.1]))
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
