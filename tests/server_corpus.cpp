// Every input of tests/fuzz/corpus/ through its fuzz target, in each ordinary build: what the fuzzers once found stays found.
// The targets demand by aborting; an input that breaks a rule ends this program and so fails it.

#define LLVMFuzzerTestOneInput fuzz_body_input
#include "fuzz/body.cpp"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_connection_input
#include "fuzz/connection.cpp"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_options_input
#include "fuzz/options.cpp"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_paths_input
#include "fuzz/paths.cpp"
#undef LLVMFuzzerTestOneInput

#include <doctest/doctest.h>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace {

unsigned run_corpus(const char* name, int (*target)(const std::uint8_t*, std::size_t)) {
    unsigned inputs = 0;
    const std::filesystem::path folder =
        std::filesystem::path("tests/fuzz/corpus") / name;  // tests run from the root of the project
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
        std::ifstream file(entry.path(), std::ios::binary);
        const std::string input{std::istreambuf_iterator<char>(file), {}};
        INFO(entry.path().string());
        CHECK(target(reinterpret_cast<const std::uint8_t*>(input.data()), input.size()) == 0);
        ++inputs;
    }
    return inputs;
}

}  // namespace

TEST_CASE("what the fuzzers found stays found") {
    CHECK(run_corpus("body", fuzz_body_input) > 0);
    CHECK(run_corpus("connection", fuzz_connection_input) > 0);
    CHECK(run_corpus("options", fuzz_options_input) > 0);
    CHECK(run_corpus("paths", fuzz_paths_input) > 0);
}
