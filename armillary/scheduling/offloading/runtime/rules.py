"""The rules of Gaia's Dynamic Function Runtime, as compiled code that the simulator and `GaiaRuntime` share.

A function is in one of four modes. Only the two *preferred* ones are ever revised: latency against the SLO promotes to the GPU, a GPU
that brings too little or that nobody uses is given back. What is not known is NaN. Latencies are in ms, times in seconds.
"""

from __future__ import annotations

import math

from armillary.kernels import loop

#: The modes, weakest first.
CPU, CPU_PREFERRED, GPU_PREFERRED, GPU = 0, 1, 2, 3
#: Places in the state: the mode, the stored latency of each mode that was left, and the time of the last change.
MODE, CPU_MS, GPU_MS, CHANGED_S = 0, 1, 2, 3
STATE = 4
#: Places in the settings.
UPPER_MS, GAP_MS, GUARD_PER_S, WINDOW_S, SETTLE_S, HOPELESS_MS, IDLE_PER_S, FAST_MS, REMEMBER_MAX = 0, 1, 2, 3, 4, 5, 6, 7, 8
USE_FINAL, USE_DEMOTE, USE_RETURN, USE_IDLE, DWELL_S = 9, 10, 11, 12, 13
SETTINGS = 14
#: Why a mode was changed: the number of the rule; KEPT changes nothing, LOST is a device that vanished.
KEPT, LOST = -1, 9


@loop
def decide(settings, state, now_s, rate_1m, rate_30m, p95_ms):  # type: ignore[no-untyped-def]
    """(the mode that follows, the rule that says so). The first rule that applies decides."""
    mode = int(state[MODE])
    if mode in (CPU, GPU):
        return mode, KEPT
    cpu_ms, gpu_ms, gap = state[CPU_MS], state[GPU_MS], settings[GAP_MS]
    changed = not math.isnan(state[CHANGED_S])
    # Times since the last change count in whole minutes, as the published controller counts them.
    since_s = 60.0 * math.floor((now_s - state[CHANGED_S]) / 60.0) if changed else math.inf
    lately = changed and since_s < settings[WINDOW_S]
    if changed and since_s < settings[DWELL_S]:
        return mode, KEPT

    # 0. The CPU is hopeless and the GPU is better: a hard mode.
    if settings[USE_FINAL] > 0 and cpu_ms >= settings[HOPELESS_MS] and cpu_ms - gap > gpu_ms:
        return GPU, 0
    # 1. Too little traffic: latencies are those of cold starts.
    if rate_1m >= settings[GUARD_PER_S]:
        # 2. Too slow on the CPU, and the GPU may be better.
        if mode == CPU_PREFERRED and p95_ms > settings[UPPER_MS] and (math.isnan(gpu_ms) or gpu_ms + gap <= p95_ms):
            return GPU_PREFERRED, 2
        if lately and since_s >= settings[SETTLE_S]:
            # 3. The GPU is not significantly faster than the CPU was.
            if settings[USE_DEMOTE] > 0 and mode == GPU_PREFERRED and p95_ms + gap >= cpu_ms:
                return CPU_PREFERRED, 3
            # 4. The CPU is significantly slower than the GPU was.
            if settings[USE_RETURN] > 0 and mode == CPU_PREFERRED and p95_ms - gap >= gpu_ms:
                return GPU_PREFERRED, 4
    # 5. Nobody is using the GPU.
    unused = math.isnan(rate_30m) or rate_30m < settings[IDLE_PER_S]
    if settings[USE_IDLE] > 0 and mode == GPU_PREFERRED and not lately and unused and (math.isnan(cpu_ms) or cpu_ms < settings[FAST_MS]):
        return CPU_PREFERRED, 5
    return mode, KEPT


@loop
def change(settings, state, mode, now_s, long_p95_ms):  # type: ignore[no-untyped-def]
    """Enters another mode and stores the 95th percentile of the one that is left, the larger of the old and the new value."""
    place = CPU_MS if state[MODE] <= CPU_PREFERRED else GPU_MS
    if not math.isnan(long_p95_ms):
        old = state[place]
        state[place] = max(old, long_p95_ms) if settings[REMEMBER_MAX] > 0 and not math.isnan(old) else long_p95_ms
    state[MODE] = mode
    state[CHANGED_S] = now_s
