"""Views that are made once, halos that travel through them, and where the time of a loop goes."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from halo_streams import LazyStreams
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary import comm
from armillary.errors import InputError
from armillary.network.halo import StreamHalo, Views, overhead_report
from armillary.network.halo.exchange.geometry import balanced, share
from armillary.network.halo.views.libraries import pointer
from armillary.network.halo.views.sides import neighbours, offsets


def fields(*names, shape=(8, 9)):
    return {name: np.zeros(shape) for name in names}


def test_a_view_is_the_field_plus_an_offset():
    a = np.arange(72.0).reshape(8, 9)
    made = Views({"a": a}, width=2).for_("numpy")
    assert pointer(made.send["a", (0, -1)]) == pointer(a) + 8 * (2 * 9 + 2)
    assert pointer(made.receive["a", (1, 1)]) == pointer(a) + 8 * (6 * 9 + 7)
    assert made.interior["a"].shape == (4, 5)
    assert made.send["a", (1, 0)].tolist() == a[4:6, 2:7].tolist()


def test_what_one_library_writes_all_of_them_see():
    torch = pytest.importorskip("torch")
    owner = torch.zeros((8, 9), dtype=torch.float64)
    views = Views({"a": owner}, width=1)
    views.for_("numpy").send["a", (0, 1)][...] = 7.0
    assert owner[1:-1, -2].tolist() == [7.0] * 6
    views.for_("torch").interior["a"].fill_(3.0)
    assert views.for_("numba").whole["a"].sum() == 6 * 7 * 3.0
    assert views.for_("numpy") is views.for_("numpy"), "made once"
    assert views.conversions == 2, "NumPy's and Numba's; PyTorch's field is its own"


def test_staggered_fields_share_their_last_line():
    made = Views(fields("cell", "node"), 2, depth=1, extra={"node": (0, 1)}, cells=(4, 4)).for_("numpy")
    at = {name: pointer(made.whole[name]) for name in ("cell", "node")}

    def column(name, kind, offset):
        return (pointer(getattr(made, kind)[name, offset]) - at[name]) // 8 % 9

    assert [column("cell", kind, (0, x)) for kind in ("send", "receive") for x in (-1, 1)] == [2, 5, 1, 6]
    assert [column("node", kind, (0, x)) for kind in ("send", "receive") for x in (-1, 1)] == [3, 5, 1, 7]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda a: Views({}, 1), "arrays: found none"),
        (lambda a: Views({"a": a, "b": a[:]}, 1), 'found fields "a" and "b" in the same memory'),
        (lambda a: Views({"a": a[:4], "b": np.lib.stride_tricks.as_strided(a[2:6], (4, 9))}, 1), "in the same memory"),
        (lambda a: Views({"a": a, "b": np.zeros((8, 18))[:, ::2]}, 1), 'field "b": found strides [144, 16]; expected [72, 8]'),
        (lambda a: Views({"a": a, "b": np.zeros((8, 8))}, 1), 'field "b": found float64 of shape [8, 8]'),
        (lambda a: Views({"a": a}, 4), "cells: found 0 along axis 0"),
        (lambda a: Views({"a": a}, 3), "found a halo of 3 layers along axis 0; expected at most its 2 cells"),
        (lambda a: Views({"a": a}, 0), "width: found 0"),
        (lambda a: Views({"a": a}, 2, extra={"a": (2, 0)}), "found extra [2, 0]"),
        (lambda a: Views({"a": "text"}, 1), "found str; expected an array with __dlpack__"),
        (lambda a: Views({"a": a}, 1).for_("jax"), 'unknown library "jax"'),
        (lambda a: Views({"a": a}, 1).for_("cupy"), "found arrays on the host"),
    ],
)  # fmt: skip
def test_fields_that_do_not_go_together_are_refused(make, said):
    with pytest.raises(InputError) as error:
        make(np.zeros((8, 9)))
    assert said in str(error.value)


def test_fields_of_two_libraries_are_not_on_one_device():
    torch = pytest.importorskip("torch")
    with pytest.raises(InputError, match="fields of one exchange lie on one device"):
        Views({"a": np.zeros((8, 9)), "b": torch.zeros((8, 9), dtype=torch.float64)}, 1)


def padded(c, seed, library):
    """Exchange blocks of whole arrays that NumPy pads, and say which rank's field is wrong."""
    rng = np.random.default_rng(seed)
    axes, width = int(rng.integers(1, 4)), int(rng.integers(1, 3))
    dims = balanced(c.size, axes)[:: int(rng.choice([1, -1]))]
    periodic = [bool(x) for x in rng.random(axes) < 0.5]
    whole = [int(n * rng.integers(width, width + 4)) for n in dims]
    at = np.unravel_index(c.rank, dims)
    parts = tuple(slice(*share(n, parts, place)) for n, parts, place in zip(whole, dims, at))
    locals_, wanted = {}, {}
    for number in range(int(rng.integers(1, 4))):
        big = rng.random(whole)
        for axis in range(axes):
            pads = [(0, 0)] * axes
            pads[axis] = (width, width)
            big = np.pad(big, pads, mode="wrap") if periodic[axis] else np.pad(big, pads, constant_values=-1.0)
        name = f"f{number}"
        wanted[name] = big[tuple(slice(part.start, part.stop + 2 * width) for part in parts)]
        mine = np.full(wanted[name].shape, -1.0)
        core = (slice(width, -width),) * axes
        mine[core] = wanted[name][core]
        locals_[name] = mine
    if library == "torch":
        import torch

        locals_ = {name: torch.from_numpy(field) for name, field in locals_.items()}
    halo = StreamHalo(c, Views(locals_, width), decomposition=dims, periodic=periodic, persistent=bool(seed % 2))
    halo.exchange()
    halo.exchange()
    halo.free()
    return [name for name in wanted if not np.array_equal(np.asarray(locals_[name]), wanted[name])]


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 6))
def test_every_exchange_is_numpys_padding(seed, ranks):
    assert comm.run(padded, seed, "numpy", ranks=ranks).values == [[]] * ranks


@pytest.mark.slow
@pytest.mark.skipif(bool(comm.backends()["mpi"]), reason="found no MPI library")
@pytest.mark.parametrize("seed", [3, 4])
def test_mpi_moves_the_same_halos_by_persistent_requests_and_posted_ones(seed):
    library = comm.libraries()[0].name
    assert comm.run(f"{__file__}:padded", seed, "numpy", ranks=2, backend="mpi", library=library, timeout=120).values == [[], []]


def test_a_halo_on_a_stream_waits_for_its_events():
    def exchanged(c, delayed, events):
        a = np.zeros((6, 6))
        streams = LazyStreams(delayed, events=events)
        halo = StreamHalo(c, Views({"a": a}, 1), periodic=True, decomposition=(1, 1), streams=streams)
        for turn in (1.0, 2.0):
            function, arguments = streams.bound("compute", a[1:-1, 1:-1].fill, turn)
            function(*arguments)
            halo.start()
            halo.finish()
        streams.synchronise()
        return a[0, 1:-1].tolist()

    for delayed in ("communication", "compute"):
        assert comm.run(exchanged, delayed, True, ranks=1, backend="one").values[0] == [2.0] * 4
    assert comm.run(exchanged, "communication", False, ranks=1, backend="one").values[0] != [2.0] * 4


def test_ranks_that_do_not_fit_are_refused():
    def wrong(c):
        StreamHalo(c, Views(fields("a"), 1), decomposition=(2, 2))

    with pytest.raises(comm.RankFailed, match="expected 2 numbers with a product of 3 ranks"):
        comm.run(wrong, ranks=3)
    with pytest.raises(comm.RankFailed, match='fields: found "b"; expected some of a'):
        comm.run(lambda c: StreamHalo(c, Views(fields("a"), 1), fields=["b"]), ranks=1)


def test_offsets_and_neighbours_by_hand():
    assert len(offsets(2)) == 8
    assert len(offsets(3)) == 26
    assert neighbours(0, (1, 2), (False, False)) == {(0, 1): 1}
    assert neighbours(0, (1, 2), (False, True)) == {(0, -1): 1, (0, 1): 1}
    assert neighbours(4, (3, 3), (False, False)) == dict(zip(offsets(2), (0, 1, 2, 3, 5, 6, 7, 8)))


@pytest.mark.slow
def test_the_launch_for_gpus_packs_and_unpacks_in_tritons_interpreter():
    pytest.importorskip("triton")
    pytest.importorskip("torch")
    code = """
import torch
from armillary.network.halo.views.device_packing import movers
fields = [torch.rand(3, 40, 30, dtype=torch.float64)[1], torch.rand(7, 9, 50, dtype=torch.float64)]
regions = [(fields[0][2:20, 3:28], 0), (fields[1][1:4, 2:5, 3:45], 450), (fields[0][:, :2], 828)]
buffer = torch.zeros(1000, dtype=torch.float64)
movers(regions, buffer, False)()
for region, start in regions:
    assert torch.equal(buffer[start : start + region.numel()], region.reshape(-1))
buffer += 1
wanted = [region.clone() + 1 for region, _ in regions[:2]]
movers(regions[:2], buffer, True)()
assert all(torch.equal(region, one) for (region, _), one in zip(regions, wanted))
"""
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_report_counts_conversions_slices_and_packing():
    torch = pytest.importorskip("torch")
    tensor, buffer, plain = torch.zeros(40, 40), np.zeros(40), np.zeros((9, 9))

    def loop(a):
        found = np.from_dlpack(tensor)
        np.copyto(buffer, found[0])
        a[2:4]
        a[3]
        tensor[1:3].cpu()

    report = overhead_report(loop, plain, rounds=5)
    assert report.calls == {"convert": 1, "slice": 3, "pack": 1, "wait": 0, "stage": 1, "launch": 0}
    assert all((seconds > 0) == (report.calls[kind] > 0) for kind, seconds in report.seconds.items())
    assert report.total_s > 0
    assert "in 3 slice calls" in str(report)
    assert np.from_dlpack.__module__ != "armillary.network.halo.views.overhead", "the clocks are gone"
    assert "__getitem__" not in vars(torch.Tensor)


def test_a_report_takes_functions_of_ones_own_and_survives_an_error():
    before = np.copyto
    report = overhead_report(lambda: json_dumps(), rounds=3, also={"launch": [f"{__name__}:json_dumps"]})
    assert report.calls["launch"] == 1

    def wrong():
        raise ValueError

    with pytest.raises(ValueError):
        overhead_report(wrong)
    assert np.copyto is before
    with pytest.raises(InputError, match="unknown kind of call"):
        overhead_report(json_dumps, also={"lunch": []})
    with pytest.raises(InputError, match="expected module:attribute"):
        overhead_report(json_dumps, also={"launch": [f"{__name__}:nothing"]})
    with pytest.raises(InputError, match="rounds: found 0"):
        overhead_report(json_dumps, rounds=0)


def json_dumps():
    import json

    return json.dumps([1, 2])
