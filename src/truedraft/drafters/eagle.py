"""Drafting with an EAGLE head: chains, trees of a fixed branching, and EAGLE-2's trees of the likeliest nodes.

Sources: EAGLE (Li et al. 2024a), EAGLE-2's dynamic trees (Li et al. 2024b), EAGLE-3 (Li et al. 2025). The head reads
the target's hidden states, so it can first draft once the target has read the prompt: the first round is plain. After
every verdict its memory is continued with the target's true states of what was accepted, and with nothing it made up.
This file refuses to know rules, and of the target it knows its hidden states.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from statistics import fmean

import torch
from torch import Tensor

from truedraft.core import Draft, Law, Scores, Session, Shape, Verdict
from truedraft.drafters.best_growth import BestGrowth, Price
from truedraft.drafters.bets import Bet
from truedraft.drafters.fast_head import speed_up
from truedraft.drafters.growth import Growth, begin
from truedraft.drafters.head_rows import HeadRow, Part, PassOfHeads
from truedraft.drafters.laws import GreedySessions, keeps_order, law_for
from truedraft.drafters.pass_cost import FREE, PassCost, mean_length
from truedraft.drafters.rest import Rest
from truedraft.errors import ParameterError
from truedraft.nets.eagle1 import Eagle1Net
from truedraft.nets.eagle3 import Eagle3Net
from truedraft.nets.mtp_checkpoint import CheckpointMtp

__all__ = ["EagleDrafter"]

_CHUNK = 512  # slots of a text that are run at once


@dataclass(eq=False)
class _Bet:
    """A draft in the making. nodes: the growth's nodes that were run last, in the order of outputs [F, H].

    sight: for every node that was run, the drafted slots that its children see; their number is `slots`.
    """

    growth: Growth
    row: HeadRow
    outputs: Tensor
    nodes: list[int] = field(default_factory=lambda: [0])
    sight: dict[int, tuple[int, ...]] = field(default_factory=lambda: {0: ()})
    slots: int = 0

    def level(self) -> tuple[Part, Tensor, list[int], list[int]]:
        """The frontier's share in the next pass, the states it reads, its tokens and its positions."""
        growth, row = self.growth, self.row
        frontier = list(growth.frontier)
        parents = [growth.parent(node) for node in frontier]
        for place, (node, parent) in enumerate(zip(frontier, parents, strict=True), start=self.slots):
            self.sight[node] = (*self.sight[parent], place)
        places = [self.nodes.index(parent) for parent in parents]
        states = self.outputs if places == list(range(len(self.nodes))) else self.outputs[places]
        start, self.slots, self.nodes = self.slots, self.slots + len(frontier), frontier
        depths = [len(self.sight[node]) for node in frontier]
        positions = [row.begin + row.length - 1 + depth for depth in depths]
        part = Part(row, row.length + start, len(frontier), self._hidden(frontier))
        return part, states, [growth.token(node) for node in frontier], positions

    def _hidden(self, frontier: Sequence[int]) -> Tensor | None:
        """Bool [F, slots]: what each node of the frontier does not see; None where each sees all drafted slots."""
        if all(len(self.sight[node]) == self.slots for node in frontier):
            return None
        hidden = torch.ones(len(frontier), self.slots, dtype=torch.bool)
        for line, node in zip(hidden.numpy(), frontier, strict=True):
            line[list(self.sight[node])] = False
        return hidden


@dataclass(frozen=True)
class _Asked:
    """Trees that the target is looking at, and the rest that learns from what it says."""

    rest: Rest
    growths: Mapping[Session, BestGrowth]

    def settle(self, sessions: Sequence[Session], verdicts: Sequence[Verdict]) -> None:
        emitted = [
            len(verdict.tokens) for session, verdict in zip(sessions, verdicts, strict=True) if session in self.growths
        ]
        if emitted:
            cost = fmean(growth.cost for growth in self.growths.values())
            self.rest.settle(fmean(emitted), cost, len(emitted))


class EagleDrafter:
    """`core.Drafter` by an EAGLE-1, EAGLE-3 or MTP head that `share`s the target's matrices; it takes the net over.

    layers: L of the target. law: how children are drawn; None leaves it to the session: a greedy one gets CHOSEN, else
    chains are SAMPLED, trees with a branching GREEDY_DRAFT, and trees without one are the likeliest nodes, CHOSEN.
    COUPLED shares the noise of the session's dice with the coupled rule. confidence: see `growth.begin`. passes, level:
    what the target's cost, and a level of drafting in passes of one token; they limit trees of the likeliest nodes.
    window: of a longer text that the head meets, it reads the last so many states, as what is nearer says more of the
    next tokens, and reading 1,000 takes two or three passes of the target. None is no limit.
    """

    def __init__(
        self,
        net: Eagle1Net | Eagle3Net | CheckpointMtp,
        *,
        layers: int,
        law: Law | None = None,
        confidence: float = 0.0,
        passes: PassCost = FREE,
        level: float = 0.0,
        window: int | None = 512,
    ) -> None:
        if not 0 <= confidence < 1:
            raise ParameterError(f"confidence is {confidence}: expected a probability below 1")
        if window is not None and window < 1:
            raise ParameterError(f"window is {window}: expected at least 1 token, or None")
        self.taps = net.taps(layers)
        parameter = next(net.parameters())
        self._net, self._dtype, self._device = net.eval(), parameter.dtype, parameter.device
        self._ids = net.vocabulary.ids.to(self._device)
        self._logits = speed_up(net)
        self._law, self._confidence, self._passes, self.level = law, confidence, passes, level
        self._limit, self._window = net.config.layer.max_position_embeddings, window
        self._greedy = GreedySessions(net.vocabulary.size, self._device)
        self._rows: dict[Session, HeadRow] = {}
        self._rests: dict[int, Rest] = {}
        self._asked: _Asked | None = None

    @torch.inference_mode()
    def propose(self, sessions: Sequence[Session], shapes: Sequence[Shape], *, batch: int | None = None) -> list[Draft]:
        """A draft a session, all grown together; empty before the target has read the prompt, and past the context."""
        growths: dict[Session, Growth] = {}
        texts = batch or len(sessions)
        price = self._price(texts, mean_length(sessions))
        for session, shape in zip(sessions, map(self._fitting, sessions, shapes), strict=True):
            if self._can_draft(session, shape):
                law = law_for(shape, asked=self._law, greedy=self._greedy[session], grown=Law.CHOSEN)
                ids = self._ids_for(session) if law is Law.CHOSEN else None
                growths[session] = begin(session, shape, law, confidence=self._confidence, ids=ids, price=price)
        self._asked = self._asking(growths, price, texts)
        if self._asked is not None and self._asked.rest.takes():
            self._asked = None
            return [Draft.empty(session.root) for session in sessions]
        self._fill(growths)
        return [
            growths[session].finish()[0] if session in growths else Draft.empty(session.root) for session in sessions
        ]

    def _asking(self, growths: Mapping[Session, Growth], price: Price, batch: int) -> _Asked | None:
        """The trees, if they stop where they do not pay: then the head need not be asked in every round."""
        trees = {session: growth for session, growth in growths.items() if isinstance(growth, BestGrowth)}
        if not price.level or not trees or len(trees) < len(growths):
            return None
        size = batch.bit_length()
        if size not in self._rests:
            self._rests[size] = Rest(price)
        return _Asked(self._rests[size], trees)

    @torch.inference_mode()
    def bet(self, session: Session, shape: Shape, *, batch: int = 1) -> Bet:
        """The likeliest continuations with their chances, for a drafter that merges them with others'; CHOSEN."""
        shape = self._fitting(session, shape)
        if not self._can_draft(session, shape):
            return Bet.none(session.root)
        free = Shape(shape.depth, max(shape.branching, default=shape.width), shape.nodes)
        growth = BestGrowth(
            session, free, self._confidence, self._ids_for(session), self._price(batch, len(session.tokens))
        )
        self._fill({session: growth})
        draft, kept = growth.finish()
        return Bet(draft, growth.chances(kept))

    def _price(self, batch: int, context: float) -> Price:
        """What trees cost where so many texts of so many tokens share the passes."""
        return Price.among(batch, self._passes, self.level, context)

    def observe(self, sessions: Sequence[Session], verdicts: Sequence[Verdict], scores: Sequence[Scores]) -> None:
        """Take in the target's states of the root and the accepted path, whoever drafted it."""
        if self._asked is not None:
            self._asked.settle(sessions, verdicts)
            self._asked = None
        for session, verdict, score in zip(sessions, verdicts, scores, strict=True):
            if score.features is None or session.finish is not None or len(session.tokens) > self._limit:
                self._rows.pop(session, None)
                continue
            states = score.features[[0, *verdict.path]]
            if score.prefix_features is not None and len(score.prefix_features):
                states = torch.cat((score.prefix_features, states))
            self._take(session, len(session.tokens) - 1 - len(states), states.to(self._dtype))

    def release(self, session: Session) -> None:
        """Free the session's memory."""
        self._rows.pop(session, None)
        self._greedy.release(session)

    def _take(self, session: Session, start: int, states: Tensor) -> None:
        """New states of the text from position `start` on, up to its root."""
        row = self._rows.get(session)
        known = -1 if row is None else row.begin + len(row.tokens) - 1
        if row is None or known != start or row.tokens != session.tokens[row.begin : start + 1]:
            if self._window is not None and (skipped := len(states) - self._window) > 0:
                start, states = start + skipped, states[skipped:].clone()  # the others' memory is let go
            row = self._rows[session] = HeadRow(start, session.tokens[start : start + 1])
        row.tokens += session.tokens[start + 1 :]
        row.states.append(states)
        if self._window is not None:
            row.let_go(self._window)

    def _row(self, session: Session) -> HeadRow | None:
        """The session's memory; None where it is not that of the text as it is now."""
        row = self._rows.get(session)
        return row if row is not None and row.tokens == session.tokens[row.begin :] else None

    def _fitting(self, session: Session, shape: Shape) -> Shape:
        """The shape, no deeper than the head can read. The deepest nodes are only drawn, never read."""
        return shape.clip(self._limit - len(session.tokens) + 1)

    def _can_draft(self, session: Session, shape: Shape) -> bool:
        return min(shape.depth, shape.nodes) > 0 and self._row(session) is not None

    def _ids_for(self, session: Session) -> Tensor | None:
        """The draft vocabulary, if chosen tokens of the session may be ranked without its sampler."""
        return self._ids if keeps_order(session) else None

    # ── passes ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _fill(self, growths: Mapping[Session, Growth]) -> None:
        """Grow trees until they are full-grown."""
        if not growths:
            return
        outputs = self._read([self._rows[session] for session in growths])
        bets = [
            _Bet(growth, self._rows[session], output[None])
            for (session, growth), output in zip(growths.items(), outputs, strict=True)
        ]
        self._grow(bets, outputs)
        while growing := [bet for bet in bets if bet.growth.frontier]:
            self._run(growing)

    def _read(self, rows: Sequence[HeadRow]) -> Tensor:
        """Run what rows have new states of, a chunk at a time; the outputs [B, H] of every row's last slot."""
        waiting = {row: torch.cat(row.states) for row in rows if row.states}
        for row in waiting:
            row.states = []
        while waiting:
            outputs = self._advance(list(waiting), [states[:_CHUNK] for states in waiting.values()])
            for row, own in zip(waiting, outputs, strict=True):
                row.output = own[-1]
            waiting = {row: states[_CHUNK:] for row, states in waiting.items() if len(states) > _CHUNK}
        return torch.stack([row.output for row in rows])

    def _advance(self, rows: Sequence[HeadRow], states: Sequence[Tensor]) -> Sequence[Tensor]:
        """Slots that read true states [n, T, Ht]; every row's outputs [n, H]."""
        parts = [Part.text(row, len(own)) for row, own in zip(rows, states, strict=True)]
        tokens, positions = list[int](), list[int]()
        for part in parts:
            first = part.start
            tokens += part.row.tokens[first + 1 : first + 1 + part.count]
            positions += range(part.row.begin + first, part.row.begin + first + part.count)
        fused = self._net.fuse(states[0] if len(states) == 1 else torch.cat(list(states)))
        outputs = self._slots(parts, fused, tokens, positions)
        for part in parts:
            part.row.length += part.count
        own: Sequence[Tensor] = outputs.split([part.count for part in parts])
        return own

    def _run(self, bets: Sequence[_Bet]) -> None:
        """One level of all trees, in one pass."""
        levels = [bet.level() for bet in bets]
        parts, states, tokens, positions = zip(*levels, strict=True)
        read = states[0] if len(states) == 1 else torch.cat(states)
        outputs = self._slots(parts, read, [*chain(*tokens)], [*chain(*positions)])
        for bet, own in zip(bets, outputs.split([part.count for part in parts]), strict=True):
            bet.outputs = own
        self._grow(bets, outputs)

    def _slots(self, parts: Sequence[Part], states: Tensor, tokens: list[int], positions: list[int]) -> Tensor:
        """Outputs [N, H] of slots that read states [N, H] and tokens."""
        places = torch.tensor([tokens, positions], device=self._device)
        outputs: Tensor = self._net(states, places[0], places[1], PassOfHeads(parts))
        return outputs

    def _grow(self, bets: Sequence[_Bet], outputs: Tensor) -> None:
        """Give children to every bet's frontier, from the outputs [N, H] of all."""
        logits = self._logits(outputs)
        if logits.dtype is torch.bfloat16:  # q is one in float32
            logits = logits.float()
        for bet, own in zip(bets, logits.split([len(bet.outputs) for bet in bets]), strict=True):
            bet.growth.grow(own if bet.growth.takes_ids else self._net.vocabulary.scatter(own))
