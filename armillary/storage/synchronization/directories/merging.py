"""Line-wise three-way merge of texts, for `automerge`.

Both sides started from what both showed after their last session, so a copy of every text up to a mebibyte is kept in the folder
`texts` of the state.
"""

from __future__ import annotations

import os
from functools import partial

from ..replicas.merge3 import merge_sequences
from ..replicas.versions import Version
from . import durable
from .beneath import create_new
from .display import MergeContents
from .entries import Entry, content_hash, entry
from .scanning import hash_file
from .store import DirectoryStore

#: The longest text that is merged, in bytes.
MOST = 1 << 20


def line_merge(store: DirectoryStore) -> MergeContents:
    """Merges two versions of a text above a third; None where changes touch, or one of the contents is no text or not at hand."""

    def merge(base: Version, a: Version, b: Version) -> Entry | None:
        texts = [_text(store, entry(one)) for one in (base, a, b)]
        lines = [None if text is None else text.splitlines(keepends=True) for text in texts]
        if lines[0] is None or lines[1] is None or lines[2] is None:
            return None
        merged = merge_sequences(lines[0], lines[1], lines[2]).lines
        if merged is None:
            return None
        data = b"".join(merged)
        made = content_hash()
        made.update(data)
        name = made.hexdigest()
        _write(f"{store.staging}/{name}", data)
        store.ready.add(name)
        return Entry("file", 0, len(data), name)

    return merge


def keep_texts(store: DirectoryStore) -> None:
    """Keeps a copy of every text that is shown now, and of no other."""
    folder = store.folder / "texts"
    folder.mkdir(exist_ok=True)
    rows = [store.shown_row(row) for row in store.rows("SELECT * FROM shown WHERE kind = 1 AND size <= ?", (MOST,))]
    shown = {row.data: row.path for row in rows}
    kept = set(os.listdir(folder))
    for name in kept - shown.keys():
        os.unlink(folder / name)
    for name in shown.keys() - kept:
        try:
            hash_file(store, shown[name], folder)
        except OSError:
            continue


def _text(store: DirectoryStore, holds: Entry | None) -> bytes | None:
    """Returns a content if it is a text and at hand."""
    if holds is None or holds.kind != "file" or holds.size > MOST:
        return None
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    places = [partial(os.open, folder / holds.data, flags) for folder in (store.staging, store.folder / "texts")]
    places += [partial(store.open_beneath, row.path) for row in store.shown_with(holds.data)]
    for place in places:
        try:
            with os.fdopen(place(), "rb") as file:
                data = file.read(MOST + 1)
        except OSError:
            continue
        made = content_hash()
        made.update(data)
        if made.hexdigest() == holds.data:
            return None if b"\0" in data else data
    return None


def _write(path: str, data: bytes) -> None:
    with os.fdopen(create_new(f"{path}.part"), "wb") as file:
        file.write(data)
    os.rename(f"{path}.part", path)
    durable.wrote()
