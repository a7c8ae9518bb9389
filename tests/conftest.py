"""What all tests share: examples drawn the same way on every run, and never a deadline."""

from hypothesis import settings

settings.register_profile("truedraft", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("truedraft")
