"""The system calls that the sandbox denies, as a seccomp filter for ``bwrap --seccomp FD`` (classic BPF).

New namespaces would allow a program to mount file systems, whose memory no limit counts. The other denied calls use
resources that no limit counts, reach out of the sandbox, or expose much of the kernel for little use. A filter cannot
see the flags of ``clone3``: it returns ENOSYS, and the C library falls back to ``clone``.
"""

from __future__ import annotations

import errno
import platform
import struct
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

_Instruction = tuple[int, int, int, int]  # code, jump if true, jump if false, operand

_LOAD, _EQUAL, _HAS_BITS, _RETURN = 0x20, 0x15, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16  # of struct seccomp_data; the low half of the argument
_KILL, _REFUSE, _ALLOW = 0x80000000, 0x00050000, 0x7FFF0000
_X32 = 0x40000000  # a bit of the numbers of x86-64's second ABI

_NEW_NAMESPACES = 0x7E020080  # CLONE_NEWUSER | NEWNS | NEWPID | NEWNET | NEWIPC | NEWUTS | NEWCGROUP | NEWTIME
_FAMILIES = (1, 2, 10, 16)  # AF_UNIX, AF_INET, AF_INET6, AF_NETLINK: those that a network namespace confines


@dataclass(frozen=True, slots=True)
class Architecture:
    """The AUDIT_ARCH number, and the numbers of the calls that are denied by EPERM or filtered by their arguments."""

    audit: int
    refused: tuple[int, ...]
    clone: int
    unshare: int
    socket: int
    socketpair: int


_SINCE_424 = (425, 428, 429, 430, 431, 432, 433, 442, 467)
"""Everywhere: io_uring_setup (it makes sockets past a filter), open_tree, move_mount, fsopen, fsconfig, fsmount,
fspick, mount_setattr, open_tree_attr."""

_CLONE3 = 435

# mount, umount2, pivot_root, chroot, setns; shmget, msgget, semget, whose memory no limit counts; add_key, request_key,
# keyctl, since the worker's keyring is inherited; bpf, perf_event_open, userfaultfd
_X86_64 = (165, 166, 155, 161, 308, 29, 68, 64, 248, 249, 250, 321, 298, 323)
_AARCH64 = (40, 39, 41, 51, 268, 194, 186, 190, 217, 218, 219, 280, 241, 282)

ARCHITECTURES = {
    "x86_64": Architecture(0xC000003E, _X86_64 + _SINCE_424, clone=56, unshare=272, socket=41, socketpair=53),
    "aarch64": Architecture(0xC00000B7, _AARCH64 + _SINCE_424, clone=220, unshare=97, socket=198, socketpair=199),
}
"""By the machine name of the kernel. Other machines have no filter."""


@contextmanager
def passed_fds() -> Iterator[tuple[int, ...]]:
    """Yield the file descriptor from which bubblewrap reads the filter; none on machines without a filter."""
    here = ARCHITECTURES.get(platform.machine()) if sys.maxsize > 1 << 32 else None  # a 32-bit Python is a foreign one
    with tempfile.TemporaryFile() as file:
        if here:
            file.write(program(here))
            file.seek(0)
        yield (file.fileno(),) if here else ()


def program(of: Architecture) -> bytes:
    """Return the filter as an array of ``struct sock_filter``. It kills programs that use a foreign ABI."""

    def when(comparison: int, operands: Iterable[int], then: Sequence[_Instruction]) -> list[_Instruction]:
        """Return ``then``, which must end by returning, to run if the comparison with the loaded value holds."""
        return [step for operand in operands for step in ((comparison, 0, len(then), operand), *then)]

    allow, kill = (_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _KILL)
    deny, none, family = ((_RETURN, 0, 0, _REFUSE | code) for code in (errno.EPERM, errno.ENOSYS, errno.EAFNOSUPPORT))
    argument = (_LOAD, 0, 0, _FIRST_ARGUMENT)
    spaces = [argument, *when(_HAS_BITS, [_NEW_NAMESPACES], [deny]), allow]
    families = [argument, *when(_EQUAL, _FAMILIES, [allow]), family]
    steps = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, of.audit),
        kill,
        (_LOAD, 0, 0, _NUMBER),
        *when(_HAS_BITS, [_X32], [kill]),
        *when(_EQUAL, [_CLONE3], [none]),
        *when(_EQUAL, of.refused, [deny]),
        *when(_EQUAL, [of.clone, of.unshare], spaces),
        *when(_EQUAL, [of.socket, of.socketpair], families),
        allow,
    ]
    return b"".join(struct.pack("=HBBI", *step) for step in steps)
