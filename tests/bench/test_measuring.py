"""What commands that measure share: options of drafters, prompts of tasks, what is said of them."""

import json

import pytest

from truedraft.bench.arms import Order
from truedraft.bench.grid import Load
from truedraft.cli.measuring import extras_of, warnings_of
from truedraft.cli.prompts import prompts_of
from truedraft.errors import ParameterError
from truedraft.request import Facts


class Letters:
    """A tokenizer of one id a letter."""

    def encode(self, text):
        return [ord(letter) for letter in text]


FACTS = Facts(vocabulary=128, tokenizer=Letters())


# ── options of drafters ───────────────────────────────────────────────────────────────────────────────────────────


def test_every_drafter_gets_what_it_uses_and_what_its_small_model_is_loaded_by():
    loading = {"dtype": "float32", "offline": True}
    found = extras_of(["ngram", "cascade", "merge", "eagle3"], head="h", **loading)
    assert found == {
        "ngram": loading,
        "cascade": loading | {"head": "h"},
        "merge": loading | {"head": "h"},
        "eagle3": loading | {"head": "h"},
    }
    assert extras_of(["model", "cascade"], draft_model="m") == {
        "model": {"draft_model": "m"},
        "cascade": {"draft_model": "m"},
    }
    assert extras_of(["model", "eagle3"], draft_model="m", head="h")["eagle3"] == {"head": "h"}


@pytest.mark.parametrize(
    ("drafters", "given", "named"),
    [
        (["ngram"], {"head": "h"}, "head is 'h'"),
        (["eagle3"], {"draft_model": "m"}, "draft_model is 'm'"),
        (["cascade"], {"head": "h", "draft_model": "m"}, "leave one out"),
    ],
)
def test_what_no_drafter_uses_is_refused(drafters, given, named):
    with pytest.raises(ParameterError, match=named):
        extras_of(drafters, **given)


# ── prompts ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def file(tmp_path):
    rows = [("a", "writing"), ("b", "writing"), ("c", "coding"), ("d", "qa"), ("e", "qa"), ("f", "rag")]
    path = tmp_path / "spec.jsonl"
    path.write_text("".join(json.dumps({"prompt": text, "category": name}) + "\n" for text, name in rows))
    return str(path)


def texts_of(found):
    return {name: "".join(chr(id) for ids in prompts for id in ids) for name, prompts in found.items()}


def test_categories_have_their_turns(file):
    assert texts_of(prompts_of(FACTS, [file], count=4)) == {"spec": "acdf"}
    assert texts_of(prompts_of(FACTS, [file], count=9)) == {"spec": "acdfbe"}
    assert texts_of(prompts_of(FACTS, [f"{file}:qa"], count=1)) == {"spec:qa": "d"}


def test_all_categories_are_tasks_of_their_own(file):
    """As Spec-Bench counts: what MT-bench is made of is one."""
    found = texts_of(prompts_of(FACTS, [f"{file}:*"], count=9))
    assert found == {"spec:mt_bench": "acb", "spec:qa": "de", "spec:rag": "f"}


def test_a_file_without_categories_has_none(tmp_path):
    path = tmp_path / "plain.jsonl"
    path.write_text('{"prompt": "x"}\n{"prompt": "y"}\n')
    assert texts_of(prompts_of(FACTS, [str(path)], count=9)) == {"plain": "xy"}
    with pytest.raises(ParameterError, match="has no categories"):
        prompts_of(FACTS, [f"{path}:*"], count=9)


def test_few_prompts_are_said_to_be_few():
    few, many = [(n,) for n in range(9)], [(n,) for n in range(10)]
    for prompts, said in ((few, True), (many, False)):
        found = warnings_of({"one": prompts, "two": many}, [Load("one", 1), Load("two", 1)], Order((), ()), 2)
        assert any("measure at least 10" in line for line in found) == said
