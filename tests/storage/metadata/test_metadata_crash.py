"""A crash at any fence leaves the tree as before or as after the operation, never between."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from armillary.storage.metadata.mdsec import new_layout
from armillary.storage.metadata.record_groups.inspection import check, walk
from armillary.storage.metadata.record_groups.recovery import recover

HANDLERS = 4
RENAME = 9


@pytest.fixture(scope="module", params=[24, pytest.param(200, marks=pytest.mark.slow)])
def recorded(request):
    run = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("crash_recorder.py")), str(request.param), "5", "7"],
        capture_output=True, check=True, env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
    )  # fmt: skip
    return pickle.loads(run.stdout)  # noqa: S301 - our own process made it


def _after_recovery(image):
    space = image.copy()
    groups = len(space) // 4096
    layout = new_layout(4096, groups=groups, ids=256, directories=256, handlers=HANDLERS, tiny=3, chain=1, extent=2, space=space)
    recover(layout, HANDLERS, np.zeros((4096, 2), np.int64), "image")
    assert check(space, 4096, int(layout.m[0]), HANDLERS) == []
    tree = {(r.parent, r.name): r.id for r in walk(space, layout.m, HANDLERS)}
    assert all(layout.place[number] >= 0 for number in tree.values())
    return tree


def _apply(image, store):
    offset, data, _ = store
    image[offset : offset + len(data)] = np.frombuffer(data, np.uint8)


def test_a_cut_at_every_fence_leaves_old_or_new(recorded):
    """Of the lines that were stored since the last fence, any subset may have reached the device."""
    rng = np.random.default_rng(3)
    cuts = between = 0
    for image_bytes, operations, trees, _ in recorded:
        image = np.frombuffer(bytearray(image_bytes), np.uint8).copy()
        for number, stores in enumerate(operations):
            before, after = trees[number], trees[number + 1]
            unfenced = []
            for store in stores:
                unfenced.append(store)
                if not store[2]:
                    continue
                torn = image.copy()
                for offset, data, _ in unfenced:
                    for line in range(0, len(data), 64):
                        if rng.random() < 0.5:
                            torn[offset + line : offset + line + 64] = np.frombuffer(data[line : line + 64], np.uint8)
                assert _after_recovery(torn) in (before, after)
                for one in unfenced:
                    _apply(image, one)
                unfenced = []
                found = _after_recovery(image)
                assert found in (before, after)
                between += found == before and before != after
                cuts += 1
            for one in unfenced:
                _apply(image, one)
            assert _after_recovery(image) == after
    assert cuts > 10 * len(recorded)
    assert between > len(recorded), "cuts must fall before the point of no return, too"


def test_a_rename_cut_at_each_step_leaves_the_file_in_exactly_one_place(recorded):
    seen = 0
    for image_bytes, operations, trees, kinds in recorded:
        image = np.frombuffer(bytearray(image_bytes), np.uint8).copy()
        for number, stores in enumerate(operations):
            for store in stores:
                _apply(image, store)
                if kinds[number] == RENAME and store[2]:
                    seen += 1
                    tree = list(_after_recovery(image).values())
                    moved = set(trees[number].values()) & set(trees[number + 1].values())
                    assert all(tree.count(one) == 1 for one in moved)
    assert seen > len(recorded) / 2
