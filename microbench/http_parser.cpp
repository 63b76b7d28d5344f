// http_parser, llhttp's predecessor, in its strict build. One parser object for all messages, as on a connection that is kept.
#include "../build/rivals/http_parser/http_parser.h"

#include "callback_parser.hpp"

namespace microbench {
namespace {

Collected& collected(http_parser* parser) {
    return *static_cast<Collected*>(parser->data);
}

const http_parser_settings& settings() {
    static const http_parser_settings value = [] {
        http_parser_settings set;
        http_parser_settings_init(&set);
        set.on_message_begin = [](http_parser* parser) { return collected(parser).begin(), 0; };
        set.on_url = [](http_parser* parser, const char* at, std::size_t size) {
            return collected(parser).target.extend(at, size), 0;
        };
        set.on_header_field = [](http_parser* parser, const char* at, std::size_t size) {
            return collected(parser).name(at, size), 0;
        };
        set.on_header_value = [](http_parser* parser, const char* at, std::size_t size) {
            return collected(parser).value(at, size), 0;
        };
        set.on_headers_complete = [](http_parser* parser) {
            collected(parser).minor = parser->http_minor;
            collected(parser).method = parser->method;
            return 0;
        };
        set.on_message_complete = [](http_parser* parser) { return ++collected(parser).messages, 0; };
        return set;
    }();
    return value;
}

class HttpParser {
public:
    HttpParser() {
        http_parser_init(&parser_, HTTP_REQUEST);
        parser_.data = &collected_;
    }
    HttpParser(const HttpParser&) = delete;
    HttpParser& operator=(const HttpParser&) = delete;

    // Takes all that is there, also several messages.
    std::size_t parse(const char* data, std::size_t size) {
        const std::size_t before = collected_.messages;
        return http_parser_execute(&parser_, &settings(), data, size) == size && collected_.messages != before ? size : 0;
    }
    std::size_t drip(const char* data, std::size_t size) {
        const std::size_t before = collected_.messages;
        for (std::size_t at = 0; at < size; ++at)
            if (http_parser_execute(&parser_, &settings(), data + at, 1) != 1) return 0;
        return collected_.messages != before ? size : 0;
    }
    std::size_t body(const char* data, std::size_t size) { return parse(data, size); }
    Seen seen() const { return collected_.seen(http_method_str(static_cast<http_method>(collected_.method))); }

private:
    http_parser parser_;
    Collected collected_;
};

}  // namespace

void add_http_parser() {
    add_parser(
        "http_parser", true, [](const Input&) { return true; }, [] { return HttpParser(); });
}

}  // namespace microbench
