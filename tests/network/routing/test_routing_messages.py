"""Messages, skeletons and traces: order, sizes and times by hand, and what bad ones say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.errors import InputError
from armillary.network.routing import Dragonfly, Messages, Min, Piar, preset, read_messages, replay, skeleton
from armillary.network.routing.simulation.state import ENDED, RELEASED
from armillary.network.routing.traffic.skeletons import PLACEMENTS, SKELETONS, factors, placed


def messages(rows: list[tuple[int, int, int, int]], pairs: list[tuple[int, int]] | None = None, **more: Any) -> Messages:
    table = np.array(rows, np.int64).reshape(-1, 4)
    ends = np.array(pairs or [], np.int64).reshape(-1, 2)
    return Messages(table[:, 0], table[:, 1], table[:, 2], table[:, 3], ends[:, 0], ends[:, 1], **more)


def test_a_message_leaves_when_those_before_it_have_arrived() -> None:
    # Nodes 0 and 2 are one local hop apart: 10 cycles of link, two routers, and one cycle more per further flit.
    played = replay(preset("df-72"), Min(), messages([(0, 2, 1, 5), (2, 0, 9, 100), (0, 2, 1, 0)], [(0, 1), (1, 2)]), flits=4)
    released, ended = played.state.message[:, RELEASED].tolist(), played.state.message[:, ENDED].tolist()
    assert released[0] == 5
    assert ended[0] == 5 + 12
    assert released[1] == ended[0] + 1 + 100
    assert ended[1] == released[1] + 12 + 8, "nine flits follow each other"
    assert released[2] == ended[1] + 1
    assert played.completion == ended[2]
    assert played.messages_left == 0


def test_a_message_waits_for_all_before_it_and_for_the_link_of_its_node() -> None:
    rows = [(0, 2, 40, 0), (0, 2, 1, 0), (4, 6, 1, 3), (6, 4, 1, 0)]
    played = replay(preset("df-72"), Min(), messages(rows, [(1, 3), (2, 3)]), flits=8)
    ended, released = played.state.message[:, ENDED].tolist(), played.state.message[:, RELEASED].tolist()
    assert ended[1] == ended[0] + 1, "messages of a node leave one after another"
    assert released[3] == max(ended[1], ended[2]) + 1


def test_a_message_without_flits_takes_no_time_and_passes_its_moment_on() -> None:
    played = replay(preset("df-72"), Min(), messages([(0, 2, 1, 0), (2, 2, 0, 7), (2, 2, 0, 0), (2, 0, 1, 0)], [(0, 1), (1, 2), (2, 3)]))
    assert played.state.message[:, RELEASED].tolist() == [0, 13 + 7, 13 + 7, 13 + 7]


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_all_flits_arrive_once_and_in_an_order_that_respects_dependencies(data: st.DataObject) -> None:
    many = data.draw(st.integers(1, 40))
    number = st.integers(0, 17)
    rows = [data.draw(st.tuples(number, number, st.integers(0, 70), st.integers(0, 300))) for _ in range(many)]
    pairs = [(min(a, b), max(a, b)) for a, b in data.draw(st.lists(st.tuples(*[st.integers(0, many - 1)] * 2), max_size=40)) if a != b]
    sent = messages(rows, pairs)
    played = replay(Dragonfly(1, 3, 2, 6), Piar(), sent, flits=data.draw(st.integers(1, 16)), buffer=32)
    message = played.state.message
    assert (message[:, 2:5] == 0).all(), "nothing is left to send, to arrive or to wait for"
    for before, after in pairs:
        assert message[after, RELEASED] >= message[before, ENDED] + rows[after][3]
    assert (played.message_cycles >= np.array([max(0, row[2] - 1) for row in rows])).all()
    assert played.counts["inside"] == 0


def test_bytes_become_flits_and_nanoseconds_cycles(tmp_path: Path) -> None:
    path = tmp_path / "m.parquet"
    pl.DataFrame({"time_ns": [100.0, 150.0, 150.0], "source": [0, 1, 2], "destination": [3, 4, 5], "bytes": [0, 64, 65]}).write_parquet(
        path
    )
    read = read_messages(path, cycle_ns=2.0, flit_bytes=64)
    assert read.flits.tolist() == [1, 1, 2]
    assert read.pause.tolist() == [0, 25, 25]
    played = replay(preset("df-72"), Min(), path, cycle_ns=2.0, flit_bytes=64)
    assert played.state.message[:, RELEASED].tolist() == [0, 25, 25]


HEAD = "time_ns,source,destination,bytes\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HEAD + "5,0,1,8\n4,0,1,8\n", 'm.csv:3: column "time_ns": found "4" after 5'),
        (HEAD + "0,0,72,8\n", "message 0: found destination 72; expected a node from 0 to 71"),
        (HEAD + "0,99,1,8\n", "found source 99"),
        (HEAD + "0,-1,1,8\n", 'column "source"'),
        (HEAD + "0,0,1,-8\n", 'column "bytes"'),
        (HEAD + "0,0,1,8\n1e12,0,1,8\n", "max_cycles allows 20,000,000"),
        (HEAD + "0,0,1,70368744177664\n", "max_cycles allows"),
        (HEAD + "nan,0,1,8\n", "time_ns"),
        (HEAD, "no rows"),
        ("time_ns,source\n0,0\n", "destination"),
    ],
)
def test_a_bad_trace_says_what_is_wrong(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "m.csv"
    path.write_text(text)
    with pytest.raises(InputError) as error:
        replay(preset("df-72"), Min(), path)
    assert message in str(error.value)
    assert "m.csv" in str(error.value)


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: messages([(0, 1, 1, 0), (1, 0, 1, 0)], [(0, 1), (1, 0)]), "2 messages wait for each other in a circle"),
        (lambda: messages([(0, 1, 1, 0)], [(0, 3)]), "found a dependency on message 3"),
        (lambda: messages([(0, 1, -1, 0)]), "found a message of -1 flits"),
        (lambda: messages([(0, 1, 1, -5)]), "max_cycles"),
        (lambda: messages([]), "found 0 messages"),
    ],
)
def test_messages_that_cannot_be_played_say_so(made: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        replay(preset("df-72"), Min(), made())


def test_too_few_cycles_are_an_error_that_counts_what_is_left() -> None:
    with pytest.raises(InputError, match="1 of 2 messages have not arrived after 20 cycles"):
        replay(preset("df-72"), Min(), messages([(0, 2, 1, 0), (0, 71, 1, 10)]), max_cycles=20)


@pytest.mark.parametrize("name", SKELETONS)
def test_a_skeleton_is_complete_on_any_number_of_nodes(name: str) -> None:
    for net in (Dragonfly(2, 2, 1), Dragonfly(1, 5, 1, 1), Dragonfly(3, 3, 1)):
        sent = skeleton(name, net, placement="random", iterations=1, rng=np.random.default_rng(1))
        played = replay(net, Min(), sent, flits=16)
        assert played.messages_left == 0
        assert int(played.state.message[:, 3].max()) == 0


def test_halo_sizes_by_hand() -> None:
    # 72 ranks as 3 × 4 × 6: faces per direction (2·4·6 + 3·3·6 + 3·4·5), both ways; edges and corners likewise.
    sent = skeleton("halo3d26", preset("df-72"), iterations=1)
    assert factors(72, 3) == (3, 4, 6)
    real = sent.flits[sent.flits > 0]
    faces = 2 * (2 * 4 * 6 + 3 * 3 * 6 + 3 * 4 * 5)
    edges = 4 * (2 * 3 * 6 + 2 * 4 * 5 + 3 * 3 * 5)
    corners = 8 * (2 * 3 * 5)
    assert np.bincount(real)[[1024, 32, 1]].tolist() == [faces, edges, corners]


def test_the_number_of_messages_by_hand() -> None:
    net = preset("df-72")
    count = {name: int((skeleton(name, net, iterations=1).flits > 0).sum()) for name in SKELETONS}
    assert count["fft-alltoall"] == 72 * (7 + 8), "8 × 9 ranks"
    assert count["crystal-router"] == 64 * 6
    assert count["sweep3d"] == 4 * 2 * (7 * 9 + 8 * 8)
    assert count["many-to-few"] == 2 * 2 * 71, "two servers; all ranks ask but the first, which would ask itself"


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_placements_put_one_rank_on_each_node(placement: str) -> None:
    net = preset("df-72")
    where = placed(net, placement, np.random.default_rng(0))
    assert sorted(where.tolist()) == list(range(72))
    if placement != "random":
        groups = net.group[net.node_router[where]].reshape(9, 8)
        assert (groups == groups[:, :1]).all(), "consecutive ranks fill a group"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "weather"}, "unknown skeleton"), ({"placement": "tidy"}, "unknown placement"), ({"load": 0}, "load"),
        ({"iterations": 0}, "iterations"), ({"flit_bytes": 0}, "bytes per flit"),
    ],
)  # fmt: skip
def test_bad_arguments_of_a_skeleton(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        skeleton(**{"name": "halo3d26", "net": preset("df-72"), **arguments})
