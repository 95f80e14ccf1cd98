"""The battery of checks that every arena passes, inside Armillary or outside: `check_arena("field/arena")`.

    def test_my_arena():
        armillary.testing.check_arena("scheduling/mine")
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
