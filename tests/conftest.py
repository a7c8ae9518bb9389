"""What all tests share: examples drawn the same way on every run, never a deadline, and no download by surprise."""

from functools import cache

import pytest
from hypothesis import settings

settings.register_profile("truedraft", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("truedraft")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The long ones first: processes that share the tests then end at about the same time."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a `real` test where its weights are missing, rather than fetch them in its middle."""
    if item.get_closest_marker("real") and (missing := reason_without_weights()):
        pytest.skip(missing)


@cache
def reason_without_weights() -> str | None:
    """What says that the default model is not in the cache; None if it is."""
    from truedraft.errors import DownloadError
    from truedraft.models import DEFAULT, resolve

    try:
        resolve(DEFAULT, offline=True)
    except DownloadError as error:
        return str(error)
    return None
