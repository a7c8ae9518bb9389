"""Drafting with Medusa's heads: chains, and trees of what the heads guess for the next tokens, each on its own.

Source: Medusa (Cai et al. 2024). No head knows what another one guessed, so all guesses come from one state and every
node at a depth has the same children. Which of them are worth a node is known from measurements (section 3.3.2): the
tree of the likeliest paths under each head's accuracy by rank, chosen once for a shape. Heads that were not measured
get the likeliest paths by their own probabilities, anew in every round. The heads read the last state of the target
that is certain, so the first round of a text is plain. This file refuses to know rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from truedraft.core import Draft, Law, Scores, Session, Shape, Tree, Verdict
from truedraft.drafters.bets import Bet, best_first
from truedraft.drafters.fast_head import speed_up
from truedraft.drafters.growth import begin
from truedraft.drafters.laws import GreedySessions, law_for
from truedraft.drafters.pass_cost import FREE, NO_COST, NodeCosts, PassCost, mean_length
from truedraft.errors import ParameterError
from truedraft.nets.medusa import MedusaNet
from truedraft.targets.cached import CachedModel

__all__ = ["MedusaDrafter", "best_tree", "measure"]

Chances = tuple[tuple[float, ...], ...]
"""Of every head, the chance of its first, second, ... guess."""


@lru_cache(maxsize=256)
def best_tree(chances: Chances, shape: Shape, costs: NodeCosts = NO_COST) -> Bet:
    """The tree of the likeliest paths within a shape when depth and rank alone decide; its tokens are ranks.

    A node that does not pay is left out.
    """
    return best_first(0, 0, _Ranks(chances), shape, costs=costs)


@dataclass(frozen=True)
class _Ranks:
    """`bets.Source` whose states are depths and whose tokens are ranks."""

    chances: Chances

    def guesses(self, state: int, least: float) -> Sequence[tuple[float, int]]:
        return [(chance, rank) for rank, chance in enumerate(self.chances[state])] if state < len(self.chances) else []

    def follow(self, state: int, token: int) -> int:
        return state + 1


@torch.inference_mode()
def measure(net: MedusaNet, target: CachedModel, texts: Sequence[tuple[Sequence[int], int]], width: int = 8) -> Chances:
    """How often each head's first, second, ... guess is the token that comes: what `MedusaDrafter` wants to know.

    texts: token ids that the target wrote, and where its own part begins. Raises `ParameterError` if they are too short
    for the last head.
    """
    heads, ids = net.config.heads, net.vocabulary.ids.to(target.device)
    hits, tried = torch.zeros(heads, width), torch.zeros(heads)
    for number, (tokens, start) in enumerate(texts):
        read = target.read(("measure", number), tokens[:-1], net.taps(target.layers))
        target.release(("measure", number))
        assert read is not None
        states = net(read[start - 1 :].to(next(net.parameters()).dtype))
        guesses = ids[net.logits(states).topk(width).indices].cpu()  # [n, K, width]
        ahead = torch.tensor(tokens[start:])
        for head in range(heads):
            told = ahead[head + 1 :]
            hits[head] += (guesses[: len(told), head] == told[:, None]).sum(0)
            tried[head] += len(told)
    if not tried.all():
        raise ParameterError(f"the texts have no token that head {heads} guesses: expected longer ones")
    return tuple(map(tuple, (hits / tried[:, None]).tolist()))


class MedusaDrafter:
    """`core.Drafter` by Medusa's heads; it takes the net over.

    layers: L of the target. accuracies: of every head, how often its first, second, ... guess is the target's token.
    law: how children are drawn; None leaves it to the session: a greedy one gets CHOSEN, else chains are SAMPLED, trees
    with a branching GREEDY_DRAFT, and trees without one CHOSEN. COUPLED shares the noise of the session's dice with
    the coupled rule. passes: what the target's cost, which limits trees without a branching.
    """

    def __init__(
        self,
        net: MedusaNet,
        *,
        layers: int,
        accuracies: Sequence[Sequence[float]] | None = None,
        law: Law | None = None,
        passes: PassCost = FREE,
    ) -> None:
        if accuracies is not None and not all(row and 0 <= min(row) <= max(row) <= 1 for row in accuracies):
            raise ParameterError(f"accuracies are {accuracies}: expected rates from 0 to 1, at least one a head")
        self.taps = net.taps(layers)
        parameter = next(net.parameters())
        self._net, self._dtype, self._device = net.eval(), parameter.dtype, parameter.device
        self._ids = net.vocabulary.ids.to(self._device)
        self._logits = speed_up(net)
        self._measured = None if accuracies is None else tuple(map(tuple, accuracies))
        self._heads = net.config.heads if accuracies is None else min(net.config.heads, len(accuracies))
        self._law, self._passes = law, passes
        self._greedy = GreedySessions(net.vocabulary.size, self._device)
        self._states: dict[Session, tuple[list[int], Tensor]] = {}

    @torch.inference_mode()
    def propose(self, sessions: Sequence[Session], shapes: Sequence[Shape], *, batch: int | None = None) -> list[Draft]:
        """A draft a session; empty before the target has read the prompt. batch: see `bets.Bettor`."""
        fitting = [shape.clip(self._heads) for shape in shapes]
        wanted = {
            session: shape
            for session, shape in zip(sessions, fitting, strict=True)
            if min(shape.depth, shape.nodes) > 0 and self._knows(session)
        }
        said, costs = self._said(list(wanted)), self._passes.among(batch or len(sessions), mean_length(sessions))
        drafts = {
            session: self._draft(session, shape, logits, costs)
            for (session, shape), logits in zip(wanted.items(), said, strict=True)
        }
        return [drafts[session] if session in drafts else Draft.empty(session.root) for session in sessions]

    @torch.inference_mode()
    def bet(self, session: Session, shape: Shape, *, batch: int = 1) -> Bet:
        """The likeliest continuations with their chances, for a drafter that merges them with others'; CHOSEN."""
        shape = shape.clip(self._heads)
        if min(shape.depth, shape.nodes) == 0 or not self._knows(session):
            return Bet.none(session.root)
        return self._chosen(
            session.root, shape, self._said([session])[0], self._passes.among(batch, len(session.tokens))
        )

    def _said(self, sessions: Sequence[Session]) -> Sequence[Tensor]:
        """The heads' logits [K, Vd] a session."""
        if not sessions:
            return []
        logits = self._logits(self._net(torch.stack([self._states[session][1] for session in sessions])))
        return logits.float().unbind() if logits.dtype is torch.bfloat16 else logits.unbind()  # q is one in float32

    def observe(self, sessions: Sequence[Session], verdicts: Sequence[Verdict], scores: Sequence[Scores]) -> None:
        """Keep the target's state of the last accepted node, whoever drafted it."""
        for session, verdict, score in zip(sessions, verdicts, scores, strict=True):
            if score.features is None or session.finish is not None:
                self._states.pop(session, None)
            else:
                self._states[session] = list(session.tokens), score.features[verdict.last].to(self._dtype)

    def release(self, session: Session) -> None:
        """Free what is kept for the session."""
        self._states.pop(session, None)
        self._greedy.release(session)

    def _knows(self, session: Session) -> bool:
        """Whether the state that is kept is that of the text as it is now."""
        return session in self._states and self._states[session][0] == session.tokens

    def _draft(self, session: Session, shape: Shape, logits: Tensor, costs: NodeCosts) -> Draft:
        """A draft from the heads' logits [K, Vd]."""
        law = law_for(shape, asked=self._law, greedy=self._greedy[session], grown=Law.CHOSEN)
        if law is Law.CHOSEN:
            return self._chosen(session.root, shape, logits, costs).draft
        growth, full = begin(session, shape, law), self._net.vocabulary.scatter(logits)
        for row in full[: shape.depth]:
            if growth.frontier:
                growth.grow(row.expand(len(growth.frontier), -1))
        return growth.finish()[0]

    def _chosen(self, root: int, shape: Shape, logits: Tensor, costs: NodeCosts) -> Bet:
        """The best tree of the heads' likeliest tokens."""
        width = min(max(shape.branching, default=shape.width), logits.shape[-1])
        shares, places = logits[: shape.depth].softmax(-1).topk(width)
        guesses: list[list[int]] = self._ids[places].tolist()
        chances = self._measured or tuple(map(tuple, shares.tolist()))
        paid = NO_COST if shape.branching or shape.width == 1 else costs
        best = best_tree(tuple(row[:width] for row in chances[: shape.depth]), shape, paid)
        tree = best.draft.tree
        tokens = (guesses[depth - 1][rank] for depth, rank in zip(tree.depth[1:], tree.tokens[1:], strict=True))
        return Bet(Draft(Tree((root, *tokens), tree.parents)), best.chances)
