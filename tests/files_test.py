#!/usr/bin/python3
"""--root and --file: what a tree answers, what it must never give away, and reloads that are all or nothing."""
import contextlib
import email.utils
import os
import pathlib
import signal
import socket
import tempfile
import time
import unittest

from ceiling import Server, connect, exchange, get, measured, read_answers

LARGE = bytes(range(256)) * 40_000  # 10 MB: sent by sendfile, and more than any socket buffer takes at once


class Case(unittest.TestCase):
    def setUp(self):
        self.stack = contextlib.ExitStack()
        self.addCleanup(self.stack.close)
        self.outside = pathlib.Path(self.stack.enter_context(tempfile.TemporaryDirectory()))
        self.root = self.outside / "tree"
        self.root.mkdir()

    def write(self, name, content, modified=None):
        file = self.root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
        if modified is not None:
            os.utime(file, (modified, modified))

    def serve(self, *options, **named):
        return self.stack.enter_context(Server("--root", str(self.root), *options, **named))

    def ask(self, server, target, *fields, method="GET"):
        return exchange(server.port, get(target, *fields, method=method), heads={0} if method == "HEAD" else ()).finals[0]

    def reload(self, server, outcome):
        before = server.errors.count(outcome)
        server.send(signal.SIGHUP)
        server.wait_until(lambda: server.errors.count(outcome) > before, outcome)


class Paths(Case):
    def setUp(self):
        super().setUp()
        self.write("index.html", "<h1>home</h1>")
        self.write("a b.txt", "blank")
        self.write("sub/index.html", "sub")
        self.write("sub/style.css", "css")
        self.write("empty/none.bin", b"")
        (self.outside / "secret").write_text("secret")

    def test_every_way_to_name_a_file(self):
        server = self.serve()
        for target, status, body in (
            ("/", 200, b"<h1>home</h1>"), ("/index.html", 200, b"<h1>home</h1>"), ("/?a=/../x", 200, b"<h1>home</h1>"),
            ("/a%20b.txt", 200, b"blank"), ("/%61%20b%2etxt", 200, b"blank"), ("/sub/", 200, b"sub"),
            ("/sub/style.css?v=1", 200, b"css"), ("/./sub/./style.css", 200, b"css"), ("/sub/../sub/style.css", 200, b"css"),
            ("/sub/..", 200, b"<h1>home</h1>"), ("/sub/.", 200, b"sub"), ("http://example.test/sub/style.css", 200, b"css"),
            ("http://example.test", 200, b"<h1>home</h1>"), ("http://example.test?q", 200, b"<h1>home</h1>"),
            ("/empty/none.bin", 200, b""), ("/../index.html", 200, b"<h1>home</h1>"), ("/sub%2fstyle.css", 200, b"css"),
        ):
            answer = self.ask(server, target)
            self.assertEqual((answer.status, answer.body), (status, body), target)

    def test_nothing_outside_the_tree_can_be_named(self):
        (self.root / "out").symlink_to(self.outside / "secret")
        (self.root / "outdir").symlink_to(self.outside)
        (self.root / "sub" / "loop").symlink_to("..")
        (self.root / "inside.css").symlink_to("sub/style.css")
        (self.root / "dangling").symlink_to("nowhere")
        os.mkfifo(self.root / "pipe")
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(self.root / "socket"))
            server = self.serve()
        for target in ("/../secret", "/%2e%2e/secret", "/%2e%2e%2fsecret", "/..%2f..%2fsecret", "/sub/../../secret", "//../secret", "/out",
                       "/outdir/secret", "/sub/loop/index.html", "/pipe", "/socket", "/dangling", "/index.html%00", "/index.html/",
                       "/nope", "/SUB/", "/%2e%2e/%2e%2e/%2e%2e/etc/passwd", "/.../index.html"):
            self.assertIn(self.ask(server, target).status, (400, 404), target)
        self.assertEqual(self.ask(server, "/inside.css").body, b"css")
        for name in ("out", "outdir", "loop", "dangling"):
            self.assertRegex(server.errors, rf"/{name}: skipped: ")

    def test_a_directory_without_its_slash_is_redirected(self):
        self.write("a b/index.html", "x")
        server = self.serve()
        answer = self.ask(server, "/sub")
        self.assertEqual((answer.status, answer.get("location"), answer.body), (301, "/sub/", b""))
        self.assertEqual(self.ask(server, "/a%20b").get("location"), "/a%20b/")
        self.assertEqual(self.ask(server, "/empty/").status, 404, "a directory without an index")

    def test_methods(self):
        server = self.serve()
        for method, status in (("POST", 405), ("PUT", 405), ("DELETE", 405), ("PATCH", 405), ("TRACE", 405), ("BREW", 501), ("OPTIONS", 204)):
            answer = self.ask(server, "/", method=method)
            self.assertEqual(answer.status, status, method)
            if status != 501:
                self.assertEqual(answer.get("allow"), "GET, HEAD, OPTIONS", method)
        head, whole = self.ask(server, "/sub/style.css", method="HEAD"), self.ask(server, "/sub/style.css")
        self.assertEqual(head.body, b"")
        self.assertEqual([f for f in head.fields if f[0] != "date"], [f for f in whole.fields if f[0] != "date"])

    def test_types_by_extension(self):
        for name in ("x.html", "x.CSS", "x.json", "x.png", "noextension", ".hidden", "x.unheard-of"):
            self.write(name, "x")
        server = self.serve()
        for name, kind in (("x.html", "text/html"), ("x.CSS", "text/css"), ("x.json", "application/json"), ("x.png", "image/png"),
                           ("noextension", "application/octet-stream"), (".hidden", "application/octet-stream"),
                           ("x.unheard-of", "application/octet-stream")):
            self.assertEqual(self.ask(server, "/" + name).get("content-type"), kind, name)
        self.assertEqual(self.ask(self.serve("--type", "text/x"), "/x.png").get("content-type"), "text/x")


class Preconditions(Case):
    def test_unchanged_content_is_not_sent_again(self):
        modified = 1_700_000_000
        self.write("f.txt", "content", modified)
        server = self.serve()
        whole = self.ask(server, "/f.txt")
        tag = whole.get("etag")
        self.assertRegex(tag, r'^"[!#-~]+"$')
        self.assertEqual(whole.get("last-modified"), email.utils.formatdate(modified, usegmt=True))
        date = lambda seconds: email.utils.formatdate(seconds, usegmt=True)  # noqa: E731
        for fields, status in (
            ([f"If-None-Match: {tag}"], 304), ([f"If-None-Match: W/{tag}"], 304), (["If-None-Match: *"], 304),
            ([f'If-None-Match: "x", {tag}'], 304), ([f'If-None-Match: "x","y" , W/{tag}, "z"'], 304), (['If-None-Match: "x"'], 200),
            ([f"If-None-Match: {tag[:-1]}"], 200), (["If-None-Match: x"], 200), (["If-None-Match:"], 200),
            ([f"If-Modified-Since: {date(modified)}"], 304), ([f"If-Modified-Since: {date(modified + 1)}"], 304),
            ([f"If-Modified-Since: {date(modified - 1)}"], 200), (["If-Modified-Since: yesterday"], 200),
            (["If-Modified-Since: Tuesday, 14-Nov-23 22:13:20 GMT"], 304), (["If-Modified-Since: Tue Nov 14 22:13:20 2023"], 304),
            # If-None-Match decides alone (RFC 9110 13.2.2)
            (['If-None-Match: "x"', f"If-Modified-Since: {date(modified)}"], 200),
            ([f"If-None-Match: {tag}", f"If-Modified-Since: {date(0)}"], 304),
        ):
            answer = self.ask(server, "/f.txt", *fields)
            self.assertEqual(answer.status, status, fields)
            self.assertEqual(answer.body, b"content" if status == 200 else b"", fields)
            self.assertEqual(answer.get("etag"), tag, fields)
        self.assertEqual(self.ask(server, "/f.txt", f"If-None-Match: {tag}", method="HEAD").status, 304)

    def test_the_tag_follows_the_content_alone(self):
        self.write("f.txt", "one", 1)
        server = self.serve()
        first = self.ask(server, "/f.txt").get("etag")
        self.write("f.txt", "one", 2)
        self.reload(server, "reloaded")
        self.assertEqual(self.ask(server, "/f.txt").get("etag"), first)
        self.write("f.txt", "two", 2)
        self.reload(server, "reloaded")
        self.assertNotEqual(self.ask(server, "/f.txt").get("etag"), first)


class Sizes(Case):
    def test_every_size_around_the_ways_to_send(self):
        sizes = (0, 1, 4096, 65535, 65536, 65537, 200_000, len(LARGE))
        for size in sizes:
            self.write(f"{size}", LARGE[:size])
        server = self.serve("--threads", "1")
        with connect(server.port) as client:  # pipelined on one connection, so that no byte may be too many or too few
            client.sendall(b"".join(get(f"/{size}") for size in sizes))
            answers = read_answers(client, len(sizes)).finals
        for size, answer in zip(sizes, answers):
            self.assertEqual(answer.body, LARGE[:size], size)

    def test_a_limit_on_the_whole_tree(self):
        self.write("a", b"x" * 600)
        self.write("b", b"x" * 600)
        server = Server("--root", str(self.root), "--max-tree", "1000", wait=False)
        self.assertEqual(server.wait(), 1)
        self.assertRegex(server.errors, r"/b: 600 bytes are more than --max-tree allows \(400 left\)")
        self.serve("--max-tree", "1200")

    def test_a_file_larger_than_the_limit(self):
        self.write("f", b"x" * 600)
        server = Server("--file", str(self.root / "f"), "--max-tree", "599", wait=False)
        self.assertEqual(server.wait(), 1)
        self.assertIn("--max-tree", server.errors)


class Reloads(Case):
    def test_new_changed_and_removed_files(self):
        self.write("kept", "old")
        self.write("removed", "x")
        server = self.serve("--threads", "2")
        self.write("kept", "new")
        self.write("added", "x")
        (self.root / "removed").unlink()
        self.reload(server, "reloaded")
        self.assertEqual(self.ask(server, "/kept").body, b"new")
        self.assertEqual(self.ask(server, "/added").status, 200)
        self.assertEqual(self.ask(server, "/removed").status, 404)

    def test_a_broken_tree_keeps_the_old_one_and_says_why(self):
        self.write("a", "old")
        server = self.serve("--max-tree", "1000")
        self.write("a", "new")
        self.write("b", b"x" * 1000)
        self.reload(server, "not reloaded, the old content stays")
        self.assertIn("--max-tree", server.errors)
        self.assertEqual(self.ask(server, "/a").body, b"old")
        self.root.rename(self.outside / "gone")
        self.reload(server, "not reloaded, the old content stays")
        self.assertIn("No such file or directory", server.errors)
        self.assertEqual(self.ask(server, "/a").body, b"old")

    def test_an_answer_in_flight_is_finished_from_the_old_bytes(self):
        self.write("large", LARGE)
        server = self.serve()
        with connect(server.port) as client:
            client.sendall(get("/large"))
            time.sleep(0.2)  # the socket is full now
            self.write("large", LARGE[::-1])
            self.reload(server, "reloaded")
            self.assertEqual(read_answers(client).finals[0].body, LARGE)
            client.sendall(get("/large"))
            self.assertEqual(read_answers(client).finals[0].body, LARGE[::-1])

    @measured
    def test_many_reloads_leave_nothing_behind(self):
        self.write("large", LARGE)
        server = self.serve("--threads", "2")
        descriptors = lambda: len(os.listdir(f"/proc/{server.pid}/fd"))  # noqa: E731
        memory = lambda: int(pathlib.Path(f"/proc/{server.pid}/statm").read_text().split()[1]) * 4096  # noqa: E731
        for _ in range(3):
            self.reload(server, "reloaded")
        self.ask(server, "/large")
        before = descriptors(), memory()
        for _ in range(10):
            self.reload(server, "reloaded")
            for _ in range(4):  # both threads must have seen the new tree
                self.ask(server, "/large")
        time.sleep(0.2)  # the threads let the last old tree go
        self.assertLessEqual(descriptors(), before[0])
        self.assertLess(memory(), before[1] + 3 * len(LARGE))

    def test_a_file_is_reloaded_under_load(self):
        file = self.root / "f"
        file.write_text("0" * 100)
        server = self.stack.enter_context(Server("--file", str(file), "--threads", "2"))
        with connect(server.port) as client:
            for i in range(1, 10):
                client.sendall(get() * 50)
                file.write_text(str(i) * 100)
                self.reload(server, "reloaded")
                for answer in read_answers(client, 50).finals:
                    self.assertEqual(len(set(answer.body)), 1, "one answer from two states of the file")
            client.sendall(get())
            self.assertEqual(read_answers(client).finals[0].body, b"9" * 100)

    def test_content_that_arrives_while_the_tree_is_replaced(self):
        self.write("a", "x")
        server = self.serve("--threads", "1")
        with connect(server.port) as client:
            client.sendall(get("/a", "Content-Length: 10") + b"12345")
            time.sleep(0.1)
            self.reload(server, "reloaded")
            client.sendall(b"67890")
            self.assertIn(read_answers(client).finals[0].status, (200, 503))


if __name__ == "__main__":
    unittest.main()
