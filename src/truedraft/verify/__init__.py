"""The acceptance rules: which drafted tokens become text, so that the text is distributed as the target's own.

One file a rule. Each has a pure function `verify(draft, p, dice)` with its formula and source, and a `RULE`, the same
as an object that first checks that it is proved for the draft's law. `auto` knows them all by name; `transport` knows
how much any rule could accept; `enumeration` proves a rule exact and `mutants` holds the ones that are not.

The words, as they are used here and in the literature:

- p, q: the target's distribution of the next token, and the one that a draft token was really drawn from; both after
  all sampling processors (temperature, top-k, top-p, penalties ...).
- acceptance: the probability that the next token is one of the drafted ones. With a single draft token it is
  1 - TV(p, q) = sum_x min(p(x), q(x)) at best.
- bonus: the token after a fully accepted path, drawn from p. correction: the token at the first place where no bet
  stood, drawn from what p has left. Every verdict ends with one of them.
- residual: norm([p - q]+), what p has left once q's share of it was offered.
- law: how siblings were made (`core.Law`). A rule uses the probabilities with which the tokens were drawn, so it holds
  for one law and not for another; only target-only and coupled hold whatever was done to the draft.
- lossless: the joint law of the emitted text is the target's, for every p and q, not just close to it.
- target-only: draw from p, go on if it was drafted. The exact rule for CHOSEN siblings.
- token: accept each token with min(1, p/q), siblings one after the other (recursive rejection, RRS).
- block: test a chain as a whole (block verification); accepts at least as much as token.
- traversal: test a tree from its leaves up (traversal verification); on a chain it is block, on one node of siblings it
  is token or greedy-draft, on deeper trees it accepts more than either.
- greedy-draft: siblings are the top of q and one drawn token; the optimum of that law.
- kseq: one threshold for independent siblings (SpecTr's k-SEQ).
- coupled: target and drafter share seeded noise (Gumbel coupling); the text does not depend on the drafter at all.
- typical-lossy: Medusa's typical acceptance. It changes the text's distribution and says so in its name.
"""

__all__: list[str] = []
