"""Where a head comes from, and that one beside a wrong target is told apart before it drafts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from tests.drafters.helpers import make
from tests.drafters.test_eagle import Play
from tests.folders import folder
from tests.nets.heads import tiny_head
from tests.tiny import tiny_model
from truedraft.build import load, redraft
from truedraft.cli import main
from truedraft.core import Shape
from truedraft.drafters import heads
from truedraft.drafters.eagle import EagleDrafter
from truedraft.drafters.fast_head import drafting_dtype
from truedraft.drafters.heads import HEADS, head_drafter, open_head, shipped_head
from truedraft.drafters.medusa import MedusaDrafter
from truedraft.drafters.merge import MergeDrafter
from truedraft.drafters.pass_cost import FREE, PassCost
from truedraft.errors import (
    CorruptModelError,
    ModelError,
    ParameterError,
    UnknownModelError,
    UnsupportedModelError,
    VocabularyError,
)
from truedraft.nets.head import CONFIG, NOTES
from truedraft.targets.cached import CachedModel
from truedraft.targets.torch_target import TorchTarget
from truedraft.verify.auto import RULES

MODEL = tiny_model(seed=1)
OWNER = "llama-3x32-48-0123456789ab"
NETS = {"medusa": "medusa", "eagle1": "eagle1", "eagle2": "eagle1", "eagle3": "eagle3"}

each_name = pytest.mark.parametrize("name", NETS)


def saved(path, name, model=MODEL, **changes):
    net = tiny_head(NETS[name], model, draft=20)
    net.notes = {"target": OWNER, **changes}
    net.save(path)
    return path


@each_name
def test_a_folder_becomes_a_drafter(name, tmp_path):
    drafter = head_drafter(name, CachedModel(MODEL), owner=OWNER, folder=saved(tmp_path, name))
    assert isinstance(drafter, MedusaDrafter if name == "medusa" else EagleDrafter)
    assert tuple(drafter.taps) == ((0, 1, 3) if name == "eagle3" else (3,))


@each_name
def test_what_is_shared_is_the_targets(name, tmp_path):
    for family in ("llama", "qwen2", "gemma3"):  # tied, not tied, and with a scaled embedding
        model = tiny_model(family)
        saved(tmp_path / family, name, model)
        net = open_head(name, CachedModel(model), owner=OWNER, folder=tmp_path / family)
        if name != "medusa":
            assert torch.equal(net._embedding, model.get_input_embeddings().weight)
        if name == "eagle1":
            assert torch.equal(net.output, model.get_output_embeddings().weight[net.vocabulary.ids])


@each_name
def test_without_a_folder_it_is_the_one_that_ships(name, tmp_path, monkeypatch):
    with pytest.raises(UnknownModelError, match=f"no {NETS[name]} head ships for {OWNER}.*--head"):
        open_head(name, CachedModel(MODEL), owner=OWNER)
    monkeypatch.setattr(heads.resources, "files", lambda package: tmp_path / package)
    saved(tmp_path / "truedraft" / "heads" / OWNER / NETS[name], name)
    assert shipped_head(OWNER, NETS[name]) is not None and shipped_head("another", NETS[name]) is None
    assert open_head(name, CachedModel(MODEL), owner=OWNER).kind == NETS[name]


@each_name
@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"hidden_size": 16}, UnsupportedModelError, "width 32, and the target's have 16"),
        ({"vocab_size": 60}, VocabularyError, "48 token ids, and the target has 60"),
    ],
    ids=str,
)
def test_a_head_of_another_size_is_refused(name, changes, error, words, tmp_path):
    other = CachedModel(tiny_model(seed=1, **changes))
    with pytest.raises(error, match=words) as raised:
        open_head(name, other, owner=OWNER, folder=saved(tmp_path, name))
    assert "\n" not in str(raised.value)


@each_name
def test_a_head_of_another_vocabulary_is_refused(name, tmp_path):
    saved(tmp_path, name)
    with pytest.raises(VocabularyError, match="was trained for llama-3x32-48-0123456789ab"):
        open_head(name, CachedModel(MODEL), owner="llama-3x32-48-ba9876543210", folder=tmp_path)
    open_head(name, CachedModel(MODEL), owner="llama-3x32-48", folder=tmp_path)  # without a tokenizer nothing is known


def test_taps_beyond_the_target_are_refused(tmp_path):
    saved(tmp_path, "eagle3")
    shallow = CachedModel(tiny_model(num_hidden_layers=2))
    with pytest.raises(UnsupportedModelError, match="taps layer 3, and the target has 2"):
        head_drafter("eagle3", shallow, owner=OWNER, folder=tmp_path)


@each_name
def test_a_head_of_another_kind_is_refused(name, tmp_path):
    for other in {"medusa", "eagle1", "eagle3"} - {NETS[name]}:
        with pytest.raises(ModelError):
            open_head(name, CachedModel(MODEL), owner=OWNER, folder=saved(tmp_path / other, other))


@pytest.mark.parametrize("accuracies", [[[2.0]], "many", [0.5], [[]], [["x"]]], ids=str)
def test_accuracies_that_are_none_are_refused(accuracies, tmp_path):
    saved(tmp_path, "medusa", head_accuracies=accuracies)
    with pytest.raises(CorruptModelError, match="notes"):
        head_drafter("medusa", CachedModel(MODEL), owner=OWNER, folder=tmp_path)


def test_measured_accuracies_are_used(tmp_path):
    saved(tmp_path, "medusa", head_accuracies=[[0.5, 0.2], [0.3, 0.1]])
    assert head_drafter("medusa", CachedModel(MODEL), owner=OWNER, folder=tmp_path)._measured == (
        (0.5, 0.2),
        (0.3, 0.1),
    )


def test_only_float32_on_a_cpu_is_drafted_for_in_another_type():
    cpu = torch.device("cpu")
    assert drafting_dtype(torch.float64, cpu) == torch.float64
    assert drafting_dtype(torch.float32, torch.device("cuda")) == torch.float32
    assert drafting_dtype(torch.float32, cpu) in (torch.float32, torch.bfloat16)
    assert drafting_dtype(torch.bfloat16, cpu) == torch.bfloat16


@pytest.mark.parametrize("kind", ["eagle1", "eagle3"])
def test_a_draft_step_costs_what_it_reads(kind, tmp_path):
    model = tiny_model(num_hidden_layers=30)
    saved(tmp_path, kind, model)
    target = CachedModel(model)
    net = open_head(kind, target, owner=OWNER, folder=tmp_path)
    weights = {name: tensor.numel() for name, tensor in net.named_parameters() if tensor.dim() == 2}
    read = sum(weights.values()) + (20 * 32 if kind == "eagle1" else 0)
    layer = 32 * (32 + 2 * 16 + 32) + 3 * 32 * 48
    expected = read * next(net.parameters()).element_size() / (4 * (30 * layer + 48 * 32))
    assert heads.step_cost(net, target) == pytest.approx(max(expected, 1 / 30))


@each_name
def test_where_nodes_cost_more_there_are_fewer(name, tmp_path):
    saved(tmp_path, name)
    sizes = []
    for passes in (FREE, PassCost.even(0.05), PassCost.even(0.5)):
        drafter = head_drafter(name, CachedModel(MODEL), owner=OWNER, folder=tmp_path, passes=passes)
        play, session = Play(drafter, target=TorchTarget(CachedModel(MODEL))), make([3, 1, 4, 1, 5], vocabulary=48)
        play.round([session], [Shape(0)])
        sizes.append(len(play.drafter.propose([session], [Shape(4, 4, 40)])[0]))
    assert sizes == sorted(sizes, reverse=True) and sizes[0] == 40 and sizes[-1] < 6


# ── by name ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    return folder(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def plain(target):
    return load(target, drafter="none")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    root = tmp_path_factory.mktemp("heads")
    for kind in ("medusa", "eagle1", "eagle3"):
        tiny_head(kind, tiny_model(vocab_size=260), draft=100).save(root / kind)
    return root


@each_name
@pytest.mark.parametrize("options", [{}, {"tree": "2x2"}, {"tree": "6"}, {"draft_tokens": 2}], ids=str)
def test_a_head_by_name_writes_the_targets_text(name, options, plain, trained):
    prompts = ["abcabc", "hello there"]
    settings = {"max_new_tokens": 20, "ignore_eos": True}
    drafted = redraft(plain, drafter=name, head=trained / NETS[name], **options).generate(prompts, **settings)
    assert [result.token_ids for result in drafted] == [
        result.token_ids for result in plain.generate(prompts, **settings)
    ]
    assert all(result.statistics.drafted > 0 for result in drafted)


def test_a_tree_that_is_asked_for_is_grown_to_its_size(plain, trained):
    drafted = {}
    for tree in (None, "16"):
        model = redraft(plain, drafter="eagle3", head=trained / "eagle3", tree=tree)
        with model.stream("abc", max_new_tokens=30, ignore_eos=True) as stream:
            drafted[tree] = [len(chunk.round.draft) for chunk in stream][1:20]
    assert set(drafted["16"]) == {16}
    assert sum(drafted[None]) < sum(drafted["16"])


@each_name
def test_a_head_is_merged_with_what_costs_nothing(name, plain, trained):
    model = redraft(plain, drafter="merge", head=trained / NETS[name])
    settings = {"max_new_tokens": 40, "ignore_eos": True}
    for temperature in (0.0, 0.9):
        result = model.generate("abcabcabc", temperature=temperature, seed=4, **settings)
        assert result.statistics.drafted > 0
        if not temperature:
            assert result.token_ids == plain.generate("abcabcabc", **settings).token_ids


def test_two_heads_are_not_merged(tmp_path):
    drafter = head_drafter("eagle3", CachedModel(MODEL), owner=OWNER, folder=saved(tmp_path, "eagle3"))
    assert MergeDrafter([drafter]).taps == (0, 1, 3)
    with pytest.raises(ParameterError, match="2 of the drafters"):
        MergeDrafter([drafter, drafter])


@each_name
def test_a_head_by_name_on_the_command_line(name, target, trained, capsys):
    arguments = ["generate", "abcabc", "-m", target, "-d", name, "--max-new-tokens", "12", "--json", "--ignore-eos"]
    assert main([*arguments, "--head", str(trained / NETS[name])]) == 0
    assert json.loads(capsys.readouterr().out)["drafted"] > 0
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "--head" in error


@each_name
@pytest.mark.parametrize("rule", [rule for rule in RULES if rule != "auto"])
def test_a_head_under_every_rule(name, rule, plain, trained):
    model = redraft(plain, drafter=name, head=trained / NETS[name], rule=rule)
    plain = redraft(plain, drafter="none", rule=rule)
    for temperature in (0.0, 0.8):
        options = {"max_new_tokens": 12, "ignore_eos": True, "temperature": temperature, "seed": 3}
        result = model.generate("abc", **options)
        assert result.statistics.drafted > 0
        if temperature == 0 or rule == "coupled":
            assert result.token_ids == plain.generate("abc", **options).token_ids


def test_a_head_belongs_to_the_drafters_that_run_one(plain, trained):
    with pytest.raises(ParameterError, match="head is given with drafter 'ngram'"):
        redraft(plain, drafter="ngram", head=trained / "eagle3")
    assert set(NETS) <= set(HEADS)


def test_a_damaged_head_is_one_line(target, trained, tmp_path, capsys):
    tiny_head("eagle3", tiny_model(vocab_size=260), draft=100).save(tmp_path)
    written = json.loads((tmp_path / CONFIG).read_text())
    (tmp_path / CONFIG).write_text(json.dumps({**written, "draft_vocab_size": 99, NOTES: 5}))
    assert main(["generate", "a", "-m", target, "-d", "eagle3", "--head", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "draft_vocab_size is 99" in error


SHIPPED = sorted(Path(heads.__file__).parents[1].glob("heads/*/*/config.json"))


@pytest.mark.parametrize("config", SHIPPED, ids=lambda path: "-".join(path.parts[-3:-1]))
def test_what_ships_is_whole_and_where_its_target_looks_for_it(config):
    folder = config.parent
    assert shipped_head(folder.parent.name, folder.name) == folder
    net = HEADS[folder.name].load(folder)
    assert net.notes["target"] == folder.parent.name
    assert (folder / "README.md").is_file()
    if folder.name == "medusa":
        assert len(net.notes["head_accuracies"]) == net.config.heads
