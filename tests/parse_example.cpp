// The use that the header's file comment shows, compiled and run.
#include <doctest/doctest.h>

#include <string>

#include "../http_parse.hpp"

namespace {

std::string said;

void answer(const http::Request& request, std::string_view rest) {
    said = "answered " + std::string(request.target) + ", " + std::to_string(rest.size()) + " bytes left";
}

void refuse(int code) {
    said = "refused with " + std::to_string(code);
}

void serve(std::string_view input) {
    said = "waits";
    http::Request request;
    http::Resume resume{};
    http::Result result = http::scan(input, request, resume, http::Limits{});
    if (result.status == http::Status::complete)
        answer(request, input.substr(result.consumed));
    else if (result.status != http::Status::incomplete)
        refuse(http::status_code(result.status));
}

}  // namespace

TEST_CASE("the example of the file comment does what it says") {
    serve("GET /x HTTP/1.1\r\nHost: h\r\n\r\nGET");
    CHECK(said == "answered /x, 3 bytes left");
    serve("GET /x HTTP/1.1\r\nHost: h\r\n");
    CHECK(said == "waits");
    serve("GET /x HTTP/2.0\r\n");
    CHECK(said == "refused with 505");
}
