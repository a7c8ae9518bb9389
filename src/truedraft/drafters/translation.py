"""How a drafter's token ids stand to the target's: the same ones, or those of another tokenizer.

With another tokenizer the small model reads the target's text encoded anew in its own tokens, and of its tokens those
are drafted that are a single token of the target as well (token-level intersection, Timor et al. 2025). Its law over
these, renormalised, is the q that drafts are drawn from and that rules are given, so every rule stays lossless. What is
lost is acceptance alone: of tokens that only one side has, and where the same text is cut differently by the two, as at
the end of what the target has written so far.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from truedraft.errors import VocabularyError

__all__ = ["OtherIds", "SameIds", "Translation", "pieces"]

_STAND_IN = 0
"""What a model reads for a token that is beyond its own vocabulary, and for a text of which nothing is left."""


class Translation(Protocol):
    """From the target's ids to a drafter's and back."""

    def read(self, tokens: Sequence[int]) -> list[int]:
        """The target's text, never empty, as the drafter reads it; never empty."""
        ...

    def node(self, token: int) -> int:
        """A drafted token as the drafter reads it."""
        ...

    def logits(self, own: Tensor) -> Tensor:
        """The drafter's logits [F, v] to those of the target's ids [F, V]; probability 0 for what is never drafted."""
        ...


@dataclass(frozen=True)
class SameIds:
    """The target's ids. vocabulary: V; readable: v, the drafter's own number; the sizes may differ by padding."""

    vocabulary: int
    readable: int

    def read(self, tokens: Sequence[int]) -> list[int]:
        """The same tokens, a stand-in for those that the drafter does not have."""
        return list(map(self.node, tokens))

    def node(self, token: int) -> int:
        """The same token, or the stand-in."""
        return token if token < self.readable else _STAND_IN

    def logits(self, own: Tensor) -> Tensor:
        """Cut, or padded."""
        short = self.vocabulary - own.shape[-1]
        return torch.nn.functional.pad(own, (0, short), value=-torch.inf) if short else own


class OtherIds:
    """The ids of two transformers tokenizers. vocabulary: V; readable: v, the number of the drafter's logits.

    Raises `VocabularyError` if they have no token in common.
    """

    def __init__(self, target: Any, draft: Any, *, vocabulary: int, readable: int) -> None:
        self._target, self._draft, self._vocabulary = target, draft, vocabulary
        theirs: dict[tuple[bool, bytes], int] = {}
        for piece, index in pieces(draft):
            if index < readable:
                theirs.setdefault(piece, index)
        self._own: dict[int, int] = {}
        for piece, index in pieces(target):
            if index < vocabulary and piece in theirs:
                self._own.setdefault(index, theirs[piece])
        if not self._own:
            raise VocabularyError("target and drafter have no token in common: choose another small model")
        self._to, self._from = torch.tensor(list(self._own)), torch.tensor(list(self._own.values()))

    @property
    def shared(self) -> float:
        """The share of the target's ids that can be drafted."""
        return len(self._own) / self._vocabulary

    def read(self, tokens: Sequence[int]) -> list[int]:
        """The text of the tokens in the drafter's own, as it would cut it itself."""
        text = self._target.decode(list(tokens), skip_special_tokens=False, clean_up_tokenization_spaces=False)
        text = text.removesuffix("\N{REPLACEMENT CHARACTER}")  # a character that is not all there yet
        return self._draft.encode(text, add_special_tokens=False) or [_STAND_IN]

    def node(self, token: int) -> int:
        """The drafter's id of a shared token, or the stand-in, as for one that a logits processor forces."""
        return self._own.get(token, _STAND_IN)

    def logits(self, own: Tensor) -> Tensor:
        """Those of shared tokens, at their places."""
        full = own.new_full((len(own), self._vocabulary), -torch.inf)
        full[:, self._to.to(own.device)] = own[:, self._from.to(own.device)]
        return full


def pieces(tokenizer: Any) -> Iterator[tuple[tuple[bool, bytes], int]]:
    """Every token of a transformers tokenizer as (whether it is special, its bytes), with its id; ascending ids."""
    special = {*tokenizer.all_special_ids, *getattr(tokenizer, "added_tokens_decoder", {})}
    to_bytes = _of_bytes if _is_byte_level(tokenizer) else _of_pieces
    for token, index in sorted(tokenizer.get_vocab().items(), key=lambda pair: pair[1]):
        is_special = index in special
        yield (is_special, token.encode() if is_special else to_bytes(token)), index


def _is_byte_level(tokenizer: Any) -> bool:
    """Whether tokens are written with one character a byte, as GPT-2's are."""
    inner = getattr(tokenizer, "backend_tokenizer", None)
    return inner is not None and "ByteLevel" in str(inner.decoder)


_VISIBLE = (*range(33, 127), *range(161, 173), *range(174, 256))
_HIDDEN = [byte for byte in range(256) if byte not in _VISIBLE]
_BYTE_OF = {chr(byte): byte for byte in _VISIBLE} | {chr(256 + place): byte for place, byte in enumerate(_HIDDEN)}
"""GPT-2's way to write a byte: what is visible stands for itself, the others follow behind."""


def _of_bytes(token: str) -> bytes:
    try:
        return bytes(_BYTE_OF[character] for character in token)
    except KeyError:
        return token.encode()


def _of_pieces(token: str) -> bytes:
    """As sentencepiece writes them: a low block for a space, <0x0A> for a byte that has no character of its own."""
    if len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
        return bytes.fromhex(token[3:5])
    return token.replace("\N{LOWER ONE EIGHTH BLOCK}", " ").encode()
