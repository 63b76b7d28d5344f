// The verdict is the same however the bytes are cut: whole, in two at every place, one by one, and in random pieces, also when the
// bytes move.
#include <doctest/doctest.h>

#include "parse_support.hpp"

using namespace parse_test;

namespace {

// Offers the bytes up to each of `cuts` and then all, in memory of its own each time, and drops what is done with, as a server
// does.
std::string scan_in_pieces(const http::Kernel& kernel, const std::string& bytes, const std::vector<std::size_t>& cuts) {
    http::FullRequest request;
    http::Resume resume{};
    std::array<http::Field, fields_max> fields;
    std::size_t dropped = 0;
    for (std::size_t i = 0; i <= cuts.size(); ++i) {
        const std::size_t end = i < cuts.size() ? cuts[i] : bytes.size();
        const std::string piece = bytes.substr(dropped, end - dropped);
        http::Result result = kernel.parse(piece, request, fields, resume, {});
        if (result.status == http::Status::incomplete) {
            dropped += result.consumed;
            if (end < bytes.size()) continue;
            result.consumed = dropped;
        } else if (result.status == http::Status::complete) {
            result.consumed += dropped;
        }
        return describe(result, request, std::string_view(piece.data() - dropped, bytes.size()));
    }
    return "no verdict";
}

std::vector<std::string> inputs() {
    std::vector<std::string> list = valid_heads();
    for (const Rejection& rejection : rejections()) list.push_back(rejection.bytes);
    list.push_back("\r\n\r\n\r\n");
    list.push_back("GET / HTTP/1.1\r\nHost: h\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n");
    return list;
}

}  // namespace

TEST_CASE("a head cut in two at any place has the outcome of the whole") {
    for (const http::Kernel* kernel : usable_kernels())
        for (const std::string& bytes : inputs()) {
            const std::string whole = scan_in_pieces(*kernel, bytes, {});
            for (std::size_t cut = 0; cut <= bytes.size(); ++cut) {
                const std::string pieces = scan_in_pieces(*kernel, bytes, {cut});
                if (pieces == whole) continue;
                CAPTURE(kernel->name);
                CAPTURE(bytes);
                CAPTURE(cut);
                CHECK(pieces == whole);
            }
        }
}

TEST_CASE("a head that arrives byte by byte, or in random pieces, has the outcome of the whole") {
    Random random(1);
    for (const http::Kernel* kernel : usable_kernels())
        for (const std::string& bytes : inputs()) {
            CAPTURE(kernel->name);
            CAPTURE(bytes);
            const std::string whole = scan_in_pieces(*kernel, bytes, {});
            std::vector<std::size_t> every;
            for (std::size_t cut = 0; cut < bytes.size(); ++cut) every.push_back(cut);
            CHECK(scan_in_pieces(*kernel, bytes, every) == whole);
            for (int round = 0; round < 8; ++round) {
                std::vector<std::size_t> some;
                for (std::size_t cut = random.below(40); cut < bytes.size(); cut += 1 + random.below(40)) some.push_back(cut);
                CHECK(scan_in_pieces(*kernel, bytes, some) == whole);
            }
        }
}

TEST_CASE("a head that has ended, well or not, leaves its Resume fresh for the next") {
    for (const http::Kernel* kernel : usable_kernels()) {
        http::FullRequest request;
        http::Resume resume{};
        std::array<http::Field, fields_max> fields;
        for (const std::string& bytes : inputs()) {
            CAPTURE(kernel->name);
            CAPTURE(bytes);
            const std::string_view half = std::string_view(bytes).substr(0, bytes.size() / 2);
            http::Resume blank{};
            if (kernel->scan(bytes, request, blank, {}).status == http::Status::incomplete) continue;
            CHECK(describe(kernel->parse(bytes, request, fields, resume, {}), request, bytes) == parse_whole(*kernel, bytes));
            static_cast<void>(kernel->parse(half, request, fields, resume, {}));
            CHECK(describe(kernel->parse(bytes, request, fields, resume, {}), request, bytes) == parse_whole(*kernel, bytes));
            static_cast<void>(kernel->scan(half, request, resume, {}));
            const http::Result result = kernel->scan(bytes, request, resume, {});
            CHECK(describe(result, static_cast<http::Request&>(request), bytes) == scan_whole(*kernel, bytes));
        }
    }
}

TEST_CASE("empty lines at the front are done with, and whether the caller drops them makes no difference") {
    for (const http::Kernel* kernel : usable_kernels()) {
        http::Request request;
        http::Resume resume{};
        http::Result result = kernel->scan("\r\n\r\n\r", request, resume, {});
        CHECK(result.status == http::Status::incomplete);
        CHECK(result.consumed == 4);
        result = kernel->scan("\r\nGET / HT", request, resume, {});  // dropped
        CHECK(result.status == http::Status::incomplete);
        CHECK(result.consumed == 2);
        result = kernel->scan("\r\nGET / HTTP/1.0\r\n\r\n", request, resume, {});  // kept
        CHECK(result.status == http::Status::complete);
        CHECK(result.consumed == 20);
        CHECK(request.target == "/");
    }
}

TEST_CASE("no proper prefix of a valid head is complete, and what follows a head is left alone") {
    for (const http::Kernel* kernel : usable_kernels())
        for (const std::string& bytes : valid_heads()) {
            for (std::size_t length = 0; length < bytes.size(); ++length) {
                http::Request request;
                http::Resume resume{};
                const http::Result result = kernel->scan(std::string_view(bytes).substr(0, length), request, resume, {});
                if (result.status == http::Status::incomplete) continue;
                CAPTURE(kernel->name);
                CAPTURE(bytes);
                CAPTURE(length);
                CHECK(result.status == http::Status::incomplete);
            }
            for (std::size_t more = 1; more < 80; ++more) {
                const std::string longer = bytes + std::string(more, '\n');
                if (parse_whole(*kernel, longer) == parse_whole(*kernel, bytes)) continue;
                CAPTURE(kernel->name);
                CAPTURE(bytes);
                CHECK(parse_whole(*kernel, longer) == parse_whole(*kernel, bytes));
            }
        }
}

TEST_CASE("no bytes at all are incomplete, with or without a pointer") {
    for (const http::Kernel* kernel : usable_kernels()) {
        CHECK(scan_whole(*kernel, {}).rfind("incomplete consumed=0", 0) == 0);
        CHECK(scan_whole(*kernel, std::string_view("GET", 0)).rfind("incomplete consumed=0", 0) == 0);
        http::FullRequest request;
        CHECK(http::parse({}, request, {}, {}).status == http::Status::incomplete);
    }
}
