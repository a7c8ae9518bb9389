"""A model's answers in shards: what they say, that they can be repeated, and that an interrupted run goes on."""

import json
from dataclasses import replace

import pytest

import truedraft
from tests.folders import folder
from truedraft.cli import main
from truedraft.errors import ParameterError
from truedraft.training.answers import Author, Task, require_author, statistics, write_answers
from truedraft.training.rows import read_answers, read_prompts


@pytest.fixture(scope="module")
def name(tmp_path_factory):
    return folder(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def model(name):
    return truedraft.load(name, drafter="none", batch=3)


@pytest.fixture
def prompts(tmp_path):
    path = tmp_path / "prompts.jsonl"
    lines = [{"id": f"p{place}", "prompt": "ab" * (place % 4 + 1)} for place in range(7)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"prompt": 1}\n', "utf-8")
    return path


TASK = Task((0.0, 1.0), seed=40, max_new_tokens=6, shard=3)


def test_every_answer_is_what_the_model_says_alone(model, prompts, tmp_path):
    rows = read_prompts(prompts)[0]
    told = []
    assert write_answers(model, rows, tmp_path / "out", TASK, report=told.append) == 0 and told == [3, 3, 1]
    shards = sorted((tmp_path / "out").glob("shard-*.jsonl"))
    assert [shard.name for shard in shards] == ["shard-00000.jsonl", "shard-00001.jsonl", "shard-00002.jsonl"]
    answers = [answer for shard in shards for answer in read_answers(shard, strict=True)[0]]
    assert [(answer.id, answer.temperature, answer.seed) for answer in answers] == [
        (f"p{place}", float(place % 2), 40 + place) for place in range(7)
    ]
    for answer in answers:
        options = {"temperature": answer.temperature, "seed": answer.seed, "max_new_tokens": 6}
        alone = model.generate([dict(message) for message in answer.messages], **options)
        assert answer.answer_ids == alone.token_ids


def test_a_run_goes_on_with_the_first_shard_that_is_missing(model, prompts, tmp_path):
    rows = read_prompts(prompts)[0]
    write_answers(model, rows, tmp_path / "out", TASK)
    whole = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    kept, lost = tmp_path / "out" / "shard-00000.jsonl", tmp_path / "out" / "shard-00001.jsonl"
    kept.write_text("untouched")
    lost.rename(lost.with_suffix(".part"))
    write_answers(model, rows, tmp_path / "out", TASK)
    assert kept.read_text() == "untouched" and lost.read_bytes() == whole[lost.name]


def everything(folder):
    return [answer for shard in sorted(folder.glob("shard-*.jsonl")) for answer in read_answers(shard)[0]]


def test_more_prompts_are_answered_beside_those_that_were(model, prompts, tmp_path):
    """Trying it on a few and then having all is what everybody does; a shard of a few is not one of all."""
    rows, told = read_prompts(prompts)[0], []
    write_answers(model, rows, tmp_path / "whole", TASK)
    write_answers(model, rows[:4], tmp_path / "out", TASK)
    first = (tmp_path / "out" / "shard-00000.jsonl").stat()
    write_answers(model, rows, tmp_path / "out", TASK, report=told.append)
    assert everything(tmp_path / "out") == everything(tmp_path / "whole") and told == [3, 3, 1]
    assert (tmp_path / "out" / "shard-00000.jsonl").stat().st_mtime_ns == first.st_mtime_ns
    write_answers(model, rows[:2], tmp_path / "out", TASK)
    assert everything(tmp_path / "out") == everything(tmp_path / "whole"), "fewer take nothing away"


def test_answers_to_something_else_are_not_taken(model, prompts, tmp_path):
    rows = read_prompts(prompts)[0]
    write_answers(model, rows, tmp_path / "out", TASK)
    before = everything(tmp_path / "out")
    for name in ("temperatures", "seed", "max_new_tokens", "longest", "shard"):
        value = (0.5,) if name == "temperatures" else 5
        with pytest.raises(ParameterError, match=name):
            write_answers(model, rows, tmp_path / "out", replace(TASK, **{name: value}))
    with pytest.raises(ParameterError, match="model"):
        write_answers(replace(model, name="another"), rows, tmp_path / "out", TASK)
    with pytest.raises(ParameterError, match="other prompts"):
        write_answers(model, [rows[0], *rows[2:]], tmp_path / "out", TASK)
    for broken in ('{"mod', ""):
        (tmp_path / "out" / "task.jsonl").write_text(broken)
        with pytest.raises(ParameterError, match=r"task\.jsonl"):
            write_answers(model, rows, tmp_path / "out", TASK)
    (tmp_path / "out" / "task.jsonl").unlink()
    with pytest.raises(ParameterError, match="another folder"):
        write_answers(model, rows, tmp_path / "out", TASK)
    assert everything(tmp_path / "out") == before


def test_a_shard_of_prompts_that_are_all_left_out_is_no_file(model, prompts, tmp_path):
    rows = sorted(read_prompts(prompts)[0], key=lambda row: -len(row.messages[0]["content"]))
    lengths = [len(model.stream([dict(m) for m in row.messages], max_new_tokens=1).prompts[0]) for row in rows]
    task = Task(longest=lengths[-1], max_new_tokens=2, shard=3)
    assert write_answers(model, rows, tmp_path / "out", task) > 3
    assert not (tmp_path / "out" / "shard-00000.jsonl").exists() and len(everything(tmp_path / "out")) == 2
    assert statistics(tmp_path / "out")["rows"] == sum(length == lengths[-1] for length in lengths)
    assert write_answers(model, rows, tmp_path / "out", task) == 0, "they are not looked at again"


def test_long_prompts_are_left_out_and_counted(model, prompts, tmp_path):
    rows = read_prompts(prompts)[0]
    lengths = [len(model.stream([dict(m) for m in row.messages], max_new_tokens=1).prompts[0]) for row in rows]
    longest = sorted(lengths)[3]
    left_out = write_answers(model, rows, tmp_path / "out", Task(longest=longest, max_new_tokens=2))
    assert left_out == sum(length > longest for length in lengths) > 0


def test_given_answers_are_kept_and_end_as_the_model_ends(model, tmp_path):
    path = tmp_path / "given.jsonl"
    path.write_text('{"prompt": "ab", "answer": "hello"}\n{"prompt": "ab", "answer": "hello again"}\n')
    write_answers(model, read_prompts(path, given=True)[0], tmp_path / "out", Task(max_new_tokens=8))
    short, cut = read_answers(tmp_path / "out" / "shard-00000.jsonl")[0]
    tokenizer = model.facts.tokenizer
    assert tokenizer.decode(short.answer_ids) == "hello<end>" and tokenizer.decode(cut.answer_ids) == "hello ag"
    assert short.temperature != 0 and list(short.prompt_ids) == tokenizer.encode("[user]ab[assistant]")


def test_statistics_count_what_is_there(model, prompts, tmp_path):
    write_answers(model, read_prompts(prompts)[0], tmp_path / "out", TASK)
    found = statistics(tmp_path / "out", seconds=2)
    assert found["rows"] == 7 and found["temperatures"] == {"0": 4, "1": 3} and 0 < found["answer_tokens"] <= 42
    assert json.loads((tmp_path / "out" / "statistics.json").read_text()) == found


@pytest.mark.parametrize(
    "wrong",
    [
        {"shard": 0},
        {"max_new_tokens": 0},
        {"longest": 0},
        {"temperatures": ()},
        {"temperatures": (0.0, -1.0)},
        {"temperatures": (float("nan"),)},
        {"temperatures": (float("inf"),)},
    ],
)
def test_a_task_that_makes_no_sense(wrong):
    with pytest.raises(ParameterError):
        Task(**wrong)


AUTHOR = Author("tiny", 7, "float32")


def test_answers_of_another_model_are_not_added_to(model, prompts, tmp_path):
    rows = read_prompts(prompts)[0]
    write_answers(model, rows, tmp_path / "out", TASK, author=AUTHOR)
    before = everything(tmp_path / "out")
    for other in ({"owner": "large"}, {"weights": 8}, {"dtype": "bfloat16"}):
        with pytest.raises(ParameterError, match=next(iter(other))):
            write_answers(model, rows, tmp_path / "out", TASK, author=replace(AUTHOR, **other))
    assert everything(tmp_path / "out") == before
    write_answers(model, rows, tmp_path / "unsaid", TASK)
    assert write_answers(model, rows, tmp_path / "unsaid", TASK, author=AUTHOR) == 0, "it does not say whose they are"


def test_whose_answers_they_are(tmp_path):
    """Whatever the folder does not say is not held against it."""
    header = {"model": "one", "owner": "tiny", "weights": 7, "given": False}

    def require(said, owner="tiny", weights=7):
        (tmp_path / "task.jsonl").write_text(said if isinstance(said, str) else json.dumps(said) + "\n{}\n")
        require_author(tmp_path, owner, weights)

    require_author(tmp_path / "nowhere", "tiny", 7)
    require(header)
    for unsaid in ("", "{", "3", {"model": "one"}):
        require(unsaid, "large", 8)
    with pytest.raises(ParameterError, match="answers of tiny, and the model is large"):
        require(header, "large")
    with pytest.raises(ParameterError, match="other weights"):
        require(header, weights=8)
    require(header | {"given": True}, weights=8)
    with pytest.raises(ParameterError, match="answers of tiny"):
        require(header | {"given": True}, "large")


@pytest.mark.parametrize("left", ['{"model": "another", "temperatures": [-1.0]}\n', '{"mod', ""])
def test_a_mistyped_run_that_answered_nothing_is_in_nobodys_way(model, prompts, tmp_path, left):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "task.jsonl").write_text(left)
    (tmp_path / "out" / "shard-00000.jsonl.part").write_text("{")
    write_answers(model, read_prompts(prompts)[0], tmp_path / "out", TASK)
    assert len(everything(tmp_path / "out")) == 7
    assert json.loads((tmp_path / "out" / "task.jsonl").read_text().splitlines()[0])["seed"] == 40


@pytest.mark.parametrize("lost", [1, 12])
def test_a_line_that_was_cut_off_does_not_swallow_the_next(model, prompts, tmp_path, lost):
    rows, task = read_prompts(prompts)[0], tmp_path / "out" / "task.jsonl"
    write_answers(model, rows[:6], tmp_path / "out", TASK)
    task.write_text(task.read_text()[:-lost])
    write_answers(model, rows, tmp_path / "out", TASK)
    lines = [json.loads(line) for line in task.read_text().splitlines()]
    shards = sorted((tmp_path / "out").glob("shard-*.jsonl"))
    assert [line["shard"] for line in lines[1:]] == [shard.name for shard in shards]
    before = [shard.stat().st_mtime_ns for shard in shards]
    write_answers(model, rows, tmp_path / "out", TASK)
    assert [shard.stat().st_mtime_ns for shard in shards] == before, "all of them were known"


def test_answers_that_cannot_be_written_are_one_line(model, prompts, tmp_path, monkeypatch):
    def full(path, *content, **options):
        raise OSError(28, "No space left on device")

    write_answers(model, read_prompts(prompts)[0][:3], tmp_path / "out", TASK)
    monkeypatch.setattr("pathlib.Path.write_text", full)
    with pytest.raises(ParameterError, match=r"shard-00001\.jsonl cannot be written \(No space left on device\)"):
        write_answers(model, read_prompts(prompts)[0], tmp_path / "out", TASK)


def test_the_command(name, prompts, tmp_path, capsys):
    arguments = ["data", prompts, "--out", tmp_path / "out", "--model", name, "--limit", 4, "-n", 5]
    assert main([str(argument) for argument in arguments]) == 0
    assert "4 answers" in capsys.readouterr().out
    assert main([str(argument) for argument in [*arguments, "--strict"]]) == 2
    assert "line 8" in capsys.readouterr().err
    header = json.loads((tmp_path / "out" / "task.jsonl").read_text().splitlines()[0])
    assert header["owner"].startswith("llama-3x32-260-") and header["weights"] and header["dtype"] == "float32"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [(["-t", -1], "temperature is -1"), (["-t", "nan"], "temperature"), (["--limit", -1], "limit")],
)
def test_a_mistyped_command_leaves_nothing_behind(name, prompts, tmp_path, capsys, wrong, message):
    arguments = ["data", prompts, "--out", tmp_path / "out", "--model", name, "-n", 3]
    assert main([str(argument) for argument in [*arguments, *wrong]]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert main([str(argument) for argument in arguments]) == 0
