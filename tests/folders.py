"""Tiny random models in folders, with a tokenizer, for tests of everything that starts from a name."""

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from tests import tiny

TEMPLATE = (
    "{% for m in messages %}[{{ m['role'] }}]{{ m['content'] }}{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)


def bytes_tokenizer(*, swapped=False, template=TEMPLATE):
    """A byte a token, and an end token."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    if swapped:
        alphabet[40], alphabet[41] = alphabet[41], alphabet[40]
    vocabulary = {letter: index for index, letter in enumerate(alphabet)} | {"<end>": 256}
    inner = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<end>", chat_template=template)


def folder(path, *, seed=0, vocabulary=260, context=128, **tokenizer):
    tiny.tiny_model(
        seed=seed, vocab_size=vocabulary, max_position_embeddings=context, eos_token_id=256
    ).save_pretrained(path)
    bytes_tokenizer(**tokenizer).save_pretrained(path)
    return str(path)
