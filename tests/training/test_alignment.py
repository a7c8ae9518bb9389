"""State, input token, position and lesson of every supervised guess, on a row of known ids, listed one by one."""

import pytest
import torch
from torch import nn

from truedraft.nets.eagle1 import Eagle1Config, Eagle1Net
from truedraft.nets.layers import LayerConfig
from truedraft.nets.medusa import MedusaConfig, MedusaNet
from truedraft.nets.vocabulary import DraftVocabulary
from truedraft.training.batches import Order, collate, supervised
from truedraft.training.features import Row
from truedraft.training.learn import Lesson, examine, learn

IDS = [10, 11, 12, 13, 14, 15]
PROMPT = 3  # 10 11 12 | 13 14 15
SIZE = 4
OWN = 100  # what one step of the spy adds to the state that it read


class Spy(Eagle1Net):
    """Notes what it is run on. Its state tells where it comes from: slot + 100 a step of its own."""

    def __init__(self):
        layer = LayerConfig(SIZE, SIZE, 1, 1, SIZE, vocab_size=20)
        super().__init__(Eagle1Config(layer), DraftVocabulary.full(20))
        self.share(torch.randn(20, SIZE), torch.randn(20, SIZE))
        self.calls = []
        self.weight = nn.Parameter(torch.zeros(()))

    def forward(self, state, tokens, positions, attend):
        self.calls.append((state[..., 0].detach().clone(), tokens, positions))
        return state + OWN + self.weight


def row(ids=IDS, prompt=PROMPT):
    """A row whose state at token t is t everywhere."""
    states = torch.arange(len(ids))[:, None, None].expand(-1, 1, SIZE).to(torch.bfloat16)
    return Row("known", torch.tensor(ids), states, prompt, True)


def lessons(rows, steps, *, begin=None, net=None):
    """(row of the batch, step, slot, state, input, position, teacher's token, label) of every guess that is learned."""
    net, seen = net or Spy(), []

    def objective(guesses):
        seen.append((guesses.state[:, 0].tolist(), guesses.taught[:, 0].tolist(), guesses.token.tolist()))
        return guesses.said.sum(-1) * 0

    def output(states):
        return torch.cat([states[..., :1], states.new_zeros(*states.shape[:-1], 19)], dim=-1)

    batch = collate(rows, (0,), steps, begin=begin)
    learn(net, batch, Lesson(objective, output), scale=1.0, generator=torch.Generator())
    found = []
    spans = [(place, span) for place in range(len(rows)) for span in batch.spans[place]]
    for (place, span), (states, taught, labels) in zip(spans, seen, strict=True):
        state, tokens, positions = net.calls[span.step]
        for slot, own, teacher, label in zip(range(span.first, span.last), states, taught, labels, strict=True):
            assert own == state[place, slot] + OWN
            where = int(tokens[place, slot]), int(positions[place, slot])
            found.append((place, span.step, slot, float(state[place, slot]), *where, int(teacher), label))
    return found


def test_every_guess_of_a_known_row():
    assert lessons([row()], 3) == [
        # row, step, slot, state that is read, input, position, taught behind token, label
        (0, 0, 1, 1, 12, 1, 2, 13),
        (0, 0, 2, 2, 13, 2, 3, 14),
        (0, 0, 3, 3, 14, 3, 4, 15),
        (0, 1, 0, 0 + OWN, 12, 1, 2, 13),
        (0, 1, 1, 1 + OWN, 13, 2, 3, 14),
        (0, 1, 2, 2 + OWN, 14, 3, 4, 15),
        (0, 2, 0, 0 + 2 * OWN, 13, 2, 3, 14),
        (0, 2, 1, 1 + 2 * OWN, 14, 3, 4, 15),
    ]


def test_prompts_are_learned_when_asked_for():
    first = lessons([row()], 1, begin=0)
    assert [(slot, label) for _, _, slot, _, _, _, _, label in first] == [(0, 12), (1, 13), (2, 14), (3, 15)]
    assert [lesson[-1] for lesson in lessons([row()], 1, begin=4)] == [14, 15]


def test_padding_is_never_learned_and_changes_nothing():
    alone = lessons([row()], 3)
    beside = lessons([row(), row(list(range(1, 12)), 2)], 3)
    assert [lesson for lesson in beside if lesson[0] == 0] == alone
    assert {lesson[-1] for lesson in beside if lesson[0] == 1} == set(range(3, 12))


@pytest.mark.parametrize("length", [1, 2, 3])
def test_rows_too_short_to_guess_in(length):
    spans = supervised(length, 0, 2)
    assert [len(span) for span in spans] == [max(0, length - 2), max(0, length - 3)]


def test_a_token_that_cannot_be_said_teaches_nothing():
    net = Spy()
    net.vocabulary = DraftVocabulary(torch.tensor([11, 12, 13, 15]), 20)
    net.share(torch.randn(20, SIZE), torch.randn(20, SIZE))
    weighed = []
    lesson = Lesson(lambda guesses: weighed.append(guesses.token) or guesses.state[:, 0], lambda states: states)
    loss = learn(net, collate([row()], (0,), 1), lesson, scale=1.0, generator=torch.Generator())
    assert loss == (1 + OWN) + (3 + OWN)  # the slots that guess 13 and 15; 14 is not in the vocabulary


def oracle(right):
    """The output layer of a spy that is right at some guesses: at the tokens in `right`."""

    def logits(states):
        said = torch.zeros(*states.shape[:-1], 20)
        for place, value in enumerate(states[:, 0].tolist()):
            token = int(value) % OWN + int(value) // OWN - 1 + 2  # slot + step + 2
            said[place, IDS[token] if token in right else 0] = 1
        return said

    return logits


@pytest.mark.parametrize(
    ("right", "tried", "hit", "rounds"),
    [
        ({3, 4, 5}, (3, 2), (3, 2), 1),  # 13 14 accepted, 15 is the bonus
        ({3, 5}, (3, 1), (2, 0), 2),  # 13 accepted, 14 the correction; 15 accepted
        ({4, 5}, (3, 1), (2, 1), 2),  # 13 the correction; 14 15 accepted
        (set(), (3, 0), (0, 0), 3),
    ],
)
def test_what_would_have_been_accepted(right, tried, hit, rounds):
    net = Spy()
    net.logits = oracle(right)
    tally = examine(net, collate([row()], (0,), 2))
    assert (tally.tried, tally.hit, tally.rounds, tally.emitted) == (tried, hit, rounds, 3)
    assert tally.tokens_per_pass == 3 / rounds
    assert tally.guesses == (3, 3) and [counts[0] for counts in tally.ranks] == [len(right), len(right)]
    assert tally.by_rank[0][0] == len(right) / 3


def test_medusa_heads_are_the_steps():
    net = MedusaNet(MedusaConfig(SIZE, 20, heads=2), DraftVocabulary.full(20))
    seen = []

    def objective(guesses):
        seen.append((guesses.state[:, 0].tolist(), guesses.token.tolist()))
        return guesses.said.sum(-1)

    lesson = Lesson(objective, lambda states: states)
    learn(net, collate([row()], (0,), 2), lesson, scale=1.0, generator=torch.Generator())
    assert seen == [([1, 2, 3], [13, 14, 15]), ([0, 1, 2], [13, 14, 15])]


def test_an_epoch_has_every_row_once_and_batches_that_fit():
    lengths = tuple(range(1, 60)) * 12
    order = Order(lengths, tokens=200, seed=3)
    batches = order.epoch(0)
    assert sorted(place for batch in batches for place in batch) == list(range(len(lengths)))
    assert max(len(batch) * max(lengths[place] for place in batch) for batch in batches) <= 200
    assert batches == order.epoch(0) != order.epoch(1)
    assert order.epoch(0) != Order(lengths, tokens=200, seed=4).epoch(0)
    assert Order((500,), tokens=200).epoch(0) == [[0]]
