"""Several processes train one model: each takes its share of every batch, and gradients are averaged.

They are started by `torchrun`, or joined by the user's own `torch.distributed.init_process_group`. All begin with the same
weights and see the same gradients, so they hold the same model all the time. Alone, nothing here does anything.
"""

import importlib
import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch import distributed as dist


@contextmanager
def group() -> Iterator[None]:
    """Join the processes that `torchrun` has started, if it has."""
    if int(os.environ.get("WORLD_SIZE", "1")) < 2 or count() > 1:
        yield
        return
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    importlib.import_module("torch.distributed.nn")  # later it would keep the group, whose threads then end in an abort
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    try:
        yield
    finally:
        dist.destroy_process_group()


def count() -> int:
    """How many processes train together."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    """The number of this one; the first, 0, is the one that writes."""
    return dist.get_rank() if count() > 1 else 0


def first() -> bool:
    """Whether this is the one that writes, also before the group is joined."""
    return rank() == 0 and (count() > 1 or os.environ.get("RANK", "0") == "0")


def average(*tensors: Tensor) -> None:
    """Replace tensors by their means over all processes."""
    for tensor in tensors if count() > 1 else ():
        dist.all_reduce(tensor)
        tensor /= count()


def agreed(number: float) -> float:
    """The first process's number, so that all decide alike."""
    if count() == 1:
        return number
    said = torch.tensor(number, dtype=torch.float64, device="cuda" if dist.get_backend() == "nccl" else "cpu")
    dist.broadcast(said, 0)
    return float(said)
