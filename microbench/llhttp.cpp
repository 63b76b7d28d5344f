// llhttp (Node.js), with the strictness it has by default. One parser object for all messages, as on a connection that is kept.
#include "../build/rivals/llhttp/llhttp.h"

#include "callback_parser.hpp"

namespace microbench {
namespace {

Collected& collected(llhttp_t* parser) {
    return *static_cast<Collected*>(parser->data);
}

const llhttp_settings_t& settings() {
    static const llhttp_settings_t value = [] {
        llhttp_settings_t set;
        llhttp_settings_init(&set);
        set.on_message_begin = [](llhttp_t* parser) { return collected(parser).begin(), 0; };
        set.on_url = [](llhttp_t* parser, const char* at, std::size_t size) {
            return collected(parser).target.extend(at, size), 0;
        };
        set.on_header_field = [](llhttp_t* parser, const char* at, std::size_t size) {
            return collected(parser).name(at, size), 0;
        };
        set.on_header_value = [](llhttp_t* parser, const char* at, std::size_t size) {
            return collected(parser).value(at, size), 0;
        };
        set.on_headers_complete = [](llhttp_t* parser) {
            collected(parser).minor = parser->http_minor;
            collected(parser).method = parser->method;
            return 0;
        };
        set.on_message_complete = [](llhttp_t* parser) { return ++collected(parser).messages, 0; };
        return set;
    }();
    return value;
}

class Llhttp {
public:
    Llhttp() {
        llhttp_init(&parser_, HTTP_REQUEST, &settings());
        parser_.data = &collected_;
    }
    Llhttp(const Llhttp&) = delete;
    Llhttp& operator=(const Llhttp&) = delete;

    // Takes all that is there, also several messages.
    std::size_t parse(const char* data, std::size_t size) {
        const std::size_t before = collected_.messages;
        return llhttp_execute(&parser_, data, size) == HPE_OK && collected_.messages != before ? size : 0;
    }
    std::size_t drip(const char* data, std::size_t size) {
        const std::size_t before = collected_.messages;
        for (std::size_t at = 0; at < size; ++at)
            if (llhttp_execute(&parser_, data + at, 1) != HPE_OK) return 0;
        return collected_.messages != before ? size : 0;
    }
    std::size_t body(const char* data, std::size_t size) { return parse(data, size); }
    Seen seen() const { return collected_.seen(llhttp_method_name(static_cast<llhttp_method_t>(collected_.method))); }

private:
    llhttp_t parser_;
    Collected collected_;
};

}  // namespace

void add_llhttp() {
    add_parser(
        "llhttp", true, [](const Input&) { return true; }, [] { return Llhttp(); });
}

}  // namespace microbench
