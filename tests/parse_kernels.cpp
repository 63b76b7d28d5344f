// All kernels give one outcome on every input: valid heads, rejected ones, and both with random damage. Any kernel can be forced by
// name.
#include <doctest/doctest.h>

#include "parse_support.hpp"

using namespace parse_test;

namespace {

// Changes, inserts, removes or repeats a few bytes; most of what is put in has a meaning somewhere in a head.
std::string damaged(std::string bytes, Random& random) {
    const std::string_view meaningful = "\r\n \t:,;%/?#[]@\"\\\x7f\x80\xff\x01HhCcTtEeIi019-=(";
    for (std::uint64_t changes = 1 + random.below(3); changes > 0; --changes) {
        if (bytes.empty()) break;
        const std::size_t at = random.below(bytes.size());
        const char value =
            random.below(8) == 0 ? static_cast<char>(random.below(256)) : meaningful[random.below(meaningful.size())];
        switch (random.below(4)) {
        case 0: bytes[at] = value; break;
        case 1: bytes.insert(at, 1, value); break;
        case 2: bytes.erase(at, 1 + random.below(3)); break;
        default: bytes.insert(at, bytes.substr(random.below(bytes.size()), random.below(20))); break;
        }
    }
    return bytes;
}

void check_equal(std::string_view bytes) {
    const http::Kernel& scalar = http::kernels().back();
    const std::string scan = scan_whole(scalar, bytes);
    const std::string parse = parse_whole(scalar, bytes);
    for (const http::Kernel* kernel : usable_kernels()) {
        const std::string other_scan = scan_whole(*kernel, bytes);
        const std::string other_parse = parse_whole(*kernel, bytes);
        if (other_scan == scan && other_parse == parse) continue;
        CAPTURE(kernel->name);
        CAPTURE(bytes);
        CHECK(other_scan == scan);
        CHECK(other_parse == parse);
    }
}

}  // namespace

TEST_CASE("every kernel gives the scalar kernel's outcome on the corpus, also with other requests behind it") {
    CHECK(http::kernels().back().name == "scalar");
    for (const std::string& bytes : valid_heads()) {
        check_equal(bytes);
        check_equal(bytes + bytes);
        check_equal(bytes + std::string(100, '\xff'));
    }
    for (const Rejection& rejection : rejections()) {
        check_equal(rejection.bytes);
        check_equal(rejection.bytes + valid_heads()[1]);
    }
}

TEST_CASE("every kernel gives the scalar kernel's outcome on damaged heads") {
    Random random(7);
    const std::vector<std::string>& heads = valid_heads();
    for (int round = 0; round < 60000; ++round) {
        const std::string& head = round % 2 == 0 ? heads[random.below(20)] : heads[random.below(heads.size())];
        check_equal(damaged(head, random));
    }
}

TEST_CASE("every kernel gives the scalar kernel's outcome for any byte anywhere") {
    const std::string& head = valid_heads()[4];
    for (std::size_t at = 0; at < head.size(); ++at)
        for (int value = 0; value < 256; ++value) {
            std::string bytes = head;
            bytes[at] = static_cast<char>(value);
            check_equal(bytes);
        }
}

TEST_CASE("limits cut every kernel off at the same place") {
    const std::string& head = valid_heads()[19];
    for (std::size_t limit = 0; limit <= head.size() + 1; ++limit)
        for (const http::Kernel* kernel : usable_kernels()) {
            const std::string expected = scan_whole(http::kernels().back(), head, {limit});
            if (scan_whole(*kernel, head, {limit}) == expected) continue;
            CAPTURE(kernel->name);
            CAPTURE(limit);
            CHECK(scan_whole(*kernel, head, {limit}) == expected);
        }
}

TEST_CASE("a kernel is chosen at start-up and can be forced by name") {
    const std::string_view chosen = http::kernel().name;
    CHECK(http::kernel().supported());
    CHECK(chosen == usable_kernels().front()->name);
    for (const http::Kernel& kernel : http::kernels()) {
        CAPTURE(kernel.name);
        CHECK(http::use_kernel(kernel.name) == kernel.supported());
        if (!kernel.supported()) continue;
        CHECK(http::kernel().name == kernel.name);
        http::Request request;
        http::Resume resume{};
        CHECK(http::scan("GET / HTTP/1.0\r\n\r\n", request, resume, {}).status == http::Status::complete);
    }
    CHECK_FALSE(http::use_kernel("mmx"));
    CHECK(http::use_kernel(chosen));
}
