// An edge-triggered epoll reactor: sockets, deadlines and connections. It knows nothing of HTTP.
//
// The problem.  A server whose answers are known beforehand should cost what the kernel costs: one recv and one send a
// request, nothing else. Every table walk, buffer and extra system call beside those two is overhead this file avoids.
//
// The idea.  One thread is one epoll instance with a listening socket of its own. A connection is 64 bytes in one table
// indexed by descriptor, and it owns no buffer: bytes arrive in the thread's one hot buffer, and only a request that is
// cut in two borrows a buffer until its rest arrives. What a connection owes is a *run*: (response, how many, offset)
// over bytes that exist already, so a slow reader costs nothing but its 64 bytes.
//
//     bytes --recv--> hot buffer --Protocol::answer--> run --Protocol::bytes--> send --> bytes
//
// The contract.  A Protocol turns bytes into responses; see the concept below. Sys is the seam to the kernel: Linux in
// production, a simulated kernel in tests. A peer can never make the process abort; a bug of ours always does, with the
// call and its errno on standard error.
//
// What it is not.  No TLS, no UDP, no client side, no threads of its own: the caller starts one thread per Reactor.
//
//     reactor::Group<Echo> group(settings, 1);          // what the reactors of one process share
//     Echo echo;
//     reactor::Reactor<Echo> loop(group, 0, echo);
//     loop.listen({listening_descriptor, false});
//     loop.run();                                       // until group.drain() and the last connection is gone

#ifndef CEILING_REACTOR_HPP
#define CEILING_REACTOR_HPP

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include <array>
#include <atomic>
#include <bit>
#include <concepts>
#include <memory>
#include <new>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace reactor {

// ------------------------------------------------------------------------------------------------------------ limits

/// Events taken by one epoll_wait(2). 64 already amortise the call at 64 busy connections; 256 fill a 3 KiB array.
inline constexpr int events_max = 256;
/// Connections accepted for one event of the listener, so that a connect storm cannot starve established connections.
inline constexpr int accepts_max = 64;
/// Rounds of flush, answer and fill for one event, so that one greedy client cannot starve others (epoll(7), Starvation).
inline constexpr int turns_max = 16;
/// Sends for one flush: with 64 KiB to 4 MiB of socket buffer a reader as fast as we are could hold the loop for ever.
inline constexpr int sends_max = 16;
/// Responses in one run. 65,535 is what the 16-bit field holds.
inline constexpr unsigned run_count_max = 65535;
/// How long an ended connection may still deliver unread input before it is closed for good, in milliseconds. Closing
/// with unread input sends RST, which can destroy the answer in the client's hands (RFC 9112 9.6); ours to choose.
inline constexpr std::uint32_t linger_ms = 2000;
/// The same once a drain has begun: the process is asked to leave.
inline constexpr std::uint32_t linger_drain_ms = 500;
/// How long an idle connection may still send its next request, and be told `close`, once a drain has begun.
inline constexpr std::uint32_t drain_idle_ms = 300;
/// How often a reactor with nothing left looks whether the others have seen the order to drain.
inline constexpr std::uint32_t drain_poll_ms = 5;
/// How long a listener rests after descriptors or memory ran out, unless a connection closes before.
inline constexpr std::uint32_t rearm_ms = 100;
/// Lent buffers below this index keep their pages when they come back; those above give them to the kernel at once.
inline constexpr std::uint32_t warm_buffers = 64;
/// A connection that has been sent no more than this has room in its socket for more (tcp(7): tcp_wmem is 4 KiB at
/// least), so registering it elsewhere reports EPOLLOUT at once and its new owner learns of it.
inline constexpr std::uint64_t handover_bytes_max = 4096;

/// Connections looked at to find one that can move to another reactor: this may happen in every turn of a busy loop.
inline constexpr int movable_looks_max = 16;

/// No descriptor, no buffer, no link.
inline constexpr std::uint32_t none = 0xffffffffU;

/// Defined by tests that check the lists and pools from inside.
struct Inspector;

// ------------------------------------------------------------------------------------------------- what a Protocol is

/// What a connection owes: `count` times `response`, of which `offset` bytes of the first are already sent.
template <class Response>
struct Run {
    const Response* response = nullptr;
    std::uint64_t offset = 0;   ///< bytes of the first response already sent; less than its size
    std::uint16_t count = 0;    ///< 0: nothing is owed
    std::uint16_t stamp = 0;    ///< the protocol's own mark on the bytes of the first response (HTTP: its Date)
    std::uint32_t lent = none;  ///< the reactor's: the buffer that holds a request's beginning; here to fill the hole
};

/// What a Protocol makes of the bytes it was shown.
template <class Response>
struct Reply {
    enum class Then : std::uint8_t {
        go_on,   ///< ask again with the bytes behind `consumed`
        wait,    ///< the bytes behind `consumed` do not make a whole request yet
        close,   ///< the connection ends after this response; the peer expects it and has nothing more to say
        refuse,  ///< the connection ends after this response, though the peer may still be sending: close in stages
    };
    std::size_t consumed = 0;            ///< bytes of the input that are done with
    const Response* response = nullptr;  ///< what is owed for them; null: nothing
    Then then = Then::wait;
};

/// The next bytes of a run: either in memory or, when `data` is null, in a file.
struct Bytes {
    const char* data = nullptr;
    std::size_t size = 0;
    int file = -1;
    std::uint64_t file_offset = 0;
    bool more = false;  ///< further bytes of the same response follow in another piece (send(2), MSG_MORE)
};

/// A Protocol turns bytes into responses.
///   State     what it keeps per connection: at most 24 bytes, trivially copyable, value-initialised on accept
///   Partial   what it knows of a request that is cut in two, kept beside its bytes
///   Response  what a run points to; lives until the run is paid (see hold)
template <class P>
concept Protocol = requires(P p, const P q, typename P::State& state, typename P::Partial& partial, Run<typename P::Response>& run,
                            const typename P::Response& response, std::string_view input) {
    requires sizeof(typename P::State) <= 24 && std::is_trivially_copyable_v<typename P::State>;
    requires std::is_trivially_copyable_v<typename P::Partial>;
    /// Looks at the first request in `input`. Leaves `state` and `partial` ready for the next when it consumes one.
    { p.answer(state, input, partial) } -> std::same_as<Reply<typename P::Response>>;
    /// The next bytes of `run`, valid until the next call; at most run.count whole responses, at least one byte.
    { p.bytes(run) } -> std::same_as<Bytes>;
    /// Bytes of one response; never 0.
    { q.size(response) } -> std::same_as<std::uint64_t>;
    /// `true` while the connection is between the head and the end of a request's content.
    { q.inside(state) } -> std::same_as<bool>;
    /// The connection was too slow with a request of which `begun` says whether any byte came; null: close silently.
    { p.timed_out(state, partial, true) } -> std::same_as<const typename P::Response*>;
    /// So many of `response` have become owed; for the protocol's own counters.
    p.answered(response, 1U);
    /// A run outlives this turn of the loop: its response must live until release.
    p.hold(response);
    p.release(response);
    /// Once per turn of the loop, before any event: seconds since the epoch.
    p.tick(std::int64_t{});
    /// From now on say `close` wherever a response can.
    p.drain();
};

    // ------------------------------------------------------------------------------------------------------------- the seam

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CEILING_SANITIZED  // gcc's way to say it
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define CEILING_SANITIZED  // clang's
#endif
#endif

/// The calls of the hot path without libc's function around them: same arguments, same result, same errno. The price of
/// that function is not its few instructions but its return, the first after the kernel has overwritten the processor's
/// stack of return addresses. Inlined, recv and send alone take a keep-alive request to 0.93 of its CPU [0.91, 0.94] and
/// a short connection to 0.95 (64 and 200 connections, 100 pairs, Zen 4 VM, kernel 6.18), epoll_wait with the loop around it
/// to 0.95 [0.93, 0.99]. What does not bring it: linking statically (1.00), -fno-plt (1.01), epoll_wait without that loop
/// (1.00), which only moves the return. Sanitizers must see libc's functions.
namespace direct {
#if defined(__x86_64__) && defined(__LP64__) && !defined(CEILING_SANITIZED)
inline long call(long number, long a, long b, long c, long d, long e = 0, long f = 0) noexcept {
    register long r10 __asm__("r10") = d;  // syscall(2), "Architecture calling conventions"
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    long result = 0;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "0"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    if (result >= 0 || result < -4095) return result;  // -1 to -4095 are errors, everything else is a result
    errno = static_cast<int>(-result);
    return -1;
}
inline ssize_t recv(int fd, void* data, std::size_t size, int flags) noexcept {
    return call(SYS_recvfrom, fd, reinterpret_cast<long>(data), static_cast<long>(size), flags);
}
inline ssize_t send(int fd, const void* data, std::size_t size, int flags) noexcept {
    return call(SYS_sendto, fd, reinterpret_cast<long>(data), static_cast<long>(size), flags);
}
inline int accept4(int fd, sockaddr* peer, socklen_t* peer_bytes, int flags) noexcept {
    return static_cast<int>(call(SYS_accept4, fd, reinterpret_cast<long>(peer), reinterpret_cast<long>(peer_bytes), flags));
}
inline int close(int fd) noexcept {
    return static_cast<int>(call(SYS_close, fd, 0, 0, 0));
}
inline int epoll_wait(int epoll, epoll_event* events, int count, int timeout_ms) noexcept {
    return static_cast<int>(call(SYS_epoll_wait, epoll, reinterpret_cast<long>(events), count, timeout_ms));
}
#else
using ::accept4;
using ::close;
using ::epoll_wait;
using ::recv;
using ::send;
#endif
}  // namespace direct

/// The system calls of the reactor, each exactly as in section 2 of the manual: result, or -1 and errno.
struct Linux {
    /// accept4(2): O_NONBLOCK is not inherited from the listener, so it is asked for here, saving one fcntl each.
    static int accept(int listener) { return direct::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC); }
    static ssize_t recv(int fd, char* data, std::size_t size) { return direct::recv(fd, data, size, 0); }
    /// send(2) with MSG_NOSIGNAL: a peer that has left must not raise SIGPIPE, whatever the parent made of that signal.
    static ssize_t send(int fd, const char* data, std::size_t size, bool more) {
        return direct::send(fd, data, size, MSG_NOSIGNAL | (more ? MSG_MORE : 0));
    }
    /// sendfile(2): the pages go from the file to the socket without a copy. It can raise SIGPIPE; the server ignores it.
    static ssize_t send_file(int fd, int file, std::uint64_t offset, std::size_t size) {
        off_t at = static_cast<off_t>(offset);
        return ::sendfile(fd, file, &at, size);
    }
    static int epoll_create() { return ::epoll_create1(EPOLL_CLOEXEC); }
    static int epoll_wait(int epoll, epoll_event* events, int count, int timeout_ms) {
        return direct::epoll_wait(epoll, events, count, timeout_ms);
    }
    static int epoll_ctl(int epoll, int operation, int fd, epoll_event* event) { return ::epoll_ctl(epoll, operation, fd, event); }
    /// Would a registration report EPOLLOUT, or an error, at once?
    static bool writable(int fd) {
        pollfd asked{fd, POLLOUT, 0};
        return ::poll(&asked, 1, 0) == 1;
    }
    static int shutdown_write(int fd) { return ::shutdown(fd, SHUT_WR); }
    static int close(int fd) { return direct::close(fd); }
    static int event_create() { return ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC); }
    /// Async-signal-safe (signal-safety(7)): the signal handler wakes a reactor with it.
    static void event_raise(int fd) {
        const std::uint64_t one = 1;
        [[maybe_unused]] const ssize_t done = ::write(fd, &one, sizeof one);  // EAGAIN: the counter is full, so it is raised
    }
    static void event_clear(int fd) {
        std::uint64_t count = 0;
        [[maybe_unused]] const ssize_t done = ::read(fd, &count, sizeof count);  // EAGAIN: nobody raised it
    }
    /// Milliseconds of a clock that never jumps; wraps after 49 days, so only differences mean anything.
    /// CLOCK_MONOTONIC costs 26 ns by vDSO, once per turn of the loop; the coarse clock would be late by up to 4 ms.
    static std::uint32_t now_ms() {
        timespec now{};
        ::clock_gettime(CLOCK_MONOTONIC, &now);
        return static_cast<std::uint32_t>(static_cast<std::uint64_t>(now.tv_sec) * 1000U +
                                          static_cast<std::uint64_t>(now.tv_nsec) / 1000000U);
    }
    /// Seconds since the epoch, for Date.
    static std::int64_t now_seconds() { return ::time(nullptr); }
};

/// Ends the process after a bug of ours: no peer and no lack of resources leads here.
[[noreturn]] inline void abort_on_bug(const char* call) noexcept {
    std::fprintf(stderr, "bug: %s: %s\n", call, std::strerror(errno));
    std::abort();
}

// ------------------------------------------------------------------------------------------------------------- counters

/// One counter per fate, so that no event of interest is silent.
enum class Count : std::uint8_t {
    accepted,     ///< connections taken from the accept queue
    closed,       ///< connections closed by us, for whatever reason
    handed_over,  ///< connections given to a less loaded reactor
    answered,     ///< responses that became owed
    received_bytes,
    sent_bytes,
    waits,             ///< calls of epoll_wait
    events,            ///< events they reported
    receives,          ///< calls of recv
    receives_empty,    ///< of these, EAGAIN: a call that brought nothing
    sends,             ///< calls of send and sendfile
    sends_blocked,     ///< of these, EAGAIN: the peer reads slower than we answer
    peer_finished,     ///< connections ended by the peer's FIN
    peer_reset,        ///< connections ended by a network error: ECONNRESET, EPIPE, ETIMEDOUT, ...
    timeout_head,      ///< too slow with a request head
    timeout_body,      ///< too slow with a request's content
    timeout_idle,      ///< idle for too long
    timeout_write,     ///< did not read our answers
    timeout_linger,    ///< did not end after we had
    accept_error,      ///< connections that died in the accept queue
    accept_exhausted,  ///< times the listener rested: no descriptors, no memory, or the connection limit
    register_failed,   ///< connections refused because epoll_ctl had no memory or watches left
    buffer_exhausted,  ///< connections refused because no buffer could be lent
    drain_cut,         ///< connections cut off at the end of the drain timeout
    count_
};
inline constexpr std::size_t counts = static_cast<std::size_t>(Count::count_);
inline constexpr std::array<std::string_view, counts> count_names = {
    "accepted",        "closed",           "handed_over",    "answered",      "received_bytes", "sent_bytes",    "waits",
    "events",          "receives",         "receives_empty", "sends",         "sends_blocked",  "peer_finished", "peer_reset",
    "timeout_head",    "timeout_body",     "timeout_idle",   "timeout_write", "timeout_linger", "accept_error",  "accept_exhausted",
    "register_failed", "buffer_exhausted", "drain_cut"};

/// What each counts, in the words of the monitoring page.
inline constexpr std::array<const char*, counts> count_helps = {"Connections taken from the accept queue.",
                                                                "Connections closed by the server, for whatever reason.",
                                                                "Connections given to a less loaded thread.",
                                                                "Responses that became owed.",
                                                                "Bytes received.",
                                                                "Bytes sent.",
                                                                "Calls of epoll_wait.",
                                                                "Events they reported.",
                                                                "Calls of recv.",
                                                                "Calls of recv that brought nothing.",
                                                                "Calls of send and sendfile.",
                                                                "Calls of send that found the socket full.",
                                                                "Connections ended by the peer.",
                                                                "Connections ended by a network error.",
                                                                "Connections too slow with a request head.",
                                                                "Connections too slow with a request's content.",
                                                                "Connections idle for too long.",
                                                                "Connections that did not read their answers.",
                                                                "Connections that did not end after the server had.",
                                                                "Connections that died in the accept queue.",
                                                                "Times a listener rested for want of descriptors, memory or room.",
                                                                "Connections refused because they could not be registered.",
                                                                "Connections refused because no buffer could be lent.",
                                                                "Connections cut off at the end of the drain timeout."};

/// Counters with one writer and any number of readers. A relaxed load and store is one plain `add` for the writer.
class alignas(64) Counters {
public:
    void add(Count which, std::uint64_t amount = 1) noexcept {
        std::atomic<std::uint64_t>& value = values_[static_cast<std::size_t>(which)];
        value.store(value.load(std::memory_order_relaxed) + amount, std::memory_order_relaxed);
    }
    [[nodiscard]] std::uint64_t get(Count which) const noexcept {
        return values_[static_cast<std::size_t>(which)].load(std::memory_order_relaxed);
    }

private:
    std::array<std::atomic<std::uint64_t>, counts> values_{};
};

// ---------------------------------------------------------------------------------------------------------- connections

/// What a connection waits for; each kind has a deadline of its own.
enum class Waiting : std::uint8_t {
    nothing,
    head,    ///< the rest of a request's head, or a first request: counted from its first byte, or from accept
    body,    ///< more of a request's content: counted from the last that came
    idle,    ///< the next request
    write,   ///< room in the socket for what is owed: counted from the last byte it took
    linger,  ///< the end of the peer's input, after ours
    delay,   ///< the moment a held answer may be sent
    turn,    ///< nothing: its budget is spent and no edge will come, so it goes on in the loop's next turn
    count_
};
inline constexpr std::size_t waitings = static_cast<std::size_t>(Waiting::count_);

/// Facts about a connection that outlive one turn.
enum Flag : std::uint8_t {
    adopted = 1,     ///< counted and kept by a reactor; not so while it is being accepted or handed over
    peer_ended = 2,  ///< EPOLLRDHUP, EPOLLHUP or EPOLLERR was reported: a short read no longer proves the socket empty
    served = 4,      ///< has been answered at least once
    closing = 8,     ///< ends once what is owed is paid
    staged = 16,     ///< ... by shutdown, drain, close
    lingering = 32,  ///< our side is shut down; input is read and thrown away
    holding = 64,    ///< the protocol was asked to hold its response
};

/// One connection: 64 bytes, one cache line, at table[fd]. One reactor owns it at a time; handing it over is a release
/// (epoll_ctl, ADD) and an acquire (epoll_wait) of the kernel's own making.
template <class P>
struct alignas(64) Connection {
    std::atomic<std::uint16_t> generation;  ///< odd while open; stands in epoll_data beside the descriptor
    Waiting waiting;                        ///< the deadline list it is linked in; nothing: in none
    std::uint8_t flags;                     ///< Flag, or-ed
    std::uint32_t next, prev;               ///< neighbours in that list, by descriptor; valid while linked
    std::uint32_t since_ms;                 ///< when the wait began; plus the kind's timeout: the deadline
    Run<typename P::Response> run;          ///< what is owed
    typename P::State state;                ///< the protocol's

    [[nodiscard]] bool is(Flag flag) const noexcept { return (flags & flag) != 0; }
    void set(Flag flag) noexcept { flags = static_cast<std::uint8_t>(flags | flag); }
    void clear(Flag flag) noexcept { flags = static_cast<std::uint8_t>(flags & ~flag); }
};

// --------------------------------------------------------------------------------------------- what the reactors share

/// Anonymous memory that costs nothing until it is touched (mmap(2), MAP_NORESERVE).
class Mapping {
public:
    Mapping() = default;
    explicit Mapping(std::size_t size) noexcept : size_(size) {
        void* data = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (data != MAP_FAILED) data_ = static_cast<char*>(data);
    }
    Mapping(const Mapping&) = delete;
    Mapping& operator=(const Mapping&) = delete;
    ~Mapping() {
        if (data_ != nullptr) ::munmap(data_, size_);
    }
    /// Null when the kernel refused; errno says why.
    [[nodiscard]] char* data() const noexcept { return data_; }

private:
    char* data_ = nullptr;
    std::size_t size_ = 0;
};

/// Buffers for requests that are cut in two. Any thread lends and takes back: a connection may change its reactor. The
/// free list is a stack whose top carries a tag, so that a pop cannot be fooled by an index that left and came back.
template <class Partial>
class BufferPool {
public:
    struct Lent {
        std::uint32_t held;  ///< bytes of the request that are here
        Partial partial;     ///< what the protocol knows of them
        [[nodiscard]] char* bytes() noexcept { return reinterpret_cast<char*>(this + 1); }
    };

    BufferPool(std::uint32_t count, std::size_t bytes) noexcept
        : stride_((sizeof(Lent) + bytes + page - 1) / page * page),
          count_(count),
          memory_(stride_ * count),
          next_(sizeof(std::atomic<std::uint32_t>) * count) {}

    [[nodiscard]] bool valid() const noexcept { return memory_.data() != nullptr && next_.data() != nullptr; }

    /// The index of a buffer, or none when all are lent.
    [[nodiscard]] std::uint32_t lend() noexcept {
        std::uint64_t top = top_.load(std::memory_order_acquire);
        while (index_of(top) != none) {
            const std::uint32_t below = next(index_of(top)).load(std::memory_order_relaxed);
            if (top_.compare_exchange_weak(top, tagged(top, below), std::memory_order_acq_rel)) return index_of(top);
        }
        std::uint32_t fresh = fresh_.load(std::memory_order_relaxed);
        while (fresh < count_ && !fresh_.compare_exchange_weak(fresh, fresh + 1, std::memory_order_relaxed)) {
        }
        return fresh < count_ ? fresh : none;
    }

    void take_back(std::uint32_t index) noexcept {
        // After a flood of split requests the pages go home; a handful stay, for they will be lent again at once.
        if (index >= warm_buffers) ::madvise(memory_.data() + stride_ * index, stride_, MADV_DONTNEED);
        std::uint64_t top = top_.load(std::memory_order_relaxed);
        do next(index).store(index_of(top), std::memory_order_relaxed);
        while (!top_.compare_exchange_weak(top, tagged(top, index), std::memory_order_acq_rel));
    }

    [[nodiscard]] Lent& at(std::uint32_t index) noexcept {
        return *std::launder(reinterpret_cast<Lent*>(memory_.data() + stride_ * index));
    }

private:
    friend struct Inspector;
    static constexpr std::size_t page = 4096;
    static std::uint32_t index_of(std::uint64_t top) noexcept { return static_cast<std::uint32_t>(top); }
    static std::uint64_t tagged(std::uint64_t top, std::uint32_t index) noexcept { return (((top >> 32) + 1) << 32) | index; }
    std::atomic<std::uint32_t>& next(std::uint32_t index) noexcept {
        return reinterpret_cast<std::atomic<std::uint32_t>*>(next_.data())[index];
    }

    std::size_t stride_;
    std::uint32_t count_;
    Mapping memory_;
    Mapping next_;
    alignas(64) std::atomic<std::uint64_t> top_{none};
    std::atomic<std::uint32_t> fresh_{0};
};

/// What the caller decides. Timeouts in milliseconds; 0 means no limit, but for the drain, which then cuts at once.
struct Settings {
    std::uint32_t descriptors_max = 1024;  ///< size of the table: descriptors are below this (getrlimit(2), RLIMIT_NOFILE)
    std::uint32_t connections_max = 1000;  ///< more wait in the accept queue
    std::size_t input_bytes = 32768;       ///< the hot buffer and each lent one: the longest request head, or more
    std::uint32_t head_timeout_ms = 10000;
    std::uint32_t idle_timeout_ms = 60000;  ///< also for each piece of content, and for a reader that does not read
    std::uint32_t drain_timeout_ms = 5000;
    std::uint32_t delay_ms = 0;  ///< every answer is held for so long; 0: for no time
    bool balance = true;         ///< false: connections stay where the kernel's hash put them
};

template <Protocol P, class Sys>
class Reactor;

/// What the reactors of one process share: the table, the lent buffers, and a seat for each.
template <Protocol P, class Sys = Linux>
class Group {
public:
    using Pool = BufferPool<typename P::Partial>;

    Group(const Settings& settings, unsigned reactors)
        : settings_(settings),
          table_(sizeof(Connection<P>) * settings.descriptors_max),
          pool_(settings.connections_max + reactors, settings.input_bytes),  // see accept_some
          seats_(std::make_unique<Seat[]>(reactors)),
          size_(reactors) {
        for (unsigned i = 0; i < size_; ++i) {
            seats_[i].epoll = Sys::epoll_create();
            seats_[i].wake = Sys::event_create();
        }
    }
    Group(const Group&) = delete;
    Group& operator=(const Group&) = delete;
    ~Group() {
        for (unsigned i = 0; i < size_; ++i) {
            if (seats_[i].wake >= 0) Sys::close(seats_[i].wake);
            if (seats_[i].epoll >= 0) Sys::close(seats_[i].epoll);
        }
    }

    /// False when the kernel refused memory or descriptors; errno says why.
    [[nodiscard]] bool valid() const noexcept {
        bool all = table_.data() != nullptr && pool_.valid();
        for (unsigned i = 0; i < size_; ++i) all = all && seats_[i].epoll >= 0 && seats_[i].wake >= 0;
        return all;
    }

    /// Asks every reactor to drain: stop accepting, answer what is in flight, end. Async-signal-safe.
    void drain() noexcept {
        for (unsigned i = 0; i < size_; ++i) give(i, order_drain);
    }

    /// Makes reactor `i` return from epoll_wait. Async-signal-safe.
    void wake(unsigned i) noexcept { Sys::event_raise(seats_[i].wake); }

    [[nodiscard]] unsigned size() const noexcept { return size_; }
    [[nodiscard]] const Settings& settings() const noexcept { return settings_; }
    /// Connections that reactor `i` keeps now.
    [[nodiscard]] std::uint32_t held(unsigned i) const noexcept { return seats_[i].held.load(std::memory_order_relaxed); }
    [[nodiscard]] std::uint32_t held() const noexcept {
        std::uint32_t sum = 0;
        for (unsigned i = 0; i < size_; ++i) sum += held(i);
        return sum;
    }

private:
    friend class Reactor<P, Sys>;
    friend struct Inspector;

    struct alignas(64) Seat {
        std::atomic<std::uint32_t> held{0};
        std::atomic<std::uint8_t> orders{0};
        int epoll = -1;
        int wake = -1;
    };
    static constexpr std::uint8_t order_drain = 1;  ///< stop accepting, finish, end
    static constexpr std::uint8_t order_shed = 2;   ///< give connections to less loaded reactors

    void give(unsigned seat, std::uint8_t order) noexcept {
        seats_[seat].orders.fetch_or(order, std::memory_order_release);
        Sys::event_raise(seats_[seat].wake);
    }
    Connection<P>& at(std::uint32_t fd) noexcept { return *std::launder(reinterpret_cast<Connection<P>*>(table_.data()) + fd); }

    Settings settings_;
    Mapping table_;
    Pool pool_;
    std::unique_ptr<Seat[]> seats_;
    unsigned size_;
    std::atomic<unsigned> draining_{0};  ///< reactors that have seen the order to drain and hand nothing over any more
};

// ----------------------------------------------------------------------------------------------------------- the reactor

/// A listening socket: non-blocking. `shared` when other reactors listen on the same one (a Unix socket, an inherited
/// one). Closed when a drain begins: by its reactor, or, if shared, by the last that has stopped listening.
struct Listener {
    int fd = -1;
    bool shared = false;
};

/// Serves connections on the calling thread.
template <Protocol P, class Sys = Linux>
class Reactor {
    using Conn = Connection<P>;
    using Response = typename P::Response;
    using Then = typename Reply<Response>::Then;
    static_assert(sizeof(Conn) == 64, "a connection is one cache line");
    static_assert(std::is_trivially_destructible_v<Conn>, "the table is raw memory");

public:
    /// `group` and `protocol` must outlive the reactor; `seat` is its place in the group.
    Reactor(Group<P, Sys>& group, unsigned seat, P& protocol)
        : group_(group),
          seat_(group.seats_[seat]),
          index_(seat),
          protocol_(protocol),
          hot_(group.settings().input_bytes),
          now_ms_(Sys::now_ms()) {
        const Settings& settings = group.settings();
        list(Waiting::head).timeout_ms = settings.head_timeout_ms;
        list(Waiting::body).timeout_ms = with_slack(settings.idle_timeout_ms);
        list(Waiting::idle).timeout_ms = with_slack(settings.idle_timeout_ms);
        list(Waiting::write).timeout_ms = with_slack(settings.idle_timeout_ms);
        list(Waiting::linger).timeout_ms = linger_ms;
        list(Waiting::delay).timeout_ms = settings.delay_ms;
        epoll_event event{EPOLLIN, {.u64 = token_wake}};
        if (Sys::epoll_ctl(seat_.epoll, EPOLL_CTL_ADD, seat_.wake, &event) != 0) abort_on_bug("epoll_ctl");
    }
    Reactor(const Reactor&) = delete;
    Reactor& operator=(const Reactor&) = delete;

    /// False when the kernel refused memory; errno says why.
    [[nodiscard]] bool valid() const noexcept { return hot_.data() != nullptr; }
    [[nodiscard]] const Counters& counters() const noexcept { return counters_; }

    /// Takes connections from `listener` from now on. Before run; false with errno when epoll_ctl(2) refuses.
    [[nodiscard]] bool listen(Listener listener) {
        doors_.push_back({listener, false, 0});
        return arm(doors_.size() - 1);
    }

    /// Serves until the group drains and the last connection is gone; calls `after_turn()` after each turn of the loop.
    template <class AfterTurn>
    void run(AfterTurn after_turn) {
        for (bool more = true; more; after_turn()) more = turn();
    }
    void run() {
        run([] {});
    }

    /// One turn of the loop; false once everything is done. Blocks until an event, a deadline or an order.
    bool step() { return turn(); }

private:
    friend struct Inspector;

    [[gnu::always_inline]] bool turn() {
        const int count = Sys::epoll_wait(seat_.epoll, events_.data(), events_max, wait_ms());
        if (count < 0 && errno != EINTR) abort_on_bug("epoll_wait");
        now_ms_ = Sys::now_ms();
        protocol_.tick(Sys::now_seconds());
        counters_.add(Count::waits);
        const std::uint32_t turns = list(Waiting::turn).length;
        if (count > 0) counters_.add(Count::events, static_cast<std::uint64_t>(count));
        for (int i = 0; i < count; ++i) dispatch(events_[static_cast<std::size_t>(i)]);
        resume(turns);
        expire();
        obey();
        balance();
        rearm();
        return !drained_out();
    }

    /// How a connection's turn ended.
    enum class Step : std::uint8_t {
        progress,  ///< not ended: go on
        wait,      ///< the kernel has nothing to give or takes nothing: an edge will come
        again,     ///< the budget is spent: no edge will come
        hold,      ///< the answer is held for a while
        end,       ///< the connection is over
    };

    /// Connections that wait for the same kind of thing, the longest wait first.
    struct List {
        std::uint32_t first = none, last = none;
        std::uint32_t length = 0;
        std::uint32_t timeout_ms = 0;  ///< 0: no limit
    };

    struct Door {
        Listener listener;
        bool armed = false;
        std::uint32_t rest_until_ms = 0;  ///< valid while not armed
    };

    /// The bytes that are here and not consumed, in the hot buffer or in a lent one.
    struct Input {
        char* data = nullptr;
        std::size_t begin = 0, end = 0;  // begin ≤ end ≤ input_bytes
        [[nodiscard]] std::string_view rest() const noexcept { return {data + begin, end - begin}; }
        [[nodiscard]] bool empty() const noexcept { return begin == end; }
    };

    // Events carry (generation << 32 | descriptor), or one of these two with, for a listener, its index below.
    static constexpr std::uint64_t token_listener = std::uint64_t{1} << 63;
    static constexpr std::uint64_t token_wake = std::uint64_t{1} << 62;

    // ------------------------------------------------------------------------------------------------ one connection

    /// Serves one connection until the kernel has nothing more to give or take. It ignores which event woke it, so no
    /// edge can be lost. The order is the proof: bytes are taken only when nothing is owed and no request is waiting.
    /// What runs for every request is inlined into the loop: each return behind a system call is one misprediction (see
    /// direct), and with none of them a keep-alive request takes 0.95 of its CPU [0.93, 0.96], and a short connection,
    /// with finish inlined behind it, 0.95 [0.94, 0.99]. Inlining settle, Protocol::answer and Protocol::bytes too: 0.99 to 1.
    [[gnu::always_inline]] Step drive(Conn& c) {
        load(c);
        for (int turn = 0; turn < turns_max; ++turn) {
            if (const Step s = flush(c); s != Step::progress) return s;  // 1. pay what is owed
            if (answer(c)) {                                             // 2. answer every whole request that is here
                if (group_.settings().delay_ms != 0) return Step::hold;
                continue;  // and pay
            }
            if (const Step s = fill(c); s != Step::progress) return s;  // 3. take bytes
        }
        return Step::again;
    }

    void load(Conn& c) noexcept {
        emptied_ = false;  // what proved the socket empty does so no longer
        progress_ = false;
        partial_ = {};
        if (c.run.lent == none) {
            input_ = {hot_.data(), 0, 0};
        } else {
            auto& lent = group_.pool_.at(c.run.lent);
            input_ = {lent.bytes(), 0, lent.held};
            partial_ = lent.partial;
        }
    }

    [[gnu::always_inline]] Step flush(Conn& c) {
        for (int sends = 0; c.run.count != 0; ++sends) {
            if (sends == sends_max) return Step::again;
            const Bytes bytes = protocol_.bytes(c.run);
            const auto fd = descriptor(c);
            // Before the end the kernel is told that more follows: it does, the FIN of shutdown or close, which then travels
            // in the answer's own segment. A short connection costs 0.70 of its CPU so [0.68, 0.72] (ab-like load, 200
            // connections, 40 pairs), and a client that reads to the end is woken once.
            const bool more = bytes.more || c.is(closing);
            const ssize_t sent = bytes.data != nullptr ? Sys::send(fd, bytes.data, bytes.size, more)
                                                       : Sys::send_file(fd, bytes.file, bytes.file_offset, bytes.size);
            counters_.add(Count::sends);
            if (sent > 0) {
                advance(c, static_cast<std::uint64_t>(sent));
                continue;
            }
            switch (sent == 0 ? EIO : errno) {  // 0: the file is shorter than it was; the answer cannot be finished
            case EAGAIN: counters_.add(Count::sends_blocked); return Step::wait;
            case EINTR: continue;
            case EBADF:
            case EFAULT:
            case EINVAL:
            case ENOTSOCK:
            case EMSGSIZE:
            case EDESTADDRREQ: abort_on_bug("send");
            default: counters_.add(Count::peer_reset); return Step::end;  // EPIPE, ECONNRESET, ENOBUFS, ENOMEM, ...
            }
        }
        if (!c.is(closing) || c.is(lingering)) return Step::progress;
        return leave(c);
    }

    [[gnu::always_inline]] void advance(Conn& c, std::uint64_t sent) {
        progress_ = true;
        counters_.add(Count::sent_bytes, sent);
        const std::uint64_t size = protocol_.size(*c.run.response);
        c.run.offset += sent;
        if (c.run.offset < size) return;
        if (c.run.offset == size * c.run.count) {  // nearly always, and it spares the division
            c.run.count = 0;
            c.run.offset = 0;
            if (c.is(holding)) let_go(c);
            return;
        }
        c.run.count = static_cast<std::uint16_t>(c.run.count - c.run.offset / size);
        c.run.offset %= size;
    }

    /// Everything is paid and the connection is to end. A close with unread input, or input that still comes, would send
    /// RST, which can destroy the answer before the client has read it; so the end comes in stages. The exception is the
    /// short connection, whose one whole request came in one piece and asked for the end: there the two calls and the
    /// registration that stages take would double its cost.
    Step leave(Conn& c) {
        if (!c.is(staged) && !c.is(adopted) && emptied_) return Step::end;
        if (Sys::shutdown_write(descriptor(c)) != 0) return Step::end;  // ENOTCONN: the peer has reset it
        c.set(lingering);
        input_.begin = input_.end;
        return Step::progress;
    }

    /// Turns whole requests into one run of equal responses; true if something is owed now.
    [[gnu::always_inline]] bool answer(Conn& c) {
        if (c.is(closing)) return false;
        while (!input_.empty() && c.run.count < run_count_max) {
            const typename P::State before = c.state;
            const bool inside = protocol_.inside(before);
            const Reply<Response> reply = protocol_.answer(c.state, input_.rest(), partial_);
            if (reply.response == nullptr) {
                input_.begin += reply.consumed;
                if (inside && reply.consumed != 0) progress_ = true;
                if (reply.then == Then::wait) break;
                continue;
            }
            if (c.run.count != 0 && reply.response != c.run.response) {  // another answer: pay this run first
                c.state = before;
                break;
            }
            input_.begin += reply.consumed;
            c.run.response = reply.response;
            ++c.run.count;
            if (reply.then == Then::close || reply.then == Then::refuse) {
                c.set(closing);
                if (reply.then == Then::refuse) c.set(staged);
                break;
            }
        }
        if (c.run.count == 0) return false;
        counters_.add(Count::answered, c.run.count);
        protocol_.answered(*c.run.response, c.run.count);
        c.set(served);
        progress_ = true;
        return true;
    }

    [[gnu::always_inline]] Step fill(Conn& c) {
        if (emptied_ && !c.is(peer_ended)) return Step::wait;
        make_room();
        const std::size_t room = group_.settings().input_bytes - input_.end;
        const ssize_t got = Sys::recv(descriptor(c), input_.data + input_.end, room);
        counters_.add(Count::receives);
        if (got > 0) {
            counters_.add(Count::received_bytes, static_cast<std::uint64_t>(got));
            emptied_ = static_cast<std::size_t>(got) < room;  // epoll(7): a short read has emptied a stream socket
            if (!c.is(lingering)) input_.end += static_cast<std::size_t>(got);
            return Step::progress;
        }
        if (got == 0) {
            counters_.add(Count::peer_finished);
            return Step::end;
        }
        switch (errno) {
        case EAGAIN: counters_.add(Count::receives_empty); return Step::wait;
        case EINTR: return Step::progress;
        case EBADF:
        case EFAULT:
        case EINVAL:
        case ENOTSOCK: abort_on_bug("recv");
        default: counters_.add(Count::peer_reset); return Step::end;  // ECONNRESET, ETIMEDOUT, ENOMEM, ...
        }
    }

    /// Moves what is left to the front. A protocol leaves less than a whole buffer, so there is room behind it.
    void make_room() noexcept {
        if (input_.begin != 0 && !input_.empty()) std::memmove(input_.data, input_.data + input_.begin, input_.end - input_.begin);
        input_.end -= input_.begin;
        input_.begin = 0;
        if (input_.end == group_.settings().input_bytes) abort_on_bug("Protocol::answer leaves a full buffer");
    }

    // ------------------------------------------------------------------------------- what becomes of it after its turn

    /// Ends the connection or settles it.
    [[gnu::always_inline]] void conclude(Conn& c, Step step) {
        if (step == Step::end) return finish(c);
        settle(c, step);
    }

    /// A turn for a connection that no event has woken.
    [[gnu::noinline]] void take_turn(Conn& c) { conclude(c, drive(c)); }

    void settle(Conn& c, Step step) {
        if (!keep_input(c)) {
            counters_.add(Count::buffer_exhausted);
            return finish(c);
        }
        if (c.run.count != 0 && !c.is(holding)) {
            c.set(holding);
            protocol_.hold(*c.run.response);
        }
        if (!c.is(adopted)) {
            c.since_ms = now_ms_;
            // A connection that is at rest may live anywhere; one in the middle of something stays with us.
            const bool at_rest = step == Step::wait && c.run.count == 0 && c.run.lent == none && sent_to_new_ <= handover_bytes_max;
            if (!place(c, at_rest && group_.settings().balance && !draining_ ? least_loaded() : index_)) return;
        }
        wait_for(c, step == Step::hold ? Waiting::delay : step == Step::again ? Waiting::turn : next_wait(c));
    }

    /// Keeps what is left of the input until the next turn; false if no buffer can be lent.
    bool keep_input(Conn& c) {
        if (input_.empty()) {
            if (c.run.lent != none) group_.pool_.take_back(std::exchange(c.run.lent, none));
            return true;
        }
        const std::string_view rest = input_.rest();
        if (c.run.lent == none) {
            c.run.lent = group_.pool_.lend();
            if (c.run.lent == none) return false;
        }
        auto& lent = group_.pool_.at(c.run.lent);
        if (rest.data() != lent.bytes()) std::memmove(lent.bytes(), rest.data(), rest.size());
        lent.held = static_cast<std::uint32_t>(rest.size());
        lent.partial = partial_;
        return true;
    }

    [[nodiscard]] Waiting next_wait(const Conn& c) const {
        if (c.run.count != 0) return Waiting::write;
        if (c.is(lingering)) return Waiting::linger;
        if (protocol_.inside(c.state)) return Waiting::body;
        return c.run.lent != none || !c.is(served) ? Waiting::head : Waiting::idle;
    }

    /// Links `c` under what it waits for. A wait that goes on keeps its beginning unless there was progress; then it is
    /// linked anew at most 16 times per timeout, for relinking at every request would touch three more cache lines.
    void wait_for(Conn& c, Waiting kind) {
        if (kind == Waiting::turn || c.waiting == Waiting::turn) return wait_turn(c, kind);
        if (c.waiting == kind) {
            const std::uint32_t young_ms = kind == Waiting::head ? 0 : list(kind).timeout_ms / (slack + 1);
            if (!progress_ || now_ms_ - c.since_ms <= young_ms) return;
        }
        unlink(c);
        link(c, kind, now_ms_);
    }

    /// The same from one turn to the next. A peer that sends so fast that it spends its budget again and again (empty lines
    /// before a head, anything behind the end) gains no time by it: the wait goes on, and ends when it is due.
    void wait_turn(Conn& c, Waiting kind) {
        const Waiting really = next_wait(c);
        const bool goes_on = !progress_ && (c.waiting == Waiting::turn || c.waiting == really);
        const std::uint32_t since_ms = goes_on ? c.since_ms : now_ms_;
        const std::uint32_t timeout_ms = list(really).timeout_ms;
        if (kind == Waiting::turn && timeout_ms != 0 && due(since_ms + timeout_ms)) kind = really;
        unlink(c);
        link(c, kind, since_ms);
    }

    /// A wait that is linked anew only after T/16 lasts T + T/16 at most and, so that nobody is cut early, T at least.
    static constexpr std::uint32_t slack = 16;
    static std::uint32_t with_slack(std::uint32_t timeout_ms) noexcept { return timeout_ms + timeout_ms / slack; }

    [[gnu::always_inline]] void finish(Conn& c) {
        unlink(c);
        if (c.run.lent != none) group_.pool_.take_back(c.run.lent);
        if (c.is(holding)) let_go(c);
        if (c.is(adopted)) unload();
        release(c);
    }

    /// The slot is free before the descriptor is: another thread may be given that number at once.
    [[gnu::always_inline]] void release(Conn& c) {
        const int fd = descriptor(c);
        counters_.add(Count::closed);
        c.generation.store(static_cast<std::uint16_t>(c.generation.load(std::memory_order_relaxed) + 1), std::memory_order_release);
        // close(2): whatever it says the descriptor is gone, so it is never repeated; EBADF would be a double close.
        if (Sys::close(fd) != 0 && errno == EBADF) abort_on_bug("close");
        freed_ = true;
    }

    void let_go(Conn& c) {
        c.clear(holding);
        protocol_.release(*c.run.response);
    }

    // -------------------------------------------------------------------------------------------------- new connections

    [[gnu::always_inline]] void accept_some(std::size_t door) {
        for (int i = 0; i < accepts_max; ++i) {
            // Asked anew each time, for the other reactors accept too: no more than one each can be too many.
            if (group_.held() >= group_.settings().connections_max) return rest(door);
            const int fd = Sys::accept(doors_[door].listener.fd);
            if (fd >= 0) {
                welcome(static_cast<std::uint32_t>(fd));
                continue;
            }
            switch (errno) {
            case EAGAIN: return;
            case EMFILE:
            case ENFILE:
            case ENOBUFS:
            case ENOMEM: return rest(door);
            case EBADF:
            case EFAULT:
            case EINVAL:
            case ENOTSOCK: abort_on_bug("accept4");
            default: counters_.add(Count::accept_error);  // EINTR, ECONNABORTED, EPERM and the network errors of accept(2)
            }
        }
    }

    /// Serves a new connection at once, before it is registered anywhere: with TCP_DEFER_ACCEPT its request is already
    /// here, and if it closes with the answer it never enters epoll (accept4, recv, send, close and no other call).
    [[gnu::always_inline]] void welcome(std::uint32_t fd) {
        counters_.add(Count::accepted);
        if (fd >= group_.settings().descriptors_max) {  // above RLIMIT_NOFILE as it was at start-up
            counters_.add(Count::accept_exhausted);
            Sys::close(static_cast<int>(fd));
            return;
        }
        Conn& c = group_.at(fd);
        const std::uint16_t generation = c.generation.load(std::memory_order_acquire);
        c.generation.store(static_cast<std::uint16_t>(generation + 1), std::memory_order_relaxed);
        c.waiting = Waiting::nothing;
        c.flags = 0;
        c.run = {};
        c.state = {};
        const std::uint64_t sent = counters_.get(Count::sent_bytes);
        const Step step = drive(c);
        sent_to_new_ = counters_.get(Count::sent_bytes) - sent;
        conclude(c, step);
    }

    /// Registers `c` with the reactor in `seat`, once and for all kinds of events: no further epoll_ctl per request. A
    /// registration reports what is ready already, EPOLLOUT at least, and that is how a new owner learns of it. False
    /// if `c` is not ours any more.
    bool place(Conn& c, unsigned seat) {
        auto& target = group_.seats_[seat];
        target.held.fetch_add(1, std::memory_order_relaxed);
        load_changed_ = true;
        const bool ours = seat == index_;
        if (ours) c.set(adopted);
        const auto fd = static_cast<std::uint32_t>(descriptor(c));
        const std::uint64_t generation = c.generation.load(std::memory_order_relaxed);
        epoll_event event{EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, {.u64 = generation << 32 | fd}};
        if (Sys::epoll_ctl(target.epoll, EPOLL_CTL_ADD, static_cast<int>(fd), &event) == 0) {
            if (!ours) counters_.add(Count::handed_over);  // and not a byte of `c` may be touched from here on
            return ours;
        }
        switch (errno) {
        case ENOMEM:
        case ENOSPC: break;
        default: abort_on_bug("epoll_ctl");
        }
        counters_.add(Count::register_failed);
        if (!ours) target.held.fetch_sub(1, std::memory_order_relaxed);
        finish(c);
        return false;
    }

    /// Stops listening until something closes or `rearm_ms` have passed: a level-triggered listener would spin on EMFILE.
    void rest(std::size_t door) {
        counters_.add(Count::accept_exhausted);
        Door& d = doors_[door];
        epoll_event event{};
        if (Sys::epoll_ctl(seat_.epoll, EPOLL_CTL_DEL, d.listener.fd, &event) != 0) abort_on_bug("epoll_ctl");
        d.armed = false;
        d.rest_until_ms = now_ms_ + rearm_ms;
    }

    /// The listener is level-triggered: an edge would be lost for good when accept4 fails for want of descriptors.
    bool arm(std::size_t door) {
        Door& d = doors_[door];
        // EPOLLEXCLUSIVE: of the threads that wait on a shared listener, one is woken.
        const std::uint32_t events = EPOLLIN | (d.listener.shared ? static_cast<std::uint32_t>(EPOLLEXCLUSIVE) : 0U);
        epoll_event event{events, {.u64 = token_listener | door}};
        d.armed = Sys::epoll_ctl(seat_.epoll, EPOLL_CTL_ADD, d.listener.fd, &event) == 0;
        d.rest_until_ms = now_ms_ + rearm_ms;
        return d.armed;
    }

    void rearm() {
        if (draining_) return;
        for (std::size_t door = 0; door < doors_.size(); ++door) {
            if (doors_[door].armed || (!freed_ && !due(doors_[door].rest_until_ms))) continue;
            arm(door);  // ENOMEM, ENOSPC: it rests once more
        }
        freed_ = false;
    }

    // -------------------------------------------------------------------------------------------------- one turn of the loop

    [[gnu::always_inline]] void dispatch(const epoll_event& event) {
        const std::uint64_t token = event.data.u64;
        if ((token & token_listener) != 0) return accept_some(static_cast<std::size_t>(token & ~token_listener));
        if (token == token_wake) return Sys::event_clear(seat_.wake);
        Conn& c = group_.at(static_cast<std::uint32_t>(token));
        // A connection ends only in its own event or between batches, so no event in a batch can be stale.
        if (c.generation.load(std::memory_order_acquire) != static_cast<std::uint16_t>(token >> 32)) abort_on_bug("stale event");
        if ((event.events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) c.set(peer_ended);
        if (!c.is(adopted)) adopt(c);
        if (c.waiting == Waiting::turn || c.waiting == Waiting::delay) return;  // it will be driven, or is held
        if (event.events == EPOLLOUT && c.run.count == 0) return;  // how a registration announces itself; nothing to do
        conclude(c, drive(c));
    }

    /// Takes over a connection that another reactor accepted for us.
    void adopt(Conn& c) {
        c.set(adopted);
        link(c, next_wait(c), c.since_ms);
        load_changed_ = true;
    }

    /// Goes on with connections whose budget was spent before this turn.
    void resume(std::uint32_t turns) {
        for (; turns != 0 && list(Waiting::turn).first != none; --turns) {
            Conn& c = group_.at(list(Waiting::turn).first);
            take_turn(c);
        }
    }

    void expire() {
        while (Conn* c = overdue(Waiting::head)) give_up(*c, Count::timeout_head);
        while (Conn* c = overdue(Waiting::body)) give_up(*c, Count::timeout_body);
        while (Conn* c = overdue(Waiting::idle)) cut(*c, Count::timeout_idle);
        while (Conn* c = overdue(Waiting::write)) cut(*c, Count::timeout_write);
        while (Conn* c = overdue(Waiting::linger)) cut(*c, Count::timeout_linger);
        while (Conn* c = overdue(Waiting::delay)) {
            unlink(*c);
            take_turn(*c);
        }
    }

    void cut(Conn& c, Count why) {
        counters_.add(why);
        finish(c);
    }

    /// The peer was too slow with its request: say so, if the protocol has words for it, and end in stages.
    void give_up(Conn& c, Count why) {
        unlink(c);
        load(c);
        const Response* response = protocol_.timed_out(c.state, partial_, !input_.empty() || protocol_.inside(c.state));
        if (response == nullptr) return cut(c, why);
        counters_.add(why);
        counters_.add(Count::answered);
        protocol_.answered(*response, 1);
        c.run.response = response;
        c.run.count = 1;
        c.set(closing);
        c.set(staged);
        take_turn(c);
    }

    Conn* overdue(Waiting kind) {
        const List& l = list(kind);
        if (l.first == none || l.timeout_ms == 0) return nullptr;
        Conn& c = group_.at(l.first);
        return due(c.since_ms + l.timeout_ms) ? &c : nullptr;
    }

    [[nodiscard]] bool due(std::uint32_t when_ms) const noexcept { return static_cast<std::int32_t>(now_ms_ - when_ms) >= 0; }

    /// How long epoll_wait may block: until the first deadline; for ever (-1) when nothing has one.
    [[nodiscard]] int wait_ms() const {
        if (list(Waiting::turn).first != none) return 0;
        std::int64_t least = -1;
        const auto consider = [&](std::uint32_t when_ms) {
            const std::int64_t left = static_cast<std::int32_t>(when_ms - now_ms_);
            const std::int64_t wait = left > 0 ? left : 0;
            if (least < 0 || wait < least) least = wait;
        };
        for (const List& l : lists_) {
            if (l.first != none && l.timeout_ms != 0) consider(group_.at(l.first).since_ms + l.timeout_ms);
        }
        if (draining_) {
            if (seat_.held.load(std::memory_order_relaxed) == 0) consider(now_ms_ + drain_poll_ms);
            if (!due(drain_began_ms_ + drain_idle_ms)) consider(drain_began_ms_ + drain_idle_ms);
            consider(drain_began_ms_ + group_.settings().drain_timeout_ms);
        } else {
            for (const Door& d : doors_) {
                if (!d.armed) consider(d.rest_until_ms);
            }
        }
        return static_cast<int>(least);
    }

    // ------------------------------------------------------------------------------------------------- orders and balance

    void obey() {
        if (seat_.orders.load(std::memory_order_relaxed) != 0) {
            const std::uint8_t orders = seat_.orders.exchange(0, std::memory_order_acquire);
            if ((orders & Group<P, Sys>::order_drain) != 0 && !draining_) begin_drain();
            if ((orders & Group<P, Sys>::order_shed) != 0) load_changed_ = true;
        }
        if (!draining_) return;
        if (due(drain_began_ms_ + drain_idle_ms)) end_idle();
        if (due(drain_began_ms_ + group_.settings().drain_timeout_ms)) cut_all();
    }

    /// Stops accepting: the queue is emptied first, for closing a listener resets what stands in it.
    void begin_drain() {
        draining_ = true;
        drain_began_ms_ = now_ms_;
        protocol_.drain();
        list(Waiting::linger).timeout_ms = linger_drain_ms;
        for (std::size_t door = 0; door < doors_.size(); ++door) {
            while (doors_[door].armed) {
                const std::uint64_t accepted = counters_.get(Count::accepted) + counters_.get(Count::accept_error);
                accept_some(door);
                if (counters_.get(Count::accepted) + counters_.get(Count::accept_error) == accepted) break;
            }
            if (doors_[door].armed) {
                epoll_event event{};
                if (Sys::epoll_ctl(seat_.epoll, EPOLL_CTL_DEL, doors_[door].listener.fd, &event) != 0) abort_on_bug("epoll_ctl");
            }
        }
        const bool last = group_.draining_.fetch_add(1, std::memory_order_acq_rel) + 1 == group_.size();
        for (const Door& door : doors_) {
            if (!door.listener.shared || last) Sys::close(door.listener.fd);
        }
        doors_.clear();
    }

    /// Idle connections had their chance to send one more request and be told `close`.
    void end_idle() {
        end_in_stages(Waiting::idle);
        // Of those that wait for a head, the ones that never sent a byte are idle too.
        for (std::uint32_t fd = list(Waiting::head).first; fd != none;) {
            Conn& c = group_.at(fd);
            fd = c.next;
            if (c.run.lent == none) finish(c);
        }
    }

    void end_in_stages(Waiting kind) {
        while (list(kind).first != none) {
            Conn& c = group_.at(list(kind).first);
            c.set(closing);
            c.set(staged);
            take_turn(c);
        }
    }

    void cut_all() {
        for (List& l : lists_) {
            while (l.first != none) cut(group_.at(l.first), Count::drain_cut);
        }
    }

    /// Nothing is left, and no other reactor can hand us anything any more.
    [[nodiscard]] bool drained_out() const {
        if (!draining_ || group_.draining_.load(std::memory_order_acquire) != group_.size()) return false;
        return seat_.held.load(std::memory_order_relaxed) == 0 || due(drain_began_ms_ + group_.settings().drain_timeout_ms);
    }

    [[nodiscard]] unsigned least_loaded() const {
        unsigned least = index_;  // at equal load a connection stays where it is
        for (unsigned i = 0; i < group_.size(); ++i) {
            if (group_.held(i) < group_.held(least)) least = i;
        }
        return least;
    }

    [[nodiscard]] unsigned most_loaded() const {
        unsigned most = index_;
        for (unsigned i = 0; i < group_.size(); ++i) {
            if (group_.held(i) > group_.held(most)) most = i;
        }
        return most;
    }

    /// Keeps the reactors within one connection of each other, whatever was opened and closed in whatever order: whoever
    /// changed a load and sees a difference of two has the most loaded one give connections away.
    void balance() {
        if (!load_changed_ || draining_ || !group_.settings().balance || group_.size() == 1) return;
        load_changed_ = false;
        for (;;) {
            const unsigned most = most_loaded();
            const unsigned least = least_loaded();
            if (group_.held(most) <= group_.held(least) + 1) return;
            if (most != index_) return group_.give(most, Group<P, Sys>::order_shed);
            Conn* const c = movable();
            if (c == nullptr) {
                load_changed_ = true;  // all are in the middle of something: look again in the next turn
                return;
            }
            give_away(*c, least);
        }
    }

    /// Only a connection moves that owes nothing and holds nothing: an idle one or, of those that wait for a first head, one
    /// that has not sent a byte of it. Its socket must have room, for that is how its new owner learns of it: see place.
    Conn* movable() {
        int looks = 0;
        for (const Waiting kind : {Waiting::idle, Waiting::head}) {
            for (std::uint32_t fd = list(kind).first; fd != none && looks < movable_looks_max; ++looks, fd = group_.at(fd).next) {
                if (group_.at(fd).run.lent == none && Sys::writable(static_cast<int>(fd))) return &group_.at(fd);
            }
        }
        return nullptr;
    }

    void give_away(Conn& c, unsigned seat) {
        unlink(c);
        epoll_event event{};
        if (Sys::epoll_ctl(seat_.epoll, EPOLL_CTL_DEL, descriptor(c), &event) != 0) abort_on_bug("epoll_ctl");
        c.clear(adopted);
        unload();
        place(c, seat);
    }

    void unload() noexcept {
        seat_.held.fetch_sub(1, std::memory_order_relaxed);
        load_changed_ = true;
    }

    // -------------------------------------------------------------------------------------------------------------- lists

    [[nodiscard]] List& list(Waiting kind) noexcept { return lists_[static_cast<std::size_t>(kind)]; }
    [[nodiscard]] const List& list(Waiting kind) const noexcept { return lists_[static_cast<std::size_t>(kind)]; }

    /// Behind all that have waited longer: at the end, unless `c` brings an older wait with it.
    void link(Conn& c, Waiting kind, std::uint32_t since_ms) noexcept {
        List& l = list(kind);
        const auto fd = static_cast<std::uint32_t>(descriptor(c));
        std::uint32_t before = l.last;
        if (kind != Waiting::turn) {
            while (before != none && static_cast<std::int32_t>(group_.at(before).since_ms - since_ms) > 0)
                before = group_.at(before).prev;
        }
        c.waiting = kind;
        c.since_ms = since_ms;
        c.prev = before;
        c.next = before == none ? l.first : group_.at(before).next;
        (before == none ? l.first : group_.at(before).next) = fd;
        (c.next == none ? l.last : group_.at(c.next).prev) = fd;
        ++l.length;
    }

    void unlink(Conn& c) noexcept {
        if (c.waiting == Waiting::nothing) return;
        List& l = list(c.waiting);
        (c.prev == none ? l.first : group_.at(c.prev).next) = c.next;
        (c.next == none ? l.last : group_.at(c.next).prev) = c.prev;
        c.waiting = Waiting::nothing;
        --l.length;
    }

    [[nodiscard]] int descriptor(const Conn& c) const noexcept { return static_cast<int>(&c - &group_.at(0)); }

    // --------------------------------------------------------------------------------------------------------------- state

    Group<P, Sys>& group_;
    typename Group<P, Sys>::Seat& seat_;
    const unsigned index_;
    P& protocol_;
    Mapping hot_;

    // The connection that is being driven: valid from load to settle.
    Input input_;
    typename P::Partial partial_{};
    bool emptied_ = false;           ///< the last read left the socket empty
    bool progress_ = false;          ///< something was answered, sent, or taken as content
    std::uint64_t sent_to_new_ = 0;  ///< bytes sent to a connection before it was registered anywhere

    std::uint32_t now_ms_;
    bool freed_ = false;         ///< a connection was closed in this turn
    bool load_changed_ = false;  ///< the loads of the group must be compared
    bool draining_ = false;
    std::uint32_t drain_began_ms_ = 0;
    std::array<List, waitings> lists_{};
    std::vector<Door> doors_;
    std::array<epoll_event, static_cast<std::size_t>(events_max)> events_{};
    Counters counters_;
};

}  // namespace reactor

#endif  // CEILING_REACTOR_HPP
