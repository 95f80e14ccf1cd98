from .array import Converters as Converters
from .array import Crossbar as Crossbar
from .cells import Device as Device
from .cells import Programmed as Programmed
from .cells import devices as devices
from .cells import program as program
from .prices import Bill as Bill
from .prices import Prices as Prices
