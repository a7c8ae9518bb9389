"""Whatever a head says, the text is the target's: by exact enumeration, by greedy identity, by shared noise.

The heads are random and the target is a real network, so the whole way is walked: states tapped from its layers, the
head's own memory, q scattered from a reduced vocabulary, verdict, and states again.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from functools import cache

import pytest
import torch
from torch import Tensor

from tests.drafters.helpers import make
from tests.enumeration import EXACT, outcomes, total_variation
from tests.nets.heads import KINDS, tiny_head
from tests.tiny import FAMILIES, tiny_model
from truedraft.core import Law, Scores, Shape
from truedraft.decode import Decoder
from truedraft.drafters.eagle import EagleDrafter
from truedraft.drafters.medusa import MedusaDrafter
from truedraft.drafters.none import NoDrafter
from truedraft.model import Model
from truedraft.planning.fixed import Fixed
from truedraft.request import Facts
from truedraft.targets.cached import CachedModel
from truedraft.targets.torch_target import TorchTarget
from truedraft.verify.auto import rule_named

FEW, PROMPT, LENGTH = 3, (0, 2), 4
ACCURACIES = ((0.4, 0.3), (0.3, 0.2), (0.2, 0.1), (0.1, 0.1))
PARAMETERS = {"temperature": 1.3, "presence_penalty": 0.4, "vocabulary": FEW}


def drafter_of(kind, model, *, draft=None, dtype=torch.float64, **options):
    net = tiny_head(kind, model, draft=draft, dtype=dtype)
    layers = model.config.num_hidden_layers
    if kind == "medusa":
        return MedusaDrafter(net, layers=layers, **options)
    return EagleDrafter(net, layers=layers, **options)


# ── by enumeration ────────────────────────────────────────────────────────────────────────────────────────────────


class Remembered:
    """A network as the target, every text of which is run once; rows of a session are what it was shown."""

    def __init__(self, model) -> None:
        self._read: dict[object, int] = {}

        @cache
        def run(text: tuple[int, ...]) -> tuple[Tensor, Tensor]:
            """Logits [V] after a text and its last token's states [layers + 1, H]."""
            with torch.inference_mode():
                output = model(torch.tensor([text]), output_hidden_states=True)
            return output.logits[0, -1], torch.stack([states[0, -1] for states in output.hidden_states])

        self.run = run

    def score(self, sessions, trees, taps):
        return [self._score(session, tree, taps) for session, tree in zip(sessions, trees, strict=True)]

    def _score(self, session, tree, taps) -> Scores:
        text, known = tuple(session.tokens), self._read.get(session, 0)
        self._read[session] = len(text)
        words = [tuple(tree.tokens[step] for step in tree.path(node)) for node in range(len(tree))]
        logits, states = zip(*(self.run(text + word) for word in words), strict=True)
        if not taps:
            return Scores(torch.stack(logits))
        prefix = [self.run(text[: place + 1])[1] for place in range(known, len(text) - 1)]
        before = torch.stack(prefix)[:, list(taps)] if prefix else states[0].new_empty(0, len(taps), len(states[0][0]))
        return Scores(torch.stack(logits), torch.stack(states)[:, list(taps)], before)

    def commit(self, sessions, paths):
        for session, path in zip(sessions, paths, strict=True):
            self._read[session] += len(path)

    def release(self, session):
        self._read.pop(session, None)


def law_of(target, drafter, shape, rule="auto") -> dict[tuple[int, ...], float]:
    """The joint law of the text that comes out."""

    def run(dice) -> tuple[int, ...]:
        session = make(PROMPT, **PARAMETERS, max_new_tokens=LENGTH, ignore_eos=True)
        session.dice = dice
        for _ in Decoder(target, drafter, rule_named(rule), Fixed(shape)).run([session]):
            pass
        return tuple(session.output)

    law: dict[tuple[int, ...], float] = defaultdict(float)
    for chance, text in outcomes(run):
        law[text] += chance
    return law


TINY = tiny_model(seed=4, vocab_size=FEW, dtype=torch.float64, num_hidden_layers=3)
TARGET = Remembered(TINY)


@pytest.fixture(scope="module")
def true_law():
    return law_of(TARGET, NoDrafter(), Shape(0))


CASES = {
    "chain, sampled": (Shape.chain(2), None),
    "chain, chosen": (Shape.chain(2), Law.CHOSEN),
    "tree, greedy draft": (Shape.tree(2, 1), None),
    "tree, without replacement": (Shape.tree(2), Law.SAMPLED_WITHOUT_REPLACEMENT),
    "tree, chosen": (Shape.tree(2, 2), Law.CHOSEN),
    "dynamic tree": (Shape(3, 2, 4), None),
}


@pytest.mark.parametrize(("shape", "law"), CASES.values(), ids=CASES)
@pytest.mark.parametrize("draft", [None, 2], ids=["full", "reduced"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_joint_law_is_the_targets(kind, draft, shape, law, true_law):
    drafter = drafter_of(kind, TINY, draft=draft, law=law)
    found = law_of(TARGET, drafter, shape)
    assert sum(found.values()) == pytest.approx(1, abs=1e-12)
    assert total_variation(found, true_law) < EXACT


@pytest.mark.parametrize("rule", ["token", "block", "traversal"])
def test_other_rules_keep_the_law_too(rule, true_law):
    drafter = drafter_of("eagle3", TINY, draft=2, law=Law.SAMPLED)
    assert total_variation(law_of(TARGET, drafter, Shape.chain(2), rule), true_law) < EXACT


def test_measured_trees_keep_the_law(true_law):
    drafter = drafter_of("medusa", TINY, accuracies=ACCURACIES)
    assert total_variation(law_of(TARGET, drafter, Shape(3, 2, 5)), true_law) < EXACT


class Misplaced(EagleDrafter):
    """Hands over a q that it did not draw from: that of the next token id."""

    def propose(self, sessions, shapes):
        drafts = super().propose(sessions, shapes)
        moved = [[None if row is None else row.roll(1) for row in draft.q or ()] for draft in drafts]
        return [replace(draft, q=tuple(q) or None) for draft, q in zip(drafts, moved, strict=True)]


def test_a_q_that_was_not_drawn_from_is_caught(true_law):
    drafter = Misplaced(tiny_head("eagle3", TINY, dtype=torch.float64), layers=3)
    assert total_variation(law_of(TARGET, drafter, Shape.chain(2)), true_law) > 0.01


# ── greedy text, and text with shared noise ───────────────────────────────────────────────────────────────────────

V = 48
PROMPTS = [[3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5], [8, 9, 7], [9], list(range(10, 40))]
SHAPES = [Shape.chain(1), Shape.chain(4), Shape.tree(2, 2, 1), Shape(4, 3, 9), Shape(6, 2, 3), Shape(1, 5, 5)]


def texts(model, drafter, shape, *, rule="auto", batch=1, **options):
    decoder = Decoder(TorchTarget(CachedModel(model)), drafter, rule_named(rule), Fixed(shape))
    results = Model(decoder, Facts(V, 128), batch=batch).generate(PROMPTS, **options)
    return [result.token_ids for result in results], sum(result.statistics.drafted for result in results)


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_greedy_text_is_plain_decodings(kind, shape, batch):
    model = tiny_model(seed=1)
    options = {"each": [{"max_new_tokens": count} for count in (30, 7, 22, 1)], "ignore_eos": True}
    written, drafted = texts(
        model, drafter_of(kind, model, draft=30, dtype=torch.float32), shape, batch=batch, **options
    )
    assert drafted > 0
    assert written == texts(model, NoDrafter(), Shape(0), **options)[0]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("kind", KINDS)
def test_greedy_text_of_every_family_is_plain_decodings(kind, family):
    model = tiny_model(family, seed=1)
    drafter = drafter_of(kind, model, draft=30, dtype=torch.float32)
    options = {"max_new_tokens": 24, "batch": 2, "ignore_eos": True}
    assert texts(model, drafter, Shape(3, 2, 5), **options)[0] == texts(model, NoDrafter(), Shape(0), **options)[0]


@pytest.mark.parametrize(
    "settings", [{"repetition_penalty": 1.5}, {"logit_bias": {7: 3.0}}, {"min_new_tokens": 9}], ids=str
)
@pytest.mark.parametrize("kind", KINDS)
def test_greedy_text_under_parameters_is_plain_decodings(kind, settings):
    model = tiny_model(seed=1)
    options = {"max_new_tokens": 20, **settings}
    for shape in (Shape.chain(3), Shape(3, 2, 6)):
        drafter = drafter_of(kind, model, draft=30, dtype=torch.float32)
        assert texts(model, drafter, shape, **options)[0] == texts(model, NoDrafter(), Shape(0), **options)[0]


@pytest.mark.parametrize("shape", [Shape.chain(3), Shape.tree(2, 2), Shape(3, 2, 6)], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_seeded_text_with_shared_noise_does_not_depend_on_the_head(kind, shape):
    model = tiny_model(seed=1)
    options = {"temperature": 0.9, "top_p": 0.95, "max_new_tokens": 20, "rule": "coupled"}
    options["each"] = [{"seed": seed} for seed in range(len(PROMPTS))]
    plain = texts(model, NoDrafter(), Shape(0), **options)[0]
    for law in (Law.CHOSEN, Law.COUPLED):
        drafter = drafter_of(kind, model, draft=30, dtype=torch.float32, law=law)
        written, drafted = texts(model, drafter, shape, batch=2, **options)
        assert written == plain and drafted > 0


@pytest.mark.parametrize("shape", [Shape.chain(3), Shape.tree(2, 2), Shape(3, 2, 6)], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_a_seeded_text_does_not_depend_on_its_neighbours(kind, shape):
    model = tiny_model(seed=1, dtype=torch.float64)
    options = {"temperature": 0.9, "max_new_tokens": 20, "seed": 5}
    together = texts(model, drafter_of(kind, model, draft=30), shape, batch=4, **options)[0]
    assert together == texts(model, drafter_of(kind, model, draft=30), shape, **options)[0]
