#!/usr/bin/python3
"""The memo: a head that equals the last one byte for byte is answered without a second parse. It must never show.

The server is one thread, so that all connections meet one memo.
"""
import signal
import tempfile
import unittest

from ceiling import Server, exchange, get, connect, read_answers

# Heads that have much in common: whoever compares too little answers one with another's answer.
HEADS = [get(), get(version="1.0"), get("/", "Connection: close"), get("/", "Connection: keep-alive", version="1.0"), get(method="HEAD"),
         get(method="OPTIONS"), get(method="BREW"), get("/", "Expect: something"), get("/", "Content-Length: 0"),
         get("/", "Content-Length: 5", content="12345", method="POST"), b"GET / HTTP/1.1\r\n\r\n", get("/", "Bad Field: 1"),
         get("/", "X: " + "y" * 900), get("/", "X: " + "y" * 1100)]
EQUAL = 40   # requests in a row: more than the memo waits before it takes up a new head


def answers_of(server, head, count=1):
    """What each of so many connections is told for one head: all bytes but Date's value."""
    told = []
    for _ in range(count):
        with connect(server.port) as client:
            client.sendall(head)
            stream = read_answers(client, heads={0} if head.startswith(b"HEAD") else ())
            final = stream.finals[0]
            told.append((final.status, sorted((n, v) for n, v in final.fields if n != "date"), final.body))
    return told


class Memo(unittest.TestCase):
    def test_every_head_is_answered_as_without_it(self):
        with Server("--threads", "1", "--no-memo") as plain:
            expected = [answers_of(plain, head)[0] for head in HEADS]
        with Server("--threads", "1") as server:
            for known in HEADS[:6]:
                answers_of(server, known, EQUAL)              # now this one is remembered
                for head, answer in zip(HEADS, expected):
                    self.assertEqual(answers_of(server, head, 2), [answer] * 2, (known, head))

    def test_a_head_that_begins_with_a_known_one_is_another(self):
        # `GET / HTTP/1.1 CRLF Host: example.test CRLF CRLF` is known; what follows it on the connection is the next request.
        with Server("--threads", "1") as server:
            answers_of(server, get(), EQUAL)
            stream = exchange(server.port, get() + get(method="HEAD") + get("/", "Connection: close"), answers=3,
                              heads={1}, until_end=True)
            self.assertEqual([final.status for final in stream.finals], [200] * 3)

    def test_a_known_head_may_come_in_pieces(self):
        with Server("--threads", "1") as server, connect(server.port) as client:
            head = get()
            for _ in range(EQUAL):
                client.sendall(head)
                read_answers(client)
            for cut in range(1, len(head)):
                client.sendall(head[:cut])
                client.sendall(head[cut:] + head)
                self.assertEqual([final.status for final in read_answers(client, answers=2).finals], [200, 200])

    def test_a_reload_is_seen_by_the_very_next_request(self):
        with tempfile.NamedTemporaryFile() as file:
            file.write(b"old")
            file.flush()
            with Server("--threads", "1", "--file", file.name) as server:
                self.assertEqual({body for _, _, body in answers_of(server, get(), EQUAL)}, {b"old"})
                file.seek(0)
                file.write(b"new")
                file.flush()
                server.send(signal.SIGHUP)
                server.wait_until(lambda: "reloaded" in server.errors, "the reload")
                server.wait_until(lambda: answers_of(server, get())[0][2] == b"new", "the new content")
                self.assertEqual({body for _, _, body in answers_of(server, get(), EQUAL)}, {b"new"})

    def test_a_limit_on_requests_still_counts_every_one(self):
        with Server("--threads", "1", "--max-requests", "3") as server:
            for _ in range(EQUAL):
                stream = exchange(server.port, get() * 5, answers=3, until_end=True)
                self.assertEqual(len(stream.finals), 3)

    def test_a_drain_says_close_to_known_heads_too(self):
        with Server("--threads", "1") as server, connect(server.port) as client:
            for _ in range(EQUAL):
                client.sendall(get())
                read_answers(client)
            client.sendall(get()[:-2])      # half a head: a connection that is busy with one is not ended as idle
            server.send(signal.SIGTERM)
            server.wait_until(lambda: not self.listens(server), "the end of listening")
            client.sendall(get()[-2:])
            self.assertTrue(read_answers(client).finals[0].says_close())
            client.close()
            self.assertEqual(server.wait(), 0)      # by itself: a second signal would cut it short

    @staticmethod
    def listens(server):
        try:
            connect(server.port).close()
            return True
        except OSError:
            return False


if __name__ == "__main__":
    unittest.main()
