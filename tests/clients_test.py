#!/usr/bin/python3
"""The load generators and curl against the server: whatever they count as a failure must be zero, and every request must be answered."""
import contextlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

from ceiling import Server, measured

REQUESTS = 20000  # about a second of `ab` each
PIPELINED = """
init = function(args)
  local requests = {}
  for i = 1, 16 do requests[i] = wrk.format("GET", "/") end
  pipeline = table.concat(requests)
end
request = function() return pipeline end
"""


def needs(program):
    return unittest.skipUnless(shutil.which(program), f"{program} is not installed (tools/setup test)")


def output(*command):
    result = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            text=True, timeout=120, check=False)
    if result.returncode != 0:
        raise AssertionError(f"{command} ended with status {result.returncode}: {result.stdout}")
    return result.stdout


class Clients(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        stack = contextlib.ExitStack()
        cls.addClassCleanup(stack.close)
        cls.server = stack.enter_context(Server())
        cls.directory = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))

    def ab(self, *options, requests=REQUESTS):
        text = output("ab", "-q", "-n", requests, *options, self.server.url)
        self.assertRegex(text, rf"Complete requests: +{requests}\n")
        self.assertRegex(text, r"Failed requests: +0\n")
        self.assertNotIn("Non-2xx", text)
        return text

    def wrk(self, *options, url=None):
        text = output("wrk", "-t1", "-d1s", *options, url or self.server.url)
        self.assertNotIn("Socket errors", text)
        self.assertNotIn("Non-2xx", text)
        self.assertGreater(int(re.search(r"(\d+) requests in", text).group(1)), 0)
        return text

    def curl(self, *options):
        return output("curl", "-sS", "--max-time", 10, *options)

    @needs("ab")
    def test_ab_opens_a_connection_for_each_request(self):
        for clients in (1, 200):
            self.ab("-c", clients)

    @needs("ab")
    def test_ab_keeps_its_connections(self):
        for clients in (1, 100, 200):
            self.assertRegex(self.ab("-k", "-c", clients), rf"Keep-Alive requests: +{REQUESTS}\n")

    @needs("ab")
    def test_ab_with_a_thousand_clients(self):
        self.ab("-c", 1000)
        self.assertRegex(self.ab("-k", "-c", 1000), rf"Keep-Alive requests: +{REQUESTS}\n")

    @needs("ab")
    def test_ab_posts_puts_and_heads(self):
        content = self.directory / "content"
        content.write_bytes(b"x" * 3000)
        for options in (("-p", content), ("-u", content), ("-i",)):
            self.ab("-c", 20, *options, requests=2000)
            self.assertRegex(self.ab("-k", "-c", 20, *options, requests=2000), r"Keep-Alive requests: +2000\n")

    @needs("ab")
    def test_ab_with_an_absolute_target_as_through_a_proxy(self):
        self.ab("-X", f"127.0.0.1:{self.server.port}", "-c", 10, requests=1000)

    @needs("wrk")
    def test_wrk(self):
        self.wrk("-c64")

    @needs("wrk")
    def test_wrk_closing_each_connection(self):
        self.wrk("-c64", "-H", "Connection: close")

    @needs("wrk")
    def test_wrk_with_sixteen_requests_in_a_row(self):
        script = self.directory / "pipelined.lua"
        script.write_text(PIPELINED)
        self.wrk("-c64", "-s", script)

    @needs("hey")
    def test_hey(self):
        for options in ((), ("-disable-keepalive",)):
            text = output("hey", "-n", 2000, "-c", 50, *options, self.server.url)
            self.assertRegex(text, r"\[200\]\s+2000 responses")
            self.assertNotIn("Error distribution", text)

    @needs("curl")
    def test_curl_sees_the_answer_and_reuses_the_connection(self):
        text = self.curl("-v", "--stderr", "-", self.server.url, self.server.url)
        self.assertEqual(text.count("< HTTP/1.1 200 OK"), 2)
        self.assertIn("Re-using existing connection", text)
        self.assertEqual(self.curl("-0", self.server.url), "hello")

    @needs("curl")
    def test_curl_asks_for_the_head_alone(self):
        head = self.curl("-I", self.server.url)
        self.assertRegex(head, r"\AHTTP/1\.1 200 OK\n(.+\n)+\n\Z")
        self.assertIn("Content-Length: 5\n", head)

    @needs("curl")
    def test_curl_posts_64_kilobytes_at_once_chunked_and_after_asking(self):
        content = self.directory / "64k"
        content.write_bytes(b"x" * 65536)
        for options in ((), ("-H", "Transfer-Encoding: chunked"), ("-H", "Expect: 100-continue")):
            begin = time.monotonic()
            self.assertEqual(self.curl("-d", f"@{content}", *options, self.server.url), "hello")
            self.assertLess(time.monotonic() - begin, 0.9, "curl waits a second for a 100 that does not come")

    @needs("curl")
    def test_curl_reads_the_refusal_of_long_content(self):
        content = self.directory / "3m"
        content.write_bytes(b"x" * (3 << 20))
        for options in (("-H", "Expect:"), ("-H", "Expect: 100-continue"), ("-H", "Transfer-Encoding: chunked", "-H", "Expect:")):
            self.assertEqual(self.curl("-o", "/dev/null", "-w", "%{http_code}", "--data-binary", f"@{content}", *options, self.server.url), "413")

    @needs("curl")
    def test_curl_over_a_unix_socket(self):
        path = self.directory / "socket"
        with Server(listen=f"unix:{path}"):
            self.assertEqual(self.curl("--unix-socket", path, "http://any.test/path"), "hello")

    @needs("ab")
    def test_the_clients_on_a_slow_a_big_and_a_failing_upstream(self):
        with Server("--delay", "50") as server:
            text = output("ab", "-q", "-k", "-n", 2000, "-c", 500, server.url)
            self.assertRegex(text, r"Failed requests: +0\n")
            self.assertGreaterEqual(int(re.search(r"^ +50% +(\d+)$", text, re.MULTILINE).group(1)), 50)
        with Server("--body-size", "1m") as server:
            text = output("ab", "-q", "-n", 500, "-c", 20, server.url)
            self.assertRegex(text, r"Failed requests: +0\n")
            self.assertRegex(text, r"HTML transferred: +524288000 bytes\n")
        with Server("--status", "503") as server:
            text = output("ab", "-q", "-k", "-n", 2000, "-c", 20, server.url)
            self.assertRegex(text, r"Non-2xx responses: +2000\n")

    @needs("ab")
    def test_nothing_is_cut_when_it_is_told_to_end(self):
        # `ab` stops at a refused connection, which is right once the server has gone; what it must not see is a cut or failed answer.
        with Server("--threads", "2") as server:
            client = subprocess.Popen(["ab", "-q", "-r", "-k", "-n", "10000000", "-c", "50", server.url], stdin=subprocess.DEVNULL,
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            try:
                time.sleep(0.5)
                begin = time.monotonic()
                self.assertEqual(server.stop(signal.SIGTERM), 0)
                self.assertLess(time.monotonic() - begin, 2)
            finally:
                client.kill()
                client.communicate()
            counters = dict(re.findall(r"^  (\w+) +(\d+)$", server.errors, re.MULTILINE))
            self.assertGreater(int(counters["answered"]), 1000)
            self.assertEqual(counters["drain_cut"], "0")


@needs("strace")
@measured
class SystemCalls(unittest.TestCase):
    """What the server asks of the kernel, counted from outside: nothing but what a request needs."""

    def calls(self, *command):
        """(calls by name, of these failed by name, requests answered) of a server while this client runs."""
        with tempfile.TemporaryDirectory() as directory:
            table = pathlib.Path(directory) / "table"
            server = Server("--threads", "1", prefix=("strace", "-f", "-qq", "-c", "-U", "calls,errors,name", "-o", str(table)))
            try:
                pid = int(pathlib.Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text())
                output(*command, server.url)
                os.kill(pid, signal.SIGTERM)
                self.assertEqual(server.wait(), 0)
            finally:
                if server.process.poll() is None:
                    server.process.kill()
                    server.wait()
            rows = [line.split() for line in table.read_text().splitlines()[2:-2]]
            answered = int(re.search(r"^  answered +(\d+)$", server.errors, re.MULTILINE).group(1))
            return {row[-1]: int(row[0]) for row in rows}, {row[-1]: int(row[1]) for row in rows if len(row) == 3}, answered

    @needs("wrk")
    def test_a_kept_connection_costs_one_receive_and_one_send_for_each_request(self):
        calls, failed, answered = self.calls("wrk", "-t1", "-c64", "-d2s")
        self.assertGreater(answered, 1000)
        around = 3 * 64 + 50  # opening and closing 64 connections, and the start
        self.assertLessEqual(calls["recvfrom"], answered + around)
        self.assertLessEqual(calls["sendto"], answered + around)
        self.assertLessEqual(calls["epoll_ctl"], around)
        self.assertLessEqual(failed.get("recvfrom", 0), around)
        others = set(calls) - {"recvfrom", "sendto", "epoll_wait", "epoll_pwait"}
        self.assertLessEqual(sum(calls[name] for name in others), 10 * around, calls)

    @needs("ab")
    def test_a_short_connection_costs_four_calls(self):
        count = 2000
        calls, _, answered = self.calls("ab", "-q", "-n", count, "-c", "20")
        self.assertEqual(answered, count)
        for name in ("accept4", "recvfrom", "sendto", "close"):
            self.assertLessEqual(calls[name], count * 1.1 + 50, name)
        self.assertLessEqual(calls.get("epoll_ctl", 0), count * 0.05 + 50)


if __name__ == "__main__":
    unittest.main()
