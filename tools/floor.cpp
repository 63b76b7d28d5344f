// floor: the null server, the honest zero of every figure.
//
// A measuring stick, not a server. It makes the system calls that ./server makes for the same load, in the same order and
// with the same flags, sends the same bytes, and does nothing else: it does not look at what it receives, keeps no state
// per connection, knows no deadline and no protocol error. What ./server costs beyond it is what ./server's own code
// costs; what both cost is the kernel's price for this work, which no server that uses the same calls can get under.
//
//   keep-alive   one recv = one request = one answer; the connection stays             (ab -k, wrk)
//   close        accept4, recv, send, close; epoll only if the request is not there yet (ab)
//   pipeline     as keep-alive, and one answer for each end of a head in what was read  (wrk with a pipelining script)
//
// What the stick cannot do, on purpose: a request cut in two is answered twice in keep-alive mode (and not at all if the cut
// falls inside the blank line in pipeline mode), a body is taken for a request, and a client that does not read its
// answers is cut off (counted, and said at exit). Clients on the same machine that send whole requests never meet this.
//
//   build/floor --listen 127.0.0.1:8099 --mode close &
//   ab -n 20000 -c 100 http://127.0.0.1:8099/
//   kill %1                                           # prints the counters
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#include "../reactor.hpp"  // the system calls alone

namespace {

// ---- Limits ----------------------------------------------------------------------------------------------------------

constexpr int events_max = 256;  // per epoll_wait: more than the connections of any workload on one thread
constexpr std::size_t input_bytes_max =
    std::size_t{64} * 1024;                // one recv; a read that fills less proves the socket empty, epoll(7)
constexpr std::size_t answers_max = 1024;  // copies of the answer that one send can carry
constexpr std::size_t answer_bytes_max = std::size_t{1024} * 1024;  // so that the copies stay within a gigabyte
constexpr unsigned threads_max = 1024;
constexpr int backlog = 4096;            // as ./server; the kernel cuts it to net.core.somaxconn
constexpr int defer_accept_seconds = 1;  // tcp(7): the kernel holds a silent connection back about this long
constexpr int exit_system = 1;
constexpr int exit_usage = 2;

enum class Mode : std::uint8_t { keep_alive, close, pipeline };

struct Options {
    in_addr address{};
    std::uint16_t port = 8099;
    Mode mode = Mode::keep_alive;
    unsigned threads = 1;
    bool defer_accept = true;
    bool says_keep_alive = false;
    const char* answer_path = nullptr;
};

constexpr std::string_view help =
    "Usage: floor [--listen ADDR:PORT] [--mode keep-alive|close|pipeline] [--threads N]\n"
    "             [--no-defer-accept] [--keep-alive-header] [--answer FILE] [--help]\n"
    "\n"
    "The null server: ./server's system calls and bytes without its parser or state. A measuring stick.\n"
    "\n"
    "  --listen ADDR:PORT   IPv4 address and port; port 0 takes a free one (default 127.0.0.1:8099)\n"
    "  --mode MODE          keep-alive (default), close after each answer, or pipeline (counts blank lines)\n"
    "  --threads N          threads, each with its own listener (default 1)\n"
    "  --no-defer-accept    accept connections before their first byte is there\n"
    "  --keep-alive-header  say `Connection: keep-alive`, which an HTTP/1.0 client such as ab -k waits for\n"
    "  --answer FILE        send these bytes, whole, instead of the built-in answer\n";

// ---- Start-up --------------------------------------------------------------------------------------------------------

[[noreturn]] void fail(int code, const std::string& sentence) {
    std::fprintf(stderr, "floor: %s\n", sentence.c_str());
    std::exit(code);
}

[[noreturn]] void fail_errno(const std::string& what) {
    fail(exit_system, what + ": " + std::generic_category().message(errno));
}

template <class Number>
bool parse_number(std::string_view text, Number& out) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
    return error == std::errc{} && end == text.data() + text.size();
}

void parse_listen(const std::string& text, Options& options) {
    const std::size_t colon = text.rfind(':');
    if (colon == std::string::npos || inet_pton(AF_INET, text.substr(0, colon).c_str(), &options.address) != 1 ||
        !parse_number(std::string_view(text).substr(colon + 1), options.port)) {
        fail(exit_usage, "--listen wants an IPv4 address and a port such as 127.0.0.1:8099, not `" + text + "`");
    }
}

Mode parse_mode(const std::string& text) {
    if (text == "keep-alive") return Mode::keep_alive;
    if (text == "close") return Mode::close;
    if (text == "pipeline") return Mode::pipeline;
    fail(exit_usage, "--mode wants keep-alive, close or pipeline, not `" + text + "`");
}

Options parse_options(int argc, char** argv) {
    Options options;
    options.address.s_addr = htonl(INADDR_LOOPBACK);
    for (int i = 1; i < argc; ++i) {
        const std::string name = argv[i];
        const auto value = [&]() -> const char* {
            if (i + 1 >= argc) fail(exit_usage, name + " needs a value");
            return argv[++i];
        };
        if (name == "--listen") {
            parse_listen(value(), options);
        } else if (name == "--mode") {
            options.mode = parse_mode(value());
        } else if (name == "--threads") {
            const std::string text = value();
            if (!parse_number(std::string_view(text), options.threads) || options.threads < 1 || options.threads > threads_max) {
                fail(exit_usage, "--threads wants a number from 1 to " + std::to_string(threads_max) + ", not `" + text + "`");
            }
        } else if (name == "--no-defer-accept") {
            options.defer_accept = false;
        } else if (name == "--keep-alive-header") {
            options.says_keep_alive = true;
        } else if (name == "--answer") {
            options.answer_path = value();
        } else if (name == "--help") {
            std::fwrite(help.data(), 1, help.size(), stdout);
            std::exit(0);
        } else {
            fail(exit_usage, "unknown option `" + name + "`; --help lists the options");
        }
    }
    return options;
}

// The bytes ./server sends for its default body. Date is of the start and stays: the stick has no clock.
std::string built_in_answer(const Options& options) {
    const std::time_t now = std::time(nullptr);
    std::tm utc{};
    gmtime_r(&now, &utc);
    std::array<char, 64> date{};
    std::strftime(date.data(), date.size(), "%a, %d %b %Y %H:%M:%S GMT", &utc);
    std::string answer = "HTTP/1.1 200 OK\r\nDate: ";
    answer += date.data();
    answer += "\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n";
    if (options.mode == Mode::close) answer += "Connection: close\r\n";
    if (options.says_keep_alive) answer += "Connection: keep-alive\r\n";
    return answer + "\r\nhello";
}

std::string read_answer(const char* path) {
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path, "rb"), std::fclose);
    if (!file) fail_errno(std::string("cannot read ") + path);
    std::string answer(answer_bytes_max + 1, '\0');
    errno = 0;
    answer.resize(std::fread(answer.data(), 1, answer.size(), file.get()));
    if (std::ferror(file.get()) != 0) fail_errno(std::string("cannot read ") + path);
    if (answer.empty() || answer.size() > answer_bytes_max) {
        fail(exit_system, std::string(path) + " must hold from 1 to " + std::to_string(answer_bytes_max) + " bytes");
    }
    return answer;
}

void set_option(int fd, int level, int name, int value, const char* what) {
    if (setsockopt(fd, level, name, &value, sizeof value) != 0) fail_errno(what);
}

// One listener per thread: SO_REUSEPORT lets the kernel spread connections by a hash of the peer's address, socket(7).
// TCP_NODELAY is inherited by every accepted socket, which saves a call per connection.
int open_listener(Options& options) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) fail_errno("socket");
    set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1, "SO_REUSEADDR");
    if (options.threads > 1) set_option(fd, SOL_SOCKET, SO_REUSEPORT, 1, "SO_REUSEPORT");
    set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1, "TCP_NODELAY");
    if (options.defer_accept) set_option(fd, IPPROTO_TCP, TCP_DEFER_ACCEPT, defer_accept_seconds, "TCP_DEFER_ACCEPT");
    sockaddr_in name{};
    name.sin_family = AF_INET;
    name.sin_port = htons(options.port);
    name.sin_addr = options.address;
    socklen_t name_bytes = sizeof name;
    if (bind(fd, reinterpret_cast<const sockaddr*>(&name), name_bytes) != 0) {
        fail_errno("cannot listen on port " + std::to_string(options.port));
    }
    if (listen(fd, backlog) != 0) fail_errno("listen");
    if (getsockname(fd, reinterpret_cast<sockaddr*>(&name), &name_bytes) != 0) fail_errno("getsockname");
    options.port = ntohs(name.sin_port);  // port 0: the other threads join the port that this one was given
    return fd;
}

// ---- The loop --------------------------------------------------------------------------------------------------------

// Written by one thread each, read by the main thread at exit: relaxed atomics, which cost what plain words cost.
struct alignas(64) Counters {
    std::atomic<std::uint64_t> connections, answers, waits, events, short_sends, errors;
};

void add(std::atomic<std::uint64_t>& counter, std::uint64_t n) {
    counter.store(counter.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
}

// Blank lines in what was read. Blocks of at most 255 positions let the sum stay in bytes, so that the compiler turns it
// into compares and subtractions of whole vectors.
std::size_t count_heads(const char* bytes, std::size_t count) {
    constexpr std::size_t block = 192;  // three vectors of 64 bytes; a byte can hold the sum of 255
    std::size_t heads = 0;
    for (std::size_t begin = 0; begin + 3 < count; begin += block) {
        const std::size_t end = begin + block < count - 3 ? begin + block : count - 3;
        std::uint8_t sum = 0;
        for (std::size_t i = begin; i < end; ++i) {
            const bool head = (bytes[i] == '\r') & (bytes[i + 1] == '\n') & (bytes[i + 2] == '\r') & (bytes[i + 3] == '\n');
            sum = static_cast<std::uint8_t>(sum + head);
        }
        heads += sum;
    }
    return heads;
}

enum class Step : std::uint8_t { stay, end };

class Floor {
public:
    Floor(const Options& options, int listener, const std::string& copies, std::size_t answer_bytes, Counters& counters)
        : mode_(options.mode), listener_(listener), copies_(copies), answer_bytes_(answer_bytes), counters_(counters) {
        epoll_ = epoll_create1(EPOLL_CLOEXEC);
        if (epoll_ < 0) fail_errno("epoll_create1");
        watch(listener_, EPOLLIN);  // level-triggered, as ./server's
    }

    /// Makes run return when `fd`, a signalfd, becomes readable.
    void watch_stop(int fd) {
        stop_ = fd;
        watch(fd, EPOLLIN);
    }

    void run() {
        std::array<epoll_event, events_max> events;
        for (;;) {
            const int count = reactor::Linux::epoll_wait(epoll_, events.data(), events_max, -1);
            if (count < 0) {
                if (errno == EINTR) continue;
                fail_errno("epoll_wait");
            }
            add(counters_.waits, 1);
            add(counters_.events, static_cast<std::uint64_t>(count));
            for (int i = 0; i < count; ++i) {
                const epoll_event event = events[static_cast<std::size_t>(i)];
                if (event.data.fd == listener_) {
                    accept_all();
                } else if (event.data.fd == stop_) {
                    return;
                } else if (serve(event.data.fd, event.events) == Step::end) {
                    reactor::Linux::close(event.data.fd);
                }
            }
        }
    }

private:
    void watch(int fd, std::uint32_t what) {
        epoll_event event{};
        event.events = what;
        event.data.fd = fd;
        if (epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event) != 0) fail_errno("epoll_ctl");
    }

    // The request is most often there already (TCP_DEFER_ACCEPT), so it is answered before epoll hears of the connection.
    void accept_all() {
        for (;;) {
            const int fd = reactor::Linux::accept(listener_);
            if (fd < 0) {
                if (errno != EAGAIN) add(counters_.errors, 1);
                return;  // level-triggered: what is left comes back
            }
            add(counters_.connections, 1);
            if (serve(fd, 0) == Step::end) {
                reactor::Linux::close(fd);
            } else {
                watch(fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);  // once, never changed
            }
        }
    }

    [[gnu::always_inline]] Step serve(int fd, std::uint32_t what) {
        for (;;) {
            const ssize_t count = reactor::Linux::recv(fd, input_.data(), input_.size());
            if (count < 0) return errno == EAGAIN ? Step::stay : Step::end;
            if (count == 0) return Step::end;
            const std::size_t answers = mode_ == Mode::pipeline ? count_heads(input_.data(), static_cast<std::size_t>(count)) : 1;
            if (!answer(fd, answers) || mode_ == Mode::close) return Step::end;
            // A short read proves the socket empty, unless the peer's FIN came with the data: that gives no second edge.
            if (static_cast<std::size_t>(count) < input_.size() && (what & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) == 0)
                return Step::stay;
        }
    }

    [[gnu::always_inline]] bool answer(int fd, std::size_t answers) {
        add(counters_.answers, answers);
        while (answers > 0) {
            const std::size_t batch = answers < answers_max ? answers : answers_max;
            const std::size_t bytes = batch * answer_bytes_;
            // Before close, as ./server does: the FIN then travels with the answer.
            if (reactor::Linux::send(fd, copies_.data(), bytes, mode_ == Mode::close) != static_cast<ssize_t>(bytes)) {
                add(counters_.short_sends, 1);
                return false;
            }
            answers -= batch;
        }
        return true;
    }

    Mode mode_;
    int listener_;
    int epoll_;
    int stop_ = -1;
    const std::string& copies_;  // the answer, back to back: n answers are one send without a copy
    std::size_t answer_bytes_;
    Counters& counters_;
    std::array<char, input_bytes_max> input_;
};

std::uint64_t total(const std::vector<Counters>& counters, std::atomic<std::uint64_t> Counters::*member) {
    std::uint64_t sum = 0;
    for (const Counters& each : counters) sum += (each.*member).load(std::memory_order_relaxed);
    return sum;
}

}  // namespace

int main(int argc, char** argv) {
    Options options = parse_options(argc, argv);
    const std::string answer = options.answer_path ? read_answer(options.answer_path) : built_in_answer(options);
    std::string copies;
    const std::size_t copies_count = options.mode == Mode::pipeline ? answers_max : 1;
    copies.reserve(answer.size() * copies_count);
    for (std::size_t i = 0; i < copies_count; ++i) copies += answer;

    // Blocked for every thread and read by the first, which is the main thread as in ./server: a process of one thread does
    // not share its table of descriptors, and its system calls are 1 % cheaper for it.
    sigset_t stop;
    sigemptyset(&stop);
    sigaddset(&stop, SIGTERM);
    sigaddset(&stop, SIGINT);
    pthread_sigmask(SIG_BLOCK, &stop, nullptr);
    const int stop_fd = signalfd(-1, &stop, SFD_CLOEXEC);
    if (stop_fd < 0) fail_errno("signalfd");

    std::vector<Counters> counters(options.threads);
    std::vector<std::unique_ptr<Floor>> loops;
    for (Counters& each : counters) {
        loops.push_back(std::make_unique<Floor>(options, open_listener(options), copies, answer.size(), each));
    }
    loops.front()->watch_stop(stop_fd);
    for (std::size_t i = 1; i < loops.size(); ++i) std::thread([&loop = *loops[i]] { loop.run(); }).detach();

    std::array<char, INET_ADDRSTRLEN> address{};
    inet_ntop(AF_INET, &options.address, address.data(), address.size());
    std::fprintf(stderr, "floor: listening on http://%s:%u/, %u thread%s, answers of %zu bytes; a measuring stick, not a server\n",
                 address.data(), static_cast<unsigned>(options.port), options.threads, options.threads == 1 ? "" : "s",
                 answer.size());
    loops.front()->run();  // until a signal

    const auto sum = [&counters](std::atomic<std::uint64_t> Counters::*member) {
        return static_cast<unsigned long long>(total(counters, member));
    };
    std::fprintf(stderr, "floor: connections %llu, answers %llu, waits %llu, events %llu, short sends %llu, accept errors %llu\n",
                 sum(&Counters::connections), sum(&Counters::answers), sum(&Counters::waits), sum(&Counters::events),
                 sum(&Counters::short_sends), sum(&Counters::errors));
    std::fflush(stderr);
    std::_Exit(0);  // the threads never end: nothing of theirs may be torn down under them
}
