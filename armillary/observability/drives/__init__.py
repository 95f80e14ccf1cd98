"""Which drives fail next? Predictors over SMART logs, learned and not.

from armillary.observability.drives import read_alibaba, GmpPredictor
predictor = GmpPredictor().fit(read_alibaba("smartlog/"))
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
