"""Medusa's heads as drafters: which tree is best, what the heads say, which state they read."""

from __future__ import annotations

import itertools

import pytest
import torch

from tests.drafters.helpers import assert_within, make, words
from tests.drafters.test_eagle import GREEDY, LAYERS, MODEL, PROMPTS, SAMPLED, Play, V, word_of
from tests.nets.heads import tiny_head
from tests.tiny import tiny_model
from truedraft.core import Draft, Drafter, Law, Shape, Tree, Verdict
from truedraft.drafters.bets import Bettor
from truedraft.drafters.medusa import MedusaDrafter, best_tree, measure
from truedraft.errors import ParameterError
from truedraft.targets.cached import CachedModel
from truedraft.targets.torch_target import TorchTarget

ACCURACIES = ((0.5, 0.2, 0.1), (0.3, 0.15, 0.05), (0.2, 0.1, 0.02), (0.1, 0.05, 0.01))


def head(**changes):
    return tiny_head("medusa", MODEL, **{"draft": 30, "dtype": torch.float64, **changes})


def drafter_of(**options) -> MedusaDrafter:
    return MedusaDrafter(head(), layers=LAYERS, **options)


def said(text) -> torch.Tensor:
    """Logits [K, V] of all heads for a text whose last token the target has not read."""
    net = head()
    states = MODEL(torch.tensor([list(text[:-1])]), output_hidden_states=True).hidden_states
    return net.vocabulary.scatter(net.logits(net(states[-1][0, -1][None])))


# ── the tree ──────────────────────────────────────────────────────────────────────────────────────────────────────


def rank_paths(tree: Tree) -> set[tuple[int, ...]]:
    return words(Draft(tree))


@pytest.mark.parametrize(
    "shape", [Shape.chain(3), Shape(4, 3, 7), Shape(3, 2, 5), Shape(2, 3, 12), Shape(4, 3, 60)], ids=str
)
def test_the_best_tree_is_the_one_brute_force_finds(shape):
    chances = {}
    for depth in range(1, shape.depth + 1):
        for path in itertools.product(range(shape.width), repeat=depth):
            chances[path] = torch.tensor([ACCURACIES[level][rank] for level, rank in enumerate(path)]).prod().item()
    best = sorted(chances, key=chances.__getitem__, reverse=True)[: shape.nodes]
    found = rank_paths(best_tree(ACCURACIES, shape).draft.tree)
    assert len(found) == len(best)
    assert sum(chances[path] for path in found) == pytest.approx(sum(chances[path] for path in best))


def test_other_measurements_give_another_tree():
    sure_late = ((0.5, 0.4, 0.3), (0.9, 0.01, 0.01), (0.9, 0.01, 0.01), (0.9, 0.01, 0.01))
    sure_early = ((0.9, 0.01, 0.01), (0.5, 0.4, 0.3), (0.1, 0.09, 0.08), (0.1, 0.09, 0.08))
    late, early = (rank_paths(best_tree(each, Shape(4, 3, 8)).draft.tree) for each in (sure_late, sure_early))
    assert (0, 0, 0, 0) in late and (1, 0, 0) in late
    assert (0, 2) in early and (1,) not in early


def test_a_branching_is_filled():
    tree = best_tree(ACCURACIES, Shape.tree(3, 2, 1)).draft.tree
    assert [len(tree.children[node]) for node in range(len(tree))] == [
        (3, 2, 1, 0)[tree.depth[node]] for node in range(len(tree))
    ]


def test_guesses_that_were_never_right_get_no_node():
    assert rank_paths(best_tree(((0.5, 0.0), (0.4, 0.0)), Shape(2, 2, 6)).draft.tree) == {(0,), (0, 0)}


def test_accuracies_count_the_guesses_of_every_head():
    texts = [([5, 7, 9, 11, 3, 8, 1, 4, 30], 3), (list(range(10, 30)), 1)]
    found = measure(head(), CachedModel(MODEL), texts, width=5)
    hits, tried = torch.zeros(4, 5), torch.zeros(4)
    for tokens, start in texts:
        for root in range(start, len(tokens)):  # the target has read what stands before it
            ranked = said(tokens[: root + 1]).topk(5).indices
            for ahead in range(4):
                if root + 1 + ahead < len(tokens):
                    tried[ahead] += 1
                    hits[ahead] += ranked[ahead] == tokens[root + 1 + ahead]
    assert torch.allclose(torch.tensor(found), hits / tried[:, None])
    assert hits.sum() > 0
    with pytest.raises(ParameterError, match="head 4"):
        measure(head(), CachedModel(MODEL), [([5, 7, 9], 2)])


# ── drafts ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("accuracies", [None, ACCURACIES], ids=["own", "measured"])
@pytest.mark.parametrize("shape", [Shape.chain(4), Shape.tree(2, 2, 1), Shape(4, 3, 9), Shape(9, 2, 6)], ids=str)
@pytest.mark.parametrize("temperature", [0, 1])
def test_chosen_children_are_what_the_heads_say(accuracies, shape, temperature):
    play = Play(drafter_of(accuracies=accuracies, law=Law.CHOSEN))
    sessions = [make(prompt, **GREEDY, temperature=temperature) for prompt in PROMPTS]
    for round_ in range(4):
        texts = [list(session.tokens) for session in sessions]
        drafts = play.round(sessions, [shape] * 4)
        assert all((len(draft) > 0) == (round_ > 0) for draft in drafts)
        for text, draft in zip(texts, drafts, strict=True):
            assert draft.law is Law.CHOSEN
            if len(draft):
                shares, ranks = said(text).softmax(-1).topk(3)
                chances = accuracies or tuple(map(tuple, shares.tolist()))
                wanted = best_tree(tuple(row[: shape.width] for row in chances), shape.clip(4)).draft.tree
                assert draft.tree.parents == wanted.parents
                for node in range(1, len(draft.tree)):
                    assert draft.tree.tokens[node] == int(ranks[draft.tree.depth[node] - 1, wanted.tokens[node]])


def test_a_bet_is_the_draft_with_the_chances_of_its_paths():
    play, session, shape = Play(drafter_of(accuracies=ACCURACIES)), make(PROMPTS[0], **GREEDY), Shape(4, 3, 9)
    assert isinstance(play.drafter, Bettor)
    assert len(play.drafter.bet(session, shape).draft) == 0
    play.round([session], [shape])
    bet, draft = play.drafter.bet(session, shape), play.drafter.propose([session], [shape])[0]
    assert bet.draft.tree == draft.tree
    ranks = best_tree(ACCURACIES, shape).draft.tree
    for node in range(1, len(ranks)):
        rates = [ACCURACIES[level][ranks.tokens[step]] for level, step in enumerate(ranks.path(node))]
        assert bet.chances[node] == pytest.approx(torch.tensor(rates).prod().item())


@pytest.mark.parametrize("law", [Law.SAMPLED, Law.SAMPLED_WITHOUT_REPLACEMENT, Law.GREEDY_DRAFT])
@pytest.mark.parametrize("shape", [Shape.chain(4), Shape.tree(2, 2, 1)], ids=str)
def test_q_is_the_sessions_distribution_of_what_the_heads_say(law, shape):
    play = Play(drafter_of(law=law))
    sessions = [make(prompt, **SAMPLED, seed=seed) for seed, prompt in enumerate(PROMPTS)]
    for _ in range(3):
        before = [make(session.tokens, **SAMPLED) for session in sessions]
        drafts = play.round(sessions, [shape] * 4)
        for session, draft in zip(before, drafts, strict=True):
            assert_within(draft, session, shape)
            for node, children in enumerate(draft.tree.children):
                if children:
                    logits = said(session.tokens)[draft.tree.depth[node]]
                    q = session.sampler.branch([*session.tokens, *word_of(draft, node)]).distribution(logits)
                    assert torch.allclose(draft.q[node], q, atol=1e-9)
    assert all(len(draft) > 0 for draft in drafts)


@pytest.mark.parametrize(
    ("settings", "shape", "law"),
    [
        (GREEDY, Shape.chain(3), Law.CHOSEN),
        (SAMPLED, Shape.chain(3), Law.SAMPLED),
        (SAMPLED, Shape.tree(2, 2), Law.GREEDY_DRAFT),
        (SAMPLED, Shape(4, 2, 8), Law.CHOSEN),
    ],
    ids=str,
)
def test_the_law_follows_session_and_shape(settings, shape, law):
    play, session = Play(drafter_of()), make(PROMPTS[0], **settings)
    assert isinstance(play.drafter, Drafter)
    assert len(play.round([session], [shape])[0]) == 0
    assert play.round([session], [shape])[0].law is law


@pytest.mark.parametrize("heads", [1, 2, 3, 5])
def test_any_number_of_heads(heads):
    net = tiny_head("medusa", MODEL, draft=30, dtype=torch.float64, heads=heads)
    play, session = Play(MedusaDrafter(net, layers=LAYERS)), make(PROMPTS[0], **GREEDY)
    play.round([session], [Shape.chain(9)])
    assert [len(play.round([session], [Shape.chain(9)])[0]) for _ in range(2)] == [heads, heads]
    assert len(play.round([session], [Shape(9, 40, 200)])[0]) == (30 if heads == 1 else 200)


def test_states_of_a_round_that_another_drafter_drafted_are_taken_in():
    play, session = Play(drafter_of()), make(PROMPTS[0], **GREEDY)
    tree = Tree((session.root, 4, 5, 6), (-1, 0, 0, 2))
    scores = play.target.score([session], [tree], play.drafter.taps)
    verdict = Verdict((2, 3), (5, 6, 7))
    session.extend(verdict.tokens)
    play.drafter.observe([session], [verdict], scores)
    draft = play.drafter.propose([session], [Shape.chain(4)])[0]
    assert list(draft.tree.tokens[1:]) == said(session.tokens).argmax(-1).tolist()


def test_an_edited_text_is_not_drafted_for_until_it_was_read():
    play, session = Play(drafter_of()), make(PROMPTS[3], **GREEDY)
    for _ in range(2):
        play.round([session], [Shape.chain(3)])
    session.tokens[5] = 3
    assert len(play.drafter.propose([session], [Shape.chain(3)])[0]) == 0
    play.round([session], [Shape.chain(3)])
    assert len(play.drafter.propose([session], [Shape.chain(3)])[0]) == 3
    play.drafter.release(session)
    assert len(play.drafter.propose([session], [Shape.chain(3)])[0]) == 0


@pytest.mark.parametrize("wrong", [[[1.5]], [[-0.1]], [[]]], ids=str)
def test_accuracies_are_checked(wrong):
    with pytest.raises(ParameterError, match="accuracies"):
        drafter_of(accuracies=wrong)


def test_fewer_heads_are_used_than_there_are_if_only_they_were_measured():
    play, session = Play(drafter_of(accuracies=ACCURACIES[:2])), make(PROMPTS[0], **GREEDY)
    play.round([session], [Shape.chain(4)])
    assert len(play.round([session], [Shape.chain(4)])[0]) == 2


@pytest.mark.parametrize("one_output", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_packed_layers_draft_what_plain_ones_do(one_output, dtype):
    model = tiny_model(seed=1)
    nets = [tiny_head("medusa", model, draft=30, dtype=each, one_output=one_output) for each in (dtype, torch.float64)]
    drafts = []
    for net in nets:
        target = TorchTarget(CachedModel(model.to(torch.float32)))
        play, session = Play(MedusaDrafter(net, layers=LAYERS), target=target), make(PROMPTS[0], **SAMPLED)
        play.round([session], [Shape.chain(2)])
        drafts.append(play.drafter.propose([session], [Shape.chain(1)])[0])
    assert torch.allclose(drafts[0].q[0].double(), drafts[1].q[0], atol=1e-3 if dtype is torch.float32 else 0.3)
    assert len(drafts[0].q[0]) == V
