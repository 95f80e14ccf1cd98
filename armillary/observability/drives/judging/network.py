"""What techniques that are a single network share: their parameters, and that they are trained like `gmppredictor`'s."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from armillary.parameters import parameter

from .lesson import DriveTechnique, Lesson, Scorer

EPOCHS = "epochs at most; the built-in small fleets allow 6"


@dataclass(frozen=True)
class NetworkTechnique(DriveTechnique):
    """A network over windows; `rival` ones have neither weighted features nor a class weight that follows the training."""

    epochs: int = parameter(30, EPOCHS, range=(1, 1000))
    patience: int = parameter(5, "epochs without a better validation F0.5 after which training stops", range=(0, 1000))
    ensemble: int = parameter(3, "networks per partition, averaged; the built-in small fleets allow 1", range=(1, 20))
    width: int = parameter(32, "units, a multiple of 4", range=(4, 512))
    batch: int = parameter(128, "windows per step", range=(1, 8192))
    rate: float = parameter(3e-3, "first learning rate of AdamW", range=(1e-6, 1.0))
    kind: ClassVar[str] = ""
    rival: ClassVar[bool] = True

    def learn(self, lesson: Lesson) -> Scorer:
        """Trains the network of every partition."""
        from ..networks.scorer import fit
        from ..networks.settings import Settings

        how = Settings(
            kind=self.kind, width=self.width, epochs=self.epochs, patience=self.patience, ensemble=self.ensemble, batch=self.batch,
            rate=self.rate, guidance=not self.rival, dynamic=not self.rival,
        )  # fmt: skip
        return fit(lesson, how)
