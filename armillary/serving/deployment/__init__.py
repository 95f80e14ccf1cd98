"""One description of a GenAI service, rendered for every platform, started where the platform is here, and asked whether it answers.

from armillary.serving.deployment import Service
files = Service.read("service.toml").render("slurm-podman")
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
