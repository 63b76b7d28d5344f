#!/usr/bin/python3
"""Hostile and slow clients: each attack runs beside ordinary clients, which must be served as if it were not there.

    tests/hostile_test.py [--long]     --long: 10,000 idle connections, longer attacks, and slowhttptest in all its modes

What is asserted: ordinary clients get every answer, none waits longer than WAIT_SECONDS_MAX; memory and descriptors are back
where they were when the attack is over; the counters say what happened; nothing is logged. What is only printed, for machines
differ: the ordinary clients' p50 and p99 without and with the attack.
"""
import multiprocessing
import os
import pathlib
import re
import resource
import selectors
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
import unittest

from ceiling import SANITIZED, Server, get, read_answers

LONG = "--long" in sys.argv or os.environ.get("CEILING_TEST_LONG") == "1"
SECONDS = 10.0 if LONG else 1.5  # of each attack
CROWD = 10_000 if LONG else 1_000
# An answer takes microseconds; on a loaded machine with two cores the client's own thread may not run for a while.
WAIT_SECONDS_MAX = 2.0
# Pages that hot buffers, malloc and stacks touch once they are used at all; measured 1 to 3 MiB.
MEMORY_KIB_MAX = 8192
HOT = get()


def memory_kib(pid):
    return int(re.search(r"VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text()).group(1))


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(len(values) * share))] if values else float("nan")


class Ordinary:
    """A few keep-alive connections and a short one now and then; notes how long each answer took. In a process of its own:
    the attacker's Python must not be what they wait for."""

    def __init__(self, port, clients=4):
        self.port, self.clients = port, clients
        self.waits, self.faults = [], []
        context = multiprocessing.get_context("fork")
        self.ending = context.Event()
        self.results, results = context.Pipe(duplex=False)
        self.process = context.Process(target=self.run, args=(results,), daemon=True)

    def start(self):
        self.process.start()

    def run(self, results):
        connections = []
        try:
            connections = [self._connect() for _ in range(self.clients)]
            while not self.ending.is_set():
                for connection in connections:
                    self._ask(connection, HOT)
                short = self._connect()
                self._ask(short, get("/", "Connection: close"))
                short.close()
                time.sleep(0.002)
        except (OSError, AssertionError) as fault:
            self.faults.append(repr(fault))
        for connection in connections:
            connection.close()
        results.send((self.waits, self.faults))

    def _connect(self):
        connection = socket.create_connection(("127.0.0.1", self.port), WAIT_SECONDS_MAX)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def _ask(self, connection, request):
        begin = time.monotonic()
        connection.sendall(request)
        got = b""
        while not got.endswith(b"\r\n\r\nhello"):
            piece = connection.recv(4096)
            if not piece:
                raise AssertionError(f"ended after {got!r}")
            got += piece
        self.waits.append(time.monotonic() - begin)

    def stop(self):
        self.ending.set()
        self.waits, self.faults = self.results.recv()
        self.process.join(30)
        return self


def watch(port, seconds):
    ordinary = Ordinary(port)
    ordinary.start()
    time.sleep(seconds)
    return ordinary.stop()


class Attack(unittest.TestCase):
    options = ()

    def setUp(self):
        # No file limit but the system's: thousands of sockets on both sides.
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        self.crowd = min(CROWD, hard // 2 - 200)
        self.open = []
        self.addCleanup(self.leave)

    def leave(self):
        for connection in self.open:
            connection.close()
        self.open.clear()

    def serve(self, *options):
        server = Server("--threads", "2", *options)
        self.addCleanup(lambda: server.process.poll() is None and server.stop())
        return server

    def connect(self, server, **settings):
        connection = socket.socket()
        for name, value in settings.items():
            connection.setsockopt(socket.SOL_SOCKET, getattr(socket, name), value)
        connection.settimeout(WAIT_SECONDS_MAX * 5)
        connection.connect(("127.0.0.1", server.port))
        self.open.append(connection)
        return connection

    def counters(self, server):
        begin = len(server.errors)
        server.send(signal.SIGUSR1)
        server.wait_until(lambda: re.search(r"thread 1 .*answered", server.errors[begin:]), "its counters")
        return {name: int(value) for name, value in re.findall(r"^  ([a-z_0-9]+) +(\d+)$", server.errors[begin:], re.MULTILINE)}

    def beside(self, server, attack, what, settle=lambda: True):
        """Runs `attack` beside ordinary clients, and checks what must hold for any attack."""
        watch(server.port, 0.2)
        quiet = watch(server.port, SECONDS / 2)
        memory, files, log = memory_kib(server.pid), descriptors(server.pid), len(server.errors)
        ordinary = Ordinary(server.port)
        ordinary.start()
        attack()
        ordinary.stop()
        most = memory_kib(server.pid)
        self.leave()
        server.wait_until(lambda: descriptors(server.pid) <= files and settle(), f"the end of {what}")
        print(f"  {what:36} p50 {percentile(quiet.waits, .5) * 1e3:6.2f} -> {percentile(ordinary.waits, .5) * 1e3:6.2f} ms   "
              f"p99 {percentile(quiet.waits, .99) * 1e3:6.2f} -> {percentile(ordinary.waits, .99) * 1e3:6.2f} ms   "
              f"memory {memory} -> {most} KiB   {len(ordinary.waits)} answers", flush=True)
        self.assertEqual(quiet.faults + ordinary.faults, [], what)
        self.assertGreater(len(ordinary.waits), 20, what)
        self.assertLess(max(ordinary.waits), WAIT_SECONDS_MAX, what)
        if not SANITIZED:
            self.assertLess(most, memory + MEMORY_KIB_MAX, f"{what}: memory")
        self.assertEqual(server.errors[log:], "", f"{what}: log")
        return self.counters(server)

    def until(self, act, seconds=SECONDS):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            act()

    # ---- those that do little, slowly

    def test_idle_connections(self):
        server = self.serve("--no-defer-accept")

        def attack():
            for _ in range(self.crowd):
                self.connect(server)
            time.sleep(SECONDS / 2)
        counters = self.beside(server, attack, f"{self.crowd} idle connections")
        self.assertGreaterEqual(counters["accepted"], self.crowd)

    def test_heads_that_come_byte_by_byte(self):
        server = self.serve("--head-timeout", "1")
        slow = []

        def attack():
            slow.extend(self.connect(server) for _ in range(300))
            for connection in slow:
                connection.sendall(b"GET / HTTP/1.1\r\n")
            for _ in range(int(max(SECONDS, 2) / 0.25)):
                for connection in slow:
                    try:
                        connection.sendall(b"a")
                    except OSError:
                        pass  # it has been told to go
                time.sleep(0.25)
            for connection in slow:
                answer = read_answers(connection, until_end=True).finals
                self.assertEqual([a.status for a in answer], [408])
        counters = self.beside(server, attack, "300 heads of one byte at a time")
        self.assertEqual((counters["timeout_head"], counters["status_408"]), (300, 300))

    def test_content_that_comes_byte_by_byte(self):
        server = self.serve("--idle-timeout", "1")

        def attack():
            slow = [self.connect(server) for _ in range(200)]
            for connection in slow:
                connection.sendall(get("/", "Content-Length: 1000000", method="POST"))
            for _ in range(4):
                time.sleep(0.3)
                for connection in slow:
                    connection.sendall(b"x")
            time.sleep(1.4)
            for connection in slow:
                self.assertEqual([a.status for a in read_answers(connection, until_end=True).finals], [408])
        counters = self.beside(server, attack, "200 bodies of one byte at a time")
        self.assertEqual(counters["timeout_body"], 200)

    def test_readers_that_never_read(self):
        server = self.serve("--idle-timeout", "2")

        def attack():
            for _ in range(100):
                connection = self.connect(server, SO_RCVBUF=2304)
                connection.setblocking(False)
                try:
                    for _ in range(2000):
                        connection.send(HOT * 100)  # the answers are more than the kernel keeps for it
                except OSError:
                    pass  # full on both sides: it is where we wanted it
            time.sleep(3.5)
        counters = self.beside(server, attack, "100 readers that never read")
        self.assertGreaterEqual(counters["timeout_write"], 100)

    # ---- those that do much, fast

    def flood(self, server, piece, what, clients=4, options=()):
        def attack():
            selector = selectors.DefaultSelector()
            for _ in range(clients):
                connection = self.connect(server)
                connection.setblocking(False)
                selector.register(connection, selectors.EVENT_READ | selectors.EVENT_WRITE)

            def turn():
                for key, events in selector.select(0.1):
                    try:
                        if events & selectors.EVENT_READ and not key.fileobj.recv(65536):
                            raise ConnectionResetError
                        if events & selectors.EVENT_WRITE:
                            key.fileobj.send(piece)
                    except BlockingIOError:
                        pass
                    except OSError:
                        selector.unregister(key.fileobj)
                        key.fileobj.close()
                        self.open.remove(key.fileobj)
                        again = self.connect(server)
                        again.setblocking(False)
                        selector.register(again, selectors.EVENT_READ | selectors.EVENT_WRITE)
            self.until(turn)
            selector.close()
        return self.beside(server, attack, what)

    def test_empty_lines_without_end(self):
        counters = self.flood(self.serve("--head-timeout", "1"), b"\r\n" * 16384, "a flood of empty lines")
        self.assertGreater(counters["received_bytes"], 1 << 20)

    def test_tls_and_http2(self):
        hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500)
        counters = self.flood(self.serve(), hello, "TLS client hellos")
        self.assertGreater(counters["status_400"], 10)
        counters = self.flood(self.serve(), b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(64), "HTTP/2 prefaces")
        self.assertGreater(counters.get("status_505", 0) + counters.get("status_400", 0), 10)

    def test_large_heads(self):
        piece = b"GET / HTTP/1.1\r\nHost: x\r\n" + b"X: " + b"a" * 65536
        counters = self.flood(self.serve(), piece, "heads of 64 KiB")
        self.assertGreater(counters["status_431"], 10)

    def test_chunk_extensions_without_end(self):
        server = self.serve()

        def attack():
            def turn():
                connection = self.connect(server)
                try:
                    connection.sendall(get("/", "Transfer-Encoding: chunked", method="POST") + b"5;" + b"a" * 200_000)
                except OSError:
                    pass  # it was refused long before the end
                answers = read_answers(connection, until_end=True).finals
                self.assertIn(answers[0].status, (400, 413, 431))
                connection.close()
                self.open.remove(connection)
            self.until(turn)
        self.beside(server, attack, "chunk extensions without end")

    def test_a_flood_behind_the_end(self):
        server = self.serve()

        def attack():
            connection = self.connect(server)
            connection.sendall(b"GET / HTTP/1.1\r\nHost : x\r\n\r\n")
            self.assertEqual(connection.recv(12), b"HTTP/1.1 400")
            connection.settimeout(1)
            begin = time.monotonic()
            try:
                while time.monotonic() - begin < 10:
                    connection.sendall(b"z" * 1_000_000)
            except OSError:
                pass
            self.assertLess(time.monotonic() - begin, 6, "it is cut off after its two seconds")
        counters = self.beside(server, attack, "a flood behind the end")
        self.assertEqual(counters["timeout_linger"], 1)

    def test_resets(self):
        server = self.serve()

        def attack():
            def turn():
                connection = self.connect(server)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                connection.sendall(HOT * 100)
                connection.close()
                self.open.remove(connection)
            self.until(turn)
        counters = self.beside(server, attack, "requests and a reset")
        self.assertGreater(counters["accepted"], 100)

    def test_urgent_data(self):
        server = self.serve("--idle-timeout", "1", "--head-timeout", "1")

        def attack():
            for _ in range(50):
                connection = self.connect(server)
                connection.sendall(HOT[:20])
                connection.send(b"!", socket.MSG_OOB)
                connection.sendall(HOT[20:])
            time.sleep(1.5)
        self.beside(server, attack, "urgent data in the middle of a head")

    def test_out_of_descriptors(self):
        server = Server("--threads", "2", "--no-defer-accept",
                        preexec=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)))
        self.addCleanup(lambda: server.process.poll() is None and server.stop())
        kept = self.connect(server)
        kept.sendall(HOT)
        self.assertEqual(read_answers(kept).finals[0].status, 200)
        for _ in range(200):
            self.connect(server)
        time.sleep(0.3)
        ticks = sum(map(int, pathlib.Path(f"/proc/{server.pid}/stat").read_text().split()[13:15]))
        time.sleep(1.5)
        spent = sum(map(int, pathlib.Path(f"/proc/{server.pid}/stat").read_text().split()[13:15])) - ticks
        self.assertLess(spent / os.sysconf("SC_CLK_TCK"), 0.3, "it rests while it has no descriptors")
        kept.sendall(HOT)
        self.assertEqual(read_answers(kept).finals[0].status, 200, "those who are there are served")
        for connection in self.open[1:170]:
            connection.close()
        fresh = self.connect(server)
        fresh.sendall(HOT)
        self.assertEqual(read_answers(fresh).finals[0].status, 200, "and new ones as soon as there is room")
        self.assertGreater(self.counters(server)["accept_exhausted"], 0)
        self.assertLess(server.errors.count("\n"), 60, "one report of the counters and the banner")

    # ---- the tool others test with

    @unittest.skipUnless(LONG, "with --long")
    def test_slowhttptest(self):
        tool = shutil.which("slowhttptest")
        if tool is None:
            self.skipTest("slowhttptest is not installed")
        # -H slow heads, -B slow bodies, -R ranges, -X slow reading.
        for mode in (["-H", "-i", "1"], ["-B", "-i", "1"], ["-R"], ["-X", "-w", "512", "-y", "1024", "-n", "1", "-z", "32"]):
            server = self.serve("--head-timeout", "3", "--idle-timeout", "3")

            def attack(mode=mode, server=server):
                subprocess.run([tool, *mode, "-c", "1000", "-r", "200", "-l", "20", "-u", server.url], check=False,
                               stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=120)
            self.beside(server, attack, f"slowhttptest {' '.join(mode)}")


if __name__ == "__main__":
    sys.argv = [argument for argument in sys.argv if argument != "--long"]
    unittest.main()
