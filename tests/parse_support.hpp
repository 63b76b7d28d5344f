// What the parser's tests share: requests to try, a way to compare outcomes, every kernel in turn, and memory with forbidden
// neighbours.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "../http_parse.hpp"

namespace parse_test {

using namespace std::string_literals;
using namespace std::string_view_literals;

inline constexpr std::size_t fields_max = 128;

// Every kernel that this CPU can run.
inline std::vector<const http::Kernel*> usable_kernels() {
    std::vector<const http::Kernel*> usable;
    for (const http::Kernel& kernel : http::kernels())
        if (kernel.supported()) usable.push_back(&kernel);
    return usable;
}

// Heads that are valid, each with the length of what belongs to it at the end of its bytes: nothing.
inline const std::vector<std::string>& valid_heads() {
    static const std::vector<std::string> heads = [] {
        std::vector<std::string> list{
            "GET / HTTP/1.0\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET / HTTP/1.1\r\nHost:\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n\r\n",
            "GET / HTTP/1.0\r\nConnection: Keep-Alive\r\nHost: 127.0.0.1:8080\r\nUser-Agent: ApacheBench/2.3\r\nAccept: "
            "*/*\r\n\r\n",
            "GET /?a=b&c=%20d;e=f HTTP/1.1\r\nHost: example.test\r\n\r\n",
            "\r\n\r\nGET / HTTP/1.1\r\nHost: example.test\r\n\r\n",
            "GET http://u.example.test:80/x?y HTTP/1.1\r\nHost: other.test\r\n\r\n",
            "GET HTTPS://[::1]?q HTTP/1.9\r\nHost: [fe80::1]:8080\r\n\r\n",
            "OPTIONS * HTTP/1.1\r\nHost: example.test:\r\n\r\n",
            "CONNECT example.test:443 HTTP/1.1\r\nHost: example.test:443\r\n\r\n",
            "HEAD /a/b/c HTTP/1.1\r\nhOsT:\t example.test \t\r\nConnection: foo,\tclose\t, bar\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 005, 5,\r\nContent-Length: 5\r\nExpect: 100-Continue\r\n\r\n",
            "PUT / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: , cHuNkEd\r\nExpect: 100-continue, x\r\n\r\n",
            "PATCH /p HTTP/1.1\r\nIf-None-Match: \"a\", \"b\"\r\nIf-None-Match: \"c\"\r\nIf-Modified-Since: Sat, 1 Jan "
            "2000\r\nHost: h\r\n\r\n",
            "BREW / HTTP/1.1\r\nHost: h\r\nX-Text: caf\xc3\xa9 \xff\x80\tz\r\nX-Empty:\r\nX-Colons: a:b::c:\r\n\r\n",
            "!#$%&'*+-.^_`|~09Az / HTTP/1.1\r\nHost: h\r\n!#$%&'*+-.^_`|~09Az: v\r\n\r\n",
            "DELETE /d HTTP/1.1\r\nConnectio: close\r\nConnections: close\r\nX-Host: a\r\nhos: b\r\nhosts: c\r\nhost: d\r\nxost: "
            "e\r\n\r\n",
            "TRACE / HTTP/1.1\r\nH:1\r\nC:\r\nT: \t \r\nE: 2\r\nI:3\r\nHost:h\r\n\r\n",
            "GET /plaintext HTTP/1.1\r\nHost: server\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64) Gecko/20130501 Firefox/30.0\r\n"
            "Cookie: uid=12345678901234567890; __utma=1.1234567890.1234567890.1234567890.1234567890.12; wd=2560x1600\r\n"
            "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\nAccept-Language: en-US,en;q=0.5\r\n"
            "Connection: keep-alive\r\n\r\n",
        };
        // Every length of target and of value around the width of a block, so that each element meets each place in a block.
        for (std::size_t length = 0; length < 140; ++length) {
            list.push_back("GET /" + std::string(length, 'p') + " HTTP/1.1\r\nHost: example.test\r\nConnection: close\r\n\r\n");
            list.push_back("GET / HTTP/1.1\r\nX-Pad: " + std::string(length, 'v') +
                           "\r\nHost: example.test:80\r\nContent-Length: 12\r\n\r\n");
            list.push_back("GET / HTTP/1.1\r\n" + std::string(length + 1, 'n') + ":\r\nhost: " + std::string(length, 'h') +
                           "\r\n\r\n");
        }
        std::string many = "GET / HTTP/1.1\r\nHost: h\r\n";
        for (std::size_t i = 0; i < 60; ++i) many += "X-" + std::to_string(i) + ": " + std::string(i % 7, 'v') + "\r\n";
        list.push_back(many + "\r\n");
        return list;
    }();
    return heads;
}

// A head that is rejected by its last byte, and by no byte before.
struct Rejection {
    http::Status status;
    std::string bytes;
};

inline const std::vector<Rejection>& rejections() {
    using http::Status;
    const auto get = [](std::string_view lines) { return "GET / HTTP/1.1\r\n"s.append(lines); };
    static const std::vector<Rejection> list{
        {Status::bad_line_end, "\rG"},
        {Status::bad_line_end, "\r\n\rG"},
        {Status::bad_line_end, "GET / HTTP/1.1\rH"},
        {Status::bad_line_end, get("\n")},
        {Status::bad_line_end, get("Host: h\n")},
        {Status::bad_line_end, get("Host: h\r\r")},
        {Status::bad_line_end, get("Host: h\r\n\n")},
        {Status::bad_line_end, get("Host: h\r\n\rX")},
        {Status::bad_method, " "},
        {Status::bad_method, "\n"},
        {Status::bad_method, "\x16"},
        {Status::bad_method, "G\xc9"},
        {Status::bad_method, "GET\t"},
        {Status::bad_method, "GET\r"},
        {Status::bad_method, "HTTP/"},
        {Status::bad_target, "GET  "},
        {Status::bad_target, "GET /\r"},
        {Status::bad_target, "GET /\n"},
        {Status::bad_target, "GET /\x7f"},
        {Status::bad_target, "GET /\x80"},
        {Status::bad_target, "GET /#"},
        {Status::bad_target, "GET /<"},
        {Status::bad_target, "GET /% "},
        {Status::bad_target, "GET /%4 "},
        {Status::bad_target, "GET /%4g "},
        {Status::bad_target, "GET /%%41 "},
        {Status::bad_target, "GET /[ "},
        {Status::bad_target, "GET index "},
        {Status::bad_target, "GET * "},
        {Status::bad_target, "GET example.test:80 "},
        {Status::bad_target, "GET http:/x "},
        {Status::bad_target, "GET http:///x "},
        {Status::bad_target, "GET http://:80/ "},
        {Status::bad_target, "GET http://u@h/ "},
        {Status::bad_target, "GET http://h:8a/ "},
        {Status::bad_target, "GET http://[::1/ "},
        {Status::bad_target, "GET http://[]/ "},
        {Status::bad_target, "GET 1http://h/ "},
        {Status::bad_target, "CONNECT / "},
        {Status::bad_target, "CONNECT h "},
        {Status::bad_target, "CONNECT h: "},
        {Status::bad_target, "CONNECT :80 "},
        {Status::bad_version, "GET / \r"},
        {Status::bad_version, "GET / h"},
        {Status::bad_version, "GET / HTTPS"},
        {Status::bad_version, "GET / HTTP/a"},
        {Status::bad_version, "GET / HTTP/01"},
        {Status::bad_version, "GET / HTTP/1,"},
        {Status::bad_version, "GET / HTTP/1.\r"},
        {Status::bad_version, "GET / HTTP/1.10"},
        {Status::bad_version, "GET / HTTP/1.1 "},
        {Status::bad_version, "GET / HTTP/1.1\n"},
        {Status::unsupported_version, "GET / HTTP/2.0\r"},
        {Status::unsupported_version, "GET / HTTP/0.9\r"},
        {Status::folded_line, get(" ")},
        {Status::folded_line, get("\t")},
        {Status::folded_line, get("Host: h\r\n ")},
        {Status::bad_field_name, get(":")},
        {Status::bad_field_name, get("Host ")},
        {Status::bad_field_name, get("Host\r")},
        {Status::bad_field_name, get("Host\n")},
        {Status::bad_field_name, get("X-(")},
        {Status::bad_field_name, get("X-\xe9")},
        {Status::bad_field_name, get("X-\0"sv)},
        {Status::bad_field_value, get("X: a\0"sv)},
        {Status::bad_field_value, get("X: a\x01")},
        {Status::bad_field_value, get("X: a\x7f")},
        {Status::bad_host, get("Host: a/b\r\n")},
        {Status::bad_host, get("Host: u@h\r\n")},
        {Status::bad_host, get("Host: h:8a\r\n")},
        {Status::bad_host, get("Host: a b\r\n")},
        {Status::bad_host, get("Host: h:80:80\r\n")},
        {Status::bad_host, get("Host: [::1]x\r\n")},
        {Status::bad_host, get("Host: [::1\r\n")},
        {Status::bad_host, get("Host: []\r\n")},
        {Status::bad_host, get("Host: a%4\r\n")},
        {Status::bad_host, get("Host: \xe9\r\n")},
        {Status::repeated_host, get("Host: h\r\nX: y\r\nhOST: h\r\n")},
        {Status::repeated_host, "GET / HTTP/1.0\r\nHost: h\r\nHost: h\r\n"},
        {Status::missing_host, get("\r\n")},
        {Status::missing_host, "GET http://h/ HTTP/1.1\r\nX-Host: h\r\n\r\n"},
        {Status::bad_content_length, get("Content-Length:\r\n")},
        {Status::bad_content_length, get("Content-Length: ,\r\n")},
        {Status::bad_content_length, get("Content-Length: +5\r\n")},
        {Status::bad_content_length, get("Content-Length: -0\r\n")},
        {Status::bad_content_length, get("Content-Length: 0x5\r\n")},
        {Status::bad_content_length, get("Content-Length: 1 2\r\n")},
        {Status::bad_content_length, get("Content-Length: 5, 6\r\n")},
        {Status::bad_content_length, get("Content-Length: 5\r\ncontent-length: 6\r\n")},
        {Status::body_too_large, get("Content-Length: 18446744073709551616\r\n")},
        {Status::body_too_large, get("Content-Length: 99999999999999999999999999\r\n")},
        {Status::bad_transfer_encoding, get("Host: h\r\nTransfer-Encoding:\r\n\r\n")},
        {Status::bad_transfer_encoding, get("Host: h\r\nTransfer-Encoding: identity\r\n\r\n")},
        {Status::bad_transfer_encoding, get("Host: h\r\nTransfer-Encoding: xchunked\r\n\r\n")},
        {Status::bad_transfer_encoding, get("Host: h\r\nTransfer-Encoding: chunked;q=1\r\n\r\n")},
        {Status::bad_transfer_encoding, get("Host: h\r\nTransfer-Encoding: chunked, chunked\r\n\r\n")},
        {Status::bad_transfer_encoding, get("Host: h\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n")},
        {Status::unknown_transfer_encoding, get("Host: h\r\nTransfer-Encoding: gzip, chunked\r\n\r\n")},
        {Status::length_and_encoding, get("Host: h\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n")},
        {Status::encoding_before_1_1, "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"},
    };
    return list;
}

// Everything a kernel says about an input, written out, with views as offsets into it: equal strings are equal outcomes.
inline std::string describe(const http::Result& result, const http::Request& request, std::string_view input) {
    const auto where = [input](std::string_view view) {
        if (view.data() == nullptr) return "-"s;
        return std::to_string(view.data() - input.data()) + "+" + std::to_string(view.size());
    };
    std::string text{http::reason(result.status)};
    text += " consumed=" + std::to_string(result.consumed);
    if (result.status == http::Status::incomplete) return text;
    text += " method=" + std::to_string(static_cast<int>(request.method));
    if (result.status != http::Status::complete) return text;
    text += " target=" + where(request.target) + " host=" + where(request.host) + " inm=" + where(request.if_none_match);
    text += " ims=" + where(request.if_modified_since) + " length=" + std::to_string(request.content_length);
    text += " minor=" + std::to_string(request.version_minor) + " flags=";
    for (bool flag : {request.has_content_length, request.chunked, request.keep_alive, request.says_keep_alive,
                      request.expect_continue, request.expect_other})
        text += flag ? '1' : '0';
    return text;
}

inline std::string describe(const http::Result& result, const http::FullRequest& request, std::string_view input) {
    std::string text = describe(result, static_cast<const http::Request&>(request), input);
    if (result.status != http::Status::complete) return text;
    const auto where = [input](std::string_view view) {
        return std::to_string(view.data() - input.data()) + "+" + std::to_string(view.size());
    };
    text += " name=" + where(request.method_name);
    for (const http::Field& field : request.fields) text += " " + where(field.name) + ":" + where(field.value);
    return text;
}

inline std::string scan_whole(const http::Kernel& kernel, std::string_view input, const http::Limits& limits = {}) {
    http::Request request;
    http::Resume resume{};
    return describe(kernel.scan(input, request, resume, limits), request, input);
}

inline std::string parse_whole(const http::Kernel& kernel, std::string_view input, const http::Limits& limits = {}) {
    http::FullRequest request;
    http::Resume resume{};
    std::array<http::Field, fields_max> fields;
    return describe(kernel.parse(input, request, fields, resume, limits), request, input);
}

// Pages of memory between two pages that may not be touched.
class GuardedPages {
public:
    explicit GuardedPages(std::size_t pages) : page_(static_cast<std::size_t>(sysconf(_SC_PAGESIZE))), bytes_(pages * page_) {
        void* mapping = mmap(nullptr, bytes_ + 2 * page_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (mapping == MAP_FAILED) std::abort();
        base_ = static_cast<char*>(mapping) + page_;
        allow();
    }
    ~GuardedPages() { munmap(base_ - page_, bytes_ + 2 * page_); }
    GuardedPages(const GuardedPages&) = delete;
    GuardedPages& operator=(const GuardedPages&) = delete;

    void allow() const {
        if (mprotect(base_, bytes_, PROT_READ | PROT_WRITE) != 0) std::abort();
    }
    // The first `bytes` of the pages, as whole pages, are forbidden until allow().
    void forbid_front(std::size_t bytes) const {
        const std::size_t whole = bytes / page_ * page_;
        if (whole != 0 && mprotect(base_, whole, PROT_NONE) != 0) std::abort();
    }
    std::string_view at_end(std::string_view bytes) const {
        char* place = base_ + bytes_ - bytes.size();
        if (!bytes.empty()) std::memcpy(place, bytes.data(), bytes.size());
        return {place, bytes.size()};
    }
    std::string_view at_begin(std::string_view bytes) const {
        if (!bytes.empty()) std::memcpy(base_, bytes.data(), bytes.size());
        return {base_, bytes.size()};
    }
    char* base() const { return base_; }
    std::size_t page() const { return page_; }

private:
    std::size_t page_;
    std::size_t bytes_;
    char* base_ = nullptr;
};

// A small generator with a fixed seed: the same inputs on every run.
class Random {
public:
    explicit Random(std::uint64_t seed) : state_(seed) {}
    std::uint64_t below(std::uint64_t bound) {
        state_ = state_ * 6364136223846793005u + 1442695040888963407u;
        return (state_ >> 33) % bound;
    }

private:
    std::uint64_t state_;
};

}  // namespace parse_test
