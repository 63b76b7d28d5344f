#!/usr/bin/python3
"""tools/bench: its arithmetic on made-up samples, its readers, its own client, and one short run for real.

`make floor` and `make` build what the last needs; without ab it is skipped.
"""
import contextlib
import importlib.machinery
import importlib.util
import json
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
loader = importlib.machinery.SourceFileLoader("bench", str(ROOT / "tools/bench"))
bench = importlib.util.module_from_spec(importlib.util.spec_from_loader("bench", loader))
sys.modules["bench"] = bench
loader.exec_module(bench)


def sample(number, server, cpu_us, voids=(), events_per_wait=2.0, verdict="neither"):
    return bench.Sample(number, server, cpu_us, 1000.0, 5.0, 0.5, 0.9, 0.1, events_per_wait, {"99": 1.0}, verdict, list(voids), [])


class Arithmetic(unittest.TestCase):
    def test_a_ratio_is_taken_pair_by_pair(self):
        # The machine was twice as slow in the second round: each pair still says 0.5.
        samples = [sample(0, "ceiling", 1.0), sample(0, "floor", 2.0), sample(1, "ceiling", 2.0), sample(1, "floor", 4.0)]
        found = bench.ratio(samples, "ceiling", "floor")
        self.assertEqual((found["median"], found["minimum"], found["maximum"], found["count"]), (0.5, 0.5, 0.5, 2))

    def test_a_void_run_takes_its_pair_with_it(self):
        samples = [sample(0, "ceiling", 1.0), sample(0, "floor", 2.0), sample(1, "ceiling", 9.0, ["died"]), sample(1, "floor", 1.0)]
        self.assertEqual(bench.ratio(samples, "ceiling", "floor")["count"], 1)
        self.assertIsNone(bench.ratio(samples[2:], "ceiling", "floor"))

    def test_aims_are_met_missed_or_unknown(self):
        ours = {"floor": {"median": 1.005}, "nginx-return": {"median": 0.9}}
        rows = {"ceiling": {"calls_per_request": 2.02}}
        for aim, met in [(bench.Aim("cpu", "floor", 1.01), True), (bench.Aim("cpu", "nginx-return", 0.85), False),
                         (bench.Aim("cpu", "haproxy", 0.85), None), (bench.Aim("calls", "", 2.03), True)]:
            self.assertIs(bench.aim_result(aim, ours, rows)["met"], met, aim)
        self.assertIsNone(bench.aim_result(bench.Aim("calls", "", 4.4), ours, {"ceiling": {}})["met"])

    def test_the_summary_and_its_table_hold_every_server(self):
        samples = [sample(0, "ceiling", 1.5, verdict="client-bound"), sample(0, "floor", 1.0), sample(0, "nginx", 3.0, ["it died"])]
        part = bench.summary(bench.BENCHES[2], samples, ["ceiling", "floor", "nginx"],
                             {"ceiling": {"calls_per_request": 4.25, "instructions_per_request": 345.6}})
        self.assertEqual(part["servers"]["nginx"]["verdict"], "void")
        text = bench.table("close", part)
        for word in ("1.50 [1.50 1.50]", "4.25", "346", "the client (0.90 busy)", "nginx: it died", "aim 4.4: met"):
            self.assertIn(word, text)

    def test_different_regimes_are_pointed_out(self):
        samples = [sample(0, "ceiling", 1.0, events_per_wait=9.0), sample(0, "floor", 1.0, events_per_wait=2.0)]
        part = bench.summary(bench.BENCHES[0], samples, ["ceiling", "floor"], {})
        document = {"machine": {"load_average": 0.0, "cpus_online": 2}, "workloads": {"keep-alive": part}}
        self.assertEqual(len(bench.doubts(document)), 1)
        document["machine"]["load_average"] = 3.0
        self.assertEqual(len(bench.doubts(document)), 2)

    def test_counters_of_both_reports_are_read(self):
        self.assertEqual(bench.own_counters("counters:\n  waits   17\n  events  40\n"), {"waits": 17, "events": 40})
        self.assertEqual(bench.own_counters("floor: connections 2, answers 3, waits 4, events 5, short sends 0"),
                         {"waits": 4, "events": 5})


class Client(unittest.TestCase):
    def serve(self, answers_per_connection):
        """A little server on a thread of its own; returns its port and the list of requests that came."""
        listener = socket.create_server(("127.0.0.1", 0))
        seen = []

        def work():
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    threading.Thread(target=self.answer, args=(connection, answers_per_connection, seen), daemon=True).start()

        threading.Thread(target=work, daemon=True).start()
        self.addCleanup(listener.close)
        return listener.getsockname()[1], seen

    @staticmethod
    def answer(connection, count, seen):
        with connection:
            data = b""
            while count > 0:
                part = connection.recv(65536)
                if not part:
                    return
                data += part
                while b"\r\n\r\n" in data and count > 0:
                    _, _, data = data.partition(b"\r\n\r\n")
                    seen.append(1)
                    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
                    count -= 1

    def test_it_sends_exactly_so_many(self):
        port, seen = self.serve(1000)
        bench.lockstep(port, b"GET / HTTP/1.1\r\n\r\n", 3, 4, 5, False)
        self.assertEqual(len(seen), 3 * 4 * 5 + 1)          # one to learn how long an answer is
        port, seen = self.serve(1)
        bench.lockstep(port, b"GET / HTTP/1.1\r\n\r\n", 1, 1, 7, True)
        self.assertEqual(len(seen), 7)

    def test_a_connection_that_should_have_stayed_is_an_error(self):
        port, _ = self.serve(3)
        with self.assertRaises(OSError):
            bench.lockstep(port, b"GET / HTTP/1.1\r\n\r\n", 1, 1, 10, False)


class Program(unittest.TestCase):
    def run_bench(self, *options):
        return subprocess.run([ROOT / "tools/bench", *options], capture_output=True, text=True, timeout=300)

    def test_usage_errors_name_the_option(self):
        for options, word in [(["--workloads", "slow"], "slow"), (["--rounds", "0"], "--rounds"), (["--fast"], "--fast")]:
            process = self.run_bench(*options)
            self.assertEqual(process.returncode, 2, process.stderr)
            self.assertIn(word, process.stderr)

    def test_a_program_that_is_not_there_is_named_with_what_builds_it(self):
        process = self.run_bench("--server", "/nonexistent/server")
        self.assertEqual((process.returncode, process.stdout), (1, ""))
        self.assertIn("/nonexistent/server is not there: run make", process.stderr)

    @unittest.skipUnless(shutil.which("ab") and (ROOT / "server").exists() and (ROOT / "build/floor").exists(),
                         "needs ab, ./server and build/floor")
    def test_a_short_run_writes_a_whole_document(self):
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder, "bench.json")
            process = self.run_bench("--rounds", "1", "--workloads", "close", "--no-counts", "--no-rivals", "--out", str(out))
            self.assertEqual(process.returncode, 0, process.stdout + process.stderr)
            document = json.loads(out.read_text())
        part = document["workloads"]["close"]
        self.assertEqual(document["version"], bench.FORMAT_VERSION)
        self.assertEqual(set(part["servers"]), {"ceiling", "floor"})
        for row in part["servers"].values():
            self.assertGreater(row["cpu_us_per_request"]["median"], 0)
            self.assertGreater(row["events_per_wait"]["median"], 0)
        self.assertGreater(part["ceiling_to"]["floor"]["median"], 0)
        self.assertIn("CPU us/request", process.stdout)


if __name__ == "__main__":
    unittest.main()
