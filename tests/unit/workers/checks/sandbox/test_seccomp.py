"""The filter of system calls: what it says, by a machine for it in Python, and what it does, in the sandbox."""

from __future__ import annotations

import errno
import platform
import struct

import pytest

from workers.checks.sandbox.runner import Limits, run_python
from workers.checks.sandbox.seccomp import ARCHITECTURES, handed, program

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


@pytest.mark.parametrize("name", NAMES)
def test_namespaces_mounts_and_what_no_limit_counts_are_refused(name: str) -> None:
    said = {call: verdict(name, numbers[NAMES.index(name)]) for call, numbers in CALLS.items()}
    plain = {"read", "write", "execve", "prctl", "setuid", "wait4", "clone", "unshare"}
    sockets = {"socket", "socketpair"}  # of family 0, which is none
    assert {call for call, found in said.items() if found == ALLOWED} == plain
    assert {call for call, found in said.items() if found == 0x50000 | errno.EAFNOSUPPORT} == sockets
    assert {call for call, found in said.items() if found == 0x50000 | errno.ENOSYS} == {"clone3"}
    assert {call for call, found in said.items() if found == 0x50000 | errno.EPERM} == (
        CALLS.keys() - plain - sockets - {"clone3"}
    )


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("flags", "allowed"),
    [(THREAD, True), (FORK, True), (17, True), *((1 << bit, False) for bit in (7, 17, 25, 26, 27, 28, 29, 30))],
)
def test_processes_and_threads_are_made_but_no_namespaces(name: str, flags: int, allowed: bool) -> None:
    for call in ("clone", "unshare"):
        found = verdict(name, CALLS[call][NAMES.index(name)], flags)
        assert found == (ALLOWED if allowed else 0x50000 | errno.EPERM)
        assert verdict(name, CALLS[call][NAMES.index(name)], flags | FORK) == found


@pytest.mark.parametrize("name", NAMES)
def test_sockets_are_of_families_that_a_namespace_confines(name: str) -> None:
    for call in ("socket", "socketpair"):
        allowed = {n for n in range(64) if verdict(name, CALLS[call][NAMES.index(name)], n) == ALLOWED}
        assert allowed == {1, 2, 10, 16}  # AF_UNIX, AF_INET, AF_INET6, AF_NETLINK


@pytest.mark.parametrize("name", NAMES)
def test_a_foreign_abi_is_killed(name: str) -> None:
    for audit in (0x40000003, 0x40000028, 0xC000003E, 0xC00000B7):  # i386, ARM, x86-64, aarch64
        assert (verdict(name, 1, audit=audit) == KILLED) == (audit != ARCHITECTURES[name].audit)
    assert verdict(name, 0x40000000 | 1) == KILLED


def test_a_machine_that_is_not_known_has_no_filter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    with handed() as found:
        assert found == ()


NAMESPACE = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
libc.prctl(4, 1, 0, 0, 0)  # dumpable again, so that /proc/self is its own
uid = os.getuid()
"""


@pytest.mark.usefixtures("sandboxed")
@pytest.mark.skipif(platform.machine() not in ARCHITECTURES, reason="no filter for this machine")
class TestInTheSandbox:
    def test_a_tmpfs_of_its_own_cannot_be_had(self) -> None:
        source = f"""{NAMESPACE}
print(libc.unshare(0x10000000 | 0x00020000))
try:
    open("/proc/self/setgroups", "w").write("deny")
    open("/proc/self/uid_map", "w").write(f"0 {{uid}} 1")
    os.mkdir("/tmp/m")
    print(libc.mount(b"none", b"/tmp/m", b"tmpfs", 0, b"size=1g"))
    for n in range(8):
        open(f"/tmp/m/{{n}}", "wb").write(bytes(4 << 20 - 1))
    print("more than its disk holds")
except OSError:
    pass
"""
        said = run_python(source, limits=Limits(disk_mib=8)).stdout
        assert said.splitlines()[:1] == ["-1"] and "more" not in said

    def test_clone_makes_no_user_namespace(self) -> None:
        numbers = {"x86_64": 56, "aarch64": 220}
        source = f"""{NAMESPACE}
child = libc.syscall({numbers[platform.machine()]}, 0x10000000 | 17, 0, 0, 0, 0)
if child == 0:
    os._exit(0)
print(child, ctypes.get_errno(), libc.syscall(435, 0, 0), ctypes.get_errno())
"""
        assert run_python(source).stdout.split() == ["-1", str(errno.EPERM), "-1", str(errno.ENOSYS)]

    def test_sockets_to_other_machines_on_the_host_cannot_be_made(self) -> None:
        source = "import socket\nsocket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)"
        assert "Address family not supported" in run_python(source).trouble

    @pytest.mark.skipif(platform.machine() != "x86_64", reason="of x86-64 only")
    @pytest.mark.parametrize(
        "call",
        [
            "ctypes.CDLL(None).syscall(0x40000027)",
            r"""
room = mmap.mmap(-1, 4096, prot=7)
room.write(b"\xb8\x14\0\0\0\xcd\x80\xc3")  # mov eax, 20 (getpid); int 0x80; ret
print(ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(room)))())""",
        ],
        ids=["x32", "i386"],
    )
    def test_calls_by_another_table_end_it(self, call: str) -> None:
        done = run_python(f"import ctypes, mmap\n{call}\nprint('alive')")
        assert (done.stdout, done.ended) == ("", "signal")

    def test_threads_and_programs_run(self) -> None:
        source = """
import concurrent.futures, multiprocessing, os, socket, subprocess
with concurrent.futures.ThreadPoolExecutor(4) as pool:
    print(*pool.map(lambda n: n * n, range(4)))
print(subprocess.run(["echo", "hello"], capture_output=True, text=True, check=True).stdout.strip())
ours, theirs = multiprocessing.Pipe()
process = multiprocessing.get_context("fork").Process(target=theirs.send, args=["sent"])
process.start()
print(ours.recv(), process.join())
with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
    print(client.send(b"x"))
"""
        done = run_python(source, limits=Limits(processes=32))
        assert done.stdout.splitlines() == ["0 1 4 9", "hello", "sent None", "1"], done.stderr

    def test_the_filter_is_not_there_to_be_read(self) -> None:
        source = "import os\nprint(*sorted(os.listdir('/proc/self/fd')))"  # the last is that of the folder
        assert run_python(source).stdout == "0 1 2 3\n"
