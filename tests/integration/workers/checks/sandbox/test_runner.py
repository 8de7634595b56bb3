"""The sandbox holds: each test here tries to get out, or to take more than it may."""

import errno
import os
import socket
import sys
from pathlib import Path

import pytest

from workers.checks.sandbox.runner import Limits, run_python

pytestmark = pytest.mark.usefixtures("sandboxed")


def test_run_python_passes_stdin_and_stdout() -> None:
    done = run_python("print(input()[::-1])", stdin="abc\n")
    assert (done.stdout, done.exit_code, done.termination, done.ok) == ("cba\n", 0, "exit", True)


def test_run_python_reports_errors() -> None:
    done = run_python("import sys\nprint('half')\nraise ValueError('no')")
    assert (done.stdout, done.exit_code, done.ok, done.error) == ("half\n", 1, False, "ValueError: no")
    assert run_python("import sys; sys.exit(3)").error == "exit code 3"


def test_run_python_isolates_the_network() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = ("127.0.0.1", server.getsockname()[1])
        program = f"import socket\nprint(socket.socket().connect_ex({address}))"
        assert run_python(program).stdout.strip() in (str(errno.ECONNREFUSED), str(errno.ENETUNREACH))
        socket.create_connection(address).close()  # outside, the server answers


def test_run_python_hides_unix_sockets(tmp_path: Path) -> None:
    abstract = f"\0rubricsvc-test-{os.getpid()}"
    for address, error in ((str(tmp_path / "s"), errno.ENOENT), (abstract, errno.ECONNREFUSED)):
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(address)
            server.listen()
            done = run_python(f"import socket\nprint(socket.socket(socket.AF_UNIX).connect_ex({address!r}))")
            assert done.stdout.strip() == str(error)


def test_run_python_denies_writes_outside_tmp() -> None:
    cases = [
        "/x", "/box/x", "/usr/x", "/etc/x", "/dev/x", "/dev/shm/x", "/root/x", "/proc/sys/kernel/hostname",
        "/box/main.py",
    ]  # fmt: skip
    for where in cases:
        assert not run_python(f"open({where!r}, 'w').write('x')").ok


def test_run_python_tmp_is_private_and_temporary(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    # where this Python itself lies under /tmp, the way to it is there too
    python = {Path(prefix).parts[2] for prefix in (sys.prefix, sys.base_prefix) if prefix.startswith("/tmp/")}
    listing = "print(' '.join(os.listdir('/tmp')))"
    first = run_python(f"import os\nopen('/tmp/left', 'w').write('x')\n{listing}").stdout.split()
    assert set(first) - python == {"left"} and set(run_python(f"import os\n{listing}").stdout.split()) <= python
    assert not Path("/tmp/left").exists()


def test_run_python_hides_files(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    for path in (str(secret), "/etc/passwd", "/etc/shadow", str(Path.home() / ".bashrc"), __file__):
        assert not run_python(f"print(open({path!r}).read())").ok


def test_run_python_does_not_follow_links_outside(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    source = f"""
import os
for target in ({str(secret)!r}, "/proc/1/root{secret}", "/proc/1/cwd/../{secret.name}", "/proc/self/root{secret}"):
    if os.path.lexists("/tmp/link"):
        os.unlink("/tmp/link")
    os.symlink(target, "/tmp/link")
    try:
        print(open("/tmp/link").read())
    except OSError:
        pass
    try:
        open("/tmp/link", "w").write("changed")
    except OSError:
        pass
"""
    assert "secret" not in run_python(source).stdout
    assert secret.read_text() == "secret"


def test_run_python_clears_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    source = "import os\nprint(dict(os.environ))\nfor n in (1, 2, 'self'): print(open(f'/proc/{n}/environ').read())"
    done = run_python(source)
    assert "HOME" in done.stdout and "secret" not in done.stdout + done.stderr


def test_run_python_hides_other_processes() -> None:
    source = f"""
import os, signal
print(sorted(int(name) for name in os.listdir("/proc") if name.isdigit()))
for pid in ({os.getpid()}, {os.getppid()}, 1):
    try:
        os.kill(pid, signal.SIGKILL)
    except OSError:
        pass
print("alive")
"""
    done = run_python(source)
    seen = done.stdout.splitlines()[0]
    assert len(seen.split(",")) <= 2
    assert os.getpid() > 2
    os.kill(os.getpid(), 0)


def test_run_python_drops_privileges() -> None:
    source = """
import os
print(os.getuid(), [line for line in open("/proc/self/status") if line.startswith("CapEff")])
for become in (lambda: os.setuid(0), lambda: os.setgroups([0]), lambda: os.chroot("/tmp")):
    try:
        become()
        print("became")
    except OSError:
        pass
"""
    done = run_python(source)
    assert done.ok and "became" not in done.stdout
    assert not done.stdout.startswith("0 ") and "0000000000000000" in done.stdout


def test_run_python_limits_cpu_time() -> None:
    done = run_python("while True: pass", limits=Limits(cpu_s=1, wall_s=300))
    assert (done.termination, done.ok, done.error) == ("cpu", False, "out of CPU time")
    stubborn = "import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass"
    assert run_python(stubborn, limits=Limits(cpu_s=1, wall_s=300)).termination == "signal"


def test_run_python_limits_wall_time() -> None:
    source = "import time\nprint('begun', flush=True)\ntime.sleep(3600)"
    done = run_python(source, limits=Limits(wall_s=3))
    assert (done.stdout, done.termination, done.exit_code, done.error) == ("begun\n", "wall", None, "out of time")


def test_run_python_limits_memory() -> None:
    done = run_python("x = bytearray(1 << 30)", limits=Limits(memory_mib=256))
    assert done.error == "MemoryError"


def test_run_python_limits_memfd_files() -> None:
    done = run_python(
        """
import os
held, full = [], b"x" * (1 << 20)
try:
    for _ in range(100):
        held.append(os.memfd_create("a"))
        try:
            while os.write(held[-1], full):
                pass
        except OSError:
            pass
except OSError as error:
    print(error.strerror, sum(os.fstat(one).st_size for one in held) <= 64 << 20)
""",
        limits=Limits(output_mib=1),
    )
    assert done.stdout == "Too many open files True\n"


def test_run_python_limits_disk() -> None:
    source = "import os\nfor n in range(100):\n  open(f'/tmp/{n}', 'wb').write(bytes(1 << 20))"
    assert "No space left" in run_python(source, limits=Limits(disk_mib=8)).error


def in_a_loop(body: str, start: str = "") -> str:
    return f"import os, socket\nos.chdir('/tmp')\n{start}\nfor n in range(200_000):\n  {body}"


CREATE = "os.close(os.open(str(n), os.O_CREAT | os.O_WRONLY))"


def test_run_python_limits_files() -> None:
    cases = [
        in_a_loop(CREATE),
        in_a_loop(
            CREATE,
            "for child in range(8):\n  if os.fork() == 0: break\nos.mkdir(f'of-{child}')\nos.chdir(f'of-{child}')",
        ),
        in_a_loop("os.mkdir('d' * 250); os.chdir('d' * 250)"),
        in_a_loop("os.mkdir(str(n).rjust(255, 'x'))"),
        in_a_loop("os.link('file', str(n))", "open('file', 'w').close()"),
        in_a_loop("os.symlink('t' * 120, str(n))"),
        in_a_loop("f = os.open(str(n), os.O_CREAT | os.O_RDWR); os.truncate(f, 1 << 20); os.close(f)"),
        in_a_loop("os.mkfifo(str(n))"),
        in_a_loop("s = socket.socket(socket.AF_UNIX); s.bind(str(n)); s.close()"),
    ]
    for program in cases:
        done = run_python(program, limits=Limits(cpu_s=60, wall_s=300, files=2000))
        assert (done.termination, done.ok, done.error) == ("files", False, "too many files")


def test_run_python_counts_files_that_a_short_program_leaves() -> None:
    def left(count: int) -> str:
        source = f"for n in range({count}): open(f'/tmp/{{n}}', 'w').close()"
        return run_python(source, limits=Limits(files=200)).termination

    assert (left(100), left(300)) == ("exit", "files")


def test_run_python_limits_shared_memory() -> None:
    shared = "from multiprocessing.shared_memory import SharedMemory\nSharedMemory(create=True, size=1 << 20)"
    assert "Read-only file system" in run_python(shared).error
    opened = "import os\nopened = []\nwhile True: opened.append(os.open('/dev/null', os.O_RDONLY))"
    assert "Too many open files" in run_python(opened).error


def test_run_python_limits_output() -> None:
    done = run_python("while True: print('x' * 10000)", limits=Limits(output_mib=1))
    assert (done.termination, len(done.stdout), done.error) == ("output", 1 << 20, "too much output")
    silent = "import os\nwhile True:\n  try: os.write(1, b'x' * 10000)\n  except OSError: break"
    assert run_python(silent, limits=Limits(output_mib=1)).termination == "output"


def test_run_python_limits_processes() -> None:
    source = """
import os, time
made = 0
try:
    while True:
        if os.fork() == 0:
            time.sleep(60)
            os._exit(0)
        made += 1
except BlockingIOError:
    print(made)
"""
    done = run_python(source, limits=Limits(processes=8))
    assert 0 < int(done.stdout) < 8


def test_run_python_ends_child_processes(tmp_path: Path) -> None:
    source = "import subprocess, sys\nsubprocess.Popen(['sleep', '3141.59'], start_new_session=True)\nprint('gone')"
    assert run_python(source).stdout == "gone\n"
    alive = [p for p in Path("/proc").glob("[0-9]*/cmdline") if b"3141.59" in _read(p)]
    assert not alive


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
