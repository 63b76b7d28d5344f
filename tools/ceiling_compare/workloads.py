"""What the clients do, and the two articles that some of it repeats.

A workload is a load generator with its arguments, the answer it must get, and how connections are meant to behave. The
answer comes in two profiles: A is article A's `hello`; B is article B's `<h1>` with four headers.
"""

from __future__ import annotations

import dataclasses
from typing import Optional, Union

from measure import Ab, Expectation, Wrk


@dataclasses.dataclass(frozen=True)
class Profile:
    """Body and headers that every contestant is told to send."""
    body: str
    type: str
    headers: tuple[tuple[str, str], ...] = ()


PROFILES = {
    "a": Profile("hello", "text/plain"),
    # The article spells E-Tag; nginx's own header is ETag. Either way it is a few bytes of every answer.
    "b": Profile("<h1>Hello, World!</h1>", "text/html", (
        ("Last-Modified", "Tue, 01 Dec 2015 08:00:00 GMT"), ("E-Tag", '"565d5300-16"'), ("Accept-Ranges", "bytes"),
        ("Server", "ceiling"))),
}


@dataclasses.dataclass(frozen=True)
class ArticleRow:
    """One published figure: whose it is in our list, what the article calls it, and its requests a second."""
    peer: str
    label: str
    requests_per_second: float


@dataclasses.dataclass(frozen=True)
class Article:
    """One published table."""
    title: str
    box: str
    rows: tuple[ArticleRow, ...]


ARTICLE_BOX_A = "4 virtual CPUs, 4 GiB, cloud; Ubuntu 20.04, PHP 7.4.3, Go 1.13.8; one worker process each"
ARTICLE_BOX_B = "i5-4590, 4 cores, 16 GB; Ubuntu 14.04; 4 workers, Go with GOMAXPROCS = CPUs - 1"


@dataclasses.dataclass(frozen=True)
class Workload:
    """One column of the comparison."""
    name: str
    what: str                       # one sentence for the reader
    client: Union[Ab, Wrk]          # at the full size: the article's, or a comfortable one
    mode: str                       # keep-alive, close or pipeline: how connections are meant to behave
    profile: str
    default_share: float            # of the full size, in a run without options
    quick_share: float
    article: Optional[Article] = None

    def expectation(self, exact_body: bool = True) -> Expectation:
        """What an answer must look like. Headers are not demanded: who lacks one is named in the fairness table."""
        profile = PROFILES[self.profile]
        old = isinstance(self.client, Ab)
        keep = self.mode != "close"
        return Expectation(body=profile.body.encode() if exact_body else None,
                           keep_alive_10=old and keep, close_10=old and not keep,
                           keep_alive_11=not old and keep, close_11=not old and not keep,
                           pipeline=getattr(self.client, "pipeline", 1))

    def sized(self, share: float, threads: int) -> Union[Ab, Wrk]:
        """The client at a share of its full size; wrk gets as many threads as the client has CPUs."""
        client = self.client.scaled(share)
        return dataclasses.replace(client, threads=threads) if isinstance(client, Wrk) else client

    def warm_up(self) -> Optional[Ab]:
        """A short run before the measured one: enough for page faults and lazy start-up, not enough for a JIT, which none
        of the contestants has. None for wrk, which cannot run for less than a second: then WARM_REQUESTS are sent by hand."""
        if isinstance(self.client, Wrk):
            return None
        return Ab(4000 if self.client.keep_alive else 1000, min(50, self.client.connections), self.client.keep_alive)


WARM_REQUESTS = 1000

WORKLOADS = (
    Workload("article-a", "ab -n100000 -c200: a connection for each request, HTTP/1.0", Ab(100000, 200, False), "close", "a",
             0.10, 0.04, Article("article A, without -k", ARTICLE_BOX_A, (
                 ArticleRow("golang", "golang", 19995), ArticleRow("workerman", "workerman (close)", 30120),
                 ArticleRow("webman", "webman", 29301), ArticleRow("swoole", "swoole", 25836),
                 ArticleRow("swoole-coroutine", "swoole + coroutine", 27093)))),
    Workload("article-a-keepalive", "ab -n100000 -c200 -k: connections kept, HTTP/1.0", Ab(100000, 200, True), "keep-alive", "a",
             0.40, 0.15, Article("article A, with -k", ARTICLE_BOX_A, (
                 ArticleRow("golang", "golang", 98546), ArticleRow("workerman", "workerman (send)", 125986),
                 ArticleRow("webman", "webman", 85938), ArticleRow("swoole", "swoole", 73304),
                 ArticleRow("swoole-coroutine", "swoole + coroutine", 54596)))),
    Workload("article-b", "ab -c100 -n1000000 -k: connections kept, HTTP/1.0, four more headers", Ab(1000000, 100, True),
             "keep-alive", "b", 0.04, 0.015, Article("article B", ARTICLE_BOX_B, (
                 ArticleRow("nginx", "nginx 1.4.6, static page", 164489.92), ArticleRow("golang", "golang 1.5.2", 166838.68),
                 ArticleRow("swoole", "PHP 7 + swoole", 287104.12),
                 ArticleRow("nginx-tuned", "nginx 1.9.9, tuned", 245058.70)))),
    Workload("keepalive", "wrk -c64: connections kept, HTTP/1.1", Wrk(5, 64), "keep-alive", "a", 0.2, 0.2),
    Workload("close", "wrk -c64 with Connection: close: a connection for each request", Wrk(5, 64, close=True), "close", "a",
             0.2, 0.2),
    Workload("pipeline", "wrk -c64, 16 requests written at once", Wrk(5, 64, pipeline=16), "pipeline", "a", 0.2, 0.2),
    Workload("one", "wrk -c1: one connection, one request at a time", Wrk(5, 1), "keep-alive", "a", 0.2, 0.2),
)
DEFAULT_NAMES = ("article-a", "article-a-keepalive", "article-b", "keepalive")
ARTICLE_NAMES = {"a": ("article-a", "article-a-keepalive"), "b": ("article-b",)}


def workload(name: str) -> Workload:
    """The workload of that name; KeyError if there is none."""
    for candidate in WORKLOADS:
        if candidate.name == name:
            return candidate
    raise KeyError(name)
