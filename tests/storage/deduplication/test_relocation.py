"""Plans of relocation: small ones by hand, comparisons with brute force and a plain-Python reference, and invariants."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.errors import InputError
from armillary.storage.deduplication import cosine, generate, relocation_plan
from armillary.storage.deduplication.layouts.layout import runs_per_file
from armillary.storage.deduplication.relocation.rounds import plan_moves
from armillary.storage.deduplication.relocation.similarity import as_rows, neighbours, users

FILES = st.lists(st.lists(st.integers(0, 11), max_size=14), min_size=1, max_size=6)


def total_runs(files: list, positions: np.ndarray, slots: int = 1 << 20) -> int:
    rows = as_rows(files)
    return int(runs_per_file(rows.starts, positions[rows.values], slots).sum())


def test_the_cosine_of_two_chunks() -> None:
    assert cosine([1, 2, 3], [2, 3]) == pytest.approx(0.816497, abs=1e-6)
    # Chunks 0 and 1: F(0) = {0, 1, 2}, F(1) = {1, 2}.
    rows = as_rows([[0], [0, 1], [0, 1]])
    follow, precede = neighbours(rows, users(rows, 2))
    assert (follow.chunk.tolist(), follow.count.tolist()) == ([1], [2])
    assert follow.cosine[0] == pytest.approx(2 / math.sqrt(6))
    assert precede.starts.tolist() == [0, 0, 1]


@given(files=FILES)
@settings(max_examples=150)
def test_neighbours_and_users_are_those_of_the_definition(files: list) -> None:
    rows = as_rows(files)
    chunks = 12
    used = users(rows, chunks)
    sets = [{f for f, file in enumerate(files) if c in file} for c in range(chunks)]
    assert [used.row(c).tolist() for c in range(chunks)] == [sorted(s) for s in sets]
    follow, precede = neighbours(rows, used)
    for c in range(chunks):
        expected = {}
        for d in range(chunks):
            count = sum(any((a, b) == (c, d) for a, b in itertools.pairwise(file)) for file in files)
            if count and c != d:
                expected[d] = (count, len(sets[c] & sets[d]) / math.sqrt(len(sets[c]) * len(sets[d])))
        found = {
            int(follow.chunk[i]): (int(follow.count[i]), float(follow.cosine[i])) for i in range(follow.starts[c], follow.starts[c + 1])
        }
        assert found.keys() == expected.keys()
        for d, (count, alike) in expected.items():
            assert found[d] == (count, pytest.approx(alike, rel=1e-6))
        back = {int(precede.chunk[i]) for i in range(precede.starts[c], precede.starts[c + 1])}
        assert back == {d for d in range(chunks) if d != c and any((a, b) == (d, c) for file in files for a, b in itertools.pairwise(file))}


def test_two_interleaved_files_come_apart() -> None:
    # Written A0 B0 A1 B1 A2 B2 A3 B3: file A is chunks 0 2 4 6.
    files = [[0, 2, 4, 6], [1, 3, 5, 7]]
    assert runs_per_file(np.array([0, 4, 8]), np.array([0, 2, 4, 6, 1, 3, 5, 7]), 256).tolist() == [4, 4]
    for mode in ("adjacency", "cosine"):
        positions = relocation_plan(files, mode=mode)
        assert runs_per_file(np.array([0, 4, 8]), positions[np.array(files).ravel()], 256).tolist() == [1, 1]


def test_predecessors_of_the_head_join_the_chain() -> None:
    # The chain begins at 0, the first chunk of the first file; 2 and 3 come before it in the second.
    positions = relocation_plan([[0, 1], [2, 3, 0, 1]])
    assert total_runs([[0, 1], [2, 3, 0, 1]], positions) == 2


def obvious_cosine_order(files: list, chunks: int) -> list[int]:
    sets = [{f for f, file in enumerate(files) if c in file} for c in range(chunks)]
    follows = lambda c, d: sum(any(p == (c, d) for p in itertools.pairwise(file)) for file in files)  # noqa: E731
    left, order, last = set(range(chunks)), [], None
    while left:
        alike = {d: cosine(sets[last], sets[d]) for d in left} if last is not None else {}
        best = max(alike.values(), default=0)
        if best > 0:
            last = min((d for d in left if math.isclose(alike[d], best, rel_tol=1e-12)), key=lambda d: (-follows(last, d), d))
        elif any(sets[d] for d in left):
            last = min(left, key=lambda d: (-len(sets[d]), d))
        else:
            return order + sorted(left)
        order.append(last)
        left.remove(last)
    return order


@given(files=FILES)
@settings(max_examples=120)
def test_the_reference_is_the_greedy_chain_of_its_definition(files: list) -> None:
    positions = relocation_plan(files, chunks=12, mode="cosine")
    assert np.argsort(positions).tolist() == obvious_cosine_order(files, 12)


@given(files=FILES, slots=st.integers(1, 9), slack=st.sampled_from([0.0, 0.05, 0.3]))
@settings(max_examples=150)
def test_every_chunk_has_one_place(files: list, slots: int, slack: float) -> None:
    for mode in ("adjacency", "cosine"):
        assert sorted(relocation_plan(files, chunks=12, mode=mode).tolist()) == list(range(12))
    packed = relocation_plan(files, chunks=12, slots=slots, slack=slack)
    assert len(set(packed.tolist())) == 12
    room = max(1, slots - math.ceil(slack * slots))
    assert (packed % slots < room).all()


def test_adjacency_stays_near_the_reference() -> None:
    worst = []
    for seed, flavour in itertools.product(range(3), ("home", "registry", "vm")):
        work = generate(flavour, np.random.default_rng(seed), references=2500)
        if len(work.sizes) > 2000:
            continue
        runs = [total_runs(work.files, relocation_plan(work.files, mode=mode)) for mode in ("adjacency", "cosine")]
        worst.append(runs[0] / runs[1])
    assert len(worst) >= 6
    assert max(worst) <= 1.10


def test_greedy_is_near_the_best_of_all_orders() -> None:
    rng = np.random.default_rng(3)
    for _ in range(12):
        files = [rng.integers(0, 6, rng.integers(1, 8)).tolist() for _ in range(4)]
        best = min(total_runs(files, np.array(order)) for order in itertools.permutations(range(6)))
        assert total_runs(files, relocation_plan(files, chunks=6)) <= 1.5 * best


def test_degenerate_files() -> None:
    assert relocation_plan([]).tolist() == []
    assert relocation_plan([[], []]).tolist() == []
    assert relocation_plan([[0]]).tolist() == [0]
    assert relocation_plan([[0] * 1000]).tolist() == [0]
    assert total_runs([[0] * 1000], np.array([5])) == 1


def test_a_run_ends_at_the_end_of_a_container() -> None:
    assert runs_per_file(np.array([0, 4, 4]), np.array([2, 3, 4, 5]), 4).tolist() == [2, 0]


def _moves(files: list, position: list[int], **how: object):  # type: ignore[no-untyped-def]
    rows = as_rows(files)
    return rows, plan_moves(rows, np.array(position), np.full(len(position), 10), slots=4, slack=0.0, first=100, **how)  # type: ignore[arg-type]


def test_whole_units_stay() -> None:
    # With one writer and nothing stored twice, files run on from container to container.
    _, moves = _moves([[0, 1, 2], [3, 4, 5, 6], [7]], list(range(8)), budget=1.0)
    assert not moves.moved.any()


def test_the_budget_goes_to_the_worst_file_first() -> None:
    # File 0 is torn in four, file 1 in two, file 2 is whole; containers stay more than a quarter full.
    files, position = [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]], [0, 4, 1, 5, 2, 3, 6, 7, 8, 9, 10, 11]
    _, moves = _moves(files, position, budget=0.34)
    assert moves.moved.tolist() == [True] * 4 + [False] * 8
    _, moves = _moves(files, position, budget=1.0)
    assert moves.moved.tolist() == [True] * 8 + [False] * 4
    _, moves = _moves(files, position, budget=0.0)
    assert not moves.moved.any()


def test_a_nearly_empty_container_is_merged_with_what_moves() -> None:
    rows = as_rows([[0, 1], [2, 3]])
    position = np.array([0, 2, 16, 17])
    moves = plan_moves(rows, position, np.full(4, 10), slots=16, slack=0.0, budget=1.0, first=9)
    assert moves.moved.all()
    assert set((moves.position // 16).tolist()) == {9}


@given(seed=st.integers(0, 10**6), flavour=st.sampled_from(["home", "registry", "checkpoints"]), writers=st.integers(1, 8))
@settings(max_examples=25)
def test_a_second_round_moves_nothing(seed: int, flavour: str, writers: int) -> None:
    from armillary.storage.deduplication.layouts.placement import append_stream

    work = generate(flavour, np.random.default_rng(seed), references=400, writers=writers, chunk=65536)
    _, position, _ = append_stream(work, work.stream)
    how = {"slots": 16, "slack": 0.1, "budget": 1.0}
    first = plan_moves(work.files, position, work.sizes, first=1000, **how)
    assert len(np.unique(first.position)) == len(position)
    assert total_runs(work.files, first.position, 16) <= total_runs(work.files, position, 16)
    second = plan_moves(work.files, first.position, work.sizes, first=first.next_container, **how)
    assert not second.moved.any()


def rounds_of(flavour: str, writers: int, budget: float, rounds: int):  # type: ignore[no-untyped-def]
    from armillary.storage.deduplication.layouts.placement import append_stream

    work = generate(flavour, np.random.default_rng(5), references=4000, writers=writers, chunk=65536)
    _, position, _ = append_stream(work, work.stream)
    first = 10_000
    for _ in range(rounds):
        moves = plan_moves(work.files, position, work.sizes, slots=64, budget=budget, first=first)
        yield work, position, moves
        position, first = moves.position, moves.next_container


@pytest.mark.parametrize("flavour", ["vm", "home", "registry", "checkpoints"])
@pytest.mark.parametrize("writers", [1, 16])
def test_merged_containers_count_towards_the_budget(flavour: str, writers: int) -> None:
    for work, _, moves in rounds_of(flavour, writers, 0.2, 6):
        assert work.sizes[moves.moved].sum() <= 0.2 * work.sizes.sum()


@pytest.mark.parametrize("flavour", ["vm", "home", "registry", "checkpoints"])
@pytest.mark.parametrize("writers", [1, 16])
def test_no_file_is_torn_for_the_sake_of_others(flavour: str, writers: int) -> None:
    for work, position, moves in rounds_of(flavour, writers, 0.5, 4):
        before, after = (runs_per_file(work.files.starts, at[work.files.values], 64) for at in (position, moves.position))
        ideal = np.maximum(1, -(-np.diff(work.files.starts) // 64))
        assert (after <= np.maximum(before, 8 * (ideal + 1))).all()


def test_a_file_of_shared_chunks_stays_whole() -> None:
    # File 0 fills eight containers in one piece. Three copies of each other file take every 64th chunk of it, so chains through them
    # would leave file 0 with 528 runs.
    others = [list(range(k, 2048, 64)) for k in range(64)]
    rows = as_rows([list(range(2048)), *others, *others, *others])
    position = np.arange(2048)
    for number in range(3):
        moves = plan_moves(rows, position, np.full(2048, 10), slots=256, budget=1.0, first=100 * (number + 1))
        assert runs_per_file(rows.starts, moves.position[rows.values], 256)[0] <= 8 * (8 + 1)
        position = moves.position


@pytest.mark.parametrize(
    ("files", "how"),
    [
        ([[-1]], {}), ([[0.5]], {}), ([[[1]]], {}), (3, {}), ([[5]], {"chunks": 3}), ([[0]], {"mode": "best"}), ([[2**40]], {}),
        ([[0]], {"slots": 0}), ([[0]], {"slots": 4, "slack": 1.0}), ([[0]], {"chunks": 30_000, "mode": "cosine"}),
    ],
)  # fmt: skip
def test_bad_plans_are_refused(files: object, how: dict) -> None:
    with pytest.raises(InputError) as error:
        relocation_plan(files, **how)
    assert "\n" not in str(error.value)
