from .device import compress as compress
from .device import covers as covers
from .device import decompress as decompress
from .device import ready as ready
