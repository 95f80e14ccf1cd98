"""The coordinator over NCCL, without a GPU: a group that notes what is asked of it and copies what is sent to itself."""

from __future__ import annotations

import numpy as np
import pytest

from armillary.comm.communicator import Communicator
from armillary.comm.counters import Tally
from armillary.errors import InputError

torch = pytest.importorskip("torch")

from armillary.comm import IN_PLACE, Coordinator  # noqa: E402
from armillary.comm.torch_distributed import transfers as transfers_torch  # noqa: E402


class Work:
    def wait(self):
        return True


class Group:
    """One rank: sends meet receives in order when a batch ends."""

    def __init__(self):
        self.calls = []
        self.sent, self.wanted = [], []

    def send(self, tensors, dest, tag):
        self.calls.append("send")
        self.sent.append(tensors[0])
        return Work()

    def recv(self, tensors, source, tag):
        self.calls.append("recv")
        self.wanted.append(tensors[0])
        return Work()

    def _start_coalescing(self, device):
        self.calls.append("start")

    def _end_coalescing(self, device):
        self.calls.append("end")
        for room, data in zip(self.wanted, self.sent):
            room.copy_(data)
        self.sent, self.wanted = [], []
        return Work()

    def allreduce(self, tensors, options):
        self.calls.append("allreduce")
        return Work()

    def _allgather_base(self, room, mine):
        self.calls.append("allgather")
        room.copy_(mine)
        return Work()


class DeviceRanks(Communicator):
    """One rank that says, as those of backend nccl do, what makes its transfers."""

    _transfers = "armillary.comm.torch_distributed.transfers:NcclTransfers"

    def __init__(self):
        super().__init__(0, [0], Tally())
        self.__dict__["group"] = Group()

    @property
    def native(self):
        return self.__dict__["group"]

    @property
    def _shadow(self):
        return self


@pytest.fixture
def ranks(monkeypatch):
    monkeypatch.setattr(transfers_torch.torch.cuda, "current_device", lambda: 0)
    device = torch.device
    monkeypatch.setattr(transfers_torch.torch, "device", lambda *args: device("cpu"))
    return DeviceRanks()


def test_a_batch_is_one_group_of_the_library(ranks):
    coord = Coordinator(ranks)
    one, two, upper, lower = (coord.alloc(4) for _ in range(4))
    signal = coord.alloc(1, np.int64)
    assert isinstance(one, torch.Tensor)
    one[:], two[:] = 1.0, 2.0
    for turn in (1, 2):
        ranks.native.calls.clear()
        with coord.batch():
            coord.post(one, lower, 4, signal, turn, 0)
            coord.post(two, upper, 4, signal, turn, 0)
            coord.acknowledge(lower, 4, signal, turn, 0)
            coord.acknowledge(upper, 4, signal, turn, 0)
        assert ranks.native.calls == ["start", "send", "send", "recv", "recv", "end"]
    assert lower.tolist() == [1.0] * 4
    assert upper.tolist() == [2.0] * 4
    assert ranks.counters[""].calls == 8
    ranks.native.calls.clear()
    with coord.batch():
        pass
    assert ranks.native.calls == []


def test_collective_calls_are_one_call(ranks):
    coord = Coordinator(ranks)
    send, recv, whole = coord.alloc(3), coord.alloc(3), coord.alloc(3)
    send[:] = 5.0
    assert coord.allreduce(send, recv) is recv
    assert recv.tolist() == [5.0] * 3
    coord.allreduce(IN_PLACE, recv)
    coord.allgatherv(send, whole, (3,))
    assert whole.tolist() == [5.0] * 3
    assert ranks.native.calls == ["allreduce", "allreduce", "allgather"]


def test_kernels_are_launched_with_their_grid(ranks):
    coord = Coordinator(ranks)
    seen = []

    class Triton:
        def __getitem__(self, grid):
            return lambda *args: seen.append((grid, args))

    coord.bind(Triton(), grid=(8,), args=(1, 2))
    coord.launch()
    coord.bind(lambda grid, block, args: seen.append((grid, block, args)), grid=(4,), block=(32,), args=(3,))
    coord.launch()
    coord.bind(seen.append, args=(4,))
    coord.launch()
    assert seen == [((8,), (1, 2)), ((4,), (32,), (3,)), 4]


def test_what_is_not_on_the_device_is_refused(ranks):
    coord = Coordinator(ranks)
    signal = torch.zeros(1, dtype=torch.int64)
    with pytest.raises(InputError, match="tensor of the GPU"):
        coord.post(np.zeros(3), None, 3, signal, 1, 0)
    with pytest.raises(InputError, match="count: found 9"):
        coord.post(torch.zeros(3), None, 9, signal, 1, 0)
    with pytest.raises(InputError, match="float32"):
        coord.post(torch.zeros(3), None, 3, torch.zeros(1), 1, 0)
    with pytest.raises(InputError, match="not contiguous"):
        coord.post(torch.zeros(4, 4)[:, 1], None, 3, signal, 1, 0)
    with pytest.raises(InputError, match="to send and room for"):
        coord.allreduce(torch.zeros(3), torch.zeros(4))
