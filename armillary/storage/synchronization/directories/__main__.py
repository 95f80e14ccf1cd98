"""python -m armillary.storage.synchronization.directories LEFT RIGHT: makes two directories hold the same; may be killed and run again."""

from __future__ import annotations

import argparse
import sys

from armillary.errors import InputError

from .syncing import sync


def main(arguments: list[str] | None = None) -> int:
    """Runs the command: status 0 in sync, 1 if something is open or in conflict, 2 for bad input (one line on stderr)."""
    parser = argparse.ArgumentParser(prog="armillary storage sync", description=__doc__)
    parser.add_argument("left", help="a directory")
    parser.add_argument("right", help="another one")
    parser.add_argument("--state", default=".armillary-sync", help="name of the state folder in each, or a path outside both")
    parser.add_argument("--dry-run", action="store_true", help="say what would be done, and write nothing")
    parser.add_argument("--automerge", action="store_true", help="merge texts line by line where changes do not touch")
    parser.add_argument("--verbose", action="store_true", help="print one line per change")
    given = parser.parse_args(arguments)
    try:
        report = sync(given.left, given.right, state=given.state, dry_run=given.dry_run, automerge=given.automerge)
    except InputError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    if given.verbose:
        for arrow, changes in (("->", report.to_right), ("<-", report.to_left)):
            sys.stdout.writelines(f"{arrow} {what} {path!r}\n" for what, path in changes)
    sys.stdout.write(f"{report}\n")
    return 0 if report.status == "in sync" else 1


if __name__ == "__main__":
    raise SystemExit(main())
