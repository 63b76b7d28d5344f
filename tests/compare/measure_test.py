#!/usr/bin/python3
"""Process trees, servers that lie, verdicts, placement and statistics."""

import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest
from pathlib import Path

from support import stub
import measure
from measure import client, network, placement, run, server

PLACE = measure.plan_placement(workers=1)


def spin(seconds: float) -> str:
    """Python source that burns CPU time, not wall time; it looks at the clock seldom, for a look is a system call."""
    return f"import time\nend = time.process_time() + {seconds}\nwhile time.process_time() < end: sum(range(20000))\n"


class Trees(unittest.TestCase):
    def meter(self, source: str, samples: float = 0.05) -> measure.TreeUsage:
        """Runs a Python program that waits for a line, meters it from then on until it prints one."""
        child = subprocess.Popen([sys.executable, "-c", "import sys\nsys.stdin.readline()\n" + textwrap.dedent(source)
                                  + "\nprint('done', flush=True)\nsys.stdin.readline()"],
                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True)
        try:
            time.sleep(0.1)
            meter = measure.TreeMeter(child.pid)
            meter.begin()
            child.stdin.write("\n")
            child.stdin.flush()
            os.set_blocking(child.stdout.fileno(), False)
            deadline = time.monotonic() + 20
            while not child.stdout.read(1):
                meter.sample()
                time.sleep(samples)
                self.assertLess(time.monotonic(), deadline)
            return meter.sample(full=True)
        finally:
            for pid in measure.tree_of(child.pid):
                os.kill(pid, signal.SIGKILL)
            child.wait()
            child.stdin.close()
            child.stdout.close()

    def assert_cpu(self, usage, seconds):
        self.assertGreater(usage.cpu_ns, seconds * 0.85e9)
        self.assertLess(usage.cpu_ns, seconds * 1.5e9 + 0.2e9)

    def test_one_process(self):
        usage = self.meter(spin(0.3))
        self.assert_cpu(usage, 0.3)
        self.assertGreater(usage.user_ns, usage.system_ns)
        self.assertGreater(usage.peak_rss_bytes, 1 << 20)

    def test_what_was_used_before_begin_does_not_count(self):
        self.assertLess(self.meter("pass").cpu_ns, 0.1e9)

    def test_threads_that_ended_still_count(self):
        usage = self.meter("import threading, time\n"
                           "def work():\n    end = time.thread_time() + 0.1\n    while time.thread_time() < end: pass\n"
                           "for _ in range(4):\n    t = threading.Thread(target=work); t.start(); t.join()\n", samples=0.5)
        self.assert_cpu(usage, 0.4)

    def test_children_that_were_reaped_still_count(self):
        usage = self.meter("import os, time\n"
                           "for _ in range(4):\n"
                           "    pid = os.fork()\n"
                           "    if pid == 0:\n"
                           "        end = time.process_time() + 0.1\n"
                           "        while time.process_time() < end: pass\n"
                           "        os._exit(0)\n"
                           "    os.waitpid(pid, 0)\n", samples=0.5)
        self.assert_cpu(usage, 0.4)
        self.assertGreater(usage.recovered_ns, 0)

    def test_a_grandchild_whose_parent_has_gone_is_found_by_its_session(self):
        usage = self.meter("import os, time\n"
                           "r, w = os.pipe()\n"
                           "if os.fork() == 0:\n"
                           "    if os.fork() == 0:\n"
                           "        end = time.process_time() + 0.3\n"
                           "        while time.process_time() < end: pass\n"
                           "        os.write(w, b'x'); time.sleep(60)\n"
                           "    os._exit(0)\n"
                           "os.wait(); os.read(r, 1)\n")
        self.assert_cpu(usage, 0.3)


class Lies(unittest.TestCase):
    def problems(self, mode, **wanted):
        expect = measure.Expectation(body=b"hello", **wanted)
        with measure.start_server(stub(mode), PLACE, 1) as up:
            return "; ".join(measure.probe(up, expect).problems)

    def test_an_honest_server_has_no_problem(self):
        self.assertEqual(self.problems("honest", keep_alive_10=True, keep_alive_11=True, close_10=True), "")

    def test_each_lie_is_named(self):
        self.assertIn("404 instead of 200", self.problems("404"))
        self.assertIn("body is b'olleh' instead of b'hello'", self.problems("wrong-body"))
        self.assertIn("Content-Length: 6 and sends 5 bytes", self.problems("wrong-length"))
        self.assertIn("no Content-Length", self.problems("no-length"))
        self.assertIn("closes after every HTTP/1.1 answer", self.problems("rude-close", keep_alive_11=True))
        self.assertIn("lacks the header Date", self.problems("honest", headers=("Date",)))

    def test_a_server_that_does_not_come_up_is_quoted(self):
        with self.assertRaisesRegex(measure.ServerError, "exit status 3: stub.py: this port is cursed"):
            with measure.start_server(stub("never-up"), PLACE, 1):
                pass

    def test_a_server_that_never_answers_is_given_up_and_stopped(self):
        with self.assertRaisesRegex(measure.ServerError, "did not answer within 1 s"):
            with measure.start_server(stub("silent"), PLACE, 1, answer_seconds_max=1):
                pass

    def test_a_missing_program_is_named(self):
        with self.assertRaisesRegex(measure.ServerError, "no-such-server"):
            with measure.start_server(measure.ServerSpec("x", ["no-such-server"]), PLACE, 1):
                pass

    def test_daemon_children_are_stopped(self):
        measure.become_subreaper()
        with measure.start_server(stub("children"), PLACE, 1) as up:
            tree = measure.tree_of(up.pid)
            self.assertGreaterEqual(len(tree), 2)
        left = [pid for pid in tree if (stat := measure.process.read_stat(pid)) and stat[0] != "Z"]
        self.assertEqual(left, [])


@unittest.skipIf(client.missing_client("ab") or client.missing_client("wrk"), "needs ab and wrk")
class Runs(unittest.TestCase):
    def measure(self, mode, load, warm_up=None):
        with measure.start_server(stub(mode), PLACE, 1) as up:
            return measure.measure_run(up, load, PLACE, warm_up=warm_up)

    def test_an_honest_run_is_valid_and_has_every_figure(self):
        done = self.measure("honest", measure.Ab(3000, 8, True))
        self.assertEqual(done.voids, [])
        self.assertGreater(done.server_us_per_request, 0)
        self.assertGreater(done.client_us_per_request, 0)
        self.assertGreater(done.requests_per_core, 0)
        self.assertTrue(0 < done.server_busy <= 1)

    def test_a_run_of_404s_is_void(self):
        self.assertIn("not 2xx", "; ".join(self.measure("404", measure.Ab(200, 4, True)).voids))
        self.assertIn("not 2xx", "; ".join(self.measure("turns-404", measure.Wrk(1, 4)).voids))

    def test_an_unannounced_close_is_void(self):
        self.assertTrue(self.measure("rude-close", measure.Wrk(1, 4)).voids)

    def test_a_server_that_dies_half_way_is_named(self):
        voids = "; ".join(self.measure("half-way", measure.Ab(5000, 4, True)).voids)
        self.assertIn("ended with exit status 0", voids)

    def test_a_pause_is_warned_of(self):
        done = self.measure("pause", measure.Wrk(2, 4))
        self.assertIn("something stood still", "; ".join(done.warnings))

    def test_a_failing_warm_up_voids_the_run(self):
        done = self.measure("404", measure.Ab(200, 4, True), warm_up=measure.Ab(20, 4, True))
        self.assertTrue(done.voids[0].startswith("warm-up: "))

    def test_a_client_that_cannot_connect_is_void(self):
        with measure.start_server(stub("honest"), PLACE, 1) as up:
            up.port = server.free_port()
            self.assertTrue(measure.measure_run(up, measure.Ab(100, 4, True), PLACE).voids)

    def test_a_client_that_is_killed_is_void(self):
        class Killed(measure.Ab):
            def command(self, url):
                return ["sh", "-c", "kill -9 $$"]
        done = self.measure("honest", Killed(100, 4, True))
        self.assertIn("killed by signal 9", "; ".join(done.voids))

    def test_a_client_that_hangs_is_ended(self):
        class Hung(measure.Ab):
            def command(self, url):
                return ["sleep", "60"]

            def expected_seconds(self):
                return (0.5 - run.TIMEOUT_SECONDS) / run.TIMEOUT_FACTOR
        begin = time.monotonic()
        done = self.measure("honest", Hung(100, 4, True))
        self.assertIn("did not finish in time", "; ".join(done.voids))
        self.assertLess(time.monotonic() - begin, 10)


class Verdicts(unittest.TestCase):
    def test_table(self):
        for server_busy, client_busy, wanted in (
                (0.40, 0.98, run.CLIENT_BOUND), (0.89, 0.96, run.CLIENT_BOUND), (0.97, 0.60, run.SERVER_BOUND),
                (0.92, 0.91, run.SERVER_BOUND), (0.99, 0.99, run.NEITHER), (0.50, 0.50, run.NEITHER),
                (0.89, 0.94, run.NEITHER), (None, 0.5, run.NEITHER)):
            with self.subTest(server=server_busy, client=client_busy):
                self.assertEqual(measure.verdict_of(server_busy, client_busy)[0], wanted)

    def test_a_side_that_other_programs_keep_waiting_is_not_idle(self):
        verdict, reason = measure.verdict_of(0.40, 0.70, 0.05, 0.28)
        self.assertEqual(verdict, run.CLIENT_BOUND)
        self.assertIn("client 70% busy and 28% kept waiting", reason)


class Shares(unittest.TestCase):
    def test_the_quota_is_written_for_either_version_of_control_groups(self):
        for version, made in ((1, "cpu/cpu.cfs_quota_us"), (2, "cgroup.controllers")):
            with self.subTest(version), tempfile.TemporaryDirectory() as base:
                (Path(base) / made).parent.mkdir(exist_ok=True)
                (Path(base) / made).write_text("")
                with measure.cpu_share(os.getpid(), 0.3, Path(base)):
                    group = next(Path(base).glob("**/ceiling-*"))
                    texts = {path.name: path.read_text() for path in group.iterdir()}
                self.assertIn(str(os.getpid()), texts["cgroup.procs"])
                if version == 1:
                    self.assertEqual((texts["cpu.cfs_quota_us"], texts["cpu.cfs_period_us"]), ("1500", "5000"))
                else:
                    self.assertEqual(texts["cpu.max"], "1500 5000")

    def test_a_real_group_holds_a_process_to_its_share(self):
        child = subprocess.Popen([sys.executable, "-c", "while True: pass"], start_new_session=True)
        try:
            with measure.cpu_share(child.pid, 0.3):
                meter = measure.TreeMeter(child.pid)
                meter.begin()
                time.sleep(0.6)
                used = meter.sample(full=True).cpu_ns
        except measure.ShareError as error:
            self.skipTest(str(error))
        finally:
            child.kill()
            child.wait()
        self.assertLess(used, 0.6e9 * 0.45)

    def test_where_no_group_can_be_made_a_sentence_says_so(self):
        with self.assertRaisesRegex(measure.ShareError, "lets nobody set a CPU quota"):
            with measure.cpu_share(os.getpid(), 0.3, Path("/proc/nowhere")):
                pass


class Placing(unittest.TestCase):
    def test_halves_with_siblings_kept_together(self):
        eight = [(0, 4), (1, 5), (2, 6), (3, 7)]
        place = measure.plan_placement(cpus=range(8), cores=eight)
        self.assertEqual((place.server, place.client), ((0, 1, 4, 5), (2, 3, 6, 7)))
        self.assertFalse(place.shared)

    def test_no_more_cores_than_workers(self):
        place = measure.plan_placement(workers=1, cpus=range(4), cores=[(0,), (1,), (2,), (3,)])
        self.assertEqual((place.server, place.client), ((0,), (1, 2, 3)))

    def test_one_cpu_is_shared_and_says_so(self):
        place = measure.plan_placement(cpus=[3], cores=[(3,)])
        self.assertTrue(place.shared)
        self.assertEqual(place.server, (3,))

    def test_siblings_of_the_only_core(self):
        place = measure.plan_placement(cpus=[0, 1], cores=[(0, 1)])
        self.assertEqual((place.server, place.client), ((0,), (1,)))
        self.assertIn("SMT siblings", place.reason)

    def test_cpu_lists(self):
        self.assertEqual(placement.parse_cpu_list("0-2,8\n"), [0, 1, 2, 8])
        for bad in ("", "a", "1-", "-1", "1,,2"):
            with self.subTest(bad), self.assertRaises(ValueError):
                placement.parse_cpu_list(bad)


class Figures(unittest.TestCase):
    def test_median(self):
        self.assertEqual(measure.median([3, 1, 2]), 2)
        self.assertEqual(measure.median([4, 1, 2, 3]), 2.5)
        with self.assertRaises(ValueError):
            measure.median([])

    def test_spread_leaves_out_what_is_missing(self):
        self.assertIsNone(measure.spread_of([None, None]))
        self.assertEqual(measure.spread_of([None, 2.0, 4.0]), measure.Spread(3.0, 2.0, 4.0, 2))

    def test_ratios_pair_within_a_round(self):
        self.assertEqual(measure.paired_ratios([2, None, 9], [1, 5, 3]), [2.0, 3.0])

    def test_the_interval_holds_the_median_and_lies_within_the_values(self):
        values = [1.00, 1.02, 0.98, 1.01, 1.40, 0.99, 1.03]
        low, high = measure.bootstrap_interval(values)
        self.assertLessEqual(min(values), low)
        self.assertLessEqual(low, measure.median(values))
        self.assertLessEqual(measure.median(values), high)
        self.assertLess(high, 1.40)
        self.assertIsNone(measure.bootstrap_interval([1.0]))

    def test_rounds_are_interleaved_and_turn_round(self):
        order = list(measure.interleaved("abc", 2))
        self.assertEqual(order, [(0, "a"), (0, "b"), (0, "c"), (1, "c"), (1, "b"), (1, "a")])

    def test_rounds_stop_when_told(self):
        left = iter([True, True, False])
        self.assertEqual(len(list(measure.interleaved("ab", 5, lambda: next(left)))), 2)


class Ports(unittest.TestCase):
    def test_shortage_is_a_sentence_only_where_the_kernel_forbids_reuse(self):
        self.assertEqual(network.PortBudget(28232, True).shortage(100000), "")
        self.assertEqual(network.PortBudget(28232, False).shortage(20000), "")
        self.assertIn("28232 ports", network.PortBudget(28232, False).shortage(100000))


class Templates(unittest.TestCase):
    def test_only_known_names_are_filled_in(self):
        self.assertEqual(server.fill("server { listen {port}; } {other}", {"port": "80"}), "server { listen 80; } {other}")


if __name__ == "__main__":
    unittest.main()
