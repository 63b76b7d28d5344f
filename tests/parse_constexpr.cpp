// The scalar kernel at compile time: what these assertions say is checked by the compiler, and holds for the program as built.
#include <doctest/doctest.h>

#include <array>

#include "../http_parse.hpp"

namespace {

constexpr http::Status scan_status(std::string_view head) {
    http::Request request;
    http::Resume resume{};
    return http::scan(head, request, resume, {}).status;
}

constexpr bool arrives_byte_by_byte(std::string_view head) {
    http::Request request;
    http::Resume resume{};
    for (std::size_t length = 0; length < head.size(); ++length)
        if (http::scan(head.substr(0, length), request, resume, {}).status != http::Status::incomplete) return false;
    return http::scan(head, request, resume, {}).status == http::Status::complete && request.host == "h" && request.keep_alive;
}

constexpr std::size_t field_count(std::string_view head) {
    http::FullRequest request;
    std::array<http::Field, 4> fields;
    return http::parse(head, request, fields, {}).status == http::Status::complete ? request.fields.size() : 99;
}

constexpr http::Result body(std::string_view bytes) {
    http::Request request;
    request.chunked = true;
    http::Body body;
    if (http::Body::begin(body, request, 100).status != http::Status::incomplete) return {http::Status::complete, 0};
    return body.discard(bytes);
}

static_assert(scan_status("GET / HTTP/1.1\r\nHost: h\r\n\r\n") == http::Status::complete);
static_assert(scan_status("GET / HTTP/1.1\r\nHost: h\r\n\r") == http::Status::incomplete);
static_assert(scan_status("GET / HTTP/1.1\nHost: h\r\n\r\n") == http::Status::bad_version);
static_assert(arrives_byte_by_byte("\r\nGET /%41 HTTP/1.1\r\nHost: h\r\nX: y\r\n\r\n"));
static_assert(field_count("GET / HTTP/1.1\r\nHost: h\r\nX: y\r\n\r\n") == 2);
static_assert(body("5\r\nhello\r\n0\r\n\r\nGET").status == http::Status::complete);
static_assert(body("5\r\nhello\r\n0\r\n\r\nGET").consumed == 15);
static_assert(body("65\r\n").status == http::Status::body_too_large);
static_assert(http::status_code(http::Status::missing_host) == 400);
static_assert(!http::reason(http::Status::missing_host).empty());
static_assert(sizeof(http::Resume) <= 64 && sizeof(http::Body) == 16 && std::is_trivially_copyable_v<http::Body>);

}  // namespace

TEST_CASE("the constexpr kernel gives the same at run time") {
    CHECK(scan_status("GET / HTTP/1.1\r\nHost: h\r\n\r\n") == http::Status::complete);
    CHECK(arrives_byte_by_byte("\r\nGET /%41 HTTP/1.1\r\nHost: h\r\nX: y\r\n\r\n"));
}
