"""The work of the mesh arena: meshes that change, what each block costs in each step, and the machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from armillary.errors import InputError
from armillary.wording import counted

from .octree.mesh import Blocks, Floats, Graph, Ints, face_messages
from .octree.refinement import Change, change
from .octree.scenes import BASE_US, REFINE_EVERY, Scene, block_bytes, box, costs, drawn_costs, face_bytes, orszag, rounded, sedov
from .simulation.machine import Machine

#: Blocks × steps and messages × steps of one simulation.
MOST_COSTS = 1 << 28
MOST_DELIVERIES = 1 << 30


@dataclass(frozen=True, eq=False)
class MeshWork:
    """Steps of an AMR code. Step 0 has been measured before the first placement and does not count."""

    ranks: int
    machine: Machine
    #: The messages of each mesh, in the order in which the meshes come.
    graphs: tuple[Graph, ...]
    #: changes[e] leads from mesh e to mesh e + 1.
    changes: tuple[Change, ...]
    #: The mesh of each step.
    mesh_of: Ints
    #: µs per block, for each step.
    costs: tuple[Floats, ...]
    block_bytes: float
    #: Parts into which a refined block's cells fall.
    parts: int
    #: Where the costs known are shuffled among the blocks: one permutation per step.
    shuffles: tuple[Ints, ...] = ()

    @property
    def steps(self) -> int:
        """The steps that count."""
        return len(self.costs) - 1

    def check(self) -> MeshWork:
        """Refuses what no simulation here could hold or what no policy can place."""
        fewest = min(graph.blocks for graph in self.graphs)
        if fewest < self.ranks:
            raise InputError(f"found {counted(fewest, 'block')} for {counted(self.ranks, 'rank')}; expected at least one block per rank")
        deliveries = sum(len(self.graphs[e].target) for e in self.mesh_of.tolist())
        if sum(map(len, self.costs)) > MOST_COSTS or deliveries > MOST_DELIVERIES:
            raise InputError(f"found more than {MOST_COSTS:,} costs or {MOST_DELIVERIES:,} messages in all steps; expected fewer")
        return self


def scene_work(name: str, ranks: int, steps: int, machine: Machine, rng: np.random.Generator, *, shuffled: bool = False) -> MeshWork:
    """The blast wave or the vortices, refined every five steps."""
    scene: Scene = (sedov if name == "sedov" else orszag)(ranks, steps, rng)
    meshes: list[Blocks] = []
    graphs, mesh_of, drawn = [], [], []
    for step in range(steps + 1):
        # The first step repeats the mesh of the second: it is the one that was measured before.
        if step == 0 or (step > 1 and (step - 1) % REFINE_EVERY == 0):
            meshes.append(scene.blocks(step))
            graphs.append(face_messages(meshes[-1], face_bytes(scene.dimensions), scene.roots if scene.periodic else None))
        mesh_of.append(len(meshes) - 1)
        drawn.append(costs(scene, meshes[-1], step, rng))
    changes = tuple(change(old, new) for old, new in pairwise(meshes))
    shuffles = tuple(rng.permutation(len(cost)) for cost in drawn) if shuffled else ()
    return MeshWork(
        ranks, machine, tuple(graphs), changes, np.array(mesh_of), tuple(drawn), block_bytes(scene.dimensions), 1 << scene.dimensions,
        shuffles,
    ).check()  # fmt: skip


def box_work(distribution: str, ranks: int, steps: int, machine: Machine, rng: np.random.Generator) -> MeshWork:
    """A mesh of one level whose blocks have independent costs that stay; their mean is that of the scenes' quiet blocks."""
    blocks = box(ranks)
    drawn = drawn_costs(distribution, len(blocks), rng)
    cost = rounded(drawn * (BASE_US / drawn.mean()))
    graph = face_messages(blocks, face_bytes(blocks.dimensions))
    return MeshWork(
        ranks, machine, (graph,), (), np.zeros(steps + 1, np.int64), (cost,) * (steps + 1), block_bytes(blocks.dimensions),
        1 << blocks.dimensions,
    ).check()  # fmt: skip


def given_work(
    meshes: Sequence[Graph], changes: Sequence[Change], mesh_of: Sequence[int], steps: Sequence[Floats], ranks: int, machine: Machine,
    cell_bytes: float, parts: int,
) -> MeshWork:  # fmt: skip
    """Work from a file; a single step is used as the measured one and as the one that counts."""
    drawn, of = list(steps), list(mesh_of)
    if len(drawn) == 1:
        drawn, of = drawn * 2, of * 2
    return MeshWork(ranks, machine, tuple(meshes), tuple(changes), np.array(of), tuple(drawn), cell_bytes, parts).check()
