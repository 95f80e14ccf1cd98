"""Real offloading: training equals plain training bit for bit, budgets hold, and damaged files and changed orders are noticed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from late_streams import LateStream, LateStreams  # noqa: E402
from torch import nn  # noqa: E402

from armillary.arena import NotForThisCase  # noqa: E402
from armillary.errors import InputError  # noqa: E402
from armillary.llm import TrainableTiny  # noqa: E402
from armillary.llm.tiny.transformer import Shape  # noqa: E402
from armillary.training.offload import (  # noqa: E402
    Belady,
    LayerToLayer,
    Lru,
    Offloader,
    TenCache,
    ZeroInfinity,
    ZeroOffload,
    read_trace,
    simulate,
    tencache,
)  # fmt: skip
from armillary.training.offload.runtime import tiers as tiers_module  # noqa: E402
from armillary.training.offload.runtime.spill import SpillFolder  # noqa: E402
from armillary.training.offload.runtime.tiers import Tiers  # noqa: E402

SHAPE = Shape(32, 5, 2, 2, 16, 64, 100, 1e4, 1e-5, 16, True)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def batch(number: int) -> tuple[Any, Any]:
    rng = torch.Generator().manual_seed(number)
    ids = torch.randint(0, 100, (2, 9), generator=rng)
    return ids[:, :-1], ids[:, 1:]


def total(model: nn.Module) -> int:
    return sum(p.numel() * p.element_size() for p in model.parameters())


def train(model: Any, optimizer: Any, steps: range, micro: int = 1) -> list[float]:
    losses = []
    for number in steps:
        optimizer.zero_grad()
        for part in range(micro):
            loss = model.loss(*batch(10 * number + part))
            loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def plain(kind: Callable[..., Any] = torch.optim.AdamW, steps: int = 5, micro: int = 1, **how: Any) -> tuple[list[float], dict[str, Any]]:
    model = TrainableTiny(SHAPE, seed=3, **how)
    return train(model, kind(model.parameters(), lr=1e-2), range(steps), micro), model.state_dict()


def disk(model: nn.Module, folder: Path, share: float = 0.5, **how: Any) -> Offloader:
    return tencache.wrap(model, gpu_bytes=share * total(model), nvme_dir=folder, fast="ram", slow="disk", **how)


TECHNIQUES = {
    "10cache": TenCache(), "10cache without prefetch": TenCache(prefetch=False), "layer-to-layer": LayerToLayer(), "lru": Lru(), "belady": Belady(),
    "zero-infinity": ZeroInfinity(param_persistence_threshold=0, prefetch_bucket_size=3000),
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "tiers"),
    [
        *((name, "ram and disk") for name in TECHNIQUES),
        ("10cache", "device and host"),
        ("10cache", "device, host and disk"),
        ("lru", "device, host and disk"),
    ],
)
def test_training_is_the_same_bit_for_bit_and_stays_within_its_budget(tmp_path: Path, name: str, tiers: str) -> None:
    losses, weights = plain(steps=4)
    model = TrainableTiny(SHAPE, seed=3)
    whole = total(model)
    # Small tensors of one layer, and the embedding, which is the largest.
    budget = 0.6 * whole
    how: dict[str, Any] = {
        "ram and disk": {"fast": "ram", "slow": "disk", "nvme_dir": tmp_path, "host_bytes": 0.5 * whole},
        "device and host": {"device": "cpu"},
        "device, host and disk": {"device": "cpu", "host_bytes": 0.45 * whole, "nvme_dir": tmp_path},
    }[tiers]
    with Offloader(model, gpu_bytes=budget, technique=TECHNIQUES[name], **how) as off:
        assert train(model, off.optimizer(torch.optim.AdamW, lr=1e-2), range(4)) == losses
        found = off.state_dict()
        assert off.invalidated == 0
        assert off.peak_bytes <= budget
        assert off.tiers.host_held <= off.tiers.host_bytes
    for key, value in weights.items():
        assert torch.equal(found[key], value), key
        assert torch.equal(model.state_dict()[key], value), "closing brings the parameters back"
    assert list(tmp_path.iterdir()) == [], "no file is left"


@pytest.mark.parametrize(("kind", "files"), [(torch.optim.SGD, True), (torch.optim.Adam, False)])
def test_other_optimizers_and_accumulated_gradients_give_the_same(tmp_path: Path, kind: Callable[..., Any], files: bool) -> None:
    losses, weights = plain(kind, steps=3, micro=2)
    model = TrainableTiny(SHAPE, seed=3)
    with disk(model, tmp_path) if files else Offloader(model, gpu_bytes=0.5 * total(model), device="cpu") as off:
        assert train(model, off.optimizer(kind, lr=1e-2), range(3), micro=2) == losses
        assert all(torch.equal(off.state_dict()[key], value) for key, value in weights.items())


@pytest.mark.parametrize("host", [1.0, 0.45])
@pytest.mark.parametrize("name", ["10cache", "lru"])
def test_copies_beside_computation_are_waited_for(tmp_path: Path, name: str, host: float) -> None:
    """The path of a GPU on streams whose copies happen as late as they may."""
    losses, weights = plain(steps=4, micro=2)
    model, streams = TrainableTiny(SHAPE, seed=3), LateStreams()
    how: dict[str, Any] = {"nvme_dir": tmp_path, "host_bytes": host * total(model)}
    with Offloader(model, gpu_bytes=0.5 * total(model), device="cpu", streams=streams, technique=TECHNIQUES[name], **how) as off:
        assert train(model, off.optimizer(torch.optim.AdamW, lr=1e-2), range(4), micro=2) == losses
        found = off.state_dict()
    assert all(torch.equal(found[key], value) for key, value in weights.items())
    assert streams.copies > 100


def test_memory_that_was_something_else_in_between_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A freed buffer becomes an activation, and then a buffer again: the copy into it has to wait for what computes with the activation."""
    block = torch.zeros(64, dtype=torch.uint8)
    monkeypatch.setattr(tiers_module, "_bytes", lambda count, device: block)
    streams = LateStreams()
    streams._now = LateStream()  # Computation is late too.
    tiers = Tiers([64, 64], torch.device("cpu"), 64, 128, None, streams)
    for i in range(2):
        tiers.store(i, torch.full((64,), i + 1, dtype=torch.uint8))
    tiers.ready(0)
    tiers.release(0)
    seen: list[torch.Tensor] = []
    streams.now().put(lambda: block.fill_(7))
    streams.now().put(lambda: seen.append(block.clone()))
    tiers.start(1)
    streams.synchronize()
    streams.now().catch_up(streams.now().issued)
    assert seen[0].unique().tolist() == [7]
    assert block.unique().tolist() == [2]


@pytest.mark.parametrize("share", [0.4, 0.5, 0.7])
def test_a_host_that_holds_every_parameter_suffices_for_any_window(share: float) -> None:
    """Buffers of few sizes are counted by size, and what rounding takes away must not make a host of exactly this size too small."""
    model = TrainableTiny(Shape(64, 4, 2, 2, 32, 172, 500, 1e4, 1e-5, 16, False), seed=1)
    with Offloader(model, gpu_bytes=share * total(model), device="cpu", technique=TECHNIQUES["10cache"]) as off:
        optimizer = off.optimizer(torch.optim.SGD, lr=1e-2)
        for _ in range(3):
            optimizer.zero_grad()
            model.loss(*(torch.arange(32).reshape(2, 16) for _ in range(2))).backward()
            optimizer.step()
        assert off.schedule is not None
        assert off.peak_bytes <= share * total(model)


def test_sixteen_bits_have_a_master_copy(tmp_path: Path) -> None:
    model = TrainableTiny(SHAPE, seed=3, dtype=torch.bfloat16)
    with Offloader(model, gpu_bytes=0.5 * total(model), device="cpu") as off:
        optimizer = off.optimizer(torch.optim.SGD, lr=1e-6)
        first = off.state_dict()
        train(model, optimizer, range(4))
        masters = list(optimizer._master.values())
        assert all(p.dtype == torch.float32 for p in masters)
        # Steps too small for 16 bits add up in the master copies.
        assert any((p.detach() != p.detach().to(torch.bfloat16).float()).any() for p in masters)
        assert all(value.dtype == torch.bfloat16 for value in first.values())


def test_master_copies_and_states_stream_from_files_where_the_host_is_small(tmp_path: Path) -> None:
    found = []
    for share in (100.0, 1.5):
        model = TrainableTiny(SHAPE, seed=3, dtype=torch.bfloat16)
        how: dict[str, Any] = {"host_bytes": share * total(model), "nvme_dir": tmp_path}
        with Offloader(model, gpu_bytes=0.5 * total(model), device="cpu", **how) as off:
            optimizer = off.optimizer(torch.optim.AdamW, lr=1e-2)
            found.append((train(model, optimizer, range(4)), off.state_dict()))
            assert bool(optimizer._files) == (share < 2)
            assert optimizer._held <= max(share - 1, 0) * total(model)
    assert found[0][0] == found[1][0]
    assert all(torch.equal(value, found[1][1][key]) for key, value in found[0][1].items())


def test_gradients_are_those_of_the_plain_module(tmp_path: Path) -> None:
    reference, model = TrainableTiny(SHAPE, seed=3), TrainableTiny(SHAPE, seed=3)
    with disk(model, tmp_path) as off:
        for number in range(4):
            reference.zero_grad()
            model.zero_grad()
            reference.loss(*batch(number)).backward()
            model.loss(*batch(number)).backward()
            for a, b in zip(model.parameters(), reference.parameters(), strict=True):
                assert torch.equal(a.grad, b.grad)
        assert off.schedule is not None


def test_the_recorded_table_can_be_simulated(tmp_path: Path) -> None:
    model = TrainableTiny(SHAPE, seed=3)
    with disk(model, tmp_path) as off:
        optimizer = off.optimizer(torch.optim.SGD, lr=1e-2)
        train(model, optimizer, range(1))
        assert off._clock_s is None, "the clock of the last operation stops before the update"
        train(model, optimizer, range(1, 3))
        assert off.table is not None
        off.table.to_csv(tmp_path / "table.csv")
        assert off.work is not None
        assert (off.work.seconds > 0).all()
        work = read_trace(tmp_path / "table.csv", off.work.machine)
        assert work.total_bytes == off.work.total_bytes
        simulate(work, LayerToLayer().schedule(work))
        (tmp_path / "table.csv").unlink()
    tensors = off.table.tensor
    assert len(tensors) == 2 * (2 + 5 * 9 + 1), "embedding, last norm, head, and nine matrices and norms per layer, forward and backward"


# What goes wrong


@pytest.mark.parametrize("damage", ["cut", "changed", "empty"])
def test_a_damaged_file_is_named_and_nothing_else_is_lost(tmp_path: Path, damage: str) -> None:
    model = TrainableTiny(SHAPE, seed=3)
    off = disk(model, tmp_path)
    optimizer = off.optimizer(torch.optim.SGD, lr=1e-2)
    train(model, optimizer, range(3))
    before = off.state_dict()
    absent = next(i for i, held in enumerate(off.tiers.fast) if held is None and off.tiers.size[i] > 1000)
    made = off.tiers.files[absent]
    assert made is not None
    whole = made.path.read_bytes()
    if damage == "changed":
        made.path.write_bytes(whole[:-100] + bytes(100))
    else:
        os.truncate(made.path, 0 if damage == "empty" else len(whole) - 100)
    with pytest.raises(InputError, match=made.path.name):
        train(model, optimizer, range(3, 4))
    made.path.write_bytes(whole)  # It is mended, and training goes on from where it was.
    assert all(torch.equal(off.state_dict()[key], value) for key, value in before.items())
    reference = TrainableTiny(SHAPE, seed=3)
    wanted = train(reference, torch.optim.SGD(reference.parameters(), lr=1e-2), range(5))
    assert train(model, optimizer, range(3, 5)) == wanted[3:]
    off.close()


class Skipping(nn.Module):
    """Five layers, of which one may be left out, or two may change places."""

    def __init__(self) -> None:
        super().__init__()
        rng = torch.Generator().manual_seed(0)
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(5))
        for p in self.parameters():
            p.data = torch.randn(p.shape, generator=rng) / 4
        self.order = [0, 1, 2, 3, 4]

    def forward(self, x: Any) -> Any:
        for number in self.order:
            x = torch.tanh(self.layers[number](x))
        return x


def test_a_changed_order_is_recorded_anew_and_never_computes_with_a_wrong_tensor(tmp_path: Path) -> None:
    reference, model = Skipping(), Skipping()
    orders = [[0, 1, 2, 3, 4]] * 3 + [[0, 1, 3, 4]] * 3 + [[4, 1, 2, 3, 0]] * 2 + [[0, 1, 2, 3, 4], [0, 4]]
    x = torch.randn(3, 16, generator=torch.Generator().manual_seed(1))
    adam = torch.optim.Adam(reference.parameters(), lr=1e-2)
    with disk(model, tmp_path, 0.45) as off:
        optimizer = off.optimizer(torch.optim.Adam, lr=1e-2)
        for order in orders:
            reference.order = model.order = order
            found = []
            for one, steps in ((reference, adam), (model, optimizer)):
                steps.zero_grad()
                loss = one(x).square().sum()
                loss.backward()
                steps.step()
                found.append(loss.item())
            assert found[0] == found[1]
        assert off.invalidated == 3, "the last change came while the order was being recorded"
        assert off.peak_bytes <= 0.45 * total(reference) + 17 * 16 * 4


def test_an_evaluation_in_between_leaves_the_record_alone(tmp_path: Path) -> None:
    losses, _ = plain(steps=4)
    model = TrainableTiny(SHAPE, seed=3)
    reference = TrainableTiny(SHAPE, seed=3)
    adam = torch.optim.AdamW(reference.parameters(), lr=1e-2)
    with disk(model, tmp_path) as off:
        optimizer = off.optimizer(torch.optim.AdamW, lr=1e-2)
        for number in range(4):
            assert train(model, optimizer, range(number, number + 1)) == [losses[number]]
            train(reference, adam, range(number, number + 1))
            model.eval()
            with torch.no_grad():
                assert torch.equal(model(batch(99)[0]), reference(batch(99)[0]))
            model.train()
        assert off.invalidated == 0


def test_parameters_outside_the_hooks_are_not_a_number_rather_than_wrong(tmp_path: Path) -> None:
    model = TrainableTiny(SHAPE, seed=3)
    with disk(model, tmp_path) as off:
        train(model, off.optimizer(torch.optim.SGD, lr=1e-2), range(3))
        absent = [p for i, p in enumerate(off.params) if off.tiers.fast[i] is None]
        assert absent
        assert all(p.isnan().all() for p in absent)


def test_attention_of_pytorch_is_one_unit(tmp_path: Path) -> None:
    class Attending(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.first, self.attention, self.last = nn.Linear(8, 8), nn.MultiheadAttention(8, 2, batch_first=True), nn.Linear(8, 8)

        def forward(self, x: Any) -> Any:
            y = self.first(x)
            return self.last(self.attention(y, y, y, need_weights=False)[0])

    reference, model = Attending(), Attending()
    x = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(1))
    with disk(model, tmp_path, 0.9) as off:
        for _ in range(4):
            found = []
            for one in (reference, model):
                one.zero_grad()
                loss = one(x).square().sum()
                loss.backward()
                found.append((loss.item(), [p.grad.clone() for p in one.parameters()]))
            assert found[0][0] == found[1][0]
            assert all(torch.equal(a, b) for a, b in zip(found[0][1], found[1][1], strict=True))
        assert off.schedule is not None


def test_what_cannot_be_is_said_before_the_first_byte(tmp_path: Path) -> None:
    model = TrainableTiny(SHAPE, seed=3)
    with pytest.raises(InputError, match="the largest parameter"):
        tencache.wrap(model, gpu_bytes=1000, fast="ram", slow="disk", nvme_dir=tmp_path)
    with pytest.raises(InputError, match="needs nvme_dir"):
        tencache.wrap(model, gpu_bytes=1e6, fast="ram", slow="disk")
    with pytest.raises(InputError, match="expected fast="):
        tencache.wrap(model, gpu_bytes=1e6, fast="tape", slow="disk", nvme_dir=tmp_path)
    with pytest.raises(InputError, match="is not a folder"):
        tencache.wrap(model, gpu_bytes=1e6, fast="ram", slow="disk", nvme_dir=tmp_path / "none")
    with pytest.raises(InputError, match="has no parameters"):
        tencache.wrap(nn.ReLU(), gpu_bytes=1e6, device="cpu")
    with pytest.raises(InputError, match="bytes free; expected at least"):
        SpillFolder(tmp_path, 1 << 62)
    if not torch.cuda.is_available():
        with pytest.raises(InputError, match="no GPU here"):
            tencache.wrap(model, gpu_bytes=1e6, device="cuda")
    with pytest.raises(InputError, match="no nvme_dir"):
        tencache.wrap(model, gpu_bytes=1e6, host_bytes=1000, device="cpu")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path, *args: object, **how: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "touch", refuse)
    with pytest.raises(InputError, match="cannot be written: Permission denied"):
        SpillFolder(tmp_path, 10)


def test_a_technique_that_cannot_hold_the_model_declines(tmp_path: Path) -> None:
    model = TrainableTiny(SHAPE, seed=3)
    with disk(model, tmp_path) as off:
        off.technique = ZeroOffload()
        train(model, off.optimizer(torch.optim.SGD, lr=1e-2), range(1))
        with pytest.raises(NotForThisCase):
            model.loss(*batch(0))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
def test_a_gpu_gives_the_gradients_of_plain_training() -> None:
    reference, model = TrainableTiny(SHAPE, seed=3).cuda(), TrainableTiny(SHAPE, seed=3)
    whole = total(model)
    with tencache.wrap(model, gpu_bytes=0.6 * whole, device="cuda") as off:
        optimizer = off.optimizer(torch.optim.SGD, lr=0.0)
        for number in range(5):
            ids, targets = (part.cuda() for part in batch(number))
            reference.zero_grad()
            optimizer.zero_grad()
            reference.loss(ids, targets).backward()
            model.loss(ids, targets).backward()
            for i, p in enumerate(reference.parameters()):
                found = optimizer.gradient(i)
                assert found is not None
                assert torch.equal(found, p.grad.cpu())
            optimizer.step()
        assert off.peak_bytes <= 0.6 * whole
