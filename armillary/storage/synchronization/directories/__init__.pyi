from .entries import Entry as Entry
from .replica import Replica as Replica
from .scanning import ScanReport as ScanReport
from .syncing import SyncReport as SyncReport
from .syncing import connect as connect
from .syncing import converse as converse
from .syncing import sync as sync
from .wire import Transport as Transport
