#!/usr/bin/python3
"""Runs cases.jsonl against an HTTP/1.x server on loopback, and says which answers RFC 9110 and RFC 9112 do not allow.

    probe.py 127.0.0.1 PORT                 each request whole, one connection per case; then ten checks over every response seen
    probe.py 127.0.0.1 PORT --mode bytes    each request one byte at a time, compared with whole delivery
    probe.py 127.0.0.1 PORT --mode split    the cases marked "split", cut in two at every offset
    probe.py 127.0.0.1 PORT --best          a case passes only with the advised answer (expect.best), not just an allowed one

Any server can be probed; README.md describes the cases. The last line is `N passed, N failed`. The exit status is 1 if a MUST case
failed or if the way of delivery led to an answer that is not allowed (with --best: to another answer).
"""
import argparse
import concurrent.futures
import dataclasses
import email.utils
import json
import os
import pathlib
import re
import select
import socket
import sys
import threading
import time

from responses import Stream, read_stream

DEFAULT_CASES = pathlib.Path(__file__).resolve().parent / "cases.jsonl"
LEVELS = ("MUST", "SHOULD", "MAY")
FOLLOW_UP = b"GET / HTTP/1.1\r\nHost: example.test\r\n\r\n"  # proves that a connection is still usable
IMF_FIXDATE = re.compile(r"^(Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d (Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) \d{4} "
                         r"\d\d:\d\d:\d\d GMT$")
VERSION_1_0 = re.compile(r"^[\r\n]*\S+ \S+ HTTP/1\.0\r\n")

# What a connection came to when it gave no status code. Cases use the first two in expect.status.
CLOSED_WITHOUT_ANSWER, STILL_OPEN, NOT_HTTP, SOCKET_ERROR = 0, -1, -2, -3
NAMES = {CLOSED_WITHOUT_ANSWER: "closed-without-answer", STILL_OPEN: "no-answer-still-open", NOT_HTTP: "not-http",
         SOCKET_ERROR: "socket-error"}

READ_BYTES = 262144
SEND_SECONDS_MIN = 5.0  # a server under test may be slow to read; the answer has the shorter limit of --timeout
OPEN_WAIT_SECONDS_MIN = 0.4  # how long silence must last before it counts as "no answer, still open"
SPLIT_GAP_SECONDS = 0.003  # between the two halves: longer than loopback needs to hand them over one by one
DATE_SKEW_SECONDS = 3.0
MANY_RESPONSES = 100  # from here on a case gets three times the time
JOBS = {"whole": 12, "bytes": 6, "split": 48}  # a connection mostly waits, to see what should not come


# ---- delivery: one case on one connection --------------------------------------------------------------------------------------

@dataclasses.dataclass
class Observation:
    """What one case came to."""
    begin: float = 0.0  # wall clock, for the Date check
    end: float = 0.0
    stream: Stream = dataclasses.field(default_factory=lambda: Stream([], []))
    ended: bool = False  # the server ended the connection
    reset: bool = False  # by a reset
    usable: object = None  # True: a further request was answered; False: the connection is over; None: not known
    early_reply: bool = False  # an answer came while the client withheld the rest
    error: str = ""

    @property
    def codes(self):
        return [response.status for response in self.stream.finals]

    @property
    def first(self):
        if self.error:
            return SOCKET_ERROR
        if self.stream.finals:
            return self.stream.finals[0].status
        if self.stream.garbage or self.stream.rest:
            return NOT_HTTP
        return CLOSED_WITHOUT_ANSWER if self.ended else STILL_OPEN

    def summary(self):
        return short(self.codes) if self.codes else code_name(self.first)


class Connection:
    """A non-blocking client socket that reads while it writes, so that neither side can block the other."""

    def __init__(self, address, timeout):
        self.timeout = timeout
        self.received = bytearray()
        self.ended = self.reset = False
        self.socket = socket.create_connection(address, timeout=timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def read(self, seconds):
        """Waits up to `seconds` for bytes or the end; True if either came."""
        if self.ended or not select.select([self.socket], [], [], max(seconds, 0))[0]:
            return False
        try:
            data = self.socket.recv(READ_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            self.ended = self.reset = True
            return True
        self.ended = not data
        self.received.extend(data)
        return True

    def write(self, data):
        left, deadline = memoryview(data), time.monotonic() + max(self.timeout, SEND_SECONDS_MIN)
        while left and not self.reset and time.monotonic() < deadline:
            readable, writable, _ = select.select([] if self.ended else [self.socket], [self.socket], [], 1.0)
            if readable:
                self.read(0)
            if writable:
                try:
                    left = left[self.socket.send(left[:READ_BYTES]):]
                except BlockingIOError:
                    pass
                except OSError:
                    self.reset = True

    def write_pieces(self, pieces, gap_seconds):
        for piece in pieces:
            self.write(piece)
            if self.reset:
                return
            if gap_seconds:
                time.sleep(gap_seconds)
            else:
                os.sched_yield()
            self.read(0)

    def end_writing(self):
        if not self.reset:
            try:
                self.socket.shutdown(socket.SHUT_WR)
            except OSError:
                pass

    def stream(self, heads=(), begin=0):
        return read_stream(bytes(self.received[begin:]), heads, self.ended)

    def read_until(self, done, seconds, begin=0, heads=()):
        """Reads until done(stream) holds; False if the time passed or the connection ended before."""
        deadline = time.monotonic() + seconds
        while not done(self.stream(heads, begin)):
            left = deadline - time.monotonic()
            if left <= 0 or self.ended:
                return False
            self.read(left)
        return True


def seconds_allowed(case, options):
    """How long the answers of a case may take."""
    expect = case["expect"]
    outcomes = [expect, *expect.get("alt", [])]
    limit = options.timeout
    if STILL_OPEN in expect["status"]:
        silence = max(options.wait, OPEN_WAIT_SECONDS_MIN)
        limit = options.wait if len(expect["status"]) == 1 else min(limit, silence)
    may_be_silent = any(STILL_OPEN in outcome["status"] for outcome in outcomes)
    if (case.get("big") or (expect["responses"] or 1) >= MANY_RESPONSES) and not may_be_silent:
        limit = max(limit, 3 * options.timeout)
    return limit


def read_answers(connection, case, heads, options):
    """Reads until the answers wanted are there, and a little longer, to see what should not come."""
    wanted, must_end = case["expect"]["responses"] or 1, case["expect"]["close"] is True
    deadline = time.monotonic() + seconds_allowed(case, options)
    while not connection.ended:
        left = deadline - time.monotonic()
        if left <= 0:
            return
        if len(connection.stream(heads).finals) >= wanted and not must_end:
            if not connection.read(min(left, options.settle)):
                return
        else:
            connection.read(left)


def ask_again(connection, options):
    """Sends one more request: True if it is answered, False if the connection has ended instead, None if neither."""
    begin = len(connection.received)
    connection.write(FOLLOW_UP)
    if connection.read_until(lambda stream: stream.finals, options.timeout, begin):
        return True
    return False if connection.ended else None


def run_case(case, options, pieces=None, gap_seconds=0.0):
    expect, heads = case["expect"], set(case.get("head", ()))
    seen = Observation(begin=time.time())
    with Connection((options.host, options.port), options.timeout) as connection:
        connection.write_pieces(pieces or [case["bytes"]], gap_seconds)
        if case.get("half_close"):
            connection.end_writing()
        if "after" in case:
            seen.early_reply = connection.read_until(lambda stream: stream.finals or stream.interims, options.timeout, 0, heads)
            connection.write(case["after"].encode("latin-1"))
        read_answers(connection, case, heads, options)
        seen.stream = connection.stream(heads)
        seen.usable = False if connection.ended else None
        whole = len(seen.stream.finals) >= (expect["responses"] or 1) and not seen.stream.rest and not seen.stream.garbage
        if expect["close"] is False and whole and not connection.ended and "after" not in case and not case.get("half_close"):
            seen.usable = ask_again(connection, options)
        seen.ended, seen.reset, seen.end = connection.ended, connection.reset, time.time()
    return seen


# ---- judgement -----------------------------------------------------------------------------------------------------------------

def code_name(code):
    return NAMES.get(code, str(code))


def short(codes):
    return str(codes) if len(codes) < 7 else f"[{codes[0]} x{len(codes)} ...]"


def response_fault(outcome, seen, case, length_of_get):
    """Why the responses are not the ones of this outcome, or None."""
    codes, first = seen.codes, seen.stream.finals[0]
    if outcome.get("responses") is not None and len(codes) != outcome["responses"]:
        return f"{len(codes)} responses {short(codes)}, wanted {outcome['responses']}"
    for code in codes[1:]:
        if code not in outcome.get("rest", [200]):
            return f"later status {code}"
    if case.get("last") and codes[-1] not in case["last"]:
        return f"last status {codes[-1]}"
    for name, pattern in outcome.get("hdr", {}).items():
        value = first.get(name)
        if value is None or not re.fullmatch(pattern, value):
            return f"field {name}: {value!r}"
    for name in outcome.get("nohdr", ()):
        if first.get(name) is not None:
            return f"field {name} must be absent"
    if outcome.get("no_body") and (seen.stream.rest or seen.stream.garbage):
        return "content after the head of a bodiless response"
    if not all(response.complete for response in seen.stream.finals):
        return "truncated response"
    if seen.stream.garbage:
        return f"bytes that are no response: {seen.stream.rest[:40]!r}"
    if case.get("length_as_get") and first.get("content-length") not in (None, length_of_get):
        return f"Content-Length {first.get('content-length')} where GET says {length_of_get}"
    return None


def outcome_fault(outcome, seen, case, length_of_get):
    """Why what was seen is not this outcome, or None."""
    if seen.first not in outcome["status"]:
        return f"status {code_name(seen.first)} not in {outcome['status']}"
    if seen.first > 0:
        fault = response_fault(outcome, seen, case, length_of_get)
        if fault:
            return fault
    if outcome.get("close") is True and seen.usable is not False:
        return "connection left open"
    if outcome.get("close") is False and seen.usable is not True:
        return "connection closed" if seen.usable is False else "no answer to a further request"
    if outcome.get("interim") == "never" and seen.stream.interims:
        return "1xx sent"
    if outcome.get("interim") == "100-or-final" and not seen.early_reply:
        return "neither 100 nor a final response came while the body was withheld"
    return None


def short_of_best(expect, seen):
    """Why an allowed answer is not the advised one, or None."""
    best = expect.get("best")
    if not best:
        return None
    if seen.first not in best["status"]:
        return f"allowed, but not the advised answer: {code_name(seen.first)}, advised {best['status']}"
    if best.get("close") is True and seen.usable is not False and seen.first > 0 and expect["close"] is not False:
        return "allowed, but the connection should be closed" if expect["close"] is True else None
    if best.get("responses") is not None and len(seen.codes) != best["responses"]:
        return f"allowed, but {len(seen.codes)} responses, advised {best['responses']}"
    return None


def judge(case, seen, options):
    """Why a case has failed, or None."""
    if seen.error:
        return f"socket error: {seen.error}"
    expect = case["expect"]
    faults = [outcome_fault(outcome, seen, case, options.length_of_get) for outcome in [expect, *expect.get("alt", [])]]
    if None not in faults:
        return faults[0]
    return short_of_best(expect, seen) if options.best else None


# ---- ten checks over every response --------------------------------------------------------------------------------------------

CHECKS = {  # name: (level, reference)
    "inv-status-line": ("MUST", "9112 4: HTTP/1.x SP 3DIGIT SP [reason]"),
    "inv-field-syntax": ("MUST", "9112 5"),
    "inv-date": ("MUST", "9110 6.6.1: one fresh IMF-fixdate Date in every 2xx/3xx/4xx"),
    "inv-allow-in-405": ("MUST", "9110 15.5.6"),
    "inv-framing-fields": ("MUST", "9112 6.1-6.3: not both CL and TE; none in 1xx/204; no TE to a 1.0 client"),
    "inv-no-stray-bytes": ("MUST", "9110 9.3.2, 9112 6.3: nothing between responses, no content to HEAD"),
    "inv-no-1xx-to-1.0": ("MUST", "9110 15.2"),
    "inv-close-means-close": ("MUST", "9112 9.6: nothing follows a response that says close"),
    "inv-close-announced": ("SHOULD", "9112 9.6: Connection: close in the last response before the server closes"),
    "inv-no-reset": ("SHOULD", "9112 9.6: staged close, no RST before the client has read the response"),
}


class Checks:
    """Collects, over all cases, the responses that break one of CHECKS."""

    def __init__(self):
        self.found = {name: [] for name in CHECKS}
        self.responses = 0
        self.lock = threading.Lock()

    def see(self, case, seen):
        with self.lock:
            to_1_0 = VERSION_1_0.match(case["text"]) is not None
            for index, response in enumerate(seen.stream.finals):
                self.responses += 1
                for name, detail in self.of_response(response, seen, to_1_0 and index == 0):
                    self.add(name, case, detail)
            for name, detail in self.of_connection(case, seen, to_1_0):
                self.add(name, case, detail)

    def add(self, name, case, detail):
        self.found[name].append(f"{case['id']} ({detail})")

    @staticmethod
    def of_response(response, seen, to_1_0):
        if "status-line" in response.faults:
            yield "inv-status-line", response.line[:60]
        if "field-line" in response.faults:
            yield "inv-field-syntax", ""
        if 200 <= response.status < 500:
            dates = [value for name, value in response.fields if name == "date"]
            if len(dates) != 1 or not IMF_FIXDATE.match(dates[0]):
                yield "inv-date", f"{response.status}: {dates!r}"
            else:
                said = email.utils.parsedate_to_datetime(dates[0]).timestamp()
                if not seen.begin - DATE_SKEW_SECONDS <= said <= seen.end + DATE_SKEW_SECONDS:
                    yield "inv-date", f"stale by {seen.end - said:.0f} s"
        if response.status == 405 and response.get("allow") is None:
            yield "inv-allow-in-405", ""
        coding, length = response.get("transfer-encoding"), response.get("content-length")
        if coding and length is not None:
            yield "inv-framing-fields", "both"
        if response.status in (101, 204) and (coding or length is not None):
            yield "inv-framing-fields", f"in {response.status}"
        if length is not None and not length.isdigit():
            yield "inv-framing-fields", f"Content-Length {length!r}"
        if to_1_0 and coding:
            yield "inv-framing-fields", "TE to 1.0"

    @staticmethod
    def of_connection(case, seen, to_1_0):
        finals, interims = seen.stream.finals, seen.stream.interims
        for index, response in enumerate(finals[:-1]):
            if response.says_close():
                yield "inv-close-means-close", f"response {index + 1}"
        for response in interims:
            if response.get("transfer-encoding") or response.get("content-length") is not None:
                yield "inv-framing-fields", "in 1xx"
            if to_1_0:
                yield "inv-no-1xx-to-1.0", ""
        if not finals:
            return
        last = finals[-1]
        if seen.stream.garbage or seen.stream.rest:
            yield "inv-no-stray-bytes", repr(seen.stream.rest[:30])
        if last.says_close() and seen.usable is True:
            yield "inv-close-means-close", "still open"
        if (seen.ended and not case.get("half_close") and "HTTP/1.0" not in case["text"] and not last.says_close()
                and last.status != 101):
            yield "inv-close-announced", str(last.status)
        if seen.reset:
            yield "inv-no-reset", ""


# ---- the three modes -----------------------------------------------------------------------------------------------------------

@dataclasses.dataclass
class Verdict:
    case: dict
    seen: Observation
    why: object = None  # None: passed
    by_delivery: bool = False  # the way of delivery changed the outcome


def single_bytes(data):
    """One byte a piece; of long requests only the first and last 400, with pieces of a prime length between."""
    edge, middle_bytes = 400, 1009
    if len(data) <= 3000:
        return [data[i:i + 1] for i in range(len(data))]
    middle = data[edge:-edge]
    return [*(data[i:i + 1] for i in range(edge)), *(middle[i:i + middle_bytes] for i in range(0, len(middle), middle_bytes)),
            *(data[i:i + 1] for i in range(len(data) - edge, len(data)))]


def run_whole(case, options, checks):
    seen = run_case(case, options)
    checks.see(case, seen)
    return Verdict(case, seen, judge(case, seen, options))


def run_bytes(case, options, checks):
    whole = run_case(case, options)
    seen = run_case(case, options, single_bytes(case["bytes"]), options.delay)
    checks.see(case, seen)
    why = judge(case, seen, options)
    closed = [None if o.usable is None else not o.usable for o in (whole, seen)]
    if whole.codes == seen.codes and whole.first == seen.first and (None in closed or closed[0] == closed[1]):
        return Verdict(case, seen, why)
    difference = (f"delivery matters: whole {whole.summary()} closed={closed[0]}, bytewise {seen.summary()} closed={closed[1]}")
    if why or options.best:
        return Verdict(case, seen, difference + (f" / {why}" if why else ""), True)
    print(f"note        {case['id']:34} {difference} (both allowed)")
    return Verdict(case, seen)


def run_halves(case, options, offset):
    """Why a case fails when it is cut at this offset, and the status codes seen; offset 0 stands for whole delivery, not judged."""
    data = case["bytes"]
    if offset == 0:
        return None, run_case(case, options)
    seen = run_case(case, options, [data[:offset], data[offset:]], options.delay or SPLIT_GAP_SECONDS)
    return judge(case, seen, options), seen


def split_verdict(case, outcomes):
    """`outcomes`: what run_halves gave for each offset, or an OSError."""
    whole, *halves = outcomes
    if isinstance(whole, OSError):
        return Verdict(case, Observation(error=str(whole)), f"socket error: {whole}")
    faults = []
    for offset, outcome in enumerate(halves, 1):
        if isinstance(outcome, OSError):
            faults.append(f"at {offset}: socket error: {outcome}")
            continue
        why, seen = outcome
        if not why and seen.codes != whole[1].codes:
            why = f"{short(seen.codes)}, whole gives {short(whole[1].codes)}"
        if why:
            faults.append(f"at {offset}: {why}")
    if not faults:
        return Verdict(case, whole[1])
    more = f" (+{len(faults) - 3})" if len(faults) > 3 else ""
    return Verdict(case, whole[1], "; ".join(faults[:3]) + more, True)


def run_all_split(cases, options, pool):
    """Every marked case at every offset; the pool holds single connections, so that long cases keep nobody waiting."""
    def run(item):
        try:
            return run_halves(item[0], options, item[1])
        except OSError as error:
            return error

    cases = [case for case in cases if case.get("split")]
    items = [(case, offset) for case in cases for offset in range(len(case["bytes"]))]
    outcomes = iter(list(pool.map(run, items)))
    return [split_verdict(case, [next(outcomes) for _ in case["bytes"]]) for case in cases]


def run_all(cases, options, checks, pool):
    def run(case):
        try:
            return MODES[options.mode](case, options, checks)
        except OSError as error:
            seen = Observation(error=str(error))
            return Verdict(case, seen, judge(case, seen, options))

    return list(pool.map(run, cases))


MODES = {"whole": run_whole, "bytes": run_bytes}


# ---- report --------------------------------------------------------------------------------------------------------------------

def report(verdicts, checks, options):
    """Prints the failures and the counts; gives the exit status."""
    tally = {level: [0, 0] for level in LEVELS}
    grave = 0  # MUST failures, and answers that the way of delivery changed

    def count(level, failed):
        tally[level][failed] += 1

    for verdict in verdicts:
        case, failed = verdict.case, verdict.why is not None
        count(case["level"], failed)
        if failed:
            grave += case["level"] == "MUST" or verdict.by_delivery
            print(f"FAIL {case['level']:6} {case['id']:34} {verdict.why}   [{case['ref']}] {case['expect']['note']}")
        elif options.v:
            print(f"ok   {case['level']:6} {case['id']:34} {verdict.seen.summary()} usable={verdict.seen.usable}")
    if options.mode != "split" and not options.id and not options.group:  # the checks want every response
        for name, (level, reference) in CHECKS.items():
            found = checks.found[name]
            count(level, bool(found))
            if found:
                grave += level == "MUST"
                print(f"FAIL {level:6} {name:34} {len(found)} of {checks.responses} responses, e.g. {'; '.join(found[:3])}   [{reference}]")
    print("by level (passed/failed): " + ", ".join(f"{level} {ok}/{bad}" for level, (ok, bad) in tally.items() if ok + bad))
    print(f"{sum(ok for ok, _ in tally.values())} passed, {sum(bad for _, bad in tally.values())} failed")
    return 1 if grave else 0


def load_cases(options):
    with open(options.cases, encoding="utf-8") as lines:
        cases = [json.loads(line) for line in lines if line.strip()]
    for case in cases:
        request = case["request"]  # a string, or a list of pieces: a string, or [string, times]
        pieces = [request] if isinstance(request, str) else request
        case["text"] = "".join(piece if isinstance(piece, str) else piece[0] * piece[1] for piece in pieces)
        case["bytes"] = case["text"].encode("latin-1")
    if options.group:
        cases = [case for case in cases if case["group"] in options.group]
    if options.id:
        cases = [case for case in cases if case["id"] in options.id]
    return cases


def options_from_command_line():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("host", choices=["127.0.0.1", "localhost", "::1"])  # hostile requests are for one's own machine only
    add("port", type=int)
    add("--mode", choices=list(JOBS), default="whole")
    add("--best", action="store_true", help="only the advised answer passes")
    add("--cases", default=DEFAULT_CASES, metavar="FILE")
    add("--group", action="append", help="only the cases of this group (may be repeated)")
    add("--id", action="append", help="only this case (may be repeated)")
    add("--timeout", type=float, default=1.5, metavar="S", help="for an answer to come (default 1.5)")
    add("--wait", type=float, default=0.4, metavar="S", help="of silence where no answer is the right one (default 0.4)")
    add("--settle", type=float, default=0.08, metavar="S", help="to wait behind the last answer for what should not come (default 0.08)")
    add("--jobs", type=int, default=0, metavar="N", help=f"connections at once (default {JOBS})")
    add("--delay", type=float, default=0.0, metavar="S", help="between two pieces")
    add("-v", action="store_true", help="passed cases too")
    add("--json", metavar="FILE", help="write what each case came to")
    return parser.parse_args()


def main():
    options = options_from_command_line()
    cases = load_cases(options)
    plain_get = {"id": "base", "text": FOLLOW_UP.decode(), "bytes": FOLLOW_UP,
                 "expect": {"status": [200], "close": None, "responses": 1}}
    try:
        answers = run_case(plain_get, options).stream.finals
    except OSError as error:
        print(f"cannot reach {options.host}:{options.port}: {error}\n0 passed, 1 failed")
        return 1
    options.length_of_get = answers[0].get("content-length") if answers else None

    checks = Checks()
    with concurrent.futures.ThreadPoolExecutor(options.jobs or JOBS[options.mode]) as pool:
        verdicts = run_all_split(cases, options, pool) if options.mode == "split" else run_all(cases, options, checks, pool)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({verdict.case["id"]: {"codes": verdict.seen.codes[:5], "first": verdict.seen.first, "usable": verdict.seen.usable,
                                            "why": verdict.why, "level": verdict.case["level"]} for verdict in verdicts}, file, indent=0)
    return report(verdicts, checks, options)


if __name__ == "__main__":
    sys.exit(main())
