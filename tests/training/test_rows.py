"""Broken rows: skipped, counted, named; and an error where the user wants none."""

import json

import pytest

from truedraft.errors import InputError, ParameterError
from truedraft.training.rows import AnswerRow, read_answers, read_prompts

USER, ASSISTANT = {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}
BROKEN = [
    "{not json",
    "[]",
    '"text"',
    "{}",
    json.dumps({"prompt": None}),
    json.dumps({"prompt": 3}),
    json.dumps({"prompt": "  "}),
    json.dumps({"messages": []}),
    json.dumps({"messages": [ASSISTANT, USER]}),
    json.dumps({"messages": [USER, USER]}),
    json.dumps({"messages": [USER, ASSISTANT]}),
    json.dumps({"messages": [{"role": "system", "content": "a"}]}),
    json.dumps({"messages": [{"role": "user"}]}),
    json.dumps({"messages": [{"role": "robot", "content": "a"}]}),
    json.dumps({"turns": []}),
    "\xff".encode("latin1").decode("latin1") + "{",
]


@pytest.mark.parametrize("line", BROKEN)
def test_a_broken_row_is_skipped_and_named(tmp_path, line):
    path = tmp_path / "prompts.jsonl"
    path.write_text(f'{{"prompt": "one"}}\n{line}\n\n{{"prompt": "two", "id": "x"}}\n', "utf-8")
    rows, broken = read_prompts(path)
    assert [(row.index, row.id, row.messages[0]["content"]) for row in rows] == [(0, "0", "one"), (3, "x", "two")]
    assert broken.count == 1 and broken.first[0][0] == 2 and "line 2" in str(broken)
    with pytest.raises(InputError, match="line 2"):
        read_prompts(path, strict=True)


def test_good_rows_of_every_form(tmp_path):
    path = tmp_path / "prompts.jsonl"
    system = {"role": "system", "content": "s"}
    forms = [{"prompt": "p"}, {"turns": ["t", "u"], "question_id": 7}, {"messages": [system, USER, ASSISTANT, USER]}]
    path.write_text("\n".join(map(json.dumps, [*forms, {"prompt": "x" * 2_000_000}])), "utf-8")
    rows, broken = read_prompts(path, strict=True)
    assert broken.count == 0 and [row.id for row in rows] == ["0", "7", "2", "3"]
    assert rows[1].messages == ({"role": "user", "content": "t"},) and len(rows[2].messages) == 4


def test_only_the_first_faults_are_listed(tmp_path):
    path = tmp_path / "prompts.jsonl"
    path.write_text("{}\n" * 20 + '{"prompt": "p"}', "utf-8")
    broken = read_prompts(path)[1]
    assert broken.count == 20 and len(broken.first) == 5 and "..." in str(broken)


@pytest.mark.parametrize("content", [None, "", "{}\n"])
def test_a_file_without_rows_is_an_error(tmp_path, content):
    path = tmp_path / "prompts.jsonl"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ParameterError, match=r"prompts\.jsonl"):
        read_prompts(path)


def test_answers_survive_the_file(tmp_path):
    row = AnswerRow("a", (USER,), (1, 2), (3,), 0.5, 9)
    path = tmp_path / "shard.jsonl"
    faults = [{"prompt_ids": [1]}, {"prompt_ids": [1], "answer_ids": []}, {"prompt_ids": [1.5], "answer_ids": [2]}]
    path.write_text("\n".join([row.to_json(), *map(json.dumps, faults), '{"prompt_ids": [-1], "answer_ids": [2]}']))
    rows, broken = read_answers(path)
    assert rows == [row] and rows[0].tokens == (1, 2, 3) and broken.count == 4


def test_answers_that_are_given(tmp_path):
    path = tmp_path / "prompts.jsonl"
    lines = [{"messages": [USER, ASSISTANT]}, {"question": "q", "answer": "r"}, {"prompt": "p"}, {"messages": [USER]}]
    path.write_text("\n".join(map(json.dumps, lines)))
    rows, broken = read_prompts(path, given=True)
    assert [(row.messages[-1]["content"], row.given) for row in rows] == [("a", "b"), ("q", "r")]
    assert broken.count == 2 and broken.first[1][0] == 4
