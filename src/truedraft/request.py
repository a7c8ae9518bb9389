"""What a user asks for: prompts in any of the usual forms, parameters by name, turned into sessions.

Every mistake in a request is found here, before a model runs. This file refuses to know models and drafters; it knows
a tokenizer and two numbers, the vocabulary and the context length.
"""

from __future__ import annotations

import operator
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Protocol

from truedraft.core import Session
from truedraft.dice import RandomDice
from truedraft.errors import ParameterError, PromptError
from truedraft.noise import NoisyDice, SeededNoise
from truedraft.sampling import ParameterSampler, Processor, SamplingParameters, check_ids
from truedraft.text import EndRules, TextEnding

__all__ = ["Facts", "Parameters", "Prompt", "Tokenizer", "is_batch", "make_session", "text_decoder"]

Prompt = str | Sequence[int] | Sequence[Mapping[str, Any]]
"""Raw text, token ids, or chat messages with `role` and `content`."""


class Tokenizer(Protocol):
    """The part of a transformers tokenizer that is used."""

    def encode(self, text: str) -> list[int]:
        """Text to ids, with the special tokens a model expects at the start."""
        ...

    def decode(self, token_ids: Any, **options: Any) -> Any:
        """Ids to text."""
        ...

    def apply_chat_template(self, conversation: Any, **options: Any) -> Any:
        """Messages to ids."""
        ...


@dataclass(frozen=True)
class Facts:
    """What a request must know of a model. end_tokens: the ids that end a text by the model's own configuration."""

    vocabulary: int
    context_length: int | None = None
    end_tokens: frozenset[int] = frozenset()
    tokenizer: Tokenizer | None = None


@dataclass(frozen=True)
class Parameters:
    """Every parameter of a request, by the names users know; see `SamplingParameters` for those of sampling.

    max_new_tokens: most output tokens. stop: strings before which the text is cut. stop_token_ids: ids that end it.
    ignore_eos: write on past the model's end tokens. eos_token_ids: end tokens instead of the model's own.
    bad_words: strings or id sequences; a string is forbidden with and without a space before it. seed: None draws fresh
    entropy. logprobs: how many alternatives to report with every emitted token; None reports nothing, 0 the emitted
    token alone.
    """

    max_new_tokens: int = 256
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    bad_words: Sequence[str | Sequence[int]] = ()
    min_new_tokens: int = 0
    processors: Sequence[Processor] = ()
    stop: str | Sequence[str] = ()
    stop_token_ids: Sequence[int] = ()
    eos_token_ids: Sequence[int] | None = None
    ignore_eos: bool = False
    seed: int | None = None
    logprobs: int | None = None

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Parameters:
        """From keyword arguments, None being the default; an unknown name is an error that lists the known ones."""
        known = {entry.name for entry in fields(cls)}
        if unknown := sorted(str(name) for name in options if name not in known):
            raise ParameterError(f"unknown parameter {', '.join(unknown)}: expected any of {', '.join(sorted(known))}")
        return cls(**{name: _typed(name, value) for name, value in options.items() if value is not None})

    def sampling(self, facts: Facts) -> SamplingParameters:
        """The part that shapes distributions, checked."""
        return SamplingParameters(
            temperature=self.temperature,
            top_k=self.top_k,
            top_p=self.top_p,
            min_p=self.min_p,
            repetition_penalty=self.repetition_penalty,
            presence_penalty=self.presence_penalty,
            frequency_penalty=self.frequency_penalty,
            logit_bias=dict(self.logit_bias),
            bad_words=tuple(dict.fromkeys(ids for word in _texts(self.bad_words) for ids in _words(word, facts))),
            min_new_tokens=self.min_new_tokens,
            processors=tuple(self.processors),
        )

    def ends(self, facts: Facts) -> EndRules:
        """The part that decides where a text ends, checked."""
        own = frozenset(self.eos_token_ids or ())
        check_ids("eos_token_ids", own, facts.vocabulary)
        check_ids("stop_token_ids", self.stop_token_ids, facts.vocabulary)
        if self.eos_token_ids is None:  # a configuration may name ids that the model has not
            own = frozenset(token for token in facts.end_tokens if 0 <= token < facts.vocabulary)
        return EndRules(
            max_new_tokens=self.max_new_tokens,
            end_tokens=frozenset() if self.ignore_eos else own,
            stop_tokens=frozenset(self.stop_token_ids),
            stops=_texts(self.stop),
        )


def make_session(prompt: Prompt, parameters: Parameters, facts: Facts) -> Session:
    """A session for one prompt.

    Raises `PromptError` for an empty or malformed prompt or one that leaves no room in the context, `ParameterError`
    for a parameter that is out of range.
    """
    sampling, ends = parameters.sampling(facts), parameters.ends(facts)
    if parameters.logprobs is not None and not 0 <= parameters.logprobs <= facts.vocabulary:
        raise ParameterError(f"logprobs is {parameters.logprobs}: expected 0 to {facts.vocabulary}")
    tokens = _tokens(prompt, facts)
    limit = None if facts.context_length is None else facts.context_length - len(tokens)
    if limit is not None and limit < 1:
        raise PromptError(
            f"the prompt has {len(tokens)} tokens and the model's context {facts.context_length}: "
            "expected a prompt that leaves room for at least one more; shorten it"
        )
    return Session(
        tokens=tokens,
        sampler=ParameterSampler.make(
            sampling,
            prompt_length=len(tokens),
            vocabulary=facts.vocabulary,
            end_tokens=sorted(ends.end_tokens | ends.stop_tokens),
        ),
        dice=_dice(parameters.seed),
        ending=TextEnding(ends, limit=limit, decode=text_decoder(facts.tokenizer)),
        top_logprobs=parameters.logprobs,
    )


def is_batch(prompts: Any) -> bool:
    """Whether this is a list of prompts; raises `PromptError` if it is neither that nor one prompt."""
    if isinstance(prompts, str):
        return False
    if not isinstance(prompts, Sequence) or not prompts:
        raise PromptError(f"the prompt is {prompts!r}: expected text, token ids, chat messages, or a list of those")
    return isinstance(prompts[0], Sequence)


def _tokens(prompt: Prompt, facts: Facts) -> list[int]:
    """A prompt's ids, checked against the vocabulary."""
    if not isinstance(prompt, Sequence):
        raise PromptError(f"the prompt is {prompt!r}: expected text, token ids or chat messages")
    if not prompt:
        raise PromptError("the prompt is empty: expected at least one token")
    if isinstance(prompt, str):
        tokens = _needed(facts.tokenizer, "text").encode(prompt)
    elif isinstance(prompt[0], Mapping):
        tokens = _rendered(prompt, _needed(facts.tokenizer, "messages"))
    else:
        tokens = _ids(prompt)
    if not tokens:
        raise PromptError(f"the prompt {prompt!r} has no tokens: expected at least one")
    if wrong := next((token for token in tokens if not 0 <= token < facts.vocabulary), None):
        raise PromptError(f"the prompt holds token {wrong}: expected ids from 0 to {facts.vocabulary - 1}")
    return tokens


def _ids(prompt: Iterable[Any]) -> list[int]:
    try:
        return [operator.index(token) for token in prompt]
    except (TypeError, ValueError):
        raise PromptError(f"the prompt is {prompt!r}: expected text, token ids or chat messages") from None


def _rendered(messages: Sequence[Any], tokenizer: Tokenizer) -> list[int]:
    """Messages to ids by the model's own chat template."""
    for message in messages:
        if not isinstance(message, Mapping) or not {"role", "content"} <= set(message):
            raise PromptError(f"the chat message {message!r} lacks role or content")
    if not getattr(tokenizer, "chat_template", None):
        raise PromptError("this model has no chat template; pass the prompt as text instead of messages")
    try:
        rendered = tokenizer.apply_chat_template(
            list(messages), add_generation_prompt=True, tokenize=True, return_dict=False
        )
    except Exception as error:  # a template may refuse roles or their order in any way it likes
        raise PromptError(f"the model's chat template refuses these messages: {error}") from error
    return [int(token) for token in rendered]


def _needed(tokenizer: Tokenizer | None, what: str) -> Tokenizer:
    if tokenizer is None:
        raise PromptError(f"a prompt given as {what} needs a tokenizer, and this model has none; pass token ids")
    return tokenizer


def _words(word: str | Sequence[int], facts: Facts) -> Iterable[tuple[int, ...]]:
    """A bad word's ids: most tokenizers have others for it in running text, behind a space, than for it alone."""
    if not isinstance(word, str):
        try:
            return [tuple(map(operator.index, word))]
        except TypeError:
            raise ParameterError(f"bad_words holds {word!r}: expected strings or id sequences") from None
    tokenizer: Any = _needed(facts.tokenizer, "bad words")
    forms = [word, f" {word.lstrip()}"] if word.strip() else [word]
    return [tuple(tokenizer.encode(form, add_special_tokens=False)) for form in forms]


def _texts(value: Any) -> Any:
    """One text, or several things."""
    return (value,) if isinstance(value, str) else tuple(value)


def _strings(value: Any) -> tuple[str, ...]:
    """One text, or several texts."""
    return _all(_texts(value), str)


def _functions(value: Any) -> tuple[Any, ...]:
    """Several things that can be called."""
    return _all(value, Callable)


def _all(values: Iterable[Any], kind: Any) -> tuple[Any, ...]:
    several = tuple(values)
    if not all(isinstance(each, kind) for each in several):
        raise TypeError
    return several


def _several(value: Any) -> tuple[int, ...]:
    """One id, or several."""
    return tuple(map(operator.index, [value] if isinstance(value, int) else value))


def _number(value: Any) -> float:
    if isinstance(value, str | bool):
        raise TypeError
    return float(value)


_TYPES: dict[str, tuple[Callable[[Any], Any], str]] = {
    **dict.fromkeys(("max_new_tokens", "top_k", "min_new_tokens", "seed", "logprobs"), (operator.index, "an integer")),
    **dict.fromkeys(("temperature", "top_p", "min_p"), (_number, "a number")),
    **dict.fromkeys(("repetition_penalty", "presence_penalty", "frequency_penalty"), (_number, "a number")),
    **dict.fromkeys(("stop_token_ids", "eos_token_ids"), (_several, "token ids")),
    "stop": (_strings, "a text, or a list of texts"),
    "bad_words": (_texts, "a text, or a list"),
    "logit_bias": (lambda value: {int(token): _number(bias) for token, bias in value.items()}, "a mapping"),
    "processors": (_functions, "a list of functions"),
}
"""What makes a parameter of what is given, and how that is said."""


def _typed(name: str, value: Any) -> Any:
    make, expected = _TYPES.get(name, (bool, "True or False"))
    try:
        return make(value)
    except (TypeError, ValueError, AttributeError, OverflowError):
        raise ParameterError(f"{name} is {value!r}: expected {expected}") from None


def _dice(seed: int | None) -> NoisyDice:
    """Dice of the prompt's own, with the noise that coupled acceptance shares between drafter and target."""
    return NoisyDice(RandomDice(seed), SeededNoise(secrets.randbits(63) if seed is None else seed))


def text_decoder(tokenizer: Tokenizer | None) -> Any:
    """Ids to text, special tokens skipped, spaces as the tokens have them."""
    if tokenizer is None:
        return None
    return lambda ids: tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
