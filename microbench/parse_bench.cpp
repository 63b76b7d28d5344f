// The parser's microbenchmark: our kernels beside other people's parsers, on the same bytes, with the same compiler and flags.
//
//     make microbench                                                  all of it, as a table and as build/microbench.json
//     build/microbench/parse_bench --benchmark_filter=parse/wrk_40/    one input
//
// Before anything is timed, every parser must have found the same method, target, version, fields and end in every input. Beside
// the parsers stand two floors over the same bytes: memcpy, and memchr from line end to line end. Names are parse/INPUT/PARSER; a
// figure is the time of one iteration, which takes `requests` requests of `bytes` bytes in all.
#include <benchmark/benchmark.h>
#include <sched.h>

#include <cstdio>
#include <cstring>

#include "measure.hpp"

namespace {

using namespace microbench;

// Prints what a parser found otherwise than the first one; true if nothing.
bool agree() {
    bool same = true;
    for (const Input& input : inputs()) {
        const std::vector<Seen> expected = parsers().front().look(input);
        for (const Parser& parser : parsers()) {
            if (!parser.takes(input)) continue;
            const std::vector<Seen> found = parser.look(input);
            bool equal = found.size() == input.messages.size() && expected.size() == found.size();
            for (std::size_t i = 0; equal && i < found.size(); ++i)
                equal = found[i].method == expected[i].method && found[i].target == expected[i].target &&
                        found[i].minor == expected[i].minor && (!parser.reports_fields || found[i].fields == expected[i].fields);
            if (equal) continue;
            std::fprintf(stderr, "parse_bench: %s and %s disagree on %s\n", parser.name.c_str(), parsers().front().name.c_str(),
                         input.name.c_str());
            same = false;
        }
    }
    return same;
}

struct Copy {
    std::string to = std::string(std::size_t{1} << 20, '\0');
    std::size_t parse(const char* data, std::size_t size) {
        std::memcpy(to.data(), data, size);
        return size;
    }
    std::size_t drip(const char* data, std::size_t size) { return parse(data, size); }
    std::size_t body(const char* data, std::size_t size) { return parse(data, size); }
    Seen seen() const { return {}; }
};

struct LineEnds {
    const void* last = nullptr;
    std::size_t parse(const char* data, std::size_t size) {
        const char* const end = data + size;
        for (const char* at = data; at < end; ++at) {
            at = static_cast<const char*>(std::memchr(at, '\n', static_cast<std::size_t>(end - at)));
            if (at == nullptr) break;
            last = at;
        }
        return size;
    }
    std::size_t drip(const char* data, std::size_t size) { return parse(data, size); }
    std::size_t body(const char* data, std::size_t size) { return parse(data, size); }
    Seen seen() const { return {}; }
};

template <class Floor>
void add_floor(const char* name, const Input& input) {
    benchmark::RegisterBenchmark(("parse/" + input.name + "/" + name).c_str(), [input](benchmark::State& state) {
        Floor floor;
        measure(state, input, floor);
    });
}

// To the last CPU that this process may use: away from where interrupts usually go, and always the same.
void pin() {
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
    for (int cpu = CPU_SETSIZE - 1; cpu >= 0; --cpu) {
        if (!CPU_ISSET(static_cast<unsigned>(cpu), &allowed)) continue;
        CPU_ZERO(&allowed);
        CPU_SET(static_cast<unsigned>(cpu), &allowed);
        if (sched_setaffinity(0, sizeof allowed, &allowed) != 0) std::perror("parse_bench: sched_setaffinity");
        return;
    }
}

}  // namespace

int main(int argc, char** argv) {
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
    add_ours();
    add_picohttpparser();
    add_llhttp();
    add_http_parser();
    add_beast();
    if (!agree()) return 1;

    for (const Input& input : inputs()) {
        for (const Parser& parser : parsers())
            if (parser.takes(input))
                benchmark::RegisterBenchmark(("parse/" + input.name + "/" + parser.name).c_str(),
                                             [input, parser](benchmark::State& state) { parser.run(state, input); });
        add_floor<Copy>("memcpy", input);
        add_floor<LineEnds>("memchr", input);
    }
    pin();
    benchmark::RunSpecifiedBenchmarks();
}
