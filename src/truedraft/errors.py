"""The exceptions a user can meet, drawn as a tree. Every message is one line: the value, what was expected, what to do.

TruedraftError
├── InputError                  the request is at fault
│   ├── ParameterError          a parameter is out of range or contradicts another
│   └── PromptError             an empty prompt, or one that does not fit the context
├── ModelError                  a model is at fault
│   ├── UnknownModelError       no catalogue name, folder, file or hub id matches
│   ├── DownloadError           the weights could not be fetched
│   ├── CorruptModelError       a file is damaged, truncated or incomplete
│   ├── UnsupportedModelError   the model cannot be decoded speculatively, with the reason
│   └── VocabularyError         target and drafter do not share their token ids
├── OutOfMemoryError            the cache would not fit; said before anything is computed
└── LawError                    a rule was given a draft for whose law it is not proved
"""

__all__ = [
    "CorruptModelError",
    "DownloadError",
    "InputError",
    "LawError",
    "ModelError",
    "OutOfMemoryError",
    "ParameterError",
    "PromptError",
    "TruedraftError",
    "UnknownModelError",
    "UnsupportedModelError",
    "VocabularyError",
]


class TruedraftError(Exception):
    """Base of every exception that this package raises on purpose."""


class InputError(TruedraftError, ValueError):
    """The request is at fault."""


class ParameterError(InputError):
    """A parameter is out of range or contradicts another."""


class PromptError(InputError):
    """The prompt is empty, malformed, or does not fit the context."""


class ModelError(TruedraftError):
    """A model is at fault."""


class UnknownModelError(ModelError):
    """No catalogue name, folder, file or hub id matches."""


class DownloadError(ModelError):
    """The weights could not be fetched."""


class CorruptModelError(ModelError):
    """A model file is damaged, truncated or incomplete."""


class UnsupportedModelError(ModelError):
    """The model cannot be decoded speculatively; the message says why."""


class VocabularyError(ModelError):
    """Target and drafter do not give the same meaning to the same token ids."""


class OutOfMemoryError(TruedraftError):
    """The cache would not fit; raised before anything is computed."""


class LawError(TruedraftError):
    """A rule was given a draft for whose law it is not proved lossless."""
