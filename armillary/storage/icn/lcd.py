"""lcd: one copy per delivery, one hop below the place where the content was found.

A content moves one hop closer to its receivers with each request, so only popular contents reach the edge.

Laoutaris, Che, Stavrakakis: The LCD interconnection of LRU caches and its analysis. Performance Evaluation, 2006.
"""

from __future__ import annotations

from typing import ClassVar

from .simulation.on_path import OnPath
from .simulation.replay import ONE_DOWN


class Lcd(OnPath):
    """Leave a copy one hop down (Performance Evaluation 2006)."""

    decides: ClassVar[int] = ONE_DOWN
