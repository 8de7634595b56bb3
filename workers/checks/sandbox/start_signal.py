"""The bootstrap's signal that the untrusted program starts, which brings a descriptor of the sandbox's ``/tmp``.

Each file takes about a kilobyte of the kernel's memory, and ``/tmp`` is a file system in memory. bubblewrap bounds its
size, but not the number of its files, and there is no resource limit for it. So the files are counted from outside.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from typing import Self


class StartSignal:
    """The signal of one program; ``passed_fd`` is the descriptor to pass, ``received`` is set by `files`."""

    def __init__(self) -> None:
        """Create the sockets."""
        self.received = False
        self._disk: list[int] = []
        self._ours, self._theirs = socket.socketpair()
        self._ours.setblocking(False)
        self.passed_fd = self._theirs.fileno()

    def files(self) -> int:
        """Return the number of files, folders and links in ``/tmp``; 0 without a sandbox or before the start."""
        if not self.received:
            with suppress(BlockingIOError):
                data, self._disk, *_ = socket.recv_fds(self._ours, 1, 1)
                self.received = bool(data)
        counts = [os.fstatvfs(folder) for folder in self._disk]
        return sum(count.f_files - count.f_ffree for count in counts)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for folder in self._disk:  # which frees the file system
            os.close(folder)
        self._ours.close()
        self._theirs.close()
