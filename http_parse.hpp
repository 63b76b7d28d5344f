// http_parse.hpp: an HTTP/1.x request parser as pure functions over bytes.
//
// The problem. A server must know where a request ends, what it asks for and how its body is framed, and it must know it for every
// byte sequence a peer can send, in whatever pieces it arrives. The idea: one *scanner* written twice. The scalar one is a small
// state machine that decides everything; it is constexpr and can stop and resume at any byte. The SIMD ones look at 64 bytes at a
// time, and only ever say "this is a whole, valid head, and here is what it says"; whatever they do not like or do not see the end
// of, they leave to the scalar one. So there is one verdict, whichever kernel looked first and however the bytes were cut.
//
//     offset  0   4 6        14 16    22        31 33 35
//             GET / HTTP/1.1 \r\n Host: localhost \r\n \r\n
//             |   | |             |     |              `-- the empty line: consumed = 35
//             |   | version_minor |     `-- host (a view, blanks trimmed)
//             |   `-- target      `-- field name: compared without case
//             `-- method
//
// Use (tests/parse_example.cpp compiles it):
//
//     http::Request request;
//     http::Resume resume{};
//     http::Result result = http::scan(input, request, resume, http::Limits{});
//     if (result.status == http::Status::complete) answer(request, input.substr(result.consumed));
//     else if (result.status != http::Status::incomplete) refuse(http::status_code(result.status));
//
// Contract. The input is never written and never read past its end. Views point into the input: they die when its bytes move.
// Nothing is allocated, nothing throws, no function blocks. The grammar is that of RFC 9110 and 9112 taken strictly: CRLF ends
// lines (9112 2.2 lets a recipient take a bare LF; we do not, as two parsers that differ there can be played against each other),
// no folded lines (9112 5.2), no blank before a colon (9112 5.1), targets by the grammar of RFC 3986, one valid Host (9112 3.2),
// and no doubt about the length of a body (9112 6.3). What it is not: a response parser, a URI library, or a decoder of bodies.
// `Body` finds where a body ends and throws the bytes away.
#ifndef CEILING_HTTP_PARSE_HPP
#define CEILING_HTTP_PARSE_HPP

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>

#if defined(__x86_64__)
#define CEILING_HTTP_X86 1
#include <immintrin.h>
#endif

namespace http {

// ---- Limits -------------------------------------------------------------------------------------------------------------------

// What a chunked body may carry beside its data: extensions, leading zeros of sizes and the trailer section, all together (RFC
// 9112 7.1.1 asks for such a bound). As much as a whole head may have by default.
inline constexpr std::uint32_t chunk_overhead_bytes_max = 16384;
// Body lengths are kept in 48 bits; no body limit can be larger. 256 TiB.
inline constexpr std::uint64_t body_bytes_limit = (std::uint64_t{1} << 48) - 1;
// Offsets inside a head are kept in 32 bits.
inline constexpr std::size_t head_bytes_limit = 0xffff'ffff;

static_assert(chunk_overhead_bytes_max <= 0xffff, "Body counts the overhead in 16 bits");

struct Limits {
    // A longer head is refused: 414 while in the request line, 431 behind it. 16 KiB: twice the 8000 octets that RFC 9112 3
    // recommends to accept for the request line alone.
    std::size_t head_bytes_max = 16384;
};

// ---- Types --------------------------------------------------------------------------------------------------------------------

// RFC 9110 9.1 and RFC 5789. `unknown` is a valid token that is none of them: the request is well formed and a server answers 501.
enum class Method : std::uint8_t { get, head, post, put, patch, delete_, options, trace, connect, unknown };

// The verdict. The first two are no errors; each of the others says why a request was rejected, in the order of the bytes that
// prove it.
enum class Status : std::uint8_t {
    complete,
    incomplete,
    bad_line_end,               // CR without LF, or LF without CR                                       RFC 9112 2.2
    bad_method,                 // not a token, or not followed by one SP                                RFC 9112 3.1
    bad_target,                 // a byte, a form or an authority that is not allowed                    RFC 9112 3.2, RFC 3986
    bad_version,                // not "HTTP/" DIGIT "." DIGIT                                           RFC 9112 2.3
    unsupported_version,        // a version, but not 1.x                                                RFC 9110 15.6.6
    request_line_too_long,      // head_bytes_max reached in the request line                            RFC 9110 15.5.15
    head_too_long,              // head_bytes_max reached behind it                                      RFC 6585 5
    too_many_fields,            // more than the caller has room for (full parse only)                   RFC 6585 5
    folded_line,                // a line that begins with a blank                                       RFC 9112 2.2, 5.2
    bad_field_name,             // empty, not a token, or not followed by a colon                        RFC 9112 5.1
    bad_field_value,            // a control byte                                                        RFC 9110 5.5
    bad_host,                   // not uri-host [":" port]                                               RFC 9112 3.2
    repeated_host,              //                                                                       RFC 9112 3.2
    missing_host,               // in 1.1 and later                                                      RFC 9112 3.2
    bad_content_length,         // not a number, or numbers that differ                                  RFC 9112 6.3
    bad_transfer_encoding,      // chunked is not the last coding, or not applied just once              RFC 9112 6.3
    unknown_transfer_encoding,  // well framed by chunked, but coded in another way before               RFC 9112 6.1
    length_and_encoding,        // Content-Length beside Transfer-Encoding: smuggling, or a fault        RFC 9112 6.3
    encoding_before_1_1,        // Transfer-Encoding in an HTTP/1.0 request                              RFC 9112 6.1
    body_too_large,             // more than the caller takes                                            RFC 9110 15.5.14
    bad_chunk_size,             // no hexadecimal number, or more than 64 bits                           RFC 9112 7.1
    bad_chunk_extension,        //                                                                       RFC 9112 7.1.1
    bad_chunk_end,              // no CRLF behind the data, or behind the size                           RFC 9112 7.1
    chunk_overhead_too_long,    // chunk_overhead_bytes_max                                              RFC 9112 7.1.1
    bad_trailer,                // a trailer field that is no field line, or a bad end                   RFC 9112 7.1.2
};

struct Result {
    Status status;
    std::size_t consumed;  // bytes that are done with; see scan(), parse() and Body::discard()
};

// The flags of a Request: eight bytes that stand together, so that a kernel can write them as one word.
struct RequestFlags {
    Method method = Method::unknown;
    std::uint8_t version_minor = 0;  // 0 or 1; a higher minor counts as 1 (RFC 9110 2.5)
    bool has_content_length = false;
    bool chunked = false;
    bool keep_alive = false;       // RFC 9112 9.3: version and Connection together
    bool says_keep_alive = false;  // Connection lists keep-alive: an HTTP/1.0 client waits for the same in the answer
    bool expect_continue = false;  // Expect: 100-continue; never in HTTP/1.0 (RFC 9110 10.1.1)
    bool expect_other = false;     // an expectation we do not know
};
static_assert(sizeof(RequestFlags) == 8 && std::is_trivially_copyable_v<RequestFlags>);

// What the minimal scan keeps. Views point into the input; a field that is not there is an empty view with a null pointer.
struct Request : RequestFlags {
    std::string_view target;             // as sent, in any of its four forms (RFC 9112 3.2)
    std::string_view host;               // the authority of an absolute-form target, else the Host field (RFC 9112 3.2.2)
    std::string_view if_none_match;      // the first, if there are several: a match there is a match of the list
    std::string_view if_modified_since;  // the first
    std::uint64_t content_length = 0;
};

struct Field {
    std::string_view name;
    std::string_view value;  // blanks trimmed
};

// What the full parse keeps: all that the scan does, and every field line in order.
struct FullRequest : Request {
    std::string_view method_name;
    std::span<const Field> fields;  // the used part of the caller's array
};

// What is known of an incomplete head. A fresh one knows nothing; only the scanner reads or writes it. It holds offsets and no
// pointers, so the bytes may move between two calls.
struct Resume {
    struct Range {
        std::uint32_t begin = 0, end = 0;
    };
    std::uint64_t content_length = 0;
    std::uint32_t at = 0;     // bytes examined
    std::uint32_t mark = 0;   // where the current element began: method, target, version, name
    std::uint32_t colon = 0;  // of the current field line
    Range target, host, if_none_match, if_modified_since;
    std::uint32_t field_count = 0;
    std::uint16_t seen = 0;  // set of detail::Seen
    Method method = Method::unknown;
    std::uint8_t version_minor = 0;
    std::uint8_t phase = 0;  // detail::Phase
};
static_assert(sizeof(Resume) <= 64, "a waiting connection pays for this");

// ---- API ----------------------------------------------------------------------------------------------------------------------

// The answer's status code: 400, 413, 414, 431, 501 or 505; 0 for complete and incomplete.
[[nodiscard]] constexpr int status_code(Status status) noexcept;

// A few English words for logs and tests.
[[nodiscard]] constexpr std::string_view reason(Status status) noexcept;

// Finds the end of one request head, validates all of it, and keeps what a server acts on.
//
//   complete     `out` is filled; `consumed` is the length of the head, its empty line and empty lines before it included
//                (RFC 9112 2.2).
//   incomplete   call again with more bytes and the same `resume`. `consumed` counts empty lines at the front (0 where there are
//                none): they are done with and should be dropped before the next call, so that nobody has to keep them.
//   otherwise    rejected as soon as the bytes prove it: a byte that is out of place at once, a field's meaning when its line
//                has ended. `out.method` is valid if the method was complete (an answer to HEAD has no body), else `unknown`.
//                `consumed` is 0.
//
// Unless the head is incomplete, `resume` is fresh again afterwards.
//
// The verdict is the same however the bytes are cut, and never depends on bytes beyond head_bytes_max (counted behind leading empty
// lines). Each byte is examined a bounded number of times, also when they arrive one by one.
[[nodiscard]] constexpr Result scan(std::string_view input, Request& out, Resume& resume, const Limits& limits) noexcept;

// The same, and every field line as a pair of views into the input. Same verdicts, except that a head with more lines than `fields`
// has room for is rejected.
[[nodiscard]] constexpr Result parse(std::string_view input, FullRequest& out, std::span<Field> fields, Resume& resume,
                                     const Limits& limits) noexcept;
[[nodiscard]] constexpr Result parse(std::string_view input, FullRequest& out, std::span<Field> fields,
                                     const Limits& limits) noexcept;

// Finds the end of the content behind a head and throws the bytes away, in whatever pieces they come. Trivially copyable, 16 bytes.
class Body {
public:
    // Prepares for the content that `request` announces. Complete: there is none. Incomplete: discard() it. Or body_too_large.
    [[nodiscard]] static constexpr Result begin(Body& body, const Request& request, std::uint64_t body_bytes_max) noexcept;

    // Takes bytes. `consumed` is always valid: all of them when incomplete, up to the end of the content when complete, up to the
    // byte that proves it when rejected. A rejected body stays where it is: it must not be offered more.
    [[nodiscard]] constexpr Result discard(std::string_view input) noexcept;

    [[nodiscard]] constexpr bool done() const noexcept;

private:
    std::uint64_t left_ : 48 = 0;        // bytes of the current chunk, or of the whole content
    std::uint64_t phase_ : 16 = 0;       // low byte: detail::BodyPhase; high byte: significant digits of the size so far
    std::uint64_t allowance_ : 48 = 0;   // content bytes still allowed
    std::uint64_t line_bytes_ : 16 = 0;  // chunk overhead so far
};
static_assert(sizeof(Body) == 16);

// A whole scanner for one instruction set. All kernels give the same verdicts and the same output.
struct Kernel {
    std::string_view name;
    bool (*supported)() noexcept;  // by this CPU
    Result (*scan)(std::string_view input, Request& out, Resume& resume, const Limits& limits) noexcept;
    Result (*parse)(std::string_view input, FullRequest& out, std::span<Field> fields, Resume& resume,
                    const Limits& limits) noexcept;
};

// Every kernel in this build, fastest first; the last is "scalar", which runs anywhere.
[[nodiscard]] inline std::span<const Kernel> kernels() noexcept;

// The kernel that scan() and parse() use: the first supported one, unless use_kernel() chose.
[[nodiscard]] inline const Kernel& kernel() noexcept;

// Forces a kernel by name; false, and no change, if there is none of that name or the CPU lacks it. Not to be called while others
// scan.
inline bool use_kernel(std::string_view name) noexcept;

// ---- Byte classes -------------------------------------------------------------------------------------------------------------

namespace detail {

// One bit per question that a scanner asks of a byte.
enum Class : std::uint8_t {
    class_token = 1,    // tchar                                                                   RFC 9110 5.6.2
    class_target = 2,   // pchar, "/", "?", and "[" "]" of an IP literal; "%" is looked at apart   RFC 3986 3.3, 3.4
    class_value = 4,    // field-vchar, obs-text, SP and HTAB                                      RFC 9110 5.5
    class_name = 8,     // unreserved, sub-delims and "%": a registered name                       RFC 3986 3.2.2
    class_hex = 16,     // HEXDIG
    class_digit = 32,   // DIGIT
    class_quoted = 64,  // qdtext: what a quoted string holds without a backslash                  RFC 9110 5.6.4
    class_alpha = 128,  // ALPHA
};

constexpr bool contains(std::string_view set, char c) noexcept {
    for (char member : set)
        if (member == c) return true;
    return false;
}

constexpr std::uint8_t classes_of(unsigned value) noexcept {
    const char c = static_cast<char>(value);
    const bool digit = c >= '0' && c <= '9';
    const bool alpha = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    const bool unreserved = digit || alpha || contains("-._~", c);
    const bool name = unreserved || contains("!$&'()*+,;=%", c);
    const bool printable = (value >= 0x21 && value <= 0x7e) || value >= 0x80;
    unsigned bits = 0;
    if (digit || alpha || contains("!#$%&'*+-.^_`|~", c)) bits |= class_token;
    if (name || contains(":@/?[]", c)) bits |= class_target;
    if (printable || c == ' ' || c == '\t') bits |= class_value;
    if (name) bits |= class_name;
    if (digit || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F')) bits |= class_hex;
    if (digit) bits |= class_digit;
    if ((printable && c != '"' && c != '\\') || c == ' ' || c == '\t') bits |= class_quoted;
    if (alpha) bits |= class_alpha;
    return static_cast<std::uint8_t>(bits);
}

struct ClassTable {
    std::uint8_t of[256];
};

constexpr ClassTable make_class_table() noexcept {
    ClassTable table{};
    for (unsigned value = 0; value < 256; ++value) table.of[value] = classes_of(value);
    return table;
}

inline constexpr ClassTable class_table = make_class_table();

constexpr bool is(Class which, char c) noexcept {
    return (class_table.of[static_cast<unsigned char>(c)] & which) != 0;
}

constexpr bool is_blank(char c) noexcept {
    return c == ' ' || c == '\t';
}

constexpr std::size_t skip(Class which, std::string_view bytes, std::size_t at) noexcept {
    while (at < bytes.size() && is(which, bytes[at])) ++at;
    return at;
}

constexpr char to_lower(char c) noexcept {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
}

// `lower` is written in small letters.
constexpr bool equals_without_case(std::string_view bytes, std::string_view lower) noexcept {
    if (bytes.size() != lower.size()) return false;
    for (std::size_t i = 0; i < bytes.size(); ++i)
        if (to_lower(bytes[i]) != lower[i]) return false;
    return true;
}

constexpr std::string_view trim(std::string_view bytes) noexcept {
    while (!bytes.empty() && is_blank(bytes.front())) bytes.remove_prefix(1);
    while (!bytes.empty() && is_blank(bytes.back())) bytes.remove_suffix(1);
    return bytes;
}

// Takes the next element off a comma-separated list, trimmed; false at its end. Empty elements come out empty (RFC 9110 5.6.1.2).
constexpr bool next_element(std::string_view& list, std::string_view& element) noexcept {
    if (list.data() == nullptr) return false;
    std::size_t comma = 0;
    while (comma < list.size() && list[comma] != ',') ++comma;
    element = trim(list.substr(0, comma));
    list = comma < list.size() ? list.substr(comma + 1) : std::string_view{};
    return true;
}

// ---- Meaning: what elements of a head say. Shared by all kernels; none of this looks outside the element. ---------------------

enum Seen : std::uint16_t {
    seen_host = 1,
    seen_content_length = 2,
    seen_encoding = 4,         // a Transfer-Encoding line
    seen_chunked_last = 8,     // its last coding so far is chunked
    seen_encoding_other = 16,  // it names another coding
    seen_encoding_bad = 32,    // something follows chunked
    seen_close = 64,           // Connection: close
    seen_keep_alive = 128,     // Connection: keep-alive
    seen_expect_continue = 256,
    seen_expect_other = 512,
    seen_if_none_match = 1024,
    seen_if_modified_since = 2048,
    seen_absolute = 4096,  // `host` is the authority of the target, and stays it
};

constexpr Method method_of(std::string_view token) noexcept {
    switch (token.size()) {
    case 3:
        if (token == "GET") return Method::get;
        if (token == "PUT") return Method::put;
        break;
    case 4:
        if (token == "HEAD") return Method::head;
        if (token == "POST") return Method::post;
        break;
    case 5:
        if (token == "PATCH") return Method::patch;
        if (token == "TRACE") return Method::trace;
        break;
    case 6:
        if (token == "DELETE") return Method::delete_;
        break;
    case 7:
        if (token == "OPTIONS") return Method::options;
        if (token == "CONNECT") return Method::connect;
        break;
    default: break;
    }
    return Method::unknown;
}

// Every "%" is followed by two hexadecimal digits (RFC 3986 2.1).
constexpr bool percents_are_valid(std::string_view bytes) noexcept {
    for (std::size_t i = 0; i < bytes.size(); ++i)
        if (bytes[i] == '%' && !(bytes.size() - i > 2 && is(class_hex, bytes[i + 1]) && is(class_hex, bytes[i + 2]))) return false;
    return true;
}

struct Authority {
    bool valid;
    bool has_host;
    bool has_port;  // at least one digit behind the colon
};

// uri-host [":" port], without user information (RFC 9110 4.2.4). An IP literal is checked for its bytes, not for its meaning: "["
// then hexadecimal digits, colons and dots, then "]". No IPvFuture (RFC 3986 3.2.2 defines none).
constexpr Authority authority_of(std::string_view bytes) noexcept {
    constexpr Authority invalid{false, false, false};
    std::size_t at = 0;
    if (!bytes.empty() && bytes[0] == '[') {
        at = 1;
        while (at < bytes.size() && (is(class_hex, bytes[at]) || bytes[at] == ':' || bytes[at] == '.')) ++at;
        if (at == 1 || at == bytes.size() || bytes[at] != ']') return invalid;
        ++at;
    } else {
        at = skip(class_name, bytes, 0);
        if (!percents_are_valid(bytes.substr(0, at))) return invalid;
    }
    const std::size_t host_end = at;
    if (at == bytes.size()) return {true, host_end > 0, false};
    if (bytes[at] != ':') return invalid;
    if (skip(class_digit, bytes, at + 1) != bytes.size()) return invalid;
    return {true, host_end > 0, bytes.size() - at > 1};
}

// A target whose bytes are all of class_target. `authority` is set for the absolute form.
constexpr bool target_is_valid(Method method, std::string_view target, std::string_view& authority) noexcept {
    if (target.empty() || !percents_are_valid(target)) return false;
    if (method == Method::connect) {  // authority-form, and the port is not optional (RFC 9110 9.3.6)
        const Authority parts = authority_of(target);
        return parts.valid && parts.has_host && parts.has_port;
    }
    std::string_view path;
    if (target[0] == '/') {  // origin-form
        path = target;
    } else if (target == "*") {  // asterisk-form
        return method == Method::options;
    } else {  // absolute-form, of a scheme with an authority: scheme "://" host [":" port] path-abempty ["?" query]
        if (!is(class_alpha, target[0])) return false;
        std::size_t at = 1;
        while (at < target.size() && (is(class_alpha, target[at]) || is(class_digit, target[at]) || contains("+-.", target[at])))
            ++at;
        if (target.substr(at, 3) != "://") return false;
        at += 3;
        const std::size_t begin = at;
        while (at < target.size() && target[at] != '/' && target[at] != '?') ++at;
        authority = target.substr(begin, at - begin);
        const Authority parts = authority_of(authority);
        if (!parts.valid || !parts.has_host) return false;  // RFC 9110 4.2.1, 4.2.4
        path = target.substr(at);
    }
    return !contains(path, '[') && !contains(path, ']');
}

// One Content-Length line. A list of equal numbers counts as the number (RFC 9110 8.6), and so do equal lines.
constexpr Status read_content_length(std::string_view value, Resume& head) noexcept {
    bool any = false;
    for (std::string_view list = value, element; next_element(list, element);) {
        if (element.empty()) continue;
        if (skip(class_digit, element, 0) != element.size()) return Status::bad_content_length;
        std::uint64_t number = 0;
        for (char c : element) {
            const unsigned digit = static_cast<unsigned>(c - '0');
            if (number > (~std::uint64_t{0} - digit) / 10) return Status::body_too_large;
            number = number * 10 + digit;
        }
        if ((head.seen & seen_content_length) != 0 && number != head.content_length) return Status::bad_content_length;
        head.content_length = number;
        head.seen |= seen_content_length;
        any = true;
    }
    return any ? Status::complete : Status::bad_content_length;
}

// One Transfer-Encoding line; lines add up to one list (RFC 9110 5.3). The verdict on the list waits for the end of the head.
constexpr void read_transfer_encoding(std::string_view value, Resume& head) noexcept {
    head.seen |= seen_encoding;
    for (std::string_view list = value, element; next_element(list, element);) {
        if (element.empty()) continue;
        if ((head.seen & seen_chunked_last) != 0) head.seen |= seen_encoding_bad;
        const bool chunked = equals_without_case(element, "chunked");
        head.seen |= chunked ? seen_chunked_last : seen_encoding_other;
    }
}

constexpr void read_connection(std::string_view value, Resume& head) noexcept {
    for (std::string_view list = value, element; next_element(list, element);) {
        if (equals_without_case(element, "close")) head.seen |= seen_close;
        if (equals_without_case(element, "keep-alive")) head.seen |= seen_keep_alive;
    }
}

constexpr void read_expect(std::string_view value, Resume& head) noexcept {
    for (std::string_view list = value, element; next_element(list, element);) {
        if (element.empty()) continue;
        head.seen |= equals_without_case(element, "100-continue") ? seen_expect_continue : seen_expect_other;
    }
}

constexpr Status read_host(std::string_view value, Resume::Range range, Resume& head) noexcept {
    if ((head.seen & seen_host) != 0) return Status::repeated_host;
    if (!authority_of(value).valid) return Status::bad_host;
    head.seen |= seen_host;
    if ((head.seen & seen_absolute) == 0) head.host = range;
    return Status::complete;
}

// Acts on one field line whose syntax is valid. `range` is where `value` stands in the input.
constexpr Status read_field(std::string_view name, std::string_view value, Resume::Range range, Resume& head) noexcept {
    switch (name.size()) {
    case 4:
        if (equals_without_case(name, "host")) return read_host(value, range, head);
        break;
    case 6:
        if (equals_without_case(name, "expect")) read_expect(value, head);
        break;
    case 10:
        if (equals_without_case(name, "connection")) read_connection(value, head);
        break;
    case 13:
        if (equals_without_case(name, "if-none-match") && (head.seen & seen_if_none_match) == 0) {
            head.if_none_match = range;
            head.seen |= seen_if_none_match;
        }
        break;
    case 14:
        if (equals_without_case(name, "content-length")) return read_content_length(value, head);
        break;
    case 17:
        if (equals_without_case(name, "transfer-encoding")) {
            read_transfer_encoding(value, head);
        } else if (equals_without_case(name, "if-modified-since") && (head.seen & seen_if_modified_since) == 0) {
            head.if_modified_since = range;
            head.seen |= seen_if_modified_since;
        }
        break;
    default: break;
    }
    return Status::complete;
}

// What only the whole head can tell.
constexpr Status judge_head(const Resume& head) noexcept {
    if ((head.seen & seen_host) == 0 && head.version_minor > 0) return Status::missing_host;
    if ((head.seen & seen_encoding) == 0) return Status::complete;
    if ((head.seen & seen_encoding_bad) != 0 || (head.seen & seen_chunked_last) == 0) return Status::bad_transfer_encoding;
    if ((head.seen & seen_content_length) != 0) return Status::length_and_encoding;
    if (head.version_minor == 0) return Status::encoding_before_1_1;
    if ((head.seen & seen_encoding_other) != 0) return Status::unknown_transfer_encoding;
    return Status::complete;
}

constexpr std::string_view view_of(std::string_view bytes, Resume::Range range, bool present) noexcept {
    return present ? bytes.substr(range.begin, range.end - range.begin) : std::string_view{};
}

// `seen` is a set of Seen.
constexpr RequestFlags flags_of(unsigned seen, Method method, std::uint8_t version_minor) noexcept {
    const auto has = [seen](unsigned bits) { return (seen & bits) != 0; };
    RequestFlags flags;
    flags.method = method;
    flags.version_minor = version_minor;
    flags.has_content_length = has(seen_content_length);
    flags.chunked = has(seen_encoding);
    flags.keep_alive = !has(seen_close) && (version_minor > 0 || has(seen_keep_alive));
    flags.says_keep_alive = has(seen_keep_alive);
    flags.expect_continue = has(seen_expect_continue) && version_minor > 0;
    flags.expect_other = has(seen_expect_other);
    return flags;
}

// All answers of flags_of for heads without rare fields, as words.
struct FlagsTable {
    std::uint64_t of[2][4];  // by minor version, by whether close and keep-alive were seen
};
constexpr FlagsTable make_flags_table() noexcept {
    FlagsTable table{};
    for (std::uint8_t minor = 0; minor < 2; ++minor)
        for (unsigned set = 0; set < 4; ++set)
            table.of[minor][set] = std::bit_cast<std::uint64_t>(flags_of(set * seen_close, Method::get, minor));
    return table;
}
inline constexpr FlagsTable flags_table = make_flags_table();
static_assert(seen_keep_alive == 2 * seen_close && static_cast<int>(Method::get) == 0);

constexpr void fill_request(std::string_view bytes, const Resume& head, Request& out) noexcept {
    const auto seen = [&head](unsigned bits) { return (head.seen & bits) != 0; };
    out.target = view_of(bytes, head.target, true);
    out.host = view_of(bytes, head.host, seen(seen_host | seen_absolute));
    out.if_none_match = view_of(bytes, head.if_none_match, seen(seen_if_none_match));
    out.if_modified_since = view_of(bytes, head.if_modified_since, seen(seen_if_modified_since));
    out.content_length = head.content_length;
    static_cast<RequestFlags&>(out) = flags_of(head.seen, head.method, head.version_minor);
}

// ---- The scalar kernel: a state machine that can stop at any byte -------------------------------------------------------------

namespace scalar {

enum Phase : std::uint8_t {
    phase_method,
    phase_target,
    phase_version,
    phase_version_lf,
    phase_line,  // the first byte of a field line, or the CR of the empty line
    phase_name,
    phase_value,
    phase_value_lf,
    phase_end_lf,
};

// Examines bytes from head.at on. Each phase skips what it allows and judges the first byte it does not; out of bytes means
// incomplete.
constexpr Status run(std::string_view bytes, Resume& head, std::size_t fields_max) noexcept {
    std::size_t at = head.at;
    const auto stop = [&](Status status) {
        head.at = static_cast<std::uint32_t>(at);
        return status;
    };
    const auto here = [&] { return static_cast<std::uint32_t>(at); };

    while (at < bytes.size()) {
        switch (head.phase) {
        case phase_method:
            at = skip(class_token, bytes, at);
            if (at == bytes.size()) break;
            if (bytes[at] != ' ' || at == 0) return stop(Status::bad_method);
            head.method = method_of(bytes.substr(0, at));
            head.mark = here() + 1;
            head.phase = phase_target;
            ++at;
            break;

        case phase_target: {
            at = skip(class_target, bytes, at);
            if (at == bytes.size()) break;
            if (bytes[at] != ' ') return stop(Status::bad_target);
            head.target = {head.mark, here()};
            std::string_view authority;
            if (!target_is_valid(head.method, view_of(bytes, head.target, true), authority)) return stop(Status::bad_target);
            if (authority.data() != nullptr) {
                const auto begin = static_cast<std::uint32_t>(authority.data() - bytes.data());
                head.host = {begin, begin + static_cast<std::uint32_t>(authority.size())};
                head.seen |= seen_absolute;
            }
            head.mark = here() + 1;
            head.phase = phase_version;
            ++at;
            break;
        }

        case phase_version: {
            constexpr std::string_view pattern = "HTTP/0.0\r";  // "0" stands for a digit
            const char expected = pattern[at - head.mark];
            if (expected == '0' ? !is(class_digit, bytes[at]) : bytes[at] != expected) return stop(Status::bad_version);
            if (expected == '\r') {
                if (bytes[head.mark + 5] != '1') return stop(Status::unsupported_version);
                head.version_minor = bytes[head.mark + 7] == '0' ? 0 : 1;
                head.phase = phase_version_lf;
            }
            ++at;
            break;
        }

        case phase_version_lf:
        case phase_value_lf:
        case phase_end_lf:
            if (bytes[at] != '\n') return stop(Status::bad_line_end);
            if (head.phase == phase_end_lf) {
                ++at;
                return stop(judge_head(head));
            }
            if (head.phase == phase_value_lf) {
                const std::string_view value = trim(bytes.substr(head.colon + 1, at - 1 - (head.colon + 1)));
                const auto begin = static_cast<std::uint32_t>(value.data() - bytes.data());
                const Resume::Range range{begin, begin + static_cast<std::uint32_t>(value.size())};
                const Status status = read_field(bytes.substr(head.mark, head.colon - head.mark), value, range, head);
                if (status != Status::complete) return stop(status);
            }
            head.phase = phase_line;
            ++at;
            break;

        case phase_line:
            if (bytes[at] == '\r') {
                head.phase = phase_end_lf;
                ++at;
                break;
            }
            if (is_blank(bytes[at])) return stop(Status::folded_line);
            if (bytes[at] == '\n') return stop(Status::bad_line_end);
            if (!is(class_token, bytes[at])) return stop(Status::bad_field_name);
            if (head.field_count == fields_max) return stop(Status::too_many_fields);
            ++head.field_count;
            head.mark = here();
            head.phase = phase_name;
            break;

        case phase_name:
            at = skip(class_token, bytes, at);
            if (at == bytes.size()) break;
            if (bytes[at] != ':') return stop(Status::bad_field_name);
            head.colon = here();
            head.phase = phase_value;
            ++at;
            break;

        case phase_value:
            at = skip(class_value, bytes, at);
            if (at == bytes.size()) break;
            if (bytes[at] == '\n') return stop(Status::bad_line_end);
            if (bytes[at] != '\r') return stop(Status::bad_field_value);
            head.phase = phase_value_lf;
            ++at;
            break;

        default: return stop(Status::bad_method);  // not reached: a Resume that no scanner wrote
        }
    }
    return stop(Status::incomplete);
}

constexpr std::size_t leading_empty_lines(std::string_view input) noexcept {
    std::size_t at = 0;
    while (input.size() - at >= 2 && input[at] == '\r' && input[at + 1] == '\n') at += 2;
    return at;
}

// scan() and parse() without their outputs: `bytes` is set to the head without leading empty lines.
constexpr Result advance(std::string_view input, std::string_view& bytes, Resume& resume, std::size_t fields_max,
                         const Limits& limits) noexcept {
    const std::size_t empty = resume.at == 0 ? leading_empty_lines(input) : 0;
    const std::size_t head_bytes_max = limits.head_bytes_max < head_bytes_limit ? limits.head_bytes_max : head_bytes_limit;
    bytes = input.substr(empty, head_bytes_max);
    if (bytes.empty() && head_bytes_max > 0) return {Status::incomplete, empty};
    if (resume.at == 0 && !bytes.empty() && bytes[0] == '\r') {
        if (bytes.size() > 1) return {Status::bad_line_end, 0};
        if (head_bytes_max > 1) return {Status::incomplete, empty};
    }
    const Status status = run(bytes, resume, fields_max);
    if (status == Status::complete) return {status, empty + resume.at};
    if (status != Status::incomplete) return {status, 0};
    if (bytes.size() == head_bytes_max)
        return {resume.phase <= phase_version_lf ? Status::request_line_too_long : Status::head_too_long, 0};
    if (empty > 0)
        resume = Resume{};  // offsets would be wrong once the caller has dropped the empty lines, and right if it has not
    return {Status::incomplete, empty};
}

constexpr Result scan(std::string_view input, Request& out, Resume& resume, const Limits& limits) noexcept {
    std::string_view bytes;
    const Result result = advance(input, bytes, resume, ~std::size_t{0}, limits);
    out.method = resume.method;
    if (result.status == Status::complete) fill_request(bytes, resume, out);
    if (result.status != Status::incomplete) resume = Resume{};
    return result;
}

// Views of the field lines of a head that run() found complete.
constexpr std::size_t fill_fields(std::string_view head, std::size_t at, std::span<Field> fields) noexcept {
    std::size_t count = 0;
    while (head[at] != '\r') {
        const std::size_t colon = skip(class_token, head, at);
        const std::size_t end = skip(class_value, head, colon + 1);
        fields[count] = {head.substr(at, colon - at), trim(head.substr(colon + 1, end - colon - 1))};
        ++count;
        at = end + 2;
    }
    return count;
}

constexpr Result parse(std::string_view input, FullRequest& out, std::span<Field> fields, Resume& resume,
                       const Limits& limits) noexcept {
    constexpr std::size_t version_bytes = 11;  // behind the target: SP "HTTP/1.1" CR LF
    std::string_view bytes;
    const Result result = advance(input, bytes, resume, fields.size(), limits);
    out.method = resume.method;
    if (result.status == Status::complete) {
        fill_request(bytes, resume, out);
        out.method_name = bytes.substr(0, resume.target.begin - 1);
        out.fields = fields.first(fill_fields(bytes, resume.target.end + version_bytes, fields));
    }
    if (result.status != Status::incomplete) resume = Resume{};
    return result;
}

inline bool supported() noexcept {
    return true;
}

}  // namespace scalar
}  // namespace detail

// ---- SIMD: what the kernels share ---------------------------------------------------------------------------------------------

namespace detail {

// A head is looked at in blocks of 64 bytes, one mask bit a byte. A longer head than this is left to the scalar kernel. 32 KiB:
// twice the default limit; the marks of all blocks stand on the stack, 8 KiB of it.
inline constexpr std::size_t block_bytes = 64;
inline constexpr std::size_t blocks_max = 512;
// "GET / HTTP/1.0" and two line ends: there is no shorter complete head. The kernels rely on 16.
inline constexpr std::size_t head_bytes_min = 18;

inline std::uint64_t load_8(const char* from) noexcept {
    std::uint64_t word;
    std::memcpy(&word, from, sizeof word);
    return word;
}

inline std::uint16_t load_2(const char* from) noexcept {
    std::uint16_t word;
    std::memcpy(&word, from, sizeof word);
    return word;
}

inline std::uint32_t load_4(const char* from) noexcept {
    std::uint32_t word;
    std::memcpy(&word, from, sizeof word);
    return word;
}

// Up to eight bytes as the number that load_8 reads: the first byte is the lowest.
constexpr std::uint64_t word_of(std::string_view bytes) noexcept {
    std::uint64_t word = 0;
    for (std::size_t i = bytes.size(); i > 0; --i) word = word << 8 | static_cast<unsigned char>(bytes[i - 1]);
    return word;
}

// OR-ed in, it makes letters small, and turns no other byte that may stand in a line into a letter, "-" or ":".
inline constexpr std::uint64_t lower_case_8 = 0x2020'2020'2020'2020;
inline constexpr std::uint32_t lower_case_4 = 0x2020'2020;

// `mask` is not 0. (std::countr_zero would ask for that each time.)
constexpr std::size_t lowest_bit(std::uint64_t mask) noexcept {
    return static_cast<std::size_t>(__builtin_ctzll(mask));
}

// `begin` and `end` are less than 64.
constexpr std::uint64_t bits_between(std::size_t begin, std::size_t end) noexcept {
    return (std::uint64_t{1} << end) - (std::uint64_t{1} << begin);
}

// A perfect hash over words: a slot holds the only word that can be there. The compiler looks for the multiplier.
template <std::size_t slot_bits, class Word, std::size_t count>
struct PerfectHash {
    Word multiplier = 0;
    Word word_in[std::size_t{1} << slot_bits] = {};
    std::uint8_t index_in[std::size_t{1} << slot_bits] = {};

    constexpr std::size_t slot(Word word) const noexcept {
        return static_cast<std::size_t>(static_cast<Word>(word * multiplier) >> (sizeof(Word) * 8 - slot_bits));
    }
    constexpr explicit PerfectHash(const Word (&words)[count]) noexcept {
        for (multiplier = static_cast<Word>(0x9e37'79b9'7f4a'7c15);; multiplier += 2) {
            for (Word& word : word_in) word = 0;
            bool fits = true;
            for (std::size_t i = 0; i < count && fits; ++i) {
                const std::size_t at = slot(words[i]);
                fits = word_in[at] == 0;
                word_in[at] = words[i];
                index_in[at] = static_cast<std::uint8_t>(i);
            }
            if (fits) return;
        }
    }
};

// Methods with the SP behind them, in the order of Method.
inline constexpr std::uint64_t method_words[] = {
    word_of("GET "),    word_of("HEAD "),    word_of("POST "),  word_of("PUT "),     word_of("PATCH "),
    word_of("DELETE "), word_of("OPTIONS "), word_of("TRACE "), word_of("CONNECT "),
};
inline constexpr PerfectHash<5, std::uint64_t, 9> method_table{method_words};
static_assert(static_cast<int>(Method::get) == 0 && static_cast<int>(Method::connect) == 8, "method_words has the order of Method");

// The names that a scan acts on: their first four letters tell them apart. In small letters, with the colon behind them.
inline constexpr std::string_view known_names[] = {
    "host:", "connection:", "content-length:", "transfer-encoding:", "expect:", "if-none-match:", "if-modified-since:"};
constexpr std::uint32_t name_word(std::size_t index) noexcept {
    return static_cast<std::uint32_t>(word_of(known_names[index].substr(0, 4)));
}
inline constexpr std::uint32_t name_words[] = {name_word(0), name_word(1), name_word(2), name_word(3),
                                               name_word(4), name_word(5), name_word(6)};
inline constexpr std::uint32_t host_word = name_words[0], connection_word = name_words[1];
inline constexpr PerfectHash<4, std::uint32_t, 7> name_table{name_words};

// The classes of the SIMD kernels. Two are subsets of what the grammar allows: what falls between is for the scalar kernel to
// judge.
constexpr bool is_plain_target(char c) noexcept {
    return is(class_target, c) && !contains("%[]", c);
}
// A colon before a port included.
constexpr bool is_plain_authority(char c) noexcept {
    return is(class_alpha, c) || is(class_digit, c) || contains("-.:", c);
}
// Bytes that no line may hold, whatever its meaning, and that are no line end.
constexpr bool is_bad(char c) noexcept {
    return !is(class_value, c) && c != '\r' && c != '\n';
}
constexpr bool is_token(char c) noexcept {
    return is(class_token, c);
}
// The first letter of a known name. Lines with another need not be looked at.
constexpr bool is_initial(char c) noexcept {
    for (std::string_view name : known_names)
        if (c == name[0] || c == name[0] - ('a' - 'A')) return true;
    return false;
}

// For lookups of 16 bytes, by the low and by the high half of a byte. The ASCII bytes are eight rows of sixteen; row r has bit r.
// The high half gives the row's bit, the low half the set of rows in which that column belongs to the class: their AND is zero
// outside the class.
struct NibbleTable {
    alignas(32) std::uint8_t of[32];  // twice, for the two lanes of a register
};
constexpr NibbleTable make_row_table() noexcept {
    NibbleTable table{};
    for (unsigned row = 0; row < 8; ++row) table.of[row] = table.of[row + 16] = static_cast<std::uint8_t>(1u << row);
    return table;
}
constexpr NibbleTable make_column_table(bool (*belongs)(char)) noexcept {
    NibbleTable table{};
    for (unsigned value = 0; value < 128; ++value)
        if (belongs(static_cast<char>(value))) table.of[value % 16] |= static_cast<std::uint8_t>(1u << value / 16);
    for (unsigned column = 0; column < 16; ++column) table.of[column + 16] = table.of[column];
    return table;
}
struct ByteVector {
    alignas(64) std::uint8_t of[64];
};
constexpr ByteVector make_bytes(char value) noexcept {
    ByteVector bytes{};
    for (std::uint8_t& each : bytes.of) each = static_cast<std::uint8_t>(value);
    return bytes;
}

// Vectors in memory, as operands. They are constants, and not const: a compiler that knew their values would make some of them from
// general registers in every call, with three instructions in place of none.
struct Vectors {
    ByteVector cr = make_bytes('\r'), lf = make_bytes('\n'), colon = make_bytes(':'), low_half = make_bytes(15);
    ByteVector first_digit = make_bytes('0'), last_digit = make_bytes('9');
    NibbleTable rows = make_row_table();
    NibbleTable token = make_column_table(is_token), target = make_column_table(is_plain_target), bad = make_column_table(is_bad),
                authority = make_column_table(is_plain_authority), initial = make_column_table(is_initial);
};
inline constinit Vectors vectors;

// For an authority: which of its bytes it may not hold, which are colons, and which are no digits. Other bits are 0.
struct AuthorityMasks {
    std::uint64_t not_allowed, colon, not_digit;
};

// The scalar kernel as what the others fall back to: out of line, as its code would only be in their way.
[[gnu::noinline, gnu::cold]] inline Result scan_slowly(std::string_view input, Request& out, Resume& resume,
                                                       const Limits& limits) noexcept {
    return scalar::scan(input, out, resume, limits);
}
[[gnu::noinline, gnu::cold]] inline Result parse_slowly(std::string_view input, FullRequest& out, std::span<Field> fields,
                                                        Resume& resume, const Limits& limits) noexcept {
    return scalar::parse(input, out, fields, resume, limits);
}

}  // namespace detail
}  // namespace http

#if defined(CEILING_HTTP_X86)

// ---- SIMD: the AVX2 kernel ----------------------------------------------------------------------------------------------------
// A kernel gives the scanner at the end of this file its blocks: 64 bytes at a time, never a byte outside the input, and masks of
// them. What is wrong with a byte stays in vector registers and is added up there, as moving a mask to a general register
// is the scarcest thing here (one a cycle on Zen 4 for 32 bytes; from a mask register of AVX-512, two cycles for 64).

#define CEILING_HTTP_KERNEL avx2
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,bmi,bmi2,lzcnt,popcnt"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,bmi,bmi2,lzcnt,popcnt")
#endif

namespace http::detail::avx2 {

inline bool supported() noexcept {
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
}

[[gnu::always_inline]] inline __m256i load_32(const char* from) noexcept {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}

[[gnu::always_inline]] inline __m128i load_16(const void* from) noexcept {
    return _mm_loadu_si128(static_cast<const __m128i*>(from));
}

template <class Table>
[[gnu::always_inline]] inline __m256i vector(const Table& of) noexcept {
    return _mm256_load_si256(reinterpret_cast<const __m256i*>(of.of));
}

[[gnu::always_inline]] inline __m256i rows_of(__m256i bytes) noexcept {
    return _mm256_shuffle_epi8(vector(vectors.rows), _mm256_and_si256(_mm256_srli_epi16(bytes, 4), vector(vectors.low_half)));
}

// Not zero where a byte belongs to the class. A byte outside ASCII has its top bit set and finds no column.
[[gnu::always_inline]] inline __m256i inside(const NibbleTable& columns, __m256i rows, __m256i bytes) noexcept {
    return _mm256_and_si256(rows, _mm256_shuffle_epi8(vector(columns), bytes));
}

[[gnu::always_inline]] inline __m256i is_zero(__m256i bytes) noexcept {
    return _mm256_cmpeq_epi8(bytes, _mm256_setzero_si256());
}

[[gnu::always_inline]] inline __m256i equal_to(__m256i bytes, const ByteVector& value) noexcept {
    return _mm256_cmpeq_epi8(bytes, vector(value));
}

[[gnu::always_inline]] inline __m256i not_digit(__m256i bytes) noexcept {
    return _mm256_or_si256(_mm256_cmpgt_epi8(vector(vectors.first_digit), bytes),
                           _mm256_cmpgt_epi8(bytes, vector(vectors.last_digit)));
}

// The bytes moved up by one, with a zero in front.
[[gnu::always_inline]] inline __m256i moved_up(__m256i bytes) noexcept {
    return _mm256_alignr_epi8(bytes, _mm256_permute2x128_si256(bytes, bytes, 0x08), 15);
}

// Doubt is not zero where a byte is wrong in every line: a control byte, an LF not behind a CR, or what is behind a CR and no LF.
struct Doubt {
    __m256i low, high;

    [[gnu::always_inline]] void add(const Doubt& other) noexcept {
        low = _mm256_or_si256(low, other.low);
        high = _mm256_or_si256(high, other.high);
    }
    [[gnu::always_inline]] bool any() const noexcept {
        const __m256i both = _mm256_or_si256(low, high);
        return _mm256_testz_si256(both, both) == 0;
    }
};

[[gnu::always_inline]] inline Doubt no_doubt() noexcept {
    return {_mm256_setzero_si256(), _mm256_setzero_si256()};
}

// 64 bytes in two halves, and for each half the bytes one place before. `Place` says which bits of a mask the halves are.
template <class Place>
struct Block : Place {
    __m256i low, high, low_before, high_before;

    [[gnu::always_inline]] std::uint64_t mask(__m256i low_ones, __m256i high_ones) const noexcept {
        return this->join(static_cast<std::uint32_t>(_mm256_movemask_epi8(low_ones)),
                          static_cast<std::uint32_t>(_mm256_movemask_epi8(high_ones)));
    }
    [[gnu::always_inline]] std::uint64_t outside(const NibbleTable& columns) const noexcept {
        return mask(is_zero(inside(columns, rows_of(low), low)), is_zero(inside(columns, rows_of(high), high)));
    }

    [[gnu::always_inline]] std::uint64_t lf() const noexcept { return mask(equal_to(low, vectors.lf), equal_to(high, vectors.lf)); }
    [[gnu::always_inline]] std::uint64_t colon() const noexcept {
        return mask(equal_to(low, vectors.colon), equal_to(high, vectors.colon));
    }
    [[gnu::always_inline]] std::uint64_t token() const noexcept { return ~outside(vectors.token); }
    [[gnu::always_inline]] std::uint64_t target() const noexcept { return ~outside(vectors.target); }
    [[gnu::always_inline]] std::uint64_t initial() const noexcept { return ~outside(vectors.initial); }

    [[gnu::always_inline]] static __m256i doubt_of(__m256i bytes, __m256i before) noexcept {
        return _mm256_or_si256(_mm256_xor_si256(equal_to(bytes, vectors.lf), equal_to(before, vectors.cr)),
                               inside(vectors.bad, rows_of(bytes), bytes));
    }
    [[gnu::always_inline]] Doubt doubt() const noexcept { return {doubt_of(low, low_before), doubt_of(high, high_before)}; }
    [[gnu::always_inline]] std::uint64_t mask_of(const Doubt& doubt) const noexcept {
        return ~mask(is_zero(doubt.low), is_zero(doubt.high));
    }
};

// A whole block: the halves are side by side.
struct Whole {
    [[gnu::always_inline]] static std::uint64_t join(std::uint64_t low, std::uint64_t high) noexcept { return low | high << 32; }
};

// The first or last block of an input, moved or folded so as to be inside it.
struct Part {
    unsigned high_shift;  // bit of the first byte of `high`
    unsigned drop;        // bits in front that belong to the block before

    [[gnu::always_inline]] std::uint64_t join(std::uint64_t low, std::uint64_t high) const noexcept {
        return (low | high << high_shift) >> drop;
    }
};

// The first block of a longer input.
[[gnu::always_inline]] inline Block<Whole> front_block(const char* data) noexcept {
    const __m256i low = load_32(data);
    return {{}, low, load_32(data + 32), moved_up(low), load_32(data + 31)};
}

[[gnu::always_inline]] inline Block<Whole> next_block(const char* from) noexcept {
    return {{}, load_32(from), load_32(from + 32), load_32(from - 1), load_32(from + 31)};
}

// The rest of an input of at least 64 bytes, from `at` on: the last 64 bytes.
[[gnu::always_inline]] inline Block<Part> last_block(const char* data, std::size_t size, std::size_t at) noexcept {
    const char* from = data + size - 64;
    return {{32, static_cast<unsigned>(at + 64 - size)}, load_32(from), load_32(from + 32), load_32(from - 1), load_32(from + 31)};
}

// The halves of an input of less than 64 bytes overlap. One that is shorter than a half is put together in a register.
[[gnu::always_inline]] inline Block<Part> first_block(const char* data, std::size_t size) noexcept {
    if (size > 32) [[likely]] {
        if (size > 64) size = 64;
        const __m256i low = load_32(data);
        return {{static_cast<unsigned>(size - 32), 0}, low, load_32(data + size - 32), moved_up(low), load_32(data + size - 33)};
    }
    // Bytes 16 to 31 are the last sixteen of the input, moved down over those that are among the first sixteen already; zeros
    // follow.
    alignas(16) static constexpr std::uint8_t move_down[32] = {0,    1,    2,    3,    4,    5,    6,    7,    8,    9,    10,
                                                               11,   12,   13,   14,   15,   0x80, 0x80, 0x80, 0x80, 0x80, 0x80,
                                                               0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80};
    const __m128i tail = _mm_shuffle_epi8(load_16(data + size - 16), load_16(move_down + (32 - size)));
    const __m256i low = _mm256_inserti128_si256(_mm256_castsi128_si256(load_16(data)), tail, 1);
    return {{32, 0}, low, _mm256_setzero_si256(), moved_up(low), _mm256_setzero_si256()};
}

inline constexpr std::size_t authority_bytes_max = 32;
inline constexpr std::size_t authority_end_min = 32;

// Loads the 32 bytes that end with the authority; the caller sees to it that there are as many.
[[gnu::always_inline]] inline AuthorityMasks authority_masks(const char* data, std::size_t begin, std::size_t end) noexcept {
    const __m256i bytes = load_32(data + end - 32);
    const __m256i not_allowed = is_zero(inside(vectors.authority, rows_of(bytes), bytes));
    const auto drop = static_cast<unsigned>(32 - (end - begin));
    const auto mask = [drop](__m256i ones) __attribute__((always_inline)) {
        return std::uint64_t{static_cast<std::uint32_t>(_mm256_movemask_epi8(ones))} >> drop;
    };
    return {mask(not_allowed), mask(equal_to(bytes, vectors.colon)), mask(not_digit(bytes))};
}

}  // namespace http::detail::avx2

#include "http_parse.hpp"  // the scanner, at the end of this file

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#undef CEILING_HTTP_KERNEL

// ---- SIMD: the AVX-512 kernel -------------------------------------------------------------------------------------------------
// One lookup over 128 bytes (VBMI: Ice Lake, Zen 4 and later) answers all questions of 64 bytes at once, and a masked load touches
// nothing that its mask leaves out, so the end of an input needs no care.

#define CEILING_HTTP_KERNEL avx512
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512vl,avx512vbmi,bmi,bmi2,lzcnt,popcnt"))), \
                             apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512vbmi,bmi,bmi2,lzcnt,popcnt")
#endif

namespace http::detail::avx512 {

inline bool supported() noexcept {
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
}

enum Answer : std::uint8_t {
    answer_token = 1,
    answer_bad = 2,
    answer_target = 4,
    answer_initial = 8,
    answer_authority = 16,
    answer_digit = 32,
};

struct AnswerTable {
    alignas(64) std::uint8_t of[128];
};
constexpr AnswerTable make_answer_table() noexcept {
    AnswerTable table{};
    for (unsigned value = 0; value < 128; ++value) {
        const char c = static_cast<char>(value);
        table.of[value] =
            static_cast<std::uint8_t>((is_token(c) ? answer_token : 0) | (is_bad(c) ? answer_bad : 0) |
                                      (is_plain_target(c) ? answer_target : 0) | (is_initial(c) ? answer_initial : 0) |
                                      (is_plain_authority(c) ? answer_authority : 0) | (is(class_digit, c) ? answer_digit : 0));
    }
    return table;
}

// Vectors in memory, as those of AVX2 and for the same reason.
struct WideVectors {
    AnswerTable answers = make_answer_table();
    ByteVector not_ascii = make_bytes('\x80');
    ByteVector token = make_bytes(answer_token), bad = make_bytes(answer_bad), target = make_bytes(answer_target),
               initial = make_bytes(answer_initial), authority = make_bytes(answer_authority), digit = make_bytes(answer_digit);
};
inline constinit WideVectors wide_vectors;

[[gnu::always_inline]] inline __m512i vector(const ByteVector& value) noexcept {
    return _mm512_load_si512(value.of);
}

// The lookup takes bits 0 to 6 of a byte; a byte outside ASCII has no answers.
[[gnu::always_inline]] inline __m512i answers_for(__m512i bytes) noexcept {
    return _mm512_maskz_permutex2var_epi8(_mm512_testn_epi8_mask(bytes, vector(wide_vectors.not_ascii)),
                                          _mm512_load_si512(wide_vectors.answers.of), bytes,
                                          _mm512_load_si512(wide_vectors.answers.of + 64));
}

[[gnu::always_inline]] inline __mmask64 equal_to(__m512i bytes, const ByteVector& value) noexcept {
    return _mm512_cmpeq_epi8_mask(bytes, vector(value));
}

// Doubt: bytes that no line may hold, told by their answers; and an LF not behind a CR, or what is behind a CR and no LF.
struct Doubt {
    __m512i answers;
    __mmask64 pairs;

    [[gnu::always_inline]] void add(const Doubt& other) noexcept {
        answers = _mm512_or_si512(answers, other.answers);
        pairs = _kor_mask64(pairs, other.pairs);
    }
    [[gnu::always_inline]] __mmask64 bad() const noexcept { return _mm512_test_epi8_mask(answers, vector(wide_vectors.bad)); }
    [[gnu::always_inline]] bool any() const noexcept { return _kortestz_mask64_u8(pairs, bad()) == 0; }
};

[[gnu::always_inline]] inline Doubt no_doubt() noexcept {
    return {_mm512_setzero_si512(), 0};
}

// A mask in a general register, moved once: a compiler that sees where it comes from moves it again for each use.
[[gnu::always_inline]] inline std::uint64_t moved(std::uint64_t mask) noexcept {
    asm("" : "+r"(mask));
    return mask;
}

struct Block {
    __m512i bytes, answers;
    __mmask64 cr_before;  // where the byte before is a CR

    [[gnu::always_inline]] std::uint64_t with(const ByteVector& answer) const noexcept {
        return moved(_mm512_test_epi8_mask(answers, vector(answer)));
    }
    [[gnu::always_inline]] std::uint64_t lf() const noexcept { return moved(equal_to(bytes, vectors.lf)); }
    [[gnu::always_inline]] std::uint64_t colon() const noexcept { return moved(equal_to(bytes, vectors.colon)); }
    [[gnu::always_inline]] std::uint64_t token() const noexcept { return with(wide_vectors.token); }
    [[gnu::always_inline]] std::uint64_t target() const noexcept { return with(wide_vectors.target); }
    [[gnu::always_inline]] std::uint64_t initial() const noexcept { return with(wide_vectors.initial); }
    [[gnu::always_inline]] std::uint64_t authority() const noexcept { return with(wide_vectors.authority); }
    [[gnu::always_inline]] std::uint64_t digit() const noexcept { return with(wide_vectors.digit); }
    [[gnu::always_inline]] Doubt doubt() const noexcept { return {answers, _kxor_mask64(equal_to(bytes, vectors.lf), cr_before)}; }
    [[gnu::always_inline]] std::uint64_t mask_of(const Doubt& doubt) const noexcept {
        return _kor_mask64(doubt.pairs, doubt.bad());
    }
};

[[gnu::always_inline]] inline Block next_block(const char* from) noexcept {
    const __m512i bytes = _mm512_loadu_si512(from);
    return {bytes, answers_for(bytes), equal_to(_mm512_loadu_si512(from - 1), vectors.cr)};
}

// The rest of an input from `at` on, which is less than 64 bytes.
[[gnu::always_inline]] inline Block last_block(const char* data, std::size_t size, std::size_t at) noexcept {
    const __mmask64 here = _bzhi_u64(~std::uint64_t{0}, static_cast<unsigned>(size - at));
    const __m512i bytes = _mm512_maskz_loadu_epi8(here, data + at);
    return {bytes, answers_for(bytes), equal_to(_mm512_maskz_loadu_epi8(here, data + at - 1), vectors.cr)};
}

[[gnu::always_inline]] inline Block block_behind_nothing(__m512i bytes) noexcept {
    return {bytes, answers_for(bytes), _kshiftli_mask64(equal_to(bytes, vectors.cr), 1)};
}

// The first block of a longer input.
[[gnu::always_inline]] inline Block front_block(const char* data) noexcept {
    return block_behind_nothing(_mm512_loadu_si512(data));
}

// The block of an input of at most 64 bytes, or the first of a longer one.
[[gnu::always_inline]] inline Block first_block(const char* data, std::size_t size) noexcept {
    const std::uint64_t here = _bzhi_u64(~std::uint64_t{0}, static_cast<unsigned>(size < 64 ? size : 64));
    return block_behind_nothing(_mm512_maskz_loadu_epi8(here, data));
}

inline constexpr std::size_t authority_bytes_max = 64;
inline constexpr std::size_t authority_end_min = 0;

[[gnu::always_inline]] inline AuthorityMasks authority_masks(const char* data, std::size_t begin, std::size_t end) noexcept {
    const __mmask64 here = _bzhi_u64(~std::uint64_t{0}, static_cast<unsigned>(end - begin));
    const __m512i bytes = _mm512_maskz_loadu_epi8(here, data + begin);
    const __m512i answers = answers_for(bytes);
    return {moved(_mm512_mask_testn_epi8_mask(here, answers, vector(wide_vectors.authority))),
            moved(equal_to(bytes, vectors.colon)), moved(_mm512_mask_testn_epi8_mask(here, answers, vector(wide_vectors.digit)))};
}

// In a head of one block, the answers are here.
[[gnu::always_inline]] inline AuthorityMasks authority_masks(const Block& block, const char*, std::size_t begin,
                                                             std::size_t end) noexcept {
    const std::uint64_t here = bits_between(begin, end);
    return {here & ~block.authority(), here & block.colon(), here & ~block.digit()};
}

}  // namespace http::detail::avx512

#include "http_parse.hpp"  // the scanner, at the end of this file

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#undef CEILING_HTTP_KERNEL

// ---- SIMD: the SSE2 kernel ----------------------------------------------------------------------------------------------------
// What every x86-64 has. Without a byte shuffle, classes are ranges, and the rarer members of a class are left to the scalar
// kernel.

#define CEILING_HTTP_KERNEL sse2

namespace http::detail::sse2 {

inline bool supported() noexcept {
    return true;
}

[[gnu::always_inline]] inline __m128i load_16(const char* from) noexcept {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
}

[[gnu::always_inline]] inline __m128i either(__m128i a, __m128i b) noexcept {
    return _mm_or_si128(a, b);
}

[[gnu::always_inline]] inline __m128i equal_to(__m128i bytes, char value) noexcept {
    return _mm_cmpeq_epi8(bytes, _mm_set1_epi8(value));
}

[[gnu::always_inline]] inline __m128i between(__m128i bytes, char first, char last) noexcept {
    const __m128i above = _mm_sub_epi8(bytes, _mm_set1_epi8(first));
    return _mm_cmpeq_epi8(_mm_min_epu8(above, _mm_set1_epi8(static_cast<char>(last - first))), above);
}

[[gnu::always_inline]] inline __m128i alphanumeric(__m128i bytes) noexcept {
    return either(between(either(bytes, _mm_set1_epi8(0x20)), 'a', 'z'), between(bytes, '0', '9'));
}

// The usual bytes of a name: letters, digits, "-", "." and "_".
[[gnu::always_inline]] inline __m128i token(__m128i bytes) noexcept {
    return either(alphanumeric(bytes), either(between(bytes, '-', '.'), equal_to(bytes, '_')));
}

[[gnu::always_inline]] inline __m128i target(__m128i bytes) noexcept {
    const __m128i ranges = either(between(bytes, '&', ';'), either(between(bytes, '?', 'Z'), between(bytes, 'a', 'z')));
    return either(either(ranges, equal_to(bytes, '=')), either(equal_to(bytes, '_'), equal_to(bytes, '~')));
}

[[gnu::always_inline]] inline __m128i authority(__m128i bytes) noexcept {
    return either(alphanumeric(bytes), either(between(bytes, '-', '.'), equal_to(bytes, ':')));
}

struct Doubt {
    __m128i all;
    __m128i part[4];

    [[gnu::always_inline]] void add(const Doubt& other) noexcept {
        for (int i = 0; i < 4; ++i) all = either(all, other.part[i]);
    }
    [[gnu::always_inline]] bool any() const noexcept {
        return _mm_movemask_epi8(_mm_cmpeq_epi8(all, _mm_setzero_si128())) != 0xffff;
    }
};

[[gnu::always_inline]] inline Doubt no_doubt() noexcept {
    return {_mm_setzero_si128(), {}};
}

// 64 bytes in four parts, and for each part the bytes one place before.
struct Block {
    __m128i part[4], before[4];
    unsigned shift[4];
    unsigned drop;  // bits in front that belong to the block before

    template <class Question>
    [[gnu::always_inline]] std::uint64_t join(Question question) const noexcept {
        std::uint64_t mask = 0;
        for (int i = 0; i < 4; ++i)
            mask |= std::uint64_t{static_cast<unsigned>(_mm_movemask_epi8(question(part[i], before[i])))} << shift[i];
        return mask >> drop;
    }

    [[gnu::always_inline]] std::uint64_t lf() const noexcept {
        return join([](__m128i bytes, __m128i) { return equal_to(bytes, '\n'); });
    }
    [[gnu::always_inline]] std::uint64_t colon() const noexcept {
        return join([](__m128i bytes, __m128i) { return equal_to(bytes, ':'); });
    }
    [[gnu::always_inline]] std::uint64_t token() const noexcept {
        return join([](__m128i bytes, __m128i) { return sse2::token(bytes); });
    }
    [[gnu::always_inline]] std::uint64_t target() const noexcept {
        return join([](__m128i bytes, __m128i) { return sse2::target(bytes); });
    }
    // Here a comparison for each letter costs more than a look at each line.
    [[gnu::always_inline]] static std::uint64_t initial() noexcept { return ~std::uint64_t{0}; }

    // HTAB is one of the control bytes that are left to the scalar kernel.
    [[gnu::always_inline]] static __m128i doubt_of(__m128i bytes, __m128i bytes_before) noexcept {
        const __m128i lf = equal_to(bytes, '\n');
        const __m128i control = either(between(bytes, 0, 0x1f), equal_to(bytes, 0x7f));
        return either(_mm_xor_si128(lf, equal_to(bytes_before, '\r')),
                      _mm_andnot_si128(either(lf, equal_to(bytes, '\r')), control));
    }
    [[gnu::always_inline]] Doubt doubt() const noexcept {
        Doubt doubt = no_doubt();
        for (int i = 0; i < 4; ++i) doubt.part[i] = doubt_of(part[i], before[i]);
        return doubt;
    }
    [[gnu::always_inline]] std::uint64_t mask_of(const Doubt&) const noexcept { return join(doubt_of); }
};

// The parts of a short input overlap, so that none reaches beyond its end.
[[gnu::always_inline]] inline Block first_block(const char* data, std::size_t size) noexcept {
    const std::size_t last = size >= 64 ? 48 : size - 16;
    Block block{};
    for (std::size_t i = 0; i < 4; ++i) {
        const std::size_t offset = 16 * i < last ? 16 * i : last;
        block.part[i] = load_16(data + offset);
        block.before[i] = offset == 0 ? _mm_slli_si128(block.part[i], 1) : load_16(data + offset - 1);
        block.shift[i] = static_cast<unsigned>(offset);
    }
    return block;
}

[[gnu::always_inline]] inline Block next_block(const char* from) noexcept {
    Block block{};
    for (unsigned i = 0; i < 4; ++i) {
        block.part[i] = load_16(from + 16 * i);
        block.before[i] = load_16(from + 16 * i - 1);
        block.shift[i] = 16 * i;
    }
    return block;
}

// The rest of an input of at least 64 bytes, from `at` on: the last 64 bytes.
[[gnu::always_inline]] inline Block last_block(const char* data, std::size_t size, std::size_t at) noexcept {
    Block block = next_block(data + size - 64);
    block.drop = static_cast<unsigned>(at + 64 - size);
    return block;
}

// The first block of a longer input.
[[gnu::always_inline]] inline Block front_block(const char* data) noexcept {
    return first_block(data, block_bytes);
}

inline constexpr std::size_t authority_bytes_max = 16;
inline constexpr std::size_t authority_end_min = 16;

// Loads the 16 bytes that end with the authority; the caller sees to it that there are as many.
[[gnu::always_inline]] inline AuthorityMasks authority_masks(const char* data, std::size_t begin, std::size_t end) noexcept {
    const __m128i bytes = load_16(data + end - 16);
    const auto drop = static_cast<unsigned>(16 - (end - begin));
    const auto mask = [drop](__m128i ones) { return std::uint64_t{static_cast<unsigned>(_mm_movemask_epi8(ones))} >> drop; };
    const auto not_mask = [drop](__m128i zeros) {
        return std::uint64_t{static_cast<unsigned>(_mm_movemask_epi8(zeros)) ^ 0xffff} >> drop;
    };
    return {not_mask(authority(bytes)), mask(equal_to(bytes, ':')), not_mask(between(bytes, '0', '9'))};
}

}  // namespace http::detail::sse2

#include "http_parse.hpp"  // the scanner, at the end of this file

#undef CEILING_HTTP_KERNEL
#endif  // CEILING_HTTP_X86

namespace http {
namespace detail {

// ---- Choice of a kernel -------------------------------------------------------------------------------------------------------

inline constexpr Kernel kernel_table[] = {
#if defined(CEILING_HTTP_X86)
    {"avx512", avx512::supported, avx512::scan, avx512::parse},
    {"avx2", avx2::supported, avx2::scan, avx2::parse},
    {"sse2", sse2::supported, sse2::scan, sse2::parse},
#endif
    {"scalar", scalar::supported, scalar::scan, scalar::parse},
};

constexpr std::size_t kernel_count = sizeof(kernel_table) / sizeof(kernel_table[0]);

inline const Kernel* first_supported() noexcept {
    for (const Kernel& candidate : kernel_table)
        if (candidate.supported()) return &candidate;
    return &kernel_table[kernel_count - 1];
}

// Scalar until start-up has looked at the CPU, so that a scan from another initialiser is slow and not wrong.
inline constinit const Kernel* current_kernel = &kernel_table[kernel_count - 1];
inline const bool kernel_chosen = (current_kernel = first_supported()) != nullptr;

}  // namespace detail

inline std::span<const Kernel> kernels() noexcept {
    return detail::kernel_table;
}

inline const Kernel& kernel() noexcept {
    return *detail::current_kernel;
}

inline bool use_kernel(std::string_view name) noexcept {
    for (const Kernel& candidate : detail::kernel_table) {
        if (candidate.name != name || !candidate.supported()) continue;
        detail::current_kernel = &candidate;
        return true;
    }
    return false;
}

// ---- Definitions --------------------------------------------------------------------------------------------------------------

constexpr Result scan(std::string_view input, Request& out, Resume& resume, const Limits& limits) noexcept {
    if (__builtin_is_constant_evaluated()) return detail::scalar::scan(input, out, resume, limits);
    return detail::current_kernel->scan(input, out, resume, limits);
}

constexpr Result parse(std::string_view input, FullRequest& out, std::span<Field> fields, Resume& resume,
                       const Limits& limits) noexcept {
    if (__builtin_is_constant_evaluated()) return detail::scalar::parse(input, out, fields, resume, limits);
    return detail::current_kernel->parse(input, out, fields, resume, limits);
}

constexpr Result parse(std::string_view input, FullRequest& out, std::span<Field> fields, const Limits& limits) noexcept {
    Resume resume{};
    return parse(input, out, fields, resume, limits);
}

constexpr int status_code(Status status) noexcept {
    switch (status) {
    case Status::complete:
    case Status::incomplete: return 0;
    case Status::unsupported_version: return 505;
    case Status::request_line_too_long: return 414;
    case Status::head_too_long:
    case Status::too_many_fields:
    case Status::chunk_overhead_too_long: return 431;
    case Status::unknown_transfer_encoding: return 501;
    case Status::body_too_large: return 413;
    default: return 400;
    }
}

constexpr std::string_view reason(Status status) noexcept {
    switch (status) {
    case Status::complete: return "complete";
    case Status::incomplete: return "incomplete";
    case Status::bad_line_end: return "a line does not end in CRLF";
    case Status::bad_method: return "the method is not a token";
    case Status::bad_target: return "the request target is not valid";
    case Status::bad_version: return "the HTTP version is not valid";
    case Status::unsupported_version: return "the HTTP version is not 1.x";
    case Status::request_line_too_long: return "the request line is too long";
    case Status::head_too_long: return "the head is too long";
    case Status::too_many_fields: return "there are too many fields";
    case Status::folded_line: return "a line begins with a blank";
    case Status::bad_field_name: return "a field name is not a token";
    case Status::bad_field_value: return "a field value has a control byte";
    case Status::bad_host: return "Host is not a host and port";
    case Status::repeated_host: return "Host is repeated";
    case Status::missing_host: return "Host is missing";
    case Status::bad_content_length: return "Content-Length is not one number";
    case Status::bad_transfer_encoding: return "Transfer-Encoding does not end in one chunked";
    case Status::unknown_transfer_encoding: return "Transfer-Encoding has an unknown coding";
    case Status::length_and_encoding: return "both Content-Length and Transfer-Encoding are given";
    case Status::encoding_before_1_1: return "Transfer-Encoding is given in HTTP/1.0";
    case Status::body_too_large: return "the body is too large";
    case Status::bad_chunk_size: return "a chunk size is not a hexadecimal number";
    case Status::bad_chunk_extension: return "a chunk extension is not valid";
    case Status::bad_chunk_end: return "a chunk does not end in CRLF";
    case Status::chunk_overhead_too_long: return "chunk extensions and trailers are too long";
    case Status::bad_trailer: return "a trailer field is not valid";
    }
    return "unknown";
}

// ---- Body ---------------------------------------------------------------------------------------------------------------------

namespace detail {

// Where in the content the next byte stands. The chunked grammar is that of RFC 9112 7.1, its extensions that of 7.1.1 with BWS.
enum BodyPhase : std::uint8_t {
    body_done,
    body_length,        // inside content of a known length
    chunk_size_begin,   // the first digit
    chunk_size,         // more digits, or their end
    chunk_blank,        // a blank: only an extension can follow
    chunk_name_begin,   // behind ";"
    chunk_name,         // inside an extension's name
    chunk_name_blank,   // behind it
    chunk_value_begin,  // behind "="
    chunk_value,        // inside an extension's token
    chunk_quoted,       // inside its quoted string
    chunk_escape,       // behind a backslash there
    chunk_quoted_end,   // behind the closing quote
    chunk_line_lf,      // the LF of a size line
    chunk_data,
    chunk_data_cr,
    chunk_data_lf,
    trailer_line,  // the first byte of a trailer line, or the CR of the last line
    trailer_name,
    trailer_value,
    trailer_value_lf,
    trailer_end_lf,
};

constexpr unsigned hex_value(char c) noexcept {
    return is(class_digit, c) ? static_cast<unsigned>(c - '0') : static_cast<unsigned>(to_lower(c) - 'a') + 10;
}

// The next phase for a byte of a chunk extension, or chunk_size_begin where the byte is not allowed.
constexpr BodyPhase extension_phase(BodyPhase phase, char c) noexcept {
    constexpr BodyPhase not_allowed = chunk_size_begin;
    switch (phase) {
    case chunk_blank:  // an end of line is not allowed behind a blank: BWS stands before ";" only
        return c == ';' ? chunk_name_begin : is_blank(c) ? chunk_blank : not_allowed;
    case chunk_name_begin: return is(class_token, c) ? chunk_name : is_blank(c) ? chunk_name_begin : not_allowed;
    case chunk_name:
        if (is(class_token, c)) return chunk_name;
        if (c == '\r') return chunk_line_lf;
        [[fallthrough]];
    case chunk_name_blank:
        return c == '=' ? chunk_value_begin : c == ';' ? chunk_name_begin : is_blank(c) ? chunk_name_blank : not_allowed;
    case chunk_value_begin:
        return c == '"' ? chunk_quoted : is(class_token, c) ? chunk_value : is_blank(c) ? chunk_value_begin : not_allowed;
    case chunk_value:
        if (is(class_token, c)) return chunk_value;
        [[fallthrough]];
    case chunk_quoted_end: return c == '\r' ? chunk_line_lf : c == ';' ? chunk_name_begin : is_blank(c) ? chunk_blank : not_allowed;
    case chunk_quoted:
        return c == '"' ? chunk_quoted_end : c == '\\' ? chunk_escape : is(class_quoted, c) ? chunk_quoted : not_allowed;
    case chunk_escape: return is(class_value, c) ? chunk_quoted : not_allowed;
    default: return not_allowed;
    }
}

}  // namespace detail

constexpr bool Body::done() const noexcept {
    return phase_ == detail::body_done;
}

constexpr Result Body::begin(Body& body, const Request& request, std::uint64_t body_bytes_max) noexcept {
    body = Body{};
    if (request.content_length == 0 && !request.chunked) return {Status::complete, 0};
    body.allowance_ = (body_bytes_max < body_bytes_limit ? body_bytes_max : body_bytes_limit) & body_bytes_limit;
    if (request.chunked) {
        body.phase_ = detail::chunk_size_begin;
        return {Status::incomplete, 0};
    }
    if (request.content_length > body.allowance_) return {Status::body_too_large, 0};
    body.left_ = request.content_length & body_bytes_limit;
    body.phase_ = detail::body_length;
    return {Status::incomplete, 0};
}

constexpr Result Body::discard(std::string_view input) noexcept {
    constexpr unsigned size_digits_max = 16;  // of 64 bits: a larger number is no chunk size (and must not wrap)
    std::size_t at = 0;
    auto phase = static_cast<detail::BodyPhase>(phase_ & 0xff);
    unsigned digits = static_cast<unsigned>(phase_ >> 8);
    const auto stop = [&](Status status) {
        phase_ = (phase | digits << 8) & 0xffff;
        return Result{status, at};
    };
    // Counts one byte of overhead; false when there were too many.
    const auto spend = [&] {
        if (line_bytes_ == chunk_overhead_bytes_max) return false;
        line_bytes_ = (line_bytes_ + 1) & 0xffff;
        return true;
    };

    while (phase != detail::body_done && at < input.size()) {
        const char c = input[at];
        switch (phase) {
        case detail::body_length:
        case detail::chunk_data: {
            const std::uint64_t here = input.size() - at;
            const std::uint64_t taken = here < left_ ? here : left_;
            left_ = (left_ - taken) & body_bytes_limit;
            at += static_cast<std::size_t>(taken);
            if (left_ == 0) phase = phase == detail::chunk_data ? detail::chunk_data_cr : detail::body_done;
            continue;
        }

        case detail::chunk_size_begin:
        case detail::chunk_size:
            if (detail::is(detail::class_hex, c)) {
                const unsigned value = detail::hex_value(c);
                if (digits == 0 && value == 0) {  // leading zeros; the first digit of all is no overhead
                    if (phase == detail::chunk_size && !spend()) return stop(Status::chunk_overhead_too_long);
                } else if (++digits > size_digits_max) {
                    return stop(Status::bad_chunk_size);
                }
                const bool large = left_ > (body_bytes_limit - value) / 16;  // stays at the limit, which no allowance exceeds
                left_ = large ? body_bytes_limit : (left_ * 16 + value) & body_bytes_limit;
                phase = detail::chunk_size;
                break;
            }
            if (phase == detail::chunk_size_begin) return stop(Status::bad_chunk_size);
            if (c != '\r' && c != ';' && !detail::is_blank(c)) return stop(Status::bad_chunk_size);
            if (left_ > allowance_) return stop(Status::body_too_large);
            phase = c == '\r' ? detail::chunk_line_lf : c == ';' ? detail::chunk_name_begin : detail::chunk_blank;
            if (c != '\r' && !spend()) return stop(Status::chunk_overhead_too_long);
            break;

        case detail::chunk_line_lf:
            if (c != '\n') return stop(Status::bad_chunk_end);
            allowance_ = (allowance_ - left_) & body_bytes_limit;
            phase = left_ == 0 ? detail::trailer_line : detail::chunk_data;
            digits = 0;
            break;

        case detail::chunk_data_cr:
            if (c != '\r') return stop(Status::bad_chunk_end);
            phase = detail::chunk_data_lf;
            break;

        case detail::chunk_data_lf:
            if (c != '\n') return stop(Status::bad_chunk_end);
            phase = detail::chunk_size_begin;
            break;

        case detail::trailer_line:
            if (c == '\r') {
                phase = detail::trailer_end_lf;
                break;
            }
            [[fallthrough]];
        case detail::trailer_name:
            if (c == ':' && phase == detail::trailer_name) {
                phase = detail::trailer_value;
            } else if (detail::is(detail::class_token, c)) {
                phase = detail::trailer_name;
            } else {
                return stop(Status::bad_trailer);
            }
            if (!spend()) return stop(Status::chunk_overhead_too_long);
            break;

        case detail::trailer_value:
            if (c == '\r') {
                phase = detail::trailer_value_lf;
            } else if (!detail::is(detail::class_value, c)) {
                return stop(Status::bad_trailer);
            }
            if (!spend()) return stop(Status::chunk_overhead_too_long);
            break;

        case detail::trailer_value_lf:
        case detail::trailer_end_lf:
            if (c != '\n') return stop(Status::bad_trailer);
            phase = phase == detail::trailer_end_lf ? detail::body_done : detail::trailer_line;
            break;

        default: {
            const detail::BodyPhase next = detail::extension_phase(phase, c);
            if (next == detail::chunk_size_begin) return stop(Status::bad_chunk_extension);
            if (!spend()) return stop(Status::chunk_overhead_too_long);
            phase = next;
            break;
        }
        }
        ++at;
    }
    return stop(phase == detail::body_done ? Status::complete : Status::incomplete);
}

}  // namespace http

#undef CEILING_HTTP_X86

#elif defined(CEILING_HTTP_KERNEL)

// ---- The SIMD scanner ---------------------------------------------------------------------------------------------------------
// Compiled once per kernel, in the kernel's target region and with its blocks. Two passes:
//
//   1. Over all blocks, up to the empty line: is every byte where it may be? This is arithmetic on masks; nothing is looked up.
//   2. Over the marks that pass 1 left: where are the fields that were asked for?
//
// The masks of a request ("r" stands for CR, "n" for LF; the first byte, the lowest bit, is on the left):
//
//     input     GET / HTTP/1.1rnHost: a:80rnDNT: 1rnrn
//     lf        ...............1...........1.......1.1
//     starts    ................1...........1.......1.    behind each LF
//     token     111...1111.111..1111..1.11..111..1....
//     nameless  ....................................1.    a start that no token follows: the empty line, if CRLF stands there
//     total     111...1111.111......1.1.11.....1.1..1.    token + starts
//     ends      ....................1..........1....1.    what the addition set: the first byte behind a name, to be a colon
//
// The addition is the trick: a start carries through the token bytes of its line and stops at the first other byte, in every line
// at once.

namespace http::detail::CEILING_HTTP_KERNEL {

// The marks of pass 1, a bit a byte: `lf`, and `fields`, which are the ends of names for a parse, and for a scan the starts of
// lines that may have a known name.
//
// A head of one block that says nothing unusual is read from registers alone: no call, no memory. It is `brief`. Where it is not,
// it is left to the code for any head, so that the rest of this file tells the two apart by `brief` only.
template <class Block>
struct OneBlock {
    static constexpr std::size_t blocks = 1;
    static constexpr bool brief = true;
    const Block& block;
    std::uint64_t lf, fields;

    [[gnu::always_inline]] std::uint64_t lf_in(std::size_t) const noexcept { return lf; }
    [[gnu::always_inline]] std::uint64_t fields_in(std::size_t) const noexcept { return fields; }
    [[gnu::always_inline]] std::uint64_t target() const noexcept { return block.target(); }
};

// Those of any head.
struct ManyBlocks {
    static constexpr bool brief = false;
    std::uint64_t target_in_first;
    std::size_t blocks;
    std::uint64_t lf[blocks_max + 8];  // the 8 keep lf[i] and fields[i] from being a multiple of 4 KiB apart
    std::uint64_t fields[blocks_max];

    [[gnu::always_inline]] std::uint64_t lf_in(std::size_t block) const noexcept { return lf[block]; }
    [[gnu::always_inline]] std::uint64_t fields_in(std::size_t block) const noexcept { return fields[block]; }
    [[gnu::always_inline]] std::uint64_t target() const noexcept { return target_in_first; }
};

// What pass 1 knows between two blocks.
struct Progress {
    Doubt doubt;
    std::uint64_t doubt_about_names;
    std::uint64_t start;  // 1 where a line begins with the next byte
    std::uint8_t carry;   // 1 where a name goes on in the next byte
};

// sum = a + b + carry, and the carry out of it. The intrinsic for this goes through memory in gcc 12.
[[gnu::always_inline]] inline std::uint64_t add_with_carry(std::uint64_t a, std::uint64_t b, std::uint8_t& carry) noexcept {
    asm("addb $-1, %[carry]\n\tadcq %[b], %[a]\n\tsetc %[carry]" : [carry] "+q"(carry), [a] "+r"(a) : [b] "r"(b) : "cc");
    return a;
}

// A name must end in a colon. A parse visits every end and looks at its byte; a scan does not.
template <bool full, class Block>
[[gnu::always_inline]] inline std::uint64_t doubt_about_names(const Block& block, std::uint64_t ends) noexcept {
    return full ? 0 : ends & ~block.colon();
}

inline constexpr std::size_t goes_on = ~std::size_t{0};

// Takes the block at `at`, one of several. Where a line begins without a name, 0 if what stands before it is not beyond doubt, or
// goes_on if there is none.
template <bool full, class Block>
[[gnu::always_inline]] inline std::size_t mark_block(const Block& block, std::size_t at, Progress& before,
                                                     ManyBlocks& marks) noexcept {
    const std::uint64_t lf = block.lf(), token = block.token();
    const std::uint64_t starts = lf << 1 | before.start;
    const std::uint64_t ends = add_with_carry(starts, token, before.carry) & ~token;
    const std::uint64_t nameless = starts & ~token;
    const std::uint64_t fields = full ? ends : starts & block.initial(), doubt = doubt_about_names<full>(block, ends);
    const std::size_t index = at / block_bytes;
    if (at == 0) marks.target_in_first = block.target();
    marks.lf[index] = lf;
    marks.fields[index] = fields;
    if (nameless == 0) [[likely]] {
        before.doubt.add(block.doubt());
        before.doubt_about_names |= doubt;
        before.start = lf >> 63;
        return goes_on;
    }
    const std::uint64_t below = (nameless & -nameless) - 1;
    if ((((block.mask_of(block.doubt()) | doubt) & below) | before.doubt_about_names) != 0 || before.doubt.any()) return 0;
    marks.fields[index] = fields & below;
    marks.blocks = index + 1;
    return at + lowest_bit(nameless);
}

// The first LF at or behind `at`: there is one.
template <class Marks>
[[gnu::always_inline]] inline std::size_t next_lf(const Marks& marks, std::size_t at) noexcept {
    std::size_t index = at / block_bytes;
    std::uint64_t lf = marks.lf_in(index) >> at % block_bytes;
    if (Marks::brief || lf != 0) return at + lowest_bit(lf);
    do lf = marks.lf_in(++index);
    while (lf == 0);
    return index * block_bytes + lowest_bit(lf);
}

// What pass 2 finds. What rare fields say stands apart, as it goes through memory.
struct Findings {
    Method method;
    std::uint8_t version_minor;
    std::size_t target_begin, target_end;
    std::string_view host;
    unsigned seen = 0;  // set of Seen, and seen_rare
};

// Begun with the first rare field: a head that has none should not pay for it.
inline constexpr unsigned seen_rare = 1u << 31;
union Rare {
    Resume head;
    Rare() noexcept {}

    [[gnu::always_inline]] Resume& begun(Findings& found) noexcept {
        if ((found.seen & seen_rare) == 0) head = Resume{};
        found.seen |= seen_rare;
        return head;
    }
};

// The method at the front, if it is a known one, and where it ends.
template <class Marks>
[[gnu::always_inline]] inline bool read_method(const char* data, Findings& found) noexcept {
    if (load_4(data) == word_of("GET ")) [[likely]] {
        found.method = Method::get;
        found.target_begin = 4;
        return true;
    }
    if constexpr (Marks::brief) return false;
    const std::uint64_t bytes = load_8(data), spaces = bytes ^ word_of("        ");
    // The top bit of the lowest byte that is zero, which the borrow cannot have reached.
    const std::uint64_t zeros = (spaces - 0x0101'0101'0101'0101) & ~spaces & 0x8080'8080'8080'8080;
    const std::uint64_t word = bytes & (zeros ^ (zeros - 1));
    const std::size_t slot = method_table.slot(word);
    if (method_table.word_in[slot] != word) return false;
    found.method = static_cast<Method>(method_table.index_in[slot]);
    found.target_begin = lowest_bit(zeros) / 8 + 1;
    return true;
}

// A target that is not all plain, or not of the origin form. `authority` is set where it has one.
struct OtherTarget {
    bool valid;
    std::string_view authority;
};
[[gnu::noinline]] inline OtherTarget other_target(Method method, std::string_view target) noexcept {
    OtherTarget other{false, {}};
    other.valid = skip(class_target, target, 0) == target.size() && target_is_valid(method, target, other.authority);
    return other;
}

// Whether the bytes of the target are plain ones, and an SP stands behind them.
template <class Marks>
[[gnu::always_inline]] inline bool target_is_plain(const char* data, std::size_t size, const Marks& marks,
                                                   const Findings& found) noexcept {
    std::size_t at = found.target_begin;
    std::uint64_t other = ~marks.target() >> at;
    while (!Marks::brief && other == 0) {
        at = (at / block_bytes + 1) * block_bytes;
        if (at > found.target_end) return false;
        other = ~(at + block_bytes <= size ? next_block(data + at).target() : last_block(data, size, at).target());
    }
    return at + lowest_bit(other) == found.target_end && data[found.target_begin] == '/' && found.method != Method::connect;
}

// The request line, whose LF stands at `lf`. False where it is not beyond doubt.
template <class Marks>
[[gnu::always_inline]] inline bool read_request_line(const char* data, std::size_t size, const Marks& marks, std::size_t lf,
                                                     Findings& found) noexcept {
    constexpr std::size_t version_bytes = 10;  // SP "HTTP/1.1" CR
    found.target_end = lf - version_bytes;
    if (!read_method<Marks>(data, found) || lf < found.target_begin + 1 + version_bytes) return false;

    // 0 for HTTP/1.0 and 1 for HTTP/1.1; other versions are left to the scalar kernel.
    const std::uint64_t version = std::rotl(load_8(data + lf - 9) ^ word_of("HTTP/1.0"), 8);
    if (version > 1 || data[found.target_end] != ' ') return false;
    found.version_minor = static_cast<std::uint8_t>(version);
    if (target_is_plain(data, size, marks, found)) [[likely]]
        return true;
    if constexpr (Marks::brief) return false;
    const OtherTarget other = other_target(found.method, {data + found.target_begin, found.target_end - found.target_begin});
    if (other.authority.data() != nullptr) {
        found.host = other.authority;
        found.seen |= seen_absolute;
    }
    return other.valid;
}

// The value between a colon and an LF, without the CR and without blanks around it: nearly always there is one SP in front. False
// where it is left to others.
template <class Marks>
[[gnu::always_inline]] inline bool read_value(const char* data, std::size_t colon, std::size_t lf,
                                              std::string_view& value) noexcept {
    // Of the bytes that a valid line holds, only blanks and the CR are not above SP.
    if (data[colon + 1] == ' ' && static_cast<unsigned char>(data[colon + 2]) > ' ' &&
        static_cast<unsigned char>(data[lf - 2]) > ' ') [[likely]]
        value = {data + colon + 2, lf - colon - 3};
    else if constexpr (Marks::brief)
        return false;
    else
        value = trim({data + colon + 1, lf - colon - 2});
    return true;
}

// Whether the field at `name` is the one of `wanted`, of which the first four letters are known to be equal. Four bytes at a time:
// behind n equal letters there are at least a colon and two line ends, so n + 4 is inside the head.
[[gnu::always_inline]] inline bool is_name(const char* name, std::string_view wanted) noexcept {
    for (std::size_t i = 4; i + 4 < wanted.size(); i += 4)
        if ((load_4(name + i) | lower_case_4) != load_4(wanted.data() + i)) return false;
    const std::size_t last = wanted.size() - 4;
    return (load_4(name + last) | lower_case_4) == load_4(wanted.data() + last);
}

// In a head of one block: a kernel with an overload of its own has the masks already; for the others, looking again costs less than
// two more masks of all of the block.
template <class Block>
[[gnu::always_inline]] inline AuthorityMasks authority_masks(const Block&, const char* data, std::size_t begin,
                                                             std::size_t end) noexcept {
    return authority_masks(data, begin, end);
}

// Whether a value is a host, and perhaps a colon and a port. `is` is about its bytes.
[[gnu::always_inline]] inline bool authority_is_plain(const AuthorityMasks& is) noexcept {
    const std::uint64_t first_colon = is.colon & -is.colon;
    // If there is a colon, what is behind the first one must be digits.
    return is.not_allowed == 0 && (is.not_digit & -first_colon) == first_colon;
}

template <class Marks>
[[gnu::always_inline]] inline bool is_authority(const char* data, std::string_view value, const Marks& marks) noexcept {
    const auto begin = static_cast<std::size_t>(value.data() - data), end = begin + value.size();
    const bool fits = value.size() <= authority_bytes_max && end >= authority_end_min;
    if constexpr (Marks::brief) return fits && authority_is_plain(authority_masks(marks.block, data, begin, end));
    if (fits && authority_is_plain(authority_masks(data, begin, end))) [[likely]]
        return true;
    return authority_of(value).valid;
}

// What Connection nearly always says; 0 for anything else.
[[gnu::always_inline]] inline unsigned usual_connection(std::string_view value) noexcept {
    if (value.size() == 10 && (load_8(value.data()) | lower_case_8) == word_of("keep-ali") &&
        (load_4(value.data() + 6) | lower_case_4) == word_of("live"))
        return seen_keep_alive;
    if (value.size() == 5 && (load_4(value.data()) | lower_case_4) == word_of("clos") && (value[4] | 0x20) == 'e')
        return seen_close;
    return 0;
}

// A line with a known name other than Host and Connection.
[[gnu::noinline]] inline bool read_rare_line(const char* data, std::string_view name, std::string_view value,
                                             Resume& rare) noexcept {
    const auto from = static_cast<std::uint32_t>(value.data() - data);
    const Resume::Range range{from, from + static_cast<std::uint32_t>(value.size())};
    return read_field(name.substr(0, name.size() - 1), value, range, rare) == Status::complete;
}

// Acts on the line that begins at `begin`, if its name is known. False where it is not beyond doubt. `read_value_behind` puts the
// value behind the colon at a position into `value`.
template <class Marks, class ReadValueBehind>
[[gnu::always_inline]] inline bool read_line(const char* data, const Marks& marks, std::size_t begin, Findings& found, Rare& rare,
                                             std::string_view& value, ReadValueBehind read_value_behind) noexcept {
    const std::uint32_t word = load_4(data + begin) | lower_case_4;
    const auto read_value_of = [&](std::string_view name) __attribute__((always_inline)) {
        return read_value_behind(begin + name.size() - 1);
    };
    if (word == host_word) {
        if (data[begin + 4] != ':') return true;
        if (!read_value_of(known_names[0]) || (found.seen & seen_host) != 0 || !is_authority(data, value, marks)) return false;
        if (Marks::brief || (found.seen & seen_absolute) == 0) found.host = value;
        found.seen |= seen_host;
        return true;
    }
    const std::size_t slot = name_table.slot(word);
    if (name_table.word_in[slot] != word) return true;
    if (word == connection_word) {
        if (!is_name(data + begin, known_names[1])) return true;
        if (!read_value_of(known_names[1])) return false;
        const unsigned says = usual_connection(value);
        found.seen |= says;
        if constexpr (Marks::brief) return says != 0;
        if (says == 0) read_connection(value, rare.begun(found));
        return true;
    }
    const std::string_view name = known_names[name_table.index_in[slot]];
    if constexpr (Marks::brief) return false;
    if (!is_name(data + begin, name)) return true;
    return read_value_of(name) && read_rare_line(data, name, value, rare.begun(found));
}

// Pass 2 of a scan: looks at each line that may have a known name.
template <class Marks>
[[gnu::always_inline]] inline bool read_fields(const char* data, const Marks& marks, std::size_t, Findings& found, Rare& rare,
                                               Request&, std::span<Field>) noexcept {
    std::string_view value;
    const auto read_value_behind = [&](std::size_t colon) __attribute__((always_inline)) {
        return read_value<Marks>(data, colon, next_lf(marks, colon), value);
    };
    for (std::size_t index = 0; index < marks.blocks; ++index)
        for (std::uint64_t starts = marks.fields_in(index); starts != 0; starts &= starts - 1)
            if (!read_line(data, marks, index * block_bytes + lowest_bit(starts), found, rare, value, read_value_behind))
                return false;
    return true;
}

// Pass 2 of a parse: each mark ends the name that began with its line. The first line begins at `begin`.
template <class Marks>
[[gnu::always_inline]] inline bool read_fields(const char* data, const Marks& marks, std::size_t begin, Findings& found, Rare& rare,
                                               FullRequest& out, std::span<Field> fields) noexcept {
    Field* field = fields.data();
    Field* const last = field + fields.size();
    for (std::size_t index = 0; index < marks.blocks; ++index) {
        const std::uint64_t lf_here = marks.lf_in(index);
        for (std::uint64_t ends = marks.fields_in(index); ends != 0; ends &= ends - 1) {
            const std::size_t bit = lowest_bit(ends), colon = index * block_bytes + bit;
            if (data[colon] != ':' || field == last) return false;
            const std::uint64_t lf_behind = lf_here >> bit;
            const std::size_t lf =
                Marks::brief || lf_behind != 0 ? colon + lowest_bit(lf_behind) : next_lf(marks, (index + 1) * block_bytes);
            std::string_view value;
            if (!read_value<Marks>(data, colon, lf, value)) return false;
            *field = {{data + begin, colon - begin}, value};
            ++field;
            if (!read_line(data, marks, begin, found, rare, value, [](std::size_t) { return true; })) return false;
            begin = lf + 1;
        }
    }
    out.method_name = {data, found.target_begin - 1};
    out.fields = fields.first(static_cast<std::size_t>(field - fields.data()));
    return true;
}

// Adds what rare fields say, and judges the whole.
[[gnu::noinline]] inline bool judge_rare(std::string_view bytes, const Findings& found, Resume& rare, Request& out) noexcept {
    rare.seen = static_cast<std::uint16_t>(rare.seen | found.seen);
    rare.version_minor = found.version_minor;
    if (judge_head(rare) != Status::complete) return false;
    out.if_none_match = view_of(bytes, rare.if_none_match, (rare.seen & seen_if_none_match) != 0);
    out.if_modified_since = view_of(bytes, rare.if_modified_since, (rare.seen & seen_if_modified_since) != 0);
    out.content_length = rare.content_length;
    static_cast<RequestFlags&>(out) = flags_of(rare.seen, found.method, found.version_minor);
    return true;
}

// Fills `out`. False where the whole is not beyond doubt.
template <class Marks>
[[gnu::always_inline]] inline bool judge(std::string_view bytes, const Findings& found, Rare& rare, Request& out) noexcept {
    out.target = {bytes.data() + found.target_begin, found.target_end - found.target_begin};
    out.host = found.host;
    if (!Marks::brief && (found.seen & seen_rare) != 0) return judge_rare(bytes, Findings(found), rare.head, out);
    if ((found.seen & seen_host) == 0 && found.version_minor != 0) return false;
    out.if_none_match = {};
    out.if_modified_since = {};
    out.content_length = 0;
    const std::uint64_t flags =
        flags_table.of[found.version_minor][found.seen / seen_close % 4] | static_cast<std::uint64_t>(found.method);
    static_cast<RequestFlags&>(out) = std::bit_cast<RequestFlags>(flags);
    return true;
}

// Pass 2, over marks that pass 1 found beyond doubt, for a head that ends at `end` if an empty line stands there. The length of the
// head, or 0 where it does not end or its meaning is not beyond doubt.
template <class Marks, class Out>
[[gnu::always_inline]] inline std::size_t read_head(const char* data, std::size_t size, std::size_t end, const Marks& marks,
                                                    Out& out, std::span<Field> fields) noexcept {
    if (end + 2 > size || load_2(data + end) != word_of("\r\n")) return 0;
    Findings found;
    Rare rare;
    const std::size_t lf = next_lf(marks, 0);
    if (!read_request_line(data, size, marks, lf, found) || !read_fields(data, marks, lf + 1, found, rare, out, fields) ||
        !judge<Marks>({data, size}, found, rare, out))
        return 0;
    return end + 2;
}

// The length of a head, or 0 where it is not complete or not beyond doubt.
template <class Out>
[[gnu::always_inline]] inline std::size_t head_bytes(const char* data, std::size_t size, Out& out,
                                                     std::span<Field> fields) noexcept {
    constexpr bool full = std::is_same_v<Out, FullRequest>;
    if (size > blocks_max * block_bytes) size = blocks_max * block_bytes;
    ManyBlocks marks;
    Progress progress{no_doubt(), 0, 0, 0};
    std::size_t at = 0, end = goes_on;
    if (size <= block_bytes) {
        end = mark_block<full>(first_block(data, size), at, progress, marks);
    } else {
        end = mark_block<full>(front_block(data), at, progress, marks);
        for (at = block_bytes; end == goes_on && at + block_bytes <= size; at += block_bytes)
            end = mark_block<full>(next_block(data + at), at, progress, marks);
        if (end == goes_on && at < size) end = mark_block<full>(last_block(data, size, at), at, progress, marks);
    }
    return end == 0 || end == goes_on ? 0 : read_head(data, size, end, marks, out, fields);
}

// The same for a brief head; 0 where it is not brief.
template <class Out>
[[gnu::always_inline]] inline std::size_t brief_head_bytes(const char* data, std::size_t size, Out& out,
                                                           std::span<Field> fields) noexcept {
    constexpr bool full = std::is_same_v<Out, FullRequest>;
    const auto block = first_block(data, size);
    const std::uint64_t lf = block.lf(), token = block.token();
    const std::uint64_t starts = lf << 1, nameless = starts & ~token;
    if (nameless == 0) return 0;
    const std::uint64_t ends = (starts + token) & ~token, below = (nameless & -nameless) - 1;
    if (((block.mask_of(block.doubt()) | doubt_about_names<full>(block, ends)) & below) != 0) return 0;
    const OneBlock<std::remove_const_t<decltype(block)>> marks{block, lf, (full ? ends : starts & block.initial()) & below};
    return read_head(data, size, lowest_bit(nameless), marks, out, fields);
}

// What of the input a fresh scan may look at; 0 where it is not for this kernel.
[[gnu::always_inline]] inline std::size_t usable_bytes(std::string_view input, const Resume& resume,
                                                       const Limits& limits) noexcept {
    if (resume.at != 0) return 0;
    const std::size_t size = input.size() < limits.head_bytes_max ? input.size() : limits.head_bytes_max;
    return size < head_bytes_min ? 0 : size;
}

// What is not brief: out of line, so that the brief way needs no stack.
[[gnu::noinline]] inline Result scan_any(std::string_view input, Request& out, Resume& resume, const Limits& limits) noexcept {
    const std::size_t size = usable_bytes(input, resume, limits);
    if (const std::size_t consumed = head_bytes(input.data(), size, out, {}); consumed != 0) [[likely]]
        return {Status::complete, consumed};
    return scan_slowly(input, out, resume, limits);
}
[[gnu::noinline]] inline Result parse_any(std::string_view input, FullRequest& out, std::span<Field> fields, Resume& resume,
                                          const Limits& limits) noexcept {
    const std::size_t size = usable_bytes(input, resume, limits);
    if (const std::size_t consumed = head_bytes(input.data(), size, out, fields); consumed != 0) [[likely]]
        return {Status::complete, consumed};
    return parse_slowly(input, out, fields, resume, limits);
}

// Each at the start of a cache line: where its branches lie otherwise depends on the code before it, which has made a fifth of
// the time for 40 bytes.
[[gnu::aligned(64)]] inline Result scan(std::string_view input, Request& out, Resume& resume, const Limits& limits) noexcept {
    const std::size_t size = usable_bytes(input, resume, limits);
    if (size == 0) return scan_slowly(input, out, resume, limits);
    if (const std::size_t consumed = brief_head_bytes(input.data(), size, out, {}); consumed != 0)
        return {Status::complete, consumed};
    return scan_any(input, out, resume, limits);
}

[[gnu::aligned(64)]] inline Result parse(std::string_view input, FullRequest& out, std::span<Field> fields, Resume& resume,
                                         const Limits& limits) noexcept {
    const std::size_t size = usable_bytes(input, resume, limits);
    if (size == 0) return parse_slowly(input, out, fields, resume, limits);
    if (const std::size_t consumed = brief_head_bytes(input.data(), size, out, fields); consumed != 0)
        return {Status::complete, consumed};
    return parse_any(input, out, fields, resume, limits);
}

}  // namespace http::detail::CEILING_HTTP_KERNEL

#endif
