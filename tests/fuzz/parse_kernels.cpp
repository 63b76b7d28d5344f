// Fuzz target: every kernel says of any bytes what the scalar one says, whole, in two pieces, and under a limit.
//
// The first two bytes of the input choose where it is cut and what head_bytes_max is; the rest is what is parsed.
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "../parse_support.hpp"

namespace {

// In memory of its own size, so that AddressSanitizer sees a load beyond the end.
std::string outcome(const http::Kernel& kernel, std::string_view bytes, std::size_t cut, const http::Limits& limits) {
    std::array<http::Field, parse_test::fields_max> fields;
    http::FullRequest request;
    http::Resume resume{};
    std::size_t dropped = 0;
    if (cut < bytes.size()) {
        const std::vector<char> front(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(cut));
        const http::Result result = kernel.parse({front.data(), front.size()}, request, fields, resume, limits);
        if (result.status != http::Status::incomplete) return parse_test::describe(result, request, {front.data(), front.size()});
        dropped = result.consumed;
    }
    const std::vector<char> rest(bytes.begin() + static_cast<std::ptrdiff_t>(dropped), bytes.end());
    http::Result result = kernel.parse({rest.data(), rest.size()}, request, fields, resume, limits);
    if (result.status == http::Status::complete || result.status == http::Status::incomplete) result.consumed += dropped;
    return parse_test::describe(result, request, std::string_view(rest.data() - dropped, bytes.size()));
}

void expect_equal(const std::string& expected, const std::string& found, std::string_view what) {
    if (expected == found) return;
    std::fprintf(stderr, "%.*s\n  scalar, whole: %s\n  here:          %s\n", static_cast<int>(what.size()), what.data(),
                 expected.c_str(), found.c_str());
    std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size < 2) return 0;
    const std::string_view bytes(reinterpret_cast<const char*>(data) + 2, size - 2);
    const std::size_t cut = data[0] * bytes.size() / 256;
    const http::Limits whole{}, limited{data[1] * std::size_t{4}};
    for (const http::Limits& limits : {whole, limited}) {
        const std::string expected = outcome(http::kernels().back(), bytes, bytes.size(), limits);
        for (const http::Kernel* kernel : parse_test::usable_kernels()) {
            expect_equal(expected, outcome(*kernel, bytes, bytes.size(), limits), std::string(kernel->name) + ", whole");
            expect_equal(expected, outcome(*kernel, bytes, cut, limits),
                         std::string(kernel->name) + ", cut at " + std::to_string(cut));
            const std::string minimal = parse_test::scan_whole(*kernel, bytes, limits);
            if (expected.rfind(minimal, 0) != 0 && expected.rfind("there are too many fields", 0) != 0)
                expect_equal(expected, minimal, std::string(kernel->name) + ", minimal");
        }
    }
    return 0;
}
