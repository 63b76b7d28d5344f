#!/usr/bin/python3
"""tools/doctor against made-up machines: trees of /proc and /sys files in a temporary folder.

Each test changes one file of a machine that is in good order and looks at what the doctor makes of it.
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

DOCTOR = pathlib.Path(__file__).resolve().parents[2] / "tools/doctor"

# A machine that nothing holds back. Values of a list: a directory's files.
HEALTHY = {
    "proc/sys/kernel/osrelease": "6.1.0",
    "proc/sys/net/core/somaxconn": "4096",
    "proc/sys/net/core/busy_read": "50",
    "proc/sys/net/core/bpf_jit_enable": "1",
    "proc/sys/net/ipv4/tcp_max_syn_backlog": "4096",
    "proc/sys/net/ipv4/tcp_syncookies": "1",
    "proc/sys/net/ipv4/tcp_abort_on_overflow": "0",
    "proc/sys/net/ipv4/tcp_migrate_req": "1",
    "proc/sys/net/ipv4/tcp_mem": "190000 250000 380000",
    "proc/sys/net/ipv4/tcp_congestion_control": "cubic",
    "proc/sys/net/ipv4/tcp_timestamps": "1",
    "proc/sys/net/ipv4/ip_local_port_range": "32768\t60999",
    "proc/sys/net/ipv4/tcp_tw_reuse": "2",
    "proc/sys/net/ipv4/tcp_max_tw_buckets": "131072",
    "proc/sys/fs/file-max": "9223372036854775807",
    "proc/sys/fs/epoll/max_user_watches": "1000000",
    "proc/self/limits": "Limit  Soft Limit  Hard Limit  Units\nMax open files            65536                65536                files",
    "proc/self/status": "Name:\tcat\nCpus_allowed_list:\t0-3\nSeccomp:\t0\nSeccomp_filters:\t0",
    "proc/self/cgroup": "0::/user.slice/session",
    "proc/net/netstat": "TcpExt: SyncookiesSent ListenOverflows ListenDrops\nTcpExt: 0 0 0\nIpExt: InOctets\nIpExt: 1",
    "proc/net/softnet_stat": "000aeb30 00000000 00000001 0 0\n000b0c43 00000000 00000000 0 0",
    "proc/stat": "cpu  1000 0 1000 8000 0 0 0 10 0 0\ncpu0 1 2 3",
    "proc/loadavg": "0.10 0.20 0.30 1/200 4242",
    "proc/1/comm": "systemd",
    "sys/devices/system/cpu/online": "0-3",
    "sys/devices/system/cpu/vulnerabilities/meltdown": "Not affected",
    "sys/devices/system/cpu/smt/active": "0",
    "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "performance",
    "sys/devices/system/cpu/cpu1/cpufreq/scaling_governor": "performance",
    "sys/devices/system/node/online": "0",
    "sys/devices/system/clocksource/clocksource0/current_clocksource": "tsc",
    "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never",
    "sys/class/net/eth0/device/vendor": "0x1af4",
    "sys/class/net/eth0/queues/rx-0/rps_cpus": "0",
    "sys/class/net/eth0/queues/rx-1/rps_cpus": "0",
    "sys/class/net/eth0/queues/rx-2/rps_cpus": "0",
    "sys/class/net/eth0/queues/rx-3/rps_cpus": "0",
    "sys/class/net/lo/operstate": "unknown",
}


class Doctor(unittest.TestCase):
    def run_doctor(self, changes=None, *options):
        """The doctor's process on the healthy machine with some files changed, or removed where the value is None."""
        with tempfile.TemporaryDirectory() as folder:
            for name, text in {**HEALTHY, **(changes or {})}.items():
                if text is not None:
                    path = pathlib.Path(folder, name)
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_text(text + "\n")
            return subprocess.run([sys.executable, DOCTOR, "--root", folder, *options], capture_output=True, text=True,
                                  timeout=60)

    def findings(self, changes=None, *options):
        process = self.run_doctor(changes, "--json", *options)
        self.assertEqual((process.returncode, process.stderr), (0, ""))
        return {f["id"]: f for f in json.loads(process.stdout)["findings"]}

    def assert_verdict(self, identity, verdict, changes, *options):
        finding = self.findings(changes, *options)[identity]
        self.assertEqual(finding["verdict"], verdict, finding)
        return finding

    def test_a_healthy_machine_has_nothing_to_mend(self):
        document = json.loads(self.run_doctor(None, "--json").stdout)
        self.assertEqual(document["counts"]["holds back"], 0, document)
        self.assertEqual(document["counts"]["trade-off"], 0, document)
        self.assertEqual(document["counts"]["unknown"], 0, document)
        self.assertGreater(document["counts"]["good"], 20)
        self.assertEqual((document["kernel"], document["cpus_online"], document["cpus_allowed"]), ("6.1.0", 4, 4))

    def test_each_setting_that_holds_back_is_found(self):
        for identity, path, text in [
            ("net.core.somaxconn", "proc/sys/net/core/somaxconn", "128"),
            ("net.ipv4.tcp_syncookies", "proc/sys/net/ipv4/tcp_syncookies", "2"),
            ("net.ipv4.tcp_abort_on_overflow", "proc/sys/net/ipv4/tcp_abort_on_overflow", "1"),
            ("net.ipv4.tcp_mem", "proc/sys/net/ipv4/tcp_mem", "100 200 300"),
            ("net.ipv4.tcp_timestamps", "proc/sys/net/ipv4/tcp_timestamps", "0"),
            ("net.ipv4.ip_local_port_range", "proc/sys/net/ipv4/ip_local_port_range", "60000 61000"),
            ("net.ipv4.tcp_tw_reuse", "proc/sys/net/ipv4/tcp_tw_reuse", "0"),
            ("net.ipv4.tcp_max_tw_buckets", "proc/sys/net/ipv4/tcp_max_tw_buckets", "1000"),
            ("fs.file-max", "proc/sys/fs/file-max", "8192"),
            ("fs.epoll.max_user_watches", "proc/sys/fs/epoll/max_user_watches", "500"),
            ("RLIMIT_NOFILE", "proc/self/limits", "Max open files            1024                 1048576              files"),
            ("softnet", "proc/net/softnet_stat", "000aeb30 0000000a 00000000 0 0"),
            ("governor", "sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "powersave"),
            ("clocksource", "sys/devices/system/clocksource/clocksource0/current_clocksource", "hpet"),
            ("cpu-quota", "sys/fs/cgroup/user.slice/cpu.max", "150000 100000"),
            ("steal", "proc/stat", "cpu  1000 0 1000 8000 0 0 0 2000 0 0"),
            ("load", "proc/loadavg", "3.50 1.00 0.50 4/200 4242"),
        ]:
            with self.subTest(identity):
                finding = self.assert_verdict(identity, "holds back", {path: text})
                self.assertEqual(len([f for f in self.findings({path: text}).values() if f["verdict"] == "holds back"]), 1)
                self.assertTrue(finding["advice"] and finding["why"] and finding["sources"], finding)
                self.assertIn(finding["gain"]["basis"], ("measured", "quoted", "documented"))

    def test_each_trade_off_is_named_as_one(self):
        for identity, path, text in [
            ("mitigations", "sys/devices/system/cpu/vulnerabilities/meltdown", "Mitigation: PTI"),
            ("seccomp", "proc/self/status", "Cpus_allowed_list:\t0-3\nSeccomp:\t2\nSeccomp_filters:\t1"),
            ("auditd", "proc/77/comm", "auditd"),
            ("irqbalance", "proc/77/comm", "irqbalance"),
            ("net.ipv4.tcp_congestion_control", "proc/sys/net/ipv4/tcp_congestion_control", "bbr"),
            ("net.ipv4.tcp_migrate_req", "proc/sys/net/ipv4/tcp_migrate_req", "0"),
            ("net.core.busy_read", "proc/sys/net/core/busy_read", "0"),
            ("transparent-hugepages", "sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never"),
            ("smt", "sys/devices/system/cpu/smt/active", "1"),
            ("numa", "sys/devices/system/node/online", "0-1"),
            ("listen-overflows", "proc/net/netstat", "TcpExt: ListenOverflows ListenDrops\nTcpExt: 7 9"),
        ]:
            with self.subTest(identity):
                self.assert_verdict(identity, "trade-off", {path: text})

    def test_page_table_isolation_is_told_apart(self):
        finding = self.findings({"sys/devices/system/cpu/vulnerabilities/meltdown": "Mitigation: PTI"})["mitigations"]
        self.assertIn("meltdown (PTI)", finding["value"])
        self.assertIn("isolation", finding["why"])

    def test_connection_tracking_is_judged_by_how_full_it_is(self):
        count, limit = "proc/sys/net/netfilter/nf_conntrack_count", "proc/sys/net/netfilter/nf_conntrack_max"
        self.assert_verdict("conntrack", "good", {})
        self.assert_verdict("conntrack", "good", {count: "0", limit: "65536"})
        self.assert_verdict("conntrack", "trade-off", {count: "100", limit: "65536"})
        self.assert_verdict("conntrack", "holds back", {count: "65000", limit: "65536"})

    def test_receive_queues_are_set_against_cpus(self):
        one = {f"sys/class/net/eth0/queues/rx-{i}/rps_cpus": None for i in (1, 2, 3)}
        self.assert_verdict("receive-queues-eth0", "holds back", one)
        self.assert_verdict("receive-queues-eth0", "good", {**one, "sys/class/net/eth0/queues/rx-0/rps_cpus": "00000000,0000000f"})
        self.assert_verdict("receive-queues-eth0", "good", {**one, "sys/devices/system/cpu/online": "0"})

    def test_a_machine_without_a_card_is_asked_nothing_about_it(self):
        gone = {name: None for name in HEALTHY if name.startswith("sys/class/net/eth0")}
        found = self.findings({**gone, "proc/sys/net/core/busy_read": "0"})
        self.assertFalse([name for name in found if "receive-queues" in name or name in ("irqbalance", "net.core.busy_read")])

    def test_the_limits_follow_the_connections_wanted(self):
        limits = {"proc/self/limits": "Max open files            5000                 5000                 files"}
        self.assert_verdict("RLIMIT_NOFILE", "good", limits, "--connections", "4000")
        finding = self.assert_verdict("RLIMIT_NOFILE", "holds back", limits, "--connections", "6000")
        self.assertIn("hard limit is 5000", finding["advice"])
        unlimited = {"proc/self/limits": "Max open files            unlimited            unlimited            files"}
        self.assert_verdict("RLIMIT_NOFILE", "good", unlimited, "--connections", "900000")

    def test_the_tightest_cgroup_above_the_process_decides(self):
        finding = self.assert_verdict("cpu-quota", "holds back", {
            "sys/fs/cgroup/user.slice/session/cpu.max": "max 100000", "sys/fs/cgroup/user.slice/cpu.max": "50000 100000"})
        self.assertEqual((finding["value"], finding["where"]), ("0.5 CPUs of 4 allowed", "/sys/fs/cgroup/user.slice/cpu.max"))
        self.assert_verdict("cpu-quota", "good", {"sys/fs/cgroup/user.slice/cpu.max": "400000 100000"})

    def test_the_first_version_of_cgroups_is_understood(self):
        old = {"proc/self/cgroup": "4:cpu,cpuacct:/docker/abc\n3:cpuset:/docker/abc",
               "sys/fs/cgroup/cpu/docker/abc/cpu.cfs_quota_us": "200000", "sys/fs/cgroup/cpu/docker/abc/cpu.cfs_period_us": "100000"}
        self.assertEqual(self.assert_verdict("cpu-quota", "holds back", old)["value"], "2 CPUs of 4 allowed")
        self.assert_verdict("cpu-quota", "good", {**old, "sys/fs/cgroup/cpu/docker/abc/cpu.cfs_quota_us": "-1"})

    def test_what_cannot_be_read_is_unknown_and_not_guessed(self):
        for identity, path in [("net.core.somaxconn", "proc/sys/net/core/somaxconn"), ("RLIMIT_NOFILE", "proc/self/limits"),
                               ("net.ipv4.tcp_mem", "proc/sys/net/ipv4/tcp_mem"), ("steal", "proc/stat"), ("load", "proc/loadavg"),
                               ("softnet", "proc/net/softnet_stat"), ("listen-overflows", "proc/net/netstat")]:
            with self.subTest(identity):
                self.assert_verdict(identity, "unknown", {path: None})
                self.assert_verdict(identity, "unknown", {path: ""})

    def test_another_machines_system_calls_are_not_timed(self):
        self.assertNotIn("system-call", self.findings())

    def test_the_text_names_setting_reason_change_gain_and_source(self):
        process = self.run_doctor({"proc/sys/net/core/somaxconn": "128"})
        self.assertEqual(process.returncode, 0)
        for part in ("net.core.somaxconn = 128", "1 setting: holds the server back", "sysctl -w net.core.somaxconn=4096",
                     "documented: listen(2)", "Nothing was changed"):
            self.assertIn(part, process.stdout)

    def test_usage_errors_are_one_sentence_and_status_2(self):
        for options in (["--connections", "0"], ["--connections", "many"], ["--no-such-option"]):
            with self.subTest(options):
                process = self.run_doctor(None, *options)
                self.assertEqual(process.returncode, 2)
                self.assertIn("error:", process.stderr)

    def test_a_root_without_proc_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            process = subprocess.run([sys.executable, DOCTOR, "--root", folder], capture_output=True, text=True, timeout=60)
        self.assertEqual((process.returncode, process.stdout), (1, ""))
        self.assertIn("proc/sys", process.stderr)

    def test_this_machine_can_be_examined(self):
        process = subprocess.run([sys.executable, DOCTOR, "--json"], capture_output=True, text=True, timeout=60)
        self.assertEqual(process.returncode, 0, process.stderr)
        document = json.loads(process.stdout)
        self.assertEqual(document["version"], 1)
        self.assertEqual(sum(document["counts"].values()), len(document["findings"]))


if __name__ == "__main__":
    unittest.main()
