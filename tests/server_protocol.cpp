// HttpProtocol alone, without a socket: what its responses are, byte by byte, while the clock moves, the site changes and a slow
// reader takes them in pieces.

#define CEILING_NO_MAIN
#include "../server.cpp"

#include <doctest/doctest.h>

namespace {

using ceiling::HttpProtocol;
using ceiling::Options;
using ceiling::Response;
using ceiling::Site;

constexpr std::int64_t noon = 784111777;  // Sun, 06 Nov 1994 08:49:37 GMT, the example of RFC 9110

struct Fixture {
    explicit Fixture(const Options& o = Options{}) : options(o), current(Site::load(options)), protocol(current, options) {
        protocol.tick(noon);
    }

    /// The answers to `input`, taken as one run would be; equal ones together.
    const Response* ask(std::string_view input) {
        HttpProtocol::State state{};
        HttpProtocol::Partial partial{};
        return protocol.answer(state, input, partial).response;
    }
    /// All bytes of a run, `piece` at a time; before each piece the clock goes on by `step` seconds.
    std::string take(const Response& response, std::uint16_t count, std::size_t piece, std::int64_t step) {
        HttpProtocol::Run run;
        run.response = &response;
        run.count = count;
        const std::uint64_t size = protocol.size(response);
        std::string all;
        while (run.count != 0) {
            now += step;
            protocol.tick(now);
            const reactor::Bytes bytes = protocol.bytes(run);
            REQUIRE(bytes.size != 0);
            const std::size_t sent = std::min(piece, bytes.size);
            if (bytes.data != nullptr) {
                all.append(bytes.data, sent);
            } else {
                std::string part(sent, '\0');
                REQUIRE(::pread(bytes.file, part.data(), sent, static_cast<off_t>(bytes.file_offset)) ==
                        static_cast<ssize_t>(sent));
                all += part;
            }
            run.offset += sent;
            if (run.offset >= size) {
                run.count = static_cast<std::uint16_t>(run.count - run.offset / size);
                run.offset %= size;
            }
        }
        return all;
    }

    Options options;
    ceiling::Current current;
    HttpProtocol protocol;
    std::int64_t now = noon;
};

std::string whole(const Response& response, std::int64_t seconds) {
    std::string text(response.head);
    if (response.date_at != 0) text.replace(response.date_at, ceiling::date_bytes, ceiling::date_text(seconds));
    return text + std::string(response.content);
}

Options with_body(std::string text) {
    Options o;
    o.body = std::move(text);
    return o;
}

constexpr std::string_view get = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";

}  // namespace

TEST_CASE("the date is that of the second in which an answer's first byte is sent, to its last byte") {
    for (const std::size_t piece : {std::size_t{1}, std::size_t{7}, std::size_t{50}, std::size_t{1000}}) {
        for (const std::int64_t step : {0, 1, -1, 60}) {
            Fixture f;
            const Response& response = *f.ask(get);
            const std::string text = f.take(response, 3, piece, step);
            const std::size_t size = response.size();
            REQUIRE(text.size() == 3 * size);
            for (std::size_t i = 0; i < 3; ++i) {
                const std::string one = text.substr(i * size, size);
                const std::string date = one.substr(response.date_at, ceiling::date_bytes);
                const std::optional<std::int64_t> seconds = ceiling::parse_date(date);
                INFO("piece ", piece, ", step ", step, ", answer ", i, ": ", date);
                REQUIRE(seconds.has_value());
                CHECK(one == whole(response, *seconds));
                // Byte by byte, the first of answer i leaves with piece number i * size.
                const auto first = static_cast<std::int64_t>(i * size) + 1;
                if (piece == 1) CHECK(*seconds == noon + step * first);
            }
        }
    }
}

TEST_CASE("many answers are so many times the one") {
    for (const std::size_t length :
         {std::size_t{0}, std::size_t{5}, std::size_t{65536 - 200}, std::size_t{65536}, std::size_t{65537}, std::size_t{300'000}}) {
        Options o;
        o.source = Options::Source::filled;
        o.body_bytes = length;
        Fixture f(o);
        const Response& response = *f.ask(get);
        const std::uint16_t count = length < 1000 ? 2000 : 3;
        const std::string text = f.take(response, count, 60'000, 0);
        REQUIRE(text.size() == response.size() * count);
        const std::string one = text.substr(0, response.size());
        CHECK(one.find("\r\nContent-Length: " + std::to_string(length) + "\r\n") != std::string::npos);
        CHECK(one.substr(response.head.size()) == std::string(length, 'x'));
        bool same = true;
        for (std::size_t i = 0; i < count; ++i) same = same && text.compare(i * one.size(), one.size(), one) == 0;
        CHECK(same);
    }
}

TEST_CASE("a half-sent answer is finished from the site it was begun with") {
    Fixture f(with_body("the old text"));
    const Response& response = *f.ask(get);
    HttpProtocol::Run run;
    run.response = &response;
    run.count = 2;
    f.protocol.hold(response);
    std::string text;
    for (std::size_t i = 0; i < 100; ++i, ++run.offset) text += f.protocol.bytes(run).data[0];
    Options fresh = with_body("a new and longer text");
    f.current.replace(Site::load(fresh));
    f.protocol.tick(noon);
    while (run.count != 0) {
        const reactor::Bytes bytes = f.protocol.bytes(run);
        text.append(bytes.data, bytes.size);
        run.offset += bytes.size;
        if (run.offset == response.size()) {
            run.offset = 0;
            --run.count;
        }
    }
    CHECK(text == whole(response, noon) + whole(response, noon));
    f.protocol.release(response);
    CHECK(f.ask(get)->content == "a new and longer text");
}

TEST_CASE("a request whose content arrives over a reload is told so, for any number of reloads") {
    for (const unsigned reloads : {1U, 2U, 255U, 256U, 257U}) {
        Fixture f;
        HttpProtocol::State state{};
        HttpProtocol::Partial partial{};
        constexpr std::string_view head = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n";
        CHECK(f.protocol.answer(state, head, partial).response == nullptr);
        for (unsigned i = 0; i < reloads; ++i) {
            f.current.replace(Site::load(f.options));
            f.protocol.tick(noon);
        }
        const auto reply = f.protocol.answer(state, "ab", partial);
        REQUIRE(reply.response != nullptr);
        INFO(reloads, " reloads, status ", reply.response->status);
        CHECK((reply.response->status == 503 || (reloads == 256 && reply.response->status == 200)));
        CHECK(reply.consumed == 2);
    }
}

TEST_CASE("every response is well formed, and its HEAD form is its head") {
    for (const unsigned status : {200U, 201U, 204U, 205U, 304U, 404U, 500U, 599U}) {
        for (const bool date : {true, false}) {
            Options o;
            o.status = status;
            o.date = date;
            o.server = "test";
            Fixture f(o);
            Site* const site = f.current.get();
            for (std::uint32_t i = 0; i < site->count(); ++i) {
                const Response& r = *site->at(i);
                const std::string text = whole(r, noon);
                INFO(text);
                CHECK(text.rfind("HTTP/1.1 " + std::to_string(r.status) + " ", 0) == 0);
                CHECK(r.head.substr(r.head.size() - 4) == "\r\n\r\n");
                CHECK(r.head.find("\r\n\r\n") == r.head.size() - 4);
                if (r.status == 100) continue;
                CHECK((r.head.find("\r\nDate: ") != std::string_view::npos) == date);
                const std::size_t at = text.find("\r\nContent-Length: ");
                if (r.status == 204 || r.status == 304) {
                    CHECK(r.size() == r.head.size());
                    if (r.status == 204) CHECK(at == std::string::npos);
                    continue;
                }
                REQUIRE(at != std::string::npos);
                const std::uint64_t length = std::strtoull(text.c_str() + at + 18, nullptr, 10);
                const std::uint64_t content = r.size() - r.head.size();
                CHECK((content == length || content == 0));
            }
            site->release();
        }
    }
}

TEST_CASE("HEAD is answered with the head of GET's answer, whatever the answer is") {
    Options o;
    o.requests_max = 0;
    Fixture f(o);
    for (const std::string_view rest :
         {" / HTTP/1.1\r\nHost: x\r\n\r\n", " / HTTP/1.0\r\n\r\n", " / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
          " / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", " / HTTP/1.1\r\n\r\n",
          " / HTTP/1.1\r\nHost: x\r\nExpect: y\r\n\r\n", " / HTTP/1.1\r\nHost : x\r\n\r\n", " / HTTP/2.0\r\nHost: x\r\n\r\n",
          " / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\n\r\n"}) {
        const Response* const head = f.ask("HEAD" + std::string(rest));
        const Response* const body = f.ask("GET" + std::string(rest));
        INFO(std::string(rest));
        REQUIRE(head != nullptr);
        REQUIRE(body != nullptr);
        CHECK(head->head == body->head);
        CHECK(head->size() == head->head.size());
        CHECK(body->size() > body->head.size());
    }
}

TEST_CASE("HEAD stays HEAD while its content arrives") {
    Fixture f;
    for (const bool reload : {false, true}) {
        HttpProtocol::State state{};
        HttpProtocol::Partial partial{};
        constexpr std::string_view head = "HEAD / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
        CHECK(f.protocol.answer(state, head, partial).response == nullptr);
        const Response* const late = f.protocol.timed_out(state, partial, true);
        REQUIRE(late != nullptr);
        CHECK(late->size() == late->head.size());
        if (reload) {
            f.current.replace(Site::load(f.options));
            f.protocol.tick(noon);
        }
        const auto reply = f.protocol.answer(state, reload ? "0\r\n\r\n" : "x", partial);
        REQUIRE(reply.response != nullptr);
        CHECK(reply.response->status == (reload ? 503 : 400));
        CHECK(reply.response->size() == reply.response->head.size());
    }
}

TEST_CASE("behind empty lines a method is known when time runs out") {
    Fixture f;
    HttpProtocol::State state{};
    HttpProtocol::Partial partial{};
    const auto reply = f.protocol.answer(state, "\r\n\r\nHEAD / HT", partial);
    CHECK(reply.response == nullptr);
    CHECK(reply.consumed == 4);
    const Response* const late = f.protocol.timed_out(state, partial, true);
    REQUIRE(late != nullptr);
    CHECK(late->size() == late->head.size());
}

TEST_CASE("during a drain the last answer says close, with and without content") {
    Fixture f;
    f.protocol.drain();
    for (const std::string_view request : {get, std::string_view("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nab")}) {
        HttpProtocol::State state{};
        HttpProtocol::Partial partial{};
        std::string_view input = request;
        HttpProtocol::Reply reply;
        do {
            reply = f.protocol.answer(state, input, partial);
            input.remove_prefix(reply.consumed);
        } while (reply.response == nullptr && !input.empty());
        REQUIRE(reply.response != nullptr);
        CHECK(reply.then == HttpProtocol::Reply::Then::refuse);
        CHECK(reply.response->head.find("\r\nConnection: close\r\n") != std::string_view::npos);
    }
}
