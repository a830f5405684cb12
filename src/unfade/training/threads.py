"""How many threads small work takes: one. Waiting for others costs more there than they save, most of all on busy machines.

The number is that of OpenMP in the calling thread alone, so that other threads of the process go on as they were.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch
from threadpoolctl import ThreadpoolController

SMALL = 2**16  # entries of a batch up to which a step has one thread: tables of some 500 columns
_USERS_OWN = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")


@contextmanager
def one_thread(entries: int | None) -> Iterator[None]:
    """Inside, torch has one thread if a batch has few entries (None: many); the user's own number is left alone."""
    if entries is None or entries > SMALL or _is_users_own(torch.get_num_threads()):
        yield
        return
    with _openmp().limit(limits=1, user_api="openmp"):
        yield


def _is_users_own(number: int) -> bool:
    """Whether a number of threads is one that the user chose: by the environment, or other than torch's own choice."""
    cores = {os.cpu_count() or 1, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1}
    usual = cores | {core // 2 for core in cores}  # two threads a core
    return number == 1 or number not in usual or any(name in os.environ for name in _USERS_OWN)


@cache
def _openmp() -> ThreadpoolController:
    return ThreadpoolController().select(user_api="openmp")
