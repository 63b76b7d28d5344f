#!/usr/bin/python3
"""The server behind real balancers, with the files of tools/deploy: HAProxy and nginx. A rolling restart loses no request."""
import contextlib
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from ceiling import ROOT, Server, exchange, free_port

DEPLOY = ROOT / "tools" / "deploy"
BACKENDS = ("one", "two", "three")
# Debian has both where only root's PATH leads.
os.environ["PATH"] += ":/usr/sbin:/sbin"


def needs(*programs):
    missing = [program for program in programs if not shutil.which(program)]
    return unittest.skipIf(missing, f"not installed (tools/setup test): {' '.join(missing)}")


@contextlib.contextmanager
def running(command, answers, **named):
    """A program that is ended with the block; begins when `answers()` is true."""
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **named)
    try:
        deadline = time.monotonic() + 20
        while not answers():
            if process.poll() is not None or time.monotonic() > deadline:
                process.kill()
                raise AssertionError(f"{command[0]} does not serve: {process.communicate()[0]}")
            time.sleep(0.02)
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
        try:
            process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


def serves(port):
    try:
        return exchange(port).finals[0].status == 200
    except (OSError, IndexError):
        return False


class Load:
    """`ab -k` and `wrk` at the same time, in the background, as long as the block lasts."""

    def __init__(self, url):
        self.url = url
        self.stop = threading.Event()
        self.outputs = {"ab": [], "wrk": []}
        self.commands = {"ab": ["ab", "-q", "-k", "-n", "3000", "-c", "20", url], "wrk": ["wrk", "-t1", "-c20", "-d1s", url]}

    def repeat(self, name):
        while not self.stop.is_set():
            result = subprocess.run(self.commands[name], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                    timeout=120, check=False)
            self.outputs[name].append(result.stdout if result.returncode == 0 else f"status {result.returncode}: {result.stdout}")

    def __enter__(self):
        self.threads = [threading.Thread(target=self.repeat, args=(name,)) for name in self.commands]
        for thread in self.threads:
            thread.start()
        time.sleep(0.3)
        return self

    def __exit__(self, *_):
        self.stop.set()
        for thread in self.threads:
            thread.join()

    def faults(self):
        """Everything the two count as a request that was not answered as it should be."""
        found = [text for text in self.outputs["ab"] if not re.search(r"Complete requests: +3000\nFailed requests: +0\n", text)
                 or "Non-2xx" in text]
        return found + [text for text in self.outputs["wrk"] if "requests in" not in text or "Socket errors" in text or "Non-2xx" in text]

    def requests(self):
        return 3000 * len(self.outputs["ab"]) + sum(int(re.search(r"(\d+) requests in", text).group(1)) for text in self.outputs["wrk"])


@needs("haproxy", "ab", "wrk")
class BehindHaproxy(unittest.TestCase):
    def setUp(self):
        self.stack = contextlib.ExitStack()
        self.addCleanup(self.stack.close)
        self.directory = pathlib.Path(self.stack.enter_context(tempfile.TemporaryDirectory()))
        self.servers = {}
        self.stack.callback(self.stop_all)

    def stop_all(self):
        for name, server in self.servers.items():
            self.assertEqual(server.stop(), 0, name)

    def start(self, name, listen="127.0.0.1:0"):
        self.servers[name] = Server("--threads", "1", "--body", "hello", listen=listen)
        return self.servers[name]

    def haproxy(self, addresses):
        """HAProxy with the project's configuration, in front of these addresses; gives its port."""
        port = free_port()
        environment = {**os.environ, "BIND": f"127.0.0.1:{port}", "STATS_SOCKET": f"{self.directory}/admin",
                       **{f"SERVER_{name.upper()}": address for name, address in addresses.items()}}
        self.stack.enter_context(running(["haproxy", "-db", "-f", str(DEPLOY / "haproxy.cfg")], lambda: serves(port), env=environment))
        return port

    def restart(self, name, port):
        """What `systemctl restart` does: end it, wait for that, start it anew."""
        self.assertEqual(self.servers[name].stop(signal.SIGTERM), 0)
        self.start(name, f"127.0.0.1:{port}")

    def served(self, name):
        server = self.servers[name]
        server.send(signal.SIGUSR1)
        server.wait_until(lambda: re.search(r"^  status_200 +(\d+)$", server.errors, re.MULTILINE), "its counters")
        return int(re.findall(r"^  status_200 +(\d+)$", server.errors, re.MULTILINE)[-1])

    def test_the_instances_share_the_work(self):
        port = self.haproxy({name: f"127.0.0.1:{self.start(name).port}" for name in BACKENDS})
        with Load(f"http://127.0.0.1:{port}/") as load:
            pass
        self.assertEqual(load.faults(), [])
        for name in BACKENDS:
            self.assertGreater(self.served(name), load.requests() / 10, name)

    def test_rolling_restart_under_load_loses_no_request(self):
        ports = {name: self.start(name).port for name in BACKENDS}
        first = {name: server.pid for name, server in self.servers.items()}
        port = self.haproxy({name: f"127.0.0.1:{ports[name]}" for name in BACKENDS})
        # The script's restart command asks this test, through two pipes, to do what systemd would do.
        order, done = self.directory / "order", self.directory / "done"
        os.mkfifo(order)
        os.mkfifo(done)

        def restart_on_order():
            for _ in BACKENDS:
                name, address = order.read_text().split()
                try:
                    self.assertEqual(address, f"127.0.0.1:{ports[name]}")
                    self.restart(name, ports[name])
                    answer = "ok"
                except AssertionError as error:
                    answer = str(error)
                done.write_text(answer)

        operator = threading.Thread(target=restart_on_order, daemon=True)
        operator.start()
        command = f"sh -c 'echo {{name}} {{address}}:{{port}} >{order}; grep -qx ok {done}'"
        with Load(f"http://127.0.0.1:{port}/") as load:
            result = subprocess.run([sys.executable, str(DEPLOY / "rolling-restart"), "--stats-socket", f"{self.directory}/admin", "--restart", command],
                                    stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120, check=False)
            time.sleep(0.3)
        self.assertEqual(result.returncode, 0, result.stdout)
        self.assertEqual(re.findall(r"^ceiling/(\w+) .*: restarted in", result.stdout, re.MULTILINE), list(BACKENDS))
        self.assertEqual(load.faults(), [])
        self.assertGreater(load.requests(), 10000)
        for name in BACKENDS:
            self.assertNotEqual(self.servers[name].pid, first[name])
            self.assertGreater(self.served(name), 0, f"{name} is back in service")

    def test_restarts_without_a_word_to_haproxy_lose_no_request_either(self):
        # HAProxy finds a closed connection or a refused one; both are free of an answer, and it asks another instance.
        ports = {name: self.start(name).port for name in BACKENDS}
        port = self.haproxy({name: f"127.0.0.1:{ports[name]}" for name in BACKENDS})
        with Load(f"http://127.0.0.1:{port}/") as load:
            for name in BACKENDS:
                self.restart(name, ports[name])
                time.sleep(1)  # two good checks, half a second apart at most
        self.assertEqual(load.faults(), [])
        self.assertGreater(load.requests(), 10000)

    def test_an_instance_that_fails_its_check_gets_nothing(self):
        ports = {name: self.start(name).port for name in BACKENDS}
        self.servers["two"].stop()
        self.servers["two"] = Server("--status", "503", listen=f"127.0.0.1:{ports['two']}")
        port = self.haproxy({name: f"127.0.0.1:{ports[name]}" for name in BACKENDS})
        deadline = time.monotonic() + 10
        while "two" not in self.states("DOWN") and time.monotonic() < deadline:
            time.sleep(0.05)
        self.assertEqual(self.states("DOWN"), ["two"])
        self.assertEqual({exchange(port).finals[0].status for _ in range(30)}, {200})

    def states(self, wanted):
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(f"{self.directory}/admin")
            client.sendall(b"show stat\n")
            text = b"".join(iter(lambda: client.recv(65536), b"")).decode()
        rows = [line.split(",") for line in text.splitlines() if line.startswith("ceiling,")]
        return [row[1] for row in rows if row[17].startswith(wanted) and row[1] in BACKENDS]

    def test_rolling_restart_stops_at_the_first_failure(self):
        self.haproxy({name: f"127.0.0.1:{self.start(name).port}" for name in BACKENDS})
        result = subprocess.run([sys.executable, str(DEPLOY / "rolling-restart"), "--stats-socket", f"{self.directory}/admin", "--restart", "false"],
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
        self.assertEqual((result.returncode, result.stdout, result.stderr),
                         (1, "", "rolling-restart: ceiling/one: `false` ended with status 1\n"))
        self.assertEqual(self.states("DRAIN"), ["one"])
        self.assertEqual(self.states("UP"), ["two", "three"])

    def test_rolling_restart_says_what_is_wrong_with_its_socket_or_backend(self):
        self.haproxy({name: f"127.0.0.1:{self.start(name).port}" for name in BACKENDS})
        for options, message in ((["--stats-socket", "/nonexistent"], "/nonexistent: No such file or directory: is this HAProxy's stats socket?"),
                                 (["--stats-socket", f"{self.directory}/admin", "--backend", "other"], "backend other: Can't find backend.")):
            result = subprocess.run([sys.executable, str(DEPLOY / "rolling-restart"), *options, "--restart", "true"], stdin=subprocess.DEVNULL,
                                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
            self.assertEqual((result.returncode, result.stderr), (1, f"rolling-restart: {message}\n"))

    def test_unix_sockets(self):
        paths = {name: f"{self.directory}/{name}" for name in BACKENDS}
        for name, path in paths.items():
            self.start(name, f"unix:{path}")
        port = self.haproxy({name: f"unix@{path}" for name, path in paths.items()})
        with Load(f"http://127.0.0.1:{port}/") as load:
            pass
        self.assertEqual(load.faults(), [])
        self.assertGreater(load.requests(), 1000)


@needs("nginx", "ab", "wrk")
class BehindNginx(unittest.TestCase):
    def test_unix_socket(self):
        with tempfile.TemporaryDirectory() as directory, Server(listen=f"unix:{directory}/ceiling.sock"):
            port = free_port()
            text = (DEPLOY / "nginx.conf").read_text()
            for old, new in (("/tmp/ceiling", f"{directory}/ceiling"), ("127.0.0.1:8090", f"127.0.0.1:{port}")):
                self.assertIn(old, text)
                text = text.replace(old, new)
            config = pathlib.Path(directory) / "nginx.conf"
            config.write_text(text)
            os.chmod(directory, 0o755)  # started as root, nginx's workers are somebody else
            os.chmod(f"{directory}/ceiling.sock", 0o777)
            with running(["nginx", "-c", str(config)], lambda: serves(port)):
                with Load(f"http://127.0.0.1:{port}/") as load:
                    pass
                answer = exchange(port).finals[0]
            self.assertEqual(answer.body, b"hello")
            self.assertTrue(answer.get("server").startswith("nginx"))
            self.assertEqual(load.faults(), [])
            self.assertGreater(load.requests(), 1000)


if __name__ == "__main__":
    unittest.main()
