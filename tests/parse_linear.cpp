// Heads that arrive byte by byte cost linear work. Time is not asked: pages whose lines are done with become forbidden while the
// rest arrives, so a kernel that goes back to them does not get away with it.
#include <doctest/doctest.h>

#include "parse_support.hpp"

using namespace parse_test;

namespace {

// Offers bytes one by one; what lies before the line in progress is forbidden page by page.
http::Status drip(const http::Kernel& kernel, const GuardedPages& pages, std::string_view bytes) {
    pages.allow();
    const std::string_view placed = pages.at_begin(bytes);
    http::Request request;
    http::Resume resume{};
    std::size_t line = 0;
    for (std::size_t length = 1; length <= placed.size(); ++length) {
        const http::Result result = kernel.scan(placed.substr(0, length), request, resume, {});
        if (result.status != http::Status::incomplete) return result.status;
        if (bytes[length - 1] == '\n') line = length;
        pages.forbid_front(line);
    }
    return http::Status::incomplete;
}

}  // namespace

TEST_CASE("bytes of finished lines are not looked at again") {
    const GuardedPages pages(5);
    std::string head = "GET / HTTP/1.1\r\nHost: h\r\n";
    while (head.size() < 16000)
        head += "X-Field-" + std::to_string(head.size()) + ": " + std::string(head.size() % 90, 'v') + "\r\n";
    head += "\r\n";
    for (const http::Kernel* kernel : usable_kernels()) {
        CAPTURE(kernel->name);
        CHECK(drip(*kernel, pages, head) == http::Status::complete);
    }
    pages.allow();
}

TEST_CASE("the scan resumes behind what it has examined") {
    const std::string head =
        "GET /" + std::string(300, 'p') + " HTTP/1.1\r\nHost: h\r\nCookie: " + std::string(900, 'c') + "\r\n\r\n";
    for (const http::Kernel* kernel : usable_kernels()) {
        http::Request request;
        http::Resume resume{};
        for (std::size_t length = 1; length < head.size(); ++length) {
            CHECK(kernel->scan(std::string_view(head).substr(0, length), request, resume, {}).status == http::Status::incomplete);
            CHECK(resume.at == length);
        }
    }
}
