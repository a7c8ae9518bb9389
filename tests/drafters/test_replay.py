"""Tables from answers: what reading them again teaches is what writing them would have taught."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from tests.folders import folder
from tests.tiny import tiny_model
from truedraft import build
from truedraft.cli import main
from truedraft.decode import Decoder
from truedraft.drafters import replay as replaying
from truedraft.drafters.count_table import SEED, CountTable, extend_key
from truedraft.drafters.recycle import RecycleDrafter
from truedraft.drafters.replay import ask_after_tokens, rare_contexts, replay
from truedraft.model import Model
from truedraft.planning.fixed import Fixed
from truedraft.request import Facts
from truedraft.targets.cached import CachedModel
from truedraft.targets.torch_target import TorchTarget
from truedraft.verify import target_only

V = 48
PROMPTS = [[3, 1, 4, 1, 5], [8, 9, 7], [9], list(range(10, 40))]


def decoded(table):
    """Answers, with a table that learned while they were written."""
    drafter = RecycleDrafter(table, share=True)
    target = TorchTarget(CachedModel(tiny_model(seed=1, dtype=torch.float64)))
    decoder = Decoder(target, drafter, target_only.RULE, Fixed(build.parse_shape(None, "6")))
    results = Model(decoder, Facts(vocabulary=V), batch=1).generate(PROMPTS, max_new_tokens=30)
    return [(prompt, result.token_ids) for prompt, result in zip(PROMPTS, results, strict=True)]


@pytest.mark.parametrize("piece", [256, 7])
def test_reading_teaches_what_writing_does(monkeypatch, piece):
    monkeypatch.setattr(replaying, "_PIECE", piece)
    written, read = CountTable(1 << 14, V), CountTable(1 << 14, V)
    exchanges = decoded(written)
    told = []
    replay(CachedModel(tiny_model(seed=1, dtype=torch.float64)), exchanges, read, told=told.append)
    assert told == [30, 60, 90, 120]
    for name in ("checks", "counts", "tokens"):
        assert np.array_equal(written.arrays[name], read.arrays[name])
    assert np.abs(written.arrays["shares"].astype(int) - read.arrays["shares"].astype(int)).max() <= 1


def test_an_answer_beyond_the_context_is_cut():
    model = CachedModel(tiny_model(seed=1, max_position_embeddings=20))
    told = []
    replay(model, [(range(15), range(20))], CountTable(1 << 10, V), told=told.append)
    assert told == [6]


def key_of(*tokens):
    key = SEED
    for token in reversed(tokens):
        key = extend_key(key, token)
    return key


def test_long_contexts_that_occur_once_can_be_left_out():
    exchanges = [((1, 2, 3), (4, 5)), ((0, 2, 3), (4, 6))]
    assert rare_contexts(exchanges) == {key_of(1, 2, 3), key_of(0, 2, 3), key_of(1, 2, 3, 4), key_of(0, 2, 3, 4)}
    table = CountTable(1 << 10, V)
    model = CachedModel(tiny_model())
    replay(model, exchanges, table, without=rare_contexts(exchanges))
    assert table.count(table.find(key_of(2, 3, 4))) == 2
    assert table.find(key_of(1, 2, 3)) < 0 <= table.find(key_of(2, 3))


def test_tokens_of_which_nothing_is_known_are_tried_behind_a_prompt(monkeypatch):
    monkeypatch.setattr(replaying, "_PIECE", 20)
    model, table = tiny_model(seed=1, dtype=torch.float64), CountTable(1 << 10, V)
    table.learn(key_of(5), [7], [40_000])
    ask_after_tokens(CachedModel(model), [3, 1, 4], table)
    assert len(table) == V and table.tokens(table.find(key_of(5)))[0] == 7
    for token in (0, 6, V - 1):
        p = model(torch.tensor([[3, 1, 4, token]])).logits[0, -1].softmax(0)
        row = table.find(key_of(token))
        assert table.tokens(row) == p.topk(8).indices.tolist()
        assert table.shares(row)[0] == pytest.approx(65535 * float(p.max()), abs=2)


def test_the_command_fills_a_file_that_recycling_starts_from(tmp_path, capsys):
    model, answers, memory = folder(tmp_path / "model"), tmp_path / "answers.jsonl", tmp_path / "memory.npz"
    loaded = build.load(model, drafter="none")
    plain = loaded.generate("abcabc", max_new_tokens=40)
    prompt_ids = loaded.facts.tokenizer("abcabc")["input_ids"]
    row = {"prompt_ids": prompt_ids, "answer_ids": list(plain.token_ids)}
    answers.write_text(f"{json.dumps(row)}\n{{}}\n{json.dumps(row)}\n")
    assert main(["fill-memory", str(answers), "--model", model, "--out", str(memory), "--rare"]) == 0
    assert "contexts from 80 tokens" in capsys.readouterr().out
    warm = build.load(model, drafter="recycle", memory=memory).generate("abcabc", max_new_tokens=40)
    cold = build.load(model, drafter="recycle").generate("abcabc", max_new_tokens=40)
    assert warm.token_ids == cold.token_ids == plain.token_ids
    assert warm.statistics.rounds < cold.statistics.rounds
    assert main(["fill-memory", str(tmp_path / "none.jsonl"), "--out", str(memory)]) == 2
    assert main(["fill-memory", str(answers), "--model", model, "--out", str(memory), "--most", "0"]) == 2
    assert main(["fill-memory", str(answers), "--model", model, "--out", str(memory), "--most", "1"]) == 0
    assert "from 40 tokens" in capsys.readouterr().out
