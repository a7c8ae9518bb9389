"""Evidence of losslessness for a user's own target, drafter, rule and sampling parameters.

`checks` gathers it, each check by the strongest means that its subject allows; `report` holds and prints it.
"""

__all__: list[str] = []
