"""Rudder's buffer in a real training loop: the features are always those of the source, and nothing waits for the policy."""

from __future__ import annotations

import threading

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.errors import InputError
from armillary.training.prefetch import Always, Decision, Every, Never, RudderBuffer, Static, Window

SOURCE = np.random.default_rng(0).normal(size=(500, 3)).astype(np.float32)


class Store:
    """Returns the source's rows, and notes what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[npt.NDArray[np.int64]] = []

    def rows(self, ids: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        """The features of these vertices."""
        self.asked.append(ids)
        return SOURCE[ids]


@settings(max_examples=60, deadline=None)
@given(
    halo=st.sets(st.integers(0, 499), min_size=1, max_size=60),
    minibatches=st.lists(st.lists(st.integers(0, 499), max_size=30), min_size=1, max_size=25),
    share=st.floats(0, 1),
    policy=st.sampled_from([None, Always(), Never(), Every(2)]),
    filled=st.booleans(),
)
def test_features_equal_the_rows_of_the_source(
    halo: set[int], minibatches: list[list[int]], share: float, policy: object, filled: bool
) -> None:
    capacity = max(1, int(share * len(halo)))
    content = sorted(halo)[:capacity] if filled else []
    store = Store()
    buffer = RudderBuffer(
        capacity,
        sorted(halo),
        store.rows,
        policy,
        content=content,
        alpha=0.3,
        period=1,
        window=2,
        asynchronous=False,  # type: ignore[arg-type]
    )
    for ids in minibatches:
        found = buffer.gather(ids)
        if ids:
            assert np.array_equal(found, SOURCE[ids])
    assert buffer.fetched == sum(map(len, store.asked))
    assert all(len(np.unique(ids)) == len(ids) for ids in store.asked), "nothing is fetched twice in one request"


def test_what_is_held_is_not_fetched_again() -> None:
    store = Store()
    buffer = RudderBuffer(3, [10, 20, 30], store.rows, Never(), content=[10, 20], asynchronous=False)
    assert np.array_equal(buffer.gather([[20, 10], [400, 20]]), SOURCE[[[20, 10], [400, 20]]])
    assert [ids.tolist() for ids in store.asked] == [[10, 20], [400]]
    assert buffer.hit_rate == 1.0, "a vertex outside the halo is no miss"


def test_what_enters_is_fetched_with_the_misses_in_one_request() -> None:
    store = Store()
    buffer = RudderBuffer(2, range(10), store.rows, Every(3), asynchronous=False)
    for _ in range(2):
        buffer.gather([1, 2])
    buffer.gather([5])
    assert store.asked[-1].tolist() == [1, 2, 5]
    buffer.gather([1, 2])
    assert len(store.asked) == 3, "both are held now"
    assert buffer.replaced == 2


def test_a_policy_that_thinks_does_not_hold_up_training() -> None:
    wake = threading.Event()

    class Slow:
        def decide(self, static: Static, window: Window, history: object) -> Decision:
            wake.wait(10)
            return Decision(True)

    with RudderBuffer(4, range(100), Store().rows, Slow(), window=2) as buffer:
        for _ in range(50):
            buffer.gather([1, 2, 3])
        assert len(buffer.buffer) == 0
        wake.set()
        buffer._thinking.result(10)  # type: ignore[union-attr]
        buffer.gather([1, 2, 3])
        assert buffer.buffer.ids.tolist() == [1, 2, 3]


def test_a_policy_that_fails_is_invalid_and_training_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        def decide(self, static: Static, window: Window, history: object) -> Decision:
            raise RuntimeError("no")

    buffer = RudderBuffer(4, range(100), Store().rows, Broken(), window=2, asynchronous=False)
    for _ in range(10):
        assert np.array_equal(buffer.gather([1]), SOURCE[[1]])
    assert {effect.kind for effect in buffer.loop.history} == {"invalid"}
    assert "failed" in caplog.text


def test_a_fetch_that_fails_changes_nothing_in_the_buffer() -> None:
    store, fails = Store(), [False]

    def rows(ids: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        if fails[0]:
            raise ConnectionError("the store is away")
        return store.rows(ids)

    buffer = RudderBuffer(4, range(100), rows, Always(), window=2, asynchronous=False)
    for _ in range(2):
        buffer.gather([1, 2])
    fails[0] = True
    with pytest.raises(ConnectionError):
        buffer.gather([1, 2])
    assert len(buffer.buffer) == 0
    fails[0] = False
    assert np.array_equal(buffer.gather([1, 2, 3]), SOURCE[[1, 2, 3]])
    assert buffer.buffer.ids.tolist() == [1, 2, 3], "the decision waited"
    assert np.array_equal(buffer.gather([3, 1]), SOURCE[[3, 1]])


def test_a_store_of_the_wrong_shape_is_refused() -> None:
    with pytest.raises(InputError, match="expected 2, one for each vertex"):
        RudderBuffer(4, range(9), lambda ids: SOURCE[:1], asynchronous=False).gather([1, 2])
    widths = iter([3, 2])
    buffer = RudderBuffer(4, range(9), lambda ids: SOURCE[ids][:, : next(widths)], asynchronous=False)
    buffer.gather([1])
    with pytest.raises(InputError, match="as before"):
        buffer.gather([2])


@pytest.mark.slow
def test_it_collates_for_a_data_loader() -> None:
    torch = pytest.importorskip("torch")
    buffer = RudderBuffer(4, range(100), Store().rows, asynchronous=False)
    loader = torch.utils.data.DataLoader([np.array([i, i + 1]) for i in range(6)], batch_size=3, collate_fn=buffer.collate)
    for ids, found in loader:
        assert np.array_equal(found.numpy(), SOURCE[ids.numpy()])
    assert buffer.minibatch == 2


def test_the_live_buffer_fetches_what_the_simulated_one_fetches() -> None:
    """The same trace with Every(7): vertices fetched are equal, minibatch by minibatch."""
    from prefetch_traces import drifting, trainer_of, work_of

    from armillary.training.prefetch import Periodic, replay

    rng = np.random.default_rng(4)
    sets = drifting(rng, halo=300, hot=60, minibatches=60, phase=20, often=36)
    trainer = trainer_of(sets, 300)
    work = work_of(trainer, fraction=0.2)
    done = replay(work, Periodic(period=7).caches(work))
    store = Store()
    buffer = RudderBuffer(60, range(300), store.rows, Every(7), content=range(60), period=7, asynchronous=False)
    for t in range(trainer.minibatches):
        before = buffer.fetched
        buffer.gather(trainer.asks(t))
        assert buffer.fetched - before == done.fetched[0, t]
    assert buffer.hits == done.hits.sum()
    assert buffer.replaced == done.replaced.sum()
