"""Training of drafters: the target's answers, its features, losses, the loop, and one recipe a kind of drafter."""

__all__: list[str] = []
