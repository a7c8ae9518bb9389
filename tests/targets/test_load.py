"""A model folder loads completely or not at all, and a model that cannot be decoded speculatively says why."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import (
    AutoConfig,
    BertConfig,
    BertLMHeadModel,
    BloomConfig,
    BloomForCausalLM,
    Gemma3TextConfig,
    GenerationConfig,
    GptOssConfig,
    GptOssForCausalLM,
    MambaConfig,
    MambaForCausalLM,
    Phi3Config,
    PreTrainedTokenizerFast,
    Qwen3NextConfig,
    T5Config,
)
from transformers.cache_utils import Cache

from tests.targets.reference import grown, one_path_at_a_time, plain, text, tiny_gemma2
from tests.tiny import FAMILIES, tiny_model
from truedraft.build import load
from truedraft.errors import CorruptModelError, ParameterError, UnknownModelError, UnsupportedModelError
from truedraft.targets.cached import CachedModel, Nodes
from truedraft.targets.kernels import why_not
from truedraft.targets.load import load_model, load_tokenizer
from truedraft.targets.support import check_supported, context_length
from truedraft.targets.trial import SurveyCache, survey

WEIGHTS = "model.safetensors"


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A tiny Llama with tied embeddings, in bfloat16, as files."""
    folder = tmp_path_factory.mktemp("saved")
    tiny_model(dtype=torch.bfloat16).save_pretrained(folder)
    return folder


@pytest.fixture
def folder(saved, tmp_path):
    return shutil.copytree(saved, tmp_path / "model")


def change(folder, **tensors):
    """Rewrite the weights with some tensors replaced; None takes one out."""
    weights = load_file(folder / WEIGHTS) | tensors
    kept = {name: tensor for name, tensor in weights.items() if tensor is not None}
    save_file(kept, folder / WEIGHTS, metadata={"format": "pt"})


# ── what loads ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("dtype", ["auto", "float32", "bfloat16", torch.float16, "float64"])
def test_a_folder_in_any_precision_on_a_cpu(saved, dtype):
    model = load_model(saved, dtype=dtype, device="cpu")
    assert str(model.dtype) == "torch." + str(dtype).removeprefix("torch.").replace("auto", "float32")
    assert not model.model.training and not any(part.requires_grad for part in model.model.parameters())
    model.read("a", text(5))
    (scores,) = model.extend(["a"], [Nodes.chain((5, 6))])
    assert torch.allclose(scores.logits, plain(model.model, [*text(5), 5, 6])[-2:], atol=0.2)
    assert scores.logits.is_inference()


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("attention", ["auto", "eager"])
def test_every_family_loads(tmp_path, family, attention):
    original = tiny_model(family)
    original.save_pretrained(tmp_path)
    model = load_model(tmp_path, device="cpu", attention=attention)
    assert model.model.config._attn_implementation == attention.replace("auto", "sdpa")
    model.read("a", text(11))
    (scores,) = model.extend(["a"], [Nodes((5, 6, 7), (-1, 0, 0))])
    assert torch.allclose(scores.logits, one_path_at_a_time(original, text(11), (5, 6, 7), (-1, 0, 0)), atol=1e-4)


def tiny_gpt_oss():
    """Its attention has sinks, which neither transformers' sdpa knows nor ours."""
    size = {"vocab_size": 48, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "head_dim": 16}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "num_local_experts": 4, "num_experts_per_tok": 2}
    ends = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, "max_position_embeddings": 128}
    return grown(GptOssForCausalLM(GptOssConfig(sliding_window=8, rope_parameters=ROPE, **size, **heads, **ends)))


ROPE = {"rope_type": "default", "rope_theta": 10_000.0}


@pytest.mark.parametrize("make", [tiny_gemma2, tiny_gpt_oss])
def test_models_without_sdpa_load_by_name_and_write_their_own_text(tmp_path, make):
    original = make()
    original.save_pretrained(tmp_path)
    model = load_model(tmp_path, device="cpu")
    assert model.model.config._attn_implementation == "eager"
    model.read("a", text(11))
    (scores,) = model.extend(["a"], [Nodes((5, 6, 7), (-1, 0, 0))])
    assert torch.allclose(scores.logits, one_path_at_a_time(original, text(11), (5, 6, 7), (-1, 0, 0)), atol=1e-4)
    prompt = [5, 6, 7, 8] * 5
    fast, slow = (load(tmp_path, drafter=drafter, device="cpu") for drafter in ("ngram", "none"))
    written = fast.generate(prompt, max_new_tokens=40, ignore_eos=True).token_ids
    assert written == slow.generate(prompt, max_new_tokens=40, ignore_eos=True).token_ids
    longer = plain(original, [*prompt, *written])[len(prompt) - 1 : -1]
    assert written == tuple(longer.argmax(-1).tolist())
    ours = fast.decoder.target.model.model.config._attn_implementation.startswith("truedraft")
    if why_not(torch.zeros(1)) is None:
        assert ours == (make is tiny_gemma2)
        assert any("it is given s_aux" in note for note in fast.notes) != ours


def test_an_attention_that_a_model_has_not_is_said_to_be_left_out(tmp_path):
    tiny_gemma2().save_pretrained(tmp_path)
    with pytest.raises(UnsupportedModelError, match=r"with sdpa attention: .*; leave attention out") as raised:
        load_model(tmp_path, attention="sdpa")
    assert "\n" not in str(raised.value)


def test_tied_embeddings_are_not_missing_and_untied_ones_are(folder):
    assert "lm_head.weight" not in load_file(folder / WEIGHTS)
    load_model(folder, device="cpu")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"tie_word_embeddings": False}))
    with pytest.raises(CorruptModelError, match=r"1 tensors are missing .* lm_head\.weight"):
        load_model(folder)


def test_pickled_weights_are_read_only_if_allowed(folder):
    torch.save(load_file(folder / WEIGHTS), folder / "pytorch_model.bin")
    (folder / WEIGHTS).unlink()
    with pytest.raises(UnsupportedModelError, match="allow pickle"):
        load_model(folder)
    assert load_model(folder, device="cpu", allow_pickle=True).vocab_size == 48


@pytest.mark.parametrize("content", [b"", b"pickled", b"<html>" * 50, b"PK\x03\x04" + b"x" * 90])
def test_damaged_pickles_are_an_error_of_one_line(folder, content):
    torch.save(load_file(folder / WEIGHTS), folder / "pytorch_model.bin")
    (folder / WEIGHTS).unlink()
    whole = (folder / "pytorch_model.bin").read_bytes()
    for damaged in (content, whole[: len(whole) // 2], whole[:-30]):
        (folder / "pytorch_model.bin").write_bytes(damaged)
        with pytest.raises(CorruptModelError) as raised:
            load_model(folder, device="cpu", allow_pickle=True)
        assert len(str(raised.value).splitlines()) == 1


def test_shards(saved, tmp_path):
    load_model(saved, device="cpu").model.save_pretrained(tmp_path, max_shard_size="20KB")
    load_model(tmp_path)
    sorted(tmp_path.glob("*.safetensors"))[2].unlink()
    with pytest.raises(CorruptModelError, match="model-00003"):
        load_model(tmp_path)


def test_a_tokenizer_if_there_is_one(folder):
    assert load_tokenizer(folder) is None
    words = {"a": 0, "b": 1, "c": 2}
    PreTrainedTokenizerFast(tokenizer_object=Tokenizer(WordLevel(words, "a"))).save_pretrained(folder)
    assert len(load_tokenizer(folder)) == 3
    (folder / "tokenizer.json").write_text("{")
    (folder / "tokenizer_config.json").write_text("{")
    with pytest.raises(CorruptModelError, match="tokenizer"):
        load_tokenizer(folder)


# ── what does not ─────────────────────────────────────────────────────────────────────────────────────────────────

QUERY = "model.layers.1.self_attn.q_proj.weight"
DAMAGE = {
    "a tensor is missing": lambda folder: change(folder, **{QUERY: None}),
    "a tensor has another shape": lambda folder: change(folder, **{QUERY: torch.zeros(3, 3)}),
    "a tensor is no number": lambda folder: change(folder, **{QUERY: torch.full((32, 32), torch.nan)}),
    "the end is missing": lambda folder: (folder / WEIGHTS).write_bytes((folder / WEIGHTS).read_bytes()[:9000]),
    "the file is empty": lambda folder: (folder / WEIGHTS).write_bytes(b""),
    "the file is something else": lambda folder: (folder / WEIGHTS).write_bytes(b"<html>" * 50),
    "the file is missing": lambda folder: (folder / WEIGHTS).unlink(),
    "the configuration is no JSON": lambda folder: (folder / "config.json").write_text('{"model_type": '),
    "the configuration is nonsense": lambda folder: (folder / "config.json").write_text(
        '{"model_type": "llama", "hidden_size": "large"}'
    ),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_damage_is_an_error_of_one_line(folder, damage):
    damage(folder)
    with pytest.raises(CorruptModelError) as raised:
        load_model(folder, device="cpu")
    assert len(str(raised.value).splitlines()) == 1


def test_what_is_no_model_folder(tmp_path):
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(UnknownModelError, match=r"no config\.json"):
            load_model(folder)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ({"model_type": "mamba"}, "recurrent state"),
        ({"model_type": "qwen3_next"}, "recurrent state"),
        ({"model_type": "t5"}, "encoder-decoder"),
        ({"model_type": "never_heard_of"}, "never_heard_of"),
        ({"auto_map": {"AutoConfig": "code.Config"}, "model_type": "own"}, ".*"),
    ],
)
def test_configurations_that_are_not_supported_say_why(tmp_path, content, reason):
    (tmp_path / "config.json").write_text(json.dumps(content))
    with pytest.raises((UnsupportedModelError, CorruptModelError), match=reason):
        load_model(tmp_path)


@pytest.mark.parametrize(
    "options", [{"dtype": "float8"}, {"device": "abacus"}, {"device": "cuda:77"}, {"attention": "some"}]
)
def test_options_that_mean_nothing(saved, options):
    if options.get("device") == "cuda:77" and torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(ParameterError, match=next(iter(options.values()))):
        load_model(saved, **options)


# ── which models ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (MambaConfig(), "recurrent state"),
        (Qwen3NextConfig(), "recurrent state"),
        (T5Config(), "encoder-decoder"),
        (Gemma3TextConfig(use_bidirectional_attention=True), "later tokens"),
    ],
    ids=lambda value: getattr(value, "model_type", ""),
)
def test_a_configuration_can_rule_a_model_out(config, reason):
    with pytest.raises(UnsupportedModelError, match=reason):
        check_supported(config)


def test_layers_that_are_no_attention_are_named():
    config = AutoConfig.for_model("llama")
    config.layer_types = ["full_attention", "conv"]
    with pytest.raises(UnsupportedModelError, match="conv are not plain attention"):
        check_supported(config)


def test_a_quantized_cache_is_refused():
    model = tiny_model()
    model.generation_config = GenerationConfig(cache_implementation="quantized")
    with pytest.raises(UnsupportedModelError, match="quantized cache"):
        CachedModel(model)


UNFIT = {
    "bert": lambda: BertLMHeadModel(
        BertConfig(vocab_size=48, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=32)
    ),
    "bloom": lambda: BloomForCausalLM(BloomConfig(vocab_size=48, hidden_size=32, n_layer=2, n_head=4)),
    "mamba": lambda: MambaForCausalLM(MambaConfig(vocab_size=48, hidden_size=32, num_hidden_layers=2)),
    "no model": lambda: torch.nn.Linear(2, 2),
}


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("bert", "later tokens"),
        ("bloom", "unlike its paths"),
        ("mamba", "recurrent state"),
        ("no model", "Linear is not a transformers model"),
    ],
)
def test_models_that_would_be_silently_wrong_are_refused(name, reason):
    """Attention to later tokens, distances counted in slots, a memory that cannot forget."""
    torch.manual_seed(0)
    model = UNFIT[name]()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    with pytest.raises(UnsupportedModelError, match=reason):
        CachedModel(model)


@pytest.mark.parametrize(
    ("name", "value"),
    [("position_ids", torch.arange(64)), ("attention_mask", torch.zeros(1, 1, 1, 1, dtype=torch.float64))],
)
def test_a_model_that_ignores_positions_or_mask_is_found_out(name, value):
    def ignore(module, inputs, options):
        width = options["input_ids"].shape[1]
        return inputs, options | {name: value[None, :width] if name == "position_ids" else value}

    model = tiny_model(dtype=torch.float64)
    model.model.register_forward_pre_hook(ignore, with_kwargs=True)
    with pytest.raises(UnsupportedModelError, match=r"later tokens|unlike its paths"):
        survey(model)


def test_a_model_that_reads_with_another_decoder_than_it_scores_with_is_found_out():
    model = tiny_model()
    model.get_decoder = tiny_model(seed=1).get_decoder
    with pytest.raises(UnsupportedModelError, match="unlike its paths"):
        survey(model)


def test_an_attention_that_takes_no_mask_of_ours_is_refused():
    model = tiny_model()
    model.config._attn_implementation = "flash_attention_2"
    with pytest.raises(UnsupportedModelError, match=r"flash_attention_2 .* sdpa or eager"):
        CachedModel(model)


def test_a_survey_finds_shapes_and_vocabulary():
    shapes, vocabulary = survey(tiny_model("gemma3"))
    assert shapes == [(2, 16)] * 8 and vocabulary == 48
    assert isinstance(SurveyCache(), Cache)
    with pytest.raises(ValueError, match="only"):
        _ = SurveyCache().shapes


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (BloomConfig(), None),
        (Gemma3TextConfig(max_position_embeddings=500), 500),
        (AutoConfig.for_model("llama", max_position_embeddings=300), 300),
        (AutoConfig.for_model("gpt2", n_positions=70), 70),
        (
            AutoConfig.for_model("llama", rope_parameters={"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}),
            2048,
        ),
        (
            Phi3Config(
                max_position_embeddings=1000,
                original_max_position_embeddings=100,
                rope_parameters={
                    "rope_type": "longrope",
                    "rope_theta": 1e4,
                    "short_factor": [1.0] * 48,
                    "long_factor": [2.0] * 48,
                },
            ),
            100,
        ),
    ],
    ids=["none", "gemma3", "llama", "gpt2", "dynamic", "longrope"],
)
def test_the_context_ends_where_positions_or_their_meaning_do(config, expected):
    assert context_length(config) == expected
