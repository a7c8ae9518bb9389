"""Models that score draft trees: the PyTorch runtime."""

__all__: list[str] = []
