from .result import Result as Result
from .store import Store as Store
from .store import StoreError as StoreError
from .store import default_store as default_store
from .study import compare as compare
from .study import reproduce as reproduce
from .study import reproduce_all as reproduce_all
