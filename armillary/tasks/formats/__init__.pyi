from .dask_graph import from_dask as from_dask
from .dot import from_dot as from_dot
from .dot import to_dot as to_dot
from .starpu import from_rec as from_rec
from .starpu import write_rec as write_rec
from .stg import from_stg as from_stg
from .wfformat import from_wfformat as from_wfformat
