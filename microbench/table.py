#!/usr/bin/python3
"""Prints build/microbench.json as one table, and the ratios that the parser is held to.

    microbench/table.py [FILE]

Each figure is the median over the repetitions of the CPU time of a request. `of rival` is its ratio to the fastest other parser on
the same input, `cv` the coefficient of variation of the repetitions. The exit status is 1 where a figure is below the floor: nothing that looks at
every byte can be faster than the faster of the two floors over the same bytes, so then the measurement is wrong.
"""
import json
import statistics
import sys

RIVALS = ("picohttpparser", "llhttp", "http_parser", "beast")
FLOORS = ("memcpy", "memchr")
# What is asked of the parser: (ours, rival, {input: ratio at most}).
TARGETS = (
    ("full", "picohttpparser", {"wrk_40": 0.40, "ab_106": 0.40, "plaintext_170": 0.40, "browser_703": 0.50}),
    ("scan", "picohttpparser", {"wrk_40": 0.30, "ab_106": 0.30, "plaintext_170": 0.30, "browser_703": 0.45}),
    ("full-avx2", "picohttpparser", dict.fromkeys(("wrk_40", "ab_106", "plaintext_170", "browser_703"), 0.55)),
    ("full", "llhttp", dict.fromkeys(("wrk_40", "ab_106", "plaintext_170", "browser_703"), 0.15)),
)
LINEAR_MAX = 17.0  # times the time for sixteen times the bytes


def read(path):
    """{input: {parser: (ns per request, GB/s, cv)}}, and the file's context."""
    with open(path, encoding="utf-8") as file:
        document = json.load(file)
    times = {}
    # Repetitions come in random order; the order of registration is that of the families.
    for run in sorted(document["benchmarks"], key=lambda run: run["family_index"]):
        if run["run_type"] != "iteration":
            continue
        _, name, parser = run["name"].split("/")[:3]
        entry = times.setdefault(name, {}).setdefault(parser, ([], run["requests"], run["bytes"]))
        entry[0].append(run["cpu_time"])
    figures = {}
    for name, parsers in times.items():
        figures[name] = {}
        for parser, (samples, requests, size) in parsers.items():
            median = statistics.median(samples)
            spread = statistics.stdev(samples) / statistics.mean(samples) if len(samples) > 1 else 0.0
            figures[name][parser] = (median / requests, size / median, spread)
    return figures, document["context"]


def print_figures(figures):
    print(f"{'input':14} {'parser':16} {'ns/request':>11} {'GB/s':>7} {'of rival':>9} {'cv':>6}")
    for name, parsers in figures.items():
        best = min((figure[0] for parser, figure in parsers.items() if parser in RIVALS), default=None)
        for parser, (time, rate, spread) in sorted(parsers.items(), key=lambda item: item[1][0]):
            ratio = f"{time / best:9.2f}" if best else f"{'-':>9}"
            print(f"{name:14} {parser:16} {time:11.1f} {rate:7.2f} {ratio} {spread:6.1%}")
        print()


def print_targets(figures):
    print("ratios of medians, and what is asked")
    for ours, rival, limits in TARGETS:
        for name, limit in limits.items():
            parsers = figures.get(name, {})
            if ours in parsers and rival in parsers:
                ratio = parsers[ours][0] / parsers[rival][0]
                print(f"  {ours:10} / {rival:15} {name:14} {ratio:5.2f}  at most {limit:.2f}  {'met' if ratio <= limit else 'MISSED'}")
    if "scan" in figures.get("drip_703", {}) and "scan" in figures.get("drip_11248", {}):
        ratio = figures["drip_11248"]["scan"][0] / figures["drip_703"]["scan"][0]
        print(f"  scan, 16 times the bytes, one by one       {ratio:5.2f}  at most {LINEAR_MAX:.2f}  {'met' if ratio <= LINEAR_MAX else 'MISSED'}")


def below_floor(figures):
    """Figures that cannot be: those of parsers below the faster floor."""
    wrong = []
    for name, parsers in figures.items():
        floor = min((parsers[floor][0] for floor in FLOORS if floor in parsers), default=0.0)
        wrong += [f"{name}/{parser}" for parser, figure in parsers.items() if parser not in FLOORS and figure[0] < floor]
    return wrong


def main():
    path = sys.argv[1] if len(sys.argv) > 1 else "build/microbench.json"
    try:
        figures, context = read(path)
    except (OSError, ValueError, KeyError) as error:
        sys.exit(f"table.py: {path}: {error}")
    if not figures:
        sys.exit(f"table.py: {path} holds no figures")
    print(f"{context['date']}, {context['num_cpus']} CPUs of {context['mhz_per_cpu']} MHz\n")
    print_figures(figures)
    print_targets(figures)
    wrong = below_floor(figures)
    if wrong:
        sys.exit(f"table.py: below the floor, so measured wrongly: {', '.join(wrong)}")


main()
