// All bytes of one connection through HttpProtocol, whole and in pieces: the answers must be the same. What was accepted is
// read once more by a plain reader of our own that knows the framing rules of RFC 9112 and nothing else: it must find the same
// requests at the same places.
//
// Input: one byte chooses the options, one the pieces; the rest is what the client sends.

#include "support.hpp"

namespace fuzz_connection {

using Protocol = ceiling::HttpProtocol;

/// One set of options with its site and protocol, made once.
struct Setup {
    explicit Setup(const ceiling::Options& o) : options(o), current(ceiling::Site::load(o)), protocol(current, options) {
        protocol.tick(784111777);
    }
    ceiling::Options options;
    ceiling::Current current;
    Protocol protocol;
};

inline Setup& setup(unsigned which) {
    static Setup* const setups[] = {
        new Setup([] { return ceiling::Options{}; }()),
        new Setup([] {
            ceiling::Options o;
            o.head_bytes_max = 64;
            o.body_bytes_max = 16;
            o.requests_max = 3;
            return o;
        }()),
        new Setup([] {
            ceiling::Options o;
            o.source = ceiling::Options::Source::tree;
            std::string directory = "/tmp/ceiling-fuzz-XXXXXX";
            fuzz::demand(::mkdtemp(directory.data()) != nullptr, "mkdtemp");
            const std::string file = directory + "/index.html";
            std::FILE* out = std::fopen(file.c_str(), "w");
            std::fputs("<h1>hello</h1>", out);
            std::fclose(out);
            o.body = directory;
            return o;
        }()),
    };
    return *setups[which % 3];
}

struct Answer {
    unsigned status;
    std::size_t at;  ///< in the stream, behind the request; 0 for a rejection
    bool ends;
    bool operator==(const Answer&) const = default;
};

/// Plays the reactor's part: shows the protocol what is here, takes what it consumed, and shows it the rest with more.
inline std::vector<Answer> converse(Setup& s, std::string_view stream, unsigned pieces) {
    const std::size_t input_bytes = std::max<std::size_t>(32768, s.options.head_bytes_max + 4096);
    std::vector<Answer> answers;
    Protocol::State state{};
    Protocol::Partial partial{};
    std::string rest;
    std::size_t taken = 0;  // bytes of the stream the protocol has consumed
    std::uint32_t dice = pieces * 2654435761U;
    while (!stream.empty()) {
        dice = dice * 1664525U + 1013904223U;
        const std::size_t size =
            std::min(pieces == 0 ? input_bytes - rest.size() : 1 + ((dice >> 16) % (pieces < 128 ? 7 : 300)), stream.size());
        rest.append(stream.substr(0, std::min(size, input_bytes - rest.size())));
        stream.remove_prefix(std::min(size, stream.size()));
        for (;;) {
            if (rest.empty()) break;
            const fuzz::Exact shown(rest);
            const Protocol::Reply reply = s.protocol.answer(state, shown.view(), partial);
            fuzz::demand(reply.consumed <= rest.size(), "no more is consumed than was shown");
            fuzz::demand(reply.consumed != 0 || reply.response != nullptr || reply.then == Protocol::Reply::Then::wait,
                         "every call makes progress");
            taken += reply.consumed;
            rest.erase(0, reply.consumed);
            if (reply.response == nullptr) {
                if (reply.then == Protocol::Reply::Then::wait) break;
                continue;
            }
            const bool ends = reply.then == Protocol::Reply::Then::close || reply.then == Protocol::Reply::Then::refuse;
            if (reply.response->status != 100) answers.push_back({reply.response->status, reply.consumed == 0 ? 0 : taken, ends});
            fuzz::demand(reply.response->size() == reply.response->head.size() + reply.response->content.size(),
                         "no file is served here");
            if (ends) return answers;
        }
        fuzz::demand(rest.size() < input_bytes, "what is kept leaves room for more");
    }
    return answers;
}

// ---- the plain reader: where does the first request of `text` end? 0: nothing that is surely a request.

inline std::string lower(std::string_view text) {
    std::string copy(text);
    for (char& c : copy) {
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + 32);
    }
    return copy;
}

inline std::string_view trim(std::string_view text) {
    while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
    while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
    return text;
}

inline std::size_t end_of_chunks(std::string_view text, std::size_t at) {
    for (;;) {
        const std::size_t line = text.find("\r\n", at);
        fuzz::demand(line != std::string_view::npos, "a chunk's size line has an end");
        std::uint64_t size = 0;
        std::size_t digits = 0;
        for (; at + digits < line && std::isxdigit(static_cast<unsigned char>(text[at + digits])) != 0; ++digits) {
            fuzz::demand(size >> 60 == 0, "a chunk's size fits 64 bits");
            const char c = text[at + digits];
            size = size * 16 + static_cast<unsigned>(c <= '9' ? c - '0' : (c | 32) - 'a' + 10);
        }
        fuzz::demand(digits != 0, "a chunk begins with a number");
        at = line + 2;
        if (size == 0) break;
        fuzz::demand(text.size() - at >= size + 2 && text.substr(at + size, 2) == "\r\n",
                     "a chunk's data is whole and has its end");
        at += size + 2;
    }
    for (;;) {  // the trailer section
        const std::size_t line = text.find("\r\n", at);
        fuzz::demand(line != std::string_view::npos, "a trailer line has an end");
        const bool empty = line == at;
        at = line + 2;
        if (empty) return at;
    }
}

/// The place behind the request that begins at `at`, by naive reading. Only called for what the protocol has accepted.
inline std::size_t end_of_request(std::string_view text, std::size_t at) {
    while (text.substr(at, 2) == "\r\n") at += 2;
    const std::size_t head_end = text.find("\r\n\r\n", at);
    fuzz::demand(head_end != std::string_view::npos, "an accepted head has an end");
    const std::string_view head = text.substr(at, head_end + 2 - at);
    for (std::size_t i = 0; i < head.size(); ++i) {
        if (head[i] == '\n') fuzz::demand(i != 0 && head[i - 1] == '\r', "no bare LF was accepted");
        if (head[i] == '\r') fuzz::demand(i + 1 < head.size() && head[i + 1] == '\n', "no bare CR was accepted");
        fuzz::demand(head[i] != '\0', "no NUL was accepted");
    }
    std::size_t line_at = head.find("\r\n");
    const std::string_view request_line = head.substr(0, line_at);
    fuzz::demand(std::count(request_line.begin(), request_line.end(), ' ') == 2, "a request line has two blanks");
    const std::string_view version = request_line.substr(request_line.rfind(' ') + 1);
    fuzz::demand(
        version.size() == 8 && version.substr(0, 7) == "HTTP/1." && std::isdigit(static_cast<unsigned char>(version[7])) != 0,
        "the version is 1.x");
    unsigned hosts = 0;
    std::set<std::string> lengths;
    bool chunked = false;
    bool coded = false;
    for (line_at += 2; line_at < head.size();) {
        const std::size_t end = head.find("\r\n", line_at);
        const std::string_view line = head.substr(line_at, end - line_at);
        const std::size_t colon = line.find(':');
        fuzz::demand(colon != std::string_view::npos && colon != 0, "a field has a name");
        const std::string name = lower(line.substr(0, colon));
        fuzz::demand(name.find_first_of(" \t\"(),/;<=>?@[\\]{}") == std::string::npos, "a field's name is a token");
        const std::string value = lower(trim(line.substr(colon + 1)));
        if (name == "host") ++hosts;
        if (name == "content-length") {
            std::string_view left = value;
            while (true) {
                const std::size_t comma = left.find(',');
                std::string number(trim(left.substr(0, comma)));
                number.erase(0, std::min(number.find_first_not_of('0'), number.size()));
                if (!trim(left.substr(0, comma)).empty())
                    lengths.insert(number);  // RFC 9110 5.6.1.2: empty elements count for nothing
                if (comma == std::string_view::npos) break;
                left.remove_prefix(comma + 1);
            }
        }
        if (name == "transfer-encoding") {
            for (std::string_view left = value; !left.empty();) {
                const std::size_t comma = std::min(left.find(','), left.size());
                const std::string_view coding = trim(left.substr(0, comma));
                if (!coding.empty()) {
                    coded = true;
                    chunked = coding == "chunked";
                }
                left.remove_prefix(std::min(comma + 1, left.size()));
            }
        }
        line_at = end + 2;
    }
    fuzz::demand(hosts == 1 || (hosts == 0 && version == "HTTP/1.0"), "one Host, or none in HTTP/1.0");
    fuzz::demand(!coded || chunked, "a coded request is chunked at last");
    fuzz::demand(!coded || lengths.empty(), "a length and a coding exclude each other");
    fuzz::demand(lengths.size() <= 1, "lengths agree");
    const std::size_t content = head_end + 4;
    if (chunked) return end_of_chunks(text, content);
    if (lengths.empty() || lengths.begin()->empty()) return content;
    fuzz::demand(lengths.begin()->find_first_not_of("0123456789") == std::string::npos && lengths.begin()->size() < 16,
                 "a length is a number");
    return content + std::strtoull(lengths.begin()->c_str(), nullptr, 10);
}

inline void check(std::string_view stream, const std::vector<Answer>& answers) {
    std::size_t at = 0;
    for (const Answer& answer : answers) {
        if (answer.at == 0 || answer.status == 417) break;  // rejected, or its content is not looked at
        if (answer.status >= 400 && answer.ends &&
            (answer.status == 400 || answer.status == 413 || answer.status == 414 || answer.status == 431 || answer.status == 505))
            break;
        const std::size_t end = end_of_request(stream, at);
        fuzz::demand(end == answer.at, "both readers see the request end at the same place");
        at = end;
    }
}

}  // namespace fuzz_connection

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size < 2) return 0;
    fuzz_connection::Setup& s = fuzz_connection::setup(data[0]);
    const std::string_view stream(reinterpret_cast<const char*>(data) + 2, size - 2);
    const auto whole = fuzz_connection::converse(s, stream, 0);
    const auto cut = fuzz_connection::converse(s, stream, data[1] == 0 ? 1 : data[1]);
    fuzz::demand(whole == cut, "the answers do not depend on the pieces");
    fuzz_connection::check(stream, whole);
    return 0;
}
