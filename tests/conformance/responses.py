"""Reads HTTP/1.x responses from bytes, strictly: what a careful client would take them for.

Written from RFC 9110 and RFC 9112 and sharing nothing with the server, so that a fault in one is not repeated in the other. Python's
http.client is no use here: it forgives what has to be noticed (bad status lines, both framing fields, bytes behind a response).
"""
import dataclasses
import re

TOKEN = re.compile(rb"^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$")
STATUS_LINE = re.compile(rb"^HTTP/1\.[01] ([1-5]\d\d) [\t\x20-\x7e\x80-\xff]*$")
STATUS_LINE_LOOSE = re.compile(rb"^HTTP/\S+ +(\d{3})")  # enough to go on with; the fault is kept in `faults`
FORBIDDEN_IN_VALUE = re.compile(rb"[\x00\r\n]")
SWITCHING_PROTOCOLS = 101
NOT_HTTP = -2


@dataclasses.dataclass
class Response:
    status: int
    line: bytes
    fields: list  # of (lower-case name, value), in order
    faults: list  # "status-line", "field-line"
    body: bytes = b""
    complete: bool = True

    def get(self, name):
        """The value of a field, repeated ones joined as RFC 9110 5.3 says, or None."""
        values = [value for key, value in self.fields if key == name]
        return ", ".join(values) if values else None

    def says_close(self):
        return "close" in [token.strip().lower() for token in (self.get("connection") or "").split(",")]


@dataclasses.dataclass
class Stream:
    """Everything one connection has said so far."""
    finals: list  # final responses; the last may be incomplete if the connection has ended
    interims: list  # 1xx
    rest: bytes = b""  # bytes behind the last response that are no whole head (yet)
    garbage: bool = False  # `rest` cannot become a response


def read_head(head):
    lines = head.split(b"\r\n")
    faults, fields = [], []
    found = STATUS_LINE.match(lines[0])
    if not found:
        faults.append("status-line")
        found = STATUS_LINE_LOOSE.match(lines[0])
    for line in lines[1:]:
        name, colon, value = line.partition(b":")
        if not colon or not TOKEN.match(name) or FORBIDDEN_IN_VALUE.search(value):
            faults.append("field-line")
        fields.append((name.lower().decode("latin-1"), value.strip(b" \t").decode("latin-1")))
    return Response(int(found.group(1)) if found else NOT_HTTP, lines[0], fields, faults)


def read_chunks(data, begin):
    """Decodes chunked content: (content, whether it has ended, where)."""
    content, position = b"", begin
    while True:
        line_end = data.find(b"\r\n", position)
        if line_end < 0:
            return content, False, len(data)
        try:
            size = int(data[position:line_end].split(b";")[0], 16)
        except ValueError:
            return content, False, len(data)
        if size == 0:
            trailer_end = data.find(b"\r\n\r\n", line_end)
            return (content, True, trailer_end + 4) if trailer_end >= 0 else (content, False, len(data))
        chunk_begin = line_end + 2
        if len(data) < chunk_begin + size + 2:
            return content, False, len(data)
        content += data[chunk_begin:chunk_begin + size]
        position = chunk_begin + size + 2


def read_body(response, data, begin, to_head, ended):
    """Fills in body and completeness by RFC 9112 6.3; gives where the next response begins."""
    coding, length = response.get("transfer-encoding"), response.get("content-length")
    if to_head or response.status in (SWITCHING_PROTOCOLS, 204, 304):
        return begin
    if coding and "chunked" in coding.lower():
        response.body, response.complete, end = read_chunks(data, begin)
        return end
    if length is not None and length.isdigit():
        end = begin + int(length)
        response.body = data[begin:end]
        response.complete = len(data) >= end
        return min(end, len(data))
    response.body, response.complete = data[begin:], ended  # delimited by the end of the connection
    return len(data)


def read_stream(data, heads=(), ended=False):
    """`heads`: which final responses (by index) answer a HEAD; `ended`: the connection has ended behind `data`."""
    stream, position = Stream([], []), 0
    while position < len(data):
        if not data.startswith(b"HTTP/"[:len(data) - position], position):
            stream.rest, stream.garbage = data[position:], True
            return stream
        head_end = data.find(b"\r\n\r\n", position)
        if head_end < 0:
            stream.rest = data[position:]
            return stream
        response = read_head(data[position:head_end])
        position = head_end + 4
        if 100 <= response.status < 200 and response.status != SWITCHING_PROTOCOLS:
            stream.interims.append(response)
            continue
        position = read_body(response, data, position, len(stream.finals) in heads, ended)
        if response.complete or ended:
            stream.finals.append(response)
        if not response.complete or response.status == SWITCHING_PROTOCOLS:  # behind 101 another protocol is spoken
            return stream
    return stream
