#!/usr/bin/python3
"""ab's and wrk's output, whole, odd, cut short or missing: never an exception, and a sentence for what is wrong."""

import tempfile
import unittest
from pathlib import Path

import support  # noqa: F401
import measure

AB = """This is ApacheBench, Version 2.3 <$Revision$>

Server Software:        nginx/1.22.1
Document Length:        5 bytes
Concurrency Level:      20
Time taken for tests:   0.250 seconds
Complete requests:      2000
Failed requests:        0
Keep-Alive requests:    2000
Total transferred:      304000 bytes
Requests per second:    8000.25 [#/sec] (mean)
Time per request:       2.500 [ms] (mean)
Time per request:       0.125 [ms] (mean, across all concurrent requests)

Percentage of the requests served within a certain time (ms)
  50%      2
  99%      7
 100%      9 (longest request)
"""

WRK = """Running 2s test @ http://127.0.0.1:8080/
  1 threads and 64 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     1.25ms  310.00us  12.50ms   90.00%
    Req/Sec    10.19k     1.02k   12.01k    70.00%
  Latency Distribution
     50%  950.00us
     75%    1.30ms
     90%    1.80ms
     99%    1.02s
  20380 requests in 2.00s, 2.95MB read
Requests/sec:  10.19k
Transfer/sec:      1.47MB
"""


class AbOutput(unittest.TestCase):
    def read(self, output, errors="", status=0, requests=2000, keep_alive=True):
        return measure.parse_ab(output, errors, status, requests, keep_alive)

    def test_a_whole_report(self):
        result = self.read(AB)
        self.assertEqual(result.problems, [])
        self.assertEqual(result.warnings, [])
        self.assertEqual(result.requests, 2000)
        self.assertEqual(result.requests_per_second, 8000.25)
        self.assertEqual(result.seconds, 0.25)
        self.assertEqual(result.server_header, "nginx/1.22.1")
        self.assertEqual(result.latency_ms, {"mean": 2.5, "50": 2.0, "99": 7.0, "max": 9.0})

    def test_the_mean_is_per_request_and_not_across_connections(self):
        self.assertEqual(self.read(AB).latency_ms["mean"], 2.5)

    def test_failed_requests_are_put_into_words(self):
        text = AB.replace("Failed requests:        0",
                          "Failed requests:        9\n   (Connect: 0, Receive: 2, Length: 7, Exceptions: 0)")
        problem = "\n".join(self.read(text).problems)
        self.assertIn("9 failed requests", problem)
        self.assertIn("2 connection broke while receiving", problem)
        self.assertIn("7 body length differs", problem)
        self.assertNotIn("0 could not connect", problem)

    def test_non_2xx_answers_void(self):
        result = self.read(AB + "Non-2xx responses:      2000\n")
        self.assertIn("2000 answers were not 2xx", result.problems)

    def test_a_few_missing_keep_alives_warn_and_many_void(self):
        few = self.read(AB.replace("Keep-Alive requests:    2000", "Keep-Alive requests:    1990"))
        self.assertEqual(few.problems, [])
        self.assertIn("only 1990 of 2000", few.warnings[0])
        many = self.read(AB.replace("Keep-Alive requests:    2000", "Keep-Alive requests:    0"))
        self.assertIn("only 0 of 2000", many.problems[0])

    def test_fewer_requests_than_asked_void(self):
        self.assertIn("completed 2000 of 5000", self.read(AB, requests=5000).problems[0])

    def test_nan_and_inf_are_no_numbers(self):
        for odd in ("nan", "-nan", "inf", "", "---"):
            with self.subTest(odd):
                result = self.read(AB.replace("8000.25", odd))
                self.assertIsNone(result.requests_per_second)
                self.assertIn("ab gives no requests per second", result.problems)

    def test_a_broken_connection_is_quoted(self):
        result = self.read("", "apr_socket_recv: Connection reset by peer (104)\nTotal of 77 requests completed\n", 104)
        self.assertIn("apr_socket_recv: Connection reset by peer (104)", result.problems[0])

    def test_no_output_at_all(self):
        self.assertEqual(self.read("").problems, ["ab printed no report"])

    def test_killed(self):
        self.assertEqual(self.read("Benchmarking", status=-9).problems, ["ab was killed by signal 9"])

    def test_every_prefix_of_a_report_is_survived(self):
        for end in range(len(AB)):
            self.read(AB[:end])

    def test_finer_percentiles_come_from_the_file(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "percentiles.csv"
            path.write_text("Percentage served,Time in ms\n50,0.173\n99,1.250\n100,nan\n")
            result = measure.Ab(2000, 20, True, str(path)).read(AB, "", 0)
        self.assertEqual((result.latency_ms["50"], result.latency_ms["99"], result.latency_ms["max"]), (0.173, 1.25, 9.0))


class WrkOutput(unittest.TestCase):
    def test_units(self):
        result = measure.parse_wrk(WRK, "", 0)
        self.assertEqual(result.problems, [])
        self.assertEqual(result.requests, 20380)
        self.assertEqual(result.requests_per_second, 10190.0)
        self.assertAlmostEqual(result.latency_ms["mean"], 1.25)
        self.assertAlmostEqual(result.latency_ms["max"], 12.5)
        self.assertAlmostEqual(result.latency_ms["50"], 0.95)
        self.assertAlmostEqual(result.latency_ms["99"], 1020)
        self.assertEqual(result.bytes_read, int(2.95 * 2**20))

    def test_the_spread_column_is_no_percentile(self):
        self.assertEqual(set(measure.parse_wrk(WRK, "", 0).latency_ms), {"mean", "max", "50", "75", "90", "99"})

    def test_nan_everywhere(self):
        text = WRK.replace("10.19k     1.02k", "-nan      -nan").replace("1.25ms  310.00us", "-nan   -nan")
        text = text.replace("Requests/sec:  10.19k", "Requests/sec:    nan")
        result = measure.parse_wrk(text, "", 0)
        self.assertIsNone(result.requests_per_second)
        self.assertIn("wrk gives no requests per second", result.problems)

    def test_socket_errors_are_put_into_words(self):
        result = measure.parse_wrk(WRK + "  Socket errors: connect 3, read 17, write 0, timeout 2\n", "", 0)
        self.assertIn("3 connections could not be opened", result.problems[0])
        self.assertIn("17 reads failed", result.problems[0])
        self.assertIn("2 answers took longer than 2 s", result.problems[0])
        self.assertNotIn("writes", result.problems[0])

    def test_non_2xx_void(self):
        self.assertIn("5 answers were not 2xx", measure.parse_wrk(WRK + "  Non-2xx or 3xx responses: 5\n", "", 0).problems[0])

    def test_no_answers(self):
        text = WRK.replace("20380 requests in 2.00s, 2.95MB read", "0 requests in 2.00s, 0.00B read")
        self.assertIn("wrk completed no request", measure.parse_wrk(text, "", 0).problems)

    def test_nothing_refused_and_killed(self):
        self.assertEqual(measure.parse_wrk("", "", 0).problems, ["wrk printed no report"])
        self.assertEqual(measure.parse_wrk("", "", -15).problems, ["wrk was killed by signal 15"])
        refused = measure.parse_wrk("unable to connect to 127.0.0.1:1 Connection refused\n", "", 1)
        self.assertIn("Connection refused", refused.problems[0])

    def test_every_prefix_of_a_report_is_survived(self):
        for end in range(len(WRK)):
            measure.parse_wrk(WRK[:end], "", 0)


class Commands(unittest.TestCase):
    def test_ab_as_in_the_articles(self):
        self.assertEqual(measure.Ab(100000, 200, False).command("U"), ["ab", "-n100000", "-c200", "U"])
        self.assertEqual(measure.Ab(1000000, 100, True).command("U"), ["ab", "-n1000000", "-c100", "-k", "U"])

    def test_wrk_takes_whole_seconds_and_no_more_threads_than_connections(self):
        command = measure.Wrk(0.3, 1, threads=4).command("U")
        self.assertIn("-d1s", command)
        self.assertIn("-t1", command)

    def test_scaling_never_goes_below_one_request_a_connection(self):
        self.assertEqual(measure.Ab(1000, 200, False).scaled(0.01).requests, 200)


if __name__ == "__main__":
    unittest.main()
