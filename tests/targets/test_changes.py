"""A model in memory stays its owner's: what changes in it counts from the next request on, and it keeps its modes."""

import pytest
import torch
from torch import nn

from tests.targets.reference import text
from tests.tiny import tiny_model
from truedraft import ParameterError, load
from truedraft.targets.changes import state_of

PROMPT = text(24)


def written(model):
    """Text and probabilities, which hang on every weight."""
    result = model.generate(PROMPT, max_new_tokens=8, ignore_eos=True, logprobs=2)
    return result.token_ids, result.logprobs


def trained(family="llama"):
    """A model that its owner trains."""
    model = tiny_model(family)
    model.requires_grad_(True)
    return model


def step(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    model(torch.tensor([PROMPT]), labels=torch.tensor([PROMPT])).loss.backward()
    optimizer.step()


def assigned(model):
    others = {name: weight.clone() for name, weight in tiny_model(seed=1).state_dict().items()}
    model.load_state_dict(others, assign=True)


CHANGES = {
    "a step of an optimizer": step,
    "other weights, copied": lambda model: model.load_state_dict(tiny_model(seed=1).state_dict()),
    "other weights, assigned": assigned,
    "other memory": lambda model: setattr(model.model.layers[0].input_layernorm.weight, "data", torch.full((32,), 2.0)),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("drafter", ["none", "ngram"])
def test_weights_that_change_change_the_text(change, drafter):
    model = trained()
    ours = load(model, drafter=drafter)
    before = written(ours)
    change(model)
    after = written(ours)
    assert after != before
    assert after == written(load(model, drafter=drafter))


def test_what_was_read_is_kept_as_long_as_nothing_changes():
    model = trained()
    ours, tokens = load(model, drafter="none"), []
    model.get_input_embeddings().register_forward_pre_hook(lambda module, inputs: tokens.append(inputs[0].numel()))
    first = written(ours)
    count = sum(tokens)
    assert written(ours) == first
    assert sum(tokens) == 2 * count - (len(PROMPT) - 1)


def test_an_adapter_that_is_switched_is_a_change():
    model = trained()
    layer = model.model.layers[0].self_attn.q_proj
    layer._active_adapter = ["one"]
    states = [state_of(model), state_of(model)]
    layer._active_adapter = ["other"]
    states.append(state_of(model))
    layer._disable_adapters = True
    states.append(state_of(model))
    assert states[0] == states[1] and len(set(map(repr, states))) == 3


def test_weights_without_a_counter_are_looked_at_too():
    with torch.inference_mode():
        model = nn.Linear(2, 2)
    assert state_of(model) == state_of(model)


def test_modes_are_left_as_they_are():
    model = trained("gpt2").train()  # with dropout
    model.transformer.h[1].eval()
    modes = [part.training for part in model.modules()]
    ours = load(model, drafter="ngram")
    assert [part.training for part in model.modules()] == modes
    assert written(ours) == written(load(tiny_model("gpt2"), drafter="ngram"))
    assert [part.training for part in model.modules()] == modes and any(modes) and not all(modes)


# ── what is no model ──────────────────────────────────────────────────────────────────────────────────────────────


class Wrapped(nn.Module):
    """A model in the way that PEFT wraps one, with what it adds inside or beside."""

    def __init__(self, model, beside=None):
        super().__init__()
        self.inner, self.beside = model, beside

    def get_base_model(self):
        return self.inner


@pytest.mark.parametrize(
    "target", [nn.Linear(2, 2), 42, None, ["smollm2-135m"], Wrapped(tiny_model(), beside=nn.Linear(2, 2))]
)
def test_what_is_no_model_is_an_error_of_one_line(target):
    with pytest.raises(ParameterError, match=f"target is a {type(target).__name__}: expected a name") as raised:
        load(target)
    assert "\n" not in str(raised.value)


def test_a_model_whose_adapter_is_in_its_layers_is_unwrapped():
    assert written(load(Wrapped(tiny_model()), drafter="none")) == written(load(tiny_model(), drafter="none"))
