from .machine import describe as describe
from .machine import here as here
