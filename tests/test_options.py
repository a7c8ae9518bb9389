"""Options as Python code gives them: natural values work, absurd ones are one line that names them."""

from itertools import product

import pytest
import torch

from tests.folders import folder
from tests.tiny import tiny_model
from truedraft import ParameterError, load
from truedraft.build import DRAFTERS, Options
from truedraft.build.options import parse_shape
from truedraft.core import Law, Shape
from truedraft.drafters import DEFAULT, NAMES
from truedraft.planning.trees import branching_text
from truedraft.verify.auto import RULES


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return folder(tmp_path_factory.mktemp("model"))


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("draft_tokens", "4", "a whole number"),
        ("draft_tokens", 2.5, "a whole number"),
        ("draft_tokens", True, "a whole number"),
        ("batch", None, "a whole number"),
        ("threads", [2], "a whole number"),
        ("share", "yes", "True or False"),
        ("exact", 1, "True or False"),
        ("drafter", 7, "text"),
        ("rule", ["token"], "text"),
        ("weights", 4, "text"),
        ("head", 3, "a name or a path"),
        ("tree", 2.0, "children a level"),
        ("tree", True, "children a level"),
        ("policy", 4, "fixed, auto, or rows"),
        ("dtype", 32, "a type of numbers"),
    ],
)
def test_a_value_of_another_kind_is_named(name, value, expected):
    with pytest.raises(ParameterError, match=expected) as caught:
        Options.of({name: value})
    assert name in str(caught.value) and "\n" not in str(caught.value)


def test_every_drafter_that_is_named_can_be_made_and_the_other_way_round():
    assert tuple(DRAFTERS) == NAMES


def test_where_no_drafter_is_asked_for_the_usual_one_drafts(path):
    assert load(path).drafter_name == DEFAULT and load(path, drafter="none").drafter_name == "none"


@pytest.mark.parametrize("drafter", ["ngram", "suffix", "recycle", "merge", "cascade"])
def test_a_tree_that_is_asked_for_is_filled_whatever_that_costs(path, drafter):
    repeated = [5, 6, 7, 5, 6, 8, 5, 6, 9, 5, 6, 10, 5, 6, 7, 5, 6, 8, 5, 6]
    drafted = []
    for tree in (None, 12):
        model = load(path, drafter=drafter, tree=tree, batch=32)  # so many that another node costs a lot
        results = model.generate([repeated] * 32, max_new_tokens=12, min_new_tokens=12)
        drafted.append(sum(result.statistics.drafted for result in results))
    assert drafted[0] < drafted[1]


def test_a_tree_of_prompt_lookup_has_the_nodes_that_were_asked_for(path):
    """Also those that are hardly likely to be right."""
    model = load(path, drafter="ngram", tree=24)
    text = [5, 6, 7, 5, 6, 8, 5, 6, 9, 5, 6, 10, 5, 6, 11, 5, 6, 12, 5, 6]
    record = next(model.stream(text, max_new_tokens=20)).round
    assert len(record.draft) == 24


@pytest.mark.parametrize("rule", ["token", "block", "traversal", "kseq", "greedy-draft"])
@pytest.mark.parametrize("drafter", ["ngram", "suffix", "recycle", "merge", "cascade"])
def test_a_rule_that_would_refuse_a_drafters_drafts_is_refused(path, drafter, rule):
    with pytest.raises(ParameterError, match=f"'{rule}' with drafter '{drafter}'") as caught:
        load(path, drafter=drafter, rule=rule)
    assert "\n" not in str(caught.value) and "auto, target-only" in str(caught.value)
    assert "typical-lossy" not in str(caught.value)


@pytest.mark.parametrize("rule", [rule for rule in RULES if Law.CHOSEN in RULES[rule].laws])
def test_other_rules_take_drafts_that_are_chosen(path, rule):
    result = load(path, drafter="cascade", rule=rule).generate([5, 6, 7, 5, 6, 7], max_new_tokens=8, seed=1)
    assert len(result.token_ids) == 8 and result.statistics.drafted > 0


def test_text_that_is_drafted_without_a_law_needs_a_rule_for_that(path):
    with pytest.raises(ParameterError, match="'token' with drafter 'model'"):
        load(path, drafter="model", draft_model=path, translate="text", rule="token")
    assert load(path, drafter="model", draft_model=path, translate="tokens", rule="token").generate(
        [5, 6, 7], max_new_tokens=4
    )


@pytest.mark.parametrize("tree", ["3x2", 8])
def test_a_rule_for_chains_takes_no_tree(path, tree):
    with pytest.raises(ParameterError, match=f"rule is 'block' with tree {tree!r}") as caught:
        load(path, drafter="model", draft_model=path, tree=tree, rule="block")
    assert "\n" not in str(caught.value)
    for chain in ({"tree": "1x1"}, {"tree": 1}, {"draft_tokens": 3}, {}):
        model = load(path, drafter="model", draft_model=path, rule="block", **chain)
        assert model.generate([5, 6, 7], max_new_tokens=6, temperature=1, seed=2).statistics.drafted > 0


@pytest.mark.parametrize("context", [16, 24, 34, 60])
def test_a_glance_at_passes_fits_a_short_context(tmp_path, context):
    short = folder(tmp_path, context=context)
    model = load(short, drafter="ngram", policy="auto")
    assert model.generate([5, 6, 7, 5, 6, 7], max_new_tokens=6, ignore_eos=True).statistics.emitted == 6


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"draft_tokens": 3, "tree": "3x2x1"}, "draft_tokens is 3 with tree '3x2x1'"),
        ({"draft_tokens": 3, "policy": [[1, 9, 2]]}, "rows"),
        ({"tree": 8, "policy": "[[1, 9, 2]]"}, "rows"),
        ({"drafter": "cascade", "head": "one", "draft_model": "other"}, "head and draft_model"),
        ({"drafter": "cascade", "draft_model": "one", "memory": "file"}, "draft_model and memory"),
    ],
)
def test_of_two_options_that_exclude_each_other_none_is_dropped(path, options, expected):
    with pytest.raises(ParameterError, match=expected):
        load(path, **options)


@pytest.mark.parametrize(
    "options",
    [{"exact": True}, {"weights": "int8"}, {"dtype": "bfloat16"}, {"device": "cuda"}, {"attention": "eager"}],
)
def test_a_model_in_memory_is_left_as_it_is_and_says_so(options):
    with pytest.raises(ParameterError, match=f"{next(iter(options))} is .* in memory"):
        load(tiny_model(), **options)
    assert load(tiny_model(), exact=False).exact is False


def test_a_tree_may_be_a_number():
    assert parse_shape(None, 16) == parse_shape(None, "16") == Shape(8, 4, 16)


def test_a_branching_that_is_written_is_read_as_itself():
    small = [branching for levels in (1, 2, 3, 4) for branching in product((1, 2, 3), repeat=levels)]
    for branching in (*small, (16,), (1024,), (12, 1, 5)):
        assert parse_shape(None, branching_text(branching)) == Shape.tree(*branching), branching


def test_one_level_is_no_number_of_nodes():
    assert parse_shape(None, "3x") == parse_shape(None, "3X ") == Shape.tree(3) == Shape(1, 3, 3, (3,))
    assert parse_shape(None, "3") == Shape(8, 4, 3)
    with pytest.raises(ParameterError, match="draft_tokens is 1 with tree '3x'"):
        parse_shape(1, "3x")
    with pytest.raises(ParameterError, match="at most 1,024"):
        parse_shape(None, "1025x")


@pytest.mark.parametrize("tree", ["", "x", "0x", "-3x", "3xx", "3x2x", "x3", "3x0x1"])
def test_what_is_no_tree_is_named(tree):
    with pytest.raises(ParameterError, match=f"tree is '{tree}': expected children a level") as caught:
        parse_shape(None, tree)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("options", [{"tree": 4}, {"policy": [[1, 4, 2], [5, 9, 0]]}, {"dtype": torch.float32}])
def test_natural_values_load(path, options):
    model = load(path, drafter="ngram", **options)
    plain = load(path, drafter="none")
    prompt = [5, 6, 7, 5, 6, 7]
    assert model.generate(prompt, max_new_tokens=8).token_ids == plain.generate(prompt, max_new_tokens=8).token_ids


@pytest.mark.parametrize("rows", [[1, 2], [[1, "a", 2]], [[1, 2]], [object]])
def test_rows_that_are_none_are_an_error(path, rows):
    with pytest.raises(ParameterError):
        load(path, drafter="ngram", policy=rows)
