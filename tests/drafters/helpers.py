"""What the drafters' tests share: sessions on token ids, and what every draft must satisfy."""

from __future__ import annotations

from truedraft.core import Draft, Session, Shape
from truedraft.request import Facts, Parameters, make_session


def make(tokens, *, vocabulary=1000, **parameters) -> Session:
    return make_session(list(tokens), Parameters.of({"seed": 0, **parameters}), Facts(vocabulary=vocabulary))


def assert_within(draft: Draft, session: Session, shape: Shape) -> None:
    tree = draft.tree
    assert tree.tokens[0] == session.root
    assert len(draft) <= shape.nodes
    assert max(tree.depth) <= shape.depth
    for node, children in enumerate(tree.children):
        depth = tree.depth[node]
        widest = shape.branching[depth] if shape.branching and depth < shape.depth else shape.width
        assert len(children) <= widest


def words(draft: Draft) -> set[tuple[int, ...]]:
    """The drafted token sequences, one a node."""
    tree = draft.tree
    return {tuple(tree.tokens[step] for step in tree.path(node)) for node in range(1, len(tree))}
