"""Files that were uploaded: each in a private folder of its own, under its own name made harmless."""

from __future__ import annotations

import re
import secrets
import shutil
import time
from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path

from starlette.datastructures import UploadFile

from armillary.errors import InputError
from armillary.web.runs import private

PIECE = 1 << 20
#: Seconds after which a file that no run names is thrown away, and the number of files kept at most.
KEPT_S, MOST = 86_400.0, 200
FOLDER = re.compile(r"[0-9a-f]{16}")


@dataclass(frozen=True)
class Uploads:
    """The uploaded files of one explorer, of at most `most_bytes` each."""

    folder: Path
    most_bytes: int

    @classmethod
    def made(cls, folder: Path, most_bytes: int) -> Uploads:
        """The files in a folder that only its owner may read; it is made when it does not exist."""
        private(folder)
        return cls(folder, most_bytes)

    async def keep(self, given: UploadFile, named: Container[str]) -> Path:
        """Stores an upload; throws away old ones that are not `named` by any run."""
        places = sorted(self.folder.iterdir(), key=lambda place: place.stat().st_mtime)
        for number, place in enumerate(places):
            old = time.time() - place.stat().st_mtime > KEPT_S or len(places) - number > MOST
            if old and place.name not in named:
                shutil.rmtree(place, ignore_errors=True)
        place = self.folder / secrets.token_hex(8)
        place.mkdir(mode=0o700)
        path, size = place / harmless(given.filename or ""), 0
        with path.open("wb") as file:
            while piece := await given.read(PIECE):
                size += len(piece)
                if size > self.most_bytes:
                    shutil.rmtree(place)
                    raise InputError(f"found more than {self.most_bytes >> 20} MiB; expected a smaller file", where=path.name)
                file.write(piece)
        return path

    def holds(self, path: Path) -> bool:
        """Whether a path is that of an uploaded file."""
        inside = path.parent.parent == self.folder and FOLDER.fullmatch(path.parent.name) is not None and path.name == harmless(path.name)
        return inside and path.is_file() and not path.is_symlink() and not path.parent.is_symlink()


def harmless(name: str) -> str:
    """A file's own name without folders or anything that a shell, a page or a file system takes for more than a letter."""
    last = re.sub(r"[^\w.+-]", "_", name.replace("\\", "/").rpartition("/")[2])[-120:].lstrip(".-")
    return last or "file"
