"""A model as drafter, on tiny random models: its q, its cache, its limits, and whole texts."""

from __future__ import annotations

import gc
import random
import weakref

import pytest
import torch

from tests.drafters.helpers import assert_within, make
from tests.tiny import tiny_model
from truedraft.core import Draft, Drafter, Law, Session, Shape, Verdict
from truedraft.decode import Decoder
from truedraft.drafters.model import ModelDrafter
from truedraft.errors import OutOfMemoryError, ParameterError
from truedraft.model import Model
from truedraft.planning.fixed import Fixed
from truedraft.request import Facts
from truedraft.targets.cached import CachedModel, Nodes
from truedraft.targets.torch_target import TorchTarget
from truedraft.verify import greedy_draft, target_only, token, traversal
from truedraft.verify.auto import rule_named

V = 48
TARGET = tiny_model(seed=1, dtype=torch.float64)
SMALL = tiny_model("qwen2", seed=2, dtype=torch.float64, num_hidden_layers=2)
SAMPLED = {"temperature": 0.8, "top_k": 12, "repetition_penalty": 1.3, "vocabulary": V}
GREEDY = {"vocabulary": V}
PROMPTS = [[3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5], [8, 9, 7], [9], list(range(10, 40))]
SHAPES = [Shape.chain(1), Shape.chain(4), Shape.tree(2, 2, 1), Shape.tree(3, 1), Shape(4, 3, 9), Shape(5, 2, 3)]


def logits_after(model, tokens) -> torch.Tensor:
    """Logits [n, V] after every token, from one fresh pass."""
    return model(torch.tensor([list(tokens)])).logits[0]


def drafter_of(model=SMALL, **options) -> ModelDrafter:
    return ModelDrafter(CachedModel(model), **{"vocabulary": V, **options})


def word_of(draft: Draft, node: int) -> list[int]:
    return [draft.tree.tokens[step] for step in draft.tree.path(node)]


def decoder_of(drafter, shape, rule=target_only.RULE) -> Decoder:
    return Decoder(TorchTarget(CachedModel(TARGET)), drafter, rule, Fixed(shape))


def generate(drafter, shape, prompts, *, rule=target_only.RULE, batch=1, known=V, **parameters):
    decoder = decoder_of(drafter, shape, rule)
    return Model(decoder, Facts(vocabulary=known, context_length=128), batch=batch).generate(prompts, **parameters)


def texts(results):
    return [result.token_ids for result in results]


def plain(prompts, **parameters):
    """The texts of plain decoding, one prompt after the other."""
    return texts(generate(drafter_of(), Shape(0), prompts, **parameters))


# ── drafts ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("law", [Law.SAMPLED, Law.SAMPLED_WITHOUT_REPLACEMENT, Law.GREEDY_DRAFT])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_q_is_the_sessions_distribution_after_each_node(law, shape):
    sessions = [make(prompt, **SAMPLED, seed=seed) for seed, prompt in enumerate(PROMPTS)]
    for session, draft in zip(sessions, drafter_of(law=law).propose(sessions, [shape] * 4), strict=True):
        assert draft.law is law and len(draft) > 0
        assert_within(draft, session, shape)
        for node, children in enumerate(draft.tree.children):
            assert (draft.q[node] is not None) == bool(children)
            if children:
                text = [*session.tokens, *word_of(draft, node)]
                q = session.sampler.branch(text).distribution(logits_after(SMALL, text)[-1])
                assert torch.allclose(draft.q[node], q, atol=1e-9)
                assert all(q[draft.tree.tokens[child]] > 0 for child in children)


@pytest.mark.parametrize(
    ("settings", "shape", "law"),
    [
        (GREEDY, Shape.chain(3), Law.CHOSEN),
        (GREEDY, Shape.tree(2, 2), Law.CHOSEN),
        ({**SAMPLED, "top_k": 1}, Shape.tree(2, 2), Law.CHOSEN),
        (SAMPLED, Shape.chain(3), Law.SAMPLED),
        (SAMPLED, Shape.tree(2, 2), Law.GREEDY_DRAFT),
        (SAMPLED, Shape(4, 2, 8), Law.GREEDY_DRAFT),
        ({**SAMPLED, "top_p": 0.1}, Shape.tree(2, 2), Law.GREEDY_DRAFT),
    ],
    ids=str,
)
def test_the_law_follows_the_session(settings, shape, law):
    drafter, session = drafter_of(), make(PROMPTS[0], **settings)
    assert isinstance(drafter, Drafter)
    assert drafter.propose([session], [shape])[0].law is law


def test_a_mixed_batch_gives_each_session_its_own():
    settings = [GREEDY, SAMPLED, SAMPLED, GREEDY]
    shapes = [Shape.chain(2), Shape(0), Shape.tree(2, 1), Shape(3, 2, 5)]
    sessions = [make(prompt, **own) for prompt, own in zip(PROMPTS, settings, strict=True)]
    drafts = drafter_of().propose(sessions, shapes)
    alone = [
        drafter_of().propose([make(prompt, **own)], [shape])[0]
        for prompt, own, shape in zip(PROMPTS, settings, shapes, strict=True)
    ]
    assert [draft.tree for draft in drafts] == [draft.tree for draft in alone]
    assert [len(draft) > 0 for draft in drafts] == [True, False, True, True]


@pytest.mark.parametrize("shape", [Shape.chain(4), Shape.tree(2, 2, 1), Shape(4, 3, 9)], ids=str)
def test_the_target_drafting_for_itself_is_always_accepted(shape):
    decoder = decoder_of(drafter_of(TARGET), shape)
    session = make(PROMPTS[0], max_new_tokens=41, **GREEDY)
    records = [record for step in decoder.run([session]) for _, record in step]
    assert sum(len(record.draft) > 0 for record in records) >= len(records) - 1
    assert not any(record.draft.tree.children[record.verdict.last] for record in records)
    if shape.nodes != 9:  # a tree of the likeliest nodes may spend them beside its first choices
        assert [record.accepted for record in records] == [max(record.draft.tree.depth) for record in records]


def test_levels_of_all_sessions_share_their_passes(monkeypatch):
    passes = []
    extend = CachedModel.extend

    def counted(self, keys, nodes, taps=()):
        passes.append([len(new.tokens) for new in nodes])
        return extend(self, keys, nodes, taps)

    drafter = drafter_of()
    monkeypatch.setattr(CachedModel, "extend", counted)
    sessions = [make(prompt, **GREEDY) for prompt in PROMPTS]
    drafter.propose(sessions, [Shape.chain(3), Shape.chain(1), Shape.tree(2, 2), Shape.chain(2)])
    # The third prompt is its root alone; the second runs its two other tokens with its root.
    assert passes == [[1, 3, 1, 1], [1, 2, 1], [1]]


# ── the cache ─────────────────────────────────────────────────────────────────────────────────────────────────────


def random_verdict(draft: Draft, dice: random.Random) -> Verdict:
    """A walk down the tree that stops anywhere, and any token more."""
    path: list[int] = []
    while (children := draft.tree.children[path[-1] if path else 0]) and dice.random() < 0.7:
        path.append(dice.choice(children))
    return Verdict(tuple(path), (*(draft.tree.tokens[node] for node in path), dice.randrange(V)))


KINDS = [
    (Law.SAMPLED, Shape.chain(4)),
    (Law.SAMPLED, Shape.tree(2, 2)),
    (Law.GREEDY_DRAFT, Shape.tree(3, 2, 1)),
    (Law.CHOSEN, Shape(4, 3, 8)),
]


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize(("law", "shape"), KINDS, ids=str)
def test_the_cache_is_that_of_a_fresh_reading_after_every_round(batch, law, shape):
    dice, cache = random.Random(batch), CachedModel(SMALL)
    drafter = ModelDrafter(cache, vocabulary=V, law=law)
    sessions = [make(prompt, **SAMPLED, max_new_tokens=1000, seed=seed) for seed, prompt in enumerate(PROMPTS[:batch])]
    for round_ in range(50):
        going = sessions if round_ % 5 else sessions[: 1 + round_ % batch]
        for session in [session for session in going if len(session.tokens) > 100]:
            del session.tokens[20:]  # an edited history, so that the context lasts
        drafts = drafter.propose(going, [shape] * len(going))
        verdicts = [random_verdict(draft, dice) for draft in drafts]
        for session, verdict in zip(going, verdicts, strict=True):
            session.extend(verdict.tokens)
        drafter.observe(going, verdicts, [])
        for session, verdict in zip(going, verdicts, strict=True):
            known = cache.cached(session)
            assert len(session.tokens) - 1 - known == (len(verdict.path) == shape.depth)  # the deepest is never run
            check_row(cache, session, known)


def check_row(cache: CachedModel, session: Session, known: int) -> None:
    scores = cache.extend([session], [Nodes.chain(session.tokens[known:])])[0]
    assert torch.allclose(scores.logits, logits_after(SMALL, session.tokens)[known:], atol=1e-9)
    cache.rewind(session, known)


def test_a_round_that_nobody_decided_leaves_nothing_behind():
    drafter, session = drafter_of(law=Law.CHOSEN), make(PROMPTS[0], **GREEDY)
    first = drafter.propose([session], [Shape.tree(2, 2)])[0]
    assert drafter.propose([session], [Shape.tree(2, 2)])[0].tree == first.tree


def test_an_edited_text_is_drafted_for_as_it_is_now():
    drafter, session = drafter_of(), make(PROMPTS[3], **GREEDY)
    drafter.propose([session], [Shape.chain(3)])
    session.tokens[5] = 3
    del session.tokens[20:]
    edited = drafter.propose([session], [Shape.chain(3)])[0]
    assert edited.tree == drafter_of().propose([make(session.tokens, **GREEDY)], [Shape.chain(3)])[0].tree


def test_memory_that_a_text_would_lack_is_missed_before_it_begins():
    cache = CachedModel(SMALL, available=lambda device: 60_000)
    drafter = ModelDrafter(cache, vocabulary=V)
    with pytest.raises(OutOfMemoryError):
        drafter.propose([make(PROMPTS[0], **GREEDY, max_new_tokens=10_000)], [Shape.chain(2)])
    assert len(drafter.propose([make(PROMPTS[0], **GREEDY, max_new_tokens=10)], [Shape.chain(2)])[0]) == 2


def test_release_frees_the_row_and_the_session():
    cache = CachedModel(SMALL)
    drafter = ModelDrafter(cache, vocabulary=V)
    session, other = make(PROMPTS[0], **GREEDY), make(PROMPTS[1], **GREEDY)
    drafter.release(session)
    drafter.propose([session, other], [Shape.chain(2)] * 2)
    drafter.release(session)
    assert cache.cached(session) == 0
    gone = weakref.ref(session)
    del session
    gc.collect()
    assert gone() is None


def test_sessions_of_a_run_leave_nothing_behind():
    cache = CachedModel(SMALL)
    decoder = decoder_of(ModelDrafter(cache, vocabulary=V), Shape.chain(3))
    sessions = [make(prompt, **GREEDY, max_new_tokens=5 + 7 * place) for place, prompt in enumerate(PROMPTS)]
    alive = weakref.WeakSet(sessions)
    lengths = [len(prompt) + 5 + 7 * place for place, prompt in enumerate(PROMPTS)]
    for _ in decoder.run(sessions, batch=3):
        pass
    assert [len(session.tokens) for session in sessions] == lengths
    assert [cache.cached(session) for session in sessions] == [0] * 4
    sessions.clear()
    del _
    gc.collect()
    assert not alive


# ── other vocabularies, shorter contexts ──────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("ours", "theirs"), [(40, 32), (32, 40)])
@pytest.mark.parametrize("settings", [{}, {"temperature": 1.2}], ids=["greedy", "sampled"])
@pytest.mark.parametrize("shape", [Shape.chain(3), Shape.tree(3, 2), Shape(3, 3, 8)], ids=str)
def test_padded_sizes_may_differ(ours, theirs, settings, shape):
    known = 30
    target = tiny_model(seed=1, dtype=torch.float64, vocab_size=ours)
    small = tiny_model("qwen2", seed=2, dtype=torch.float64, vocab_size=theirs)

    def run(shape):
        drafter = ModelDrafter(CachedModel(small), vocabulary=ours)
        decoder = Decoder(TorchTarget(CachedModel(target)), drafter, rule, Fixed(shape), trace=True)
        stream = Model(decoder, Facts(vocabulary=known), batch=2).stream(
            [[5, 7, 9], [1]], max_new_tokens=25, seed=3, **settings
        )
        return [chunk.round for chunk in stream], texts(stream.results)

    rule = rule_named("auto")
    rounds, written = run(shape)
    assert max(max(text) for text in written) < known
    for record in rounds:
        for row in record.draft.q or ():
            assert row is None or (
                len(row) == ours and float(row[known:].sum()) == 0 and abs(float(row.sum()) - 1) < 1e-6
            )
    if not settings:
        assert written == run(Shape(0))[1]


def test_a_token_beyond_the_drafters_vocabulary_does_not_stop_it():
    drafter = drafter_of(tiny_model("qwen2", seed=2, dtype=torch.float64, vocab_size=32), vocabulary=V)
    prompts = [[5, 40, 7], [40], [5, 7, 40]]
    drafts = drafter.propose([make(prompt, vocabulary=V, temperature=1) for prompt in prompts], [Shape.chain(3)] * 3)
    assert [len(draft) for draft in drafts] == [3, 3, 3]
    assert not any(row[32:].any() for draft in drafts for row in draft.q if row is not None)


@pytest.mark.parametrize("length", [31, 32, 33, 100])
@pytest.mark.parametrize("shape", [Shape.chain(4), Shape.tree(2, 2, 1)], ids=str)
def test_past_its_context_it_falls_silent_and_the_text_goes_on(length, shape):
    prompts = [[(7 * place + length) % V for place in range(length)], [4, 2]]
    cache = CachedModel(tiny_model("qwen2", seed=2, dtype=torch.float64, max_position_embeddings=32))
    drafter = ModelDrafter(cache, vocabulary=V)
    options = {"batch": 2, "max_new_tokens": 40, "ignore_eos": True}
    drafted = generate(drafter, shape, prompts, **options)
    assert texts(drafted) == plain(prompts, **options)
    assert [len(result.token_ids) for result in drafted] == [min(40, 128 - length), 40]
    assert (drafted[0].statistics.drafted > 0) == (length <= 32)


def test_it_drafts_up_to_the_last_position_it_can_read():
    cache = CachedModel(tiny_model("qwen2", seed=2, dtype=torch.float64, max_position_embeddings=32))
    drafter = ModelDrafter(cache, vocabulary=V)
    depths = []
    for length in (28, 29, 30, 31, 32, 33):
        session = make(range(length), **GREEDY)
        depths.append(len(drafter.propose([session], [Shape.chain(4)])[0]))
    assert depths == [4, 4, 3, 2, 1, 0]


def test_past_its_context_a_sessions_memory_is_freed():
    cache = CachedModel(tiny_model("qwen2", seed=2, dtype=torch.float64, max_position_embeddings=32))
    drafter, session = ModelDrafter(cache, vocabulary=V), make(range(32), **GREEDY)
    drafter.propose([session], [Shape.chain(4)])
    assert cache.cached(session) == 31
    session.tokens += [1, 2, 3]
    drafter.propose([session], [Shape(0)])
    drafter.propose([session], [Shape.chain(4)])
    assert cache.cached(session) == 0


# ── whole texts ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("settings", [{}, {"repetition_penalty": 1.5, "frequency_penalty": 0.7}], ids=["", "penalties"])
def test_greedy_text_is_plain_decodings(shape, batch, settings):
    settings = {**settings, "each": [{"max_new_tokens": count} for count in (30, 7, 22, 1)]}
    assert texts(generate(drafter_of(), shape, PROMPTS, batch=batch, **settings)) == plain(PROMPTS, **settings)


SEEDED = {
    "token-chain": (token.RULE, None, Shape.chain(3)),
    "traversal": (traversal.RULE, Law.SAMPLED_WITHOUT_REPLACEMENT, Shape.tree(2, 2)),
    "greedy-draft": (greedy_draft.RULE, None, Shape.tree(3, 1)),
    "likeliest": (target_only.RULE, Law.CHOSEN, Shape(3, 3, 8)),
}


@pytest.mark.parametrize(("rule", "law", "shape"), SEEDED.values(), ids=SEEDED)
def test_a_seeded_text_does_not_depend_on_its_neighbours(rule, law, shape):
    options = {"temperature": 0.9, "max_new_tokens": 20, "seed": 5}
    together = generate(drafter_of(law=law), shape, PROMPTS, rule=rule, batch=4, **options)
    alone = [generate(drafter_of(law=law), shape, prompt, rule=rule, **options) for prompt in PROMPTS]
    assert texts(together) == texts(alone)


@pytest.mark.parametrize("wrong", [{"confidence": 1.0}, {"confidence": -0.5}], ids=str)
def test_parameters_are_checked(wrong):
    with pytest.raises(ParameterError, match=next(iter(wrong))):
        drafter_of(**wrong)
