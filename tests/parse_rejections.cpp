// Every way to reject a head: the named reason, by the byte that proves it and none before, in every kernel, whatever follows.
#include <doctest/doctest.h>

#include <set>

#include "parse_support.hpp"

using namespace parse_test;

TEST_CASE("each rejected head is rejected by its last byte, with its reason") {
    for (const http::Kernel* kernel : usable_kernels()) {
        CAPTURE(kernel->name);
        for (const Rejection& rejection : rejections()) {
            CAPTURE(rejection.bytes);
            const std::string_view bytes = rejection.bytes;
            http::Request request;
            http::Resume resume{};
            CHECK(kernel->scan(bytes, request, resume, {}).status == rejection.status);
            for (std::size_t length = 0; length < bytes.size(); ++length) {
                CAPTURE(length);
                resume = {};
                CHECK(kernel->scan(bytes.substr(0, length), request, resume, {}).status == http::Status::incomplete);
            }
        }
    }
}

TEST_CASE("what follows does not change a rejection") {
    for (const http::Kernel* kernel : usable_kernels())
        for (const Rejection& rejection : rejections())
            for (std::string_view rest : {"\r\n\r\n"sv, " HTTP/1.1\r\nHost: h\r\n\r\n"sv, "GET / HTTP/1.1\r\nHost: h\r\n\r\n"sv}) {
                CAPTURE(kernel->name);
                CAPTURE(rejection.bytes);
                const std::string bytes = rejection.bytes + std::string(rest) + std::string(200, 'x');
                CHECK(scan_whole(*kernel, bytes) == scan_whole(*kernel, rejection.bytes));
                CHECK(parse_whole(*kernel, bytes) == parse_whole(*kernel, rejection.bytes));
            }
}

TEST_CASE("a rejection tells the method if it was complete") {
    for (const http::Kernel* kernel : usable_kernels()) {
        http::Request request;
        http::Resume resume{};
        CHECK(kernel->scan("HEAD /\x01", request, resume, {}).status == http::Status::bad_target);
        CHECK(request.method == http::Method::head);
        resume = {};
        CHECK(kernel->scan("HEAD\x01", request, resume, {}).status == http::Status::bad_method);
        CHECK(request.method == http::Method::unknown);
    }
}

TEST_CASE("every status that a head can get is in the tests, and has a reason and a code of its own kind") {
    std::set<http::Status> seen{http::Status::complete, http::Status::incomplete};
    for (const Rejection& rejection : rejections()) seen.insert(rejection.status);
    // The limits have their own file, bodies too.
    for (http::Status status : {http::Status::request_line_too_long, http::Status::head_too_long, http::Status::too_many_fields,
                                http::Status::bad_chunk_size, http::Status::bad_chunk_extension, http::Status::bad_chunk_end,
                                http::Status::chunk_overhead_too_long, http::Status::bad_trailer})
        seen.insert(status);
    std::set<std::string_view> reasons;
    for (int value = 0; value <= static_cast<int>(http::Status::bad_trailer); ++value) {
        const auto status = static_cast<http::Status>(value);
        CAPTURE(value);
        CHECK(seen.count(status) == 1);
        CHECK(reasons.insert(http::reason(status)).second);
        const std::set<int> codes{0, 400, 413, 414, 431, 501, 505};
        CHECK(codes.count(http::status_code(status)) == 1);
        CHECK((http::status_code(status) == 0) == (status == http::Status::complete || status == http::Status::incomplete));
    }
    CHECK(http::status_code(http::Status::unsupported_version) == 505);
    CHECK(http::status_code(http::Status::request_line_too_long) == 414);
    CHECK(http::status_code(http::Status::head_too_long) == 431);
    CHECK(http::status_code(http::Status::body_too_large) == 413);
    CHECK(http::status_code(http::Status::unknown_transfer_encoding) == 501);
    CHECK(http::status_code(http::Status::bad_host) == 400);
}
