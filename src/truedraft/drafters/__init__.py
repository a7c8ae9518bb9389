"""Whatever bets on the next tokens, one file a kind."""

__all__ = ["NAMES"]

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
