// The reactor alone, on real sockets, with a protocol of lines: "a\n" and "b\n" have an answer each, "q\n" the last one, "!\n" is
// refused. What is asserted are the order hazards of an edge-triggered loop, its limits and deadlines, and what reactors share.

#include "../reactor.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <deque>
#include <functional>
#include <string>
#include <thread>

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

namespace {

using namespace std::chrono_literals;

// -------------------------------------------------------------------------------------------------------- a small protocol

class Lines {
public:
    struct Response {
        std::string bytes;
    };
    struct State {
        std::uint32_t lines;
    };
    struct Partial {
        std::uint32_t seen;
    };
    using Reply = reactor::Reply<Response>;
    using Run = reactor::Run<Response>;

    Reply answer(State& state, std::string_view input, Partial& partial) {
        const std::size_t end = input.find('\n', partial.seen);
        if (end == std::string_view::npos) {
            partial.seen = static_cast<std::uint32_t>(input.size());
            return {0, nullptr, Reply::Then::wait};
        }
        partial = {};
        ++state.lines;
        if (input[0] == 'q') return {end + 1, &last, Reply::Then::close};
        if (input[0] == '!') return {0, &last, Reply::Then::refuse};
        return {end + 1, input[0] == 'a' ? &a : &b, draining ? Reply::Then::refuse : Reply::Then::go_on};
    }
    reactor::Bytes bytes(const Run& run) {
        return {run.response->bytes.data() + run.offset, run.response->bytes.size() - static_cast<std::size_t>(run.offset)};
    }
    [[nodiscard]] std::uint64_t size(const Response& response) const { return response.bytes.size(); }
    [[nodiscard]] bool inside(const State&) const { return false; }
    const Response* timed_out(const State&, const Partial&, bool begun) { return begun ? &last : nullptr; }
    void answered(const Response&, unsigned) {}
    void hold(const Response&) { ++held; }
    void release(const Response&) { --held; }
    void tick(std::int64_t) {}
    void drain() { draining = true; }

    Response a{"A\n"}, b{"B\n"}, last{"Z\n"};
    int held = 0;
    bool draining = false;
};

// ------------------------------------------------------------------------------------------------------------ both ends

int listen_on(std::uint16_t& port) {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    const int one = 1;
    REQUIRE(::setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof one) == 0);
    REQUIRE(::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) == 0);
    REQUIRE(::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    REQUIRE(::listen(fd, 1024) == 0);
    socklen_t length = sizeof address;
    REQUIRE(::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) == 0);
    port = ntohs(address.sin_port);
    return fd;
}

class Client {
public:
    explicit Client(std::uint16_t port, int receive_bytes = 0) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        if (receive_bytes != 0) REQUIRE(::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof receive_bytes) == 0);
        const timeval patience{20, 0};
        REQUIRE(::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == 0);
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        address.sin_port = htons(port);
        REQUIRE(::connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    }
    Client(Client&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    Client& operator=(Client&& other) noexcept {
        std::swap(fd_, other.fd_);
        return *this;
    }
    ~Client() { close(); }

    void send(std::string_view bytes) const {
        while (!bytes.empty()) {
            const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
            REQUIRE(sent > 0);
            bytes.remove_prefix(static_cast<std::size_t>(sent));
        }
    }
    [[nodiscard]] bool try_send(std::string_view bytes) const { return ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL) >= 0; }
    /// So many bytes, or what came before the end.
    [[nodiscard]] std::string read(std::size_t count = SIZE_MAX) const {
        std::string all;
        std::array<char, 65536> block;
        while (all.size() < count) {
            const ssize_t got = ::recv(fd_, block.data(), std::min(count - all.size(), block.size()), 0);
            if (got < 0) FAIL("recv: ", std::strerror(errno), " after ", all.size(), " bytes");
            if (got <= 0) break;
            all.append(block.data(), static_cast<std::size_t>(got));
        }
        return all;
    }
    [[nodiscard]] int fd() const noexcept { return fd_; }
    void finish() const { REQUIRE(::shutdown(fd_, SHUT_WR) == 0); }
    void reset() {
        const linger now{1, 0};
        REQUIRE(::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof now) == 0);
        close();
    }
    void close() {
        if (fd_ >= 0) ::close(std::exchange(fd_, -1));
    }

private:
    int fd_;
};

reactor::Settings settings(std::uint32_t head_ms = 10'000, std::uint32_t idle_ms = 10'000) {
    reactor::Settings s;
    s.descriptors_max = 4096;
    s.connections_max = 2000;
    s.input_bytes = 8192;
    s.head_timeout_ms = head_ms;
    s.idle_timeout_ms = idle_ms;
    s.drain_timeout_ms = 3000;
    return s;
}

/// Reactors on threads of their own, on one port, until the end of its life.
template <class Sys = reactor::Linux>
class Running {
public:
    explicit Running(
        const reactor::Settings& s, unsigned threads = 1, const std::function<void(Lines&)>& prepare = [](Lines&) {})
        : group(s, threads) {
        REQUIRE(group.valid());
        for (unsigned i = 0; i < threads; ++i) {
            prepare(protocols.emplace_back());
            loops.emplace_back(group, i, protocols.back());
            REQUIRE(loops.back().valid());
            REQUIRE(loops.back().listen({listen_on(port), false}));
        }
        for (unsigned i = 0; i < threads; ++i) threads_.emplace_back([this, i] { loops[i].run(); });
    }
    Running(const Running&) = delete;
    Running& operator=(const Running&) = delete;
    ~Running() { stop(); }

    void stop() {
        group.drain();
        for (std::thread& thread : threads_) thread.join();
        threads_.clear();
    }
    [[nodiscard]] std::uint64_t count(reactor::Count which) const {
        std::uint64_t sum = 0;
        for (const auto& loop : loops) sum += loop.counters().get(which);
        return sum;
    }
    /// Nothing is left behind: to be called after stop.
    void check_end() {
        CHECK(group.held() == 0);
        CHECK(count(reactor::Count::accepted) == count(reactor::Count::closed));
        int held = 0;
        for (const Lines& protocol : protocols) held += protocol.held;
        CHECK(held == 0);
    }
    bool wait_for(const std::function<bool()>& condition, std::chrono::milliseconds patience = 10s) const {
        for (const auto end = std::chrono::steady_clock::now() + patience; std::chrono::steady_clock::now() < end;) {
            if (condition()) return true;
            std::this_thread::sleep_for(1ms);
        }
        return condition();
    }

    std::uint16_t port = 0;
    reactor::Group<Lines, Sys> group;
    std::deque<Lines> protocols;
    std::deque<reactor::Reactor<Lines, Sys>> loops;

private:
    std::vector<std::thread> threads_;
};

std::string times(std::string_view text, std::size_t count) {
    std::string all;
    for (std::size_t i = 0; i < count; ++i) all += text;
    return all;
}

/// Linux, but accept finds no descriptor as often as it is told.
struct Exhausted : reactor::Linux {
    inline static std::atomic<int> refusals{0};
    static int accept(int listener) {
        if (refusals.load() > 0) {
            --refusals;
            errno = EMFILE;
            return -1;
        }
        return Linux::accept(listener);
    }
};

}  // namespace

static_assert(sizeof(reactor::Connection<Lines>) == 64 && alignof(reactor::Connection<Lines>) == 64,
              "a connection is one cache line");

// ------------------------------------------------------------------------------------------------------------ order hazards

TEST_CASE("reactor: two connections ready in one batch are both served, also when the first ends") {
    reactor::Group<Lines> group(settings(), 1);
    Lines protocol;
    reactor::Reactor<Lines> loop(group, 0, protocol);
    std::uint16_t port = 0;
    REQUIRE(loop.listen({listen_on(port), false}));
    Client one(port);
    Client two(port);
    one.send("a\n");
    two.send("b\n");
    while (loop.counters().get(reactor::Count::answered) < 2) REQUIRE(loop.step());
    CHECK(one.read(2) == "A\n");
    CHECK(two.read(2) == "B\n");
    one.send("q\n");  // ends, and its descriptor is given to the third within the batch
    two.send("a\n");
    Client three(port);
    three.send("b\n");
    while (loop.counters().get(reactor::Count::answered) < 5) REQUIRE(loop.step());
    CHECK(one.read() == "Z\n");
    CHECK(two.read(2) == "A\n");
    CHECK(three.read(2) == "B\n");
    group.drain();
    while (loop.step()) {
    }
    CHECK(group.held() == 0);
}

TEST_CASE("reactor: whatever comes with the end is answered before it") {
    Running<> server(settings());
    for (int i = 0; i < 200; ++i) {
        Client client(server.port);
        client.send(times("a\n", static_cast<std::size_t>(i % 50) + 1));
        client.finish();
        REQUIRE(client.read() == times("A\n", static_cast<std::size_t>(i % 50) + 1));
    }
    server.stop();
    server.check_end();
}

TEST_CASE("reactor: half a line and then the end is no line") {
    Running<> server(settings());
    Client client(server.port);
    client.send("a\nb\na");
    client.finish();
    CHECK(client.read() == "A\nB\n");
}

TEST_CASE("reactor: resets at any moment end one connection and no more") {
    Running<> server(settings(), 2);
    for (int i = 0; i < 300; ++i) {
        Client client(server.port);
        if (i % 3 != 0) client.send(times("a\n", static_cast<std::size_t>(i)));
        if (i % 3 == 2) static_cast<void>(client.read(2));
        client.reset();
    }
    Client client(server.port);
    client.send("b\n");
    CHECK(client.read(2) == "B\n");
    client.close();
    CHECK(server.wait_for([&] { return server.group.held() == 0; }));
    server.stop();
    server.check_end();
}

TEST_CASE("reactor: a peer that leaves while it is written to kills nobody, whatever SIGPIPE does") {
    const auto before = std::signal(SIGPIPE, SIG_DFL);
    Running<> server(settings(), 1, [](Lines& p) { p.a.bytes.assign(100'000, 'x'); });
    for (int i = 0; i < 100; ++i) {
        Client client(server.port);
        client.send(times("a\n", 50));
        client.reset();
    }
    CHECK(server.wait_for([&] { return server.group.held() == 0; }));
    std::signal(SIGPIPE, before);
}

TEST_CASE("reactor: a slow reader gets every byte, and then the next answer") {
    Running<> server(settings(), 1, [](Lines& p) {
        p.a.bytes.clear();
        for (int i = 0; i < 3'000'000; ++i) p.a.bytes += static_cast<char>('0' + i % 10);
        p.a.bytes += '\n';
    });
    const std::string due = server.protocols[0].a.bytes;
    Client client(server.port, 4096);
    client.send("a\na\na\nb\na\n");
    std::this_thread::sleep_for(100ms);
    CHECK(client.read(due.size()) == due);
    CHECK(client.read(2 * due.size()) == due + due);
    CHECK(client.read(2) == "B\n");
    CHECK(client.read(due.size()) == due);
    client.send("b\n");
    CHECK(client.read(2) == "B\n");
    CHECK(server.count(reactor::Count::sends_blocked) > 0);
}

TEST_CASE("reactor: more answers are due than the socket holds, and then one more") {
    Running<> server(settings(), 1, [](Lines& p) { p.a.bytes = std::string(1023, 'x') + "\n"; });
    Client client(server.port, 4096);
    constexpr std::size_t count = 5001;
    std::thread writer([&] { client.send(times("a\n", count)); });
    std::this_thread::sleep_for(50ms);
    CHECK(client.read(count * 1024) == times(std::string(1023, 'x') + "\n", count));
    writer.join();
    client.send("b\n");
    CHECK(client.read(2) == "B\n");
}

TEST_CASE("reactor: a refused peer that still sends reads its answer") {
    Running<> server(settings());
    for (int i = 0; i < 20; ++i) {
        Client client(server.port);
        client.send("!\n" + std::string(1'000'000, 'z'));
        client.finish();
        CHECK(client.read() == "Z\n");
    }
}

TEST_CASE("reactor: a line that comes byte by byte, beside others") {
    Running<> server(settings(), 2);
    std::deque<Client> clients;
    for (int i = 0; i < 20; ++i) clients.emplace_back(server.port);
    for (int byte = 0; byte < 30; ++byte) {
        for (const Client& client : clients) client.send("a");
    }
    for (const Client& client : clients) client.send("\n");
    for (const Client& client : clients) CHECK(client.read(2) == "A\n");
}

// --------------------------------------------------------------------------------------------------------- limits, deadlines

TEST_CASE("reactor: without descriptors the listener rests, and comes back") {
    Exhausted::refusals = 0;
    Running<Exhausted> server(settings());
    Client before(server.port);
    before.send("a\n");
    CHECK(before.read(2) == "A\n");
    Exhausted::refusals = 3;
    Client during(server.port);
    during.send("b\n");
    before.send("a\n");
    CHECK(before.read(2) == "A\n");  // who is here is served
    CHECK(during.read(2) == "B\n");  // who waits is served within some rests of 100 ms
    CHECK(server.count(reactor::Count::accept_exhausted) == 3);
    CHECK(server.count(reactor::Count::waits) < 100);
}

TEST_CASE("reactor: above the connection limit others wait their turn") {
    reactor::Settings s = settings();
    s.connections_max = 10;
    Running<> server(s, 2);
    std::deque<Client> first;
    for (int i = 0; i < 10; ++i) {
        first.emplace_back(server.port);
        first.back().send("a\n");
        CHECK(first.back().read(2) == "A\n");
    }
    // A connection is counted behind its answer: before the tenth is, one more may be taken.
    REQUIRE(server.wait_for([&] { return server.group.held() == 10; }));
    Client eleventh(server.port);
    eleventh.send("b\n");
    std::this_thread::sleep_for(150ms);
    CHECK(server.group.held() == 10);
    first.pop_front();
    CHECK(eleventh.read(2) == "B\n");
}

TEST_CASE("reactor: each wait has its deadline") {
    using clock = std::chrono::steady_clock;
    Running<> server(settings(300, 400), 1, [](Lines& p) { p.b.bytes.assign(8'000'000, 'x'); });
    const auto begin = clock::now();
    const auto since = [&] { return std::chrono::duration_cast<std::chrono::milliseconds>(clock::now() - begin).count(); };
    Client silent(server.port);
    Client half(server.port);
    Client idle(server.port);
    Client blocked(server.port, 4096);
    half.send("aaa");
    idle.send("a\n");
    blocked.send(times("b\n", 3));
    CHECK(idle.read(2) == "A\n");
    CHECK(silent.read().empty());
    CHECK(half.read() == "Z\n");
    CHECK(since() >= 295);
    CHECK(idle.read().empty());
    CHECK(since() >= 395);
    CHECK(server.wait_for([&] { return server.count(reactor::Count::timeout_write) == 1; }));
    CHECK(since() < 5000);
    CHECK(server.count(reactor::Count::timeout_head) == 2);
    CHECK(server.count(reactor::Count::timeout_idle) == 1);
    silent.close();
    half.close();
    CHECK(server.wait_for([&] { return server.group.held() == 0; }));
}

TEST_CASE("reactor: a flood behind the end is cut off in time") {
    Running<> server(settings());
    Client client(server.port);
    client.send("!\n");
    const auto begin = std::chrono::steady_clock::now();
    const std::string block(1'000'000, 'z');
    while (client.try_send(block) && std::chrono::steady_clock::now() - begin < 10s) {
    }
    CHECK(std::chrono::steady_clock::now() - begin >= 1900ms);
    CHECK(std::chrono::steady_clock::now() - begin < 6s);
    CHECK(server.count(reactor::Count::timeout_linger) == 1);
}

// ------------------------------------------------------------------------------------------------------------------- drain

TEST_CASE("reactor: a drain empties the accept queue, answers what is here and ends what is idle") {
    reactor::Group<Lines> group(settings(), 1);
    Lines protocol;
    reactor::Reactor<Lines> loop(group, 0, protocol);
    std::uint16_t port = 0;
    REQUIRE(loop.listen({listen_on(port), false}));
    std::deque<Client> clients;
    for (int i = 0; i < 200; ++i) {
        clients.emplace_back(port);
        clients.back().send(i % 2 == 0 ? "a\n" : "b\n");
    }
    Client idle(port);
    group.drain();
    std::thread server([&] {
        while (loop.step()) {
        }
    });
    for (std::size_t i = 0; i < clients.size(); ++i) CHECK(clients[i].read() == (i % 2 == 0 ? "A\n" : "B\n"));
    CHECK(idle.read().empty());
    clients.clear();
    server.join();
    CHECK(group.held() == 0);
    CHECK(loop.counters().get(reactor::Count::accepted) == 201);
    CHECK(loop.counters().get(reactor::Count::drain_cut) == 0);
}

TEST_CASE("reactor: a drain waits for a reader that is slow, and not for one that does not read") {
    reactor::Settings s = settings();
    s.drain_timeout_ms = 1500;
    Running<> server(s, 1, [](Lines& p) { p.a.bytes.assign(20'000'000, 'x'); });
    Client slow(server.port);
    Client never(server.port, 4096);
    slow.send("a\n");
    never.send("a\n");
    CHECK(slow.read(1) == "x");
    CHECK(never.read(1) == "x");
    const auto begin = std::chrono::steady_clock::now();
    std::thread ending([&] { server.stop(); });
    std::this_thread::sleep_for(100ms);
    CHECK(slow.read(19'999'999).size() == 19'999'999);
    slow.close();
    ending.join();
    const auto took = std::chrono::steady_clock::now() - begin;
    CHECK(took >= 1400ms);
    CHECK(took < 5s);
    CHECK(server.count(reactor::Count::drain_cut) == 1);
    server.check_end();
}

// --------------------------------------------------------------------------------------------------------- several reactors

TEST_CASE("reactor: connections are level between reactors after any order of opening and closing") {
    Running<> server(settings(), 4);
    std::deque<Client> clients;
    std::uint32_t dice = 12345;
    for (int round = 0; round < 4; ++round) {
        while (clients.size() < 100) {
            clients.emplace_back(server.port);
            clients.back().send("a\n");
            REQUIRE(clients.back().read(2) == "A\n");
        }
        while (clients.size() > 30) {
            dice = dice * 1664525U + 1013904223U;
            std::swap(clients[dice % clients.size()], clients.back());
            clients.pop_back();
        }
        const auto level = [&] {
            std::uint32_t least = UINT32_MAX;
            std::uint32_t most = 0;
            for (unsigned i = 0; i < 4; ++i) {
                least = std::min(least, server.group.held(i));
                most = std::max(most, server.group.held(i));
            }
            return server.group.held() == clients.size() && most - least <= 1;
        };
        CHECK(server.wait_for(level));
        for (const Client& client : clients) {
            client.send("b\n");
            REQUIRE(client.read(2) == "B\n");  // wherever it lives now
        }
    }
    CHECK(server.count(reactor::Count::handed_over) > 0);
    clients.clear();
    server.stop();
    server.check_end();
}

TEST_CASE("reactor: a lent buffer belongs to one borrower, however many lend at once") {
    struct Partial {
        int nothing;
    };
    reactor::BufferPool<Partial> pool(64, 100);
    REQUIRE(pool.valid());
    std::array<std::atomic<int>, 64> owners{};
    std::atomic<bool> shared{false};
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
        threads.emplace_back([&, t] {
            std::uint32_t dice = static_cast<std::uint32_t>(t);
            std::vector<std::uint32_t> mine;
            for (int i = 0; i < 50'000; ++i) {
                dice = dice * 1664525U + 1013904223U;
                if ((dice >> 16) % 2 == 0 && mine.size() < 20) {
                    const std::uint32_t index = pool.lend();
                    if (index == reactor::none) continue;
                    if (owners[index].exchange(t + 1) != 0) shared = true;
                    pool.at(index).held = index;
                    pool.at(index).bytes()[99] = 'x';
                    mine.push_back(index);
                } else if (!mine.empty()) {
                    if (pool.at(mine.back()).held != mine.back()) shared = true;
                    owners[mine.back()] = 0;
                    pool.take_back(mine.back());
                    mine.pop_back();
                }
            }
            for (const std::uint32_t index : mine) {
                owners[index] = 0;
                pool.take_back(index);
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(!shared.load());
    std::vector<bool> seen(64, false);
    for (int i = 0; i < 64; ++i) {
        const std::uint32_t index = pool.lend();
        REQUIRE(index < 64);
        CHECK(!seen[index]);
        seen[index] = true;
    }
    CHECK(pool.lend() == reactor::none);
}

// ------------------------------------------------------------------------------------------------------------ fault sweeps

namespace {

enum class Call : std::uint8_t { accept, recv, send, epoll_wait, epoll_add, shutdown, close, count_ };

/// Linux, but the Nth call of one kind fails, once or for ever, as the manual says it can.
struct Failing : reactor::Linux {
    inline static std::atomic<Call> which{Call::count_};  // count_: none
    inline static std::atomic<int> error{0};
    inline static std::atomic<int> left{0};  // calls until the first failure
    inline static std::atomic<bool> for_ever{false};
    inline static std::atomic<int> failures{0};

    static void plan(Call call, int number, int nth, bool ever) {
        which = Call::count_;
        error = number;
        left = nth;
        for_ever = ever;
        failures = 0;
        which = call;
    }
    static bool fails(Call call) {
        if (which.load() != call) return false;
        const int before = left.fetch_sub(1);
        if (before > 1 || (before < 1 && !for_ever.load())) return false;
        ++failures;
        errno = error.load();
        return true;
    }
    static int accept(int listener) { return fails(Call::accept) ? -1 : Linux::accept(listener); }
    static ssize_t recv(int fd, char* data, std::size_t size) { return fails(Call::recv) ? -1 : Linux::recv(fd, data, size); }
    static ssize_t send(int fd, const char* data, std::size_t size, bool more) {
        return fails(Call::send) ? -1 : Linux::send(fd, data, size, more);
    }
    static int epoll_wait(int epoll, epoll_event* events, int count, int timeout_ms) {
        return fails(Call::epoll_wait) ? -1 : Linux::epoll_wait(epoll, events, count, timeout_ms);
    }
    static int epoll_ctl(int epoll, int operation, int fd, epoll_event* event) {
        return operation == EPOLL_CTL_ADD && fails(Call::epoll_add) ? -1 : Linux::epoll_ctl(epoll, operation, fd, event);
    }
    static int shutdown_write(int fd) { return fails(Call::shutdown) ? -1 : Linux::shutdown_write(fd); }
    static int close(int fd) {  // the descriptor is gone whatever close says
        const bool failed = fails(Call::close);
        const int number = errno;
        const int result = Linux::close(fd);
        errno = failed ? number : errno;
        return failed ? -1 : result;
    }
};

/// True if `answer` came in time; the server may as well have had to end this connection.
bool asks(std::uint16_t port, std::initializer_list<std::string_view> pieces, std::string_view answer) {
    const Client client(port);
    // While a call fails for ever nothing is worth waiting for.
    const timeval patience = Failing::for_ever.load() ? timeval{0, 50'000} : timeval{2, 0};
    REQUIRE(::setsockopt(client.fd(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == 0);
    for (const std::string_view piece : pieces) {
        if (!client.try_send(piece)) return false;
        std::this_thread::sleep_for(200us);  // so that the pieces are read one by one
    }
    std::string all;
    std::array<char, 64> block{};
    while (all.size() < answer.size()) {
        const ssize_t got = ::recv(client.fd(), block.data(), block.size(), 0);
        if (got <= 0) return false;
        all.append(block.data(), static_cast<std::size_t>(got));
    }
    return all == answer;
}

bool asks_everything(std::uint16_t port) {
    return asks(port, {"q\n"}, "Z\n") && asks(port, {"a\n", "b\n"}, "A\nB\n") && asks(port, {"a", "\n"}, "A\n") &&
           asks(port, {"!more\n"}, "Z\n");
}

/// Fails every call in turn until the work does not reach that far; the server must serve again when the fault is over.
int sweep(Call call, int number, bool for_ever) {
    int reached = 0;
    for (int nth = 1; nth <= 40; ++nth) {
        Running<Failing> server(settings());
        REQUIRE(asks(server.port, {"q\n"}, "Z\n"));
        Failing::plan(call, number, nth, for_ever);
        asks_everything(server.port);
        const bool failed = Failing::failures.load() != 0;
        Failing::plan(Call::count_, 0, 0, false);
        CAPTURE(static_cast<int>(call));
        CAPTURE(number);
        CAPTURE(nth);
        CHECK(server.wait_for([&] { return asks_everything(server.port); }));
        server.stop();
        server.check_end();
        if (!failed) return reached;
        ++reached;
    }
    return reached;
}

}  // namespace

TEST_CASE("reactor: each call fails once at every place, and the server goes on") {
    for (const int number : {EINTR, ECONNABORTED, EPERM, EPROTO, ENETDOWN, EHOSTUNREACH, EMFILE, ENFILE, ENOBUFS, ENOMEM})
        CHECK(sweep(Call::accept, number, false) >= 4);
    for (const int number : {EINTR, ECONNRESET, ETIMEDOUT, ENOMEM}) CHECK(sweep(Call::recv, number, false) >= 4);
    for (const int number : {EINTR, EPIPE, ECONNRESET, ENOBUFS, ENOMEM}) CHECK(sweep(Call::send, number, false) >= 4);
    for (const int number : {ENOMEM, ENOSPC}) CHECK(sweep(Call::epoll_add, number, false) >= 1);
    for (const int number : {EINTR, EIO}) CHECK(sweep(Call::close, number, false) >= 3);
    CHECK(sweep(Call::epoll_wait, EINTR, false) >= 4);
    CHECK(sweep(Call::shutdown, ENOTCONN, false) >= 1);
}

TEST_CASE("reactor: each call fails for ever from every place on, and the server goes on when that is over") {
    for (const int number : {ECONNABORTED, EMFILE, ENOMEM}) CHECK(sweep(Call::accept, number, true) >= 1);
    for (const int number : {ECONNRESET, ENOMEM}) CHECK(sweep(Call::recv, number, true) >= 1);
    for (const int number : {EPIPE, ENOBUFS}) CHECK(sweep(Call::send, number, true) >= 1);
    CHECK(sweep(Call::epoll_add, ENOMEM, true) >= 1);
    CHECK(sweep(Call::close, EINTR, true) >= 1);
    CHECK(sweep(Call::shutdown, ENOTCONN, true) >= 1);
}
