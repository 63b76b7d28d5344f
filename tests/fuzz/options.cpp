// The command line: any words either give options within their limits or one sentence with exit status 2.
//
// Input: the words, with a zero byte behind each.

#include "support.hpp"

namespace fuzz_options {

inline void check(const ceiling::Options& o) {
    fuzz::demand(o.threads <= 1024, "--threads");
    fuzz::demand(o.status >= 200 && o.status <= 599, "--status");
    fuzz::demand(o.head_bytes_max >= 64 && o.head_bytes_max <= (16U << 20), "--max-head");
    fuzz::demand(o.body_bytes_max <= http::body_bytes_limit, "--max-body");
    fuzz::demand(o.head_timeout_ms <= 86'401'000 && o.idle_timeout_ms <= 86'401'000 && o.drain_timeout_ms <= 86'401'000,
                 "timeouts");
    for (const std::string& header : o.headers) {
        fuzz::demand(header.find_first_of("\r\n") == std::string::npos && header.find(": ") != std::string::npos,
                     "--header is one line");
    }
    fuzz::demand(o.server.find_first_of("\r\n") == std::string::npos && o.type.find_first_of("\r\n") == std::string::npos,
                 "values are one line");
}

inline void check_failure(const ceiling::Failure& failure) {
    fuzz::demand(failure.status == 2, "a wrong command line exits with 2");
    fuzz::demand(!failure.text.empty(), "and says why");
}

}  // namespace fuzz_options

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    std::string text(reinterpret_cast<const char*>(data), size);
    text += '\0';
    std::vector<char*> words{text.data() + text.size() - 1};  // the program's name
    for (std::size_t at = 0; at < text.size(); at = text.find('\0', at) + 1) words.push_back(text.data() + at);
    const auto count = static_cast<int>(words.size());
    words.push_back(nullptr);
    try {
        const ceiling::Options options = ceiling::parse_options(count, words.data());
        fuzz_options::check(options);
        for (const std::string& address : options.listen) static_cast<void>(ceiling::parse_address("--listen", address));
    } catch (const ceiling::Failure& failure) {
        fuzz_options::check_failure(failure);
    }
    return 0;
}
