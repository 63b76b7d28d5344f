// Deterministic simulation: the real reactor, parser and HttpProtocol under a simulated kernel and simulated clients, all of it
// from one seed. Every seed is another world: its options, the faults of its kernel, the habits of its clients, the order in
// which everybody gets to act.
//
//     simulate [--seeds N] [--first S]    N worlds from seed S on; a seed that breaks a rule is printed, and
//     simulate --seed S                   replays alone, with the last calls before the fault
//     simulate --plants                   plants a mistake at a time and demands that it is found
//     simulate                            a fixed budget of both, for `make test`
//
// Checked after every step: each whole request is answered once, in order and byte by byte; nothing follows the last answer; a
// connection ends only for a reason; no call is made on a descriptor the server does not have. Checked whenever every reactor
// rests: nothing that is here waits (no edge was lost), no deadline is missed, the lists, the pool and the loads add up, the
// loads are level when the connections are at rest. Checked at the end: everything that was opened is closed, everything lent is
// back, everything held is released. All the time: the loop does not spin, and the hot path allocates nothing.

#define CEILING_NO_MAIN
#include "../server.cpp"

#include "simulation/client.hpp"
#include "simulation/kernel.hpp"

#include <sys/wait.h>
#include <csignal>
#include <new>

// ---------------------------------------------------------------------------------------------------------- allocations

namespace {
std::uint64_t allocations = 0;
}
[[gnu::noinline]] void* operator new(std::size_t size) {
    if (sim::server_code) ++allocations;
    if (void* memory = std::malloc(size)) return memory;
    throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
    std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept {
    std::free(memory);
}

// --------------------------------------------------------------------------------------------------- a look from inside

namespace reactor {

struct Inspector {
    /// Buffers that are lent now: those ever taken, less those on the free list.
    template <class G>
    static std::uint32_t lent(G& group) {
        auto& pool = group.pool_;
        std::uint32_t free = 0;
        for (std::uint32_t i = static_cast<std::uint32_t>(pool.top_.load()); i != none; i = pool.next(i).load()) {
            if (++free > pool.count_) return none;  // a circle
        }
        return pool.fresh_.load() - free;
    }

    /// What is wrong with the lists of one reactor; null: nothing. Adds up what is linked and what is lent there.
    template <class R, class G>
    static const char* check(R& loop, G& group, std::uint32_t& linked, std::uint32_t& lent) {
        for (std::size_t kind = 0; kind < waitings; ++kind) {
            const auto& list = loop.lists_[kind];
            std::uint32_t previous = none;
            std::uint32_t length = 0;
            std::uint32_t since = 0;
            for (std::uint32_t fd = list.first; fd != none; fd = group.at(fd).next) {
                auto& c = group.at(fd);
                if (c.prev != previous) return "a list's links do not match";
                if (static_cast<std::size_t>(c.waiting) != kind) return "a connection is in another list than it waits for";
                if ((c.generation.load() & 1U) == 0) return "a closed connection is in a list";
                if (!c.is(adopted)) return "a connection that belongs to nobody is in a list";
                if (length != 0 && list.timeout_ms != 0 && static_cast<std::int32_t>(c.since_ms - since) < 0)
                    return "a list is not in the order of its deadlines";
                if (c.run.count == 0 && c.is(holding)) return "a response is held that is not owed";
                if (c.run.count != 0 && !c.is(holding)) return "a response is owed and not held";
                if (c.run.lent != none) ++lent;
                since = c.since_ms;
                previous = fd;
                if (++length > list.length) return "a list is longer than its length";
            }
            if (list.last != previous) return "a list ends elsewhere";
            if (length != list.length) return "a list is shorter than its length";
            linked += length;
        }
        return nullptr;
    }
};

}  // namespace reactor

namespace {

using sim::Client;
using sim::Fault;
using sim::Fiber;
using sim::File;
using sim::Kernel;
using sim::Plant;
using sim::Scene;
using sim::Stream;

// ------------------------------------------------------------------------------------------------- the protocol, watched

class Watched : public ceiling::HttpProtocol {
public:
    using HttpProtocol::HttpProtocol;

    Reply answer(State& state, std::string_view input, Partial& partial) {
        const State before = state;
        Reply reply = HttpProtocol::answer(state, input, partial);
        Kernel& k = *sim::kernel;
        if (k.plant == Plant::answered_twice && reply.response != nullptr && reply.then == Reply::Then::go_on &&
            k.random.chance(300)) {
            state = before;
            reply.consumed = 0;
        }
        if (k.plant == Plant::answer_swapped && reply.response != nullptr && k.random.chance(300)) {
            reply.response = reply.response->site->at((reply.response->number + 1) % 6);
        }
        return reply;
    }
    void hold(const Response& response) {
        if (sim::kernel->plant == Plant::hold_forgotten) return;
        ++held;
        HttpProtocol::hold(response);
    }
    void release(const Response& response) {
        if (sim::kernel->plant == Plant::release_forgotten) return;
        if (held == 0) sim::kernel->violate("a response is released that was not held");
        --held;
        HttpProtocol::release(response);
    }
    void tick(std::int64_t seconds) {
        const sim::NotServerCode here;  // adopting a new site may allocate
        HttpProtocol::tick(seconds - (sim::kernel->plant == Plant::stale_date ? 5 : 0));
    }
    void drain() {
        if (sim::kernel->plant != Plant::drain_ignored) HttpProtocol::drain();
    }

    inline static std::uint64_t held = 0;  // of all: a connection may be released by another reactor than held it
};

using Group = reactor::Group<Watched, sim::SimSys>;
using Loop = reactor::Reactor<Watched, sim::SimSys>;

// ---------------------------------------------------------------------------------------------------------------- figures

struct Figures {
    std::uint64_t seeds = 0, steps = 0, calls = 0, connections = 0, answers = 0, faults = 0, received = 0, sent = 0,
                  handed_over = 0;
    std::array<std::uint64_t, sim::faults> injected{};
};

// ------------------------------------------------------------------------------------------------------------------ world

class World {
public:
    World(std::uint64_t seed, Plant plant, bool tracing) : k_(seed) {
        sim::kernel = &k_;
        Watched::held = 0;
        k_.plant = plant;
        k_.tracing = tracing;
        compose();
        options_ = options_of(scene_);
        current_.emplace(load_site(0));
        build();
    }
    ~World() {
        for (auto& client : clients_) client.reset();
        loops_.clear();
        protocols_.clear();
        group_.reset();
        current_.reset();
        sim::kernel = nullptr;
    }
    World(const World&) = delete;
    World& operator=(const World&) = delete;

    /// What was violated, or nothing.
    std::string run() {
        while (!failed() && !all_over()) turn();
        if (!failed()) check_end();
        return k_.violation;
    }

    void add_to(Figures& f) const {
        ++f.seeds;
        f.steps += steps_;
        f.calls += k_.calls;
        f.connections += k_.accepted;
        f.answers += answers_;
        f.received += k_.received_bytes;
        f.sent += k_.sent_bytes;
        for (const Loop& loop : loops_) f.handed_over += loop.counters().get(reactor::Count::handed_over);
        for (std::size_t i = 0; i < sim::faults; ++i) {
            f.injected[i] += k_.injected[i];
            f.faults += k_.injected[i];
        }
    }
    [[nodiscard]] const std::deque<std::string>& trace() const noexcept { return k_.trace; }
    [[nodiscard]] std::string describe() const {
        return ceiling::format(
            "%u reactors%s%s, head %u ms, idle %u ms, drain %u ms, delay %u ms, max-requests %u, body %s, socket buffers %zu and "
            "%zu, %s time",
            scene_.reactors, scene_.shared_listener ? ", shared listener" : "", scene_.balance ? "" : ", no balance",
            scene_.head_ms, scene_.idle_ms, scene_.drain_ms, scene_.delay_ms, scene_.requests_max,
            scene_.filled ? std::to_string(scene_.body_bytes).c_str() : "text", scene_.receive_max, scene_.send_max,
            scene_.exact_time ? "exact" : "moving");
    }

private:
    // ---- making a world

    /// Each world has some of the options and some of the faults, so that each combination gets its turn.
    void compose() {
        sim::Random& random = k_.random;
        static constexpr unsigned reactors[] = {1, 1, 1, 2, 2, 3, 4};
        scene_.reactors = random.one_of(reactors);
        scene_.shared_listener = random.below(4) == 0;
        scene_.balance = random.below(5) != 0;
        scene_.head_ms = random.below(8) == 0 ? 0 : static_cast<std::uint32_t>(random.between(50, 3000));
        scene_.idle_ms = random.below(8) == 0 ? 0 : static_cast<std::uint32_t>(random.between(50, 5000));
        scene_.drain_ms = static_cast<std::uint32_t>(random.between(50, 3000));
        if (random.below(6) == 0) scene_.delay_ms = static_cast<std::uint32_t>(random.between(1, 100));
        if (random.below(4) == 0) scene_.requests_max = static_cast<std::uint32_t>(random.between(1, 5));
        scene_.head_bytes_max = random.between(300, 1500);
        scene_.body_bytes_max = random.between(1000, 5000);
        static constexpr std::uint64_t bodies[] = {0, 1, 90, 99, 900, 5000, 65530, 65536, 70000};
        scene_.filled = random.below(3) == 0;
        if (scene_.filled) scene_.body_bytes = random.one_of(bodies);
        if (random.below(4) == 0) scene_.server = "sim";
        static constexpr std::size_t buffers[] = {1, 7, 100, 1000, 4000, 65536, 300000};
        scene_.receive_max = random.one_of(buffers);
        // A registration elsewhere relies on the socket's having room for more than handover_bytes_max.
        static constexpr std::size_t large_buffers[] = {8192, 16384, 65536, 300000};
        scene_.send_max = scene_.reactors > 1 && scene_.balance
                              ? random.one_of(large_buffers)
                              : std::max<std::size_t>(random.one_of(buffers), scene_.filled && scene_.body_bytes > 900 ? 1000 : 1);
        scene_.pipelining = static_cast<unsigned>(random.one_of({1U, 4U, 12U, 40U}));
        if (random.below(3) == 0) scene_.rude_rate = static_cast<std::uint32_t>(random.between(1, 1500));
        if (random.below(2) == 0) scene_.faulty_rate = static_cast<std::uint32_t>(random.between(1000, 20000));
        scene_.floods = random.below(10) == 0;
        if (scene_.floods) scene_.receive_max = 300000;  // more than a turn's budget
        scene_.exact_time = !scene_.floods && random.below(3) != 0;

        if (random.below(3) != 0) {
            for (std::uint32_t& rate : k_.rates) {
                if (random.below(3) == 0)
                    rate = static_cast<std::uint32_t>(random.below(2) == 0 ? random.between(1, 200) : random.between(200, 6000));
            }
        }
        static constexpr std::uint32_t preemptions[] = {0, 2000, 16000, 40000};
        k_.preempt_rate = random.one_of(preemptions);
        k_.clock_ms = 1000;
        static constexpr std::uint32_t bases[] = {0, 0x7fffffffU - 3000U, 0xffffffffU - 3000U};
        k_.stamp_base = random.one_of(bases);  // near where the signed and the unsigned clock turn over
        static constexpr std::int64_t epochs[] = {784111777, 951782399, 4102444799, 65536LL * 20000 - 2};
        k_.wall_base = random.one_of(epochs);
        scene_.wall_jumps.emplace_back(0, k_.wall_base);
        k_.descriptors_max = random.below(3) == 0 ? random.between(20, 26) : 200;
        k_.table_size = random.below(6) == 0 ? 22 : k_.descriptors_max;
        clients_max_ = random.one_of({1U, 3U, 8U, 24U});
        budget_ = random.between(500, 6000);
        reload_rate_ = random.below(3) == 0 ? 40 : 0;
        jump_rate_ = random.below(4) == 0 ? 60 : 0;
        early_drain_rate_ = random.below(3) == 0 ? 30 : 0;
    }

    ceiling::Site* load_site(unsigned version) {
        if (scene_.filled)
            options_.body_bytes = scene_.size(version);
        else
            options_.body = scene_.text(version);
        return ceiling::Site::load(options_);
    }

    static ceiling::Options options_of(const Scene& scene) {
        ceiling::Options o;
        o.source = scene.filled ? ceiling::Options::Source::filled : ceiling::Options::Source::text;
        o.body_bytes = scene.body_bytes;
        o.server = scene.server;
        o.head_bytes_max = scene.head_bytes_max;
        o.body_bytes_max = scene.body_bytes_max;
        o.requests_max = scene.requests_max;
        return o;
    }

    void build() {
        reactor::Settings settings;
        settings.descriptors_max = static_cast<std::uint32_t>(k_.table_size);
        settings.connections_max = k_.random.below(4) == 0 ? static_cast<std::uint32_t>(k_.random.between(2, 6)) : 150;
        settings.input_bytes = scene_.head_bytes_max + k_.random.between(1, 3000);
        settings.head_timeout_ms = scene_.head_ms;
        settings.idle_timeout_ms = scene_.idle_ms;
        settings.drain_timeout_ms = scene_.drain_ms;
        settings.delay_ms = scene_.delay_ms;
        settings.balance = scene_.balance;
        const auto rates = std::exchange(k_.rates, {});  // start-up has its own tests
        group_.emplace(settings, scene_.reactors);
        static std::deque<Fiber> fibers(4);
        for (unsigned i = 0; i < scene_.reactors; ++i) {
            protocols_.emplace_back(*current_, options_);
            loops_.emplace_back(*group_, i, protocols_.back());
            if (i == 0 || !scene_.shared_listener) listeners_.push_back(k_.open(File::Kind::listener));
            if (!loops_.back().listen({listeners_.back(), scene_.shared_listener})) k_.violate("listen failed");
            k_.tasks.push_back({&fibers[i]});
        }
        k_.rates = rates;
        for (unsigned i = 0; i < scene_.reactors; ++i) {
            k_.tasks[i].fiber->start([this, i] {
                sim::server_code = true;
                loops_[i].run();
                sim::server_code = false;
            });
        }
    }

    // ---- one turn: somebody does something

    [[nodiscard]] bool failed() const noexcept { return !k_.violation.empty(); }
    [[nodiscard]] bool all_over() const {
        return std::all_of(k_.tasks.begin(), k_.tasks.end(), [](const sim::Task& t) { return t.fiber->over; });
    }
    bool can_run(const sim::Task& t) {
        if (t.fiber->over) return false;
        return !t.blocked || t.interrupted || k_.clock_ms >= t.until_ms || k_.has_ready(t.epoll);
    }

    void turn() {
        ++steps_;
        if (steps_ > steps_max) return k_.violate("no end: %llu steps", static_cast<unsigned long long>(steps_));
        if (steps_ > budget_ && !scene_.draining) drain();
        disturb();
        runnable_.clear();
        for (std::size_t i = 0; i < k_.tasks.size(); ++i) {
            if (can_run(k_.tasks[i])) runnable_.push_back(static_cast<int>(i));
        }
        if (runnable_.empty()) {
            check_rest();
            if (failed()) return;
            scene_.drain_seen = scene_.draining;
        }
        if (!runnable_.empty() && (clients_.empty() || k_.random.below(3) != 0))
            return run_task(runnable_[k_.random.below(runnable_.size())]);
        if (act_somebody()) return;
        if (!runnable_.empty()) return run_task(runnable_[k_.random.below(runnable_.size())]);
        if (!scene_.draining && clients_.size() < clients_max_ && k_.random.below(2) == 0) return connect();
        pass_time();
    }

    void run_task(int i) {
        k_.running = i;
        k_.tasks[static_cast<std::size_t>(i)].fiber->resume();
        k_.running = -1;
        sim::server_code = false;
        if (std::exchange(allocations, 0) != 0) k_.violate("the hot path allocates");
    }

    bool act_somebody() {
        if (clients_.empty()) return false;
        const std::size_t first = k_.random.below(clients_.size());
        for (std::size_t n = 0; n < clients_.size(); ++n) {
            const std::size_t i = (first + n) % clients_.size();
            Client& client = *clients_[i];
            if (client.act()) return true;
            Stream& s = *client.stream();
            if (s.wants_room && s.writable() && s.fd >= 0) {  // memory is there again
                k_.make_room(s);
                return true;
            }
            if (client.over() && s.fd < 0 && (s.server_finished || s.client_reset)) {
                answers_ += client.answers();
                clients_.erase(clients_.begin() + static_cast<std::ptrdiff_t>(i));
                return true;
            }
        }
        return false;
    }

    void connect() {
        const int listener = listeners_[k_.random.below(listeners_.size())];
        if (!k_.is(listener, File::Kind::listener)) return;
        clients_.push_back(std::make_unique<Client>(k_, scene_));
        k_.at(listener).queue.push_back(clients_.back()->stream());
        k_.note("client %p connects to %d", static_cast<void*>(clients_.back().get()), listener);
        k_.changed();
        k_.wake(listener, EPOLLIN);
    }

    /// The outside world.
    void disturb() {
        sim::Random& random = k_.random;
        if (!scene_.draining && clients_.size() < clients_max_ && random.below(16) == 0) connect();
        if (random.chance(reload_rate_) && scene_.version < 12) reload();
        if (random.chance(early_drain_rate_) && !scene_.draining) drain();
        if (random.chance(jump_rate_)) jump();
        if (random.chance(100)) {
            sim::Task& t = k_.tasks[random.below(k_.tasks.size())];
            if (t.blocked && !t.fiber->over) t.interrupted = true;
        }
        if (random.chance(60)) group_->wake(static_cast<unsigned>(random.below(scene_.reactors)));
        if (!scene_.exact_time && random.chance(2000)) advance(k_.clock_ms + random.between(1, scene_.floods ? 50 : 3));
    }

    void reload() {
        k_.note("reload");
        ceiling::Site* const site = load_site(++scene_.version);
        scene_.reloaded_ms.push_back(k_.clock_ms);
        current_->replace(site);
    }

    void drain() {
        k_.note("drain");
        scene_.draining = true;
        scene_.drain_ms_begin = k_.clock_ms;
        group_->drain();
    }

    /// The wall clock is set, which must disturb nothing but what Date says.
    void jump() {
        // A half-sent Date is finished with the second it was begun with, up to nine hours away.
        static constexpr std::int64_t jumps[] = {-1, 1, 0, -3600, 3600, -15000, 15000};
        k_.wall_base = scene_.wall_jumps.front().second + k_.random.one_of(jumps);
        scene_.wall_jumps.emplace_back(k_.clock_ms, k_.wall_base);
        k_.note("the wall clock is set");
    }

    void advance(std::uint64_t to) {
        k_.clock_ms = to;
        k_.changed();
    }

    /// Nobody can do anything: time passes until somebody can.
    void pass_time() {
        std::uint64_t next = UINT64_MAX;
        for (const sim::Task& t : k_.tasks) {
            if (!t.fiber->over && t.blocked) next = std::min(next, t.until_ms);
        }
        for (const auto& client : clients_) next = std::min(next, client->wakes_ms());
        sim::Random& random = k_.random;
        if (next == UINT64_MAX) {
            if (scene_.draining) return k_.violate("a drain waits for ever");
            return advance(k_.clock_ms + random.between(1, 1000));
        }
        next = std::max(next, k_.clock_ms + 1);
        if (random.below(3) == 0) return advance(std::min(next, k_.clock_ms + random.between(1, 40)));
        if (!scene_.exact_time && random.below(8) == 0)
            return advance(next + random.between(1, 100));  // the machine was busy elsewhere
        advance(next);
    }

    // ---- rules

    void check_rest() {
        if (steps_checked_ == k_.changes) return;
        steps_checked_ = k_.changes;
        std::uint32_t linked = 0;
        std::uint32_t lent = 0;
        for (std::size_t i = 0; i < loops_.size(); ++i) {
            if (const char* fault = reactor::Inspector::check(loops_[i], *group_, linked, lent))
                return k_.violate("reactor %zu: %s", i, fault);
        }
        const auto open = static_cast<std::uint32_t>(k_.open_files(File::Kind::stream));
        if (group_->held() != open) return k_.violate("%u connections are counted and %u are open", group_->held(), open);
        if (linked != open) return k_.violate("%u connections have a deadline and %u are open", linked, open);
        if (reactor::Inspector::lent(*group_) != lent)
            return k_.violate("%u buffers are lent and %u are used", reactor::Inspector::lent(*group_), lent);
        bool quiet = true;
        std::uint64_t open_to_clients = 0;
        for (const auto& client : clients_) {
            const Stream& s = *client->stream();
            if (s.wants_room && s.writable() && s.fd >= 0) {  // the kernel owes an edge
                quiet = false;
                ++open_to_clients;
                continue;
            }
            client->check_at_rest(scene_.delay_ms != 0);
            if (failed()) return;
            if (!client->open_at_server()) continue;
            ++open_to_clients;
            quiet = quiet && client->at_rest() && !s.wants_room;
        }
        if (open_to_clients != open)
            return k_.violate("%u connections are open, and %llu belong to a client", open,
                              static_cast<unsigned long long>(open_to_clients));
        if (!quiet || !scene_.balance || scene_.draining || scene_.delay_ms != 0) return;
        std::uint32_t least = UINT32_MAX;
        std::uint32_t most = 0;
        for (unsigned i = 0; i < scene_.reactors; ++i) {
            least = std::min(least, group_->held(i));
            most = std::max(most, group_->held(i));
        }
        if (most - least > 1) k_.violate("out of balance: one reactor has %u connections, another %u", most, least);
    }

    void check_end() {
        const auto after = k_.clock_ms - scene_.drain_ms_begin;
        if (after > scene_.drain_ms + 5 + (scene_.exact_time ? 0 : 500))
            return k_.violate("the drain took %llu ms of %u", static_cast<unsigned long long>(after), scene_.drain_ms);
        if (const std::size_t open = k_.open_files(File::Kind::stream); open != 0)
            return k_.violate("%zu connections are open after the end", open);
        if (!scene_.shared_listener && k_.open_files(File::Kind::listener) != 0)
            return k_.violate("a listener is open after the end");
        if (group_->held() != 0) return k_.violate("%u connections are counted after the end", group_->held());
        if (reactor::Inspector::lent(*group_) != 0)
            return k_.violate("%u buffers are lent after the end", reactor::Inspector::lent(*group_));
        if (Watched::held != 0)
            return k_.violate("%llu responses are held after the end", static_cast<unsigned long long>(Watched::held));
        std::uint64_t accepted = 0;
        std::uint64_t closed = 0;
        std::uint64_t received = 0;
        std::uint64_t sent = 0;
        for (const Loop& loop : loops_) {
            const reactor::Counters& c = loop.counters();
            accepted += c.get(reactor::Count::accepted);
            closed += c.get(reactor::Count::closed);
            received += c.get(reactor::Count::received_bytes);
            sent += c.get(reactor::Count::sent_bytes);
        }
        if (accepted != k_.accepted)
            return k_.violate("%llu connections were accepted, %llu are counted", static_cast<unsigned long long>(k_.accepted),
                              static_cast<unsigned long long>(accepted));
        if (received != k_.received_bytes)
            return k_.violate("bytes received: %llu, counted %llu", static_cast<unsigned long long>(k_.received_bytes),
                              static_cast<unsigned long long>(received));
        if (sent != k_.sent_bytes)
            return k_.violate("bytes sent: %llu, counted %llu", static_cast<unsigned long long>(k_.sent_bytes),
                              static_cast<unsigned long long>(sent));
        if (k_.table_size >= k_.descriptors_max && accepted != closed)
            return k_.violate("%llu accepted, %llu closed", static_cast<unsigned long long>(accepted),
                              static_cast<unsigned long long>(closed));
    }

    static constexpr std::uint64_t steps_max = 400'000;

    Kernel k_;
    Scene scene_;
    ceiling::Options options_;
    std::optional<ceiling::Current> current_;
    std::optional<Group> group_;
    std::deque<Watched> protocols_;
    std::deque<Loop> loops_;
    std::vector<int> listeners_;
    std::vector<std::unique_ptr<Client>> clients_;
    std::vector<int> runnable_;
    std::size_t clients_max_ = 1;
    std::uint64_t budget_ = 0, steps_ = 0, steps_checked_ = 0, answers_ = 0;
    std::uint32_t reload_rate_ = 0, jump_rate_ = 0, early_drain_rate_ = 0;
};

// ------------------------------------------------------------------------------------------------------------------- main

/// What `make test` spends: some ten seconds.
#ifdef CEILING_FIBER_ASAN
constexpr std::uint64_t seeds_of_a_test = 200;
constexpr bool plants_of_a_test = false;  // once is enough: the judge is the same
#else
constexpr std::uint64_t seeds_of_a_test = 2000;
constexpr bool plants_of_a_test = true;
#endif
/// Each plant is met within 20 seeds; a lost event of a listener is none, for a level-triggered one comes back.
constexpr std::uint64_t plant_seeds_max = 400;

std::uint64_t current_seed = 0;

void on_abort(int) {
    std::fprintf(stderr, "seed %llu: the server aborted\n", static_cast<unsigned long long>(current_seed));
    std::signal(SIGABRT, SIG_DFL);
    std::abort();
}

/// True if the seed keeps every rule.
bool run_seed(std::uint64_t seed, Figures& figures, Plant plant, bool tracing, bool silent = false) {
    current_seed = seed;
    World world(seed, plant, tracing);
    const std::string violation = world.run();
    world.add_to(figures);
    if (violation.empty()) return true;
    if (silent) return false;
    for (const std::string& line : world.trace()) std::printf("%s\n", line.c_str());
    std::printf("seed %llu: %s\n  (%s)\n  replay: simulate --seed %llu\n", static_cast<unsigned long long>(seed), violation.c_str(),
                world.describe().c_str(), static_cast<unsigned long long>(seed));
    std::fflush(stdout);
    return false;
}

/// How many of `count` seeds break a rule.
unsigned run_seeds(std::uint64_t first, std::uint64_t count, unsigned failures_max, Figures& figures) {
    unsigned failures = 0;
    for (std::uint64_t seed = first; seed < first + count && failures < failures_max; ++seed)
        failures += run_seed(seed, figures, Plant::none, false) ? 0 : 1;
    return failures;
}

void print(const Figures& f) {
    std::printf(
        "%llu seeds, %llu steps, %llu system calls, %llu connections, %llu answers, %llu handed over, %llu MB in, %llu MB out, "
        "%llu faults:\n ",
        static_cast<unsigned long long>(f.seeds), static_cast<unsigned long long>(f.steps),
        static_cast<unsigned long long>(f.calls), static_cast<unsigned long long>(f.connections),
        static_cast<unsigned long long>(f.answers), static_cast<unsigned long long>(f.handed_over),
        static_cast<unsigned long long>(f.received >> 20), static_cast<unsigned long long>(f.sent >> 20),
        static_cast<unsigned long long>(f.faults));
    for (std::size_t i = 0; i < sim::faults; ++i)
        std::printf(" %s %llu%s", sim::fault_names[i], static_cast<unsigned long long>(f.injected[i]),
                    i + 1 < sim::faults ? "," : "\n");
}

/// A mistake is planted: true if one of the seeds finds it. In a child, for the server may rightly abort.
bool finds(Plant plant, std::uint64_t seeds, std::uint64_t& found_at) {
    found_at = 0;
    for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
        std::fflush(stdout);
        const pid_t child = ::fork();
        if (child == 0) {
            std::signal(SIGABRT, SIG_DFL);
            if (std::freopen("/dev/null", "w", stderr) == nullptr) ::_exit(2);
            Figures figures;
            for (std::uint64_t s = seed; s < seed + 20; ++s) {
                if (!run_seed(s, figures, plant, false, true)) ::_exit(1);
            }
            ::_exit(0);
        }
        int status = 0;
        if (child < 0 || ::waitpid(child, &status, 0) != child) return false;
        found_at = seed + 19;
        if (status != 0) return true;
        seed += 19;
    }
    return false;
}

unsigned run_plants(std::uint64_t seeds) {
    unsigned missed = 0;
    for (std::size_t i = 1; i < static_cast<std::size_t>(Plant::count_); ++i) {
        std::uint64_t found_at = 0;
        const bool found = finds(static_cast<Plant>(i), seeds, found_at);
        std::printf("%-6s planted %s%s\n", found ? "ok" : "MISSED", sim::plant_names[i],
                    found ? ceiling::format(", found within %llu seeds", static_cast<unsigned long long>(found_at)).c_str() : "");
        missed += found ? 0 : 1;
    }
    return missed;
}

}  // namespace

int main(int argc, char** argv) {
    std::uint64_t seeds = 0;
    std::uint64_t first = 1;
    std::uint64_t one = 0;
    bool plants = false;
    Plant plant = Plant::none;
    for (int i = 1; i < argc; ++i) {
        const std::string_view word = argv[i];
        const auto number = [&] { return i + 1 < argc ? std::strtoull(argv[++i], nullptr, 10) : 0; };
        if (word == "--seeds")
            seeds = number();
        else if (word == "--first")
            first = number();
        else if (word == "--seed")
            one = number();
        else if (word == "--plants")
            plants = true;
        else if (word == "--plant" && i + 1 < argc) {
            const std::string_view name = argv[++i];
            for (std::size_t p = 0; p < static_cast<std::size_t>(Plant::count_); ++p) {
                if (name == sim::plant_names[p]) plant = static_cast<Plant>(p);
            }
        } else {
            std::fprintf(stderr, "usage: simulate [--seeds N] [--first SEED] | --seed SEED [--plant NAME] | --plants\n");
            return 2;
        }
    }
    std::signal(SIGABRT, on_abort);
    Figures figures;
    if (one != 0) {
        const bool good = run_seed(one, figures, plant, true);
        print(figures);
        return good ? 0 : 1;
    }
    const bool whole = seeds == 0 && !plants;
    unsigned failed = 0;
    unsigned passed = 0;
    if (seeds != 0 || whole) {
        const unsigned failures = run_seeds(first, whole ? seeds_of_a_test : seeds, 10, figures);
        print(figures);
        failed += failures;
        passed += failures == 0 ? 1 : 0;
    }
    if (plants || (whole && plants_of_a_test)) {
        const unsigned missed = run_plants(plant_seeds_max);
        failed += missed;
        passed += static_cast<unsigned>(Plant::count_) - 1 - missed;
    }
    std::printf("%u passed, %u failed\n", passed, failed);
    return failed == 0 ? 0 : 1;
}
