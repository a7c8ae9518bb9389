"""Whatever bets on the next tokens, one file a kind."""

__all__: list[str] = []
