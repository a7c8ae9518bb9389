"""A converted folder computes what the source of its GGUF file computes, and nothing is made up on the way."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging as chatter

from tests.models.ggufs import END, STOP, TEMPLATE, Steps, source_model, tensors, tokens, write_gguf
from truedraft.errors import CorruptModelError, UnsupportedModelError
from truedraft.models import Silent
from truedraft.models.convert import convert
from truedraft.models.folder import check_folder

PROMPT = torch.tensor([[1, 70, 80, 90, 2, 100, 11]])


@pytest.fixture(scope="module")
def folder(tiny_gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("converted") / "tiny"
    convert(tiny_gguf, made, progress=Silent())
    return made


def test_logits_are_those_of_the_source_to_the_last_bit(folder: Path) -> None:
    check_folder(folder)
    loaded, report = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    assert not any(report[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    with torch.no_grad():
        assert torch.equal(loaded(PROMPT).logits, source_model()(PROMPT).logits)


def test_weights_that_bfloat16_does_not_hold_exactly_stay_float32(folder: Path) -> None:
    assert json.loads((folder / "config.json").read_text())["dtype"] == "float32"


def test_weights_that_bfloat16_holds_exactly_are_stored_so(tmp_path: Path) -> None:
    source = source_model(dtype=torch.bfloat16)
    convert(write_gguf(tmp_path / "half.gguf", tensors(source)), tmp_path / "half", progress=Silent())
    assert json.loads((tmp_path / "half" / "config.json").read_text())["dtype"] == "bfloat16"
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "half", dtype=torch.float32)
    with torch.no_grad():
        assert torch.equal(loaded(PROMPT).logits, source(PROMPT).logits)


def test_config_has_no_trace_of_the_quantised_file(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    assert not {"quantization_config", "_model_name_or_path", "gguf_file"} & config.keys()
    assert config["tie_word_embeddings"] is True


def test_tokenizer_and_chat_template_come_along(folder: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert tokenizer.chat_template == TEMPLATE
    text = tokenizer.apply_chat_template([{"role": "user", "content": "ab é"}], tokenize=False)
    ids = tokenizer(text)["input_ids"]
    assert ids[:2] == [1, tokens().index("ab")]
    assert ids[-1] == END
    assert tokenizer.decode(ids) == text


def test_end_tokens_are_the_file_s_own(folder: Path, tmp_path: Path) -> None:
    assert json.loads((folder / "generation_config.json").read_text())["eos_token_id"] == END
    file = write_gguf(tmp_path / "two.gguf", extra=lambda writer: writer.add_eot_token_id(STOP))
    convert(file, tmp_path / "two", progress=Silent())
    assert json.loads((tmp_path / "two" / "generation_config.json").read_text())["eos_token_id"] == [END, STOP]


def test_named_end_tokens_replace_them(tiny_gguf: Path, tmp_path: Path) -> None:
    convert(tiny_gguf, tmp_path / "named", progress=Silent(), eos=("<|stop|>", "<|end|>"))
    assert json.loads((tmp_path / "named" / "generation_config.json").read_text())["eos_token_id"] == [STOP, END]


def test_progress_covers_all_tensors_and_nothing_is_printed(
    tiny_gguf: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    steps = Steps()
    chatter.enable_progress_bar()
    convert(tiny_gguf, tmp_path / "told", progress=steps)
    assert chatter.is_progress_bar_enabled()
    [(description, total, done, finished)] = steps.steps
    assert description == "converting tiny.gguf"
    assert total == done == sum(value.nbytes for value in tensors(source_model()).values())
    assert finished
    assert capfd.readouterr() == ("", "")


def test_a_config_beside_the_file_is_not_read(tiny_gguf: Path, tmp_path: Path) -> None:
    crowded = tmp_path / "crowded"
    crowded.mkdir()
    (crowded / "tiny.gguf").write_bytes(tiny_gguf.read_bytes())
    for name in ("config.json", "tokenizer_config.json", "tokenizer.json", "generation_config.json"):
        (crowded / name).write_text('{"model_type": "gpt2", "tokenizer_class": "T5Tokenizer", "eos_token": "x"}')
    convert(crowded / "tiny.gguf", tmp_path / "out", progress=Silent())
    assert json.loads((tmp_path / "out" / "config.json").read_text())["model_type"] == "llama"
    assert AutoTokenizer.from_pretrained(tmp_path / "out").eos_token == "<|end|>"


@pytest.mark.parametrize("lost", ["blk.1.ffn_up.weight", "output_norm.weight", "token_embd.weight"])
def test_a_missing_weight_is_an_error_and_not_random(lost: str, tmp_path: Path) -> None:
    weights = tensors(source_model())
    del weights[lost]
    with pytest.raises(CorruptModelError, match=r"lacks [12] weights of its model"):
        convert(write_gguf(tmp_path / "less.gguf", weights), tmp_path / "less", progress=Silent())


def test_a_weight_without_a_place_is_an_error_and_not_dropped(tmp_path: Path) -> None:
    weights = tensors(source_model())
    weights["blk.0.attn_q_norm.weight"] = np.ones(8, dtype=np.float32)
    with pytest.raises(UnsupportedModelError, match=r"places for"):
        convert(write_gguf(tmp_path / "more.gguf", weights), tmp_path / "more", progress=Silent())


def test_a_weight_of_another_shape_is_an_error(tmp_path: Path) -> None:
    weights = tensors(source_model())
    weights["blk.0.ffn_up.weight"] = weights["blk.0.ffn_up.weight"][:32]
    with pytest.raises(UnsupportedModelError, match=r"cannot build"):
        convert(write_gguf(tmp_path / "small.gguf", weights), tmp_path / "small", progress=Silent())


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_no_numbers_are_an_error(value: float, tmp_path: Path) -> None:
    weights = tensors(source_model())
    weights["blk.1.ffn_down.weight"] = weights["blk.1.ffn_down.weight"].copy()
    weights["blk.1.ffn_down.weight"][3, 5] = value
    with pytest.raises(CorruptModelError, match=r"infinite values or values that are no numbers"):
        convert(write_gguf(tmp_path / "nan.gguf", weights), tmp_path / "nan", progress=Silent())


def test_an_unknown_architecture_is_said_to_be_one(tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "rwkv.gguf", architecture="rwkv7")
    with pytest.raises(UnsupportedModelError, match=r"architecture 'rwkv7'"):
        convert(file, tmp_path / "rwkv", progress=Silent())
