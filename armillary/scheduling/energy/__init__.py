"""Where electricity comes from: the carbon of a grid over time, and what the sun gives to panels.

```python
from armillary.scheduling.energy import Carbon, Panels, clear_sky, idle_watts, read_carbon, zenith

grid = read_carbon("DE_2024_hourly.csv")             # Electricity Maps' export, or a table with time and g_per_kwh
grid.at(1704070800.0)                                # g/kWh at that moment
grid.grams(watts=40.0, start_s=1704070800.0, stop_s=1704074400.0)
idle_watts(vcpu=0.3, memory_gb=0.125)                # at the meter
angle = zenith(1718971200.0, latitude=51.48, longitude=0.0)
Panels(area_m2=40.0).watts(clear_sky(angle))
```
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
