"""What several fields draw: arrivals, popularity, sizes and durations, links that fade, failures.

Every function takes a `numpy.random.Generator` first, returns arrays, and says in its docstring what it draws in which order, so the
same generator gives the same bits for ever. Numbers that make no sense raise `InputError`. Times are seconds from 0 on.

```python
from armillary import workloads as w

t = w.poisson(rng, 10_000, rate=20)                                     # arrivals, 20 per second
t = w.mmpp(rng, 10_000, rate=20, burst=10, on_s=10, off_s=90)           # bursts ten times as fast
t = w.profiled(rng, 10_000, rate=20, profile=hourly)                    # 24 factors, one per hour of the day
t = w.replay(trace_times, rate=50)                                      # a trace's own arrivals at another rate
t, function = w.spread(rng, per_minute, 60.0)                           # counts [minutes, functions] as single arrivals

ranks = w.zipf(rng, 1_000_000, 0.9, 10_000)                             # exact Zipf ranks from 0
below = w.cumulative(shares); ranks = w.draw(rng, below, 10_000)        # any shares, many draws
objects = w.shifted(ranks, np.arange(10_000), 1_000_000, every=1000, step=100)

s = w.lognormal(rng, 10_000, mean=300, cv=2)                            # or median=, sigma=; or mu=, sigma=
s = w.bounded_pareto(rng, 10_000, shape=1.1, least=1, most=1e6)
n = w.whole(w.lognormal(rng, 10_000, median=110, sigma=1.4), 4, 1024)   # whole numbers within bounds
s = w.empirical(rng, 10_000, w.read_values("jobs.csv", "runtime_s"))

at, rate = w.two_states(rng, 100e6, 1e6, mean_s=30, horizon_s=3600)     # a link that fades
at, rate, end, late = w.read_bandwidth("lte.up")                        # Mahimahi, or CSV
down = w.failures(rng, 512, 30 * 86400, mtbf_s=5e7, shape=0.7, repair_median_s=1800, repair_sigma=0.8)
down = w.together(down, w.rack_failures(rng, rack_of, 30 * 86400, mtbf_s=3e8, repair_median_s=3600))
```

An arena that draws by hand today can switch without changing a bit:

| by hand | here |
|---|---|
| `np.cumsum(rng.exponential(1 / rate, n))` | `poisson(rng, n, rate)`; with a mean gap instead, `poisson(rng, n, mean_s=gap)` |
| `start + np.sort(rng.random(rng.poisson(expected))) * length` | `window(rng, expected, length, start)` |
| `rng.choice(n, size, p=shares)` | `draw(rng, cumulative(shares), size)` |
| `np.searchsorted(np.cumsum(p), rng.random(size)).clip(0, n - 1)` | `draw(rng, np.cumsum(p), size, side="left")` |
| `np.cumsum(w) / np.cumsum(w)[-1]` and a search to the right | `draw(rng, cumulative(w), size)` |
| `median * np.exp(sigma * rng.standard_normal(n))` | `lognormal(rng, n, median=median, sigma=sigma)` |
| `mean * np.exp(sigma * rng.standard_normal(n) - sigma**2 / 2)` | `lognormal(rng, n, mean=mean, sigma=sigma)` |
| `rng.lognormal(mu, sigma, n)` | `lognormal(rng, n, mu=mu, sigma=sigma)` |
| `np.clip(np.rint(x), low, high).astype(np.int64)` | `whole(x, low, high)` |
| `np.interp(rng.random(n), shares, table)` | `quantiles(rng, n, table, shares)` |
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
