"""Random operations that are possible on the tree that a builder has made so far."""

from __future__ import annotations

from armillary.storage.metadata.workload import CREATE, MKDIR, READDIRPLUS, RENAME, RMDIR, UNLINK


def add_random(builder, directories, rng, names, shares, *, to_root=False):
    """Draws an operation and adds it if it is possible; says whether it was. With `to_root`, directories may be renamed to the root."""
    directory = int(rng.choice(directories))
    name = names[int(rng.integers(len(names)))]
    child = builder.find(directory, name)
    kind = int(rng.choice(list(shares), p=list(shares.values())))
    size, client = int(rng.integers(1, 10**9)), int(rng.integers(0, 64))
    if kind == READDIRPLUS:
        builder.add(kind, directory)
        return True
    if (child is None) != (kind in (CREATE, MKDIR)):
        return False
    if child is None:
        number = builder.add(kind, directory, name, size=size, client=client)
        if kind == MKDIR:
            directories.append(number)
        return True
    folder = builder.is_directory(child)
    to = None
    if kind == RENAME:
        to = (int(rng.choice(directories)), names[int(rng.integers(len(names)))])
        target = builder.find(*to)
        # A directory may not move below itself, and it cannot when it moves to the root.
        if (folder and not (to_root and to[0] == 1 and target is None)) or (target is not None and builder.is_directory(target)):
            return False
    elif kind in (UNLINK, RMDIR):
        if folder != (kind == RMDIR) or (folder and builder.children(child)):
            return False
        if folder:
            directories.remove(child)
    builder.add(kind, directory, name, to=to, size=size)
    return True
