"""Start a server in a session of its own, wait until it answers, look at what it answers, and stop it for good.

Nothing may stay behind: every process below the server (forked workers, masters that outlive their parent) belongs
to its session or descends from it, and stop() ends them all. The direct child also gets SIGKILL from the kernel
should this program die without a word (PR_SET_PDEATHSIG).
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Iterator, Mapping, Optional, Sequence

from .placement import Placement
from .process import read_stat, tree_of

ADDRESS = "127.0.0.1"
ANSWER_SECONDS_MAX = 15.0       # 0.15 s was the slowest start on 2 cores at a load average of 8; a cold disk may take a hundred times that
STOP_SECONDS_MAX = 3.0          # then SIGKILL
PROBE_SECONDS_MAX = 2.0
PROBE_BYTES_MAX = 1 << 20
LINGER_SECONDS = 0.1            # a server that closes does so with its answer or right behind it
WARM_CONNECTIONS = 8            # for each worker: with a listener for each, all of them shall see some
CLOSE_SECONDS_MAX = 1.0         # ab waits for the close, so it is given the time
PR_SET_PDEATHSIG = 1            # prctl(2)


class ServerError(Exception):
    """The server cannot be measured; the text is one sentence that says why."""


@dataclasses.dataclass(frozen=True)
class Expectation:
    """What a fair answer looks like. None or empty: anything goes."""
    status: int = 200
    body: Optional[bytes] = None
    headers: tuple[str, ...] = ()       # names that must be there, any letter case
    keep_alive_10: bool = False         # HTTP/1.0 with Connection: Keep-Alive must be told `keep-alive` (ab -k waits for it)
    keep_alive_11: bool = False         # HTTP/1.1 must stay open
    close_10: bool = False              # plain HTTP/1.0 must be closed by the server (ab without -k waits for it)
    close_11: bool = False              # HTTP/1.1 with Connection: close must be closed by the server
    pipeline: int = 1                   # that many requests written at once must give that many answers


@dataclasses.dataclass(frozen=True)
class ServerSpec:
    """How to start a server. In `command` and `environment`, {port}, {workers} and {work} (a scratch folder) are filled in."""
    name: str
    command: Sequence[str]
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    files: Mapping[str, str] = dataclasses.field(default_factory=dict)   # templates written into {work} before the start
    path: str = "/"
    stop_signal: int = signal.SIGTERM
    directory: Optional[str] = None


@dataclasses.dataclass
class Probe:
    """One look at a server: the answer to each kind of request the load generators send."""
    status: int = 0
    head: bytes = b""                   # of the HTTP/1.1 answer, status line to empty line
    body: bytes = b""
    headers: dict[str, str] = dataclasses.field(default_factory=dict)     # names in lower case
    problems: list[str] = dataclasses.field(default_factory=list)

    @property
    def response_bytes(self) -> int:
        return len(self.head) + len(self.body)


class Server:
    """A running server. Use start_server(), which stops it in every case."""

    def __init__(self, spec: ServerSpec, process: subprocess.Popen, port: int, workers: int, work: Path, started: list[str]):
        self.spec, self.process, self.port, self.workers, self.work = spec, process, port, workers, work
        self.started = started                      # the exact command
        self.start_seconds = 0.0

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def url(self) -> str:
        return f"http://{ADDRESS}:{self.port}{self.spec.path}"

    def death(self) -> str:
        """A sentence if the server is gone, else an empty string."""
        status = self.process.poll()
        if status is None:
            return ""
        how = f"was killed by signal {-status}" if status < 0 else f"ended with exit status {status}"
        said = self.last_words()
        return f"{self.spec.name} {how}" + (f": {said}" if said else "")

    def last_words(self) -> str:
        """The last line the server printed that sounds like a reason, else its last line."""
        try:
            lines = (self.work / "output.log").read_text(errors="replace").strip().splitlines()
        except OSError:
            lines = []
        reasons = [line for line in lines if re.search(r"error|fatal|fail|cannot|denied|in use|not found", line, re.IGNORECASE)]
        chosen = (reasons or lines or [""])[-1]
        return chosen.strip()[:300]

    def stop(self) -> None:
        """Ends the whole tree: the polite signal to the parent, SIGKILL to whoever is left."""
        others = set(tree_of(self.pid)) - {self.pid}
        rude = self.spec.stop_signal == signal.SIGKILL      # a master that is killed tells its workers nothing
        for pid in ({self.pid} if self.process.poll() is None else set()) | (others if rude else set()):
            _signal(pid, self.spec.stop_signal)
        self._wait_for(others)
        others |= set(tree_of(self.pid)) - {self.pid}
        for pid in _alive(others) | ({self.pid} if self.process.poll() is None else set()):
            _signal(pid, signal.SIGKILL)
        self._wait_for(others)

    def _wait_for(self, others: set[int]) -> None:
        deadline = time.monotonic() + STOP_SECONDS_MAX
        while time.monotonic() < deadline and (self.process.poll() is None or _alive(others)):
            time.sleep(0.01)


def free_port() -> int:
    """A port nobody listens on at the moment."""
    with socket.socket() as probe_socket:
        probe_socket.bind((ADDRESS, 0))
        return probe_socket.getsockname()[1]


@contextlib.contextmanager
def start_server(spec: ServerSpec, placement: Placement, workers: int,
                 answer_seconds_max: float = ANSWER_SECONDS_MAX) -> Iterator[Server]:
    """Starts the server on the server's CPUs and yields it once it answers; stops its whole tree afterwards, whatever
    happens inside. Raises ServerError with a sentence if it does not come up."""
    work: Optional[Path] = None
    server: Optional[Server] = None
    try:
        with uninterrupted():
            work = Path(tempfile.mkdtemp(prefix=f"ceiling-{spec.name}-"))
            work.chmod(0o755)       # workers of nginx and haproxy may change their user: the folder must let them in
            server = _launch(spec, placement, workers, work)
        _wait_until_it_answers(server, answer_seconds_max)
        yield server
    finally:
        try:
            with uninterrupted():
                _clean_up(server, work)
        except KeyboardInterrupt:       # it came meanwhile and was let in behind the cleaning, or just before it
            _clean_up(server, work)
            raise


def _clean_up(server: Optional[Server], work: Optional[Path]) -> None:
    """Stops the server and removes its folder; may be called twice."""
    if server is not None:
        server.stop()
    if work is not None:
        shutil.rmtree(work, ignore_errors=True)


def _launch(spec: ServerSpec, placement: Placement, workers: int, work: Path) -> Server:
    port = free_port()
    values = {"port": str(port), "workers": str(workers), "work": str(work), "cpus": ",".join(map(str, placement.server))}
    for name, template in spec.files.items():
        (work / name).write_text(fill(template, values))
    command = [fill(word, values) for word in spec.command]
    environment = {**os.environ, **{name: fill(value, values) for name, value in spec.environment.items()}}
    with open(work / "output.log", "wb") as output:
        try:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                                       env=environment, cwd=spec.directory, start_new_session=True,
                                       preexec_fn=lambda: prepare_child(placement.server))
        except (OSError, subprocess.SubprocessError) as error:
            raise ServerError(f"{spec.name} cannot be started: {command[0]}: {error}") from error
    return Server(spec, process, port, workers, work, command)


def fill(template: str, values: Mapping[str, str]) -> str:
    """Replaces {name} for the names we know and leaves every other brace alone (nginx and PHP have plenty)."""
    for name, value in values.items():
        template = template.replace("{" + name + "}", value)
    return template


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Holds Ctrl-C and SIGTERM back until a new child is written down: one that nobody knows would stay behind."""
    earlier = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, earlier)


def prepare_child(cpus: Sequence[int]) -> None:
    """Runs in the child before exec: let signals in again, pin it, lift its descriptor limit to the hard one, tie its life
    to ours."""
    signal.pthread_sigmask(signal.SIG_SETMASK, set())
    os.sched_setaffinity(0, cpus)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _wait_until_it_answers(server: Server, seconds_max: float) -> None:
    begin = time.monotonic()
    while time.monotonic() - begin < seconds_max:
        death = server.death()
        if death:
            raise ServerError(death)
        try:
            if exchange(server.port, request_bytes("1.1", server.spec.path, close=True), 0.5).status:
                server.start_seconds = time.monotonic() - begin
                return
        except OSError:
            pass
        time.sleep(0.02)
    said = server.last_words()
    raise ServerError(f"{server.spec.name} did not answer within {seconds_max:g} s" + (f"; it said: {said}" if said else ""))


# ---- what does it answer? -------------------------------------------------------------------------------------------

@dataclasses.dataclass
class Answer:
    """One answer as it came; status 0 if it is not HTTP."""
    status: int = 0
    head: bytes = b""
    body: bytes = b""
    open: bool = True                   # no close was seen behind it


def request_bytes(version: str, path: str, close: bool = False, keep_alive: bool = False) -> bytes:
    """A GET as the load generators write it."""
    connection = "Connection: close\r\n" if close else "Connection: Keep-Alive\r\n" if keep_alive else ""
    return f"GET {path} HTTP/{version}\r\nHost: {ADDRESS}\r\nUser-Agent: ceiling\r\nAccept: */*\r\n{connection}\r\n".encode()


def exchange(port: int, request: bytes, seconds: float, linger: float = 0.0) -> Answer:
    """Sends one request on a connection of its own and reads one answer; waits `linger` seconds for a close."""
    with socket.create_connection((ADDRESS, port), timeout=seconds) as connection:
        connection.sendall(request)
        answer, _ = _receive(connection, b"", time.monotonic() + seconds)
        if answer.open and linger > 0:
            connection.settimeout(linger)
            try:
                answer.open = bool(connection.recv(1))
            except (TimeoutError, socket.timeout):
                pass
            except OSError:
                answer.open = False
        return answer


def _receive(connection: socket.socket, data: bytes, deadline: float) -> tuple[Answer, bytes]:
    """Reads one answer, starting from bytes that are already here. Returns it, and what was read beyond it."""
    answer = Answer()
    while len(data) < PROBE_BYTES_MAX:
        split = data.find(b"\r\n\r\n")
        length = _content_length(data[:split]) if split >= 0 else None
        if split >= 0 and length is not None and len(data) >= split + 4 + length:
            answer.head, answer.body = data[:split + 4], data[split + 4:split + 4 + length]
            break
        connection.settimeout(max(0.01, deadline - time.monotonic()))
        chunk = connection.recv(65536)
        if not chunk:
            answer.open = False
            answer.head, answer.body = (data[:split + 4], data[split + 4:]) if split >= 0 else (b"", data)
            break
        data += chunk
        if time.monotonic() > deadline:
            raise TimeoutError("the answer took too long")
    words = answer.head.split(b" ", 2)
    if len(words) > 1 and words[1][:3].isdigit():
        answer.status = int(words[1][:3])
    return answer, data[len(answer.head) + len(answer.body):]


def _content_length(head: bytes) -> Optional[int]:
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length" and value.strip().isdigit():
            return int(value)
    return None


def probe(server: Server, expect: Expectation = Expectation(), thorough: bool = True) -> Probe:
    """Asks as the load generators will ask, and lists in `problems` what would make a run dishonest.

    Not `thorough`: one plain GET, and no waiting for closes that may not come.
    """
    found = Probe()
    path = server.spec.path
    try:
        plain = request_bytes("1.1", path, close=expect.close_11)
        answer = exchange(server.port, plain, PROBE_SECONDS_MAX, LINGER_SECONDS if thorough else 0.0)
        found.status, found.head, found.body, found.headers = answer.status, answer.head, answer.body, _headers(answer.head)
        found.problems += _wrong_answer(found, expect)
        if thorough and not found.problems:
            found.problems += _wrong_connection(server, answer, expect)
    except OSError as error:
        found.problems.append(f"it did not answer a plain GET: {error}")
    return found


def _wrong_answer(found: Probe, expect: Expectation) -> list[str]:
    if found.status == 0:
        return ["its answer is not HTTP"]
    problems = []
    if found.status != expect.status:
        problems.append(f"it answers {found.status} instead of {expect.status}")
    length = found.headers.get("content-length")
    if length is None:
        problems.append("its answer has no Content-Length")
    elif not length.isdigit() or int(length) != len(found.body):
        problems.append(f"it says Content-Length: {length} and sends {len(found.body)} bytes")
    if expect.body is not None and found.body != expect.body:
        problems.append(f"its body is {found.body[:40]!r} instead of {expect.body[:40]!r}")
    problems += [f"its answer lacks the header {name}" for name in expect.headers if name.lower() not in found.headers]
    return problems


def _wrong_connection(server: Server, plain: Answer, expect: Expectation) -> list[str]:
    """Does it keep and close connections as the workload needs?"""
    path, port = server.spec.path, server.port
    problems = []
    if expect.keep_alive_11 and not plain.open:
        problems.append("it closes after every HTTP/1.1 answer")
    if expect.close_11 and plain.open:
        problems.append("it does not close an HTTP/1.1 connection that asks for it, so wrk would wait")
    if expect.keep_alive_10:
        answer = exchange(port, request_bytes("1.0", path, keep_alive=True), PROBE_SECONDS_MAX, LINGER_SECONDS)
        if not answer.open or "keep-alive" not in _headers(answer.head).get("connection", "").lower():
            problems.append("it does not keep an HTTP/1.0 connection open that asks for it, so ab -k would wait or reconnect")
    if expect.close_10 and exchange(port, request_bytes("1.0", path), PROBE_SECONDS_MAX, CLOSE_SECONDS_MAX).open:
        problems.append("it does not close a plain HTTP/1.0 connection, so ab without -k would wait")
    if expect.pipeline > 1:
        answers = _pipelined(port, path, expect.pipeline)
        if answers != [(plain.status, plain.body)] * expect.pipeline:
            problems.append(f"of {expect.pipeline} requests written at once it answered {len(answers)} rightly")
    return problems


def warm_by_hand(server: Server, requests: int, close: bool = False) -> str:
    """Sends some requests, HTTP/1.1, many to a connection (or one, with `close`): page faults and lazy start-up are then
    behind the server. For workloads whose load generator has no short run. Returns a sentence if one of them fails, else
    an empty string."""
    request = request_bytes("1.1", server.spec.path, close=close)
    connections = requests if close else WARM_CONNECTIONS * server.workers
    try:
        for _ in range(connections):
            with socket.create_connection((ADDRESS, server.port), timeout=PROBE_SECONDS_MAX) as connection:
                for _ in range(max(1, requests // connections)):
                    connection.sendall(request)
                    answer, _ = _receive(connection, b"", time.monotonic() + PROBE_SECONDS_MAX)
                    if answer.status != 200:
                        return f"warm-up: an answer had status {answer.status}"
                    if not answer.open:
                        break
    except OSError as error:
        return f"warm-up: {error}"
    return ""


def _pipelined(port: int, path: str, depth: int) -> list[tuple[int, bytes]]:
    """Status and body of every answer to `depth` requests written at once."""
    answers: list[tuple[int, bytes]] = []
    deadline = time.monotonic() + PROBE_SECONDS_MAX
    with socket.create_connection((ADDRESS, port), timeout=PROBE_SECONDS_MAX) as connection:
        connection.sendall(request_bytes("1.1", path) * depth)
        data = b""
        with contextlib.suppress(OSError):
            while len(answers) < depth:
                answer, data = _receive(connection, data, deadline)
                if not answer.status:
                    break
                answers.append((answer.status, answer.body))
    return answers


def _headers(head: bytes) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in head.split(b"\r\n")[1:]:
        name, colon, value = line.partition(b":")
        if colon:
            found.setdefault(name.decode("latin-1").strip().lower(), value.decode("latin-1").strip())
    return found


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _alive(pids: set[int]) -> set[int]:
    """Those of some other processes' pids still running. Orphans adopted by this process (become_subreaper) are reaped
    on the way; for a pid that is no child of ours, waitpid fails and nothing happens."""
    living = set()
    for pid in pids:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
        fields = read_stat(pid)
        if fields is not None and fields[0] not in "ZX":
            living.add(pid)
    return living
