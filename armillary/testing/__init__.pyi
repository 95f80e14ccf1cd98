from .battery import Checked as Checked
from .battery import check_arena as check_arena
from .sync_machine import SyncMachine as SyncMachine
