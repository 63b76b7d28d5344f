#!/usr/bin/python3
"""Writes the conformance cases as seeds for the parser's fuzz targets.

    tests/fuzz/seeds.py DIRECTORY     writes DIRECTORY/parse_kernels/, DIRECTORY/parse_rivals/ and DIRECTORY/parse_body/
"""
import json
import pathlib
import sys

SIZE_MAX = 4096  # longer cases are about limits, and slow a fuzzer down


def request_bytes(request):
    pieces = [request] if isinstance(request, str) else request
    return "".join(piece if isinstance(piece, str) else piece[0] * piece[1] for piece in pieces).encode("latin-1")


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: seeds.py DIRECTORY")
    target = pathlib.Path(sys.argv[1])
    cases = pathlib.Path(__file__).resolve().parent.parent / "conformance" / "cases.jsonl"
    for name in ("parse_kernels", "parse_rivals", "parse_body"):
        (target / name).mkdir(parents=True, exist_ok=True)
    for line in cases.read_text(encoding="utf-8").splitlines():
        case = json.loads(line)
        data = request_bytes(case["request"])
        if len(data) > SIZE_MAX:
            continue
        name = case["id"].replace("/", "-")
        (target / "parse_kernels" / name).write_bytes(b"\x80\xff" + data)
        (target / "parse_rivals" / name).write_bytes(data)
        if b"chunked" in data.lower() and b"\r\n\r\n" in data:
            (target / "parse_body" / name).write_bytes(b"\x03" + data.split(b"\r\n\r\n", 1)[1])


main()
