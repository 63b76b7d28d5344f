// Heads at, below and above head_bytes_max, more fields than there is room for, and empty lines that no limit counts.
#include <doctest/doctest.h>

#include "parse_support.hpp"

using namespace parse_test;

namespace {

http::Status scan_by(const http::Kernel& kernel, std::string_view bytes, std::size_t step, http::Limits limits) {
    http::Request request;
    http::Resume resume{};
    for (std::size_t length = step;; length += step) {
        const http::Result result = kernel.scan(bytes.substr(0, length), request, resume, limits);
        if (result.status != http::Status::incomplete || length >= bytes.size()) return result.status;
    }
}

}  // namespace

TEST_CASE("a head of head_bytes_max is taken, one byte more is not, in whatever pieces it comes") {
    const std::string head = "GET / HTTP/1.1\r\nHost: h\r\nX: " + std::string(100, 'v') + "\r\n\r\n";
    for (const http::Kernel* kernel : usable_kernels())
        for (std::size_t step : {std::size_t{1}, std::size_t{7}, head.size() * 2}) {
            CAPTURE(kernel->name);
            CAPTURE(step);
            CHECK(scan_by(*kernel, head, step, {head.size()}) == http::Status::complete);
            CHECK(scan_by(*kernel, head + head, step, {head.size()}) == http::Status::complete);
            CHECK(scan_by(*kernel, head, step, {head.size() - 1}) == http::Status::head_too_long);
            CHECK(scan_by(*kernel, head, step, {16}) == http::Status::head_too_long);
            CHECK(scan_by(*kernel, head, step, {15}) == http::Status::request_line_too_long);
            CHECK(scan_by(*kernel, head, step, {1}) == http::Status::request_line_too_long);
            CHECK(scan_by(*kernel, head, step, {0}) == http::Status::request_line_too_long);
            CHECK(scan_by(*kernel, head, step, {~std::size_t{0}}) == http::Status::complete);
        }
}

TEST_CASE("bytes beyond the limit do not matter, an error before it does") {
    const std::string line = "GET / HTTP/1.1\r\n";
    for (const http::Kernel* kernel : usable_kernels()) {
        CAPTURE(kernel->name);
        for (std::size_t step : {std::size_t{1}, std::size_t{1000}}) {
            CHECK(scan_by(*kernel, line + std::string(50, 'X') + "\x01", step, {66}) == http::Status::head_too_long);
            CHECK(scan_by(*kernel, line + std::string(49, 'X') + "\x01", step, {66}) == http::Status::bad_field_name);
            CHECK(scan_by(*kernel, line + std::string(49, 'X') + "\x01", step, {65}) == http::Status::head_too_long);
        }
    }
}

TEST_CASE("the default limit takes a request line of 8000 octets") {
    const std::string head = "GET /" + std::string(8000 - 14, 'p') + " HTTP/1.1\r\nHost: h\r\n\r\n";
    for (const http::Kernel* kernel : usable_kernels()) CHECK(scan_by(*kernel, head, head.size(), {}) == http::Status::complete);
}

TEST_CASE("a full parse refuses more fields than it has room for, as soon as the next one begins") {
    const std::string_view head = "GET / HTTP/1.1\r\nHost: h\r\nA: 1\r\nB: 2\r\n\r\n";
    for (const http::Kernel* kernel : usable_kernels()) {
        CAPTURE(kernel->name);
        std::array<http::Field, 3> fields;
        http::FullRequest request;
        for (std::size_t room = 0; room <= 3; ++room) {
            http::Resume resume{};
            const http::Result result = kernel->parse(head, request, std::span(fields).first(room), resume, {});
            CHECK(result.status == (room < 3 ? http::Status::too_many_fields : http::Status::complete));
        }
        http::Resume resume{};
        CHECK(kernel->parse(head.substr(0, 31), request, std::span(fields).first(2), resume, {}).status ==
              http::Status::incomplete);
        CHECK(kernel->parse(head.substr(0, 32), request, std::span(fields).first(2), resume, {}).status ==
              http::Status::too_many_fields);
    }
}

TEST_CASE("empty lines before a head do not count against its limit") {
    std::string bytes;
    for (int i = 0; i < 100; ++i) bytes += "\r\n";
    bytes += "GET / HTTP/1.0\r\n\r\n";
    for (const http::Kernel* kernel : usable_kernels()) {
        http::Request request;
        http::Resume resume{};
        const http::Result result = kernel->scan(bytes, request, resume, {18});
        CHECK(result.status == http::Status::complete);
        CHECK(result.consumed == bytes.size());
    }
}
