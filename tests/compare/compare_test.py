#!/usr/bin/python3
"""tools/compare as a program, with servers that lie, and its findings on results made up for the purpose."""

import contextlib
import csv
import html.parser
import io
import json
import os
import re
import signal
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

from support import ROOT, STUB
import measure
from measure import client

COMPARE = ROOT / "tools" / "compare"
try:
    from ceiling_compare import analysis, charts, cli, peers, report, workloads
    LIBRARIES = True
except ImportError:             # rich, matplotlib or numpy: tools/setup compare
    LIBRARIES = False
NEEDS = unittest.skipUnless(LIBRARIES and not client.missing_client("ab") and not client.missing_client("wrk"),
                            "needs rich, matplotlib, numpy, ab and wrk")


def own(mode: str, name: str = "") -> list[str]:
    """The option that enters a lying server."""
    return ["--server", f"{name or mode}=/usr/bin/python3 {STUB} {mode} {{port}}"]


def left_behind(marker: str) -> list[str]:
    """Command lines of processes other than ours that hold a word."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            try:
                line = Path(f"/proc/{entry}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if marker in line:
                found.append(line)
    return found


class Program(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.output = Path(self.folder.name) / "results"

    def tearDown(self):
        self.folder.cleanup()

    def compare(self, *options, status=0):
        done = subprocess.run([COMPARE, *options], capture_output=True, text=True, timeout=100, stdin=subprocess.DEVNULL)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def measured(self, *options, status=0):
        """Runs it on stubs only and returns what it printed, and the results."""
        said = self.compare("--rounds", "1", "--no-scaling", "--output", str(self.output), *options, status=status)
        return said, json.loads((self.output / "results.json").read_text())


@NEEDS
class Lies(Program):
    def test_every_lie_voids_its_row_with_a_reason_and_the_honest_row_stands(self):
        names = ["404", "wrong-length", "no-length", "rude-close", "half-way", "never-up", "turns-404"]
        stubs = [word for name in names for word in own(name)] + own("honest")
        said, results = self.measured("--only", ",".join([*names, "honest"]), *stubs, "--workloads", "article-a-keepalive",
                                      "--scale", "0.05")
        reasons = {run["contestant"]: "; ".join(run["voids"]) for run in results["runs"]}
        self.assertEqual(reasons["honest"], "")
        for name, words in (("404", "it answers 404 instead of 200"), ("wrong-length", "Content-Length: 6 and sends 5 bytes"),
                            ("no-length", "no Content-Length"), ("rude-close", "does not keep an HTTP/1.0 connection open"),
                            ("half-way", "ended with exit status 0"), ("never-up", "this port is cursed"),
                            ("turns-404", "not 2xx")):
            with self.subTest(name):
                self.assertIn(words, reasons[name])
                self.assertIn(words, said)
        page = (self.output / "report.html").read_text()
        table = analysis.tables(results)[0]
        self.assertEqual([row.name for row in table.ranked], ["honest"])
        self.assertIn("it answers 404 instead of 200", page)
        self.assertEqual(left_behind(str(STUB)), [])

    def test_no_valid_run_is_an_error(self):
        said, _ = self.measured("--only", "404", *own("404"), "--workloads", "article-a-keepalive", "--scale", "0.05", status=1)
        self.assertIn("no run was valid", said)


@NEEDS
class TwiceTheSame(Program):
    def test_a_control_is_entered_and_gives_a_noise_floor(self):
        said, results = self.measured("--rounds", "2", "--only", "honest", *own("honest"), "--workloads", "article-a-keepalive",
                                      "--scale", "0.2")
        self.assertEqual([one["name"] for one in results["contestants"]], ["honest", "honest-again"])
        table = analysis.tables(results)[0]
        self.assertIsNotNone(table.noise)
        self.assertLess(table.noise, 1.0)           # the same program: a factor of two would be a fault on however busy a machine
        self.assertEqual([row.name for row in table.ranked], ["honest"])
        self.assertIn("against itself differed by up to", said)
        with open(self.output / "results.csv", newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual(len(rows), 4)
        self.assertEqual({row["valid"] for row in rows}, {"1"})

    def test_old_results_render_again(self):
        self.measured("--only", "honest", *own("honest"), "--workloads", "article-a-keepalive", "--scale", "0.05")
        page = self.output / "report.html"
        before = page.read_text()
        page.unlink()
        self.compare("--report", str(self.output / "results.json"))
        self.assertEqual(page.read_text(), before)


@NEEDS
class Interrupted(Program):
    def interrupt(self, number, twice=False):
        marker = f"marker{os.getpid()}x{time.monotonic_ns()}"
        command = [COMPARE, "--rounds", "50", "--no-scaling", "--output", str(self.output), "--only", marker,
                   "--workloads", "article-a-keepalive", "--scale", "0.1",
                   "--server", f"{marker}=/usr/bin/python3 {STUB} honest {{port}} {marker}"]
        running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        results = self.output / "results.json"
        deadline = time.monotonic() + 30
        while not results.exists() and time.monotonic() < deadline:      # written after the first round
            time.sleep(0.05)
        time.sleep(0.3)                                                 # somewhere in the second
        running.send_signal(number)
        if twice:
            running.send_signal(number)
        said, _ = running.communicate(timeout=30)
        self.assertEqual(running.returncode, cli.EXIT_INTERRUPTED, said)
        self.assertEqual(left_behind(marker), [])
        self.assertEqual(list(Path(tempfile.gettempdir()).glob(f"ceiling-{marker}*")), [])
        kept = json.loads(results.read_text())
        self.assertFalse(kept["complete"])
        self.assertGreaterEqual(len(kept["runs"]), 2)
        self.assertIn("was interrupted", (self.output / "report.html").read_text())

    def test_ctrl_c_keeps_what_was_measured_and_leaves_no_process(self):
        self.interrupt(signal.SIGINT)

    def test_so_does_sigterm_even_twice(self):
        self.interrupt(signal.SIGTERM, twice=True)


@NEEDS
class CommandLine(Program):
    def test_help_names_every_workload(self):
        said = self.compare("--help")
        for each in workloads.WORKLOADS:
            self.assertIn(each.name, said)

    def test_list_names_every_folder(self):
        said = self.compare("--list")
        for folder in (ROOT / "tools" / "peers").glob("*/peer.ini"):
            self.assertIn(folder.parent.name, said)

    def test_wrong_usage_is_one_sentence_and_exit_2(self):
        for options, words in ((["--workloads", "nonsense"], "no workload called nonsense"), (["--only", "nobody"], "no contestant called nobody"),
                               (["--server", "x=./x"], "{port}"), (["--server", "no name"], "name=command"),
                               (["--rounds", "0"], "from 1"), (["--server-cpus", "a"], "not a list of CPUs"),
                               (["--server-cpus", "4095"], "may not use CPU 4095"), (["--scale", "0"], "above 0"),
                               (["--server", "nginx=x {port}"], "a contestant's already")):
            with self.subTest(options):
                said = io.StringIO()
                with contextlib.redirect_stderr(said):
                    self.assertEqual(cli.main(options), 2)
                self.assertIn(words, said.getvalue())
                self.assertEqual(len(said.getvalue().strip().splitlines()), 1)

    def test_a_file_that_is_no_result_is_refused(self):
        path = Path(self.folder.name) / "x.json"
        for text, words in (("", "is not JSON"), ("[]", "is not a results file"), ('{"format": "ceiling-compare"}', "format version")):
            path.write_text(text)
            self.assertIn(words, self.refused(path))
        self.assertIn("No such file", self.refused(Path(str(path) + "x")))

    def refused(self, path):
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            self.assertEqual(cli.main(["--report", str(path)]), 1)
        return said.getvalue()


# ---- findings on made-up results ------------------------------------------------------------------------------------

def made_up(costs: dict, workload: str = "article-a", control: str = "") -> dict:
    """Results of which only what analysis looks at is filled in. costs: name -> [(cost, requests/s, verdict)] a round;
    a None in place of a tuple is a void run."""
    contestants = [{"name": name, "title": name.title(), "version": "", "missing": "", "own": False, "fairness": {}, "answers": {},
                    "control_of": control if name == control + "-again" else ""} for name in costs]
    runs = []
    for name, rounds in costs.items():
        for number, given in enumerate(rounds):
            cost, rate, verdict = given or (None, None, "neither")
            runs.append({
                "contestant": name, "workload": workload, "round": number, "phase": "main", "workers": 1, "server_cores": 1.0,
                "voids": [] if given else ["it lied"], "warnings": [], "requests": 1000, "seconds": 1.0, "requests_per_second": rate,
                "server_us_per_request": cost, "server_user_us": 1.0, "server_system_us": 2.0, "client_us_per_request": 50.0,
                "server_busy": 0.5, "client_busy": 0.98, "server_waiting": 0.0, "client_waiting": 0.01, "requests_per_core": 1e6 / cost if cost else None, "switches_per_request": 0.0,
                "involuntary_per_request": 0.0, "peak_rss_bytes": 1 << 20, "pss_bytes": 1 << 19, "latency_ms": {"50": 1.0, "99": 2.0},
                "verdict": verdict, "verdict_reason": "because", "time_wait": 0, "listen_overflows": 0,
                "timeline": [[0.1 * step, 0.1, 0.2, 0.7, 0.3, 0.6, 0.1, 100.0] for step in range(1, 6)],
                "server_command": ["./server", "a b"], "client_command": ["ab", "http://127.0.0.1:1/"]})
    return {"format": "ceiling-compare", "format_version": 1, "created": "2026-01-01T00:00:00+00:00", "complete": True, "seconds": 1.0,
            "tool": {"commit": "0", "command": ["tools/compare"]}, "options": {"workers": 1},
            "placement": {"server": [0], "client": [1], "reason": "r"}, "machine": measure.machine_facts(), "versions": {}, "warnings": [],
            "contestants": contestants, "runs": runs,
            "workloads": [{"name": workload, "what": "w", "mode": "close", "profile": "a", "client": ["ab", "URL"]}]}


CLIENT, SERVER = "client-bound", "server-bound"


@unittest.skipUnless(LIBRARIES, "needs rich, matplotlib and numpy")
class Findings(unittest.TestCase):
    def test_client_bound_rows_are_ranked_by_cost_whatever_their_rate(self):
        table = analysis.tables(made_up({"ceiling": [(18, 19000, CLIENT)] * 3, "golang": [(52, 20000, CLIENT)] * 3}))[0]
        self.assertEqual([(row.name, row.rank) for row in table.ranked], [("ceiling", 1), ("golang", 2)])
        self.assertTrue(any("2 of 2 rows are client-bound" in sentence for sentence in table.findings))
        self.assertTrue(any("other order by requests/s" in sentence for sentence in table.findings))

    def test_differences_inside_the_noise_are_ties(self):
        results = made_up({"ceiling": [(10.0, 1, CLIENT), (10.2, 1, CLIENT)], "ceiling-again": [(10.5, 1, CLIENT), (10.0, 1, CLIENT)],
                           "near": [(10.3, 1, CLIENT), (10.4, 1, CLIENT)], "far": [(12.0, 1, CLIENT), (12.0, 1, CLIENT)]}, control="ceiling")
        table = analysis.tables(results)[0]
        self.assertAlmostEqual(table.noise, 0.05)
        self.assertEqual([(row.name, row.rank, row.tied) for row in table.ranked],
                         [("ceiling", 1, True), ("near", 1, True), ("far", 3, False)])

    def test_ties_do_not_chain_away_from_their_leader(self):
        results = made_up({"ceiling": [(10.0, 1, CLIENT)], "ceiling-again": [(10.4, 1, CLIENT)], "b": [(10.3, 1, CLIENT)],
                           "c": [(10.6, 1, CLIENT)]}, control="ceiling")
        self.assertEqual([(row.name, row.rank) for row in analysis.tables(results)[0].ranked], [("ceiling", 1), ("b", 1), ("c", 3)])

    def test_ratios_are_taken_within_rounds(self):
        results = made_up({"ceiling": [(10, 1, CLIENT), (20, 1, CLIENT), None], "x": [(15, 1, CLIENT), (30, 1, CLIENT), (99, 1, CLIENT)]})
        row = next(row for row in analysis.tables(results)[0].rows if row.name == "x")
        self.assertEqual((row.to_reference.median, row.to_reference.pairs), (1.5, 2))

    def test_void_runs_count_for_nothing(self):
        table = analysis.tables(made_up({"ceiling": [(10, 1, CLIENT), None], "liar": [None, None]}))[0]
        self.assertEqual([row.valid for row in table.rows], [1, 0])
        self.assertEqual(table.rows[1].voids, ["it lied"])
        self.assertEqual([row.name for row in table.ranked], ["ceiling"])

    def test_the_article_stands_beside_ours_with_its_turns(self):
        results = made_up({"golang": [(20, 900, CLIENT)], "workerman": [(40, 950, CLIENT)], "swoole": [(30, 1000, CLIENT)]})
        article = analysis.tables(results)[0].article
        lines = {line.name: line for line in article.lines}
        self.assertEqual((lines["workerman"].there_rank, lines["workerman"].here_rank, lines["workerman"].cost_rank), (1, 2, 3))
        self.assertEqual((lines["golang"].there_rank, lines["golang"].here_rank, lines["golang"].cost_rank), (5, 3, 1))
        self.assertIsNone(lines["webman"].here)
        self.assertEqual(len(article.turned), 3)

    def test_sleepers_are_told_from_the_busy(self):
        results = made_up({"ceiling": [(10, 1, CLIENT)], "sleepy": [(12, 1, CLIENT)]})
        results["runs"][1]["switches_per_request"] = 0.9
        self.assertTrue(any("Sleepy most often, 0.90 times" in sentence for sentence in analysis.tables(results)[0].findings))

    def test_fairness_names_what_differs(self):
        results = made_up({"ceiling": [(10, 1, CLIENT)], "other": [(12, 1, CLIENT)]})
        ours, other = results["contestants"]
        ours["answers"] = {"a": {"head": "HTTP/1.1 200 OK\r\nDate: x\r\n\r\n", "head_bytes": 100, "body_bytes": 5}}
        other["answers"] = {"a": {"head": "HTTP/1.1 200 OK\r\n\r\n", "head_bytes": 300, "body_bytes": 5}}
        other["fairness"] = {"access_log": "on", "keep_alive_limit": "1000 requests"}
        other["version"] = "Workerman 5, event loop select"
        warnings = "; ".join(analysis.fairness(results)[1].warnings)
        for words in ("305 bytes", "no Date", "access log", "after 1000 requests", "select"):
            self.assertIn(words, warnings)
        self.assertEqual(analysis.fairness(results)[0].warnings, [])

    def test_the_projection_names_its_limit(self):
        table = analysis.tables(made_up({"ceiling": [(20, 1, CLIENT)]}))[0]
        one = analysis.projection(table, 1)[0]
        self.assertEqual((one.one_worker, one.shared, one.shared_limit, one.remote), (20000, 20000, "client", 200000))


class Reader(html.parser.HTMLParser):
    """Collects tags that are opened and never closed, ids, and links."""

    def __init__(self):
        super().__init__()
        self.open, self.ids, self.links, self.outside = [], [], [], []

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        if tag not in ("meta", "br", "link", "img") :
            self.open.append(tag)
        if "id" in given:
            self.ids.append(given["id"])
        if tag == "a":
            self.links.append(given["href"])
        self.outside += [value for name, value in attrs if name in ("src", "href") and value and not value.startswith("#")]

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if self.open and self.open[-1] == tag:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, (tag, self.open[-3:])
        self.open.pop()


@unittest.skipUnless(LIBRARIES, "needs rich, matplotlib and numpy")
class Page(unittest.TestCase):
    def page(self):
        results = made_up({"ceiling": [(18, 19000, CLIENT)] * 2, "floor": [(17.9, 19100, SERVER)] * 2, "golang": [(52, 20000, CLIENT)] * 2,
                           "liar": [None, None]})
        results["contestants"][2]["title"] = "<script>alert(1)</script> & co"
        scaled = dict(results["runs"][0], phase="scaling", workload="keepalive")
        results["runs"] += [dict(scaled, workers=count) for count in (1, 2)]
        return report.page(results)

    def test_it_is_well_formed_and_needs_nothing_from_outside(self):
        reader = Reader()
        reader.feed(self.page())
        self.assertEqual(reader.open, [])
        self.assertEqual(reader.outside, [])
        for link in reader.links:
            self.assertIn(link[1:], reader.ids)
        self.assertEqual(len(reader.ids), len(set(reader.ids)))
        self.assertNotIn("url(http", self.page())

    def test_names_are_escaped(self):
        self.assertNotIn("<script>", self.page())

    def test_every_stand_in_colour_was_replaced(self):
        page = self.page()
        for colour in charts.COLOURS:
            self.assertNotIn(colour.stand_in, page)
            self.assertIn(f"{colour.variable}:", page)

    def test_a_void_row_is_in_the_page_but_in_no_figure(self):
        page = self.page()
        self.assertIn("it lied", page)
        figures = "".join(re.findall(r"<svg.*?</svg>", page, re.DOTALL))
        self.assertIn("Golang" if "Golang" in page else "alert(1)", figures)
        self.assertNotIn("Liar", figures)

    def test_labels_are_pushed_apart_and_stay_in_order(self):
        places = charts._spread_apart(charts.np.array([0.0, 1.0, 2.0, 95.0, 99.0]), 10, 100)
        self.assertEqual(places, sorted(places))
        self.assertTrue(all(b - a >= 10 for a, b in zip(places, places[1:])))
        self.assertLessEqual(places[-1], 100)


@unittest.skipUnless(LIBRARIES, "needs rich, matplotlib and numpy")
class Manifests(unittest.TestCase):
    def peer(self, text, **files):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "some").mkdir()
            (Path(folder) / "some" / "peer.ini").write_text(text)
            for name, content in files.items():
                (Path(folder) / "some" / name).write_text(content)
            return peers.load_peers(Path(folder))[0]

    def test_every_manifest_here_is_understood_and_says_how_to_get_it(self):
        for peer in peers.load_peers():
            with self.subTest(peer.name):
                self.assertTrue(peer.get)
                for load in workloads.WORKLOADS:
                    text = " ".join([*peer.spec(load).command, *peer.spec(load).files.values()])
                    self.assertNotRegex(text.replace("{port}", "").replace("{workers}", "").replace("{work}", ""), r"\{[a-z]+\}")

    def test_what_is_missing_is_said_with_the_line_that_gets_it(self):
        peer = self.peer("[peer]\ncommand = x {port}\n[needs]\nprograms = no-such-program\nget = tools/setup peers\n")
        self.assertEqual(peer.missing, "no-such-program is not installed: tools/setup peers")

    def test_a_bad_manifest_is_named(self):
        for text in ("nonsense", "[peer]\ntitle = x\n", "[peer]\ncommand = x\norder = many\n", "[peer]\ncommand = x\nfiles = gone\n",
                     "[peer]\ncommand = x\nstop_signal = SIGNOTHING\n"):
            with self.subTest(text), self.assertRaisesRegex(peers.PeerError, "peer.ini"):
                self.peer(text)

    def test_headers_become_words_of_the_command_or_text_in_a_file(self):
        load = workloads.workload("article-b")
        words = self.peer('[peer]\ncommand = x {port} {headers}\nheader_format = --header "{name}: {value}"\n').spec(load).command
        self.assertIn('E-Tag: "565d5300-16"', words)
        self.assertEqual(words.count("--header"), 4)
        spec = self.peer('[peer]\ncommand = x {port}\nfiles = conf\nheader_format = add {name} "{value}";\n', conf="{headers}").spec(load)
        self.assertIn('add E-Tag "\\"565d5300-16\\"";', spec.files["conf"])


if __name__ == "__main__":
    unittest.main()
