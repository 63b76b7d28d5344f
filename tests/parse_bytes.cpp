// Every byte value in each kind of place, against sets written out from the grammar, at places that fall differently into blocks.
#include <doctest/doctest.h>

#include <functional>

#include "parse_support.hpp"

using namespace parse_test;

namespace {

const std::string alnum = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const std::string token = alnum + "!#$%&'*+-.^_`|~";      // RFC 9110 5.6.2
const std::string pchar = alnum + "-._~!$&'()*+,;=:@/?";  // RFC 3986 3.3 and 3.4, without "%"
const std::string reg_name = alnum + "-._~!$&'()*+,;=";   // RFC 3986 3.2.2, without "%"

bool in(const std::string& set, int value) {
    return set.find(static_cast<char>(value)) != std::string::npos;
}
bool is_value(int value) {
    return value == '\t' || value == ' ' || (value > 0x20 && value != 0x7f);
}

struct Place {
    const char* name;
    std::string before, after;
    std::function<bool(int)> allowed;
};

const std::vector<Place>& places() {
    static const std::vector<Place> list{
        {"method", "G", "T / HTTP/1.1\r\nHost: h\r\n\r\n", [](int c) { return in(token, c); }},
        {"target", "GET /a", "b HTTP/1.1\r\nHost: h\r\n\r\n", [](int c) { return in(pchar, c); }},
        {"behind a percent", "GET /%", "0 HTTP/1.1\r\nHost: h\r\n\r\n", [](int c) { return in("0123456789abcdefABCDEF", c); }},
        {"HTTP", "GET / HTT", "/1.1\r\nHost: h\r\n\r\n", [](int c) { return c == 'P'; }},
        {"major version", "GET / HTTP/", ".1\r\nHost: h\r\n\r\n", [](int c) { return c == '1'; }},
        {"minor version", "GET / HTTP/1.", "\r\nHost: h\r\n\r\n", [](int c) { return c >= '0' && c <= '9'; }},
        {"behind the version", "GET / HTTP/1.1", "\nHost: h\r\n\r\n", [](int c) { return c == '\r'; }},
        {"end of the request line", "GET / HTTP/1.1\r", "Host: h\r\n\r\n", [](int c) { return c == '\n'; }},
        {"first byte of a name", "GET / HTTP/1.1\r\nHost: h\r\n", "X: y\r\n\r\n", [](int c) { return in(token, c); }},
        {"inside a name", "GET / HTTP/1.1\r\nHost: h\r\nX", "X: y\r\n\r\n", [](int c) { return in(token, c) || c == ':'; }},
        {"behind a name", "GET / HTTP/1.1\r\nHost: h\r\nX", "\r\n\r\n", [](int c) { return c == ':'; }},
        {"first byte of a value", "GET / HTTP/1.1\r\nHost: h\r\nX:", "y\r\n\r\n", [](int c) { return is_value(c); }},
        {"inside a value", "GET / HTTP/1.1\r\nHost: h\r\nX: y", "y\r\n\r\n", [](int c) { return is_value(c); }},
        {"end of a field line", "GET / HTTP/1.1\r\nHost: h\r\nX: y\r", "\r\n", [](int c) { return c == '\n'; }},
        {"end of the head", "GET / HTTP/1.1\r\nHost: h\r\n\r", "", [](int c) { return c == '\n'; }},
        {"host", "GET / HTTP/1.1\r\nHost: h", "1\r\n\r\n", [](int c) { return in(reg_name, c) || c == ':'; }},
        {"port", "GET / HTTP/1.1\r\nHost: h:1", "\r\n\r\n", [](int c) { return in("0123456789 \t", c); }},
        {"IP literal", "GET / HTTP/1.1\r\nHost: [::", "]:1\r\n\r\n", [](int c) { return in("0123456789abcdefABCDEF:.", c); }},
        {"number", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1", "1\r\n\r\n", [](int c) { return in("0123456789,", c); }},
    };
    return list;
}

}  // namespace

TEST_CASE("every byte value is taken or refused in each kind of place, as the grammar says") {
    for (const http::Kernel* kernel : usable_kernels())
        for (const Place& place : places())
            for (std::size_t shift = 0; shift < 66; ++shift)
                for (int value = 0; value < 256; ++value) {
                    // "CR" inside a value and "1,1" in a number are whole lines of another meaning; both have cases of their own.
                    const std::string bytes =
                        std::string(shift % 2 == 0 ? "" : "\r\n") + place.before + static_cast<char>(value) + place.after;
                    // The pad goes into the method or the target, whichever stands before the place.
                    std::string padded = bytes;
                    const std::size_t slash = bytes.find(" /");
                    if (slash != std::string::npos && slash < bytes.size() - place.after.size() - 1)
                        padded.insert(slash + 2, shift, 'p');
                    const std::string outcome = scan_whole(*kernel, padded);
                    const bool taken = outcome.rfind("complete", 0) == 0;
                    if (taken != place.allowed(value)) {
                        CAPTURE(kernel->name);
                        CAPTURE(place.name);
                        CAPTURE(value);
                        CAPTURE(shift);
                        CAPTURE(outcome);
                        CHECK(taken == place.allowed(value));
                    }
                }
}
