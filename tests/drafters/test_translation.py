"""A small model with another tokenizer: ids, texts, q, and that nothing but acceptance is lost."""

from __future__ import annotations

import random

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from tests.drafters.helpers import make
from tests.tiny import tiny_model
from truedraft.core import Law, Shape, Verdict
from truedraft.decode import Decoder
from truedraft.drafters.model import ModelDrafter
from truedraft.drafters.none import NoDrafter
from truedraft.drafters.translation import OtherIds, SameIds, pieces
from truedraft.errors import VocabularyError
from truedraft.model import Model
from truedraft.planning.fixed import Fixed
from truedraft.request import Facts
from truedraft.targets.cached import CachedModel
from truedraft.targets.torch_target import TorchTarget
from truedraft.verify.auto import rule_named


def byte_level(merges, *, shift=0, special=("<end>",)):
    """A byte-level BPE tokenizer over ASCII letters and a space; its ids begin at `shift`."""
    letters = sorted({*"abcdefgh", "\N{LATIN CAPITAL LETTER G WITH DOT ABOVE}"})
    words = [*letters, *(left + right for left, right in merges)]
    vocabulary = {word: index for index, word in enumerate([f"<pad{n}>" for n in range(shift)] + words)}
    inner = Tokenizer(models.BPE(vocab=vocabulary, merges=list(merges)))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner)
    tokenizer.add_special_tokens({"additional_special_tokens": list(special)})
    return tokenizer


def metaspace():
    """A tokenizer that writes spaces as sentencepiece does, with a byte token."""
    words = ["<unk>", "\N{LOWER ONE EIGHTH BLOCK}a", "b", "ab", "<0x0A>"]
    inner = Tokenizer(models.BPE(vocab={word: index for index, word in enumerate(words)}, merges=[]))
    inner.decoder = decoders.Metaspace()
    return PreTrainedTokenizerFast(tokenizer_object=inner)


OURS = byte_level([("a", "b"), ("c", "d"), ("ab", "c")])
THEIRS = byte_level([("a", "b"), ("b", "c"), ("d", "a")], shift=3)
V = len(OURS)


def translation(**sizes):
    return OtherIds(OURS, THEIRS, **{"vocabulary": V, "readable": len(THEIRS), **sizes})


def ids(tokenizer, text):
    return tokenizer.encode(text, add_special_tokens=False)


# ── ids and texts ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_pieces_are_bytes_whatever_way_they_are_written():
    assert dict(pieces(OURS))[False, b"ab"] == OURS.get_vocab()["ab"]
    assert (False, b" ") in dict(pieces(OURS)) and (True, b"<end>") in dict(pieces(OURS))
    spaced = dict(pieces(metaspace()))
    assert spaced[False, b" a"] == 1 and spaced[False, b"\n"] == 4


def test_shared_tokens_keep_their_bytes():
    both = translation()
    ours, theirs = ({index: piece for piece, index in pieces(each)} for each in (OURS, THEIRS))
    shared = [index for index in range(V) if ours[index] in theirs.values()]
    assert [ours[index] for index in shared] == [theirs[both.node(index)] for index in shared]
    assert both.shared == len(shared) / V and 0.5 < both.shared < 1
    assert OURS.get_vocab()["abc"] not in shared and OURS.get_vocab()["ab"] in shared
    assert both.node(OURS.get_vocab()["abc"]) == 0, "a stand-in for what a logits processor may force all the same"


def test_logits_move_to_the_targets_places():
    own = torch.randn(2, len(THEIRS))
    moved = translation().logits(own)
    assert moved.shape == (2, V)
    for index in range(V):
        piece = {index: piece for piece, index in pieces(OURS)}[index]
        there = dict(pieces(THEIRS)).get(piece)
        expected = torch.full((2,), -torch.inf) if there is None else own[:, there]
        assert torch.equal(moved[:, index], expected)


@pytest.mark.parametrize("text", ["abcdab hgf", "a", "<end>ab<end>"])
def test_a_text_is_read_as_the_small_model_would_cut_it(text):
    assert translation().read(ids(OURS, text)) == ids(THEIRS, text)


def test_however_the_target_cut_it():
    letters = [OURS.get_vocab()[letter] for letter in "dabc"]
    assert translation().read(letters) == ids(THEIRS, "dabc") != translation().read(letters[:2]) + ids(THEIRS, "bc")


def test_a_text_of_which_nothing_is_left_is_a_stand_in():
    class Silent:
        all_special_ids = ()

        def get_vocab(self):
            return {"a": 0}

        def decode(self, tokens, **_):
            return "\N{REPLACEMENT CHARACTER}"

        def encode(self, text, **_):
            return list(text)

    assert OtherIds(Silent(), Silent(), vocabulary=1, readable=1).read([0]) == [0]


def test_nothing_in_common_is_refused():
    with pytest.raises(VocabularyError, match="no token in common"):
        OtherIds(OURS, THEIRS, vocabulary=V, readable=3)


def test_the_same_ids_are_cut_or_padded():
    same = SameIds(5, 3)
    assert same.read([1, 4, 2]) == [1, 0, 2]
    assert same.logits(torch.zeros(1, 3)).tolist() == [[0, 0, 0, -torch.inf, -torch.inf]]
    assert SameIds(2, 3).logits(torch.zeros(1, 3)).shape == (1, 2)


# ── drafts ────────────────────────────────────────────────────────────────────────────────────────────────────────

TARGET = tiny_model(seed=1, dtype=torch.float64, vocab_size=V, eos_token_id=None, bos_token_id=None)
SMALL = tiny_model("qwen2", seed=2, dtype=torch.float64, vocab_size=len(THEIRS), num_hidden_layers=2, eos_token_id=None)
PROMPTS = [ids(OURS, text) for text in ("abcdab hgf", "a", "cdcdabab ab", "hh")]
SAMPLED = {"temperature": 0.9, "repetition_penalty": 1.2}


def drafter_of(law=None):
    return ModelDrafter(CachedModel(SMALL), vocabulary=V, translation=translation(), law=law)


def model_of(drafter, shape, *, batch=1):
    decoder = Decoder(TorchTarget(CachedModel(TARGET)), drafter, rule_named("auto"), Fixed(shape))
    return Model(decoder, Facts(vocabulary=V), batch=batch)


@pytest.mark.parametrize("law", [Law.SAMPLED, Law.GREEDY_DRAFT])
def test_q_is_the_small_models_over_shared_tokens(law):
    session = make(PROMPTS[0], vocabulary=V, seed=3, **SAMPLED)
    draft = drafter_of(law).propose([session], [Shape.tree(2, 1)])[0]
    assert draft.law is law and len(draft) == 4
    both = translation()
    for node, children in enumerate(draft.tree.children):
        if children:
            drafted = [draft.tree.tokens[step] for step in draft.tree.path(node)]
            text = [*both.read(session.tokens), *(both.node(token) for token in drafted)]
            logits = both.logits(SMALL(torch.tensor([text])).logits[0, -1:])[0]
            q = session.sampler.branch([*session.tokens, *drafted]).distribution(logits)
            assert torch.allclose(draft.q[node], q, atol=1e-9)


@pytest.mark.parametrize("shape", [Shape.chain(3), Shape.tree(2, 2), Shape(4, 3, 9)], ids=str)
@pytest.mark.parametrize("batch", [1, 4])
def test_greedy_text_is_plain_decodings(shape, batch):
    settings = {"each": [{"max_new_tokens": count} for count in (30, 7, 22, 1)]}
    plain = model_of(NoDrafter(), Shape(0)).generate(PROMPTS, **settings)
    drafted = model_of(drafter_of(), shape, batch=batch).generate(PROMPTS, **settings)
    assert [result.token_ids for result in drafted] == [result.token_ids for result in plain]
    assert sum(result.statistics.drafted for result in drafted) > 0


def test_a_sampled_text_does_not_depend_on_its_neighbours():
    options = {"max_new_tokens": 20, "seed": 5, **SAMPLED}
    together = model_of(drafter_of(), Shape.tree(2, 1), batch=4).generate(PROMPTS, **options)
    alone = [model_of(drafter_of(), Shape.tree(2, 1)).generate(prompt, **options) for prompt in PROMPTS]
    assert [result.token_ids for result in together] == [result.token_ids for result in alone]


def test_a_model_that_drafts_for_itself_in_its_own_ids_is_always_right():
    same = OtherIds(OURS, OURS, vocabulary=V, readable=V)
    drafter = ModelDrafter(CachedModel(TARGET), vocabulary=V, translation=same)
    # Where the target's text is not cut as its tokenizer would cut it, even its own model reads another text.
    result = model_of(drafter, Shape.chain(3)).generate(PROMPTS[0], max_new_tokens=40)
    assert result.token_ids == model_of(NoDrafter(), Shape(0)).generate(PROMPTS[0], max_new_tokens=40).token_ids


def test_every_round_drafts_as_a_fresh_drafter_would():
    dice, cache = random.Random(0), CachedModel(SMALL)
    drafter = ModelDrafter(cache, vocabulary=V, translation=translation())
    session = make(PROMPTS[0], vocabulary=V, max_new_tokens=1000)
    kept = 0
    for _ in range(25):
        draft = drafter.propose([session], [Shape.tree(2, 1)])[0]
        assert draft.tree == drafter_of().propose([make(session.tokens, vocabulary=V)], [Shape.tree(2, 1)])[0].tree
        path, children = [], draft.tree.children[0]
        while children and dice.random() < 0.7:
            path.append(dice.choice(children))
            children = draft.tree.children[path[-1]]
        tokens = (*(draft.tree.tokens[node] for node in path), dice.randrange(V - 1))
        session.extend(tokens)
        drafter.observe([session], [Verdict(tuple(path), tokens)], [])
        own = translation().read(session.tokens)
        kept += cache.known(session, own) >= len(own) - 2
    assert kept > 10
