// No kernel touches a byte before or behind its input: each input, and each of its prefixes, stands against a page that may not be
// read.
#include <doctest/doctest.h>

#include "parse_support.hpp"

using namespace parse_test;

TEST_CASE("heads flush against a forbidden page, at either end, have the same outcome") {
    const GuardedPages pages(2);
    for (const http::Kernel* kernel : usable_kernels()) {
        const auto check = [&](std::string_view bytes) {
            for (std::size_t length = 0; length <= bytes.size(); ++length) {
                const std::string_view prefix = bytes.substr(0, length);
                const std::string expected = parse_whole(*kernel, prefix);
                for (std::string_view placed : {pages.at_end(prefix), pages.at_begin(prefix)}) {
                    const std::string outcome = parse_whole(*kernel, placed);
                    const std::string minimal = scan_whole(*kernel, placed);
                    if (outcome == expected && expected.rfind(minimal, 0) == 0) continue;
                    CAPTURE(kernel->name);
                    CAPTURE(prefix);
                    CHECK(outcome == expected);
                    CHECK(minimal == expected);
                }
            }
        };
        for (const std::string& bytes : valid_heads()) check(bytes);
        for (const Rejection& rejection : rejections()) check(rejection.bytes);
    }
}

TEST_CASE("the input is never written") {
    const GuardedPages pages(1);
    for (const http::Kernel* kernel : usable_kernels())
        for (const std::string& bytes : valid_heads()) {
            if (bytes.size() > pages.page()) continue;
            const std::string_view placed = pages.at_end(bytes);
            REQUIRE(mprotect(pages.base(), pages.page(), PROT_READ) == 0);
            CHECK(parse_whole(*kernel, placed).rfind("complete", 0) == 0);
            pages.allow();
        }
}
