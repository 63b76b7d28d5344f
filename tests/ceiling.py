"""Starts the server for tests: on a port the kernel chooses, read from its banner, and stopped by its own process id."""
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
BINARY = os.environ.get("CEILING_SERVER", str(ROOT / "server"))
SANITIZED = bool(re.search(rb"__[at]san_init", pathlib.Path(BINARY).read_bytes())) if os.path.exists(BINARY) else False
START_SECONDS_MAX = 20.0  # milliseconds are usual; a sanitizer's build on a loaded machine takes seconds
STOP_SECONDS_MAX = 20.0
EXCHANGE_SECONDS_MAX = 10.0
ADDRESS = re.compile(r"(127\.0\.0\.1|0\.0\.0\.0|\[::1?\]):(\d+)")

sys.path.insert(0, str(ROOT / "tests" / "conformance"))
from responses import read_stream  # noqa: E402


def connect(address):
    """A client's socket; `address` is a port on 127.0.0.1, a (host, port) pair or the path of a Unix socket."""
    if isinstance(address, str):
        client = socket.socket(socket.AF_UNIX)
        client.settimeout(EXCHANGE_SECONDS_MAX)
        try:
            client.connect(address)
        except OSError:
            client.close()
            raise
        return client
    return socket.create_connection(("127.0.0.1", address) if isinstance(address, int) else address, EXCHANGE_SECONDS_MAX)


def read_answers(client, answers=1, heads=(), until_end=False):
    """Reads until so many final responses are whole, or (until_end) until the server ends the connection."""
    data, ended = b"", False
    deadline = time.monotonic() + EXCHANGE_SECONDS_MAX
    while time.monotonic() < deadline:
        stream = read_stream(data, heads, ended)
        if ended or (len(stream.finals) >= answers and not until_end):
            return stream
        more = client.recv(1 << 18)
        ended = not more
        data += more
    raise AssertionError(f"after {EXCHANGE_SECONDS_MAX} s there is only {data[:200]!r}")


def get(path="/", *fields, method="GET", version="1.1", content=""):
    """The bytes of a request."""
    lines = [f"{method} {path} HTTP/{version}", "Host: example.test", *fields]
    return ("\r\n".join(lines) + "\r\n\r\n" + content).encode("latin-1")


def exchange(address, request=None, answers=1, heads=(), until_end=False):
    """One connection: sends, and reads the answers."""
    with connect(address) as client:
        client.sendall(request or get())
        return read_answers(client, answers, heads, until_end)


# A sanitizer keeps freed memory, maps shadow memory, and costs several times the CPU.
measured = unittest.skipIf(SANITIZED, "memory and CPU of a sanitizer's build mean nothing")


def free_port():
    """A port that nobody listens on; where a program other than ours has to be told one."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """A running server; `with Server("--threads", "1") as server:` ends it and fails if it did not end well."""

    def __init__(self, *options, listen="127.0.0.1:0", wait=True, prefix=(), environment=None, pass_fds=(), preexec=None, binary=BINARY):
        self.command = [*prefix, binary, *(("--listen", listen) if listen else ()), *options]
        self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        env=environment, pass_fds=pass_fds, preexec_fn=preexec)
        self._lines = {"stdout": [], "stderr": []}
        self._readers = [threading.Thread(target=self._read, args=(name,), daemon=True) for name in self._lines]
        for reader in self._readers:
            reader.start()
        if wait:
            self.wait_for_banner()

    def _read(self, name):
        for line in getattr(self.process, name):
            self._lines[name].append(line.decode(errors="replace"))

    @property
    def errors(self):
        """What it has written to stderr so far."""
        return "".join(self._lines["stderr"])

    @property
    def output(self):
        return "".join(self._lines["stdout"])

    @property
    def pid(self):
        return self.process.pid

    @property
    def port(self):
        """The port of the first listener, as the banner says it."""
        return int(ADDRESS.search(self.errors).group(2))

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}/"

    def wait_until(self, condition, what, seconds=START_SECONDS_MAX):
        deadline = time.monotonic() + seconds
        while not condition():
            if self.process.poll() is not None and not condition():
                self._join()
                if condition():
                    return
                raise AssertionError(f"the server ended with status {self.process.returncode} before {what}: {self.errors}")
            if time.monotonic() > deadline:
                raise AssertionError(f"no sign of {what} after {seconds} s: {self.errors}")
            time.sleep(0.005)

    def wait_for_banner(self):
        self.wait_until(lambda: ADDRESS.search(self.errors) or "unix:" in self.errors, "its banner")

    def _join(self):
        for reader in self._readers:
            reader.join(5)
        self.process.stdout.close()
        self.process.stderr.close()

    def wait(self, seconds=STOP_SECONDS_MAX):
        """Waits for the end; gives the exit status."""
        status = self.process.wait(seconds)
        self._join()
        return status

    def send(self, number):
        self.process.send_signal(number)

    def stop(self, number=signal.SIGTERM, seconds=STOP_SECONDS_MAX):
        """Ends it by a signal; gives the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            return self.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.wait()
            raise AssertionError(f"still running {seconds} s after signal {number}: {self.errors}") from None

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is None:
            status = self.stop()
            if status != 0:
                raise AssertionError(f"exit status {status} after SIGTERM: {self.errors}")
        elif self.process.poll() is None:
            self.process.kill()
            self.wait()
