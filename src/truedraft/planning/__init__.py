"""When speculation pays: the account, measured costs, the search for a shape, the controller."""

__all__: list[str] = []
