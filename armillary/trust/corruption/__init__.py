"""Silent corruption of sparse computations: noticed from counters, or by checks inside the algorithm.

from armillary.trust.corruption import AbftOperator, CorruptionDetector, CounterSampler
detector = CorruptionDetector("forest").fit(X, y, groups=run); checked = AbftOperator(A)
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
