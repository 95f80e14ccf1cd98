from .advice import Advice as Advice
from .asking import advise as advise
from .finding import Finding as Finding
from .questions import NotAsked as NotAsked
