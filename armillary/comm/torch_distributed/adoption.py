"""Communicators over torch.distributed groups that exist already, and over CuPy's NCCL communicators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from armillary.comm.communicator import Communicator
from armillary.comm.counters import Tally
from armillary.comm.torch_distributed.library import dist
from armillary.errors import InputError

if TYPE_CHECKING:
    from armillary.comm.torch_distributed.post import Post

#: One post for each group, however often the group is adopted.
_POSTS: dict[Any, Post] = {}


def ranks_of(group: Any, seed: int = 0) -> Communicator:
    """Return the communicator of the ranks of this group, in its order. With NCCL, its arrays are those of the GPU."""
    if group is dist.GroupMember.NON_GROUP_MEMBER:
        raise InputError("adopt: found a group to which this rank does not belong; expected one to which it belongs")
    if not isinstance(group, dist.ProcessGroup):
        raise InputError(f"adopt: found a {type(group).__name__}; expected a torch.distributed.ProcessGroup")
    names = str(dist.get_backend(group))
    if "nccl" in names:
        from armillary.comm.torch_distributed.nccl import DeviceRanks

        return DeviceRanks(group, Tally(), seed)
    if "gloo" not in names:
        raise InputError(f"adopt: found a group with {names}; expected gloo or nccl")
    from armillary.comm.torch_distributed.gloo import GlooRanks
    from armillary.comm.torch_distributed.post import Post

    post = _POSTS.get(group)
    if post is None:
        _POSTS[group] = post = Post(group)
    return GlooRanks(post, range(post.size), post.place, "world", Tally(), seed)


def forget(post: Post) -> None:
    """Forget the group of this post."""
    for group in [group for group, known in _POSTS.items() if known is post]:
        del _POSTS[group]


def ranks_of_cupy(native: Any, seed: int = 0) -> Communicator:
    """Return the communicator of the ranks of a `cupy.cuda.nccl.NcclCommunicator`."""
    if type(native).__name__ != "NcclCommunicator":
        raise InputError(f"adopt: found {type(native).__name__}; expected a cupy.cuda.nccl.NcclCommunicator")
    from armillary.comm.torch_distributed.nccl import DeviceRanks
    from armillary.comm.torch_distributed.wires import CupyWire

    return DeviceRanks(CupyWire(native), Tally(), seed)
