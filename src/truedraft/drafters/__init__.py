"""Whatever bets on the next tokens, one file a kind."""

__all__ = ["DEFAULT", "NAMES"]

NAMES = (
    "none",
    "ngram",
    "suffix",
    "recycle",
    "merge",
    "cascade",
    "layer-skip",
    "model",
    "medusa",
    "eagle1",
    "eagle2",
    "eagle3",
    "mtp",
)
"""What users call them, here for whoever only wants to know that; `build.catalogue` makes them."""

DEFAULT = "cascade"
"""What drafts where nothing else was asked for: it needs nothing, and stops by itself where it does not pay."""
