"""Clusters by what a person types, and parts that only whole processors get."""

from __future__ import annotations

from pathlib import Path

import pytest

from armillary import cluster
from armillary.errors import InputError


def test_a_preset_a_file_and_a_near_miss(tmp_path: Path) -> None:
    assert cluster.find("laptop") == cluster.preset("laptop")
    file = tmp_path / "mine.toml"
    file.write_text(cluster.preset("laptop").to_toml())
    assert cluster.find(str(file)).digest == cluster.preset("laptop").digest
    with pytest.raises(InputError, match='did you mean "laptop"'):
        cluster.find("labtop")
    with pytest.raises(InputError, match=r"absent\.toml"):
        cluster.find("absent.toml")


def test_text_is_read_like_a_file() -> None:
    for name in ("laptop", "dgx-h100"):
        assert cluster.loads(cluster.preset(name).to_toml()).digest == cluster.preset(name).digest
    with pytest.raises(InputError, match="cluster: "):
        cluster.loads("= =")


def test_every_preset_is_described() -> None:
    assert set(cluster.described()) == set(cluster.presets())
    assert all(cluster.described().values())


@pytest.mark.parametrize(("cores", "expected"), [(64, True), (2, False)])
def test_a_slice_of_a_processor_does_not_get_the_whole_ones_figures(cores: int, expected: bool) -> None:
    text = f'armillary = 1\nname = "vm"\n[[group]]\nname = "g"\ncount = 1\n[[group.node.socket]]\nmodel = "EPYC 7742"\ncores = {cores}\n'
    (socket,) = cluster.loads(text).groups[0].node.sockets
    assert (socket.tdp is not None) == expected
