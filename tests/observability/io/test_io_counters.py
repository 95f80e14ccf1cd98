"""Darshan's counters, by hand, as properties, and against the counters of real logs."""

from __future__ import annotations

import numpy as np
import pytest
from darshan_logs import EXAMPLES, shipped_log
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.observability.io import count_posix, counters, reduced
from armillary.observability.io.counters.posix import bins
from armillary.observability.io.counters.requests import OPEN, READ, WRITE, Requests
from armillary.observability.io.logs.modules import BIN_NAMES


def requests(rows: list[tuple[int, int, int, int, int]]) -> Requests:
    """(file, rank, kind, offset, length), each a second after the other and half a second long."""
    file, rank, kind, offset, length = (np.array([row[i] for row in rows], np.int64) for i in range(5))
    start = np.arange(len(rows), dtype=float)
    return Requests(file.astype(np.uint64), rank, kind.astype(np.int8), offset, length, start, start + 0.5)


def of(module: object, name: str) -> list[float]:
    return module.counters[f"POSIX_{name}"].tolist()  # type: ignore[attr-defined]


def test_sequential_and_consecutive_requests_by_hand():
    made = count_posix(requests([(1, 0, READ, 0, 100), (1, 0, READ, 100, 100), (1, 0, READ, 300, 100), (1, 0, READ, 0, 100)]), 100)
    assert of(made, "SEQ_READS") == [2], "offset 0 is not beyond last = 0, and going back is not sequential"
    assert of(made, "CONSEC_READS") == [1]
    assert of(made, "FILE_NOT_ALIGNED") == [0]
    assert of(made, "MAX_BYTE_READ") == [399]
    assert of(made, "STRIDE1_STRIDE") == [100]
    assert of(made, "ACCESS1_ACCESS") == [100]
    assert of(made, "ACCESS1_COUNT") == [4]


def test_a_first_request_behind_the_begin_is_sequential():
    made = count_posix(requests([(1, 0, WRITE, 1, 10)]), 4096)
    assert of(made, "SEQ_WRITES") == [1]
    assert of(made, "CONSEC_WRITES") == [1], "offset 1 is last + 1"
    assert of(made, "FILE_NOT_ALIGNED") == [1]


def test_reads_and_writes_have_their_own_last_byte():
    made = count_posix(requests([(1, 0, WRITE, 0, 100), (1, 0, READ, 50, 10), (1, 0, WRITE, 100, 5)]), 1)
    assert of(made, "CONSEC_WRITES") == [1]
    assert of(made, "SEQ_READS") == [1]
    assert of(made, "RW_SWITCHES") == [2]


@pytest.mark.parametrize(("length", "name"), [(0, "0_100"), (100, "0_100"), (101, "100_1K"), (1024, "100_1K"), (1025, "1K_10K"), (1 << 20, "100K_1M"), ((1 << 20) + 1, "1M_4M"), (1 << 30, "100M_1G"), ((1 << 30) + 1, "1G_PLUS")])  # fmt: skip
def test_bins_include_their_upper_bounds(length, name):
    assert BIN_NAMES[int(bins(np.array([length]))[0])] == name


def test_reduction_joins_a_file_that_every_rank_used():
    rows = [(1, 0, OPEN, 0, 0), (1, 0, WRITE, 0, 10), (1, 1, WRITE, 10, 30), (1, 1, WRITE, 40, 30), (2, 0, READ, 0, 5)]
    made = reduced(count_posix(requests(rows), 1), 2)
    assert made.ids.tolist() == [2, 1]
    assert made.ranks.tolist() == [0, -1]
    assert of(made, "WRITES") == [0, 3]
    assert of(made, "BYTES_WRITTEN") == [0, 70]
    assert of(made, "MAX_BYTE_WRITTEN") == [0, 69]
    assert of(made, "SLOWEST_RANK")[1] == 1 or of(made, "F_SLOWEST_RANK_TIME")[1] == of(made, "F_FASTEST_RANK_TIME")[1]
    assert of(made, "F_SLOWEST_RANK_TIME")[1] == 1.0
    assert of(made, "F_VARIANCE_RANK_BYTES")[1] == 25**2


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 3), st.sampled_from([READ, WRITE]), st.integers(0, 5000), st.integers(0, 3000)), min_size=1, max_size=40))  # fmt: skip
def test_counters_add_up_whatever_is_asked(rows):
    made = count_posix(requests(rows), 512)
    total = {
        name: int(made.counters[f"POSIX_{name}"].sum()) for name in ("READS", "WRITES", "BYTES_READ", "BYTES_WRITTEN", "FILE_NOT_ALIGNED")
    }
    assert total["READS"] + total["WRITES"] == len(rows)
    assert total["BYTES_READ"] + total["BYTES_WRITTEN"] == sum(row[4] for row in rows)
    assert total["FILE_NOT_ALIGNED"] == sum(row[3] % 512 != 0 for row in rows)
    for way in ("READ", "WRITE"):
        assert sum(made.counters[f"POSIX_SIZE_{way}_{name}"].sum() for name in BIN_NAMES) == total[f"{way}S"]
        assert (made.counters[f"POSIX_CONSEC_{way}S"] <= made.counters[f"POSIX_SEQ_{way}S"]).all() or any(row[4] == 0 for row in rows)
    expected = 0
    last: dict[tuple[int, int, int], int] = {}
    for file, rank, kind, offset, length in rows:
        expected += offset > last.get((file, rank, kind), 0)
        last[file, rank, kind] = offset + length - 1
    assert int(made.counters["POSIX_SEQ_READS"].sum() + made.counters["POSIX_SEQ_WRITES"].sum()) == expected


def test_traced_requests_of_a_real_log_give_its_own_counters():
    log = shipped_log(f"{EXAMPLES}/ior_hdf5_example.darshan")
    made, own = counters(log), log.modules["POSIX"]
    assert made.ranks.tolist() == own.ranks.tolist() == [-1]
    names = (
        "READS",
        "WRITES",
        "BYTES_READ",
        "BYTES_WRITTEN",
        "FILE_NOT_ALIGNED",
        "SEQ_READS",
        "SEQ_WRITES",
        "CONSEC_READS",
        "CONSEC_WRITES",
    )
    found = {name: of(made, name)[0] for name in names}
    assert found == dict(zip(names, (36, 23, 4202504, 4195800, 55, 26, 17, 14, 13)))
    assert found == {name: of(own, name)[0] for name in names}
    other = [
        name for name in own.counters if "SIZE" in name or "MAX_BYTE" in name or "SWITCH" in name or ("ACCESS" in name and "4" not in name)
    ]
    assert len(other) > 20
    for name in other:
        assert made.column(name).tolist() == own.column(name).tolist(), name
