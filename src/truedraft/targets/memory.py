"""How much memory a device has left, asked before a large buffer is made."""

from __future__ import annotations

import psutil
import torch

from truedraft.errors import OutOfMemoryError

__all__ = ["available_memory", "check_fits"]


def available_memory(device: torch.device) -> int:
    """Bytes that can still be allocated on the device."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return int(psutil.virtual_memory().available)


def check_fits(needed: int, available: int, what: str) -> None:
    """Raise `OutOfMemoryError` if `needed` bytes are more than `available`; `what` says for what they are."""
    if needed > available:
        raise OutOfMemoryError(
            f"{what} needs {needed / 2**30:.2f} GiB but only {available / 2**30:.2f} GiB are available; "
            "use a shorter text, a smaller batch or a lower precision"
        )
