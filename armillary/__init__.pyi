from .advice import advise as advise
from .arena import Arena as Arena
from .arena import Artifact as Artifact
from .arena import Case as Case
from .arena import Claim as Claim
from .arena import Constant as Constant
from .arena import Exponent as Exponent
from .arena import Gain as Gain
from .arena import InputError as InputError
from .arena import Kind as Kind
from .arena import Level as Level
from .arena import Metric as Metric
from .arena import NotForThisCase as NotForThisCase
from .arena import Outcome as Outcome
from .arena import Parity as Parity
from .arena import Technique as Technique
from .arena import Wins as Wins
from .study import Result as Result
from .study import compare as compare
from .study import reproduce as reproduce

__version__: str
