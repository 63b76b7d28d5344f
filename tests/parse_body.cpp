// Where a body ends: Content-Length, chunks with extensions and trailers, every refusal by the byte that proves it, in every piece.
#include <doctest/doctest.h>

#include "parse_support.hpp"

using namespace parse_test;

namespace {

constexpr std::uint64_t body_bytes_max = 1000;

http::Request chunked() {
    http::Request request;
    request.chunked = true;
    return request;
}

// Feeds pieces of `step` bytes; consumed counts from the front of all bytes.
http::Result discard_by(std::string_view bytes, std::size_t step, const http::Request& request,
                        std::uint64_t limit = body_bytes_max) {
    http::Body body;
    http::Result result = http::Body::begin(body, request, limit);
    std::size_t at = 0;
    while (result.status == http::Status::incomplete && at < bytes.size()) {
        const std::string_view piece = bytes.substr(at, step);
        result = body.discard(piece);
        at += result.consumed;
        CHECK(body.done() == (result.status == http::Status::complete));
        if (result.status == http::Status::incomplete) CHECK(result.consumed == piece.size());
    }
    return {result.status, at};
}

std::string one_byte_chunks(int count) {
    std::string bytes;
    for (int i = 0; i < count; ++i) bytes += "1\r\nx\r\n";
    return bytes + "0\r\n\r\n";
}

}  // namespace

TEST_CASE("content of a known length ends there") {
    http::Request request;
    http::Body body;
    CHECK(http::Body{}.done());
    CHECK(http::Body::begin(body, request, 0).status == http::Status::complete);
    CHECK(body.done());
    request.content_length = 10;
    for (std::size_t step = 1; step <= 12; ++step) {
        const http::Result result = discard_by("0123456789GET", step, request);
        CHECK(result.status == http::Status::complete);
        CHECK(result.consumed == 10);
    }
    CHECK(discard_by("012345678", 4, request).status == http::Status::incomplete);
    CHECK(http::Body::begin(body, request, 10).status == http::Status::incomplete);
    CHECK(http::Body::begin(body, request, 9).status == http::Status::body_too_large);
    request.content_length = ~std::uint64_t{0};
    CHECK(http::Body::begin(body, request, ~std::uint64_t{0}).status == http::Status::body_too_large);
    request.content_length = http::body_bytes_limit;
    CHECK(http::Body::begin(body, request, ~std::uint64_t{0}).status == http::Status::incomplete);
}

TEST_CASE("chunked content ends behind its last chunk and trailers, in whatever pieces it comes") {
    const std::string bodies[] = {
        "0\r\n\r\n",
        "5\r\nhello\r\n0\r\n\r\n",
        "5\r\nhello\r\n6\r\n world\r\n000\r\n\r\n",
        "a\r\n0123456789\r\nA\r\n0123456789\r\n0\r\n\r\n",
        "0005\r\nhello\r\n0\r\n\r\n",
        std::string(40, '0') + "5\r\nhello\r\n0\r\n\r\n",
        "5;a\r\nhello\r\n0;x=y\r\n\r\n",
        "5;a=\"b;c\\\"d\"\r\nhello\r\n0\r\n\r\n",
        "5 ; a = 1\t;b=\"\xff\t\" ;c\r\nhello\r\n0\r\n\r\n",
        "5\r\nhello\r\n0\r\nX-T: v\r\nX-U:\r\nContent-Length: 9\r\n\r\n",
        "7\r\n0\r\n\r\n\r\n\r\n0\r\n\r\n",
        one_byte_chunks(200),
    };
    for (const std::string& bytes : bodies)
        for (std::size_t step = 1; step <= bytes.size() + 5; ++step) {
            CAPTURE(bytes);
            CAPTURE(step);
            const http::Result result = discard_by(bytes + "GET /", step, chunked());
            CHECK(result.status == http::Status::complete);
            CHECK(result.consumed == bytes.size());
        }
}

TEST_CASE("no proper prefix of chunked content is complete") {
    const std::string_view bytes = "5;a=\"b\"\r\nhello\r\n0\r\nX: y\r\n\r\n";
    for (std::size_t length = 0; length < bytes.size(); ++length)
        CHECK(discard_by(bytes.substr(0, length), length + 1, chunked()).status == http::Status::incomplete);
}

TEST_CASE("bad chunks are refused by the byte that proves it") {
    using http::Status;
    const Rejection refused[] = {
        {Status::bad_chunk_size, "-"},
        {Status::bad_chunk_size, "x"},
        {Status::bad_chunk_size, "\r"},
        {Status::bad_chunk_size, ";"},
        {Status::bad_chunk_size, " "},
        {Status::bad_chunk_size, "5."},
        {Status::bad_chunk_size, "5\n"},
        {Status::bad_chunk_size, "5\xb2"},
        {Status::bad_chunk_size, "5\0"s},
        {Status::bad_chunk_size, "10000000000000005"},
        {Status::bad_chunk_size, "00ffffffffffffffff0"},
        {Status::body_too_large, "ffffffffffffffff\r"},
        {Status::body_too_large, "8000000000000000;"},
        {Status::body_too_large, "80000000 "},
        {Status::body_too_large, "3e9\r"},
        {Status::body_too_large, "3e8\r\n" + std::string(1000, 'x') + "\r\n1\r"},
        {Status::bad_chunk_extension, "5 \r"},
        {Status::bad_chunk_extension, "5;\r"},
        {Status::bad_chunk_extension, "5;a("},
        {Status::bad_chunk_extension, "5;a\0"s},
        {Status::bad_chunk_extension, "5;a\n"},
        {Status::bad_chunk_extension, "5;a \r"},
        {Status::bad_chunk_extension, "5;a=\r"},
        {Status::bad_chunk_extension, "5;a=;"},
        {Status::bad_chunk_extension, "5;a=b="},
        {Status::bad_chunk_extension, "5;a=\"b\r"},
        {Status::bad_chunk_extension, "5;a=\"\\\r"},
        {Status::bad_chunk_extension, "5;a=\"b\"c"},
        {Status::bad_chunk_end, "5\rh"},
        {Status::bad_chunk_end, "5;a\rb"},
        {Status::bad_chunk_end, "5\r\nhello0"},
        {Status::bad_chunk_end, "5\r\nhello\n"},
        {Status::bad_chunk_end, "5\r\nhello\r0"},
        {Status::bad_trailer, "0\r\n\n"},
        {Status::bad_trailer, "0\r\n "},
        {Status::bad_trailer, "0\r\n:"},
        {Status::bad_trailer, "0\r\nGET "},
        {Status::bad_trailer, "0\r\nX\r"},
        {Status::bad_trailer, "0\r\nX: a\n"},
        {Status::bad_trailer, "0\r\nX: a\x01"},
        {Status::bad_trailer, "0\r\nX: a\rb"},
        {Status::bad_trailer, "0\r\nX: a\r\n "},
        {Status::bad_trailer, "0\r\n\rX"},
    };
    for (const Rejection& rejection : refused)
        for (std::size_t step = 1; step <= rejection.bytes.size() + 3; ++step) {
            const std::string& text = rejection.bytes;
            CAPTURE(text);
            CAPTURE(step);
            const http::Result result = discard_by(text + "!!!", step, chunked());
            CHECK(result.status == rejection.status);
            CHECK(result.consumed == text.size() - 1);
            CHECK(discard_by(std::string_view(text).substr(0, text.size() - 1), step, chunked()).status ==
                  http::Status::incomplete);
        }
}

TEST_CASE("the content limit counts data and nothing else") {
    CHECK(discard_by(one_byte_chunks(1000), 7, chunked()).status == http::Status::complete);
    CHECK(discard_by(one_byte_chunks(1001), 7, chunked()).status == http::Status::body_too_large);
    CHECK(discard_by("0\r\n\r\n", 1, chunked(), 0).status == http::Status::complete);
}

TEST_CASE("extensions, leading zeros and trailers are bounded together") {
    const auto spent = [](std::size_t zeros, std::size_t extension, std::size_t trailer) {
        std::string bytes = "1" + std::string(extension, ' ');  // the blanks and ";a" are the extension
        bytes = std::string(zeros + 1, '0') + bytes + ";a\r\nx\r\n0\r\nT:" + std::string(trailer, 'v') + "\r\n\r\n";
        return discard_by(bytes, 64, chunked()).status;
    };
    constexpr std::size_t fixed = 3 + 3;  // ";a" and "T:", each with its CR
    constexpr std::size_t most = http::chunk_overhead_bytes_max - fixed;
    CHECK(spent(most, 0, 0) == http::Status::complete);
    CHECK(spent(most + 1, 0, 0) == http::Status::chunk_overhead_too_long);
    CHECK(spent(0, most, 0) == http::Status::complete);
    CHECK(spent(0, most + 1, 0) == http::Status::chunk_overhead_too_long);
    CHECK(spent(0, 0, most) == http::Status::complete);
    CHECK(spent(0, 0, most + 1) == http::Status::chunk_overhead_too_long);
    CHECK(spent(most / 2, most / 4, most - most / 2 - most / 4) == http::Status::complete);
    CHECK(spent(most / 2, most / 4, most - most / 2 - most / 4 + 1) == http::Status::chunk_overhead_too_long);
}

TEST_CASE("many plain chunks spend no overhead") {
    CHECK(discard_by(one_byte_chunks(100000), 4096, chunked(), 1 << 20).status == http::Status::complete);
}
