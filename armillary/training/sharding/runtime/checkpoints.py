"""Planners for `torch.distributed.checkpoint`, so that ragged shares are saved where they are and loaded on any number of ranks.

Every weight is stored flat under its name, one chunk per rank that holds a share of it.

    import torch.distributed.checkpoint as dcp
    dcp.save(sharded.local_state_dict(), checkpoint_id=folder, planner=RaggedSavePlanner(sharded))
    dcp.load(other.local_state_dict(), checkpoint_id=folder, planner=RaggedLoadPlanner(other))

PyTorch's reader unpickles the metadata of a checkpoint, so load only what you have saved; `Sharded.export` writes safetensors.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex, TensorProperties, TensorStorageMetadata
from torch.distributed.checkpoint.planner import LoadPlan, ReadItem, SavePlan, TensorWriteData, WriteItem, WriteItemType
from torch.distributed.checkpoint.planner_helpers import create_read_items_for_chunk_list

from armillary.errors import InputError

from .sharded import Sharded


class RaggedSavePlanner(DefaultSavePlanner):
    """Each rank writes its own shares."""

    def __init__(self, sharded: Sharded) -> None:
        super().__init__(flatten_state_dict=False, flatten_sharded_tensors=False)
        self._shares = {w.name: (w.size, piece, values) for w, piece, values, _ in sharded.shares() if piece.size}

    def create_local_plan(self) -> SavePlan:
        """One chunk per share."""
        items = []
        for name, (size, piece, values) in self._shares.items():
            chunk = ChunkStorageMetadata(torch.Size([piece.start]), torch.Size([piece.size]))
            data = TensorWriteData(chunk, TensorProperties.create_from_tensor(values), torch.Size([size]))
            items.append(WriteItem(MetadataIndex(name, chunk.offsets), WriteItemType.SHARD, tensor_data=data))
        self.plan = SavePlan(items)
        return self.plan

    def resolve_data(self, write_item: WriteItem) -> Tensor:
        """The values of a chunk."""
        return self._shares[write_item.index.fqn][2]


class RaggedLoadPlanner(DefaultLoadPlanner):
    """Each rank reads what its own shares overlap."""

    def __init__(self, sharded: Sharded) -> None:
        super().__init__(flatten_state_dict=False, flatten_sharded_tensors=False)
        self._shares = {w.name: (w.size, piece, values) for w, piece, values, _ in sharded.shares() if piece.size}

    def create_local_plan(self) -> LoadPlan:
        """The parts of saved chunks that this rank's shares need."""
        known: dict[str, Any] = self.metadata.state_dict_metadata if self.metadata is not None else {}
        items: list[ReadItem] = []
        for name, (size, piece, _) in self._shares.items():
            saved = known.get(name)
            if not isinstance(saved, TensorStorageMetadata) or tuple(saved.size) != (size,):
                raise InputError(f'"{name}": expected a flat tensor of {size} elements', where="checkpoint")
            mine = ChunkStorageMetadata(torch.Size([piece.start]), torch.Size([piece.size]))
            items += create_read_items_for_chunk_list(name, saved, [mine])
        return LoadPlan(items)

    def resolve_tensor(self, read_item: ReadItem) -> Tensor:
        """Where a part goes."""
        values = self._shares[read_item.dest_index.fqn][2]
        start, length = read_item.dest_offsets[0], read_item.lengths[0]
        return values[start : start + length]
