"""Measuring: the prompts that loads are made of."""

__all__: list[str] = []
