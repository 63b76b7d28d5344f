// Boost.Beast's basic_parser with a handler that keeps views, which is the least that one can ask of it. Its objects are for one
// message.
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/basic_parser.hpp>

#include <array>
#include <optional>

#include "measure.hpp"

namespace microbench {
namespace {

namespace beast = boost::beast;

struct Found {
    beast::string_view method, target;
    int version = 0;
    std::array<std::pair<beast::string_view, beast::string_view>, fields_max> fields;
    std::size_t count = 0;
};

class ViewParser final : public beast::http::basic_parser<true> {
public:
    explicit ViewParser(Found& found) : found_(found) { found_.count = 0; }

private:
    void on_request_impl(beast::http::verb, beast::string_view method, beast::string_view target, int version,
                         beast::error_code&) override {
        found_.method = method;
        found_.target = target;
        found_.version = version;
    }
    void on_response_impl(int, beast::string_view, int, beast::error_code&) override {}
    void on_field_impl(beast::http::field, beast::string_view name, beast::string_view value, beast::error_code&) override {
        found_.fields[found_.count] = {name, value};
        ++found_.count;
    }
    void on_header_impl(beast::error_code&) override {}
    void on_body_init_impl(const boost::optional<std::uint64_t>&, beast::error_code&) override {}
    std::size_t on_body_impl(beast::string_view body, beast::error_code&) override { return body.size(); }
    void on_chunk_header_impl(std::uint64_t, beast::string_view, beast::error_code&) override {}
    std::size_t on_chunk_body_impl(std::uint64_t, beast::string_view body, beast::error_code&) override { return body.size(); }
    void on_finish_impl(beast::error_code&) override {}

    Found& found_;
};

class Beast {
public:
    std::size_t parse(const char* data, std::size_t size) { return body(data, size); }
    // It wants the whole head again at each call.
    std::size_t drip(const char* data, std::size_t size) {
        ViewParser parser(found_);
        beast::error_code error;
        for (std::size_t length = 1; length <= size; ++length) {
            const std::size_t taken = parser.put(boost::asio::const_buffer(data, length), error);
            if (!error && parser.is_done()) return taken;
            if (error && error != beast::http::error::need_more) return 0;
        }
        return 0;
    }
    std::size_t body(const char* data, std::size_t size) {
        ViewParser parser(found_);
        parser.eager(true);
        parser.header_limit(1u << 20);
        beast::error_code error;
        std::size_t at = 0;
        while (!parser.is_done()) {
            at += parser.put(boost::asio::const_buffer(data + at, size - at), error);
            if (error) return 0;
        }
        return at;
    }
    Seen seen() const {
        Seen seen{found_.method.to_string(), found_.target.to_string(), found_.version - 10, {}};
        for (std::size_t i = 0; i < found_.count; ++i)
            seen.fields.emplace_back(found_.fields[i].first.to_string(), found_.fields[i].second.to_string());
        return seen;
    }

private:
    Found found_;
};

}  // namespace

void add_beast() {
    // Its time for the long drip is seconds a head: it starts over with each byte.
    add_parser(
        "beast", true, [](const Input& input) { return !input.drip; }, [] { return Beast(); });
}

}  // namespace microbench
