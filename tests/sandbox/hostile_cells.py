"""What a jail must hold against: `NAME: code`. A cell that gets what it wants prints ESCAPED, or the host's secret."""

import re


def escaped(output):
    """It says so on a line of its own; a traceback shows only the code that would."""
    return re.search(r"^ESCAPED", output, re.MULTILINE)


BEFORE = """
import ctypes, os, sys, socket, signal, threading, time
libc = ctypes.CDLL(None, use_errno=True)
X86 = os.uname().machine == "x86_64"

def raw(x86, arm, *args):
    got = libc.syscall(ctypes.c_long(x86 if X86 else arm), *[a if isinstance(a, bytes) or a is None else ctypes.c_long(a) if isinstance(a, int) else a for a in args])
    if got < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return got

def wire():
    "The descriptor that frames go over, as anything in the process can find it."
    for fd in range(3, 128):
        try:
            socket.socket(fileno=os.dup(fd)).getpeername()
            return fd
        except OSError:
            continue
"""
"""Runs first in the same jail."""

FILES = {
    "open the secret": "print(open(SECRET).read())",
    "io.open": "import io; print(io.FileIO(SECRET).readall())",
    "os.open": "print(os.read(os.open(SECRET, os.O_RDONLY), 99))",
    "pathlib": "import pathlib; print(pathlib.Path(SECRET).read_text())",
    "raw open": "fd = libc.open(SECRET.encode(), 0); print(os.read(fd, 99)) if fd >= 0 else os.fdopen(fd)",
    "raw openat": "fd = raw(257, 56, -100, SECRET.encode(), 0, 0); print(os.read(fd, 99))",
    "raw openat2": "how = ctypes.create_string_buffer(24); print('ESCAPED', raw(437, 437, -100, SECRET.encode(), how, 24))",
    "raw open by fopen": "libc.fopen.restype = ctypes.c_void_p; f = libc.fopen(SECRET.encode(), b'r'); print('ESCAPED') if f else os.stat('/nowhere')",
    "O_PATH and reopen": "fd = os.open(os.path.dirname(SECRET), 0o10000000); print('ESCAPED', os.open('secret', 0, dir_fd=fd))",
    "mmap a file": "import mmap; print(mmap.mmap(os.open(SECRET, 0), 0)[:])",
    "linecache": "import linecache; t = linecache.getlines(SECRET); print('ESCAPED' if t else 'nothing'); 1 / len(t)",
    "list a directory": "print('ESCAPED', os.listdir(os.path.dirname(SECRET)))",
    "list the root": "print('ESCAPED', os.listdir('/'))",
    "list home": "print('ESCAPED', os.listdir(os.path.expanduser('~root')))",
    "scandir": "print('ESCAPED', [e.name for e in os.scandir('/etc')])",
    "passwd": "print('ESCAPED', open('/etc/passwd').read())",
    "the users": "import pwd; print('ESCAPED', pwd.getpwall()[0]) if pwd.getpwall() else os.listdir('/')",
    "write a file": "open(SECRET + '.new', 'w').write('x'); print('ESCAPED')",
    "append to a file": "open(SECRET, 'a').write('x'); print('ESCAPED')",
    "a temporary file": "import tempfile; tempfile.TemporaryFile().write(b'x'); print('ESCAPED')",
    "write to shared memory": "open('/dev/shm/x', 'w'); print('ESCAPED')",
    "delete a file": "os.unlink(SECRET); print('ESCAPED')",
    "rename a file": "os.rename(SECRET, SECRET + '2'); print('ESCAPED')",
    "link a file": "os.link(SECRET, SECRET + '2'); print('ESCAPED')",
    "symlink": "os.symlink(SECRET, SECRET + '2'); print('ESCAPED')",
    "make a directory": "os.mkdir(SECRET + '.d'); print('ESCAPED')",
    "chmod": "os.chmod(SECRET, 0o777); print('ESCAPED')",
    "chown": "os.chown(SECRET, 0, 0); print('ESCAPED')",
    "utime": "os.utime(SECRET); print('ESCAPED')",
    "truncate": "os.truncate(SECRET, 0); print('ESCAPED')",
    "chdir": "os.chdir(os.path.dirname(SECRET)); print('ESCAPED')",
    "chroot": "os.chroot('/'); print('ESCAPED')",
    "a named pipe": "os.mkfifo(SECRET + '.p'); print('ESCAPED')",
    "extended attributes": "os.setxattr(SECRET, 'user.x', b'1'); print('ESCAPED')",
    "other packages": "import site, glob; p = [m for m in sys.path]; print('ESCAPED', os.listdir(PACKAGES))",
    "a file of another package": "print('ESCAPED', open(PACKAGES + '/pytest/__init__.py').read()[:20])",
    "import another package": "sys.path.append(PACKAGES); import pytest; print('ESCAPED')",
    "import redraft": "import redraft; print('ESCAPED', redraft.__version__)",
    "sqlite on disk": "import sqlite3; sqlite3.connect(SECRET + '.db').execute('create table t(x)'); print('ESCAPED')",
    "load a library": "ctypes.CDLL(SECRET); print('ESCAPED')",
}

PROC = {
    "own environ": "print('ESCAPED', open('/proc/self/environ').read())",
    "parent's environ": "print('ESCAPED', open(f'/proc/{os.getppid()}/environ').read())",
    "parent's memory": "print('ESCAPED', open(f'/proc/{os.getppid()}/mem', 'rb').read(1))",
    "own memory": "print('ESCAPED', open('/proc/self/mem', 'rb').read(1))",
    "own maps": "print('ESCAPED', open('/proc/self/maps').read()[:50])",
    "descriptors": "print('ESCAPED', os.listdir('/proc/self/fd'))",
    "root by proc": "print('ESCAPED', os.listdir('/proc/self/root'))",
    "cwd by proc": "print('ESCAPED', os.readlink(f'/proc/{os.getppid()}/cwd'))",
    "all processes": "print('ESCAPED', [p for p in os.listdir('/proc') if p.isdigit()][:3])",
    "the environment": "v = os.environ.get('REDRAFT_SECRET') or os.getenv('HOME') or os.getenv('PATH'); print('ESCAPED' if v else 'none', dict(os.environ)); assert v",
    "getenv in C": "libc.getenv.restype = ctypes.c_char_p; v = libc.getenv(b'REDRAFT_SECRET'); print('ESCAPED' if v else 'none'); assert v",
    "the command line": "print('ESCAPED', open('/proc/1/cmdline').read())",
    "sys in /sys": "print('ESCAPED', os.listdir('/sys'))",
    "the kernel's log": "print('ESCAPED', raw(103, 116, 3, ctypes.create_string_buffer(99), 99))",
}

NETWORK = {
    "tcp": "s = socket.create_connection(('127.0.0.1', PORT), 2); print('ESCAPED')",
    "udp": "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.sendto(b'x', ('127.0.0.1', PORT)); print('ESCAPED')",
    "ipv6": "socket.socket(socket.AF_INET6); print('ESCAPED')",
    "listen": "s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen(); print('ESCAPED')",
    "a unix socket": "s = socket.socket(socket.AF_UNIX); s.connect(UNIX); print('ESCAPED')",
    "an abstract socket": "s = socket.socket(socket.AF_UNIX); s.connect('\\0' + ABSTRACT); print('ESCAPED')",
    "an abstract socket by a pair": "a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM); a.sendto(b'x', '\\0' + ABSTRACT); print('ESCAPED')",
    "reconnect a pair": "a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM); a.connect('\\0' + ABSTRACT); print('ESCAPED')",
    "bind a pair": "a, b = socket.socketpair(); a.bind('\\0mine'); print('ESCAPED')",
    "netlink": "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0); print('ESCAPED')",
    "a packet socket": "socket.socket(socket.AF_PACKET, socket.SOCK_RAW); print('ESCAPED')",
    "vsock": "socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM); print('ESCAPED')",
    "a name": "print('ESCAPED', socket.gethostbyname('localhost'))",
    "urlopen": "import urllib.request; urllib.request.urlopen(f'http://127.0.0.1:{PORT}', timeout=2); print('ESCAPED')",
    "asyncio server": "import asyncio\nasync def f():\n    await asyncio.open_connection('127.0.0.1', PORT)\nasyncio.run(f()); print('ESCAPED')",
    "raw socket call": "print('ESCAPED', raw(41, 198, 2, 1, 0))",
    "data out of band": "a, b = socket.socketpair(); a.send(b'xy', socket.MSG_OOB); print('ESCAPED')",
    "a handle of the host by the wire": "s = socket.socket(fileno=os.dup(wire())); print('ESCAPED', s.getsockopt(1, 77))",
    "who is at the other end": "s = socket.socket(fileno=os.dup(wire())); print('ESCAPED', s.getsockopt(1, 17, 12))",
    "send a descriptor": "a, b = socket.socketpair(); socket.send_fds(a, [b'x'], [0]); print('ESCAPED')",
}

PROCESSES = {
    "os.system": "r = os.system('echo ESCAPED'); print(r); assert r == 0",
    "popen": "print('ESCAPED', os.popen('id').read())",
    "subprocess": "import subprocess; print('ESCAPED', subprocess.run(['id'], capture_output=True))",
    "subprocess of Python": "import subprocess; subprocess.run([sys.executable, '-c', 'print(1)']); print('ESCAPED')",
    "fork": "pid = os.fork(); print('ESCAPED') if pid else os._exit(0)",
    "vfork": "print('ESCAPED', raw(58, 220, 0x4111, 0, 0, 0, 0))",
    "posix_spawn": "os.posix_spawn('/bin/true', ['true'], {}); print('ESCAPED')",
    "forkpty": "import pty; print('ESCAPED', pty.fork())",
    "multiprocessing": "import multiprocessing as m; p = m.Process(target=print); p.start(); print('ESCAPED')",
    "a process pool": "from concurrent.futures import ProcessPoolExecutor as P; P(1).submit(abs, 1).result(5); print('ESCAPED')",
    "raw clone": "r = raw(56, 220, 17, 0, 0, 0, 0)\nif r == 0: os._exit(0)\nprint('ESCAPED', r)",
    "clone3": "a = ctypes.create_string_buffer(88); r = raw(435, 435, a, 88)\nif r == 0: os._exit(0)\nprint('ESCAPED')",
    "clone with a namespace": "print('ESCAPED', raw(56, 220, 0x10000000 | 0x10F00, 0, 0, 0, 0))",
    "exec": "os.execv('/bin/true', ['true']); print('ESCAPED')",
    "exec the interpreter": "os.execv(sys.executable, ['python', '-c', 'print(1)']); print('ESCAPED')",
    "exec by descriptor": "os.execve(0, ['x'], {}); print('ESCAPED')",
    "memfd and exec": "fd = os.memfd_create('x'); os.write(fd, b'#!/bin/sh'); os.execve(fd, ['x'], {}); print('ESCAPED')",
    "raw execveat": "print('ESCAPED', raw(322, 281, -100, b'/bin/true', None, None, 0))",
    "kill the host": "os.kill(os.getppid(), signal.SIGTERM); print('ESCAPED')",
    "signal 0 to the host": "os.kill(os.getppid(), 0); print('ESCAPED')",
    "kill everybody": "os.kill(-1, signal.SIGKILL); print('ESCAPED')",
    "kill the group": "os.killpg(0, signal.SIGKILL); print('ESCAPED')",
    "kill init": "os.kill(1 if os.getpid() != 1 else 2, 0); print('ESCAPED')",
    "tkill the host": "print('ESCAPED', raw(200, 130, os.getppid(), 0))",
    "tgkill the host": "print('ESCAPED', raw(234, 131, os.getppid(), os.getppid(), 0))",
    "queue a signal": "print('ESCAPED', raw(129, 138, os.getppid(), 0, ctypes.create_string_buffer(128)))",
    "a signal by a pidfd": "print('ESCAPED', signal.pidfd_send_signal(os.pidfd_open(os.getppid()), 0))",
    "a signal by a descriptor": "import fcntl; a, b = socket.socketpair(); fcntl.fcntl(a, 8, os.getppid()); print('ESCAPED')",
    "a signal at death": "print('ESCAPED', libc.prctl(1, 0, 0, 0, 0)) if libc.prctl(1, 0, 0, 0, 0) == 0 else os.listdir('/')",
    "ptrace the host": "print('ESCAPED', raw(101, 117, 16, os.getppid(), 0, 0))",
    "be traced": "print('ESCAPED', raw(101, 117, 0, 0, 0, 0))",
    "read the host's memory": "b = ctypes.create_string_buffer(64); print('ESCAPED', raw(310, 270, os.getppid(), b, 1, b, 1, 0))",
    "write the host's memory": "b = ctypes.create_string_buffer(64); print('ESCAPED', raw(311, 271, os.getppid(), b, 1, b, 1, 0))",
    "the host's priority": "os.setpriority(os.PRIO_PROCESS, os.getppid(), 19); print('ESCAPED')",
    "the host's limits": "import resource; resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE, (9, 9)); print('ESCAPED')",
    "the host's scheduler": "os.sched_setaffinity(os.getppid(), {0}); print('ESCAPED')",
    "a new session": "os.setsid(); print('ESCAPED')",
    "dumpable again": "print('ESCAPED') if libc.prctl(4, 1, 0, 0, 0) == 0 else os.listdir('/')",
}

KERNEL = {
    "io_uring": "p = ctypes.create_string_buffer(128); print('ESCAPED', raw(425, 425, 4, p))",
    "bpf": "print('ESCAPED', raw(321, 280, 0, ctypes.create_string_buffer(72), 72))",
    "perf": "print('ESCAPED', raw(298, 241, ctypes.create_string_buffer(128), 0, -1, -1, 0))",
    "userfaultfd": "print('ESCAPED', raw(323, 282, 1))",
    "keyring": "print('ESCAPED', raw(250, 219, 0, -3, 0))",
    "unshare": "print('ESCAPED', raw(272, 97, 0x10000000))",
    "setns": "print('ESCAPED', raw(308, 268, 0, 0))",
    "mount": "print('ESCAPED', raw(165, 40, b'none', b'/', b'tmpfs', 0, None))",
    "pivot_root": "print('ESCAPED', raw(155, 41, b'/', b'/'))",
    "seccomp off": "print('ESCAPED', raw(317, 277, 0, 0, None))",
    "more privileges": "os.setuid(0); os.setresuid(0, 0, 0); print('ESCAPED')",
    "capset": "print('ESCAPED', raw(126, 91, ctypes.create_string_buffer(8), ctypes.create_string_buffer(24)))",
    "32-bit convention": "print('ESCAPED', raw(0x40000000 | 2, 0x40000000, SECRET.encode(), 0))",
    "an unknown call": "print('ESCAPED', raw(470, 470, 0))",
    "shared memory": "print('ESCAPED', raw(29, 194, 0x1234, 4096, 0o1666))",
    "message queue": "print('ESCAPED', raw(68, 186, 0x1234, 0o1666))",
    "a handle": "print('ESCAPED', raw(303, 264, -100, SECRET.encode(), ctypes.create_string_buffer(99), ctypes.create_string_buffer(8), 0))",
    "limits up": "import resource; resource.setrlimit(resource.RLIMIT_AS, (-1, -1)); print('ESCAPED')",
    "the clock": "time.clock_settime(time.CLOCK_REALTIME, 0); print('ESCAPED')",
    "the host's name": "socket.sethostname('x'); print('ESCAPED')",
    "reboot": "print('ESCAPED', raw(169, 142, 0, 0, 0, 0))",
    "inject into a terminal": "import fcntl; fcntl.ioctl(0, 0x5412, b'x'); print('ESCAPED')",
    "a bigger pipe": "import fcntl; r, w = os.pipe(); fcntl.fcntl(w, 1031, 1 << 20); print('ESCAPED')",
    "a landlock of one's own": "print('ESCAPED', raw(444, 444, None, 0, 1))",
    "unpickle": "import pickle\nclass E:\n    def __reduce__(self): return os.system, ('echo ESCAPED',)\nassert pickle.loads(pickle.dumps(E())) == 0",
    "subclasses": "[c for c in ().__class__.__base__.__subclasses__() if c.__name__ == 'Popen' and c(['id'])]; __import__('subprocess').Popen(['id']); print('ESCAPED')",
    "frames of the sandbox": "f = sys._getframe()\nwhile f.f_back: f = f.f_back\nprint(f.f_code.co_name); __import__('os').listdir('/'); print('ESCAPED')",
    "garbage of the sandbox": "import gc; [o for o in gc.get_objects() if type(o).__name__ == 'Inbox'][0]; open(SECRET)",
}

DENIED = {**FILES, **PROC, **NETWORK, **PROCESSES, **KERNEL}
"""Each is refused with an error, and the jail goes on."""

BOMBS = {
    # name: (code, what the error says). The sandbox may be lost; the host answers.
    "list": ("x = []\nwhile True: x.append('a' * 10**6)", "MemoryError"),
    "one string": ("'a' * 10**12", "MemoryError"),
    "bytes": ("bytearray(1 << 40)", "MemoryError"),
    "doubling": ("x = [0]\nwhile True: x += x", "MemoryError"),
    "a dict": ("d = {}\ni = 0\nwhile True:\n    d[i] = 'x' * 999\n    i += 1", "MemoryError"),
    "anonymous maps": ("import mmap\nm = []\nwhile True: m.append(mmap.mmap(-1, 1 << 28))", "OSError|MemoryError"),
    "recursion": ("def f(): return f()\nf()", "RecursionError"),
    "deep recursion": (
        "import sys\nsys.setrecursionlimit(10**9)\ndef f(n): return [f(n + 1)]\nf(0)",
        "MemoryError|SIGSEGV|RecursionError|SystemError",
    ),
    "C recursion": (
        "import sys\nsys.setrecursionlimit(10**9)\nx = []\nfor _ in range(10**6): x = [x]\nrepr(x)",
        "SIGSEGV|MemoryError|RecursionError",
    ),
    "deep source": ("(" * 100000, "SyntaxError|MemoryError|RecursionError"),
    "a huge power": ("7 ** 10 ** 8 % 3", "TimeoutError"),
    "an endless loop": ("while True: pass", "TimeoutError"),
    "sleep": ("import time\ntime.sleep(1000)", "TimeoutError"),
    "a loop that catches all": (
        "while True:\n    try:\n        while True: abs(1)\n    except BaseException: abs(2)",
        "TimeoutError",
    ),
    "signals ignored": (
        "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass",
        "TimeoutError",
    ),
    "signals blocked": (
        "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))\nwhile True: pass",
        "TimeoutError",
    ),
    "a regex": ("import re\nre.match('(a|a)*$', 'a' * 40 + 'b')", "TimeoutError"),
    "a lock": ("import threading\nl = threading.Lock()\nl.acquire()\nl.acquire()", "TimeoutError"),
    "a dead read": ("import os\nr, w = os.pipe()\nos.read(r, 1)", "TimeoutError"),
    "exit": ("import os\nos._exit(7)", "exit status 7"),
    "exit in a thread": (
        "import threading, os\nthreading.Thread(target=os._exit, args=(7,)).start()\nimport time\ntime.sleep(5)",
        "exit status 7",
    ),
    "a segmentation fault": ("import ctypes\nctypes.string_at(0)", "SIGSEGV"),
    "abort": ("import os\nos.abort()", "SIGABRT"),
    "kill itself": ("import os\nos.kill(os.getpid(), 9)", "SIGKILL"),
    "broken bytecode": (
        "def f(): pass\nf.__code__ = f.__code__.replace(co_code=bytes([100, 255] * 9))\nf()",
        "SIGSEGV|SystemError|Error",
    ),
    "stack overflow in C": (
        "import ctypes\nF = ctypes.CFUNCTYPE(None)\n@F\ndef f(): f()\nimport sys\nsys.setrecursionlimit(10**9)\nf()",
        "SIGSEGV|MemoryError|TimeoutError|SIGABRT|RecursionError|$",  # Python 3.13 and newer stop it in time, and go on
    ),
    "threads": (
        "import threading, time\nfor _ in range(5000): threading.Thread(target=time.sleep, args=(60,), daemon=True).start()",
        "RuntimeError",
    ),
    "descriptors": ("import os\nwhile True: os.pipe()", "OSError"),
    "a flood": ("import os\nwhile True: os.write(1, b'x' * 65536)", "OverflowError|TimeoutError"),
    "a flood of prints": ("while True: print('x' * 1000)", "TimeoutError"),
    "stdout closed": ("import os\nos.close(1)\nos.close(2)\nprint('x')", "OSError|exit|Bad|TimeoutError|died"),
    "all descriptors closed": ("import os\nos.closerange(0, 200)", "exit|Error|died"),
    "a trace function": ("import sys\nsys.settrace(lambda *a: 1 / 0)\nx = 1\n(lambda: 1)()", "ZeroDivisionError"),
    "builtins gone": ("import builtins\nvars(builtins).clear()\nx = 1\nprint(x)", "NameError|Error|exit|died"),
    "modules gone": ("import sys\nsys.modules.clear()\n1 / 0", "Error"),
    "an error without a message": ("class E(Exception):\n    def __str__(self): raise E\nraise E", "E"),
    "a long message": ("raise ValueError('x' * 10**7)", "ValueError: xxx"),
    "an odd repr": ("class R:\n    def __repr__(self): raise KeyboardInterrupt\nR()", "KeyboardInterrupt"),
    "a wide echo": ("['x' * 1000] * 10**5", ""),
    "null bytes": ("x = '\0'", "SyntaxError|ValueError|$"),
    "half an emoji": ("print('\\ud83d')", ""),
}
