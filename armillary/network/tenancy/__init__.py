"""RDMA for containers of different tenants: virtual networks of a Slingshot fabric, handed out per job and bound to network namespaces.

from armillary.network.tenancy import VniService, audit, manifests
service = VniService("vni.db")
service.acquire("job-7f0c", "physics")
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
