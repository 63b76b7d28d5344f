#!/usr/bin/python3
"""--stats, --metrics, SIGUSR1 and the report at exit: they agree with each other and with what the clients saw."""
import contextlib
import pathlib
import re
import signal
import socket
import subprocess
import time
import unittest

from ceiling import Server, connect, exchange, get, measured, read_answers

COLUMNS = ["req/s", "conn/s", "open", "MB/s-in", "MB/s-out", "4xx/s", "5xx/s", "reset/s", "slow/s", "us%", "sy%", "balance"]


def counters(text):
    """The last report in `text`, by name."""
    report = text[text.rindex("counters:\n"):]
    return {name: float(value) for name, value in re.findall(r"^  (\w+) +([\d.]+)$", report, re.MULTILINE)}


def threads(text):
    report = text[text.rindex("counters:\n"):]
    return [(int(held), int(answered)) for held, answered in re.findall(r"^  thread \d+ +(\d+) open +(\d+) answered", report, re.MULTILINE)]


class Figures(unittest.TestCase):
    def serve(self, *options, **named):
        stack = contextlib.ExitStack()
        self.addCleanup(stack.close)
        return stack.enter_context(Server(*options, **named))

    def report(self, server):
        before = server.errors.count("counters:\n")
        server.send(signal.SIGUSR1)
        server.wait_until(lambda: server.errors.count("counters:\n") > before and re.search(r"thread \d+ .*answered\n\Z", server.errors), "a report")
        time.sleep(0.05)
        return counters(server.errors)

    def scrape(self, server, request=None):
        return exchange(self.metrics_port(server), request or get("/metrics")).finals[0]

    def metrics_port(self, server):
        return int(re.search(r"metrics +http://127\.0\.0\.1:(\d+)/metrics", server.errors).group(1))

    def test_the_report_counts_what_happened(self):
        server = self.serve("--threads", "1", "--max-body", "10", "--head-timeout", "0.3", "--idle-timeout", "0.5")
        exchange(server.port, get() * 7, answers=7)
        exchange(server.port, get("/", "Content-Length: 11"))
        exchange(server.port, b"GET / HTTP/3.0\r\n\r\n")
        exchange(server.port, get(method="OPTIONS"))
        slow = connect(server.port)
        slow.sendall(b"GET / HT")
        self.assertEqual(read_answers(slow).finals[0].status, 408)
        slow.close()
        with connect(server.port) as idle:
            idle.sendall(get())
            read_answers(idle)
            self.assertEqual(idle.recv(1), b"")
        seen = self.report(server)
        for name, value in (("accepted", 6), ("closed", 6), ("answered", 12), ("status_200", 8), ("status_204", 1), ("status_413", 1),
                            ("status_505", 1), ("status_408", 1), ("timeout_head", 1), ("timeout_idle", 1), ("peer_reset", 0),
                            ("drain_cut", 0), ("buffer_exhausted", 0)):
            self.assertEqual(seen[name], value, name)
        self.assertEqual(server.stop(), 0)
        self.assertEqual(counters(server.errors)["answered"], 12, "the report at exit")

    def test_bytes_are_counted_exactly(self):
        server = self.serve("--threads", "1")
        with connect(server.port) as client:
            client.sendall(get() * 100)
            received = 0
            while received < 100 * 97 and (data := client.recv(1 << 16)):
                received += len(data)
                if data.endswith(b"hello") and received % 100 == 0:
                    break
            time.sleep(0.1)
            seen = self.report(server)
        self.assertEqual(seen["sent_bytes"], received)
        self.assertEqual(seen["received_bytes"], 100 * len(get()))

    def test_every_thread_has_its_line(self):
        server = self.serve("--threads", "3")
        clients = [connect(server.port) for _ in range(9)]
        for client in clients:
            client.sendall(get())
            read_answers(client)
        time.sleep(0.2)
        self.report(server)
        self.assertEqual([held for held, _ in threads(server.errors)], [3, 3, 3])
        self.assertEqual(sum(answered for _, answered in threads(server.errors)), 9)
        for client in clients:
            client.close()

    def test_a_line_of_figures_each_interval(self):
        server = self.serve("--stats", "0.2", "--threads", "2")
        with connect(server.port) as client:
            end = time.monotonic() + 1.3
            answered = 0
            while time.monotonic() < end:
                client.sendall(get() * 20)
                read_answers(client, 20)
                answered += 20
                time.sleep(0.01)
            time.sleep(0.5)
            lines = server.output.splitlines()
        self.assertEqual(lines[0].split(), COLUMNS)
        rows = [[float(word) for word in line.split()] for line in lines[1:] if "req/s" not in line]
        self.assertGreaterEqual(len(rows), 5)
        self.assertTrue(all(len(row) == len(COLUMNS) for row in rows))
        self.assertEqual({len(line) for line in lines[1:]}, {len(lines[0])}, "columns are aligned")
        self.assertAlmostEqual(sum(row[0] for row in rows) * 0.2, answered, delta=answered * 0.25)
        self.assertIn(1, [row[2] for row in rows], "one connection was open")

    def test_metrics_in_the_format_of_prometheus(self):
        server = self.serve("--metrics", "127.0.0.1:0", "--threads", "2")
        exchange(server.port, get() * 5, answers=5)
        exchange(server.port, b"nonsense\r\n\r\n")
        server.wait_until(lambda: self.report(server)["closed"] == 2, "the end of both connections")
        answer = self.scrape(server)
        self.assertEqual(answer.status, 200)
        self.assertEqual(answer.get("content-type"), "text/plain; version=0.0.4; charset=utf-8")
        values, described = {}, set()
        for line in answer.body.decode().splitlines():
            if line.startswith("# "):
                self.assertRegex(line, r"^# (HELP \w+ \S.*|TYPE \w+ (counter|gauge))$")
                described.add(line.split()[2])
            else:
                found = re.fullmatch(r'(\w+(?:\{\w+="\w+"\})?) ([\d.]+)', line)
                self.assertIsNotNone(found, line)
                self.assertNotIn(found[1], values)
                values[found[1]] = float(found[2])
        self.assertEqual({name.split("{")[0] for name in values}, described)
        self.assertEqual(values['ceiling_responses_total{code="200"}'], 5)
        self.assertEqual(values['ceiling_responses_total{code="400"}'], 1)
        self.assertEqual(values["ceiling_accepted_total"], 2)
        for name, value in self.report(server).items():
            if f"ceiling_{name}_total" in values and name not in ("waits", "events"):
                self.assertEqual(values[f"ceiling_{name}_total"], value, name)

    def test_scrapers_that_misbehave(self):
        server = self.serve("--metrics", "127.0.0.1:0", "--threads", "1")
        port = self.metrics_port(server)
        for request, status in ((get("/nope"), 404), (get("/metrics", method="POST"), 400), (b"x\r\n\r\n", 400)):
            self.assertEqual(self.scrape(server, request).status, status, request)
        self.assertEqual(exchange(port, get("/metrics", method="HEAD"), heads={0}).finals[0].body, b"")
        silent = connect(port)  # holds the scrape listener for a second, and nobody else
        begin = time.monotonic()
        exchange(server.port)
        self.assertLess(time.monotonic() - begin, 0.5)
        self.assertEqual(self.scrape(server).status, 200)
        silent.close()
        with connect(port) as endless:
            with contextlib.suppress(OSError):
                endless.sendall(b"GET /metrics HTTP/1.1\r\nX: " + b"a" * 100_000)
        self.assertEqual(self.scrape(server).status, 200)

    @measured
    def test_an_idle_server_uses_no_cpu_and_no_extra_thread(self):
        server = self.serve("--threads", "2")
        exchange(server.port)
        switches = lambda: sum(int(n) for task in pathlib.Path(f"/proc/{server.pid}/task").iterdir()  # noqa: E731
                               for n in re.findall(r"ctxt_switches:\s+(\d+)", (task / "status").read_text()))
        time.sleep(0.2)
        before = switches()
        time.sleep(1.5)
        self.assertEqual(switches(), before)
        self.assertEqual(len(list(pathlib.Path(f"/proc/{server.pid}/task").iterdir())), 2)

    @measured
    def test_10000_idle_connections_cost_a_megabyte(self):
        server = self.serve("--threads", "1")
        memory = lambda: int(re.search(r"VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{server.pid}/status").read_text()).group(1))  # noqa: E731
        limit = int(subprocess.run("ulimit -n", shell=True, capture_output=True, text=True).stdout) - 100
        if limit < 3000:
            self.skipTest("RLIMIT_NOFILE allows too few connections")
        count = min(10_000, limit)
        exchange(server.port, get() * 2, answers=2)
        before = memory()
        clients = []
        for _ in range(count):
            client = socket.create_connection(("127.0.0.1", server.port))
            client.sendall(get())
            clients.append(client)
        for client in clients:
            self.assertTrue(client.recv(4096))
        self.assertEqual(threads(server.errors if self.report(server) else "")[0][0], count)
        self.assertLess((memory() - before) * 1024, count * 64 + 400 * 1024)
        for client in clients:
            client.close()


if __name__ == "__main__":
    unittest.main()
