// From a request's target and preconditions to a file: path_of, lists_etag, parse_date. A path that comes out names something
// below the root and nothing else; it comes out the same when it goes in again, encoded.
//
// Input: any bytes, taken as each of the three.

#include "support.hpp"

namespace fuzz_paths {

inline void check_path(std::string_view text) {
    const std::optional<std::string> path = ceiling::path_of(text);
    if (!path) return;
    fuzz::demand(!path->empty() && path->front() == '/', "a path begins with a slash");
    fuzz::demand(path->find('\0') == std::string::npos, "a path has no zero byte");
    const std::string slashed = *path + "/";
    fuzz::demand(slashed.find("/../") == std::string::npos, "a path does not climb");
    fuzz::demand(slashed.find("/./") == std::string::npos, "a path does not stay");
    const std::optional<std::string> again = ceiling::path_of(ceiling::encode_path(*path));
    fuzz::demand(again == path, "a path is a fixed point");
}

inline void check_etag(std::string_view list) {
    static const std::string etag = "\"0123456789abcdef-5\"";
    const bool listed = ceiling::lists_etag(list, etag);
    if (listed)
        fuzz::demand(list.find(etag) != std::string_view::npos || list.find('*') != std::string_view::npos,
                     "a tag that is listed stands there");
    fuzz::demand(ceiling::lists_etag(etag + ", " + std::string(list), etag), "a list that begins with the tag lists it");
}

inline void check_date(std::string_view text) {
    const std::optional<std::int64_t> seconds = ceiling::parse_date(text);
    if (!seconds || *seconds < 0 || *seconds > 253402300799) return;  // 9999-12-31, the last of four digits
    fuzz::demand(ceiling::parse_date(ceiling::date_text(*seconds)) == seconds, "a date survives being written");
}

}  // namespace fuzz_paths

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const fuzz::Exact input({reinterpret_cast<const char*>(data), size});
    fuzz_paths::check_path(input.view());
    fuzz_paths::check_etag(input.view());
    fuzz_paths::check_date(input.view());
    return 0;
}
