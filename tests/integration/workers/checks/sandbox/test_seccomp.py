"""The filter of system calls, in the sandbox."""

import errno
import platform

import pytest

from workers.checks.sandbox.runner import Limits, run_python
from workers.checks.sandbox.seccomp import ARCHITECTURES

NAMESPACE = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
libc.prctl(4, 1, 0, 0, 0)  # dumpable again, so that /proc/self is its own
uid = os.getuid()
"""


@pytest.mark.usefixtures("sandboxed")
@pytest.mark.skipif(platform.machine() not in ARCHITECTURES, reason="no filter for this machine")
class TestInTheSandbox:
    def test_filter_denies_a_private_tmpfs(self) -> None:
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

    def test_filter_denies_user_namespaces_by_clone(self) -> None:
        numbers = {"x86_64": 56, "aarch64": 220}
        source = f"""{NAMESPACE}
child = libc.syscall({numbers[platform.machine()]}, 0x10000000 | 17, 0, 0, 0, 0)
if child == 0:
    os._exit(0)
print(child, ctypes.get_errno(), libc.syscall(435, 0, 0), ctypes.get_errno())
"""
        assert run_python(source).stdout.split() == ["-1", str(errno.EPERM), "-1", str(errno.ENOSYS)]

    def test_filter_denies_vsock(self) -> None:
        source = "import socket\nsocket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)"
        assert "Address family not supported" in run_python(source).error

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
    def test_filter_kills_calls_of_a_foreign_abi(self, call: str) -> None:
        done = run_python(f"import ctypes, mmap\n{call}\nprint('alive')")
        assert (done.stdout, done.termination) == ("", "signal")

    def test_filter_allows_threads_processes_and_sockets(self) -> None:
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

    def test_filter_descriptor_is_closed_in_the_program(self) -> None:
        source = "import os\nprint(*sorted(os.listdir('/proc/self/fd')))"  # the last is that of the folder
        assert run_python(source).stdout == "0 1 2 3\n"
