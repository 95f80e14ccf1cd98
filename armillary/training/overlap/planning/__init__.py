"""How schedules are chosen: closed forms, the choice rule, tuning, and kernels on streams for the baselines."""
