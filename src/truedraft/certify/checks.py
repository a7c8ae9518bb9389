"""The checks of a certificate, from exact to observed. Each is one function that returns one `Check`."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from truedraft.certify.exact import EXACT, RealTable, enumerated_gaps
from truedraft.certify.report import Certificate, Check
from truedraft.certify.statistics import FALSE_ALARM, POWER, GoodnessOfFit, goodness_of_fit
from truedraft.core import Shape, Tree
from truedraft.dice import RandomDice
from truedraft.drafters.none import NoDrafter
from truedraft.model import Model
from truedraft.planning.fixed import Fixed
from truedraft.request import Parameters, make_session
from truedraft.targets.cached import CachedModel, Nodes
from truedraft.targets.torch_target import TorchTarget
from truedraft.verify.auto import rule_named
from truedraft.verify.enumeration import Rows
from truedraft.verify.mutants import Mutant, measure

__all__ = ["Examination", "examine", "names"]

_LENGTH = 2
"""Tokens whose joint law is computed exactly and observed."""
_CANDIDATES = 8
"""Tokens that sampling may choose from in that check, so that 1 + 8 passes give the whole joint law."""


@dataclass(frozen=True)
class Examination:
    """What is examined, and how much of it.

    prompts: chat or text, as `Model.generate` takes them. parameters: sampling parameters of the user's own. tokens: an
    answer. draws: of the first tokens, for the test of their law. tie: the largest gap of two logits that counts as a
    near tie. mutant: put this known fault in the place of the rule, to see the checks refute it.
    """

    model: Model
    prompts: Sequence[Any]
    parameters: Parameters
    tokens: int = 64
    draws: int = 4000
    tie: float = 1e-3
    mutant: Mutant | None = None

    @property
    def cache(self) -> CachedModel:
        """The target's model."""
        target = self.model.decoder.target
        assert isinstance(target, TorchTarget)
        return target.model

    @property
    def plain(self) -> Model:
        """The same target without a drafter."""
        decoder = replace(self.model.decoder, drafter=NoDrafter(), policy=Fixed(Shape(0)))
        return replace(self.model, decoder=decoder)

    def ids(self, prompt: Any) -> list[int]:
        """A prompt's token ids."""
        return make_session(prompt, self.parameters, self.model.facts).tokens


def examine(what: Examination, *, told: Callable[[str], None] = lambda name: None) -> Certificate:
    """All checks, in order of strength; `told` hears the name of each before it runs."""
    rule: Any = what.model.decoder.rule
    checks = []
    for name, check in _CHECKS.items():
        told(name)
        start = time.perf_counter()
        found = check(what)
        checks.append(replace(found, seconds=time.perf_counter() - start))
    subject = {
        "target": what.model.name,
        "drafter": what.model.drafter_name,
        "rule": f"{rule.name}{'' if rule.lossless else ' (lossy)'}" if what.mutant is None else what.mutant.name,
        "fault": "none known" if what.mutant is None else what.mutant.fault,
        "dtype": str(what.cache.dtype).removeprefix("torch."),
        "device": str(what.cache.device),
        "temperature": what.parameters.temperature,
        "prompts": len(what.prompts),
        "torch": torch.__version__,
    }
    return Certificate(subject, tuple(checks), rule_is_lossless=bool(rule.lossless))


def _enumeration(what: Examination) -> Check:
    """(a) Every outcome of draft and verdict on toy models."""
    claim = f"Enumerated on toy models, the rule's text has the target's own joint law (total variation < {EXACT:g})."
    if what.mutant is not None:
        worst = measure(what.mutant)
        figures: dict[str, float] = {what.mutant.name: worst}
    elif what.model.decoder.rule is rule_named("coupled"):
        return Check("enumeration", claim, None, "the noise of this rule is fixed by its seed: see seeded identity")
    else:
        figures = dict(enumerated_gaps(what.model.decoder.rule))
        worst = max(figures.values(), default=0.0)
    return Check("enumeration", claim, worst < EXACT, f"largest total variation {worst:.1e}", figures)


def _greedy_identity(what: Examination) -> Check:
    """(b) Token ids of greedy decoding against plain decoding."""
    claim = "At temperature 0 the token ids are those of plain decoding, but for near ties."
    options: dict[str, Any] = {"max_new_tokens": what.tokens, "temperature": 0.0}
    rows = [what.ids(prompt) for prompt in what.prompts]
    fast = what.model.generate(rows, **options)
    plain = what.plain.generate(rows, **options, logprobs=2)
    gaps, other = [], 0
    for ours, reference in zip(fast, plain, strict=True):
        if ours.token_ids == reference.token_ids:
            continue
        pairs = zip(ours.token_ids, reference.token_ids, strict=False)
        at = next((place for place, (a, b) in enumerate(pairs) if a != b), None)
        if at is None:
            other += 1
        else:
            (_, best), (_, second) = (reference.logprobs or ())[at].top
            gaps.append(best - second)
    wrong = other + sum(gap > what.tie for gap in gaps)
    same = len(rows) - len(gaps) - other
    finding = f"{same} of {len(rows)} texts identical" + (f", {len(gaps) - wrong} part at a near tie" if gaps else "")
    passed: bool | None = wrong == 0 if getattr(what.model.decoder.rule, "lossless", True) else None
    figures = {"identical": same, "texts": len(rows), "gaps_where_they_part": gaps, "tolerated_gap": what.tie}
    return Check("greedy identity", claim, passed, finding, figures)


def _sampled_law(what: Examination) -> Check:
    """(c) The joint law of the first tokens, exact against observed."""
    claim = (
        f"Sampled, the first {_LENGTH} tokens have the target's exact joint law "
        f"(chi-square; false alarm {FALSE_ALARM:g}, top-k {_CANDIDATES})."
    )
    temperature = what.parameters.temperature or 1.0
    whole: dict[str, Any] = {"max_new_tokens": _LENGTH, "ignore_eos": True, "stop": (), "stop_token_ids": ()}
    options = replace(what.parameters, temperature=temperature, top_k=_CANDIDATES, **whole)
    prompt = tuple(what.ids(what.prompts[0]))
    table = RealTable(what.cache, prompt, options, what.model.facts)
    try:
        law = table.joint(_LENGTH)
        counts = _mutant_draws(what, table, prompt) if what.mutant else _engine_draws(what, prompt, options)
    finally:
        table.close()
    fit = goodness_of_fit(counts, law)
    return Check("sampled law", claim, fit.passed, _finding(fit), _figures(fit) | {"temperature": temperature})


def _engine_draws(what: Examination, prompt: tuple[int, ...], options: Parameters) -> Counter[tuple[int, ...]]:
    """First tokens as the whole engine draws them, each text with a seed of its own."""
    named = {name: value for name, value in vars(options).items() if name != "seed"}
    each = [{"seed": seed} for seed in range(what.draws)]
    wide = replace(what.model, batch=max(what.model.batch, 32))
    results = wide.generate([list(prompt)] * what.draws, each=each, **named)
    return Counter(result.token_ids[:_LENGTH] for result in results)


def _mutant_draws(what: Examination, table: RealTable, prompt: tuple[int, ...]) -> Counter[tuple[int, ...]]:
    """First tokens as the mutant draws them from the real target's distributions, its drafts from a flatter q."""
    assert what.mutant is not None
    dice, counts = RandomDice(0), Counter[tuple[int, ...]]()
    p, root = table.rooted(), (prompt[-1],)

    def q(text: tuple[int, ...]) -> torch.Tensor:
        row: torch.Tensor = p(text) ** 0.5
        return row / row.sum()

    for _ in range(what.draws):
        draft = what.mutant.drafting(q, root, dice)
        tokens = what.mutant.rule.verify(draft, Rows(p, root, draft.tree), dice).tokens
        while len(tokens) < _LENGTH:
            tokens = (*tokens, dice.categorical(table(tokens)))
        counts[tokens[:_LENGTH]] += 1
    return counts


def _finding(fit: GoodnessOfFit) -> str:
    """What a fit shows, and how little where it shows nothing."""
    if fit.impossible:
        return f"{fit.impossible} of {fit.draws} draws are of texts that the target never writes"
    if fit.enough is None:
        return "too certain: the target writes one text only; examine it at a higher temperature"
    if fit.seen is None:
        return f"too few draws: {fit.draws} leave nothing to compare; take {fit.enough:,} or more (--draws)"
    return (
        f"p = {fit.p_value:.2g} over {fit.draws} draws in {fit.bins} bins; a bias of total variation {fit.seen:.3f} "
        f"or more is seen with probability {POWER:g}"
    )


def _figures(fit: GoodnessOfFit) -> dict[str, Any]:
    return {**vars(fit), "false_alarm": FALSE_ALARM, "power": POWER}


def _forward_parity(what: Examination) -> Check:
    """(d) Logits of one tree pass against one token after another."""
    claim = "Scoring a whole tree in one pass gives the logits of decoding each of its paths token by token."
    gaps = torch.cat([_parity(what.cache, what.ids(prompt)) for prompt in what.prompts[:4]])
    largest = float(gaps.max())
    limit = {torch.float32: 1e-2, torch.float64: 1e-6}.get(what.cache.dtype)
    quantiles = dict(zip(("50%", "90%", "99%"), gaps.quantile(torch.tensor([0.5, 0.9, 0.99])).tolist(), strict=True))
    figures = {"largest": largest, **quantiles, "bitwise_equal": largest == 0.0, "nodes": len(gaps)}
    finding = "bit for bit equal" if largest == 0 else f"largest difference of a logit {largest:.1e}"
    if limit is None:
        return Check("forward parity", claim, None, f"{finding}; low precision is reported, not judged", figures)
    return Check("forward parity", claim, largest < limit, finding, figures)


_TREE = Tree((0, 0, 0, 0, 0, 0, 0), (-1, 0, 0, 1, 1, 2, 3))


@torch.inference_mode()
def _parity(model: CachedModel, ids: list[int]) -> torch.Tensor:
    """Per node, the largest difference of a logit between the two ways."""
    generator = torch.Generator().manual_seed(len(ids))
    drawn = torch.randint(min(model.vocab_size, 32000), (len(_TREE),), generator=generator).tolist()
    tokens = (ids[-1], *drawn[1:])
    tree, single = object(), object()
    model.read(tree, ids[:-1])
    together = model.extend([tree], [Nodes(tokens, _TREE.parents)])[0].logits.float()
    gaps = []
    for node in range(len(_TREE)):
        model.catch_up(single, ids[:-1])
        for place, step in enumerate((0, *_TREE.path(node))):
            alone = model.extend([single], [Nodes((tokens[step],), (place - 1,))])[0].logits[0].float()
        gaps.append((alone - together[node]).abs().max())
        model.rewind(single, len(ids) - 1)
    for key in (tree, single):
        model.release(key)
    return torch.stack(gaps).cpu()


def _seeded_identity(what: Examination) -> Check:
    """(e) Coupled decoding with a drafter against coupled decoding without one."""
    claim = (
        "With the coupled rule a seed gives the same sampled text with this drafter as with none, but for near ties."
    )
    rule = rule_named("coupled")
    options: dict[str, Any] = {"max_new_tokens": what.tokens, "temperature": what.parameters.temperature or 0.8}
    rows = [what.ids(prompt) for prompt in what.prompts]
    each = [{"seed": seed} for seed in range(len(rows))]
    fast, plain = (
        replace(model, decoder=replace(model.decoder, rule=rule)).generate(rows, each=each, **options)
        for model in (what.model, what.plain)
    )
    same = sum(a.token_ids == b.token_ids for a, b in zip(fast, plain, strict=True))
    # A near tie in the race of a sampled token can flip it, and everything after it; more than a few are no accident.
    passed = len(rows) - same <= len(rows) // 10
    finding = f"{same} of {len(rows)} texts identical"
    return Check("seeded identity", claim, passed, finding, {"identical": same, "texts": len(rows)})


_CHECKS: dict[str, Callable[[Examination], Check]] = {
    "enumeration": _enumeration,
    "greedy identity": _greedy_identity,
    "sampled law": _sampled_law,
    "forward parity": _forward_parity,
    "seeded identity": _seeded_identity,
}


def names() -> Iterator[str]:
    """Of the checks, in order."""
    yield from _CHECKS
