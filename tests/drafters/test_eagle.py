"""EAGLE heads as drafters, on tiny random models: what they say at every node, their memory, their limits."""

from __future__ import annotations

import gc
import random
import weakref

import pytest
import torch
from torch import Tensor

from tests.drafters.helpers import assert_within, make
from tests.nets.heads import tiny_head
from tests.tiny import tiny_model
from truedraft.core import Draft, Drafter, Law, Session, Shape, Tree, Verdict
from truedraft.decode import Decoder
from truedraft.drafters.bets import Bettor
from truedraft.drafters.eagle import EagleDrafter
from truedraft.drafters.none import NoDrafter
from truedraft.drafters.pass_cost import PassCost
from truedraft.errors import ParameterError
from truedraft.nets.attention import Causal
from truedraft.planning.fixed import Fixed
from truedraft.targets.cached import CachedModel
from truedraft.targets.kernels import why_not
from truedraft.targets.torch_target import TorchTarget
from truedraft.verify.auto import rule_named

V, LAYERS = 48, 3
MODEL = tiny_model(seed=1, dtype=torch.float64)
SAMPLED = {"temperature": 0.8, "top_k": 12, "repetition_penalty": 1.3, "vocabulary": V}
GREEDY = {"vocabulary": V}
PROMPTS = [[3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5], [8, 9, 7], [9], list(range(10, 40))]
SHAPES = [Shape.chain(1), Shape.chain(4), Shape.tree(2, 2, 1), Shape.tree(3, 1), Shape(4, 3, 9), Shape(5, 2, 3)]
KINDS = ["eagle1", "eagle3"]

each_kind = pytest.mark.parametrize("kind", KINDS)


def head(kind, *, draft=30, dtype=torch.float64, **changes):
    return tiny_head(kind, MODEL, draft=draft, dtype=dtype, **changes)


def drafter_of(kind, *, draft=30, **options) -> EagleDrafter:
    return EagleDrafter(head(kind, draft=draft), layers=LAYERS, **options)


def states_of(kind, tokens) -> Tensor:
    """The target's tapped states [1, n, T, H] of a text, from one fresh pass."""
    states = MODEL(torch.tensor([list(tokens)]), output_hidden_states=True).hidden_states
    return torch.stack([states[tap] for tap in head(kind).taps(LAYERS)], dim=-2)


def said(kind, text, word, *, draft=30) -> Tensor:
    """Logits [V] after a drafted word: true states for the text but its last token, then the head's own outputs."""
    net = head(kind, draft=draft)
    states, tokens = net.fuse(states_of(kind, text[:-1])), [*text[1:], *word]
    for step in range(len(word) + 1):
        count = len(text) - 1 + step
        out = net(states, torch.tensor([tokens[:count]]), torch.arange(count)[None], Causal())
        states = torch.cat((states, out[:, -1:]), dim=1)
    return net.vocabulary.scatter(net.logits(out[0, -1]))


def word_of(draft: Draft, node: int) -> list[int]:
    return [draft.tree.tokens[step] for step in draft.tree.path(node)]


class Play:
    """A target and a drafter at work, with verdicts that are anything at all."""

    def __init__(self, drafter, seed=0, target=None):
        self.target, self.drafter = target or TorchTarget(CachedModel(MODEL)), drafter
        self.dice = random.Random(seed)

    def round(self, sessions, shapes) -> list[Draft]:
        drafts = self.drafter.propose(sessions, shapes)
        scores = self.target.score(sessions, [draft.tree for draft in drafts], self.drafter.taps)
        verdicts = [self._verdict(draft) for draft in drafts]
        self.target.commit(sessions, [verdict.path for verdict in verdicts])
        for session, verdict in zip(sessions, verdicts, strict=True):
            session.extend(verdict.tokens)
        self.drafter.observe(sessions, verdicts, scores)
        return drafts

    def _verdict(self, draft: Draft) -> Verdict:
        path: list[int] = []
        while (children := draft.tree.children[path[-1] if path else 0]) and self.dice.random() < 0.7:
            path.append(self.dice.choice(children))
        return Verdict(tuple(path), (*(draft.tree.tokens[node] for node in path), self.dice.randrange(V)))


def check_memory(kind, drafter: EagleDrafter, session: Session, begin: int = 0) -> None:
    """Keys, values and outputs are those of the committed text and the target's true states, and of nothing else."""
    drafter.propose([session], [Shape.chain(1)])
    row, fresh = drafter._rows[session], drafter_of(kind)
    text = session.tokens
    assert (row.begin, row.length, row.tokens) == (begin, len(text) - 1 - begin, text[begin:])
    fresh._take(session, begin, states_of(kind, text[:-1])[0][begin:])
    fresh.propose([session], [Shape.chain(1)])
    again = fresh._rows[session]
    for mine, true in ((row.keys, again.keys), (row.values, again.values)):
        assert torch.allclose(mine[:, : row.length], true[:, : row.length], atol=1e-9)
    assert torch.allclose(row.output, again.output, atol=1e-9)


# ── drafts ────────────────────────────────────────────────────────────────────────────────────────────────────────


@each_kind
@pytest.mark.parametrize("law", [Law.SAMPLED, Law.SAMPLED_WITHOUT_REPLACEMENT, Law.GREEDY_DRAFT])
@pytest.mark.parametrize("shape", SHAPES[1:5], ids=str)
def test_q_is_the_sessions_distribution_of_what_the_head_says(kind, law, shape):
    play = Play(drafter_of(kind, law=law))
    sessions = [make(prompt, **SAMPLED, seed=seed) for seed, prompt in enumerate(PROMPTS)]
    for round_ in range(3):
        before = [make(session.tokens, **SAMPLED) for session in sessions]
        drafts = play.round(sessions, [shape] * len(sessions))
        assert all((len(draft) > 0) == (round_ > 0) for draft in drafts)
        for session, draft in zip(before, drafts, strict=True):
            assert_within(draft, session, shape)
            for node, children in enumerate(draft.tree.children):
                if children:
                    word = word_of(draft, node)
                    logits = said(kind, session.tokens, word)
                    history = [*session.tokens, *word]
                    q = session.sampler.branch(history).distribution(logits)
                    assert draft.q[node].shape == (V,)
                    assert torch.allclose(draft.q[node], q, atol=1e-9)


@each_kind
@pytest.mark.parametrize("shape", [Shape.chain(4), Shape.tree(2, 2, 1), Shape.tree(3, 1)], ids=str)
@pytest.mark.parametrize("settings", [GREEDY, {**GREEDY, "repetition_penalty": 1.5}], ids=["plain", "penalised"])
def test_chosen_children_are_the_likeliest_of_what_the_head_says(kind, shape, settings):
    play, session = Play(drafter_of(kind)), make(PROMPTS[0], **settings)
    for _ in range(4):
        text = list(session.tokens)
        draft = play.round([session], [shape])[0]
        for node, children in enumerate(draft.tree.children):
            if children:
                logits = said(kind, text, word_of(draft, node))
                sampler = make(text, **{**settings, "temperature": 1}).sampler
                row = sampler.branch([*text, *word_of(draft, node)]).distribution(logits)
                first = draft.tree.tokens[children[0]]
                assert first == int(row.argmax())
                if settings is GREEDY:
                    assert [draft.tree.tokens[child] for child in children] == row.topk(len(children)).indices.tolist()
    assert len(draft) > 0


@each_kind
@pytest.mark.parametrize("temperature", [0, 1])
@pytest.mark.parametrize("shape", [Shape(3, 3, 7), Shape(4, 2, 5)], ids=str)
def test_a_dynamic_tree_holds_the_likeliest_continuations(kind, temperature, shape):
    play, session = Play(drafter_of(kind)), make(PROMPTS[0], **GREEDY, temperature=temperature)
    for _ in range(3):
        text = list(session.tokens)
        draft = play.round([session], [shape])[0]
    chances: dict[tuple[int, ...], float] = {}
    level = {(): 1.0}
    for _ in range(shape.depth):
        grown = {}
        for word, chance in level.items():
            top = said(kind, text, word).softmax(0).topk(shape.width)
            grown |= {
                (*word, token): chance * share
                for token, share in zip(top.indices.tolist(), top.values.tolist(), strict=True)
            }
        chances |= grown
        level = grown
    best = sorted(chances, key=chances.__getitem__, reverse=True)[: shape.nodes]
    assert draft.law is Law.CHOSEN
    assert {tuple(word_of(draft, node)) for node in range(1, len(draft.tree))} == set(best)


@each_kind
@pytest.mark.parametrize("shape", [Shape.chain(3), Shape.tree(2, 2), Shape(4, 3, 9)], ids=str)
@pytest.mark.parametrize("settings", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_a_bet_is_chosen_and_knows_its_chances(kind, shape, settings):
    play, session = Play(drafter_of(kind)), make(PROMPTS[0], **settings)
    assert isinstance(play.drafter, Bettor)
    assert len(play.drafter.bet(session, shape).draft) == 0
    for _ in range(2):
        play.round([session], [shape])
    bet = play.drafter.bet(session, shape)
    assert bet.draft.law is Law.CHOSEN and len(bet.draft) == shape.nodes and bet.chances[0] == 1
    sampler = make(session.tokens, **{**settings, "temperature": settings.get("temperature", 1)}).sampler
    for node in range(1, len(bet.draft.tree)):
        parent = bet.draft.tree.parents[node]
        word = word_of(bet.draft, parent)
        q = sampler.branch([*session.tokens, *word]).distribution(said(kind, session.tokens, word))
        share = float(q[bet.draft.tree.tokens[node]])
        assert bet.chances[node] == pytest.approx(bet.chances[parent] * share, rel=1e-4)


@each_kind
@pytest.mark.parametrize(
    ("settings", "shape", "law"),
    [
        (GREEDY, Shape.chain(3), Law.CHOSEN),
        (GREEDY, Shape.tree(2, 2), Law.CHOSEN),
        (SAMPLED, Shape.chain(3), Law.SAMPLED),
        (SAMPLED, Shape.tree(2, 2), Law.GREEDY_DRAFT),
        (SAMPLED, Shape(4, 2, 8), Law.CHOSEN),
    ],
    ids=str,
)
def test_the_law_follows_session_and_shape(kind, settings, shape, law):
    play, session = Play(drafter_of(kind)), make(PROMPTS[0], **settings)
    play.round([session], [shape])
    assert isinstance(play.drafter, Drafter)
    assert play.round([session], [shape])[0].law is law


@each_kind
def test_no_draft_before_the_target_has_read_the_prompt(kind):
    drafter = drafter_of(kind)
    sessions = [make(prompt, **GREEDY) for prompt in PROMPTS]
    assert [len(draft) for draft in drafter.propose(sessions, [Shape.chain(3)] * 4)] == [0] * 4


@each_kind
def test_a_mixed_batch_gives_each_session_its_own(kind):
    settings = [GREEDY, SAMPLED, SAMPLED, GREEDY]
    shapes = [Shape.chain(2), Shape(0), Shape.tree(2, 1), Shape(3, 2, 5)]

    def drafts_of(places):
        play = Play(drafter_of(kind))
        sessions = [make(PROMPTS[place], **settings[place]) for place in places]
        play._verdict = lambda draft: Verdict((), (7,))
        for _ in range(2):
            play.round(sessions, [shapes[place] for place in places])
        return play.round(sessions, [shapes[place] for place in places])

    together = drafts_of(range(4))
    alone = [drafts_of([place])[0] for place in range(4)]
    assert [draft.tree for draft in together] == [draft.tree for draft in alone]
    assert [len(draft) for draft in together] == [2, 0, 4, 5]


@each_kind
def test_a_level_of_all_sessions_is_one_pass(kind):
    drafter, slots = drafter_of(kind), []
    net = drafter._net
    play, sessions = Play(drafter), [make(prompt, **GREEDY) for prompt in PROMPTS]
    play._verdict = lambda draft: Verdict((), (7,))
    play.round(sessions, [Shape.chain(1)] * 4)
    hook = net.register_forward_pre_hook(lambda module, inputs: slots.append(len(inputs[1])))
    drafter.propose(sessions, [Shape.chain(3), Shape.chain(1), Shape.tree(2, 2), Shape.chain(2)])
    hook.remove()
    assert slots == [sum(map(len, PROMPTS)), 1 + 2 + 1, 1]


# ── memory ────────────────────────────────────────────────────────────────────────────────────────────────────────


@each_kind
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize(
    ("law", "shape"),
    [
        (None, Shape.chain(4)),
        (Law.SAMPLED, Shape.tree(2, 2)),
        (Law.GREEDY_DRAFT, Shape.tree(3, 2, 1)),
        (Law.CHOSEN, Shape(4, 3, 8)),
    ],
    ids=str,
)
def test_after_fifty_rounds_the_memory_is_that_of_the_text_and_its_true_states(kind, batch, law, shape):
    play = Play(drafter_of(kind, law=law), seed=batch)
    sessions = [make(prompt, **SAMPLED, seed=seed, max_new_tokens=1000) for seed, prompt in enumerate(PROMPTS[:batch])]
    for round_ in range(50):
        going = [session for session in sessions if len(session.tokens) < 110]
        going = going if round_ % 5 else going[: 1 + round_ % batch]
        if going:
            play.round(going, [shape] * len(going))
        if round_ % 11 == 5:
            for session in sessions:
                check_memory(kind, play.drafter, session)
    for session in sessions:
        check_memory(kind, play.drafter, session)


@each_kind
@pytest.mark.parametrize("chunk", [1, 2, 7])
def test_a_long_prompt_is_read_in_chunks(kind, chunk, monkeypatch):
    sessions = [make(prompt, **GREEDY) for prompt in PROMPTS]
    whole, cut = Play(drafter_of(kind)), Play(drafter_of(kind))
    for play in (whole, cut):
        play._verdict = lambda draft: Verdict((), (7,))
        own = [make(session.tokens, **GREEDY) for session in sessions]
        play.round(own, [Shape(0)] * 4)
        monkeypatch.setattr("truedraft.drafters.eagle._CHUNK", 512 if play is whole else chunk)
        play.drafts = play.drafter.propose(own, [Shape(3, 2, 6)] * 4)
        for session in own:
            check_memory(kind, play.drafter, session)
    assert [draft.tree for draft in whole.drafts] == [draft.tree for draft in cut.drafts]


@each_kind
def test_of_a_text_longer_than_its_window_the_end_is_read(kind):
    sessions = [make(prompt, **GREEDY) for prompt in PROMPTS]
    play = Play(drafter_of(kind, window=8))
    play.round(sessions, [Shape(0)] * 4)
    for _ in range(12):
        play.round(sessions, [Shape(3, 2, 6)] * 4)
    for session, prompt in zip(sessions, PROMPTS, strict=True):
        check_memory(kind, play.drafter, session, begin=max(0, len(prompt) - 8))


@each_kind
@pytest.mark.parametrize("drafted", [0, 3])
def test_states_that_nobody_reads_do_not_pile_up(kind, drafted):
    """A head that is not asked keeps what it would read, and no more than twice that."""
    play, session = Play(drafter_of(kind, window=8)), make(PROMPTS[0], **GREEDY, max_new_tokens=200)
    for round_ in range(5 + drafted):
        play.round([session], [Shape.chain(2 if 0 < round_ <= drafted else 0)])
    for _ in range(40):
        play.round([session], [Shape(0)])
        row = play.drafter._rows[session]
        assert sum(map(len, row.states)) < 2 * 8 and len(row.tokens) - 1 == row.length + sum(map(len, row.states))
    assert row.begin >= len(session.tokens) - 17 and row.length == 0
    check_memory(kind, play.drafter, session, begin=row.begin)
    for _ in range(10):
        play.round([session], [Shape.chain(2)])
    check_memory(kind, play.drafter, session, begin=row.begin)


@each_kind
def test_nodes_are_priced_by_the_texts_that_share_the_pass(kind):
    sizes = []
    for batch in (None, 64):
        drafter = drafter_of(kind, passes=PassCost(((1, 0.0), (16, 0.1))), level=0.001)
        play, session = Play(drafter), make(PROMPTS[0], **GREEDY)
        play.round([session], [Shape(0)])
        sizes.append(len(drafter.propose([session], [Shape(3, 3, 12)], batch=batch)[0]))
    assert sizes[1] < sizes[0]


@each_kind
def test_a_round_that_nobody_decided_leaves_nothing_behind(kind):
    play, session = Play(drafter_of(kind)), make(PROMPTS[0], **GREEDY)
    play.round([session], [Shape(0)])
    first, second = (play.drafter.propose([session], [Shape(3, 2, 6)])[0] for _ in range(2))
    assert len(first) == 6 and first.tree == second.tree


@each_kind
def test_rounds_without_drafts_are_caught_up_with(kind):
    play, session = Play(drafter_of(kind)), make(PROMPTS[0], **GREEDY)
    for depth in (0, 3, 0, 0, 0):
        play.round([session], [Shape.chain(depth)])
    check_memory(kind, play.drafter, session)
    assert len(play.drafter.propose([session], [Shape.chain(3)])[0]) == 3


@each_kind
def test_states_of_a_round_that_another_drafter_drafted_are_taken_in(kind):
    play, session = Play(drafter_of(kind)), make(PROMPTS[0], **GREEDY)
    play.round([session], [Shape.chain(2)])
    other = Draft(Tree.chain((session.root, 4, 5)))
    scores = play.target.score([session], [other.tree], play.drafter.taps)
    verdict = Verdict((1, 2), (4, 5, 6))
    play.target.commit([session], [verdict.path])
    session.extend(verdict.tokens)
    play.drafter.observe([session], [verdict], scores)
    check_memory(kind, play.drafter, session)


@each_kind
def test_an_edited_text_is_not_drafted_for_until_it_was_read(kind):
    play, session = Play(drafter_of(kind)), make(PROMPTS[3], **GREEDY)
    for _ in range(3):
        play.round([session], [Shape.chain(3)])
    session.tokens[5] = 3
    del session.tokens[20:]
    assert len(play.drafter.propose([session], [Shape.chain(3)])[0]) == 0
    play.round([session], [Shape.chain(3)])
    draft = play.round([session], [Shape.chain(3)])[0]
    assert len(draft) == 3
    assert play.drafter._rows[session].begin == 5


@each_kind
def test_release_frees_the_memory_and_the_session(kind):
    drafter, session, other = drafter_of(kind), make(PROMPTS[0], **GREEDY), make(PROMPTS[1], **GREEDY)
    drafter.release(session)
    play = Play(drafter)
    for _ in range(2):
        play.round([session, other], [Shape.chain(2)] * 2)
    drafter.release(session)
    play.target.release(session)
    gone = weakref.ref(session)
    del session
    gc.collect()
    assert gone() is None and len(drafter._rows) == 1


@each_kind
def test_a_run_leaves_nothing_behind(kind):
    drafter = drafter_of(kind)
    target = TorchTarget(CachedModel(MODEL))
    decoder = Decoder(target, drafter, rule_named("auto"), Fixed(Shape.chain(3)))
    sessions = [make(prompt, **GREEDY, max_new_tokens=5 + 7 * place) for place, prompt in enumerate(PROMPTS)]
    for _ in decoder.run(sessions, batch=3):
        pass
    assert not drafter._rows and not drafter._greedy


# ── limits ────────────────────────────────────────────────────────────────────────────────────────────────────────


@each_kind
@pytest.mark.parametrize("length", [29, 30, 31, 32, 33, 60])
def test_past_its_context_it_falls_silent_and_the_text_goes_on(kind, length):
    model = tiny_model(seed=1, dtype=torch.float64, max_position_embeddings=32)
    net = tiny_head(kind, model, draft=30, dtype=torch.float64)
    drafter, prompt = EagleDrafter(net, layers=LAYERS), [(7 * place + length) % V for place in range(length)]
    texts, depths = [], []
    for each in (NoDrafter(), drafter):
        decoder = Decoder(TorchTarget(CachedModel(MODEL)), each, rule_named("auto"), Fixed(Shape.chain(4)))
        session = make(prompt, **GREEDY, max_new_tokens=20)
        for step in decoder.run([session]):
            known = len(session.tokens) - step[0][1].emitted
            if each is drafter:
                depths.append((known, len(step[0][1].draft)))
        texts.append(session.tokens)
    assert texts[0] == texts[1]
    for known, depth in depths[1:]:
        assert depth == max(0, min(4, 33 - known, length + 20 - known - 1))


@pytest.mark.parametrize("wrong", [{"confidence": 1.0}, {"confidence": -0.5}, {"window": 0}], ids=str)
def test_parameters_are_checked(wrong):
    with pytest.raises(ParameterError, match=next(iter(wrong))):
        drafter_of("eagle3", **wrong)


@each_kind
def test_an_unsure_head_stops_early(kind):
    play, session = Play(drafter_of(kind, confidence=0.999999)), make(PROMPTS[0], **GREEDY)
    lengths = {len(play.round([session], [Shape.chain(6)])[0]) for _ in range(8)}
    assert max(lengths) < 6


@each_kind
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_packed_layers_draft_what_plain_ones_do(kind, dtype):
    model = tiny_model(seed=1)
    net = tiny_head(kind, model, draft=30, dtype=dtype)
    drafter = EagleDrafter(net, layers=LAYERS)
    packs = why_not(torch.zeros(1, dtype=dtype)) is None  # of bfloat16 not on every processor
    assert bool(list(drafter._net.fc.parameters())) != packs
    play, session = Play(drafter, target=TorchTarget(CachedModel(model))), make(PROMPTS[0], **SAMPLED)
    play.round([session], [Shape.chain(2)])
    draft = drafter.propose([session], [Shape.chain(1)])[0]
    q = session.sampler.branch(session.tokens).distribution(said(kind, session.tokens, []))
    assert draft.q[0].dtype == torch.float32
    assert torch.allclose(draft.q[0].double(), q, atol=1e-3 if dtype is torch.float32 else 0.3)


# ── rests ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@each_kind
@pytest.mark.parametrize("share", [0.0, 0.9], ids=["cheap", "dear"])
def test_a_head_whose_trees_do_not_pay_is_seldom_run(kind, share, monkeypatch):
    """And then it has read all that it missed: its memory is that of the text."""
    drafter = drafter_of(kind, passes=PassCost.even(share), level=0.01)
    play, session, ran = Play(drafter), make(PROMPTS[0], max_new_tokens=400, **GREEDY), []
    monkeypatch.setattr(drafter, "_fill", lambda growths, real=drafter._fill: (ran.append(1), real(growths)))
    for _ in range(30):
        play.round([session], [Shape(3, 2, 6)])
    assert len(ran) > 25 if share == 0.0 else len(ran) < 8
    check_memory(kind, drafter, session)


@each_kind
def test_shapes_that_were_asked_for_are_drafted_whatever_they_cost(kind):
    drafter = drafter_of(kind, passes=PassCost.even(0.9), level=0.5)
    play, session = Play(drafter), make(PROMPTS[0], max_new_tokens=200, **GREEDY)
    sizes = [len(play.round([session], [Shape.chain(2)])[0]) for _ in range(20)]
    assert sizes[1:] == [2] * 19
