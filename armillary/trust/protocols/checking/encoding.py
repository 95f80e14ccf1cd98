"""Mixed choice encoded in directed choices by a permission that is passed back and forth.

The observer holds the permission. It either starts the right side itself, or hands the permission over (`turn`); then the other either
starts the left side, or hands it back (`pass_on`). Nobody is ever tentative, and every start of the left side costs a message, and every
handing back costs two.
"""

from __future__ import annotations

from ..language.protocol import Branch, End, Interaction, Mixed, Node, Protocol

TURN, BACK = "turn", "pass_on"


def permission_labels(protocol: Protocol) -> tuple[str, str]:
    """The labels of handing over and handing back, which the protocol does not use itself."""
    used = {branch.label for node in protocol.interactions() for branch in node.branches}
    found = []
    for label in (TURN, BACK):
        while label in used:
            label += "_"
        found.append(label)
    return found[0], found[1]


def with_permission(protocol: Protocol) -> Protocol | None:
    """The protocol without mixed choices, or None where a side does not begin with a message between the two."""
    turn, back = permission_labels(protocol)
    nodes: list[Node] = []
    for node in protocol.nodes:
        if isinstance(node, Mixed):
            right = protocol.nodes[node.right]
            if not isinstance(right, Interaction) or (right.sender, right.receiver) != (node.observer, node.tentative):
                return None
            over = Branch(turn, (), len(protocol.nodes) + node.k, node.place)
            nodes.append(Interaction(node.observer, node.tentative, (over, *right.branches), (), node.place))
        elif isinstance(node, Interaction):
            nodes.append(Interaction(node.sender, node.receiver, node.branches, (), node.place))
        else:
            nodes.append(End((), node.place))
    for _, node in sorted(protocol.mixes.items()):
        left = protocol.nodes[node.left]
        if not isinstance(left, Interaction) or (left.sender, left.receiver) != (node.tentative, node.observer):
            return None
        again = Branch(back, (), protocol.nodes.index(node), node.place)
        nodes.append(Interaction(node.tentative, node.observer, (*left.branches, again), (), node.place))
    return Protocol(protocol.name, protocol.roles, tuple(nodes), protocol.file, protocol.text)
