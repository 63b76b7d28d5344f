// A simulated kernel for the reactor: sockets, edge-triggered epoll, eventfd and two clocks, in one thread and from one seed.
//
// Each reactor runs on a fiber. Whenever it makes a system call, the scheduler may let somebody else go on first, and when it
// would block in epoll_wait it gives the processor away; so several reactors, their clients and the clock interleave in every
// order that real threads could, and the same seed gives the same order again.
//
//     fiber 0: Reactor --SimSys::recv--> Kernel ----yield---> scheduler ---> a client, another reactor, the clock
//
// What is modelled is what Linux promises (epoll(7), tcp(7)) and no more: a registration reports what is ready already; an edge
// comes with every arrival, with FIN, with RST and with shutdown; EPOLLOUT comes only after a send that found the socket full; a
// short read has emptied the socket; a descriptor is the lowest free number; close ends every registration; and a socket closed
// with unread input, or sent to after it, resets its peer and destroys what the peer has not read.
//
// A rule that is broken is noted with `violate`; the first one stands, and the seed that led to it replays it.

#ifndef CEILING_TESTS_SIMULATION_KERNEL_HPP
#define CEILING_TESTS_SIMULATION_KERNEL_HPP

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <sys/epoll.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#define CEILING_FIBER_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define CEILING_FIBER_ASAN 1
#endif
#endif
#ifdef CEILING_FIBER_ASAN
#include <sanitizer/common_interface_defs.h>
#endif

namespace sim {

// ------------------------------------------------------------------------------------------------------------- chance

/// splitmix64: small, fast, and the same on every machine.
class Random {
public:
    explicit Random(std::uint64_t seed) noexcept : state_(seed) {}
    std::uint64_t next() noexcept {
        std::uint64_t z = state_ += 0x9e3779b97f4a7c15U;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
        return z ^ (z >> 31);
    }
    /// 0 .. count-1.
    std::uint64_t below(std::uint64_t count) noexcept { return count == 0 ? 0 : next() % count; }
    std::uint64_t between(std::uint64_t least, std::uint64_t most) noexcept { return least + below(most - least + 1); }
    /// True so many times in 65,536.
    bool chance(std::uint32_t rate) noexcept { return rate != 0 && (next() & 0xffffU) < rate; }
    template <class T, std::size_t N>
    const T& one_of(const T (&values)[N]) noexcept {
        return values[below(N)];
    }

private:
    std::uint64_t state_;
};

// ------------------------------------------------------------------------------------------------------------- fibers

/// A stack of its own for one reactor. Fibers are never unwound: what runs on them holds nothing while it is switched away.
class Fiber {
public:
    static constexpr std::size_t stack_bytes = 512 * 1024;

    Fiber() {
        void* memory = ::mmap(nullptr, stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED) std::abort();
        stack_ = static_cast<char*>(memory);
    }
    Fiber(const Fiber&) = delete;
    Fiber& operator=(const Fiber&) = delete;
    ~Fiber() { ::munmap(stack_, stack_bytes); }

    void start(std::function<void()> body) {
        body_ = std::move(body);
        ::getcontext(&context_);
        context_.uc_stack.ss_sp = stack_;
        context_.uc_stack.ss_size = stack_bytes;
        context_.uc_link = nullptr;
        ::makecontext(&context_, &Fiber::enter, 0);
        over = false;
    }
    /// From the scheduler: goes on with the fiber until it yields or ends.
    void resume() {
        current_ = this;
        switch_to(context_, scheduler_, stack_, stack_bytes, &scheduler_fake_);
        current_ = nullptr;
    }
    /// From the fiber: back to the scheduler.
    static void yield() {
        const int error = errno;  // every thread has its own
        Fiber* const self = current_;
        self->switch_to(scheduler_, self->context_, scheduler_stack_, scheduler_stack_bytes_, &self->fake_);
        errno = error;
    }
    static bool inside() noexcept { return current_ != nullptr; }

    bool over = true;

private:
    static void enter() {
#ifdef CEILING_FIBER_ASAN
        __sanitizer_finish_switch_fiber(nullptr, &scheduler_stack_, &scheduler_stack_bytes_);
#endif
        current_->body_();
        current_->over = true;
        for (;;) yield();
    }
    void switch_to(ucontext_t& to, ucontext_t& from, [[maybe_unused]] const void* stack, [[maybe_unused]] std::size_t bytes,
                   [[maybe_unused]] void** fake) {
#ifdef CEILING_FIBER_ASAN
        __sanitizer_start_switch_fiber(fake, stack, bytes);
#endif
        ::swapcontext(&from, &to);
#ifdef CEILING_FIBER_ASAN
        const void* old = nullptr;
        std::size_t old_bytes = 0;
        __sanitizer_finish_switch_fiber(*fake, &old, &old_bytes);
        if (fake != &scheduler_fake_) {  // we are on a fiber again, and came from the scheduler
            scheduler_stack_ = old;
            scheduler_stack_bytes_ = old_bytes;
        }
#endif
    }

    char* stack_ = nullptr;
    void* fake_ = nullptr;
    ucontext_t context_{};
    std::function<void()> body_;

    inline static Fiber* current_ = nullptr;
    inline static ucontext_t scheduler_{};
    inline static void* scheduler_fake_ = nullptr;
    inline static const void* scheduler_stack_ = nullptr;
    inline static std::size_t scheduler_stack_bytes_ = 0;
};

// ------------------------------------------------------------------------------------------------------------- faults

/// What the kernel may do to the reactor, each as often as the seed says.
enum class Fault : std::uint8_t {
    recv_interrupted,
    recv_fatal,
    send_interrupted,
    send_short,
    send_busy,
    send_fatal,
    accept_interrupted,
    accept_dead,
    accept_exhausted,
    register_refused,
    close_interrupted,
    wait_interrupted,
    wait_few,
    count_
};
inline constexpr std::size_t faults = static_cast<std::size_t>(Fault::count_);
inline constexpr const char* fault_names[faults] = {
    "recv EINTR",       "recv fails",        "send EINTR",   "send short",
    "send EAGAIN",      "send fails",        "accept EINTR", "accept dead connection",
    "accept exhausted", "epoll_ctl refused", "close EINTR",  "epoll_wait EINTR",
    "epoll_wait few"};

/// Lies that no kernel tells and mistakes that a reactor could make: planted one at a time to see whether they are found.
enum class Plant : std::uint8_t {
    none,
    blind_to_rdhup,
    lost_event,
    lost_arrival,
    sent_more_than_said,
    sent_less_than_said,
    close_forgotten,
    shutdown_forgotten,
    late_clock,
    late_timeout,
    early_clock,
    answered_twice,
    answer_swapped,
    stale_date,
    hold_forgotten,
    release_forgotten,
    drain_ignored,
    spin,
    end_after_close_ignored,
    accept_leaks,
    count_
};
inline constexpr const char* plant_names[static_cast<std::size_t>(Plant::count_)] = {"none",
                                                                                     "blind_to_rdhup",
                                                                                     "lost_event",
                                                                                     "lost_arrival",
                                                                                     "sent_more_than_said",
                                                                                     "sent_less_than_said",
                                                                                     "close_forgotten",
                                                                                     "shutdown_forgotten",
                                                                                     "late_clock",
                                                                                     "late_timeout",
                                                                                     "early_clock",
                                                                                     "answered_twice",
                                                                                     "answer_swapped",
                                                                                     "stale_date",
                                                                                     "hold_forgotten",
                                                                                     "release_forgotten",
                                                                                     "drain_ignored",
                                                                                     "spin",
                                                                                     "end_after_close_ignored",
                                                                                     "accept_leaks"};

// ------------------------------------------------------------------------------------------------------------- sockets

class Kernel;

/// What watches over a connection: told everything the server does to it, on the server's side of the wire.
class Watcher {
public:
    virtual ~Watcher() = default;
    virtual void on_accept() = 0;
    virtual void on_taken(std::string_view bytes) = 0;
    virtual void on_sent(std::string_view bytes) = 0;
    virtual void on_shutdown() = 0;
    virtual void on_close() = 0;
};

/// A connection as the kernel of the server sees it, and both directions of its wire.
struct Stream {
    int fd = -1;  ///< the server's descriptor; -1 before accept and after close
    Watcher* watcher = nullptr;
    std::string to_server;  ///< arrived and not read by the server
    std::size_t to_server_begin = 0;
    std::string to_client;  ///< sent by the server and not read by the client
    std::size_t to_client_begin = 0;
    std::size_t receive_max = 65536;
    std::size_t send_max = 65536;
    bool client_finished = false;  ///< FIN from the client
    bool server_finished = false;  ///< FIN from the server
    bool client_gone = false;      ///< the client closed: what is sent to it comes back as RST
    bool reset = false;            ///< RST from the client: no more of anything
    bool client_reset = false;     ///< RST from the server
    bool wants_room = false;       ///< SOCK_NOSPACE: a send found the socket full, or a poll did
    bool spoiled = false;          ///< the kernel failed it: the server may end it as it likes
    int error = 0;                 ///< SO_ERROR

    [[nodiscard]] std::size_t unread_by_server() const noexcept { return to_server.size() - to_server_begin; }
    [[nodiscard]] std::size_t unread_by_client() const noexcept { return to_client.size() - to_client_begin; }
    [[nodiscard]] std::size_t room() const noexcept { return send_max > unread_by_client() ? send_max - unread_by_client() : 0; }
    /// tcp(7), sk_stream_is_writeable: at least a third of the buffer is free.
    [[nodiscard]] bool writable() const noexcept { return room() != 0 && room() >= unread_by_client() / 2; }
};

struct Item {
    std::uint32_t events;
    std::uint64_t data;
    bool ready;
};

/// An open file of the server process.
struct File {
    enum class Kind : std::uint8_t { none, listener, stream, epoll, event };
    Kind kind = Kind::none;
    std::vector<int> watchers;                  // epoll instances it is registered in
    std::deque<std::shared_ptr<Stream>> queue;  // listener: established and not accepted
    std::shared_ptr<Stream> stream;
    std::map<int, Item> items;  // epoll: by descriptor
    std::deque<int> ready;      // epoll: descriptors whose item is marked ready
    int waiter = -1;            // epoll: the task that blocks in it
    std::uint64_t count = 0;    // event
};

/// One reactor's thread.
struct Task {
    Fiber* fiber = nullptr;
    bool blocked = false;
    bool interrupted = false;
    int epoll = -1;
    std::uint64_t until_ms = 0;    // while blocked; UINT64_MAX: for ever
    std::uint64_t idle_waits = 0;  // epoll_waits since anything changed
    std::uint64_t seen_changes = 0;
    std::int64_t ticked = 0;  // what now_seconds said last
};

// -------------------------------------------------------------------------------------------------------------- kernel

class Kernel {
public:
    explicit Kernel(std::uint64_t seed) : random(seed), files_(3) {}

    // ---- rules

    [[gnu::format(printf, 2, 3)]] void violate(const char* text, ...) {
        if (violation.empty()) {
            std::array<char, 1024> line{};
            va_list arguments;
            va_start(arguments, text);
            std::vsnprintf(line.data(), line.size(), text, arguments);
            va_end(arguments);
            violation = line.data();
            note("violation: %s", line.data());
        }
        if (Fiber::inside()) {
            for (;;) Fiber::yield();
        }
    }
    [[gnu::format(printf, 2, 3)]] void note(const char* text, ...) {
        if (!tracing) return;
        std::array<char, 1024> line{};
        const int begin =
            std::snprintf(line.data(), line.size(), "%10llu ms task %d  ", static_cast<unsigned long long>(clock_ms), running);
        va_list arguments;
        va_start(arguments, text);
        std::vsnprintf(line.data() + begin, line.size() - static_cast<std::size_t>(begin), text, arguments);
        va_end(arguments);
        trace.emplace_back(line.data());
        if (trace.size() > trace_lines_max) trace.pop_front();
    }

    // ---- chance and time

    bool fault(Fault which) {
        if (!random.chance(rates[static_cast<std::size_t>(which)])) return false;
        ++injected[static_cast<std::size_t>(which)];
        return true;
    }
    void changed() noexcept { ++changes; }
    [[nodiscard]] std::int64_t wall() const noexcept { return wall_base + static_cast<std::int64_t>(clock_ms / 1000); }
    [[nodiscard]] std::uint32_t stamp_ms() const noexcept { return static_cast<std::uint32_t>(clock_ms + stamp_base); }

    /// Somebody else may go on between two system calls.
    void breathe() {
        ++calls;
        if (Fiber::inside() && random.chance(preempt_rate)) Fiber::yield();
    }

    // ---- descriptors

    int open(File::Kind kind) {
        std::size_t fd = 3;
        while (fd < files_.size() && files_[fd].kind != File::Kind::none) ++fd;
        if (fd >= descriptors_max) {
            errno = EMFILE;
            return -1;
        }
        if (fd == files_.size()) files_.emplace_back();
        files_[fd] = File{};
        files_[fd].kind = kind;
        changed();
        return static_cast<int>(fd);
    }
    [[nodiscard]] bool is(int fd, File::Kind kind) const {
        return fd >= 0 && static_cast<std::size_t>(fd) < files_.size() && files_[static_cast<std::size_t>(fd)].kind == kind;
    }
    File& at(int fd) { return files_[static_cast<std::size_t>(fd)]; }
    /// A descriptor the server must have; anything else is a mistake of the server's.
    File* need(const char* call, int fd, File::Kind kind) {
        if (is(fd, kind)) return &at(fd);
        violate("%s on descriptor %d, which is no such file", call, fd);
        return nullptr;
    }
    [[nodiscard]] std::size_t open_files(File::Kind kind) const {
        return static_cast<std::size_t>(std::count_if(files_.begin(), files_.end(), [&](const File& f) { return f.kind == kind; }));
    }

    void close(int fd) {
        if (fd < 0 || static_cast<std::size_t>(fd) >= files_.size() || at(fd).kind == File::Kind::none) {
            return violate("close of descriptor %d, which is not open", fd);
        }
        File& file = at(fd);
        for (const int epoll : std::vector<int>(file.watchers)) forget(epoll, fd);
        if (file.kind == File::Kind::epoll) {
            for (const auto& [watched, item] : file.items) std::erase(at(watched).watchers, fd);
        }
        if (file.kind == File::Kind::stream) close_stream(*file.stream);
        if (file.kind == File::Kind::listener) {
            for (const auto& stream : file.queue) refuse(*stream);
        }
        file = File{};
        changed();
    }

    /// The server's end is gone: what is unread there resets the client, else FIN follows what was sent.
    void close_stream(Stream& s) {
        if (s.watcher != nullptr) s.watcher->on_close();
        if (s.unread_by_server() != 0 && !s.reset) refuse(s);
        s.server_finished = true;
        s.fd = -1;
    }
    /// RST to the client.
    void refuse(Stream& s) {
        s.client_reset = true;
        s.to_client.clear();
        s.to_client_begin = 0;
        changed();
    }

    // ---- epoll

    std::uint32_t poll(int fd) {
        File& file = at(fd);
        switch (file.kind) {
        case File::Kind::listener: return file.queue.empty() ? 0U : EPOLLIN;
        case File::Kind::event: return file.count == 0 ? 0U : EPOLLIN;
        case File::Kind::stream: {
            Stream& s = *file.stream;
            std::uint32_t mask = 0;
            if (s.reset || (s.client_finished && s.server_finished)) mask |= EPOLLHUP;
            if (s.reset || s.client_finished) mask |= EPOLLIN | EPOLLRDHUP;
            if (s.unread_by_server() != 0) mask |= EPOLLIN;
            if (s.reset || s.server_finished || s.writable())
                mask |= EPOLLOUT;
            else
                s.wants_room = true;
            if (s.error != 0) mask |= EPOLLERR;
            return mask;
        }
        default: return 0;
        }
    }

    /// Something happened to `fd`: marks it ready wherever it is watched for that (key 0: for anything).
    void wake(int fd, std::uint32_t key) {
        if (fd < 0) return;
        std::vector<int>& watchers = at(fd).watchers;
        if (watchers.size() > 1) std::rotate(watchers.begin(), watchers.begin() + 1, watchers.end());
        for (const int epoll : watchers) {
            File& e = at(epoll);
            Item& item = e.items.at(fd);
            if (key != 0 && (key & (item.events | EPOLLERR | EPOLLHUP)) == 0) continue;
            if (!item.ready) {
                item.ready = true;
                e.ready.push_back(fd);
            }
            // EPOLLEXCLUSIVE: one that waits is enough.
            if ((item.events & EPOLLEXCLUSIVE) != 0 && e.waiter >= 0) return;
        }
    }

    int control(int epoll, int operation, int fd, const epoll_event* event) {
        File* e = need("epoll_ctl", epoll, File::Kind::epoll);
        if (e == nullptr) return -1;
        if (static_cast<std::size_t>(fd) >= files_.size() || at(fd).kind == File::Kind::none) {
            violate("epoll_ctl of descriptor %d, which is not open", fd);
            return -1;
        }
        changed();
        if (operation == EPOLL_CTL_DEL) {
            if (!e->items.contains(fd)) {
                violate("epoll_ctl removes descriptor %d, which is not registered", fd);
                return -1;
            }
            forget(epoll, fd);
            return 0;
        }
        if (operation != EPOLL_CTL_ADD || e->items.contains(fd)) {
            violate("epoll_ctl adds descriptor %d twice", fd);
            return -1;
        }
        if (fault(Fault::register_refused)) {
            if (at(fd).stream) at(fd).stream->spoiled = true;
            errno = random.below(2) == 0 ? ENOMEM : ENOSPC;
            return -1;
        }
        e->items[fd] = {event->events, event->data.u64, false};
        at(fd).watchers.push_back(epoll);
        if ((poll(fd) & (event->events | EPOLLERR | EPOLLHUP)) != 0) {
            e->items[fd].ready = true;
            e->ready.push_back(fd);
        }
        return 0;
    }

    void forget(int epoll, int fd) {
        File& e = at(epoll);
        e.items.erase(fd);
        std::erase(e.ready, fd);
        std::erase(at(fd).watchers, epoll);
    }

    int harvest(int epoll, epoll_event* events, int count) {
        File& e = at(epoll);
        if (count > 1 && fault(Fault::wait_few)) count = static_cast<int>(random.between(1, 3));
        int found = 0;
        for (std::size_t left = e.ready.size(); left != 0 && found < count; --left) {
            const int fd = e.ready.front();
            e.ready.pop_front();
            Item& item = e.items.at(fd);
            item.ready = false;
            const std::uint32_t mask = poll(fd) & (item.events | EPOLLERR | EPOLLHUP);
            if (mask == 0) continue;
            events[found].events = mask;
            events[found].data.u64 = item.data;
            ++found;
            if ((item.events & EPOLLET) == 0) {
                item.ready = true;
                e.ready.push_back(fd);
            }
        }
        return found;
    }

    [[nodiscard]] bool has_ready(int epoll) {
        File& e = at(epoll);
        return std::any_of(e.ready.begin(), e.ready.end(),
                           [&](int fd) { return (poll(fd) & (e.items.at(fd).events | EPOLLERR | EPOLLHUP)) != 0; });
    }

    // ---- the client's side of the wire

    void arrive(Stream& s, std::string_view bytes) {
        if (s.fd < 0 && s.server_finished) return refuse(s);  // closed by the server
        if (s.to_server_begin != 0) {
            s.to_server.erase(0, s.to_server_begin);
            s.to_server_begin = 0;
        }
        s.to_server += bytes;
        changed();
        if (plant == Plant::lost_arrival && random.chance(600)) return;
        wake(s.fd, EPOLLIN);
    }
    void finish(Stream& s) {
        s.client_finished = true;
        changed();
        wake(s.fd, 0);
    }
    void reset(Stream& s) {
        if (s.reset) return;
        s.reset = true;
        s.error = s.client_finished ? EPIPE : ECONNRESET;
        s.to_client.clear();
        s.to_client_begin = 0;
        changed();
        wake(s.fd, 0);
    }
    /// The client reads: room is made for the server, which is told only if it found none.
    std::size_t take(Stream& s, std::size_t count) {
        count = std::min(count, s.unread_by_client());
        s.to_client_begin += count;
        if (s.to_client_begin == s.to_client.size() || s.to_client_begin > 65536) {
            s.to_client.erase(0, s.to_client_begin);
            s.to_client_begin = 0;
        }
        changed();
        make_room(s);
        return count;
    }
    void make_room(Stream& s) {
        if (!s.wants_room || !s.writable() || s.fd < 0) return;
        s.wants_room = false;
        if (plant == Plant::lost_event && random.chance(8192)) return;
        wake(s.fd, EPOLLOUT);
    }

    // ---- the server's side of the wire

    ssize_t receive(int fd, char* data, std::size_t size) {
        File* file = need("recv", fd, File::Kind::stream);
        Stream& s = *file->stream;
        if (size == 0) violate("recv into an empty buffer");
        if (fault(Fault::recv_interrupted)) return fail(EINTR);
        if (fault(Fault::recv_fatal)) {
            s.spoiled = true;
            static constexpr int errors[] = {ETIMEDOUT, ENOMEM, EHOSTUNREACH, ECONNREFUSED, ENOBUFS, EPROTO};
            return fail(random.one_of(errors));
        }
        if (s.unread_by_server() == 0) {
            if (s.error != 0) return fail(std::exchange(s.error, 0));
            if (s.reset || s.client_finished) {
                changed();
                return plant == Plant::end_after_close_ignored ? fail(EAGAIN) : 0;
            }
            return fail(EAGAIN);
        }
        const std::size_t count = std::min(size, s.unread_by_server());
        std::memcpy(data, s.to_server.data() + s.to_server_begin, count);
        s.to_server_begin += count;
        changed();
        received_bytes += count;
        if (s.watcher != nullptr) s.watcher->on_taken({data, count});
        if (s.to_server_begin == s.to_server.size()) {
            s.to_server.clear();
            s.to_server_begin = 0;
        }
        return static_cast<ssize_t>(count);
    }

    ssize_t send(int fd, const char* data, std::size_t size) {
        File* file = need("send", fd, File::Kind::stream);
        Stream& s = *file->stream;
        if (size == 0) violate("send of nothing");
        if (fault(Fault::send_interrupted)) return fail(EINTR);
        if (fault(Fault::send_fatal)) {
            s.spoiled = true;
            static constexpr int errors[] = {EPIPE, ECONNRESET, ENOBUFS, ENOMEM, ETIMEDOUT, ENETUNREACH};
            return fail(random.one_of(errors));
        }
        if (s.error != 0) return fail(std::exchange(s.error, 0));
        if (s.reset) return fail(EPIPE);
        if (s.server_finished) {
            violate("send on descriptor %d behind its own shutdown", fd);
            return -1;
        }
        if (s.client_gone) {  // it is delivered, and answered with RST
            reset(s);
            sent_bytes += size;
            return static_cast<ssize_t>(size);
        }
        if (s.room() == 0 || fault(Fault::send_busy)) {
            s.wants_room = true;  // and, short of memory, the kernel tells when there is some: see World
            return fail(EAGAIN);
        }
        std::size_t count = std::min(size, s.room());
        if (count < size) s.wants_room = true;
        if (count > 1 && fault(Fault::send_short)) count = random.between(1, count - 1);
        s.to_client.append(data, count);
        sent_bytes += count;
        changed();
        if (s.watcher != nullptr) s.watcher->on_sent({data, count});
        if (plant == Plant::sent_more_than_said && count > 1 && random.chance(200)) --count;
        if (plant == Plant::sent_less_than_said && count < size && random.chance(3000)) ++count;
        return static_cast<ssize_t>(count);
    }

    int accept(int fd) {
        File* listener = need("accept4", fd, File::Kind::listener);
        if (fault(Fault::accept_interrupted)) return static_cast<int>(fail(EINTR));
        if (listener->queue.empty()) return static_cast<int>(fail(EAGAIN));
        if (fault(Fault::accept_exhausted)) {
            static constexpr int errors[] = {EMFILE, ENFILE, ENOBUFS, ENOMEM};
            return static_cast<int>(fail(random.one_of(errors)));
        }
        if (fault(Fault::accept_dead)) {
            listener->queue.front()->spoiled = true;
            refuse(*listener->queue.front());
            listener->queue.pop_front();
            static constexpr int errors[] = {ECONNABORTED, EPROTO, ENETDOWN, EHOSTUNREACH, EPERM, EOPNOTSUPP};
            return static_cast<int>(fail(random.one_of(errors)));
        }
        const int got = open(File::Kind::stream);
        if (got < 0) return got;
        listener = &at(fd);  // the table may have grown
        File& file = at(got);
        file.stream = listener->queue.front();
        listener->queue.pop_front();
        file.stream->fd = got;
        if (static_cast<std::size_t>(got) >= table_size) file.stream->spoiled = true;  // the server has no room for it
        ++accepted;
        if (file.stream->watcher != nullptr) file.stream->watcher->on_accept();
        if (plant == Plant::accept_leaks && random.chance(300)) return accept(fd);
        return got;
    }

    ssize_t fail(int error) {
        errno = error;
        return -1;
    }

    static constexpr std::size_t trace_lines_max = 400;

    Random random;
    std::array<std::uint32_t, faults> rates{};
    std::array<std::uint64_t, faults> injected{};
    std::uint32_t preempt_rate = 0;
    std::size_t descriptors_max = 64;
    std::size_t table_size = 64;  ///< of the server's table of connections
    std::uint64_t clock_ms = 0;
    std::uint32_t stamp_base = 0;  ///< where the wrapping clock began
    std::int64_t wall_base = 0;
    std::uint64_t changes = 0;  ///< of any state of this kernel; a reactor that turns without one spins
    std::uint64_t calls = 0, accepted = 0, received_bytes = 0, sent_bytes = 0;
    std::string violation;
    bool tracing = false;
    std::deque<std::string> trace;
    std::vector<Task> tasks;
    int running = -1;  ///< the task whose fiber runs
    Plant plant = Plant::none;

private:
    std::vector<File> files_;
};

inline Kernel* kernel = nullptr;

/// Whether the code that runs now is the server's own: it must not allocate.
inline bool server_code = false;
struct NotServerCode {
    bool was = std::exchange(server_code, false);
    ~NotServerCode() { server_code = was; }
};

// ------------------------------------------------------------------------------------------------------------ the seam

/// The reactor's system calls, made to the simulated kernel.
struct SimSys {
    static int accept(int listener) {
        const NotServerCode here;
        kernel->breathe();
        const int fd = kernel->accept(listener);
        kernel->note("accept(%d) = %d%s%s", listener, fd, fd < 0 ? " " : "", fd < 0 ? std::strerror(errno) : "");
        return fd;
    }
    static ssize_t recv(int fd, char* data, std::size_t size) {
        const NotServerCode here;
        kernel->breathe();
        const ssize_t got = kernel->receive(fd, data, size);
        kernel->note("recv(%d, %zu) = %zd%s%s", fd, size, got, got < 0 ? " " : "", got < 0 ? std::strerror(errno) : "");
        return got;
    }
    static ssize_t send(int fd, const char* data, std::size_t size, bool) {
        const NotServerCode here;
        kernel->breathe();
        const ssize_t sent = kernel->send(fd, data, size);
        kernel->note("send(%d, %zu) = %zd%s%s", fd, size, sent, sent < 0 ? " " : "", sent < 0 ? std::strerror(errno) : "");
        return sent;
    }
    /// The file is a real one; only its way to the peer is simulated.
    static ssize_t send_file(int fd, int file, std::uint64_t offset, std::size_t size) {
        const NotServerCode here;
        static std::array<char, 65536> block;
        const ssize_t got = ::pread(file, block.data(), std::min(size, block.size()), static_cast<off_t>(offset));
        if (got <= 0) return got;
        return send(fd, block.data(), static_cast<std::size_t>(got), false);
    }
    static int epoll_create() { return kernel->open(File::Kind::epoll); }
    static int event_create() { return kernel->open(File::Kind::event); }
    static int epoll_ctl(int epoll, int operation, int fd, epoll_event* event) {
        const NotServerCode here;
        kernel->breathe();
        epoll_event asked = operation == EPOLL_CTL_DEL ? epoll_event{} : *event;
        if (kernel->plant == Plant::blind_to_rdhup) asked.events &= ~static_cast<std::uint32_t>(EPOLLRDHUP);
        const int result = kernel->control(epoll, operation, fd, &asked);
        kernel->note("epoll_ctl(%d, %s, %d) = %d", epoll, operation == EPOLL_CTL_ADD ? "ADD" : "DEL", fd, result);
        if (kernel->random.chance(kernel->preempt_rate) && Fiber::inside()) Fiber::yield();  // the new owner may act at once
        return result;
    }
    static int epoll_wait(int epoll, epoll_event* events, int count, int timeout_ms) {
        const NotServerCode here;
        kernel->breathe();
        Task& task = kernel->tasks[static_cast<std::size_t>(kernel->running)];
        watch_for_spin(task);
        if (kernel->fault(Fault::wait_interrupted)) return static_cast<int>(kernel->fail(EINTR));
        const std::uint64_t until = timeout_ms < 0 ? UINT64_MAX : kernel->clock_ms + static_cast<std::uint64_t>(timeout_ms);
        if (timeout_ms < -1) kernel->violate("epoll_wait for %d ms", timeout_ms);
        for (;;) {
            int found = kernel->harvest(epoll, events, count);
            if (found != 0) {
                if (kernel->plant == Plant::lost_event && kernel->random.chance(100)) --found;
                kernel->note("epoll_wait(%d) = %d", epoll, found);
                return found;
            }
            if (kernel->clock_ms >= until) {
                kernel->note("epoll_wait(%d, %d ms) = 0", epoll, timeout_ms);
                return 0;
            }
            if (kernel->plant == Plant::spin) return 0;
            task.epoll = epoll;
            task.until_ms = kernel->plant == Plant::late_timeout && until != UINT64_MAX ? until + 150 : until;
            task.blocked = true;
            kernel->at(epoll).waiter = kernel->running;
            Fiber::yield();
            kernel->at(epoll).waiter = -1;
            task.blocked = false;
            if (std::exchange(task.interrupted, false)) {
                kernel->note("epoll_wait(%d) interrupted", epoll);
                return static_cast<int>(kernel->fail(EINTR));
            }
        }
    }
    static bool writable(int fd) {
        const NotServerCode here;
        kernel->breathe();
        return kernel->need("poll", fd, File::Kind::stream) != nullptr &&
               (kernel->poll(fd) & (EPOLLOUT | EPOLLERR | EPOLLHUP)) != 0;
    }
    static int shutdown_write(int fd) {
        const NotServerCode here;
        kernel->breathe();
        Stream& s = *kernel->need("shutdown", fd, File::Kind::stream)->stream;
        kernel->note("shutdown(%d)", fd);
        if (s.reset) return static_cast<int>(kernel->fail(ENOTCONN));
        if (s.watcher != nullptr) s.watcher->on_shutdown();
        if (kernel->plant == Plant::shutdown_forgotten) return 0;
        s.server_finished = true;
        kernel->changed();
        kernel->wake(fd, 0);
        return 0;
    }
    static int close(int fd) {
        const NotServerCode here;
        kernel->breathe();
        kernel->note("close(%d)", fd);
        if (kernel->plant == Plant::close_forgotten && kernel->is(fd, File::Kind::stream) && kernel->random.chance(1000)) return 0;
        kernel->close(fd);
        return kernel->fault(Fault::close_interrupted) ? static_cast<int>(kernel->fail(kernel->random.below(2) == 0 ? EINTR : EIO))
                                                       : 0;
    }
    static void event_raise(int fd) {
        const NotServerCode here;
        kernel->breathe();
        File* file = kernel->need("write", fd, File::Kind::event);
        ++file->count;
        kernel->note("raise(%d)", fd);
        kernel->changed();
        kernel->wake(fd, EPOLLIN);
    }
    static void event_clear(int fd) {
        const NotServerCode here;
        kernel->breathe();
        File* file = kernel->need("read", fd, File::Kind::event);
        if (std::exchange(file->count, 0) != 0) kernel->changed();
    }
    static std::uint32_t now_ms() {
        if (kernel->plant == Plant::late_clock) return static_cast<std::uint32_t>(kernel->stamp_ms() - kernel->clock_ms / 8);
        if (kernel->plant == Plant::early_clock) return static_cast<std::uint32_t>(kernel->stamp_ms() + kernel->clock_ms / 8);
        return kernel->stamp_ms();
    }
    static std::int64_t now_seconds() {
        if (kernel->running >= 0) kernel->tasks[static_cast<std::size_t>(kernel->running)].ticked = kernel->wall();
        return kernel->wall();
    }

private:
    /// A loop that turns and turns though nothing at all changes burns a CPU for nothing.
    static void watch_for_spin(Task& task) {
        static constexpr std::uint64_t waits_max = 64;
        if (kernel->changes != task.seen_changes) task.idle_waits = 0;
        task.seen_changes = kernel->changes;
        if (++task.idle_waits > waits_max)
            kernel->violate("spin: %llu turns of the loop without any change", static_cast<unsigned long long>(waits_max));
    }
};

}  // namespace sim

#endif  // CEILING_TESTS_SIMULATION_KERNEL_HPP
