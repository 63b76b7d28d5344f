// Fuzz target: our parser against llhttp (strict) and picohttpparser.
//
// Whatever we accept, they must accept with the same end, method, target and fields; whatever they accept and we do not, we must
// reject for a reason that is listed here with its RFC section. Anything else is a crash.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "../../build/rivals/llhttp/llhttp.h"
#include "../../build/rivals/picohttpparser/picohttpparser.h"
#include "../../http_parse.hpp"

namespace {

// Room for every field that an input can have, so that no parser stops for want of it: a line has three bytes at least.
std::size_t fields_max(std::string_view bytes) {
    return bytes.size() / 3 + 1;
}

struct Head {
    bool complete = false;
    std::size_t bytes = 0;
    std::string method, target;
    int minor = 0;
    std::vector<std::pair<std::string, std::string>> fields;
};

[[noreturn]] void differ(const char* rival, const char* what, std::string_view ours, const Head& theirs) {
    std::fprintf(stderr,
                 "we and %s differ: %s\n  we: %.*s\n  they: %s, %zu bytes, method \"%s\", target \"%s\", minor %d, %zu fields\n",
                 rival, what, static_cast<int>(ours.size()), ours.data(), theirs.complete ? "complete" : "not complete",
                 theirs.bytes, theirs.method.c_str(), theirs.target.c_str(), theirs.minor, theirs.fields.size());
    std::abort();
}

// Both leave blanks behind a value to the caller; they are no part of it (RFC 9110 5.5).
void trim_values(Head& head) {
    for (auto& [name, value] : head.fields)
        while (!value.empty() && (value.back() == ' ' || value.back() == '\t')) value.pop_back();
}

Head pico_head(std::string_view bytes) {
    const char *method = nullptr, *target = nullptr;
    std::size_t method_size = 0, target_size = 0, count = fields_max(bytes);
    int minor = 0;
    std::vector<phr_header> fields(count);
    const int taken = phr_parse_request(bytes.data(), bytes.size(), &method, &method_size, &target, &target_size, &minor,
                                        fields.data(), &count, 0);
    if (taken <= 0) return {};
    Head head{true, static_cast<std::size_t>(taken), {method, method_size}, {target, target_size}, minor, {}};
    for (std::size_t i = 0; i < count; ++i)
        head.fields.emplace_back(std::string(fields[i].name == nullptr ? "" : fields[i].name, fields[i].name_len),
                                 std::string(fields[i].value, fields[i].value_len));
    trim_values(head);
    return head;
}

Head& head_of(llhttp_t* parser) {
    return *static_cast<Head*>(parser->data);
}

Head llhttp_head(std::string_view bytes) {
    llhttp_settings_t settings;
    llhttp_settings_init(&settings);
    settings.on_url = [](llhttp_t* parser, const char* at, std::size_t size) { return head_of(parser).target.append(at, size), 0; };
    settings.on_header_field = [](llhttp_t* parser, const char* at, std::size_t size) {
        return head_of(parser).fields.back().first.append(at, size), 0;
    };
    settings.on_header_value = [](llhttp_t* parser, const char* at, std::size_t size) {
        return head_of(parser).fields.back().second.append(at, size), 0;
    };
    settings.on_url_complete = [](llhttp_t* parser) { return head_of(parser).fields.emplace_back(), 0; };
    settings.on_header_value_complete = [](llhttp_t* parser) { return head_of(parser).fields.emplace_back(), 0; };
    settings.on_headers_complete = [](llhttp_t* parser) {
        head_of(parser).complete = true;
        return static_cast<int>(HPE_PAUSED);
    };
    Head head;
    llhttp_t parser;
    llhttp_init(&parser, HTTP_REQUEST, &settings);
    parser.data = &head;
    llhttp_execute(&parser, bytes.data(), bytes.size());
    if (!head.complete) return head;
    head.bytes = static_cast<std::size_t>(llhttp_get_error_pos(&parser) - bytes.data());
    head.method = llhttp_method_name(static_cast<llhttp_method_t>(parser.method));
    head.minor = parser.http_minor;
    head.fields.pop_back();  // the one that was begun behind the last value
    trim_values(head);
    return head;
}

void expect_same(const char* rival, const http::FullRequest& ours, std::size_t consumed, const Head& theirs) {
    const bool same_minor = ours.version_minor == (theirs.minor == 0 ? 0 : 1);
    if (theirs.bytes != consumed) differ(rival, "the end of the head", "complete", theirs);
    if (theirs.method != ours.method_name || theirs.target != ours.target || !same_minor)
        differ(rival, "the request line", "complete", theirs);
    if (theirs.fields.size() != ours.fields.size()) differ(rival, "the number of fields", "complete", theirs);
    for (std::size_t i = 0; i < ours.fields.size(); ++i)
        if (theirs.fields[i].first != ours.fields[i].name || theirs.fields[i].second != ours.fields[i].value)
            differ(rival, "a field", std::string(ours.fields[i].name) + ": " + std::string(ours.fields[i].value), theirs);
}

// Why we may reject what picohttpparser accepts: it reads syntax alone, and that with more tolerance.
bool pico_may_accept(http::Status status) {
    switch (status) {
    case http::Status::bad_line_end:               // takes a bare LF                                        RFC 9112 2.2
    case http::Status::bad_method:                 // takes any visible byte in a method                     RFC 9112 3.1
    case http::Status::bad_target:                 // takes any byte but controls in a target                RFC 9112 3.2
    case http::Status::bad_version:                // takes blanks before the version, and an LF behind it   RFC 9112 3
    case http::Status::folded_line:                // hands folded lines on                                  RFC 9112 5.2
    case http::Status::bad_field_name:             // takes blanks in front of a colon in some versions      RFC 9112 5.1
    case http::Status::bad_host:                   // does not read Host                                     RFC 9112 3.2
    case http::Status::repeated_host:              //                                                        RFC 9112 3.2
    case http::Status::missing_host:               //                                                        RFC 9112 3.2
    case http::Status::bad_content_length:         // nor framing                                            RFC 9112 6.3
    case http::Status::body_too_large:             //                                                        RFC 9110 8.6
    case http::Status::bad_transfer_encoding:      //                                                        RFC 9112 6.3
    case http::Status::unknown_transfer_encoding:  //                                                        RFC 9112 6.1
    case http::Status::length_and_encoding:        //                                                        RFC 9112 6.3
    case http::Status::encoding_before_1_1:        //                                                        RFC 9112 6.1
        return true;
    default: return false;
    }
}

// Why we may reject what llhttp accepts.
bool llhttp_may_accept(http::Status status) {
    switch (status) {
    case http::Status::bad_line_end:               // takes a bare LF behind the request line                RFC 9112 2.2
    case http::Status::bad_method:                 // takes a bare LF, or CR alone, in front of a request    RFC 9112 2.2
    case http::Status::bad_target:                 // takes more bytes than a URI has, and fragments         RFC 9112 3.2
    case http::Status::bad_version:                // takes more than one SP in front of it, and HTTP/0.9    RFC 9112 3
    case http::Status::unsupported_version:        // takes 2.0 and 0.9                                      RFC 9110 15.6.6
    case http::Status::folded_line:                // joins folded lines                                     RFC 9112 5.2
    case http::Status::bad_field_name:             // takes a blank in front of a colon in some versions     RFC 9112 5.1
    case http::Status::bad_host:                   // does not read Host                                     RFC 9112 3.2
    case http::Status::repeated_host:              //                                                        RFC 9112 3.2
    case http::Status::missing_host:               //                                                        RFC 9112 3.2
    case http::Status::bad_content_length:         // takes an empty Content-Length                          RFC 9112 6.3
    case http::Status::bad_transfer_encoding:      // leaves the verdict to what is behind the head          RFC 9112 6.3
    case http::Status::unknown_transfer_encoding:  //                                                        RFC 9112 6.1
    case http::Status::encoding_before_1_1:        //                                                        RFC 9112 6.1
        return true;
    default: return false;
    }
}

// Whether llhttp may reject a head that we accept.
bool llhttp_may_reject(const http::FullRequest& ours, std::string_view bytes) {
    if (ours.method == http::Method::unknown) return true;  // it knows a list of methods                             RFC 9110 9.1
    if (ours.target.front() != '/') return true;            // it has a URL grammar of its own for the other forms    RFC 9112 3.2
    const char minor = bytes[ours.method_name.size() + ours.target.size() + 9];
    if (minor != '0' && minor != '1') return true;  // it knows 1.0 and 1.1                                           RFC 9110 2.5
    std::size_t lengths = 0;
    for (const http::Field& field : ours.fields) {
        // Empty elements around chunked (RFC 9110 5.6.1.2).
        if (http::detail::equals_without_case(field.name, "transfer-encoding") && field.value.size() != 7) return true;
        if (!http::detail::equals_without_case(field.name, "content-length")) continue;
        ++lengths;
        // Lists of equal numbers (RFC 9110 8.6), blanks behind the number (5.5), and numbers of many digits.
        const bool plain = field.value.find_first_not_of("0123456789") == std::string_view::npos && field.value.size() < 20;
        if (!plain || field.value.data()[field.value.size()] != '\r') return true;
    }
    return lengths > 1;  // repeated equal numbers                                                                    RFC 9110 8.6
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    std::string_view bytes(reinterpret_cast<const char*>(data), size);
    // The others skip one empty line in front, or some bytes of it; we skip any number (RFC 9112 2.2).
    bytes.remove_prefix(http::detail::scalar::leading_empty_lines(bytes));

    std::vector<http::Field> fields(fields_max(bytes));
    http::FullRequest ours;
    const http::Result result = http::parse(bytes, ours, fields, http::Limits{std::size_t{1} << 20});
    const bool accepted = result.status == http::Status::complete;
    const std::string_view reason = http::reason(result.status);

    const Head pico = pico_head(bytes);
    if (accepted && !pico.complete) differ("picohttpparser", "we accept and they do not", reason, pico);
    if (accepted) expect_same("picohttpparser", ours, result.consumed, pico);
    if (!accepted && pico.complete && !pico_may_accept(result.status))
        differ("picohttpparser", "they accept and we do not", reason, pico);

    const Head llhttp = llhttp_head(bytes);
    if (accepted && !llhttp.complete && !llhttp_may_reject(ours, bytes))
        differ("llhttp", "we accept and they do not", reason, llhttp);
    if (accepted && llhttp.complete) expect_same("llhttp", ours, result.consumed, llhttp);
    if (!accepted && llhttp.complete && !llhttp_may_accept(result.status))
        differ("llhttp", "they accept and we do not", reason, llhttp);
    return 0;
}
