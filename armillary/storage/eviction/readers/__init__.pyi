from .trace_file import FORMATS as FORMATS
from .trace_file import TraceFile as TraceFile
from .trace_file import open_trace as open_trace
