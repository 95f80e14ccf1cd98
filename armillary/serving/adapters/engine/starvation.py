"""When an adapter starves, and when a set of adapters does."""

from __future__ import annotations

#: An adapter starves below this share of its offered tokens, the criterion of arXiv 2508.08343.
STARVED = 0.9
#: The share of adapters that may starve by chance, such as one with two requests in a late burst, and still count as none (our choice).
ALLOWED = 0.01
