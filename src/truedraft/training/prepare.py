"""From a folder of answers to a run that is ready to start: rows with features, a draft vocabulary, a net, a lesson.

answers ─▶ features on disk ─▶ rows ─┬─▶ held-out texts, by the names of rows, so that more answers change nothing
                                     └─▶ training rows ─▶ token counts ─▶ draft vocabulary
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from truedraft.errors import ParameterError, UnsupportedModelError, VocabularyError
from truedraft.nets.medusa import MedusaNet
from truedraft.nets.vocabulary import DraftVocabulary
from truedraft.training.answers import require_author
from truedraft.training.course import Course
from truedraft.training.features import FeatureKind, Row, compute_features, load_rows, shards_of
from truedraft.training.learn import Lesson
from truedraft.training.loop import Material, Trainer
from truedraft.training.losses import Objective
from truedraft.training.recipes import RECIPES, Recipe, Size
from truedraft.training.scaling import EvenInputs, usual_sizes
from truedraft.training.student import Student
from truedraft.training.teacher import Teacher
from truedraft.training.unroll import Net

__all__ = ["Plan", "Prepared", "Rows", "choose_vocabulary", "collect", "prepare"]

_SHARE = 32
"""One row of so many is held out, as long as there are fewer than wanted."""
_USEFUL = 0.5
"""With a smaller share of useful rows, something is wrong with the data."""


_LEAST = {"steps": 1, "longest": 1, "limit": 1, "held_out": 0, "vocabulary": 0}
"""The smallest values of a plan's numbers, None aside."""


@dataclass(frozen=True)
class Plan:
    """What to train, as a user says it; None is what is usual for the kind. owner: names the target.

    vocabulary: tokens that the head can say, 0 for all. prompts: learn those as well as answers. held_out: most texts
    that are examined. limit: most rows of answers. start: a folder with a head of the same kind to go on from. layers:
    those that a small model takes over from the target. counts [V]: of tokens in other texts, for the choice of the
    vocabulary.
    """

    kind: str
    answers: Path
    features: Path
    folder: Path
    owner: str
    course: Course
    vocabulary: int = 8192
    steps: int | None = None
    loss: str | None = None
    decay: float | None = None
    noise: float | None = None
    taps: tuple[int, ...] | None = None
    longest: int = 1024
    prompts: bool = True
    held_out: int = 64
    limit: int | None = None
    start: Path | None = None
    layers: tuple[int, ...] | None = None
    counts: Tensor | None = None

    def __post_init__(self) -> None:
        if self.kind not in RECIPES:
            raise ParameterError(f"kind is {self.kind!r}: expected one of {', '.join(RECIPES)}")
        if self.kind == "model" and self.recipe.steps != 1:
            raise ParameterError(f"steps are {self.steps} for a model: expected 1, since it reads what it drafts")
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if value is not None and value < least:
                raise ParameterError(f"{name} is {value}: expected at least {least}")
        for name in ("decay", "noise"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < math.inf:
                raise ParameterError(f"{name} is {value}: expected a number, at least 0")
        if self.layers is not None and self.kind != "model":
            raise ParameterError(
                f"layers are {self.layers} for kind {self.kind}: leave them out, they are for kind model"
            )
        Objective.parse(self.recipe.loss)

    @property
    def recipe(self) -> Recipe:
        """The kind's recipe, with what the user said instead."""
        usual = RECIPES[self.kind]
        said = {name: getattr(self, name) for name in ("steps", "loss", "decay", "noise")}
        return replace(usual, **{name: value for name, value in said.items() if value is not None})


@dataclass(frozen=True)
class Rows:
    """Rows of answers, with those held out apart. dropped: rows without a supervised token."""

    training: tuple[Row, ...]
    held_out: tuple[Row, ...]
    dropped: int = 0


def collect(plan: Plan, teacher: Teacher, *, report: Callable[[int], None] = lambda tokens: None) -> Rows:
    """All rows of the plan's answers, features computed where they are missing.

    Raises `ParameterError` for answers of another model, and if nothing is left to learn from.
    """
    require_author(plan.answers, plan.owner, teacher.fingerprint)
    kind = FeatureKind(plan.owner, teacher.fingerprint, teacher.taps, teacher.hidden_size, plan.longest)
    rows: list[Row] = []
    for shard in shards_of(plan.answers):
        if plan.limit is None or len(rows) < plan.limit:
            compute_features(teacher, shard, plan.features, kind=kind, report=report)
            rows += load_rows(shard, plan.features, kind)
    return _divided(rows[: plan.limit], plan)


def _divided(rows: Sequence[Row], plan: Plan) -> Rows:
    """Rows to learn and rows to examine; those without a supervised guess are dropped and counted."""
    material = Material((), (), (), 1)
    useful = [row for row in rows if material.guesses(row) > 0]
    held_out = [row for row in useful if row.greedy and zlib.crc32(row.id.encode()) % _SHARE == 0][: plan.held_out]
    apart = set(map(id, held_out))
    training = [row for row in useful if id(row) not in apart]
    if not training or len(useful) < _USEFUL * len(rows):
        raise ParameterError(
            f"{plan.answers} has {len(rows)} rows, of which {len(rows) - len(useful)} have no token to learn: answers "
            f"are too short, or begin beyond the {plan.longest} tokens (longest) that rows are cut to"
        )
    return Rows(tuple(training), tuple(held_out), len(rows) - len(useful))


def choose_vocabulary(
    rows: Sequence[Row], size: int, count: int, *, also: Tensor | None = None
) -> tuple[DraftVocabulary, Tensor]:
    """The `count` most frequent tokens of the answers, and the answers' token counts [size].

    Tokens that are equally frequent there, as those that no answer has, are ranked by the prompts and the counts `also`
    [size] of other texts, then by their ids. count 0 takes all.
    """
    answers = torch.zeros(size, dtype=torch.float64)
    prompts = torch.zeros(size, dtype=torch.float64) if also is None else also.double().clone()
    for row in rows:
        for counts, part in ((prompts, row.tokens[: row.prompt_length]), (answers, row.tokens[row.prompt_length :])):
            counts.index_add_(0, part, torch.ones(len(part), dtype=torch.float64))
    if not 0 < count < size:
        return DraftVocabulary.full(size), answers
    return DraftVocabulary.frequent(answers + prompts / (1 + prompts.sum()), count), answers


@dataclass(frozen=True)
class Prepared:
    """A run that is ready. coverage: of the tokens of held-out answers, or of all without any, that it can say."""

    trainer: Trainer
    rows: Rows
    coverage: float


def prepare(plan: Plan, teacher: Teacher, rows: Rows) -> Prepared:
    """The run of a plan, on the teacher's device.

    Raises `ParameterError` for a plan that contradicts itself or the head it starts from, and `ModelError` for a head
    that does not fit the target.
    """
    recipe, size = plan.recipe, teacher.output_size
    vocabulary, _ = choose_vocabulary(rows.training, size, plan.vocabulary, also=plan.counts)
    net = _net(plan, teacher, recipe, vocabulary)
    columns = _columns(net, teacher)
    begin = _begin(rows.training) if plan.prompts else None
    material = Material(rows.training, rows.held_out, columns, recipe.steps, begin)
    inputs = EvenInputs(net, usual_sizes(net, rows.training, columns, teacher.embedding_matrix))
    inputs.take()
    output = teacher.output(None if net.vocabulary.is_full else net.vocabulary.ids)
    lesson = Lesson(Objective.parse(recipe.loss), output, recipe.decay, recipe.noise)
    settings = _settings(plan, net, rows, columns) | {"weights": teacher.fingerprint}
    notes = _notes(plan, net, rows)
    trainer = Trainer(net, material, lesson, plan.course, plan.folder, inputs, settings, notes)
    _, held_out = choose_vocabulary(rows.held_out or rows.training, size, 0)
    return Prepared(trainer, rows, net.vocabulary.coverage(held_out))


def _begin(rows: Sequence[Row]) -> int:
    """The first token to guess: not those that all rows begin with, such as a template's system message, where there is
    nothing to learn; and an answer's first at the latest, as rows may be alike, or one be all that there is.
    """
    return min(_same(rows), *(row.prompt_length for row in rows))


def _same(rows: Sequence[Row]) -> int:
    """How many first tokens all rows have in common."""
    first = rows[0].tokens
    for row in rows[1:]:
        length = min(len(first), len(row))
        differing = torch.nonzero(first[:length] != row.tokens[:length])
        first = first[: int(differing[0]) if len(differing) else length]
    return len(first)


def _net(plan: Plan, teacher: Teacher, recipe: Recipe, vocabulary: DraftVocabulary) -> Net:
    """A fresh head, or the one that the run goes on from, with its own vocabulary."""
    size = Size(
        teacher.model.config,
        teacher.output_matrix,
        vocabulary,
        recipe.steps,
        plan.taps,
        plan.course.seed,
        last=teacher.last_layer,
        model=teacher.model,
        tokenizer=teacher.tokenizer,
        layers=plan.layers,
    )
    if plan.start is None:
        net = recipe.make(size)
    else:
        net = recipe.load(plan.start, size)
        _check_start(net, plan, teacher)
    net.to(teacher.device)
    net.share(teacher.embedding_matrix, teacher.output_matrix)
    return net.eval()  # dropout would make of a resumed run another one


def _check_start(net: Net, plan: Plan, teacher: Teacher) -> None:
    """What would end in an error of shapes, somewhere in the first step, is said before."""
    if isinstance(net, Student):
        return  # it was looked at when it was loaded
    if net.vocabulary.size != teacher.output_size:
        raise VocabularyError(
            f"{plan.start} drafts for {net.vocabulary.size} tokens, and the target has {teacher.output_size}: "
            "expected a head of the target's"
        )
    if net.target_size != teacher.hidden_size:
        raise UnsupportedModelError(
            f"{plan.start} reads states of {net.target_size} numbers, and the target's have {teacher.hidden_size}: "
            "expected a head of the target's"
        )
    if isinstance(net, MedusaNet) and net.config.heads < plan.recipe.steps:
        raise ParameterError(
            f"{plan.start} has {net.config.heads} heads for {plan.recipe.steps} steps: expected as many (unroll)"
        )


def _columns(net: Net, teacher: Teacher) -> tuple[int, ...]:
    """Where the taps of a head are among those of the features."""
    taps = net.taps(teacher.layers)
    if missing := [tap for tap in taps if tap not in teacher.taps]:
        raise ParameterError(f"the head reads tap {missing[0]}, and features are of taps {teacher.taps}: name its taps")
    return tuple(teacher.taps.index(tap) for tap in taps)


def _notes(plan: Plan, net: Net, rows: Rows) -> dict[str, Any]:
    """What a head says of its training. earlier: of the runs before this one, if it went on from a head."""
    names = ("steps", "training_tokens", "rows", "loss", "unroll", "rate")
    earlier = {name: net.notes[name] for name in names if name in net.notes}
    before = [*net.notes.get("earlier", []), *([earlier] if earlier else [])]
    recipe = plan.recipe
    notes = {"target": plan.owner, "rows": len(rows.training), "rate": plan.course.rate}
    return {**notes, "loss": recipe.loss, "unroll": recipe.steps, **({"earlier": before} if before else {})}


def _checksum(rows: Rows) -> int:
    """Tells rows from others, those held out included: a checksum of all ids."""
    found = 0
    for row in (*rows.training, *rows.held_out):
        found = zlib.crc32(row.tokens.numpy().tobytes(), zlib.crc32(str(row.prompt_length).encode(), found))
    return found


def _settings(plan: Plan, net: Net, rows: Rows, columns: tuple[int, ...]) -> dict[str, Any]:
    """What a resumed run must have in common with the one that it resumes."""
    recipe, course = plan.recipe, plan.course
    return {
        "kind": plan.kind,
        "target": plan.owner,
        "vocabulary": zlib.crc32(net.vocabulary.ids.numpy().tobytes()),
        "data": [len(rows.training), sum(map(len, rows.training)), plan.longest, _checksum(rows)],
        "taps": list(columns),
        "loss": [str(Objective.parse(recipe.loss)), recipe.steps, recipe.decay, recipe.noise, plan.prompts],
        "course": [course.steps, course.rate, course.warmup, course.final, course.tokens, course.accumulate],
        "numbers": [course.seed, course.clip, course.decay, course.bfloat16],
    }
