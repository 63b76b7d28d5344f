#!/usr/bin/python3
"""The measuring stick, build/floor, over real sockets: it must answer ab and wrk in each mode, and only send what it says.

`make floor` builds it; `make test` does so first.
"""
import os
import pathlib
import re
import signal
import socket
import subprocess
import tempfile
import unittest

FLOOR = pathlib.Path(__file__).resolve().parents[2] / "build/floor"
GET_11 = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
GET_10 = b"GET / HTTP/1.0\r\nHost: x\r\nUser-Agent: ApacheBench/2.3\r\nAccept: */*\r\n\r\n"


class Stick:
    """A running floor: its port, its connections, and the counters it prints at the end."""

    def __init__(self, *options):
        self.process = subprocess.Popen([FLOOR, "--listen", "127.0.0.1:0", *options], stderr=subprocess.PIPE, text=True)
        self.banner = self.process.stderr.readline()
        match = re.search(r"http://127\.0\.0\.1:(\d+)/.*answers of (\d+) bytes", self.banner)
        assert match, self.banner
        self.port, self.answer_bytes = int(match.group(1)), int(match.group(2))

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=10)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        _, rest = self.process.communicate(timeout=10)
        return {name.strip(): int(value) for name, value in re.findall(r"([a-z ]+) (\d+)", rest.split(":", 1)[1])}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stderr.close()


def receive(connection, count):
    data = b""
    while len(data) < count:
        part = connection.recv(65536)
        if not part:
            break
        data += part
    return data


class Floor(unittest.TestCase):
    def test_keep_alive_answers_request_after_request(self):
        with Stick() as stick, stick.connect() as connection:
            for _ in range(3):
                connection.sendall(GET_11)
                answer = receive(connection, stick.answer_bytes)
                self.assertTrue(answer.startswith(b"HTTP/1.1 200 OK\r\n"), answer)
                self.assertTrue(answer.endswith(b"Content-Length: 5\r\n\r\nhello"), answer)
            self.assertEqual(stick.stop()["answers"], 3)

    def test_an_http_1_0_client_can_be_told_that_the_connection_stays(self):
        with Stick("--keep-alive-header") as stick, stick.connect() as connection:
            connection.sendall(GET_10)
            self.assertIn(b"\r\nConnection: keep-alive\r\n", receive(connection, stick.answer_bytes))

    def test_close_answers_once_and_ends_cleanly(self):
        for options in ([], ["--no-defer-accept"]):
            with self.subTest(options), Stick("--mode", "close", *options) as stick:
                for _ in range(3):
                    with stick.connect() as connection:
                        connection.sendall(GET_10)
                        answer = receive(connection, 65536)      # until the end: a reset would raise
                        self.assertEqual(len(answer), stick.answer_bytes)
                        self.assertIn(b"\r\nConnection: close\r\n", answer)
                counters = stick.stop()
                self.assertEqual((counters["connections"], counters["answers"]), (3, 3))

    def test_a_client_that_connects_and_waits_is_still_answered(self):
        with Stick("--mode", "close", "--no-defer-accept") as stick, stick.connect() as late, stick.connect() as soon:
            soon.sendall(GET_10)                                  # proves that the listener has been served meanwhile
            self.assertEqual(len(receive(soon, 65536)), stick.answer_bytes)
            late.sendall(GET_10)
            self.assertEqual(len(receive(late, 65536)), stick.answer_bytes)

    def test_pipeline_answers_each_head_once(self):
        for count in (1, 2, 15, 16, 17, 63, 64, 300):             # around the sizes of the counting blocks
            with self.subTest(count), Stick("--mode", "pipeline") as stick, stick.connect() as connection:
                connection.sendall(GET_11 * count)
                data = receive(connection, stick.answer_bytes * count)
                self.assertEqual(len(data), stick.answer_bytes * count)
                self.assertEqual(data.count(b"HTTP/1.1 200 OK\r\n"), count)
                self.assertEqual(stick.stop()["answers"], count)

    def test_threads_share_one_port(self):
        with Stick("--threads", "3") as stick:
            self.assertIn("3 threads", stick.banner)
            for _ in range(20):
                with stick.connect() as connection:
                    connection.sendall(GET_11)
                    self.assertEqual(len(receive(connection, stick.answer_bytes)), stick.answer_bytes)
            self.assertEqual(stick.stop()["answers"], 20)

    def test_the_answer_can_be_given(self):
        with tempfile.NamedTemporaryFile() as file:
            file.write(b"HTTP/1.1 204 No Content\r\n\r\n")
            file.flush()
            with Stick("--answer", file.name) as stick, stick.connect() as connection:
                connection.sendall(GET_11)
                self.assertEqual(receive(connection, stick.answer_bytes), b"HTTP/1.1 204 No Content\r\n\r\n")

    def test_a_client_that_leaves_does_not_end_it(self):
        with Stick("--mode", "pipeline") as stick:
            for _ in range(20):
                connection = stick.connect()
                connection.sendall(GET_11 * 100)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")   # close resets at once
                connection.close()
            with stick.connect() as connection:
                connection.sendall(GET_11)
                self.assertEqual(len(receive(connection, stick.answer_bytes)), stick.answer_bytes)

    def test_mistakes_are_one_sentence_and_the_right_status(self):
        with Stick() as stick:
            for status, options in [(2, ["--mode", "fast"]), (2, ["--threads", "0"]), (2, ["--listen", "8080"]), (2, ["--listen"]),
                                    (2, ["--listen", "127.0.0.1:99999"]), (2, ["--nonsense"]),
                                    (1, ["--answer", "/nonexistent"]), (1, ["--answer", os.devnull]),
                                    (1, ["--listen", f"127.0.0.1:{stick.port}"])]:
                with self.subTest(options):
                    process = subprocess.run([FLOOR, *options], capture_output=True, text=True, timeout=10)
                    self.assertEqual(process.returncode, status, process.stderr)
                    self.assertEqual(process.stderr.count("\n"), 1, process.stderr)
                    self.assertTrue(process.stderr.startswith("floor: "), process.stderr)


if __name__ == "__main__":
    if not FLOOR.exists():
        raise SystemExit(f"{FLOOR} is not there: run `make floor` first")
    unittest.main()
