"""QR of tall and skinny matrices over ranks: fast, and orthogonal to roundoff however ill-conditioned.

from armillary.numerics.qr import tall_qr, lstsq, tall_svd
q, r, info = tall_qr(a_local, comm, method="auto")
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
