"""What the torch programs share."""

import os

import torch
from behaviour import equal, true

import sim

MIB = 1 << 20
MODE = os.environ.get("CUDDY_CLIENT_MODE", "native")


def pattern(size, seed=1):
    """Bytes in page-locked memory, different for each seed."""
    host = torch.empty(size, dtype=torch.uint8, pin_memory=True)
    base = torch.arange(size, dtype=torch.int64)
    host.copy_(((base * 2654435761 + seed * 97) >> 5) & 0xFF)
    return host


def upload(host):
    """A device tensor with that data, by an asynchronous copy on the current stream."""
    device = torch.empty(host.numel(), dtype=torch.uint8, device="cuda")
    return device.copy_(host, non_blocking=True)


def download(device):
    """Its data in page-locked memory; waits for it."""
    host = torch.empty(device.numel(), dtype=torch.uint8, pin_memory=True)
    host.copy_(device, non_blocking=True)
    torch.cuda.current_stream().synchronize()
    return host


def same(device, host, what):
    """The device tensor has the host's data."""
    true(torch.equal(download(device), host), f"{what}: the data came back changed")




__all__ = ["MIB", "MODE", "download", "equal", "pattern", "same", "sim", "torch", "true", "upload"]
