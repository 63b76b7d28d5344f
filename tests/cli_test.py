#!/usr/bin/python3
"""The server as its user meets it: every option, every refusal with its sentence and exit status, banner, signals, inherited sockets."""
import contextlib
import os
import pathlib
import re
import resource
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import unittest

from ceiling import BINARY, ROOT, Server, connect, exchange, get, measured, read_answers

CROWDED_USER = 100_000 + os.getpid()  # nobody else's number: RLIMIT_NPROC counts the threads of a user


def run(*options, **named):
    """A run that ends by itself."""
    named.setdefault("stdout", subprocess.PIPE)
    return subprocess.run([BINARY, *options], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=10, check=False, **named)


def documented_options():
    return re.findall(r"^  (--[a-z-]+)", run("--help").stdout, re.MULTILINE)


class Case(unittest.TestCase):
    def server(self, *options, **named):
        """A server that is ended with the test."""
        return self.enter(Server(*options, **named))

    def enter(self, context):
        """unittest.TestCase.enterContext, which Python 3.9 does not have yet."""
        stack = contextlib.ExitStack()
        self.addCleanup(stack.close)
        return stack.enter_context(context)

    def directory(self):
        return pathlib.Path(self.enter(tempfile.TemporaryDirectory()))

    def copy_for_others(self, directory):
        """The server where another user can start it: the original may lie where only root can go."""
        binary = directory / "server"
        shutil.copy(BINARY, binary)
        binary.chmod(0o755)
        return str(binary)

    def first(self, address, request=None, **named):
        return exchange(address, request, **named).finals[0]


class Refusals(Case):
    """One sentence on standard error that names the thing and the cause; 2: the command line is wrong, 1: the system said no."""

    def refused(self, status, pattern, *options, **named):
        result = run(*options, **named)
        self.assertEqual(result.returncode, status, f"{options}: {result.stderr}")
        self.assertRegex(result.stderr, rf"\Aceiling: {pattern}\n\Z", options)
        self.assertEqual(result.stdout, "", options)

    def test_a_wrong_command_line(self):
        number = "expected a whole number from"
        for options, pattern in (
            (["--nope"], r"unknown option --nope \(--help lists them\)"),
            (["stray"], r"unknown option stray \(--help lists them\)"),
            (["--body"], "--body: expected TEXT"),
            (["--listen"], "--listen: expected ADDR:PORT"),
            (["--help=1"], "--help takes no value"),
            (["--pin=yes"], "--pin takes no value"),
            (["--listen", "somewhere:1"], "--listen somewhere:1: 'somewhere' is not a numeric address; .*"),
            (["--listen", "127.0.0.1"], r"--listen 127\.0\.0\.1: expected ADDR:PORT, \[ADDR\]:PORT or unix:PATH, .*"),
            (["--listen", "127.0.0.1:65536"], r"--listen 127\.0\.0\.1:65536: expected .* with a port from 0 to 65535"),
            (["--listen", "127.0.0.1:-1"], r"--listen 127\.0\.0\.1:-1: expected .*"),
            (["--listen", "[::1"], r"--listen \[::1: .*"),
            (["--listen", "unix:"], "--listen unix:: expected a path of 1 to 107 bytes"),
            (["--listen", "unix:/" + "x" * 107], "--listen unix:/x+: expected a path of 1 to 107 bytes"),
            (["--threads", "0"], f"--threads 0: {number} 1 to 1024"),
            (["--threads", "two"], f"--threads two: {number} 1 to 1024"),
            (["--threads", ""], f"--threads : {number} 1 to 1024"),
            (["--status", "199"], f"--status 199: {number} 200 to 599"),
            (["--status", "200x"], f"--status 200x: {number} 200 to 599"),
            (["--delay", "-1"], f"--delay -1: {number} 0 to [0-9]+"),
            (["--backlog", "0"], f"--backlog 0: {number} 1 to [0-9]+"),
            (["--max-head", "1"], f"--max-head 1: {number} 64 to [0-9]+"),
            (["--max-body", "99999999999999999999"], f"--max-body 99999999999999999999: {number} 0 to [0-9]+"),
            (["--max-connections", "0"], f"--max-connections 0: {number} 1 to [0-9]+"),
            (["--max-requests", "x"], f"--max-requests x: {number} 0 to [0-9]+"),
            (["--max-tree", "0"], f"--max-tree 0: {number} 1 to [0-9]+"),
            (["--body-size", "1x"], f"--body-size 1x: {number} 0 to [0-9]+"),
            (["--head-timeout", "soon"], "--head-timeout soon: expected seconds from 0 to 86400, .*"),
            (["--idle-timeout", "1.2345"], r"--idle-timeout 1\.2345: expected seconds from 0 to 86400, with at most three decimals"),
            (["--drain-timeout", "86401"], "--drain-timeout 86401: expected seconds .*"),
            (["--stats", "0"], "--stats: expected at least 0.1 seconds"),
            (["--header", "nocolon"], "--header 'nocolon': expected 'Name: value'"),
            (["--header", "Two Words: x"], "--header 'Two Words: x': expected 'Name: value'"),
            (["--header", "X: a\rb"], "--header X: the value holds a control character"),
            (["--header", "Content-Length: 3"], "--header Content-Length: this field is the server's own"),
            (["--header", "transfer-encoding: chunked"], "--header transfer-encoding: this field is the server's own"),
            (["--type", "a\nb"], "--type: expected a value without control characters"),
            (["--server", ""], "--server: expected a value without control characters"),
            (["--metrics", "unix:/x"], "--metrics unix:/x: expected ADDR:PORT"),
            (["--metrics", "9090", "--file", "/none"], "--metrics 9090: expected ADDR:PORT, .*"),  # before the system is asked anything
            (["--listen", "9090", "--file", "/none"], "--listen 9090: expected ADDR:PORT, .*"),
            (["--body", "x", "--file", "y"], "--body and --file exclude each other"),
            (["--root", "/tmp", "--body-size", "1"], "--root and --body-size exclude each other"),
            (["--root", "/tmp", "--status", "404"], "--status and --root exclude each other"),
        ):
            with self.subTest(options=options):
                self.refused(2, pattern, *options)

    def test_a_system_that_says_no(self):
        directory = self.directory()
        (directory / "secret").write_text("x")
        (directory / "not-a-socket").write_text("x")
        big = directory / "big"
        big.write_bytes(b"x" * 2048)
        for options, pattern in (
            (["--file", f"{directory}/none"], f"{directory}/none: No such file or directory"),
            (["--file", str(directory)], f"{directory}: not a regular file"),
            (["--root", f"{directory}/none"], f"--root {directory}/none: No such file or directory"),
            (["--root", str(big)], f"--root {big}: not a directory"),
            (["--file", str(big), "--max-tree", "1k"], f"{big}: 2048 bytes are more than --max-tree allows .*"),
            (["--listen", "192.0.2.1:80"], r"listen 192\.0\.2\.1:80: Cannot assign requested address"),
            (["--listen", f"unix:{directory}/none/x"], f"listen unix:{directory}/none/x: No such file or directory"),
            (["--listen", f"unix:{directory}/not-a-socket"], f"listen unix:{directory}/not-a-socket: Address already in use"),
            (["--body-size", "1023g"], "--body-size 1098437885952: larger than the memory that is left .*"),
        ):
            with self.subTest(options=options):
                self.refused(1, pattern, *options)

    @unittest.skipUnless(os.geteuid() == 0, "needs root, to become somebody else")
    def test_a_file_and_a_port_that_are_not_ours(self):
        directory = self.directory()
        directory.chmod(0o755)
        secret = directory / "secret"
        secret.write_text("x")
        secret.chmod(0o600)
        binary = self.copy_for_others(directory)

        def as_nobody(*options):
            return subprocess.run([binary, *options], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  text=True, timeout=20, check=False, user=65534, group=65534, extra_groups=[])

        result = as_nobody("--file", str(secret))
        self.assertEqual((result.returncode, result.stderr), (1, f"ceiling: {secret}: Permission denied\n"))
        if int(pathlib.Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text()) > 81:
            result = as_nobody("--listen", "127.0.0.1:81")
            self.assertEqual((result.returncode, result.stderr), (1, "ceiling: listen 127.0.0.1:81: Permission denied\n"))

    @unittest.skipUnless(os.geteuid() == 0, "needs root, to become a user with no threads of its own")
    @measured  # a sanitizer starts threads too
    def test_threads_that_cannot_be_had(self):
        directory = self.directory()
        binary = self.copy_for_others(directory)
        directory.chmod(0o777)

        def confined(threads):
            def confine():
                os.setgroups([])
                os.setgid(CROWDED_USER)
                os.setuid(CROWDED_USER)
                resource.setrlimit(resource.RLIMIT_NPROC, (threads, threads))

            return {"preexec": confine, "binary": binary}

        for refused, threads, *options in (("reactor 3 of 5", 2, "--threads", "5"),
                                           ("--stats and --metrics", 2, "--threads", "2", "--stats", "1"),
                                           ("--stats and --metrics", 1, "--threads", "1", "--metrics", "127.0.0.1:0")):
            with self.subTest(refused=refused):
                path = directory / "socket"
                server = Server("--listen", f"unix:{path}", *options, wait=False, **confined(threads))
                self.assertEqual(server.wait(), 1)
                self.assertRegex(server.errors, rf"\Aceiling: no thread for {refused}: Resource temporarily unavailable \(.*\)\n\Z")
                self.assertFalse(path.exists())

        server = self.server("--threads", "1", **confined(1))
        for times, number in enumerate((signal.SIGUSR1, signal.SIGHUP, signal.SIGUSR1), start=1):
            server.send(number)
            server.wait_until(lambda times=times: server.errors.count("ceiling: no thread for a report or a reload: ") == times, "a refusal")
            self.assertEqual(self.first(server.port).body, b"hello")

    def test_a_port_that_is_taken(self):
        with socket.socket() as holder:
            holder.bind(("127.0.0.1", 0))
            holder.listen()
            address = f"127.0.0.1:{holder.getsockname()[1]}"
            self.refused(1, f"listen {address}: Address already in use", "--listen", address)

    def test_a_second_instance(self):
        for options in (("--threads", "2"), ("--threads", "1"), ("--reuse-port",)):
            with self.subTest(options=options):
                first = self.server(*options)
                address = f"127.0.0.1:{first.port}"
                self.refused(1, f"listen {address}: Address already in use", "--listen", address)
                self.assertEqual(self.first(first.port).body, b"hello")

    def test_a_unix_socket_that_is_served(self):
        path = f"{self.directory()}/socket"
        self.server(listen=f"unix:{path}")
        self.refused(1, f"listen unix:{path}: Address already in use", "--listen", f"unix:{path}")
        self.assertEqual(self.first(path).body, b"hello")

    def test_more_connections_than_descriptors(self):
        self.refused(1, "--max-connections 100: RLIMIT_NOFILE allows 64 descriptors, .*", "--listen", "127.0.0.1:0", "--threads", "1",
                     "--max-connections", "100", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)))


class Information(Case):
    def test_help_goes_to_standard_output(self):
        result = run("--help")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertTrue(result.stdout.startswith("usage: "))
        for line in result.stdout.splitlines():
            self.assertLessEqual(len(line), 132, line)

    def test_help_that_cannot_be_written_is_no_success(self):
        with open("/dev/full", "w", encoding="utf-8") as full:
            result = run("--help", stdout=full)
        self.assertEqual((result.returncode, result.stderr), (1, "ceiling: standard output: No space left on device\n"))

    def test_help_lists_the_promised_options(self):
        promised = set("""--listen --threads --body --file --root --header --type --max-head --max-body --max-connections --max-requests
            --head-timeout --idle-timeout --drain-timeout --backlog --pin --reuse-port --no-defer-accept --no-date --server --stats --help
            --version --status --body-size --delay --metrics --max-tree""".split())
        self.assertEqual(promised - set(documented_options()), set())

    def test_manual_and_readme_know_every_option_and_no_other(self):
        options = set(documented_options())
        manual = (ROOT / "tools/package/ceiling-server.8").read_text().replace("\\-", "-")
        self.assertEqual(set(re.findall(r"^\.(?:BI?) (--[a-z-]+)", manual, re.MULTILINE)), options)
        readme = (ROOT / "README.md").read_text()
        section = re.search(r"^## Options\n(.*?)^## ", readme, re.MULTILINE | re.DOTALL).group(1)
        self.assertEqual(set(re.findall(r"`(--[a-z-]+)[ `]", section)), options)

    def test_version_says_what_it_was_built_with(self):
        result = run("--version")
        self.assertEqual(result.returncode, 0)
        self.assertRegex(result.stdout, r"\Aceiling [0-9.]+\ncompiler: (gcc|clang) .*, -march=\S+\nparser kernel: .+\n\Z")

    def test_the_banner_names_address_threads_body_and_two_lines_to_try(self):
        server = self.server("--threads", "1")
        address = f"127.0.0.1:{server.port}"
        banner = server.errors
        self.assertIn(f"listening  {address}\n", banner)
        self.assertRegex(banner, r"threads +1 ")
        self.assertRegex(banner, r"body +5 bytes")
        self.assertEqual(re.findall(r"ab .*", banner), [f"ab -n100000 -c200 http://{address}/", f"ab -k -n100000 -c200 http://{address}/"])
        self.assertEqual(server.output, "")

    def test_threads_are_those_of_the_cpus_it_may_use(self):
        cpus = sorted(os.sched_getaffinity(0))
        server = self.server(preexec=lambda: os.sched_setaffinity(0, cpus[:1]))
        self.assertRegex(server.errors, r"threads +1 ")
        self.assertRegex(self.server("--threads", "3").errors, r"threads +3 ")

    def test_pinned_threads_stay_on_their_cpus(self):
        cpus = sorted(os.sched_getaffinity(0))
        server = self.server("--threads", str(len(cpus)), "--pin")

        def pinned():  # a sanitizer may have threads of its own besides
            masks = [os.sched_getaffinity(int(task)) for task in os.listdir(f"/proc/{server.pid}/task")]
            return all({cpu} in masks for cpu in cpus)

        server.wait_until(pinned, f"one thread on each of {cpus}")


class Listening(Case):
    def test_several_addresses_at_once(self):
        path = f"{self.directory()}/socket"
        server = self.server("--listen", "127.0.0.1:0", "--listen", f"unix:{path}")
        ports = re.findall(r"listening  127\.0\.0\.1:(\d+)", server.errors)
        self.assertEqual(len(set(ports)), 2)
        for address in (int(ports[0]), int(ports[1]), path):
            self.assertEqual(self.first(address).body, b"hello")

    def test_an_equals_sign_joins_option_and_value(self):
        server = self.server("--listen=127.0.0.1:0", "--body=a=b", listen=None)
        self.assertEqual(self.first(server.port).body, b"a=b")

    def test_ipv6(self):
        try:
            socket.create_server(("::1", 0), family=socket.AF_INET6).close()
        except OSError as error:
            self.skipTest(f"no IPv6 on this machine: {error}")
        server = self.server(listen="[::1]:0")
        self.assertIn(f"http://[::1]:{server.port}/", server.errors)
        self.assertEqual(self.first(("::1", server.port)).body, b"hello")

    def test_ipv4_and_ipv6_on_one_port(self):
        try:
            socket.create_server(("::1", 0), family=socket.AF_INET6).close()
        except OSError as error:
            self.skipTest(f"no IPv6 on this machine: {error}")
        server = self.server(listen="0.0.0.0:0")
        other = self.server(listen=f"[::]:{server.port}")
        self.assertEqual(self.first(("127.0.0.1", server.port)).body, b"hello")
        self.assertEqual(self.first(("::1", other.port)).body, b"hello")

    def test_a_unix_socket_is_removed_at_the_end(self):
        path = f"{self.directory()}/socket"
        with Server(listen=f"unix:{path}"):
            self.assertEqual(self.first(path).body, b"hello")
        self.assertFalse(os.path.exists(path))

    def test_a_left_over_unix_socket_is_replaced(self):
        path = f"{self.directory()}/socket"
        server = Server(listen=f"unix:{path}")
        server.process.kill()
        server.wait()
        self.assertTrue(os.path.exists(path))
        self.server(listen=f"unix:{path}")
        self.assertEqual(self.first(path).body, b"hello")

    def test_a_server_that_drains_leaves_its_successors_socket_alone(self):
        path = f"{self.directory()}/socket"
        old = Server("--threads", "1", "--body-size", "64m", listen=f"unix:{path}")
        with connect(path) as client:
            client.sendall(get())
            client.recv(1)  # and no more: the old server has to wait
            old.send(signal.SIGTERM)
            old.wait_until(lambda: self.refuses(path), "the end of its listening")
            self.server("--body", "new", listen=f"unix:{path}")
        self.assertEqual(old.wait(), 0)
        self.assertEqual(self.first(path).body, b"new")

    @staticmethod
    def refuses(path):
        try:
            connect(path).close()
        except (ConnectionRefusedError, FileNotFoundError):
            return True
        return False

    def test_reuse_port_shares_the_port(self):
        one = self.server("--reuse-port", "--body", "one", "--threads", "1")
        self.server("--reuse-port", "--body", "two", "--threads", "1", listen=f"127.0.0.1:{one.port}")
        bodies = {bytes(self.first(one.port).body) for _ in range(64)}  # each with odds of 2^-63 of missing one of the two
        self.assertEqual(bodies, {b"one", b"two"})

    def test_no_defer_accept_takes_silent_connections(self):
        for options, silent in ((("--no-defer-accept",), 1), ((), 0)):
            with self.subTest(options=options):
                server = self.server("--threads", "1", "--metrics", "127.0.0.1:0", *options)
                metrics = int(re.search(r"metrics +http://127\.0\.0\.1:(\d+)", server.errors).group(1))
                with connect(server.port):
                    if silent:
                        server.wait_until(lambda: self.metric(metrics, "ceiling_accepted_total") == 1, "the accept")
                    self.first(server.port)
                    self.assertEqual(self.metric(metrics, "ceiling_accepted_total"), 1 + silent)

    def metric(self, port, name):
        text = self.first(port, get("/metrics")).body.decode()
        return int(re.search(rf"^{name} (\d+)$", text, re.MULTILINE).group(1))


class Answers(Case):
    def test_a_text(self):
        answer = self.first(self.server("--body", "guten Tag").port)
        self.assertEqual((answer.status, answer.body), (200, b"guten Tag"))
        self.assertEqual(answer.get("content-type"), "text/plain")

    def test_an_empty_text(self):
        answer = self.first(self.server("--body", "").port)
        self.assertEqual((answer.status, answer.get("content-length"), answer.body), (200, "0", b""))

    def test_a_file_and_its_type(self):
        file = self.directory() / "page.html"
        content = bytes(range(256)) * 1000
        file.write_bytes(content)
        answer = self.first(self.server("--file", str(file)).port)
        self.assertEqual(answer.body, content)
        self.assertTrue(answer.get("content-type").startswith("text/html"), answer.get("content-type"))

    def test_filling_of_any_size(self):
        for size, count in (("0", 0), ("1", 1), ("10k", 10240), ("3m", 3 << 20)):
            with self.subTest(size=size):
                answer = self.first(self.server("--body-size", size).port)
                self.assertEqual((len(answer.body), answer.get("content-length")), (count, str(count)))

    def test_a_status(self):
        for status in (200, 201, 301, 404, 418, 429, 503, 599):
            with self.subTest(status=status):
                answer = self.first(self.server("--status", str(status), "--body", "so").port)
                self.assertEqual((answer.status, answer.body, answer.faults), (status, b"so", []))

    def test_a_status_without_content(self):
        for status in (204, 304):
            with self.subTest(status=status):
                stream = exchange(self.server("--status", str(status)).port, get() + get(), answers=2)
                self.assertEqual([answer.status for answer in stream.finals], [status, status])
                self.assertEqual((stream.rest, stream.garbage), (b"", False))
                if status == 204:
                    self.assertIsNone(stream.finals[0].get("content-length"))

    def test_fields_of_the_users_own(self):
        answer = self.first(self.server("--header", "X-One: 1", "--header", "X-Two:  two words ", "--type", "application/json",
                                        "--server", "Me/1").port)
        self.assertEqual([answer.get(name) for name in ("x-one", "x-two", "content-type", "server")],
                         ["1", "two words", "application/json", "Me/1"])

    def test_a_type_given_as_a_field_is_the_only_one(self):
        answer = self.first(self.server("--header", "Content-Type: application/json").port)
        self.assertEqual(answer.get("content-type"), "application/json")

    def test_no_date(self):
        self.assertIsNotNone(self.first(self.server().port).get("date"))
        self.assertIsNone(self.first(self.server("--no-date").port).get("date"))

    def test_a_delay(self):
        server = self.server("--delay", "300", "--threads", "1")
        begin = time.monotonic()
        clients = [connect(server.port) for _ in range(50)]
        for client in clients:
            client.sendall(get())
        for client in clients:
            self.assertEqual(read_answers(client).finals[0].body, b"hello")
            client.close()
        seconds = time.monotonic() - begin
        self.assertGreaterEqual(seconds, 0.299)
        self.assertLess(seconds, 5)  # one after another they would take 15

    def test_a_tree(self):
        directory = self.directory()
        (directory / "sub").mkdir()
        (directory / "index.html").write_text("<h1>top</h1>")
        (directory / "sub" / "a b.txt").write_text("blank")
        server = self.server("--root", str(directory))
        self.assertEqual(self.first(server.port).body, b"<h1>top</h1>")
        self.assertEqual(self.first(server.port, get("/sub/a%20b.txt")).body, b"blank")
        self.assertEqual(self.first(server.port, get("/none")).status, 404)
        self.assertEqual(self.first(server.port, get("/", method="DELETE")).status, 405)


class Limits(Case):
    def test_a_long_head(self):
        server = self.server("--max-head", "256")
        self.assertEqual(self.first(server.port, get("/", "X: " + "x" * 100)).status, 200)
        self.assertEqual(self.first(server.port, get("/", "X: " + "x" * 300)).status, 431)
        self.assertEqual(self.first(server.port, get("/" + "x" * 300)).status, 414)

    def test_long_content(self):
        server = self.server("--max-body", "10")
        self.assertEqual(self.first(server.port, get("/", "Content-Length: 10", method="POST", content="x" * 10)).status, 200)
        stream = exchange(server.port, get("/", "Content-Length: 11", method="POST", content="x" * 11), until_end=True)
        self.assertEqual([answer.status for answer in stream.finals], [413])
        self.assertTrue(stream.finals[0].says_close())

    def test_many_requests_on_one_connection(self):
        server = self.server("--max-requests", "3")
        stream = exchange(server.port, get() * 5, until_end=True)
        self.assertEqual([answer.says_close() for answer in stream.finals], [False, False, True])

    def test_many_connections(self):
        server = self.server("--max-connections", "2", "--threads", "1")
        one, two = connect(server.port), connect(server.port)
        with one, two, connect(server.port) as three:
            for client in (one, two):
                client.sendall(get())
                self.assertEqual(read_answers(client).finals[0].status, 200)
            three.sendall(get())
            three.settimeout(0.3)
            with self.assertRaises(socket.timeout):  # it waits in the accept queue
                three.recv(1)
            one.close()
            three.settimeout(10)
            self.assertEqual(read_answers(three).finals[0].status, 200)

    def test_a_slow_head(self):
        server = self.server("--head-timeout", "0.3")
        with connect(server.port) as client:
            begin = time.monotonic()
            client.sendall(b"GET / HTTP/1.1\r\nHost:")
            stream = read_answers(client, until_end=True)
            self.assertEqual([answer.status for answer in stream.finals], [408])
            self.assertTrue(stream.finals[0].says_close())
            self.assertTrue(0.25 < time.monotonic() - begin < 5)

    def test_an_idle_connection(self):
        server = self.server("--idle-timeout", "0.3")
        with connect(server.port) as client:
            client.sendall(get())
            self.assertEqual(read_answers(client).finals[0].status, 200)
            begin = time.monotonic()
            self.assertEqual(client.recv(1), b"")
            self.assertTrue(0.25 < time.monotonic() - begin < 5)

    def test_few_descriptors_neither_spin_nor_deafen(self):
        server = self.server("--threads", "1", "--no-defer-accept",
                             preexec=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)))
        clients = [connect(server.port) for _ in range(200)]

        def ticks():
            fields = pathlib.Path(f"/proc/{server.pid}/stat").read_text().rsplit(")", 1)[1].split()
            return int(fields[11]) + int(fields[12])

        time.sleep(0.3)
        before = ticks()
        time.sleep(1)
        self.assertLess((ticks() - before) / os.sysconf("SC_CLK_TCK"), 0.2, "CPU seconds in a second without work")
        for client in clients[:-20]:
            client.close()
        self.assertEqual(self.first(server.port).body, b"hello")
        for client in clients[-20:]:
            client.close()


class Signals(Case):
    def test_term_and_int_end_it_in_order(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            with self.subTest(signal=number):
                server = Server()
                self.first(server.port)
                begin = time.monotonic()
                self.assertEqual(server.stop(number), 0)
                self.assertLess(time.monotonic() - begin, 2)
                self.assertRegex(server.errors, r"(?m)^  answered +1$")

    def test_an_answer_in_flight_is_finished(self):
        server = Server("--body-size", "8m", "--threads", "1")
        with connect(server.port) as client:
            client.sendall(get())
            client.recv(1)
            server.send(signal.SIGTERM)
            data = b"H"
            while more := client.recv(1 << 18):
                data += more
        self.assertEqual(len(data.split(b"\r\n\r\n", 1)[1]), 8 << 20)
        self.assertEqual(server.wait(), 0)

    def test_a_request_during_the_drain_is_answered_with_close(self):
        server = Server("--threads", "1", "--drain-timeout", "5")
        with connect(server.port) as client:
            client.sendall(get())
            read_answers(client)
            client.sendall(b"GET / HTTP/1.1\r\n")
            time.sleep(0.05)
            server.send(signal.SIGTERM)
            time.sleep(0.05)
            client.sendall(b"Host: example.test\r\n\r\n")
            stream = read_answers(client, until_end=True)
            self.assertEqual([(answer.status, answer.says_close()) for answer in stream.finals], [(200, True)])
        self.assertEqual(server.wait(), 0)

    def test_the_drain_has_an_end(self):
        server = Server("--body-size", "64m", "--threads", "1", "--drain-timeout", "0.3")
        with connect(server.port) as client:
            client.sendall(get())  # and never reads
            time.sleep(0.1)
            begin = time.monotonic()
            self.assertEqual(server.stop(), 0)
            self.assertLess(time.monotonic() - begin, 3)

    def test_a_second_signal_ends_it_at_once(self):
        server = Server("--body-size", "64m", "--threads", "1", "--drain-timeout", "60")
        with connect(server.port) as client:
            client.sendall(get())
            time.sleep(0.1)
            server.send(signal.SIGTERM)
            time.sleep(0.2)
            self.assertIsNone(server.process.poll())
            self.assertEqual(server.stop(signal.SIGTERM), 128 + signal.SIGTERM)

    def test_hup_reads_a_file_again(self):
        file = self.directory() / "page.txt"
        file.write_text("old")
        server = self.server("--file", str(file), "--threads", "2")
        self.assertEqual(self.first(server.port).body, b"old")
        file.write_text("new and longer")
        server.send(signal.SIGHUP)
        server.wait_until(lambda: "reloaded" in server.errors, "the reload")
        self.assertEqual({bytes(self.first(server.port).body) for _ in range(20)}, {b"new and longer"})

    def test_hup_keeps_the_old_content_when_the_new_cannot_be_read(self):
        file = self.directory() / "page.txt"
        file.write_text("old")
        server = self.server("--file", str(file))
        file.unlink()
        server.send(signal.SIGHUP)
        server.wait_until(lambda: "not reloaded" in server.errors, "the refusal")
        self.assertIn(f"ceiling: not reloaded, the old content stays: {file}: No such file or directory\n", server.errors)
        self.assertEqual(self.first(server.port).body, b"old")

    def test_usr1_prints_the_counters(self):
        server = self.server()
        self.first(server.port)
        server.send(signal.SIGUSR1)
        server.wait_until(lambda: re.search(r"(?m)^  answered +1$", server.errors), "the counters")
        self.assertEqual(self.first(server.port).body, b"hello")

    def test_it_ends_though_its_parent_ignored_or_blocked_the_signals(self):
        def deaf():
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, signal.SIG_IGN)
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)

        server = Server(preexec=deaf)
        self.assertEqual(server.stop(), 0)

    def test_signals_interrupt_the_main_thread_only(self):
        server = self.server("--threads", "3", "--stats", "100")
        caught = sum(1 << (number - 1) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1))
        others = 0
        for task in os.listdir(f"/proc/{server.pid}/task"):
            status = pathlib.Path(f"/proc/{server.pid}/task/{task}/status").read_text()
            blocked = int(re.search(r"SigBlk:\s+(\w+)", status).group(1), 16)
            main = int(task) == server.pid
            self.assertEqual(blocked & caught, 0 if main else caught, status)
            others += not main
        self.assertGreaterEqual(others, 3)

    def test_a_signal_right_behind_the_banner_ends_it(self):
        for _ in range(20):
            self.assertEqual(Server("--threads", "4", "--stats", "100").stop(), 0)

    def test_clients_that_leave_do_not_end_it(self):
        server = self.server("--body-size", "1m")
        for _ in range(50):
            with connect(server.port) as client:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # a reset instead of an end
                client.sendall(get() * 4)
                client.recv(100)
        self.assertEqual(self.first(server.port).status, 200)


class Figures(Case):
    def test_a_line_of_figures_at_each_interval(self):
        server = self.server("--stats", "0.1", "--threads", "1")
        for _ in range(20):
            self.first(server.port)
        server.wait_until(lambda: server.output.count("\n") >= 4, "three lines of figures")
        heading, *lines = server.output.splitlines()
        self.assertIn("req/s", heading)
        self.assertEqual({len(line) for line in lines}, {len(heading)}, "columns are aligned")
        self.assertEqual({len(line.split()) for line in lines}, {len(heading.split())})
        self.assertGreater(sum(float(line.split()[0]) for line in lines), 0)

    def test_metrics_are_in_prometheus_text_format(self):
        server = self.server("--metrics", "127.0.0.1:0")
        port = int(re.search(r"metrics +http://127\.0\.0\.1:(\d+)/metrics", server.errors).group(1))
        for _ in range(3):
            self.first(server.port)
        answer = self.first(port, get("/metrics"))
        self.assertTrue(answer.get("content-type").startswith("text/plain; version=0.0.4"))
        text = answer.body.decode()
        self.assertIn("\nceiling_answered_total 3\n", text)
        self.assertIn('\nceiling_responses_total{code="200"} 3\n', text)
        described = set(re.findall(r"^# TYPE (\S+) (?:counter|gauge)$", text, re.MULTILINE))
        for line in text.splitlines():
            if not line.startswith("#"):
                self.assertRegex(line, r'^[a-z_]+(\{[a-z]+="[^"]*"\})? [0-9.]+$')
                self.assertIn(re.match("[a-z_]+", line).group(), described)
        self.assertEqual(self.first(port, get("/other")).status, 404)


class ServiceManager(Case):
    """systemd's protocol: sockets from descriptor 3 on, and one datagram for each change of state."""

    @staticmethod
    def start(listener, *options, **named):
        """A server that finds `listener` at descriptor 3. Its own process id is known only behind the fork: a shell sets LISTEN_PID and
        becomes the server."""
        return Server(*options, listen=None, prefix=("/bin/sh", "-c", 'LISTEN_PID=$$ exec "$0" "$@"'), pass_fds=(3,),
                      preexec=lambda: os.dup2(listener.fileno(), 3), environment={**os.environ, "LISTEN_FDS": "1"}, **named)

    def test_it_serves_an_inherited_socket(self):
        for threads in ("1", "4"):
            with self.subTest(threads=threads), socket.create_server(("127.0.0.1", 0)) as listener:
                port = listener.getsockname()[1]
                with self.start(listener, "--threads", threads) as server:
                    self.assertIn(f"127.0.0.1:{port} (inherited)", server.errors)
                    for _ in range(50):
                        self.assertEqual(self.first(port).body, b"hello")

    def test_the_inherited_socket_outlives_the_server(self):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            for body in ("first", "second"):
                with connect(listener.getsockname()[1]) as waiting:  # queued while no server is there
                    waiting.sendall(get())
                    with self.start(listener, "--body", body):
                        self.assertEqual(read_answers(waiting).finals[0].body, body.encode())

    def test_sockets_meant_for_another_process_are_left_alone(self):
        server = self.server(environment={**os.environ, "LISTEN_FDS": "1", "LISTEN_PID": "1"})
        self.assertNotIn("inherited", server.errors)

    def test_what_is_inherited_must_listen(self):
        with socket.socket() as idle:
            server = self.start(idle, wait=False)
            self.assertEqual(server.wait(), 1)
            self.assertEqual(server.errors, "ceiling: LISTEN_FDS: descriptor 3 is not a listening socket\n")

    def test_it_tells_when_it_is_ready_reloads_and_stops(self):
        directory = self.directory()
        file = directory / "page.txt"
        file.write_text("x")
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.bind(f"{directory}/notify")
            manager.settimeout(10)
            server = Server("--file", str(file), environment={**os.environ, "NOTIFY_SOCKET": f"{directory}/notify"})
            self.assertEqual(manager.recv(100), b"READY=1")
            self.assertEqual(self.first(server.port).status, 200)
            server.send(signal.SIGHUP)
            reloading = manager.recv(100)
            self.assertTrue(reloading.startswith(b"RELOADING=1"), reloading)
            self.assertEqual(manager.recv(100), b"READY=1")
            self.assertEqual(server.stop(), 0)
            self.assertEqual(manager.recv(100), b"STOPPING=1")

    def test_an_abstract_address_of_the_manager(self):
        name = f"ceiling-test-{os.getpid()}"
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.bind("\0" + name)
            manager.settimeout(10)
            self.server(environment={**os.environ, "NOTIFY_SOCKET": "@" + name})
            self.assertEqual(manager.recv(100), b"READY=1")


if __name__ == "__main__":
    unittest.main()
