"""How co-located work slows each other down: hyper-threads of one core, caches and memory bandwidth of one socket, and run queues.

    from armillary.scheduling import contention as c
    apps = c.draw_applications(rng, 60)
    fleet = c.Fleet.of(cluster)
    settled = c.settle(apps, fleet, app, demand, server, offsets, threads)       # work that is pinned to hyper-threads
    settled = c.settle_floating(apps, fleet, app, demand, server, vcpus)         # virtual machines whose vCPUs float
    settled.use, settled.slowdown

Everything is arrays in and arrays out. The result of one server depends on nothing outside it, nor on the order in which instances are
listed. Only additions, multiplications, divisions and square roots enter, so that every processor gives the same bits.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
