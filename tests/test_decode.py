"""The round on exact toys: greedy identity, ends, counts, batches and seeds, for drafts right and wrong at will."""

import itertools

import pytest
import torch

from truedraft.core import FinishReason, Shape
from truedraft.decode import Decoder
from truedraft.errors import ParameterError, PromptError
from truedraft.model import Model
from truedraft.request import Facts
from truedraft.toy import Script, TabularTarget, random_language
from truedraft.verify.target_only import RULE

VOCABULARY = 16
PIECES = [chr(ord("a") + i) for i in range(VOCABULARY)]
LANGUAGE = random_language(VOCABULARY, order=2, seed=1)


class ToyTokenizer:
    """A letter a token."""

    chat_template = None

    def encode(self, text):
        return [PIECES.index(letter) for letter in text]

    def decode(self, ids, **_):
        return "".join(PIECES[i] for i in ids)


class Fixed:
    """The same shape for every session."""

    def __init__(self, shape):
        self._shape = shape

    def shape(self, sessions, history):
        return [self._shape] * len(sessions)


def model(drafter=None, shape=None, batch=1, **facts):
    drafter = drafter or Script((), VOCABULARY)
    known = {"vocabulary": VOCABULARY, "tokenizer": ToyTokenizer(), **facts}
    decoder = Decoder(TabularTarget(LANGUAGE), drafter, RULE, Fixed(shape or Shape(0)))
    return Model(decoder, Facts(**known), batch=batch)


def plain(prompt, **options):
    return model(**options.pop("facts", {})).generate(prompt, **options)


PROMPT = [3, 1, 4]


def script(right, length=60, decoys=0, prompts=(PROMPT,)):
    texts = [[*prompt, *plain(list(prompt), max_new_tokens=length).token_ids] for prompt in prompts]
    return Script(texts, VOCABULARY, right=right, decoys=decoys)


RIGHT = [None, 0, 1, 2, 3, 4]


@pytest.mark.parametrize("right", RIGHT)
@pytest.mark.parametrize("depth", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("decoys", [0, 1, 2])
def test_greedy_text_is_plain_decodings(right, depth, decoys):
    fast = model(script(right, decoys=decoys), Shape(depth, width=3, nodes=3 * depth))
    result, reference = fast.generate(PROMPT, max_new_tokens=40), plain(PROMPT, max_new_tokens=40)
    assert result.token_ids == reference.token_ids
    assert result.text == reference.text
    assert result.finish_reason is reference.finish_reason is FinishReason.LENGTH


def test_lengths_and_rates_of_oracle_and_wrong_drafts_are_exact():
    oracle = model(script(None), Shape.chain(4)).generate(PROMPT, max_new_tokens=20).statistics
    assert (oracle.tokens_per_pass, oracle.acceptance_rate, oracle.acceptance_by_position) == (5, 1, (1, 1, 1, 1))
    wrong = model(script(0), Shape.chain(4)).generate(PROMPT, max_new_tokens=20).statistics
    assert (wrong.tokens_per_pass, wrong.acceptance_rate, wrong.acceptance_by_position) == (1, 0, (0,))
    two = model(script(2), Shape.chain(4)).generate(PROMPT, max_new_tokens=21).statistics
    assert (two.tokens_per_pass, two.acceptance_by_position) == (3, (1, 1, 0))
    assert two.hits == (7, 7) and two.tried == (7, 7, 6)  # the last round had room for two drafts


def test_counts_agree_with_a_count_by_hand_in_every_round():
    stream = model(script(3), Shape.chain(5)).stream(PROMPT, max_new_tokens=23)
    rounds = [chunk.round for chunk in stream]
    statistics = stream.result.statistics
    assert statistics.rounds == len(rounds) == stream.result.to_json()["target_passes"]
    assert statistics.emitted == sum(record.emitted for record in rounds) == 23
    assert statistics.drafted == sum(len(record.draft.tree.tokens) - 1 for record in rounds)
    assert statistics.accepted == sum(len(record.verdict.path) for record in rounds)
    assert [record.index for record in rounds] == list(range(len(rounds)))


@pytest.mark.parametrize("at", range(12))
@pytest.mark.parametrize("right", [None, 1, 3])
def test_an_end_token_inside_an_accepted_block_ends_there(at, right):
    reference = plain(PROMPT, max_new_tokens=40).token_ids
    end = reference[at]
    expected = reference[: reference.index(end) + 1]
    stream = model(script(right), Shape.chain(5), end_tokens=frozenset({end})).stream(PROMPT, max_new_tokens=40)
    streamed = [token for chunk in stream for token in chunk.token_ids]
    result = stream.result
    assert tuple(streamed) == result.token_ids == expected
    assert result.finish_reason is FinishReason.EOS
    assert result.text == ToyTokenizer().decode(expected[:-1])
    assert result.statistics.emitted == len(expected)
    assert result.statistics.accepted <= len(expected)
    assert (
        model(script(right), Shape.chain(5), end_tokens=frozenset({end}))
        .generate(PROMPT, max_new_tokens=40, ignore_eos=True)
        .token_ids
        == reference
    )


@pytest.mark.parametrize("start", range(8))
@pytest.mark.parametrize("length", [1, 2, 3, 7])
def test_a_stop_string_inside_and_across_blocks_cuts_as_plain_decoding_does(start, length):
    text = plain(PROMPT, max_new_tokens=40).text
    stop = text[start : start + length]
    for right, depth in itertools.product([None, 1], [2, 5]):
        stream = model(script(right), Shape.chain(depth)).stream(PROMPT, max_new_tokens=40, stop=["zzz", stop])
        streamed = "".join(chunk.text for chunk in stream)
        reference = plain(PROMPT, max_new_tokens=40, stop=["zzz", stop])
        assert streamed == stream.result.text == reference.text == text[: text.index(stop)]
        assert stream.result.token_ids == reference.token_ids
        assert stream.result.finish_reason is FinishReason.STOP
        assert stream.result.statistics.emitted == len(reference.token_ids)


@pytest.mark.parametrize("budget", [1, 2, 3, 4, 5, 6])
def test_never_more_tokens_than_asked_for(budget):
    result = model(script(None), Shape.chain(4)).generate(PROMPT, max_new_tokens=budget)
    assert len(result.token_ids) == budget and result.finish_reason is FinishReason.LENGTH


@pytest.mark.parametrize("room", [1, 2, 3, 5, 9])
def test_the_context_limit_is_reached_exactly_and_never_crossed(room):
    fast = model(script(None), Shape.chain(4), context_length=len(PROMPT) + room)
    stream = fast.stream(PROMPT, max_new_tokens=40)
    deepest = [len(PROMPT) + max(chunk.round.draft.tree.depth) for chunk in stream]
    assert max(deepest) <= len(PROMPT) + room
    assert len(stream.result.token_ids) == room and stream.result.finish_reason is FinishReason.LENGTH
    with pytest.raises(PromptError, match="context"):
        fast.generate([1] * (len(PROMPT) + room))


def test_batches_give_every_prompt_its_solo_text():
    prompts = [[3, 1, 4], [1], [5, 9, 2, 6, 5], [3, 5]]
    each = [{"max_new_tokens": n} for n in (30, 2, 17, 40)]
    solo = [plain(prompt, **options) for prompt, options in zip(prompts, each, strict=True)]
    texts = script(2, prompts=prompts)
    for batch in (1, 2, 3, 8):
        results = model(texts, Shape.chain(4), batch=batch).generate(prompts, each=each)
        assert [result.token_ids for result in results] == [result.token_ids for result in solo]
        assert [len(result.token_ids) for result in results] == [30, 2, 17, 40]


def test_a_seed_gives_one_text_alone_in_a_batch_and_at_any_place():
    sampled = {"temperature": 1.5, "max_new_tokens": 25}
    alone = model(script(2), Shape.chain(3)).generate(PROMPT, seed=42, **sampled)
    crowd = model(script(2), Shape.chain(3), batch=4)
    for place in range(4):
        each = [{"seed": 42 if at == place else at} for at in range(4)]
        assert crowd.generate([PROMPT] * 4, each=each, **sampled)[place].token_ids == alone.token_ids


def test_without_a_seed_texts_differ_and_greedy_ignores_the_seed():
    texts = model(batch=8).generate([PROMPT] * 20, temperature=1.0, max_new_tokens=20)
    assert len({result.token_ids for result in texts}) == 20
    greedy = model(batch=8).generate([PROMPT] * 5, each=[{"seed": seed} for seed in range(5)])
    assert len({result.token_ids for result in greedy}) == 1


def test_a_mixed_batch_keeps_greedy_rows_greedy():
    each = [{"temperature": t, "seed": 1} for t in (0, 0.7, 1.5, 0)]
    for order in ((0, 1, 2, 3), (1, 0, 3, 2), (2, 3, 0, 1), (3, 1, 2, 0)):
        results = model(script(3), Shape.chain(3), batch=4).generate([PROMPT] * 4, each=[each[i] for i in order])
        for place, which in enumerate(order):
            if each[which]["temperature"] == 0:
                assert results[place].token_ids == plain(PROMPT).token_ids


@pytest.mark.parametrize("right", [None, 2])
def test_logprobs_are_the_targets_own_at_every_emitted_token(right):
    result = model(script(right), Shape.chain(4)).generate(PROMPT, max_new_tokens=15, logprobs=5)
    context = list(PROMPT)
    assert len(result.logprobs) == 15
    for token, entry in zip(result.token_ids, result.logprobs, strict=True):
        row = LANGUAGE(tuple(context)).float().log_softmax(0)
        assert entry.token == token and entry.logprob == pytest.approx(float(row[token]), abs=1e-6)
        assert [pair[0] for pair in entry.top] == row.topk(5).indices.tolist()
        context.append(token)


def test_penalties_and_processors_apply_inside_blocks_as_in_plain_decoding():
    class NoTwins:
        """Forbids the token it was shown last; counts its calls."""

        def __init__(self):
            self.calls = 0

        def __call__(self, ids, scores):
            self.calls += 1
            scores = scores.clone()
            scores[0, ids[0, -1]] = -torch.inf
            if self.calls % 3 == 0:
                scores[0, ids[0, 0]] = 9
            return scores

    for options in (
        {"repetition_penalty": 1.8},
        {"frequency_penalty": 1.5, "presence_penalty": -0.5},
        {"frequency_penalty": -2.0},
        {"processors": [NoTwins()]},
        {"bad_words": [[3], [1, 2]], "min_new_tokens": 9, "eos_token_ids": [5, 6]},
    ):
        reference = plain(PROMPT, max_new_tokens=40, **options)
        texts = [[*PROMPT, *reference.token_ids]]
        for right in (None, 0, 2):
            fast = model(Script(texts, VOCABULARY, right=right, decoys=1), Shape(4, width=2, nodes=8))
            assert fast.generate(PROMPT, max_new_tokens=40, **options).token_ids == reference.token_ids, options


def test_cancelling_one_text_leaves_its_neighbours_alone():
    fast = model(script(2), Shape.chain(3), batch=3)
    stream = fast.stream([PROMPT] * 3, max_new_tokens=30)
    for _ in range(4):
        next(stream)
    stream.cancel(1)
    late = [chunk.index for chunk in stream]
    assert late.count(1) <= 1  # at most what the round had already decided when it was cancelled
    reasons = [result.finish_reason for result in stream.results]
    assert reasons == [FinishReason.LENGTH, FinishReason.INTERRUPTED, FinishReason.LENGTH]
    assert stream.results[0].token_ids == stream.results[2].token_ids == plain(PROMPT, max_new_tokens=30).token_ids


def test_closing_a_stream_releases_everything_and_keeps_the_text():
    released = []

    class Watched(TabularTarget):
        def release(self, session):
            released.append(session)

    decoder = Decoder(Watched(LANGUAGE), script(2), RULE, Fixed(Shape.chain(3)))
    with Model(decoder, Facts(VOCABULARY), batch=2).stream([PROMPT] * 3, max_new_tokens=50) as stream:
        next(stream)
    assert len(released) == 2
    assert stream.result.finish_reason is FinishReason.INTERRUPTED and len(stream.result.token_ids) == 3


def test_traces_hold_p_and_q_of_drafted_tokens():
    stream = model(script(1, decoys=1), Shape(3, width=2, nodes=6)).tracing().stream(PROMPT, max_new_tokens=9)
    for chunk in stream:
        entry = chunk.round.to_json()
        assert len(entry["p"]) == len(entry["tokens"]) and entry["p"][0] is None and entry["q"] is None
        assert all(entry["p"][node] == 1 for node in entry["path"])


def test_a_drafter_that_breaks_its_contract_is_caught():
    class Deep(Script):
        def propose(self, sessions, shapes):
            return super().propose(sessions, [Shape.chain(9)] * len(sessions))

    greedy = Deep(script(None).texts, VOCABULARY)
    with pytest.raises(AssertionError, match="contract"):
        model(greedy, Shape.chain(2)).generate(PROMPT, max_new_tokens=20)


@pytest.mark.parametrize(
    ("prompt", "options", "error"),
    [
        ("", {}, PromptError),
        ([], {}, PromptError),
        ([99], {}, PromptError),
        ([-1], {}, PromptError),
        ([0, VOCABULARY], {}, PromptError),
        (None, {}, PromptError),
        (["ab", ""], {}, PromptError),
        ([{"role": "user"}], {}, PromptError),
        ([{"role": "user", "content": "x"}], {}, PromptError),
        ([1.5, "x"], {}, PromptError),
        (PROMPT, {"max_new_tokens": 0}, ParameterError),
        (PROMPT, {"temperature": -1}, ParameterError),
        (PROMPT, {"temprature": 1}, ParameterError),
        (PROMPT, {"seed": -1}, ParameterError),
        (PROMPT, {"logprobs": -1}, ParameterError),
        (PROMPT, {"stop": [""]}, ParameterError),
        (PROMPT, {"each": [{}, {}]}, ParameterError),
        (PROMPT, {"each": {"seed": 1}}, ParameterError),
        (PROMPT, {"each": [5]}, ParameterError),
        (PROMPT, {"each": ["seed"]}, ParameterError),
        (PROMPT, {"each": "s"}, ParameterError),
        (PROMPT, {"each": 5}, ParameterError),
        (PROMPT, {"each": [{5: 1}]}, ParameterError),
        (PROMPT, {"stop": [5]}, ParameterError),
        (PROMPT, {"processors": [3]}, ParameterError),
        (PROMPT, {"logit_bias": {1: 1e39}}, ParameterError),
    ],
)
def test_bad_requests_are_refused_in_one_line(prompt, options, error):
    with pytest.raises(error) as caught:
        model().generate(prompt, **options)
    assert "\n" not in str(caught.value) and len(str(caught.value)) > 20
