"""The target decodes as transformers' own generate does, whatever is drafted, alone and in a batch."""

import random

import pytest
import torch

from tests.targets.reference import KINDS, fresh_state, largest_difference, plain, state, text, tolerance
from tests.tiny import FAMILIES, WINDOW, tiny_model
from truedraft.core import Session, Target, Tree
from truedraft.errors import PromptError
from truedraft.targets.cached import CachedModel
from truedraft.targets.torch_target import TorchTarget


class Endless:
    """An ending that never comes."""

    room = 10**9

    def push(self, token):
        return None


def session(tokens):
    return Session(list(tokens), sampler=None, dice=None, ending=Endless())


def target(family="llama", attention="sdpa", dtype=torch.float32, **options):
    return TorchTarget(CachedModel(tiny_model(family, attention=attention, dtype=dtype), **options))


def generated(model, prompt, count):
    with torch.inference_mode():
        output = model.generate(
            torch.tensor([prompt]), max_new_tokens=count, min_new_tokens=count, do_sample=False, eos_token_id=None
        )
    return output[0, len(prompt) :].tolist()


def greedy(tree, logits):
    """The path that the target's own choices take through a tree, and the token behind it."""
    path, node = [], 0
    while True:
        token = int(logits[node].argmax())
        child = next((child for child in tree.children[node] if tree.tokens[child] == token), None)
        if child is None:
            return tuple(path), [*(tree.tokens[node] for node in path), token]
        path.append(child)
        node = child


def draft(rng, root, truth):
    """A tree in which random bets stand next to the right one, for as long as luck lasts."""
    tokens, parents, right = [root], [-1], 0
    for token in truth[: rng.randrange(6)]:
        wrong = rng.choices(range(3, 48), k=rng.randrange(3))
        bets = list(dict.fromkeys([*wrong, *([token] if rng.random() < 0.8 else [])]))
        rng.shuffle(bets)
        tokens += bets
        parents += [right] * len(bets)
        if token not in bets:
            break
        right = len(tokens) - len(bets) + bets.index(token)
    return Tree(tuple(tokens), tuple(parents))


def run(chosen, sessions, truths, rng, count):
    """Decode all sessions greedily to `count` tokens, checking every cache after every round."""
    active = list(sessions)
    while active:
        rng.shuffle(active)
        trees = [draft(rng, x.root, truths[x][len(x.output) :]) for x in active]
        paths = []
        for x, tree, scores in zip(active, trees, chosen.score(active, trees, ()), strict=True):
            path, tokens = greedy(tree, scores.logits)
            paths.append(path)
            x.extend(tokens)
        chosen.commit(active, paths)
        for x in active:
            assert chosen.model.cached(x) == len(x.tokens) - 1
        done = [x for x in active if len(x.output) >= count]
        for x in done:
            chosen.release(x)
        active = [x for x in active if x not in done]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("length", [1, WINDOW - 1, WINDOW, WINDOW + 1, 2 * WINDOW])
def test_greedy_decoding_equals_generate(family, attention, length):
    chosen, prompt = target(family, attention), text(length)
    truth = generated(chosen.model.model, prompt, 30)
    x = session(prompt)
    run(chosen, [x], {x: truth}, random.Random(length), 24)
    assert x.output[:24] == truth[:24]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_batch_of_prompts_of_any_length_equals_each_alone(family):
    chosen = target(family, chunk=8)
    prompts = [text(length, seed=length) for length in (1, 7, 8, 9, 17)]
    sessions = [session(prompt) for prompt in prompts]
    truths = {x: generated(chosen.model.model, x.tokens, 30) for x in sessions}
    run(chosen, sessions, truths, random.Random(6), 20)
    assert [x.output[:20] for x in sessions] == [truths[x][:20] for x in sessions]


@pytest.mark.parametrize("family", FAMILIES)
def test_the_cache_after_every_round_is_that_of_a_fresh_prefill(family):
    chosen, rng = target(family, dtype=torch.float64), random.Random(7)
    x = session(text(5))
    for _ in range(12):
        tree = draft(rng, x.root, generated(chosen.model.model, x.tokens, 5))
        (scores,) = chosen.score([x], [tree])
        path, tokens = greedy(tree, scores.logits)
        chosen.commit([x], [path])
        x.extend(tokens)
        assert largest_difference(state(chosen.model, x), fresh_state(chosen.model, x.tokens[:-1])) < 1e-10


@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_low_precision_differs_from_plain_decoding_only_at_near_ties(family):
    chosen, prompt = target(family, dtype=torch.bfloat16), text(9)
    x = session(prompt)
    run(chosen, [x], {x: generated(chosen.model.model, prompt, 40)}, random.Random(8), 32)
    logits = plain(chosen.model.model, x.tokens).float()
    for place, token in enumerate(x.tokens[len(prompt) :], start=len(prompt) - 1):
        gap = logits[place].max() - logits[place, token]
        assert gap <= 32 * torch.finfo(torch.bfloat16).eps * logits[place].abs().max()


def test_features_of_the_prefix_come_with_the_first_pass_only():
    chosen, prompt = target(dtype=torch.float64, chunk=4), text(10)
    x = session(prompt)
    (scores,) = chosen.score([x], [Tree.chain([x.root, 5, 6])], (1, 3))
    hidden = chosen.model.model(torch.tensor([[*prompt, 5, 6]]), output_hidden_states=True).hidden_states
    expected = torch.stack([hidden[1][0], hidden[3][0]], dim=1)
    assert largest_difference([torch.cat([scores.prefix_features, scores.features])], [expected]) < 1e-10
    chosen.commit([x], [(1,)])
    x.extend([5, 9])
    (scores,) = chosen.score([x], [Tree((9,), (-1,))], (1, 3))
    assert scores.prefix_features.shape == (0, 2, chosen.model.hidden_size)
    (scores,) = chosen.score([x], [Tree((9,), (-1,))])
    assert scores.features is None and scores.prefix_features is None


def test_a_pass_that_was_never_committed_leaves_no_trace():
    chosen = target(dtype=torch.float64)
    x = session(text(6))
    chosen.score([x], [Tree((x.root, 5, 6), (-1, 0, 0))])
    (scores,) = chosen.score([x], [Tree.chain([x.root, 7])])
    expected = plain(chosen.model.model, [*x.tokens, 7])[-2:]
    assert largest_difference([scores.logits], [expected]) < tolerance(*KINDS[1])


def test_a_text_that_was_cut_is_followed():
    """A stop string may take back tokens that are committed already."""
    chosen = target(dtype=torch.float64)
    x = session(text(6))
    chosen.score([x], [Tree.chain([x.root, 5, 6])])
    chosen.commit([x], [(1, 2)])
    x.extend([5, 6, 7])
    del x.tokens[7:]
    (scores,) = chosen.score([x], [Tree((x.root,), (-1,))])
    assert largest_difference([scores.logits], [plain(chosen.model.model, x.tokens)[-1:]]) < 1e-10


def test_a_prompt_beyond_the_context_is_refused_and_its_neighbours_go_on():
    chosen = target("gpt2")
    limit = chosen.model.context_length
    good, bad = session(text(4)), session(text(limit + 2))
    with pytest.raises(PromptError, match=f"context of {limit}"):
        chosen.score([good, bad], [Tree((x.root,), (-1,)) for x in (good, bad)])
    chosen.release(bad)
    (scores,) = chosen.score([good], [Tree((good.root,), (-1,))])
    assert torch.allclose(scores.logits, plain(chosen.model.model, good.tokens)[-1:], atol=1e-4)


def test_it_is_a_target():
    assert isinstance(target(), Target)
