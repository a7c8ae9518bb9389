"""The torch modules of the heads: Medusa, EAGLE-1 and EAGLE-3. Drafters run them, training trains them."""

__all__: list[str] = []
