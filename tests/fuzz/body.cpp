// Request content through http::Body, whole and in pieces: the same verdict and the same end, never more than is there.
//
// Input: one byte chooses Content-Length or chunked and the limit, one the pieces; the rest is the content and what follows it.

#include "support.hpp"

namespace fuzz_body {

struct Verdict {
    http::Status status = http::Status::incomplete;
    std::size_t consumed = 0;
    bool operator==(const Verdict&) const = default;
};

inline Verdict discard(http::Body body, std::string_view stream, unsigned pieces) {
    Verdict verdict;
    std::uint32_t dice = pieces * 2654435761U;
    while (!stream.empty() && verdict.status == http::Status::incomplete) {
        dice = dice * 1664525U + 1013904223U;
        const std::size_t size =
            std::min<std::size_t>(pieces == 0 ? stream.size() : 1 + ((dice >> 16) % (pieces < 128 ? 3 : 60)), stream.size());
        const fuzz::Exact shown(stream.substr(0, size));
        const http::Result result = body.discard(shown.view());
        fuzz::demand(result.consumed <= size, "no more is consumed than was shown");
        fuzz::demand(result.status != http::Status::incomplete || result.consumed == size, "what is incomplete takes all");
        fuzz::demand((result.status == http::Status::complete) == body.done(), "done when complete");
        verdict.status = result.status;
        verdict.consumed += result.consumed;
        stream.remove_prefix(size);
    }
    return verdict;
}

}  // namespace fuzz_body

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size < 2) return 0;
    http::Request request;
    request.chunked = (data[0] & 1) != 0;
    request.has_content_length = !request.chunked;
    request.content_length = data[0] >> 1;
    http::Body body{};
    const std::uint64_t limit = (data[0] & 2) != 0 ? 40 : 1 << 20;
    if (http::Body::begin(body, request, limit).status != http::Status::incomplete) return 0;
    const std::string_view stream(reinterpret_cast<const char*>(data) + 2, size - 2);
    const fuzz_body::Verdict whole = fuzz_body::discard(body, stream, 0);
    fuzz::demand(whole == fuzz_body::discard(body, stream, data[1] == 0 ? 1 : data[1]),
                 "the verdict does not depend on the pieces");
    if (!request.chunked && whole.status == http::Status::complete)
        fuzz::demand(whole.consumed == request.content_length, "as long as announced");
    return 0;
}
