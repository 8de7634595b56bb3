"""The filter of system calls: what it says, by a machine for it in Python, and what it does, in the sandbox."""

import errno
import platform
import struct
from itertools import product

import pytest

from workers.checks.sandbox.seccomp import ARCHITECTURES, passed_fds, program

ALLOWED, KILLED = 0x7FFF0000, 0x80000000
NAMES = ("x86_64", "aarch64")

CALLS = {
    "read": (0, 63), "write": (1, 64), "execve": (59, 221), "prctl": (157, 167), "setuid": (105, 146),
    "wait4": (61, 260),
    "clone": (56, 220), "unshare": (272, 97), "socket": (41, 198), "socketpair": (53, 199), "clone3": (435, 435),
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51), "setns": (308, 268),
    "shmget": (29, 194), "msgget": (68, 186), "semget": (64, 190), "keyctl": (250, 219), "add_key": (248, 217),
    "request_key": (249, 218), "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425), "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430),
    "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442),
    "open_tree_attr": (467, 467),
}  # fmt: skip
"""The kernel's numbers on x86-64 (``syscall_64.tbl``) and on aarch64 (``asm-generic/unistd.h``)."""

THREAD = 0x003D0F00  # what glibc gives clone for a thread: CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | …
FORK = 0x01200011  # and for a child: CLONE_CHILD_CLEARTID | CLONE_CHILD_SETTID | SIGCHLD


def verdict(name: str, call: int, argument: int = 0, audit: int | None = None) -> int:
    """What the filter of an architecture returns, by the rules of classic BPF."""
    of = ARCHITECTURES[name]
    data = struct.pack("=IIQ6Q", call, of.audit if audit is None else audit, 0, argument, *[0] * 5)
    steps = [*struct.iter_unpack("=HBBI", program(of))]
    assert len(steps) < 4096
    at = loaded = 0
    while True:
        code, true, false, operand = steps[at]
        at += 1
        if code == 0x06:
            return operand
        if code == 0x20:
            (loaded,) = struct.unpack_from("=I", data, operand)
        else:
            at += true if {0x15: loaded == operand, 0x45: bool(loaded & operand)}[code] else false


def test_filter_denies_namespaces_mounts_and_unlimited_resources() -> None:
    for name in NAMES:
        said = {call: verdict(name, numbers[NAMES.index(name)]) for call, numbers in CALLS.items()}
        plain = {"read", "write", "execve", "prctl", "setuid", "wait4", "clone", "unshare"}
        sockets = {"socket", "socketpair"}  # of family 0, which is none
        assert {call for call, found in said.items() if found == ALLOWED} == plain
        assert {call for call, found in said.items() if found == 0x50000 | errno.EAFNOSUPPORT} == sockets
        assert {call for call, found in said.items() if found == 0x50000 | errno.ENOSYS} == {"clone3"}
        assert {call for call, found in said.items() if found == 0x50000 | errno.EPERM} == (
            CALLS.keys() - plain - sockets - {"clone3"}
        )


def test_filter_allows_clone_without_namespaces() -> None:
    every = [(THREAD, True), (FORK, True), (17, True), *((1 << bit, False) for bit in (7, 17, 25, 26, 27, 28, 29, 30))]
    for (place, name), (flags, allowed) in product(enumerate(NAMES), every):
        for call in ("clone", "unshare"):
            found = verdict(name, CALLS[call][place], flags)
            assert found == (ALLOWED if allowed else 0x50000 | errno.EPERM), (name, call, flags)
            assert verdict(name, CALLS[call][place], flags | FORK) == found


def test_filter_allows_confined_socket_families() -> None:
    for name in NAMES:
        for call in ("socket", "socketpair"):
            allowed = {n for n in range(64) if verdict(name, CALLS[call][NAMES.index(name)], n) == ALLOWED}
            assert allowed == {1, 2, 10, 16}  # AF_UNIX, AF_INET, AF_INET6, AF_NETLINK


def test_filter_kills_a_foreign_abi() -> None:
    for name in NAMES:
        for audit in (0x40000003, 0x40000028, 0xC000003E, 0xC00000B7):  # i386, ARM, x86-64, aarch64
            assert (verdict(name, 1, audit=audit) == KILLED) == (audit != ARCHITECTURES[name].audit)
        assert verdict(name, 0x40000000 | 1) == KILLED, name


def test_passed_fds_is_empty_on_unknown_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    with passed_fds() as found:
        assert found == ()
