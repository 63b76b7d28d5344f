#!/usr/bin/python3
"""tools/setup and the Makefile on systems this machine is not: their PATH holds stand-ins for apt, dpkg and the compilers."""
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

SETUP = pathlib.Path(__file__).resolve().parent.parent / "tools" / "setup"
# What of the real system the script may use; everything else it calls is a stand-in or missing.
REAL_TOOLS = ("sh", "sed", "grep", "tr", "awk", "sort", "paste", "env", "cat", "chmod", "rm", "tee")


class System:
    """A directory that is the whole PATH."""

    def __init__(self, packages=None, installed=(), compilers=None, root=True, sudo=False, apt=True):
        self.directory = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.directory.name)
        self.log = self.path / "log"
        self.policy_file = self.path / "policy-rc.d"
        for tool in REAL_TOOLS:
            (self.path / tool).symlink_to(shutil.which(tool))
        self.script("id", f"echo {0 if root else 1000}")
        if apt:
            (self.path / "installed").write_text("".join(f"{name}\n" for name in installed))
            versions = "".join(f"    {name}) echo '  Candidate: {version}' ;;\n" for name, version in (packages or {}).items())
            self.script("apt-cache", f'case $2 in\n{versions}    *) echo "  Candidate: (none)" ;;\nesac')
            self.script("dpkg-query", f'for name; do :; done; grep -qx "$name" {self.path}/installed && echo installed')
            # Installing makes a package installed; options stand before the word `install`.
            self.script("apt-get", f'echo "apt-get $*" >>{self.log}\n'
                                   'seen=; for word; do [ "$seen" ] && case $word in -*) ;; *) echo "$word" >>'
                                   f'{self.path}/installed ;; esac; [ "$word" = install ] && seen=yes; done; :')
        if sudo:
            self.script("sudo", f'echo sudo >>{self.log}; exec "$@"')
        for name, version in (compilers or {}).items():
            self.script(name, f"echo {version}")

    def script(self, name, text):
        file = self.path / name
        file.write_text(f"#!/bin/sh\n{text}\n")
        file.chmod(0o755)

    def setup(self, *tasks):
        environment = {"PATH": str(self.path), "CEILING_POLICY_FILE": str(self.policy_file)}
        return subprocess.run(["/bin/sh", str(SETUP), *tasks], env=environment, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=30, check=False)

    def installs(self):
        """The packages that apt-get was told to install."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [word for line in lines if " install " in line
                for word in line.split(" install ")[1].split() if not word.startswith("-")]


DEBIAN_12 = {"g++": "4:12.2.0-3", "make": "4.3-4.1"}
UBUNTU_20_04 = {"g++": "4:9.3.0-1ubuntu2", "g++-10": "10.5.0-1ubuntu1~20.04", "make": "4.2.1-1.2"}


class Setup(unittest.TestCase):
    def system(self, *arguments, **named):
        system = System(*arguments, **named)
        self.addCleanup(system.directory.cleanup)
        return system

    def test_takes_the_distributions_own_compiler_where_it_is_new_enough(self):
        system = self.system(DEBIAN_12)
        result = system.setup("build")
        self.assertEqual((result.returncode, system.installs()), (0, ["g++", "make"]), result.stderr)

    def test_takes_gcc_10_on_ubuntu_20_04(self):
        system = self.system(UBUNTU_20_04)
        self.assertEqual(system.setup("build").returncode, 0)
        self.assertEqual(system.installs(), ["g++-10", "make"])

    def test_an_old_compiler_that_is_there_does_not_suffice(self):
        system = self.system(UBUNTU_20_04, installed=("g++", "make"), compilers={"g++": "9"})
        self.assertEqual(system.setup("build").returncode, 0)
        self.assertEqual(system.installs(), ["g++-10"])

    def test_a_compiler_from_elsewhere_suffices(self):
        system = self.system(DEBIAN_12, installed=("make",), compilers={"clang++": "15.0.7"})
        self.assertEqual(system.setup("build").returncode, 0)
        self.assertEqual(system.installs(), [])

    def test_asks_for_nothing_where_all_is_there(self):
        system = self.system(DEBIAN_12, installed=("g++", "make"), compilers={"g++": "12"}, root=False)
        result = system.setup("build")
        self.assertEqual((result.returncode, result.stdout), (0, "setup: build: all there\n"))
        self.assertFalse(system.log.exists())

    def test_a_second_run_installs_nothing(self):
        system = self.system({**DEBIAN_12, "python3": "3.11", "apache2-utils": "2.4", "wrk": "4.1", "curl": "7.88", "strace": "6.1",
                         "ca-certificates": "2023"})
        self.assertEqual(system.setup("bench").returncode, 0)
        first = system.installs()
        system.script("g++", "echo 12")
        self.assertEqual(system.setup("bench").returncode, 0)
        self.assertEqual(system.installs(), first)

    def test_goes_on_without_a_package_it_can_do_without(self):
        system = self.system({**DEBIAN_12, "apache2-utils": "2.4", "curl": "7.68", "ca-certificates": "2023"})
        result = system.setup("run")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("has no wrk: going on without", result.stdout)
        self.assertEqual(system.installs(), ["g++", "make", "apache2-utils", "curl", "ca-certificates"])

    def test_names_a_package_it_cannot_do_without(self):
        system = self.system(DEBIAN_12)
        result = system.setup("microbench")
        self.assertEqual((result.returncode, system.installs()), (1, []))
        self.assertRegex(result.stderr, r"\Asetup: this distribution has no libbenchmark-dev .*, which microbench cannot do without\n\Z")

    def test_uses_sudo_when_it_is_not_root(self):
        system = self.system(DEBIAN_12, root=False, sudo=True)
        self.assertEqual(system.setup("build").returncode, 0)
        self.assertEqual(system.installs(), ["g++", "make"])
        self.assertEqual(system.log.read_text().splitlines()[0], "sudo")

    def test_says_so_when_it_is_neither_root_nor_has_sudo(self):
        system = self.system(DEBIAN_12, root=False)
        result = system.setup("build")
        self.assertEqual((result.returncode, system.installs()), (1, []))
        self.assertIn("setup: installing needs root, and there is no sudo here: run as root: tools/setup build", result.stderr)

    def test_says_so_where_there_is_no_apt(self):
        result = self.system(apt=False).setup("build")
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stderr, r"^setup: there is no apt on this system: install by hand .*: g\+\+ \(10 or newer\) make\n$")

    def test_needs_no_apt_when_compiler_and_make_are_there(self):
        system = self.system(apt=False, compilers={"g++": "13", "make": ""})
        self.assertEqual(system.setup("build").returncode, 0)

    def test_an_unknown_task_is_named(self):
        result = self.system(DEBIAN_12).setup("everything")
        self.assertEqual(result.returncode, 2)
        self.assertIn("setup: no task called 'everything'", result.stderr)

    def test_services_are_held_only_while_packages_are_installed(self):
        system = self.system(DEBIAN_12)
        (system.path / "apt-get").unlink()
        system.script("apt-get", f'[ -x {system.policy_file} ] && {system.policy_file}; echo "$? $*" >>{system.log}')
        self.assertEqual(system.setup("build").returncode, 0)
        held = [line for line in system.log.read_text().splitlines() if " install " in line]
        self.assertEqual([line.split()[0] for line in held], ["101"])  # invoke-rc.d(8): 101 forbids the action
        self.assertFalse(system.policy_file.exists())

    def test_a_policy_of_the_systems_own_stays(self):
        system = self.system(DEBIAN_12)
        system.policy_file.write_text("#!/bin/sh\nexit 0\n")
        self.assertEqual(system.setup("build").returncode, 0)
        self.assertEqual(system.policy_file.read_text(), "#!/bin/sh\nexit 0\n")


class Make(unittest.TestCase):
    """Which compiler the Makefile takes."""

    def make(self, compilers, *arguments):
        system = System(apt=False, compilers=compilers)
        self.addCleanup(system.directory.cleanup)
        for tool in ("make", "expr", "echo", "mkdir", "cmp", "nproc"):
            (system.path / tool).symlink_to(shutil.which(tool))
        tree = system.path / "tree"  # a copy: the Makefile keeps notes of its flags beside it
        tree.mkdir()
        shutil.copy(SETUP.parent.parent / "Makefile", tree)
        (tree / "server.cpp").touch()
        return subprocess.run(["make", "-C", str(tree), "-n", *arguments], env={"PATH": str(system.path)}, text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=30, check=False).stdout

    def compiler(self, compilers, *arguments):
        return re.search(r"CXX=(\S*)", self.make(compilers, "help", *arguments)).group(1)

    def test_the_first_that_suffices(self):
        self.assertEqual(self.compiler({"g++": "12", "clang++": "14.0.6"}), "g++")
        self.assertEqual(self.compiler({"g++": "9", "g++-10": "10"}), "g++-10")
        self.assertEqual(self.compiler({"g++": "9", "clang++": "11.0.1", "clang++-12": "12.0.0"}), "clang++-12")

    def test_the_one_that_is_asked_for(self):
        self.assertEqual(self.compiler({"g++": "12"}, "CXX=clang++"), "clang++")

    def test_says_what_is_missing(self):
        for compilers in ({}, {"g++": "9", "clang++": "11.0.1"}):
            self.assertEqual(self.compiler(compilers), "")
            self.assertIn("no C++20 compiler here: g++ 10 or clang++ 12 or newer is needed; tools/setup build installs one",
                          self.make(compilers, "server"))


if __name__ == "__main__":
    unittest.main()
