"""lce: every node on the delivery path keeps a copy.

The rule is the simplest one and the default of named data networking: popular contents soon lie at the edge, but each content fills
every cache on its path and pushes others out.

Jacobson, Smetters, Thornton, Plass, Briggs, Braynard: Networking Named Content. ACM CoNEXT, 2009.
"""

from __future__ import annotations

from typing import ClassVar

from .simulation.on_path import OnPath
from .simulation.replay import EVERYWHERE


class Lce(OnPath):
    """Leave a copy everywhere on the delivery path (CoNEXT 2009)."""

    decides: ClassVar[int] = EVERYWHERE
