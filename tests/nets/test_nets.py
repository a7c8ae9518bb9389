"""The heads as nets: what a slot reads, unrolling against one slot at a time, families of targets."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.nets.heads import KINDS, assert_unrolled_as_drafted, some_ids, tiny_head
from tests.tiny import FAMILIES, tiny_model
from truedraft.errors import UnsupportedModelError, VocabularyError
from truedraft.nets.attention import Causal, Unrolled
from truedraft.nets.eagle3 import Eagle3Config, Eagle3Net, usual_taps
from truedraft.nets.layers import LayerConfig, Rotary
from truedraft.nets.medusa import MedusaConfig, MedusaNet

TARGET = tiny_model(seed=1, dtype=torch.float64)
EAGLES = ("eagle1", "eagle3")
ROWS = torch.randint(48, (2, 9), generator=torch.Generator().manual_seed(0))


def features_of(model, rows: Tensor, taps) -> Tensor:
    """Hidden states [B, T, taps, H] of whole rows."""
    states = model(rows, output_hidden_states=True).hidden_states
    return torch.stack([states[tap] for tap in taps], dim=-2)


def inputs_of(net, rows: Tensor = ROWS) -> tuple[Tensor, Tensor, Tensor]:
    """Fused states of slots 0 .. T - 2, their next tokens, their positions."""
    features = features_of(TARGET, rows, net.taps(TARGET.config.num_hidden_layers))
    positions = torch.arange(rows.shape[1] - 1).expand(rows.shape[0], -1)
    return net.fuse(features[:, :-1]), rows[:, 1:], positions


@pytest.mark.parametrize("kind", EAGLES)
def test_a_slot_reads_nothing_behind_it(kind):
    net = tiny_head(kind, TARGET, dtype=torch.float64)
    state, tokens, positions = inputs_of(net)
    whole = net(state, tokens, positions, Causal())
    for length in (1, 4, 8):
        part = net(state[:, :length], tokens[:, :length], positions[:, :length], Causal())
        assert torch.allclose(part, whole[:, :length], atol=1e-12)
    for changed in (0, 5):  # and everything up to itself
        other = tokens.clone()
        other[:, changed] = (other[:, changed] + 1) % 48
        moved = (net(state, other, positions, Causal()) - whole).abs().amax(-1) > 1e-9
        assert not moved[:, :changed].any() and moved[:, changed:].all()


@pytest.mark.parametrize("steps", [1, 2, 4])
@pytest.mark.parametrize("kind", EAGLES)
def test_unrolled_steps_are_the_chains_that_drafting_runs(kind, steps):
    """Slot t of step j is the last slot of a row: committed slots 0 .. t, then j slots that read outputs."""
    net = tiny_head(kind, TARGET, dtype=torch.float64)
    assert_unrolled_as_drafted(net, *inputs_of(net), steps=steps)


def test_an_unrolled_slot_does_not_see_its_neighbours_drafts():
    net = tiny_head("eagle3", TARGET, dtype=torch.float64)
    state, tokens, positions = inputs_of(net)

    def second(change: float) -> Tensor:
        attend = Unrolled()
        out = net(state, tokens, positions, attend)
        out[:, 3] += change
        return net(out, tokens, positions + 1, attend)

    moved = (second(0.0) - second(1.0)).abs().amax(-1) > 1e-9
    assert moved[:, 3].all() and int(moved.sum()) == 2


def test_gradients_reach_every_weight_through_all_steps():
    net = tiny_head("eagle3", TARGET, draft=20, dtype=torch.float64).requires_grad_(True)
    state, tokens, positions = inputs_of(net)
    attend, read, loss = Unrolled(), state, torch.zeros((), dtype=torch.float64)
    for step in range(3):
        read = net(read, tokens, positions + step, attend)
        loss = loss + net.logits(read).logsumexp(-1).mean()
    loss.backward()
    assert all(weight.grad is not None and weight.grad.abs().sum() > 0 for weight in net.parameters())


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_head_fits_every_family(kind, family):
    model = tiny_model(family)
    net = tiny_head(kind, model, draft=20)
    features = features_of(model, ROWS, net.taps(model.config.num_hidden_layers))
    if kind == "medusa":
        assert net.logits(net(features)).shape == (2, 9, 4, 20)
    else:
        out = net(net.fuse(features[:, :-1]), ROWS[:, 1:], torch.arange(8), Causal())
        assert net.logits(out).shape == (2, 8, 20)


def test_eagle1_speaks_with_the_targets_own_output_rows():
    net = tiny_head("eagle1", TARGET, draft=20, dtype=torch.float64)
    state = features_of(TARGET, ROWS, (3,))[..., 0, :]
    assert torch.allclose(net.logits(state), TARGET(ROWS).logits[..., net.vocabulary.ids])


@pytest.mark.parametrize("one_output", [True, False])
def test_fresh_medusa_heads_say_what_the_target_says_next(one_output):
    net = MedusaNet(MedusaConfig.like(TARGET.config, heads=3, one_output=one_output), some_ids(48, 20)).double()
    net.copy_output(TARGET.get_output_embeddings().weight)
    said = net.logits(net(features_of(TARGET, ROWS, net.taps(3))))
    assert torch.allclose(said, TARGET(ROWS).logits[:, :, None, net.vocabulary.ids].expand(-1, -1, 3, -1))


def test_copied_output_rows_are_those_of_the_draft_tokens():
    net = Eagle3Net(Eagle3Config.like(TARGET.config, taps=(1, 2)), some_ids(48, 20)).double()
    head = TARGET.get_output_embeddings().weight
    net.copy_output(head)
    assert torch.equal(net.lm_head.weight, head[net.vocabulary.ids])


def test_rotary_positions_are_llamas():
    config = LayerConfig.like(TARGET.config)
    cosines, sines = Rotary(config)(torch.arange(7))
    expected = TARGET.model.rotary_emb(torch.zeros(1, dtype=torch.float32), torch.arange(7)[None])
    for mine, theirs in zip((cosines, sines), expected, strict=True):
        assert torch.allclose(torch.cat((mine, mine), -1)[:, 0], theirs[0].float(), atol=1e-6)


def test_usual_taps():
    assert usual_taps(30) == (2, 15, 27)
    assert usual_taps(28) == (2, 14, 25)
    for layers in range(1, 7):
        with pytest.raises(UnsupportedModelError, match=f"{layers} layers"):
            usual_taps(layers)


@pytest.mark.parametrize("taps", [(), (2, 1), (1, 1), (-1, 2), (1, 9)])
def test_taps_that_cannot_be(taps):
    with pytest.raises(UnsupportedModelError, match="taps"):
        Eagle3Config.like(TARGET.config, taps=taps)


def test_a_target_of_another_width_is_refused():
    other = torch.zeros(48, 16)
    for kind in EAGLES:
        with pytest.raises(UnsupportedModelError, match="32 wide"):
            tiny_head(kind, TARGET).share(other, other)
    with pytest.raises(UnsupportedModelError, match="taps layer 3"):
        tiny_head("eagle3", TARGET).taps(2)


@pytest.mark.parametrize("kind", KINDS)
def test_a_draft_vocabulary_of_another_target_is_refused(kind):
    net = tiny_head(kind, TARGET)
    with pytest.raises(VocabularyError, match="60"):
        type(net)(net.config, some_ids(60, 9))
