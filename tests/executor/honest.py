"""What honest code does in the sandbox, by the part of the standard library that it uses; each returns True.

`tools/trace_calls.py` runs these to learn which system calls a job needs: to keep one more thing working, add it here.
"""

from __future__ import annotations

from typing import Final

GUESTS: Final = {
    "threads": """
import concurrent.futures, queue, threading, time
def main():
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        squares = list(pool.map(lambda n: n * n, range(50)))
    box, done = queue.Queue(), threading.Event()
    threading.Thread(target=lambda: (box.put(box), done.set()), name="named").start()
    done.wait(5)
    condition = threading.Condition()
    with condition:
        condition.wait(0.001)
    threading.Semaphore().acquire(timeout=0.001)
    timer = threading.Timer(0.001, lambda: None)
    timer.start(); timer.join()
    time.sleep(0.001)
    return squares[7] == 49 and box.get(timeout=1) is box and threading.get_native_id() > 0
""",
    "processes": """
import concurrent.futures, multiprocessing, os
from multiprocessing import shared_memory
def work(n):
    return n + 1
def main():
    context = multiprocessing.get_context("fork")
    with concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as pool:
        found = list(pool.map(work, range(10)))
    box = context.Queue()
    child = context.Process(target=box.put, args=(5,))
    child.start()
    got = box.get(timeout=10)
    child.join()
    with context.Pool(2) as pool:
        more = pool.map(work, range(4))
    shared = context.Value("i", 3)
    with shared.get_lock():
        shared.value += 1
    memory = shared_memory.SharedMemory(create=True, size=4096)
    memory.buf[0] = 7
    memory.close(); memory.unlink()
    ours, theirs = context.Pipe()
    ours.send([1]); ready = multiprocessing.connection.wait([theirs], 5)
    lock, barrier, event = context.RLock(), context.Barrier(1), context.Event()
    with lock:
        barrier.wait(1)
    return found[-1] == 10 and got == 5 and child.exitcode == 0 and more == [1, 2, 3, 4] and shared.value == 4 and bool(ready)
""",
    "subprocess": """
import os, signal, subprocess, sys
def main():
    code = "import sys; print(sys.stdin.read() + 'x'); sys.exit(3)"
    done = subprocess.run([sys.executable, "-S", "-c", code], input="in", capture_output=True, text=True)
    new = subprocess.run([sys.executable, "-S", "-c", "pass"], start_new_session=True, close_fds=True, cwd="/tmp", umask=0o22,
                         stdout=subprocess.DEVNULL, preexec_fn=lambda: os.setpgid(0, 0) if os.getsid(0) != os.getpid() else None)
    slow = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(60)"])
    try:
        slow.wait(0.01)
    except subprocess.TimeoutExpired:
        slow.terminate()
    group = subprocess.run([sys.executable, "-S", "-c", "pass"], process_group=0).returncode
    spawned = os.posix_spawn(sys.executable, [sys.executable, "-S", "-c", "pass"], os.environ)
    os.waitid(os.P_PID, spawned, os.WEXITED)
    pid = os.fork()
    if pid == 0:
        os._exit(4)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    handle = subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE)
    watched = os.pidfd_open(handle.pid)
    signal.pidfd_send_signal(watched, signal.SIGTERM)
    os.close(watched); handle.communicate()
    return [done.returncode, done.stdout.strip(), new.returncode, slow.wait(), group, status] == [3, "inx", 0, -15, 0, 4]
""",
    "sqlite": """
import sqlite3
def main():
    found = []
    for mode in ("delete", "wal", "memory", "truncate", "persist"):
        base = sqlite3.connect(f"{mode}.db", timeout=5)
        base.execute(f"pragma journal_mode={mode}"); base.execute("pragma synchronous=full")
        base.execute("create table t(a)")
        with base:
            base.executemany("insert into t values (?)", [(n,) for n in range(1000)])
        base.execute("vacuum")
        found.append(base.execute("select sum(a) from t").fetchone()[0])
        base.close()
    return found == [499500] * 5
""",
    "asyncio": """
import asyncio, signal, sys
async def all_of_it():
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGUSR1, lambda: None)
    signal.raise_signal(signal.SIGUSR1)
    found = await asyncio.gather(*(asyncio.sleep(0.001, n) for n in range(20)))
    child = await asyncio.create_subprocess_exec(sys.executable, "-S", "-c", "print(input())", stdin=asyncio.subprocess.PIPE,
                                                 stdout=asyncio.subprocess.PIPE)
    out, _ = await child.communicate(b"hello")
    other = await asyncio.to_thread(sum, range(10))
    async with asyncio.timeout(5):
        box = asyncio.Queue()
        await box.put(1)
        await box.get()
    return found[3] == 3 and out == b"hello\\n" and other == 45
def main():
    return asyncio.run(all_of_it())
""",
    "sockets and pollers": """
import os, select, selectors, signal, socket
def main():
    a, b = socket.socketpair()
    a.setblocking(False); b.settimeout(5)
    a.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65536); a.getsockopt(socket.SOL_SOCKET, socket.SO_TYPE)
    a.getsockname(); a.getpeername()
    a.send(b"1"); a.sendall(b"2"); a.sendmsg([b"3"]); socket.send_fds(a, [b"4"], [0])
    data, fds, _, _ = socket.recv_fds(b, 10, 1)
    for one in fds:
        os.close(one)
    with open("f", "wb+") as file:
        file.write(b"5" * 10); file.flush(); file.seek(0)
        a.setblocking(True); a.sendfile(file)
    b.recv(100); a.send(b"6"); b.recv_into(bytearray(5)); a.send(b"7"); b.recvmsg(5)
    a.send(b"8"); b.recvfrom(5)
    c, d = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    c.send(b"x"); c.close(); d.close()
    r, w = os.pipe()
    os.set_blocking(r, False); os.set_inheritable(r, True); os.get_inheritable(r)
    os.write(w, b"x")
    poll = select.poll(); poll.register(r, select.POLLIN)
    epoll = select.epoll(); epoll.register(r, select.EPOLLIN); epoll.modify(r, select.EPOLLIN)
    ready = [poll.poll(100), epoll.poll(0.1), select.select([r], [], [], 0.1)[0]]
    epoll.unregister(r); epoll.close()
    with selectors.DefaultSelector() as selector:
        selector.register(r, selectors.EVENT_READ); ready.append(selector.select(0.1))
    if hasattr(os, "eventfd"):
        event = os.eventfd(0, os.EFD_NONBLOCK); os.eventfd_write(event, 1); os.eventfd_read(event); os.close(event)
    if hasattr(os, "timerfd_create"):
        timer = os.timerfd_create(1); os.timerfd_settime(timer, initial=1); os.timerfd_gettime(timer); os.close(timer)
    a.shutdown(socket.SHUT_RDWR); a.close(); b.close(); a.detach()
    return all(ready) and data.endswith(b"4")
""",
    "files": """
import fcntl, filecmp, glob, mmap, os, pathlib, shutil, stat, tempfile, zipfile, tarfile, gzip, bz2, lzma
def main():
    home = pathlib.Path("tree"); (home / "a/b").mkdir(parents=True)
    one = home / "a/b/one.txt"; one.write_text("x" * 100_000); one.touch(); one.chmod(0o640)
    shutil.copy2(one, home / "two"); shutil.copytree(home / "a", home / "c"); shutil.move(home / "two", home / "three")
    (home / "link").symlink_to("three"); (home / "link").readlink(); (home / "link").resolve(); os.link(home / "three", home / "hard")
    os.replace(home / "hard", home / "hard2"); (home / "hard2").unlink()
    os.utime(one, (1, 2)); os.utime(one); os.truncate(one, 10); os.access(one, os.R_OK); os.chown(one, os.getuid(), os.getgid())
    os.lchown(home / "link", os.getuid(), -1)
    [*os.scandir(home)], [*os.walk(home)], os.listdir("."), os.getcwd(), glob.glob("tree/**", recursive=True)
    os.stat(one), os.lstat(home / "link"), os.statvfs("."), shutil.disk_usage("."), os.umask(0o22)
    d = os.open(home, os.O_RDONLY | os.O_DIRECTORY)
    os.mkdir("x", dir_fd=d); os.rename("x", "y", src_dir_fd=d, dst_dir_fd=d); os.rmdir("y", dir_fd=d); os.fsync(d); os.close(d)
    f = os.open("plain", os.O_RDWR | os.O_CREAT)
    os.write(f, b"abc"); os.pwrite(f, b"d", 3); os.pread(f, 2, 0); os.lseek(f, 0, 0); os.ftruncate(f, 2); os.fstat(f); os.fchmod(f, 0o600)
    os.writev(f, [b"a", b"b"]); os.readv(f, [bytearray(2)]); os.preadv(f, [bytearray(2)], 0); os.pwritev(f, [b"z"], 0)
    os.fsync(f); os.fdatasync(f); os.dup(f); os.dup2(f, 40); os.dup2(f, 41, inheritable=False); os.isatty(f); os.closerange(40, 42); os.fchown(f, -1, -1)
    os.posix_fallocate(f, 0, 4096)
    fcntl.fcntl(f, fcntl.F_GETFL); fcntl.fcntl(f, fcntl.F_SETFL, os.O_APPEND); fcntl.fcntl(f, fcntl.F_SETFD, fcntl.FD_CLOEXEC)
    fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB); fcntl.flock(f, fcntl.LOCK_UN); fcntl.lockf(f, fcntl.LOCK_EX); fcntl.lockf(f, fcntl.LOCK_UN)
    with mmap.mmap(f, 4096) as m:
        m[0] = 1; m.flush(); m.resize(8192) if hasattr(m, "resize") else None
    with mmap.mmap(-1, 8192) as m:
        m.write(b"x"); m.madvise(mmap.MADV_DONTNEED)
    os.copy_file_range(f, os.open("copy", os.O_RDWR | os.O_CREAT), 10, 0); os.close(f)
    with tempfile.TemporaryDirectory() as t, tempfile.NamedTemporaryFile(dir=t) as n, tempfile.TemporaryFile() as u, tempfile.SpooledTemporaryFile(10) as s:
        n.write(b"x"); u.write(b"y"); s.write(b"z" * 20)
    fd, name = tempfile.mkstemp(); os.close(fd); os.unlink(name); os.mkfifo("fifo")
    for module in (gzip, bz2, lzma):
        with module.open("packed", "wb") as p:
            p.write(b"x" * 1000)
    with zipfile.ZipFile("z.zip", "w") as z:
        z.write(home / "three")
    with tarfile.open("t.tgz", "w:gz") as t:
        t.add(home)
    shutil.unpack_archive("z.zip", "out2"); shutil.make_archive("made", "zip", home); filecmp.cmp("z.zip", "made.zip")
    here = os.getcwd(); os.chdir("tree"); os.chdir(here); os.fchdir(os.open(".", os.O_RDONLY))
    shutil.rmtree(home)
    return not home.exists()
""",
    "time, signals and facts": """
import datetime, getpass, locale, os, platform, pwd, random, resource, secrets, signal, ssl, sys, time, uuid, zoneinfo, faulthandler, ctypes, hashlib
def main():
    seen = []
    signal.signal(signal.SIGUSR1, lambda *_: seen.append(1)); os.kill(os.getpid(), signal.SIGUSR1)
    signal.signal(signal.SIGALRM, lambda *_: seen.append(2)); signal.setitimer(signal.ITIMER_REAL, 0.01); signal.pause()
    signal.getitimer(signal.ITIMER_REAL); signal.alarm(0); signal.siginterrupt(signal.SIGUSR1, False)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2]); signal.pthread_kill(__import__("threading").get_ident(), signal.SIGUSR2)
    signal.sigpending(); signal.sigtimedwait([signal.SIGUSR2], 1)
    os.kill(os.getpid(), signal.SIGUSR2); signal.sigwait([signal.SIGUSR2])
    signal.set_wakeup_fd(-1); faulthandler.enable()
    [time.clock_gettime(n) for n in (time.CLOCK_REALTIME, time.CLOCK_MONOTONIC, time.CLOCK_PROCESS_CPUTIME_ID, time.CLOCK_THREAD_CPUTIME_ID)]
    time.clock_getres(time.CLOCK_MONOTONIC), time.process_time(), time.thread_time(), time.time_ns(), time.localtime(), time.get_clock_info("time")
    time.sleep(0.001); datetime.datetime.now(zoneinfo.ZoneInfo("Europe/Rome")); os.times()
    os.cpu_count(), os.sched_getaffinity(0), os.sched_yield(), os.uname(), platform.platform()
    os.getpid(), os.getppid(), os.getuid(), os.geteuid(), os.getgid(), os.getegid(), os.getgroups(), os.getpgid(0), os.getpgrp(), os.getsid(0)
    os.getresuid(), os.getresgid(), os.getpriority(os.PRIO_PROCESS, 0), os.nice(1), os.sched_getscheduler(0)
    os.sched_get_priority_max(0), os.sched_get_priority_min(0), os.sched_getparam(0)
    resource.getrusage(resource.RUSAGE_SELF), resource.getrlimit(resource.RLIMIT_AS), resource.setrlimit(resource.RLIMIT_NOFILE, (100, 256)), resource.prlimit(0, resource.RLIMIT_CPU)
    os.urandom(8), secrets.token_hex(), random.random(), uuid.uuid4(), hashlib.scrypt(b"x", salt=b"y", n=2, r=8, p=1)
    os.sysconf("SC_NPROCESSORS_ONLN"), os.sysconf("SC_PHYS_PAGES"), os.confstr("CS_PATH"), ssl.create_default_context(), ssl.RAND_bytes(8)
    getpass.getuser(), locale.getlocale(), ctypes.CDLL(None).getpid(), sys.getswitchinterval()
    try:
        os.get_terminal_size()
    except OSError:
        pass
    return seen == [1, 2]
""",
    "the rest of the library": """
import array, collections, csv, ctypes, decimal, difflib, email.message, fractions, heapq, html.parser, importlib.metadata, importlib.resources, inspect, io
import itertools, json, logging, logging.handlers, math, operator, pickle, pprint, re, sched, shelve, statistics, string, struct, textwrap, tomllib, tracemalloc
import traceback, unittest, urllib.parse, warnings, weakref, xml.etree.ElementTree as tree, zlib, dbm.dumb, readline, curses, configparser, cProfile, timeit, gc, doctest
def main():
    logging.basicConfig(filename="log"); logging.warning("x")
    handler = logging.handlers.RotatingFileHandler("rotating", maxBytes=10, backupCount=2)
    for _ in range(5):
        handler.emit(logging.makeLogRecord({"msg": "hello world"}))
    with dbm.dumb.open("d", "c") as base:
        base["a"] = "b"
    with open("c.csv", "w", newline="") as file:
        csv.writer(file).writerow([1, 2])
    pickle.loads(pickle.dumps({1: [2]})); tree.fromstring("<a/>"); decimal.Decimal(1) / 3; statistics.mean([1, 2])
    profile = cProfile.Profile(); profile.runcall(sorted, range(100)); tracemalloc.start(); tracemalloc.take_snapshot(); tracemalloc.stop()
    timeit.timeit("1", number=10); gc.collect(); warnings.warn("x"); keep = [bytes(1_000_000) for _ in range(20)]; del keep
    big = bytearray(30_000_000); big.extend(bytes(30_000_000)); del big
    sched.scheduler().run(); inspect.getsource(json.dumps); list(importlib.metadata.distributions())
    print("to stdout"); import sys; print("to stderr", file=sys.stderr); sys.stdin.read()
    return True
""",
}  # fmt: skip
"""The jobs by what they use."""
