#!/usr/bin/python3
"""What an administrator installs: `make install`, manual, completion, systemd units, the container image's binary, the Kubernetes file.

The server under test is the one the Makefile builds; there is no systemd and no container engine needed, only their checking tools.
"""
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

from ceiling import ROOT, Server, connect, exchange, free_port, get

BINARY = str(ROOT / "server")  # what is installed, whatever the other tests are run against
PACKAGE, DEPLOY = ROOT / "tools" / "package", ROOT / "tools" / "deploy"
EXPOSURE_MAX = 1.5  # of systemd-analyze security, from 0 to 10; systemd 252 says 1.2, and what is left is the network, which is the purpose


def needs(*programs):
    missing = [program for program in programs if not shutil.which(program)]
    return unittest.skipIf(missing, f"not installed (tools/setup test package): {' '.join(missing)}")


def run(*command, **named):
    return subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=300, check=False, **named)


def checked(*command, **named):
    result = run(*command, **named)
    if result.returncode != 0:
        raise AssertionError(f"{command} ended with status {result.returncode}: {result.stdout}")
    return result.stdout


def make(*arguments):
    # An environment without the outer make's flags: this is a build of its own.
    environment = {key: value for key, value in os.environ.items() if key not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
    return checked("make", "-C", ROOT, "--no-print-directory", *arguments, env=environment)


def options_of_help():
    return set(re.findall(r"^  (--[a-z-]+)", checked(BINARY, "--help"), re.MULTILINE))


class Installed(unittest.TestCase):
    """`make install` into a directory of its own; the server is taken as it stands, so that nothing is rebuilt under other tests."""

    @classmethod
    def setUpClass(cls):
        stack = contextlib.ExitStack()
        cls.addClassCleanup(stack.close)
        cls.destination = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        make("-o", "server", "install", f"DESTDIR={cls.destination}", "PREFIX=/usr")
        cls.units = cls.destination / "usr/lib/systemd/system"

    def test_every_file_is_in_its_place(self):
        found = {str(path.relative_to(self.destination)): oct(path.stat().st_mode & 0o777)
                 for path in self.destination.rglob("*") if path.is_file()}
        self.assertEqual(found, {
            "usr/bin/ceiling-server": "0o755",
            "usr/share/man/man8/ceiling-server.8": "0o644",
            "usr/share/bash-completion/completions/ceiling-server": "0o644",
            "usr/lib/systemd/system/ceiling-server.service": "0o644",
            "usr/lib/systemd/system/ceiling-server.socket": "0o644",
            "usr/lib/systemd/system/ceiling-server@.service": "0o644",
            "usr/lib/systemd/system/ceiling-.service.d/hardening.conf": "0o644",
        })

    def test_what_is_installed_runs(self):
        self.assertRegex(checked(self.destination / "usr/bin/ceiling-server", "--version"), r"\Aceiling ")

    @needs("readelf")
    def test_what_is_installed_is_hardened(self):
        text = checked("readelf", "-W", "-h", "-l", "-d", "--dyn-syms", self.destination / "usr/bin/ceiling-server")
        self.assertRegex(text, r"Type: +DYN")  # its address is chosen anew for each run
        self.assertIn("GNU_RELRO", text)
        self.assertRegex(text, r"\(FLAGS_1\).*\bNOW\b")
        self.assertRegex(text, r"GNU_STACK .* RW +0x")  # no execution from the stack
        self.assertIn("__stack_chk_fail", text)

    @needs("man")
    def test_the_manual_has_no_fault(self):
        page = self.destination / "usr/share/man/man8/ceiling-server.8"
        result = run("man", "--warnings", "-l", page, env={**os.environ, "LC_ALL": "C.UTF-8", "MANPAGER": "cat", "MANWIDTH": "100"})
        self.assertEqual(result.returncode, 0, result.stdout)
        self.assertNotRegex(result.stdout, r"(?m)^(man|troff|groff|<standard input>|/).*: (warning|error)")
        self.assertIn("EXIT STATUS", result.stdout)

    @needs("systemd-analyze", "man")
    def test_systemd_finds_no_fault_in_the_units(self):
        if not pathlib.Path("/usr/bin/man").exists():
            self.skipTest("systemd looks for man in /usr/bin")
        directory = self.runnable_units()
        # systemd also looks whether the manual it names is there.
        environment = {**os.environ, "MANPATH": f"{self.destination}/usr/share/man:"}
        for unit in ("ceiling-server.service", "ceiling-server.socket", "ceiling-server@8081.service"):
            result = run("systemd-analyze", "verify", f"./{unit}", cwd=directory, env=environment)
            self.assertEqual((result.returncode, result.stdout), (0, ""), unit)

    @needs("systemd-analyze")
    def test_systemd_finds_the_service_well_confined(self):
        directory = self.runnable_units()
        for unit in ("ceiling-server.service", "ceiling-server@8081.service"):
            result = run("systemd-analyze", "security", "--offline=true", "--no-pager", f"--threshold={round(EXPOSURE_MAX * 10)}", f"./{unit}",
                         cwd=directory)
            if "unrecognized option" in result.stdout:
                self.skipTest("this systemd-analyze cannot judge a file (systemd 250 can)")
            self.assertEqual(result.returncode, 0, result.stdout)
            level = float(re.search(r"exposure level for \S+: ([0-9.]+)", result.stdout).group(1))
            self.assertLess(level, EXPOSURE_MAX)

    def runnable_units(self):
        """A copy of the units whose program is where they say, for a check that wants it there."""
        directory = pathlib.Path(tempfile.mkdtemp(dir=self.destination))
        shutil.copytree(self.units, directory, dirs_exist_ok=True)
        for unit in directory.glob("*.service"):
            text = unit.read_text()
            self.assertIn("ExecStart=/usr/bin/ceiling-server", text)
            unit.write_text(text.replace("/usr/bin/ceiling-server", f"{self.destination}/usr/bin/ceiling-server"))
        return directory

    @needs("strace", "systemd-analyze")
    def test_the_system_call_filter_allows_what_the_server_calls(self):
        allowed = self.filtered_calls()
        directory = pathlib.Path(tempfile.mkdtemp(dir=self.destination))
        (directory / "site").mkdir()
        (directory / "site/page.txt").write_text("x")
        (directory / "site/large.bin").write_bytes(b"x" * (2 << 20))
        trace = directory / "trace"
        options = ["--root", str(directory / "site"), "--threads", "2", "--pin", "--stats", "0.1", "--metrics", "127.0.0.1:0",
                   "--listen", f"unix:{directory}/socket", "--header", "X: y"]
        # strace passes its own signals on to nobody: the server is found as its child.
        with contextlib.ExitStack() as stack:
            server = Server(*options, binary=BINARY, prefix=("strace", "-f", "-qq", "-o", str(trace)))
            stack.callback(lambda: server.process.poll() is None and server.process.kill())
            children = pathlib.Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
            pid = int(children[0])
            for path in ("/page.txt", "/large.bin", "/none"):
                exchange(server.port, get(path))
            exchange(f"{directory}/socket", get("/page.txt"))
            metrics = int(re.search(r"metrics +http://127\.0\.0\.1:(\d+)", server.errors).group(1))
            exchange(metrics, get("/metrics"), until_end=True)
            os.kill(pid, signal.SIGHUP)
            server.wait_until(lambda: "reloaded" in server.errors, "the reload")
            os.kill(pid, signal.SIGUSR1)
            server.wait_until(lambda: "counters:" in server.errors, "the counters")
            server.wait_until(lambda: server.output.count("\n") > 1, "a line of figures")
            os.kill(pid, signal.SIGTERM)
            self.assertEqual(server.wait(), 0)
        called = set(re.findall(r"^\d+ +([a-z0-9_]+)\(", trace.read_text(), re.MULTILINE))
        self.assertIn("accept4", called)
        self.assertEqual(called - allowed, set())

    def filtered_calls(self):
        """The calls that SystemCallFilter= in hardening.conf leaves, with systemd's groups resolved."""
        groups, name = {}, None
        for line in checked("systemd-analyze", "syscall-filter", "--no-pager").splitlines():
            if line.startswith("@"):
                name = line.strip()
                groups[name] = set()
            elif name and line.strip() and not line.strip().startswith("#"):
                groups[name].add(line.strip())

        def calls(word):
            return set().union(*(calls(member) for member in groups[word])) if word in groups else {word}

        allowed = set()
        for value in re.findall(r"^SystemCallFilter=(.*)$", (PACKAGE / "hardening.conf").read_text(), re.MULTILINE):
            words = set().union(*(calls(word) for word in value.lstrip("~").split()))
            allowed = allowed - words if value.startswith("~") else allowed | words
        return allowed | calls("@default")

    @needs("systemd-socket-activate")
    def test_systemd_hands_its_socket_over(self):
        port = free_port()
        process = subprocess.Popen(["systemd-socket-activate", "-l", f"127.0.0.1:{port}", BINARY, "--body", "activated"], stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            deadline = time.monotonic() + 10
            while True:
                try:
                    answer = exchange(port).finals[0]
                    break
                except ConnectionRefusedError:
                    self.assertLess(time.monotonic(), deadline)
                    time.sleep(0.05)
            self.assertEqual(answer.body, b"activated")
        finally:
            process.terminate()
            output, _ = process.communicate(timeout=20)
        self.assertEqual(process.returncode, 0)
        self.assertIn(f"127.0.0.1:{port} (inherited)", output)


class Completion(unittest.TestCase):
    HELPERS = pathlib.Path("/usr/share/bash-completion/bash_completion")

    def complete(self, *words):
        """What bash would offer for the last of these words."""
        script = f"""
            source {self.HELPERS}
            source {PACKAGE}/ceiling-server.bash
            PATH={self.directory}:$PATH
            COMP_WORDS=(ceiling-server "$@"); COMP_CWORD=$#
            COMP_LINE="${{COMP_WORDS[*]}}"; COMP_POINT=${{#COMP_LINE}}
            _ceiling_server ceiling-server "${{@: -1}}" "${{COMP_WORDS[COMP_CWORD-1]}}"
            printf '%s\\n' "${{COMPREPLY[@]}}"
        """
        return set(checked("bash", "-c", script, "bash", *words).split())

    def setUp(self):
        if not self.HELPERS.exists():
            self.skipTest("bash-completion is not installed (tools/setup package)")
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.directory = pathlib.Path(temporary.name)
        (self.directory / "ceiling-server").symlink_to(BINARY)

    def test_options_are_those_of_the_program(self):
        self.assertEqual(self.complete("--"), options_of_help())
        self.assertEqual(self.complete("--max-b"), {"--max-body"})

    def test_values(self):
        (self.directory / "page.html").touch()
        self.assertEqual(self.complete("--file", f"{self.directory}/pa"), {f"{self.directory}/page.html"})
        self.assertEqual(self.complete("--root", f"{self.directory}/pa"), set())
        self.assertIn("503", self.complete("--status", "5"))
        self.assertEqual(self.complete("--listen", "0"), {"0.0.0.0:8080"})


class Image(unittest.TestCase):
    """The binary of the container image: it needs no other file, and behaves as process 1."""

    @classmethod
    def setUpClass(cls):
        try:
            make("static")
        except AssertionError as error:
            if "cannot find -l" in str(error):
                raise unittest.SkipTest("no static libraries for this compiler here") from None
            raise
        cls.binary = ROOT / "build/static/server"

    def test_it_needs_no_library(self):
        self.assertNotIn(b"/ld-linux", self.binary.read_bytes())
        self.assertRegex(checked(self.binary, "--version"), r"-march=(?!native)\S+")

    @needs("unshare")
    def test_it_is_process_1_in_an_empty_root(self):
        if run("unshare", "--pid", "--fork", "--mount", "true").returncode != 0:
            self.skipTest("namespaces of its own are not allowed here")
        with tempfile.TemporaryDirectory() as root:
            shutil.copy(self.binary, f"{root}/ceiling-server")
            for number, status in ((signal.SIGTERM, 0), (signal.SIGINT, 0)):
                server = Server("--threads", "2", prefix=("unshare", "--pid", "--fork", "--kill-child", "--mount", "--root", root),
                                binary="/ceiling-server")
                try:
                    pid = int(pathlib.Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text())
                    inside = re.search(r"^NSpid:.*\t(\d+)$", pathlib.Path(f"/proc/{pid}/status").read_text(), re.MULTILINE).group(1)
                    self.assertEqual(inside, "1")
                    self.assertEqual(exchange(server.port).finals[0].body, b"hello")
                    with connect(server.port) as client:
                        client.sendall(get())
                        client.recv(1 << 16)
                        os.kill(pid, number)
                        self.assertEqual(server.wait(), status)
                finally:
                    if server.process.poll() is None:
                        server.process.kill()
                        server.wait()

    def test_the_dockerfile_copies_what_the_build_needs(self):
        text = (PACKAGE / "Dockerfile").read_text()
        copied = [name for line in re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE) for name in line.split()]
        needed = {"Makefile", "tools/setup", "server.cpp", *(header for header in ("http_parse.hpp", "reactor.hpp"))}
        self.assertEqual(set(copied), needed)
        with tempfile.TemporaryDirectory() as directory:
            for name in copied:
                target = pathlib.Path(directory) / name
                target.parent.mkdir(exist_ok=True)
                shutil.copy(ROOT / name, target)
            plan = checked("make", "-C", directory, "-n", "static")
        self.assertIn("-o build/static/server server.cpp", plan)
        for option in re.findall(r'"(--[a-z-]+)"', text):
            self.assertIn(option, options_of_help())

    def test_kubernetes_gives_options_the_server_knows_and_time_to_drain(self):
        text = (DEPLOY / "kubernetes.yaml").read_text()
        arguments = re.search(r"^ +args: \[(.*)\]$", text, re.MULTILINE).group(1)
        words = re.findall(r'"([^"]*)"', arguments)
        self.assertEqual({word for word in words if word.startswith("--")} - options_of_help(), set())
        grace, wait = (int(re.search(rf"{name}: (\d+)", text).group(1)) for name in ("terminationGracePeriodSeconds", "seconds"))
        drain = float(words[words.index("--drain-timeout") + 1])
        self.assertGreater(grace, wait + drain)

    def test_kubernetes_file_is_yaml_of_a_deployment_and_its_service(self):
        try:
            import yaml
        except ImportError:
            self.skipTest("python3-yaml is not installed (tools/setup package)")
        deployment, service = yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text())
        self.assertEqual((deployment["kind"], service["kind"]), ("Deployment", "Service"))
        pod = deployment["spec"]["template"]
        self.assertEqual(deployment["spec"]["selector"]["matchLabels"], pod["metadata"]["labels"])
        self.assertEqual(service["spec"]["selector"], pod["metadata"]["labels"])
        container = pod["spec"]["containers"][0]
        self.assertIn(service["spec"]["ports"][0]["targetPort"], [port["name"] for port in container["ports"]])
        self.assertIn("readinessProbe", container)
        self.assertIn("preStop", container["lifecycle"])


if __name__ == "__main__":
    unittest.main()
