"""My model is split over edge boxes, a fog server and the cloud: where should it be cut, and which node gets the next request?"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
