#!/usr/bin/python3
"""A small HTTP server that lies in the way its first argument says; the tests of tools/compare run it as a contestant.

    stub.py MODE PORT

    honest       200, `hello`, keep-alive as asked, closes as asked
    404          every answer is 404
    wrong-body   another body of the same length
    wrong-length Content-Length one too large, then it closes
    no-length    no Content-Length; the close ends the body
    rude-close   promises keep-alive and closes after each answer
    half-way     answers 300 requests, then ends without a word
    pause        stands still for one second once, after 500 requests
    turns-404    200 for the first 50 requests, 404 from then on
    silent       takes connections and never answers
    never-up     prints a sentence and ends with status 3
    children     serves from a grandchild whose parents have gone, like a daemon
"""

import os
import selectors
import socket
import sys
import time

MODES = ("honest", "404", "wrong-body", "wrong-length", "no-length", "rude-close", "half-way", "pause", "turns-404",
         "silent", "never-up", "children")


def answer(mode: str, count: int, keep: bool) -> bytes:
    """The answer to request number `count`."""
    status = "404 Not Found" if mode == "404" or (mode == "turns-404" and count > 50) else "200 OK"
    body = b"olleh" if mode == "wrong-body" else b"hello"
    length = "" if mode == "no-length" else f"Content-Length: {len(body) + (mode == 'wrong-length')}\r\n"
    connection = "keep-alive" if keep else "close"
    return f"HTTP/1.1 {status}\r\n{length}Connection: {connection}\r\n\r\n".encode() + body


def serve(mode: str, port: int) -> None:
    """One thread, every connection in turn; slow, and good enough to be lied about."""
    listener = socket.create_server(("127.0.0.1", port), backlog=512)
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ)
    pending: dict[socket.socket, bytes] = {}
    count = 0
    while True:
        for key, _ in selector.select():
            if key.fileobj is listener:
                connection, _ = listener.accept()
                connection.setblocking(False)
                selector.register(connection, selectors.EVENT_READ)
                pending[connection] = b""
                continue
            connection = key.fileobj
            try:
                data = connection.recv(65536)
            except OSError:
                data = b""
            pending[connection] += data
            alive = bool(data)
            while alive and mode != "silent" and b"\r\n\r\n" in pending[connection]:
                head, _, pending[connection] = pending[connection].partition(b"\r\n\r\n")
                count += 1
                if mode == "half-way" and count > 300:
                    os._exit(0)
                if mode == "pause" and count == 500:
                    time.sleep(1)
                old, lower = b"HTTP/1.0" in head, head.lower()
                keep = b"connection: keep-alive" in lower if old else b"connection: close" not in lower
                try:
                    connection.sendall(answer(mode, count, keep))
                except OSError:
                    alive = False
                alive = alive and keep and mode not in ("rude-close", "no-length", "wrong-length")
            if not alive:
                selector.unregister(connection)
                del pending[connection]
                connection.close()


def main() -> None:
    mode, port = sys.argv[1], int(sys.argv[2])
    if mode not in MODES:
        sys.exit(f"stub.py: unknown mode {mode}")
    if mode == "never-up":
        print("stub.py: this port is cursed")
        sys.exit(3)
    if mode == "children" and os.fork():
        time.sleep(3600)
    if mode == "children" and os.fork():
        os._exit(0)
    serve(mode, port)


main()
