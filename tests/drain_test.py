#!/usr/bin/python3
"""Drain and restart: nothing that was accepted is lost, and the process leaves when it is told to."""
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import threading
import time
import unittest

from ceiling import SANITIZED, Server, connect, get, read_answers

BODY = b"hello" * 200


class Client(threading.Thread):
    """Asks until it is told to go, and keeps what it got: answers, and every way in which one could be lost."""

    def __init__(self, port, kind):
        super().__init__(daemon=True)
        self.port, self.kind = port, kind
        self.answers, self.refused, self.cut, self.closing = 0, 0, [], 0
        self.ending = threading.Event()

    def run(self):
        while not self.ending.is_set():
            try:
                connection = socket.create_connection(("127.0.0.1", self.port), 10)
            except OSError:
                self.refused += 1  # the listener is gone: nothing was promised
                return
            with connection:
                if not self.talk(connection):
                    return

    def talk(self, connection):
        """One connection; False when the server has said or shown that it ends."""
        count = {"keep": 1, "pipelined": 8, "short": 1}[self.kind]
        request = (get("/", "Connection: close") if self.kind == "short" else get()) * count
        answered = False
        while not self.ending.is_set():
            got = b""
            try:
                connection.sendall(request)
                while got.count(BODY) < count:
                    piece = connection.recv(65536)
                    if not piece:
                        break
                    got += piece
            except OSError as fault:
                # A connection that reaches the listener as it closes is reset before it was accepted: nothing was promised.
                if got or answered:
                    self.cut.append(repr(fault))
                return False
            whole = got.count(BODY)
            self.answers += whole
            answered = answered or whole != 0
            heads = got.count(b"HTTP/1.1 200 OK\r\n")
            if heads != whole or (got and not got.endswith(BODY)):
                self.cut.append(f"{heads} heads, {whole} whole answers, ending in {got[-30:]!r}")
            if whole < count:
                # Fewer than were asked for: right only if the last one said that it is the last, or none came at all.
                if whole != 0 and b"Connection: close\r\n" not in got:
                    self.cut.append(f"{whole} of {count} answers and no word of the end")
                return False
            if b"Connection: close\r\n" in got:
                self.closing += 1
                if self.kind == "short":
                    return True
                return False
        return False


class Drain(unittest.TestCase):
    def test_under_load_nothing_is_truncated(self):
        for threads in ("1", "2"):
            with self.subTest(threads=threads):
                server = Server("--threads", threads, "--body", BODY.decode(), "--backlog", "512")
                clients = [Client(server.port, kind) for kind in ("keep", "pipelined", "short") for _ in range(8)]
                for client in clients:
                    client.start()
                time.sleep(1)
                begin = time.monotonic()
                server.send(signal.SIGTERM)
                status = server.wait(20)
                seconds = time.monotonic() - begin
                for client in clients:
                    client.ending.set()
                    client.join(15)
                self.assertEqual(status, 0, server.errors)
                self.assertEqual([fault for client in clients for fault in client.cut], [])
                self.assertGreater(sum(client.answers for client in clients), 100)
                self.assertGreater(sum(client.closing for client in clients), 0)
                self.assertLess(seconds, 4, "well within the drain timeout of 5 seconds")

    def test_the_accept_queue_is_emptied_first(self):
        server = Server("--threads", "2")
        os.kill(server.pid, signal.SIGSTOP)
        clients = [connect(server.port) for _ in range(100)]
        for client in clients:
            client.sendall(get())
        server.send(signal.SIGTERM)
        os.kill(server.pid, signal.SIGCONT)
        for client in clients:
            self.assertEqual([a.status for a in read_answers(client, until_end=True).finals], [200])
            client.close()
        self.assertEqual(server.wait(), 0)

    def test_stop_and_continue_disturb_nothing(self):
        server = Server("--threads", "2", "--body", BODY.decode())
        clients = [Client(server.port, kind) for kind in ("keep", "pipelined")]
        for client in clients:
            client.start()
        for _ in range(5):
            time.sleep(0.1)
            for number in (signal.SIGSTOP, signal.SIGCONT, signal.SIGWINCH):
                os.kill(server.pid, number)
        for client in clients:
            client.ending.set()
            client.join(15)
            self.assertEqual(client.cut, [])
            self.assertGreater(client.answers, 10)
        self.assertEqual(server.stop(), 0)

    def test_resets_in_the_accept_queue(self):
        with Server("--threads", "1") as server:
            os.kill(server.pid, signal.SIGSTOP)
            for _ in range(100):
                client = connect(server.port)
                client.sendall(get())
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                client.close()
            os.kill(server.pid, signal.SIGCONT)
            client = connect(server.port)
            client.sendall(get())
            self.assertEqual(read_answers(client).finals[0].status, 200)
            client.close()

    def test_a_second_signal_ends_it_at_once(self):
        server = Server("--threads", "2", "--delay", "10000")
        client = connect(server.port)
        client.sendall(get())
        time.sleep(0.2)
        server.send(signal.SIGTERM)
        time.sleep(0.2)
        self.assertIsNone(server.process.poll(), "an answer is owed")
        begin = time.monotonic()
        server.send(signal.SIGTERM)
        self.assertEqual(server.wait(5), 128 + signal.SIGTERM)
        self.assertLess(time.monotonic() - begin, 2)
        client.close()

    def test_as_the_first_process_of_a_container(self):
        """PID 1 gets no default action for a signal: without handlers SIGTERM would do nothing (pid_namespaces(7))."""
        unshare = shutil.which("unshare")
        if unshare is None or subprocess.run([unshare, "--pid", "--fork", "true"], capture_output=True, check=False).returncode != 0:
            self.skipTest("no right to make a process namespace here")
        server = Server("--threads", "1", prefix=(unshare, "--pid", "--fork", "--kill-child"))
        children = pathlib.Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
        self.assertEqual(len(children), 1)
        client = connect(server.port)
        client.sendall(get())
        self.assertEqual(read_answers(client).finals[0].status, 200)
        os.kill(int(children[0]), signal.SIGTERM)
        self.assertEqual(server.wait(), 0)
        client.close()

    @unittest.skipIf(shutil.which("ab") is None, "needs ab")
    def test_a_restart_on_an_inherited_socket_loses_nothing(self):
        """As a service manager does it: it holds the listening socket, ends one server and starts the next."""
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        listener.listen(4096)
        port = listener.getsockname()[1]

        def start():
            # The descriptor must be 3 and LISTEN_PID the server's own (sd_listen_fds(3)).
            script = f'exec 3<&{listener.fileno()}; LISTEN_FDS=1 LISTEN_PID=$$ exec "$0" "$@"'
            return Server("--threads", "2", listen=None, prefix=("/bin/sh", "-c", script), pass_fds=(listener.fileno(),))
        server = start()
        load = subprocess.Popen(["ab", "-q", "-n", "20000" if not SANITIZED else "4000", "-c", "16", f"http://127.0.0.1:{port}/"],
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        restarts = 0
        while load.poll() is None and restarts < 20:
            time.sleep(0.1)
            self.assertEqual(server.stop(), 0)
            server = start()
            restarts += 1
        output = load.communicate(timeout=60)[0]
        self.assertEqual(server.stop(), 0)
        listener.close()
        self.assertRegex(output, r"Failed requests:\s+0\n", output)
        self.assertEqual(load.returncode, 0, output)
        self.assertGreater(restarts, 0)


if __name__ == "__main__":
    unittest.main()
