// Simulated clients: what they ask, in which pieces and at what pace, and what they must be told.
//
// A Client makes up its whole conversation beforehand, so it knows where in its bytes each request is complete and what the answer
// to it is, from a rendering of its own that shares no code with the server's. It watches the server's side of the wire: every
// byte the server sends is checked when it is sent, and every close must have a reason.

#ifndef CEILING_TESTS_SIMULATION_CLIENT_HPP
#define CEILING_TESTS_SIMULATION_CLIENT_HPP

#include "kernel.hpp"

#include <ctime>

namespace sim {

/// What one seed is about.
struct Scene {
    unsigned reactors = 1;
    bool shared_listener = false;
    bool balance = true;
    std::uint32_t head_ms = 0, idle_ms = 0, drain_ms = 0, delay_ms = 0;
    std::uint32_t requests_max = 0;
    std::size_t head_bytes_max = 1024;
    std::uint64_t body_bytes_max = 4096;
    bool filled = false;  ///< the body is so many bytes of filling, else a text
    std::uint64_t body_bytes = 5;
    std::string server;  ///< a Server field
    std::size_t receive_max = 65536, send_max = 65536;
    unsigned pipelining = 8;        ///< most requests of one client
    std::uint32_t rude_rate = 0;    ///< how often, per action, a client resets
    std::uint32_t faulty_rate = 0;  ///< how often, of 65,536, a request is one that must be refused
    bool floods = false;            ///< some clients send without end once they were told to go
    bool exact_time = true;         ///< the clock stands still while a reactor works
    // What the outside world has done so far.
    unsigned version = 0;  ///< of the site
    std::vector<std::uint64_t> reloaded_ms;
    bool draining = false;
    std::uint64_t drain_ms_begin = 0;
    bool drain_seen = false;                                         ///< every reactor has been at rest since
    std::vector<std::pair<std::uint64_t, std::int64_t>> wall_jumps;  ///< (when, wall_base from then on)

    /// Each version has another length, so that the answer tells which it is of.
    [[nodiscard]] std::string text(unsigned v) const { return "hello" + std::string(v, '!'); }
    [[nodiscard]] std::uint64_t size(unsigned v) const { return filled ? body_bytes + v : text(v).size(); }
    [[nodiscard]] unsigned version_at(std::uint64_t ms) const {
        return static_cast<unsigned>(
            std::count_if(reloaded_ms.begin(), reloaded_ms.end(), [&](std::uint64_t t) { return t < ms; }));
    }
};

inline std::string date_text(std::int64_t seconds) {
    const std::time_t when = seconds;
    std::tm t{};
    ::gmtime_r(&when, &t);
    std::array<char, 64> text{};
    std::strftime(text.data(), text.size(), "%a, %d %b %Y %H:%M:%S GMT", &t);
    return text.data();
}

/// One request and what is due for it.
struct Request {
    enum class Ends : std::uint8_t { never, close, keep_alive };
    std::string text;
    std::size_t head_bytes = 0;      ///< of `text`; the rest is content
    std::size_t begin = 0, end = 0;  ///< in the client's whole stream, without
    std::size_t gap = 0;             ///< ... an empty line before it
    unsigned status = 200;
    bool head = false;          ///< HEAD: no content in the answer
    Ends ends = Ends::never;    ///< what the answer says about the connection
    bool refused = false;       ///< the answer may come before the request is complete
    bool expects = false;       ///< 100-continue
    bool patient = false;       ///< ... and the client waits for it
    bool unfinished = false;    ///< its end is never sent
    bool continued = false;     ///< 100 Continue was sent
    bool end_drained = false;   ///< its end was read when every reactor had seen the drain
    std::uint64_t head_ms = 0;  ///< when the server had read the whole head; 0: it has not

    [[nodiscard]] bool has_content() const noexcept { return head_bytes < text.size() || unfinished; }
};

class Conversation {
public:
    Conversation(Random& random, const Scene& scene) {
        const std::uint64_t count = random.between(1, scene.pipelining);
        for (std::uint64_t i = 0; i < count; ++i) {
            Request r = random.chance(scene.faulty_rate) ? refused(random, scene) : served(random, scene);
            if (random.below(12) == 0) {
                r.gap = 2;
                stream += "\r\n";
            }
            if (i + 1 == count && random.below(5) == 0) cut(random, r);
            r.begin = stream.size();
            stream += r.text;
            r.end = r.unfinished ? SIZE_MAX : stream.size();
            requests.push_back(std::move(r));
        }
    }

    std::string stream;
    std::vector<Request> requests;

private:
    static std::string target(Random& random) {
        static constexpr const char* targets[] = {"/",    "/index.html",           "/a/b?c=d&e",
                                                  "/%41", "http://example.test/x", "/very/long/path/of/no/meaning"};
        return random.one_of(targets);
    }
    static std::string fields(Random& random) {
        static constexpr const char* lines[] = {"Accept: */*\r\n", "User-Agent: sim/1.0 (any)\r\n", "X-Empty:\r\n",
                                                "Cookie: a=b; c=\"d\"\r\n", "accept-encoding:gzip , br\r\n"};
        std::string text;
        for (std::uint64_t i = random.below(4); i != 0; --i) text += random.one_of(lines);
        return text;
    }
    static std::string chunked(Random& random, std::uint64_t bytes_max) {
        std::string text;
        std::array<char, 32> line{};
        for (std::uint64_t left = random.below(std::min<std::uint64_t>(bytes_max, 600)); left != 0;) {
            const std::uint64_t size = random.between(1, left);
            std::snprintf(line.data(), line.size(), random.below(2) == 0 ? "%llx" : "%04llX",
                          static_cast<unsigned long long>(size));
            text += line.data();
            if (random.below(4) == 0) text += ";name=\"a b\"";
            text += "\r\n" + std::string(size, '\n') + "\r\n";
            left -= size;
        }
        return text + "0\r\n" + (random.below(4) == 0 ? "Trailer: yes\r\n" : "") + "\r\n";
    }
    static Request served(Random& random, const Scene& scene) {
        static constexpr const char* methods[] = {"GET",   "GET",    "GET",     "GET",   "HEAD", "POST", "PUT",
                                                  "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW", "get"};
        Request r;
        const std::string method = random.one_of(methods);
        r.head = method == "HEAD";
        if (method == "OPTIONS") r.status = 204;
        if (method == "TRACE") r.status = 405;
        if (method == "BREW" || method == "get") r.status = 501;
        const bool old = random.below(6) == 0;
        std::string content;
        r.text = method + " " + (method == "OPTIONS" && random.below(2) == 0 ? "*" : target(random)) +
                 (old ? " HTTP/1.0\r\n" : " HTTP/1.1\r\n");
        if (!old || random.below(2) == 0) r.text += "Host: example.test\r\n";
        r.text += fields(random);
        switch (random.below(8)) {
        case 0:
            r.text += "Connection: close\r\n";
            r.ends = Request::Ends::close;
            break;
        case 1:
            r.text += "Connection: x, Keep-Alive\r\n";
            r.ends = old ? Request::Ends::keep_alive : Request::Ends::never;
            break;
        default: r.ends = old ? Request::Ends::close : Request::Ends::never;
        }
        const std::uint64_t kind = method == "TRACE" ? 9 : random.below(8);
        if (kind == 0) {
            content.assign(random.below(std::min<std::uint64_t>(scene.body_bytes_max + 1, 3000)), 'G');
            r.text += "Content-Length: " + std::to_string(content.size()) + "\r\n";
        }
        if (kind == 1 && !old) {
            content = chunked(random, scene.body_bytes_max);
            r.text += "Transfer-Encoding: chunked\r\n";
        }
        if (!content.empty() && random.below(2) == 0) {
            r.text += "Expect: 100-continue\r\n";
            r.expects = !old;
            r.patient = r.expects && random.below(2) == 0;
        }
        r.text += "\r\n";
        r.head_bytes = r.text.size();
        r.text += content;
        return r;
    }
    static Request refused(Random& random, const Scene& scene) {
        Request r;
        r.refused = true;
        r.ends = Request::Ends::close;
        r.status = 400;
        switch (random.below(9)) {
        case 0: r.text = "GET / HTTP/1.1\r\n\r\n"; break;
        case 1: r.text = "GET / HTTP/1.1\nHost: x\n\n"; break;
        case 2:
            r.text = "HEAD / HTTP/1.1\r\nHost : x\r\n\r\n";
            r.head = true;
            break;
        case 3:
            r.text = "GET / HTTP/2.0\r\nHost: x\r\n\r\n";
            r.status = 505;
            break;
        case 4:
            r.text = "GET /" + std::string(scene.head_bytes_max, 'a') + " HTTP/1.1\r\n";
            r.status = 414;
            break;
        case 5:
            r.text = "GET / HTTP/1.1\r\nHost: x\r\nX: " + std::string(scene.head_bytes_max, 'a');
            r.status = 431;
            break;
        case 6:
            r.text = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\n\r\n" + std::string(random.below(5000), 'b');
            r.status = 413;
            break;
        case 7:
            r.text = "GET / HTTP/1.1\r\nHost: x\r\nExpect: the-unexpected\r\n\r\n";
            r.status = 417;
            break;
        default: r.text = "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhelloX\r\n"; break;
        }
        const std::size_t end = r.text.find("\r\n\r\n");
        r.head_bytes = r.text.find("chunked") != std::string::npos ? end + 4 : r.text.size();  // bad content has a good head
        return r;
    }
    /// Leaves the end of a request out: the server must lose patience with it.
    static void cut(Random& random, Request& r) {
        if (r.refused || r.text.size() < 3) return;
        const std::size_t keep = random.between(1, r.text.size() - 1);
        r.text.resize(keep);
        r.unfinished = true;
        r.patient = false;
        if (r.head_bytes > keep) r.head_bytes = keep + 1;  // not even the head
    }
};

/// One client and its connection.
class Client : public Watcher {
public:
    Client(Kernel& k, Scene& s) : kernel_(k), scene_(s), talk_(k.random, s), stream_(std::make_shared<Stream>()) {
        Random& random = k.random;
        stream_->watcher = this;
        stream_->receive_max = scene_.receive_max;
        stream_->send_max = scene_.send_max;
        piece_max_ = random.below(3) == 0 ? SIZE_MAX : random.below(2) == 0 ? 1 + random.below(8) : 1 + random.below(400);
        read_max_ =
            random.below(3) == 0 ? (1 + random.below(50)) * (scene_.filled && scene_.body_bytes > 1000 ? 200 : 1) : SIZE_MAX;
        pipelines_ = random.below(4) != 0;
        half_closes_ = random.below(3) == 0;
        floods_ = scene_.floods && random.below(4) == 0;
        leaves_ = random.below(2) == 0;
        if (random.below(8) == 0) write_pause_ms_ = static_cast<std::uint32_t>(1 + random.below(scene_.head_ms / 3 + 2));
        if (random.below(8) == 0) read_pause_ms_ = static_cast<std::uint32_t>(1 + random.below(scene_.idle_ms / 3 + 2));
        if (random.below(24) == 0) read_pause_ms_ = scene_.idle_ms * 4 + 100;  // never, as far as the server can tell
        reads_from_ms_ = read_pause_ms_ != 0 ? kernel_.clock_ms + read_pause_ms_ : 0;
        begun_ms_ = since_ms_ = kernel_.clock_ms;
        if (talk_.requests.front().unfinished && random.below(3) == 0) {  // says nothing at all
            talk_.stream.clear();
            talk_.requests.clear();
        }
        for (const Request& r : talk_.requests) {
            if (!r.unfinished) ++whole_;
            if (r.ends == Request::Ends::close && !r.unfinished) break;
        }
    }
    ~Client() override { stream_->watcher = nullptr; }
    Client(const Client&) = delete;
    Client& operator=(const Client&) = delete;

    [[nodiscard]] const std::shared_ptr<Stream>& stream() const noexcept { return stream_; }
    [[nodiscard]] bool over() const noexcept { return over_; }
    [[nodiscard]] std::uint64_t answers() const noexcept { return answered_; }
    [[nodiscard]] bool open_at_server() const noexcept { return stream_->fd >= 0; }
    /// The connection waits for a next request, and for nothing else.
    [[nodiscard]] bool at_rest() const noexcept {
        const bool half_a_gap = answered_ < talk_.requests.size() && taken_ == talk_.requests[answered_].begin - 1 &&
                                talk_.requests[answered_].gap != 0;
        return open_at_server() && !half_a_gap && !stream_->reset && !stream_->client_finished && !stream_->spoiled &&
               at_boundary() && taken_ == delivered_ &&
               !(answered_ < talk_.requests.size() && taken_ > talk_.requests[answered_].begin) && !ended_;
    }

    // ---- acting: one thing a client can do now; false if it can do nothing

    bool act() {
        if (over_) return false;
        Random& random = kernel_.random;
        Stream& s = *stream_;
        if (s.client_reset) return leave("was reset");
        if (random.chance(scene_.rude_rate)) {
            kernel_.note("client %p resets", static_cast<void*>(this));
            rude_ = true;
            kernel_.reset(s);
            over_ = true;
            return true;
        }
        const bool first = random.below(2) == 0;
        return first ? (write() || read() || end()) : (read() || write() || end());
    }

    /// The next moment at which it will be able to do something it cannot do now; UINT64_MAX: none.
    [[nodiscard]] std::uint64_t wakes_ms() const noexcept {
        if (over_) return UINT64_MAX;
        std::uint64_t when = UINT64_MAX;
        if (writes_from_ms_ > kernel_.clock_ms && delivered_ < allowed()) when = writes_from_ms_;
        if (reads_from_ms_ > kernel_.clock_ms && (stream_->unread_by_client() != 0 || ends_from_server()))
            when = std::min(when, reads_from_ms_);
        return when;
    }

    // ---- watching

    void on_accept() override { accepted_ms_ = since_ms_ = kernel_.clock_ms; }

    void on_taken(std::string_view bytes) override {
        if (flooded_) {
            taken_ = delivered_;
            return check_flood();
        }
        if (std::string_view(talk_.stream).substr(taken_, bytes.size()) != bytes)
            kernel_.violate("the simulation itself delivered other bytes");
        const bool at_begin = answered_ < talk_.requests.size() && taken_ <= talk_.requests[answered_].begin;
        // Half an empty line before the request is its beginning too, until it turns out to be a whole one.
        if (!ended_ && answered_ < talk_.requests.size() &&
            taken_ <= talk_.requests[answered_].begin - talk_.requests[answered_].gap)
            gap_ms_ = kernel_.clock_ms;
        taken_ += bytes.size();
        if (!ended_ && at_begin) begun_ms_ = kernel_.clock_ms;
        if (!ended_) piece_ms_ = kernel_.clock_ms;
        for (Request& r : talk_.requests) {
            if (r.end > taken_ - bytes.size() && r.end <= taken_) r.end_drained = scene_.drain_seen;
            if (r.head_ms == 0 && taken_ >= r.begin + r.head_bytes) r.head_ms = kernel_.clock_ms;
        }
    }

    /// Behind the end nothing counts any more, however much of it comes.
    void check_flood() {
        if (shut_ && kernel_.clock_ms > shutdown_ms_ + 2000 + late() + scene_.idle_ms / 16) {
            kernel_.violate("deadline missed: floods for %llu ms behind the end",
                            static_cast<unsigned long long>(kernel_.clock_ms - shutdown_ms_));
        }
    }

    void on_sent(std::string_view bytes) override {
        sent_ms_ = kernel_.clock_ms;
        sent_ += bytes.size();
        const std::uint64_t end = sent_;
        while (!bytes.empty()) {
            if (content_left_ != 0) {
                bytes.remove_prefix(check_content(bytes, end - bytes.size()));
                continue;
            }
            if (ended_)
                return kernel_.violate("%zu bytes behind the last answer: %.60s; it said %.300s", bytes.size(),
                                       std::string(bytes).c_str(), talk_.stream.c_str());
            // Up to the empty line, byte by byte only where it may stand.
            const std::size_t line = bytes.find('\n');
            head_ += bytes.substr(0, line == std::string_view::npos ? bytes.size() : line + 1);
            bytes.remove_prefix(line == std::string_view::npos ? bytes.size() : line + 1);
            if (head_.size() > 4096) return kernel_.violate("an answer's head without end: %.100s", head_.c_str());
            if (head_.size() >= 4 && head_.compare(head_.size() - 4, 4, "\r\n\r\n") == 0) check_head(end - bytes.size());
        }
    }

    void on_shutdown() override {
        shutdown_ms_ = kernel_.clock_ms;
        shut_ = true;
        if (!at_boundary()) kernel_.violate("shutdown in the middle of an answer");
        if (ended_) return;
        if (scene_.draining && waited(scene_.drain_ms_begin, 300)) {
            // An idle connection is told to go. What it had sent before must have been answered.
            if (complete_taken() > answered_)
                kernel_.violate("shutdown though %zu requests are here and %zu are answered", complete_taken(), answered_);
            ended_ = true;  // what comes from now on is thrown away
            return;
        }
        if (!stream_->spoiled) kernel_.violate("shutdown without a reason");
    }

    void on_close() override {
        Stream& s = *stream_;
        const std::uint64_t now = kernel_.clock_ms;
        if (s.reset || s.client_gone || s.spoiled) return;
        if (scene_.draining && waited(scene_.drain_ms_begin, scene_.drain_ms)) return;  // cut off
        const bool linger_over = shut_ && waited(shutdown_ms_, scene_.draining ? 500 : 2000);
        if (!at_boundary() || complete_taken() > answered_) {
            if (scene_.idle_ms != 0 && waited(std::max(sent_ms_, accepted_ms_), scene_.idle_ms))
                return;  // a reader that does not read
            return kernel_.violate("closed with %zu whole requests taken, %zu answered, %s", complete_taken(), answered_,
                                   at_boundary() ? "at the end of an answer" : "in the middle of an answer");
        }
        if (s.unread_by_server() != 0) {  // the client is reset
            const bool beyond = ended_ && answered_ != 0 && answered_ <= talk_.requests.size() &&
                                !talk_.requests[answered_ - 1].refused &&
                                talk_.requests[answered_ - 1].ends == Request::Ends::close;
            if (linger_over || beyond || silent_end()) return;
            return kernel_.violate("reset by a close with %zu bytes unread", s.unread_by_server());
        }
        if (ended_ || s.client_finished || linger_over) return;
        if (silent_end()) return;
        kernel_.violate("closed without a reason after %zu answers, %llu ms after its last sign", answered_,
                        static_cast<unsigned long long>(now - since()));
    }

    // ---- looking: all reactors are at rest

    void check_at_rest(bool may_hold) {
        Stream& s = *stream_;
        if (!open_at_server() || s.reset || s.spoiled) return;
        const bool blocked = s.wants_room;
        if (!blocked && !may_hold) {
            if (!at_boundary()) return kernel_.violate("stalled in the middle of an answer, with room for its rest");
            if (taken_ != delivered_)
                return kernel_.violate("stalled: %zu bytes were sent to the server and %zu were read", delivered_, taken_);
            if (complete_taken() > answered_)
                return kernel_.violate("stalled: %zu whole requests, %zu answers; the next is %.300s", complete_taken(), answered_,
                                       talk_.requests[answered_].text.c_str());
            if (answered_ < talk_.requests.size() && !ended_) {
                const Request& r = talk_.requests[answered_];
                if (r.patient && !r.continued && taken_ == r.begin + r.head_bytes)
                    return kernel_.violate("no 100 Continue for a client that waits for it");
            }
            if (ended_ && !s.server_finished) return kernel_.violate("the end was announced and does not come");
            if (s.client_finished) return kernel_.violate("still open though the client has finished and is answered");
        }
        check_deadline(blocked, may_hold);
    }

private:
    // ---- acting

    [[nodiscard]] std::size_t allowed() const noexcept {
        if (ended_ && read_end()) return delivered_;
        std::size_t most = talk_.stream.size();
        for (std::size_t i = 0; i < talk_.requests.size(); ++i) {
            const Request& r = talk_.requests[i];
            if (r.patient && !r.continued && i >= read_answers()) most = std::min(most, r.begin + r.head_bytes);
            if (!pipelines_ && i >= read_answers()) return std::min(most, std::min(r.end, talk_.stream.size()));
        }
        return most;
    }
    /// Answers of which the client has read the last byte.
    [[nodiscard]] std::size_t read_answers() const noexcept {
        return static_cast<std::size_t>(
            std::upper_bound(answer_ends_.begin(), answer_ends_.end(), sent_ - stream_->unread_by_client()) - answer_ends_.begin());
    }
    [[nodiscard]] bool read_end() const noexcept { return stream_->unread_by_client() == 0; }
    [[nodiscard]] bool ends_from_server() const noexcept { return stream_->server_finished; }

    bool write() {
        Stream& s = *stream_;
        if (s.client_finished || kernel_.clock_ms < writes_from_ms_) return false;
        if (floods_ && shut_ && ended_ && s.fd >= 0 && s.unread_by_server() < s.receive_max / 2) {
            flooded_ = true;
            kernel_.arrive(s, std::string(s.receive_max / 2, 'z'));
            return true;
        }
        if (flooded_) return false;
        const std::size_t until = allowed();
        const std::size_t room = s.receive_max > s.unread_by_server() ? s.receive_max - s.unread_by_server() : 0;
        if (delivered_ >= until || room == 0) return false;
        const std::size_t size =
            std::min({until - delivered_, room, std::size_t{kernel_.random.between(1, std::min<std::size_t>(piece_max_, 4096))}});
        const std::string_view piece =
            std::string_view(talk_.stream).substr(delivered_, piece_max_ == SIZE_MAX ? std::min(room, until - delivered_) : size);
        kernel_.note("client %p (%d) sends %zu bytes", static_cast<void*>(this), s.fd, piece.size());
        delivered_ += piece.size();
        for (std::size_t i = delivered_ms_.size(); i < talk_.requests.size() && talk_.requests[i].end <= delivered_; ++i)
            delivered_ms_.push_back(kernel_.clock_ms);
        // FIN in the same segment, sometimes: both are there before the server is told.
        const bool with_fin = half_closes_ && delivered_ == talk_.stream.size() && kernel_.random.below(2) == 0;
        if (with_fin) s.client_finished = true;
        kernel_.arrive(s, piece);
        if (with_fin) kernel_.wake(s.fd, 0);
        if (write_pause_ms_ != 0) writes_from_ms_ = kernel_.clock_ms + write_pause_ms_;
        return true;
    }

    bool read() {
        Stream& s = *stream_;
        if (kernel_.clock_ms < reads_from_ms_) return false;
        if (s.unread_by_client() == 0) {
            return s.server_finished && !(floods_ && s.fd >= 0) && leave("saw the end");
        }
        const std::size_t got = kernel_.take(s, read_max_ == SIZE_MAX ? SIZE_MAX : kernel_.random.between(1, read_max_));
        kernel_.note("client %p (%d) reads %zu bytes", static_cast<void*>(this), s.fd, got);
        if (read_pause_ms_ != 0) reads_from_ms_ = kernel_.clock_ms + read_pause_ms_;
        return true;
    }

    /// It has said everything: it half-closes, leaves, or just stays.
    bool end() {
        Stream& s = *stream_;
        if (delivered_ != talk_.stream.size() || s.client_finished) return false;
        if (half_closes_ && (!talk_.requests.empty() || kernel_.random.below(50) == 0)) {
            kernel_.note("client %p (%d) half-closes", static_cast<void*>(this), s.fd);
            kernel_.finish(s);
            return true;
        }
        if (leaves_ && read_end() && read_answers() >= whole_ && kernel_.random.below(20) == 0) return leave("has all it wanted");
        return false;
    }

    /// close(2) of the client: FIN, or RST if something was unread.
    bool leave(const char* why) {
        kernel_.note("client %p (%d) leaves: %s", static_cast<void*>(this), stream_->fd, why);
        if (stream_->unread_by_client() != 0) kernel_.reset(*stream_);
        stream_->client_gone = true;
        kernel_.finish(*stream_);
        over_ = true;
        return true;
    }

    // ---- judging

    [[nodiscard]] bool at_boundary() const noexcept { return head_.empty() && content_left_ == 0; }

    /// Whole requests the server has read, as far as it must answer them.
    [[nodiscard]] std::size_t complete_taken() const noexcept {
        if (ended_) return answered_;
        std::size_t count = answered_;
        while (count < talk_.requests.size() && talk_.requests[count].end <= taken_) {
            ++count;
            if (talk_.requests[count - 1].ends == Request::Ends::close) break;
        }
        return count;
    }

    /// At least `timeout` of the reactor's time may have passed since `since`.
    [[nodiscard]] bool waited(std::uint64_t since, std::uint64_t timeout) const noexcept {
        return kernel_.clock_ms - since + late() >= timeout;
    }
    /// The clock may move this much between what the reactor saw and what we see.
    [[nodiscard]] std::uint64_t late() const noexcept { return scene_.exact_time ? 0 : 500; }

    [[nodiscard]] std::uint64_t since() const noexcept { return std::max({since_ms_, sent_ms_, accepted_ms_}); }

    /// Was it right to end the connection without a word?
    [[nodiscard]] bool silent_end() const noexcept {
        const bool inside = answered_ < talk_.requests.size() && taken_ > talk_.requests[answered_].begin;
        if (scene_.draining && waited(scene_.drain_ms_begin, 300) && !inside) return true;
        if (shut_) return stream_->client_finished || waited(shutdown_ms_, scene_.draining ? 500 : 2000);
        if (answered_ == 0 && waited(accepted_ms_, scene_.head_ms) && scene_.head_ms != 0) return true;  // never said a word
        return scene_.idle_ms != 0 && waited(since(), scene_.idle_ms);
    }

    void check_head(std::uint64_t end) {
        const std::string head = std::exchange(head_, {});
        if (head == "HTTP/1.1 100 Continue\r\n\r\n") {
            if (answered_ >= talk_.requests.size()) return kernel_.violate("100 Continue for nothing");
            Request& r = talk_.requests[answered_];
            if (!r.expects || r.continued || taken_ < r.begin + r.head_bytes)
                return kernel_.violate("100 Continue that nobody waits for");
            r.continued = true;
            return;
        }
        unsigned status = 0;
        if (std::sscanf(head.c_str(), "HTTP/1.1 %3u ", &status) != 1)
            return kernel_.violate("not a status line: %.60s", head.c_str());
        const bool closes = head.find("\r\nConnection: close\r\n") != std::string::npos;
        const bool keeps = head.find("\r\nConnection: keep-alive\r\n") != std::string::npos;
        if (answered_ >= talk_.requests.size()) {  // it may say something only about a request that never came
            return kernel_.violate("an answer with status %u to no request", status);
        }
        const Request& r = talk_.requests[answered_];
        bool is_head = r.head;
        if (status == 408) {
            const bool head_here = taken_ >= r.begin + r.head_bytes;
            if (taken_ <= r.begin - r.gap || r.end <= taken_)
                return kernel_.violate("408 though the request is %s", r.end <= taken_ ? "complete" : "not begun");
            // A first head has its time from accept on, a later one from its first byte on.
            const std::uint64_t from = head_here ? piece_ms_ : answered_ == 0 ? accepted_ms_ : std::max(gap_ms_, answer_ms_);
            const std::uint64_t timeout = head_here ? scene_.idle_ms : scene_.head_ms;
            if (!waited(from, timeout))
                return kernel_.violate("408 after %llu ms of %llu, %zu answered, %zu bytes taken of %.900s",
                                       static_cast<unsigned long long>(kernel_.clock_ms - from),
                                       static_cast<unsigned long long>(timeout), answered_, taken_, talk_.stream.c_str());
            is_head = r.head && taken_ >= r.begin + 5;  // "HEAD ": from here on it is known
        } else if (status == 503 && r.has_content() && r.head_ms != 0 &&
                   scene_.version != scene_.version_at(r.head_ms - std::min(r.head_ms, late()))) {
            // The server has forgotten what it was asked; it says so and ends.
            if (taken_ < r.end) return kernel_.violate("503 before the end of the content");
        } else {
            if (status != r.status) return kernel_.violate("status %u where %u is due: %.50s", status, r.status, r.text.c_str());
            if (taken_ < (r.refused ? r.begin + 1 : r.end)) return kernel_.violate("answered before the request was read");
            const bool last = scene_.requests_max != 0 && !r.refused && answered_ + 1 >= scene_.requests_max;
            const bool must_close = r.ends == Request::Ends::close || last;
            if (must_close && !closes) return kernel_.violate("the end is not announced:\n%s", head.c_str());
            if (closes && !must_close && !scene_.draining) return kernel_.violate("the end is announced without need");
            if (!closes && scene_.drain_seen && r.end_drained && complete_taken() == answered_ + 1 && taken_ == r.end) {
                return kernel_.violate("the end is not announced during a drain:\n%s", head.c_str());
            }
            if (!closes && keeps != (r.ends == Request::Ends::keep_alive))
                return kernel_.violate("keep-alive is %s", keeps ? "said and not asked for" : "missing");
        }
        if (closes && keeps) return kernel_.violate("both close and keep-alive");
        check_fields(head, status, is_head, closes ? "close" : keeps ? "keep-alive" : "");
        ++answered_;
        if (closes || status == 408 || status == 503) ended_ = true;
        if (content_left_ == 0) answer_done(end);
    }

    /// The whole head, byte by byte, against a rendering of our own.
    void check_fields(const std::string& head, unsigned status, bool is_head, const std::string& connection) {
        const std::size_t at = head.find("Date: ");
        if (at == std::string::npos || head.size() < at + 37) return kernel_.violate("no Date: %s", head.c_str());
        const std::string date = head.substr(at + 6, 29);
        if (!is_recent(date, status))
            return kernel_.violate("Date is %s, and it is %s", date.c_str(), date_text(kernel_.wall()).c_str());
        const std::size_t length_at = head.find("Content-Length: ");
        std::uint64_t length = 0;
        if (length_at != std::string::npos) length = std::strtoull(head.c_str() + length_at + 16, nullptr, 10);
        std::string due = "HTTP/1.1 " + std::to_string(status) + " " + phrase(status) + "\r\nDate: " + date + "\r\n";
        if (!scene_.server.empty()) due += "Server: " + scene_.server + "\r\n";
        if (!connection.empty()) due += "Connection: " + connection + "\r\n";
        if (status == 204 || status == 405) due += "Allow: GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS\r\n";
        if (status != 204) due += "Content-Type: text/plain\r\nContent-Length: " + std::to_string(length) + "\r\n";
        due += "\r\n";
        if (head != due) return kernel_.violate("the head is\n%sand should be\n%s", head.c_str(), due.c_str());
        if (status == 204) return;
        content_status_ = status;
        content_at_ = 0;
        if (status == 200) {
            const unsigned newest = scene_.version;
            const std::uint64_t since = answered_ms();
            unsigned version = scene_.version_at(since - std::min(since, late()));
            while (version < newest && scene_.size(version) != length) ++version;
            if (scene_.size(version) != length)
                return kernel_.violate("Content-Length is %llu and should be %llu:\n%s", static_cast<unsigned long long>(length),
                                       static_cast<unsigned long long>(scene_.size(version)), head.c_str());
            content_ = scene_.filled ? std::string() : scene_.text(version);
        }
        if (!is_head) content_left_ = length;
    }

    /// Since when the answer that is due now could have been made.
    [[nodiscard]] std::uint64_t answered_ms() const noexcept {
        return answered_ < delivered_ms_.size() ? std::min(begun_ms_, delivered_ms_[answered_]) : begun_ms_;
    }

    /// Between the arrival of the request and now, by any wall clock that was in force meanwhile.
    [[nodiscard]] bool is_recent(const std::string& date, unsigned status) const {
        std::tm t{};
        const char* end = ::strptime(date.c_str(), "%a, %d %b %Y %H:%M:%S GMT", &t);
        if (end == nullptr || *end != '\0') return false;
        const std::int64_t said = ::timegm(&t);
        if (date_text(said) != date) return false;
        const bool whole = answered_ < delivered_ms_.size() && !talk_.requests[answered_].refused && status != 408;
        const std::uint64_t arrived = whole ? delivered_ms_[answered_] : begun_ms_;
        const std::uint64_t from = arrived - std::min(arrived, late());
        for (std::size_t i = 0; i < scene_.wall_jumps.size(); ++i) {
            const std::uint64_t begins = std::max(scene_.wall_jumps[i].first, from);
            const std::uint64_t ends = i + 1 < scene_.wall_jumps.size() ? scene_.wall_jumps[i + 1].first : kernel_.clock_ms;
            const std::int64_t base = scene_.wall_jumps[i].second;
            if (ends >= begins && said >= base + static_cast<std::int64_t>(begins / 1000) &&
                said <= base + static_cast<std::int64_t>(ends / 1000))
                return true;
        }
        return false;
    }

    std::size_t check_content(std::string_view bytes, std::uint64_t begin_at) {
        const std::size_t count = std::min<std::size_t>(bytes.size(), content_left_);
        const std::string_view part = bytes.substr(0, count);
        if (content_status_ == 200) {
            const bool right = scene_.filled ? part.find_first_not_of('x') == std::string_view::npos
                                             : std::string_view(content_).substr(content_at_, count) == part;
            if (!right) kernel_.violate("other content: %.40s", std::string(part).c_str());
        } else if (content_at_ < 4) {
            const std::string begin = std::to_string(content_status_) + " ";
            for (std::size_t i = 0; i < count && content_at_ + i < 4; ++i) {
                if (part[i] != begin[content_at_ + i]) kernel_.violate("other content: %.40s", std::string(part).c_str());
            }
        }
        content_at_ += count;
        content_left_ -= count;
        if (content_left_ == 0) {
            if (content_status_ != 200 && part.back() != '\n') kernel_.violate("the content does not end where it should");
            answer_done(begin_at + count);
        }
        return count;
    }

    void answer_done(std::uint64_t end) {
        answer_ends_.push_back(end);
        answer_ms_ = kernel_.clock_ms;
        since_ms_ = kernel_.clock_ms;
        // What is here of the next request was read before: its time counts from now.
        begun_ms_ = kernel_.clock_ms;
    }

    static const char* phrase(unsigned status) {
        switch (status) {
        case 200: return "OK";
        case 204: return "No Content";
        case 400: return "Bad Request";
        case 405: return "Method Not Allowed";
        case 408: return "Request Timeout";
        case 413: return "Content Too Large";
        case 414: return "URI Too Long";
        case 417: return "Expectation Failed";
        case 431: return "Request Header Fields Too Large";
        case 501: return "Not Implemented";
        case 503: return "Service Unavailable";
        case 505: return "HTTP Version Not Supported";
        default: return "?";
        }
    }

    /// Whatever it waits for, it does not wait for ever.
    void check_deadline(bool blocked, bool may_hold) {
        const std::uint64_t now = kernel_.clock_ms;
        const std::uint64_t slack = scene_.idle_ms / 16 + 2 + late();
        const auto overdue = [&](std::uint64_t from, std::uint64_t timeout) {
            return timeout != 0 && now > from + timeout + slack;
        };
        const auto say = [&](const char* what, std::uint64_t from) {
            kernel_.violate("deadline missed: %s, for %llu ms, %zu answered, %zu bytes taken of %.900s", what,
                            static_cast<unsigned long long>(now - from), answered_, taken_, talk_.stream.c_str());
        };
        if (may_hold) return;
        const std::uint64_t base = accepted_ms_;
        if (blocked && (!at_boundary() || complete_taken() > answered_)) {
            if (overdue(std::max(base, sent_ms_), scene_.idle_ms)) say("does not read", sent_ms_);
            return;
        }
        if (shut_) {
            if (overdue(std::max(base, shutdown_ms_), 2000)) say("lingers", shutdown_ms_);
            return;
        }
        const bool inside = answered_ < talk_.requests.size() && taken_ > talk_.requests[answered_].begin;
        const bool in_gap =
            answered_ < talk_.requests.size() && taken_ > talk_.requests[answered_].begin - talk_.requests[answered_].gap;
        if (inside && !ended_) {
            const Request& r = talk_.requests[answered_];
            const bool content = taken_ >= r.begin + r.head_bytes;
            const std::uint64_t from = std::max({base, sent_ms_, content ? piece_ms_ : begun_ms_});
            if (overdue(from, content ? scene_.idle_ms : scene_.head_ms))
                say(content ? "content does not come" : "a head does not come", from);
            return;
        }
        const std::uint64_t from = std::max(base, since());
        if (in_gap && (scene_.head_ms == 0 || !overdue(std::max(from, piece_ms_), scene_.head_ms)))
            return;  // half an empty line is half a head
        if (overdue(from, answered_ == 0 ? scene_.head_ms : scene_.idle_ms)) say(answered_ == 0 ? "says nothing" : "is idle", from);
    }

    Kernel& kernel_;
    Scene& scene_;
    Conversation talk_;
    std::shared_ptr<Stream> stream_;
    // How it behaves.
    std::size_t piece_max_ = SIZE_MAX, read_max_ = SIZE_MAX;
    bool pipelines_ = true, half_closes_ = false, leaves_ = false, floods_ = false;
    std::uint32_t write_pause_ms_ = 0, read_pause_ms_ = 0;
    std::uint64_t writes_from_ms_ = 0, reads_from_ms_ = 0;
    std::size_t whole_ = 0;  ///< requests that will be complete and answered
    bool rude_ = false, over_ = false;
    // Its side of the wire.
    std::size_t delivered_ = 0;
    bool flooded_ = false;                     ///< ... and anything behind it
    std::vector<std::uint64_t> delivered_ms_;  ///< by request
    // The server's side of the wire.
    std::size_t taken_ = 0;
    std::size_t answered_ = 0;
    std::uint64_t sent_ = 0;                  ///< bytes
    std::vector<std::uint64_t> answer_ends_;  ///< in the stream of answers
    bool ended_ = false;                      ///< the last answer was sent or has begun
    bool shut_ = false;
    std::string head_;
    std::string content_;
    unsigned content_status_ = 0;
    std::uint64_t content_at_ = 0, content_left_ = 0;
    std::uint64_t accepted_ms_ = 0, begun_ms_ = 0, gap_ms_ = 0, piece_ms_ = 0, sent_ms_ = 0, answer_ms_ = 0, shutdown_ms_ = 0,
                  since_ms_ = 0;
};

}  // namespace sim

#endif  // CEILING_TESTS_SIMULATION_CLIENT_HPP
