#!/usr/bin/python3
"""A stub upstream from one line: --status, --body-size, --delay."""
import contextlib
import pathlib
import re
import time
import unittest

from ceiling import SANITIZED, Server, connect, exchange, get, read_answers


class Stub(unittest.TestCase):
    def serve(self, *options, **named):
        stack = contextlib.ExitStack()
        self.addCleanup(stack.close)
        return stack.enter_context(Server(*options, **named))

    def test_any_status(self):
        for status in (200, 201, 204, 205, 299, 301, 304, 404, 418, 429, 500, 503, 599):
            server = self.serve("--status", str(status), "--body", "text", "--threads", "1")
            stream = exchange(server.port, get() + get(method="HEAD") + get(), answers=3, heads={1})
            self.assertEqual([answer.status for answer in stream.finals], [status] * 3)
            bare = status in (204, 205, 304)
            self.assertEqual(stream.finals[0].body, b"" if bare else b"text", status)
            self.assertEqual(stream.finals[0].get("content-length"), None if status in (204, 304) else "0" if bare else "4", status)

    def test_any_size(self):
        for size in ("0", "1", "100", "65536", "65537", "1m", "6m"):
            server = self.serve("--body-size", size, "--threads", "1")
            count = int(size.rstrip("m")) << (20 if size.endswith("m") else 0)
            for answer in exchange(server.port, get() * 2, answers=2).finals:
                self.assertEqual((answer.status, len(answer.body), answer.get("content-length")), (200, count, str(count)))
            self.assertEqual(exchange(server.port, get(method="HEAD"), heads={0}).finals[0].get("content-length"), str(count))

    def test_a_body_larger_than_memory(self):
        server = Server("--body-size", "1000g", wait=False)
        self.assertEqual(server.wait(), 1)
        self.assertRegex(server.errors, r"--body-size \d+: larger than the memory that is left")

    def test_answers_are_held_for_the_delay(self):
        server = self.serve("--delay", "300", "--threads", "2")
        clients = [connect(server.port) for _ in range(1000)]
        begin = time.monotonic()
        for client in clients:
            client.sendall(get())
        sent = time.monotonic()
        first = None
        for client in clients:
            self.assertEqual(read_answers(client).finals[0].body, b"hello")
            first = first or time.monotonic()
        last = time.monotonic()
        for client in clients:
            client.close()
        self.assertGreaterEqual(first - begin, 0.295)
        self.assertLess(last - sent, 0.3 + 2.0, "a thousand wait at once, not one after the other")
        if not SANITIZED:  # ThreadSanitizer has a thread of its own
            self.assertEqual(len(list(pathlib.Path(f"/proc/{server.pid}/task").iterdir())), 2)

    def test_each_answer_on_a_connection_is_held(self):
        server = self.serve("--delay", "100", "--threads", "1")
        with connect(server.port) as client:
            for _ in range(3):
                begin = time.monotonic()
                client.sendall(get())
                read_answers(client)
                self.assertGreaterEqual(time.monotonic() - begin, 0.099)

    def test_a_client_that_leaves_or_goes_on_while_its_answer_is_held(self):
        server = self.serve("--delay", "200", "--threads", "1")
        for _ in range(20):
            gone = connect(server.port)
            gone.sendall(get())
            gone.close()
        with connect(server.port) as client:
            client.sendall(get())
            time.sleep(0.1)
            client.sendall(get())  # its edge comes while the first answer is held
            self.assertEqual([a.status for a in read_answers(client, 2).finals], [200, 200])
            client.sendall(get())
            client.shutdown(1)
            self.assertEqual(len(read_answers(client, until_end=True).finals), 1)
        time.sleep(0.3)
        self.assertEqual(server.stop(), 0)
        self.assertEqual(re.search(r"accepted +(\d+)", server.errors).group(1), re.search(r"closed +(\d+)", server.errors).group(1))

    def test_a_drain_waits_for_what_is_held(self):
        server = self.serve("--delay", "700", "--threads", "1")
        with connect(server.port) as client:
            client.sendall(get())
            time.sleep(0.1)
            server.send(15)
            self.assertEqual(read_answers(client).finals[0].body, b"hello")
        self.assertEqual(server.wait(), 0)


if __name__ == "__main__":
    unittest.main()
