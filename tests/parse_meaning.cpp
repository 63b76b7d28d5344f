// What a valid head says: method, target, host, framing, persistence, expectations, and every field of a full parse.
#include <doctest/doctest.h>

#include "parse_support.hpp"

using namespace parse_test;

namespace {

// The request that every kernel agrees on.
http::Request scanned(std::string_view head) {
    http::Request first;
    for (const http::Kernel* kernel : usable_kernels()) {
        http::Request request;
        http::Resume resume{};
        const http::Result result = kernel->scan(head, request, resume, {});
        CAPTURE(kernel->name);
        CAPTURE(head);
        CHECK(result.status == http::Status::complete);
        CHECK(result.consumed == head.size());
        if (kernel == usable_kernels().front()) first = request;
    }
    return first;
}

http::Request with(std::string_view lines, const char* version = "1.1") {
    static std::string head;
    head = "POST / HTTP/"s + version + "\r\nHost: h\r\n" + std::string(lines) + "\r\n";
    return scanned(head);
}

}  // namespace

TEST_CASE("methods are known by their exact name") {
    const std::pair<const char*, http::Method> names[] = {{"GET", http::Method::get},
                                                          {"HEAD", http::Method::head},
                                                          {"POST", http::Method::post},
                                                          {"PUT", http::Method::put},
                                                          {"PATCH", http::Method::patch},
                                                          {"DELETE", http::Method::delete_},
                                                          {"OPTIONS", http::Method::options},
                                                          {"TRACE", http::Method::trace},
                                                          {"get", http::Method::unknown},
                                                          {"GETS", http::Method::unknown},
                                                          {"GE", http::Method::unknown},
                                                          {"HEAx", http::Method::unknown},
                                                          {"POSTS", http::Method::unknown},
                                                          {"DELETe", http::Method::unknown},
                                                          {"X", http::Method::unknown},
                                                          {"PROPFIND", http::Method::unknown},
                                                          {"OPTIONSOPTIONS", http::Method::unknown}};
    for (const auto& [name, method] : names) CHECK(scanned(name + " / HTTP/1.1\r\nHost: h\r\n\r\n"s).method == method);
    CHECK(scanned("CONNECT h:1 HTTP/1.1\r\nHost: h\r\n\r\n").method == http::Method::connect);
}

TEST_CASE("the host is that of the target, if it has one, else that of the field") {
    CHECK(scanned("GET /x HTTP/1.1\r\nHost:  a.test:80 \r\n\r\n").host == "a.test:80");
    CHECK(scanned("GET http://b.test/x HTTP/1.1\r\nHost: a.test\r\n\r\n").host == "b.test");
    CHECK(scanned("GET http://b.test:8/x HTTP/1.1\r\nHost: a.test\r\n\r\n").target == "http://b.test:8/x");
    CHECK(scanned("GET / HTTP/1.0\r\n\r\n").host.data() == nullptr);
    CHECK(scanned("GET / HTTP/1.1\r\nHost:\r\n\r\n").host.data() != nullptr);
}

TEST_CASE("a higher minor version counts as 1.1") {
    CHECK(scanned("GET / HTTP/1.0\r\n\r\n").version_minor == 0);
    for (char minor = '1'; minor <= '9'; ++minor)
        CHECK(scanned("GET / HTTP/1."s + minor + "\r\nHost: h\r\n\r\n").version_minor == 1);
}

TEST_CASE("content length: equal numbers are one, empty list elements are none") {
    CHECK_FALSE(with("").has_content_length);
    CHECK(with("Content-Length: 0\r\n").has_content_length);
    CHECK(with("Content-Length: \t 0042 \t\r\n").content_length == 42);
    CHECK(with("Content-Length: 7,,7\r\ncontent-length:7\r\n").content_length == 7);
    CHECK(with("Content-Length: 18446744073709551615\r\n").content_length == 18446744073709551615u);
    CHECK_FALSE(with("Content-Lengths: 7\r\nContent_Length: 8\r\n").has_content_length);
}

TEST_CASE("chunked is known without case and with empty list elements around it") {
    CHECK(with("Transfer-Encoding: chunked\r\n").chunked);
    CHECK(with("tRANSFER-eNCODING:\t,, CHUNKED ,\t\r\n").chunked);
    CHECK_FALSE(with("Transfer_Encoding: chunked\r\n").chunked);
}

TEST_CASE("persistence follows version and the Connection list") {
    CHECK(with("").keep_alive);
    CHECK_FALSE(with("Connection: close\r\n").keep_alive);
    CHECK_FALSE(with("Connection: foo,ClOsE,bar\r\n").keep_alive);
    CHECK_FALSE(with("Connection: keep-alive\r\nConnection: close\r\n").keep_alive);
    CHECK(with("Connection: closed\r\nConnection: clos\r\nX-Connection: close\r\n").keep_alive);
    CHECK_FALSE(with("", "1.0").keep_alive);
    CHECK(with("Connection: Keep-Alive\r\n", "1.0").keep_alive);
    CHECK(with("Connection: Keep-Alive\r\n", "1.0").says_keep_alive);
    CHECK_FALSE(with("Connection: keep-alive, close\r\n", "1.0").keep_alive);
    CHECK_FALSE(with("Proxy-Connection: keep-alive\r\n", "1.0").keep_alive);
    CHECK(with("Connection: keep-alive\r\n").says_keep_alive);
    CHECK_FALSE(with("Connection: upgrade\r\n").says_keep_alive);
}

TEST_CASE("expectations: 100-continue is known from 1.1 on, everything else is another") {
    CHECK(with("Expect: 100-Continue\r\n").expect_continue);
    CHECK_FALSE(with("Expect: 100-continue\r\n").expect_other);
    CHECK_FALSE(with("Expect: 100-continue\r\n", "1.0").expect_continue);
    CHECK(with("Expect: something\r\n").expect_other);
    CHECK(with("Expect: 100-continue, other=1\r\n").expect_other);
    CHECK_FALSE(with("Expect:\r\n").expect_other);
}

TEST_CASE("conditions are kept, the first of each") {
    const http::Request request = with("If-None-Match: \"a\"\r\nIf-None-Match: \"b\"\r\nIf-Modified-Since: Sat, 01 Jan 2000\r\n");
    CHECK(request.if_none_match == "\"a\"");
    CHECK(request.if_modified_since == "Sat, 01 Jan 2000");
    CHECK(with("").if_none_match.data() == nullptr);
}

TEST_CASE("a full parse gives every field in order, trimmed, with its case") {
    const std::string_view head = "\r\nGET /x HTTP/1.1\r\nHost: h\r\nX-A:\t a b \t\r\nx-a:\r\nX-Blank: \t \r\nY:z:\xff\r\n\r\nrest";
    for (const http::Kernel* kernel : usable_kernels()) {
        CAPTURE(kernel->name);
        http::FullRequest request;
        std::array<http::Field, 8> fields;
        http::Resume resume{};
        const http::Result result = kernel->parse(head, request, fields, resume, {});
        REQUIRE(result.status == http::Status::complete);
        CHECK(result.consumed == head.size() - 4);
        CHECK(request.method_name == "GET");
        CHECK(request.target == "/x");
        CHECK(request.host == "h");
        REQUIRE(request.fields.size() == 5);
        const std::pair<std::string_view, std::string_view> expected[] = {
            {"Host", "h"}, {"X-A", "a b"}, {"x-a", ""}, {"X-Blank", ""}, {"Y", "z:\xff"}};
        for (std::size_t i = 0; i < 5; ++i) {
            CHECK(request.fields[i].name == expected[i].first);
            CHECK(request.fields[i].value == expected[i].second);
            CHECK(request.fields[i].value.data() != nullptr);
        }
    }
}
