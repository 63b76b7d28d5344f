"""The load generators: the command lines of ab and wrk, and readers of what they print.

Both print for people: units that change with the size (`1.25ms`, `10.19k`), `nan` where nothing was counted, counters
that appear only when they are not zero, and nothing at all when they are killed. A reader here never raises on odd
text: it returns what it understood, and a sentence in `problems` for everything that makes the run unfit to publish.
"""

from __future__ import annotations

import dataclasses
import math
import re
import shutil
from pathlib import Path
from typing import Optional

PIPELINE_SCRIPT = Path(__file__).with_name("pipeline.lua")


@dataclasses.dataclass
class ClientResult:
    """What a load generator said of one run. A figure it did not give is None."""
    requests: Optional[int] = None              # answers it counted as complete
    seconds: Optional[float] = None
    requests_per_second: Optional[float] = None
    latency_ms: dict[str, float] = dataclasses.field(default_factory=dict)     # "50" -> ms, "max", "mean"
    keep_alive_requests: Optional[int] = None   # ab -k only
    bytes_read: Optional[int] = None
    body_bytes: Optional[int] = None            # ab's Document Length
    server_header: str = ""                     # ab's Server Software
    problems: list[str] = dataclasses.field(default_factory=list)      # each voids the run
    warnings: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class Ab:
    """ApacheBench: one thread, HTTP/1.0, a fixed number of requests."""
    requests: int
    connections: int
    keep_alive: bool
    percentiles: str = ""       # path for -e: percentiles finer than the whole milliseconds ab prints
    name = "ab"
    threads = 1

    def command(self, url: str) -> list[str]:
        extra = (["-k"] if self.keep_alive else []) + (["-e", self.percentiles] if self.percentiles else [])
        return ["ab", f"-n{self.requests}", f"-c{self.connections}", *extra, url]

    def scaled(self, share: float) -> "Ab":
        """The same load with fewer requests: what a warm-up or --quick runs."""
        return dataclasses.replace(self, requests=max(self.connections, int(self.requests * share)))

    def expected_seconds(self) -> float:
        """A guess for progress bars: ab manages about 20,000 connections or 80,000 kept-alive requests a second."""
        return self.requests / (80000 if self.keep_alive else 20000)

    def short_connections(self) -> int:
        """Connections that one run opens and closes."""
        return self.connections if self.keep_alive else self.requests

    def read(self, output: str, errors: str, status: int) -> ClientResult:
        result = parse_ab(output, errors, status, self.requests, self.keep_alive)
        if self.percentiles:
            result.latency_ms.update(_ab_percentiles(Path(self.percentiles)))
        return result


@dataclasses.dataclass(frozen=True)
class Wrk:
    """wrk: HTTP/1.1, a fixed time, `pipeline` requests written at once."""
    seconds: float
    connections: int
    close: bool = False         # Connection: close on every request
    pipeline: int = 1
    threads: int = 1
    name = "wrk"

    def command(self, url: str) -> list[str]:
        # wrk takes whole seconds only; --timeout 2 s is its own default, stated since the error counter depends on it.
        command = ["wrk", f"-t{min(self.threads, self.connections)}", f"-c{self.connections}", f"-d{self._whole()}s",
                   "--timeout", "2s", "--latency"]
        if self.close:
            command += ["-H", "Connection: close"]
        if self.pipeline > 1:
            return [*command, "-s", str(PIPELINE_SCRIPT), url, "--", str(self.pipeline)]
        return [*command, url]

    def _whole(self) -> int:
        return max(1, round(self.seconds))

    def scaled(self, share: float) -> "Wrk":
        return dataclasses.replace(self, seconds=max(1.0, self.seconds * share))

    def expected_seconds(self) -> float:
        return self._whole() + 0.1

    def short_connections(self) -> int:
        """At most 25,000 a second: no client here has been seen to open more on one thread."""
        return self._whole() * 25000 * self.threads if self.close else self.connections

    def read(self, output: str, errors: str, status: int) -> ClientResult:
        return parse_wrk(output, errors, status)


def missing_client(name: str) -> str:
    """A sentence if a load generator is not installed, else an empty string."""
    if shutil.which(name):
        return ""
    package = {"ab": "apache2-utils", "wrk": "wrk"}.get(name, name)
    return f"{name} is not installed: run tools/setup compare, or install the package {package}"


# ---- ab -------------------------------------------------------------------------------------------------------------

AB_FAILURES = {
    "connect": "could not connect",
    "receive": "connection broke while receiving",
    "length": "body length differs from the first answer's",
    "exceptions": "broke in another way",
}


def parse_ab(output: str, errors: str, status: int, requests: int, keep_alive: bool) -> ClientResult:
    """Reads ab's report. `requests` and `keep_alive` are what was asked of it: falling short of them voids the run."""
    result = ClientResult()
    _note_exit("ab", output, errors, status, result)
    field = _colon_fields(output)
    result.requests = _count(field.get("Complete requests"))
    result.seconds = _number(field.get("Time taken for tests"))
    result.requests_per_second = _number(field.get("Requests per second"))
    result.bytes_read = _count(field.get("Total transferred"))
    result.body_bytes = _count(field.get("Document Length"))
    result.server_header = field.get("Server Software", "")
    result.keep_alive_requests = _count(field.get("Keep-Alive requests"))
    mean = re.search(r"^Time per request:\s+(\S+) \[ms\] \(mean\)", output, re.MULTILINE)
    if mean and _number(mean[1]) is not None:
        result.latency_ms["mean"] = _number(mean[1])
    for percent, value in re.findall(r"^\s*(\d+)%\s+(\d+)", output, re.MULTILINE):
        result.latency_ms["max" if percent == "100" else percent] = float(value)
    if result.requests is None:
        if not result.problems:
            result.problems.append("ab printed no report")
        return result

    if result.requests < requests:
        result.problems.append(f"ab completed {result.requests} of {requests} requests")
    failed = _count(field.get("Failed requests")) or 0
    if failed:
        result.problems.append(f"ab counts {failed} failed requests{_ab_failures(output)}")
    non_2xx = _count(field.get("Non-2xx responses")) or 0
    if non_2xx:
        result.problems.append(f"{non_2xx} answers were not 2xx")
    if keep_alive and (result.keep_alive_requests or 0) < result.requests:
        short = result.requests - (result.keep_alive_requests or 0)
        text = f"only {result.keep_alive_requests or 0} of {result.requests} answers kept the connection open"
        # nginx closes each connection after keepalive_requests answers (1000 by default): a new connection for every
        # thousand requests is a property worth a warning; more than one in a hundred is another workload.
        (result.problems if short > result.requests / 100 else result.warnings).append(text)
    if not result.requests_per_second:
        result.problems.append("ab gives no requests per second")
    return result


def _ab_failures(output: str) -> str:
    found = re.search(r"\(Connect: (\d+), Receive: (\d+), Length: (\d+), Exceptions: (\d+)\)", output)
    if not found:
        return ""
    words = [f"{count} {AB_FAILURES[name]}" for name, count in zip(AB_FAILURES, found.groups()) if count != "0"]
    return ": " + ", ".join(words) if words else ""


def _ab_percentiles(path: Path) -> dict[str, float]:
    """Reads the file ab -e writes: `percentage,milliseconds` a line."""
    found: dict[str, float] = {}
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return found
    for line in lines:
        percent, _, value = line.partition(",")
        number = _number(value)
        if percent in ("50", "75", "90", "95", "99") and number is not None:
            found[percent] = number
    return found


# ---- wrk ------------------------------------------------------------------------------------------------------------

WRK_ERRORS = {
    "connect": "connections could not be opened",
    "read": "reads failed (a reset, or a close before the answer was whole)",
    "write": "writes failed",
    "timeout": "answers took longer than 2 s",
}


def parse_wrk(output: str, errors: str, status: int) -> ClientResult:
    """Reads wrk's report (with --latency)."""
    result = ClientResult()
    _note_exit("wrk", output, errors, status, result)
    total = re.search(r"^\s*(\d+) requests in (\S+), (\S+) read", output, re.MULTILINE)
    if not total:
        if not result.problems:
            result.problems.append("wrk printed no report")
        return result
    result.requests = int(total[1])
    result.seconds = _seconds(total[2])
    result.bytes_read = _bytes(total[3])
    rate = re.search(r"^Requests/sec:\s*(\S+)", output, re.MULTILINE)
    result.requests_per_second = _scaled(rate[1]) if rate else None
    latency = re.search(r"^\s*Latency\s+(\S+)\s+(\S+)\s+(\S+)", output, re.MULTILINE)
    if latency:
        for name, text in (("mean", latency[1]), ("max", latency[3])):
            seconds = _seconds(text)
            if seconds is not None:
                result.latency_ms[name] = seconds * 1000
    for percent, text in re.findall(r"^\s*(\d+(?:\.\d+)?)%\s+(\S+)\s*$", output, re.MULTILINE):
        seconds = _seconds(text)
        if seconds is not None:
            result.latency_ms[f"{float(percent):g}"] = seconds * 1000

    if not any(result.latency_ms.values()):
        result.latency_ms.clear()       # wrk prints noughts where it took no sample, as it may with pipelining

    errors_line = re.search(r"Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)", output)
    if errors_line:
        words = [f"{count} {WRK_ERRORS[name]}" for name, count in zip(WRK_ERRORS, errors_line.groups()) if count != "0"]
        if words:
            result.problems.append("wrk: " + ", ".join(words))
    non_2xx = re.search(r"Non-2xx or 3xx responses: (\d+)", output)
    if non_2xx and non_2xx[1] != "0":
        result.problems.append(f"{non_2xx[1]} answers were not 2xx or 3xx")
    if result.requests == 0:
        result.problems.append("wrk completed no request")
    elif not result.requests_per_second:
        result.problems.append("wrk gives no requests per second")
    return result


# ---- numbers as people write them -----------------------------------------------------------------------------------

def _note_exit(name: str, output: str, errors: str, status: int, result: ClientResult) -> None:
    """Turns a bad end into a sentence. Negative status: the signal, as subprocess has it."""
    if status < 0:
        result.problems.append(f"{name} was killed by signal {-status}")
    elif status > 0:
        said = [line.strip() for line in (errors + "\n" + output).splitlines()
                if re.search(r"apr_|unable|cannot|invalid|error|refused|timed? ?out", line, re.IGNORECASE)]
        result.problems.append(f"{name} failed with exit status {status}" + (f": {said[0]}" if said else ""))


def _colon_fields(output: str) -> dict[str, str]:
    """`Name:   value` lines; the first of each name wins (ab repeats `Time per request`)."""
    found: dict[str, str] = {}
    for line in output.splitlines():
        name, colon, value = line.partition(":")
        if colon:
            found.setdefault(name.strip(), value.strip())
    return found


def _number(text: Optional[str]) -> Optional[float]:
    """The first word as a finite number, else None: `nan`, `inf`, `-nan` and empty text are no numbers."""
    words = (text or "").split()
    try:
        value = float(words[0])
    except (IndexError, ValueError):
        return None
    return value if math.isfinite(value) else None


def _count(text: Optional[str]) -> Optional[int]:
    number = _number(text)
    return int(number) if number is not None else None


def _with_unit(text: str, units: dict[str, float]) -> Optional[float]:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([A-Za-z]*)", text.strip())
    if not found or found[2] not in units:
        return None
    return float(found[1]) * units[found[2]]


def _seconds(text: str) -> Optional[float]:
    return _with_unit(text, {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0})


def _bytes(text: str) -> Optional[int]:
    value = _with_unit(text, {"B": 1, "KB": 2**10, "MB": 2**20, "GB": 2**30, "TB": 2**40})
    return int(value) if value is not None else None


def _scaled(text: str) -> Optional[float]:
    return _with_unit(text, {"": 1, "k": 1e3, "M": 1e6, "G": 1e9})
