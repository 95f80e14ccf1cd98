"""Serverless functions: traces in, and pods with keep-alive played out.

from armillary.scheduling.faas import play, read_invocations
trace = read_invocations("invocations_per_function_md.anon.d01.csv", durations="function_durations_percentiles.anon.d01.csv")
played = play(trace, keep_s=60.0)
played.cold.sum(), played.idle_s.sum()
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
