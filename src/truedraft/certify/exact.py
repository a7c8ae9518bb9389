"""Exact evidence: the rule enumerated on toy models, and any joint law of a real target's next few tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from truedraft.core import Law, Rule, Tree
from truedraft.request import Facts, Parameters, make_session
from truedraft.targets.cached import CachedModel, Nodes
from truedraft.verify.enumeration import emitted_law, grow, random_table, target_law, total_variation

__all__ = ["EXACT", "RealTable", "enumerated_gaps"]

EXACT = 1e-12
"""A total variation below this is rounding."""

_SHAPES = ((1,), (1, 1), (2,), (2, 1), (1, 2))


def enumerated_gaps(rule: Rule, *, vocabulary: int = 3, pairs: int = 2) -> Iterator[tuple[str, float]]:
    """Every law and shape that the rule takes, with the total variation of the text it emits from the target's own."""
    chains = bool(getattr(rule, "chains", False))
    for law in (law for law in Law if law in rule.laws and law is not Law.COUPLED):
        for shape in _SHAPES:
            if chains and set(shape) != {1}:
                continue
            gaps = []
            for seed in range(pairs):
                p, q = random_table(vocabulary, 2 * seed), random_table(vocabulary, 2 * seed + 1)
                length = len(shape) + 1
                law_emitted = emitted_law(rule, grow(law, shape), p, q, length=length)
                gaps.append(total_variation(law_emitted, target_law(p, length)))
            yield f"{law} {'x'.join(map(str, shape))}", max(gaps)


@dataclass(frozen=True, eq=False)
class RealTable:
    """A real target as a table: the tokens that follow a prompt to the target's distribution [V], float64.

    Each row is computed once, by a forward pass of one token after another, and kept.
    """

    model: CachedModel
    prompt: tuple[int, ...]
    parameters: Parameters
    facts: Facts
    _rows: dict[tuple[int, ...], Tensor] = field(default_factory=dict)

    def __call__(self, text: tuple[int, ...]) -> Tensor:
        """p [V] after prompt and text."""
        if text not in self._rows:
            session = make_session([*self.prompt, *text], self.parameters, self.facts)
            self.model.catch_up(self, session.tokens[:-1])
            logits = self.model.extend([self], [Nodes((session.root,), (-1,))])[0].logits
            self.model.rewind(self, len(session.tokens) - 1)
            sampler = make_session(self.prompt, self.parameters, self.facts).sampler
            tree = Tree((session.root,), (-1,))
            self._rows[text] = sampler.distributions(session.tokens, tree, logits.double())[0].cpu()
        return self._rows[text]

    def joint(self, length: int) -> dict[tuple[int, ...], float]:
        """Probability of every text of `length` tokens that has any."""
        law: dict[tuple[int, ...], float] = {(): 1.0}
        for _ in range(length):
            law = {
                (*text, token): chance * float(self(text)[token])
                for text, chance in law.items()
                for token in self(text).nonzero().flatten().tolist()
            }
        return law

    def rooted(self) -> Callable[[tuple[int, ...]], Any]:
        """The same, for texts that begin with the prompt's last token."""
        return lambda text: self(text[1:])

    def close(self) -> None:
        """Free the model's row."""
        self.model.release(self)
