// Fuzz target: the body discarder. Pieces make no difference, it never takes more than there is, and whatever chunked content it
// accepts, picohttpparser's decoder accepts with the same end.
//
// The first byte of the input is the size of the pieces; the rest is chunked content and what follows it.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "../../build/rivals/picohttpparser/picohttpparser.h"
#include "../../http_parse.hpp"

namespace {

constexpr std::uint64_t body_bytes_max = 4096;

[[noreturn]] void fail(const char* what, http::Status status, std::size_t consumed) {
    std::fprintf(stderr, "%s: %s, %zu bytes\n", what, std::string(http::reason(status)).c_str(), consumed);
    std::abort();
}

http::Result discard_in_pieces(std::string_view bytes, std::size_t piece) {
    http::Request request;
    request.chunked = true;
    http::Body body;
    http::Result result = http::Body::begin(body, request, body_bytes_max);
    std::size_t at = 0;
    while (result.status == http::Status::incomplete && at < bytes.size()) {
        const std::size_t here = bytes.size() - at < piece ? bytes.size() - at : piece;
        const std::string copy(bytes.substr(at, here));  // of its own size, so that AddressSanitizer sees a read beyond it
        result = body.discard(copy);
        if (result.consumed > here) fail("took more than there is", result.status, result.consumed);
        if (result.status == http::Status::incomplete && result.consumed != here)
            fail("waits and left bytes", result.status, result.consumed);
        if (body.done() != (result.status == http::Status::complete))
            fail("done() and the status differ", result.status, result.consumed);
        at += result.consumed;
    }
    return {result.status, at};
}

// The one allowed difference where we accept: it takes no more than 16 digits of a size, leading zeros among them (RFC 9112 7.1 has
// no bound).
bool has_long_size(std::string_view bytes) {
    std::size_t digits = 0;
    for (const char c : bytes) {
        digits = http::detail::is(http::detail::class_hex, c) ? digits + 1 : 0;
        if (digits > 16) return true;
    }
    return false;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size < 1) return 0;
    const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
    const http::Result whole = discard_in_pieces(bytes, bytes.size() + 1);
    for (const std::size_t piece : {std::size_t{1}, std::size_t{data[0]} + 1}) {
        const http::Result pieces = discard_in_pieces(bytes, piece);
        if (pieces.status != whole.status || pieces.consumed != whole.consumed)
            fail("pieces differ from the whole", pieces.status, pieces.consumed);
    }

    std::string copy(bytes);  // the decoder moves the content together
    std::size_t length = copy.size();
    phr_chunked_decoder decoder{};
    decoder.consume_trailer = 1;
    const ssize_t rest = phr_decode_chunked(&decoder, copy.data(), &length);
    if (whole.status == http::Status::complete && !has_long_size(bytes)) {
        if (rest < 0 || bytes.size() - static_cast<std::size_t>(rest) != whole.consumed)
            fail("picohttpparser ends elsewhere", whole.status, whole.consumed);
        if (length > body_bytes_max) fail("more content than allowed", whole.status, length);
    }
    // It takes more: bare LFs, any extension, any trailer (RFC 9112 7.1); but never does it end where we still wait.
    if (whole.status == http::Status::incomplete && rest >= 0)
        fail("picohttpparser is done and we wait", whole.status, whole.consumed);
    return 0;
}
