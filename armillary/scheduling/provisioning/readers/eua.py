"""The EUA data set: positions of base stations and of users, as its files are.

`site-optus-melbCBD.csv` has SITE_ID, LATITUDE, LONGITUDE and further columns, some of them empty; `users-melbcbd-generated.csv` has
Latitude and Longitude. Lines end with CR and LF.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from armillary.errors import InputError, one_line
from armillary.files import Column, column_names, read_table
from armillary.scheduling.provisioning.problem.problem import MOST_NODES, MOST_USERS


def read_sites(path: str | Path) -> tuple[tuple[str, ...], np.ndarray]:
    """The names and positions (K × 2: latitude, longitude) of sites; sites at the same position are kept."""
    _expect(path, ("SITE_ID", "LATITUDE", "LONGITUDE"), "a table of sites, which has the columns SITE_ID, LATITUDE and LONGITUDE")
    columns = [Column("SITE_ID", "str"), Column("LATITUDE", least=-90, most=90), Column("LONGITUDE", least=-180, most=180)]
    table = read_table(path, columns, unique=("SITE_ID",), row_limit=MOST_NODES, format="csv")
    return tuple(str(name) for name in table["SITE_ID"]), np.stack([table["LATITUDE"], table["LONGITUDE"]], 1)


def read_people(path: str | Path) -> np.ndarray:
    """The positions (U × 2: latitude, longitude) of users."""
    _expect(path, ("Latitude", "Longitude"), "a table of users, which has the columns Latitude and Longitude")
    columns = [Column("Latitude", least=-90, most=90), Column("Longitude", least=-180, most=180)]
    table = read_table(path, columns, row_limit=MOST_USERS, format="csv")
    return np.stack([table["Latitude"], table["Longitude"]], 1)


def _expect(path: str | Path, wanted: tuple[str, ...], said: str) -> None:
    names = column_names(path, format="csv")
    if not set(wanted) <= set(names):
        raise InputError(f'found the columns "{one_line(",".join(names), 80)}"; expected {said}', where=f"{path}:1")
