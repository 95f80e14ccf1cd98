"""A routing trace says which experts every token went to, layer by layer; it is read, checked, cut and counted here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError, one_line
from armillary.files import Column, check_archive, open_file, read_arrays, read_table
from armillary.files.parquet import check_parquet, read_parquet

Ints = npt.NDArray[np.int32]
#: The most bytes of a file's arrays, and the most token numbers.
MOST_BYTES, MOST_TOKENS = 4 << 30, 1 << 20
_COLUMNS = ("token_id", "position", "request", "layer", "experts")


@dataclass(frozen=True)
class RoutingTrace:
    """Tokens in the order of requests and positions, and the experts that each layer's router chose for them.

    token_id, position and request are [tokens]; chosen [layers, tokens, k] has expert numbers, and −1 in a layer that has none for the
    token. A layer has `experts` experts. `prompt` [requests] is the number of tokens that were given; the rest was generated.
    """

    token_id: Ints
    position: Ints
    request: Ints
    chosen: npt.NDArray[np.int16]
    experts: int
    prompt: Ints

    def __post_init__(self) -> None:
        n = len(self.token_id)
        if self.chosen.ndim != 3 or self.chosen.shape[1] != n or len(self.position) != n or len(self.request) != n:
            raise InputError(f"routing: found {n} tokens and choices of shape {self.chosen.shape}; expected (layers, {n}, k)")
        if n == 0 or self.chosen.shape[0] == 0 or self.chosen.shape[2] == 0:
            raise InputError("routing: found nothing; expected at least one token, one layer and one expert per token")
        if self.chosen.min() < -1 or self.chosen.max() >= self.experts:
            raise InputError(f"routing: found expert {int(self.chosen.max())}; expected 0 to {self.experts - 1}")
        empty = [layer for layer in range(self.layers) if (self.chosen[layer] < 0).all()]
        if empty:
            raise InputError(f"routing: layer {empty[0]} has no choice of any token")
        if self.token_id.min() < 0 or self.position.min() < 0 or self.request.min() < 0:
            raise InputError("routing: found a negative token_id, position or request")

    def __len__(self) -> int:
        return len(self.token_id)

    @property
    def layers(self) -> int:
        """The number of layers that have experts."""
        return int(self.chosen.shape[0])

    @property
    def k(self) -> int:
        """The number of experts per token and layer."""
        return int(self.chosen.shape[2])

    @property
    def requests(self) -> int:
        """One more than the largest number of a request."""
        return int(self.request.max()) + 1

    @property
    def vocabulary(self) -> int:
        """One more than the largest token number."""
        return int(self.token_id.max()) + 1

    def take(self, requests: npt.ArrayLike) -> RoutingTrace:
        """Returns only these requests, renumbered in the order given."""
        wanted = np.asarray(requests, np.int64)
        place = np.full(self.requests, -1, np.int32)
        place[wanted] = np.arange(len(wanted), dtype=np.int32)
        keep = np.flatnonzero(place[self.request] >= 0)
        order = keep[np.lexsort((self.position[keep], place[self.request[keep]]))]
        return RoutingTrace(
            self.token_id[order], self.position[order], place[self.request[order]], self.chosen[:, order], self.experts,
            self.prompt[wanted],
        )  # fmt: skip

    def halves(self) -> tuple[RoutingTrace, RoutingTrace]:
        """Returns the first half of the requests, to learn from, and the rest, to be judged on."""
        n = self.requests
        if n < 2:
            raise InputError("routing: found one request; expected two or more, to learn from some and be judged on others")
        return self.take(np.arange(n // 2)), self.take(np.arange(n // 2, n))

    def counts(self, layer: int) -> Any:
        """Returns how often each token number went to each expert in a layer, as a sparse matrix [token numbers, experts]."""
        from scipy.sparse import csr_array

        chosen = self.chosen[layer]
        rows = np.repeat(self.token_id, self.k)
        keep = chosen.ravel() >= 0
        ones = np.ones(int(keep.sum()), np.float32)
        found = csr_array((ones, (rows[keep], chosen.ravel()[keep])), shape=(self.vocabulary, self.experts))
        found.sum_duplicates()
        return found

    def expert_load(self) -> npt.NDArray[np.int64]:
        """Returns the tokens that each expert gets, [layers, experts]."""
        rows = [np.bincount(layer[layer >= 0], minlength=self.experts) for layer in self.chosen]
        return np.array(rows)

    def write(self, path: str | Path) -> None:
        """Writes the trace as NPZ, which `read` reads."""
        np.savez_compressed(
            path, token_id=self.token_id, position=self.position, request=self.request, chosen=self.chosen,
            experts=np.array(self.experts), prompt=self.prompt,
        )  # fmt: skip

    @classmethod
    def read(cls, path: str | Path, experts: int | None = None) -> RoutingTrace:
        """Reads a trace from a file.

        NPZ has `token_id`, `position`, `request` [tokens] and `chosen` [layers, tokens, k], and optionally `experts` and `prompt`. Parquet
        has one row per token and layer with `token_id`, `position`, `request`, `layer` and `experts` (a list of k numbers). `experts` is
        the number of experts per layer if the file does not state it. Nothing in the file is unpickled.
        """
        source = Path(path)
        if source.suffix == ".npz":
            return _from_npz(source, experts)
        if source.suffix == ".parquet":
            return _from_parquet(source, experts)
        said = f"found suffix {source.suffix!r}; expected .npz or .parquet (a .pt file is a pickle and is not read)"
        raise InputError(said, where=str(path))


def _made(token_id: Any, position: Any, request: Any, chosen: Any, experts: int | None, prompt: Any, where: str) -> RoutingTrace:
    arrays = [np.asarray(a) for a in (token_id, position, request, chosen)]
    for name, found in zip(_COLUMNS, arrays, strict=False):
        if not np.issubdtype(found.dtype, np.integer):
            raise InputError(f"{name}: found {found.dtype}; expected whole numbers", where=where)
    if len(arrays[0]) == 0 or arrays[3].size == 0:
        raise InputError("found no tokens", where=where)
    if arrays[0].min() < 0 or arrays[0].max() >= MOST_TOKENS or arrays[1].max() >= 1 << 31 or arrays[2].max() >= 1 << 31:
        raise InputError(f"expected token numbers from 0 to {MOST_TOKENS - 1}, positions and requests below 2^31", where=where)
    if experts is not None and not 1 <= experts <= 1 << 15:
        raise InputError(f"experts: found {experts}; expected 1 to {1 << 15}", where=where)
    most = int(arrays[3].max())
    if most >= 1 << 15 or (experts is not None and most >= experts):
        raise InputError(f"found expert {most}; expected 0 to {(experts or 1 << 15) - 1}", where=where)
    count = int(arrays[2].max()) + 1 if int(arrays[2].min()) >= 0 else 0
    if not 0 < count <= len(arrays[2]):
        raise InputError("request: expected numbers from 0 without large gaps", where=where)
    lengths = np.bincount(arrays[2], minlength=count)
    given = lengths if prompt is None else np.asarray(prompt)
    if given.ndim != 1 or not np.issubdtype(given.dtype, np.integer) or (given.size and given.min() < 0):
        raise InputError("prompt: expected whole numbers of 0 or more", where=where)
    if len(given) != count:
        raise InputError(f"prompt: found {len(given)} numbers; expected {count}, one per request", where=where)
    order = np.lexsort((arrays[1], arrays[2]))
    token, at, of = (a[order].astype(np.int32) for a in arrays[:3])
    prompts: Ints = np.minimum(given, lengths).astype(np.int32)
    try:
        return RoutingTrace(token, at, of, arrays[3][:, order].astype(np.int16), experts or most + 1, prompts)
    except InputError as problem:
        raise InputError(str(problem), where=where) from None


def _from_npz(path: Path, experts: int | None) -> RoutingTrace:
    where = str(path)
    there = check_archive(path, limit=MOST_BYTES)
    found = read_arrays(path, ["token_id", "position", "request", "chosen", *(n for n in ("experts", "prompt") if n in there)])
    if found["chosen"].ndim != 3 or found["token_id"].ndim != 1:
        raise InputError(f"chosen: found shape {found['chosen'].shape}; expected (layers, tokens, k)", where=where)
    said = None
    if "experts" in found:
        if found["experts"].size != 1 or not np.issubdtype(found["experts"].dtype, np.integer):
            raise InputError("experts: expected one whole number", where=where)
        said = int(found["experts"].ravel()[0])
    return _made(found["token_id"], found["position"], found["request"], found["chosen"], experts or said, found.get("prompt"), where)


def _from_parquet(path: Path, experts: int | None) -> RoutingTrace:
    import polars as pl

    where = str(path)
    with open_file(path, limit=MOST_BYTES, seekable=True) as file:
        rows, names = check_parquet(file, where, [name for name in _COLUMNS if name != "experts"], MOST_BYTES, lists=("experts",))
        missing = [name for name in _COLUMNS if name not in names]
        if missing:
            raise InputError(f"found the columns {one_line(', '.join(names), 200)}; missing {', '.join(missing)}", where=where)
        frame = pl.concat([part for _, part in read_parquet(file, where, _COLUMNS, rows)])
    if frame.height == 0:
        raise InputError("found no rows", where=where)
    if frame["experts"].dtype not in (pl.List, pl.Array):
        raise InputError(f"experts: found {frame['experts'].dtype}; expected lists of whole numbers", where=where)
    lengths = frame["experts"].list.len() if frame["experts"].dtype == pl.List else None
    if lengths is not None and lengths.n_unique() != 1:
        raise InputError(f"experts: found lists of {lengths.min()!r} to {lengths.max()!r} numbers; expected k in every row", where=where)
    if any(frame[name].null_count() for name in _COLUMNS):
        raise InputError("found empty cells", where=where)
    frame = frame.sort("layer", "request", "position")
    layers = frame["layer"].unique().sort().to_list()
    one = frame.filter(pl.col("layer") == layers[0])
    if frame.height != len(layers) * one.height:
        raise InputError(f"found {frame.height} rows for {len(layers)} layers; expected every token once in every layer", where=where)
    chosen = np.stack(frame["experts"].to_list()).reshape(len(layers), one.height, -1)
    return _made(one["token_id"].to_numpy(), one["position"].to_numpy(), one["request"].to_numpy(), chosen, experts, None, where)


def read_counts(path: str | Path) -> npt.NDArray[np.int64]:
    """Reads counts [layers, experts] from a table `layer,expert,count`; unlisted pairs count 0, and numbers begin at 0."""
    columns = [
        Column("layer", "int", least=0, most=1023), Column("expert", "int", least=0, most=(1 << 15) - 1),
        Column("count", "int", least=0, most=(1 << 62) - 1),
    ]  # fmt: skip
    table = read_table(path, columns, unique=("layer", "expert"))
    layer, expert = table["layer"], table["expert"]
    found = np.zeros((int(layer.max()) + 1, int(expert.max()) + 1), np.int64)
    found[layer, expert] = table["count"]
    empty = np.flatnonzero(found.sum(axis=1) == 0)
    if len(empty):
        raise InputError(f"layer {int(empty[0])} has no counts", where=str(path))
    return found
