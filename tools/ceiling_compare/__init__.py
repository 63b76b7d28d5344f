"""The parts of tools/compare.

    cli        options, --list, --report, and what happens in which order
    workloads  what the clients do, and the article figures each workload repeats
    peers      the contestants: reading tools/peers/*/peer.ini, what is missing here
    session    running it all: rounds, progress, Ctrl-C
    results    results.json and results.csv, written and read
    analysis   medians, ratios, noise floor, ties, ranks, inversions, fairness, projection
    terminal   the tables in the terminal
    report     report.html; charts draws its figures

Arrows go downwards only; analysis knows nothing of how its findings are shown.
"""
